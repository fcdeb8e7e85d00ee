/* attention_latent.cu - paged attention over latent rows (multi-head latent attention): all query
 * heads share one KV head whose V is the head of K. A block has up to 24 queries of a sequence
 * (N groups of 8), so that a row is read from memory once for that many heads, and both as K and as
 * V from shared memory. Its warps have three roles and meet at barriers in shared memory, so that
 * copies, scores and values of different chunks overlap:
 *   producers    copy quarters of chunks into a ring
 *   score warps  each has two quarters and half of the dimensions of a chunk's scores, then 2 N of
 *                the queries, whose halves it adds and makes probabilities of
 *   value warps  each has 128 dimensions of V, and what is kept of the chunks so far
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
    SCORE_WARPS = 4,
    VALUE_WARPS = 4,
    FIRST_PRODUCER = SCORE_WARPS + VALUE_WARPS,
    PRODUCERS = CUDA_LATENT_WARPS - FIRST_PRODUCER,
    THREADS = 32 * CUDA_LATENT_WARPS,
    DIM = CUDA_LATENT_DIM,
    V_DIM = CUDA_LATENT_V_DIM,
    HALF = DIM / 2,
    STEPS = HALF / 16,                /* products of a warp's scores */
    TILES = V_DIM / 16 / VALUE_WARPS, /* of a warp's values */
    QUARTERS = CHUNK / QUARTER,
    RING = CUDA_LATENT_RING /* most quarters in shared memory */
};

/* Tiles whose values of a chunk a warp has in registers at a time. */
template <int N> constexpr int pass_tiles = N > 2 ? 2 : 4;

/* ---- shared memory: the ring of quarters; scores of both halves; of two chunks the probabilities,
 * and m and l; facts of the queries; barriers; the low parts of queries ---- */

/* up: the power of two by which a rounded query is multiplied; back undoes it. */
struct facts {
    seen keys;
    float up, back;
};

template <int KV, int N> struct layout {
    static constexpr uint32_t slots = 8 * N;
    static constexpr uint32_t quarter_bytes = DIM * QUARTER * 2;
    /* Pitches keep neighbouring queries in different banks. */
    static constexpr uint32_t score_pitch = CHUNK + 4;            /* floats */
    static constexpr uint32_t probability_pitch = 2 * CHUNK + 16; /* bytes */
    static constexpr uint32_t low_pitch = 2 * DIM + 16;
    static constexpr uint32_t probabilities_at = 2 * slots * score_pitch * 4;
    static constexpr uint32_t sums_at = probabilities_at + 2 * slots * probability_pitch;
    static constexpr uint32_t facts_at = sums_at + 2 * slots * (uint32_t)sizeof(sums);
    static constexpr uint32_t bars_at = facts_at + slots * (uint32_t)sizeof(facts);
    static constexpr uint32_t low_at = bars_at + (2 * RING + 6) * 8;
    static constexpr uint32_t bytes =
        low_at + (kv_traits<KV>::q_parts == 2 ? slots * low_pitch : 0);
};

/* Two chunks alternate in probabilities and chunk_sums. Barriers: a quarter or a chunk's
 * probabilities are there (full), or are not needed any more (empty); scores alike, where full is
 * also passed twice before the first chunk. */
template <int KV, int N> struct block {
    using at = layout<KV, N>;
    uint8_t *quarters;
    float *scores;
    uint8_t *probabilities, *low;
    sums *chunk_sums;
    facts *queries;
    uint64_t *full, *empty, *probabilities_full, *probabilities_empty, *scores_full, *scores_empty;
    __device__ __forceinline__ uint8_t *quarter(uint32_t i) const {
        return quarters + i * at::quarter_bytes;
    }
};

