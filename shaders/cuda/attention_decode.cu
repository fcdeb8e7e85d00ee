/* attention_decode.cu - paged attention of sequences with few queries: split over spans or chunks of
 * positions, then merged. A warp takes a chunk at a time: its K and V come in quarters of 16 tokens through a
 * ring of the warp's own in shared memory, so that no warp waits for another while it loads. The queries of
 * all heads of a KV head are one tile, so K and V are read once for all of them. */
#include "shaders/cuda/attention.cuh"
#include "shaders/cuda/kernels.h"

namespace {

/* ---- what a block has to do ---- */

struct task {
    uint32_t index; /* in this pass */
    uint32_t seq, kv_head, head, row, n_queries, group; /* group: query heads of a KV head */
    int first_part, n_parts;
    seen keys; /* what any of its queries sees */
};

/* False: another kernel's, or nobody's. All lanes of a warp. */
__device__ bool find_task(const cargs_attention &a, uint32_t index, task &t) {
    uint32_t at = index + a.first_task, group = a.n_heads / a.n_kv_heads, slice = at % a.n_slices;
    uint32_t lane = threadIdx.x % 32;
    t.index = index, t.group = group;
    t.kv_head = at / a.n_slices % a.n_kv_heads;
    t.seq = at / a.n_slices / a.n_kv_heads;
    t.row = t.seq;
    uint32_t n_rows = 1;
    if (a.n_rows != a.n_seqs) { /* otherwise each sequence has a row: one load less to wait for */
        t.row = (uint32_t)a.row_start[t.seq];
        n_rows = (uint32_t)a.row_start[t.seq + 1] - t.row;
    }
    t.head = t.kv_head * group + slice * a.slice_heads;
    t.n_queries = n_rows == 1 ? min(a.slice_heads, group - slice * a.slice_heads) : n_rows * group;
    if (n_rows == 0 || n_rows > QUERIES || t.n_queries > QUERIES) return false;
    t.keys = seen_from(lane < n_rows ? a.pos[t.row + lane] : -1, a.window);
    t.keys.first = __reduce_min_sync(CUDA_ALL, t.keys.first);
    t.keys.last = __reduce_max_sync(CUDA_ALL, t.keys.last);
    int part = a.by_chunk ? CHUNK : CHUNK * SPAN_CHUNKS;
    t.first_part = t.keys.last < 0 ? 0 : t.keys.first / part;
    /* A position that is not below max_context must not reach beyond the memory for parts. */
    t.n_parts = t.keys.last < 0 ? 0 : min(t.keys.last / part - t.first_part + 1, (int)a.n_parts);
    return true;
}

__device__ uint32_t query_row(const task &t, uint32_t query) {
    return t.row + query / t.group;
}

__device__ uint32_t query_head(const task &t, uint32_t query) {
    return t.head + query % t.group;
}

/* Of q and out. */
__device__ uint64_t query_at(const cargs_attention &a, const task &t, uint32_t query) {
    return ((uint64_t)query_row(t, query) * a.n_heads + query_head(t, query)) * a.head_dim;
}

__device__ float *part_at(const cargs_attention &a, uint32_t task, uint32_t part, uint32_t slot) {
    return a.parts + (((uint64_t)task * a.n_parts + part) * a.n_slots + slot) * (a.head_dim + CUDA_ATTENTION_PART);
}

/* ---- quarters of chunks on their way ---- */

template <int KV> constexpr int ring_quarters = kv_traits<KV>::quantized ? 8 : 4;

/* 16 tokens of K or V in a ring, and as f16 or bf16 for products. */
template <int KV> __device__ __forceinline__ uint32_t raw_bytes(uint32_t head_dim) {
    return kv_traits<KV>::quantized ? head_dim * 17 : head_dim * 32;
}

/* V is kept in parts of 64 dimensions. */
__device__ __forceinline__ uint32_t value_bytes(uint32_t head_dim) {
    return (head_dim + 63) / 64 * 64 * 32;
}

/* Which quarter comes next: 4 of K, then 4 of V, of every step-th chunk up to last. */
struct cursor {
    int chunk, last, step, quarter;
    int block, next_block; /* lane % 4: of that quarter of this chunk and of the next */
};

/* Of quarter lane % 4 of a chunk; anything where that is not seen. */
__device__ __forceinline__ int block_of(const cargs_attention &a, uint32_t seq, int chunk) {
    uint32_t at = (uint32_t)(chunk * 4 + (int)threadIdx.x % 4) >> a.quarter_shift;
    return at < a.table_stride ? a.tables[(uint64_t)seq * a.table_stride + at] : -1;
}

__device__ __forceinline__ cursor cursor_from(const cargs_attention &a, uint32_t seq, int chunk, int step) {
    cursor c;
    c.chunk = chunk, c.last = -1, c.step = step, c.quarter = 0;
    c.block = block_of(a, seq, chunk);
    c.next_block = block_of(a, seq, chunk + step);
    return c;
}

__device__ __forceinline__ void clear16(uint8_t *to) {
    *reinterpret_cast<uint4 *>(to) = make_uint4(0, 0, 0, 0);
}

/* Where V's 8 dimensions `unit` of a token of a quarter lie: rows of 128 bytes, turned so that neither copies
 * nor ldmatrix meet in a bank. */
__device__ __forceinline__ uint32_t value_place(uint32_t token, uint32_t unit) {
    return unit / 8 * (QUARTER * 128) + token * 128 + ((unit ^ token) & 7) * 16;
}

/* K: for each 16 dimensions the 8x8 matrices (dimensions, tokens) one after the other, as ldmatrix4 takes them
 * by lane * 16. */
template <int DIM>
__device__ __forceinline__ void copy_keys(uint8_t *to, const uint8_t *run, uint32_t token, uint32_t block_tokens,
                                          uint32_t head_dim, bool visible) {
    uint32_t lane = threadIdx.x % 32;
    /* matrix lane / 8: dimensions + 8 of odd ones, tokens + 8 of the upper two */
    uint32_t d = lane % 8 + lane / 8 % 2 * 8;
    const uint8_t *from = run + (uint64_t)(d * block_tokens + token + lane / 16 * 8) * 2;
#pragma unroll
    for (uint32_t s = 0; s < DIM; s += 16) {
        if (s >= head_dim) break;
        if (visible)
            async_copy16(to + s * 32 + lane * 16, from + s * block_tokens * 2);
        else
            clear16(to + s * 32 + lane * 16);
    }
}

template <int DIM>
__device__ __forceinline__ void copy_values(uint8_t *to, const uint8_t *run, uint32_t token, uint32_t head_dim,
                                            int pos, seen keys) {
    const uint32_t lane = threadIdx.x % 32, first = lane / 8, unit = lane % 8;
    const uint8_t *from = run + ((token + first) * head_dim + unit * 8) * 2;
    const bool whole = pos >= keys.first && pos + QUARTER - 1 <= keys.last;
#pragma unroll
    for (uint32_t panel = 0; panel < DIM / 8; panel += 8) {
        if (panel + unit >= head_dim / 8) break;
#pragma unroll
        for (uint32_t i = 0; i < QUARTER; i += 4) {
            uint8_t *at = to + value_place(first + i, unit) + panel / 8 * (QUARTER * 128);
            if (whole || sees(keys, pos + (int)(first + i)))
                async_copy16(at, from + (i * head_dim + panel * 8) * 2);
            else
                clear16(at);
        }
    }
}

/* Raw Q8_0: (dimensions, 16 tokens) of K or (16 tokens, dimensions) of V, then their scales. */
template <int DIM>
__device__ __forceinline__ void copy_raw(uint8_t *to, const uint8_t *run, uint32_t token, uint32_t block_tokens,
                                         uint32_t head_dim, bool is_k) {
    const uint32_t lane = threadIdx.x % 32;
    const uint8_t *scales = run + head_dim * block_tokens;
    const uint8_t *from = is_k ? run + lane * block_tokens + token : run + token * head_dim + lane * 16;
    const uint32_t step = is_k ? block_tokens : 16;
#pragma unroll
    for (uint32_t i = 0; i < DIM; i += 32)
        if (i < head_dim) async_copy16(to + (i + lane) * 16, from + i * step);
    if (lane < head_dim / 16)
        async_copy16(to + head_dim * 16 + lane * 16,
                     is_k ? scales + (lane / 2 * block_tokens + token + lane % 2 * 8) * 2
                          : scales + token * (head_dim / SCALE_DIMS) * 2 + lane * 16);
}

/* Starts the next quarter's copies; after the last one nothing. */
template <int KV, int DIM>
__device__ __forceinline__ void start_quarter(const cargs_attention &a, const task &t, uint32_t head_dim, cursor &c,
                                              uint8_t *to) {
    if (c.chunk <= c.last) {
        int quarter = c.quarter % 4, pos = c.chunk * CHUNK + quarter * QUARTER;
        int block = __shfl_sync(CUDA_ALL, c.block, quarter);
        bool is_k = c.quarter < 4, visible = sees_any(t.keys, pos, QUARTER);
        uint32_t token = (uint32_t)pos & (a.block_tokens - 1);
        const uint8_t *run = static_cast<const uint8_t *>(is_k ? a.k : a.v);
        if (visible) run += ((uint64_t)block * a.n_kv_heads + t.kv_head) * a.run_bytes;
        if (!kv_traits<KV>::quantized && is_k)
            copy_keys<DIM>(to, run, token, a.block_tokens, head_dim, visible);
        else if (!kv_traits<KV>::quantized)
            copy_values<DIM>(to, run, token, head_dim, pos, t.keys);
        else if (visible)
            copy_raw<DIM>(to, run, token, a.block_tokens, head_dim, is_k);
        if (++c.quarter == 8) {
            c.quarter = 0;
            c.chunk += c.step;
            c.block = c.next_block;
            c.next_block = block_of(a, t.seq, c.chunk + c.step);
        }
    }
    async_commit();
}

/* ---- Q8_0 to f16, in the places of copy_keys and copy_values ---- */

template <int DIM>
__device__ __forceinline__ void decode_keys(uint8_t *to, const uint8_t *raw, uint32_t head_dim, bool visible) {
    const uint32_t lane = threadIdx.x % 32, d = lane % 8 + lane / 8 % 2 * 8, half = lane / 16;
#pragma unroll
    for (uint32_t s = 0; s < DIM; s += 16) {
        if (s >= head_dim) break;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (visible)
            v = decode_q8(*reinterpret_cast<const uint2 *>(raw + (s + d) * 16 + half * 8),
                          *reinterpret_cast<const uint4 *>(raw + head_dim * 16 + s / SCALE_DIMS * 32 + half * 16));
        *reinterpret_cast<uint4 *>(to + s * 32 + lane * 16) = v;
    }
}

template <int DIM>
__device__ __forceinline__ void decode_values(uint8_t *to, const uint8_t *raw, uint32_t head_dim, int pos,
                                              seen keys) {
    const uint32_t lane = threadIdx.x % 32, first = lane / 8;
    const uint16_t *scales = reinterpret_cast<const uint16_t *>(raw + head_dim * 16);
    const bool whole = pos >= keys.first && pos + QUARTER - 1 <= keys.last;
#pragma unroll
    for (uint32_t panel = 0; panel < DIM / 8; panel += 8) {
        const uint32_t unit = panel + lane % 8;
        if (unit >= head_dim / 8) break;
#pragma unroll
        for (uint32_t i = first; i < QUARTER; i += 4) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (whole || sees(keys, pos + (int)i)) {
                uint32_t scale = scales[i * (head_dim / SCALE_DIMS) + unit / 4];
                scale |= scale << 16;
                v = decode_q8(*reinterpret_cast<const uint2 *>(raw + i * head_dim + unit * 8),
                              make_uint4(scale, scale, scale, scale));
            }
            *reinterpret_cast<uint4 *>(to + value_place(i, unit)) = v;
        }
    }
}

