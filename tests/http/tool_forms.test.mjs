// Tools that models know only as functions: functions of namespaces and custom tools with free text,
// in Responses and Chat Completions, with the official SDK; every answer against OpenAI's schemas.
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { validate, validateEvent } from "./openapi.mjs";
import { chat, long, modelName, post, startServer, streamed, user } from "./server.mjs";

const model = modelName;
let server, client;
before(async () => {
  server = await startServer();
  client = new OpenAI({ baseURL: server.url + "/v1", apiKey: "none", maxRetries: 0 });
});
after(() => server.stop());

const exactly = (members) => ({
  type: "object",
  properties: Object.fromEntries(Object.entries(members).map(([k, v]) => [k, { const: v }])),
  required: Object.keys(members),
  additionalProperties: false,
});
const close = { type: "function", name: "close_agent", parameters: exactly({ id: 7 }), strict: false };
const agents = {
  type: "namespace",
  name: "multi_agent_v1",
  description: "Other agents.",
  tools: [close, { type: "custom", name: "note" }],
};
// Escapes in the call's JSON: quotes, line ends, a pair of surrogates, a backslash.
const patch = '*** "a"\n\t\\ é 😀 end';
const literally = (text) => text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
const patcher = {
  type: "custom",
  name: "apply_patch",
  description: "Edits files.",
  format: { type: "grammar", syntax: "regex", definition: literally(patch) },
};
const ask = { model, input: "x", max_output_tokens: 300, temperature: 0 };
const ignoredOf = (response) => response.headers.get("x-inferd-ignored-fields");

async function stream(body) {
  const events = [];
  for await (const event of await client.responses.create({ ...body, stream: true })) {
    validateEvent(event);
    events.push(event);
  }
  return events;
}

test("functions of a namespace are offered, called, and echoed", async () => {
  const body = { ...ask, tools: [agents], tool_choice: { type: "function", name: "close_agent" } };
  const whole = await post(server, "/v1/responses", body);
  assert.equal(whole.status, 200);
  assert.equal(ignoredOf(whole), null);
  const response = validate("Response", await whole.json());
  const [item] = response.output;
  assert.deepEqual(
    [item.type, item.namespace, item.name, JSON.parse(item.arguments)],
    ["function_call", "multi_agent_v1", "close_agent", { id: 7 }],
  );
  assert.deepEqual(response.tools, [agents], "echoed as it came");

  const events = await stream(body);
  const [added] = events.filter((e) => e.type === "response.output_item.added");
  assert.deepEqual([added.item.namespace, added.item.name], ["multi_agent_v1", "close_agent"]);
  const [done] = events.filter((e) => e.type === "response.function_call_arguments.done");
  assert.equal(done.name, "close_agent");

  // The model sees the same function in the definition and in the echoed call.
  const next = [
    { role: "user", content: "x" },
    item,
    { type: "function_call_output", call_id: item.call_id, output: "ok" },
  ];
  const again = await post(server, "/v1/responses", { ...ask, tools: [agents], input: next, tool_choice: "none" });
  assert.equal(again.status, 200, await again.clone().text());
  const tokens = async (input) =>
    (await (await post(server, "/v1/responses/input_tokens", { model, input, tools: [agents] })).json()).input_tokens;
  const plain = structuredClone(next);
  Object.assign(plain[1], { name: "multi_agent_v1__close_agent", namespace: undefined });
  assert.equal(await tokens(next), await tokens(plain));
  assert.notEqual(await tokens(next), await tokens([next[0], { ...item, namespace: undefined }, next[2]]));
});

