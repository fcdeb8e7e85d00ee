// /v1/responses with the official SDK: answers, events, stored responses, refusals; every body and
// event against OpenAI's specification.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { extract, print } from "../../scripts/openapi-schemas.mjs";
import { validate, validateEvent } from "./openapi.mjs";
import { modelName, post, startServer, until } from "./server.mjs";

const model = modelName;
let server, client;
const connect = (s, apiKey = "none") => new OpenAI({ baseURL: s.url + "/v1", apiKey, maxRetries: 0 });
before(async () => {
  server = await startServer();
  client = connect(server);
});
after(() => server.stop());

const create = async (body, on = server) => {
  const response = await post(on, "/v1/responses", { model, ...body });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return validate("Response", JSON.parse(text));
};
const textOf = (response) =>
  response.output
    .filter((i) => i.type === "message")
    .flatMap((i) => i.content)
    .map((p) => p.text)
    .join("");
const get = async (path, on = server, headers = {}) => {
  const response = await fetch(on.url + path, { headers });
  return { status: response.status, body: await response.json() };
};

// Events as sent: [{event, data}]; besides them only comments are allowed.
async function events(body, on = server) {
  const response = await post(on, "/v1/responses", { model, stream: true, ...body });
  assert.equal(response.status, 200);
  assert.match(response.headers.get("content-type"), /^text\/event-stream/);
  const list = [];
  for (const frame of (await response.text()).split("\n\n")) {
    if (!frame || frame.startsWith(":")) continue;
    const match = /^id: (\S+)\nevent: (\S+)\ndata: (.*)$/.exec(frame);
    assert.ok(match, frame);
    const data = JSON.parse(match[3]);
    assert.equal(data.type, match[2], "the event's name is its type");
    assert.equal(data.sequence_number, list.length);
    list.push(validateEvent(data));
  }
  return list;
}

test("the schemas equal OpenAI's specification", (t) => {
  const file = "../shared/data/openai/openapi-inference-subset.json";
  if (!existsSync(file)) return t.skip("no ../shared");
  assert.equal(
    print(extract(JSON.parse(readFileSync(file, "utf8")))),
    readFileSync("tests/data/openai/schemas.json", "utf8"),
  );
});

test("a text input gives the same answer as a chat", async () => {
  const response = await client.responses.create({ model, input: "Tell me a story about a fox.", temperature: 0 });
  const chat = await client.chat.completions.create({
    model,
    messages: [{ role: "user", content: "Tell me a story about a fox." }],
    temperature: 0,
  });
  assert.equal(response.output_text, chat.choices[0].message.content);
  assert.equal(response.status, "completed");
  assert.equal(response.incomplete_details, null);
  assert.equal(response.usage.input_tokens, chat.usage.prompt_tokens);
  assert.equal(response.usage.output_tokens, chat.usage.completion_tokens);
  assert.match(response.id, /^resp_/);
  assert.match(response.output[0].id, /^msg_/);
  assert.ok(response.completed_at >= response.created_at);
});

test("the answer echoes the request's parameters", async () => {
  const body = {
    input: "x",
    instructions: "Be short.",
    max_output_tokens: 3,
    temperature: 0.5,
    top_p: 0.5,
    metadata: { a: "b", ü: "ß" },
    parallel_tool_calls: false,
    seed: 1,
    user: "somebody",
    max_tool_calls: 4,
    truncation: "disabled",
    service_tier: "auto",
  };
  const response = await create(body);
  for (const name of [
    "instructions",
    "max_output_tokens",
    "temperature",
    "top_p",
    "metadata",
    "parallel_tool_calls",
    "user",
    "max_tool_calls",
    "truncation",
  ])
    assert.deepEqual(response[name], body[name], name);
  assert.equal(response.status, "incomplete");
  assert.deepEqual(response.incomplete_details, { reason: "max_output_tokens" });
  assert.equal(response.output[0].status, "incomplete");
  assert.equal(response.usage.output_tokens, 3);
  assert.deepEqual(response.text, { format: { type: "text" } });
  assert.equal(response.tool_choice, "auto");
  assert.equal(response.store, true);
});

