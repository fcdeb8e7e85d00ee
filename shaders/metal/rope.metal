// rope.metal - norms of heads, rotary embedding, and the store of K and V to the pools.
#include "shaders/args_attention.h"
#include "shaders/metal/kv.h"

// Function constants: enum margs_rope_const (shaders/args_attention.h).
constant uint KV_TYPE [[function_constant(MARGS_ROPE_KV_TYPE)]];
constant uint HEAD_DIM [[function_constant(MARGS_ROPE_HEAD_DIM)]];
constant uint BLOCK_TOKENS [[function_constant(MARGS_ROPE_BLOCK_TOKENS)]];
constant uint Q_NORM [[function_constant(MARGS_ROPE_Q_NORM)]];
constant uint K_NORM [[function_constant(MARGS_ROPE_K_NORM)]];
constant uint N_ROT [[function_constant(MARGS_ROPE_N_ROT)]];
constant uint INTERLEAVED [[function_constant(MARGS_ROPE_INTERLEAVED)]];
constant uint NORM_DIM [[function_constant(MARGS_ROPE_NORM_DIM)]];
constant uint FIRST_ROT [[function_constant(MARGS_ROPE_FIRST_ROT)]];

#define SIMDGROUPS   MARGS_ROPE_SIMDGROUPS /* of a threadgroup, one head each at a time */
#define MAX_HEAD_DIM MARGS_ROPE_MAX_DIM
#define F16_MAX      65504.0f

// Adds lanes in pairs, then pairs of pairs and so on: the same order for any number of rows.
static inline float sum_of_lanes(float v) {
    for (ushort apart = 1; apart < SIMD_WIDTH; apart *= 2)
        v += simd_shuffle_xor(v, apart);
    return v;
}

static inline float inverse_rms(float sum, uint n, float eps) {
    return 1.0f / sqrt(sum / float(n) + eps);
}

// The inverse RMS of x (n), by the whole threadgroup; sums (SIMDGROUPS).
static inline float row_scale(
    device const float *x, uint n, float eps, threadgroup float *sums, uint lane, uint simdgroup) {
    float sum = 0.0f;
    for (uint i = simdgroup * SIMD_WIDTH + lane; i < n; i += SIMDGROUPS * SIMD_WIDTH)
        sum = fma(x[i], x[i], sum);
    sum = sum_of_lanes(sum);
    if (lane == 0) sums[simdgroup] = sum;
    // The row is read before any of it is written.
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    return inverse_rms((sums[0] + sums[1]) + (sums[2] + sums[3]), n, eps);
}

static inline float head_scale(device const float *x, float eps, uint lane) {
    float sum = 0.0f;
    for (uint d = lane; d < NORM_DIM; d += SIMD_WIDTH)
        sum = fma(x[d], x[d], sum);
    return inverse_rms(sum_of_lanes(sum), NORM_DIM, eps);
}

// Rotates x (HEAD_DIM), one head, in place. The angle is rounded to f32 as on every backend.
// precise:: sine and cosine are accurate for large angles too.
static inline void
rotate(threadgroup float *x, device const float *inv_freq, float pos, float magnitude, uint lane) {
    for (uint i = lane; i < N_ROT / 2; i += SIMD_WIDTH) {
        const uint first = FIRST_ROT + (INTERLEAVED ? 2 * i : i);
        const uint second = FIRST_ROT + (INTERLEAVED ? 2 * i + 1 : i + N_ROT / 2);
        const float angle = pos * inv_freq[i];
        const float c = precise::cos(angle) * magnitude, s = precise::sin(angle) * magnitude;
        const float u = x[first], v = x[second];
        x[first] = fma(u, c, -(v * s));
        x[second] = fma(u, s, v * c);
    }
}

// Norms x (HEAD_DIM), one head, in place; a lane has its own values alone.
static inline void
norm_rotated(threadgroup float *x, device const float *factors, float eps, uint lane) {
    float sum = 0.0f;
    for (uint d = lane; d < NORM_DIM; d += SIMD_WIDTH)
        sum = fma(x[d], x[d], sum);
    const float scale = inverse_rms(sum_of_lanes(sum), NORM_DIM, eps);
    for (uint d = lane; d < NORM_DIM; d += SIMD_WIDTH)
        x[d] = x[d] * scale * factors[d];
    simdgroup_barrier(mem_flags::mem_threadgroup);
}

// The factor of q at a position.
static inline float q_scale_at(constant args_rope_store &a, int pos) {
    if (a.q_log_length == 0 || pos < 0) return 1.0f;
    return 1.0f +
           a.q_log_scale * precise::log(float(1 + (uint(pos) + a.q_log_from) / a.q_log_length));
}

