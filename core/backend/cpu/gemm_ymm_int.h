/* gemm_ymm_int.h - the product of quantized weights in 256-bit vectors: one text for AVX2
 * (vpmaddubsw) and AVX-VNNI (vpdpbusd). Include only from gemm_avx2.c and gemm_avxvnni.c, which
 * are built with different flags.
 *
 * A tile holds codes u = w + 2^shift, all of them unsigned (shift 0: u = w): the integer sum of a
 * block is sum(u * q) - 2^shift * sum(q). A register tile is 1 to TILE_ROWS rows by the 16 outputs
 * of one panel, two vectors of 8; each vector lane meets the four columns of a group at once. */
#ifndef INFERD_CPU_GEMM_YMM_INT_H
#define INFERD_CPU_GEMM_YMM_INT_H

#include "core/backend/cpu/avx2_int.h"
#include "core/backend/cpu/gemm.h"

#include <string.h>

/* unpack_avx2.c, gemm_avx2.c: what both instruction sets share. */
void gemm_ymm_unpack(int type, const uint8_t *src, uint32_t n_cols, struct gemm_tile *tile);
void gemm_ymm_quantize(const float *x, uint32_t n, int8_t *const q[2], struct gemm_block *blocks);
void gemm_ymm_multiply_float(const struct gemm_job *j);

/* Registers: two sums a row, two vectors of weights, one of activations (AVX2: and a product). */
#if defined(__AVXVNNI__)
enum { TILE_ROWS = 6 };
#else
enum { TILE_ROWS = 4 };
#endif
enum { BLOCK_GROUPS = GEMM_BLOCK / 4, HALF_GROUPS = BLOCK_GROUPS / 2 };

/* Of a type: unpack adds 2^shift to its codes, multiply takes it off the sums. */
ALWAYS_INLINE uint32_t gemm_ymm_shift(int type) {
    switch (type) {
    case QTYPE_Q8_0:
    case QTYPE_IQ4_NL:
    case QTYPE_IQ4_XS:
        return 7;
    case QTYPE_Q6_K:
        return 5;
    case QTYPE_Q5_0:
    case QTYPE_MXFP4: /* levels of -12 to 12: codes of 4 to 28 */
        return 4;
    case QTYPE_Q4_0:
        return 3;
    case QTYPE_Q3_K:
        return 2;
    default:
        return 0;
    }
}

/* How a product is done; constants wherever it is used. */
struct shape {
    uint32_t n_rows;
    bool halves, mins;
    bool planes; /* two */
    bool wide;   /* AVX2: 16-bit activations times 16-bit weights */
    /* AVX2: groups whose products are added up in int16. A lane gets two products of a group, each
     * at most (largest code) * 127, and 254 * code * span must stay below 32768:
     *   codes to 15: 8 groups, 30480     codes to 31: 4 groups, 31496
     *   codes to 63: 2 groups, 32004     codes to 7 (a half has only 4 groups): 7112 */
    uint32_t span;
};

/* Rows of a register tile; pointers stand at its first row. */
struct ymm_rows {
    const int8_t *q[2];
    const struct gemm_block *blocks;
    const int16_t *wide; /* (n_rows, GEMM_BLOCKS, 2, 16): see widen */
    uint64_t q_stride, blocks_stride;
    float *acc;
};

