// API keys of the registry: made and changed by `inferd keys` while a daemon serves, used by curl and OpenAI's
// SDK, looked at with sqlite3.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { binary, metrics, modelFile, modelName, post, startServer, until, user } from "./server.mjs";

const small = ["--kv-cache-tokens", "4096", "--max-sequences", "8"];
const demo = { file: modelFile, name: modelName, alias: "demo" };
const other = { file: modelFile, name: "other" };
const chosen = "chosen-by-a-person";
let folder, server, registry;

const keys = (...args) => execFileSync(binary, ["keys", ...args, "--registry", registry], { encoding: "utf8" });
const add = (name, ...args) => JSON.parse(keys("add", name, "--json", ...args)).key;
const sql = (query) => execFileSync("sqlite3", [registry, query], { encoding: "utf8" }).trim();
const connect = (apiKey) => new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0 });
const ask = { model: modelName, messages: user("Hello."), max_tokens: 2 };
const headers = (key) => (key ? { Authorization: `Bearer ${key}` } : {});
const get = (path, key) => fetch(server.url + path, { headers: headers(key) });
const statusOf = async (path, key) => (await get(path, key)).status;

// Longer than a daemon may go on as before (KEYRING_FRESH_MS), and less than a second.
const live = () => new Promise((resolve) => setTimeout(resolve, 400));

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "inferd-keys-"));
  writeFileSync(join(folder, "keys"), chosen + "\n", { mode: 0o600 });
  server = await startServer(
    [
      ...small,
      "--api-key-file",
      join(folder, "keys"),
      "--key-failures-per-minute",
      "12",
      "--trusted-proxies",
      "127.0.0.1",
    ],
    [demo, other],
  );
  registry = join(server.folder, "registry.db");
});
after(async () => {
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

test("a key is shown once and works at once, in every header and client; the file has no secret", async () => {
  const made = spawnSync(binary, ["keys", "add", "alice", "--label", "Alice’s agent", "--registry", registry], {
    encoding: "utf8",
  });
  assert.equal(made.status, 0, made.stderr);
  assert.match(made.stdout, /^ik_[a-z2-7]{8}_[a-z2-7]{52}\n$/);
  const key = made.stdout.trim(),
    secret = key.slice(12);
  await live();
  const answer = await connect(key).chat.completions.create(ask);
  assert.equal(answer.choices.length, 1);
  const curl = execFileSync("curl", ["-s", "-H", `x-api-key: ${key}`, `${server.url}/v1/models`], { encoding: "utf8" });
  assert.deepEqual(
    JSON.parse(curl)
      .data.filter((m) => !m.parent)
      .map((m) => m.id),
    [modelName, "other"],
  );
  assert.equal(await statusOf("/v1/models", chosen), 200, "api-key-file stays");
  for (const bad of [key.slice(0, -1) + (key.endsWith("a") ? "b" : "a"), key + "a", key.slice(0, 11), "ik_"]) {
    const refused = await get("/v1/models", bad);
    assert.equal(refused.status, 401);
    assert.equal((await refused.json()).error.code, "invalid_api_key");
  }
  for (const shown of [keys("list"), keys("show", "alice"), keys("show", key.slice(0, 11), "--json"), server.stderr])
    assert.ok(!shown.includes(secret));
  const bytes = Buffer.concat(["", "-wal"].map((end) => readFileSync(registry + end)));
  assert.ok(!bytes.includes(secret), "the secret is not in the file");
  assert.ok(bytes.includes(key.slice(0, 11)), "its prefix is");
  assert.equal(statSync(registry).mode & 0o007, 0);
  assert.equal(
    sql("SELECT name, label, scopes, length(hash) FROM keys k JOIN key_secrets s ON s.key = k.id"),
    "alice|Alice’s agent|3|32",
  );
  assert.match(server.stderr, new RegExp(`POST /v1/chat/completions 200 .* key=${key.slice(0, 11)}`));
  const asked = "Tell me of the seven tall trees.";
  const told = await connect(key).chat.completions.create({ ...ask, messages: user(asked), max_tokens: 24 });
  for (const text of [asked, told.choices[0].message.content])
    assert.ok(text.length > 8 && !server.stderr.includes(text), "prompts and answers are not logged");
});

test("scopes", async () => {
  const all = {
    infer: add("infer", "--scopes", "infer"),
    embed: add("embed", "--scopes", "embed"),
    metrics: add("metrics", "--scopes", "metrics"),
    admin: add("admin", "--scopes", "admin"),
  };
  await live();
  const asks = {
    infer: (key) => post(server, "/v1/chat/completions", ask, { headers: headers(key) }),
    embed: (key) => post(server, "/v1/embeddings", { model: modelName, input: "a" }, { headers: headers(key) }),
    metrics: (key) => get("/metrics", key),
    admin: (key) => get("/v1/inferd/models", key),
  };
  for (const [has, key] of Object.entries(all))
    for (const [needs, request] of Object.entries(asks)) {
      const response = await request(key);
      assert.equal(response.status, has === needs ? 200 : 403, `${has} asks for ${needs}`);
      const body = await response.text();
      if (has === needs) continue;
      const { error } = JSON.parse(body);
      assert.equal(error.code, needs === "admin" ? "admin_key_required" : "missing_scope");
      if (needs !== "admin") assert.match(error.message, new RegExp(`Missing scopes: ${needs}\\.`));
    }
  assert.equal(await statusOf("/v1/inferd/history", all.metrics), 200);
  assert.equal(await statusOf("/v1/inferd/history", all.infer), 403);
  assert.equal(await statusOf("/v1/conversations/conv_x", all.embed), 403);
  assert.equal(await statusOf("/v1/models", all.metrics), 200);
  assert.equal((await post(server, "/tokenize", { content: "a" }, { headers: headers(all.admin) })).status, 403);
});

test("a key of some models sees and uses these only", async () => {
  const key = add("narrow", "--models", "other");
  await live();
  const client = connect(key);
  assert.deepEqual(
    (await client.models.list()).data.map((m) => m.id),
    ["other"],
  );
  const tags = await (await get("/api/tags", key)).json();
  assert.deepEqual(
    tags.models.map((m) => m.name),
    ["other"],
  );
  assert.ok(await client.chat.completions.create({ ...ask, model: "other" }));
  for (const model of [modelName, "demo", "none"])
    await assert.rejects(client.chat.completions.create({ ...ask, model }), (e) => {
      assert.equal(e.status, 404);
      assert.equal(e.code, "model_not_found");
      assert.equal(e.message, `404 The model '${model}' does not exist or you do not have access to it.`);
      return true;
    });
  await assert.rejects(client.models.retrieve(modelName), { status: 404 });
  keys("limit", "narrow", "--models", "all");
  await live();
  assert.ok(await client.chat.completions.create(ask));
});

test("expiry, rotation with and without grace, revocation: each within a second", async () => {
  const key = add("short", "--expires", "1h");
  const old = add("turning");
  await live();
  const stored = await connect(old).chat.completions.create({ ...ask, store: true });
  assert.equal(await statusOf("/v1/models", key), 200);
  keys("limit", "short", "--expires", "0s");
  const next = JSON.parse(keys("rotate", "turning", "--grace", "1h", "--json")).key;
  await live();
  const expired = await get("/v1/models", key);
  assert.equal(expired.status, 401);
  assert.equal((await expired.json()).error.code, "expired_api_key");
  for (const k of [old, next]) {
    assert.equal(await statusOf("/v1/models", k), 200);
    assert.equal(
      (await connect(k).chat.completions.retrieve(stored.id)).id,
      stored.id,
      "what is stored stays the key's",
    );
  }
  const last = keys("rotate", "turning").trim();
  const show = () => JSON.parse(keys("show", "short", "--json"));
  for (const [text, seconds] of [
    ["1d12h", 129600],
    ["36500d", 36500 * 86400],
    ["1500ms", 2],
  ]) {
    const began = Math.floor(Date.now() / 1000);
    keys("limit", "short", "--expires", text);
    const left = show().expires - began - seconds;
    assert.ok(left >= 0 && left <= Date.now() / 1000 - began, `${text}: ${left}`);
  }
  keys("limit", "short", "--expires", "never");
  await live();
  assert.deepEqual(
    await Promise.all([old, next, last, key].map((k) => statusOf("/v1/models", k))),
    [401, 401, 200, 200],
  );
  keys("revoke", "turning");
  await live();
  const revoked = await get("/v1/models", last);
  assert.equal((await revoked.json()).error.code, "revoked_api_key");
  const again = spawnSync(binary, ["keys", "rotate", "turning", "--registry", registry], { encoding: "utf8" });
  assert.deepEqual([again.status, again.stderr], [1, "inferd: the key turning is revoked: add another one\n"]);
});

test("wrong keys are limited per address and counted; a key that cannot be guessed passes", async () => {
  const key = add("steady");
  const counts = add("counts", "--scopes", "metrics");
  await live();
  const count = async (reason) =>
    (await metrics({ ...server, key: counts })).get(`inferd_auth_failures_total{reason="${reason}"}`);
  const from = (address, k) =>
    fetch(`${server.url}/v1/models`, { headers: { ...headers(k), "X-Forwarded-For": address } });
  const before = [await count("unknown"), await count("limited")];
  const statuses = [];
  for (let i = 0; i < 15; i++) statuses.push((await from("192.0.2.1", `guess-${i}`)).status);
  assert.deepEqual(statuses.slice(0, 12), Array(12).fill(401));
  assert.deepEqual(statuses.slice(12), [429, 429, 429]);
  assert.deepEqual([await count("unknown"), await count("limited")], [before[0] + 12, before[1] + 3]);
  const limited = await from("192.0.2.1", chosen);
  assert.equal(limited.status, 429, "a right guess is not told from a wrong one");
  assert.ok(Number(limited.headers.get("retry-after")) >= 1 && Number(limited.headers.get("retry-after")) <= 5);
  assert.equal((await from("192.0.2.1", key)).status, 200);
  assert.equal((await from("192.0.2.2", chosen)).status, 200, "other addresses are not affected");
  assert.equal((await from("192.0.2.2")).status, 401);
  assert.ok((await count("missing")) >= 1);
  assert.ok((await count("scope")) >= 1);
  assert.ok(!server.stderr.includes("guess-"), "wrong keys are not logged");
});

test("metrics by key", async () => {
  const key = add("measured", "--scopes", "infer,metrics");
  await live();
  await connect(key).chat.completions.create(ask);
  const prefix = key.slice(0, 11);
  let values;
  // A request is counted after its answer.
  await until(async () => {
    values = await metrics({ ...server, key });
    return values.get(`inferd_key_completion_tokens_total{key="${prefix}"}`);
  }, "the answer is counted");
  assert.equal(values.get(`inferd_key_requests_total{key="${prefix}"}`), 1);
  assert.equal(values.get(`inferd_key_completion_tokens_total{key="${prefix}"}`), 2);
  assert.equal(values.get('inferd_key_requests_total{key="1"}') >= 1, true, "of api-key-file");
});

test("the first key closes an open daemon, revoking it does not open it; registry-keys = off ignores keys", async () => {
  const open = await startServer(small);
  try {
    const file = join(open.folder, "registry.db");
    const own = (...args) => execFileSync(binary, ["keys", ...args, "--registry", file], { encoding: "utf8" });
    const status = async (key) => (await fetch(`${open.url}/v1/models`, { headers: headers(key) })).status;
    assert.equal(await status(), 200);
    const key = own("add", "first").trim();
    await live();
    assert.deepEqual([await status(), await status(key)], [401, 200]);
    own("revoke", "first");
    await live();
    assert.deepEqual([await status(), await status(key)], [401, 401]);
    await open.restart();
    assert.equal(await status(), 401);
  } finally {
    await open.stop();
  }
  const ignoring = await startServer([...small, "--registry-keys", "off"]);
  try {
    execFileSync(binary, ["keys", "add", "a", "--registry", join(ignoring.folder, "registry.db")]);
    await live();
    assert.equal((await fetch(`${ignoring.url}/v1/models`)).status, 200);
  } finally {
    await ignoring.stop();
  }
});

test("what is wrong is said by name", () => {
  const wrong = [
    [["add", "a b"], /a key's name has 1 to 64 characters/],
    [["add", "x".repeat(65)], /a key's name has/],
    [["add", "alice"], /a key named alice exists: rotate it, or choose another name/],
    [["add", "n", "--scopes", "infer,root"], /--scopes: "root" is none of infer, embed, admin and metrics/],
    [["add", "n", "--models", ""], /--models: no name is given; all: every model/],
    [["limit", "alice", "--models", ""], /--models: no name is given/],
    [["add", "n", "--models", "a,,b"], /models: "" is not a model's name/],
    [["add", "n", "--models", "a,"], /models: a name is missing at the end/],
    [["add", "n", "--expires", "5y"], /--expires: "5y" is not a time such as 30d/],
    [["add", "n", "--expires", "99999999999999999999d"], /--expires: /],
    [["add", "n", "--expires", "30"], /--expires: "30" is not a time such as 30d/],
    [["add", "n", "--expires", "-1h"], /--expires: /],
    [["add", "n", "--expires", "36501d"], /--expires: /],
    [["add", "n", "--label", "a\nb"], /a key's label has at most 128 bytes/],
    [["show", "nobody"], /no key is named nobody: `inferd keys list` shows them/],
    [["revoke", "nobody"], /no key is named nobody/],
  ];
  for (const [args, message] of wrong) {
    const run = spawnSync(binary, ["keys", ...args, "--registry", registry], { encoding: "utf8" });
    assert.equal(run.status, 1, args.join(" "));
    assert.match(run.stderr, message);
    assert.equal(run.stdout, "");
  }
});
