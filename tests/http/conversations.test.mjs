// /v1/conversations with the official SDK: their items, and responses that belong to one.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { validate } from "./openapi.mjs";
import { modelName, post, startServer } from "./server.mjs";

const model = modelName;
let server, client, conversations;
const connect = (s, apiKey = "none") => new OpenAI({ baseURL: s.url + "/v1", apiKey, maxRetries: 0 });
before(async () => {
  server = await startServer();
  client = connect(server);
  conversations = client.conversations;
});
after(() => server.stop());

const say = (content, role = "user") => ({ type: "message", role, content });
const textsOf = (items) => items.map((i) => i.content.map((p) => p.text).join(""));
const allItems = async (id, query = { order: "asc" }) => {
  const items = [];
  for await (const item of conversations.items.list(id, query)) items.push(item);
  return items;
};
const notFound = { status: 404, message: /Conversation with id 'conv_[^']*' not found/ };

test("a conversation is created, retrieved, updated and deleted", async () => {
  const made = await conversations.create({ metadata: { topic: "é" }, items: [say("one")] });
  assert.match(made.id, /^conv_/);
  assert.equal(made.object, "conversation");
  assert.deepEqual(made.metadata, { topic: "é" });
  assert.deepEqual(await conversations.retrieve(made.id), made);
  const changed = await conversations.update(made.id, { metadata: { topic: "b", more: "c" } });
  assert.deepEqual(changed, { ...made, metadata: { topic: "b", more: "c" } });
  assert.deepEqual(await conversations.retrieve(made.id), changed);
  assert.deepEqual(textsOf(await allItems(made.id)), ["one"]);
  assert.deepEqual(await conversations.delete(made.id), {
    id: made.id,
    object: "conversation.deleted",
    deleted: true,
  });
  for (const gone of [
    () => conversations.retrieve(made.id),
    () => conversations.update(made.id, { metadata: {} }),
    () => conversations.delete(made.id),
    () => allItems(made.id),
    () => conversations.items.create(made.id, { items: [say("x")] }),
    () => client.responses.create({ model, input: "x", conversation: made.id }),
  ])
    await assert.rejects(gone, notFound);
  const empty = await conversations.create();
  assert.deepEqual([empty.metadata, await allItems(empty.id)], [{}, []]);
});

test("items are added, listed in pages, retrieved and deleted", async () => {
  const { id } = await conversations.create({ items: [say("0")] });
  const added = await conversations.items.create(id, {
    items: [say("1"), say([{ type: "output_text", text: "2", annotations: [] }], "assistant")],
  });
  assert.deepEqual(textsOf(added.data), ["1", "2"]);
  assert.deepEqual([added.first_id, added.last_id, added.has_more], [added.data[0].id, added.data[1].id, false]);
  for (let i = 3; i < 30; i++) await conversations.items.create(id, { items: [say(String(i))] });
  const all = await allItems(id);
  assert.deepEqual(
    textsOf(all),
    Array.from({ length: 30 }, (_, i) => String(i)),
  );
  const newest = await conversations.items.list(id);
  assert.deepEqual(
    textsOf(newest.data),
    Array.from({ length: 20 }, (_, i) => String(29 - i)),
  );
  const page = await conversations.items.list(id, {
    after: all[4].id,
    limit: 2,
    order: "asc",
    include: ["reasoning.encrypted_content"],
  });
  assert.deepEqual(textsOf(page.data), ["5", "6"]);

  assert.deepEqual(await conversations.items.retrieve(all[2].id, { conversation_id: id }), all[2]);
  const left = await conversations.items.delete(all[2].id, { conversation_id: id });
  assert.equal(left.id, id);
  assert.deepEqual(await allItems(id), all.toSpliced(2, 1));
  await assert.rejects(conversations.items.retrieve(all[2].id, { conversation_id: id }), { status: 404 });
  await assert.rejects(conversations.items.delete(all[2].id, { conversation_id: id }), { status: 404 });

  for (const [query, param] of [
    ["limit=0", "limit"],
    ["order=up", "order"],
    ["after=msg_none", "after"],
    ["x=1", "x"],
  ]) {
    const wrong = await fetch(`${server.url}/v1/conversations/${id}/items?${query}`);
    assert.equal(wrong.status, 400, query);
    assert.equal((await wrong.json()).error.param, param);
  }
  for (const [items, param] of [
    [[], "items"],
    [[{ role: "user", content: [{ type: "input_image", image_url: "x" }] }], "items[0].content[0].type"],
    [[say("x"), { ...say("y"), role: 1 }], "items[1].role"],
    [[{ ...say("x"), id: all[0].id }], "items"],
  ]) {
    const wrong = await post(server, `/v1/conversations/${id}/items`, { items });
    assert.equal(wrong.status, 400, JSON.stringify(items));
    assert.equal((await wrong.json()).error.param, param);
  }
  const pairs = Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, "v"]));
  await assert.rejects(conversations.create({ metadata: pairs }), { status: 400, param: "metadata" });
});