test("log-probabilities, whole and in events", async () => {
  const body = {
    input: "Hello!",
    temperature: 0,
    max_output_tokens: 4,
    include: ["message.output_text.logprobs"],
    top_logprobs: 2,
  };
  const whole = (await create(body)).output[0].content[0];
  assert.equal(whole.logprobs.length, 4);
  for (const l of whole.logprobs) assert.equal(l.top_logprobs.length, 2);
  assert.equal(Buffer.concat(whole.logprobs.map((l) => Buffer.from(l.bytes))).toString(), whole.text);
  const list = await events(body);
  const deltas = list.filter((e) => e.type === "response.output_text.delta");
  assert.deepEqual(
    deltas.flatMap((e) => e.logprobs),
    whole.logprobs,
  );
  assert.deepEqual(list.at(-1).response.output[0].content[0].logprobs, whole.logprobs);
});

test("events come in OpenAI's order", async () => {
  const body = { input: "Tell me a story about a boat.", temperature: 0, max_output_tokens: 4 };
  const whole = await create(body),
    list = await events(body);
  assert.deepEqual(
    list.map((e) => e.type),
    [
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.content_part.added",
      "response.output_text.delta",
      "response.output_text.delta",
      "response.output_text.delta",
      "response.output_text.delta",
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.incomplete",
    ],
  );
  const item = list[2].item.id,
    last = list.at(-1).response;
  for (const e of list.slice(3, 10)) {
    assert.equal(e.item_id, item);
    assert.equal(e.output_index, 0);
    assert.equal(e.content_index, 0);
  }
  const text = list
    .filter((e) => e.type === "response.output_text.delta")
    .map((e) => e.delta)
    .join("");
  assert.equal(text, textOf(whole));
  assert.equal(list[8].text, text);
  assert.equal(list[9].part.text, text);
  assert.equal(list[10].item.content[0].text, text);
  assert.equal(textOf(last), text);
  assert.equal(list[0].response.status, "in_progress");
  assert.deepEqual(list[0].response.output, []);
  assert.equal(last.id, list[0].response.id);
  assert.deepEqual({ ...last.usage, input_tokens_details: 0 }, { ...whole.usage, input_tokens_details: 0 });
  const ended = await events({ input: "Hello!", temperature: 0 });
  assert.equal(ended.at(-1).type, "response.completed");
  assert.equal(ended.at(-1).response.status, "completed");
});

test("the SDK's stream helper collects the response", async () => {
  const stream = client.responses.stream({ model, input: "Hello!", temperature: 0 });
  let text = "";
  stream.on("response.output_text.delta", (e) => {
    text += e.delta;
    assert.equal(e.snapshot, text);
  });
  const final = await stream.finalResponse();
  assert.equal(final.output_text ?? textOf(final), text);
  assert.equal(final.status, "completed");
  assert.ok(text.length > 0);
});

test("items of all kinds become the same conversation as in a chat", async () => {
  const items = [
    { role: "developer", content: "Be kind." },
    {
      role: "user",
      content: [
        { type: "input_text", text: "Tell me" },
        { type: "input_text", text: " a story." },
      ],
    },
    {
      type: "message",
      role: "assistant",
      id: "msg_1",
      status: "completed",
      content: [{ type: "output_text", text: "Once upon a time.", annotations: [], logprobs: [] }],
    },
    { type: "message", role: "user", content: "Go on." },
  ];
  const rendered = await (
    await post(server, "/v1/inferd/render", {
      model,
      messages: [
        { role: "system", content: "Short." },
        { role: "developer", content: "Be kind." },
        {
          role: "user",
          content: [
            { type: "text", text: "Tell me" },
            { type: "text", text: " a story." },
          ],
        },
        { role: "assistant", content: "Once upon a time." },
        { role: "user", content: "Go on." },
      ],
    })
  ).json();
  const counted = await post(server, "/v1/responses/input_tokens", { model, input: items, instructions: "Short." });
  const { input_tokens } = validate("TokenCountsResource", await counted.json());
  assert.equal(input_tokens, rendered.count);
  const response = await create({ input: items, instructions: "Short.", max_output_tokens: 1 });
  assert.equal(response.usage.input_tokens, input_tokens);
  const listed = validate("ResponseItemList", (await get(`/v1/responses/${response.id}/input_items?order=asc`)).body);
  assert.deepEqual(
    listed.data.map((i) => i.role),
    ["developer", "user", "assistant", "user"],
  );
  assert.equal(listed.data[2].id, "msg_1");
});

