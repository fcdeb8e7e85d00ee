// KV events over ZeroMQ, read by a subscriber that follows the decoder of llm-d-kv-cache (pkg/kvevents): three frames, a
// topic of three parts, arrays with the fields that it names. Its index says what a replica has cached; the replica's own
// answers say whether that is right.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createServer } from "node:net";
import { test } from "node:test";
import { decode } from "@msgpack/msgpack";
import {
  addKey,
  metrics,
  modelFile,
  modelName,
  post,
  random,
  randomPrompt,
  serving,
  startServer,
  until,
} from "./server.mjs";

const hasLibrary = (() => {
  try {
    return (
      process.platform === "darwin" ||
      /libzmq\.so\.5/.test(execFileSync("/sbin/ldconfig", ["-p"], { encoding: "utf8" }))
    );
  } catch {
    return false;
  }
})();
const skip = hasLibrary ? false : "libzmq is not here (Debian: libzmq5)";
const zmq = skip ? null : await import("zeromq");

async function freePort() {
  const s = createServer();
  await new Promise((resolve) => s.listen(0, "127.0.0.1", resolve));
  const { port } = s.address();
  await new Promise((resolve) => s.close(resolve));
  return port;
}

const BLOCK = 16;

// Chains of blocks by the tokens from their start, and by the engine's hashes.
class Index {
  chains = new Map(); // hash -> the tokens of its chain, as text
  cached = new Set(); // such texts
  next = 0n;
  lost = 0;

  // [topic, sequence, payload] of a message.
  take(frames) {
    assert.equal(frames.length, 3);
    const topic = frames[0].toString().split("@");
    assert.equal(topic.length, 3, "kv@pod@model");
    assert.equal(topic[0], "kv");
    this.pod = topic[1];
    this.model = topic[2];
    assert.equal(frames[1].length, 8);
    this.batch(frames[1].readBigUInt64BE(), frames[2]);
  }

  batch(sequence, payload) {
    if (sequence < this.next) return; // replayed, and known
    this.lost += Number(sequence - this.next);
    this.next = sequence + 1n;
    const [time, events, rank] = decode(payload, { useBigInt64: true });
    assert.ok(Math.abs(Number(time) - Date.now() / 1000) < 600);
    assert.equal(Number(rank), 0);
    for (const [tag, ...fields] of events) this[tag](...fields);
  }

  BlockStored(hashes, parent, tokens, blockSize, loraId, medium, loraName) {
    assert.equal(Number(blockSize), BLOCK);
    assert.equal(tokens.length, hashes.length * BLOCK);
    assert.deepEqual([loraId, medium, loraName], [null, "GPU", null]);
    let chain = parent === null ? "" : this.chains.get(parent);
    assert.notEqual(chain, undefined, "the parent is known");
    for (const [i, hash] of hashes.entries()) {
      chain += tokens.slice(i * BLOCK, (i + 1) * BLOCK).join(" ") + " ";
      this.chains.set(hash, chain);
      this.cached.add(chain);
    }
  }

  BlockRemoved(hashes, medium) {
    assert.equal(medium, "GPU");
    for (const hash of hashes) {
      assert.ok(this.cached.delete(this.chains.get(hash)), "it was stored");
      this.chains.delete(hash);
    }
  }

  AllBlocksCleared(...none) {
    assert.deepEqual(none, []);
    this.chains.clear();
    this.cached.clear();
  }

  // How many tokens of a prompt are cached, at most all but the last.
  hit(prompt) {
    let chain = "",
      n = 0;
    while (n + BLOCK < prompt.length) {
      chain += prompt.slice(n, n + BLOCK).join(" ") + " ";
      if (!this.cached.has(chain)) break;
      n += BLOCK;
    }
    return n;
  }
}

