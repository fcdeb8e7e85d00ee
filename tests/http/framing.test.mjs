// Request smuggling (RFC 9112): framings that a proxy before the daemon could read differently. Each
// case is sent over its own socket, followed by a second request that must never be answered.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { after, before, test } from "node:test";
import { patience, startServer } from "./server.mjs";

let server;
before(async () => {
  server = await startServer(["--max-header-bytes", "32768"]);
});
after(() => server.stop());

const canary = "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
const host = "Host: 127.0.0.1\r\n";
const json = "Content-Type: application/json\r\n";

// Sends bytes as they are; resolves with what came when the server closed, or null as `closed` when it
// has not done so in time.
function raw(bytes, limitMs = 20_000) {
  return new Promise((resolve) => {
    const socket = connect(new URL(server.url).port, "127.0.0.1");
    let got = "";
    const done = (closed) => {
      clearTimeout(timer);
      socket.destroy();
      resolve({ got, closed, statuses: [...got.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map((m) => Number(m[1])) });
    };
    const timer = setTimeout(() => done(false), limitMs * patience);
    socket.setEncoding("latin1");
    socket.on("data", (d) => (got += d));
    socket.on("error", () => done(true));
    socket.on("close", () => done(true));
    socket.write(Buffer.from(bytes, "latin1"));
  });
}

async function served() {
  const text = await (await fetch(server.url + "/metrics")).text();
  let n = 0;
  for (const line of text.split("\n"))
    if (line.startsWith("inferd_http_requests_total{") && line.includes('route="/v1/models"'))
      n += Number(line.split(" ").at(-1));
  return n;
}

const get = (headers, target = "/livez", version = "HTTP/1.1") => `GET ${target} ${version}\r\n${headers}\r\n`;
const post = (headers, body) => `POST /tokenize HTTP/1.1\r\n${host}${json}${headers}\r\n${body}`;
const chunked = (body, more = "") => post(`Transfer-Encoding: chunked\r\n${more}`, body);
const length = (value) => post(`Content-Length:${value}\r\n`, "{}   ");

// The fault, bytes, status. Empty status: closing without an answer is also correct.
const cases = [
  ["blank before the colon", post("Content-Length : 5\r\n", "{}   "), 400],
  ["tab before the colon", get(`${host}X-A\t: b\r\n`), 400],
  ["no name before the colon", get(`${host}: b\r\n`), 400],
  ["no colon", get(`${host}nothing\r\n`), 400],
  ["bytes in a name that are no token", get(`${host}X(A): b\r\n`), 400],
  ["8-bit byte in a name", get(`${host}X-\xe4: b\r\n`), 400],
  ["bare CR in a value", get(`${host}X-A: a\rTransfer-Encoding: chunked\r\n`), 400],
  ["NUL in a value", get(`${host}X-A: a\0b\r\n`), 400],
  ["NUL in a name", get(`${host}X-\0A: a\r\n`), 400],
  ["NUL at the end of a value", get(`${host}X-A: a\0\r\n`), 400],
  ["control byte in a value", get(`${host}X-A: a\x01b\r\n`), 400],
  ["DEL in a value", get(`${host}X-A: a\x7fb\r\n`), 400],
  ["folded header", get(`${host}X-A: a\r\n b\r\n`), 400],
  ["folded header that makes a name", get(`${host}Transfer-Encodin: chunked\r\n g\r\n`), 400],
  ["folded first header", `GET /livez HTTP/1.1\r\n ${host}\r\n`, 400],
  ["bare LF after a header", `GET /livez HTTP/1.1\r\n${host}X-A: b\n\r\n`, 400],
  ["bare LF after the request line", `GET /livez HTTP/1.1\n${host}\r\n`, 400],
  ["bare LF at the head's end", `GET /livez HTTP/1.1\r\n${host}\n`, 400],
  ["bare LF everywhere", `GET /livez HTTP/1.1\nHost: 127.0.0.1\n\n`, 400],
  ["bare CR as line ends", `GET /livez HTTP/1.1\rHost: 127.0.0.1\r\r\n\r\n`, 400],
  ["no Host", get(""), 400],
  ["two Hosts", get(host + host), 400],
  ["Host with a blank", get("Host: 127.0.0.1 x\r\n"), 400],
  ["Host with a path", get("Host: 127.0.0.1/x\r\n"), 400],
  ["Host with a user", get("Host: a@127.0.0.1\r\n"), 400],
  ["two Transfer-Encodings", chunked("2\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\n"), 400],
  ["second Transfer-Encoding", chunked("2\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: identity\r\n"), 400],
  ["chunked twice", post("Transfer-Encoding: chunked, chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), 501],
  ["unknown coding", post("Transfer-Encoding: xchunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), 501],
  ["gzip, chunked", post("Transfer-Encoding: gzip, chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), 501],
  ["identity", post("Transfer-Encoding: identity\r\n", "{}"), 501],
  ["empty coding", post("Transfer-Encoding:\r\n", "2\r\n{}\r\n0\r\n\r\n"), 501],
  ["coding in quotes", post('Transfer-Encoding: "chunked"\r\n', "2\r\n{}\r\n0\r\n\r\n"), 501],
  ["vertical tab before a coding", post("Transfer-Encoding: \x0bchunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), 400],
  [
    "Transfer-Encoding in HTTP/1.0",
    `POST /tokenize HTTP/1.0\r\n${host}${json}Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
    400,
  ],
  ["Transfer-Encoding and Content-Length", chunked("2\r\n{}\r\n0\r\n\r\n", "Content-Length: 5\r\n"), 400],
  ["two Content-Lengths", post("Content-Length: 5\r\nContent-Length: 5\r\n", "{}   "), 400],
  ["different Content-Lengths", post("Content-Length: 5\r\nContent-Length: 2\r\n", "{}   "), 400],
  ...["+5", "5, 5", "0x5", " 5 x", "-5", "", " ", "5.0", "1e1", "\x0b5", "5;", "five"].map((v) => [
    `Content-Length "${v}"`,
    length(v),
    400,
  ]),
  ["Content-Length of 30 digits", length("123456789012345678901234567890"), 400],
  ["Content-Length of 2^64", length("18446744073709551616"), 400],
  ["chunk size that is no number", chunked("x\r\n{}\r\n0\r\n\r\n"), 400],
  ["negative chunk size", chunked("-2\r\n{}\r\n0\r\n\r\n"), 400],
  ["chunk size with 0x", chunked("0x2\r\n{}\r\n0\r\n\r\n"), 400],
  ["chunk size with a blank", chunked("2 \r\n{}\r\n0\r\n\r\n"), 400],
  ["chunk longer than its size", chunked("1\r\n{}\r\n0\r\n\r\n"), 400],
  ["chunk size beyond 64 bits", chunked("10000000000000002\r\n{}\r\n0\r\n\r\n"), 413],
  ["NUL in the path", get(host, "/livez%00.html"), 400],
  ["control byte in the path", get(host, "/livez%0a"), 400],
  ["DEL in the path", get(host, "/livez%7f"), 400],
  ["escape that is none", get(host, "/livez%zz"), 400],
  ["escape cut off", get(host, "/livez%2"), 400],
  ["NUL in the query", get(host, "/livez?a=%00b"), 400],
  ["raw NUL in the target", get(host, "/livez\0x"), 400],
  ["raw control byte in the target", get(host, "/livez\x01"), 400],
  ["raw 8-bit byte in the target", get(host, "/livez\xe4"), 400],
  ["blank in the target", get(host, "/livez x"), 400],
  ["tab in the target", get(host, "/livez\tx"), 400],
  ["two blanks before the target", get(host, " /livez"), 400],
  ["two blanks before the version", get(host, "/livez "), 400],
  ["blank after the version", get(host, "/livez", "HTTP/1.1 "), 400],
  ["fragment in the target", get(host, "/livez#x"), 400],
  ["absolute form with another host", get(host, "http://127.0.0.2/livez"), 400],
  ["absolute form with another port", get(host, "http://127.0.0.1:80/livez"), 400],
  ["absolute form with a user", get(host, "http://a@127.0.0.1/livez"), 400],
  ["absolute form with an escape in its host", get(host, "http://127.0.0.%31/livez"), 400],
  ["absolute form without a host", get(host, "http:///livez"), 400],
  ["absolute form of another scheme", get(host, "ftp://127.0.0.1/livez"), 400],
  ["no slash", get(host, "livez"), 400],
  ["OPTIONS *", `OPTIONS * HTTP/1.1\r\n${host}\r\n`, 400],
  ["CONNECT", `CONNECT 127.0.0.1:80 HTTP/1.1\r\n${host}\r\n`, 400],
  ["method that is no token", `G(T /livez HTTP/1.1\r\n${host}\r\n`, 400],
  ["tab after the method", `GET\t/livez HTTP/1.1\r\n${host}\r\n`, [400]],
  ["no target", `GET HTTP/1.1\r\n${host}\r\n`, 400],
  ["HTTP/0.9", "GET /livez\r\n", 400],
  ["HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505],
  ["HTTP/2.0", get(host, "/livez", "HTTP/2.0"), 505],
  ["version in lower case", get(host, "/livez", "http/1.1"), 400],
  ["version with more digits", get(host, "/livez", "HTTP/1.10"), 400],
  ["TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", []],
  ["long request line", get(host, "/" + "a".repeat(40_000)), 414],
  ["very long request line", get(host, "/" + "a".repeat(400_000)), 414],
  ["large headers", get(host + `X-A: ${"a".repeat(40_000)}\r\n`), 431],
  ["very large headers", get(host + `X-A: ${"a".repeat(400_000)}\r\n`), 431],
  ["very many headers", get(host + "a:b\r\n".repeat(30_000)), 431],
];

// Unusual but valid framings, or ones that libmicrohttpd accepts: they may be answered, but then the
// connection closes.
const last = [
  ["chunked", chunked("2\r\n{}\r\n0\r\n\r\n")],
  ["Chunked", post("Transfer-Encoding: Chunked\r\n", "2\r\n{}\r\n0\r\n\r\n")],
  ["bare LF after a chunk's size", chunked("2\n{}\r\n0\r\n\r\n")],
  ["bare LF after a chunk", chunked("2\r\n{}\n0\r\n\r\n")],
  ["bare LF after the last chunk", chunked("2\r\n{}\r\n0\n\r\n")],
  ["bare LF after the trailers", chunked("2\r\n{}\r\n0\r\nX-A: b\r\n\n")],
  ["bare LF in a chunk's extension", chunked("2;a=\nb\r\n{}\r\n0\r\n\r\n")],
  ["bare CR in a chunk's extension", chunked("2;a=\rb\r\n{}\r\n0\r\n\r\n")],
  ["chunk extension", chunked("2;a=b\r\n{}\r\n0\r\n\r\n")],
  ["zeros before a chunk's size", chunked("0000000002\r\n{}\r\n0\r\n\r\n")],
  ["zero with digits behind", chunked("2\r\n{}\r\n00\r\n\r\n")],
  ["trailers", chunked("2\r\n{}\r\n0\r\nX-A: b\r\n\r\n")],
  ["trailer with a length", chunked("2\r\n{}\r\n0\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\n\r\n")],
  ["folded trailer", chunked("2\r\n{}\r\n0\r\nX-A: b\r\n c\r\n\r\n")],
  ["HTTP/1.0", get(host, "/livez", "HTTP/1.0")],
  ["HTTP/1.0 without Host", get("", "/livez", "HTTP/1.0")],
  ["Connection: close", get(`${host}Connection: close\r\n`)],
  ["Expect and a length that is refused", post("Expect: 100-continue\r\nContent-Length: 900000000\r\n", "")],
  ["Expect and a second length", post("Expect: 100-continue\r\nContent-Length: 2\r\nContent-Length: 2\r\n", "")],
];

// Valid framings: the next request is served.
const kept = [
  ["GET", get(host)],
  ["HEAD", `HEAD /livez HTTP/1.1\r\n${host}\r\n`],
  ["HEAD of nothing", `HEAD /nothing HTTP/1.1\r\n${host}\r\n`],
  ["empty line before", `\r\n${get(host)}`],
  ["no blank after the colon", get("Host:127.0.0.1\r\n")],
  ["tabs and blanks around a value", get(`${host}X-A: \t a\tb  \r\n`)],
  ["empty value", get(`${host}X-A:\r\nX-B: \r\n`)],
  ["8-bit bytes in a value", get(`${host}X-A: \xe4\xc3\xa4\r\n`)],
  ["cookies", get(`${host}Cookie: a=b; c="d e"\r\nX-A: b\r\n`)],
  ["absolute form", get(host, "http://127.0.0.1/livez")],
  ["absolute form in capitals", get("Host: LocalHost\r\n", "HTTP://localhost/livez?a=b")],
  ["absolute form without a path", get(host, "http://127.0.0.1?a=b")],
  ["escapes", get(host, "/%6civez?a=%20&b=100%&c=%C3%A4")],
  ["many headers", get(host + Array.from({ length: 200 }, (_, i) => `X-${i}: ${"v".repeat(i % 90)}\r\n`).join(""))],
  ["body", post("Content-Length: 2\r\n", "{}")],
  ["length with zeros in front", post("Content-Length: 002\r\n", "{}")],
];

test("a chunked body and HTTP/1.0 end their connection", async () => {
  const before = await served(),
    wrong = [];
  for (const [what, bytes] of last) {
    const { closed, statuses, got } = await raw(bytes + canary);
    if (!closed) wrong.push(`${what}: the connection stays open`);
    if (statuses.length !== 1 || statuses[0] >= 500) wrong.push(`${what}: ${statuses}`);
    if (got.includes("100 Continue")) wrong.push(`${what}: goes on`);
  }
  assert.equal(await served(), before, "a request behind the last one was served");
  assert.deepEqual(wrong, []);
});

test("an endless chunk extension gets 400", async () => {
  const { closed, statuses, got } = await raw(chunked(`2;a=${"b".repeat(300_000)}\r\n{}\r\n0\r\n\r\n`) + canary);
  assert.ok(closed);
  assert.deepEqual(statuses, [400], got);
});

test("well-framed requests and pipelined ones after them are served", async () => {
  for (const [what, bytes] of kept) {
    const before = await served();
    const { statuses, got, closed } = await raw(bytes + canary.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
    assert.ok(closed, what);
    assert.equal(statuses.length, 2, `${what}: ${got}`);
    assert.equal(await served(), before + 1, what);
  }
});

// A head in many pieces: the check reads a buffer that was filled step by step.
test("heads that arrive in pieces are checked like whole ones", async () => {
  const pieces = (bytes) =>
    new Promise((resolve) => {
      const socket = connect(new URL(server.url).port, "127.0.0.1");
      let got = "",
        at = 0;
      socket.setNoDelay(true);
      socket.setEncoding("latin1");
      socket.on("data", (d) => (got += d));
      socket.on("error", () => {});
      socket.on("close", () => resolve(got));
      const step = () => {
        if (at >= bytes.length || socket.destroyed) return;
        const n = Math.max(1, Math.floor(bytes.length / 40));
        socket.write(Buffer.from(bytes.slice(at, at + n), "latin1"));
        at += n;
        setTimeout(step, 2);
      };
      step();
    });
  const before = await served();
  const bad = cases.filter(([what]) => /fold|bare|NUL|Content-Length "/.test(what));
  const answers = await Promise.all(bad.map(([, bytes]) => pieces(bytes + canary)));
  answers.forEach((got, i) => assert.equal([...got.matchAll(/HTTP\/1\.1 400 /g)].length, 1, `${bad[i][0]}: ${got}`));
  assert.equal(await served(), before);
  const long = get(
    host + Array.from({ length: 150 }, (_, i) => `X-${i}: ${"v".repeat(i)}\r\n`).join("") + "Connection: close\r\n",
  );
  assert.match(await pieces(long), /^HTTP\/1\.1 200 /);
});

test("ambiguous framing is refused once, and nothing after it is served", async () => {
  const before = await served(),
    wrong = [];
  const print = process.env.PRINT;
  for (const [what, bytes, wanted] of cases) {
    const had = print && (await served());
    const { got, closed, statuses } = await raw(bytes + canary, print ? 3000 : undefined);
    if (print)
      console.log(
        what,
        "|",
        statuses.join(" "),
        closed ? "" : "OPEN",
        (await served()) > had ? "SMUGGLED" : "",
        "| want",
        wanted,
      );
    const want = [wanted].flat(),
      silent = Array.isArray(wanted) && !statuses.length;
    if (!closed) wrong.push(`${what}: the connection stays open`);
    if (!silent && !(statuses.length === 1 && (want.includes(statuses[0]) || !want.length)))
      wrong.push(`${what}: ${statuses} instead of ${want}`);
    if (got.includes("{") && !/"error":\{/.test(got)) wrong.push(`${what}: no error object: ${got}`);
  }
  assert.equal(await served(), before, "a request behind a refused one was served");
  assert.deepEqual(wrong, []);
});
