// Tools over HTTP: the demo model, whose template has no tools, and the same model with templates of
// families with their own format (../shared): constrained text must be parsed as calls.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { existsSync, readFileSync } from "node:fs";
import Ajv from "ajv";
import { chat, modelName, sse, startServer, user } from "./server.mjs";

const place = {
  type: "object",
  properties: { city: { type: "string", maxLength: 12 }, days: { type: "integer", minimum: 1, maximum: 7 } },
  required: ["city"],
  additionalProperties: false,
};
const fn = (name, parameters, more) => ({ type: "function", function: { name, parameters, ...more } });
const tools = [
  fn("get_weather", place, { description: "The weather of a place." }),
  fn("now"),
  fn(
    "add-1",
    {
      type: "object",
      properties: { a: { type: "integer" }, b: { enum: [1, "x", null] } },
      required: ["b", "a"],
      additionalProperties: false,
    },
    { strict: true },
  ),
];
const schemas = Object.fromEntries(
  tools.map((t) => [t.function.name, t.function.parameters ?? { type: "object", additionalProperties: false }]),
);
const ajv = new Ajv({ strict: false });
const named = (name) => ({ type: "function", function: { name } });

// Every call has the members that OpenAI's clients read, and valid arguments.
function checkCalls(calls) {
  for (const call of calls) {
    assert.match(call.id, /^call_[0-9a-f]{24}$/);
    assert.equal(call.type, "function");
    assert.ok(schemas[call.function.name], call.function.name);
    assert.ok(ajv.validate(schemas[call.function.name], JSON.parse(call.function.arguments)), call.function.arguments);
  }
  assert.equal(new Set(calls.map((c) => c.id)).size, calls.length);
}
const withoutIds = (calls) => (calls ?? []).map(({ function: f }) => f);

async function whole(server, body) {
  const response = await chat(server, { messages: user("What is the weather in Berlin?"), max_tokens: 300, ...body });
  const answer = await response.json();
  assert.equal(response.status, 200, JSON.stringify(answer));
  return answer;
}

// A stream assembled as in OpenAI's SDK.
async function streamed(server, body) {
  const response = await chat(server, {
    messages: user("What is the weather in Berlin?"),
    max_tokens: 300,
    stream: true,
    stream_options: { include_usage: true },
    ...body,
  });
  assert.equal(response.status, 200);
  const message = { content: null, reasoning: "", calls: [] };
  for await (const event of sse(response)) {
    if (event === "[DONE]" || event.comment !== undefined) continue;
    if (event.usage) message.usage = event.usage;
    for (const { delta, finish_reason } of event.choices) {
      if (typeof delta.content === "string") message.content = (message.content ?? "") + delta.content;
      if (delta.reasoning_content) message.reasoning += delta.reasoning_content;
      for (const { index, id, type, function: f } of delta.tool_calls ?? []) {
        if (id) {
          assert.equal(index, message.calls.length);
          assert.equal(f.arguments, "");
          message.calls.push({ id, type, function: { ...f } });
        } else {
          assert.equal(index, message.calls.length - 1);
          message.calls[index].function.arguments += f.arguments;
        }
      }
      if (finish_reason) message.finish = finish_reason;
    }
  }
  return message;
}

async function sameStreamed(server, body) {
  const answer = await whole(server, body),
    { message, finish_reason } = answer.choices[0];
  const stream = await streamed(server, body);
  assert.deepEqual(withoutIds(stream.calls), withoutIds(message.tool_calls));
  assert.equal(stream.content ?? "", message.content ?? "");
  assert.equal(stream.reasoning, message.reasoning_content ?? "");
  assert.equal(stream.finish, finish_reason);
  assert.equal(stream.usage.completion_tokens, answer.usage.completion_tokens);
  return answer;
}

let server;
before(async () => (server = await startServer()));
after(() => server.stop());

test("required: the answer consists of valid calls", async () => {
  for (let seed = 0; seed < 12; seed++) {
    const { choices } = await sameStreamed(server, {
      tools,
      tool_choice: "required",
      parallel_tool_calls: false,
      seed,
    });
    const { message, finish_reason } = choices[0];
    assert.equal(message.content, null);
    assert.equal(message.tool_calls.length, 1);
    assert.equal(finish_reason, "tool_calls");
    checkCalls(message.tool_calls);
  }
});

