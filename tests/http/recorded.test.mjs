// What clients send by default, as their sources say (tests/data/clients): each body is answered with 200 in the form that
// the client reads, and what is ignored of it is named.
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { addKeys } from "./gguf.mjs";
import { ignoredNames, listedNames } from "./ignored_fields.mjs";
import { modelFile, modelName, post, sse, startServer } from "./server.mjs";

const folder = "tests/data/clients";
const files = readdirSync(folder).filter((name) => name.endsWith(".json"));

// One model is served: a body without a model means it. "GPT-4" is a name that a client has built in.
// It has tokens to fill in the middle.
let server, folderOfModel;
before(async () => {
  folderOfModel = mkdtempSync(join(tmpdir(), "inferd-recorded-"));
  const file = join(folderOfModel, "fim.gguf");
  addKeys(modelFile, file, {
    "tokenizer.ggml.fim_pre_token_id": 1000,
    "tokenizer.ggml.fim_suf_token_id": 1001,
    "tokenizer.ggml.fim_mid_token_id": 1002,
  });
  server = await startServer(["--model-aliases", "GPT-4=inferd-demo"], [{ file, name: modelName }]);
});
after(async () => {
  await server.stop();
  rmSync(folderOfModel, { recursive: true });
});

// What llama.vscode reads of an answer of llama.cpp's form; llama.vim names the members it wants.
function checkLlama(answer, body) {
  if (body.response_fields) {
    const wanted = body.response_fields.filter(Boolean);
    assert.deepEqual(Object.keys(answer), wanted);
    for (const name of wanted.slice(1, 9)) assert.equal(typeof answer[name], "number", name);
    return;
  }
  assert.equal(typeof answer.content, "string");
  assert.ok(answer.timings.predicted_ms >= 0 && answer.timings.prompt_n >= 0 && answer.tokens_cached > 0);
  assert.equal(answer.truncated, false);
  if (body.n_predict === 0) assert.equal(answer.tokens_predicted, 0);
}
const llama = {
  whole(answer, body) {
    const many = body.n_cmpl > 1 || Array.isArray(body.prompt);
    assert.equal(Array.isArray(answer), many);
    if (many) assert.equal(answer.length, body.n_cmpl ?? body.prompt.length);
    for (const one of [answer].flat()) checkLlama(one, body);
  },
  stream(events, body) {
    checkLlama(events.at(-1), body);
    events.forEach((e, i) => assert.equal(e.stop, i === events.length - 1));
    assert.ok(events.every((e) => typeof e.content === "string"));
  },
};

// A schema that allows other members may have a model write them until the context is full.
function checkFormat(text, reason, { format }) {
  if (reason === "length") return;
  const names = Object.keys(JSON.parse(text));
  for (const name of format.required) assert.ok(names.includes(name), text);
}