test("tool_choice names tools by type, name and namespace", async () => {
  const same = { type: "function", name: "close_agent", parameters: exactly({ own: true }) };
  const first = async (tool_choice, tools = [agents, same]) => {
    const response = await post(server, "/v1/responses", { ...ask, tools, tool_choice });
    const text = await response.text();
    assert.equal(response.status, 200, text);
    return JSON.parse(text).output.find((i) => /_call$/.test(i.type));
  };
  const named = await first({ type: "function", name: "close_agent", namespace: "multi_agent_v1" });
  assert.equal(named.namespace, "multi_agent_v1");
  const only = (tool) => ({ type: "allowed_tools", mode: "required", tools: [tool] });
  const space = await first(only({ type: "namespace", name: "multi_agent_v1" }), [same, { ...agents, tools: [close] }]);
  assert.equal(space.namespace, "multi_agent_v1");
  const note = await first(only({ type: "custom", name: "apply_patch" }), [same, patcher]);
  assert.equal(note.input, patch);
  for (const tool_choice of [
    { type: "custom", name: "close_agent" },
    { type: "function", name: "close_agent", namespace: "other" },
    only({ type: "function", name: "apply_patch" }),
  ]) {
    const response = await post(server, "/v1/responses", { ...ask, tools: [agents, same, patcher], tool_choice });
    assert.equal(response.status, 400);
    assert.match((await response.json()).error.param, /^tool_choice/);
  }
});

test("a custom tool is called with text", async () => {
  const body = { ...ask, tools: [patcher], tool_choice: { type: "custom", name: "apply_patch" } };
  const whole = validate("Response", await (await post(server, "/v1/responses", body)).json());
  const [item] = whole.output;
  validate("CustomToolCallResource", item);
  assert.deepEqual([item.type, item.name, item.input], ["custom_tool_call", "apply_patch", patch]);
  assert.deepEqual(whole.tools, [patcher]);

  const events = await stream(body);
  const of = (type) => events.filter((e) => e.type === `response.custom_tool_call_input.${type}`);
  assert.ok(of("delta").length > 3);
  assert.ok(of("delta").every((e) => e.delta));
  assert.equal(
    of("delta")
      .map((e) => e.delta)
      .join(""),
    patch,
  );
  assert.equal(of("done")[0].input, patch);
  assert.equal(events.at(-1).response.output[0].input, patch);

  const output = { type: "custom_tool_call_output", call_id: item.call_id, output: "done" };
  const input = [{ role: "user", content: "x" }, item, output];
  const next = await post(server, "/v1/responses", { ...ask, max_output_tokens: 1, input, tools: [patcher] });
  assert.equal(next.status, 200, await next.clone().text());
  assert.equal(ignoredOf(next), null);
  const stored = await post(server, "/v1/responses", {
    ...ask,
    max_output_tokens: 1,
    previous_response_id: whole.id,
    input: [output],
  });
  assert.equal(stored.status, 200, await stored.clone().text());
  const items = await client.responses.inputItems.list((await stored.json()).id);
  assert.equal(items.data[0].type, "custom_tool_call_output");
  const alone = await post(server, "/v1/responses", { ...ask, input: [output] });
  assert.equal(alone.status, 400, "an output without its call");
});

test("a limit cuts the input of a custom tool, not its markup", async () => {
  const body = { ...ask, tools: [patcher], tool_choice: "required" };
  for (const max_output_tokens of [4, 8, 12, 16, 20]) {
    const response = await client.responses.create({ ...body, max_output_tokens });
    const call = response.output.find((i) => i.type === "custom_tool_call");
    if (call) assert.ok(patch.startsWith(call.input), call.input);
  }
});

