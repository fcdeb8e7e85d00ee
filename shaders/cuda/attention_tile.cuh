/* attention_tile.cuh - how the kernels of sequences with many queries divide them: the queries of a
 * sequence are its rows times the query heads of a KV head; a block has some of them in a row. */
#ifndef INFERD_SHADERS_CUDA_ATTENTION_TILE_CUH
#define INFERD_SHADERS_CUDA_ATTENTION_TILE_CUH

#include "shaders/cuda/attention.cuh"

namespace {

/* ---- the tile of a block ---- */

struct tile {
    uint32_t seq, kv_head;
    uint32_t row, query, n_queries; /* row: the sequence's first; query: the tile's first */
    seen keys;                      /* union over its queries */
};

/* Tiles of SIZE queries, of sequences of several rows and more than MOST queries. False: there are
 * fewer tiles. Each warp computes it on its own. */
template <uint32_t SIZE, uint32_t MOST>
__device__ bool find_tile(const cargs_attention &a, uint32_t index, tile &t) {
    uint32_t lane = threadIdx.x % 32, group = a.op.n_heads / a.op.n_kv_heads;
    for (uint32_t base = 0; base < a.op.n_seqs; base += 32) {
        uint32_t seq = base + lane, row = 0, n_rows = 0, n = 0;
        if (seq < a.op.n_seqs) {
            row = (uint32_t)a.row_start[seq];
            n_rows = (uint32_t)a.row_start[seq + 1] - row;
            if (n_rows > 1 && n_rows * group > MOST) n = (n_rows * group + SIZE - 1) / SIZE;
        }
        uint32_t end = n; /* tiles of this sequence and the previous ones */
        for (int i = 1; i < 32; i *= 2) {
            uint32_t before = __shfl_up_sync(CUDA_ALL, end, i);
            if (lane >= (uint32_t)i) end += before;
        }
        uint32_t found = __ballot_sync(CUDA_ALL, index < end), all = __shfl_sync(CUDA_ALL, end, 31);
        if (!found) {
            index -= all;
            continue;
        }
        int at = __ffs((int)found) - 1;
        t.seq = base + (uint32_t)at;
        t.row = __shfl_sync(CUDA_ALL, row, at);
        t.query = (index - __shfl_sync(CUDA_ALL, end - n, at)) * SIZE;
        t.n_queries = min(SIZE, __shfl_sync(CUDA_ALL, n_rows, at) * group - t.query);
        return true;
    }
    return false;
}

__device__ __forceinline__ seen tile_keys(const cargs_attention &a, const tile &t) {
    uint32_t group = a.op.n_heads / a.op.n_kv_heads,
             end = t.row + (t.query + t.n_queries - 1) / group;
    seen all;
    all.first = 0x7fffffff, all.last = -1;
    for (uint32_t row = t.row + t.query / group + threadIdx.x % 32; row <= end; row += 32) {
        seen s = seen_by(a, t.seq, row);
        all.first = min(all.first, s.first), all.last = max(all.last, s.last);
    }
    all.first = __reduce_min_sync(CUDA_ALL, all.first);
    all.last = __reduce_max_sync(CUDA_ALL, all.last);
    return all;
}

} // namespace
#endif
