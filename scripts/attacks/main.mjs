// Hostile clients against a daemon started for them: the program of `scripts/attack`. Progress goes to stderr,
// the table to stdout.
import { existsSync } from "node:fs";

const help = `usage: scripts/attack [options]
Starts inferd on 127.0.0.1, attacks it with one scenario after the other, each against a daemon of
its own beside normal streaming clients, and prints a table: the normal streams' gaps between tokens
before and during the attack, /livez, memory, and what is wrong. Exits 1 when something is. Times are
figures and fail nothing.

  --only NAME[,NAME...]  these scenarios
  --short                those that the tests run
  --seconds N            of each attack (default: the scenario's own, mostly 5)
  --inferd FILE          the daemon (default build/inferd); build-asan/inferd for a sanitizer's
  --model FILE           the model (default: the demo model)
  --json                 results as JSON
  --soak MINUTES         no table: mixed load with hostile clients on one daemon; memory every 30 s,
                         and at the end whether it is flat
  --list                 the scenarios
  --help                 print this
`;

function die(text) {
  console.error(`attack: ${text}`);
  process.exit(2);
}

function parse(argv) {
  const o = {
    only: "",
    short: false,
    seconds: 0,
    inferd: "build/inferd",
    model: "",
    json: false,
    soak: 0,
    list: false,
  };
  for (let i = 0; i < argv.length; i++) {
    const name = argv[i].replace(/^--/, "");
    if (name === "help") {
      process.stdout.write(help);
      process.exit(0);
    }
    if (!argv[i].startsWith("--") || !(name in o)) die(`unknown option ${argv[i]} (see --help)`);
    if (typeof o[name] === "boolean") o[name] = true;
    else if (++i === argv.length) die(`--${name} wants a value`);
    else o[name] = typeof o[name] === "number" ? Number(argv[i]) : argv[i];
  }
  for (const name of ["seconds", "soak"])
    if (!(o[name] >= 0 && o[name] <= 1440)) die(`--${name} is not a number from 0 to 1440`);
  for (const file of [o.inferd, o.model]) if (file && !existsSync(file)) die(`${file} is not there`);
  return o;
}

const ms = (x) => (Number.isFinite(x) ? (x < 10 ? x.toFixed(1) : x.toFixed(0)) : "-");
const gaps = (g) => `${ms(g.p50)} / ${ms(g.p99)} / ${ms(g.max)}`;

// The first few; --json prints all.
function verdict(problems) {
  const shown = problems.slice(0, 3).join("; ").replaceAll("|", "\\|");
  return problems.length > 3 ? `${shown}; and ${problems.length - 3} more` : shown || "ok";
}

function row(r) {
  const f = r.figures;
  if (!f) return [r.name, "-", "-", "-", "-", "-", "-", "-", verdict(r.problems)];
  const memory = f.rssBefore ? `${f.rssBefore.toFixed(0)} / ${f.rssPeak.toFixed(0)}` : "-";
  return [
    r.name,
    gaps(f.calm),
    gaps(f.attack),
    `${f.visits ?? 0}, ${f.retries ?? 0}, ${ms(f.visitMs)}`,
    ms(f.livezMs),
    memory,
    r.idle ? "no" : "yes",
    r.alive ? "yes" : "NO",
    verdict(r.problems),
  ];
}

const head = [
  "attack",
  "gap before: p50 / p99 / max ms",
  "gap during",
  "visits answered, tried again, longest ms",
  "/livez max ms",
  "memory before / most MB",
  "blocks back",
  "alive",
  "verdict",
];

const options = parse(process.argv.slice(2));
process.env.INFERD = options.inferd;
if (/(^|\/)build-(asan|tsan)\//.test(options.inferd)) process.env.PATIENCE ??= "20";
if (options.soak) process.env.SERVER_SECONDS = `${options.soak * 60 + 900}`;
const { scenarios } = await import("./scenarios.mjs");
const { runScenario } = await import("./run.mjs");
const { markdown } = await import("../measure/numbers.mjs");

if (options.list) {
  for (const s of scenarios) console.log(`${s.name.padEnd(20)}${s.short ? "short " : "      "} ${s.about}`);
  process.exit(0);
}
if (options.soak) {
  const { soak } = await import("./soak.mjs");
  process.exit((await soak(options)) ? 0 : 1);
}
const names = options.only ? options.only.split(",") : null;
for (const name of names ?? []) if (!scenarios.some((s) => s.name === name)) die(`no scenario ${name} (see --list)`);
const results = [];
for (const s of scenarios.filter((x) => (names ? names.includes(x.name) : !options.short || x.short))) {
  console.error(`attack: ${s.name}: ${s.about}`);
  const failed = (e) => ({
    name: s.name,
    alive: true,
    problems: [`the scenario itself failed: ${e.stack}`],
    notes: [],
  });
  const r = await runScenario(s, { model: options.model || undefined, seconds: options.seconds || undefined }).catch(
    failed,
  );
  results.push(r);
  console.error(`attack:   ${verdict(r.problems)}${r.notes.length ? ` (${r.notes.join(", ")})` : ""}`);
}
console.log(options.json ? JSON.stringify(results, null, 2) : markdown(head, results.map(row)));
process.exit(results.some((r) => r.problems.length) ? 1 : 0);
