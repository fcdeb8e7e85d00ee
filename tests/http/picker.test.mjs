// What the endpoint picker of a Kubernetes pool (llm-d-router, Gateway API Inference Extension) asks of a replica, read
// by its rules: the metrics of its default engine "vllm" and of the engine that scripts/kubernetes configures.
import assert from "node:assert/strict";
import { test } from "node:test";
import { chat, complete, firstAnswer, metrics, modelName, post, serving, streamed, until, user } from "./server.mjs";

const flags = ["--kv-cache-tokens", "8192", "--context-length", "2048", "--max-sequences", "2"];

// The first sample of a family whose labels hold those of the specification; the picker's getLatestMetric, without times.
function sample(values, spec) {
  const [, name, wanted] = /^([^{]+)(?:\{(.*)\})?$/.exec(spec);
  const pairs = (text) => new Map([...text.matchAll(/([a-z_]+)="?([^",}]*)"?/g)].map((m) => [m[1], m[2]]));
  for (const [key, value] of values) {
    const [, family, text] = /^([^{]+)(?:\{(.*)\})?$/.exec(key);
    const labels = pairs(text ?? "");
    if (family === name && [...pairs(wanted ?? "")].every(([k, v]) => labels.get(k) === v)) return { value, labels };
  }
  assert.fail(`metric family ${spec} not found`);
}

// What the picker keeps of an endpoint.
function endpoint(values, engine) {
  const shape = sample(values, engine.cacheInfoSpec).labels;
  return {
    waiting: sample(values, engine.queuedRequestsSpec).value,
    running: sample(values, engine.runningRequestsSpec).value,
    used: sample(values, engine.kvUsageSpec).value,
    blockSize: Number(shape.get("block_size")),
    blocks: Number(shape.get("num_gpu_blocks")),
  };
}

const vllm = {
  queuedRequestsSpec: "vllm:num_requests_waiting",
  runningRequestsSpec: "vllm:num_requests_running",
  kvUsageSpec: "vllm:kv_cache_usage_perc",
  cacheInfoSpec: "vllm:cache_config_info",
};

test("the picker's metrics follow the load", () =>
  serving(flags, async (server) => {
    const idle = endpoint(await metrics(server), vllm);
    assert.deepEqual(idle, { waiting: 0, running: 0, used: 0, blockSize: 16, blocks: 512 });
    const leave = new AbortController();
    const long = { messages: user("Tell me a story."), max_tokens: 1900, ignore_eos: true, stream: true };
    const clients = Array.from({ length: 3 }, () =>
      chat(server, long, { signal: leave.signal })
        .then((r) => r.text())
        .catch(() => {}),
    );
    const busy = await until(async () => {
      const now = endpoint(await metrics(server), vllm);
      return now.running === 2 && now.waiting === 1 && now.used > 0 && now;
    }, "two run and one waits");
    assert.ok(busy.used <= 2 * (2048 / 8192), `two contexts of 2048 of 8192 tokens use ${busy.used}`);
    leave.abort();
    await Promise.all(clients);
    await until(async () => endpoint(await metrics(server), vllm).used === 0, "the blocks are free");
  }));

test("what vLLM's dashboards read is what inferd counts", () =>
  serving(flags, async (server) => {
    const prompt = "Once upon a time there was a fox who lived in a forest with many other animals. ".repeat(4);
    for (let i = 0; i < 2; i++) await complete(server, { prompt, max_tokens: 8, ignore_eos: true });
    await streamed(server, { messages: user("Hi."), max_tokens: 4 });
    const labels = `engine="0",model_name="${modelName}"`;
    const finished = `vllm:request_success_total{${labels},finished_reason="length"}`;
    let values;
    await until(async () => (values = await metrics(server)).get(finished) === 3, "all answers are counted");
    const same = {
      "vllm:prompt_tokens_total": "inferd_prompt_tokens_total",
      "vllm:prefix_cache_queries_total": "inferd_prompt_tokens_total",
      "vllm:prefix_cache_hits_total": "inferd_prefix_cache_hit_tokens_total",
      "vllm:generation_tokens_total": "inferd_generated_tokens_total",
      "vllm:num_preemptions_total": "inferd_preemptions_total",
      "vllm:time_to_first_token_seconds_count": "inferd_time_to_first_token_seconds_count",
      "vllm:inter_token_latency_seconds_count": "inferd_inter_token_latency_seconds_count",
      "vllm:request_queue_time_seconds_count": "inferd_queue_time_seconds_count",
      "vllm:e2e_request_latency_seconds_count": "inferd_answer_time_seconds_count",
      "vllm:e2e_request_latency_seconds_sum": "inferd_answer_time_seconds_sum",
    };
    for (const [theirs, ours] of Object.entries(same)) {
      assert.equal(values.get(`${theirs}{${labels}}`), values.get(ours), theirs);
      if (!theirs.includes("preemptions")) assert.ok(values.get(ours) > 0, ours);
    }
    assert.equal(values.get(`vllm:time_to_first_token_seconds_bucket{${labels},le="+Inf"}`), 3);
    // The last one waited for its place and computed its tokens: no less time than to its first token.
    const sum = (name) => values.get(`${name}_sum{${labels}}`);
    assert.ok(sum("vllm:e2e_request_latency_seconds") >= sum("vllm:time_to_first_token_seconds"));
    assert.ok(![...values.keys()].some((k) => k.startsWith("vllm:lora")), "there are no adapters");
  }));

test("vllm-metrics = off leaves inferd's own names", () =>
  serving([...flags, "--vllm-metrics", "off"], async (server) => {
    const values = await metrics(server);
    assert.ok(![...values.keys()].some((k) => k.startsWith("vllm:")));
    assert.ok(values.has("inferd_sequences_running"));
  }));

test("x-gateway-inference-objective is a priority where the configuration knows it", () =>
  serving(["--max-sequences", "1", "--fair-share", "off", "--objectives", "batch-*=-5, chat = 10"], async (server) => {
    const objective = (name) => ({ "x-gateway-inference-objective": name });
    assert.equal(await firstAnswer(server, {}, {}), "first");
    assert.equal(await firstAnswer(server, objective("batch-night"), {}), "second");
    assert.equal(await firstAnswer(server, {}, objective("chat")), "second");
    assert.equal(await firstAnswer(server, {}, objective("unknown")), "first");
  }));

test("/readyz is 503 before the drain: until drain-delay-s is over, requests are answered", () =>
  serving([...flags, "--drain-delay-s", "3600"], async (server) => {
    const ready = async () => (await fetch(server.url + "/readyz")).status;
    assert.equal(await ready(), 200);
    server.child.kill("SIGTERM");
    await until(async () => (await ready()) === 503, "/readyz is red");
    assert.equal((await metrics(server)).get("inferd_ready"), 0);
    assert.equal((await fetch(server.url + "/livez")).status, 200);
    const response = await chat(server, { messages: user("Hi."), max_tokens: 4 });
    assert.equal(response.status, 200);
    assert.equal(response.headers.get("connection"), "close", "so that the router's connections end");
    await response.text();
    server.child.kill("SIGKILL");
  }));

test("when drain-delay-s is over the daemon ends, with what it was answering", () =>
  serving([...flags, "--drain-delay-s", "1"], async (server) => {
    const answer = streamed(server, { messages: user("Tell me a story."), max_tokens: 200, ignore_eos: true });
    await until(async () => (await metrics(server)).get("inferd_sequences_running") === 1, "it runs");
    server.child.kill("SIGTERM");
    assert.equal((await answer).finish, "length");
    assert.deepEqual(await server.exited, { code: 0, signal: null });
    assert.match(server.stderr, /not ready any more[^]*new requests are refused/);
  }));

test("the tokens of /render, in vLLM's form, are those of the prompt", () =>
  serving(flags, async (server) => {
    const ask = async (path, body) => {
      const response = await post(server, path, { model: "demo", ...body });
      assert.equal(response.status, 200, await response.clone().text());
      return { headers: response.headers, body: await response.json() };
    };
    const messages = [{ role: "system", content: "Be kind." }, ...user("Tell me about \u00e9.")];
    const fields = { messages, stream: true, temperature: 0.5, seed: 3, max_tokens: 7, cache_salt: "s", priority: -1 };
    const { body: chatPrompt } = await ask("/v1/chat/completions/render", fields);
    const { token_ids, request_id, ...rest } = chatPrompt;
    assert.deepEqual(token_ids, (await ask("/v1/inferd/render", { messages })).body.tokens);
    assert.match(request_id, /^chatcmpl-/);
    const { sampling_params, ...others } = rest;
    assert.deepEqual(others, {
      features: null,
      model: modelName,
      stream: true,
      stream_options: { include_usage: false },
      cache_salt: "s",
      priority: -1,
      kv_transfer_params: null,
    });
    assert.equal(sampling_params.max_tokens, 7);
    assert.equal(sampling_params.temperature, 0.5);
    assert.equal(sampling_params.seed, 3);
    assert.equal((await metrics(server)).get("inferd_steps_total"), 0, "nothing is computed");

    const prompts = ["Once upon a time", "The fox"];
    const { body: list } = await ask("/v1/completions/render", { prompt: prompts });
    for (const [i, prompt] of prompts.entries())
      assert.deepEqual(list[i].token_ids, (await ask("/tokenize", { prompt })).body.tokens);
    assert.equal(list.length, 2);
    assert.equal(list[0].sampling_params.max_tokens, 16, "the default of completions");
    for (const path of ["/v1/chat/completions/render", "/v1/completions/render"]) {
      const refused = await post(server, path, { model: modelName });
      assert.equal(refused.status, 400);
      assert.equal((await refused.json()).error.param, path.includes("chat") ? "messages" : "prompt");
    }
  }));

test("x-inferd-prefix names the beginning of a prompt", () =>
  serving([...flags, "--prefix-header-tokens", "64"], async (server) => {
    const prefix = async (path, body) => {
      const response = await post(server, path, { model: modelName, max_tokens: 1, ...body });
      assert.equal(response.status, 200, await response.clone().text());
      await response.text();
      return response.headers.get("x-inferd-prefix");
    };
    const ids = Array.from({ length: 100 }, (_, i) => 300 + i);
    const of = (prompt, more) => prefix("/v1/completions", { prompt, ...more });
    const whole = await of(ids);
    assert.match(whole, /^[0-9a-f]{16}$/);
    assert.equal(await of(ids.slice(0, 64)), whole, "64 tokens count");
    assert.equal(await of([...ids.slice(0, 64), 999], { stream: true }), whole, "what follows does not");
    assert.notEqual(await of([...ids.slice(0, 63), 999]), whole);
    assert.equal(await of(ids.slice(0, 20)), await of(ids.slice(0, 16)), "whole blocks of a short prompt");
    assert.notEqual(await of(ids.slice(0, 32)), await of(ids.slice(0, 16)));
    assert.equal(await of(ids.slice(0, 15)), null, "less than a block");
    assert.equal(await prefix("/v1/completions/render", { prompt: ids }), whole);
    // Another replica says the same.
    await serving([...flags, "--prefix-header-tokens", "64", "--block-tokens", "32"], async (other) => {
      const response = await post(other, "/v1/completions", { model: modelName, max_tokens: 1, prompt: ids });
      assert.equal(response.headers.get("x-inferd-prefix"), whole);
      await response.text();
    });
    // A conversation keeps its prefix, through each protocol that knows messages.
    const system = "You are a very kind teller of stories about foxes, hens, mice and other animals. ".repeat(8);
    const turns = [{ role: "system", content: system }, ...user("Hi.")];
    const first = await prefix("/v1/chat/completions", { messages: turns });
    const second = [...turns, { role: "assistant", content: "Hello!" }, ...user("Tell me more.")];
    assert.equal(await prefix("/v1/chat/completions", { messages: second }), first);
    assert.equal(await prefix("/v1/messages", { system, messages: user("Hi.") }), first);
    assert.equal(await prefix("/v1/responses", { instructions: system, input: "Hi.", max_tokens: undefined }), first);
  }));

test("prefix-header-tokens = 0 leaves the header out", () =>
  serving([...flags, "--prefix-header-tokens", "0"], async (server) => {
    const response = await chat(server, { messages: user("Tell me a long story about a fox."), max_tokens: 1 });
    assert.equal(response.headers.get("x-inferd-prefix"), null);
    await response.text();
  }));
