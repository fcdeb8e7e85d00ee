// What kv-dir and kv-memory-bytes save and cost: the time to the first token of a prompt that was computed before a
// restart or before another model's turn, beside computing it; gaps between the tokens of 8 streams while prompts
// are evicted to the folder, beside the same without it.
// usage: node scripts/bench-kv.mjs [MODEL.gguf [PROMPT_TOKENS]]
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  binary,
  metrics,
  modelFile,
  modelName,
  post,
  random,
  randomPrompt,
  startServer,
  until,
} from "../tests/http/server.mjs";
import { percentile } from "./measure/numbers.mjs";
import { Crowd } from "./measure/streams.mjs";

const file = process.argv[2] ?? modelFile,
  n = Number(process.argv[3] ?? 8000);
const folder = mkdtempSync(join(process.env.KV_BENCH ?? tmpdir(), "inferd-bench-kv-"));
const rng = random(1);
const context = ["--context-length", `${n + 1000}`, "--kv-cache-tokens", `${2 * n + 4096}`];
const models = [{ file, name: modelName }];

async function timed(server, prompt, model = modelName) {
  const start = performance.now();
  const response = await post(server, "/v1/completions", {
    model,
    prompt,
    max_tokens: 16,
    temperature: 0,
    stream: true,
  });
  if (response.status !== 200) throw new Error(await response.text());
  let first = 0,
    text = "";
  for await (const bytes of response.body) {
    first ||= performance.now() - start;
    for (const [, piece] of Buffer.from(bytes)
      .toString()
      .matchAll(/"text":"((?:[^"\\]|\\.)*)"/g))
      text += piece;
  }
  return { ms: first, text };
}

const say = (what, value) => console.log(`${what.padEnd(62)} ${value}`);
const part = (a, b) => `${((100 * a) / b).toFixed(2)} %`;

async function restart() {
  const dir = join(folder, "restart");
  const server = await startServer([...context, "--kv-dir", dir], models);
  const warm = randomPrompt(rng, 64),
    prompt = randomPrompt(rng, n);
  await timed(server, warm);
  const cold = await timed(server, prompt);
  const begin = performance.now();
  await server.restart();
  const took = performance.now() - begin;
  const files = readdirSync(dir).filter((f) => f.endsWith(".kv"));
  const bytes = files.reduce((sum, f) => sum + statSync(join(dir, f)).size, 0);
  const again = await timed(server, prompt);
  const m = await metrics(server);
  const rate = m.get("inferd_kv_store_read_bytes_total") / m.get("inferd_kv_store_read_seconds_total") / 1e6;
  const plain = Math.max(
    ...Array.from({ length: 5 }, () => {
      const start = performance.now();
      for (const f of files) readFileSync(join(dir, f));
      return bytes / (performance.now() - start) / 1e3;
    }),
  );
  say(`${n} tokens computed, first token`, `${cold.ms.toFixed(0)} ms`);
  say(`stop and start with ${files.length} segments, ${(bytes / 2 ** 20).toFixed(0)} MiB`, `${took.toFixed(0)} ms`);
  say("the same prompt after the restart, first token", `${again.ms.toFixed(0)} ms, ${part(again.ms, cold.ms)}`);
  say("the same text", cold.text === again.text ? "yes" : "NO");
  say("read and decrypted, by the store's thread", `${rate.toFixed(0)} MB/s, plain reads ${plain.toFixed(0)} MB/s`);
  await server.stop();
}

async function swap() {
  const other = join(folder, "other.gguf");
  copyFileSync(file, other);
  const server = await startServer([...context, "--kv-memory-bytes", "8G", "--max-models", "1"], models);
  execFileSync(binary, ["models", "add", other, "--name", "other", "--registry", join(server.folder, "registry.db")]);
  const act = async (what, model) => {
    const start = performance.now();
    await post(server, `/v1/inferd/models/${what}`, { model });
    await until(async () => {
      const { tasks } = await (await fetch(`${server.url}/v1/inferd/models`)).json();
      return tasks.every((t) => t.state === "done");
    }, what);
    return performance.now() - start;
  };
  const prompt = randomPrompt(rng, n);
  const cold = await timed(server, prompt);
  const left = await act("unload", modelName);
  await act("load", "other");
  await timed(server, randomPrompt(rng, 64), "other");
  await act("unload", "other");
  const load = await act("load", modelName);
  const again = await timed(server, prompt);
  say("unload, with its K/V to memory", `${left.toFixed(0)} ms`);
  say("load", `${load.toFixed(0)} ms`);
  say(
    "A, B, A: A's first token",
    `${again.ms.toFixed(0)} ms, ${part(load + again.ms, load + cold.ms)} of load + compute`,
  );
  say("the same text", cold.text === again.text ? "yes" : "NO");
  await server.stop();
}

// Streams decode while one prompt after another is computed and evicts the one before.
async function gaps(name, more) {
  const flags = ["--context-length", "2048", "--kv-cache-tokens", "12288", "--max-sequences", "12", ...more];
  const server = await startServer(flags, models);
  const crowd = new Crowd();
  const prompts = random(3);
  server.model = modelName;
  for (let i = 0; i < 8; i++)
    crowd.add(server, { prompt: randomPrompt(random(10 + i), 20), max_tokens: 1500, ignore_eos: true, seed: i });
  await new Promise((resolve) => setTimeout(resolve, 2000));
  crowd.phase = "evicting";
  for (let i = 0; i < 20; i++) await timed(server, randomPrompt(prompts, 800));
  crowd.phase = "over";
  const m = await metrics(server);
  await crowd.stop();
  const all = crowd.gaps.evicting;
  const written = m.get("inferd_kv_store_written_bytes_total") ?? 0;
  say(
    `${name}: gaps of 8 streams, p50, p99 (${all.length})`,
    `${percentile(all, 0.5).toFixed(1)} ms, ${percentile(all, 0.99).toFixed(1)} ms; ${(written / 2 ** 20).toFixed(0)} MiB written`,
  );
  await server.stop();
}

try {
  await restart();
  await swap();
  for (let round = 0; round < 3; round++) {
    await gaps("without a store", []);
    await gaps("kv-dir", ["--kv-dir", join(folder, `gaps${round}`), "--kv-keep", "all"]);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
