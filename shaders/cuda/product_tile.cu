/* product_tile.cu - products of many rows: tensor cores, weights decoded on their way from shared memory.
 *
 * A block computes WM * MT * 16 rows of weights (a pair: half as many of both) by WN * NT * 8 rows of the input.
 * Warp (m, n) of WM * WN has MT tiles of 16 rows of weights, m's, by NT tiles of 8 inputs, n's: a decoded
 * operand serves NT operations, an input from shared memory MT, which is what bounds the kernel (128 bytes a
 * clock against an operation every two). Stages of 128 columns, half a tile of format.cuh, come by
 * asynchronous copies: the weights as they lie in memory, the inputs row by row, 256 bytes each, in
 * pieces of 16 bytes permuted so that the four rows that half a warp reads at once lie in different banks. */
#include "shaders/cuda/finish.cuh"
#include "shaders/cuda/format.cuh"
#include "shaders/cuda/kernels.h"

namespace {

enum { STAGE_COLS = 128, STAGE_STEPS = STAGE_COLS / 16, ROW_BYTES = 2 * STAGE_COLS };

/* Where piece i of 16 bytes of a row lies in its 256. */
__device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t i) {
    return row * ROW_BYTES + ((i ^ (row % 4) * 2) * 16);
}

/* ---- a row tile's half tile in shared memory ---- */

/* Quantized: pieces of 16 bytes of the planes, as in memory; a plane of one chunk belongs to both halves. */
template <int format> struct half_tile {
    typedef tile_of<format> T;
    enum {
        low = T::low_chunks / 2 * 32,
        high = (T::high_chunks + 1) / 2 * 32,
        scale = T::scale_chunks / 2 * 8,
        pieces = low + high + scale,
        bytes = 16 * pieces
    };
    static __device__ __forceinline__ uint32_t from(uint32_t piece, uint32_t half) {
        if (piece < low) return (half * low + piece) * 16;
        if (piece < low + high) return T::low_bytes + ((T::high_chunks > 1 ? half * high : 0) + piece - low) * 16;
        return T::low_bytes + T::high_bytes + (half * scale + piece - low - high) * 16;
    }
};

template <int n> __device__ __forceinline__ void read_words(uint32_t *to, const unsigned char *from) {
    if (n == 1) {
        to[0] = *reinterpret_cast<const uint32_t *>(from);
    } else if (n == 2) {
        uint2 v = *reinterpret_cast<const uint2 *>(from);
        to[0] = v.x, to[1] = v.y;
    } else {
        uint4 v = *reinterpret_cast<const uint4 *>(from);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    }
}

/* Operand a of four steps at a time. */
template <int format> struct operand {
    typedef tile_of<format> T;
    typedef half_tile<format> H;
    uint32_t low[8], high[2], scale[8];

    /* Steps 4q .. 4q + 3 of the half tile at `from`. */
    __device__ __forceinline__ void load(const unsigned char *from, uint32_t half, int q, int lane) {
        const unsigned char *high_at = from + 16 * H::low, *scale_at = high_at + 16 * H::high + 16 * (lane / 4);
        if (T::low == 2) read_words<2>(low, from + 16 * lane + 8 * q);
        if (T::low == 4) read_words<4>(low, from + 512 * q + 16 * lane);
        if (T::low == 8) {
            read_words<4>(low, from + 1024 * q + 16 * lane);
            read_words<4>(low + 4, from + 1024 * q + 512 + 16 * lane);
        }
        if (T::high == 1) read_words<1>(high, high_at + 16 * lane + 8 * half + 4 * q);
        if (T::high == 2) read_words<2>(high, high_at + 16 * lane + 8 * q);
        if (T::scale_cols == 128) read_words<4>(scale, scale_at);
        if (T::scale_cols == 64) read_words<4>(scale, scale_at + 128 * q);
        if (T::scale_cols == 32) {
            read_words<4>(scale, scale_at + 256 * q);
            read_words<4>(scale + 4, scale_at + 256 * q + 128);
        }
    }
    __device__ __forceinline__ void step(int q, int j, uint32_t a[4]) const {
        int of = T::scale_cols == 128 ? 4 * q + j : j;
        decode_step<format>(low, high, j, step_scale<format>(scale, of, 0), step_scale<format>(scale, of, 1), a);
    }
};

/* 16 bit: 16 rows like the inputs'. */
struct half_tile_16 {
    enum { pieces = 16 * ROW_BYTES / 16, bytes = 16 * ROW_BYTES };
};

struct operand_16 {
    const unsigned char *at;
    uint32_t turn;
    __device__ __forceinline__ void load(const unsigned char *from, uint32_t, int q, int lane) {
        at = from + lane / 4 * ROW_BYTES + lane % 2 * 8 + 128 * q;
        turn = lane / 4 % 4 * 32 ^ lane / 2 % 2 * 16;
    }
    __device__ __forceinline__ void step(int, int j, uint32_t a[4]) const {
        uint2 v = *reinterpret_cast<const uint2 *>(at + (j * 32 ^ turn));
        uint2 u = *reinterpret_cast<const uint2 *>(at + (j * 32 ^ turn) + 8 * ROW_BYTES);
        a[0] = v.x, a[1] = u.x, a[2] = v.y, a[3] = u.y;
    }
};

