// The daemon when its files change while it runs, and signals that must not stop it.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  closeSync,
  copyFileSync,
  mkdtempSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  unlinkSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { binary, modelFile, post, sse, startServer, until } from "./server.mjs";

// Starts a server with its own copy of the demo model, which `change` modifies.
async function withCopy(change) {
  const folder = mkdtempSync(join(tmpdir(), "inferd-files-"));
  const file = join(folder, "model.gguf");
  copyFileSync(modelFile, file);
  const server = await startServer(["--max-sequences", "4"], [{ file, name: "copy" }]);
  try {
    await change(server, file);
    assert.equal((await fetch(`${server.url}/livez`)).status, 200, "it lives");
  } finally {
    const how = await server.stop();
    rmSync(folder, { recursive: true, force: true });
    assert.deepEqual(how, { code: 0, signal: null }, server.stderr.slice(-4000));
  }
  assert.ok(!/Sanitizer/.test(server.stderr), server.stderr.slice(-4000));
}

const request = (more) => ({
  model: "copy",
  prompt: "Once upon a time",
  temperature: 0,
  ignore_eos: true,
  max_tokens: 40,
  ...more,
});
const readyz = async (server) => (await fetch(`${server.url}/readyz`)).status;

async function answer(server) {
  const response = await post(server, "/v1/completions", request());
  return { status: response.status, body: await response.json() };
}

// The error explains the refusal without naming a path.
async function isRefused(server, file) {
  await until(async () => (await readyz(server)) === 503, "readiness is red");
  const { status, body } = await answer(server);
  assert.equal(status, 503);
  assert.equal(body.error.code, "model_changed");
  assert.match(body.error.message, /file changed while it was served.*restart/);
  assert.ok(!body.error.message.includes(file));
  assert.ok(server.stderr.includes(file), "the log names the file");
}

// Reads a stream and runs `change` after the first tokens; the tokens must be the model's until it ends.
async function changeInStream(server, whole, change) {
  const response = await post(server, "/v1/completions", request({ max_tokens: 4000, stream: true }));
  assert.equal(response.status, 200);
  let text = "",
    error = null,
    n = 0;
  for await (const event of sse(response)) {
    if (event.error) error = event.error;
    text += event.choices?.[0]?.text ?? "";
    if (++n === 5) await change();
  }
  assert.ok(
    whole.startsWith(text.slice(0, whole.length)),
    `no other text: ${JSON.stringify(text.slice(0, whole.length))}`,
  );
  return error;
}

test("truncating a served file ends its streams and readiness", () =>
  withCopy(async (server, file) => {
    const whole = (await answer(server)).body.choices[0].text;
    const error = await changeInStream(server, whole, () => truncateSync(file, 4096));
    assert.equal(error?.code, "model_changed", JSON.stringify(error));
    await isRefused(server, file);
  }));

test("overwriting a served file is noticed without a request", () =>
  withCopy(async (server, file) => {
    assert.equal((await answer(server)).status, 200);
    const fd = openSync(file, "r+"),
      size = statSync(file).size;
    writeSync(fd, Buffer.alloc(size >> 1, 0xff), 0, size >> 1, size >> 2);
    closeSync(fd);
    await isRefused(server, file);
  }));

test("a replaced or removed file is still served", () =>
  withCopy(async (server, file) => {
    const whole = (await answer(server)).body.choices[0].text;
    copyFileSync(modelFile, `${file}.new`);
    truncateSync(`${file}.new`, 100000);
    renameSync(`${file}.new`, file);
    await until(() => server.stderr.includes("was replaced or removed"), "the log says so");
    unlinkSync(file);
    assert.equal(await readyz(server), 200);
    assert.equal((await answer(server)).body.choices[0].text, whole);
  }));

