/* msl_math.h - common, integer, relational, geometric and math functions; numeric_limits and the
 * constants of <metal_math>. */
#ifndef MSL_MATH_H
#define MSL_MATH_H
#include "msl_vec.h"

namespace metal {
/* concrete overloads, not templates: an int argument must convert (or be ambiguous) as on Apple's
 * compiler */
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
#define MSL_V1(n, T) MSL_V1_(n, T, 2) MSL_V1_(n, T, 3) MSL_V1_(n, T, 4)
#define MSL_V2(n, T) MSL_V2_(n, T, 2) MSL_V2_(n, T, 3) MSL_V2_(n, T, 4)
#define MSL_V3(n, T) MSL_V3_(n, T, 2) MSL_V3_(n, T, 3) MSL_V3_(n, T, 4)
#define MSL_F1(n, e)                                                                               \
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
    }                                                                                              \
    MSL_V1(n, float) MSL_V1(n, half) MSL_V1(n, bfloat_t)
#define MSL_F2(n, e)                                                                               \
    MSL_INL float n(float x, float y) {                                                            \
        return (float)(e);                                                                         \
    }                                                                                              \
    MSL_INL half n(half g, half h) {                                                               \
        float x = (float)g, y = (float)h;                                                          \
        return (half)(e);                                                                          \
    }                                                                                              \
    MSL_V2(n, float) MSL_V2(n, half)
MSL_F1(exp, __builtin_expf(x))
MSL_F1(exp2, __builtin_exp2f(x)) MSL_F1(exp10, __builtin_powf(10.0f, x)) MSL_F1(
    log, __builtin_logf(x)) MSL_F1(log2, __builtin_log2f(x)) MSL_F1(log10, __builtin_log10f(x))
    MSL_F1(sqrt, __builtin_sqrtf(x)) MSL_F1(rsqrt, 1.0f / __builtin_sqrtf(x)) MSL_F1(
        sin, __builtin_sinf(x)) MSL_F1(cos, __builtin_cosf(x)) MSL_F1(tan, __builtin_tanf(x))
        MSL_F1(tanh, __builtin_tanhf(x)) MSL_F1(asin, __builtin_asinf(x)) MSL_F1(acos,
                                                                                 __builtin_acosf(x))
            MSL_F1(atan, __builtin_atanf(x)) MSL_F1(sinh, __builtin_sinhf(x))
                MSL_F1(cosh, __builtin_coshf(x)) MSL_F1(floor, __builtin_floorf(x)) MSL_F1(
                    ceil, __builtin_ceilf(x)) MSL_F1(trunc, __builtin_truncf(x))
                    MSL_F1(round, __builtin_roundf(x)) MSL_F1(rint, __builtin_rintf(x)) MSL_F1(
                        fabs, __builtin_fabsf(x)) MSL_F1(fract, x - __builtin_floorf(x))
                        MSL_F1(saturate, x<0.0f ? 0.0f : x> 1.0f ? 1.0f : x)
                            MSL_F1(sign, x > 0.0f   ? 1.0f
                                         : x < 0.0f ? -1.0f
                                                    : x) MSL_F2(pow, __builtin_powf(x, y))
                                MSL_F2(powr,
                                       __builtin_powf(x, y)) MSL_F2(fmod, __builtin_fmodf(x, y))
                                    MSL_F2(atan2, __builtin_atan2f(x, y))
                                        MSL_F2(fmin, __builtin_fminf(x, y))
                                            MSL_F2(fmax, __builtin_fmaxf(x, y))
                                                MSL_F2(copysign, __builtin_copysignf(x, y))
                                                    MSL_F2(step, y < x ? 0.0f : 1.0f)
#undef MSL_F1
#undef MSL_F2
                                                        template <class T>
                                                        using msl_if_scalar =
                                                            enable_if_t<msl_scalar<T>::value, T>;
#define MSL_MM(T)                                                                                  \
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
    MSL_V3(clamp, T)
MSL_MM(char)
MSL_MM(uchar) MSL_MM(short) MSL_MM(ushort) MSL_MM(int) MSL_MM(uint) MSL_MM(long) MSL_MM(ulong)
    MSL_MM(half) MSL_MM(float) MSL_MM(bfloat_t)
#undef MSL_MM
        template <class T>
        MSL_INL msl_if_scalar<T> abs(T x) {
    return x < (T)0 ? (T)-x : x;
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
MSL_INL float ldexp(float x, int e) {
    return __builtin_ldexpf(x, e);
}
MSL_INL float erf_(float x) {
    return __builtin_erff(x);
}
MSL_INL float fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
MSL_INL half fma(half a, half b, half c) {
    return (half)__builtin_fmaf((float)a, (float)b, (float)c);
}
template <class T, int N> MSL_INL vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
    vec<T, N> r;
    for (int i = 0; i < N; i++)
        r.v[i] = fma((T)a.v[i], (T)b.v[i], (T)c.v[i]);
    return r;
}
template <class T> MSL_INL T mix(T a, T b, T t) {
    return a + (b - a) * t;
}
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
MSL_INL bool isnan(float x) {
    return __builtin_isnan(x);
}
MSL_INL bool isnan(half x) {
    return __builtin_isnan((float)x);
}
MSL_INL bool isinf(float x) {
    return __builtin_isinf(x);
}
MSL_INL bool isinf(half x) {
    return __builtin_isinf((float)x);
}
MSL_INL bool isfinite(float x) {
    return __builtin_isfinite(x);
}
MSL_INL uint popcount(uint x) {
    return (uint)__builtin_popcount(x);
}
MSL_INL uint clz(uint x) {
    return x ? (uint)__builtin_clz(x) : 32;
}
MSL_INL uint ctz(uint x) {
    return x ? (uint)__builtin_ctz(x) : 32;
}
template <class T> MSL_INL T mad24(T a, T b, T c) {
    return a * b + c;
}
MSL_INL uint extract_bits(uint x, uint o, uint n) {
    return n ? x >> o & (n < 32 ? (1u << n) - 1 : ~0u) : 0;
}
namespace precise {
using metal::cos;
using metal::exp;
using metal::exp2;
using metal::log;
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
using metal::pow;
using metal::rsqrt;
using metal::sin;
using metal::sqrt;
using metal::tanh;
} // namespace fast
template <class T> struct numeric_limits;
template <> struct numeric_limits<float> {
    static constexpr float infinity() {
        return __builtin_inff();
    }
    static constexpr float max() {
        return FLT_MAX;
    }
    static constexpr float lowest() {
        return -FLT_MAX;
    }
};
template <> struct numeric_limits<half> {
    static constexpr half infinity() {
        return (half)__builtin_inff();
    }
    static constexpr half max() {
        return (half)65504.0f;
    }
    static constexpr half lowest() {
        return (half)-65504.0f;
    }
};

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
