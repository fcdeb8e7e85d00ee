/* delta_step.cu - a row of each sequence through a gated delta net (op_linear_attention), in one
 * kernel: the convolution, each V head's row, its norm and gate, what the next step reads of the
 * inputs. A block has a V head of a sequence. What earlier steps wrote (state, pending rows, the
 * convolution's window) is read before the previous kernel ends, the state into registers.
 *
 * V heads of one K head read the same channels of Q and K and the same window, which the last of
 * their blocks replaces: cargs_delta_net.done counts those that have read it.
 *
 * ORDER OF SUMS: delta_net.cu's, so that a row has the bits that delta_prefill.cu gives it. */
#include "shaders/cuda/delta_net.cuh"
#include "shaders/cuda/kernels.h"

namespace {

enum { WARPS = CUDA_DELTA_THREADS / 32, QUARTER_DIMS = DIM / QUARTERS };

/* What a block shares. */
struct step_tile {
    float in[3][DIM];                   /* Q, K and V after the convolution */
    float k[CHUNK][DIM], u[CHUNK][DIM]; /* the pending rows */
    float parts[QUARTERS][2][DIM];      /* of S^T k and S^T q */
    float o[DIM], sums[2][DIM / 32];
    float g[CHUNK], by_k[CHUNK], by_q[CHUNK], beta;
    uint32_t is_last;
};

/* The only row of a sequence, by loads that do not depend on each other. */
__device__ struct rows row_of(const args &a, uint32_t seq) {
    const int32_t pos = a.pos[seq];
    const uint32_t source = (uint32_t)a.tables[2 * seq], live = (uint32_t)a.tables[2 * seq + 1];
    struct rows r = {seq, 1, 0, a.blocks, a.blocks, false};
    r.there = pos >= 0 && source < a.state.n_blocks && live < a.state.n_blocks;
    if (!r.there) return r;
    r.pos = (uint32_t)pos;
    r.source = a.blocks + source * a.state.end;
    r.live = a.blocks + live * a.state.end;
    return r;
}

/* A channel of the convolution, each thread's own. */
struct step_channel {
    uint32_t at; /* among all channels */
    bool there;
    float taps[TAPS], window[TAPS];
};

/* Threads of the first DIM take Q, of the next K, then V. */
__device__ step_channel channel_of(const args &a, const struct rows &r, uint32_t v_head,
                                   uint32_t k_head) {
    const uint32_t part = threadIdx.x / DIM, i = threadIdx.x % DIM;
    const uint32_t keys = a.n_k_heads * a.k_dim;
    step_channel c = {};
    c.there = part < 2 ? i < a.k_dim : part == 2 && i < a.v_dim;
    if (!c.there) return c;
    c.at = part < 2 ? part * keys + k_head * a.k_dim + i : 2 * keys + v_head * a.v_dim + i;
#pragma unroll
    for (int32_t t = 0; t < TAPS; t++) {
        if (t >= (int32_t)a.n_taps) break;
        c.taps[t] = a.conv[c.at * a.n_taps + t];
        if (t + 1 < (int32_t)a.n_taps)
            c.window[t] = window_at(a, r, channels_of(a), t + 1 - (int32_t)a.n_taps, c.at);
    }
    return c;
}

/* The input joins the window; Q, K and V after the convolution, Q and K normed, to t.in. By all
 * threads. */
__device__ void convolve_row(const args &a, uint32_t row, step_channel &c, step_tile &t) {
    const uint32_t part = threadIdx.x / DIM, i = threadIdx.x % DIM;
    float y = 0.0f;
    if (c.there) {
        const float x = a.qkv[row * channels_of(a) + c.at];
#pragma unroll
        for (int32_t tap = 0; tap < TAPS; tap++) {
            if (tap >= (int32_t)a.n_taps) break;
            if (tap + 1 == (int32_t)a.n_taps) c.window[tap] = x;
            y = fmaf(c.taps[tap], c.window[tap], y);
        }
        y = y * sigmoid(y);
    }
    if (part < 2) {
        const float sum = warp_sum(__fmul_rn(y, y));
        if (i % 32 == 0) t.sums[part][i / 32] = sum;
    }
    __syncthreads();
    if (part < 2) y *= head_scale(a, t.sums[part], part == 0);
    if (c.there) t.in[part][i] = y;
}

/* The window, for the next step, of the channels that this block is to write. */
__device__ void keep_window(const args &a, const struct rows &r, const step_channel &c) {
    const uint64_t channels = channels_of(a);
    const bool ends = (r.pos + 1) % a.chunk == 0;
#pragma unroll
    for (int32_t t = 0; t < TAPS - 1; t++) {
        if (t + 1 >= (int32_t)a.n_taps) break;
        if (ends) r.live[a.state.tail + (uint64_t)t * channels + c.at] = c.window[t + 1];
        r.live[a.state.recent + (uint64_t)t * channels + c.at] = c.window[t + 1];
    }
}

/* Pairs of the row with those up to it: a warp each. */
__device__ void find_pairs(const args &a, step_tile &t, uint32_t from) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (uint32_t j = warp; j <= from; j += WARPS) {
        const float *k = j < from ? t.k[j] : t.in[1];
        float by_k = 0.0f, by_q = 0.0f;
        for (uint32_t d = lane; d < a.k_dim; d += 32) {
            by_k = fmaf(k[d], t.in[1][d], by_k);
            by_q = fmaf(k[d], t.in[0][d], by_q);
        }
        by_k = warp_sum(by_k);
        by_q = warp_sum(by_q);
        if (lane != 0) continue;
        const float near = expf(t.g[from] - t.g[j]);
        t.by_k[j] = near * by_k;
        t.by_q[j] = j == from ? by_q : near * by_q;
    }
}

