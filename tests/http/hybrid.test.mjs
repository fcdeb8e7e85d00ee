// The prefix cache of a model with recurrent layers in an agent's loop: every turn adds a call and its
// result to the conversation and ends in a message that the next turn replaces.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { chat, metrics, post, random, startServer } from "./server.mjs";

const model = "hybrid",
  turns = 12,
  boundary = 16; // block-tokens: where a state can be kept
let server;
before(async () => {
  const flags = ["--kv-cache-tokens", "8192", "--context-length", "2048", "--max-sequences", "4"];
  server = await startServer(flags, [{ name: model, file: "tests/golden/arch/qwen35/hf" }]);
});
after(() => server.stop());

const tools = [
  {
    type: "function",
    function: { name: "read", parameters: { type: "object", properties: { path: { type: "string" } } } },
  },
];
const rng = random(19);
const words = (n) => Array.from({ length: n }, () => ["the", "cat", "sat", "on", "a", "mat"][rng.int(0, 6)]).join(" ");

async function answerOf(path, body) {
  const response = await post(server, path, body);
  assert.equal(response.status, 200, await response.clone().text());
  return response.json();
}

// The prompt's token ids.
async function idsOf(messages) {
  const { prompt } = await answerOf("/apply-template", { model, messages, tools });
  return (await answerOf("/tokenize", { model, content: prompt, parse_special: true })).tokens;
}

const metricOf = async (name) => {
  const sums = [...(await metrics(server))].filter(([key]) => key.replace(/\{.*/, "") === name);
  assert.ok(sums.length > 0, name);
  return sums.reduce((sum, [, value]) => sum + value, 0);
};

test("a turn of an agent computes what is new and what follows a change, but for two boundaries", async () => {
  const hits = "inferd_prefix_cache_hit_tokens_total";
  const before = await metricOf(hits);
  const talk = [
    { role: "system", content: `You are an agent. ${words(120)}` },
    { role: "user", content: words(20) },
  ];
  let last = [],
    found = 0;
  for (let turn = 0; turn < turns; turn++) {
    const messages = [...talk, { role: "user", content: `It is ${turn} o'clock. ${words(3)}` }];
    const ids = await idsOf(messages);
    const response = await chat(server, { model, messages, tools, max_tokens: 2, temperature: 0 });
    assert.equal(response.status, 200, await response.clone().text());
    const { usage } = await response.json();
    assert.equal(usage.prompt_tokens, ids.length);
    const { cached_tokens: cached } = usage.prompt_tokens_details;
    let common = 0;
    while (common < last.length && ids[common] === last[common]) common++;
    assert.ok(
      turn === 0 || common > 100,
      `the prompts of turns ${turn - 1} and ${turn} have ${common} tokens in common`,
    );
    assert.ok(
      ids.length - cached <= ids.length - common + 2 * boundary,
      `turn ${turn}: ${cached} tokens of ${ids.length} are cached, ${common} are those of the last turn`,
    );
    last = ids;
    found += cached;
    talk.push(
      {
        role: "assistant",
        content: null,
        tool_calls: [
          { id: `call_${turn}`, type: "function", function: { name: "read", arguments: `{"path":"${turn}"}` } },
        ],
      },
      { role: "tool", tool_call_id: `call_${turn}`, content: words(15) },
    );
  }
  assert.equal((await metricOf(hits)) - before, found);
});
