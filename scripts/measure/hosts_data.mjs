// Figures for hosts.mjs: models, chips, networks, and what was measured. "Assumed" is said where no measurement of ours
// stands behind a figure.

const llama = { headDim: 128, bits: 16 };

// Shapes. bits: of a weight.
export const models = {
  "8b": { ...llama, name: "8B", layers: 32, embd: 4096, heads: 32, kvHeads: 8, ffn: 14336, vocab: 128256 },
  "70b": { ...llama, name: "70B", layers: 80, embd: 8192, heads: 64, kvHeads: 8, ffn: 28672, vocab: 128256 },
  // Llama 4 Maverick (config.json of meta-llama/Llama-4-Maverick-17B-128E): every second layer has experts.
  "400b-a17b": {
    ...llama,
    name: "400B-A17B",
    layers: 48,
    embd: 5120,
    heads: 40,
    kvHeads: 8,
    ffn: 16384,
    vocab: 202048,
    moe: { layers: 24, n: 128, used: 1, ffn: 8192, sharedFfn: 8192 },
  },
};

// Only for --check: the shapes that were measured.
const tinyllama = {
  name: "TinyLlama",
  layers: 22,
  embd: 2048,
  heads: 32,
  kvHeads: 4,
  headDim: 64,
  ffn: 5632,
  vocab: 32000,
  bits: 8.5,
};
const measured8b = { ...models["8b"], vocab: 32000 };

// bytesPerS, opsPerS: what inferd reaches, not what a data sheet says.
export const chips = {
  // One H200 measured (core/backend/cuda/README.md), BF16, 8B: 0.91 of the speed of a copy (4.15 TB/s); 35,807 tokens/s
  // of prefill; a layer is 9 dependent launches of 2 us, and what steps of 1, 8, 32 and 128 sequences take beside their
  // bytes (230, 1,362, 4,659 and 13,604 tokens/s).
  h200: {
    name: "H200",
    bytesPerS: 3.77e12,
    opsPerS: 550e12,
    memoryBytes: 141e9,
    layerS: [
      [1, 18e-6],
      [8, 48e-6],
      [32, 79e-6],
      [128, 100e-6],
    ],
  },
  // Assumed: Apple's 819 GB/s at 0.75, 28 TFLOP/s (80 cores) at 0.6, 10 dispatches of 5 us. Not measured.
  m3ultra: {
    name: "M3 Ultra",
    bytesPerS: 0.75 * 819e9,
    opsPerS: 0.6 * 28e12,
    memoryBytes: 0.75 * 512e9,
    layerS: [[1, 50e-6]],
  },
  // Assumed: 12 channels of DDR5-4800 (460.8 GB/s) at 0.7; 64 cores, each as fast as one of those measured (1.154 TOP/s
  // of two), at 0.7. Not measured.
  epyc64: {
    name: "EPYC, 64 cores",
    bytesPerS: 0.7 * 460.8e9,
    opsPerS: 0.7 * 64 * 0.577e12,
    memoryBytes: 768e9,
    layerS: [[1, 20e-6]],
  },
};

// baseS: of an exchange, with its software; hopS: of each hop. exchange: as hosts.mjs's allReduce has it.
export const networks = {
  // JACCL: 5 to 9 us (ml-explore/mlx pull request 2808, its users), 50 to 60 Gb/s, at most 4 Macs as a full mesh.
  tb5: { name: "Thunderbolt 5 RDMA", baseS: 8e-6, hopS: 2e-6, bytesPerS: 7e9, exchange: "parts", maxRanks: 4 },
  // Kernel TCP: 20 to 50 us between hosts; 94 % of the line is payload.
  eth25: { name: "25 GbE TCP", baseS: 25e-6, hopS: 5e-6, bytesPerS: 2.94e9, exchange: "parts" },
  // NDR, 400 Gb/s at 0.95. NCCL's own table (src/graph/tuning.cc, ring, LL): 6.6 us, 2.7 us a hop; and two launches.
  ib: { name: "InfiniBand NDR", baseS: 10.6e-6, hopS: 2.7e-6, bytesPerS: 47.5e9, exchange: "gather" },
};

// The pairs that the table shows.
export const pairs = [
  { network: "tb5", chip: "m3ultra" },
  { network: "eth25", chip: "epyc64" },
  { network: "ib", chip: "h200" },
];

// NVLink 4: NCCL's table as above with 0.6 us a hop; 450 GB/s a direction at 0.8.
const nvlink = { name: "NVLink", baseS: 10.6e-6, hopS: 0.6e-6, bytesPerS: 360e9, exchange: "gather" };
// Open MPI 4.1, shared memory: both of two processes send and receive at once, best of 2,000. 8 KiB: 3.0 us; 2 MiB:
// 138 us.
const sharedMemory = { name: "shared memory", baseS: 2e-6, hopS: 0.5e-6, bytesPerS: 15.2e9, exchange: "parts" };

// The machine with two cores (scripts/measure/README.md), measured with one process: decode 50.1, prefill 595.5
// tokens/s. A process of two has half of it.
const twoCores = { bytesPerS: 55.1e9, opsPerS: 1.16e12, memoryBytes: 24e9, layerS: [[1, 0]] };
const halved = { ...twoCores, bytesPerS: twoCores.bytesPerS / 2, opsPerS: twoCores.opsPerS / 2 };

// Measurements that the model is held to. one: those that its figures come from; two: those that it must foretell.
export const checks = [
  {
    name: "two cores, TinyLlama Q8_0, decode of 1",
    model: tinyllama,
    net: sharedMemory,
    one: { chip: twoCores, speed: 50.1 },
    two: { chip: halved, speed: 48.3 },
    work: { streams: 1, context: 256 },
  },
  {
    name: "two cores, TinyLlama Q8_0, prefill of 256",
    model: tinyllama,
    net: sharedMemory,
    one: { chip: twoCores, speed: 595.5 },
    two: { chip: halved, speed: 586.6 },
    work: { prompt: 256 },
  },
  {
    name: "H200, 8B BF16, decode of 8",
    model: measured8b,
    net: nvlink,
    one: { chip: chips.h200, speed: 1362 },
    two: { chip: chips.h200, speed: 1755 },
    work: { streams: 8, context: 2048 },
  },
  {
    name: "H200, 8B BF16, prefill of 2,048",
    model: measured8b,
    net: nvlink,
    one: { chip: chips.h200, speed: 35807 },
    two: { chip: chips.h200, speed: 49920 },
    work: { prompt: 2048 },
  },
];
