// POST /v1/rerank, /v2/rerank and /v1/score: against transformers' logits (tests/golden/pooled), with Cohere's client
// and with plain HTTP. Embeddings of the same tiny Qwen3 in a folder of sentence-transformers.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { CohereClient, CohereClientV2 } from "cohere-ai";
import OpenAI from "openai";
import { addKeys } from "./gguf.mjs";
import { binary, metrics, modelFile, modelName, post, serving, startServer } from "./server.mjs";

const golden = JSON.parse(readFileSync("tests/golden/pooled/qwen3-rerank/golden.json", "utf8"));
const source = "tests/golden/pooled/qwen3-rerank/hf";
const model = "ranker";
const usual = golden.pairs.filter((p) => p.instruct === golden.instruct);
const query = golden.pairs[0].query;
const exact = ["--activation-bits", "16", "--kv-cache-type", "f32"];

let root, folder, server;
before(async () => {
  root = mkdtempSync(join(tmpdir(), "inferd-rerank-"));
  folder = join(root, "Qwen3-Reranker-tiny"); // the name says what it is, as with Qwen's own files
  cpSync(source, folder, { recursive: true });
  server = await startServer([...exact, "--max-rerank-documents", "300"], [{ file: folder, name: model }]);
});
after(async () => {
  await server.stop();
  rmSync(root, { recursive: true });
});

async function ask(path, body, to = server) {
  const response = await post(to, path, { model, ...body });
  const answer = await response.json();
  assert.equal(response.status, 200, JSON.stringify(answer));
  return answer;
}
async function refusal(path, body, to = server) {
  const response = await post(to, path, { model, ...body });
  const { error } = await response.json();
  assert.equal(response.status, 400, JSON.stringify(body).slice(0, 80));
  return error;
}
const near = (got, want, tolerance, what) => assert.ok(Math.abs(got - want) <= tolerance, `${what}: ${got}, ${want}`);

// Logits have a size of up to 10; weights are BF16, so activations are not rounded much.
async function checkScores(to, tolerance, options = {}) {
  for (const p of options.pairs ?? golden.pairs) {
    const body = {
      text_1: p.query,
      text_2: p.document,
      ...(p.instruct !== golden.instruct && { instruction: p.instruct }),
    };
    const raw = await ask("/v1/score", { ...body, use_activation: false }, to);
    assert.equal(raw.usage.prompt_tokens, p.ids.length, "the prompt's tokens are transformers'");
    near(raw.data[0].score, p.logits[0] - p.logits[1], tolerance, p.query);
    const probability = await ask("/v1/score", body, to);
    near(probability.data[0].score, p.score, tolerance / 4, p.query);
  }
}

test("scores are those of transformers", () => checkScores(server, 1e-4));

test("a score's shape is vLLM's; queries and documents are its other names", async () => {
  const documents = usual.map((p) => p.document);
  const a = await ask("/v1/score", { text_1: query, text_2: documents });
  assert.deepEqual(Object.keys(a).sort(), ["created", "data", "id", "model", "object", "usage"]);
  assert.equal(a.object, "list");
  assert.equal(a.model, model);
  assert.deepEqual(
    a.data.map((d) => [d.index, d.object]),
    documents.map((_, i) => [i, "score"]),
  );
  assert.equal(a.usage.total_tokens, a.usage.prompt_tokens);
  const b = await ask("/score", { queries: documents.map(() => query), documents });
  assert.deepEqual(b.data, a.data);
});

test("results are sorted, equal ones by their index; top_n keeps the best", async () => {
  const documents = [...usual.map((p) => p.document), usual[0].document, { text: usual[1].document }];
  const { data } = await ask("/v1/score", { text_1: query, text_2: documents.map((d) => d.text ?? d) });
  const want = data.toSorted((a, b) => b.score - a.score || a.index - b.index);
  for (const path of ["/v1/rerank", "/rerank"]) {
    const a = await ask(path, { query, documents });
    assert.match(a.id, /^rerank-/);
    assert.equal(a.object, "list");
    assert.deepEqual(
      a.results,
      want.map((d) => ({
        index: d.index,
        relevance_score: d.score,
        document: { text: documents[d.index].text ?? documents[d.index] },
      })),
    );
    assert.deepEqual(Object.keys(a.usage).sort(), ["completion_tokens", "prompt_tokens", "total_tokens"]);
  }
  for (const [top_n, n] of [
    [1, 1],
    [3, 3],
    [0, documents.length],
    [99, documents.length],
  ]) {
    const { results } = await ask("/v1/rerank", { query, documents, top_n, return_documents: false });
    assert.deepEqual(
      results,
      want.slice(0, n).map((d) => ({ index: d.index, relevance_score: d.score })),
    );
  }
});

