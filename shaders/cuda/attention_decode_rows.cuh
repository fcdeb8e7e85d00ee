/* attention_decode_rows.cuh - the shared memory of attention_decode.cu, and the rows of a step
 * there: the queries as products take them and the newest token's K and V, made by norm and rotary
 * embedding unless a previous kernel has made them. */
#ifndef INFERD_SHADERS_CUDA_ATTENTION_DECODE_ROWS_CUH
#define INFERD_SHADERS_CUDA_ATTENTION_DECODE_ROWS_CUH

#include "shaders/cuda/attention_decode_task.cuh"
#include "shaders/cuda/rope.cuh"

namespace {

enum { WARPS = CUDA_ATTENTION_WARPS, THREADS = 32 * WARPS };
/* Floats per query of scores; neighbouring queries are in different banks. */
enum { SCORE_PITCH = CHUNK + 4 };

/* ---- shared memory ---- */

/* K: each warp's quarter, of two chunks in turn or, from 256 dimensions of two bytes on, of one. V:
 * of two chunks; of wide heads, of one. Then scores (SLICE, SCORE_PITCH) for as many chunks as K,
 * a flag, and struct new_token. Until the first barrier of a chunk, V's second slot holds the
 * queries (rows_layout); those of wide heads, which have no second slot, are read from memory. */
template <int KV, int DIM> struct layout {
    static constexpr uint32_t element = kv_traits<KV>::quantized ? 1 : 2;
    static constexpr bool wide = DIM > 256;
    static constexpr uint32_t key_slots = wide || (element == 2 && DIM > 128) ? 1 : 2;
    static constexpr uint32_t value_slots = wide ? 1 : 2;
    static constexpr uint32_t scales =
        kv_traits<KV>::quantized ? DIM / SCALE_DIMS * QUARTER * 2 : 0; /* of a quarter */
    static constexpr uint32_t key_bytes = DIM * QUARTER * element + scales;
    static constexpr uint32_t values = DIM * CHUNK * element;
    static constexpr uint32_t value_bytes = values + 4 * scales;
    static constexpr uint32_t keys_at = 0, values_at = WARPS * key_slots * key_bytes;
    static constexpr uint32_t scores_at = values_at + value_slots * value_bytes;
    static constexpr uint32_t last_at =
        scores_at + key_slots * SLICE * SCORE_PITCH * (uint32_t)sizeof(float);
    static constexpr uint32_t new_token_at = last_at + 16;
    static constexpr int blocks = wide ? (element == 1 ? 2 : 1) /* per multiprocessor */
                                  : DIM == 64 || (element == 1 && DIM == 128) ? 4
                                                                              : 3;
    static constexpr uint32_t bytes = new_token_at + (wide ? 0 : (DIM + DIM / SCALE_DIMS) * 4);
};

/* Offset of 8 tokens of dimension d of a quarter of K, f16: rows of 32 bytes, with the halves of
 * every second group of four rows swapped, so that eight rows of one half are in different
 * banks. */
__device__ __forceinline__ uint32_t key_place(uint32_t d, uint32_t half) {
    return d * 32 + ((half ^ (d / 4)) & 1) * 16;
}

/* Offset of the 16 dimensions `unit` of a token of a chunk of V, Q8_0. */
template <int DIM>
__device__ __forceinline__ uint32_t value_place_q8(uint32_t token, uint32_t unit) {
    if (DIM == 64) return token * 64 + ((unit ^ (token / 2)) & 3) * 16;
    return value_place(token, unit);
}

/* ---- q, k and v of a step's rows, unless a previous kernel has made them ---- */

/* The newest token of a sequence as K and V store it: bits and scales of its k, then of its v. */
struct new_token {
    int chunk; /* its chunk; below 0: not in this block */
    uint32_t token;
    uint16_t *bits, *scales; /* (2, DIM), (2, DIM / SCALE_DIMS) */
};

template <int KV, int DIM>
__device__ __forceinline__ void patch_keys(uint8_t *keys, const new_token &f, int head_dim) {
    const uint32_t lane = threadIdx.x % 32, token = f.token % QUARTER;
    uint16_t bits[DIM / 32];
#pragma unroll
    for (uint32_t i = 0; i < DIM / 32; i++)
        if (i * 32 + lane < (uint32_t)head_dim) bits[i] = f.bits[i * 32 + lane];
#pragma unroll
    for (uint32_t i = 0; i < DIM / 32; i++) {
        const uint32_t d = i * 32 + lane;
        if (d >= (uint32_t)head_dim) break;
        if (kv_traits<KV>::quantized)
            keys[d * 16 + token] = (uint8_t)bits[i];
        else
            *reinterpret_cast<uint16_t *>(keys + key_place(d, token / 8) + token % 8 * 2) = bits[i];
    }
    if (kv_traits<KV>::quantized && lane < (uint32_t)head_dim / SCALE_DIMS)
        reinterpret_cast<uint16_t *>(keys + DIM * 16)[lane * QUARTER + token] = f.scales[lane];
    __syncwarp();
}

template <int KV, int DIM>
__device__ __forceinline__ void patch_values(uint8_t *values, const new_token &f, int head_dim) {
    const uint32_t lane = threadIdx.x % 32, groups = (uint32_t)head_dim / SCALE_DIMS;
    if (kv_traits<KV>::quantized) {
#pragma unroll 4
        for (uint32_t d = lane; d < (uint32_t)head_dim; d += 32)
            values[value_place_q8<DIM>(f.token, d / 16) + d % 16] = (uint8_t)f.bits[DIM + d];
        if (lane < groups)
            reinterpret_cast<uint16_t *>(values +
                                         layout<KV, DIM>::values)[f.token * groups + lane] =
                f.scales[DIM / SCALE_DIMS + lane];
    } else {
#pragma unroll
        for (uint32_t unit = lane; unit < DIM / 8; unit += 32)
            if (unit * 8 < (uint32_t)head_dim)
                *reinterpret_cast<uint4 *>(values + value_place(f.token, unit)) =
                    *reinterpret_cast<const uint4 *>(f.bits + DIM + unit * 8);
    }
}

/* Source of row `at`: the queries, then k, then v. */
__device__ __forceinline__ const float *row_at(const cargs_attention &a, const cargs_rope_store &r,
                                               const task &t, uint32_t at) {
    const uint64_t kv_row = ((uint64_t)t.row * a.op.n_kv_heads + t.kv_head) * a.head_dim;
    return at < t.n_queries ? a.q + query_at(a, t, at) : (at == t.n_queries ? r.k : r.v) + kv_row;
}

/* Memory of the rows in V's second slot: angles (DIM) f32; a row (DIM) f32 of each warp; the
 * rounded queries, each part (SLICE) rows of DIM elements, in different banks; what undoes their
 * scaling, (SLICE) f32. */
template <int KV, int DIM> struct rows_layout {
    static constexpr uint32_t pitch = DIM * 2 + 16;
    static constexpr uint32_t own_at = DIM * 4, queries_at = own_at + WARPS * DIM * 4;
    static constexpr uint32_t part_bytes = SLICE * pitch;
    static constexpr uint32_t back_at = queries_at + kv_traits<KV>::q_parts * part_bytes;
    static_assert(layout<KV, DIM>::wide ||
                      back_at + SLICE * sizeof(float) <= layout<KV, DIM>::value_bytes,
                  "");
};

template <int DIM> constexpr int n_quads = (DIM + 127) / 128; /* of a lane, of a row */

/* What making rows needs that does not depend on the previous kernel. */
template <int DIM> struct row_factors {
    float q_norm[n_quads<DIM>][4], k_norm[n_quads<DIM>][4], q_scale;
    uint32_t slot;
};

template <int KV, int DIM>
__device__ __forceinline__ void prepare_rows(const cargs_attention &a, const cargs_rope_store &r,
                                             const task &t, bool makes, new_token &f,
                                             row_factors<DIM> &factors, uint8_t *work) {
    using at = rows_layout<KV, DIM>;
    factors.q_scale = 1, factors.slot = 0;
    if (t.n_queries < SLICE) { /* missing queries are zeros */
#pragma unroll 1
        for (uint32_t i = threadIdx.x * 16; i < at::back_at - at::queries_at; i += THREADS * 16)
            *reinterpret_cast<uint4 *>(work + at::queries_at + i) = make_uint4(0, 0, 0, 0);
        if (threadIdx.x < SLICE) reinterpret_cast<float *>(work + at::back_at)[threadIdx.x] = 1;
    }
    if (makes) {
        float *angles = reinterpret_cast<float *>(work);
        factors.slot = (uint32_t)r.slots[t.row];
        if (r.q_norm_kind == ARGS_NORM_HEADS) read_head(r, r.q_norm, factors.q_norm, true);
        if (r.k_norm_kind == ARGS_NORM_HEADS) read_head(r, r.k_norm, factors.k_norm, true);
        factors.q_scale = q_scale_at(r, (int32_t)t.keys.last);
        make_angles(r, (float)t.keys.last, angles, angles + r.n_rot / 2, threadIdx.x, THREADS);
        if (factors.slot >= r.op.n_slots) f.chunk = -1;
    }
    __syncthreads();
}

/* Leaves a query as attention.cuh rounds it. By all lanes of a warp. */
template <int KV, int DIM>
__device__ __forceinline__ void round_query(const float (&v)[n_quads<DIM>][4], float q_scale,
                                            uint32_t query, uint8_t *work) {
    using at = rows_layout<KV, DIM>;
    constexpr int N = n_quads<DIM>;
    float up = 1, back = 1;
    if (KV != CUDA_ATTENTION_BF16) {
        float top = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4 * N; i++)
            top = fmaxf(top, fabsf(v[i / 4][i % 4]));
        up = scale_for(__fmul_rn(warp_max(top), fabsf(q_scale)), &back);
    }
#pragma unroll
    for (uint32_t i = 0; i < N; i++) {
        uint32_t high[2], low[2];
#pragma unroll
        for (uint32_t e = 0; e < 2; e++) {
            const float x = __fmul_rn(__fmul_rn(v[i][2 * e], q_scale), up),
                        y = __fmul_rn(__fmul_rn(v[i][2 * e + 1], q_scale), up);
            high[e] = pack<KV>(x, y);
            const float2 h = unpack_bf16(high[e]);
            low[e] = pack_bf16(__fsub_rn(x, h.x), __fsub_rn(y, h.y));
        }
        uint8_t *to = work + at::queries_at + query * at::pitch + quad_dim(i) * 2;
        if (quad_dim(i) >= DIM) continue;
        *reinterpret_cast<uint2 *>(to) = make_uint2(high[0], high[1]);
        if (kv_traits<KV>::q_parts == 2)
            *reinterpret_cast<uint2 *>(to + at::part_bytes) = make_uint2(low[0], low[1]);
    }
    if (threadIdx.x % 32 == 0) reinterpret_cast<float *>(work + at::back_at)[query] = back;
}

