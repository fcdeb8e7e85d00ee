/* msl_check.h - declarations only: MSL compiled as C++ for OpenCL (clang -x clcpp */
/* -fsyntax-only), whose address spaces have MSL's rules.  Types of expressions are checked by */
/* the executable build (msl_shim.h); this pass is about device/threadgroup/thread/constant, */
/* double, exceptions, virtual functions, function pointers, threadgroup variables' scope. */
#pragma once
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
#define kernel
#define device      __global
#define threadgroup __local
#define thread      __private
#define METAL_FUNC  inline
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
typedef ulong size_t;
typedef half bfloat;
template <class T, int N> struct msl_ext { typedef T type __attribute__((ext_vector_type(N))); };
namespace metal {
template <class T, int N> using vec = typename msl_ext<T, N>::type;
template <class T, int C, int R> struct matrix {
    vec<T, R> c[C];
    __generic vec<T, R> &operator[](int i) {
        return c[i];
    }
    const __generic vec<T, R> &operator[](int i) const {
        return c[i];
    }
    matrix() = default;
    template <class U> explicit matrix(U);
};
template <class A, class B> struct is_same { static constexpr __constant bool value = false; };
template <class A> struct is_same<A, A> { static constexpr __constant bool value = true; };
template <class A, class B> constexpr __constant bool is_same_v = is_same<A, B>::value;
template <bool C, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool C, class T = void> using enable_if_t = typename enable_if<C, T>::type;
template <bool C, class A, class B> struct conditional { typedef A type; };
template <class A, class B> struct conditional<false, A, B> { typedef B type; };
template <bool C, class A, class B> using conditional_t = typename conditional<C, A, B>::type;
template <class T> struct numeric_limits {
    static constexpr T infinity() {
        return 0;
    }
    static constexpr T max() {
        return 0;
    }
    static constexpr T lowest() {
        return 0;
    }
};
} // namespace metal
#define MSL_T(n, T)                                                                                \
    typedef T n##2 __attribute__((ext_vector_type(2)));                                            \
    typedef T n##3 __attribute__((ext_vector_type(3)));                                            \
    typedef T n##4 __attribute__((ext_vector_type(4)));
MSL_T(char, char)
MSL_T(uchar, uchar)
MSL_T(short, short) MSL_T(ushort, ushort) MSL_T(int, int) MSL_T(uint, uint) MSL_T(long, long)
    MSL_T(ulong, ulong) MSL_T(half, half) MSL_T(float, float) MSL_T(bfloat, half) typedef int bool2
    __attribute__((ext_vector_type(2)));
typedef int bool3 __attribute__((ext_vector_type(3)));
typedef int bool4 __attribute__((ext_vector_type(4)));
// Packed vectors: aligned as their element, converted to and from the plain ones in any memory.
#define MSL_P_READ(n, T, as)                                                                       \
    operator n() const as;                                                                         \
    T operator[](int i) const as;
#define MSL_P(n, T, N)                                                                             \
    struct packed_##n {                                                                            \
        T e[N];                                                                                    \
        packed_##n() = default;                                                                    \
        packed_##n(n);                                                                             \
        MSL_P_READ(n, T, __constant)                                                               \
        MSL_P_READ(n, T, __global)                                                                 \
        MSL_P_READ(n, T, __local)                                                                  \
        MSL_P_READ(n, T, __private)                                                                \
        void operator=(n) __global;                                                                \
        void operator=(n) __local;                                                                 \
        void operator=(n) __private;                                                               \
    };
