/* delta_prefill.cu - the gated delta net over several rows of a sequence (prefill).
 *
 * Columns of S and U do not depend on each other. A block takes CUDA_DELTA_COLS columns of one V
 * head through all chunks of a sequence, with its part of S in registers: a warp has a quarter of
 * the dimensions of K, a lane a column. S is read once and written once in a step, however many
 * chunks there are. The dot products of K with K and Q, which all columns and V heads of a K head
 * share, and the norm of the output, which needs all columns, are kernels of their own.
 *
 * ORDER OF SUMS: as in delta_net.cu, which makes the same rows one at a time: the same bits. */
#include "shaders/cuda/delta_net.cuh"
#include "shaders/cuda/kernels.h"

namespace {

enum {
    COLS = CUDA_DELTA_COLS,
    ROWS = CUDA_DELTA_ROWS, /* that share a pass over S */
    WARPS = QUARTERS,
    THREADS = 32 * WARPS,
    LOADS = ROWS * DIM / 4 / THREADS, /* of four values, by a thread for all rows */
    STEP = DIM / QUARTERS             /* most dimensions of a warp */
};

struct tile {
    float k[CHUNK][DIM]; /* of the chunk; while it is folded: times its decay to the chunk's end */
    float u[CHUNK][COLS];
    float g[CHUNK];
    /* Of the rows under way. */
    float q[ROWS][DIM], v[ROWS][COLS], beta[ROWS];
    float parts[QUARTERS][2 * ROWS][COLS];      /* of S^T k and S^T q */
    float by_k[CHUNK][ROWS], by_q[CHUNK][ROWS]; /* [j][i]: e^(G[i] - G[j]) k[j].k[i], k[j].q[i] */
};

/* The columns of one V head of one sequence that a block has. */
struct cols {
    struct rows r;
    uint32_t v_head, k_head, first, n; /* columns */
    const float *q, *k, *v;            /* of the step's first row, after the convolution */
    uint64_t in_stride, u_stride, k_stride;
    float a, dt_bias;
    bool has_s;
};

__device__ void load_pending(const args &a, const struct cols &h, struct tile &t, uint32_t n) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (uint32_t j = warp; j < n; j += WARPS) {
        for (uint32_t d = lane; d < a.k_dim; d += 32)
            t.k[j][d] = h.r.live[a.state.k + j * h.k_stride + (uint64_t)h.k_head * a.k_dim + d];
        if (lane < h.n)
            t.u[j][lane] = h.r.live[a.state.u + j * h.u_stride + (uint64_t)h.v_head * a.v_dim +
                                    h.first + lane];
        if (lane == 0) t.g[j] = h.r.live[a.state.g + (uint64_t)j * a.n_v_heads + h.v_head];
    }
}

/* What `n` rows of the step from `row` on read of memory; they are at offset `at` of their chunk.
 */
struct group {
    uint32_t row, at, n;
    float4 k[LOADS], q[LOADS];
    float v[LOADS], by_k[LOADS], by_q[LOADS]; /* pairs of row tid / 32 + m * WARPS, offset lane */
    float alpha, beta;                        /* of row `lane`; first warp */
};

/* Loads a group's values ahead, while the group before it computes: a block has little else to hide
 * the latency of memory with. */
__device__ void load_rows(const args &a, const struct cols &h, struct group &g) {
    const uint32_t tid = threadIdx.x, width = a.k_dim / 4, lane = tid % 32;
#pragma unroll
    for (uint32_t m = 0; m < LOADS; m++) {
        const uint32_t at4 = tid + m * THREADS, i = at4 / width, j = at4 % width;
        const uint32_t one = tid / 32 + m * WARPS;
        if (i < g.n) {
            g.k[m] = *(const float4 *)&h.k[(g.row + i) * h.in_stride + 4 * j];
            g.q[m] = *(const float4 *)&h.q[(g.row + i) * h.in_stride + 4 * j];
        }
        if (one >= g.n) continue;
        if (lane < h.n) g.v[m] = h.v[(g.row + one) * h.in_stride + h.first + lane];
        if (lane <= g.at + one) {
            const float *pairs =
                a.pairs +
                ((uint64_t)(h.r.first + g.row + one) * a.n_k_heads + h.k_head) * 2 * a.chunk;
            g.by_k[m] = pairs[lane];
            g.by_q[m] = pairs[a.chunk + lane];
        }
    }
    if (tid < g.n) {
        const uint64_t of_step = (uint64_t)(h.r.first + g.row + tid) * a.n_v_heads + h.v_head;
        g.alpha = a.alpha[of_step];
        g.beta = a.beta[of_step];
    }
}

