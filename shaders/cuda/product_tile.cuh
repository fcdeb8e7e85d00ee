/* product_tile.cuh - shared by product_tile.cu and product_wgmma.cu: weights in shared memory,
 * in halves of format.h's tiles, and the output of sums. */
#ifndef INFERD_SHADERS_CUDA_PRODUCT_TILE_CUH
#define INFERD_SHADERS_CUDA_PRODUCT_TILE_CUH

#include "shaders/cuda/epilogue.cuh"
#include "shaders/cuda/format.cuh"
#include "shaders/cuda/kernels.h"

enum { STAGE_COLS = 128, STAGE_STEPS = STAGE_COLS / 16, ROW_BYTES = 2 * STAGE_COLS };

/* Offset of the 16-byte piece i of a row of 256 bytes. */
__device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t i) {
    return row * ROW_BYTES + ((i ^ (row % 4) * 2) * 16);
}

/* ---- the half tile of a row tile in shared memory ---- */

/* Quantized: pieces of 16 bytes of the planes, as in device memory; a plane of one chunk belongs
 * to both halves. */
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
        if (piece < low + high)
            return T::low_bytes + ((T::high_chunks > 1 ? half * high : 0) + piece - low) * 16;
        return T::low_bytes + T::high_bytes + (half * scale + piece - low - high) * 16;
    }
};

template <int n>
__device__ __forceinline__ void read_words(uint32_t *to, const unsigned char *from) {
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

/* Operand a, for four steps at a time. */
template <int format> struct operand {
    typedef tile_of<format> T;
    typedef half_tile<format> H;
    uint32_t low[8], high[2], scale[8];

    /* Steps 4q .. 4q + 3 of the half tile at `from`. */
    __device__ __forceinline__ void load(const unsigned char *from, uint32_t half, int q,
                                         int lane) {
        const unsigned char *high_at = from + 16 * H::low,
                            *scale_at = high_at + 16 * H::high + 16 * (lane / 4);
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
        decode_step<format>(low, high, j, step_scale<format>(scale, of, 0),
                            step_scale<format>(scale, of, 1), a);
    }
};

/* 16 bits: 16 rows in the layout of the inputs. */
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

/* ---- row tiles of a block ---- */

/* Matrix (0: w, 1: pair) and row tile in it of the block's tile i of n. */
struct tile_place {
    uint32_t matrix, tile;
};
__device__ __forceinline__ tile_place place_of(const cargs_product_tile &a, uint32_t i,
                                               uint32_t n) {
    if (!a.epilogue.act) return {0, blockIdx.y * n + i};
    return {i % 2, blockIdx.y * (n / 2) + i / 2};
}

__device__ __forceinline__ const unsigned char *row_tile(const cargs_product_tile &a,
                                                         tile_place p) {
    uint32_t tile = p.tile < a.n_tiles ? p.tile : a.n_tiles - 1;
    return static_cast<const unsigned char *>(p.matrix ? a.pair : a.w) + tile * a.tile_row_bytes;
}

/* Copies columns 128 k .. 128 k + 127 of n row tiles. */
template <int format, int n, int threads>
__device__ __forceinline__ void copy_weights(const cargs_product_tile &a, unsigned char *to,
                                             uint32_t k) {
    typedef typename source<format>::half half;
    for (uint32_t i = threadIdx.x; i < (uint32_t)n * half::pieces; i += threads) {
        uint32_t tile = i / half::pieces, piece = i % half::pieces;
        const unsigned char *from = row_tile(a, place_of(a, tile, n));
        if constexpr (source<format>::quantized) {
            from +=
                (uint64_t)(k / 2) * tile_of<format>::bytes + half_tile<format>::from(piece, k % 2);
            async_copy16(to + tile * half::bytes + piece * 16, from);
        } else {
            uint32_t row = piece / 16, at = piece % 16;
            if (k * STAGE_COLS + at * 8 < a.pitch)
                async_copy16(to + tile * half::bytes + swizzled(row, at),
                             from + 2 * ((uint64_t)row * a.pitch + k * STAGE_COLS + at * 8));
        }
    }
}

/* ---- sums, (inputs, rows + 4) in shared memory: row i belongs to tile i / 16 ---- */

enum { SUMS_PAD = 4 }; /* the 4 x 8 values of a warp lie in 32 banks */

/* Writes the block's results from its sums, after a barrier. */
template <int inputs, int rows, int threads>
__device__ __forceinline__ void write_block(const cargs_product_tile &a, const float *sums) {
    const uint32_t n_out = a.epilogue.act ? rows / 2 : rows; /* of this block */
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < inputs * (n_out / 4); i += threads) {
        uint32_t in = i / (n_out / 4), at = i % (n_out / 4) * 4;
        uint32_t row = blockIdx.x * inputs + in, out = blockIdx.y * n_out + at;
        if (row >= a.n_rows || out >= a.n_out) continue;
        const float *from =
            sums + in * (rows + SUMS_PAD) + (a.epilogue.act ? at / 16 * 32 + at % 16 : at);
        float4 v = *reinterpret_cast<const float4 *>(from);
        float4 up = *reinterpret_cast<const float4 *>(from + (a.epilogue.act ? 16 : 0));
        float in_scale = a.in_scale[row], sum[4] = {v.x, v.y, v.z, v.w},
              pair[4] = {up.x, up.y, up.z, up.w};
        float *y = (a.partials ? a.partials + (uint64_t)blockIdx.z * a.n_rows * a.n_out : a.y) +
                   (uint64_t)row * a.n_out + out;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            if (a.partials) break;
            uint32_t of = out + j < a.n_out ? out + j : a.n_out - 1;
            sum[j] = a.epilogue.act ? epilogue_pair(a.epilogue, in_scale, sum[j], pair[j], of)
                                    : epilogue_sum(a.epilogue, in_scale, sum[j], of);
        }
        if (a.n_out % 4 == 0) {
            *reinterpret_cast<float4 *>(y) = float4{sum[0], sum[1], sum[2], sum[3]};
        } else {
            for (uint32_t j = 0; j < 4 && out + j < a.n_out; j++)
                y[j] = sum[j];
        }
    }
}

