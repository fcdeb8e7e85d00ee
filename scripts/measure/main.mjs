// The table of figures: what `scripts/bench-cpu` runs. Progress goes to stderr, Markdown to stdout.
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { inferd, peer } from "./engines.mjs";
import { facts } from "./machine.mjs";
import { digits, markdown, median } from "./numbers.mjs";
import { capture } from "./processes.mjs";
import { kvRows } from "./kv_rows.mjs";
import { rows as usual } from "./rows.mjs";

const rows = { ...usual, ...kvRows };

const help = `usage: scripts/bench-cpu [options]
Measures the CPU backend on a model with random weights, of TinyLlama's shape or another, beside other engines
where they are given, and prints a Markdown table: medians of samples taken in turns.

  --peers P[,P...]    folders with llama-bench, llama-batched-bench, llama-server (DIR or NAME=DIR;
                      DIR/bin and DIR/build/bin are tried too); a row leaves out what is not there
  --models DIR        where the models are; missing ones are made (default build/bench-models, 5 GB)
  --shape NAME        of the model, as scripts/random-model names it (default TinyLlama's)
  --layers N          of that shape: fewer than the model has make it fit
  --types T[,T...]    of the weights (default Q4_0,Q4_K_M,Q8_0); rows of one type use the first
  --only ROW[,ROW...] some of: ${Object.keys(usual).join(", ")} (default: these),
                      ${Object.keys(kvRows).join(", ")}
  --rounds N          samples of each figure (default 5; 3 with --quick)
  --quick             3 rounds; many streams with the first type only, 32 of them once
  --threads N         that compute (default 2)
  --binary FILE       inferd (default build/inferd)
  --raw FILE          all samples as JSON
  --help              print this

With two peers on two cores a full run takes about an hour and a half, one with --quick about twenty
minutes; most goes into the prompts of 8 and 32 streams. --only splits it.
Use an otherwise idle machine: samples are taken in turns, but a load that comes and goes moves all.
`;

function die(text) {
  console.error(`bench-cpu: ${text}`);
  process.exit(2);
}

function parse(argv) {
  const o = {
    peers: "",
    models: "build/bench-models",
    shape: "",
    layers: 0,
    types: "Q4_0,Q4_K_M,Q8_0",
    only: Object.keys(usual).join(","),
    rounds: 0,
    quick: false,
    threads: 2,
    binary: "build/inferd",
    raw: "",
  };
  for (let i = 0; i < argv.length; i++) {
    const name = argv[i].replace(/^--/, "");
    if (name === "help") {
      process.stdout.write(help);
      process.exit(0);
    }
    if (!argv[i].startsWith("--") || !(name in o)) die(`unknown option ${argv[i]} (see --help)`);
    if (name === "quick") o.quick = true;
    else if (++i === argv.length) die(`--${name} wants a value`);
    else o[name] = typeof o[name] === "number" ? Number(argv[i]) : argv[i];
  }
  o.models = resolve(o.models);
  o.rounds ||= o.quick ? 3 : 5;
  for (const name of ["rounds", "threads"])
    if (!(Number.isInteger(o[name]) && o[name] > 0)) die(`--${name} is not a positive whole number`);
  if (!(Number.isInteger(o.layers) && o.layers >= 0)) die("--layers is not a positive whole number");
  for (const name of o.only.split(","))
    if (!(name in rows)) die(`no row ${name} (there are ${Object.keys(rows).join(", ")})`);
  return o;
}

const progress = (text) => console.error(`bench-cpu: ${text}`);

async function modelFiles(o) {
  const scripts = dirname(dirname(fileURLToPath(import.meta.url))),
    name = `${o.shape || "tiny"}${o.layers ? `-${o.layers}` : ""}`,
    whole = join(o.models, `${name}-f16.gguf`);
  const flags = [...(o.shape ? ["--shape", o.shape] : []), ...(o.layers ? ["--layers", `${o.layers}`] : [])];
  const wanted = o.types
    .split(",")
    .map((type) => ({ type, file: join(o.models, `${name}-${type.toLowerCase()}.gguf`) }));
  const missing = wanted.filter((m) => !existsSync(m.file));
  mkdirSync(o.models, { recursive: true });
  if (missing.length && !existsSync(whole)) {
    progress(`making ${whole}`);
    await capture(join(scripts, "random-model"), [...flags, "--out", whole]);
  }
  for (const m of missing) {
    progress(`making ${m.file}`);
    await capture(o.binary, ["quantize", whole, m.file, "--type", m.type]);
  }
  return wanted;
}

function tableRow(row, engines) {
  const at = (name) => median(row.samples.get(name) ?? []);
  const others = engines
    .slice(1)
    .map((e) => at(e.name))
    .filter(Number.isFinite);
  const best = others.length ? (row.lower ? Math.min(...others) : Math.max(...others)) : NaN;
  const ratio = row.lower ? best / at("inferd") : at("inferd") / best;
  const wanted = row.wanted ? ` (wanted ${row.wanted})` : "";
  const n = Math.min(...[...row.samples.values()].map((s) => s.length));
  return [
    row.unit ? `${row.work}, ${row.unit}` : row.work,
    ...engines.map((e) => digits(at(e.name))),
    Number.isFinite(ratio) ? `${ratio.toFixed(2)}${wanted}` : "-",
    row.bound || "-",
    n,
  ];
}

const o = parse(process.argv.slice(2));
if (!existsSync(o.binary)) die(`no ${o.binary}: run make first`);
let engines;
try {
  engines = [
    inferd(o.binary, o.threads),
    ...o.peers
      .split(",")
      .filter(Boolean)
      .map((text) => peer(text, o.threads)),
  ];
} catch (e) {
  die(e.message);
}
if (new Set(engines.map((e) => e.name)).size < engines.length) die("peers want different names: NAME=DIR");
const about = [
  ...facts(),
  `Threads: ${o.threads}; medians of the samples in column n; ratio: inferd's to the best peer's, above 1 is faster`,
];
const bench = { engines, models: await modelFiles(o), folder: o.models, rounds: o.rounds, quick: o.quick, progress };
const done = [],
  failed = [];
for (const name of o.only.split(","))
  try {
    for await (const row of rows[name](bench)) done.push(row);
  } catch (e) {
    progress(`${name}: ${e.message}`);
    failed.push(name);
  }
console.log(about.map((line) => `- ${line}`).join("\n"));
console.log(
  `\n${markdown(
    ["work", ...engines.map((e) => e.name), "ratio", "bound", "n"],
    done.map((row) => tableRow(row, engines)),
  )}`,
);
if (o.raw)
  writeFileSync(
    o.raw,
    JSON.stringify(
      done.map((row) => ({ ...row, samples: Object.fromEntries(row.samples) })),
      null,
      1,
    ),
  );
if (failed.length) console.log(`\nNot measured (see above): ${failed.join(", ")}`);
process.exit(failed.length ? 1 : 0);
