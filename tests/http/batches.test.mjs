// Files and batches with the official SDK and curl: its flow, answers as live ones, validation, cancel, expiry,
// bounds, and that keys do not see each other's.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import {
  createReadStream,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI, { toFile } from "openai";
import { addKey, binary, modelName, patience, post, startServer, until, user, withRegistry } from "./server.mjs";

const model = modelName;
let server, client;
const connect = (s, apiKey = "none") => new OpenAI({ baseURL: s.url + "/v1", apiKey, maxRetries: 0 });
before(async () => {
  server = await startServer();
  client = connect(server);
});
after(() => server.stop());

const url = "/v1/chat/completions";
const line = (i, body = {}, more = {}) => ({
  custom_id: `r-${i}`,
  method: "POST",
  url,
  body: { model, messages: user(`What is ${i}?`), max_tokens: 6, temperature: 0, seed: 1, ...body },
  ...more,
});
const lines = (n, body) => Array.from({ length: n }, (_, i) => line(i, body));
const jsonl = (rows) => rows.map((r) => (typeof r === "string" ? r : JSON.stringify(r)) + "\n").join("");
const upload = async (rows, c = client, more = {}) =>
  c.files.create({ file: await toFile(Buffer.from(jsonl(rows)), "in.jsonl"), purpose: "batch", ...more });
const window24 = { completion_window: "24h", endpoint: url };
const create = async (rows, more = {}, c = client) =>
  c.batches.create({ input_file_id: (await upload(rows, c)).id, ...window24, ...more });
const ended = ["completed", "failed", "expired", "cancelled"];
async function wait(batch, c = client, until = (b) => ended.includes(b.status)) {
  for (const end = Date.now() + 60000 * patience; Date.now() < end; await new Promise((r) => setTimeout(r, 30))) {
    const now = await c.batches.retrieve(batch.id);
    if (until(now)) return now;
  }
  throw new Error(`batch ${batch.id} does not end`);
}
const rowsOf = async (id, c = client) =>
  id
    ? (await (await c.files.content(id)).text())
        .split("\n")
        .filter(Boolean)
        .map((t) => JSON.parse(t))
    : [];
const plain = (body) => ({ ...body, id: "", created: 0, created_at: 0, completed_at: 0 });

test("the SDK's flow: a stream is uploaded, a batch runs, its output is read", async () => {
  const file = join(server.folder, "in.jsonl");
  const rows = [...lines(5), line(5, { temperature: 5 })];
  writeFileSync(file, jsonl(rows));
  const input = await client.files.create({ file: createReadStream(file), purpose: "batch" });
  assert.match(input.id, /^file-/);
  assert.deepEqual(
    { ...input, id: 0, created_at: 0, expires_at: input.expires_at - input.created_at },
    {
      object: "file",
      id: 0,
      purpose: "batch",
      filename: "in.jsonl",
      bytes: statSync(file).size,
      created_at: 0,
      expires_at: 30 * 86400,
      status: "processed",
      status_details: null,
    },
  );
  const metadata = { night: "é" };
  const made = await client.batches.create({ input_file_id: input.id, ...window24, metadata });
  assert.equal(made.object, "batch");
  assert.equal(made.expires_at - made.created_at, 86400);
  const done = await wait(made);
  assert.equal(done.status, "completed", JSON.stringify(done));
  assert.deepEqual(done.request_counts, { total: 6, completed: 5, failed: 1 });
  assert.deepEqual([done.metadata, done.model, done.errors, done.endpoint], [metadata, model, null, url]);
  for (const time of ["in_progress_at", "finalizing_at", "completed_at"])
    assert.ok(done[time] >= done.created_at, time);
  const output = await rowsOf(done.output_file_id);
  assert.deepEqual(
    output.map((o) => o.custom_id),
    rows.slice(0, 5).map((r) => r.custom_id),
  );
  for (const [i, o] of output.entries()) {
    const live = await client.chat.completions.create(rows[i].body);
    assert.equal(o.error, null);
    assert.equal(o.response.status_code, 200);
    assert.match(o.response.request_id, /^req_/);
    const cached = (b) => ((b.usage.prompt_tokens_details.cached_tokens = 0), plain(b));
    assert.deepEqual(cached(o.response.body), cached(live));
  }
  const [failed] = await rowsOf(done.error_file_id);
  assert.deepEqual([failed.custom_id, failed.response.status_code, failed.error], ["r-5", 400, null]);
  assert.equal(failed.response.body.error.param, "temperature");
  const sum = output.reduce((n, o) => n + o.response.body.usage.total_tokens, 0);
  assert.equal(done.usage.total_tokens, sum);
  const out = await client.files.retrieve(done.output_file_id);
  assert.deepEqual([out.purpose, out.expires_at - out.created_at], ["batch_output", 30 * 86400]);
});

