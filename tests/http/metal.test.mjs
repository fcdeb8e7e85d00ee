// A server with the Metal backend: the CPU backend's tokens, the same bytes for any schedule, exactly
// the kernels of a step, memory that does not grow, and a failing device. On Linux it runs on the
// stand-in of tests/metal, about seven steps per second.
import assert from "node:assert/strict";
import { readFileSync, statSync } from "node:fs";
import { test } from "node:test";
import {
  chat,
  complete,
  long,
  metrics,
  modelFile,
  random,
  randomPrompt,
  serving,
  startServer,
  streamed,
  until,
  user,
} from "./server.mjs";

process.env.METALSIM_MODE ??= "plain"; // without the checks of every access: those are the op tests'
process.env.METALSIM_WORKERS ??= "2";

const metal = ["--backend", "metal"];
// Makes the CPU round like Metal: by default it rounds activations to 8 bits.
const cpu = ["--backend", "cpu", "--activation-bits", "16"];

const llamaKey = (name) => {
  const file = readFileSync(modelFile),
    at = file.indexOf(`llama.${name}`);
  return file.readUInt32LE(at + `llama.${name}`.length + 4); // type, then the value
};
const nLayers = llamaKey("block_count");

const kernels = (m) => {
  const found = new Map();
  for (const [key, value] of m) {
    const at = /^inferd_kernel_dispatches_total\{backend="metal",kernel="(.*)"\}$/.exec(key);
    if (at && value) found.set(at[1], value);
  }
  return found;
};

const difference = (before, after) =>
  Object.fromEntries([...after].map(([name, n]) => [name, n - (before.get(name) ?? 0)]).filter(([, n]) => n));

const prompts = ["The capital of France is", "Once upon a time", "def add(a, b):\n    return"];

test("greedy tokens equal the CPU backend's", async () => {
  const ask = (server) =>
    Promise.all(
      prompts.map((prompt) =>
        complete(server, { prompt, max_tokens: 24, temperature: 0, logprobs: 1, ignore_eos: true }),
      ),
    );
  const want = await serving(cpu, ask),
    got = await serving(metal, ask);
  for (let i = 0; i < prompts.length; i++) {
    assert.deepEqual(got[i].logprobs.tokens, want[i].logprobs.tokens, prompts[i]);
    got[i].logprobs.token_logprobs.forEach((p, k) =>
      assert.ok(Math.abs(p - want[i].logprobs.token_logprobs[k]) < 0.01, `${prompts[i]}: token ${k}`),
    );
  }
});

test("a streamed chat equals the CPU backend's", async () => {
  const request = { messages: user("Tell me a story."), max_tokens: 16, temperature: 0 };
  const ask = (server) => streamed(server, request);
  const want = await serving(cpu, ask),
    got = await serving(metal, ask);
  assert.equal(got.text, want.text);
  assert.ok(got.done && got.chunks.length > 4, "token by token");
});

// What each has in the place of attention, by the kernel of its rows and the one that keeps inputs after
// a step of several rows; and other kernels that it must use.
const hybrids = [
  { name: "qwen35-tied", rows: "delta_run", keep: "delta_keep", others: ["delta_conv", "gate"] },
  { name: "lfm2", rows: "short_conv", keep: "short_conv_keep", others: ["rope_store"] },
  { name: "granitehybrid-moe", rows: "delta_run", keep: "delta_keep", others: ["delta_conv"] },
  { name: "falcon-h1-norm", rows: "delta_run", keep: "delta_keep", others: ["mamba2_norm", "rope_store"] },
  { name: "nemotron-h-tied", rows: "delta_run", keep: "delta_keep", others: ["mamba2_norm", "gate"] },
  { name: "nemotron-h-moe", rows: "delta_run", keep: "delta_keep", others: ["moe_vector", "gate"] },
];
for (const { name, rows, keep, others } of long
  ? hybrids
  : hybrids.filter((h) => /qwen35|-moe/.test(h.name)).slice(0, 2))
  test(`a hybrid's streamed chat equals the CPU backend's, on a prefix hit too: ${name}`, async () => {
    const small = ["--kv-cache-tokens", "256", "--context-length", "128", "--max-sequences", "2"],
      models = [{ name, file: `tests/golden/arch/${name}/hf` }];
    const request = {
      model: name,
      messages: user("Tell me a story of a fox, a bear and the sea, and then another one."),
      max_tokens: 20,
      temperature: 0,
      ignore_eos: true,
      stream_options: { include_usage: true },
    };
    const ask = (server) => streamed(server, request);
    const want = await serving([...cpu, ...small], ask, models);
    await serving(
      [...metal, ...small],
      async (server) => {
        const before = kernels(await metrics(server));
        const first = await ask(server);
        const used = difference(before, kernels(await metrics(server)));
        const again = await ask(server);
        assert.equal(first.text, want.text);
        assert.ok(first.done && first.chunks.length > 4, "token by token");
        assert.ok(again.usage.prompt_tokens_details.cached_tokens >= 16, "a prefix hit");
        assert.equal(again.text, first.text);
        assert.ok(used[rows] > used[keep] && used[keep] > 0, "the prompt's step keeps inputs apart");
        if (rows === "delta_run") assert.equal(used.delta_conv, used.delta_run);
        for (const kernel of others) assert.ok(used[kernel] > 0, kernel);
      },
      models,
    );
  });

