// What a key may use: requests, tokens, sequences; 429 with Retry-After and OpenAI's x-ratelimit headers.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { addKey, chat, metrics, modelName, post, sse, startServer, until, user, withRegistry } from "./server.mjs";

let server;
const add = (name, ...args) => addKey(server, name, ...args);
const live = () => new Promise((resolve) => setTimeout(resolve, 400)); // see keys.test.mjs
const headers = (key) => ({ Authorization: `Bearer ${key}` });
const as = (key) => ({ headers: headers(key) });
const short = { messages: user("Hello."), max_tokens: 2 };
const seconds = (text) => {
  const [, h, m, s, ms] = /^(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?$/.exec(text);
  return (h ?? 0) * 3600 + (m ?? 0) * 60 + +(s ?? 0) + (ms ?? 0) / 1000;
};
const limitsOf = (response, kind) =>
  ["limit", "remaining"].map((what) => Number(response.headers.get(`x-ratelimit-${what}-${kind}`)));
const resetOf = (response, kind) => seconds(response.headers.get(`x-ratelimit-reset-${kind}`));

before(async () => {
  server = await startServer(["--kv-cache-tokens", "8192", "--max-sequences", "8"]);
});
after(() => server?.stop());

test("requests per minute", async () => {
  const key = add("rpm", "--requests-per-minute", "3", "--requests-per-day", "1000");
  const free = add("free");
  await live();
  for (const left of [2, 1, 0]) {
    const response = await chat(server, short, as(key));
    assert.equal(response.status, 200);
    assert.deepEqual(limitsOf(response, "requests"), [3, left]);
    const reset = resetOf(response, "requests");
    assert.ok(reset > (3 - left) * 20 - 15 && reset <= (3 - left) * 20, `${reset} s`);
    await response.text();
  }
  const refused = await chat(server, short, as(key));
  assert.equal(refused.status, 429);
  assert.deepEqual(limitsOf(refused, "requests"), [3, 0]);
  const wait = Number(refused.headers.get("retry-after"));
  assert.ok(wait >= 5 && wait <= 21, `${wait} s`);
  const ms = Number(refused.headers.get("retry-after-ms"));
  assert.ok(ms <= wait * 1000 && ms > (wait - 1) * 1000);
  const { error } = await refused.json();
  assert.deepEqual([error.type, error.code, error.param], ["requests", "rate_limit_exceeded", null]);
  assert.match(
    error.message,
    new RegExp(
      `^Rate limit reached for key ${key.slice(0, 11)} on requests per minute \\(RPM\\): Limit 3, Used 3, Requested 1\\. Please try again in \\d+s\\.$`,
    ),
  );
  // Other keys, and what starts no work, are not affected; every protocol says it in its own form.
  assert.equal((await chat(server, short, as(free))).status, 200);
  assert.equal((await fetch(`${server.url}/v1/models`, as(key))).status, 200);
  const body = { model: modelName, max_tokens: 2, messages: user("a") };
  const anthropic = await post(server, "/v1/messages", body, { headers: { "x-api-key": key } });
  assert.equal((await anthropic.json()).error.type, "rate_limit_error");
  await assert.rejects(
    new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key, maxRetries: 0 }).embeddings.create({
      model: modelName,
      input: "a",
    }),
    OpenAI.RateLimitError,
  );
  // A higher limit counts at once.
  withRegistry(server, "keys", "limit", "rpm", "--requests-per-minute", "1000");
  await live();
  assert.equal((await chat(server, short, as(key))).status, 200);
});