__device__ float far_sum(const step_tile &t, uint32_t of, uint32_t col) {
    return (t.parts[0][of][col] + t.parts[1][of][col]) +
           (t.parts[2][of][col] + t.parts[3][of][col]);
}

/* U of the row, and o: a thread for each column. */
__device__ void make_column(const args &a, const struct rows &r, uint32_t v_head, step_tile &t,
                            bool has_s, uint32_t from) {
    const uint32_t col = threadIdx.x;
    const float far = expf(t.g[from]);
    float u = t.in[2][col], o = 0.0f;
    if (has_s) {
        u = fmaf(-far, far_sum(t, 0, col), u);
        o = far * far_sum(t, 1, col);
    }
#pragma unroll 4
    for (uint32_t j = 0; j < from; j++) {
        u = fmaf(-t.by_k[j], t.u[j][col], u);
        o = fmaf(t.by_q[j], t.u[j][col], o);
    }
    u *= t.beta;
    t.u[from][col] = u;
    r.live[a.state.u + ((uint64_t)from * a.n_v_heads + v_head) * a.v_dim + col] = u;
    t.o[col] = fmaf(t.by_q[from], u, o);
}

/* Where this thread's quarter of its column of S begins. */
__device__ uint64_t s_at(const args &a, uint32_t v_head) {
    const uint32_t first = threadIdx.x / DIM * (a.k_dim / QUARTERS);
    return ((uint64_t)v_head * a.k_dim + first) * a.v_dim + threadIdx.x % DIM;
}

/* A quarter of a column of S, or 0. */
__device__ __forceinline__ void read_s(const args &a, const float *from, bool there,
                                       float (&s)[QUARTER_DIMS]) {
#pragma unroll
    for (uint32_t d = 0; d < QUARTER_DIMS; d++)
        s[d] = there && d < a.k_dim / QUARTERS ? from[d * a.v_dim] : 0.0f;
}

/* A quarter's part of S^T k and S^T q, of a column that has S. */
__device__ __forceinline__ void project(const args &a, step_tile &t,
                                        const float (&s)[QUARTER_DIMS]) {
    const uint32_t quarter = threadIdx.x / DIM, col = threadIdx.x % DIM, step = a.k_dim / QUARTERS;
    float by_k = 0.0f, by_q = 0.0f;
#pragma unroll
    for (uint32_t d = 0; d < QUARTER_DIMS; d += 4) {
        if (d >= step) break;
        const float4 k = *reinterpret_cast<const float4 *>(t.in[1] + quarter * step + d),
                     q = *reinterpret_cast<const float4 *>(t.in[0] + quarter * step + d);
        by_k = fmaf(s[d + 3], k.w, fmaf(s[d + 2], k.z, fmaf(s[d + 1], k.y, fmaf(s[d], k.x, by_k))));
        by_q = fmaf(s[d + 3], q.w, fmaf(s[d + 2], q.z, fmaf(s[d + 1], q.y, fmaf(s[d], q.x, by_q))));
    }
    t.parts[quarter][0][col] = by_k;
    t.parts[quarter][1][col] = by_q;
}