test("completions, embeddings and responses; other expiry of the output", async () => {
  const bodies = {
    "/v1/completions": { model, prompt: "One two", max_tokens: 4, temperature: 0 },
    "/v1/embeddings": { model, input: "a text" },
    "/v1/responses": { model, input: "Hello.", max_output_tokens: 4, temperature: 0 },
  };
  for (const [endpoint, body] of Object.entries(bodies)) {
    const output_expires_after = { anchor: "created_at", seconds: 3600 };
    const done = await wait(
      await create([{ custom_id: "a", method: "POST", url: endpoint, body }], { endpoint, output_expires_after }),
    );
    const [row] = await rowsOf(done.output_file_id);
    const live = await (await post(server, endpoint, body)).json();
    assert.deepEqual(Object.keys(row.response.body), Object.keys(live), endpoint);
    if (endpoint === "/v1/embeddings") assert.deepEqual(row.response.body.data, live.data);
    if (endpoint === "/v1/completions") assert.deepEqual(row.response.body.choices, live.choices);
    if (endpoint === "/v1/responses") {
      assert.equal(row.response.body.output[0].content[0].text, live.output[0].content[0].text);
      await client.responses.retrieve(row.response.body.id); /* it is stored, as a live one */
    }
    const file = await client.files.retrieve(done.output_file_id);
    assert.equal(file.expires_at - file.created_at, 3600);
  }
});

test("errors of validation name line, code and parameter; nothing runs", async () => {
  const rows = [
    line(0),
    "{oops",
    "",
    line(1, {}, { method: "GET" }),
    line(2, {}, { url: "/v1/embeddings" }),
    line(3, {}, { body: undefined }),
    line(0),
    line(4, { stream: true }),
    { ...line(5), custom_id: "" },
    "[1]",
  ];
  const done = await wait(await create(rows));
  assert.equal(done.status, "failed");
  assert.ok(done.failed_at);
  assert.deepEqual(
    done.errors.data.map((e) => [e.line, e.code, e.param]).sort((a, b) => a[0] - b[0]),
    [
      [2, "invalid_json_line", null],
      [4, "invalid_method", "method"],
      [5, "invalid_url", "url"],
      [6, "missing_required_parameter", "body"],
      [7, "duplicate_custom_id", "custom_id"],
      [8, "invalid_body", "body.stream"],
      [9, "invalid_custom_id", "custom_id"],
      [10, "invalid_json_line", null],
    ],
  );
  assert.equal(done.errors.object, "list");
  assert.deepEqual([done.output_file_id, done.error_file_id, done.in_progress_at], [null, null, null]);
  const empty = await wait(await create(["", " "]));
  assert.deepEqual(
    empty.errors.data.map((e) => [e.code, e.line]),
    [["empty_file", null]],
  );
  const many = await wait(await create(Array.from({ length: 300 }, () => "x")));
  assert.equal(many.errors.data.length, 100);
});