// A server that publishes, and an index that follows it.
async function withIndex(flags, use, models) {
  const [pub, replay] = [await freePort(), await freePort()].map((port) => `tcp://127.0.0.1:${port}`);
  const events = ["--kv-events", pub, "--kv-events-replay", replay, "--kv-events-name", "10.0.0.2:8080"];
  await serving(
    [...events, ...flags],
    async (server) => {
      const index = new Index();
      const subscriber = new zmq.Subscriber();
      subscriber.connect(pub);
      subscriber.subscribe("kv@");
      let failed = null;
      const reading = (async () => {
        for await (const frames of subscriber) {
          // What was lost, because the subscription takes a moment, is asked for.
          if (frames[1].readBigUInt64BE() > index.next)
            for (const b of await replayed(replay, index.next)) index.batch(b.sequence, b.payload);
          index.take(frames);
        }
      })().catch((e) => (failed = e));
      try {
        await use(server, index, replay);
      } finally {
        subscriber.close();
        await reading;
      }
      if (failed) throw failed;
    },
    models,
  );
}

const ask = async (server, prompt, more = {}, headers = {}) => {
  const body = { model: modelName, prompt, max_tokens: 1, ...more };
  const response = await post(server, "/v1/completions", body, { headers });
  assert.equal(response.status, 200, await response.clone().text());
  return (await response.json()).usage.prompt_tokens_details.cached_tokens;
};

// Sends prompts until a message comes.
async function subscribed(server, index) {
  const rng = random(99);
  await until(async () => {
    await ask(server, randomPrompt(rng, 40));
    return index.next > 0n;
  }, "a message comes");
}

// Every batch that the server keeps, from a sequence number on, as vLLM's replay socket sends them.
async function replayed(replay, from) {
  const request = new zmq.Dealer({ linger: 0, receiveTimeout: 20_000 });
  request.connect(replay);
  const number = Buffer.alloc(8);
  number.writeBigUInt64BE(from);
  await request.send([Buffer.alloc(0), number]);
  const batches = [];
  for (;;) {
    const [empty, sequence, payload] = await request.receive();
    assert.equal(empty.length, 0);
    if (sequence.readBigInt64BE() === -1n) {
      assert.equal(payload.length, 0);
      break;
    }
    batches.push({ sequence: sequence.readBigUInt64BE(), payload });
  }
  request.close();
  return batches;
}

test("an index knows what of each prompt is cached, while blocks come and go", { skip }, () =>
  withIndex(["--kv-cache-tokens", "1024", "--context-length", "512", "--max-sequences", "1"], async (server, index) => {
    await subscribed(server, index);
    const before = await metrics(server);
    const rng = random(5);
    const heads = Array.from({ length: 6 }, () => randomPrompt(rng, 160));
    let hits = 0;
    for (let i = 0; i < 60; i++) {
      const prompt = [...heads[rng.int(0, 5)].slice(0, 16 * rng.int(2, 10)), ...randomPrompt(rng, rng.int(1, 60))];
      // The events of the last answer may still be under way.
      await until(() => settled(server, index), "the events have come");
      const expected = index.hit(prompt);
      const cached = await ask(server, prompt);
      // A match inside of a block is the cache's own; an index knows whole blocks.
      assert.equal(cached - (cached % BLOCK), expected, `prompt ${i}: ${cached} of ${prompt.length}`);
      hits += expected > 0;
    }
    assert.ok(hits >= 10, `${hits} of 60 prompts had cached blocks`);
    const evicted = (await metrics(server)).get("inferd_kv_evictions_total") - before.get("inferd_kv_evictions_total");
    assert.ok(evicted >= 50, `${evicted} blocks were evicted`);
    assert.deepEqual([index.pod, index.model, index.lost], ["10.0.0.2:8080", modelName, 0]);
  }),
);

// Has the index as many blocks as the cache? It runs behind by the messages that are under way.
async function settled(server, index) {
  const m = await metrics(server);
  return index.cached.size === m.get("inferd_kv_blocks_cached");
}

