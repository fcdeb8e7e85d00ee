#!/usr/bin/env node
// Makes tests/data/openai/schemas.json: the schemas of OpenAI's API description that answers are
// checked against, with all that they refer to, without prose.
// usage: scripts/openapi-schemas.mjs DESCRIPTION.json > tests/data/openai/schemas.json
import { readFileSync } from "node:fs";

const roots = [
  "Response",
  "ResponseItemList",
  "ChatCompletionList",
  "ChatCompletionDeleted",
  "CustomToolCallResource",
  "TokenCountsResource",
  "ErrorResponse",
  "CreateChatCompletionResponse",
  "CreateChatCompletionStreamResponse",
  "CreateCompletionResponse",
  "CreateEmbeddingResponse",
  "ListModelsResponse",
  "Model",
  "ResponseErrorEvent",
  ...[
    "Created",
    "InProgress",
    "Completed",
    "Incomplete",
    "Failed",
    "OutputItemAdded",
    "OutputItemDone",
    "ContentPartAdded",
    "ContentPartDone",
    "TextDelta",
    "TextDone",
    "ReasoningTextDelta",
    "ReasoningTextDone",
    "FunctionCallArgumentsDelta",
    "FunctionCallArgumentsDone",
    "CustomToolCallInputDelta",
    "CustomToolCallInputDone",
  ].map((name) => `Response${name}Event`),
];

const prose = new Set(["description", "title", "example", "examples", "default", "deprecated", "discriminator"]);

// `names`: the keys are names of properties, not keywords.
function strip(value, names = false) {
  if (Array.isArray(value)) return value.map((v) => strip(v));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key]) => names || !(prose.has(key) || key.startsWith("x-")))
      .map(([key, v]) => [key, strip(v, !names && key === "properties")]),
  );
}

export function extract(description) {
  const all = description.components.schemas,
    kept = {};
  const take = (name) => {
    if (kept[name]) return;
    if (!all[name]) throw new Error(`no schema ${name}`);
    kept[name] = strip(all[name]);
    for (const [, other] of JSON.stringify(kept[name]).matchAll(/"#\/components\/schemas\/([^"]+)"/g)) take(other);
  };
  roots.forEach(take);
  const sorted = Object.fromEntries(
    Object.keys(kept)
      .sort()
      .map((name) => [name, kept[name]]),
  );
  return {
    info: { title: description.info.title, version: description.info.version, license: description.info.license },
    components: { schemas: sorted },
  };
}

// One schema a line, so that a change shows where it is.
export function print({ info, components }) {
  const lines = Object.entries(components.schemas).map(
    ([name, schema]) => `${JSON.stringify(name)}:${JSON.stringify(schema)}`,
  );
  return `{"info":${JSON.stringify(info)},"components":{"schemas":{\n${lines.join(",\n")}\n}}}\n`;
}

if (process.argv[1]?.endsWith("openapi-schemas.mjs"))
  process.stdout.write(print(extract(JSON.parse(readFileSync(process.argv[2], "utf8")))));
