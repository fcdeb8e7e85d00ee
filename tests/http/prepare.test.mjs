// Requests that are expensive to prepare: others continue, disconnects end them, limits apply.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { chat, long, metrics, modelName, post, serving, sleep, sse, startServer, until, user } from "./server.mjs";

// Each pattern takes a third of a second to compile and allows every text.
const heavy = (n, salt = 0) => ({
  type: "object",
  properties: Object.fromEntries(
    Array.from({ length: n }, (_, i) => [
      `p${i}`,
      { type: "string", pattern: `^((?=.*a.{13})(?=.*b.{13}).*|.*|x${salt}_${i})$` },
    ]),
  ),
});
// Takes about a second of a core, then is too large.
const heavyChat = (salt) => ({ messages: user("x"), max_tokens: 5, structured_outputs: { json: heavy(900, salt) } });
const folder = mkdtempSync(join(tmpdir(), "inferd-keys-"));
const keys = join(folder, "keys");
writeFileSync(keys, "sk-alice\nsk-bob\n");
chmodSync(keys, 0o600);
after(() => rmSync(folder, { recursive: true, force: true }));
// A budget that is never exhausted.
const patient = ["--prepare-budget-s", "3600"];

// A request that can be aborted; result: its status, or null if it was aborted.
function ask(server, path, body, headers = {}) {
  const url = new URL(server.url + path);
  const asked = { over: false };
  const r = request({
    host: url.hostname,
    port: url.port,
    path,
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
  });
  asked.result = new Promise((resolve) => {
    r.on("response", (response) => {
      let text = "";
      response.on("data", (d) => (text += d));
      response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, text }));
      response.on("error", () => resolve(null));
    });
    r.on("error", () => resolve(null));
  }).then((result) => {
    asked.over = true;
    return result;
  });
  r.end(typeof body === "string" ? body : JSON.stringify(body));
  asked.hangUp = () => r.destroy();
  return asked;
}

const askHeavy = (server, i, headers) =>
  ask(server, "/v1/chat/completions", { model: modelName, ...heavyChat(i) }, headers);
const running = async (server, lane) => (await metrics(server)).get(`inferd_prepare_running{lane="${lane}"}`);
const compiling = (server, n) => until(async () => (await running(server, "slow")) === n, `${n} are compiled`);

// Must succeed while a request is prepared: tokens of a stream, health, another grammar.
async function othersGoOn(server, asked, what) {
  const stream = await chat(server, {
    messages: user("Tell me a story."),
    stream: true,
    ignore_eos: true,
    max_tokens: 60,
  });
  let tokens = 0;
  for await (const event of sse(stream)) if (event.choices?.[0]?.delta?.content) tokens++;
  assert.ok(tokens > 20, `${what}: ${tokens}`);
  for (let i = 0; i < 20; i++) {
    assert.equal((await fetch(server.url + (i % 2 ? "/livez" : "/readyz"))).status, 200);
  }
  const other = await chat(server, { messages: user("x"), max_tokens: 8, response_format: { type: "json_object" } });
  assert.equal(other.status, 200);
  await other.json();
  assert.equal(asked.over, false, `${what}: all of that came first`);
}

test("a hostile grammar delays no stream, health check or other grammar; a disconnect ends it", async () => {
  await serving(patient, async (server) => {
    // One after the other: the client has one of the two slow threads.
    const many = Array.from({ length: 16 }, (_, i) => askHeavy(server, i));
    await compiling(server, 1);
    await othersGoOn(
      server,
      {
        get over() {
          return many.every((asked) => asked.over);
        },
      },
      "grammars",
    );
    for (const asked of many) asked.hangUp();
    await until(
      async () => (await metrics(server)).get("inferd_prepare_cancelled_total") >= 1,
      "the hang-up ends the work",
    );
    await compiling(server, 0);
    await until(async () => (await metrics(server)).get("inferd_http_requests_active") === 0, "all is over");
  });
});

test("an expensive grammar's error names the field and is cached", async () => {
  await serving(["--prepare-budget-s", "1"], async (server) => {
    const fields = [
      [{ structured_outputs: { json: heavy(8) } }, "structured_outputs.json"],
      [{ response_format: { type: "json_schema", json_schema: { name: "x", schema: heavy(8) } } }, "response_format"],
      [
        {
          tools: [
            { type: "function", function: { name: "a" } },
            { type: "function", function: { name: "b", parameters: heavy(8) } },
          ],
        },
        "tools[1].function.parameters",
      ],
    ];
    if (!long) fields.length = 1;
    for (const [field, param] of fields) {
      const answers = [];
      for (let i = 0; i < 2; i++) {
        const response = await chat(server, { messages: user("x"), ...field });
        answers.push(await response.json());
        assert.equal(response.status, 400);
      }
      const { error } = answers[0];
      assert.ok(error.param.startsWith(param), error.param);
      assert.match(error.message, /exceeds the work limit/);
      assert.deepEqual(answers[1], answers[0]);
    }
    const m = await metrics(server);
    assert.equal(
      m.get('inferd_prepare_runs_total{lane="slow"}'),
      fields.length,
      "the second time came out of the cache",
    );
    assert.equal(m.get('inferd_http_rejected_total{reason="too_expensive"}'), fields.length);
    const route = 'route="/v1/chat/completions",method="POST"';
    const slow = m.get(`inferd_prepare_seconds_total{${route},lane="slow"}`);
    assert.ok(slow > m.get(`inferd_prepare_seconds_total{${route},lane="quick"}`));
    assert.ok(m.get(`inferd_prepare_part_seconds_total{${route},part="grammar"}`) > slow / 2);
  });
});

