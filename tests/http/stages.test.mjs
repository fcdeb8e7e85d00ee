// Stages: a model split by layers over processes that talk TCP, here on loopback. The bytes are those of one process,
// and a stage that dies or hangs ends all of them.
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmodSync, writeFileSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import {
  binary,
  long,
  metrics,
  modelFile,
  modelName,
  patience,
  post,
  randomPrompt,
  random,
  sse,
  startServer,
  until,
} from "./server.mjs";
import { folder, leading, startStage, startStages } from "./stages.mjs";

const run = promisify(execFile);

function secretFile(name, bytes = 32) {
  const path = join(folder, name);
  writeFileSync(path, randomBytes(bytes).toString("hex") + "\n");
  chmodSync(path, 0o600);
  return path;
}
const secret = secretFile("secret");
const withSecret = ["--stage-secret-file", secret];

const common = ["--kv-cache-tokens", "8192", "--threads", "1"];
const ranks = (n) => ["--tensor-parallel", String(n)]; // of each stage

// A server of n stages.
async function startPipeline(n, flags = [], model = { file: modelFile, name: modelName }, stageFlags = flags) {
  const stages = await startStages(n, model.file, stageFlags);
  const server = await startServer([...common, ...leading(stages), ...flags], [model]);
  const stop = server.stop;
  server.stages = stages;
  server.pids = [server.child.pid, ...stages.map((s) => s.pid)];
  server.stop = async (...args) => {
    const how = await stop(...args);
    const ends = await Promise.all(stages.map((s) => s.exited));
    return { ...how, ends };
  };
  return server;
}

async function logits(model, flags) {
  const tokens = Array.from({ length: 40 }, (_, i) => i + 2).join(",");
  const args = ["logits", "--model", model, "--tokens", tokens, "--top", "20", "--json", "--threads", "1", ...flags];
  return (await run(binary, args)).stdout;
}

const golden = (name) => `tests/golden/arch/${name}/hf`;

describe("the same bytes as one process", () => {
  const same = async (model, n, flags) => {
    const want = await logits(model, flags);
    assert.ok(JSON.parse(want), want);
    const stages = await startStages(n, model, [...withSecret, ...flags]);
    assert.equal(await logits(model, [...leading(stages), ...withSecret, ...flags]), want);
    for (const stage of stages) assert.deepEqual(await stage.exited, { code: 0, signal: null }, stage.stderr);
    return stages;
  };
  // Dense, tied and untied, learned positions, windows, experts, latent attention, recurrent layers.
  const cases = [
    [modelFile, 4],
    ["tests/golden/hybrid/inferd-hybrid-q8_0.gguf", 2],
    [golden("gpt2"), 2],
    [golden("gemma3"), 2],
    [golden("deepseek2"), 2],
    [golden("falcon-h1"), 2],
    [golden("olmo2"), 2],
    ...(long
      ? ["mixtral", "gemma2", "phi3", "qwen3", "bloom", "cohere", "lfm2", "mimo2"].map((n) => [golden(n), 2])
      : []),
  ];
  for (const [model, n] of cases) test(`${model} in ${n} stages`, () => same(model, n, []));
  const withRanks = [
    [modelFile, 3, 2],
    [golden("qwen35-tied"), 2, 2],
    [golden("gpt-oss"), 2, 2],
    [golden("gpt2"), 2, 3],
    ...(long ? ["afmoe", "cohere2", "gemma2", "llama4", "mixtral", "step35"].map((name) => [golden(name), 2, 2]) : []),
    ...(long ? ["bloom", "dots1", "mpt", "qwen2moe"].map((name) => [golden(name), 2, 3]) : []),
  ];
  for (const [model, n, nRanks] of withRanks)
    test(`${model} in ${n} stages of ${nRanks} ranks`, async () => {
      const stages = await same(model, n, ranks(nRanks));
      assert.match(stages[0].stderr, new RegExp(`stage 1 of ${n}: .*, ${nRanks} ranks`));
    });
});

