/* msl_types.h - MSL's qualifiers, scalar types and type traits for the executable build. Address
 * spaces are annotations only here; the address-space pass (msl/check) makes them types. */
#ifndef MSL_TYPES_H
#define MSL_TYPES_H
#include "msl_rt.h"
#include <float.h>
#include <limits.h>

#define MSL_INL  inline __attribute__((always_inline))
#define MSL_LINE unsigned line_ = __builtin_LINE()

#define kernel
#define device
#define threadgroup
#define thread
#define constant    const
#define METAL_FUNC  inline __attribute__((__always_inline__))
#define METAL_CONST const

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
#if __clang_major__ >= 15
typedef _Float16 half;
#else
#ifndef __FLT16_MAX__
#define __FLT16_MAX__     ((half)65504.0f)
#define __FLT16_MIN__     ((half)6.103515625e-5f)
#define __FLT16_EPSILON__ ((half)9.765625e-4f)
#endif
typedef __fp16 half; // with -Xclang -fnative-half-type -Xclang -fallow-half-arguments-and-returns
#endif

namespace metal {
template <class T, class A, class B> struct msl_both {};
template <class T> struct msl_both<T, T, T> { typedef T type; };
/* bfloat: 16 bits of storage; arithmetic in float, rounded after every operation */
struct bfloat_t {
    ushort b;
    bfloat_t() = default;
    MSL_INL bfloat_t(float f) {
        uint u = __builtin_bit_cast(uint, f);
        if ((u & 0x7fffffffu) > 0x7f800000u)
            b = (ushort)(u >> 16 | 64);
        else
            b = (ushort)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
    }
    MSL_INL explicit bfloat_t(half h) : bfloat_t((float)h) {}
    MSL_INL explicit bfloat_t(int i) : bfloat_t((float)i) {}
    MSL_INL explicit bfloat_t(uint i) : bfloat_t((float)i) {}
    MSL_INL operator float() const {
        return __builtin_bit_cast(float, (uint)b << 16);
    }
#define MSL_BOP(o)                                                                                 \
    template <class A, class B, class = typename msl_both<bfloat_t, A, B>::type>                   \
    friend MSL_INL bfloat_t operator o(A x, B y) {                                                 \
        return bfloat_t((float)x o(float) y);                                                      \
    }                                                                                              \
    MSL_INL bfloat_t &operator o##=(bfloat_t y) {                                                  \
        return *this = *this o y;                                                                  \
    }
    MSL_BOP(+)
    MSL_BOP(-)
    MSL_BOP(*)
    MSL_BOP(/)
#undef MSL_BOP
    MSL_INL bfloat_t operator-() const {
        return bfloat_t(-(float)*this);
    }
};

template <class A, class B> struct is_same { static constexpr bool value = false; };
template <class A> struct is_same<A, A> { static constexpr bool value = true; };
template <class A, class B> constexpr bool is_same_v = is_same<A, B>::value;
template <bool C, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool C, class T = void> using enable_if_t = typename enable_if<C, T>::type;
template <bool C, class A, class B> struct conditional { typedef A type; };
template <class A, class B> struct conditional<false, A, B> { typedef B type; };
template <bool C, class A, class B> using conditional_t = typename conditional<C, A, B>::type;
template <class T> struct remove_cv { typedef T type; };
template <class T> struct remove_cv<const T> { typedef T type; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;

template <class T> struct msl_scalar { static constexpr bool value = false; };
#define S(T)                                                                                       \
    template <> struct msl_scalar<T> { static constexpr bool value = true; };
S(bool)
S(char)
S(signed char)
S(uchar)
S(short)
S(ushort)
S(int) S(uint) S(long) S(ulong) S(half) S(float) S(bfloat_t) S(unsigned long long) S(long long)
#undef S

} /* namespace metal */
#endif
