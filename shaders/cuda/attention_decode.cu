/* attention_decode.cu - paged attention of sequences with few queries (flash decoding). A block
 * has a share of the chunks that a task sees and takes them one after the other: each of its
 * four warps copies a quarter of the chunk's K and V and scores that quarter; after a barrier
 * each warp has the probabilities of all of the chunk's tokens and a quarter of V's dimensions.
 * In products, tokens and dimensions are the 16 rows, and the queries of all heads of a KV head
 * are the 8 columns: so K and V are read once for all of them, and little work is wasted on
 * missing queries. The last block of a task to end merges the partial results; those of wide
 * heads (more than 256 dimensions) are too many for one block, another kernel merges them. */
#include "shaders/cuda/attention_decode_rows.cuh"
#include "shaders/cuda/kernels.h"

namespace {

enum { FEW_CHUNKS = 2 }; /* that one block takes alone */

/* ---- copies ---- */

/* The block, by the table, of the warp's quarter of a chunk. */
__device__ __forceinline__ int block_of(const cargs_attention &a, const task &t, int chunk) {
    const uint32_t at = (uint32_t)(chunk * 4 + (int)threadIdx.x / 32) >> a.quarter_shift;
    return at < a.op.table_stride ? a.tables[(uint64_t)t.seq * a.op.table_stride + at] : -1;
}

__device__ __forceinline__ int quarter_pos(int chunk) {
    return chunk * CHUNK + (int)threadIdx.x / 32 * QUARTER;
}

/* The run of a block of a pool; the table is not valid for invisible positions. */
__device__ __forceinline__ const uint8_t *run_of(const cargs_attention &a, const task &t,
                                                 const void *pool, int block, bool visible) {
    const uint64_t at = ((uint64_t)block * a.op.n_kv_heads + t.kv_head) * a.run_bytes;
    return static_cast<const uint8_t *>(pool) + (visible ? at : 0);
}

template <int KV, int DIM>
__device__ __forceinline__ void start_keys(const cargs_attention &a, const task &t, int head_dim,
                                           int chunk, int last, int block, uint8_t *to) {
    const uint32_t lane = threadIdx.x % 32, bt = a.block_tokens;
    const int pos = quarter_pos(chunk);
    if (chunk <= last) {
        const bool visible = sees_any(t.keys, pos, QUARTER);
        const uint8_t *run = run_of(a, t, a.k, block, visible);
        const uint32_t token = (uint32_t)pos & (bt - 1);
        if (kv_traits<KV>::quantized) {
            const uint8_t *from = run + lane * bt + token, *scales = run + (uint32_t)head_dim * bt;
#pragma unroll
            for (int d = 0; d < DIM; d += 32)
                if (d < head_dim)
                    async_copy16_if(to + (d + lane) * 16, from + (uint32_t)d * bt, visible);
            if (lane < (uint32_t)head_dim / 16)
                async_copy16_if(to + DIM * 16 + lane * 16,
                                scales + (lane / 2 * bt + token + lane % 2 * 8) * 2, visible);
        } else {
            const uint8_t *from = run + (lane / 2 * bt + token + lane % 2 * 8) * 2;
            uint8_t *at = to + key_place(lane / 2, lane % 2);
#pragma unroll
            for (int d = 0; d < DIM; d += 16)
                if (d < head_dim)
                    async_copy16_if(at + d * 32, from + (uint32_t)d * bt * 2, visible);
        }
    }
    async_commit();
}

/* Clears tokens that no query of the block sees: they may be NaN. */
template <int KV, int DIM>
__device__ __forceinline__ void start_values(const cargs_attention &a, const task &t, int head_dim,
                                             int chunk, int last, int block, uint8_t *to) {
    const uint32_t lane = threadIdx.x % 32, quarter = threadIdx.x / 32 * QUARTER;
    const int pos = quarter_pos(chunk);
    if (chunk <= last) {
        const bool visible = sees_any(t.keys, pos, QUARTER);
        const uint8_t *run = run_of(a, t, a.v, block, visible);
        const uint32_t token = (uint32_t)pos & (a.block_tokens - 1);
        if (kv_traits<KV>::quantized) {
            const uint32_t units = (uint32_t)head_dim / 16;
            const uint8_t *scales =
                run + (uint32_t)head_dim * a.block_tokens + token * (units / 2) * 2;
            const uint8_t *from = run + token * (uint32_t)head_dim;
            for (uint32_t i = lane; i < QUARTER * units; i += 32)
                async_copy16_if(to + value_place_q8<DIM>(quarter + i / units, i % units),
                                from + i * 16, visible);
            if (lane < units) /* a token's scales are contiguous, in rows of units / 2 */
                async_copy16_if(to + layout<KV, DIM>::values + quarter * units + lane * 16,
                                scales + lane * 16, visible);
        } else {
            const uint32_t first = lane / 8, unit = lane % 8;
            const uint8_t *from = run + ((token + first) * (uint32_t)head_dim + unit * 8) * 2;
            const bool whole = pos >= t.keys.first && pos + QUARTER - 1 <= t.keys.last;
#pragma unroll
            for (int panel = 0; panel < DIM / 64; panel++)
#pragma unroll
                for (uint32_t i = 0; i < QUARTER; i += 4)
                    if (panel * 64 + (int)unit * 8 < head_dim)
                        async_copy16_if(to + panel * (CHUNK * 128) +
                                            place(quarter + first + i, unit),
                                        from + (i * (uint32_t)head_dim + panel * 64) * 2,
                                        whole || sees(t.keys, pos + (int)(first + i)));
        }
    }
    async_commit();
}

/* ---- scores of the warp's 16 tokens and 8 queries ---- */

/* Row g of a product is token g of the quarter, row g + 8 token g + 8; for Q8_0, with two bytes
 * side by side, tokens 2 g and 2 g + 1. */
template <int KV> __device__ __forceinline__ uint32_t product_row(uint32_t upper) {
    const uint32_t g = threadIdx.x % 32 / 4;
    return kv_traits<KV>::quantized ? 2 * g + upper : g + 8 * upper;
}

template <int KV, int DIM>
__device__ __forceinline__ void make_scores(const query_words<KV, DIM> &q, const uint8_t *keys,
                                            int head_dim, float s[4]) {
    const uint32_t lane = threadIdx.x % 32;
    const uint8_t *from = keys + key_place(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int k = 0; k < DIM / 16; k++) {
        if (k * 16 >= head_dim) break;
        uint32_t a[4];
        ldmatrix4_trans(a, from + k * 512);
#pragma unroll
        for (int part = 0; part < kv_traits<KV>::q_parts; part++)
            mma<KV>(s, a, q.part[part] + 2 * k);
    }
}

template <int DIM>
__device__ __forceinline__ void make_scores_q8(const query_words<CUDA_ATTENTION_Q8, DIM> &q,
                                               const uint8_t *keys, int head_dim, float s[4]) {
    const uint32_t lane = threadIdx.x % 32;
    const uint8_t *scales = keys + DIM * 16 + lane / 4 * 4;
#pragma unroll
    for (int group = 0; group < DIM / SCALE_DIMS; group++) {
        if (group * SCALE_DIMS >= head_dim) break;
        uint32_t r[4], a[4];
        ldmatrix4_trans(r, keys + (group * SCALE_DIMS + (int)lane) * 16);
        const uint32_t both = *reinterpret_cast<const uint32_t *>(scales + group * (QUARTER * 2));
        const uint32_t even = pick_bytes(both, both, 0x1010), odd = pick_bytes(both, both, 0x3232);
#pragma unroll
        for (int i = 0; i < 2; i++) { /* 16 dimensions */
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint32_t w = r[2 * i + half] ^ 0x80808080u;
                a[2 * half] = decode_pair(w, 0x4240, even),
                      a[2 * half + 1] = decode_pair(w, 0x4341, odd);
            }
            mma_f16(s, a, q.part[0] + 4 * group + 2 * i);
        }
    }
}

