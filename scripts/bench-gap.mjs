// How long do running streams wait for their next token while a 4,000-token prompt is prefilled?
// Prints p50 and p99 of the gaps between tokens of 8 streams, quiet and during the prefill.
import { modelName, post, random, randomPrompt, startServer } from "../tests/http/server.mjs";
import { percentile } from "./measure/numbers.mjs";
import { Crowd } from "./measure/streams.mjs";

const streams = 8;
const server = { ...(await startServer(process.argv.slice(2))), model: modelName };
const crowd = new Crowd();
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

for (let i = 0; i < streams; i++)
  crowd.add(server, { prompt: randomPrompt(random(10 + i), 20), max_tokens: 7000, ignore_eos: true, seed: i });
await wait(2000); // the streams' own start is not what is measured
crowd.phase = "quiet";
await wait(2000);
crowd.phase = "prefill";
const start = performance.now();
const long = await post(server, "/v1/completions", {
  model: modelName,
  prompt: randomPrompt(random(1), 4000),
  max_tokens: 1,
  ignore_eos: true,
});
if (long.status !== 200) throw new Error(await long.text());
await long.json();
const seconds = (performance.now() - start) / 1000;
await crowd.stop();
for (const name of ["quiet", "prefill"]) {
  const gaps = crowd.gaps[name] ?? [];
  const at = (q) => `${percentile(gaps, q).toFixed(1)} ms`;
  console.log(
    `${name.padEnd(8)} ${String(gaps.length).padStart(6)} gaps   p50 ${at(0.5)}   p99 ${at(0.99)}   max ${at(1)}`,
  );
}
console.log(`the 4,000-token prompt was answered after ${seconds.toFixed(2)} s`);
await server.stop();