ALWAYS_INLINE __m256i load_256(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

ALWAYS_INLINE __m256i broadcast_32(const void *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

/* v, computed here and now: compilers would rather take the products of all groups first and add
 * them up as a tree, with more of them than there are registers. */
ALWAYS_INLINE __m256i now(__m256i v) {
    __asm__("" : "+x"(v));
    return v;
}

/* sum[2 * row + half of the panel] += u * q over n_groups groups from w and q on. */
ALWAYS_INLINE void dot_groups(struct shape s, const uint8_t *w, const int8_t *q, uint64_t stride,
                              uint32_t n_groups, __m256i *sum) {
#if defined(__AVXVNNI__)
    UNROLL
    for (uint32_t g = 0; g < n_groups; g++) {
        __m256i w0 = load_256(w + 64 * g), w1 = load_256(w + 64 * g + 32);
        UNROLL
        for (uint32_t r = 0; r < s.n_rows; r++) {
            __m256i x = broadcast_32(q + r * stride + 4 * g);
            sum[2 * r] = _mm256_dpbusd_avx_epi32(sum[2 * r], w0, x);
            sum[2 * r + 1] = _mm256_dpbusd_avx_epi32(sum[2 * r + 1], w1, x);
        }
    }
#else
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL
    for (uint32_t from = 0; from < n_groups; from += s.span) {
        __m256i part[2 * TILE_ROWS];
        UNROLL
        for (uint32_t g = from; g < from + s.span; g++) {
            __m256i w0 = load_256(w + 64 * g), w1 = load_256(w + 64 * g + 32);
            UNROLL
            for (uint32_t r = 0; r < s.n_rows; r++) {
                __m256i x = broadcast_32(q + r * stride + 4 * g);
                __m256i p0 = _mm256_maddubs_epi16(w0, x), p1 = _mm256_maddubs_epi16(w1, x);
                part[2 * r] = g == from ? p0 : now(_mm256_add_epi16(part[2 * r], p0));
                part[2 * r + 1] = g == from ? p1 : now(_mm256_add_epi16(part[2 * r + 1], p1));
            }
        }
        UNROLL
        for (uint32_t i = 0; i < 2 * s.n_rows; i++)
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(part[i], ones));
    }
#endif
}

#if !defined(__AVXVNNI__)
/* Activations q of one row as int16, for each block its 16 even columns, then its 16 odd ones. */
ALWAYS_INLINE void widen(const int8_t *hi, const int8_t *lo, uint32_t n_blocks, int16_t *wide) {
    const __m256i base = _mm256_set1_epi16(254);
    for (uint32_t b = 0; b < n_blocks; b++) {
        __m256i h = load_256(hi + GEMM_BLOCK * b);
        __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(h, 8), 8), odd = _mm256_srai_epi16(h, 8);
        if (lo) {
            __m256i l = load_256(lo + GEMM_BLOCK * b);
            even = _mm256_add_epi16(_mm256_mullo_epi16(even, base),
                                    _mm256_srai_epi16(_mm256_slli_epi16(l, 8), 8));
            odd = _mm256_add_epi16(_mm256_mullo_epi16(odd, base), _mm256_srai_epi16(l, 8));
        }
        _mm256_storeu_si256((__m256i *)(wide + GEMM_BLOCK * b), even);
        _mm256_storeu_si256((__m256i *)(wide + GEMM_BLOCK * b + 16), odd);
    }
}

/* As dot_groups with 16-bit factors: a byte vector falls apart into its even and odd columns. */
ALWAYS_INLINE void dot_groups_wide(struct shape s, const uint8_t *w, const int16_t *x,
                                   uint32_t n_groups, __m256i *sum) {
    const __m256i low = _mm256_set1_epi16(0xff);
    UNROLL
    for (uint32_t g = 0; g < n_groups; g++) {
        __m256i w0 = load_256(w + 64 * g), w1 = load_256(w + 64 * g + 32);
        __m256i even0 = _mm256_and_si256(w0, low), even1 = _mm256_and_si256(w1, low);
        __m256i odd0 = _mm256_srli_epi16(w0, 8), odd1 = _mm256_srli_epi16(w1, 8);
        UNROLL
        for (uint32_t r = 0; r < s.n_rows; r++) {
            __m256i even = broadcast_32(x + r * GEMM_COLS + 2 * g);
            __m256i odd = broadcast_32(x + r * GEMM_COLS + 2 * g + 16);
            sum[2 * r] = now(_mm256_add_epi32(sum[2 * r], _mm256_madd_epi16(even0, even)));
            sum[2 * r + 1] = now(_mm256_add_epi32(sum[2 * r + 1], _mm256_madd_epi16(even1, even)));
            sum[2 * r] = now(_mm256_add_epi32(sum[2 * r], _mm256_madd_epi16(odd0, odd)));
            sum[2 * r + 1] = now(_mm256_add_epi32(sum[2 * r + 1], _mm256_madd_epi16(odd1, odd)));
        }
    }
}
#endif

