// attention_matrix.metal - paged attention of sequences with several rows, on the tiles of tile.h.
// A threadgroup has a tile of ROWS queries of one KV head (the queries of a sequence are its rows
// times GROUP heads) and loops over the chunks that any of them sees. Three phases per chunk:
//   scores         each simdgroup: a quarter of the chunk's tokens, for all queries
//   probabilities  each simdgroup: a quarter of the queries, four tokens per lane, as in
//     attention.metal
//   values         each simdgroup: a quarter of the dimensions, for all queries
// K and V are decoded into the threadgroup memory of the simdgroup that needs them, one step at a
// time; the loads of the next step are issued before the current one is computed.
#include "shaders/metal/attention.h"
#include "shaders/metal/tile.h"

constant uint ROWS [[function_constant(MARGS_ATTENTION_ROWS)]];
constant uint MIN_ROWS [[function_constant(MARGS_ATTENTION_MIN_ROWS)]];
constant uint HALVES [[function_constant(MARGS_ATTENTION_HALVES)]];

#define SIMDGROUPS 4
#define MAX_ROWS   16
#define ROW_TILES  (ROWS / 8)
#define MAX_TILES  (MAX_ROWS / 8)
#define SPAN       TILE_COLS /* tokens or dimensions of a simdgroup at a time */
/* F16 stays as it is, which is exact. */
#define IN_HALVES (HALVES && KV_TYPE == QTYPE_F16)
/* Dimensions of K or tokens of V in threadgroup memory at a time: 1 KB. */
#define STEP        (IN_HALVES ? 16u : 8u)
#define LANE_VALUES 4 /* of one load; a lane's part of a step is LANE_LOADS loads */
#define LANE_LOADS  (SPAN * STEP / SIMD_WIDTH / LANE_VALUES)
#define MAX_LOADS   4
#define STAGE       256 /* floats of threadgroup memory of a simdgroup */
#define SPAN_LANES  (SPAN / LANE_VALUES)
#define Q_DIM       ((HEAD_DIM + 7) / 8 * 8) /* of a query with zeros behind it: whole matrices */
#define SIMD_DIMS   ((Q_DIM / 8 + SIMDGROUPS - 1) / SIMDGROUPS * 8)
#define N_SPANS     ((SIMD_DIMS + SPAN - 1) / SPAN)
#define MAX_SPANS   (MAX_HEAD_DIM / SPAN / SIMDGROUPS)

struct tile_sums {
    tile m[MAX_TILES]; // (ROWS, SPAN)
};

// A lane's part of a step, in registers between load and store.
struct lane_step {
    float4 v[MAX_LOADS];
};

// One query of the tile.
struct query_state {
    key_range keys;
    uint pos; // of its row
    float slope;
    uint in_chunk; // whether any token of the current chunk is visible
    // Merge factors of the chunk; after the last chunk keep is the factor of the result.
    float keep, add;
};

// A tile's queries, and the union of the positions that they see.
struct tile_at {
    uint seq, kv_head;
    uint row;              // the sequence's first
    uint query, n_queries; // the tile's first; how many it has
    key_range keys;
};

static inline void clear(thread tile_sums &acc) {
#pragma unroll
    for (uint i = 0; i < ROW_TILES; i++)
        tile_clear(acc.m[i]);
}

static inline void store(thread tile_sums &acc, threadgroup float *to, uint stride, uint lane) {
#pragma unroll
    for (uint i = 0; i < ROW_TILES; i++)
        tile_store(acc.m[i], to + i * 8 * stride, stride, lane);
}

// acc += a * b. a (ROWS, 8) with row stride `stride`; b (8, SPAN), of which n_cols columns are
// used: rows of the step from `first` on.
static inline void multiply(thread tile_sums &acc,
                            threadgroup const float *a,
                            uint stride,
                            threadgroup const float *stage,
                            uint first,
                            uint n_cols,
                            uint lane) {
    threadgroup const float *b = stage + first * SPAN;
    threadgroup const half *h = (threadgroup const half *)stage + first * SPAN;
    if (ROWS == 8 && IN_HALVES) tile_multiply<1, false>(acc.m, a, stride, h, n_cols, lane);
    if (ROWS == 8 && !IN_HALVES) tile_multiply<1, false>(acc.m, a, stride, b, n_cols, lane);
    if (ROWS == 16 && IN_HALVES) tile_multiply<2, false>(acc.m, a, stride, h, n_cols, lane);
    if (ROWS == 16 && !IN_HALVES) tile_multiply<2, false>(acc.m, a, stride, b, n_cols, lane);
}

