// Anthropic's official client against /v1/messages.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { onlyLoopback } from "./loopback.mjs";
import { chat, modelName, post, startServer, user } from "./server.mjs";

onlyLoopback();

let server, client;
before(async () => {
  server = await startServer();
  client = new Anthropic({ baseURL: server.url, apiKey: "none", maxRetries: 0 });
});
after(() => server.stop());

const ask = { model: modelName, max_tokens: 40, temperature: 0 };

test("answers as a message", async () => {
  const m = await client.messages.create({ ...ask, messages: user("Hello!") });
  assert.equal(m.type, "message");
  assert.equal(m.role, "assistant");
  assert.equal(m.content.length, 1);
  assert.ok(m.content[0].text.length > 0);
  assert.ok(["end_turn", "max_tokens"].includes(m.stop_reason));
  assert.equal(m.stop_sequence, null);
  const same = await (await chat(server, { messages: user("Hello!"), temperature: 0, max_tokens: 40 })).json();
  assert.equal(m.content[0].text, same.choices[0].message.content, "the same answer as over OpenAI's protocol");
  assert.equal(m.usage.input_tokens + m.usage.cache_read_input_tokens, same.usage.prompt_tokens);
  assert.equal(m.usage.output_tokens, same.usage.completion_tokens);
});

test("streams the events in order", async () => {
  const whole = await client.messages.create({ ...ask, messages: user("Tell me a story.") });
  const types = [];
  const stream = client.messages.stream({ ...ask, messages: user("Tell me a story.") });
  stream.on("streamEvent", (e) => types.at(-1) !== e.type && types.push(e.type));
  const m = await stream.finalMessage();
  assert.deepEqual(types, [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
  ]);
  assert.equal(m.content[0].text, whole.content[0].text);
  assert.equal(m.stop_reason, whole.stop_reason);
  assert.equal(m.usage.output_tokens, whole.usage.output_tokens);
});

test("a stop sequence ends the answer and is named", async () => {
  const whole = await client.messages.create({ ...ask, messages: user("Tell me a story.") });
  const word = whole.content[0].text.split(" ")[4];
  const m = await client.messages.create({
    ...ask,
    messages: user("Tell me a story."),
    stop_sequences: [word, "never said"],
  });
  assert.equal(m.stop_reason, "stop_sequence");
  assert.equal(m.stop_sequence, word);
  assert.ok(whole.content[0].text.startsWith(m.content[0].text));
});

test("the assistant's last message is continued", async () => {
  const messages = [...user("Tell me a story."), { role: "assistant", content: "Once there was a green" }];
  const m = await client.messages.create({ ...ask, max_tokens: 5, messages });
  assert.ok(m.content[0].text.length > 0);
});

test("system prompt, content blocks and tool results reach the prompt", async () => {
  const count = async (body) => (await client.messages.countTokens({ model: modelName, ...body })).input_tokens;
  const plain = await count({ messages: user("Hello!") });
  assert.ok(plain > 0);
  assert.ok((await count({ system: "Be brief.", messages: user("Hello!") })) > plain);
  assert.equal(
    await count({
      messages: [{ role: "user", content: [{ type: "text", text: "Hello!", cache_control: { type: "ephemeral" } }] }],
    }),
    plain,
  );
  const m = await client.messages.create({ ...ask, messages: user("Hello!") });
  assert.equal(m.usage.input_tokens + m.usage.cache_read_input_tokens, plain);
});

test("a tool is called with valid arguments, and its result is sent back", async () => {
  const tools = [
    {
      name: "get_weather",
      description: "Weather of a city",
      input_schema: {
        type: "object",
        properties: { city: { type: "string", maxLength: 12 }, unit: { enum: ["C", "F"] } },
        required: ["city", "unit"],
        additionalProperties: false,
      },
    },
  ];
  const body = {
    ...ask,
    max_tokens: 200,
    tools,
    tool_choice: { type: "tool", name: "get_weather" },
    messages: user("How warm is it in Rome?"),
  };
  const m = await client.messages.create(body);
  const use = m.content.at(-1);
  assert.equal(m.stop_reason, "tool_use");
  assert.equal(use.type, "tool_use");
  assert.equal(use.name, "get_weather");
  assert.deepEqual(Object.keys(use.input).sort(), ["city", "unit"]);
  assert.ok(["C", "F"].includes(use.input.unit));
  const streamed = await client.messages.stream(body).finalMessage();
  assert.deepEqual(streamed.content.at(-1).input, use.input);
  const back = await client.messages.create({
    ...ask,
    tools,
    messages: [
      ...user("How warm is it in Rome?"),
      { role: "assistant", content: [use] },
      { role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: "31 degrees" }] },
    ],
  });
  assert.ok(back.usage.input_tokens > 0);
});

