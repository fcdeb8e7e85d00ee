// Requests of web pages from other sites (CORS): preflights, and what a page may read of an answer.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chat, modelName, post, startServer, until, user } from "./server.mjs";

const folder = mkdtempSync(join(tmpdir(), "inferd-cors-"));
writeFileSync(join(folder, "keys"), "right-key\n", { mode: 0o600 });
const page = "https://chat.example.com";
const key = { Authorization: "Bearer right-key" };
let server;
before(async () => {
  server = await startServer([
    ...["--allowed-origins", `${page}, http://localhost:*, app://obsidian.md`],
    ...["--api-key-file", join(folder, "keys"), "--max-body-bytes", "64K", "--unknown-fields", "ignore"],
  ]);
});
after(async () => {
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

// A request with exactly these headers; fetch would not send some of them.
function ask(method, path, headers = {}, body = "", to = server) {
  return new Promise((resolve, reject) => {
    const r = request(to.url + path, { method, headers }, (response) => {
      let text = "";
      response.on("data", (bytes) => (text += bytes));
      response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, text }));
    });
    r.on("error", reject);
    r.end(body);
  });
}

const preflight = (path, headers = {}, to = server) =>
  ask("OPTIONS", path, { Origin: page, "Access-Control-Request-Method": "POST", ...headers }, "", to);

const list = (value) => value.split(/,\s*/).map((s) => s.toLowerCase());

// What every answer to a page has, whatever its status is.
function expectReadable(headers, origin = page) {
  const get = (name) => headers.get?.(name) ?? headers[name];
  assert.equal(get("access-control-allow-origin"), origin);
  assert.equal(get("access-control-allow-credentials") ?? undefined, undefined);
  assert.ok(list(get("access-control-expose-headers")).includes("x-request-id"));
  if (origin !== "*") assert.ok(list(get("vary")).includes("origin"));
}

test("a preflight is answered without an API key", async () => {
  const asked = "authorization,content-type,x-stainless-arch,anthropic-version,last-event-id";
  const answer = await preflight("/v1/chat/completions", { "Access-Control-Request-Headers": asked });
  assert.equal(answer.status, 204);
  assert.equal(answer.text, "");
  assert.equal(answer.headers["content-length"], undefined);
  assert.equal(answer.headers["access-control-allow-origin"], page);
  assert.equal(answer.headers["access-control-allow-headers"], asked);
  assert.ok(Number(answer.headers["access-control-max-age"]) > 0);
  assert.equal(answer.headers["access-control-allow-credentials"], undefined);
  assert.equal(answer.headers["access-control-allow-private-network"], undefined);
  for (const method of ["get", "post", "delete"])
    assert.ok(list(answer.headers["access-control-allow-methods"]).includes(method), method);
  for (const name of ["origin", "access-control-request-headers"])
    assert.ok(list(answer.headers.vary).includes(name), name);
});

test("a preflight without valid requested headers lists the default headers", async () => {
  for (const asked of [undefined, "", ",", "a,,b", "a b", "x: y", "x\ty"]) {
    const answer = await preflight(
      "/v1/messages",
      asked === undefined ? {} : { "Access-Control-Request-Headers": asked },
    );
    assert.equal(answer.status, 204);
    const allowed = list(answer.headers["access-control-allow-headers"]);
    for (const name of ["authorization", "content-type", "x-api-key", "anthropic-version"])
      assert.ok(allowed.includes(name), `${JSON.stringify(asked)}: ${name}`);
  }
});

test("a public page may request private network access", async () => {
  const answer = await preflight("/v1/models", { "Access-Control-Request-Private-Network": "true" });
  assert.equal(answer.headers["access-control-allow-private-network"], "true");
});

test("a preflight for an unknown path passes, so that the page can read the 404", async () => {
  assert.equal((await preflight("/v1/nothing")).status, 204);
});

test("OPTIONS without preflight headers is an ordinary method", async () => {
  for (const headers of [{}, { Origin: page }, { "Access-Control-Request-Method": "POST" }]) {
    const answer = await ask("OPTIONS", "/v1/chat/completions", headers);
    assert.equal(answer.status, 405);
    assert.equal(answer.headers["access-control-allow-methods"], undefined);
  }
});

test("similar origins are refused, also in preflights, without further information", async () => {
  for (const origin of [
    "https://chat.example.com.evil.example",
    "https://evil-chat.example.com",
    "http://chat.example.com",
    "https://chat.example.com:8443",
    "https://chat.example.com@evil.example",
    "http://evil-localhost",
    "http://localhost.evil.example",
    "app://obsidian.md.evil",
    "null",
    "",
  ])
    for (const method of ["OPTIONS", "GET"]) {
      const answer = await ask(method, "/v1/models", {
        Origin: origin,
        "Access-Control-Request-Method": "GET",
        ...key,
      });
      assert.equal(answer.status, 403, `${method} ${origin}`);
      assert.equal(JSON.parse(answer.text).error.code, "origin_not_allowed");
      assert.equal(answer.headers["access-control-allow-origin"], undefined);
      assert.equal(answer.headers.vary, "Origin");
    }
});

