/* product.h - rows of x times rows of a stored weight: the order that all products keep, and the
 * family of kernels for few rows. Nothing here knows where its rows come from: a caller fills
 * pointers and offsets (of a batch, of an expert's rows).
 *
 * THE ORDER. Columns in groups of 8, group k / 8 of class (k / 8) % 8. Each class has a sum of its
 * own, from 0: sum[c] = fma(w[k], x[k], sum[c]) over its columns, ascending. The result is
 *   ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)), + 0
 * Missing columns of a last group, and missing groups, are zeros (which change no sum but -0 to 0,
 * and so does the last addition). product_matrix.h keeps the same order: the bits are the same.
 *
 * THE SHAPE. Eight lanes a weight row, lane c of them class c: they read 64 neighbouring columns,
 * four such rows side by side in a simdgroup of 32. No lane idles, no threadgroup memory, no
 * barrier, and the eight sums meet in three shuffles at the end. One row of x is bound by the
 * memory's bandwidth: each weight byte is asked for once, with eight bytes a lane. A step takes 256
 * columns (U = 4 groups a lane): a whole super-block, whose scales are decoded once, and (Q4: 144
 * bytes) whole cache lines that nobody asks for again, which matters where some 20 simdgroups share
 * a first-level cache of a few KB; and four loads a row are in flight ahead of their use. R = 2
 * weight rows a lane share each load of x, which costs 4 bytes a column where a 4-bit weight costs
 * 0.56: all four rows of a simdgroup read the same x, so that makes 0.5 bytes a weight from the
 * first-level cache. With N rows of x a weight is decoded once for all of them; arithmetic grows
 * to N + 6 operations a weight. R = 4 would halve the loads of x there, and take 60 more registers,
 * with which half as many simdgroups are resident. */
#ifndef INFERD_METAL_PRODUCT_H
#define INFERD_METAL_PRODUCT_H

#include "shaders/args_linear.h"
#include "shaders/metal/decode.h"

/* Eight columns of a row of x: of any alignment that a float has. edge: the row's last group may
 * have fewer; the missing are 0. */
static inline void load8(device const float *x, uint group, uint n_cols, bool edge,
                         thread float *v) {
    if (edge && 8 * group + 8 > n_cols) {
        for (uint j = 0; j < 8; j++)
            v[j] = 8 * group + j < n_cols ? x[8 * group + j] : 0.0f;
        return;
    }
    const float4 a = *(device const packed_float4 *)(x + 8 * group);
    const float4 b = *(device const packed_float4 *)(x + 8 * group + 4);
    for (uint j = 0; j < 4; j++)
        v[j] = a[j], v[4 + j] = b[j];
}

/* What a lane multiplies: R weight rows by N rows of x. The lanes of one row hold the same but c.
 * Pointers must be readable also where a result is not wanted: repeat a row that is. */
template <uint R, uint N> struct product_lane {
    device const uchar *w[R]; /* first bytes of weight rows */
    uint type[2];             /* of w[0], w[2] ..; of w[1], w[3] ..: function constants */
    device const float *x[N]; /* first values of rows */
    uint n_in;
    bool edge; /* n_in is no multiple of 8: a function constant */
    uint c;    /* the lane's class: its index in the simdgroup, % 8 */
};

template <uint R, uint N> struct product_sums { float v[R][N]; };

/* Weights of one group, w (R, 8), times each row of x. */
template <uint R, uint N>
static inline void product_add(thread const product_lane<R, N> &l, uint group,
                               thread const float (&w)[R][8], thread product_sums<R, N> &s) {
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
static inline void product_step(thread const product_lane<R, N> &l, uint group,
                                thread product_sums<R, N> &s) {
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

/* A super-block: four groups of the lane's class. */
template <uint R, uint N>
static inline void product_super(thread const product_lane<R, N> &l, uint block,
                                 thread product_sums<R, N> &s) {
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

/* v[r][n] = weight row r times row n, in every lane of the row's eight. All lanes of the simdgroup
 * call it. */
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

/* ---- what comes behind a product ---- */

/* act(gate) * up. 1 + tanh(z) is 2 / (1 + e^-2z), so that all three are gate / (1 + e^-z) * up.
 * -inf / inf would be a NaN: the lowest float gives the -0 that is meant. */
static inline float product_act(uint act, float gate, float up) {
    gate = gate < -FLT_MAX ? -FLT_MAX : gate;
    float z = gate;
    if (act == ARGS_ACT_GELU_TANH)
        z = 1.5957691216057308f * fma(0.044715f * gate * gate, gate, gate);
    if (act == ARGS_ACT_SWIGLU_OAI) {
        gate = gate > 7.0f ? 7.0f : gate; /* a NaN stays one */
        up = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
        z = 1.702f * gate;
        up += 1.0f;
    }
    return gate / (1.0f + precise::exp(-z)) * up;
}

#endif
