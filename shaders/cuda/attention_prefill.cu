/* attention_prefill.cu - paged attention of sequences with many queries (prompts, chunks of
 * prompts): flash attention. A block has a tile of 128 queries of one KV head (the queries of a
 * sequence are its rows times the heads of the group) and walks the chunks that any of them
 * sees; a warp has 16 of the queries and the whole chunk. K and V come to shared memory a few
 * chunks ahead, in rows of 128 bytes with swizzled 16-byte units: neither copies nor products
 * have bank conflicts, and wgmma expects this layout.
 *
 * Heads of 512 dimensions: o of 16 queries does not fit a warp's registers. Two warps (BF16: four,
 * since a query has two parts) share 16 queries, each with some of V's dimensions. So a tile has 64
 * (32) queries, which lie in shared memory. With wgmma each of the two computes all their scores;
 * without, they exchange the scores of some tokens each. */
#include "shaders/cuda/attention_tile.cuh"
#include "shaders/cuda/kernels.h"
#include "shaders/cuda/wgmma.cuh"

namespace {

enum { TILE = CUDA_ATTENTION_TILE, WARPS = TILE / 16, THREADS = WARPS * 32, ROW = 128, PANEL = 64 };
enum { SCORE_PITCH = CHUNK + 8 }; /* floats of a query: no bank conflicts between queries */

/* How a block has heads of 512 dimensions. Shared memory: queries; a chunk's K and V, for Q8_0
 * decoded, one after the other in the same place, and raw; scores (rows, SCORE_PITCH), back. */
template <int KV> struct wide {
    static constexpr int dim = 512;
    static constexpr int shares = kv_traits<KV>::q_parts == 2 ? 4 : 2; /* warps of 16 queries */
    static constexpr uint32_t rows = TILE / shares;                    /* queries of a tile */
    static constexpr int tokens = CHUNK / shares, dims = dim / shares; /* of a warp */
    static constexpr uint32_t part_bytes = rows * dim * 2;
    static constexpr uint32_t half_bytes = dim * CHUNK * 2; /* K or V of a chunk */
    static constexpr uint32_t stage_at = kv_traits<KV>::q_parts * part_bytes;
    static constexpr uint32_t raw_at =
        stage_at + (kv_traits<KV>::quantized ? half_bytes : 2 * half_bytes);
    static constexpr uint32_t scores_at = raw_at + (kv_traits<KV>::quantized ? dim * 17 * 8 : 0);
    static constexpr uint32_t back_at = scores_at + rows * SCORE_PITCH * 4;
    static constexpr uint32_t bytes = 1024 + back_at + rows * 4; /* with alignment */
};

#ifdef CUDA_WGMMA
/* Heads of 256 do not leave enough registers for wgmma; with a variable number of products they
 * would wait for each other. */
template <int DIM, bool EXACT> constexpr bool by_group = EXACT &&DIM <= 128;
/* Heads of 512: the four warps of a group have all queries and the same dimensions of V. */
template <int KV> constexpr bool wide_by_group = wide<KV>::rows == 64;

template <int KV>
__device__ __forceinline__ void group_mma(float d[8][4], const uint32_t a[4], const uint8_t *b) {
    if (KV == CUDA_ATTENTION_BF16)
        wgmma_rows_bf16(d, a, b);
    else
        wgmma_rows_f16(d, a, b);
}

/* Starts the scores of a tile of 64 queries of 512 dimensions, of F16. */
__device__ __forceinline__ void start_scores(const uint8_t *queries, const uint8_t *keys,
                                             float s[CHUNK / 8][4]) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 512 / 16; k++)
        wgmma_shared_f16(s, queries + k / 4 * (64 * ROW), k % 4, keys + k * 16 * ROW);
    wgmma_commit();
}

__device__ __forceinline__ void wait_scores() {
    wgmma_wait<0>();
}

/* Publishes this thread's stores to shared memory for wgmma; before the barrier. */
__device__ __forceinline__ void publish() {
    wgmma_shared_fence();
}
#else
template <int DIM, bool EXACT> constexpr bool by_group = false;
template <int KV> constexpr bool wide_by_group = false;

__device__ __forceinline__ void start_scores(const uint8_t *, const uint8_t *, float (*)[4]) {}
__device__ __forceinline__ void wait_scores() {}
__device__ __forceinline__ void publish() {}
#endif

