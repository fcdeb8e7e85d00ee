/* linear_attention.cu - linear attention in chunks (op_linear_attention in backend.h).
 *
 * A step of many rows runs four kernels: the sum of decayed k^T v of each chunk that the step
 * fills; the scan that turns these sums into the state S before each chunk; the rows' outputs
 * from S and from the rows of their own chunk; the rows of the last, partial chunk, kept in the
 * slot. A step with one row per sequence runs a single kernel. All of them compute
 *   out[t] = scale * (decay^(r + 1) * (q S) + sum over s = 0..r of decay^(r - s) (q . k[s])
 *   v[s])
 *   S' = decay^C S + sum over s of (decay^(C - 1 - s) k[s])^T v[s]
 * with r, s counted within the chunk and S = 0 in a sequence's first one, in one order: sums
 * over s ascending; sums over head_dim in four classes by index mod 4, ascending in each, then
 * (0 + 1) + (2 + 3). So a row's bits do not depend on how its sequence was divided into steps. */
#include "shaders/args_attention.h"
#include "shaders/cuda/device.cuh"
#include "shaders/cuda/kernels.h"

namespace {

enum {
    THREADS = CUDA_LINEAR_THREADS,
    ROWS = 8, /* per thread in outputs: C * head_dim / THREADS */
    AHEAD = 4 /* chunks that the scan prefetches */
};

/* For heads of D dimensions: positions of a chunk, float4s of a row, values of S, values of a
 * slot and head. */
template <int D> struct sizes {
    enum {
        C = D == 64 ? ARGS_LINEAR_CHUNK_64 : ARGS_LINEAR_CHUNK_128,
        QUADS = D / 4,
        STATE = D * D,
        SLOT = STATE + 2 * C * D
    };
    static_assert((int)C * D == (int)THREADS * ROWS,
                  "outputs has a thread for each column of eight rows");
};

__device__ float4 fma4(float4 a, float4 b, float4 c) {
    return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z),
                       fmaf(a.w, b.w, c.w));
}

__device__ float4 fma4(float a, float4 b, float4 c) {
    return fma4(make_float4(a, a, a, a), b, c);
}

__device__ float4 times(float4 a, float b) {
    return make_float4(a.x * b, a.y * b, a.z * b, a.w * b);
}

