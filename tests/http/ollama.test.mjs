// Ollama's official client against /api/*.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Ollama } from "ollama";
import { chat, modelName, post, startServer, user } from "./server.mjs";

let server, client;
before(async () => {
  server = await startServer();
  client = new Ollama({ host: server.url });
});
after(() => server.stop());

const options = { temperature: 0, num_predict: 40 };

test("says what is there", async () => {
  const { models } = await client.list();
  assert.deepEqual(
    models.map((m) => m.name),
    [modelName],
  );
  assert.equal(models[0].details.family, "llama");
  const { models: running } = await client.ps();
  assert.ok(running[0].context_length > 0);
  const shown = await client.show({ model: `${modelName}:latest` });
  assert.ok(shown.model_info["llama.context_length"] > 0);
  assert.ok(shown.capabilities.includes("completion"));
  const { version } = await client.version();
  assert.match(version, /^\d+\.\d+\.\d+\+inferd-\d/);
});

test("chats, at once and in lines, as over OpenAI's protocol", async () => {
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

test("tools and formats hold", async () => {
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

test("errors are Ollama's", async () => {
  const wrong = [
    [{ model: "nobody", messages: user("x") }, 404, /'nobody' not found/],
    [{ model: modelName, messages: user("x"), options: { temperature: 9 } }, 400, /options\.temperature/],
    [{ model: modelName, messages: user("x"), options: { mirostat: 1 } }, 400, /options\.mirostat/],
    [{ model: modelName, messages: user("x"), options: { num_ctx: 1 << 30 } }, 400, /options\.num_ctx/],
    [{ model: modelName, messages: user("x"), options: { num_gpu: 1 } }, 400, /options\.num_gpu/],
    [{ model: modelName, messages: [{ role: "user", content: "x", images: ["aa"] }] }, 400, /messages\[0\]\.images/],
    [{ model: modelName, messages: user("x"), options: { stop: [""] } }, 400, /options\.stop\[0\]/],
    [{ model: modelName, messages: [[1]] }, 400, /messages\[0\]/],
    [{ model: modelName, messages: [{ role: "assistant", tool_calls: [[1]] }] }, 400, /messages\[0\]\.tool_calls\[0\]/],
    [{ model: modelName, messages: user("x"), format: "yaml" }, 400, /format/],
    [{ model: modelName, messages: user("x"), think: true }, 400, /think/],
    [{ model: modelName, messages: user("x"), surprise: 1 }, 400, /surprise/],
  ];
  for (const [body, status, message] of wrong) {
    const r = await post(server, "/api/chat", body);
    assert.equal(r.status, status, JSON.stringify(body));
    assert.match((await r.json()).error, message);
  }
});
