/* product_wgmma.cu - product_tile.cu's products with sm_90's wgmma: four warps multiply 64
 * weight rows, decoded into registers, by all of a block's inputs in shared memory, while they
 * decode the next 16 columns.
 *
 * Stages of 128 columns: weights come by asynchronous copies as they lie in memory; inputs go
 * through registers, because the columns within each 16 are permuted: format.h gives a lane
 * columns 4t .. 4t + 3 of the weights, which the hardware takes for 2t, 2t + 1, 2t + 8 and 2t +
 * 9. */
#include "shaders/cuda/kernels.h"
#include "shaders/cuda/product_tile.cuh"
#include "shaders/cuda/wgmma.cuh"

namespace {

/* GROUPS of four warps, each MT times 64 weight rows, by 8 NT inputs. */
template <int GROUPS_, int MT_, int NT_> struct shape {
    enum {
        GROUPS = GROUPS_,
        MT = MT_,
        NT = NT_,
        threads = 128 * GROUPS,
        tiles = 4 * GROUPS * MT, /* of 16 rows of weights */
        rows = 16 * tiles,
        inputs = 8 * NT,
        half_bytes = inputs * 128, /* of 64 columns of the input */
        input_bytes = 2 * half_bytes,
        units = inputs * 8 / threads, /* 16-column units that a thread copies */
        stages = 3
    };
};
typedef shape<2, 2, 16> large;
typedef shape<1, 1, 8> small;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(INFERD_CUDA_STANDIN)

template <typename S> struct input_regs { uint4 v[S::units][2]; };

/* Eight threads store side by side: 64 columns of two rows, in eight different groups of banks. */
template <typename S>
__device__ __forceinline__ void unit_of(int n, uint32_t &row, uint32_t &half, uint32_t &at) {
    uint32_t i = threadIdx.x + n * S::threads;
    at = i % 4;
    half = i / 8 % 2;
    row = i / 16 * 2 + i / 4 % 2;
}

/* Loads columns 128 k .. 128 k + 127 of the block's inputs. */
template <typename S>
__device__ __forceinline__ void load_inputs(const cargs_product_tile &a, uint32_t k,
                                            input_regs<S> &r) {
#pragma unroll
    for (int n = 0; n < S::units; n++) {
        uint32_t row, half, at;
        unit_of<S>(n, row, half, at);
        uint32_t in = blockIdx.x * S::inputs + row, col = k * STAGE_COLS + 64 * half + 16 * at;
        if (in >= a.n_rows) in = a.n_rows - 1;
        if (col >= a.pitch) continue;
        const uint4 *from = reinterpret_cast<const uint4 *>(a.x + (uint64_t)in * a.pitch + col);
        r.v[n][0] = from[0];
        r.v[n][1] = from[1];
    }
}

template <typename S>
__device__ __forceinline__ void store_inputs(unsigned char *to, const input_regs<S> &r) {
#pragma unroll
    for (int n = 0; n < S::units; n++) {
        uint32_t row, half, at;
        unit_of<S>(n, row, half, at);
        unsigned char *line = to + half * S::half_bytes + row * 128;
        const uint4 v = r.v[n][0], w = r.v[n][1];
        *reinterpret_cast<uint4 *>(line + ((2 * at) ^ row % 8) * 16) = uint4{v.x, v.z, w.x, w.z};
        *reinterpret_cast<uint4 *>(line + ((2 * at + 1) ^ row % 8) * 16) =
            uint4{v.y, v.w, w.y, w.w};
    }
}

template <typename S> struct sums { float v[S::MT][S::NT][4]; };

/* Adds the products of a stage's first n_steps steps, 4 or 8; no wgmma is in progress
 * afterwards. */
template <int format, typename S>
__device__ __forceinline__ void multiply(const unsigned char *weights, const unsigned char *inputs,
                                         uint32_t k, uint32_t n_steps, sums<S> &acc) {
    typedef half_tile<format> half;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    weights += (warp / 4 * S::MT * 4 + warp % 4) * half::bytes;
    /* A single group of warps cannot hide its loads behind another group: it starts with all of
     * them. */
    enum { ahead = S::MT == 1 };
    operand<format> w[ahead ? 2 : 1][S::MT];
    uint32_t a[2][S::MT][4];
#pragma unroll
    for (int q = 0; q < (ahead ? 2 : 0); q++)
#pragma unroll
        for (int m = 0; m < S::MT; m++)
            w[q][m].load(weights + m * 4 * half::bytes, k % 2, q, lane);
#pragma unroll
    for (int q = 0; q < 2; q++) {
        if (q * 4 >= n_steps) break;
#pragma unroll
        for (int m = 0; m < (ahead ? 0 : S::MT); m++)
            w[0][m].load(weights + m * 4 * half::bytes, k % 2, q, lane);
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int m = 0; m < S::MT; m++)
                w[ahead ? q : 0][m].step(q, j, a[j % 2][m]);
            wgmma_fence();
#pragma unroll
            for (int m = 0; m < S::MT; m++)
                wgmma_f16<S::NT>(acc.v[m], a[j % 2][m], inputs + q * S::half_bytes, j);
            wgmma_commit();
            wgmma_wait<1>(); /* the other operands may be overwritten */
        }
    }
    wgmma_wait<0>();
}