__device__ float4 zero4() {
    return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

__device__ float sum4(float4 v) {
    return (v.x + v.y) + (v.z + v.w);
}

__device__ float power(float x, uint32_t n) {
    float p = 1.0f;
    for (; n != 0; n >>= 1, x *= x)
        if (n & 1) p *= x;
    return p;
}

typedef struct cargs_linear_attention args;

__device__ float decay_of(const args &a, uint32_t head) {
    return a.decay ? a.decay[head] : 1.0f;
}

/* First task number of sequence s: each sequence has room for the most chunks that its rows can
 * touch. */
template <int D> __device__ uint32_t first_task(const args &a, uint32_t s) {
    return (uint32_t)a.row_start[s] / sizes<D>::C + 2 * s;
}

/* A sequence's rows of this step. */
struct rows {
    uint32_t row, n;    /* in the batch */
    uint32_t pos, slot; /* of the first */
    bool there;         /* it has rows, and a slot */
};

__device__ struct rows rows_of(const args &a, uint32_t s) {
    struct rows r;
    r.row = (uint32_t)a.row_start[s];
    r.n = (uint32_t)a.row_start[s + 1] - r.row;
    r.slot = (uint32_t)a.slots[s];
    const int32_t pos = r.n != 0 ? a.pos[r.row] : -1;
    r.there = pos >= 0 && r.slot < a.op.n_slots;
    r.pos = r.there ? (uint32_t)pos : 0;
    return r;
}

/* The rows that this step adds to one chunk. */
struct part {
    uint32_t chunk;       /* its number in the sequence */
    uint32_t first, last; /* the first and last rows of this step, counted in the chunk */
    int32_t row;          /* batch row of the chunk's row 0: may lie before the step */
    uint32_t slot;
    bool there;
};

template <int D> __device__ struct part part_of(const struct rows &r, uint32_t chunk) {
    const uint32_t begin = chunk * sizes<D>::C, end = r.pos + r.n;
    struct part p;
    p.chunk = chunk;
    p.there = r.there && begin < end;
    p.first = r.pos > begin ? r.pos - begin : 0;
    p.last = min(end - begin, (uint32_t)sizes<D>::C) - 1;
    p.row = (int32_t)(r.row + begin - r.pos);
    p.slot = r.slot;
    return p;
}

/* The chunk of task number `task`. Its sequence is the last one that begins at or before it. */
template <int D> __device__ struct part task_part(const args &a, uint32_t task) {
    uint32_t low = 0, high = a.op.n_seqs;
    while (high - low > 1) {
        const uint32_t mid = (low + high) / 2;
        if (first_task<D>(a, mid) <= task)
            low = mid;
        else
            high = mid;
    }
    const struct rows r = rows_of(a, low);
    return part_of<D>(r, r.pos / sizes<D>::C + task - first_task<D>(a, low));
}

/* Row s of the chunk: from this step, or kept in the slot by an earlier one. */
template <int D>
__device__ const float *row_at(const args &a, const struct part &p, const float *x,
                               const float *kept, uint32_t head, uint32_t s) {
    return s >= p.first ? x + ((uint64_t)(uint32_t)(p.row + (int32_t)s) * a.op.n_heads + head) * D
                        : kept + s * D;
}

template <int D>
__device__ float4 quad_at(const args &a, const struct part &p, const float *x, const float *kept,
                          uint32_t head, uint32_t s, uint32_t i) {
    return reinterpret_cast<const float4 *>(row_at<D>(a, p, x, kept, head, s))[i];
}

template <int D> __device__ float *slot_of(const args &a, uint32_t slot, uint32_t head) {
    return a.state + ((uint64_t)slot * a.op.n_heads + head) * sizes<D>::SLOT;
}

template <int D> __device__ float *state_of(const args &a, uint32_t task, uint32_t head) {
    return a.states + ((uint64_t)task * a.op.n_heads + head) * sizes<D>::STATE;
}

template <int D> __device__ float4 *state_quads(const args &a, uint32_t task, uint32_t head) {
    return reinterpret_cast<float4 *>(state_of<D>(a, task, head));
}

/* Kernel 1. states (n_tasks, n_heads, head_dim, head_dim): of each chunk that is full after this
 * step the sum of (decay^(C - 1 - s) k[s])^T v[s]. Grid: tasks, heads. */
template <int D> CUDA_KERNEL(THREADS) linear_attention_chunks(CUDA_ARGS(args) a) {
    enum { C = sizes<D>::C, QUADS = sizes<D>::QUADS };
    __shared__ float4 kt[C * QUADS], vt[C * QUADS];
    pdl_launch();
    pdl_wait();
    const uint32_t head = blockIdx.y;
    const struct part p = task_part<D>(a, a.op.first_task + blockIdx.x);
    if (!p.there || p.last != C - 1) return;
    const float *k_kept = slot_of<D>(a, p.slot, head) + sizes<D>::STATE, *v_kept = k_kept + C * D;
    const float g = decay_of(a, head);
    for (uint32_t e = threadIdx.x; e < C * QUADS; e += THREADS) {
        const uint32_t s = e / QUADS, i = e % QUADS;
        kt[e] = times(quad_at<D>(a, p, a.k, k_kept, head, s, i), power(g, C - 1 - s));
        vt[e] = quad_at<D>(a, p, a.v, v_kept, head, s, i);
    }
    __syncthreads();
    float4 *out = state_quads<D>(a, blockIdx.x, head);
    for (uint32_t e = threadIdx.x; e < QUADS * QUADS; e += THREADS) {
        const uint32_t i = e / QUADS, j = e % QUADS; /* 4 x 4 values of the product */
        float4 acc[4] = {zero4(), zero4(), zero4(), zero4()};
#pragma unroll 4
        for (uint32_t s = 0; s < C; s++) {
            const float4 kq = kt[s * QUADS + i], vq = vt[s * QUADS + j];
            acc[0] = fma4(kq.x, vq, acc[0]);
            acc[1] = fma4(kq.y, vq, acc[1]);
            acc[2] = fma4(kq.z, vq, acc[2]);
            acc[3] = fma4(kq.w, vq, acc[3]);
        }
#pragma unroll
        for (uint32_t x = 0; x < 4; x++)
            out[(4 * i + x) * QUADS + j] = acc[x];
    }
}

/* Kernel 2: the scan over the chunks of a sequence. For each chunk that this pass fills, states
 * becomes the S before it; the slot receives the S after the last. Each thread has four values
 * of S. Grid: parts of S, heads, sequences. */
template <int D> CUDA_KERNEL(THREADS) linear_attention_scan(CUDA_ARGS(args) a) {
    enum { C = sizes<D>::C };
    pdl_launch();
    pdl_wait();
    const uint32_t at = blockIdx.x * THREADS + threadIdx.x, head = blockIdx.y, seq = blockIdx.z;
    const struct rows r = rows_of(a, seq);
    if (!r.there) return;
    const uint32_t base = first_task<D>(a, seq), first = r.pos / C,
                   n_full = (r.pos + r.n) / C - first;
    const uint32_t begin = max(base, a.op.first_task),
                   end = min(base + n_full, a.op.first_task + a.op.n_tasks);
    if (begin >= end) return;
    float4 *kept = reinterpret_cast<float4 *>(slot_of<D>(a, r.slot, head)) + at;
    const float far = power(decay_of(a, head), C);
    float4 s = first + begin - base ? *kept : zero4();
    for (uint32_t t = begin; t < end; t += AHEAD) {
        float4 of_chunk[AHEAD]; /* loaded together: only the additions are sequential */
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            of_chunk[i] =
                t + i < end ? state_quads<D>(a, t + i - a.op.first_task, head)[at] : zero4();
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) {
            if (t + i >= end) break;
            state_quads<D>(a, t + i - a.op.first_task, head)[at] = s;
            s = fma4(far, s, of_chunk[i]);
        }
    }
    *kept = s;
}

