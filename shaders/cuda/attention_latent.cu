/* attention_latent.cu - paged attention over latent rows (multi-head latent attention): all query
 * heads share one KV head whose V is the head of K. A block has up to 24 queries of a sequence
 * (N groups of 8), so that a row is read from memory once for that many heads, and both as K and as
 * V from shared memory, where a chunk lies as in the pool: dimensions by tokens. It takes its
 * chunks one after the other, in three phases between barriers:
 *   scores         each warp has 16 tokens and half of the dimensions
 *   probabilities  each warp has N of the queries and adds the halves
 *   values         each warp has 64 dimensions of V
 * The same kernel serves decode steps (a task's positions are divided among blocks, attention_
 * decode_task.cuh) and prompts (tiles of 24 queries, whose block walks all chunks): products stay
 * absorbed there, because only so a row has the same bits in both.
 *
 * Order of operations: that of attention.cuh, except that a score is the sum of the scores of
 * dimensions 0..287 and 288..575, and l a sum over lanes. */
#include "shaders/cuda/attention_decode_task.cuh"
#include "shaders/cuda/attention_tile.cuh"
#include "shaders/cuda/kernels.h"

namespace {

enum {
    WARPS = CUDA_LATENT_WARPS,
    THREADS = 32 * WARPS,
    DIM = CUDA_LATENT_DIM,
    V_DIM = CUDA_LATENT_V_DIM,
    HALF = DIM / 2,
    STEPS = HALF / 16,         /* products of a warp's scores */
    TILES = V_DIM / 16 / WARPS /* of a warp's values */
};

/* ---- shared memory: stages, scores of both halves, probabilities, facts of the queries, the low
 * parts of queries ---- */

template <int KV, int N> struct layout {
    static constexpr uint32_t slots = 8 * N;
    static constexpr uint32_t stage_bytes = DIM * 128;
    /* Pitches keep neighbouring queries in different banks. */
    static constexpr uint32_t score_pitch = CHUNK + 4;            /* floats */
    static constexpr uint32_t probability_pitch = 2 * CHUNK + 16; /* bytes */
    static constexpr uint32_t low_pitch = 2 * DIM + 16;
    static constexpr uint32_t scores_at = 0;
    static constexpr uint32_t probabilities_at = 2 * slots * score_pitch * 4;
    static constexpr uint32_t facts_at = probabilities_at + slots * probability_pitch;
    static constexpr uint32_t low_at = facts_at + slots * 5 * 4;
    static constexpr uint32_t bytes =
        low_at + (kv_traits<KV>::q_parts == 2 ? slots * low_pitch : 0);
};

/* Of the block's queries. */
struct facts {
    merge *merges;    /* of the chunk or the span */
    float *factor;    /* normalize_factor */
    float *up, *back; /* of rounded queries */
};

template <int KV, int N> struct block {
    uint8_t *stages;
    float *scores;
    uint8_t *probabilities, *low;
    facts f;
};

template <int KV, int N>
__device__ __forceinline__ block<KV, N> block_at(uint8_t *shared, uint32_t n_stages) {
    using at = layout<KV, N>;
    block<KV, N> b;
    b.stages = shared;
    shared += n_stages * at::stage_bytes;
    b.scores = reinterpret_cast<float *>(shared + at::scores_at);
    b.probabilities = shared + at::probabilities_at;
    b.low = shared + at::low_at;
    b.f.merges = reinterpret_cast<merge *>(shared + at::facts_at);
    b.f.factor = reinterpret_cast<float *>(b.f.merges + at::slots);
    b.f.up = b.f.factor + at::slots;
    b.f.back = b.f.up + at::slots;
    return b;
}

/* ---- chunks ---- */

/* The block, by the table, of the warp's quarter of a chunk. */
__device__ __forceinline__ uint32_t block_of(const cargs_attention &a, const task &t, int chunk) {
    const uint32_t pos = (uint32_t)chunk * CHUNK + threadIdx.x / 32 % 4 * QUARTER;
    const uint32_t at = pos / a.block_tokens;
    return at < a.op.table_stride ? (uint32_t)a.tables[(uint64_t)t.seq * a.op.table_stride + at]
                                  : 0;
}

/* Starts the warp's share of a chunk's copy, which lies in `block`: a quarter of the tokens, half
 * of the dimensions. Eight tokens of which none is visible become zeros. */
__device__ __forceinline__ void start_chunk(const cargs_attention &a, const task &t, int chunk,
                                            int last, uint32_t block, uint8_t *stage) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, quarter = warp % 4;
    if (chunk <= last) {
        const int pos = chunk * CHUNK + (int)quarter * QUARTER + (int)(lane % 2) * 8;
        const bool visible = sees_any(t.keys, pos, 8);
        const uint32_t bt = a.block_tokens;
        uint32_t d = warp / 4 * HALF + lane / 2;
        const uint8_t *from = static_cast<const uint8_t *>(a.k) +
                              (uint64_t)(visible ? block : 0) * a.run_bytes +
                              ((uint64_t)d * bt + (uint32_t)pos % bt) * 2;
        uint8_t *to = stage + place(d, quarter * 2 + lane % 2);
#pragma unroll
        for (int i = 0; i < HALF / 16; i++) /* 16 rows keep their permutation */
            async_copy16_if(to + i * 16 * 128, from + (uint64_t)(i * 16) * bt * 2, visible);
    }
    async_commit();
}