test("a body that is no batch is refused and names the field", async () => {
  const { id } = await upload([line(0)]);
  const good = { input_file_id: id, ...window24 };
  for (const [param, more] of [
    ["input_file_id", { input_file_id: "file-none" }],
    ["endpoint", { endpoint: "/v1/moderations" }],
    ["completion_window", { completion_window: "soon" }],
    ["completion_window", { completion_window: "169h" }],
    ["metadata", { metadata: { a: "x".repeat(513) } }],
    ["output_expires_after.seconds", { output_expires_after: { anchor: "created_at", seconds: 1 } }],
  ])
    await assert.rejects(client.batches.create({ ...good, ...more }), (e) => {
      assert.equal(e.status, 400);
      assert.ok(e.param?.startsWith(param.split(".")[0]), `${param}: ${e.param} ${e.message}`);
      return true;
    });
  for (const f of ["retrieve", "cancel"])
    await assert.rejects(client.batches[f]("batch_none"), { status: 404, param: "id" });
});

test("cancel keeps the answers that came and names the rest", async () => {
  const made = await create(lines(60, { max_tokens: 300, ignore_eos: true }));
  await wait(made, client, (b) => b.request_counts.completed > 0 || ended.includes(b.status));
  const cancelling = await client.batches.cancel(made.id);
  assert.match(cancelling.status, /^cancel/);
  const done = await wait(made);
  assert.equal(done.status, "cancelled");
  assert.ok(done.cancelling_at && done.cancelled_at);
  const output = await rowsOf(done.output_file_id);
  const rest = await rowsOf(done.error_file_id);
  assert.ok(output.length > 0 && rest.length > 0);
  assert.deepEqual(done.request_counts, { total: 60, completed: output.length, failed: rest.length });
  const seen = [...output, ...rest].map((o) => o.custom_id);
  assert.deepEqual([...new Set(seen)].length, 60);
  assert.ok(rest.every((o) => o.response === null && o.error.code === "batch_cancelled"));
  await assert.rejects(client.batches.cancel(made.id), { status: 400, message: /cancelled/ });
});

test("a window that ends leaves what came; the batch is expired", async () => {
  const completion_window = `${2 * patience}s`; /* the lines are checked by then, and not all answered */
  const made = await create(lines(300, { max_tokens: 400, ignore_eos: true }), { completion_window });
  const done = await wait(made);
  assert.equal(done.status, "expired");
  assert.ok(done.expired_at >= done.expires_at);
  const rest = await rowsOf(done.error_file_id);
  assert.equal(rest.length + (await rowsOf(done.output_file_id)).length, 300);
  assert.ok(rest.every((o) => o.error.code === "batch_expired"));
});

test("a batch whose input goes from the disk, or changes there, fails and says so", async () => {
  const onDisk = (file) => join(server.folder, "registry.db.files", file.id);
  const gone = await upload(lines(2));
  rmSync(onDisk(gone));
  const failed = await wait(await client.batches.create({ input_file_id: gone.id, ...window24 }));
  assert.equal(failed.status, "failed");
  const [why] = failed.errors.data;
  assert.deepEqual([why.code, why.param], ["file_not_found", "input_file_id"]);
  assert.equal(why.message, `The content of ${gone.id} has gone from the server's disk: upload it again.`);
  await assert.rejects(client.files.content(gone.id), { status: 404 });
  assert.equal((await client.files.delete(gone.id)).deleted, true);

  const cut = await upload(lines(200, { max_tokens: 400, ignore_eos: true }));
  const batch = await client.batches.create({ input_file_id: cut.id, ...window24 });
  await wait(batch, client, (b) => b.status === "in_progress");
  truncateSync(onDisk(cut), 0);
  const ends = await wait(batch);
  assert.equal(ends.status, "failed");
  assert.equal(ends.errors.data[0].code, "file_changed");
  assert.equal(ends.request_counts.total, 200);
});

