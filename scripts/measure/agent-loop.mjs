#!/usr/bin/env node
// Prints the prompt tokens that each turn of an agent's loop computes on a model with recurrent layers, beside
// the bound: what the turn has not in common with an earlier one, and two boundaries between states. Counts, not
// times: a tiny model does.
//
// usage: agent-loop.mjs [--model FILE] [--agents N] [--peer DIR] [--threads N]
// Agents take turns and have the system's message in common. --peer: also what a llama-server computes of the
// same conversations with the same file (GGUF), with a slot for each agent. Without --model: a golden model with
// random weights, whose context is made long.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { agentLoop } from "../../tests/http/agent_loop.mjs";
import { post, startServer } from "../../tests/http/server.mjs";
import { peer } from "./engines.mjs";

const turns = 20,
  chain = 6000, // tokens before the first turn
  added = 300, // tokens of a tool's result
  boundary = 16,
  context = 16384;

const { values: options } = parseArgs({
  options: {
    model: { type: "string" },
    agents: { type: "string", default: "1" },
    peer: { type: "string" },
    threads: { type: "string", default: "2" },
  },
});
const agents = Number(options.agents);

function goldenModel(folder) {
  cpSync("tests/golden/arch/qwen35/hf", folder, { recursive: true });
  const file = join(folder, "config.json");
  const config = JSON.parse(readFileSync(file, "utf8"));
  (config.text_config ?? config).max_position_embeddings = context;
  writeFileSync(file, JSON.stringify(config));
  return folder;
}

// All turns of all agents. Tokens of a message are sized by those of the loop's six words.
async function turnsOf(server, model) {
  const content = Array(100).fill("the cat sat on a mat").join(" ");
  const response = await post(server, "/tokenize", { model, content });
  const perWord = (await response.json()).tokens.length / 600;
  const words = { system: Math.round(chain / perWord), result: Math.round(added / perWord) };
  const earlier = [],
    loops = Array.from({ length: agents }, (_, agent) => agentLoop(server, model, { turns, words, agent, earlier }));
  const all = [];
  for (let turn = 0; turn < turns; turn++)
    for (let agent = 0; agent < agents; agent++) all.push({ agent, ...(await loops[agent].next()).value });
  return all;
}

async function stopped(server, use) {
  try {
    return await use(server);
  } finally {
    await server.stop();
  }
}

async function ours(file) {
  const tokens = String((agents + 1) * context);
  const flags = ["--kv-cache-tokens", tokens, "--context-length", String(context), "--max-sequences", "4"];
  flags.push("--block-tokens", String(boundary), "--threads", options.threads);
  return stopped(await startServer(flags, [{ name: "hybrid", file }]), (server) => turnsOf(server, "hybrid"));
}

async function theirs(file) {
  const engine = peer(options.peer, Number(options.threads));
  const server = await engine.serve(file, { streams: agents, context });
  return stopped(server, () => turnsOf(server, server.model));
}

if (options.peer && !options.model) throw new Error("a peer wants --model FILE, a GGUF file");
const folder = mkdtempSync(join(tmpdir(), "inferd-agent-loop-"));
try {
  const table = await ours(options.model ?? goldenModel(folder)),
    beside = options.peer ? await theirs(options.model) : [];
  console.log(`| agent | turn | prompt | new | computed | bound |${options.peer ? " peer's prompt | computed |" : ""}`);
  console.log(`|---|---|---|---|---|---|${options.peer ? "---|---|" : ""}`);
  let over = 0;
  table.forEach(({ agent, turn, prompt, cached, common }, i) => {
    const bound = prompt - common + 2 * boundary,
      other = beside[i] ? ` ${beside[i].prompt} | ${beside[i].prompt - beside[i].cached} |` : "";
    if (prompt - cached > bound) over++;
    console.log(`| ${agent} | ${turn} | ${prompt} | ${prompt - common} | ${prompt - cached} | ${bound} |${other}`);
  });
  console.log(over ? `${over} turns are above the bound` : "no turn is above the bound");
  process.exitCode = over ? 1 : 0;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
