/* delta_net.cu - linear attention over state blocks (op_linear_attention, state_layout.h): gated
 * delta nets and Mamba-2.
 *
 * Three kernels: the convolution of each head of each row; the rows of each V head of each
 * sequence; what the next step reads of the inputs, which must not be written before all heads have
 * read it. The second one takes one row per sequence, of Mamba-2 also up to CUDA_DELTA_ROWS of one
 * chunk at a time; several rows of a delta net are delta_prefill.cu's.
 *
 * ORDER OF SUMS: S^T x in four quarters of the dimensions, ascending in each, then (0 + 1) + (2 +
 * 3); over pending rows ascending; dot products by the lanes of a warp, dimensions ascending in
 * each, then warp_sum. So a row's bits do not depend on how its sequence was cut into steps. */
#include "shaders/cuda/delta_net.cuh"
#include "shaders/cuda/kernels.h"

namespace {

enum {
    DIM_K = 256, /* most columns of a head of Mamba-2's K */
    WARPS = CUDA_DELTA_THREADS / 32
};

/* softplus(alpha + dt_bias) of a row of the step: times a, the logarithm of the V head's decay. */
__device__ float step_size(const args &a, uint32_t row, uint32_t v_head) {
    return softplus(a.alpha[(uint64_t)row * a.n_v_heads + v_head] + a.dt_bias[v_head]);
}

/* Channels before K and before V: a delta net has Q, K, V, Mamba-2 V, K, Q. */
__device__ uint64_t k_at(const args &a) {
    const uint64_t values = (uint64_t)a.n_v_heads * a.v_dim;
    return a.beta != nullptr ? (uint64_t)a.n_k_heads * a.k_dim : values;
}

/* Channel c of input `rel`, counted from the sequence's first row in this step. */
__device__ float input_at(const args &a, const struct rows &r, int32_t rel, uint64_t c) {
    if (rel >= 0) return a.qkv[(uint64_t)(r.first + (uint32_t)rel) * channels_of(a) + c];
    return window_at(a, r, channels_of(a), rel, c);
}

/* Channel c of a row after the convolution, whose sum begins with bias. */
__device__ float convolve(const args &a, const struct rows &r, uint32_t row, uint64_t c,
                          float bias) {
    float y = bias;
    for (uint32_t t = 0; t < a.n_taps; t++)
        y = fmaf(a.conv[c * a.n_taps + t],
                 input_at(a, r, (int32_t)(row - r.first + t + 1) - (int32_t)a.n_taps, c), y);
    return y * sigmoid(y);
}

/* Grid: heads of Q, K and V; rows. A thread for each dimension. */
CUDA_KERNEL(DIM) delta_conv(CUDA_ARGS(struct cargs_delta_net) a) {
    __shared__ float sums[DIM / 32];
    pdl_launch();
    pdl_wait();
    const uint32_t head = blockIdx.x, row = blockIdx.y, i = threadIdx.x;
    const struct rows r = rows_of(a, seq_of(a, row));
    if (!r.there) return;
    const uint64_t c = (uint64_t)head * a.k_dim + i;
    float y = 0.0f;
    if (i < a.k_dim) y = convolve(a, r, row, c, 0.0f);
    if (head < 2 * a.n_k_heads) {
        const float part = warp_sum(y * y);
        if (i % 32 == 0) sums[i / 32] = part;
        __syncthreads();
        float sum = 0.0f;
        for (uint32_t w = 0; w < DIM / 32; w++)
            sum += sums[w];
        y *= (head < a.n_k_heads ? a.q_scale : 1.0f) / sqrtf(sum + 1e-6f);
    }
    if (i < a.k_dim) a.work[(uint64_t)row * channels_of(a) + c] = y;
}

/* Grid: parts of DIM channels, rows. */
CUDA_KERNEL(DIM) mamba2_conv(CUDA_ARGS(struct cargs_delta_net) a) {
    pdl_launch();
    pdl_wait();
    const uint64_t c = (uint64_t)blockIdx.x * DIM + threadIdx.x;
    const uint32_t row = blockIdx.y;
    const struct rows r = rows_of(a, seq_of(a, row));
    if (!r.there || c >= channels_of(a)) return;
    a.work[(uint64_t)row * channels_of(a) + c] =
        convolve(a, r, row, c, a.conv_bias != nullptr ? a.conv_bias[c] : 0.0f);
}

/* One V head of one sequence. */
struct head {
    const float *q, *k, *v; /* of the first row, after the convolution */
    uint64_t in_stride, cols, k_cols;
    uint32_t v_head, k_head;
};

/* What a block keeps of N rows. parts: of S^T q in slot EACH * i + EACH - 1, of a delta net's S^T k
 * in slot 2 * i; o in slot EACH * i of [0] afterwards. */
template <int N, bool DELTA> struct tile {
    enum { EACH = DELTA ? 2 : 1, COLS = DELTA ? (int)DIM : (int)DIM_K };
    float k[N][COLS], q[N][COLS];
    float parts[QUARTERS][EACH * N][DIM];
    float g[CHUNK], beta[N];              /* beta: of Mamba-2 dt */
    float by_k[N][CHUNK], by_q[N][CHUNK]; /* e^(G[i] - G[j]) times k[j].k[i], k[j].q[i] */
};

__device__ const float *k_row(const args &a, const struct rows &r, const struct head &h,
                              uint32_t at, uint32_t from, uint32_t row) {
    return at < from ? r.live + a.state.k + at * h.k_cols + (uint64_t)h.k_head * a.k_dim
                     : h.k + (uint64_t)(row + at - from) * h.in_stride;
}

/* Norm (of a delta net) and gate of n rows; first: place of the head's first row in z and out. */
template <int N, bool DELTA>
__device__ void write_rows(const args &a, uint64_t first, const struct tile<N, DELTA> &t,
                           uint32_t n) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = a.v_dim;
    for (uint32_t i = warp; i < n; i += WARPS) {
        const uint64_t at = first + (uint64_t)i * a.n_v_heads * dim;
        const float *o = t.parts[0][tile<N, DELTA>::EACH * i];
        float sum = 0.0f;
        for (uint32_t d = lane; DELTA && d < dim; d += 32)
            sum = fmaf(o[d], o[d], sum);
        const float scale = DELTA ? 1.0f / sqrtf(warp_sum(sum) / (float)dim + a.eps) : 1.0f;
        for (uint32_t d = lane; d < dim; d += 32) {
            const float z = a.z[at + d], x = DELTA ? o[d] * scale * a.norm[d] : o[d];
            a.out[at + d] = x * z * sigmoid(z);
        }
    }
}

