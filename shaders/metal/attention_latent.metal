// attention_latent.metal - paged attention over latent rows (multi-head latent attention), of which
// K is all and V the first V_DIM dimensions. One family of kernels, on plain fma, for decode and
// prefill: a threadgroup has a tile of QUERIES queries of one KV head (the queries of a sequence
// are its rows times GROUP heads) and goes through the positions in steps of STEP tokens. Each
// thread loads its dimensions of a step once, into registers, where they stay as V; as K they pass
// through threadgroup memory, PHASE dimensions at a time.
//
// The order of operations. Positions are cut into chunks of LATENT_CHUNK tokens, counted from
// position 0, and chunks into steps.
//   q' = q * q_scale, rounded (attention.h). A score is the butterfly sum of N_SLICES chains of
//   fma:
//     slice s has dimensions s, s + N_SLICES, ... of each phase in ascending order.
//   Per step with a visible token: m = the largest score so far of the chunk; l and o so far are
//     multiplied by exp2(old m - m); then the probabilities are added, to o as a chain of fma over
//     ascending tokens.
//   Chunks are merged in ascending order, and the sink comes last, as in attention.h.
// So a row has the same bits in any tile, whether chunks are split or not. There is no matrix
// family: on M1 to M4 simdgroup matrices multiply no faster than fma does, and each score here is
// used by 8 queries out of registers.
#include "shaders/metal/attention.h"

constant uint V_DIM [[function_constant(MARGS_LATENT_V_DIM)]];
constant uint SPLIT [[function_constant(MARGS_LATENT_SPLIT)]];

#define LATENT_CHUNK MARGS_LATENT_CHUNK
#define QUERIES      MARGS_LATENT_QUERIES /* one simdgroup has the softmax of each */
#define THREADS      (QUERIES * SIMD_WIDTH)
#define STEP         16
#define QUADS        (STEP / 4)
#define PHASE        MARGS_LATENT_PHASE /* half of THREADS */
#define N_PHASES     (MARGS_LATENT_MAX_DIM / PHASE)
#define OWN          ((N_PHASES + 1) / 2) /* dimensions of a thread: THREADS apart */
#define V_OWN        (MARGS_LATENT_MAX_V_DIM / THREADS)
#define N_SLICES     16
#define STAGE_QUADS  (MARGS_LATENT_ROW / 4) /* with the padding lanes hit different banks */

// A tile's queries, and the union of the positions that they see.
struct latent_tile {
    uint seq, kv_head;
    uint row;              // the sequence's first
    uint query, n_queries; // the tile's first; how many it has
    key_range keys;
};

// A thread's dimensions of a step.
struct step_values {
    float4 v[OWN][QUADS];
};

// (V_OWN) dimensions of each query.
struct query_values {
    float v[V_OWN][QUERIES];
};

// Finds tile `index`. Returns false if there are fewer tiles.
static inline bool find_latent_tile(constant args_attention &a,
                                    uint index,
                                    device const int *row_start,
                                    thread latent_tile &t) {
    for (t.seq = 0; t.seq < a.n_seqs; t.seq++) {
        const uint n_rows = uint(row_start[t.seq + 1] - row_start[t.seq]);
        const uint n_tiles = (n_rows * GROUP + QUERIES - 1) / QUERIES;
        if (index < n_tiles) {
            t.row = uint(row_start[t.seq]);
            t.query = index * QUERIES;
            t.n_queries = min(uint(QUERIES), n_rows * GROUP - t.query);
            return true;
        }
        index -= n_tiles;
    }
    return false;
}

// What query i of the tile sees; nothing if it does not exist.
static inline key_range query_keys(constant args_attention &a,
                                   device const int *pos,
                                   device const int *row_start,
                                   thread const latent_tile &t,
                                   uint i) {
    key_range keys;
    keys.first = UINT_MAX, keys.last = 0;
    if (i < t.n_queries)
        keys = visible_keys(a, pos, row_start, t.seq, t.row + (t.query + i) / GROUP);
    return keys;
}

static inline void find_union(constant args_attention &a,
                              device const int *pos,
                              device const int *row_start,
                              thread latent_tile &t) {
    t.keys = query_keys(a, pos, row_start, t, 0);
    for (uint i = 1; i < t.n_queries; i++) {
        const key_range keys = query_keys(a, pos, row_start, t, i);
        t.keys.first = min(t.keys.first, keys.first);
        t.keys.last = max(t.keys.last, keys.last);
    }
    // Positions at or beyond max_context must not write outside the buffer of partials.
    t.keys.last = min(t.keys.last, (t.keys.first / LATENT_CHUNK + a.n_splits) * LATENT_CHUNK - 1);
}

