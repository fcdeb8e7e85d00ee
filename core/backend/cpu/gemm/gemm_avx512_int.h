/* gemm_avx512_int.h - what gemm_avx512.c and unpack_avx512.c share; include only from *_avx512.c.
 */
#ifndef INFERD_BACKEND_CPU_GEMM_GEMM_AVX512_INT_H
#define INFERD_BACKEND_CPU_GEMM_GEMM_AVX512_INT_H

#include "core/backend/cpu/gemm/gemm.h"
#include "core/backend/cpu/template.h"

#include <immintrin.h>

/* The compiler forgets what it knows of this variable. */
#define HIDE(v) __asm__("" : "+r"(v))

/* Bytes from the reader of a panel to what it asks for. */
enum { GEMM_AVX512_AHEAD = 8192 };

ALWAYS_INLINE void gemm_avx512_ask(const uint8_t *at) {
    _mm_prefetch((const char *)at + GEMM_AVX512_AHEAD, _MM_HINT_T0);
}

/* Of floats the tile only says where they stand. */
void gemm_avx512_unpack(int type, const uint8_t *src, uint32_t n_cols, struct gemm_tile *tile);
const uint8_t *gemm_avx512_floats(const struct gemm_tile *tile);

/* Floats of a type to f32: dst (n_cols rounded up to even, 16), 64-byte aligned. */
void gemm_avx512_widen(int type, const uint8_t *src, uint32_t n_cols, uint8_t *dst);

#endif