test("sends the queue's headers like OpenAI's endpoints", async () => {
  const r = await post(server, "/v1/messages", { ...ask, max_tokens: 4, messages: user("Hello!") });
  assert.ok(Number(r.headers.get("x-ratelimit-limit-requests")) > 0);
});

test("errors have Anthropic's form", async () => {
  await assert.rejects(
    client.messages.create({ ...ask, model: "nobody", messages: user("x") }),
    (e) => e instanceof Anthropic.NotFoundError && e.error.error.type === "not_found_error",
  );
  await assert.rejects(
    client.messages.create({ ...ask, temperature: 9, messages: user("x") }),
    (e) => e instanceof Anthropic.BadRequestError && e.error.error.param === "temperature",
  );
  const wrong = [
    [{ messages: user("x") }, "max_tokens"],
    [{ max_tokens: 4, messages: [{ role: "tool", content: "x" }] }, "messages[0].role"],
    [{ max_tokens: 4, messages: user([{ type: "redacted_thinking", data: "x" }]) }, "messages"],
    [{ max_tokens: 4, messages: user("x"), stop_sequences: [1] }, "stop_sequences[0]"],
    [{ max_tokens: 4, messages: user("x"), stop_sequences: ["y", "x".repeat(4097)] }, "stop_sequences[1]"],
    [{ max_tokens: 4, messages: user("x"), tools: [[1]] }, "tools[0]"],
    [
      {
        max_tokens: 4,
        messages: user("x"),
        tools: [{ name: "f", input_schema: {} }],
        tool_choice: { type: "auto", name: "f" },
      },
      "tool_choice.name",
    ],
    [
      {
        max_tokens: 4,
        messages: user("x"),
        tools: [{ type: "web_fetch_20250910", name: "web_fetch" }],
        tool_choice: { type: "any" },
      },
      "tool_choice",
    ],
  ];
  for (const [body, param] of wrong) {
    const r = await post(server, "/v1/messages", { model: modelName, ...body });
    const { type, error } = await r.json();
    assert.deepEqual([r.status, type, error.type, error.param], [400, "error", "invalid_request_error", param]);
  }
});

test("advisory fields are accepted and named", async () => {
  const thought = { type: "thinking", thinking: "x", signature: "s" };
  const assistant = (...content) => ({ messages: [{ role: "assistant", content }, ...user("y")] });
  const ignored = [
    [{ messages: user([{ type: "text", text: "x", content: "y" }]) }, "messages[0].content[0].content"],
    [{ messages: user("x"), system: [{ type: "text", text: "x", input: {} }] }, "system[0].input"],
    [{ messages: user("x"), thinking: { type: "enabled", budget_tokens: 9 } }, "thinking.budget_tokens, thinking"],
    [{ messages: user("x"), thinking: { type: "adaptive" } }, null],
    [{ messages: user("x"), thinking: { type: "adaptive", display: "omitted" } }, null],
    [{ messages: user("x"), thinking: { type: "disabled" } }, null],
    [{ messages: user("x"), thinking: null }, null],
    [{ messages: user("x"), container: "c", metadata: { user_id: "u" } }, "container, metadata"],
    [{ messages: user("x"), tools: [{ name: "f", input_schema: {}, cache_control: {}, eager: 1 }] }, "tools[0].eager"],
    [{ messages: user("x"), context_management: { edits: [1] }, surprise: 1 }, "context_management, surprise"],
    [{ messages: user("x"), output_config: { effort: "high" } }, "output_config.effort"],
    [assistant(thought, { type: "text", text: "x" }), "messages[0].content[0].signature"],
    [assistant({ type: "tool_use", id: "a", name: "b", input: {}, caller: {} }), "messages[0].content[0].caller"],
  ];
  for (const [body, names] of ignored) {
    const r = await post(server, "/v1/messages", { model: modelName, max_tokens: 1, ...body });
    assert.equal(r.status, 200, `${JSON.stringify(body)}: ${await r.text()}`);
    assert.equal(r.headers.get("x-inferd-ignored-fields"), names);
  }
});

