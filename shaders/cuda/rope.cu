/* rope.cu - norms of heads, rotary embedding and the store of K and V into the pools. */
#include "shaders/cuda/kernels.h"
#include "shaders/cuda/rope.cuh"

namespace {

enum { WARPS = CUDA_ROPE_WARPS, THREADS = 32 * WARPS };

/* Inverse rms of x (n), by the whole block, in one order for any number of rows. */
__device__ float row_scale(const float *x, uint32_t n, float eps, float *sums) {
    float sum = 0.0f;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        sum = fmaf(x[i], x[i], sum);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads(); /* the row is read before any of it is written */
    return inverse_rms((sums[0] + sums[1]) + (sums[2] + sums[3]), n, eps);
}

__device__ uint32_t get(const void *from, uint32_t bytes, uint32_t at) {
    if (bytes == 4) return static_cast<const uint32_t *>(from)[at];
    return bytes == 2 ? static_cast<const uint16_t *>(from)[at]
                      : static_cast<const uint8_t *>(from)[at];
}

enum part { Q, K, V };

template <int N> struct rope_shared {
    float4 heads[WARPS][32 * N]; /* alignment of quads */
    float cosines[64 * N], sines[64 * N], sums[WARPS];
};

template <int N> __device__ __forceinline__ void take(float (&v)[N][4], const float (&from)[N][4]) {
#pragma unroll
    for (uint32_t i = 0; i < 4 * N; i++)
        v[i / 4][i % 4] = from[i / 4][i % 4];
}

template <int N> __device__ __forceinline__ void fill(float (&v)[N][4], float with) {
#pragma unroll
    for (uint32_t i = 0; i < 4 * N; i++)
        v[i / 4][i % 4] = with;
}

/* Stores K of a token at value `at` of a tile; for Q8_0 the scales go to its run. */
template <int N>
__device__ __forceinline__ void store_head_tile(const struct cargs_rope_store &a,
                                                const float (&v)[N][4], unsigned char *run,
                                                uint32_t token, void *tile, uint32_t at) {
    const uint32_t bytes = element_bytes(a.kv_type);
#pragma unroll 1
    for (uint32_t i = 0; 128 * i < a.head_dim; i++) {
        const uint32_t d = quad_dim(i);
        uint32_t bits[4];
        uint16_t scale = 0;
        float quad[4];
        pick_quad(v, i, quad);
        encode(a.kv_type, quad, bits, &scale);
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            if (d + e < a.head_dim) put(tile, bytes, at + d + e, bits[e]);
        if (a.kv_type == QTYPE_Q8_0 && d < a.head_dim && d % 32 == 0)
            *scale_at(a, run, true, token, d / 32) = scale;
    }
}

/* Processes a block's heads of a row of q, k or v, distributed over its warps. Everything that
 * depends only on the row's position and on weights is ready before the previous kernel's
 * product has ended. */
template <int N>
__device__ void take_heads(const struct cargs_rope_store &a, enum part part, uint32_t row,
                           uint32_t block, struct rope_shared<N> &s) {
    const uint32_t warp = threadIdx.x / 32, slot = (uint32_t)a.slots[row];
    const bool aligned = a.head_dim % 4 == 0;
    const uint32_t n_heads = part == Q ? a.op.n_heads : a.op.n_kv_heads;
    const uint32_t v_norm = a.op.v_normed ? ARGS_NORM_HEADS : ARGS_NORM_NONE;
    const uint32_t norm = part == Q ? a.q_norm_kind : part == K ? a.k_norm_kind : v_norm;
    const uint32_t first = block * a.block_heads;
    const uint32_t end = norm == ARGS_NORM_ROW ? n_heads : min(first + a.block_heads, n_heads);
    const uint64_t at = (uint64_t)row * n_heads * a.head_dim;
    const float *from = (part == Q ? a.q : part == K ? a.k : a.v) + at;
    const float *factors = part == Q ? a.q_norm : a.k_norm;
    float *x = reinterpret_cast<float *>(s.heads[warp]), next[N][4], f[N][4], scale = 1.0f;
    const float q_scale = part == Q ? q_scale_at(a, a.pos[row]) : 1.0f;
    if (part != V) make_angles(a, (float)a.pos[row], s.cosines, s.sines, threadIdx.x, THREADS);
    if (part == V)
        fill(f, 1.0f);
    else if (norm == ARGS_NORM_HEADS)
        read_values(factors, a.norm_dim, f, aligned);
    __syncthreads();
    pdl_wait();
    if (slot >= a.op.n_slots) return;
    if (norm == ARGS_NORM_ROW) scale = row_scale(from, n_heads * a.head_dim, a.op.eps, s.sums);
    if (first + warp < end) read_head(a, from + (first + warp) * a.head_dim, next, aligned);
#pragma unroll 1
    for (uint32_t head = first + warp; head < end; head += WARPS) {
        float v[N][4];
        take(v, next);
        if (head + WARPS < end) read_head(a, from + (head + WARPS) * a.head_dim, next, aligned);
        if (norm == ARGS_NORM_ROW) read_head(a, factors + head * a.head_dim, f, aligned);
        norm_and_rotate(a, norm, v, f, scale, x, s.cosines, s.sines, part != V, aligned);
        if (part == Q) scale_head(v, q_scale);
        if (part == Q)
            write_head(a, a.q + at + head * a.head_dim, v, aligned);
        else
            store_head(a, v, slot_run(a, part == K ? a.k_pool : a.v_pool, slot, head), part == K,
                       slot % a.block_tokens, nullptr, nullptr, a.kv_type, aligned);
    }
}

/* Destination of a row's K; NULL: not stored. */
__device__ unsigned char *run_of(const struct cargs_rope_store &a, uint32_t row, uint32_t head,
                                 uint32_t *token) {
    const uint32_t slot = row < a.n_rows ? (uint32_t)a.slots[row] : a.op.n_slots;
    if (slot >= a.op.n_slots) return nullptr;
    *token = slot % a.block_tokens;
    return slot_run(a, a.k_pool, slot, head);
}

/* K of one head for CUDA_ROPE_ROWS rows together: tokens are contiguous in a run, so the stores
 * of consecutive rows fill whole sectors. Each warp has some of the rows; then the block writes.
 * shared: the cosines and sines of each row, then the tile (CUDA_ROPE_ROWS, head_dim and a word)
 * of elements, with no two rows in one bank. */
template <int N>
__device__ void take_rows(const struct cargs_rope_store &a, uint32_t first, uint32_t head,
                          unsigned char *shared, struct rope_shared<N> &s) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32,
                   end = min(first + CUDA_ROPE_ROWS, a.n_rows);
    const uint32_t bytes = element_bytes(a.kv_type), pitch = a.head_dim + 4 / bytes;
    const uint64_t stride = (uint64_t)a.op.n_kv_heads * a.head_dim;
    const bool aligned = a.head_dim % 4 == 0;
    float *const angles = reinterpret_cast<float *>(shared);
    void *const tile = shared + CUDA_ROPE_ROWS * a.n_rot * sizeof(float);
    float *x = reinterpret_cast<float *>(s.heads[warp]), next[N][4], f[N][4];
    const float *from = a.k + (uint64_t)head * a.head_dim;
#pragma unroll 1
    for (uint32_t row = first + warp; row < end; row += WARPS) {
        float *own = angles + (row - first) * a.n_rot;
        make_angles(a, (float)a.pos[row], own, own + a.n_rot / 2, lane, 32);
    }
    if (a.k_norm_kind == ARGS_NORM_HEADS) read_values(a.k_norm, a.norm_dim, f, aligned);
    __syncwarp();
    pdl_wait();
    if (first + warp < end) read_head(a, from + (first + warp) * stride, next, aligned);
#pragma unroll 1
    for (uint32_t row = first + warp; row < end; row += WARPS) {
        uint32_t token = 0;
        unsigned char *run = run_of(a, row, head, &token);
        const float *own = angles + (row - first) * a.n_rot;
        float v[N][4];
        take(v, next);
        if (row + WARPS < end) read_head(a, from + (row + WARPS) * stride, next, aligned);
        if (!run) continue; /* the same in all lanes */
        norm_and_rotate(a, a.k_norm_kind, v, f, 1.0f, x, own, own + a.n_rot / 2, true, aligned);
        store_head_tile(a, v, run, token, tile, (row - first) * pitch);
    }
    __syncthreads();
    const uint32_t i = threadIdx.x % CUDA_ROPE_ROWS;
    uint32_t to;
    unsigned char *base = run_of(a, first + i, head, &to);
    for (uint32_t d = threadIdx.x / CUDA_ROPE_ROWS; base && d < a.head_dim;
         d += THREADS / CUDA_ROPE_ROWS)
        put(base, bytes, d * a.block_tokens + to, get(tile, bytes, i * pitch + d));
}

