/* comm.cu - exchanges of a group. After NCCL's: sums in the order of the ranks, with the same bits
 * for any number of rows; columns of the ranks side by side. And exchanges through the ranks'
 * memory (peer.cuh), each in one kernel. */
#include "shaders/args.h"
#include "shaders/cuda/device.cuh"
#include "shaders/cuda/kernels.h"
#include "shaders/cuda/peer.cuh"

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

/* ---- few values of each rank ---- */

/* The values of pair i of this rank; a last one without a second has 0. */
__device__ void own_pair(const struct cargs_peer &a, uint32_t i, float v[2]) {
    v[0] = a.x[2 * i];
    v[1] = 2 * i + 1 < a.n ? a.x[2 * i + 1] : 0.0f;
}

__device__ void put_pair(const struct cargs_peer &a, float *out, uint32_t i, const float v[2]) {
    out[2 * i] = v[0];
    if (2 * i + 1 < a.n) out[2 * i + 1] = v[1];
}

__device__ bool take_pair(const struct cargs_peer &a, const struct exchange &e, uint32_t i) {
    float sum[2] = {0, 0}, v[2];
    for (uint32_t r = 0; r < a.n_ranks; r++) {
        if (r == a.rank)
            own_pair(a, i, v);
        else if (!wait_for_pair(a, e, r, i, v))
            return false;
        sum[0] = r ? sum[0] + v[0] : v[0];
        sum[1] = r ? sum[1] + v[1] : v[1];
        if (!a.sums) put_pair(a, a.out + (uint64_t)r * a.n, i, v);
    }
    if (a.sums) put_pair(a, a.out, i, sum);
    return true;
}

CUDA_KERNEL(CUDA_FEW_THREADS) peer_few(CUDA_ARGS(struct cargs_peer) a) {
    pdl_launch();
    pdl_wait();
    const struct exchange e = begin_exchange(a);
    const uint32_t n_pairs = (a.n + 1) / 2, stride = gridDim.x * blockDim.x;
    const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x;
    float v[2];
    for (uint32_t i = first; i < n_pairs; i += stride) {
        own_pair(a, i, v);
        send_pair(a, e, i, v[0], v[1]);
    }
    for (uint32_t i = first; i < n_pairs; i += stride)
        if (!take_pair(a, e, i)) break;
    end_exchange(a, e, FEW_SLOT_WORDS, count_block(a));
}

/* ---- many values, a multiple of four: pieces, each followed by a mark. A block sends its next
 * piece before it waits for the one before */

__device__ void send_piece(const struct cargs_peer &a, uint32_t set, uint32_t piece,
                           uint32_t mark) {
    const uint32_t first = piece * CUDA_MANY_PIECE;
    const uint64_t place = place_of(a, set, a.rank);
#pragma unroll
    for (uint32_t k = 0; k < CUDA_MANY_EACH; k++) {
        const uint32_t i = first + (k * CUDA_MANY_THREADS + threadIdx.x) * 4;
        if (i >= a.n) continue;
        const float4 v = *reinterpret_cast<const float4 *>(a.x + i);
        for (uint32_t r = 0; r < a.n_ranks; r++)
            if (r != a.rank)
                *reinterpret_cast<float4 *>(a.values[r] + place * CUDA_MANY_PIECE + i) = v;
    }
    __syncthreads();
    if (threadIdx.x < a.n_ranks && threadIdx.x != a.rank)
        mark_set(a.slots[threadIdx.x] + place + piece, mark);
}

/* By one thread for each rank; false: the exchange is given up. */
__device__ bool wait_for_piece(const struct cargs_peer &a, uint32_t set, uint32_t piece,
                               uint32_t mark) {
    if (threadIdx.x >= a.n_ranks || threadIdx.x == a.rank) return true;
    const uint32_t *at = a.slots[a.rank] + place_of(a, set, threadIdx.x) + piece;
    for (uint32_t tries = 1; !mark_is(at, mark); tries++)
        if (tries % LOOK_EVERY == 0 && host_load(a.stop)) return false;
    return true;
}

