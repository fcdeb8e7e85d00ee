// Constrained answers: response_format, structured_outputs and the guided fields. Every answer that
// ends must satisfy the constraint.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Ajv2020 from "ajv/dist/2020.js";
import { chat, sse, startServer, user } from "./server.mjs";

let server;
before(async () => (server = await startServer()));
after(() => server.stop());

async function ask(body) {
  const response = await chat(server, { messages: user("Tell me."), max_tokens: 400, ...body });
  const answer = await response.json();
  assert.equal(response.status, 200, JSON.stringify(answer));
  return { ...answer.choices[0], usage: answer.usage };
}
const schemaFormat = (schema, strict = false) => ({
  type: "json_schema",
  json_schema: { name: "answer", schema, strict },
});
const ajv = new Ajv2020({ strict: false });

// Random schemas with short, bounded values.
function random(seed) {
  let state = BigInt(seed) * 2654435761n + 12345n;
  return (n) => {
    state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
    return Number(state >> 33n) % n;
  };
}
function randomSchema(draw, depth) {
  const kinds = [
    "string",
    "integer",
    "boolean",
    "enum",
    "const",
    "pattern",
    "number",
    "null",
    ...(depth > 0 ? ["object", "array", "anyOf", "tuple"] : []),
  ];
  switch (kinds[draw(kinds.length)]) {
    case "string":
      return { type: "string", minLength: draw(3), maxLength: 3 + draw(6) };
    case "integer": {
      const low = draw(200) - 100;
      return { type: "integer", minimum: low, maximum: low + draw(1000) };
    }
    case "number":
      return { type: "number", minimum: 0, maximum: draw(100) + 1, multipleOf: 0.5 };
    case "boolean":
      return { type: "boolean" };
    case "null":
      return { type: "null" };
    case "enum":
      return { enum: ["red", "gr\u00fcn", 3, null, { a: [1] }].slice(draw(4)) };
    case "const":
      return { const: ['a "quoted" text', 12, [true]][draw(3)] };
    case "pattern":
      return { type: "string", pattern: ["^[a-z]{2,4}$", "^\\d{3}-[A-F]+$", "^(ab|cd)*$"][draw(3)], maxLength: 12 };
    case "array":
      return { type: "array", items: randomSchema(draw, depth - 1), minItems: draw(2), maxItems: 1 + draw(3) };
    case "tuple":
      return {
        type: "array",
        prefixItems: [randomSchema(draw, depth - 1), randomSchema(draw, depth - 1)],
        items: false,
      };
    case "anyOf":
      return { anyOf: [randomSchema(draw, depth - 1), randomSchema(draw, depth - 1)] };
    default:
      return randomObject(draw, depth - 1);
  }
}
function randomObject(draw, depth) {
  const names = ["alpha", "b", "key three", "\u00fc", 'e"e'].slice(0, 1 + draw(5));
  return {
    type: "object",
    properties: Object.fromEntries(names.map((name) => [name, randomSchema(draw, depth)])),
    required: names.filter(() => draw(2)),
    additionalProperties: false,
  };
}

test("answers of 50 random schemas are valid", async () => {
  let ended = 0;
  for (let seed = 0; seed < 50; seed++) {
    const schema = randomObject(random(seed), 2);
    const { message, finish_reason } = await ask({ response_format: schemaFormat(schema), seed });
    if (finish_reason === "length") continue;
    ended++;
    assert.ok(ajv.validate(schema, JSON.parse(message.content)), `${JSON.stringify(schema)}\n${message.content}`);
  }
  assert.ok(ended >= 45, `only ${ended} answers ended`);
});

test("strict: members have the schema's order", async () => {
  const schema = {
    type: "object",
    properties: { z: { type: "boolean" }, a: { type: "integer", maximum: 9, minimum: 0 }, m: { enum: ["x"] } },
    required: ["a", "m", "z"],
    additionalProperties: false,
  };
  for (let seed = 0; seed < 5; seed++) {
    const { message } = await ask({ response_format: schemaFormat(schema, true), seed, temperature: 2 });
    assert.deepEqual(Object.keys(JSON.parse(message.content)), ["z", "a", "m"]);
  }
});

