// Anthropic's form of /v1/files, with its official SDK and curl: objects, lists in both directions, expiry, errors;
// the same files in OpenAI's form, and in messages.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import Anthropic, { NotFoundError, toFile } from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { onlyLoopback } from "./loopback.mjs";
import { addKey, modelName, post, startServer, until, user } from "./server.mjs";

onlyLoopback();

let server, client;
const connect = (s, apiKey = "none") => new Anthropic({ baseURL: s.url, apiKey, maxRetries: 0 });
before(async () => {
  server = await startServer();
  client = connect(server);
});
after(() => server.stop());

const upload = async (text, name = "notes.txt", type = "text/plain", c = client, more = {}) =>
  c.files.upload({ file: await toFile(Buffer.from(text), name, { type }), ...more });
const version = { "anthropic-version": "2023-06-01" };
const get = async (path, headers = version) => {
  const r = await fetch(server.url + path, { headers });
  return { status: r.status, body: await r.json(), headers: r.headers };
};
const iso = (time) => new Date(time).toISOString().replace(".000", "");

test("upload, metadata, content, deletion", async () => {
  const begin = Math.floor(Date.now() / 1000);
  for (const [files, type] of [
    [client.files, "text/plain"],
    [client.beta.files, "text/html"],
  ]) {
    const text = "<p>Grüße</p>\n";
    const made = await files.upload({ file: await toFile(Buffer.from(text), "é.txt", { type }) });
    const { id, created_at, ...rest } = made;
    assert.match(id, /^file-/);
    assert.deepEqual(rest, {
      type: "file",
      filename: "é.txt",
      mime_type: type,
      size_bytes: Buffer.byteLength(text),
      downloadable: true,
      expires_at: null,
    });
    assert.equal(created_at, iso(created_at), "RFC 3339, UTC");
    assert.ok(Date.parse(created_at) / 1000 >= begin && Date.parse(created_at) <= Date.now());
    const { _request_id: request, ...again } = await files.retrieveMetadata(id);
    assert.match(request, /./, "the header request-id");
    assert.deepEqual(again, { id, created_at, ...rest });
    const content = await files.download(id);
    assert.deepEqual(
      [await content.text(), content.headers.get("content-type")],
      [text, "application/octet-stream"],
      "whatever its type: no browser shows it",
    );
    const { _request_id: _, ...gone } = await files.delete(id);
    assert.deepEqual(gone, { id, type: "file_deleted" });
    for (const f of ["retrieveMetadata", "download", "delete"])
      await assert.rejects(files[f](id), (e) => {
        assert.ok(e instanceof NotFoundError);
        assert.deepEqual([e.status, e.type], [404, "not_found_error"]);
        assert.deepEqual(e.error, {
          type: "error",
          error: { type: "not_found_error", message: `No such File object: ${id}`, param: "id" },
        });
        return true;
      });
  }
});

test("curl -F: names without folders, media types without parameters, an expiry", async () => {
  const path = join(server.folder, "curl.txt");
  writeFileSync(path, "a,b\n");
  const curl = (file, ...args) =>
    JSON.parse(
      execFileSync(
        "curl",
        ["-s", `${server.url}/v1/files`, "-H", "anthropic-version: 2023-06-01", "-F", `file=@${path}${file}`, ...args],
        { encoding: "utf8" },
      ),
    );
  const seen = (file, ...args) => {
    const { filename, mime_type } = curl(file, ...args);
    return [filename, mime_type];
  };
  assert.deepEqual(seen(";filename=/etc/a.csv;type=text/csv"), ["a.csv", "text/csv"]);
  assert.deepEqual(seen(";filename=C:\\\\b;type=TEXT/X-Y; charset=utf-8"), ["b", "text/x-y"]);
  assert.deepEqual(seen(";filename=c/;type=a/b/c"), ["unnamed", "application/octet-stream"]);
  const kept = curl("", "-F", "expires_in_seconds=7776000", "-F", "purpose=batch");
  assert.equal(Date.parse(kept.expires_at) - Date.parse(kept.created_at), 7776000_000);
  for (const seconds of ["3599", "7776001", "x", ""]) {
    const { error } = curl("", "-F", `expires_in_seconds=${seconds}`);
    assert.deepEqual([error.type, error.param], ["invalid_request_error", "expires_in_seconds"], seconds);
  }
  // A part of OpenAI's form is one that this form does not have.
  const form = new FormData();
  form.append("purpose", "batch");
  form.append("file", new Blob(["x"]), "x");
  const r = await fetch(`${server.url}/v1/files`, { method: "POST", body: form, headers: version });
  assert.deepEqual([r.status, r.headers.get("x-inferd-ignored-fields")], [200, "purpose"]);
});