test("what stages send is encrypted with a secret", async () => {
  for (const flags of [[], withSecret]) {
    const stage = await startStage(modelFile, flags);
    const [host, port] = stage.address.split(":");
    const seen = [];
    const proxy = net.createServer((client) => {
      const server = net.connect(Number(port), host);
      for (const [from, to] of [
        [client, server],
        [server, client],
      ]) {
        from.on("data", (d) => seen.push(d) && to.write(d));
        from.on("end", () => to.end());
        from.on("error", () => to.destroy());
      }
    });
    await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
    const address = `127.0.0.1:${proxy.address().port}`;
    assert.ok(JSON.parse(await logits(modelFile, [...leading([{ address }]), ...flags])));
    await stage.exited;
    proxy.close();
    const bytes = Buffer.concat(seen);
    assert.ok(bytes.length > 40 * 256, "the stream of 40 tokens has passed");
    assert.equal(bytes.includes("INFSTG1"), !flags.length);
    assert.equal(bytes.includes("kv-cache-type"), !flags.length);
  }
});

for (const [n, nRanks] of [
  [3, 1],
  [2, 2],
])
  describe(`a server of ${n} stages of ${nRanks} ranks`, () => serverTests(n, nRanks));

function serverTests(n, nRanks) {
  let one, pipeline;
  before(async () => {
    [one, pipeline] = await Promise.all([
      startServer([...common, ...ranks(nRanks)], [{ file: modelFile, name: modelName }]),
      startPipeline(n, [...withSecret, ...ranks(nRanks)]),
    ]);
  });
  after(async () => {
    await one?.stop();
    const how = await pipeline?.stop();
    assert.ok(
      [how, ...how.ends].every((end) => end.code === 0),
      pipeline.stderr,
    );
  });

  const answers = async (server, asks) =>
    Promise.all(
      asks.map(async ([path, body]) => {
        const response = await post(server, path, { model: modelName, ...body });
        assert.equal(response.status, 200, await response.clone().text());
        const { choices, data } = await response.json();
        return { choices, data };
      }),
    );

  test("the log says the split, /metrics the ranks", async () => {
    assert.match(pipeline.stderr, new RegExp(`stage 1 of ${n} has layers \\d+ to \\d+, [\\d.]+ MiB of weights`));
    assert.equal((await metrics(pipeline)).get("inferd_tensor_parallel_ranks"), nRanks);
  });

  test("choices that share a prompt's blocks, with log-probabilities", async () => {
    const body = { prompt: randomPrompt(random(1), 70), n: 3, seed: 4, temperature: 0.9, max_tokens: 24, logprobs: 5 };
    for (const more of [{}, { frequency_penalty: 0.7, repetition_penalty: 1.2, logprobs: null, top_p: 0.9 }]) {
      const [want] = await answers(one, [["/v1/completions", { ...body, ...more }]]);
      assert.equal(want.choices.length, 3);
      assert.deepEqual(await answers(pipeline, [["/v1/completions", { ...body, ...more }]]), [want]);
    }
  });

  test("many at once, prefixes from the cache, a schema, a prompt's log-probabilities, embeddings", async () => {
    const rng = random(7);
    const start = randomPrompt(rng, 120);
    const asks = Array.from({ length: 9 }, (_, i) => [
      "/v1/completions",
      { prompt: [...start, ...randomPrompt(rng, 1 + 37 * i)], temperature: 0, max_tokens: 8 + 3 * i, logprobs: 1 },
    ]);
    asks.push(["/v1/completions", { prompt: randomPrompt(rng, 90), echo: true, max_tokens: 3, logprobs: 2, seed: 5 }]);
    const schema = { type: "object", properties: { a: { type: "integer" } }, required: ["a"] };
    asks.push([
      "/v1/chat/completions",
      {
        messages: [{ role: "user", content: "a number" }],
        max_tokens: 40,
        temperature: 0,
        response_format: { type: "json_schema", json_schema: { name: "x", schema } },
      },
    ]);
    asks.push(["/v1/embeddings", { input: ["one text", "another, longer text of some words"] }]);
    const want = [];
    for (const ask of asks) want.push(...(await answers(one, [ask])));
    assert.deepEqual(await answers(pipeline, asks), want);
    assert.deepEqual(await answers(pipeline, asks), want);
  });

  test("the model is unloaded, and loaded again", async () => {
    const body = { prompt: randomPrompt(random(9), 33), temperature: 0, max_tokens: 9, logprobs: 2 };
    const [want] = await answers(one, [["/v1/completions", body]]);
    const change = async (what, done) => {
      const response = await post(pipeline, `/v1/inferd/models/${what}`, { model: modelName });
      assert.ok(response.ok, await response.text());
      await until(
        async () => done((await post(pipeline, "/v1/completions", { model: modelName, ...body })).status),
        what,
      );
    };
    await change("unload", (status) => status !== 200);
    await change("load", (status) => status === 200);
    assert.deepEqual(await answers(pipeline, [["/v1/completions", body]]), [want]);
  });
}

