// The configuration read again while the daemon serves: by SIGHUP and `inferd reload`, seen by curl and OpenAI's SDK.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { startHub } from "./hub.mjs";
import {
  addKey,
  binary,
  firstAnswer,
  metrics,
  modelFile,
  modelName,
  post,
  startServer,
  until,
  user,
} from "./server.mjs";

const folder = mkdtempSync(join(tmpdir(), "inferd-reload-"));
const file = (name) => join(folder, name);
const write = (name, lines) => writeFileSync(file(name), lines.join("\n") + "\n", { mode: 0o600 });
let server;

// What the file says beside this.
const common = [`api-key-file = ${file("keys")}`, `admin-key-file = ${file("admins")}`, "max-sequences = 8"];
const configure = (...lines) => write("daemon.conf", [...common, ...lines]);
const reload = (...args) =>
  spawnSync(binary, ["reload", "--url", server.url, "--api-key-file", file("admins"), ...args], { encoding: "utf8" });
const reloaded = () => JSON.parse(reload("--json").stdout);
const logged = (what) => until(() => what.test(server.stderr), `a log line ${what}`);
const as = (key) => ({ headers: { Authorization: `Bearer ${key}` } });
const statusOf = async (key, path = "/v1/models") => (await fetch(server.url + path, as(key))).status;
const answers = (key, more) =>
  post(server, "/v1/chat/completions", { model: modelName, messages: user("Hello."), max_tokens: 1, ...more }, as(key));

before(async () => {
  write("keys", ["alice", "bob"]);
  write("admins", ["root"]);
  configure("max-priority = 1", "keepalive-ms = 60000");
  server = await startServer(["--config", file("daemon.conf"), "--kv-cache-tokens", "8192", "--max-queue", "16"]);
});
after(async () => {
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

test("a stream goes on while its key, limits and timeouts change; SIGHUP does it", async () => {
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "alice", maxRetries: 0 });
  const ask = { model: modelName, messages: user("Tell me a long story."), max_tokens: 400, seed: 1, temperature: 0 };
  const whole = await client.chat.completions.create(ask);
  const stream = await client.chat.completions.create({ ...ask, stream: true });
  let text = "",
    n = 0;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    if (n++ !== 3) continue;
    write("keys", ["bob", "carol"]);
    configure(
      "max-priority = 7",
      "keepalive-ms = 10",
      "request-timeout-s = 5",
      "idle-timeout-s = 30",
      "log-level = debug",
    );
    server.child.kill("SIGHUP");
    await logged(/the configuration is reloaded/);
    assert.equal(await statusOf("alice"), 401, "the key is gone for new requests");
    assert.equal(await statusOf("carol"), 200, "and another one is there");
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.match(server.stderr, /reloaded: applied idle-timeout-s, keepalive-ms, .*log-level, api-key-file\n/);
  assert.equal((await answers("bob", { priority: 7 })).status, 200);
  assert.equal((await answers("bob", { priority: 8 })).status, 400);
  await fetch(server.url + "/livez");
  await logged(/ debug GET \/livez 200 /);
});

test("keys keep their places: what is counted for one is not counted for another", async () => {
  await answers("carol");
  await logged(/completion_tokens=1 key=4 /); // carol is the fourth key since the start
  await logged(/completion_tokens=1 key=2 /); // bob is the second one as before
  const counts = await (await fetch(server.url + "/metrics", as("bob"))).text();
  assert.match(counts, /inferd_key_requests_total\{key="2"\} [1-9]/);
});