test("lists: the newest first, forwards and backwards, by ids", async () => {
  const s = await startServer();
  try {
    const c = connect(s);
    const empty = await (await fetch(`${s.url}/v1/files`, { headers: version })).json();
    assert.deepEqual(empty, { data: [], first_id: null, last_id: null, has_more: false, next_page: null });
    const made = [];
    for (let i = 0; i < 7; i++) made.unshift((await upload(`${i}`, `${i}.txt`, "text/plain", c)).id);
    const ids = async (query) => {
      const r = await fetch(`${s.url}/v1/files?${new URLSearchParams(query)}`, { headers: version });
      const { data, ...rest } = await r.json();
      return data
        ? [data.map((f) => made.indexOf(f.id)), rest.has_more]
        : [r.status, rest.error.type, rest.error.param];
    };
    // The SDK follows next_page, from any parameters.
    for (const query of [{}, { limit: 3 }, { limit: 7 }, { limit: 2, after_id: made[1] }]) {
      const all = [];
      for await (const f of c.files.list(query)) all.push(f.id);
      assert.deepEqual(all, query.after_id ? made.slice(2) : made, JSON.stringify(query));
    }
    const page = await c.files.list({ limit: 3 });
    assert.deepEqual(
      [page.body.first_id, page.body.last_id, page.body.next_page, page.body.has_more],
      [made[0], made[2], made[2], true],
    );
    assert.deepEqual(await ids({ limit: 3, after_id: made[2] }), [[3, 4, 5], true]);
    assert.deepEqual(await ids({ limit: 3, after_id: made[3] }), [[4, 5, 6], false]);
    assert.deepEqual(await ids({ limit: 3, before_id: made[4] }), [[1, 2, 3], true]);
    assert.deepEqual(await ids({ limit: 3, before_id: made[3] }), [[0, 1, 2], false]);
    assert.deepEqual(await ids({ before_id: made[0] }), [[], false]);
    const back = await fetch(`${s.url}/v1/files?limit=1&before_id=${made[4]}`, { headers: version });
    assert.equal((await back.json()).next_page, null, "the next page is not the one before");
    // By ids, in the list's order; each once, without those that are none.
    const some = [];
    for await (const f of c.beta.files.list({ ids: [made[4], made[1], made[4], "file-none"] })) some.push(f.id);
    assert.deepEqual(some, [made[1], made[4]]);
    const wrong = [400, "invalid_request_error"];
    for (const [query, param] of [
      [{ limit: 0 }, "limit"],
      [{ limit: 1001 }, "limit"],
      [{ limit: 2, ids: made[0] }, "ids"],
      [{ before_id: made[0], after_id: made[1] }, "before_id"],
      [{ before_id: made[0], page: made[1] }, "before_id"],
      [{ scope_id: "session" }, "scope_id"],
      [{ order: "asc" }, "order"],
      [Array.from({ length: 101 }, (_, i) => ["ids[]", `file-${i}`]), "ids"],
    ])
      assert.deepEqual(await ids(query), [...wrong, param], JSON.stringify(query));
    for (const param of ["after_id", "before_id", "page"])
      assert.deepEqual(await ids({ [param]: "file-none" }), [404, "not_found_error", param]);
  } finally {
    await s.stop();
  }
});

test("both forms have the same files, each with its own objects and errors", async () => {
  const openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
  const mine = await upload("{}", "a.json", "application/json");
  const seen = await openai.files.retrieve(mine.id);
  assert.deepEqual(
    [seen.object, seen.purpose, seen.filename, seen.bytes, seen.expires_at, seen.type],
    ["file", "user_data", "a.json", 2, null, undefined],
  );
  const create = { endpoint: "/v1/chat/completions", completion_window: "24h" };
  await assert.rejects(openai.batches.create({ input_file_id: mine.id, ...create }), {
    status: 400,
    param: "input_file_id",
    message: /user_data/,
  });
  const body = { model: modelName, messages: user("Hi"), max_tokens: 1 };
  const line = JSON.stringify({ custom_id: "a", method: "POST", url: create.endpoint, body });
  const theirs = await openai.files.create({
    file: await toFile(Buffer.from(line), "in.jsonl", { type: "application/jsonl" }),
    purpose: "batch",
  });
  const { id } = await openai.batches.create({ input_file_id: theirs.id, ...create });
  let batch;
  do batch = await openai.batches.retrieve(id);
  while (!["completed", "failed"].includes(batch.status));
  assert.equal(batch.status, "completed");
  for (const name of [theirs.id, batch.output_file_id]) {
    const { mime_type, expires_at } = await client.files.retrieveMetadata(name);
    assert.equal(mime_type, "application/jsonl");
    assert.equal(Date.parse(expires_at) % 1000, 0);
  }
  // The header decides, whoever asks.
  const none = "/v1/files/file-none";
  assert.deepEqual(Object.keys((await get(none, {})).body), ["error"]);
  assert.equal((await get(none)).body.type, "error");
  assert.equal((await get("/v1/files?limit=1", {})).body.object, "list");
  assert.equal((await get("/files?limit=1")).body.next_page?.slice(0, 5), "file-", "also without /v1");
});

