// llama.cpp's own routes: /completion, /infill, /props, /slots, /apply-template, /embedding, in the forms that its clients
// read; and routes without /v1.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import Ajv2020 from "ajv/dist/2020.js";
import { addKeys } from "./gguf.mjs";
import { modelFile, modelName, post, sse, startServer, user } from "./server.mjs";

let server, folder;
const fim = { prefix: 1000, suffix: 1001, middle: 1002, repository: 1003, file: 1004 };
before(async () => {
  folder = mkdtempSync(join(tmpdir(), "inferd-llamacpp-"));
  const file = join(folder, "fim.gguf"),
    plain = join(folder, "plain.gguf");
  const three = {
    "tokenizer.ggml.fim_pre_token_id": fim.prefix,
    "tokenizer.ggml.fim_suf_token_id": fim.suffix,
    "tokenizer.ggml.fim_mid_token_id": fim.middle,
  };
  addKeys(modelFile, plain, three);
  addKeys(modelFile, file, {
    ...three,
    "tokenizer.ggml.fim_rep_token_id": fim.repository,
    "tokenizer.ggml.fim_sep_token_id": fim.file,
  });
  server = await startServer(
    ["--max-sequences", "8", "--model-sampling", "off"],
    [
      { file: modelFile, name: modelName },
      { file, name: "fim" },
      { file: plain, name: "fim-plain" },
    ],
  );
});
after(async () => {
  await server.stop();
  rmSync(folder, { recursive: true });
});

async function ask(path, body) {
  const response = await post(server, path, { model: modelName, ...body });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return JSON.parse(text);
}
async function refused(path, body, param, words, status = 400) {
  const response = await post(server, path, { model: modelName, ...body });
  const { error } = await response.json();
  assert.equal(response.status, status);
  assert.equal(error.code, status, "a number, as in llama.cpp");
  assert.equal(error.param, param);
  assert.match(error.message, words);
  return error;
}
const complete = (body) => ask("/completion", { prompt: "Once upon a time", temperature: 0, n_predict: 12, ...body });
const encode = async (content, model = modelName) =>
  (await ask("/tokenize", { content, model, parse_special: false })).tokens;

test("an answer has the members of llama.cpp's", async () => {
  const answer = await complete({ return_tokens: true, stop: ["zzz"], seed: 7, logit_bias: [[300, -1]] });
  const openai = await ask("/v1/completions", {
    prompt: "Once upon a time",
    temperature: 0,
    max_tokens: 12,
    top_k: 40,
    logit_bias: { 300: -1 },
  });
  assert.equal(answer.content, openai.choices[0].text);
  assert.equal(answer.tokens.length, 12);
  assert.equal((await ask("/detokenize", { tokens: answer.tokens })).content.trim(), answer.content.trim());
  const { tokens_predicted, tokens_evaluated, tokens_cached, timings, generation_settings: settings } = answer;
  assert.deepEqual([tokens_predicted, tokens_evaluated, tokens_cached], [12, 5, 17]);
  assert.deepEqual(
    [answer.index, answer.stop, answer.stop_type, answer.stopping_word, answer.truncated, answer.has_new_line],
    [0, true, "limit", "", false, false],
  );
  assert.equal(answer.model, modelName);
  assert.match(answer.prompt, /Once upon a time$/);
  assert.equal(timings.prompt_n + timings.cache_n, 5);
  assert.equal(timings.predicted_n, 12);
  for (const name of ["prompt", "predicted"])
    for (const unit of ["ms", "per_token_ms", "per_second"]) assert.equal(typeof timings[`${name}_${unit}`], "number");
  const { seed, temperature, n_predict, stop, logit_bias, top_k, top_p, min_p } = settings;
  assert.deepEqual({ seed, temperature, n_predict, stop }, { seed: 7, temperature: 0, n_predict: 12, stop: ["zzz"] });
  assert.deepEqual(logit_bias, [{ token: 300, bias: -1 }]);
  assert.deepEqual([top_k, top_p, min_p], [40, 0.95, 0.05], "llama.cpp's defaults");
  assert.deepEqual((await complete({})).tokens, []);
  assert.equal((await complete({ seed: -1 })).generation_settings.seed, 4294967295);
  assert.deepEqual(
    (await ask("/completions", { prompt: "Once upon a time", temperature: 0, n_predict: 12 })).stop,
    true,
  );
});

