// An agent's loop: every turn adds a call and its result to the conversation and ends in a message that the
// next turn replaces. What a turn computes of its prompt, beside what it has in common with those before.
import assert from "node:assert/strict";
import { chat, post, random } from "./server.mjs";

const tools = [
  {
    type: "function",
    function: { name: "read", parameters: { type: "object", properties: { path: { type: "string" } } } },
  },
];

async function answerOf(server, path, body) {
  const response = await post(server, path, body);
  assert.equal(response.status, 200, await response.clone().text());
  return response.json();
}

export function inCommon(a, b) {
  let n = 0;
  while (n < a.length && a[n] === b[n]) n++;
  return n;
}

// Of what the template makes of a conversation.
export async function promptTokens(server, { model, ...conversation }) {
  const { prompt } = await answerOf(server, "/apply-template", { model, ...conversation });
  return (await answerOf(server, "/tokenize", { model, content: prompt, parse_special: true })).tokens;
}

// Yields {turn, prompt, cached, common} of each turn, in tokens: common are those at the start of the prompt
// that an earlier prompt has, too. words: how many are in the system's message, in a result of a tool. Agents
// with the same list of earlier prompts share the system's message.
export async function* agentLoop(server, model, { turns, words, agent = 0, earlier = [] }) {
  const rng = random(19);
  const text = (n) => Array.from({ length: n }, () => ["the", "cat", "sat", "on", "a", "mat"][rng.int(0, 6)]).join(" ");
  const talk = [
    { role: "system", content: `You are an agent. ${text(words.system)}` },
    { role: "user", content: `Task ${agent}: ${text(20)}` },
  ];
  for (let turn = 0; turn < turns; turn++) {
    const messages = [...talk, { role: "user", content: `It is ${turn} o'clock. ${text(3)}` }];
    const tokens = await promptTokens(server, { model, messages, tools });
    const response = await chat(server, { model, messages, tools, max_tokens: 2, temperature: 0 });
    assert.equal(response.status, 200, await response.clone().text());
    const { usage } = await response.json();
    const bos = usage.prompt_tokens - tokens.length; // llama.cpp leaves it out of what it renders
    assert.ok(bos === 0 || bos === 1, `${usage.prompt_tokens} tokens, ${tokens.length} of its text`);
    const common = Math.max(0, ...earlier.map((other) => inCommon(tokens, other)));
    earlier.push(tokens);
    yield {
      turn,
      prompt: usage.prompt_tokens,
      cached: usage.prompt_tokens_details.cached_tokens,
      common: common && common + bos,
    };
    talk.push(
      {
        role: "assistant",
        content: null,
        tool_calls: [
          { id: `call_${turn}`, type: "function", function: { name: "read", arguments: `{"path":"${turn}"}` } },
        ],
      },
      { role: "tool", tool_call_id: `call_${turn}`, content: text(words.result) },
    );
  }
}