/* decay^(r - s) (q[r] . k[s]) of the chunk's rows of this step: scores (C, C), of s <= r. */
template <int D>
__device__ void make_scores(const struct part &p, float g, const float4 *qt, const float4 *kt,
                            float *scores) {
    enum { C = sizes<D>::C, QUADS = sizes<D>::QUADS };
    for (uint32_t e = threadIdx.x; e < C * C; e += THREADS) {
        const uint32_t r = e / C, s = e % C;
        if (r < p.first || r > p.last || s > r) continue;
        float4 acc = zero4();
        for (uint32_t i = 0; i < QUADS; i++)
            acc = fma4(qt[r * QUADS + i], kt[s * (QUADS + 1) + i], acc);
        scores[e] = sum4(acc) * power(g, r - s);
    }
}

/* q[r] S, column col, of the rows first .. first + 7. S is read once for all of them. */
template <int D>
__device__ void sums_before(float sums[ROWS], const float4 *qt, const float *s, uint32_t first,
                            uint32_t col) {
    float4 acc[ROWS];
#pragma unroll
    for (uint32_t x = 0; x < ROWS; x++)
        acc[x] = zero4();
#pragma unroll 2
    for (uint32_t i = 0; i < D / 4; i++) {
        const float *at = s + 4 * i * D + col;
        const float4 sq = make_float4(at[0], at[D], at[2 * D], at[3 * D]);
#pragma unroll
        for (uint32_t x = 0; x < ROWS; x++)
            acc[x] = fma4(qt[(first + x) * (D / 4) + i], sq, acc[x]);
    }
#pragma unroll
    for (uint32_t x = 0; x < ROWS; x++)
        sums[x] = sum4(acc[x]);
}

/* Kernel 3: outputs of the step's rows of one chunk. Each thread has one column of eight rows.
 * Rows of K are padded by one float4 against bank conflicts. Grid: tasks, heads. */