static inline ulong head_of(constant args_attention &a, thread const latent_tile &t, uint i) {
    const uint query = t.query + i;
    return ulong(t.row + query / GROUP) * a.n_heads + t.kv_head * GROUP + query % GROUP;
}

// A thread's dimensions of the tokens from position p on; 0 where no query sees a token.
static inline void load_step(constant args_attention &a,
                             device const uchar *pool,
                             device const int *table,
                             thread const latent_tile &t,
                             uint p,
                             uint at,
                             thread step_values &s) {
#pragma unroll
    for (uint quad = 0; quad < QUADS; quad++) {
        const uint first = p + 4 * quad, token = first % BLOCK_TOKENS;
        const bool visible = first <= t.keys.last && first + 4 > t.keys.first;
        device const uchar *run =
            visible ? pool + run_at(table, first, a.n_kv_heads, t.kv_head) : pool;
#pragma unroll
        for (uint i = 0; i < OWN; i++) {
            const uint d = at + i * THREADS;
            float4 v = 0.0f;
            if (visible && d < HEAD_DIM) {
                v = kv_load4(KV_TYPE, run, d * BLOCK_TOKENS + token);
                if (KV_TYPE == QTYPE_Q8_0)
                    v *= float4(((device const half4 *)run_scales(
                        run))[(d / KV_SCALE_DIMS * BLOCK_TOKENS + token) / 4]);
            }
#pragma unroll
            for (uint k = 0; k < 4; k++)
                s.v[i][quad][k] = is_visible(t.keys, first + k) ? v[k] : 0.0f;
        }
    }
}

// scores (QUERIES, STEP) of a step. q (HEAD_DIM, QUERIES); stage (PHASE, STAGE_QUADS). A thread
// sums one slice of the dimensions for two queries and four tokens.
static inline void make_scores(threadgroup const float2 *q,
                               threadgroup float4 *stage,
                               thread const step_values &s,
                               uint at,
                               threadgroup float4 *scores) {
    const uint slice = at % N_SLICES, pair = at / N_SLICES / QUADS, quad = at / N_SLICES % QUADS;
    float4 sum[2] = {0.0f, 0.0f};
#pragma unroll
    for (uint phase = 0; phase < N_PHASES; phase++) {
        const uint first = phase * PHASE;
        if (first >= HEAD_DIM) break;
        threadgroup_barrier(mem_flags::mem_threadgroup); // the stage has been read
        if (at / PHASE == phase % 2)
#pragma unroll
            for (uint k = 0; k < QUADS; k++)
                stage[at % PHASE * STAGE_QUADS + k] = s.v[phase / 2][k];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const uint n = min(uint(PHASE), HEAD_DIM - first);
        for (uint d = slice; d < n; d += N_SLICES) {
            const float2 two = q[(first + d) * (QUERIES / 2) + pair];
            const float4 k = stage[d * STAGE_QUADS + quad];
            sum[0] = fma(float4(two[0]), k, sum[0]);
            sum[1] = fma(float4(two[1]), k, sum[1]);
        }
    }
#pragma unroll
    for (uint i = 0; i < 2; i++) {
#pragma unroll
        for (ushort apart = 1; apart < N_SLICES; apart *= 2)
            sum[i] += simd_shuffle_xor(sum[i], apart);
        if (slice == 0) scores[(2 * pair + i) * QUADS + quad] = sum[i];
    }
}

// What a step or a chunk does to a query's sums.
struct query_step {
    float keep, add;
    uint visible;
};

// Turns the scores of one query, (STEP), of the tokens from position p on into probabilities and
// adds them to the chunk's sum.
static inline query_step step_probabilities(threadgroup float *scores,
                                            uint p,
                                            key_range keys,
                                            float cap,
                                            uint lane,
                                            thread chunk_sum &sum) {
    query_step step;
    const bool visible = lane < STEP && is_visible(keys, p + lane);
    float score = lane < STEP ? scores[lane] : 0.0f; // written by the same lane below
    if (SOFTCAP) score = fma(cap, precise::tanh(score), 0.0f);
    step.visible = p <= keys.last && p + STEP > keys.first;
    step.keep = 1.0f, step.add = 1.0f;
    if (!step.visible) return step;
    const float m = max(sum.m, simd_max(visible ? score : -MAXFLOAT));
    step.keep = sum.m == -MAXFLOAT ? 0.0f : fast::exp2(sum.m - m);
    const float probability = visible ? fast::exp2(score - m) : 0.0f;
    float l = probability;
#pragma unroll
    for (ushort apart = 1; apart < STEP; apart *= 2)
        l += simd_shuffle_xor(l, apart);
    sum.l = fma(sum.l, step.keep, simd_broadcast(l, 0));
    sum.m = m;
    if (lane < STEP) scores[lane] = probability;
    return step;
}

