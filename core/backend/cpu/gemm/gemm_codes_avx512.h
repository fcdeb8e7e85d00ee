/* gemm_codes_avx512.h - template of the products of quantized weights with AVX-512. Each file that
 * includes it instantiates it for some of the types, so that none takes long to compile.
 *
 * vpdpbusd multiplies unsigned by signed bytes: a weight's code (plus an offset if codes may be
 * negative) by four activations of a row, repeated over the vector. The offset, a power of two, is
 * subtracted from the integer sum: a sum starts at -(sum of q) << shift. A register tile is up to 2
 * panels by up to 4 rows; remainders are instances of the same template. Pure functions; any
 * thread. */
#ifndef INFERD_BACKEND_CPU_GEMM_GEMM_CODES_AVX512_H
#define INFERD_BACKEND_CPU_GEMM_GEMM_CODES_AVX512_H

#include "core/backend/cpu/gemm/gemm_avx512_int.h"

#include <string.h>

enum { CODES_ROWS = 4 }; /* maximum rows of a register tile */

/* Constants of an instance. */
struct codes_shape {
    uint32_t n_rows, n_panels;
    bool halves; /* one scale per 16 columns */
    bool mins;   /* the type has mins, and its codes no offset */
    bool two;    /* two planes of activations */
};

ALWAYS_INLINE __m512i repeat_four(const int8_t *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

/* i[r][p] += products of n_groups groups of four columns; the rows q are read from `column` on. w:
 * panel 0's codes; panel 1's are one tile later. */
ALWAYS_INLINE void add_dots(struct codes_shape c, uint32_t n_groups, const uint8_t *w,
                            const int8_t *const *q, uint64_t column, __m512i (*i)[GEMM_PANELS]) {
    UNROLL
    for (uint32_t g = 0; g < n_groups; g++) {
        __m512i w0 = _mm512_load_si512(w + g * 64), w1 = w0;
        if (c.n_panels == 2) w1 = _mm512_load_si512(w + sizeof(struct gemm_tile) + g * 64);
        UNROLL
        for (uint32_t r = 0; r < c.n_rows; r++) {
            __m512i x = repeat_four(q[r] + column + g * 4);
            i[r][0] = _mm512_dpbusd_epi32(i[r][0], w0, x);
            if (c.n_panels == 2) i[r][1] = _mm512_dpbusd_epi32(i[r][1], w1, x);
        }
    }
}

/* Start values of a block's or half's integer sums: minus n (the sum of the activations) times the
 * offset; with two planes, plus 254 times the first plane's sums. */
ALWAYS_INLINE void first_sums(struct codes_shape c, int32_t n, __m512i code_shift, __m512i *i) {
    __m512i from = _mm512_setzero_si512(), weight = _mm512_set1_epi32(254);
    if (!c.mins) from = _mm512_sub_epi32(from, _mm512_sllv_epi32(_mm512_set1_epi32(n), code_shift));
    if (!c.two) {
        i[0] = i[1] = from;
        return;
    }
    i[0] = _mm512_add_epi32(from, _mm512_mullo_epi32(i[0], weight));
    if (c.n_panels == 2) i[1] = _mm512_add_epi32(from, _mm512_mullo_epi32(i[1], weight));
}

/* Adds block b to acc of one row and panel. i: the sums of the block, or of its second half if the
 * type has halves; first: then the scaled sums of the first half. */
ALWAYS_INLINE __m512 add_block(struct codes_shape c, const struct gemm_tile *t, uint32_t b,
                               const struct gemm_block *x, __m512 first, __m512i i, __m512 acc) {
    if (!c.halves) {
        __m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(i), _mm512_load_ps(t->scale[b]));
        acc = _mm512_fmadd_ps(f, _mm512_set1_ps(x->d), acc);
        if (!c.mins) return acc;
        return _mm512_fmadd_ps(_mm512_load_ps(t->min[b]), _mm512_set1_ps(x->s), acc);
    }
    __m512 f = _mm512_fmadd_ps(_mm512_cvtepi32_ps(i), _mm512_load_ps(t->scale[2 * b + 1]), first);
    acc = _mm512_fmadd_ps(f, _mm512_set1_ps(x->d), acc);
    if (!c.mins) return acc;
    acc = _mm512_fmadd_ps(_mm512_load_ps(t->min[2 * b]), _mm512_set1_ps(x->s0), acc);
    return _mm512_fmadd_ps(_mm512_load_ps(t->min[2 * b + 1]), _mm512_set1_ps(x->s1), acc);
}