test("`inferd reload` prints what it applied and what needs a restart", async () => {
  configure("max-priority = 3", "max-batch-tokens = 64", "block-tokens = 32");
  const first = reload();
  assert.equal(first.status, 0, first.stderr);
  assert.match(first.stdout, /^applied: .*max-priority.*\nneeds a restart: block-tokens max-batch-tokens\n$/);
  await logged(/these keys need a restart: block-tokens, max-batch-tokens/);
  assert.deepEqual(reloaded(), {
    object: "inferd.reload",
    applied: [],
    needs_restart: ["block-tokens", "max-batch-tokens"],
  });
  configure("max-priority = 3");
  assert.equal(reload().stdout, "nothing has changed\n");
  write("keys", ["bob"]);
  assert.equal(reload().stdout, "applied: api-key-file\n");
  assert.equal(await statusOf("carol"), 401);
  configure("max-priority = 3", "max-queue = 99", "kv-cache-tokens = 99");
  assert.deepEqual(reloaded().needs_restart, [], "a flag goes before the file");
});

test("a bad file changes nothing and says where", async () => {
  const keep = ["max-priority = 3"];
  write("keys", ["mallory"]);
  for (const [lines, why] of [
    [["max-prioity = 5"], /daemon\.conf:4: unknown key "max-prioity" \(did you mean "max-priority"\?\)/],
    [["max-priority = 5", "max-priority = 6"], /daemon\.conf:5: max-priority is set twice, first in line 4/],
    [["max-priority = 5", "log-level = loud"], /daemon\.conf:5: log-level: "loud" is not one of/],
    [["max-priority = 5", "allowed-origins = nowhere"], /daemon\.conf:5: allowed-origins: "nowhere" is not an origin/],
    [["max-priority = 5", "trusted-proxies = 10.0.0.0/99"], /daemon\.conf:5: trusted-proxies: /],
  ]) {
    configure(...lines);
    const refused = reload();
    assert.equal(refused.status, 1);
    assert.match(refused.stderr, why);
    await logged(why);
    assert.equal(await statusOf("mallory"), 401);
    assert.equal((await answers("bob", { priority: 4 })).status, 400);
  }
  configure(...keep);
  write("keys", ["bob", "mallory has spaces"]);
  assert.match(reload().stderr, /keys:2: an API key must be printable ASCII without spaces/);
  rmSync(file("keys"));
  assert.match(reload().stderr, /daemon\.conf:1: api-key-file .*keys: No such file/);
  assert.equal(await statusOf("bob"), 200, "the keys that were read stay");
  write("keys", ["bob"]);
  assert.equal(reload().stdout, "nothing has changed\n");
});

test("only administrators reload", async () => {
  const infer = addKey(server, "infer"),
    admin = addKey(server, "admin", "--scopes", "admin");
  await until(async () => (await statusOf(admin, "/v1/inferd/models")) === 200, "the registry's keys are known");
  const ask = (...args) =>
    JSON.parse(
      execFileSync("curl", ["-s", "-X", "POST", ...args, `${server.url}/v1/inferd/reload`], { encoding: "utf8" }),
    );
  assert.equal(ask("-H", `Authorization: Bearer ${infer}`).error.code, "admin_key_required");
  assert.equal(ask("-H", "Authorization: Bearer bob").error.code, "admin_key_required");
  assert.match(ask().error.message, /You did not provide an API key/);
  assert.equal(ask("-H", `Authorization: Bearer ${admin}`).object, "inferd.reload");
});

test("files of keys that are not configured any more admit nobody", async () => {
  write("daemon.conf", ["max-sequences = 8"]);
  assert.deepEqual(reloaded().applied.sort(), ["admin-key-file", "api-key-file", "max-priority"]);
  for (const key of ["bob", "root"]) assert.equal(await statusOf(key), 401, "the registry has keys");
});

// A server of its own. set(...lines) writes its configuration and reloads it; all lines must be applied.
async function configured(t, lines, models, flags = ["--max-sequences", "8"]) {
  const path = file(`${t.name.split(":")[0]}.conf`);
  const write = (now) => writeFileSync(path, now.join("\n") + "\n");
  write(lines);
  const own = await startServer(["--config", path, "--kv-cache-tokens", "2048", ...flags], models);
  t.after(() => own.stop());
  own.reload = (...now) => {
    write(now);
    return spawnSync(binary, ["reload", "--json", "--url", own.url], { encoding: "utf8" });
  };
  own.set = (...now) => {
    const { status, stdout, stderr } = own.reload(...now);
    assert.equal(status, 0, stderr);
    assert.deepEqual(JSON.parse(stdout).needs_restart, []);
  };
  return own;
}

