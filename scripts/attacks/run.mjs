// Runs scenarios in sequence, each against a new daemon on 127.0.0.1: normal clients alone, then
// beside the attack, then until the daemon is idle again. Verdicts depend on no time except the limits
// for hangs; times are only reported.
import { setMaxListeners } from "node:events";
import { chmodSync, copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { modelFile, modelName, patience, sleep, startServer } from "../../tests/http/server.mjs";
import { percentile } from "../measure/numbers.mjs";
import { ask, Sockets } from "./wire.mjs";

const hangMs = 60_000 * patience; // an upper limit of every wait, not a measured bound
const memoryMb = 256; // that an attack may add, unless its scenario names another bound

const normalKey = "sk-normal";
export const hostileKey = "sk-hostile";

// The normal clients' thread: {phase} begins a phase, {stop} ends it and returns the results.
export class Normals {
  constructor(server, headers, streams) {
    const workerData = {
      server: { url: server.url, model: server.model },
      pid: server.child.pid,
      headers,
      streams,
      answerMs: hangMs / 4,
    };
    this.worker = new Worker(new URL("./normals.mjs", import.meta.url), { workerData });
  }

  tell(message) {
    return new Promise((resolve, reject) => {
      this.worker.once("message", resolve);
      this.worker.once("error", reject);
      this.worker.postMessage(message);
    });
  }
}

export async function gauges(server, headers) {
  const { status, text } = await ask(server.url, "/metrics", { headers, limitMs: hangMs });
  const get = (name) => Number(new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1] ?? NaN);
  return { status, text, get };
}

// No sequence runs, and every block of the KV cache is free.
export async function idle(server, headers) {
  const end = performance.now() + hangMs / 2;
  let last = "";
  while (performance.now() < end && !server.over) {
    const m = await gauges(server, headers);
    const work =
      m.get("inferd_sequences_running") + m.get("inferd_sequences_waiting") + m.get("inferd_http_requests_active");
    const held = m.get("inferd_kv_blocks") - m.get("inferd_kv_blocks_free");
    if (work === 0 && held === 0) return "";
    last = m.status === 200 ? `${work} requests or sequences and ${held} blocks left` : `/metrics answers ${m.status}`;
    await sleep(50);
  }
  return last;
}

// The argument of a scenario's run().
export class Context {
  constructor(server, headers, seconds) {
    Object.assign(this, {
      server,
      headers,
      seconds,
      url: server.url,
      model: server.model,
      problems: [],
      notes: [],
      answers: {},
    });
    this.controller = new AbortController();
    this.signal = this.controller.signal;
    setMaxListeners(0, this.signal);
    this.sockets = new Sockets(server.url);
    this.end = performance.now() + seconds * 1000;
  }

  problem(text) {
    if (!this.problems.includes(text)) this.problems.push(text);
  }

  note(text) {
    this.notes.push(text);
  }

  get on() {
    return performance.now() < this.end && !this.signal.aborted && !this.server.over;
  }

  ask(path, body, options = {}) {
    return ask(this.url, path, { body, headers: this.headers, signal: this.signal, limitMs: hangMs, ...options });
  }

  complete(body, options) {
    return this.ask("/v1/completions", { model: this.model, ...body }, options);
  }

  chat(body, options) {
    return this.ask(
      "/v1/chat/completions",
      { model: this.model, messages: [{ role: "user", content: "Tell me a story." }], ...body },
      options,
    );
  }

  // n clients that repeat an action until the time is over, each at least once.
  crowd(n, what) {
    return Promise.all(
      Array.from({ length: n }, async (_, i) => {
        let round = 0;
        do await what(i, round++);
        while (this.on);
      }),
    );
  }

  // An answer to hostile bytes: refused or served, but neither a 5xx nor a lost connection.
  answered(r, what) {
    const how = r.status || r.error;
    this.answers[how] = (this.answers[how] ?? 0) + 1;
    if (r.status >= 500 && r.status !== 503) this.problem(`${what}: ${r.status} ${r.text.slice(0, 100)}`);
    if (!r.status && this.on) this.problem(`${what}: ${r.error}`);
    return r;
  }

  // Records results that hostile clients must not get.
  refused(r, what, ...codes) {
    this.answered(r, what);
    const wanted = codes.length ? codes : [400];
    if (r.status && !wanted.includes(r.status)) this.problem(`${what}: ${r.status} instead of ${wanted.join(" or ")}`);
    return r;
  }
}

export async function start(scenario, options) {
  const folder = mkdtempSync(join(tmpdir(), "inferd-attack-"));
  const flags = [...(scenario.flags ?? [])];
  let file = options.model ?? modelFile;
  if (scenario.keys) {
    const keys = join(folder, "keys");
    writeFileSync(keys, `${normalKey}\n${hostileKey}\n`);
    chmodSync(keys, 0o600);
    flags.push("--api-key-file", keys);
  }
  if (scenario.ownModel) {
    const copy = join(folder, "model.gguf");
    copyFileSync(file, copy);
    file = copy;
  }
  const server = await startServer(flags, [{ file, name: modelName }]);
  Object.assign(server, { model: modelName, modelFile: file, over: null });
  server.exited.then((how) => (server.over = how.signal ?? `exit ${how.code}`));
  const host = new URL(server.url).hostname;
  if (!/^127\.|^\[::1\]$/.test(host)) throw new Error(`the daemon listens on ${host}, which is not a loopback address`);
  const stop = async () => {
    const limit = setTimeout(() => server.child.kill("SIGKILL"), hangMs);
    const how = await server.stop();
    clearTimeout(limit);
    rmSync(folder, { recursive: true, force: true });
    return how;
  };
  return { server, stop };
}

