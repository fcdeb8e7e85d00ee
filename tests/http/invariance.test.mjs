// Same seed, same bytes: alone, among 32 others, with another chunk size, after preemption, and on a
// prefix-cache hit.
import assert from "node:assert/strict";
import { test } from "node:test";
import { metrics, modelName, post, random, randomPrompt, startServer } from "./server.mjs";

const rng = random(42);
const shared = randomPrompt(rng, 70);
const requests = Array.from({ length: 33 }, (_, i) => ({
  prompt: [...(i % 3 ? shared : []), ...randomPrompt(rng, rng.int(3, 300))],
  max_tokens: rng.int(20, 60),
  temperature: i % 4 ? 1.2 : 0,
  top_p: i % 2 ? 0.9 : 1,
  top_k: i % 5 ? 0 : 40,
  frequency_penalty: i % 6 ? 0 : 0.5,
  seed: 1000 + i,
  ignore_eos: true,
  logprobs: 2,
}));

async function answer(server, request) {
  const response = await post(server, "/v1/completions", { model: modelName, ...request });
  assert.equal(response.status, 200, await response.clone().text());
  const { choices } = await response.json();
  return JSON.stringify(choices[0]);
}

// Answers of all requests from a new server, one after another or concurrently.
async function answers(flags, together, check = () => {}) {
  const server = await startServer(flags);
  try {
    const result = [];
    if (together) result.push(...(await Promise.all(requests.map((r) => answer(server, r)))));
    else for (const r of requests) result.push(await answer(server, r));
    await check(await metrics(server));
    return result;
  } finally {
    await server.stop();
  }
}

let alone;
test("alone, without any cache", async () => {
  alone = await answers(["--prefix-cache", "off"], false);
  assert.equal(alone.length, 33);
});

test("among 32 others", async () => {
  assert.deepEqual(await answers(["--prefix-cache", "off"], true), alone);
});

test("with odd chunk sizes and one thread", async () => {
  const flags = ["--max-batch-tokens", "67", "--prefill-chunk", "13", "--threads", "1"];
  assert.deepEqual(await answers(flags, true), alone);
});

test("on prefix-cache hits", async () => {
  const check = (m) => assert.ok(m.get("inferd_prefix_cache_hit_tokens_total") > 500);
  assert.deepEqual(await answers([], false, check), alone);
});

test("after preemption", async () => {
  const check = (m) => assert.ok(m.get("inferd_preemptions_total") > 0, "preemptions happened");
  assert.deepEqual(await answers(["--kv-cache-tokens", "1024", "--prefix-cache", "off"], true, check), alone);
  assert.deepEqual(await answers(["--kv-cache-tokens", "1024"], true, check), alone);
});
