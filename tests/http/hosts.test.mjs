// scripts/simulate-hosts: its formulas against cases computed by hand, and its command line.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import * as hosts from "../../scripts/measure/hosts.mjs";
import { checks, chips, models, networks, pairs } from "../../scripts/measure/hosts_data.mjs";

const model = { layers: 4, embd: 10, heads: 2, kvHeads: 1, headDim: 5, ffn: 20, vocab: 100, bits: 8 };
const moe = { ...model, moe: { layers: 2, n: 4, used: 1, ffn: 5, sharedFfn: 2 } };
const chip = { bytesPerS: 1000, opsPerS: 10000, memoryBytes: 8000, layerS: [[1, 0.1]] };
const net = { baseS: 0.01, hopS: 0.02, bytesPerS: 1000, exchange: "parts" };
const one = { ranks: 1, stages: 1 };
const near = (got, want) => assert.ok(Math.abs(got - want) < 1e-9, `${got}, expected ${want}`);

test("parameters: attention 300, FFN 600, an expert 150, a shared one 60", () => {
  assert.deepEqual(hosts.layerParams(model, 7), { read: 900, used: 900, all: 900 });
  near(hosts.distinctExperts(4, 1, 2), 4 * (1 - 9 / 16));
  const { read, used, all } = hosts.layerParams(moe, 2);
  near(read, 300 + (2 * 600 + 2 * (1.75 * 150 + 60)) / 4);
  near(used, 300 + (2 * 600 + 2 * (150 + 60)) / 4);
  near(all, 300 + (2 * 600 + 2 * (4 * 150 + 60)) / 4);
  near(hosts.weightBytes(model), 4 * 900 + 2 * 1000);
});

test("the shapes have their models' sizes", () => {
  const total = (m) => hosts.weightBytes({ ...m, bits: 8 }) / 1e9;
  const active = (m) => (m.layers * hosts.layerParams(m, 1).used + 2 * hosts.headParams(m)) / 1e9;
  assert.ok(Math.abs(total(models["8b"]) - 8.03) < 0.05);
  assert.ok(Math.abs(total(models["70b"]) - 70.6) < 0.2);
  assert.ok(Math.abs(total(models["400b-a17b"]) - 400.7) < 1);
  assert.ok(Math.abs(active(models["400b-a17b"]) - 17.2) < 0.2);
});

test("a layer: bytes or operations, and its overhead", () => {
  // 900 bytes of weights, 10 tokens of 20 bytes of K/V; 2 x 900 + 4 x 10 x 10 operations
  near(hosts.layerCompute(model, chip, { rows: 1, seqs: 1, context: 10 }, 1), 1.1 + 0.1);
  near(hosts.layerCompute(model, chip, { rows: 1, seqs: 1, context: 10 }, 2), 0.55 + 0.1);
  near(hosts.layerCompute(model, chip, { rows: 32, seqs: 1, context: 10 }, 1), (32 * 2200) / 10000 + 0.1);
  const measured = {
    layerS: [
      [1, 1],
      [4, 3],
    ],
  };
  assert.deepEqual(
    [1, 2, 4, 16].map((rows) => hosts.layerOverhead(measured, rows)),
    [1, 2, 3, 3],
  );
});

test("exchanges", () => {
  near(hosts.allReduce(net, chip, 10, 1), 0);
  near(hosts.allReduce(net, chip, 10, 2), 0.03 + 0.04 + 0.12);
  near(hosts.allReduce(net, chip, 10, 4), 0.03 + 3 * 0.04 + 5 * 0.04);
  near(hosts.allReduce({ ...net, exchange: "gather" }, chip, 10, 4), 0.07 + 3 * 0.04 + 5 * 0.04);
  near(hosts.allReduce(net, chip, 5000, 4), 2 * (0.03 + 0.75 * 20) + (5 * 20) / 4);
});

