/* top.cu - the k largest logits of rows, in the samplers' order: descending logits; equal logits
 * by ascending id.
 *
 * A row's columns are divided into slices, one block each. A block keeps the best k of its slice
 * as a sorted list; the last block of a row to finish merges the lists of all of them. The order
 * is total, so the result does not depend on the slices or on which block is last.
 *
 * Selection of the best k of some entries: they are dealt to groups. The k-th largest of the
 * groups' maxima is not larger than the k-th largest entry, and only few entries are as large as
 * it (each of them is in one of k groups). An entry's place is the number of larger ones among
 * those few. */
#include "shaders/args.h"
#include "shaders/cuda/device.cuh"
#include "shaders/cuda/kernels.h"

namespace {

/* A logit and its id as one integer, larger if it ranks higher. 0 ranks last. */
typedef unsigned long long entry;

enum { THREADS = 256, PER_THREAD = CUDA_TOP_TILE / THREADS };
enum { GROUPS = THREADS / 2, HALF = GROUPS / 2 };     /* two neighbouring threads share a group */
enum { MOST_FOUND = ARGS_TOP_MAX * CUDA_TOP_SLICES }; /* k groups with one entry from each list */

static_assert((int)GROUPS >= (int)ARGS_TOP_MAX, "k groups");
static_assert((int)MOST_FOUND >= ARGS_TOP_MAX * 2 * (PER_THREAD + 1),
              "k groups of a tile and of the list");
static_assert((int)GROUPS >= 2 * CUDA_TOP_SLICES, "the heads of all lists in groups of their own");

struct top_shared {
    entry best[2][HALF + 2]; /* maxima of the groups; the halves begin in different banks */
    entry list[ARGS_TOP_MAX];
    entry found[MOST_FOUND];
    entry least;
    uint32_t n_found, last;
};

/* A key with the order of the logits: NaN counts as -inf, and both zeros are equal. Integer
 * operations only, so nothing depends on float comparisons with NaN. */
__device__ entry make_entry(float logit, uint32_t id) {
    uint32_t bits = __float_as_uint(logit);
    if ((bits & 0x7fffffffu) > 0x7f800000u) bits = 0xff800000u;
    if (bits == 0x80000000u) bits = 0;
    const uint32_t key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (entry)key << 32 | (uint32_t)~id;
}

__device__ entry larger(entry a, entry b) {
    return a > b ? a : b;
}

/* The k-th largest of the groups' maxima; most: the largest of the thread's entries. */
__device__ entry find_least(struct top_shared &s, entry most, uint32_t k) {
    const uint32_t group = threadIdx.x / 2, side = threadIdx.x % 2;
    most = larger(most, __shfl_xor_sync(CUDA_ALL, most, 1));
    if (side == 0) s.best[group / HALF][group % HALF] = most;
    if (threadIdx.x == 0) s.least = 0, s.n_found = 0;
    __syncthreads();
    uint32_t above = 0;
#pragma unroll 8
    for (uint32_t i = 0; i < HALF; i++)
        above += s.best[side][i] > most;
    above += __shfl_xor_sync(CUDA_ALL, above, 1);
    if (above == k - 1) s.least = most; /* a single group, or groups without entries */
    __syncthreads();
    return s.least;
}

__device__ void offer(struct top_shared &s, entry e, entry least) {
    if (e != 0 && e >= least) s.found[atomicAdd(&s.n_found, 1u)] = e;
}

/* Sets the list to the first k of the candidates. */
__device__ void rank_found(struct top_shared &s, uint32_t k) {
    if (threadIdx.x < k) s.list[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t n = s.n_found;
    for (uint32_t c = threadIdx.x; c < n; c += THREADS) {
        const entry e = s.found[c];
        uint32_t above = 0;
#pragma unroll 8
        for (uint32_t i = 0; i < n; i++)
            above += s.found[i] > e;
        if (above < k) s.list[above] = e;
    }
    __syncthreads();
}

/* Sets the list to the first of the threads' entries. */
__device__ void keep_first(struct top_shared &s, entry most) {
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        most = larger(most, __shfl_xor_sync(CUDA_ALL, most, i));
    if (threadIdx.x % 32 == 0) s.found[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (uint32_t i = 1; i < THREADS / 32; i++)
            most = larger(most, s.found[i]);
        s.list[0] = most;
    }
    __syncthreads();
}

/* Selects among columns begin .. end - 1 of a row. */
__device__ void read_slice(struct top_shared &s, const float *x, uint32_t begin, uint32_t end,
                           uint32_t k) {
    entry first = 0;
    if (threadIdx.x < k) s.list[threadIdx.x] = 0; /* only this thread reads it */
    for (uint32_t base = begin; base < end; base += CUDA_TOP_TILE) {
        float v[PER_THREAD];
        entry e[PER_THREAD + 1];
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD; j++) {
            const uint32_t i = base + j * THREADS + threadIdx.x;
            v[j] = i < end ? x[i] : 0.0f;
        }
        e[PER_THREAD] = threadIdx.x < k ? s.list[threadIdx.x] : 0;
        entry most = e[PER_THREAD];
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD; j++) {
            const uint32_t i = base + j * THREADS + threadIdx.x;
            e[j] = i < end ? make_entry(v[j], i) : 0;
            most = larger(most, e[j]);
        }
        first = larger(first, most);
        if (k == 1) continue;
        const entry least = find_least(s, most, k);
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD + 1; j++)
            offer(s, e[j], least);
        rank_found(s, k);
    }
    if (k == 1) keep_first(s, first);
}