template <int KV, int N>
__device__ __forceinline__ block<KV, N> block_at(uint8_t *shared, uint32_t n_quarters) {
    using at = layout<KV, N>;
    block<KV, N> b;
    b.quarters = shared;
    shared += n_quarters * at::quarter_bytes;
    b.scores = reinterpret_cast<float *>(shared);
    b.probabilities = shared + at::probabilities_at;
    b.chunk_sums = reinterpret_cast<sums *>(shared + at::sums_at);
    b.queries = reinterpret_cast<facts *>(shared + at::facts_at);
    b.low = shared + at::low_at;
    b.full = reinterpret_cast<uint64_t *>(shared + at::bars_at);
    b.empty = b.full + RING;
    b.probabilities_full = b.empty + RING;
    b.probabilities_empty = b.probabilities_full + 2;
    b.scores_full = b.probabilities_empty + 2;
    b.scores_empty = b.scores_full + 1;
    return b;
}

/* By all threads. */
template <int KV, int N> __device__ __forceinline__ void make_barriers(const block<KV, N> &b) {
    const uint32_t i = threadIdx.x;
    if (i < RING) {
        mbar_init(b.full + i, 32);
        mbar_init(b.empty + i, VALUE_WARPS);
    }
    if (i < 2) {
        mbar_init(b.probabilities_full + i, SCORE_WARPS);
        mbar_init(b.probabilities_empty + i, VALUE_WARPS);
    }
    if (i == 0) {
        mbar_init(b.scores_full, SCORE_WARPS);
        mbar_init(b.scores_empty, SCORE_WARPS);
    }
    if (i < RING) mbar_fence();
    __syncthreads();
}

/* The warp has written, or has read, what the barrier is about. */
__device__ __forceinline__ void warp_arrive(uint64_t *bar) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbar_arrive(bar);
}

/* A place in the ring, and the parity of its phase of full. */
struct ring_place {
    uint32_t at, parity;
};

__device__ __forceinline__ ring_place later(ring_place r, uint32_t n, uint32_t n_quarters) {
    r.at += n;
    if (r.at >= n_quarters) r.at -= n_quarters, r.parity ^= 1;
    return r;
}

/* ---- quarters: rows of 16 tokens, 32 bytes, one per dimension; the halves of a row are swapped in
 * every second four rows, so that eight rows of either half lie in different banks ---- */

__device__ __forceinline__ uint32_t row_place(uint32_t d, uint32_t half) {
    return d * 32 + ((half ^ d / 4) & 1) * 16;
}

/* The block, by the table, of a quarter. */
__device__ __forceinline__ uint32_t block_of(const cargs_attention &a, const task &t, int quarter) {
    const uint32_t at = (uint32_t)quarter * QUARTER / a.block_tokens;
    return at < a.op.table_stride ? (uint32_t)a.tables[(uint64_t)t.seq * a.op.table_stride + at]
                                  : 0;
}

/* Clears the warp's quarter's invisible tokens among eight of which some are visible: they may be
 * NaN. */
__device__ __forceinline__ void clear_partial(const task &t, int quarter, uint8_t *to) {
#pragma unroll 1
    for (int end = 0; end < 2; end++) {
        const int edge = end ? t.keys.last : t.keys.first, pos = edge & ~7;
        if (edge / QUARTER != quarter) continue;
        for (uint32_t d = threadIdx.x % 32; d < DIM; d += 32) {
            uint16_t *at = reinterpret_cast<uint16_t *>(to + row_place(d, (uint32_t)pos / 8 % 2));
            for (int i = 0; i < 8; i++)
                if (!sees(t.keys, pos + i)) at[i] = 0;
        }
    }
}

__device__ __forceinline__ bool is_partial(const task &t, int quarter) {
    return (t.keys.last / QUARTER == quarter && t.keys.last % 8 != 7) ||
           (t.keys.first / QUARTER == quarter && t.keys.first % 8 != 0);
}

/* The warp copies a quarter, which lies in `block`. Eight tokens of which none is visible become
 * zeros. */
