/* msl_vec.h - vectors with their swizzles, packed vectors, matrices, as_type.
 *
 * These are classes rather than clang's vector types, because MSL's rules for conversion and
 * construction are stricter. */
#ifndef MSL_VEC_H
#define MSL_VEC_H
#include "msl_types.h"

namespace metal {
template <class T, int N> struct msl_store {
    typedef T type __attribute__((ext_vector_type(N)));
    static constexpr bool ext = true;
};
template <int N> struct msl_store<bool, N> {
    typedef uchar type __attribute__((ext_vector_type(N)));
    static constexpr bool ext = false;
};
template <int N> struct msl_store<bfloat_t, N> {
    struct alignas(N == 2 ? 4 : 8) type {
        bfloat_t e[N];
        MSL_INL bfloat_t &operator[](int i) {
            return e[i];
        }
        MSL_INL bfloat_t operator[](int i) const {
            return e[i];
        }
    };
    static constexpr bool ext = false;
};

template <class T, int N> struct vec;
template <class T> struct msl_n { static constexpr int n = 1; };
template <class T, int N> struct msl_n<vec<T, N>> { static constexpr int n = N; };

#define MSL_P1(a, b, i)                                                                            \
    MSL_INL T g_##a() const {                                                                      \
        return (T)v[i];                                                                            \
    }                                                                                              \
    MSL_INL void p_##a(T t) {                                                                      \
        v[i] = t;                                                                                  \
    }                                                                                              \
    __declspec(property(get = g_##a, put = p_##a)) T a;                                            \
    __declspec(property(get = g_##a, put = p_##a)) T b;
#define MSL_P2R(a, b, i, j)                                                                        \
    MSL_INL vec<T, 2> g_##a() const {                                                              \
        return vec<T, 2>((T)v[i], (T)v[j]);                                                        \
    }                                                                                              \
    __declspec(property(get = g_##a)) vec<T, 2> a;                                                 \
    __declspec(property(get = g_##a)) vec<T, 2> b;
#define MSL_P2W(a, b, i, j)                                                                        \
    MSL_INL vec<T, 2> g_##a() const {                                                              \
        return vec<T, 2>((T)v[i], (T)v[j]);                                                        \
    }                                                                                              \
    MSL_INL void p_##a(vec<T, 2> t) {                                                              \
        v[i] = t.v[0];                                                                             \
        v[j] = t.v[1];                                                                             \
    }                                                                                              \
    __declspec(property(get = g_##a, put = p_##a)) vec<T, 2> a;                                    \
    __declspec(property(get = g_##a, put = p_##a)) vec<T, 2> b;
#define MSL_P3R(a, b, i, j, k)                                                                     \
    MSL_INL vec<T, 3> g_##a() const {                                                              \
        return vec<T, 3>((T)v[i], (T)v[j], (T)v[k]);                                               \
    }                                                                                              \
    __declspec(property(get = g_##a)) vec<T, 3> a;                                                 \
    __declspec(property(get = g_##a)) vec<T, 3> b;
#define MSL_P3W(a, b, i, j, k)                                                                     \
    MSL_INL vec<T, 3> g_##a() const {                                                              \
        return vec<T, 3>((T)v[i], (T)v[j], (T)v[k]);                                               \
    }                                                                                              \
    MSL_INL void p_##a(vec<T, 3> t) {                                                              \
        v[i] = t.v[0];                                                                             \
        v[j] = t.v[1];                                                                             \
        v[k] = t.v[2];                                                                             \
    }                                                                                              \
    __declspec(property(get = g_##a, put = p_##a)) vec<T, 3> a;                                    \
    __declspec(property(get = g_##a, put = p_##a)) vec<T, 3> b;
#define MSL_P4R(a, b, i, j, k, l)                                                                  \
    MSL_INL vec<T, 4> g_##a() const {                                                              \
        return vec<T, 4>((T)v[i], (T)v[j], (T)v[k], (T)v[l]);                                      \
    }                                                                                              \
    __declspec(property(get = g_##a)) vec<T, 4> a;                                                 \
    __declspec(property(get = g_##a)) vec<T, 4> b;
#define MSL_P4W(a, b, i, j, k, l)                                                                  \
    MSL_INL vec<T, 4> g_##a() const {                                                              \
        return vec<T, 4>((T)v[i], (T)v[j], (T)v[k], (T)v[l]);                                      \
    }                                                                                              \
    MSL_INL void p_##a(vec<T, 4> t) {                                                              \
        v[i] = t.v[0];                                                                             \
        v[j] = t.v[1];                                                                             \
        v[k] = t.v[2];                                                                             \
        v[l] = t.v[3];                                                                             \
    }                                                                                              \
    __declspec(property(get = g_##a, put = p_##a)) vec<T, 4> a;                                    \
    __declspec(property(get = g_##a, put = p_##a)) vec<T, 4> b;

#define MSL_VOP(o)                                                                                 \
    friend MSL_INL vec operator o(vec a, vec b) {                                                  \
        vec r;                                                                                     \
        if constexpr (store::ext)                                                                  \
            r.v = a.v o b.v;                                                                       \
        else                                                                                       \
            for (int i = 0; i < N; i++)                                                            \
                r.v[i] = (T)((T)a.v[i] o(T) b.v[i]);                                               \
        return r;                                                                                  \
    }                                                                                              \
    friend MSL_INL vec operator o(vec a, T b) {                                                    \
        return a o vec(b);                                                                         \
    }                                                                                              \
    friend MSL_INL vec operator o(T a, vec b) {                                                    \
        return vec(a) o b;                                                                         \
    }                                                                                              \
    MSL_INL vec &operator o##=(vec b) {                                                            \
        return *this = *this o b;                                                                  \
    }                                                                                              \
    MSL_INL vec &operator o##=(T b) {                                                              \
        return *this = *this o vec(b);                                                             \
    }
#define MSL_VCMP(o)                                                                                \
    friend MSL_INL vec<bool, N> operator o(vec a, vec b) {                                         \
        vec<bool, N> r;                                                                            \
        for (int i = 0; i < N; i++)                                                                \
            r.v[i] = (T)a.v[i] o(T) b.v[i];                                                        \
        return r;                                                                                  \
    }                                                                                              \
    friend MSL_INL vec<bool, N> operator o(vec a, T b) {                                           \
        return a o vec(b);                                                                         \
    }                                                                                              \
    friend MSL_INL vec<bool, N> operator o(T a, vec b) {                                           \
        return vec(a) o b;                                                                         \
    }
#define MSL_VEC_COMMON(NN)                                                                         \
    typedef msl_store<T, NN> store;                                                                \
    typedef T scalar;                                                                              \
    typename store::type v;                                                                        \
    vec() = default;                                                                               \
    MSL_INL vec(T s) {                                                                             \
        for (int i = 0; i < NN; i++)                                                               \
            v[i] = s;                                                                              \
    }                                                                                              \
    template <class U> MSL_INL explicit vec(vec<U, NN> o) {                                        \
        if constexpr (store::ext && msl_store<U, NN>::ext)                                         \
            v = __builtin_convertvector(o.v, typename store::type);                                \
        else                                                                                       \
            for (int i = 0; i < NN; i++)                                                           \
                v[i] = (T)(U)o.v[i];                                                               \
    }                                                                                              \
    MSL_INL T operator[](int i) const {                                                            \
        return (T)v[i];                                                                            \
    }                                                                                              \
    MSL_INL typename conditional<is_same<T, bool>::value, uchar, T>::type &operator[](int i) {     \
        return ((typename conditional<is_same<T, bool>::value, uchar, T>::type *)&v)[i];           \
    }                                                                                              \
    MSL_VOP(+)                                                                                     \
    MSL_VOP(-)                                                                                     \
    MSL_VOP(*)                                                                                     \
    MSL_VOP(/)                                                                                     \
    MSL_VOP(%)                                                                                     \
    MSL_VOP(&)                                                                                     \
    MSL_VOP(|)                                                                                     \
    MSL_VOP(^) MSL_VOP(<<) MSL_VOP(>>) MSL_VCMP(==) MSL_VCMP(!=) MSL_VCMP(<) MSL_VCMP(>)           \
        MSL_VCMP(<=) MSL_VCMP(>=) MSL_VCMP(&&) MSL_VCMP(||) MSL_INL vec                            \
        operator-() const {                                                                        \
        vec r;                                                                                     \
        for (int i = 0; i < N; i++)                                                                \
            r.v[i] = (T)(-(T)v[i]);                                                                \
        return r;                                                                                  \
    }                                                                                              \
    MSL_INL vec operator+() const {                                                                \
        return *this;                                                                              \
    }                                                                                              \
    MSL_INL vec operator~() const {                                                                \
        vec r;                                                                                     \
        for (int i = 0; i < N; i++)                                                                \
            r.v[i] = (T)(~(T)v[i]);                                                                \
        return r;                                                                                  \
    }                                                                                              \
    MSL_INL vec<bool, NN> operator!() const {                                                      \
        vec<bool, NN> r;                                                                           \
        for (int i = 0; i < N; i++)                                                                \
            r.v[i] = !(T)v[i];                                                                     \
        return r;                                                                                  \
    }

template <class T> struct vec<T, 2> {
    static constexpr int N = 2;
    MSL_VEC_COMMON(2)
    MSL_INL vec(T a, T b) {
        v[0] = a;
        v[1] = b;
    }
#include "msl_swizzle2.inc"
};
template <class T> struct vec<T, 3> {
    static constexpr int N = 3;
    MSL_VEC_COMMON(3)
    MSL_INL vec(T a, T b, T c) {
        v[0] = a;
        v[1] = b;
        v[2] = c;
    }
    MSL_INL vec(vec<T, 2> a, T b) : vec((T)a.v[0], (T)a.v[1], b) {}
    MSL_INL vec(T a, vec<T, 2> b) : vec(a, (T)b.v[0], (T)b.v[1]) {}
#include "msl_swizzle3.inc"
};
template <class T> struct vec<T, 4> {
    static constexpr int N = 4;
    MSL_VEC_COMMON(4)
    MSL_INL vec(T a, T b, T c, T d) {
        v[0] = a;
        v[1] = b;
        v[2] = c;
        v[3] = d;
    }
    MSL_INL vec(vec<T, 2> a, T b, T c) : vec((T)a.v[0], (T)a.v[1], b, c) {}
    MSL_INL vec(T a, vec<T, 2> b, T c) : vec(a, (T)b.v[0], (T)b.v[1], c) {}
    MSL_INL vec(T a, T b, vec<T, 2> c) : vec(a, b, (T)c.v[0], (T)c.v[1]) {}
    MSL_INL vec(vec<T, 2> a, vec<T, 2> b) : vec((T)a.v[0], (T)a.v[1], (T)b.v[0], (T)b.v[1]) {}
    MSL_INL vec(vec<T, 3> a, T b) : vec((T)a.v[0], (T)a.v[1], (T)a.v[2], b) {}
    MSL_INL vec(T a, vec<T, 3> b) : vec(a, (T)b.v[0], (T)b.v[1], (T)b.v[2]) {}
#include "msl_swizzle4.inc"
};
/* Aligned like its elements; with swizzles, as since Metal 2.1. Arithmetic converts to vectors. */
#define MSL_PACKED_OP(o)                                                                           \
    friend MSL_INL wide operator o(packed_vec a, packed_vec b) {                                   \
        return wide(a) o wide(b);                                                                  \
    }                                                                                              \
    friend MSL_INL wide operator o(packed_vec a, wide b) {                                         \
        return wide(a) o b;                                                                        \
    }                                                                                              \
    friend MSL_INL wide operator o(wide a, packed_vec b) {                                         \
        return a o wide(b);                                                                        \
    }                                                                                              \
    friend MSL_INL wide operator o(packed_vec a, T b) {                                            \
        return wide(a) o b;                                                                        \
    }                                                                                              \
    friend MSL_INL wide operator o(T a, packed_vec b) {                                            \
        return a o wide(b);                                                                        \
    }
#define MSL_PACKED_COMMON(NN)                                                                      \
    typedef vec<T, NN> wide;                                                                       \
    T v[NN];                                                                                       \
    packed_vec() = default;                                                                        \
    MSL_INL packed_vec(T s) : packed_vec(wide(s)) {}                                               \
    MSL_INL packed_vec(wide o) {                                                                   \
        for (int i = 0; i < NN; i++)                                                               \
            v[i] = o[i];                                                                           \
    }                                                                                              \
    MSL_INL operator wide() const {                                                                \
        wide r;                                                                                    \
        for (int i = 0; i < NN; i++)                                                               \
            r[i] = v[i];                                                                           \
        return r;                                                                                  \
    }                                                                                              \
    MSL_INL T &operator[](int i) {                                                                 \
        return v[i];                                                                               \
    }                                                                                              \
    MSL_INL T operator[](int i) const {                                                            \
        return v[i];                                                                               \
    }                                                                                              \
    MSL_PACKED_OP(+) MSL_PACKED_OP(-) MSL_PACKED_OP(*) MSL_PACKED_OP(/)
template <class T, int N> struct packed_vec;
template <class T> struct packed_vec<T, 2> {
    MSL_PACKED_COMMON(2)
    MSL_INL packed_vec(T a, T b) : packed_vec(wide(a, b)) {}
#include "msl_swizzle2.inc"
};
template <class T> struct packed_vec<T, 3> {
    MSL_PACKED_COMMON(3)
    MSL_INL packed_vec(T a, T b, T c) : packed_vec(wide(a, b, c)) {}
#include "msl_swizzle3.inc"
};
template <class T> struct packed_vec<T, 4> {
    MSL_PACKED_COMMON(4)
    MSL_INL packed_vec(T a, T b, T c, T d) : packed_vec(wide(a, b, c, d)) {}
#include "msl_swizzle4.inc"
};
template <class T, int C, int R> struct matrix {
    vec<T, R> c[C];
    matrix() = default;
    MSL_INL explicit matrix(T d) {
        for (int i = 0; i < C; i++) {
            c[i] = vec<T, R>((T)0);
            if (i < R) c[i][i] = d;
        }
    }
    template <class U> MSL_INL explicit matrix(const matrix<U, C, R> &o) {
        for (int i = 0; i < C; i++)
            c[i] = vec<T, R>(o.c[i]);
    }
    MSL_INL vec<T, R> &operator[](int i) {
        return c[i];
    }
    MSL_INL const vec<T, R> &operator[](int i) const {
        return c[i];
    }
    friend MSL_INL matrix operator*(matrix a, T s) {
        for (int i = 0; i < C; i++)
            a.c[i] *= s;
        return a;
    }
    friend MSL_INL matrix operator*(T s, matrix a) {
        return a * s;
    }
    friend MSL_INL matrix operator/(matrix a, T s) {
        for (int i = 0; i < C; i++)
            a.c[i] /= s;
        return a;
    }
    friend MSL_INL matrix operator+(matrix a, const matrix &b) {
        for (int i = 0; i < C; i++)
            a.c[i] += b.c[i];
        return a;
    }
    friend MSL_INL matrix operator-(matrix a, const matrix &b) {
        for (int i = 0; i < C; i++)
            a.c[i] -= b.c[i];
        return a;
    }
    friend MSL_INL vec<T, R> operator*(const matrix &a, vec<T, C> v) {
        vec<T, R> r = a.c[0] * v[0];
        for (int i = 1; i < C; i++)
            r += a.c[i] * v[i];
        return r;
    }
    template <int K>
    friend MSL_INL matrix<T, K, R> operator*(const matrix &a, const matrix<T, K, C> &b) {
        matrix<T, K, R> r;
        for (int i = 0; i < K; i++)
            r.c[i] = a * b.c[i];
        return r;
    }
    MSL_INL matrix &operator+=(const matrix &b) {
        return *this = *this + b;
    }
    MSL_INL matrix &operator-=(const matrix &b) {
        return *this = *this - b;
    }
    MSL_INL matrix &operator*=(T s) {
        return *this = *this * s;
    }
    MSL_INL matrix &operator*=(const matrix &b) {
        return *this = *this * b;
    }
};
} // namespace metal

typedef metal::bfloat_t bfloat;
#define MSL_T(n, T)                                                                                \
    typedef metal::vec<T, 2> n##2;                                                                 \
    typedef metal::vec<T, 3> n##3;                                                                 \
    typedef metal::vec<T, 4> n##4;                                                                 \
    typedef metal::packed_vec<T, 2> packed_##n##2;                                                 \
    typedef metal::packed_vec<T, 3> packed_##n##3;                                                 \
    typedef metal::packed_vec<T, 4> packed_##n##4;
MSL_T(bool, bool)
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
MSL_T(bfloat, bfloat)
#undef MSL_T
#define MSL_M(n, T, C, R) typedef metal::matrix<T, C, R> n##C##x##R;
#define MSL_MATRICES(n, T)                                                                         \
    MSL_M(n, T, 2, 2)                                                                              \
    MSL_M(n, T, 2, 3)                                                                              \
    MSL_M(n, T, 2, 4)                                                                              \
    MSL_M(n, T, 3, 2)                                                                              \
    MSL_M(n, T, 3, 3)                                                                              \
    MSL_M(n, T, 3, 4)                                                                              \
    MSL_M(n, T, 4, 2)                                                                              \
    MSL_M(n, T, 4, 3)                                                                              \
    MSL_M(n, T, 4, 4)
MSL_MATRICES(float, float)
MSL_MATRICES(half, half)
MSL_MATRICES(bfloat, bfloat)
#undef MSL_MATRICES
#undef MSL_M

MSL_INL half operator""h(long double d) {
    return (half)d;
}
MSL_INL bfloat operator"" bf(long double d) {
    return bfloat((float)d);
}

namespace metal {
/* Halves of given bits, as a device without subnormal ones has them (msl_opts.flush_halves). */
template <class T> MSL_INL T msl_flushed(T t) {
    return t;
}
MSL_INL half msl_flushed(half h) {
    const ushort b = __builtin_bit_cast(ushort, h);
    const bool subnormal = !(b & 0x7c00) && msl_rt_flush_halves();
    return __builtin_bit_cast(half, (ushort)(subnormal ? b & 0x8000 : b));
}
template <int N> MSL_INL vec<half, N> msl_flushed(vec<half, N> t) {
    for (int i = 0; i < N; i++)
        t.v[i] = msl_flushed((half)t.v[i]);
    return t;
}
} /* namespace metal */

template <class T, class U> MSL_INL T as_type(U u) {
    static_assert(sizeof(T) == sizeof(U), "as_type: sizes differ");
    return metal::msl_flushed(__builtin_bit_cast(T, u));
}
#endif
