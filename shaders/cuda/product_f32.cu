/* product_f32.cu - products with F32 weights, any number of rows. One warp per output: lane l
 * takes columns 4 (32 i + l) + 0..3, with a sum for each of the four in the order of i; then the
 * four in pairs, then the lanes by xor shuffles. Up to 8 rows share a pass over the weights. */
#include "shaders/cuda/epilogue.cuh"
#include "shaders/cuda/kernels.h"

namespace {

enum { ROWS = 8 };

__device__ __forceinline__ float4 four(const float *row, uint32_t col, uint32_t n, bool whole) {
    if (whole) return *reinterpret_cast<const float4 *>(row + col);
    return make_float4(row[col], col + 1 < n ? row[col + 1] : 0.0f,
                       col + 2 < n ? row[col + 2] : 0.0f, col + 3 < n ? row[col + 3] : 0.0f);
}

/* Sums of n rows of x with one weight row, in all lanes. */
__device__ __forceinline__ void row_sums(const float *w, const float *const x[ROWS], uint32_t n,
                                         uint32_t n_in, float sums[ROWS]) {
    float4 acc[ROWS];
    bool whole = n_in % 4 == 0;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        acc[r] = make_float4(0, 0, 0, 0);
    for (uint32_t col = threadIdx.x % 32 * 4; col < n_in; col += 128) {
        float4 a = four(w, col, n_in, whole);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (r >= n) break;
            float4 b = four(x[r], col, n_in, whole);
            acc[r] = make_float4(fmaf(a.x, b.x, acc[r].x), fmaf(a.y, b.y, acc[r].y),
                                 fmaf(a.z, b.z, acc[r].z), fmaf(a.w, b.w, acc[r].w));
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        sums[r] = warp_sum(__fadd_rn(__fadd_rn(acc[r].x, acc[r].y), __fadd_rn(acc[r].z, acc[r].w)));
}

struct output {
    uint32_t matrix, at; /* index into w; output */
    uint32_t expert;
};

/* Computes n of the block's rows, from first on, by one warp. */
__device__ __forceinline__ void output_rows(const cargs_product &a, const output &o, uint32_t first,
                                            uint32_t n) {
    const cargs_epilogue &epilogue = a.epilogue[o.matrix];
    const float *x[ROWS];
    float sums[ROWS], up[ROWS];
    uint32_t to[ROWS];
    uint32_t n_out = a.n_out[o.matrix], lane = threadIdx.x % 32;
    uint64_t at = (uint64_t)o.expert * n_out + o.at;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        to[r] = first + min(r, n - 1);
        uint32_t from = to[r];
        if (a.tiles) to[r] = a.list[to[r]], from = to[r] / a.n_share;
        x[r] = static_cast<const float *>(a.x) + (uint64_t)from * a.n_in;
    }
    row_sums(static_cast<const float *>(a.w[o.matrix]) + at * a.n_in, x, n, a.n_in, sums);
    if (epilogue.act) row_sums(static_cast<const float *>(a.w[1]) + at * a.n_in, x, n, a.n_in, up);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (r >= n || lane != r) continue;
        float v = epilogue.act ? epilogue_pair(epilogue, 1.0f, sums[r], up[r], at)
                               : epilogue_sum(epilogue, 1.0f, sums[r], at);
        a.y[o.matrix][(uint64_t)to[r] * (n_out + a.y_tail) + o.at] = v;
    }
}

CUDA_KERNEL(32 * CARGS_F32_TILE) product_f32(CUDA_ARGS(struct cargs_product) a) {
    pdl_launch();
    pdl_wait();
    uint32_t tile = blockIdx.x, first = blockIdx.y * a.group_rows, n = 0;
    output o = {0, 0, 0};
    if (a.tiles) {
        args_moe_tile entry = a.tiles[blockIdx.y];
        o.expert = entry.expert;
        first = entry.first;
        n = entry.count;
    } else {
        n = min(a.group_rows, a.n_rows - first);
    }
    if (!a.epilogue[0].act && tile >= a.last_tile[0]) {
        o.matrix = tile < a.last_tile[1] ? 1 : 2;
        tile -= a.last_tile[o.matrix - 1];
    }
    o.at = tile * CARGS_F32_TILE + threadIdx.x / 32;
    if (o.at >= a.n_out[o.matrix]) return;
    for (uint32_t done = 0; done < n; done += ROWS)
        output_rows(a, o, first + done, min(n - done, (uint32_t)ROWS));
}

} // namespace

const void *cuda_product_f32_kernel(void) {
    return (const void *)product_f32;
}