__device__ __forceinline__ void copy_quarter(const cargs_attention &a, const task &t, int quarter,
                                             uint32_t block, uint8_t *to, uint64_t *full) {
    const uint32_t lane = threadIdx.x % 32, bt = a.block_tokens;
    const int pos = quarter * QUARTER + (int)(lane % 2) * 8;
    const bool visible = sees_any(t.keys, pos, 8);
    const uint8_t *from = static_cast<const uint8_t *>(a.k) +
                          (uint64_t)(visible ? block : 0) * a.run_bytes +
                          (lane / 2 * bt + (uint32_t)pos % bt) * 2;
    uint8_t *at = to + row_place(lane / 2, lane % 2);
#pragma unroll
    for (int i = 0; i < DIM / 16; i++) /* 16 rows keep the order of their halves */
        async_copy16_if(at + i * 16 * 32, from + (uint64_t)(i * 16) * bt * 2, visible);
    if (is_partial(t, quarter)) {
        async_commit();
        async_wait<0>();
        __syncwarp();
        clear_partial(t, quarter, to);
        mbar_arrive(full);
    } else
        async_arrive(full);
}

/* The producers' part: each takes the next but PRODUCERS - 1 quarter. With one row of a sequence,
 * rows of earlier steps may be copied before pdl_wait, only those of this one are stored by the
 * previous kernel: see attention_decode. */
template <int KV, int N>
__device__ __forceinline__ void produce(const cargs_attention &a, const task &t, const share &s,
                                        const block<KV, N> &b) {
    const int first = s.begin * QUARTERS, end = (s.end + 1) * QUARTERS,
              early = a.n_rows == a.op.n_seqs ? min(t.keys.last / QUARTER, first + (int)a.n_stages)
                                              : first;
    bool waited = false;
    int quarter = first + (int)threadIdx.x / 32 - FIRST_PRODUCER;
    ring_place r = {(uint32_t)(quarter - first), 0};
    uint32_t next = block_of(a, t, quarter);
#pragma unroll 1
    for (; quarter < end; quarter += PRODUCERS) {
        const uint32_t block = next;
        next = block_of(a, t, quarter + PRODUCERS);
        if (!waited && quarter >= early) {
            pdl_wait();
            waited = true;
        }
        mbar_wait(b.empty + r.at, r.parity ^ 1);
        copy_quarter(a, t, quarter, block, b.quarter(r.at), b.full + r.at);
        r = later(r, PRODUCERS, a.n_stages);
    }
    if (!waited) pdl_wait();
    async_commit();
    async_wait<0>();
}

/* ---- queries ---- */

/* Words 2 k and 2 k + 1 of a group: the right operand of the k-th product of the warp's half; the
 * lane has query lane / 4. */
template <int N> struct queries_of_half { uint32_t word[N][2 * STEPS]; };

__device__ __forceinline__ const float *query_row_of(const cargs_attention &a, const task &t,
                                                     uint32_t slot) {
    return slot < t.n_queries ? a.q + query_at(a, t, slot) : nullptr;
}

/* The facts of the warp's 2 N queries. All loads are in flight at once. */
template <int KV, int N>
__device__ __forceinline__ void find_facts(const cargs_attention &a, const task &t,
                                           const block<KV, N> &b) {
    const uint32_t lane = threadIdx.x % 32, first = threadIdx.x / 32;
    float top[2 * N];
    seen keys[2 * N];
#pragma unroll
    for (int j = 0; j < 2 * N; j++) {
        const uint32_t slot = first + 4 * (uint32_t)j;
        const float *row = query_row_of(a, t, slot);
        keys[j] = row ? seen_by(a, t.seq, query_row(t, slot)) : seen_from(-1, 0);
        top[j] = 0;
#pragma unroll
        for (int d = 0; d < DIM; d += 64) {
            const float2 v = load_pair(row, d + 2 * (int)lane, DIM);
            top[j] = fmaxf(top[j], fmaxf(fabsf(v.x), fabsf(v.y)));
        }
    }
#pragma unroll
    for (int j = 0; j < 2 * N; j++) {
        facts of = {keys[j], 1, 1};
        const float most = warp_max(top[j]);
        if (KV != CUDA_ATTENTION_BF16)
            of.up = scale_for(__fmul_rn(most, fabsf(a.op.q_scale)), &of.back);
        if (lane == 0) b.queries[first + 4 * (uint32_t)j] = of;
    }
}

