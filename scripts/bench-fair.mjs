// What does a key get while another one floods? One key has OWN clients that stream answers one after another; the other
// key has as many, or FLOOD of them. Prints the first key's share of all tokens, and its time to the first token.
// usage: node scripts/bench-fair.mjs [FLAG of `inferd serve`]...; MODEL=file, OWN, FLOOD, PHASES and SECONDS by environment
import { addKey, modelFile, modelName, random, randomPrompt, sleep, startServer } from "../tests/http/server.mjs";
import { digits, median, percentile } from "./measure/numbers.mjs";
import { stream } from "./measure/streams.mjs";

const number = (name, initial) => Number(process.env[name] ?? initial);
const [own, flood, phases, seconds] = [
  number("OWN", 4),
  number("FLOOD", 64),
  number("PHASES", 6),
  number("SECONDS", 5),
];
const flags = ["--kv-cache-tokens", "16384", "--max-sequences", "8", "--context-length", "1024"];
const file = process.env.MODEL ?? modelFile;
const server = {
  ...(await startServer([...flags, ...process.argv.slice(2)], [{ file, name: modelName }])),
  model: modelName,
};
const keys = ["first", "second"].map((name) => ({ Authorization: `Bearer ${addKey(server, name)}` }));
await sleep(1000); // the daemon knows new keys within a second
const numbers = { equals: { tokens: [0, 0], firsts: [] }, flood: { tokens: [0, 0], firsts: [] } };
let phase = null;

async function client(k, i, signal) {
  const r = random(1000 * k + i);
  while (!signal.aborted) {
    const start = performance.now();
    let n = 0;
    const onPiece = (now) => {
      if (!phase) return;
      if (!n++ && k === 0) numbers[phase].firsts.push(now - start);
      numbers[phase].tokens[k]++;
    };
    const body = { prompt: randomPrompt(r, 40), max_tokens: 100, ignore_eos: true, seed: i };
    await stream(server, body, { onPiece, signal, headers: keys[k] });
  }
}

for (let p = 0; p < phases; p++) {
  const leave = new AbortController();
  const others = p % 2 ? flood : own;
  const clients = [
    ...Array.from({ length: others }, (_, i) => client(1, i, leave.signal)),
    ...Array.from({ length: own }, (_, i) => client(0, i, leave.signal)),
  ];
  await sleep(1000);
  phase = p % 2 ? "flood" : "equals";
  await sleep(seconds * 1000);
  phase = null;
  leave.abort();
  await Promise.all(clients);
}
for (const [name, { tokens, firsts }] of Object.entries(numbers)) {
  const share = (100 * tokens[0]) / (tokens[0] + tokens[1]);
  const times = `p50 ${digits(median(firsts))} ms, p99 ${digits(percentile(firsts, 0.99))} ms of ${firsts.length}`;
  console.log(`${name}: ${share.toFixed(1)} % of ${tokens[0] + tokens[1]} tokens; first token ${times}`);
}
const ratio = median(numbers.flood.firsts) / median(numbers.equals.firsts);
console.log(`first token in the flood: ${ratio.toFixed(2)} x that among equals`);
await server.stop();
