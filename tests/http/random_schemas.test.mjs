// Random schemas, random seeds: what the demo model generates under each must be valid by an
// independent validator. GENERATIONS says how many (10,000 take some minutes).
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Ajv from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { chat, long, startServer, user } from "./server.mjs";

const generations = Number(process.env.GENERATIONS ?? (long ? 60 : 15));
const firstSeed = Number(process.env.SEED ?? 1);

// A small generator of pseudo-random numbers (xorshift32), so that a failure can be repeated.
function random(seed) {
  let x = (seed * 2654435761) >>> 0 || 1;
  const next = () => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return (x >>>= 0) / 4294967296;
  };
  for (let i = 0; i < 8; i++) next();
  const int = (n) => Math.floor(next() * n);
  return { int, chance: (p) => next() < p, pick: (list) => list[int(list.length)] };
}

const words = ["a", "name", "Alter", "größe", "with space", 'quo"te', "back\\slash", "é", "日本", "x-y_z", "0"];
const patterns = [
  "^[a-z]{2,5}$",
  "^\\d{3}-\\d{4}$",
  "^(foo|bar)+$",
  "[0-9]",
  "^[A-Z][a-zé]*$",
  "^\\p{L}{1,4}$",
  "^.{2,6}$",
];
const formats = ["date", "date-time", "time", "uuid", "ipv4"];

const makers = {
  string(r) {
    if (r.chance(0.2)) return { type: "string", pattern: r.pick(patterns), maxLength: 14 };
    if (r.chance(0.2)) return { type: "string", format: r.pick(formats), maxLength: 40 };
    const minLength = r.int(4);
    return { type: "string", minLength, maxLength: minLength + r.int(12) };
  },
  integer(r) {
    const minimum = r.int(2000) - 1000;
    const s = { type: "integer", minimum, maximum: minimum + r.int(500) };
    if (r.chance(0.2)) return { type: "integer", exclusiveMinimum: minimum, exclusiveMaximum: minimum + 2 + r.int(50) };
    return r.chance(0.2) ? { ...s, maximum: s.minimum + 20, multipleOf: r.pick([2, 3, 5, 7]) } : s;
  },
  number: (r) => ({ type: "number", minimum: -r.int(50) / 4, maximum: r.int(5000) / 8 }),
  boolean: () => ({ type: "boolean" }),
  null: () => ({ type: "null" }),
  enum: (r) => ({ enum: [r.pick(words), r.int(100), r.chance(0.5), null, { k: [r.int(3)] }].slice(r.int(4)) }),
  const: (r) => ({ const: r.pick([...words, 1.5, -3, false, [], { a: { b: [1, "2"] } }]) }),
  array(r, depth) {
    const minItems = r.int(3);
    const s = { type: "array", items: schema(r, depth + 1), minItems, maxItems: minItems + r.int(3) };
    if (r.chance(0.2)) s.prefixItems = [schema(r, depth + 1), schema(r, depth + 1)];
    if (r.chance(0.15))
      return {
        type: "array",
        items: { type: "integer", minimum: 0, maximum: 9 },
        uniqueItems: true,
        minItems: 2,
        maxItems: 5,
      };
    return s;
  },
  object(r, depth) {
    const names = words.filter(() => r.chance(0.35));
    const s = {
      type: "object",
      properties: {},
      required: names.filter(() => r.chance(0.6)),
      additionalProperties: false,
    };
    for (const name of names) s.properties[name] = schema(r, depth + 1);
    if (r.chance(0.2)) {
      s.additionalProperties = schema(r, depth + 2);
      s.propertyNames = { maxLength: 10 };
      s.maxProperties = names.length + 1 + r.int(2);
    }
    if (r.chance(0.1)) {
      s.patternProperties = { "^k[0-9]$": schema(r, depth + 2) };
      s.maxProperties = names.length + 2;
    }
    return s;
  },
  anyOf: (r, depth) => ({ anyOf: [schema(r, depth + 1), schema(r, depth + 1)] }),
  allOf: (r) => ({ allOf: [{ type: "integer", minimum: -5 }, { maximum: 5 + r.int(100) }] }),
  oneOf: () => ({
    oneOf: [
      { type: "string", maxLength: 5 },
      { type: "integer", minimum: 0, maximum: 9 },
    ],
  }),
  if: () => ({
    type: "object",
    properties: { kind: { enum: ["a", "b"] }, value: { type: ["integer", "boolean"], minimum: 0, maximum: 9 } },
    required: ["kind", "value"],
    additionalProperties: false,
    if: { properties: { kind: { const: "a" } } },
    then: { properties: { value: { type: "integer" } } },
    else: { properties: { value: { type: "boolean" } } },
  }),
};
const leaves = ["string", "integer", "number", "boolean", "null", "enum", "const", "allOf", "oneOf"];

function schema(r, depth) {
  const kinds = depth >= 3 ? leaves : [...leaves, "object", "object", "object", "array", "array", "anyOf", "if"];
  return makers[r.pick(kinds)](r, depth);
}

// A root is usually an object; some are of any kind or recursive.
function root(r) {
  if (r.chance(0.04)) {
    const node = {
      type: "object",
      properties: { v: schema(r, 3), next: { anyOf: [{ type: "null" }, { $ref: "#/$defs/node" }] } },
      required: ["v", "next"],
      additionalProperties: false,
    };
    return { $ref: "#/$defs/node", $defs: { node } };
  }
  return r.chance(0.8) ? makers.object(r, 0) : schema(r, 0);
}

const ajv = new Ajv({ strict: false, validateFormats: true });
addFormats(ajv);

let server;
const refusals = [];
before(async () => {
  server = await startServer();
});
after(() => server.stop());

async function generate(seed) {
  const r = random(seed);
  const s = root(r);
  const response = await chat(server, {
    messages: user("Answer."),
    response_format: { type: "json_schema", json_schema: { name: "random", schema: s, strict: r.chance(0.3) } },
    temperature: 1,
    seed,
    max_tokens: 2500,
  });
  const body = await response.json();
  if (response.status === 400) return (refusals.push(`${seed}: ${body.error.message} ${JSON.stringify(s)}`), "refused");
  assert.equal(response.status, 200, JSON.stringify({ seed, s, body }));
  const { message, finish_reason } = body.choices[0];
  // A model need not end an unbounded list.
  if (finish_reason === "length") return s.$ref ? "endless" : "cut";
  const value = JSON.parse(message.content);
  const valid = ajv.compile(s);
  assert.ok(valid(value), JSON.stringify({ seed, schema: s, content: message.content, errors: valid.errors }));
  return "valid";
}

test(`${generations} random schemas, every answer valid`, async () => {
  const counts = { valid: 0, endless: 0, cut: 0, refused: 0 };
  let next = firstSeed;
  const worker = async () => {
    while (next < firstSeed + generations) counts[await generate(next++)]++;
  };
  await Promise.all(Array.from({ length: 32 }, worker));
  console.log(JSON.stringify(counts));
  assert.deepEqual(refusals, [], "all of these schemas can be enforced");
  assert.equal(counts.cut, 0, "answers come to an end");
  assert.equal(counts.valid + counts.endless, generations);
});