test("files: list, get, content, delete, expiry; curl -F", async () => {
  const text = jsonl([line(0)]);
  const path = join(server.folder, "curl.jsonl");
  writeFileSync(path, text);
  const curl = (...args) =>
    JSON.parse(execFileSync("curl", ["-s", server.url + "/v1/files", ...args], { encoding: "utf8" }));
  const one = curl("-F", "purpose=batch", "-F", `file=@${path};filename=a ü.jsonl`);
  assert.equal(one.filename, "a ü.jsonl", JSON.stringify(one));
  const more = new FormData();
  for (const [k, v] of [
    ["purpose", "batch"],
    ["colour", "blue"],
  ])
    more.append(k, v);
  more.append("file", new Blob([text]), "b.jsonl");
  const third = await fetch(server.url + "/v1/files", { method: "POST", body: more });
  assert.deepEqual([third.status, third.headers.get("x-inferd-ignored-fields")], [200, "colour"]);
  const two = curl(
    ...["-F", `file=@${path}`, "-F", "purpose=batch"],
    ...["-F", "expires_after[anchor]=created_at", "-F", "expires_after[seconds]=3600"],
  );
  assert.equal(two.expires_at - two.created_at, 3600);
  assert.equal(await (await client.files.content(one.id)).text(), text);
  const head = await fetch(`${server.url}/v1/files/${one.id}/content`);
  assert.equal(head.headers.get("content-length"), String(Buffer.byteLength(text)));
  await head.text();
  const all = [];
  for await (const f of client.files.list({ purpose: "batch", limit: 2 })) all.push(f.id);
  const { id } = await third.json();
  assert.deepEqual(all.slice(0, 3), [two.id, id, one.id]);
  assert.equal(new Set(all).size, all.length);
  const oldest = await client.files.list({ order: "asc", limit: 1 });
  assert.equal(oldest.data[0].id, all.at(-1));
  const folder = join(server.folder, "registry.db.files");
  assert.ok(existsSync(join(folder, one.id)));
  const db = join(server.folder, "registry.db");
  execFileSync("sqlite3", [db, `.timeout 5000`, `UPDATE files SET expires_s = 1 WHERE id = '${two.id}'`]);
  await assert.rejects(client.files.retrieve(two.id), { status: 404 });
  await until(() => !existsSync(join(folder, two.id)), "an expired file is removed");
  assert.deepEqual(await client.files.delete(one.id), { id: one.id, object: "file", deleted: true });
  assert.ok(!existsSync(join(folder, one.id)));
  for (const f of ["retrieve", "content", "delete"])
    await assert.rejects(client.files[f](one.id), { status: 404, param: "id" });
  for (const list of [client.files, client.batches])
    await assert.rejects(list.list({ after: one.id }), { status: 404, param: "after" });
  /* Nothing but files of rows is left in the folder. */
  const left = readdirSync(folder).filter((n) => n !== "lock");
  const known = [];
  for await (const f of client.files.list()) known.push(f.id);
  assert.deepEqual(left.sort(), known.sort());
});

test("uploads that are none are refused, and leave nothing", async () => {
  const form = (parts) => {
    const f = new FormData();
    for (const [k, v] of parts) v instanceof Blob ? f.append(k, v, "x.jsonl") : f.append(k, v);
    return f;
  };
  const blob = new Blob(["x"]);
  const before = readdirSync(join(server.folder, "registry.db.files")).length;
  for (const [status, param, body] of [
    [400, "purpose", form([["file", blob]])],
    [400, "file", form([["purpose", "batch"]])],
    [
      400,
      "purpose",
      form([
        ["file", blob],
        ["purpose", "fine-tune"],
      ]),
    ],
    [
      400,
      "purpose",
      form([
        ["file", blob],
        ["purpose", "other"],
      ]),
    ],
    [
      400,
      "file",
      form([
        ["file", "text"],
        ["purpose", "batch"],
      ]),
    ],
    [
      400,
      "file",
      form([
        ["file", blob],
        ["file", blob],
        ["purpose", "batch"],
      ]),
    ],
    [
      400,
      "expires_after.seconds",
      form([
        ["file", blob],
        ["purpose", "batch"],
        ["expires_after[anchor]", "created_at"],
        ["expires_after[seconds]", "5"],
      ]),
    ],
  ]) {
    const r = await fetch(server.url + "/v1/files", { method: "POST", body });
    const { error } = await r.json();
    assert.deepEqual([r.status, error.param], [status, param], error.message);
  }
  const raw = (body, type = "multipart/form-data; boundary=x") =>
    fetch(server.url + "/v1/files", { method: "POST", body, headers: { "Content-Type": type } });
  assert.equal((await raw("{}", "application/json")).status, 415);
  assert.equal((await raw("--x\r\n", "multipart/form-data")).status, 415);
  for (const body of [
    "--x\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\nabc",
    "--x--",
    "--x\r\n\r\nabc\r\n--x--",
    "nothing",
    `--x\r\nA: ${"b".repeat(5000)}\r\n\r\n`,
  ])
    assert.equal((await raw(body)).status, 400, body);
  // What had come of a refused one is removed when its request has ended.
  await until(() => readdirSync(join(server.folder, "registry.db.files")).length === before, "nothing is left");
});

