/* rows.cu - embed, gather, kv_copy: copies of rows and blocks; copy_tokens; upload; gated,
 * gate, and add_normed, sums of rows. */
#include "shaders/args.h"
#include "shaders/args_attention.h"
#include "shaders/cuda/block.cuh"
#include "shaders/cuda/device.cuh"
#include "shaders/cuda/epilogue.cuh"
#include "shaders/cuda/kernels.h"

namespace {

/* out = scale * the row of the table, in the bits of qtype_decode, multiplied. */
__device__ void embed_row(const void *from, const struct cargs_embed &a, float *out) {
    switch (a.type) {
#define CASE(type)                                                                                 \
    case type:                                                                                     \
        for (uint32_t i = threadIdx.x; i < a.n_cols; i += blockDim.x)                              \
            out[i] = a.scale * row_value<type>(from, i);                                           \
        break;
        CUDA_EACH_QTYPE(CASE)
#undef CASE
    default:
        for (uint32_t i = threadIdx.x; i < a.n_cols; i += blockDim.x)
            out[i] = a.scale * (a.type == QTYPE_F32   ? ((const float *)from)[i]
                                : a.type == QTYPE_F16 ? unpack_f16(((const uint16_t *)from)[i]).x
                                                      : unpack_bf16(((const uint16_t *)from)[i]).x);
    }
}

/* One block per row; ids below 0 are padding. */
CUDA_KERNEL(256) embed(CUDA_ARGS(struct cargs_embed) a) {
    pdl_launch();
    pdl_wait();
    uint32_t row = blockIdx.x;
    int32_t id = a.ids[row];
    const uint8_t *from = (const uint8_t *)a.table + (uint64_t)(id < 0 ? 0 : id) * a.row_bytes;
    embed_row(from, a, a.out + (uint64_t)row * a.n_cols);
}

CUDA_KERNEL(256) gather(CUDA_ARGS(struct cargs_gather) a) {
    pdl_launch();
    pdl_wait();
    uint64_t from = (uint64_t)a.rows[blockIdx.x] * a.n_cols, to = (uint64_t)blockIdx.x * a.n_cols;
    for (uint32_t i = threadIdx.x; i < a.n_cols; i += blockDim.x)
        a.out[to + i] = a.residual ? a.x[from + i] + a.residual[from + i] : a.x[from + i];
}

/* One thread a column. */
CUDA_KERNEL(256) gated(CUDA_ARGS(struct cargs_gated) a) {
    pdl_launch();
    pdl_wait();
    uint32_t col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (col >= a.n_cols) return;
    float *x = a.x + (uint64_t)row * a.n_cols + col;
    *x = epilogue_act(a.act, *x, a.up[(uint64_t)row * a.stride + a.first + col]);
}

/* One block a group of columns: grid (groups, rows). A thread's squares are summed in ascending
 * order, then the threads of a warp, then the warps. */
CUDA_KERNEL(CUDA_ADD_NORMED_THREADS) add_normed(CUDA_ARGS(struct cargs_add_normed) a) {
    __shared__ float sums[CUDA_ADD_NORMED_THREADS / 32];
    const uint64_t at = (uint64_t)blockIdx.y * a.n_cols + (uint64_t)blockIdx.x * a.n;
    const float *r = a.r ? a.r + at : nullptr;
    float inverse = 1.0f;
    pdl_launch();
    pdl_wait();
    if (a.norm) {
        float sum = 0.0f;
        for (uint32_t i = threadIdx.x; i < a.n; i += CUDA_ADD_NORMED_THREADS)
            sum = fmaf(r[i], r[i], sum);
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = 0.0f;
        for (uint32_t i = 0; i < CUDA_ADD_NORMED_THREADS / 32; i++)
            sum = __fadd_rn(sum, sums[i]);
        inverse = 1.0f / sqrtf(sum / (float)a.n + a.eps);
    }
    const float by = a.factor ? __fmul_rn(a.scale, *a.factor) : a.scale;
    for (uint32_t i = threadIdx.x; i < a.n; i += CUDA_ADD_NORMED_THREADS) {
        float v = a.x[at + i];
        if (a.norm)
            v = __fadd_rn(v, __fmul_rn(__fmul_rn(r[i], inverse), a.norm[i]));
        else if (r)
            v = __fadd_rn(v, r[i]);
        a.x[at + i] = __fmul_rn(v, by);
    }
}

/* expm1(x) - x for x <= 0: near 0 by its series, where the difference would lose digits. */
__device__ __forceinline__ float expm1_rest(float x) {
    if (x < -0.5f) return expf(x) - 1.0f - x;
    float s = 1.0f / 3628800;
    s = fmaf(s, x, 1.0f / 362880), s = fmaf(s, x, 1.0f / 40320), s = fmaf(s, x, 1.0f / 5040);
    s = fmaf(s, x, 1.0f / 720), s = fmaf(s, x, 1.0f / 120), s = fmaf(s, x, 1.0f / 24);
    s = fmaf(s, x, 1.0f / 6), s = fmaf(s, x, 0.5f);
    return s * x * x;
}

__device__ __forceinline__ float unary_of(const cargs_gate &a, float x) {
    if (a.unary == ARGS_UNARY_GELU_TANH) {
        const float g = x < -100.0f ? -100.0f : x;
        return g / (1.0f + expf(-g * (1.5957691216057308f + 0.07135481627260025f * g * g)));
    }
    if (a.unary == ARGS_UNARY_GELU) return x < -100.0f ? 0.0f : 0.5f * x * erfcf(-0.70710678f * x);
    if (a.unary == ARGS_UNARY_XIELU) {
        const struct args_xielu &p = a.xielu;
        if (x > 0.0f) return fmaf(p.positive * x, x, p.beta * x);
        const float y = x > p.eps ? p.eps : x; /* keeps NaN */
        return fmaf(p.negative, expm1_rest(y) + (y - x), p.beta * x);
    }
    return x * fmaxf(x, 0.0f);
}

CUDA_KERNEL(256) gate(CUDA_ARGS(struct cargs_gate) a) {
    pdl_launch();
    pdl_wait();
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.n) return;
    if (a.gate == nullptr) {
        a.x[i] = unary_of(a, a.x[i]);
        return;
    }
    const float g = a.gate[a.span > 1 ? i / a.span : i];
    a.x[i] =
        a.x[i] * (a.softplus ? fmaxf(g, 0.0f) + log1pf(expf(-fabsf(g))) : 1.0f / (1.0f + expf(-g)));
}

