// moe_matrix.metal - the experts' products for many rows per expert (product_matrix.h).
#include "shaders/metal/linear_tile.h"

#include "shaders/metal/moe.h"

// As moe_vector, for tiles of up to 32 pairs.
[[max_total_threads_per_threadgroup(MARGS_PRODUCT_THREADS)]] kernel void
moe_matrix(constant margs_moe_products &a [[buffer(0)]],
           device const args_moe_tile *tiles [[buffer(1)]],
           device const uint *list [[buffer(2)]],
           device const float *x [[buffer(3)]],
           device const uchar *w0 [[buffer(4)]],
           device const uchar *w1 [[buffer(5)]],
           device const float *b0 [[buffer(6)]],
           device const float *b1 [[buffer(7)]],
           device float *y [[buffer(8)]],
           uint2 group [[threadgroup_position_in_grid]],
           uint at [[thread_index_in_threadgroup]],
           uint c [[simdgroup_index_in_threadgroup]]) {
    threadgroup float4 mem[PRODUCT_TILE_QUADS];
    const args_moe_tile tile = tiles[group.x];
    if (tile.count == 0) return;
    const moe_rows rows = moe_rows_of(a, tile, x, list);
    const linear_tile t = moe_outputs(a, tile.expert, group.y, w0, w1, b0, b1, y);
    if (tile.count <= 8)
        linear_tile_rows<1>(a.linear, t, rows, mem, at, c);
    else if (tile.count <= 16)
        linear_tile_rows<2>(a.linear, t, rows, mem, at, c);
    else
        linear_tile_rows<4>(a.linear, t, rows, mem, at, c);
}