test("keys see their own files and batches; a revoked key's lines get 401; scopes hold", async () => {
  const s = await startServer();
  try {
    const names = ["a", "b", "gone", "embed"];
    const keys = Object.fromEntries(
      names.map((n) => [n, addKey(s, n, ...(n === "embed" ? ["--scopes", "embed"] : []))]),
    );
    const of = Object.fromEntries(names.map((n) => [n, connect(s, keys[n])]));
    await new Promise((r) => setTimeout(r, 1200)); /* the daemon looks for keys */
    const file = await upload([line(0)], of.a);
    const batch = await wait(await of.a.batches.create({ input_file_id: file.id, ...window24 }), of.a);
    assert.equal(batch.status, "completed");
    assert.equal((await rowsOf(batch.output_file_id, of.a)).length, 1);
    for (const id of [file.id, batch.output_file_id])
      for (const f of ["retrieve", "content", "delete"]) await assert.rejects(of.b.files[f](id), { status: 404 });
    for (const f of ["retrieve", "cancel"]) await assert.rejects(of.b.batches[f](batch.id), { status: 404 });
    assert.deepEqual([(await of.b.files.list()).data, (await of.b.batches.list()).data], [[], []]);
    await assert.rejects(of.b.batches.create({ input_file_id: file.id, ...window24 }), { status: 400 });
    const done = await wait(await create([line(0)], {}, of.embed), of.embed);
    const [row] = await rowsOf(done.error_file_id, of.embed);
    assert.deepEqual([row.response.status_code, row.response.body.error.code], [403, "missing_scope"]);
    const headers = { Authorization: `Bearer ${keys.a}` };
    let usage = "";
    for (const end = Date.now() + 20000 * patience; !usage.includes('"requests":1') && Date.now() < end;)
      usage = await (await fetch(s.url + "/v1/inferd/usage", { headers })).text();
    assert.match(usage, /"requests":1/);
    /* A key that is revoked while its batch runs. */
    const cut = await create(lines(200, { max_tokens: 100, ignore_eos: true }), {}, of.gone);
    await wait(cut, of.gone, (b) => b.request_counts.completed > 0);
    withRegistry(s, "keys", "revoke", "gone");
    const ask = `SELECT error_file FROM batches WHERE id = '${cut.id}' AND status = 4`;
    let errors = "";
    for (const end = Date.now() + 60000 * patience; !errors && Date.now() < end;)
      errors = execFileSync("sqlite3", [join(s.folder, "registry.db"), ask], { encoding: "utf8" }).trim();
    assert.match(
      readFileSync(join(s.folder, "registry.db.files", errors), "utf8"),
      /"status_code":401.*revoked_api_key/,
    );
    /* Files are the daemon's user's alone. */
    const folder = join(s.folder, "registry.db.files");
    assert.equal(statSync(folder).mode & 0o777, 0o700);
    for (const f of readdirSync(folder)) assert.equal(statSync(join(folder, f)).mode & 0o777, 0o600);
    const on =
      readFileSync(join(s.folder, "registry.db"), "latin1") + readFileSync(join(s.folder, "registry.db-wal"), "latin1");
    assert.ok(!on.includes(keys.a.split("_").at(-1)));
    assert.ok(!s.stderr.includes("What is"), "no text of a prompt is in the log");
  } finally {
    await s.stop();
  }
});