test("why an answer ended", async () => {
  const all = (await complete({ n_predict: 40 })).content;
  const word = all.slice(10, 15);
  const at = await complete({ n_predict: 40, stop: [word] });
  assert.deepEqual([at.stop_type, at.stopping_word, at.content], ["word", word, all.slice(0, all.indexOf(word))]);
  const eos = await complete({ prompt: "<|user|>Say hello.<|end|><|assistant|>", n_predict: -1 });
  assert.equal(eos.stop_type, "eos");
  const none = await complete({ n_predict: 0 });
  assert.deepEqual([none.content, none.tokens_predicted, none.stop_type], ["", 0, "limit"]);
  const warm = await complete({ prompt: "A prompt that is computed for the cache only. ".repeat(8), n_predict: 0 });
  const next = await complete({ prompt: "A prompt that is computed for the cache only. ".repeat(8) });
  assert.ok(warm.timings.prompt_n > 32 && next.timings.cache_n > 16, "n_predict 0 warms the cache");
});

test("a stream's events, and its last one", async () => {
  for (const body of [{}, { n_probs: 2 }, { stop: ["was"] }, { n_cmpl: 2, temperature: 1, seed: 3 }]) {
    const events = [];
    for await (const event of sse(
      await post(server, "/completion", {
        model: modelName,
        prompt: "Once upon a time",
        temperature: 0,
        n_predict: 12,
        stream: true,
        timings_per_token: true,
        ...body,
      }),
    ))
      events.push(event);
    const whole = [await complete(body)].flat();
    for (const answer of whole) {
      const own = events.filter((e) => e.index === answer.index),
        last = own.pop();
      assert.equal(own.map((e) => e.content).join("") + last.content, answer.content);
      assert.ok(own.every((e) => e.stop === false && e.tokens.length && e.timings.predicted_n));
      assert.deepEqual([last.stop, last.stop_type], [true, answer.stop_type]);
      assert.equal(last.tokens_predicted, answer.tokens_predicted);
      assert.ok(last.generation_settings.stream);
      if (!body.n_probs) continue;
      assert.deepEqual(
        own.flatMap((e) => e.completion_probabilities),
        answer.completion_probabilities,
      );
      assert.equal(answer.completion_probabilities.length, 12);
      assert.equal(answer.completion_probabilities[0].top_logprobs.length, 2);
      assert.equal(typeof answer.completion_probabilities[0].id, "number");
    }
  }
});

test("prompts: texts, ids, both mixed, several", async () => {
  const ids = (await ask("/tokenize", { content: "Once upon a time", add_special: true })).tokens;
  const { content } = await complete({});
  assert.equal((await complete({ prompt: ids })).content, content);
  assert.equal((await complete({ prompt: { prompt_string: "Once upon a time" } })).content, content);
  const mixed = await complete({ prompt: [ids[0], "Once upon", ...ids.slice(3)] });
  assert.ok(mixed.tokens_evaluated >= ids.length);
  const several = await complete({ prompt: ["Once upon a time", ids, "The dog"] });
  assert.deepEqual(
    several.map((a) => a.index),
    [0, 1, 2],
  );
  assert.deepEqual([several[0].content, several[1].content], [content, content]);
  assert.equal((await complete({ prompt: ["Once upon a time"] })).length, 1);
  await refused("/completion", { prompt: [] }, "prompt", /empty/);
  await refused("/completion", { prompt: [1, 1e9] }, "prompt", /token ids/);
  await refused("/completion", { prompt: { prompt_string: "x", multimodal_data: ["AA=="] } }, "prompt", /images/);
  await refused("/completion", {}, "prompt", /Missing/);
  const error = await refused("/completion", { prompt: "dog ".repeat(9000) }, undefined, /tokens/);
  assert.equal(error.type, "exceed_context_size_error");
  assert.ok(error.n_prompt_tokens > error.n_ctx && error.n_ctx > 0);
});

