/* peer.cuh - exchanges of a group through the ranks' memory: what the kernels of comm.cu and
 * input.cu share.
 *
 * A rank writes its values into the place that every other rank has for it, and waits until no
 * value of theirs is EMPTY in its own; who takes a value puts EMPTY back. A value is its own mark,
 * so there is no fence and no flag (NCCL's LL protocol sends a mark with every value: Hu et al.,
 * "Demystifying NCCL", 2025). Places belong to sets, and the host sees to it that between two
 * exchanges of a set there is another one (peer.c): who writes a set again has had values of that
 * exchange from all others, which they sent after they had emptied the set.
 *
 * A thread sends all its values before it waits, and all blocks of a kernel run at once, so that a
 * thread waits only for threads that run or will. */
#ifndef INFERD_CUDA_PEER_CUH
#define INFERD_CUDA_PEER_CUH

#include "shaders/args.h"
#include "shaders/cuda/device.cuh"

namespace {

enum { LOOK_EVERY = 4096 }; /* tries, whether to give up */

/* No arithmetic makes this NaN. As a copy of a weight it is sent as the usual one. */
__device__ __forceinline__ float not_empty(float v) {
    return __float_as_uint(v) == CUDA_PEER_EMPTY ? __uint_as_float(0x7fffffffu) : v;
}

__device__ __forceinline__ float4 not_empty(float4 v) {
    return make_float4(not_empty(v.x), not_empty(v.y), not_empty(v.z), not_empty(v.w));
}

__device__ __forceinline__ bool is_empty(float v) {
    return __float_as_uint(v) == CUDA_PEER_EMPTY;
}

__device__ __forceinline__ bool is_empty(float4 v) {
    return is_empty(v.x) || is_empty(v.y) || is_empty(v.z) || is_empty(v.w);
}

/* Sends V, one value or four, to the others' places, from value i on. */
template <class V>
__device__ __forceinline__ void send_values(const cargs_peer &a, uint32_t i, V v) {
    v = not_empty(v);
    for (uint32_t r = 0; r < a.n_ranks; r++)
        if (r != a.rank) peer_store(reinterpret_cast<V *>(a.to[r] + i), v);
}

__device__ __forceinline__ float empty_of(float) {
    return __uint_as_float(CUDA_PEER_EMPTY);
}

__device__ __forceinline__ float4 empty_of(float4) {
    const float e = __uint_as_float(CUDA_PEER_EMPTY);
    return make_float4(e, e, e, e);
}

/* Waits for another rank's, and empties the place. false: the exchange is given up. */
template <class V>
__device__ __forceinline__ bool take_values(const cargs_peer &a, uint32_t rank, uint32_t i, V *v) {
    V *at = reinterpret_cast<V *>(a.from[rank] + i);
    for (uint32_t tries = 1;; tries++) {
        *v = peer_load(at);
        if (!is_empty(*v)) break;
        if (tries % LOOK_EVERY == 0 && host_load(a.stop)) return false;
    }
    peer_store(at, empty_of(*v));
    return true;
}

/* This rank's values, of row `row`; as epilogue_sum without bias and cap. */
__device__ __forceinline__ float own_values(const cargs_peer &a, uint32_t row, float v) {
    return a.row_scale ? v * a.row_scale[row] * a.scale : v;
}

__device__ __forceinline__ float4 own_values(const cargs_peer &a, uint32_t row, float4 v) {
    return make_float4(own_values(a, row, v.x), own_values(a, row, v.y), own_values(a, row, v.z),
                       own_values(a, row, v.w));
}

__device__ __forceinline__ float add_values(float a, float b) {
    return a + b;
}

__device__ __forceinline__ float4 add_values(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* Of the ranks' values, added in their order; v: this rank's, then the sum. false: given up. */
template <class V>
__device__ __forceinline__ bool sum_values(const cargs_peer &a, uint32_t i, V &v) {
    const V own = v;
    for (uint32_t r = 0; r < a.n_ranks; r++) {
        V part = own;
        if (r != a.rank && !take_values(a, r, i, &part)) return false;
        v = r ? add_values(v, part) : part;
    }
    return true;
}

} // namespace

#endif
