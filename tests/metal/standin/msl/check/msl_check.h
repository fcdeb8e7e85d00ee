/* msl_check.h - declarations for a syntax-only pass that compiles MSL as C++ for OpenCL (clang -x
 * clcpp -fsyntax-only), whose address spaces follow the rules of MSL. The executable build
 * (msl/include) checks the types of expressions; this pass checks
 * device/threadgroup/thread/constant and the scope of threadgroup variables. */
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
template <int N> struct msl_ext<bool, N> { typedef int type __attribute__((ext_vector_type(N))); };
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
    template <class... U> explicit matrix(U...);
};
template <class T, int C, int R> vec<T, R> operator*(matrix<T, C, R>, vec<T, C>);
template <class T, int C, int R> matrix<T, C, R> operator*(matrix<T, C, R>, T);
template <class A, class B> struct is_same { static constexpr __constant bool value = false; };
template <class A> struct is_same<A, A> { static constexpr __constant bool value = true; };
template <class A, class B> constexpr __constant bool is_same_v = is_same<A, B>::value;
template <bool C, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool C, class T = void> using enable_if_t = typename enable_if<C, T>::type;
template <bool C, class A, class B> struct conditional { typedef A type; };
template <class A, class B> struct conditional<false, A, B> { typedef B type; };
template <bool C, class A, class B> using conditional_t = typename conditional<C, A, B>::type;
template <class T> struct remove_cv { typedef T type; };
template <class T> struct remove_cv<const T> { typedef T type; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> struct numeric_limits {
    static constexpr __constant int digits = 1;
    static constexpr T infinity() {
        return 0;
    }
    static constexpr T quiet_NaN() {
        return 0;
    }
    static constexpr T max() {
        return 0;
    }
    static constexpr T min() {
        return 0;
    }
    static constexpr T lowest() {
        return 0;
    }
    static constexpr T epsilon() {
        return 0;
    }
};
} /* namespace metal */
/* Packed vectors: clang's vectors with the alignment of their elements. A packed vector of three
 * has the right size only as an array, so swizzles of more than one component are missing from
 * it. */
#define MSL_PACKED3(n, T)                                                                          \
    struct packed_##n##3 {                                                                         \
        T x, y, z;                                                                                 \
        packed_##n##3() = default;                                                                 \
        packed_##n##3(n##3);                                                                       \
        packed_##n##3(T, T, T);                                                                    \
        operator n##3() const;                                                                     \
        operator n##3() const __constant;                                                          \
        T operator[](int i) const;                                                                 \
        T operator[](int i) const __constant;                                                      \
        __generic T &operator[](int i);                                                            \
    };                                                                                             \
    n##3 operator*(packed_##n##3, T);                                                              \
    n##3 operator*(packed_##n##3, n##3);                                                           \
    n##3 operator+(packed_##n##3, n##3);                                                           \
    n##3 operator-(packed_##n##3, n##3);
#define MSL_T(n, T)                                                                                \
    typedef T n##2 __attribute__((ext_vector_type(2)));                                            \
    typedef T n##3 __attribute__((ext_vector_type(3)));                                            \
    typedef T n##4 __attribute__((ext_vector_type(4)));                                            \
    typedef T packed_##n##2 __attribute__((ext_vector_type(2), aligned(sizeof(T))));               \
    typedef T packed_##n##4 __attribute__((ext_vector_type(4), aligned(sizeof(T))));               \
    MSL_PACKED3(n, T)
MSL_T(char, char)
MSL_T(uchar, uchar)
MSL_T(short, short)
MSL_T(ushort, ushort)
MSL_T(int, int)
MSL_T(uint, uint)
MSL_T(long, long)
MSL_T(ulong, ulong)
MSL_T(half, half)
MSL_T(float, float)
typedef half2 bfloat2;
typedef half3 bfloat3;
typedef half4 bfloat4;
typedef packed_half2 packed_bfloat2;
typedef packed_half3 packed_bfloat3;
typedef packed_half4 packed_bfloat4;
typedef int bool2 __attribute__((ext_vector_type(2)));
typedef int bool3 __attribute__((ext_vector_type(3)));
typedef int bool4 __attribute__((ext_vector_type(4)));
#define MSL_MATRICES(n, T)                                                                         \
    typedef metal::matrix<T, 2, 2> n##2x2;                                                         \
    typedef metal::matrix<T, 2, 3> n##2x3;                                                         \
    typedef metal::matrix<T, 2, 4> n##2x4;                                                         \
    typedef metal::matrix<T, 3, 2> n##3x2;                                                         \
    typedef metal::matrix<T, 3, 3> n##3x3;                                                         \
    typedef metal::matrix<T, 3, 4> n##3x4;                                                         \
    typedef metal::matrix<T, 4, 2> n##4x2;                                                         \
    typedef metal::matrix<T, 4, 3> n##4x3;                                                         \
    typedef metal::matrix<T, 4, 4> n##4x4;
