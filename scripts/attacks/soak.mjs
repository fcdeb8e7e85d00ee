// Mixed load with hostile clients on one daemon for a long time: is its memory flat? Each round runs the
// attacks that can share a daemon, beside normal clients. Memory is measured between two rounds, when the
// daemon is idle: only then it is comparable.
import { readFileSync } from "node:fs";
import { sleep } from "../../tests/http/server.mjs";
import { median } from "../measure/numbers.mjs";
import { Context, idle, Normals, start } from "./run.mjs";
import { scenarios } from "./scenarios.mjs";

const slackMb = 16; // by which the last third's median may exceed the middle third's, or a twentieth

const resident = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]) / 1024;

async function round(server, seconds, problem) {
  const list = scenarios.filter((s) => !s.flags && !s.keys && !s.ownModel && !s.alone);
  for (const scenario of list) {
    if (server.over) return;
    const c = new Context(server, {}, seconds);
    const limit = setTimeout(() => c.controller.abort(), seconds * 1000 + 30_000);
    c.signal.addEventListener("abort", () => c.sockets.close());
    await Promise.race([scenario.run(c), server.exited]);
    clearTimeout(limit);
    c.controller.abort();
    for (const text of c.problems) problem(`${scenario.name}: ${text}`);
  }
}

export async function soak(options) {
  const { server, stop } = await start({ flags: ["--log-level", "warn"] }, { model: options.model || undefined });
  const normals = new Normals(server, {}, 4),
    begun = performance.now(),
    end = begun + options.soak * 60_000;
  const problems = new Map(),
    idleMb = [];
  const problem = (text) => problems.set(text, (problems.get(text) ?? 0) + 1);
  const minutes = () => ((performance.now() - begun) / 60_000).toFixed(1).padStart(6);
  const ticker = setInterval(
    () => server.over || console.log(`${minutes()} min  ${resident(server.child.pid).toFixed(0)} MB`),
    30_000,
  );
  await normals.tell({ phase: "attack" });
  while (performance.now() < end && !server.over) {
    // Short attacks, so that half an hour has several rounds.
    await round(server, options.seconds || Math.min(2, options.soak / 16), problem);
    await sleep(500);
    if (server.over) break;
    idleMb.push(resident(server.child.pid));
    console.log(`${minutes()} min  ${idleMb.at(-1).toFixed(0)} MB after round ${idleMb.length}`);
  }
  clearInterval(ticker);
  const { phases } = server.over ? { phases: {} } : await normals.tell({ stop: true });
  await normals.worker.terminate();
  if (!server.over) {
    const left = await idle(server, {});
    if (left) problem(left);
  }
  for (const [why, n] of Object.entries(phases.attack?.failed ?? {})) console.log(`normal clients: ${n} x ${why}`);
  console.log(
    `normal clients: ${phases.attack?.visits ?? 0} visits answered, longest ${(phases.attack?.visitMs ?? NaN).toFixed(0)} ms`,
  );
  for (const [text, n] of problems) console.log(`${n} x ${text}`);
  const died = server.over,
    how = await stop();
  if (died || how.code !== 0)
    console.log(`the daemon ended with ${JSON.stringify(how)}:\n${server.stderr.slice(-3000)}`);
  const third = Math.floor(idleMb.length / 3),
    middle = median(idleMb.slice(third, 2 * third)),
    last = median(idleMb.slice(2 * third));
  const flat = last <= middle + Math.max(slackMb, middle / 20);
  if (third < 2) console.log(`${idleMb.length} rounds are too few to say whether memory is flat`);
  else
    console.log(
      `memory is ${flat ? "flat" : "NOT flat"}: ${middle.toFixed(0)} MB in the middle third, ${last.toFixed(0)} MB in the last`,
    );
  return !died && how.code === 0 && !problems.size && (flat || third < 2);
}
