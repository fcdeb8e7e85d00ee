// Coding agents, each from its own package, do one task against inferd: find a typo in a file by a
// tool call and mend it by another. scripted.mjs says how a model with random weights can do that.
// Run in a network namespace that has nothing but loopback: see run.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { after, before, test } from "node:test";
import { ignoredNames, listedNames } from "../http/ignored_fields.mjs";
import { onlyLoopback, open } from "../http/loopback.mjs";
import { startServer } from "../http/server.mjs";
import { playScript } from "./scripted.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const modules = join(here, "node_modules");
const programs = {
  claude: join(modules, "@anthropic-ai", "claude-code-linux-x64", "claude"),
  codex: join(modules, ".bin", "codex"),
  opencode: join(modules, "opencode-linux-x64-baseline", "bin", "opencode"),
};
const limitMs = 240_000; // of one agent's task

// The packages are pinned for Linux on x86-64; npm leaves them out elsewhere. An agent may run commands
// and use the network, so none is started where it could reach one.
const skip = (program) => {
  if (process.platform !== "linux" || process.arch !== "x64") return "pinned for Linux on x86-64";
  return open || (existsSync(programs[program]) ? false : "its package is not installed");
};
onlyLoopback();

let scratch, server;
before(async () => {
  scratch = mkdtempSync(join(tmpdir(), "inferd-agents-"));
  if (Object.keys(programs).every(skip)) return;
  const file = join(scratch, "tiny.gguf");
  const shape = { layers: 2, hidden: 64, heads: 2, "kv-heads": 1, ffn: 128, vocab: 8000, context: 262144 };
  const args = Object.entries(shape).flatMap(([k, v]) => [`--${k}`, String(v)]);
  execFileSync("scripts/random-model", [...args, "--out", file]);
  server = await startServer(
    ["--chat-template", "chatml", "--model-aliases", "claude-*=tiny"],
    [{ file, name: "tiny" }],
  );
});
after(async () => {
  await server?.stop();
  rmSync(scratch, { recursive: true, force: true });
});

