// The prefix cache of a model with recurrent layers: in an agent's loop (agent_loop.mjs), and of conversations
// that have only the system's message and the tools in common.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { agentLoop, inCommon, promptTokens } from "./agent_loop.mjs";
import { metrics, post, startServer } from "./server.mjs";

const model = "hybrid",
  boundary = 16; // block-tokens: where a state can be kept
const flags = ["--kv-cache-tokens", "8192", "--context-length", "2048", "--max-sequences", "4"];
const start = (...more) => startServer([...flags, ...more], [{ name: model, file: "tests/golden/arch/qwen35/hf" }]);
let server, uncached;
before(async () => ([server, uncached] = await Promise.all([start(), start("--prefix-cache", "off")])));
after(() => Promise.all([server.stop(), uncached.stop()]));

const metricOf = async (name) => {
  const sums = [...(await metrics(server))].filter(([key]) => key.replace(/\{.*/, "") === name);
  assert.ok(sums.length > 0, name);
  return sums.reduce((sum, [, value]) => sum + value, 0);
};
const hits = () => metricOf("inferd_prefix_cache_hit_tokens_total");

test("a turn of an agent computes what is new and what follows a change, but for two boundaries", async () => {
  const before = await hits();
  const earlier = [];
  let found = 0;
  for (const agent of [0, 1])
    for await (const { turn, prompt, cached, common } of agentLoop(server, model, {
      turns: agent ? 2 : 12,
      words: { system: 120, result: 15 },
      agent,
      earlier,
    })) {
      assert.ok(
        (turn === 0 && agent === 0) || common > 100,
        `agent ${agent}: the prompts of turns ${turn - 1} and ${turn} have ${common} tokens in common`,
      );
      assert.ok(
        prompt - cached <= prompt - common + 2 * boundary,
        `agent ${agent}, turn ${turn}: ${cached} tokens of ${prompt} are cached, ${common} were in an earlier prompt`,
      );
      found += cached;
    }
  assert.equal((await hits()) - before, found);
});

const call = { name: "read", description: "Reads a file.", parameters: { type: "object", properties: {} } };
const tools = [{ type: "function", function: call }];
const settings = { model, temperature: 0, max_tokens: 12 };
const say = (system, messages) => [{ role: "system", content: system }, ...messages];

// Each: the body of a conversation, and of its answer the tokens of its prompt and the text.
const endpoints = {
  "/v1/chat/completions": {
    body: (system, messages) => ({ ...settings, messages: say(system, messages), tools, logprobs: true }),
    read: (answer) => [answer.usage.prompt_tokens, answer.choices],
    tools,
  },
  "/v1/responses": {
    body: (system, messages) => ({
      model,
      temperature: 0,
      max_output_tokens: 12,
      instructions: system,
      input: messages,
      tools: [{ type: "function", ...call }],
    }),
    read: (answer) => [answer.usage.input_tokens, answer.output.map(({ content }) => content)],
    tools,
  },
  "/v1/messages": {
    body: (system, messages) => ({ ...settings, system, messages }),
    read: ({ usage, content }) => [usage.input_tokens + (usage.cache_read_input_tokens ?? 0), content],
  },
  "/api/chat": {
    body: (system, messages) => ({
      model,
      stream: false,
      messages: say(system, messages),
      options: { temperature: 0, num_predict: 12 },
    }),
    read: (answer) => [answer.prompt_eval_count, answer.message.content],
  },
};

async function answerOf(to, path, body) {
  const response = await post(to, path, body);
  assert.equal(response.status, 200, await response.clone().text());
  return endpoints[path].read(await response.json());
}

const conversations = [
  [
    { role: "user", content: "Good day." },
    { role: "assistant", content: "Good day to you." },
    { role: "user", content: "What is new?" },
  ],
  [{ role: "user", content: "The cat sat on a mat. Then it was tired and slept for a while." }],
  [{ role: "user", content: "How big is a house?" }],
];

for (const [path, { body, tools }] of Object.entries(endpoints))
  test(`${path}: another conversation begins behind the system's message`, async () => {
    const system = `${path}. ${"The cat has a hat. ".repeat(30)}`;
    let first;
    for (const messages of conversations) {
      const tokens = await promptTokens(server, { model, messages: say(system, messages), tools });
      const before = await hits();
      const [n, answer] = await answerOf(server, path, body(system, messages));
      assert.equal(n, tokens.length);
      assert.deepEqual([n, answer], await answerOf(uncached, path, body(system, messages)));
      const cached = (await hits()) - before;
      first ??= tokens;
      const common = inCommon(tokens, first);
      assert.ok(common > 150, `${common} tokens in common`);
      if (tokens === first) assert.ok(cached <= boundary, `${cached} tokens are cached at the start`);
      else assert.ok(cached >= common - 2 * boundary, `${cached} of ${common} common tokens are cached`);
    }
  });