test("a memory budget, a model that leaves when it is unused", async () => {
  const change = async (pipeline, what, done) => {
    const response = await post(pipeline, `/v1/inferd/models/${what}`, { model: modelName });
    assert.ok(response.ok, await response.text());
    await until(async () => done((await post(pipeline, "/v1/completions", ask)).status), what);
  };
  const ask = { model: modelName, prompt: randomPrompt(random(9), 33), temperature: 0, max_tokens: 5 };
  for (const flags of [
    ["--memory-budget", "1G"],
    ["--keep-alive", "1h"],
  ]) {
    const pipeline = await startPipeline(2, flags, { file: modelFile, name: modelName }, []);
    await change(pipeline, "unload", (status) => status !== 200);
    await change(pipeline, "load", (status) => status === 200);
    const how = await pipeline.stop();
    assert.deepEqual([how.code, how.ends[0].code], [0, 0], pipeline.stderr);
  }
});

test("inferd bench of stages with ranks", async () => {
  const stages = await startStages(2, modelFile, ranks(2));
  const flags = ["--prompt-tokens", "20", "--gen-tokens", "8", "--batch", "4", "--repeat", "1", "--json"];
  const all = ["bench", "--model", modelFile, "--threads", "1", ...ranks(2), ...leading(stages), ...flags];
  const result = JSON.parse((await run(binary, all)).stdout);
  assert.equal(result.tensor_parallel, 2);
  assert.equal(result.stage_busy_share.length, 2, JSON.stringify(result));
  assert.deepEqual(await stages[0].exited, { code: 0, signal: null }, stages[0].stderr);
});

// Sequences that are preempted, or cut off by their clients, while steps with them are in flight; states of hybrids.
for (const [what, model, flags] of [
  ["too few blocks", { file: modelFile, name: modelName }, ["--kv-cache-tokens", "640"]],
  [
    "recurrent layers",
    { file: "tests/golden/hybrid/inferd-hybrid-q8_0.gguf", name: "hybrid" },
    ["--state-checkpoint-tokens", "32"],
  ],
])
  test(`many sequences, some cut off, ${what}`, async () => {
    const [one, pipeline] = await Promise.all([
      startServer([...common, ...flags], [model]),
      startPipeline(2, flags, model, []),
    ]);
    try {
      const rng = random(3);
      const start = Array.from({ length: 40 }, () => rng.int(20, 250));
      const asks = Array.from({ length: 8 }, (_, i) => ({
        model: model.name,
        prompt: [...start, ...Array.from({ length: 1 + 9 * i }, () => rng.int(20, 250))],
        seed: i,
        max_tokens: 45 + 5 * i,
        ignore_eos: true,
        logprobs: 2,
      }));
      const answer = async (server, body) => {
        const response = await post(server, "/v1/completions", body);
        assert.equal(response.status, 200, await response.clone().text());
        return (await response.json()).choices;
      };
      const want = await Promise.all(asks.map((body) => answer(one, body)));
      const cutting = asks.map(async (body, i) => {
        const signal = AbortSignal.timeout(50 + 40 * i);
        const response = await post(pipeline, "/v1/completions", { ...body, stream: true }, { signal });
        for await (const event of sse(response)) assert.ok(!event.error);
      });
      const cut = Promise.allSettled(cutting);
      assert.deepEqual(await Promise.all(asks.map((body) => answer(pipeline, body))), want);
      const ends = await cut;
      assert.ok(
        ends.some((end) => end.reason?.name === "TimeoutError"),
        JSON.stringify(ends),
      );
      const metrics = await (await fetch(pipeline.url + "/metrics")).text();
      const value = (name) => Number(new RegExp(`^${name} (\\d+)$`, "m").exec(metrics)[1]);
      if (model.name === modelName) assert.ok(value("inferd_preemptions_total") > 0, metrics);
      assert.match(metrics, /^inferd_stage_busy_seconds_total\{stage="1"\} \d+\.\d+$/m);
    } finally {
      const [, how] = await Promise.all([one.stop(), pipeline.stop()]);
      assert.deepEqual([how.code, how.ends[0].code], [0, 0], pipeline.stderr);
    }
  });

