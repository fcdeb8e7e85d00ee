// Ranks that are processes, each with a GPU of its own, on the stand-in of tests/cuda: the bytes of ranks that
// are threads, by kernels that write into the other process's memory and by NCCL; a process that dies or hangs
// while the other one's kernel waits for it. Where Open MPI or its module is missing these tests are skipped.
// Stages whose ranks are the GPUs of a process: the bytes of one stage.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { isGone, mpirun, pidsOf, skip } from "./mpi.mjs";
import { binary, metrics, modelFile, modelName, post, startServer, until } from "./server.mjs";
import { leading, startStages } from "./stages.mjs";

const run = promisify(execFile);
process.env.CUDASIM_DEVICES = "3"; // of the machine

const ranks = (n) => ["--backend", "cuda", "--tensor-parallel", String(n)];
const small = [
  "--kv-cache-tokens",
  "1024",
  "--context-length",
  "512",
  "--max-batch-tokens",
  "64",
  "--max-sequences",
  "4",
];
const models = [{ file: modelFile, name: modelName }];

async function logits(model, n, under, flags = []) {
  const tokens = Array.from({ length: 24 }, (_, i) => i + 2).join(",");
  const args = ["logits", "--model", model, "--tokens", tokens, "--top", "10", "--json", ...ranks(n), ...flags];
  const command = [...under, binary, ...args];
  return (await run(command[0], command.slice(1))).stdout;
}

const golden = (name) => `tests/golden/arch/${name}/hf`;

// Dense, a mixture of experts, recurrent layers; a vocabulary of an odd size on three.
for (const [model, n] of [
  [golden("llama"), 2],
  [golden("qwen35moe"), 2],
  [golden("gpt2"), 3],
])
  test(`${model} on ${n}: the bytes of threads`, { skip }, async () => {
    const want = await logits(model, n, []);
    assert.ok(JSON.parse(want), want);
    assert.equal(await logits(model, n, mpirun(n)), want);
  });

for (const [model, n] of [
  [golden("llama"), 1],
  [golden("llama"), 2],
  [golden("gpt-oss"), 2],
  [golden("qwen35-tied"), 2],
])
  test(`${model} in two stages of ${n} ranks: the bytes of one process`, async () => {
    const want = await logits(model, n, []);
    const stages = await startStages(2, model, ranks(n));
    assert.equal(await logits(model, n, [], leading(stages)), want);
    assert.deepEqual(await stages[0].exited, { code: 0, signal: null }, stages[0].stderr);
  });

