// The sampling that a model's files recommend is the default where a request is silent, on every protocol; it is shown,
// can be switched off, and goes into the GGUF that quantize writes. What is wrong in a file is named and not used.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { binary, post, startServer, user } from "./server.mjs";

const place = mkdtempSync(join(tmpdir(), "inferd-sampling-")),
  name = "advised",
  template = ["--chat-template", "chatml"];
after(() => rmSync(place, { recursive: true }));

// A tiny model with this generation_config.json; its answers to different seeds differ at temperature 1.
const folder = (config) => {
  const file = mkdtempSync(join(place, "model-"));
  cpSync("tests/golden/arch/llama/hf", file, { recursive: true });
  writeFileSync(join(file, "generation_config.json"), JSON.stringify(config));
  return file;
};
const served = async (t, file, flags = []) => {
  const server = await startServer([...template, ...flags], [{ file, name }]);
  t.after(() => server.stop());
  return server;
};
const asked = async (server, path, body) => {
  const response = await post(server, path, { model: name, ...body });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return JSON.parse(text);
};
const sampling = async (server) => (await (await fetch(`${server.url}/v1/models/${name}`)).json()).sampling;

// Each protocol's answer of a few tokens, with a seed and, if given, a temperature.
const max = 12;
const protocols = {
  completions: (s, seed, more) =>
    asked(s, "/v1/completions", {
      prompt: "A",
      max_tokens: max,
      seed,
      ...more,
    }).then((a) => a.choices[0].text),
  chat: (s, seed, more) =>
    asked(s, "/v1/chat/completions", {
      messages: user("A"),
      max_tokens: max,
      seed,
      ...more,
    }).then((a) => a.choices[0].message.content),
  messages: (s, seed, more) =>
    asked(s, "/v1/messages", {
      messages: user("A"),
      max_tokens: max,
      seed,
      ...more,
    }).then((a) => a.content[0]?.text),
  ollama: (s, seed, more) =>
    asked(s, "/api/chat", {
      messages: user("A"),
      stream: false,
      options: { num_predict: max, seed, ...more },
    }).then((a) => a.message.content),
};
const differ = async (ask, server, more) =>
  new Set(await Promise.all([1, 2, 3, 4, 5, 6].map((seed) => ask(server, seed, more)))).size > 1;

test("silent requests sample as the model recommends, others as they ask", async (t) => {
  const server = await served(t, folder({ temperature: 0, top_p: 0.9, top_k: 20, repetition_penalty: 1.1 }));
  assert.deepEqual(await sampling(server), {
    temperature: 0,
    top_p: 0.9,
    repetition_penalty: 1.1,
    top_k: 20,
  });
  for (const [protocol, ask] of Object.entries(protocols)) {
    assert.equal(await differ(ask, server, {}), false, `${protocol}: greedy, as recommended`);
    assert.equal(await differ(ask, server, { temperature: 1 }), true, `${protocol}: as asked`);
  }
  const response = await asked(server, "/v1/responses", {
    input: "A",
    max_output_tokens: 16,
  });
  assert.deepEqual([response.temperature, response.top_p], [0, 0.9]);
  const { parameters } = await asked(server, "/api/show", {});
  assert.deepEqual(
    parameters.split("\n").map((line) => line.split(/ +/)),
    [
      ["temperature", "0"],
      ["top_p", "0.9"],
      ["top_k", "20"],
      ["repeat_penalty", "1.1"],
    ],
  );
});

test("model-sampling = off: the API's defaults", async (t) => {
  const server = await served(t, folder({ temperature: 0 }), ["--model-sampling", "off"]);
  assert.deepEqual(await sampling(server), {});
  assert.equal(await differ(protocols.chat, server, {}), true);
});

test("an alias of a parameter is a request's own value too, null is silence", async (t) => {
  const server = await served(t, folder({ temperature: 0, repetition_penalty: 0.05 }));
  const texts = [];
  for (const more of [{}, { repetition_penalty: null }, { repetition_penalty: 1 }, { repeat_penalty: 1 }])
    texts.push(await protocols.completions(server, 1, more));
  texts.push(await protocols.ollama(server, 1, {}), await protocols.ollama(server, 1, { repeat_penalty: 1 }));
  assert.equal(texts[1], texts[0]);
  assert.notEqual(texts[2], texts[0]);
  assert.equal(texts[3], texts[2]);
  assert.notEqual(texts[5], texts[4]);
});

test("do_sample: false is greedy", async (t) => {
  const server = await served(t, folder({ do_sample: false, temperature: 0.6, top_p: 0.9 }));
  assert.deepEqual(await sampling(server), { temperature: 0 });
});

test("quantize and models show keep what is right and name what is wrong", async (t) => {
  const file = folder({
      temperature: 9,
      top_p: "0.9",
      top_k: 2.5,
      min_p: 0.05,
      repetition_penalty: null,
    }),
    out = join(place, "quantized.gguf"),
    registry = join(place, "registry.db");
  const direct = await served(t, file);
  for (const key of ["temperature", "top_p", "top_k"])
    assert.match(direct.stderr, new RegExp(`generation_config.json: ${key} is not used`));
  assert.deepEqual(await sampling(direct), { min_p: 0.05 });
  execFileSync(binary, ["quantize", file, out, "--type", "q8_0"], {
    stdio: "ignore",
  });
  const server = await served(t, out);
  assert.deepEqual(await sampling(server), { min_p: 0.05 });
  const run = (...args) =>
    execFileSync(binary, ["models", ...args, "--registry", registry], {
      encoding: "utf8",
    });
  run("add", out, "--name", name);
  assert.match(run("show", name), /sampling +min_p 0\.05\n/);
  assert.deepEqual(JSON.parse(run("show", name, "--json")).sampling, {
    min_p: 0.05,
  });
});

test("suppress_tokens are never sampled, from a folder or from what quantize writes", async (t) => {
  const id = 70,
    out = join(place, "suppressing.gguf");
  const tokens = (s, more) =>
    asked(s, "/v1/completions", { prompt: "A", max_tokens: max, temperature: 0, logprobs: 1, ...more }).then(
      (a) => a.choices[0].logprobs.tokens,
    );
  const forced = { logit_bias: { [id]: 100 } };
  const free = await served(t, folder({}));
  const one = (await tokens(free, forced))[0],
    greedy = await tokens(free);
  assert.ok((await tokens(free, forced)).every((token) => token === one) && !greedy.includes(one));
  const file = folder({ suppress_tokens: [id, 1 << 19] });
  execFileSync(binary, ["quantize", file, out, "--type", "f32"], { stdio: "ignore" });
  for (const source of [file, out]) {
    const server = await served(t, source);
    assert.deepEqual(await tokens(server), greedy);
    for (const more of [forced, { ...forced, temperature: 1, seed: 3 }])
      assert.ok(!(await tokens(server, more)).includes(one));
  }
  const broken = folder({ suppress_tokens: "none" });
  const quantize = () =>
    execFileSync(binary, ["quantize", broken, join(place, "no.gguf"), "--type", "f32"], { stdio: "pipe" });
  assert.throws(quantize, (e) => /suppress_tokens is not a list/.test(e.stderr.toString()));
});