describe("what cannot be", { concurrency: true }, () => {
  const lead = (flags) =>
    spawnSync(
      binary,
      ["logits", "--model", modelFile, "--tokens", "5,6", "--registry", join(folder, "r.db"), ...flags],
      { encoding: "utf8" },
    );
  const refused = (flags, message) => {
    const how = lead(flags);
    assert.notEqual(how.status, 0, how.stderr);
    assert.match(how.stderr, message);
  };
  const serveRefused = (flags, message) => {
    const args = ["serve", "--port", "0", "--model", modelFile, "--registry", join(folder, "r.db"), ...flags];
    const how = spawnSync(binary, args, { encoding: "utf8" });
    assert.notEqual(how.status, 0, how.stderr);
    assert.match(how.stderr, message);
  };

  test("another number of stages than addresses", () =>
    refused(
      ["--pipeline-parallel", "3", "--stages", "127.0.0.1:9"],
      /pipeline-parallel is 3, and stages names 1 other/,
    ));
  test("an address without a port", () =>
    refused(["--pipeline-parallel", "2", "--stages", "127.0.0.1"], /stage 1 \(127.0.0.1\): .* is not HOST:PORT/));
  test("other machines without a secret", () => {
    refused(["--pipeline-parallel", "2", "--stages", "192.0.2.1:9000"], /not a loopback address.*stage-secret-file/);
    serveRefused(["--stage-listen", "0.0.0.0:0"], /not a loopback address.*stage-secret-file/);
  });
  test("a secret that others can read, a short one", () => {
    const open = secretFile("open");
    chmodSync(open, 0o644);
    serveRefused(["--stage-listen", "127.0.0.1:0", "--stage-secret-file", open], /open: others can read or write it/);
    const short = secretFile("short", 8);
    serveRefused(["--stage-listen", "127.0.0.1:0", "--stage-secret-file", short], /a secret has 32 to 4096 bytes/);
  });
  test("a store of K/V, layers that are no list", () => {
    const flags = ["--stages", "127.0.0.1:9", "--pipeline-parallel", "2"];
    serveRefused([...flags, "--kv-dir", "/nonexistent"], /kv-dir: the K\/V of several stages cannot be stored/);
    refused([...flags, "--stage-layers", "3"], /stage-layers = 3: 2 numbers of layers are needed/);
    refused([...flags, "--stage-layers", "3,x"], /stage-layers = 3,x: 2 numbers of layers are needed/);
  });

  test("a model whose layers share something: before anyone is waited for", () => {
    const model = ["--model", golden("gemma4-e")];
    const says = /models with per-layer embeddings \(gemma4\) cannot be split into stages/;
    serveRefused([...model, "--stage-listen", "127.0.0.1:0"], says);
    serveRefused([...model, "--stages", "127.0.0.1:9", "--pipeline-parallel", "2"], says);
  });

  // The stage waits on after each of these.
  test("another secret, none, another model, format of the cache, number of ranks, too many layers", async () => {
    const stage = await startStage(modelFile, withSecret);
    try {
      const flags = leading([stage]);
      const own = (more) => run(binary, ["logits", "--tokens", "5,6", "--model", modelFile, ...flags, ...more]);
      const fails = async (more, message) => {
        const how = await own(more).then(
          () => assert.fail("it was not refused"),
          (e) => e,
        );
        assert.match(how.stderr, message);
      };
      const other = secretFile("other");
      await fails(["--stage-secret-file", other], /the TLS handshake failed.*do both stages have the same/);
      await fails([], /stage 1 \(127.0.0.1:\d+\): /);
      await fails(
        ["--model", golden("llama"), ...withSecret],
        /it refuses: the model \(its hash\) is [0-9a-f]{32} at stage 1, [0-9a-f]{32} at stage 0/,
      );
      await fails(["--kv-cache-type", "q8_0", ...withSecret], /kv-cache-type is f16 at stage 1, q8_0 at stage 0/);
      await fails([...ranks(2), ...withSecret], /tensor-parallel is 1 at stage 1, 2 at stage 0/);
      await fails(["--stage-layers", "1,1", ...withSecret], /the stages have 2 layers in all; the model has \d+/);
      assert.match(stage.stderr, /a connection from 127.0.0.1:\d+ was refused: the TLS handshake failed/);
    } finally {
      stage.child.kill("SIGKILL");
      await stage.exited;
    }
  });
});

