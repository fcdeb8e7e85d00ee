// Third-party clients: Vercel's AI SDK and LangChain, as their documentation uses them.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import { tool as langchainTool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { embed, generateObject, generateText, streamObject, streamText, tool } from "ai";
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