MSL_MATRICES(float, float)
MSL_MATRICES(half, half)
MSL_MATRICES(bfloat, half)
/* In MSL float4(...) is a construction; the translator writes (float4)x as msl_c<float4>() ->*
 * x. */
#ifdef MSL_IR /* bodies, so that metalarrays sees what the optimiser makes of them */
template <class V> struct msl_size {
    enum { n = 1 };
};
template <class T> struct msl_size<T __attribute__((ext_vector_type(2)))> {
    enum { n = 2 };
};
template <class T> struct msl_size<T __attribute__((ext_vector_type(3)))> {
    enum { n = 3 };
};
template <class T> struct msl_size<T __attribute__((ext_vector_type(4)))> {
    enum { n = 4 };
};
template <class A, bool is_scalar = msl_size<A>::n == 1> struct msl_part {
    static auto get(A a, int) {
        return a;
    }
};
template <class A> struct msl_part<A, false> {
    static auto get(A a, int i) {
        return a[i];
    }
};
template <class V, int at> static inline void msl_fill(V &) {}
template <class V, int at, class A, class... B> static inline void msl_fill(V &v, A a, B... b) {
    v[at] = msl_part<A>::get(a, 0);
    if constexpr (msl_size<A>::n > 1) v[at + 1] = msl_part<A>::get(a, 1);
    if constexpr (msl_size<A>::n > 2) v[at + 2] = msl_part<A>::get(a, 2);
    if constexpr (msl_size<A>::n > 3) v[at + 3] = msl_part<A>::get(a, 3);
    msl_fill<V, at + msl_size<A>::n>(v, b...);
}
template <class V, class A, class... B> static inline V msl_make(A a, B... b) {
    V v;
    if constexpr (sizeof...(B) == 0 && msl_size<A>::n == 1) {
        v = a;
    } else
        msl_fill<V, 0>(v, a, b...);
    return v;
}
#else
template <class V, class... A> V msl_make(A...);
#endif
template <class V> struct msl_c {};
template <class V, class U> V operator->*(msl_c<V>, U);
#define char2(...)   msl_make<char2>(__VA_ARGS__)
#define char3(...)   msl_make<char3>(__VA_ARGS__)
#define char4(...)   msl_make<char4>(__VA_ARGS__)
#define uchar2(...)  msl_make<uchar2>(__VA_ARGS__)
#define uchar3(...)  msl_make<uchar3>(__VA_ARGS__)
#define uchar4(...)  msl_make<uchar4>(__VA_ARGS__)
#define short2(...)  msl_make<short2>(__VA_ARGS__)
#define short3(...)  msl_make<short3>(__VA_ARGS__)
#define short4(...)  msl_make<short4>(__VA_ARGS__)
#define ushort2(...) msl_make<ushort2>(__VA_ARGS__)
#define ushort3(...) msl_make<ushort3>(__VA_ARGS__)
#define ushort4(...) msl_make<ushort4>(__VA_ARGS__)
#define int2(...)    msl_make<int2>(__VA_ARGS__)
#define int3(...)    msl_make<int3>(__VA_ARGS__)
#define int4(...)    msl_make<int4>(__VA_ARGS__)
#define uint2(...)   msl_make<uint2>(__VA_ARGS__)
#define uint3(...)   msl_make<uint3>(__VA_ARGS__)
#define uint4(...)   msl_make<uint4>(__VA_ARGS__)
#define long2(...)   msl_make<long2>(__VA_ARGS__)
#define long3(...)   msl_make<long3>(__VA_ARGS__)
#define long4(...)   msl_make<long4>(__VA_ARGS__)
#define ulong2(...)  msl_make<ulong2>(__VA_ARGS__)
#define ulong3(...)  msl_make<ulong3>(__VA_ARGS__)
#define ulong4(...)  msl_make<ulong4>(__VA_ARGS__)
#define half2(...)   msl_make<half2>(__VA_ARGS__)
#define half3(...)   msl_make<half3>(__VA_ARGS__)
#define half4(...)   msl_make<half4>(__VA_ARGS__)
#define float2(...)  msl_make<float2>(__VA_ARGS__)
#define float3(...)  msl_make<float3>(__VA_ARGS__)
#define float4(...)  msl_make<float4>(__VA_ARGS__)
#define bfloat2(...) msl_make<bfloat2>(__VA_ARGS__)
#define bfloat3(...) msl_make<bfloat3>(__VA_ARGS__)
#define bfloat4(...) msl_make<bfloat4>(__VA_ARGS__)
#define bool2(...)   msl_make<bool2>(__VA_ARGS__)
#define bool3(...)   msl_make<bool3>(__VA_ARGS__)
#define bool4(...)   msl_make<bool4>(__VA_ARGS__)
#ifdef MSL_IR
template <class T, class U> static inline T as_type(U u) {
    return __builtin_astype(u, T);
}
#else
template <class T, class U> T as_type(U);
#endif
namespace metal {
template <class T> struct msl_elem { typedef T type; };
template <class T> struct msl_elem<T __attribute__((ext_vector_type(2)))> { typedef T type; };
template <class T> struct msl_elem<T __attribute__((ext_vector_type(3)))> { typedef T type; };
template <class T> struct msl_elem<T __attribute__((ext_vector_type(4)))> { typedef T type; };
template <class T> using msl_elem_t = typename msl_elem<T>::type;
/* The type of a predicate: bool, or a vector of bool of the same size. */
template <class T> struct msl_truth { typedef bool type; };
template <class T> struct msl_truth<T __attribute__((ext_vector_type(2)))> { typedef bool2 type; };
template <class T> struct msl_truth<T __attribute__((ext_vector_type(3)))> { typedef bool3 type; };
template <class T> struct msl_truth<T __attribute__((ext_vector_type(4)))> { typedef bool4 type; };
template <class T> using msl_truth_t = typename msl_truth<T>::type;

#define F1(n) template <class T> T n(T);
#define F2(n)                                                                                      \
    template <class T> T n(T, T);                                                                  \
    template <class T, class U> decltype(T() + U()) n(T, U);
#define F3(n)                                                                                      \
    template <class T> T n(T, T, T);                                                               \
    template <class T, class U, class V> decltype(T() + U() + V()) n(T, U, V);
#define REL(n) template <class T> msl_truth_t<T> n(T);
#define BOTH(n)                                                                                    \
    namespace precise {                                                                            \
    using metal::n;                                                                                \
    }                                                                                              \
    namespace fast {                                                                               \
    using metal::n;                                                                                \
    }
#define M1(n) F1(n) BOTH(n)
#define M2(n) F2(n) BOTH(n)
#define M3(n) F3(n) BOTH(n)
M1(exp)
M1(exp2)
M1(exp10)
M1(log)
M1(log2)
M1(log10)
M1(sqrt)
M1(rsqrt)
M1(sin)
M1(cos)
M1(tan)
M1(sinpi)
M1(cospi)
M1(tanpi)
M1(asin)
M1(acos)
M1(atan)
M1(sinh)
M1(cosh)
M1(tanh)
M1(asinh)
M1(acosh)
M1(atanh)
M1(floor)
M1(ceil)
M1(trunc)
M1(round)
M1(rint)
M1(fabs)
M1(fract)
M1(saturate)
M1(sign)
F1(abs)
F1(popcount)
F1(clz)
F1(ctz)
F1(reverse_bits)
F1(normalize)
M2(pow)
M2(powr)
M2(fmod)
M2(atan2)
M2(divide)
M2(fmin)
M2(fmax)
M2(fdim)
M2(copysign)
M2(step)
#ifdef MSL_IR
#define PICK(n, op)                                                                                \
    template <class T> static inline T n(T a, T b) {                                               \
        return a op b ? a : b;                                                                     \
    }                                                                                              \
    template <class T, class U> static inline decltype(T() + U()) n(T a, U b) {                    \
        return a op b ? a : b;                                                                     \
    }                                                                                              \
    BOTH(n)
PICK(min, <)
PICK(max, >)
#else
M2(min)
M2(max)
#endif
F2(nextafter)
F2(rotate)
F2(mulhi)
F2(addsat)
F2(subsat)
F2(hadd)
F2(rhadd)
F2(absdiff)
F2(mul24)
M3(clamp)
M3(mix)
M3(fma)
M3(fmax3)
M3(fmin3)
M3(smoothstep)
F3(min3)
F3(max3)
F3(median3)
F3(madhi)
F3(mad24)
REL(isnan)
REL(isinf)
REL(isfinite)
REL(isnormal)
REL(signbit)
template <class T, class U, class V> decltype(T() + U()) select(T, U, V);
template <class T> T ldexp(T, int);
template <class T> int ilogb(T);
template <class T> T frexp(T, thread int &);
template <class T> T modf(T, thread T &);
template <class T> T sincos(T, thread T &);
template <class T> T extract_bits(T, uint, uint);
template <class T> T insert_bits(T, T, uint, uint);
template <class T> bool isordered(T, T);
template <class T> bool isunordered(T, T);
template <class T> bool any(T);
template <class T> bool all(T);
template <class T> msl_elem_t<T> dot(T, T);
template <class T> msl_elem_t<T> length(T);
template <class T> msl_elem_t<T> length_squared(T);
template <class T> msl_elem_t<T> distance(T, T);
template <class T> msl_elem_t<T> distance_squared(T, T);
template <class T> T cross(T, T);

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
mem_flags operator|(mem_flags, mem_flags);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
/* simd_ and quad_ forms. */
#define L1(n)                                                                                      \
    template <class T> T simd_##n(T);                                                              \
    template <class T> T quad_##n(T);                                                              \
    bool simd_##n(bool) = delete;                                                                  \
    bool quad_##n(bool) = delete;
#define L2(n)                                                                                      \
    template <class T> T simd_##n(T, ushort);                                                      \
    template <class T> T quad_##n(T, ushort);
#define L3(n)                                                                                      \
    template <class T> T simd_##n(T, T, ushort);                                                   \
    template <class T> T quad_##n(T, T, ushort);
L1(sum)
L1(product)
L1(max)
L1(min)
L1(and)
L1(or)
L1(xor)
L1(prefix_inclusive_sum)
L1(prefix_exclusive_sum)
L1(prefix_inclusive_product)
L1(prefix_exclusive_product)
L2(shuffle)
L2(shuffle_xor)
L2(shuffle_up)
L2(shuffle_down)
L2(shuffle_rotate_up)
L2(shuffle_rotate_down)
L2(broadcast)
L3(shuffle_and_fill_up)
L3(shuffle_and_fill_down)
template <class T> T simd_broadcast_first(T);
bool simd_all(bool);
bool simd_any(bool);
bool simd_is_first();
#ifdef MSL_IR
ulong msl_ballot(bool);
struct simd_vote {
    typedef ulong vote_t;
    vote_t v;
    explicit operator vote_t() const {
        return v;
    }
};
static inline simd_vote simd_ballot(bool b) {
    return {msl_ballot(b)};
}
#else
struct simd_vote {
    typedef ulong vote_t;
    explicit operator vote_t() const;
    bool all() const;
    bool any() const;
};
simd_vote simd_ballot(bool);
#endif
simd_vote simd_active_threads_mask();

template <class T, int C, int R> struct simdgroup_matrix {
    T e[2];
    simdgroup_matrix() = default;
    explicit simdgroup_matrix(T);
    thread vec<T, 2> &thread_elements();
};
#ifdef MSL_IR
template <class T, int C, int R = C>
static inline simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T v) {
    simdgroup_matrix<T, C, R> m;
    m.e[0] = m.e[1] = v;
    return m;
}
#else
template <class T, int C, int R = C> simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T);
#endif
#ifdef MSL_IR /* a lane's elements go by value: a reference would keep them in memory */
#define MATRIX_LOAD(AS)                                                                            \
    template <class T> vec<T, 2> msl_load(const AS T *, ulong, bool);                              \
    template <class T>                                                                             \
    static inline void simdgroup_load(thread simdgroup_matrix<T, 8, 8> &m, const AS T *p,          \
                                      ulong stride = 8, ulong2 = (ulong2)0, bool turn = false) {   \
        const vec<T, 2> v = msl_load(p, stride, turn);                                             \
        m.e[0] = v.x, m.e[1] = v.y;                                                                \
    }
