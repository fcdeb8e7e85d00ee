// Two keys share a model: one floods it with 64 clients, the other still gets its part, and soon.
import assert from "node:assert/strict";
import { test } from "node:test";
import { addKey, chat, metrics, serving, sleep, sse, until, user } from "./server.mjs";

const flags = ["--kv-cache-tokens", "16384", "--max-sequences", "8", "--context-length", "1024"];

// A client that asks again and again until told to stop. Counts tokens, and answers that ended.
function client(server, headers, count, maxTokens) {
  const leave = new AbortController();
  const body = { messages: user("Tell me a story."), max_tokens: maxTokens, ignore_eos: true, stream: true };
  const done = (async () => {
    while (!leave.signal.aborted)
      try {
        const response = await chat(server, body, { headers, signal: leave.signal });
        assert.equal(response.status, 200, "the queue has room for all");
        for await (const event of sse(response)) count.tokens += event.choices?.[0]?.delta?.content ? 1 : 0;
        count.ended++;
      } catch (e) {
        if (!leave.signal.aborted) throw e;
      }
  })();
  return { stop: () => (leave.abort(), done) };
}

// Runs n clients of one key and m of another; returns what each had got when together they had `enough`.
async function compete(server, floodHeaders, headers, n, m, enough) {
  const flood = { tokens: 0, ended: 0 },
    own = { tokens: 0, ended: 0 };
  const clients = Array.from({ length: n }, () => client(server, floodHeaders, flood, 400));
  await until(() => flood.tokens > 0, "the flood runs");
  flood.tokens = 0;
  clients.push(...Array.from({ length: m }, () => client(server, headers, own, 400)));
  await until(() => own.tokens > 0, "the other one gets a token");
  const endedBefore = flood.ended;
  flood.tokens = own.tokens = 0;
  await until(() => flood.tokens + own.tokens >= enough, "both got tokens", 60_000);
  const result = { flood: flood.tokens, own: own.tokens, endedBefore };
  await Promise.all(clients.map((c) => c.stop()));
  return result;
}

test("a flood of 64 clients leaves another key its part, by weight", () =>
  serving(flags, async (server) => {
    const key = (name, ...args) => ({ Authorization: `Bearer ${addKey(server, name, ...args)}` });
    const [a, b, heavy] = [key("a"), key("b"), key("heavy", "--weight", "300")];
    const counts = { ...server, key: addKey(server, "counts", "--scopes", "metrics") };
    await sleep(400);
    const fair = await compete(server, a, b, 64, 8, 1600);
    // All eight places were taken by answers of 400 tokens; none of them had to end first.
    assert.equal(fair.endedBefore, 0);
    assert.ok((await metrics(counts)).get("inferd_preemptions_total") >= 1);
    const part = fair.own / (fair.flood + fair.own);
    assert.ok(part >= 0.45 / 2 && part < 0.6, `${fair.own} of ${fair.flood + fair.own} tokens`);
    const weighted = await compete(server, a, heavy, 64, 8, 1600);
    const more = weighted.own / (weighted.flood + weighted.own);
    assert.ok(more > 0.6 && more < 0.9, `${weighted.own} of ${weighted.flood + weighted.own} tokens at weight 3`);
  }));

test("with fair-share = off the flood keeps its places; a gateway's id names clients", async () => {
  await serving([...flags, "--fair-share", "off"], async (server) => {
    const values = { tokens: 0, ended: 0 };
    const flood = Array.from({ length: 12 }, () => client(server, {}, values, 60));
    const waiting = async () => (await metrics(server)).get("inferd_sequences_waiting") === 4;
    await until(waiting, "eight of the flood run, four wait");
    const ended = async () => (await metrics(server)).get('inferd_sequences_finished_total{reason="length"}');
    const before = await ended();
    const body = { messages: user("Hi."), max_tokens: 1 };
    const response = await chat(server, body, { headers: { "x-gateway-inference-fairness-id": "b" } });
    assert.equal(response.status, 200);
    await response.text();
    assert.ok((await ended()) - before >= 5, "it waited for those before it");
    assert.equal((await metrics(server)).get("inferd_preemptions_total"), 0);
    await Promise.all(flood.map((c) => c.stop()));
  });
  await serving([...flags, "--fair-share", "fairness-id"], async (server) => {
    const named = (id) => ({ "x-gateway-inference-fairness-id": id });
    const fair = await compete(server, named("a"), named("b"), 32, 8, 800);
    assert.equal(fair.endedBefore, 0);
    const part = fair.own / (fair.flood + fair.own);
    assert.ok(part >= 0.45 / 2 && part < 0.6, `${fair.own} of ${fair.flood + fair.own} tokens`);
  });
});
