// nginx and Caddy in front of the daemon, over TLS, with the blocks that api/README.md gives. Where
// one of them is not installed its tests are skipped.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:https";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { modelName, startServer, until, user, whole } from "./server.mjs";

const host = "llm.example.com";
const folder = mkdtempSync(join(tmpdir(), "inferd-proxy-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const find = (name) =>
  (process.env.PATH + ":/usr/sbin:/usr/local/sbin")
    .split(":")
    .map((d) => join(d, name))
    .find((file) => existsSync(file));

// The block of README's code in this language.
function block(language) {
  const found = new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\`$`, "ms").exec(readFileSync("api/README.md", "utf8"));
  assert.ok(found, `api/README.md has a block of ${language}`);
  return found[1];
}

// The text with each of these replaced; each must be there.
function adapted(text, changes) {
  for (const [from, to] of changes) {
    assert.ok(text.includes(from), `the block has ${from}`);
    text = text.replaceAll(from, to);
  }
  return text;
}

async function freePort() {
  const s = createServer();
  await new Promise((resolve) => s.listen(0, "127.0.0.1", resolve));
  const { port } = s.address();
  await new Promise((resolve) => s.close(resolve));
  return port;
}

async function nginx(port, upstream) {
  const home = mkdtempSync(join(folder, "nginx-"));
  execFileSync(
    "openssl",
    `req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=${host} -keyout ${home}/key -out ${home}/crt`.split(" "),
    { stdio: "ignore" },
  );
  const server = adapted(block("nginx"), [
    ["listen 443 ssl;", `listen 127.0.0.1:${port} ssl;`],
    [`/etc/ssl/${host}.crt`, `${home}/crt`],
    [`/etc/ssl/${host}.key`, `${home}/key`],
    ["http://127.0.0.1:8080", upstream],
  ]);
  const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((n) => `${n}_temp_path ${home}/${n};`);
  writeFileSync(
    `${home}/conf`,
    `${process.getuid() ? "" : "user root;"} daemon off; pid ${home}/pid; error_log stderr;
events {}
http { access_log off; ${paths.join(" ")}
${server}}
`,
  );
  return [find("nginx"), ["-p", home, "-c", `${home}/conf`, "-e", "stderr"]];
}

async function caddy(port, upstream) {
  const home = mkdtempSync(join(folder, "caddy-"));
  const options = [
    "admin off",
    "skip_install_trust",
    "local_certs",
    "auto_https disable_redirects",
    "default_bind 127.0.0.1",
    `https_port ${port}`,
    `storage file_system ${home}`,
  ];
  const site = adapted(block("caddyfile"), [["127.0.0.1:8080", upstream.replace("http://", "")]]);
  writeFileSync(`${home}/Caddyfile`, `{\n${options.join("\n")}\n}\n${site}`);
  return [find("caddy"), ["run", "--config", `${home}/Caddyfile`, "--adapter", "caddyfile"], { HOME: home }];
}

// One request through the proxy; onPart gets each piece of the body as it comes.
function ask(port, method, path, headers = {}, body = "", onPart = () => {}, options = {}) {
  return new Promise((resolve, reject) => {
    const r = request(
      {
        ...{ host: "127.0.0.1", port, servername: host, rejectUnauthorized: false, method, path },
        headers: { Host: `${host}:${port}`, ...headers },
        ...options,
      },
      (response) => {
        let text = "";
        response.on("data", (bytes) => {
          text += bytes;
          onPart(String(bytes), r);
        });
        response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, text }));
        response.on("error", reject);
      },
    );
    r.on("error", reject);
    r.end(body);
  });
}

const page = "https://chat.example.com";
const key = { Authorization: "Bearer right-key", "Content-Type": "application/json" };

// Hooks of a group of tests: a daemon with these flags behind a proxy, as `server` and `port`.
function behind(name, configure, flags) {
  const it = {};
  let proxy,
    log = "";
  before(async () => {
    writeFileSync(join(folder, "keys"), "right-key\n", { mode: 0o600 });
    it.server = await startServer([
      ...["--trusted-proxies", "127.0.0.1", "--allowed-hosts", host, "--allowed-origins", page],
      ...["--api-key-file", join(folder, "keys"), "--keepalive-ms", "200", ...flags],
    ]);
    it.port = await freePort();
    const [command, args, env] = await configure(it.port, it.server.url);
    proxy = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } });
    for (const out of [proxy.stdout, proxy.stderr]) out.on("data", (d) => (log += d));
    proxy.ended = new Promise((resolve) => proxy.on("exit", resolve));
    await until(async () => {
      assert.equal(proxy.exitCode, null, log);
      return ask(it.port, "GET", "/livez").then(
        (r) => r.status === 200,
        () => false,
      );
    }, `${name} serves: ${log}`);
  });
  after(async () => {
    proxy?.kill("SIGTERM");
    await proxy?.ended;
    await it.server?.stop();
  });
  return it;
}

const logged = (it, id) =>
  until(() => it.server.stderr.split("\n").find((l) => l.includes(` ${id} `)), `${id} is logged`);

