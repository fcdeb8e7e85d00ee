// Every field of every endpoint, as GET /v1/inferd/fields tells them: right, wrong, out of bounds,
// null, missing, refused, advisory, unknown. An endpoint that comes later needs a base body here, no more.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import Ajv2020 from "ajv/dist/2020.js";
import { fieldsDoc } from "../../scripts/fields-doc.mjs";
import { addKeys } from "./gguf.mjs";
import { chat, modelFile, modelName, post, startServer, user } from "./server.mjs";

const model = modelName;

// A body that is answered with 200, with one object in each array whose objects have fields.
const bases = {
  "POST /v1/chat/completions": { model, messages: user("x"), max_tokens: 1 },
  "POST /v1/chat/completions/render": { model, messages: user("x") },
  "POST /v1/completions": { model, prompt: "x", max_tokens: 1 },
  "POST /v1/completions/render": { model, prompt: "x" },
  "POST /v1/responses": { model, input: "x", max_output_tokens: 1 },
  "POST /v1/responses/input_tokens": { model, input: "x" },
  "POST /v1/embeddings": { model, input: "x" },
  "POST /v1/rerank": { model, query: "x", documents: ["x", { text: "y" }] },
  "POST /v2/rerank": { model, query: "x", documents: [{ text: "x" }] },
  "POST /v1/score": { model, text_1: "x", text_2: ["x", "y"] },
  "POST /completion": { model, prompt: "x", n_predict: 1 },
  "POST /completions": { model, prompt: "x", n_predict: 1 },
  "POST /infill": { model, input_prefix: "x", input_suffix: "y", n_predict: 1, input_extra: [{ text: "z" }] },
  "POST /embedding": { model, input: "x" },
  "POST /embeddings": { model, input: "x" },
  "POST /apply-template": { model, messages: user("x") },
  "POST /tokenize": { model, prompt: "x" },
  "POST /detokenize": { model, tokens: [300] },
  "POST /v1/inferd/render": { model, messages: user("x") },
  "POST /v1/inferd/models/load": { model },
  "POST /v1/messages": { model, messages: user("x"), max_tokens: 1 },
  "POST /v1/messages/count_tokens": { model, messages: user("x") },
  "POST /api/chat": { model, messages: user("x"), stream: false, options: { num_predict: 1 } },
  "POST /api/generate": { model, prompt: "x", stream: false, options: { num_predict: 1 } },
  "POST /api/show": { model },
  "POST /api/copy": { source: model, destination: "copied" },
  "POST /api/pull": { model },
  "POST /api/create": { model: "copied", from: model },
  "POST /api/embed": { model, input: "x" },
  "POST /api/embeddings": { model, prompt: "x" },
  "POST /v1/chat/completions/{id}": { metadata: {} },
  "POST /v1/conversations": {},
  "POST /v1/conversations/{id}": { metadata: {} },
  "POST /v1/conversations/{id}/items": { items: [{ role: "user", content: "x" }] },
};
// Bodies that are answered with 200 once.
const once = {
  "DELETE /api/delete": { model },
  "POST /v1/inferd/models/unload": { model },
  "POST /v1/inferd/models/{id}/load": {},
  "POST /v1/inferd/models/{id}/unload": {},
  "POST /v1/inferd/models/pull": { model: "hf:org/tiny" },
  "POST /v1/inferd/models/cancel": { task: 1 },
};