test("a key's quota holds for its lines, which wait, and leaves half to its other requests", async () => {
  const s = await startServer();
  try {
    const c = connect(s, addKey(s, "slow", "--requests-per-minute", "4"));
    await new Promise((r) => setTimeout(r, 1200));
    const made = await create(lines(4), {}, c);
    const some = await wait(made, c, (b) => b.request_counts.completed >= 2);
    assert.equal(some.request_counts.failed, 0);
    await c.chat.completions.create(line(0).body);
    const now = await c.batches.cancel(made.id);
    assert.equal((await wait(now, c)).status, "cancelled");
  } finally {
    await s.stop();
  }
});

test("bounds: size of a file, of all files, their number, lines of a batch, batches", async () => {
  const s = await startServer([
    ...["--file-max-bytes", "4K", "--files-max-bytes", "12K", "--files-max", "4"],
    ...["--batch-max-lines", "3", "--batches-max", "2"],
  ]);
  try {
    const c = connect(s);
    const bytes = async (n) =>
      c.files.create({ file: await toFile(Buffer.alloc(n, "x"), "in.jsonl"), purpose: "batch" });
    await assert.rejects(bytes(4097), { status: 413 });
    await assert.rejects(bytes(1 << 20), { status: 413 });
    const kept = [];
    for (let i = 0; i < 3; i++) kept.push((await bytes(4096)).id);
    await assert.rejects(bytes(1), { status: 400, code: "storage_limit_exceeded" });
    for (const id of kept) await c.files.delete(id);
    for (let i = 0; i < 4; i++) await bytes(1);
    await assert.rejects(bytes(1), { status: 400, code: "storage_limit_exceeded", message: /4 files/ });
    for (const f of (await c.files.list()).data) await c.files.delete(f.id);
    const short = (i) => ({ ...line(i), body: { model, messages: user("a"), max_tokens: 1 } });
    const many = await wait(await create([0, 1, 2, 3].map(short), {}, c), c);
    assert.deepEqual(
      many.errors.data.map((e) => e.code),
      ["too_many_requests"],
    );
    const ids = [];
    for (let i = 0; i < 3; i++) ids.push((await wait(await create([short(0)], {}, c), c)).id);
    assert.deepEqual(
      (await c.batches.list()).data.map((b) => b.id),
      ids.slice(1).reverse(),
    );
  } finally {
    await s.stop();
  }
});

