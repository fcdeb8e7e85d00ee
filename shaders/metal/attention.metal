// attention.metal - paged attention of single rows, the family on plain fma (flash decoding). Two
// passes: the first computes the chunks of a row in parallel, each for all query heads of a KV
// head, so that K and V are read once for all of them; the second merges the partial results of a
// row in ascending order.
#include "shaders/metal/attention.h"

constant uint HEADS [[function_constant(MARGS_ATTENTION_HEADS)]];
constant uint SIMDGROUPS [[function_constant(MARGS_ATTENTION_SIMDGROUPS)]];
constant uint BY_SEQ [[function_constant(MARGS_ATTENTION_BY_SEQ)]];
constant uint FINAL [[function_constant(MARGS_ATTENTION_FINAL)]];

#define MAX_HEADS   16
#define LANE_DIMS   2 /* adjacent, in a step of SIMD_WIDTH * LANE_DIMS dimensions */
#define STEP_DIMS   (SIMD_WIDTH * LANE_DIMS)
#define MAX_STEPS   (MAX_HEAD_DIM / STEP_DIMS)
#define N_STEPS     ((HEAD_DIM + STEP_DIMS - 1) / STEP_DIMS)
#define SCALE_STEP  (CHUNK * (HEAD_DIM / KV_SCALE_DIMS))
#define WHOLE_STEPS (HEAD_DIM % STEP_DIMS == 0)
#define STEP_SCALES (STEP_DIMS / KV_SCALE_DIMS)

// A lane's dimensions of each head: STEP_DIMS * step + LANE_DIMS * lane and the next one.
struct lane_values {
    float2 v[MAX_HEADS][MAX_STEPS];
};

// A task: one row and HEADS query heads of it from `head` on, of which n_heads exist.
struct row_task {
    uint row, seq, kv_head, head, n_heads;
    uint first_chunk, n_chunks; // visible ones
    key_range keys;
};