test("a system message may follow other messages", async () => {
  const count = async (messages) => (await client.messages.countTokens({ model: modelName, messages })).input_tokens;
  const turns = [...user("x"), { role: "assistant", content: "y" }];
  const system = { role: "system", content: [{ type: "text", text: "Be kind." }] };
  const without = await count([...turns, ...user("z")]);
  assert.ok((await count([...turns, system, ...user("z")])) > without);
  assert.ok((await count([...turns, ...user("z"), { role: "system", content: "Be kind." }])) > without);
});

// Blocks as clients send them and echo them: the fields that are ignored, or the field that is wrong.
const said = (...content) => [...user("Hi"), { role: "assistant", content }, ...user("y")];
const call = { type: "tool_use", id: "t1", name: "f", input: {} };
const result = (content, rest = {}) => [
  ...user("Hi"),
  { role: "assistant", content: [call] },
  { role: "user", content: [{ type: "tool_result", tool_use_id: "t1", content, ...rest }] },
];
const text = (words) => ({ type: "text", text: words });
const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "aGk=" } };
const notes = { type: "document", source: { type: "text", media_type: "text/plain", data: "Notes." } };
const pdf = { type: "document", source: { type: "base64", media_type: "application/pdf", data: "aGk=" } };
const found = { type: "search_result", source: "http://a/", title: "A", content: [text("Found.")] };
const blocks = [
  { named: "text with marks", messages: user([{ ...text("x"), cache_control: { type: "ephemeral", ttl: "1h" } }]) },
  {
    named: "citations",
    messages: said({ ...text("x"), citations: [{ type: "char_location" }] }),
    ignored: "citations",
  },
  { named: "no citations", messages: said({ ...text("x"), citations: null }) },
  { named: "thinking", messages: said({ type: "thinking", thinking: "x", signature: "s" }, text("x")) },
  { named: "thinking without signature", messages: said({ type: "thinking", thinking: "x" }, text("x")) },
  {
    named: "redacted thinking",
    messages: said({ type: "redacted_thinking", data: "x" }, text("x")),
    ignored: "messages[1].content[0]",
  },
  {
    named: "a search by another server",
    messages: said(
      { type: "server_tool_use", id: "s", name: "web_search", input: { query: "q" } },
      { type: "web_search_tool_result", tool_use_id: "s", content: [{ type: "web_search_result", url: "u" }] },
      text("It is so."),
    ),
    ignored: "messages[1].content[0], messages[1].content[1]",
  },
  {
    named: "a call by another server",
    messages: said(
      { type: "mcp_tool_use", id: "s", name: "n", server_name: "m", input: {} },
      { type: "mcp_tool_result", tool_use_id: "s", is_error: false, content: [text("r")] },
    ),
    ignored: "messages[1].content[0], messages[1].content[1]",
  },
  { named: "a new type of echo", messages: said({ type: "hologram", data: 1 }, text("x")), ignored: "content[0]" },
  { named: "a summary", messages: said({ type: "compaction", content: "So far." }, text("x")) },
  { named: "an empty answer", messages: said() },
  {
    named: "a call",
    messages: said({ ...call, caller: { type: "direct" } }),
    ignored: "messages[1].content[0].caller",
  },
  { named: "a document", messages: user([{ ...notes, title: "T", context: "C", citations: { enabled: true } }]) },
  { named: "a document of blocks", messages: user([{ ...notes, source: { type: "content", content: [text("N")] } }]) },
  { named: "a search result", messages: user([{ ...found, citations: { enabled: true } }]) },
  { named: "a result", messages: result("31") },
  {
    named: "a result of blocks",
    messages: result([{ ...text("31"), more: 1 }]),
    ignored: "content[0].content[0].more",
  },
  { named: "a failed call", messages: result("no such file", { is_error: true }) },
  { named: "a result without content", messages: result(undefined) },
  { named: "an empty result", messages: result([]) },
  { named: "a result that is a document", messages: result([notes]) },
  { named: "a result of a search", messages: result([found]) },
  {
    named: "a result that names a tool",
    messages: result([{ type: "tool_reference", tool_name: "f", more: 1 }]),
    ignored: "messages[2].content[0].content[0].more",
  },
  {
    named: "text before a result",
    messages: [...result("1").slice(0, 2), { role: "user", content: [text("and"), ...result("1")[2].content] }],
  },
  { named: "an image", messages: user([text("x"), image]), wrong: "messages[0].content[1]" },
  {
    named: "an image's address",
    messages: user([{ ...image, source: { type: "url" } }]),
    wrong: "messages[0].content[0]",
  },
  {
    named: "a result that is an image",
    messages: result([text("s"), image]),
    wrong: "messages[2].content[0].content[1]",
  },
  { named: "a PDF", messages: user([pdf]), wrong: "messages[0].content[0]" },
  {
    named: "a file that is not named",
    messages: user([{ ...pdf, source: { type: "file" } }]),
    wrong: "messages[0].content[0].source.file_id",
  },
  { named: "a new type of block", messages: user([{ type: "hologram" }]), wrong: "messages[0].content[0].type" },
  { named: "a call of the user", messages: user([call]), wrong: "messages[0].content[0]" },
  { named: "an image of the assistant", messages: said(image), wrong: "messages[1].content[0]" },
];
const beta = ["web_search_20260209", "web_fetch_20250910", "code_execution_20250825"]
  .concat(["advisor_20260301", "tool_search_tool_regex_20251119"])
  .map((type) => ({ type, name: type.replace(/_2.*/, "") }));
