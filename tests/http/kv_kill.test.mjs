// kill -9 at random moments while two models take turns in memory for one and their prompts are stored, evicted and
// restored: no wrong token, no file that cannot be read, no bound passed, files and index agree.
// KILLS: how many (LONG=1: 200); SEED: another order of events.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { binary, long, metrics, modelFile, post, random, randomPrompt, sleep, startServer } from "./server.mjs";

const kills = Number(process.env.KILLS ?? (long ? 200 : 6));
const rng = random(Number(process.env.SEED ?? 6));
const folder = mkdtempSync(join(tmpdir(), "inferd-kill-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const MAX_FILES = 8,
  MAX_BYTES = 6 << 20,
  MODELS = ["alpha", "beta"],
  dir = join(folder, "kv");
const flags = [
  ...["--load-on-demand", "on", "--max-load-queue", "64", "--keep-alive", "-1"],
  ...["--kv-cache-tokens", "1024", "--context-length", "512", "--max-sequences", "4"],
  ...["--kv-dir", dir, "--kv-keep", "all", "--kv-idle-s", "0"],
  ...["--kv-dir-bytes", `${MAX_BYTES}`, "--kv-dir-files", `${MAX_FILES}`],
];

// A model of the demo model's shape that answers differently.
function writeOther(file) {
  const bytes = readFileSync(modelFile);
  for (let i = 1; i < 4000; i++) bytes[bytes.length - 34 * i] ^= 1;
  writeFileSync(file, bytes);
}

async function register(server) {
  for (const name of MODELS) {
    const file = join(folder, `${name}.gguf`),
      registry = join(server.folder, "registry.db");
    if (name === "alpha") copyFileSync(modelFile, file);
    else writeOther(file);
    execFileSync(binary, ["models", "add", file, "--name", name, "--registry", registry]);
  }
}

async function ask(server, { model, prompt }) {
  const body = { model, prompt, max_tokens: 8, temperature: 0, logprobs: 1 };
  const response = await post(server, "/v1/completions", body);
  assert.equal(response.status, 200, await response.clone().text());
  const { choices, usage } = await response.json();
  const { text, logprobs } = choices[0];
  return { answer: { text, logprobs }, cached: usage.prompt_tokens_details.cached_tokens };
}

// The folder of a process that was killed: it may have been writing.
function checkBounds() {
  const names = readdirSync(dir).filter((name) => /\.(kv|tmp)$/.test(name));
  const bytes = names.reduce((sum, name) => sum + statSync(join(dir, name)).size, 0);
  assert.ok(names.length <= MAX_FILES, `${names.length} files: ${names}`);
  assert.ok(bytes <= MAX_BYTES, `${bytes} bytes`);
}

// The folder of a process that has opened it and was asked for nothing: each file is in the index, whole and readable.
function checkIndex(server) {
  const kv = (...args) => {
    const end = ["--kv-dir", dir, "--registry", join(server.folder, "registry.db")];
    const { status, stdout, stderr } = spawnSync(binary, ["kv", ...args, ...end], { encoding: "utf8" });
    assert.equal(status, 0, stdout + stderr);
    return stdout;
  };
  const listed = JSON.parse(kv("list", "--json"));
  const names = readdirSync(dir).filter((name) => !name.startsWith("index.db") && name !== "lock");
  assert.deepEqual(listed.map((s) => s.file).sort(), names.sort());
  for (const s of listed) assert.equal(s.size_bytes, statSync(join(dir, s.file)).size);
  assert.equal(kv("verify"), `${listed.length} segments, 0 damaged\n`);
  return listed.length;
}

test(`${kills} kills while prompts are stored, evicted and restored and models swap`, async (t) => {
  const server = await startServer(flags, []);
  t.after(() => server.stop());
  await register(server);
  const prompts = Array.from({ length: 6 }, () => randomPrompt(rng, rng.int(100, 260)));
  const asks = MODELS.flatMap((model) => prompts.map((prompt) => ({ model, prompt })));
  for (const a of asks) {
    const { answer, cached } = await ask(server, a);
    assert.equal(cached, 0);
    a.answer = answer;
  }
  for (const [i, a] of asks.slice(0, prompts.length).entries())
    assert.notDeepEqual(a.answer, asks[prompts.length + i].answer, "the models answer differently");
  const budget = Math.floor((await metrics(server)).get('inferd_model_bytes{model="beta"}') * 1.5);
  const seen = { answers: 0, cached: 0, segments: 0, alpha: 0, beta: 0 };
  const check = async (a) => {
    const { answer, cached } = await ask(server, a);
    assert.deepEqual(answer, a.answer);
    seen.answers++;
    seen[a.model]++;
    if (cached) seen.cached++;
  };
  const cut = (e) => {
    if (e.code === "ERR_ASSERTION") throw e; // else the connection ended with the process
  };
  for (let round = 0; round < kills; round++) {
    server.child.kill("SIGKILL");
    await server.exited;
    checkBounds();
    const memory = rng.int(0, 1) ? ["--kv-memory-bytes", "4M"] : [];
    await server.restart("SIGKILL", ["--memory-budget", `${budget}`, ...memory]);
    seen.segments += checkIndex(server);
    const order = asks.map((a) => [rng.next(), a]).sort(([x], [y]) => x - y);
    const running = order.slice(0, rng.int(1, order.length)).map(([, a]) => check(a).catch(cut));
    await Promise.race([sleep(rng.int(5, 700)), Promise.all(running)]);
    await sleep(rng.int(0, 30));
    server.child.kill("SIGKILL");
    await Promise.all(running);
  }
  await server.exited;
  checkBounds();
  await server.restart("SIGKILL", ["--memory-budget", `${budget}`]);
  checkIndex(server);
  for (let twice = 0; twice < 2; twice++) for (const a of asks) await check(a);
  t.diagnostic(JSON.stringify(seen));
  assert.ok(seen.cached > 0);
  assert.equal((await metrics(server)).get("inferd_kv_store_damaged_segments_total"), 0);
});
