// probe_matrix.metal - tests properties of the device when the backend starts.
#include "shaders/metal/common.h"
#include <metal_simdgroup_matrix>

constant uint HALVES [[function_constant(0)]];

// Is simdgroup_multiply_accumulate a chain of fma over ascending k? Computes d (8, 8) by matrices
// and chain (8, 8) by fma from a, b, c (8, 8), all f32; one threadgroup of one simdgroup per set.
// HALVES: b becomes a matrix of halves, whose values it has, and stays one of floats for the chain.
// Tiles (tile.h) are on simdgroup matrices, and have halves, exactly where these properties hold.
kernel void probe_matrix(device const float *a [[buffer(1)]],
                         device const float *b [[buffer(2)]],
                         device const float *c [[buffer(3)]],
                         device float *d [[buffer(4)]],
                         device float *chain [[buffer(5)]],
                         uint set [[threadgroup_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]]) {
    threadgroup half halves[64];
    const uint at = set * 64;
    simdgroup_float8x8 ma, mb, mc, md;
    simdgroup_half8x8 mh;
    simdgroup_load(ma, a + at, 8);
    simdgroup_load(mc, c + at, 8);
    if (HALVES) {
        for (uint i = lane; i < 64; i += SIMD_WIDTH)
            halves[i] = half(b[at + i]);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_load(mh, halves, 8);
        simdgroup_multiply_accumulate(md, ma, mh, mc);
    } else {
        simdgroup_load(mb, b + at, 8);
        simdgroup_multiply_accumulate(md, ma, mb, mc);
    }
    simdgroup_store(md, d + at, 8);
    for (uint i = lane; i < 64; i += SIMD_WIDTH) {
        float sum = c[at + i];
        for (uint k = 0; k < 8; k++)
            sum = fma(a[at + i / 8 * 8 + k], b[at + k * 8 + i % 8], sum);
        chain[at + i] = sum;
    }
}
