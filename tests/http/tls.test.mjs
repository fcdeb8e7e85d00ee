// TLS: certificates made by openssl, asked for by curl, node's fetch and OpenAI's SDK; changed while a stream runs.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { get } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { connect } from "node:tls";
import { binary, modelName, startServer, until } from "./server.mjs";

const folder = mkdtempSync(join(tmpdir(), "inferd-tls-"));
const file = (name) => join(folder, name);
const openssl = (...args) =>
  execFileSync("openssl", args, { cwd: folder, stdio: ["ignore", "pipe", "pipe"], encoding: "utf8" });
const keyOptions = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
let server;

function makeCa(name) {
  openssl(
    "req",
    "-x509",
    ...keyOptions,
    "-keyout",
    `${name}.key`,
    "-out",
    `${name}.pem`,
    "-subj",
    `/CN=${name}`,
    "-days",
    "2",
  );
}

// NAME.pem and NAME.key, for "server" or "client".
function makeCertificate(name, ca, purpose, days = "2") {
  writeFileSync(file("ext"), `subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=${purpose}Auth\n`);
  openssl("req", ...keyOptions, "-keyout", `${name}.key`, "-out", `${name}.csr`, "-subj", `/CN=${name}`);
  openssl(
    "x509",
    "-req",
    "-in",
    `${name}.csr`,
    "-CA",
    `${ca}.pem`,
    "-CAkey",
    `${ca}.key`,
    "-CAcreateserial",
    "-out",
    `${name}.pem`,
    "-days",
    days,
    "-extfile",
    "ext",
  );
  chmodSync(file(`${name}.key`), 0o600);
}

const use = (name) => {
  copyFileSync(file(`${name}.pem`), file("used.pem"));
  copyFileSync(file(`${name}.key`), file("used.key"));
};
const configure = (...lines) => writeFileSync(file("daemon.conf"), [...lines, ""].join("\n"));
const pair = [`tls-certificate = ${file("used.pem")}`, `tls-key = ${file("used.key")}`];
const trust = { env: { ...process.env, SSL_CERT_FILE: file("ca.pem"), NODE_EXTRA_CA_CERTS: file("ca.pem") } };
const reload = (...args) =>
  spawnSync(binary, ["reload", "--url", `unix:${file("socket")}`, ...args], { encoding: "utf8" });
const curl = (...args) =>
  spawnSync("curl", ["-s", "--cacert", file("ca.pem"), ...args, `${server.url}/livez`], { encoding: "utf8" });
const ready = (...args) => assert.deepEqual([curl(...args).status, curl(...args).stdout], [0, "ok\n"]);

// The common name of the certificate that a new connection gets.
const served = () =>
  new Promise((resolve, reject) => {
    const socket = connect({ port: new URL(server.url).port, host: "127.0.0.1", rejectUnauthorized: false }, () => {
      resolve(socket.getPeerCertificate().subject.CN);
      socket.destroy();
    });
    socket.on("error", reject);
  });

