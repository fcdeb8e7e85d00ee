// Ollama's official client against /api/*.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";
import { Ollama } from "ollama";
import { onlyLoopback } from "./loopback.mjs";
import { binary, chat, modelFile, modelName, post, startServer, user } from "./server.mjs";

onlyLoopback();

let server, client;
before(async () => {
  server = await startServer();
  client = new Ollama({ host: server.url });
});
after(() => server.stop());

const options = { temperature: 0, num_predict: 40 };

test("lists versions and models", async () => {
  const { models } = await client.list();
  assert.deepEqual(
    models.map((m) => m.name),
    [modelName, "demo"],
  );
  assert.deepEqual({ ...models[1], name: modelName, model: modelName }, models[0]);
  assert.equal(models[0].details.family, "llama");
  const { models: running } = await client.ps();
  assert.ok(running[0].context_length > 0);
  const shown = await client.show({ model: `${modelName}:latest` });
  assert.ok(shown.model_info["llama.context_length"] > 0);
  assert.ok(shown.capabilities.includes("completion"));
  const { version } = await client.version();
  assert.match(version, /^\d+\.\d+\.\d+$/);
});

test("chats, whole and streamed, as over OpenAI's protocol", async () => {
  const whole = await client.chat({ model: modelName, messages: user("Hello!"), options });
  assert.ok(whole.done && ["stop", "length"].includes(whole.done_reason));
  assert.ok(
    whole.eval_count > 0 && whole.eval_duration > 0 && whole.prompt_eval_duration > 0 && whole.total_duration > 0,
  );
  let text = "",
    last;
  for await (const part of await client.chat({ model: modelName, messages: user("Hello!"), options, stream: true })) {
    text += part.message.content;
    last = part;
  }
  assert.equal(text, whole.message.content);
  assert.ok(last.done && last.eval_count === whole.eval_count && last.prompt_eval_count === whole.prompt_eval_count);
  const same = await (await chat(server, { messages: user("Hello!"), temperature: 0, max_tokens: 40 })).json();
  assert.equal(text, same.choices[0].message.content);
});

test("curl without a content type streams by default", async () => {
  const r = await fetch(`${server.url}/api/chat`, {
    method: "POST",
    body: JSON.stringify({ model: modelName, messages: user("Hi"), options }),
  });
  assert.equal(r.headers.get("content-type"), "application/x-ndjson");
  assert.ok(Number(r.headers.get("x-ratelimit-limit-requests")) > 0);
  const lines = (await r.text())
    .trim()
    .split("\n")
    .map((l) => JSON.parse(l));
  assert.ok(lines.length > 2 && lines.at(-1).done);
});

test("generates from a prompt, templated or raw", async () => {
  const templated = await client.generate({ model: modelName, prompt: "Hello!", options });
  const chatted = await client.chat({ model: modelName, messages: user("Hello!"), options });
  assert.equal(templated.response, chatted.message.content);
  const raw = await client.generate({ model: modelName, prompt: "Once upon a time", raw: true, options });
  assert.notEqual(raw.prompt_eval_count, templated.prompt_eval_count);
  const loaded = await client.generate({ model: modelName, prompt: "" });
  assert.deepEqual([loaded.done, loaded.done_reason, loaded.response], [true, "load", ""]);
});

test("tools and formats are enforced", async () => {
  const parameters = {
    type: "object",
    properties: { city: { type: "string", maxLength: 8 } },
    required: ["city"],
    additionalProperties: false,
  };
  const tools = [{ type: "function", function: { name: "get_weather", description: "Weather", parameters } }];
  const called = await client.chat({ model: modelName, messages: user("Weather?"), tools, options });
  for (const call of called.message.tool_calls ?? []) assert.deepEqual(Object.keys(call.function.arguments), ["city"]);
  const format = {
    type: "object",
    properties: { age: { type: "integer", minimum: 1, maximum: 99 } },
    required: ["age"],
    additionalProperties: false,
  };
  const formed = await client.chat({
    model: modelName,
    messages: user("How old?"),
    format,
    options: { ...options, num_predict: 100 },
  });
  const { age } = JSON.parse(formed.message.content);
  assert.ok(Number.isInteger(age) && age >= 1 && age <= 99);
});

