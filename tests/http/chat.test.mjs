// `inferd chat` against a scripted server that sends its bytes in pieces of any size: the requests, the
// parsing of answers, and the errors for malformed ones.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import tls from "node:tls";
import { binary, until } from "./server.mjs";

// Answers each connection's request with the same bytes, `piece` per write. hang: never closes.
function startScripted(answer, { piece = 4096, hang = false, secure = null } = {}) {
  const requests = [];
  async function send(socket) {
    for (let at = 0; at < answer.length && !socket.destroyed; at += piece) {
      socket.write(answer.slice(at, at + piece));
      if (piece < 100) await new Promise(setImmediate);
    }
    if (!hang) socket.end();
  }
  const onConnection = (socket) => {
    let request = "";
    socket.setNoDelay(true).on("error", () => {});
    socket.on("data", (bytes) => {
      request += bytes;
      const end = request.indexOf("\r\n\r\n");
      const length = Number(/^content-length: (\d+)/im.exec(request)?.[1] ?? 0);
      if (end < 0 || Buffer.byteLength(request) < end + 4 + length) return;
      requests.push(request);
      request = "";
      send(socket);
    });
  };
  const server = secure ? tls.createServer(secure, onConnection) : net.createServer(onConnection);
  return new Promise((resolve) =>
    server.listen(0, "127.0.0.1", () =>
      resolve({ requests, port: server.address().port, close: () => server.close() }),
    ),
  );
}

function startChat(url, { args = [], env = {}, input = "Hello!\n" } = {}) {
  const child = spawn(binary, ["chat", "--url", url, "--model", "m", ...args], {
    env: { ...process.env, INFERD_API_KEY: "sk-1", ...env },
  });
  const run = { child, out: "", err: "" };
  child.stdout.on("data", (bytes) => (run.out += bytes));
  child.stderr.on("data", (bytes) => (run.err += bytes));
  child.stdin.end(input);
  run.ended = new Promise((resolve) =>
    child.on("close", (code, signal) => resolve(Object.assign(run, { code, signal }))),
  );
  return run;
}

async function ask(answer, { path = "", ...options } = {}) {
  const server = await startScripted(answer, options);
  const run = await startChat(`http://127.0.0.1:${server.port}${path}`, options).ended;
  server.close();
  assert.ok(!/Sanitizer/.test(run.err), run.err);
  return { ...run, requests: server.requests };
}

const delta = (content) => `data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`;
const story = `: keep-alive\n\n${delta("Once ")}${delta("upon\u001b[31m a ti\u009bme")}data: [DONE]\n\n`;
const storyText = "Once upon[31m a time\n";
const chunk = (text) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
const chunks = (text) =>
  chunk(text.slice(0, 17)) +
  `${Buffer.byteLength(text.slice(17)).toString(16).toUpperCase()};x=y\r\n${text.slice(17)}\r\n0\r\nTrailer: x\r\n\r\n`;
const ok = "HTTP/1.1 200 OK\r\n";
const asked = (run) => JSON.parse(run.requests.at(-1).split("\r\n\r\n")[1]);

test("reads answers by length, in chunks and until close, in pieces of any size", async () => {
  const answers = [
    `${ok}Content-Length: ${Buffer.byteLength(story)}\r\n\r\n${story}`,
    `${ok}Transfer-Encoding: chunked\r\n\r\n${chunks(story)}`,
    `HTTP/1.0 200 OK\r\nServer: x\r\n\r\n${story}`,
    `HTTP/1.1 100 Continue\r\n\r\n${ok}\r\n${story.replaceAll("\n", "\r\n")}`,
  ];
  for (const answer of answers)
    for (const piece of [1, 2, 3, 7, 19, 4096]) {
      const run = await ask(Buffer.from(answer), { piece, path: "/prefix/" });
      assert.equal(run.err, "");
      assert.equal(run.out, storyText);
      assert.equal(run.code, 0);
      assert.match(run.requests[0], /^POST \/prefix\/v1\/chat\/completions HTTP\/1\.1\r\n/);
      assert.match(run.requests[0], /\r\nAuthorization: Bearer sk-1\r\n/);
      assert.match(run.requests[0], /\r\nContent-Type: application\/json\r\n/);
      assert.ok(!/\r\nExpect:/i.test(run.requests[0]));
      assert.deepEqual(asked(run), { model: "m", stream: true, messages: [{ role: "user", content: "Hello!" }] });
    }
});

