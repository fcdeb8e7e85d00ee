/* comm.cu - exchanges of a group. After NCCL's: sums in the order of the ranks, with the same bits
 * for any number of rows; columns of the ranks side by side. And an exchange of a few values
 * through the ranks' memory, in one kernel (peer). */
#include "shaders/args.h"
#include "shaders/cuda/device.cuh"
#include "shaders/cuda/kernels.h"

namespace {

/* Rank 0's value, plus rank 1's, plus ... */
__device__ float sum_of(const struct cargs_sum_parts &a, uint64_t i) {
    float sum = a.parts[i];
    for (uint32_t p = 1; p < a.n_parts; p++)
        sum += a.parts[p * a.n + i];
    return sum;
}

/* If every part is a multiple of four values, each thread adds four at once: the kernel is
 * memory-bound. */
CUDA_KERNEL(256) sum_parts(CUDA_ARGS(struct cargs_sum_parts) a) {
    pdl_launch();
    pdl_wait();
    uint64_t first = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * CUDA_SUM_VALUES;
    if (a.n % CUDA_SUM_VALUES) {
        for (uint64_t i = first; i < a.n && i < first + CUDA_SUM_VALUES; i++)
            a.out[i] = sum_of(a, i);
        return;
    }
    if (first >= a.n) return;
    float4 sum = *reinterpret_cast<const float4 *>(a.parts + first);
    for (uint32_t p = 1; p < a.n_parts; p++) {
        float4 v = *reinterpret_cast<const float4 *>(a.parts + p * a.n + first);
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    *reinterpret_cast<float4 *>(a.out + first) = sum;
}

/* Blocks (columns, row). */
CUDA_KERNEL(256) join_parts(CUDA_ARGS(struct cargs_join_parts) a) {
    pdl_launch();
    pdl_wait();
    uint32_t col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= a.n_cols) return;
    uint32_t rank = col / a.share, first = rank * a.share;
    uint32_t width = a.n_cols - first < a.share ? a.n_cols - first : a.share;
    const float *part = a.parts + rank * a.stride + (uint64_t)blockIdx.y * width;
    a.out[(uint64_t)blockIdx.y * a.n_cols + col] = part[col - first];
}

/* ---- peer ----
 *
 * A rank writes its values into the slots that every other rank has for it, and waits for theirs.
 * Each half of a slot carries the exchange's mark, so no fence and no flag is needed (NCCL's LL
 * protocol: github.com/NVIDIA/nccl). Slots alternate between two sets: who writes the set of
 * exchange e again, at e + 2, has all values of e + 1, which the others sent after their kernel of
 * e. The number of blocks is such that all run at once. */

enum { CLEAR_EVERY = 1 << 20 }; /* exchanges: no mark is older when marks begin anew */

__device__ uint32_t *slots_from(const struct cargs_peer &a, uint32_t owner, uint32_t set,
                                uint32_t from) {
    return a.slots[owner] + ((uint64_t)set * a.n_ranks + from) * a.n_slots * 4;
}

/* The values of pair i of this rank; a last one without a second has 0. */
__device__ void own_pair(const struct cargs_peer &a, uint32_t i, float v[2]) {
    v[0] = a.x[2 * i];
    v[1] = 2 * i + 1 < a.n ? a.x[2 * i + 1] : 0.0f;
}

__device__ void put_pair(const struct cargs_peer &a, float *out, uint32_t i, const float v[2]) {
    out[2 * i] = v[0];
    if (2 * i + 1 < a.n) out[2 * i + 1] = v[1];
}

/* false: the exchange is given up. */
__device__ bool wait_for_pair(const struct cargs_peer &a, const uint32_t *slot, uint32_t mark,
                              float v[2]) {
    enum { LOOK_EVERY = 4096 };
    for (uint32_t tries = 1; !peer_load(slot, mark, &v[0], &v[1]); tries++)
        if (tries % LOOK_EVERY == 0 && host_load(a.stop)) return false;
    return true;
}

__device__ bool take_pair(const struct cargs_peer &a, uint32_t set, uint32_t i, uint32_t mark) {
    float sum[2] = {0, 0}, v[2];
    for (uint32_t r = 0; r < a.n_ranks; r++) {
        if (r == a.rank)
            own_pair(a, i, v);
        else if (!wait_for_pair(a, slots_from(a, a.rank, set, r) + 4 * i, mark, v))
            return false;
        sum[0] = r ? sum[0] + v[0] : v[0];
        sum[1] = r ? sum[1] + v[1] : v[1];
        if (!a.sums) put_pair(a, a.out + (uint64_t)r * a.n, i, v);
    }
    if (a.sums) put_pair(a, a.out, i, sum);
    return true;
}

/* By the block that ends last. */
__device__ void end_exchange(const struct cargs_peer &a, uint32_t number, uint32_t set) {
    if (number % CLEAR_EVERY < 2) {
        uint32_t *slots = slots_from(a, a.rank, set, 0);
        for (uint64_t i = threadIdx.x; i < (uint64_t)a.n_ranks * a.n_slots * 4; i += blockDim.x)
            slots[i] = 0;
    }
    if (threadIdx.x != 0) return;
    a.state->n_done = 0;
    a.state->n_exchanges = number + 1;
}

CUDA_KERNEL(CUDA_PEER_THREADS) peer(CUDA_ARGS(struct cargs_peer) a) {
    __shared__ bool last;
    pdl_launch();
    pdl_wait();
    const uint32_t number = a.state->n_exchanges, set = number % 2, mark = number | 0x80000000u;
    const uint32_t n_pairs = (a.n + 1) / 2, stride = gridDim.x * blockDim.x;
    const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x;
    float v[2];
    for (uint32_t i = first; i < n_pairs; i += stride) {
        own_pair(a, i, v);
        for (uint32_t r = 0; r < a.n_ranks; r++)
            if (r != a.rank) peer_store(slots_from(a, r, set, a.rank) + 4 * i, v[0], v[1], mark);
    }
    for (uint32_t i = first; i < n_pairs; i += stride)
        if (!take_pair(a, set, i, mark)) break;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(&a.state->n_done, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last) end_exchange(a, number, set);
}

} // namespace

const void *cuda_peer_kernel(void) {
    return (const void *)peer;
}

const void *cuda_sum_parts_kernel(void) {
    return (const void *)sum_parts;
}

const void *cuda_join_parts_kernel(void) {
    return (const void *)join_parts;
}