/* Multiplies K of each row of the chunk by the decay from it to the chunk's end. By all threads. */
__device__ void decay_k(const args &a, step_tile &t) {
    const uint32_t last = a.chunk - 1;
    for (uint32_t i = threadIdx.x; i < a.chunk * DIM; i += CUDA_DELTA_THREADS) {
        const uint32_t j = i / DIM, d = i % DIM;
        if (d < a.k_dim) t.k[j][d] = expf(t.g[last] - t.g[j]) * (j < last ? t.k[j][d] : t.in[1][d]);
    }
    __syncthreads();
}

/* S at the boundary that the row ends; s: a quarter of a column of S at the one before, or 0. */
__device__ void fold_step(const args &a, const struct rows &r, uint32_t v_head, step_tile &t,
                          float (&s)[QUARTER_DIMS]) {
    const uint32_t col = threadIdx.x % DIM, step = a.k_dim / QUARTERS,
                   at = threadIdx.x / DIM * step;
    decay_k(a, t);
    if (col >= a.v_dim) return;
    float *to = r.live + s_at(a, v_head);
    const float far = expf(t.g[a.chunk - 1]);
#pragma unroll
    for (uint32_t d = 0; d < QUARTER_DIMS; d++)
        s[d] *= far;
    for (uint32_t j = 0; j < a.chunk; j++) {
        const float u = t.u[j][col];
#pragma unroll
        for (uint32_t d = 0; d < QUARTER_DIMS; d += 4) {
            if (d >= step) break;
            const float4 four = *reinterpret_cast<const float4 *>(t.k[j] + at + d);
            s[d] = fmaf(four.x, u, s[d]);
            s[d + 1] = fmaf(four.y, u, s[d + 1]);
            s[d + 2] = fmaf(four.z, u, s[d + 2]);
            s[d + 3] = fmaf(four.w, u, s[d + 3]);
        }
    }
#pragma unroll
    for (uint32_t d = 0; d < QUARTER_DIMS; d++)
        if (d < step) to[d * a.v_dim] = s[d];
}

/* S of the block that follows as many blocks later as there is room for, if it has one, or NULL. */
__device__ __forceinline__ const float *later_s(const args &a) {
    const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x + a.ahead, y = block / gridDim.x;
    if (y >= gridDim.y) return NULL;
    const struct rows r = row_of(a, a.first_seq + y);
    if (!r.there || r.pos < a.chunk) return NULL;
    return r.source + (uint64_t)(block % gridDim.x) * a.k_dim * a.v_dim;
}

/* Brings the pending rows of both kinds to t, and their G. */
__device__ void load_pending(const args &a, const struct rows &r, uint32_t v_head, uint32_t k_head,
                             uint32_t from, step_tile &t) {
    const uint32_t k_units = a.k_dim / 4, v_units = a.v_dim / 4;
    for (uint32_t i = threadIdx.x; i < from * k_units; i += CUDA_DELTA_THREADS) {
        const uint32_t j = i / k_units, at = i % k_units * 4;
        async_copy16(t.k[j] + at,
                     r.live + a.state.k + ((uint64_t)j * a.n_k_heads + k_head) * a.k_dim + at);
    }
    for (uint32_t i = threadIdx.x; i < from * v_units; i += CUDA_DELTA_THREADS) {
        const uint32_t j = i / v_units, at = i % v_units * 4;
        async_copy16(t.u[j] + at,
                     r.live + a.state.u + ((uint64_t)j * a.n_v_heads + v_head) * a.v_dim + at);
    }
    async_commit();
    if (threadIdx.x < from)
        t.g[threadIdx.x] = r.live[a.state.g + (uint64_t)threadIdx.x * a.n_v_heads + v_head];
}