// o = o * keep + probabilities (QUERIES, STEP) * V.
static inline void add_step(threadgroup const float4 *probs,
                            threadgroup const query_step *steps,
                            thread const step_values &s,
                            thread query_values &o) {
#pragma unroll
    for (uint i = 0; i < QUERIES; i++) {
        if (!steps[i].visible) continue;
        const float keep = steps[i].keep;
#pragma unroll
        for (uint n = 0; n < V_OWN; n++)
            o.v[n][i] *= keep;
#pragma unroll
        for (uint quad = 0; quad < QUADS; quad++) {
            const float4 w = probs[i * QUADS + quad];
#pragma unroll
            for (uint n = 0; n < V_OWN; n++)
#pragma unroll
                for (uint k = 0; k < 4; k++)
                    o.v[n][i] = fma(w[k], s.v[n][quad][k], o.v[n][i]);
        }
    }
}

static inline void clear(thread query_values &o) {
#pragma unroll
    for (uint i = 0; i < V_OWN * QUERIES; i++)
        o.v[i / QUERIES][i % QUERIES] = 0.0f;
}

// q (n_rows, n_heads, HEAD_DIM) f32; pos (n_rows), row_start (n_seqs + 1), tables (n_seqs,
// table_stride) i32. With SPLIT a threadgroup takes one chunk and writes partials (tiles, n_splits,
// QUERIES, V_DIM) f32, split s holding the tile's chunk s from its first on, and sums (tiles,
// n_splits, QUERIES): their m and l; otherwise all chunks, and partials is out (n_rows, n_heads,
// V_DIM). Grid: (splits or 1, tiles, KV heads); tiles count from first_task. Threadgroup memory
// `shared`: q' (HEAD_DIM, QUERIES); stage (PHASE, STAGE_QUADS) of 4.
[[max_total_threads_per_threadgroup(THREADS)]] kernel void
attention_latent(constant args_attention &a [[buffer(0)]],
                 device const float *q [[buffer(1)]],
                 device const int *pos [[buffer(2)]],
                 device const int *row_start [[buffer(3)]],
                 device const int *tables [[buffer(4)]],
                 device const uchar *k_pool [[buffer(5)]],
                 device const float *sinks [[buffer(6)]],
                 device float *partials [[buffer(7)]],
                 device chunk_sum *sums [[buffer(8)]],
                 threadgroup float *shared [[threadgroup(0)]],
                 uint3 group [[threadgroup_position_in_grid]],
                 uint at [[thread_index_in_threadgroup]],
                 uint simd [[simdgroup_index_in_threadgroup]],
                 uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float4 scores[QUERIES * QUADS];
    threadgroup query_step steps[QUERIES];
    latent_tile t;
    if (!find_latent_tile(a, a.first_task + group.y, row_start, t)) return;
    t.kv_head = group.z;
    find_union(a, pos, row_start, t);
    const key_range own = query_keys(a, pos, row_start, t, simd);
    uint chunk = t.keys.first / LATENT_CHUNK, last_chunk = t.keys.last / LATENT_CHUNK;
    if (SPLIT) {
        chunk += group.x;
        if (chunk > last_chunk) return;
        last_chunk = chunk;
    }
    for (uint i = at; i < QUERIES * HEAD_DIM; i += THREADS) {
        const uint query = i / HEAD_DIM, d = i % HEAD_DIM;
        shared[d * QUERIES + query] =
            query < t.n_queries ? q[head_of(a, t, query) * HEAD_DIM + d] * a.q_scale : 0.0f;
    }
    threadgroup float4 *stage = (threadgroup float4 *)(shared + QUERIES * HEAD_DIM);
    device const int *table = tables + ulong(t.seq) * a.table_stride;
    query_values total, o;
    step_values s;
    chunk_sum all, sum;
    all.m = 0.0f, all.l = 1.0f;
    clear(total);
    for (; chunk <= last_chunk; chunk++) {
        const uint begin = chunk * LATENT_CHUNK, end = min(begin + LATENT_CHUNK, t.keys.last + 1);
        sum.m = -MAXFLOAT, sum.l = 0.0f;
        clear(o);
        for (uint p = max(begin, t.keys.first / STEP * STEP); p < end; p += STEP) {
            load_step(a, k_pool, table, t, p, at, s);
            make_scores((threadgroup const float2 *)shared, stage, s, at, scores);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            const query_step step = step_probabilities((threadgroup float *)scores + simd * STEP, p,
                                                       own, a.cap, lane, sum);
            if (lane == 0) steps[simd] = step;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            add_step(scores, steps, s, o);
        }
        const bool seen = own.first / LATENT_CHUNK <= chunk && chunk <= own.last / LATENT_CHUNK;
        if (SPLIT) {
            const ulong first =
                ((ulong(group.y) * a.n_kv_heads + t.kv_head) * a.n_splits + group.x) * QUERIES;
            if (lane == 0) sums[first + simd] = sum;
#pragma unroll
            for (uint i = 0; i < V_OWN * QUERIES; i++) {
                const uint d = at + i / QUERIES * THREADS;
                if (d < V_DIM && i % QUERIES < t.n_queries)
                    partials[(first + i % QUERIES) * V_DIM + d] = o.v[i / QUERIES][i % QUERIES];
            }
            return;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup); // steps have been read
        if (lane == 0) {
            query_step step;
            step.visible = seen, step.keep = 1.0f, step.add = 0.0f;
            if (seen) {
                const merge f = merge_factors(all, sum, chunk == own.first / LATENT_CHUNK);
                step.keep = f.keep, step.add = f.add;
            }
            steps[simd] = step;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
        for (uint i = 0; i < V_OWN * QUERIES; i++) {
            const query_step f = steps[i % QUERIES];
            thread float &to = total.v[i / QUERIES][i % QUERIES];
            if (f.visible) to = fma(o.v[i / QUERIES][i % QUERIES], f.add, to * f.keep);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0 && simd < t.n_queries)
        steps[simd].keep = final_factor(all, SINKS ? sinks[head_of(a, t, simd) % a.n_heads] : 0.0f);
    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint i = 0; i < V_OWN * QUERIES; i++) {
        const uint d = at + i / QUERIES * THREADS, query = i % QUERIES;
        if (d < V_DIM && query < t.n_queries)
            partials[head_of(a, t, query) * V_DIM + d] =
                fma(total.v[i / QUERIES][query], steps[query].keep, 0.0f);
    }
}

// Merges the partials of a query's chunks into out (n_rows, n_heads, V_DIM) f32. Grid: (QUERIES,
// tiles, KV heads).
[[max_total_threads_per_threadgroup(THREADS)]] kernel void
attention_latent_reduce(constant args_attention &a [[buffer(0)]],
                        device const float *partials [[buffer(1)]],
                        device const chunk_sum *sums [[buffer(2)]],
                        device const int *pos [[buffer(3)]],
                        device const int *row_start [[buffer(4)]],
                        device const float *sinks [[buffer(5)]],
                        device float *out [[buffer(6)]],
                        uint3 group [[threadgroup_position_in_grid]],
                        uint at [[thread_index_in_threadgroup]]) {
    latent_tile t;
    if (!find_latent_tile(a, a.first_task + group.y, row_start, t) || group.x >= t.n_queries)
        return;
    t.kv_head = group.z;
    find_union(a, pos, row_start, t);
    const key_range own = query_keys(a, pos, row_start, t, group.x);
    const uint first = t.keys.first / LATENT_CHUNK;
    const ulong head = head_of(a, t, group.x),
                from = (ulong(group.y) * a.n_kv_heads + t.kv_head) * a.n_splits;
    chunk_sum all;
    all.m = 0.0f, all.l = 1.0f;
    float o[V_OWN];
#pragma unroll
    for (uint i = 0; i < V_OWN; i++)
        o[i] = 0.0f;
    const uint last = min(own.last, t.keys.last) / LATENT_CHUNK;
    for (uint chunk = own.first / LATENT_CHUNK; chunk <= last; chunk++) {
        const ulong part = (from + chunk - first) * QUERIES + group.x;
        const merge f = merge_factors(all, sums[part], chunk == own.first / LATENT_CHUNK);
#pragma unroll
        for (uint i = 0; i < V_OWN; i++)
            if (at + i * THREADS < V_DIM)
                o[i] = fma(partials[part * V_DIM + at + i * THREADS], f.add, o[i] * f.keep);
    }
    const float factor = final_factor(all, SINKS ? sinks[head % a.n_heads] : 0.0f);
#pragma unroll
    for (uint i = 0; i < V_OWN; i++)
        if (at + i * THREADS < V_DIM)
            out[head * V_DIM + at + i * THREADS] = fma(o[i], factor, 0.0f);
}
