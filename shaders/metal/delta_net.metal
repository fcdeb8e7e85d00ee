// delta_net.metal - linear attention over state blocks (op_linear_attention, core/backend/ops.h;
// blocks: state_layout.h): gated delta nets, those whose dimensions of K decay by themselves
// (CHANNELS), and Mamba-2 (RULE 0). S of a V head is K_DIM x V_DIM f32.
//
// Kernels: delta_conv, the convolution of each row; delta_run, the rows of each V head of each
// sequence; mamba2_norm, the norm of Mamba-2's groups; delta_keep, what the next step reads of the
// inputs. If each sequence has one row (SINGLE) delta_conv keeps them: state_rows.h.
//
// delta_run reads S into registers once, a column in the registers of QUARTERS threads, takes the
// rows in the order of their positions, adds the pending rows to S at each boundary and writes S
// once, at the last boundary of the step: a decode step between boundaries does not write it.
//
// ORDER OF SUMS: S^T x in four quarters of the dimensions of K, ascending in each, then (0 + 1) +
// (2 + 3); over pending rows ascending; dot products by the lanes of a simdgroup, dimensions
// ascending in each, then simd_tree_sum; the norm of a group by its threads, values ascending in
// each, then group_tree_sum. Every product that is added to something is an fma. So a row's bits do
// not depend on how its sequence was cut into steps. With CHANNELS, K and Q are multiplied by e^G
// before S^T x, and in dot products K by e^(G[i] - G[j]), never above 1: e^-G alone would overflow.
//
// BYTES that a decode step between boundaries moves at least, in units of 4: once the taps,
// channels * TAPS, and of Mamba-2 bias, channels, and norm, n_v_heads * V_DIM; and of each sequence
// with P pending rows
//   n_v_heads * K_DIM * V_DIM                         S is read
//   (P + 1) * (n_k_heads * K_DIM + n_v_heads * (V_DIM + D))  pending K, U, G; one row is written
//   channels * 2 * (TAPS - 1)                         recent inputs, read and written
//   channels * 3                                      qkv; work, twice
//   n_v_heads * (2 * V_DIM + D + 1)                   z, out, alpha, beta; of Mamba-2 without beta
//   n_v_heads * V_DIM * 2                             for Mamba-2's norm: out, read and written
// where D, the decays of a V head, is K_DIM with CHANNELS and else 1. The caches serve what is read
// twice: K by the V heads of a K head, work likewise. In a step of n
// rows S is still read once, and written once if the step crosses a boundary.
#include "shaders/metal/state_rows.h"
#include "shaders/metal/sums.h"

// Function constants: enum margs_delta_const (shaders/args_attention.h).
constant uint K_DIM [[function_constant(MARGS_DELTA_K_DIM)]];
constant uint V_DIM [[function_constant(MARGS_DELTA_V_DIM)]];
constant uint RULE [[function_constant(MARGS_DELTA_RULE)]];

#define CHANNELS   (RULE == ARGS_RULE_CHANNELS)
#define DECAYS     (CHANNELS ? K_DIM : 1u) /* of a V head */
#define MAX_K_DIM  MARGS_STATE_MAX_K_DIM
#define MAX_V_DIM  MARGS_STATE_MAX_V_DIM
#define SIMDGROUPS MARGS_DELTA_SIMDGROUPS
#define PART       (RULE ? K_DIM : uint(MAX_V_DIM)) /* channels of a simdgroup; of RULE a head */
#define QUARTERS   MARGS_DELTA_QUARTERS
#define MAX_STEP   (MAX_K_DIM / QUARTERS)
#define STEP       (K_DIM / QUARTERS) /* dimensions of a quarter: a multiple of 4 */
#define MAX_ROWS   MARGS_DELTA_ROWS
#define ROWS       (SINGLE ? 1u : uint(MAX_ROWS)) /* of a tile */
#define FOLD       MARGS_DELTA_FOLD