__device__ void keep_rows(const args &a, const struct cols &h, struct tile &t,
                          const struct group &g) {
    const uint32_t tid = threadIdx.x, width = a.k_dim / 4, lane = tid % 32, at = g.at, n = g.n;
    if (tid < 32) {
        const float rate = softplus(g.alpha + h.dt_bias);
        float decay = at != 0 ? t.g[at - 1] : 0.0f;
        if (lane < n) t.beta[lane] = sigmoid(g.beta);
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i++) {
            decay = fmaf(h.a, __shfl_sync(CUDA_ALL, rate, i), decay);
            if (i < n && lane == i) t.g[at + i] = decay;
        }
    }
#pragma unroll
    for (uint32_t m = 0; m < LOADS; m++) {
        const uint32_t at4 = tid + m * THREADS, i = at4 / width, j = at4 % width;
        const uint32_t one = tid / 32 + m * WARPS;
        if (i < n) {
            *(float4 *)&t.k[at + i][4 * j] = g.k[m];
            *(float4 *)&t.q[i][4 * j] = g.q[m];
        }
        if (one < n && lane < h.n) t.v[one][lane] = g.v[m];
    }
}

/* Each warp's part of S^T k and S^T q of ROWS rows from offset `at` of the chunk on; of rows that
 * are not there it is never read. */
__device__ void project(const args &a, struct tile &t, const float (&s)[STEP], uint32_t at) {
    const uint32_t lane = threadIdx.x % 32, quarter = threadIdx.x / 32, step = a.k_dim / QUARTERS;
    float by_k[ROWS], by_q[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        by_k[i] = by_q[i] = 0.0f;
#pragma unroll
    for (uint32_t d = 0; d < STEP; d += 4) {
        if (d >= step) break;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const uint32_t row = min(at + (uint32_t)i, (uint32_t)CHUNK - 1);
            const float4 k = *(const float4 *)&t.k[row][quarter * step + d];
            const float4 q = *(const float4 *)&t.q[i][quarter * step + d];
            by_k[i] = fmaf(s[d], k.x, by_k[i]);
            by_k[i] = fmaf(s[d + 1], k.y, by_k[i]);
            by_k[i] = fmaf(s[d + 2], k.z, by_k[i]);
            by_k[i] = fmaf(s[d + 3], k.w, by_k[i]);
            by_q[i] = fmaf(s[d], q.x, by_q[i]);
            by_q[i] = fmaf(s[d + 1], q.y, by_q[i]);
            by_q[i] = fmaf(s[d + 2], q.z, by_q[i]);
            by_q[i] = fmaf(s[d + 3], q.w, by_q[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        t.parts[quarter][2 * i][lane] = by_k[i];
        t.parts[quarter][2 * i + 1][lane] = by_q[i];
    }
}

/* What each row takes of the rows before it in the chunk, and of itself. */
__device__ void find_pairs(struct tile &t, const struct group &g) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t m = 0; m < LOADS; m++) {
        const uint32_t i = threadIdx.x / 32 + m * WARPS;
        if (i >= g.n || lane > g.at + i) continue;
        const float near = expf(t.g[g.at + i] - t.g[lane]);
        t.by_k[lane][i] = near * g.by_k[m];
        t.by_q[lane][i] = lane == g.at + i ? g.by_q[m] : near * g.by_q[m];
    }
}

__device__ float far_sum(const struct tile &t, uint32_t part, uint32_t lane) {
    return (t.parts[0][part][lane] + t.parts[1][part][lane]) +
           (t.parts[2][part][lane] + t.parts[3][part][lane]);
}

/* U of the rows: one warp, a column each. A row's sum is complete when the rows before it are. */
__device__ void find_u(const struct cols &h, struct tile &t, uint32_t at, uint32_t n) {
    const uint32_t lane = threadIdx.x % 32;
    float u[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        u[i] = lane < h.n && i < n ? t.v[i][lane] : 0.0f;
        if (h.has_s && i < n) u[i] = fmaf(-expf(t.g[at + i]), far_sum(t, 2 * i, lane), u[i]);
    }
#pragma unroll 4
    for (uint32_t j = 0; j < at; j++) {
        const float uj = t.u[j][lane];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            u[i] = fmaf(-t.by_k[j][i], uj, u[i]);
    }
#pragma unroll
    for (int j = 0; j < ROWS; j++) {
        if (j >= n) break;
        u[j] *= t.beta[j];
        t.u[at + j][lane] = u[j];
#pragma unroll
        for (int i = j + 1; i < ROWS; i++)
            u[i] = fmaf(-t.by_k[at + j][i], u[j], u[i]);
    }
}

/* The output of the rows before its norm. */
__device__ void find_output(const args &a, const struct cols &h, const struct tile &t, uint32_t row,
                            uint32_t at, uint32_t n) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (uint32_t i = warp; i < n; i += WARPS) {
        float o = h.has_s ? expf(t.g[at + i]) * far_sum(t, 2 * i + 1, lane) : 0.0f;
#pragma unroll 4
        for (uint32_t j = 0; j <= at + i; j++)
            o = fmaf(t.by_q[j][i], t.u[j][lane], o);
        if (lane < h.n)
            a.out[(uint64_t)(h.r.first + row + i) * h.u_stride + (uint64_t)h.v_head * a.v_dim +
                  h.first + lane] = o;
    }
}

