// Why no more of a prompt was cached: the reason in the usage, and at /metrics, and what it never tells.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import {
  addKey,
  metrics,
  modelName,
  post,
  random,
  randomPrompt,
  serving,
  startServer,
  until,
  user,
} from "./server.mjs";

const explain = { "X-Inferd-Explain-Cache": "1" };
let server;
before(async () => {
  server = await startServer(["--kv-cache-tokens", "2048", "--max-sequences", "4"]);
});
after(() => server?.stop());

async function miss(at, body, headers = explain) {
  const response = await post(
    at,
    "/v1/chat/completions",
    { model: modelName, max_tokens: 4, temperature: 0, ...body },
    {
      headers,
    },
  );
  assert.equal(response.status, 200, await response.clone().text());
  return (await response.json()).usage.prompt_tokens_details;
}
const complete = async (at, prompt, headers = explain, more = {}) => {
  const body = { model: modelName, prompt, max_tokens: 1, temperature: 0, ...more };
  const response = await post(at, "/v1/completions", body, { headers });
  assert.equal(response.status, 200, await response.clone().text());
  return (await response.json()).usage.prompt_tokens_details;
};

const story = "The old fox walked slowly through the quiet forest and looked at the tall trees near the small river. ";
const talk = [
  { role: "system", content: "You are a kind storyteller. " + story },
  { role: "user", content: "First question. " + story.repeat(3) },
  { role: "assistant", content: "An answer. " + story },
  { role: "user", content: "And then?" },
];

test("a chat says where it differs from what is cached, in its own text", async () => {
  assert.deepEqual(Object.keys(await miss(server, { messages: talk }, {})), ["cached_tokens"], "only who asks is told");
  const again = await miss(server, { messages: [...talk, { role: "assistant", content: "Yes." }, ...user("More.")] });
  assert.ok(["none", "new_text", "differs"].includes(again.cache_miss.reason));
  const changed = structuredClone(talk);
  const at = changed[1].content.indexOf("quiet", 200);
  changed[1].content = changed[1].content.slice(0, at) + "LOUD" + changed[1].content.slice(at + 5);
  const { cached_tokens, cache_miss } = await miss(server, { messages: changed });
  assert.equal(cache_miss.reason, "differs");
  assert.equal(cache_miss.message, 1);
  assert.ok(cached_tokens > 0 && cache_miss.missed_tokens > 0);
  assert.ok(Math.abs(cache_miss.byte - at) <= 2, `${cache_miss.byte}, not ${at}`);
  assert.match(cache_miss.near, /LOUD/);
  assert.ok(cache_miss.near.length <= 48);
  // The SDK's stream.
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", defaultHeaders: explain });
  const stream = await client.chat.completions.create({
    model: modelName,
    messages: talk,
    max_tokens: 2,
    stream: true,
    stream_options: { include_usage: true },
  });
  let usage;
  for await (const part of stream) usage = part.usage ?? usage;
  assert.equal(usage.prompt_tokens_details.cache_miss.reason, "none");
});

test("nothing cached, evicted, other cache_salt", async () => {
  const rng = random(9);
  const prompt = randomPrompt(rng, 200);
  assert.equal((await complete(server, prompt)).cache_miss.reason, "nothing_cached");
  assert.equal((await complete(server, prompt)).cache_miss.reason, "none");
  assert.equal((await complete(server, [...prompt, ...randomPrompt(rng, 40)])).cache_miss.reason, "new_text");
  const other = { ...explain };
  const salted = await complete(server, prompt, other, { cache_salt: "other" });
  assert.equal(salted.cached_tokens, 0);
  assert.equal(salted.cache_miss.reason, "another_tenant", "programs of this machine are administrators");
  for (let i = 0; i < 6; i++) await complete(server, randomPrompt(rng, 500));
  const evicted = await complete(server, prompt);
  assert.equal(evicted.cache_miss.reason, "evicted");
  assert.equal(evicted.cache_miss.byte, 0);
  const counted = async (name, reason) => (await metrics(server)).get(`inferd_prefix_${name}{reason="${reason}"}`) > 0;
  for (const reason of ["none", "new_text", "nothing_cached", "evicted", "another_tenant", "differs"]) {
    await until(() => counted("ends_total", reason), reason); // the worker counts after the answer
    assert.ok(await counted("missed_tokens_total", reason), reason);
  }
});

test("a key learns nothing of another's prompts; explain-cache is for all", async () => {
  await serving(["--kv-cache-tokens", "4096", "--explain-cache", "on"], async (at) => {
    const alice = { Authorization: `Bearer ${addKey(at, "alice")}` };
    const bob = { Authorization: `Bearer ${addKey(at, "bob")}` };
    const admin = { Authorization: `Bearer ${addKey(at, "boss", "--scopes", "admin,infer")}` };
    const prompt = randomPrompt(random(4), 200);
    await until(async () => (await fetch(`${at.url}/v1/models`)).status === 401, "the keys are known");
    const reason = async (headers) => (await complete(at, prompt, headers)).cache_miss.reason;
    assert.equal(await reason(alice), "nothing_cached");
    assert.equal(await reason(bob), "nothing_cached");
    assert.equal(await reason(admin), "another_tenant");
    assert.equal(await reason(alice), "none");
    const off = await complete(at, prompt, { ...alice, "X-Inferd-Explain-Cache": "0" });
    assert.equal(off.cache_miss, undefined);
  });
});

test("texts that repeat themselves are located or not, but cost little", async () => {
  const messages = Array.from({ length: 16 }, (_, i) => ({
    role: i % 2 ? "assistant" : "user",
    content: "a".repeat(60) + (i % 2 ? "b" : " "),
  }));
  messages.push(...user("end"));
  const { cache_miss } = await miss(server, { messages });
  assert.ok(cache_miss.reason);
});