/* ---- chunk copies in progress ---- */

__device__ __forceinline__ uint32_t key_bytes(uint32_t head_dim) {
    return head_dim * ROW;
}

__device__ __forceinline__ uint32_t value_bytes(uint32_t head_dim) {
    return (head_dim + PANEL - 1) / PANEL * CHUNK * ROW;
}

__device__ __forceinline__ uint32_t stage_bytes(uint32_t head_dim) {
    return (key_bytes(head_dim) + value_bytes(head_dim) + 1023) / 1024 * 1024;
}

/* Q8_0: each quarter of K and of V has head_dim * 17 bytes. */
__device__ __forceinline__ uint32_t raw_bytes(uint32_t head_dim) {
    return head_dim * 17 * 8;
}

/* A warp's share of each chunk: a quarter of K or of V, or some dimensions of it. */
struct warp_quarter {
    int quarter;
    uint32_t first, end; /* dimensions; of raw V as many units of 16 bytes */
    bool is_k;
    int block; /* in the next chunk; -1: not visible */
};

__device__ __forceinline__ int block_of(const cargs_attention &a, const tile &t, int chunk,
                                        int quarter) {
    int pos = chunk * CHUNK + quarter * QUARTER;
    return sees_any(t.keys, pos, QUARTER)
               ? a.tables[(uint64_t)t.seq * a.op.table_stride + (uint32_t)pos / a.block_tokens]
               : -1;
}

__device__ __forceinline__ void put16(uint8_t *to, uint4 v) {
    *reinterpret_cast<uint4 *>(to) = v;
}

/* The lane's 8 tokens of dimension s + key_dim() begin at 8 * key_half(). */
__device__ __forceinline__ uint32_t key_dim() {
    return threadIdx.x % 16;
}

__device__ __forceinline__ uint32_t key_half() {
    return threadIdx.x % 32 / 16;
}

__device__ __forceinline__ void copy_keys(uint8_t *keys, const uint8_t *run, uint32_t token,
                                          const cargs_attention &a, const warp_quarter &p,
                                          bool visible) {
    const uint8_t *from = run + (uint64_t)(key_dim() * a.block_tokens + token + key_half() * 8) * 2;
#pragma unroll 4
    for (uint32_t s = p.first; s < p.end; s += 16) {
        uint8_t *at = keys + place(s + key_dim(), (uint32_t)p.quarter * 2 + key_half());
        if (visible)
            async_copy16(at, from + (uint64_t)s * a.block_tokens * 2);
        else
            put16(at, make_uint4(0, 0, 0, 0));
    }
}

__device__ __forceinline__ void copy_values(uint8_t *values, const uint8_t *run, uint32_t token,
                                            uint32_t head_dim, const warp_quarter &p, int pos,
                                            seen keys) {
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t unit = p.first / 8 + lane % 8; unit < p.end / 8; unit += 8)
#pragma unroll
        for (uint32_t i = lane / 8; i < QUARTER; i += 4) {
            uint8_t *at = values + value_place((uint32_t)p.quarter * QUARTER + i, unit);
            if (sees(keys, pos + (int)i))
                async_copy16(at, run + ((token + i) * head_dim + unit * 8) * 2);
            else
                put16(at, make_uint4(0, 0, 0, 0));
        }
}

/* Copies a quarter: values, then their scales. */
__device__ __forceinline__ void copy_raw(uint8_t *to, const uint8_t *run, uint32_t token,
                                         const cargs_attention &a, uint32_t head_dim,
                                         const warp_quarter &p) {
    uint32_t lane = threadIdx.x % 32;
    const uint8_t *scales = run + head_dim * a.block_tokens;
    for (uint32_t i = p.first + lane; i < p.end; i += 32)
        async_copy16(to + i * 16,
                     p.is_k ? run + i * a.block_tokens + token : run + token * head_dim + i * 16);
    for (uint32_t i = p.first / 16 + lane; i < p.end / 16; i += 32)
        async_copy16(to + head_dim * 16 + i * 16,
                     p.is_k ? scales + (i / 2 * a.block_tokens + token + i % 2 * 8) * 2
                            : scales + token * (head_dim / SCALE_DIMS) * 2 + i * 16);
}

/* Chunks in shared memory: n_stages as copied, `lead` of them ahead of the current one; for Q8_0
 * these are raw quarters, and one decoded stage follows. */