test("a named function is called once, and finish_reason is stop", async () => {
  for (const name of Object.keys(schemas)) {
    const { choices } = await sameStreamed(server, { tools, tool_choice: named(name), seed: 4 });
    assert.deepEqual(
      choices[0].message.tool_calls.map((c) => c.function.name),
      [name],
    );
    assert.equal(choices[0].finish_reason, "stop");
    checkCalls(choices[0].message.tool_calls);
  }
});

test("only allowed tools are called", async () => {
  const allowed_tools = { mode: "required", tools: [named("now"), named("add-1")] };
  for (let seed = 0; seed < 6; seed++) {
    const { choices } = await whole(server, {
      tools,
      tool_choice: { type: "allowed_tools", allowed_tools },
      parallel_tool_calls: false,
      seed,
    });
    assert.notEqual(choices[0].message.tool_calls[0].function.name, "get_weather");
    checkCalls(choices[0].message.tool_calls);
  }
});

test("several calls in one answer; strict schemas keep their order", async () => {
  let most = 0;
  for (let seed = 0; seed < 8; seed++) {
    const { choices } = await sameStreamed(server, {
      tools: tools.slice(1),
      tool_choice: "required",
      seed,
      temperature: 1.5,
    });
    const calls = choices[0].message.tool_calls;
    if (choices[0].finish_reason === "length") calls.pop(); // cut within
    most = Math.max(most, calls.length);
    checkCalls(calls);
    for (const c of calls.filter((c) => c.function.name === "add-1"))
      assert.deepEqual(Object.keys(JSON.parse(c.function.arguments)), ["a", "b"]);
  }
  assert.ok(most > 1, "no answer had two calls");
});

test("auto: text, or a call from its mark on", async () => {
  const text = await sameStreamed(server, { tools, tool_choice: "auto", seed: 1, max_tokens: 30 });
  assert.ok(text.choices[0].message.content);
  assert.equal(text.choices[0].message.tool_calls, undefined);
  // A format whose beginning is that of calls: the model continues with one.
  let calls = 0,
    forms = 0;
  for (let seed = 0; seed < 16; seed++) {
    const answer = await sameStreamed(server, {
      tools,
      seed,
      temperature: 2,
      parallel_tool_calls: false,
      guided_regex: "<tool_call[x-z]",
    });
    const { message, finish_reason } = answer.choices[0];
    if (message.tool_calls) {
      calls++;
      checkCalls(message.tool_calls);
      assert.equal(message.content, null);
      assert.equal(finish_reason, "tool_calls");
    } else {
      forms++;
      assert.match(message.content, /^<tool_call[x-z]$/);
    }
  }
  assert.ok(calls && forms, `${calls} calls, ${forms} texts`);
});

test("none: marks are text, and the prompt has no tools", async () => {
  const bare = await whole(server, { seed: 1, max_tokens: 20 });
  const none = await whole(server, { tools, tool_choice: "none", seed: 1, max_tokens: 20 });
  assert.equal(none.usage.prompt_tokens, bare.usage.prompt_tokens);
  assert.deepEqual(none.choices[0].message, bare.choices[0].message);
  const shown = await whole(server, { tools, seed: 1, max_tokens: 1 });
  assert.ok(shown.usage.prompt_tokens > bare.usage.prompt_tokens + 50);
});

test("n choices call independently; stop strings apply to text only", async () => {
  const { choices } = await whole(server, {
    tools,
    tool_choice: "required",
    parallel_tool_calls: false,
    n: 3,
    seed: 7,
    stop: ['"', "}"],
  });
  assert.equal(choices.length, 3);
  for (const c of choices) checkCalls(c.message.tool_calls);
  assert.equal(new Set(choices.flatMap((c) => c.message.tool_calls.map((t) => t.id))).size, 3);
});

const roundTrip = (call, result = "Sunny.") => [
  ...user("Weather?"),
  { role: "assistant", content: null, refusal: null, tool_calls: [call] },
  { role: "tool", tool_call_id: call.id, content: result },
];

