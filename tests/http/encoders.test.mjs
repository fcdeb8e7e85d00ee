// Encoders (BERT, XLM-R, nomic-bert, ModernBERT) as embedders and rerankers: against transformers
// (tests/golden/encoder).
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { binary, post, serving } from "./server.mjs";

const at = (name) => `tests/golden/encoder/${name}`;
const golden = (name) => JSON.parse(readFileSync(`${at(name)}/golden.json`, "utf8"));
const flags = ["--activation-bits", "16", "--kv-cache-type", "f32"];
const near = (got, want, tolerance, what) => assert.ok(Math.abs(got - want) <= tolerance, `${what}: ${got}, ${want}`);

async function ask(to, path, body) {
  const response = await post(to, path, body);
  const answer = await response.json();
  assert.equal(response.status, 200, JSON.stringify(answer).slice(0, 300));
  return answer;
}
const serve = (name, run) => serving(flags, run, [{ file: `${at(name)}/hf`, name }]);

for (const name of ["bert-cls", "xlmr-mean", "nomic-mean", "modern-mean"])
  test(`${name}: vectors are those of transformers; texts get the tokens around them`, () =>
    serve(name, async (to) => {
      const { prompts, texts } = golden(name);
      const { data } = await ask(to, "/v1/embeddings", { model: name, input: prompts.map((p) => p.ids) });
      for (const [i, { embedding }] of data.entries()) {
        assert.equal(embedding.length, prompts[i].value.length);
        embedding.forEach((x, k) => near(x, prompts[i].value[k], 1e-4, `${i}, ${k}`));
      }
      const some = texts.filter((t) => !/[<[]/.test(t.text)).slice(0, 8);
      const input = some.map((t) => t.text);
      const byText = await ask(to, "/v1/embeddings", { model: name, input });
      const byIds = await ask(to, "/v1/embeddings", { model: name, input: some.map((t) => t.ids) });
      assert.deepEqual(byText.data, byIds.data);
      assert.equal(byText.usage.prompt_tokens, byIds.usage.prompt_tokens);
      const short = await ask(to, "/v1/embeddings", { model: name, input, dimensions: 8, encoding_format: "base64" });
      for (const [i, { embedding }] of short.data.entries()) {
        const bytes = Buffer.from(embedding, "base64");
        const v = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
        assert.equal(v.length, 8);
        const whole = byIds.data[i].embedding,
          length = Math.hypot(...whole.slice(0, 8));
        v.forEach((x, k) => near(x, whole[k] / length, 1e-6, `${i}, ${k}`));
      }
      const refused = await post(to, "/v1/rerank", { model: name, query: "x", documents: ["x"] });
      assert.equal(refused.status, 400);
    }));

for (const name of ["bert-rank", "xlmr-rank", "modern-rank", "modern-rank-cls"])
  test(`${name}: scores are those of transformers`, () =>
    serve(name, async (to) => {
      const { pairs } = golden(name);
      for (const p of pairs) {
        const body = { model: name, text_1: p.query, text_2: p.document };
        const raw = await ask(to, "/v1/score", { ...body, use_activation: false });
        assert.equal(raw.usage.prompt_tokens, p.ids.length);
        near(raw.data[0].score, p.value[0], 3e-4, p.query);
        const { data } = await ask(to, "/v1/score", body);
        near(data[0].score, 1 / (1 + Math.exp(-p.value[0])), 1e-4, p.query);
      }
      const same = pairs.filter((p) => p.query === pairs[0].query);
      const { results } = await ask(to, "/v1/rerank", {
        model: name,
        query: same[0].query,
        documents: same.map((p) => p.document),
      });
      const want = same.map((p, index) => ({ index, value: p.value[0] })).sort((a, b) => b.value - a.value);
      assert.deepEqual(
        results.map((r) => r.index),
        want.map((w) => w.index),
      );
      const refused = [
        ["/v1/embeddings", { input: "x" }, "model"],
        ["/v1/rerank", { query: "x", documents: ["x"], instruction: "find" }, "instruction"],
        ["/v1/chat/completions", { messages: [{ role: "user", content: "x" }] }, "model"],
        ["/v1/rerank", { query: "x", documents: ["word ".repeat(400)] }, "documents"],
      ];
      for (const [path, body, param] of refused) {
        const response = await post(to, path, { model: name, ...body });
        assert.equal(response.status, 400, path);
        assert.equal((await response.json()).error.param, param, path);
      }
    }));

test("a GGUF of ModernBERT gives the folder's vectors and scores", async () => {
  const path = mkdtempSync(join(tmpdir(), "inferd-modern-"));
  const quantize = (name) => {
    const file = join(path, name + ".gguf");
    execFileSync(binary, ["quantize", `${at(name)}/hf`, file, "--type", "f16"], { stdio: "ignore" });
    return { file, name };
  };
  await serving(
    flags,
    async (to) => {
      const { prompts, texts } = golden("modern-mean");
      const { data } = await ask(to, "/v1/embeddings", { model: "modern-mean", input: prompts.map((p) => p.ids) });
      for (const [i, { embedding }] of data.entries())
        embedding.forEach((x, k) => near(x, prompts[i].value[k], 1e-4, `${i}, ${k}`));
      const { usage } = await ask(to, "/v1/embeddings", { model: "modern-mean", input: texts[1].text });
      assert.equal(usage.prompt_tokens, texts[1].ids.length);
    },
    [quantize("modern-mean")],
  );
  await serving(
    flags,
    async (to) => {
      for (const p of golden("modern-rank-cls").pairs) {
        const body = { model: "modern-rank-cls", text_1: p.query, text_2: p.document, use_activation: false };
        const { data, usage } = await ask(to, "/v1/score", body);
        near(data[0].score, p.value[0], 1e-3, p.query);
        assert.equal(usage.prompt_tokens, p.ids.length);
      }
    },
    [quantize("modern-rank-cls")],
  );
  rmSync(path, { recursive: true });
});
