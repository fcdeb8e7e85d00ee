// Models on demand: requests load the model that they name, in a budget of memory for one; what nothing uses leaves.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { closeSync, copyFileSync, mkdirSync, openSync, renameSync, rmdirSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { addKey, binary, metrics, modelFile, post, sleep, sse, startServer, until, user } from "./server.mjs";

const small = ["--kv-cache-tokens", "2048", "--max-sequences", "8", "--load-on-demand", "on"];
let one; // bytes of one model in memory

const register = (at, name) => {
  const file = join(at.folder, `${name}.gguf`);
  copyFileSync(modelFile, file);
  execFileSync(binary, ["models", "add", file, "--name", name, "--registry", join(at.folder, "registry.db")]);
  return file;
};

// A server that has loaded nothing, with these registered models.
async function start(flags, names = ["alpha", "beta"]) {
  const server = await startServer([...small, ...flags], []);
  for (const name of names) register(server, name);
  return server;
}

const connect = (server, apiKey = "none") => new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0 });
const short = (model) => ({ model, messages: user("Hello."), max_tokens: 8, temperature: 0 });
const budget = (n) => ["--memory-budget", String(Math.floor(one * n))];
const value = async (server, name, model, more = "") =>
  (await metrics(server)).get(`inferd_model_${name}{model="${model}"${more}}`);
const loaded = async (server, model) => (await value(server, "loaded", model)) === 1;
const left = (server, model, reason) => value(server, "leaves_total", model, `,reason="${reason}"`);
const tasks = async (server) => (await (await fetch(`${server.url}/v1/inferd/models`)).json()).tasks;

// Takes all bytes of models in use; none when nothing is loaded.
async function bytes(server) {
  const all = await metrics(server);
  return [...all].filter(([k]) => k.startsWith("inferd_model_bytes{")).reduce((sum, [, v]) => sum + v, 0);
}

// A stream that has begun. Its answers do not fit into the KV cache at once, so it goes on for a while.
async function occupy(server, model, n = 4) {
  const control = new AbortController();
  const body = { model, messages: user("Tell me a story."), n, max_tokens: 1900, ignore_eos: true, stream: true };
  const response = await post(server, "/v1/chat/completions", body, { signal: control.signal });
  assert.equal(response.status, 200);
  const events = sse(response);
  await events.next();
  return {
    stop: () => control.abort(),
    async finish() {
      let n = 0,
        last;
      for await (const event of events) {
        assert.ok(!event.error, JSON.stringify(event.error));
        n += event.choices?.[0]?.delta?.content ? 1 : 0;
        last = event;
      }
      assert.equal(last, "[DONE]");
      return n;
    },
  };
}

before(async () => {
  const server = await start(["--keep-alive", "-1"]);
  await connect(server).chat.completions.create(short("alpha"));
  one = await value(server, "bytes", "alpha");
  assert.ok(one > 15e6, `${one}`);
  await server.stop();
});

test("two models take turns in memory for one, under load", async (t) => {
  const server = await start([...budget(1.5), "--kv-memory-bytes", "64M", "--kv-keep", "all"]);
  t.after(() => server.stop());
  const client = connect(server);
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  assert.deepEqual(ids, ["alpha", "beta"], "what can be loaded is listed");
  const ask = async (model) => (await client.chat.completions.create(short(model))).choices[0].message.content;
  const stream = async (model) => {
    let text = "";
    for await (const part of await client.chat.completions.create({ ...short(model), stream: true }))
      text += part.choices[0]?.delta?.content ?? "";
    return text;
  };
  const expected = await ask("alpha");
  assert.equal(await ask("beta"), expected, "the same file");
  let stop = false;
  const looker = (async () => {
    while (!stop) {
      const all = await metrics(server);
      assert.ok(all.get("inferd_models_loaded") <= 1);
      assert.ok((await bytes(server)) <= one * 1.5);
    }
  })();
  const one_client = async (i) => {
    for (let k = 0; k < 8; k++) {
      const model = (i + k) % 2 ? "alpha" : "beta";
      assert.equal(await (k % 3 ? ask(model) : stream(model)), expected);
    }
  };
  await Promise.all(Array.from({ length: 6 }, (_, i) => one_client(i)));
  stop = true;
  await looker;
  assert.ok((await left(server, "alpha", "room")) >= 1 && (await left(server, "beta", "room")) >= 1);
  assert.equal(await left(server, "alpha", "asked"), 0);
  const prompt = Array.from({ length: 200 }, (_, i) => 300 + ((i * 37) % 3000));
  const complete = (model) => client.completions.create({ model, prompt, max_tokens: 1, temperature: 0 });
  await complete("alpha");
  await complete("beta");
  assert.equal((await complete("alpha")).usage.prompt_tokens_details.cached_tokens, 192, "its K/V outlived its turn");
});

