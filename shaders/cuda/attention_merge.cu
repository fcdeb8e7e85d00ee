/* attention_merge.cu - merges the partial results that attention_decode leaves of heads of 512
 * dimensions: too many for the last block of a task, which merges those of other heads. */
#include "shaders/cuda/attention_decode_task.cuh"
#include "shaders/cuda/kernels.h"

namespace {

constexpr uint32_t THREADS = 32 * CUDA_ATTENTION_WARPS, RANKS = CUDA_ATTENTION_MERGE_RANKS,
                   COLS = THREADS / RANKS;

/* A span's result of four dimensions. */
struct span_result {
    float4 o;
    sums sum;
};

/* A thread has four dimensions; if the partial results are of chunks, of one of RANKS spans at a
 * time. Grid: blocks of a task, tasks. */
CUDA_KERNEL(THREADS) attention_decode_merge(CUDA_ARGS(struct cargs_attention) a) {
    __shared__ span_result spans[RANKS][COLS];
    const uint32_t rank = a.by_chunk ? threadIdx.x / COLS : 0,
                   col = a.by_chunk ? threadIdx.x % COLS : threadIdx.x, quads = a.v_dim / 4,
                   i = blockIdx.x * (a.by_chunk ? COLS : THREADS) + col;
    task t = {};
    pdl_launch();
    const bool is = find_slice(a, blockIdx.y, a.tiles != 0, t);
    pdl_wait();
    if (!is || share_of(a, t, 0).whole || i / quads >= t.n_queries) return; /* the whole block */
    const uint32_t query = i / quads, d = i % quads * 4;
    if (!a.by_chunk) {
        merge_query(a, t, query, d);
        return;
    }
    float4 o = make_float4(0, 0, 0, 0);
    sums total = empty_sums();
#pragma unroll 1
    for (int base = -(t.first_split % SPAN_CHUNKS); base < t.n_splits;
         base += (int)RANKS * SPAN_CHUNKS) {
        span_result own;
        own.o = make_float4(0, 0, 0, 0), own.sum = empty_sums();
        merge_partials(a, t, query, d, base + (int)rank * SPAN_CHUNKS, own.o, own.sum);
        spans[rank][col] = own;
        __syncthreads();
        const int n = min((int)RANKS, (t.n_splits - base + SPAN_CHUNKS - 1) / SPAN_CHUNKS);
        for (int r = 0; rank == 0 && r < n; r++) {
            const span_result s = spans[r][col];
            merge4(o, s.o, merge_factors(total, s.sum.m, s.sum.l));
        }
        __syncthreads();
    }
    if (rank == 0) store_merged(a, t, query, d, o, total);
}

} // namespace

const void *cuda_attention_decode_merge_kernel(void) {
    return (const void *)attention_decode_merge;
}
