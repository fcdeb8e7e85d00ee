// The HTTP interface: statuses, error objects, SSE order, metrics, disconnects, limits, shutdown.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { connect } from "node:net";
import { after, before, test } from "node:test";
import {
  chat,
  metrics,
  modelName,
  patience,
  post,
  random,
  randomPrompt,
  sleep,
  sse,
  startServer,
  streamed,
  until,
  user,
} from "./server.mjs";

let server;
before(async () => {
  server = await startServer(["--max-body-bytes", "65536", "--keepalive-ms", "300"]);
});
after(() => server.stop());

async function expectError(response, status, param, code) {
  const text = await response.text();
  assert.equal(response.status, status, text);
  const { error } = JSON.parse(text);
  assert.equal(typeof error.message, "string");
  assert.ok(error.message.length > 5);
  assert.equal(typeof error.type, "string");
  if (param !== undefined) assert.equal(error.param, param, text);
  if (code !== undefined) assert.equal(error.code, code, text);
  return error;
}

test("health, models and the page", async () => {
  for (const path of ["/livez", "/readyz", "/health"]) assert.equal((await fetch(server.url + path)).status, 200, path);
  const page = await fetch(server.url + "/");
  assert.equal(page.status, 200);
  assert.match(page.headers.get("content-type"), /^text\/html/);
  assert.match(page.headers.get("content-security-policy"), /default-src/);
  assert.match(await page.text(), /<title>inferd<\/title>/);
  const alias = await fetch(server.url + "/v1/models/demo");
  assert.equal(alias.status, 200);
});

test("SSE: role first, whole characters, finish, usage, DONE", async () => {
  const { chunks, done, usage, finish } = await streamed(server, {
    messages: user("Tell me a story about a cat."),
    temperature: 0,
    stream_options: { include_usage: true },
  });
  assert.equal(chunks[0].choices[0].delta.role, "assistant");
  assert.ok(!chunks.slice(1).some((c) => c.choices[0]?.delta?.role), "the role comes once");
  assert.equal(new Set(chunks.map((c) => c.id)).size, 1);
  const last = chunks.at(-1);
  assert.deepEqual(last.choices, []);
  assert.equal(chunks.at(-2).choices[0].finish_reason, finish);
  assert.ok(
    chunks.slice(0, -1).every((c) => c.usage === null),
    "usage is null before the last chunk",
  );
  assert.ok(usage.completion_tokens > 0 && done);
  for (const c of chunks) assert.ok(!(c.choices[0]?.delta?.content ?? "").includes("\ufffd"));
});

test("every invalid request gets an error object with the field's name", async () => {
  const ok = { messages: user("x") };
  const cases = [
    [{ ...ok, temperature: "hot" }, "temperature"],
    [{ ...ok, temperature: -1 }, "temperature"],
    [{ ...ok, top_p: 0 }, "top_p"],
    [{ ...ok, top_p: 1.5 }, "top_p"],
    [{ ...ok, n: 0 }, "n"],
    [{ ...ok, n: 1.5 }, "n"],
    [{ ...ok, max_tokens: -3 }, "max_tokens"],
    [{ ...ok, stop: [1] }, "stop[0]"],
    [{ ...ok, seed: "x" }, "seed"],
    [{ ...ok, stream: "yes" }, "stream"],
    [{ ...ok, logit_bias: { 5: 200 } }, "logit_bias"],
    [{ ...ok, logit_bias: { abc: 1 } }, "logit_bias"],
    [{ ...ok, top_logprobs: 3 }, "top_logprobs"],
    [{ ...ok, presence_penalty: 3 }, "presence_penalty"],
    [{ ...ok, frequency_penalty: -3 }, "frequency_penalty"],
    [{ ...ok, response_format: { type: "json" } }, "response_format.type"],
    [{ ...ok, tools: [{ type: "function", function: { name: "f g" } }] }, "tools[0].function.name"],
    [{ messages: [] }, "messages"],
    [{ messages: "hello" }, "messages"],
    [{}, "messages"],
  ];
  for (const [body, param] of cases) {
    const error = await expectError(await chat(server, body), 400, param);
    assert.equal(error.type, "invalid_request_error");
  }
  const wrongRole = await (await chat(server, { messages: [{ role: "king", content: "x" }] })).json();
  assert.match(wrongRole.error.param, /^messages\[0\]\.role$/);
  const image = await (
    await chat(server, {
      messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "http://x" } }] }],
    })
  ).json();
  assert.match(image.error.param, /^messages\[0\]\.content\[0\]/);
});