// Where a right value does not follow from the row: `value`, and what else the body needs with it.
// `without`: members that must not be there. `depends`: the field or its parent
// may be refused all the same, by the model that is served.
const call = { id: "c1", type: "function", function: { name: "f", arguments: "{}" } };
const spoken = { messages: [{ role: "assistant", content: "x" }, ...user("y")] };
const called = {
  messages: [
    { role: "assistant", content: "x", tool_calls: [call] },
    { role: "tool", tool_call_id: "c1", content: "1" },
  ],
};
const common = { model: { value: model } };
const responses = {
  input: { value: [{ role: "user", content: [{ type: "input_text", text: "x" }] }] },
  previous_response_id: { value: "resp_x", depends: "previous_response_id" },
  tools: { value: [{ type: "function", name: "f" }] },
  "tools.parameters": { value: { type: "object" } },
  tool_choice: { value: "auto" },
  text: { value: { format: { type: "json_schema", name: "x", schema: { type: "object" } } } },
  "text.format": { value: { type: "text" } },
  "text.format.type": { value: "json_schema" },
  reasoning: { value: { effort: null } },
  "reasoning.effort": { value: "low", depends: "reasoning.effort" },
};
const right = {
  "POST /v1/chat/completions": {
    tool_choice: { value: "auto" },
    response_format: { value: { type: "json_schema", json_schema: { name: "x" } } },
    "response_format.type": { value: "json_schema" },
    "response_format.json_schema": { value: { name: "x" } },
    "response_format.schema": { value: {}, with: { response_format: { type: "json_object" } } },
    grammar: { value: 'root ::= "x"' },
    "structured_outputs.grammar": { value: 'root ::= "x"' },
    guided_grammar: { value: 'root ::= "x"' },
    top_logprobs: { value: 2, with: { logprobs: true } },
    stream_options: { value: { include_usage: true }, with: { stream: true } },
    max_completion_tokens: { value: 1, without: ["max_tokens"] },
    messages: { value: user("y") },
    "messages.content": { value: "x", with: called },
    "messages.refusal": { with: spoken, depends: "messages[0].refusal" },
    "messages.reasoning_content": { with: spoken },
    "messages.reasoning": { with: spoken },
    "messages.tool_calls": { value: [call], with: spoken },
    "messages.tool_calls.type": { value: "function" },
    "messages.tool_calls.function": { value: call.function },
    "messages.tool_calls.function.arguments": { value: "{}" },
    continue_final_message: { value: true, with: { messages: [...user("x"), { role: "assistant", content: "y" }] } },
    reasoning_effort: { value: "low", depends: "reasoning_effort" },
  },
  "POST /v1/responses": {
    ...responses,
    max_output_tokens: { value: 1 },
    top_logprobs: { value: 2, with: { include: ["message.output_text.logprobs"] } },
    stream_options: { value: { include_obfuscation: true }, with: { stream: true } },
    metadata: { value: { a: "b" } },
    chat_template_kwargs: { value: {} },
  },
  "POST /v1/responses/input_tokens": responses,
  "POST /v1/completions": {
    stream_options: { value: { include_usage: true }, with: { stream: true } },
    prompt: { value: [[300, 301], [302]] },
    suffix: { value: "y", depends: "suffix" },
    best_of: { value: 3 },
  },
  "POST /v1/embeddings": {
    input: { value: [[300, 301], [302]] },
    dimensions: { value: 5 },
  },
  "POST /v1/score": {
    queries: { value: ["x", "y"], without: ["text_1"] },
    documents: { value: ["x"], without: ["text_2"] },
  },
  "POST /tokenize": {
    content: { without: ["prompt"] },
    messages: { value: user("x"), without: ["prompt"] },
    add_generation_prompt: { with: { messages: user("x") }, without: ["prompt"] },
    continue_final_message: {
      value: true,
      with: { messages: [...user("x"), { role: "assistant", content: "y" }] },
      without: ["prompt"],
    },
    chat_template_kwargs: { value: { a: 1 }, with: { messages: user("x") }, without: ["prompt"] },
    tools: {
      value: [{ type: "function", function: { name: "f" } }],
      with: { messages: user("x") },
      without: ["prompt"],
    },
  },
  "POST /detokenize": { tokens: { value: [300] } },
  "POST /v1/conversations": { items: { value: [] }, metadata: { value: { a: "b" } } },
  "POST /v1/chat/completions/{id}": { metadata: { value: { a: "b" } } },
  "POST /v1/conversations/{id}": { metadata: { value: { a: "b" } } },
  "POST /v1/conversations/{id}/items": { items: { value: [{ role: "user", content: "x" }] } },
  "POST /v1/messages": {
    thinking: { depends: "thinking" },
    "thinking.type": { depends: "thinking" },
    "thinking.budget_tokens": { depends: "thinking" },
    "thinking.display": { depends: "thinking" },
    "output_config.effort": { depends: "output_config.effort" },
    "tool_choice.name": {
      value: "f",
      with: { tools: [{ name: "f", input_schema: { type: "object" } }], tool_choice: { type: "tool" } },
    },
  },
  "POST /api/chat": { format: { value: "json", depends: "format" }, think: { depends: "think" } },
  "POST /v1/inferd/models/load": { model: { value: model } },
  "POST /api/copy": { source: { value: model } },
  "POST /api/pull": { model: { value: model }, name: { value: model, without: ["model"] } },
  "POST /api/create": { from: { value: model }, model: { value: "copied" } },
  "POST /api/embed": { input: { value: ["x", "y"] }, dimensions: { value: 5 } },
};
const llama = {
  grammar: { value: 'root ::= "x"' },
  json_schema: { value: { type: "boolean" } },
  logit_bias: { value: [[300, 1]] },
  samplers: { value: ["top_k"] },
  response_fields: { value: ["content"] },
};
for (const path of ["/completion", "/completions", "/infill"]) right[`POST ${path}`] = llama;
right["POST /embedding"] = right["POST /embeddings"] = {
  content: { value: ["x"] },
  input: { value: [300], with: { content: "x" } },
};
right["POST /apply-template"] = right["POST /v1/chat/completions"];
right["POST /v1/messages/count_tokens"] = right["POST /v1/messages"];
right["POST /api/generate"] = { ...right["POST /api/chat"], suffix: { value: "y", depends: "suffix" } };
right["POST /v1/inferd/render"] = right["POST /v1/chat/completions/render"] = right["POST /v1/chat/completions"];
right["POST /v1/completions/render"] = right["POST /v1/completions"];

