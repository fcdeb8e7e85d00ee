// Perplexity of the demo model in every type, by the definition of llama-perplexity, so that both can
// be compared on the same file and text: windows of 512 tokens that do not overlap, the first one
// replaced by BOS, the second half of each predicted.
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { spawnSync } from "node:child_process";
import { capture } from "./processes.mjs";

const WINDOW = 512,
  BOS = 1;
const demo = resolve("registry/demo/inferd-demo-q8_0.gguf"),
  text = resolve("tests/golden/demo/heldout.txt");
const types = [
  "Q8_0",
  "F32",
  "F16",
  "BF16",
  "Q4_0",
  "Q4_1",
  "Q5_0",
  "Q5_1",
  "Q2_K",
  "Q3_K_M",
  "Q4_K_M",
  "Q5_K_M",
  "Q6_K",
  "IQ4_NL",
  "IQ4_XS",
  "MXFP4",
];

async function fileOf(bench, type) {
  if (type === "Q8_0") return demo;
  const file = join(bench.folder, `demo-of-q8_0-${type.toLowerCase()}.gguf`);
  mkdirSync(bench.folder, { recursive: true });
  if (!existsSync(file))
    await capture(bench.engines[0].binary, ["quantize", demo, file, "--type", type, "--allow-requantize"]);
  return file;
}

function tokens(binary) {
  const input = JSON.stringify({ text: readFileSync(text, "utf8") });
  const { status, stdout, stderr } = spawnSync(binary, ["tokenize", "--model", demo, "--jsonl"], {
    input: `${input}\n`,
    encoding: "utf8",
    maxBuffer: 1 << 26,
  });
  if (status) throw new Error(stderr);
  return [BOS, ...JSON.parse(stdout).ids];
}

async function ours(engine, file, ids) {
  const server = await engine.serve(file, { streams: 1, context: WINDOW });
  let nll = 0,
    n = 0;
  for (let at = 0; at + WINDOW <= ids.length; at += WINDOW) {
    const response = await fetch(`${server.url}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        model: server.model,
        prompt: [BOS, ...ids.slice(at + 1, at + WINDOW)],
        max_tokens: 0,
        echo: true,
        logprobs: 0,
      }),
    });
    if (!response.ok) throw new Error(await response.text());
    for (const p of (await response.json()).choices[0].logprobs.token_logprobs.slice(WINDOW / 2 + 1)) ((nll -= p), n++);
  }
  await server.stop();
  return Math.exp(nll / n);
}

async function theirs(engine, file) {
  const { stdout, stderr } = await engine.run("llama-perplexity", ["-m", file, "-f", text, "-c", WINDOW]);
  return Number(/PPL = ([0-9.]+)/.exec(stdout + stderr)?.[1]);
}

export async function* perplexity(bench) {
  const peers = bench.engines.slice(1).filter((e) => e.canMeasurePerplexity),
    ids = tokens(bench.engines[0].binary);
  for (const type of types) {
    bench.progress(`perplexity ${type}`);
    const file = await fileOf(bench, type),
      mine = await ours(bench.engines[0], file, ids);
    const samples = new Map([["inferd", [mine]]]);
    for (const e of peers) samples.set(e.name, [await theirs(e, file)]);
    const apart = peers.map((e) => `${(100 * (mine / samples.get(e.name)[0] - 1)).toFixed(3)} % from ${e.name}`);
    yield { work: `perplexity of the demo model, ${type}`, unit: "", samples, lower: true, bound: apart.join(", ") };
  }
}