struct pipe {
    uint8_t *stages, *decoded;
    uint32_t bytes; /* of a stage */
    int n_stages, lead;
    int last; /* chunk */
    warp_quarter mine;
};

/* Starts the warp's share of a chunk's copies; stage: of K and V, for Q8_0 of raw quarters. */
template <int KV>
__device__ __forceinline__ void start_chunk(const cargs_attention &a, const tile &t,
                                            warp_quarter &p, int chunk, uint32_t head_dim,
                                            uint8_t *stage) {
    if (chunk <= t.keys.last / CHUNK && t.keys.last >= 0) {
        int pos = chunk * CHUNK + p.quarter * QUARTER;
        bool visible = p.block >= 0;
        uint32_t token = (uint32_t)pos % a.block_tokens;
        const uint8_t *run = static_cast<const uint8_t *>(p.is_k ? a.k : a.v);
        if (visible) run += ((uint64_t)p.block * a.op.n_kv_heads + t.kv_head) * a.run_bytes;
        p.block = block_of(a, t, chunk + 1, p.quarter);
        if (kv_traits<KV>::quantized) {
            if (visible)
                copy_raw(stage + (uint32_t)(p.quarter + (p.is_k ? 0 : 4)) * head_dim * 17, run,
                         token, a, head_dim, p);
        } else if (p.is_k)
            copy_keys(stage, run, token, a, p, visible);
        else
            copy_values(stage + key_bytes(head_dim), run, token, head_dim, p, pos, t.keys);
    }
    async_commit();
}

/* Decodes the warp's share of a chunk from raw Q8_0; to: of K or of V. */
__device__ __forceinline__ void decode_quarter(const tile &t, const warp_quarter &p, int chunk,
                                               uint32_t head_dim, const uint8_t *raw, uint8_t *to) {
    uint32_t lane = threadIdx.x % 32;
    int pos = chunk * CHUNK + p.quarter * QUARTER;
    raw += (uint32_t)(p.quarter + (p.is_k ? 0 : 4)) * head_dim * 17;
    const uint8_t *scales = raw + head_dim * 16;
    const bool visible = sees_any(t.keys, pos, QUARTER);
    if (p.is_k) {
        const uint32_t row = p.first + key_dim();
        const uint8_t *from = raw + row * 16 + key_half() * 8;
        const uint8_t *scale = scales + p.first / SCALE_DIMS * 32 + key_half() * 16;
        to += place(row, (uint32_t)p.quarter * 2 + key_half());
#pragma unroll 4
        for (uint32_t s = 0; s < p.end - p.first; s += 16) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (visible)
                v = decode_q8(*reinterpret_cast<const uint2 *>(from + s * 16),
                              *reinterpret_cast<const uint4 *>(scale + s / SCALE_DIMS * 32));
            put16(to + s * ROW, v);
        }
        return;
    }
    const uint32_t first = lane / 8, unit = p.first / 8 + lane % 8;
#pragma unroll
    for (uint32_t i = first; i < QUARTER; i += 4) {
        const bool seen = sees(t.keys, pos + (int)i);
        const uint8_t *from = raw + i * head_dim + unit * 8;
        const uint16_t *scale =
            reinterpret_cast<const uint16_t *>(scales) + i * (head_dim / SCALE_DIMS) + unit / 4;
        uint8_t *at = to + value_place((uint32_t)p.quarter * QUARTER + i, unit);
#pragma unroll 4
        for (uint32_t d = 0; d + lane % 8 * 8 < p.end - p.first; d += PANEL) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (seen) {
                const uint32_t both = scale[d / SCALE_DIMS] * 0x10001u;
                v = decode_q8(*reinterpret_cast<const uint2 *>(from + d),
                              make_uint4(both, both, both, both));
            }
            put16(at + d * ROW, v);
        }
    }
}

/* Waits for a chunk, number `at` of the block's, and starts copying the one `lead` chunks later,
 * which overwrites the previous chunk. Returns its stage. */