/* Clears invisible tokens among eight of which some are visible: they may be NaN. */
__device__ __forceinline__ void clear_partial(const task &t, int chunk, uint8_t *stage) {
#pragma unroll 1
    for (int end = 0; end < 2; end++) {
        const int edge = end ? t.keys.last : t.keys.first, pos = edge & ~7;
        if (edge / CHUNK != chunk || (sees(t.keys, pos) && sees(t.keys, pos + 7))) continue;
        for (uint32_t d = threadIdx.x; d < DIM; d += THREADS) {
            uint16_t *at =
                reinterpret_cast<uint16_t *>(stage + place(d, (uint32_t)pos % CHUNK / 8));
            for (int i = 0; i < 8; i++)
                if (!sees(t.keys, pos + i)) at[i] = 0;
        }
    }
}

__device__ __forceinline__ bool is_partial(const task &t, int chunk) {
    return (t.keys.last / CHUNK == chunk && t.keys.last % 8 != 7) ||
           (t.keys.first / CHUNK == chunk && t.keys.first % 8 != 0);
}

/* ---- queries ---- */

/* Words 2 k and 2 k + 1 of a group: the right operand of the k-th product of the warp's half; the
 * lane has query lane / 4. */
template <int N> struct queries_of_half { uint32_t word[N][2 * STEPS]; };

__device__ __forceinline__ const float *query_row_of(const cargs_attention &a, const task &t,
                                                     uint32_t slot) {
    return slot < t.n_queries ? a.q + query_at(a, t, slot) : nullptr;
}

/* The powers of two of the warp's N queries. All loads are in flight at once. */
template <int KV, int N>
__device__ __forceinline__ void scale_queries(const cargs_attention &a, const task &t,
                                              const facts &f) {
    const uint32_t lane = threadIdx.x % 32, first = threadIdx.x / 32 * N;
    float top[N];
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float *row = query_row_of(a, t, first + (uint32_t)j);
        top[j] = 0;
#pragma unroll
        for (int d = 0; d < DIM; d += 64) {
            const float2 v = load_pair(row, d + 2 * (int)lane, DIM);
            top[j] = fmaxf(top[j], fmaxf(fabsf(v.x), fabsf(v.y)));
        }
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        float up = 1, back = 1;
        const float most = warp_max(top[j]);
        if (KV != CUDA_ATTENTION_BF16) up = scale_for(__fmul_rn(most, fabsf(a.op.q_scale)), &back);
        if (lane == 0) f.up[first + j] = up, f.back[first + j] = back;
    }
}

