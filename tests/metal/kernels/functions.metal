// functions.metal - each kernel writes the results of functions for one thread or one simdgroup;
// test_standin_runtime_msl.c has the expected values.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

#define PUT(v) out[n++] = float(v)

kernel void common(device float *out [[buffer(0)]]) {
    uint n = 0;
    PUT(clamp(5.0f, 0.0f, 2.0f));
    PUT(clamp(int4(-7, 3, 9, 1), 0, 4).z);
    PUT(mix(2.0f, 4.0f, 0.25f));
    PUT(mix(float2(0.0f), float2(8.0f), 0.5f).y);
    PUT(select(1.0f, 2.0f, true));
    PUT(select(float4(1), float4(2), bool4(false, true, false, true)).w);
    PUT(step(1.0f, 0.5f));
    PUT(smoothstep(0.0f, 2.0f, 1.0f));
    PUT(sign(-3.0f));
    PUT(saturate(1.5h));
    PUT(median3(3, 1, 2));
    PUT(max3(1.0f, 7.0f, 2.0f));
    PUT(fma(2.0f, 3.0f, 4.0f));
    PUT(fma(half4(2.0h), half4(3.0h), half4(1.0h)).x);
    PUT(dot(float3(1, 2, 3), float3(4, 5, 6)));
    PUT(cross(float3(1, 0, 0), float3(0, 1, 0)).z);
    PUT(length(float2(3, 4)));
    PUT(normalize(float2(0, 5)).y);
    PUT(abs(-3));
    PUT(abs(float2(-1.5f, 1)).x);
    PUT(any(float4(0, 0, 1, 0) > 0.5f));
    PUT(all(float2(0, 1) > 0.5f));
    PUT(isnan(as_type<float>(0x7fc00000u)));
    PUT(isinf(float2(1.0f, INFINITY)).y);
    PUT(ldexp(1.5f, 4));
    PUT(exp2(3.0f));
    PUT(exp10(2.0f));
    PUT(sinpi(0.5f));
    PUT(precise::tanh(0.0f));
    PUT(fmod(7.5f, 2.0f));
    PUT(divide(1.0f, 4.0f));
    float whole;
    PUT(modf(-2.25f, whole));
    PUT(whole);
    int e;
    PUT(frexp(12.0f, e));
    PUT(e);
}

kernel void integers(device float *out [[buffer(0)]]) {
    uint n = 0;
    PUT(popcount(0xF0F0u));
    PUT(popcount(ushort(0xFFFF)));
    PUT(clz(1u));
    PUT(clz(ushort(1)));
    PUT(clz(0));
    PUT(ctz(8u));
    PUT(ctz(uchar(0)));
    PUT(extract_bits(0xABCDu, 4u, 8u));
    PUT(extract_bits(-16, 4u, 4u));
    PUT(insert_bits(0u, 0x5u, 4u, 4u));
    PUT(rotate(0x80000001u, 1u));
    PUT(reverse_bits(uchar(1)));
    PUT(mulhi(0x80000000u, 6u));
    PUT(mulhi(-2, 3));
    PUT(addsat(uchar(250), uchar(10)));
    PUT(subsat(5u, 9u));
    PUT(addsat(char(-100), char(-100)));
    PUT(absdiff(-3, 4));
    PUT(hadd(uchar(255), uchar(254)));
    PUT(rhadd(uchar(255), uchar(254)));
    PUT(mad24(3, 4, 5));
    PUT(min(uchar4(9, 8, 7, 6), uchar4(7)).x);
    PUT(as_type<uint>(1.0f) >> 20);
    PUT(as_type<half2>(0x3C004000u).x);
    PUT(as_type<uchar4>(0x04030201u).w);
    PUT(ushort4(uchar4(1, 2, 3, 255)).w);
    PUT(int(uchar(200)) - 8);
    PUT(char4(uchar4(255)).x);
    PUT(numeric_limits<short>::max());
}

struct packed {
    packed_half2 a;
    packed_uchar3 b;
    uchar pad;
    packed_float3 c;
};
static_assert(sizeof(packed) == 20 && alignof(packed) == 4, "packed types have no holes");

kernel void packs(device float *out [[buffer(0)]], device const packed *in [[buffer(1)]]) {
    uint n = 0;
    PUT(in->a.y);
    PUT(in->b[2]);
    PUT(in->c.z);
    PUT((in->c * 2.0f).x);
    PUT(float3(in->c).y);
    PUT(dot(float3(in->c), float3(1)));
    PUT(sizeof(float3));
    PUT(sizeof(packed_float3));
    PUT(sizeof(bfloat4));
    bfloat x = bfloat(1.0f) + bfloat(0.00390625f); // half of the last bit: rounds to even
    PUT(x);
    bfloat4 y = bfloat4(float4(1, 2, 3, 4.015625f));
    PUT(y.w);
    half4 h = half4(float4(65504, 1, 2, 3)) * 2.0h;
    PUT(h.x);
    PUT(h.wzyx.x);
    float4 v = float4(1, 2, 3, 4);
    v.xw = v.wx;
    PUT(v.x * 10 + v.w);
    PUT(float3x3(2.0f)[1][1]);
}

