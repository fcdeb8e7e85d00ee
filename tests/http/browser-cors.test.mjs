// Pages of other sites in Chromium: what the browser lets them do with the daemon, by fetch and by
// the SDKs that run in a page. Their preflights are the browser's own.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { newPage, openPage, skip } from "./browser_page.mjs";
import { modelName } from "./server.mjs";

const folder = mkdtempSync(join(tmpdir(), "inferd-cors-"));
writeFileSync(join(folder, "keys"), "right-key\n", { mode: 0o600 });
after(() => rmSync(folder, { recursive: true, force: true }));
// Pages at http://localhost are listed, the same pages at http://127.0.0.1 are not.
const it = openPage([
  ...["--allowed-origins", "http://localhost:*", "--api-key-file", join(folder, "keys")],
  ...["--unknown-fields", "ignore"],
]);

const imports = {
  openai: "/modules/openai/index.mjs",
  anthropic: "/modules/@anthropic-ai/sdk/index.mjs",
  ollama: "/modules/ollama/dist/browser.mjs",
  "whatwg-fetch": "/modules/whatwg-fetch/fetch.js",
  "@opentelemetry/api": "/modules/@opentelemetry/api/dist/index.mjs",
  standardwebhooks: "data:text/javascript,export class Webhook {}", // CommonJS, and not used here
};
const html = `<!doctype html><title>Another site</title><link rel="icon" href="data:,">
<script type="importmap">${JSON.stringify({ imports })}</script>`;

// The pages' own site: html, and the packages that it imports.
const site = createServer((request, response) => {
  const path = new URL(request.url, "http://x").pathname;
  if (path === "/") return response.setHeader("Content-Type", "text/html").end(html);
  const file = path.replace(/^\/modules\//, "tests/http/node_modules/");
  if (!existsSync(file)) return response.writeHead(404).end();
  return response.setHeader("Content-Type", "text/javascript").end(readFileSync(file));
});
let port;
before(async () => {
  if (skip) return;
  await new Promise((resolve) => site.listen(0, resolve));
  port = site.address().port;
});
after(() => {
  site.close();
  site.closeAllConnections();
});

const args = () => ({ url: it.server.url, model: modelName, key: "right-key" });

async function at(host) {
  const page = await newPage(it);
  await page.goto(`http://${host}:${port}/`);
  return page;
}

test("a listed page chats, streams, reads errors and headers, and deletes", { skip }, async () => {
  const page = await at("localhost");
  const seen = await page.evaluate(async ({ url, model, key }) => {
    const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
    const ask = (path, body, more = {}) =>
      fetch(url + path, { method: "POST", headers: { ...headers, ...more }, body: JSON.stringify(body) });
    const messages = [{ role: "user", content: "Hello!" }];
    const whole = await ask("/v1/chat/completions", { model, messages, max_tokens: 8, nonsense: 1 });
    const stream = await ask("/v1/chat/completions", {
      model,
      messages,
      max_tokens: 200,
      ignore_eos: true,
      stream: true,
    });
    const chunks = [];
    const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part; !(part = await reader.read()).done;) chunks.push(part.value);
    const wrongKey = await ask("/v1/chat/completions", { model, messages }, { Authorization: "Bearer wrong" });
    const wrongField = await ask("/v1/chat/completions", { model, messages: 1 });
    const nowhere = await ask("/v1/nowhere", {});
    const stored = await ask("/v1/responses", { model, input: "Hello!", max_output_tokens: 4 });
    const { id } = await stored.json();
    const gone = await fetch(`${url}/v1/responses/${id}`, { method: "DELETE", headers });
    return {
      text: (await whole.json()).choices[0].message.content,
      ignored: whole.headers.get("x-inferd-ignored-fields"),
      requestId: whole.headers.get("x-request-id"),
      remaining: whole.headers.get("x-ratelimit-remaining-requests"),
      stream: chunks.join(""),
      n: chunks.length,
      wrongKey: [wrongKey.status, (await wrongKey.json()).error.code, wrongKey.headers.get("www-authenticate")],
      wrongField: [wrongField.status, (await wrongField.json()).error.param],
      nowhere: [nowhere.status, (await nowhere.json()).error.code],
      gone: [gone.status, (await gone.json()).deleted],
    };
  }, args());
  assert.ok(seen.text.length > 0);
  assert.match(seen.ignored, /nonsense/);
  assert.match(seen.requestId, /^req_/);
  assert.match(seen.remaining, /^\d+$/);
  assert.match(seen.stream, /data: \[DONE\]/);
  assert.ok(seen.n > 1, "the stream comes in pieces");
  assert.deepEqual(seen.wrongKey, [401, "invalid_api_key", "Bearer"]);
  assert.deepEqual(seen.wrongField, [400, "messages"]);
  assert.deepEqual(seen.nowhere, [404, "unknown_url"]);
  assert.deepEqual(seen.gone, [200, true]);
  it.problems = it.problems.filter((p) => !/status of (400|401|404)/.test(p));
});