template <int KV, int N>
__device__ __forceinline__ void load_half(const cargs_attention &a, const task &t,
                                          const block<KV, N> &b, queries_of_half<N> &q) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
    const uint32_t first = warp / 2 * HALF + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < N; n++) {
        const uint32_t slot = (uint32_t)n * 8 + g;
        const float *row = query_row_of(a, t, slot);
        const float up = b.queries[slot].up;
        uint8_t *low = b.low + slot * layout<KV, N>::low_pitch + first * 2;
#pragma unroll
        for (int k = 0; k < 2 * STEPS; k++) {
            const float2 v = load_pair(row, (int)first + k * 8, DIM);
            const float x = __fmul_rn(__fmul_rn(v.x, a.op.q_scale), up),
                        y = __fmul_rn(__fmul_rn(v.y, a.op.q_scale), up);
            q.word[n][k] = pack<KV>(x, y);
            if (kv_traits<KV>::q_parts == 1 || warp % 2 != 0) continue;
            const float2 h = unpack_bf16(q.word[n][k]);
            *reinterpret_cast<uint32_t *>(low + k * 16) =
                pack_bf16(__fsub_rn(x, h.x), __fsub_rn(y, h.y));
        }
    }
}

/* ---- scores and probabilities of a chunk ---- */

/* Of the warp's two quarters, with half of the dimensions: s[i] of quarter i, as mma leaves them.
 */
template <int KV, int N>
__device__ __forceinline__ void make_scores(const block<KV, N> &b, const queries_of_half<N> &q,
                                            const uint8_t *const quarters[2], float s[2][N][4]) {
    const uint32_t lane = threadIdx.x % 32, half = threadIdx.x / 64;
    const uint32_t place = row_place(half * HALF + lane / 16 * 8 + lane % 8, lane / 8 % 2);
    const uint8_t *low =
        b.low + lane / 4 * layout<KV, N>::low_pitch + (half * HALF + lane % 4 * 2) * 2;
    uint32_t a[2][2][4]; /* loaded a step ahead */
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int n = 0; n < N; n++)
            s[i][n][0] = s[i][n][1] = s[i][n][2] = s[i][n][3] = 0;
        ldmatrix4_trans(a[0][i], quarters[i] + place);
    }
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
#pragma unroll
        for (int i = 0; i < 2 && k + 1 < STEPS; i++)
            ldmatrix4_trans(a[(k + 1) % 2][i], quarters[i] + place + (k + 1) * 16 * 32);
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int i = 0; i < 2; i++)
                mma<KV>(s[i][n], a[k % 2][i], q.word[n] + 2 * k);
            if (kv_traits<KV>::q_parts == 1) continue;
            const uint8_t *at = low + n * 8 * layout<KV, N>::low_pitch + k * 32;
            const uint32_t w[2] = {*reinterpret_cast<const uint32_t *>(at),
                                   *reinterpret_cast<const uint32_t *>(at + 16)};
#pragma unroll
            for (int i = 0; i < 2; i++)
                mma<KV>(s[i][n], a[k % 2][i], w);
        }
    }
}

template <int KV, int N>
__device__ __forceinline__ void store_scores(const block<KV, N> &b, const float s[2][N][4]) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                b.scores[(warp / 2 * layout<KV, N>::slots + (uint32_t)(n * 8) + 2 * t + e % 2) *
                             layout<KV, N>::score_pitch +
                         (warp % 2 * 2 + (uint32_t)i) * QUARTER + g + e / 2 * 8] = s[i][n][e];
}

/* Queries of a score warp: slots warp + 4 i, four at a time, of which eight lanes have one each. Of
 * them lane l has tokens 2 l + 16 i and the next. */
template <int N> constexpr int rounds = (2 * N + 3) / 4;

__device__ __forceinline__ uint32_t round_slot(int round) {
    return threadIdx.x / 32 + 4 * ((uint32_t)round * 4 + threadIdx.x % 32 / 8);
}

