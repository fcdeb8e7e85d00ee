// `inferd pull` against a server on 127.0.0.1 that behaves like the Hugging Face Hub: listing, redirect
// to a second server ("the CDN"), tokens, Range, and failures.
import { after, before, test } from "node:test";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gitHash, rangeFrom, sendFile, sha256, startHub } from "./hub.mjs";
import { binary, modelFile, patience, until } from "./server.mjs";

const model = readFileSync(modelFile);
const secret = "hf_secretSECRETsecret";
let folder;

before(() => (folder = mkdtempSync(join(tmpdir(), "inferd-hub-"))));
after(() => rmSync(folder, { recursive: true, force: true }));

// Starts a pull; .done resolves to {code, out, text}: stdout, and both outputs together.
function start(hub, args, { env = {}, flags = [] } = {}) {
  const child = spawn(
    binary,
    ["pull", ...args, "--registry", join(hub.home, "registry.db"), "--models-dir", join(hub.home, "models"), ...flags],
    {
      stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: process.env.PATH, HOME: hub.home, HF_ENDPOINT: hub.url, ...env },
    },
  );
  const run = { child, out: "", text: "" };
  const limit = setTimeout(() => child.kill("SIGKILL"), 60_000 * patience);
  child.stdout.on("data", (d) => ((run.out += d), (run.text += d)));
  child.stderr.on("data", (d) => (run.text += d));
  run.done = new Promise((resolve) =>
    child.on("close", (code, signal) => (clearTimeout(limit), resolve({ ...run, code: code ?? signal }))),
  );
  return run;
}
const pull = (hub, args, options) => start(hub, args, options).done;