test("grammars of custom tools: a regular expression is enforced, Lark is described and named", async () => {
  const tool = (format) => ({ type: "custom", name: "say", format });
  const send = (tools, more) => post(server, "/v1/responses", { ...ask, max_output_tokens: 40, tools, ...more });
  const lark = await send([tool({ type: "grammar", syntax: "lark", definition: 'start: "x"' })]);
  assert.equal(lark.status, 200);
  assert.equal(ignoredOf(lark), "tools[0].format");
  const inside = { ...agents, tools: [tool({ type: "grammar", syntax: "lark", definition: 'start: "x"' })] };
  assert.equal(ignoredOf(await send([inside])), "tools[0].tools[0].format");
  const text = await send([tool({ type: "text" })]);
  assert.equal(ignoredOf(text), null);
  const many = await send([tool({ type: "grammar", syntax: "regex", definition: "[ab]{3}|c" })], {
    tool_choice: "required",
  });
  const call = (await many.json()).output.find((i) => i.type === "custom_tool_call");
  assert.match(call.input, /^([ab]{3}|c)$/);
  for (const [format, param] of [
    [{ type: "grammar" }, "tools[0].format.syntax"],
    [{ type: "grammar", syntax: "regex" }, "tools[0].format.definition"],
    [{ type: "grammar", syntax: "bnf", definition: "x" }, "tools[0].format.syntax"],
    [{ type: "image" }, "tools[0].format.type"],
  ]) {
    const wrong = await send([tool(format)]);
    assert.equal(wrong.status, 400, JSON.stringify(format));
    assert.equal((await wrong.json()).error.param, param);
  }
  const broken = await send([tool({ type: "grammar", syntax: "regex", definition: "(" })], { tool_choice: "required" });
  assert.equal(broken.status, 400);
  assert.match((await broken.json()).error.message, /'say'/);
});

test("tools that a server would run are dropped and named", async () => {
  const types = ["web_search", "tool_search", "image_generation", "code_interpreter"];
  const container = { type: "shell", environment: { type: "container_auto" } };
  const inner = { ...agents, tools: [close, { type: "shell" }] };
  const tools = [...types.map((type) => ({ type })), container, inner];
  const response = await post(server, "/v1/responses", { ...ask, tools });
  assert.equal(response.status, 200, await response.clone().text());
  assert.equal(ignoredOf(response), "tools[0], tools[1], tools[2], tools[3], tools[4], tools[5].tools[1]");
});

// Tools that OpenAI defines and the client runs: the item of a call, and that of its result.
const clientTools = {
  local_shell: {
    call: "local_shell_call",
    schema: "LocalShellToolCall",
    check: (item) => assert.ok(item.action.type === "exec" && item.action.command.length && item.action.env),
    output: (call_id) => ({ type: "local_shell_call_output", id: call_id, output: "done" }),
  },
  shell: {
    call: "shell_call",
    schema: "FunctionShellCall",
    check: (item) => assert.ok(item.action.commands.length && item.environment.type === "local"),
    output: (call_id) => ({
      type: "shell_call_output",
      call_id,
      output: [{ stdout: "one", stderr: "two\n", outcome: { type: "exit", exit_code: 3 } }],
    }),
  },
  apply_patch: {
    call: "apply_patch_call",
    schema: "ApplyPatchToolCall",
    check: ({ operation }) => assert.equal("diff" in operation, operation.type !== "delete_file"),
    output: (call_id) => ({ type: "apply_patch_call_output", call_id, status: "failed", output: "no such file" }),
  },
};
for (const [type, { call, schema, check, output }] of Object.entries(clientTools))
  test(`${type}: called in its own items, streamed and whole, and continued`, async () => {
    // OpenAI's specification cannot name local_shell as a choice.
    const [tool_choice, more] = type === "local_shell" ? ["required", []] : [{ type }, [{ ...close, name: "other" }]];
    const tools = [{ type }, ...more];
    const room = { ...ask, max_output_tokens: 500, temperature: 1.5, tools, tool_choice, parallel_tool_calls: false };
    let item;
    for (let seed = 0; seed < 8 && (long || seed < 2 || !item); seed++) {
      const r = await post(server, "/v1/responses", { ...room, seed });
      assert.equal(r.status, 200, await r.clone().text());
      assert.equal(ignoredOf(r), null);
      const whole = validate("Response", await r.json());
      assert.deepEqual(whole.tools[0], { type });
      const events = await stream({ ...room, seed });
      const last = events.at(-1).response;
      assert.deepEqual(
        last.output.map((i) => [i.type, i.action ?? i.operation]),
        whole.output.map((i) => [i.type, i.action ?? i.operation]),
      );
      const calls = whole.output.filter((i) => i.type === call);
      for (const event of ["response.output_item.added", "response.output_item.done"])
        assert.equal(events.filter((e) => e.type === event && e.item.type === call).length, calls.length);
      for (const one of calls) check(validate(schema, one));
      item ??= calls[0] && { item: calls[0], id: whole.id };
      if (!calls.length) assert.equal(whole.status, "incomplete", "only a limit cuts a call off");
    }
    assert.ok(item, "there was a whole call");
    const result = output(item.item.call_id);
    const next = { ...ask, max_output_tokens: 4, tools, tool_choice: "none" };
    const stored = await post(server, "/v1/responses", { ...next, previous_response_id: item.id, input: [result] });
    assert.equal(stored.status, 200, await stored.clone().text());
    assert.equal(ignoredOf(stored), null);
    const items = await client.responses.inputItems.list((await stored.json()).id);
    assert.ok(items.data.some((i) => i.type === result.type));
    const input = [{ role: "user", content: "x" }, item.item, result];
    const echoed = await post(server, "/v1/responses", { ...next, input });
    assert.equal(echoed.status, 200, await echoed.clone().text());
    const alone = await post(server, "/v1/responses", { ...next, input: [result] });
    assert.equal(alone.status, 400, "an output without its call");
    const only = { type: "allowed_tools", mode: "required", tools: [{ type }] };
    const allowed = await post(server, "/v1/responses", { ...room, tool_choice: only });
    assert.equal(allowed.status, 200, await allowed.clone().text());
  });