// Properties of the requests in OpenAI's description, for where ../shared is not there.
const openai = {
  "/v1/chat/completions": [
    "CreateChatCompletionRequest",
    "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages metadata modalities model moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options",
  ],
  "/v1/completions": [
    "CreateCompletionRequest",
    "best_of echo frequency_penalty logit_bias logprobs max_tokens model n presence_penalty prompt seed stop stream stream_options suffix temperature top_p user",
  ],
  "/v1/embeddings": ["CreateEmbeddingRequest", "dimensions encoding_format input model user"],
  "/v1/responses": [
    "CreateResponse",
    "background context_management conversation include input instructions max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options temperature text tool_choice tools top_logprobs top_p truncation user",
  ],
};

let server, strict, endpoints, folder;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), "inferd-fields-"));
  const file = join(folder, "fim.gguf");
  addKeys(modelFile, file, {
    "tokenizer.ggml.fim_pre_token_id": 1000,
    "tokenizer.ggml.fim_suf_token_id": 1001,
    "tokenizer.ggml.fim_mid_token_id": 1002,
    "tokenizer.chat_template.rerank": "<Instruct>: x\nDoes {document} answer {query}?",
    "llama.inferd.score_tokens": [400, 401],
  });
  const models = [{ file, name: modelName, alias: "demo" }];
  // A short context: an answer without a limit ends there.
  const flags = ["--context-length", "512"];
  [server, strict] = await Promise.all([
    startServer(flags, models),
    startServer([...flags, "--unknown-fields", "refuse"], models),
  ]);
  for (const to of [server, strict])
    keptChats.set(to, (await (await chat(to, { messages: user("x"), max_tokens: 1, store: true })).json()).id);
  for (const to of [server, strict]) kept.set(to, (await (await post(to, "/v1/conversations", {})).json()).id);
  for (const path of ["", "/input_tokens"])
    right[`POST /v1/responses${path}`].conversation = { value: kept.get(server) };
  const { object, data } = await (await fetch(server.url + "/v1/inferd/fields")).json();
  assert.equal(object, "list");
  endpoints = data;
});
after(async () => {
  await Promise.all([server.stop(), strict.stop()]);
  rmSync(folder, { recursive: true });
});

const clone = (v) => structuredClone(v);
// Numbers that JavaScript would round travel as text.
class Literal {
  constructor(text) {
    this.text = text;
  }
  toJSON() {
    return `@@${this.text}@@`;
  }
}
// The {id} of endpoints that have one: of a conversation and a chat of each server.
const kept = new Map(),
  keptChats = new Map();
const send = async (endpoint, body, to = server) => {
  const json = JSON.stringify(body).replace(/"@@([^@]*)@@"/g, "$1");
  const response = await post(
    to,
    endpoint.split(" ")[1].replace("{id}", (endpoint.includes("chat") ? keptChats : kept).get(to)),
    json,
  );
  const text = await response.text();
  const ignored = (response.headers.get("x-inferd-ignored-fields") ?? "").split(", ");
  return { status: response.status, text, ignored, error: response.status === 400 ? JSON.parse(text).error : null };
};

// Does the error name the field? Ollama's is a text.
const blames = (error, name) =>
  typeof error === "string"
    ? error.includes(`'${name}`) || error.endsWith(" " + name)
    : ["invalid_request_error", "not_supported_error"].includes(error.type) &&
      (error.param === name || !!error.param?.startsWith(name + "["));

