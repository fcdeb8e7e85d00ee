/* rows.cu - embed, gather, kv_copy: rows from one place to another. */
#include "shaders/cuda/cargs.h"
#include "shaders/cuda/device.cuh"
#include "shaders/cuda/kernels.h"

namespace {

enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_BF16 = 30 }; /* enum qtype */

__device__ float element(const void *row, uint32_t type, uint32_t i) {
    if (type == TYPE_F32) return static_cast<const float *>(row)[i];
    uint32_t half = static_cast<const uint16_t *>(row)[i];
    return type == TYPE_F16 ? unpack_f16(half).x : unpack_bf16(half).x;
}

/* A block a row; ids below 0 are padding. */
CUDA_KERNEL(256) embed(CUDA_ARGS(struct cargs_embed) a) {
    pdl_launch();
    pdl_wait();
    uint32_t row = blockIdx.x;
    int32_t id = a.ids[row];
    float *out = a.out + (uint64_t)row * a.n_cols;
    const uint8_t *from = static_cast<const uint8_t *>(a.table) + (uint64_t)(id < 0 ? 0 : id) * a.row_bytes;
    for (uint32_t i = threadIdx.x; i < a.n_cols; i += blockDim.x)
        out[i] = a.scale * element(from, a.type, i);
}

CUDA_KERNEL(256) gather(CUDA_ARGS(struct cargs_gather) a) {
    pdl_launch();
    pdl_wait();
    uint64_t from = (uint64_t)a.rows[blockIdx.x] * a.n_cols, to = (uint64_t)blockIdx.x * a.n_cols;
    for (uint32_t i = threadIdx.x; i < a.n_cols; i += blockDim.x)
        a.out[to + i] = a.residual ? a.x[from + i] + a.residual[from + i] : a.x[from + i];
}

/* A block (pair, K or V). */
CUDA_KERNEL(256) kv_copy(CUDA_ARGS(struct cargs_kv_copy) a) {
    pdl_launch();
    pdl_wait();
    uint8_t *pool = static_cast<uint8_t *>(blockIdx.y ? a.v : a.k);
    const uint8_t *from = pool + (uint64_t)a.pairs[2 * blockIdx.x] * a.block_bytes;
    uint8_t *to = pool + (uint64_t)a.pairs[2 * blockIdx.x + 1] * a.block_bytes;
    for (uint64_t i = threadIdx.x * 2; i < a.block_bytes; i += blockDim.x * 2)
        *reinterpret_cast<uint16_t *>(to + i) = *reinterpret_cast<const uint16_t *>(from + i);
}

}

const void *cuda_embed_kernel(void) {
    return (const void *)embed;
}

const void *cuda_gather_kernel(void) {
    return (const void *)gather;
}

const void *cuda_kv_copy_kernel(void) {
    return (const void *)kv_copy;
}