template <int KV, int N>
__device__ __forceinline__ void load_half(const cargs_attention &a, const task &t,
                                          const block<KV, N> &b, queries_of_half<N> &q) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
    const uint32_t first = warp / 4 * HALF + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < N; n++) {
        const uint32_t slot = (uint32_t)n * 8 + g;
        const float *row = query_row_of(a, t, slot);
        const float up = b.f.up[slot];
        uint8_t *low = b.low + slot * layout<KV, N>::low_pitch + first * 2;
#pragma unroll
        for (int k = 0; k < 2 * STEPS; k++) {
            const float2 v = load_pair(row, (int)first + k * 8, DIM);
            const float x = __fmul_rn(__fmul_rn(v.x, a.op.q_scale), up),
                        y = __fmul_rn(__fmul_rn(v.y, a.op.q_scale), up);
            q.word[n][k] = pack<KV>(x, y);
            if (kv_traits<KV>::q_parts == 1 || warp % 4 != 0) continue;
            const float2 h = unpack_bf16(q.word[n][k]);
            *reinterpret_cast<uint32_t *>(low + k * 16) =
                pack_bf16(__fsub_rn(x, h.x), __fsub_rn(y, h.y));
        }
    }
}

/* ---- a chunk's phases ---- */

template <int KV, int N>
__device__ __forceinline__ void make_scores(const block<KV, N> &b, const queries_of_half<N> &q,
                                            const uint8_t *stage) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, tile = warp % 4,
                   half = warp / 4, g = lane / 4, t = lane % 4;
    const uint8_t *from =
        stage + place(half * HALF + lane / 16 * 8 + lane % 8, tile * 2 + lane / 8 % 2);
    const uint8_t *low = b.low + g * layout<KV, N>::low_pitch + (half * HALF + t * 2) * 2;
    float s[N][4];
#pragma unroll
    for (int n = 0; n < N; n++)
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
    uint32_t a[2][4]; /* loaded a step ahead */
    ldmatrix4_trans(a[0], from);
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        if (k + 1 < STEPS) ldmatrix4_trans(a[(k + 1) % 2], from + (k + 1) * 16 * 128);
#pragma unroll
        for (int n = 0; n < N; n++) {
            mma<KV>(s[n], a[k % 2], q.word[n] + 2 * k);
            if (kv_traits<KV>::q_parts == 1) continue;
            const uint8_t *at = low + n * 8 * layout<KV, N>::low_pitch + k * 32;
            const uint32_t w[2] = {*reinterpret_cast<const uint32_t *>(at),
                                   *reinterpret_cast<const uint32_t *>(at + 16)};
            mma<KV>(s[n], a[k % 2], w);
        }
    }
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            b.scores[(half * layout<KV, N>::slots + (uint32_t)(n * 8) + 2 * t + e % 2) *
                         layout<KV, N>::score_pitch +
                     tile * 16 + g + e / 2 * 8] = s[n][e];
}

/* The largest over the warp: integers of the order of floats have an instruction for it. */
__device__ __forceinline__ float warp_largest(float v) {
    int i = __float_as_int(v);
    i ^= (i >> 31) & 0x7fffffff;
    i = __reduce_max_sync(CUDA_ALL, i);
    return __int_as_float(i ^ ((i >> 31) & 0x7fffffff));
}

/* The warp's N queries: what they see, and their sums of the span. The same in all lanes. */
template <int N> struct lane_queries {
    seen keys[N];
    sums span[N], total[N];
};

template <int KV, int N>
__device__ __forceinline__ void make_probabilities(const cargs_attention &a, const block<KV, N> &b,
                                                   int chunk, lane_queries<N> &l) {
    using at = layout<KV, N>;
    const uint32_t lane = threadIdx.x % 32;
    const int pos = chunk * CHUNK + 2 * (int)lane;
#pragma unroll
    for (int j = 0; j < N; j++) {
        const uint32_t slot = threadIdx.x / 32 * N + (uint32_t)j;
        const float *from = b.scores + slot * at::score_pitch + 2 * lane;
        const float2 lo = *reinterpret_cast<const float2 *>(from),
                     hi = *reinterpret_cast<const float2 *>(from + at::slots * at::score_pitch);
        float s[2] = {__fadd_rn(lo.x, hi.x), __fadd_rn(lo.y, hi.y)}, unit = b.f.back[slot];
        if (a.op.cap != 0) {
            s[0] = capped(s[0], unit, a.op.cap), s[1] = capped(s[1], unit, a.op.cap);
            unit = 1;
        }
        if (!sees(l.keys[j], pos)) s[0] = NOTHING;
        if (!sees(l.keys[j], pos + 1)) s[1] = NOTHING;
        const float m = __fmul_rn(warp_largest(fmaxf(s[0], s[1])), unit);
        const uint32_t p = pack<KV>(probability_of(s[0], unit, m), probability_of(s[1], unit, m));
        *reinterpret_cast<uint32_t *>(b.probabilities + slot * at::probability_pitch + lane * 4) =
            p;
        const float2 rounded = KV == CUDA_ATTENTION_BF16 ? unpack_bf16(p) : unpack_f16(p);
        const merge f = merge_factors(l.span[j], m, warp_sum(__fadd_rn(rounded.x, rounded.y)));
        if (lane == 0) b.f.merges[slot] = f;
    }
}

