/* short_conv.cu - the short convolution over state blocks (op_short_conv, state_layout.h).
 *
 * A thread computes one channel of one row. What the next step reads of the inputs must not be
 * written before all rows have read what is there: in a step with one row per sequence the row's
 * own thread does that, otherwise a second kernel.
 *
 * ORDER OF SUMS: taps ascending. The inputs are products that are rounded before they are summed or
 * kept, so a row's bits do not depend on how its sequence was cut into steps. */
#include "shaders/cuda/kernels.h"
#include "shaders/cuda/state_rows.cuh"

namespace {

typedef struct cargs_short_conv args;

/* Channel c of input `rel`, counted from the sequence's first row in this step. */
__device__ float input_at(const args &a, const struct rows &r, int32_t rel, uint64_t c) {
    if (rel >= 0) {
        const float *row = a.bcx + (uint64_t)(r.first + (uint32_t)rel) * 3 * a.channels + c;
        return row[0] * row[2 * (uint64_t)a.channels];
    }
    return window_at(a, r, a.channels, rel, c);
}

/* Grid: channels, rows. */
CUDA_KERNEL(CUDA_SHORT_CONV_THREADS) short_conv(CUDA_ARGS(struct cargs_short_conv) a) {
    pdl_launch();
    pdl_wait();
    const uint32_t c = blockIdx.x * CUDA_SHORT_CONV_THREADS + threadIdx.x, row = blockIdx.y;
    if (c >= a.channels) return;
    const struct rows r = rows_of(a, a.n_rows == a.state.n_seqs ? row : seq_of(a, row));
    float *out = a.out + (uint64_t)row * a.channels + c;
    if (!r.there) { /* padding: its output is finite */
        *out = 0.0f;
        return;
    }
    float y = 0.0f;
    for (uint32_t t = 0; t < a.n_taps; t++)
        y = fmaf(a.conv[(uint64_t)c * a.n_taps + t],
                 input_at(a, r, (int32_t)(row - r.first + t + 1) - (int32_t)a.n_taps, c), y);
    *out = a.bcx[((uint64_t)row * 3 + 1) * a.channels + c] * y;
    if (a.n_rows == a.state.n_seqs) keep_inputs(a, r, a.channels, c, input_at);
}

/* Grid: channels, sequences. */
CUDA_KERNEL(CUDA_SHORT_CONV_THREADS) short_conv_keep(CUDA_ARGS(struct cargs_short_conv) a) {
    pdl_launch();
    pdl_wait();
    const uint32_t c = blockIdx.x * CUDA_SHORT_CONV_THREADS + threadIdx.x;
    const struct rows r = rows_of(a, blockIdx.y);
    if (r.there && c < a.channels) keep_inputs(a, r, a.channels, c, input_at);
}

} // namespace

const void *cuda_short_conv_kernel(int keep) {
    return keep ? (const void *)short_conv_keep : (const void *)short_conv;
}
