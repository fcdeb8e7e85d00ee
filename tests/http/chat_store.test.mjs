// Stored chat completions with the official SDK: store, list, get, update, delete, messages.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { validate } from "./openapi.mjs";
import { chat, modelName, startServer, user } from "./server.mjs";

const model = modelName;
let server, client, chats;
const connect = (s, apiKey = "none") => new OpenAI({ baseURL: s.url + "/v1", apiKey, maxRetries: 0 });
before(async () => {
  server = await startServer();
  client = connect(server);
  chats = client.chat.completions;
});
after(() => server.stop());

const ask = { model, messages: user("Hello."), max_tokens: 6, temperature: 0 };
const allChats = async (query) => {
  const list = [];
  for await (const one of chats.list(query)) list.push(one);
  return list;
};
const ids = (list) => list.map((c) => c.id);
const ignoredOf = (response) => response.headers.get("x-inferd-ignored-fields");

test("a completion is stored, retrieved, updated and deleted", async () => {
  const made = await chats.create({ ...ask, store: true, metadata: { a: "é" } });
  const kept = validate("CreateChatCompletionResponse", await chats.retrieve(made.id));
  assert.deepEqual(kept, { ...made, metadata: { a: "é" } });
  const changed = await chats.update(made.id, { metadata: { b: "2" } });
  assert.deepEqual(changed, { ...kept, metadata: { b: "2" } });
  assert.deepEqual(await chats.retrieve(made.id), changed);
  assert.deepEqual(ids(await allChats({ metadata: { b: "2" } })), [made.id]);
  assert.deepEqual(await allChats({ metadata: { a: "é" } }), []);
  validate("ChatCompletionDeleted", await chats.delete(made.id));
  for (const gone of [
    () => chats.retrieve(made.id),
    () => chats.delete(made.id),
    () => chats.update(made.id, { metadata: {} }),
    () => chats.messages.list(made.id),
  ])
    await assert.rejects(gone, { status: 404, message: /not found/ });
  for (const more of [{}, { store: false }]) {
    const other = await chats.create({ ...ask, ...more });
    await assert.rejects(chats.retrieve(other.id), { status: 404 });
  }
});

test("a stream is stored as the whole answer is", async () => {
  const tools = [
    {
      type: "function",
      function: { name: "now", parameters: { type: "object", properties: {}, additionalProperties: false } },
    },
  ];
  for (const more of [{ n: 2 }, { tools, tool_choice: "required", max_tokens: 60, parallel_tool_calls: false }]) {
    const body = { ...ask, seed: 1, ...more, store: true };
    const whole = await chats.create(body);
    let id;
    for await (const chunk of await chats.create({ ...body, stream: true })) id = chunk.id;
    const kept = validate("CreateChatCompletionResponse", await chats.retrieve(id));
    const plain = (c) => JSON.parse(JSON.stringify(c.choices).replace(/call_\w+/g, "call"));
    assert.deepEqual(plain(kept), plain(whole));
    assert.deepEqual([kept.object, kept.metadata], ["chat.completion", {}]);
    assert.equal(kept.usage.completion_tokens, whole.usage.completion_tokens);
    await Promise.all([id, whole.id].map((one) => chats.delete(one)));
  }
});

test("completions are listed by metadata and model, in pages", async () => {
  const made = [];
  for (let i = 0; i < 5; i++)
    made.push(
      (await chats.create({ ...ask, max_tokens: 1, store: true, metadata: { half: String(i % 2), i: String(i) } })).id,
    );
  assert.deepEqual(ids(await allChats()), made);
  assert.deepEqual(ids(await allChats({ order: "desc", limit: 2 })), made.toReversed());
  assert.deepEqual(ids(await allChats({ metadata: { half: "1" } })), [made[1], made[3]]);
  assert.deepEqual(ids(await allChats({ metadata: { half: "1", i: "3" } })), [made[3]]);
  assert.deepEqual(ids(await allChats({ model })), made);
  assert.deepEqual(await allChats({ model: "other" }), []);
  const page = validate(
    "ChatCompletionList",
    await (await fetch(`${server.url}/v1/chat/completions?limit=2&after=${made[1]}`)).json(),
  );
  assert.deepEqual([page.first_id, page.last_id, page.has_more], [made[2], made[3], true]);
  for (const [query, param] of [
    ["limit=101", "limit"],
    ["order=x", "order"],
    ["after=chatcmpl-x", "after"],
    ["size=1", "size"],
  ]) {
    const wrong = await fetch(`${server.url}/v1/chat/completions?${query}`);
    assert.equal(wrong.status, 400, query);
    assert.equal((await wrong.json()).error.param, param);
  }
  await Promise.all(made.map((id) => chats.delete(id)));
});

test("the messages of a stored completion", async () => {
  const messages = [
    { role: "system", content: "Be kind." },
    ...user([{ type: "text", text: "a" }]),
    { role: "assistant", content: "b\u0000" },
    ...user("c"),
  ];
  const { id } = await chats.create({ ...ask, messages, store: true });
  const list = await chats.messages.list(id);
  assert.deepEqual(
    list.data.map((m) => [m.id, m.role, m.content]),
    messages.map((m, i) => [`${id}-${i}`, m.role, m.content]),
  );
  const page = await chats.messages.list(id, { order: "desc", limit: 1, after: `${id}-3` });
  assert.deepEqual(ids(page.data), [`${id}-2`]);
  await chats.delete(id);
});

test("a stored completion is its key's own; without a store the field is named", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inferd-chats-"));
  const file = join(folder, "keys");
  const keys = ["key-a-0123456789abcdef", "key-b-0123456789abcdef"];
  writeFileSync(file, keys.join("\n") + "\n", { mode: 0o600 });
  const keyed = await startServer(["--api-key-file", file]);
  try {
    const [a, b] = keys.map((k) => connect(keyed, k).chat.completions);
    const { id } = await a.create({ ...ask, store: true });
    await assert.rejects(b.retrieve(id), { status: 404 });
    await assert.rejects(b.delete(id), { status: 404 });
    assert.deepEqual((await b.list()).data, []);
    assert.deepEqual(ids((await a.list()).data), [id]);
  } finally {
    await keyed.stop();
    rmSync(folder, { recursive: true });
  }
  const off = await startServer(["--responses-ttl-s", "0"]);
  try {
    const answer = await chat(off, { ...ask, store: true, metadata: { a: "b" } });
    assert.equal(answer.status, 200);
    assert.equal(ignoredOf(answer), "store, metadata");
    assert.deepEqual((await connect(off).chat.completions.list()).data, []);
  } finally {
    await off.stop();
  }
  assert.equal(ignoredOf(await chat(server, { ...ask, metadata: { a: "b" } })), "metadata");
  const wrong = await chat(server, { ...ask, store: true, metadata: { a: "x".repeat(513) } });
  assert.equal((await wrong.json()).error.param, "metadata.a");
});