test("models: memory, time and number", async (t) => {
  const own = await configured(t, ["load-on-demand = on", "keep-alive = -1"], []);
  for (const name of ["alpha", "beta"]) {
    copyFileSync(modelFile, join(own.folder, `${name}.gguf`));
    const registry = ["--registry", join(own.folder, "registry.db")];
    execFileSync(binary, ["models", "add", join(own.folder, `${name}.gguf`), "--name", name, ...registry]);
  }
  const ask = async (model) =>
    (await post(own, "/v1/chat/completions", { model, messages: user("Hello."), max_tokens: 1 })).status;
  const bytes = async (model) => (await metrics(own)).get(`inferd_model_bytes{model="${model}"}`);
  const loaded = async () => {
    const all = await metrics(own);
    return ["alpha", "beta"].filter((m) => all.get(`inferd_model_loaded{model="${m}"}`) === 1);
  };
  assert.equal(await ask("alpha"), 200);
  const one = await bytes("alpha");
  const budget = (n) => `memory-budget = ${Math.floor(one * n)}`;
  own.set("load-on-demand = on", budget(1.5));
  assert.equal(await ask("beta"), 200);
  assert.deepEqual(await loaded(), ["beta"], "a smaller budget: the other left");
  own.set("load-on-demand = on", budget(3));
  assert.equal(await ask("alpha"), 200);
  assert.deepEqual(await loaded(), ["alpha", "beta"], "a larger budget: both");
  own.set("load-on-demand = on", budget(3), "keep-alive = 1");
  await until(async () => !(await loaded()).length, "keep-alive counts for models that are loaded already");
  own.set("load-on-demand = on", budget(3), "keep-alive = -1", "max-models = 1");
  assert.equal(await ask("alpha"), 200);
  assert.equal(await ask("beta"), 200);
  assert.deepEqual(await loaded(), ["beta"], "one at a time");
  own.set("load-on-demand = off", budget(3), "keep-alive = -1");
  assert.equal(await ask("alpha"), 404);
  const { status, stderr } = own.reload("load-on-demand = on", "keep-alive = soon", "max-models = 7");
  assert.equal(status, 1);
  assert.match(stderr, /models\.conf:2: keep-alive = soon is not a time/);
  assert.equal(await ask("alpha"), 404, "nothing has changed");
  own.set("load-on-demand = on", budget(3), "keep-alive = -1");
  assert.equal(await ask("alpha"), 200);
  assert.deepEqual(await loaded(), ["alpha", "beta"]);
});

test("pulls: the next one goes by what was reloaded", async (t) => {
  const hub = await startHub(folder, { "tiny.gguf": readFileSync(modelFile) });
  t.after(() => hub.stop());
  const own = await configured(t, ["hf-endpoint = http://127.0.0.1:1", "hf-retries = 0"]);
  const pull = () => post(own, "/api/pull", { model: "hf.co/org/tiny", stream: false });
  assert.notEqual((await pull()).status, 200);
  own.set(`hf-endpoint = ${hub.url}`, "hf-retries = 0", `models-dir = ${file("pulled")}`);
  assert.equal((await pull()).status, 200);
  const { models } = await (await fetch(own.url + "/api/tags")).json();
  assert.ok(
    models.some((m) => /tiny/.test(m.name)),
    JSON.stringify(models),
  );
  assert.equal(execFileSync("find", [file("pulled"), "-name", "*.gguf"], { encoding: "utf8" }).split("\n").length, 2);
});

