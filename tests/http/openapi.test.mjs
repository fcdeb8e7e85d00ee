// Bodies and chunks of OpenAI's other endpoints against its specification.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { validate } from "./openapi.mjs";
import { modelName, post, sse, startServer, user } from "./server.mjs";

const model = modelName;
let server;
before(async () => {
  server = await startServer();
});
after(() => server.stop());

const tools = [
  {
    type: "function",
    function: {
      name: "f",
      parameters: {
        type: "object",
        properties: { a: { enum: [1, 2] } },
        required: ["a"],
        additionalProperties: false,
      },
    },
  },
];
const chats = {
  plain: { temperature: 0 },
  cut: { max_tokens: 2, temperature: 0 },
  choices: { n: 3, max_tokens: 4, seed: 1 },
  logprobs: { logprobs: true, top_logprobs: 3, max_tokens: 4 },
  tools: { tools, tool_choice: "required", parallel_tool_calls: false, temperature: 0 },
  json: { response_format: { type: "json_schema", json_schema: { name: "x", schema: tools[0].function.parameters } } },
};
const completions = {
  plain: { prompt: "Once", max_tokens: 5 },
  several: { prompt: ["a", "b"], n: 2, max_tokens: 3, seed: 2 },
  logprobs: { prompt: "Once upon", max_tokens: 3, logprobs: 2 },
};

const answer = async (path, body, status = 200) => {
  const response = await post(server, path, { model, ...body });
  const text = await response.text();
  assert.equal(response.status, status, text);
  return JSON.parse(text);
};
async function chunks(path, body, schema, change = (chunk) => chunk) {
  const response = await post(server, path, { model, ...body, stream: true, stream_options: { include_usage: true } });
  assert.equal(response.status, 200);
  let n = 0;
  for await (const event of sse(response)) {
    if (event === "[DONE]" || event.comment !== undefined) continue;
    validate(schema, change(event));
    n++;
  }
  assert.ok(n > 2);
}

test("chat completions", async (t) => {
  for (const [name, body] of Object.entries(chats))
    await t.test(name, async () => {
      const whole = validate(
        "CreateChatCompletionResponse",
        await answer("/v1/chat/completions", { messages: user("Hello!"), ...body }),
      );
      if (name === "tools") assert.ok(whole.choices[0].message.tool_calls.length > 0);
      await chunks("/v1/chat/completions", { messages: user("Hello!"), ...body }, "CreateChatCompletionStreamResponse");
    });
});

test("completions", async (t) => {
  for (const [name, body] of Object.entries(completions))
    await t.test(name, async () => {
      validate("CreateCompletionResponse", await answer("/v1/completions", body));
      // The specification has no chunks of this endpoint: they are like its answers except for the end.
      await chunks("/v1/completions", body, "CreateCompletionResponse", ({ usage, choices, ...chunk }) => ({
        ...chunk,
        ...(usage && { usage }),
        choices: choices.map((c) => ({ ...c, finish_reason: c.finish_reason ?? "stop" })),
      }));
    });
});

test("embeddings", async () => {
  validate("CreateEmbeddingResponse", await answer("/v1/embeddings", { input: ["a", "b"] }));
});

test("models", async () => {
  const list = validate("ListModelsResponse", await (await fetch(server.url + "/v1/models")).json());
  for (const { id } of list.data) validate("Model", await (await fetch(`${server.url}/v1/models/${id}`)).json());
});

test("errors", async () => {
  validate("ErrorResponse", await answer("/v1/chat/completions", {}, 400));
  validate("ErrorResponse", await answer("/v1/chat/completions", { model: "nobody", messages: user("x") }, 404));
  validate("ErrorResponse", await (await fetch(server.url + "/v1/nothing")).json());
  validate("ErrorResponse", await (await fetch(server.url + "/v1/responses")).json());
});

test("the validator detects a violation", () => {
  assert.throws(() => validate("Model", { id: 5 }), /no Model/);
  assert.throws(() => validate("CreateChatCompletionResponse", { choices: [] }), /no CreateChatCompletionResponse/);
});