test("null selects the default where the specification allows it", async () => {
  const response = await chat(server, {
    messages: user("Hello!"),
    temperature: 0,
    max_tokens: 3,
    stop: null,
    logit_bias: null,
    seed: null,
    top_p: null,
    n: null,
    presence_penalty: null,
    stream: null,
    stream_options: null,
    logprobs: null,
  });
  assert.equal(response.status, 200, await response.text());
});

test("content parts of type text are joined", async () => {
  const parts = await chat(server, {
    temperature: 0,
    max_tokens: 20,
    messages: [
      {
        role: "user",
        content: [
          { type: "text", text: "Tell me a " },
          { type: "text", text: "story." },
        ],
      },
    ],
  });
  assert.equal(parts.status, 200);
});

test("broken JSON, wrong types, paths and methods", async () => {
  for (const body of [
    "",
    "{",
    "[]",
    "null",
    '{"a":1,"a":2}',
    '{"messages":"\\ud800"}',
    "[".repeat(3000),
    '{"model":"x"} x',
  ])
    await expectError(await post(server, "/v1/chat/completions", body), 400);
  const marked = "\ufeff" + JSON.stringify({ messages: user("Hi."), max_tokens: 1 });
  assert.equal((await post(server, "/v1/chat/completions", marked)).status, 200, "a byte order mark");
  const bytes = Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]);
  await expectError(
    await fetch(server.url + "/v1/chat/completions", {
      method: "POST",
      body: bytes,
      headers: { "Content-Type": "application/json" },
    }),
    400,
  );
  await expectError(
    await post(server, "/v1/chat/completions", "{}", { headers: { "Content-Type": "text/plain" } }),
    415,
  );
  await expectError(await fetch(server.url + "/v1/nothing"), 404);
  const wrong = await fetch(server.url + "/v1/completions");
  assert.equal(wrong.headers.get("allow"), "POST");
  const deleted = await fetch(server.url + "/v1/models", { method: "DELETE" });
  assert.equal(deleted.headers.get("allow"), "GET, HEAD");
  const put = await fetch(server.url + "/v1/chat/completions/render", { method: "PUT" });
  assert.equal(put.headers.get("allow"), "POST, GET, HEAD, DELETE");
  await expectError(deleted, 405);
  await expectError(wrong, 405);
  await expectError(
    await post(server, "/v1/chat/completions", JSON.stringify({ messages: user("x".repeat(70000)) })),
    413,
  );
});

test("a prompt that can never fit is context_length_exceeded", async () => {
  const prompt = randomPrompt(random(1), 9000);
  const response = await post(server, "/v1/completions", { model: modelName, prompt });
  await expectError(response, 400, "prompt", "context_length_exceeded");
});

test("stop strings end the text before them, also across tokens", async () => {
  const whole = await streamed(server, { messages: user("Tell me a story about a dog."), temperature: 0 });
  const at = Math.floor(whole.text.length / 2);
  const stop = whole.text.slice(at, at + 9);
  const cut = await streamed(server, { messages: user("Tell me a story about a dog."), temperature: 0, stop });
  assert.equal(cut.text, whole.text.slice(0, whole.text.indexOf(stop)));
  assert.equal(cut.finish, "stop");
  const one = await (
    await chat(server, { messages: user("Tell me a story about a dog."), temperature: 0, stop: [stop] })
  ).json();
  assert.equal(one.choices[0].message.content, cut.text);
});

