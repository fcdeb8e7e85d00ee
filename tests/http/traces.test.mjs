// Traces by OTLP/HTTP: a collector that decodes them with OpenTelemetry's own protobuf types, and clients whose
// traceparent comes from OpenTelemetry's SDK. Collectors that refuse, ask to wait, or are away.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { SpanKind, TraceFlags, context, trace } from "@opentelemetry/api";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { AlwaysOffSampler, BasicTracerProvider } from "@opentelemetry/sdk-trace-base";
import * as conventions from "@opentelemetry/semantic-conventions";
import * as incubating from "@opentelemetry/semantic-conventions/incubating";
import { addKey, chat, metrics, modelName, post, sse, startServer, until, user } from "./server.mjs";

// The generated types of opentelemetry-proto, as the exporter of OpenTelemetry's JavaScript has them.
const { opentelemetry } = createRequire(import.meta.url)("@opentelemetry/otlp-transformer/build/src/generated/root.js");
const ExportRequest = opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest;
const known = new Set(
  [...Object.values(conventions), ...Object.values(incubating)].filter((v) => typeof v === "string"),
);

// OTLP's JSON differs from protobuf's in its ids, which are hex.
const idNames = ["traceId", "spanId", "parentSpanId"];
function withIds(value, change) {
  if (Array.isArray(value)) return value.map((v) => withIds(v, change));
  if (!value || typeof value !== "object" || Buffer.isBuffer(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([k, v]) => [k, idNames.includes(k) ? change(v) : withIds(v, change)]),
  );
}

// Decodes a body; a field that the types do not have, or of another type, is an error.
function decode(text) {
  const json = JSON.parse(text);
  const message = ExportRequest.fromObject(withIds(json, (hex) => Buffer.from(hex, "hex")));
  assert.equal(ExportRequest.verify(message), null);
  const wire = ExportRequest.decode(ExportRequest.encode(message).finish());
  const back = ExportRequest.toObject(wire, { longs: String, bytes: Buffer });
  assert.deepEqual(
    withIds(back, (bytes) => bytes.toString("hex")),
    json,
    "the types hold all that was sent",
  );
  return json;
}

const valueOf = (v) =>
  v.stringValue ??
  v.boolValue ??
  v.doubleValue ??
  (v.intValue !== undefined ? Number(v.intValue) : undefined) ??
  v.arrayValue.values.map(valueOf);
const attributesOf = (list) => Object.fromEntries(list.map((a) => [a.key, valueOf(a.value)]));

// A collector; `answer(response, n)` answers the n-th request (from 0).
async function startCollector(answer = (response) => response.end("{}"), port = 0) {
  const c = { requests: [], spans: [], resources: [], text: "" };
  const server = createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8");
    request.on("data", (d) => (body += d));
    request.on("end", () => {
      const n = c.requests.push({ path: request.url, headers: request.headers, body, at: Date.now() }) - 1;
      response.setHeader("Content-Type", "application/json");
      answer(response, n);
      if (response.statusCode !== 200) return;
      c.text += body;
      for (const group of decode(body).resourceSpans) {
        c.resources.push(attributesOf(group.resource.attributes));
        for (const scope of group.scopeSpans)
          for (const s of scope.spans) c.spans.push({ ...s, attributes: attributesOf(s.attributes) });
      }
    });
  });
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  c.port = server.address().port;
  c.url = `http://127.0.0.1:${c.port}`;
  c.stop = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  // The spans of the trace of a response, once there are n.
  c.of = async (response, n) => {
    const id = response.headers.get("traceresponse").split("-")[1];
    await until(() => c.spans.filter((s) => s.traceId === id).length >= n, `${n} spans of ${id}`);
    return c.spans.filter((s) => s.traceId === id);
  };
  return c;
}

const dropped = (m) =>
  [...m].filter(([k]) => k.startsWith("inferd_trace_spans_dropped_total")).reduce((sum, [, v]) => sum + v, 0);
const droppedFor = (m, reason) => m.get(`inferd_trace_spans_dropped_total{reason="${reason}"}`);
const ask = (server, headers = {}, more = {}) =>
  chat(server, { messages: user("Hello."), max_tokens: 2, ...more }, { headers });