// The sequence of a row: the last one that begins at or before it.
static inline uint seq_of(device const int *row_start, uint n_seqs, uint row) {
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

// Returns false if the task has no row in this pass.
static inline bool find_task(constant args_attention &a,
                             uint index,
                             device const int *pos,
                             device const int *row_start,
                             thread row_task &t) {
    const uint task = a.first_task + index, slice = task % a.n_slices;
    const uint unit = task / a.n_slices / a.n_kv_heads;
    t.kv_head = task / a.n_slices % a.n_kv_heads;
    t.head = t.kv_head * GROUP + slice * HEADS;
    t.n_heads = min(HEADS, GROUP - slice * HEADS);
    t.seq = BY_SEQ ? unit : seq_of(row_start, a.n_seqs, unit);
    t.row = BY_SEQ ? uint(row_start[unit]) : unit;
    if (BY_SEQ && uint(row_start[unit + 1]) != t.row + 1) return false;
    t.keys = visible_keys(a, pos, row_start, t.seq, t.row);
    t.first_chunk = t.keys.first / CHUNK;
    // Positions at or beyond max_context must not write outside the buffer of partials.
    t.n_chunks = min(t.keys.last / CHUNK - t.first_chunk + 1, a.n_splits);
    return true;
}

// Dot products of four tokens, starting at token `first`, with all heads. The tokens lie in one
// block. q (HEADS, HEAD_DIM). run: of that block; token: index of the first token in it.
static inline void
make_dots(threadgroup const float *q, device const uchar *run, uint token, thread float4 *dots) {
    for (uint from = 0; from < HEAD_DIM; from += KV_SCALE_DIMS) {
        const uint end = min(from + KV_SCALE_DIMS, HEAD_DIM);
        float4 scale = 1.0f;
        if (KV_TYPE == QTYPE_Q8_0)
            scale = float4(((device const half4 *)run_scales(
                run))[(from / KV_SCALE_DIMS * BLOCK_TOKENS + token) / LANE_TOKENS]);
        for (uint d = from; d < end; d += 4) {
            float4 k[4];
#pragma unroll
            for (uint i = 0; i < 4; i++) {
                k[i] = kv_load4(KV_TYPE, run, (d + i) * BLOCK_TOKENS + token);
                if (KV_TYPE == QTYPE_Q8_0) k[i] *= scale;
            }
#pragma unroll
            for (uint h = 0; h < HEADS; h++) {
                const float4 qh = ((threadgroup const float4 *)q)[(h * HEAD_DIM + d) / 4];
#pragma unroll
                for (uint i = 0; i < 4; i++)
                    dots[h] = fma(float4(qh[i]), k[i], dots[h]);
            }
        }
    }
}

// The scales of V, (CHUNK, HEAD_DIM / 32), of the chunk's visible tokens.
static inline void load_scales(device const uchar *pool,
                               device const int *table,
                               uint first_pos,
                               thread const row_task &t,
                               uint n_kv_heads,
                               uint lane,
                               threadgroup half *scales) {
    const uint n = HEAD_DIM / KV_SCALE_DIMS;
    for (uint i = lane; i < SCALE_STEP; i += SIMD_WIDTH) {
        const uint pos = first_pos + i / n;
        if (is_visible(t.keys, pos))
            scales[i] = run_scales(
                pool + run_at(table, pos, n_kv_heads, t.kv_head))[pos % BLOCK_TOKENS * n + i % n];
    }
}

// Adds LANE_TOKENS tokens from position pos on to o. probs (HEADS, CHUNK) and scales (of V) begin
// at these tokens.
static inline void add_values(device const uchar *run,
                              uint pos,
                              key_range keys,
                              uint lane,
                              threadgroup const float *probs,
                              threadgroup const half *scales,
                              thread lane_values &o) {
    float2 v[MAX_STEPS][LANE_TOKENS];
    const uint pair = pos % BLOCK_TOKENS * (HEAD_DIM / LANE_DIMS) + lane;
    threadgroup const half *scale = scales + lane / (KV_SCALE_DIMS / LANE_DIMS);
#pragma unroll
    for (uint i = 0; i < LANE_TOKENS; i++) {
#pragma unroll
        for (uint step = 0; step < N_STEPS; step++)
            v[step][i] = 0.0f;
        if (!is_visible(keys, pos + i)) continue;
#pragma unroll
        for (uint step = 0; step < N_STEPS; step++) {
            if (!WHOLE_STEPS && step * STEP_DIMS + lane * LANE_DIMS >= HEAD_DIM) continue;
            v[step][i] =
                kv_load2(KV_TYPE, run, pair + i * (HEAD_DIM / LANE_DIMS) + step * SIMD_WIDTH);
            if (KV_TYPE == QTYPE_Q8_0)
                v[step][i] *= float(scale[i * (HEAD_DIM / KV_SCALE_DIMS) + step * STEP_SCALES]);
        }
    }
#pragma unroll
    for (uint h = 0; h < HEADS; h++) {
        const float4 w = *(threadgroup const float4 *)(probs + h * CHUNK);
#pragma unroll
        for (uint step = 0; step < N_STEPS; step++)
#pragma unroll
            for (uint i = 0; i < LANE_TOKENS; i++)
                o.v[h][step] = fma(float2(w[i]), v[step][i], o.v[h][step]);
    }
}

// Stores a lane's dimensions of one head, times factor, to (HEAD_DIM) f32.
static inline void store_lane(device float *to, thread const float2 *o, float factor, uint lane) {
#pragma unroll
    for (uint step = 0; step < N_STEPS; step++) {
        const uint d = step * STEP_DIMS + lane * LANE_DIMS;
        if (d < HEAD_DIM)
            ((device float2 *)to)[d / LANE_DIMS] = fma(o[step], float2(factor), float2(0.0f));
    }
}

// First pass. q (n_rows, n_heads, HEAD_DIM) f32; pos (n_rows), row_start (n_seqs + 1), tables
// (n_seqs, table_stride) i32; slopes (n_heads) f32. partials (tasks, HEADS, n_splits, HEAD_DIM)
// f32, split s holding chunk first_chunk + s; sums (tasks, HEADS, n_splits): their m and l. With
// FINAL, partials is out (n_rows, n_heads, HEAD_DIM). Grid: (groups of SIMDGROUPS splits, tasks).
// Threadgroup memory `shared`: q' (HEADS, HEAD_DIM); probabilities (SIMDGROUPS, HEADS, CHUNK);
// scales of Q8_0.
kernel void attention_decode(constant args_attention &a [[buffer(0)]],
                             device const float *q [[buffer(1)]],
                             device const int *pos [[buffer(2)]],
                             device const int *row_start [[buffer(3)]],
                             device const int *tables [[buffer(4)]],
                             device const uchar *k_pool [[buffer(5)]],
                             device const uchar *v_pool [[buffer(6)]],
                             device const float *sinks [[buffer(7)]],
                             device float *partials [[buffer(8)]],
                             device chunk_sum *sums [[buffer(9)]],
                             device const float *slopes [[buffer(10)]],
                             threadgroup float *shared [[threadgroup(0)]],
                             uint2 group [[threadgroup_position_in_grid]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]],
                             uint lane [[thread_index_in_simdgroup]]) {
    row_task t;
    if (!find_task(a, group.y, pos, row_start, t)) return;
    if (group.x * SIMDGROUPS >= t.n_chunks) return;
    device const float *from = q + (ulong(t.row) * a.n_heads + t.head) * HEAD_DIM;
    for (uint i = simdgroup * SIMD_WIDTH + lane; i < HEADS * HEAD_DIM; i += SIMDGROUPS * SIMD_WIDTH)
        shared[i] = i < t.n_heads * HEAD_DIM ? from[i] * a.q_scale : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint split = group.x * SIMDGROUPS + simdgroup;
    if (split >= t.n_chunks) return;

    threadgroup float *probs = shared + HEADS * HEAD_DIM + simdgroup * CHUNK * HEADS;
    threadgroup half *scales =
        (threadgroup half *)(shared + HEADS * HEAD_DIM + SIMDGROUPS * CHUNK * HEADS) +
        simdgroup * SCALE_STEP;
    device const int *table = tables + ulong(t.seq) * a.table_stride;
    const uint first_pos = (t.first_chunk + split) * CHUNK;
    const uint lane_pos = first_pos + lane * LANE_TOKENS;
    float4 dots[MAX_HEADS];
#pragma unroll
    for (uint h = 0; h < HEADS; h++)
        dots[h] = 0.0f;
    if (lane_pos <= t.keys.last && lane_pos + LANE_TOKENS > t.keys.first)
        make_dots(shared, k_pool + run_at(table, lane_pos, a.n_kv_heads, t.kv_head),
                  lane_pos % BLOCK_TOKENS, dots);
    if (KV_TYPE == QTYPE_Q8_0) load_scales(v_pool, table, first_pos, t, a.n_kv_heads, lane, scales);
    chunk_sum sum[MAX_HEADS];
#pragma unroll
    for (uint h = 0; h < HEADS; h++) {
        if (SLOPES && h < t.n_heads) lean(dots[h], lane_pos, uint(pos[t.row]), slopes[t.head + h]);
        sum[h] = chunk_probabilities(dots[h], lane_pos, t.keys, a.cap);
        ((threadgroup float4 *)(probs + h * CHUNK))[lane] = dots[h];
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);

    lane_values o;
#pragma unroll
    for (uint h = 0; h < HEADS; h++)
#pragma unroll
        for (uint step = 0; step < N_STEPS; step++)
            o.v[h][step] = 0.0f;
    const uint begin = max(first_pos, t.keys.first / LANE_TOKENS * LANE_TOKENS);
    const uint end = min(first_pos + CHUNK, t.keys.last + 1);
    for (uint p = begin; p < end; p += LANE_TOKENS)
        add_values(v_pool + run_at(table, p, a.n_kv_heads, t.kv_head), p, t.keys, lane,
                   probs + (p - first_pos), scales + (p - first_pos) * (HEAD_DIM / KV_SCALE_DIMS),
                   o);

#pragma unroll
    for (uint h = 0; h < HEADS; h++) {
        if (h >= t.n_heads) continue;
        const ulong at = (ulong(group.y) * HEADS + h) * a.n_splits + split;
        if (FINAL)
            store_lane(partials + (ulong(t.row) * a.n_heads + t.head + h) * HEAD_DIM, o.v[h],
                       final_factor(sum[h], SINKS ? sinks[t.head + h] : 0.0f), lane);
        else
            store_lane(partials + at * HEAD_DIM, o.v[h], 1.0f, lane);
        if (!FINAL && lane == 0) sums[at] = sum[h];
    }
}