test("json_schema and grammar hold", async () => {
  const schema = {
    type: "object",
    properties: { name: { type: "string", maxLength: 8 }, age: { type: "integer", minimum: 0, maximum: 99 } },
    required: ["name", "age"],
    additionalProperties: false,
  };
  const valid = new Ajv2020().compile(schema);
  for (const seed of [1, 2, 3]) {
    const answer = await complete({ json_schema: schema, temperature: 1, seed, n_predict: 100 });
    assert.ok(valid(JSON.parse(answer.content)), answer.content);
    assert.deepEqual(answer.generation_settings.json_schema, schema);
  }
  const grammar = 'root ::= "yes" | "no"';
  const word = await complete({ grammar });
  assert.match(word.content, /^(yes|no)$/);
  assert.equal(word.generation_settings.grammar, grammar);
  const infill = await ask("/infill", { model: "fim", input_prefix: "a", input_suffix: "b", grammar, n_predict: 9 });
  assert.match(infill.content, /^(yes|no)$/);
  await refused("/completion", { prompt: "x", grammar: "root ::= (" }, "grammar", /grammar/);
  await refused("/completion", { prompt: "x", json_schema: { type: "nothing" } }, "json_schema", /json_schema/);
});

test("response_fields chooses members, also of members", async () => {
  const answer = await complete({
    response_fields: ["content", "timings/prompt_n", "a/b", "generation_settings/top_k"],
  });
  assert.deepEqual(Object.keys(answer), ["content", "timings/prompt_n", "generation_settings/top_k"]);
  assert.equal(answer["generation_settings/top_k"], 40);
  assert.deepEqual(await complete({ response_fields: [""], n_predict: 0 }), {});
  assert.equal((await complete({ response_fields: [] })).stop, true);
  await refused("/completion", { prompt: "x", response_fields: [1] }, "response_fields[0]", /string/);
});

test("samplers, biases and the ends of lines", async () => {
  const named = async (samplers) => {
    const response = await post(server, "/completion", {
      model: modelName,
      prompt: "x",
      n_predict: 1,
      samplers,
      top_k: 7,
    });
    const { generation_settings: s } = await response.json();
    return [response.headers.get("x-inferd-ignored-fields"), s.top_k, s.top_p, s.min_p, s.temperature];
  };
  assert.deepEqual(await named(["top_k", "top_p", "temperature"]), [null, 7, 0.95, 0, 0.8]);
  assert.deepEqual(await named([]), [null, 0, 1, 0, 1]);
  assert.deepEqual(await named("kpmt"), [null, 7, 0.95, 0.05, 0.8]);
  assert.deepEqual(await named(["top_k", "infill"]), ["samplers", 7, 1, 0.2, 1]);
  assert.deepEqual(await named(["no_such"]), ["samplers", 0, 1, 0, 1]);
  await refused("/completion", { prompt: "x", samplers: [1] }, "samplers[0]", /string/);
  const plain = (await complete({ return_tokens: true })).tokens;
  for (const logit_bias of [[[plain[0], false]], { [plain[0]]: false }, [[plain[0], -100]]])
    assert.notEqual((await complete({ return_tokens: true, logit_bias })).tokens[0], plain[0]);
  const forced = await complete({ return_tokens: true, n_predict: 4, logit_bias: [["dog", 100]] });
  assert.ok(forced.tokens.every((id) => !plain.includes(id) || id === forced.tokens[0]));
  await refused("/completion", { prompt: "x", logit_bias: [[1]] }, "logit_bias[0]", /pairs/);
  await refused("/completion", { prompt: "x", logit_bias: [[1, 1000]] }, "logit_bias[0]", /100/);
  await refused("/completion", { prompt: "x", logit_bias: [[1e9, 1]] }, "logit_bias[0]", /id/);
  // A text that the grammar dictates: what is indented less than n_indent is cut off.
  const grammar = 'root ::= "one\\n    two\\n  three\\n"';
  const indented = (n_indent) => complete({ grammar, n_predict: 40, n_indent });
  const [none, two, four] = [await indented(0), await indented(2), await indented(3)];
  assert.deepEqual([none.content, none.stop_type], ["one\n    two\n  three\n", "eos"]);
  assert.equal(two.content, none.content);
  assert.deepEqual([four.content, four.stop_type, four.has_new_line], ["one\n    two\n  ", "limit", true]);
  const late = await complete({
    grammar: 'root ::= ("a" | "b") [a-z ]{200} "\\n" [a-z]{50}',
    n_predict: 400,
    t_max_predict_ms: 1,
  });
  assert.deepEqual([late.stop_type, late.content.at(-1)], ["limit", "\n"]);
});

