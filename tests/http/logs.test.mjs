// Logs: JSON read by jq, the access log rotated by logrotate, the audit log, and that no text, key or file gets into
// any of them.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { addKey, binary, metrics, modelName, post, sse, startServer, until, user, withRegistry } from "./server.mjs";

const folder = mkdtempSync(join(tmpdir(), "inferd-logs-"));
const file = (name) => join(folder, name);
const accessFile = file("access.log");
const write = (name, text) => writeFileSync(file(name), text, { mode: 0o600 });
const configure = (...lines) =>
  write(
    "daemon.conf",
    [
      `admin-key-file = ${file("admins")}`,
      "log-level = debug",
      "log-format = json",
      `access-log = ${accessFile}`,
      "trusted-proxies = 127.0.0.1",
      "max-body-bytes = 64K",
      ...lines,
    ].join("\n") + "\n",
  );
const env = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin` };
const skipWithout = (program) =>
  spawnSync(program, ["--version"], { env }).error ? `${program} is missing (scripts/setup)` : false;
let server, alice, limited;

const lines = (text) => text.trim().split("\n").filter(Boolean);
// Those that are JSON: one test sets log-format = text for a while.
const accesses = (path = accessFile) =>
  lines(readFileSync(path, "utf8"))
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line));
// The line of the request with that id, which is written soon after its answer.
const accessOf = (id) => until(() => accesses().find((a) => a.request === id), `a line for ${id}`);
const audit = (...args) => JSON.parse(withRegistry(server, "audit", "--json", ...args));
const as = (key, id, more) => ({ headers: { Authorization: `Bearer ${key}`, "x-request-id": id, ...more } });
const reload = (...args) =>
  spawnSync(binary, ["reload", "--url", server.url, "--api-key-file", file("admins"), ...args], { encoding: "utf8" });

before(async () => {
  write("admins", "root-key\n");
  configure();
  server = await startServer(["--config", file("daemon.conf"), "--kv-cache-tokens", "8192", "--max-sequences", "8"]);
  server.key = "root-key";
  alice = addKey(server, "alice", "--scopes", "infer,embed");
  limited = addKey(server, "limited", "--requests-per-minute", "1");
  await until(async () => (await fetch(`${server.url}/v1/models`, as(limited))).status === 200, "the keys are known");
});
after(async () => {
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const ask = { model: modelName, messages: user("Hello, who are you?"), max_tokens: 4, temperature: 0 };
const whole = [
  ["/v1/chat/completions", ask, (a) => [a.usage.prompt_tokens, a.usage.completion_tokens]],
  [
    "/v1/completions",
    { model: modelName, prompt: "Once", max_tokens: 4 },
    (a) => [a.usage.prompt_tokens, a.usage.completion_tokens],
  ],
  [
    "/v1/responses",
    { model: modelName, input: "Hi.", max_output_tokens: 4, store: false },
    (a) => [a.usage.input_tokens, a.usage.output_tokens],
  ],
  ["/v1/messages", ask, (a) => [a.usage.input_tokens, a.usage.output_tokens]],
  [
    "/api/chat",
    { model: modelName, messages: user("Hi."), stream: false, options: { num_predict: 4 } },
    (a) => [a.prompt_eval_count, a.eval_count],
  ],
  ["/completion", { prompt: "Once", n_predict: 4 }, (a) => [a.tokens_evaluated, a.tokens_predicted]],
  ["/v1/embeddings", { model: modelName, input: "Hi." }, (a) => [a.usage.prompt_tokens, 0]],
];

test("the access log has a line for each request of every protocol, with its tokens and times", async () => {
  for (const [path, body, tokens] of whole) {
    const id = `whole${path.replaceAll("/", "-")}`;
    const text = JSON.stringify(body);
    const response = await post(server, path, text, as(alice, id, { "X-Forwarded-For": "192.0.2.7" }));
    const answer = await response.text();
    assert.equal(response.status, 200, answer);
    const line = await accessOf(id);
    const [prompt, completion] = tokens(JSON.parse(answer));
    assert.deepEqual(
      [line.method, line.path, line.status, line.key, line.model, line.client],
      ["POST", path, 200, alice.slice(0, 11), modelName, "192.0.2.7"],
    );
    assert.deepEqual([line.prompt_tokens, line.completion_tokens], [prompt, completion], path);
    assert.deepEqual([line.bytes_received, line.bytes_sent], [text.length, Buffer.byteLength(answer)], path);
    assert.ok(line.queue_ms >= 0 && line.total_ms >= line.queue_ms, path);
    if (completion) assert.ok(line.first_token_ms > 0 && line.first_token_ms <= line.total_ms, path);
    assert.ok(Math.abs(Date.parse(line.time) - Date.now()) < 600_000);
  }
});

test("a stream's line follows its end; a prompt from the cache; a path is its template", async () => {
  const long = { ...ask, messages: user("Count the birds in the garden. ".repeat(20)), stream: true };
  let text = "";
  for (const id of ["stream-1", "stream-2"]) {
    const response = await post(server, "/v1/chat/completions", long, as(alice, id));
    text = await response.text();
    assert.match(text, /data: \[DONE\]/);
  }
  const line = await accessOf("stream-2");
  assert.equal(line.bytes_sent, Buffer.byteLength(text));
  assert.ok(line.cached_tokens > 64 && line.cached_tokens < line.prompt_tokens, JSON.stringify(line));
  assert.equal(line.completion_tokens, 4);
  assert.equal(line.cut_off, undefined);
  await fetch(`${server.url}/v1/responses/resp_none`, as(alice, "template"));
  assert.deepEqual((({ path, status, method }) => [path, status, method])(await accessOf("template")), [
    "/v1/responses/{id}",
    404,
    "GET",
  ]);
});

test("refused requests and clients that leave have their lines", async () => {
  const statuses = [
    ["no-key", 401, () => post(server, "/v1/chat/completions", ask, { headers: { "x-request-id": "no-key" } })],
    ["wrong-key", 401, () => post(server, "/v1/messages", ask, as("ik_wrong", "wrong-key"))],
    ["large", 413, () => post(server, "/api/chat", "x".repeat(70_000), as(alice, "large"))],
    ["bad-json", 400, () => post(server, "/v1/responses", "{", as(alice, "bad-json"))],
    ["unknown", 404, () => post(server, "/v1/none", ask, as(alice, "unknown"))],
    ["first", 200, () => post(server, "/v1/chat/completions", ask, as(limited, "first"))],
    ["second", 429, () => post(server, "/v1/chat/completions", ask, as(limited, "second"))],
  ];
  for (const [id, status, send] of statuses) {
    const response = await send();
    await response.text();
    assert.equal(response.status, status, id);
    const line = await accessOf(id);
    assert.equal(line.status, status);
    assert.equal(line.key, { first: limited, second: limited, large: alice, "bad-json": alice }[id]?.slice(0, 11), id);
  }
  assert.equal((await accessOf("unknown")).path, "other");
  const stop = new AbortController();
  const response = await post(
    server,
    "/v1/chat/completions",
    { ...ask, max_tokens: 2000, stream: true, ignore_eos: true },
    { ...as(alice, "left"), signal: stop.signal },
  );
  for await (const event of sse(response)) if (event.choices?.[0]?.delta?.content) break;
  stop.abort();
  const line = await accessOf("left");
  assert.deepEqual([line.status, line.cut_off], [200, true]);
  assert.ok(line.completion_tokens > 0 && line.completion_tokens < 2000 && line.first_token_ms > 0);
});

test("jq reads every line of both logs, whatever clients send", { skip: skipWithout("jq") }, async () => {
  // Bytes that are no UTF-8, quotes and control characters in the path, which the log names.
  await new Promise((done, fail) => {
    const { hostname, port } = new URL(server.url);
    const r = request({ hostname, port, path: "/v1/%ff%22%5c%0a%c3%28", headers: { "x-request-id": "bytes" } }, (a) =>
      a.resume().on("end", done),
    );
    r.on("error", fail).end();
  });
  await accessOf("bytes");
  await until(() => server.stderr.includes('"request":"bytes"'), "a line in the log");
  for (const text of [server.stderr, readFileSync(accessFile)]) {
    const fields = execFileSync("jq", ["-r", "[.time, .level, .message, .request, .status] | @json"], {
      input: text,
      encoding: "utf8",
    });
    const rows = lines(fields).map((row) => JSON.parse(row));
    assert.equal(rows.length, lines(text.toString()).length, "one object for each line");
    for (const [time] of rows) assert.match(time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    assert.ok(rows.some((row) => row[3] === "bytes" && typeof row[4] === "number"));
  }
  const failed = spawnSync(binary, [
    "serve",
    "--log-format",
    "json",
    "--model",
    "missing",
    "--registry",
    file("none.db"),
  ]);
  assert.equal(failed.status, 1);
  const last = execFileSync("jq", ["-s", ".[-1]"], { input: failed.stderr });
  assert.deepEqual([JSON.parse(last).level, /missing/.test(JSON.parse(last).message)], ["error", true]);
  const logged = lines(server.stderr).map((line) => JSON.parse(line));
  assert.ok(logged.some((l) => l.level === "info" && /^engine: /.test(l.message)));
  const one = logged.find((l) => l.request === "stream-1");
  assert.deepEqual([one.level, one.status, one.key], ["debug", 200, alice.slice(0, 11)], "requests are at debug level");
});

test(
  "logrotate moves the access log while requests run; no line is lost",
  { skip: skipWithout("logrotate") },
  async () => {
    const old = accesses().length;
    write(
      "rotate.conf",
      `${accessFile} {\n  rotate 3\n  nocreate\n  su root root\n  postrotate\n    ${resolve(binary)} reload --url ${server.url} --api-key-file ${file("admins")}\n  endscript\n}\n`.replace(
        process.getuid() === 0 ? /$^/ : /  su root root\n/,
        "",
      ),
    );
    let sent = 0,
      stops = false;
    const sending = (async () => {
      while (!stops) {
        await (await fetch(`${server.url}/v1/models`, as(alice, `rotate-${sent++}`))).text();
      }
    })();
    await until(() => sent > 20, "requests run");
    execFileSync("logrotate", ["-f", "-s", file("rotate.state"), file("rotate.conf")], { env });
    const atRotation = statSync(accessFile + ".1").size;
    const then = sent;
    await until(() => sent > then + 20, "more requests run");
    stops = true;
    await sending;
    const all = () => [...accesses(accessFile + ".1"), ...accesses()];
    const ids = () => new Set(all().map((a) => a.request));
    await until(() => [...Array(sent).keys()].every((i) => ids().has(`rotate-${i}`)), "each request has its line");
    assert.equal(statSync(accessFile + ".1").size, atRotation, "after the reload nothing is written to the old file");
    assert.ok(accesses(accessFile + ".1").length >= old && accesses().length > 20);
    assert.equal(statSync(accessFile).mode & 0o777 & ~0o640, 0, "others may not read it");
    const m = await metrics(server);
    assert.ok(m.get("inferd_access_log_lines_total") >= old + sent);
    assert.equal(m.get('inferd_access_log_dropped_total{reason="queue_full"}'), 0);
    assert.equal(m.get('inferd_access_log_dropped_total{reason="not_written"}'), 0);
  },
);

test("a reload changes format and file; one that cannot be opened changes nothing", async () => {
  const edit = (from, to) => write("daemon.conf", readFileSync(file("daemon.conf"), "utf8").replace(from, to));
  edit("log-format = json\n", "");
  assert.match(reload().stdout, /log-format/);
  await (await fetch(`${server.url}/v1/models`, as(alice, "as-text"))).text();
  const line = await until(
    () => lines(readFileSync(accessFile, "utf8")).find((l) => l.includes("request=as-text")),
    "a line of text",
  );
  assert.match(line, /^time=\S+Z method=GET path=\/v1\/models status=200 request=as-text client=127.0.0.1 key=ik_\S+ /);
  assert.match(server.stderr, /Z info {2}the configuration is reloaded: applied log-format/);
  edit(accessFile, file("no/such/folder/file"));
  const refused = reload();
  assert.equal(refused.status, 1);
  assert.match(refused.stderr, /daemon\.conf:\d+: access-log .*No such file or directory/);
  await (await fetch(`${server.url}/v1/models`, as(alice, "goes-on"))).text();
  await until(() => readFileSync(accessFile, "utf8").includes("request=goes-on"), "the old file goes on");
  configure();
  assert.equal(reload().status, 0);
});

test("the audit log has each administrative act: who, what, when, and how it ended", async () => {
  const admin = addKey(server, "operator", "--scopes", "admin");
  withRegistry(server, "keys", "limit", "operator", "--label", "x");
  const rotated = JSON.parse(withRegistry(server, "keys", "rotate", "operator", "--json")).key;
  for (const args of [
    ["keys", "revoke", admin], // the secret instead of the name
    ["models", "remove", "no-such-model"],
  ])
    assert.throws(() =>
      execFileSync(binary, [...args, "--registry", join(server.folder, "registry.db")], { stdio: "pipe" }),
    );
  const http = (path, body, key = rotated) => post(server, path, body, as(key));
  await until(
    async () => (await fetch(`${server.url}/v1/inferd/models`, as(rotated))).status === 200,
    "the key is known",
  );
  assert.equal((await http("/v1/inferd/reload", {})).status, 200);
  assert.equal((await http("/v1/inferd/models/load", { model: "missing" })).status, 404);
  assert.equal((await http("/v1/inferd/models/load", "{")).status, 400);
  assert.equal((await http("/api/copy", { source: modelName, destination: "another" })).status, 200);
  assert.equal(
    (
      await fetch(`${server.url}/api/delete`, {
        method: "DELETE",
        body: '{"model":"another"}',
        ...as(rotated, "d", { "Content-Type": "application/json" }),
      })
    ).status,
    200,
  );
  assert.equal((await http("/v1/inferd/models/unload", { model: "missing" }, "root-key")).status, 404);
  assert.equal((await http("/v1/inferd/reload", {}, alice)).status, 403, "counted, not listed");
  server.child.kill("SIGHUP");
  withRegistry(server, "keys", "revoke", "operator");
  const user = `user:${execFileSync("id", ["-un"], { encoding: "utf8" }).trim()}`;
  const key = `key:${rotated.slice(0, 11)}`;
  const expected = [
    [user, "keys.add", "operator", "ok", ""],
    [user, "keys.limit", "operator", "ok", ""],
    [user, "keys.rotate", "operator", "ok", ""],
    [user, "keys.revoke", "", "failed: not found", ""],
    [user, "models.remove", "no-such-model", "failed: not found", ""],
    [key, "config.reload", "", "ok", "127.0.0.1"],
    [key, "models.load", "missing", "failed: 404", "127.0.0.1"],
    [key, "POST /v1/inferd/models/load", "", "failed: 400", "127.0.0.1"],
    [key, "models.name", "another", "ok", "127.0.0.1"],
    [key, "models.remove", "another", "ok", "127.0.0.1"],
    ["key:file_1", "models.unload", "missing", "failed: 404", "127.0.0.1"],
    ["signal", "config.reload", "", "ok", ""],
    [user, "keys.revoke", "operator", "ok", ""],
  ].map((row) => row.join("|"));
  const found = () => audit().map((r) => [r.who, r.act, r.object, r.result, r.client].join("|"));
  await until(() => expected.every((row) => found().includes(row)), `these acts: ${expected.join("\n")}`).catch((e) => {
    throw new Error(`${e.message}\nfound:\n${found().join("\n")}`);
  });
  assert.ok(!found().some((row) => row.includes(alice.slice(0, 11))), "what is refused is no act");
  for (const row of audit()) assert.ok(Math.abs(row.time * 1000 - Date.now()) < 3_700_000);
  const refused = () => Object.fromEntries(audit("--act", "auth").map((r) => [r.object, r.count]));
  const reasons = ["missing", "unknown", "scope"];
  const counted = await metrics(server);
  await until(() => {
    const now = refused();
    return reasons.every((r) => now[r] === counted.get(`inferd_auth_failures_total{reason="${r}"}`));
  }, "failed authentications are counted as at /metrics");
  assert.match(withRegistry(server, "audit", "--act", "keys"), /TIME \(UTC\) +WHO .*\n.* keys\.add +alice +ok +1\n/);
});

test("the audit log keeps the last 100000 rows", async () => {
  const registry = join(server.folder, "registry.db");
  const sql = (query) => execFileSync("sqlite3", [registry, ".timeout 5000", query], { encoding: "utf8" }).trim();
  const last = Number(sql("SELECT max(n) FROM audit"));
  assert.ok(Number(sql("SELECT count(*) FROM audit")) > 10);
  // As after 99,999 further rows.
  sql(`UPDATE sqlite_sequence SET seq = ${last + 99_999} WHERE name = 'audit'`);
  addKey(server, "after");
  const left = sql("SELECT n FROM audit").split("\n").map(Number);
  assert.deepEqual([left[0] > last, left.length >= 1, left.includes(last + 100_000)], [true, true, true], String(left));
});

// ---- what is in no log ----

const mark = (what) => `zq${what}7secret`;
const png = Buffer.from(mark("image")).toString("base64");
// Members of all protocols; unknown ones are ignored.
const marked = {
  model: modelName,
  max_tokens: 24,
  max_output_tokens: 24,
  n_predict: 24,
  options: { num_predict: 24 },
  temperature: 0,
  system: mark("system"),
  instructions: mark("instructions"),
  prompt: `Say it: ${mark("prompt")}`,
  content: mark("content"),
  input: `Say it: ${mark("input")}`,
  suffix: "",
  query: mark("query"),
  input_prefix: mark("prefix"),
  input_suffix: mark("infix"),
  metadata: { note: mark("metadata") },
  user: mark("user"),
  prompt_cache_key: mark("cachekey"),
  cache_salt: mark("salt"),
  stop: [mark("stop")],
  unknown_field: mark("unknown"),
};
const messages = [
  { role: "system", content: mark("system") },
  { role: "user", content: `Say it: ${mark("user")}` },
];
const tool = {
  type: "function",
  function: {
    name: "look_up",
    description: mark("tool"),
    parameters: { type: "object", properties: { [mark("property")]: { type: "string" } } },
  },
};
const variants = (messagesOf) => [
  { ...marked, ...messagesOf(messages) },
  { ...marked, ...messagesOf(messages), stream: true },
  { ...marked, ...messagesOf(messages), tools: [tool], tool_choice: "auto" },
  { ...marked, ...messagesOf(messages), model: mark("model") },
  {
    ...marked,
    ...messagesOf(messages),
    response_format: { type: "json_schema", json_schema: { name: "a", schema: { enum: [mark("schema")] } } },
  },
  {
    ...marked,
    ...messagesOf(messages),
    response_format: { type: "json_schema", json_schema: { name: "a", schema: { type: mark("badschema") } } },
  },
  { ...marked, ...messagesOf(messages), guided_regex: `${mark("regex")}[`, grammar: `root ::= "${mark("grammar")}" (` },
  {
    ...marked,
    ...messagesOf([
      { role: "user", content: [{ type: "image_url", image_url: { url: `https://example.com/${mark("imageurl")}` } }] },
    ]),
  },
  {
    ...marked,
    ...messagesOf([
      { role: "user", content: [{ type: "image_url", image_url: { url: `data:image/png;base64,${png}` } }] },
    ]),
  },
  {
    ...marked,
    ...messagesOf([{ role: "user", content: [{ type: "input_file", filename: "a.txt", file_data: mark("file") }] }]),
  },
  { ...marked, ...messagesOf([{ role: mark("role"), content: mark("content") }]) },
  { ...marked, ...messagesOf(messages), temperature: mark("number") },
];

