// An agent's loop: every turn adds a call and its result to the conversation and ends in a message that the
// next turn replaces. What a turn computes of its prompt, beside what it has in common with the last one.
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

// Yields {turn, prompt, cached, common} of each turn, in tokens: common are those at the start of the prompt
// that the last turn's prompt has, too. words: how many are in the system's message, in a result of a tool.
export async function* agentLoop(server, model, { turns, words }) {
  const rng = random(19);
  const text = (n) => Array.from({ length: n }, () => ["the", "cat", "sat", "on", "a", "mat"][rng.int(0, 6)]).join(" ");
  const talk = [
    { role: "system", content: `You are an agent. ${text(words.system)}` },
    { role: "user", content: text(20) },
  ];
  let last = [];
  for (let turn = 0; turn < turns; turn++) {
    const messages = [...talk, { role: "user", content: `It is ${turn} o'clock. ${text(3)}` }];
    const { prompt } = await answerOf(server, "/apply-template", { model, messages, tools });
    const { tokens } = await answerOf(server, "/tokenize", { model, content: prompt, parse_special: true });
    const response = await chat(server, { model, messages, tools, max_tokens: 2, temperature: 0 });
    assert.equal(response.status, 200, await response.clone().text());
    const { usage } = await response.json();
    assert.equal(usage.prompt_tokens, tokens.length);
    let common = 0;
    while (common < last.length && tokens[common] === last[common]) common++;
    yield { turn, prompt: tokens.length, cached: usage.prompt_tokens_details.cached_tokens, common };
    last = tokens;
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