test("uploads that are none are refused, and leave nothing", async () => {
  const folder = join(server.folder, "registry.db.files");
  const left = readdirSync(folder).length;
  const raw = (body, type = "multipart/form-data; boundary=x") =>
    fetch(`${server.url}/v1/files`, { method: "POST", body, headers: { ...version, "Content-Type": type } });
  for (const [status, type, param, r] of [
    [
      400,
      "invalid_request_error",
      "file",
      await raw("--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--"),
    ],
    [400, "invalid_request_error", undefined, await raw("--x\r\nContent-Disposition: form-data; name=file\r\n\r\nabc")],
    [415, "invalid_request_error", undefined, await raw("{}", "application/json")],
  ]) {
    const { error, ...rest } = await r.json();
    assert.deepEqual([r.status, rest.type, error.type, error.param], [status, "error", type, param]);
  }
  // What had come of a refused one is removed when its request has ended.
  await until(() => readdirSync(folder).length === left, "nothing is left");
  const s = await startServer(["--file-max-bytes", "4K", "--files-max-bytes", "8K"]);
  try {
    const c = connect(s);
    const bytes = (n) => upload("x".repeat(n), "x", "text/plain", c);
    await assert.rejects(bytes(4097), { status: 413, type: "request_too_large" });
    await bytes(4096);
    await bytes(4096);
    await assert.rejects(bytes(1), (e) => {
      assert.deepEqual([e.name, e.status, e.type], ["StorageQuotaExceededError", 400, "invalid_request_error"]);
      return true;
    });
  } finally {
    await s.stop();
  }
  const off = await startServer(["--files-max-bytes", "0"]);
  try {
    await assert.rejects(connect(off).files.list(), { status: 501, type: "api_error" });
  } finally {
    await off.stop();
  }
});

test("a key sees its own files only; without a valid one the error is Anthropic's", async () => {
  const s = await startServer();
  try {
    const [a, b] = ["a", "b"].map((name) => addKey(s, name)).map((key) => connect(s, key));
    await new Promise((r) => setTimeout(r, 1200)); /* the daemon looks for keys */
    const { id } = await upload("mine", "m.txt", "text/plain", a);
    const all = async (c, query) => (await c.files.list(query)).data.map((f) => f.id);
    assert.deepEqual([await all(a), await all(b), await all(b, { ids: [id] })], [[id], [], []]);
    for (const f of ["retrieveMetadata", "download", "delete"]) await assert.rejects(b.files[f](id), { status: 404 });
    for (const place of ["after_id", "before_id", "page"])
      await assert.rejects(b.files.list({ [place]: id }), { status: 404 });
    const messages = user([block(id)]);
    await a.messages.create({ ...ask, messages });
    for (const f of ["create", "countTokens"])
      await assert.rejects(b.messages[f]({ ...ask, messages }), { status: 404, type: "not_found_error" });
    await assert.rejects(connect(s, "wrong").files.list(), { status: 401, type: "authentication_error" });
    assert.equal(statSync(join(s.folder, "registry.db.files", id)).mode & 0o777, 0o600);
  } finally {
    await s.stop();
  }
});

// A block that names a file is the block with the file's text in its place.
const ask = { model: modelName, max_tokens: 12, temperature: 0 };
const block = (file_id, more) => ({ type: "document", source: { type: "file", file_id }, ...more });
const inline = (data, more) => ({
  type: "document",
  source: { type: "text", media_type: "text/plain", data },
  ...more,
});
const question = { type: "text", text: "Sum up." };
const inResult = (content) => [
  ...user("Hi"),
  { role: "assistant", content: [{ type: "tool_use", id: "t1", name: "f", input: {} }] },
  { role: "user", content: [{ type: "tool_result", tool_use_id: "t1", content: [content, question] }] },
];