const named = (spans, name) => spans.find((s) => s.name === name);

let collector, server;
before(async () => {
  collector = await startCollector();
  server = await startServer(["--otlp-endpoint", collector.url]);
});
after(async () => {
  await server?.stop();
  await collector?.stop();
});

// A batch is sent after a second, so these wait for theirs at the same time.
describe("a collector that accepts", { concurrency: true }, () => {
  test("a client's span is the parent of the request's; tracestate is kept", async () => {
    const provider = new BasicTracerProvider();
    const span = provider.getTracer("test").startSpan("call", { kind: SpanKind.CLIENT });
    const headers = {};
    new W3CTraceContextPropagator().inject(trace.setSpan(context.active(), span), headers, {
      set: (carrier, key, value) => (carrier[key] = value),
    });
    headers.tracestate = "rojo=00f067aa0ba902b7,,  congo=t61rcWkgMzE ";
    const response = await ask(server, headers, { temperature: 0.3, top_p: 0.9, seed: 7, n: 2 });
    const body = await response.json();
    const { traceId, spanId } = span.spanContext();
    const [version, answered, own, flags] = response.headers.get("traceresponse").split("-");
    assert.deepEqual([version, answered, Number(`0x${flags}`) & 1], ["00", traceId, 1]);
    const spans = await collector.of(response, 10);
    assert.equal(spans.length, 10, "server, model, and four of each sequence");
    const request = named(spans, "POST /v1/chat/completions");
    assert.deepEqual(
      [request.spanId, request.parentSpanId, request.kind, request.status],
      [own, spanId, SpanKind.SERVER + 1, undefined],
    );
    for (const s of spans) {
      assert.equal(s.traceState, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
      assert.equal(s.flags & TraceFlags.SAMPLED, TraceFlags.SAMPLED);
      for (const key of Object.keys(s.attributes))
        assert.ok(known.has(key) || key.startsWith("inferd."), `${key} is a name of the conventions`);
    }
    assert.equal(new Set(spans.map((s) => s.spanId)).size, 10, "ids differ");
    assert.equal(request.flags & 0x300, 0x300, "its parent is remote");
    const a = request.attributes;
    assert.equal(a["http.request.method"], "POST");
    assert.equal(a["http.route"], "/v1/chat/completions");
    assert.equal(a["http.response.status_code"], 200);
    assert.equal(a["url.scheme"], "http");
    assert.equal(a["inferd.request.id"], response.headers.get("x-request-id"));
    const model = named(spans, `chat ${modelName}`);
    const g = model.attributes;
    assert.equal(model.parentSpanId, own);
    assert.equal(g["gen_ai.operation.name"], "chat");
    assert.equal(g["gen_ai.request.model"], modelName);
    assert.equal(g["gen_ai.response.id"], body.id);
    assert.equal(g["gen_ai.usage.input_tokens"], body.usage.prompt_tokens);
    assert.equal(g["gen_ai.usage.output_tokens"], body.usage.completion_tokens);
    assert.deepEqual([g["gen_ai.request.temperature"], g["gen_ai.request.top_p"]], [0.3, 0.9]);
    assert.deepEqual([g["gen_ai.request.seed"], g["gen_ai.request.choice.count"]], [7, 2]);
    assert.deepEqual(
      g["gen_ai.response.finish_reasons"],
      body.choices.map((c) => c.finish_reason),
    );
    for (const i of [0, 1]) {
      const mine = spans.filter((s) => s.attributes["inferd.sequence"] === i);
      const [queue, prefill, decode, sampling] = ["queue", "prefill", "decode", "sampling"].map((n) => named(mine, n));
      const [from, to] = [(s) => BigInt(s.startTimeUnixNano), (s) => BigInt(s.endTimeUnixNano)];
      assert.ok(from(request) <= from(model) && to(model) <= to(request));
      assert.ok(from(model) <= from(queue) && to(queue) === from(prefill) && to(prefill) === from(decode));
      assert.ok(to(decode) <= to(model));
      assert.ok(from(sampling) >= from(decode) && to(sampling) <= to(decode));
      assert.equal(sampling.parentSpanId, decode.spanId);
      const seconds = sampling.attributes["inferd.sampling.seconds"];
      assert.ok(seconds > 0 && seconds < Number(to(model) - from(model)) / 1e9, "a part of the whole");
    }
    const now = BigInt(Date.now()) * 1000000n;
    assert.ok(now - BigInt(request.endTimeUnixNano) < 600_000_000_000n, "in the time since 1970");
  });

  test("no text of prompts and answers is in any span", async () => {
    const secret = "Xylophone-Quartz";
    const response = await ask(server, {}, { messages: user(`Remember ${secret}.`), max_tokens: 8, user: secret });
    const body = await response.json();
    await collector.of(response, 6);
    assert.ok(!collector.text.includes(secret));
    assert.ok(!collector.text.includes(JSON.stringify(body.choices[0].message.content).slice(1, -1)));
  });

  test("a client that did not sample is not traced, and its trace goes on in the answer", async () => {
    const provider = new BasicTracerProvider({ sampler: new AlwaysOffSampler() });
    const span = provider.getTracer("test").startSpan("call");
    const headers = {};
    new W3CTraceContextPropagator().inject(trace.setSpan(context.active(), span), headers, {
      set: (carrier, key, value) => (carrier[key] = value),
    });
    assert.match(headers.traceparent, /-00$/);
    const response = await ask(server, headers);
    assert.equal(response.headers.get("traceresponse").split("-")[1], span.spanContext().traceId);
    await collector.of(await ask(server), 6); // a later one has arrived
    assert.ok(!collector.spans.some((s) => s.traceId === span.spanContext().traceId));
  });

  // The cases of W3C's own test suite (w3c/trace-context, test/test.py).
  const id = "12345678901234567890123456789012",
    parent = "1234567890123456";
  const good = {
    "a later version": `cc-${id}-${parent}-01`,
    "a later version with more": `cc-${id}-${parent}-01-what-the-future-will-be-like`,
    "unknown flags": `00-${id}-${parent}-ff`,
  };
  const bad = {
    "version ff": `ff-${id}-${parent}-01`,
    "a version of one digit": `0-${id}-${parent}-01`,
    "a version of three digits": `000-${id}-${parent}-01`,
    "an illegal version": `.0-${id}-${parent}-01`,
    "more than version 00 has": `00-${id}-${parent}-01-what-the-future-will-be-like`,
    "a dash at the end": `00-${id}-${parent}-01-`,
    "a later version with something else": `cc-${id}-${parent}-01.what-the-future-will-be-like`,
    "a trace of zeros": `00-${"0".repeat(32)}-${parent}-01`,
    "a parent of zeros": `00-${id}-${"0".repeat(16)}-01`,
    "a trace that is short": `00-${id.slice(1)}-${parent}-01`,
    "a trace that is long": `00-${id}0-${parent}-01`,
    "a parent that is short": `00-${id}-${parent.slice(1)}-01`,
    "upper case": `00-${id.slice(0, 31)}A-${parent}-01`,
    "illegal characters": `00-${id.slice(0, 31)}.-${parent}-01`,
    "flags of one digit": `00-${id}-${parent}-1`,
    "illegal flags": `00-${id}-${parent}-.0`,
    nothing: "",
    "several headers": [`00-${id}-${parent}-01`, `00-${id.replace("1", "2")}-${parent}-01`],
  };
  // fetch() would join several headers.
  function raw(headers) {
    return new Promise((resolve, reject) => {
      const lines = headers.map(([k, v]) => `${k}: ${v}\r\n`).join("");
      const socket = connect(new URL(server.url).port, "127.0.0.1");
      let text = "";
      socket.on("data", (d) => (text += d));
      socket.on("error", reject);
      socket.on("end", () => resolve(/^traceresponse: (.*)\r$/im.exec(text)[1]));
      socket.write(`GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n${lines}\r\n`);
    });
  }
  test("a valid traceparent is continued, also of a later version", async () => {
    for (const [what, value] of Object.entries(good)) {
      const [version, trace, , flags] = (await raw([["TraceParent", value]])).split("-");
      assert.deepEqual([version, trace], ["00", id], what);
      assert.equal(Number(`0x${flags}`) & ~3, 0, "unknown flags are zero");
    }
  });

  test("a malformed traceparent is ignored with its tracestate", async () => {
    const traces = [];
    for (const [what, value] of Object.entries(bad)) {
      const lines = [value].flat().map((v) => ["traceparent", v]);
      const [, trace, span, flags] = (await raw([...lines, ["tracestate", "a=1"]])).split("-");
      assert.ok(!trace.includes(id.slice(1, 30)) && /^[0-9a-f]{32}$/.test(trace) && /^[0-9a-f]{16}$/.test(span), what);
      assert.equal(flags, "03", "sampled, and random");
      traces.push(trace);
    }
    assert.equal(new Set(traces).size, traces.length);
    const found = () => collector.spans.filter((s) => traces.includes(s.traceId));
    await until(() => found().length === traces.length, "their spans");
    for (const s of found()) assert.deepEqual([s.parentSpanId, s.traceState], [undefined, undefined]);
  });

  const states = {
    "foo=1": "foo=1",
    "foo=1,bar=2,": "foo=1,bar=2",
    "foo=1 \t , \t bar=2": "foo=1,bar=2",
    "t@v-_*/=x:y z": "t@v-_*/=x:y z",
    "foo=1,foo=2": undefined,
    foo: undefined,
    "foo=": undefined,
    "FOO=1": undefined,
    "foo@=1,bar=2": "foo@=1,bar=2",
    "foo=bar=baz": undefined,
    "foo 1=2": undefined,
    "-foo=1": undefined,
    [`${"z".repeat(257)}=1`]: undefined,
    [Array.from({ length: 32 }, (_, i) => `bar${i}=${i}`).join()]: Array.from(
      { length: 32 },
      (_, i) => `bar${i}=${i}`,
    ).join(),
    [Array.from({ length: 33 }, (_, i) => `bar${i}=${i}`).join()]: undefined,
    // Longer than 512 characters: long members go first.
    [`a=${"x".repeat(200)},b=${"y".repeat(200)},c=${"z".repeat(120)}`]: `a=${"x".repeat(200)},c=${"z".repeat(120)}`,
  };
  test("tracestate is kept, or dropped as a whole where it is malformed", async () => {
    const traceOf = (n) => `${"ef".repeat(15)}${10 + n}`;
    const all = Object.entries(states);
    for (const [n, [given]] of all.entries())
      await raw([
        ["traceparent", `00-${traceOf(n)}-${parent}-01`],
        ["tracestate", given],
      ]);
    for (const [n, [given, kept]] of all.entries()) {
      const find = () => collector.spans.find((s) => s.traceId === traceOf(n));
      await until(find, `the span with ${given}`);
      assert.equal(find().traceState, kept, given);
    }
  });

  test("several tracestate headers are one list", async () => {
    const trace = id.replace(/^../, "ab");
    await raw([
      ["traceparent", `00-${trace}-${parent}-01`],
      ["tracestate", "foo=1"],
      ["TraceState", "bar=2"],
    ]);
    await until(() => collector.spans.some((s) => s.traceId === trace), "the span");
    assert.equal(collector.spans.find((s) => s.traceId === trace).traceState, "foo=1,bar=2");
  });

  test("embeddings, streams and refused requests", async () => {
    const embedded = await post(server, "/v1/embeddings", { model: modelName, input: ["one", "two two"] });
    const vectors = await collector.of(embedded, 6);
    const model = named(vectors, `embeddings ${modelName}`).attributes;
    assert.equal(model["gen_ai.usage.input_tokens"], (await embedded.json()).usage.prompt_tokens);
    assert.equal(model["gen_ai.usage.output_tokens"], undefined);
    assert.deepEqual(vectors.map((s) => s.name).filter((n) => n === "queue" || n === "prefill").length, 4);
    const stream = await ask(server, {}, { stream: true });
    for await (const event of sse(stream)) void event;
    const streamed = named(await collector.of(stream, 6), `chat ${modelName}`).attributes;
    assert.equal(streamed["gen_ai.request.stream"], true);
    const refused = await ask(server, {}, { temperature: 99 });
    assert.equal(refused.status, 400);
    const [one, ...others] = await collector.of(refused, 1);
    assert.deepEqual([one.attributes["http.response.status_code"], one.status, others.length], [400, undefined, 0]);
    const completed = await post(server, "/v1/completions", { model: modelName, prompt: "Once", max_tokens: 2 });
    assert.ok(named(await collector.of(completed, 6), `text_completion ${modelName}`));
  });

  test("a stream that ends with an error is one, though its status is 200", async () => {
    let timeoutMs = 300;
    const ended = await until(async () => {
      const response = await chat(
        server,
        { messages: user("Tell me a long story."), max_tokens: 8000, stream: true, ignore_eos: true },
        { headers: { "X-Request-Timeout-Ms": String(timeoutMs) } },
      );
      timeoutMs *= 2;
      if (response.status !== 200) return null; // it ended before its first token
      let last;
      for await (const event of sse(response)) if (event.comment === undefined) last = event;
      return last.error ? response : null;
    }, "a stream that its deadline ends");
    const spans = await collector.of(ended, 6);
    for (const name of ["POST /v1/chat/completions", `chat ${modelName}`]) {
      const s = named(spans, name);
      assert.deepEqual([s.attributes["error.type"], s.status], ["504", { code: 2 }], name);
    }
    assert.equal(named(spans, "POST /v1/chat/completions").attributes["http.response.status_code"], 200);
  });

  test("a client that leaves has a trace with what was done", async () => {
    const leave = new AbortController();
    const response = await chat(
      server,
      { messages: user("Tell me a long story."), max_tokens: 4000, stream: true, ignore_eos: true },
      { signal: leave.signal },
    );
    for await (const event of sse(response)) if (event.choices?.[0]?.delta?.content) break;
    leave.abort();
    const spans = await collector.of(response, 6);
    assert.equal(named(spans, "POST /v1/chat/completions").attributes["error.type"], "client_disconnected");
    assert.equal(named(spans, "decode").attributes["inferd.finish_reason"], undefined);
  });
});

describe("the same collector, one after the other", () => {
  test("health and metrics are not traced; all spans are counted", async () => {
    for (const path of ["/livez", "/readyz", "/metrics", "/"])
      assert.equal((await fetch(server.url + path)).headers.get("traceresponse"), null, path);
    await collector.of(await ask(server), 6);
    await until(
      async () => (await metrics(server)).get("inferd_trace_spans_sent_total") === collector.spans.length,
      "all counted",
    );
    assert.equal(dropped(await metrics(server)), 0);
    assert.ok(
      collector.requests.every((r) => r.path === "/v1/traces" && r.headers["content-type"] === "application/json"),
    );
    assert.equal(collector.resources[0]["service.name"], "inferd");
    assert.equal(new Set(collector.resources.map((r) => r["service.instance.id"])).size, 1);
  });

  test("a key is named by its prefix, never by its text", async () => {
    const key = addKey(server, "alice");
    const response = await until(async () => {
      const r = await ask(server, { Authorization: `Bearer ${key}` });
      return r.status === 200 && (await collector.of(r, 6))[0].attributes["inferd.key.name"] ? r : null;
    }, "the key is known");
    const [request] = await collector.of(response, 6);
    assert.ok(key.startsWith(request.attributes["inferd.key.name"]));
    assert.ok(!collector.text.includes(key));
  });
});

describe("collectors that do not", { concurrency: 3 }, () => {
  test("503 with Retry-After: the same spans come again after it, and nothing is lost", async () => {
    const collector = await startCollector((response, n) => {
      if (n < 2) response.writeHead(n ? 429 : 503, n ? {} : { "Retry-After": "1" });
      response.end(n < 2 ? "" : "{}");
    });
    const server = await startServer(["--otlp-endpoint", `${collector.url}/`]);
    try {
      await collector.of(await ask(server), 6);
      const [first, second, third] = collector.requests;
      assert.ok(second.at - first.at >= 900, "it waited as long as it was asked to");
      assert.equal(first.body, second.body);
      assert.equal(first.body, third.body);
      const m = await until(async () => {
        const now = await metrics(server);
        return now.get("inferd_trace_spans_sent_total") === 6 ? now : null;
      }, "they are counted");
      assert.deepEqual([m.get("inferd_trace_retries_total"), dropped(m)], [2, 0]);
    } finally {
      await server.stop();
      await collector.stop();
    }
  });

  test("what a collector refuses is counted and not sent again", async () => {
    const collector = await startCollector((response, n) => {
      if (n === 0) response.writeHead(400);
      response.end(n === 0 ? "" : JSON.stringify({ partialSuccess: { rejectedSpans: "2", errorMessage: "too old" } }));
    });
    const server = await startServer(["--otlp-endpoint", collector.url]);
    try {
      await ask(server);
      await until(async () => droppedFor(await metrics(server), "refused") === 6, "all of the first");
      await collector.of(await ask(server), 6);
      await until(async () => droppedFor(await metrics(server), "refused") === 8, "and two of the second");
      assert.equal((await metrics(server)).get("inferd_trace_spans_sent_total"), 4);
      assert.equal(collector.requests.length, 2);
      assert.match(server.stderr, /traces are not sent: the collector answers 400/);
      assert.match(server.stderr, /too old/);
    } finally {
      await server.stop();
      await collector.stop();
    }
  });

  test("a collector that never answers: requests go on, and the queue's bound holds", async () => {
    const collector = await startCollector(() => {});
    const server = await startServer([
      "--otlp-endpoint",
      collector.url,
      "--otlp-queue",
      "3",
      "--shutdown-deadline-s",
      "1",
    ]);
    try {
      await ask(server);
      await until(() => collector.requests.length, "the first batch is with the collector");
      for (let i = 0; i < 5; i++) assert.equal((await ask(server)).status, 200);
      const m = await until(async () => {
        const now = await metrics(server);
        return droppedFor(now, "queue_full") === 12 ? now : null;
      }, "two of five are dropped");
      assert.equal(m.get("inferd_trace_queue"), 3);
      // The transfer is ended by the deadline.
      assert.equal((await server.stop()).code, 0);
      assert.match(server.stderr, /36 spans of traces were dropped/);
    } finally {
      await server.stop();
      await collector.stop();
    }
  });

  test("SIGTERM sends what waits; a second server's collector is away", async () => {
    const collector = await startCollector();
    const server = await startServer(["--otlp-endpoint", collector.url]);
    const away = await startServer(["--otlp-endpoint", "http://127.0.0.1:1", "--shutdown-deadline-s", "1"]);
    try {
      const response = await ask(server);
      assert.equal((await server.stop()).code, 0);
      assert.equal((await collector.of(response, 6)).length, 6);
      await ask(away);
      assert.equal((await away.stop()).code, 0);
      assert.match(away.stderr, /6 spans of traces were dropped/);
    } finally {
      await Promise.all([server.stop(), away.stop()]);
      await collector.stop();
    }
  });

  test("a reload turns traces on and off, and changes the ratio; a bad address changes nothing", async () => {
    const collector = await startCollector();
    const folder = mkdtempSync(join(tmpdir(), "inferd-traces-"));
    const file = join(folder, "daemon.conf");
    const reload = async (s, text, said) => {
      const from = s.stderr.length;
      writeFileSync(file, text);
      s.child.kill("SIGHUP");
      await until(() => said.test(s.stderr.slice(from)), `the log says ${said}`);
    };
    writeFileSync(file, "");
    const s = await startServer(["--config", file]);
    try {
      assert.equal((await ask(s)).headers.get("traceresponse"), null);
      await reload(s, `otlp-endpoint = ${collector.url}\n`, /applied otlp-endpoint/);
      await collector.of(await ask(s), 6);
      await reload(s, `otlp-endpoint = ftp://example.com\n`, /daemon\.conf:1: .*otlp-endpoint.*base address/);
      await collector.of(await ask(s), 6);
      await reload(s, `otlp-endpoint = ${collector.url}\notlp-ratio = 0\n`, /applied otlp-ratio/);
      assert.match((await ask(s)).headers.get("traceresponse"), /-02$/, "not sampled");
      const sampled = await ask(s, { traceparent: `00-${"ab".repeat(16)}-${"cd".repeat(8)}-01` });
      await collector.of(sampled, 6);
      await reload(s, "", /applied otlp-endpoint, otlp-ratio/);
      assert.equal((await ask(s)).headers.get("traceresponse"), null);
    } finally {
      await s.stop();
      await collector.stop();
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