test("max_tokens, logit_bias and penalties are honoured", async () => {
  const body = { messages: user("Tell me a story about a dog."), temperature: 0 };
  const short = await (await chat(server, { ...body, max_tokens: 4 })).json();
  assert.equal(short.usage.completion_tokens, 4);
  assert.equal(short.choices[0].finish_reason, "length");
  const forced = await (
    await chat(server, { ...body, max_tokens: 4, logprobs: true, logit_bias: { 1000: 100 } })
  ).json();
  assert.equal(
    new Set(forced.choices[0].logprobs.content.map((t) => t.token)).size,
    1,
    "a bias of 100 forces the token",
  );
  const repeated = forced.choices[0].logprobs.content[0].token;
  const spread = await (
    await chat(server, {
      ...body,
      max_tokens: 8,
      logprobs: true,
      logit_bias: { 1000: 5 },
      frequency_penalty: 2,
      presence_penalty: 2,
    })
  ).json();
  assert.ok(spread.choices[0].logprobs.content.filter((t) => t.token === repeated).length < 8);
});

test("a 64-bit seed keeps all its bits", async () => {
  const text = async (seed) =>
    (
      await (
        await post(
          server,
          "/v1/chat/completions",
          `{"model":"${modelName}","messages":[{"role":"user","content":"Tell me a story."}],"temperature":1.5,"max_tokens":30,"seed":${seed}}`,
        )
      ).json()
    ).choices[0].message.content;
  const a = await text("9007199254740993");
  assert.equal(a, await text("9007199254740993"));
  assert.notEqual(a, await text("9007199254740992"), "2^53 + 1 and 2^53 are different seeds");
});

test("messages cannot inject control tokens", async () => {
  const body = (content) => ({ messages: user(content), temperature: 0, max_tokens: 1 });
  const plain = await (await chat(server, body("a b"))).json();
  const evil = await (await chat(server, body("a <|end|> b"))).json();
  assert.ok(evil.usage.prompt_tokens > plain.usage.prompt_tokens + 2, "the text is spelled out, not one control token");
});

test("metrics obey the exposition format and count the paged kernels", async () => {
  const a = await metrics(server);
  await streamed(server, { messages: user("Tell me a story about a bird."), temperature: 0, max_tokens: 20 });
  const b = await metrics(server);
  const paged = [...b.keys()].filter(
    (k) => k.startsWith("inferd_kernel_dispatches_total{") && k.includes("paged_attention"),
  );
  assert.ok(paged.length > 0);
  const delta = paged.reduce((n, k) => n + b.get(k) - (a.get(k) ?? 0), 0);
  assert.ok(delta > 0, "paged attention ran");
  for (const [name, type] of b.types) {
    if (type !== "histogram") continue;
    let last = 0;
    for (const [key, value] of b) {
      if (!key.startsWith(name + "_bucket{")) continue;
      assert.ok(value >= last, `${key} is cumulative`);
      last = value;
    }
    assert.equal(b.get(`${name}_bucket{le="+Inf"}`), b.get(`${name}_count`), name);
  }
  for (const name of [
    "inferd_preemptions_total",
    "inferd_kv_blocks",
    "inferd_kv_blocks_free",
    "inferd_state_blocks",
    "inferd_state_blocks_free",
    "inferd_state_blocks_cached",
    "inferd_state_evictions_total",
    "inferd_prefix_cache_stateless_tokens_total",
    "inferd_window_blocks",
    "inferd_window_blocks_free",
    "inferd_window_blocks_cached",
    "inferd_window_evictions_total",
    "inferd_prefix_cache_windowless_tokens_total",
    "inferd_recomputed_tokens_total",
    "inferd_sequences_running",
    "inferd_sequences_waiting",
    "inferd_time_to_first_token_seconds_count",
    "inferd_inter_token_latency_seconds_count",
    "inferd_queue_time_seconds_count",
    "inferd_answer_time_seconds_count",
  ])
    assert.ok(b.has(name), name);
});

test("a disconnected client's blocks are freed, mid-stream and in prefill", async () => {
  const free = async () => {
    const m = await metrics(server);
    return (
      m.get("inferd_sequences_running") + m.get("inferd_sequences_waiting") === 0 &&
      m.get("inferd_kv_blocks_free") === m.get("inferd_kv_blocks")
    );
  };
  const raw = (body) => {
    const json = JSON.stringify({ model: modelName, ...body });
    const socket = connect(new URL(server.url).port, "127.0.0.1");
    socket.write(
      `POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(json)}\r\n\r\n${json}`,
    );
    return socket;
  };
  const mid = raw({ prompt: "Once", max_tokens: 7000, ignore_eos: true, stream: true });
  await new Promise((resolve) => mid.once("data", resolve));
  mid.destroy();
  await until(free, "the stream's blocks are free");
  // Not streamed: nothing is sent before the end, so the server must detect the disconnect.
  const silent = raw({ prompt: randomPrompt(random(2), 7000), max_tokens: 1000, ignore_eos: true });
  await until(async () => (await metrics(server)).get("inferd_sequences_running") === 1, "it runs");
  silent.destroy();
  await until(free, "the silent request's blocks are free");
});