// Second pass: merges the partials of the first into out (n_rows, n_heads, HEAD_DIM) f32. Grid:
// (HEADS, tasks), one simdgroup per head.
kernel void attention_reduce(constant args_attention &a [[buffer(0)]],
                             device const float *partials [[buffer(1)]],
                             device const chunk_sum *sums [[buffer(2)]],
                             device const int *pos [[buffer(3)]],
                             device const int *row_start [[buffer(4)]],
                             device const float *sinks [[buffer(5)]],
                             device float *out [[buffer(6)]],
                             uint2 group [[threadgroup_position_in_grid]],
                             uint lane [[thread_index_in_simdgroup]]) {
    row_task t;
    if (!find_task(a, group.y, pos, row_start, t) || group.x >= t.n_heads) return;
    const ulong at = (ulong(group.y) * HEADS + group.x) * a.n_splits;
    chunk_sum total = sums[at];
    float2 o[MAX_STEPS];
    for (uint split = 0; split < t.n_chunks; split++) {
        const merge f = merge_factors(total, sums[at + split], split == 0);
        device const float *from = partials + (at + split) * HEAD_DIM;
#pragma unroll
        for (uint step = 0; step < N_STEPS; step++) {
            const uint d = step * STEP_DIMS + lane * LANE_DIMS;
            if (d >= HEAD_DIM) continue;
            const float2 v = ((device const float2 *)from)[d / LANE_DIMS];
            o[step] = split == 0 ? v : fma(v, float2(f.add), o[step] * f.keep);
        }
    }
    store_lane(out + (ulong(t.row) * a.n_heads + t.head + group.x) * HEAD_DIM, o,
               final_factor(total, SINKS ? sinks[t.head + group.x] : 0.0f), lane);
}
