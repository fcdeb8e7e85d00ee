// POST /v1/embeddings with the official OpenAI SDK and with plain HTTP.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { binary, chat, metrics, modelName, post, serving, startServer, until, user } from "./server.mjs";

let server, client;
before(async () => {
  server = await startServer(["--context-length", "512"]);
  client = new OpenAI({ baseURL: server.url + "/v1", apiKey: "none", maxRetries: 0 });
});
after(() => server.stop());

const model = modelName;
const texts = [
  "A fox.",
  "The small boat sailed over the lake, and nobody was in it.",
  "x",
  "Once upon a time there was a little girl who loved her red ball. ".repeat(9),
];
const create = (params) => client.embeddings.create({ model, encoding_format: "float", ...params });
const vector = async (params) => (await create(params)).data[0].embedding;
const length = (v) => Math.sqrt(v.reduce((sum, x) => sum + x * x, 0));
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const bits = (v) => Buffer.from(Float32Array.from(v).buffer).toString("hex");

test("one text: a unit vector and its token count", async () => {
  const answer = await create({ input: texts[1] });
  assert.equal(answer.object, "list");
  assert.equal(answer.model, model);
  assert.deepEqual(Object.keys(answer.data[0]).sort(), ["embedding", "index", "object"]);
  assert.equal(answer.data[0].object, "embedding");
  assert.ok(Math.abs(length(answer.data[0].embedding) - 1) < 1e-6);
  const { tokens } = await (await post(server, "/tokenize", { model, prompt: texts[1] })).json();
  assert.deepEqual(answer.usage, { prompt_tokens: tokens.length, total_tokens: tokens.length });
  const ids = await vector({ input: tokens });
  assert.equal(bits(ids), bits(answer.data[0].embedding), "token ids are the same input");
});

test("base64 has the same float32 values and is the SDK's default", async () => {
  const floats = (await create({ input: texts })).data.map((d) => bits(d.embedding));
  const raw = await (await post(server, "/v1/embeddings", { model, input: texts, encoding_format: "base64" })).json();
  assert.deepEqual(
    raw.data.map((d) => Buffer.from(d.embedding, "base64").toString("hex")),
    floats,
  );
  for (const d of raw.data) assert.equal(d.embedding, Buffer.from(d.embedding, "base64").toString("base64"), "padded");
  const decoded = await client.embeddings.create({ model, input: texts });
  assert.deepEqual(
    decoded.data.map((d) => bits(d.embedding)),
    floats,
  );
  for (const dimensions of [1, 2, 3]) {
    const one = await (
      await post(server, "/v1/embeddings", { model, input: "x", encoding_format: "base64", dimensions })
    ).json();
    assert.equal(Buffer.from(one.data[0].embedding, "base64").length, 4 * dimensions);
  }
});

test("a text's vector does not depend on the batch or on other requests, bit for bit", async () => {
  for (const pooling of ["mean", "cls", "last"]) {
    const alone = [];
    for (const input of texts) alone.push(bits(await vector({ input, pooling })));
    const many = Array.from({ length: 120 }, (_, i) => texts[i % texts.length]);
    const [batch] = await Promise.all([
      create({ input: many, pooling }),
      chat(server, { messages: user("Tell me a story about a dog."), max_tokens: 40 }).then((r) => r.text()),
    ]);
    assert.equal(batch.data.length, many.length);
    batch.data.forEach((d, i) => {
      assert.equal(d.index, i);
      assert.equal(bits(d.embedding), alone[i % texts.length], `${pooling}, input ${i}`);
    });
    assert.equal(new Set(alone).size, pooling === "cls" ? 1 : texts.length, "the first token is BOS for all");
  }
});

test("last is the default pooling; poolings differ", async () => {
  const [none, mean, last] = [
    await vector({ input: texts[1] }),
    await vector({ input: texts[1], pooling: "mean" }),
    await vector({ input: texts[1], pooling: "last" }),
  ];
  assert.equal(bits(none), bits(last));
  assert.ok(dot(mean, last) < 0.999);
});

test("dimensions truncates the vector and renormalizes it", async () => {
  const whole = await vector({ input: texts[1] });
  for (const dimensions of [1, 7, whole.length]) {
    const cut = await vector({ input: texts[1], dimensions });
    assert.equal(cut.length, dimensions);
    const want = whole.slice(0, dimensions),
      scale = length(want);
    cut.forEach((x, i) => assert.ok(Math.abs(x - want[i] / scale) < 1e-6));
  }
  await assert.rejects(
    create({ input: "x", dimensions: whole.length + 1 }),
    (e) => e.status === 400 && e.param === "dimensions",
  );
});

