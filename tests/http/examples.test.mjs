// What the page offers to try (starters, the playground's examples) and what README and `make run` print:
// the demo model at default settings must be right in nearly all answers. Seeds are fixed, so one instruction
// set always gives the same answers; another one gives others, for which the share leaves room.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { readFileSync } from "node:fs";
import { SCHEMAS, TOOLS } from "../../api/web/examples.js";
import { chat, modelName, startServer, user } from "./server.mjs";

const SEEDS = 40;
const LEAST = 38; // of 40; measured: 400 of 400 in every case
const AT_ONCE = 8;

let server;
before(async () => {
  server = await startServer();
});
after(() => server.stop());

const text = (message) => message.content;
const isStory = (message) => {
  assert.match(text(message), /\bfox\b/i);
  assert.ok(text(message).length > 300 && text(message).length < 4000);
};

// Each throws if an answer is wrong. A starter or example without its check fails.
const starters = {
  "Tell me a story about a fox.": isStory,
  "How do I make tea?": (m) => assert.match(text(m), /boil some water[^]*tea bag[^]*hot water[^]*minutes/i),
  "What is 3 plus 4?": (m) => assert.match(text(m), /^(3 \+ 4 = )?7\.$/),
};
const equals = (want) => (m) => assert.deepEqual(JSON.parse(text(m)), want);
const schemas = {
  "A person": (m) => {
    const { name, age, hobby } = JSON.parse(text(m));
    assert.match(name, /^[A-Z][a-z]+$/);
    assert.ok(age >= 3 && age <= 90);
    assert.match(hobby, /^[a-z]+( [a-z]+){0,3}$/);
  },
  "A sentence as data": equals({ name: "Emma", age: 30, city: "Paris" }),
  "Choices and yes or no": equals({ animal: "fox", colour: "red", happy: true }),
  "A list without repetition": (m) => assert.equal(new Set(JSON.parse(text(m)).fruits).size, 3),
  "One definition, used thrice ($ref)": equals({ name: "Ben", city: "Rome", food: "pizza" }),
};
const calls = (name, want) => (m) => {
  assert.equal(m.tool_calls.length, 1);
  assert.equal(m.tool_calls[0].function.name, name);
  assert.deepEqual(JSON.parse(m.tool_calls[0].function.arguments), want);
};
const tools = {
  Weather: calls("get_weather", { city: "Oslo" }),
  "A number": calls("set_age", { age: 42 }),
  "One of two tools, by its name": calls("paint", { colour: "blue" }),
};

// How many of SEEDS answers pass the check, and the first that does not.
async function measure(body, check) {
  let next = 0,
    right = 0,
    wrong = "";
  const one = async (seed) => {
    const response = await chat(server, { ...body, seed });
    assert.equal(response.status, 200, await response.clone().text());
    const { message, finish_reason } = (await response.json()).choices[0];
    try {
      assert.notEqual(finish_reason, "length");
      check(message);
      right++;
    } catch (e) {
      wrong ||= `seed ${seed}: ${JSON.stringify(message)}: ${e.message}`;
    }
  };
  const worker = async () => {
    while (next < SEEDS) await one(++next);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return { right, wrong };
}

async function mostlyRight(t, body, check) {
  assert.ok(check, "this example has no check: add one");
  const { right, wrong } = await measure(body, check);
  t.diagnostic(`${right} of ${SEEDS} answers are right`);
  assert.ok(right >= LEAST, `only ${right} of ${SEEDS} answers are right; ${wrong}`);
}

const page = readFileSync("api/web/index.html", "utf8");
const list = /<div id="starters">([^]*?)<\/div>/.exec(page)[1];
const offered = [...list.matchAll(/<button type="button">(.*?)<\/button>/g)].map((m) => m[1]);

test("each check has its starter or example", () => {
  assert.deepEqual(offered, Object.keys(starters));
  assert.deepEqual(
    SCHEMAS.map((s) => s.name),
    Object.keys(schemas),
  );
  assert.deepEqual(
    TOOLS.map((s) => s.name),
    Object.keys(tools),
  );
});

for (const prompt of offered)
  test(`starter: ${prompt}`, (t) => mostlyRight(t, { messages: user(prompt) }, starters[prompt]));

for (const { name, prompt, schema, max_tokens } of SCHEMAS)
  test(`schema: ${name}`, (t) => {
    const response_format = { type: "json_schema", json_schema: { name: "example", schema, strict: true } };
    return mostlyRight(t, { messages: user(prompt), response_format, max_tokens }, schemas[name]);
  });

for (const example of TOOLS)
  test(`tools: ${example.name}`, (t) => {
    const { name, prompt, choice, max_tokens } = example;
    const named = choice.startsWith("function ") && { type: "function", function: { name: choice.slice(9) } };
    const body = { messages: user(prompt), tools: example.tools, tool_choice: named || choice, max_tokens };
    return mostlyRight(t, { ...body, parallel_tool_calls: false }, tools[name]);
  });

// The request of a `curl` line, whose JSON stands between single quotes, is that of the first starter.
test("the curl lines of README and `make run`", () => {
  for (const file of ["README.md", "scripts/serve-demo"]) {
    const { stream, model, ...body } = JSON.parse(/-d '(\{[^']*\})'/.exec(readFileSync(file, "utf8"))[1]);
    assert.equal(model, modelName, file);
    assert.deepEqual(body, { messages: user(offered[0]) }, file);
  }
});