template <int KV>
__device__ __forceinline__ uint8_t *wait_chunk(const cargs_attention &a, const tile &t, pipe &p,
                                               int chunk, int at, uint32_t head_dim) {
    if (p.lead == 0) {
        __syncthreads();
        start_chunk<KV>(a, t, p.mine, chunk, head_dim, p.stages);
    }
    if (p.lead == 2)
        async_wait<1>();
    else
        async_wait<0>();
    publish();
    __syncthreads();
    uint8_t *stage = p.stages + (uint32_t)(at % p.n_stages) * p.bytes;
    if (p.lead > 0)
        start_chunk<KV>(a, t, p.mine, chunk + p.lead, head_dim,
                        p.stages + (uint32_t)((at + p.lead) % p.n_stages) * p.bytes);
    if (!kv_traits<KV>::quantized) return stage;
    decode_quarter(t, p.mine, chunk, head_dim, stage,
                   p.decoded + (p.mine.is_k ? 0 : key_bytes(head_dim)));
    publish();
    __syncthreads();
    return p.decoded;
}

/* ---- products of a chunk: d (16 queries of each warp, 64) += a (16, 16) of the warp, b (16,
 * 64): 16 rows of 128 bytes of shared memory ---- */

template <int KV>
__device__ __forceinline__ void panel_mma(float d[8][4], const uint32_t a[4], const uint8_t *b) {
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t f[4];
        ldmatrix4_trans(f, b + place(lane % 16, i * 2 + lane / 16));
        mma<KV>(d[2 * i], a, f);
        mma<KV>(d[2 * i + 1], a, f + 2);
    }
}

template <int N> __device__ __forceinline__ void clear(float d[N][4]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        d[i][0] = d[i][1] = d[i][2] = d[i][3] = 0;
}

template <int KV, int DIM, bool EXACT>
__device__ __forceinline__ void make_scores(const queries<KV, DIM> &q, const uint8_t *keys,
                                            int head_dim, float s[CHUNK / 8][4]) {
    clear<CHUNK / 8>(s);
#ifdef CUDA_WGMMA
    if (by_group<DIM, EXACT>) {
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < DIM / 16; k++) {
            if (k * 16 >= head_dim) break;
#pragma unroll
            for (int part = 0; part < kv_traits<KV>::q_parts; part++)
                group_mma<KV>(s, q.a[part][k], keys + k * 16 * ROW);
        }
        wgmma_commit();
        wgmma_wait<0>();
    } else
#endif
    {
#pragma unroll query_unroll < DIM>
        for (int k = 0; k < DIM / 16; k++) {
            if (k * 16 >= head_dim) break;
#pragma unroll
            for (int part = 0; part < kv_traits<KV>::q_parts; part++)
                panel_mma<KV>(s, q.a[part][k], keys + k * 16 * ROW);
        }
    }
}

/* add: the chunk's probabilities times V, for N panels of 64 dimensions. GROUP: by wgmma. */
template <int KV, bool GROUP, int N>
__device__ __forceinline__ void make_values(const uint32_t p[CHUNK / 16][4], const uint8_t *values,
                                            float add[N][PANEL / 8][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
        clear<PANEL / 8>(add[n]);
#ifdef CUDA_WGMMA
    if (GROUP) {
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < N * (CHUNK / 16); i++)
            group_mma<KV>(add[i % N], p[i / N], values + i % N * (CHUNK * ROW) + i / N * 16 * ROW);
        wgmma_commit();
        wgmma_wait<0>();
    } else
#endif
    {
#pragma unroll
        for (int i = 0; i < N * (CHUNK / 16); i++)
            panel_mma<KV>(add[i % N], p[i / N], values + i % N * (CHUNK * ROW) + i / N * 16 * ROW);
    }
}

/* Adds the chunk's probabilities times V to o, DIM dimensions from `values` on. */
template <int KV, int DIM, bool GROUP>
__device__ __forceinline__ void add_values(const uint32_t p[CHUNK / 16][4], const uint8_t *values,
                                           int head_dim, const merge f[2], float o[DIM / 8][4]) {
    /* Panels at once: two if the registers suffice. */
    constexpr int N = GROUP && DIM == 128 && KV != CUDA_ATTENTION_BF16 ? 2 : 1;
#pragma unroll
    for (int panel = 0; panel < DIM / PANEL; panel += N) {
        if (panel * PANEL >= head_dim) break;
        float add[N][PANEL / 8][4];
        make_values<KV, GROUP, N>(p, values + panel * (CHUNK * ROW), add);
#pragma unroll
        for (int i = 0; i < N * PANEL / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float &to = o[panel * (PANEL / 8) + i][e];
                to = merged(to, add[i / (PANEL / 8)][i % (PANEL / 8)][e], f[e / 2]);
            }
    }
}