test("stores: files, batches, responses and usage", async (t) => {
  const own = await configured(t, ["files-max = 3", "batch-max-lines = 2"]);
  const client = new OpenAI({ baseURL: `${own.url}/v1`, apiKey: "none", maxRetries: 0 });
  const body = { model: modelName, messages: user("Hello."), max_tokens: 1 };
  const line = (id) => JSON.stringify({ custom_id: id, method: "POST", url: "/v1/chat/completions", body });
  const upload = (text) => client.files.create({ file: new File([text], "in.jsonl"), purpose: "batch" });
  const three = await upload(["a", "b", "c"].map(line).join("\n"));
  const run = async () => {
    const { id } = await client.batches.create({
      input_file_id: three.id,
      endpoint: "/v1/chat/completions",
      completion_window: "24h",
    });
    const ended = () => client.batches.retrieve(id).then((b) => /completed|failed/.test(b.status) && b);
    return (await until(ended, "the batch ends")).status;
  };
  assert.equal(await run(), "failed", "three lines are too many");
  await upload(line("a"));
  const refused = (text) => assert.rejects(upload(text), (e) => e.status === 400 || e.status === 413);
  own.set("files-max = 2", "batch-max-lines = 3", "batch-lines = 1");
  assert.equal(await run(), "completed");
  await refused(line("a"));
  own.set("files-max = 3", "file-max-bytes = 1K");
  await refused("x".repeat(2000));
  own.set("files-max = 3", "files-max-bytes = 100");
  await refused(line("a"));
  own.set("files-max = 3");
  await upload(line("a"));
  const stored = () => client.responses.create({ model: modelName, input: "Hello.", max_output_tokens: 16 });
  const { id } = await stored();
  assert.equal((await client.responses.retrieve(id)).id, id);
  own.set("responses-ttl-s = 1");
  const short = await stored();
  const isGone = (e) => e.status === 404;
  const gone = () => client.responses.retrieve(short.id).then(() => false, isGone);
  await until(gone, "it expires");
  assert.equal((await client.responses.retrieve(id)).id, id, "those that were stored keep their time");
  const off = JSON.parse(own.reload("responses-ttl-s = 0", "usage-days = 0", "batches-max = 9").stdout);
  assert.deepEqual([off.applied, off.needs_restart], [["batches-max"], ["responses-ttl-s", "usage-days"]]);
});

test("answers and metrics: what they say", async (t) => {
  const own = await configured(t, ["prefix-header-tokens = 0", "vllm-metrics = off", "resume-timeout-s = 0"]);
  const ask = async () => {
    const answer = await post(own, "/v1/chat/completions", {
      model: modelName,
      messages: user("Tell me about the sea, its waves and its ships."),
      max_tokens: 1,
    });
    return { prefix: answer.headers.get("x-inferd-prefix"), text: await answer.text() };
  };
  const vllm = async () => /^vllm:/m.test(await (await fetch(own.url + "/metrics")).text());
  // Is a stream's end sent again?
  const resumable = async () => {
    const body = { model: modelName, messages: user("Hello."), max_tokens: 4, stream: true };
    const [, id] = /^id: (.*)$/m.exec(await (await post(own, "/v1/chat/completions", body)).text());
    return (await post(own, "/v1/chat/completions", {}, { headers: { "Last-Event-ID": id } })).status === 200;
  };
  assert.equal(await resumable(), false);
  const before = await ask();
  assert.deepEqual([before.prefix, /cache_miss/.test(before.text), await vllm()], [null, false, false]);
  own.set("prefix-header-tokens = 16", "vllm-metrics = on", "explain-cache = on", "resume-streams = 5");
  assert.equal(await resumable(), true);
  const after = await ask();
  assert.match(after.prefix, /^[0-9a-f]{16}$/);
  assert.deepEqual([/cache_miss/.test(after.text), await vllm()], [true, true]);
});