/* Grid: blocks of the heads of a row, rows. A row that is normed as a whole has a single block
 * for all its heads of q or k, because another block would overwrite the values that it sums.
 * With k_tiles, the blocks of k are numbered consecutively over the grid, and each has one head
 * of some rows. */
template <int N>
CUDA_KERNEL_MIN(THREADS, N > 2 ? 3 : 8)
rope_store(CUDA_ARGS(struct cargs_rope_store) a) {
    CUDA_SHARED(unsigned char, shared);
    __shared__ struct rope_shared<N> s;
    pdl_launch();
    const uint32_t row = blockIdx.y, x = blockIdx.x;
    const enum part part = x < a.q_blocks ? Q : x < a.q_blocks + a.k_blocks ? K : V;
    const uint32_t block = x - (part == Q ? 0 : part == K ? a.q_blocks : a.q_blocks + a.k_blocks);
    const uint32_t tile = block * a.n_rows + row;
    if (part != K || a.k_tiles == 0)
        take_heads(a, part, row, block, s);
    else if (tile < a.k_tiles)
        take_rows(a, tile / a.op.n_kv_heads * CUDA_ROPE_ROWS, tile % a.op.n_kv_heads, shared, s);
    else
        pdl_wait();
}

} // namespace

const void *cuda_rope_store_kernel(int wide) {
    return wide ? (const void *)rope_store<CUDA_ROPE_MAX_DIM / 128>
                : (const void *)rope_store<CUDA_ROPE_DIM / 128>;
}