test("a running stream is never cut: the load waits, tells a stream so, and ends with its clients", async (t) => {
  const server = await start([...budget(1.5), "--keepalive-ms", "100"]);
  t.after(() => server.stop());
  const client = connect(server);
  const running = await occupy(server, "alpha");
  // A client that gives up: its load ends, and the model that it would have displaced takes requests again.
  const control = new AbortController();
  const gone = post(server, "/v1/chat/completions", short("beta"), { signal: control.signal }).catch(() => "aborted");
  await until(async () => (await tasks(server)).some((x) => x.model === "beta" && x.state !== "done"), "it waits");
  control.abort();
  assert.equal(await gone, "aborted");
  await until(async () => !(await tasks(server)).some((x) => x.model === "beta"), "nobody waits");
  assert.ok((await client.chat.completions.create(short("alpha"))).choices[0].message.content);
  // A stream that waits begins with comments. What is asked of alpha then is answered, before or after beta's turn.
  const waiting = await post(server, "/v1/chat/completions", { ...short("beta"), stream: true });
  assert.equal(waiting.status, 200);
  const events = sse(waiting);
  assert.deepEqual((await events.next()).value, { comment: "waiting for the model" });
  const anthropic = await post(server, "/v1/messages", { ...short("beta"), stream: true });
  const behind = client.chat.completions.create(short("alpha"));
  assert.equal((await running.finish()) > 500, true, "the whole stream came");
  let text = "",
    last;
  for await (const event of events) {
    text += event.choices?.[0]?.delta?.content ?? "";
    last = event;
  }
  assert.equal(last, "[DONE]");
  assert.ok(text);
  assert.match(await anthropic.text(), /^: waiting for the model\n\n[^]*event: message_start[^]*event: message_stop/);
  assert.ok((await behind).choices[0].message.content);
});

test("inferd ps shows what is loaded and what leaves for it", async (t) => {
  const server = await start(budget(1.5));
  t.after(() => server.stop());
  const states = async () => {
    const args = ["ps", "--url", server.url, "--json"];
    const [{ models }] = JSON.parse((await promisify(execFile)(binary, args)).stdout);
    return models.map((m) => `${m.id} ${m.state}`).sort();
  };
  await until(async () => {
    const running = await occupy(server, "alpha");
    const control = new AbortController();
    const waits = post(server, "/v1/chat/completions", short("beta"), { signal: control.signal }).catch(() => null);
    let seen;
    await until(async () => {
      seen = (await states()).join();
      return seen === "alpha unloading,beta loading" || /beta loaded/.test(seen);
    }, "beta waits until alpha is left, or has its turn");
    control.abort();
    running.stop();
    await waits;
    return !/beta loaded/.test(seen);
  }, "both states are shown");
});

test("what waits too long, or one too many, gets a 503 that says when to try again", async (t) => {
  const server = await start([...budget(1.5), "--load-wait-s", "1", "--max-load-queue", "2", "--keepalive-ms", "100"]);
  t.after(() => server.stop());
  const running = await occupy(server, "alpha", 32); // longer than four times load-wait-s
  const asked = Array.from({ length: 3 }, () => post(server, "/v1/chat/completions", short("beta")));
  const answers = await Promise.all(asked);
  const messages = [];
  for (const a of answers) {
    assert.equal(a.status, 503);
    assert.ok(Number(a.headers.get("retry-after")) > 0);
    assert.equal(a.headers.get("x-should-retry"), null);
    messages.push((await a.json()).error.message);
  }
  assert.equal(messages.filter((m) => /Too many requests wait for this model/.test(m)).length, 1);
  assert.equal(messages.filter((m) => /no room for 1 seconds: it needs at least \d+ MiB/.test(m)).length, 2);
  // A stream that has begun with comments ends with an event.
  const late = connect(server).chat.completions.create({ ...short("beta"), stream: true });
  await assert.rejects(async () => {
    for await (const part of await late) assert.ok(!part);
  }, /no room for 1 seconds/);
  const messagesLate = await post(server, "/v1/messages", { ...short("beta"), stream: true });
  assert.match(await messagesLate.text(), /event: error\ndata: {"type":"error"[^\n]*no room/);
  const others = connect(server).chat.completions.create(short("alpha"));
  running.stop();
  assert.ok((await others).id, "alpha is there for others");
  assert.ok((await connect(server).chat.completions.create(short("beta"))).id);
});

test("what never fits is refused for good, with the numbers", async (t) => {
  const server = await start(budget(0.6));
  t.after(() => server.stop());
  const error = await connect(server)
    .chat.completions.create(short("alpha"))
    .catch((e) => e);
  assert.equal(error.status, 503);
  assert.equal(error.code, "model_unavailable");
  assert.match(error.message, /'alpha' could not be loaded: .*\d+ MiB/);
  assert.equal(error.headers.get("x-should-retry"), "false");
  assert.equal(error.headers.get("retry-after"), null);
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 3 });
  const tried = (await metrics(server)).get('inferd_model_load_failures_total{model="alpha"}');
  await assert.rejects(client.chat.completions.create(short("alpha")), { status: 503 });
  assert.equal((await metrics(server)).get('inferd_model_load_failures_total{model="alpha"}'), tried + 1);
  assert.equal(await bytes(server), 0);
});