/* Stores a query's scores of a chunk in the order in which its lanes read them: each of four
 * lanes has tokens 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of each 16. */
template <int KV> __device__ __forceinline__ void leave_scores(const float s[4], float *scores) {
    const uint32_t query = threadIdx.x % 4 * 2;
#pragma unroll
    for (uint32_t upper = 0; upper < 2; upper++) {
        const uint32_t token = product_row<KV>(upper);
        float *to =
            scores + threadIdx.x / 32 * QUARTER + token % 8 / 2 * 4 + token / 8 * 2 + token % 2;
        to[query * SCORE_PITCH] = s[2 * upper];
        to[(query + 1) * SCORE_PITCH] = s[2 * upper + 1];
    }
}

/* ---- probabilities of a chunk's tokens and the lane's query g ---- */

/* p: the right operand of products, as pairs of tokens. leans: the query's, or NULL. whole: the
 * query sees the whole chunk. */
template <int KV>
__device__ __forceinline__ float make_probabilities(const float *scores, int first, seen keys,
                                                    float unit, float cap, const lean *leans,
                                                    bool whole, uint32_t p[CHUNK / 8]) {
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float s[CHUNK / 4], top = NOTHING;
#pragma unroll
    for (int j = 0; j < CHUNK / 16; j++)
        *reinterpret_cast<float4 *>(s + 4 * j) =
            *reinterpret_cast<const float4 *>(scores + g * SCORE_PITCH + 16 * j + 4 * t);
    if (cap != 0) {
#pragma unroll
        for (int i = 0; i < CHUNK / 4; i++)
            s[i] = capped(s[i], unit, cap);
        unit = 1;
    } else if (leans) {
#pragma unroll
        for (int i = 0; i < CHUNK / 4; i++)
            s[i] = leaning(s[i], unit, *leans,
                           first + i / 4 * 16 + i / 2 % 2 * 8 + (int)t * 2 + i % 2);
        unit = 1;
    }
    if (!whole) {
        const seen here = {keys.first - first - (int)t * 2, keys.last - first - (int)t * 2};
#pragma unroll
        for (int i = 0; i < CHUNK / 4; i++)
            if (!sees(here, i / 4 * 16 + i / 2 % 2 * 8 + i % 2)) s[i] = NOTHING;
    }
#pragma unroll
    for (int i = 0; i < CHUNK / 4; i++)
        top = fmaxf(top, s[i]);
    top = fmaxf(top, __shfl_xor_sync(CUDA_ALL, top, 1));
    top = fmaxf(top, __shfl_xor_sync(CUDA_ALL, top, 2));
    const float m = __fmul_rn(top, unit);
#pragma unroll
    for (int i = 0; i < CHUNK / 8; i++)
        p[i] = pack<KV>(probability_of(s[2 * i], unit, m), probability_of(s[2 * i + 1], unit, m));
    return m;
}

