/* product_tile.cu - products of many rows on the tensor cores; weights are decoded on the way
 * from shared memory.
 *
 * A block computes WM * MT * 16 weight rows (a pair: half as many of both) by WN * NT * 8 input
 * rows. Warp (m, n) of WM * WN has MT tiles of 16 weight rows by NT tiles of 8 inputs: a decoded
 * operand serves NT operations, an input from shared memory MT. The latter bounds the kernel
 * (128 bytes a clock, one operation every two clocks). Stages of 128 columns, half a tile of
 * format.cuh, come by asynchronous copies: the weights as they lie in memory, the inputs row by
 * row, 256 bytes each, in permuted pieces of 16 bytes, so that the four rows that half a warp
 * reads at once lie in different banks. */
#include "shaders/cuda/kernels.h"
#include "shaders/cuda/product_tile.cuh"

namespace {

/* ---- a block ---- */

template <int WM_, int WN_, int MT_, int NT_> struct shape {
    enum {
        WM = WM_,
        WN = WN_,
        MT = MT_,
        NT = NT_,
        threads = 32 * WM * WN,
        tiles = WM * MT, /* of 16 weight rows */
        rows = 16 * tiles,
        inputs = WN * NT * 8, /* input rows */
        input_bytes = inputs * ROW_BYTES
    };
};
typedef shape<4, 2, 2, 8> large;
typedef shape<2, 2, 2, 4> small;

template <typename S>
__device__ __forceinline__ void copy_inputs(const cargs_product_tile &a, unsigned char *to,
                                            uint32_t k) {
#pragma unroll
    for (uint32_t i = threadIdx.x; i < (uint32_t)S::inputs * 16; i += S::threads) {
        uint32_t row = i / 16, at = i % 16, in = blockIdx.x * S::inputs + row;
        if (in >= a.n_rows) in = a.n_rows - 1;
        if (k * STAGE_COLS + at * 8 < a.pitch)
            async_copy16(to + swizzled(row, at),
                         a.x + (uint64_t)in * a.pitch + k * STAGE_COLS + at * 8);
    }
}

template <typename S> struct sums { float v[S::MT][S::NT][4]; };

/* Adds the products of a stage's first n_steps steps, 4 or 8. */
template <int format, typename S>
__device__ __forceinline__ void multiply(const unsigned char *weights, const unsigned char *inputs,
                                         uint32_t k, uint32_t n_steps, sums<S> &acc) {
    typedef typename source<format>::half half;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    weights += warp / S::WN * S::MT * half::bytes;
    inputs += (warp % S::WN * S::NT * 8 + g) * ROW_BYTES + t % 2 * 8;
    const uint32_t turn = g % 4 * 32 ^ t / 2 * 16;
#pragma unroll
    for (int q = 0; q < 2; q++) {
        if (q * 4 >= n_steps) return;
        typename source<format>::reader w[S::MT];
#pragma unroll
        for (int m = 0; m < S::MT; m++)
            w[m].load(weights + m * half::bytes, k % 2, q, lane);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t a[S::MT][4], b[S::NT][2];
#pragma unroll
            for (int n = 0; n < S::NT; n++) {
                uint2 v = *reinterpret_cast<const uint2 *>(inputs + n * 8 * ROW_BYTES + 128 * q +
                                                           (j * 32 ^ turn));
                b[n][0] = v.x, b[n][1] = v.y;
            }
#pragma unroll
            for (int m = 0; m < S::MT; m++)
                w[m].step(q, j, a[m]);
#pragma unroll
            for (int n = 0; n < S::NT; n++)
#pragma unroll
                for (int m = 0; m < S::MT; m++)
                    mma_f16(acc.v[m][n], a[m], b[n]);
        }
    }
}

