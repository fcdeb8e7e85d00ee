/* linear.h - what both kernel families of backend_linear share: the function constants of a
 * pipeline, the weight of a tile, the epilogue. */
#ifndef INFERD_METAL_LINEAR_H
#define INFERD_METAL_LINEAR_H

#include "shaders/metal/product.h"

/* Function constants: enum margs_linear_const (shaders/args_linear.h). */
constant uint TYPE [[function_constant(MARGS_LINEAR_TYPE)]];
constant uint TYPE_UP [[function_constant(MARGS_LINEAR_TYPE_UP)]];
constant uint N_WEIGHTS [[function_constant(MARGS_LINEAR_N_WEIGHTS)]];
constant uint ACT [[function_constant(MARGS_LINEAR_ACT)]];
constant uint BIAS [[function_constant(MARGS_LINEAR_BIAS)]];
constant uint EDGE [[function_constant(MARGS_LINEAR_EDGE)]];
constant uint SCALED [[function_constant(MARGS_LINEAR_SCALED)]];
constant uint ROWS [[function_constant(MARGS_LINEAR_ROWS)]];
constant uint WIDTH [[function_constant(MARGS_LINEAR_WIDTH)]];
constant uint HALVES [[function_constant(MARGS_LINEAR_HALVES)]];

/* One threadgroup's part of an op. */
struct linear_tile {
    device const uchar *w[2]; /* the weight; of a pair: also the second */
    device const float *bias[2];
    device float *y;
    uint n_out, at; /* tile index within the weight */
    bool has_bias;  /* a pair uses BIAS instead */
};

static inline linear_tile linear_pick(constant margs_linear &a,
                                      uint tile,
                                      device const uchar *w0,
                                      device const uchar *w1,
                                      device const uchar *w2,
                                      device const float *b0,
                                      device const float *b1,
                                      device const float *b2,
                                      device float *y0,
                                      device float *y1,
                                      device float *y2) {
    linear_tile t = {{w0, w1}, {b0, b1}, y0, a.n_out[0], tile, (BIAS & 1) != 0};
    if (N_WEIGHTS > 1 && t.at >= a.n_tiles[0]) {
        t = {{w1, w1}, {b1, b1}, y1, a.n_out[1], tile - a.n_tiles[0], (BIAS & 2) != 0};
        if (N_WEIGHTS > 2 && t.at >= a.n_tiles[1])
            t = {{w2, w2}, {b2, b2}, y2, a.n_out[2], t.at - a.n_tiles[1], (BIAS & 4) != 0};
    }
    return t;
}

/* The epilogue: from the sums of a product, or of a pair, to the value that is stored. */
static inline float linear_epilogue(
    constant margs_linear &a, thread const linear_tile &t, uint out, float v, float up) {
    if (ACT != ARGS_ACT_NONE) {
        if (BIAS & 1) v += t.bias[0][out];
        if (BIAS & 2) up += t.bias[1][out];
        if (a.cap != 0.0f) { /* NaN stays NaN */
            v = v > a.y_over_cap ? a.y_over_cap : v;
            up = up > a.cap ? a.cap : up < -a.cap ? -a.cap : up;
        }
        return product_act(ACT, v, up);
    }
    if (BIAS && t.has_bias) v += t.bias[0][out];
    if (SCALED & 2) return a.cap * precise::tanh(v * a.y_over_cap);
    return SCALED & 1 ? v * a.y_scale : v;
}

/* The rows of a pass or tile. linear_batch: the rows of a batch from `first` on; moe.h has the same
 * functions for the rows of an expert, heads.h for those of a head. rows_x returns a readable row
 * beyond rows_n too; rows_y where a row's n_out outputs begin. */
struct linear_batch {
    device const float *x; /* (n_rows, n_in) */
    uint first, n_rows, n_in;
};

static inline uint rows_n(thread const linear_batch &b) {
    return b.n_rows - b.first;
}

static inline device const float *rows_x(thread const linear_batch &b, uint i) {
    return b.x + ulong(min(b.first + i, b.n_rows - 1)) * b.n_in;
}

static inline ulong rows_y(thread const linear_batch &b, uint i, uint n_out) {
    return ulong(b.first + i) * n_out;
}

/* The first N rows, if they exist (GEMV family). All eight lanes of a weight row have all of its
 * products: lane c applies the epilogue to results c, c + 8, ... and stores them. */
template <uint R, uint N, uint U, typename Rows>
static inline void linear_rows(constant margs_linear &a,
                               thread const linear_tile &t,
                               thread const Rows &rows,
                               uint simdgroup,
                               uint lane) {
    const bool pair = ACT != ARGS_ACT_NONE;
    const uint n_outs = pair ? R / 2 : R; /* of this lane */
    const uint out =
        ((t.at * MARGS_LINEAR_SIMDGROUPS + simdgroup) * n_outs) * MARGS_PRODUCT_SLOTS + lane / 8;
    product_lane<R, N> l;
    l.type[0] = TYPE;
    l.type[1] = pair ? TYPE_UP : TYPE;
    l.n_in = a.n_in;
    l.edge = EDGE != 0;
    l.c = lane % 8;
#pragma unroll
    for (uint r = 0; r < R; r++) {
        const uint row = min(out + (pair ? r / 2 : r) * MARGS_PRODUCT_SLOTS, t.n_out - 1);
        l.w[r] = pair && r % 2 ? t.w[1] + ulong(row) * a.row_bytes[1]
                               : t.w[0] + ulong(row) * a.row_bytes[0];
    }
#pragma unroll
    for (uint n = 0; n < N; n++)
        l.x[n] = rows_x(rows, n);
    const product_sums<R, N> s = product_rows<R, N, U>(l);

    float v[(R * N + 7) / 8], up[(R * N + 7) / 8]; /* of this lane */
#pragma unroll
    for (uint i = 0; i < R * N; i++) {
        const uint r = pair ? min(2 * (i / N), R - 1) : i / N;
        if (i % 8 == 0) v[i / 8] = 0, up[i / 8] = 0;
        v[i / 8] = i % 8 == l.c ? s.v[r][i % N] : v[i / 8];
        if (pair) up[i / 8] = i % 8 == l.c ? s.v[min(r + 1, R - 1)][i % N] : up[i / 8];
    }
#pragma unroll
    for (uint k = 0; k < (R * N + 7) / 8; k++) {
        const uint i = 8 * k + l.c, o = out + i / N * MARGS_PRODUCT_SLOTS;
        if (i < n_outs * N && i % N < rows_n(rows) && o < t.n_out)
            t.y[rows_y(rows, i % N, t.n_out) + o] = linear_epilogue(a, t, o, v[k], up[k]);
    }
}

#endif
