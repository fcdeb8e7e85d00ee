/* linear_tile.h - the body of the GEMM kernels (product_matrix.h), for the rows of a batch or of an
 * expert. */
#ifndef INFERD_METAL_LINEAR_TILE_H
#define INFERD_METAL_LINEAR_TILE_H

#include "shaders/metal/product_matrix.h"

#include "shaders/metal/linear.h"

/* The gate and up products of a pair read the same rows of x, one after the other; only their
 * combined result is written. */
template <uint RB, typename Rows>
static inline void linear_tile_rows(constant margs_linear &a,
                                    thread const linear_tile &t,
                                    thread const Rows &rows,
                                    threadgroup float4 *mem,
                                    uint at,
                                    uint c) {
    const uint w_row = min(t.at * MARGS_PRODUCT_TILE + at / 8, t.n_out - 1);
    product_source s = {t.w[0] + ulong(w_row) * a.row_bytes[0],
                        rows_x(rows, at / 8),
                        TYPE,
                        a.n_in,
                        EDGE != 0,
                        HALVES && TYPE == QTYPE_F16};
    const product_values<RB> v = product_tile<RB>(s, mem, at, c);
    product_values<RB> up = v;
    if (ACT != ARGS_ACT_NONE) {
        s.w = t.w[1] + ulong(w_row) * a.row_bytes[1];
        s.type = TYPE_UP;
        s.halves = HALVES && TYPE_UP == QTYPE_F16;
        up = product_tile<RB>(s, mem, at, c);
    }
    const uint out = t.at * MARGS_PRODUCT_TILE + at % 32;
#pragma unroll
    for (uint r = 0; r < RB; r++) {
        const uint row = 8 * r + at / 32;
        if (row < rows_n(rows) && out < t.n_out)
            t.y[rows_y(rows, row, t.n_out) + out] = linear_epilogue(a, t, out, v.v[r], up.v[r]);
    }
}

#endif
