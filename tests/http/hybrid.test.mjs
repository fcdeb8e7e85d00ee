// The prefix cache of a model with recurrent layers in an agent's loop (agent_loop.mjs).
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { agentLoop } from "./agent_loop.mjs";
import { metrics, startServer } from "./server.mjs";

const model = "hybrid",
  boundary = 16; // block-tokens: where a state can be kept
let server;
before(async () => {
  const flags = ["--kv-cache-tokens", "8192", "--context-length", "2048", "--max-sequences", "4"];
  server = await startServer(flags, [{ name: model, file: "tests/golden/arch/qwen35/hf" }]);
});
after(() => server.stop());

const metricOf = async (name) => {
  const sums = [...(await metrics(server))].filter(([key]) => key.replace(/\{.*/, "") === name);
  assert.ok(sums.length > 0, name);
  return sums.reduce((sum, [, value]) => sum + value, 0);
};

test("a turn of an agent computes what is new and what follows a change, but for two boundaries", async () => {
  const hits = "inferd_prefix_cache_hit_tokens_total";
  const before = await metricOf(hits);
  let found = 0;
  for await (const { turn, prompt, cached, common } of agentLoop(server, model, {
    turns: 12,
    words: { system: 120, result: 15 },
  })) {
    assert.ok(
      turn === 0 || common > 100,
      `the prompts of turns ${turn - 1} and ${turn} have ${common} tokens in common`,
    );
    assert.ok(
      prompt - cached <= prompt - common + 2 * boundary,
      `turn ${turn}: ${cached} tokens of ${prompt} are cached, ${common} are those of the last turn`,
    );
    found += cached;
  }
  assert.equal((await metricOf(hits)) - before, found);
});
