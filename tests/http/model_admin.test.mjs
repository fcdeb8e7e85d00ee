// Models that come and go while the daemon runs: load and unload under traffic, pulls from a stand-in of the
// Hugging Face Hub with progress and cancellation, through inferd's own endpoints and Ollama's.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { rangeFrom, sha256, startHub } from "./hub.mjs";
import { binary, chat, metrics, modelFile, modelName, post, sse, startServer, until, user } from "./server.mjs";

const model = readFileSync(modelFile);
const small = ["--kv-cache-tokens", "4096", "--max-sequences", "16"];
let folder, hub, server;

const register = (at, name, ...more) => {
  const file = join(at.folder, `${name}.gguf`);
  copyFileSync(modelFile, file);
  execFileSync(binary, ["models", "add", file, "--name", name, ...more, "--registry", join(at.folder, "registry.db")]);
  return file;
};

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "inferd-admin-"));
  hub = await startHub(folder, { "tiny.gguf": model });
  server = await startServer([
    ...small,
    ...["--hf-endpoint", hub.url, "--models-dir", join(hub.home, "models"), "--hf-retries", "0"],
    ...["--model-aliases", "claude-*=inferd-demo", "--max-models", "3", "--unload-deadline-s", "60"],
  ]);
  register(server, "second", "--alias", "zwei");
});
after(async () => {
  await server?.stop();
  hub?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const list = async (at = server) => (await fetch(`${at.url}/v1/inferd/models`)).json();
const stateOf = async (id, at) => (await list(at)).data.find((m) => m.id === id)?.state;
const ready = async (at = server) => (await fetch(`${at.url}/readyz`)).status;
const act = (what, body, at = server) => post(at, `/v1/inferd/models/${what}`, body);
const task = async (id) => (await list()).tasks.find((t) => t.id === id);
const ended = (id) =>
  until(async () => {
    const t = await task(id);
    return !["queued", "running"].includes(t.state) && t;
  }, `task ${id} ends`);

// Follows a task to its end; the events, without [DONE].
async function follow(what, body, at = server) {
  const response = await act(what, { ...body, stream: true }, at);
  assert.equal(response.status, 200, await (response.status === 200 ? "" : response.text()));
  const events = [];
  for await (const event of sse(response)) events.push(event);
  assert.equal(events.pop(), "[DONE]");
  return events;
}

const load = async (id) => assert.equal((await follow("load", { model: id })).at(-1).state, "done");
const unload = async (id) => assert.equal((await follow("unload", { model: id })).at(-1).state, "done");
const short = { messages: user("Hello."), max_tokens: 4 };

test("a registered model is loaded, answers, and is unloaded", async () => {
  const before = await list();
  assert.deepEqual(
    before.data.map((m) => [m.id, m.state, m.aliases]),
    [
      [modelName, "loaded", ["demo"]],
      ["second", "registered", ["zwei"]],
    ],
  );
  assert.deepEqual([before.loaded, before.max_loaded], [1, 3]);
  const refused = await chat(server, { ...short, model: "zwei" });
  assert.equal(refused.status, 404);
  const { error } = await refused.json();
  assert.equal(error.code, "model_not_found");
  assert.match(error.message, /'second' is not loaded: .*POST \/v1\/inferd\/models\/load/);

  const events = await follow("load", { model: "zwei" });
  assert.deepEqual([events[0].kind, events[0].model], ["load", "second"]);
  const weights = events.filter((e) => e.step === "loading weights");
  assert.ok(weights.length > 0 && weights.every((e) => e.done_bytes <= e.total_bytes && e.total_bytes > 0));
  assert.equal(events.at(-1).state, "done");
  const ids = (await (await fetch(`${server.url}/v1/models`)).json()).data.map((m) => m.id);
  assert.deepEqual(ids, [modelName, "demo", "second", "zwei"]);
  assert.equal((await chat(server, { ...short, model: "zwei" })).status, 200);
  const two = await post(server, "/v1/completions", { prompt: "x", max_tokens: 1 });
  assert.match((await two.json()).error.message, /2 models are served/);
  const ps = await (await fetch(`${server.url}/api/ps`)).json();
  assert.deepEqual(
    ps.models.map((m) => m.name),
    [modelName, "second"],
  );
  const values = await metrics(server);
  assert.equal(values.get("inferd_models_loaded"), 2);

  await unload("second");
  assert.equal(await stateOf("second"), "registered");
  assert.equal((await chat(server, { ...short, model: "zwei" })).status, 404);
  const gone = await metrics(server);
  assert.deepEqual([gone.get("inferd_models_loaded"), gone.get("inferd_model_unloads_total")], [1, 1]);
  for (const name of values.keys())
    if (
      /^inferd_(generated|prompt)_tokens_total$|^inferd_kernel_dispatches|^inferd_time_to_first_token_seconds_count/.test(
        name,
      )
    )
      assert.ok(gone.get(name) >= values.get(name), `${name} does not fall`);
  // Those of each model are there as long as it is.
  const ofModel = (m, id) => m.has(`vllm:num_requests_running{engine="0",model_name="${id}"}`);
  assert.deepEqual([ofModel(values, "second"), ofModel(gone, "second"), ofModel(gone, modelName)], [true, false, true]);
  const history = await (await fetch(`${server.url}/v1/inferd/history`)).json();
  assert.ok(history.requests.some((r) => r.model === "second"));
});

test("what cannot be done is said", async () => {
  for (const [what, body, status, message] of [
    ["load", { model: "nobody" }, 404, /no model is named nobody/],
    ["load", {}, 400, /'model'/],
    ["load", { model: modelFile }, 404, /no model is named/],
    ["unload", { model: "second" }, 404, /'second' is not loaded/],
    ["pull", { model: "llama3" }, 400, /expected hf:ORG\/REPO/],
    ["pull", { model: "hf:org/tiny", name: "a b" }, 400, /is not a model name/],
    ["cancel", { task: 12345 }, 400, /no task 12345/],
  ]) {
    const response = await act(what, body);
    assert.equal(response.status, status, what);
    assert.match((await response.json()).error.message, message);
  }
  const { id } = await (await act("load", { model: modelName })).json();
  assert.equal((await ended(id)).state, "done", "what is loaded already is no error");
  const foreign = await post(
    server,
    "/v1/inferd/models/load",
    { model: "second" },
    {
      headers: { "X-Forwarded-For": "192.0.2.1" },
    },
  );
  assert.equal(foreign.status, 403);
});

test("requests of all kinds while a model comes and goes: an answer or a clear error, never a crash", async () => {
  const seen = new Map();
  let stop = false;
  const note = (what) => seen.set(what, (seen.get(what) ?? 0) + 1);
  const allowed = /is not loaded|is being (un)?loaded|was unloaded before/;
  async function client(i) {
    while (!stop) {
      const stream = i % 2 === 0;
      const response = await chat(server, {
        ...short,
        model: i % 4 === 3 ? modelName : "second",
        max_tokens: 30,
        stream,
      });
      if (response.status !== 200) {
        const { error } = await response.json();
        assert.match(error.message, allowed);
        assert.ok([404, 503].includes(response.status), `${response.status}`);
        note(response.status);
        continue;
      }
      if (!stream) {
        assert.ok((await response.json()).choices[0].message.content.length > 0);
      } else {
        for await (const event of sse(response)) if (event.error) assert.match(event.error.message, allowed);
      }
      note(200);
    }
  }
  async function looker() {
    while (!stop) {
      await Promise.all([metrics(server), list(), fetch(`${server.url}/v1/models`), fetch(`${server.url}/health`)]);
      const vectors = await post(server, "/v1/embeddings", { model: "second", input: ["a", "b"] });
      assert.ok([200, 404, 503].includes(vectors.status), await vectors.clone().text());
      await vectors.arrayBuffer();
    }
  }
  const clients = Array.from({ length: 8 }, (_, i) => client(i));
  clients.push(looker());
  for (let round = 0; round < 4; round++) {
    await load("second");
    const served = seen.get(200) ?? 0;
    await until(() => (seen.get(200) ?? 0) > served + 8, "answers while it is loaded");
    await unload("second");
  }
  stop = true;
  await Promise.all(clients);
  assert.ok(seen.get(200) > 0 && seen.get(404) > 0, JSON.stringify([...seen]));
  // The worker counts a sequence as ended after its last event.
  const running = async () => (await metrics(server)).get("inferd_sequences_running");
  await until(async () => (await running()) === 0, "nothing runs");
  assert.equal((await metrics(server)).get("inferd_pool_check_failures_total"), 0);
});

test("running answers finish, or end with an error when the deadline is over", async (t) => {
  const long = { model: "second", messages: user("Tell me a story."), max_tokens: 3000, stream: true };
  const options = { ignore_eos: true };
  await load("second");
  const first = await chat(server, { ...long, ...options, max_tokens: 200 });
  const reader = sse(first);
  await reader.next();
  const unloading = unload("second");
  let last;
  for await (const event of reader) last = event;
  assert.equal(last, "[DONE]");
  await unloading;

  const hasty = await startServer([...small, "--unload-deadline-s", "0"]);
  t.after(() => hasty.stop());
  const cut = await chat(hasty, { ...long, ...options, model: modelName });
  const events = sse(cut);
  await events.next();
  await follow("unload", { model: modelName }, hasty);
  let error;
  for await (const event of events) error ??= event.error;
  assert.equal(error.code, "model_unavailable");
  assert.match(error.message, /was unloaded before the answer was complete/);
  assert.equal(await ready(hasty), 503);
  const none = await post(hasty, "/v1/completions", { prompt: "x", max_tokens: 1 });
  assert.equal(none.status, 503);
  assert.match((await none.json()).error.message, /No model is loaded/);
  await follow("load", { model: "demo" }, hasty);
  assert.equal(await ready(hasty), 200);
  assert.equal((await post(hasty, "/v1/completions", { prompt: "x", max_tokens: 1 })).status, 200);
});

test("a load that fails loses nothing; so does one too many", async (t) => {
  const other = await startServer(["--kv-cache-tokens", "4096", "--max-models", "2"]);
  t.after(() => other.stop());
  const broken = register(other, "broken");
  register(other, "third");
  truncateSync(broken, 1 << 20);
  const changed = await act("load", { model: "broken" }, other);
  assert.equal(changed.status, 503);
  assert.match((await changed.json()).error.message, /changed since it was added/);
  await follow("load", { model: "third" }, other);
  register(other, "fourth");
  const events = await follow("load", { model: "fourth" }, other);
  assert.match(events.at(-1).error.message, /2 models are loaded, the maximum: unload one first/);
  const failed = (await list(other)).data.find((m) => m.id === "fourth");
  assert.deepEqual([failed.state, failed.task.state], ["registered", "failed"]);
  assert.equal((await chat(other, { ...short, model: modelName })).status, 200);
  assert.equal((await chat(other, { ...short, model: "third" })).status, 200);
  await follow("unload", { model: "third" }, other);
  assert.equal((await follow("load", { model: "fourth" }, other)).at(-1).state, "done");
});

test("a model whose file changed is loaded anew", async (t) => {
  const other = await startServer(small, [{ file: modelFile, name: modelName, alias: "demo" }]);
  t.after(() => other.stop());
  const file = register(other, "second");
  await follow("load", { model: "second" }, other);
  await follow("unload", { model: modelName }, other);
  truncateSync(file, 1 << 20);
  const served = async () => (await chat(other, { ...short, model: "second" })).status;
  await until(
    async () => (await ready(other)) === 503 || (await served()) === 200,
    "the change is noticed or harmless",
  );
  writeFileSync(file, model);
  await follow("unload", { model: "second" }, other);
  execFileSync(binary, ["models", "add", file, "--name", "second", "--registry", join(other.folder, "registry.db")]);
  await follow("load", { model: "second" }, other);
  assert.equal(await ready(other), 200);
  assert.equal(await served(), 200);
});

// ---- pulls ----

const lines = async (response) =>
  (await response.text())
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
const forget = async (name) => {
  await post(server, "/api/delete", { model: name }).then(() => {});
  await fetch(`${server.url}/api/delete`, { method: "DELETE", body: JSON.stringify({ model: name }) });
  rmSync(hub.path(), { recursive: true, force: true });
};

test("Ollama's pull: lines with progress, then a model that loads", async () => {
  const name = "hf.co/org/tiny:tiny.gguf";
  const response = await post(server, "/api/pull", { model: name });
  assert.equal(response.status, 200);
  assert.equal(response.headers.get("content-type"), "application/x-ndjson");
  const all = await lines(response);
  assert.ok(all.some((l) => l.status === "pulling manifest"));
  const progress = all.filter((l) => l.total);
  assert.ok(progress.length > 0);
  for (const l of progress) {
    assert.equal(l.digest, `sha256:${sha256(model)}`);
    assert.match(l.status, /^pulling [0-9a-f]{12}$/);
    assert.ok(l.total === model.length && l.completed <= l.total);
  }
  assert.deepEqual(all.at(-1), { status: "success" });
  assert.ok(readFileSync(hub.path("tiny.gguf")).equals(model));
  assert.equal(await stateOf("tiny"), "registered");
  const again = hub.requests.length;
  assert.deepEqual(await lines(await post(server, "/api/pull", { model: name })), [{ status: "success" }]);
  assert.equal(hub.requests.length, again, "what is registered is not asked for");
  await load(name);
  const answer = await post(server, "/api/chat", { model: name, messages: user("Hi."), stream: false });
  assert.equal((await answer.json()).model, "tiny");
  const stop = await post(server, "/api/generate", { model: name, keep_alive: 0 });
  assert.deepEqual([(await stop.json()).done_reason, stop.headers.get("x-inferd-ignored-fields")], ["unload", null]);
  await until(async () => (await stateOf("tiny")) === "registered", "it is unloaded");
  await forget("tiny");
});

test("Ollama's pull without a stream, and what it refuses", async () => {
  const whole = await post(server, "/api/pull", { model: "hf.co/org/tiny", stream: false });
  assert.deepEqual(await whole.json(), { status: "success" });
  await forget("tiny");
  for (const [body, status, message] of [
    [{ model: "llama3.2" }, 404, /not registered.*hf\.co\/ORG\/REPO/],
    [{ model: "hf.co/tiny" }, 400, /expected hf:ORG\/REPO/],
    [{ model: "hf.co/org/none", stream: false }, 500, /no such model/],
    [{ model: "hf.co/org/tiny:Q2_K", stream: false }, 404, /no GGUF of the repository matches/],
    [{}, 400, /model/],
  ]) {
    const response = await post(server, "/api/pull", body);
    assert.match((await response.json()).error, message);
    assert.ok(response.status === status || status === 500, `${response.status} ${JSON.stringify(body)}`);
  }
  const streamed = await lines(await post(server, "/api/pull", { model: "hf.co/org/none" }));
  assert.match(streamed.at(-1).error, /no such model/);
  const foreign = await post(
    server,
    "/api/pull",
    { model: "hf.co/org/tiny" },
    {
      headers: { "X-Forwarded-For": "192.0.2.1" },
    },
  );
  assert.equal(foreign.status, 403);
});

// Sends half of the file and then nothing.
function stall() {
  hub.onFile = (request, response, bytes) => {
    const from = rangeFrom(request);
    response.writeHead(from ? 206 : 200, {
      "Content-Length": bytes.length - from,
      ...(from ? { "Content-Range": `bytes ${from}-${bytes.length - 1}/${bytes.length}` } : {}),
    });
    response.write(bytes.subarray(from, bytes.length >> 1));
    return true;
  };
}

test("a pull whose client hangs up is cancelled, and continues from its part", async () => {
  stall();
  const control = new AbortController();
  const response = await post(server, "/api/pull", { model: "hf.co/org/tiny" }, { signal: control.signal });
  const reader = response.body.getReader();
  let text = "";
  while (!/"completed":[1-9]/.test(text)) text += new TextDecoder().decode((await reader.read()).value);
  control.abort();
  const [{ id }] = (await list()).tasks;
  assert.equal((await ended(id)).state, "cancelled");
  assert.ok(existsSync(hub.path("tiny.gguf.part")));
  hub.onFile = null;
  hub.requests.length = 0;
  assert.equal((await post(server, "/api/pull", { model: "hf.co/org/tiny", stream: false })).status, 200);
  assert.match(hub.ranges()[0], /^bytes=\d+-$/);
  await forget("tiny");
});

test("pulls are polled and cancelled, one at a time, and delay no load", async () => {
  stall();
  const first = await act("pull", { model: "hf:org/tiny", name: "mine" });
  assert.equal(first.status, 200);
  const { id } = await first.json();
  await until(async () => (await task(id)).done_bytes > 0, "it downloads");
  const waiting = await (await act("pull", { model: "hf:org/tiny", name: "other" })).json();
  assert.equal((await task(waiting.id)).state, "queued");
  assert.equal((await (await act("pull", { model: "hf:org/tiny", name: "mine" })).json()).id, id, "joined");
  await load("second");
  await unload("second");
  assert.equal((await act("cancel", { task: waiting.id })).status, 200);
  assert.equal((await task(waiting.id)).state, "cancelled");
  hub.onFile = null;
  await act("cancel", { task: id });
  assert.equal((await ended(id)).state, "cancelled");
  const events = await follow("pull", { model: "hf:org/tiny", name: "mine" });
  assert.deepEqual([events.at(-1).state, events.at(-1).model], ["done", "mine"]);
  await forget("mine");
});

test("the daemon stops while a model is pulled and another waits", async () => {
  const other = await startServer([...small, "--hf-endpoint", hub.url, "--models-dir", join(hub.home, "models")]);
  stall();
  const pull = await act("pull", { model: "hf:org/tiny", stream: true }, other);
  await act("pull", { model: "hf:org/tiny", name: "x" }, other);
  const reading = pull.text().catch(() => "");
  await until(async () => (await list(other)).tasks.some((t) => t.done_bytes > 0), "it downloads");
  assert.deepEqual(await other.stop(), { code: 0, signal: null });
  await reading;
  hub.onFile = null;
});

test("administrators' keys", async (t) => {
  const keys = join(folder, "keys"),
    admins = join(folder, "admins");
  writeFileSync(keys, "user-key\n", { mode: 0o600 });
  writeFileSync(admins, "admin-key\n", { mode: 0o600 });
  const other = await startServer([...small, "--api-key-file", keys, "--admin-key-file", admins]);
  t.after(() => other.stop());
  for (const [key, status] of [
    ["user-key", 403],
    ["admin-key", 200],
  ]) {
    const headers = { Authorization: `Bearer ${key}` };
    assert.equal((await fetch(`${other.url}/v1/inferd/models`, { headers })).status, status);
    const empty = await post(other, "/api/generate", { model: modelName, keep_alive: 0 }, { headers });
    assert.equal((await empty.json()).done_reason, status === 200 ? "unload" : "load");
  }
});

test("presets survive a restart, and an unload while they are used", async (t) => {
  const flags = [...small, "--load-on-demand", "on", "--model-aliases", "gpt-*=kind"];
  const other = await startServer(flags, [{ file: modelFile, name: modelName, alias: "kind" }]);
  t.after(() => other.stop());
  const preset = { system: "Be kind.", parameters: { num_predict: 4, temperature: 0 }, stream: false };
  const text = async (model, more) => {
    const response = await chat(other, { messages: user("Hi."), model, ...more });
    assert.equal(response.status, 200, await response.clone().text());
    const { choices, usage } = await response.json();
    return [choices[0].message.content, usage.prompt_tokens, usage.completion_tokens];
  };
  assert.equal((await post(other, "/api/create", { model: "kind", from: modelName, ...preset })).status, 200);
  const expected = await text("kind");
  assert.equal(expected[2], 4);
  assert.notEqual(expected[1], (await text(modelName, { max_tokens: 1 }))[1]);
  await other.restart();
  assert.deepEqual(await text("kind"), expected);
  assert.deepEqual(await text("gpt-5"), expected, "a pattern stands for the name with its preset");
  // The model goes while the preset is used; who asks afterwards loads it.
  const busy = Array.from({ length: 12 }, () => text("kind"));
  await follow("unload", { model: "kind" }, other);
  assert.deepEqual(new Set((await Promise.all(busy)).map(String)), new Set([String(expected)]));
  await follow("unload", { model: modelName }, other).catch(() => {});
  assert.deepEqual(await text("kind"), expected);
  const remove = { method: "DELETE", body: JSON.stringify({ model: "kind" }) };
  assert.equal((await fetch(`${other.url}/api/delete`, remove)).status, 200);
  assert.equal((await chat(other, { ...short, model: "kind" })).status, 404, "known when the model was loaded");
  assert.deepEqual((await text(modelName, { max_tokens: 4, temperature: 0 }))[2], 4);
});

test("load-on-demand: requests wait for a registered model, whoever asks", async (t) => {
  const other = await startServer([...small, "--load-on-demand", "on", "--max-models", "2"]);
  t.after(() => other.stop());
  for (const name of ["second", "third"]) register(other, name);
  const text = async (model) => {
    const response = await chat(other, { ...short, model, surprise: 1, temperature: 0 });
    assert.equal(response.status, 200, await response.clone().text());
    assert.equal(response.headers.get("x-inferd-ignored-fields"), "surprise");
    return (await response.json()).choices[0].message.content;
  };
  const expected = await text(modelName);
  const same = await Promise.all(Array.from({ length: 6 }, () => text("second")));
  assert.deepEqual(new Set(same), new Set([expected]), "six wait for one load");
  assert.equal((await list(other)).tasks.length, 1);
  const full = await chat(other, { ...short, model: "third" });
  assert.equal(full.status, 503);
  assert.match((await full.json()).error.message, /'third' could not be loaded: 2 models are loaded, the maximum/);
  assert.equal((await chat(other, { ...short, model: "nobody" })).status, 404);
  for (const model of [modelName, "second"]) await follow("unload", { model }, other);
  assert.equal(await ready(other), 200);
  const answers = await Promise.all([
    post(other, "/api/chat", { model: "third:latest", messages: user("Hi."), stream: false }),
    post(other, "/v1/messages", { model: "second", messages: user("Hi."), max_tokens: 3 }),
    post(other, "/v1/embeddings", { model: "second", input: "x" }),
    post(other, "/v1/responses", { model: "third", input: "x", max_output_tokens: 3 }),
    chat(other, { ...short, model: "third", stream: true }),
  ]);
  for (const a of answers) assert.equal(a.status, 200, await a.text());
  assert.equal((await list(other)).loaded, 2);
});
