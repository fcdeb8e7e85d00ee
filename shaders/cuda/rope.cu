/* rope.cu - norms of heads, rotary embedding and the store of K and V into the pools. */
#include "core/base/qblock.h"
#include "shaders/cuda/cargs.h"
#include "shaders/cuda/device.cuh"
#include "shaders/cuda/kernels.h"

namespace {

enum { WARPS = CUDA_ROPE_WARPS, THREADS = 32 * WARPS, MAX_DIM = CUDA_ROPE_MAX_DIM };
enum { PER_LANE = MAX_DIM / 32 }; /* values of a head, the i-th is lane + 32 i */

#define F16_MAX 65504.0f
#define F32_MAX 3.402823466e38f

__device__ float inverse_rms(float sum, uint32_t n, float eps) {
    return 1.0f / sqrtf(sum / (float)n + eps);
}

/* Of x (n), by the whole block, in one order for any number of rows. */
__device__ float row_scale(const float *x, uint32_t n, float eps, float *sums) {
    float sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        sum = fmaf(x[i], x[i], sum);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads(); /* the row is read before any of it is written */
    return inverse_rms((sums[0] + sums[1]) + (sums[2] + sums[3]), n, eps);
}

/* Cosines and sines of a row, one set for all heads of the block. The angle is rounded to f32 as on
 * every device; sine and cosine are those that hold for angles of many turns. */
__device__ void make_angles(const struct cargs_rope_store &a, float pos, float *cosines, float *sines) {
    for (uint32_t i = threadIdx.x; i < a.n_rot / 2; i += THREADS) {
        float s, c;
        sincosf(pos * a.inv_freq[i], &s, &c);
        cosines[i] = c * a.magnitude;
        sines[i] = s * a.magnitude;
    }
    __syncthreads();
}

/* x (head_dim) of one head, by its warp. */
__device__ void rotate(const struct cargs_rope_store &a, float *x, const float *cosines, const float *sines,
                       uint32_t lane) {
    for (uint32_t i = lane; i < a.n_rot / 2; i += 32) {
        const uint32_t first = a.interleaved ? 2 * i : i, second = a.interleaved ? first + 1 : i + a.n_rot / 2;
        const float c = cosines[i], s = sines[i], u = x[first], v = x[second];
        x[first] = fmaf(u, c, -(v * s));
        x[second] = fmaf(u, s, v * c);
    }
}

__device__ void store_value(uint32_t kv_type, unsigned char *run, uint32_t at, float v) {
    if (kv_type == QTYPE_F32) reinterpret_cast<float *>(run)[at] = v;
    if (kv_type == QTYPE_F16)
        reinterpret_cast<uint16_t *>(run)[at] =
            (uint16_t)pack_f16(v > F16_MAX ? F16_MAX : v < -F16_MAX ? -F16_MAX : v, 0.0f);
    if (kv_type == QTYPE_BF16) reinterpret_cast<uint16_t *>(run)[at] = (uint16_t)pack_bf16(v, 0.0f);
}

/* 32 dimensions of a token, one a lane, as Q8_0: the largest magnitude is 127, a group with a value that
 * is no number has a scale that is none. values: bytes of the run in front of the scales. */
__device__ void store_q8_0(unsigned char *run, uint32_t values, uint32_t at, uint32_t scale_at, float v,
                           uint32_t lane) {
    const float largest = warp_max(fabsf(v));
    const bool bad = __any_sync(CUDA_ALL, !(fabsf(v) <= F32_MAX));
    const float d = bad ? __int_as_float(0x7fffffff) : largest / 127.0f;
    const float inverse = d > 0.0f ? 1.0f / d : 0.0f;
    run[at] = d > 0.0f ? (unsigned char)(signed char)(int)rintf(v * inverse) : 0;
    if (lane == 0) reinterpret_cast<uint16_t *>(run + values)[scale_at] = (uint16_t)pack_f16(d, 0.0f);
}

/* x (head_dim) of one head to token `token` of a run of K (by_dim) or V. */
__device__ void store_head(const struct cargs_rope_store &a, const float *x, unsigned char *run, bool by_dim,
                           uint32_t token, uint32_t lane) {
    const uint32_t dim = a.head_dim, tokens = a.block_tokens;
    for (uint32_t d = lane; d < dim; d += 32) {
        const uint32_t at = by_dim ? d * tokens + token : token * dim + d, group = d / 32;
        if (a.kv_type == QTYPE_Q8_0)
            store_q8_0(run, tokens * dim, at, by_dim ? group * tokens + token : token * (dim / 32) + group,
                       x[d], lane);
        else
            store_value(a.kv_type, run, at, x[d]);
    }
}

/* One head from src to x in shared memory, normed. factors (head_dim), NULL: only scaled. */
__device__ void load_head(const struct cargs_rope_store &a, uint32_t norm, const float *src, const float *factors,
                          float scale, float *x, uint32_t lane) {
    float v[PER_LANE], f[PER_LANE], sum = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < PER_LANE; i++) {
        const bool there = lane + 32 * i < a.head_dim;
        v[i] = there ? src[lane + 32 * i] : 0.0f;
        f[i] = there && norm != CUDA_NORM_NONE ? factors[lane + 32 * i] : 1.0f;
    }
    if (norm == CUDA_NORM_HEADS) {
#pragma unroll
        for (uint32_t i = 0; i < PER_LANE; i++)
            sum = fmaf(v[i], v[i], sum);
        scale = inverse_rms(warp_sum(sum), a.head_dim, a.eps);
    }
#pragma unroll
    for (uint32_t i = 0; i < PER_LANE; i++)
        if (lane + 32 * i < a.head_dim) x[lane + 32 * i] = norm == CUDA_NORM_NONE ? v[i] : v[i] * scale * f[i];
    __syncwarp();
}