function models(hub, ...args) {
  const run = { text: "" };
  const child = spawn(binary, ["models", ...args, "--registry", join(hub.home, "registry.db")], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  child.stdout.on("data", (d) => (run.text += d));
  child.stderr.on("data", (d) => (run.text += d));
  return new Promise((resolve) => child.on("close", (code) => resolve({ ...run, code })));
}

function hubTest(name, files, body) {
  test(name, async () => {
    const hub = await startHub(folder, files);
    try {
      await body(hub);
    } finally {
      hub.stop();
    }
  });
}

const assertWhole = (hub, name = "tiny.gguf", bytes = model) => {
  assert.ok(readFileSync(hub.path(name)).equals(bytes), `${name} has the Hub's bytes`);
  assert.ok(!existsSync(hub.path(`${name}.part`)) && !existsSync(hub.path(`${name}.part.id`)), "no part is left");
};

hubTest(
  "the only GGUF is pulled, registered and verified",
  { "tiny.gguf": model, "README.md": Buffer.from("x") },
  async (hub) => {
    const run = await pull(hub, ["hf:org/tiny", "--alias", "t"]);
    assert.equal(run.code, 0, run.text);
    assert.match(run.out, /^added tiny: llama/);
    assertWhole(hub);
    assert.deepEqual(readdirSync(hub.path()), ["tiny.gguf"]);
    const verified = await models(hub, "verify", "t");
    assert.equal(verified.text, "tiny: ok\n");
    const before = hub.requests.length;
    const again = await pull(hub, ["hf:org/tiny"]);
    assert.equal(again.code, 0, again.text);
    assert.equal(hub.requests.length, before + 1, "what is there is not fetched again");
  },
);

hubTest("the token goes to the endpoint alone", { "tiny.gguf": model }, async (hub) => {
  hub.gate = secret;
  const refused = await pull(hub, ["hf:org/tiny"]);
  assert.equal(refused.code, 1);
  assert.match(
    refused.text,
    /org\/tiny: 127\.0\.0\.1 answers 401: there is no such model, or it is private: then set HF_TOKEN to an access token/,
  );
  const wrong = await pull(hub, ["hf:org/tiny"], { env: { HF_TOKEN: "hf_other" } });
  assert.match(wrong.text, /401: there is no such model, or the token gives no access/);
  hub.requests.length = 0;
  const run = await pull(hub, ["hf:org/tiny"], { env: { HF_TOKEN: secret } });
  assert.equal(run.code, 0, run.text);
  assert.deepEqual(
    hub.requests.map((r) => [r.where, r.token]),
    [
      ["api", `Bearer ${secret}`],
      ["api", `Bearer ${secret}`],
      ["cdn", undefined],
    ],
  );
  assert.ok(!run.text.includes(secret) && !wrong.text.includes("hf_other") && !run.text.includes("s3cret"));
});

hubTest("the token can come from a private file", { "tiny.gguf": model }, async (hub) => {
  hub.gate = secret;
  const file = join(hub.home, "token");
  writeFileSync(file, secret + "\n", { mode: 0o600 });
  const run = await pull(hub, ["hf:org/tiny"], { flags: ["--hf-token-file", file], env: { HF_TOKEN: "hf_other" } });
  assert.equal(run.code, 0, run.text);
  writeFileSync(join(hub.home, "open"), secret, { mode: 0o644 });
  const open = await pull(hub, ["hf:org/tiny"], { flags: ["--hf-token-file", join(hub.home, "open")] });
  assert.match(open.text, /open can be read or written by every user: chmod 600 it/);
});

hubTest("what the Hub refuses is said", { "tiny.gguf": model }, async (hub) => {
  const says = async (pattern, ...args) => {
    const run = await pull(hub, args);
    assert.equal(run.code, 1, run.text);
    assert.match(run.text, pattern);
  };
  await says(/org\/none: 127\.0\.0\.1 has no such model \(HTTP 404\)/, "hf:org/none");
  await says(/org\/tiny: 127\.0\.0\.1 has no such revision \(HTTP 404\)/, "hf:org/tiny", "--revision", "v9");
  await says(/no GGUF of the repository matches "Q2_K"/, "hf:org/tiny:Q2_K");
  for (const bad of [
    "org/tiny",
    "hf:tiny",
    "hf:org/ti ny",
    "hf:org/..",
    "hf:../org",
    "hf:org/tiny:",
    "hf:org/a/b",
    "hf:/tiny",
  ])
    await says(/expected hf:ORG\/REPO or hf:ORG\/REPO:FILE, not/, bad);
  hub.onApi = (request, response) =>
    request.url.includes("/resolve/") && response.writeHead(403, { "X-Error-Code": "GatedRepo" }).end();
  await says(/tiny\.gguf: access is granted on request only \(HTTP 403\): accept the terms/, "hf:org/tiny");
  assert.deepEqual(readdirSync(hub.path()), [], "no empty part is left");
  hub.onApi = (request, response) =>
    request.url.includes("/resolve/") && response.writeHead(404, { "X-Error-Code": "EntryNotFound" }).end();
  await says(/tiny\.gguf: 127\.0\.0\.1 has no such file/, "hf:org/tiny");
  hub.onApi = (request, response) => response.end("<html>not JSON");
  await says(/the answer is not a listing/, "hf:org/tiny");
  hub.onApi = (request, response) => response.writeHead(302, { Location: request.url }).end();
  await says(/more than 5 redirects/, "hf:org/tiny");
  hub.onApi = (request, response) => response.writeHead(302, { Location: "file:///etc/passwd" }).end();
  await says(/a redirect leads to an address other than http or https/, "hf:org/tiny");
  const endpoint = await pull(hub, ["hf:org/tiny"], { flags: ["--hf-endpoint", "ftp://x"] });
  assert.match(endpoint.text, /hf-endpoint: "ftp:\/\/x" is not an address/);
});

hubTest("a revision with a slash, pinned to its commit", { "tiny.gguf": model }, async (hub) => {
  const run = await pull(hub, ["hf:org/tiny:tiny.gguf", "--revision", "refs/pr/1", "--name", "pr"]);
  assert.equal(run.code, 0, run.text);
  assert.match(hub.requests[0].url, /revision\/refs%2Fpr%2F1\?blobs=true/);
  assert.match(hub.requests[1].url, /^\/org\/tiny\/resolve\/c{40}\/tiny\.gguf$/);
  assert.match(run.out, /^added pr:/);
});

hubTest("a lost connection is resumed with Range", { "tiny.gguf": model }, async (hub) => {
  let n = 0;
  hub.onFile = (request, response, bytes) =>
    n++ < 2 && (sendFile(request, response, bytes, { upTo: n * 4_000_000 }), true);
  const run = await pull(hub, ["hf:org/tiny"]);
  assert.equal(run.code, 0, run.text);
  assert.match(run.text, /inferd: 127\.0\.0\.1: the connection was lost; trying again in 0\.5 s/);
  assert.equal(hub.ranges()[0], "all");
  assert.equal(hub.ranges().length, 3);
  assert.match(hub.ranges()[1], /^bytes=\d+-$/);
  assert.ok(rangeFrom({ headers: { range: hub.ranges()[2] } }) > rangeFrom({ headers: { range: hub.ranges()[1] } }));
  assertWhole(hub);
});

hubTest("a failed pull leaves a part that the next one goes on from", { "tiny.gguf": model }, async (hub) => {
  hub.onFile = (request, response, bytes) => (sendFile(request, response, bytes, { upTo: 5_000_000 }), true);
  const failed = await pull(hub, ["hf:org/tiny"], { flags: ["--hf-retries", "0"] });
  assert.equal(failed.code, 1);
  assert.match(failed.text, /tiny\.gguf: 127\.0\.0\.1: the connection was lost/);
  const had = statSync(hub.path("tiny.gguf.part")).size;
  assert.ok(had > 0 && had <= 5_000_000 && !existsSync(hub.path("tiny.gguf")));
  hub.onFile = null;
  const run = await pull(hub, ["hf:org/tiny"]);
  assert.equal(run.code, 0, run.text);
  assert.deepEqual(hub.ranges(), ["all", `bytes=${had}-`]);
  assertWhole(hub);
});

hubTest("a server that ignores Range sends all once more", { "tiny.gguf": model }, async (hub) => {
  let n = 0;
  hub.onFile = (request, response, bytes) => {
    if (n++ === 0) sendFile(request, response, bytes, { upTo: 3_000_000 });
    else response.writeHead(200, { "Content-Length": bytes.length }).end(bytes);
    return true;
  };
  const run = await pull(hub, ["hf:org/tiny"]);
  assert.equal(run.code, 0, run.text);
  assert.equal(n, 2);
  assertWhole(hub);
});

hubTest("another range than asked for, and 416, start from the beginning", { "tiny.gguf": model }, async (hub) => {
  for (const wrong of [
    (response, bytes) =>
      response
        .writeHead(206, { "Content-Range": `bytes 5-${bytes.length - 1}/${bytes.length}` })
        .end(bytes.subarray(5)),
    (response) => response.writeHead(206, { "Content-Range": "bytes */1" }).end("x"),
    (response) => response.writeHead(416).end(),
  ]) {
    rmSync(hub.path(), { recursive: true, force: true });
    hub.requests.length = 0;
    let n = 0;
    hub.onFile = (request, response, bytes) => {
      if (n++ === 0) return (sendFile(request, response, bytes, { upTo: 3_000_000 }), true);
      return n === 2 && (wrong(response, bytes), true);
    };
    const run = await pull(hub, ["hf:org/tiny"]);
    assert.equal(run.code, 0, run.text);
    assert.equal(hub.ranges().at(-1), "all");
    assertWhole(hub);
  }
});

hubTest(
  "a server that breaks off and sends other ranges is not asked for ever",
  { "tiny.gguf": model },
  async (hub) => {
    hub.onFile = (request, response, bytes) => {
      if (rangeFrom(request)) response.writeHead(206, { "Content-Range": "bytes */1" }).end("x");
      else sendFile(request, response, bytes, { upTo: 3_000_000 });
      return true;
    };
    const run = await pull(hub, ["hf:org/tiny"]);
    assert.equal(run.code, 1);
    assert.match(run.text, /the server sent another range of bytes than requested/);
    assert.deepEqual(
      hub.ranges().map((range) => range === "all"),
      [true, false, true, false, true, false, true, false],
    );
  },
);

hubTest("a part of another file is thrown away", { "tiny.gguf": model }, async (hub) => {
  const old = randomBytes(model.length);
  hub.files["tiny.gguf"] = old;
  hub.onFile = (request, response, bytes) => (sendFile(request, response, bytes, { upTo: 4_000_000 }), true);
  const failed = await pull(hub, ["hf:org/tiny"], { flags: ["--hf-retries", "0"] });
  assert.equal(failed.code, 1);
  assert.ok(statSync(hub.path("tiny.gguf.part")).size > 0);
  hub.files["tiny.gguf"] = model; // upstream changed
  hub.onFile = null;
  hub.requests.length = 0;
  const run = await pull(hub, ["hf:org/tiny"]);
  assert.equal(run.code, 0, run.text);
  assert.deepEqual(hub.ranges(), ["all"]);
  assertWhole(hub);
});

hubTest("wrong bytes are deleted", { "tiny.gguf": model, "config.txt": Buffer.from("x") }, async (hub) => {
  const wrong = Buffer.from(model);
  wrong[wrong.length - 1] ^= 1;
  const rejects = async (pattern) => {
    const run = await pull(hub, ["hf:org/tiny"]);
    assert.equal(run.code, 1, run.text);
    assert.match(run.text, pattern);
    assert.deepEqual(readdirSync(hub.path()), []);
  };
  hub.onFile = (request, response) => (sendFile(request, response, wrong), true);
  await rejects(
    /tiny\.gguf: its SHA-256 is not the one that the Hub lists \([0-9a-f]{16}\.\.\.\): the download was deleted, pull again/,
  );
  hub.onFile = (request, response) => (sendFile(request, response, Buffer.concat([model, model])), true);
  await rejects(/the server sends more than the \d+ bytes that it listed/);
  hub.onFile = null;
  hub.etag = "0".repeat(64);
  await rejects(/the file changed since it was listed/);
});

hubTest("a stalled download is given up and tried again", { "tiny.gguf": model }, async (hub) => {
  let n = 0;
  hub.onFile = (request, response, bytes) => {
    if (n++) return false;
    response.writeHead(200, { "Content-Length": bytes.length });
    response.write(bytes.subarray(0, 2_000_000)); // and then nothing
    return true;
  };
  const run = await pull(hub, ["hf:org/tiny"], { flags: ["--hf-stall-s", "1"] });
  assert.equal(run.code, 0, run.text);
  assert.match(run.text, /127\.0\.0\.1: nothing was received for 1 seconds; trying again in/);
  assert.deepEqual(hub.ranges(), ["all", "bytes=2000000-"]);
  assertWhole(hub);
});

hubTest("429 and 503 are waited out, not for ever", { "tiny.gguf": model }, async (hub) => {
  let n = 0;
  hub.onApi = (request, response) => {
    if (n === 2) return false;
    response.writeHead(n++ ? 503 : 429, n === 1 ? { "Retry-After": "1" } : {}).end();
    return true;
  };
  const run = await pull(hub, ["hf:org/tiny"]);
  assert.equal(run.code, 0, run.text);
  assert.match(run.text, /answers 429 \(too many requests\); trying again in 1\.0 s/);
  assert.match(run.text, /answers 503; trying again in 1\.0 s/);
  hub.onApi = (request, response) => response.writeHead(429, { "Retry-After": "86400" }).end();
  const long = await pull(hub, ["hf:org/tiny"]);
  assert.match(long.text, /answers 429 \(too many requests\) and asks for a wait of 86400 seconds/);
  assert.equal(long.code, 1);
  n = 0;
  hub.onApi = (request, response) => (n++, response.writeHead(500).end());
  const failed = await pull(hub, ["hf:org/tiny"], { flags: ["--hf-retries", "2"] });
  assert.equal(failed.code, 1);
  assert.equal(n, 3);
});

hubTest("Ctrl-C keeps the part and says so", { "tiny.gguf": model }, async (hub) => {
  hub.onFile = (request, response, bytes) => {
    response.writeHead(200, { "Content-Length": bytes.length });
    response.write(bytes.subarray(0, 2_000_000));
    return true;
  };
  const run = start(hub, ["hf:org/tiny"]);
  await until(
    () => existsSync(hub.path("tiny.gguf.part")) && statSync(hub.path("tiny.gguf.part")).size === 2_000_000,
    "2 MB are there",
  );
  run.child.kill("SIGINT");
  const ended = await run.done;
  assert.equal(ended.code, 1);
  assert.match(ended.text, /stopped; the downloaded part is kept: the same command continues from there/);
  hub.onFile = null;
  const again = await pull(hub, ["hf:org/tiny"]);
  assert.equal(again.code, 0, again.text);
  assert.deepEqual(hub.ranges(), ["all", "bytes=2000000-"]);
  assertWhole(hub);
});

hubTest("a second pull waits for the first", { "tiny.gguf": model }, async (hub) => {
  let held;
  hub.onFile = (request, response, bytes) => {
    response.writeHead(200, { "Content-Length": bytes.length });
    response.write(bytes.subarray(0, 1_000_000));
    held = () => response.end(bytes.subarray(1_000_000));
    return true;
  };
  const first = start(hub, ["hf:org/tiny"]);
  await until(() => held, "the first pull downloads");
  const second = start(hub, ["hf:org/tiny"]);
  await until(
    () => second.text.includes("another pull into the same folder is running: waiting for it"),
    "the second says that it waits",
  );
  held();
  const [a, b] = await Promise.all([first.done, second.done]);
  assert.equal(a.code, 0, a.text);
  assert.equal(b.code, 0, b.text);
  assert.deepEqual(hub.ranges(), ["all"]);
});

const names = (...list) => Object.fromEntries(list.map((name, i) => [name, Buffer.from(`not a model ${i}`)]));

hubTest(
  "which GGUF is meant",
  {
    ...names(
      "tiny-Q4_K_M.gguf",
      "tiny-IQ4_K_M.gguf",
      "tiny-Q4_K_S.gguf",
      "mmproj-F16.gguf",
      "sub/tiny-F16.gguf",
      "README.md",
    ),
    "tiny-Q8_0.gguf": model,
  },
  async (hub) => {
    const many = await pull(hub, ["hf:org/tiny"]);
    assert.equal(many.code, 1);
    assert.match(many.text, /5 models are there: choose one with hf:ORG\/REPO:FILE/);
    for (const name of ["tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf", "sub/tiny-F16.gguf"])
      assert.ok(many.text.includes(`inferd: ${name}\n`));
    assert.ok(!many.text.includes("mmproj"));
    const several = await pull(hub, ["hf:org/tiny:*Q4_K*"]);
    assert.match(several.text, /3 models match \*Q4_K\*/);
    const run = await pull(hub, ["hf:org/tiny:q8_0"]);
    assert.equal(run.code, 0, run.text);
    assertWhole(hub, "tiny-Q8_0.gguf");
    for (const [wanted, file] of [
      ["Q4_K_M", "tiny-Q4_K_M.gguf"],
      ["F16", "sub/tiny-F16.gguf"],
      ["*-IQ4*", "tiny-IQ4_K_M.gguf"],
      ["mmproj-F16.gguf", "mmproj-F16.gguf"],
    ]) {
      const one = await pull(hub, [`hf:org/tiny:${wanted}`]);
      assert.equal(one.code, 1); // not a model: kept, but not registered
      assert.match(one.text, /is downloaded but not registered: /);
      assertWhole(hub, file, hub.files[file]);
    }
  },
);

hubTest(
  "a split GGUF comes with all parts",
  names("big-00002-of-00003.gguf", "big-00001-of-00003.gguf", "big-00003-of-00003.gguf", "other-00001-of-00002.gguf"),
  async (hub) => {
    const run = await pull(hub, ["hf:org/tiny:big-00001-of-00003.gguf"]);
    assert.match(run.text, /big-00001-of-00003\.gguf is downloaded but not registered/);
    assert.deepEqual(readdirSync(hub.path()).sort(), [
      "big-00001-of-00003.gguf",
      "big-00002-of-00003.gguf",
      "big-00003-of-00003.gguf",
    ]);
    const lost = await pull(hub, ["hf:org/tiny:other*"]);
    assert.match(lost.text, /other-00001-of-00002\.gguf: the repository has 1 of its 2 parts/);
  },
);

const hf = "tests/golden/arch/llama/hf";
hubTest(
  "a Hugging Face folder is pulled, registered and verified",
  Object.fromEntries(readdirSync(hf).map((name) => [name, readFileSync(join(hf, name))])),
  async (hub) => {
    const run = await pull(hub, ["hf:org/tiny", "--alias", "t"]);
    assert.equal(run.code, 0, run.text);
    assert.match(run.out, /^added tiny: llama/);
    assert.deepEqual(readdirSync(hub.path()).sort(), readdirSync(hf).sort());
    assert.equal((await models(hub, "verify", "t")).text, "tiny: ok\n");
  },
);

hubTest(
  "a Hugging Face folder comes with what belongs to it",
  {
    ...names(
      "config.json",
      "generation_config.json",
      "model-00001-of-00002.safetensors",
      "model-00002-of-00002.safetensors",
      "model.safetensors.index.json",
      "tokenizer.json",
      "tokenizer_config.json",
      "special_tokens_map.json",
      "chat_template.jinja",
      "modules.json",
      "1_Pooling/config.json",
      "2_Dense/config.json",
      "2_Dense/model.safetensors",
    ),
    ...names(
      "pytorch_model.bin",
      "README.md",
      "consolidated.safetensors",
      "onnx/model.safetensors",
      "tiny.gguf",
      "preprocessor.py",
    ),
  },
  async (hub) => {
    const run = await pull(hub, ["hf:org/tiny"]);
    assert.match(run.text, /org\/tiny is downloaded but not registered/);
    assert.deepEqual(readdirSync(hub.path("2_Dense")).sort(), ["config.json", "model.safetensors"]);
    assert.deepEqual(readdirSync(hub.path()).sort(), [
      "1_Pooling",
      "2_Dense",
      "chat_template.jinja",
      "config.json",
      "generation_config.json",
      "model-00001-of-00002.safetensors",
      "model-00002-of-00002.safetensors",
      "model.safetensors.index.json",
      "modules.json",
      "special_tokens_map.json",
      "tokenizer.json",
      "tokenizer_config.json",
    ]);
    // A small file that does not match its git hash.
    rmSync(hub.path("config.json"));
    hub.listed["config.json"] = { blobId: "a".repeat(40) };
    const wrong = await pull(hub, ["hf:org/tiny"]);
    assert.match(wrong.text, /config\.json: its git hash is not the one that the Hub lists/);
    assert.ok(!existsSync(hub.path("config.json")));
    // Files of an earlier revision are named.
    delete hub.listed["config.json"];
    delete hub.files["chat_template.jinja"];
    const stranger = await pull(hub, ["hf:org/tiny"]);
    assert.match(stranger.text, /chat_template\.jinja is not part of this revision: remove it/);
  },
);

hubTest("names that would leave the folder are not taken", { "README.md": Buffer.from("x") }, async (hub) => {
  const bytes = Buffer.from("evil");
  const lfs = { sha256: sha256(bytes), size: bytes.length };
  hub.rows = [
    "../evil.gguf",
    "/evil.gguf",
    "a/../../evil.gguf",
    "a//evil.gguf",
    "ev\u0001il.gguf",
    "a\\evil.gguf",
    "./evil.gguf",
  ].map((rfilename) => ({ rfilename, lfs }));
  for (const args of [["hf:org/tiny"], ["hf:org/tiny:../evil.gguf"], ["hf:org/tiny:*evil*"]]) {
    const run = await pull(hub, args);
    assert.equal(run.code, 1);
    assert.match(run.text, /the repository has neither a GGUF nor safetensors with a config\.json/);
  }
  assert.ok(!existsSync(join(hub.home, "models")));
});

hubTest("what cannot work is refused before the download", { "tiny.gguf": model }, async (hub) => {
  const first = await pull(hub, ["hf:org/tiny", "--name", "mine"]);
  assert.equal(first.code, 0, first.text);
  hub.files = { "other.gguf": randomBytes(2000) };
  hub.requests.length = 0;
  const taken = await pull(hub, ["hf:org/tiny", "--alias", "mine"]);
  assert.match(taken.text, /the name mine is already taken by .*tiny\.gguf/);
  const bad = await pull(hub, ["hf:org/tiny", "--name", "a b"]);
  assert.match(bad.text, /"a b" is not a model name/);
  hub.listed["other.gguf"] = { lfs: { sha256: "0".repeat(64), size: 9e15 } };
  const large = await pull(hub, ["hf:org/tiny"]);
  assert.match(large.text, /MiB are free, but \d+ MiB are still to be downloaded/);
  hub.listed["other.gguf"] = { lfs: undefined, blobId: undefined, size: undefined };
  const unknown = await pull(hub, ["hf:org/tiny"]);
  assert.match(unknown.text, /the listing has no size or hash of other\.gguf/);
  assert.deepEqual(hub.ranges(), []);
});

hubTest("progress is a line now and then where there is no terminal", { "tiny.gguf": model }, async (hub) => {
  const run = await pull(hub, ["hf:org/tiny"]);
  assert.match(run.text, /inferd: ([1-9]0|100) %, .* of /);
  assert.ok(!run.text.includes("\r"));
});