test("tokens per minute: of prompts and answers, with debt", async () => {
  const key = add("tpm", "--tokens-per-minute", "600");
  await live();
  const first = await chat(server, { messages: user("Hello."), max_tokens: 20, ignore_eos: true }, as(key));
  const { usage } = await first.json();
  assert.equal(limitsOf(first, "tokens")[0], 600);
  const next = await chat(server, { ...short, max_tokens: 1 }, as(key));
  const { usage: second } = await next.json();
  const left = limitsOf(next, "tokens")[1],
    used = usage.total_tokens + second.total_tokens;
  // A tenth of the limit flows back every six seconds.
  assert.ok(left >= 600 - used && left <= 600 - used + 100, `${left} left of 600 after ${used}`);
  // A prompt longer than the limit may start from a full bucket only, and leaves a debt.
  const huge = { messages: user("word ".repeat(900)), max_tokens: 1 };
  const refused = await chat(server, huge, as(key));
  assert.equal(refused.status, 429);
  const { error } = await refused.json();
  assert.deepEqual([error.type, error.code], ["tokens", "rate_limit_exceeded"]);
  assert.match(error.message, /on tokens per minute \(TPM\): Limit 600, Used \d+, Requested \d+\. /);
  const counts = add("counts", "--scopes", "metrics");
  await live();
  assert.ok((await metrics({ ...server, key: counts })).get('inferd_http_rejected_total{reason="key_quota"}') >= 1);
});

test("embeddings use tokens; a day's limit is shown where it is nearer", async () => {
  const key = add("day", "--tokens-per-minute", "100000", "--tokens-per-day", "40");
  await live();
  const input = Array(30).fill(500);
  const ask = () => post(server, "/v1/embeddings", { model: modelName, input }, as(key));
  const first = await ask();
  assert.equal(first.status, 200);
  assert.deepEqual(limitsOf(first, "tokens"), [40, 10]);
  const second = await ask();
  assert.equal(second.status, 429);
  assert.ok(Number(second.headers.get("retry-after")) > 3600 * 11, "half of a day");
  assert.match((await second.json()).error.message, /tokens per day \(TPD\).*try again in 1[12]h\d+m\d+s\./);
});

test("sequences at once: choices count, ended and abandoned ones do not", async () => {
  const key = add("seq", "--sequences", "2");
  await live();
  const long = { messages: user("Tell me a story."), max_tokens: 2000, ignore_eos: true, stream: true };
  assert.equal((await chat(server, { ...short, n: 3 }, as(key))).status, 429);
  const leave = new AbortController();
  const running = await chat(server, { ...long, n: 2 }, { ...as(key), signal: leave.signal });
  assert.equal(running.status, 200);
  const events = sse(running);
  await events.next();
  const refused = await chat(server, short, as(key));
  assert.equal(refused.status, 429);
  assert.match((await refused.json()).error.message, /on concurrent sequences: Limit 2, Used 2, Requested 1\. /);
  assert.equal((await post(server, "/v1/embeddings", { model: modelName, input: "a" }, as(key))).status, 429);
  leave.abort();
  await until(async () => (await chat(server, short, as(key))).status === 200, "the abandoned ones are released");
  for (let i = 0; i < 4; i++) assert.equal((await chat(server, { ...short, n: 2 }, as(key))).status, 200);
  assert.equal(
    (await post(server, "/v1/embeddings", { model: modelName, input: ["a", "b", "c"] }, as(key))).status,
    200,
  );
});