template <int D> CUDA_KERNEL(THREADS) linear_attention_outputs(CUDA_ARGS(args) a) {
    enum { C = sizes<D>::C, QUADS = sizes<D>::QUADS };
    __shared__ float4 qt[C * QUADS], vt[C * QUADS], kt[C * (QUADS + 1)];
    __shared__ float scores[C * C];
    pdl_launch();
    pdl_wait();
    const uint32_t head = blockIdx.y;
    const struct part p = task_part<D>(a, a.op.first_task + blockIdx.x);
    if (!p.there) return;
    const float *slot = slot_of<D>(a, p.slot, head);
    const float *k_kept = slot + sizes<D>::STATE, *v_kept = k_kept + C * D;
    for (uint32_t e = threadIdx.x; e < C * QUADS; e += THREADS) {
        const uint32_t r = e / QUADS, i = e % QUADS;
        qt[e] = r >= p.first && r <= p.last ? quad_at<D>(a, p, a.q, a.q, head, r, i) : zero4();
        if (r > p.last) continue;
        kt[r * (QUADS + 1) + i] = quad_at<D>(a, p, a.k, k_kept, head, r, i);
        vt[e] = quad_at<D>(a, p, a.v, v_kept, head, r, i);
    }
    __syncthreads();
    const float g = decay_of(a, head);
    make_scores<D>(p, g, qt, kt, scores);
    __syncthreads();
    const uint32_t col = threadIdx.x % D, first = threadIdx.x / D * ROWS;
    if (first > p.last || first + ROWS <= p.first) return;
    float sums[ROWS];
    /* A partial chunk has no entry in states: the S before it is the slot's. */
    const float *before = p.last == C - 1 ? state_of<D>(a, blockIdx.x, head) : slot;
    if (p.chunk != 0) sums_before<D>(sums, qt, before, first, col);
    const float *v = reinterpret_cast<const float *>(vt);
#pragma unroll
    for (uint32_t x = 0; x < ROWS; x++) {
        const uint32_t r = first + x;
        if (r < p.first || r > p.last) continue;
        float acc = p.chunk != 0 ? sums[x] * power(g, r + 1) : 0.0f;
        for (uint32_t s = 0; s <= r; s++)
            acc = fmaf(scores[r * C + s], v[s * D + col], acc);
        a.out[((uint64_t)(uint32_t)(p.row + (int32_t)r) * a.op.n_heads + head) * D + col] =
            acc * a.op.scale;
    }
}

/* Kernel 4, after all others: stores the step's rows of a partial chunk in the slot. Grid:
 * heads, sequences. */
template <int D> CUDA_KERNEL(THREADS) linear_attention_keep(CUDA_ARGS(args) a) {
    enum { C = sizes<D>::C, QUADS = sizes<D>::QUADS };
    pdl_launch();
    pdl_wait();
    const uint32_t head = blockIdx.x;
    const struct rows r = rows_of(a, blockIdx.y);
    if (!r.there) return;
    const struct part p = part_of<D>(r, (r.pos + r.n - 1) / C);
    if (p.last == C - 1) return;
    float4 *k_kept = reinterpret_cast<float4 *>(slot_of<D>(a, p.slot, head) + sizes<D>::STATE);
    float4 *v_kept = k_kept + C * QUADS;
    for (uint32_t e = p.first * QUADS + threadIdx.x; e < (p.last + 1) * QUADS; e += THREADS) {
        k_kept[e] = quad_at<D>(a, p, a.k, a.k, head, e / QUADS, e % QUADS);
        v_kept[e] = quad_at<D>(a, p, a.v, a.v, head, e / QUADS, e % QUADS);
    }
}

/* q S by one row's threads: thread (class, column) sums its class. parts (4, head_dim). */
template <int D> __device__ void step_before(const float *q, const float *s, float *parts) {
    const uint32_t cls = threadIdx.x / D, col = threadIdx.x % D;
    float acc = 0.0f;
#pragma unroll 8
    for (uint32_t i = 0; i < D / 4; i++)
        acc = fmaf(q[4 * i + cls], s[(4 * i + cls) * D + col], acc);
    parts[threadIdx.x] = acc;
}

/* Adds the chunk that the step's row fills to the slot's S. Thread (class, column) holds what it
 * read in step_before. kt (C, head_dim): the decayed K. */