/* Rows `from` .. `from` + n - 1 of a chunk; the first of them is row `row` of the sequence in this
 * step. s: the state at the chunk's boundary, or NULL. chunk_from: the chunk's pending rows before
 * this step. */
template <int N, bool DELTA>
__device__ void make_rows(const args &a, const struct rows &r, const struct head &h,
                          struct tile<N, DELTA> &t, const float *s, uint32_t row, uint32_t from,
                          uint32_t n, uint32_t chunk_from) {
    enum { EACH = DELTA ? 2 : 1 };
    const uint32_t tid = threadIdx.x, col = tid % DIM, quarter = tid / DIM, warp = tid / 32,
                   lane = tid % 32, dim = a.v_dim, step = a.k_dim / QUARTERS;
    const uint32_t before = row - (from - chunk_from); /* step's row of chunk_from */
    float *live_g = r.live + a.state.g + h.v_head,
          *live_u = r.live + a.state.u + (uint64_t)h.v_head * dim;
    for (uint32_t i = quarter; i < n; i += QUARTERS)
        for (uint32_t c = col; c < a.k_dim; c += DIM) {
            t.k[i][c] = h.k[(row + i) * h.in_stride + c];
            t.q[i][c] = h.q[(row + i) * h.in_stride + c];
        }
    if (tid < from) t.g[tid] = live_g[(uint64_t)tid * a.n_v_heads];
    __syncthreads();
    if (tid == 0) {
        for (uint32_t i = 0; i < n; i++) {
            const uint64_t at = (uint64_t)(r.first + row + i) * a.n_v_heads + h.v_head;
            const float soft = step_size(a, r.first + row + i, h.v_head);
            const float g = fmaf(a.a[h.v_head], soft, from + i != 0 ? t.g[from + i - 1] : 0.0f);
            t.g[from + i] = g;
            live_g[(uint64_t)(from + i) * a.n_v_heads] = g;
            t.beta[i] = DELTA ? sigmoid(a.beta[at]) : soft;
        }
    }
    if (s != nullptr && col < dim) {
        float by_k[N], by_q[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            by_k[i] = by_q[i] = 0.0f;
#pragma unroll 8
        for (uint32_t d = quarter * step; d < (quarter + 1) * step; d++) {
            const float v = s[(uint64_t)d * dim + col];
#pragma unroll
            for (int i = 0; i < N; i++) {
                if (DELTA) by_k[i] = fmaf(v, t.k[i][d], by_k[i]);
                by_q[i] = fmaf(v, t.q[i][d], by_q[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (DELTA) t.parts[quarter][EACH * i][col] = by_k[i];
            t.parts[quarter][EACH * i + EACH - 1][col] = by_q[i];
        }
    }
    __syncthreads();
    /* Pairs of rows: a warp each. */
    for (uint32_t p = warp; p < n * (from + n); p += WARPS) {
        const uint32_t i = p / (from + n), j = p % (from + n);
        if (j > from + i) continue;
        const float *k = k_row(a, r, h, j, chunk_from, before);
        float by_k = 0.0f, by_q = 0.0f;
        for (uint32_t d = lane; d < a.k_dim; d += 32) {
            if (DELTA) by_k = fmaf(k[d], t.k[i][d], by_k);
            by_q = fmaf(k[d], t.q[i][d], by_q);
        }
        if (DELTA) by_k = warp_sum(by_k);
        by_q = warp_sum(by_q);
        if (lane != 0) continue;
        const float near = expf(t.g[from + i] - t.g[j]);
        t.by_k[i][j] = near * by_k;
        t.by_q[i][j] = j == from + i ? by_q : near * by_q;
    }
    __syncthreads();
    if (tid < dim) {
        for (uint32_t i = 0; i < n; i++) {
            const float far = expf(t.g[from + i]);
            const float v = h.v[(row + i) * h.in_stride + tid];
            float u = v, o = 0.0f;
            if (s != nullptr) {
                const uint32_t q = EACH * i + EACH - 1;
                const float sq = (t.parts[0][q][tid] + t.parts[1][q][tid]) +
                                 (t.parts[2][q][tid] + t.parts[3][q][tid]);
                if (DELTA) {
                    const float sk = (t.parts[0][EACH * i][tid] + t.parts[1][EACH * i][tid]) +
                                     (t.parts[2][EACH * i][tid] + t.parts[3][EACH * i][tid]);
                    u = fmaf(-far, sk, u);
                }
                o = far * sq;
            }
            for (uint32_t j = 0; j < from + i; j++) {
                const float uj = live_u[j * h.cols + tid];
                if (DELTA) u = fmaf(-t.by_k[i][j], uj, u);
                o = fmaf(t.by_q[i][j], uj, o);
            }
            u *= t.beta[i];
            live_u[(uint64_t)(from + i) * h.cols + tid] = u;
            o = fmaf(t.by_q[i][from + i], u, o);
            t.parts[0][EACH * i][tid] = DELTA ? o : fmaf(v, a.skip[h.v_head], o);
        }
    }
    __syncthreads();
    write_rows<N, DELTA>(a, (uint64_t)(r.first + row) * h.cols + (uint64_t)h.v_head * dim, t, n);
    __syncthreads();
}

/* S at the boundary that ends the chunk, whose first `chunk_from` rows were pending. */
template <int N, bool DELTA>
__device__ void fold(const args &a, const struct rows &r, const struct head &h,
                     struct tile<N, DELTA> &t, const float *s, uint32_t row, uint32_t chunk_from) {
    const uint32_t col = threadIdx.x % DIM, quarter = threadIdx.x / DIM, step = a.k_dim / QUARTERS;
    const float last = t.g[a.chunk - 1], far = expf(last);
    const float *live_u = r.live + a.state.u + (uint64_t)h.v_head * a.v_dim;
    float *to = r.live + (uint64_t)h.v_head * a.k_dim * a.v_dim;
    __syncthreads();
    if (threadIdx.x < a.chunk) t.by_k[0][threadIdx.x] = expf(last - t.g[threadIdx.x]);
    __syncthreads();
    if (col < a.v_dim)
        for (uint32_t d = quarter * step; d < (quarter + 1) * step; d++) {
            float sum = s != nullptr ? far * s[(uint64_t)d * a.v_dim + col] : 0.0f;
            for (uint32_t j = 0; j < a.chunk; j++)
                sum = fmaf(t.by_k[0][j] * k_row(a, r, h, j, chunk_from, row)[d],
                           live_u[j * h.cols + col], sum);
            to[(uint64_t)d * a.v_dim + col] = sum;
        }
    __syncthreads();
}

/* Grid: V heads, sequences. */
template <int N, bool DELTA> __device__ void run_head(const args &a, struct tile<N, DELTA> &t) {
    const struct rows r = rows_of(a, blockIdx.y);
    struct head h;
    h.v_head = blockIdx.x;
    h.k_head = k_head_of(a, h.v_head);
    h.in_stride = channels_of(a);
    h.cols = (uint64_t)a.n_v_heads * a.v_dim;
    h.k_cols = (uint64_t)a.n_k_heads * a.k_dim;
    if (!r.there) { /* padding: its output is finite */
        for (uint32_t i = threadIdx.x; i < r.n * a.v_dim; i += CUDA_DELTA_THREADS)
            a.out[(r.first + i / a.v_dim) * h.cols + (uint64_t)h.v_head * a.v_dim + i % a.v_dim] =
                0.0f;
        return;
    }
    const float *work = a.work + r.first * h.in_stride;
    const uint64_t of_k = (uint64_t)h.k_head * a.k_dim;
    h.k = work + k_at(a) + of_k;
    h.q = DELTA ? work + of_k : h.k + h.k_cols;
    h.v = work + (DELTA ? 2 * h.k_cols : 0) + (uint64_t)h.v_head * a.v_dim;
    const uint64_t state = (uint64_t)h.v_head * a.k_dim * a.v_dim;
    const float *s = r.pos < a.chunk ? nullptr : r.source + state;
    for (uint32_t row = 0; row < r.n;) {
        const uint32_t chunk_from = (r.pos + row) % a.chunk, begin = row;
        uint32_t at = chunk_from;
        while (at < a.chunk && row < r.n) {
            const uint32_t n = min(min((uint32_t)N, a.chunk - at), r.n - row);
            make_rows<N, DELTA>(a, r, h, t, s, row, at, n, chunk_from);
            row += n;
            at += n;
        }
        if (at < a.chunk) return;
        fold<N, DELTA>(a, r, h, t, s, begin, chunk_from);
        s = r.live + state;
    }
}

CUDA_KERNEL(CUDA_DELTA_THREADS) delta_step(CUDA_ARGS(struct cargs_delta_net) a) {
    __shared__ struct tile<1, true> t;
    pdl_launch();
    pdl_wait();
    run_head<1, true>(a, t);
}

CUDA_KERNEL(CUDA_DELTA_THREADS) mamba2_run(CUDA_ARGS(struct cargs_delta_net) a) {
    __shared__ struct tile<CUDA_DELTA_ROWS, false> t;
    pdl_launch();
    pdl_wait();
    run_head<CUDA_DELTA_ROWS, false>(a, t);
}

CUDA_KERNEL(CUDA_DELTA_THREADS) mamba2_step(CUDA_ARGS(struct cargs_delta_net) a) {
    __shared__ struct tile<1, false> t;
    pdl_launch();
    pdl_wait();
    run_head<1, false>(a, t);
}

/* Grid: groups, rows. Norms what the V heads of one group gave. */
CUDA_KERNEL(DIM) mamba2_norm(CUDA_ARGS(struct cargs_delta_net) a) {
    __shared__ float sums[DIM / 32];
    pdl_launch();
    pdl_wait();
    const uint32_t n = a.n_v_heads / a.n_norm_groups * a.v_dim, i = threadIdx.x;
    const float *norm = a.norm + (uint64_t)blockIdx.x * n;
    float *x = a.out + ((uint64_t)blockIdx.y * a.n_norm_groups + blockIdx.x) * n, part = 0.0f;
    for (uint32_t d = i; d < n; d += DIM)
        part = fmaf(x[d], x[d], part);
    part = warp_sum(part);
    if (i % 32 == 0) sums[i / 32] = part;
    __syncthreads();
    float sum = 0.0f;
    for (uint32_t w = 0; w < DIM / 32; w++)
        sum += sums[w];
    const float scale = 1.0f / sqrtf(sum / (float)n + a.eps);
    for (uint32_t d = i; d < n; d += DIM)
        x[d] = x[d] * scale * norm[d];
}

/* G of the new pending rows from position `from` on. The other kernels write it themselves; those
 * blocks of delta_prefill that share a V head read what was there before. */
__device__ void keep_g(const args &a, const struct rows &r, uint32_t v_head, uint32_t from,
                       uint32_t end) {
    float *live_g = r.live + a.state.g + v_head;
    float g = from % a.chunk != 0 ? live_g[(uint64_t)(from % a.chunk - 1) * a.n_v_heads] : 0.0f;
    for (uint32_t p = from; p < end; p++) {
        g = fmaf(a.a[v_head], step_size(a, r.first + p - r.pos, v_head), g);
        live_g[(uint64_t)(p % a.chunk) * a.n_v_heads] = g;
    }
}

/* Grid: parts of DIM channels, sequences. */
CUDA_KERNEL(DIM) delta_keep(CUDA_ARGS(struct cargs_delta_net) a) {
    pdl_launch();
    pdl_wait();
    const uint64_t c = (uint64_t)blockIdx.x * DIM + threadIdx.x;
    const struct rows r = rows_of(a, blockIdx.y);
    if (!r.there || c >= channels_of(a)) return;
    keep_inputs(a, r, channels_of(a), c, input_at);
    const uint32_t end = r.pos + r.n, boundary = end - end % a.chunk;
    const uint64_t k_cols = (uint64_t)a.n_k_heads * a.k_dim, first = k_at(a);
    const uint32_t from = max(boundary, r.pos);
    if (a.prefill != 0 && c < a.n_v_heads) keep_g(a, r, (uint32_t)c, from, end);
    if (c < first || c >= first + k_cols) return;
    for (uint32_t p = from; p < end; p++)
        r.live[a.state.k + p % a.chunk * k_cols + c - first] =
            a.work[(uint64_t)(r.first + p - r.pos) * channels_of(a) + c];
}

} // namespace

const void *cuda_delta_kernel(enum cuda_delta_kernel kernel) {
    switch (kernel) {
    case CUDA_DELTA_CONV:
        return (const void *)delta_conv;
    case CUDA_DELTA_STEP:
        return (const void *)delta_step;
    case CUDA_DELTA_KEEP:
        return (const void *)delta_keep;
    case CUDA_MAMBA2_CONV:
        return (const void *)mamba2_conv;
    case CUDA_MAMBA2_RUN:
        return (const void *)mamba2_run;
    case CUDA_MAMBA2_STEP:
        return (const void *)mamba2_step;
    case CUDA_MAMBA2_NORM:
        return (const void *)mamba2_norm;
    default:
        return cuda_delta_prefill_kernel(kernel);
    }
}