/* S at the boundary that ends the chunk. */
__device__ void fold(const args &a, const struct cols &h, struct tile &t, float (&s)[STEP]) {
    const uint32_t lane = threadIdx.x % 32, quarter = threadIdx.x / 32, step = a.k_dim / QUARTERS;
    const float last = t.g[a.chunk - 1], far = expf(last);
    __syncthreads();
#pragma unroll 4
    for (uint32_t at4 = threadIdx.x; at4 < a.chunk * (a.k_dim / 4); at4 += THREADS) {
        const uint32_t j = at4 / (a.k_dim / 4);
        const float near = expf(last - t.g[j]);
        float4 &k = *(float4 *)&t.k[j][4 * (at4 % (a.k_dim / 4))];
        k.x *= near;
        k.y *= near;
        k.z *= near;
        k.w *= near;
    }
    __syncthreads();
#pragma unroll
    for (uint32_t d = 0; d < STEP; d++)
        s[d] = h.has_s ? far * s[d] : 0.0f;
#pragma unroll 2
    for (uint32_t j = 0; j < a.chunk; j++) {
        const float u = t.u[j][lane];
#pragma unroll
        for (uint32_t d = 0; d < STEP; d += 4) {
            if (d >= step) break;
            const float4 k = *(const float4 *)&t.k[j][quarter * step + d];
            s[d] = fmaf(k.x, u, s[d]);
            s[d + 1] = fmaf(k.y, u, s[d + 1]);
            s[d + 2] = fmaf(k.z, u, s[d + 2]);
            s[d + 3] = fmaf(k.w, u, s[d + 3]);
        }
    }
}

/* Reads or writes the block's part of S: element (d, column) of a head is at d * v_dim + column. */
__device__ const float *s_at(const args &a, const struct cols &h, const float *block) {
    const uint32_t quarter = threadIdx.x / 32, lane = threadIdx.x % 32;
    return block + ((uint64_t)h.v_head * a.k_dim + quarter * (a.k_dim / QUARTERS)) * a.v_dim +
           h.first + lane;
}

__device__ void keep_u(const args &a, const struct cols &h, const struct tile &t, uint32_t from,
                       uint32_t to) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (uint32_t j = from + warp; j < to; j += WARPS)
        if (lane < h.n)
            h.r.live[a.state.u + j * h.u_stride + (uint64_t)h.v_head * a.v_dim + h.first + lane] =
                t.u[j][lane];
}

__device__ struct cols cols_of(const args &a) {
    struct cols h;
    h.r = rows_of(a, blockIdx.y);
    const uint32_t parts = (a.v_dim + COLS - 1) / COLS;
    h.v_head = blockIdx.x / parts;
    h.k_head = k_head_of(a, h.v_head);
    h.first = blockIdx.x % parts * COLS;
    h.n = min((uint32_t)COLS, a.v_dim - h.first);
    h.in_stride = channels_of(a);
    h.u_stride = (uint64_t)a.n_v_heads * a.v_dim;
    h.k_stride = (uint64_t)a.n_k_heads * a.k_dim;
    const float *work = a.work + h.r.first * h.in_stride;
    h.q = work + (uint64_t)h.k_head * a.k_dim;
    h.k = work + (uint64_t)(a.n_k_heads + h.k_head) * a.k_dim;
    h.v = work + (uint64_t)(2 * a.n_k_heads + h.v_head) * a.k_dim;
    h.a = a.a[h.v_head];
    h.dt_bias = a.dt_bias[h.v_head];
    h.has_s = h.r.pos >= a.chunk;
    return h;
}