/* ---- the kernel ---- */

/* The lane's two queries. Those after the tile's last one repeat it and are not stored. */
struct lane_queries {
    seen keys[2];
    lean leans[2];
    uint32_t head[2];
    const float *q[2];
    float *out[2]; /* NULL: not stored */
};

/* first: the warp's first query in the tile. */
__device__ __forceinline__ lane_queries queries_of(const cargs_attention &a, const tile &t,
                                                   uint32_t first) {
    uint32_t group = a.op.n_heads / a.op.n_kv_heads;
    lane_queries l;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t at = first + threadIdx.x % 32 / 4 + 8 * i;
        uint32_t query = t.query + min(at, t.n_queries - 1), row = t.row + query / group;
        l.keys[i] = seen_by(a, t.seq, row);
        l.head[i] = t.kv_head * group + query % group;
        l.leans[i] = lean_of(a, row, l.head[i]);
        uint64_t from = ((uint64_t)row * a.op.n_heads + l.head[i]) * a.head_dim;
        l.q[i] = a.q + from;
        l.out[i] = at < t.n_queries ? a.out + from : nullptr;
    }
    return l;
}

/* Merges o, a span, with the previous spans, which lie in out, not yet normalized. */
template <int DIM>
__device__ __forceinline__ void
add_span(const cargs_attention &a, const lane_queries &l, int head_dim, bool first, bool last,
         const float o[DIM / 8][4], const sums span[2], sums total[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        merge f = merge_factors(total[r], span[r].m, span[r].l);
        if (!l.out[r]) continue;
        float factor = last ? normalize_factor(total[r], a.sinks, l.head[r]) : 1;
        float2 *to = reinterpret_cast<float2 *>(l.out[r]) + threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < DIM / 8; i++) {
            if (i * 8 >= head_dim) break;
            float2 v = first ? make_float2(0, 0) : to[i * 4];
            v.x = merged(v.x, o[i][2 * r], f), v.y = merged(v.y, o[i][2 * r + 1], f);
            if (last) v.x = normalized(v.x, factor), v.y = normalized(v.y, factor);
            to[i * 4] = v;
        }
    }
}

/* Grid: KV heads, tiles, the last one first (it walks the most chunks). Shared: struct pipe. */
template <int KV, int DIM, bool EXACT>
CUDA_KERNEL(THREADS)
attention_prefill(CUDA_ARGS(struct cargs_attention) a) {
    CUDA_SHARED(uint8_t, shared);
    pdl_launch();
    pdl_wait();
    tile t;
    t.kv_head = blockIdx.x;
    if (!find_tile<TILE, QUERIES>(a, gridDim.y - 1 - blockIdx.y, t)) return;
    t.keys = tile_keys(a, t);
    const int head_dim = EXACT ? DIM : (int)a.head_dim, warp = (int)threadIdx.x / 32;
    const int first = t.keys.last < 0 ? 0 : t.keys.first / CHUNK;
    pipe pipe;
    pipe.last = t.keys.last < 0 ? -1 : t.keys.last / CHUNK;
    pipe.decoded = shared + (1024 - reinterpret_cast<uintptr_t>(shared) % 1024) % 1024;
    pipe.stages = pipe.decoded + (kv_traits<KV>::quantized ? stage_bytes((uint32_t)head_dim) : 0);
    pipe.bytes =
        kv_traits<KV>::quantized ? raw_bytes((uint32_t)head_dim) : stage_bytes((uint32_t)head_dim);
    pipe.n_stages = (int)a.n_stages;
    pipe.lead = pipe.n_stages - 1;
    pipe.mine.quarter = warp % 4, pipe.mine.is_k = warp < 4;
    pipe.mine.first = 0, pipe.mine.end = (uint32_t)head_dim;
    pipe.mine.block = block_of(a, t, first, pipe.mine.quarter);
    for (int i = 0; i < pipe.lead; i++)
        start_chunk<KV>(a, t, pipe.mine, first + i, (uint32_t)head_dim,
                        pipe.stages + (uint32_t)i * pipe.bytes);

    const lane_queries l = queries_of(a, t, threadIdx.x / 32 * 16);
    queries<KV, DIM> q;
    load_queries<KV, DIM>(l.q, head_dim, a.op.q_scale, q);
    /* Visible to all of the warp's queries. */
    const int all_first = __reduce_max_sync(CUDA_ALL, max(l.keys[0].first, l.keys[1].first));
    const int all_last = __reduce_min_sync(CUDA_ALL, min(l.keys[0].last, l.keys[1].last));
    float o[DIM / 8][4];
    sums total[2] = {empty_sums(), empty_sums()}, span[2] = {empty_sums(), empty_sums()};
    clear<DIM / 8>(o);
    bool first_span = true;
    for (int chunk = first; chunk <= pipe.last; chunk++) {
        float s[CHUNK / 8][4], m[2], sum[2];
        uint32_t p[CHUNK / 16][4];
        merge f[2];
        const uint8_t *stage = wait_chunk<KV>(a, t, pipe, chunk, chunk - first, (uint32_t)head_dim);
        make_scores<KV, DIM, EXACT>(q, stage, head_dim, s);
        bool whole = chunk * CHUNK >= all_first && chunk * CHUNK + CHUNK - 1 <= all_last;
        chunk_probabilities<KV>(s, chunk * CHUNK, l.keys, q.back, a.op.cap,
                                a.slopes ? l.leans : nullptr, whole, p, m);
        chunk_sums<KV>(p, sum);
        f[0] = merge_factors(span[0], m[0], sum[0]);
        f[1] = merge_factors(span[1], m[1], sum[1]);
        add_values<KV, DIM, by_group<DIM, EXACT>>(p, stage + key_bytes((uint32_t)head_dim),
                                                  head_dim, f, o);
        if (chunk % SPAN_CHUNKS != SPAN_CHUNKS - 1 || chunk == pipe.last) continue;
        add_span<DIM>(a, l, head_dim, first_span, false, o, span, total);
        span[0] = span[1] = empty_sums();
        clear<DIM / 8>(o);
        first_span = false;
    }
    add_span<DIM>(a, l, head_dim, first_span, true, o, span, total);
    async_wait<0>();
}