template <int format> struct source {
    typedef half_tile<format> half;
    typedef operand<format> reader;
    enum { quantized = 1 };
};
template <> struct source<CUDA_FORMAT_F16> {
    typedef half_tile_16 half;
    typedef operand_16 reader;
    enum { quantized = 0 };
};
template <> struct source<CUDA_FORMAT_BF16> : source<CUDA_FORMAT_F16> {};

/* ---- a block ---- */

template <int WM_, int WN_, int MT_, int NT_> struct shape {
    enum {
        WM = WM_,
        WN = WN_,
        MT = MT_,
        NT = NT_,
        threads = 32 * WM * WN,
        tiles = WM * MT,       /* of 16 rows of weights */
        inputs = WN * NT * 8, /* rows of the input */
        input_bytes = inputs * ROW_BYTES
    };
};
typedef shape<4, 2, 2, 8> large;
typedef shape<2, 2, 2, 4> small;

/* Matrix (0: w, 1: pair) and tile of rows in it of the block's tile i. A warp has a pair's two tiles. */
struct tile_place {
    uint32_t matrix, tile;
};
template <typename S> __device__ __forceinline__ tile_place place_of(const cargs_product_tile &a, uint32_t i) {
    if (!a.tail.act) return {0, blockIdx.y * S::tiles + i};
    return {i % 2, blockIdx.y * (S::tiles / 2) + i / 2};
}

template <int format> __device__ __forceinline__ const unsigned char *
row_tile(const cargs_product_tile &a, tile_place p) {
    uint32_t tile = p.tile < a.n_tiles ? p.tile : a.n_tiles - 1;
    return static_cast<const unsigned char *>(p.matrix ? a.pair : a.w) + tile * a.tile_row_bytes;
}

/* The weights of columns 128 k on. */
template <int format, typename S>
__device__ __forceinline__ void copy_weights(const cargs_product_tile &a, unsigned char *to, uint32_t k) {
    typedef typename source<format>::half half;
    for (uint32_t i = threadIdx.x; i < (uint32_t)S::tiles * half::pieces; i += S::threads) {
        uint32_t tile = i / half::pieces, piece = i % half::pieces;
        const unsigned char *from = row_tile<format>(a, place_of<S>(a, tile));
        if constexpr (source<format>::quantized) {
            from += (uint64_t)(k / 2) * tile_of<format>::bytes + half_tile<format>::from(piece, k % 2);
            async_copy16(to + tile * half::bytes + piece * 16, from);
        } else {
            uint32_t row = piece / 16, at = piece % 16;
            if (k * STAGE_COLS + at * 8 < a.pitch)
                async_copy16(to + tile * half::bytes + swizzled(row, at),
                             from + 2 * ((uint64_t)row * a.pitch + k * STAGE_COLS + at * 8));
        }
    }
}

template <typename S>
__device__ __forceinline__ void copy_inputs(const cargs_product_tile &a, unsigned char *to, uint32_t k) {
#pragma unroll
    for (uint32_t i = threadIdx.x; i < (uint32_t)S::inputs * 16; i += S::threads) {
        uint32_t row = i / 16, at = i % 16, in = blockIdx.x * S::inputs + row;
        if (in >= a.n_rows) in = a.n_rows - 1;
        if (k * STAGE_COLS + at * 8 < a.pitch)
            async_copy16(to + swizzled(row, at), a.x + (uint64_t)in * a.pitch + k * STAGE_COLS + at * 8);
    }
}

template <typename S> struct sums {
    float v[S::MT][S::NT][4];
};

/* Adds the products of a stage's first n_steps steps, 4 or 8. */
template <int format, typename S>
__device__ __forceinline__ void multiply(const unsigned char *weights, const unsigned char *inputs, uint32_t k,
                                         uint32_t n_steps, sums<S> &acc) {
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
                uint2 v = *reinterpret_cast<const uint2 *>(inputs + n * 8 * ROW_BYTES + 128 * q + (j * 32 ^ turn));
                b[n][0] = v.x, b[n][1] = v.y;
            }
#pragma unroll
            for (int m = 0; m < S::MT; m++)
                w[m].step(q, j, a[m]);
#pragma unroll
            for (int n = 0; n < S::NT; n++)
#pragma unroll
                for (int m = 0; m < S::MT; m++) {
                    if (format == CUDA_FORMAT_BF16)
                        mma_bf16(acc.v[m][n], a[m], b[n]);
                    else
                        mma_f16(acc.v[m][n], a[m], b[n]);
                }
        }
    }
}