test("a server of two processes: steps from graphs, samples, a cached prefix", { skip }, async () => {
  const servers = await Promise.all([
    startServer([...ranks(2), ...small], models),
    startServer([...ranks(2), ...small], models, mpirun(2)),
  ]);
  try {
    assert.match(servers[1].stderr, /2 GPUs connected by NCCL/);
    assert.match(servers[1].stderr, /sums of the ranks through the GPUs' memory/);
    assert.match(servers[0].stderr, /sums of the ranks by NCCL/); // the stand-in's devices take turns
    const bodies = [
      { prompt: "The capital of France is", max_tokens: 4, temperature: 0, logprobs: 2, ignore_eos: true },
      { prompt: "The capital of France is not", max_tokens: 4, temperature: 0.9, seed: 7, n: 2, ignore_eos: true },
      {
        prompt: "The capital of France",
        max_tokens: 6,
        temperature: 0.8,
        seed: 3,
        repetition_penalty: 1.3,
        frequency_penalty: 0.5,
        ignore_eos: true,
      },
      // Steps whose rows the host needs do not overlap.
      { prompt: "The capital of", max_tokens: 2, temperature: 0, logprobs: 1, echo: true },
    ];
    for (const body of bodies) {
      const [want, got] = await Promise.all(
        servers.map(async (server) => {
          const response = await post(server, "/v1/completions", { model: modelName, ...body });
          assert.equal(response.status, 200, await response.clone().text());
          const { choices, usage } = await response.json();
          return { choices, usage };
        }),
      );
      assert.deepEqual(got, want);
    }
    const counts = await metrics(servers[1]);
    assert.ok(counts.get("inferd_steps_ahead_total") > 0, "some shapes came again");
    assert.ok(counts.get("inferd_steps_overlapped_total") > 0, "the next step began before the end of the one before");
    for (const kernel of ["peer_sum", "peer_gather", "input_sum"])
      assert.ok(counts.get(`inferd_kernel_dispatches_total{backend="cuda",kernel="${kernel}"}`) > 0, kernel);
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
});

// A long prompt's products in two parts beside their exchanges, with cuBLASLt's stand-in: sums that are exchanged
// without their scales (no tiny products: the llama is 128 wide), FFNs whose hidden layer is not written. Short parts
// have other kernels.
const wide = "--layers 2 --hidden 128 --heads 4 --kv-heads 2 --ffn 256 --vocab 400 --sigma 0.1 --out".split(" ");
for (const [name, make] of [
  ["qwen35-tied", (file) => run(binary, ["quantize", golden("qwen35-tied"), file, "--type", "F16"])],
  ["wide-llama", (file) => run("scripts/random-model", [...wide, file])],
])
  test(`${name} in F16, long prompts: the bytes of threads without cuBLASLt`, { skip }, async () => {
    const folder = mkdtempSync(join(tmpdir(), "inferd-ranks-"));
    const file = join(folder, `${name}.gguf`);
    await make(file);
    const flags = [...ranks(2), ...small, "--max-batch-tokens", "256"];
    const servers = await Promise.all([
      startServer(flags, [{ file, name }]),
      startServer(flags, [{ file, name }], ["env", "CUDASIM_LT=1", ...mpirun(2)]),
    ]);
    try {
      for (const length of [18, 60, 150, 203]) {
        const prompt = Array.from({ length }, (_, i) => ((i * 37 + length) % 250) + 5);
        const body = { model: name, prompt, max_tokens: 2, temperature: 0, logprobs: 3, ignore_eos: true };
        const [want, got] = await Promise.all(
          servers.map(async (server) => {
            const response = await post(server, "/v1/completions", body);
            assert.equal(response.status, 200, await response.clone().text());
            return (await response.json()).choices;
          }),
        );
        assert.deepEqual(got, want, `${length} tokens`);
      }
      const counts = await metrics(servers[1]);
      for (const kernel of ["cublaslt", "peer_meet", "peer_add", "input_gated"])
        assert.ok(counts.get(`inferd_kernel_dispatches_total{backend="cuda",kernel="${kernel}"}`) > 0, kernel);
    } finally {
      await Promise.all(servers.map((server) => server.stop()));
      rmSync(folder, { recursive: true, force: true });
    }
  });

const serve = (n, flags = []) => startServer([...ranks(n), ...small, ...flags], models, mpirun(n));

for (const [signal, says] of [
  ["SIGKILL", /rank 1 with PID/],
  ["SIGSTOP", /rank 1 hangs: it has not been heard of for 4 s/],
])
  test(`${signal} of rank 1 while rank 0's device waits for it`, { skip }, async () => {
    const server = await serve(2, ["--rank-timeout-s", "4"]);
    const pids = pidsOf(server);
    const body = { model: modelName, prompt: "Once", max_tokens: 400, ignore_eos: true, stream: true };
    const response = await post(server, "/v1/completions", body);
    const reader = response.body.getReader();
    await reader.read();
    process.kill(pids[1], signal);
    let text = "";
    for (;;) {
      const { done, value } = await reader.read().catch(() => ({ done: true }));
      if (done) break;
      text += Buffer.from(value).toString();
    }
    assert.doesNotMatch(text, /\[DONE\]/);
    assert.notEqual((await server.exited).code, 0, server.stderr);
    await until(() => pids.every(isGone), "all ranks are gone");
    assert.match(server.stderr + server.stdout, says);
    await server.stop();
  });

test("fewer GPUs than processes", { skip }, () =>
  assert.rejects(
    logits(golden("llama2"), 4, mpirun(4)),
    /inferd: rank 3: backend "cuda": no device 3: this machine has 3, numbered from 0/,
  ),
);
