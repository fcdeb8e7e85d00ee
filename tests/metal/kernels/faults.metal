// faults.metal - each kernel makes one mistake that the executor must report, or (ok_) only seems
// to; test_standin_runtime_faults.c has the reports.
#include <metal_stdlib>
using namespace metal;

kernel void ok_loop(device uint *d [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    for (uint n = 0; n < 100; n++)
        d[i] += simd_sum(n);
}
kernel void loop_plain(device uint *d [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    uint x = i;
    while (x != 1000000007u)
        x = x * 2 + 2; // always even
    d[i] = x;
}
kernel void loop_simd(device uint *d [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    uint x = 0;
    while (x != 3)
        x = simd_sum(2u);
    d[i] = x;
}
kernel void loop_memory(device volatile uint *d [[buffer(0)]]) {
    while (d[0] != 12345u) {
    }
}

kernel void misaligned_float4(device float *d [[buffer(0)]]) {
    d[0] = (*(device float4 *)(d + 1)).x + (*(device float4 *)(d + 1)).w;
    *(device float4 *)(d + 1) = float4(1.0f);
}
kernel void misaligned_half4(device half *d [[buffer(0)]]) {
    *(device half4 *)(d + 2) = half4(1.0h);
}
kernel void misaligned_uint(device uchar *d [[buffer(0)]]) {
    *(device uint *)(d + 2) = 1;
}
kernel void misaligned_threadgroup(device float *d [[buffer(0)]],
                                   threadgroup float *t [[threadgroup(0)]]) {
    *(threadgroup float2 *)(t + 1) = float2(1.0f);
    d[0] = t[1];
}
kernel void ok_packed(device float *d [[buffer(0)]]) {
    *(device packed_float4 *)(d + 1) = packed_float4(float4(1.0f));
    d[0] = (*(device packed_float3 *)(d + 2)).x;
}

kernel void atomic_past_end(device atomic_uint *c [[buffer(0)]]) {
    atomic_fetch_add_explicit(c + 1000, 1, memory_order_relaxed);
}
kernel void atomic_exchange_past_end(device atomic_uint *c [[buffer(0)]]) {
    uint expected = 0;
    atomic_compare_exchange_weak_explicit(c + 1000, &expected, 1, memory_order_relaxed,
                                          memory_order_relaxed);
}
kernel void atomic_load_before(device atomic_uint *c [[buffer(0)]], device uint *d [[buffer(1)]]) {
    d[0] = atomic_load_explicit(c - 1000, memory_order_relaxed);
}
kernel void atomic_misaligned(device uchar *c [[buffer(0)]]) {
    atomic_store_explicit((device atomic_uint *)(c + 2), 1, memory_order_relaxed);
}
kernel void atomic_on_const(device const uint *c [[buffer(0)]]) {
    atomic_fetch_max_explicit((device atomic_uint *)c, 1, memory_order_relaxed);
}
kernel void atomic_outside_threadgroup(device uint *d [[buffer(0)]],
                                       threadgroup atomic_uint *t [[threadgroup(0)]]) {
    atomic_fetch_add_explicit(t + 1000, 1, memory_order_relaxed);
    d[0] = 0;
}
kernel void atomic_uninitialised(device uint *d [[buffer(0)]],
                                 threadgroup atomic_uint *t [[threadgroup(0)]]) {
    d[0] = atomic_fetch_add_explicit(t, 1, memory_order_relaxed);
}
kernel void atomic_against_read(device uint *d [[buffer(0)]],
                                threadgroup atomic_uint *t [[threadgroup(0)]],
                                uint i [[thread_index_in_threadgroup]]) {
    if (i == 0) atomic_store_explicit(t, 0, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(t, 1, memory_order_relaxed);
    d[i] = *(threadgroup uint *)t;
}
kernel void ok_atomics(device uint *d [[buffer(0)]], threadgroup atomic_uint *t [[threadgroup(0)]],
                       uint i [[thread_index_in_threadgroup]]) {
    if (i == 0) atomic_store_explicit(t, 0, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(t, 1, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (i == 0) d[0] = *(threadgroup uint *)t;
}

// Two arguments in one buffer: an access to b does not overrun a.
kernel void one_buffer(device const float *a [[buffer(0)]], device float *b [[buffer(1)]],
                       uint i [[thread_position_in_grid]]) {
    b[i] = a[i];
}
