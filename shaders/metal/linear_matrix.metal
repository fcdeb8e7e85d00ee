// linear_matrix.metal - backend_linear for many rows (product_matrix.h).
#include "shaders/metal/product_matrix.h"

#include "shaders/metal/linear.h"

// A pair's gate and up go over the same rows of x one after the other; only their product is
// written.
template <uint RB>
static inline void linear_tile_rows(constant kargs_linear &a, thread const linear_tile &t,
                                    device const float *x, uint first, threadgroup float4 *mem,
                                    uint at, uint c) {
    const uint w_row = min(t.at * KARGS_PRODUCT_TILE + at / 8, t.n_out - 1);
    const uint x_row = min(first + at / 8, a.n_rows - 1);
    product_source s = {t.w[0] + ulong(w_row) * a.row_bytes[0], x + ulong(x_row) * a.n_in, TYPE,
                        a.n_in, EDGE != 0};
    const product_values<RB> v = product_tile<RB>(s, mem, at, c);
    product_values<RB> up = v;
    if (ACT != PRODUCT_ACT_NONE) {
        s.w = t.w[1] + ulong(w_row) * a.row_bytes[1];
        s.type = TYPE_UP;
        up = product_tile<RB>(s, mem, at, c);
    }
    const uint out = t.at * KARGS_PRODUCT_TILE + at % 32;
#pragma unroll
    for (uint r = 0; r < RB; r++) {
        const uint row = first + 8 * r + at / 32;
        if (row < a.n_rows && out < t.n_out)
            t.y[ulong(row) * t.n_out + out] = linear_finish(a, t, out, v.v[r], up.v[r]);
    }
}

// Grid: tiles of ROWS rows of x, which run side by side and share the weights' cache lines; tiles
// of all weights.
[[max_total_threads_per_threadgroup(KARGS_PRODUCT_THREADS)]]
kernel void linear_matrix(constant kargs_linear &a [[buffer(0)]],
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
    const uint first = group.x * ROWS;
    if (ROWS == 8) linear_tile_rows<1>(a, t, x, first, mem, at, c);
    if (ROWS == 16) linear_tile_rows<2>(a, t, x, first, mem, at, c);
    if (ROWS == 32) linear_tile_rows<4>(a, t, x, first, mem, at, c);
}
