/* gemm_avx512_int.h - what gemm_avx512.c and unpack_avx512.c share; include only from *_avx512.c.
 */
#ifndef INFERD_CPU_GEMM_AVX512_INT_H
#define INFERD_CPU_GEMM_AVX512_INT_H

#include "core/backend/cpu/gemm.h"

#include <immintrin.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* The compiler forgets what it knows of this variable. */
#define HIDE(v) __asm__("" : "+r"(v))

void gemm_avx512_unpack(int type, const uint8_t *src, uint32_t n_cols, struct gemm_tile *tile);

#endif
