// top.metal - the k largest logits of rows, in the samplers' order: descending logits, ties by
// ascending id.
//
// A row's columns are cut into slices, one per threadgroup. Each simdgroup keeps the best k
// candidates that it has read as a sorted list spread over its lanes; simdgroup 0 merges the lists.
// If a row has several slices, a second launch merges their lists in the same way. The order is
// total, so the result does not depend on the cut. Floats are compared as integers, so the result
// does not depend on how the GPU treats NaN and denormals.
#include "shaders/metal/common.h"

// Function constants: enum margs_top_const (shaders/args.h).
constant uint TOP_SLOTS [[function_constant(MARGS_TOP_SLOTS)]];
constant uint TOP_MERGE [[function_constant(MARGS_TOP_MERGE)]];
constant uint TOP_LAST [[function_constant(MARGS_TOP_LAST)]];

#define TOP_UNROLL 4

// A candidate is (key, id). This one ranks after all others.
constant uint2 TOP_NONE = uint2(0, 0xFFFFFFFF);

// Keys have the order of the logits: NaN counts as -inf, and both zeros are equal.
static inline uint top_key(uint bits) {
    if ((bits & 0x7FFFFFFF) > 0x7F800000) bits = 0xFF800000;
    if (bits == 0x80000000) bits = 0;
    return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}

static inline bool top_before(uint2 a, uint2 b) {
    return a.x > b.x || (a.x == b.x && a.y < b.y);
}

// The best k candidates so far. Entry i is slot i / 32 of lane i % 32; every lane has a copy of the
// last entry, k - 1.
struct top_list {
    uint2 slot[2];
    uint2 last;
};

static inline void top_insert(thread top_list &l, uint2 c, uint k, uint lane) {
    const uint2 up0 = simd_shuffle_up(l.slot[0], ushort(1));
    const bool to0 = lane == 0 || top_before(up0, c);
    if (TOP_SLOTS == 2) {
        const uint2 carry = simd_broadcast(l.slot[0], ushort(SIMD_WIDTH - 1));
        const uint2 up1 = simd_shuffle_up(l.slot[1], ushort(1));
        const uint2 before = lane == 0 ? carry : up1;
        if (top_before(c, l.slot[1])) l.slot[1] = top_before(before, c) ? c : before;
    }
    if (top_before(c, l.slot[0])) l.slot[0] = to0 ? c : up0;
    l.last = simd_shuffle(TOP_SLOTS == 2 && k > SIMD_WIDTH ? l.slot[1] : l.slot[0],
                          ushort((k - 1) % SIMD_WIDTH));
}

// Each lane offers one candidate. Most are not among the best k; a ballot skips those.
static inline void top_offer(thread top_list &l, uint2 c, uint k, uint lane) {
    if (TOP_SLOTS == 0) { // each lane keeps its own best until top_settle
        if (top_before(c, l.slot[0])) l.slot[0] = c;
        return;
    }
    uint hits = uint(simd_vote::vote_t(simd_ballot(top_before(c, l.last))));
    while (hits) {
        const uint2 one = simd_shuffle(c, ushort(ctz(hits)));
        hits &= hits - 1;
        if (top_before(one, l.last)) top_insert(l, one, k, lane);
    }
}

// For k = 1: the best of all lanes.
static inline void top_settle(thread top_list &l) {
    if (TOP_SLOTS != 0) return;
    const uint key = simd_max(l.slot[0].x);
    l.slot[0] = uint2(key, simd_min(l.slot[0].x == key ? l.slot[0].y : 0xFFFFFFFF));
}

static inline top_list top_empty() {
    top_list l;
    l.slot[0] = l.slot[1] = l.last = TOP_NONE;
    return l;
}

// Merges the lists of all simdgroups into that of simdgroup 0; lists (MARGS_TOP_SIMDGROUPS, k).
static inline void
top_merge(thread top_list &l, threadgroup uint2 *lists, uint k, uint sg, uint lane) {
    threadgroup uint2 *own = lists + sg * k;
#pragma unroll
    for (uint s = 0; s < 2; s++)
        if (s * SIMD_WIDTH + lane < k) own[s * SIMD_WIDTH + lane] = l.slot[s];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (sg != 0) return;
    for (uint i = k; i < MARGS_TOP_SIMDGROUPS * k; i += SIMD_WIDTH)
        top_offer(l, i + lane < MARGS_TOP_SIMDGROUPS * k ? lists[i + lane] : TOP_NONE, k, lane);
    top_settle(l);
}

// x (rows, n_cols) f32, read as bits; candidates (rows of the pass, n_slices, k); ids, values
// (rows, k). Grid: (slices, rows); when merging, one threadgroup per row.
kernel void top(constant margs_top &a [[buffer(0)]],
                device const uint *x [[buffer(1)]],
                device uint2 *candidates [[buffer(2)]],
                device int *ids [[buffer(3)]],
                device uint *values [[buffer(4)]],
                uint2 group [[threadgroup_position_in_grid]],
                uint sg [[simdgroup_index_in_threadgroup]],
                uint lane [[thread_index_in_simdgroup]]) {
    threadgroup uint2 lists[MARGS_TOP_SIMDGROUPS * ARGS_TOP_MAX];
    const ulong row = a.first_row + group.y;
    device const uint *logits = x + row * a.op.n_cols;
    device uint2 *lists_in = candidates + ulong(group.y) * a.op.n_slices * a.op.k;
    const uint begin = TOP_MERGE ? 0 : group.x * a.op.slice_cols;
    const uint end = TOP_MERGE ? a.op.n_slices * a.op.k : min(begin + a.op.slice_cols, a.op.n_cols);
    const uint step = SIMD_WIDTH * TOP_UNROLL;
    top_list l = top_empty();
    for (uint base = begin + sg * step; base < end; base += MARGS_TOP_SIMDGROUPS * step) {
        uint2 c[TOP_UNROLL];
#pragma unroll
        for (uint j = 0; j < TOP_UNROLL; j++) {
            const uint i = base + j * SIMD_WIDTH + lane;
            c[j] = i >= end ? TOP_NONE : TOP_MERGE ? lists_in[i] : uint2(top_key(logits[i]), i);
        }
#pragma unroll
        for (uint j = 0; j < TOP_UNROLL; j++)
            top_offer(l, c[j], a.op.k, lane);
    }
    top_settle(l);
    top_merge(l, lists, a.op.k, sg, lane);
    if (sg != 0) return;
#pragma unroll
    for (uint s = 0; s < 2; s++) {
        const uint i = s * SIMD_WIDTH + lane;
        if (i >= a.op.k) continue;
        if (!TOP_LAST) {
            lists_in[group.x * a.op.k + i] = l.slot[s];
            continue;
        }
        const uint bits = logits[l.slot[s].y];
        ids[row * a.op.k + i] = int(l.slot[s].y);
        values[row * a.op.k + i] = (bits & 0x7FFFFFFF) > 0x7F800000 ? 0xFF800000 : bits;
    }
}
