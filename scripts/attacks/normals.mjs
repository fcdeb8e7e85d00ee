// A thread of well-behaved clients beside an attack, so that the attacker's load on this process does
// not distort their measurements: streams in sequence, visitors on fresh connections, /livez, and the
// daemon's memory.
import { setMaxListeners } from "node:events";
import { readFileSync } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import { random, randomPrompt, sleep } from "../../tests/http/server.mjs";
import { stream } from "../measure/streams.mjs";
import { ask } from "./wire.mjs";

const { server, pid, headers, streams, answerMs } = workerData;
const RETRIES = 2,
  RETRY_MS = 1000;
const controller = new AbortController();
setMaxListeners(0, controller.signal);
const phases = {};
let phase = "calm";

const now = () =>
  (phases[phase] ??= { gaps: [], visits: 0, retries: 0, failed: {}, visitMs: 0, livezMs: 0, livezFailed: 0, rss: 0 });

function failed(why) {
  const p = now();
  p.failed[why] = (p.failed[why] ?? 0) + 1;
}

// Endless streams, which try again like a visitor. A gap that the end of a phase or of the run cuts counts up to the cut.
async function streamer(seed) {
  const rng = random(1000 + seed);
  let refused = 0; // times in sequence
  while (!controller.signal.aborted) {
    const timer = { last: 0 };
    lasts.add(timer);
    const onPiece = (at) => {
      refused = 0;
      if (timer.last) now().gaps.push(at - timer.last);
      timer.last = at;
    };
    const body = { prompt: randomPrompt(rng, 16), max_tokens: 300, ignore_eos: true, temperature: 0, seed };
    try {
      await stream(server, body, { onPiece, signal: controller.signal, headers });
    } catch (e) {
      const again = e.message.startsWith("503") && ++refused <= RETRIES;
      if (again) now().retries++;
      else failed(`stream: ${e.cause?.code ?? e.message.slice(0, 120)}`);
      await sleep(again ? RETRY_MS : 100);
    }
    lasts.delete(timer);
  }
}
const lasts = new Set();

function cutGaps() {
  const at = performance.now();
  for (const timer of lasts) {
    if (!timer.last) continue;
    now().gaps.push(at - timer.last);
    timer.last = at;
  }
}

// A client with a new connection for each request. It tries again when the daemon tells it to, as
// OpenAI's SDKs do: at most twice.
async function visitor() {
  const body = { model: server.model, prompt: "Once", max_tokens: 2, temperature: 0 };
  while (!controller.signal.aborted) {
    const start = performance.now();
    let r;
    for (let tries = 1; ; tries++) {
      r = await ask(server.url, "/v1/completions", { body, headers, limitMs: answerMs, signal: controller.signal });
      if (r.status !== 503 || tries > RETRIES || controller.signal.aborted) break;
      now().retries++;
      await sleep(Number(r.headers["retry-after-ms"] ?? RETRY_MS));
    }
    if (controller.signal.aborted) return;
    const p = now();
    p.visitMs = Math.max(p.visitMs, performance.now() - start);
    if (r.status === 200) p.visits++;
    else failed(`visit: ${r.status || r.error}`);
    await sleep(100);
  }
}

async function prober() {
  while (!controller.signal.aborted) {
    const r = await ask(server.url, "/livez", { limitMs: answerMs, signal: controller.signal });
    if (controller.signal.aborted) return;
    const p = now();
    p.livezMs = Math.max(p.livezMs, r.ms);
    if (r.status !== 200) p.livezFailed++;
    await sleep(50);
  }
}

// MB; 0 without /proc.
function resident() {
  try {
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0) / 1024;
  } catch {
    return 0;
  }
}

const sampler = setInterval(() => {
  const p = now();
  p.rss = Math.max(p.rss, resident());
}, 50);

const all = [visitor(), prober(), ...Array.from({ length: streams }, (_, i) => streamer(i))];

parentPort.on("message", async (m) => {
  if (m.phase) {
    cutGaps();
    phase = m.phase;
    parentPort.postMessage({ phase });
    return;
  }
  cutGaps();
  clearInterval(sampler);
  controller.abort();
  // Node's fetch may never end a body that was read whole when it was aborted.
  await Promise.race([Promise.allSettled(all), sleep(2000)]);
  parentPort.postMessage({ phases });
  parentPort.close();
});
