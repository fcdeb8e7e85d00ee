// Cases of JSON Schema for `inferd grammar`, with the demo model's tokens: verdicts on their texts; and every random
// text that a schema allows must be valid for ajv, an independent validator.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Ajv7 from "ajv";
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

const inferd = process.env.INFERD ?? "build/inferd",
  model = "registry/demo/inferd-demo-q8_0.gguf";
const generated = 10;
const folder = mkdtempSync(join(tmpdir(), "inferd-schema-"));
process.on("exit", () => rmSync(folder, { recursive: true }));

export const read = (file) => JSON.parse(readFileSync(file, "utf8"));
const draftOf = (schema) => (typeof schema === "object" && schema.$schema) || "";

// As Python serializes it: a space after ':' and ','; characters beyond ASCII as escapes.
const spaced = (value) => {
  if (Array.isArray(value)) return `[${value.map(spaced).join(", ")}]`;
  if (value && typeof value === "object")
    return `{${Object.keys(value)
      .map((key) => `${spaced(key)}: ${spaced(value[key])}`)
      .join(", ")}}`;
  return JSON.stringify(value).replace(/[^\0-\x7f]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
};

// inferd's result: {refused}, or {generated, verdicts} of the texts.
const ask = (schema, texts) => {
  const file = join(folder, "schema.json");
  writeFileSync(file, JSON.stringify(schema));
  const run = spawnSync(inferd, ["grammar", "--model", model, "--schema", file, "--jsonl", "--generate", generated], {
    input: texts.map((text) => `${JSON.stringify({ text })}\n`).join(""),
    encoding: "utf8",
    maxBuffer: 1 << 28,
  });
  if (run.status === 2) return { refused: run.stderr.trim() };
  assert.equal(run.status, 0, `${run.stderr} ${run.stdout} ${JSON.stringify(schema)}`);
  const lines = run.stdout.trim().split("\n").filter(Boolean).map(JSON.parse);
  return {
    generated: lines.filter((line) => "text" in line).map((line) => line.text),
    verdicts: lines.filter((line) => "accepted" in line),
  };
};

// Keywords beside a $ref: drafts up to 7 ignore them, ajv does not.
const hasSiblings = (v) =>
  v &&
  typeof v === "object" &&
  ((typeof v.$ref === "string" &&
    ["properties", "patternProperties", "additionalProperties", "type", "enum", "items"].some((k) => k in v)) ||
    Object.values(v).some(hasSiblings));

// null: ajv cannot compile it or disagrees with the recorded verdicts.
const validatorOf = (schema, tests) => {
  if (/draft-0[34]/.test(draftOf(schema))) return null; // ajv has other rules for them
  if (/draft-0[67]/.test(draftOf(schema)) && hasSiblings(schema)) return null;
  const Ajv = /draft-0[67]/.test(draftOf(schema)) ? Ajv7 : Ajv2020;
  const ajv = new Ajv({ strict: false, logger: false, validateSchema: false, multipleOfPrecision: 9 });
  addFormats(ajv);
  // RFC 3986 allows an empty path after the colon, ajv does not; format uri has its own tests.
  ajv.addFormat("uri", /^[a-z][a-z0-9+.-]*:/i);
  try {
    const validate = ajv.compile(schema);
    return tests.every(({ data, valid }) => validate(data) === valid) ? validate : null;
  } catch {
    return null; // a $schema of its own, a regular expression that V8 does not know
  }
};

// More digits than a JavaScript number has: ajv would see another number.
const exact = (text) => !/\d{16}|\d[.\deE+-]{16}|[eE][+-]?\d{2}/.test(text);

// known(description of the case, of its test, text): the verdict that is right here differs from the recorded one.
export const check = (name, cases, totals, known = () => false) => {
  for (const { description, schema, tests = [], refused } of cases) {
    const texts = tests.flatMap(({ data }) => [JSON.stringify(data), spaced(data)]);
    if (JSON.stringify([schema, texts]).includes("\\u0000")) continue; // U+0000 is refused with the JSON
    const where = `${name}: ${description}`,
      answer = ask(schema, texts);
    if (answer.refused) {
      assert.match(answer.refused, /^inferd: #/, where);
      if (refused !== undefined)
        assert.ok(answer.refused.startsWith(`inferd: #${refused}: `), `${where}: ${answer.refused}`);
      totals.refused.push(`${where}: ${answer.refused}`);
      continue;
    }
    assert.equal(refused, undefined, where);
    totals.compiled++;
    texts.forEach((text, i) => {
      const { valid, description: what = "" } = tests[i >> 1];
      if (known(description, what, text)) return;
      assert.equal(answer.verdicts[i].accepted, valid, `${where}: ${what}: ${text}`);
      if (valid) assert.equal(answer.verdicts[i].at_byte, Buffer.byteLength(text), `${where}: ${text}`);
    });
    totals.verdicts += texts.length;
    const validate = validatorOf(schema, tests);
    for (const text of validate ? answer.generated.filter(exact) : []) {
      assert.ok(validate(JSON.parse(text)), `${where}: let through: ${text}: ${JSON.stringify(validate.errors)}`);
      totals.generated++;
    }
  }
};

export const report = (t, totals) =>
  t.diagnostic(
    `${totals.compiled} schemas compiled, ${totals.refused.length} refused; ${totals.verdicts} verdicts, ` +
      `${totals.generated} random texts valid`,
  );
export const nothing = () => ({ compiled: 0, refused: [], verdicts: 0, generated: 0 });