// Stores a step, (STEP, SPAN), after all lanes have read the previous one; all lanes may read it on
// return.
static inline void put_step(thread const lane_step &s, threadgroup float *stage, uint lane) {
    simdgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint i = 0; i < LANE_LOADS; i++) {
        if (IN_HALVES)
            ((threadgroup half4 *)stage)[i * SIMD_WIDTH + lane] = half4(s.v[i]);
        else
            ((threadgroup float4 *)stage)[i * SIMD_WIDTH + lane] = s.v[i];
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
}

// Finds tile `index`. Returns false if there are fewer tiles.
static inline bool
find_tile(constant args_attention &a, uint index, device const int *row_start, thread tile_at &t) {
    for (t.seq = 0; t.seq < a.n_seqs; t.seq++) {
        const uint n_rows = uint(row_start[t.seq + 1] - row_start[t.seq]);
        const uint n_tiles = n_rows < MIN_ROWS ? 0 : (n_rows * GROUP + ROWS - 1) / ROWS;
        if (index < n_tiles) {
            t.row = uint(row_start[t.seq]);
            t.query = index * ROWS;
            t.n_queries = min(ROWS, n_rows * GROUP - t.query);
            return true;
        }
        index -= n_tiles;
    }
    return false;
}

// Loads the tile's queries as q' (ROWS, Q_DIM), padded with zeros, and the positions visible to
// each.
static inline void load_queries(constant args_attention &a,
                                device const float *q,
                                device const int *pos,
                                device const int *row_start,
                                device const float *slopes,
                                thread tile_at &t,
                                threadgroup float *to,
                                threadgroup query_state *queries,
                                uint thread_index) {
    for (uint i = thread_index; i < ROWS * Q_DIM; i += SIMDGROUPS * SIMD_WIDTH) {
        const uint at = t.query + i / Q_DIM, d = i % Q_DIM;
        const ulong head = ulong(t.row + at / GROUP) * a.n_heads + t.kv_head * GROUP + at % GROUP;
        const bool there = i / Q_DIM < t.n_queries && d < HEAD_DIM;
        to[i] = there ? q[head * HEAD_DIM + d] * a.q_scale : 0.0f;
    }
    if (thread_index < ROWS) {
        key_range keys;
        keys.first = UINT_MAX, keys.last = 0;
        if (thread_index < t.n_queries) {
            const uint at = t.query + thread_index, row = t.row + at / GROUP;
            keys = visible_keys(a, pos, row_start, t.seq, row);
            queries[thread_index].pos = uint(pos[row]);
            if (SLOPES) queries[thread_index].slope = slopes[t.kv_head * GROUP + at % GROUP];
        }
        queries[thread_index].keys = keys;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    t.keys = queries[0].keys;
    for (uint i = 1; i < t.n_queries; i++) {
        t.keys.first = min(t.keys.first, queries[i].keys.first);
        t.keys.last = max(t.keys.last, queries[i].keys.last);
    }
}

// ---- scores ----

// Dimensions of a lane's four tokens, from d on; 0 where no query sees the tokens.
static inline void
load_k(device const uchar *run, bool visible, uint token, uint d, uint lane, thread lane_step &s) {
#pragma unroll
    for (uint i = 0; i < LANE_LOADS; i++) {
        const uint at = d + i * (SIMD_WIDTH / SPAN_LANES) + lane / SPAN_LANES;
        s.v[i] = 0.0f;
        if (!visible || at >= HEAD_DIM) continue;
        s.v[i] = kv_load4(KV_TYPE, run, at * BLOCK_TOKENS + token);
        if (KV_TYPE == QTYPE_Q8_0)
            s.v[i] *= float4(((device const half4 *)run_scales(
                run))[(d / KV_SCALE_DIMS * BLOCK_TOKENS + token) / LANE_VALUES]);
    }
}

// acc = q' * K^T for SPAN tokens from position `first` on.
static inline void make_scores(thread const tile_at &t,
                               device const uchar *pool,
                               device const int *table,
                               uint n_kv_heads,
                               uint first,
                               threadgroup const float *q,
                               threadgroup float *stage,
                               uint lane,
                               thread tile_sums &acc) {
    const uint pos = first + lane % SPAN_LANES * LANE_VALUES;
    const bool visible = pos <= t.keys.last && pos + LANE_VALUES > t.keys.first;
    device const uchar *run = visible ? pool + run_at(table, pos, n_kv_heads, t.kv_head) : pool;
    lane_step next;
    clear(acc);
    if (first > t.keys.last || first + SPAN <= t.keys.first) return;
    load_k(run, visible, pos % BLOCK_TOKENS, 0, lane, next);
    for (uint d = 0; d < HEAD_DIM; d += STEP) {
        put_step(next, stage, lane);
        if (d + STEP < HEAD_DIM) load_k(run, visible, pos % BLOCK_TOKENS, d + STEP, lane, next);
        for (uint i = 0; i < STEP && d + i < HEAD_DIM; i += 8)
            multiply(acc, q + d + i, Q_DIM, stage, i, SPAN, lane);
    }
}

// ---- probabilities ----

// Turns the scores of one query, (CHUNK), into probabilities and merges the chunk into total.
static inline void make_probabilities(threadgroup float *scores,
                                      uint chunk,
                                      threadgroup query_state &query,
                                      float cap,
                                      uint lane,
                                      thread chunk_sum &total) {
    const key_range keys = query.keys;
    const bool in_chunk = chunk_is_visible(keys, chunk);
    float4 probs = 0.0f;
    merge f;
    f.keep = 1.0f, f.add = 0.0f;
    if (in_chunk) {
        probs = ((threadgroup float4 *)scores)[lane];
        if (SLOPES) lean(probs, chunk * CHUNK + lane * LANE_TOKENS, query.pos, query.slope);
        const chunk_sum sum =
            chunk_probabilities(probs, chunk * CHUNK + lane * LANE_TOKENS, keys, cap);
        f = merge_factors(total, sum, chunk == keys.first / CHUNK);
    }
    ((threadgroup float4 *)scores)[lane] = probs;
    if (lane == 0) query.in_chunk = in_chunk, query.keep = f.keep, query.add = f.add;
}

// ---- values ----

// A range of the dimensions that the simdgroup sums.
struct dims {
    uint first, end;
};

// Dimensions d of the tokens from position pos on; 0 where no query sees a token.
static inline void load_v(thread const tile_at &t,
                          device const uchar *pool,
                          device const int *table,
                          uint n_kv_heads,
                          uint pos,
                          dims d,
                          uint lane,
                          thread lane_step &s) {
    const uint at = d.first + lane % SPAN_LANES * LANE_VALUES;
#pragma unroll
    for (uint i = 0; i < LANE_LOADS; i++) {
        const uint p = pos + i * (SIMD_WIDTH / SPAN_LANES) + lane / SPAN_LANES;
        s.v[i] = 0.0f;
        if (!is_visible(t.keys, p) || at >= d.end) continue;
        device const uchar *run = pool + run_at(table, p, n_kv_heads, t.kv_head);
        const uint token = p % BLOCK_TOKENS;
        s.v[i] = kv_load4(KV_TYPE, run, token * HEAD_DIM + at);
        if (KV_TYPE == QTYPE_Q8_0)
            s.v[i] *=
                float(run_scales(run)[token * (HEAD_DIM / KV_SCALE_DIMS) + at / KV_SCALE_DIMS]);
    }
}

// acc = probs (ROWS, CHUNK) * V, for dimensions d.
static inline void sum_values(thread const tile_at &t,
                              device const uchar *pool,
                              device const int *table,
                              uint n_kv_heads,
                              uint chunk,
                              dims d,
                              threadgroup const float *probs,
                              threadgroup float *stage,
                              uint lane,
                              thread tile_sums &acc) {
    const uint begin = chunk * CHUNK, end = min(begin + CHUNK, t.keys.last + 1);
    const uint n_cols = min(uint(SPAN), (d.end - d.first + 7) / 8 * 8);
    uint pos = max(begin, t.keys.first / STEP * STEP);
    lane_step next;
    clear(acc);
    load_v(t, pool, table, n_kv_heads, pos, d, lane, next);
    for (; pos < end; pos += STEP) {
        put_step(next, stage, lane);
        if (pos + STEP < end) load_v(t, pool, table, n_kv_heads, pos + STEP, d, lane, next);
        for (uint i = 0; i < STEP; i += 8)
            multiply(acc, probs + pos - begin + i, CHUNK, stage, i, n_cols, lane);
    }
}

// Merges the acc of the chunk into o (ROWS) of a lane's dimension, through stage, eight
// rows at a time.
static inline void merge_values(thread tile_sums &acc,
                                threadgroup const query_state *queries,
                                threadgroup float *stage,
                                uint lane,
                                thread float *o) {
#pragma unroll
    for (uint r = 0; r < ROW_TILES; r++) {
        simdgroup_barrier(mem_flags::mem_threadgroup);
        tile_store(acc.m[r], stage, SPAN, lane);
        simdgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
        for (uint k = 0; k < 8; k++) {
            const uint i = 8 * r + k;
            if (queries[i].in_chunk)
                o[i] = fma(stage[k * SPAN + lane], queries[i].add, o[i] * queries[i].keep);
        }
    }
}

// The first eight buffers are those of attention_decode; out (n_rows, n_heads, HEAD_DIM) f32. Grid:
// (tiles, KV heads), at most n_rows * GROUP / ROWS + n_seqs tiles. Threadgroup memory `shared`: q'
// (ROWS, Q_DIM); scores, then probabilities (ROWS, CHUNK); stages (SIMDGROUPS, STAGE).
kernel void attention_prefill(constant args_attention &a [[buffer(0)]],
                              device const float *q [[buffer(1)]],
                              device const int *pos [[buffer(2)]],
                              device const int *row_start [[buffer(3)]],
                              device const int *tables [[buffer(4)]],
                              device const uchar *k_pool [[buffer(5)]],
                              device const uchar *v_pool [[buffer(6)]],
                              device const float *sinks [[buffer(7)]],
                              device float *out [[buffer(8)]],
                              device const float *slopes [[buffer(9)]],
                              threadgroup float *shared [[threadgroup(0)]],
                              uint2 group [[threadgroup_position_in_grid]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]]) {
    threadgroup query_state queries[MAX_ROWS];
    tile_at t;
    if (!find_tile(a, group.x, row_start, t)) return;
    t.kv_head = group.y;
    threadgroup float *probs = shared + ROWS * Q_DIM;
    threadgroup float *stage = probs + ROWS * CHUNK + simdgroup * STAGE;
    device const int *table = tables + ulong(t.seq) * a.table_stride;
    const uint own = ROWS / SIMDGROUPS; // queries whose probabilities this simdgroup computes
    // Dimensions that this simdgroup sums.
    const uint first_dim = simdgroup * SIMD_DIMS, end_dim = min(first_dim + SIMD_DIMS, HEAD_DIM);
    chunk_sum total[MAX_ROWS / SIMDGROUPS];
    float o[MAX_SPANS][MAX_ROWS];
    tile_sums acc;
#pragma unroll
    for (uint i = 0; i < MAX_ROWS / SIMDGROUPS; i++)
        total[i].m = 0.0f, total[i].l = 1.0f;
#pragma unroll
    for (uint i = 0; i < N_SPANS * ROWS; i++)
        o[i / ROWS][i % ROWS] = 0.0f;
    load_queries(a, q, pos, row_start, slopes, t, shared, queries, simdgroup * SIMD_WIDTH + lane);

    for (uint chunk = t.keys.first / CHUNK; chunk <= t.keys.last / CHUNK; chunk++) {
        const uint span = simdgroup * SPAN;
        make_scores(t, k_pool, table, a.n_kv_heads, chunk * CHUNK + span, shared, stage, lane, acc);
        // The previous chunk's probabilities have been read.
        threadgroup_barrier(mem_flags::mem_threadgroup);
        store(acc, probs + span, CHUNK, lane);
        threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
        for (uint i = 0; i < own; i++)
            make_probabilities(probs + (simdgroup * own + i) * CHUNK, chunk,
                               queries[simdgroup * own + i], a.cap, lane, total[i]);
        threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
        for (uint i = 0; i < N_SPANS; i++) {
            dims d;
            d.first = first_dim + i * SPAN, d.end = end_dim;
            if (d.first >= d.end) continue;
            sum_values(t, v_pool, table, a.n_kv_heads, chunk, d, probs, stage, lane, acc);
            merge_values(acc, queries, stage, lane, o[i]);
        }
    }

    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint i = 0; i < own; i++) {
        const uint query = simdgroup * own + i,
                   head = t.kv_head * GROUP + (t.query + query) % GROUP;
        if (lane == 0) queries[query].keep = final_factor(total[i], SINKS ? sinks[head] : 0.0f);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint i = 0; i < N_SPANS; i++)
#pragma unroll
        for (uint k = 0; k < ROWS; k++) {
            const uint at = t.query + k, d = first_dim + i * SPAN + lane;
            if (k >= t.n_queries || d >= end_dim) continue;
            const ulong head =
                ulong(t.row + at / GROUP) * a.n_heads + t.kv_head * GROUP + at % GROUP;
            out[head * HEAD_DIM + d] = fma(o[i][k], queries[k].keep, 0.0f);
        }
}
