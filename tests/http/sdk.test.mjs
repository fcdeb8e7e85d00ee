// The official OpenAI SDK as a client.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { onlyLoopback } from "./loopback.mjs";
import { metrics, modelName, startServer, until, user } from "./server.mjs";

onlyLoopback();

let server, client;
before(async () => {
  server = await startServer();
  client = new OpenAI({ baseURL: server.url + "/v1", apiKey: "none", maxRetries: 0 });
});
after(() => server.stop());

test("lists and retrieves models", async () => {
  const ids = [];
  for await (const m of client.models.list()) {
    ids.push(m.id);
    assert.equal(m.object, "model");
    assert.equal(typeof m.created, "number");
  }
  assert.ok(ids.includes(modelName));
  assert.equal((await client.models.retrieve(modelName)).id, modelName);
  await assert.rejects(client.models.retrieve("nobody"), OpenAI.NotFoundError);
});

test("chats", async () => {
  const answer = await client.chat.completions.create({
    model: modelName,
    messages: user("Tell me a story about a fox."),
    temperature: 0,
  });
  assert.equal(answer.object, "chat.completion");
  assert.equal(answer.choices[0].message.role, "assistant");
  assert.match(answer.choices[0].message.content, /fox/i);
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
});

test("streams the same text as a whole answer", async () => {
  const params = { model: modelName, messages: user("Tell me a story about a small boat."), seed: 7, temperature: 0.8 };
  const whole = await client.chat.completions.create(params);
  const stream = await client.chat.completions.create({
    ...params,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = "",
    role,
    finish,
    usage,
    n = 0;
  for await (const chunk of stream) {
    n++;
    assert.equal(chunk.object, "chat.completion.chunk");
    role ??= chunk.choices[0]?.delta.role;
    text += chunk.choices[0]?.delta.content ?? "";
    finish ??= chunk.choices[0]?.finish_reason;
    usage = chunk.usage ?? usage;
  }
  assert.ok(n > 10, "it comes in pieces");
  assert.equal(role, "assistant");
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(finish, whole.choices[0].finish_reason);
  assert.deepEqual({ ...usage, prompt_tokens_details: null }, { ...whole.usage, prompt_tokens_details: null });
});

test("the stream helper collects a final message", async () => {
  const stream = client.chat.completions.stream({ model: modelName, messages: user("Hello!"), temperature: 0 });
  const message = await stream.finalMessage();
  assert.ok(message.content.length > 0);
});

test("aborting a stream cancels the request on the server", async () => {
  const stream = await client.chat.completions.create({
    model: modelName,
    messages: user("Tell me a long story."),
    stream: true,
    max_tokens: 6000,
    ignore_eos: true,
    seed: 1,
  });
  let n = 0;
  for await (const _ of stream) if (++n === 5) stream.controller.abort();
  await until(async () => {
    const m = await metrics(server);
    return m.get("inferd_sequences_running") === 0 && m.get("inferd_kv_blocks_free") === m.get("inferd_kv_blocks");
  }, "the aborted sequence's blocks are free");
});

test("completes a raw prompt and answers with n choices", async () => {
  const answer = await client.completions.create({
    model: modelName,
    prompt: "Once upon a time",
    max_tokens: 12,
    n: 3,
    seed: 5,
    temperature: 1,
  });
  assert.equal(answer.object, "text_completion");
  assert.deepEqual(
    answer.choices.map((c) => c.index),
    [0, 1, 2],
  );
  assert.ok(new Set(answer.choices.map((c) => c.text)).size > 1, "choices differ");
  assert.ok(answer.usage.completion_tokens <= 36);
});

test("log-probabilities", async () => {
  const answer = await client.chat.completions.create({
    model: modelName,
    messages: user("Hello!"),
    temperature: 0,
    logprobs: true,
    top_logprobs: 3,
    max_tokens: 5,
  });
  const content = answer.choices[0].logprobs.content;
  assert.ok(content.length > 0 && content.length <= 5);
  for (const token of content) {
    assert.equal(token.top_logprobs.length, 3);
    assert.ok(token.logprob <= 0);
    assert.equal(token.top_logprobs[0].token, token.token, "greedy takes the best one");
    const bytes = Buffer.from(token.bytes);
    assert.ok(bytes.length > 0);
    assert.ok(token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob);
  }
  const joined = Buffer.concat(content.map((t) => Buffer.from(t.bytes))).toString();
  assert.equal(joined, answer.choices[0].message.content);
});

test("a bad value is a BadRequestError that names the field", async () => {
  await assert.rejects(
    client.chat.completions.create({ model: modelName, messages: user("x"), temperature: 9 }),
    (e) => e instanceof OpenAI.BadRequestError && e.param === "temperature" && e.type === "invalid_request_error",
  );
  await assert.rejects(
    client.chat.completions.create({ model: "nobody", messages: user("x") }),
    (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found",
  );
});

const person = z.object({
  name: z.string().max(12),
  age: z.number().int().min(1).max(99),
  likes: z.array(z.enum(["tea", "cake"])).max(2),
});
const place = z.object({ city: z.string().max(12), unit: z.enum(["C", "F"]) });
const ask = (text) => ({ model: modelName, messages: user(text), temperature: 0, max_tokens: 200 });

test("parse() gives an object of the schema's type", async () => {
  const answer = await client.chat.completions.parse({
    ...ask("Who is that?"),
    response_format: zodResponseFormat(person, "person"),
  });
  const { parsed, refusal } = answer.choices[0].message;
  assert.deepEqual(person.parse(parsed), parsed);
  assert.equal(refusal, null);
});

test("stream() reports content and parses it at the end", async () => {
  const stream = client.chat.completions.stream({
    ...ask("Who is that?"),
    response_format: zodResponseFormat(person, "person"),
  });
  let snapshot = "";
  stream.on("content.delta", (e) => (snapshot = e.snapshot));
  const answer = await stream.finalChatCompletion();
  assert.equal(snapshot, answer.choices[0].message.content);
  assert.deepEqual(person.parse(answer.choices[0].message.parsed), answer.choices[0].message.parsed);
});

test("stream() reports tool calls", async () => {
  const tools = [zodFunction({ name: "get_weather", parameters: place })];
  const body = { ...ask("Weather in Rome?"), tools, tool_choice: "required", parallel_tool_calls: false };
  const stream = client.chat.completions.stream(body);
  const deltas = [];
  let done;
  stream.on("tool_calls.function.arguments.delta", (e) => deltas.push(e.arguments_delta));
  stream.on("tool_calls.function.arguments.done", (e) => (done = e));
  const answer = await stream.finalChatCompletion();
  const call = answer.choices[0].message.tool_calls[0];
  assert.equal(answer.choices[0].finish_reason, "tool_calls");
  assert.equal(answer.choices[0].message.content, null);
  assert.match(call.id, /^call_/);
  assert.equal(deltas.join(""), call.function.arguments);
  assert.equal(done.name, "get_weather");
  assert.deepEqual(place.parse(call.function.parsed_arguments), call.function.parsed_arguments);
  const whole = await client.chat.completions.create(body);
  assert.equal(whole.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
});

test("runTools() calls the function and sends its result", async () => {
  const asked = [];
  const tools = [
    {
      type: "function",
      function: {
        name: "get_weather",
        description: "Weather of a city",
        parameters: {
          type: "object",
          properties: { city: { type: "string", maxLength: 12 } },
          required: ["city"],
          additionalProperties: false,
        },
        parse: JSON.parse,
        function: ({ city }) => (asked.push(city), "21 degrees"),
      },
    },
  ];
  const runner = client.chat.completions.runTools({
    ...ask("Weather in Rome?"),
    tools,
    tool_choice: { type: "function", function: { name: "get_weather" } },
  });
  await runner.done();
  assert.equal(asked.length, 1);
  const result = runner.messages.at(-1);
  assert.deepEqual([result.role, result.content], ["tool", "21 degrees"]);
  const last = await client.chat.completions.create({
    ...ask("x"),
    tools: tools.map((t) => ({ ...t, function: { ...t.function, function: undefined, parse: undefined } })),
    messages: runner.messages,
  });
  assert.ok(last.usage.prompt_tokens > 20);
});