/* What a block does: some heads of q, k or v of one row. */
enum part { Q, K, V };

/* A warp a head. A row that is normed as a whole has one block for all its heads, since another would
 * overwrite what it sums. */
CUDA_KERNEL(THREADS) rope_store(CUDA_ARGS(struct cargs_rope_store) a) {
    __shared__ float heads[WARPS][MAX_DIM];
    __shared__ float cosines[MAX_DIM / 2], sines[MAX_DIM / 2], sums[WARPS];
    pdl_launch();
    pdl_wait();
    const uint32_t row = blockIdx.y, slot = (uint32_t)a.slots[row];
    if (slot >= a.n_slots) return;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const enum part part = blockIdx.x < a.q_blocks ? Q : blockIdx.x < a.q_blocks + a.k_blocks ? K : V;
    const uint32_t block = blockIdx.x - (part == Q ? 0 : part == K ? a.q_blocks : a.q_blocks + a.k_blocks);
    const uint32_t n_heads = part == Q ? a.n_heads : a.n_kv_heads;
    const uint32_t norm = part == Q ? a.q_norm_kind : part == K ? a.k_norm_kind : CUDA_NORM_NONE;
    const uint32_t first = block * WARPS;
    const uint32_t end = norm == CUDA_NORM_ROW ? n_heads : min(first + WARPS, n_heads);
    const uint64_t at = (uint64_t)row * n_heads * a.head_dim;
    const float *from = (part == Q ? a.q : part == K ? a.k : a.v) + at;
    const float *factors = part == Q ? a.q_norm : a.k_norm;
    float *x = heads[warp], scale = 1.0f;
    if (part != V && a.n_rot) make_angles(a, (float)a.pos[row], cosines, sines);
    if (norm == CUDA_NORM_ROW) scale = row_scale(from, n_heads * a.head_dim, a.eps, sums);
    for (uint32_t head = first + warp; head < end; head += WARPS) {
        load_head(a, norm, from + head * a.head_dim, norm == CUDA_NORM_ROW ? factors + head * a.head_dim : factors,
                  scale, x, lane);
        if (part != V) rotate(a, x, cosines, sines, lane);
        __syncwarp();
        if (part == Q) {
            for (uint32_t d = lane; d < a.head_dim; d += 32)
                a.q[at + head * a.head_dim + d] = x[d];
        } else {
            const uint64_t run = (uint64_t)(slot / a.block_tokens) * a.n_kv_heads + head;
            store_head(a, x, (part == K ? a.k_pool : a.v_pool) + run * a.run_bytes, part == K,
                       slot % a.block_tokens, lane);
        }
        __syncwarp();
    }
}

} // namespace

const void *cuda_rope_store_kernel(void) {
    return (const void *)rope_store;
}