/* o[i][n]: dimensions of the warp's tile i, queries of group n, as mma leaves them. */
template <int N> struct values { float o[TILES][N][4]; };

template <int N> __device__ __forceinline__ void clear(values<N> &v) {
#pragma unroll
    for (int i = 0; i < TILES * N * 4; i++)
        v.o[i / (4 * N)][i / 4 % N][i % 4] = 0;
}

/* Adds the chunk's values to the span's. */
template <int KV, int N>
__device__ __forceinline__ void add_values(const block<KV, N> &b, const uint8_t *stage,
                                           values<N> &span) {
    using at = layout<KV, N>;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const uint32_t row = warp * (TILES * 16) + lane / 8 % 2 * 8 + lane % 8;
    const uint8_t *p = b.probabilities + g * at::probability_pitch + t * 4;
    values<N> add;
    clear(add);
#pragma unroll
    for (int k = 0; k < CHUNK / 16; k++) {
        uint32_t w[N][2];
#pragma unroll
        for (int n = 0; n < N; n++) {
            const uint8_t *from = p + n * 8 * at::probability_pitch + k * 32;
            w[n][0] = *reinterpret_cast<const uint32_t *>(from);
            w[n][1] = *reinterpret_cast<const uint32_t *>(from + 16);
        }
        uint32_t v[TILES][4];
#pragma unroll
        for (int i = 0; i < TILES; i++)
            ldmatrix4(v[i], stage + place(row, (uint32_t)k * 2 + lane / 16) + i * 16 * 128);
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int n = 0; n < N; n++)
                mma<KV>(add.o[i][n], v[i], w[n]);
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
        const merge f[2] = {b.f.merges[n * 8 + 2 * (int)t], b.f.merges[n * 8 + 2 * (int)t + 1]};
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                span.o[i][n][e] = merged(span.o[i][n][e], add.o[i][n][e], f[e % 2]);
    }
}

/* ---- results ---- */

/* Calls put(slot, dimension, value) for each of the lane's values of existing queries. */
template <int N, class PUT>
__device__ __forceinline__ void each_value(const task &t, const values<N> &v, PUT put) {
    const uint32_t lane = threadIdx.x % 32, first = threadIdx.x / 32 * (TILES * 16) + lane / 4;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const uint32_t slot = (uint32_t)n * 8 + lane % 4 * 2 + e % 2;
            if (slot >= t.n_queries) continue;
#pragma unroll
            for (int i = 0; i < TILES; i++)
                put(slot, first + (uint32_t)i * 16 + e / 2 * 8, v.o[i][n][e]);
        }
}

/* The span is one of the task's partial results. */
template <int KV, int N>
__device__ __forceinline__ void store_partial(const cargs_attention &a, const task &t,
                                              const lane_queries<N> &l, const values<N> &v,
                                              uint32_t split) {
#pragma unroll
    for (int j = 0; j < N; j++) {
        const uint32_t slot = threadIdx.x / 32 * N + (uint32_t)j;
        if (threadIdx.x % 32 == 0 && slot < t.n_queries)
            *reinterpret_cast<float2 *>(partial_at(a, t, split, slot) + V_DIM) =
                make_float2(l.span[j].m, l.span[j].l);
    }
    each_value<N>(
        t, v, [&](uint32_t slot, uint32_t d, float o) { partial_at(a, t, split, slot)[d] = o; });
}

