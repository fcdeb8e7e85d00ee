// Streams that are interrupted and resumed with Last-Event-ID.
import assert from "node:assert/strict";
import http from "node:http";
import { after, before, test } from "node:test";
import { metrics, modelName, post, startServer, until, user } from "./server.mjs";

let server;
before(async () => {
  server = await startServer();
});
after(() => server.stop());

// Reads the stream until `enough(text so far)` is true, then closes the connection. Returns everything received;
// status 0: the server closed the connection before an answer.
function cut(body, headers, enough, path = "/v1/chat/completions") {
  return new Promise((resolve, reject) => {
    const got = { status: 0, text: "" };
    const request = http.request(
      server.url + path,
      { method: "POST", headers: { "Content-Type": "application/json", ...headers } },
      (response) => {
        got.status = response.statusCode;
        response.setEncoding("utf8");
        response.on("data", (d) => {
          got.text += d;
          if (enough(got.text)) request.destroy();
        });
        response.on("close", () => resolve(got));
      },
    );
    request.on("error", (e) => {
      if (e.code !== "ECONNRESET") reject(e);
      else if (!got.status) resolve(got);
    });
    request.end(JSON.stringify(body));
  });
}
const all = () => false;

// A stream whose connection stays open and is not read any more, after its first frames.
async function live(body, headers) {
  const reader = (await post(server, "/v1/chat/completions", body, { headers })).body.getReader();
  let text = "";
  while (text.split("\n\n").length < 5) text += new TextDecoder().decode((await reader.read()).value);
  return { reader, first: frames(text) };
}

// Complete frames with their ids; a truncated last one is dropped, as clients do.
function frames(text) {
  const whole = text.slice(0, text.lastIndexOf("\n\n") + 2);
  return whole
    .split("\n\n")
    .filter((f) => f && !f.startsWith(":"))
    .map((f) => {
      const id = /^id: (.*)$/m.exec(f)?.[1];
      return { id, data: /^data: (.*)$/m.exec(f)[1] };
    });
}
const said = (list) =>
  list
    .filter((f) => f.data !== "[DONE]")
    .map((f) => {
      const { choices } = JSON.parse(f.data);
      return choices.map((c) => `${c.index}:${c.delta.content ?? ""}:${c.finish_reason}`).join();
    })
    .join("|");
const text = (list, index) =>
  list
    .filter((f) => f.data !== "[DONE]")
    .flatMap((f) => JSON.parse(f.data).choices)
    .filter((c) => c.index === index)
    .map((c) => c.delta.content ?? "")
    .join("");

const ask = {
  model: modelName,
  messages: user("Tell me a story."),
  stream: true,
  max_tokens: 160,
  temperature: 1,
  seed: 7,
  frequency_penalty: 0.5,
};

test("an interrupted stream resumes byte for byte and computes nothing meanwhile", async () => {
  const whole = frames((await cut(ask, {}, all)).text);
  assert.equal(whole.at(-1).data, "[DONE]");
  for (const n of [3, 20, 61]) {
    const first = frames((await cut(ask, {}, (t) => t.split("\n\n").length > n)).text);
    assert.ok(first.length >= n - 1 && first.at(-1).data !== "[DONE]", "it was cut before its end");
    await until(
      async () => (await metrics(server)).get("inferd_sequences_running") === 0,
      "nothing runs without a reader",
    );
    const rest = frames((await cut({}, { "Last-Event-ID": first.at(-1).id }, all)).text);
    const ids = [...first, ...rest].filter((f) => f.id).map((f) => Number(f.id.split(":").at(-1)));
    assert.deepEqual(
      ids,
      ids.map((_, i) => i + 1),
      "no frame twice, none left out",
    );
    assert.equal(text([...first, ...rest], 0), text(whole, 0));
    assert.equal(rest.at(-1).data, "[DONE]");
  }
});

test("frames that were sent but lost are resent", async () => {
  const first = frames((await cut(ask, {}, (t) => t.split("\n\n").length > 30)).text);
  const early = first[9].id;
  const rest = frames((await cut({}, { "Last-Event-ID": early }, all)).text);
  assert.equal(said(rest.slice(0, first.length - 10)), said(first.slice(10)));
});

test("several choices, without a seed from the client", async () => {
  const body = { ...ask, seed: undefined, n: 3, max_tokens: 60, stream_options: { include_usage: true } };
  const first = frames((await cut(body, {}, (t) => t.split("\n\n").length > 25)).text);
  const rest = frames((await cut({}, { "Last-Event-ID": first.at(-1).id }, all)).text);
  // Again from an earlier frame: the same text, so nothing was sampled again.
  const again = frames((await cut({}, { "Last-Event-ID": first[7].id }, all)).text);
  for (const i of [0, 1, 2]) assert.equal(text([...first.slice(0, 8), ...again], i), text([...first, ...rest], i));
  assert.equal(JSON.parse(rest.at(-2).data).usage.completion_tokens <= 180, true);
});

