// The KV store: prefixes that outlive the daemon, their model's turn in memory, and a small KV cache. Every answer
// is the one of a daemon that computes everything.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import {
  addKey,
  binary,
  metrics,
  modelFile,
  modelName,
  post,
  random,
  randomPrompt,
  serving,
  sleep,
  until,
} from "./server.mjs";

const folder = mkdtempSync(join(tmpdir(), "inferd-kv-"));
const keys = join(folder, "keys");
writeFileSync(keys, "sk-alice\nsk-bob\n");
chmodSync(keys, 0o600);
after(() => rmSync(folder, { recursive: true, force: true }));

const small = ["--kv-cache-tokens", "4096", "--max-sequences", "8", "--kv-keep", "all"];
let n_folders = 0;
const newFolder = () => join(folder, `kv${n_folders++}`);
const segments = (dir) => readdirSync(dir).filter((name) => name.endsWith(".kv"));

async function ask(server, prompt, { key, ...more } = {}) {
  const options = key && { headers: { Authorization: `Bearer ${key}` } };
  const body = { model: modelName, prompt, max_tokens: 12, temperature: 0, logprobs: 1, ...more };
  const response = await post(server, "/v1/completions", body, options);
  assert.equal(response.status, 200, await response.clone().text());
  const { choices, usage } = await response.json();
  const { text, logprobs } = choices[0];
  return { answer: { text, logprobs }, cached: usage.prompt_tokens_details.cached_tokens };
}

const metric = async (server, name) => (await metrics(server)).get(`inferd_kv_${name}`);
// The queue of the store is bounded, and a slow disk fills it: waits until nothing more is written.
async function settle(server) {
  for (let last = -1, same = 0; same < 2; await sleep(40)) {
    const written = await metric(server, "store_written_segments_total");
    same = written === last ? same + 1 : 0;
    last = written;
  }
}
const whole = (n) => 16 * Math.floor((n - 1) / 16); // tokens of whole blocks, the last token left to compute

test("a chat goes on after a restart where it was", async () => {
  await serving([...small, "--kv-dir", newFolder()], async (server) => {
    const rng = random(1);
    const prompt = randomPrompt(rng, 500),
      more = [...prompt, ...randomPrompt(rng, 70)];
    const first = await ask(server, prompt),
      second = await ask(server, more); // without an interruption
    assert.equal(first.cached, 0);
    await server.restart();
    const again = await ask(server, prompt);
    assert.deepEqual(again, { ...first, cached: whole(500) });
    assert.ok((await ask(server, more)).cached >= whole(500));
    await server.restart();
    assert.deepEqual(await ask(server, more), { ...second, cached: whole(570) });
    assert.equal(await metric(server, "restored_tokens_total"), whole(570));
    assert.deepEqual(await ask(server, randomPrompt(rng, 40)).then((a) => a.cached), 0);
  });
});

test("after a restart keys and cache_salt still separate prompts", async () => {
  await serving([...small, "--kv-dir", newFolder(), "--api-key-file", keys], async (server) => {
    const prompt = randomPrompt(random(2), 100);
    const alice = { key: "sk-alice", cache_salt: "a" };
    const { answer } = await ask(server, prompt, alice);
    await server.restart();
    const cached = async (more) => {
      const got = await ask(server, prompt, { max_tokens: 12, ...more });
      assert.deepEqual(got.answer, answer);
      return got.cached;
    };
    const restored = async () => metric({ url: server.url, key: "sk-bob" }, "restores_total");
    assert.equal(await cached({ key: "sk-bob" }), 0);
    assert.equal(await cached({ key: "sk-bob", cache_salt: "a" }), 0);
    assert.equal(await cached({ key: "sk-alice" }), 0);
    assert.equal(await cached({ key: "sk-alice", cache_salt: "b" }), 0);
    assert.equal(await restored(), 0);
    assert.equal(await cached(alice), whole(100));
    await until(async () => (await restored()) === 1, "the restore is counted");
  });
});

test("another model or configuration does not read what one has stored; the first still does", async () => {
  const other = join(folder, "other.gguf");
  const bytes = readFileSync(modelFile);
  bytes[bytes.length - 5] ^= 1; // one weight differs
  writeFileSync(other, bytes);
  const models = [
    { file: modelFile, name: modelName },
    { file: other, name: "other" },
  ];
  const dir = newFolder();
  await serving(
    [...small, "--kv-dir", dir],
    async (server) => {
      const prompt = randomPrompt(random(3), 200);
      const first = await ask(server, prompt);
      await server.restart();
      assert.equal((await ask(server, prompt, { model: "other" })).cached, 0);
      await server.restart("SIGTERM", ["--kv-cache-type", "bf16"]); // test_tier has other keys
      assert.equal((await ask(server, prompt)).cached, 0);
      await server.restart();
      assert.deepEqual(await ask(server, prompt), { ...first, cached: whole(200) });
    },
    models,
  );
});

