// scripts/monitoring: the dashboard and the alerts use only metrics, labels and values that a daemon has at /metrics.
// Prometheus' own grammar reads the queries, its promtool checks and tests the rules.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { parser } from "@prometheus-io/lezer-promql";
import { addKey, metrics, modelName, startServer, until } from "./server.mjs";

const folder = "scripts/monitoring";
const dashboard = JSON.parse(readFileSync(`${folder}/dashboard.json`, "utf8"));
const alerts = readFileSync(`${folder}/alerts.yml`, "utf8");
const panels = dashboard.panels.flatMap((p) => [p, ...(p.panels ?? [])]);
const targets = panels.flatMap((p) => (p.targets ?? []).map((t) => ({ ...t, panel: p.title })));
// Grafana replaces its variables before Prometheus sees a query.
const filled = (expr) =>
  expr.replace(/\$__rate_interval|\$__range/g, "5m").replace(/\$\{?(job|instance)\b\}?/g, (_, name) => `the-${name}`);
// The queries of the rules, as YAML writes them: on the line, or indented below "|".
const ruleQueries = [...alerts.matchAll(/^ +expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)/gm)].map((m) => m[1] ?? m[2]);
const alertNames = [...alerts.matchAll(/- alert: (\w+)/g)].map((m) => m[1]);
const ofTarget = ["job", "instance"]; // Prometheus adds them

// { selectors: [{ name, matchers: [[label, op, value]] }], groups: [label] } of a query.
function read(expr) {
  const found = { selectors: [], groups: [] };
  const text = (node) => expr.slice(node.from, node.to);
  parser.parse(expr).iterate({
    enter(node) {
      assert.ok(!node.type.isError, `a query is malformed at ${node.from}: ${expr}`);
      if (node.name === "VectorSelector") {
        const matchers = [];
        node.node.cursor().iterate((n) => {
          if (n.name !== "UnquotedLabelMatcher") return;
          const [label, op, value] = [n.node.firstChild, n.node.firstChild.nextSibling, n.node.lastChild].map(text);
          matchers.push([label, op, JSON.parse(value)]);
        });
        found.selectors.push({ name: text(node.node.getChild("Identifier")), matchers });
      }
      if (node.name === "GroupingLabels")
        for (let c = node.node.firstChild; c; c = c.nextSibling) if (c.name === "LabelName") found.groups.push(text(c));
    },
  });
  assert.ok(found.selectors.length, expr);
  return found;
}

