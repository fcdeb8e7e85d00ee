/* product.h - rows of x times rows of a stored weight: the order of sums that all products keep,
 * and the kernel family for few rows (GEMV, skinny GEMM). This file does not know where its rows
 * come from: the caller fills in pointers and offsets (rows of a batch, or of an expert).
 *
 * THE ORDER. Columns form groups of 8; group g has class g % 8. Each class has its own sum,
 * starting at 0: sum[c] = fma(w[k], x[k], sum[c]) over its columns in ascending order. The result
 * is
 *   ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)), + 0
 * Missing columns of the last group, and missing groups, count as zeros (which change no sum except
 * -0 to 0; the last addition does that anyway). product_matrix.h keeps the same order, so its bits
 * are the same.
 *
 * THE SHAPE. Eight lanes per weight row, lane c for class c: they read 64 adjacent columns; a
 * simdgroup of 32 has four such rows. No lane idles, and there is no threadgroup memory and no
 * barrier; three shuffles add the eight sums at the end. One row of x is bound by memory bandwidth:
 * each weight byte is loaded once, eight bytes per lane. A step takes 256 columns (U = 4 groups per
 * lane): one super-block, whose scales are decoded once, and (Q4: 144 bytes) whole cache lines that
 * are not loaded again, which matters because some 20 simdgroups share a first-level cache of a few
 * KB. It keeps four loads per row in flight ahead of their use. R = 2 weight rows per lane share
 * each load of x, which costs 4 bytes per column where a 4-bit weight costs 0.56; all four rows of
 * a simdgroup read the same x, so x costs 0.5 bytes per weight from the first-level cache. With N
 * rows of x a weight is decoded once for all of them; arithmetic grows to N + 6 operations per
 * weight. R = 4 would halve the loads of x but need 60 more registers, which would halve the
 * occupancy. */
#ifndef INFERD_METAL_PRODUCT_H
#define INFERD_METAL_PRODUCT_H

#include "shaders/args_linear.h"
#include "shaders/metal/decode.h"

/* Eight columns of a row of x, of any alignment that a float may have. edge: the row's last group
 * may be incomplete; missing columns are 0. */
static inline void
load8(device const float *x, uint group, uint n_cols, bool edge, thread float *v) {
    if (edge && 8 * group + 8 > n_cols) {
#pragma unroll
        for (uint j = 0; j < 8; j++)
            v[j] = 8 * group + j < n_cols ? x[8 * group + j] : 0.0f;
        return;
    }
    const float4 a = *(device const packed_float4 *)(x + 8 * group);
    const float4 b = *(device const packed_float4 *)(x + 8 * group + 4);
#pragma unroll
    for (uint j = 0; j < 4; j++)
        v[j] = a[j], v[4 + j] = b[j];
}

/* What a lane multiplies: R weight rows by N rows of x. The lanes of one weight row differ only in
 * c. Every pointer must be readable, even where its result is not wanted: repeat a valid row
 * there. */
template <uint R, uint N> struct product_lane {
    device const uchar *w[R]; /* first bytes of weight rows */
    uint type[2];             /* of w[0], w[2], ...; of w[1], w[3], ...: function constants */
    device const float *x[N]; /* first values of rows */
    uint n_in;
    bool edge; /* n_in is not a multiple of 8: a function constant */
    uint c;    /* the lane's class: its index in the simdgroup % 8 */
};

template <uint R, uint N> struct product_sums { float v[R][N]; };

/* Weights of one group, w (R, 8), times each row of x. */
template <uint R, uint N>
static inline void product_add(thread const product_lane<R, N> &l,
                               uint group,
                               thread const float (&w)[R][8],
                               thread product_sums<R, N> &s) {
    float x[8];
#pragma unroll
    for (uint n = 0; n < N; n++) {
        load8(l.x[n], group, l.n_in, l.edge, x);
#pragma unroll
        for (uint r = 0; r < R; r++)
#pragma unroll
            for (uint j = 0; j < 8; j++)
                s.v[r][n] = fma(w[r][j], x[j], s.v[r][n]);
    }
}