/* Sums of both halves. */
template <int KV, int N>
__device__ __forceinline__ void load_scores(const block<KV, N> &b, float2 s[rounds<N>][4]) {
    using at = layout<KV, N>;
#pragma unroll
    for (int r = 0; r < rounds<N>; r++) {
        const float *from =
            b.scores + min(round_slot(r), at::slots - 1) * at::score_pitch + threadIdx.x % 8 * 2;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 lo = *reinterpret_cast<const float2 *>(from + 16 * i),
                         hi = *reinterpret_cast<const float2 *>(from + 16 * i +
                                                                at::slots * at::score_pitch);
            s[r][i] = make_float2(__fadd_rn(lo.x, hi.x), __fadd_rn(lo.y, hi.y));
        }
    }
}

/* Of the query's tokens; the largest score of the eight lanes. */
__device__ __forceinline__ float largest_seen(const cargs_attention &a, const facts &query, int pos,
                                              float2 s[4]) {
    float most = NOTHING;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (a.op.cap != 0) {
            s[i].x = capped(s[i].x, query.back, a.op.cap);
            s[i].y = capped(s[i].y, query.back, a.op.cap);
        }
        if (!sees(query.keys, pos + 16 * i)) s[i].x = NOTHING;
        if (!sees(query.keys, pos + 16 * i + 1)) s[i].y = NOTHING;
        most = fmaxf(most, fmaxf(s[i].x, s[i].y));
    }
#pragma unroll
    for (int i = 4; i > 0; i /= 2)
        most = fmaxf(most, __shfl_xor_sync(CUDA_ALL, most, i));
    return most;
}

/* The sum over the chunk's pairs of tokens in the order of warp_sum. */
__device__ __forceinline__ float sum_of_pairs(const float l[4]) {
    float sum = __fadd_rn(__fadd_rn(l[0], l[2]), __fadd_rn(l[1], l[3]));
#pragma unroll
    for (int i = 4; i > 0; i /= 2)
        sum = __fadd_rn(sum, __shfl_xor_sync(CUDA_ALL, sum, i));
    return sum;
}

/* buffer: 0 or 1, of the block's two. */
template <int KV, int N>
__device__ __forceinline__ void make_probabilities(const cargs_attention &a, const block<KV, N> &b,
                                                   int chunk, float2 s[rounds<N>][4],
                                                   uint32_t buffer) {
    using at = layout<KV, N>;
    const uint32_t lane = threadIdx.x % 8;
#pragma unroll
    for (int r = 0; r < rounds<N>; r++) {
        const uint32_t slot = round_slot(r), to = buffer * at::slots + slot;
        const facts query = b.queries[min(slot, at::slots - 1)];
        const float unit = a.op.cap != 0 ? 1 : query.back;
        const float m =
            __fmul_rn(largest_seen(a, query, chunk * CHUNK + 2 * (int)lane, s[r]), unit);
        uint8_t *p = b.probabilities + to * at::probability_pitch + lane * 4;
        float l[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t w =
                pack<KV>(probability_of(s[r][i].x, unit, m), probability_of(s[r][i].y, unit, m));
            const float2 rounded = KV == CUDA_ATTENTION_BF16 ? unpack_bf16(w) : unpack_f16(w);
            l[i] = __fadd_rn(rounded.x, rounded.y);
            if (slot < at::slots) *reinterpret_cast<uint32_t *>(p + i * 32) = w;
        }
        const float sum = sum_of_pairs(l);
        if (slot < at::slots && lane == 0)
            *reinterpret_cast<float2 *>(b.chunk_sums + to) = make_float2(m, sum);
    }
}