#define MATRIX_STORE(AS)                                                                           \
    template <class T> void msl_store(vec<T, 2>, AS T *, ulong, bool);                             \
    template <class T>                                                                             \
    static inline void simdgroup_store(const thread simdgroup_matrix<T, 8, 8> &m, AS T *p,         \
                                       ulong stride = 8, ulong2 = (ulong2)0, bool turn = false) {  \
        const vec<T, 2> v = {m.e[0], m.e[1]};                                                      \
        msl_store(v, p, stride, turn);                                                             \
    }
#else
#define MATRIX_STORE(AS)                                                                           \
    template <class T>                                                                             \
    void simdgroup_store(simdgroup_matrix<T, 8, 8>, AS T *, ulong = 8, ulong2 = (ulong2)0,         \
                         bool = false);
#define MATRIX_LOAD(AS)                                                                            \
    template <class T>                                                                             \
    void simdgroup_load(thread simdgroup_matrix<T, 8, 8> &, const AS T *, ulong = 8,               \
                        ulong2 = (ulong2)0, bool = false);
#endif
/* Device and threadgroup memory only: the specification's address-space rule. */
#define MATRIX_MOVES(AS)                                                                           \
    MATRIX_LOAD(AS)                                                                                \
    MATRIX_STORE(AS)
