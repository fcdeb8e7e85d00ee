/* delta_net.cuh - what the kernels of linear attention share: sizes, heads and decays. */
#ifndef INFERD_CUDA_DELTA_NET_CUH
#define INFERD_CUDA_DELTA_NET_CUH

#include "shaders/cuda/state_rows.cuh"

namespace {

enum {
    DIM = 128,   /* most columns of a head of V; of a delta net of any head */
    CHUNK = 32,  /* most rows of a chunk */
    QUARTERS = 4 /* of the dimensions of K: each has a partial sum of S^T k */
};

typedef struct cargs_delta_net args;

__device__ uint64_t channels_of(const args &a) {
    return 2 * (uint64_t)a.n_k_heads * a.k_dim + (uint64_t)a.n_v_heads * a.v_dim;
}

__device__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

__device__ float softplus(float x) {
    return x > 20.0f ? x : log1pf(expf(x));
}

__device__ uint32_t k_head_of(const args &a, uint32_t v_head) {
    return a.tiled ? v_head % a.n_k_heads : v_head / (a.n_v_heads / a.n_k_heads);
}

/* What Q or K of a head is multiplied by, from the sums of its squares by each of DIM / 32 warps.
 */
__device__ __forceinline__ float head_scale(const args &a, const float *sums, bool is_q) {
    float sum = 0.0f;
    for (uint32_t w = 0; w < DIM / 32; w++)
        sum += sums[w];
    return (is_q ? a.q_scale : 1.0f) / sqrtf(sum + 1e-6f);
}

} // namespace

#endif
