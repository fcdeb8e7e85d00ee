// Features of POST /v1/completions only: best_of, suffix, echo with log-probabilities.
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
  addKeys(modelFile, file, {
    "tokenizer.ggml.fim_pre_token_id": fim.prefix,
    "tokenizer.ggml.fim_suf_token_id": fim.suffix,
    "tokenizer.ggml.fim_mid_token_id": fim.middle,
  });
  server = await startServer(
    [],
    [
      { file: modelFile, name: modelName },
      { file, name: "fim" },
      { file: "tests/golden/arch/llama2/model.gguf", name: "spaced" },
    ],
  );
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

test("best_of returns the n answers with the highest mean log-probability", async () => {
  const params = {
    prompt: ["Once upon a time", "The dog"],
    max_tokens: 12,
    temperature: 1.3,
    seed: 11,
    ignore_eos: true,
  };
  const all = await ask({ ...params, n: 6, logprobs: 0 });
  const best = await ask({ ...params, n: 2, best_of: 6, logprobs: 0 });
  assert.deepEqual(
    best.choices.map((c) => c.index),
    [0, 1, 2, 3],
  );
  for (const prompt of [0, 1]) {
    const ranked = all.choices
      .slice(6 * prompt, 6 * prompt + 6)
      .sort((a, b) => mean(b.logprobs.token_logprobs) - mean(a.logprobs.token_logprobs));
    assert.notEqual(ranked[0].text, all.choices[6 * prompt].text + "?", "there are texts");
    assert.deepEqual(
      best.choices.slice(2 * prompt, 2 * prompt + 2).map((c) => c.text),
      ranked.slice(0, 2).map((c) => c.text),
    );
  }
  assert.equal(best.usage.completion_tokens, all.usage.completion_tokens, "all that was made is counted");
  const bare = await ask({ ...params, n: 2, best_of: 6 });
  assert.deepEqual(
    bare.choices,
    best.choices.map((c) => ({ ...c, logprobs: null })),
  );
  const echoed = await ask({ ...params, n: 2, best_of: 6, echo: true });
  assert.equal(echoed.choices[0].text, params.prompt[0] + best.choices[0].text);
  await refused({ n: 3, best_of: 2 }, "best_of", /'n'/);
  await refused({ best_of: 2, stream: true }, "best_of", /with .stream./);
  await refused({ prompt: Array(50).fill("x"), best_of: 3 }, "prompt", /at most 42 texts/);
});

test("logprobs has OpenAI's maximum", async () => {
  await refused({ logprobs: 6 }, "logprobs", /between 0 and 5/);
  const { choices } = await ask({ prompt: "Once", logprobs: 5, max_tokens: 3, temperature: 0 });
  assert.ok(choices[0].logprobs.top_logprobs.every((o) => Object.keys(o).length <= 6 && Object.keys(o).length >= 4));
});

// Each token is at its offset in the text, without the vocabulary's space prefix.
function standsInText({ text, logprobs: l }) {
  const characters = [...text];
  l.tokens.forEach((token, i) => {
    if (token.startsWith("bytes:") || token === "<s>") return;
    const at = characters.slice(l.text_offset[i]).join("");
    assert.ok(
      at.startsWith(token) || (l.text_offset[i] === 0 && at.startsWith(token.slice(1))),
      `${i}: ${JSON.stringify(token)} at ${l.text_offset[i]} of ${text}`,
    );
  });
}

