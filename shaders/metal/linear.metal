// linear.metal - backend_linear for few rows: GEMV and skinny GEMM (product.h).
#include "shaders/metal/linear.h"

// Grid: (passes of ROWS rows of x, tiles of all weights).
kernel void linear_vector(constant margs_linear &a [[buffer(0)]],
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
    const linear_batch rows = {x, group.x * ROWS, a.n_rows, a.n_in};
    if (ROWS == 1 && WIDTH == 1) linear_rows<1, 1, 4>(a, t, rows, simdgroup, lane);
    if (ROWS == 1 && WIDTH == 2) linear_rows<2, 1, 4>(a, t, rows, simdgroup, lane);
    if (ROWS == 2) linear_rows<2, 2, 4>(a, t, rows, simdgroup, lane);
    if (ROWS == 3) linear_rows<2, 3, 1>(a, t, rows, simdgroup, lane);
    if (ROWS == 4) linear_rows<2, 4, 1>(a, t, rows, simdgroup, lane);
    if (ROWS == 6) linear_rows<2, 6, 1>(a, t, rows, simdgroup, lane);
    if (ROWS == 8) linear_rows<2, 8, 1>(a, t, rows, simdgroup, lane);
}
