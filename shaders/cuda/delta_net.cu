/* delta_net.cu - linear attention over state blocks (op_linear_attention, state_layout.h): delta
 * nets whose dimensions of K decay by themselves, and Mamba-2; of other delta nets what
 * delta_prefill.cu does not do. A row of each sequence of those is delta_step.cu's.
 *
 * Three kernels: the convolution of each head of each row; the rows of each V head of each
 * sequence, up to CUDA_DELTA_ROWS of one chunk at a time; what the next step reads of the inputs,
 * which must not be written before all heads have read it.
 *
 * ORDER OF SUMS: S^T x in four quarters of the dimensions, ascending in each, then (0 + 1) + (2 +
 * 3); over pending rows ascending; dot products by the lanes of a warp, dimensions ascending in
 * each, then warp_sum. So a row's bits do not depend on how its sequence was cut into steps. With
 * decays of channels, K and Q are multiplied by e^G before S^T x, and in dot products K by
 * e^(G[i] - G[j]), never above 1: e^-G alone would overflow. */
#include "shaders/cuda/delta_net.cuh"
#include "shaders/cuda/kernels.h"

namespace {

enum {
    DIM_K = 256, /* most columns of a head of Mamba-2's K */
    WARPS = CUDA_DELTA_THREADS / 32
};

typedef enum args_delta_rule rule;

/* softplus(alpha + dt_bias) of decay d of all V heads in a row of the step: times a, its logarithm.
 */
__device__ float step_size(const args &a, uint32_t row, uint64_t d) {
    return softplus(a.alpha[(uint64_t)row * a.n_v_heads * a.n_decays + d] + a.dt_bias[d]);
}

/* Channels before K and before V: a delta net has Q, K, V, Mamba-2 V, K, Q. */
__device__ uint64_t k_at(const args &a) {
    const uint64_t values = (uint64_t)a.n_v_heads * a.v_dim;
    return a.beta != nullptr ? (uint64_t)a.n_k_heads * a.k_dim : values;
}

/* Where channel c of the inputs is: in all of them, or in those of Q, K or V. */
struct input {
    const float *rows, *conv; /* (n_rows, cols), (cols, n_taps) */
    uint64_t cols, c;
};

__device__ struct input input_of(const args &a, uint64_t c) {
    const uint64_t keys = (uint64_t)a.n_k_heads * a.k_dim, all = channels_of(a);
    if (a.k == nullptr) return {a.qkv, a.conv, all, c};
    if (c < keys) return {a.qkv, a.conv, keys, c};
    if (c < 2 * keys) return {a.k, a.conv_k, keys, c - keys};
    return {a.v, a.conv_v, all - 2 * keys, c - 2 * keys};
}

/* Channel c of input `rel`, counted from the sequence's first row in this step. */
__device__ float input_at(const args &a, const struct rows &r, int32_t rel, uint64_t c) {
    if (rel < 0) return window_at(a, r, channels_of(a), rel, c);
    const struct input in = input_of(a, c);
    return in.rows[(uint64_t)(r.first + (uint32_t)rel) * in.cols + in.c];
}

/* Channel c of a row after the convolution, whose sum begins with bias. */
__device__ float convolve(const args &a, const struct rows &r, uint32_t row, uint64_t c,
                          float bias) {
    const struct input in = input_of(a, c);
    float y = bias;
    for (uint32_t t = 0; t < a.n_taps; t++)
        y = fmaf(in.conv[in.c * a.n_taps + t],
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
        const float part = warp_sum(__fmul_rn(y, y));
        if (i % 32 == 0) sums[i / 32] = part;
        __syncthreads();
        y *= head_scale(a, sums, head < a.n_k_heads);
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
 * in slot 2 * i; o in slot EACH * i of [0] afterwards. k, q: with decays of channels times e^G once
 * the pairs of rows are made, and G is in the live block alone. */
template <int N, rule RULE> struct tile {
    enum {
        DELTA = RULE != ARGS_RULE_MAMBA2,
        CHANNELS = RULE == ARGS_RULE_CHANNELS,
        EACH = DELTA ? 2 : 1,
        COLS = DELTA ? (int)DIM : (int)DIM_K,
        SLOTS = CHANNELS && EACH * N < CHUNK / QUARTERS ? CHUNK / QUARTERS : EACH * N
    };
    float k[N][COLS], q[N][COLS];
    float parts[QUARTERS][SLOTS][DIM];    /* with decays of channels a chunk's K at its end */
    float g[CHUNK], beta[N];              /* beta: of Mamba-2 dt */
    float by_k[N][CHUNK], by_q[N][CHUNK]; /* e^(G[i] - G[j]) times k[j].k[i], k[j].q[i] */
};

__device__ const float *k_row(const args &a, const struct rows &r, const struct head &h,
                              uint32_t at, uint32_t from, uint32_t row) {
    return at < from ? r.live + a.state.k + at * h.k_cols + (uint64_t)h.k_head * a.k_dim
                     : h.k + (uint64_t)(row + at - from) * h.in_stride;
}

/* The head's G of the chunk's first row; the next row's is n_v_heads * n_decays after it. */
__device__ float *live_g_of(const args &a, const struct rows &r, const struct head &h) {
    return r.live + a.state.g + (uint64_t)h.v_head * a.n_decays;
}

/* Norm (of a delta net) and gate of n rows; first: place of the head's first row in z and out. */
template <int N, rule RULE>
__device__ void write_rows(const args &a, uint64_t first, const struct tile<N, RULE> &t,
                           uint32_t n) {
    typedef struct tile<N, RULE> tile_of;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = a.v_dim;
    for (uint32_t i = warp; i < n; i += WARPS) {
        const uint64_t at = first + (uint64_t)i * a.n_v_heads * dim;
        const float *o = t.parts[0][tile_of::EACH * i];
        float sum = 0.0f;
        for (uint32_t d = lane; tile_of::DELTA && d < dim; d += 32)
            sum = fmaf(o[d], o[d], sum);
        const float scale =
            tile_of::DELTA ? 1.0f / sqrtf(warp_sum(sum) / (float)dim + a.eps) : 1.0f;
        for (uint32_t d = lane; d < dim; d += 32) {
            const float z = a.z[at + d], x = tile_of::DELTA ? o[d] * scale * a.norm[d] : o[d];
            a.out[at + d] = tile_of::CHANNELS ? x * sigmoid(z) : x * z * sigmoid(z);
        }
    }
}

/* G and step sizes of n rows: a thread for each decay. */
template <int N, rule RULE>
__device__ void find_decays(const args &a, const struct rows &r, const struct head &h,
                            struct tile<N, RULE> &t, uint32_t row, uint32_t from, uint32_t n) {
    typedef struct tile<N, RULE> tile_of;
    const uint32_t d = threadIdx.x;
    if (d >= (tile_of::CHANNELS ? a.k_dim : 1)) return;
    const uint64_t stride = (uint64_t)a.n_v_heads * a.n_decays;
    float *live_g = live_g_of(a, r, h) + d, g = 0.0f;
    if (from != 0) g = tile_of::CHANNELS ? live_g[(from - 1) * stride] : t.g[from - 1];
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t step_row = r.first + row + i;
        const float soft = step_size(a, step_row, (uint64_t)h.v_head * a.n_decays + d);
        g = fmaf(a.a[h.v_head], soft, g);
        if (!tile_of::CHANNELS) t.g[from + i] = g;
        live_g[(from + i) * stride] = g;
        if (d == 0)
            t.beta[i] = tile_of::DELTA
                            ? sigmoid(a.beta[(uint64_t)step_row * a.n_v_heads + h.v_head])
                            : soft;
    }
}

/* A quarter of S^T k and S^T q of N rows in each thread. */
template <int N, rule RULE>
__device__ void project(const args &a, struct tile<N, RULE> &t, const float *s) {
    enum { DELTA = tile<N, RULE>::DELTA, EACH = tile<N, RULE>::EACH };
    const uint32_t col = threadIdx.x % DIM, quarter = threadIdx.x / DIM, dim = a.v_dim,
                   step = a.k_dim / QUARTERS;
    if (s == nullptr || col >= dim) return;
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

/* Pairs of the n rows with those up to their own, of which the chunk_from first ones were pending
 * before the step: a warp each. before: the step's row at chunk_from. */
template <int N, rule RULE>
__device__ void find_pairs(const args &a, const struct rows &r, const struct head &h,
                           struct tile<N, RULE> &t, uint32_t before, uint32_t from, uint32_t n,
                           uint32_t chunk_from) {
    enum { DELTA = tile<N, RULE>::DELTA, CHANNELS = tile<N, RULE>::CHANNELS };
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint64_t stride = (uint64_t)a.n_v_heads * a.n_decays;
    const float *live_g = live_g_of(a, r, h);
    for (uint32_t p = warp; p < n * (from + n); p += WARPS) {
        const uint32_t i = p / (from + n), j = p % (from + n);
        if (j > from + i) continue;
        const float *k = k_row(a, r, h, j, chunk_from, before);
        float by_k = 0.0f, by_q = 0.0f;
        for (uint32_t d = lane; d < a.k_dim; d += 32) {
            float kj = k[d];
            if (CHANNELS) kj *= expf(live_g[(from + i) * stride + d] - live_g[j * stride + d]);
            if (DELTA) by_k = fmaf(kj, t.k[i][d], by_k);
            by_q = fmaf(kj, t.q[i][d], by_q);
        }
        if (DELTA) by_k = warp_sum(by_k);
        by_q = warp_sum(by_q);
        if (lane != 0) continue;
        const float near = CHANNELS ? 1.0f : expf(t.g[from + i] - t.g[j]);
        t.by_k[i][j] = near * by_k;
        t.by_q[i][j] = j == from + i ? by_q : near * by_q;
    }
}

/* K and Q of n rows times what is left of each dimension of S: their products with it follow. */
template <int N, rule RULE>
__device__ void decay_rows(const args &a, const struct rows &r, const struct head &h,
                           struct tile<N, RULE> &t, uint32_t from, uint32_t n) {
    const uint32_t col = threadIdx.x % DIM;
    const uint64_t stride = (uint64_t)a.n_v_heads * a.n_decays;
    for (uint32_t i = threadIdx.x / DIM; i < n && col < a.k_dim; i += QUARTERS) {
        const float far = expf(live_g_of(a, r, h)[(from + i) * stride + col]);
        t.k[i][col] *= far;
        t.q[i][col] *= far;
    }
}

/* The sum of the quarters of a slot. */
template <int N, rule RULE>
__device__ float far_sum(const struct tile<N, RULE> &t, uint32_t slot, uint32_t col) {
    return (t.parts[0][slot][col] + t.parts[1][slot][col]) +
           (t.parts[2][slot][col] + t.parts[3][slot][col]);
}

/* U of n rows, which becomes pending, and o: a thread for each column. */
template <int N, rule RULE>
__device__ void make_columns(const args &a, const struct rows &r, const struct head &h,
                             struct tile<N, RULE> &t, bool has_s, uint32_t row, uint32_t from,
                             uint32_t n) {
    enum {
        DELTA = tile<N, RULE>::DELTA,
        CHANNELS = tile<N, RULE>::CHANNELS,
        EACH = tile<N, RULE>::EACH
    };
    const uint32_t col = threadIdx.x;
    if (col >= a.v_dim) return;
    float *live_u = r.live + a.state.u + (uint64_t)h.v_head * a.v_dim;
    for (uint32_t i = 0; i < n; i++) {
        const float far = CHANNELS ? 1.0f : expf(t.g[from + i]);
        const float v = h.v[(row + i) * h.in_stride + col];
        float u = v, o = 0.0f;
        if (has_s) {
            if (DELTA) u = fmaf(-far, far_sum(t, EACH * i, col), u);
            o = far * far_sum(t, EACH * i + EACH - 1, col);
        }
        for (uint32_t j = 0; j < from + i; j++) {
            const float uj = live_u[j * h.cols + col];
            if (DELTA) u = fmaf(-t.by_k[i][j], uj, u);
            o = fmaf(t.by_q[i][j], uj, o);
        }
        u *= t.beta[i];
        live_u[(uint64_t)(from + i) * h.cols + col] = u;
        o = fmaf(t.by_q[i][from + i], u, o);
        t.parts[0][EACH * i][col] = DELTA ? o : fmaf(v, a.skip[h.v_head], o);
    }
}

/* Rows `from` .. `from` + n - 1 of a chunk; the first of them is row `row` of the sequence in this
 * step. s: the state at the chunk's boundary, or NULL. chunk_from: the chunk's pending rows before
 * this step. */
template <int N, rule RULE>
__device__ void make_rows(const args &a, const struct rows &r, const struct head &h,
                          struct tile<N, RULE> &t, const float *s, uint32_t row, uint32_t from,
                          uint32_t n, uint32_t chunk_from) {
    enum { CHANNELS = tile<N, RULE>::CHANNELS };
    const uint32_t tid = threadIdx.x, col = tid % DIM;
    for (uint32_t i = tid / DIM; i < n; i += QUARTERS)
        for (uint32_t c = col; c < a.k_dim; c += DIM) {
            t.k[i][c] = h.k[(row + i) * h.in_stride + c];
            t.q[i][c] = h.q[(row + i) * h.in_stride + c];
        }
    if (!CHANNELS && tid < from) t.g[tid] = live_g_of(a, r, h)[(uint64_t)tid * a.n_v_heads];
    __syncthreads();
    find_decays<N, RULE>(a, r, h, t, row, from, n);
    if (!CHANNELS) project<N, RULE>(a, t, s);
    __syncthreads();
    find_pairs<N, RULE>(a, r, h, t, row - (from - chunk_from), from, n, chunk_from);
    if (CHANNELS) {
        __syncthreads();
        decay_rows<N, RULE>(a, r, h, t, from, n);
        __syncthreads();
        project<N, RULE>(a, t, s);
    }
    __syncthreads();
    make_columns<N, RULE>(a, r, h, t, s != nullptr, row, from, n);
    __syncthreads();
    write_rows<N, RULE>(a, (uint64_t)(r.first + row) * h.cols + (uint64_t)h.v_head * a.v_dim, t, n);
    __syncthreads();
}

/* S at the boundary that ends the chunk, whose first `chunk_from` rows were pending. With decays of
 * channels K times e^(G[end] - G[j]) lies in t.parts: columns share it. */
template <int N, rule RULE>
__device__ void fold(const args &a, const struct rows &r, const struct head &h,
                     struct tile<N, RULE> &t, const float *s, uint32_t row, uint32_t chunk_from) {
    enum { CHANNELS = tile<N, RULE>::CHANNELS };
    const uint32_t col = threadIdx.x % DIM, quarter = threadIdx.x / DIM, step = a.k_dim / QUARTERS;
    const uint64_t stride = (uint64_t)a.n_v_heads * a.n_decays;
    const float *live_u = r.live + a.state.u + (uint64_t)h.v_head * a.v_dim,
                *live_g = live_g_of(a, r, h), *last = live_g + (a.chunk - 1) * stride;
    float *to = r.live + (uint64_t)h.v_head * a.k_dim * a.v_dim, (*k)[DIM] = t.parts[0];
    for (uint32_t j = quarter; CHANNELS && j < a.chunk && col < a.k_dim; j += QUARTERS)
        k[j][col] =
            expf(last[col] - live_g[j * stride + col]) * k_row(a, r, h, j, chunk_from, row)[col];
    if (!CHANNELS && threadIdx.x < a.chunk)
        t.by_k[0][threadIdx.x] = expf(t.g[a.chunk - 1] - t.g[threadIdx.x]);
    __syncthreads();
    if (col < a.v_dim)
        for (uint32_t d = quarter * step; d < (quarter + 1) * step; d++) {
            const float far = expf(CHANNELS ? last[d] : t.g[a.chunk - 1]);
            float sum = s != nullptr ? far * s[(uint64_t)d * a.v_dim + col] : 0.0f;
            for (uint32_t j = 0; j < a.chunk; j++)
                sum =
                    fmaf(CHANNELS ? k[j][d] : t.by_k[0][j] * k_row(a, r, h, j, chunk_from, row)[d],
                         live_u[j * h.cols + col], sum);
            to[(uint64_t)d * a.v_dim + col] = sum;
        }
    __syncthreads();
}

/* Grid: V heads, sequences. */
template <int N, rule RULE> __device__ void run_head(const args &a, struct tile<N, RULE> &t) {
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
    h.q = tile<N, RULE>::DELTA ? work + of_k : h.k + h.k_cols;
    h.v = work + (tile<N, RULE>::DELTA ? 2 * h.k_cols : 0) + (uint64_t)h.v_head * a.v_dim;
    const uint64_t state = (uint64_t)h.v_head * a.k_dim * a.v_dim;
    const float *s = r.pos < a.chunk ? nullptr : r.source + state;
    for (uint32_t row = 0; row < r.n;) {
        const uint32_t chunk_from = (r.pos + row) % a.chunk, begin = row;
        uint32_t at = chunk_from;
        while (at < a.chunk && row < r.n) {
            const uint32_t n = min(min((uint32_t)N, a.chunk - at), r.n - row);
            make_rows<N, RULE>(a, r, h, t, s, row, at, n, chunk_from);
            row += n;
            at += n;
        }
        if (at < a.chunk) return;
        fold<N, RULE>(a, r, h, t, s, begin, chunk_from);
        s = r.live + state;
    }
}

CUDA_KERNEL(CUDA_DELTA_THREADS) channels_run(CUDA_ARGS(struct cargs_delta_net) a) {
    __shared__ struct tile<CUDA_DELTA_ROWS, ARGS_RULE_CHANNELS> t;
    pdl_launch();
    pdl_wait();
    run_head<CUDA_DELTA_ROWS, ARGS_RULE_CHANNELS>(a, t);
}

CUDA_KERNEL(CUDA_DELTA_THREADS) channels_step(CUDA_ARGS(struct cargs_delta_net) a) {
    __shared__ struct tile<1, ARGS_RULE_CHANNELS> t;
    pdl_launch();
    pdl_wait();
    run_head<1, ARGS_RULE_CHANNELS>(a, t);
}

CUDA_KERNEL(CUDA_DELTA_THREADS) mamba2_run(CUDA_ARGS(struct cargs_delta_net) a) {
    __shared__ struct tile<CUDA_DELTA_ROWS, ARGS_RULE_MAMBA2> t;
    pdl_launch();
    pdl_wait();
    run_head<CUDA_DELTA_ROWS, ARGS_RULE_MAMBA2>(a, t);
}

CUDA_KERNEL(CUDA_DELTA_THREADS) mamba2_step(CUDA_ARGS(struct cargs_delta_net) a) {
    __shared__ struct tile<1, ARGS_RULE_MAMBA2> t;
    pdl_launch();
    pdl_wait();
    run_head<1, ARGS_RULE_MAMBA2>(a, t);
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
        return cuda_delta_step_kernel();
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
    case CUDA_CHANNELS_RUN:
        return (const void *)channels_run;
    case CUDA_CHANNELS_STEP:
        return (const void *)channels_step;
    default:
        return cuda_delta_prefill_kernel(kernel);
    }
}