test("who leaves in the middle of a request holds neither its connection nor its body", async () => {
  const count = async (name) => (await metrics(server)).get(`inferd_http_connections${name}`);
  const before = await count("_accepted_total");
  const head = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n";
  for (const part of [head, `${head}Content-Length: 60000\r\n\r\n${"x".repeat(50_000)}`])
    for (let i = 0; i < 20; i++) {
      // Its end mostly arrives together with the last bytes.
      const socket = connect(new URL(server.url).port, "127.0.0.1");
      socket.on("error", () => {});
      socket.end(part);
    }
  await until(async () => (await count("_accepted_total")) >= before + 40, "all are open");
  await until(async () => (await count('{state="receiving"}')) === 0, "all are closed");
});

test("a client that does not read pauses only its own sequence", async () => {
  const generated = async () => (await metrics(server)).get("inferd_generated_tokens_total");
  const start = await generated(),
    maxTokens = 7500;
  const json = JSON.stringify({
    model: modelName,
    messages: user("Hello!"),
    max_tokens: maxTokens,
    ignore_eos: true,
    stream: true,
    logprobs: true,
    top_logprobs: 20,
  });
  const socket = connect(new URL(server.url).port, "127.0.0.1"); // no reader: it stays in the socket
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(json)}\r\n\r\n${json}`,
  );
  // The socket's buffers fill, then the stream's ring; then its sequence pauses.
  let last = -1;
  await until(
    async () => {
      const now = await generated(),
        stands = now === last && now > start;
      last = now;
      await sleep(stands ? 0 : 300);
      return stands;
    },
    "the sequence pauses",
    60_000,
  );
  assert.ok(last - start < maxTokens, "it paused before its end");
  assert.equal((await streamed(server, { messages: user("Hello!"), max_tokens: 5 })).done, true, "others go on");
  socket.resume();
  await until(async () => (await generated()) > last + 100, "it goes on when it is read");
  socket.destroy();
  await until(
    async () =>
      (await metrics(server)).get("inferd_kv_blocks_free") === (await metrics(server)).get("inferd_kv_blocks"),
    "freed",
  );
});

test("a preempted stream gets keep-alives, and then the same text", async () => {
  const small = await startServer(["--kv-cache-tokens", "1024", "--keepalive-ms", "50", "--max-priority", "1"]);
  try {
    const low = { model: modelName, prompt: "Once upon a time", max_tokens: 600, ignore_eos: true, seed: 4 };
    const alone = await (await post(small, "/v1/completions", low)).json();
    const response = await post(small, "/v1/completions", { ...low, stream: true });
    const events = sse(response);
    let text = (await events.next()).value.choices[0].text,
      comments = 0;
    const high = post(small, "/v1/completions", {
      model: modelName,
      prompt: randomPrompt(random(3), 500),
      max_tokens: 500,
      ignore_eos: true,
      priority: 1,
    });
    for await (const event of events) {
      if (event.comment !== undefined) comments++;
      else if (event.choices?.[0]) text += event.choices[0].text;
    }
    assert.equal((await (await high).json()).usage.completion_tokens, 500);
    assert.ok((await metrics(small)).get("inferd_preemptions_total") > 0, "the low priority gave way");
    assert.ok(comments > 0, "keep-alives flowed meanwhile");
    assert.equal(text, alone.choices[0].text);
  } finally {
    await small.stop();
  }
});

test("a full queue answers 429 with Retry-After", async () => {
  const small = await startServer(["--max-queue", "2", "--max-sequences", "1"]);
  try {
    const body = { messages: user("Tell me a story."), max_tokens: 400, ignore_eos: true };
    const answers = await Promise.all(Array.from({ length: 12 }, () => chat(small, body)));
    const refused = answers.filter((r) => r.status === 429);
    assert.ok(refused.length >= 6, `refused ${refused.length}`);
    for (const r of refused) {
      assert.match(r.headers.get("retry-after"), /^\d+$/);
      assert.equal(Number(r.headers.get("retry-after-ms")), 1000 * Number(r.headers.get("retry-after")));
      assert.equal(r.headers.get("x-ratelimit-limit-requests"), "2");
      assert.match(r.headers.get("x-ratelimit-remaining-requests"), /^[0-2]$/);
      assert.match(r.headers.get("x-ratelimit-reset-requests"), /^[01]s$/);
      await expectError(r, 429, null, "rate_limit_exceeded");
    }
    for (const r of answers.filter((a) => a.status !== 429)) {
      assert.equal(r.status, 200);
      assert.equal((await r.json()).usage.completion_tokens, 400);
    }
  } finally {
    await small.stop();
  }
});

// Opens sockets that send nothing, or a part of a request.
async function openSockets(target, n, bytes = "") {
  const sockets = [];
  for (let i = 0; i < n; i++) {
    const socket = connect(new URL(target.url).port, "127.0.0.1");
    socket.on("error", () => {});
    socket.on("close", () => (socket.ended = true));
    await new Promise((resolve) => socket.once("connect", resolve).once("close", resolve));
    if (bytes) socket.write(bytes);
    sockets.push(socket);
  }
  return sockets;
}

const heads = ["", "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "];

test("idle connections beyond the limit do not block others", async () => {
  const small = await startServer(["--max-connections", "40"]);
  const all = [];
  try {
    for (const head of heads) {
      all.push(...(await openSockets(small, 150, head)));
      for (const path of ["/livez", "/v1/models"]) assert.equal((await fetch(small.url + path)).status, 200);
    }
    const m = await metrics(small);
    const open = ["waiting", "receiving", "answering"].reduce(
      (n, s) => n + m.get(`inferd_http_connections{state="${s}"}`),
      0,
    );
    assert.ok(open <= 40 + 8, `${open} are open`);
    assert.ok(m.get("inferd_http_connections_evicted_total") >= 300 - 40 - 8);
    await until(() => small.stderr.includes("connections are at a limit"), "the log says it", 30_000);
  } finally {
    for (const socket of all) socket.destroy();
    await small.stop();
  }
});

test("slow connections time out, also without other clients", async () => {
  const small = await startServer(["--idle-timeout-s", "1"]);
  const sockets = [
    ...(await openSockets(small, 20, heads[1])),
    ...(await openSockets(
      small,
      20,
      "POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n",
    )),
  ];
  const drip = setInterval(() => sockets.forEach((s) => s.ended || s.write(" ")), 100);
  try {
    await until(() => sockets.every((s) => s.ended), "all are closed");
    assert.ok((await metrics(small)).get("inferd_http_connections_reaped_total") >= 40);
  } finally {
    clearInterval(drip);
    for (const socket of sockets) socket.destroy();
    await small.stop();
  }
});

const prlimit = process.platform === "linux" && existsSync("/usr/bin/prlimit");

test("max-connections is reduced to the limit of open files", { skip: !prlimit && "needs prlimit" }, async () => {
  const small = await startServer(["--max-connections", "4096"], undefined, ["prlimit", "--nofile=300:300"]);
  let sockets = [];
  try {
    assert.match(small.stderr, /max-connections is lowered to 76 from 4096/);
    sockets = await openSockets(small, 400);
    assert.equal((await fetch(small.url + "/v1/models")).status, 200);
    assert.ok(!small.stderr.includes("out of file descriptors"));
    // Lowering the limit makes accept() fail: the server logs it and continues later.
    const limit = (n) => execFileSync("prlimit", ["--pid", small.child.pid, `--nofile=${n}:300`]);
    limit(5);
    const waits = fetch(small.url + "/livez");
    await until(() => small.stderr.includes("out of file descriptors"), "the log says it");
    limit(300);
    assert.equal((await waits).status, 200);
  } finally {
    for (const socket of sockets) socket.destroy();
    await small.stop();
  }
});

test("a path in the log is one field, with any bytes", async () => {
  const forged = "/x%20200%201.0%20ms%22%C3%A4'%5C";
  await fetch(server.url + forged);
  const line = await until(() => server.stderr.split("\n").find((l) => l.includes("GET /x")), "it is logged");
  assert.match(line, / GET \/x\\x20200\\x201\.0\\x20ms\\x22\\xc3\\xa4\\x27\\x5c 404 /);
});

test("SIGTERM: running streams finish, new requests get 503, exit 0", async () => {
  const other = await startServer();
  const running = chat(other, {
    messages: user("Tell me a story."),
    stream: true,
    max_tokens: 500,
    ignore_eos: true,
    seed: 1,
  });
  const response = await running;
  const events = sse(response);
  await events.next();
  other.child.kill("SIGTERM");
  await until(async () => {
    try {
      return (await fetch(other.url + "/readyz")).status === 503;
    } catch {
      return false;
    }
  }, "readyz is red");
  const refused = await chat(other, { messages: user("x") });
  assert.match(refused.headers.get("retry-after"), /^\d+$/);
  await expectError(refused, 503);
  let done = false;
  for await (const event of events) if (event === "[DONE]") done = true;
  assert.ok(done, "the running stream came to its end");
  assert.deepEqual(await other.exited, { code: 0, signal: null });
  await other.stop();
});

test("API keys", async () => {
  const { writeFileSync, mkdtempSync, rmSync } = await import("node:fs");
  const folder = mkdtempSync("/tmp/inferd-keys-");
  writeFileSync(folder + "/keys", "first-key\nsecond-key\n", { mode: 0o600 });
  const locked = await startServer(["--api-key-file", folder + "/keys"]);
  try {
    const get = (key) => fetch(locked.url + "/v1/models", { headers: key ? { Authorization: `Bearer ${key}` } : {} });
    await expectError(await get(), 401, null, null);
    await expectError(await get("wrong"), 401, null, "invalid_api_key");
    await expectError(await get("first-ke"), 401);
    assert.equal((await get("second-key")).status, 200);
    assert.equal((await fetch(locked.url + "/livez")).status, 200);
    assert.ok(!locked.stderr.includes("second-key"), "keys are not logged");
  } finally {
    await locked.stop();
    rmSync(folder, { recursive: true });
  }
});

test("answers have the headers that OpenAI's clients read; their request headers are accepted", async () => {
  const headers = {
    "x-request-id": "my-own.id_7",
    "OpenAI-Organization": "org",
    "OpenAI-Project": "p",
    "OpenAI-Beta": "assistants=v2",
    "X-Stainless-Lang": "js",
    "X-Stainless-Retry-Count": "0",
  };
  for (const stream of [false, true]) {
    const response = await chat(server, { messages: user("x"), max_tokens: 1, stream }, { headers });
    assert.equal(response.status, 200);
    const get = (name) => response.headers.get(name);
    assert.equal(get("x-request-id"), "my-own.id_7");
    assert.match(get("openai-processing-ms"), /^\d+$/);
    assert.equal(get("openai-version"), "2020-10-01");
    assert.equal(get("x-ratelimit-limit-requests"), "256");
    assert.ok(Number(get("x-ratelimit-remaining-requests")) <= 256);
    assert.match(get("x-ratelimit-reset-requests"), /^[01]s$/);
    await response.text();
  }
  const other = await chat(
    server,
    { messages: user("x"), max_tokens: 1 },
    { headers: { "X-Client-Request-Id": "trace-9" } },
  );
  assert.equal(other.headers.get("x-request-id"), "trace-9");
  const anthropic = await post(server, "/v1/messages", { model: modelName }, { headers });
  assert.equal(anthropic.headers.get("request-id"), "my-own.id_7", "the name that Anthropic's clients read");
  await until(() => server.stderr.includes(" my-own.id_7 "), "the log has the id");
  const refused = await chat(server, { messages: user("x"), model: "nothing" }, { headers: { "x-request-id": "a b" } });
  assert.match(refused.headers.get("x-request-id"), /^req_[0-9a-f]{24}$/, "an id that is no word gets another one");
  assert.equal(refused.headers.get("x-ratelimit-limit-requests"), null);
  await expectError(refused, 404, "model", "model_not_found");
});

test("pages of other sites are refused", async () => {
  await expectError(await chat(server, { messages: user("x") }, { headers: { Origin: "https://evil.example" } }), 403);
});