test("the model reads what a client's tool did", async () => {
  const call = { type: "shell_call", call_id: "c1", action: { commands: ["ls"] } };
  const tokens = async (output) => {
    const input = [{ role: "user", content: "x" }, call, { type: "shell_call_output", call_id: "c1", output }];
    const r = await post(server, "/v1/responses/input_tokens", { model, input });
    assert.equal(r.status, 200, await r.clone().text());
    return (await r.json()).input_tokens;
  };
  const none = await tokens([]);
  const some = await tokens([{ stdout: "a b c d e f", stderr: "", outcome: { type: "exit", exit_code: 0 } }]);
  const more = await tokens([{ stdout: "a b c d e f", stderr: "", outcome: { type: "timeout" } }]);
  assert.ok(none < some && some < more);
});

test("items and parts that another server's answers had are tolerated and named", async () => {
  const input = [
    { role: "user", content: "x" },
    { type: "web_search_call", id: "ws_1", status: "completed" },
    { type: "of_tomorrow", id: "t_1", whatever: [1] },
    {
      role: "assistant",
      content: [
        { type: "hologram", x: 1 },
        { type: "output_text", text: "hm" },
      ],
    },
    { type: "reasoning", summary: [{ type: "new_summary", s: 1 }], content: [{ type: "reasoning_text", text: "so" }] },
    { role: "user", content: "y" },
  ];
  const response = await post(server, "/v1/responses", { ...ask, max_output_tokens: 2, input });
  assert.equal(response.status, 200, await response.clone().text());
  assert.equal(ignoredOf(response), "input[1], input[2], input[3].content[0], input[4].summary[0]");
  const part = { type: "hologram" };
  const refused = await post(server, "/v1/responses", { ...ask, input: [{ role: "user", content: [part] }] });
  assert.equal((await refused.json()).error.param, "input[0].content[0].type");
});