template <typename S> __device__ __forceinline__ void keep(float *to, const sums<S> &acc) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    to += 2 * t * (S::rows + SUMS_PAD) + (warp / 4 * S::MT * 4 + warp % 4) * 16 + g;
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int n = 0; n < S::NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[(n * 8 + i % 2) * (S::rows + SUMS_PAD) + m * 64 + i / 2 * 8] = acc.v[m][n][i];
}

#endif

/* Block (x, y, z): inputs of x, weight rows of y, K split z. */
template <int format, typename S>
CUDA_KERNEL(S::threads)
product_wgmma(CUDA_ARGS(struct cargs_product_tile) a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(INFERD_CUDA_STANDIN)
    enum { stage_weights = S::tiles * half_tile<format>::bytes };
    CUDA_SHARED_1024(shared);
    unsigned char *weights = shared + S::stages * S::input_bytes;
    const uint32_t first = blockIdx.z * (a.split_cols / STAGE_COLS),
                   all = (a.pitch + STAGE_COLS - 1) / STAGE_COLS;
    const uint32_t n = min(all - first, a.split_cols / STAGE_COLS);
    for (uint32_t k = 0; k < 2; k++) {
        if (k < n)
            copy_weights<format, S::tiles, S::threads>(a, weights + k * stage_weights, first + k);
        async_commit();
    }
    if (!a.overlaps_previous) pdl_wait();
    pdl_launch();
    input_regs<S> in = {};
    load_inputs<S>(a, first, in);
    store_inputs<S>(shared, in);
    if (n > 1) load_inputs<S>(a, first + 1, in);
    sums<S> acc = {};
    uint32_t at = 0, next = 1, later = 2; /* slots of stages k, k + 1, k + 2 */
    for (uint32_t k = 0; k < n; k++) {
        async_wait<1>();
        if (k + 1 < n) store_inputs<S>(shared + next * S::input_bytes, in);
        wgmma_shared_fence();
        __syncthreads(); /* stage k has arrived, and no thread reads the previous one */
        if (k + 2 < n) {
            load_inputs<S>(a, first + k + 2, in);
            copy_weights<format, S::tiles, S::threads>(a, weights + later * stage_weights,
                                                       first + k + 2);
        }
        async_commit();
        uint32_t left = (a.pitch - (first + k) * STAGE_COLS) / 16;
        multiply<format, S>(weights + at * stage_weights, shared + at * S::input_bytes, first + k,
                            left < STAGE_STEPS ? left : (uint32_t)STAGE_STEPS, acc);
        uint32_t free = at;
        at = next, next = later, later = free;
    }
    __syncthreads();
    float *out = reinterpret_cast<float *>(shared);
    keep(out, acc);
    __syncthreads();
    write_block<S::inputs, S::rows, S::threads>(a, out);
    if (a.overlaps_previous)
        pdl_wait(); /* a kernel that waits for this one also relies on the previous one */
#else
    (void)a;
#endif
}

template <int format, typename S> cuda_tile_kernel kernel_of() {
    typedef half_tile<format> half;
    return {(const void *)product_wgmma<format, S>, S::threads, S::rows, S::inputs,
            S::tiles * half::bytes + S::input_bytes};
}

template <int format> struct kernels {
    static cuda_tile_kernel of(int shape) {
        return shape ? kernel_of<format, large>() : kernel_of<format, small>();
    }
};

} // namespace

cuda_tile_kernel cuda_product_wgmma_kernel(int format, int shape) {
#if defined(CUDA_HAVE_SM90A) || defined(INFERD_CUDA_STANDIN)
    return quantized_kernel<kernels>(format, shape);
#else
    (void)format, (void)shape;
    return cuda_tile_kernel{};
#endif
}