test("a small KV cache loses nothing: what it evicts comes back", async () => {
  const flags = ["--kv-cache-tokens", "1024", "--context-length", "512", "--max-sequences", "2", "--kv-keep", "all"];
  await serving([...flags, "--kv-dir", newFolder()], async (server) => {
    const rng = random(4);
    const prompts = Array.from({ length: 8 }, () => randomPrompt(rng, 300));
    const cold = [];
    for (const p of prompts) {
      cold.push(await ask(server, p));
      await settle(server);
    }
    assert.ok(cold.every((c) => c.cached === 0));
    let found = 0;
    for (let round = 0; round < 3; round++)
      for (const [i, p] of prompts.entries()) {
        const { answer, cached } = await ask(server, p);
        assert.deepEqual(answer, cold[i].answer);
        found += cached;
        await settle(server);
      }
    // The pool holds a third of the prompts; what found no place in the queue of the store is computed again.
    assert.ok(found > 8 * whole(300), `${found} tokens found`);
    assert.ok((await metric(server, "restored_tokens_total")) > 4 * whole(300));
  });
});

test("a daemon that is killed keeps what was written, and files that were altered are deleted", async () => {
  const dir = newFolder();
  await serving([...small, "--kv-dir", dir, "--kv-idle-s", "0"], async (server) => {
    const prompt = randomPrompt(random(5), 300);
    const first = await ask(server, prompt);
    // Written when the server idles.
    await until(() => existsSync(dir) && segments(dir).length > 0, "a segment is there");
    await until(async () => (await metric(server, "store_written_segments_total")) >= 1, "it is counted");
    await server.restart("SIGKILL");
    assert.deepEqual(await ask(server, prompt), { ...first, cached: whole(300) });
    await server.restart("SIGKILL");
    for (const name of segments(dir)) {
      const bytes = readFileSync(join(dir, name));
      bytes[bytes.length >> 1] ^= 64;
      writeFileSync(join(dir, name), bytes);
    }
    const again = await ask(server, prompt);
    assert.deepEqual(again.answer, first.answer);
    assert.ok(again.cached < whole(300));
    assert.ok((await metric(server, "store_damaged_segments_total")) >= 1);
  });
});

const audited = (registry) =>
  JSON.parse(execFileSync(binary, ["audit", "--act", "kv", "--json", "--registry", registry])).map(
    (row) => `${row.act} ${row.object} ${row.result}`,
  );

test("inferd kv lists, checks and deletes segments", async () => {
  const dir = newFolder(),
    store = mkdtempSync(join(folder, "registry-"));
  const kv = (...args) => {
    const end = ["--kv-dir", dir, "--registry", join(store, "registry.db")];
    const { status, stdout, stderr } = spawnSync(binary, ["kv", ...args, ...end], { encoding: "utf8" });
    return { status, out: stdout + stderr };
  };
  await serving([...small, "--kv-dir", dir, "--kv-idle-s", "0", "--api-key-file", keys], async (server) => {
    const all = { url: server.url, key: "sk-alice" };
    const prompts = [1, 2].map((seed) => randomPrompt(random(seed + 20), 100));
    for (const [i, key] of ["sk-alice", "sk-bob"].entries()) await ask(server, prompts[i], { key });
    await until(async () => (await metric(all, "store_segments")) >= 2, "both are stored");
    copyFileSync(join(server.folder, "kv.secret"), join(store, "kv.secret"));
    const listed = JSON.parse(kv("list", "--json").out);
    assert.equal(new Set(listed.map((s) => s.tenant)).size, 2);
    for (const s of listed) {
      assert.equal(s.model, modelName);
      assert.equal(s.size_bytes, statSync(join(dir, s.file)).size);
    }
    assert.match(kv("list").out, /MODEL +TENANT +TOKENS .*\n(.*\n)+\d+ segments, /);
    assert.deepEqual(kv("verify"), { status: 0, out: `${listed.length} segments, 0 damaged\n` });
    const refused = kv("prune", "--all");
    assert.equal(refused.status, 1);
    assert.match(refused.out, /kv-dir: .* is used by another process/);
  });
  const [first] = segments(dir);
  const bytes = readFileSync(join(dir, first));
  bytes[bytes.length - 1] ^= 1;
  writeFileSync(join(dir, first), bytes);
  const found = kv("verify");
  assert.equal(found.status, 1);
  assert.match(found.out, new RegExp(`${first}: FAILED: .*damaged`));
  assert.equal(kv("prune").status, 2);
  assert.match(kv("prune", "--unused-s", "3600").out, /deleted 0 segments/);
  assert.match(kv("prune", "--model", "other").out, /deleted 0 segments/);
  assert.match(kv("prune", "--model", modelName).out, /deleted \d+ segments/);
  assert.deepEqual(segments(dir), []);
  assert.deepEqual(audited(join(store, "registry.db")), [
    "kv.prune  failed: other",
    "kv.prune  ok",
    "kv.prune other ok",
    `kv.prune ${modelName} ok`,
  ]);
  rmSync(dir, { recursive: true });
  assert.equal(kv("list").status, 1);
  assert.ok(!existsSync(dir));
});

