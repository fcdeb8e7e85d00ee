// delta_net.metal - the gated delta net over state blocks (op_linear_attention, core/backend/ops.h;
// blocks: state_layout.h). S of a head is DIM x DIM f32.
//
// Kernels: delta_conv, the convolution of each head of each row; delta_run, the rows of each V head
// of each sequence; delta_keep, what the next step reads of the inputs, which must not be written
// before all of them are read. If each sequence has one row (SINGLE), a channel's inputs are read
// by one lane of delta_conv, which keeps them as well: two dispatches.
//
// delta_run reads S into registers once, a column in the registers of QUARTERS threads, takes the
// rows in the order of their positions, adds the pending rows to S at each boundary and writes S
// once, at the last boundary of the step: a decode step between boundaries does not write it.
//
// ORDER OF SUMS: S^T x in four quarters of the dimensions, ascending in each, then (0 + 1) + (2 +
// 3); over pending rows ascending; dot products by the lanes of a simdgroup, dimensions ascending
// in each, then simd_tree_sum. Every product that is added to something is an fma. So a row's bits
// do not depend on how its sequence was cut into steps.
//
// BYTES that a decode step between boundaries moves at least, in units of 4: the taps, channels *
// TAPS, once, and of each sequence with P pending rows
//   n_v_heads * DIM^2                                 S is read
//   (P + 1) * ((n_k_heads + n_v_heads) * DIM + n_v_heads)   pending K, U and G; one row is written
//   channels * 2 * (TAPS - 1)                         recent inputs, read and written
//   channels * 3 + n_v_heads * (2 * DIM + 2)          qkv; work, twice; z, out, alpha, beta
// The caches serve what is read twice: K by the V heads of a K head, work likewise. In a step of n
// rows S is still read once, and written once if the step crosses a boundary.
#include "shaders/args_attention.h"
#include "shaders/metal/sums.h"

// Function constants: enum margs_delta_const (shaders/args_attention.h).
constant uint DIM [[function_constant(MARGS_DELTA_DIM)]];
constant uint CHUNK [[function_constant(MARGS_DELTA_CHUNK)]];
constant uint TAPS [[function_constant(MARGS_DELTA_TAPS)]];
constant uint SINGLE [[function_constant(MARGS_DELTA_SINGLE)]];

#define MAX_DIM    MARGS_DELTA_MAX_DIM
#define MAX_TAPS   MARGS_DELTA_MAX_TAPS
#define SIMDGROUPS MARGS_DELTA_SIMDGROUPS
#define QUARTERS   MARGS_DELTA_QUARTERS
#define MAX_STEP   (MAX_DIM / QUARTERS)
#define STEP       (DIM / QUARTERS) /* dimensions of a quarter: a multiple of 4 */
#define MAX_ROWS   MARGS_DELTA_ROWS
#define ROWS       (SINGLE ? 1u : uint(MAX_ROWS)) /* of a tile */
#define FOLD       MARGS_DELTA_FOLD

// ---- sequences ----

// The rows of a sequence in this step and where its state blocks begin, in floats.
struct sequence {
    uint first, n, pos; // of the first row
    ulong source, live;
    bool valid; // the blocks exist
};

static inline sequence sequence_at(constant margs_delta_net &a,
                                   uint index,
                                   device const int *pos,
                                   device const int *row_start,
                                   device const int *tables) {
    sequence s;
    const uint source = uint(tables[2 * index]), live = uint(tables[2 * index + 1]);
    s.first = uint(row_start[index]);
    s.n = uint(row_start[index + 1]) - s.first;
    s.pos = uint(pos[s.first]);
    s.source = source * a.state.end;
    s.live = live * a.state.end;
    s.valid = source < a.state.n_blocks && live < a.state.n_blocks;
    return s;
}

// The sequence of a row: the last one that begins at or before it.
static inline uint sequence_of(device const int *row_start, uint n_seqs, uint row) {
    uint from = 0, end = n_seqs;
    while (from + 1 < end) {
        const uint middle = (from + end) / 2;
        if (uint(row_start[middle]) <= row)
            from = middle;
        else
            end = middle;
    }
    return from;
}

static inline uint channels_of(constant margs_delta_net &a) {
    return (2 * a.n_k_heads + a.n_v_heads) * DIM;
}

// ---- the convolution ----