test("decode: one stream waits for its way, two keep two stages busy", () => {
  const step = (streams, split) => hosts.decodeStep(model, chip, net, { streams, context: 10 }, split);
  near(step(1, one), 4 * 1.2 + 1);
  near(step(1, { ranks: 2, stages: 1 }), 4 * (0.65 + 2 * 0.19) + 0.5 + 0.03 + 0.2);
  near(step(1, { ranks: 1, stages: 2 }), 4 * 1.2 + 1 + 2 * 0.07);
  near(step(2, { ranks: 1, stages: 2 }), 2 * (2 * 1.2 + 1));
  // Three stages of four layers: 2, 1 and 1 with the head.
  near(hosts.slowestStage(model, { layer: 1, head: 0.5 }, 3), 2);
});

test("prefill: chunks of 32 tokens fill two stages", () => {
  const layer = (32 * (1800 + 4 * 32 * 10)) / 10000 + 0.1;
  const through = 4 * layer + 1 + 2 * (0.03 + 1.28);
  near(hosts.prefill(model, chip, net, 64, { ranks: 1, stages: 2 }), through + 2 * layer + 1);
  near(hosts.prefill(model, chip, net, 64, one), 4 * ((64 * (1800 + 4 * 32 * 10)) / 10000 + 0.1) + 1);
});

test("which splits are possible, and which one wins", () => {
  const work = { streams: 1, context: 10 };
  assert.equal(hosts.refusal(model, chip, net, work, one), null);
  assert.equal(hosts.refusal(model, { ...chip, memoryBytes: 6000 }, net, work, one), "does not fit");
  assert.equal(hosts.refusal(model, { ...chip, memoryBytes: 6000 }, net, work, { ranks: 1, stages: 2 }), null);
  assert.match(hosts.refusal(model, chip, net, work, { ranks: 2, stages: 1 }), /heads/);
  assert.match(hosts.refusal(model, chip, net, work, { ranks: 1, stages: 5 }), /layers/);
  assert.match(hosts.refusal(models["8b"], chip, networks.tb5, work, { ranks: 8, stages: 1 }), /network/);
  const even = { ...model, kvHeads: 2 };
  const kinds = hosts.splits(even, chip, net, { streams: 4, context: 10 }, 4);
  assert.deepEqual(Object.keys(kinds).sort(), ["both", "stages"]); // four ranks for two heads: none
  const best = Math.max(...Object.values(kinds).map((k) => k.speed));
  assert.equal(hosts.winner(kinds).speed, best);
  assert.equal(hosts.winner({}), undefined);
});

test("the measurements, within 10 %", () => {
  for (const { name, model, net, one: alone, two, work } of checks) {
    for (const [at, split] of [
      [alone, one],
      [two, { ranks: 2, stages: 1 }],
    ]) {
      const got = hosts.speed(model, at.chip, net, work, split);
      assert.ok(Math.abs(got / at.speed - 1) < 0.1, `${name}: ${got}, measured ${at.speed}`);
    }
  }
  for (const pair of pairs) assert.ok(networks[pair.network] && chips[pair.chip]);
});

test("the command line", () => {
  const run = (...args) => spawnSync("scripts/simulate-hosts", args, { encoding: "utf8" });
  const { status, stdout } = run("--model", "8b", "--network", "eth25", "--hosts", "1,2,32");
  assert.equal(status, 0);
  assert.match(stdout, /^\| decode of 1 \| 1R \d+\.\d \| 2R \d+\.\d \| \d+R x \d+S \d+ \|$/m);
  assert.match(run("--model", "400b-a17b", "--network", "ib", "--hosts", "2").stdout, /\| decode of 1 \| - \|/);
  assert.equal(run("--check").stdout.trim().split("\n").length, 2 + checks.length);
  const help = run("--help").stdout;
  for (const name of [models, networks, chips].flatMap(Object.keys)) assert.ok(help.includes(name), name);
  for (const [args, why] of [
    [["--model", "9b"], /unknown model 9b: 8b,/],
    [["--hosts", "2.5"], /--hosts 2.5: a whole number/],
    [["--hosts", "0"], /--hosts 0: a number up to/],
    [["--nothing"], /--nothing/],
  ]) {
    const refused = run(...args);
    assert.equal(refused.status, 2);
    assert.match(refused.stderr, why);
  }
});
