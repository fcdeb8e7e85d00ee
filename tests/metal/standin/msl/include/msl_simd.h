/* msl_simd.h - barriers, simdgroup and quadgroup functions: all wait for the lanes of the
 * simdgroup (msl_rt_simd). */
#ifndef MSL_SIMD_H
#define MSL_SIMD_H
#include "msl_math.h"

namespace metal {
enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
MSL_INL mem_flags operator|(mem_flags a, mem_flags b) {
    return (mem_flags)((uint)a | (uint)b);
}
MSL_INL void threadgroup_barrier(mem_flags f, MSL_LINE) {
    msl_rt_barrier((uint)f, line_);
}
MSL_INL void simdgroup_barrier(mem_flags f, MSL_LINE) {
    msl_rt_simd_barrier((uint)f, line_);
}

/* ---- simdgroup functions */
template <class T> MSL_INL const T &msl_slot(const void *s, uint lane) {
    return *(const T *)((const char *)s + lane * 64);
}
template <class T, class O> void msl_reduce(const void *s, uint32_t mask, void *r) {
    T a = T();
    bool first = true;
    for (uint i = 0; i < 32; i++)
        if (mask >> i & 1) {
            a = first ? msl_slot<T>(s, i) : O::f(a, msl_slot<T>(s, i));
            first = false;
        }
    *(T *)r = a;
}
#define MSL_RED(n, id, e)                                                                          \
    struct msl_op_##n {                                                                            \
        template <class T> static MSL_INL T f(T a, T b) {                                          \
            return e;                                                                              \
        }                                                                                          \
    };                                                                                             \
    template <class T> MSL_INL T simd_##n(T v, MSL_LINE) {                                         \
        return *(const T *)msl_rt_simd(&v, sizeof v, msl_reduce<T, msl_op_##n>, id, line_,         \
                                       nullptr);                                                   \
    }
MSL_RED(sum, 1, a + b)
MSL_RED(product, 2, a *b) MSL_RED(max, 3, max(a, b)) MSL_RED(min, 4, min(a, b))
    MSL_RED(and, 5, a &b) MSL_RED(or, 6, a | b) MSL_RED(xor, 7, a ^ b)
#undef MSL_RED
        template <class T>
        MSL_INL T msl_pick(T v, uint from, uint id, uint line_) {
    uint m;
    const void *s = msl_rt_simd(&v, sizeof v, nullptr, id, line_, &m);
    return from < 32 && (m >> from & 1) ? msl_slot<T>(s, from)
                                        : v; // inactive or out of range: undefined on the GPU
}
template <class T> MSL_INL T simd_shuffle(T v, ushort l, MSL_LINE) {
    return msl_pick(v, l, 16, line_);
}
template <class T> MSL_INL T simd_shuffle_xor(T v, ushort x, MSL_LINE) {
    return msl_pick(v, msl_rt_pos()->tiisg ^ x, 17, line_);
}
template <class T> MSL_INL T simd_shuffle_down(T v, ushort d, MSL_LINE) {
    return msl_pick(v, msl_rt_pos()->tiisg + d, 18, line_);
}
template <class T> MSL_INL T simd_shuffle_up(T v, ushort d, MSL_LINE) {
    return msl_pick(v, msl_rt_pos()->tiisg - d, 19, line_);
}
template <class T> MSL_INL T simd_broadcast(T v, ushort l, MSL_LINE) {
    return msl_pick(v, l, 20, line_);
}
template <class T> MSL_INL T simd_broadcast_first(T v, MSL_LINE) {
    uint m;
    const void *s = msl_rt_simd(&v, sizeof v, nullptr, 21, line_, &m);
    return msl_slot<T>(s, (uint)__builtin_ctz(m));
}
template <class T> MSL_INL T simd_prefix_inclusive_sum(T v, MSL_LINE) {
    uint m;
    const void *s = msl_rt_simd(&v, sizeof v, nullptr, 22, line_, &m);
    T a = T(0);
    for (uint i = 0; i <= msl_rt_pos()->tiisg; i++)
        if (m >> i & 1) a = a + msl_slot<T>(s, i);
    return a;
}
template <class T> MSL_INL T simd_prefix_exclusive_sum(T v, MSL_LINE) {
    uint m;
    const void *s = msl_rt_simd(&v, sizeof v, nullptr, 23, line_, &m);
    T a = T(0);
    for (uint i = 0; i < msl_rt_pos()->tiisg; i++)
        if (m >> i & 1) a = a + msl_slot<T>(s, i);
    return a;
}
MSL_INL ulong msl_ballot(bool p, uint id, uint line_, uint *m) {
    uchar c = p;
    const void *s = msl_rt_simd(&c, 1, nullptr, id, line_, m);
    ulong r = 0;
    for (uint i = 0; i < 32; i++)
        if ((*m >> i & 1) && msl_slot<uchar>(s, i)) r |= 1ul << i;
    return r;
}
struct simd_vote {
    typedef ulong vote_t;
    vote_t v;
    uint m;
    explicit operator vote_t() const {
        return v;
    }
    bool all() const {
        return (uint)v == m;
    }
    bool any() const {
        return v != 0;
    }
};
MSL_INL simd_vote simd_ballot(bool p, MSL_LINE) {
    simd_vote r;
    r.v = msl_ballot(p, 24, line_, &r.m);
    return r;
}
MSL_INL bool simd_all(bool p, MSL_LINE) {
    uint m;
    ulong v = msl_ballot(p, 25, line_, &m);
    return (uint)v == m;
}
MSL_INL bool simd_any(bool p, MSL_LINE) {
    uint m;
    return msl_ballot(p, 26, line_, &m) != 0;
}
MSL_INL bool simd_is_first(MSL_LINE) {
    uint m;
    char z = 0;
    msl_rt_simd(&z, 1, nullptr, 27, line_, &m);
    return msl_rt_pos()->tiisg == (uint)__builtin_ctz(m);
}
template <class T> MSL_INL T quad_shuffle_xor(T v, ushort x, MSL_LINE) {
    return msl_pick(v, msl_rt_pos()->tiisg ^ (x & 3), 28, line_);
}
template <class T> MSL_INL T quad_sum(T v, MSL_LINE) {
    T a = v + msl_pick(v, msl_rt_pos()->tiisg ^ 1, 29, line_);
    return a + msl_pick(a, msl_rt_pos()->tiisg ^ 2, 30, line_);
}

} /* namespace metal */
#endif
