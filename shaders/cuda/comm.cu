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
    for (uint32_t p = 1; p < a.n_parts; p++)
        sum = add_values(sum, *reinterpret_cast<const float4 *>(a.parts + p * a.n + first));
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

/* ---- through the ranks' memory ---- */

/* V: of the values that a thread takes at once. */
template <class V> __device__ V &at(float *values, uint32_t i) {
    return *reinterpret_cast<V *>(values + i);
}

template <class V> __device__ const V &at(const float *values, uint32_t i) {
    return *reinterpret_cast<const V *>(values + i);
}

template <class V> __device__ V own_at(const struct cargs_peer &a, uint32_t i) {
    return own_values(a, a.row_scale ? i / a.n_cols : 0, at<V>(a.x, i));
}

template <class V> __device__ void send_own(const struct cargs_peer &a, uint32_t stride) {
    const uint32_t each = sizeof(V) / sizeof(float);
    for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) * each; i < a.n; i += stride)
        send_values(a, i, own_at<V>(a, i));
}

template <class V> CUDA_KERNEL(CUDA_PEER_THREADS) peer_sum(CUDA_ARGS(struct cargs_peer) a) {
    const uint32_t each = sizeof(V) / sizeof(float), stride = gridDim.x * blockDim.x * each;
    pdl_launch();
    pdl_wait();
    if (!a.sent) send_own<V>(a, stride);
    for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) * each; i < a.n; i += stride) {
        V v = own_at<V>(a, i);
        if (!sum_values(a, i, v)) return;
        at<V>(a.out, i) = v;
    }
}

/* Puts v, value i of a rank's columns, to its place. */
template <class V>
__device__ void place_value(const struct cargs_peer &a, uint32_t rank, uint32_t i, V v) {
    const uint32_t begin = rank * a.share;
    const uint32_t width = min(a.share, a.n_cols - begin);
    if (!a.out) return;
    const uint32_t row = (a.first + i) / width, col = (a.first + i) % width;
    if (row < a.n_rows) *reinterpret_cast<V *>(a.out + (uint64_t)row * a.n_cols + begin + col) = v;
}

/* V: four values only if all ranks' columns are multiples of four. */
template <class V> CUDA_KERNEL(CUDA_PEER_THREADS) peer_gather(CUDA_ARGS(struct cargs_peer) a) {
    const uint32_t each = sizeof(V) / sizeof(float), stride = gridDim.x * blockDim.x * each;
    pdl_launch();
    pdl_wait();
    send_own<V>(a, stride);
    for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) * each; i < a.n; i += stride)
        for (uint32_t r = 0; r < a.n_ranks; r++) {
            V v = at<V>(a.x, i);
            if (r != a.rank && !take_values(a, r, i, &v)) return;
            place_value(a, r, i, v);
        }
}

/* ---- beside products, which should have the multiprocessors: the values are copied by the copy
 * engines, then these kernels tell the others, wait for theirs, and add ---- */

/* One block. Of the waiting each rank has a thread. */
CUDA_KERNEL(CUDA_PEER_THREADS) peer_meet(CUDA_ARGS(struct cargs_peer_beside) a) {
    const uint32_t r = threadIdx.x;
    pdl_wait();
    for (uint32_t i = r; a.row_scale && i <= a.n_rows; i += CUDA_PEER_THREADS) {
        const float v = i < a.n_rows ? a.row_scale[i] : a.scale;
        for (uint32_t k = 0; k < a.n_ranks; k++)
            a.to_scales[k][i] = v;
    }
    __syncthreads();
    if (r >= a.n_ranks || r == a.rank) return;
    mark_set(a.to[r], a.mark);
    for (uint32_t tries = 1; !mark_is(a.from[r], a.mark); tries++)
        if (tries % LOOK_EVERY == 0 && host_load(a.stop)) return;
}

/* Four values of a rank, scaled as epilogue_sum does. */
__device__ __forceinline__ float4 beside_values(const cargs_peer_beside &a, uint32_t rank,
                                                uint64_t i) {
    float4 v = beside_load((rank == a.rank ? a.x : a.values[rank]) + i);
    if (!a.row_scale) return v;
    const float row = __ldcg(a.scales[rank] + i / a.n_cols);
    const float scale = __ldcg(a.scales[rank] + a.n_rows);
    return make_float4(v.x * row * scale, v.y * row * scale, v.z * row * scale, v.w * row * scale);
}

CUDA_KERNEL(CUDA_PEER_THREADS) peer_add(CUDA_ARGS(struct cargs_peer_beside) a) {
    pdl_wait();
    const uint64_t i = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i >= a.n) return;
    float4 sum;
    for (uint32_t r = 0; r < a.n_ranks; r++) {
        const float4 v = beside_values(a, r, i);
        sum = r ? add_values(sum, v) : v;
    }
    *reinterpret_cast<float4 *>(a.out + i) = sum;
}

} // namespace

const void *cuda_peer_meet_kernel(void) {
    return (const void *)peer_meet;
}

const void *cuda_peer_add_kernel(void) {
    return (const void *)peer_add;
}

const void *cuda_peer_sum_kernel(int fours) {
    return fours ? (const void *)peer_sum<float4> : (const void *)peer_sum<float>;
}

const void *cuda_peer_gather_kernel(int fours) {
    return fours ? (const void *)peer_gather<float4> : (const void *)peer_gather<float>;
}

const void *cuda_sum_parts_kernel(void) {
    return (const void *)sum_parts;
}

const void *cuda_join_parts_kernel(void) {
    return (const void *)join_parts;
}