test("share of the KV cache: beyond it requests wait; one that could never fit is refused with numbers", async () => {
  const key = add("kv", "--kv-share", "10"); // 51 of 512 blocks of 16 tokens: 816 tokens
  const free = add("kv-free");
  await live();
  const prompt = (n) => Array(n).fill(500);
  const complete = (n, max_tokens, of, options = {}) => {
    const body = { model: modelName, prompt: prompt(n), max_tokens, ignore_eos: true, ...options };
    return post(server, "/v1/completions", body, as(of));
  };
  const refused = await complete(816, 1, key);
  assert.equal(refused.status, 400);
  const { error } = await refused.json();
  assert.equal(error.code, "context_length_exceeded");
  assert.equal(
    error.message,
    "the prompt has 816 tokens and needs room for an answer; this key may hold 10 % of the KV cache, 51 of its 512 blocks of 16 tokens, which is 816 tokens",
  );
  assert.equal((await complete(816, 1, free)).status, 200);
  const embed = (n) => post(server, "/v1/embeddings", { model: modelName, input: prompt(n) }, as(key));
  assert.equal((await embed(816)).status, 200); // it needs no room for an answer
  const tooLong = await embed(817);
  assert.equal(tooLong.status, 400);
  assert.match(
    (await tooLong.json()).error.message,
    /817 tokens; this key may hold 10 % of the KV cache, 51 of its 512/,
  );
  const last = await (await complete(814, 100, key)).json(); // the answer ends where the share does
  assert.deepEqual([last.usage.completion_tokens, last.choices[0].finish_reason], [2, "length"]);
  // Each of two streams begins with 40 blocks: the second waits for the first one's end. Neither is ever paused: their
  // events fit their queues.
  const counts = { ...server, key: add("kv-counts", "--scopes", "metrics") };
  await live();
  const stream = () => complete(640, 100, key, { stream: true });
  const first = await stream();
  const events = sse(first);
  await events.next();
  const second = stream().then(async (response) => {
    assert.equal(response.status, 200);
    const tokens = sse(response);
    await tokens.next();
    const running = (await metrics(counts)).get("inferd_sequences_running");
    for await (const token of tokens) assert.ok(!token.error);
    return running;
  });
  for await (const token of events) assert.ok(!token.error);
  assert.ok((await second) <= 1);
  assert.equal((await metrics(counts)).get("inferd_preemptions_total"), 0);
});

test("Anthropic's headers on its own endpoint: limits, what is left, and when it is back", async () => {
  const key = add("claude", "--requests-per-minute", "2", "--tokens-per-minute", "6000");
  await live();
  const client = new Anthropic({ baseURL: server.url, apiKey: key, maxRetries: 0 });
  const ask = () =>
    client.messages.create({ model: modelName, max_tokens: 2, messages: user("Hello.") }).withResponse();
  const of = (headers, kind) =>
    ["limit", "remaining", "reset"].map((what) => headers.get(`anthropic-ratelimit-${kind}-${what}`));
  // The reset is as far off as OpenAI's says, up to the second that a date leaves out.
  const agrees = (headers, kind, openai, limit, before) => {
    const [most, left, reset] = of(headers, kind);
    assert.deepEqual([most, left], [limit, headers.get(`x-ratelimit-remaining-${openai}`)]);
    assert.match(reset, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
    const wait = seconds(headers.get(`x-ratelimit-reset-${openai}`)) * 1000;
    const [from, to] = [before + wait - 2000, Date.now() + wait + 2000];
    assert.ok(Date.parse(reset) >= from && Date.parse(reset) <= to, `${kind}: ${reset}`);
  };
  let before = Date.now();
  const { data, response } = await ask();
  assert.equal(response.headers.get("anthropic-ratelimit-requests-remaining"), "1");
  agrees(response.headers, "requests", "requests", "2", before);
  for (const kind of ["tokens", "input-tokens", "output-tokens"])
    agrees(response.headers, kind, "tokens", "6000", before);
  before = Date.now();
  const next = (await ask()).response.headers;
  const used = 6000 - Number(of(next, "tokens")[1]);
  assert.ok(used > 0 && used <= 2 * (data.usage.input_tokens + 2), `${used} tokens`);
  await assert.rejects(ask(), (e) => {
    assert.ok(e instanceof Anthropic.RateLimitError);
    agrees(e.headers, "requests", "requests", "2", before);
    assert.ok(Number(e.headers.get("retry-after")) >= 1);
    return true;
  });
  // Other protocols do not send them, nor does a key without limits.
  const other = await fetch(`${server.url}/v1/chat/completions`, { ...as(key), method: "POST", body: "{}" });
  assert.equal(other.headers.get("anthropic-ratelimit-requests-limit"), null);
  assert.equal(other.headers.get("x-ratelimit-limit-requests"), "2");
  const free = new Anthropic({ baseURL: server.url, apiKey: add("claude-free"), maxRetries: 0 });
  await live();
  const plain = await free.messages.create({ model: modelName, max_tokens: 2, messages: user("a") }).withResponse();
  assert.deepEqual(of(plain.response.headers, "requests"), [null, null, null]);
});