MSL_P(float2, float, 2)
MSL_P(float3, float, 3)
MSL_P(float4, float, 4)
MSL_P(half2, half, 2)
MSL_P(half3, half, 3)
MSL_P(half4, half, 4)
MSL_P(uchar2, uchar, 2)
MSL_P(uchar4, uchar, 4)
MSL_P(char4, char, 4)
MSL_P(ushort2, ushort, 2)
MSL_P(ushort4, ushort, 4)
MSL_P(uint2, uint, 2)
MSL_P(uint4, uint, 4)
typedef metal::matrix<float, 4, 4> float4x4;
typedef metal::matrix<half, 4, 4> half4x4;
typedef metal::matrix<half, 4, 4> bfloat4x4;
typedef metal::matrix<float, 2, 4> float2x4;
typedef metal::matrix<half, 2, 4> half2x4;
template <class V, class... A> V msl_make(A...);
template <class V> struct msl_c {}; // (float4)x: the translator writes msl_c<float4>() ->* x
template <class V, class U> V operator->*(msl_c<V>, U);
#define char2(...)   msl_make<char2>(__VA_ARGS__)
#define char4(...)   msl_make<char4>(__VA_ARGS__)
#define uchar2(...)  msl_make<uchar2>(__VA_ARGS__)
#define uchar4(...)  msl_make<uchar4>(__VA_ARGS__)
#define short2(...)  msl_make<short2>(__VA_ARGS__)
#define short4(...)  msl_make<short4>(__VA_ARGS__)
#define ushort2(...) msl_make<ushort2>(__VA_ARGS__)
#define ushort4(...) msl_make<ushort4>(__VA_ARGS__)
#define int2(...)    msl_make<int2>(__VA_ARGS__)
#define int3(...)    msl_make<int3>(__VA_ARGS__)
#define int4(...)    msl_make<int4>(__VA_ARGS__)
#define uint2(...)   msl_make<uint2>(__VA_ARGS__)
#define uint3(...)   msl_make<uint3>(__VA_ARGS__)
#define uint4(...)   msl_make<uint4>(__VA_ARGS__)
#define ulong2(...)  msl_make<ulong2>(__VA_ARGS__)
#define half2(...)   msl_make<half2>(__VA_ARGS__)
#define half3(...)   msl_make<half3>(__VA_ARGS__)
#define half4(...)   msl_make<half4>(__VA_ARGS__)
#define bfloat2(...) msl_make<bfloat2>(__VA_ARGS__)
#define bfloat4(...) msl_make<bfloat4>(__VA_ARGS__)
#define float2(...)  msl_make<float2>(__VA_ARGS__)
#define float3(...)  msl_make<float3>(__VA_ARGS__)
#define float4(...)  msl_make<float4>(__VA_ARGS__)
template <class T, class U> T as_type(U);
namespace metal {
template <class T> struct msl_elem { typedef T type; };
template <class T> struct msl_elem<T __attribute__((ext_vector_type(2)))> { typedef T type; };
template <class T> struct msl_elem<T __attribute__((ext_vector_type(3)))> { typedef T type; };
template <class T> struct msl_elem<T __attribute__((ext_vector_type(4)))> { typedef T type; };
#define F1(n) template <class T> T n(T);
#define F2(n)                                                                                      \
    template <class T> T n(T, T);                                                                  \
    template <class T, class U> decltype(T() + U()) n(T, U);
F1(exp)
F1(exp2)
F1(exp10) F1(log) F1(log2) F1(log10) F1(sqrt) F1(rsqrt) F1(sin) F1(cos) F1(tan) F1(tanh) F1(asin)
    F1(acos) F1(atan) F1(sinh) F1(cosh) F1(floor) F1(ceil) F1(trunc) F1(round) F1(rint) F1(fabs)
        F1(fract) F1(saturate) F1(sign) F1(abs) F1(popcount) F1(clz) F1(ctz) F2(pow) F2(powr)
            F2(fmod) F2(atan2) F2(fmin) F2(fmax) F2(copysign) F2(step) F2(min)
                F2(max) template <class T, class U, class V>
                T clamp(T, U, V);
template <class T> T fma(T, T, T);
template <class T, class U> T mix(T, T, U);
template <class T, class U, class V> decltype(T() + U()) select(T, U, V);
template <class T> T ldexp(T, int);
template <class T> typename msl_elem<T>::type dot(T, T);
template <class T> typename msl_elem<T>::type length(T);
template <class T> typename msl_elem<T>::type length_squared(T);
template <class T> bool any(T);
template <class T> bool all(T);
template <class T> bool isnan(T);
template <class T> bool isinf(T);
template <class T> bool isfinite(T);
template <class T> T extract_bits(T, uint, uint);
namespace precise {
using metal::cos;
using metal::exp;
using metal::exp2;
using metal::log;
using metal::log2;
using metal::pow;
using metal::rsqrt;
using metal::sin;
using metal::sqrt;
using metal::tanh;
} // namespace precise
namespace fast {
using metal::cos;
using metal::exp;
using metal::exp2;
using metal::log;
using metal::log2;
using metal::pow;
using metal::rsqrt;
using metal::sin;
using metal::sqrt;
using metal::tanh;
} // namespace fast
enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
mem_flags operator|(mem_flags, mem_flags);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
F1(simd_sum)
F1(simd_product)
F1(simd_max) F1(simd_min) F1(simd_and) F1(simd_or) F1(simd_xor) F1(simd_broadcast_first)
    F1(simd_prefix_inclusive_sum) F1(simd_prefix_exclusive_sum) F1(quad_sum)
#define S2(n) template <class T> T n(T, ushort);
        S2(simd_shuffle) S2(simd_shuffle_xor) S2(simd_shuffle_up) S2(simd_shuffle_down)
            S2(simd_broadcast) S2(quad_shuffle_xor) bool simd_all(bool);
bool simd_any(bool);
bool simd_is_first();
struct simd_vote {
    typedef ulong vote_t;
    explicit operator vote_t() const;
    bool all() const;
    bool any() const;
};
simd_vote simd_ballot(bool);
template <class T, int C, int R> struct simdgroup_matrix {
    T e[2];
    simdgroup_matrix() = default;
    explicit simdgroup_matrix(T);
    thread vec<T, 2> &thread_elements();
};
template <class T, int C, int R = C> simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T);
/* load from device or threadgroup memory only, store likewise: the address-space rule of the
 * specification */
