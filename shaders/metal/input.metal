// input.metal - prepares rows of the residual stream for a product: adds the pending residual, then
// applies the norm.
#include "shaders/args_linear.h"
#include "shaders/metal/sums.h"

// Function constants: enum margs_input_const (shaders/args_linear.h).
constant uint INPUT_VALUES [[function_constant(MARGS_INPUT_VALUES)]];
constant uint INPUT_RESIDUAL [[function_constant(MARGS_INPUT_RESIDUAL)]];
constant uint INPUT_RESIDUAL_NORM [[function_constant(MARGS_INPUT_RESIDUAL_NORM)]];
constant uint INPUT_NORM [[function_constant(MARGS_INPUT_NORM)]];
constant uint INPUT_CENTRED [[function_constant(MARGS_INPUT_CENTRED)]];
constant uint INPUT_BIAS [[function_constant(MARGS_INPUT_BIAS)]];

// 1 / sqrt(mean(v^2) + eps) of a row. The order of the sum depends only on n_in, as does the number
// of threads: thread t adds the squares of its columns t, t + threads, ... to four sums in turn and
// adds those in pairs; group_tree_sum adds the sums of the threads. At most 8 + 2 + 10 roundings of
// positive terms: within 20 * 2^-24 of the exact sum.
static inline float inverse_rms(thread const float *v,
                                constant args_input &a,
                                threadgroup float *parts,
                                uint simd,
                                uint n_simds,
                                uint lane) {
    float4 sums = 0.0f;
#pragma unroll
    for (uint i = 0; i < INPUT_VALUES; i++)
        sums[i % 4] = fma(v[i], v[i], sums[i % 4]);
    const float sum =
        group_tree_sum((sums.x + sums.y) + (sums.z + sums.w), parts, simd, n_simds, lane);
    return 1.0f / sqrt(sum / float(a.n_in) + a.eps);
}

// The mean of a row, summed in the same order.
static inline float mean_of(thread const float *v,
                            constant args_input &a,
                            threadgroup float *parts,
                            uint simd,
                            uint n_simds,
                            uint lane) {
    float4 sums = 0.0f;
#pragma unroll
    for (uint i = 0; i < INPUT_VALUES; i++)
        sums[i % 4] += v[i];
    return group_tree_sum((sums.x + sums.y) + (sums.z + sums.w), parts, simd, n_simds, lane) /
           float(a.n_in);
}

// One threadgroup per row; its threads keep the row in registers, so each value is read once. x
// (n_rows, n_in) f32 is written only with a residual, out (same shape) only with a norm.
[[max_total_threads_per_threadgroup(1024)]] kernel void
input_rows(constant args_input &a [[buffer(0)]],
           device float *x [[buffer(1)]],
           device const float *residual [[buffer(2)]],
           device const float *residual_norm [[buffer(3)]],
           device const float *norm [[buffer(4)]],
           device float *out [[buffer(5)]],
           device const float *bias [[buffer(6)]],
           uint row [[threadgroup_position_in_grid]],
           uint thread_at [[thread_index_in_threadgroup]],
           uint threads [[threads_per_threadgroup]],
           uint lane [[thread_index_in_simdgroup]],
           uint simd [[simdgroup_index_in_threadgroup]],
           uint n_simds [[simdgroups_per_threadgroup]]) {
    threadgroup float parts[3][SIMD_WIDTH];
    float v[MARGS_INPUT_MAX_VALUES], r[MARGS_INPUT_MAX_VALUES];
    const ulong first = ulong(row) * a.n_in;
#pragma unroll
    for (uint i = 0; i < INPUT_VALUES; i++) {
        const uint col = i * threads + thread_at;
        v[i] = col < a.n_in ? x[first + col] : 0.0f;
        if (INPUT_RESIDUAL) r[i] = col < a.n_in ? residual[first + col] : 0.0f;
    }
    if (INPUT_RESIDUAL_NORM) {
        const float inverse = inverse_rms(r, a, parts[0], simd, n_simds, lane);
#pragma unroll
        for (uint i = 0; i < INPUT_VALUES; i++) {
            const uint col = i * threads + thread_at;
            if (col < a.n_in) r[i] = r[i] * inverse * residual_norm[col];
        }
    }
    if (INPUT_RESIDUAL)
#pragma unroll
        for (uint i = 0; i < INPUT_VALUES; i++) {
            const uint col = i * threads + thread_at;
            v[i] = fma(a.residual_scale, r[i], v[i]);
            if (col < a.n_in) x[first + col] = v[i];
        }
    if (INPUT_CENTRED) {
        const float mean = mean_of(v, a, parts[2], simd, n_simds, lane);
#pragma unroll
        for (uint i = 0; i < INPUT_VALUES; i++)
            v[i] = i * threads + thread_at < a.n_in ? v[i] - mean : 0.0f;
    }
    if (INPUT_NORM) {
        const float inverse = inverse_rms(v, a, parts[1], simd, n_simds, lane);
#pragma unroll
        for (uint i = 0; i < INPUT_VALUES; i++) {
            const uint col = i * threads + thread_at;
            if (col < a.n_in)
                out[first + col] = v[i] * inverse * norm[col] + (INPUT_BIAS ? bias[col] : 0.0f);
        }
    }
}