test("a call and its result come back into the prompt", async () => {
  const { choices } = await whole(server, { tools, tool_choice: "required", parallel_tool_calls: false });
  const call = choices[0].message.tool_calls[0];
  const short = await whole(server, { messages: roundTrip(call), max_tokens: 5 });
  const long = await whole(server, { messages: roundTrip(call, "Sunny, all day long, and warm."), max_tokens: 5 });
  assert.ok(long.usage.prompt_tokens > short.usage.prompt_tokens);
  const parts = await whole(server, { messages: roundTrip(call, [{ type: "text", text: "Sunny." }]), max_tokens: 5 });
  assert.equal(parts.usage.prompt_tokens, short.usage.prompt_tokens);
});

test("what is wrong is refused by name", async () => {
  const wrong = [
    [{ tools: [fn("a b")] }, "tools[0].function.name"],
    [{ tools: [fn("x".repeat(129))] }, "tools[0].function.name"],
    [{ tools: [fn("a"), fn("a")] }, "tools[1].function.name"],
    [{ tools: Array.from({ length: 1025 }, (_, i) => fn("f" + i)) }, "tools"],
    [{ tools: [fn("a", { type: "string" })] }, "tools[0].function.parameters"],
    [
      { tools: [fn("a"), fn("b", { type: "object", properties: { x: { type: "nothing" } } })] },
      "tools[1].function.parameters",
      "#/properties/x",
    ],
    [
      { tools: [fn("a", { type: "object", properties: { x: { pattern: "(" } } })] },
      "tools[0].function.parameters",
      "#/properties/x/pattern",
    ],
    [{ tools, tool_choice: named("none_such") }, "tool_choice"],
    [{ tools, tool_choice: "sometimes" }, "tool_choice"],
    [{ tools, tool_choice: { type: "function" } }, "tool_choice.function"],
    [
      { tools, tool_choice: { type: "allowed_tools", allowed_tools: { mode: "auto", tools: [named("z")] } } },
      "tool_choice.allowed_tools",
    ],
    [{ tool_choice: "required" }, "tool_choice"],
    [{ functions: [{ name: "f" }] }, "functions"],
    [{ function_call: { name: "f" } }, "function_call"],
  ];
  for (const [body, param, pointer] of wrong) {
    const response = await chat(server, { messages: user("x"), ...body }),
      { error } = await response.json();
    assert.equal(response.status, 400, JSON.stringify(body));
    assert.ok(error.param.startsWith(param), `${param}: ${JSON.stringify(error)}`);
    if (pointer) assert.ok(error.message.includes(pointer), error.message);
  }
});

test("padding hides how long a chunk's text is", async () => {
  const response = await chat(server, {
    messages: user("Hi"),
    max_tokens: 12,
    seed: 1,
    stream: true,
    stream_options: { include_obfuscation: true },
  });
  const sizes = new Set();
  for await (const event of sse(response)) {
    if (event === "[DONE]") continue;
    assert.match(event.obfuscation, /^[0-9a-f]+$/);
    const text = event.choices[0].delta.content ?? "";
    sizes.add((Buffer.byteLength(text) + event.obfuscation.length) % 24);
  }
  assert.deepEqual([...sizes], [0]);
});

// ---- families ----