MATRIX_MOVES(device)
MATRIX_MOVES(threadgroup)
#ifdef MSL_IR
template <class D, class A, class B, class C>
vec<D, 2> msl_multiply(vec<A, 2>, vec<B, 2>, vec<C, 2>);
template <class D, class A, class B, class C>
static inline void
simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8> &d, simdgroup_matrix<A, 8, 8> a,
                              simdgroup_matrix<B, 8, 8> b, simdgroup_matrix<C, 8, 8> c) {
    const vec<A, 2> va = {a.e[0], a.e[1]};
    const vec<B, 2> vb = {b.e[0], b.e[1]};
    const vec<C, 2> vc = {c.e[0], c.e[1]};
    const vec<D, 2> v = msl_multiply<D, A, B, C>(va, vb, vc);
    d.e[0] = v.x, d.e[1] = v.y;
}
#else
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8> &, simdgroup_matrix<A, 8, 8>,
                                   simdgroup_matrix<B, 8, 8>, simdgroup_matrix<C, 8, 8>);
#endif
template <class D, class A, class B>
void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8> &, simdgroup_matrix<A, 8, 8>,
                        simdgroup_matrix<B, 8, 8>);
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

enum memory_order { memory_order_relaxed = 0 };
template <class T> struct atomic { T v; };
template <class T> struct msl_same { typedef T type; };
template <class T> using msl_value = typename msl_same<T>::type;
#define FETCH(AS, n)                                                                               \
    template <class T>                                                                             \
    T atomic_fetch_##n##_explicit(volatile AS atomic<T> *, msl_value<T>, memory_order);