test("a conversation sends its earlier turns and options, and bypasses proxies", async () => {
  const answer = `${ok}Content-Length: ${Buffer.byteLength(story)}\r\n\r\n${story}`;
  const long = "x".repeat(100000);
  const run = await ask(Buffer.from(answer), {
    args: ["--lines", "--system", "Be brief.", "--max-tokens", "7"],
    env: { http_proxy: "http://127.0.0.1:1", INFERD_API_KEY: "" },
    input: `One\n\n${long}\n/quit\nnot asked\n`,
  });
  assert.equal(run.code, 0, run.err);
  assert.equal(run.requests.length, 2);
  assert.deepEqual(asked(run), {
    model: "m",
    stream: true,
    max_tokens: 7,
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: "One" },
      { role: "assistant", content: "Once upon\u001b[31m a ti\u009bme" },
      { role: "user", content: long },
    ],
  });
});

test("malformed answers are reported as errors", async () => {
  const cases = [
    ["", /connection .* was lost/],
    ["HTTP/1.1 200", /connection .* was lost|cut off/],
    ["SMTP ready\r\n\r\n", /does not answer in HTTP/],
    [`${ok}Content-Length: 1000\r\n\r\n${delta("short")}`, /connection .* was lost/],
    [`${ok}Content-Length: -1\r\n\r\nx`, /does not answer in HTTP/],
    [`${ok}Transfer-Encoding: chunked\r\n\r\n5\r\nhel`, /connection .* was lost/],
    [`${ok}Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n`, /connection .* was lost/],
    [`${ok}Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n`, /connection .* was lost/],
    [`${ok}Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx`, /connection .* was lost/],
    [`${ok}${"a".repeat(400000)}\r\n\r\n`, /./],
    [`${ok}Content-Length: 0\r\n\r\n`, /the answer was cut off/],
    [`${ok}\r\n${delta("a")}`, /the answer was cut off/],
    [`${ok}\r\ndata: {"error":{"message":"Out of blocks."}}\n\n`, /the server says: Out of blocks\./],
    [`${ok}\r\ndata: ${"x".repeat(1100000)}`, /a line of more than 1048576 bytes/],
    [
      'HTTP/1.1 404 X\r\nContent-Length: 33\r\n\r\n{"error":{"message":"No model."}}',
      /the server answers 404: No model\./,
    ],
    ["HTTP/1.1 503 X\nContent-Length: 2\n\nno", /the server answers 503/],
    ["HTTP/1.1 302 X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", /the server answers 302/],
  ];
  for (const [answer, text] of cases) {
    const run = await ask(Buffer.from(answer), { piece: answer.length > 1000 ? 65536 : 5 });
    assert.match(run.err, text, answer.slice(0, 100));
    assert.match(run.err, /^inferd: .*\n$/);
    assert.equal(run.code, 1);
  }
});

test("Ctrl-C ends the answer while waiting and while reading", async () => {
  for (const answer of ["", `${ok}Content-Length: 9999\r\n\r\n${delta("part")}`]) {
    const server = await startScripted(Buffer.from(answer), { hang: true });
    const run = startChat(`http://127.0.0.1:${server.port}`);
    await until(() => server.requests.length === 1 && (!answer || run.out), "the request and the answer's beginning");
    run.child.kill("SIGINT");
    await run.ended;
    server.close();
    assert.equal(run.code, 0, run.err);
    assert.equal(run.out, `${answer ? "part" : ""} [stopped]\n`);
  }
});

test("https: a certificate trusted by SSL_CERT_FILE, and an untrusted one", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inferd-chat-"));
  const key = join(folder, "key.pem"),
    cert = join(folder, "cert.pem");
  execFileSync(
    "openssl",
    [
      "req",
      "-x509",
      "-newkey",
      "rsa:2048",
      "-nodes",
      "-keyout",
      key,
      "-out",
      cert,
      "-days",
      "2",
      "-subj",
      "/CN=localhost",
      "-addext",
      "subjectAltName=IP:127.0.0.1",
    ],
    { stdio: "ignore" },
  );
  const secure = { key: readFileSync(key), cert: readFileSync(cert) };
  const answer = Buffer.from(`${ok}Transfer-Encoding: chunked\r\n\r\n${chunks(story)}`);
  const server = await startScripted(answer, { secure });
  try {
    const url = `https://127.0.0.1:${server.port}`;
    const good = await startChat(url, { env: { SSL_CERT_FILE: cert } }).ended;
    assert.equal(good.err, "");
    assert.equal(good.out, storyText);
    const bad = await startChat(url, { env: { SSL_CERT_FILE: "" } }).ended;
    assert.equal(bad.code, 1);
    assert.match(bad.err, /certificate.*SSL_CERT_FILE/);
  } finally {
    server.close();
    rmSync(folder, { recursive: true, force: true });
  }
});