/* Merges the span with the previous ones, which lie in out, not yet normalized. */
template <int KV, int N>
__device__ __forceinline__ void add_span(const cargs_attention &a, const task &t,
                                         const block<KV, N> &b, lane_queries<N> &l,
                                         const values<N> &v, bool first, bool last) {
    __syncthreads(); /* the last chunk's merges are not read any more */
#pragma unroll
    for (int j = 0; j < N; j++) {
        const uint32_t slot = threadIdx.x / 32 * N + (uint32_t)j;
        const merge f = merge_factors(l.total[j], l.span[j].m, l.span[j].l);
        if (threadIdx.x % 32 == 0 && slot < t.n_queries) {
            b.f.merges[slot] = f;
            b.f.factor[slot] = normalize_factor(l.total[j], a.sinks, query_head(t, slot));
        }
    }
    __syncthreads();
    each_value<N>(t, v, [&](uint32_t slot, uint32_t d, float o) {
        float *to = a.out + out_at(a, t, slot) + d;
        const float sum = merged(first ? 0 : *to, o, b.f.merges[slot]);
        *to = last ? normalized(sum, b.f.factor[slot]) : sum;
    });
}

/* ---- the kernel ---- */

/* The block's task and chunks; false: none. */
template <int N>
__device__ __forceinline__ bool find_work(const cargs_attention &a, task &t, share &s) {
    if (a.tiles == 0) {
        if (!find_task(a, blockIdx.y, a.slice, CUDA_LATENT_QUERIES, t) ||
            (int)blockIdx.x >= max(t.n_blocks, 1))
            return false;
        s = share_of(a, t, (int)blockIdx.x);
        return true;
    }
    tile of;
    /* The last tile first: it walks the most chunks. */
    if (!find_tile<8 * N, CUDA_LATENT_QUERIES>(a, gridDim.x - 1 - blockIdx.x, of)) return false;
    t.index = 0;
    t.seq = of.seq, t.kv_head = 0, t.row = of.row, t.group = a.op.n_heads;
    t.query = of.query, t.n_queries = of.n_queries;
    t.keys = tile_keys(a, of);
    t.first_split = 0, t.n_splits = t.n_blocks = 1;
    s.begin = t.keys.last < 0 ? 0 : t.keys.first / CHUNK;
    s.end = t.keys.last < 0 ? -1 : t.keys.last / CHUNK;
    s.whole = true;
    return true;
}

template <int KV, int N>
__device__ __forceinline__ void attend(const cargs_attention &a, const task &t, const share &s,
                                       const block<KV, N> &b) {
    using at = layout<KV, N>;
    queries_of_half<N> q;
    lane_queries<N> l;
    values<N> span;
    const bool by_chunk = a.by_chunk && !s.whole;
    bool first = true;
    uint32_t next = block_of(a, t, s.begin + (int)a.n_stages); /* of the chunk copied next */
    load_half<KV, N>(a, t, b, q);
#pragma unroll
    for (int j = 0; j < N; j++) {
        const uint32_t slot = threadIdx.x / 32 * N + (uint32_t)j;
        l.keys[j] = slot < t.n_queries ? seen_by(a, t.seq, query_row(t, slot)) : seen_from(-1, 0);
        l.span[j] = l.total[j] = empty_sums();
    }
    clear(span);
#pragma unroll 1
    for (int chunk = s.begin; chunk <= s.end; chunk++) {
        uint8_t *stage = b.stages + (uint32_t)(chunk - s.begin) % a.n_stages * at::stage_bytes;
        if (a.n_stages == 2)
            async_wait<1>();
        else
            async_wait<0>();
        __syncthreads();
        if (is_partial(t, chunk)) {
            clear_partial(t, chunk, stage);
            __syncthreads();
        }
        make_scores<KV, N>(b, q, stage);
        __syncthreads();
        make_probabilities<KV, N>(a, b, chunk, l);
        __syncthreads();
        add_values<KV, N>(b, stage, span);
        __syncthreads();
        start_chunk(a, t, chunk + (int)a.n_stages, s.end, next, stage);
        next = block_of(a, t, chunk + (int)a.n_stages + 1);
        const bool last = chunk == s.end;
        if (!by_chunk && chunk % SPAN_CHUNKS != SPAN_CHUNKS - 1 && !last) continue;
        if (s.whole)
            add_span<KV, N>(a, t, b, l, span, first, last);
        else
            store_partial<KV, N>(
                a, t, l, span,
                (uint32_t)((by_chunk ? chunk : chunk / SPAN_CHUNKS) - t.first_split));
        first = false;
#pragma unroll
        for (int j = 0; j < N; j++)
            l.span[j] = empty_sums();
        clear(span);
    }
    if (s.whole && first) add_span<KV, N>(a, t, b, l, span, true, true); /* nothing is visible */
}