const f = { name: "f", input_schema: { type: "object", properties: {} } };
const hints = { defer_loading: true, input_examples: [{}], eager_input_streaming: true, allowed_callers: ["direct"] };
const fields = [
  { named: "a server's tools", tools: [f, ...beta], ignored: beta.map((_, i) => `tools[${i + 1}]`).join(", ") },
  { named: "a toolset", tools: [{ type: "mcp_toolset", mcp_server_name: "m" }], ignored: "tools[0]" },
  {
    named: "a server's tool demanded",
    tools: [f, beta[0]],
    tool_choice: { type: "tool", name: "web_search" },
    wrong: "tool_choice",
  },
  {
    named: "hints of a tool",
    tools: [{ ...f, type: "custom", strict: true, cache_control: { type: "ephemeral" }, ...hints }],
    ignored: Object.keys(hints)
      .map((k) => `tools[0].${k}`)
      .join(", "),
  },
  { named: "hints that are not set", tools: [{ ...f, strict: null, defer_loading: null }] },
  { named: "one call", tools: [f], tool_choice: { type: "auto", disable_parallel_tool_use: true } },
  { named: "no call", tools: [f], tool_choice: { type: "none" } },
  { named: "an effort", output_config: { effort: "xhigh" }, ignored: "output_config.effort" },
  { named: "a tier", service_tier: "auto" },
  {
    named: "what runs elsewhere",
    container: { id: "c", skills: [] },
    context_management: { edits: [{ type: "clear_tool_uses_20250919" }] },
    mcp_servers: [{ type: "url", url: "http://m/", name: "m" }],
    service_tier: "priority",
    ignored: "container, context_management, mcp_servers, service_tier",
  },
].map((row) => ({ messages: user("x"), ...row }));

for (const { named, wrong, ignored, ...body } of [...blocks, ...fields])
  test(`${named}: ${wrong ? "refused" : "accepted, and counted as it is used"}`, async () => {
    const r = await post(server, "/v1/messages?beta=true", { model: modelName, max_tokens: 1, ...body });
    const answer = await r.json();
    if (wrong) {
      assert.deepEqual([r.status, answer.error?.type, answer.error?.param], [400, "invalid_request_error", wrong]);
      return;
    }
    assert.equal(r.status, 200, JSON.stringify(answer));
    const names = r.headers.get("x-inferd-ignored-fields") ?? "";
    assert.ok(names.includes(ignored ?? ""), `${names} has ${ignored}`);
    const { container, service_tier, ...counted } = body;
    const { input_tokens } = await client.beta.messages.countTokens({ model: modelName, ...counted });
    const u = answer.usage;
    assert.equal(input_tokens, u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens);
  });

