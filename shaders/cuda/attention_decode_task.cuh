/* attention_decode_task.cuh - how attention_decode.cu and attention_latent.cu divide their work:
 * the queries of a sequence that make a task, the chunks of K and V that each block of a task
 * attends to, and how the last of them merges their partial results. */
#ifndef INFERD_SHADERS_CUDA_ATTENTION_DECODE_TASK_CUH
#define INFERD_SHADERS_CUDA_ATTENTION_DECODE_TASK_CUH

#include "shaders/cuda/attention_tile.cuh"

namespace {

enum { SLICE = CUDA_ATTENTION_SLICE };
enum { CHUNK_SHIFT = 6, SPAN_SHIFT = 4 };
static_assert(CHUNK == 1 << CHUNK_SHIFT && SPAN_CHUNKS == 1 << SPAN_SHIFT, "");

/* ---- the task of a block ---- */

/* n / d for n < 2^22, in a few instructions; inverse: 1 / d, rounded. (n + 0.5) / d is at least 0.5
 * / d from any integer, more than the roundings' error. */
__device__ __forceinline__ uint32_t quotient(uint32_t n, float inverse) {
    return (uint32_t)fmaf((float)n, inverse, 0.5f * inverse);
}

struct task {
    uint32_t index; /* in this pass */
    uint32_t seq, kv_head;
    uint32_t row;              /* the sequence's first */
    uint32_t query, n_queries; /* query: the first one */
    uint32_t group;            /* query heads per KV head */
    float inverse_group;
    int first_split, n_splits, n_blocks, block_splits;
    seen keys; /* union over its queries */
};

/* The positions that a task's queries see, and their splits. By all lanes of a warp. */
__device__ __forceinline__ void find_splits(const cargs_attention &a, task &t) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t row = quotient(t.query, t.inverse_group) + lane,
                   end = quotient(t.query + t.n_queries - 1, t.inverse_group);
    t.keys = row <= end ? seen_by(a, t.seq, t.row + row) : seen_from(-1, 0);
    t.keys.first = __reduce_min_sync(CUDA_ALL, t.keys.first);
    t.keys.last = __reduce_max_sync(CUDA_ALL, t.keys.last);
    const int shift = a.by_chunk ? CHUNK_SHIFT : CHUNK_SHIFT + SPAN_SHIFT;
    t.first_split = t.keys.last < 0 ? 0 : t.keys.first >> shift;
    /* A position beyond max_context must not exceed the memory for partial results. */
    t.n_splits =
        t.keys.last < 0 ? 0 : min((t.keys.last >> shift) - t.first_split + 1, (int)a.op.n_splits);
    t.block_splits = (int)a.block_splits;
    t.n_blocks = (t.n_splits + t.block_splits - 1) >> a.block_shift;
}

/* Tasks of up to `slice` queries, of sequences of one row or of at most `most` queries. False:
 * another kernel's task, or none. By all lanes of a warp. */
__device__ __forceinline__ bool find_task(const cargs_attention &a, uint32_t index, uint32_t slice,
                                          uint32_t most, task &t) {
    const uint32_t at = index + a.op.first_task;
    const uint32_t head = quotient(at, a.inverse_slices); /* a sequence's KV head */
    t.index = index;
    t.group = quotient(a.op.n_heads, a.inverse_kv_heads);
    t.inverse_group = a.inverse_group;
    t.query = (at - head * a.op.n_slices) * slice;
    t.seq = quotient(head, a.inverse_kv_heads);
    t.kv_head = head - t.seq * a.op.n_kv_heads;
    t.row = t.seq;
    uint32_t n_rows = 1;
    if (a.n_rows != a.op.n_seqs) { /* otherwise each sequence has one row: saves a dependent load */
        t.row = (uint32_t)a.row_start[t.seq];
        n_rows = (uint32_t)a.row_start[t.seq + 1] - t.row;
    }
    const uint32_t all = n_rows * t.group;
    if ((n_rows > 1 && all > most) || t.query >= all) return false;
    t.n_queries = min(slice, all - t.query);
    find_splits(a, t);
    return true;
}

/* The block's task: of few queries, or the next slice of the tiles of sequences of many. */
__device__ __forceinline__ bool find_slice(const cargs_attention &a, uint32_t index, bool tiles,
                                           task &t) {
    if (!tiles) return find_task(a, index, SLICE, QUERIES, t);
    const uint32_t at = index + a.op.first_task;
    tile of;
    if (!find_tile<SLICE, QUERIES>(a, at / a.op.n_kv_heads, of)) return false;
    t.index = index;
    t.group = a.op.n_heads / a.op.n_kv_heads;
    t.inverse_group = a.inverse_group;
    t.seq = of.seq, t.kv_head = at % a.op.n_kv_heads, t.row = of.row;
    t.query = of.query, t.n_queries = of.n_queries;
    find_splits(a, t);
    return true;
}

__device__ uint32_t query_row(const task &t, uint32_t query) {
    return t.row + quotient(t.query + query, t.inverse_group);
}

