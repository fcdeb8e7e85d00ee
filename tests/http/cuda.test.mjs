// A server with the CUDA backend, on the stand-in of tests/cuda (about one step per second): the CPU
// backend's tokens, the same bytes for any schedule, decode steps as CUDA graphs, bounded memory, and
// a failing device. Tests with many steps are in tests/cuda/load.py, for a GPU.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { copyFileSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { binary, chat, complete, metrics, modelFile, post, serving, startServer, until, user } from "./server.mjs";

const small = [
  "--kv-cache-tokens",
  "512",
  "--context-length",
  "256",
  "--max-batch-tokens",
  "64",
  "--max-sequences",
  "8",
];
const cuda = ["--backend", "cuda", ...small];

// Runs with these options of the stand-in.
async function standin(options, use) {
  Object.assign(process.env, options);
  try {
    return await use();
  } finally {
    for (const name of Object.keys(options)) delete process.env[name];
  }
}

const requests = [
  { prompt: "The capital of France is", max_tokens: 5, temperature: 0, logprobs: 1, ignore_eos: true },
  { prompt: "Once upon a time", max_tokens: 4, temperature: 0.9, seed: 7, ignore_eos: true },
  { prompt: "def add(a, b):", max_tokens: 5, temperature: 1, top_k: 40, seed: 8, ignore_eos: true },
];

test("tokens equal the CPU backend's and do not depend on the batch; steps run as CUDA graphs", async () => {
  const cpu = ["--backend", "cpu", "--activation-bits", "16", ...small];
  const want = await serving(cpu, (server) => complete(server, requests[0]));
  await serving([...cuda, "--prefix-cache", "off"], async (server) => {
    const alone = [];
    for (const request of requests) alone.push(await complete(server, request));
    assert.deepEqual(alone[0].logprobs.tokens, want.logprobs.tokens);
    alone[0].logprobs.token_logprobs.forEach((p, k) =>
      assert.ok(Math.abs(p - want.logprobs.token_logprobs[k]) < 0.02, `token ${k}`),
    );
    const before = await metrics(server);
    const together = await Promise.all(requests.map((request) => complete(server, request)));
    assert.deepEqual(
      together.map((c) => c.text),
      alone.map((c) => c.text),
    );
    const m = await metrics(server);
    assert.ok(m.get("inferd_steps_ahead_total") > 0, "some shapes came again");
    assert.equal(m.get("inferd_steps_ahead_dropped_total"), 0);
    assert.ok(m.get("inferd_steps_overlapped_total") > 0, "the device had the next step in time");
    assert.equal(m.get("inferd_device_allocated_bytes"), before.get("inferd_device_allocated_bytes"));
    assert.ok(before.get("inferd_device_allocated_bytes") > 15e6, "the weights are in it");
    assert.equal(m.get("inferd_kv_blocks_free"), m.get("inferd_kv_blocks"));
  });
});

test("auto chooses the GPU if there is one, otherwise the CPU, and names what is missing", async () => {
  const device = async (server) =>
    [...(await metrics(server)).keys()].some((k) => k.includes('{backend="cuda",kernel=')) ? "cuda" : "cpu";
  const one = async (server) => (await complete(server, { prompt: "a", max_tokens: 1 }), device(server));
  assert.equal(await serving(small, one), "cuda");
  assert.equal(await serving([...small, "--isa", "generic"], one), "cpu");
  await standin({ CUDASIM_DEVICES: "0" }, async () => {
    assert.equal(await serving(small, one), "cpu");
    await assert.rejects(startServer(cuda), /no usable NVIDIA GPU/);
  });
  await standin({ CUDASIM_SM: "75" }, () =>
    assert.rejects(startServer(cuda), /needs compute capability 8\.0 or higher/),
  );
  await assert.rejects(startServer([...cuda, "--device", "3"]), /device 3: this machine has 1/);
  await assert.rejects(startServer([...cuda, "--isa", "generic"]), /isa "generic" is an instruction set of the CPU/);
});

test("a model that does not fit is refused with its sizes; the cache takes the remaining memory", async () => {
  const flags = ["--backend", "cuda", "--max-batch-tokens", "64"];
  const MiB = 1 << 20;
  await standin({ CUDASIM_MEMORY: String(700 * MiB) }, () =>
    assert.rejects(
      startServer([...flags, "--gpu-memory-utilization", "0.1"]),
      /out of GPU memory: \d+ MiB of weights, \d+ MiB of step buffers.*may hold 70 MiB.*a higher gpu-memory-utilization/,
    ),
  );
  await assert.rejects(
    startServer([...flags, "--kv-cache-tokens", "1000000000"]),
    /MiB of the GPU's memory are available: choose fewer/,
  );
  await assert.rejects(
    startServer(["--backend", "cpu", "--gpu-memory-utilization", "0.5"]),
    /backend cpu does not have: leave it out/,
  );
  await serving([...flags, "--max-sequences", "4"], async (server) =>
    assert.match(server.stderr, /\(max-sequences full contexts\)/),
  );
});