// Tools that Anthropic defines and the client runs: the model gets their documented input.
const clientTools = [
  [{ type: "bash_20250124", name: "bash" }, ["command", "restart"], []],
  [
    { type: "text_editor_20250728", name: "str_replace_based_edit_tool", max_characters: 100 },
    ["command", "path", "file_text", "old_str", "new_str", "insert_line", "insert_text", "view_range"],
    ["view", "create", "str_replace", "insert"],
  ],
  [
    { type: "text_editor_20250124", name: "str_replace_editor" },
    ["command", "path", "file_text", "old_str", "new_str", "insert_line", "view_range"],
    ["view", "create", "str_replace", "insert", "undo_edit"],
  ],
  [
    { type: "memory_20250818", name: "memory" },
    ["command", "path", "file_text", "old_str", "new_str", "insert_line", "insert_text", "view_range"].concat([
      "old_path",
      "new_path",
    ]),
    ["view", "create", "str_replace", "insert", "delete", "rename"],
  ],
  [
    { type: "computer_20250124", name: "computer", display_width_px: 800, display_height_px: 600, display_number: 1 },
    ["action", "coordinate", "text", "start_coordinate", "scroll_direction", "scroll_amount", "duration"],
    ["key", "left_click", "screenshot", "scroll", "wait"],
  ],
  [{ type: "bash_20991231", name: "bash" }, ["command", "restart"], []],
];
for (const [tool, members, words] of clientTools)
  test(`${tool.type} is called by its name, with its documented input`, async () => {
    const body = {
      max_tokens: 200,
      tools: [tool],
      tool_choice: { type: "tool", name: tool.name },
      messages: user("x"),
    };
    const seen = new Set();
    for (let seed = 0; seed < 4; seed++) {
      const r = await post(server, "/v1/messages", { model: modelName, ...body, seed });
      const answer = await r.json();
      assert.equal(r.status, 200, JSON.stringify(answer));
      const hints = ["display_number", "max_characters"]
        .filter((name) => name in tool)
        .map((name) => `tools[0].${name}`);
      assert.equal(r.headers.get("x-inferd-ignored-fields") ?? "", hints.join(", "));
      for (const use of answer.content.filter((b) => b.type === "tool_use")) {
        assert.equal(use.name, tool.name);
        for (const key of Object.keys(use.input)) assert.ok(members.includes(key), key);
        seen.add(use.input.command ?? use.input.action);
      }
    }
    if (words.length > 4) for (const word of seen) assert.ok(typeof word === "string");
    // Each documented command is one that the model may write, and no other.
    const wanted = { ...body, tool_choice: { type: "auto" } };
    const { input_tokens } = await client.beta.messages.countTokens({
      model: modelName,
      ...wanted,
      max_tokens: undefined,
    });
    const none = await client.beta.messages.countTokens({ model: modelName, messages: user("x") });
    assert.ok(input_tokens > none.input_tokens + 20, "the model sees its description");
  });

test("a tool with a schema is the client's, whatever its type", async () => {
  const tools = [{ ...f, type: "of_tomorrow_20990101" }];
  const r = await post(server, "/v1/messages", {
    ...ask,
    max_tokens: 60,
    messages: user("x"),
    tools,
    tool_choice: { type: "any" },
  });
  const answer = await r.json();
  assert.equal(r.status, 200, JSON.stringify(answer));
  assert.equal(answer.content.find((b) => b.type === "tool_use").name, "f");
});

test("a tool that a result names is text for the model", async () => {
  const count = async (content) =>
    (await client.messages.countTokens({ model: modelName, messages: result(content) })).input_tokens;
  assert.ok((await count([{ type: "tool_reference", tool_name: "get_weather" }])) > (await count([])) + 2);
});

