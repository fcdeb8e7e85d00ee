// Third-party clients: Vercel's AI SDK and LangChain, as their documentation uses them.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import { tool as langchainTool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { embed, generateObject, generateText, streamObject, streamText, tool } from "ai";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { z } from "zod";
import { onlyLoopback } from "./loopback.mjs";
import { modelName, startServer } from "./server.mjs";

onlyLoopback();

let server, vercel, langchain;
before(async () => {
  server = await startServer();
  vercel = createOpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" });
  langchain = (fields) =>
    new ChatOpenAI({
      model: modelName,
      apiKey: "none",
      temperature: 0,
      maxTokens: 120,
      maxRetries: 0,
      configuration: { baseURL: `${server.url}/v1` },
      ...fields,
    });
});
after(() => server.stop());

const person = z.object({
  name: z.string().max(12),
  age: z.number().int().min(1).max(99),
  likes: z.array(z.enum(["tea", "cake"])).max(2),
});
const weather = z.object({ city: z.string().max(12), unit: z.enum(["C", "F"]) });
const settings = { temperature: 0, maxOutputTokens: 200, maxRetries: 0 };

test("Vercel: text, whole and streamed, over chat and responses", async () => {
  for (const model of [vercel.chat(modelName), vercel.responses(modelName)]) {
    const { text, usage, finishReason } = await generateText({ ...settings, model, prompt: "Hello!" });
    assert.ok(text.length > 0 && usage.outputTokens > 0 && ["stop", "length"].includes(finishReason));
    const stream = streamText({ ...settings, model, prompt: "Hello!", onError: ({ error }) => assert.fail(error) });
    let streamed = "";
    for await (const part of stream.textStream) streamed += part;
    assert.equal(streamed, text);
    assert.equal((await stream.usage).outputTokens, usage.outputTokens);
  }
});

test("Vercel: objects by a schema", async () => {
  const model = vercel.chat(modelName);
  const { object } = await generateObject({ ...settings, model, schema: person, prompt: "Who is that?" });
  assert.deepEqual(person.parse(object), object);
  const stream = streamObject({ ...settings, model, schema: person, prompt: "Who is that?" });
  let n = 0;
  for await (const _ of stream.partialObjectStream) n++;
  assert.ok(n > 1);
  assert.deepEqual(await stream.object, object);
});

test("Vercel: a tool call and its result", async () => {
  for (const model of [vercel.chat(modelName), vercel.responses(modelName)]) {
    const asked = [];
    const tools = {
      weather: tool({
        description: "Weather of a city",
        inputSchema: weather,
        execute: async (input) => (asked.push(input), { degrees: 21 }),
      }),
    };
    const { toolCalls, toolResults, finishReason } = await generateText({
      ...settings,
      model,
      tools,
      toolChoice: "required",
      prompt: "Weather in Rome?",
    });
    assert.ok(toolCalls.length >= 1 && toolResults.length === toolCalls.length);
    for (const input of asked) assert.deepEqual(weather.parse(input), input);
    assert.equal(finishReason, "tool-calls");
  }
});

test("Vercel: an embedding, and an error that names the field", async () => {
  const { embedding } = await embed({ model: vercel.embedding(modelName), value: "a fox", maxRetries: 0 });
  assert.ok(Math.abs(embedding.reduce((s, x) => s + x * x, 0) - 1) < 1e-4);
  await assert.rejects(
    generateText({ ...settings, model: vercel.chat(modelName), prompt: "x", temperature: 9 }),
    /temperature/,
  );
});

test("LangChain: invoke and stream", async () => {
  const model = langchain();
  const messages = [new SystemMessage("Be kind."), new HumanMessage("Hello!")];
  const answer = await model.invoke(messages);
  assert.ok(answer.content.length > 0 && answer.usage_metadata.output_tokens > 0);
  let text = "";
  for await (const part of await model.stream(messages)) text += part.content;
  assert.equal(text, answer.content);
});

// LangChain omits bounds and integer types from the schema that it sends.
test("LangChain: structured output by a schema", async () => {
  const loose = z.object({ name: z.string(), age: z.number(), likes: z.array(z.enum(["tea", "cake"])) });
  for (const method of ["jsonSchema", "functionCalling"]) {
    const value = await langchain({ maxTokens: 400 })
      .withStructuredOutput(loose, { name: "person", method })
      .invoke("Who is that?");
    assert.deepEqual(loose.parse(value), value);
  }
});