/* ---- host ---- */

/* K<format>::of(shape) for a quantized format, otherwise an empty kernel. */
template <template <int> class K> static cuda_tile_kernel quantized_kernel(int format, int shape) {
    switch (format) {
    case CUDA_FORMAT_Q4:
        return K<CUDA_FORMAT_Q4>::of(shape);
    case CUDA_FORMAT_Q4_MIN:
        return K<CUDA_FORMAT_Q4_MIN>::of(shape);
    case CUDA_FORMAT_Q5:
        return K<CUDA_FORMAT_Q5>::of(shape);
    case CUDA_FORMAT_Q5_MIN:
        return K<CUDA_FORMAT_Q5_MIN>::of(shape);
    case CUDA_FORMAT_Q8:
        return K<CUDA_FORMAT_Q8>::of(shape);
    case CUDA_FORMAT_Q6:
        return K<CUDA_FORMAT_Q6>::of(shape);
    case CUDA_FORMAT_Q3:
        return K<CUDA_FORMAT_Q3>::of(shape);
    case CUDA_FORMAT_Q2_MIN:
        return K<CUDA_FORMAT_Q2_MIN>::of(shape);
    case CUDA_FORMAT_IQ4:
        return K<CUDA_FORMAT_IQ4>::of(shape);
    case CUDA_FORMAT_MXFP4:
        return K<CUDA_FORMAT_MXFP4>::of(shape);
    case CUDA_FORMAT_IQ1:
        return K<CUDA_FORMAT_IQ1>::of(shape);
    case CUDA_FORMAT_IQ2:
        return K<CUDA_FORMAT_IQ2>::of(shape);
    case CUDA_FORMAT_IQ3_XXS:
        return K<CUDA_FORMAT_IQ3_XXS>::of(shape);
    case CUDA_FORMAT_IQ3_S:
        return K<CUDA_FORMAT_IQ3_S>::of(shape);
    default:
        return cuda_tile_kernel{};
    }
}

#endif