// The object in body that has the fields below `path` (names), and that object's name in messages.
function place(body, path) {
  let at = body,
    name = "";
  for (const step of path) {
    at = at[step];
    name += step;
    if (Array.isArray(at)) {
      at = at[0];
      name += "[0]";
    }
    name += ".";
  }
  return [at, name];
}

const kinds = { boolean: [true], integer: [1], number: [1, 0.5], string: ["x"], array: [[]], object: [{}] };
const types = (row) => [row.type].flat();
function wrongType(row) {
  if (row.type === "any") return undefined;
  const others = Object.keys(kinds).filter(
    (k) => !types(row).includes(k) && !(k === "integer" && types(row).includes("number")),
  );
  return kinds[others[0]][0];
}
// An object's required members, right.
const rightObject = (rows) => Object.fromEntries(rows.filter((r) => r.required).map((r) => [r.name, rightValue(r)]));
function rightValue(row) {
  if (row.values) return row.values[0];
  if (row.fields && types(row)[0] === "object") return rightObject(row.fields);
  if (row.fields && types(row)[0] === "array") return [rightObject(row.fields)];
  const value = row.default ?? kinds[types(row)[0]]?.[0];
  if (typeof value !== "number") return value;
  return Math.min(Math.max(value, row.minimum ?? value), row.maximum ?? value);
}
function outOfBounds(row) {
  if (row.values) return ["no-such-word"];
  const [type] = types(row),
    list = [];
  if (type === "integer" || type === "number") {
    if (row.minimum !== null)
      list.push(row.minimum <= -(2 ** 53) ? new Literal("-9223372036854775809") : row.minimum - 1);
    if (row.maximum !== null) list.push(row.maximum >= 2 ** 53 ? new Literal("9223372036854775808") : row.maximum + 1);
  } else if (type === "string") {
    if (row.minimum) list.push("x".repeat(row.minimum - 1));
    if (row.maximum && row.maximum < 10000) list.push("x".repeat(row.maximum + 1));
  } else if (type === "array") {
    if (row.minimum) list.push([]);
    if (row.maximum && row.maximum < 5000) list.push(Array(row.maximum + 1).fill(rightItem(row)));
  }
  return list;
}
const rightItem = (row) => (row.fields ? rightObject(row.fields) : "x");

async function expectRefusal(endpoint, body, name, what, to = server) {
  const { status, text, error } = await send(endpoint, body, to);
  assert.equal(status, 400, `${endpoint}: ${name} ${what}: ${text}`);
  assert.ok(blames(error, name), `${endpoint}: ${name} ${what}: ${text}`);
}
async function expectAnswer(endpoint, body, name, what, depends) {
  const answer = await send(endpoint, body);
  if (depends && answer.status === 400 && blames(answer.error, depends)) return;
  assert.equal(answer.status, 200, `${endpoint}: ${name} ${what}: ${answer.text}`);
}

// Accepted and named; with unknown-fields = refuse a 400, except where clients echo earlier answers.
async function expectIgnored(endpoint, body, path, name, what) {
  const { status, text, ignored } = await send(endpoint, body);
  assert.equal(status, 200, `${endpoint}: ${name} ${what}: ${text}`);
  assert.ok(ignored.includes(name), `${endpoint}: ${name} ${what} is not in ${ignored}`);
  if (["messages", "input", "items", "system"].includes(path[0])) {
    const same = await send(endpoint, body, strict);
    assert.equal(same.status, 200, `${endpoint}: ${name} ${what}, refuse: ${same.text}`);
    assert.ok(same.ignored.includes(name), `${endpoint}: ${name} ${what}, refuse, is not in ${same.ignored}`);
  } else await expectRefusal(endpoint, body, name, what, strict);
}