// Runs an agent in a folder with a.txt; what the daemon saw, and the file afterwards.
async function mend({ script, prepare, command, env = {} }) {
  const folder = mkdtempSync(join(scratch, "task-"));
  const home = join(folder, "home");
  const project = join(folder, "project");
  mkdirSync(home);
  mkdirSync(project);
  const file = join(project, "a.txt");
  writeFileSync(file, "hello wrld\n");
  const proxy = await playScript(server.url, script(file));
  const place = { url: proxy.url, home, project, file };
  prepare?.(place);
  const [program, ...args] = command(place);
  const base = { PATH: process.env.PATH, HOME: home, TERM: "dumb", NO_COLOR: "1" };
  const child = spawn(programs[program], args, {
    cwd: project,
    env: { ...base, ...(typeof env === "function" ? env(place) : env) },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  child.stdout.on("data", (d) => (output += d));
  child.stderr.on("data", (d) => (output += d));
  const limit = setTimeout(() => child.kill("SIGKILL"), limitMs);
  const code = await new Promise((ended) => child.on("exit", (status, signal) => ended(status ?? signal)));
  clearTimeout(limit);
  await proxy.stop();
  return { code, output, text: readFileSync(file, "utf8"), seen: proxy.seen };
}

// What all agents must have met: answers without an error, the file mended by them, and nothing ignored but
// what their row of api/CLIENTS.md says.
function check(t, client, result, path) {
  const generations = result.seen.filter((s) => s.method === "POST" && s.url.startsWith(path));
  const wrong = result.seen.filter((s) => s.status >= 400 && s.url.startsWith(path));
  assert.deepEqual(
    wrong.map((s) => `${s.url} ${s.status} ${s.answer.slice(0, 300)}`),
    [],
  );
  assert.equal(result.code, 0, result.output.slice(-2000));
  assert.equal(result.text, "hello world\n", result.output.slice(-2000));
  const ignored = ignoredNames(generations.map((s) => s.ignored));
  t.diagnostic(`${generations.length} requests; ignored: ${ignored.join(", ") || "nothing"}`);
  assert.deepEqual(ignored, listedNames(client));
  return generations;
}

const claude = {
  env: ({ url }) => ({
    ANTHROPIC_BASE_URL: url,
    ANTHROPIC_API_KEY: "none",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    CLAUDE_CODE_MAX_RETRIES: "0",
    IS_SANDBOX: "1",
  }),
  command: () => ["claude", "-p", "mend the typo in a.txt", "--dangerously-skip-permissions"],
};

test("Claude Code edits a file", { skip: skip("claude") }, async (t) => {
  const result = await mend({
    ...claude,
    script: (file) => [
      { name: "Read", input: { file_path: file } },
      { name: "Edit", input: { file_path: file, old_string: "wrld", new_string: "world" } },
    ],
  });
  const generations = check(t, "Claude Code", result, "/v1/messages");
  assert.ok(generations.length >= 3, "two calls and a text");
});

// The subagent has a conversation of its own, in which it is not offered the tool that starts it.
test("Claude Code asks a subagent and runs a command", { skip: skip("claude") }, async (t) => {
  const prompt = "Say how one mends a typo.";
  const result = await mend({
    ...claude,
    script: () => [
      {
        name: "Agent",
        input: { description: "Ask", prompt, subagent_type: "Explore", run_in_background: false },
      },
      { name: "Bash", input: { command: "sed -i s/wrld/world/ a.txt", description: "Mend the typo" } },
    ],
  });
  const generations = check(t, "Claude Code", result, "/v1/messages");
  const own = generations.filter((s) => JSON.stringify(s.body?.messages[0]).includes(prompt));
  assert.ok(own.length >= 1, "the subagent asked");
  const said = generations.at(-1).body.messages.flatMap((m) => (Array.isArray(m.content) ? m.content : []));
  assert.deepEqual(
    said.filter((p) => p.type === "tool_result").map((p) => p.is_error ?? false),
    [false, false],
  );
});

test("Codex edits a file", { skip: skip("codex") }, async (t) => {
  const result = await mend({
    script: () => [
      { name: "exec_command", input: { cmd: "cat a.txt" } },
      { name: "exec_command", input: { cmd: "sed -i s/wrld/world/ a.txt" } },
    ],
    prepare({ url, home }) {
      mkdirSync(join(home, ".codex"));
      const provider = [
        'model = "tiny"',
        'model_provider = "inferd"',
        'approval_policy = "never"',
        'sandbox_mode = "danger-full-access"',
        "[model_providers.inferd]",
        'name = "inferd"',
        `base_url = "${url}/v1"`,
        'wire_api = "responses"',
        "request_max_retries = 0",
        "stream_max_retries = 0",
      ];
      writeFileSync(join(home, ".codex", "config.toml"), provider.join("\n"));
    },
    command: () => ["codex", "exec", "--skip-git-repo-check", "mend the typo in a.txt"],
  });
  const generations = check(t, "Codex", result, "/v1/responses");
  const hosted = generations[0].body.tools.filter((_, i) => generations[0].ignored.includes(`tools[${i}]`));
  assert.deepEqual(
    hosted.map((tool) => tool.type),
    ["web_search"],
  );
  assert.ok(generations.length >= 3, "two calls and a text");
});

test("opencode edits a file", { skip: skip("opencode") }, async (t) => {
  const result = await mend({
    script: (file) => [
      { name: "read", input: { filePath: file } },
      { name: "edit", input: { filePath: file, oldString: "wrld", newString: "world" } },
    ],
    prepare({ url, project }) {
      const provider = {
        npm: "@ai-sdk/openai-compatible",
        name: "inferd",
        options: { baseURL: `${url}/v1`, apiKey: "none" },
        models: { tiny: { name: "tiny" } },
      };
      const config = {
        autoupdate: false,
        share: "disabled",
        provider: { inferd: provider },
        model: "inferd/tiny",
        small_model: "inferd/tiny",
      };
      writeFileSync(join(project, "opencode.json"), JSON.stringify(config));
    },
    command: () => ["opencode", "run", "mend the typo in a.txt"],
  });
  const generations = check(t, "opencode", result, "/v1/chat/completions");
  assert.ok(generations.length >= 3, "two calls and a text");
});
