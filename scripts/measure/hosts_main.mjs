// Prints which split of a model over several hosts is fastest, by the formulas of hosts.mjs.
import { parseArgs } from "node:util";
import { refusal, speed, splits, winner, weightBytes } from "./hosts.mjs";
import { checks, chips, models, networks, pairs } from "./hosts_data.mjs";
import { digits, markdown } from "./numbers.mjs";

const help = `usage: scripts/simulate-hosts [OPTION...]
Estimates tokens per second of one model over several hosts with one chip each, and which split is fastest: tensor
ranks, pipeline stages, or both. Assumptions and sources: scripts/measure/HOSTS.md and hosts_data.mjs.

  --model LIST     of ${Object.keys(models).join(", ")} (default: all)
  --network LIST   of ${Object.keys(networks).join(", ")} (default: all)
  --chip NAME      of ${Object.keys(chips).join(", ")}, on every network (default: M3 Ultra on Thunderbolt, EPYC on
                   Ethernet, H200 on InfiniBand)
  --bits N         bits of a weight (default: 8.5, as Q8_0; 16 with H200)
  --hosts LIST     numbers of hosts (default: 1,2,4,8,16,32,64)
  --context N      tokens that a stream has when it decodes (default: 2048)
  --splits         the best of each kind of split instead of the fastest
  --check          compares the model with measurements, and prints its errors
  --help
`;

const works = (context) => [
  ...[1, 8, 64].map((streams) => ({ name: `decode of ${streams}`, streams, context })),
  { name: "prefill of 2,048", prompt: 2048 },
];

function fail(text) {
  console.error(`simulate-hosts: ${text}`);
  process.exit(2);
}

const options = {};
for (const name of ["model", "network", "chip", "bits", "hosts", "context"]) options[name] = { type: "string" };
for (const name of ["splits", "check", "help"]) options[name] = { type: "boolean" };

function readArguments() {
  try {
    return parseArgs({ options }).values;
  } catch (e) {
    return fail(e.message);
  }
}

const known = (what, table, name) => table[name] ?? fail(`unknown ${what} ${name}: ${Object.keys(table).join(", ")}`);
const list = (text, all) => (text === undefined ? all : text.split(","));
function number(what, text, most) {
  const n = Number(text);
  return n > 0 && n <= most ? n : fail(`--${what} ${text}: a number up to ${most}`);
}
function count(what, text, most) {
  const n = number(what, text, most);
  return Number.isInteger(n) ? n : fail(`--${what} ${text}: a whole number`);
}

function printChecks() {
  const error = (got, want) => `${got >= want ? "+" : ""}${((100 * got) / want - 100).toFixed(1)} %`;
  const rows = checks.map((c) => {
    const one = speed(c.model, c.one.chip, c.net, c.work, { ranks: 1, stages: 1 });
    const two = speed(c.model, c.two.chip, c.net, c.work, { ranks: 2, stages: 1 });
    const cells = [c.one.speed, one, error(one, c.one.speed), c.two.speed, two, error(two, c.two.speed)];
    return [
      c.name,
      ...cells.map((x) => (typeof x === "number" ? digits(x) : x)),
      `${(c.two.speed / c.one.speed).toFixed(2)} / ${(two / one).toFixed(2)}`,
    ];
  });
  const head = ["work", "one", "model", "error", "two ranks", "model", "error", "gain, measured / model"];
  console.log(markdown(head, rows));
}

const nameOf = ({ ranks, stages }) =>
  ranks > 1 && stages > 1 ? `${ranks}R x ${stages}S` : stages > 1 ? `${stages}S` : `${ranks}R`;
const cell = (entry) => (entry ? `${nameOf(entry.split)} ${entry.speed.toFixed(entry.speed < 100 ? 1 : 0)}` : "-");

// Of one model on one kind of hosts.
function printTable(model, chip, net, { hosts, context, all }) {
  console.log(
    `\n${model.name}, ${model.bits} bits a weight (${(weightBytes(model) / 1e9).toFixed(0)} GB), on ${chip.name}, ${net.name}\n`,
  );
  const rows = [];
  for (const work of works(context)) {
    const kinds = hosts.map((n) => splits(model, chip, net, work, n));
    if (!all) rows.push([work.name, ...kinds.map((k) => cell(winner(k)))]);
    else
      for (const kind of ["ranks", "stages", "both"])
        rows.push([`${work.name}, ${kind}`, ...kinds.map((k) => cell(k[kind]))]);
  }
  console.log(markdown(["tokens/s on hosts", ...hosts.map(String)], rows));
  const none = refusal(model, chip, net, works(context)[0], { ranks: 1, stages: 1 });
  if (none) console.log(`\nOne host: ${none}.`);
}

const args = readArguments();
if (args.help) {
  process.stdout.write(help);
} else if (args.check) {
  printChecks();
} else {
  const hosts = list(args.hosts, ["1", "2", "4", "8", "16", "32", "64"]).map((n) => count("hosts", n, 1024));
  const context = count("context", args.context ?? "2048", 1e6);
  const nets = list(args.network, Object.keys(networks));
  for (const id of nets) {
    const net = known("network", networks, id);
    const pair = pairs.find((p) => p.network === id);
    const chip = known("chip", chips, args.chip ?? pair.chip);
    const bits = args.bits === undefined ? (chip === chips.h200 ? 16 : 8.5) : number("bits", args.bits, 32);
    for (const name of list(args.model, Object.keys(models))) {
      const model = { ...known("model", models, name), bits };
      printTable(model, chip, net, { hosts, context, all: args.splits });
    }
  }
}
