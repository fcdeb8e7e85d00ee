// Starts a real inferd on a free port of 127.0.0.1 with its own registry.
import assert from "node:assert/strict";
import { spawn, execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const binary = process.env.INFERD ?? "build/inferd";
export const modelFile = "registry/demo/inferd-demo-q8_0.gguf";
export const modelName = "inferd-demo";

// How much longer than the plain build this one may take (sanitizers).
export const patience = Number(process.env.PATIENCE ?? 1);

// What a sanitizer's report begins with.
export const reports = /(ERROR|WARNING): \w+Sanitizer|runtime error: /;

// LONG=1: the whole set. Otherwise tests with whole() are skipped, and sets of many similar cases are smaller.
export const long = Boolean(process.env.LONG);
export const whole = long ? false : "of the whole set: LONG=1";

// Maximum lifetime of a server, so that a hanging one does not outlive its test.
const lifetimeMs = Number(process.env.SERVER_SECONDS ?? 900) * 1000;

const demo = { file: modelFile, name: modelName, alias: "demo" };

// models: registered and served; under: a command that runs the server's command.
export async function startServer(flags = [], models = [demo], under = []) {
  const folder = mkdtempSync(join(tmpdir(), "inferd-test-"));
  const registry = join(folder, "registry.db");
  for (const m of models) {
    const alias = m.alias ? ["--alias", m.alias] : [];
    execFileSync(binary, ["models", "add", m.file, "--name", m.name, ...alias, "--registry", registry]);
  }
  const server = { folder, stderr: "", stdout: "", exited: null };
  const args = [
    "serve",
    "--model",
    models.map((m) => m.name).join(","),
    "--registry",
    registry,
    "--host",
    "127.0.0.1",
    "--port",
    "0",
    ...flags,
  ];
  const command = [...under, binary, ...args];
  const end = await launch(server, command);
  server.stop = async (signal = "SIGTERM") => {
    const how = await end(signal);
    assert.doesNotMatch(server.stderr, reports);
    rmSync(folder, { recursive: true, force: true });
    return how;
  };
  // The same server again, with the same registry and perhaps more flags, at another port.
  server.restart = async (signal = "SIGTERM", more = []) => {
    await end(signal);
    await launch(server, [...command, ...more]);
  };
  return server;
}

// Starts a process and waits until it serves; returns a function that ends the current process.
async function launch(server, command) {
  const child = spawn(command[0], command.slice(1), { stdio: ["ignore", "pipe", "pipe"] });
  server.child = child;
  // "close", not "exit": that can come before the last of its log.
  server.exited = new Promise((resolve) => child.on("close", (code, signal) => resolve({ code, signal })));
  child.stderr.on("data", (d) => (server.stderr += d));
  const limit = setTimeout(() => child.kill("SIGKILL"), lifetimeMs);
  limit.unref();
  server.exited.then(() => clearTimeout(limit));
  const from = server.stdout.length;
  server.url = await new Promise((resolve, reject) => {
    child.stdout.on("data", (d) => {
      server.stdout += d;
      const at = /on (https?:\/\/127\.0\.0\.1:\d+)/.exec(server.stdout.slice(from));
      if (at) resolve(at[1]);
    });
    server.exited.then((how) =>
      reject(new Error(`the server ended at start: ${JSON.stringify(how)}\n${server.stderr}`)),
    );
  });
  return async (signal) => {
    server.child.kill(signal);
    return server.exited;
  };
}

// A shared server for consecutive tests; `use` must not stop it.
export async function serving(flags, use, models) {
  const server = await startServer(flags, models);
  try {
    return await use(server);
  } finally {
    await server.stop();
  }
}

// A command with the server's registry; an API key that it adds there.
export const withRegistry = (server, ...args) =>
  execFileSync(binary, [...args, "--registry", join(server.folder, "registry.db")], { encoding: "utf8" });
export const addKey = (server, name, ...args) =>
  JSON.parse(withRegistry(server, "keys", "add", name, "--json", ...args)).key;

export function post(server, path, body, options = {}) {
  return fetch(server.url + path, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...options.headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
    signal: options.signal,
  });
}

// The choice of a demo model's completion, which must succeed.
export async function complete(server, request) {
  const response = await post(server, "/v1/completions", { model: modelName, ...request });
  assert.equal(response.status, 200, await response.clone().text());
  return (await response.json()).choices[0];
}

export const chat = (server, body, options) =>
  post(server, "/v1/chat/completions", { model: modelName, ...body }, options);

export const user = (content) => [{ role: "user", content }];