test("echo with logprobs scores the prompt, and the texts add up", async () => {
  const prompt = "Once upon a time there was";
  const { choices, usage } = await ask({ prompt, echo: true, logprobs: 2, max_tokens: 4, temperature: 0 });
  const [{ text, logprobs: l }] = choices;
  // The client did not send <s>, so it is not shown; the first token has its probability after it.
  const n = usage.prompt_tokens - 1;
  assert.equal(l.tokens.length, n + usage.completion_tokens);
  assert.equal(l.tokens.join(""), text);
  assert.ok(l.token_logprobs.every((p) => p <= 0));
  assert.ok(l.top_logprobs.every((o, i) => Object.keys(o).length >= 2 && o[l.tokens[i]] === l.token_logprobs[i]));
  assert.equal(l.text_offset.length, l.tokens.length);
  standsInText(choices[0]);
  const {
    choices: [only],
  } = await ask({ prompt, echo: true, logprobs: 2, max_tokens: 0 });
  assert.equal(only.text, prompt);
  const scored = l.token_logprobs.slice(0, n);
  assert.deepEqual(only.logprobs.token_logprobs, scored);
  // Two choices of two prompts, and a stream, give the same.
  for (const choice of (
    await ask({ prompt: [prompt, "x"], n: 2, echo: true, logprobs: 2, max_tokens: 1, temperature: 0 })
  ).choices.slice(0, 2))
    assert.deepEqual(choice.logprobs.token_logprobs.slice(0, n), scored);
  const tokens = [];
  for await (const event of sse(
    await post(server, "/v1/completions", {
      model: modelName,
      prompt,
      echo: true,
      logprobs: 2,
      max_tokens: 4,
      temperature: 0,
      stream: true,
    }),
  ))
    tokens.push(...(event.choices?.[0].logprobs.tokens ?? []));
  assert.deepEqual(tokens, l.tokens);
  // The answer's tokens scored as a prompt have the same probabilities. The client sent these ids,
  // including <s>, which has no probability and an empty object, as the schema requires.
  const ids = (await ask({ prompt: text }, "/tokenize")).tokens;
  const {
    choices: [again],
  } = await ask({ prompt: ids, echo: true, logprobs: 1, max_tokens: 0 });
  assert.equal(again.text, text);
  assert.deepEqual(
    [again.logprobs.tokens[0], again.logprobs.token_logprobs[0], again.logprobs.top_logprobs[0]],
    ["<s>", null, {}],
  );
  assert.equal(again.logprobs.tokens.length, ids.length);
  if (ids.length === l.tokens.length + 1)
    again.logprobs.token_logprobs
      .slice(1)
      .forEach((p, i) => assert.ok(Math.abs(p - l.token_logprobs[i]) < 1e-3, `${i}: ${p} ${l.token_logprobs[i]}`));
});

test("text offsets count from the text, with and without the vocabulary's space prefix", async () => {
  for (const model of [modelName, "spaced"]) {
    // The untrained small model would answer with parts of characters.
    const ids = (await ask({ model, prompt: "a the\u00e9", add_special_tokens: false }, "/tokenize")).tokens;
    const logit_bias = Object.fromEntries(ids.slice(0, 3).map((id) => [id, 100]));
    for (const prompt of ["Once upon", " Once \u00e9\u4f60 x", "x"])
      for (const echo of [true, false]) {
        const {
          choices: [choice],
        } = await ask({
          model,
          prompt,
          echo,
          logprobs: 1,
          max_tokens: 6,
          temperature: 0,
          ignore_eos: true,
          logit_bias,
        });
        standsInText(choice);
        if (echo) assert.ok(choice.text.startsWith(prompt), choice.text);
      }
  }
  const ids = (await ask({ model: "spaced", prompt: "Once upon" }, "/tokenize")).tokens;
  standsInText((await ask({ model: "spaced", prompt: ids, echo: true, logprobs: 0, max_tokens: 0 })).choices[0]);
});

// logits' = logits + bias - presence * (count > 0) - frequency * count, over the tokens generated so far. The
// model's own log-probabilities of both tokens at each position come from scoring; the formula gives the rest.
test("penalties follow OpenAI's formula", async () => {
  const start = (await ask({ prompt: "Once upon a time" }, "/tokenize")).tokens;
  const score = async (ids) =>
    (await ask({ prompt: ids, echo: true, logprobs: 0, max_tokens: 0 })).choices[0].logprobs.token_logprobs.at(-1);
  const [a, b] = (await ask({ prompt: "a the", add_special_tokens: false }, "/tokenize")).tokens;
  assert.notEqual(a, b);
  const used = new Set();
  for (const [frequency, presence] of [
    [2, 0],
    [-2, 0],
    [0, 2],
    [0.5, -1],
    [-2, 2],
    [0, 0],
  ]) {
    const {
      choices: [{ logprobs: l }],
    } = await ask({
      prompt: start,
      max_tokens: 16,
      temperature: 0,
      logprobs: 0,
      ignore_eos: true,
      frequency_penalty: frequency,
      presence_penalty: presence,
      logit_bias: { [a]: 100, [b]: 100 },
    });
    const ids = [...start],
      counts = { [a]: 0, [b]: 0 };
    for (let i = 0; i < 16; i++) {
      const [x, y] = await Promise.all([a, b].map(async (id) => ({ id, own: await score([...ids, id]) })));
      const adjusted = (t) => t.own - frequency * counts[t.id] - presence * (counts[t.id] > 0);
      const best = adjusted(x) >= adjusted(y) ? x : y;
      if (Math.abs(adjusted(x) - adjusted(y)) < 1e-3) break; // rounding decides
      assert.ok(
        Math.abs(l.token_logprobs[i] - best.own) < 1e-3,
        `${frequency}, ${presence}: token ${i} is not ${best.id}`,
      );
      ids.push(best.id);
      counts[best.id]++;
    }
    used.add(ids.slice(start.length).join());
    if (frequency === 2) assert.ok(counts[a] > 1 && counts[b] > 1, "a high penalty makes them take turns");
  }
  assert.ok(used.size > 2);
});

