// The rows of the table: each takes its samples in turns, so that a machine that slows down slows
// all, and yields {work, unit, samples by engine, better, wanted, bound}.
import { random } from "../../tests/http/server.mjs";
import { statSync } from "node:fs";
import { allowedCpus, residentMemory } from "./machine.mjs";
import { digits, median, percentile } from "./numbers.mjs";
import { perplexity } from "./perplexity.mjs";
import { spinner } from "./processes.mjs";
import { Crowd, stream } from "./streams.mjs";

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Ids of ordinary pieces in any vocabulary of 4,000 and more.
export const prompt = (rng, n) => Array.from({ length: n }, () => rng.int(300, 3999));
export const greedy = { temperature: 0, ignore_eos: true };

// samples.get(name) is what measure(engine, round) returned for it, round by round.
export async function inTurns(bench, engines, rounds, what, measure) {
  const samples = new Map(engines.map((e) => [e.name, []]));
  for (let round = 0; round < rounds; round++)
    for (const engine of engines) {
      bench.progress(`${what}: ${engine.name}, ${round + 1} of ${rounds}`);
      samples.get(engine.name).push(await measure(engine, round));
    }
  return samples;
}

export const pick = (samples, field) => new Map([...samples].map(([name, list]) => [name, list.map((s) => s[field])]));
export const percent = (x, digits = 0) => `${(100 * x).toFixed(digits)} %`;

async function* decode(bench) {
  for (const { type, file } of bench.models) {
    const samples = await inTurns(bench, bench.engines, bench.rounds, `decode ${type}`, (e) => e.decode(file, 128));
    const ours = samples.get("inferd");
    const share = median(ours.map((s) => s.readGB / s.bandwidthGB));
    yield {
      work: `decode, 1 stream, 128 tokens, ${type}`,
      unit: "tok/s",
      samples: pick(samples, "rate"),
      wanted: 1,
      bound: `${percent(share)} of ${digits(median(ours.map((s) => s.bandwidthGB)))} GB/s read (wanted 93 %)`,
    };
  }
}

async function* prefill(bench) {
  for (const { type, file } of bench.models) {
    const samples = await inTurns(bench, bench.engines, bench.rounds, `prefill ${type}`, (e) => e.prefill(file, 512));
    const ours = samples.get("inferd"),
      gops = digits(median(ours.map((s) => s.gops)));
    const peak = median(ours.map((s) => s.peak));
    const share = peak
      ? `${gops} GOP/s, ${percent(median(ours.map((s) => s.gops / s.peak)))} of ${digits(peak)} GOP/s int8`
      : `${gops} GOP/s`;
    yield {
      work: `prefill, 512 tokens, ${type}`,
      unit: "tok/s",
      samples: pick(samples, "rate"),
      wanted: 1.3,
      bound: share,
    };
  }
}

async function* batch(bench) {
  const engines = bench.engines.filter((e) => e.canBatch);
  for (const { type, file } of bench.quick ? bench.models.slice(0, 1) : bench.models)
    for (const streams of [8, 32]) {
      // 16,384 prompt tokens come before 2,048 measured ones: the most expensive figure of all.
      const rounds = bench.quick && streams === 32 ? 1 : bench.rounds;
      const samples = await inTurns(bench, engines, rounds, `${streams} streams ${type}`, (e) =>
        e.batch(file, { streams, context: 512, answer: 64 }),
      );
      yield {
        work: `decode, ${streams} streams at 512 context, ${type}`,
        unit: "tok/s",
        samples: pick(samples, "rate"),
        wanted: 1.5,
        bound: "",
      };
    }
}

async function withServer(engine, file, shape, use) {
  const server = await engine.serve(file, shape);
  try {
    await stream(server, { prompt: prompt(random(99), 32), max_tokens: 4, ...greedy });
    return await use(server);
  } finally {
    await server.stop();
  }
}

const CLIENTS = 32,
  SHARED = 128,
  OWN = 128,
  ANSWER = 128;

function crowdOfClients(server, round, { shared, own, answer }) {
  const crowd = new Crowd(),
    common = prompt(random(1000 + round), shared);
  for (let i = 0; i < CLIENTS; i++)
    crowd.add(server, {
      prompt: [...common, ...prompt(random(5000 + 100 * round + i), own)],
      max_tokens: answer,
      ...greedy,
    });
  return crowd;
}