/* Integer sums of n_groups groups from group g of block b on, the shift taken off. n is the offset
 * of the right sum in struct gemm_block. */
ALWAYS_INLINE void sums(struct shape s, const struct ymm_rows *x, const uint8_t *w, uint32_t b,
                        uint32_t g, uint32_t n_groups, uint32_t shift, __m256i *sum) {
    uint64_t col = (uint64_t)b * GEMM_BLOCK + 4 * g;
    __m256i off[TILE_ROWS];
    w += (b * BLOCK_GROUPS + g) * 64;
    UNROLL
    for (uint32_t r = 0; r < s.n_rows; r++) {
        const struct gemm_block *block = x->blocks + r * x->blocks_stride + b;
        off[r] = _mm256_setzero_si256();
        if (!s.mins) {
            const int32_t *n = !s.halves ? &block->n : g ? &block->n1 : &block->n0;
            off[r] = _mm256_sub_epi32(
                off[r], _mm256_sll_epi32(_mm256_set1_epi32(*n), _mm_cvtsi32_si128((int)shift)));
        }
        sum[2 * r] = sum[2 * r + 1] = off[r];
    }
#if defined(__AVXVNNI__)
    if (s.planes) {
        UNROLL
        for (uint32_t i = 0; i < 2 * s.n_rows; i++)
            sum[i] = _mm256_setzero_si256();
    }
    dot_groups(s, w, x->q[0] + col, x->q_stride, n_groups, sum);
    if (s.planes) {
        UNROLL
        for (uint32_t i = 0; i < 2 * s.n_rows; i++) /* 254 = 256 - 2 */
            sum[i] = _mm256_add_epi32(
                _mm256_sub_epi32(_mm256_slli_epi32(sum[i], 8), _mm256_slli_epi32(sum[i], 1)),
                off[i / 2]);
        dot_groups(s, w, x->q[1] + col, x->q_stride, n_groups, sum);
    }
#else
    if (s.wide)
        dot_groups_wide(s, w, x->wide + b * GEMM_BLOCK + 2 * g, n_groups, sum);
    else
        dot_groups(s, w, x->q[0] + col, x->q_stride, n_groups, sum);
#endif
}

/* Few rows leave registers for their f32 sums; those of many stay in the cache. */
ALWAYS_INLINE bool sums_in_registers(struct shape s) {
    return s.n_rows <= 2;
}

/* Vector i of a register tile's f32 sums. */
ALWAYS_INLINE float *acc_at(float *mem, uint32_t i) {
    return mem + i / 2 * GEMM_PANELS * GEMM_OUTS + i % 2 * 8;
}

/* One block of 32 columns of one panel. */
ALWAYS_INLINE void block(struct shape s, const struct ymm_rows *x, const struct gemm_tile *tile,
                         uint32_t b, uint32_t shift, __m256 *acc) {
    __m256 t[2 * TILE_ROWS];
    __m256i sum[2 * TILE_ROWS];
    const uint8_t *w = &tile->q[0][0][0];
    uint32_t at = s.halves ? 2 * b : b;
    sums(s, x, w, b, 0, s.halves ? HALF_GROUPS : BLOCK_GROUPS, shift, sum);
    UNROLL
    for (uint32_t i = 0; i < 2 * s.n_rows; i++)
        t[i] =
            _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i]), _mm256_load_ps(tile->scale[at] + i % 2 * 8));
    if (s.halves) {
        sums(s, x, w, b, HALF_GROUPS, HALF_GROUPS, shift, sum);
        UNROLL
        for (uint32_t i = 0; i < 2 * s.n_rows; i++)
            t[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[i]),
                                   _mm256_load_ps(tile->scale[at + 1] + i % 2 * 8), t[i]);
    }
    UNROLL
    for (uint32_t i = 0; i < 2 * s.n_rows; i++) {
        const struct gemm_block *q = x->blocks + i / 2 * x->blocks_stride + b;
        const float *min = tile->min[at] + i % 2 * 8;
        __m256 a = sums_in_registers(s) ? acc[i] : _mm256_load_ps(acc_at(x->acc, i));
        a = _mm256_fmadd_ps(t[i], _mm256_broadcast_ss(&q->d), a);
        if (s.mins)
            a = _mm256_fmadd_ps(_mm256_load_ps(min), _mm256_broadcast_ss(s.halves ? &q->s0 : &q->s),
                                a);
        if (s.mins && s.halves)
            a = _mm256_fmadd_ps(_mm256_load_ps(min + GEMM_OUTS), _mm256_broadcast_ss(&q->s1), a);
        if (sums_in_registers(s))
            acc[i] = a;
        else
            _mm256_store_ps(acc_at(x->acc, i), a);
    }
}