// Answers by path; `body` is what was sent.
const checks = {
  "/v1/chat/completions": {
    whole(answer, body) {
      const [{ message, finish_reason, logprobs }] = answer.choices;
      assert.equal(message.role, "assistant");
      assert.ok(typeof message.content === "string" || message.tool_calls.length);
      assert.match(finish_reason, /^(stop|length|tool_calls)$/);
      if (body.n_predict === 0) assert.equal(answer.usage.completion_tokens, 0, "a warm-up");
      assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
      if (body.logprobs) for (const one of logprobs.content) assert.equal(one.top_logprobs.length, body.top_logprobs);
    },
    stream(events, body) {
      assert.equal(events.pop(), "[DONE]");
      const usage = body.stream_options?.include_usage ? events.pop().usage : { completion_tokens: 1 };
      assert.ok(usage.completion_tokens > 0);
      assert.equal(events[0].choices[0].delta.role, "assistant");
      assert.match(events.at(-1).choices[0].finish_reason, /^(stop|length|tool_calls)$/);
    },
  },
  "/v1/completions": {
    // lm-eval sums token_logprobs of a choice from the context's length on, and compares with the best of top_logprobs.
    whole(answer, body) {
      const prompts = Array.isArray(body.prompt) ? body.prompt : [body.prompt];
      assert.deepEqual(
        answer.choices.map((c) => c.index),
        prompts.map((_, i) => i),
      );
      for (const { text, logprobs, index } of answer.choices) {
        assert.equal(typeof text, "string");
        if (!body.echo) continue;
        const { tokens, token_logprobs, top_logprobs } = logprobs;
        if (Array.isArray(prompts[index])) {
          assert.equal(tokens.length, prompts[index].length + body.max_tokens);
          assert.equal(token_logprobs[0], null);
        } else assert.ok(text.startsWith(prompts[index]));
        assert.equal(top_logprobs.length, token_logprobs.length);
        token_logprobs.slice(1).forEach((one, i) => assert.ok(one <= Math.max(...Object.values(top_logprobs[i + 1]))));
      }
    },
    stream(events, body) {
      assert.equal(events.pop(), "[DONE]");
      if (body.stream_options) assert.ok(events.pop().usage.completion_tokens > 0);
      assert.ok(events.every((e) => typeof e.choices[0].text === "string"));
    },
  },
  "/v1/embeddings": {
    whole(answer, body) {
      assert.equal(answer.data.length, [body.input].flat().length);
      const kind = body.encoding_format === "base64" ? "string" : "object";
      assert.ok(answer.data.every((d) => typeof d.embedding === kind && d.embedding.length > 8));
    },
  },
  "/api/chat": {
    whole(answer, body) {
      assert.ok(answer.done && answer.message.role === "assistant");
      if (body.format) checkFormat(answer.message.content, answer.done_reason, body);
    },
    stream(lines, body) {
      assert.equal(lines.at(-1).done, true);
      const text = lines.map((line) => line.message.content).join("");
      if (body.format) checkFormat(text, lines.at(-1).done_reason, body);
      assert.equal(lines[0].message.role, "assistant");
    },
  },
  "/v1/responses": { whole: ({ status, output }) => assert.ok(/^(in)?complete/.test(status) && output.length) },
  "/v1/messages": { whole: ({ type, usage }) => assert.ok(type === "message" && usage.output_tokens > 0) },
  "/api/generate": {
    whole: (answer) => assert.ok(answer.done && typeof answer.response === "string"),
    stream(lines) {
      assert.equal(lines.at(-1).done, true);
      assert.ok(lines.every((line) => typeof line.response === "string"));
    },
  },
  "/api/embed": { whole: (answer, body) => assert.equal(answer.embeddings.length, body.input.length) },
  "/api/show": { whole: (answer) => assert.ok(answer.capabilities.includes("insert") && answer.details.family) },
  "/api/tags": { whole: (answer) => assert.equal(answer.models[0].model, modelName) },
  "/api/ps": { whole: (answer) => assert.ok(answer.models[0].expires_at) },
  "/api/version": { whole: (answer) => assert.match(answer.version, /^\d+\.\d+\.\d+$/) },
  "/completion": llama,
  "/completions": llama,
  "/infill": llama,
  "/embedding": { whole: (answer) => assert.ok(answer[0].embedding[0].length > 8) },
  "/apply-template": { whole: (answer) => assert.match(answer.prompt, /<\|assistant\|>$/) },
  "/tokenize": { whole: (answer) => assert.ok(answer.tokens.length) },
  "/detokenize": { whole: (answer) => assert.equal(typeof answer.content, "string") },
  "/props": {
    whole({ default_generation_settings, total_slots, chat_template, modalities, model_path }) {
      assert.ok(default_generation_settings.n_ctx > 0 && default_generation_settings.params.top_k >= 0);
      assert.ok(total_slots > 0 && chat_template && model_path);
      assert.deepEqual(modalities, { vision: false, audio: false });
    },
  },
  "/slots": { whole: (slots) => assert.ok(slots.length && slots.every((slot) => slot.n_ctx > 0)) },
  "/v1/models": { whole: ({ data }) => assert.ok(data[0].meta.n_ctx > 0) },
};

async function read(response, path) {
  if (path.startsWith("/api/"))
    return (await response.text())
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
  const events = [];
  for await (const event of sse(response)) events.push(event);
  return events;
}

for (const file of files) {
  const { client, source, requests } = JSON.parse(readFileSync(`${folder}/${file}`, "utf8"));
  test(client, async (t) => {
    assert.ok(source.length && requests.length);
    for (const { repository, file: path } of source) assert.ok(repository.includes("/") && path);
    assert.deepEqual(
      ignoredNames(requests.flatMap((r) => r.ignored)),
      listedNames(client),
      "its row of api/CLIENTS.md",
    );
    for (const { name, method, path, body, ignored } of requests)
      await t.test(name, async () => {
        const response = await (method === "GET" ? fetch(server.url + path) : post(server, path, body));
        assert.equal(response.status, 200, await response.clone().text());
        const named = response.headers.get("x-inferd-ignored-fields");
        assert.equal(named ?? "", ignored.join(", "));
        const { whole, stream } = checks[path];
        const streams = path.startsWith("/api/") ? stream && body?.stream !== false : body?.stream;
        if (streams) stream(await read(response, path), body);
        else whole(await response.json(), body);
      });
  });
}
