/* epilogue.cu - the epilogue of sums that another kernel (cuBLASLt, K splits) left in memory. */
#include "shaders/cuda/epilogue.cuh"
#include "shaders/cuda/kernels.h"

namespace {

__device__ __forceinline__ float epilogue_one(const cargs_apply_epilogue &a, float in_scale,
                                              float sum, uint64_t i, uint32_t col) {
    return a.epilogue.act ? epilogue_pair(a.epilogue, in_scale, sum, a.pair_sums[i], col)
                          : epilogue_sum(a.epilogue, in_scale, sum, col);
}

__device__ __forceinline__ float sum_of(const cargs_apply_epilogue &a, uint64_t i) {
    float v = a.sums[i];
    for (uint32_t split = 1; split < a.n_splits; split++)
        v += a.sums[split * ((uint64_t)a.n_rows * a.n_out) + i];
    return v;
}

/* Block (x, y): 1,024 columns from 4 * 256 * x on of row y. */
CUDA_KERNEL(256) apply_epilogue(CUDA_ARGS(struct cargs_apply_epilogue) a) {
    pdl_launch();
    pdl_wait();
    uint32_t col = (blockIdx.x * 256 + threadIdx.x) * 4;
    uint64_t at = (uint64_t)blockIdx.y * a.n_out + col;
    float in_scale = a.in_scale ? a.in_scale[blockIdx.y] : 1.0f;
    if (a.n_out % 4 != 0) {
        for (uint32_t i = 0; i < 4 && col + i < a.n_out; i++)
            a.y[at + i] = epilogue_one(a, in_scale, sum_of(a, at + i), at + i, col + i);
        return;
    }
    if (col >= a.n_out) return;
    float4 v = *reinterpret_cast<const float4 *>(a.sums + at), y;
    for (uint32_t split = 1; split < a.n_splits; split++) {
        float4 w =
            *reinterpret_cast<const float4 *>(a.sums + split * ((uint64_t)a.n_rows * a.n_out) + at);
        v.x += w.x, v.y += w.y, v.z += w.z, v.w += w.w;
    }
    if (a.epilogue.act) {
        float4 up = *reinterpret_cast<const float4 *>(a.pair_sums + at);
        y.x = epilogue_pair(a.epilogue, in_scale, v.x, up.x, col);
        y.y = epilogue_pair(a.epilogue, in_scale, v.y, up.y, col + 1);
        y.z = epilogue_pair(a.epilogue, in_scale, v.z, up.z, col + 2);
        y.w = epilogue_pair(a.epilogue, in_scale, v.w, up.w, col + 3);
    } else {
        y.x = epilogue_sum(a.epilogue, in_scale, v.x, col);
        y.y = epilogue_sum(a.epilogue, in_scale, v.y, col + 1);
        y.z = epilogue_sum(a.epilogue, in_scale, v.z, col + 2);
        y.w = epilogue_sum(a.epilogue, in_scale, v.w, col + 3);
    }
    *reinterpret_cast<float4 *>(a.y + at) = y;
}

} // namespace

const void *cuda_epilogue_kernel(void) {
    return (const void *)apply_epilogue;
}