// One field in all ways. at(body): the object that it is a member of.
async function checkField(endpoint, row, base, path, hint) {
  const [, prefix] = place(base, path),
    name = prefix + row.name;
  const withValue = (value, more = {}) => {
    const body = { ...clone(base), ...clone(more) },
      [object] = place(body, path);
    if (value === undefined) delete object[row.name];
    else object[row.name] = value;
    return body;
  };
  const full = (value) => {
    const body = withValue(value, hint?.with);
    for (const other of hint?.without ?? []) delete body[other];
    return body;
  };
  if (row.class === "honoured") {
    const value = hint && "value" in hint ? hint.value : rightValue(row);
    if (value !== undefined && !(types(row)[0] === "array" && row.minimum && !hint))
      await expectAnswer(endpoint, full(value), name, "right", hint?.depends);
    if (wrongType(row) !== undefined) await expectRefusal(endpoint, full(wrongType(row)), name, "of a wrong type");
    if (row.fields && types(row).includes("array"))
      for (const item of [1, [1], null])
        await expectRefusal(endpoint, full([item]), name, `with the item ${JSON.stringify(item)}, no object`);
    for (const bad of outOfBounds(row))
      await expectRefusal(endpoint, full(bad), name, `out of bounds (${JSON.stringify(bad).slice(0, 40)})`);
  } else {
    assert.ok(row.reason, `${name}: ${row.class} without a reason`);
    const some = [{ inferd: "test" }, ...(row.class === "advisory" ? ["\u0000", [[]], 7.5] : [])];
    for (const value of some)
      if (row.class === "refused") await expectRefusal(endpoint, withValue(value), name, "refused");
      else await expectIgnored(endpoint, withValue(value), path, name, JSON.stringify(value));
    for (const word of row.values ?? []) {
      const answer = await send(endpoint, withValue(word), strict);
      if (hint?.depends && answer.status === 400 && blames(answer.error, hint.depends)) continue;
      assert.equal(answer.status, 200, `${endpoint}: ${name} ${word}: ${answer.text}`);
    }
  }
  if (row.nullable && !row.required) await expectAnswer(endpoint, full(null), name, "null", hint?.depends);
  else if (!row.nullable) await expectRefusal(endpoint, full(null), name, "null");
  if (row.required) await expectRefusal(endpoint, withValue(undefined), name, "missing");
}

// wrong: what went wrong, so that one run tells all of it.
async function checkTable(endpoint, rows, base, path, wrong) {
  const unknown = clone(base),
    [object, prefix] = place(unknown, path);
  object.no_such_field = 1;
  await expectIgnored(endpoint, unknown, path, prefix + "no_such_field", "unknown").catch((e) => wrong.push(e.message));
  assert.equal(new Set(rows.map((r) => r.name)).size, rows.length, `${endpoint} ${prefix}: a name twice`);
  let n = 0;
  for (const row of rows) {
    const hint = { ...common, ...right[endpoint] }[[...path, row.name].join(".")];
    await checkField(endpoint, row, base, path, hint).catch((e) => wrong.push(e.message));
    n++;
    if (!row.fields) continue;
    // Below it: a base that has such an object.
    const below = { ...clone(base), ...hint?.with };
    for (const other of hint?.without ?? []) delete below[other];
    const [parent] = place(below, path);
    const value = hint?.value ?? (row.class === "honoured" ? rightValue(row) : undefined);
    if (parent[row.name] === undefined) parent[row.name] = clone(value);
    const inner = [parent[row.name]].flat()[0];
    if (inner !== null && typeof inner === "object")
      n += await checkTable(endpoint, row.fields, below, [...path, row.name], wrong);
  }
  return n;
}

test("every field of every endpoint: valid, null, wrong and missing values", async (t) => {
  assert.ok(endpoints.length >= 2);
  for (const { endpoint, fields } of endpoints)
    await t.test(endpoint, async (tt) => {
      if (!bases[endpoint]) return tt.skip("no base body in this test");
      await expectAnswer(endpoint, bases[endpoint], "the base", "body");
      const wrong = [],
        n = await checkTable(endpoint, fields, bases[endpoint], [], wrong);
      tt.diagnostic(`${n} fields`);
      assert.equal(wrong.length, 0, "\n" + wrong.join("\n"));
    });
});

test("the tables contain all of OpenAI's fields", async (t) => {
  const file = "../shared/data/openai/openapi-inference-subset.json";
  const spec = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")).components.schemas : null;
  const properties = (s) =>
    s.$ref
      ? properties(spec[s.$ref.split("/").at(-1)])
      : [...(s.allOf ?? []).flatMap(properties), ...Object.keys(s.properties ?? {})];
  for (const [path, [schema, names]] of Object.entries(openai))
    await t.test(path, (tt) => {
      const known = spec ? [...new Set(properties(spec[schema]))].sort() : names.split(" ");
      assert.deepEqual(known, names.split(" "), "the names in this test are those of the description");
      const ours = endpoints.find((e) => e.endpoint === `POST ${path}`);
      if (!ours) return tt.skip("no such endpoint");
      for (const name of known)
        assert.ok(
          ours.fields.some((f) => f.name === name),
          `${path}: ${name} is not in the table`,
        );
    });
});

