// Third-party clients: Vercel's AI SDK and LangChain, as their documentation uses them.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { jsonSchemaOutputFormat } from "@anthropic-ai/sdk/helpers/json-schema";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import { tool as langchainTool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { embed, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import Ajv from "ajv";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { z } from "zod";
import { asks, checkCities, cities as names, rolesOfThreeTurns, sunny } from "./client_turns.mjs";
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

const cities = { type: "object", properties: { city: { enum: names } }, required: ["city"] };
const client = () => new Anthropic({ baseURL: server.url, apiKey: "none", maxRetries: 0 });

// The SDK itself runs the tool and asks again: its loop of steps, streamed and not.
test("Vercel: tools over three turns by its own loop, by each of its providers", async () => {
  const compatible = createOpenAICompatible({ name: "inferd", baseURL: `${server.url}/v1`, apiKey: "none" });
  for (const model of [vercel.chat(modelName), vercel.responses(modelName), compatible(modelName)])
    for (const generate of [generateText, streamText]) {
      const called = [];
      const ask = {
        ...settings,
        model,
        maxOutputTokens: 60,
        tools: {
          weather: tool({
            description: "Weather of a city",
            inputSchema: z.object({ city: z.enum(names) }),
            execute: ({ city }) => (called.push(city), sunny(city)),
          }),
        },
        providerOptions: { openai: { parallelToolCalls: false }, inferd: { parallel_tool_calls: false } },
        stopWhen: stepCountIs(2),
        prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber ? "none" : { type: "tool", toolName: "weather" } }),
      };
      const messages = [];
      for (const content of asks) {
        messages.push({ role: "user", content });
        const result = await generate({ ...ask, messages, onError: ({ error }) => assert.fail(error) });
        if (generate === streamText) await result.consumeStream();
        messages.push(...(await result.response).messages);
        assert.equal((await result.steps).length, 2);
        assert.ok((await result.text).length);
      }
      checkCities(called);
      assert.deepEqual(
        messages.map((m) => m.role),
        rolesOfThreeTurns("tool"),
      );
    }
});

test("LangChain: tools over three turns", async () => {
  const called = [];
  const get = langchainTool(({ city }) => (called.push(city), sunny(city)), {
    name: "weather",
    description: "Weather of a city",
    schema: z.object({ city: z.enum(names) }),
  });
  const whole = (model, messages) => model.invoke(messages);
  const streamed = async (model, messages) => {
    let all;
    for await (const chunk of await model.stream(messages)) all = all ? all.concat(chunk) : chunk;
    return all;
  };
  for (const [fields, ask] of [
    [{}, whole],
    [{}, streamed],
    [{ useResponsesApi: true }, whole],
  ]) {
    const bind = (tool_choice) => langchain(fields).bindTools([get], { tool_choice, parallel_tool_calls: false });
    const messages = [];
    called.length = 0;
    for (const content of asks) {
      messages.push(new HumanMessage(content));
      const call = await ask(bind("weather"), messages);
      assert.equal(call.tool_calls.length, 1);
      messages.push(call, await get.invoke(call.tool_calls[0]));
      messages.push(await ask(bind("none"), messages));
      assert.ok(messages.at(-1).text.length);
    }
    checkCities(called);
    assert.deepEqual(
      messages.map((m) => m.getType()),
      asks.flatMap(() => ["human", "ai", "tool", "ai"]),
    );
  }
});

test("Anthropic's SDK: structured output by a schema, whole and streamed", async () => {
  const schema = {
    type: "object",
    properties: {
      name: { enum: ["Ann", "Bob"] },
      age: { type: "integer", minimum: 1, maximum: 99 },
      likes: { type: "array", items: { enum: ["tea", "cake"] }, maxItems: 2 },
    },
    required: ["name", "age", "likes"],
    additionalProperties: false,
  };
  const valid = new Ajv().compile(schema);
  const ask = {
    model: modelName,
    max_tokens: 200,
    temperature: 0,
    messages: [{ role: "user", content: "Who is it?" }],
  };
  const raw = { ...ask, output_config: { format: { type: "json_schema", schema } } };
  const { content, stop_reason } = await client().messages.create(raw);
  assert.equal(stop_reason, "end_turn");
  assert.ok(valid(JSON.parse(content[0].text)), content[0].text);
  let text = "";
  for await (const event of await client().messages.create({ ...raw, stream: true }))
    if (event.type === "content_block_delta") text += event.delta.text;
  assert.equal(text, content[0].text);
  // The SDK's own helpers; they leave bounds out of the schema that they send.
  const loose = z.object({ name: z.enum(["Ann", "Bob"]), tall: z.boolean(), likes: z.array(z.enum(["tea", "cake"])) });
  for (const format of [zodOutputFormat(loose), jsonSchemaOutputFormat(z.toJSONSchema(loose))]) {
    const parsed = { ...ask, max_tokens: 400, output_config: { format } };
    const whole = await client().messages.parse(parsed);
    assert.deepEqual(loose.parse(whole.parsed_output), whole.parsed_output);
    const streamed = await client().messages.stream(parsed).finalMessage();
    assert.deepEqual(streamed.parsed_output, whole.parsed_output);
  }
});

test("Anthropic's SDK: tools over three turns", async () => {
  const tools = [{ name: "weather", input_schema: { ...cities, additionalProperties: false } }];
  const messages = [];
  for (const content of asks) {
    messages.push({ role: "user", content });
    const choice = { type: "tool", name: "weather", disable_parallel_tool_use: true };
    const ask = { model: modelName, max_tokens: 200, tools, tool_choice: choice, messages };
    const answer = await client().messages.create(ask);
    const use = answer.content.find((b) => b.type === "tool_use");
    assert.ok(names.includes(use.input.city));
    const result = { type: "tool_result", tool_use_id: use.id, content: "sunny" };
    messages.push({ role: "assistant", content: answer.content }, { role: "user", content: [result] });
    const said = await client().messages.create({ ...ask, max_tokens: 8, tool_choice: { type: "none" } });
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
    assert.ok(names.includes(JSON.parse(call.arguments).city));
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