/* ---- products of two quarters ---- */

/* s: of their 32 tokens; four chains beside each other. */
template <int KV, int DIM>
__device__ __forceinline__ void add_scores(const queries<KV, DIM> &q, const uint8_t *const keys[2], int head_dim,
                                           float s[4][4]) {
    const uint32_t lane = threadIdx.x % 32 * 16;
#pragma unroll query_unroll<DIM>
    for (int k = 0; k < DIM / 16; k++) {
        if (k * 16 >= head_dim) break;
        uint32_t b[8];
        ldmatrix4_trans(b, keys[0] + lane + k * 512);
        ldmatrix4_trans(b + 4, keys[1] + lane + k * 512);
#pragma unroll
        for (int part = 0; part < kv_traits<KV>::q_parts; part++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                mma<KV>(s[i], q.a[part][k], b + 2 * i);
    }
}

template <int KV, int DIM>
__device__ __forceinline__ void add_values(const uint32_t p[2][4], const uint8_t *const values[2], int head_dim,
                                           float o[DIM / 8][4]) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int d = 0; d < DIM / 16; d++) {
            if (d * 16 >= head_dim) break;
            uint32_t b[4];
            ldmatrix4_trans(b, values[i] + value_place(lane % 16, d * 2 + lane / 16));
            mma<KV>(o[2 * d], p[i], b);
            mma<KV>(o[2 * d + 1], p[i], b + 2);
        }
}