__device__ float4 values_at(const struct cargs_peer &a, uint32_t set, uint32_t rank, uint32_t i) {
    if (rank == a.rank) return *reinterpret_cast<const float4 *>(a.x + i);
    return peer_load4(a.values[a.rank] + place_of(a, set, rank) * CUDA_MANY_PIECE + i);
}

__device__ bool take_piece(const struct cargs_peer &a, uint32_t set, uint32_t piece,
                           uint32_t mark) {
    if (!__syncthreads_and(wait_for_piece(a, set, piece, mark))) return false;
#pragma unroll
    for (uint32_t k = 0; k < CUDA_MANY_EACH; k++) {
        const uint32_t i = piece * CUDA_MANY_PIECE + (k * CUDA_MANY_THREADS + threadIdx.x) * 4;
        if (i >= a.n) continue;
        float4 sum = values_at(a, set, 0, i);
        for (uint32_t r = 1; r < a.n_ranks; r++) {
            const float4 v = values_at(a, set, r, i);
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        }
        *reinterpret_cast<float4 *>(a.out + i) = sum;
    }
    return true;
}

CUDA_KERNEL(CUDA_MANY_THREADS) peer_many(CUDA_ARGS(struct cargs_peer) a) {
    pdl_wait();
    const struct exchange e = begin_exchange(a);
    const uint32_t n_pieces = (a.n + CUDA_MANY_PIECE - 1) / CUDA_MANY_PIECE;
    bool goes_on = true;
    for (uint32_t p = blockIdx.x; p < n_pieces + gridDim.x && goes_on; p += gridDim.x) {
        if (p < n_pieces) send_piece(a, e.set, p, e.mark);
        if (p >= gridDim.x) goes_on = take_piece(a, e.set, p - gridDim.x, e.mark);
    }
    end_exchange(a, e, 1, count_block(a));
}

/* ---- beside products, which should have the multiprocessors: the values are copied by the copy
 * engines, then these kernels tell the others, wait for theirs, and add. One thread for each rank
 */

__device__ uint32_t *mark_at(const struct cargs_peer &a, uint32_t owner, uint32_t from) {
    return a.slots[owner] + (a.mark % 2) * a.n_ranks + from;
}

CUDA_KERNEL(CUDA_MAX_PEERS) peer_mark(CUDA_ARGS(struct cargs_peer) a) {
    pdl_wait();
    if (threadIdx.x < a.n_ranks && threadIdx.x != a.rank)
        mark_set(mark_at(a, threadIdx.x, a.rank), a.mark);
}

CUDA_KERNEL(CUDA_MAX_PEERS) peer_wait(CUDA_ARGS(struct cargs_peer) a) {
    pdl_wait();
    if (threadIdx.x >= a.n_ranks || threadIdx.x == a.rank) return;
    const uint32_t *at = mark_at(a, a.rank, threadIdx.x);
    for (uint32_t tries = 1; !mark_is(at, a.mark); tries++)
        if (tries % LOOK_EVERY == 0 && host_load(a.stop)) return;
}

CUDA_KERNEL(CUDA_FEW_THREADS) peer_add(CUDA_ARGS(struct cargs_peer) a) {
    pdl_wait();
    const uint64_t i = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i >= a.n) return;
    float4 sum;
    for (uint32_t r = 0; r < a.n_ranks; r++) {
        const float *at = r == a.rank ? a.x : a.values[a.rank] + place_of(a, a.mark % 2, r);
        const float4 v = peer_load4(at + i);
        if (r == 0)
            sum = v;
        else
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    *reinterpret_cast<float4 *>(a.out + i) = sum;
}

} // namespace

const void *cuda_peer_mark_kernel(void) {
    return (const void *)peer_mark;
}

const void *cuda_peer_wait_kernel(void) {
    return (const void *)peer_wait;
}

const void *cuda_peer_add_kernel(void) {
    return (const void *)peer_add;
}

const void *cuda_peer_few_kernel(void) {
    return (const void *)peer_few;
}

const void *cuda_peer_many_kernel(void) {
    return (const void *)peer_many;
}

const void *cuda_sum_parts_kernel(void) {
    return (const void *)sum_parts;
}

const void *cuda_join_parts_kernel(void) {
    return (const void *)join_parts;
}