test("documents and search results become text", async () => {
  const count = async (content) =>
    (await client.messages.countTokens({ model: modelName, messages: user(content) })).input_tokens;
  assert.equal(
    await count([{ ...notes, title: "T", context: "C" }, text("Sum up.")]),
    await count([text("<document>\n<title>T</title>\n<context>C</context>\nNotes.\n</document>\n"), text("Sum up.")]),
  );
  assert.equal(
    await count([found]),
    await count("<search_result>\n<title>A</title>\n<source>http://a/</source>\nFound.\n</search_result>\n"),
  );
});

test("any version, beta and kind of key is accepted", async () => {
  const body = { ...ask, max_tokens: 1, messages: user("x") };
  for (const headers of [
    {},
    { "anthropic-version": "2099-01-01", "anthropic-beta": "a-2025-01-01,b" },
    { Authorization: "Bearer none" },
    { "x-api-key": "none" },
  ])
    assert.equal((await post(server, "/v1/messages?beta=true", body, { headers })).status, 200);
});

// The first block of Claude Code's system prompt, whose hashes change.
test("the line for bills does not spoil cached prompts", async () => {
  const bill = (hash) => `x-anthropic-billing-header: cc_version=2.1.${hash}; cc_entrypoint=cli; cch=${hash};`;
  const long = "You are a careful helper. ".repeat(40) + process.pid;
  const turn = (system, messages) => client.messages.create({ ...ask, max_tokens: 4, system, messages }).withResponse();
  const prompt = ({ usage }) => usage.input_tokens + usage.cache_read_input_tokens;
  const first = await turn([text(bill("36ee5")), text(long)], user("Hello!"));
  assert.equal(first.response.headers.get("x-inferd-ignored-fields"), "system[0]");
  const messages = [...user("Hello!"), { role: "assistant", content: first.data.content }, ...user("And?")];
  const second = await turn([text(bill("0aaa9")), text(long)], messages);
  assert.ok(second.data.usage.cache_read_input_tokens > prompt(first.data) * 0.9, JSON.stringify(second.data.usage));
  const without = await turn([text(long)], user("Hello!"));
  assert.equal(prompt(without.data), prompt(first.data));
  const lines = await turn(`${bill("1")}\n${long}`, user("Hello!"));
  assert.equal(lines.response.headers.get("x-inferd-ignored-fields"), "system");
  const plain = await turn(long, user("Hello!"));
  assert.equal(prompt(lines.data), prompt(plain.data));
  const alone = await turn([text(bill("2"))], user("Hello!"));
  assert.equal(prompt(alone.data), prompt((await turn(undefined, user("Hello!"))).data));
});

