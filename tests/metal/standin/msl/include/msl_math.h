/* msl_math.h - common, integer, relational, geometric and math functions; numeric_limits and the
 * constants of <metal_math>. Metal Shading Language Specification 3.1, sections 6.3 to 6.9.
 *
 * These are overloads for each type, not templates: an int argument must convert or be ambiguous,
 * as with Apple's compiler. Functions with a fast variant exist as precise::f and fast::f; the
 * plain name means the variant that the library was compiled for (MSL_FAST_MATH). fast:: is
 * undefined for NaN and infinity and may be some ULP off; msl_rt_fast implements both. */
#ifndef MSL_MATH_H
#define MSL_MATH_H
#include "msl_vec.h"

#if MSL_FAST_MATH
#define MSL_PLAIN fast
#else
#define MSL_PLAIN precise
#endif

namespace metal {
/* ---- from elements to vectors ---- */
#define MSL_V1_(n, T, N)                                                                           \
    MSL_INL vec<T, N> n(vec<T, N> a) {                                                             \
        vec<T, N> r;                                                                               \
        for (int i = 0; i < N; i++)                                                                \
            r.v[i] = n((T)a.v[i]);                                                                 \
        return r;                                                                                  \
    }
#define MSL_V2_(n, T, N)                                                                           \
    MSL_INL vec<T, N> n(vec<T, N> a, vec<T, N> b) {                                                \
        vec<T, N> r;                                                                               \
        for (int i = 0; i < N; i++)                                                                \
            r.v[i] = n((T)a.v[i], (T)b.v[i]);                                                      \
        return r;                                                                                  \
    }
#define MSL_V3_(n, T, N)                                                                           \
    MSL_INL vec<T, N> n(vec<T, N> a, vec<T, N> b, vec<T, N> c) {                                   \
        vec<T, N> r;                                                                               \
        for (int i = 0; i < N; i++)                                                                \
            r.v[i] = n((T)a.v[i], (T)b.v[i], (T)c.v[i]);                                           \
        return r;                                                                                  \
    }
/* Conversion to a type with the same number of components: bool, int. */
#define MSL_VR_(n, R, T, N)                                                                        \
    MSL_INL vec<R, N> n(vec<T, N> a) {                                                             \
        vec<R, N> r;                                                                               \
        for (int i = 0; i < N; i++)                                                                \
            r.v[i] = n((T)a.v[i]);                                                                 \
        return r;                                                                                  \
    }
#define MSL_V1(n, T)    MSL_V1_(n, T, 2) MSL_V1_(n, T, 3) MSL_V1_(n, T, 4)
#define MSL_V2(n, T)    MSL_V2_(n, T, 2) MSL_V2_(n, T, 3) MSL_V2_(n, T, 4)
#define MSL_V3(n, T)    MSL_V3_(n, T, 2) MSL_V3_(n, T, 3) MSL_V3_(n, T, 4)
#define MSL_VR(n, R, T) MSL_VR_(n, R, T, 2) MSL_VR_(n, R, T, 3) MSL_VR_(n, R, T, 4)

/* ---- floating point: e is computed in float from x (and y, z) and rounded once ---- */
#define MSL_SCALARS1(n, e)                                                                         \
    MSL_INL float n(float x) {                                                                     \
        return (float)(e);                                                                         \
    }                                                                                              \
    MSL_INL half n(half h) {                                                                       \
        float x = (float)h;                                                                        \
        return (half)(e);                                                                          \
    }                                                                                              \
    MSL_INL bfloat_t n(bfloat_t h) {                                                               \
        float x = (float)h;                                                                        \
        return bfloat_t((float)(e));                                                               \
    }
#define MSL_SCALARS2(n, e)                                                                         \
    MSL_INL float n(float x, float y) {                                                            \
        return (float)(e);                                                                         \
    }                                                                                              \
    MSL_INL half n(half g, half h) {                                                               \
        float x = (float)g, y = (float)h;                                                          \
        return (half)(e);                                                                          \
    }                                                                                              \
    MSL_INL bfloat_t n(bfloat_t g, bfloat_t h) {                                                   \
        float x = (float)g, y = (float)h;                                                          \
        return bfloat_t((float)(e));                                                               \
    }
#define MSL_SCALARS3(n, e)                                                                         \
    MSL_INL float n(float x, float y, float z) {                                                   \
        return (float)(e);                                                                         \
    }                                                                                              \
    MSL_INL half n(half f, half g, half h) {                                                       \
        float x = (float)f, y = (float)g, z = (float)h;                                            \
        return (half)(e);                                                                          \
    }                                                                                              \
    MSL_INL bfloat_t n(bfloat_t f, bfloat_t g, bfloat_t h) {                                       \
        float x = (float)f, y = (float)g, z = (float)h;                                            \
        return bfloat_t((float)(e));                                                               \
    }
#define MSL_VECTORS(V, n) V(n, float) V(n, half) V(n, bfloat_t)

/* Identical in both variants. */
#define MSL_BOTH(n)                                                                                \
    namespace precise {                                                                            \
    using metal::n;                                                                                \
    }                                                                                              \
    namespace fast {                                                                               \
    using metal::n;                                                                                \
    }
#define MSL_F1(n, e) MSL_SCALARS1(n, e) MSL_VECTORS(MSL_V1, n) MSL_BOTH(n)
#define MSL_F2(n, e) MSL_SCALARS2(n, e) MSL_VECTORS(MSL_V2, n) MSL_BOTH(n)
#define MSL_F3(n, e) MSL_SCALARS3(n, e) MSL_VECTORS(MSL_V3, n) MSL_BOTH(n)

/* Two variants; half and bfloat have one. */
#define MSL_A1(n, e)                                                                               \
    namespace precise {                                                                            \
    MSL_SCALARS1(n, e) MSL_VECTORS(MSL_V1, n)                                                      \
    }                                                                                              \
    namespace fast {                                                                               \
    MSL_INL float n(float x) {                                                                     \
        return msl_rt_fast(precise::n(x), x, 0.0f, #n);                                            \
    }                                                                                              \
    MSL_INL half n(half x) {                                                                       \
        return precise::n(x);                                                                      \
    }                                                                                              \
    MSL_INL bfloat_t n(bfloat_t x) {                                                               \
        return precise::n(x);                                                                      \
    }                                                                                              \
    MSL_VECTORS(MSL_V1, n)                                                                         \
    }                                                                                              \
    using MSL_PLAIN::n;
#define MSL_A2(n, e)                                                                               \
    namespace precise {                                                                            \
    MSL_SCALARS2(n, e) MSL_VECTORS(MSL_V2, n)                                                      \
    }                                                                                              \
    namespace fast {                                                                               \
    MSL_INL float n(float x, float y) {                                                            \
        return msl_rt_fast(precise::n(x, y), x, y, #n);                                            \
    }                                                                                              \
    MSL_INL half n(half x, half y) {                                                               \
        return precise::n(x, y);                                                                   \
    }                                                                                              \
    MSL_INL bfloat_t n(bfloat_t x, bfloat_t y) {                                                   \
        return precise::n(x, y);                                                                   \
    }                                                                                              \
    MSL_VECTORS(MSL_V2, n)                                                                         \
    }                                                                                              \
    using MSL_PLAIN::n;

MSL_A1(exp, __builtin_expf(x))
MSL_A1(exp2, __builtin_exp2f(x))
MSL_A1(exp10, __builtin_powf(10.0f, x))
MSL_A1(log, __builtin_logf(x))
MSL_A1(log2, __builtin_log2f(x))
MSL_A1(log10, __builtin_log10f(x))
MSL_A1(sqrt, __builtin_sqrtf(x))
MSL_A1(rsqrt, 1.0f / __builtin_sqrtf(x))
MSL_A1(sin, __builtin_sinf(x))
MSL_A1(cos, __builtin_cosf(x))
MSL_A1(tan, __builtin_tanf(x))
MSL_A1(sinpi, __builtin_sin(3.14159265358979323846264L * x))
MSL_A1(cospi, __builtin_cos(3.14159265358979323846264L * x))
MSL_A1(tanpi, __builtin_tan(3.14159265358979323846264L * x))
MSL_A1(asin, __builtin_asinf(x))
MSL_A1(acos, __builtin_acosf(x))
MSL_A1(atan, __builtin_atanf(x))
MSL_A1(sinh, __builtin_sinhf(x))
MSL_A1(cosh, __builtin_coshf(x))
MSL_A1(tanh, __builtin_tanhf(x))
MSL_A1(asinh, __builtin_asinhf(x))
MSL_A1(acosh, __builtin_acoshf(x))
MSL_A1(atanh, __builtin_atanhf(x))
MSL_A2(pow, __builtin_powf(x, y))
MSL_A2(powr, x < 0.0f ? __builtin_nanf("") : __builtin_powf(x, y))
MSL_A2(atan2, __builtin_atan2f(x, y))
MSL_A2(fmod, __builtin_fmodf(x, y))
MSL_A2(divide, x / y)

MSL_F1(floor, __builtin_floorf(x))
MSL_F1(ceil, __builtin_ceilf(x))
MSL_F1(trunc, __builtin_truncf(x))
MSL_F1(round, __builtin_roundf(x))
MSL_F1(rint, __builtin_rintf(x))
MSL_F1(fabs, __builtin_fabsf(x))
MSL_F1(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))
MSL_F1(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))
MSL_F1(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f)
MSL_F2(fmin, __builtin_fminf(x, y))
MSL_F2(fmax, __builtin_fmaxf(x, y))
MSL_F2(fdim, __builtin_fdimf(x, y))
MSL_F2(copysign, __builtin_copysignf(x, y))
MSL_F2(step, y < x ? 0.0f : 1.0f)
MSL_F3(fma, __builtin_fmaf(x, y, z))
MSL_F3(mix, x + (y - x) * z)
MSL_F3(fmax3, __builtin_fmaxf(__builtin_fmaxf(x, y), z))
MSL_F3(fmin3, __builtin_fminf(__builtin_fminf(x, y), z))
MSL_INL float msl_smooth(float lo, float hi, float x) {
    float t = saturate((x - lo) / (hi - lo));
    return t * t * (3.0f - 2.0f * t);
}
MSL_F3(smoothstep, msl_smooth(x, y, z))
MSL_INL float nextafter(float x, float y) {
    return __builtin_nextafterf(x, y);
}
MSL_V2(nextafter, float)

#define MSL_PAIRS(T)                                                                               \
    MSL_INL T ldexp(T x, int e) {                                                                  \
        return (T)__builtin_ldexpf((float)x, e);                                                   \
    }                                                                                              \
    MSL_INL int ilogb(T x) {                                                                       \
        return __builtin_ilogbf((float)x);                                                         \
    }                                                                                              \
    MSL_INL T frexp(T x, int &e) {                                                                 \
        return (T)__builtin_frexpf((float)x, &e);                                                  \
    }                                                                                              \
    MSL_INL T modf(T x, T &whole) {                                                                \
        whole = trunc(x);                                                                          \
        return (T)copysign((T)(x - whole), x);                                                     \
    }                                                                                              \
    MSL_INL T sincos(T x, T &c) {                                                                  \
        c = cos(x);                                                                                \
        return sin(x);                                                                             \
    }                                                                                              \
    MSL_VR(ilogb, int, T)
MSL_PAIRS(float)
MSL_PAIRS(half)
MSL_PAIRS(bfloat_t)
#undef MSL_PAIRS

/* ---- all arithmetic types. min and max of NaN: the comparison decides; MSL leaves it open ---- */
#define MSL_ORDERED(T)                                                                             \
    MSL_INL T min(T a, T b) {                                                                      \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    MSL_V2(min, T)                                                                                 \
    MSL_INL T max(T a, T b) {                                                                      \
        return a < b ? b : a;                                                                      \
    }                                                                                              \
    MSL_V2(max, T)                                                                                 \
    MSL_INL T clamp(T x, T lo, T hi) {                                                             \
        return min(max(x, lo), hi);                                                                \
    }                                                                                              \
    MSL_V3(clamp, T)                                                                               \
    MSL_INL T min3(T a, T b, T c) {                                                                \
        return min(min(a, b), c);                                                                  \
    }                                                                                              \
    MSL_V3(min3, T)                                                                                \
    MSL_INL T max3(T a, T b, T c) {                                                                \
        return max(max(a, b), c);                                                                  \
    }                                                                                              \
    MSL_V3(max3, T)                                                                                \
    MSL_INL T median3(T a, T b, T c) {                                                             \
        return max(min(a, b), min(max(a, b), c));                                                  \
    }                                                                                              \
    MSL_V3(median3, T)
#define MSL_INTS(X)                                                                                \
    X(char, uchar)                                                                                 \
    X(uchar, uchar)                                                                                \
    X(short, ushort)                                                                               \
    X(ushort, ushort)                                                                              \
    X(int, uint)                                                                                   \
    X(uint, uint)                                                                                  \
    X(long, ulong)                                                                                 \
    X(ulong, ulong)
#define MSL_ORDERED_INT(T, U) MSL_ORDERED(T)
MSL_INTS(MSL_ORDERED_INT)
MSL_ORDERED(half)
MSL_ORDERED(float)
MSL_ORDERED(bfloat_t)
MSL_BOTH(min)
MSL_BOTH(max)
MSL_BOTH(clamp)

template <class T> using msl_if_scalar = enable_if_t<msl_scalar<T>::value, T>;
template <class T> MSL_INL msl_if_scalar<T> abs(T x) {
    return x < (T)0 ? (T)-x : x;
}
MSL_INL float abs(float x) {
    return __builtin_fabsf(x);
}
template <class T, int N> MSL_INL vec<T, N> abs(vec<T, N> x) {
    vec<T, N> r;
    for (int i = 0; i < N; i++)
        r.v[i] = abs((T)x.v[i]);
    return r;
}
template <class T> MSL_INL msl_if_scalar<T> select(T a, T b, bool c) {
    return c ? b : a;
}
template <class T, int N> MSL_INL vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> c) {
    vec<T, N> r;
    for (int i = 0; i < N; i++)
        r.v[i] = c.v[i] ? b.v[i] : a.v[i];
    return r;
}

/* ---- integers. W: a type that holds any product or sum ---- */
#define MSL_BITS(T, U)                                                                             \
    MSL_INL T popcount(T x) {                                                                      \
        return (T)__builtin_popcountl((ulong)(U)x);                                                \
    }                                                                                              \
    MSL_INL T clz(T x) {                                                                           \
        return (T)(x ? __builtin_clzl((ulong)(U)x) - (64 - (int)sizeof(T) * 8) : sizeof(T) * 8);   \
    }                                                                                              \
    MSL_INL T ctz(T x) {                                                                           \
        return (T)(x ? __builtin_ctzl((ulong)(U)x) : sizeof(T) * 8);                               \
    }                                                                                              \
    MSL_INL T reverse_bits(T x) {                                                                  \
        return (T)(__builtin_bitreverse64((ulong)(U)x) >> (64 - sizeof(T) * 8));                   \
    }                                                                                              \
    MSL_INL T rotate(T x, T by) {                                                                  \
        const uint bits = sizeof(T) * 8, n = (uint)by % bits;                                      \
        return (T)(n ? (U)((U)x << n) | (U)((U)x >> (bits - n)) : (U)x);                           \
    }                                                                                              \
    MSL_INL T mulhi(T a, T b) {                                                                    \
        return (T)((__int128)a * (__int128)b >> sizeof(T) * 8);                                    \
    }                                                                                              \
    MSL_INL T madhi(T a, T b, T c) {                                                               \
        return (T)(mulhi(a, b) + c);                                                               \
    }                                                                                              \
    MSL_INL U absdiff(T a, T b) {                                                                  \
        return (U)(a < b ? (U)b - (U)a : (U)a - (U)b);                                             \
    }                                                                                              \
    MSL_INL T addsat(T a, T b) {                                                                   \
        T r;                                                                                       \
        return !__builtin_add_overflow(a, b, &r) ? r                                               \
               : a < 0                           ? numeric_limits<T>::lowest()                     \
                                                 : numeric_limits<T>::max();                                                 \
    }                                                                                              \
    MSL_INL T subsat(T a, T b) {                                                                   \
        T r;                                                                                       \
        return !__builtin_sub_overflow(a, b, &r) ? r                                               \
               : a < b                           ? numeric_limits<T>::lowest()                     \
                                                 : numeric_limits<T>::max();                                                 \
    }                                                                                              \
    MSL_INL T hadd(T a, T b) {                                                                     \
        return (T)(((__int128)a + (__int128)b) >> 1);                                              \
    }                                                                                              \
    MSL_INL T rhadd(T a, T b) {                                                                    \
        return (T)(((__int128)a + (__int128)b + 1) >> 1);                                          \
    }                                                                                              \
    MSL_INL T extract_bits(T x, uint offset, uint bits) {                                          \
        if (!bits) return 0;                                                                       \
        const uint drop = sizeof(T) * 8 - bits;                                                    \
        return (T)((T)((U)x << (drop - offset)) >> drop);                                          \
    }                                                                                              \
    MSL_INL T insert_bits(T base, T insert, uint offset, uint bits) {                              \
        const U mask = (U)(bits ? (U)(~(U)0) >> (sizeof(T) * 8 - bits) << offset : 0);             \
        return (T)(((U)base & (U)~mask) | ((U)((U)insert << offset) & mask));                      \
    }                                                                                              \
    MSL_V1(popcount, T)                                                                            \
    MSL_V1(clz, T)                                                                                 \
    MSL_V1(ctz, T)                                                                                 \
    MSL_V1(reverse_bits, T)                                                                        \
    MSL_V2(rotate, T)                                                                              \
    MSL_V2(mulhi, T)                                                                               \
    MSL_V2(addsat, T)                                                                              \
    MSL_V2(subsat, T)                                                                              \
    MSL_V2(hadd, T)                                                                                \
    MSL_V2(rhadd, T)                                                                               \
    MSL_V3(madhi, T)
template <class T> struct numeric_limits;
#define MSL_LIMITS(T, lo, hi, bits)                                                                \
    template <> struct numeric_limits<T> {                                                         \
        static constexpr int digits = bits;                                                        \
        static constexpr T max() {                                                                 \
            return hi;                                                                             \
        }                                                                                          \
        static constexpr T min() {                                                                 \
            return lo;                                                                             \
        }                                                                                          \
        static constexpr T lowest() {                                                              \
            return lo;                                                                             \
        }                                                                                          \
    };
MSL_LIMITS(char, SCHAR_MIN, SCHAR_MAX, 7)
MSL_LIMITS(uchar, 0, UCHAR_MAX, 8)
MSL_LIMITS(short, SHRT_MIN, SHRT_MAX, 15)
MSL_LIMITS(ushort, 0, USHRT_MAX, 16)
MSL_LIMITS(int, INT_MIN, INT_MAX, 31)
MSL_LIMITS(uint, 0, UINT_MAX, 32)
MSL_LIMITS(long, LONG_MIN, LONG_MAX, 63)
MSL_LIMITS(ulong, 0, ULONG_MAX, 64)
#undef MSL_LIMITS
#define MSL_FLOAT_LIMITS(T, smallest, largest, eps, bits)                                          \
    template <> struct numeric_limits<T> {                                                         \
        static constexpr int digits = bits;                                                        \
        static constexpr T infinity() {                                                            \
            return (T)__builtin_inff();                                                            \
        }                                                                                          \
        static constexpr T quiet_NaN() {                                                           \
            return (T)__builtin_nanf("");                                                          \
        }                                                                                          \
        static constexpr T max() {                                                                 \
            return (T)(largest);                                                                   \
        }                                                                                          \
        static constexpr T min() {                                                                 \
            return (T)(smallest);                                                                  \
        }                                                                                          \
        static constexpr T lowest() {                                                              \
            return (T)(-(largest));                                                                \
        }                                                                                          \
        static constexpr T epsilon() {                                                             \
            return (T)(eps);                                                                       \
        }                                                                                          \
    };
MSL_FLOAT_LIMITS(float, FLT_MIN, FLT_MAX, FLT_EPSILON, 24)
MSL_FLOAT_LIMITS(half, 6.103515625e-5f, 65504.0f, 9.765625e-4f, 11)
#undef MSL_FLOAT_LIMITS
MSL_INTS(MSL_BITS)
#undef MSL_BITS
template <class T> MSL_INL T mad24(T a, T b, T c) {
    static_assert(sizeof(T) == 4, "mad24: int or uint");
    return a * b + c;
}
template <class T> MSL_INL T mul24(T a, T b) {
    static_assert(sizeof(T) == 4, "mul24: int or uint");
    return a * b;
}

/* ---- relational ---- */
template <int N> MSL_INL bool any(vec<bool, N> a) {
    bool r = false;
    for (int i = 0; i < N; i++)
        r |= (bool)a.v[i];
    return r;
}
template <int N> MSL_INL bool all(vec<bool, N> a) {
    bool r = true;
    for (int i = 0; i < N; i++)
        r &= (bool)a.v[i];
    return r;
}
/* By bits, because a library with fast math may assume that there is no NaN. */
MSL_INL uint msl_magnitude(float x) {
    return __builtin_bit_cast(uint, x) & 0x7fffffffu;
}
#define MSL_RELATIONS(T)                                                                           \
    MSL_INL bool isnan(T x) {                                                                      \
        return msl_magnitude((float)x) > 0x7f800000u;                                              \
    }                                                                                              \
    MSL_INL bool isinf(T x) {                                                                      \
        return msl_magnitude((float)x) == 0x7f800000u;                                             \
    }                                                                                              \
    MSL_INL bool isfinite(T x) {                                                                   \
        return msl_magnitude((float)x) < 0x7f800000u;                                              \
    }                                                                                              \
    MSL_INL bool isnormal(T x) {                                                                   \
        return isfinite(x) && (float)fabs(x) >= (float)msl_smallest((T)0);                         \
    }                                                                                              \
    MSL_INL bool signbit(T x) {                                                                    \
        return __builtin_bit_cast(uint, (float)x) >> 31;                                           \
    }                                                                                              \
    MSL_INL bool isunordered(T x, T y) {                                                           \
        return isnan(x) || isnan(y);                                                               \
    }                                                                                              \
    MSL_INL bool isordered(T x, T y) {                                                             \
        return !isunordered(x, y);                                                                 \
    }                                                                                              \
    MSL_VR(isnan, bool, T)                                                                         \
    MSL_VR(isinf, bool, T)                                                                         \
    MSL_VR(isfinite, bool, T)                                                                      \
    MSL_VR(isnormal, bool, T)                                                                      \
    MSL_VR(signbit, bool, T)
MSL_INL float msl_smallest(float) {
    return FLT_MIN;
}
MSL_INL float msl_smallest(half) {
    return 6.103515625e-5f;
}
MSL_INL float msl_smallest(bfloat_t) {
    return FLT_MIN;
}
MSL_RELATIONS(float)
MSL_RELATIONS(half)
MSL_RELATIONS(bfloat_t)
#undef MSL_RELATIONS

/* ---- geometric ---- */
template <class T, int N> MSL_INL T dot(vec<T, N> a, vec<T, N> b) {
    T r = a[0] * b[0];
    for (int i = 1; i < N; i++)
        r += a[i] * b[i];
    return r;
}
template <class T, int N> MSL_INL T length_squared(vec<T, N> a) {
    return dot(a, a);
}
template <class T, int N> MSL_INL T length(vec<T, N> a) {
    return sqrt(dot(a, a));
}
template <class T, int N> MSL_INL T distance_squared(vec<T, N> a, vec<T, N> b) {
    return length_squared(a - b);
}
template <class T, int N> MSL_INL T distance(vec<T, N> a, vec<T, N> b) {
    return length(a - b);
}
template <class T, int N> MSL_INL vec<T, N> normalize(vec<T, N> a) {
    return a * rsqrt(dot(a, a));
}
template <class T> MSL_INL vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {
    return vec<T, 3>(a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2],
                     a[0] * b[1] - a[1] * b[0]);
}
} /* namespace metal */

#define M_PI_F      3.14159265358979323846f
#define M_E_F       2.71828182845904523536f
#define M_LOG2E_F   1.44269504088896340736f
#define M_LOG10E_F  0.43429448190325182765f
#define M_LN2_F     0.69314718055994530942f
#define M_LN10_F    2.30258509299404568402f
#define M_PI_2_F    1.57079632679489661923f
#define M_PI_4_F    0.78539816339744830962f
#define M_1_PI_F    0.31830988618379067154f
#define M_2_PI_F    0.63661977236758134308f
#define M_SQRT2_F   1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f
#define HALF_MAX    ((half)65504.0f)
#define MAXHALF     HALF_MAX
#define MAXFLOAT    FLT_MAX
#undef INFINITY
#define INFINITY __builtin_inff()
#undef NAN
#define NAN __builtin_nanf("")

#endif
