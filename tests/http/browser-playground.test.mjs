// The playground: answers under a JSON schema, and tools with their round trip.
import assert from "node:assert/strict";
import { test } from "node:test";
import { expectProblem, load, noProblems, noSidewaysScroll, openPage, scripted, skip } from "./browser_page.mjs";

const it = openPage();
const panel = (name) => it.page.locator(`#panel-${name}`);
const verdict = (name) => panel(name).locator(".verdict");
const run = async (name) => {
  const [request] = await Promise.all([
    it.page.waitForRequest("**/v1/chat/completions"),
    panel(name).getByRole("button", { name: "Run" }).click(),
  ]);
  await panel(name).getByRole("button", { name: "Stop" }).waitFor({ state: "hidden" });
  return request.postDataJSON();
};

test("the schema editor says where JSON is wrong, and does not send it", { skip }, async () => {
  const { page } = it;
  await load(it, "/#playground");
  const box = page.getByRole("textbox", { name: "JSON schema" }),
    good = await box.inputValue();
  await box.fill('{\n  "type": "object",\n  oops\n}');
  assert.match(
    await page.locator("#schema-text-note").textContent(),
    /^Not JSON: expected a key in double quotes \(line 3, column 3\)\.$/,
  );
  assert.equal(await box.getAttribute("aria-invalid"), "true");
  let asked = 0;
  page.on("request", (r) => (asked += r.url().endsWith("/completions")));
  await panel("schema").getByRole("button", { name: "Run" }).click();
  assert.equal(asked, 0);
  assert.equal(await page.evaluate(() => document.activeElement.id), "schema-text");
  await box.fill("[1]");
  assert.equal(await page.locator("#schema-text-note").textContent(), "A schema must be an object.");
  await box.fill(good);
  assert.equal(await box.getAttribute("aria-invalid"), "false");
});

test("examples fill the form; the request carries the schema", { skip }, async () => {
  const { page } = it;
  await page.getByLabel("Example").first().selectOption({ label: "Choices and yes or no" });
  await panel("schema").getByText("Sampling").click();
  await page.fill("#schema-temperature", "0");
  await scripted(page, [{ content: '{"colour":' }, { content: '"red","happy":true}' }]);
  const body = await run("schema");
  assert.equal(body.response_format.type, "json_schema");
  assert.deepEqual(
    { ...body.response_format.json_schema, schema: 0 },
    { name: "choices_and_yes_or_no", schema: 0, strict: true },
  );
  assert.deepEqual(body.response_format.json_schema.schema.properties.happy, { type: "boolean" });
  assert.equal(body.temperature, 0);
  assert.equal(body.max_tokens, 200);
  assert.equal(await panel("schema").locator("code").textContent(), '{\n  "colour": "red",\n  "happy": true\n}');
  assert.equal(await verdict("schema").textContent(), "The answer is valid JSON.");
  await it.shot("playground-schema");
});

test("the place of the error is right wherever JSON.parse refuses", { skip }, async () => {
  const good = '{"a": [1, -2.5e3, "x\\u00e9\\n", true, null, {}], "b": {"c": []}}';
  const rows = await it.page.evaluate(async (text) => {
    const { readJson } = await import("/json_editor.js");
    const cuts = Array.from({ length: text.length }, (_, i) => text.slice(0, i));
    const spoilt = Array.from({ length: text.length }, (_, i) => `${text.slice(0, i)}\u0001${text.slice(i + 1)}`);
    return [...cuts, ...spoilt].map((t) => [t, readJson(t).error]);
  }, good);
  for (const [text, error] of rows) {
    assert.match(error, /\(line 1, column \d+\)$/, text);
    assert.notEqual(error, "it is not JSON");
    const column = Number(/column (\d+)/.exec(error)[1]),
      at = text.indexOf("\u0001");
    assert.ok(column <= (at < 0 ? text.length : at) + 1, `${text}: ${error}`);
  }
});

test("an answer that does not parse is called that", { skip }, async () => {
  await scripted(it.page, [{ content: '{"verdict": mix' }]);
  await run("schema");
  assert.match(await verdict("schema").textContent(), /does not parse: expected a value \(line 1, column 13\)/);
});