for (const [name, configure] of Object.entries({ nginx, caddy })) {
  const skip = find(name) ? false : `${name} is not installed: scripts/setup test installs it`;
  describe(name, { skip }, () => {
    const it = behind(name, configure, []);
    const chat = (body, more = {}, onPart) =>
      ask(
        it.port,
        "POST",
        "/v1/chat/completions",
        { ...key, ...more },
        JSON.stringify({ model: modelName, ...body }),
        onPart,
      );

    test("the daemon's own page may ask, by the name of the proxy", async () => {
      const own = { ...key, Origin: `https://${host}:${it.port}` };
      assert.equal((await ask(it.port, "GET", "/", own)).status, 200);
      assert.equal((await ask(it.port, "GET", "/v1/models", own)).status, 200);
      for (const Origin of [`http://${host}:${it.port}`, `https://${host}`, it.server.url, "https://evil.example"]) {
        const refused = await ask(it.port, "GET", "/v1/models", { ...key, Origin });
        assert.equal(refused.status, 403, Origin);
        assert.equal(JSON.parse(refused.text).error.code, "origin_not_allowed");
      }
    });

    test("a listed page's preflights and answers pass with their headers, once", async () => {
      const preflight = await ask(it.port, "OPTIONS", "/v1/chat/completions", {
        ...{ Origin: page, "Access-Control-Request-Method": "POST" },
        "Access-Control-Request-Headers": "authorization,content-type",
      });
      assert.equal(preflight.status, 204);
      assert.equal(preflight.headers["access-control-allow-headers"], "authorization,content-type");
      const answers = [
        preflight,
        await chat({ messages: user("Hello!"), max_tokens: 4 }, { Origin: page }),
        await chat({ messages: 1 }, { Origin: page }),
        await ask(it.port, "GET", "/v1/models", { Origin: page }),
      ];
      assert.deepEqual(
        answers.map((a) => a.status),
        [204, 200, 400, 401],
      );
      for (const a of answers) assert.equal(a.headers["access-control-allow-origin"], page);
    });

    test("the log names the client, which cannot give another address", async () => {
      const rows = [
        ["127.0.0.5", {}],
        ["127.0.0.5", { "X-Forwarded-For": "203.0.113.9" }],
        ["127.0.0.5", { "X-Forwarded-For": "203.0.113.9, 127.0.0.1", Forwarded: "for=203.0.113.9" }],
      ];
      for (const [i, [localAddress, headers]] of rows.entries()) {
        const id = `address-${name}-${i}`;
        const options = { localAddress, agent: false };
        await ask(it.port, "GET", "/v1/models", { ...key, ...headers, "x-request-id": id }, "", undefined, options);
        assert.match(await logged(it, id), / client=127\.0\.0\.5$/);
      }
    });

    test("other names are refused, as Host and as X-Forwarded-Host", async () => {
      const direct = (headers) => fetch(`${it.server.url}/v1/models`, { headers: { ...key, ...headers } });
      assert.equal((await direct({ "X-Forwarded-Host": "evil.example" })).status, 403);
      // Caddy answers by itself, with nothing.
      const through = await ask(it.port, "GET", "/v1/models", { ...key, Host: "evil.example" });
      assert.ok(through.status === 403 || through.text === "", through.text);
      // What a client writes there itself does not reach the daemon.
      const own = await ask(it.port, "GET", "/v1/models", { ...key, "X-Forwarded-Host": "evil.example" });
      assert.equal(own.status, 200);
    });

    test(
      "long prompts pass, too long ones get an error that can be read",
      { skip: name === "caddy" && whole },
      async () => {
        const long = await chat({ messages: user("word ".repeat(5000)), max_tokens: 2 });
        assert.equal(long.status, 200, long.text);
        assert.ok(JSON.parse(long.text).usage.prompt_tokens > 5000);
        const huge = await chat({ messages: user("word ".repeat(300_000)), max_tokens: 2 });
        assert.equal(huge.status, 400);
        assert.equal(JSON.parse(huge.text).error.code, "context_length_exceeded");
        const refused = await chat({ messages: user("x".repeat((8 << 20) + 1)) }).catch((e) => e);
        assert.ok(refused.status === 413 || /EPIPE|ECONNRESET/.test(refused.code), String(refused.status ?? refused));
      },
    );
  });

  // Slow tokens: a pause of this process must not look like a proxy that gathers them.
  describe(`${name}, streams`, { skip: skip || (name === "caddy" && whole) }, () => {
    const it = behind(name, configure, ["--isa", "generic"]);

    // The first piece must come while the answer is still being made: only then can the client end it.
    for (const [path, body] of [
      ["/v1/chat/completions", { stream: true, max_tokens: 7000, ignore_eos: true }],
      ["/api/chat", { options: { num_predict: 7000, ignore_eos: true } }],
    ])
      test(`${path} streams token by token, and ends when the client leaves`, async () => {
        const id = `left-${name}-${path.length}`;
        const parts = [];
        const text = JSON.stringify({ model: modelName, messages: user("Tell me a story."), ...body });
        const left = ask(it.port, "POST", path, { ...key, "x-request-id": id }, text, (part, r) => {
          parts.push(part);
          if (parts.length === 20) r.destroy();
        });
        await assert.rejects(left);
        assert.equal(parts.length, 20);
        assert.ok(parts.every((p) => p.length < 4000));
        const line = await logged(it, id);
        assert.match(line, /\(cut off\)/);
        assert.ok(Number(/completion_tokens=(\d+)/.exec(line)[1]) < 6000, line);
      });
  });
}