#define MLOAD(AS)                                                                                  \
    template <class T>                                                                             \
    void simdgroup_load(thread simdgroup_matrix<T, 8, 8> &, const AS T *, ulong = 8,               \
                        ulong2 = (ulong2)0, bool = false);
#define MSTORE(AS)                                                                                 \
    template <class T>                                                                             \
    void simdgroup_store(simdgroup_matrix<T, 8, 8>, AS T *, ulong = 8, ulong2 = (ulong2)0,         \
                         bool = false);
MLOAD(device)
MLOAD(threadgroup)
MSTORE(device) MSTORE(threadgroup) template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8> &, simdgroup_matrix<A, 8, 8>,
                                   simdgroup_matrix<B, 8, 8>, simdgroup_matrix<C, 8, 8>);
template <class D, class A, class B>
void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8> &, simdgroup_matrix<A, 8, 8>,
                        simdgroup_matrix<B, 8, 8>);
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
enum memory_order { memory_order_relaxed = 0 };
template <class T> struct atomic { T v; };
#define AT(n)                                                                                      \
    template <class T>                                                                             \
    T atomic_fetch_##n##_explicit(volatile device atomic<T> *, T, memory_order);                   \
    template <class T>                                                                             \
    T atomic_fetch_##n##_explicit(volatile threadgroup atomic<T> *, T, memory_order);
AT(add)
AT(sub)
AT(and) AT(or) AT(xor) AT(min) AT(max) template <class T>
T atomic_load_explicit(const volatile device atomic<T> *, memory_order);
template <class T> T atomic_load_explicit(const volatile threadgroup atomic<T> *, memory_order);
template <class T> void atomic_store_explicit(volatile device atomic<T> *, T, memory_order);
template <class T> void atomic_store_explicit(volatile threadgroup atomic<T> *, T, memory_order);
template <class T> T atomic_exchange_explicit(volatile device atomic<T> *, T, memory_order);
} // namespace metal
#define atomic_int                      metal::atomic<int>
#define atomic_uint                     metal::atomic<uint>
#define atomic_float                    metal::atomic<float>
#define M_PI_F                          3.14159265f
#define M_LOG2E_F                       1.44269504f
#define HALF_MAX                        ((half)65504.0f)
#define MAXHALF                         HALF_MAX
#define INFINITY                        __builtin_inff()
#define NAN                             __builtin_nanf("")
#define FLT_MAX                         3.402823466e+38f
#define MAXFLOAT                        FLT_MAX
#define FLT_MIN                         1.175494351e-38f
#define INT_MAX                         2147483647
#define UINT_MAX                        4294967295u
#define is_function_constant_defined(n) true
