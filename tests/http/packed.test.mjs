// Folders with quantized weights, of every format and two families (tests/data/packed): registered, served, with a
// streamed chat; log-probabilities as those of the same weights in F32.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { post, startServer, streamed, user } from "./server.mjs";

const flags = [
  "--kv-cache-tokens",
  "512",
  "--context-length",
  "64",
  "--max-sequences",
  "4",
  "--activation-bits",
  "16",
  "--max-models",
  "18",
];

// What a format becomes, and how far log-probabilities may be off: activations have 16 bits, and F16 and BF16 round.
const formats = {
  gptq: ["Q4_0 (exact)", 1e-3],
  "gptq-order": ["F16 (rounded)", 3e-3],
  awq: ["Q5_0 (exact)", 1e-3],
  w4a16: ["Q5_0 (exact)", 1e-3],
  w8a16: ["Q8_0 (exact)", 1e-3],
  fp8: ["BF16 (rounded)", 3e-2],
  "fp8-channel": ["BF16 (rounded)", 3e-2],
  nvfp4: ["BF16 (rounded)", 3e-2],
  "nvfp4-modelopt": ["BF16 (rounded)", 3e-2],
};

const ask = { messages: user("Tell me a story."), max_tokens: 8, temperature: 0 };

// The likeliest tokens after a prompt, by id.
async function logprobs(server, model, n) {
  const answer = await post(server, "/completion", {
    model,
    prompt: "Tell me a story.",
    n_predict: 1,
    n_probs: n,
    temperature: 0,
  });
  assert.equal(answer.status, 200);
  return (await answer.json()).completion_probabilities[0].top_logprobs;
}

for (const family of ["llama", "qwen3moe"])
  test(`quantized folders of ${family}`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "inferd-packed-"));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    execFileSync("python3", ["tests/data/packed/make.py", folder, family]);
    const models = readdirSync(folder).map((name) => ({ name, file: join(folder, name) }));
    assert.equal(models.length, 2 * Object.keys(formats).length);
    const server = await startServer(flags, models);
    t.after(() => server.stop());
    for (const [format, [type, bound]] of Object.entries(formats)) {
      const model = `${family}-${format}`;
      const answer = await streamed(server, { ...ask, model, stream_options: { include_usage: true } });
      assert.ok(answer.done && answer.usage.completion_tokens > 0, model);
      const want = new Map((await logprobs(server, `${model}-plain`, 20)).map((p) => [p.id, p.logprob]));
      const worst = Math.max(
        ...(await logprobs(server, model, 5)).map((p) => Math.abs(p.logprob - (want.get(p.id) ?? NaN))),
      );
      t.diagnostic(`${model}: ${worst.toExponential(1)}`);
      assert.ok(worst < bound, `${model}: log-probabilities are off by ${worst}`);
      assert.match(
        server.stderr,
        new RegExp(`quantized tensors of the folder: .*\\b\\d+ as ${type.replace(/[()]/g, "\\$&")}`),
      );
    }
  });