#define ATOMICS(AS)                                                                                \
    FETCH(AS, add)                                                                                 \
    FETCH(AS, sub)                                                                                 \
    FETCH(AS, and)                                                                                 \
    FETCH(AS, or)                                                                                  \
    FETCH(AS, xor)                                                                                 \
    FETCH(AS, min)                                                                                 \
    FETCH(AS, max)                                                                                 \
    template <class T> T atomic_load_explicit(const volatile AS atomic<T> *, memory_order);        \
    template <class T>                                                                             \
    void atomic_store_explicit(volatile AS atomic<T> *, msl_value<T>, memory_order);               \
    template <class T>                                                                             \
    T atomic_exchange_explicit(volatile AS atomic<T> *, msl_value<T>, memory_order);               \
    template <class T>                                                                             \
    bool atomic_compare_exchange_weak_explicit(volatile AS atomic<T> *, thread T *, msl_value<T>,  \
                                               memory_order, memory_order);
ATOMICS(device)
ATOMICS(threadgroup)
void atomic_min_explicit(volatile device atomic<ulong> *, ulong, memory_order);
void atomic_max_explicit(volatile device atomic<ulong> *, ulong, memory_order);
} /* namespace metal */
#define atomic_int                      metal::atomic<int>
#define atomic_uint                     metal::atomic<uint>
#define atomic_float                    metal::atomic<float>
#define atomic_bool                     metal::atomic<bool>
#define atomic_ulong                    metal::atomic<ulong>
#define M_PI_F                          3.14159265f
#define M_E_F                           2.71828182f
#define M_LOG2E_F                       1.44269504f
#define M_LOG10E_F                      0.43429448f
#define M_LN2_F                         0.69314718f
#define M_LN10_F                        2.30258509f
#define M_PI_2_F                        1.57079632f
#define M_PI_4_F                        0.78539816f
#define M_1_PI_F                        0.31830988f
#define M_2_PI_F                        0.63661977f
#define M_SQRT2_F                       1.41421356f
#define M_SQRT1_2_F                     0.70710678f
#define HALF_MAX                        ((half)65504.0f)
#define MAXHALF                         HALF_MAX
#define INFINITY                        __builtin_inff()
#define NAN                             __builtin_nanf("")
#define FLT_MAX                         3.402823466e+38f
#define MAXFLOAT                        FLT_MAX
#define FLT_MIN                         1.175494351e-38f
#define FLT_EPSILON                     1.192092896e-7f
#define INT_MAX                         2147483647
#define INT_MIN                         (-INT_MAX - 1)
#define UINT_MAX                        4294967295u
#define is_function_constant_defined(n) true