/* Sums of the probabilities of queries 2 t and 2 t + 1. */
template <int KV>
__device__ __forceinline__ void sum_probabilities(const uint32_t p[CHUNK / 8], float l[2]) {
    const uint32_t ones = KV == CUDA_ATTENTION_BF16 ? ONES_BF16 : ONES_F16,
                   a[4] = {ones, ones, ones, ones};
    float d[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < CHUNK / 16; j++)
        mma<KV>(d, a, p + 2 * j);
    l[0] = d[0], l[1] = d[1];
}

/* ---- values of the warp's dimensions, 16 per tile, and 8 queries ---- */

template <int DIM> constexpr int n_tiles = DIM / 16 / WARPS;

template <int KV, int DIM>
__device__ __forceinline__ void make_values(const uint32_t p[CHUNK / 8], const uint8_t *values,
                                            int head_dim, float o[n_tiles<DIM>][4]) {
    const uint32_t lane = threadIdx.x % 32;
    const int tile = (int)threadIdx.x / 32 * n_tiles<DIM>;
    /* Four tiles are a panel; a row's place depends on its number modulo 8 alone. */
    constexpr int N = n_tiles<DIM> < 4 ? n_tiles<DIM> : 4;
    const uint8_t *from[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        from[i] =
            values + value_place(lane / 16 * 8 + lane % 8, (uint32_t)(tile + i) * 2 + lane / 8 % 2);
#pragma unroll
    for (int j = 0; j < CHUNK / 16; j++)
#pragma unroll
        for (int i = 0; i < n_tiles<DIM>; i++) {
            if ((tile + i) * 16 >= head_dim) break;
            uint32_t a[4];
            ldmatrix4_trans(a, from[i % N] + i / N * (CHUNK * 128) + j * (16 * 128));
            mma<KV>(o[i], a, p + 2 * j);
        }
}

/* The scales of tokens 2 lane and 2 lane + 1 of a chunk; 0 for tokens that no query sees. */
__device__ __forceinline__ uint32_t value_scales(const uint16_t *scales, int n_groups, int group,
                                                 int first, seen keys) {
    const int token = (int)threadIdx.x % 32 * 2;
    const uint32_t lo = sees(keys, first + token) ? scales[token * n_groups + group] : 0;
    const uint32_t hi = sees(keys, first + token + 1) ? scales[(token + 1) * n_groups + group] : 0;
    return lo | hi << 16;
}

template <int DIM>
__device__ __forceinline__ void make_values_q8(const uint32_t p[CHUNK / 8], const uint8_t *values,
                                               int head_dim, int first, seen keys,
                                               float o[n_tiles<DIM>][4]) {
    constexpr int N = n_tiles<DIM>;
    const uint32_t lane = threadIdx.x % 32, t = lane % 4;
    const int tile = (int)threadIdx.x / 32 * N;
    const uint16_t *scales =
        reinterpret_cast<const uint16_t *>(values + layout<CUDA_ATTENTION_Q8, DIM>::values);
    if (tile * 16 >= head_dim) return;
    uint32_t mine[(N + 1) / 2];
#pragma unroll
    for (int i = 0; i < (N + 1) / 2; i++)
        mine[i] = value_scales(scales, head_dim / SCALE_DIMS, tile / 2 + i, first, keys);
        /* Two products at a time: of two tiles or, if the warp has only one tile, of its two
         * next groups of 16 tokens. */
#pragma unroll
    for (int at = 0; at < N * (CHUNK / 16); at += 2) {
        uint32_t r[4];
        const int of = at + (int)lane / 16;
        ldmatrix4_trans(
            r, values + value_place_q8<DIM>((uint32_t)(of / N) * 16 + lane / 8 % 2 * 8 + lane % 8,
                                            (uint32_t)(tile + of % N)));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int j = (at + i) / N, n = (at + i) % N;
            uint32_t a[4];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint32_t pair = __shfl_sync(CUDA_ALL, mine[n / 2], 8 * j + 4 * half + (int)t);
                const uint32_t w = r[2 * i + half] ^ 0x80808080u;
                a[2 * half] = decode_pair(w, 0x4240, pair),
                      a[2 * half + 1] = decode_pair(w, 0x4341, pair);
            }
            mma_f16(o[n], a, p + 2 * j);
        }
    }
}