test("inferd batch answers a file without a server, and leaves nothing else", async () => {
  const state = join(server.folder, "state");
  mkdirSync(state);
  const env = { ...process.env, XDG_STATE_HOME: state };
  const command = (...args) => ["batch", ...args, "--registry", join(server.folder, "registry.db")];
  const run = (...args) => spawnSync(binary, command(...args), { encoding: "utf8", env });
  const [file, out] = ["cli.jsonl", "out.jsonl"].map((n) => join(server.folder, n));
  const rows = lines(3);
  writeFileSync(file, jsonl(rows));
  const done = run(file, "-o", out);
  assert.deepEqual([done.status, done.stdout, done.stderr], [0, "", ""]);
  const answers = readFileSync(out, "utf8").trim().split("\n").map(JSON.parse);
  for (const [i, a] of answers.entries()) {
    const live = await client.chat.completions.create(rows[i].body);
    assert.equal(a.custom_id, rows[i].custom_id);
    assert.deepEqual(a.response.body.choices, live.choices);
  }
  writeFileSync(file, jsonl([...rows, line(3, { temperature: 5 })]));
  const failed = run(file, "--model", model);
  assert.deepEqual([failed.status, failed.stderr], [1, "inferd: 1 of 4 requests failed\n"]);
  assert.equal(failed.stdout.trim().split("\n").length, 4);
  // A full disk: what was answered stays, and can be found.
  const folders = () => readdirSync(join(state, "inferd")).filter((n) => n.startsWith("batch-"));
  const full = run(file, "-o", "/dev/full");
  const [, kept, ok, not] = full.stderr.match(
    /No space left on device; the answers are in (\S+) \((\S+), then (\S+)\): /,
  );
  assert.equal(full.status, 1);
  assert.equal(readFileSync(join(kept, ok), "utf8").trim().split("\n").length, 3);
  assert.equal(JSON.parse(readFileSync(join(kept, not), "utf8")).response.status_code, 400);
  assert.deepEqual(folders(), [basename(dirname(kept))]);
  rmSync(dirname(kept), { recursive: true });
  writeFileSync(file, jsonl([line(0), "{", line(0)]));
  const bad = run(file);
  assert.equal(bad.status, 1);
  assert.match(bad.stderr, /cli.jsonl:2: .*JSON[^]*cli.jsonl:3: .*duplicate[^]*nothing was run/);
  assert.equal(run(join(server.folder, "none.jsonl")).status, 1);
  // Ctrl-C, or another end: what was answered is written, the rest is named.
  writeFileSync(file, jsonl(lines(500, { max_tokens: 200, ignore_eos: true })));
  for (const signal of ["SIGINT", "SIGTERM"]) {
    const child = spawn(binary, command(file, "-o", out), { env, stdio: "ignore" });
    const ended = new Promise((resolve) => child.on("exit", resolve));
    for (const end = Date.now() + 60000 * patience; Date.now() < end; await new Promise((r) => setTimeout(r, 20))) {
      const [name] = existsSync(join(state, "inferd")) ? folders() : [];
      const db = name && join(state, "inferd", name, "registry.db");
      const count = "SELECT count(*) FROM batch_lines WHERE state > 0";
      if (db && existsSync(db + ".files") && Number(spawnSync("sqlite3", [db, count], { encoding: "utf8" }).stdout) > 1)
        break;
    }
    child.kill(signal);
    assert.equal(await ended, 1);
    const cut = readFileSync(out, "utf8").trim().split("\n").map(JSON.parse);
    assert.equal(new Set(cut.map((o) => o.custom_id)).size, 500);
    assert.ok(cut[0].response && cut.at(-1).error.code === "batch_cancelled");
    assert.deepEqual(folders(), []);
    writeFileSync(out, "");
  }
});

test("inferd batch knows before it begins where its answers go, and changes that file last", () => {
  const state = join(server.folder, "outputs");
  mkdirSync(state);
  const run = (...args) =>
    spawnSync(binary, ["batch", ...args, "--registry", join(server.folder, "registry.db")], {
      encoding: "utf8",
      env: { ...process.env, XDG_STATE_HOME: state },
    });
  const [file, link, out, pipe] = ["in.jsonl", "link.jsonl", "old.jsonl", "pipe"].map((n) => join(state, n));
  const text = jsonl(lines(2));
  writeFileSync(file, text);
  symlinkSync(file, link);
  // No daemon is started for these: the model does not exist.
  const refused = [
    [/cannot write .*none.out: No such file/, [file, "-o", join(state, "none", "out")]],
    [/cannot write .*: Is a directory/, [file, "-o", state]],
    [/in.jsonl has the requests/, [file, "-o", file]],
    [/in.jsonl has the requests/, [file, "-o", link]],
  ];
  for (const [why, args] of refused) {
    const done = run(...args, "--model", "none");
    assert.equal(done.status, 1);
    assert.match(done.stderr, why);
  }
  assert.equal(readFileSync(file, "utf8"), text);
  writeFileSync(out, "old");
  assert.match(run(file, "-o", out, "--model", "none").stderr, /no model is named none/);
  assert.equal(readFileSync(out, "utf8"), "old");
  execFileSync("mkfifo", [pipe]);
  const piped = spawnSync("sh", ["-c", `"$0" batch "$1" <>"$1"`, binary, pipe], { encoding: "utf8" });
  assert.match(piped.stderr, /pipe is not a regular file/);
  assert.deepEqual(readdirSync(state).sort(), ["in.jsonl", "inferd", "link.jsonl", "old.jsonl", "pipe"]);
});
