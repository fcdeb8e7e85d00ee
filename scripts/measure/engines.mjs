// The measured programs behind one interface: inferd, and peers of the llama.cpp family.
//
// Each figure is one sample of a fresh process; what is measured runs warm in it.
import { copyFileSync, existsSync, linkSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { capture, freePort, startServer } from "./processes.mjs";
import { median } from "./numbers.mjs";

// Room beside prompt and answer in each sequence of a peer's cache: peers round it up themselves.
const SPARE_TOKENS = 192;

// Peers leave log files where they run.
const scratch = mkdtempSync(join(tmpdir(), "inferd-bench-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));

function linkOrCopy(from, to) {
  try {
    linkSync(from, to);
  } catch {
    copyFileSync(from, to); // another file system
  }
}

class Inferd {
  constructor(binary, threads) {
    this.name = "inferd";
    this.binary = binary;
    this.threads = threads;
    this.canServe = this.canBatch = true;
  }

  async bench(file, flags) {
    const args = ["bench", "--json", "--log-level", "error", "--threads", `${this.threads}`, "--model", file];
    return JSON.parse((await capture(this.binary, [...args, ...flags.map(String)])).stdout);
  }

  // The second of two repetitions: the first one touches the weights.
  async decode(file, n) {
    const r = await this.bench(file, ["--prompt-tokens", 1, "--gen-tokens", n, "--repeat", 2]);
    const rate = r.decode_tokens_per_s_each.at(-1);
    return { rate, readGB: (r.weight_bytes_per_step * rate) / 1e9, bandwidthGB: r.read_bandwidth_gb_per_s };
  }

  async prefill(file, n) {
    const r = await this.bench(file, ["--prompt-tokens", n, "--gen-tokens", 1, "--repeat", 2]);
    const rate = r.prefill_tokens_per_s_each.at(-1);
    return { rate, gops: (r.prefill_gop_per_s / r.prefill_tokens_per_s) * rate, peak: r.int8_peak_gop_per_s ?? NaN };
  }

  async batch(file, { streams, context, answer }) {
    const r = await this.bench(file, [
      "--batch",
      streams,
      "--context-fill",
      context,
      "--prompt-tokens",
      1,
      "--gen-tokens",
      answer,
      "--repeat",
      1,
    ]);
    return { rate: r.decode_tokens_per_s };
  }

  async kvBytesPerToken(file) {
    const r = await this.bench(file, ["--prompt-tokens", 1, "--gen-tokens", 2, "--repeat", 1]);
    return r.kv_bytes_per_decode_step / 2; // in the middle of the answer
  }

  async serve(file, { streams, context }) {
    const port = await freePort(),
      kvTokens = streams * (context + SPARE_TOKENS);
    const server = await startServer(
      this.binary,
      [
        "serve",
        "--model",
        file,
        "--host",
        "127.0.0.1",
        "--port",
        `${port}`,
        "--threads",
        `${this.threads}`,
        "--log-level",
        "error",
        "--kv-cache-tokens",
        `${kvTokens}`,
        "--max-sequences",
        `${streams}`,
      ],
      port,
    );
    const models = await (await fetch(`${server.url}/v1/models`)).json();
    return Object.assign(server, { model: models.data[0].id, kvTokens });
  }

  // names: under which the file is registered, in a registry of the folder. The first is served, or with
  // --load-on-demand whichever is asked for.
  async serveRegistered(file, folder, names, flags) {
    const port = await freePort(),
      registry = ["--registry", join(folder, "registry.db")];
    if (!existsSync(registry[1]))
      for (const name of names) {
        const copy = join(folder, `${name}.gguf`);
        linkOrCopy(resolve(file), copy);
        await capture(this.binary, ["models", "add", copy, "--name", name, ...registry]);
      }
    const fixed = ["serve", ...registry, "--host", "127.0.0.1", "--port", `${port}`, "--threads", `${this.threads}`];
    const args = [...fixed, "--log-level", "error", ...flags];
    return Object.assign(await startServer(this.binary, args, port), { model: names[0] });
  }
}

class Peer {
  constructor(name, folder, threads) {
    this.name = name;
    this.folder = folder;
    this.threads = threads;
    this.canServe = existsSync(join(folder, "llama-server"));
    this.canBatch = existsSync(join(folder, "llama-batched-bench"));
    this.canMeasurePerplexity = existsSync(join(folder, "llama-perplexity"));
    this.helps = new Map();
  }

  // Forks differ in what they can do and how it is asked for: their help says it.
  async helpLine(tool, option) {
    if (!this.helps.has(tool)) {
      const { stdout, stderr } = await capture(join(this.folder, tool), ["--help"], {
        seconds: 30,
        anyStatus: true,
        cwd: scratch,
      });
      this.helps.set(tool, stdout + stderr);
    }
    return new RegExp(`^.*${option}\\b.*$`, "m").exec(this.helps.get(tool))?.[0];
  }

  async flashAttention(tool) {
    const line = await this.helpLine(tool, "--flash-attn");
    if (!line) return [];
    return /\bon\b/.test(line) ? ["-fa", "on"] : /<0\|1>/.test(line) ? ["-fa", "1"] : ["-fa"];
  }

  async run(tool, flags) {
    const args = [...flags.map(String), "-t", `${this.threads}`, ...(await this.flashAttention(tool))];
    return capture(join(this.folder, tool), args, { seconds: 900, cwd: scratch });
  }

  // llama-bench runs a warm-up of its own before the sample.
  async sample(file, prompt, answer) {
    const { stdout } = await this.run("llama-bench", ["-m", file, "-p", prompt, "-n", answer, "-r", 1, "-o", "json"]);
    const tests = JSON.parse(stdout.slice(stdout.search(/^\[/m), stdout.lastIndexOf("]") + 1));
    return { rate: median(tests.find((t) => t.n_prompt === prompt && t.n_gen === answer).samples_ts) };
  }

  decode(file, n) {
    return this.sample(file, 0, n);
  }

  prefill(file, n) {
    return this.sample(file, n, 0);
  }

  // With a cache for each stream (what --kv-unified would change) -pps computes one prompt and copies
  // its keys and values: the measured part is the same, only sooner reached. With one cache for all it
  // would share them, and be another measurement.
  async batch(file, { streams, context, answer }) {
    const tool = "llama-batched-bench",
      tokens = streams * (context + answer + SPARE_TOKENS);
    const copied = (await this.helpLine(tool, "--no-kv-unified")) ? ["-pps"] : [];
    const { stdout, stderr } = await this.run(tool, [
      "-m",
      file,
      "-c",
      tokens,
      "-npp",
      context,
      "-ntg",
      answer,
      "-npl",
      streams,
      ...copied,
    ]);
    const rows = (stdout + stderr)
      .split("\n")
      .filter((l) => /^\|/.test(l))
      .map((l) => l.split("|").map((cell) => cell.trim()));
    const column = rows.find((r) => r.includes("S_TG t/s"))?.indexOf("S_TG t/s");
    const rate = Number(rows.at(-1)?.[column]);
    if (!(rate > 0))
      throw new Error(`llama-batched-bench of ${this.name} printed no table:\n${(stdout + stderr).slice(-1500)}`);
    return { rate };
  }

  async serve(file, { streams, context, more = [] }) {
    const port = await freePort();
    const args = [
      "-m",
      file,
      "--host",
      "127.0.0.1",
      "--port",
      `${port}`,
      "-np",
      `${streams}`,
      "-c",
      `${streams * (context + SPARE_TOKENS)}`,
    ];
    args.push("-t", `${this.threads}`, ...(await this.flashAttention("llama-server")), ...more);
    return Object.assign(await startServer(join(this.folder, "llama-server"), args, port, scratch), {
      model: "default",
    });
  }
}

export const inferd = (binary, threads) => new Inferd(binary, threads);

// "DIR" or "NAME=DIR": DIR is searched where builds put their programs.
export function peer(text, threads) {
  const [, name, folder] = /^(?:([^=/]+)=)?(.+)$/.exec(text);
  const at = [folder, join(folder, "bin"), join(folder, "build/bin"), join(folder, "b/bin")].find((d) =>
    existsSync(join(d, "llama-bench")),
  );
  if (!at) throw new Error(`${folder}: no llama-bench there, nor in its bin/ or build/bin/`);
  const path = resolve(at);
  let named = path;
  while (/^(bin|b|build|src|release)$/i.test(basename(named))) named = dirname(named);
  return new Peer(name ?? basename(named), path, threads);
}
