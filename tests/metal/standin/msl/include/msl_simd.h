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

/* ---- simdgroup functions: each is an msl_rt_simd with its own number ---- */
template <class T> MSL_INL const T &msl_slot(const void *s, uint lane) {
    return *(const T *)((const char *)s + lane * 64);
}
template <class T, class O> void msl_reduce(const void *s, uint32_t mask, void *r) {
    T a[32];
    uint n = 0;
    for (uint i = 0; i < 32; i++)
        if (mask >> i & 1) a[n++] = msl_slot<T>(s, i);
    /* The device chooses the order of a sum: a chain, or pairs and pairs of pairs. */
    if (msl_rt_sum_tree() == 1)
        for (uint step = 1; step < n; step *= 2)
            for (uint i = 0; i + step < n; i += 2 * step)
                a[i] = O::f(a[i], a[i + step]);
    else
        for (uint i = 1; i < n; i++)
            a[0] = O::f(a[0], a[i]);
    *(T *)r = a[0];
}
#define MSL_REDUCTION(n, id, e)                                                                    \
    struct msl_op_##n {                                                                            \
        template <class T> static MSL_INL T f(T a, T b) {                                          \
            return e;                                                                              \
        }                                                                                          \
    };                                                                                             \
    template <class T> MSL_INL T simd_##n(T v, MSL_LINE) {                                         \
        return *(const T *)msl_rt_simd(&v, sizeof v, msl_reduce<T, msl_op_##n>, id, line_,         \
                                       nullptr);                                                   \
    }                                                                                              \
    template <class T> MSL_INL T quad_##n(T v, MSL_LINE) {                                         \
        uint m, first = msl_rt_pos()->tiisg & ~3u;                                                 \
        const void *s = msl_rt_simd(&v, sizeof v, nullptr, 64 + id, line_, &m);                    \
        T a = msl_slot<T>(s, first);                                                               \
        for (uint i = first + 1; i < first + 4; i++)                                               \
            if (m >> i & 1) a = msl_op_##n::f(a, msl_slot<T>(s, i));                               \
        return a;                                                                                  \
    }
MSL_REDUCTION(sum, 1, a + b)
MSL_REDUCTION(product, 2, a *b)
MSL_REDUCTION(max, 3, max(a, b))
MSL_REDUCTION(min, 4, min(a, b))
MSL_REDUCTION(and, 5, a &b)
MSL_REDUCTION(or, 6, a | b)
MSL_REDUCTION(xor, 7, a ^ b)
#undef MSL_REDUCTION

/* A scan over the lanes before this one, exclusive or inclusive; identity if there is none. */
template <class T, class O>
MSL_INL T msl_prefix(T v, T identity, uint first, uint end, uint id, uint line_) {
    uint m;
    const void *s = msl_rt_simd(&v, sizeof v, nullptr, id, line_, &m);
    T a = identity;
    for (uint i = first; i < end; i++)
        if (m >> i & 1) a = O::f(a, msl_slot<T>(s, i));
    return a;
}
#define MSL_PREFIX(n, op, identity, id)                                                            \
    template <class T> MSL_INL T simd_prefix_inclusive_##n(T v, MSL_LINE) {                        \
        return msl_prefix<T, op>(v, T(identity), 0, msl_rt_pos()->tiisg + 1, id, line_);           \
    }                                                                                              \
    template <class T> MSL_INL T simd_prefix_exclusive_##n(T v, MSL_LINE) {                        \
        return msl_prefix<T, op>(v, T(identity), 0, msl_rt_pos()->tiisg, id + 1, line_);           \
    }                                                                                              \
    template <class T> MSL_INL T quad_prefix_inclusive_##n(T v, MSL_LINE) {                        \
        uint l = msl_rt_pos()->tiisg;                                                              \
        return msl_prefix<T, op>(v, T(identity), l & ~3u, l + 1, id + 64, line_);                  \
    }                                                                                              \
    template <class T> MSL_INL T quad_prefix_exclusive_##n(T v, MSL_LINE) {                        \
        uint l = msl_rt_pos()->tiisg;                                                              \
        return msl_prefix<T, op>(v, T(identity), l & ~3u, l, id + 65, line_);                      \
    }
MSL_PREFIX(sum, msl_op_sum, 0, 10)
MSL_PREFIX(product, msl_op_product, 1, 12)
#undef MSL_PREFIX

/* The value of lane `from`; if that lane does not take part it is undefined: all bits set. */
template <class T> MSL_INL T msl_pick(T v, uint from, uint id, uint line_) {
    uint m;
    const void *s = msl_rt_simd(&v, sizeof v, nullptr, id, line_, &m);
    if (from < 32 && (m >> from & 1)) return msl_slot<T>(s, from);
    __builtin_memset((void *)&v, 0xFF, sizeof v);
    return v;
}
/* The value of lane `from`, or `otherwise` if `from` is outside [first, end). */
template <class T>
MSL_INL T msl_pick_or(T v, uint from, uint first, uint end, T otherwise, uint id, uint line_) {
    uint m;
    const void *s = msl_rt_simd(&v, sizeof v, nullptr, id, line_, &m);
    return from >= first && from < end && (m >> from & 1) ? msl_slot<T>(s, from) : otherwise;
}
/* simd_ and quad_ forms over groups of n lanes; id is the number of the operation in divergence
 * reports. In a shuffle up or down, a lane beyond the end keeps its value or gets the fill
 * value. */