/* Grid: K heads; rows. A warp has every fourth of the rows up to its own in the chunk. */
CUDA_KERNEL(THREADS) delta_pairs(CUDA_ARGS(struct cargs_delta_net) a) {
    pdl_launch();
    pdl_wait();
    const uint32_t lane = threadIdx.x % 32, row = blockIdx.y, k_head = blockIdx.x;
    const struct rows r = rows_of(a, seq_of(a, row));
    if (!r.there) return;
    const uint64_t stride = channels_of(a), of_head = (uint64_t)k_head * a.k_dim;
    const uint32_t pos = r.pos + row - r.first, at = pos % a.chunk;
    const float *q = a.work + row * stride + of_head, *k = q + (uint64_t)a.n_k_heads * a.k_dim;
    float *pairs = a.pairs + ((uint64_t)row * a.n_k_heads + k_head) * 2 * a.chunk;
    for (uint32_t j = threadIdx.x / 32; j <= at; j += WARPS) {
        const uint32_t back = at - j; /* rows; those before the step are pending in the block */
        const float *kj = back <= row - r.first
                              ? k - back * stride
                              : r.live + a.state.k + (uint64_t)j * a.n_k_heads * a.k_dim + of_head;
        float by_k = 0.0f, by_q = 0.0f;
#pragma unroll
        for (uint32_t m = 0; m < DIM / 32; m++) {
            const uint32_t d = lane + 32 * m;
            if (d >= a.k_dim) break;
            by_k = fmaf(kj[d], k[d], by_k);
            by_q = fmaf(kj[d], q[d], by_q);
        }
        by_k = warp_sum(by_k);
        by_q = warp_sum(by_q);
        if (lane == 0) pairs[j] = by_k, pairs[a.chunk + j] = by_q;
    }
}

/* Grid: columns of V heads; sequences. */
CUDA_KERNEL(THREADS) delta_prefill(CUDA_ARGS(struct cargs_delta_net) a) {
    __shared__ struct tile t;
    pdl_launch();
    pdl_wait();
    struct cols h = cols_of(a);
    if (!h.r.there) return;
    const uint32_t step = a.k_dim / QUARTERS;
    const bool mine = threadIdx.x % 32 < h.n;
    float s[STEP];
    const float *from = s_at(a, h, h.r.source);
#pragma unroll
    for (uint32_t d = 0; d < STEP; d++)
        s[d] = h.has_s && mine && d < step ? from[(uint64_t)d * a.v_dim] : 0.0f;
    bool folded = false;
    struct group g;
    g.row = 0;
    g.at = h.r.pos % a.chunk;
    g.n = min(min((uint32_t)ROWS, a.chunk - g.at), h.r.n);
    load_rows(a, h, g);
    const uint32_t begin = g.at; /* of the first chunk */
    if (begin != 0) load_pending(a, h, t, begin);
    __syncthreads();
    while (g.n != 0) {
        const uint32_t row = g.row, at = g.at, n = g.n;
        keep_rows(a, h, t, g);
        __syncthreads();
        find_pairs(t, g);
        g.row += n;
        g.at = at + n < a.chunk ? at + n : 0;
        g.n = min(min((uint32_t)ROWS, a.chunk - g.at), h.r.n - g.row);
        load_rows(a, h, g);
        if (h.has_s) project(a, t, s, at);
        __syncthreads();
        if (threadIdx.x < 32) find_u(h, t, at, n);
        __syncthreads();
        find_output(a, h, t, row, at, n);
        __syncthreads();
        if (g.at == 0) {
            fold(a, h, t, s);
            h.has_s = folded = true;
            __syncthreads();
        } else if (g.n == 0) {
            keep_u(a, h, t, folded ? 0 : begin, g.at);
        }
    }
    if (!folded || !mine) return;
    float *to = (float *)s_at(a, h, h.r.live);
#pragma unroll
    for (uint32_t d = 0; d < STEP; d++)
        if (d < step) to[(uint64_t)d * a.v_dim] = s[d];
}

/* Grid: V heads, a warp each; rows. */
CUDA_KERNEL(CUDA_DELTA_NORM_HEADS * 32) delta_norm(CUDA_ARGS(struct cargs_delta_net) a) {
    pdl_launch();
    pdl_wait();
    const uint32_t lane = threadIdx.x % 32, row = blockIdx.y;
    const uint32_t v_head = blockIdx.x * CUDA_DELTA_NORM_HEADS + threadIdx.x / 32;
    if (v_head >= a.n_v_heads) return;
    const uint64_t at = ((uint64_t)row * a.n_v_heads + v_head) * a.v_dim;
    const bool there = a.pos[row] >= 0; /* padding's output is finite */
    float sum = 0.0f;
    for (uint32_t d = lane; d < a.v_dim; d += 32)
        sum = fmaf(a.out[at + d], a.out[at + d], sum);
    const float scale = 1.0f / sqrtf(warp_sum(sum) / (float)a.v_dim + a.eps);
    for (uint32_t d = lane; d < a.v_dim; d += 32) {
        const float z = a.z[at + d];
        a.out[at + d] = there ? a.out[at + d] * scale * a.norm[d] * z * sigmoid(z) : 0.0f;
    }
}

} // namespace

const void *cuda_delta_prefill_kernel(enum cuda_delta_kernel kernel) {
    if (kernel == CUDA_DELTA_PAIRS) return (const void *)delta_pairs;
    return kernel == CUDA_DELTA_PREFILL ? (const void *)delta_prefill : (const void *)delta_norm;
}