function figures(phases) {
  const calm = phases.calm ?? { gaps: [] },
    attack = phases.attack ?? { gaps: [], failed: {} };
  const gap = (p) => ({ p50: percentile(p.gaps, 0.5), p99: percentile(p.gaps, 0.99), max: percentile(p.gaps, 1) });
  return {
    calm: gap(calm),
    attack: gap(attack),
    livezMs: attack.livezMs,
    visitMs: attack.visitMs,
    visits: attack.visits,
    retries: attack.retries,
    rssBefore: calm.rss,
    rssPeak: Math.max(attack.rss ?? 0, phases.after?.rss ?? 0),
    failed: attack.failed,
    livezFailed: attack.livezFailed,
  };
}

// Failures of normal clients: a 5xx, or a refused connection. A full queue (429) is not a failure.
function judgeNormals(scenario, f, problem) {
  if (scenario.normalsMayFail) return;
  let lost = 0;
  for (const [why, n] of Object.entries(f.failed ?? {})) {
    if (/: 5\d\d/.test(why)) problem(`normal clients: ${n} x ${why}`);
    else if (!/: 429/.test(why)) lost += n;
  }
  if (lost > (f.visits ?? 0))
    problem(`normal clients: ${lost} lost, ${f.visits} answered (${Object.keys(f.failed).join("; ")})`);
  if (f.livezFailed) problem(`/livez failed ${f.livezFailed} times`);
}

export async function runScenario(scenario, options) {
  const { server, stop } = await start(scenario, options);
  const bearer = (key) => (scenario.keys ? { Authorization: `Bearer ${key}` } : {});
  const c = new Context(server, bearer(hostileKey), options.seconds ?? scenario.seconds ?? 5);
  const normals = new Normals(server, bearer(normalKey), 4);
  const result = { name: scenario.name, problems: c.problems, notes: c.notes };
  try {
    await sleep(Math.min(1000, c.seconds * 300)); // excludes the start of the streams from the measurement
    await normals.tell({ phase: "start" });
    await normals.tell({ phase: "calm" });
    await sleep(Math.min(2000, c.seconds * 500));
    await normals.tell({ phase: "attack" });
    c.end = performance.now() + c.seconds * 1000;
    const begun = performance.now(),
      limit = setTimeout(() => c.controller.abort(), c.seconds * 1000 + hangMs / 2);
    c.signal.addEventListener("abort", () => c.sockets.close());
    const over = server.exited.then(() => c.controller.abort());
    const hung = new Promise((resolve) =>
      c.signal.addEventListener("abort", () => setTimeout(resolve, hangMs / 2).unref()),
    );
    await Promise.race([scenario.run(c), over, hung]);
    // Normal clients run on for a while to measure the after-effects, also of a short attack.
    const least = begun + Math.min(c.seconds, scenario.brief ? 1 : Infinity) * 1000;
    while (c.on && performance.now() < least) await sleep(50);
    result.seconds = (performance.now() - begun) / 1000;
    clearTimeout(limit);
    c.sockets.close();
    await normals.tell({ phase: "after" });
    if (!server.over) {
      const r = await ask(server.url, "/v1/completions", {
        body: { model: server.model, prompt: "Once", max_tokens: 2 },
        headers: bearer(normalKey),
        limitMs: hangMs / 2,
      });
      if (!scenario.normalsMayFail && r.status !== 200) c.problem(`afterwards a request gets ${r.status || r.error}`);
    }
    const { phases } = await normals.tell({ stop: true });
    result.figures = figures(phases);
    result.idle = server.over ? "dead" : await idle(server, bearer(normalKey));
    if (result.idle && !server.over && !scenario.normalsMayFail) c.problem(result.idle);
    c.controller.abort();
    judgeNormals(scenario, result.figures, (text) => c.problem(text));
    const more = result.figures.rssPeak - result.figures.rssBefore,
      bound = scenario.memoryMb ?? memoryMb;
    if (more > bound * Math.max(1, Math.min(patience, 4)))
      c.problem(`memory grew by ${more.toFixed(0)} MB (at most ${bound})`);
    scenario.after?.(c);
    const counts = Object.entries(c.answers).map(([how, n]) => `${n} x ${how}`);
    if (counts.length) c.note(counts.join(" "));
  } finally {
    c.controller.abort();
    c.sockets.close();
    await normals.worker.terminate();
    const died = server.over;
    const how = await stop();
    result.alive = !died;
    const text = how.signal ?? (how.code ? `exit ${how.code}` : "");
    if (died) c.problem(`the daemon died: ${died} ${lastWords(server)}`);
    else if (text) c.problem(`the daemon did not end well: ${text} ${lastWords(server)}`);
  }
  return result;
}

const lastWords = (server) =>
  (/.*(Sanitizer|double free|corrupt|abort|assert).*/i.exec(server.stderr)?.[0] ?? "").slice(0, 160);