/* Grid: blocks of a task, tasks; or tiles. Shared: the stages, then struct layout. */
template <int KV, int N>
CUDA_KERNEL_MIN(THREADS, 1)
attention_latent(CUDA_ARGS(struct cargs_attention) a) {
    CUDA_SHARED(uint8_t, shared);
    pdl_launch();
    task t;
    share s;
    if (!find_work<N>(a, t, s)) {
        pdl_wait();
        return;
    }
    const block<KV, N> b = block_at<KV, N>(shared, a.n_stages);
    /* Rows of earlier steps may be copied at once, those of this one are stored by the previous
     * kernel: see attention_decode. */
    const bool early =
        a.n_rows == a.op.n_seqs && (s.begin + (int)a.n_stages) * CHUNK <= t.keys.last;
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
        if (i == 1) pdl_wait();
        if (early != (i == 0)) continue;
        for (int stage = 0; stage < (int)a.n_stages; stage++)
            start_chunk(a, t, s.begin + stage, s.end, block_of(a, t, s.begin + stage),
                        b.stages + (uint32_t)stage * layout<KV, N>::stage_bytes);
    }
    scale_queries<KV, N>(a, t, b.f);
    __syncthreads();
    attend<KV, N>(a, t, s, b);
    async_wait<0>();
}

/* Merges the partial results of tasks whose positions were divided: a task's are too many for the
 * last of its blocks. Grid: blocks of a task, tasks. */
CUDA_KERNEL(CUDA_LATENT_MERGE_THREADS)
attention_latent_merge(CUDA_ARGS(struct cargs_attention) a) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    task t;
    pdl_launch();
    const bool is = find_task(a, blockIdx.y, a.slice, CUDA_LATENT_QUERIES, t);
    pdl_wait();
    if (!is || share_of(a, t, 0).whole || i >= t.n_queries * (V_DIM / 4)) return;
    merge_query(a, t, i / (V_DIM / 4), i % (V_DIM / 4) * 4);
}

template <int KV> const void *latent_kernel(uint32_t n_groups) {
    return n_groups == 1   ? (const void *)attention_latent<KV, 1>
           : n_groups == 2 ? (const void *)attention_latent<KV, 2>
                           : (const void *)attention_latent<KV, CUDA_LATENT_GROUPS>;
}

template <int KV> uint32_t latent_shared(uint32_t n_groups, uint32_t n_stages) {
    const uint32_t rest = n_groups == 1   ? layout<KV, 1>::bytes
                          : n_groups == 2 ? layout<KV, 2>::bytes
                                          : layout<KV, CUDA_LATENT_GROUPS>::bytes;
    return n_stages * layout<KV, 1>::stage_bytes + rest;
}

} // namespace

const void *cuda_attention_latent_merge_kernel(void) {
    return (const void *)attention_latent_merge;
}

const void *cuda_attention_latent_kernel(enum cuda_attention_type type, uint32_t n_groups) {
    return type == CUDA_ATTENTION_BF16 ? latent_kernel<CUDA_ATTENTION_BF16>(n_groups)
                                       : latent_kernel<CUDA_ATTENTION_F16>(n_groups);
}

uint32_t cuda_attention_latent_shared(enum cuda_attention_type type, uint32_t n_groups,
                                      uint32_t n_stages) {
    return type == CUDA_ATTENTION_BF16 ? latent_shared<CUDA_ATTENTION_BF16>(n_groups, n_stages)
                                       : latent_shared<CUDA_ATTENTION_F16>(n_groups, n_stages);
}
