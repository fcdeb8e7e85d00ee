// The ledger: who used how many tokens, as answers said it; by sqlite3, `inferd usage` and the API; after kill -9.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { addKey, chat, modelName, post, sse, startServer, until, user, withRegistry } from "./server.mjs";

let server, alice, bob, counts;
const registry = () => join(server.folder, "registry.db");
const run = (...args) => withRegistry(server, ...args);
const add = (name, ...args) => addKey(server, name, ...args);
const usage = (...args) => JSON.parse(run("usage", "--json", ...args));
const sql = (query) => execFileSync("sqlite3", ["-json", registry(), query], { encoding: "utf8" });
const as = (key) => ({ headers: { Authorization: `Bearer ${key}` } });
const get = async (path, key) => {
  const response = await fetch(server.url + path, as(key));
  return [response.status, await response.json()];
};
const connect = (apiKey) => new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0 });
const ask = { model: modelName, messages: user("Hello, who are you?") };
const ofKey = (name) => usage("--by", "key").find((row) => row.key === name);
const settled = (name, check) => until(() => check(ofKey(name) ?? {}), `usage of ${name}`);

before(async () => {
  server = await startServer(["--kv-cache-tokens", "8192", "--max-sequences", "8"]);
  alice = add("alice");
  bob = add("bob");
  counts = add("counts", "--scopes", "metrics");
  await new Promise((resolve) => setTimeout(resolve, 400));
});
after(() => server?.stop());

test("sums are those that the answers gave, once each", async () => {
  const client = connect(alice).chat.completions;
  const said = [];
  said.push((await client.create({ ...ask, max_tokens: 7 })).usage);
  said.push((await client.create({ ...ask, n: 3, max_tokens: 40 })).usage);
  for (const options of [{ max_tokens: 30 }, { max_tokens: 200, stop: ["e"] }])
    for await (const chunk of await client.create({
      ...ask,
      ...options,
      stream: true,
      stream_options: { include_usage: true },
    }))
      if (chunk.usage) said.push(chunk.usage);
  const legacy = await post(
    server,
    "/v1/completions",
    { model: modelName, prompt: ["a b", "c d"], max_tokens: 3 },
    as(alice),
  );
  said.push((await legacy.json()).usage);
  assert.equal((await chat(server, { messages: 1 }, as(alice))).status, 400); // used nothing
  assert.equal(said.length, 5);
  const sum = (f) => said.reduce((n, u) => n + f(u), 0);
  const want = {
    key: "alice",
    requests: 5,
    input_tokens: sum((u) => u.prompt_tokens),
    input_cached_tokens: sum((u) => u.prompt_tokens_details.cached_tokens),
    output_tokens: sum((u) => u.completion_tokens),
  };
  assert.ok(want.input_cached_tokens > 0);
  await settled("alice", (u) => u.requests === 5 && u.output_tokens >= want.output_tokens);
  assert.deepEqual(ofKey("alice"), want);
  const embedded = await connect(bob).embeddings.create({ model: modelName, input: ["a", "b c"] });
  await settled("bob", (u) => u.requests === 1);
  const rows = JSON.parse(
    sql(
      "SELECT name, model, kind, requests, input_tokens, output_tokens FROM usage JOIN keys ON keys.id = key ORDER BY name",
    ),
  );
  assert.deepEqual(rows.at(-1), {
    name: "bob",
    model: modelName,
    kind: 1,
    requests: 1,
    input_tokens: embedded.usage.prompt_tokens,
    output_tokens: 0,
  });
  assert.match(run("usage", "--by", "key,day"), /^TIME \(UTC\) +KEY .*\n\d{4}-\d\d-\d\d +alice +all +all +5 /);
});

test("GET /v1/inferd/usage: a key sees its own, one with the scope metrics all", async () => {
  const [status, own] = await get("/v1/inferd/usage", bob);
  assert.equal(status, 200);
  assert.deepEqual(
    own.data.map((row) => [row.api_key_name, row.kind, row.requests]),
    [["bob", "embeddings", 1]],
  );
  const other = own.data[0].api_key_id.replace(/\d+/, (n) => n - 1);
  const [, still] = await get(`/v1/inferd/usage?api_key_ids=${other}`, bob);
  assert.deepEqual(still.data, own.data, "asking for another key's shows one's own");
  const [, all] = await get("/v1/inferd/usage?bucket_width=all", counts);
  assert.deepEqual(
    all.data.map((row) => row.api_key_name),
    ["alice", "bob"],
  );
  const [, one] = await get(`/v1/inferd/usage?api_key_ids[]=${other}`, counts);
  assert.ok(one.data.length >= 1 && one.data.every((row) => row.api_key_name === "alice"));
  for (const [query, param] of [
    ["start_time=x", "start_time"],
    ["bucket_width=1m", "bucket_width"],
    ["group_by=user_id", "group_by"],
    ["api_key_ids=1", "api_key_ids"],
    ["api_key_ids=file_0", "api_key_ids"],
    ["who=me", "who"],
  ]) {
    const [code, { error }] = await get(`/v1/inferd/usage?${query}`, counts);
    assert.deepEqual([code, error.param], [400, param]);
  }
});