test("every row has a description", () => {
  const walk = (rows, where) => {
    for (const row of rows) {
      assert.deepEqual(Object.keys(row), [
        "name",
        "type",
        "required",
        "nullable",
        "default",
        "minimum",
        "maximum",
        "values",
        "class",
        "reason",
        "help",
        "fields",
      ]);
      for (const type of types(row)) assert.ok(type === "any" || kinds[type], `${where}${row.name}: ${type}`);
      if (row.default !== null && row.type !== "any")
        assert.ok(
          types(row).some((k) => typeof row.default === (k === "integer" ? "number" : k)),
          `${where}${row.name}`,
        );
      if (row.fields) walk(row.fields, `${where}${row.name}.`);
    }
  };
  for (const { endpoint, fields } of endpoints) {
    assert.match(endpoint, /^(POST|GET|DELETE) \//);
    walk(fields, endpoint + " ");
  }
});

test("api/FIELDS.md equals the tables", () => {
  const now = fieldsDoc(endpoints),
    kept = readFileSync("api/FIELDS.md", "utf8");
  if (process.env.WRITE_FIELDS) writeFileSync("api/FIELDS.md", now);
  else assert.ok(now === kept, "run `WRITE_FIELDS=1 node --test tests/http/fields.test.mjs`");
});

const ignoredOf = (response) => response.headers.get("x-inferd-ignored-fields");

test("ignored fields are named in the header, also of streams and errors", async () => {
  const stream = await chat(server, {
    messages: user("x"),
    max_tokens: 1,
    stream: true,
    stream_options: { include_usage: true, later: 1 },
    tools: [],
    new_field: { a: 1 },
    user: "me",
    "bad\r\nname": 2,
  });
  assert.equal(stream.status, 200);
  assert.equal(ignoredOf(stream), "stream_options.later, new_field, user, bad??name");
  assert.match(await stream.text(), /data: \[DONE\]/);

  const deep = await chat(server, {
    messages: [{ role: "user", content: [{ type: "text", text: "x", cache: 1 }], mood: 2 }, ...user("y")].map((m) => ({
      ...m,
      again: 1,
    })),
    max_tokens: 1,
  });
  assert.equal(deep.status, 200, await deep.text());
  assert.equal(ignoredOf(deep), "messages[0].content[0].cache, messages[0].mood, messages[0].again");

  const wrong = await chat(server, { messages: user("x"), max_tokens: "1", new_field: 1 });
  assert.equal(wrong.status, 400, "a known field is checked all the same");
  assert.equal((await wrong.json()).error.param, "max_tokens");
  assert.equal(ignoredOf(wrong), "new_field");
  const long = await chat(server, { messages: user("x ".repeat(20000)), new_field: 1 });
  assert.equal(long.status, 400, await long.text());
  assert.equal(ignoredOf(long), "new_field", "an error of the engine");

  const many = await chat(server, {
    messages: user("x"),
    max_tokens: 1,
    ...Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`field_${i}`, i])),
  });
  assert.equal(many.status, 200);
  assert.match(ignoredOf(many), /^(field_\d+, ){10,40}\.\.\.$/, "the header is bounded, and says so");
  const none = await chat(server, { messages: user("x"), max_tokens: 1, store: false, metadata: {}, user: null });
  assert.equal(ignoredOf(none), null);
});

test("ignored fields are counted by route and field", async () => {
  const count = async (route, field) => {
    const text = await (await fetch(server.url + "/metrics")).text();
    const label = `inferd_ignored_fields_total{route="${route}",method="POST",field="${field}"} `;
    const line = text.split("\n").find((l) => l.startsWith(label));
    return line ? Number(line.slice(label.length)) : 0;
  };
  const route = "/v1/chat/completions";
  const names = ["user", "messages.annotations", "tools", "unknown"];
  const before = await Promise.all(names.map((n) => count(route, n)));
  const other = await count("/api/chat", "keep_alive");
  const note = [{ url: "x" }];
  const body = {
    user: "me",
    messages: [
      { role: "assistant", content: "x", annotations: note, a: 1 },
      { role: "assistant", content: "y", annotations: note, b: 2 },
      ...user("z"),
    ],
    tools: [{ type: "web_search_preview", user_location: {} }],
    max_tokens: 1,
    c: 3,
  };
  const response = await chat(server, body);
  assert.equal(response.status, 200, await response.text());
  assert.equal(ignoredOf(response), "user, messages[0].annotations, messages[0].a, messages[1].b, tools[0], c");
  const after = await Promise.all(names.map((n) => count(route, n)));
  assert.deepEqual(
    after.map((n, i) => n - before[i]),
    [1, 2, 1, 3],
  );
  const ollama = await post(server, "/api/chat", JSON.stringify({ model, messages: [], keep_alive: "5m" }));
  assert.equal(ollama.status, 200, await ollama.text());
  assert.equal((await count("/api/chat", "keep_alive")) - other, 1);
});

