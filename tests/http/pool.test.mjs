// Four replicas behind a real HAProxy, with the configuration of scripts/replicas. Skipped where haproxy is not installed.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import {
  long,
  metrics,
  modelName,
  post,
  random,
  randomPrompt,
  serving,
  sse,
  startServer,
  until,
  whole,
} from "./server.mjs";

const find = (name) =>
  (process.env.PATH + ":/usr/sbin:/usr/local/sbin")
    .split(":")
    .map((d) => join(d, name))
    .find((file) => existsSync(file));
const programs = { haproxy: find("haproxy"), nginx: find("nginx") };
const skip = programs.haproxy ? false : "haproxy is not here";
const folder = mkdtempSync(join(tmpdir(), "inferd-pool-"));
after(() => rmSync(folder, { recursive: true, force: true }));

async function freePorts(n) {
  const servers = Array.from({ length: n }, () => createServer());
  await Promise.all(servers.map((s) => new Promise((resolve) => s.listen(0, "127.0.0.1", resolve))));
  const ports = servers.map((s) => s.address().port);
  await Promise.all(servers.map((s) => new Promise((resolve) => s.close(resolve))));
  return ports;
}

// The text with each of these replaced; each must be there.
function adapted(text, changes) {
  for (const [from, to] of changes) {
    assert.ok(text.includes(from), `the configuration has ${from}`);
    text = text.replaceAll(from, to);
  }
  return text;
}

const routers = {
  haproxy: (front, home, addresses, backend) => {
    const text = adapted(readFileSync("scripts/replicas/haproxy.cfg", "utf8"), [
      ["bind 127.0.0.1:8080", `bind 127.0.0.1:${front}`],
      ["default_backend affine", `default_backend ${backend}`],
      ["inter 1s", "inter 100ms"],
      ...addresses,
    ]);
    writeFileSync(`${home}/conf`, text);
    return ["-db", "-f", `${home}/conf`];
  },
  nginx: (front, home, addresses) => {
    const text = adapted(readFileSync("scripts/replicas/nginx.conf", "utf8"), [
      ["listen 127.0.0.1:8080", `listen 127.0.0.1:${front}`],
      ...addresses,
    ]);
    const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((n) => `${n}_temp_path ${home}/${n};`);
    writeFileSync(
      `${home}/conf`,
      `${process.getuid() ? "" : "user root;"} daemon off; pid ${home}/pid; error_log stderr; events {}
http { access_log off; ${paths.join(" ")}
${text}}
`,
    );
    return ["-p", home, "-c", `${home}/conf`, "-e", "stderr"];
  },
};

// Starts four replicas and a router before them; returns them with the router's address.
async function startPool(router, backend, flags) {
  const [front, ...ports] = await freePorts(5);
  const home = mkdtempSync(join(folder, "router-"));
  const addresses = ports.map((port, i) => [`127.0.0.1:${8081 + i}`, `127.0.0.1:${port}`]);
  const args = routers[router](front, home, addresses, backend);
  const own = ["--threads", "1", "--drain-delay-s", "1"];
  const replicas = await Promise.all(
    ports.map((port) => startServer([...own, ...flags, "--listen", `127.0.0.1:${port}`])),
  );
  const child = spawn(programs[router], args, { stdio: ["ignore", "ignore", "pipe"] });
  let stderr = "";
  child.stderr.on("data", (d) => (stderr += d));
  const exited = new Promise((resolve) => child.on("exit", resolve));
  const url = `http://127.0.0.1:${front}`;
  const ready = (r) => r.status === 200;
  const stop = async () => {
    child.kill("SIGTERM"); // nginx has workers that it ends
    await exited;
    await Promise.all(replicas.map((r) => r.stop("SIGKILL")));
  };
  try {
    await until(
      () =>
        fetch(url + "/readyz")
          .then(ready)
          .catch(() => false),
      "the pool is up",
    );
  } catch (e) {
    await stop();
    throw new Error(stderr, { cause: e });
  }
  return { url, replicas, stop };
}

// An answer's text, its end, and whether its stream was whole. Throws if there was no answer.
async function ask(server, body, headers = {}) {
  const answer = { text: "", finish: null, whole: false };
  const response = await post(server, "/v1/completions", { model: modelName, stream: true, ...body }, { headers });
  if (response.status !== 200) throw new Error(`${response.status}: ${await response.text()}`);
  try {
    for await (const event of sse(response)) {
      if (event === "[DONE]") answer.whole = true;
      else if (event.comment === undefined) {
        answer.text += event.choices[0].text;
        answer.finish = event.choices[0].finish_reason ?? answer.finish;
      }
    }
  } catch {
    answer.whole = false; // the replica was killed
  }
  return answer;
}

// Sends n requests, 12 at a time, while disturb() runs; each is asked again until its answer is whole.
async function load(pool, requests, wanted, n, disturb) {
  const count = { answered: 0, cut: 0 };
  let next = 0;
  const client = async () => {
    while (next < n) {
      const i = next++ % requests.length;
      for (let ended = false; !ended;) {
        const answer = await ask(pool, requests[i]);
        ended = answer.whole;
        if (ended) assert.deepEqual(answer, wanted[i], `request ${i}`);
        else assert.ok(wanted[i].text.startsWith(answer.text), `a cut answer of request ${i} is a beginning`);
        if (!ended) count.cut++;
      }
      count.answered++;
    }
  };
  const clients = Promise.all(Array.from({ length: 12 }, client));
  let running = true;
  clients.finally(() => (running = false)).catch(() => {});
  await disturb(() => running);
  await clients;
  return count;
}