test("a response continues a conversation and adds to it", async () => {
  const { id } = await conversations.create({ items: [say("Hello.")] });
  const ask = { model, max_output_tokens: 8, temperature: 0 };
  const whole = await post(server, "/v1/responses", { ...ask, input: "One.", conversation: id });
  const first = validate("Response", await whole.json());
  assert.deepEqual(first.conversation, { id });
  const same = await client.responses.create({
    ...ask,
    input: [say("Hello."), say("One.")],
  });
  assert.deepEqual(textsOf(first.output), textsOf(same.output));
  assert.equal(first.usage.input_tokens, same.usage.input_tokens, "its items come before the input");
  let items = await allItems(id);
  assert.deepEqual(textsOf(items).slice(0, 2), ["Hello.", "One."]);
  assert.deepEqual(
    items.slice(2).map((i) => [i.id, i.role]),
    first.output.map((i) => [i.id, "assistant"]),
  );

  let streamed;
  for await (const event of await client.responses.create({
    ...ask,
    input: "Two.",
    conversation: { id },
    stream: true,
    store: false,
  }))
    if (event.response) streamed = event.response;
  assert.deepEqual([streamed.conversation, streamed.store], [{ id }, false]);
  items = await allItems(id);
  assert.equal(textsOf(items)[3], "Two.");
  assert.equal(items.at(-1).id, streamed.output.at(-1).id);
  assert.equal(streamed.usage.input_tokens > first.usage.input_tokens, true);
  const count = await post(server, "/v1/responses/input_tokens", { model, conversation: id });
  assert.ok((await count.json()).input_tokens > streamed.usage.input_tokens);

  const both = { ...ask, input: "x", conversation: id, previous_response_id: first.id };
  await assert.rejects(client.responses.create(both), { status: 400, param: "conversation" });
  const failed = await post(server, "/v1/responses", { ...ask, input: "x", conversation: id, temperature: 9 });
  assert.equal(failed.status, 400);
  assert.equal((await allItems(id)).length, items.length, "a refused request adds nothing");
});

test("responses of one conversation at the same time all add their items", async () => {
  const { id } = await conversations.create();
  const answers = await Promise.all(
    Array.from({ length: 6 }, (_, i) =>
      client.responses.create({ model, input: `q${i}`, max_output_tokens: 2, conversation: id }),
    ),
  );
  const items = await allItems(id);
  assert.equal(items.length, 12);
  for (const a of answers) assert.equal(items.filter((i) => i.id === a.output[0].id).length, 1);
  await Promise.all(items.slice(0, 4).map((i) => conversations.items.delete(i.id, { conversation_id: id })));
  assert.deepEqual(await allItems(id), items.slice(4));
});

test("tool calls in a conversation", async () => {
  const { id } = await conversations.create();
  const tools = [
    {
      type: "function",
      name: "now",
      parameters: { type: "object", properties: {}, additionalProperties: false },
      strict: true,
    },
  ];
  const ask = { model, tools, conversation: id, max_output_tokens: 60 };
  const called = await client.responses.create({
    ...ask,
    input: "x",
    tool_choice: "required",
    parallel_tool_calls: false,
  });
  const call = called.output.find((i) => i.type === "function_call");
  const output = { type: "function_call_output", call_id: call.call_id, output: "noon" };
  const answered = await client.responses.create({ ...ask, input: [output], tool_choice: "none" });
  const types = (await allItems(id)).map((i) => i.type);
  assert.deepEqual(types.slice(0, 3), ["message", "function_call", "function_call_output"]);
  assert.equal(types.length, 3 + answered.output.length);
});

test("a conversation is its key's own and needs a store", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inferd-conv-"));
  const keys = join(folder, "keys");
  writeFileSync(keys, "key-a-0123456789abcdef\nkey-b-0123456789abcdef\n", { mode: 0o600 });
  const args = ["--api-key-file", keys];
  const one = await startServer(args);
  try {
    const [a, b] = ["key-a-0123456789abcdef", "key-b-0123456789abcdef"].map((k) => connect(one, k));
    const { id } = await a.conversations.create({ items: [say("mine")] });
    await assert.rejects(b.conversations.retrieve(id), notFound);
    await assert.rejects(b.conversations.items.list(id), notFound);
    await assert.rejects(b.conversations.items.create(id, { items: [say("x")] }), notFound);
    await assert.rejects(b.conversations.delete(id), notFound);
    await assert.rejects(b.responses.create({ model, input: "x", conversation: id }), notFound);
    assert.equal((await a.conversations.items.list(id)).data.length, 1);
    const response = await a.responses.create({ model, input: "x", max_output_tokens: 1 });
    await assert.rejects(a.conversations.retrieve(response.id), { status: 404 });
    await assert.rejects(a.responses.retrieve(id), { status: 404 });
    const anonymous = await fetch(`${one.url}/v1/conversations/${id}`);
    assert.equal(anonymous.status, 401);
  } finally {
    await one.stop();
    rmSync(folder, { recursive: true });
  }
  const off = await startServer(["--responses-ttl-s", "0"]);
  try {
    await assert.rejects(connect(off).conversations.create(), { status: 400, message: /does not store/ });
    await assert.rejects(connect(off).responses.create({ model, input: "x", conversation: "conv_x" }), notFound);
  } finally {
    await off.stop();
  }
});
