// rows.metal - ops that move rows: embedding lookup, gather, copies of KV blocks; and attention's
// gate.
#include "shaders/metal/common.h"
#include "shaders/metal/decode.h"

// Function constants: enum margs_embed_const (shaders/args.h).
constant uint EMBED_TYPE [[function_constant(MARGS_EMBED_TYPE)]];

// out (n_rows, n_cols) f32 = scale * table[ids[row]], for a table of any type. One thread per eight
// columns.
kernel void embed(constant margs_embed &a [[buffer(0)]],
                  device const uchar *table [[buffer(1)]],
                  device const int *ids [[buffer(2)]],
                  device float *out [[buffer(3)]],
                  uint2 at [[thread_position_in_grid]]) {
    const uint col = 8 * at.x, row = at.y;
    if (col >= a.n_cols || row >= a.n_rows) return;
    float w[8];
    decode8_edge(EMBED_TYPE, table + ulong(uint(ids[row])) * a.row_bytes, at.x, a.n_cols, w);
    device float *to = out + ulong(row) * a.n_cols + col;
#pragma unroll
    for (uint j = 0; j < 8; j++)
        if (col + j < a.n_cols) to[j] = w[j] * a.scale;
}

// out[i] = x[rows[i]] (+ residual[rows[i]]); without a residual the host binds x in its place.
kernel void gather(constant margs_gather &a [[buffer(0)]],
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

static inline float unary_of(constant margs_gate &a, float x) {
    if (a.unary == ARGS_UNARY_GELU_TANH) {
        const float g = x < -100.0f ? -100.0f : x;
        const float slope = fma(g * g, 0.07135481627260025f, 1.5957691216057308f);
        return g / (1.0f + precise::exp(-g * slope));
    }
    if (a.unary == ARGS_UNARY_GELU) return gelu(x);
    return x * fmax(x, 0.0f);
}

// x (n_rows, n_cols) f32 *= 1 / (1 + exp(-gates)); x = unary(x) where there are none.
kernel void gate(constant margs_gate &a [[buffer(0)]],
                 device float *x [[buffer(1)]],
                 device const float *gates [[buffer(2)]],
                 uint2 at [[thread_position_in_grid]]) {
    if (at.x >= a.n_cols || at.y >= a.n_rows) return;
    const ulong i = ulong(at.y) * a.n_cols + at.x;
    if (a.gated != 0)
        x[i] /= 1.0f + precise::exp(-gates[i]);
    else
        x[i] = unary_of(a, x[i]);
}

// Copies block pairs[2i] of both pools to block pairs[2i + 1], one unit per thread. A block written
// by one pair occurs in no other pair.
kernel void kv_copy(constant margs_kv_copy &a [[buffer(0)]],
                    device uint4 *k [[buffer(1)]],
                    device uint4 *v [[buffer(2)]],
                    uint3 at [[thread_position_in_grid]]) {
    if (at.x >= a.n_units) return;
    device uint4 *pool = at.z ? v : k;
    const ulong from = ulong(a.pairs[2 * at.y]) * a.n_units + at.x;
    const ulong to = ulong(a.pairs[2 * at.y + 1]) * a.n_units + at.x;
    pool[to] = pool[from];
}
