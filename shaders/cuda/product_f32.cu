/* product_f32.cu - products with F32 weights, any number of rows. A warp computes OUTS outputs of
 * ROWS rows: lane l takes columns 4 (32 i + l) + 0..3, with a sum for each of the four in the order
 * of i; then the four in pairs, then the lanes by xor shuffles. The order is the same for all OUTS
 * and ROWS. AHEAD passes over the columns are loaded at once: with few rows, a warp has little else
 * to hide the latency of memory with. */
#include "shaders/cuda/epilogue.cuh"
#include "shaders/cuda/kernels.h"

namespace {

enum { FEW_RESULTS = 32 * 512 }; /* 16 a warp would leave most of a large device idle */

__device__ __forceinline__ float4 four(const float *row, uint32_t col, uint32_t n, bool whole) {
    if (whole)
        return col < n ? *reinterpret_cast<const float4 *>(row + col) : make_float4(0, 0, 0, 0);
    return make_float4(col < n ? row[col] : 0.0f, col + 1 < n ? row[col + 1] : 0.0f,
                       col + 2 < n ? row[col + 2] : 0.0f, col + 3 < n ? row[col + 3] : 0.0f);
}

/* Sums of rows of x with weight rows, in all lanes. */
template <int OUTS, int ROWS, int AHEAD>
__device__ __forceinline__ void row_sums(const float *const w[OUTS], const float *const x[ROWS],
                                         uint32_t n_in, float sums[OUTS][ROWS]) {
    float4 acc[OUTS][ROWS];
    const bool whole = n_in % 4 == 0;
#pragma unroll
    for (int o = 0; o < OUTS; o++)
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            acc[o][r] = make_float4(0, 0, 0, 0);
    for (uint32_t first = threadIdx.x % 32 * 4; first < n_in; first += 128 * AHEAD) {
        float4 a[AHEAD][OUTS], b[AHEAD][ROWS];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
#pragma unroll
            for (int o = 0; o < OUTS; o++)
                a[i][o] = four(w[o], first + 128 * i, n_in, whole);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                b[i][r] = four(x[r], first + 128 * i, n_in, whole);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int o = 0; o < OUTS; o++)
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const float4 f = a[i][o], g = b[i][r], c = acc[o][r];
                    acc[o][r] = make_float4(fmaf(f.x, g.x, c.x), fmaf(f.y, g.y, c.y),
                                            fmaf(f.z, g.z, c.z), fmaf(f.w, g.w, c.w));
                }
    }
#pragma unroll
    for (int o = 0; o < OUTS; o++)
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            sums[o][r] = warp_sum(__fadd_rn(__fadd_rn(acc[o][r].x, acc[o][r].y),
                                            __fadd_rn(acc[o][r].z, acc[o][r].w)));
}

struct output {
    uint32_t matrix, at; /* index into w; first output */
    uint32_t expert;
};

