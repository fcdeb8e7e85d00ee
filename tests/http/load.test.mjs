// Up to 256 concurrent streaming clients over a KV cache far too small for them; one in ten disconnects.
import assert from "node:assert/strict";
import { test } from "node:test";
import { metrics, modelName, patience, post, random, randomPrompt, sse, startServer, until } from "./server.mjs";

const clients = Number(process.env.LOAD_CLIENTS ?? 256);
// Sanitizer builds run the same clients with shorter texts.
const longestPrompt = patience > 1 ? 200 : 800,
  longestAnswer = patience > 1 ? 40 : 120;

// Each client's state, for the message if one hangs.
const places = new Map();

async function client(server, i, counts) {
  const rng = random(i);
  const vanish = rng.next() < 0.1 ? rng.int(0, 8) : -1; // after this number of chunks; -1: never
  const controller = new AbortController();
  const maxTokens = rng.int(8, longestAnswer);
  const body = {
    model: modelName,
    prompt: randomPrompt(rng, rng.int(10, longestPrompt)),
    max_tokens: maxTokens,
    stream: true,
    seed: i,
    temperature: 1,
    ignore_eos: rng.next() < 0.5,
    stream_options: { include_usage: true },
  };
  try {
    places.set(i, `waits for its headers (vanish ${vanish})`);
    const response = await post(server, "/v1/completions", body, { signal: controller.signal });
    counts.statuses[response.status] = (counts.statuses[response.status] ?? 0) + 1;
    if (response.status !== 200) return;
    let chunks = 0,
      finish = null,
      done = false,
      usage = null;
    // After aborting, do not read the body: in Node 20 a body that was complete when it was aborted may
    // never end, neither on the next read nor on the iterator's return.
    const leave = () => {
      controller.abort();
      throw controller.signal.reason;
    };
    if (vanish === 0) leave();
    const events = sse(response);
    for (let next = await events.next(); !next.done; next = await events.next()) {
      const event = next.value;
      if (event === "[DONE]") done = true;
      else if (event.comment === undefined) {
        assert.ok(!event.error, JSON.stringify(event));
        chunks++;
        places.set(i, `has ${chunks} chunks, finish ${finish}, done ${done} (vanish ${vanish}, at most ${maxTokens})`);
        finish ??= event.choices[0]?.finish_reason ?? null;
        usage ??= event.usage;
        if (chunks === vanish) leave();
      }
    }
    assert.ok(done && (finish === "stop" || finish === "length"), `client ${i} ended with ${finish}`);
    assert.ok(usage.completion_tokens <= maxTokens);
    if (finish === "length") assert.equal(usage.completion_tokens, maxTokens);
    counts.finished++;
  } catch (e) {
    if (e.name !== "AbortError") throw e;
    counts.vanished++;
  } finally {
    places.delete(i);
  }
}

test(`${clients} streaming clients, a tenth of them vanishing`, async () => {
  // Two sequences of maximum length fill this cache.
  const cacheTokens = 2 * (longestPrompt + longestAnswer) + 160;
  const server = await startServer([
    "--kv-cache-tokens",
    `${cacheTokens}`,
    "--max-sequences",
    "64",
    "--max-queue",
    "512",
    "--max-connections",
    "600",
  ]);
  try {
    const counts = { statuses: {}, finished: 0, vanished: 0 };
    const all = Promise.all(Array.from({ length: clients }, (_, i) => client(server, i, counts)));
    let limit;
    const late = new Promise(
      (_, reject) =>
        (limit = setTimeout(() => {
          reject(new Error(`clients that hang: ${[...places].map(([i, text]) => `${i} ${text}`).join("; ")}`));
        }, 120_000 * patience)),
    );
    await Promise.race([all, late]).finally(() => clearTimeout(limit));
    assert.equal(counts.finished + counts.vanished, clients, JSON.stringify(counts));
    assert.ok(counts.vanished > clients / 30, "some vanished");
    assert.deepEqual(Object.keys(counts.statuses), ["200"], "nothing but 200");
    const end = await until(async () => {
      const m = await metrics(server);
      const quiet = m.get("inferd_sequences_running") + m.get("inferd_sequences_waiting") === 0;
      return quiet && m.get("inferd_pool_checks_total") > 0 && m;
    }, "the server is quiet");
    assert.equal(end.get("inferd_kv_blocks_free"), end.get("inferd_kv_blocks"), "all blocks are free");
    assert.equal(end.get("inferd_pool_check_failures_total"), 0);
    assert.ok(end.get("inferd_preemptions_total") > 0, "the cache was too small");
    console.log(
      `# ${counts.finished} finished, ${counts.vanished} vanished, ${end.get("inferd_preemptions_total")} preemptions`,
    );
  } finally {
    const how = await server.stop();
    assert.deepEqual(how, { code: 0, signal: null }, server.stderr.slice(-4000));
  }
  assert.ok(!/ error |Sanitizer/.test(server.stderr), server.stderr.slice(-4000));
});
