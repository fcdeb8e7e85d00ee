// Addresses: socket files beside TCP, asked by curl, node and `inferd chat`; live and dead socket files.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { lstatSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { addKey, binary, modelName, startServer, until, user } from "./server.mjs";

const folder = mkdtempSync(join(tmpdir(), "inferd-listen-"));
const path = join(folder, "socket");
let server;

before(async () => {
  server = await startServer([
    "--listen",
    `127.0.0.1:0, unix:${path}`,
    "--trusted-proxies",
    "unix",
    "--kv-cache-tokens",
    "8192",
  ]);
});
after(async () => {
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const curl = (...args) => execFileSync("curl", ["-s", "--unix-socket", path, ...args], { encoding: "utf8" });
const body = JSON.stringify({ model: modelName, messages: user("Hello."), max_tokens: 4, seed: 1, temperature: 0 });
const json = ["-H", "Content-Type: application/json"];

// A fetch for OpenAI's SDK, through the socket file.
const fetchThere = (url, { method, headers, body: sent }) =>
  new Promise((resolve, reject) => {
    const asked = request({
      socketPath: path,
      path: new URL(url).pathname,
      method,
      headers: Object.fromEntries(new Headers(headers)),
    });
    asked.on("error", reject);
    asked.on("response", (got) =>
      resolve(new Response(ReadableStream.from(got), { status: got.statusCode, headers: got.headers })),
    );
    asked.end(sent);
  });

test("curl, node and OpenAI's SDK get the same through a socket file as by TCP", async () => {
  const there = JSON.parse(curl(...json, "-d", body, "http://localhost/v1/chat/completions"));
  const here = await fetch(server.url + "/v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body,
  });
  assert.deepEqual(there.choices, (await here.json()).choices);
  const client = new OpenAI({ baseURL: "http://localhost/v1", apiKey: "none", fetch: fetchThere });
  let text = "";
  for await (const chunk of await client.chat.completions.create({ ...JSON.parse(body), stream: true }))
    text += chunk.choices[0]?.delta?.content ?? "";
  assert.equal(text, there.choices[0].message.content);
  const said = spawnSync(binary, ["chat", "--url", `unix:${path}`, "--max-tokens", "4", "Hello."], {
    encoding: "utf8",
  });
  assert.equal(said.status, 0, said.stderr);
  assert.ok(said.stdout.length > 1);
  await until(() => / 200 .* client=unix\n/.test(server.stderr), "the log says where from");
});

test("a proxy at the socket file is believed if it is trusted, one at TCP is not", async () => {
  const from = ["-H", "X-Forwarded-For: 192.0.2.7"];
  curl(...from, "http://localhost/v1/models");
  execFileSync("curl", ["-s", ...from, `${server.url}/v1/models`]);
  await until(() => / 200 .* client=192\.0\.2\.7\n/.test(server.stderr), "the forwarded address");
  await until(() => /GET \/v1\/models 200 .* client=127\.0\.0\.1\n/.test(server.stderr), "the peer's");
});

test("several connections, and one that leaves in the middle of a stream", async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: 8 });
  const status = (target) =>
    new Promise((resolve, reject) => {
      const asked = request({ socketPath: path, path: target, agent }, (got) => resolve(got.resume().statusCode));
      asked.on("error", reject);
      asked.end();
    });
  const all = await Promise.all(Array.from({ length: 32 }, (_, i) => status(i % 2 ? "/livez" : "/v1/models")));
  assert.ok(all.every((code) => code === 200));
  agent.destroy();
  await new Promise((resolve, reject) => {
    const asked = request({
      socketPath: path,
      path: "/v1/chat/completions",
      method: "POST",
      headers: { "Content-Type": "application/json" },
    });
    asked.on("error", reject);
    asked.on("response", (got) => got.once("data", () => resolve(asked.destroy())));
    asked.end(
      JSON.stringify({ ...JSON.parse(body), messages: user("Tell me a story."), max_tokens: 2000, stream: true }),
    );
  });
  await until(
    () => /POST \/v1\/chat\/completions (499|200) \(cut off\).* client=unix/.test(server.stderr),
    "it is noticed",
  );
});

test("a socket file has the mode that listen-mode says, and is never taken from a live server", async () => {
  assert.equal(lstatSync(path).mode & 0o777, 0o600);
  const start = (listen, ...more) =>
    spawnSync(binary, ["serve", "--registry", join(server.folder, "registry.db"), "--listen", listen, ...more], {
      encoding: "utf8",
      timeout: 60_000,
    });
  const live = start(`unix:${path}`);
  assert.equal(live.status, 1);
  assert.match(live.stderr, /another program listens on .*socket: stop it or choose another path/);
  assert.match(curl("http://localhost/livez"), /ok/);
  const file = join(folder, "file");
  writeFileSync(file, "kept");
  assert.match(start(`unix:${file}`).stderr, /file exists and is not a socket/);
  assert.match(start(`unix:${join(folder, "x".repeat(120))}`).stderr, /is not the absolute path of a socket/);
  assert.match(start("unix:relative").stderr, /is not the absolute path/);
  assert.match(start("localhost").stderr, /"localhost" is neither unix:\/PATH nor HOST:PORT/);
  assert.match(start("::1:80").stderr, /is neither unix/);
  assert.match(start(`unix:${path}`, "--listen-mode", "777").stderr, /"777" is not one of 600\|660\|666/);
});

test("what a killed server left behind is replaced; an orderly end removes it; no TCP is needed", async () => {
  const alone = join(folder, "alone");
  const args = ["serve", "--registry", join(server.folder, "registry.db"), "--kv-cache-tokens", "4096"];
  const start = async () => {
    const child = spawn(binary, [...args, "--listen", `unix:${alone}`, "--listen-mode", "660"], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let said = "";
    child.stdout.on("data", (d) => (said += d));
    await until(() => said.includes(` on unix:${alone}\n`), "it serves");
    return child;
  };
  const ended = (child) => new Promise((resolve) => child.on("exit", resolve));
  const first = await start();
  first.kill("SIGKILL");
  await ended(first);
  assert.ok(lstatSync(alone).isSocket(), "the file stays");
  const second = await start();
  assert.equal(lstatSync(alone).mode & 0o777, 0o660);
  assert.match(
    execFileSync("curl", ["-s", "--unix-socket", alone, "http://localhost/readyz"], { encoding: "utf8" }),
    /ok/,
  );
  second.kill("SIGTERM");
  assert.equal(await ended(second), 0);
  assert.throws(() => lstatSync(alone), { code: "ENOENT" });
});

test("clients of a socket file administer without keys, and need one with keys", async () => {
  const names = () => JSON.parse(curl("http://localhost/v1/inferd/models"));
  assert.equal(names().object, "list");
  assert.equal(
    JSON.parse(curl("-H", "X-Forwarded-For: 10.0.0.1", "http://localhost/v1/inferd/models")).error.code,
    "admin_key_required",
  );
  const key = addKey(server, "admin", "--scopes", "admin");
  await until(() => names().error, "a key is needed");
  assert.equal(JSON.parse(curl("-H", `x-api-key: ${key}`, "http://localhost/v1/inferd/models")).object, "list");
});