/* ---- heads of 512 dimensions ---- */

/* Rounds the tile's queries: each part (rows, 512) in panels of 64 dimensions, swizzled as V. */
template <int KV>
__device__ __forceinline__ void round_queries(const cargs_attention &a, const tile &t, uint8_t *to,
                                              float *back) {
    using w = wide<KV>;
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t first = threadIdx.x / 32 * 8; first < w::rows; first += WARPS * 8) {
        const lane_queries l = queries_of(a, t, first);
        query_words<KV, w::dim> q;
        load_query<KV, w::dim>(l.q[0], w::dim, a.op.q_scale, q);
        const uint32_t row = first + lane / 4;
        if (lane % 4 == 0) back[row] = q.back;
#pragma unroll
        for (int part = 0; part < kv_traits<KV>::q_parts; part++)
#pragma unroll
            for (uint32_t k = 0; k < w::dim / 8; k++)
                *reinterpret_cast<uint32_t *>(to + part * w::part_bytes + k / 8 * (w::rows * ROW) +
                                              place(row, k % 8) + lane % 4 * 4) = q.part[part][k];
    }
}

/* Scores of the warp's 16 queries, from `row` on, and some tokens, those of `unit` on (8 each), to
 * memory that the warps of these queries share. */
template <int KV>
__device__ __forceinline__ void share_scores(const uint8_t *queries, const uint8_t *keys,
                                             uint32_t row, uint32_t unit, float *scores) {
    using w = wide<KV>;
    const uint32_t lane = threadIdx.x % 32;
    float s[w::tokens / 8][4];
    clear<w::tokens / 8>(s);
#pragma unroll 4
    for (uint32_t k = 0; k < w::dim / 16; k++) {
        uint32_t f[w::tokens / 16][4];
#pragma unroll
        for (uint32_t i = 0; i < w::tokens / 16; i++)
            ldmatrix4_trans(f[i], keys + k * 16 * ROW + place(lane % 16, unit + i * 2 + lane / 16));
#pragma unroll
        for (int part = 0; part < kv_traits<KV>::q_parts; part++) {
            uint32_t q[4];
            ldmatrix4(q, queries + part * w::part_bytes + k / 4 * (w::rows * ROW) +
                             place(row + lane % 16, k % 4 * 2 + lane / 16));
#pragma unroll
            for (uint32_t i = 0; i < w::tokens / 8; i++)
                mma<KV>(s[i], q, f[i / 2] + i % 2 * 2);
        }
    }
    scores += (row + lane / 4) * SCORE_PITCH + unit * 8 + lane % 4 * 2;
#pragma unroll
    for (uint32_t i = 0; i < w::tokens / 8; i++)
#pragma unroll
        for (uint32_t r = 0; r < 2; r++)
            *reinterpret_cast<float2 *>(scores + r * 8 * SCORE_PITCH + i * 8) =
                make_float2(s[i][2 * r], s[i][2 * r + 1]);
}

