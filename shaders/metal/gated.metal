// gated.metal - activations gated by columns of another buffer, and sums with a normed buffer
// (op_gated, op_add_normed).
#include "shaders/metal/product.h"
#include "shaders/metal/sums.h"

// x (n_rows, n_cols) f32 = act(x, up), up being columns first.. of rows of `stride`. One thread per
// column.
kernel void gated(constant margs_gated &a [[buffer(0)]],
                  device float *x [[buffer(1)]],
                  device const float *up [[buffer(2)]],
                  uint2 at [[thread_position_in_grid]]) {
    if (at.x >= a.n_cols || at.y >= a.n_rows) return;
    const ulong i = ulong(at.y) * a.n_cols + at.x;
    x[i] = product_act(a.act, x[i], up[ulong(at.y) * a.stride + a.first + at.x]);
}

// x (n_rows, n_cols) f32 = scale * factor * (x + r normed). What the op lacks is bound to x. Grid:
// (groups of n columns, rows), a threadgroup each. A thread's squares are summed in ascending
// order; group_tree_sum adds those of the threads.
kernel void add_normed(constant margs_add_normed &a [[buffer(0)]],
                       device float *x [[buffer(1)]],
                       device const float *r [[buffer(2)]],
                       device const float *norm [[buffer(3)]],   // (n)
                       device const float *factor [[buffer(4)]], // (1)
                       uint2 group [[threadgroup_position_in_grid]],
                       uint thread_at [[thread_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simd [[simdgroup_index_in_threadgroup]],
                       uint n_simds [[simdgroups_per_threadgroup]]) {
    threadgroup float parts[SIMD_WIDTH];
    const ulong at = ulong(group.y) * a.n_cols + ulong(group.x) * a.n;
    float inverse = 1.0f;
    if (a.has_norm != 0) {
        float sum = 0.0f;
        for (uint i = thread_at; i < a.n; i += MARGS_ADD_NORMED_THREADS)
            sum = fma(r[at + i], r[at + i], sum);
        sum = group_tree_sum(sum, parts, simd, n_simds, lane);
        inverse = 1.0f / sqrt(sum / float(a.n) + a.eps);
    }
    const float by = a.has_factor != 0 ? a.scale * factor[0] : a.scale;
    for (uint i = thread_at; i < a.n; i += MARGS_ADD_NORMED_THREADS) {
        float v = x[at + i];
        if (a.has_norm != 0)
            v += r[at + i] * inverse * norm[i];
        else if (a.has_r != 0)
            v += r[at + i];
        x[at + i] = v * by;
    }
}
