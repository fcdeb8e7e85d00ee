/* dequantize.cu - decodes tiles to row-major f16, for products by cuBLASLt: the values of
 * decode_step. */
#include "shaders/args_linear.h"
#include "shaders/cuda/format.cuh"
#include "shaders/cuda/kernels.h"

namespace {

/* A plane's 16 bytes of this lane as words. */
__device__ __forceinline__ void load_words(uint32_t w[4], const unsigned char *at) {
    uint4 v = load_stream16(at);
    w[0] = v.x;
    w[1] = v.y;
    w[2] = v.z;
    w[3] = v.w;
}

/* Neighbouring lanes hold four columns each of steps j and j + 1: afterwards the even one holds
 * eight of step j, the odd one eight of step j + 1. mine: the pairs of step j, other: of j + 1. */
__device__ __forceinline__ uint4 exchange(uint2 mine, uint2 other, bool odd) {
    uint2 give = odd ? mine : other, keep = odd ? other : mine;
    give.x = __shfl_xor_sync(CUDA_ALL, give.x, 1);
    give.y = __shfl_xor_sync(CUDA_ALL, give.y, 1);
    return odd ? make_uint4(give.x, give.y, keep.x, keep.y)
               : make_uint4(keep.x, keep.y, give.x, give.y);
}

/* One warp per half tile: 8 steps. */
template <int format> CUDA_KERNEL(256) dequantize(CUDA_ARGS(struct cargs_dequantize) a) {
    typedef tile_of<format> T;
    enum {
        low_chunks = T::low_chunks / 2,
        high_words = T::high_words / 2,
        scale_chunks = T::scale_chunks / 2
    };
    uint32_t lane = threadIdx.x % 32, half = threadIdx.x / 32 % 2;
    uint64_t tile_no = blockIdx.x * (uint64_t)(blockDim.x / 64) + threadIdx.x / 64;
    uint32_t across = (a.n_in + CUDA_TILE_COLS - 1) / CUDA_TILE_COLS;
    pdl_launch();
    uint32_t low[4 * low_chunks], high[4 * T::high_chunks + 1], scale[4 * scale_chunks];
    bool there = tile_no < a.n_tiles;
    const unsigned char *tile = (const unsigned char *)a.tiles + (there ? tile_no : 0) * T::bytes;
#pragma unroll
    for (int k = 0; k < low_chunks; k++)
        load_words(low + 4 * k, tile_low<format>(tile, half * low_chunks + k, lane));
    const uint32_t *from = (const uint32_t *)tile_high<format>(tile, 0, lane);
#pragma unroll
    for (int i = 0; i < high_words; i++) {
        uint32_t w = half * high_words + i;
        high[i] = from[w / 4 * 128 + w % 4];
    }
#pragma unroll
    for (int k = 0; k < scale_chunks; k++)
        load_words(scale + 4 * k, tile_scale<format>(tile, half * scale_chunks + k, lane));
    pdl_wait();
    uint32_t t = lane % 4, row = (uint32_t)(tile_no / across) * CUDA_TILE_ROWS + lane / 4;
    uint32_t col =
        (uint32_t)(tile_no % across) * CUDA_TILE_COLS + 128 * half + 16 * (t % 2) + 8 * (t / 2);
    uint16_t *out = a.out + (uint64_t)row * a.pitch + col;
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        uint32_t even[4], odd[4];
        decode_step<format>(low, high, j, step_scale<format>(scale, j, 0),
                            step_scale<format>(scale, j, 1), even);
        decode_step<format>(low, high, j + 1, step_scale<format>(scale, j + 1, 0),
                            step_scale<format>(scale, j + 1, 1), odd);
        uint4 above = exchange(make_uint2(even[0], even[2]), make_uint2(odd[0], odd[2]), t % 2);
        uint4 below = exchange(make_uint2(even[1], even[3]), make_uint2(odd[1], odd[3]), t % 2);
        if (there && col + 16 * j < a.pitch) {
            *(uint4 *)(out + 16 * j) = above;
            *(uint4 *)(out + 8 * (uint64_t)a.pitch + 16 * j) = below;
        }
    }
}

} // namespace

const void *cuda_dequantize_kernel(int format) {
    switch (format) {
    case CUDA_FORMAT_Q4:
        return (const void *)dequantize<CUDA_FORMAT_Q4>;
    case CUDA_FORMAT_Q4_MIN:
        return (const void *)dequantize<CUDA_FORMAT_Q4_MIN>;
    case CUDA_FORMAT_Q5:
        return (const void *)dequantize<CUDA_FORMAT_Q5>;
    case CUDA_FORMAT_Q5_MIN:
        return (const void *)dequantize<CUDA_FORMAT_Q5_MIN>;
    case CUDA_FORMAT_Q8:
        return (const void *)dequantize<CUDA_FORMAT_Q8>;
    case CUDA_FORMAT_Q6:
        return (const void *)dequantize<CUDA_FORMAT_Q6>;
    case CUDA_FORMAT_Q3:
        return (const void *)dequantize<CUDA_FORMAT_Q3>;
    case CUDA_FORMAT_Q2_MIN:
        return (const void *)dequantize<CUDA_FORMAT_Q2_MIN>;
    case CUDA_FORMAT_IQ4:
        return (const void *)dequantize<CUDA_FORMAT_IQ4>;
    case CUDA_FORMAT_MXFP4:
        return (const void *)dequantize<CUDA_FORMAT_MXFP4>;
    case CUDA_FORMAT_IQ1:
        return (const void *)dequantize<CUDA_FORMAT_IQ1>;
    case CUDA_FORMAT_IQ2:
        return (const void *)dequantize<CUDA_FORMAT_IQ2>;
    case CUDA_FORMAT_IQ3_XXS:
        return (const void *)dequantize<CUDA_FORMAT_IQ3_XXS>;
    case CUDA_FORMAT_IQ3_S:
        return (const void *)dequantize<CUDA_FORMAT_IQ3_S>;
    default:
        return nullptr;
    }
}
