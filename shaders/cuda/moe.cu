/* moe.cu - a mixture of experts: the experts of each row, the rows of each expert, the weighted
 * sum of their results. A pair is a row and one of its experts: pair row * n_used + k is the
 * row's k-th expert, in ascending order of experts. An expert's pairs are multiplied in tiles of
 * up to tile_rows, so that its weights are read once for all of them; the grids of products have
 * as many tiles as are possible, and surplus tiles are empty. */
#include "shaders/args_linear.h"
#include "shaders/cuda/epilogue.cuh"
#include "shaders/cuda/kernels.h"

#include <math.h>

namespace {

/* Exclusive prefix sum of v over the threads; *total: over all. parts (32): shared memory for
 * this alone. By all threads. */
__device__ __forceinline__ uint32_t block_prefix(uint32_t v, uint32_t *parts, uint32_t *total) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, before = v;
#pragma unroll
    for (uint32_t i = 1; i < 32; i *= 2) {
        uint32_t below = __shfl_up_sync(CUDA_ALL, before, i);
        if (lane >= i) before += below;
    }
    if (lane == 31) parts[warp] = before;
    __syncthreads();
    const uint32_t part = lane < blockDim.x / 32 ? parts[lane] : 0;
    *total = __reduce_add_sync(CUDA_ALL, part);
    return __reduce_add_sync(CUDA_ALL, lane < warp ? part : 0u) + before - v;
}

/* Sum over all threads, in an order that depends on the number of warps. */
__device__ __forceinline__ float block_sum(float v, float *parts) {
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : 0.0f);
}

/* The largest of the keys, by all threads after keys were written and synchronized. */
__device__ __forceinline__ float largest_key(const float *keys, uint32_t n) {
    float most = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        most = fmaxf(most, keys[i]);
    return most;
}

/* What a group of n experts counts by: its largest key, of sigmoids its two largest. */
__device__ __forceinline__ float group_key(const float *keys, uint32_t n, bool two) {
    float best = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        const float key = keys[i];
        if (key > best)
            second = best, best = key;
        else
            second = fmaxf(second, key);
    }
    return two ? best + second : best;
}

/* 1 / the weight that the sparse mixer gives this thread's expert: over those that rank after it.
 * keys were written and synchronized; NaN in them ranks lowest, as -inf. */
__device__ __forceinline__ float mixer_sum(const struct args_moe_route &a, const float *keys,
                                           uint32_t e) {
    const float own = keys[e];
    float sum = 0;
    for (uint32_t i = 0; i < a.n_experts; i++) {
        const float key = keys[i];
        const bool before = key > own || (key == own && i < e);
        const bool far = (own - key) / fmaxf(fabsf(key), own) > a.mixer_limit;
        if (!before && !far) sum += expf(key - own);
    }
    return sum;
}

/* Is the expert in one of the groups that are used? keys were written and synchronized; of equal
 * groups the lower counts more. groups: shared memory for this alone. */
__device__ __forceinline__ bool in_used_group(const struct args_moe_route &a, const float *keys,
                                              float *groups) {
    const uint32_t e = threadIdx.x, size = a.n_experts / a.n_groups;
    if (e < a.n_groups) groups[e] = group_key(keys + e * size, size, a.sigmoid != 0);
    __syncthreads();
    if (e >= a.n_experts) return false;
    const uint32_t own = e / size;
    uint32_t rank = 0;
    for (uint32_t i = 0; i < a.n_groups; i++)
        rank += groups[i] > groups[own] || (groups[i] == groups[own] && i < own);
    return rank < a.n_groups_used;
}

/* How many of four keys come before a key; equal: those equal to it too. */
template <bool equal> __device__ __forceinline__ uint32_t n_before(float4 k, float key) {
    return equal ? (k.x >= key) + (k.y >= key) + (k.z >= key) + (k.w >= key)
                 : (k.x > key) + (k.y > key) + (k.z > key) + (k.w > key);
}

/* The number of keys, one of each thread, that are larger than the thread's, or equal to it and of
 * a thread before it. */
__device__ __forceinline__ uint32_t rank_of(const float *keys, float key) {
    const uint32_t own = threadIdx.x / 32 * 32; /* the warp's first */
    uint32_t rank = 0;
#pragma unroll 8
    for (uint32_t i = 0; i < own; i += 4)
        rank += n_before<true>(*reinterpret_cast<const float4 *>(keys + i), key);
#pragma unroll
    for (uint32_t i = 0; i < 32; i++)
        rank += keys[own + i] > key || (keys[own + i] == key && own + i < threadIdx.x);
#pragma unroll 8
    for (uint32_t i = own + 32; i < blockDim.x; i += 4)
        rank += n_before<false>(*reinterpret_cast<const float4 *>(keys + i), key);
    return rank;
}

/* One block per row, thread t is expert t. An expert is chosen by its rank: the number of
 * experts with a larger key, or with the same key and a lower number; NaN ranks lowest. The key is
 * the score, or if probabilities have another order (with a bias) or may be equal where scores are
 * not (sigmoids), the probability. A single row needs no lists: its pairs are written here. */
