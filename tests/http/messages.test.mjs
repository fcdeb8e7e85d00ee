// Anthropic's official client against /v1/messages.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { chat, modelName, post, startServer, user } from "./server.mjs";

let server, client;
before(async () => {
  server = await startServer();
  client = new Anthropic({ baseURL: server.url, apiKey: "none", maxRetries: 0 });
});
after(() => server.stop());

const ask = { model: modelName, max_tokens: 40, temperature: 0 };

test("answers as a message", async () => {
  const m = await client.messages.create({ ...ask, messages: user("Hello!") });
  assert.equal(m.type, "message");
  assert.equal(m.role, "assistant");
  assert.equal(m.content.length, 1);
  assert.ok(m.content[0].text.length > 0);
  assert.ok(["end_turn", "max_tokens"].includes(m.stop_reason));
  assert.equal(m.stop_sequence, null);
  const same = await (await chat(server, { messages: user("Hello!"), temperature: 0, max_tokens: 40 })).json();
  assert.equal(m.content[0].text, same.choices[0].message.content, "the same answer as over OpenAI's protocol");
  assert.equal(m.usage.input_tokens + m.usage.cache_read_input_tokens, same.usage.prompt_tokens);
  assert.equal(m.usage.output_tokens, same.usage.completion_tokens);
});

test("streams the events in their order", async () => {
  const whole = await client.messages.create({ ...ask, messages: user("Tell me a story.") });
  const types = [];
  const stream = client.messages.stream({ ...ask, messages: user("Tell me a story.") });
  stream.on("streamEvent", (e) => types.at(-1) !== e.type && types.push(e.type));
  const m = await stream.finalMessage();
  assert.deepEqual(types, [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
  ]);
  assert.equal(m.content[0].text, whole.content[0].text);
  assert.equal(m.stop_reason, whole.stop_reason);
  assert.equal(m.usage.output_tokens, whole.usage.output_tokens);
});

test("a stop sequence ends the answer and is named", async () => {
  const whole = await client.messages.create({ ...ask, messages: user("Tell me a story.") });
  const word = whole.content[0].text.split(" ")[4];
  const m = await client.messages.create({
    ...ask,
    messages: user("Tell me a story."),
    stop_sequences: [word, "never said"],
  });
  assert.equal(m.stop_reason, "stop_sequence");
  assert.equal(m.stop_sequence, word);
  assert.ok(whole.content[0].text.startsWith(m.content[0].text));
});

test("the assistant's last message is continued", async () => {
  const messages = [...user("Tell me a story."), { role: "assistant", content: "Once there was a green" }];
  const m = await client.messages.create({ ...ask, max_tokens: 5, messages });
  assert.ok(m.content[0].text.length > 0);
});

test("system, blocks and tool results reach the prompt", async () => {
  const count = async (body) => (await client.messages.countTokens({ model: modelName, ...body })).input_tokens;
  const plain = await count({ messages: user("Hello!") });
  assert.ok(plain > 0);
  assert.ok((await count({ system: "Be brief.", messages: user("Hello!") })) > plain);
  assert.equal(
    await count({
      messages: [{ role: "user", content: [{ type: "text", text: "Hello!", cache_control: { type: "ephemeral" } }] }],
    }),
    plain,
  );
  const m = await client.messages.create({ ...ask, messages: user("Hello!") });
  assert.equal(m.usage.input_tokens + m.usage.cache_read_input_tokens, plain);
});

test("a tool is used with arguments by its schema, and its result goes back", async () => {
  const tools = [
    {
      name: "get_weather",
      description: "Weather of a city",
      input_schema: {
        type: "object",
        properties: { city: { type: "string", maxLength: 12 }, unit: { enum: ["C", "F"] } },
        required: ["city", "unit"],
        additionalProperties: false,
      },
    },
  ];
  const body = {
    ...ask,
    max_tokens: 200,
    tools,
    tool_choice: { type: "tool", name: "get_weather" },
    messages: user("How warm is it in Rome?"),
  };
  const m = await client.messages.create(body);
  const use = m.content.at(-1);
  assert.equal(m.stop_reason, "tool_use");
  assert.equal(use.type, "tool_use");
  assert.equal(use.name, "get_weather");
  assert.deepEqual(Object.keys(use.input).sort(), ["city", "unit"]);
  assert.ok(["C", "F"].includes(use.input.unit));
  const streamed = await client.messages.stream(body).finalMessage();
  assert.deepEqual(streamed.content.at(-1).input, use.input);
  const back = await client.messages.create({
    ...ask,
    tools,
    messages: [
      ...user("How warm is it in Rome?"),
      { role: "assistant", content: [use] },
      { role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: "31 degrees" }] },
    ],
  });
  assert.ok(back.usage.input_tokens > 0);
});

test("says how much room the queue has, as OpenAI's endpoints do", async () => {
  const r = await post(server, "/v1/messages", { ...ask, max_tokens: 4, messages: user("Hello!") });
  assert.ok(Number(r.headers.get("x-ratelimit-limit-requests")) > 0);
});

test("errors are Anthropic's", async () => {
  await assert.rejects(
    client.messages.create({ ...ask, model: "nobody", messages: user("x") }),
    (e) => e instanceof Anthropic.NotFoundError && e.error.error.type === "not_found_error",
  );
  await assert.rejects(
    client.messages.create({ ...ask, temperature: 9, messages: user("x") }),
    (e) => e instanceof Anthropic.BadRequestError && e.error.error.param === "temperature",
  );
  const wrong = [
    [{ messages: user("x") }, "max_tokens"],
    [{ max_tokens: 4, messages: [{ role: "system", content: "x" }] }, "messages[0].role"],
    [
      { max_tokens: 4, messages: [{ role: "user", content: [{ type: "image", source: {} }] }] },
      "messages[0].content[0].type",
    ],
    [{ max_tokens: 4, messages: user("x"), stop_sequences: [""] }, "stop_sequences[0]"],
    [{ max_tokens: 4, messages: user("x"), stop_sequences: ["y", "x".repeat(4097)] }, "stop_sequences[1]"],
    [{ max_tokens: 4, messages: user("x"), tools: [[1]] }, "tools[0]"],
    [
      {
        max_tokens: 4,
        messages: user("x"),
        tools: [{ name: "f", input_schema: {} }],
        tool_choice: { type: "auto", name: "f" },
      },
      "tool_choice.name",
    ],
    [{ max_tokens: 4, messages: user([{ type: "text", text: "x", content: "y" }]) }, "messages[0].content[0].content"],
    [{ max_tokens: 4, messages: user("x"), system: [{ type: "text", text: "x", input: {} }] }, "system[0].input"],
    [{ max_tokens: 4, messages: user("x"), thinking: { type: "enabled", budget_tokens: 1024 } }, "thinking"],
    [{ max_tokens: 4, messages: user("x"), container: "c" }, "container"],
    [{ max_tokens: 4, messages: user("x"), tools: [{ type: "bash_20250124", name: "bash" }] }, "tools[0].type"],
    [{ max_tokens: 4, messages: user("x"), surprise: 1 }, "surprise"],
  ];
  for (const [body, param] of wrong) {
    const r = await post(server, "/v1/messages", { model: modelName, ...body });
    const { type, error } = await r.json();
    assert.deepEqual([r.status, type, error.type, error.param], [400, "error", "invalid_request_error", param]);
  }
});
