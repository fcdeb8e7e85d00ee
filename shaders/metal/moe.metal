// moe.metal - a mixture of experts: routing of rows to experts, the list of rows of each expert,
// the weighted sum of the experts' outputs. The experts' products for few rows per expert are at
// the end; those for many are in moe_matrix.metal.
//
// An expert's rows are processed in tiles of up to tile_rows pairs, so that its weights are read
// once for all of them. The grids of the products have as many tiles as there can be; the surplus
// ones are empty.
#include "shaders/metal/moe.h"
#include "shaders/metal/sums.h"

// Sum of v over the threads before this one; *total: over all threads. parts (32): scratch of this
// call alone. All threads call it.
static inline uint group_prefix_sum(
    uint v, threadgroup uint *parts, uint simd, uint n_simds, uint lane, thread uint *total) {
    const uint before = simd_prefix_exclusive_sum(v);
    if (lane == SIMD_WIDTH - 1) parts[simd] = before + v;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint part = lane < n_simds ? parts[lane] : 0;
    const uint parts_before = simd_prefix_exclusive_sum(part);
    *total = simd_broadcast(parts_before + part, ushort(n_simds - 1));
    return before + simd_broadcast(parts_before, ushort(simd));
}

// What a group of n experts counts by: its largest key, of sigmoids the sum of its two largest.
static inline float group_key(threadgroup const float *keys, uint n, bool two) {
    float best = -INFINITY, second = -INFINITY;
    for (uint i = 0; i < n; i++) {
        const float key = keys[i];
        second = key > best ? best : max(second, key);
        best = max(best, key);
    }
    return two ? best + second : best;
}

// 1 / the weight that the sparse mixer gives expert e: over those that rank after it. keys: no NaN,
// written and synchronized.
static inline float mixer_sum(constant args_moe_route &a, threadgroup const float *keys, uint e) {
    const float own = keys[e];
    float sum = 0.0f;
    for (uint i = 0; i < a.n_experts; i++) {
        const float key = keys[i];
        const bool before = key > own || (key == own && i < e);
        const bool far = (own - key) / max(abs(key), own) > a.mixer_limit;
        if (!before && !far) sum += exp(key - own);
    }
    return sum;
}

// Whether expert e is in one of the groups that are used; of equal groups the lower counts more.
// keys: no NaN, written and synchronized. groups: memory of this call alone. All threads call it.
static inline bool in_used_group(constant args_moe_route &a,
                                 threadgroup const float *keys,
                                 threadgroup float *groups,
                                 uint e) {
    const uint size = a.n_experts / a.n_groups;
    if (e < a.n_groups) groups[e] = group_key(keys + e * size, size, a.sigmoid != 0);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (e >= a.n_experts) return false;
    const uint own = e / size;
    uint rank = 0;
    for (uint i = 0; i < a.n_groups; i++)
        rank += groups[i] > groups[own] || (groups[i] == groups[own] && i < own);
    return rank < a.n_groups_used;
}

// Member by member: a list in braces, assigned through a device pointer, is ambiguous in some of
// Apple's compilers.
static inline void put_tile(device args_moe_tile &tile, uint expert, uint first, uint count) {
    tile.expert = expert, tile.first = first, tile.count = count;
}