test("a listed page may not use credentials", { skip }, async () => {
  const page = await at("localhost");
  const how = await page.evaluate(
    ({ url, key }) =>
      fetch(`${url}/v1/models`, { credentials: "include", headers: { Authorization: `Bearer ${key}` } }).then(
        () => "read",
        (e) => e.name,
      ),
    args(),
  );
  assert.equal(how, "TypeError");
  it.problems = it.problems.filter((p) => !/CORS policy|ERR_FAILED/.test(p));
});

test("a page that is not listed reads nothing, and none of its requests is answered", { skip }, async () => {
  const page = await at("127.0.0.1");
  const logged = () => it.server.stderr.split("\n").filter((l) => / \/v1\/(models|chat)/.test(l));
  const before = logged().length;
  const seen = await page.evaluate(async ({ url, model, key }) => {
    const tries = {
      simple: () => fetch(`${url}/v1/models`),
      keyed: () => fetch(`${url}/v1/models`, { headers: { Authorization: `Bearer ${key}` } }),
      json: () =>
        fetch(`${url}/v1/chat/completions`, {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ model, messages: [] }),
        }),
      forwarded: () => fetch(`${url}/v1/models`, { headers: { "X-Forwarded-Host": location.host } }),
      blind: () => fetch(`${url}/v1/chat/completions`, { method: "POST", mode: "no-cors", body: "{}" }),
    };
    const how = {};
    for (const [name, send] of Object.entries(tries))
      how[name] = await send().then(
        (r) => `${r.type} ${r.status}`,
        (e) => e.name,
      );
    return how;
  }, args());
  assert.deepEqual(seen, {
    simple: "TypeError",
    keyed: "TypeError",
    json: "TypeError",
    forwarded: "TypeError",
    blind: "opaque 0",
  });
  const lines = logged().slice(before);
  assert.ok(lines.length >= 5);
  for (const line of lines) assert.match(line, / 403 /);
  it.problems = it.problems.filter((p) => !/CORS policy|ERR_FAILED|status of 403/.test(p));
});

test("the OpenAI SDK runs in a listed page", { skip }, async () => {
  const page = await at("localhost");
  const seen = await page.evaluate(async ({ url, model, key }) => {
    const { default: OpenAI } = await import("openai");
    const make = (apiKey) => new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0, dangerouslyAllowBrowser: true });
    const client = make(key);
    const messages = [{ role: "user", content: "Hello!" }];
    const whole = await client.chat.completions.create({ model, messages, max_tokens: 8 });
    const chunks = [];
    for await (const chunk of await client.chat.completions.create({ model, messages, max_tokens: 8, stream: true }))
      chunks.push(chunk.choices[0]?.delta?.content ?? "");
    const error = await make("wrong")
      .models.list()
      .catch((e) => e);
    return {
      whole: whole.choices[0].message.content,
      id: whole._request_id,
      text: chunks.join(""),
      error: error.status,
    };
  }, args());
  assert.ok(seen.whole.length > 0 && seen.text.length > 0);
  assert.match(seen.id, /^req_/);
  assert.equal(seen.error, 401);
  it.problems = it.problems.filter((p) => !/status of 401/.test(p));
});

test("Anthropic's and Ollama's SDKs run in a listed page", { skip }, async () => {
  const page = await at("localhost");
  const seen = await page.evaluate(async ({ url, model, key }) => {
    const { default: Anthropic } = await import("anthropic");
    const { Ollama } = await import("ollama");
    const messages = [{ role: "user", content: "Hello!" }];
    const anthropic = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0, dangerouslyAllowBrowser: true });
    let text = "";
    const stream = anthropic.messages.stream({ model, messages, max_tokens: 8 });
    stream.on("text", (t) => (text += t));
    await stream.finalMessage();
    const ollama = new Ollama({ host: url, headers: { Authorization: `Bearer ${key}` } });
    let parts = "";
    for await (const part of await ollama.chat({ model, messages, stream: true, options: { num_predict: 8 } }))
      parts += part.message.content;
    return { text, parts };
  }, args());
  assert.ok(seen.text.length > 0 && seen.parts.length > 0);
});

test("the console says nothing else", { skip }, () => assert.deepEqual(it.problems, []));
