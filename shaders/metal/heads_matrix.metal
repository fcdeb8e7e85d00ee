// heads_matrix.metal - op_linear_heads for many rows (product_matrix.h).
#include "shaders/metal/linear_tile.h"

#include "shaders/metal/heads.h"

// As heads_vector.
[[max_total_threads_per_threadgroup(MARGS_PRODUCT_THREADS)]] kernel void
heads_matrix(constant margs_heads &a [[buffer(0)]],
             device const float *x [[buffer(1)]],
             device const uchar *w [[buffer(2)]],
             device float *y [[buffer(3)]],
             uint3 group [[threadgroup_position_in_grid]],
             uint at [[thread_index_in_threadgroup]],
             uint c [[simdgroup_index_in_threadgroup]]) {
    threadgroup float4 mem[PRODUCT_TILE_QUADS];
    const head_rows rows = rows_of_head(a, group.z, group.x * ROWS, x);
    const linear_tile t = head_outputs(a, group.z, group.y, w, y);
    if (ROWS == 8) linear_tile_rows<1>(a.linear, t, rows, mem, at, c);
    if (ROWS == 16) linear_tile_rows<2>(a.linear, t, rows, mem, at, c);
    if (ROWS == 32) linear_tile_rows<4>(a.linear, t, rows, mem, at, c);
    if (group.y == 0) copy_tails(a, rows, t, ROWS, at, MARGS_PRODUCT_THREADS);
}
