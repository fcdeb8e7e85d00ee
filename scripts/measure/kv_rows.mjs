// Rows of the table about K/V that lasts: restarts, evictions and swaps of models between two turns of a long chat,
// and what storing costs streams that decode.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { metrics, post, random } from "../../tests/http/server.mjs";
import { greedy, inTurns, percent, pick, prompt, sleep } from "./rows.mjs";
import { digits, median, percentile } from "./numbers.mjs";
import { Crowd, stream } from "./streams.mjs";

const CHAT = Number(process.env.KV_TOKENS ?? 8000), // tokens of the first turn
  TURN = 64, // new tokens of the second one
  ANSWER = 16,
  CONTEXT = CHAT + 400;

async function withFolder(use) {
  const folder = mkdtempSync(join(process.env.KV_BENCH ?? tmpdir(), "inferd-bench-kv-"));
  try {
    return await use(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

// Milliseconds to the first token, and the text.
async function ask(server, tokens, more = {}) {
  const start = performance.now();
  let ms = NaN,
    text = "";
  const onPiece = (now, piece) => {
    if (!text) ms = now - start;
    text += piece;
  };
  await stream(server, { prompt: tokens, max_tokens: ANSWER, ...greedy, ...more }, { onPiece });
  return { ms, text };
}

async function timed(work) {
  const start = performance.now();
  const result = await work();
  return { ms: performance.now() - start, result };
}

const warm = (server) => ask(server, prompt(random(99), 32));

// A chat that goes on after a restart, and after another chat took its place in a cache for one.
function chats(round) {
  const rng = random(400 + round),
    first = prompt(rng, CHAT);
  return { first, second: [...first, ...prompt(rng, TURN)], other: prompt(rng, CHAT) };
}

async function turnsOfInferd(engine, file, round) {
  return withFolder(async (folder) => {
    const { first, second, other } = chats(round);
    const flags = ["--kv-dir", join(folder, "kv"), "--kv-memory-bytes", "4G", "--kv-dir-bytes", "8G"];
    flags.push("--context-length", `${CONTEXT}`, "--kv-cache-tokens", `${CONTEXT + 256}`, "--model", "chat");
    let server = await engine.serveRegistered(file, folder, ["chat"], flags);
    await warm(server);
    const computed = await ask(server, first);
    const stop = await timed(() => server.stop());
    server = await engine.serveRegistered(file, folder, ["chat"], flags);
    const restarted = await ask(server, second);
    await ask(server, other);
    const evicted = await ask(server, second);
    const again = await ask(server, second, { cache_salt: "computed" }); // finds nothing that is stored
    await server.stop();
    const same = restarted.text === again.text && evicted.text === again.text;
    return { computed: again.ms, first: computed.ms, restart: restarted.ms, evict: evicted.ms, save: stop.ms, same };
  });
}

async function turnsOfPeer(engine, file, round) {
  return withFolder(async (folder) => {
    const { first, second, other } = chats(round);
    const shape = { streams: 1, context: CONTEXT, more: ["--slot-save-path", `${folder}/`] };
    const slot = async (action) => {
      const response = await post(server, `/slots/0?action=${action}`, { filename: "chat" });
      if (!response.ok) throw new Error(await response.text());
      return response.json();
    };
    let server = await engine.serve(file, shape);
    await warm(server);
    const computed = await ask(server, first);
    const save = await timed(() => slot("save"));
    await server.stop();
    server = await engine.serve(file, shape);
    const restored = await timed(() => slot("restore"));
    const restarted = await ask(server, second);
    await ask(server, other);
    const evicted = await ask(server, second);
    await server.stop();
    const same = restarted.text === evicted.text;
    return {
      computed: computed.ms,
      first: computed.ms,
      restart: restored.ms + restarted.ms,
      evict: evicted.ms,
      save: save.ms,
      same,
    };
  });
}

const share = (list, part) => percent(median(list.map((s) => s[part] / s.computed)), 1);

async function* restart(bench) {
  const { type, file } = bench.models[0],
    engines = bench.engines.filter((e) => e.canServe);
  const samples = await inTurns(bench, engines, bench.rounds, `a chat of ${CHAT} tokens`, (engine, round) =>
    (engine.name === "inferd" ? turnsOfInferd : turnsOfPeer)(engine, file, round),
  );
  const about = (part, wanted) =>
    [...samples].map(([name, list]) => `${name} ${share(list, part)} of computing`).join(", ") + wanted;
  const same = samples.get("inferd").every((s) => s.same) ? "same text as computed" : "ANOTHER TEXT";
  const row = (what, field, bound) => ({
    work: `a chat of ${CHAT} tokens, ${type}: ${what}`,
    unit: "ms",
    samples: pick(samples, field),
    lower: true,
    bound,
  });
  yield row("first token, computed", "first", "");
  yield row("stored (inferd: stop; peer: slot save)", "save", "");
  yield row(
    "second turn after a restart (peer: slot restore)",
    "restart",
    `${about("restart", " (wanted 5 %)")}; ${same}`,
  );
  yield row("second turn after another chat, cache for one", "evict", about("evict", ""));
}

// Another model's turn, in memory for one.
async function* swap(bench) {
  const { type, file } = bench.models[0],
    [engine] = bench.engines;
  const samples = await inTurns(bench, [engine], bench.rounds, "swap", (_, round) =>
    withFolder(async (folder) => {
      const { first, second } = chats(round);
      const names = ["a", "b"],
        common = ["--load-on-demand", "on", "--context-length", `${CONTEXT}`, "--kv-cache-tokens", `${CONTEXT + 256}`];
      let server = await engine.serveRegistered(file, folder, names, common);
      const short = (model) => ask(server, prompt(random(98), 32), { model });
      await short("a");
      const one = (await metrics(server)).get('inferd_model_bytes{model="a"}');
      await server.stop();
      const flags = [...common, "--memory-budget", `${Math.floor(1.5 * one)}`, "--kv-memory-bytes", "4G"];
      server = await engine.serveRegistered(file, folder, names, flags);
      await ask(server, first, { model: "a" });
      await short("b");
      const back = await ask(server, second, { model: "a" });
      await short("b");
      const computed = await ask(server, second, { model: "a", cache_salt: "computed" });
      await server.stop();
      return { back: back.ms, computed: computed.ms, same: back.text === computed.text };
    }),
  );
  const ours = samples.get("inferd");
  yield {
    work: `A with ${CHAT} tokens, B, A in memory for one, ${type}: A's first token`,
    unit: "ms",
    samples: pick(samples, "back"),
    lower: true,
    bound: `${percent(median(ours.map((s) => s.back / s.computed)))} of load and compute, ${digits(median(ours.map((s) => s.computed)))} ms (wanted 10 %); ${ours.every((s) => s.same) ? "same text" : "ANOTHER TEXT"}`,
  };
}

// 8 streams decode while one prompt after another is computed and evicts an older one.
async function gapsOf(engine, file, flags) {
  return withFolder(async (folder) => {
    const store = flags ? ["--kv-dir", join(folder, "kv"), ...flags] : [];
    const shape = ["--context-length", "2048", "--kv-cache-tokens", "12288", "--max-sequences", "12"];
    const server = await engine.serveRegistered(file, folder, ["chat"], ["--model", "chat", ...shape, ...store]);
    const crowd = new Crowd(),
      rng = random(3);
    for (let i = 0; i < 8; i++)
      crowd.add(server, { prompt: prompt(random(10 + i), 20), max_tokens: 1500, seed: i, ...greedy });
    for (let i = 0; i < 10; i++) await ask(server, prompt(rng, 800)); // fill the cache
    const before = await metrics(server);
    crowd.phase = "evicting";
    const took = await timed(async () => {
      for (let i = 0; i < 12; i++) await ask(server, prompt(rng, 800));
    });
    crowd.phase = "over";
    const after = await metrics(server);
    await crowd.stop();
    await server.stop();
    const name = "inferd_kv_store_written_bytes_total";
    const written = (after.get(name) ?? 0) - (before.get(name) ?? 0);
    const gaps = crowd.gaps.evicting;
    return { p50: percentile(gaps, 0.5), p99: percentile(gaps, 0.99), mbPerS: written / took.ms / 1e3 };
  });
}

async function* writes(bench) {
  const { type, file } = bench.models[0],
    [engine] = bench.engines;
  const without = [],
    samples = await inTurns(bench, [engine], bench.rounds, "gaps", async () => {
      without.push(await gapsOf(engine, file, null));
      await sleep(500);
      return gapsOf(engine, file, ["--kv-keep", "all", "--kv-dir-bytes", "16G"]);
    });
  const ours = samples.get("inferd"),
    ratio = median(ours.map((s, i) => s.p99 / without[i].p99));
  yield {
    work: `8 streams decode while prompts of 800 tokens are evicted into kv-dir, ${type}: gap p99`,
    unit: "ms",
    samples: pick(samples, "p99"),
    lower: true,
    bound: `${ratio.toFixed(2)} x that without kv-dir, ${digits(median(without.map((s) => s.p99)))} ms (wanted at most 1.1), at ${digits(median(ours.map((s) => s.mbPerS)))} MB/s written; p50 ${digits(median(ours.map((s) => s.p50)))} and ${digits(median(without.map((s) => s.p50)))} ms`,
  };
}

export const kvRows = { "kv-restart": restart, "kv-swap": swap, "kv-writes": writes };