test("errors of input name input", async () => {
  const wrong = [
    [],
    "",
    [""],
    ["x", ""],
    [[]],
    [1, "x"],
    ["x", 1],
    [-1],
    [1e9],
    [1.5],
    { a: 1 },
    5,
    true,
    ["x", ["y"]],
    Array(2049).fill("x"),
  ];
  for (const input of wrong) {
    const r = await post(server, "/v1/embeddings", { model, input });
    const { error } = await r.json();
    assert.equal(r.status, 400, JSON.stringify(input).slice(0, 60));
    assert.equal(error.param, "input", error.message);
  }
  for (const input of ["word ".repeat(5000), Array(5000).fill(300), ["x", "word ".repeat(5000)]]) {
    const r = await post(server, "/v1/embeddings", { model, input });
    const { error } = await r.json();
    assert.equal(r.status, 400);
    assert.deepEqual([error.code, error.param], ["context_length_exceeded", "input"]);
  }
  const large = await post(server, "/v1/embeddings", { model, input: Array(2048).fill("x") });
  assert.equal(large.status, 200, "as many as OpenAI takes");
  assert.equal((await large.json()).data.length, 2048);
});

test("a text of the whole context has a vector", async () => {
  const { data } = await (await fetch(server.url + "/v1/models")).json();
  const input = Array(data[0].context_length).fill(300);
  assert.ok(Math.abs(length(await vector({ input })) - 1) < 1e-6);
  await assert.rejects(create({ input: [...input, 300] }), (e) => e.code === "context_length_exceeded");
});

// A tiny EmbeddingGemma, as a folder of sentence-transformers and as a GGUF.
test("a model with attention in both directions embeds, and does nothing else", async () => {
  const folder = "tests/golden/pooled/gemma-embedding";
  const { prompts } = JSON.parse(readFileSync(`${folder}/golden.json`, "utf8"));
  const path = mkdtempSync(join(tmpdir(), "inferd-gemma-"));
  const files = [`${folder}/hf`, join(path, "gemma.gguf")];
  execFileSync(binary, ["quantize", files[0], files[1], "--type", "bf16"], { stdio: "ignore" });
  for (const file of files) {
    const models = [{ file, name: "gemma" }];
    const flags = ["--activation-bits", "16", "--kv-cache-type", "f32", "--max-batch-tokens", "140"];
    await serving(
      flags,
      async (to) => {
        const ask = (path, body) => post(to, path, { model: "gemma", ...body });
        const input = prompts.map((p) => p.ids);
        const { data } = await (await ask("/v1/embeddings", { input })).json();
        for (const [i, { embedding }] of data.entries())
          embedding.forEach((x, k) => assert.ok(Math.abs(x - prompts[i].vector[k]) < 5e-5, `${file}, ${i}, ${k}`));
        const long = await ask("/v1/embeddings", { input: Array(141).fill(9) });
        const { error } = await long.json();
        assert.deepEqual([long.status, error.code, error.param], [400, "context_length_exceeded", "input"]);
        const refused = [
          ["/v1/chat/completions", { messages: user("x") }],
          ["/v1/completions", { prompt: "x" }],
          ["/v1/rerank", { query: "x", documents: ["x"] }],
        ];
        for (const [path, body] of refused) {
          const response = await ask(path, body);
          assert.equal(response.status, 400, path);
          assert.equal((await response.json()).error.param, "model", path);
        }
        const [{ capabilities }] = (await (await fetch(to.url + "/v1/models")).json()).data;
        assert.deepEqual(
          Object.keys(capabilities).filter((name) => capabilities[name]),
          ["embeddings"],
        );
      },
      models,
    );
  }
  rmSync(path, { recursive: true });
});

test("a disconnected client cancels the work", async () => {
  const abort = new AbortController();
  const input = Array(2000).fill(texts[3]);
  const asked = post(server, "/v1/embeddings", { model, input, pooling: "mean" }, { signal: abort.signal }).catch(
    (e) => e.name,
  );
  await until(async () => (await metrics(server)).get("inferd_sequences_running") > 0, "running");
  abort.abort();
  assert.equal(await asked, "AbortError");
  await until(async () => (await metrics(server)).get("inferd_sequences_running") === 0, "idle");
  assert.ok((await metrics(server)).get('inferd_sequences_finished_total{reason="cancel"}') > 0);
});