template <uint R, uint N>
static inline void
product_step(thread const product_lane<R, N> &l, uint group, thread product_sums<R, N> &s) {
    float w[R][8];
#pragma unroll
    for (uint r = 0; r < R; r++) {
        if (l.edge)
            decode8_edge(l.type[r % 2], l.w[r], group, l.n_in, w[r]);
        else
            decode8(l.type[r % 2], l.w[r], group, w[r]);
    }
    product_add(l, group, w, s);
}

/* One super-block: four groups of the lane's class. */
template <uint R, uint N>
static inline void
product_super(thread const product_lane<R, N> &l, uint block, thread product_sums<R, N> &s) {
    super_raw raw[R];
    device const uchar *b[R];
    float w[R][8];
#pragma unroll
    for (uint r = 0; r < R; r++) {
        b[r] = l.w[r] + super_bytes(l.type[r % 2]) * block;
        super_head(l.type[r % 2], b[r], l.c, raw[r]);
    }
#pragma unroll
    for (uint u = 0; u < 4; u++) {
#pragma unroll
        for (uint r = 0; r < R; r++) {
            if (u % 2 == 0) super_half(l.type[r % 2], b[r], l.c, u / 2, raw[r]);
            super_own(l.type[r % 2], b[r], l.c, u, raw[r]);
            super_values(l.type[r % 2], raw[r], l.c, u, w[r]);
        }
        product_add(l, 32 * block + 8 * u + l.c, w, s);
    }
}

/* v[r][n] = weight row r times row n of x, in each of the row's eight lanes. All lanes of the
 * simdgroup call it. */
template <uint R, uint N, uint U>
static inline product_sums<R, N> product_rows(thread const product_lane<R, N> &l) {
    product_sums<R, N> s;
#pragma unroll
    for (uint i = 0; i < R * N; i++)
        s.v[i / N][i % N] = 0;
    const uint n_groups = (l.n_in + 7) / 8;
    uint first = 0;
    if (is_super(l.type[0]) && is_super(l.type[1]))
        for (; first < n_groups; first += 32)
            product_super(l, first / 32, s);
    for (; U > 1 && first + 8 * U <= n_groups; first += 8 * U) {
#pragma unroll
        for (uint u = 0; u < U; u++)
            product_step(l, first + 8 * u + l.c, s);
    }
    for (; first + l.c < n_groups; first += 8)
        product_step(l, first + l.c, s);
#pragma unroll
    for (uint i = 0; i < R * N; i++) {
        float v = s.v[i / N][i % N];
        v += simd_shuffle_xor(v, 1);
        v += simd_shuffle_xor(v, 2);
        v += simd_shuffle_xor(v, 4);
        s.v[i / N][i % N] = v + 0.0f;
    }
    return s;
}

/* ---- activations ---- */

/* act(gate) * up. 1 + tanh(z) = 2 / (1 + e^-2z), so all but GELU are gate / (1 + e^-z) * up. gate
 * is at least -FLT_MAX, because -inf / inf would be NaN instead of -0. */
static inline float product_act(uint act, float gate, float up) {
    if (act == ARGS_ACT_GELU) return gelu(gate) * up;
    gate = gate < -FLT_MAX ? -FLT_MAX : gate;
    float z = gate;
    if (act == ARGS_ACT_GELU_TANH)
        z = 1.5957691216057308f * fma(0.044715f * gate * gate, gate, gate);
    if (act == ARGS_ACT_SWIGLU_OAI) {
        gate = gate > 7.0f ? 7.0f : gate; /* NaN stays NaN */
        up = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
        z = 1.702f * gate;
        up += 1.0f;
    }
    return gate / (1.0f + precise::exp(-z)) * up;
}

#endif