test("chat completions: a custom tool is called with text", async () => {
  const custom = {
    name: "apply_patch",
    description: "Edits files.",
    format: { type: "grammar", grammar: { syntax: "regex", definition: literally(patch) } },
  };
  const tools = [
    { type: "custom", custom },
    { type: "function", function: { name: "now" } },
  ];
  const tool_choice = { type: "custom", custom: { name: "apply_patch" } };
  const body = { messages: user("x"), max_tokens: 300, temperature: 0, tools, tool_choice };
  const whole = validate("CreateChatCompletionResponse", await (await chat(server, body)).json());
  const [call] = whole.choices[0].message.tool_calls;
  assert.deepEqual([call.type, call.custom], ["custom", { name: "apply_patch", input: patch }]);

  let input = "";
  const heads = [];
  for await (const chunk of await client.chat.completions.create({ model, ...body, stream: true }))
    for (const part of chunk.choices[0]?.delta.tool_calls ?? []) {
      if (part.id) heads.push([part.type, part.custom.name]);
      input += part.custom.input;
    }
  assert.deepEqual(heads, [["custom", "apply_patch"]]);
  assert.equal(input, patch);

  const answered = [...user("x"), whole.choices[0].message, { role: "tool", tool_call_id: call.id, content: "done" }];
  const next = await chat(server, { messages: answered, max_tokens: 1, tools });
  assert.equal(next.status, 200, await next.clone().text());
  assert.equal(ignoredOf(next), null);
  const allowed = { type: "allowed_tools", allowed_tools: { mode: "required", tools: [tool_choice] } };
  const only = await chat(server, { ...body, tool_choice: allowed });
  assert.equal((await only.json()).choices[0].message.tool_calls[0].type, "custom");
  const lark = structuredClone(tools);
  lark[0].custom.format.grammar = { syntax: "lark", definition: 'start: "x"' };
  const named = await chat(server, { ...body, max_tokens: 1, tools: lark });
  assert.equal(ignoredOf(named), "tools[0].custom.format");
  const wrong = structuredClone(tools);
  delete wrong[0].custom.format.grammar;
  const refused = await chat(server, { ...body, tools: wrong });
  assert.equal((await refused.json()).error.param, "tools[0].custom.format.grammar");
});

// A template that shows calls as LFM2's models write them.
const pythonic = `{% if tools %}<|im_start|>system
List of tools: {{ tools | tojson }}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.tool_calls %}<|tool_call_start|>[{% for c in m.tool_calls %}{{ c.function.name }}({% for k, v in \
c.function.arguments.items() %}{{ k }}={{ v | tojson }}{{ ", " if not loop.last }}{% endfor %})\
{{ ", " if not loop.last }}{% endfor %}]<|tool_call_end|>{% else %}{{ m.content }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`.replaceAll("\\\n", "");