/* ---- results ---- */

/* A warp's results for queries 2 t and 2 t + 1: o[i][2 upper + query] is dimension
 * product_row(upper) of tile i. */
template <int DIM> struct block_result {
    float o[n_tiles<DIM>][4];
    sums sum[2];
};

template <int DIM> __device__ __forceinline__ void clear(block_result<DIM> &f) {
#pragma unroll
    for (int i = 0; i < n_tiles<DIM>; i++)
        f.o[i][0] = f.o[i][1] = f.o[i][2] = f.o[i][3] = 0;
    f.sum[0] = f.sum[1] = empty_sums();
}

/* to[i] (head_dim) of the lane's queries; NULL: not stored. */
template <int KV, int DIM>
__device__ __forceinline__ void store(const block_result<DIM> &f, int head_dim, float *const to[2],
                                      const float factor[2], bool last) {
    const int tile = (int)threadIdx.x / 32 * n_tiles<DIM>;
#pragma unroll
    for (int i = 0; i < n_tiles<DIM>; i++) {
        if ((tile + i) * 16 >= head_dim) break;
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            if (to[e % 2])
                to[e % 2][(tile + i) * 16 + (int)product_row<KV>(e / 2)] =
                    last ? normalized(f.o[i][e], factor[e % 2]) : f.o[i][e];
    }
}

/* A lane finds one query's factor, the others' come from other lanes: less code than two. */
template <int KV, int DIM>
__device__ __forceinline__ void store_result(const cargs_attention &a, const task &t, int head_dim,
                                             const block_result<DIM> &f) {
    const uint32_t own = threadIdx.x % SLICE;
    float *to[2], factor[2];
    sums sum[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        sum[i].m = __shfl_sync(CUDA_ALL, f.sum[i].m, (int)own / 2);
        sum[i].l = __shfl_sync(CUDA_ALL, f.sum[i].l, (int)own / 2);
    }
    const float mine = normalize_factor(own % 2 ? sum[1] : sum[0], a.sinks,
                                        query_head(t, min(own, t.n_queries - 1)));
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t query = threadIdx.x % 4 * 2 + i;
        to[i] = query < t.n_queries ? a.out + query_at(a, t, query) : nullptr;
        factor[i] = __shfl_sync(CUDA_ALL, mine, (int)query);
    }
    store<KV, DIM>(f, head_dim, to, factor, true);
}

