/* comm.cu - after an exchange of a group: sums in the order of the ranks, with the same bits for
 * any number of rows; columns of the ranks side by side. */
#include "shaders/args.h"
#include "shaders/cuda/device.cuh"
#include "shaders/cuda/kernels.h"

namespace {

/* Rank 0's value, plus rank 1's, plus ... */
__device__ float sum_of(const struct cargs_sum_parts &a, uint64_t i) {
    float sum = a.parts[i];
    for (uint32_t p = 1; p < a.n_parts; p++)
        sum += a.parts[p * a.n + i];
    return sum;
}

/* If every part is a multiple of four values, each thread adds four at once: the kernel is
 * memory-bound. */
CUDA_KERNEL(256) sum_parts(CUDA_ARGS(struct cargs_sum_parts) a) {
    pdl_launch();
    pdl_wait();
    uint64_t first = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * CUDA_SUM_VALUES;
    if (a.n % CUDA_SUM_VALUES) {
        for (uint64_t i = first; i < a.n && i < first + CUDA_SUM_VALUES; i++)
            a.out[i] = sum_of(a, i);
        return;
    }
    if (first >= a.n) return;
    float4 sum = *reinterpret_cast<const float4 *>(a.parts + first);
    for (uint32_t p = 1; p < a.n_parts; p++) {
        float4 v = *reinterpret_cast<const float4 *>(a.parts + p * a.n + first);
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    *reinterpret_cast<float4 *>(a.out + first) = sum;
}

/* Blocks (columns, row). */
CUDA_KERNEL(256) join_parts(CUDA_ARGS(struct cargs_join_parts) a) {
    pdl_launch();
    pdl_wait();
    uint32_t col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= a.n_cols) return;
    uint32_t rank = col / a.share, first = rank * a.share;
    uint32_t width = a.n_cols - first < a.share ? a.n_cols - first : a.share;
    const float *part = a.parts + rank * a.stride + (uint64_t)blockIdx.y * width;
    a.out[(uint64_t)blockIdx.y * a.n_cols + col] = part[col - first];
}

} // namespace

const void *cuda_sum_parts_kernel(void) {
    return (const void *)sum_parts;
}

const void *cuda_join_parts_kernel(void) {
    return (const void *)join_parts;
}