// The ids of a prompt, made visible by the answer's "prompt".
const shown = async (ids, model) => (await ask("/detokenize", { tokens: ids, model })).content;

test("infill: the parts of the prompt in the model's order", async () => {
  const model = "fim-plain",
    params = { model, n_predict: 12, temperature: 0, ignore_eos: true };
  const prefix = "Once there was a dog",
    suffix = " and they were happy.",
    start = " that";
  const sign = await encode("\u263a", model);
  const inner = async (text) => (await encode("\u263a" + text, model)).slice(sign.length);
  const bos = (await ask("/tokenize", { content: "", add_special: true, model })).tokens;
  const tail = [fim.suffix, ...(await inner(suffix)), fim.middle];
  const ids = [...bos, fim.prefix, ...(await encode(prefix, model)), ...(await inner(start)), ...tail];
  const answer = await ask("/infill", { ...params, input_prefix: prefix, input_suffix: suffix, prompt: start });
  assert.equal(answer.tokens_evaluated, ids.length);
  assert.equal(answer.prompt, await shown(ids, model));
  assert.equal(answer.content, (await ask("/completion", { ...params, prompt: ids })).content);
  const openai = await ask("/v1/completions", {
    model,
    prompt: prefix,
    suffix,
    max_tokens: 12,
    temperature: 0,
    ignore_eos: true,
  });
  const bare = await ask("/infill", { ...params, input_prefix: prefix, input_suffix: suffix });
  assert.equal(bare.content, openai.choices[0].text);
  await refused("/infill", { input_prefix: "a", input_suffix: "b" }, "input_prefix", /not supported by this model/);
  await refused("/infill", { model, input_prefix: "a" }, "input_suffix", /Missing/);
  await refused(
    "/infill",
    { model, input_prefix: "", input_suffix: "", input_extra: [{}] },
    "input_extra[0].text",
    /Missing/,
  );
  await refused("/infill", { model, input_prefix: "", input_suffix: "", input_extra: [1] }, "input_extra[0]", /object/);
});

test("infill: other files come first, and what does not fit is left out", async () => {
  const params = { n_predict: 4, temperature: 0, input_prefix: "the start", input_suffix: "the end" };
  const extra = [
    { filename: "a.c", text: "first file" },
    { filename: "b.c", text: "second file" },
  ];
  const marks = [];
  for (const model of ["fim", "fim-plain"]) {
    const { prompt } = await ask("/infill", { ...params, model, input_extra: extra });
    assert.ok(prompt.indexOf("a.c") < prompt.indexOf("first file"), prompt);
    assert.ok(prompt.indexOf("first file") < prompt.indexOf("b.c"), prompt);
    assert.ok(prompt.indexOf("second file") < prompt.indexOf("the start"), prompt);
    marks.push(prompt.includes(await shown([fim.repository], model)));
  }
  assert.deepEqual(marks, [true, false], "names follow the model's tokens, if it has them");
  const long = (n) => "word ".repeat(n);
  const [first, second] = await Promise.all(
    [
      { input_extra: [{ filename: "old.c", text: long(8500) }, ...extra] },
      { input_prefix: "lost " + long(9000) + "near", input_suffix: "behind" + long(9000) + " lost" },
    ].map((body) => ask("/infill", { ...params, model: "fim", ...body })),
  );
  assert.ok(!first.prompt.includes("old.c") && first.prompt.includes("first file"));
  assert.ok(!second.prompt.includes("lost") && second.prompt.includes("near") && second.prompt.includes("behind"));
  assert.ok(second.tokens_evaluated < 8192 && second.tokens_evaluated > 8000);
});

test("props tell what a client needs to know", async () => {
  for (const path of ["/props", "/v1/props"]) {
    const props = await (await fetch(`${server.url}${path}?model=${modelName}&autoload=false`)).json();
    assert.equal(props.default_generation_settings.n_ctx, 8192);
    assert.equal(props.default_generation_settings.params.top_k, 40);
    assert.equal(props.total_slots, 8);
    assert.match(props.chat_template, /message\['role'\]/);
    assert.deepEqual([props.bos_token, props.eos_token], ["<s>", "<|end|>"]);
    assert.deepEqual(props.modalities, { vision: false, audio: false });
    assert.equal(props.model_path, modelName);
  }
  const missing = await fetch(`${server.url}/props?model=none`);
  assert.deepEqual([missing.status, (await missing.json()).error.type], [404, "not_found_error"]);
});

