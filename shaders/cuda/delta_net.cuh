/* delta_net.cuh - what the kernels of linear attention share: the rows of a sequence, its state
 * blocks and its decays. */
#ifndef INFERD_CUDA_DELTA_NET_CUH
#define INFERD_CUDA_DELTA_NET_CUH

#include "shaders/args_attention.h"
#include "shaders/cuda/device.cuh"

namespace {

enum {
    DIM = 128,   /* most columns of a head of V; of a delta net of any head */
    CHUNK = 32,  /* most rows of a chunk */
    QUARTERS = 4 /* of the dimensions of K: each has a partial sum of S^T k */
};

typedef struct cargs_delta_net args;

/* The rows of a sequence in this step, and its state blocks. */
struct rows {
    uint32_t first, n, pos;
    const float *source;
    float *live;
    bool there;
};

__device__ struct rows rows_of(const args &a, uint32_t s) {
    struct rows r;
    r.first = (uint32_t)a.row_start[s];
    r.n = (uint32_t)a.row_start[s + 1] - r.first;
    const int32_t pos = r.n != 0 ? a.pos[r.first] : -1;
    r.there = pos >= 0; /* tables have nothing for padding */
    r.pos = r.there ? (uint32_t)pos : 0;
    const uint32_t source = r.there ? (uint32_t)a.tables[2 * s] : 0;
    const uint32_t live = r.there ? (uint32_t)a.tables[2 * s + 1] : 0;
    r.there = r.there && source < a.n_blocks && live < a.n_blocks;
    r.source = a.blocks + source * a.end;
    r.live = a.blocks + live * a.end;
    return r;
}

__device__ uint64_t channels_of(const args &a) {
    return 2 * (uint64_t)a.n_k_heads * a.k_dim + (uint64_t)a.n_v_heads * a.v_dim;
}

__device__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

/* softplus(alpha + dt_bias) of a row of the step: times a, the logarithm of the V head's decay. */
__device__ float step_size(const args &a, uint32_t row, uint32_t v_head) {
    const float x = a.alpha[(uint64_t)row * a.n_v_heads + v_head] + a.dt_bias[v_head];
    return x > 20.0f ? x : log1pf(expf(x));
}

__device__ uint32_t k_head_of(const args &a, uint32_t v_head) {
    return a.tiled ? v_head % a.n_k_heads : v_head / (a.n_v_heads / a.n_k_heads);
}

} // namespace

#endif