/* The norm of o, and its gate. Each warp sums all columns for itself. */
__device__ void write_row(const args &a, const step_tile &t, uint64_t out, float z) {
    const uint32_t tid = threadIdx.x;
    float sum = 0.0f;
    for (uint32_t d = tid % 32; d < a.v_dim; d += 32)
        sum = fmaf(t.o[d], t.o[d], sum);
    const float scale = 1.0f / sqrtf(warp_sum(sum) / (float)a.v_dim + a.eps);
    if (tid >= a.v_dim) return;
    const float x = t.o[tid] * scale * a.norm[tid];
    a.out[out + tid] = x * z * sigmoid(z);
}

/* Grid: V heads, sequences. Two blocks have room on a multiprocessor: one's loads are under way
 * while the other waits or computes. */
CUDA_KERNEL_MIN(CUDA_DELTA_THREADS, CUDA_DELTA_STEP_BLOCKS)
delta_step(CUDA_ARGS(struct cargs_delta_net) a) {
    __shared__ __align__(16) struct step_tile t;
    pdl_launch();
    const struct rows r = row_of(a, a.first_seq + blockIdx.y);
    const uint32_t v_head = blockIdx.x, k_head = k_head_of(a, v_head), tid = threadIdx.x,
                   col = tid % DIM, quarter = tid / DIM, from = r.pos % a.chunk;
    const uint32_t decay = r.first * a.n_v_heads + v_head, out = decay * a.v_dim;
    const bool has_s = r.pos >= a.chunk, leader = tid == CUDA_DELTA_THREADS - 1;
    if (!r.there) { /* padding: its output is finite */
        pdl_wait();
        if (tid < a.v_dim) a.out[out + tid] = 0.0f;
        return;
    }
    float s[QUARTER_DIMS];
    read_s(a, r.source + s_at(a, v_head), has_s && col < a.v_dim, s);
    load_pending(a, r, v_head, k_head, from, t);
    step_channel c = channel_of(a, r, v_head, k_head);
    const float *later = leader ? later_s(a) : NULL;
    float g = 0.0f, rate = 0.0f, bias = 0.0f;
    if (leader) {
        if (from != 0) g = r.live[a.state.g + (uint64_t)(from - 1) * a.n_v_heads + v_head];
        rate = a.a[v_head];
        bias = a.dt_bias[v_head];
    }
    pdl_wait();
    const float z = tid < a.v_dim ? a.z[out + tid] : 0.0f;
    if (leader) {
        g = fmaf(rate, softplus(a.alpha[decay] + bias), g);
        t.g[from] = g;
        r.live[a.state.g + (uint64_t)from * a.n_v_heads + v_head] = g;
        t.beta = sigmoid(a.beta[decay]);
    }
    convolve_row(a, r.first, c, t);
    async_wait<0>();
    __syncthreads();
    /* All threads have read the window. What the counter was is needed at the end alone. */
    uint32_t *done = a.done + (uint64_t)blockIdx.y * a.n_k_heads + k_head, before = 0;
    if (leader) {
        __threadfence();
        before = atomicAdd(done, 1u);
    }
    if (has_s && col < a.v_dim) project(a, t, s);
    if (later) bulk_prefetch(later, a.k_dim * a.v_dim * (uint32_t)sizeof *later);
    find_pairs(a, t, from);
    if (leader) {
        t.is_last = before == a.n_v_heads / a.n_k_heads - 1;
        if (t.is_last) *done = 0;
    }
    __syncthreads();
    if (tid < a.v_dim) make_column(a, r, v_head, t, has_s, from);
    if (c.there && (quarter == 2 || t.is_last)) keep_window(a, r, c);
    if (c.there && quarter == 1 && t.is_last && from + 1 < a.chunk)
        r.live[a.state.k + ((uint64_t)from * a.n_k_heads + k_head) * a.k_dim + col] = t.in[1][col];
    __syncthreads();
    if (tid < DIM) write_row(a, t, out, z);
    if (from + 1 == a.chunk) fold_step(a, r, v_head, t, s);
}

} // namespace

const void *cuda_delta_step_kernel(void) {
    return (const void *)delta_step;
}
