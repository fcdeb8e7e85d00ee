// heads.metal - op_linear_heads for few rows (product.h).
#include "shaders/metal/heads.h"

// x (n_rows, n_heads, n_in + n_tail), y (n_rows, n_heads, n_out + n_tail). Grid: (passes of ROWS
// rows, tiles of outputs, heads).
kernel void heads_vector(constant margs_heads &a [[buffer(0)]],
                         device const float *x [[buffer(1)]],
                         device const uchar *w [[buffer(2)]],
                         device float *y [[buffer(3)]],
                         uint3 group [[threadgroup_position_in_grid]],
                         uint simdgroup [[simdgroup_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]]) {
    const head_rows rows = rows_of_head(a, group.z, group.x * ROWS, x);
    const linear_tile t = head_outputs(a, group.z, group.y, w, y);
    if (ROWS == 1) linear_rows<2, 1, 4>(a.linear, t, rows, simdgroup, lane);
    if (ROWS == 2) linear_rows<2, 2, 4>(a.linear, t, rows, simdgroup, lane);
    if (ROWS == 4) linear_rows<2, 4, 1>(a.linear, t, rows, simdgroup, lane);
    if (ROWS == 8) linear_rows<2, 8, 1>(a.linear, t, rows, simdgroup, lane);
    if (group.y == 0)
        copy_tails(a, rows, t, ROWS, simdgroup * SIMD_WIDTH + lane,
                   MARGS_LINEAR_SIMDGROUPS * SIMD_WIDTH);
}