/* Computes n of the group's rows, from first on, by one warp. */
template <int OUTS, int ROWS, int AHEAD>
__device__ __forceinline__ void output_rows(const cargs_product &a, const output &out,
                                            uint32_t first, uint32_t n) {
    const cargs_epilogue &epilogue = a.epilogue[out.matrix];
    const float *x[ROWS], *w[OUTS], *pair[OUTS];
    float sums[OUTS][ROWS], up[OUTS][ROWS] = {};
    uint32_t to[ROWS];
    const uint32_t n_out = a.n_out[out.matrix], lane = threadIdx.x % 32;
    const uint64_t at = (uint64_t)out.expert * n_out;
#pragma unroll
    for (int o = 0; o < OUTS; o++) {
        const uint64_t row = (at + min(out.at + o, n_out - 1)) * a.n_in;
        w[o] = static_cast<const float *>(a.w[out.matrix]) + row;
        pair[o] = epilogue.act ? static_cast<const float *>(a.w[1]) + row : w[o];
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        to[r] = first + min((uint32_t)r, n - 1);
        uint32_t from = to[r];
        if (a.tiles) to[r] = a.list[to[r]], from = to[r] / a.n_share;
        x[r] = static_cast<const float *>(a.x) + (uint64_t)from * a.n_in;
    }
    row_sums<OUTS, ROWS, AHEAD>(w, x, a.n_in, sums);
    if (epilogue.act) row_sums<OUTS, ROWS, AHEAD>(pair, x, a.n_in, up);
    /* A lane for each result, so that the epilogue is there once: its code runs once, too. */
    const uint32_t o = lane / ROWS, r = lane % ROWS;
    float sum = 0, up_sum = 0;
    uint32_t row = 0;
#pragma unroll
    for (int i = 0; i < OUTS * ROWS; i++)
        if (lane == i) sum = sums[i / ROWS][i % ROWS], up_sum = up[i / ROWS][i % ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (r == i) row = to[i];
    if (o >= OUTS || r >= n || out.at + o >= n_out) return;
    a.y[out.matrix][(uint64_t)row * (n_out + a.y_tail) + out.at + o] =
        epilogue.act ? epilogue_pair(epilogue, 1.0f, sum, up_sum, at + out.at + o)
                     : epilogue_sum(epilogue, 1.0f, sum, at + out.at + o);
}

/* Weights never change: they are brought to L2 while the previous kernel still runs. */
template <int OUTS>
__device__ __forceinline__ void prefetch_weights(const cargs_product &a, const output &out) {
    const uint32_t n_out = a.n_out[out.matrix];
#pragma unroll
    for (int o = 0; o < OUTS; o++) {
        const float *w = static_cast<const float *>(a.w[out.matrix]) +
                         (uint64_t)min(out.at + o, n_out - 1) * a.n_in;
        for (uint32_t col = threadIdx.x % 32 * 32; col < a.n_in; col += 32 * 32)
            prefetch_l2(w + col);
    }
}

/* A warp has one tile of OUTS outputs and one group of rows. Tiles come first, so that the warps of
 * a block share rows of the input. */
template <int OUTS, int ROWS, int AHEAD>
CUDA_KERNEL(32 * CARGS_F32_WARPS)
product_f32(CUDA_ARGS(struct cargs_product) a) {
    pdl_launch();
    const uint32_t unit = blockIdx.x * CARGS_F32_WARPS + threadIdx.x / 32;
    uint32_t tile = unit % a.block_tiles, first = unit / a.block_tiles * a.group_rows, n = 0;
    output o = {0, 0, 0};
    if (!a.epilogue[0].act && tile >= a.last_tile[0]) {
        o.matrix = 1 + (tile >= a.last_tile[1]) + (tile >= a.last_tile[2]);
        tile -= a.last_tile[o.matrix - 1];
    }
    o.at = tile * OUTS;
    if (!a.tiles && first < a.n_rows) {
        n = min(a.group_rows, a.n_rows - first);
        prefetch_weights<OUTS>(a, o);
    }
    pdl_wait();
    if (a.tiles) {
        if (unit >= a.block_tiles) return;
        args_moe_tile entry = a.tiles[blockIdx.y];
        o.expert = entry.expert;
        first = entry.first;
        n = entry.count;
    }
    for (uint32_t done = 0; done < n; done += ROWS)
        output_rows<OUTS, ROWS, AHEAD>(a, o, first + done, min(n - done, (uint32_t)ROWS));
}

} // namespace

struct cuda_f32 cuda_product_f32_kernel(uint32_t n_rows, uint32_t n_out) {
    if (n_rows == 1) return {(const void *)product_f32<1, 1, 8>, 1, 1};
    if (n_rows * n_out <= FEW_RESULTS) return {(const void *)product_f32<1, 4, 4>, 1, 4};
    return {(const void *)product_f32<4, 4, 1>, 4, 4};
}