test("SIGHUP and similar signals do not stop the daemon", () =>
  withCopy(async (server) => {
    const whole = (await answer(server)).body.choices[0].text;
    for (const signal of ["SIGHUP", "SIGHUP", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGTTOU", "SIGXFSZ"])
      server.child.kill(signal);
    await until(
      () =>
        ["SIGUSR1 is ignored", "SIGUSR2 is ignored", "the configuration is reloaded: nothing"].every((line) =>
          server.stderr.includes(line),
        ),
      "the log says so",
    );
    assert.equal((await answer(server)).body.choices[0].text, whole);
  }));

// ---- a registry that cannot be written ----

// root may write anywhere, so these run as user nobody if possible.
const isRoot = process.getuid?.() === 0;
function runAs(folder, args) {
  if (!isRoot) return [binary, args];
  return ["setpriv", ["--reuid=65534", "--regid=65534", "--clear-groups", join(folder, "inferd"), ...args]];
}
function canRunAs() {
  if (!isRoot) return true;
  try {
    execFileSync("setpriv", ["--reuid=65534", "--regid=65534", "--clear-groups", "true"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

// A folder that only its owner may write: binary, model, registry.
async function withReadOnly(use) {
  const folder = mkdtempSync(join(tmpdir(), "inferd-files-"));
  const file = join(folder, "model.gguf"),
    registry = join(folder, "registry.db");
  copyFileSync(modelFile, file);
  copyFileSync(binary, join(folder, "inferd"));
  execFileSync(binary, ["models", "add", file, "--name", "copy", "--registry", registry]);
  chmodSync(file, 0o444);
  chmodSync(registry, 0o444);
  chmodSync(folder, 0o555);
  try {
    await use(folder, registry);
  } finally {
    chmodSync(folder, 0o755);
    rmSync(folder, { recursive: true, force: true });
  }
}

// Starts a server, calls use(url), stops it; returns its log.
async function serveAs(folder, args, use) {
  const [program, all] = runAs(folder, ["serve", "--host", "127.0.0.1", "--port", "0", ...args]);
  const child = spawn(program, all, { stdio: ["ignore", "pipe", "pipe"] });
  let stdout = "",
    stderr = "";
  child.stdout.on("data", (d) => (stdout += d));
  child.stderr.on("data", (d) => (stderr += d));
  const ended = new Promise((resolve) => child.on("close", (code, signal) => resolve({ code, signal })));
  const limit = setTimeout(() => child.kill("SIGKILL"), 300_000);
  const url = await until(
    () => (child.exitCode !== null ? assert.fail(stderr) : /http:\/\/\S+/.exec(stdout)?.[0]),
    "it serves",
  );
  try {
    await use({ url });
  } finally {
    child.kill("SIGTERM");
    assert.deepEqual(await ended, { code: 0, signal: null }, stderr);
    clearTimeout(limit);
  }
  return stderr;
}

test("a read-only registry is enough to serve", { skip: canRunAs() ? false : "root, and no setpriv" }, () =>
  withReadOnly(async (folder, registry) => {
    const [program, list] = runAs(folder, ["models", "list", "--registry", registry]);
    assert.match(execFileSync(program, list, { encoding: "utf8" }), /copy/);
    const log = await serveAs(folder, ["--model", "copy", "--registry", registry], async (server) => {
      assert.equal((await answer(server)).status, 200);
      const asked = { model: "copy", input: "Hello", max_output_tokens: 4 };
      const kept = await post(server, "/v1/responses", asked);
      assert.equal(kept.status, 200);
      assert.equal((await kept.json()).store, false);
      const insisted = await post(server, "/v1/responses", { ...asked, store: true });
      assert.equal(insisted.status, 400);
      assert.equal((await insisted.json()).error.param, "store");
    });
    assert.match(log, /responses are not stored: registry .* cannot be written/);
    assert.ok(!/ error /.test(log), log);
    const [adder, add] = runAs(folder, [
      "models",
      "add",
      join(folder, "model.gguf"),
      "--name",
      "other",
      "--registry",
      registry,
    ]);
    assert.throws(
      () => execFileSync(adder, add, { stdio: "pipe" }),
      (e) => /cannot be written/.test(String(e.stderr)),
    );
  }),
);

test(
  "a registry's folder that cannot be made is said; a model by its path is served without",
  { skip: canRunAs() ? false : "root, and no setpriv" },
  () =>
    withReadOnly(async (folder) => {
      const registry = join(folder, "none", "registry.db");
      const [program, args] = runAs(folder, ["serve", "--model", "copy", "--registry", registry, "--port", "0"]);
      assert.throws(
        () => execFileSync(program, args, { stdio: "pipe" }),
        (e) => /none/.test(String(e.stderr)),
      );
      const log = await serveAs(
        folder,
        ["--model", join(folder, "model.gguf"), "--registry", registry],
        async (server) => {
          assert.equal((await post(server, "/v1/completions", { ...request(), model: "model" })).status, 200);
        },
      );
      assert.match(log, /responses are not stored/);
    }),
);