// out (rows, 32): one row per function.
kernel void lanes(device float *out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]]) {
    const float v = float(lane + 1);
    uint n = lane;
#define LANE(e) out[n] = float(e), n += 32
    LANE(simd_sum(v));
    LANE(simd_max(v));
    LANE(simd_min(v));
    LANE(simd_xor(lane));
    LANE(simd_shuffle(v, ushort(31 - lane)));
    LANE(simd_shuffle_xor(v, 5));
    LANE(simd_shuffle_down(v, 4));
    LANE(simd_shuffle_up(v, 4));
    LANE(simd_shuffle_rotate_down(v, 3));
    LANE(simd_shuffle_rotate_up(v, 3));
    LANE(simd_shuffle_and_fill_up(v, -v, 2));
    LANE(simd_broadcast(v, 7));
    LANE(simd_broadcast_first(v));
    LANE(simd_prefix_inclusive_sum(v));
    LANE(simd_prefix_exclusive_sum(v));
    LANE(simd_prefix_exclusive_product(lane < 4 ? 2.0f : 1.0f));
    LANE(quad_sum(v));
    LANE(quad_max(v));
    LANE(quad_broadcast(v, 2));
    LANE(quad_shuffle_xor(v, 1));
    LANE(quad_prefix_exclusive_sum(v));
    LANE(ulong(simd_ballot(lane % 2 == 0)) & 0xFFFF);
    LANE(simd_any(lane == 9));
    LANE(simd_all(lane < 31));
    LANE(simd_is_first());
    LANE(simd_sum(float2(v, 1.0f)).y);
}

// Every kind of load and store of a simdgroup matrix: stride, origin, transpose, both memories.
kernel void matrix_moves(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                         threadgroup float *t [[threadgroup(0)]],
                         uint lane [[thread_index_in_simdgroup]]) {
    simdgroup_float8x8 m;
    simdgroup_load(m, in, 20, ulong2(3, 2));
    simdgroup_store(m, out, 8);
    simdgroup_load(m, in, 20, ulong2(3, 2), true);
    simdgroup_store(m, out + 64, 16, ulong2(8, 0));
    simdgroup_load(m, in, 20);
    simdgroup_store(m, t, 9, ulong2(0, 0), true);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    out[192 + lane] = t[lane / 4 * 9 + lane % 4];
    simdgroup_load(m, t, 9, ulong2(0, 0), true);
    simdgroup_store(m, out + 224, 8);
}

template <typename A, typename B, typename D>
void product(device const A *a, device const B *b, device const D *c, device D *d) {
    simdgroup_matrix<A, 8, 8> ma;
    simdgroup_matrix<B, 8, 8> mb;
    simdgroup_matrix<D, 8, 8> mc;
    simdgroup_load(ma, a, 8);
    simdgroup_load(mb, b, 8);
    simdgroup_load(mc, c, 8);
    simdgroup_multiply_accumulate(mc, ma, mb, mc);
    simdgroup_store(mc, d, 8);
}
kernel void product_f32(device const float *a [[buffer(0)]], device const float *b [[buffer(1)]],
                        device const float *c [[buffer(2)]], device float *d [[buffer(3)]]) {
    product(a, b, c, d);
}
kernel void product_f16(device const half *a [[buffer(0)]], device const half *b [[buffer(1)]],
                        device const float *c [[buffer(2)]], device float *d [[buffer(3)]]) {
    product(a, b, c, d);
}
kernel void product_mixed(device const bfloat *a [[buffer(0)]], device const float *b [[buffer(1)]],
                          device const float *c [[buffer(2)]], device float *d [[buffer(3)]]) {
    product(a, b, c, d);
}
kernel void elements(device float *d [[buffer(0)]], uint lane [[thread_index_in_simdgroup]]) {
    simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
    m.thread_elements()[1] = float(lane);
    simdgroup_store(m, d, 8);
}
// A fast function of in[1].
kernel void fast_domain(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                        uint i [[thread_position_in_grid]]) {
    if (i == 0)
        out[0] = in[0] == 0.0f   ? fast::cos(in[1])
                 : in[0] == 1.0f ? fast::tanh(in[1])
                                 : fast::exp(in[1]);
}
// fast::exp and precise::exp of in[i].
kernel void fast_exp(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                     uint i [[thread_position_in_grid]]) {
    out[2 * i] = fast::exp(in[i]);
    out[2 * i + 1] = exp(in[i]);
}
