// How long a step takes on several hosts: formulas only, no figures of any machine (those: hosts_data.mjs). Seconds,
// bytes, operations (a multiply-add is two). Assumptions: scripts/measure/HOSTS.md.

// Experts that a step of `rows` tokens reads in a layer, if each token picks `used` of `n` at random.
export const distinctExperts = (n, used, rows) => n * (1 - (1 - used / n) ** rows);

// What a mean layer of a model has: parameters that `rows` tokens read, and parameters that one token is multiplied with.
export function layerParams(model, rows) {
  const attention = 2 * model.embd * (model.heads + model.kvHeads) * model.headDim;
  const moe = model.moe;
  const nMoe = moe ? moe.layers : 0;
  const dense = 3 * model.embd * model.ffn;
  const expert = moe ? 3 * model.embd * moe.ffn : 0;
  const shared = moe ? 3 * model.embd * moe.sharedFfn : 0;
  const mean = (nExperts) =>
    attention + ((model.layers - nMoe) * dense + nMoe * (nExperts * expert + shared)) / model.layers;
  return {
    read: moe ? mean(distinctExperts(moe.n, moe.used, rows)) : mean(0),
    used: moe ? mean(moe.used) : mean(0),
    all: moe ? mean(moe.n) : mean(0),
  };
}

export const headParams = (model) => model.embd * model.vocab;
export const weightBytes = (model) =>
  ((model.layers * layerParams(model, 1).all + 2 * headParams(model)) * model.bits) / 8;
const kvBytes = (model) => 2 * model.kvHeads * model.headDim * 2; // of a token in a layer, 16 bits

// Kernels, barriers and whatever else a layer costs beside bytes and operations: chip.layerS is a list of [rows,
// seconds], between which the logarithm of rows interpolates.
export function layerOverhead(chip, rows) {
  const at = chip.layerS;
  let i = at.findIndex(([r]) => r >= rows);
  if (i < 0) return at[at.length - 1][1];
  if (i === 0) return at[0][1];
  const [[r0, s0], [r1, s1]] = [at[i - 1], at[i]];
  return s0 + ((s1 - s0) * Math.log(rows / r0)) / Math.log(r1 / r0);
}

// A layer on one of `ranks` ranks: work is {rows, seqs, context}, context: tokens that a row attends to.
export function layerCompute(model, chip, work, ranks) {
  const params = layerParams(model, work.rows);
  const kv = work.seqs * work.context * kvBytes(model);
  const bytes = ((params.read * model.bits) / 8 + kv) / ranks;
  const ops = (work.rows * (2 * params.used + 4 * work.context * model.heads * model.headDim)) / ranks;
  return Math.max(bytes / chip.bytesPerS, ops / chip.opsPerS) + layerOverhead(chip, work.rows);
}

// The sum of all ranks' n values (F32) on each rank. "gather": each gets all and adds. "parts": the same for few values
// or two ranks; else each adds a part and sends its sum (core/backend/cpu/linked.c).
const SHORT_VALUES = 4096;
export function allReduce(net, chip, n, ranks) {
  if (ranks < 2) return 0;
  const bytes = 4 * n;
  const whole = net.exchange === "gather" || ranks === 2 || n <= SHORT_VALUES;
  const sum = ((ranks + 1) * bytes) / (whole ? 1 : ranks) / chip.bytesPerS;
  const hops = net.exchange === "gather" ? ranks - 1 : 1;
  const once = net.baseS + hops * net.hopS;
  if (whole) return once + ((ranks - 1) * bytes) / net.bytesPerS + sum;
  return 2 * (once + (((ranks - 1) / ranks) * bytes) / net.bytesPerS) + sum;
}

// The logits of `rows` rows, of which each rank has a part.
function head(model, chip, net, rows, ranks) {
  if (!rows) return 0;
  const bytes = (headParams(model) * model.bits) / 8 / ranks;
  const compute = Math.max(bytes / chip.bytesPerS, (2 * rows * headParams(model)) / ranks / chip.opsPerS);
  if (ranks < 2) return compute;
  return compute + net.baseS + net.hopS + (((ranks - 1) / ranks) * 4 * rows * model.vocab) / net.bytesPerS;
}