test("a listed origin is echoed as it was sent", async () => {
  for (const origin of [page, "http://localhost", "http://localhost:5173", "app://obsidian.md", "HTTP://LocalHost:1"]) {
    const answer = await ask("GET", "/v1/models", { Origin: origin, ...key });
    assert.equal(answer.status, 200);
    expectReadable(answer.headers, origin);
  }
});

test("a page reads whole answers, streams and every error", async () => {
  const headers = { Origin: page, ...key };
  const hello = { messages: user("Hello!"), max_tokens: 4 };
  const whole = await chat(server, { ...hello, nonsense: 1 }, { headers });
  assert.equal(whole.status, 200);
  expectReadable(whole.headers);
  assert.match(whole.headers.get("x-inferd-ignored-fields"), /nonsense/);
  await whole.text();
  const stream = await chat(server, { ...hello, stream: true }, { headers });
  assert.match(stream.headers.get("content-type"), /event-stream/);
  expectReadable(stream.headers);
  assert.match(await stream.text(), /\[DONE\]/);
  const large = await chat(server, { messages: user("x".repeat(70_000)) }, { headers });
  assert.equal(large.status, 413);
  expectReadable(large.headers);
  const rows = [
    [400, "POST", "/v1/chat/completions", key, "{"],
    [400, "POST", "/v1/messages", key, '{"model": 1}'],
    [400, "POST", "/api/chat", key, '{"model": 1}'],
    [401, "POST", "/v1/chat/completions", {}, "{}"],
    [401, "GET", "/v1/models", { Authorization: "Bearer wrong" }, ""],
    [404, "GET", "/nope", key, ""],
    [404, "GET", "/v1/models/nobody", key, ""],
    [405, "DELETE", "/v1/models", key, ""],
    [415, "POST", "/v1/chat/completions", { ...key, "Content-Type": "text/plain" }, "{}"],
    [431, "GET", "/v1/models", { ...key, "X-Large": "x".repeat(40_000) }, ""],
  ];
  for (const [status, method, path, more, body] of rows) {
    const answer = await ask(
      method,
      path,
      { Origin: page, "Content-Type": "application/json", "Content-Length": body.length, ...more },
      body,
    );
    assert.equal(answer.status, status, `${method} ${path}: ${answer.text}`);
    expectReadable(answer.headers);
  }
});

// CORS-safelisted response headers, and those that belong to the connection or the protocol itself.
const always =
  /^(cache-control|content-language|content-length|content-type|expires|last-modified|pragma|date|connection|keep-alive|transfer-encoding|vary|x-accel-buffering|access-control-.*)$/;

test("a page can read every header that an answer has", async () => {
  const headers = { Origin: page, ...key };
  const body = { model: modelName, messages: user("Hello!"), max_tokens: 2, nonsense: 1 };
  const answers = [
    await post(server, "/v1/chat/completions", body, { headers }),
    await post(server, "/v1/chat/completions", { ...body, stream: true }, { headers }),
    await post(server, "/v1/messages", body, { headers }),
    await post(server, "/v1/responses", { model: modelName, input: "x", max_output_tokens: 2 }, { headers }),
    await post(server, "/api/chat", body, { headers }),
    await fetch(server.url + "/v1/models", { method: "PUT", headers }),
    await fetch(server.url + "/v1/models", { headers: { Origin: page } }),
    await fetch(server.url + "/metrics", { headers }),
  ];
  for (const answer of answers) {
    await answer.text();
    const exposed = list(answer.headers.get("access-control-expose-headers"));
    for (const [name] of answer.headers)
      assert.ok(always.test(name) || exposed.includes(name), `${answer.url}: ${name} is not exposed`);
  }
  const seen = answers.flatMap((a) => [...a.headers.keys()]);
  for (const name of ["x-ratelimit-remaining-requests", "x-inferd-ignored-fields", "request-id", "allow"])
    assert.ok(seen.includes(name), name);
});

test("a full queue's 429 can be read, and its Retry-After", async () => {
  const small = await startServer([
    ...["--allowed-origins", page, "--max-queue", "1", "--max-sequences", "1"],
    ...["--kv-cache-tokens", "8192"],
  ]);
  const stop = new AbortController();
  try {
    const body = { messages: user("Tell me a story."), max_tokens: 4000, ignore_eos: true, stream: true };
    // A stream's status comes with its first token: what waits in the queue has none yet.
    const answers = Array.from({ length: 6 }, async () => {
      const answer = await chat(small, body, { headers: { Origin: page }, signal: stop.signal });
      assert.equal(answer.status, 429);
      return answer;
    });
    const refused = await Promise.any(answers);
    expectReadable(refused.headers);
    const exposed = list(refused.headers.get("access-control-expose-headers"));
    assert.ok(refused.headers.get("retry-after") && exposed.includes("retry-after"));
    assert.equal((await refused.json()).error.code, "rate_limit_exceeded");
  } finally {
    stop.abort();
    await small.stop();
  }
});