/* The score warps' part. */
template <int KV, int N>
__device__ __forceinline__ void score(const cargs_attention &a, const task &t, const share &s,
                                      const block<KV, N> &b) {
    const uint32_t pair = threadIdx.x / 32 % 2 * 2;
    queries_of_half<N> q;
    ring_place r = {0, 0};
    pdl_wait();
    find_facts<KV, N>(a, t, b);
    warp_arrive(b.scores_full);
    mbar_wait(b.scores_full, 0);
    load_half<KV, N>(a, t, b, q);
    warp_arrive(b.scores_full);
    mbar_wait(b.scores_full, 1);
#pragma unroll 1
    for (int chunk = s.begin; chunk <= s.end; chunk++) {
        const uint32_t i = (uint32_t)(chunk - s.begin), buffer = i % 2;
        const uint8_t *quarters[2];
        float made[2][N][4];
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
            const ring_place of = later(r, pair + j, a.n_stages);
            mbar_wait(b.full + of.at, of.parity);
            quarters[j] = b.quarter(of.at);
        }
        r = later(r, QUARTERS, a.n_stages);
        make_scores<KV, N>(b, q, quarters, made);
        mbar_wait(b.scores_empty, (i + 1) % 2);
        store_scores<KV, N>(b, made);
        warp_arrive(b.scores_full);
        mbar_wait(b.scores_full, i % 2);
        float2 sum[rounds<N>][4];
        load_scores<KV, N>(b, sum);
        warp_arrive(b.scores_empty);
        mbar_wait(b.probabilities_empty + buffer, (i / 2 + 1) % 2);
        make_probabilities<KV, N>(a, b, chunk, sum, buffer);
        warp_arrive(b.probabilities_full + buffer);
    }
}

/* ---- values ---- */

/* o[i][n]: dimensions of the warp's tile i, queries of group n, as mma leaves them. */
template <int N> struct values { float o[TILES][N][4]; };

/* Sums of the lane's queries: those of o[i][n][0] and o[i][n][1]. */
template <int N> struct lane_sums { sums of[N][2]; };

template <int N> __device__ __forceinline__ void clear(values<N> &v, lane_sums<N> &l) {
#pragma unroll
    for (int i = 0; i < TILES * N * 4; i++)
        v.o[i / (4 * N)][i / 4 % N][i % 4] = 0;
#pragma unroll
    for (int i = 0; i < N * 2; i++)
        l.of[i / 2][i % 2] = empty_sums();
}

/* The lane's slots: of group n, i 0 or 1. */
__device__ __forceinline__ uint32_t slot_of(int n, int i) {
    return (uint32_t)(n * 8) + threadIdx.x % 4 * 2 + (uint32_t)i;
}

/* Values of a chunk, of some tiles from `first` on. */
template <int KV, int N>
__device__ __forceinline__ void make_values(const uint8_t *probabilities,
                                            const uint8_t *const quarters[QUARTERS], int first,
                                            float add[pass_tiles<N>][N][4]) {
    using at = layout<KV, N>;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 - SCORE_WARPS;
    const uint32_t place =
        row_place((warp * TILES + (uint32_t)first) * 16 + lane / 8 % 2 * 8 + lane % 8, lane / 16);
    const uint8_t *p = probabilities + lane / 4 * at::probability_pitch + lane % 4 * 4;
    constexpr int PASS = pass_tiles<N>;
#pragma unroll
    for (int i = 0; i < PASS * N * 4; i++)
        add[i / (4 * N)][i / 4 % N][i % 4] = 0;
#pragma unroll
    for (int k = 0; k < QUARTERS; k++) {
        uint32_t w[N][2], v[PASS][4];
#pragma unroll
        for (int n = 0; n < N; n++) {
            const uint8_t *from = p + n * 8 * at::probability_pitch + k * 32;
            w[n][0] = *reinterpret_cast<const uint32_t *>(from);
            w[n][1] = *reinterpret_cast<const uint32_t *>(from + 16);
        }
#pragma unroll
        for (int i = 0; i < PASS; i++)
            ldmatrix4(v[i], quarters[k] + place + i * 16 * 32);
#pragma unroll
        for (int i = 0; i < PASS; i++)
#pragma unroll
            for (int n = 0; n < N; n++)
                mma<KV>(add[i][n], v[i], w[n]);
    }
}

