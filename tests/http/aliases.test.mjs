// Values and names that clients of other servers send: each means what it means there, or is a 400
// if the server cannot do it.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chat, modelName, post, serving, startServer, user } from "./server.mjs";

let server;
before(async () => (server = await startServer()));
after(() => server.stop());

const ignoredOf = (response) => response.headers.get("x-inferd-ignored-fields");
async function answerOf(response, body) {
  const text = await response.text();
  assert.equal(response.status, 200, `${JSON.stringify(body)}: ${text}`);
  return JSON.parse(text);
}
async function ask(body, path = "/v1/chat/completions", to = server) {
  const all = path.endsWith("chat/completions") ? { messages: user("Hello!"), ...body } : { prompt: "Hello", ...body };
  return answerOf(await post(to, path, { model: modelName, temperature: 0, ...all }), body);
}
const textOf = ({ choices: [c] }) => c.message?.content ?? c.text;
async function refused(body, param, path = "/v1/chat/completions") {
  const prompt = path.endsWith("chat/completions") ? { messages: user("x") } : { prompt: "x" };
  const response = await post(server, path, { model: modelName, max_tokens: 1, ...prompt, ...body });
  assert.equal(response.status, 400, JSON.stringify(body));
  assert.equal((await response.json()).error.param, param);
}

test("the number of tokens, by all its names", async () => {
  // A short context: an answer without a limit ends there.
  await serving(["--context-length", "256"], async (own) => {
    const plain = textOf(await ask({}, undefined, own));
    for (const body of [{ max_tokens: -1 }, { max_tokens: 0 }, { max_completion_tokens: -1 }, { n_predict: -1 }])
      assert.equal(textOf(await ask(body, undefined, own)), plain, JSON.stringify(body));
    const long = await ask({ max_tokens: -1 }, "/v1/completions", own);
    assert.ok(long.usage.completion_tokens > 16 || long.choices[0].finish_reason === "stop");
  });
  for (const body of [{ max_tokens: 2 }, { max_completion_tokens: 2 }, { n_predict: 2 }])
    for (const path of ["/v1/chat/completions", "/v1/completions"]) {
      const { usage, choices } = await ask(body, path);
      assert.deepEqual([usage.completion_tokens, choices[0].finish_reason], [2, "length"], JSON.stringify(body));
    }
  const scored = await ask({ max_tokens: 0, echo: true, logprobs: 0 }, "/v1/completions");
  assert.equal(textOf(scored), "Hello", "completions score the prompt");
  await refused({ max_tokens: -2 }, "max_tokens");
});

test("stop strings and alternatives that say nothing", async () => {
  const plain = textOf(await ask({}));
  for (const body of [{ stop: "" }, { stop: null }, { stop: [] }, { stop: [""] }, { top_logprobs: 0 }])
    assert.equal(textOf(await ask(body)), plain, JSON.stringify(body));
  const [first] = plain.split(" ");
  assert.equal(textOf(await ask({ stop: ["", " "] })), first);
  await refused({ top_logprobs: 2 }, "top_logprobs");
});

test("samplers of other servers: the same ones by their names, others only if they are off", async () => {
  const strong = textOf(await ask({ repetition_penalty: 2, max_tokens: 40 }));
  assert.notEqual(strong, textOf(await ask({ max_tokens: 40 })));
  assert.equal(textOf(await ask({ repeat_penalty: 2, max_tokens: 40 })), strong);
  // What llama.cpp's page sends by default.
  const off = {
    dynatemp_range: 0,
    dynatemp_exponent: 1,
    xtc_probability: 0,
    xtc_threshold: 0.1,
    typ_p: 1,
    repeat_last_n: -1,
    dry_multiplier: 0,
    dry_base: 1.75,
    samplers: "edkypmxt",
    timings_per_token: false,
    cache_prompt: true,
  };
  const response = await chat(server, { messages: user("x"), max_tokens: 1, ...off });
  assert.equal(response.status, 200, await response.text());
  assert.equal(ignoredOf(response), "xtc_threshold, dry_base, samplers");
  for (const path of ["/v1/chat/completions", "/v1/completions"])
    for (const on of [{ xtc_probability: 0.5 }, { mirostat: 2 }, { typical_p: 0.5 }, { min_tokens: 3 }])
      await refused(on, Object.keys(on)[0], path);
  for (const form of [{ grammar: "root ::= [a]" }, { response_format: { type: "json_object" } }, { tools: [{}] }])
    await refused(form, Object.keys(form)[0], "/v1/completions");
  await ask({ response_format: { type: "text" }, max_tokens: 1 }, "/v1/completions");
});

