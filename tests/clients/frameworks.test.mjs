// Agent and retrieval frameworks from their own packages against the demo model: chat, streams, tools
// with history, structured output, embeddings, and state that the server keeps for them.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { OllamaEmbeddings, ChatOllama, Ollama } from "@langchain/ollama";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { HumanMessage } from "@langchain/core/messages";
import { tool as langchainTool } from "@langchain/core/tools";
import { Ollama as LlamaOllama, OllamaEmbedding } from "@llamaindex/ollama";
import { OpenAI as LlamaOpenAI, OpenAIEmbedding, OpenAIResponses as LlamaResponses } from "@llamaindex/openai";
import { Agent, OpenAIConversationsSession, OpenAIProvider, Runner, tool } from "@openai/agents";
import { tool as llamaTool } from "llamaindex";
import OpenAI from "openai";
import { z } from "zod";
import { asks, checkCities, cities, rolesOfThreeTurns, sunny } from "../http/client_turns.mjs";
import { onlyLoopback } from "../http/loopback.mjs";
import { modelName as model, startServer } from "../http/server.mjs";

onlyLoopback();

let server, client;
before(async () => {
  server = await startServer();
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
});
after(() => server.stop());

// The SDK throws when a response ends incomplete: the model gets room, and short answers by a schema.
const short = { outputType: z.object({ n: z.number().int().min(0).max(9) }), model };
const settings = { maxTokens: 300, temperature: 0 };
const runner = (useResponses) =>
  new Runner({ modelProvider: new OpenAIProvider({ openAIClient: client, useResponses }), tracingDisabled: true });

for (const useResponses of [false, true]) {
  const api = useResponses ? "Responses" : "Chat Completions";
  test(`OpenAI Agents SDK over ${api}: tools over three turns, a stream, structured output`, async () => {
    const cities = [];
    const weather = tool({
      name: "get_weather",
      description: "The weather of a city.",
      parameters: z.object({ city: z.enum(["Rome", "Paris"]) }),
      execute: async ({ city }) => (cities.push(city), `sunny in ${city}`),
    });
    const modelSettings = { ...settings, toolChoice: "required", parallelToolCalls: false };
    const agent = new Agent({ ...short, name: "A", instructions: "Be short.", tools: [weather], modelSettings });
    const run = runner(useResponses);
    const first = await run.run(agent, "The weather in Rome?");
    assert.ok(cities.length >= 1);
    assert.equal(typeof first.finalOutput.n, "number");
    const calls = cities.length;
    const second = await run.run(agent, [...first.history, { role: "user", content: "And in Paris?" }]);
    assert.ok(cities.length > calls, "a tool is called again beside the earlier calls");
    const third = await run.run(agent, [...second.history, { role: "user", content: "Thanks." }], { stream: true });
    let text = "";
    for await (const event of third)
      if (event.type === "raw_model_stream_event" && event.data.type === "output_text_delta") text += event.data.delta;
    await third.completed;
    assert.deepEqual(JSON.parse(text.slice(text.lastIndexOf("{"))), third.finalOutput);
    assert.ok(third.history.filter((i) => i.type === "function_call_result").length >= 3);
  });
}

test("OpenAI Agents SDK: previousResponseId and a session of the Conversations API", async () => {
  const agent = new Agent({ ...short, name: "P", modelSettings: settings });
  const run = runner(true);
  const first = await run.run(agent, "Hello");
  const second = await run.run(agent, "Again", { previousResponseId: first.lastResponseId });
  const stored = await client.responses.retrieve(second.lastResponseId);
  assert.equal(stored.previous_response_id, first.lastResponseId);

  const session = new OpenAIConversationsSession({ client });
  await run.run(agent, "One", { session });
  await run.run(agent, "Two", { session });
  const items = await session.getItems();
  assert.deepEqual(
    items.map((i) => i.role),
    ["user", "assistant", "user", "assistant"],
  );
  assert.equal((await session.getItems(1))[0].id, items[3].id);
  assert.equal((await session.popItem()).id, items[3].id);
  assert.equal((await session.getItems()).length, 3);
  const id = session.sessionId;
  await session.clearSession();
  await assert.rejects(client.conversations.retrieve(id), { status: 404 });
});

const weather = langchainTool(async ({ city }) => `sunny in ${city}`, {
  name: "weather",
  description: "The weather of a city.",
  schema: z.object({ city: z.enum(["Rome", "Paris"]) }),
});
const joined = async (stream, of) => {
  let text = "";
  for await (const chunk of stream) text += of(chunk);
  return text;
};
const vectors = (list, n) => {
  assert.equal(list.length, n);
  for (const v of list) assert.ok(v.length > 8 && v.every(Number.isFinite));
};

test("LangChain with Ollama's API: chat, a stream, tools, structured output, embeddings", async () => {
  const options = { baseUrl: server.url, model, maxRetries: 0 };
  const chat = new ChatOllama({ ...options, temperature: 0, numPredict: 60 });
  const whole = (await chat.invoke("Hello")).content;
  assert.ok(whole.length);
  assert.equal(await joined(await chat.stream("Hello"), (c) => c.content), whole);
  const called = await chat.bindTools([weather]).invoke("What is the weather in Rome? Use the tool.");
  for (const call of called.tool_calls) assert.ok(["Rome", "Paris"].includes(call.args.city));
  const answer = await chat.withStructuredOutput(short.outputType, { method: "jsonSchema" }).invoke("A number");
  assert.ok(Number.isInteger(answer.n));
  assert.ok((await new Ollama({ ...options, numPredict: 8 }).invoke("Hello")).length);
  vectors(await new OllamaEmbeddings(options).embedDocuments(["a", "b"]), 2);
});

