// Text to tokens and back, and the prompt of a chat.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { chat, modelName, post, random, startServer, user } from "./server.mjs";

let server;
before(async () => {
  server = await startServer(["--unknown-fields", "refuse"]);
});
after(() => server.stop());

async function ask(path, body) {
  const response = await post(server, path, { model: modelName, ...body });
  const text = await response.text();
  assert.equal(response.status, 200, `${path} ${JSON.stringify(body).slice(0, 200)}: ${text}`);
  return JSON.parse(text);
}
async function refused(path, body, param) {
  const response = await post(server, path, { model: modelName, ...body });
  assert.equal(response.status, 400);
  assert.equal((await response.json()).error.param, param);
}

const texts = [
  "",
  "Hello there, world.",
  "  two  spaces\n\ttab ",
  "na\u00efve \u{1f600} \u4f60\u597d",
  "<|end|> is text",
  "\u0001\u007f",
  "a".repeat(3000),
];

test("tokenize and detokenize are inverse", async () => {
  const rng = random(5);
  const more = Array.from({ length: 20 }, () =>
    String.fromCodePoint(...Array.from({ length: rng.int(1, 60) }, () => rng.int(1, rng.int(0, 1) ? 0x7e : 0xd7ff))),
  );
  for (const prefix of ["", "/v1"])
    for (const text of prefix ? texts.slice(0, 2) : [...texts, ...more]) {
      const { tokens, count, max_model_len, token_strs } = await ask(prefix + "/tokenize", {
        prompt: text,
        add_special_tokens: false,
      });
      assert.equal(tokens.length, count);
      assert.equal(token_strs, null);
      assert.ok(max_model_len > 0);
      const back = await ask(prefix + "/detokenize", { tokens });
      assert.equal(back.prompt, text);
      assert.equal(back.content, text);
    }
});

test("the field names of vLLM and llama.cpp", async () => {
  const text = "Hello there <|end|> \u{1f600}";
  const plain = await ask("/tokenize", { prompt: text, parse_special: false });
  assert.deepEqual(await ask("/tokenize", { content: text, add_special: true, parse_special: false }), plain);
  const bare = await ask("/tokenize", { content: text, parse_special: false });
  assert.deepEqual(plain.tokens.slice(plain.count - bare.count), bare.tokens, "what is added comes first");
  assert.ok(plain.count > bare.count);
  const parsed = await ask("/tokenize", { prompt: text, add_special_tokens: false });
  assert.ok(parsed.count < bare.count, "the control token is one token");
  assert.deepEqual(await ask("/tokenize", { content: text }), parsed, "llama.cpp's default adds nothing");
  const pieces = await ask("/tokenize", { content: text, parse_special: false, with_pieces: true });
  assert.deepEqual(
    pieces.tokens.map((t) => t.id),
    bare.tokens,
  );
  const bytes = Buffer.concat(pieces.tokens.map((t) => Buffer.from(t.piece)));
  assert.equal(bytes.toString().trimStart(), text);
  const strs = await ask("/tokenize", { content: text, parse_special: false, return_token_strs: true });
  assert.equal(strs.token_strs.length, bare.count);
  assert.ok(strs.token_strs.every((s) => typeof s === "string" && s.length));
  const { model, ...anonymous } = { model: modelName, prompt: text, parse_special: false };
  assert.deepEqual(await (await post(server, "/tokenize", anonymous)).json(), plain, "the only model needs no name");
  await refused("/tokenize", { prompt: "x", content: "x" }, "prompt");
  await refused("/tokenize", { prompt: "x".repeat((1 << 20) + 1) }, "prompt");
  await refused("/tokenize", {}, "prompt");
  await refused("/tokenize", { prompt: "x", add_special: true, add_special_tokens: false }, "add_special");
  await refused("/tokenize", { messages: user("x"), add_special_tokens: false }, "add_special_tokens");
  await refused("/tokenize", { prompt: "x", add_generation_prompt: true }, "add_generation_prompt");
  await refused("/detokenize", { tokens: [-1] }, "tokens");
  await refused("/detokenize", { tokens: [1e9] }, "tokens");
  await refused("/detokenize", { tokens: ["1"] }, "tokens");
  assert.equal((await ask("/detokenize", { tokens: [] })).prompt, "");
});

test("a chat's prompt: render, tokenize and the chat itself agree", async () => {
  const messages = [{ role: "system", content: "Be kind." }, ...user("Tell me a story <|end|> about a \u00e9.")];
  const { prompt, tokens, count, spans } = await ask("/v1/inferd/render", { messages, temperature: 0, stream: true });
  assert.equal(tokens.length, count);
  assert.deepEqual((await ask("/tokenize", { messages })).tokens, tokens);
  // The spans cover the text's bytes; the untrusted ones are the messages' texts.
  const bytes = Buffer.from(prompt);
  assert.deepEqual(
    spans.map((s) => s.start),
    [0, ...spans.slice(0, -1).map((s) => s.end)],
  );
  assert.equal(spans.at(-1).end, bytes.length);
  const theirs = spans
    .filter((s) => !s.trusted)
    .map((s) => bytes.subarray(s.start, s.end).toString())
    .join("");
  assert.equal(theirs, messages.map((m) => m.content).join(""));
  const answer = await (await chat(server, { messages, temperature: 0, max_tokens: 40 })).json();
  assert.equal(answer.usage.prompt_tokens, count);
  const same = await ask("/v1/completions", { prompt: tokens, temperature: 0, max_tokens: 40 });
  assert.equal(same.choices[0].text.trimStart(), answer.choices[0].message.content.trimStart());
  const open = await ask("/v1/inferd/render", { messages, add_generation_prompt: false });
  assert.ok(prompt.startsWith(open.prompt) && prompt.length > open.prompt.length);
  await refused("/v1/inferd/render", { messages: [] }, "messages");
  await refused("/v1/inferd/render", { messages, no_such: 1 }, "no_such");
});