/* Multiplies rows row .. row + n_rows - 1 of the job. */
ALWAYS_INLINE void multiply_tile(const struct gemm_job *j, uint32_t row, struct codes_shape c,
                                 __m512i code_shift) {
    const struct gemm_tile *t = j->tile;
    const struct gemm_block *blocks = j->x.blocks + row * j->x.blocks_stride;
    const uint64_t blocks_stride = j->x.blocks_stride;
    const intptr_t low =
        c.two ? (intptr_t)j->x.q[1] - (intptr_t)j->x.q[0] : 0; /* from one plane to the other */
    const int8_t *q[CODES_ROWS];
    const uint32_t n_halves = c.halves ? 2 : 1, n_groups = 8 / n_halves;
    float *out = j->acc + (uint64_t)row * GEMM_PANELS * GEMM_OUTS;
    __m512 acc[CODES_ROWS][GEMM_PANELS], first[CODES_ROWS][GEMM_PANELS];
    __m512i i[CODES_ROWS][GEMM_PANELS];
    UNROLL
    for (uint32_t r = 0; r < c.n_rows; r++)
        q[r] = j->x.q[0] + (row + r) * j->x.q_stride;
    gemm_avx512_load_acc(c.n_rows, c.n_panels, j->first, out, acc);
    for (uint32_t b = 0; b < j->n_cols / GEMM_BLOCK; b++, blocks++) {
        UNROLL
        for (uint32_t r = 0; r < c.n_rows; r++)
            HIDE(q[r]); /* otherwise each group gets its own pointer */
        UNROLL
        for (uint32_t h = 0; h < n_halves; h++) {
            const uint8_t *w = t->q[b * 8 + h * 4][0];
            uint64_t column = b * GEMM_BLOCK + h * 16;
            if (c.two) {
                UNROLL
                for (uint32_t r = 0; r < c.n_rows; r++)
                    i[r][0] = i[r][1] = _mm512_setzero_si512();
                add_dots(c, n_groups, w, q, column, i);
                HIDE(w); /* otherwise the tile's vectors are spilled */
            }
            UNROLL
            for (uint32_t r = 0; r < c.n_rows; r++) {
                const struct gemm_block *x = blocks + r * blocks_stride;
                first_sums(c, !c.halves ? x->n : h ? x->n1 : x->n0, code_shift, i[r]);
            }
            add_dots(c, n_groups, w, q, column + low, i);
            if (!c.halves || h) continue;
            UNROLL
            for (uint32_t r = 0; r < c.n_rows; r++) {
                first[r][0] =
                    _mm512_mul_ps(_mm512_cvtepi32_ps(i[r][0]), _mm512_load_ps(t[0].scale[2 * b]));
                if (c.n_panels == 2)
                    first[r][1] = _mm512_mul_ps(_mm512_cvtepi32_ps(i[r][1]),
                                                _mm512_load_ps(t[1].scale[2 * b]));
            }
        }
        UNROLL
        for (uint32_t r = 0; r < c.n_rows; r++) {
            const struct gemm_block *x = blocks + r * blocks_stride;
            acc[r][0] = add_block(c, t, b, x, first[r][0], i[r][0], acc[r][0]);
            if (c.n_panels == 2)
                acc[r][1] = add_block(c, t + 1, b, x, first[r][1], i[r][1], acc[r][1]);
        }
    }
    gemm_avx512_store_acc(c.n_rows, c.n_panels, acc, out);
}

ALWAYS_INLINE void multiply_codes(const struct gemm_job *j, struct codes_shape c, int shift) {
    const __m512i code_shift = _mm512_set1_epi32(shift);
    for (uint32_t row = 0; row < j->n_rows; row += c.n_rows) {
        switch (c.n_rows = gemm_avx512_next_rows(j->n_rows - row, CODES_ROWS)) {
        case 1:
            c.n_rows = 1;
            multiply_tile(j, row, c, code_shift);
            break;
        case 2:
            c.n_rows = 2;
            multiply_tile(j, row, c, code_shift);
            break;
        case 3:
            c.n_rows = 3;
            multiply_tile(j, row, c, code_shift);
            break;
        default:
            c.n_rows = CODES_ROWS;
            multiply_tile(j, row, c, code_shift);
            break;
        }
    }
}

/* Defines gemm_avx512_NAME: [n_panels - 1][n_planes - 1]. */
#define GEMM_CODES(name, halves, mins)                                                             \
    static void name##_11(const struct gemm_job *j, int shift) {                                   \
        multiply_codes(j, (struct codes_shape){0, 1, halves, mins, false}, shift);                 \
    }                                                                                              \
    static void name##_12(const struct gemm_job *j, int shift) {                                   \
        multiply_codes(j, (struct codes_shape){0, 1, halves, mins, true}, shift);                  \
    }                                                                                              \
    static void name##_21(const struct gemm_job *j, int shift) {                                   \
        multiply_codes(j, (struct codes_shape){0, 2, halves, mins, false}, shift);                 \
    }                                                                                              \
    static void name##_22(const struct gemm_job *j, int shift) {                                   \
        multiply_codes(j, (struct codes_shape){0, 2, halves, mins, true}, shift);                  \
    }                                                                                              \
    const gemm_avx512_codes_fn gemm_avx512_##name[2][2] = {{name##_11, name##_12},                 \
                                                           {name##_21, name##_22}};

#endif