test("LangChain with OpenAI's Responses: chat, a stream, tools' second turn, embeddings", async () => {
  const options = { model, apiKey: "none", maxRetries: 0, configuration: { baseURL: `${server.url}/v1` } };
  const chat = new ChatOpenAI({ ...options, useResponsesApi: true, maxTokens: 100, temperature: 0 });
  assert.ok((await chat.invoke("Hello")).text.length);
  assert.ok(await joined(await chat.stream("Hello"), (c) => c.text));
  const called = await chat
    .bindTools([weather], { tool_choice: "weather", parallel_tool_calls: false })
    .invoke("The weather in Rome?");
  assert.ok(called.tool_calls.length);
  const results = await Promise.all(called.tool_calls.map((call) => weather.invoke(call)));
  const next = await chat.bindTools([weather]).invoke([["human", "The weather in Rome?"], called, ...results]);
  assert.ok(next.text.length || next.tool_calls.length);
  vectors(await new OpenAIEmbeddings(options).embedDocuments(["a"]), 1);
});

test("LlamaIndex with OpenAI's and Ollama's APIs: chat, a stream, embeddings", async () => {
  const messages = [{ role: "user", content: "Hello" }];
  const baseURL = `${server.url}/v1`;
  const options = { model, apiKey: "none", baseURL, maxRetries: 0, additionalSessionOptions: { baseURL } };
  const openai = new LlamaOpenAI({ ...options, maxTokens: 30, temperature: 0 });
  const whole = (await openai.chat({ messages })).message.content;
  assert.ok(whole.length);
  assert.equal(await joined(await openai.chat({ messages, stream: true }), (c) => c.delta), whole);
  vectors([await new OpenAIEmbedding(options).getTextEmbedding("a")], 1);
  const config = { host: server.url };
  const ollama = new LlamaOllama({ model, config, options: { num_predict: 20 } });
  assert.ok((await ollama.chat({ messages })).message.content.length);
  vectors([await new OllamaEmbedding({ model, config }).getTextEmbedding("a")], 1);
});

// Ollama's API cannot demand a call, and the demo model makes none by itself: then the test adds one to its answer.
test("LangChain with Ollama's API: tools over three turns", async () => {
  const called = [];
  const get = langchainTool(({ city }) => (called.push(city), sunny(city)), {
    name: "weather",
    description: "The weather of a city.",
    schema: z.object({ city: z.enum(cities) }),
  });
  const chat = new ChatOllama({ baseUrl: server.url, model, maxRetries: 0, temperature: 0, numPredict: 60 });
  const messages = [];
  for (const [i, content] of asks.entries()) {
    messages.push(new HumanMessage(content));
    const call = await chat.bindTools([get]).invoke(messages);
    if (!call.tool_calls.length)
      call.tool_calls = [{ type: "tool_call", id: `call_${i}`, name: "weather", args: { city: "Rome" } }];
    messages.push(call, await get.invoke(call.tool_calls[0]));
    messages.push(await chat.withStructuredOutput(short.outputType, { includeRaw: true }).invoke(messages));
    const { raw, parsed } = messages.pop();
    assert.ok(Number.isInteger(parsed.n));
    messages.push(raw);
  }
  checkCities(called);
});

// LlamaIndex sends a result with Ollama's API without the call before it.
test("LlamaIndex: tools over three turns and structured output, with each API", async () => {
  const baseURL = `${server.url}/v1`;
  const options = { model, apiKey: "none", baseURL, maxRetries: 0, additionalSessionOptions: { baseURL } };
  const limits = { temperature: 0, maxTokens: 60, maxOutputTokens: 60 };
  const openai = new LlamaOpenAI({ ...options, ...limits });
  const ollama = new LlamaOllama({
    model,
    config: { host: server.url },
    options: { num_predict: 60, temperature: 0 },
  });
  const called = [];
  const get = llamaTool({
    name: "weather",
    description: "The weather of a city.",
    parameters: z.object({ city: z.enum(cities) }),
    execute: ({ city }) => (called.push(city), sunny(city)),
  });
  for (const [llm, tool_choice] of [
    [openai, { type: "function", function: { name: "weather" } }],
    [new LlamaResponses({ ...options, ...limits }), { type: "function", name: "weather" }],
    [ollama],
  ]) {
    called.length = 0;
    const messages = [];
    const additionalChatOptions = tool_choice && { tool_choice, parallel_tool_calls: false };
    for (const content of asks) {
      messages.push({ role: "user", content });
      const { newMessages } = await llm.exec({ messages, tools: [get], additionalChatOptions });
      if (!tool_choice && newMessages.length === 1) {
        const call = { id: "call_1", name: "weather", input: { city: "Rome" } };
        newMessages[0].options = { toolCall: [call] };
        const result = { id: call.id, result: get.call(call.input), isError: false };
        newMessages.push({ role: "user", content: result.result, options: { toolResult: result } });
      }
      messages.push(...newMessages);
      messages.push((await llm.chat({ messages })).message);
      assert.ok(messages.at(-1).content.length);
    }
    checkCities(called);
    assert.deepEqual(
      messages.map((m) => m.role),
      rolesOfThreeTurns("user"), // its role of a result
    );
  }
  const ask = { messages: [{ role: "user", content: "A number" }], responseFormat: short.outputType };
  for (const llm of [openai, ollama]) {
    const { message } = await llm.chat(ask);
    short.outputType.parse(JSON.parse(message.content));
  }
});