/* A part's sums join those of the parts before it; the next part begins with 0. */
template <typename S> __device__ __forceinline__ void end_part(sums<S> &total, sums<S> &acc, bool first) {
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

template <typename S> __device__ __forceinline__ void write(const cargs_product_tile &a, const sums<S> &total) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint32_t first = blockIdx.x * S::inputs + warp % S::WN * S::NT * 8 + 2 * t;
#pragma unroll
    for (int n = 0; n < S::NT; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t row = first + n * 8 + i;
            if (row >= a.n_rows) continue;
            float in_scale = a.in_scale[row];
            float *y = a.y + (uint64_t)row * a.n_out;
#pragma unroll
            for (int m = 0; m < S::MT; m++) {
                tile_place p = place_of<S>(a, warp / S::WN * S::MT + m);
                if (p.matrix) continue;
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    uint32_t out = p.tile * 16 + g + 8 * h;
                    if (out >= a.n_out) continue;
                    float v = total.v[m][n][2 * h + i];
                    y[out] = a.tail.act
                                 ? finish_pair(a.tail, in_scale, v, total.v[(m + 1) % S::MT][n][2 * h + i], out)
                                 : finish_sum(a.tail, in_scale, v, out);
                }
            }
        }
}

/* Block (x, y): inputs of x, rows of weights of y. */
template <int format, typename S> CUDA_KERNEL(S::threads) product_tile(CUDA_ARGS(struct cargs_product_tile) a) {
    typedef typename source<format>::half half;
    enum { stage_weights = S::tiles * half::bytes, stage_bytes = stage_weights + S::input_bytes };
    CUDA_SHARED(unsigned char, shared);
    const uint32_t ahead = a.n_stages - 1, n = (a.pitch + STAGE_COLS - 1) / STAGE_COLS;
    for (uint32_t k = 0; k < ahead && k < n; k++)
        copy_weights<format, S>(a, shared + k * stage_bytes, k);
    pdl_wait();
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
        __syncthreads(); /* stage k is there, and nobody reads the one before it */
        if (k + ahead < n) {
            copy_weights<format, S>(a, shared + next * stage_bytes, k + ahead);
            copy_inputs<S>(a, shared + next * stage_bytes + stage_weights, k + ahead);
        }
        async_commit();
        const unsigned char *stage = shared + place * stage_bytes;
        uint32_t left = (a.pitch - k * STAGE_COLS) / 16;
        multiply<format, S>(stage, stage + stage_weights, k, left < STAGE_STEPS ? left : (uint32_t)STAGE_STEPS, acc);
        uint32_t done = (k + 1) * STAGE_COLS;
        if (done % a.part_cols == 0 || k + 1 == n) end_part(total, acc, done <= a.part_cols);
        place = place + 1 == a.n_stages ? 0 : place + 1;
        next = next + 1 == a.n_stages ? 0 : next + 1;
    }
    write<S>(a, total);
}

template <int format, typename S> cuda_tile_kernel kernel_of() {
    typedef typename source<format>::half half;
    return {(const void *)product_tile<format, S>, S::threads, S::tiles * 16, S::inputs,
            S::tiles * half::bytes + S::input_bytes};
}

template <int format> cuda_tile_kernel kernel_of(int shape) {
    return shape ? kernel_of<format, large>() : kernel_of<format, small>();
}

}

cuda_tile_kernel cuda_product_tile_kernel(int format, int shape) {
    switch (format) {
    case CUDA_FORMAT_F16: return kernel_of<CUDA_FORMAT_F16>(shape);
    case CUDA_FORMAT_BF16: return kernel_of<CUDA_FORMAT_BF16>(shape);
    case CUDA_FORMAT_Q4: return kernel_of<CUDA_FORMAT_Q4>(shape);
    case CUDA_FORMAT_Q4_MIN: return kernel_of<CUDA_FORMAT_Q4_MIN>(shape);
    case CUDA_FORMAT_Q5: return kernel_of<CUDA_FORMAT_Q5>(shape);
    case CUDA_FORMAT_Q5_MIN: return kernel_of<CUDA_FORMAT_Q5_MIN>(shape);
    case CUDA_FORMAT_Q8: return kernel_of<CUDA_FORMAT_Q8>(shape);
    case CUDA_FORMAT_Q6: return kernel_of<CUDA_FORMAT_Q6>(shape);
    case CUDA_FORMAT_Q3: return kernel_of<CUDA_FORMAT_Q3>(shape);
    case CUDA_FORMAT_Q2_MIN: return kernel_of<CUDA_FORMAT_Q2_MIN>(shape);
    case CUDA_FORMAT_IQ4: return kernel_of<CUDA_FORMAT_IQ4>(shape);
    case CUDA_FORMAT_MXFP4: return kernel_of<CUDA_FORMAT_MXFP4>(shape);
    default: return cuda_tile_kernel{};
    }
}