test("calls in Python's form: keyword arguments that the schema allows, or JSON where it needs that", async (t) => {
  const file = join(server.folder, "pythonic.jinja");
  writeFileSync(file, pythonic);
  const own = await startServer(["--chat-template", file]);
  t.after(() => own.stop());
  const word = { type: "string", pattern: "^[a-z]{1,4}$" };
  const place = { $ref: "#/$defs/place" };
  const parameters = {
    type: "object",
    properties: { city: word, days: { type: "integer", minimum: 1, maximum: 30 }, now: { type: "boolean" }, at: place },
    required: ["days", "at"],
    additionalProperties: false,
    $defs: { place: { ...exactly({ lat: 1, lon: 2 }), description: "a place" } },
  };
  const call = async (fields, seed, choice = "required") => {
    const tools = [{ type: "function", function: { name: "look", parameters, strict: true, ...fields } }];
    const body = { messages: user("x"), tools, tool_choice: choice, max_tokens: 300, temperature: 1.2, seed };
    const response = await chat(own, { ...body, parallel_tool_calls: false });
    return { status: response.status, ...(await response.json()) };
  };
  const seen = new Set();
  for (let seed = 0; seed < 8; seed++) {
    const answer = await call({}, seed);
    assert.equal(answer.choices[0].finish_reason, "tool_calls", JSON.stringify(answer));
    const text = answer.choices[0].message.tool_calls[0].function.arguments;
    const { city, days, now, at, ...rest } = JSON.parse(text);
    assert.deepEqual([at, rest], [{ lat: 1, lon: 2 }, {}], text);
    assert.ok(Number.isInteger(days) && days >= 1 && days <= 30 && (city === undefined || /^[a-z]{1,4}$/.test(city)));
    assert.ok([undefined, true, false].includes(now), text);
    // Rewritten from keywords, without the spaces that this model puts into JSON, in the schema's order.
    assert.equal(text, JSON.stringify({ city, days, now, at }));
    seen.add(`${city !== undefined} ${now !== undefined}`);
  }
  assert.ok(seen.size > 1, "optional arguments come and stay away");

  // Without strict both forms are allowed; without parameters there is nothing between the parentheses.
  for (let seed = 0; seed < 2; seed++) {
    const loose = await call({ strict: false }, seed);
    assert.deepEqual(JSON.parse(loose.choices[0].message.tool_calls[0].function.arguments).at, { lat: 1, lon: 2 });
    const none = await call({ parameters: exactly({}) }, seed);
    assert.equal(none.choices[0].message.tool_calls[0].function.arguments, "{}");
    // Such a name cannot be a keyword.
    const json = await call({ parameters: exactly({ "a-b": 1, class: "x" }) }, seed);
    assert.deepEqual(JSON.parse(json.choices[0].message.tool_calls[0].function.arguments), { "a-b": 1, class: "x" });
  }
  const broken = { type: "object", properties: { a: { type: "object", properties: { b: { pattern: "(" } } } } };
  const refused = await call({ parameters: broken }, 0);
  assert.equal(refused.status, 400);
  assert.match(refused.error.message, /#\/properties\/a\/properties\/b/, "the place within the whole schema");
});

// As LFM2's own templates: shows tools and results, but no calls. Its control tokens are in the vocabulary.
const unshown = `{{ bos_token }}{% if tools %}<|im_start|>system
List of tools: {{ tools | tojson }}
{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}`;

test("calls in LFM2's form, which its template does not show", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "inferd-lfm2-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "lfm2");
  cpSync("tests/golden/arch/lfm2/hf", file, { recursive: true });
  for (const name of ["tokenizer.json", "tokenizer_config.json"]) {
    const text = readFileSync(join(file, name), "utf8");
    const renamed = text.replaceAll("start_header_id", "tool_call_start").replaceAll("end_header_id", "tool_call_end");
    writeFileSync(join(file, name), renamed);
  }
  writeFileSync(join(file, "chat_template.jinja"), unshown);
  const own = await startServer([], [{ name: "lfm2", file }]);
  t.after(() => own.stop());
  const parameters = { ...exactly({ city: "Rome", now: true }), additionalProperties: false };
  const tools = [{ type: "function", function: { name: "look", parameters, strict: true } }];
  const body = { model: "lfm2", messages: user("x"), tools, tool_choice: "required", max_tokens: 200 };
  const response = await chat(own, { ...body, parallel_tool_calls: false });
  assert.equal(response.status, 200, await response.clone().text());
  const { message, finish_reason } = (await response.json()).choices[0];
  assert.equal(finish_reason, "tool_calls");
  assert.equal(message.content, null);
  assert.equal(message.tool_calls[0].function.name, "look");
  assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: "Rome", now: true });
  const { chunks } = await streamed(own, { ...body, parallel_tool_calls: false });
  const pieces = chunks.flatMap((c) => c.choices[0]?.delta?.tool_calls ?? []).map((c) => c.function.arguments ?? "");
  assert.equal(pieces.join(""), message.tool_calls[0].function.arguments);

  // The next turn shows the call to the model with its control tokens; those that a user writes are text.
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "<|tool_call_end|>" };
  const next = { model: "lfm2", messages: [...body.messages, message, result], tools };
  const { prompt } = await (await post(own, "/apply-template", next)).json();
  const written = '<|tool_call_start|>[look(city="Rome", now=True)]<|tool_call_end|>';
  assert.ok(prompt.endsWith(`\nuser: x\nassistant: ${written}\ntool: <|tool_call_end|>\nassistant: `), prompt);
  const tokens = async (messages) => {
    const answer = await chat(own, { ...next, messages, max_tokens: 1 });
    return (await answer.json()).usage.prompt_tokens;
  };
  const asText = await tokens([...body.messages, { role: "assistant", content: written }, result]);
  assert.ok((await tokens(next.messages)) < asText - 10, "two tokens are all of the marks");
});