template <int KV, int DIM>
__device__ __forceinline__ void store_partial(const cargs_attention &a, const task &t, int head_dim,
                                              const block_result<DIM> &f, int split) {
    const float factor[2] = {1, 1};
    float *to[2];
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t query = threadIdx.x % 4 * 2 + i;
        to[i] = query < t.n_queries ? partial_at(a, t, (uint32_t)split, query) : nullptr;
        if (to[i] && threadIdx.x < 4)
            *reinterpret_cast<float2 *>(to[i] + head_dim) = make_float2(f.sum[i].m, f.sum[i].l);
    }
    store<KV, DIM>(f, head_dim, to, factor, false);
}

/* ---- the kernel ---- */

/* Copies in progress: of V for the next chunk, of K for the next two. The warps meet once per
 * chunk; until then one may still read the previous chunk's V. With one slot of K, the next
 * chunk's is copied as soon as the warp has its scores; with one slot of V, as soon as all warps
 * have their values. */
struct pipe {
    uint8_t *keys, *values; /* keys: of the warp; values: of the block */
    int last, at;           /* last: chunk; at: number of chunks so far */
    int block[3]; /* the warp's block of the chunk whose values are copied next, and of the two
                     after it */
};

template <int KV, int DIM>
__device__ __forceinline__ void start_pair(const cargs_attention &a, const task &t, int head_dim,
                                           const pipe &p, int chunk) {
    start_keys<KV, DIM>(a, t, head_dim, chunk, p.last, p.block[0], p.keys);
    start_values<KV, DIM>(a, t, head_dim, chunk, p.last, p.block[0], p.values);
}

/* Once the previous V is not read any more: starts copying the next one and, with two slots, K of
 * the chunk after it. */
template <int KV, int DIM>
__device__ __forceinline__ void start_next(const cargs_attention &a, const task &t, int head_dim,
                                           pipe &p, int chunk) {
    using at = layout<KV, DIM>;
    p.at++;
    uint8_t *values = p.values + p.at % (int)at::value_slots * at::value_bytes;
    start_values<KV, DIM>(a, t, head_dim, chunk + 1, p.last, p.block[0], values);
    if (at::key_slots == 2)
        start_keys<KV, DIM>(a, t, head_dim, chunk + 2, p.last, p.block[1],
                            p.keys + ((p.at + 1) % 2) * at::key_bytes);
    p.block[0] = p.block[1], p.block[1] = p.block[2];
    p.block[2] = block_of(a, t, chunk + 4);
}

/* The lane's query g; a missing one sees nothing and is all zeros. */
struct lane_query {
    seen keys;
    lean leaning;
};

__device__ __forceinline__ lane_query query_of(const cargs_attention &a, const task &t) {
    const uint32_t query = threadIdx.x % 32 / 4;
    const bool is = query < t.n_queries;
    lane_query l;
    l.keys = is ? seen_by(a, t.seq, query_row(t, query)) : seen_from(-1, 0);
    l.leaning = lean_of(a, is ? query_row(t, query) : t.row, is ? query_head(t, query) : 0);
    return l;
}

