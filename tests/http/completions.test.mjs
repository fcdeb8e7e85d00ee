// What only POST /v1/completions has: best_of, suffix, echo with log-probabilities.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { addKeys } from "./gguf.mjs";
import { modelFile, modelName, post, sse, startServer } from "./server.mjs";

let server, folder;
const fim = { prefix: 1000, suffix: 1001, middle: 1002 };
before(async () => {
  folder = mkdtempSync(join(tmpdir(), "inferd-fim-"));
  const file = join(folder, "fim.gguf");
  addKeys(modelFile, file, { "tokenizer.ggml.fim_pre_token_id": fim.prefix, "tokenizer.ggml.fim_suf_token_id": fim.suffix, "tokenizer.ggml.fim_mid_token_id": fim.middle });
  server = await startServer([], [{ file: modelFile, name: modelName }, { file, name: "fim" }]);
});
after(async () => {
  await server.stop();
  rmSync(folder, { recursive: true });
});

async function ask(body, path = "/v1/completions") {
  const response = await post(server, path, { model: modelName, ...body });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return JSON.parse(text);
}
async function refused(body, param, words) {
  const response = await post(server, "/v1/completions", { model: modelName, prompt: "x", ...body });
  const { error } = await response.json();
  assert.equal(response.status, 400);
  assert.equal(error.param, param);
  assert.match(error.message, words);
}

const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;

test("best_of returns the n whose tokens are the most probable ones", async () => {
  const params = { prompt: ["Once upon a time", "The dog"], max_tokens: 12, temperature: 1.3, seed: 11, ignore_eos: true };
  const all = await ask({ ...params, n: 6, logprobs: 0 });
  const best = await ask({ ...params, n: 2, best_of: 6, logprobs: 0 });
  assert.deepEqual(best.choices.map((c) => c.index), [0, 1, 2, 3]);
  for (const prompt of [0, 1]) {
    const ranked = all.choices.slice(6 * prompt, 6 * prompt + 6).sort((a, b) => mean(b.logprobs.token_logprobs) - mean(a.logprobs.token_logprobs));
    assert.notEqual(ranked[0].text, all.choices[6 * prompt].text + "?", "there are texts");
    assert.deepEqual(best.choices.slice(2 * prompt, 2 * prompt + 2).map((c) => c.text), ranked.slice(0, 2).map((c) => c.text));
  }
  assert.equal(best.usage.completion_tokens, all.usage.completion_tokens, "all that was made is counted");
  const bare = await ask({ ...params, n: 2, best_of: 6 });
  assert.deepEqual(bare.choices, best.choices.map((c) => ({ ...c, logprobs: null })));
  const echoed = await ask({ ...params, n: 2, best_of: 6, echo: true });
  assert.equal(echoed.choices[0].text, params.prompt[0] + best.choices[0].text);
  await refused({ n: 3, best_of: 2 }, "best_of", /'n'/);
  await refused({ best_of: 2, stream: true }, "best_of", /streamed/);
  await refused({ prompt: Array(50).fill("x"), best_of: 3 }, "prompt", /at most 42 texts/);
});

test("logprobs has OpenAI's bound", async () => {
  await refused({ logprobs: 6 }, "logprobs", /between 0 and 5/);
  const { choices } = await ask({ prompt: "Once", logprobs: 5, max_tokens: 3, temperature: 0 });
  assert.ok(choices[0].logprobs.top_logprobs.every((o) => Object.keys(o).length <= 6 && Object.keys(o).length >= 4));
});

test("echo with logprobs scores the prompt, and the texts add up", async () => {
  const { choices, usage } = await ask({ prompt: "Once upon a time there was", echo: true, logprobs: 2, max_tokens: 4, temperature: 0 });
  const [{ text, logprobs: l }] = choices;
  assert.equal(l.tokens.length, usage.prompt_tokens + usage.completion_tokens);
  assert.equal(l.token_logprobs[0], null);
  assert.ok(l.token_logprobs.slice(1).every((p) => p <= 0));
  assert.equal(l.text_offset.length, l.tokens.length);
  const { choices: [only] } = await ask({ prompt: "Once upon a time there was", echo: true, logprobs: 2, max_tokens: 0 });
  assert.equal(only.text, "Once upon a time there was");
  const scored = l.token_logprobs.slice(0, usage.prompt_tokens);
  assert.deepEqual(only.logprobs.token_logprobs, scored);
  // The answer's tokens scored as a prompt have the same probabilities.
  const ids = (await ask({ prompt: text }, "/tokenize")).tokens;
  const again = await ask({ prompt: ids, echo: true, logprobs: 0, max_tokens: 0 });
  if (ids.length === l.tokens.length)
    again.choices[0].logprobs.token_logprobs.forEach((p, i) => assert.ok(p === l.token_logprobs[i] || Math.abs(p - l.token_logprobs[i]) < 1e-3, `${i}: ${p} ${l.token_logprobs[i]}`));
});

test("a prompt that is null is the empty one", async () => {
  const a = await ask({ prompt: null, temperature: 0 }), b = await ask({ prompt: "", temperature: 0 });
  assert.deepEqual([a.choices, a.usage.prompt_tokens], [b.choices, b.usage.prompt_tokens]);
});

test("suffix: the model is asked for what belongs between", async () => {
  const encode = async (text) => (await ask({ model: "fim", prompt: text, add_special_tokens: false }, "/tokenize")).tokens;
  const capabilities = async (id) => (await (await fetch(`${server.url}/v1/models/${id}`)).json()).capabilities;
  assert.deepEqual([(await capabilities("fim")).fim, (await capabilities(modelName)).fim], [true, false]);
  const prompt = "Once there was a dog", suffix = " and they were happy.";
  const params = { model: "fim", max_tokens: 20, temperature: 0, ignore_eos: true };
  const answer = await ask({ ...params, prompt, suffix });
  // The same by hand: the suffix without the space that this vocabulary puts before a text.
  const sign = await encode("\u263a"), inner = (await encode("\u263a" + suffix)).slice(sign.length);
  const bos = (await ask({ model: "fim", prompt: "" }, "/tokenize")).tokens;
  const ids = [...bos, fim.prefix, ...(await encode(prompt)), fim.suffix, ...inner, fim.middle];
  const byHand = await ask({ ...params, prompt: ids });
  assert.equal(answer.usage.prompt_tokens, ids.length);
  assert.equal(answer.choices[0].text, byHand.choices[0].text);
  const plain = await ask({ ...params, prompt });
  assert.deepEqual((await ask({ ...params, prompt, suffix: "" })).choices, plain.choices, "an empty suffix asks for nothing");
  const both = await ask({ ...params, prompt: [prompt, "x"], suffix, logprobs: 1 });
  assert.equal(both.choices[0].text, answer.choices[0].text);
  let text = "";
  for await (const event of sse(await post(server, "/v1/completions", { ...params, prompt, suffix, stream: true })))
    if (event.choices) text += event.choices[0].text;
  assert.equal(text, answer.choices[0].text);
  await refused({ suffix }, "suffix", /fill in the middle/);
  await refused({ model: "fim", suffix, echo: true }, "echo", /suffix/);
  await refused({ model: "fim", suffix, prompt: [1, 2] }, "prompt", /text/);
});