for (const [where, tier] of Object.entries({ memory: ["--kv-memory-bytes", "64M"], kvDir: ["--kv-dir", newFolder()] }))
  test(`an unloaded model finds its prompts again in ${where}`, () => swap([...small, ...tier]));

async function swap(flags) {
  const second = join(folder, "second.gguf");
  copyFileSync(modelFile, second);
  await serving([...flags, "--max-models", "1", "--unload-deadline-s", "20"], async (server) => {
    const registry = join(server.folder, "registry.db");
    execFileSync(binary, ["models", "add", second, "--name", "second", "--registry", registry]);
    const act = async (what, model) => {
      const response = await post(server, `/v1/inferd/models/${what}`, { model });
      assert.ok(response.ok, await response.clone().text());
      await until(async () => {
        const { tasks } = await (await fetch(`${server.url}/v1/inferd/models`)).json();
        return tasks.every((t) => t.state === "done");
      }, `${what} ${model}`);
    };
    const prompt = randomPrompt(random(7), 400);
    const first = await ask(server, prompt);
    await act("unload", modelName);
    await act("load", "second");
    // The same file under another name has the same K/V.
    assert.equal((await ask(server, prompt, { model: "second" })).cached, whole(400));
    await act("unload", "second");
    await act("load", modelName);
    assert.deepEqual(await ask(server, prompt), { ...first, cached: whole(400) });
  });
}

test("a folder that cannot be used fails no request; one that another daemon uses is refused", async () => {
  const file = join(folder, "file");
  writeFileSync(file, "");
  await serving([...small, "--kv-dir", join(file, "below")], async (server) => {
    assert.match(server.stderr, /nothing is stored in kv-dir: .*file\/below: Not a directory/);
    assert.equal(await metric(server, "store_writable"), 0);
    await ask(server, randomPrompt(random(8), 50));
  });
  const dir = newFolder();
  await serving([...small, "--kv-dir", dir, "--kv-idle-s", "0"], async (server) => {
    const args = ["serve", "--model", modelName, "--registry", join(server.folder, "registry.db"), "--port", "0"];
    const { status, stderr } = spawnSync(binary, [...args, "--kv-dir", dir], { encoding: "utf8" });
    assert.equal(status, 1);
    assert.match(stderr, /kv-dir: .* is used by another process: give each its own folder/);
    assert.equal(await metric(server, "store_writable"), 1);
    rmSync(dir, { recursive: true });
    const prompt = randomPrompt(random(9), 200);
    const first = await ask(server, prompt);
    await until(async () => (await metric(server, "store_writable")) === 0, "the failure is noticed");
    assert.equal(server.stderr.match(/kv store: nothing is written/g).length, 1);
    assert.deepEqual((await ask(server, prompt)).answer, first.answer);
    const from = Date.now();
    await server.restart(); // nothing can be stored: it does not wait for the deadline
    assert.ok(Date.now() - from < 20_000);
  });
});

