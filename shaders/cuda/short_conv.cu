/* short_conv.cu - the short convolution over state blocks (op_short_conv, state_layout.h).
 *
 * A thread computes one channel of one row. What the next step reads of the inputs must not be
 * written before all rows have read what is there: in a step with one row per sequence the row's
 * own thread does that, otherwise a second kernel.
 *
 * ORDER OF SUMS: taps ascending. The inputs are products that are rounded before they are summed or
 * kept, so a row's bits do not depend on how its sequence was cut into steps. */
#include "shaders/args_attention.h"
#include "shaders/cuda/device.cuh"
#include "shaders/cuda/kernels.h"

namespace {

enum { TAPS = 4 /* most taps */ };

typedef struct cargs_short_conv args;

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

/* The sequence of a row: the last one that begins at or before it. */
__device__ uint32_t seq_of(const args &a, uint32_t row) {
    uint32_t low = 0, high = a.n_seqs;
    while (high - low > 1) {
        const uint32_t mid = (low + high) / 2;
        if ((uint32_t)a.row_start[mid] <= row)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Channel c of input `rel`, counted from the sequence's first row in this step. */
__device__ float input_at(const args &a, const struct rows &r, int32_t rel, uint32_t c) {
    if (rel >= 0) {
        const float *row = a.bcx + (uint64_t)(r.first + (uint32_t)rel) * 3 * a.channels + c;
        return row[0] * row[2 * (uint64_t)a.channels];
    }
    if (r.pos == 0) return 0.0f;
    const float *window = r.pos % a.chunk != 0 ? r.live + a.recent : r.source + a.tail;
    return window[(uint64_t)((int32_t)a.n_taps - 1 + rel) * a.channels + c];
}

__device__ void keep_inputs(const args &a, const struct rows &r, uint32_t c) {
    const uint32_t end = r.pos + r.n, boundary = end - end % a.chunk;
    const int32_t taps = (int32_t)a.n_taps - 1;
    float tail[TAPS - 1], recent[TAPS - 1];
#pragma unroll
    for (int32_t t = 0; t < TAPS - 1; t++) {
        if (t >= taps) break;
        tail[t] =
            boundary > r.pos ? input_at(a, r, (int32_t)(boundary - r.pos) - taps + t, c) : 0.0f;
        recent[t] = input_at(a, r, (int32_t)r.n - taps + t, c);
    }
#pragma unroll
    for (int32_t t = 0; t < TAPS - 1; t++) {
        if (t >= taps) break;
        if (boundary > r.pos) r.live[a.tail + (uint64_t)t * a.channels + c] = tail[t];
        r.live[a.recent + (uint64_t)t * a.channels + c] = recent[t];
    }
}

/* Grid: channels, rows. */
CUDA_KERNEL(CUDA_SHORT_CONV_THREADS) short_conv(CUDA_ARGS(struct cargs_short_conv) a) {
    pdl_launch();
    pdl_wait();
    const uint32_t c = blockIdx.x * CUDA_SHORT_CONV_THREADS + threadIdx.x, row = blockIdx.y;
    if (c >= a.channels) return;
    const struct rows r = rows_of(a, a.n_rows == a.n_seqs ? row : seq_of(a, row));
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
    if (a.n_rows == a.n_seqs) keep_inputs(a, r, c);
}

/* Grid: channels, sequences. */
CUDA_KERNEL(CUDA_SHORT_CONV_THREADS) short_conv_keep(CUDA_ARGS(struct cargs_short_conv) a) {
    pdl_launch();
    pdl_wait();
    const uint32_t c = blockIdx.x * CUDA_SHORT_CONV_THREADS + threadIdx.x;
    const struct rows r = rows_of(a, blockIdx.y);
    if (r.there && c < a.channels) keep_inputs(a, r, c);
}

} // namespace

const void *cuda_short_conv_kernel(int keep) {
    return keep ? (const void *)short_conv_keep : (const void *)short_conv;
}
