/* peer.cuh - exchanges of a group through the ranks' memory: what the kernels of comm.cu and
 * input.cu share.
 *
 * A rank writes its values into the place that every other rank has for it, and waits for theirs.
 * Places alternate between two sets: who writes the set of exchange e again, at e + 2, has had
 * values of e + 1 from all others, which they sent after their kernel of e. All blocks of a kernel
 * run at once, so that a block waits only for blocks that run or will. */
#ifndef INFERD_CUDA_PEER_CUH
#define INFERD_CUDA_PEER_CUH

#include "shaders/args.h"
#include "shaders/cuda/device.cuh"

namespace {

enum {
    CLEAR_EVERY = 1 << 20, /* exchanges: no mark is older when marks begin anew */
    LOOK_EVERY = 4096      /* tries, whether to give up */
};

/* The exchange that a kernel makes. By all threads, after pdl_wait. */
struct exchange {
    uint32_t number, set, mark;
};

__device__ __forceinline__ struct exchange begin_exchange(const cargs_peer &a) {
    const uint32_t number = a.state->n_exchanges;
    return {number, number % 2, number | 0x80000000u};
}

/* The place of `from` in owner's memory, in words. */
__device__ __forceinline__ uint64_t place_of(const cargs_peer &a, uint32_t set, uint32_t from) {
    return ((uint64_t)set * a.n_ranks + from) * a.n_slots;
}

/* By all threads, once they have taken what they want of the exchange: counts the block. Returns,
 * to thread 0, whether it is the last one. */
__device__ __forceinline__ bool count_block(const cargs_peer &a) {
    __syncthreads();
    if (threadIdx.x != 0) return false;
    __threadfence();
    return atomicAdd(&a.state->n_done, 1u) == gridDim.x - 1;
}

/* Sets all marks to none: no thread of the device reads or writes them. slot_words: of a slot. */
__device__ __forceinline__ void clear_marks(const cargs_peer &a, uint32_t set,
                                            uint32_t slot_words) {
    uint32_t *slots = a.slots[a.rank] + place_of(a, set, 0) * slot_words;
    const uint64_t n = (uint64_t)a.n_ranks * a.n_slots * slot_words;
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x)
        slots[i] = 0;
}

/* By all threads, with count_block's result: the last block ends the exchange. */
__device__ __forceinline__ void end_exchange(const cargs_peer &a, const struct exchange &e,
                                             uint32_t slot_words, bool last) {
    if (e.number % CLEAR_EVERY < 2 && __syncthreads_or(last)) clear_marks(a, e.set, slot_words);
    if (!last) return;
    a.state->n_done = 0;
    a.state->n_exchanges = e.number + 1;
}

/* ---- few values: each half of a slot carries the exchange's mark, so no fence and no flag is
 * needed, at twice the bytes (as in NCCL's LL protocol: Hu et al., "Demystifying NCCL", 2025). A
 * slot has the values 2 i and 2 i + 1 */

enum { FEW_SLOT_WORDS = 4 };

/* Writes the pair into this rank's place in the memory of each other rank. */
__device__ __forceinline__ void send_pair(const cargs_peer &a, const struct exchange &e, uint32_t i,
                                          float x, float y) {
    for (uint32_t r = 0; r < a.n_ranks; r++)
        if (r != a.rank)
            peer_store(a.slots[r] + (place_of(a, e.set, a.rank) + i) * FEW_SLOT_WORDS, x, y,
                       e.mark);
}

/* Waits for another rank's pair. false: the exchange is given up. */
__device__ __forceinline__ bool wait_for_pair(const cargs_peer &a, const struct exchange &e,
                                              uint32_t rank, uint32_t i, float v[2]) {
    const uint32_t *slot = a.slots[a.rank] + (place_of(a, e.set, rank) + i) * FEW_SLOT_WORDS;
    for (uint32_t tries = 1; !peer_load(slot, e.mark, &v[0], &v[1]); tries++)
        if (tries % LOOK_EVERY == 0 && host_load(a.stop)) return false;
    return true;
}

} // namespace

#endif
