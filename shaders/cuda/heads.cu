/* heads.cu - the input of a product for each head: every pair of row and head becomes a row of its
 * own, pair row * n_heads + head, in the form that the weights need; the values that are not
 * multiplied are copied to the result. Also writes the pairs of each head and the tiles that they
 * make, as moe_lists does for experts. One warp per pair. */
#include "shaders/args_linear.h"
#include "shaders/cuda/device.cuh"
#include "shaders/cuda/format.h"
#include "shaders/cuda/kernels.h"

namespace {

enum { WARPS = CUDA_HEADS_WARPS };

/* Lane's part of the pair's lists. */
__device__ __forceinline__ void list_pair(const cargs_heads_input &a, uint32_t pair) {
    const uint32_t row = pair / a.n_heads, head = pair % a.n_heads, at = head * a.n_rows + row;
    a.list[at] = pair;
    if (row % a.tile_rows) return;
    args_moe_tile tile;
    tile.expert = head;
    tile.first = at;
    tile.count = min(a.tile_rows, a.n_rows - row);
    a.tiles[head * ((a.n_rows + a.tile_rows - 1) / a.tile_rows) + row / a.tile_rows] = tile;
}

/* f16 times a power of two that brings the largest magnitude into (2^14, 2^15]; a row of zeros, and
 * one with infinity or NaN, stays as it is. */
__device__ __forceinline__ void round_pair(const cargs_heads_input &a, const float *x,
                                           uint32_t pair) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t largest = 0;
    for (uint32_t i = lane; i < a.n_in; i += 32)
        largest = max(largest, __float_as_uint(x[i]) & 0x7fffffff);
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        largest = max(largest, __shfl_xor_sync(CUDA_ALL, largest, i));
    float inverse;
    const float scale = f16_row_scale(largest, &inverse);
    if (lane == 0) a.scales[pair] = inverse;
    uint32_t *out = static_cast<uint32_t *>(a.out) + (uint64_t)pair * (a.pitch / 2);
    for (uint32_t i = lane; i < a.pitch / 2; i += 32) {
        const float lo = 2 * i < a.n_in ? x[2 * i] : 0.0f;
        const float hi = 2 * i + 1 < a.n_in ? x[2 * i + 1] : 0.0f;
        out[i] = pack_f16(lo * scale, hi * scale);
    }
}

/* Grid: pairs / WARPS. */
CUDA_KERNEL(32 * WARPS) heads_input(CUDA_ARGS(struct cargs_heads_input) a) {
    pdl_launch();
    const uint32_t pair = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    pdl_wait();
    if (pair >= a.n_rows * a.n_heads) return;
    const float *x = a.x + (uint64_t)pair * (a.n_in + a.n_tail);
    float *tail = a.y + (uint64_t)pair * (a.n_out + a.n_tail) + a.n_out;
    if (lane == 0) list_pair(a, pair);
    for (uint32_t i = lane; i < a.n_tail; i += 32)
        tail[i] = x[a.n_in + i];
    if (!a.f32) {
        round_pair(a, x, pair);
        return;
    }
    float *out = static_cast<float *>(a.out) + (uint64_t)pair * a.n_in;
    for (uint32_t i = lane; i < a.n_in; i += 32)
        out[i] = x[i];
}

} // namespace

const void *cuda_heads_input_kernel(void) {
    return (const void *)heads_input;
}