const rng = random(7);
const shared = randomPrompt(rng, 20);
// Sampled tokens too, from few candidates and from whole rows. The last four have each kind.
const several = Array.from({ length: 8 }, (_, i) => ({
  prompt: [...(i % 2 ? shared : []), ...randomPrompt(rng, rng.int(3, 12))],
  max_tokens: 4 + (i % 4),
  temperature: i % 3 ? 0.9 : 0,
  top_k: i % 4 ? 40 : 0,
  top_p: i % 2 ? 0.9 : 1,
  frequency_penalty: i === 5 ? 0.5 : 0,
  seed: 100 + i,
  ignore_eos: true,
  ...(i % 4 === 3 ? { logprobs: 2 } : {}),
})).slice(long ? 0 : 4);

let alone;
test("concurrent answers equal single ones, byte for byte", async () => {
  const one = async (server, request) => JSON.stringify(await complete(server, request));
  alone = await serving([...metal, "--prefix-cache", "off"], async (server) => {
    const result = [];
    for (const request of several) result.push(await one(server, request));
    return result;
  });
  const together = await serving([...metal, "--prefix-cache", "off"], (server) =>
    Promise.all(several.map((r) => one(server, r))),
  );
  assert.deepEqual(together, alone);
});

test("answers are the same on prefix hits and after preemption", async () => {
  // Two sequences grow to three blocks each: more than the cache's five.
  const growing = Array.from({ length: 2 }, (_, i) => ({
    ...several[0],
    prompt: randomPrompt(rng, 14),
    max_tokens: 22,
    seed: i,
  }));
  await serving([...metal, "--kv-cache-tokens", "80"], async (server) => {
    const one = async (request) => JSON.stringify(await complete(server, request));
    const together = await Promise.all(growing.map(one));
    const m = await metrics(server);
    assert.ok(m.get("inferd_preemptions_total") > 0, "a sequence was preempted");
    for (let i = 0; i < 2; i++) assert.equal(await one(growing[i]), together[i]);
    assert.equal(await one(several.at(-1)), alone.at(-1));
    assert.equal(await one(several.at(-1)), alone.at(-1));
    const hits =
      (await metrics(server)).get("inferd_prefix_cache_hit_tokens_total") -
      m.get("inferd_prefix_cache_hit_tokens_total");
    assert.ok(hits >= 16, `${hits} tokens of its prompt were cached`);
  });
});

test("a decode step runs exactly its kernels, encoded ahead", async () => {
  await serving([...metal, "--prefix-cache", "off"], async (server) => {
    const ask = (max_tokens) => complete(server, { prompt: shared, max_tokens, temperature: 0, ignore_eos: true });
    const readByProducts = (m) => m.get('inferd_kernel_read_bytes_total{backend="metal",kernel="linear_vector"}') ?? 0;
    const seen = [kernels(await metrics(server))],
      steps = [],
      read = [];
    for (const n of [3, 13]) {
      const before = await metrics(server);
      await ask(n);
      // The worker counts a step after it has delivered its results.
      const after = await until(async () => {
        const m = await metrics(server);
        return m.get("inferd_steps_total") - before.get("inferd_steps_total") >= n && m;
      }, "all steps are counted");
      seen.push(kernels(after));
      read.push(readByProducts(after) - readByProducts(before));
      steps.push(after.get("inferd_steps_total") - before.get("inferd_steps_total"));
      assert.equal(
        after.get("inferd_steps_ahead_total") - before.get("inferd_steps_ahead_total"),
        n - 1,
        "all but the prompt's step",
      );
      assert.equal(after.get("inferd_steps_ahead_dropped_total"), 0, "its end was foreseen");
    }
    assert.deepEqual(steps, [3, 13]);
    const short = difference(seen[0], seen[1]),
      long = difference(seen[1], seen[2]);
    const decode = difference(new Map(Object.entries(short)), new Map(Object.entries(long)));
    // Ten decode steps. A layer: norm and QKV, rope and store, attention in two passes, its output, norm
    // and gate and up, down; then the last norm, the head, and the greedy token.
    assert.deepEqual(decode, {
      embed: 10,
      input_rows: 10 * (2 * nLayers + 1),
      linear_vector: 10 * (4 * nLayers + 1),
      rope_store: 10 * nLayers,
      attention_decode: 10 * nLayers,
      attention_reduce: 10 * nLayers,
      gather: 10 * 2,
      top: 10,
    });
    // Every weight is read once: the file consists mostly of weights.
    const share = (read[1] - read[0]) / 10 / statSync(modelFile).size;
    assert.ok(share > 0.95 && share < 1.02, `${share} of the file a step`);
    // Matrices that fail the probe are not used.
    const prefill = process.env.METALSIM_MATRIX === "tree" ? "attention_prefill_plain" : "attention_prefill";
    assert.ok(!(prefill in decode) && short[prefill] === nLayers, "the prompt's step is the other kind");
  });
});