const weather = {
  type: "function",
  name: "get_weather",
  description: "Weather of a city",
  strict: true,
  parameters: {
    type: "object",
    properties: { city: { enum: ["Rome", "Oslo"] }, days: { enum: [1, 2, 3] } },
    required: ["city", "days"],
    additionalProperties: false,
  },
};

test("function tools: a call, its output, an answer", async () => {
  const ask = { input: "What is the weather?", temperature: 0, tools: [weather], parallel_tool_calls: false };
  for (const tool_choice of [
    "required",
    { type: "function", name: "get_weather" },
    { type: "allowed_tools", mode: "required", tools: [{ type: "function", name: "get_weather" }] },
  ]) {
    const called = await create({ ...ask, tool_choice });
    assert.equal(called.status, "completed");
    const call = called.output.at(-1);
    assert.equal(call.type, "function_call");
    assert.equal(call.status, "completed");
    assert.match(call.id, /^fc_/);
    assert.match(call.call_id, /^call_/);
    const { city, days, ...rest } = JSON.parse(call.arguments);
    assert.ok(["Rome", "Oslo"].includes(city) && [1, 2, 3].includes(days), call.arguments);
    assert.deepEqual(rest, {});
    assert.deepEqual(called.tools, [weather]);
    assert.deepEqual(called.tool_choice, tool_choice);
    const output = { type: "function_call_output", call_id: call.call_id, output: "sunny" };
    const chained = await create({
      ...ask,
      input: [output],
      previous_response_id: called.id,
      tool_choice: "none",
      max_output_tokens: 8,
    });
    assert.equal(chained.output[0].type, "message");
    const whole = await create({
      ...ask,
      input: [{ role: "user", content: ask.input }, ...called.output, output],
      tool_choice: "none",
      max_output_tokens: 8,
    });
    assert.equal(textOf(whole), textOf(chained));
    assert.equal(whole.usage.input_tokens, chained.usage.input_tokens);
    const listed = validate("ResponseItemList", (await get(`/v1/responses/${whole.id}/input_items?order=asc`)).body);
    assert.deepEqual(
      listed.data.map((i) => i.type),
      ["message", ...called.output.map((i) => i.type), "function_call_output"],
    );
    // An output without a call.
    await assert.rejects(
      create({ ...ask, input: [{ ...output, call_id: "call_other" }], previous_response_id: called.id }),
      /No tool call found/,
    );
  }
});

test("events of a function call", async () => {
  const list = await events({
    input: "What is the weather?",
    temperature: 0,
    tools: [weather],
    tool_choice: "required",
    parallel_tool_calls: false,
  });
  const types = list.map((e) => e.type),
    deltas = list.filter((e) => e.type === "response.function_call_arguments.delta");
  assert.ok(deltas.length > 1);
  assert.deepEqual(
    types.filter((t) => t !== "response.function_call_arguments.delta"),
    [
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.function_call_arguments.done",
      "response.output_item.done",
      "response.completed",
    ],
  );
  const done = list.find((e) => e.type === "response.function_call_arguments.done");
  assert.equal(deltas.map((e) => e.delta).join(""), done.arguments);
  assert.equal(list[2].item.arguments, "");
  assert.equal(list[2].item.name, "get_weather");
  for (const e of deltas) assert.equal(e.item_id, list[2].item.id);
  assert.deepEqual(list.at(-1).response.output[0], list.at(-2).item);
  const stream = client.responses.stream({
    model,
    input: "What is the weather?",
    temperature: 0,
    tools: [weather],
    tool_choice: "required",
    parallel_tool_calls: false,
  });
  const final = await stream.finalResponse();
  assert.equal(final.output[0].arguments, done.arguments);
});