test("models of the key model stay; an administrator may still unload them", async (t) => {
  const pinned = { file: modelFile, name: "alpha" };
  const server = await startServer([...small, ...budget(1.5), "--keep-alive", "0"], [pinned]);
  t.after(() => server.stop());
  register(server, "beta");
  const refused = await post(server, "/v1/chat/completions", short("beta"));
  assert.equal(refused.status, 503);
  assert.equal(refused.headers.get("x-should-retry"), "false");
  assert.match((await refused.json()).error.message, /models that the key model names hold \d+ MiB/);
  await sleep(1500);
  assert.equal(await loaded(server, "alpha"), true);
  const act = async (model, what) => {
    const body = JSON.stringify({ stream: true });
    const response = await fetch(`${server.url}/v1/inferd/models/${model}/${what}`, { method: "POST", body });
    assert.match(await response.text(), /"state":"done"/);
  };
  await act("alpha", "unload");
  assert.equal((await fetch(`${server.url}/v1/inferd/models/nobody/load`, { method: "POST" })).status, 404);
  await act("beta", "load");
  await until(async () => !(await loaded(server, "beta")), "keep-alive 0 ends");
  assert.equal(await left(server, "beta", "keep_alive"), 1);
});

test("a registry that cannot be read for a while makes no model unknown", async (t) => {
  const server = await start([]);
  t.after(() => server.stop());
  const at = join(server.folder, "registry.db");
  const ask = async (model) => (await post(server, "/v1/chat/completions", short(model))).status;
  assert.equal(await ask("alpha"), 200);
  renameSync(at, `${at}.away`);
  mkdirSync(at);
  assert.equal(await ask("beta"), 500, "not 404, which clients take as final");
  assert.equal(await ask("alpha"), 200, "what is loaded is served");
  rmdirSync(at);
  renameSync(`${at}.away`, at);
  assert.equal(await ask("beta"), 200);
  assert.equal(await ask("nobody"), 404);
});

test("a stream that was kept for its client and is over does not keep its model", async (t) => {
  const server = await start(["--keep-alive", "0", "--resume-timeout-s", "1"]);
  t.after(() => server.stop());
  const stream = await occupy(server, "alpha", 1);
  assert.equal(await loaded(server, "alpha"), true);
  stream.stop();
  await until(async () => !(await loaded(server, "alpha")), "the model leaves without another request");
  assert.equal(await left(server, "alpha", "keep_alive"), 1);
  assert.equal((await metrics(server)).get("inferd_answer_bytes"), 0);
});

