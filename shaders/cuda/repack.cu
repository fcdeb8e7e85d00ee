/* repack.cu - converts a file's rows to the layout of products (format.h) when a model is
 * opened. Quantized rows become tiles (format.cuh), chunk by chunk: `largest` finds the largest
 * scale of the tensor so far, `rescale` adapts the tiles already written to the power of two
 * that it requires, `repack` writes the chunk's. So a tensor is read once, and the host does not
 * wait. A scale that `rescale` makes a subnormal half has been rounded twice. BF16 rows become
 * F16 in place, all at once: largest_value, halves. */
#include "shaders/args_linear.h"
#include "shaders/cuda/block.cuh"
#include "shaders/cuda/kernels.h"

namespace {

/* The power of two that brings the largest scale, already multiplied by 2^exponent, into (32752,
 * 65504]. */
__device__ int shift_for(float largest, int exponent) {
    if (largest == 0) return 0;
    int e;
    float f = frexpf(largest, &e);
    return (f * 65536.0f > 65504.0f ? 15 : 16) - e - exponent;
}

/* Infinite and NaN scales, from a broken file, do not count. */
__device__ float finite(float v) {
    v = fabsf(v);
    return v < INFINITY ? v : 0;
}

template <int type> CUDA_KERNEL(256) largest(CUDA_ARGS(struct cargs_repack) a) {
    typedef block_of<type> B;
    typedef tile_of<B::format> T;
    pdl_launch();
    pdl_wait();
    uint32_t n_groups = a.n_in / T::group;
    uint64_t n = (uint64_t)a.n_rows * n_groups;
    float most = 0;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x) {
        const unsigned char *row = (const unsigned char *)a.rows + i / n_groups * a.row_bytes;
        uint32_t at = (uint32_t)(i % n_groups) * T::group;
        float2 s =
            block_scale((const typename B::block *)row + at / B::elems, at % B::elems / T::group);
        most = fmaxf(most, fmaxf(finite(s.x), scalbnf(finite(s.y), -scale_exponent<B::format>(0))));
    }
    most = warp_max(most);
    if (threadIdx.x % 32 == 0 && most > 0) atomicMax(&a.state->largest, __float_as_uint(most));
}

/* One block per tile; each warp has four of its steps. */
template <int type> CUDA_KERNEL(128) repack(CUDA_ARGS(struct cargs_repack) a) {
    typedef block_of<type> B;
    typedef tile_of<B::format> T;
    typedef typename B::block block;
    enum { format = B::format, low_words = T::low_words / 4, high_words = T::high_words / 4 };
    pdl_launch();
    pdl_wait();
    int shift = shift_for(__uint_as_float(a.state->largest), scale_exponent<format>(0));
    uint32_t col0 = blockIdx.x * CUDA_TILE_COLS, row0 = blockIdx.y * CUDA_TILE_ROWS;
    unsigned char *tile =
        (unsigned char *)a.tiles + ((uint64_t)blockIdx.y * gridDim.x + blockIdx.x) * T::bytes;
    uint32_t lane = threadIdx.x % 32, part = threadIdx.x / 32;
    uint32_t low[low_words] = {0}, high[high_words + 1] = {0};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t row = row0 + lane / 4 + 8 * half;
        const block *b = (const block *)((const unsigned char *)a.rows + row * a.row_bytes);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t col = col0 + 64 * part + 16 * j + 4 * (lane % 4);
            if (row < a.n_rows && col < a.n_in)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    encode_value<format>(block_q(b + col / B::elems, col % B::elems + i), j, i,
                                         half, low, high);
        }
    }
#pragma unroll
    for (int i = 0; i < low_words; i++) {
        uint32_t w = part * low_words + i;
        *(uint32_t *)(tile + w / 4 * 512 + 16 * lane + 4 * (w % 4)) = low[i];
    }