test("a text file in a message is read as its text", async () => {
  const text = `Ünïcode, "quotes", <tags> and\n\tlines.\r\n`;
  const title = { title: "T", context: "C", cache_control: { type: "ephemeral" } };
  const long = `${"A line of a long file. ".repeat(200)}\n`;
  for (const [named, type, bytes, read, more] of [
    ["a text", "text/plain", text, text],
    ["with a title", "text/plain", text, text, title],
    ["JSON", "application/json", '{"a":[1]}', '{"a":[1]}'],
    ["no type", "", text, text],
    ["a byte order mark", "text/markdown", `\ufeff${text}`, text],
    ["nothing", "text/plain", "", ""],
    ["many tokens", "text/plain", long, long],
  ]) {
    const { id } = await upload(bytes, "f", type);
    for (const messages of [(b) => user([b, question]), inResult]) {
      const [one, other] = [block(id, more), inline(read, more)].map(messages);
      const count = async (m) => (await client.messages.countTokens({ model: modelName, messages: m })).input_tokens;
      assert.equal(await count(one), await count(other), named);
      const answer = async (m) => (await client.beta.messages.create({ ...ask, messages: m })).content;
      assert.deepEqual(await answer(one), await answer(other), named);
      assert.deepEqual(await answer(one), await answer(other), `${named}, from the cache`);
    }
  }
});

test("a file in a message that the model cannot read is refused by name", async () => {
  const at = "messages[0].content[1].source.file_id";
  const refused = async (content, s = server) => {
    const r = await post(s, "/v1/messages", { ...ask, messages: user([question, content]) });
    const { error } = await r.json();
    return [r.status, error?.type, error?.param, error?.message];
  };
  for (const [type, bytes, reason] of [
    ["image/png", "text", /reads text only.*image\/png/],
    ["application/pdf", "%PDF-1.7", /reads text only.*application\/pdf/],
    ["audio/wav", "x", /audio\/wav/],
    ["text/plain", Buffer.from([0x47, 0xfc, 0x0a]), /is none in UTF-8/],
    ["", "a\0b", /application\/octet-stream.*is none in UTF-8/],
  ]) {
    const { id } = await upload(bytes, "f", type);
    const [status, kind, param, message] = await refused(block(id));
    assert.deepEqual([status, kind, param], [400, "invalid_request_error", at], type);
    assert.match(message, reason);
  }
  assert.deepEqual((await refused(block("file-none"))).slice(0, 3), [404, "not_found_error", at]);
  assert.equal((await refused(block("../registry.db")))[0], 404);
  for (const [source, param] of [
    [{ type: "file" }, at],
    [{ type: "file", file_id: "" }, at],
    [{ type: "file", file_id: 5 }, at],
  ])
    assert.deepEqual((await refused({ type: "document", source })).slice(0, 3), [400, "invalid_request_error", param]);
  const { id } = await upload("x", "f", "text/plain");
  const image = { type: "image", source: { type: "file", file_id: id } };
  assert.deepEqual((await refused(image)).slice(0, 3), [400, "invalid_request_error", "messages[0].content[1]"]);
  await client.files.delete(id);
  assert.equal((await refused(block(id)))[0], 404);
  // The files of a request have the bound of a body.
  const s = await startServer(["--max-body-bytes", "4K"]);
  try {
    const c = connect(s);
    const [small, large] = await Promise.all([3000, 5000].map((n) => upload("a ".repeat(n / 2), "f", "text/plain", c)));
    const [status, , param, message] = await refused(block(large.id), s);
    assert.deepEqual([status, param], [400, at]);
    assert.match(message, /4096 bytes/);
    const twice = user([block(small.id), block(small.id)]);
    const both = await post(s, "/v1/messages", { ...ask, messages: twice });
    assert.deepEqual([both.status, (await both.json()).error.param], [400, at]);
    assert.equal((await post(s, "/v1/messages", { ...ask, messages: user([block(small.id)]) })).status, 200);
  } finally {
    await s.stop();
  }
});

test("/v1/messages/batches is not there, in Anthropic's form", async () => {
  const batches = client.messages.batches;
  const requests = [{ custom_id: "a", params: { model: modelName, max_tokens: 1, messages: user("x") } }];
  for (const ask of [() => batches.create({ requests }), () => batches.list(), () => batches.retrieve("msgbatch_1")])
    await assert.rejects(ask(), (e) => {
      assert.ok(e instanceof NotFoundError, `${e}`);
      assert.equal(e.type, "not_found_error");
      assert.match(e.message, /\/v1\/messages\/batches/);
      return true;
    });
  const r = await post(server, "/v1/messages/batches", { requests });
  assert.deepEqual([r.status, (await r.json()).error.type], [404, "not_found_error"], "also without the header");
});