const templates = "../shared/data/chat-templates/templates";
const families = [
  "Qwen-Qwen3-0.6B",
  "Qwen-Qwen2.5-7B-Instruct",
  "meta-llama-Llama-3.1-8B-Instruct",
  "mistralai-Mistral-Nemo-Instruct-2407",
  "unsloth-mistral-Devstral-Small-2507",
  "Kimi-K2-Instruct",
  "unsloth-Apriel-1.5",
  "google-gemma-2-2b-it",
  "GLM-4.6",
  "Cohere2MoE",
];
for (const family of families)
  test(`calls in the form of ${family}`, { skip: existsSync(templates) ? false : "no ../shared" }, async (t) => {
    const own = await startServer(["--chat-template", `${templates}/${family}.jinja`]);
    t.after(() => own.stop());
    const common = { chat_template_kwargs: { enable_thinking: false }, tools: tools.slice(0, 1), max_tokens: 200 };
    for (let seed = 0; seed < 3; seed++) {
      const body = { ...common, tool_choice: named("get_weather"), seed };
      const { choices, usage } = await sameStreamed(own, body);
      const { message, finish_reason } = choices[0];
      if (finish_reason === "length") {
        // the prompt begins a thought, which this model does not end
        assert.equal(family, "Cohere2MoE");
        assert.ok(message.reasoning_content && !message.content && !message.tool_calls);
        assert.equal(usage.completion_tokens_details.reasoning_tokens, 200);
        continue;
      }
      assert.equal(finish_reason, "stop");
      assert.equal(message.content, null);
      assert.equal(message.tool_calls.length, 1);
      checkCalls(message.tool_calls);
      // A long id, as other servers generate.
      for (const id of [message.tool_calls[0].id, "call_" + "x".repeat(30)]) {
        const messages = roundTrip({ ...message.tool_calls[0], id });
        const next = await whole(own, { ...common, messages, max_tokens: 3, tool_choice: "auto" });
        assert.ok(next.usage.prompt_tokens > usage.prompt_tokens);
      }
    }
  });

// The bias ends a thought as soon as possible.
test(
  "gpt-oss: channels, and calls in their headers",
  { skip: existsSync(templates) ? false : "no ../shared" },
  async (t) => {
    const folder = "tests/golden/arch/gpt-oss/hf";
    const { added_tokens } = JSON.parse(readFileSync(`${folder}/tokenizer.json`, "utf8"));
    const id = (text) => added_tokens.find((a) => a.content === text).id;
    const own = await startServer(
      ["--chat-template", `${templates}/openai-gpt-oss-120b.jinja`],
      [{ file: folder, name: modelName }],
    );
    t.after(() => own.stop());
    const one = [fn("get_weather", place, { description: "The weather." })];
    const body = { tools: one, max_tokens: 120, logit_bias: { [id("<|end|>")]: 100 }, messages: user("Hi") };
    for (let seed = 0; seed < 4; seed++) {
      const { choices } = await sameStreamed(own, { ...body, tool_choice: "required", seed });
      checkCalls(choices[0].message.tool_calls);
      assert.equal(choices[0].message.tool_calls.length, 1);
      assert.equal(choices[0].finish_reason, "tool_calls");
      const form = await sameStreamed(own, { ...body, tools: undefined, guided_regex: "[ab]{3}", seed });
      assert.match(form.choices[0].message.content, /^[ab]{3}$/);
    }
    const thought = await sameStreamed(own, {
      messages: user("Hi"),
      max_tokens: 30,
      guided_regex: "x",
      logit_bias: { [id("<|end|>")]: -100 },
      seed: 1,
    });
    const { message, finish_reason } = thought.choices[0];
    if (finish_reason === "length") {
      assert.ok(message.reasoning_content && !message.content);
      assert.ok(thought.usage.completion_tokens_details.reasoning_tokens > 15);
    } else {
      assert.equal(message.content, "x");
    }
  },
);

test("log-probabilities are those of the text, also of text that a stop string held back before a call", async () => {
  const server = await startServer();
  try {
    const grammar = String.raw`root ::= "Hi fo<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"`;
    for (const stop of [undefined, ["fox"]]) {
      const body = {
        messages: user("x"),
        max_tokens: 100,
        tools,
        structured_outputs: { grammar },
        stop,
        logprobs: true,
        seed: 5,
      };
      const { message, logprobs } = (await whole(server, body)).choices[0];
      assert.deepEqual(
        [message.content, withoutIds(message.tool_calls)],
        ["Hi fo", [{ name: "now", arguments: "{}" }]],
      );
      assert.equal(logprobs.content.map((t) => t.token).join(""), "Hi fo");
      const response = await chat(server, { ...body, stream: true });
      const parts = [];
      for await (const event of sse(response))
        for (const c of event.choices ?? []) parts.push(...(c.logprobs?.content ?? []));
      assert.deepEqual(parts, logprobs.content);
    }
  } finally {
    await server.stop();
  }
});