/* ---- the kernel ---- */

/* A warp's place in shared memory. */
struct ring {
    uint8_t *raw, *decoded; /* decoded: two quarters, for Q8_0 */
    uint32_t bytes;         /* of a quarter in raw */
    uint32_t next;          /* the quarter to be read */
};

/* Two quarters from the ring, as a product reads them, once they have come. */
template <int KV, int DIM>
__device__ __forceinline__ void take_quarters(const task &t, uint32_t head_dim, ring &r, int pos, bool is_k,
                                              const uint8_t *out[2]) {
    async_wait<ring_quarters<KV> - 2>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint8_t *raw = r.raw + (r.next + i) % ring_quarters<KV> * r.bytes;
        out[i] = raw;
        if (!kv_traits<KV>::quantized) continue;
        uint8_t *to = r.decoded + i * value_bytes(head_dim);
        int at = pos + i * QUARTER;
        if (is_k)
            decode_keys<DIM>(to, raw, head_dim, sees_any(t.keys, at, QUARTER));
        else
            decode_values<DIM>(to, raw, head_dim, at, t.keys);
        out[i] = to;
    }
    if (kv_traits<KV>::quantized) __syncwarp();
}

/* The two taken last were read; others take their place. */
template <int KV, int DIM>
__device__ __forceinline__ void give_quarters(const cargs_attention &a, const task &t, uint32_t head_dim, ring &r,
                                              cursor &c) {
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
        start_quarter<KV, DIM>(a, t, head_dim, c, r.raw + r.next * r.bytes);
        r.next = (r.next + 1) % ring_quarters<KV>;
    }
}