// Input `index` of channel c, counted from the sequence's first row in this step; below 0 the state
// blocks hold it.
static inline float input_at(constant margs_delta_net &a,
                             thread const sequence &s,
                             device const float *qkv,
                             device const float *blocks,
                             int index,
                             uint c) {
    if (index >= 0) return qkv[ulong(s.first + uint(index)) * channels_of(a) + c];
    if (s.pos == 0) return 0.0f;
    const ulong window = s.pos % CHUNK != 0 ? s.live + a.state.recent : s.source + a.state.tail;
    return blocks[window + ulong(uint(int(TAPS) - 1 + index)) * channels_of(a) + c];
}

// qkv, work (n_rows, channels) f32; conv (channels, TAPS) f32; pos (n_rows), row_start (n_seqs +
// 1), tables (n_seqs, 2) i32; blocks (n_blocks, end) f32, written only if SINGLE. Grid: (groups of
// SIMDGROUPS heads of Q, K and V, rows), one simdgroup per head.
kernel void delta_conv(constant margs_delta_net &a [[buffer(0)]],
                       device const float *qkv [[buffer(1)]],
                       device const float *conv [[buffer(2)]],
                       device const int *pos [[buffer(3)]],
                       device const int *row_start [[buffer(4)]],
                       device const int *tables [[buffer(5)]],
                       device float *blocks [[buffer(6)]],
                       device float *work [[buffer(7)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
    const uint head = group.x * SIMDGROUPS + simdgroup, row = group.y;
    const uint index = SINGLE ? row : sequence_of(row_start, a.state.n_seqs, row);
    const sequence s = sequence_at(a, index, pos, row_start, tables);
    if (head >= 2 * a.n_k_heads + a.n_v_heads || !s.valid) return;
    const uint channels = channels_of(a), end = s.pos + row - s.first + 1;
    float y[MAX_DIM / SIMD_WIDTH], sum = 0.0f;
#pragma unroll
    for (uint i = 0; i < MAX_DIM / SIMD_WIDTH; i++) {
        const uint d = i * SIMD_WIDTH + lane, c = head * DIM + d;
        y[i] = 0.0f;
        if (d >= DIM) continue;
        float in[MAX_TAPS];
#pragma unroll
        for (uint t = 0; t < MAX_TAPS; t++) {
            if (t >= TAPS) continue;
            in[t] = input_at(a, s, qkv, blocks, int(row - s.first + t + 1) - int(TAPS), c);
            y[i] = fma(conv[c * TAPS + t], in[t], y[i]);
        }
        y[i] /= 1.0f + precise::exp(-y[i]);
        sum = fma(y[i], y[i], sum);
#pragma unroll
        for (uint t = 0; t + 1 < MAX_TAPS; t++) {
            if (!SINGLE || t + 1 >= TAPS) continue;
            const ulong at = s.live + ulong(t) * channels + c;
            blocks[at + a.state.recent] = in[t + 1];
            if (end % CHUNK == 0) blocks[at + a.state.tail] = in[t + 1];
        }
    }
    sum = simd_tree_sum(sum);
    const bool is_q = head < a.n_k_heads, is_k = !is_q && head < 2 * a.n_k_heads;
    const float scale = is_q || is_k ? (is_q ? a.q_scale : 1.0f) / sqrt(sum + 1e-6f) : 1.0f;
    const ulong pending =
        s.live + a.state.k + (ulong(s.pos % CHUNK) * a.n_k_heads + (head - a.n_k_heads)) * DIM;
#pragma unroll
    for (uint i = 0; i < MAX_DIM / SIMD_WIDTH; i++) {
        const uint d = i * SIMD_WIDTH + lane;
        if (d >= DIM) continue;
        const float v = y[i] * scale;
        work[ulong(row) * channels + head * DIM + d] = v;
        if (SINGLE && is_k && end % CHUNK != 0) blocks[pending + d] = v;
    }
}

// After a step with more than one row of a sequence. The buffers are delta_conv's. Grid: (groups of
// SIMDGROUPS heads of Q, K and V, sequences), one simdgroup per head.
kernel void delta_keep(constant margs_delta_net &a [[buffer(0)]],
                       device const float *qkv [[buffer(1)]],
                       device const int *pos [[buffer(2)]],
                       device const int *row_start [[buffer(3)]],
                       device const int *tables [[buffer(4)]],
                       device const float *work [[buffer(5)]],
                       device float *blocks [[buffer(6)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
    const uint head = group.x * SIMDGROUPS + simdgroup, channels = channels_of(a);
    const sequence s = sequence_at(a, group.y, pos, row_start, tables);
    if (head >= 2 * a.n_k_heads + a.n_v_heads || !s.valid) return;
    const uint end = s.pos + s.n, boundary = end - end % CHUNK;
    const bool crosses = boundary > s.pos;
    const bool is_k = head >= a.n_k_heads && head < 2 * a.n_k_heads;
    for (uint d = lane; d < DIM; d += SIMD_WIDTH) {
        const uint c = head * DIM + d;
        // All are read before any is written: both windows may be read and written.
        float tail[MAX_TAPS - 1], recent[MAX_TAPS - 1];
#pragma unroll
        for (uint t = 0; t + 1 < MAX_TAPS; t++) {
            const int back = int(t) + 1 - int(TAPS);
            if (t + 1 >= TAPS) continue;
            recent[t] = input_at(a, s, qkv, blocks, int(s.n) + back, c);
            if (crosses) tail[t] = input_at(a, s, qkv, blocks, int(boundary - s.pos) + back, c);
        }
#pragma unroll
        for (uint t = 0; t + 1 < MAX_TAPS; t++) {
            const ulong at = s.live + ulong(t) * channels + c;
            if (t + 1 >= TAPS) continue;
            blocks[at + a.state.recent] = recent[t];
            if (crosses) blocks[at + a.state.tail] = tail[t];
        }
        for (uint p = crosses ? boundary : s.pos; is_k && p < end; p++)
            blocks[s.live + a.state.k +
                   (ulong(p % CHUNK) * a.n_k_heads + (head - a.n_k_heads)) * DIM + d] =
                work[ulong(s.first + p - s.pos) * channels + c];
    }
}

// ---- the rows of a head ----

// One V head of one sequence: pointers to its part of the sequence's first row, and of the live
// block. Row r is at r * channels, r * n_v_heads or r * cols.
struct head_rows {
    device const float *q, *k, *v;    // channels
    device const float *alpha, *beta; // n_v_heads
    device const float *z;            // cols
    device float *out;                // cols
    device const float *pending_k;    // (CHUNK, k_cols)
    device float *pending_u;          // (CHUNK, cols)
    device float *pending_g;          // (CHUNK, n_v_heads)
    uint channels, cols, k_cols, n_v_heads;
    float a, dt_bias;
};

// Threadgroup memory.
struct tile {
    threadgroup float *k, *q; // (ROWS, DIM)
    threadgroup float *parts; // (QUARTERS, 2 * ROWS, DIM): of S^T k and S^T q; first part: then o
    threadgroup float *g;     // (CHUNK) sums since the boundary
    threadgroup float *beta;  // (ROWS)
    threadgroup float *by_k, *by_q; // (ROWS, CHUNK) e^(G[i] - G[j]) times k[j].k[i], k[j].q[i]
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

// Sums of the logarithms of decays, and betas, of n rows from offset `at` of the chunk on.
static inline void
make_decays(thread const head_rows &h, thread const tile &t, uint row, uint at, uint n) {
    float g = at == 0 ? 0.0f : t.g[at - 1];
    for (uint i = 0; i < n; i++) {
        const ulong from = ulong(row + i) * h.n_v_heads;
        g = fma(h.a, softplus(h.alpha[from] + h.dt_bias), g);
        t.g[at + i] = g;
        h.pending_g[ulong(at + i) * h.n_v_heads] = g;
        t.beta[i] = 1.0f / (1.0f + precise::exp(-h.beta[from]));
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
            const uint at = (i * DIM + c.quarter * STEP + d) / 4;
            const float4 k = ((threadgroup const float4 *)t.k)[at];
            const float4 q = ((threadgroup const float4 *)t.q)[at];
            by_k[i] = fma(c.s[d], k.x, by_k[i]), by_q[i] = fma(c.s[d], q.x, by_q[i]);
            by_k[i] = fma(c.s[d + 1], k.y, by_k[i]), by_q[i] = fma(c.s[d + 1], q.y, by_q[i]);
            by_k[i] = fma(c.s[d + 2], k.z, by_k[i]), by_q[i] = fma(c.s[d + 2], q.z, by_q[i]);
            by_k[i] = fma(c.s[d + 3], k.w, by_k[i]), by_q[i] = fma(c.s[d + 3], q.w, by_q[i]);
        }
    }
#pragma unroll
    for (uint i = 0; i < MAX_ROWS; i++) {
        if (i >= ROWS || i >= n) continue;
        t.parts[((c.quarter * ROWS + i) * 2) * DIM + c.col] = by_k[i];
        t.parts[((c.quarter * ROWS + i) * 2 + 1) * DIM + c.col] = by_q[i];
    }
}

// Products of the chunk's rows of K with K and Q of n rows: a simdgroup for each row of K.
static inline void make_pairs(thread const head_rows &h,
                              thread const tile &t,
                              uint row,
                              uint at,
                              uint n,
                              uint from,
                              uint simdgroup,
                              uint lane) {
    const uint before = row - (at - from); // the step's row at offset `from`
    for (uint j = simdgroup; j < at + n; j += DIM * QUARTERS / SIMD_WIDTH) {
        float k[MAX_DIM / SIMD_WIDTH];
#pragma unroll
        for (uint s = 0; s < MAX_DIM / SIMD_WIDTH; s++) {
            const uint d = s * SIMD_WIDTH + lane;
            k[s] = d >= DIM ? 0.0f : j < at ? k_at(h, j, from, before)[d] : t.k[(j - at) * DIM + d];
        }
        for (uint i = j < at ? 0 : j - at; i < n; i++) {
            float by_k = 0.0f, by_q = 0.0f;
#pragma unroll
            for (uint s = 0; s < MAX_DIM / SIMD_WIDTH; s++) {
                const uint d = s * SIMD_WIDTH + lane;
                if (d >= DIM) continue;
                by_k = fma(k[s], t.k[i * DIM + d], by_k);
                by_q = fma(k[s], t.q[i * DIM + d], by_q);
            }
            by_k = simd_tree_sum(by_k);
            by_q = simd_tree_sum(by_q);
            const float near = precise::exp(t.g[at + i] - t.g[j]);
            if (lane == 0) t.by_k[i * CHUNK + j] = near * by_k, t.by_q[i * CHUNK + j] = near * by_q;
        }
    }
}

// (0 + 1) + (2 + 3) of the parts of vector v.
static inline float sum_parts(thread const tile &t, uint v, uint col) {
    const uint at = v * DIM + col, next = 2 * ROWS * DIM;
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
        const float far = precise::exp(t.g[at + i]);
        u[i] = fma(-far, sum_parts(t, 2 * i, col), h.v[ulong(row + i) * h.channels + col]);
        o[i] = far * sum_parts(t, 2 * i + 1, col);
    }
    for (uint j = 0; j < at; j++) {
        const float before = h.pending_u[ulong(j) * h.cols + col];
#pragma unroll
        for (uint i = 0; i < MAX_ROWS; i++) {
            if (i >= ROWS || i >= n) continue;
            u[i] = fma(-t.by_k[i * CHUNK + j], before, u[i]);
            o[i] = fma(t.by_q[i * CHUNK + j], before, o[i]);
        }
    }
#pragma unroll
    for (uint i = 0; i < MAX_ROWS; i++) {
        if (i >= ROWS || i >= n) continue;
#pragma unroll
        for (uint j = 0; j < MAX_ROWS; j++) {
            if (j >= i) continue;
            u[i] = fma(-t.by_k[i * CHUNK + at + j], u[j], u[i]);
            o[i] = fma(t.by_q[i * CHUNK + at + j], u[j], o[i]);
        }
        u[i] *= t.beta[i];
        h.pending_u[ulong(at + i) * h.cols + col] = u[i];
        t.parts[(2 * i + 1) * DIM + col] = fma(t.by_q[i * CHUNK + at + i], u[i], o[i]);
    }
}

// The norm and gate of n rows: a simdgroup for each.
static inline void store_rows(thread const head_rows &h,
                              thread const tile &t,
                              device const float *norm,
                              float eps,
                              uint row,
                              uint n,
                              uint simdgroup,
                              uint lane) {
    for (uint i = simdgroup; i < n; i += DIM * QUARTERS / SIMD_WIDTH) {
        threadgroup const float *o = t.parts + (2 * i + 1) * DIM;
        const ulong at = ulong(row + i) * h.cols;
        float sum = 0.0f;
        for (uint d = lane; d < DIM; d += SIMD_WIDTH)
            sum = fma(o[d], o[d], sum);
        const float scale = 1.0f / sqrt(simd_tree_sum(sum) / float(DIM) + eps);
        for (uint d = lane; d < DIM; d += SIMD_WIDTH) {
            const float z = h.z[at + d];
            h.out[at + d] = o[d] * scale * norm[d] * (z / (1.0f + precise::exp(-z)));
        }
    }
}

// Adds a whole chunk to S. Its first `from` rows were pending, the next is row `row` of the step.
static inline void
fold(thread const head_rows &h, thread const tile &t, thread column &c, uint row, uint from) {
    threadgroup float *k = t.k; // (FOLD, DIM): a tile has (2 + 2 * QUARTERS) * ROWS rows
    const float last = t.g[CHUNK - 1], far = precise::exp(last);
#pragma unroll
    for (uint d = 0; d < MAX_STEP; d++)
        c.s[d] *= far;
    for (uint first = 0; first < CHUNK; first += FOLD) {
        for (uint j = first + c.quarter; j < first + FOLD; j += QUARTERS)
            k[(j - first) * DIM + c.col] =
                precise::exp(last - t.g[j]) * k_at(h, j, from, row)[c.col];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint j = 0; j < FOLD; j++) {
            const float u = h.pending_u[ulong(first + j) * h.cols + c.col];
#pragma unroll
            for (uint d = 0; d < MAX_STEP; d += 4) {
                if (d >= STEP) continue;
                const float4 x =
                    ((threadgroup const float4 *)k)[(j * DIM + c.quarter * STEP + d) / 4];
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

// work (n_rows, channels), z, out (n_rows, n_v_heads, DIM), alpha, beta (n_rows, n_v_heads) f32;
// pos (n_rows), row_start (n_seqs + 1), tables (n_seqs, 2) i32; decay, dt_bias (n_v_heads), norm
// (DIM) f32; blocks (n_blocks, end) f32. Grid: (V heads, sequences); QUARTERS * DIM threads.
// Threadgroup memory `shared`: struct tile.
[[max_total_threads_per_threadgroup(QUARTERS * MAX_DIM)]] kernel void
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
          device float *blocks [[buffer(11)]],
          device float *out [[buffer(12)]],
          threadgroup float *shared [[threadgroup(0)]],
          uint2 group [[threadgroup_position_in_grid]],
          uint thread_index [[thread_index_in_threadgroup]],
          uint simdgroup [[simdgroup_index_in_threadgroup]],
          uint lane [[thread_index_in_simdgroup]]) {
    const sequence s = sequence_at(a, group.y, pos, row_start, tables);
    if (!s.valid) return;
    const uint v_head = group.x;
    const uint k_head = a.tiled ? v_head % a.n_k_heads : v_head / (a.n_v_heads / a.n_k_heads);
    head_rows h;
    h.channels = channels_of(a), h.cols = a.n_v_heads * DIM, h.k_cols = a.n_k_heads * DIM;
    h.n_v_heads = a.n_v_heads;
    h.q = work + ulong(s.first) * h.channels + k_head * DIM;
    h.k = h.q + h.k_cols;
    h.v = work + ulong(s.first) * h.channels + 2 * h.k_cols + v_head * DIM;
    h.alpha = alpha + ulong(s.first) * a.n_v_heads + v_head;
    h.beta = beta + ulong(s.first) * a.n_v_heads + v_head;
    h.z = z + ulong(s.first) * h.cols + v_head * DIM;
    h.out = out + ulong(s.first) * h.cols + v_head * DIM;
    h.pending_k = blocks + s.live + a.state.k + k_head * DIM;
    h.pending_u = blocks + s.live + a.state.u + v_head * DIM;
    h.pending_g = blocks + s.live + a.state.g + v_head;
    h.a = decay[v_head], h.dt_bias = dt_bias[v_head];
    tile t;
    t.k = shared, t.q = t.k + ROWS * DIM, t.parts = t.q + ROWS * DIM;
    t.g = t.parts + QUARTERS * 2 * ROWS * DIM, t.beta = t.g + CHUNK;
    t.by_k = t.beta + ROWS, t.by_q = t.by_k + ROWS * CHUNK;

    column c;
    c.col = thread_index % DIM, c.quarter = thread_index / DIM;
    const ulong state = ulong(v_head) * DIM * DIM + c.quarter * STEP * DIM + c.col;
#pragma unroll
    for (uint d = 0; d < MAX_STEP; d++)
        c.s[d] = d < STEP && s.pos >= CHUNK ? blocks[s.source + state + d * DIM] : 0.0f;
    for (uint row = 0; row < s.n;) {
        const uint from = (s.pos + row) % CHUNK, begin = row;
        uint at = from;
        if (simdgroup == 0 && lane < from) t.g[lane] = h.pending_g[ulong(lane) * h.n_v_heads];
        simdgroup_barrier(mem_flags::mem_threadgroup);
        while (at < CHUNK && row < s.n) {
            const uint n = min(min(ROWS, CHUNK - at), s.n - row);
            for (uint i = c.quarter; i < n; i += QUARTERS) {
                t.k[i * DIM + c.col] = h.k[ulong(row + i) * h.channels + c.col];
                t.q[i * DIM + c.col] = h.q[ulong(row + i) * h.channels + c.col];
            }
            if (thread_index == 0) make_decays(h, t, row, at, n);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            make_pairs(h, t, row, at, n, from, simdgroup, lane);
            project(c, t, n);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (thread_index < DIM) make_column(h, t, row, at, n, c.col);
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
            if (d < STEP) blocks[s.live + state + d * DIM] = c.s[d];
    }
}