static inline uint channels_of(constant margs_delta_net &a) {
    return 2 * a.n_k_heads * K_DIM + a.n_v_heads * V_DIM;
}

// Channels before K: a delta net has Q, K, V, Mamba-2 V, K, Q.
static inline uint first_k(constant margs_delta_net &a) {
    return RULE ? a.n_k_heads * K_DIM : a.n_v_heads * V_DIM;
}

// ---- the convolution ----

// The inputs: of a row `apart` channels, Q's, in q, as many, K's, in k, and the others in v; with
// apart 0 all are there.
struct qkv_rows {
    device const float *q, *k, *v;
    uint channels, apart;
    float at(uint row, uint c) const {
        if (c < apart) return q[ulong(row) * apart + c];
        if (c < 2 * apart) return k[ulong(row) * apart + c - apart];
        return v[ulong(row) * (channels - 2 * apart) + c - 2 * apart];
    }
};

static inline qkv_rows rows_at(constant margs_delta_net &a,
                               device const float *q,
                               device const float *k,
                               device const float *v) {
    return {q, k, v, channels_of(a), a.apart != 0 ? a.n_k_heads * K_DIM : 0};
}

// The taps of channel c, of weights that lie as the inputs do.
static inline device const float *taps_of(thread const qkv_rows &rows,
                                          device const float *q,
                                          device const float *k,
                                          device const float *v,
                                          uint c) {
    if (c < rows.apart) return q + ulong(c) * TAPS;
    return c < 2 * rows.apart ? k + ulong(c - rows.apart) * TAPS
                              : v + ulong(c - 2 * rows.apart) * TAPS;
}

// The place of channel c of K of position p among the pending rows, if c is one of K's.
static inline bool
pending_k(constant margs_delta_net &a, thread const sequence &s, uint p, uint c, thread ulong &at) {
    const uint k_cols = a.n_k_heads * K_DIM, d = c - first_k(a);
    at = s.live + a.state.k + ulong(p % CHUNK) * k_cols + d;
    return d < k_cols;
}

