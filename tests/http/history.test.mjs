// GET /v1/inferd/history: samples of the last hour, and the caller's own requests.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { modelName, post, serving, until } from "./server.mjs";

const complete = (server, key, more = {}) =>
  post(
    server,
    "/v1/completions",
    { model: modelName, prompt: "One", max_tokens: 1, ignore_eos: true, ...more },
    { headers: key ? { Authorization: `Bearer ${key}` } : {} },
  ).then((r) => r.text());

const history = async (server, key) => {
  const response = await fetch(`${server.url}/v1/inferd/history`, {
    headers: key ? { Authorization: `Bearer ${key}` } : {},
  });
  assert.equal(response.status, key === null ? 401 : 200);
  return response.json();
};

test("a sample at the start, then every ten seconds; sums grow", async () => {
  await serving([], async (server) => {
    const one = await until(async () => {
      const h = await history(server);
      return h.samples.length ? h : null;
    }, "the first sample is taken");
    assert.equal(one.interval_s, 10);
    const [first] = one.samples;
    assert.ok(Math.abs(first.time - Date.now() / 1000) < 60, "seconds since 1970");
    assert.equal(first.generated_tokens, 0);
    assert.ok(first.kv_blocks > 0 && first.kv_blocks_used === 0);
    if (process.platform === "linux") assert.ok(first.memory_bytes > 1 << 20, "the process is resident");
    await complete(server, undefined, { max_tokens: 20 });
    const { samples } = await until(async () => {
      const h = await history(server);
      return h.samples.length > 1 ? h : null;
    }, "the second sample is taken");
    assert.ok(samples[1].time - samples[0].time >= 9, "ten seconds later");
    assert.equal(samples[1].generated_tokens, 20);
    assert.equal(samples[1].first_tokens, 1);
    assert.ok(samples[1].first_token_seconds > 0);
  });
});

test("the last hundred requests for work, newest first, with what they cost and no texts", async () => {
  await serving([], async (server) => {
    assert.deepEqual((await history(server)).requests, []);
    await complete(server, undefined, { prompt: "A secret prompt", max_tokens: 3 });
    await complete(server, undefined, { temperature: 9 });
    await fetch(`${server.url}/v1/models`);
    const text = JSON.stringify(
      await until(async () => {
        const h = await history(server);
        return h.requests.length === 2 ? h : null;
      }, "both are listed"),
    );
    assert.equal(text.includes("secret"), false);
    const [bad, good] = JSON.parse(text).requests;
    assert.deepEqual([bad.status, good.status], [400, 200]);
    assert.deepEqual(
      [good.route, good.model, good.completion_tokens, good.cut],
      ["/v1/completions", modelName, 3, false],
    );
    assert.ok(good.ms > 0 && good.prompt_tokens > 0 && good.id.length > 4);
    for (let i = 0; i < 105; i++) await complete(server);
    const { requests } = await history(server);
    assert.equal(requests.length, 100);
    assert.equal(
      requests.every((r) => r.completion_tokens === 1),
      true,
    );
  });
});

test("with keys each sees its own requests, and nobody without one", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inferd-history-"));
  writeFileSync(join(folder, "keys"), "key-a\nkey-b\n", { mode: 0o600 });
  try {
    await serving(["--api-key-file", join(folder, "keys")], async (server) => {
      await complete(server, "key-a");
      await complete(server, "key-a");
      await complete(server, "key-b");
      await until(async () => (await history(server, "key-a")).requests.length === 2, "two of the first key");
      assert.equal((await history(server, "key-b")).requests.length, 1);
      await history(server, null);
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