/* A chunk's m, l and o of the warp's queries. */
template <int KV, int DIM>
__device__ __forceinline__ void do_chunk(const cargs_attention &a, const task &t, const queries<KV, DIM> &q,
                                         const seen keys[2], int head_dim, int chunk, ring &r, cursor &c,
                                         float o[DIM / 8][4], float m[2], float l[2]) {
    float s[CHUNK / 8][4];
    uint32_t p[CHUNK / 16][4];
    const uint8_t *two[2];
    int first = chunk * CHUNK;
#pragma unroll
    for (int i = 0; i < CHUNK / 8; i++)
        s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
    /* Loops stay loops: a kernel of little code, most of it run once, waits less for its instructions. */
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
        take_quarters<KV, DIM>(t, (uint32_t)head_dim, r, first + i * 2 * QUARTER, true, two);
        if (i == 0)
            add_scores<KV, DIM>(q, two, head_dim, s);
        else
            add_scores<KV, DIM>(q, two, head_dim, s + 4);
        give_quarters<KV, DIM>(a, t, (uint32_t)head_dim, r, c);
    }
    chunk_weights<KV>(s, first, keys, q.back, a.cap, false, t.n_queries > 8 ? 2 : 1, p, m);
    chunk_sums<KV>(p, l);
#pragma unroll
    for (int i = 0; i < DIM / 8; i++)
        o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0;
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
        take_quarters<KV, DIM>(t, (uint32_t)head_dim, r, first + i * 2 * QUARTER, false, two);
        if (i == 0)
            add_values<KV, DIM>(p, two, head_dim, o);
        else
            add_values<KV, DIM>(p + 2, two, head_dim, o);
        give_quarters<KV, DIM>(a, t, (uint32_t)head_dim, r, c);
    }
}