/* All scores of the warp's queries, as mma leaves them. */
__device__ __forceinline__ void read_scores(const float *scores, uint32_t row,
                                            float s[CHUNK / 8][4]) {
    const uint32_t lane = threadIdx.x % 32;
    scores += (row + lane / 4) * SCORE_PITCH + lane % 4 * 2;
#pragma unroll
    for (uint32_t i = 0; i < CHUNK / 8; i++)
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            const float2 v =
                *reinterpret_cast<const float2 *>(scores + r * 8 * SCORE_PITCH + i * 8);
            s[i][2 * r] = v.x, s[i][2 * r + 1] = v.y;
        }
}

/* What a block of wide heads has in shared memory, and the warp's share of copies of K and of V. */
struct wide_pipe {
    uint8_t *queries, *stage, *raw;
    float *scores, *back;
    warp_quarter keys, values;
};

template <int KV>
__device__ __forceinline__ wide_pipe wide_pipe_of(const cargs_attention &a, const tile &t,
                                                  uint8_t *shared, int first) {
    using w = wide<KV>;
    wide_pipe p;
    p.queries = shared + (1024 - reinterpret_cast<uintptr_t>(shared) % 1024) % 1024;
    p.stage = p.queries + w::stage_at;
    p.raw = kv_traits<KV>::quantized ? p.queries + w::raw_at : p.stage;
    p.scores = reinterpret_cast<float *>(p.queries + w::scores_at);
    p.back = reinterpret_cast<float *>(p.queries + w::back_at);
    p.keys.quarter = (int)threadIdx.x / 32 % 4;
    p.keys.first = threadIdx.x / 128 * (w::dim / 2), p.keys.end = p.keys.first + w::dim / 2;
    p.keys.is_k = true;
    p.keys.block = block_of(a, t, first, p.keys.quarter);
    p.values = p.keys;
    p.values.is_k = false;
    return p;
}

/* Waits until at most N of the thread's copies are in progress. Returns K or V of the chunk. */
template <int KV, int N>
__device__ __forceinline__ const uint8_t *wait_half(const tile &t, const wide_pipe &p,
                                                    const warp_quarter &mine, int chunk) {
    using w = wide<KV>;
    async_wait<N>();
    publish();
    __syncthreads();
    if (!kv_traits<KV>::quantized) return p.stage + (mine.is_k ? 0 : w::half_bytes);
    decode_quarter(t, mine, chunk, w::dim, p.raw, p.stage);
    publish();
    __syncthreads();
    return p.stage;
}

/* Grid and order of tiles as above. K and V have one place each: a chunk's V is copied beside its
 * scores, the next K beside probabilities and values. Shared: struct wide. */
