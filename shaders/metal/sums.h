/* sums.h - sums across a simdgroup and across a threadgroup, as trees of one shape: the same values
 * give the same bits in every kernel. */
#ifndef INFERD_METAL_SUMS_H
#define INFERD_METAL_SUMS_H

#include "shaders/metal/common.h"

/* The sum of the 32 lanes, in every lane: neighbours first, then pairs of pairs. */
static inline float simd_tree_sum(float v) {
    for (ushort m = 1; m < SIMD_WIDTH; m *= 2)
        v += simd_shuffle_xor(v, m);
    return v;
}

/* The sum of all threads of the threadgroup, in every thread: the tree of each simdgroup, then a
 * tree over the simdgroups. parts (32): scratch of this call alone. All threads call it. */
static inline float
group_tree_sum(float v, threadgroup float *parts, uint simd, uint n_simds, uint lane) {
    v = simd_tree_sum(v);
    if (lane == 0) parts[simd] = v;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return simd_tree_sum(lane < n_simds ? parts[lane] : 0.0f);
}

#endif