describe("ends", { concurrency: 3 }, () => {
  // Starts a long stream; reads it in the background.
  async function stream(server) {
    const body = { model: modelName, prompt: "Once", max_tokens: 4000, ignore_eos: true, stream: true };
    const response = await post(server, "/v1/completions", body);
    const got = { events: 0, over: false };
    (async () => {
      try {
        for await (const event of sse(response)) {
          got.events++;
          if (event === "[DONE]") got.done = true;
        }
      } catch (e) {
        got.cut = e.message;
      }
      got.over = true;
    })();
    await until(() => got.events > 3, "the stream runs");
    return got;
  }

  const notReady = (server) =>
    until(
      () =>
        fetch(server.url + "/readyz").then(
          (r) => r.status !== 200,
          () => true,
        ),
      "/readyz is red",
    );

  // The first stage and those that were not killed end with a status that is not 0.
  async function ended(server, except) {
    const ends = await Promise.all([server.exited, ...server.stages.map((s) => s.exited)]);
    ends.forEach((how, i) => i === except || assert.ok(how.code, `stage ${i}: ${JSON.stringify(how)}`));
  }

  for (const when of ["idle", "computing"])
    for (const stage of when === "idle" && !long ? [1] : [0, 1, 2])
      test(`stage ${stage} of 3 is killed while ${when}`, async () => {
        const server = await startPipeline(3, withSecret);
        const got = when === "computing" ? await stream(server) : null;
        process.kill(server.pids[stage], "SIGKILL");
        await notReady(server);
        await ended(server, stage);
        const logs = [server, ...server.stages].map((s) => s.stderr).join("");
        assert.match(logs, new RegExp(`stage ${stage}: (it closed the connection|the connection broke)`));
        if (got) await until(() => got.over, "the stream has ended");
        assert.ok(!got?.done);
        await server.stop();
      });

  for (const stage of [0, 1])
    test(`stage ${stage} of 2, with two ranks, is killed while computing`, async () => {
      const server = await startPipeline(2, ranks(2));
      const got = await stream(server);
      process.kill(server.pids[stage], "SIGKILL");
      await ended(server, stage);
      await until(() => got.over, "the stream has ended");
      assert.ok(!got.done);
      await server.stop();
    });

  const hangs = patience > 1 ? 10 : 2; // seconds
  for (const stage of [0, 1, 2])
    test(`stage ${stage} of 3 hangs`, async () => {
      const server = await startPipeline(3, [...withSecret, "--rank-timeout-s", String(hangs)]);
      const got = await stream(server);
      process.kill(server.pids[stage], "SIGSTOP");
      if (stage) await notReady(server);
      const others = [server, ...server.stages].filter((_, i) => i !== stage);
      const ends = await Promise.all(others.map((s) => s.exited));
      for (const how of ends) assert.ok(how.code, JSON.stringify(how));
      assert.match(
        others.map((s) => s.stderr).join(""),
        new RegExp(`stage ${stage} hangs: it has not been heard of for ${hangs} s`),
      );
      process.kill(server.pids[stage], "SIGKILL");
      await until(() => got.over, "the stream has ended");
      assert.ok(!got.done);
      await server.stop();
    });

  test("SIGTERM of a stage ends the group, SIGTERM of the first one lets answers finish", async () => {
    const [cut, kept] = await Promise.all([startPipeline(2), startPipeline(2)]);
    process.kill(cut.pids[1], "SIGTERM");
    await ended(cut, 1);
    assert.match(cut.stderr, /stage 1: (it closed the connection|the connection broke)/);
    const body = { model: modelName, prompt: "Once", max_tokens: 300, ignore_eos: true };
    const answer = post(kept, "/v1/completions", body);
    await until(
      async () => /^inferd_sequences_running 1$/m.test(await (await fetch(kept.url + "/metrics")).text()),
      "it runs",
    );
    process.kill(kept.pids[0], "SIGTERM");
    assert.equal((await (await answer).json()).usage.completion_tokens, 300);
    const how = await kept.stop();
    assert.deepEqual([how.code, how.ends], [0, [{ code: 0, signal: null }]], kept.stderr);
    await cut.stop();
  });
});