async function* daemon(bench) {
  const { type, file } = bench.models[0],
    engines = bench.engines.filter((e) => e.canServe);
  const samples = await inTurns(bench, engines, bench.quick ? 1 : bench.rounds, "32 clients", (engine, round) =>
    withServer(engine, file, { streams: CLIENTS, context: SHARED + OWN + ANSWER }, async (server) => {
      const start = performance.now(),
        crowd = crowdOfClients(server, round, { shared: SHARED, own: OWN, answer: ANSWER });
      const tokens = await crowd.finish(),
        gaps = crowd.gaps.start;
      if (tokens !== CLIENTS * ANSWER)
        throw new Error(`${engine.name} answered with ${tokens} tokens, not ${CLIENTS * ANSWER}`);
      return {
        rate: (tokens * 1000) / (performance.now() - start),
        p50: percentile(gaps, 0.5),
        p99: percentile(gaps, 0.99),
      };
    }),
  );
  const work = `daemon, 32 clients, 256-token prompts (128 shared), 128 out, ${type}`;
  yield { work: `${work}: answers`, unit: "tok/s", samples: pick(samples, "rate"), wanted: 1.7, bound: "" };
  yield { work: `${work}: gap p50`, unit: "ms", samples: pick(samples, "p50"), lower: true, bound: "" };
  yield { work: `${work}: gap p99`, unit: "ms", samples: pick(samples, "p99"), lower: true, wanted: 1, bound: "" };
}

async function* ttft(bench) {
  const { type, file } = bench.models[0],
    engines = bench.engines.filter((e) => e.canServe);
  const samples = await inTurns(bench, engines, bench.quick ? 1 : bench.rounds, "2,000-token prompt", (engine, round) =>
    withServer(engine, file, { streams: 9, context: 2100 }, async (server) => {
      const crowd = new Crowd();
      for (let i = 0; i < 8; i++)
        crowd.add(server, { prompt: prompt(random(200 + 10 * round + i), 20), max_tokens: 2000, ...greedy });
      await sleep(2000);
      crowd.phase = "quiet";
      await sleep(4000);
      crowd.phase = "prefill";
      const start = performance.now();
      let first = NaN;
      await stream(
        server,
        { prompt: prompt(random(300 + round), 2000), max_tokens: 1, ...greedy },
        { onPiece: (now) => (first = now - start) },
      );
      await crowd.stop();
      const { quiet, prefill: during = [] } = crowd.gaps;
      return { first, quiet: percentile(quiet, 0.5), p50: percentile(during, 0.5), p99: percentile(during, 0.99) };
    }),
  );
  const ours = samples.get("inferd"),
    work = `8 streams and a prompt of 2,000 tokens, ${type}`;
  const ratio = (to) => median(ours.map((s) => s.p99 / s[to])).toFixed(2);
  yield {
    work: `${work}: time to its first token`,
    unit: "ms",
    samples: pick(samples, "first"),
    lower: true,
    bound: "",
  };
  yield {
    work: `${work}: the streams' gap p99 meanwhile`,
    unit: "ms",
    samples: pick(samples, "p99"),
    lower: true,
    bound: `${ratio("p50")} x their median meanwhile, ${ratio("quiet")} x their quiet median (wanted under 3)`,
  };
}

const mb = (bytes) => bytes / 1e6;

async function* memory(bench) {
  const { type, file } = bench.models[0],
    engines = bench.engines.filter((e) => e.canServe);
  const samples = await inTurns(bench, engines, 1, "resident memory", (engine) =>
    withServer(engine, file, { streams: CLIENTS, context: SHARED + OWN + ANSWER }, async (server) => {
      await crowdOfClients(server, 0, { shared: 0, own: 32, answer: 8 }).finish();
      return { ...residentMemory(server.pid), kvTokens: server.kvTokens };
    }),
  );
  const [ours] = samples.get("inferd"),
    weights = statSync(file).size;
  const kv = ours.kvTokens * (await bench.engines[0].kvBytesPerToken(file)),
    over = ours.all - weights - kv;
  yield {
    work: `resident memory after 32 clients, ${type}`,
    unit: "MB",
    samples: new Map([...samples].map(([name, [s]]) => [name, [mb(s.all)]])),
    lower: true,
    bound: `weights ${digits(mb(weights))} + KV pool ${digits(mb(kv))} + ${digits(mb(over))} (wanted at most 150); RssAnon ${digits(mb(ours.own))}, RssFile ${digits(mb(ours.file))}`,
  };
}

async function* busy(bench) {
  const { type, file } = bench.models[0],
    cpu = allowedCpus()[0];
  const samples = await inTurns(bench, bench.engines, bench.rounds, "busy machine", async (engine) => {
    const idle = (await engine.decode(file, 64)).rate,
      stop = await spinner(cpu);
    try {
      return { share: (100 * (await engine.decode(file, 64)).rate) / idle };
    } finally {
      await stop();
    }
  });
  yield {
    work: `decode, 1 stream, ${type}, a core kept busy: of the idle speed`,
    unit: "%",
    samples: pick(samples, "share"),
    bound: "wanted 45 %",
  };
}

export const rows = { decode, prefill, batch, daemon, ttft, memory, busy, perplexity };