test("what a subscriber missed is replayed", { skip }, () =>
  withIndex(["--kv-cache-tokens", "2048"], async (server, index, replay) => {
    // Sent before anybody subscribed, or not: the replay has all of it.
    const rng = random(6);
    const prompt = randomPrompt(rng, 100);
    await ask(server, prompt);
    const late = new Index();
    await until(async () => {
      for (const b of await replayed(replay, late.next)) late.batch(b.sequence, b.payload);
      return late.hit(prompt) === 96;
    }, "the replay has the prompt's six blocks");
    assert.equal(late.lost, 0, "from the first message on");
    // From a number on, only what follows.
    await ask(server, randomPrompt(rng, 100));
    const from = late.next;
    await until(async () => {
      const batches = await replayed(replay, from);
      assert.ok(batches.every((b) => b.sequence >= from));
      return batches.length > 0;
    }, "there is a later message");
    assert.deepEqual(await replayed(replay, 1n << 40n), [], "nothing has that number");
    // Requests that are none are not answered and harm nobody.
    const odd = new zmq.Dealer({ linger: 0 });
    odd.connect(replay);
    await odd.send([Buffer.from("x")]);
    await odd.send([Buffer.alloc(0), Buffer.alloc(7)]);
    await odd.send([Buffer.alloc(0), Buffer.alloc(8), Buffer.alloc(8)]);
    await odd.send([Buffer.alloc(0), Buffer.alloc(4096)]);
    assert.ok((await replayed(replay, 0n)).length >= 2);
    odd.close();
    await subscribed(server, index);
  }),
);

test("blocks of clients with a key, or with a cache_salt, are nobody else's", { skip }, () =>
  withIndex(["--kv-cache-tokens", "4096"], async (server, index) => {
    const rng = random(8);
    const [salted, keyed, open] = [1, 2, 3].map(() => randomPrompt(rng, 100));
    await subscribed(server, index);
    await ask(server, salted, { cache_salt: "mine" });
    await ask(server, open);
    await until(() => index.hit(open) === 96, "the open prompt is told");
    assert.equal(index.hit(salted), 0);
    const key = addKey(server, "one");
    const headers = { Authorization: `Bearer ${key}` };
    await until(async () => (await fetch(`${server.url}/v1/models`)).status === 401, "the key counts");
    await ask(server, keyed, {}, headers);
    await ask(server, keyed, {}, headers);
    assert.equal(index.hit(keyed), 0);
  }),
);

test("a model that is unloaded has nothing cached; the next one is published", { skip }, () =>
  withIndex(
    ["--kv-cache-tokens", "2048", "--context-length", "1024"],
    async (server, index) => {
      const rng = random(9);
      const ask2 = async (model) => {
        const prompt = randomPrompt(rng, 100);
        await ask(server, prompt, { model });
        return prompt;
      };
      await subscribed(server, index);
      const first = await ask2(modelName);
      await until(() => index.hit(first) === 96, "the first model is told");
      const second = await ask2("second");
      assert.match(server.stderr, /no KV events of second: those of another model are published/);
      const act = async (what, model) =>
        assert.ok((await post(server, `/v1/inferd/models/${what}`, { model })).ok, what);
      const isLoaded = async (model) =>
        (await (await fetch(`${server.url}/v1/models`)).json()).data.some((m) => m.id === model);
      await act("unload", modelName);
      await until(() => index.cached.size === 0, "AllBlocksCleared");
      assert.equal(index.hit(second), 0);
      await act("unload", "second");
      await until(async () => !(await isLoaded("second")), "the second one is unloaded");
      await act("load", "second");
      await until(() => isLoaded("second"), "it is loaded again");
      const third = await ask2("second");
      await until(() => index.hit(third) === 96, "it is told");
      assert.equal(index.model, "second");
      assert.equal(index.lost, 0);
    },
    [
      { file: modelFile, name: modelName },
      { file: modelFile, name: "second" },
    ],
  ),
);

test("what cannot be published is said", { skip }, async () => {
  const port = await freePort();
  const taken = new zmq.Publisher();
  await taken.bind(`tcp://127.0.0.1:${port}`);
  const start = (...flags) => startServer(["--kv-events", ...flags]);
  await assert.rejects(start(`tcp://127.0.0.1:${port}`), /kv-events: cannot listen on .*Address already in use/);
  await assert.rejects(start("nonsense"), /kv-events: cannot listen on "nonsense"/);
  await assert.rejects(start("tcp://127.0.0.1:*", "--kv-events-name", "a@b"), /kv-events-name: it may not have @/);
  taken.close();
});
