// Ranks that are processes: mpirun on this machine. The bytes are those of ranks that are threads, and a
// process that dies or hangs ends all of them. Where Open MPI or the module is missing the tests are skipped.
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { isGone, mpirun, pidsOf, skip } from "./mpi.mjs";
import {
  binary,
  long,
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

const run = promisify(execFile);
const hybrid = { file: "tests/golden/hybrid/inferd-hybrid-q8_0.gguf", name: "hybrid" };
const ranks = (n) => ["--tensor-parallel", String(n), "--kv-cache-tokens", "8192", "--threads", "2"];

const startRanks = (n, flags = [], models) => startServer([...ranks(n), ...flags], models, mpirun(n));

async function logits(model, n, under) {
  const tokens = Array.from({ length: 40 }, (_, i) => i + 2).join(",");
  const args = [
    "logits",
    "--model",
    model,
    "--tokens",
    tokens,
    "--top",
    "20",
    "--json",
    "--tensor-parallel",
    String(n),
  ];
  const command = [...under, binary, ...args];
  return (await run(command[0], command.slice(1))).stdout;
}

const golden = (name) => `tests/golden/arch/${name}/hf`;

describe("the same bytes as ranks that are threads", { skip }, () => {
  // Dense, mixtures of experts, recurrent layers; F32 and quantized; a vocabulary of an odd size.
  const cases = [
    [modelFile, 2],
    [golden("llama"), 2],
    ["tests/golden/arch/gpt-oss-mxfp4/model.gguf", 2],
    [golden("nemotron-h"), 2],
    [golden("granitehybrid-moe"), 2],
    [golden("qwen35moe"), 2],
    // An odd number of ranks, and as many as there are KV heads: sums of parts, gathers of uneven widths.
    [golden("gpt2"), 3],
    [golden("llama2"), 4],
    ...(long ? ["mixtral", "gemma2", "phi3", "qwen3"].map((name) => [golden(name), 2]) : []),
    ...(long ? ["bloom", "dots1", "mpt", "qwen2moe"].map((name) => [golden(name), 3]) : []),
    ...(long ? ["cohere", "gptneox"].map((name) => [golden(name), 4]) : []),
  ];
  for (const [model, n] of cases)
    test(`${model} on ${n}`, async () => {
      const want = await logits(model, n, []);
      assert.ok(JSON.parse(want), want);
      assert.equal(await logits(model, n, mpirun(n)), want);
    });
});

describe("a server of two processes", { skip }, () => {
  let threads, processes;
  before(async () => {
    const models = [{ file: modelFile, name: modelName }];
    [threads, processes] = await Promise.all([startServer(ranks(2), models), startRanks(2, [], models)]);
  });
  after(() => Promise.all([threads?.stop(), processes?.stop()]));

  const both = async (path, body) => {
    const answers = await Promise.all(
      [threads, processes].map(async (server) => {
        const response = await post(server, path, { model: modelName, ...body });
        assert.equal(response.status, 200, await response.clone().text());
        const { choices, data, usage } = await response.json();
        return { choices, data, usage };
      }),
    );
    assert.deepEqual(answers[1], answers[0]);
    return answers[0];
  };

  test("choices that share a prompt's blocks, with log-probabilities", async () => {
    const { choices } = await both("/v1/completions", {
      prompt: randomPrompt(random(1), 70),
      n: 3,
      seed: 4,
      temperature: 0.9,
      max_tokens: 24,
      logprobs: 5,
    });
    assert.equal(choices.length, 3);
  });

  test("many prompts at once, prefixes from the cache, a schema, embeddings", async () => {
    const rng = random(7);
    const start = randomPrompt(rng, 120);
    const asks = Array.from({ length: 12 }, (_, i) => [
      "/v1/completions",
      { prompt: [...start, ...randomPrompt(rng, 1 + 17 * i)], temperature: 0, max_tokens: 8 + i, logprobs: 1 },
    ]);
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
    // How many tokens were cached depends on the order of arrival, so one after the other.
    for (const [path, body] of asks) await both(path, body);
    const answers = await Promise.all(asks.map(([path, body]) => post(processes, path, { model: modelName, ...body })));
    for (const answer of answers) assert.equal(answer.status, 200, await answer.clone().text());
  });

  test("the model is unloaded, and loaded again", async () => {
    const body = { prompt: randomPrompt(random(9), 33), temperature: 0, max_tokens: 9, logprobs: 2 };
    const answer = async () =>
      (await (await post(processes, "/v1/completions", { model: modelName, ...body })).json()).choices;
    const before = await answer();
    assert.equal(before.length, 1);
    const change = async (what, done) => {
      const response = await post(processes, `/v1/inferd/models/${what}`, { model: modelName });
      assert.ok(response.ok, await response.text());
      await until(
        async () => done((await post(processes, "/v1/completions", { model: modelName, ...body })).status),
        what,
      );
    };
    await change("unload", (status) => status !== 200);
    await change("load", (status) => status === 200);
    assert.deepEqual(await answer(), before);
  });

  test("a second model is refused", async () => {
    const { status, stderr } = spawnSync(
      mpirun(2)[0],
      [...mpirun(2).slice(1), binary, "serve", ...ranks(2), "--port", "0", "--model", `${modelFile},${hybrid.file}`],
      { encoding: "utf8" },
    );
    assert.notEqual(status, 0);
    assert.match(stderr, /more than 1 models are listed/);
  });
});

test("states of recurrent layers, kept for later prompts", { skip }, async () => {
  const models = [{ file: "tests/golden/arch/qwen35moe/hf", name: "hybrid" }];
  const flags = ["--state-checkpoint-tokens", "32"];
  const servers = await Promise.all([startServer([...ranks(2), ...flags], models), startRanks(2, flags, models)]);
  try {
    const rng = random(3);
    const ids = (n) => Array.from({ length: n }, () => rng.int(20, 250));
    const start = ids(90);
    for (let i = 0; i < 4; i++) {
      const body = {
        model: "hybrid",
        prompt: [...start, ...ids(1 + 9 * i)],
        n: 2,
        seed: i,
        max_tokens: 12,
        logprobs: 3,
      };
      const [a, b] = await Promise.all(servers.map((server) => post(server, "/v1/completions", body)));
      assert.equal(a.status, 200, await a.clone().text());
      const [want, got] = [await a.json(), await b.json()];
      assert.deepEqual([got.choices, got.usage], [want.choices, want.usage]);
      if (i) assert.ok(want.usage.prompt_tokens_details.cached_tokens >= 32, JSON.stringify(want.usage));
    }
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
});

describe("what cannot be", { skip }, () => {
  const refused = (n, flags, message, env = {}) => {
    const command = [...mpirun(n), binary, "serve", "--port", "0", "--model", modelFile, ...flags];
    const home = mkdtempSync(join(tmpdir(), "inferd-test-")); // not the user's registry
    const all = { ...process.env, XDG_DATA_HOME: home, ...env };
    const how = spawnSync(command[0], command.slice(1), { encoding: "utf8", env: all });
    rmSync(home, { recursive: true });
    assert.notEqual(how.status, 0, how.stderr);
    assert.match(how.stderr, message);
  };
  test("another number of ranks than processes", () =>
    refused(2, [], /mpirun started 2 processes, but tensor-parallel is 1/));
  test("heads that cannot be shared out", () =>
    refused(3, ranks(3), /tensor-parallel = 3: the model \(\w+\) has \d+ heads, which cannot be shared out evenly/));
  test("KV heads that cannot be shared out", () =>
    refused(4, ranks(4), /tensor-parallel = 4: the model \(\w+\) has \d+ KV heads, which cannot be shared out evenly/));
  test("stages", () =>
    refused(
      2,
      [...ranks(2), "--pipeline-parallel", "2", "--stages", "127.0.0.1:9"],
      /mpirun started 2 processes, which cannot be stages, too: start each stage without mpirun/,
    ));
  test("a store of K/V", () => refused(2, [...ranks(2), "--kv-dir", "/nonexistent"], /kv-dir: the K\/V of ranks/));
  test("no module", () =>
    refused(2, ranks(2), /cannot load \/nonexistent.so/, { INFERD_MPI_MODULE: "/nonexistent.so" }));
});

describe("ends", { skip, concurrency: true }, () => {
  // Starts a long stream; reads it in the background.
  async function stream(server) {
    const body = { model: modelName, prompt: "Once", max_tokens: 4000, ignore_eos: true, stream: true };
    const response = await post(server, "/v1/completions", body);
    const got = { events: 0, over: false };
    (async () => {
      try {
        for await (const event of sse(response)) {
          got.events++;
          if (event.error) got.error = event.error.message;
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

  // mpirun ends with a status that is not 0, and no rank is left.
  async function ended(server, pids) {
    const how = await server.exited;
    assert.notEqual(how.code, 0, server.stderr);
    await until(() => pids.every(isGone), "all ranks are gone");
    await server.stop();
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

  for (const rank of [0, 1])
    test(`rank ${rank} of 2 is killed`, async () => {
      const server = await startRanks(2);
      const pids = pidsOf(server);
      const got = await stream(server);
      process.kill(pids[rank], "SIGKILL");
      await notReady(server);
      await ended(server, pids);
      assert.ok(!got.done);
      assert.match(server.stderr + server.stdout, new RegExp(`rank ${rank} with PID`));
    });

  test("the middle one of three is killed", async () => {
    const server = await startRanks(3, [], [{ file: golden("qwen2moe"), name: "three-heads" }]);
    const pids = pidsOf(server);
    assert.equal(pids.length, 3);
    // Asks until one fails. What was answered is whole.
    let answered = 0;
    const ask = async () => {
      const body = { model: "three-heads", prompt: [5, 6, 7], n: 4, max_tokens: 200, ignore_eos: true };
      for (;;) {
        const response = await post(server, "/v1/completions", body).catch(() => null);
        const answer = response?.ok ? await response.json().catch(() => null) : null;
        if (!answer) return;
        assert.equal(answer.usage.completion_tokens, 800);
        answered++;
      }
    };
    const asking = ask();
    await until(() => answered > 0, "an answer");
    process.kill(pids[1], "SIGKILL");
    await asking;
    await notReady(server);
    await ended(server, pids);
    assert.match(server.stderr + server.stdout, /rank 1 with PID/);
  });

  const hangs = patience > 1 ? 12 : 3; // seconds
  for (const when of ["idle", "computing"])
    for (const rank of [0, 1])
      test(`rank ${rank} of 2 hangs while ${when}`, async () => {
        const server = await startRanks(2, ["--rank-timeout-s", String(hangs)]);
        const pids = pidsOf(server);
        const got = when === "computing" ? await stream(server) : null;
        process.kill(pids[rank], "SIGSTOP");
        if (rank) await notReady(server);
        await ended(server, pids);
        assert.match(server.stderr, new RegExp(`rank ${rank} hangs: it has not been heard of for ${hangs} s`));
        if (got) await until(() => got.over, "the stream has ended");
        assert.ok(!got?.done);
      });

  test("SIGTERM of rank 0 lets answers finish", async () => {
    const server = await startRanks(2);
    const pids = pidsOf(server);
    const body = { model: modelName, prompt: "Once", max_tokens: 300, ignore_eos: true };
    const answer = post(server, "/v1/completions", body);
    await until(
      async () => /^inferd_sequences_running 1$/m.test(await (await fetch(server.url + "/metrics")).text()),
      "it runs",
    );
    process.kill(pids[1], "SIGTERM"); // a supervisor may signal all: the others wait for rank 0
    process.kill(pids[0], "SIGTERM");
    const response = await answer;
    assert.equal(response.status, 200, await response.clone().text());
    assert.equal((await response.json()).usage.completion_tokens, 300);
    const how = await server.exited;
    assert.equal(how.code, 0, server.stderr);
    await until(() => pids.every(isGone), "all ranks are gone");
    await server.stop();
  });
});