/* Computes a chunk's o, m and l. */
template <int KV, int DIM>
__device__ __forceinline__ void
attend_chunk(const cargs_attention &a, const task &t, const query_words<KV, DIM> &q,
             const lane_query &query, int head_dim, int chunk, pipe &p, const new_token &newest,
             float *scores, block_result<DIM> &f) {
    using at = layout<KV, DIM>;
    const bool is_new = chunk == newest.chunk && threadIdx.x / 32 == newest.token / QUARTER;
    const int slot = p.at % (int)at::value_slots, key_slot = p.at % (int)at::key_slots,
              first = chunk * CHUNK;
    uint8_t *warp_keys = p.keys + key_slot * at::key_bytes,
            *values = p.values + slot * at::value_bytes;
    float s[4] = {0, 0, 0, 0}, l[2];
    uint32_t w[CHUNK / 8];
    scores += key_slot * (SLICE * SCORE_PITCH);
    async_wait<at::key_slots>();
    __syncwarp();
    if (is_new) patch_keys<KV, DIM>(warp_keys, newest, head_dim);
    if constexpr (kv_traits<KV>::quantized)
        make_scores_q8<DIM>(q, warp_keys, head_dim, s);
    else
        make_scores<KV, DIM>(q, warp_keys, head_dim, s);
    leave_scores<KV>(s, scores);
    if (at::key_slots == 1) {
        __syncwarp();
        start_keys<KV, DIM>(a, t, head_dim, chunk + 1, p.last, p.block[0], p.keys);
    }
    async_wait<1>();
    __syncwarp();
    if (is_new) patch_values<KV, DIM>(values, newest, head_dim);
    __syncthreads();
    if (at::value_slots == 2) start_next<KV, DIM>(a, t, head_dim, p, chunk);
    const bool whole =
        a.n_rows == a.op.n_seqs && first >= t.keys.first && first + CHUNK - 1 <= t.keys.last;
    const float m = make_probabilities<KV>(scores, first, query.keys, q.back, a.op.cap,
                                           a.slopes ? &query.leaning : nullptr, whole, w);
    /* The next chunk's scores use the same memory. */
    if (at::key_slots == 1 && at::value_slots == 2) __syncthreads();
    sum_probabilities<KV>(w, l);
    clear<DIM>(f);
    if constexpr (kv_traits<KV>::quantized)
        make_values_q8<DIM>(w, values, head_dim, first, t.keys, f.o);
    else
        make_values<KV, DIM>(w, values, head_dim, f.o);
    if (at::value_slots == 1) {
        __syncthreads();
        start_next<KV, DIM>(a, t, head_dim, p, chunk);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        f.sum[i].m = __shfl_sync(CUDA_ALL, m, (int)threadIdx.x % 4 * 8 + 4 * i);
        f.sum[i].l = l[i];
    }
}

/* Attends to a block's chunks and stores the result or partial results. */
template <int KV, int DIM>
__device__ __forceinline__ void
attend_share(const cargs_attention &a, const task &t, const share &s, const query_words<KV, DIM> &q,
             const lane_query &l, int head_dim, pipe &p, const new_token &newest, float *scores) {
    block_result<DIM> all;
    clear<DIM>(all);
#pragma unroll 1
    for (int chunk = s.begin; chunk <= s.end; chunk++) {
        block_result<DIM> one;
        attend_chunk<KV, DIM>(a, t, q, l, head_dim, chunk, p, newest, scores, one);
        if (a.by_chunk && !s.whole) {
            store_partial<KV, DIM>(a, t, head_dim, one, chunk - t.first_split);
            continue;
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const merge f = merge_factors(all.sum[i], one.sum[i].m, one.sum[i].l);
#pragma unroll
            for (int j = 0; j < n_tiles<DIM>; j++)
                all.o[j][i] = merged(all.o[j][i], one.o[j][i], f),
                all.o[j][2 + i] = merged(all.o[j][2 + i], one.o[j][2 + i], f);
        }
    }
    async_wait<0>();
    if (s.whole)
        store_result<KV, DIM>(a, t, head_dim, all);
    else if (!a.by_chunk)
        store_partial<KV, DIM>(a, t, head_dim, all, s.begin / SPAN_CHUNKS - t.first_split);
}

/* A few chunks take one block less time than the merge of partial results takes. */
__device__ __forceinline__ void use_one_block(const cargs_attention &a, task &t) {
    if (!a.by_chunk || t.n_splits > FEW_CHUNKS) return;
    t.block_splits = max(t.block_splits, (int)FEW_CHUNKS), t.n_blocks = min(t.n_blocks, 1);
}

/* Is this block the last of its task? Then it sees the others' stores, and the count is reset. */
__device__ bool is_last(uint32_t *done, int n_blocks, uint32_t *last) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        *last = atomicAdd(done, 1u) == (uint32_t)n_blocks - 1;
        if (*last) *done = 0;
        __threadfence();
    }
    __syncthreads();
    return *last != 0;
}

/* Merges a task's partial results as merge_query does. LANES threads have a query, a thread N times
 * four of its dimensions. */