test("keep-alive, and Ollama's keep_alive", async (t) => {
  const server = await start(["--keep-alive", "1", "--memory-budget", "1G"]);
  t.after(() => server.stop());
  const ollama = new Ollama({ host: server.url });
  const chat = (model, keep_alive) =>
    ollama.chat({ model, messages: user("Hi."), options: { num_predict: 4 }, keep_alive });
  await chat("alpha", -1);
  await chat("beta");
  const listed = async () => (await ollama.ps()).models.map((m) => [m.name, m.size, new Date(m.expires_at).getTime()]);
  const [alpha, beta] = await listed();
  assert.deepEqual([alpha[0], alpha[1], beta[0]], ["alpha", one, "beta"]);
  assert.ok(alpha[2] > Date.now() + 1e11 && beta[2] < Date.now() + 5000);
  await until(async () => !(await loaded(server, "beta")), "beta leaves");
  // A request to unload a model that is not there does not load it.
  const loads = () => value(server, "loads_total", "beta");
  const before = await loads();
  for (const [path, more] of Object.entries({ generate: { prompt: "" }, chat: { messages: [] } })) {
    const reply = await post(server, `/api/${path}`, { model: "beta:latest", keep_alive: 0, ...more });
    assert.deepEqual([reply.status, (await reply.json()).done_reason], [200, "unload"]);
  }
  const unknown = await post(server, "/api/generate", { model: "nobody", keep_alive: 0 });
  assert.equal(unknown.status, 404);
  assert.deepEqual([await loads(), await loaded(server, "beta")], [before, false]);
  await chat("beta", "1h30m");
  await sleep(2500);
  assert.equal(await loaded(server, "alpha"), true);
  const [, later] = await listed();
  assert.ok(Math.abs(later[2] - Date.now() - 5400e3) < 60e3);
  const ps = (...args) => execFileSync(binary, ["ps", "--url", server.url, ...args], { encoding: "utf8" });
  const [{ models }] = JSON.parse(ps("--json"));
  const shown = models.map((m) => [m.id, m.state, m.size_bytes, m.expires_at && new Date(m.expires_at).getTime()]);
  assert.deepEqual(shown[0], ["alpha", "loaded", one, null]);
  assert.ok(Math.abs(shown[1][3] - later[2]) < 60e3);
  assert.match(ps(), /MODEL +STATE +SIZE .* UNTIL .*\nalpha +loaded .* never .*\nbeta +loaded .* in 90 min /);
  await ollama.embed({ model: "beta", input: "x", keep_alive: 0 });
  await ollama.generate({ model: "alpha", prompt: "x", options: { num_predict: 2 }, keep_alive: 0 });
  await until(async () => !(await loaded(server, "beta")) && !(await loaded(server, "alpha")), "both leave");
  assert.equal(await bytes(server), 0);
  const wrong = await post(server, "/api/chat", { model: "alpha", messages: user("x"), keep_alive: "soon" });
  assert.equal(wrong.status, 400);
  // Without a prompt it loads.
  const empty = await post(server, "/api/generate", { model: "alpha", keep_alive: "5m" });
  assert.equal((await empty.json()).done_reason, "load");
  assert.equal(await loaded(server, "alpha"), true);
});

test("a load that fails leaves nothing", async (t) => {
  const server = await start(budget(1.5));
  t.after(() => server.stop());
  const file = join(server.folder, "beta.gguf");
  const old = join(server.folder, "time");
  execFileSync("touch", ["-r", file, old]);
  const at = openSync(file, "r+");
  writeSync(at, Buffer.alloc(4096, 0xff), 0, 4096, 64); // keys and tensors' names
  closeSync(at);
  execFileSync("touch", ["-r", old, file]); // as when the disk fails: the registry notices nothing
  const client = connect(server);
  assert.ok((await client.chat.completions.create(short("alpha"))).id);
  const held = await bytes(server);
  for (let i = 0; i < 3; i++) {
    const failed = await post(server, "/v1/chat/completions", short("beta"));
    assert.equal(failed.status, 503, await failed.clone().text());
    assert.match((await failed.json()).error.message, /'beta' could not be loaded/);
    assert.equal(await bytes(server), held);
    assert.ok((await client.chat.completions.create(short("alpha"))).id);
  }
  assert.equal(await loaded(server, "alpha"), true);
  writeFileSync(file, "not a model");
  const changed = await post(server, "/v1/chat/completions", short("beta"));
  assert.deepEqual([changed.status, (await changed.json()).error.code], [503, "model_changed"]);
});

test("keys: a model that a key may not use is not loaded for it, and only administrators decide", async (t) => {
  const server = await start(budget(1.5));
  t.after(() => server.stop());
  const user1 = addKey(server, "one", "--scopes", "infer", "--models", "alpha");
  const admin = addKey(server, "boss", "--scopes", "admin");
  const headers = (key) => ({ headers: { Authorization: `Bearer ${key}` } });
  const ask = (model, key) => post(server, "/v1/chat/completions", short(model), headers(key));
  await until(async () => (await ask("beta", "wrong")).status === 401, "keys are in use");
  assert.equal((await ask("beta", user1)).status, 404);
  assert.equal((await ask("alpha", user1)).status, 200);
  const load = (key) => fetch(`${server.url}/v1/inferd/models/beta/load`, { method: "POST", ...headers(key) });
  assert.equal((await load(user1)).status, 403);
  const kept = await post(
    server,
    "/api/chat",
    { model: "alpha", messages: user("x"), options: { num_predict: 1 }, keep_alive: 0, stream: false },
    headers(user1),
  );
  assert.equal(kept.headers.get("x-inferd-ignored-fields"), "keep_alive");
  const list = await (await fetch(`${server.url}/v1/models`, headers(user1))).json();
  assert.deepEqual(
    list.data.map((m) => m.id),
    ["alpha"],
  );
  assert.equal((await load(admin)).status, 200);
});
