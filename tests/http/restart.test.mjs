// Restarts without loss: processes that follow each other on one socket, as systemd and launchd hand it over, while
// clients ask all the time. RESTARTS=100 is the whole set.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { binary, modelFile, modelName, sse, until, user } from "./server.mjs";

const RESTARTS = Number(process.env.RESTARTS ?? (process.env.LONG ? 100 : 8));
const folder = mkdtempSync(join(tmpdir(), "inferd-restart-"));
const registry = join(folder, "registry.db");
const { TCP, constants } = process.binding("tcp_wrap");
const socket = new TCP(constants.SERVER); // bound, as a supervisor has it: node never accepts from it
let url, current;
const processes = new Set();

// A process with the socket as descriptor 3; resolves when it serves.
async function start() {
  const args = ["serve", "--registry", registry, "--kv-cache-tokens", "16384", "--max-sequences", "16"];
  const child = spawn("sh", ["-c", 'LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"', "sh", binary, ...args], {
    stdio: ["ignore", "pipe", "pipe", socket.fd],
  });
  const p = { child, stdout: "", stderr: "", exited: null };
  processes.add(p);
  child.stdout.on("data", (d) => (p.stdout += d));
  child.stderr.on("data", (d) => (p.stderr += d));
  p.ended = new Promise((resolve) => child.on("close", (code) => resolve((p.exited = code ?? -1))));
  await until(() => p.stdout.includes("serving") || p.exited !== null, "the process serves");
  assert.equal(p.exited, null, p.stderr);
  return p;
}

async function stop(p) {
  p.child.kill("SIGTERM");
  assert.equal(await p.ended, 0, p.stderr);
  processes.delete(p);
}

before(async () => {
  execFileSync(binary, ["models", "add", modelFile, "--name", modelName, "--registry", registry]);
  assert.equal(socket.bind("127.0.0.1", 0), 0);
  const at = {};
  socket.getsockname(at);
  url = `http://127.0.0.1:${at.port}`;
});
after(async () => {
  for (const p of processes) p.child.kill("SIGKILL");
  socket.close();
  rmSync(folder, { recursive: true, force: true });
});

test("connections from before the start are answered", async () => {
  // Nobody has called listen() yet, so the first process does.
  current = await start();
  await stop(current);
  const early = Promise.all([fetch(url + "/readyz"), fetch(url + "/livez")]);
  current = await start();
  for (const response of await early) assert.equal(response.status, 200);
});

test(`${RESTARTS} restarts under load lose no request`, async () => {
  const ask = { model: modelName, messages: user("Tell me a story."), seed: 3, temperature: 0 };
  const expected = new Map(); // by max_tokens: greedy answers are the same in every process
  const failures = [];
  let done = 0,
    over = false;
  const check = (n, text) => {
    if (!expected.has(n)) expected.set(n, text);
    assert.equal(text, expected.get(n));
  };
  const post = (body, more = {}) =>
    fetch(url + "/v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...ask, ...body }),
      ...more,
    });
  const fresh = new Agent({ keepAlive: false });
  const clients = {
    // Connections that are reused.
    async reused() {
      const response = await post({ max_tokens: 4 });
      assert.equal(response.status, 200, await response.clone().text());
      check(4, (await response.json()).choices[0].message.content);
    },
    // Streams that last.
    async streams() {
      const response = await post({ max_tokens: 120, stream: true });
      assert.equal(response.status, 200);
      let text = "",
        last;
      for await (const event of sse(response)) {
        assert.ok(!event.error, JSON.stringify(event));
        text += event.choices?.[0]?.delta?.content ?? "";
        last = event;
      }
      assert.equal(last, "[DONE]");
      check(120, text);
    },
    // A new connection for each request.
    fresh: () =>
      new Promise((resolve, reject) => {
        const asked = request(url + "/v1/models", { agent: fresh }, (got) => {
          got.resume().on("end", () => (got.statusCode === 200 ? resolve() : reject(new Error(`${got.statusCode}`))));
        });
        asked.on("error", reject);
        asked.end();
      }),
    async sdk() {
      const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
      check(9, (await client.chat.completions.create({ ...ask, max_tokens: 9 })).choices[0].message.content);
    },
  };
  const run = async (name) => {
    while (!over)
      try {
        await clients[name]();
        done++;
      } catch (e) {
        failures.push(`${name}: ${e.message} ${e.cause?.message ?? ""}`);
      }
  };
  const load = ["reused", "reused", "streams", "streams", "fresh", "sdk"].map(run);
  const leaving = [];
  for (let i = 0; i < RESTARTS; i++) {
    const before = done;
    if (i % 4 === 3) {
      await stop(current); // the next one begins when this one has ended: connections wait
      current = await start();
    } else {
      const next = await start();
      leaving.push(stop(current));
      current = next;
    }
    await until(() => done > before + 4, "clients go on");
  }
  over = true;
  await Promise.all([...load, ...leaving]);
  assert.deepEqual(failures, []);
  assert.ok(done >= RESTARTS * 4);
  await stop(current);
});