__device__ uint32_t query_head(const task &t, uint32_t query) {
    const uint32_t at = t.query + query;
    return t.kv_head * t.group + at - quotient(at, t.inverse_group) * t.group;
}

/* Index into q. */
__device__ __forceinline__ uint64_t query_at(const cargs_attention &a, const task &t,
                                             uint32_t query) {
    return ((uint64_t)query_row(t, query) * a.op.n_heads + query_head(t, query)) * a.head_dim;
}

/* Index into out. */
__device__ uint64_t out_at(const cargs_attention &a, const task &t, uint32_t query) {
    return ((uint64_t)query_row(t, query) * a.op.n_heads + query_head(t, query)) * a.v_dim;
}

__device__ float *partial_at(const cargs_attention &a, const task &t, uint32_t split,
                             uint32_t query) {
    return a.partials + (((uint64_t)t.index * a.op.n_splits + split) * a.n_slots + query) *
                            (a.v_dim + CUDA_ATTENTION_PARTIAL);
}

/* A block's chunks; whole: their result is the task's result. */
struct share {
    int begin, end; /* end: the last chunk; before begin: no chunks */
    bool whole;
};

__device__ share share_of(const cargs_attention &a, const task &t, int block) {
    const int chunks = a.by_chunk ? 1 : SPAN_CHUNKS, first = block * t.block_splits;
    share s;
    s.begin = (t.first_split + first) * chunks;
    s.end = (t.first_split + min(first + t.block_splits, t.n_splits)) * chunks - 1;
    s.begin = max(s.begin, t.keys.last < 0 ? 0 : t.keys.first / CHUNK);
    s.end = min(s.end, t.keys.last < 0 ? -1 : t.keys.last / CHUNK);
    s.whole = t.n_blocks <= 1 && s.begin / SPAN_CHUNKS == max(s.end, s.begin) / SPAN_CHUNKS;
    return s;
}

/* ---- merging partial results ---- */

__device__ __forceinline__ void merge4(float4 &o, float4 add, merge f) {
    o.x = merged(o.x, add.x, f), o.y = merged(o.y, add.y, f);
    o.z = merged(o.z, add.z, f), o.w = merged(o.w, add.w, f);
}

/* Merges SPAN_CHUNKS partial results of a query, from number `base` on, into four dimensions. All
 * are read before the first is used; those that do not exist are replaced by empty results, whose
 * merging changes nothing, so that no branch delays the rest. */
__device__ __forceinline__ void merge_partials(const cargs_attention &a, const task &t,
                                               uint32_t query, uint32_t d, int base, float4 &o,
                                               sums &total) {
    const uint32_t stride = a.n_slots * (a.v_dim + CUDA_ATTENTION_PARTIAL);
    const float *from = partial_at(a, t, 0, query);
    float4 partial[SPAN_CHUNKS];
    float2 ml[SPAN_CHUNKS];
#pragma unroll
    for (int i = 0; i < SPAN_CHUNKS; i++) {
        const bool there = base + i >= 0 && base + i < t.n_splits;
        const float *p = from + (there ? (uint64_t)(uint32_t)(base + i) * stride : 0);
        partial[i] = make_float4(0, 0, 0, 0);
        ml[i] = make_float2(NOTHING, 0);
        if (there) partial[i] = __ldcg(reinterpret_cast<const float4 *>(p + d));
        if (there) ml[i] = __ldcg(reinterpret_cast<const float2 *>(p + a.v_dim));
    }
#pragma unroll
    for (int i = 0; i < SPAN_CHUNKS; i++)
        merge4(o, partial[i], merge_factors(total, ml[i].x, ml[i].y));
}

__device__ __forceinline__ void store_merged(const cargs_attention &a, const task &t,
                                             uint32_t query, uint32_t d, float4 o, sums total) {
    const float factor = normalize_factor(total, a.sinks, query_head(t, query));
    o.x = normalized(o.x, factor), o.y = normalized(o.y, factor);
    o.z = normalized(o.z, factor), o.w = normalized(o.w, factor);
    *reinterpret_cast<float4 *>(a.out + out_at(a, t, query) + d) = o;
}

/* Merges four dimensions of a query from all partial results of a task: chunks into spans (a
 * span's partial result is a span already), spans into the result. */
__device__ __forceinline__ void merge_query(const cargs_attention &a, const task &t, uint32_t query,
                                            uint32_t d) {
    float4 o = make_float4(0, 0, 0, 0);
    sums total = empty_sums();
#pragma unroll 1
    for (int base = -(t.first_split % SPAN_CHUNKS); base < t.n_splits; base += SPAN_CHUNKS) {
        float4 span = make_float4(0, 0, 0, 0);
        sums sum = empty_sums();
        if (!a.by_chunk) span = o, sum = total;
        merge_partials(a, t, query, d, base, span, sum);
        if (a.by_chunk)
            merge4(o, span, merge_factors(total, sum.m, sum.l));
        else
            o = span, total = sum;
    }
    store_merged(a, t, query, d, o, total);
}

} // namespace
#endif