test("the server's own refusals are shown", { skip }, async () => {
  const { page } = it;
  const schema = page.getByRole("textbox", { name: "JSON schema" }),
    before = await schema.inputValue();
  await schema.fill('{"type": 5}');
  await run("schema");
  assert.match(await panel("schema").locator(".error").textContent(), /Field: response_format/);
  expectProblem(it, /status of 400/);
  await it.shot("playground-refused");
  await schema.fill(before);
});

test("every example of a schema gives JSON from the real server", { skip }, async () => {
  const { page } = it,
    names = await page.locator("#schema-example option").allTextContents();
  await page.fill("#schema-seed", "7");
  for (const label of names) {
    await page.selectOption("#schema-example", { label });
    await run("schema");
    assert.equal(await verdict("schema").textContent(), "The answer is valid JSON.", label);
  }
  await it.shot("playground-schema-real");
});

test("tools: the round trip, with choices by name", { skip }, async () => {
  const { page } = it;
  await page.getByRole("tab", { name: "Tools" }).click();
  const options = await page.locator("#tools-choice option").allTextContents();
  assert.deepEqual(options, ["default (auto)", "auto", "none", "required", "only get_weather"]);
  assert.equal(await page.locator("#tools-choice").inputValue(), "required");
  await page.selectOption("#tools-choice", { label: "only get_weather" });
  const call = {
    index: 0,
    id: "call_7",
    type: "function",
    function: { name: "get_weather", arguments: '{"city":"Oslo"}' },
  };
  await scripted(page, [{ tool_calls: [call] }]);
  const first = await run("tools");
  assert.deepEqual(first.tool_choice, { type: "function", function: { name: "get_weather" } });
  assert.equal(first.tools[0].function.name, "get_weather");
  assert.equal(first.parallel_tool_calls, false);
  assert.equal(first.max_tokens, 200);
  await page.getByLabel("several calls in one answer").check();
  const card = panel("tools").getByRole("region", { name: "Call of get_weather" });
  assert.equal(JSON.parse(await card.locator("code").textContent()).city, "Oslo");
  await panel("tools").getByLabel("Result of get_weather").fill('{"temperature": 3}');
  await it.shot("playground-tools");
  await scripted(page, [{ content: "It is 3 degrees." }]);
  const [request] = await Promise.all([
    page.waitForRequest("**/v1/chat/completions"),
    panel("tools").getByRole("button", { name: "Send result" }).click(),
  ]);
  const second = request.postDataJSON();
  assert.equal(second.tool_choice, "auto");
  assert.ok(!("parallel_tool_calls" in second));
  const { index, ...sent } = call;
  assert.deepEqual(second.messages.slice(1), [
    { role: "assistant", content: null, tool_calls: [sent] },
    { role: "tool", tool_call_id: "call_7", content: '{"temperature": 3}' },
  ]);
  await panel("tools").getByText("It is 3 degrees.").waitFor();
  assert.equal(await verdict("tools").textContent(), "The model has answered.");
  await it.shot("playground-tools-answered");
});

test("the named one of two tools is called by the real server with arguments that parse", { skip }, async () => {
  const { page } = it;
  await page.selectOption("#tools-example", { label: "One of two tools, by its name" });
  assert.equal(await page.getByLabel("several calls in one answer").isChecked(), false);
  const body = await run("tools");
  assert.deepEqual(body.tool_choice, { type: "function", function: { name: "paint" } });
  const args = JSON.parse(
    await panel("tools").getByRole("region", { name: "Call of paint" }).locator("code").textContent(),
  );
  assert.deepEqual(Object.keys(args), ["colour"]);
  await panel("tools").getByLabel("Result of paint").fill("The wall is blue.");
  await panel("tools").getByRole("button", { name: "Send result" }).click();
  await panel("tools").getByRole("button", { name: "Run" }).waitFor();
  assert.equal(await panel("tools").locator(".error").count(), 0);
  await it.shot("playground-tools-real");
});

test("a phone's width, dark", { skip }, async () => {
  const { page } = it;
  await page.emulateMedia({ colorScheme: "dark" });
  await it.shot("playground-dark");
  await page.setViewportSize({ width: 360, height: 640 });
  for (const name of ["Tools", "JSON schema"]) {
    await page.getByRole("tab", { name }).click();
    assert.ok(await noSidewaysScroll(page));
    assert.ok(await page.locator("#panel-playground").evaluate((el) => el.scrollWidth <= el.clientWidth));
    await it.shot(`phone-playground-${name === "Tools" ? "tools" : "schema"}-dark`);
  }
});

noProblems(it);
