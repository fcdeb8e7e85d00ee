/* attention_plain.cu - paged attention for caches that the tensor core kernels do not take: F32,
 * heads wider than 256 but not of 512, unusual head dimensions and block sizes, heads of 512 where
 * multiprocessors have too little shared memory. One block per row and query head; its warps take
 * the chunks of 32 positions in turn, by their number, and their sums are merged in the order of
 * warps. Lanes are positions for scores, dimensions for values. All in f32, with an order of sums
 * of its own; no other kernel of the device serves such a cache. */
#include "shaders/cuda/attention.cuh"
#include "shaders/cuda/kernels.h"

namespace {

enum {
    PLAIN_CHUNK = 32,
    WARPS = CUDA_ATTENTION_PLAIN_WARPS,
    THREADS = 32 * WARPS,
    TYPE_F32 = 0,
    TYPE_F16 = 1,
    TYPE_BF16 = 30,
    TYPE_Q8_0 = 8
}; /* enum qtype */

__device__ float f16_value(const void *at, uint64_t i) {
    return unpack_f16(static_cast<const uint16_t *>(at)[i]).x;
}

/* Value i of a run; for Q8_0 times scale j. */
__device__ __forceinline__ float run_value(const cargs_attention &a, const uint8_t *run, uint32_t i,
                                           uint32_t j) {
    if (a.kv_type == TYPE_F32) return reinterpret_cast<const float *>(run)[i];
    if (a.kv_type == TYPE_F16) return f16_value(run, i);
    if (a.kv_type == TYPE_BF16) return unpack_bf16(reinterpret_cast<const uint16_t *>(run)[i]).x;
    return (float)reinterpret_cast<const int8_t *>(run)[i] *
           f16_value(run + a.head_dim * a.block_tokens, j);
}

/* Dimension d of V of a token of the run. */
__device__ __forceinline__ float v_value(const cargs_attention &a, const uint8_t *run,
                                         uint32_t token, uint32_t d) {
    if (a.v_of_k)
        return run_value(a, run, d * a.block_tokens + token,
                         d / SCALE_DIMS * a.block_tokens + token);
    return run_value(a, run, token * a.head_dim + d,
                     token * (a.head_dim / SCALE_DIMS) + d / SCALE_DIMS);
}

/* The last sequence that begins at or before row. */
__device__ uint32_t seq_of(const cargs_attention &a, uint32_t row) {
    uint32_t from = 0, end = a.op.n_seqs;
    while (from + 1 < end) {
        uint32_t middle = (from + end) / 2;
        if ((uint32_t)a.row_start[middle] <= row)
            from = middle;
        else
            end = middle;
    }
    return from;
}

__device__ const uint8_t *run_of(const cargs_attention &a, const void *pool, const int32_t *table,
                                 int pos, uint32_t kv_head) {
    uint64_t block = (uint32_t)table[(uint32_t)pos / a.block_tokens];
    return static_cast<const uint8_t *>(pool) + (block * a.op.n_kv_heads + kv_head) * a.run_bytes;
}

/* The lane's score, in units of log2. q: of this head, already scaled. */
__device__ float score_of(const cargs_attention &a, const float *q, const uint8_t *run,
                          uint32_t token) {
    float s = 0;
    for (uint32_t d = 0; d < a.head_dim; d++)
        s = fmaf(
            q[d],
            run_value(a, run, d * a.block_tokens + token, d / SCALE_DIMS * a.block_tokens + token),
            s);
    return a.op.cap != 0 ? __fmul_rn(a.op.cap, tanhf(s)) : s;
}

/* Grid: query heads, rows. Shared: q (head_dim), o (WARPS, v_dim), probabilities (WARPS,
 * PLAIN_CHUNK), m and l (WARPS). */
CUDA_KERNEL(THREADS) attention_plain(CUDA_ARGS(struct cargs_attention) a) {
    CUDA_SHARED(float, q);
    pdl_launch();
    pdl_wait();
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.x,
                   row = a.first_row + blockIdx.y;
    const uint32_t kv_head = head / (a.op.n_heads / a.op.n_kv_heads);
    float *const all = q + a.head_dim, *o = all + warp * a.v_dim;
    float *probabilities = all + WARPS * a.v_dim + warp * PLAIN_CHUNK;
    float *const m_of = all + WARPS * (a.v_dim + PLAIN_CHUNK), *const l_of = m_of + WARPS;
    const uint64_t query = (uint64_t)row * a.op.n_heads + head;
    for (uint32_t d = threadIdx.x; d < a.head_dim; d += THREADS)
        q[d] = __fmul_rn(a.q[query * a.head_dim + d], a.op.q_scale);
    for (uint32_t d = lane; d < a.v_dim; d += 32)
        o[d] = 0;
    __syncthreads();
    const uint32_t seq = seq_of(a, row);
    const int32_t *table = a.tables + (uint64_t)seq * a.op.table_stride;
    const seen keys = seen_by(a, seq, row);
    const lean leans = lean_of(a, row, head);
    sums total = empty_sums();
    for (int first = keys.first / PLAIN_CHUNK * PLAIN_CHUNK; first <= keys.last;
         first += PLAIN_CHUNK) {
        if ((uint32_t)first / PLAIN_CHUNK % WARPS != warp) continue;
        int pos = first + (int)lane;
        float s = NOTHING;
        if (sees(keys, pos))
            s = score_of(a, q, run_of(a, a.k, table, pos, kv_head), (uint32_t)pos % a.block_tokens);
        if (a.slopes) s = leaning(s, 1, leans, pos);
        float m = warp_max(s), probability = sees(keys, pos) ? exp2f(__fsub_rn(s, m)) : 0;
        merge f = merge_factors(total, m, warp_sum(probability));
        probabilities[lane] = probability;
        __syncwarp();
        for (uint32_t d = lane; d < a.v_dim; d += 32) {
            float add = 0;
            for (int i = 0; i < PLAIN_CHUNK; i++) {
                if (!sees(keys, first + i)) continue;
                uint32_t token = (uint32_t)(first + i) % a.block_tokens;
                add = fmaf(probabilities[i],
                           v_value(a, run_of(a, a.v_of_k ? a.k : a.v, table, first + i, kv_head),
                                   token, d),
                           add);
            }
            o[d] = merged(o[d], add, f);
        }
        __syncwarp();
    }
    if (lane == 0) m_of[warp] = total.m, l_of[warp] = total.l;
    __syncthreads();
    merge merges[WARPS];
    total = empty_sums();
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        merges[w] = merge_factors(total, m_of[w], l_of[w]);
    const float factor = normalize_factor(total, a.sinks, head);
    for (uint32_t d = threadIdx.x; d < a.v_dim; d += THREADS) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            sum = merged(sum, all[w * a.v_dim + d], merges[w]);
        a.out[query * a.v_dim + d] = normalized(sum, factor);
    }
}

} // namespace

const void *cuda_attention_plain_kernel(void) {
    return (const void *)attention_plain;
}