// What else this endpoint takes, or what it would refuse (undefined).
function membersOf(path, m) {
  if (/rerank/.test(path)) return { documents: [mark("document")] };
  if (/score/.test(path)) return { text_1: mark("text"), text_2: mark("text"), input: undefined };
  if (/responses/.test(path)) return { input: m, suffix: undefined, prompt: undefined };
  if (/conversations/.test(path)) return { items: m.map((one) => ({ type: "message", ...one })) };
  if (/^\/tokenize/.test(path)) return { content: undefined };
  if (/embed/.test(path)) return {};
  if (/^\/v1\/completions|^\/completion|generate|infill/.test(path)) return {};
  return { messages: m, prompt: undefined };
}

test("no prompt, answer, tool, image, file, bad JSON or key gets into a log or the audit log", async () => {
  const api = await (await fetch(`${server.url}/openapi.json`, as("root-key"))).json();
  const paths = Object.keys(api.paths).filter((path) => path.startsWith("/"));
  const posts = paths.filter((path) => api.paths[path].post);
  assert.ok(posts.length > 25, posts.join(" "));
  let n = 0;
  const answered = new Set();
  const send = async (path, method, body, key, headers = {}) => {
    const id = `marked-${n++}`;
    const response = await fetch(`${server.url}${path}?key=${mark("urlkey")}&q=${mark("url")}`, {
      method,
      body,
      headers: {
        "Content-Type": "application/json",
        "User-Agent": mark("agent"),
        Cookie: `session=${mark("cookie")}`,
        "x-request-id": id,
        ...(key ? { Authorization: `Bearer ${key}` } : {}),
        ...headers,
      },
    });
    return { status: response.status, text: await response.text() };
  };
  for (const path of posts) {
    const admin = /^\/v1\/inferd\/(models|reload)|^\/api\/(create|copy|pull)/.test(path);
    const url = path.replace(/\{[^}]*\}/g, "resp_none");
    await send(url, "POST", `{"messages": "${mark("badjson")}", "prompt": [${mark("badjson")}`, alice);
    await send(url, "POST", JSON.stringify({ ...marked, messages }), mark("wrongkey"));
    await send(url, "POST", JSON.stringify({ ...marked, messages }), null, { "x-api-key": mark("wrongkey") });
    await send(url, "POST", mark("text"), alice, { "Content-Type": "text/plain" });
    if (admin) continue;
    for (const body of variants((m) => membersOf(path, m))) {
      const { status, text } = await send(url, "POST", JSON.stringify(body), alice);
      if (status === 200) answered.add(path);
    }
  }
  for (const path of paths.filter((p) => api.paths[p].get || api.paths[p].delete))
    for (const method of ["GET", "DELETE"]) {
      await send(path.replace(/\{[^}]*\}/g, "none"), method, undefined, mark("wrongkey"));
      await send(path.replace(/\{[^}]*\}/g, "none"), method, undefined, method === "GET" ? alice : null);
    }
  // A file of a batch: its name, its lines, one of them bad, and what they are answered.
  const upload = async (text) => {
    const form = new FormData();
    form.append("purpose", "batch");
    form.append("file", new Blob([text]), `${mark("file")}.jsonl`);
    const response = await fetch(`${server.url}/v1/files`, { method: "POST", body: form, ...as(alice) });
    assert.equal(response.status, 200, await response.clone().text());
    const { id } = await response.json();
    const body = JSON.stringify({
      input_file_id: id,
      endpoint: "/v1/chat/completions",
      completion_window: "24h",
      metadata: { note: mark("metadata") },
    });
    return JSON.parse((await send("/v1/batches", "POST", body, alice)).text).id;
  };
  const line = (model) =>
    JSON.stringify({
      custom_id: mark(`id${model}`),
      method: "POST",
      url: "/v1/chat/completions",
      body: { ...ask, model, messages: user(mark("line")) },
    });
  const batches = [await upload(`${line(modelName)}\n${line("none")}\n`), await upload(`{${mark("badline")}\n`)];
  for (const id of batches)
    await until(async () => {
      const batch = JSON.parse((await send(`/v1/batches/${id}`, "GET", undefined, alice)).text);
      return ["completed", "failed"].includes(batch.status);
    }, "the batch ends");
  // A file that a message names, and one that is no text.
  const anthropic = { "anthropic-version": "2023-06-01", Authorization: `Bearer ${alice}` };
  for (const [type, status] of [
    ["text/plain", 200],
    ["image/png", 400],
  ]) {
    const form = new FormData();
    form.append("file", new Blob([mark("document")], { type }), mark("name"));
    const response = await fetch(`${server.url}/v1/files`, { method: "POST", body: form, headers: anthropic });
    const { id: file_id } = await response.json();
    const content = [{ type: "document", title: mark("title"), source: { type: "file", file_id } }];
    const body = JSON.stringify({ model: modelName, max_tokens: 2, messages: user(content) });
    assert.equal((await send("/v1/messages", "POST", body, alice, anthropic)).status, status);
  }
  await send("/v1/chat/completions", mark("method").toUpperCase().slice(0, 12), undefined, alice);
  // The model's own words, too. (What the bodies above ask for repeats their marks.)
  const said = JSON.parse(
    (await send("/v1/chat/completions", "POST", JSON.stringify({ ...ask, max_tokens: 40 }), alice)).text,
  ).choices[0].message.content;
  assert.ok(said.length >= 24, said);
  await accessOf(`marked-${n - 1}`);
  // Those that the demo model cannot do, or that need what an earlier request has made, refused all bodies.
  const refused = posts.filter(
    (path) =>
      !answered.has(path) &&
      !/inferd|rerank|score|infill|detok|\{|files$|batches$|^\/api\/(create|copy|pull)/.test(path),
  );
  assert.deepEqual(refused, [], "bodies that are answered");
  await until(() => lines(server.stderr).some((l) => l.includes(`marked-${n - 1}`)), "the log has all requests");
  const logs = {
    log: server.stderr + server.stdout,
    access: readFileSync(accessFile, "utf8"),
    audit: execFileSync("sqlite3", [join(server.folder, "registry.db"), "SELECT * FROM audit"], { encoding: "utf8" }),
  };
  for (const [name, whole] of Object.entries(logs)) {
    assert.ok(whole.length > 0, name);
    /* Keys' prefixes and the folder's name are random. */
    const text = whole.replaceAll(/\bik_[a-z0-9]{8}\b/g, "PREFIX").replaceAll(server.folder, "FOLDER");
    const found = /zq/i.exec(text);
    assert.ok(!found, `${name}: ...${text.slice(Math.max(0, (found?.index ?? 0) - 200), (found?.index ?? 0) + 60)}`);
    assert.ok(!text.includes(png), `${name}: an image`);
    for (const secret of [alice.slice(12), limited.slice(12), "root-key"]) assert.ok(!text.includes(secret), name);
  }
  for (const [name, text] of Object.entries(logs)) assert.ok(!text.includes(said.slice(0, 24)), name);
});