/* What warps leave for the block: (slots, head_dim + 8) of o each, and m, l. */
struct results {
    float *o;
    float2 *ml; /* (slots) */
};

__device__ results results_of(float *shared, const cargs_attention &a, uint32_t i) {
    results r;
    uint32_t o = a.n_slots * (a.head_dim + 8);
    r.o = shared + i * (o + 2 * a.n_slots);
    r.ml = reinterpret_cast<float2 *>(r.o + o);
    return r;
}

template <int DIM>
__device__ __forceinline__ void leave(const results &to, const task &t, int head_dim, const float o[DIM / 8][4],
                                      const float m[2], const float l[2]) {
    uint32_t g = threadIdx.x % 32 / 4, pair = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        uint32_t query = g + 8 * r;
        if (query >= t.n_queries) continue;
        if (pair == 0) to.ml[query] = make_float2(m[r], l[r]);
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            if (i * 8 < head_dim)
                *reinterpret_cast<float2 *>(to.o + query * (head_dim + 8) + i * 8 + 2 * pair) =
                    make_float2(o[i][2 * r], o[i][2 * r + 1]);
    }
}

/* A warp adds n warps' results of a chunk each to those of a query. */
__device__ void merge_chunks(float *shared, const cargs_attention &a, const results &total, uint32_t query, int n) {
    uint32_t lane = threadIdx.x % 32, pitch = a.head_dim + 8;
    sums sum;
    sum.m = total.ml[query].x, sum.l = total.ml[query].y;
#pragma unroll 1
    for (int w = 0; w < n; w++) {
        results r = results_of(shared, a, (uint32_t)w);
        merge f = merge_factors(sum, r.ml[query].x, r.ml[query].y);
#pragma unroll 1
        for (uint32_t d = lane; d < a.head_dim; d += 32) {
            float &o = total.o[query * pitch + d];
            o = merged(o, r.o[query * pitch + d], f);
        }
    }
    __syncwarp();
    if (lane == 0) total.ml[query] = make_float2(sum.m, sum.l);
    __syncwarp();
}

/* A query's result, of all that it sees or of a part. */
__device__ void store_query(const cargs_attention &a, const task &t, const results &r, uint32_t query,
                            uint32_t part) {
    uint32_t lane = threadIdx.x % 32;
    const float *o = r.o + query * (a.head_dim + 8);
    sums sum;
    sum.m = r.ml[query].x, sum.l = r.ml[query].y;
    if (t.n_parts <= 1) {
        float factor = finish_factor(sum, a.sinks, query_head(t, query)), *out = a.out + query_at(a, t, query);
#pragma unroll 1
        for (uint32_t d = lane; d < a.head_dim; d += 32)
            out[d] = finished(o[d], factor);
        return;
    }
    float *to = part_at(a, t.index, part, query);
#pragma unroll 1
    for (uint32_t d = lane; d < a.head_dim; d += 32)
        to[d] = o[d];
    if (lane == 0) to[a.head_dim] = sum.m, to[a.head_dim + 1] = sum.l;
}

/* Grid: spans, or with by_chunk chunks in as many as a block has warps; tasks. Shared: each warp's ring, then
 * each warp's results and the block's. */
/* Blocks on a multiprocessor, where shared memory allows: what a warp waits for another one's work must cover. */
template <int KV, int DIM> constexpr int decode_blocks = KV == CUDA_ATTENTION_F16 && DIM <= 128 ? 3 : 2;

