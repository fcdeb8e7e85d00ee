// Validates answers against OpenAI's specification: validate("Response", body), validateEvent(event).
import { readFileSync } from "node:fs";
import Ajv2020 from "ajv/dist/2020.js";

const { components } = JSON.parse(readFileSync(new URL("../data/openai/schemas.json", import.meta.url), "utf8"));
// The specification has some schemas in the style of OpenAPI 3.0.
function modern(schema) {
  if (Array.isArray(schema)) return schema.map(modern);
  if (schema === null || typeof schema !== "object") return schema;
  const { nullable, ...rest } = Object.fromEntries(Object.entries(schema).map(([key, v]) => [key, modern(v)]));
  return nullable === true ? { anyOf: [rest, { type: "null" }] } : rest;
}

const ajv = new Ajv2020({
  strict: false,
  allErrors: false,
  formats: { unixtime: true, uri: true, binary: true, base64: true },
});
ajv.addSchema({ $id: "openai", components: modern(components) });

// The schema of each event of a stream of responses, by the event's type.
const events = new Map();
for (const [name, schema] of Object.entries(components.schemas)) {
  const type = schema.properties?.type?.enum?.[0];
  if (/^Response.*Event$/.test(name) && type) events.set(type, name);
}

// Throws unless value is valid for the named schema.
export function validate(name, value) {
  const check = ajv.getSchema(`openai#/components/schemas/${name}`);
  if (!check)
    throw new Error(`no schema ${name} in tests/data/openai/schemas.json: add it to scripts/openapi-schemas.mjs`);
  if (check(value)) return value;
  throw new Error(`no ${name}: ${ajv.errorsText(check.errors)}\n${JSON.stringify(value).slice(0, 2000)}`);
}

export function validateEvent(event) {
  const name = events.get(event.type);
  if (!name) throw new Error(`no schema for an event ${event.type}`);
  return validate(name, event);
}