template <int DIM>
__device__ __forceinline__ void merge_task(const cargs_attention &a, const task &t) {
    constexpr int LANES = DIM < 128 ? 16 : 32, N = DIM / 4 / LANES, AT_ONCE = SPAN_CHUNKS / N;
    const uint32_t stride = a.n_slots * (a.v_dim + CUDA_ATTENTION_PARTIAL),
                   d = threadIdx.x % LANES * 4;
#pragma unroll 1
    for (uint32_t query = threadIdx.x / LANES; query < t.n_queries; query += THREADS / LANES) {
        const float *from = partial_at(a, t, 0, query);
        float4 o[N], span[N];
        sums total = empty_sums(), sum = empty_sums();
#pragma unroll
        for (int j = 0; j < N; j++)
            o[j] = span[j] = make_float4(0, 0, 0, 0);
        const int first = a.by_chunk ? t.first_split % SPAN_CHUNKS : 0, end = first + t.n_splits;
#pragma unroll 1
        for (int base = first / AT_ONCE * AT_ONCE; base < end; base += AT_ONCE) {
            float4 partial[AT_ONCE][N];
            float2 ml[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                if (base + i >= end) break;
                const float *p = from + (uint64_t)(uint32_t)max(base + i - first, 0) * stride;
#pragma unroll
                for (int j = 0; j < N; j++)
                    if (d + j * LANES * 4 < a.v_dim)
                        partial[i][j] =
                            __ldcg(reinterpret_cast<const float4 *>(p + d + j * LANES * 4));
                ml[i] = __ldcg(reinterpret_cast<const float2 *>(p + a.v_dim));
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                if (base + i >= end) break;
                if (base + i < first) continue;
                const merge f = merge_factors(sum, ml[i].x, ml[i].y);
#pragma unroll
                for (int j = 0; j < N; j++)
                    merge4(span[j], partial[i][j], f);
            }
            /* The end of a span of chunks, and the last. */
            if (base + AT_ONCE < end && (!a.by_chunk || (base + AT_ONCE) % SPAN_CHUNKS != 0))
                continue;
            const merge f = merge_factors(total, sum.m, sum.l);
#pragma unroll
            for (int j = 0; j < N; j++)
                merge4(o[j], span[j], f), span[j] = make_float4(0, 0, 0, 0);
            sum = empty_sums();
        }
#pragma unroll
        for (int j = 0; j < N; j++)
            if (d + j * LANES * 4 < a.v_dim)
                store_merged(a, t, query, d + j * LANES * 4, o[j], total);
    }
}

