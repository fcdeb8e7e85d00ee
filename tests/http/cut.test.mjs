// Answers truncated by max_tokens at many positions, read by clients' libraries: an incomplete call or object is never
// used as a complete one.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { generateObject, generateText, streamText, tool } from "ai";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { LengthFinishReasonError } from "openai/error";
import { zodFunction, zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { chat, modelName as model, startServer, user } from "./server.mjs";

let server, client, anthropic;
before(async () => {
  server = await startServer();
  client = new OpenAI({ baseURL: server.url + "/v1", apiKey: "none", maxRetries: 0 });
  anthropic = new Anthropic({ baseURL: server.url, apiKey: "none", maxRetries: 0 });
});
after(() => server.stop());

// Longer than any of the cuts: at least 30 characters of a city.
const place = z.object({ city: z.string().min(30).max(40), days: z.array(z.number().int()).min(3).max(4) });
const schema = { ...z.toJSONSchema(place), $schema: undefined };
const inCall = [1, 8, 14, 20, 24, 25, 26, 27, 28, 29, 30, 34, 38, 44, 48]; // tokens: within its mark, its name, its arguments
const inObject = [1, 3, 5, 9, 14, 17, 20, 24];
const messages = user("Weather in Rome?");
const common = { model, messages, temperature: 0 };
const isWhole = (text) => {
  try {
    return typeof JSON.parse(text) === "object";
  } catch {
    return false;
  }
};

test("chat: finish_reason is length, and parse() and stream() refuse", async () => {
  const called = {
    ...common,
    tools: [zodFunction({ name: "get_weather", parameters: place })],
    tool_choice: "required",
  };
  const formed = { ...common, response_format: zodResponseFormat(place, "place") };
  let begun = 0;
  for (const [body, cuts] of [
    [called, inCall],
    [formed, inObject],
  ])
    for (const max_tokens of cuts) {
      await assert.rejects(client.chat.completions.parse({ ...body, max_tokens }), LengthFinishReasonError);
      await assert.rejects(
        client.chat.completions.stream({ ...body, max_tokens }).finalChatCompletion(),
        LengthFinishReasonError,
      );
    }
  for (const max_tokens of inCall) {
    const { message, finish_reason } = (await client.chat.completions.create({ ...called, max_tokens })).choices[0];
    assert.equal(finish_reason, "length");
    for (const call of message.tool_calls ?? []) {
      begun++;
      // Libraries treat a call without arguments as complete.
      assert.ok(call.function.arguments.trim() && !isWhole(call.function.arguments), call.function.arguments);
    }
  }
  assert.ok(begun >= 3, "some were cut within their arguments");
});

test("runTools() does not call the function", async () => {
  let called = 0;
  const tool = {
    type: "function",
    function: { name: "get_weather", parameters: schema, parse: JSON.parse, function: () => (called++, "warm") },
  };
  for (const max_tokens of inCall) {
    const runner = client.chat.completions.runTools(
      { ...common, max_tokens, tools: [tool], tool_choice: "required" },
      { maxChatCompletions: 1 },
    );
    await assert.rejects(runner.done(), LengthFinishReasonError);
  }
  assert.equal(called, 0);
});

test("Vercel's library runs no tool, even if all arguments are optional", async () => {
  const vercel = createOpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" });
  let called = 0;
  const tools = { get_weather: tool({ inputSchema: place.partial(), execute: () => (called++, "warm") }) };
  for (const model_ of [vercel.chat(model), vercel.responses(model)])
    for (const maxOutputTokens of inCall.filter((n) => n > 16)) {
      const ask = {
        model: model_,
        messages,
        temperature: 0,
        maxOutputTokens,
        tools,
        toolChoice: "required",
        maxRetries: 0,
      };
      assert.equal((await generateText(ask)).finishReason, "length");
      const stream = streamText(ask);
      await stream.consumeStream();
      assert.equal(await stream.finishReason, "length");
      if (maxOutputTokens < 24)
        await assert.rejects(
          generateObject({ ...ask, schema: place, tools: undefined }),
          (e) => e.finishReason === "length",
        );
    }
  assert.equal(called, 0);
});

test("responses: the response and the truncated item are incomplete", async () => {
  const ask = { model, input: "Weather in Rome?", temperature: 0 };
  const called = {
    ...ask,
    tools: [{ type: "function", name: "get_weather", parameters: schema, strict: true }],
    tool_choice: "required",
  };
  let begun = 0;
  for (const max_output_tokens of inCall.filter((n) => n > 16)) {
    const whole = await client.responses.create({ ...called, max_output_tokens });
    const events = [];
    for await (const event of await client.responses.create({ ...called, max_output_tokens, stream: true }))
      events.push(event);
    const last = events.at(-1);
    assert.equal(last.type, "response.incomplete");
    for (const r of [whole, last.response]) {
      assert.deepEqual([r.status, r.incomplete_details], ["incomplete", { reason: "max_output_tokens" }]);
      for (const item of r.output) assert.equal(item.status, "incomplete");
      for (const item of r.output.filter((i) => i.type === "function_call"))
        (begun++, assert.ok(item.arguments.trim() && !isWhole(item.arguments)));
    }
    for (const event of events.filter((e) => e.type === "response.output_item.done"))
      assert.equal(event.item.status, "incomplete");
  }
  for (const max_output_tokens of inObject.filter((n) => n > 16))
    await assert.rejects(
      client.responses.parse({ ...ask, max_output_tokens, text: { format: zodTextFormat(place, "place") } }),
      SyntaxError,
    );
  assert.ok(begun >= 6);
});

test("messages: stop_reason is max_tokens", async () => {
  const body = {
    model,
    messages,
    temperature: 0,
    tools: [{ name: "get_weather", input_schema: schema }],
    tool_choice: { type: "any" },
  };
  for (const max_tokens of inCall) {
    const whole = await anthropic.messages.create({ ...body, max_tokens });
    const streamed = await anthropic.messages.stream({ ...body, max_tokens }).finalMessage();
    for (const m of [whole, streamed]) assert.equal(m.stop_reason, "max_tokens");
    assert.ok(whole.content.every((block) => block.type !== "tool_use"));
  }
});

test("Ollama: done_reason is length", async () => {
  const ollama = new Ollama({ host: server.url });
  for (const num_predict of inObject) {
    const ask = { model, messages, format: schema, options: { num_predict, temperature: 0 } };
    const whole = await ollama.chat(ask);
    assert.equal(whole.done_reason, "length");
    assert.ok(!isWhole(whole.message.content));
    let last;
    for await (const part of await ollama.chat({ ...ask, stream: true })) last = part;
    assert.equal(last.done_reason, "length");
  }
});

// After a control token an answer can end between a call's head and its arguments.
const template = "../shared/data/chat-templates/templates/openai-gpt-oss-120b.jinja";
test(
  "gpt-oss: a call without arguments is not returned",
  { skip: existsSync(template) ? false : "no ../shared" },
  async (t) => {
    const file = "tests/golden/arch/gpt-oss/hf";
    const { added_tokens } = JSON.parse(readFileSync(`${file}/tokenizer.json`, "utf8"));
    const id = (text) => added_tokens.find((token) => token.content === text).id;
    const own = await startServer(["--chat-template", template], [{ file, name: model }]);
    t.after(() => own.stop());
    const tools = [
      {
        type: "function",
        function: {
          name: "get_weather",
          description: "The weather.",
          parameters: { type: "object", properties: { city: { type: "string" } } },
        },
      },
    ];
    let calls = 0,
      none = 0;
    for (let max_tokens = 1; max_tokens < 60; max_tokens++) {
      const body = {
        messages: user("Hi"),
        temperature: 0,
        max_tokens,
        tools,
        tool_choice: "required",
        logit_bias: { [id("<|end|>")]: 100 },
      };
      const response = await chat(own, body),
        text = await response.text();
      assert.equal(response.status, 200, text);
      const { message, finish_reason } = JSON.parse(text).choices[0];
      if (finish_reason !== "length") continue;
      if (!message.tool_calls) none++;
      for (const call of message.tool_calls ?? [])
        (calls++, assert.ok(call.function.arguments.trim(), `${max_tokens}: ${JSON.stringify(call)}`));
    }
    assert.ok(calls && none, `${calls} ${none}`);
  },
);