test("text.format: a schema is enforced, and the SDK parses the answer", async () => {
  const shape = z.object({
    name: z.enum(["Ann", "Bo"]),
    age: z.union([z.literal(1), z.literal(2)]),
    tags: z.array(z.enum(["a", "b"])).max(2),
  });
  for (const temperature of [0, 1, 2]) {
    const response = await client.responses.parse({
      model,
      input: "Describe somebody.",
      temperature,
      seed: 3,
      text: { format: zodTextFormat(shape, "person") },
    });
    assert.equal(response.status, "completed", response.output_text);
    assert.deepEqual(shape.parse(JSON.parse(response.output_text)), response.output_parsed);
  }
  const called = await client.responses.parse({
    model,
    input: "x",
    temperature: 0,
    tool_choice: "required",
    parallel_tool_calls: false,
    tools: [zodResponsesFunction({ name: "save", parameters: shape })],
  });
  shape.parse(JSON.parse(called.output[0].arguments));
  const object = await create({
    input: "x",
    text: { format: { type: "json_object" } },
    max_output_tokens: 60,
    seed: 1,
  });
  assert.ok(object.status === "incomplete" || JSON.parse(textOf(object)) !== null);
  assert.match(textOf(object), /^\{/);
});

test("obfuscation hides the length of deltas if requested", async () => {
  const body = { input: "Hello!", temperature: 0, max_output_tokens: 6 };
  const deltas = async (options) => (await events({ ...body, ...options })).filter((e) => e.type.endsWith(".delta"));
  assert.ok((await deltas({})).every((e) => e.obfuscation === undefined));
  assert.ok(
    (await deltas({ stream_options: { include_obfuscation: true } })).every((e) => typeof e.obfuscation === "string"),
  );
});

test("a conversation of three responses", async () => {
  const first = await create({ input: "Hello!", temperature: 0, instructions: "Be kind." });
  const second = await create({ input: "How are you?", temperature: 0, previous_response_id: first.id });
  const third = await create({ input: "Tell me more.", temperature: 0, previous_response_id: second.id });
  assert.equal(third.previous_response_id, second.id);
  assert.equal(second.instructions, null, "instructions are of one response");
  const messages = [
    { role: "user", content: "Hello!" },
    { role: "assistant", content: textOf(first) },
    { role: "user", content: "How are you?" },
    { role: "assistant", content: textOf(second) },
    { role: "user", content: "Tell me more." },
  ];
  const chat = await client.chat.completions.create({ model, messages, temperature: 0 });
  assert.equal(textOf(third), chat.choices[0].message.content);
  assert.equal(third.usage.input_tokens, chat.usage.prompt_tokens);
  // The same with the items sent back, and with references to them.
  const [asked] = (await client.responses.inputItems.list(first.id)).data;
  const again = await create({
    temperature: 0,
    input: [
      asked,
      ...first.output,
      { role: "user", content: "How are you?" },
      ...second.output,
      { role: "user", content: "Tell me more." },
    ],
  });
  assert.equal(textOf(again), textOf(third));
  const referred = await create({
    temperature: 0,
    input: [
      { type: "item_reference", id: asked.id },
      { id: first.output[0].id },
      { role: "user", content: "How are you?" },
      { type: "item_reference", id: second.output[0].id },
      { role: "user", content: "Tell me more." },
    ],
  });
  assert.equal(textOf(referred), textOf(third));
  // Deleting a response in the middle makes the conversation unavailable.
  await client.responses.delete(second.id);
  await assert.rejects(create({ input: "x", previous_response_id: third.id }), /not stored any more/);
  assert.equal(
    (await create({ input: "x", previous_response_id: first.id, max_output_tokens: 1 })).status,
    "incomplete",
  );
});

test("stored responses: retrieved, listed, deleted", async () => {
  const input = Array.from({ length: 5 }, (_, i) => ({ role: "user", content: `item ${i}` }));
  const made = await create({ input, max_output_tokens: 2, metadata: { k: "v" } });
  const { body } = await get(`/v1/responses/${made.id}`);
  assert.deepEqual(validate("Response", body), made);
  const read = await client.responses.retrieve(made.id, { include: ["message.output_text.logprobs"] });
  assert.equal(read.output_text, textOf(made));
  const texts = [];
  for await (const item of client.responses.inputItems.list(made.id, { limit: 2, order: "asc" }))
    texts.push(item.content[0].text);
  assert.deepEqual(
    texts,
    input.map((i) => i.content),
  );
  const page = validate("ResponseItemList", (await get(`/v1/responses/${made.id}/input_items?limit=2`)).body);
  assert.deepEqual(
    page.data.map((i) => i.content[0].text),
    ["item 4", "item 3"],
  );
  assert.equal(page.has_more, true);
  const next = (await get(`/v1/responses/${made.id}/input_items?limit=3&after=${page.last_id}`)).body;
  assert.deepEqual(
    next.data.map((i) => i.content[0].text),
    ["item 2", "item 1", "item 0"],
  );
  assert.equal(next.has_more, false);
  for (const [query, param] of [
    ["limit=0", "limit"],
    ["limit=101", "limit"],
    ["limit=x", "limit"],
    ["order=up", "order"],
    ["after=nobody", "after"],
    ["before=x", "before"],
    ["include[]=reasoning.encrypted_content", "include"],
  ]) {
    const {
      status,
      body: { error },
    } = await get(`/v1/responses/${made.id}/input_items?${query}`);
    assert.equal(status, 400, query);
    assert.equal(error.param, param);
  }
  assert.equal((await get(`/v1/responses/${made.id}?stream=true`)).body.error.param, "stream");
  await assert.rejects(client.responses.cancel(made.id), (e) => e instanceof OpenAI.BadRequestError);
  const deleted = await fetch(`${server.url}/v1/responses/${made.id}`, { method: "DELETE" });
  assert.deepEqual(await deleted.json(), { id: made.id, object: "response", deleted: true });
  await assert.rejects(client.responses.retrieve(made.id), OpenAI.NotFoundError);
  await assert.rejects(client.responses.delete(made.id), OpenAI.NotFoundError);
  await assert.rejects(client.responses.inputItems.list(made.id), OpenAI.NotFoundError);
  const put = await fetch(`${server.url}/v1/responses/${made.id}`, { method: "PUT" });
  assert.equal(put.status, 405);
  assert.equal(put.headers.get("allow"), "GET, HEAD, DELETE");
});

test("store: false stores nothing", async () => {
  const made = await create({ input: "x", max_output_tokens: 1, store: false });
  assert.equal(made.store, false);
  assert.equal((await get(`/v1/responses/${made.id}`)).status, 404);
  await assert.rejects(create({ input: "y", previous_response_id: made.id }), /previous_response_not_found/);
});

test("an invalid request's error names the field", async () => {
  const part = (p) => ({ input: [{ role: "user", content: [p] }] });
  const tool = { type: "function", name: "f", parameters: { type: "object", properties: {} } };
  const cases = [
    [{}, "input"],
    [{ input: [] }, "input"],
    [{ input: 5 }, "input"],
    [{ input: [5] }, "input[0]"],
    [{ input: [{ role: "nobody", content: "x" }] }, "input[0].role"],
    [{ input: [{ role: "user" }] }, "input[0].content"],
    [{ input: [{ role: "user", content: "x", id: "a b" }] }, "input[0].id"],
    [
      { input: [{ type: "computer_call_output", call_id: "y", output: { type: "computer_screenshot" } }] },
      "input[0].type",
    ],
    [{ input: [{ type: "input_image", image_url: "http://x" }] }, "input[0].type"],
    [{ input: [{ type: "of_tomorrow", role: "user", content: "x" }] }, "input[0].type"],
    [{ input: "x", tools: [{ type: "computer_use_preview" }] }, "tools[0].type"],
    [{ input: [{ type: "item_reference", id: "msg_nobody" }] }, "input[0].id"],
    [{ input: [{ type: "function_call_output", call_id: "call_x", output: "1" }] }, "input"],
    [
      {
        input: [
          { id: "msg_1", role: "user", content: "x" },
          { id: "msg_1", role: "user", content: "y" },
        ],
      },
      "input",
    ],
    [part({ type: "input_image", image_url: "http://x" }), "input[0].content[0].type"],
    [part({ type: "input_text" }), "input[0].content[0].text"],
    [part({ type: "output_text", text: "x" }), "input[0].content[0].type"],
    [{ input: "x", top_logprobs: 2 }, "top_logprobs"],
    [{ input: "x", metadata: { a: 1 } }, "metadata.a"],
    [{ input: "x", metadata: 5 }, "metadata"],
    [{ input: "x", metadata: { a: "x".repeat(513) } }, "metadata.a"],
    [{ input: "x", metadata: { ["k".repeat(65)]: "x" } }, "metadata"],
    [{ input: "x", metadata: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, "x"])) }, "metadata"],
    [{ input: "x", background: true }, "background"],
    [{ input: "x", conversation: 1 }, "conversation"],
    [{ input: "x", text: { format: { type: "xml" } } }, "text.format.type"],
    [{ input: "x", text: { format: { type: "json_schema", name: "x" } } }, "text.format.schema"],
    [{ input: "x", tools: [{ type: "function" }] }, "tools[0].name"],
    [{ input: "x", tools: [{ ...tool, name: "a b" }] }, "tools[0].name"],
    [{ input: "x", tools: [tool, tool] }, "tools[1].name"],
    [{ input: "x", tool_choice: "required" }, "tool_choice"],
    [{ input: "x", tools: [tool], tool_choice: "sometimes" }, "tool_choice"],
    [{ input: "x", tools: [tool], tool_choice: { type: "function", name: "g" } }, "tool_choice"],
    [{ input: "x", tools: [tool], tool_choice: { type: "function" } }, "tool_choice.name"],
    [
      {
        input: "x",
        tools: [tool],
        tool_choice: { type: "allowed_tools", mode: "auto", tools: [{ type: "function", name: "g" }] },
      },
      "tool_choice.tools[0].name",
    ],
    [{ input: "x", tools: [tool], tool_choice: { type: "mcp", server_label: "x" } }, "tool_choice.type"],
    [{ input: "x", tools: [{ ...tool, parameters: { type: "nope" } }] }, "tools[0].parameters"],
    [{ input: "x", text: { format: { type: "json_schema", name: "x", schema: { type: 5 } } } }, "text.format.schema"],
    [{ input: "x", text: { format: { type: "text", schema: {} } } }, "text.format.schema"],
    [{ input: "x", previous_response_id: "resp_nobody" }, "previous_response_id"],
    [{ input: "word ".repeat(20000) }, "input"],
  ];
  for (const [body, param] of cases) {
    const response = await post(server, "/v1/responses", { model, ...body });
    const text = await response.text();
    assert.equal(response.status, 400, `${JSON.stringify(body).slice(0, 200)}: ${text}`);
    const { error } = validate("ErrorResponse", JSON.parse(text));
    assert.equal(error.param, param, `${JSON.stringify(body).slice(0, 200)}: ${text}`);
  }
});

