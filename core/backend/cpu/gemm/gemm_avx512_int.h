/* gemm_avx512_int.h - shared by the AVX-512 files of this folder; include only from *_avx512.c. */
#ifndef INFERD_BACKEND_CPU_GEMM_GEMM_AVX512_INT_H
#define INFERD_BACKEND_CPU_GEMM_GEMM_AVX512_INT_H

#include "core/backend/cpu/gemm/gemm.h"
#include "core/backend/cpu/template.h"

#include <immintrin.h>

/* Discards the compiler's knowledge of this variable's value. */
#define HIDE(v) __asm__("" : "+r"(v))

/* Prefetch distance in a panel, in bytes. */
enum { GEMM_AVX512_AHEAD = 8192 };

ALWAYS_INLINE void gemm_avx512_ask(const uint8_t *at) {
    _mm_prefetch((const char *)at + GEMM_AVX512_AHEAD, _MM_HINT_T0);
}

/* For float weights the tile holds only their address. */
void gemm_avx512_unpack(int type, const uint8_t *src, uint32_t n_cols, struct gemm_tile *tile);
const uint8_t *gemm_avx512_floats(const struct gemm_tile *tile);

/* Converts float weights to f32: dst (n_cols rounded up to even, 16), 64-byte aligned. */
void gemm_avx512_widen(int type, const uint8_t *src, uint32_t n_cols, uint8_t *dst);

/* ---- products of quantized weights: gemm_plain_avx512.c, gemm_halves_avx512.c ---- */

/* shift: log2 of the offset in the codes. */
typedef void (*gemm_avx512_codes_fn)(const struct gemm_job *j, int shift);
/* [n_panels - 1][n_planes - 1] */
extern const gemm_avx512_codes_fn gemm_avx512_plain[2][2], gemm_avx512_plain_mins[2][2],
    gemm_avx512_halves[2][2], gemm_avx512_halves_mins[2][2];

/* ---- register tiles ---- */

/* Loads and stores acc (n_rows, n_panels). */
ALWAYS_INLINE void gemm_avx512_load_acc(uint32_t n_rows, uint32_t n_panels, bool zero,
                                        const float *from, __m512 (*acc)[GEMM_PANELS]) {
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++, from += GEMM_PANELS * GEMM_OUTS) {
        acc[r][0] = zero ? _mm512_setzero_ps() : _mm512_load_ps(from);
        if (n_panels == 2) acc[r][1] = zero ? acc[r][0] : _mm512_load_ps(from + GEMM_OUTS);
    }
}

ALWAYS_INLINE void gemm_avx512_store_acc(uint32_t n_rows, uint32_t n_panels,
                                         __m512 (*acc)[GEMM_PANELS], float *to) {
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++, to += GEMM_PANELS * GEMM_OUTS) {
        _mm512_store_ps(to, acc[r][0]);
        if (n_panels == 2) _mm512_store_ps(to + GEMM_OUTS, acc[r][1]);
    }
}

/* Rows of the next register tile: the last two tiles get even shares. */
ALWAYS_INLINE uint32_t gemm_avx512_next_rows(uint32_t left, uint32_t most) {
    return left <= most ? left : left < 2 * most ? (left + 1) / 2 : most;
}

#endif