/* Grid: blocks of a task, tasks. Shared: struct layout. */
template <int KV, int DIM, bool EXACT>
CUDA_KERNEL_MIN(THREADS, (layout<KV, DIM>::blocks))
attention_decode(CUDA_ARGS(struct cargs_decode) args) {
    CUDA_SHARED(uint8_t, shared);
    const cargs_attention &a = args.attention;
    using at = layout<KV, DIM>;
    const bool makes_rows = !at::wide && args.store.q != nullptr;
    pdl_launch();
    const int head_dim = EXACT ? DIM : (int)a.head_dim, warp = (int)threadIdx.x / 32;
    task t;
    bool is = find_slice(a, blockIdx.y, at::wide && a.tiles != 0, t);
    if (is && !at::wide) use_one_block(a, t);
    is = is && (int)blockIdx.x < max(t.n_blocks, 1);
    if (!is) {
        pdl_wait();
        return;
    }
    const share s = share_of(a, t, (int)blockIdx.x);
    const lane_query l = query_of(a, t);
    pipe p;
    p.keys = shared + at::keys_at + (uint32_t)warp * (at::key_slots * at::key_bytes);
    p.values = shared + at::values_at;
    p.last = s.end, p.at = 0;
#pragma unroll
    for (int i = 0; i < 3; i++)
        p.block[i] = block_of(a, t, s.begin + i);
    new_token newest;
    newest.chunk = makes_rows && t.keys.last >= 0 && s.end == t.keys.last / CHUNK ? s.end : -1;
    newest.token = (uint32_t)t.keys.last % CHUNK;
    newest.bits = reinterpret_cast<uint16_t *>(shared + at::new_token_at),
    newest.scales = newest.bits + 2 * DIM;
    query_words<KV, DIM> q;
    row_factors<DIM> factors;
    uint8_t *work = p.values + at::value_bytes;
    /* K and V of a sequence's earlier tokens were written by earlier steps, unless it has
     * several rows in this step. So the copy must wait only for the chunk with the newest token,
     * which this step stores, and only if that token is not made here. */
    const bool early =
        makes_rows || (a.n_rows == a.op.n_seqs && (s.begin + 1) * CHUNK <= t.keys.last);
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
        if (i == 1) {
            if constexpr (!at::wide)
                prepare_rows<KV, DIM>(a, args.store, t, makes_rows && t.keys.last >= 0, newest,
                                      factors, work);
            pdl_wait();
        }
        if (early == (i == 0)) start_pair<KV, DIM>(a, t, head_dim, p, s.begin);
        if (makes_rows == (i == 0) && at::key_slots == 2)
            start_keys<KV, DIM>(a, t, head_dim, s.begin + 1, p.last, p.block[1],
                                p.keys + at::key_bytes);
    }
    p.block[0] = p.block[1], p.block[1] = p.block[2], p.block[2] = block_of(a, t, s.begin + 3);
    if constexpr (at::wide) {
        const uint32_t query = threadIdx.x % 32 / 4;
        load_query<KV, DIM>(query < t.n_queries ? a.q + query_at(a, t, query) : nullptr, head_dim,
                            a.op.q_scale, q);
    } else {
        make_rows<KV, DIM>(a, args.store, t, makes_rows && t.keys.last >= 0, newest, factors, work);
        read_queries<KV, DIM>(work, q);
    }
    attend_share<KV, DIM>(a, t, s, q, l, head_dim, p, newest,
                          reinterpret_cast<float *>(shared + at::scores_at));
    if constexpr (!at::wide)
        if (!s.whole && is_last(a.done + t.index, t.n_blocks,
                                reinterpret_cast<uint32_t *>(shared + at::last_at)))
            merge_task<DIM>(a, t);
}

template <int KV> const void *decode_kernel(int dims) {
    return dims == CUDA_ATTENTION_64       ? (const void *)attention_decode<KV, 64, true>
           : dims == CUDA_ATTENTION_128    ? (const void *)attention_decode<KV, 128, true>
           : dims == CUDA_ATTENTION_256    ? (const void *)attention_decode<KV, 256, true>
           : dims == CUDA_ATTENTION_512    ? (const void *)attention_decode<KV, 512, true>
           : dims == CUDA_ATTENTION_TO_128 ? (const void *)attention_decode<KV, 128, false>
                                           : (const void *)attention_decode<KV, 256, false>;
}

template <int KV, int DIM> uint32_t layout_bytes(int makes_rows) {
    return makes_rows ? layout<KV, DIM>::bytes : layout<KV, DIM>::new_token_at;
}

template <int KV> uint32_t decode_shared(int dims, int makes_rows) {
    return dims == CUDA_ATTENTION_64       ? layout_bytes<KV, 64>(makes_rows)
           : dims == CUDA_ATTENTION_256    ? layout_bytes<KV, 256>(makes_rows)
           : dims == CUDA_ATTENTION_TO_256 ? layout_bytes<KV, 256>(makes_rows)
           : dims == CUDA_ATTENTION_512    ? layout_bytes<KV, 512>(makes_rows)
                                           : layout_bytes<KV, 128>(makes_rows);
}

} // namespace

const void *cuda_attention_decode_kernel(enum cuda_attention_type type,
                                         enum cuda_attention_dims dims) {
    return type == CUDA_ATTENTION_F16    ? decode_kernel<CUDA_ATTENTION_F16>(dims)
           : type == CUDA_ATTENTION_BF16 ? decode_kernel<CUDA_ATTENTION_BF16>(dims)
                                         : decode_kernel<CUDA_ATTENTION_Q8>(dims);
}

uint32_t cuda_attention_decode_shared(enum cuda_attention_type type, enum cuda_attention_dims dims,
                                      int makes_rows) {
    return type == CUDA_ATTENTION_F16    ? decode_shared<CUDA_ATTENTION_F16>(dims, makes_rows)
           : type == CUDA_ATTENTION_BF16 ? decode_shared<CUDA_ATTENTION_BF16>(dims, makes_rows)
                                         : decode_shared<CUDA_ATTENTION_Q8>(dims, makes_rows);
}
