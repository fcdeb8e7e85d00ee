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

} // namespace

#endif