// q, k, v as in struct qkv_rows; work (n_rows, channels) f32; taps, taps_k, taps_v (their channels,
// TAPS), bias (channels) f32, the latter read if has_conv_bias; pos (n_rows), row_start (n_seqs +
// 1), tables (n_seqs, 2) i32; blocks (n_blocks, end) f32, written only if SINGLE. Grid: (groups of
// SIMDGROUPS parts of the channels, rows), one simdgroup per part.
kernel void delta_conv(constant margs_delta_net &a [[buffer(0)]],
                       device const float *q [[buffer(1)]],
                       device const float *k [[buffer(2)]],
                       device const float *v [[buffer(3)]],
                       device const float *taps [[buffer(4)]],
                       device const float *taps_k [[buffer(5)]],
                       device const float *taps_v [[buffer(6)]],
                       device const float *bias [[buffer(7)]],
                       device const int *pos [[buffer(8)]],
                       device const int *row_start [[buffer(9)]],
                       device const int *tables [[buffer(10)]],
                       device float *blocks [[buffer(11)]],
                       device float *work [[buffer(12)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
    const uint part = group.x * SIMDGROUPS + simdgroup, row = group.y;
    const uint channels = channels_of(a), index = sequence_of(row_start, a.state.n_seqs, row);
    const sequence s = sequence_at(a.state, index, pos, row_start, tables);
    if (part * PART >= channels || !s.valid) return;
    const qkv_rows rows = rows_at(a, q, k, v);
    float y[MAX_V_DIM / SIMD_WIDTH], sum = 0.0f;
#pragma unroll
    for (uint i = 0; i < MAX_V_DIM / SIMD_WIDTH; i++) {
        const uint d = i * SIMD_WIDTH + lane, c = part * PART + d;
        y[i] = 0.0f;
        if (d >= PART || c >= channels) continue;
        const float first = a.has_conv_bias != 0 ? bias[c] : 0.0f;
        float in[MAX_TAPS];
        device const float *of_c = taps_of(rows, taps, taps_k, taps_v, c);
        y[i] = convolve(a.state, s, rows, blocks, of_c, row, c, first, in);
        y[i] /= 1.0f + precise::exp(-y[i]);
        sum = fma(y[i], y[i], sum);
        if (SINGLE) keep_single(a.state, s, blocks, in, channels, c);
    }
    float scale = 1.0f;
    if (RULE) {
        sum = simd_tree_sum(sum);
        const bool is_q = part < a.n_k_heads, is_k = !is_q && part < 2 * a.n_k_heads;
        if (is_q || is_k) scale = (is_q ? a.q_scale : 1.0f) / sqrt(sum + 1e-6f);
    }
#pragma unroll
    for (uint i = 0; i < MAX_V_DIM / SIMD_WIDTH; i++) {
        const uint d = i * SIMD_WIDTH + lane, c = part * PART + d;
        if (d >= PART || c >= channels) continue;
        y[i] *= scale;
        work[ulong(row) * channels + c] = y[i];
        ulong at;
        if (SINGLE && (s.pos + 1) % CHUNK != 0 && pending_k(a, s, s.pos, c, at)) blocks[at] = y[i];
    }
}

// After a step with more than one row of a sequence. The buffers are delta_conv's. Grid: (groups of
// SIMDGROUPS parts of the channels, sequences), one simdgroup per part.
kernel void delta_keep(constant margs_delta_net &a [[buffer(0)]],
                       device const float *q [[buffer(1)]],
                       device const float *k [[buffer(2)]],
                       device const float *v [[buffer(3)]],
                       device const int *pos [[buffer(4)]],
                       device const int *row_start [[buffer(5)]],
                       device const int *tables [[buffer(6)]],
                       device const float *work [[buffer(7)]],
                       device float *blocks [[buffer(8)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
    const uint part = group.x * SIMDGROUPS + simdgroup, channels = channels_of(a);
    const sequence s = sequence_at(a.state, group.y, pos, row_start, tables);
    if (!s.valid) return;
    const qkv_rows rows = rows_at(a, q, k, v);
    const uint end = s.pos + s.n, from = max(end - end % CHUNK, s.pos);
    for (uint d = lane; d < PART; d += SIMD_WIDTH) {
        const uint c = part * PART + d;
        if (c >= channels) return;
        keep_inputs(a.state, s, rows, blocks, c);
        ulong at;
        for (uint p = from; p < end && pending_k(a, s, p, c, at); p++)
            blocks[at] = work[ulong(s.first + p - s.pos) * channels + c];
    }
}

// ---- the rows of a head ----

// One V head of one sequence: pointers to its part of the sequence's first row, and of the live
// block. Row r is at r * channels, r * n_v_heads, r * decays or r * cols.
struct head_rows {
    device const float *q, *k, *v; // channels
    device const float *alpha;     // decays
    device const float *beta;      // n_v_heads
    device const float *z;         // cols
    device float *out;             // cols
    device const float *pending_k; // (CHUNK, k_cols)
    device float *pending_u;       // (CHUNK, cols)
    device float *pending_g;       // (CHUNK, decays)
    device const float *dt_bias;   // (DECAYS)
    uint channels, cols, k_cols, n_v_heads, decays;
    float a, skip;
};

// Threadgroup memory. parts: of S^T q in slot EACH * i + EACH - 1 of row i, of a delta net's S^T k
// in slot 2 * i. The first part of S^T q is then o.
#define EACH (RULE ? 2u : 1u)
struct tile {
    threadgroup float *g;           // (CHUNK) G since the boundary; CHANNELS: (ROWS, K_DIM)
    threadgroup float *step;        // (MAX_ROWS) beta; of Mamba-2 dt
    threadgroup float *by_k, *by_q; // (ROWS, CHUNK) e^(G[i] - G[j]) times k[j].k[i], k[j].q[i]
    threadgroup float *k, *q;       // (ROWS, K_DIM); CHANNELS: times e^G once the pairs are made
    threadgroup float *parts;       // (QUARTERS, EACH * ROWS, V_DIM)
};

// A thread's part of S: a quarter of one column.
struct column {
    float s[MAX_STEP];
    uint col, quarter;
};

// log(1 + e^x). log(u) is off by what is lost in u = 1 + y; the factor restores it (Higham,
// Accuracy and Stability of Numerical Algorithms, 2nd ed., problem 1.5).
static inline float softplus(float x) {
    const float y = precise::exp(x), u = 1.0f + y;
    return x > 20.0f ? x : u == 1.0f ? y : precise::log(u) * (y / (u - 1.0f));
}

// K at offset j of a chunk: `from` rows of it were pending, the next is row `row` of the step.
static inline device const float *k_at(thread const head_rows &h, uint j, uint from, uint row) {
    return j < from ? h.pending_k + ulong(j) * h.k_cols : h.k + ulong(row + j - from) * h.channels;
}

// Sums of the logarithms of decay d, and step sizes, of n rows from offset `at` of the chunk on. A
// thread for each decay.
static inline void
make_decays(thread const head_rows &h, thread const tile &t, uint row, uint at, uint n, uint d) {
    device float *live = h.pending_g + d;
    float g = at == 0 ? 0.0f : CHANNELS ? live[ulong(at - 1) * h.decays] : t.g[at - 1];
    for (uint i = 0; i < n; i++) {
        const float dt = softplus(h.alpha[ulong(row + i) * h.decays + d] + h.dt_bias[d]);
        g = fma(h.a, dt, g);
        t.g[CHANNELS ? i * K_DIM + d : at + i] = g;
        live[ulong(at + i) * h.decays] = g;
        if (d != 0) continue;
        const float beta = RULE ? h.beta[ulong(row + i) * h.n_v_heads] : 0.0f;
        t.step[i] = RULE ? 1.0f / (1.0f + precise::exp(-beta)) : dt;
    }
}

// What is left for K and Q of n rows of each dimension of S: their products with it follow.
static inline void decay_rows(thread const column &c, thread const tile &t, uint n) {
    for (uint i = c.quarter; i < n; i += QUARTERS)
        for (uint d = c.col; d < K_DIM; d += V_DIM) {
            const float far = precise::exp(t.g[i * K_DIM + d]);
            t.k[i * K_DIM + d] *= far;
            t.q[i * K_DIM + d] *= far;
        }
}

// A quarter of S^T k and S^T q of n rows.
static inline void project(thread const column &c, thread const tile &t, uint n) {
    float by_k[MAX_ROWS], by_q[MAX_ROWS];
#pragma unroll
    for (uint i = 0; i < MAX_ROWS; i++)
        by_k[i] = by_q[i] = 0.0f;
#pragma unroll
    for (uint d = 0; d < MAX_STEP; d += 4) {
        if (d >= STEP) continue;
#pragma unroll
        for (uint i = 0; i < MAX_ROWS; i++) {
            if (i >= ROWS || i >= n) continue;
            const uint at = (i * K_DIM + c.quarter * STEP + d) / 4;
            const float4 q = ((threadgroup const float4 *)t.q)[at];
            by_q[i] = fma(c.s[d], q.x, by_q[i]), by_q[i] = fma(c.s[d + 1], q.y, by_q[i]);
            by_q[i] = fma(c.s[d + 2], q.z, by_q[i]), by_q[i] = fma(c.s[d + 3], q.w, by_q[i]);
            if (!RULE) continue;
            const float4 k = ((threadgroup const float4 *)t.k)[at];
            by_k[i] = fma(c.s[d], k.x, by_k[i]), by_k[i] = fma(c.s[d + 1], k.y, by_k[i]);
            by_k[i] = fma(c.s[d + 2], k.z, by_k[i]), by_k[i] = fma(c.s[d + 3], k.w, by_k[i]);
        }
    }
#pragma unroll
    for (uint i = 0; i < MAX_ROWS; i++) {
        if (i >= ROWS || i >= n) continue;
        const uint slot = c.quarter * EACH * ROWS + EACH * i;
        if (RULE) t.parts[slot * V_DIM + c.col] = by_k[i];
        t.parts[(slot + EACH - 1) * V_DIM + c.col] = by_q[i];
    }
}

// Products of the chunk's rows of K with K (of a delta net) and Q of n rows: a simdgroup for each
// row of K.
static inline void make_pairs(thread const head_rows &h,
                              thread const tile &t,
                              uint row,
                              uint at,
                              uint n,
                              uint from,
                              uint simdgroup,
                              uint lane) {
    const uint before = row - (at - from); // the step's row at offset `from`
    for (uint j = simdgroup; j < at + n; j += V_DIM * QUARTERS / SIMD_WIDTH) {
        float k[MAX_K_DIM / SIMD_WIDTH], g[MAX_K_DIM / SIMD_WIDTH];
#pragma unroll
        for (uint s = 0; s < MAX_K_DIM / SIMD_WIDTH; s++) {
            const uint d = s * SIMD_WIDTH + lane;
            k[s] = d >= K_DIM ? 0.0f
                   : j < at   ? k_at(h, j, from, before)[d]
                              : t.k[(j - at) * K_DIM + d];
            g[s] = !CHANNELS || d >= K_DIM ? 0.0f
                   : j < at                ? h.pending_g[ulong(j) * h.decays + d]
                                           : t.g[(j - at) * K_DIM + d];
        }
        for (uint i = j < at ? 0 : j - at; i < n; i++) {
            float by_k = 0.0f, by_q = 0.0f;
#pragma unroll
            for (uint s = 0; s < MAX_K_DIM / SIMD_WIDTH; s++) {
                const uint d = s * SIMD_WIDTH + lane;
                if (d >= K_DIM) continue;
                const float kj = CHANNELS ? k[s] * precise::exp(t.g[i * K_DIM + d] - g[s]) : k[s];
                if (RULE) by_k = fma(kj, t.k[i * K_DIM + d], by_k);
                by_q = fma(kj, t.q[i * K_DIM + d], by_q);
            }
            if (RULE) by_k = simd_tree_sum(by_k);
            by_q = simd_tree_sum(by_q);
            const float near = CHANNELS ? 1.0f : precise::exp(t.g[at + i] - t.g[j]);
            if (RULE && lane == 0) t.by_k[i * CHUNK + j] = near * by_k;
            if (lane == 0) t.by_q[i * CHUNK + j] = near * by_q;
        }
    }
}

// (0 + 1) + (2 + 3) of the parts of a slot.
static inline float sum_parts(thread const tile &t, uint slot, uint col) {
    const uint at = slot * V_DIM + col, next = EACH * ROWS * V_DIM;
    return (t.parts[at] + t.parts[at + next]) + (t.parts[at + 2 * next] + t.parts[at + 3 * next]);
}

// U of n rows, which becomes pending, and o, which replaces the first part of S^T q. A thread for
// each column.
static inline void
make_column(thread const head_rows &h, thread const tile &t, uint row, uint at, uint n, uint col) {
    float u[MAX_ROWS], o[MAX_ROWS];
#pragma unroll
    for (uint i = 0; i < MAX_ROWS; i++) {
        u[i] = o[i] = 0.0f;
        if (i >= ROWS || i >= n) continue;
        const float far = CHANNELS ? 1.0f : precise::exp(t.g[at + i]);
        u[i] = h.v[ulong(row + i) * h.channels + col];
        if (RULE) u[i] = fma(-far, sum_parts(t, EACH * i, col), u[i]);
        o[i] = far * sum_parts(t, EACH * i + EACH - 1, col);
    }
    for (uint j = 0; j < at; j++) {
        const float before = h.pending_u[ulong(j) * h.cols + col];
#pragma unroll
        for (uint i = 0; i < MAX_ROWS; i++) {
            if (i >= ROWS || i >= n) continue;
            if (RULE) u[i] = fma(-t.by_k[i * CHUNK + j], before, u[i]);
            o[i] = fma(t.by_q[i * CHUNK + j], before, o[i]);
        }
    }
#pragma unroll
    for (uint i = 0; i < MAX_ROWS; i++) {
        if (i >= ROWS || i >= n) continue;
#pragma unroll
        for (uint j = 0; j < MAX_ROWS; j++) {
            if (j >= i) continue;
            if (RULE) u[i] = fma(-t.by_k[i * CHUNK + at + j], u[j], u[i]);
            o[i] = fma(t.by_q[i * CHUNK + at + j], u[j], o[i]);
        }
        const float v = u[i]; // of Mamba-2
        u[i] *= t.step[i];
        h.pending_u[ulong(at + i) * h.cols + col] = u[i];
        o[i] = fma(t.by_q[i * CHUNK + at + i], u[i], o[i]);
        t.parts[(EACH * i + EACH - 1) * V_DIM + col] = RULE ? o[i] : fma(h.skip, v, o[i]);
    }
}

// The norm (of a delta net) and gate of n rows: a simdgroup for each.
static inline void store_rows(thread const head_rows &h,
                              thread const tile &t,
                              device const float *norm,
                              float eps,
                              uint row,
                              uint n,
                              uint simdgroup,
                              uint lane) {
    for (uint i = simdgroup; i < n; i += V_DIM * QUARTERS / SIMD_WIDTH) {
        threadgroup const float *o = t.parts + (EACH * i + EACH - 1) * V_DIM;
        const ulong at = ulong(row + i) * h.cols;
        float sum = 0.0f, scale = 1.0f;
        for (uint d = lane; RULE && d < V_DIM; d += SIMD_WIDTH)
            sum = fma(o[d], o[d], sum);
        if (RULE) scale = 1.0f / sqrt(simd_tree_sum(sum) / float(V_DIM) + eps);
        for (uint d = lane; d < V_DIM; d += SIMD_WIDTH) {
            const float z = h.z[at + d], x = RULE ? o[d] * scale * norm[d] : o[d];
            h.out[at + d] = x * ((CHANNELS ? 1.0f : z) / (1.0f + precise::exp(-z)));
        }
    }
}

// Adds a whole chunk to S. Its first `from` rows were pending, the next is row `row` of the step.
static inline void
fold(thread const head_rows &h, thread const tile &t, thread column &c, uint row, uint from) {
    threadgroup float *k = t.k; // (FOLD, K_DIM): over q and parts, which are not read any more
    device const float *last_g = h.pending_g + ulong(CHUNK - 1) * h.decays;
    const float last = CHANNELS ? 0.0f : t.g[CHUNK - 1], far = precise::exp(last);
    if (CHANNELS && c.quarter == 0) k[c.col] = precise::exp(last_g[c.col]);
    if (CHANNELS) threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint d = 0; d < MAX_STEP; d++)
        c.s[d] *= !CHANNELS ? far : d < STEP ? k[c.quarter * STEP + d] : 0.0f;
    if (CHANNELS) threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint first = 0; first < CHUNK; first += FOLD) {
        for (uint j = first + c.quarter; j < first + FOLD; j += QUARTERS)
            for (uint d = c.col; d < K_DIM; d += V_DIM) {
                const float near =
                    CHANNELS ? last_g[d] - h.pending_g[ulong(j) * h.decays + d] : last - t.g[j];
                k[(j - first) * K_DIM + d] = precise::exp(near) * k_at(h, j, from, row)[d];
            }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint j = 0; j < FOLD; j++) {
            const float u = h.pending_u[ulong(first + j) * h.cols + c.col];
#pragma unroll
            for (uint d = 0; d < MAX_STEP; d += 4) {
                if (d >= STEP) continue;
                const float4 x =
                    ((threadgroup const float4 *)k)[(j * K_DIM + c.quarter * STEP + d) / 4];
                c.s[d] = fma(x.x, u, c.s[d]);
                c.s[d + 1] = fma(x.y, u, c.s[d + 1]);
                c.s[d + 2] = fma(x.z, u, c.s[d + 2]);
                c.s[d + 3] = fma(x.w, u, c.s[d + 3]);
            }
        }
        // U is read before the next chunk's is written.
        threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    }
}

// work (n_rows, channels), z, out (n_rows, n_v_heads, V_DIM), alpha (n_rows, n_v_heads, DECAYS),
// beta (n_rows, n_v_heads) f32; pos (n_rows), row_start (n_seqs + 1), tables (n_seqs, 2) i32; decay
// (n_v_heads), dt_bias (n_v_heads, DECAYS) f32;
// norm (V_DIM) and beta of a delta net, skip (n_v_heads) of Mamba-2; blocks (n_blocks, end) f32.
// Grid: (V heads, sequences); QUARTERS * V_DIM threads. Threadgroup memory `shared`: struct tile.
[[max_total_threads_per_threadgroup(QUARTERS * MAX_V_DIM)]] kernel void
delta_run(constant margs_delta_net &a [[buffer(0)]],
          device const float *work [[buffer(1)]],
          device const float *z [[buffer(2)]],
          device const float *alpha [[buffer(3)]],
          device const float *beta [[buffer(4)]],
          device const int *pos [[buffer(5)]],
          device const int *row_start [[buffer(6)]],
          device const int *tables [[buffer(7)]],
          device const float *decay [[buffer(8)]],
          device const float *dt_bias [[buffer(9)]],
          device const float *norm [[buffer(10)]],
          device const float *skip [[buffer(11)]],
          device float *blocks [[buffer(12)]],
          device float *out [[buffer(13)]],
          threadgroup float *shared [[threadgroup(0)]],
          uint2 group [[threadgroup_position_in_grid]],
          uint thread_index [[thread_index_in_threadgroup]],
          uint simdgroup [[simdgroup_index_in_threadgroup]],
          uint lane [[thread_index_in_simdgroup]]) {
    const sequence s = sequence_at(a.state, group.y, pos, row_start, tables);
    if (!s.valid) return;
    const uint v_head = group.x;
    const uint k_head = a.tiled ? v_head % a.n_k_heads : v_head / (a.n_v_heads / a.n_k_heads);
    head_rows h;
    h.channels = channels_of(a), h.cols = a.n_v_heads * V_DIM, h.k_cols = a.n_k_heads * K_DIM;
    h.n_v_heads = a.n_v_heads, h.decays = a.n_v_heads * DECAYS;
    h.k = work + ulong(s.first) * h.channels + first_k(a) + k_head * K_DIM;
    h.q = RULE ? h.k - h.k_cols : h.k + h.k_cols;
    h.v = work + ulong(s.first) * h.channels + (RULE ? 2 * h.k_cols : 0) + v_head * V_DIM;
    h.alpha = alpha + ulong(s.first) * h.decays + v_head * DECAYS;
    h.beta = beta + ulong(s.first) * a.n_v_heads + v_head;
    h.z = z + ulong(s.first) * h.cols + v_head * V_DIM;
    h.out = out + ulong(s.first) * h.cols + v_head * V_DIM;
    h.pending_k = blocks + s.live + a.state.k + k_head * K_DIM;
    h.pending_u = blocks + s.live + a.state.u + v_head * V_DIM;
    h.pending_g = blocks + s.live + a.state.g + v_head * DECAYS;
    h.a = decay[v_head], h.dt_bias = dt_bias + v_head * DECAYS, h.skip = RULE ? 0.0f : skip[v_head];
    tile t;
    t.g = shared, t.step = t.g + (CHANNELS ? ROWS * K_DIM : CHUNK);
    t.by_k = t.step + MAX_ROWS, t.by_q = t.by_k + ROWS * CHUNK;
    t.k = t.by_q + ROWS * CHUNK, t.q = t.k + ROWS * K_DIM, t.parts = t.q + ROWS * K_DIM;

    column c;
    c.col = thread_index % V_DIM, c.quarter = thread_index / V_DIM;
    const ulong state = (ulong(v_head) * K_DIM + c.quarter * STEP) * V_DIM + c.col;
#pragma unroll
    for (uint d = 0; d < MAX_STEP; d++)
        c.s[d] = d < STEP && s.pos >= CHUNK ? blocks[s.source + state + d * V_DIM] : 0.0f;
    for (uint row = 0; row < s.n;) {
        const uint from = (s.pos + row) % CHUNK, begin = row;
        uint at = from;
        if (!CHANNELS && simdgroup == 0 && lane < from)
            t.g[lane] = h.pending_g[ulong(lane) * h.n_v_heads];
        simdgroup_barrier(mem_flags::mem_threadgroup);
        while (at < CHUNK && row < s.n) {
            const uint n = min(min(ROWS, CHUNK - at), s.n - row);
            for (uint i = c.quarter; i < n; i += QUARTERS)
                for (uint d = c.col; d < K_DIM; d += V_DIM) {
                    t.k[i * K_DIM + d] = h.k[ulong(row + i) * h.channels + d];
                    t.q[i * K_DIM + d] = h.q[ulong(row + i) * h.channels + d];
                }
            if (thread_index < DECAYS) make_decays(h, t, row, at, n, thread_index);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            make_pairs(h, t, row, at, n, from, simdgroup, lane);
            if (CHANNELS) {
                threadgroup_barrier(mem_flags::mem_threadgroup);
                decay_rows(c, t, n);
                threadgroup_barrier(mem_flags::mem_threadgroup);
            }
            project(c, t, n);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (thread_index < V_DIM) make_column(h, t, row, at, n, c.col);
            threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
            store_rows(h, t, norm, a.eps, row, n, simdgroup, lane);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            row += n, at += n;
        }
        if (at < CHUNK) return;
        fold(h, t, c, begin, from);
        if (s.n - row >= CHUNK) continue; // another boundary follows
#pragma unroll
        for (uint d = 0; d < MAX_STEP; d++)
            if (d < STEP) blocks[s.live + state + d * V_DIM] = c.s[d];
    }
}

// out (n_rows, n_v_heads, V_DIM) f32 = norm * out / rms(out) by each of n_norm_groups equal groups
// of V heads; norm (n_v_heads, V_DIM) f32. Grid: (groups, rows); MARGS_DELTA_NORM threads.
kernel void mamba2_norm(constant margs_delta_net &a [[buffer(0)]],
                        device const float *norm [[buffer(1)]],
                        device float *out [[buffer(2)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float parts[SIMD_WIDTH];
    const uint n = a.n_v_heads / a.n_norm_groups * V_DIM, first = group.x * n;
    device float *x = out + ulong(group.y) * a.n_v_heads * V_DIM + first;
    float sum = 0.0f;
    for (uint d = thread_index; d < n; d += MARGS_DELTA_NORM)
        sum = fma(x[d], x[d], sum);
    sum = group_tree_sum(sum, parts, simdgroup, MARGS_DELTA_NORM / SIMD_WIDTH, lane);
    const float scale = 1.0f / sqrt(sum / float(n) + a.eps);
    for (uint d = thread_index; d < n; d += MARGS_DELTA_NORM)
        x[d] = x[d] * scale * norm[first + d];
}