// Stores one value to element `at` of a run.
static inline void store_value(device uchar *run, uint at, float v) {
    if (KV_TYPE == QTYPE_F32) ((device float *)run)[at] = v;
    if (KV_TYPE == QTYPE_F16)
        ((device half *)run)[at] = half(v > F16_MAX ? F16_MAX : v < -F16_MAX ? -F16_MAX : v);
    if (KV_TYPE == QTYPE_BF16) {
        const uint u = as_type<uint>(v);
        const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
        ((device ushort *)run)[at] =
            ushort(nan ? u >> 16 | 0x40u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
    }
}

// Stores 32 dimensions of a token, one per lane, as Q8_0: the largest magnitude becomes 127. A
// group with a NaN or infinite value gets a NaN scale.
static inline void store_q8_0(device uchar *run, uint at, uint scale_at, float v, uint lane) {
    const float largest = simd_max(fabs(v));
    const bool bad = simd_any(!isfinite(v));
    const float d = bad ? NAN : largest / 127.0f;
    const float inverse = d > 0.0f ? 1.0f / d : 0.0f;
    ((device char *)run)[at] = d > 0.0f ? char(int(rint(v * inverse))) : char(0);
    if (lane == 0)
        ((device half *)(run + kv_values_bytes(KV_TYPE, HEAD_DIM, BLOCK_TOKENS)))[scale_at] =
            half(d);
}

// Stores x (HEAD_DIM), one head, to token `token` of a run of K (by_dim) or V.
static inline void
store_head(threadgroup const float *x, device uchar *run, bool by_dim, uint token, uint lane) {
    for (uint d = lane; d < HEAD_DIM; d += SIMD_WIDTH) {
        const uint at = by_dim ? d * BLOCK_TOKENS + token : token * HEAD_DIM + d;
        const uint group = d / KV_SCALE_DIMS, n_groups = HEAD_DIM / KV_SCALE_DIMS;
        if (KV_TYPE == QTYPE_Q8_0)
            store_q8_0(run, at, by_dim ? group * BLOCK_TOKENS + token : token * n_groups + group,
                       x[d], lane);
        else
            store_value(run, at, x[d]);
    }
}

// q (n_rows, n_heads, HEAD_DIM) f32, in place; k, v (n_rows, n_kv_heads, HEAD_DIM) f32; pos, slots
// (n_rows) i32; inv_freq (N_ROT / 2) f32; norms (NORM_DIM) or (a whole row) f32. Grid: (groups of
// heads, rows, {q, k, v}, {q, k} or {q}). A row with one norm for all heads is processed by one
// threadgroup, because another one would overwrite values that it still sums.
kernel void rope_store(constant args_rope_store &a [[buffer(0)]],
                       device float *q [[buffer(1)]],
                       device const float *k [[buffer(2)]],
                       device const float *v [[buffer(3)]],
                       device const int *pos [[buffer(4)]],
                       device const int *slots [[buffer(5)]],
                       device const float *inv_freq [[buffer(6)]],
                       device const float *q_norm [[buffer(7)]],
                       device const float *k_norm [[buffer(8)]],
                       device uchar *k_pool [[buffer(9)]],
                       device uchar *v_pool [[buffer(10)]],
                       uint3 group [[threadgroup_position_in_grid]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float heads[SIMDGROUPS][MAX_HEAD_DIM];
    threadgroup float sums[SIMDGROUPS];
    const bool is_q = group.z == 0, is_k = group.z == 1, is_v = group.z == 2;
    const uint n_heads = is_q ? a.n_heads : a.n_kv_heads;
    const uint v_norm = a.v_normed != 0 ? ARGS_NORM_HEADS : ARGS_NORM_NONE;
    const uint norm = is_q ? Q_NORM : is_k ? K_NORM : v_norm;
    const uint first = group.x * SIMDGROUPS, slot = uint(slots[group.y]);
    if (first >= n_heads || (norm == ARGS_NORM_ROW && group.x > 0) || slot >= a.n_slots) return;
    const uint end = norm == ARGS_NORM_ROW ? n_heads : min(first + SIMDGROUPS, n_heads);
    const ulong row = ulong(group.y) * n_heads * HEAD_DIM;
    device const float *from = is_q ? q + row : is_k ? k + row : v + row;
    device const float *factors = is_q ? q_norm : k_norm;
    threadgroup float *x = heads[simdgroup];
    const float q_scale = q_scale_at(a, pos[group.y]);
    float scale = 1.0f;
    if (norm == ARGS_NORM_ROW)
        scale = row_scale(from, n_heads * HEAD_DIM, a.eps, sums, lane, simdgroup);
    for (uint head = first + simdgroup; head < end; head += SIMDGROUPS) {
        device const float *src = from + head * HEAD_DIM;
        if (norm == ARGS_NORM_HEADS) scale = head_scale(src, a.eps, lane);
        for (uint d = lane; d < HEAD_DIM; d += SIMD_WIDTH)
            x[d] = norm == ARGS_NORM_NONE || (a.norm_last != 0 && !is_v) ? src[d]
                   : is_v                                                ? src[d] * scale
                   : norm == ARGS_NORM_HEADS ? d < NORM_DIM ? src[d] * scale * factors[d] : src[d]
                                             : src[d] * scale * factors[head * HEAD_DIM + d];
        simdgroup_barrier(mem_flags::mem_threadgroup);
        if (is_q || is_k) rotate(x, inv_freq, float(pos[group.y]), a.magnitude, lane);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        if (norm == ARGS_NORM_HEADS && a.norm_last != 0 && !is_v)
            norm_rotated(x, factors, a.eps, lane);
        if (is_q) {
            for (uint d = lane; d < HEAD_DIM; d += SIMD_WIDTH)
                q[row + head * HEAD_DIM + d] = x[d] * q_scale;
        } else {
            const ulong run = ulong(slot / BLOCK_TOKENS) * a.n_kv_heads + head;
            store_head(
                x, (is_k ? k_pool : v_pool) + run * kv_run_bytes(KV_TYPE, HEAD_DIM, BLOCK_TOKENS),
                is_k, slot % BLOCK_TOKENS, lane);
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }
}