template <int KV, int DIM, bool EXACT>
CUDA_KERNEL_MIN((32 * CUDA_ATTENTION_WARPS), (decode_blocks<KV, DIM>)) attention_decode(CUDA_ARGS(struct cargs_attention) a) {
    CUDA_SHARED(uint8_t, shared);
    pdl_launch();
    pdl_wait();
    const uint32_t lane = threadIdx.x % 32;
    const int n_warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32;
    const int head_dim = EXACT ? DIM : (int)a.head_dim, per_part = a.by_chunk ? 1 : SPAN_CHUNKS;
    int part = (int)blockIdx.x * (a.by_chunk ? n_warps : 1), begin, end; /* chunks of this block */
    /* Without a window the first chunk is known before the row's position: its blocks come meanwhile. */
    cursor c = cursor_from(a, (blockIdx.y + a.first_task) / a.n_slices / a.n_kv_heads, part * per_part + warp,
                           n_warps);
    task t;
    if (!find_task(a, blockIdx.y, t) || part >= max(t.n_parts, 1)) return;
    begin = (t.first_part + part) * per_part;
    end = min(begin + (a.by_chunk ? n_warps : SPAN_CHUNKS) - 1, t.keys.last < 0 ? -1 : t.keys.last / CHUNK);
    begin = max(begin, t.keys.last < 0 ? 0 : t.keys.first / CHUNK);
    if (a.by_chunk) end = min(end, t.first_part + t.n_parts - 1);

    ring r;
    r.bytes = raw_bytes<KV>((uint32_t)head_dim);
    if (!kv_traits<KV>::quantized) r.bytes = max(r.bytes, value_bytes((uint32_t)head_dim));
    uint32_t warp_bytes = r.bytes * ring_quarters<KV> +
                          (kv_traits<KV>::quantized ? 2 * value_bytes((uint32_t)head_dim) : 0);
    r.raw = shared + (uint32_t)warp * warp_bytes;
    r.decoded = r.raw + r.bytes * ring_quarters<KV>;
    r.next = 0;
    float *found = reinterpret_cast<float *>(shared + (uint32_t)n_warps * warp_bytes);
    const results own = results_of(found, a, (uint32_t)warp), total = results_of(found, a, (uint32_t)n_warps);

    if (a.window) c = cursor_from(a, t.seq, begin + warp, n_warps);
    c.last = end;
#pragma unroll 1
    for (int i = 0; i < ring_quarters<KV>; i++)
        start_quarter<KV, DIM>(a, t, (uint32_t)head_dim, c, r.raw + (uint32_t)i * r.bytes);

    seen keys[2];
    const float *row[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t query = lane / 4 + 8 * i;
        bool is = query < t.n_queries;
        keys[i] = seen_from(is ? a.pos[query_row(t, query)] : -1, a.window);
        row[i] = is ? a.q + query_at(a, t, query) : nullptr;
    }
    queries<KV, DIM> q;
    load_queries<KV, DIM>(row, head_dim, a.q_scale, q);
#pragma unroll 1
    for (uint32_t query = (uint32_t)warp; query < t.n_queries; query += (uint32_t)n_warps) {
#pragma unroll 1
        for (uint32_t d = lane; d < a.head_dim; d += 32)
            total.o[query * (a.head_dim + 8) + d] = 0;
        if (lane == 0) total.ml[query] = make_float2(NOTHING, 0);
    }
    __syncwarp();

    for (int at = begin; at <= end; at += n_warps) {
        if (at + warp <= end) {
            float o[DIM / 8][4], m[2], l[2];
            do_chunk<KV, DIM>(a, t, q, keys, head_dim, at + warp, r, c, o, m, l);
            leave<DIM>(own, t, head_dim, o, m, l);
        }
        if (a.by_chunk) break;
        __syncthreads();
#pragma unroll 1
        for (uint32_t query = (uint32_t)warp; query < t.n_queries; query += (uint32_t)n_warps)
            merge_chunks(found, a, total, query, min(n_warps, end - at + 1));
        __syncthreads();
    }
    async_wait<0>();
    __syncwarp();
    if (a.by_chunk && t.n_parts > 0) {
        if (part + warp < t.n_parts)
#pragma unroll 1
            for (uint32_t query = 0; query < t.n_queries; query++)
                store_query(a, t, own, query, (uint32_t)(part + warp));
        return;
    }
#pragma unroll 1
    for (uint32_t query = (uint32_t)warp; query < t.n_queries; query += (uint32_t)n_warps)
        store_query(a, t, total, query, (uint32_t)part);
}

/* ---- parts together ---- */

enum { COMBINE_WARPS = 8 };

__device__ __forceinline__ void merge4(float4 &o, float4 add, merge f) {
    o.x = merged(o.x, add.x, f), o.y = merged(o.y, add.y, f);
    o.z = merged(o.z, add.z, f), o.w = merged(o.w, add.w, f);
}

