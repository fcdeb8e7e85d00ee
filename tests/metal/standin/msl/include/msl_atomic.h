/* msl_atomic.h - atomics of device and threadgroup memory; relaxed only, as in MSL before 3.2. */
#ifndef MSL_ATOMIC_H
#define MSL_ATOMIC_H
#include "msl_types.h"

namespace metal {
enum memory_order { memory_order_relaxed = 0 };
template <class T> struct atomic { T v; };
#define MSL_AT(n, b)                                                                               \
    template <class T>                                                                             \
    MSL_INL T atomic_fetch_##n##_explicit(volatile atomic<T> *p, T v, memory_order) {              \
        return __atomic_fetch_##b(&p->v, v, __ATOMIC_RELAXED);                                     \
    }
MSL_AT(add, add)
MSL_AT(sub, sub) MSL_AT(and, and) MSL_AT(or, or) MSL_AT(xor, xor) MSL_AT(min, min) MSL_AT(max, max)
#undef MSL_AT
    MSL_INL float atomic_fetch_add_explicit(volatile atomic<float> *p, float v, memory_order) {
    float o = __builtin_bit_cast(float, __atomic_load_n((volatile uint *)&p->v, __ATOMIC_RELAXED));
    for (;;) {
        uint e = __builtin_bit_cast(uint, o), n = __builtin_bit_cast(uint, o + v);
        if (__atomic_compare_exchange_n((volatile uint *)&p->v, &e, n, 1, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            return o;
        o = __builtin_bit_cast(float, e);
    }
}
template <class T> MSL_INL T atomic_load_explicit(const volatile atomic<T> *p, memory_order) {
    T r;
    __atomic_load(&p->v, &r, __ATOMIC_RELAXED);
    return r;
}
template <class T> MSL_INL void atomic_store_explicit(volatile atomic<T> *p, T v, memory_order) {
    __atomic_store(&p->v, &v, __ATOMIC_RELAXED);
}
template <class T> MSL_INL T atomic_exchange_explicit(volatile atomic<T> *p, T v, memory_order) {
    T r;
    __atomic_exchange(&p->v, &v, &r, __ATOMIC_RELAXED);
    return r;
}
template <class T>
MSL_INL bool atomic_compare_exchange_weak_explicit(volatile atomic<T> *p, T *e, T v, memory_order,
                                                   memory_order) {
    return __atomic_compare_exchange(&p->v, e, &v, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
} /* namespace metal */
typedef metal::atomic<int> atomic_int;
typedef metal::atomic<uint> atomic_uint;
typedef metal::atomic<float> atomic_float;
namespace metal {
using ::atomic_float;
using ::atomic_int;
using ::atomic_uint;
} // namespace metal
#endif