test("advisory fields are accepted and named", async () => {
  const item = (i) => ({ input: [i, { role: "user", content: "x" }] });
  const cases = [
    [item({ role: "user", content: "x", phase: "final_answer" }), "input[0].phase"],
    [item({ role: "user", content: [{ type: "input_text", text: "x", more: 1 }] }), "input[0].content[0].more"],
    [item({ type: "reasoning", summary: [], encrypted_content: "x" }), "input[0].encrypted_content"],
    [item({ type: "web_search_call", id: "ws_1", status: "completed" }), "input[0]"],
    [{ input: "x", include: ["file_search_call.results"] }, "include[0]"],
    [{ input: "x", truncation: "auto", client_metadata: { a: "b" } }, "truncation, client_metadata"],
    [{ input: "x", reasoning: { summary: "detailed", effort: "high" } }, "reasoning.summary, reasoning.effort"],
    [{ input: "x", text: { verbosity: "low" } }, "text.verbosity"],
    [{ input: "x", stream_options: {} }, null],
    [{ input: "x", stream_options: { include_obfuscation: true } }, "stream_options"],
    [{ input: "x", stream: true, stream_options: { include_usage: true } }, "stream_options.include_usage"],
    [{ input: "x", tools: [{ type: "web_search", filters: {} }] }, "tools[0]"],
  ];
  for (const [body, names] of cases) {
    const response = await post(server, "/v1/responses", { model, max_output_tokens: 1, ...body });
    const text = await response.text();
    assert.equal(response.status, 200, `${JSON.stringify(body)}: ${text}`);
    assert.equal(response.headers.get("x-inferd-ignored-fields"), names, JSON.stringify(body));
  }
  const labels = { user: "u", safety_identifier: "s", prompt_cache_key: "k" };
  const echo = await create({ input: "x", max_output_tokens: 1, tools: [{ type: "web_search" }], ...labels });
  assert.deepEqual([echo.tools, echo.user, echo.safety_identifier, echo.prompt_cache_key], [[], "u", "s", "k"]);
});