CUDA_KERNEL(1024) moe_route(CUDA_ARGS(struct cargs_moe_route) a) {
    __shared__ __align__(16) float keys[ARGS_MOE_EXPERTS];
    __shared__ float groups[ARGS_MOE_EXPERTS], float_parts[32], top;
    __shared__ uint32_t parts[32];
    pdl_launch();
    pdl_wait();
    uint32_t row = blockIdx.x, e = threadIdx.x;
    bool exists = e < a.op.n_experts;
    float score = exists ? a.scores[(uint64_t)row * a.op.n_experts + e] : 0.0f;
    bool by_score = !a.op.sigmoid && !a.op.has_bias;
    float probability = a.op.sigmoid ? 1.0f / (1.0f + expf(-score)) : 0.0f;
    if (!by_score && !a.op.sigmoid) {
        keys[e] = exists && score == score ? score : -INFINITY;
        __syncthreads();
        probability = exists ? expf(score - largest_key(keys, a.op.n_experts)) : 0.0f;
        probability /= block_sum(probability, float_parts);
        __syncthreads();
    }
    float key = by_score ? score : probability;
    if (exists && a.op.has_bias) key += a.bias[e];
    if (key != key) key = -INFINITY;
    keys[e] = exists ? key : NAN; /* NaN excludes a key from all comparisons */
    __syncthreads();
    bool open = exists; /* may be chosen */
    if (a.op.n_groups > 1) {
        open = in_used_group(a.op, keys, groups);
        __syncthreads();
        if (!open) keys[e] = NAN;
        __syncthreads();
    }
    const uint32_t rank = rank_of(keys, key);
    if (open && rank == 0) top = score;
    bool chosen = open && rank < a.op.n_used;
    uint32_t n_chosen, slot = block_prefix(chosen, parts, &n_chosen);
    float term = chosen ? probability : 0.0f;
    if (by_score) term = chosen || (exists && !a.op.renormalize) ? expf(score - top) : 0.0f;
    float sum = block_sum(term, float_parts);
    if (a.op.sigmoid) sum += 1e-20f;
    if (!by_score && !a.op.renormalize) sum = 1.0f;
    if (a.joined && e == 0) {
        a.list[a.op.n_used] = a.op.n_used;
        a.tiles[a.op.n_used].expert = a.op.n_experts;
        a.tiles[a.op.n_used].first = a.op.n_used;
        a.tiles[a.op.n_used].count = 1;
    }
    if (!chosen) return;
    if (a.op.mixer) term = 1.0f, sum = mixer_sum(a.op, keys, e);
    a.experts[row * a.op.n_used + slot] = e;
    float weight = term / sum * a.op.weight_scale;
    if (a.op.has_expert_scale) weight *= a.expert_scale[e];
    a.weights[row * a.op.n_used + slot] = weight;
    if (a.op.n_rows > 1) return;
    a.list[slot] = slot;
    a.tiles[slot].expert = e;
    a.tiles[slot].first = slot;
    a.tiles[slot].count = 1;
}

/* Sorts the pairs by expert, in ascending order, and cuts them into tiles: one block, of at
 * least n_experts threads. The order of an expert's pairs is that of the atomic operations: a
 * pair's result does not depend on its place among the rows of a tile. */
CUDA_KERNEL(1024) moe_lists(CUDA_ARGS(struct cargs_moe_lists) a) {
    __shared__ uint32_t counts[ARGS_MOE_EXPERTS], parts[2][32]; /* counts, then next places */
    pdl_launch();
    pdl_wait();
    const uint32_t at = threadIdx.x;
    counts[at] = 0;
    __syncthreads();
    for (uint32_t p = at; p < a.op.n_pairs; p += blockDim.x)
        atomicAdd(&counts[a.experts[p]], 1u);
    __syncthreads();

    /* Thread e handles expert e. */
    uint32_t count = counts[at], own = (count + a.op.tile_rows - 1) / a.op.tile_rows, n_pairs,
             n_tiles;
    uint32_t begin = block_prefix(count, parts[0], &n_pairs),
             tile = block_prefix(own, parts[1], &n_tiles);
    counts[at] = begin;
    __syncthreads();
    for (uint32_t p = at; p < a.op.n_pairs; p += blockDim.x)
        a.list[atomicAdd(&counts[a.experts[p]], 1u)] = p;
    for (uint32_t i = 0; i < own; i++) {
        a.tiles[tile + i].expert = at;
        a.tiles[tile + i].first = begin + i * a.op.tile_rows;
        a.tiles[tile + i].count = min(a.op.tile_rows, count - i * a.op.tile_rows);
    }
    for (uint32_t i = n_tiles + at; i < a.op.n_tiles; i += blockDim.x) {
        a.tiles[i].expert = a.tiles[i].first = 0;
        a.tiles[i].count = 0;
    }
}

/* y = sum of weight * (the expert's result for the row), ascending, plus the shared expert's
 * share. One thread per column. */
CUDA_KERNEL(256) moe_combine(CUDA_ARGS(struct cargs_moe_combine) a) {
    pdl_launch();
    pdl_wait();
    uint32_t col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (col >= a.op.n_in) return;
    uint64_t pair = (uint64_t)row * a.op.n_used, value = (uint64_t)row * a.op.n_in + col;
    float sum = 0;
    for (uint32_t k = 0; k < a.op.n_used; k++)
        sum = fmaf(a.op.weighed ? 1.0f : a.weights[pair + k], a.out[(pair + k) * a.op.n_in + col],
                   sum);
    if (a.shared)
        sum = fmaf(a.shared_gate ? epilogue_share(a.shared_gate[row]) : 1.0f, a.shared[value], sum);
    a.y[value] = sum;
}

} // namespace

const void *cuda_moe_route_kernel(void) {
    return (const void *)moe_route;
}

const void *cuda_moe_lists_kernel(void) {
    return (const void *)moe_lists;
}

const void *cuda_moe_combine_kernel(void) {
    return (const void *)moe_combine;
}