test("a hosted tool is left out, unless tool_choice requires it", async () => {
  const hosted = { type: "mcp", server_label: "x", server_url: "https://x.invalid" };
  const own = { type: "function", function: { name: "f" } };
  const left = await chat(server, { messages: user("x"), max_tokens: 1, tools: [hosted, own, { type: "web_search" }] });
  assert.equal(left.status, 200, await left.text());
  assert.equal(ignoredOf(left), "tools[0], tools[2]");
  for (const tool_choice of ["required", { type: "mcp" }, { type: "function", function: { name: "x" } }]) {
    const demanded = await chat(server, { messages: user("x"), max_tokens: 1, tools: [hosted], tool_choice });
    const { error } = await demanded.json();
    assert.equal(demanded.status, 400, JSON.stringify(error));
    assert.match(error.param, /^tool_choice/);
  }
  const refused = await chat(strict, { messages: user("x"), max_tokens: 1, tools: [own, hosted] });
  assert.equal(refused.status, 400);
  assert.equal((await refused.json()).error.param, "tools[1]");
});

// The document is made from the same rows: each right body fits it, a wrong type does not.
test("openapi.json describes every endpoint and its body", async () => {
  const [document, fields] = await Promise.all(
    ["/openapi.json", "/v1/inferd/fields"].map(async (path) => (await fetch(server.url + path)).json()),
  );
  assert.match(document.openapi, /^3\.1\./);
  const ajv = new Ajv2020({ strict: false, validateSchema: true });
  for (const { endpoint, fields: rows } of fields.data) {
    const [method, path] = endpoint.split(" "),
      base = bases[endpoint] ?? once[endpoint];
    const operation = document.paths[path][method.toLowerCase()];
    const fits = ajv.compile(operation.requestBody.content["application/json"].schema);
    assert.ok(fits(base), `${endpoint}: ${ajv.errorsText(fits.errors)}`);
    for (const row of rows) {
      const wrong = row.class === "honoured" ? wrongType(row) : undefined;
      if (wrong !== undefined) assert.ok(!fits({ ...base, [row.name]: wrong }), `${endpoint}: ${row.name}`);
      assert.ok(row.class === "honoured" || fits({ ...base, [row.name]: {} }), `${endpoint}: ${row.name}`);
    }
  }
  assert.ok(document.paths["/v1/responses/{id}"].get && document.paths["/v1/responses/{id}"].delete);
  assert.equal(document.paths["/v1/responses/{id}"].get.parameters[0].name, "id");
  const named = (list, place) => list.filter((p) => p.in === place).map((p) => p.name);
  for (const [path, methods] of Object.entries(document.paths))
    for (const [method, operation] of Object.entries(methods)) {
      const inPath = [...path.matchAll(/\{(\w+)\}/g)].map((m) => m[1]);
      assert.deepEqual(named(operation.parameters, "path"), inPath, `${method} ${path}`);
      const schema = operation.responses[200].content?.["application/json"].schema.$ref;
      if (schema) assert.ok(document.components.schemas[schema.split("/").at(-1)], schema);
    }
  assert.ok(document.paths["/v1/models/{model}"].get && !document.paths["/v1/models/"]);
  const listed = document.paths["/v1/chat/completions"].get;
  assert.deepEqual(named(listed.parameters, "query"), ["limit", "after", "order", "model", "metadata"]);
  // What is answered is what the document says.
  const { $ref } = document.paths["/v1/models/{model}"].get.responses[200].content["application/json"].schema;
  const one = await (await fetch(`${server.url}/v1/models/${modelName}`)).json();
  assert.ok(ajv.validate(document.components.schemas[$ref.split("/").at(-1)], one));
});