test("stored responses survive a restart, also one by SIGKILL", async () => {
  const own = await startServer();
  try {
    const made = await create({ input: "Hello!", temperature: 0 }, own);
    await own.restart("SIGKILL");
    assert.deepEqual((await get(`/v1/responses/${made.id}`, own)).body, made);
    const next = await create({ input: "And you?", previous_response_id: made.id, temperature: 0 }, own);
    assert.ok(next.usage.input_tokens > made.usage.input_tokens + made.usage.output_tokens);
    await own.restart();
    assert.deepEqual((await get(`/v1/responses/${next.id}`, own)).body, next);
    assert.equal((await get(`/v1/responses/${made.id}/input_items`, own)).body.data[0].content[0].text, "Hello!");
  } finally {
    await own.stop();
  }
});

test("a response expires", async () => {
  const short = await startServer(["--responses-ttl-s", "1"]);
  try {
    const made = await create({ input: "Hello!", max_output_tokens: 1 }, short);
    await until(async () => (await get(`/v1/responses/${made.id}`, short)).status === 404, "it expires");
    await assert.rejects(create({ input: "x", previous_response_id: made.id }, short), /not found/);
  } finally {
    await short.stop();
  }
});

test("a key that fills the store evicts its own responses, not another key's", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inferd-keys-")),
    file = join(folder, "keys");
  writeFileSync(file, "key-one\nkey-two\n", { mode: 0o600 });
  const keyed = await startServer(["--api-key-file", file, "--responses-max-bytes", "256K"]);
  try {
    const [one, two] = [connect(keyed, "key-one"), connect(keyed, "key-two")];
    const small = { model, input: "x", max_output_tokens: 1 };
    const kept = await one.responses.create(small);
    const flood = [];
    for (let i = 0; i < 120; i++) flood.push((await two.responses.create(small)).id);
    await assert.rejects(two.responses.retrieve(flood[0]), OpenAI.NotFoundError);
    assert.equal((await two.responses.retrieve(flood.at(-1))).id, flood.at(-1));
    assert.equal((await one.responses.retrieve(kept.id)).id, kept.id);
    assert.equal(
      (await one.responses.create({ ...small, previous_response_id: kept.id })).previous_response_id,
      kept.id,
    );
    const gone = (e) =>
      e.status === 400 &&
      e.code === "previous_response_not_found" &&
      e.param === "previous_response_id" &&
      e.message.includes(flood[0]);
    await assert.rejects(two.responses.create({ ...small, previous_response_id: flood[0] }), gone);
  } finally {
    await keyed.stop();
    rmSync(folder, { recursive: true });
  }
});