let server, samples; // samples: name -> [{label: value}]
before(async () => {
  server = await startServer([]);
  const key = addKey(server, "monitor", "--scopes", "infer,metrics");
  server.key = key;
  const ask = (body) =>
    fetch(`${server.url}/v1/completions`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${key}` },
      body: JSON.stringify({ model: modelName, prompt: "Once", max_tokens: 2, ...body }),
    });
  await until(async () => (await fetch(`${server.url}/v1/models`)).status === 401, "a request needs a key");
  assert.equal((await ask({})).status, 200);
  assert.equal((await ask({ temperature: 99 })).status, 400);
  assert.equal((await ask({ not_a_field: 1 })).status, 200);
  // A request is counted after its client has the answer.
  const found = await until(async () => {
    const now = await metrics(server);
    const n = (name) => [...now].filter(([k, v]) => k.startsWith(`${name}{`) && v > 0).length;
    const needed = ["inferd_http_requests_total", "inferd_prepare_part_seconds_total", "inferd_key_requests_total"];
    const complete = needed.every(n) && n("inferd_key_completion_tokens_total");
    return complete ? now : null;
  }, "the requests are counted");
  samples = new Map();
  for (const key of found.keys()) {
    const [, name, labels = ""] = /^([a-zA-Z0-9_:]+)(?:\{(.*)\})?$/s.exec(key);
    const values = Object.fromEntries([...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map((m) => [m[1], m[2]]));
    if (!samples.has(name)) samples.set(name, []);
    samples.get(name).push(values);
  }
});
after(() => server?.stop());

// Values that come with what happens: a test cannot have all of them.
const open = ["code", "route", "key", "model", ...ofTarget];

function check(expr, where, legend = "") {
  const query = read(filled(expr));
  const labels = new Set(ofTarget);
  for (const { name, matchers } of query.selectors) {
    if (name === "up") continue; // Prometheus' own
    assert.ok(samples.has(name), `${where}: /metrics has no ${name}`);
    const mine = samples.get(name);
    for (const label of mine.flatMap(Object.keys)) labels.add(label);
    for (const [label, op, value] of matchers) {
      if (ofTarget.includes(label)) continue;
      assert.ok(
        mine.some((s) => label in s),
        `${where}: ${name} has no label ${label}`,
      );
      if (open.includes(label)) continue;
      const values = op.endsWith("~") ? value.split("|") : [value];
      for (const v of values)
        assert.ok(
          mine.some((s) => s[label] === v),
          `${where}: ${name} has no ${label}="${v}"`,
        );
    }
  }
  const used = [...query.groups, ...[...legend.matchAll(/\{\{ *(\w+) *\}\}/g)].map((m) => m[1])];
  for (const label of used) assert.ok(labels.has(label), `${where}: its metrics have no label ${label}`);
}

test("every query of the dashboard finds its metrics and labels", () => {
  assert.ok(targets.length >= 40);
  for (const t of targets) check(t.expr, `panel "${t.panel}"`, t.legendFormat);
  for (const v of dashboard.templating.list) {
    const query = /^label_values\((.*), (\w+)\)$/.exec(v.query?.query ?? "");
    if (v.type === "query") check(query[1], `variable ${v.name}`, `{{${query[2]}}}`);
  }
});

test("every alert finds its metrics and labels", () => {
  assert.equal(ruleQueries.length, alertNames.length);
  for (const [i, expr] of ruleQueries.entries()) check(expr, alertNames[i]);
});

test("a metric, a label or a value that does not exist is found", () => {
  const wrong = {
    "rate(inferd_http_request_total[5m])": /no inferd_http_request_total/,
    'inferd_http_requests_total{status="200"}': /no label status/,
    'inferd_auth_failures_total{reason="wrong"}': /no reason="wrong"/,
    'inferd_auth_failures_total{reason=~"unknown|wrong"}': /no reason="wrong"/,
    "sum by (status) (inferd_http_requests_total)": /no label status/,
    "sum(rate(inferd_http_requests_total[5m])": /malformed/,
  };
  for (const [expr, why] of Object.entries(wrong)) assert.throws(() => check(expr, "a test"), why);
});

test("the dashboard is one that Grafana draws: ids, places, data sources and rows", () => {
  assert.equal(new Set(panels.map((p) => p.id)).size, panels.length);
  const rows = panels.filter((p) => p.type === "row").map((p) => p.title);
  for (const word of ["Traffic", "Latency", "KV", "Prefix", "Models", "Keys", "Errors"])
    assert.ok(
      rows.some((r) => r.startsWith(word)),
      word,
    );
  for (const [i, p] of panels.entries()) {
    const { x, y, w, h } = p.gridPos;
    assert.ok(x >= 0 && w > 0 && h > 0 && x + w <= 24, p.title);
    for (const o of panels.slice(i + 1).map((q) => q.gridPos))
      assert.ok(x + w <= o.x || o.x + o.w <= x || y + h <= o.y || o.y + o.h <= y, `${p.title} lies under another one`);
    if (p.type === "row") continue;
    assert.equal(p.datasource.uid, "${datasource}", p.title);
    assert.ok(p.description && p.targets.length, p.title);
    assert.equal(new Set(p.targets.map((t) => t.refId)).size, p.targets.length, p.title);
  }
});

test("promtool: the rules are valid, their tests pass and name every alert; queries of the dashboard are valid", (t) => {
  const promtool = (...args) => spawnSync("promtool", args, { encoding: "utf8" });
  if (promtool("--version").error) return t.skip("promtool is not here (Debian: prometheus)");
  const work = mkdtempSync(join(tmpdir(), "inferd-rules-"));
  const passes = (...args) => {
    const { status, stdout, stderr } = promtool(...args);
    assert.equal(status, 0, stdout + stderr);
  };
  try {
    passes("check", "rules", "--lint-fatal", `${folder}/alerts.yml`);
    passes("test", "rules", `${folder}/alerts.test.yml`);
    const tested = readFileSync(`${folder}/alerts.test.yml`, "utf8");
    for (const name of alertNames) assert.match(tested, new RegExp(`alertname="${name}"`), name);
    // The tests see a threshold that moved.
    writeFileSync(join(work, "alerts.yml"), alerts.replace("> 0.05", "> 0.2"));
    writeFileSync(join(work, "alerts.test.yml"), tested);
    assert.notEqual(promtool("test", "rules", join(work, "alerts.test.yml")).status, 0);
    const rules = targets.map((one, i) => ({ record: `panel:${i}`, expr: filled(one.expr) }));
    writeFileSync(join(work, "panels.yml"), JSON.stringify({ groups: [{ name: "panels", rules }] }));
    passes("check", "rules", join(work, "panels.yml"));
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
});