test("all models share the GPU's part, are counted as the GPU counts, and take turns in memory for one", async () => {
  const flags = [...cuda, "--load-on-demand", "on", "--keep-alive", "300"],
    MiB = 1 << 20;
  const withTwo = async (more, use) => {
    const server = await startServer([...flags, ...more], []);
    for (const name of ["a", "b"]) {
      const file = join(server.folder, `${name}.gguf`);
      copyFileSync(modelFile, file);
      execFileSync(binary, ["models", "add", file, "--name", name, "--registry", join(server.folder, "registry.db")]);
    }
    await use(server);
    await server.stop();
  };
  const ask = (server, model) =>
    post(server, "/v1/completions", { model, prompt: "Once", max_tokens: 1, temperature: 0 });
  const held = async (server) => {
    const all = await metrics(server);
    const bytes = ["a", "b"].map((name) => all.get(`inferd_model_bytes{model="${name}"}`) ?? 0);
    return { bytes, device: all.get("inferd_device_allocated_bytes") };
  };
  let one;
  await withTwo([], async (server) => {
    assert.equal((await ask(server, "a")).status, 200);
    const first = await held(server);
    one = first.bytes[0];
    assert.equal((await ask(server, "b")).status, 200);
    const both = await held(server);
    assert.deepEqual(both.bytes, [one, one]);
    assert.equal(both.device, 2 * first.device, "what one takes, the other takes, too");
    assert.ok(first.device >= one && first.device - one < 64 * MiB, `${first.device}: ${one} and rounding up`);
  });
  const part = ["--gpu-memory-utilization", "0.1"];
  await standin({ CUDASIM_MEMORY: String(17 * one) }, () =>
    withTwo(part, async (server) => {
      for (const model of ["a", "b", "a"]) {
        const answer = await ask(server, model);
        assert.equal(answer.status, 200, await answer.text());
        const { bytes, device } = await held(server);
        assert.ok(device <= 1.7 * one, `${device} of ${1.7 * one}`);
        assert.deepEqual(bytes, model === "a" ? [one, 0] : [0, one]);
      }
    }),
  );
  await standin({ CUDASIM_MEMORY: String(8 * one) }, () =>
    withTwo(part, async (server) => {
      const answer = await ask(server, "a");
      assert.equal(answer.status, 503);
      assert.equal(answer.headers.get("x-should-retry"), "false");
      assert.match((await answer.json()).error.message, /\d+ MiB.* \d+ MiB/);
    }),
  );
});

// The failing calls come after those of the start.
for (const fault of ["launch:200", "sync:100"])
  test(`a device that fails (${fault}) ends its requests with 500, and readiness`, () =>
    standin({ CUDASIM_FAIL: fault }, () =>
      serving(cuda, async (server) => {
        assert.equal((await fetch(server.url + "/readyz")).status, 200);
        const ask = { messages: user("Count to a thousand."), max_tokens: 40, ignore_eos: true, seed: 1 };
        const answers = await Promise.all([chat(server, ask), chat(server, { ...ask, seed: 2 })]);
        for (const answer of answers) {
          assert.equal(answer.status, 500);
          assert.equal((await answer.json()).error.type, "server_error");
        }
        await until(async () => (await fetch(server.url + "/readyz")).status === 503, "readyz is red");
        const later = await chat(server, ask);
        assert.ok(later.status >= 500, `a later request: ${later.status}`);
        assert.match(server.stderr, /the CUDA device failed.*every request is refused from now on/);
        assert.equal((await metrics(server)).get('inferd_sequences_finished_total{reason="error"}'), 2);
      }),
    ));

// systemd's side of NOTIFY_SOCKET: prints each datagram as a line.
function listenForNotices(path) {
  const script = `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
while True:
    print(s.recv(4096).decode().split("\\n")[0], flush=True)`;
  const heard = { text: "", child: spawn("python3", ["-c", script, path], { stdio: ["ignore", "pipe", "inherit"] }) };
  heard.child.stdout.on("data", (d) => (heard.text += d));
  heard.count = () => heard.text.split("WATCHDOG=1").length - 1;
  return heard;
}

test("a device that hangs: no word to systemd's watchdog, /livez is red, and the process ends", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inferd-notify-"));
  const notices = listenForNotices(join(folder, "notify"));
  await until(() => existsSync(join(folder, "notify")), "the socket is there");
  const options = { CUDASIM_FAIL: "hang:100", NOTIFY_SOCKET: join(folder, "notify"), WATCHDOG_USEC: "400000" };
  const flags = [...cuda, "--hang-s", "3", "--shutdown-deadline-s", "8"];
  const server = await standin(options, () => startServer(flags));
  try {
    const status = async (path) => (await fetch(server.url + path)).status;
    await until(() => notices.count() >= 2, "an idle daemon tells the watchdog");
    assert.match(notices.text, /^READY=1\n/);
    const ask = { messages: user("Count to a thousand."), max_tokens: 200, ignore_eos: true };
    const cut = chat(server, ask).then(
      (response) => response.status,
      () => "closed",
    );
    await until(() => /a device hangs: it has been in the same step for \d+ s/.test(server.stderr), "the hang", 60_000);
    const told = notices.count();
    assert.equal(await status("/livez"), 503);
    assert.equal(await status("/readyz"), 503);
    assert.deepEqual(await server.exited, { code: 1, signal: null });
    assert.equal(notices.count(), told, "nothing was told while the device hung");
    assert.match(notices.text, /STOPPING=1\n$/);
    assert.equal(await cut, "closed");
  } finally {
    await server.stop("SIGKILL");
    notices.child.kill();
    rmSync(folder, { recursive: true, force: true });
  }
});