test("* allows every origin, without credentials", async () => {
  const open = await startServer(["--allowed-origins", "*"]);
  try {
    assert.match(open.stderr, /every web page that a visitor opens can use this server/);
    for (const origin of ["https://anything.example", "null", "chrome-extension://abc"]) {
      const answer = await ask("GET", "/v1/models", { Origin: origin }, "", open);
      assert.equal(answer.status, 200);
      expectReadable(answer.headers, "*");
      const asked = await preflight("/v1/models", { Origin: origin }, open);
      assert.equal(asked.status, 204);
      assert.equal(asked.headers["access-control-allow-origin"], "*");
      assert.equal(asked.headers["access-control-allow-credentials"], undefined);
    }
    const bare = await ask("GET", "/v1/models", {}, "", open);
    assert.equal(bare.headers["access-control-allow-origin"], undefined);
    // A page that points its own name at this machine is refused all the same.
    const rebound = await ask("GET", "/v1/models", { Origin: "http://evil.example", Host: "evil.example" }, "", open);
    assert.equal(rebound.status, 403);
    assert.equal(JSON.parse(rebound.text).error.code, "host_not_allowed");
  } finally {
    await open.stop();
  }
});

test("without allowed origins only the daemon's own page has access", async () => {
  const closed = await startServer();
  try {
    const own = await ask("GET", "/v1/models", { Origin: closed.url }, "", closed);
    assert.equal(own.status, 200);
    assert.equal(own.headers.vary, undefined);
    for (const origin of ["http://localhost:3000", "null", page])
      assert.equal((await preflight("/v1/models", { Origin: origin }, closed)).status, 403, origin);
  } finally {
    await closed.stop();
  }
});

test("an invalid list is refused at start with the key's name", async () => {
  await assert.rejects(
    startServer(["--allowed-origins", "https://a.example/path"]),
    /allowed-origins: .*https:\/\/a\.example\/path/,
  );
  await assert.rejects(startServer(["--trusted-proxies", "127.0.0.1, proxy"]), /trusted-proxies: .*"proxy"/);
});

const served = (s, id) =>
  until(() => s.stderr.split("\n").find((l) => l.includes(id) && l.includes("client=")), "the log line");

test("the log names the client; only a trusted proxy's header is used", async () => {
  const rows = [
    ["127.0.0.1", "203.0.113.9", "203.0.113.9"],
    ["127.0.0.0/8, ::1", "198.51.100.1, 203.0.113.9", "203.0.113.9"],
    ["127.0.0.1, 10.0.0.0/8", "203.0.113.9, 10.1.2.3", "203.0.113.9"],
    ["127.0.0.1", "[2001:db8::9]:4711", "2001:db8::9"],
    ["127.0.0.1", "nonsense", "127.0.0.1"],
    ["10.0.0.0/8", "203.0.113.9", "127.0.0.1"],
    ["", "203.0.113.9", "127.0.0.1"],
  ];
  for (const [proxies, forwarded, client] of rows) {
    const s = await startServer(["--trusted-proxies", proxies]);
    try {
      await ask("GET", "/v1/models", { "X-Forwarded-For": forwarded, "x-request-id": "the-one" }, "", s);
      assert.match(
        await served(s, "the-one"),
        new RegExp(` client=${client.replaceAll(".", "\\.")}$`),
        `${proxies} ${forwarded}`,
      );
    } finally {
      await s.stop();
    }
  }
});

test("behind a trusted proxy the limit per address applies to each client's running requests", async () => {
  const s = await startServer(["--trusted-proxies", "127.0.0.1", "--max-connections-per-address", "2"]);
  const stop = new AbortController();
  try {
    const body = { messages: user("Tell me a story."), max_tokens: 4000, ignore_eos: true, stream: true };
    const from = (address) => chat(s, body, { headers: { "X-Forwarded-For": address }, signal: stop.signal });
    for (const address of ["203.0.113.1", "203.0.113.1", "203.0.113.2"])
      assert.equal((await from(address)).status, 200);
    const third = await from("203.0.113.1");
    assert.equal(third.status, 429);
    assert.ok(third.headers.get("retry-after"));
    assert.match((await third.json()).error.message, /from your address/);
    assert.equal((await from("203.0.113.2")).status, 200);
  } finally {
    stop.abort();
    await s.stop();
  }
});
