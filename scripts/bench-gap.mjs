// How long do running streams wait for their next token while a 4,000-token prompt is prefilled?
// Prints p50 and p99 of the gaps between tokens of 8 streams, quiet and during the prefill.
import { modelName, post, random, randomPrompt, sse, startServer } from "../tests/http/server.mjs";

const streams = 8;
const rng = random(1);
const server = await startServer(process.argv.slice(2));
const at = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))].toFixed(1);
const gaps = { quiet: [], prefill: [] };
let phase = "quiet", stop = false;

async function stream(i) {
  const controller = new AbortController();
  const response = await post(server, "/v1/completions", {
    model: modelName, prompt: randomPrompt(random(10 + i), 20), max_tokens: 7000, ignore_eos: true, stream: true, seed: i,
  }, { signal: controller.signal });
  let last = 0;
  try {
    for await (const event of sse(response)) {
      if (event === "[DONE]") break;
      if (stop) controller.abort();
      const now = performance.now();
      if (last) gaps[phase].push(now - last);
      last = now;
    }
  } catch (e) {
    if (e.name !== "AbortError") throw e;
  }
}

const running = Array.from({ length: streams }, (_, i) => stream(i));
await new Promise((resolve) => setTimeout(resolve, 2000));
gaps.quiet.length = 0; // the streams' own start is not what is measured
await new Promise((resolve) => setTimeout(resolve, 2000));
phase = "prefill";
const start = performance.now();
const long = await post(server, "/v1/completions", { model: modelName, prompt: randomPrompt(rng, 4000), max_tokens: 1, ignore_eos: true });
if (long.status !== 200) throw new Error(await long.text());
await long.json();
const seconds = (performance.now() - start) / 1000;
stop = true;
await Promise.all(running);
for (const [name, values] of Object.entries(gaps)) {
  values.sort((a, b) => a - b);
  console.log(`${name.padEnd(8)} ${String(values.length).padStart(6)} gaps   p50 ${at(values, 0.5)} ms   p99 ${at(values, 0.99)} ms   max ${values.at(-1).toFixed(1)} ms`);
}
console.log(`the 4,000-token prompt was answered after ${seconds.toFixed(2)} s`);
await server.stop();