template <int D>
__device__ void step_close(const args &a, const struct part &p, const float *v_kept,
                           const float *kt, float *state, float far, uint32_t head) {
    enum { C = sizes<D>::C };
    const uint32_t cls = threadIdx.x / D, col = threadIdx.x % D;
    float v[C];
#pragma unroll
    for (uint32_t s = 0; s < C; s++)
        v[s] = row_at<D>(a, p, a.v, v_kept, head, s)[col];
    for (uint32_t i = cls; i < D; i += 4) {
        float acc = 0.0f;
#pragma unroll
        for (uint32_t s = 0; s < C; s++)
            acc = fmaf(kt[s * D + i], v[s], acc);
        float *at = state + i * D + col;
        *at = fmaf(far, p.chunk != 0 ? *at : 0.0f, acc);
    }
}

/* The single kernel for steps with one row per sequence: S is read once; the slot receives the
 * row, or S receives the full chunk. 4 head_dim threads. Grid: heads, sequences. */
template <int D> CUDA_KERNEL(4 * D) linear_attention_step(CUDA_ARGS(args) a) {
    enum { C = sizes<D>::C, QUADS = sizes<D>::QUADS };
    __shared__ float4 qt[QUADS], kt[C * QUADS];
    __shared__ float scores[C], parts[4 * D];
    pdl_launch();
    pdl_wait();
    const uint32_t head = blockIdx.x, tid = threadIdx.x;
    const struct rows rows = rows_of(a, blockIdx.y);
    if (!rows.there || rows.n != 1) return;
    const struct part p = part_of<D>(rows, rows.pos / C);
    const uint32_t r = p.last;
    const float g = decay_of(a, head);
    float *slot = slot_of<D>(a, p.slot, head), *k_kept = slot + sizes<D>::STATE,
          *v_kept = k_kept + C * D;
    if (tid < QUADS) qt[tid] = quad_at<D>(a, p, a.q, a.q, head, r, tid);
    __syncthreads();
    if (p.chunk != 0) step_before<D>(reinterpret_cast<const float *>(qt), slot, parts);
    if (tid <= r) {
        float4 acc = zero4();
        for (uint32_t i = 0; i < QUADS; i++)
            acc = fma4(qt[i], quad_at<D>(a, p, a.k, k_kept, head, tid, i), acc);
        scores[tid] = sum4(acc) * power(g, r - tid);
    }
    if (r == C - 1)
        for (uint32_t e = tid; e < C * QUADS; e += 4 * D)
            kt[e] = times(quad_at<D>(a, p, a.k, k_kept, head, e / QUADS, e % QUADS),
                          power(g, C - 1 - e / QUADS));
    __syncthreads();
    if (tid < D) {
        float acc = 0.0f;
        if (p.chunk != 0)
            acc = sum4(make_float4(parts[tid], parts[D + tid], parts[2 * D + tid],
                                   parts[3 * D + tid])) *
                  power(g, r + 1);
        for (uint32_t s = 0; s <= r; s++)
            acc = fmaf(scores[s], row_at<D>(a, p, a.v, v_kept, head, s)[tid], acc);
        a.out[((uint64_t)rows.row * a.op.n_heads + head) * D + tid] = acc * a.op.scale;
    }
    if (r == C - 1)
        step_close<D>(a, p, v_kept, reinterpret_cast<const float *>(kt), slot, power(g, C), head);
    else if (tid < QUADS) {
        reinterpret_cast<float4 *>(k_kept)[r * QUADS + tid] =
            quad_at<D>(a, p, a.k, a.k, head, r, tid);
        reinterpret_cast<float4 *>(v_kept)[r * QUADS + tid] =
            quad_at<D>(a, p, a.v, a.v, head, r, tid);
    }
}

template <int D> const void *kernel_of(enum cuda_linear_kernel kernel) {
    switch (kernel) {
    case CUDA_LINEAR_CHUNKS:
        return (const void *)linear_attention_chunks<D>;
    case CUDA_LINEAR_SCAN:
        return (const void *)linear_attention_scan<D>;
    case CUDA_LINEAR_OUTPUTS:
        return (const void *)linear_attention_outputs<D>;
    case CUDA_LINEAR_KEEP:
        return (const void *)linear_attention_keep<D>;
    case CUDA_LINEAR_STEP:
        return (const void *)linear_attention_step<D>;
    }
    return nullptr;
}

} // namespace

const void *cuda_linear_attention_kernel(enum cuda_linear_kernel kernel, uint32_t head_dim) {
    return head_dim == 64 ? kernel_of<64>(kernel) : kernel_of<128>(kernel);
}