test("names: aliases of models and objectives", async (t) => {
  const own = await configured(t, ["model-aliases = old-*=inferd-demo"], undefined, [
    ...["--max-sequences", "1", "--fair-share", "off"],
  ]);
  const ask = async (model) => (await post(own, "/v1/completions", { model, prompt: "Hello", max_tokens: 1 })).status;
  const high = { "x-gateway-inference-objective": "high" };
  assert.deepEqual([await ask("old-1"), await ask("claude-5")], [200, 404]);
  assert.equal(await firstAnswer(own, {}, high), "first");
  own.set("model-aliases = claude-*=inferd-demo, gpt-*=demo", "objectives = high=5");
  assert.deepEqual([await ask("old-1"), await ask("claude-5"), await ask("gpt-9")], [404, 200, 200]);
  assert.equal(await firstAnswer(own, {}, high), "second");
  for (const [bad, why] of [
    ["model-aliases = claude-*=nobody", /names\.conf:2: model-aliases: 'nobody' is not the name of a served model/],
    ["objectives = high=much", /names\.conf:2: objectives: "high=much": the priority must be a number/],
    [`model-aliases = a=${"b".repeat(97)}`, /names\.conf:2: model-aliases: "a": the value is longer than 96 bytes/],
  ]) {
    const { status, stderr } = own.reload("keepalive-ms = 20000", bad);
    assert.equal(status, 1);
    assert.match(stderr, why);
    assert.deepEqual([await ask("old-1"), await ask("claude-5")], [404, 200]);
  }
});

test("queue: how many may wait", async (t) => {
  const own = await configured(t, ["max-queue = 1"], undefined, ["--max-sequences", "1"]);
  const left = new AbortController();
  const ask = (max_tokens) =>
    post(
      own,
      "/v1/completions",
      { model: modelName, prompt: "Hello", max_tokens, ignore_eos: true },
      { signal: left.signal },
    ).then(
      (r) => r.status,
      () => "left",
    );
  const value = async (name) => (await metrics(own)).get(`inferd_sequences_${name}`);
  const running = ask(2000);
  await until(async () => (await value("running")) === 1, "it runs");
  const waits = [ask(1900)];
  await until(async () => (await value("waiting")) === 1, "it waits");
  assert.equal(await ask(1), 429);
  own.set("max-queue = 2");
  waits.push(ask(1900));
  await until(async () => (await value("waiting")) === 2, "both wait");
  own.set("max-queue = 1");
  assert.equal(await ask(1), 429);
  assert.equal(await value("waiting"), 2, "who waits stays");
  left.abort();
  assert.deepEqual(await Promise.all([running, ...waits]), ["left", "left", "left"]);
});

test("kv-dir: bounds, and when everything is stored", async (t) => {
  const dir = file("kv");
  const own = await configured(t, ["kv-idle-s = 86400", "kv-keep = all"], undefined, [
    ...["--max-sequences", "8", "--kv-dir", dir],
  ]);
  const files = async () => (await metrics(own)).get("inferd_kv_store_segments");
  const ask = async (first) => {
    const prompt = Array.from({ length: 100 }, (_, i) => 300 + ((first + i * 37) % 3000));
    const body = { model: modelName, prompt, max_tokens: 1 };
    assert.equal((await post(own, "/v1/completions", body)).status, 200);
  };
  await ask(0);
  assert.equal(await files(), 0);
  own.set("kv-idle-s = 0", "kv-keep = all");
  await until(async () => (await files()) >= 1, "it is stored: kv-idle-s is over");
  await ask(1000);
  await until(async () => (await files()) >= 2, "and the next one");
  own.set("kv-idle-s = 0", "kv-keep = all", "kv-dir-files = 1");
  await until(async () => (await files()) === 1, "one file is left");
});

test("the documentation says of every other key why it needs a restart", () => {
  const example = execFileSync(binary, ["config", "example"], { encoding: "utf8" });
  const keys = [...example.matchAll(/^# \((.*)\)\n#([a-z-]+) =/gm)].map(([, bounds, name]) => [
    name,
    /applied by a reload/.test(bounds),
  ]);
  assert.ok(keys.length > 100);
  const readme = readFileSync("daemon/README.md", "utf8");
  const [, table] = /\n\| needs a restart \| why \|\n([^]*?)\n\n/.exec(readme);
  const named = [...table.matchAll(/`([a-z-]+)`/g)].map(([, name]) => name);
  assert.deepEqual(
    [...new Set(named)].sort(),
    keys
      .filter(([, live]) => !live)
      .map(([name]) => name)
      .sort(),
  );
});