test("a response is visible to its key only", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inferd-keys-")),
    file = join(folder, "keys");
  writeFileSync(file, "key-one\nkey-two\n", { mode: 0o600 });
  const keyed = await startServer(["--api-key-file", file]);
  try {
    const [one, two] = [connect(keyed, "key-one"), connect(keyed, "key-two")];
    const made = await one.responses.create({ model, input: "x", max_output_tokens: 1 });
    assert.equal((await one.responses.retrieve(made.id)).id, made.id);
    await assert.rejects(two.responses.retrieve(made.id), OpenAI.NotFoundError);
    await assert.rejects(two.responses.delete(made.id), OpenAI.NotFoundError);
    await assert.rejects(
      two.responses.create({ model, input: "x", previous_response_id: made.id }),
      (e) => e.code === "previous_response_not_found",
    );
    await assert.rejects(
      two.responses.create({ model, input: [{ type: "item_reference", id: made.output[0].id }] }),
      (e) => e.param === "input[0].id",
    );
    assert.equal((await get(`/v1/responses/${made.id}`, keyed)).status, 401);
    await one.responses.delete(made.id);
  } finally {
    await keyed.stop();
    rmSync(folder, { recursive: true });
  }
});

test("a limit in bytes: the oldest responses are evicted", async () => {
  const small = await startServer(["--responses-max-bytes", "128K"]);
  try {
    const ids = [];
    for (let i = 0; i < 24; i++)
      ids.push((await create({ input: `${i} ${"x ".repeat(1000)}`, max_output_tokens: 1 }, small)).id);
    assert.equal((await get(`/v1/responses/${ids[0]}`, small)).status, 404);
    assert.equal((await get(`/v1/responses/${ids.at(-1)}`, small)).status, 200);
    // A response that is too large is answered but not stored.
    const large = await create({ input: "x ".repeat(5000), max_output_tokens: 1 }, small);
    assert.equal(large.store, false);
    assert.equal((await get(`/v1/responses/${large.id}`, small)).status, 404);
    assert.match(small.stderr, /is not stored: the response has \d+ bytes/);
  } finally {
    await small.stop();
  }
});

test("without a store: refused if required, otherwise reported", async () => {
  const none = await startServer(["--responses-ttl-s", "0"]);
  try {
    assert.equal((await create({ input: "x", max_output_tokens: 1 }, none)).store, false);
    const refused = await post(none, "/v1/responses", { model, input: "x", store: true });
    assert.equal(refused.status, 400);
    assert.equal((await refused.json()).error.param, "store");
    assert.equal((await get("/v1/responses/resp_x", none)).status, 404);
  } finally {
    await none.stop();
  }
});

test("fields of coding tools are accepted, and echoed as by OpenAI", async () => {
  const r = await post(server, "/v1/responses", {
    model: modelName,
    input: "Hello!",
    max_output_tokens: 8,
    store: false,
    include: ["reasoning.encrypted_content"],
    prompt_cache_key: "p",
    safety_identifier: "s",
  });
  const body = await r.json();
  assert.deepEqual([r.status, body.prompt_cache_key, body.safety_identifier], [200, "p", "s"], JSON.stringify(body));
});