test("deadlines apply in a lane and its queue, and the error does not blame the grammar", async () => {
  await serving(patient, async (server) => {
    const first = askHeavy(server, 1);
    await compiling(server, 1);
    const late = [1, 1, 2].map((salt) => askHeavy(server, salt, { "X-Request-Timeout-Ms": "500" }));
    // The client has one slow thread; a request that waits for it exceeds its deadline.
    await sleep(600);
    first.hangUp();
    for (const asked of late) {
      const { status, text } = await asked.result;
      assert.equal(status, 504, text);
      assert.equal(JSON.parse(text).error.code, "deadline_exceeded");
    }
    const again = askHeavy(server, 1);
    await compiling(server, 1); // no failure was kept
    again.hangUp();
    assert.equal(await again.result, null);
  });
});

test("large bodies are parsed in the slow lane while streams continue", async () => {
  await serving(["--max-body-bytes", "16M"], async (server) => {
    const text = "word ".repeat(2_000_000);
    const asked = Array.from({ length: 4 }, () => ask(server, "/v1/completions", { model: modelName, prompt: text }));
    const health = [];
    while (!asked.every((a) => a.over)) health.push((await fetch(server.url + "/livez")).status);
    assert.ok(health.every((status) => status === 200));
    for (const a of asked) {
      const { status, text: body } = await a.result;
      assert.equal(status, 400, body);
      assert.equal(JSON.parse(body).error.code, "context_length_exceeded");
    }
    assert.equal((await metrics(server)).get('inferd_prepare_runs_total{lane="slow"}'), 4);
  });
});

test("a full queue answers 503 with Retry-After; health is answered", async () => {
  await serving([...patient, "--prepare-queue", "3"], async (server) => {
    const asked = [];
    for (let i = 0; i < 3; i++) asked.push(askHeavy(server, i));
    await compiling(server, 1); // of one client
    await until(async () => (await metrics(server)).get('inferd_prepare_queued{lane="slow"}') === 2, "two wait");
    const refused = await chat(server, { messages: user("x"), max_tokens: 2 });
    const { error } = await refused.json();
    assert.equal(refused.status, 503);
    assert.equal(error.code, "overloaded");
    assert.ok(Number(refused.headers.get("retry-after")) > 0);
    assert.ok(refused.headers.get("x-request-id"));
    assert.equal((await fetch(server.url + "/livez")).status, 200);
    assert.equal((await metrics(server)).get('inferd_http_rejected_total{reason="prepare_queue"}'), 1);
    for (const a of asked) a.hangUp();
    const answered = await until(async () => {
      const response = await chat(server, { messages: user("x"), max_tokens: 2 });
      await response.arrayBuffer();
      return response.status === 200;
    }, "there is room again");
    assert.ok(answered);
  });
});

test("other keys get their share of a full queue", async () => {
  await serving([...patient, "--prepare-queue", "3", "--api-key-file", keys], async (server) => {
    const bob = { Authorization: "Bearer sk-bob" };
    const stats = async () => (await fetch(server.url + "/metrics", { headers: bob })).text();
    // Alice fills the queue, Bob asks. On a busy machine a place may become free before Bob asks: once more.
    const share = async (salt) => {
      const asked = [];
      for (let i = 0; i < 3; i++) {
        asked.push(askHeavy(server, salt + i, { Authorization: "Bearer sk-alice" }));
        await sleep(50); // in this order
      }
      const full = async () => /inferd_prepare_queued\{lane="slow"\} 2/.test(await stats());
      await until(async () => asked[0].over || (await full()), "two wait, or the first has ended");
      const response = await chat(server, { messages: user("x"), max_tokens: 2 }, { headers: bob });
      await response.arrayBuffer();
      const evicted = await asked[2].result;
      for (const a of asked) a.hangUp();
      return response.status === 200 && evicted?.status === 503;
    };
    let evicted = false;
    for (let salt = 0; salt < 50 && !evicted; salt += 10) evicted = await share(salt);
    assert.ok(evicted);
    const text = await stats();
    assert.match(text, /inferd_key_requests_total\{key="2"\} [1-9]/);
    assert.doesNotMatch(text, /sk-alice|sk-bob/);
  });
});

test("SIGTERM while a grammar is compiled: the deadline ends it with 503", async () => {
  const server = await startServer([...patient, "--shutdown-deadline-s", "0"]);
  const asked = [askHeavy(server, 1), askHeavy(server, 2)];
  await compiling(server, 1);
  await until(async () => (await metrics(server)).get('inferd_prepare_queued{lane="slow"}') === 1, "one waits");
  const how = await server.stop();
  assert.deepEqual(how, { code: 0, signal: null }, server.stderr);
  for (const a of asked) {
    const result = await a.result;
    assert.equal(result?.status, 503, JSON.stringify(result));
    assert.equal(JSON.parse(result.text).error.code, "shutting_down");
  }
});

test("promtool accepts /metrics", async (t) => {
  if (spawnSync("promtool", ["--version"]).error) return t.skip("promtool is not here (Debian: prometheus)");
  await serving([], async (server) => {
    // One request per method of a route with several methods.
    const made = await (
      await post(server, "/v1/responses", { model: modelName, input: "x", max_output_tokens: 4 })
    ).json();
    await (await fetch(`${server.url}/v1/responses/${made.id}`)).arrayBuffer();
    await (await fetch(`${server.url}/v1/responses/${made.id}`, { method: "DELETE" })).arrayBuffer();
    // vLLM's names have colons, which promtool's rules of style leave to recording rules.
    const page = (await (await fetch(server.url + "/metrics")).text()).replaceAll("vllm:", "vllm_");
    const { status, stdout, stderr } = spawnSync("promtool", ["check", "metrics"], { input: page, encoding: "utf8" });
    assert.equal(status, 0, stdout + stderr);
    await metrics(server); // its own reader finds samples that are there twice
  });
});
