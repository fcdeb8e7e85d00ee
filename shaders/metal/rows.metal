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

// expm1(x) - x for x <= 0: near 0 by its series, where the difference would lose digits.
static inline float expm1_rest(float x) {
    if (x < -0.5f) return precise::exp(x) - 1.0f - x;
    float s = 1.0f / 3628800;
    s = fma(s, x, 1.0f / 362880), s = fma(s, x, 1.0f / 40320), s = fma(s, x, 1.0f / 5040);
    s = fma(s, x, 1.0f / 720), s = fma(s, x, 1.0f / 120), s = fma(s, x, 1.0f / 24);
    s = fma(s, x, 1.0f / 6), s = fma(s, x, 0.5f);
    return s * x * x;
}

static inline float unary_of(constant margs_gate &a, float x) {
    if (a.unary == ARGS_UNARY_GELU_TANH) {
        const float g = x < -100.0f ? -100.0f : x;
        const float slope = fma(g * g, 0.07135481627260025f, 1.5957691216057308f);
        return g / (1.0f + precise::exp(-g * slope));
    }
    if (a.unary == ARGS_UNARY_GELU) return gelu(x);
    if (a.unary == ARGS_UNARY_XIELU) {
        if (x > 0.0f) return fma(a.xielu.positive * x, x, a.xielu.beta * x);
        const float y = x > a.xielu.eps ? a.xielu.eps : x; // keeps NaN
        return fma(a.xielu.negative, expm1_rest(y) + (y - x), a.xielu.beta * x);
    }
    return x * fmax(x, 0.0f);
}

// x (n_rows, n_cols) f32 *= 1 / (1 + exp(-gates)), or log(1 + exp(gates)); x = unary(x) where there
// are none.
kernel void gate(constant margs_gate &a [[buffer(0)]],
                 device float *x [[buffer(1)]],
                 device const float *gates [[buffer(2)]],
                 uint2 at [[thread_position_in_grid]]) {
    if (at.x >= a.n_cols || at.y >= a.n_rows) return;
    const ulong i = ulong(at.y) * a.n_cols + at.x;
    if (a.gated == 0) {
        x[i] = unary_of(a, x[i]);
        return;
    }
    const float g = gates[a.span > 1 ? ulong(at.y) * (a.n_cols / a.span) + at.x / a.span : i];
    if (a.softplus == 0)
        x[i] /= 1.0f + precise::exp(-g);
    else
        x[i] *= max(g, 0.0f) + precise::log(1.0f + precise::exp(-abs(g)));
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

// What halves below 2^-14 become, times 2^24: out (2, 1024) f32, of the integers 0 to 1023 as bits
// of halves, and of their differences with 512.
kernel void probe_halves(device float *out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    const half h = as_type<half>(ushort(i));
    out[i] = float(h) * SUBNORMAL;
    out[1024 + i] = float(h - as_type<half>(ushort(512))) * SUBNORMAL;
}