#define MSL_SHUFFLES(group, n, id)                                                                 \
    template <class T> MSL_INL T group##_shuffle(T v, ushort l, MSL_LINE) {                        \
        uint first = msl_rt_pos()->tiisg & ~(n - 1u);                                              \
        return msl_pick(v, l < n ? first + l : 32u, id, line_);                                    \
    }                                                                                              \
    template <class T> MSL_INL T group##_broadcast(T v, ushort l, MSL_LINE) {                      \
        uint first = msl_rt_pos()->tiisg & ~(n - 1u);                                              \
        return msl_pick(v, l < n ? first + l : 32u, id + 1, line_);                                \
    }                                                                                              \
    template <class T> MSL_INL T group##_shuffle_xor(T v, ushort x, MSL_LINE) {                    \
        return msl_pick(v, x < n ? msl_rt_pos()->tiisg ^ x : 32u, id + 2, line_);                  \
    }                                                                                              \
    template <class T> MSL_INL T group##_shuffle_down(T v, ushort d, MSL_LINE) {                   \
        uint l = msl_rt_pos()->tiisg, first = l & ~(n - 1u);                                       \
        return msl_pick_or(v, l + d, first, first + n, v, id + 3, line_);                          \
    }                                                                                              \
    template <class T> MSL_INL T group##_shuffle_up(T v, ushort d, MSL_LINE) {                     \
        uint l = msl_rt_pos()->tiisg, first = l & ~(n - 1u);                                       \
        return msl_pick_or(v, l - d, first, first + n, v, id + 4, line_);                          \
    }                                                                                              \
    template <class T> MSL_INL T group##_shuffle_and_fill_down(T v, T fill, ushort d, MSL_LINE) {  \
        uint l = msl_rt_pos()->tiisg, first = l & ~(n - 1u);                                       \
        T filling = msl_pick(fill, first + (l + d) % n, id + 5, line_);                            \
        return msl_pick_or(v, l + d, first, first + n, filling, id + 6, line_);                    \
    }                                                                                              \
    template <class T> MSL_INL T group##_shuffle_and_fill_up(T v, T fill, ushort d, MSL_LINE) {    \
        uint l = msl_rt_pos()->tiisg, first = l & ~(n - 1u);                                       \
        T filling = msl_pick(fill, first + (l - d) % n, id + 7, line_);                            \
        return msl_pick_or(v, l - d, first, first + n, filling, id + 8, line_);                    \
    }                                                                                              \
    template <class T> MSL_INL T group##_shuffle_rotate_down(T v, ushort d, MSL_LINE) {            \
        uint l = msl_rt_pos()->tiisg;                                                              \
        return msl_pick(v, (l & ~(n - 1u)) + (l + d) % n, id + 9, line_);                          \
    }                                                                                              \
    template <class T> MSL_INL T group##_shuffle_rotate_up(T v, ushort d, MSL_LINE) {              \
        uint l = msl_rt_pos()->tiisg;                                                              \
        return msl_pick(v, (l & ~(n - 1u)) + (l - d) % n, id + 10, line_);                         \
    }
MSL_SHUFFLES(simd, 32u, 16)
MSL_SHUFFLES(quad, 4u, 80)
#undef MSL_SHUFFLES
template <class T> MSL_INL T simd_broadcast_first(T v, MSL_LINE) {
    uint m;
    const void *s = msl_rt_simd(&v, sizeof v, nullptr, 30, line_, &m);
    return msl_slot<T>(s, (uint)__builtin_ctz(m));
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
    r.v = msl_ballot(p, 31, line_, &r.m);
    return r;
}
MSL_INL bool simd_all(bool p, MSL_LINE) {
    uint m;
    ulong v = msl_ballot(p, 32, line_, &m);
    return (uint)v == m;
}
MSL_INL bool simd_any(bool p, MSL_LINE) {
    uint m;
    return msl_ballot(p, 33, line_, &m) != 0;
}
MSL_INL bool simd_is_first(MSL_LINE) {
    uint m;
    char z = 0;
    msl_rt_simd(&z, 1, nullptr, 34, line_, &m);
    return msl_rt_pos()->tiisg == (uint)__builtin_ctz(m);
}
MSL_INL simd_vote simd_active_threads_mask(MSL_LINE) {
    simd_vote r;
    r.v = msl_ballot(true, 35, line_, &r.m);
    return r;
}
} /* namespace metal */
#endif