test("a chain moves to another machine, under a passphrase", async () => {
  const from = newFolder(),
    to = newFolder(),
    file = join(folder, "chain"),
    passphrase = join(folder, "passphrase");
  writeFileSync(passphrase, "correct horse battery\n");
  const kv = (server, dir, ...args) =>
    spawnSync(binary, ["kv", ...args, "--kv-dir", dir, "--registry", join(server.folder, "registry.db")], {
      encoding: "utf8",
    });
  const prompt = randomPrompt(random(77), 500);
  const first = await serving([...small, "--kv-dir", from], async (server) => {
    const answer = await ask(server, prompt);
    await server.restart(); // writes what is cached
    const list = JSON.parse(kv(server, from, "list", "--json").stdout);
    const last = list.reduce((a, b) => (b.first_token + b.tokens > a.first_token + a.tokens ? b : a));
    const shown = kv(server, from, "show", last.file);
    assert.match(shown.stdout, /model +inferd-demo\ntokens +496\n/, shown.stderr);
    assert.ok(kv(server, from, "show", last.file, "--text").stdout.length > 500);
    const missing = kv(server, from, "export", last.file, file);
    assert.match(missing.stderr, /--passphrase-file/);
    const done = kv(server, from, "export", last.file, file, "--passphrase-file", passphrase);
    assert.match(done.stdout, /exported 496 tokens of inferd-demo/, done.stderr);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    assert.deepEqual(audited(join(server.folder, "registry.db")), [
      `kv.show_text ${last.file} ok`,
      `kv.export ${last.file} failed: invalid`,
      `kv.export ${last.file} ok`,
    ]);
    return answer;
  });
  await serving([...small, "--kv-dir", to], async (server) => {
    const busy = kv(server, to, "import", file, "--passphrase-file", passphrase);
    assert.match(busy.stderr, /used by another process/);
    server.child.kill("SIGTERM");
    await server.exited;
    writeFileSync(passphrase, "another horse\n");
    assert.match(kv(server, to, "import", file, "--passphrase-file", passphrase).stderr, /passphrase/);
    writeFileSync(passphrase, "correct horse battery\n");
    const done = kv(server, to, "import", file, "--passphrase-file", passphrase);
    assert.match(done.stdout, /imported 496 tokens of inferd-demo: \d+ segments/, done.stderr);
    assert.equal(audited(join(server.folder, "registry.db")).at(-1), `kv.import ${file} ok`);
    await server.restart();
    assert.deepEqual(await ask(server, prompt), { ...first, cached: whole(500) });
    assert.equal(await metric(server, "restored_tokens_total"), whole(500));
  });
});

test("a chain is imported for one key, and one cache_salt", async () => {
  const dir = newFolder(),
    file = join(folder, "chain2"),
    passphrase = join(folder, "passphrase2");
  writeFileSync(passphrase, "correct horse battery\n");
  await serving([...small, "--kv-dir", dir, "--api-key-file", keys], async (server) => {
    const carol = addKey(server, "carol"),
      prompt = randomPrompt(random(78), 300),
      own = join(folder, "own");
    const kv = async (...args) => {
      server.child.kill("SIGTERM");
      await server.exited;
      const at = ["--kv-dir", dir, "--registry", join(server.folder, "registry.db")];
      const { stdout, stderr } = spawnSync(binary, ["kv", ...args, ...at], { encoding: "utf8" });
      if (args[0] === "import") await server.restart();
      return { stdout, stderr };
    };
    const secret = ["--passphrase-file", passphrase];
    const first = await ask(server, prompt, { key: "sk-bob" });
    const list = JSON.parse((await kv("list", "--json")).stdout);
    const last = list.reduce((a, b) => (b.first_token + b.tokens > a.first_token + a.tokens ? b : a));
    assert.match((await kv("export", last.file, file, ...secret)).stdout, /exported 304 tokens/);
    const cached = async (key, more = {}) => {
      const got = await ask(server, prompt, { key, ...more });
      assert.deepEqual(got.answer, first.answer);
      return got.cached;
    };
    assert.match((await kv("import", file, ...secret, "--key", "nobody")).stderr, /nobody/);
    assert.match((await kv("import", file, ...secret, "--key", "carol")).stdout, /imported 304 tokens/);
    assert.equal(await cached(carol), whole(300));
    assert.equal(await cached("sk-alice"), 0);
    writeFileSync(own, `${carol}\n`);
    const salted = ["--cache-salt", "s", "--api-key-file"];
    assert.match((await kv("import", file, ...secret, ...salted, own)).stdout, /imported 304 tokens/);
    writeFileSync(own, "sk-alice\n");
    assert.match((await kv("import", file, ...secret, ...salted, own)).stdout, /imported 304 tokens/);
    for (const key of [carol, "sk-alice"]) {
      assert.equal(await cached(key, { cache_salt: "t" }), 0);
      assert.equal(await cached(key, { cache_salt: "s" }), whole(300));
    }
  });
});