/* Merges the lists (n_lists, k) of this launch's other blocks. Entry p of list l goes to group 2
 * l + p, so that the first entries of the lists, which are the largest, are in different groups. */
__device__ void merge_lists(struct top_shared &s, const entry *lists, uint32_t n_lists,
                            uint32_t k) {
    const uint32_t group = threadIdx.x / 2, side = threadIdx.x % 2;
    entry most = 0;
#pragma unroll 8
    for (uint32_t l = side; l < n_lists; l += 2) {
        const uint32_t p = (group - 2 * l) % GROUPS;
        if (p < k) most = larger(most, __ldcg(lists + l * k + p));
    }
    if (k == 1) {
        keep_first(s, most);
        return;
    }
    const entry least = find_least(s, most, k);
#pragma unroll 8
    for (uint32_t l = side; l < n_lists; l += 2) {
        const uint32_t p = (group - 2 * l) % GROUPS;
        if (p < k) offer(s, __ldcg(lists + l * k + p), least);
    }
    rank_found(s, k);
}

/* Is this block the last of its row? Then it sees the others' stores, and the count is reset. */
__device__ bool is_last(struct top_shared &s, uint32_t *done, uint32_t n_slices) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        s.last = atomicAdd(done, 1u) == n_slices - 1;
        if (s.last) *done = 0;
        __threadfence();
    }
    __syncthreads();
    return s.last;
}

/* Grid: slices, rows. */
CUDA_KERNEL(THREADS) top(CUDA_ARGS(struct cargs_top) a) {
    __shared__ struct top_shared s;
    pdl_launch();
    pdl_wait();
    const uint32_t slice = blockIdx.x, row = blockIdx.y, k = a.op.k;
    const float *x = a.x + (uint64_t)row * a.op.n_cols;
    read_slice(s, x, slice * a.op.slice_cols, min((slice + 1) * a.op.slice_cols, a.op.n_cols), k);
    if (a.op.n_slices > 1) {
        entry *lists = reinterpret_cast<entry *>(a.lists) + (uint64_t)row * a.op.n_slices * k;
        if (threadIdx.x < k) __stcg(lists + slice * k + threadIdx.x, s.list[threadIdx.x]);
        if (!is_last(s, a.done + row, a.op.n_slices)) return;
        merge_lists(s, lists, a.op.n_slices, k);
    }
    if (threadIdx.x < k) {
        const uint32_t id = ~(uint32_t)s.list[threadIdx.x];
        const float v = x[id];
        a.ids[(uint64_t)row * k + threadIdx.x] = (int32_t)id;
        a.values[(uint64_t)row * k + threadIdx.x] = v == v ? v : __uint_as_float(0xff800000u);
    }
}

} // namespace

const void *cuda_top_kernel(void) {
    return (const void *)top;
}