// The demo model with Qwen's template, which here opens the block of thinking that the model of that
// template opens itself. The demo model never closes it, so all of its answer is thought.
test("thinking is switched, signed, streamed, hidden and echoed", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inferd-thinking-"));
  const file = join(folder, "template.jinja");
  const qwen = readFileSync("tests/data/chat/templates/Qwen-Qwen3-0.6B.jinja", "utf8");
  writeFileSync(file, qwen.replace(/(\{%- endif %\})(\s*\{%- endif %\}\s*)$/, "{%- else %}{{- '<think>\\n' }}$1$2"));
  const own = await startServer(["--chat-template", file]);
  try {
    const api = new Anthropic({ baseURL: own.url, apiKey: "none", maxRetries: 0 });
    const on = { type: "enabled", budget_tokens: 1024 };
    const request = { ...ask, max_tokens: 12, messages: user("Tell me a story."), thinking: on };
    const { data: whole, response } = await api.messages.create(request).withResponse();
    assert.equal(response.headers.get("x-inferd-ignored-fields"), "thinking.budget_tokens");
    const [thought] = whole.content;
    assert.equal(thought.type, "thinking");
    assert.ok(thought.thinking && thought.signature, JSON.stringify(thought));
    const adaptive = await api.messages.create({ ...request, thinking: { type: "adaptive" } });
    assert.equal(adaptive.content[0].thinking, thought.thinking);

    const deltas = [];
    const stream = api.messages.stream(request);
    stream.on("streamEvent", (e) => e.delta?.type && deltas.at(-1) !== e.delta.type && deltas.push(e.delta.type));
    const streamed = await stream.finalMessage();
    assert.deepEqual(deltas, ["thinking_delta", "signature_delta"]);
    assert.equal(streamed.content[0].thinking, thought.thinking);
    assert.ok(streamed.content[0].signature);

    const hidden = { ...request, thinking: { ...on, display: "omitted" } };
    for (const m of [await api.messages.create(hidden), await api.messages.stream(hidden).finalMessage()]) {
      assert.deepEqual([m.content[0].type, m.content[0].thinking], ["thinking", ""]);
      assert.ok(m.content[0].signature);
      assert.equal(m.usage.output_tokens, whole.usage.output_tokens);
    }

    const off = await api.messages.create({ ...request, thinking: { type: "disabled" } });
    assert.deepEqual(
      off.content.map((c) => c.type),
      ["text"],
    );

    // Qwen's template shows the thoughts of the turn that is not finished yet.
    const count = async (...content) =>
      (
        await api.messages.countTokens({
          model: modelName,
          messages: [
            ...user("Hi"),
            { role: "assistant", content: [...content, call] },
            { role: "user", content: [{ type: "tool_result", tool_use_id: "t1", content: "31" }] },
          ],
        })
      ).input_tokens;
    const without = await count();
    assert.ok((await count(thought)) > without);
    assert.equal(await count(thought), await count({ ...thought, signature: "of another server" }));
    assert.equal(await count({ type: "redacted_thinking", data: "x" }), without);
  } finally {
    await own.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});

test("effort and the switch reach a template that has them", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inferd-effort-"));
  const file = join(folder, "template.jinja");
  const parts = "{% for m in messages %}{{ m.content }}{% endfor %}";
  const switched = "{% if thinking %}one two three four five{% endif %}";
  writeFileSync(file, `${parts}|{{ reasoning_effort }}|${switched}`);
  const own = await startServer(["--chat-template", file]);
  try {
    const count = async (body) => {
      const r = await post(own, "/v1/messages/count_tokens", { model: modelName, messages: user("x"), ...body });
      assert.equal(r.headers.get("x-inferd-ignored-fields"), null);
      return (await r.json()).input_tokens;
    };
    const plain = await count({});
    const effort = { output_config: { effort: "high" } };
    assert.ok((await count(effort)) > plain);
    const on = await count({ ...effort, thinking: { type: "adaptive" } });
    assert.ok(on > (await count(effort)));
    assert.equal(await count({ ...effort, thinking: { type: "enabled" } }), on);
    assert.equal(await count({ ...effort, thinking: { type: "disabled" } }), await count(effort));
  } finally {
    await own.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});

test("errors without a route have the form of the protocol", async () => {
  const json = { "Content-Type": "application/json" };
  const version = { "anthropic-version": "2023-06-01" };
  const form = async (path, options = {}) => {
    const r = await fetch(server.url + path, options);
    const { type, error } = await r.json();
    return [r.status, type, error.type, r.headers.get("request-id") === r.headers.get("x-request-id")];
  };
  const missing = [404, "error", "not_found_error", true];
  assert.deepEqual(await form("/v1/messages/batches", { method: "POST", body: "{}", headers: json }), missing);
  assert.deepEqual(await form("/v1/skills", { headers: version }), missing);
  assert.deepEqual(await form("/v1/models/nobody", { headers: version }), missing);
  assert.deepEqual(await form("/v1/messages"), [405, "error", "invalid_request_error", true]);
  const foreign = { method: "POST", body: "{}", headers: { ...json, Origin: "http://evil.example" } };
  assert.deepEqual(await form("/v1/messages", foreign), [403, "error", "permission_error", true]);
  // Other protocols keep theirs.
  assert.deepEqual((await form("/v1/messagesx"))[1], undefined);
  assert.deepEqual((await form("/v1/models/nobody"))[1], undefined);
  assert.deepEqual((await form("/v1/chat/completions", { headers: version, ...foreign, body: "{" }))[1], undefined);
});

