/* state_rows.h - what the kernels over state blocks share (core/backend/state_layout.h): the rows
 * of a sequence with its blocks, the convolution over its inputs, and what the next step reads of
 * them.
 *
 * If each sequence has one row (SINGLE), a channel's inputs are read by one thread of the
 * convolution, which keeps them as well. Otherwise they must not be written before all rows have
 * read what is there: another kernel keeps them. */
#ifndef INFERD_METAL_STATE_ROWS_H
#define INFERD_METAL_STATE_ROWS_H

#include "shaders/args_attention.h"
#include "shaders/metal/common.h"

// Function constants: enum margs_state_const (shaders/args_attention.h).
constant uint CHUNK [[function_constant(MARGS_STATE_CHUNK)]];
constant uint TAPS [[function_constant(MARGS_STATE_TAPS)]];
constant uint SINGLE [[function_constant(MARGS_STATE_SINGLE)]];

#define MAX_TAPS MARGS_STATE_MAX_TAPS

// The rows of a sequence in this step and where its state blocks begin, in floats.
struct sequence {
    uint first, n, pos; // of the first row
    ulong source, live;
    bool valid; // the blocks exist
};

static inline sequence sequence_at(constant args_state &a,
                                   uint index,
                                   device const int *pos,
                                   device const int *row_start,
                                   device const int *tables) {
    sequence s;
    const uint source = uint(tables[2 * index]), live = uint(tables[2 * index + 1]);
    s.first = uint(row_start[index]);
    s.n = uint(row_start[index + 1]) - s.first;
    s.pos = uint(pos[s.first]);
    s.source = source * a.end;
    s.live = live * a.end;
    s.valid = source < a.n_blocks && live < a.n_blocks;
    return s;
}

// The sequence of a row: the last one that begins at or before it.
static inline uint sequence_of(device const int *row_start, uint n_seqs, uint row) {
    if (SINGLE) return row;
    uint from = 0, end = n_seqs;
    while (from + 1 < end) {
        const uint middle = (from + end) / 2;
        if (uint(row_start[middle]) <= row)
            from = middle;
        else
            end = middle;
    }
    return from;
}

// Input `index` of channel c, counted from the sequence's first row in this step; below 0 the state
// blocks hold it. rows.at(row, c): the input of a row of the step.
template <class Rows>
static inline float input_at(constant args_state &a,
                             thread const sequence &s,
                             thread const Rows &rows,
                             device const float *blocks,
                             int index,
                             uint c) {
    if (index >= 0) return rows.at(s.first + uint(index), c);
    if (s.pos == 0) return 0.0f;
    const ulong window = s.pos % CHUNK != 0 ? s.live + a.recent : s.source + a.tail;
    return blocks[window + ulong(uint(int(TAPS) - 1 + index)) * rows.channels + c];
}

// y + the sum of channel c's taps (TAPS) times its inputs of a row, which in (TAPS) receives.
template <class Rows>
static inline float convolve(constant args_state &a,
                             thread const sequence &s,
                             thread const Rows &rows,
                             device const float *blocks,
                             device const float *taps,
                             uint row,
                             uint c,
                             float y,
                             thread float *in) {
#pragma unroll
    for (uint t = 0; t < MAX_TAPS; t++) {
        if (t >= TAPS) continue;
        in[t] = input_at(a, s, rows, blocks, int(row - s.first + t + 1) - int(TAPS), c);
        y = fma(taps[t], in[t], y);
    }
    return y;
}

// What the next step reads of channel c, after the only row of a sequence. in: its inputs.
static inline void keep_single(constant args_state &a,
                               thread const sequence &s,
                               device float *blocks,
                               thread const float *in,
                               uint channels,
                               uint c) {
#pragma unroll
    for (uint t = 0; t + 1 < MAX_TAPS; t++) {
        if (t + 1 >= TAPS) continue;
        const ulong at = s.live + ulong(t) * channels + c;
        blocks[at + a.recent] = in[t + 1];
        if ((s.pos + 1) % CHUNK == 0) blocks[at + a.tail] = in[t + 1];
    }
}

// The same after several rows.
template <class Rows>
static inline void keep_inputs(constant args_state &a,
                               thread const sequence &s,
                               thread const Rows &rows,
                               device float *blocks,
                               uint c) {
    const uint end = s.pos + s.n, boundary = end - end % CHUNK;
    const bool crosses = boundary > s.pos;
    // All are read before any is written: both windows may be read and written.
    float tail[MAX_TAPS - 1], recent[MAX_TAPS - 1];
#pragma unroll
    for (uint t = 0; t + 1 < MAX_TAPS; t++) {
        const int back = int(t) + 1 - int(TAPS);
        if (t + 1 >= TAPS) continue;
        recent[t] = input_at(a, s, rows, blocks, int(s.n) + back, c);
        if (crosses) tail[t] = input_at(a, s, rows, blocks, int(boundary - s.pos) + back, c);
    }
#pragma unroll
    for (uint t = 0; t + 1 < MAX_TAPS; t++) {
        const ulong at = s.live + ulong(t) * rows.channels + c;
        if (t + 1 >= TAPS) continue;
        blocks[at + a.recent] = recent[t];
        if (crosses) blocks[at + a.tail] = tail[t];
    }
}

#endif
