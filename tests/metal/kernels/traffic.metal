// traffic.metal - kernels with known traffic; test_standin_runtime_traffic.c has the figures.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

struct args {
    uint n, rows;
};

// y[row] = w (rows, n) x: one simdgroup per row, float4 loads; every row reads x.
kernel void matvec(constant args &a [[buffer(0)]], device const float *w [[buffer(1)]],
                   device const float *x [[buffer(2)]], device float *y [[buffer(3)]],
                   uint row [[threadgroup_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]]) {
    device const float4 *w4 = (device const float4 *)(w + row * a.n);
    device const float4 *x4 = (device const float4 *)x;
    float sum = 0.0f;
    for (uint i = lane; i < a.n / 4; i += 32)
        sum += dot(w4[i], x4[i]);
    sum = simd_sum(sum);
    if (lane == 0) y[row] = sum;
}
// The same, with each weight read again after the sum: two requests.
kernel void matvec_twice(constant args &a [[buffer(0)]], device const float *w [[buffer(1)]],
                         device const float *x [[buffer(2)]], device float *y [[buffer(3)]],
                         uint row [[threadgroup_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]]) {
    float sum = 0.0f, scale = 0.0f;
    for (uint i = lane; i < a.n; i += 32)
        scale = max(scale, fabs(w[row * a.n + i]));
    scale = simd_max(scale);
    for (uint i = lane; i < a.n; i += 32)
        sum += w[row * a.n + i] / scale * x[i];
    sum = simd_sum(sum);
    if (lane == 0) y[row] = sum * scale;
}
// All lanes read the same value; each lane reads its own twice without a synchronization point
// between.
kernel void shared_reads(device const float *x [[buffer(0)]],
                         device volatile float *y [[buffer(1)]],
                         uint lane [[thread_index_in_simdgroup]]) {
    const float own = y[lane] + y[lane];
    y[lane] = x[0] + own;
}
kernel void meetings(device float *y [[buffer(0)]], threadgroup float *t [[threadgroup(0)]],
                     uint i [[thread_index_in_threadgroup]]) {
    threadgroup float fixed[100];
    threadgroup float4 one;
    t[i] = 1.0f;
    if (i < 100) fixed[i] = 2.0f;
    if (i == 0) one = float4(3.0f);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(1.0f), b = a, c = a;
    simdgroup_multiply_accumulate(c, a, b, c);
    simdgroup_multiply_accumulate(c, a, b, c);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = t[i ^ 1] + fixed[i % 100] + one.x + c.thread_elements()[0];
}
// Two instances of one kernel, with different threadgroup memory.
template <typename T, uint N>
kernel void sized(device T *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    threadgroup T a[N], b[2 * N];
    if (i < N) a[i] = b[i] = T(1);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (i < N) y[i] = a[i] + b[i];
}
template [[host_name("sized_f32")]] kernel void sized<float, 8>(device float *, uint);
template [[host_name("sized_f16")]] kernel void sized<half, 40>(device half *, uint);
kernel void count(device atomic_uint *c [[buffer(0)]]) {
    atomic_fetch_add_explicit(c, 1, memory_order_relaxed);
}