test("keys and sizes are refused in the form of the protocol", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inferd-keys-"));
  const file = join(folder, "keys");
  writeFileSync(file, "secret-key-of-the-tests\n", { mode: 0o600 });
  const own = await startServer(["--api-key-file", file, "--max-body-bytes", "100000"]);
  try {
    const api = (apiKey) => new Anthropic({ baseURL: own.url, apiKey, maxRetries: 0 });
    const request = { ...ask, max_tokens: 1, messages: user("x") };
    await assert.rejects(api("wrong").messages.create(request), (e) => {
      assert.equal(e.requestID, e.headers.get("x-request-id"));
      return e instanceof Anthropic.AuthenticationError && e.error.error.type === "authentication_error";
    });
    await assert.rejects(
      api("secret-key-of-the-tests").messages.create({ ...request, messages: user("x".repeat(200000)) }),
      (e) => e.status === 413 && e.error.error.type === "request_too_large",
    );
    assert.equal((await api("secret-key-of-the-tests").messages.create(request)).type, "message");
    const bearer = new Anthropic({
      baseURL: own.url,
      authToken: "secret-key-of-the-tests",
      apiKey: null,
      maxRetries: 0,
    });
    assert.equal((await bearer.messages.create(request)).type, "message");
  } finally {
    await own.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});

test("lists the models for Anthropic's client", async () => {
  const page = await client.models.list({ limit: 5 });
  assert.deepEqual([page.has_more, page.first_id, page.last_id], [false, modelName, "demo"]);
  const all = [];
  for await (const m of client.models.list()) all.push(m);
  assert.deepEqual(
    all.map((one) => [one.id, one.display_name]),
    [
      [modelName, modelName],
      ["demo", "demo"],
    ],
  );
  const m = await client.models.retrieve("demo");
  assert.deepEqual([m.id, m.type, m.display_name], [modelName, "model", modelName]);
  assert.equal(new Date(m.created_at).getTime() / 1000, m.created);
  await assert.rejects(client.models.retrieve("nobody"), (e) => e.error.error.type === "not_found_error");
});

// Its schema makes the answer long, so that it is still written when something happens.
const long = { ...ask, messages: user("Count."), output_config: { format: { type: "json_schema", schema: {} } } };
long.output_config.format.schema = { type: "array", items: { enum: [1, 2] }, minItems: 1500 };

test("a stream that waits gets pings", async () => {
  const own = await startServer(["--kv-cache-tokens", "1024", "--keepalive-ms", "50", "--max-priority", "1"]);
  try {
    const low = { ...long, max_tokens: 600, stream: true };
    const response = await post(own, "/v1/messages", low);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = (await reader.read()).value;
    const prompt = Array.from({ length: 500 }, (_, i) => (i * 7) % 1000);
    const body = { model: modelName, prompt, max_tokens: 500, ignore_eos: true, priority: 1 };
    const first = post(own, "/v1/completions", body);
    for (let part; !(part = await reader.read()).done;) text += part.value;
    assert.equal((await (await first).json()).usage.completion_tokens, 500);
    const names = text.match(/^event: .*$/gm).map((line) => line.slice("event: ".length));
    assert.ok(names.includes("ping"), "while the other had its place");
    assert.deepEqual([names[0], names.at(-1)], ["message_start", "message_stop"]);
  } finally {
    await own.stop();
  }
});

test("a stream that fails ends with an error event", async () => {
  const headers = { "X-Request-Timeout-Ms": "400" }; // no machine has 4,000 tokens by then
  const r = await post(server, "/v1/messages", { ...long, max_tokens: 4000, stream: true }, { headers });
  const text = await r.text();
  const last = r.status === 200 ? text.trim().split("\n\n").at(-1) : `event: error\ndata: ${text}`; // a busy machine
  assert.match(last, /^(id: .*\n)?event: error\n/);
  const { type, error } = JSON.parse(/^data: (.*)$/m.exec(last)[1]);
  assert.deepEqual([type, error.type], ["error", "timeout_error"]);
  if (r.status !== 200) assert.equal(r.status, 504);
  await assert.rejects(
    client.messages.stream({ ...long, max_tokens: 4000 }, { headers }).finalMessage(),
    (e) => e instanceof Anthropic.APIError && e.error.error.type === "timeout_error",
  );
});