test("an ended stream can be read again; a stream with a live connection is taken over", async () => {
  const whole = frames((await cut(ask, {}, all)).text);
  const tail = frames((await cut({}, { "Last-Event-ID": whole[whole.length - 4].id }, all)).text);
  assert.deepEqual(
    tail.map((f) => f.data),
    whole.slice(-3).map((f) => f.data),
  );

  // The old connection stays open and is not read any more; the log tells who closes it.
  const long = { ...ask, max_tokens: 6000, ignore_eos: true };
  const { reader, first } = await live(long, { "X-Request-Id": "old-reader" });
  const last = first.at(-1).id;
  const taker = { "Last-Event-ID": last, "X-Request-Id": "new-reader" };
  const { status, text: more } = await cut({}, taker, (t) => t.split("\n\n").length > 50);
  assert.equal(status, 200);
  assert.equal(server.stderr.match(/request new-reader takes over the stream of request old-reader/g)?.length, 1);
  const ids = frames(more).map((f) => Number(f.id.split(":").at(-1)));
  assert.equal(ids[0], Number(last.split(":").at(-1)) + 1);
  await reader.cancel().catch(() => {});
});

test("of several requests that want a live stream one gets the rest; none hears that it is gone", async () => {
  const body = { ...ask, max_tokens: 400, ignore_eos: true };
  const whole = frames((await cut(body, {}, all)).text);
  for (let round = 0; round < 5; round++) {
    const { reader, first } = await live(body);
    const header = { "Last-Event-ID": first.at(-1).id };
    const got = await Promise.all(Array.from({ length: 6 }, () => cut({}, header, all)));
    assert.deepEqual(
      got.filter((r) => r.status !== 0 && r.status !== 200),
      [],
    );
    const complete = got.map((r) => frames(r.text)).filter((list) => list.at(-1)?.data === "[DONE]");
    assert.ok(complete.length > 0, "one gets the rest");
    for (const rest of complete) assert.equal(said(rest), said(whole.slice(first.length)));
    await reader.cancel().catch(() => {});
  }
});

test("unknown streams are 404", async () => {
  for (const id of ["chatcmpl-0:1", "nonsense", "a:b", ":", "chatcmpl-1:99999999999999999999999"]) {
    const r = await post(server, "/v1/chat/completions", {}, { headers: { "Last-Event-ID": id } });
    assert.deepEqual([r.status, (await r.json()).error.code], [404, "stream_not_found"], id);
  }
  const first = frames((await cut(ask, {}, (t) => t.split("\n\n").length > 5)).text);
  const [id] = first.at(-1).id.split(":");
  const r = await post(server, "/v1/chat/completions", {}, { headers: { "Last-Event-ID": `${id}:100000` } });
  assert.equal(r.status, 404, "a frame that was never written");
  for (const path of ["/v1/completions", "/v1/messages", "/tokenize"]) {
    const other = await post(server, path, {}, { headers: { "Last-Event-ID": first.at(-1).id } });
    assert.equal(other.status, 404, `a chat's stream at ${path}`);
  }
});

// Interrupts streams of a new server; returns their last ids after the server has noticed.
async function withCut(flags, n, then) {
  const mine = await startServer(flags);
  const before = server;
  server = mine;
  try {
    const lasts = [];
    for (let i = 0; i < n; i++)
      lasts.push(frames((await cut({ ...ask, seed: i }, {}, (t) => t.split("\n\n").length > 5)).text).at(-1).id);
    await until(async () => mine.stderr.match(/cut off/g)?.length === n, "the server knows of the cuts");
    await then(lasts, async (id) => (await cut({}, { "Last-Event-ID": id }, all)).status);
  } finally {
    server = before;
    await mine.stop();
  }
}

test("kept streams are limited in number: the oldest is dropped", () =>
  withCut(["--resume-streams", "2"], 3, async (lasts, status) => {
    assert.deepEqual([await status(lasts[0]), await status(lasts[1]), await status(lasts[2])], [404, 200, 200]);
  }));

test("kept streams are limited in time", () =>
  withCut(["--resume-timeout-s", "1"], 1, async ([last], status) => {
    await new Promise((done) => setTimeout(done, 1200));
    assert.equal(await status(last), 404);
  }));

// Kept frames count towards the bytes of all answers.
for (const [bound, status] of [
  ["256M", 200],
  ["1M", 404],
])
  test(`a stream whose frames ${status === 200 ? "find" : "find no"} room beside other answers comes whole, and ${status === 200 ? "can" : "cannot"} be gone on with`, async () => {
    const common = server;
    server = await startServer(["--max-answer-bytes", bound, "--resume-buffer-bytes", "1M"]);
    try {
      const large = { ...ask, n: 8, max_tokens: 200, ignore_eos: true, logprobs: true, top_logprobs: 20 };
      const whole = await cut(large, {}, all);
      const list = frames(whole.text);
      assert.ok(whole.text.length > 2_000_000 && list.at(-1).data === "[DONE]");
      const rest = await cut({}, { "Last-Event-ID": list.at(-5).id }, all);
      assert.equal(rest.status, status, rest.text);
      if (status === 200) assert.equal(said(frames(rest.text)), said(list.slice(-4)));
      await until(async () => (await metrics(server)).get("inferd_http_requests_active") === 0, "all is over");
      assert.equal((await metrics(server)).get("inferd_answer_bytes") > 0, status === 200, "kept, or not");
    } finally {
      await server.stop();
      server = common;
    }
  });
