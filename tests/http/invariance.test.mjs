// Same seed, same bytes: alone, among others, with another chunk size, on prefix-cache hits, after preemption, in
// forks and in a streamed chat. For each model of the table.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { chat, metrics, modelFile, modelName, post, random, randomPrompt, startServer, streamed } from "./server.mjs";

// n: how many of the requests.
const models = [
  { name: modelName, file: modelFile, golden: "tests/golden/demo", n: 33 },
  {
    name: "inferd-hybrid",
    file: "tests/golden/hybrid/inferd-hybrid-q8_0.gguf",
    golden: "tests/golden/hybrid",
    n: 16,
    recurrent: true,
  },
];

const rng = random(42);
const shared = randomPrompt(rng, 150);
const requests = Array.from({ length: 33 }, (_, i) => ({
  prompt: [...shared.slice(0, [0, 70, 150][i % 3]), ...randomPrompt(rng, rng.int(3, 300))],
  max_tokens: rng.int(20, 60),
  temperature: i % 4 ? 1.2 : 0,
  top_p: i % 2 ? 0.9 : 1,
  top_k: i % 5 ? 0 : 40,
  frequency_penalty: i % 6 ? 0 : 0.5,
  seed: 1000 + i,
  ignore_eos: true,
  logprobs: 2,
}));

async function answerOf(server, model, request) {
  const response = await post(server, "/v1/completions", { model: model.name, ...request });
  assert.equal(response.status, 200, await response.clone().text());
  return response.json();
}

async function answer(server, model, request) {
  const { choices, usage } = await answerOf(server, model, request);
  return { choice: JSON.stringify(choices[0]), cached: usage.prompt_tokens_details?.cached_tokens ?? 0 };
}

for (const model of models)
  describe(model.name, () => {
    const own = requests.slice(0, model.n);

    // Answers of all requests from a new server, one after another or concurrently.
    async function answers(flags, together, check = () => {}, sent = own) {
      const server = await startServer(flags, [model]);
      try {
        const result = [];
        if (together) result.push(...(await Promise.all(sent.map((r) => answer(server, model, r)))));
        else for (const r of sent) result.push(await answer(server, model, r));
        await check(await metrics(server), result);
        return result.map(({ choice }) => choice);
      } finally {
        await server.stop();
      }
    }
    let plain, alone;
    before(async () => (plain = await startServer(["--prefix-cache", "off"], [model])));
    after(() => plain.stop());

    test("alone, without any cache", async () => {
      alone = [];
      for (const r of own) alone.push((await answer(plain, model, r)).choice);
      assert.equal(alone.length, model.n);
    });

    test("among the others", async () => {
      const together = await Promise.all(own.map((r) => answer(plain, model, r)));
      assert.deepEqual(
        together.map(({ choice }) => choice),
        alone,
      );
    });

    test("with odd chunk sizes and one thread", async () => {
      const flags = ["--max-batch-tokens", "67", "--prefill-chunk", "13", "--threads", "1"];
      assert.deepEqual(await answers(flags, true), alone);
    });

    test("on prefix-cache hits of several depths", async () => {
      const check = (m, result) => {
        assert.ok(m.get("inferd_prefix_cache_hit_tokens_total") > 500);
        const depths = new Set(result.map(({ cached }) => cached));
        assert.ok(depths.size >= 3, `hits of ${[...depths]} tokens`);
      };
      assert.deepEqual(await answers([], false, check), alone);
    });

    // Whether sequences are preempted depends on how many requests arrive while others run.
    async function untilPreempted(flags, sent = own, alsoCheck = () => {}) {
      let preemptions = 0;
      const check = (m) => {
        preemptions = m.get("inferd_preemptions_total");
        if (preemptions) alsoCheck(m);
      };
      for (let i = 0; i < 10 && !preemptions; i++) assert.deepEqual(await answers(flags, true, check, sent), alone);
      assert.ok(preemptions > 0, "preemptions happened");
    }
    test("after preemption", async () => {
      await untilPreempted(["--kv-cache-tokens", "1024", "--prefix-cache", "off"]);
      await untilPreempted(["--kv-cache-tokens", "1024"]);
    });

    // Two sequences run, and one more state is kept. The later ones go before those that run, if these still run.
    async function withFewStates() {
      const urgent = own.map((r, i) => ({ ...r, priority: i - own.length }));
      await untilPreempted(["--state-blocks", "3"], urgent, (m) => {
        assert.equal(m.get("inferd_state_blocks"), 3);
        assert.ok(m.get("inferd_state_evictions_total") > 0, "states were evicted");
      });
    }
    if (model.recurrent) test("with too few state blocks", withFewStates);

    test("as forks of one prompt", async () => {
      const request = { prompt: shared.slice(0, 100), max_tokens: 24, temperature: 1.1, logprobs: 2, ignore_eos: true };
      const server = await startServer([], [model]);
      try {
        const { choices } = await answerOf(server, model, { ...request, seed: 7, n: 4 });
        for (const { index, ...choice } of choices) {
          const own = await answerOf(plain, model, { ...request, seed: 7 + index });
          assert.deepEqual(own.choices, [{ index: 0, ...choice }]);
        }
        assert.equal(new Set(choices.map(({ text }) => text)).size, 4);
      } finally {
        await server.stop();
      }
    });

    // Those that transformers chose by a clear margin: activations of 8 bits give them, too.
    test("a streamed chat is that of transformers", async () => {
      const { chats } = JSON.parse(readFileSync(`${model.golden}/greedy.json`, "utf8"));
      const clear = chats.filter(({ min_margin, ended }) => min_margin > 0.25 && ended);
      assert.ok(clear.length >= 3, `${clear.length} chats`);
      for (const { messages, text, prompt_ids, output_ids } of clear) {
        const body = { model: model.name, messages, temperature: 0, stream_options: { include_usage: true } };
        const stream = await streamed(plain, body);
        assert.equal(stream.text, text);
        assert.ok(stream.done && stream.finish === "stop");
        assert.equal(stream.usage.prompt_tokens, prompt_ids.length);
        assert.equal(stream.usage.completion_tokens, output_ids.length);
        const { choices } = await (await chat(plain, { model: model.name, messages, temperature: 0 })).json();
        assert.equal(choices[0].message.content, text);
      }
    });
  });