// Times of a microbatch: of one layer, the head, and of handing its rows to the next stage.
function pieces(model, chip, net, work, ranks, nLogits) {
  return {
    layer: layerCompute(model, chip, work, ranks) + 2 * allReduce(net, chip, work.rows * model.embd, ranks),
    head: head(model, chip, net, nLogits, ranks),
    hop: net.baseS + net.hopS + (4 * work.rows * model.embd) / net.bytesPerS,
  };
}

// The slowest of `stages`: layers are shared out evenly, and the last one, which has the head, gets the fewest.
export const slowestStage = (model, p, stages) =>
  Math.max(Math.ceil(model.layers / stages) * p.layer, Math.floor(model.layers / stages) * p.layer + p.head);
const through = (model, p, stages) => model.layers * p.layer + p.head + (stages > 1 ? stages * p.hop : 0);

// One token for each of `streams`: in m microbatches, m at most the number of stages. A stage is busy with all m, and
// the next token of a stream waits for its way through all stages and back.
export function decodeStep(model, chip, net, { streams, context }, { ranks, stages }) {
  let best = Infinity;
  for (let m = 1; m <= Math.min(streams, stages); m++) {
    const rows = Math.ceil(streams / m);
    const p = pieces(model, chip, net, { rows, seqs: rows, context }, ranks, rows);
    best = Math.min(best, Math.max(m * slowestStage(model, p, stages), through(model, p, stages)));
  }
  return best;
}

// A prompt of `tokens` in c equal chunks, of which each stage works at another one.
export function prefill(model, chip, net, tokens, { ranks, stages }) {
  let best = Infinity;
  for (let c = 1; c <= (stages > 1 ? tokens / 32 : 1); c *= 2) {
    // context: the mean over all rows; a chunk reads the K/V of the prompt's half in the mean
    const work = { rows: tokens / c, seqs: 1, context: tokens / 2 };
    const p = pieces(model, chip, net, work, ranks, 1);
    best = Math.min(best, through(model, p, stages) + (c - 1) * slowestStage(model, p, stages));
  }
  return best;
}

// Tokens per second; work: {streams, context} or {prompt}.
export function speed(model, chip, net, work, split) {
  if (work.prompt) return work.prompt / prefill(model, chip, net, work.prompt, split);
  return work.streams / decodeStep(model, chip, net, work, split);
}

// Why a split is impossible, or null. share: the part of memory that weights and KV may take.
const SHARE = 0.9;
const MAX_RANKS = 16;
export function refusal(model, chip, net, work, { ranks, stages }) {
  if (ranks > Math.min(net.maxRanks ?? MAX_RANKS, MAX_RANKS)) return "too many ranks for the network";
  if (model.heads % ranks || model.kvHeads % ranks) return "heads do not divide";
  if (stages > model.layers) return "fewer layers than stages";
  const tokens = work.prompt ?? work.streams * work.context;
  const bytes = weightBytes(model) + tokens * model.layers * kvBytes(model);
  return bytes / (ranks * stages) > SHARE * chip.memoryBytes ? "does not fit" : null;
}

// The fastest split of each kind over `hosts` hosts: {ranks, stages, both}, each {split, speed} or undefined.
export function splits(model, chip, net, work, hosts) {
  const out = {};
  for (let ranks = 1; ranks <= hosts; ranks++) {
    if (hosts % ranks) continue;
    const split = { ranks, stages: hosts / ranks };
    if (refusal(model, chip, net, work, split)) continue;
    const kind = hosts === 1 || (ranks > 1 && split.stages === 1) ? "ranks" : ranks === 1 ? "stages" : "both";
    const entry = { split, speed: speed(model, chip, net, work, split) };
    if (!(out[kind]?.speed >= entry.speed)) out[kind] = entry;
  }
  return out;
}

export const winner = (kinds) => Object.values(kinds).reduce((a, b) => (a && a.speed >= b.speed ? a : b), undefined);