for (const backend of ["affine", "least"])
  test(
    `${backend}: no answer is wrong or missing while replicas drain, die and come back`,
    { skip: skip || (backend === "least" && whole) },
    async (t) => {
      const n = long ? 5000 : 120;
      const rng = random(7);
      const flags = ["--kv-cache-tokens", "8192", "--context-length", "1024"];
      const requests = Array.from({ length: 24 }, (_, i) => ({
        prompt: randomPrompt(rng, 20 + 10 * i),
        max_tokens: 4 + (i % 16),
        seed: i,
        ignore_eos: true,
      }));
      const wanted = await serving(flags, (server) => Promise.all(requests.map((r) => ask(server, r))));
      assert.ok(wanted.every((w) => w.whole && w.finish === "length"));
      const pool = await startPool("haproxy", backend, flags);
      try {
        const round = (signal, kills) => async (running) => {
          for (; running() || kills.n < 2; kills.n++) await pool.replicas[kills.n % 4].restart(signal);
        };
        const drains = { n: 0 },
          kills = { n: 0 };
        const drained = await load(pool, requests, wanted, n, round("SIGTERM", drains));
        assert.deepEqual(drained, { answered: n, cut: 0 }, "a drained replica finishes what it began");
        const killed = await load(pool, requests, wanted, n, round("SIGKILL", kills));
        assert.equal(killed.answered, n);
        t.diagnostic(
          `${2 * n} answers, ${drains.n} drains, ${kills.n} kills, ${killed.cut} streams cut and asked again`,
        );
      } finally {
        await pool.stop();
      }
    },
  );

// What of all prompt tokens was cached, over these servers, since before.
async function hitRate(servers, use) {
  const read = async (name) => {
    let sum = 0;
    for (const s of servers) sum += (await metrics(s)).get(name);
    return sum;
  };
  const totals = async () => [
    await read("inferd_prompt_tokens_total"),
    await read("inferd_prefix_cache_hit_tokens_total"),
  ];
  const [prompts, hits] = await totals();
  await use();
  const [morePrompts, moreHits] = await totals();
  return (moreHits - hits) / (morePrompts - prompts);
}

test("with affinity four replicas hit as often as one with all of their memory", { skip }, async (t) => {
  const [chains, common, rounds, each] = long ? [32, 2000, 8, 32768] : [16, 240, 5, 2048];
  const rng = random(11);
  const prefixes = Array.from({ length: chains }, () => randomPrompt(rng, common));
  const order = Array.from({ length: chains * rounds }, (_, i) => i % chains);
  for (let i = order.length - 1; i > 0; i--) {
    const k = rng.int(0, i);
    [order[i], order[k]] = [order[k], order[i]];
  }
  const requests = order.map((c) => ({ prompt: [...prefixes[c], ...randomPrompt(rng, 16)], max_tokens: 1 }));
  const flags = (tokens) => ["--kv-cache-tokens", String(tokens), "--context-length", String(common + 48)];
  const run = (server) => async () => {
    let next = 0;
    const client = async () => {
      while (next < requests.length) assert.ok((await ask(server, requests[next++])).whole);
    };
    await Promise.all([client(), client()]);
  };
  const one = await serving(flags(4 * each), (server) => hitRate([server], run(server)));
  const rates = {};
  for (const backend of ["affine", "least"]) {
    const pool = await startPool("haproxy", backend, flags(each));
    try {
      rates[backend] = await hitRate(pool.replicas, run(pool));
    } finally {
      await pool.stop();
    }
  }
  const percent = (x) => `${(100 * x).toFixed(1)} %`;
  t.diagnostic(
    `prompt tokens cached: one replica ${percent(one)}, affine ${percent(rates.affine)}, least ${percent(rates.least)}`,
  );
  assert.ok(rates.affine >= 0.95 * one, `${rates.affine} of ${one}`);
  assert.ok(rates.least < rates.affine, "otherwise the caches are too large to tell");
});

for (const router of ["haproxy", "nginx"])
  test(
    `${router}: who sends x-inferd-prefix back stays with one replica`,
    { skip: programs[router] ? false : `${router} is not here` },
    async () => {
      const pool = await startPool(router, "affine", ["--kv-cache-tokens", "2048", "--context-length", "512"]);
      const served = () =>
        Promise.all(pool.replicas.map(async (r) => (await metrics(r)).get("inferd_prompt_tokens_total")));
      // How many replicas the same request's turns went to.
      const spread = async (turn) => {
        const before = await served();
        for (let i = 0; i < 12; i++) await turn(i);
        const now = await served();
        return now.filter((n, i) => n > before[i]).length;
      };
      const prompt = randomPrompt(random(3), 300);
      const body = (i) => ({ prompt: [400 + i, ...prompt.slice(0, 20 + i)], max_tokens: 1 });
      try {
        const first = await post(pool, "/v1/completions", { model: modelName, prompt, max_tokens: 1 });
        const prefix = first.headers.get("x-inferd-prefix");
        await first.text();
        assert.match(prefix, /^[0-9a-f]{16}$/);
        assert.equal(await spread((i) => ask(pool, body(i), { "x-inferd-prefix": prefix })), 1);
        assert.ok((await spread((i) => ask(pool, body(i)))) > 1, "without it bodies that differ spread");
        if (router === "haproxy")
          assert.equal(await spread((i) => ask(pool, { ...body(i), prompt_cache_key: "session-1" })), 1);
      } finally {
        await pool.stop();
      }
    },
  );