test("Cohere's client, both versions of its API", async () => {
  const documents = usual.map((p) => p.document);
  const environment = server.url;
  const v2 = new CohereClientV2({ token: "none", environment });
  const two = await v2.rerank({ model, query, documents, topN: 2 });
  assert.equal(two.results.length, 2);
  assert.equal(two.meta.apiVersion.version, "2");
  const v1 = new CohereClient({ token: "none", environment });
  const one = await v1.rerank({
    model,
    query,
    documents: documents.map((text) => ({ text })),
    returnDocuments: true,
    rankFields: ["text"],
  });
  assert.equal(one.results.length, documents.length);
  assert.deepEqual(
    one.results.slice(0, 2).map((r) => [r.index, r.relevanceScore]),
    two.results.map((r) => [r.index, r.relevanceScore]),
  );
  for (const r of one.results) {
    assert.equal(r.document.text, documents[r.index]);
    near(r.relevanceScore, r.index < 3 ? usual[r.index].score : r.relevanceScore, 1e-4, "client");
  }
  await assert.rejects(v2.rerank({ model: "nothing", query, documents }), (e) => e.statusCode === 404);
});

test("a score does not depend on the batch, the order or cached prefixes, bit for bit", async () => {
  const documents = Array.from({ length: 120 }, (_, i) => "word ".repeat((i * 7) % 40) + (i % 30));
  const alone = [];
  for (const document of documents.slice(0, 30))
    alone.push(
      (await ask("/v1/score", { text_1: query, text_2: document, cache_salt: `s${alone.length}` })).data[0].score,
    );
  const [all, back] = await Promise.all([
    ask("/v1/score", { text_1: query, text_2: documents }),
    ask("/v1/score", { text_1: query, text_2: documents.toReversed() }),
  ]);
  assert.deepEqual(
    all.data.slice(0, 30).map((d) => d.score),
    alone,
  );
  assert.deepEqual(
    back.data.map((d) => d.score).toReversed(),
    all.data.map((d) => d.score),
  );
});

test("max_tokens_per_doc cuts documents after so many tokens of their own", async () => {
  const document = "Foxes live in dens that they dig in the forest. \u2014 And so on.";
  const { tokens } = await (await post(server, "/tokenize", { model, content: document })).json();
  for (const name of ["max_tokens_per_doc", "max_doc_length"])
    for (const n of [1, 5, tokens.length - 6, tokens.length, 1000]) {
      const { prompt } = await (await post(server, "/detokenize", { model, tokens: tokens.slice(0, n) })).json();
      const cut = await ask("/v1/score", { text_1: query, text_2: prompt.replace(/\ufffd+$/, "") });
      const a = await ask("/v1/rerank", { query, documents: [document], [name]: n });
      assert.equal(a.results[0].relevance_score, cut.data[0].score, `${n} tokens`);
      assert.equal(a.results[0].document.text, document, "the answer has the whole text");
    }
});

test("U+0000 is text", async () => {
  const [a, b] = (await ask("/v1/score", { text_1: "a", text_2: ["b", "b\u0000"] })).data;
  assert.notEqual(a.score, b.score);
  const { results } = await ask("/v1/rerank", { query: "a\u0000", documents: [{ text: "b\u0000" }] });
  assert.equal(results[0].document.text, "b\u0000");
});

test("errors name what is wrong", async () => {
  const rows = [
    ["/v1/rerank", { documents: ["x"] }, "query"],
    ["/v1/rerank", { query }, "documents"],
    ["/v1/rerank", { query, documents: [] }, "documents"],
    ["/v1/rerank", { query, documents: "x" }, "documents"],
    ["/v1/rerank", { query, documents: ["x", 5] }, "documents[1]"],
    ["/v1/rerank", { query, documents: [{ title: "x" }] }, "documents[0].text"],
    ["/v1/rerank", { query, documents: ["x"], top_n: -1 }, "top_n"],
    ["/v1/rerank", { query, documents: ["x"], max_tokens_per_doc: 0 }, "max_tokens_per_doc"],
    ["/v1/rerank", { query, documents: ["x"], max_chunks_per_doc: 2 }, "max_chunks_per_doc"],
    ["/v1/rerank", { query, documents: ["x"], rank_fields: ["title"] }, "rank_fields"],
    ["/v2/rerank", { query, documents: Array(301).fill("x") }, "documents"],
    ["/v1/score", { text_2: "x" }, "text_1"],
    ["/v1/score", { text_1: "x" }, "text_2"],
    ["/v1/score", { queries: ["x", "y"], documents: ["x", "y", "z"] }, "queries"],
    ["/v1/score", { text_1: "x", text_2: [] }, "text_2"],
    ["/v1/score", { text_1: "x", documents: [["y"]] }, "documents"],
    ["/v1/score", { text_1: "x", text_2: Array(301).fill("x") }, "text_2"],
  ];
  for (const [path, body, param] of rows) {
    const error = await refusal(path, body);
    assert.equal(error.param, param, error.message);
  }
  const long = await refusal("/v1/rerank", { query, documents: ["x", "word ".repeat(3000)] });
  assert.deepEqual([long.code, long.param], ["context_length_exceeded", "documents"]);
  assert.equal((await ask("/v1/rerank", { query, documents: Array(300).fill("x") })).results.length, 300);
});