/* Adds the chunk's values to the span's. */
template <int KV, int N>
__device__ __forceinline__ void add_values(const block<KV, N> &b, uint32_t buffer,
                                           const uint8_t *const quarters[QUARTERS], values<N> &span,
                                           lane_sums<N> &l) {
    using at = layout<KV, N>;
    const uint8_t *p = b.probabilities + buffer * at::slots * at::probability_pitch;
    constexpr int PASS = pass_tiles<N>;
    merge f[N][2];
#pragma unroll
    for (int n = 0; n < N; n++) {
        const float4 ml =
            *reinterpret_cast<const float4 *>(b.chunk_sums + buffer * at::slots + slot_of(n, 0));
        f[n][0] = merge_factors(l.of[n][0], ml.x, ml.y);
        f[n][1] = merge_factors(l.of[n][1], ml.z, ml.w);
    }
#pragma unroll
    for (int first = 0; first < TILES; first += PASS) {
        float add[PASS][N][4];
        make_values<KV, N>(p, quarters, first, add);
#pragma unroll
        for (int i = 0; i < PASS * N * 4; i++) {
            float &o = span.o[first + i / (4 * N)][i / 4 % N][i % 4];
            o = merged(o, add[i / (4 * N)][i / 4 % N][i % 4], f[i / 4 % N][i % 2]);
        }
    }
}

/* ---- results ---- */

/* Calls put(n, i, dimension, value) for each of the lane's values of existing queries, whose slot
 * is slot_of(n, i). */
template <int N, class PUT>
__device__ __forceinline__ void each_value(const task &t, const values<N> &v, PUT put) {
    const uint32_t first = (threadIdx.x / 32 - SCORE_WARPS) * (TILES * 16) + threadIdx.x % 32 / 4;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            if (slot_of(n, e % 2) >= t.n_queries) continue;
#pragma unroll
            for (int i = 0; i < TILES; i++)
                put(n, e % 2, first + (uint32_t)i * 16 + e / 2 * 8, v.o[i][n][e]);
        }
}

/* The span is one of the task's partial results. */
template <int N>
__device__ __forceinline__ void store_partial(const cargs_attention &a, const task &t,
                                              const lane_sums<N> &l, const values<N> &v,
                                              uint32_t split) {
#pragma unroll
    for (int i = 0; i < 2 * N; i++) {
        const uint32_t slot = slot_of(i / 2, i % 2);
        if (threadIdx.x / 4 == SCORE_WARPS * 8 && slot < t.n_queries)
            *reinterpret_cast<float2 *>(partial_at(a, t, split, slot) + V_DIM) =
                make_float2(l.of[i / 2][i % 2].m, l.of[i / 2][i % 2].l);
    }
    each_value<N>(t, v, [&](int n, int i, uint32_t d, float o) {
        partial_at(a, t, split, slot_of(n, i))[d] = o;
    });
}

/* Merges the span with the previous ones, which lie in out, not yet normalized. */
template <int N>
__device__ __forceinline__ void add_span(const cargs_attention &a, const task &t,
                                         const lane_sums<N> &l, const values<N> &v,
                                         lane_sums<N> &total, bool first, bool last) {
    merge f[N][2];
    float factor[N][2];
#pragma unroll
    for (int i = 0; i < 2 * N; i++) {
        sums &all = total.of[i / 2][i % 2];
        f[i / 2][i % 2] = merge_factors(all, l.of[i / 2][i % 2].m, l.of[i / 2][i % 2].l);
        factor[i / 2][i % 2] =
            last ? normalize_factor(all, a.sinks, query_head(t, slot_of(i / 2, i % 2))) : 0;
    }
    each_value<N>(t, v, [&](int n, int i, uint32_t d, float o) {
        float *to = a.out + out_at(a, t, slot_of(n, i)) + d;
        const float sum = merged(first ? 0 : *to, o, f[n][i]);
        *to = last ? normalized(sum, factor[n][i]) : sum;
    });
}