test("OpenAI's /v1/organization/usage/completions: buckets, groups, pages", async () => {
  const day = 86400,
    today = Math.floor(Date.now() / 1000 / day) * day,
    path = "/v1/organization/usage/completions";
  assert.equal((await get(`${path}?start_time=${today}`, alice))[0], 403);
  assert.equal((await get(path, counts))[1].error.param, "start_time");
  const total = usage("--by", "kind").find((row) => row.kind === "completions");
  const [status, body] = await get(
    `${path}?start_time=${today - 2 * day}&group_by[]=model&group_by[]=api_key_id`,
    counts,
  );
  assert.equal(status, 200);
  assert.deepEqual([body.object, body.has_more, body.next_page], ["page", false, null]);
  assert.deepEqual(
    body.data.slice(0, 3).map((b) => [b.object, b.start_time]),
    [0, 1, 2].map((i) => ["bucket", today + (i - 2) * day]),
  );
  assert.equal(body.data[0].end_time, today - day);
  const results = body.data.flatMap((b) => b.results);
  assert.deepEqual(results, [
    {
      object: "organization.usage.completions.result",
      input_tokens: total.input_tokens,
      output_tokens: total.output_tokens,
      input_cached_tokens: total.input_cached_tokens,
      input_audio_tokens: 0,
      output_audio_tokens: 0,
      num_model_requests: 5,
      project_id: null,
      user_id: null,
      api_key_id: "key_1",
      model: modelName,
      batch: null,
    },
  ]);
  // A first bucket that begins within its day has what was used from then on.
  const [, within] = await get(`${path}?start_time=${today + 1}&group_by=model&group_by=api_key_id`, counts);
  assert.equal(within.data[0].start_time, today + 1);
  assert.deepEqual(
    within.data.flatMap((b) => b.results),
    results,
  );
  // The same by pages of hours.
  let page,
    requests = 0,
    n = 0;
  for (let i = 0; i < 20 && page !== null; i++) {
    const query = `start_time=${today - day}&end_time=${today + day}&bucket_width=1h&limit=7${page ? `&page=${page}` : ""}`;
    const [, part] = await get(`${path}?${query}`, counts);
    n += part.data.length;
    assert.ok(part.data.length <= 7 && part.data.every((b) => b.end_time - b.start_time === 3600));
    requests += part.data.flatMap((b) => b.results).reduce((sum, r) => sum + r.num_model_requests, 0);
    page = part.next_page;
  }
  assert.deepEqual([requests, n, page], [5, 48, null]);
  const [, embeddings] = await get(`/v1/organization/usage/embeddings?start_time=${today - day}`, counts);
  assert.equal(embeddings.data.flatMap((b) => b.results)[0].object, "organization.usage.embeddings.result");
});

test("usage of a file's key is found by the id that it is listed with", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inferd-keys-")),
    file = join(folder, "keys");
  writeFileSync(file, "first-key-of-the-file\nsecond-key-of-the-file\n", { mode: 0o600 });
  const own = await startServer(["--api-key-file", file]);
  try {
    const second = as("second-key-of-the-file");
    await chat(own, { ...ask, max_tokens: 1 }, second);
    const of = async (query) => (await (await fetch(`${own.url}/v1/inferd/usage${query}`, second)).json()).data;
    const [row] = await until(async () => (await of("")).length && (await of("")), "it is listed");
    assert.equal(row.api_key_id, "file_2");
    assert.deepEqual(await of("?api_key_ids=file_2"), [row]);
    assert.deepEqual(await of("?api_key_ids=file_1"), []);
  } finally {
    await own.stop();
    rmSync(folder, { recursive: true });
  }
});

test("kill -9 loses the last second at most, and nothing counts twice", async () => {
  const key = add("carol");
  await new Promise((resolve) => setTimeout(resolve, 400));
  const short = { ...ask, max_tokens: 5, ignore_eos: true };
  let tokens = 0;
  for (let round = 0; round < 3; round++) {
    for (let i = 0; i < 4; i++) tokens += (await (await chat(server, short, as(key))).json()).usage.completion_tokens;
    await settled("carol", (u) => u.output_tokens === tokens);
    // A stream that is cut by the kill: what was written before stays, and no more than was generated.
    const stream = await chat(server, { ...ask, max_tokens: 1500, ignore_eos: true, stream: true }, as(key));
    const reading = (async () => {
      let n = 0;
      try {
        for await (const event of sse(stream)) n += event.choices?.length ?? 0;
      } catch {}
      return n;
    })();
    await settled("carol", (u) => u.output_tokens > tokens); // while it runs
    const written = ofKey("carol").output_tokens;
    await server.restart("SIGKILL");
    await reading;
    const kept = ofKey("carol");
    assert.ok(kept.output_tokens >= written && kept.output_tokens <= tokens + 1500);
    assert.equal(kept.requests, 5 * (round + 1));
    tokens = kept.output_tokens;
  }
  await server.restart(); // an orderly stop writes the rest
  assert.equal(ofKey("carol").output_tokens, tokens);
  await (await chat(server, short, as(key))).json();
  await server.restart();
  assert.equal(ofKey("carol").output_tokens, tokens + 5);
  assert.equal(ofKey("carol").requests, 16);
});