test("a long query with many documents is answered, or refused within its budget", async () => {
  const body = { query: "word ".repeat(120), documents: Array.from({ length: 200 }, (_, i) => `${i}`) };
  const { results, usage } = await ask("/v1/rerank", body);
  assert.equal(results.length, 200);
  assert.ok(usage.prompt_tokens > 200 * 300);
});

test("requests are counted, and need a key if there are keys", async () => {
  const text = await metrics(server);
  for (const path of ["/v1/rerank", "/v2/rerank", "/v1/score"])
    assert.ok(
      [...text].some(([name, n]) => name.includes(`"${path}"`) && n > 0),
      `${path} is not counted`,
    );
  const keys = join(root, "keys");
  writeFileSync(keys, "sk-alice\n", { mode: 0o600 });
  await serving(
    ["--api-key-file", keys],
    async (closed) => {
      const body = { model, query: "a", documents: ["b"] };
      assert.equal((await post(closed, "/v1/rerank", body)).status, 401);
      const headers = { Authorization: "Bearer sk-alice" };
      for (const path of ["/v1/rerank", "/rerank", "/v2/rerank"])
        assert.equal((await post(closed, path, body, { headers })).status, 200);
    },
    [{ file: folder, name: model }],
  );
});

test("a model that cannot score is refused, and says what it lacks", () =>
  serving([], async (plain) => {
    for (const [path, body] of [
      ["/v1/rerank", { query, documents: ["x"] }],
      ["/v1/score", { text_1: "x", text_2: "y" }],
    ]) {
      const error = await refusal(path, { ...body, model: modelName }, plain);
      assert.deepEqual([error.param, error.code], ["model", "unsupported_value"]);
      assert.match(error.message, /cannot score: .*tokenizer\.chat_template\.rerank/);
    }
  }));

// A file as llama.cpp converts Qwen3-Reranker: two rows for yes and no, and the prompt; and one without the head.
function rankFile(name, keys, head) {
  const plain = join(root, "plain.gguf"),
    file = join(root, name);
  execFileSync(binary, ["quantize", source, plain, "--type", "bf16", "--force"], { stdio: "ignore" });
  const tensors = readFileSync(join(source, "model.safetensors"));
  const n = Number(tensors.readBigUInt64LE(0)),
    header = JSON.parse(tensors.subarray(8, 8 + n));
  const embed = header["model.embed_tokens.weight"],
    width = embed.shape[1];
  const row = (i) =>
    Array.from({ length: width }, (_, k) => {
      const bits = tensors.readUInt16LE(8 + n + embed.data_offsets[0] + 2 * (i * width + k));
      return new Float32Array(Uint32Array.of(bits << 16).buffer)[0];
    });
  const values = Float32Array.from(head.flatMap(row));
  addKeys(plain, file, keys, head.length ? { "cls.output.weight": { dims: [width, head.length], values } } : {});
  return file;
}

test("a GGUF with pooling_type rank: its own head and prompt", async () => {
  const [yes, no] = golden.words;
  const template = golden.template.replace("{instruct}", golden.instruct);
  const keys = { "qwen3.pooling_type": 4, "tokenizer.chat_template.rerank": template };
  const labels = (...list) => ({ "qwen3.classifier.output_labels": list });
  const files = [
    rankFile("first.gguf", { ...keys, ...labels("yes", "no") }, [yes, no]),
    rankFile("second.gguf", { ...keys, ...labels("no", "yes") }, [no, yes]),
    rankFile("plain-head.gguf", { "tokenizer.chat_template.rerank": template }, []),
  ];
  for (const file of files)
    await serving(
      exact,
      async (own) => {
        await checkScores(own, 1e-4);
        if (file === files[2]) return;
        const error = await refusal("/v1/embeddings", { input: "x" }, own);
        assert.equal(error.param, "model");
        await ask("/v1/embeddings", { input: "x", pooling: "last" }, own);
      },
      [{ file, name: model }],
    );
  const other = rankFile("other.gguf", { ...keys, ...labels("good", "bad") }, [yes, no]);
  const add = () => execFileSync(binary, ["serve", "--model", other, "--port", "0"], { stdio: "pipe", timeout: 20000 });
  assert.throws(add, (e) => /classifier\.output_labels must be yes and no/.test(e.stderr.toString()));
  const headless = rankFile("headless.gguf", keys, []);
  const open = () =>
    execFileSync(binary, ["serve", "--model", headless, "--port", "0"], { stdio: "pipe", timeout: 20000 });
  assert.throws(open, (e) => /no tensor cls\.output\.weight/.test(e.stderr.toString()));
});