test("a null prompt is an empty prompt", async () => {
  const a = await ask({ prompt: null, temperature: 0 }),
    b = await ask({ prompt: "", temperature: 0 });
  assert.deepEqual([a.choices, a.usage.prompt_tokens], [b.choices, b.usage.prompt_tokens]);
});

test("what is wrong with several prompts is said", async () => {
  for (const [body, message] of [
    [{ prompt: ["a", 1] }, /item 1 is an integer/],
    [{ prompt: [[1], [2], "a"] }, /item 2 is a string/],
    [{ prompt: [true] }, /an array of strings, .* but got a boolean/],
    [{ prompt: ["a", "b", "c"], n: 64 }, /at most 2 texts with 64 answers to each/],
    [{ prompt: ["a", "b"], n: 128 }, /at most 1 text with 128 answers to each/],
    [{ prompt: Array(129).fill("a") }, /at most 128 texts, but got 129/],
  ]) {
    const response = await post(server, "/v1/completions", { model: modelName, ...body });
    const { error } = await response.json();
    assert.deepEqual([response.status, error.param], [400, "prompt"]);
    assert.match(error.message, message);
  }
});

test("suffix: the model fills in the middle", async () => {
  const encode = async (text) =>
    (await ask({ model: "fim", prompt: text, add_special_tokens: false }, "/tokenize")).tokens;
  const capabilities = async (id) => (await (await fetch(`${server.url}/v1/models/${id}`)).json()).capabilities;
  assert.deepEqual([(await capabilities("fim")).fim, (await capabilities(modelName)).fim], [true, false]);
  const template = async (model) => (await (await post(server, "/api/show", { model })).json()).template;
  assert.match(await template("fim"), /\{# \.Suffix: .* #\}$/, "Ollama's clients look for it");
  assert.ok(!(await template(modelName)).includes(".Suffix"));
  const prompt = "Once there was a dog",
    suffix = " and they were happy.";
  const params = { model: "fim", max_tokens: 20, temperature: 0, ignore_eos: true };
  const answer = await ask({ ...params, prompt, suffix });
  // The same by hand: the suffix without this vocabulary's space prefix.
  const sign = await encode("\u263a"),
    inner = (await encode("\u263a" + suffix)).slice(sign.length);
  const bos = (await ask({ model: "fim", prompt: "" }, "/tokenize")).tokens;
  const ids = [...bos, fim.prefix, ...(await encode(prompt)), fim.suffix, ...inner, fim.middle];
  const byHand = await ask({ ...params, prompt: ids });
  assert.equal(answer.usage.prompt_tokens, ids.length);
  assert.equal(answer.choices[0].text, byHand.choices[0].text);
  const plain = await ask({ ...params, prompt });
  assert.deepEqual(
    (await ask({ ...params, prompt, suffix: "" })).choices,
    plain.choices,
    "an empty suffix asks for nothing",
  );
  const both = await ask({ ...params, prompt: [prompt, "x"], suffix, logprobs: 1 });
  assert.equal(both.choices[0].text, answer.choices[0].text);
  let text = "";
  for await (const event of sse(await post(server, "/v1/completions", { ...params, prompt, suffix, stream: true })))
    if (event.choices) text += event.choices[0].text;
  assert.equal(text, answer.choices[0].text);
  const options = { temperature: 0, num_predict: 20, top_k: 1 };
  const ollama = await ask({ model: "fim", prompt, suffix, stream: false, options }, "/api/generate");
  assert.equal(ollama.prompt_eval_count, ids.length);
  assert.ok(ollama.eval_count > 0 && answer.choices[0].text.startsWith(ollama.response), ollama.response);
  await refused({ suffix }, "suffix", /fill-in-the-middle/);
  await refused({ model: "fim", suffix, echo: true }, "echo", /suffix/);
  await refused({ model: "fim", suffix, prompt: [1, 2] }, "prompt", /text/);
});