test("LangChain: tools, and their results", async () => {
  const get = langchainTool(async ({ city }) => `21 degrees in ${city}`, {
    name: "get_weather",
    description: "Weather",
    schema: weather,
  });
  const model = langchain().bindTools([get], { tool_choice: "required" });
  const call = await model.invoke("Weather in Rome?");
  assert.ok(call.tool_calls.length >= 1);
  assert.deepEqual(weather.parse(call.tool_calls[0].args), call.tool_calls[0].args);
  const result = await get.invoke(call.tool_calls[0]);
  assert.ok(result instanceof ToolMessage);
  const last = await langchain({ maxTokens: 20 })
    .bindTools([get], { tool_choice: "none" })
    .invoke([new HumanMessage("Weather in Rome?"), call, result]);
  assert.ok(typeof last.content === "string");
});

test("LangChain: embeddings", async () => {
  const embeddings = new OpenAIEmbeddings({
    model: modelName,
    apiKey: "none",
    maxRetries: 0,
    configuration: { baseURL: `${server.url}/v1` },
  });
  const [a, b] = await embeddings.embedDocuments(["a fox", "a hen"]);
  assert.deepEqual(await embeddings.embedQuery("a fox"), a);
  assert.notDeepEqual(a, b);
});

const cities = { type: "object", properties: { city: { enum: ["Rome", "Oslo"] } }, required: ["city"] };
const asks = ["Weather in Rome?", "And in Oslo?", "And in Rome again?"];

test("Anthropic's SDK: tools over three turns", async () => {
  const client = new Anthropic({ baseURL: server.url, apiKey: "none", maxRetries: 0 });
  const tools = [{ name: "weather", input_schema: { ...cities, additionalProperties: false } }];
  const messages = [];
  for (const content of asks) {
    messages.push({ role: "user", content });
    const choice = { type: "tool", name: "weather", disable_parallel_tool_use: true };
    const ask = { model: modelName, max_tokens: 200, tools, tool_choice: choice, messages };
    const answer = await client.messages.create(ask);
    const use = answer.content.find((b) => b.type === "tool_use");
    assert.ok(cities.properties.city.enum.includes(use.input.city));
    const result = { type: "tool_result", tool_use_id: use.id, content: "sunny" };
    messages.push({ role: "assistant", content: answer.content }, { role: "user", content: [result] });
    const said = await client.messages.create({ ...ask, max_tokens: 8, tool_choice: { type: "none" } });
    messages.push({ role: "assistant", content: said.content.length ? said.content : "." });
  }
  assert.equal(messages.length, 12);
});

test("OpenAI's SDK: tools over three turns and structured output by previous_response_id", async () => {
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
  const tools = [{ type: "function", name: "weather", parameters: { ...cities, additionalProperties: false } }];
  const format = { type: "json_schema", name: "n", schema: { type: "integer", minimum: 1, maximum: 9 } };
  let previous_response_id;
  for (const input of asks) {
    const ask = { model: modelName, max_output_tokens: 200, tools, parallel_tool_calls: false };
    const tool_choice = { type: "function", name: "weather" };
    const called = await client.responses.create({ ...ask, input, tool_choice, previous_response_id });
    const call = called.output.find((i) => i.type === "function_call");
    assert.ok(cities.properties.city.enum.includes(JSON.parse(call.arguments).city));
    const said = await client.responses.create({
      ...ask,
      input: [{ type: "function_call_output", call_id: call.call_id, output: "sunny" }],
      tool_choice: "none",
      text: { format },
      previous_response_id: called.id,
    });
    assert.match(said.output_text, /^[1-9]$/);
    previous_response_id = said.id;
  }
});

test("Ollama's library: tools over three turns, structured output", async () => {
  const client = new Ollama({ host: server.url });
  const tools = [{ type: "function", function: { name: "weather", parameters: cities } }];
  const messages = [];
  for (const content of asks) {
    messages.push({ role: "user", content });
    const options = { num_predict: 40, temperature: 0 };
    const { message } = await client.chat({ model: modelName, messages, tools, options });
    const tool_calls = message.tool_calls ?? [{ function: { name: "weather", arguments: { city: "Rome" } } }];
    messages.push({ ...message, tool_calls }, { role: "tool", tool_name: "weather", content: "sunny" });
    const format = { type: "integer", minimum: 1, maximum: 9 };
    const said = await client.chat({ model: modelName, messages, format, options });
    assert.match(said.message.content, /^[1-9]$/);
    messages.push(said.message);
  }
  assert.equal(messages.length, 12);
});