/* Makes the task's queries: reads them, norms and rotates them if they are not ready (`makes`),
 * rounds them; then also, if this block has the newest token, its k and v, which the first slice's
 * block stores too. The rows are distributed over the warps. */
template <int KV, int DIM>
__device__ __forceinline__ void make_rows(const cargs_attention &a, const cargs_rope_store &r,
                                          const task &t, bool makes, const new_token &f,
                                          row_factors<DIM> &factors, uint8_t *work) {
    using at_work = rows_layout<KV, DIM>;
    const uint32_t warp = threadIdx.x / 32, head_dim = a.head_dim,
                   n = t.n_queries + (f.chunk >= 0 ? 2 : 0);
    const float *cosines = reinterpret_cast<const float *>(work), *sines = cosines + r.n_rot / 2;
    float *own = reinterpret_cast<float *>(work + at_work::own_at) + warp * DIM;
    constexpr int N = n_quads<DIM>;
    constexpr uint32_t type = KV == CUDA_ATTENTION_F16    ? QTYPE_F16
                              : KV == CUDA_ATTENTION_BF16 ? QTYPE_BF16
                                                          : QTYPE_Q8_0;
    float next[N][4];
    if (warp < n) read_values(row_at(a, r, t, warp), head_dim, next, true);
#pragma unroll 1
    for (uint32_t at = warp; at < n; at += WARPS) {
        const bool is_k = at == t.n_queries;
        float v[N][4];
#pragma unroll
        for (uint32_t i = 0; i < 4 * N; i++) {
            v[i / 4][i % 4] = next[i / 4][i % 4];
            if (is_k) factors.q_norm[i / 4][i % 4] = factors.k_norm[i / 4][i % 4];
        }
        if (at + WARPS < n) read_values(row_at(a, r, t, at + WARPS), head_dim, next, true);
        if (makes && at <= t.n_queries)
            norm_and_rotate(r, is_k ? r.k_norm_kind : r.q_norm_kind, v, factors.q_norm, 1.0f, own,
                            cosines, sines, true, true);
        if (at < t.n_queries) {
            scale_head(v, factors.q_scale);
            round_query<KV, DIM>(v, a.op.q_scale, at, work);
            continue;
        }
        unsigned char *run = t.query == 0
                                 ? slot_run(r, is_k ? r.k_pool : r.v_pool, factors.slot, t.kv_head)
                                 : nullptr;
        store_head(r, v, run, is_k, factors.slot % r.block_tokens, f.bits + (is_k ? 0 : DIM),
                   f.scales + (is_k ? 0 : DIM / SCALE_DIMS), type, true);
    }
    __syncthreads();
}

/* The lane's words of the rounded queries. */
template <int KV, int DIM>
__device__ __forceinline__ void read_queries(const uint8_t *work, query_words<KV, DIM> &q) {
    using at = rows_layout<KV, DIM>;
    const uint32_t lane = threadIdx.x % 32;
    const uint8_t *from = work + at::queries_at + lane % 8 * at::pitch + lane / 8 * 16;
#pragma unroll
    for (int part = 0; part < kv_traits<KV>::q_parts; part++)
#pragma unroll
        for (int k = 0; k < DIM / 32; k++)
            ldmatrix4(q.part[part] + 4 * k, from + part * at::part_bytes + k * 64);
    q.back = reinterpret_cast<const float *>(work + at::back_at)[lane / 4];
}

} // namespace
#endif
