// Every field of every endpoint, as GET /v1/inferd/fields tells them: right, wrong, out of bounds,
// null, missing, refused, unknown. An endpoint that comes later needs a base body here, no more.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { fieldsDoc } from "../../scripts/fields-doc.mjs";
import { chat, modelName, post, startServer, user } from "./server.mjs";

const model = modelName;

// A body that is answered with 200, with one object in each array whose objects have fields.
const bases = {
  "POST /v1/chat/completions": { model, messages: user("x"), max_tokens: 1 },
  "POST /v1/completions": { model, prompt: "x", max_tokens: 1 },
  "POST /v1/responses": { model, input: "x", max_output_tokens: 1 },
  "POST /v1/responses/input_tokens": { model, input: "x" },
  "POST /v1/embeddings": { model, input: "x" },
  "POST /tokenize": { model, prompt: "x" },
  "POST /detokenize": { model, tokens: [300] },
  "POST /v1/inferd/render": { model, messages: user("x") },
  "POST /v1/messages": { model, messages: user("x"), max_tokens: 1 },
  "POST /v1/messages/count_tokens": { model, messages: user("x") },
  "POST /api/chat": { model, messages: user("x"), stream: false, options: { num_predict: 1 } },
  "POST /api/generate": { model, prompt: "x", stream: false, options: { num_predict: 1 } },
  "POST /api/show": { model },
};
bases["POST /v1/tokenize"] = bases["POST /tokenize"];
bases["POST /v1/detokenize"] = bases["POST /detokenize"];

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
};
right["POST /v1/messages/count_tokens"] = right["POST /v1/messages"];
right["POST /api/generate"] = right["POST /api/chat"];
right["POST /v1/tokenize"] = right["POST /tokenize"];
right["POST /v1/detokenize"] = right["POST /detokenize"];
right["POST /v1/inferd/render"] = right["POST /v1/chat/completions"];

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

let server, endpoints;
before(async () => {
  server = await startServer();
  const { object, data } = await (await fetch(server.url + "/v1/inferd/fields")).json();
  assert.equal(object, "list");
  endpoints = data;
});
after(() => server.stop());

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
const send = async (endpoint, body) => {
  const json = JSON.stringify(body).replace(/"@@([^@]*)@@"/g, "$1");
  const response = await post(server, endpoint.split(" ")[1], json);
  const text = await response.text();
  return { status: response.status, text, error: response.status === 400 ? JSON.parse(text).error : null };
};

// Does the error name the field? Ollama's is a text.
const blames = (error, name) =>
  typeof error === "string"
    ? error.includes(`'${name}`) || error.endsWith(" " + name)
    : error.type === "invalid_request_error" && (error.param === name || !!error.param?.startsWith(name + "["));

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

async function expectRefusal(endpoint, body, name, what) {
  const { status, text, error } = await send(endpoint, body);
  assert.equal(status, 400, `${endpoint}: ${name} ${what}: ${text}`);
  assert.ok(blames(error, name), `${endpoint}: ${name} ${what}: ${text}`);
}
async function expectAnswer(endpoint, body, name, what, depends) {
  const answer = await send(endpoint, body);
  if (depends && answer.status === 400 && blames(answer.error, depends)) return;
  assert.equal(answer.status, 200, `${endpoint}: ${name} ${what}: ${answer.text}`);
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
  if (row.supported) {
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
    await expectRefusal(endpoint, withValue({ inferd: "test" }), name, "refused");
    for (const word of row.values ?? []) await expectAnswer(endpoint, withValue(word), name, word);
    assert.ok(row.reason, `${name}: a refusal has a reason`);
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
  await expectRefusal(endpoint, unknown, prefix + "no_such_field", "unknown").catch((e) => wrong.push(e.message));
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
    const value = hint?.value ?? (row.supported ? rightValue(row) : undefined);
    if (parent[row.name] === undefined) parent[row.name] = clone(value);
    const inner = [parent[row.name]].flat()[0];
    if (inner !== null && typeof inner === "object")
      n += await checkTable(endpoint, row.fields, below, [...path, row.name], wrong);
  }
  return n;
}

test("every field of every endpoint: right, wrong, out of bounds, null, missing, refused, unknown", async (t) => {
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

test("the tables know all of OpenAI's fields", async (t) => {
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

test("every row says what it is", () => {
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
        "supported",
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

test("api/FIELDS.md is what the tables say", () => {
  const now = fieldsDoc(endpoints),
    kept = readFileSync("api/FIELDS.md", "utf8");
  if (process.env.WRITE_FIELDS) writeFileSync("api/FIELDS.md", now);
  else assert.ok(now === kept, "run `WRITE_FIELDS=1 node --test tests/http/fields.test.mjs`");
});

test("unknown-fields = ignore drops them and says so", async () => {
  const odd = await startServer(["--unknown-fields", "ignore"]);
  try {
    const response = await chat(odd, {
      messages: user("x"),
      max_tokens: 1,
      stream: true,
      stream_options: { include_usage: true, later: 1 },
      tools: [],
      new_field: { a: 1 },
      "bad\r\nname": 2,
    });
    assert.equal(response.status, 200, await response.text());
    const ignored = response.headers.get("x-inferd-ignored-fields").split(", ");
    for (const name of ["stream_options.later", "new_field", "bad??name"])
      assert.ok(ignored.includes(name), `${name} in ${ignored}`);
    const deep = await chat(odd, {
      messages: [{ role: "user", content: [{ type: "text", text: "x", cache: 1 }], mood: 2 }],
      max_tokens: 1,
    });
    assert.equal(deep.status, 200, await deep.text());
    assert.equal(deep.headers.get("x-inferd-ignored-fields"), "messages[0].content[0].cache, messages[0].mood");
    const wrong = await chat(odd, { messages: user("x"), max_tokens: "1", new_field: 1 });
    assert.equal(wrong.status, 400, "a known field is checked all the same");
    assert.equal((await wrong.json()).error.param, "max_tokens");
    assert.equal(wrong.headers.get("x-inferd-ignored-fields"), "new_field");
    const many = await chat(odd, {
      messages: user("x"),
      max_tokens: 1,
      ...Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`field_${i}`, i])),
    });
    assert.equal(many.status, 200);
    assert.match(
      many.headers.get("x-inferd-ignored-fields"),
      /^(field_\d+, ){10,40}\.\.\.$/,
      "the header is bounded, and says so",
    );
    const none = await chat(odd, { messages: user("x"), max_tokens: 1 });
    assert.equal(none.headers.get("x-inferd-ignored-fields"), null);
  } finally {
    await odd.stop();
  }
});