test("errors have Ollama's form", async () => {
  const wrong = [
    [{ model: "nobody", messages: user("x") }, 404, /'nobody' not found/],
    [{ model: modelName, messages: user("x"), options: { temperature: 9 } }, 400, /options\.temperature/],
    [{ model: modelName, messages: user("x"), options: { mirostat: 1 } }, 400, /options\.mirostat/],
    [{ model: modelName, messages: [{ role: "user", content: "x", images: ["aa"] }] }, 400, /messages\[0\]\.images/],
    [{ model: modelName, messages: user("x"), options: { stop: [1] } }, 400, /options\.stop\[0\]/],
    [{ model: modelName, messages: [[1]] }, 400, /messages\[0\]/],
    [{ model: modelName, messages: [{ role: "assistant", tool_calls: [[1]] }] }, 400, /messages\[0\]\.tool_calls\[0\]/],
    [{ model: modelName, messages: user("x"), format: "yaml" }, 400, /format/],
  ];
  for (const [body, status, message] of wrong) {
    const r = await post(server, "/api/chat", body);
    assert.equal(r.status, status, JSON.stringify(body));
    assert.match((await r.json()).error, message);
  }
});

test("advisory fields are accepted and named", async () => {
  const body = {
    messages: [...user("x"), { role: "assistant", tool_calls: [{ function: { name: "f", arguments: {}, index: 0 } }] }],
    options: { num_ctx: 1 << 30, num_gpu: 1, mirostat: 0, mirostat_tau: 5, repeat_last_n: 64, num_predict: 1, new: 1 },
    keep_alive: -1,
    think: true,
    surprise: 1,
  };
  for (const stream of [true, false]) {
    const r = await post(server, "/api/chat", { model: modelName, ...body, stream });
    assert.equal(r.status, 200, await r.text());
    assert.equal(
      r.headers.get("x-inferd-ignored-fields"),
      "messages[1].tool_calls[0].function.index, options.num_gpu, options.mirostat_tau, options.repeat_last_n, " +
        "options.new, surprise, options.num_ctx, keep_alive, think",
    );
  }
});