// A template that shows calls as Gemma 4's models write them.
const bare =
  `{% macro value(v) %}{% if v is string %}<|"|>{{ v }}<|"|>{% else %}{{ v | tojson }}{% endif %}{% endmacro %}\
{% if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{% for c in m.tool_calls or [] %}<|tool_call>call:{{ c.function.name }}{{ "{" }}{% for k, v in \
c.function.arguments.items() %}{{ k }}:{{ value(v) }}{{ "," if not loop.last }}{% endfor %}{{ "}" }}<tool_call|>\
{% endfor %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`.replaceAll("\\\n", "");

test("calls in Gemma's form: bare objects that the schema allows, or JSON where it needs that", async (t) => {
  const file = join(server.folder, "bare.jinja");
  writeFileSync(file, bare);
  const own = await startServer(["--chat-template", file]);
  t.after(() => own.stop());
  const city = { type: "string", enum: ["Rome", 'New "York"', "a}b"] };
  const parameters = {
    type: "object",
    properties: {
      city,
      days: { type: "integer", minimum: 1, maximum: 30 },
      via: { type: "array", items: city },
      at: {
        type: "object",
        properties: { now: { type: "boolean" }, city },
        required: ["now"],
        additionalProperties: false,
      },
      word: { type: "string", pattern: "^[a-z]{1,4}$" },
    },
    required: ["city", "days", "at", "word"],
    additionalProperties: false,
  };
  const call = async (fields, seed) => {
    const tools = [{ type: "function", function: { name: "look", parameters, strict: true, ...fields } }];
    const body = { messages: user("x"), tools, tool_choice: "required", max_tokens: 1000, temperature: 1.2, seed };
    const response = await chat(own, { ...body, parallel_tool_calls: false });
    const answer = await response.json();
    assert.equal(response.status, 200, JSON.stringify(answer));
    assert.equal(answer.choices[0].finish_reason, "tool_calls", JSON.stringify(answer));
    return answer.choices[0].message.tool_calls[0].function.arguments;
  };
  for (let seed = 0; seed < 6; seed++) {
    const text = await call({}, seed);
    const { city: name, days, via, at, word, ...rest } = JSON.parse(text);
    assert.deepEqual(rest, {}, text);
    assert.ok(city.enum.includes(name) && Number.isInteger(days) && days >= 1 && days <= 30, text);
    assert.ok((via ?? []).every((v) => city.enum.includes(v)) && typeof at.now === "boolean", text);
    assert.match(word, /^[a-z]{1,4}$/);
    // Rewritten from the bare object, in the schema's order.
    assert.equal(text, JSON.stringify({ city: name, days, via, at, word }));
  }
  assert.equal(await call({ parameters: exactly({}) }, 0), "{}");
  assert.deepEqual(JSON.parse(await call({ parameters: exactly({ "a-b": 1, c: "x" }) }, 0)), { "a-b": 1, c: "x" });
  // The history shows calls in the same form.
  const calls = [{ id: "1", type: "function", function: { name: "look", arguments: '{"city": "Rome", "days": 2}' } }];
  const messages = [...user("x"), { role: "assistant", content: "", tool_calls: calls }];
  messages.push({ role: "tool", tool_call_id: "1", content: "y" });
  const prompt = await post(own, "/apply-template", {
    messages,
    tools: [{ type: "function", function: { name: "look" } }],
  });
  assert.match((await prompt.json()).prompt, /call:look\{city:<\|"\|>Rome<\|"\|>,days:2\}<tool_call\|>/);
});
