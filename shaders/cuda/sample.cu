/* sample.cu - the draw of tokens from the first ones of rows, as sample_draw of core/base/sample.h does
 * it: its lines for weights and sums, but a lane for each weight and for a token's place by id. */
#include "core/base/sample.h"
#include "shaders/cuda/cargs.h"
#include "shaders/cuda/device.cuh"
#include "shaders/cuda/kernels.h"

namespace {

/* A warp a row. */
CUDA_KERNEL(32) sample(CUDA_ARGS(struct cargs_sample) a) {
    __shared__ double weights[SAMPLE_MAX], by_id[SAMPLE_MAX];
    __shared__ int32_t ids[SAMPLE_MAX], sorted[SAMPLE_MAX];
    pdl_launch();
    pdl_wait();
    const uint32_t row = blockIdx.x, lane = threadIdx.x;
    const struct sample_params p = a.params[row];
    const float *values = a.values + (uint64_t)row * a.k, first = values[0];
    uint32_t n = sample_first(&p, a.k);
    for (uint32_t i = lane; i < n; i += 32) {
        ids[i] = a.ids[(uint64_t)row * a.k + i];
        weights[i] = sample_weight(values[i], first, p.temperature);
    }
    __syncwarp();
    if (!sample_is_finite(first) || !(p.temperature > 0)) {
        if (lane == 0) a.tokens[row] = sample_is_finite(first) ? ids[0] : -1;
        return;
    }
    const double u = sample_uniform(p.seed, p.index);
    n = sample_nucleus(weights, n, p.top_p);
    for (uint32_t i = lane; i < n; i += 32) {
        uint32_t at = 0;
        for (uint32_t j = 0; j < n; j++)
            at += ids[j] < ids[i];
        sorted[at] = ids[i];
        by_id[at] = weights[i] < (double)p.min_p ? 0.0 : weights[i];
    }
    __syncwarp();
    const uint32_t at = sample_walk(by_id, n, u);
    if (lane == 0) a.tokens[row] = sorted[at];
}

} // namespace

const void *cuda_sample_kernel(void) {
    return (const void *)sample;
}