test("embeds texts, cut to the context unless truncate is false", async () => {
  const input = ["A fox.", "The small boat sailed over the lake."];
  const { embeddings, prompt_eval_count, total_duration } = await client.embed({ model: modelName, input });
  const same = await post(server, "/v1/embeddings", { model: modelName, input }).then((r) => r.json());
  assert.deepEqual(
    embeddings,
    same.data.map((d) => d.embedding),
  );
  assert.equal(prompt_eval_count, same.usage.prompt_tokens);
  assert.ok(total_duration > 0);
  assert.deepEqual((await client.embed({ model: modelName, input: input[0] })).embeddings, [embeddings[0]]);
  assert.deepEqual((await client.embeddings({ model: modelName, prompt: input[0] })).embedding, embeddings[0]);
  for (const nothing of [{ input: "" }, { input: [] }, {}])
    assert.deepEqual((await client.embed({ model: modelName, ...nothing })).embeddings, []);
  assert.deepEqual((await client.embeddings({ model: modelName, prompt: "" })).embedding, []);
  const [short] = (await client.embed({ model: modelName, input: input[0], dimensions: 5 })).embeddings;
  assert.equal(short.length, 5);
  assert.ok(Math.abs(short.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-5);
});

test("embed: long texts and wrong ones", async () => {
  const [{ context_length }] = (await client.ps()).models;
  const long = "fox ".repeat(context_length + 9);
  const cut = await client.embed({ model: modelName, input: [long, "x"] });
  const { tokens } = await (await post(server, "/tokenize", { model: modelName, prompt: "x" })).json();
  assert.equal(cut.prompt_eval_count, context_length + tokens.length);
  assert.equal(
    (await client.embeddings({ model: modelName, prompt: long })).embedding.length,
    cut.embeddings[0].length,
  );
  await assert.rejects(client.embed({ model: modelName, input: long, truncate: false }), /maximum context length/);
  for (const [path, body, status, message] of [
    ["embed", { model: modelName, input: [1] }, 400, /input\[0\]/],
    ["embed", { model: modelName, input: "x", dimensions: 1 << 20 }, 400, /dimensions/],
    ["embed", { model: "nobody", input: "x" }, 404, /not found/],
    ["embeddings", { model: modelName, prompt: ["x"] }, 400, /prompt/],
  ]) {
    const r = await post(server, `/api/${path}`, body);
    assert.equal(r.status, status, JSON.stringify(body));
    assert.match((await r.json()).error, message);
  }
});

test("models have their file's digest and say what they can", async () => {
  const { createHash } = await import("node:crypto");
  const { readFileSync } = await import("node:fs");
  const digest = createHash("sha256").update(readFileSync(modelFile)).digest("hex");
  assert.equal((await client.list()).models[0].digest, digest);
  assert.equal((await client.ps()).models[0].digest, digest);
  const shown = await client.show({ model: modelName });
  assert.equal(shown.digest, digest);
  for (const ability of ["completion", "tools", "embedding"]) assert.ok(shown.capabilities.includes(ability), ability);
  assert.ok(!shown.capabilities.includes("insert") && shown.template.length > 0);
});

test("suffix needs a model with fill-in-the-middle tokens, and only administrators unload", async () => {
  const wanted = { model: modelName, prompt: "def f(", suffix: "\n", stream: false };
  const refused = await post(server, "/api/generate", wanted);
  assert.equal(refused.status, 400);
  assert.match((await refused.json()).error, /does not support insert/);
  assert.equal((await post(server, "/api/generate", { ...wanted, suffix: "", options })).status, 200);
  const headers = { "X-Forwarded-For": "192.0.2.1" };
  const unload = await post(server, "/api/generate", { model: modelName, keep_alive: 0, stream: false }, { headers });
  assert.equal((await unload.json()).done_reason, "load");
  assert.equal(unload.headers.get("x-inferd-ignored-fields"), "keep_alive");
  assert.equal((await client.ps()).models.length, 1);
});

test("all errors below /api have Ollama's form", async () => {
  for (const [method, path, status, headers] of [
    ["GET", "/api/nothing", 404],
    ["GET", "/api", 404],
    ["DELETE", "/api/chat", 405],
    ["POST", "/api/chat", 415, { "Content-Encoding": "gzip" }],
    ["POST", "/api/nothing", 403, { Host: "evil.example", Origin: "http://evil.example" }],
  ]) {
    const r = await fetch(server.url + path, { method, headers, body: method === "POST" ? "{}" : undefined });
    assert.equal(r.status, status, path);
    assert.equal(typeof (await r.json()).error, "string", path);
  }
  const anthropic = await fetch(`${server.url}/v1/messages/nothing`);
  assert.equal((await anthropic.json()).type, "error");
  const openai = await fetch(`${server.url}/apiary`);
  assert.equal((await openai.json()).error.code, "unknown_url");
  assert.equal((await fetch(server.url, { method: "HEAD" })).status, 200);
});

const ask = (model) => post(server, "/api/chat", { model, messages: [], stream: false });

test("copies are names at once; deleting a name keeps the model", async () => {
  await client.copy({ source: `${modelName}:latest`, destination: "org/mine:7b" });
  assert.equal((await ask("org/mine:7b")).status, 200);
  await client.create({ model: "other", from: "org/mine:7b" });
  assert.equal((await ask("other:latest")).status, 200);
  const names = async () => (await client.list()).models.map((m) => m.name);
  const all = [modelName, "demo", "org/mine:7b", "other"];
  assert.deepEqual(await names(), all);
  const { data } = await (await fetch(`${server.url}/v1/models`)).json();
  assert.deepEqual(
    data.map((m) => [m.id, m.parent, m.aliases]),
    all.map((id, i) => [id, i ? modelName : null, i ? [] : all.slice(1)]),
  );
  assert.equal((await chat(server, { model: "other", messages: user("x"), max_tokens: 1 })).status, 200);
  for (const name of ["org/mine:7b", "other:latest"]) {
    await client.delete({ model: name });
    assert.equal((await ask(name)).status, 404);
    const gone = await chat(server, { model: name, messages: user("x"), max_tokens: 1 });
    assert.equal((await gone.json()).error.code, "model_not_found");
  }
  assert.deepEqual(await names(), [modelName, "demo"]);
  assert.equal((await ask(modelName)).status, 200);
  assert.equal((await client.pull({ model: modelName })).status, "success");
  const lines = [];
  for await (const line of await client.pull({ model: "demo:latest", stream: true })) lines.push(line.status);
  assert.deepEqual(lines, ["success"]);
  await assert.rejects(client.pull({ model: "llama3.2" }), /not registered.*hf\.co\/ORG\/REPO/);
  await assert.rejects(client.delete({ model: modelName }), /is being served/);
  await assert.rejects(client.delete({ model: "nobody" }), /no model is named nobody/);
  await assert.rejects(client.copy({ source: "nobody", destination: "x" }), /no model is named nobody/);
  await assert.rejects(client.copy({ source: modelName, destination: "a b" }), /is not a model name/);
  for (const name of ["x", "a b"]) assert.equal((await ask(name)).status, 404);
});

const mario = {
  model: "mario",
  from: "demo",
  system: "You are Mario.",
  parameters: { temperature: 0, num_predict: 5, stop: ["\u0001"], repeat_penalty: 1.2, seed: 3 },
  messages: [
    { role: "user", content: "Who are you?" },
    { role: "assistant", content: "Mario!" },
  ],
};
const system = (content) => ({ role: "system", content });

test("a created model has a system prompt, messages and parameters where a request is silent", async (t) => {
  const lines = [];
  for await (const { status } of await client.create({ ...mario, stream: true })) lines.push(status);
  t.after(() => client.delete({ model: "mario" }));
  assert.match(lines.shift(), /^using existing layer sha256:[0-9a-f]{64}$/);
  const layers = ["system", "parameters", "messages"].map((name) => `creating ${name} layer`);
  assert.deepEqual(lines, [...layers, "writing manifest", "success"]);
  const whole = { stream: false, messages: user("Hello") };
  const plain = (messages) =>
    client.chat({ ...whole, model: modelName, messages, options: { ...mario.parameters, stop: [] } });
  const same = async (answer, messages) => {
    const expected = await plain(messages);
    assert.equal(answer.prompt_eval_count, expected.prompt_eval_count);
    assert.equal(answer.message.content, expected.message.content);
    assert.equal(answer.eval_count, 5);
  };
  const first = await client.chat({ ...whole, model: "mario" });
  await same(first, [system(mario.system), ...mario.messages, ...user("Hello")]);
  const own = [system("Be brief."), ...user("Hello")];
  await same(await client.chat({ ...whole, model: "mario:latest", messages: own }), [
    own[0],
    ...mario.messages,
    own[1],
  ]);
  const generated = await client.generate({ model: "mario", prompt: "Hello", system: "" });
  assert.equal(generated.response, first.message.content);
  const told = await client.generate({ model: "mario", prompt: "Hello", system: "Be brief, and be kind to all." });
  assert.notEqual(told.prompt_eval_count, generated.prompt_eval_count);
  for (const num_predict of [9, -1]) {
    const long = await client.chat({ ...whole, model: "mario", options: { num_predict, stop: [] } });
    assert.ok(long.eval_count > 5, "a request's own value wins");
  }
  const raw = await client.generate({ model: "mario", prompt: "Once", raw: true });
  const alone = await client.generate({ model: modelName, prompt: "Once", raw: true, options: mario.parameters });
  assert.deepEqual([raw.response, raw.prompt_eval_count], [alone.response, alone.prompt_eval_count]);
});

test("the other protocols find a created model, too", async (t) => {
  await client.create(mario);
  t.after(() => client.delete({ model: "mario" }));
  const text = (await client.chat({ model: "mario", messages: user("Hello") })).message.content;
  const ask = async (path, body) => {
    const r = await post(server, path, { model: "mario", ...body });
    assert.equal(r.status, 200, await r.clone().text());
    return r.json();
  };
  const openai = await ask("/v1/chat/completions", { messages: user("Hello") });
  assert.deepEqual([openai.choices[0].message.content, openai.usage.completion_tokens], [text, 5]);
  const anthropic = await ask("/v1/messages", { max_tokens: 5, messages: user("Hello") });
  assert.equal(anthropic.content[0].text, text);
  const counted = await ask("/v1/messages/count_tokens", { messages: user("Hello") });
  assert.equal(counted.input_tokens, openai.usage.prompt_tokens);
  const response = await ask("/v1/responses", { input: "Hello" });
  assert.equal(response.usage.output_tokens, 5);
  assert.equal(response.output.at(-1).content[0].text, text);
  // Earlier turns of a conversation come after the preset, which is there once.
  const next = await ask("/v1/responses", { input: "Go on.", previous_response_id: response.id });
  const turns = [...user("Hello"), { role: "assistant", content: text }, ...user("Go on.")];
  const longer = await ask("/v1/chat/completions", { messages: turns });
  assert.equal(next.usage.input_tokens, longer.usage.prompt_tokens);
  assert.equal((await ask("/tokenize", { messages: user("Hello") })).count, openai.usage.prompt_tokens);
  assert.match(
    (await ask("/apply-template", { messages: user("Hello") })).prompt,
    /You are Mario\.[^]*Mario![^]*Hello/,
  );
  assert.equal((await ask("/v1/completions", { prompt: "Once" })).usage.completion_tokens, 5);
  assert.equal((await ask("/completion", { prompt: "Once" })).tokens_predicted, 5);
  assert.ok((await ask("/v1/embeddings", { input: "x" })).data[0].embedding.length > 0);
  const props = await (await fetch(`${server.url}/props?model=mario`)).json();
  assert.equal(props.default_generation_settings.params.temperature, 0);
});

test("a created model is shown, changed, copied, and deleted without its model", async (t) => {
  await client.create(mario);
  t.after(async () => {
    for (const model of ["luigi", "luigi2"]) await client.delete({ model }).catch(() => {});
  });
  const shown = await client.show({ model: "mario" });
  assert.deepEqual([shown.system, shown.messages], [mario.system, mario.messages]);
  assert.match(shown.parameters, /^temperature +0\nnum_predict +5\nstop +"\\u0001"\nrepeat_penalty +1\.2\nseed +3/);
  assert.ok(!shown.template.includes(".Suffix"), "it has no fill-in-the-middle tokens");
  await client.create({ model: "luigi", from: "mario", system: "You are Luigi.", parameters: { num_predict: 3 } });
  await client.copy({ source: "luigi", destination: "luigi2:latest" });
  await client.delete({ model: "mario" });
  assert.equal((await ask("mario")).status, 404);
  for (const model of ["luigi", "luigi2"]) {
    const { system, parameters, messages } = await client.show({ model });
    assert.deepEqual([system, messages], ["You are Luigi.", mario.messages]);
    assert.match(parameters, /num_predict +3\n/);
    assert.match(parameters, /repeat_penalty +1\.2\n/);
  }
  await client.create({ model: "luigi", from: modelName });
  const reset = await client.show({ model: "luigi" });
  assert.deepEqual([reset.system, reset.messages], [undefined, undefined]);
  assert.equal((await client.show({ model: modelName })).system, undefined);
});

test("presets that no request could ask for are refused", async () => {
  const wrong = (body, pattern) => assert.rejects(client.create({ model: "x", from: modelName, ...body }), pattern);
  await wrong({ template: "{{ .Prompt }}" }, /template/);
  await wrong({ parameters: { top_k: "a" } }, /parameters\.top_k/);
  await wrong({ parameters: { temperature: 9 } }, /parameters\.temperature/);
  await wrong({ parameters: { mirostat: 1 } }, /parameters\.mirostat/);
  await wrong({ parameters: { stop: [1] } }, /parameters\.stop\[0\]/);
  await wrong({ parameters: { stop: Array(17).fill("x") } }, /at most 16/);
  await wrong({ messages: [{ role: "tool", content: "x" }] }, /messages\[0\]\.role/);
  await wrong({ messages: [{ role: "user", content: "x", images: ["aa"] }] }, /messages\[0\]\.images/);
  await wrong({ messages: Array(257).fill({ role: "user", content: "x" }) }, /messages/);
  await wrong({ system: "x".repeat(256 * 1024 + 1) }, /system/);
  const long = [{ role: "user", content: "x".repeat(1 << 20) }];
  await wrong({ messages: long }, /more than 1048576: shorten/);
  await wrong({ model: modelName, system: "x" }, /the model itself: give its preset another name/);
  assert.equal((await ask("x")).status, 404);
  const named = await post(server, "/api/create", {
    model: "x",
    from: modelName,
    parameters: { num_ctx: 4096, num_gpu: 1, surprise: 1 },
    messages: [{ role: "user", content: "x", surprise: 1 }],
    stream: false,
  });
  assert.deepEqual(await named.json(), { status: "success" });
  assert.deepEqual(named.headers.get("x-inferd-ignored-fields").split(", ").sort(), [
    "messages[0].surprise",
    "parameters.num_ctx",
    "parameters.num_gpu",
    "parameters.surprise",
  ]);
  await client.delete({ model: "x" });
});

test("registered models are listed, and say that they are not loaded", async () => {
  const registry = join(server.folder, "registry.db"),
    file = join(server.folder, "second.gguf");
  copyFileSync(modelFile, file);
  execFileSync(binary, ["models", "add", file, "--name", "second", "--alias", "zweites", "--registry", registry]);
  const { models } = await client.list();
  assert.deepEqual(
    models.map((m) => m.name),
    [modelName, "demo", "second", "zweites"],
  );
  const { modified_at, name, model, ...second } = models[2];
  assert.ok(Date.parse(modified_at) > 0 && name === model);
  assert.deepEqual([second.digest, second.details], [models[0].digest, models[0].details]);
  assert.equal((await client.ps()).models.length, 1);
  const refused = await ask("second");
  assert.equal(refused.status, 404);
  assert.match((await refused.json()).error, /'second' is not loaded: an administrator can load it/);
  assert.match((await (await ask("zweites")).json()).error, /'second' is not loaded/);
  await assert.rejects(client.copy({ source: modelName, destination: "second" }), /already taken/);
  await client.delete({ model: "second" });
  assert.equal((await client.list()).models.length, 2);
  assert.ok(existsSync(file), "the file stays");
});

test("a model served from a file is listed once, also if its name is registered", async () => {
  const name = basename(modelFile, ".gguf");
  const own = await startServer(["--model", modelFile], [{ file: modelFile, name, alias: "demo" }]);
  try {
    const { models } = await new Ollama({ host: own.url }).list();
    assert.deepEqual(
      models.map((m) => [m.name, m.digest === ""]),
      [
        [name, true],
        ["demo", false],
      ],
    );
  } finally {
    await own.stop();
  }
});

test("administration needs an administrator's key, or no keys and a program of this machine", async () => {
  const copy = (at, headers) => post(at, "/api/copy", { source: modelName, destination: "copied" }, { headers });
  const proxied = await copy(server, { "X-Forwarded-For": "192.0.2.1" });
  assert.equal(proxied.status, 403);
  assert.match((await proxied.json()).error, /admin-key-file/);
  const keys = join(server.folder, "keys"),
    admins = join(server.folder, "admins");
  writeFileSync(keys, "user-key\n", { mode: 0o600 });
  writeFileSync(admins, "admin-key\n", { mode: 0o600 });
  const bearer = (key) => ({ Authorization: `Bearer ${key}` });
  const check = async (flags, rows) => {
    const other = await startServer(flags);
    try {
      for (const [key, status] of rows) assert.equal((await copy(other, key && bearer(key))).status, status, key);
      const [last] = rows.at(-1);
      assert.equal((await fetch(`${other.url}/api/tags`, { headers: bearer(last) })).status, 200);
    } finally {
      await other.stop();
    }
  };
  await check(
    ["--api-key-file", keys, "--admin-key-file", admins],
    [
      [null, 401],
      ["wrong", 401],
      ["user-key", 403],
      ["admin-key", 200],
    ],
  );
  await check(["--api-key-file", keys], [["user-key", 403]]);
  await check(["--allowed-origins", "*", "--admin-key-file", admins], [["admin-key", 200]]);
  const open = await startServer(["--allowed-origins", "*"]);
  try {
    assert.equal((await copy(open, { Origin: "https://elsewhere.example" })).status, 403);
    assert.equal((await copy(open, {})).status, 200);
  } finally {
    await open.stop();
  }
});