// All SSE events of a response: parsed JSON, the string "[DONE]", or {comment} for keep-alives.
export async function* sse(response) {
  const decoder = new TextDecoder();
  let buffer = "";
  for await (const bytes of response.body) {
    buffer += decoder.decode(bytes, { stream: true });
    let end;
    while ((end = buffer.indexOf("\n\n")) >= 0) {
      const event = buffer.slice(0, end).replace(/^id: .*\n/, "");
      buffer = buffer.slice(end + 2);
      if (event.startsWith(":")) yield { comment: event.slice(1).trim() };
      else if (event === "data: [DONE]") yield "[DONE]";
      else yield JSON.parse(event.replace(/^data: /, ""));
    }
  }
  if (buffer) throw new Error(`the stream ended inside an event: ${JSON.stringify(buffer)}`);
}

// Streams a chat to its end.
export async function streamed(server, body, options) {
  const response = await chat(server, { ...body, stream: true }, options);
  if (response.status !== 200) throw new Error(`${response.status}: ${await response.text()}`);
  const result = { text: "", chunks: [], finish: null, usage: null, done: false, times: [] };
  for await (const event of sse(response)) {
    if (event === "[DONE]") result.done = true;
    else if (event.comment !== undefined) continue;
    else if (event.error) throw new Error(event.error.message);
    else {
      result.chunks.push(event);
      const choice = event.choices[0];
      if (choice?.delta?.content) {
        result.text += choice.delta.content;
        result.times.push(performance.now());
      }
      if (choice?.finish_reason) result.finish = choice.finish_reason;
      if (event.usage) result.usage = event.usage;
    }
  }
  return result;
}

// Prometheus text exposition -> Map of "name{labels}" -> number; throws on a malformed line.
export async function metrics(server) {
  const headers = server.key ? { Authorization: `Bearer ${server.key}` } : {};
  const response = await fetch(server.url + "/metrics", { headers });
  if (response.status !== 200) throw new Error(`/metrics: ${response.status}`);
  const values = new Map(),
    types = new Map();
  const text = await response.text();
  if (!text.endsWith("\n")) throw new Error("the exposition must end in a newline");
  for (const line of text.split("\n").slice(0, -1)) {
    const type = /^# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram|summary|untyped)$/.exec(line);
    if (type) {
      if (types.has(type[1])) throw new Error(`two TYPE lines for ${type[1]}`);
      types.set(type[1], type[2]);
      continue;
    }
    if (/^# HELP [a-zA-Z_:][a-zA-Z0-9_:]* [^\n]*$/.test(line)) continue;
    const sample =
      /^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*\})? (-?[0-9.]+(?:e[+-]?\d+)?|\+Inf|-Inf|NaN)$/i.exec(
        line,
      );
    if (!sample) throw new Error(`not a line of the exposition format: ${line}`);
    const family = sample[1].replace(/_(bucket|sum|count)$/, "");
    if (!types.has(sample[1]) && types.get(family) !== "histogram") throw new Error(`no TYPE before ${sample[1]}`);
    const key = sample[1] + (sample[2] ?? "");
    if (values.has(key)) throw new Error(`twice: ${key}`);
    values.set(key, sample[3] === "+Inf" ? Infinity : Number(sample[3]));
  }
  values.types = types;
  return values;
}

// One sequence runs; two wait, in the order first, second. Which one is answered first?
export async function firstAnswer(server, first, second) {
  await until(async () => (await metrics(server)).get("inferd_sequences_running") === 0, "nothing runs");
  const leave = new AbortController();
  const long = { messages: user("Tell me a story."), max_tokens: 1900, ignore_eos: true, stream: true };
  const running = chat(server, long, { signal: leave.signal })
    .then((r) => r.text())
    .catch(() => {});
  const waiting = async () => (await metrics(server)).get("inferd_sequences_waiting");
  await until(async () => (await metrics(server)).get("inferd_sequences_running") === 1, "it runs");
  const ended = [];
  const ask = async (name, headers) => {
    // Long enough that this process notices the end of one answer before that of the other.
    const response = await chat(server, { messages: user("Hi."), max_tokens: 200, ignore_eos: true }, { headers });
    assert.equal(response.status, 200, await response.text());
    ended.push(name);
  };
  const all = [ask("first", first)];
  await until(async () => (await waiting()) === 1, "the first one waits");
  all.push(ask("second", second));
  // A higher priority may preempt what runs, so that the second one does not wait at all.
  await until(async () => (await waiting()) === 2 || ended.length > 0, "the second one waits or ran");
  leave.abort();
  await Promise.all([...all, running]);
  return ended[0];
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Polls until check() holds; the limit is for hangs, not a measured bound.
export async function until(check, what, limitMs = 20_000) {
  const end = Date.now() + limitMs * patience;
  for (;;) {
    const value = await check();
    if (value) return value;
    if (Date.now() > end) throw new Error(`did not happen: ${what}`);
    await sleep(20);
  }
}

// Seeded random numbers, so that a failure can be reproduced.
export function random(seed) {
  const next = () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return { next, int: (low, high) => low + Math.floor(next() * (high - low + 1)) };
}

// A prompt of n ordinary token ids of the demo vocabulary.
export const randomPrompt = (rng, n) => Array.from({ length: n }, () => rng.int(300, 4000));