test("slots are the engine's running sequences", async () => {
  const slots = async () => (await fetch(`${server.url}/slots?model=${modelName}`)).json();
  const abort = new AbortController();
  const body = { model: modelName, prompt: "Once upon a time", n_predict: 6000, ignore_eos: true, stream: true };
  const response = await post(server, "/completion", body, { signal: abort.signal });
  const reader = response.body.getReader();
  await reader.read();
  let busy;
  for (let i = 0; i < 200 && !busy?.next_token.n_decoded; i++) busy = (await slots()).find((s) => s.is_processing);
  assert.equal((await slots()).length, 8);
  assert.deepEqual([busy.n_ctx, busy.n_prompt_tokens, busy.n_prompt_tokens_processed], [8192, 5, 5]);
  assert.ok(busy.id_task > 0 && busy.next_token.n_decoded > 0);
  assert.equal(busy.next_token.n_remain, 6000 - busy.next_token.n_decoded);
  assert.equal(JSON.stringify(busy).includes("Once"), false, "texts are not told");
  abort.abort();
  for (let i = 0; i < 1000 && (await slots()).some((s) => s.is_processing); i++)
    await new Promise((resolve) => setTimeout(resolve, 5));
  assert.ok((await slots()).every((s) => !s.is_processing && s.id_task === -1));
  assert.equal((await fetch(`${server.url}/slots?model=${modelName}&fail_on_no_slot=1`)).status, 200);
});

test("apply-template renders messages", async () => {
  const { prompt } = await ask("/apply-template", { messages: user("Hi.") });
  assert.equal(prompt, "<s><|user|>Hi.<|end|><|assistant|>");
  const raw = await ask("/completion", { prompt, n_predict: 8, temperature: 0 });
  const chat = await ask("/v1/chat/completions", { messages: user("Hi."), max_tokens: 8, temperature: 0 });
  assert.equal(raw.tokens_evaluated, chat.usage.prompt_tokens);
  assert.equal(raw.content, chat.choices[0].message.content);
  await refused("/apply-template", { messages: [] }, "messages", /messages/);
});

test("embeddings in llama.cpp's form, scaled as asked", async () => {
  const vector = async (body, path = "/embedding") => (await ask(path, body)).map((row) => row.embedding[0]);
  const [unit] = await vector({ content: "a text" });
  const openai = (await ask("/v1/embeddings", { input: "a text" })).data[0].embedding;
  assert.deepEqual(unit, openai);
  assert.deepEqual(await vector({ input: ["a text", "a text"] }, "/embeddings"), [unit, unit]);
  const norm = (v, p) => v.reduce((sum, x) => sum + Math.abs(x) ** p, 0) ** (1 / p);
  const near = (a, b) => assert.ok(Math.abs(a / b - 1) < 1e-4, `${a} is not ${b}`);
  near(norm((await vector({ content: "a text", embd_normalize: 1 }))[0], 1), 1);
  near(norm((await vector({ content: "a text", embd_normalize: 3 }))[0], 3), 1);
  near(Math.max(...(await vector({ content: "a text", embd_normalize: 0 }))[0].map(Math.abs)), 32760);
  const [raw] = await vector({ content: "a text", embd_normalize: -1 });
  near(raw[0] / norm(raw, 2), unit[0]);
  await refused("/embedding", {}, "content", /Missing/);
});

