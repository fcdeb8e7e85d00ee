/* neon_int.h - what the NEON kernels share. Included only by files built for an instruction set of
 * 64-bit ARM. */
#ifndef INFERD_NEON_INT_H
#define INFERD_NEON_INT_H

#include <arm_neon.h>
#include <stdint.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* for i < n <= most, unrolled, where n becomes a constant only by inlining: clang would leave a
 * loop to n as it is in a function that is inlined twice. */
#define EACH(i, n, most)                                                                           \
    UNROLL                                                                                         \
    for (int i = 0; i < (most); i++)                                                               \
        if (i < (n))

/* p, of which the compiler no longer knows what was loaded from it: loading again costs less than
 * keeping on the stack what does not fit the registers. */
ALWAYS_INLINE const int8_t *reload(const int8_t *p) {
    __asm__("" : "+r"(p));
    return p;
}

#endif