test("a schema, wherever other servers take it", async () => {
  const schema = { type: "object", properties: { n: { enum: [7] } }, required: ["n"], additionalProperties: false };
  for (const body of [
    { response_format: { type: "json_object", schema } },
    { response_format: { type: "json_schema", schema } },
    { response_format: { type: "json_schema", json_schema: { schema } } },
    { json_schema: schema },
    { grammar: 'root ::= "{\\"n\\":7}"' },
  ])
    assert.deepEqual(JSON.parse(textOf(await ask(body))), { n: 7 }, JSON.stringify(body));
  await ask({ grammar: "", max_tokens: 1 });
  await refused({ response_format: { type: "text", schema } }, "response_format.schema");
  await refused({ response_format: { type: "json_schema" } }, "response_format.json_schema");
});

const nothing = { type: "object", additionalProperties: false };
const tool = (name) => ({ type: "function", function: { name, parameters: nothing } });
const callOf = ({ choices: [c] }) => c.message.tool_calls?.[0].function.name;

test("tools: any, names with . : and /, a thousand of them", async () => {
  for (const tool_choice of ["any", { type: "any" }, { type: "required" }])
    assert.equal(callOf(await ask({ tools: [tool("f")], tool_choice })), "f");
  for (const name of ["ns.get", "server/tool", "a:b.c/d-e_f", "x".repeat(128)]) {
    const tool_choice = { type: "function", function: { name } };
    assert.equal(callOf(await ask({ tools: [tool("ns"), tool(name), tool("a:b")], tool_choice })), name);
  }
  const many = Array.from({ length: 1024 }, (_, i) => tool(`tool_${i}`));
  const { error } = await (await chat(server, { messages: user("x"), tools: [...many, tool("more")] })).json();
  assert.equal(error.param, "tools");
  await ask({ tools: many, tool_choice: "none", max_tokens: 1 }); // shown, they would exceed this model's context
});