// A folder as sentence-transformers saves it.
function sentenceFolder(name, modules, files) {
  const path = join(root, name);
  cpSync(source, path, { recursive: true });
  const type = (word) => (word === "LogitScore" ? "cross_encoder.modules.logit_score.LogitScore" : `models.${word}`);
  const list = [["Transformer", ""], ...modules].map(([word, at], idx) => ({
    idx,
    name: `${idx}`,
    path: at,
    type: `sentence_transformers.${type(word)}`,
  }));
  writeFileSync(join(path, "modules.json"), JSON.stringify(list));
  for (const [at, config] of Object.entries(files)) {
    mkdirSync(join(path, at));
    writeFileSync(join(path, at, "config.json"), JSON.stringify(config));
  }
  return path;
}

test("a folder says how it pools: the last token behind EOS, dimensions that are cut", async () => {
  const path = sentenceFolder(
    "embedder",
    [
      ["Pooling", "1_Pooling"],
      ["Normalize", "2_Normalize"],
    ],
    {
      "1_Pooling": { pooling_mode_mean_tokens: false, pooling_mode_lasttoken: true },
    },
  );
  const file = join(path, "tokenizer.json"),
    tokenizer = JSON.parse(readFileSync(file, "utf8"));
  const eos = "<|endoftext|>",
    id = tokenizer.added_tokens.find((t) => t.content === eos).id;
  const single = [{ Sequence: { id: "A", type_id: 0 } }, { SpecialToken: { id: eos, type_id: 0 } }];
  tokenizer.post_processor = {
    type: "TemplateProcessing",
    single,
    pair: single,
    special_tokens: { [eos]: { id: eos, ids: [id], tokens: [eos] } },
  };
  writeFileSync(file, JSON.stringify(tokenizer));
  await serving(
    exact,
    async (own) => {
      const client = new OpenAI({ baseURL: own.url + "/v1", apiKey: "none", maxRetries: 0 });
      const input = golden.texts.map((t) => t.text);
      const { data, usage } = await client.embeddings.create({ model, input });
      assert.equal(
        usage.prompt_tokens,
        golden.texts.reduce((sum, t) => sum + t.ids.length, 0),
      );
      data.forEach((d, i) => d.embedding.forEach((x, k) => near(x, golden.texts[i].vector[k], 2e-5, `${i}, ${k}`)));
      const cut = await client.embeddings.create({ model, input: input[0], dimensions: 7 });
      const first = golden.texts[0].vector.slice(0, 7),
        length = Math.hypot(...first);
      cut.data[0].embedding.forEach((x, k) => near(x, first[k] / length, 5e-5, `cut, ${k}`));
      assert.equal((await refusal("/v1/rerank", { query, documents: ["x"] }, own)).param, "model");
    },
    [{ file: path, name: model }],
  );
});

test("a folder says by which tokens it scores", async () => {
  const [yes, no] = golden.words;
  const path = sentenceFolder("scorer", [["LogitScore", "1_LogitScore"]], {
    "1_LogitScore": { true_token_id: yes, false_token_id: no },
  });
  await serving(exact, (own) => checkScores(own, 1e-4, { pairs: golden.pairs.slice(0, 2) }), [
    { file: path, name: model },
  ]);
});

test("modules that are not supported are refused by name", () => {
  const rows = [
    ["max", [["Pooling", "1_Pooling"]], { "1_Pooling": { pooling_mode_max_tokens: true } }, /mean, cls or lasttoken/],
    ["two", [["Pooling", "1_P"]], { "1_P": { pooling_mode_cls_token: true, pooling_mode_lasttoken: true } }, /one of/],
    ["lstm", [["LSTM", "1_LSTM"]], {}, /'sentence_transformers\.models\.LSTM' is not supported/],
    ["one", [["LogitScore", "1_L"]], { "1_L": { true_token_id: 3, false_token_id: null } }, /two tokens/],
    ["away", [["Pooling", "../1_Pooling"]], {}, /no folder inside/],
  ];
  for (const [name, modules, files, wanted] of rows) {
    const path = sentenceFolder(name, modules, files);
    const add = () =>
      execFileSync(binary, ["models", "add", path, "--name", name, "--registry", join(root, "r.db")], {
        stdio: "pipe",
      });
    assert.throws(add, (e) => wanted.test(e.stderr.toString()), name);
  }
});