test("json_object: an object", async () => {
  for (const body of [
    { response_format: { type: "json_object" } },
    { structured_outputs: { json_object: true } },
    { response_format: { type: "json_schema", json_schema: { name: "x" } } },
  ])
    for (let seed = 0; seed < 3; seed++) {
      const { message, finish_reason } = await ask({ ...body, seed });
      assert.match(message.content, /^\{/);
      if (finish_reason === "stop") assert.equal(typeof JSON.parse(message.content), "object");
    }
});

test("regular expressions, choices, grammars", async () => {
  const gbnf = 'root ::= "<" item ("," item){1,2} ">"\nitem ::= [a-c]+ | "0" [0-9]{2}';
  const rows = [
    [{ structured_outputs: { regex: "[A-Z][a-z]{1,5} \\d{2}" } }, /^[A-Z][a-z]{1,5} \d{2}$/],
    [{ guided_regex: "(yes|no)!?" }, /^(yes|no)!?$/],
    [{ structured_outputs: { choice: ["left", "right", "\u00fcber"] } }, /^(left|right|\u00fcber)$/],
    [{ guided_choice: ["a", "ab"] }, /^ab?$/],
    [{ structured_outputs: { grammar: gbnf } }, /^<([a-c]+|0\d\d)(,([a-c]+|0\d\d)){1,2}>$/],
    [{ guided_grammar: 'root ::= "ok"' }, /^ok$/],
    [{ structured_outputs: { json: { type: "integer", minimum: 5, maximum: 7 } } }, /^[567](\.0+)?([eE][+-]?0+)?$/],
    [{ guided_json: '{"const": "x"}' }, /^"x"$/],
  ];
  for (const [body, want] of rows)
    for (let seed = 0; seed < 4; seed++) {
      const { message, finish_reason } = await ask({ ...body, seed, temperature: 1.5 });
      if (finish_reason === "stop") assert.match(message.content, want);
    }
});

test("a stream equals the whole answer and has log-probabilities of every token", async () => {
  const schema = {
    type: "object",
    properties: { a: { type: "string", maxLength: 20 } },
    required: ["a"],
    additionalProperties: false,
  };
  const body = { response_format: schemaFormat(schema), seed: 5, logprobs: true, top_logprobs: 2, stop: ["zzz"] };
  const { message, logprobs, usage } = await ask(body);
  assert.equal(logprobs.content.map((t) => t.token).join(""), message.content);
  assert.ok(logprobs.content.length <= usage.completion_tokens);
  const response = await chat(server, { messages: user("Tell me."), max_tokens: 400, ...body, stream: true });
  let text = "",
    tokens = [];
  for await (const event of sse(response)) {
    if (event === "[DONE]") continue;
    text += event.choices[0].delta.content ?? "";
    tokens.push(...(event.choices[0].logprobs?.content ?? []));
  }
  assert.equal(text, message.content);
  assert.deepEqual(tokens, logprobs.content);
});

test("invalid or duplicate constraints are refused by name", async () => {
  const wrong = [
    [{ response_format: { type: "json_schema" } }, "response_format.json_schema"],
    [{ response_format: { type: "text", json_schema: { name: "x" } } }, "response_format.json_schema"],
    [
      { response_format: schemaFormat({ type: "object", properties: { a: { type: "x" } } }) },
      "response_format.json_schema.schema",
      "#/properties/a/type",
    ],
    [{ response_format: schemaFormat({ $ref: "#/$defs/none" }) }, "response_format.json_schema.schema", "#/$ref"],
    [
      { response_format: schemaFormat({ type: "integer", minimum: 2, maximum: 1 }) },
      "response_format.json_schema.schema",
    ],
    [{ structured_outputs: { regex: "(" } }, "structured_outputs.regex"],
    [{ structured_outputs: { grammar: "root ::= nothing" } }, "structured_outputs.grammar"],
    [{ structured_outputs: { choice: ["a", 1] } }, "structured_outputs.choice[1]"],
    [{ structured_outputs: { regex: "a", choice: ["b"] } }, "structured_outputs.choice"],
    [{ response_format: { type: "json_object" }, guided_regex: "a" }, "guided_regex"],
    [{ guided_json: "{" }, "guided_json"],
    [{ guided_json: "3" }, "guided_json"],
  ];
  for (const [body, param, pointer] of wrong) {
    const response = await chat(server, { messages: user("x"), ...body }),
      { error } = await response.json();
    assert.equal(response.status, 400, JSON.stringify(body));
    assert.equal(error.param, param, JSON.stringify(error));
    if (pointer) assert.ok(error.message.includes(pointer), error.message);
  }
});
