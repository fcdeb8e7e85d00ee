/* moe.h - what the kernels of a mixture of experts share. A pair is a row and one of its experts:
 * pair row * n_used + k is the row's k-th expert, in ascending order of experts. */
#ifndef INFERD_METAL_MOE_H
#define INFERD_METAL_MOE_H

#include "shaders/metal/linear.h"

/* As linear_batch. The gate and up products read the row of a pair, which n_share pairs share; the
 * down product reads one row per pair. */
struct moe_rows {
    device const float *x;
    device const uint *list; /* of the tile */
    uint n_rows, n_in, n_share;
};

static inline uint rows_n(thread const moe_rows &r) {
    return r.n_rows;
}

static inline device const float *rows_x(thread const moe_rows &r, uint i) {
    return r.x + ulong(r.list[min(i, r.n_rows - 1)] / r.n_share) * r.n_in;
}

static inline ulong rows_y(thread const moe_rows &r, uint i, uint n_out) {
    return ulong(r.list[i]) * n_out;
}

static inline moe_rows moe_rows_of(constant margs_moe_products &a,
                                   args_moe_tile tile,
                                   device const float *x,
                                   device const uint *list) {
    return {x, list + tile.first, tile.count, a.linear.n_in, a.n_share};
}

/* Tile `at` of an expert's outputs. w1 and b1: the second weight of a pair. */
static inline linear_tile moe_outputs(constant margs_moe_products &a,
                                      uint expert,
                                      uint at,
                                      device const uchar *w0,
                                      device const uchar *w1,
                                      device const float *b0,
                                      device const float *b1,
                                      device float *y) {
    const ulong first = ulong(expert) * a.linear.n_out[0];
    return {{w0 + first * a.linear.row_bytes[0], w1 + first * a.linear.row_bytes[1]},
            {b0 + first, b1 + first},
            y,
            a.linear.n_out[0],
            at,
            (BIAS & 1) != 0};
}

#endif