before(async () => {
  for (const name of ["ca", "other-ca"]) makeCa(name);
  for (const name of ["first", "second"]) makeCertificate(name, "ca", "server");
  makeCertificate("client", "ca", "client");
  makeCertificate("stranger", "other-ca", "client");
  use("first");
  configure(...pair);
  const listen = ["--listen", `127.0.0.1:0, unix:${file("socket")}`];
  server = await startServer([...listen, "--config", file("daemon.conf"), "--kv-cache-tokens", "8192"]);
});
after(async () => {
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

test("curl, node's fetch, OpenAI's SDK and `inferd` use it", () => {
  assert.match(server.url, /^https:/);
  ready();
  ready("--tls-max", "1.2");
  const script = `
    import OpenAI from "openai";
    const there = process.argv[1];
    const models = await (await fetch(there + "/v1/models")).json();
    const client = new OpenAI({ baseURL: there + "/v1", apiKey: "none", maxRetries: 0 });
    const ask = { model: models.data[0].id, messages: [{ role: "user", content: "Hello." }], max_tokens: 40, stream: true };
    let text = "";
    for await (const chunk of await client.chat.completions.create(ask)) text += chunk.choices[0]?.delta?.content ?? "";
    console.log(JSON.stringify({ model: ask.model, length: text.length }));`;
  const node = spawnSync(process.execPath, ["--input-type=module", "-e", script, server.url], {
    ...trust,
    cwd: "tests/http",
    encoding: "utf8",
  });
  assert.equal(node.status, 0, node.stderr);
  const said = JSON.parse(node.stdout);
  assert.equal(said.model, modelName);
  assert.ok(said.length > 5);
  const run = (...args) => spawnSync(binary, [...args, "--url", server.url], { ...trust, encoding: "utf8" });
  assert.equal(run("reload").stdout, "nothing has changed\n");
  assert.match(run("ps").stdout, /inferd-demo/);
  const untrusting = spawnSync(binary, ["ps", "--url", server.url], { encoding: "utf8" });
  assert.match(untrusting.stderr, /SSL_CERT_FILE names a file of certificates to trust/);
});

test("old versions, plain HTTP and requests that are no HTTP get no answer", async () => {
  const port = new URL(server.url).port;
  const hello = (...args) =>
    spawnSync("openssl", ["s_client", "-connect", `127.0.0.1:${port}`, "-CAfile", file("ca.pem"), ...args], {
      input: "",
      encoding: "utf8",
    });
  assert.match(hello("-tls1_3").stdout, /Verify return code: 0/);
  for (const args of [
    ["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
    ["-tls1_2", "-cipher", "AES128-SHA:AES256-SHA:@SECLEVEL=0"],
    ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"],
  ])
    assert.match(hello(...args).stdout, /Cipher is \(NONE\)/, args.join(" "));
  assert.notEqual(spawnSync("curl", ["-s", `http://127.0.0.1:${port}/livez`]).status, 0);
  assert.match(
    execFileSync("curl", ["-s", "--unix-socket", file("socket"), "http://localhost/livez"], { encoding: "utf8" }),
    /ok/,
  );
  const bad = hello("-quiet", "-ign_eof");
  assert.equal(bad.status, 0);
  const bytes = await new Promise((resolve, reject) => {
    const socket = connect({ port, host: "127.0.0.1", rejectUnauthorized: false }, () =>
      socket.write("POST /v1/models HTTP/1.1\r\nHost: a\r\nContent-Length: 1x\r\n\r\n"),
    );
    const got = [];
    socket.on("data", (d) => got.push(d));
    socket.on("error", reject);
    socket.on("end", () => resolve(Buffer.concat(got).toString()));
  });
  assert.match(bytes, /^(HTTP\/1\.1 400 [^]*)?$/, "no plain bytes in the stream of records");
  ready();
});

test("a reload changes the certificate for new connections; a stream goes on; a bad one changes nothing", async () => {
  const body = JSON.stringify({ model: modelName, prompt: "Once", max_tokens: 600, stream: true, ignore_eos: true });
  const stream = spawn("curl", [
    "-sN",
    "--cacert",
    file("ca.pem"),
    "-H",
    "Content-Type: application/json",
    "-d",
    body,
    `${server.url}/v1/completions`,
  ]);
  let text = "";
  const ended = new Promise((resolve) => stream.on("close", resolve));
  stream.stdout.on("data", (d) => (text += d));
  await until(() => text.includes("data:"), "the stream begins");
  assert.equal(await served(), "first");
  use("second");
  assert.equal(reload().status, 0);
  assert.equal(await served(), "second");
  ready();
  copyFileSync(file("first.key"), file("used.key"));
  const refused = reload();
  assert.equal(refused.status, 1);
  assert.match(refused.stderr, /daemon\.conf:2: tls-key: .*used\.key is not the key of the certificate .*used\.pem/);
  assert.equal(await served(), "second");
  rmSync(file("used.key"));
  server.child.kill("SIGHUP");
  await until(() => /not reloaded, nothing changes: .*used\.key: No such file/.test(server.stderr), "the log says so");
  assert.equal(await served(), "second");
  use("second");
  assert.equal(await ended, 0);
  assert.match(text, /data: \[DONE\]\n\n$/);
});

test("client certificates are asked for from a reload on", async () => {
  const as = (name) => ["--cert", file(`${name}.pem`), "--key", file(`${name}.key`)];
  const fails = (...args) => assert.notEqual(curl(...args).status, 0, args.join(" "));
  ready();
  configure(...pair, `tls-client-ca = ${file("ca.pem")}`);
  assert.equal(reload().stdout, "applied: tls-client-ca\n");
  for (const version of [[], ["--tls-max", "1.2"]]) {
    ready(...as("client"), ...version);
    fails(...version);
    fails(...as("stranger"), ...version);
    fails(...as("first"), ...version); // a server's
  }
  const status = await new Promise((resolve, reject) => {
    const files = { ca: file("ca.pem"), cert: file("client.pem"), key: file("client.key") };
    const options = Object.fromEntries(Object.entries(files).map(([k, f]) => [k, execFileSync("cat", [f])]));
    get(`${server.url}/v1/models`, options, (r) => resolve(r.resume().statusCode)).on("error", reject);
  });
  assert.equal(status, 200);
  configure(...pair, `tls-client-ca = ${file("client.key")}`);
  assert.match(reload().stderr, /daemon\.conf:3: tls-client-ca: .*client\.key has no certificates in PEM form/);
  fails();
  configure(...pair);
  assert.equal(reload().stdout, "applied: tls-client-ca\n");
  ready();
});

test("TLS is not turned off by a reload", async () => {
  configure("max-priority = 1");
  assert.equal(reload().stdout, "applied: max-priority\nneeds a restart: tls-certificate tls-key\n");
  assert.equal(await served(), "second");
  configure(...pair);
  assert.equal(reload().stdout, "applied: max-priority\n");
});

test("what cannot be used is refused at start, by the name of its file", () => {
  openssl("pkey", "-in", "first.key", "-aes128", "-passout", "pass:x", "-out", "locked.key");
  chmodSync(file("locked.key"), 0o600);
  copyFileSync(file("first.key"), file("open.key"));
  chmodSync(file("open.key"), 0o644);
  const start = (certificate, key, ...more) =>
    spawnSync(
      binary,
      ["serve", "--registry", join(server.folder, "registry.db"), "--port", "0"].concat(
        certificate ? ["--tls-certificate", file(certificate)] : [],
        key ? ["--tls-key", file(key)] : [],
        more,
      ),
      { encoding: "utf8", timeout: 60_000 },
    );
  for (const [certificate, key, why] of [
    ["first.pem", "second.key", /second\.key is not the key of the certificate .*first\.pem/],
    ["first.pem", "none.key", /tls-key: .*none\.key: No such file/],
    ["none.pem", "first.key", /tls-certificate: .*none\.pem: No such file/],
    ["first.pem", "open.key", /tls-key: .*open\.key: can be read or written by every user: chmod 600 it/],
    ["first.pem", "locked.key", /tls-key: .*locked\.key is not a private key in PEM form/],
    ["first.key", "first.key", /tls-certificate: .*first\.key has no chain of certificates in PEM form/],
    ["first.pem", "first.pem", /tls-key: /],
    ["first.pem", null, /tls-certificate needs tls-key/],
    [null, "first.key", /tls-key and tls-client-ca need tls-certificate/],
  ]) {
    const { status, stderr } = start(certificate, key);
    assert.equal(status, 1);
    assert.match(stderr, why);
  }
});
