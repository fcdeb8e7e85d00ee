/* state_rows.cuh - what kernels over state blocks share (state_layout.h): the rows of a sequence
 * with its blocks, and what the next step reads of a convolution's inputs. A is cargs_delta_net or
 * cargs_short_conv, whose fields have the same names. */
#ifndef INFERD_CUDA_STATE_ROWS_CUH
#define INFERD_CUDA_STATE_ROWS_CUH

#include "shaders/args_attention.h"
#include "shaders/cuda/device.cuh"

namespace {

enum { TAPS = 4 /* most taps */ };

/* The rows of a sequence in this step, and its state blocks. */
struct rows {
    uint32_t first, n, pos;
    const float *source;
    float *live;
    bool there;
};

template <class A> __device__ struct rows rows_of(const A &a, uint32_t s) {
    struct rows r;
    r.first = (uint32_t)a.row_start[s];
    r.n = (uint32_t)a.row_start[s + 1] - r.first;
    const int32_t pos = r.n != 0 ? a.pos[r.first] : -1;
    r.there = pos >= 0; /* tables have nothing for padding */
    r.pos = r.there ? (uint32_t)pos : 0;
    const uint32_t source = r.there ? (uint32_t)a.tables[2 * s] : 0;
    const uint32_t live = r.there ? (uint32_t)a.tables[2 * s + 1] : 0;
    r.there = r.there && source < a.state.n_blocks && live < a.state.n_blocks;
    r.source = a.blocks + source * a.state.end;
    r.live = a.blocks + live * a.state.end;
    return r;
}

/* The sequence of a row: the last one that begins at or before it. */
template <class A> __device__ uint32_t seq_of(const A &a, uint32_t row) {
    uint32_t low = 0, high = a.state.n_seqs;
    while (high - low > 1) {
        const uint32_t mid = (low + high) / 2;
        if ((uint32_t)a.row_start[mid] <= row)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Channel c of input `rel` before the sequence's first row in this step (rel < 0). */
template <class A>
__device__ float window_at(const A &a, const struct rows &r, uint64_t channels, int32_t rel,
                           uint64_t c) {
    if (r.pos == 0) return 0.0f;
    const float *window = r.pos % a.chunk != 0 ? r.live + a.state.recent : r.source + a.state.tail;
    return window[(uint64_t)((int32_t)a.n_taps - 1 + rel) * channels + c];
}

/* Writes the last inputs of channel c before the boundary that the step reaches, and before the
 * sequence's end. input(a, r, rel, c): one of them, counted from the first row in this step. */
template <class A, class Input>
__device__ void keep_inputs(const A &a, const struct rows &r, uint64_t channels, uint64_t c,
                            Input input) {
    const uint32_t end = r.pos + r.n, boundary = end - end % a.chunk;
    const int32_t taps = (int32_t)a.n_taps - 1;
    float tail[TAPS - 1], recent[TAPS - 1];
#pragma unroll
    for (int32_t t = 0; t < TAPS - 1; t++) {
        if (t >= taps) break;
        tail[t] = boundary > r.pos ? input(a, r, (int32_t)(boundary - r.pos) - taps + t, c) : 0.0f;
        recent[t] = input(a, r, (int32_t)r.n - taps + t, c);
    }
#pragma unroll
    for (int32_t t = 0; t < TAPS - 1; t++) {
        if (t >= taps) break;
        if (boundary > r.pos) r.live[a.state.tail + (uint64_t)t * channels + c] = tail[t];
        r.live[a.state.recent + (uint64_t)t * channels + c] = recent[t];
    }
}

} // namespace

#endif