/* Adds the sums of a K split to those of the previous ones; the next split starts at 0. */
template <typename S>
__device__ __forceinline__ void end_part(sums<S> &total, sums<S> &acc, bool first) {
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int n = 0; n < S::NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                total.v[m][n][i] = first ? acc.v[m][n][i] : total.v[m][n][i] + acc.v[m][n][i];
                acc.v[m][n][i] = 0;
            }
}

template <typename S> __device__ __forceinline__ void keep(float *to, const sums<S> &total) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    to += (warp % S::WN * S::NT * 8 + 2 * t) * (S::rows + SUMS_PAD) + warp / S::WN * S::MT * 16 + g;
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int n = 0; n < S::NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[(n * 8 + i % 2) * (S::rows + SUMS_PAD) + m * 16 + i / 2 * 8] = total.v[m][n][i];
}

/* Block (x, y): inputs of x, weight rows of y. */
template <int format, typename S>
CUDA_KERNEL(S::threads)
product_tile(CUDA_ARGS(struct cargs_product_tile) a) {
    typedef typename source<format>::half half;
    enum { stage_weights = S::tiles * half::bytes, stage_bytes = stage_weights + S::input_bytes };
    CUDA_SHARED(unsigned char, shared);
    const uint32_t ahead = a.n_stages - 1, n = (a.pitch + STAGE_COLS - 1) / STAGE_COLS;
    for (uint32_t k = 0; k < ahead && k < n; k++)
        copy_weights<format, S::tiles, S::threads>(a, shared + k * stage_bytes, k);
    if (!a.overlaps_previous) pdl_wait();
    pdl_launch();
    for (uint32_t k = 0; k < ahead; k++) {
        if (k < n) copy_inputs<S>(a, shared + k * stage_bytes + stage_weights, k);
        async_commit();
    }
    sums<S> total, acc;
    end_part(total, acc = sums<S>{}, true);
    uint32_t place = 0, next = ahead; /* stages k and k + ahead */
    for (uint32_t k = 0; k < n; k++) {
        if (ahead > 1)
            async_wait<1>();
        else
            async_wait<0>();
        __syncthreads(); /* stage k has arrived, and no thread reads the previous one */
        if (k + ahead < n) {
            copy_weights<format, S::tiles, S::threads>(a, shared + next * stage_bytes, k + ahead);
            copy_inputs<S>(a, shared + next * stage_bytes + stage_weights, k + ahead);
        }
        async_commit();
        const unsigned char *stage = shared + place * stage_bytes;
        uint32_t left = (a.pitch - k * STAGE_COLS) / 16;
        multiply<format, S>(stage, stage + stage_weights, k,
                            left < STAGE_STEPS ? left : (uint32_t)STAGE_STEPS, acc);
        uint32_t done = (k + 1) * STAGE_COLS;
        if (done % a.split_cols == 0 || k + 1 == n) end_part(total, acc, done <= a.split_cols);
        place = place + 1 == a.n_stages ? 0 : place + 1;
        next = next + 1 == a.n_stages ? 0 : next + 1;
    }
    __syncthreads();
    float *out = reinterpret_cast<float *>(shared);
    keep(out, total);
    __syncthreads();
    write_block<S::inputs, S::rows, S::threads>(a, out);
    if (a.overlaps_previous)
        pdl_wait(); /* a kernel that waits for this one also relies on the previous one */
}

template <int format, typename S> cuda_tile_kernel kernel_of() {
    typedef typename source<format>::half half;
    return {(const void *)product_tile<format, S>, S::threads, S::rows, S::inputs,
            S::tiles * half::bytes + S::input_bytes};
}

template <int format> struct kernels {
    static cuda_tile_kernel of(int shape) {
        return shape ? kernel_of<format, large>() : kernel_of<format, small>();
    }
};

} // namespace

cuda_tile_kernel cuda_product_tile_kernel(int format, int shape) {
    if (format == CUDA_FORMAT_F16) return kernels<CUDA_FORMAT_F16>::of(shape);
    return quantized_kernel<kernels>(format, shape);
}
