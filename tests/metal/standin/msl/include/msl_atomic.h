/* msl_atomic.h - atomics in device and threadgroup memory; relaxed only, as in MSL before 3.2.
 *
 * atomic_int and atomic_uint have all operations; atomic_float has exchange, add and sub;
 * atomic_ulong has only min and max without a result, in device memory (specification 6.15). In a
 * check build each operation first calls the executor, which tests bounds and alignment. */
#ifndef MSL_ATOMIC_H
#define MSL_ATOMIC_H
#include "msl_types.h"

#ifdef MSL_CHECK
#define MSL_AT_CHECK(p, kind) msl_rt_atomic(p, sizeof *(p), kind, line_)
#else
#define MSL_AT_CHECK(p, kind) (void)line_
#endif

namespace metal {
enum memory_order { memory_order_relaxed = 0 };
template <class T> struct atomic { T v; };
template <class T>
using msl_if_int32 = enable_if_t<is_same<T, int>::value || is_same<T, uint>::value, T>;
template <class T>
using msl_if_32 = enable_if_t<is_same<T, int>::value || is_same<T, uint>::value ||
                                  is_same<T, float>::value || is_same<T, bool>::value,
                              T>;
/* The pointer determines the type of the value: a plain 1 may be passed for a uint. */
template <class T> struct msl_same { typedef T type; };
template <class T> using msl_value = typename msl_same<T>::type;

#define MSL_FETCH(n, b)                                                                            \
    template <class T>                                                                             \
    MSL_INL msl_if_int32<T> atomic_fetch_##n##_explicit(volatile atomic<T> *p, msl_value<T> v,     \
                                                        memory_order, MSL_LINE) {                  \
        MSL_AT_CHECK(p, MSL_AT_UPDATE);                                                            \
        return __atomic_fetch_##b(&p->v, v, __ATOMIC_RELAXED);                                     \
    }
MSL_FETCH(add, add)
MSL_FETCH(sub, sub)
MSL_FETCH(and, and)
MSL_FETCH(or, or)
MSL_FETCH(xor, xor)
MSL_FETCH(min, min)
MSL_FETCH(max, max)
#undef MSL_FETCH
MSL_INL float msl_float_add(volatile atomic<float> *p, float v) {
    volatile uint *u = (volatile uint *)&p->v;
    uint old = __atomic_load_n(u, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(
        u, &old, __builtin_bit_cast(uint, __builtin_bit_cast(float, old) + v), 1, __ATOMIC_RELAXED,
        __ATOMIC_RELAXED)) {
    }
    return __builtin_bit_cast(float, old);
}
MSL_INL float atomic_fetch_add_explicit(volatile atomic<float> *p, float v, memory_order,
                                        MSL_LINE) {
    MSL_AT_CHECK(p, MSL_AT_UPDATE);
    return msl_float_add(p, v);
}
MSL_INL float atomic_fetch_sub_explicit(volatile atomic<float> *p, float v, memory_order,
                                        MSL_LINE) {
    MSL_AT_CHECK(p, MSL_AT_UPDATE);
    return msl_float_add(p, -v);
}
template <class T>
MSL_INL msl_if_32<T> atomic_load_explicit(const volatile atomic<T> *p, memory_order, MSL_LINE) {
    T r;
    MSL_AT_CHECK(p, MSL_AT_LOAD);
    __atomic_load(&p->v, &r, __ATOMIC_RELAXED);
    return r;
}
template <class T, class = msl_if_32<T>>
MSL_INL void atomic_store_explicit(volatile atomic<T> *p, msl_value<T> v, memory_order, MSL_LINE) {
    MSL_AT_CHECK(p, MSL_AT_STORE);
    __atomic_store(&p->v, &v, __ATOMIC_RELAXED);
}
template <class T>
MSL_INL msl_if_32<T> atomic_exchange_explicit(volatile atomic<T> *p, msl_value<T> v, memory_order,
                                              MSL_LINE) {
    T r;
    MSL_AT_CHECK(p, MSL_AT_UPDATE);
    __atomic_exchange(&p->v, &v, &r, __ATOMIC_RELAXED);
    return r;
}
template <class T, class = msl_if_32<T>>
MSL_INL bool atomic_compare_exchange_weak_explicit(volatile atomic<T> *p, T *expected,
                                                   msl_value<T> v, memory_order, memory_order,
                                                   MSL_LINE) {
    MSL_AT_CHECK(p, MSL_AT_UPDATE);
    return __atomic_compare_exchange(&p->v, expected, &v, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
MSL_INL void atomic_min_explicit(volatile atomic<ulong> *p, ulong v, memory_order, MSL_LINE) {
    MSL_AT_CHECK(p, MSL_AT_UPDATE);
    __atomic_fetch_min(&p->v, v, __ATOMIC_RELAXED);
}
MSL_INL void atomic_max_explicit(volatile atomic<ulong> *p, ulong v, memory_order, MSL_LINE) {
    MSL_AT_CHECK(p, MSL_AT_UPDATE);
    __atomic_fetch_max(&p->v, v, __ATOMIC_RELAXED);
}
} /* namespace metal */
typedef metal::atomic<int> atomic_int;
typedef metal::atomic<uint> atomic_uint;
typedef metal::atomic<float> atomic_float;
typedef metal::atomic<bool> atomic_bool;
typedef metal::atomic<ulong> atomic_ulong;
namespace metal {
using ::atomic_bool;
using ::atomic_float;
using ::atomic_int;
using ::atomic_uint;
using ::atomic_ulong;
} /* namespace metal */
#endif
