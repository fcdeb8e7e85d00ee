/* format.h - the layout of weights in device memory for products. Shared by host and kernels.
 *
 * ORDER OF SUMS. A product's columns are taken 16 at a time, in ascending order, by one tensor
 * core operation each, into one f32 accumulator that starts at 0. Rows of more than
 * CUDA_SPLIT_COLS columns are cut into cuda_n_splits(n_in) K splits of cuda_split_cols(n_in)
 * columns (the last one may be shorter), each with an accumulator of its own; their partial sums
 * are added in ascending order in f32. This depends on n_in alone, so every kernel gives a row
 * the same bits, whatever else is in the batch. cuBLASLt without split-K follows this order too
 * (lt.c checks it with a probe). The order of the columns inside the 16 does not change the bits
 * (found on sm_90; one kernel uses one order on all devices), so a lane may take four
 * neighbouring columns: a[0], a[1] (b[0]): columns 4t, 4t + 1; a[2], a[3] (b[1]): columns 4t +
 * 2, 4t + 3 of the 16 (t = lane % 4). Then y = sum * in_scale[row] * scale of the weight (both
 * powers of two), + bias.
 *
 * F32: (n_out, n_in) as in the file; sums in f32 fma.
 * F16: (n_out, pitch) row-major, pitch = cuda_pitch(n_in), zeros after n_in; rows from n_out up
 * to a multiple of 16 are zeros. Values of an F16 file, scale 1. Values of a BF16 file are
 * multiplied by the power of two that brings the tensor's largest finite one into [2^15, 2^16),
 * and the scale undoes that. With their 8 bits they fit exactly down to 2^-32 of the largest;
 * below that they are rounded, by at most 2^-40 of it. Infinity and NaN are kept.
 * Quantized: tiles of 16 rows by 256 columns (n_out and n_in rounded up; the padding decodes to
 * 0), the tiles of 16 rows one after the other, ascending columns, cuda_tile_bytes each: a plane
 * of the low bits of the weights, one of the higher bits if the format has them, and the scales
 * as f16. format.cuh tells the place of each bit, next to the function that decodes it;
 * repack.cu writes them. */
#ifndef INFERD_SHADERS_CUDA_FORMAT_H
#define INFERD_SHADERS_CUDA_FORMAT_H

#include <stdint.h>

enum {
    CUDA_TILE_ROWS = 16,
    CUDA_TILE_COLS = 256,
    CUDA_PITCH = 64, /* values: rows of 16-bit weights and inputs are padded to multiples of it */
    CUDA_SPLIT_COLS = 8192, /* most columns of a K split */
    CUDA_MAX_COLS = 65536
};

/* Quantized formats are named by their decoding: bits, values per scale, with or without a
 * minimum. */
enum cuda_format {
    CUDA_FORMAT_F32,
    CUDA_FORMAT_F16,
    CUDA_FORMAT_Q4,      /* Q4_0: 4 bits, groups of 32, q - 8 */
    CUDA_FORMAT_Q4_MIN,  /* Q4_1, Q4_K: 4 bits, groups of 32, scale and minimum */
    CUDA_FORMAT_Q5,      /* Q5_0: 4 + 1 bits, groups of 32, q - 16 */
    CUDA_FORMAT_Q5_MIN,  /* Q5_1, Q5_K */
    CUDA_FORMAT_Q8,      /* Q8_0: 8 bits, groups of 32 */
    CUDA_FORMAT_Q6,      /* Q6_K: 4 + 2 bits, groups of 16, q - 32 */
    CUDA_FORMAT_Q3,      /* Q3_K: 2 + 1 bits, groups of 16, q - 4 */
    CUDA_FORMAT_Q2_MIN,  /* Q2_K: 2 bits, groups of 16, scale and minimum */
    CUDA_FORMAT_IQ4,     /* IQ4_NL, IQ4_XS: 4 bits into iq4_levels, groups of 32 */
    CUDA_FORMAT_MXFP4,   /* MXFP4: 4 bits, e2m1, groups of 32 */
    CUDA_FORMAT_IQ1,     /* IQ1_W: 2 + 1 bits into iq1_levels, groups of 16 */
    CUDA_FORMAT_IQ2,     /* IQ2_W */
    CUDA_FORMAT_IQ3_XXS, /* IQ3_XXS_W: 4 bits into iq3_xxs_levels, groups of 32 */
    CUDA_FORMAT_IQ3_S,   /* IQ3_S_W */
    CUDA_N_FORMATS
};

static inline uint32_t cuda_pitch(uint32_t n_in) {
    return (n_in + CUDA_PITCH - 1) / CUDA_PITCH * CUDA_PITCH;
}

static inline uint32_t cuda_n_splits(uint32_t n_in) {
    return (n_in + CUDA_SPLIT_COLS - 1) / CUDA_SPLIT_COLS;
}

/* A multiple of CUDA_TILE_COLS. */
static inline uint32_t cuda_split_cols(uint32_t n_in) {
    uint32_t n = cuda_n_splits(n_in), even = (n_in + n - 1) / n;
    return n == 1 ? (n_in + CUDA_TILE_COLS - 1) / CUDA_TILE_COLS * CUDA_TILE_COLS
                  : (even + CUDA_TILE_COLS - 1) / CUDA_TILE_COLS * CUDA_TILE_COLS;
}

/* Bytes of a tile of a quantized format, a multiple of 128; 0 for unquantized ones. */
static inline uint32_t cuda_tile_bytes(int format) {
    switch (format) {
    case CUDA_FORMAT_Q4:
    case CUDA_FORMAT_IQ4:
    case CUDA_FORMAT_MXFP4:
    case CUDA_FORMAT_IQ3_XXS:
    case CUDA_FORMAT_IQ3_S:
        return 2048 + 256;
    case CUDA_FORMAT_Q4_MIN:
        return 2048 + 512;
    case CUDA_FORMAT_Q5:
        return 2048 + 512 + 256;
    case CUDA_FORMAT_Q5_MIN:
        return 2048 + 512 + 512;
    case CUDA_FORMAT_Q8:
        return 4096 + 256;
    case CUDA_FORMAT_Q6:
        return 2048 + 1024 + 512;
    case CUDA_FORMAT_Q3:
    case CUDA_FORMAT_IQ1:
    case CUDA_FORMAT_IQ2:
        return 1024 + 512 + 512;
    case CUDA_FORMAT_Q2_MIN:
        return 1024 + 1024;
    default:
        return 0;
    }
}

/* Number of tiles of a matrix. */
static inline uint64_t cuda_n_tiles(uint32_t n_out, uint32_t n_in) {
    return (uint64_t)((n_out + CUDA_TILE_ROWS - 1) / CUDA_TILE_ROWS) *
           ((n_in + CUDA_TILE_COLS - 1) / CUDA_TILE_COLS);
}

#endif
