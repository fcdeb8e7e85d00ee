// How much does a batch delay live requests? Clients stream short answers with pauses between them, while a batch runs
// in every second phase. Prints p50 and p99 of the gaps between tokens and of the time to the first token, and how many
// lines of the batch were answered in the pauses.
// usage: node scripts/bench-batch.mjs [FLAG of `inferd serve`]...; MODEL=file, CLIENTS, PHASES and SECONDS by environment
import { modelFile, modelName, post, random, randomPrompt, sleep, startServer } from "../tests/http/server.mjs";
import { percentile } from "./measure/numbers.mjs";
import { stream } from "./measure/streams.mjs";

const [clients, phases, seconds] = [
  Number(process.env.CLIENTS ?? 2),
  Number(process.env.PHASES ?? 6),
  Number(process.env.SECONDS ?? 6),
];
const file = process.env.MODEL ?? modelFile;
const server = { ...(await startServer(process.argv.slice(2), [{ file, name: modelName }])), model: modelName };
const url = "/v1/completions";
const numbers = { quiet: { gaps: [], firsts: [] }, batch: { gaps: [], firsts: [] } };
let phase = null;
let over = false;

// One client: an answer, a pause, and so on. A request counts for a phase if it began and ended in it.
async function client(i) {
  const r = random(100 + i);
  while (!over) {
    const began = phase;
    const start = performance.now();
    let last = 0;
    const gaps = [];
    let first = 0;
    const onPiece = (now) => {
      if (last) gaps.push(now - last);
      else first = now - start;
      last = now;
    };
    await stream(server, { prompt: randomPrompt(r, 40), max_tokens: 40, ignore_eos: true, seed: i }, { onPiece });
    if (began && began === phase) {
      numbers[began].gaps.push(...gaps);
      numbers[began].firsts.push(first);
    }
    await sleep(r.int(50, 400));
  }
}

async function json(path, options) {
  const response = await fetch(server.url + path, options);
  if (response.status !== 200) throw new Error(await response.text());
  return response.json();
}

async function startBatch() {
  const r = random(1);
  const line = (i) => ({
    custom_id: `c${i}`,
    method: "POST",
    url,
    body: { model: modelName, prompt: randomPrompt(r, 200), max_tokens: 100, ignore_eos: true },
  });
  const rows = Array.from({ length: 3000 }, (_, i) => JSON.stringify(line(i)) + "\n");
  const form = new FormData();
  form.append("purpose", "batch");
  form.append("file", new Blob(rows), "in.jsonl");
  const { id } = await json("/v1/files", { method: "POST", body: form });
  const body = { input_file_id: id, endpoint: url, completion_window: "24h" };
  const batch = await (await post(server, "/v1/batches", body)).json();
  while ((await json(`/v1/batches/${batch.id}`)).status === "validating") await sleep(50);
  return batch.id;
}

async function endBatch(id) {
  await json(`/v1/batches/${id}/cancel`, { method: "POST" });
  for (;;) {
    const batch = await json(`/v1/batches/${id}`);
    if (batch.status === "cancelled") return batch.request_counts.completed;
    await sleep(50);
  }
}

const all = Array.from({ length: clients }, (_, i) => client(i));
let lines = 0;
await sleep(1000);
for (let i = 0; i < phases; i++) {
  const id = i % 2 ? await startBatch() : null;
  phase = id ? "batch" : "quiet";
  await sleep(seconds * 1000);
  phase = null;
  if (id) lines += await endBatch(id);
}
over = true;
await Promise.all(all);
for (const [name, { gaps, firsts }] of Object.entries(numbers)) {
  const at = (list, q) => `${percentile(list, q).toFixed(1)} ms`;
  const gap = `gaps ${String(gaps.length).padStart(6)}: p50 ${at(gaps, 0.5)}, p99 ${at(gaps, 0.99)}`;
  console.log(`${name}: ${gap}; first token p50 ${at(firsts, 0.5)}, p99 ${at(firsts, 0.99)}`);
}
const ratio = percentile(numbers.batch.gaps, 0.99) / percentile(numbers.quiet.gaps, 0.99);
console.log(`p99 gap with the batch: ${ratio.toFixed(2)} x; lines answered meanwhile: ${lines}`);
await server.stop();