#pragma unroll
    for (int i = 0; i < high_words; i++) {
        uint32_t w = part * high_words + i;
        *(uint32_t *)(tile + T::low_bytes + w / 4 * 512 + 16 * lane + 4 * (w % 4)) = high[i];
    }
    for (uint32_t i = threadIdx.x; i < CUDA_TILE_ROWS * CUDA_TILE_COLS / T::group;
         i += blockDim.x) {
        uint32_t r = i % CUDA_TILE_ROWS, at = i / CUDA_TILE_ROWS * T::group, col = col0 + at,
                 half = r / 8;
        float2 s = make_float2(0, 0);
        if (row0 + r < a.n_rows && col < a.n_in) {
            const block *b =
                (const block *)((const unsigned char *)a.rows + (row0 + r) * a.row_bytes);
            s = block_scale(b + col / B::elems, col % B::elems / T::group);
        }
        uint32_t pair =
            pack_f16(scalbnf(s.x, shift + scale_exponent<format>(half)), scalbnf(s.y, shift));
        unsigned char *to =
            tile + T::low_bytes + T::high_bytes + at / T::scale_cols * 128 + r % 8 * 16 + half * 8;
        uint32_t place = at % T::scale_cols / T::group;
        if (T::has_min)
            ((uint32_t *)to)[place] = pair;
        else
            ((uint16_t *)to)[place] = (uint16_t)pair;
    }
}

/* Rescales all tiles written so far. */
CUDA_KERNEL(256) rescale(CUDA_ARGS(struct cargs_rescale) a) {
    pdl_launch();
    pdl_wait();
    int shift = shift_for(__uint_as_float(a.state->largest), a.exponent);
    int by = shift - a.state->shift[a.chunk % 2];
    if (blockIdx.x == 0 && threadIdx.x == 0) a.state->shift[(a.chunk + 1) % 2] = shift;
    if (by == 0) return;
    uint64_t n = a.n_tiles * a.scale_words;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x) {
        uint32_t *at =
            (uint32_t *)((unsigned char *)a.tiles + i / a.scale_words * a.tile_bytes + a.scale_at) +
            i % a.scale_words;
        float2 v = unpack_f16(*at);
        *at = pack_f16(scalbnf(v.x, by), scalbnf(v.y, by));
    }
}

/* ---- bf16 to f16 */

__device__ uint32_t finite_bits(uint32_t v) {
    v &= 0x7fff;
    return v < 0x7f80 ? v : 0;
}

CUDA_KERNEL(256) largest_value(CUDA_ARGS(struct cargs_halves) a) {
    pdl_launch();
    pdl_wait();
    const uint4 *values = (const uint4 *)a.values;
    uint64_t n = a.n / 8;
    uint32_t most = 0;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x) {
        const uint4 v = values[i];
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int k = 0; k < 4; k++)
            most = max(most, max(finite_bits(words[k]), finite_bits(words[k] >> 16)));
    }
    /* bits of numbers of one sign are ordered as these are */
    most = __float_as_uint(warp_max(__uint_as_float(most << 16)));
    if (threadIdx.x % 32 == 0 && most > 0) atomicMax(&a.state->largest, most);
}

/* Converts in place. The inverse of the shift must be a normal number too. */
CUDA_KERNEL(256) halves(CUDA_ARGS(struct cargs_halves) a) {
    pdl_launch();
    pdl_wait();
    int shift = min(shift_for(__uint_as_float(a.state->largest), 0), 126);
    if (blockIdx.x == 0 && threadIdx.x == 0) a.state->shift[0] = shift;
    uint4 *values = (uint4 *)a.values;
    uint64_t n = a.n / 8;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x) {
        const uint4 v = values[i];
        uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float2 two = unpack_bf16(words[k]);
            words[k] = pack_f16(scalbnf(two.x, shift), scalbnf(two.y, shift));
        }
        values[i] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

} // namespace

const void *cuda_largest_value_kernel(void) {
    return (const void *)largest_value;
}

const void *cuda_halves_kernel(void) {
    return (const void *)halves;
}

const void *cuda_largest_kernel(int type) {
#define CASE(t)                                                                                    \
    if (type == t) return (const void *)largest<t>;
    CUDA_EACH_QTYPE(CASE)
#undef CASE
    return nullptr;
}

const void *cuda_repack_kernel(int type) {
#define CASE(t)                                                                                    \
    if (type == t) return (const void *)repack<t>;
    CUDA_EACH_QTYPE(CASE)
#undef CASE
    return nullptr;
}

const void *cuda_rescale_kernel(void) {
    return (const void *)rescale;
}

/* What the host needs to know about a type. */
void cuda_repack_format(int type, struct cuda_repack_format *f) {
#define CASE(t)                                                                                    \
    if (type == t) {                                                                               \
        typedef tile_of<block_of<t>::format> T;                                                    \
        *f = {block_of<t>::format, scale_exponent<block_of<t>::format>(0), T::bytes,               \
              T::low_bytes + T::high_bytes, T::scale_bytes / 4};                                   \
    }
    CUDA_EACH_QTYPE(CASE)
#undef CASE
}