// 1,000 in make test-metal.
const nRequests = Number(process.env.METAL_REQUESTS ?? 20);

test("the device's memory does not grow", async () => {
  const flags = [...metal, "--kv-cache-tokens", "1024"];
  await serving(flags, async (server) => {
    const bytes = async () => (await metrics(server)).get("inferd_device_allocated_bytes");
    const start = await bytes();
    assert.ok(start > 15e6, "the weights are in it");
    for (let i = 0; i < nRequests / 10; i++) {
      const requests = Array.from({ length: 10 }, (_, k) => ({
        prompt: randomPrompt(rng, 1 + (k % 3)),
        max_tokens: 1 + (k % 2),
        temperature: k % 3,
        seed: 1,
      }));
      await Promise.all(requests.map((r) => complete(server, r)));
      assert.equal(await bytes(), start, `after ${10 * (i + 1)} requests`);
    }
  });
});

// Runs with an option of the stand-in.
async function given(name, value, use) {
  process.env[name] = value;
  try {
    return await use();
  } finally {
    delete process.env[name];
  }
}
const failing = (fault, use) => given("METALSIM_FAIL", fault, use);

test("auto chooses Metal if there is a device, otherwise the CPU", async () => {
  const device = async (server) => {
    const answer = await complete(server, { prompt: "a", max_tokens: 1 });
    assert.ok(answer.text !== undefined);
    return [...(await metrics(server)).keys()].some((k) => k.includes('{backend="metal",kernel=')) ? "metal" : "cpu";
  };
  assert.equal(await serving([], device), "metal");
  assert.equal(await serving(["--isa", "generic"], device), "cpu");
  await failing("nodevice", async () => {
    assert.equal(await serving([], device), "cpu");
    await assert.rejects(startServer(metal), /no Metal device/);
  });
  // A GPU whose arithmetic the kernels cannot use.
  await given("METALSIM_HALVES", "flush", async () => {
    assert.equal(await serving([], device), "cpu");
    await assert.rejects(
      startServer(metal),
      /this GPU has no subnormal halves, backend "metal" needs them; use backend = cpu/,
    );
  });
  await assert.rejects(startServer([...metal, "--isa", "generic"]), /isa "generic" is an instruction set of the CPU/);
});

// The failing command buffer comes after those of the start, in the middle of two streams.
test("a transient failure of the device loses no request and changes no byte", async () => {
  const ask = (seed) => ({ messages: user("Count to a thousand."), max_tokens: 24, ignore_eos: true, seed });
  const both = async (server) =>
    (await Promise.all([1, 2].map((seed) => streamed(server, ask(seed))))).map((answer) => answer.text);
  const flags = [...metal, "--kv-cache-tokens", "1024"];
  const want = await serving(flags, both);
  assert.ok(want[0].length > 30 && want[0] !== want[1]);
  for (const fault of ["command=12:revoked", ...(long ? ["command=22:oom"] : [])])
    await failing(fault, () =>
      serving(flags, async (server) => {
        assert.deepEqual(await both(server), want, fault);
        const m = await metrics(server);
        assert.equal(m.get("inferd_device_recoveries_total"), 1, fault);
        assert.ok(m.get("inferd_recomputed_tokens_total") > 0);
        assert.equal((await fetch(server.url + "/readyz")).status, 200);
        assert.match(server.stderr, /the Metal device failed.* 2 running sequences are computed again/);
      }),
    );
});

test("a lost device ends its requests with 500, then the daemon, for a supervisor to start again", async () => {
  await failing("command=40:lost", () =>
    serving([...metal, "--kv-cache-tokens", "1024"], async (server) => {
      assert.equal((await fetch(server.url + "/readyz")).status, 200);
      const ask = { messages: user("Count to a thousand."), max_tokens: 200, ignore_eos: true, seed: 1 };
      const answers = await Promise.all([chat(server, ask), chat(server, { ...ask, seed: 2 })]);
      for (const answer of answers) {
        assert.equal(answer.status, 500);
        const { error } = await answer.json();
        assert.equal(error.type, "server_error");
      }
      assert.deepEqual(await server.exited, { code: 1, signal: null });
      assert.match(server.stderr, /the Metal device failed.*every request is refused from now on/);
      assert.match(server.stderr, /the device failed for good/);
    }),
  );
});
