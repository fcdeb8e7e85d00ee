// linear_matrix.metal - backend_linear for many rows: GEMM (product_matrix.h).
#include "shaders/metal/linear_tile.h"

// Grid: (tiles of ROWS rows of x, tiles of all weights). Tiles of rows are the fast dimension: they
// run concurrently and share the cache lines of the weights.
[[max_total_threads_per_threadgroup(MARGS_PRODUCT_THREADS)]] kernel void
linear_matrix(constant margs_linear &a [[buffer(0)]],
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
              uint at [[thread_index_in_threadgroup]],
              uint c [[simdgroup_index_in_threadgroup]]) {
    threadgroup float4 mem[PRODUCT_TILE_QUADS];
    const linear_tile t = linear_pick(a, group.y, w0, w1, w2, b0, b1, b2, y0, y1, y2);
    const linear_batch rows = {x, group.x * ROWS, a.n_rows, a.n_in};
    if (ROWS == 8) linear_tile_rows<1>(a, t, rows, mem, at, c);
    if (ROWS == 16) linear_tile_rows<2>(a, t, rows, mem, at, c);
    if (ROWS == 32) linear_tile_rows<4>(a, t, rows, mem, at, c);
}