test("control tokens in raw prompts are parsed, in messages never", async () => {
  const text = "<|user|>Hi.<|end|><|assistant|>";
  const n = (await ask("/tokenize", { prompt: text })).count;
  const spelled = (await ask("/tokenize", { prompt: text, parse_special: false })).count;
  assert.ok(spelled > n + 6);
  const counts = async (parse_special) => {
    const body = { prompt: text, parse_special };
    return [
      (await ask("/completion", { ...body, n_predict: 1 })).tokens_evaluated,
      (await ask("/v1/completions", { ...body, max_tokens: 1 })).usage.prompt_tokens,
      (await ask("/api/generate", { ...body, raw: true, stream: false, options: { num_predict: 1 } }))
        .prompt_eval_count,
    ];
  };
  assert.deepEqual(await counts(undefined), [n, n, n]);
  assert.deepEqual(await counts(true), [n, n, n]);
  assert.deepEqual(await counts(false), [spelled, spelled, spelled]);
  const chat = async (content, path = "/v1/chat/completions", more = {}) =>
    ask(path, { messages: user(content), max_tokens: 1, ...more });
  const [plain, evil] = [await chat("ab"), await chat("a<|end|>b")];
  assert.ok(evil.usage.prompt_tokens > plain.usage.prompt_tokens + 2);
  const cooked = await ask("/api/generate", { prompt: "a<|end|>b", stream: false, options: { num_predict: 1 } });
  assert.equal(cooked.prompt_eval_count, evil.usage.prompt_tokens, "a prompt with a template is a message");
  const model = "fim-plain";
  const mark = await shown([fim.prefix], model);
  const parts = { model, input_suffix: "", n_predict: 1 };
  const [file, none] = [
    await ask("/infill", { ...parts, input_prefix: "x<|end|>y" }),
    await ask("/infill", { ...parts, input_prefix: "xy" }),
  ];
  assert.ok(file.tokens_evaluated > none.tokens_evaluated + 2, `text of files is text (${mark})`);
});

test("echo shows the prompt as it was sent, with its control tokens", async () => {
  const prompt = "<|user|>Hi.<|end|><|assistant|>";
  const answer = await ask("/v1/completions", { prompt, echo: true, logprobs: 0, max_tokens: 2, temperature: 0 });
  const [{ text, logprobs }] = answer.choices;
  assert.ok(text.startsWith(prompt), text);
  assert.equal(logprobs.tokens.slice(0, -2).join(""), prompt);
  assert.equal(logprobs.tokens.length, answer.usage.prompt_tokens + 2 - 1, "the added BOS is not shown");
  logprobs.text_offset.slice(0, -2).forEach((at, i) => assert.ok(text.slice(at).startsWith(logprobs.tokens[i])));
  const written = await ask("/v1/completions", { prompt: "<s>" + prompt, echo: true, max_tokens: 1 });
  assert.equal(written.usage.prompt_tokens, answer.usage.prompt_tokens, "BOS is not doubled");
  assert.ok(written.choices[0].text.startsWith("<s>" + prompt));
});

test("routes without /v1", async () => {
  const chat = await ask("/chat/completions", { messages: user("Hi."), max_tokens: 2 });
  assert.equal(chat.object, "chat.completion");
  assert.equal((await ask("/responses", { input: "Hi.", max_output_tokens: 2, store: false })).object, "response");
  assert.equal((await ask("/messages", { messages: user("Hi."), max_tokens: 2 })).type, "message");
  assert.ok((await ask("/messages/count_tokens", { messages: user("Hi.") })).input_tokens > 0);
  const get = async (path) => (await fetch(server.url + path)).json();
  assert.deepEqual(await get("/models"), await get("/v1/models"));
  assert.equal((await get(`/models/${modelName}`)).id, modelName);
  assert.equal((await get("/v1/health")).status, "ok");
  const { paths } = await get("/openapi.json");
  assert.match(paths["/v1/chat/completions"].post.description, /Also at \/chat\/completions\./);
  const stored = await ask("/responses", { input: "Hi.", max_output_tokens: 2 });
  assert.equal((await get(`/responses/${stored.id}`)).id, stored.id);
  for (const path of ["/v1/v1/models", "/v1/completion", "/v1/infill", "/v2/models"])
    assert.equal((await fetch(server.url + path)).status, 404, path);
  assert.equal((await fetch(server.url + "/chat/completions/none/messages")).status, 404);
});

test("n_predict 0 in a chat only warms the cache", async () => {
  const messages = user("Tell me a long story about a dog and its friends. ".repeat(6));
  const warm = await ask("/v1/chat/completions", { messages, samplers: [], n_predict: 0, cache_prompt: true });
  assert.deepEqual([warm.usage.completion_tokens, warm.choices[0].finish_reason], [0, "length"]);
  const next = await ask("/v1/chat/completions", { messages, max_tokens: 2 });
  assert.ok(next.usage.prompt_tokens_details.cached_tokens > 32);
});