template <int KV> CUDA_KERNEL(THREADS) attention_prefill_wide(CUDA_ARGS(struct cargs_attention) a) {
    using w = wide<KV>;
    CUDA_SHARED(uint8_t, shared);
    pdl_launch();
    pdl_wait();
    tile t;
    t.kv_head = blockIdx.x;
    if (!find_tile<w::rows, QUERIES>(a, gridDim.y - 1 - blockIdx.y, t)) return;
    t.keys = tile_keys(a, t);
    const uint32_t warp = threadIdx.x / 32, row = warp % (w::rows / 16) * 16,
                   share = warp / (w::rows / 16);
    const int first = t.keys.last < 0 ? 0 : t.keys.first / CHUNK,
              last = t.keys.last < 0 ? -1 : t.keys.last / CHUNK;
    wide_pipe pipe = wide_pipe_of<KV>(a, t, shared, first);
    start_chunk<KV>(a, t, pipe.keys, first, w::dim, pipe.raw);
    round_queries<KV>(a, t, pipe.queries, pipe.back);
    __syncthreads();

    lane_queries l = queries_of(a, t, row);
    const float back[2] = {pipe.back[row + threadIdx.x % 32 / 4],
                           pipe.back[row + threadIdx.x % 32 / 4 + 8]};
    const int all_first = __reduce_max_sync(CUDA_ALL, max(l.keys[0].first, l.keys[1].first));
    const int all_last = __reduce_min_sync(CUDA_ALL, min(l.keys[0].last, l.keys[1].last));
#pragma unroll
    for (int r = 0; r < 2; r++)
        if (l.out[r]) l.out[r] += share * w::dims;
    float o[w::dims / 8][4];
    sums total[2] = {empty_sums(), empty_sums()}, span[2] = {empty_sums(), empty_sums()};
    clear<w::dims / 8>(o);
    bool first_span = true;
    for (int chunk = first; chunk <= last; chunk++) {
        float s[CHUNK / 8][4], m[2], sum[2];
        uint32_t p[CHUNK / 16][4];
        merge f[2];
        const uint8_t *keys = wait_half<KV, 0>(t, pipe, pipe.keys, chunk);
        if (wide_by_group<KV>) {
            clear<CHUNK / 8>(s);
            start_scores(pipe.queries, keys, s);
        }
        start_chunk<KV>(a, t, pipe.values, chunk, w::dim, pipe.raw);
        if (wide_by_group<KV>)
            wait_scores();
        else
            share_scores<KV>(pipe.queries, keys, row, share * (w::tokens / 8), pipe.scores);
        __syncthreads();
        start_chunk<KV>(a, t, pipe.keys, chunk + 1, w::dim, pipe.raw);
        if (!wide_by_group<KV>) read_scores(pipe.scores, row, s);
        bool whole = chunk * CHUNK >= all_first && chunk * CHUNK + CHUNK - 1 <= all_last;
        chunk_probabilities<KV>(s, chunk * CHUNK, l.keys, back, a.op.cap,
                                a.slopes ? l.leans : nullptr, whole, p, m);
        chunk_sums<KV>(p, sum);
        f[0] = merge_factors(span[0], m[0], sum[0]);
        f[1] = merge_factors(span[1], m[1], sum[1]);
        const uint8_t *values = wait_half<KV, 1>(t, pipe, pipe.values, chunk);
        add_values<KV, w::dims, wide_by_group<KV>>(
            p, values + share * (w::dims / PANEL * CHUNK * ROW), w::dims, f, o);
        if (chunk % SPAN_CHUNKS != SPAN_CHUNKS - 1 || chunk == last) continue;
        add_span<w::dims>(a, l, w::dims, first_span, false, o, span, total);
        span[0] = span[1] = empty_sums();
        clear<w::dims / 8>(o);
        first_span = false;
    }
    add_span<w::dims>(a, l, w::dims, first_span, true, o, span, total);
    async_wait<0>();
}

template <int KV> const void *prefill_kernel(int dims) {
    return dims == CUDA_ATTENTION_64       ? (const void *)attention_prefill<KV, 64, true>
           : dims == CUDA_ATTENTION_512    ? (const void *)attention_prefill_wide<KV>
           : dims == CUDA_ATTENTION_128    ? (const void *)attention_prefill<KV, 128, true>
           : dims == CUDA_ATTENTION_TO_128 ? (const void *)attention_prefill<KV, 128, false>
                                           : (const void *)attention_prefill<KV, 256, false>;
}

} // namespace

const void *cuda_attention_prefill_kernel(enum cuda_attention_type type,
                                          enum cuda_attention_dims dims) {
    return type == CUDA_ATTENTION_F16    ? prefill_kernel<CUDA_ATTENTION_F16>(dims)
           : type == CUDA_ATTENTION_BF16 ? prefill_kernel<CUDA_ATTENTION_BF16>(dims)
                                         : prefill_kernel<CUDA_ATTENTION_Q8>(dims);
}

uint32_t cuda_attention_wide_tile(enum cuda_attention_type type) {
    return type == CUDA_ATTENTION_BF16 ? wide<CUDA_ATTENTION_BF16>::rows
                                       : wide<CUDA_ATTENTION_F16>::rows;
}

uint32_t cuda_attention_wide_shared(enum cuda_attention_type type) {
    return type == CUDA_ATTENTION_F16    ? wide<CUDA_ATTENTION_F16>::bytes
           : type == CUDA_ATTENTION_BF16 ? wide<CUDA_ATTENTION_BF16>::bytes
                                         : wide<CUDA_ATTENTION_Q8>::bytes;
}
