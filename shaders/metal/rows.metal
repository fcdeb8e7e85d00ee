// rows.metal - ops that move rows: embedding lookup, gather.
#include "shaders/metal/common.h"

constant uint EMBED_TYPE [[function_constant(0)]]; // enum qtype of the table

// out (n_rows, n_cols) f32 = scale * table[ids[row]]. F32, F16, BF16 and Q8_0 so far.
kernel void embed(constant kargs_embed &a [[buffer(0)]],
                  device const uchar *table [[buffer(1)]],
                  device const int *ids [[buffer(2)]],
                  device float *out [[buffer(3)]],
                  uint2 at [[thread_position_in_grid]]) {
    const uint col = at.x, row = at.y;
    if (col >= a.n_cols || row >= a.n_rows) return;
    device const uchar *src = table + ulong(uint(ids[row])) * a.row_bytes;
    float v = 0.0f;
    if (EMBED_TYPE == QTYPE_F32) v = ((device const float *)src)[col];
    if (EMBED_TYPE == QTYPE_F16) v = f16_value(((device const ushort *)src)[col]);
    if (EMBED_TYPE == QTYPE_BF16) v = bf16_value(((device const ushort *)src)[col]);
    if (EMBED_TYPE == QTYPE_Q8_0) {
        device const q8_0_block &b = ((device const q8_0_block *)src)[col / Q_ELEMS];
        v = f16_value(b.d) * float(b.q[col % Q_ELEMS]);
    }
    out[ulong(row) * a.n_cols + col] = v * a.scale;
}

// out[i] = x[rows[i]] (+ residual[rows[i]]); residual is x where there is none.
kernel void gather(constant kargs_gather &a [[buffer(0)]],
                   device const float *x [[buffer(1)]],
                   device const float *residual [[buffer(2)]],
                   device const int *rows [[buffer(3)]],
                   device float *out [[buffer(4)]],
                   uint2 at [[thread_position_in_grid]]) {
    const uint col = at.x, row = at.y;
    if (col >= a.n_cols || row >= a.n_rows) return;
    const ulong from = ulong(uint(rows[row])) * a.n_cols + col;
    out[ulong(row) * a.n_cols + col] = a.has_residual ? x[from] + residual[from] : x[from];
}