test("thinking, by all its names", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inferd-"));
  const file = join(folder, "template.jinja");
  const render = async (own, body) => {
    const response = await post(own, "/v1/inferd/render", { model: modelName, messages: user("x"), ...body });
    const { prompt } = await answerOf(response, body);
    return [prompt, ignoredOf(response)];
  };
  try {
    writeFileSync(
      file,
      "{{ enable_thinking }}|{{ reasoning_effort }}|{% for m in messages %}{{ m.content }}{% endfor %}",
    );
    await serving(["--chat-template", file], async (own) => {
      const cases = [
        [{}, "||x", null],
        [{ enable_thinking: false }, "False||x", null],
        [{ think: true }, "True||x", null],
        [{ think: "low" }, "|low|x", null],
        [{ thinking: { type: "disabled", budget_tokens: 5 } }, "False||x", "thinking.budget_tokens"],
        [{ thinking: { type: "adaptive" } }, "||x", null],
        [{ reasoning: { effort: "high", exclude: false } }, "|high|x", null],
        [{ reasoning: { enabled: true, max_tokens: 100 } }, "True||x", "reasoning.max_tokens"],
        [{ reasoning_effort: "none" }, "False|none|x", null],
        [{ think: true, chat_template_kwargs: { enable_thinking: false } }, "False||x", null],
      ];
      for (const [body, prompt, ignored] of cases)
        assert.deepEqual(await render(own, body), [prompt, ignored], JSON.stringify(body));
    });
    writeFileSync(file, "{% for m in messages %}{{ m.content }}{% endfor %}");
    await serving(["--chat-template", file], async (own) => {
      const cases = [
        [{ enable_thinking: true }, "enable_thinking"],
        [{ think: "high" }, "think"],
        [{ think: false }, null],
        [{ thinking: { type: "enabled" } }, "thinking"],
        [{ reasoning: { effort: "low" } }, "reasoning.effort"],
        [{ reasoning_effort: "high", verbosity: "low" }, "verbosity, reasoning_effort"],
        [{ reasoning_effort: "none" }, null],
      ];
      for (const [body, ignored] of cases)
        assert.deepEqual(await render(own, body), ["x", ignored], JSON.stringify(body));
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("an earlier call may have its arguments as an object, and no type", async () => {
  const turns = (call) => [
    ...user("x"),
    { role: "assistant", content: null, tool_calls: [{ id: "call_1", ...call }] },
    { role: "tool", tool_call_id: "call_1", content: "1" },
  ];
  const render = async (call) => {
    const response = await post(server, "/v1/inferd/render", { model: modelName, messages: turns(call) });
    return [(await answerOf(response, call)).prompt, ignoredOf(response)];
  };
  const [prompt] = await render({ type: "function", function: { name: "f", arguments: '{"a":1}' } });
  const object = { name: "f", arguments: { a: 1 } };
  assert.deepEqual(await render({ index: 0, function: object }), [prompt, "messages[1].tool_calls[0].index"]);
});

test("two names of one field: equal values are one, different ones are refused", async () => {
  const ask = (body) => chat(server, { messages: user("x"), max_tokens: 1, ...body });
  for (const body of [
    { n_predict: 1 },
    { max_completion_tokens: 1 },
    { repeat_penalty: 1.1, repetition_penalty: 1.1 },
    { n_predict: null },
  ])
    assert.equal((await ask(body)).status, 200, JSON.stringify(body));
  const different = { repeat_penalty: 1.1, repetition_penalty: 1.2 };
  const response = await ask(different);
  assert.equal(response.status, 400);
  const { error } = await response.json();
  for (const name of Object.keys(different)) assert.ok(error.message.includes(`'${name}'`), error.message);
  assert.ok(Object.keys(different).includes(error.param));
});

// Two of its three names in one body; a default that the client did not send refuses nothing.
test("the limit of tokens has one value in chats, completions and llama.cpp's form", async () => {
  const names = ["max_tokens", "max_completion_tokens", "n_predict"];
  for (const path of ["/v1/chat/completions", "/v1/completions", "/completion"])
    for (const [one, other] of [
      [0, 1],
      [0, 2],
      [1, 2],
    ].map((pair) => pair.map((i) => names[i]))) {
      const given = path.endsWith("chat/completions") ? { messages: user("x") } : { prompt: "x" };
      const ask = (body) => post(server, path, { model: modelName, temperature: 0, ...given, ...body });
      for (const [a, b] of [
        [2, 3],
        [20, 3],
        [-1, 3],
        [16, -1],
      ]) {
        const response = await ask({ [one]: a, [other]: b });
        const { error } = await response.json();
        assert.deepEqual([response.status, error.param ?? one], [400, one], `${path} ${one} ${a} ${other} ${b}`);
        for (const name of [one, other]) assert.ok(error.message.includes(`'${name}'`), error.message);
      }
      for (const body of [
        { [one]: 3, [other]: 3 },
        { [one]: null, [other]: 3 },
        { [one]: 3, [other]: null },
      ]) {
        const answer = await answerOf(await ask(body), body);
        const n = answer.usage ? answer.usage.completion_tokens : answer.tokens_predicted;
        assert.equal(n, 3, `${path} ${JSON.stringify(body)}`);
      }
    }
  const silent = await ask({ ignore_eos: true }, "/v1/completions");
  assert.equal(silent.usage.completion_tokens, 16, "completions have a default");
});

test("what the chat template does not use is named", async () => {
  const messages = [
    { role: "user", name: "ann", content: "x" },
    {
      role: "assistant",
      content: [
        { type: "thinking", thinking: "hm", signature: "s" },
        { type: "redacted_thinking", data: "z" },
        { type: "hologram" },
        { type: "text", text: "y" },
      ],
    },
    { role: "user", content: "z" },
  ];
  const response = await chat(server, {
    messages,
    max_tokens: 1,
    documents: [{ text: "d" }],
    chat_template_kwargs: { enable_thinking: false, "an odd näme": 1 },
  });
  assert.equal(response.status, 200, await response.clone().text());
  const names = ignoredOf(response).split(", ");
  for (const name of ["documents", "chat_template_kwargs.enable_thinking", "chat_template_kwargs.an?odd?n?me"])
    assert.ok(names.includes(name), `${names} has ${name}`);
  for (const name of [
    "messages[0].name",
    "messages[1].content[0].signature",
    "messages[1].content[1]",
    "messages[1].content[2]",
  ])
    assert.ok(names.includes(name) || names.includes("..."), `${names} has ${name}`);
  const user_part = await chat(server, {
    messages: [{ role: "user", content: [{ type: "thinking", thinking: "x" }] }],
  });
  assert.equal((await user_part.json()).error.param, "messages[0].content[0].type");
});

test("metadata without store is anything, and named", async () => {
  for (const metadata of [5, "x", [1], { a: { b: 1 } }, { a: "x".repeat(600) }]) {
    const asked = await chat(server, { messages: user("x"), max_tokens: 1, metadata });
    assert.equal(asked.status, 200, await asked.clone().text());
    assert.equal(ignoredOf(asked), "metadata");
    const response = await post(server, "/v1/responses", {
      model: modelName,
      input: "x",
      max_output_tokens: 1,
      store: false,
      metadata,
    });
    assert.equal(response.status, 200, await response.clone().text());
    assert.equal(ignoredOf(response), "metadata");
  }
});

test("errors of JSON name the path, at the top level too", async () => {
  for (const [body, param] of [
    ['{"model":"m","model":"m"}', "model"],
    ['{"messages":[{"role":"user","content":"x","role":"user"}]}', "messages[0].role"],
    ['{"messages":[{"content":tru}]}', "messages[0].content"],
    ['{"temperature":.5}', "temperature"],
    ["{", null],
  ]) {
    const response = await post(server, "/v1/chat/completions", body);
    const { error } = await response.json();
    assert.deepEqual([response.status, error.code, error.param], [400, "invalid_json", param], body);
    assert.ok(!param || error.message.includes(param.split(".").at(-1)), error.message);
  }
});