// Selects and weights a row's experts: one threadgroup per row, thread t is expert t. An expert is
// selected by its rank: the number of experts with a larger key, or with the same key and a lower
// number. A NaN ranks lowest. The key is the score, or if probabilities have another order (with a
// bias) or may be equal where scores are not (sigmoids), the probability. experts, weights (n_rows,
// n_used), ascending. A single row needs no moe_lists: its pairs are written here.
[[max_total_threads_per_threadgroup(1024)]] kernel void
moe_route(constant args_moe_route &a [[buffer(0)]],
          device const float *scores [[buffer(1)]], // (n_rows, n_experts)
          device uint *experts [[buffer(2)]],
          device float *weights [[buffer(3)]],
          device uint *list [[buffer(4)]],
          device args_moe_tile *tiles [[buffer(5)]],
          device const float *bias [[buffer(6)]],         // (n_experts), read if a.has_bias
          device const float *expert_scale [[buffer(7)]], // likewise, if a.has_expert_scale
          uint row [[threadgroup_position_in_grid]],
          uint e [[thread_index_in_threadgroup]],
          uint lane [[thread_index_in_simdgroup]],
          uint simd [[simdgroup_index_in_threadgroup]],
          uint n_simds [[simdgroups_per_threadgroup]]) {
    threadgroup float keys[ARGS_MOE_EXPERTS], groups[ARGS_MOE_EXPERTS], float_parts[SIMD_WIDTH],
        top;
    threadgroup uint parts[SIMD_WIDTH];
    const bool exists = e < a.n_experts;
    const float score = exists ? scores[ulong(row) * a.n_experts + e] : 0.0f;
    const bool by_score = !a.sigmoid && !a.has_bias;
    float probability = a.sigmoid ? 1.0f / (1.0f + exp(-score)) : 0.0f;
    if (!by_score && !a.sigmoid) {
        keys[e] = exists && !isnan(score) ? score : -INFINITY;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float most = -INFINITY;
        for (uint i = 0; i < a.n_experts; i++)
            most = max(most, keys[i]);
        probability = exists ? exp(score - most) : 0.0f;
        probability /= group_tree_sum(probability, float_parts, simd, n_simds, lane);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    float key = by_score ? score : probability;
    if (exists && a.has_bias) key += bias[e];
    if (isnan(key)) key = -INFINITY;
    keys[e] = key;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    bool open = exists;   // may be chosen
    if (a.n_groups > 1) { // NaN takes a key out of all comparisons
        open = in_used_group(a, keys, groups, e);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (!open) keys[e] = NAN;
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    uint rank = 0;
    for (uint i = 0; i < a.n_experts; i++)
        rank += keys[i] > key || (keys[i] == key && i < e);
    if (open && rank == 0) top = score;
    const bool chosen = open && rank < a.n_used;
    uint n_chosen;
    const uint slot = group_prefix_sum(chosen, parts, simd, n_simds, lane, &n_chosen);
    float term = chosen ? probability : 0.0f;
    if (by_score) term = chosen || (exists && !a.renormalize) ? exp(score - top) : 0.0f;
    float sum = group_tree_sum(term, float_parts, simd, n_simds, lane);
    if (a.sigmoid) sum += 1e-20f;
    if (!by_score && !a.renormalize) sum = 1.0f;
    if (!chosen) return;
    if (a.mixer) term = 1.0f, sum = mixer_sum(a, keys, e);
    experts[row * a.n_used + slot] = e;
    const float weight = term / sum * a.weight_scale;
    weights[row * a.n_used + slot] = a.has_expert_scale ? weight * expert_scale[e] : weight;
    if (a.n_rows > 1) return;
    list[slot] = slot;
    put_tile(tiles[slot], e, slot, 1);
}

// The pairs of each expert, in ascending order, and their tiles: one threadgroup of at least
// n_experts threads. Counts are sums of integers, whose order does not matter; everything else has
// a fixed order.
[[max_total_threads_per_threadgroup(1024)]] kernel void
moe_lists(constant args_moe_lists &a [[buffer(0)]],
          device const uint *experts [[buffer(1)]],  // (n_pairs)
          device uint *list [[buffer(2)]],           // (n_pairs)
          device args_moe_tile *tiles [[buffer(3)]], // (n_tiles)
          uint at [[thread_index_in_threadgroup]],
          uint threads [[threads_per_threadgroup]],
          uint lane [[thread_index_in_simdgroup]],
          uint simd [[simdgroup_index_in_threadgroup]],
          uint n_simds [[simdgroups_per_threadgroup]]) {
    threadgroup atomic_uint counts[ARGS_MOE_EXPERTS];
    threadgroup uint first[ARGS_MOE_EXPERTS], parts[2][SIMD_WIDTH];
    atomic_store_explicit(&counts[at], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint p = at; p < a.n_pairs; p += threads)
        atomic_fetch_add_explicit(&counts[experts[p]], 1u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);

    // Thread e lays out expert e.
    const uint count = atomic_load_explicit(&counts[at], memory_order_relaxed);
    const uint n_own = (count + a.tile_rows - 1) / a.tile_rows;
    uint n_pairs, n_tiles;
    const uint begin = group_prefix_sum(count, parts[0], simd, n_simds, lane, &n_pairs);
    const uint tile = group_prefix_sum(n_own, parts[1], simd, n_simds, lane, &n_tiles);
    first[at] = begin;
    for (uint i = 0; i < n_own; i++)
        put_tile(tiles[tile + i], at, begin + i * a.tile_rows,
                 min(a.tile_rows, count - i * a.tile_rows));
    for (uint i = n_tiles + at; i < a.n_tiles; i += threads)
        put_tile(tiles[i], 0, 0, 0);
    threadgroup_barrier(mem_flags::mem_threadgroup);

    // Each simdgroup scans all pairs for one expert after the other.
    for (uint e = simd; e < a.n_experts; e += n_simds) {
        uint to = first[e];
        const uint end = to + atomic_load_explicit(&counts[e], memory_order_relaxed);
        for (uint p = lane; to < end; p += SIMD_WIDTH) {
            const bool own = p < a.n_pairs && experts[p] == e;
            const uint before = simd_prefix_exclusive_sum(uint(own));
            if (own) list[to + before] = p;
            to += simd_broadcast(before + uint(own), SIMD_WIDTH - 1);
        }
    }
}

// The input of each pair: out (n_pairs, n_in) = weight * the pair's row of x. One thread per
// column.
kernel void moe_weigh(constant margs_moe_weigh &a [[buffer(0)]],
                      device const float *x [[buffer(1)]],       // (n_rows, n_in)
                      device const float *weights [[buffer(2)]], // (n_pairs)
                      device float *out [[buffer(3)]],
                      uint2 at [[thread_position_in_grid]]) {
    if (at.x >= a.n_in) return;
    out[ulong(at.y) * a.n_in + at.x] = weights[at.y] * x[ulong(at.y / a.n_used) * a.n_in + at.x];
}

// y = the sum of weight * expert output over ascending experts, then the shared expert's part. One
// thread per column.
kernel void moe_combine(constant margs_moe_combine &a [[buffer(0)]],
                        device const float *out [[buffer(1)]],         // (n_rows, n_used, n_in)
                        device const float *weights [[buffer(2)]],     // (n_rows, n_used)
                        device const float *shared [[buffer(3)]],      // (n_rows, n_in)
                        device const float *shared_gate [[buffer(4)]], // (n_rows)
                        device float *y [[buffer(5)]],                 // (n_rows, n_in)
                        uint2 at [[thread_position_in_grid]]) {
    const uint col = at.x, row = at.y;
    if (col >= a.op.n_in) return;
    const ulong pair = ulong(row) * a.op.n_used, value = ulong(row) * a.op.n_in + col;
    float sum = 0.0f;
    for (uint k = 0; k < a.op.n_used; k++)
        sum = fma(a.op.weighed ? 1.0f : weights[pair + k], out[(pair + k) * a.op.n_in + col], sum);
    if (a.has_shared) {
        const float share = a.has_gate ? 1.0f / (1.0f + exp(-shared_gate[row])) : 1.0f;
        sum = fma(share, shared[value], sum);
    }
    y[value] = sum;
}

// The products of gate and up (ACT), or of down, for few rows per expert (product.h): y (n_pairs,
// n_out). Grid: (tiles of pairs, those beyond the last empty; tiles of outputs). ROWS 1: all tiles
// have one row. Otherwise a tile uses the smallest body that holds its rows; all bodies cover the
// same outputs.
kernel void moe_vector(constant margs_moe_products &a [[buffer(0)]],
                       device const args_moe_tile *tiles [[buffer(1)]],
                       device const uint *list [[buffer(2)]],
                       device const float *x [[buffer(3)]],
                       device const uchar *w0 [[buffer(4)]],
                       device const uchar *w1 [[buffer(5)]],
                       device const float *b0 [[buffer(6)]],
                       device const float *b1 [[buffer(7)]],
                       device float *y [[buffer(8)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
    const args_moe_tile tile = tiles[group.x];
    if (tile.count == 0) return;
    const moe_rows rows = moe_rows_of(a, tile, x, list);
    const linear_tile t = moe_outputs(a, tile.expert, group.y, w0, w1, b0, b1, y);
    if (ROWS == 1 && WIDTH == 1) linear_rows<1, 1, 4>(a.linear, t, rows, simdgroup, lane);
    if (ROWS == 1 && WIDTH == 2) linear_rows<2, 1, 4>(a.linear, t, rows, simdgroup, lane);
    if (ROWS == 1) return;
    if (tile.count == 1)
        linear_rows<2, 1, 4>(a.linear, t, rows, simdgroup, lane);
    else if (tile.count == 2)
        linear_rows<2, 2, 4>(a.linear, t, rows, simdgroup, lane);
    else if (tile.count <= 4)
        linear_rows<2, 4, 1>(a.linear, t, rows, simdgroup, lane);
    else
        linear_rows<2, 8, 1>(a.linear, t, rows, simdgroup, lane);
}
