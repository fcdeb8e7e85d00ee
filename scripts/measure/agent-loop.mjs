#!/usr/bin/env node
// Prints the prompt tokens that each turn of an agent's loop computes on a model with recurrent layers, beside
// the bound: what the turn has not in common with the last one, and two boundaries between states.
// Counts, not times: a tiny model with random weights, whose context is made long, does.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { agentLoop } from "../../tests/http/agent_loop.mjs";
import { post, startServer } from "../../tests/http/server.mjs";

const turns = 20,
  chain = 6000, // tokens before the first turn
  added = 300, // tokens of a tool's result
  boundary = 16,
  context = 32768;

const folder = mkdtempSync(join(tmpdir(), "inferd-agent-loop-"));
let server;
try {
  cpSync("tests/golden/arch/qwen35/hf", folder, { recursive: true });
  const file = join(folder, "config.json");
  const config = JSON.parse(readFileSync(file, "utf8"));
  (config.text_config ?? config).max_position_embeddings = context;
  writeFileSync(file, JSON.stringify(config));
  const flags = ["--kv-cache-tokens", String(context), "--context-length", String(context), "--max-sequences", "4"];
  flags.push("--block-tokens", String(boundary));
  server = await startServer(flags, [{ name: "hybrid", file: folder }]);
  // The same six words as the loop's, to size its messages.
  const content = Array(100).fill("the cat sat on a mat").join(" ");
  const response = await post(server, "/tokenize", { model: "hybrid", content });
  const perWord = (await response.json()).tokens.length / 600;
  const words = { system: Math.round(chain / perWord), result: Math.round(added / perWord) };
  console.log("| turn | prompt | cached | recomputed | bound |\n|---|---|---|---|---|");
  let over = 0;
  for await (const { turn, prompt, cached, common } of agentLoop(server, "hybrid", { turns, words })) {
    const computed = prompt - cached,
      bound = prompt - common + 2 * boundary;
    if (computed > bound) over++;
    console.log(`| ${turn} | ${prompt} | ${cached} | ${computed} | ${bound} |`);
  }
  console.log(over ? `${over} turns are above the bound` : "no turn is above the bound");
  process.exitCode = over ? 1 : 0;
} finally {
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
}
