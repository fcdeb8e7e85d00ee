/* msl_matrix.h - simdgroup matrices: two elements of the 8x8 matrix per lane, laid out as on Apple
 * GPUs; code that relies on that layout through thread_elements() is not portable. */
#ifndef MSL_MATRIX_H
#define MSL_MATRIX_H
#include "msl_simd.h"

namespace metal {
MSL_INL uint msl_mrow(uint l) {
    return (l >> 2 & 4) | (l >> 1 & 3);
}
MSL_INL uint msl_mcol(uint l) {
    return (l >> 2 & 2) * 2 | (l & 1) * 2;
}
template <class T, int C, int R> struct simdgroup_matrix {
    static_assert(C == 8 && R == 8, "simdgroup_matrix: 8x8 only");
    T e[2];
    simdgroup_matrix() = default;
    MSL_INL explicit simdgroup_matrix(T d) {
        uint l = msl_rt_pos()->tiisg, r = msl_mrow(l), c = msl_mcol(l);
        e[0] = r == c ? d : (T)0;
        e[1] = r == c + 1 ? d : (T)0;
    }
    MSL_INL vec<T, 2> &thread_elements() {
        return *(vec<T, 2> *)(void *)e;
    }
};
template <class T, int C, int R = C>
MSL_INL simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T v) {
    simdgroup_matrix<T, C, R> m;
    m.e[0] = m.e[1] = v;
    return m;
}
template <class T>
MSL_INL void simdgroup_load(simdgroup_matrix<T, 8, 8> &d, const T *p, ulong ld = 8,
                            vec<ulong, 2> o = vec<ulong, 2>(0ul), bool tr = false, MSL_LINE) {
    uint l = msl_rt_pos()->tiisg, r = msl_mrow(l), c = msl_mcol(l), m;
    char z = 0;
    msl_rt_simd(&z, 1, nullptr, 40, line_, &m);
    p += o[1] * ld + o[0];
    for (uint i = 0; i < 2; i++)
        d.e[i] = tr ? p[(c + i) * ld + r] : p[r * ld + c + i];
}
template <class T>
MSL_INL void simdgroup_store(simdgroup_matrix<T, 8, 8> s, T *p, ulong ld = 8,
                             vec<ulong, 2> o = vec<ulong, 2>(0ul), bool tr = false, MSL_LINE) {
    uint l = msl_rt_pos()->tiisg, r = msl_mrow(l), c = msl_mcol(l), m;
    char z = 0;
    msl_rt_simd(&z, 1, nullptr, 41, line_, &m);
    p += o[1] * ld + o[0];
    for (uint i = 0; i < 2; i++)
        (tr ? p[(c + i) * ld + r] : p[r * ld + c + i]) = s.e[i];
}
template <class D, class A, class B, class C> struct msl_mma_in {
    A a[2];
    B b[2];
    C c[2];
};
/* The order in which a device adds the eight products to c is not documented. It is a chain of fma
 * over k here or, to expose code that relies on that, a sum of the products in pairs. */
MSL_INL float msl_sum_chain(const float *a, const float (*b)[8], int j, float c) {
    for (int k = 0; k < 8; k++)
        c = __builtin_fmaf(a[k], b[k][j], c);
    return c;
}
inline float msl_sum_tree(const float *a, const float (*b)[8], int j, float c) {
    float p[8];
    for (int k = 0; k < 8; k++)
        p[k] = a[k] * b[k][j];
    for (int step = 1; step < 8; step *= 2)
        for (int k = 0; k < 8; k += 2 * step)
            p[k] += p[k + step];
    return c + p[0];
}
template <class D, class A, class B, class C>
void msl_mma(const void *s, uint32_t mask, void *res) {
    /* runs once per simdgroup, in the last lane to arrive, and computes the whole matrix */
    typedef msl_mma_in<D, A, B, C> I;
    float a[8][8], b[8][8], c[8][8];
    const int order = msl_rt_sum_tree();
    const bool tree = order == 1 || (order == 2 && (sizeof(A) == 2 || sizeof(B) == 2));
    (void)mask;
    for (uint l = 0; l < 32; l++) {
        const I &x = msl_slot<I>(s, l);
        uint r = msl_mrow(l), k = msl_mcol(l);
        for (uint i = 0; i < 2; i++) {
            a[r][k + i] = (float)x.a[i];
            b[r][k + i] = (float)x.b[i];
            c[r][k + i] = (float)x.c[i];
        }
    }
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            c[i][j] = tree ? msl_sum_tree(a[i], b, j, c[i][j]) : msl_sum_chain(a[i], b, j, c[i][j]);
    char *w = (char *)s; /* results are returned in the slots, bytes 32.. */
    for (uint l = 0; l < 32; l++) {
        uint r = msl_mrow(l), k = msl_mcol(l);
        D *d = (D *)(w + l * 64 + 32);
        d[0] = (D)c[r][k];
        d[1] = (D)c[r][k + 1];
    }
    *(const void **)res = s;
}
template <class D, class A, class B, class C>
MSL_INL void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &d,
                                           simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b,
                                           simdgroup_matrix<C, 8, 8> c, MSL_LINE) {
    msl_mma_in<D, A, B, C> in = {{a.e[0], a.e[1]}, {b.e[0], b.e[1]}, {c.e[0], c.e[1]}};
    static_assert(sizeof in <= 32, "");
    const char *s = *(const char *const *)msl_rt_simd(&in, sizeof in, msl_mma<D, A, B, C>,
                                                      MSL_OP_MATRIX_PRODUCT, line_, nullptr);
    const D *r = (const D *)(s + msl_rt_pos()->tiisg * 64 + 32);
    d.e[0] = r[0];
    d.e[1] = r[1];
}
template <class D, class A, class B>
MSL_INL void simdgroup_multiply(simdgroup_matrix<D, 8, 8> &d, simdgroup_matrix<A, 8, 8> a,
                                simdgroup_matrix<B, 8, 8> b, MSL_LINE) {
    simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>((D)0), line_);
}

typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
} /* namespace metal */
#endif
