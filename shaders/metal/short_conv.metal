// short_conv.metal - the short convolution over state blocks (op_short_conv, core/backend/ops.h;
// blocks: state_layout.h). A thread computes a channel of a row.
//
// ORDER OF SUMS: taps ascending. The inputs are products that are rounded before they are summed or
// kept, so a row's bits do not depend on how its sequence was cut into steps.
//
// BYTES that a step of one row per sequence moves at least, in units of 4: the taps, channels *
// TAPS, once, and of each sequence channels * (4 + 2 * (TAPS - 1)): bcx, out, recent inputs read
// and written; at a boundary the tail as well, channels * (TAPS - 1).
#include "shaders/metal/state_rows.h"

// The inputs B * x of a row.
struct product_rows {
    device const float *bcx; // (n_rows, 3, channels)
    uint channels;
    float at(uint row, uint c) const {
        device const float *b = bcx + ulong(row) * 3 * channels + c;
        return b[0] * b[2 * channels];
    }
};

// bcx (n_rows, 3, channels), taps (channels, TAPS) f32; pos (n_rows), row_start (n_seqs + 1),
// tables (n_seqs, 2) i32; blocks (n_blocks, end) f32, written only if SINGLE; out (n_rows,
// channels) f32. Grid: channels, rows.
kernel void short_conv(constant margs_short_conv &a [[buffer(0)]],
                       device const float *bcx [[buffer(1)]],
                       device const float *taps [[buffer(2)]],
                       device const int *pos [[buffer(3)]],
                       device const int *row_start [[buffer(4)]],
                       device const int *tables [[buffer(5)]],
                       device float *blocks [[buffer(6)]],
                       device float *out [[buffer(7)]],
                       uint2 at [[thread_position_in_grid]]) {
    const uint c = at.x, row = at.y, index = sequence_of(row_start, a.state.n_seqs, row);
    const sequence s = sequence_at(a.state, index, pos, row_start, tables);
    if (c >= a.channels || !s.valid) return;
    const product_rows rows = {bcx, a.channels};
    float in[MAX_TAPS];
    const float y = convolve(a.state, s, rows, blocks, taps + ulong(c) * TAPS, row, c, 0.0f, in);
    out[ulong(row) * a.channels + c] = bcx[(ulong(row) * 3 + 1) * a.channels + c] * y;
    if (SINGLE) keep_single(a.state, s, blocks, in, a.channels, c);
}

// After a step with more than one row of a sequence. The buffers are short_conv's. Grid: channels,
// sequences.
kernel void short_conv_keep(constant margs_short_conv &a [[buffer(0)]],
                            device const float *bcx [[buffer(1)]],
                            device const int *pos [[buffer(2)]],
                            device const int *row_start [[buffer(3)]],
                            device const int *tables [[buffer(4)]],
                            device float *blocks [[buffer(5)]],
                            uint2 at [[thread_position_in_grid]]) {
    const sequence s = sequence_at(a.state, at.y, pos, row_start, tables);
    if (at.x >= a.channels || !s.valid) return;
    const product_rows rows = {bcx, a.channels};
    keep_inputs(a.state, s, rows, blocks, at.x);
}