/* A warp merges parts begin..end - 1 of a query, at most SPAN_CHUNKS, into o (head_dim) and its sums. All of
 * them are read before the first is used. */
__device__ __forceinline__ void merge_span(const cargs_attention &a, const float *parts, int begin, int end, float *o,
                                           float2 *ml) {
    const uint64_t stride = (uint64_t)a.n_slots * (a.head_dim + CUDA_ATTENTION_PART);
    for (uint32_t d = threadIdx.x % 32 * 4; d < a.head_dim; d += 128) {
        float4 part[SPAN_CHUNKS], sum = make_float4(0, 0, 0, 0);
        float2 part_ml[SPAN_CHUNKS];
        sums total = no_sums();
#pragma unroll
        for (int i = 0; i < SPAN_CHUNKS; i++) {
            if (begin + i >= end) break;
            const float *p = parts + (uint64_t)(begin + i) * stride;
            part[i] = *reinterpret_cast<const float4 *>(p + d);
            part_ml[i] = *reinterpret_cast<const float2 *>(p + a.head_dim);
        }
#pragma unroll
        for (int i = 0; i < SPAN_CHUNKS; i++) {
            if (begin + i >= end) break;
            merge4(sum, part[i], merge_factors(total, part_ml[i].x, part_ml[i].y));
        }
        *reinterpret_cast<float4 *>(o + d) = sum;
        if (d == 0) *ml = make_float2(total.m, total.l);
    }
}

/* Grid: slots, tasks. A query's result from its parts: a warp makes a span of its chunks (of a span's part
 * itself), then the spans are merged. */
CUDA_KERNEL(32 * COMBINE_WARPS) attention_combine(CUDA_ARGS(struct cargs_attention) a) {
    __shared__ float4 spans[COMBINE_WARPS][256 / 4];
    __shared__ float2 ml[COMBINE_WARPS];
    pdl_launch();
    pdl_wait();
    task t;
    const uint32_t query = blockIdx.x, d = threadIdx.x;
    if (!find_task(a, blockIdx.y, t) || query >= t.n_queries || t.n_parts <= 1) return;
    const int per_span = a.by_chunk ? SPAN_CHUNKS : 1, warp = (int)threadIdx.x / 32, end = t.first_part + t.n_parts;
    const float *parts = part_at(a, t.index, 0, query);
    sums total = no_sums();
    float o = 0;
    for (int base = t.first_part / per_span; base * per_span < end; base += COMBINE_WARPS) {
        int first = (base + warp) * per_span, last = min(first + per_span, end);
        if (first < end)
            merge_span(a, parts, max(first - t.first_part, 0), last - t.first_part,
                       reinterpret_cast<float *>(spans[warp]), &ml[warp]);
        __syncthreads();
        for (int i = 0; i < COMBINE_WARPS && (base + i) * per_span < end && d < a.head_dim; i++) {
            merge f = merge_factors(total, ml[i].x, ml[i].y);
            o = merged(o, reinterpret_cast<const float *>(spans[i])[d], f);
        }
        __syncthreads();
    }
    if (d < a.head_dim)
        a.out[query_at(a, t, query) + d] = finished(o, finish_factor(total, a.sinks, query_head(t, query)));
}

template <int KV> const void *decode_kernel(int dims) {
    return dims == CUDA_ATTENTION_64       ? (const void *)attention_decode<KV, 64, true>
           : dims == CUDA_ATTENTION_128    ? (const void *)attention_decode<KV, 128, true>
           : dims == CUDA_ATTENTION_TO_128 ? (const void *)attention_decode<KV, 128, false>
                                           : (const void *)attention_decode<KV, 256, false>;
}

}

const void *cuda_attention_decode_kernel(enum cuda_attention_type type, enum cuda_attention_dims dims) {
    return type == CUDA_ATTENTION_F16    ? decode_kernel<CUDA_ATTENTION_F16>(dims)
           : type == CUDA_ATTENTION_BF16 ? decode_kernel<CUDA_ATTENTION_BF16>(dims)
                                         : decode_kernel<CUDA_ATTENTION_Q8>(dims);
}

const void *cuda_attention_combine_kernel(void) {
    return (const void *)attention_combine;
}