CUDA_KERNEL(256) upload(CUDA_ARGS(struct cargs_upload) a) {
    pdl_launch();
    const cargs_upload_piece &p = a.pieces[blockIdx.y];
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    pdl_wait();
    for (; i < p.n; i += gridDim.x * blockDim.x)
        p.to[i] = p.from[i];
}

CUDA_KERNEL(256) copy_tokens(CUDA_ARGS(struct cargs_copy_tokens) a) {
    pdl_launch();
    pdl_wait();
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.n) return;
    int32_t token = a.from[(uint64_t)a.copies[i].from * a.stride];
    a.ids[a.copies[i].to] = token < 0 ? 0 : token;
}

template <class V> __device__ void copy_slice(const uint8_t *from, uint8_t *to, uint64_t bytes) {
    const uint64_t first = (uint64_t)blockIdx.z * blockDim.x + threadIdx.x;
    for (uint64_t i = first * sizeof(V); i < bytes;
         i += (uint64_t)gridDim.z * blockDim.x * sizeof(V))
        *reinterpret_cast<V *>(to + i) = *reinterpret_cast<const V *>(from + i);
}

/* Grid: pair, K or V, slices of a block. */
CUDA_KERNEL(256) kv_copy(CUDA_ARGS(struct cargs_kv_copy) a) {
    pdl_launch();
    pdl_wait();
    uint8_t *pool = static_cast<uint8_t *>(blockIdx.y ? a.v : a.k);
    const uint8_t *from = pool + (uint64_t)a.pairs[2 * blockIdx.x] * a.block_bytes;
    uint8_t *to = pool + (uint64_t)a.pairs[2 * blockIdx.x + 1] * a.block_bytes;
    if (a.block_bytes % sizeof(uint4) == 0)
        copy_slice<uint4>(from, to, a.block_bytes);
    else
        copy_slice<uint16_t>(from, to, a.block_bytes);
}

} // namespace

const void *cuda_embed_kernel(void) {
    return (const void *)embed;
}

const void *cuda_gather_kernel(void) {
    return (const void *)gather;
}

const void *cuda_gated_kernel(void) {
    return (const void *)gated;
}

const void *cuda_add_normed_kernel(void) {
    return (const void *)add_normed;
}

const void *cuda_gate_kernel(void) {
    return (const void *)gate;
}

const void *cuda_copy_tokens_kernel(void) {
    return (const void *)copy_tokens;
}

const void *cuda_upload_kernel(void) {
    return (const void *)upload;
}

const void *cuda_kv_copy_kernel(void) {
    return (const void *)kv_copy;
}