/* All blocks of the stretch and all panels for s.n_rows rows from row on. */
ALWAYS_INLINE void tile_rows(const struct gemm_job *j, struct shape s, uint32_t row,
                             uint32_t shift) {
    uint32_t n_blocks = j->n_cols / GEMM_BLOCK;
    struct ymm_rows x = {
        .q = {j->x.q[0] + row * j->x.q_stride, j->x.q[1] ? j->x.q[1] + row * j->x.q_stride : NULL},
        .blocks = j->x.blocks + row * j->x.blocks_stride,
        .q_stride = j->x.q_stride,
        .blocks_stride = j->x.blocks_stride,
    };
#if !defined(__AVXVNNI__)
    _Alignas(32) int16_t wide[TILE_ROWS * GEMM_COLS];
    if (s.wide) {
        x.wide = wide;
        for (uint32_t r = 0; r < s.n_rows; r++)
            widen(x.q[0] + r * x.q_stride, x.q[1] ? x.q[1] + r * x.q_stride : NULL, n_blocks,
                  wide + r * GEMM_COLS);
    }
#endif
    for (uint32_t p = 0; p < j->n_panels; p++) {
        __m256 acc[2 * TILE_ROWS];
        x.acc = j->acc + (uint64_t)row * GEMM_PANELS * GEMM_OUTS + p * GEMM_OUTS;
        if (sums_in_registers(s)) {
            UNROLL
            for (uint32_t i = 0; i < 2 * s.n_rows; i++)
                acc[i] = _mm256_load_ps(acc_at(x.acc, i));
        }
        for (uint32_t b = 0; b < n_blocks; b++)
            block(s, &x, &j->tile[p], b, shift, acc);
        if (sums_in_registers(s)) {
            UNROLL
            for (uint32_t i = 0; i < 2 * s.n_rows; i++)
                _mm256_store_ps(acc_at(x.acc, i), acc[i]);
        }
    }
}

/* Sums of the job's rows and panels start at zero. */
ALWAYS_INLINE void clear_acc(const struct gemm_job *j) {
    for (uint32_t r = 0; j->first && r < j->n_rows; r++)
        memset(j->acc + r * GEMM_PANELS * GEMM_OUTS, 0, j->n_panels * GEMM_OUTS * sizeof *j->acc);
}

/* Rows go in register tiles of nearly the same height: 8 rows are 4 + 4, not 6 + 2. */
ALWAYS_INLINE void all_rows(const struct gemm_job *j, struct shape s, uint32_t shift) {
    uint32_t row = 0, n_tiles = (j->n_rows + TILE_ROWS - 1) / TILE_ROWS;
    for (; n_tiles; n_tiles--, row += s.n_rows) {
        s.n_rows = (j->n_rows - row + n_tiles - 1) / n_tiles;
        struct shape t = s;
        switch (s.n_rows) {
#define ROWS(n)                                                                                    \
    case n:                                                                                        \
        t.n_rows = n;                                                                              \
        tile_rows(j, t, row, shift);                                                               \
        break;
#if defined(__AVXVNNI__)
            ROWS(6)
            ROWS(5)
#endif
            ROWS(4)
            ROWS(3)
            ROWS(2)
            ROWS(1)
#undef ROWS
        }
    }
}

#endif
