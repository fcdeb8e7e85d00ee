// linear.metal - backend_linear for few rows (product.h).
#include "shaders/metal/linear.h"

// N rows of x from row first on, those that there are. Every lane of a weight row's eight has all
// of its products: lane c finishes and writes the results c, c + 8, ...
template <uint R, uint N, uint U>
static inline void linear_rows(constant kargs_linear &a, thread const linear_tile &t,
                               device const float *x, uint first, uint simdgroup, uint lane) {
    const bool pair = ACT != PRODUCT_ACT_NONE;
    const uint n_outs = pair ? R / 2 : R; // of this lane's
    const uint out = ((t.at * KARGS_LINEAR_SIMDGROUPS + simdgroup) * n_outs) * KARGS_PRODUCT_SLOTS +
                     lane / 8;
    product_lane<R, N> l;
    l.type[0] = TYPE;
    l.type[1] = pair ? TYPE_UP : TYPE;
    l.n_in = a.n_in;
    l.edge = EDGE != 0;
    l.c = lane % 8;
#pragma unroll
    for (uint r = 0; r < R; r++) {
        const uint row = min(out + (pair ? r / 2 : r) * KARGS_PRODUCT_SLOTS, t.n_out - 1);
        l.w[r] = pair && r % 2 ? t.w[1] + ulong(row) * a.row_bytes[1]
                               : t.w[0] + ulong(row) * a.row_bytes[0];
    }
#pragma unroll
    for (uint n = 0; n < N; n++)
        l.x[n] = x + ulong(min(first + n, a.n_rows - 1)) * a.n_in;
    const product_sums<R, N> s = product_rows<R, N, U>(l);

    float v[(R * N + 7) / 8], up[(R * N + 7) / 8]; // this lane's
#pragma unroll
    for (uint i = 0; i < R * N; i++) {
        const uint r = pair ? min(2 * (i / N), R - 1) : i / N;
        if (i % 8 == 0) v[i / 8] = 0, up[i / 8] = 0;
        v[i / 8] = i % 8 == l.c ? s.v[r][i % N] : v[i / 8];
        if (pair) up[i / 8] = i % 8 == l.c ? s.v[min(r + 1, R - 1)][i % N] : up[i / 8];
    }
#pragma unroll
    for (uint k = 0; k < (R * N + 7) / 8; k++) {
        const uint i = 8 * k + l.c, row = first + i % N, o = out + i / N * KARGS_PRODUCT_SLOTS;
        if (i < n_outs * N && row < a.n_rows && o < t.n_out)
            t.y[ulong(row) * t.n_out + o] = linear_finish(a, t, o, v[k], up[k]);
    }
}

// Grid: passes of ROWS rows of x, tiles of all weights.
kernel void linear_vector(constant kargs_linear &a [[buffer(0)]],
                          device const float *x [[buffer(1)]],
                          device const uchar *w0 [[buffer(2)]],
                          device const uchar *w1 [[buffer(3)]],
                          device const uchar *w2 [[buffer(4)]],
                          device const float *b0 [[buffer(5)]],
                          device const float *b1 [[buffer(6)]],
                          device const float *b2 [[buffer(7)]],
                          device float *y0 [[buffer(8)]],
                          device float *y1 [[buffer(9)]],
                          device float *y2 [[buffer(10)]],
                          uint2 group [[threadgroup_position_in_grid]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]]) {
    const linear_tile t = linear_pick(a, group.y, w0, w1, w2, b0, b1, b2, y0, y1, y2);
    const uint first = group.x * ROWS;
    if (ROWS == 1 && WIDTH == 1) linear_rows<1, 1, 4>(a, t, x, first, simdgroup, lane);
    if (ROWS == 1 && WIDTH == 2) linear_rows<2, 1, 4>(a, t, x, first, simdgroup, lane);
    if (ROWS == 2) linear_rows<2, 2, 1>(a, t, x, first, simdgroup, lane);
    if (ROWS == 3) linear_rows<4, 3, 1>(a, t, x, first, simdgroup, lane);
    if (ROWS == 4) linear_rows<4, 4, 1>(a, t, x, first, simdgroup, lane);
    if (ROWS == 6) linear_rows<4, 6, 1>(a, t, x, first, simdgroup, lane);
    if (ROWS == 8) linear_rows<4, 8, 1>(a, t, x, first, simdgroup, lane);
}