/* The value warps' part. */
template <int KV, int N>
__device__ __forceinline__ void sum_values(const cargs_attention &a, const task &t, const share &s,
                                           const block<KV, N> &b) {
    const bool by_chunk = a.by_chunk && !s.whole;
    bool first = true;
    values<N> span;
    lane_sums<N> l, total;
    ring_place r = {0, 0};
    clear(span, total);
    clear(span, l);
    pdl_wait();
#pragma unroll 1
    for (int chunk = s.begin; chunk <= s.end; chunk++) {
        const uint32_t i = (uint32_t)(chunk - s.begin), buffer = i % 2;
        const uint8_t *quarters[QUARTERS];
#pragma unroll
        for (uint32_t j = 0; j < QUARTERS; j++) {
            const ring_place of = later(r, j, a.n_stages);
            mbar_wait(b.full + of.at, of.parity);
            quarters[j] = b.quarter(of.at);
        }
        mbar_wait(b.probabilities_full + buffer, i / 2 % 2);
        add_values<KV, N>(b, buffer, quarters, span, l);
        warp_arrive(b.probabilities_empty + buffer);
        if (threadIdx.x % 32 < QUARTERS)
            mbar_arrive(b.empty + later(r, threadIdx.x % 32, a.n_stages).at);
        r = later(r, QUARTERS, a.n_stages);
        const bool last = chunk == s.end;
        if (!by_chunk && chunk % SPAN_CHUNKS != SPAN_CHUNKS - 1 && !last) continue;
        if (s.whole)
            add_span<N>(a, t, l, span, total, first, last);
        else
            store_partial<N>(a, t, l, span,
                             (uint32_t)((by_chunk ? chunk : chunk / SPAN_CHUNKS) - t.first_split));
        first = false;
        clear(span, l);
    }
    if (s.whole && first) add_span<N>(a, t, l, span, total, true, true); /* nothing is visible */
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
    t.inverse_group = a.inverse_group;
    t.query = of.query, t.n_queries = of.n_queries;
    t.keys = tile_keys(a, of);
    t.first_split = 0, t.n_splits = t.n_blocks = 1;
    s.begin = t.keys.last < 0 ? 0 : t.keys.first / CHUNK;
    s.end = t.keys.last < 0 ? -1 : t.keys.last / CHUNK;
    s.whole = true;
    return true;
}

/* Grid: blocks of a task, tasks; or tiles. Shared: a.n_stages quarters, then struct layout. */
template <int KV, int N>
CUDA_KERNEL_MIN(THREADS, 1)
attention_latent(CUDA_ARGS(struct cargs_attention) a) {
    CUDA_SHARED(uint8_t, shared);
    const uint32_t warp = threadIdx.x / 32;
    pdl_launch();
    task t;
    share s;
    if (!find_work<N>(a, t, s)) {
        pdl_wait();
        return;
    }
    const block<KV, N> b = block_at<KV, N>(shared, a.n_stages);
    make_barriers<KV, N>(b);
    if (warp >= FIRST_PRODUCER) {
        give_registers<40>();
        produce<KV, N>(a, t, s, b);
    } else if (warp >= SCORE_WARPS) {
        take_registers<232>();
        sum_values<KV, N>(a, t, s, b);
    } else {
        take_registers<232>();
        score<KV, N>(a, t, s, b);
    }
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

template <int KV> uint32_t latent_shared(uint32_t n_groups, uint32_t n_quarters) {
    const uint32_t rest = n_groups == 1   ? layout<KV, 1>::bytes
                          : n_groups == 2 ? layout<KV, 2>::bytes
                                          : layout<KV, CUDA_LATENT_GROUPS>::bytes;
    return n_quarters * layout<KV, 1>::quarter_bytes + rest;
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
                                      uint32_t n_quarters) {
    return type == CUDA_ATTENTION_BF16 ? latent_shared<CUDA_ATTENTION_BF16>(n_groups, n_quarters)
                                       : latent_shared<CUDA_ATTENTION_F16>(n_groups, n_quarters);
}
