// U+0000, which JSON writes \u0000: texts for the model keep it; other texts refuse it.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { modelName, post, startServer, user } from "./server.mjs";

let server;
before(async () => (server = await startServer()));
after(() => server.stop());

const nul = "a\u0000b\u0000\u0000";
async function ask(path, body) {
  const response = await post(server, path, { model: modelName, ...body });
  const text = await response.text();
  assert.equal(response.status, 200, `${path} ${text}`);
  return JSON.parse(text);
}
const ids = async (body) => (await ask("/tokenize", { add_special_tokens: false, ...body })).tokens;

test("a text with NULs is tokenized and decoded completely", async () => {
  const tokens = await ids({ prompt: nul });
  assert.ok(tokens.length > (await ids({ prompt: "ab" })).length);
  assert.equal((await ask("/detokenize", { tokens })).prompt, nul);
  assert.deepEqual(await ids({ content: nul }), tokens);
  const { tokens: pieces } = await ask("/tokenize", { prompt: nul, with_pieces: true, add_special_tokens: false });
  assert.equal(pieces.filter((p) => p.piece === "\u0000").length, 3);
});

test("a completion's prompt may contain them", async () => {
  const scored = await ask("/v1/completions", { prompt: nul, max_tokens: 0, echo: true, logprobs: 0 });
  assert.equal(scored.choices[0].text, nul);
  assert.equal(scored.choices[0].logprobs.tokens.filter((t) => t === "\u0000").length, 3);
  const many = await ask("/v1/completions", { prompt: [nul, "x"], max_tokens: 0, echo: true });
  assert.deepEqual(
    many.choices.map((c) => c.text),
    [nul, "x"],
  );
  const byIds = await ask("/v1/completions", {
    prompt: (await ask("/tokenize", { prompt: nul })).tokens,
    max_tokens: 8,
    temperature: 0,
  });
  assert.equal(
    (await ask("/v1/completions", { prompt: nul, max_tokens: 8, temperature: 0 })).choices[0].text,
    byIds.choices[0].text,
  );
});

test("messages of every protocol may contain them", async () => {
  const render = async (content) => (await ask("/v1/inferd/render", { messages: [{ role: "user", content }] })).prompt;
  const want = (await render("a#b##")).replace("a#b##", nul);
  assert.equal(await render(nul), want);
  assert.equal(await render([{ type: "text", text: nul }]), want);
  const n = (await ids({ messages: user(nul), add_special_tokens: undefined })).length;
  const short = { max_tokens: 1, messages: user(nul) };
  assert.equal((await ask("/v1/chat/completions", short)).usage.prompt_tokens, n);
  assert.equal((await ask("/v1/messages/count_tokens", { messages: user(nul) })).input_tokens, n);
  assert.equal(
    (await ask("/v1/messages/count_tokens", { messages: user([{ type: "text", text: nul }]) })).input_tokens,
    n,
  );
  assert.equal(
    (await ask("/api/chat", { messages: user(nul), stream: false, options: { num_predict: 1 } })).prompt_eval_count,
    n,
  );
  assert.equal(
    (await ask("/api/generate", { prompt: nul, stream: false, options: { num_predict: 1 } })).prompt_eval_count,
    n,
  );
  const continued = await ask("/v1/inferd/render", {
    messages: [...user("x"), { role: "assistant", content: nul }],
    continue_final_message: true,
    add_generation_prompt: false,
  });
  assert.ok(continued.prompt.endsWith(nul.trimEnd()), JSON.stringify(continued.prompt));
});

test("embeddings depend on them", async () => {
  const { data, usage } = await ask("/v1/embeddings", { input: ["ab", nul] });
  assert.notDeepEqual(data[0].embedding, data[1].embedding);
  assert.equal(
    usage.prompt_tokens,
    (await ask("/tokenize", { prompt: "ab" })).count + (await ask("/tokenize", { prompt: nul })).count,
  );
});

test("stored responses keep them and can be continued", async () => {
  const first = await ask("/v1/responses", { input: nul, instructions: nul, max_output_tokens: 1 });
  assert.equal(first.instructions, nul);
  assert.deepEqual(await (await fetch(`${server.url}/v1/responses/${first.id}`)).json(), first);
  const items = await (await fetch(`${server.url}/v1/responses/${first.id}/input_items`)).json();
  assert.equal(items.data[0].content[0].text, nul);
  const next = await ask("/v1/responses", { input: "x", previous_response_id: first.id, max_output_tokens: 1 });
  const messages = [...user(nul), { role: "assistant", content: first.output[0].content[0].text }, ...user("x")];
  assert.equal(next.usage.input_tokens, (await ids({ messages, add_special_tokens: undefined })).length);
});

test("fields that are not prompt text refuse them by name", async () => {
  const tool = { type: "function", function: { name: "f", description: nul } };
  const schema = { type: "object", properties: { a: { const: nul } } };
  const rows = [
    ["/v1/chat/completions", { messages: user("x"), stop: ["a", nul] }, "stop"],
    ["/v1/chat/completions", { messages: [{ role: "user", name: nul, content: "x" }] }, "messages[0].name"],
    ["/v1/chat/completions", { messages: user("x"), model: nul }, "model"],
    ["/v1/chat/completions", { messages: user("x"), tools: [tool] }, "tools"],
    ["/v1/chat/completions", { messages: user("x"), guided_json: schema }, "guided_json"],
    ["/v1/chat/completions", { messages: user("x"), guided_json: JSON.stringify(schema) }, "guided_json"],
    ["/v1/chat/completions", { messages: user("x"), chat_template_kwargs: { x: [nul] } }, "chat_template_kwargs"],
    ["/v1/completions", { prompt: "x", suffix: nul }, "suffix"],
    ["/v1/responses", { input: "x", previous_response_id: nul }, "previous_response_id"],
    ["/v1/responses", { input: [{ type: "item_reference", id: nul }] }, "input[0].id"],
    ["/v1/responses", { input: "x", metadata: { a: nul } }, "metadata"],
  ];
  for (const [path, body, param] of rows) {
    const response = await post(server, path, { model: modelName, ...body });
    const { error } = await response.json();
    assert.deepEqual([response.status, error.param], [400, param], error.message);
    assert.match(error.message, /U\+0000/);
  }
  const key = await post(server, "/v1/completions", `{"model":"${modelName}","a\\u0000":1}`);
  assert.equal(key.status, 400);
  assert.match((await key.json()).error.message, /u0000 in a key/);
});
