/* gemm_ymm_int.h - products of quantized weights in 256-bit vectors: one template for AVX2
 * (vpmaddubsw) and AVX-VNNI (vpdpbusd). Include only from gemm_avx2.c and gemm_avxvnni.c, which
 * are built with different flags.
 *
 * A tile holds unsigned codes u = w + 2^shift (shift 0: u = w): the integer sum of a block is
 * sum(u * q) - 2^shift * sum(q). A register tile is 1 to TILE_ROWS rows by the 16 outputs of one
 * panel, two vectors of 8; a lane multiplies the four columns of a group at once. */
#ifndef INFERD_BACKEND_CPU_GEMM_GEMM_YMM_INT_H
#define INFERD_BACKEND_CPU_GEMM_GEMM_YMM_INT_H

#include "core/backend/cpu/avx2_int.h"
#include "core/backend/cpu/gemm/gemm.h"

#include <string.h>

/* Shared by both instruction sets: unpack_avx2.c, gemm_avx2.c. */
void gemm_ymm_unpack(int type, const uint8_t *src, uint32_t n_cols, struct gemm_tile *tile);
void gemm_ymm_quantize(const float *x, uint32_t n, int8_t *const q[2], struct gemm_block *blocks);
void gemm_ymm_multiply_float(const struct gemm_job *j);

/* Prefetches bytes some distance after [p, p + bytes): panels are read sequentially, and the next
 * one follows in memory. */
ALWAYS_INLINE void gemm_ymm_ask_ahead(const uint8_t *p, uint32_t bytes) {
    enum { AHEAD = 8192 };
    for (uint32_t i = 0; i < bytes; i += 64)
        prefetch_weights(p, AHEAD + i);
}

/* A tile of float weights holds the address of the panel's K block. */
ALWAYS_INLINE const uint8_t *gemm_ymm_floats(const struct gemm_tile *tile) {
    const uint8_t *w;
    memcpy(&w, tile->q, sizeof w);
    return w;
}

/* Registers: two sums per row, two vectors of weights, one of activations (AVX2: and a product). */
#if defined(__AVXVNNI__)
enum { TILE_ROWS = 6 };
#else
enum { TILE_ROWS = 4 };
#endif
enum { BLOCK_GROUPS = GEMM_BLOCK / 4, HALF_GROUPS = BLOCK_GROUPS / 2 };

/* The type's shift: unpack adds 2^shift to each code, multiply subtracts it from the sums. */
ALWAYS_INLINE uint32_t gemm_ymm_shift(int type) {
    switch (type) {
    case QTYPE_Q8_0:
    case QTYPE_IQ4_NL:
    case QTYPE_IQ4_XS:
        return 7;
    case QTYPE_IQ2_W:     /* levels from -43 to 43 */
    case QTYPE_IQ3_XXS_W: /* -62 to 62 */
        return 6;
    case QTYPE_Q6_K:
        return 5;
    case QTYPE_Q5_0:
    case QTYPE_MXFP4:   /* levels from -12 to 12: codes from 4 to 28 */
    case QTYPE_IQ1_W:   /* -9 to 9 */
    case QTYPE_IQ3_S_W: /* -15 to 15 */
        return 4;
    case QTYPE_Q4_0:
        return 3;
    case QTYPE_Q3_K:
        return 2;
    default:
        return 0;
    }
}

/* Kinds of products; always constants. SPAN_n (AVX2): the number of groups whose products are
 * summed in int16 before they are widened. A lane gets two products per group, each at most
 * (largest code) * 127, so 254 * code * span must stay below 32768:
 *   codes to 15: 8 groups, 30480     codes to 31: 4 groups, 31496
 *   codes to 63: 2 groups, 32004     codes to 7 (a half has only 4 groups): 7112 */
enum {
    HALVES = 1,
    MINS = 2,
    PLANES = 4, /* AVX-VNNI: two */
    WIDE = 8,   /* AVX2: 16-bit activations, of one plane or two, times codes of any size */
    SPAN_2 = 2 << 4,
    SPAN_4 = 4 << 4,
    SPAN_8 = 8 << 4
};

/* A register tile: n_rows rows by one panel. Pointers to rows point at the first one. */
struct place {
    const struct gemm_tile *tile;
    const int8_t *q[2];
    const int16_t *wide; /* (n_rows, GEMM_BLOCKS, 2, 16): see widen */
    const struct gemm_block *blocks;
    uint64_t q_stride, blocks_stride;
    float *acc;
    __m128i shift;
};

ALWAYS_INLINE __m256i load_256(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

ALWAYS_INLINE __m256i broadcast_32(const void *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

/* v, with its evaluation forced here: compilers would otherwise compute the products of all groups
 * first and add them as a tree, which spills registers. */
ALWAYS_INLINE __m256i now(__m256i v) {
    __asm__("" : "+x"(v));
    return v;
}

ALWAYS_INLINE uint32_t groups_of(uint32_t kind) {
    return kind & HALVES ? HALF_GROUPS : BLOCK_GROUPS;
}

#if defined(__AVXVNNI__)
/* sum[2 * row + half of the panel] += u * q over a block or half from w and q on. */
ALWAYS_INLINE void dot(uint32_t kind, uint32_t n_rows, const uint8_t *w, const int8_t *q,
                       uint64_t stride, __m256i *sum) {
    UNROLL
    for (uint32_t g = 0; g < groups_of(kind); g++) {
        __m256i w0 = load_256(w + 64 * g), w1 = load_256(w + 64 * g + 32);
        UNROLL
        for (uint32_t r = 0; r < n_rows; r++) {
            __m256i x = broadcast_32(q + r * stride + 4 * g);
            sum[2 * r] = _mm256_dpbusd_avx_epi32(sum[2 * r], w0, x);
            sum[2 * r + 1] = _mm256_dpbusd_avx_epi32(sum[2 * r + 1], w1, x);
        }
    }
}
#else
/* SPAN_2: only two groups can be summed in int16, so a row takes them as a pair. */
ALWAYS_INLINE void dot_pairs(uint32_t kind, uint32_t n_rows, const uint8_t *w, const int8_t *q,
                             uint64_t stride, __m256i *sum) {
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL
    for (uint32_t g = 0; g < groups_of(kind); g += 2) {
        __m256i w0 = load_256(w + 64 * g), w1 = load_256(w + 64 * g + 32);
        __m256i w2 = load_256(w + 64 * g + 64), w3 = load_256(w + 64 * g + 96);
        UNROLL
        for (uint32_t r = 0; r < n_rows; r++) {
            __m256i x = broadcast_32(q + r * stride + 4 * g);
            __m256i p0 = _mm256_maddubs_epi16(w0, x), p1 = _mm256_maddubs_epi16(w1, x);
            x = broadcast_32(q + r * stride + 4 * g + 4);
            p0 = _mm256_add_epi16(p0, _mm256_maddubs_epi16(w2, x));
            p1 = _mm256_add_epi16(p1, _mm256_maddubs_epi16(w3, x));
            sum[2 * r] = now(_mm256_add_epi32(sum[2 * r], _mm256_madd_epi16(p0, ones)));
            sum[2 * r + 1] = now(_mm256_add_epi32(sum[2 * r + 1], _mm256_madd_epi16(p1, ones)));
        }
    }
}

/* sum[2 * row + half of the panel] += u * q over a block or half from w and q on. */
ALWAYS_INLINE void dot(uint32_t kind, uint32_t n_rows, const uint8_t *w, const int8_t *q,
                       uint64_t stride, __m256i *sum) {
    const __m256i ones = _mm256_set1_epi16(1);
    const uint32_t span = kind >> 4;
    __m256i part[2 * TILE_ROWS];
    UNROLL
    for (uint32_t g = 0; g < groups_of(kind); g++) {
        __m256i w0 = load_256(w + 64 * g), w1 = load_256(w + 64 * g + 32);
        UNROLL
        for (uint32_t r = 0; r < n_rows; r++) {
            __m256i x = broadcast_32(q + r * stride + 4 * g);
            __m256i p0 = _mm256_maddubs_epi16(w0, x), p1 = _mm256_maddubs_epi16(w1, x);
            part[2 * r] = g % span == 0 ? p0 : now(_mm256_add_epi16(part[2 * r], p0));
            part[2 * r + 1] = g % span == 0 ? p1 : now(_mm256_add_epi16(part[2 * r + 1], p1));
        }
        UNROLL
        for (uint32_t i = 0; i < 2 * n_rows; i++)
            if (g % span == span - 1)
                sum[i] = now(_mm256_add_epi32(sum[i], _mm256_madd_epi16(part[i], ones)));
    }
}
#endif

#if !defined(__AVXVNNI__)
/* Widens one row's activations to int16: each block's 16 even columns, then its 16 odd ones. */
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

/* As dot, for 16-bit activations: a vector of bytes is split into even and odd columns. */
ALWAYS_INLINE void dot_wide(uint32_t kind, uint32_t n_rows, const uint8_t *w, const int16_t *x,
                            __m256i *sum) {
    const __m256i low = _mm256_set1_epi16(0xff);
    UNROLL
    for (uint32_t i = 0; i < 2 * groups_of(kind); i++) {
        __m256i w0 = load_256(w + 64 * (i / 2)), w1 = load_256(w + 64 * (i / 2) + 32);
        w0 = i % 2 ? _mm256_srli_epi16(w0, 8) : _mm256_and_si256(w0, low);
        w1 = i % 2 ? _mm256_srli_epi16(w1, 8) : _mm256_and_si256(w1, low);
        UNROLL
        for (uint32_t r = 0; r < n_rows; r++) {
            __m256i q = broadcast_32(x + r * GEMM_COLS + i / 2 * 2 + i % 2 * 16);
            sum[2 * r] = now(_mm256_add_epi32(sum[2 * r], _mm256_madd_epi16(w0, q)));
            sum[2 * r + 1] = now(_mm256_add_epi32(sum[2 * r + 1], _mm256_madd_epi16(w1, q)));
        }
    }
}
#endif

/* The negated contribution of the shift to the sums of row r in block b (half: 0 or 1). */
ALWAYS_INLINE __m256i shift_sum(uint32_t kind, const struct place *at, uint32_t r, uint32_t b,
                                uint32_t half) {
    const struct gemm_block *block = at->blocks + r * at->blocks_stride + b;
    if (kind & MINS) return _mm256_setzero_si256();
    int32_t n = !(kind & HALVES) ? block->n : half ? block->n1 : block->n0;
    return _mm256_sub_epi32(_mm256_setzero_si256(),
                            _mm256_sll_epi32(_mm256_set1_epi32(n), at->shift));
}

/* Integer sums of block b, or of one half. */
ALWAYS_INLINE void sums(uint32_t kind, uint32_t n_rows, const struct place *at, uint32_t b,
                        uint32_t half, __m256i *sum) {
    uint32_t g = b * BLOCK_GROUPS + half * HALF_GROUPS;
    const uint8_t *w = &at->tile->q[g][0][0];
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++)
        sum[2 * r] = sum[2 * r + 1] =
            kind & PLANES ? _mm256_setzero_si256() : shift_sum(kind, at, r, b, half);
#if defined(__AVXVNNI__)
    dot(kind, n_rows, w, at->q[0] + 4 * g, at->q_stride, sum);
    if (!(kind & PLANES)) return;
    UNROLL
    for (uint32_t i = 0; i < 2 * n_rows; i++) { /* 254 = 256 - 2 */
        __m256i hi = _mm256_sub_epi32(_mm256_slli_epi32(sum[i], 8), _mm256_slli_epi32(sum[i], 1));
        sum[i] = _mm256_add_epi32(hi, shift_sum(kind, at, i / 2, b, half));
    }
    dot(kind, n_rows, w, at->q[1] + 4 * g, at->q_stride, sum);
#else
    if (kind & WIDE)
        dot_wide(kind, n_rows, w, at->wide + b * GEMM_BLOCK + half * HALF_GROUPS * 2, sum);
    else if (kind & SPAN_2)
        dot_pairs(kind, n_rows, w, at->q[0] + 4 * g, at->q_stride, sum);
    else
        dot(kind, n_rows, w, at->q[0] + 4 * g, at->q_stride, sum);
#endif
}

/* The f32 sums of few rows fit in registers; those of many stay in the cache. */
ALWAYS_INLINE bool sums_in_registers(uint32_t n_rows) {
    return n_rows <= 2;
}

/* Vector i of a register tile's f32 sums. */
ALWAYS_INLINE float *acc_at(float *mem, uint32_t i) {
    return mem + i / 2 * GEMM_PANELS * GEMM_OUTS + i % 2 * 8;
}

/* Adds the scaled products t of block q to one row's f32 sums. */
ALWAYS_INLINE void add_block(uint32_t kind, const struct gemm_block *q, const float *min,
                             const __m256 t[2], __m256 a[2]) {
    __m256 d = _mm256_broadcast_ss(&q->d);
    a[0] = _mm256_fmadd_ps(t[0], d, a[0]);
    a[1] = _mm256_fmadd_ps(t[1], d, a[1]);
    if (!(kind & MINS)) return;
    __m256 s = _mm256_broadcast_ss(kind & HALVES ? &q->s0 : &q->s);
    a[0] = _mm256_fmadd_ps(_mm256_load_ps(min), s, a[0]);
    a[1] = _mm256_fmadd_ps(_mm256_load_ps(min + 8), s, a[1]);
    if (!(kind & HALVES)) return;
    s = _mm256_broadcast_ss(&q->s1);
    a[0] = _mm256_fmadd_ps(_mm256_load_ps(min + GEMM_OUTS), s, a[0]);
    a[1] = _mm256_fmadd_ps(_mm256_load_ps(min + GEMM_OUTS + 8), s, a[1]);
}

/* Block b of 32 columns. */
ALWAYS_INLINE void block(uint32_t kind, uint32_t n_rows, const struct place *at, uint32_t b,
                         __m256 *acc) {
    __m256 t[2 * TILE_ROWS];
    __m256i sum[2 * TILE_ROWS];
    uint32_t s = kind & HALVES ? 2 * b : b;
    const float *scale = at->tile->scale[s], *min = at->tile->min[s];
    sums(kind, n_rows, at, b, 0, sum);
    UNROLL
    for (uint32_t i = 0; i < 2 * n_rows; i++)
        t[i] = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i]), _mm256_load_ps(scale + i % 2 * 8));
    if (kind & HALVES) {
        sums(kind, n_rows, at, b, 1, sum);
        UNROLL
        for (uint32_t i = 0; i < 2 * n_rows; i++)
            t[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[i]),
                                   _mm256_load_ps(scale + GEMM_OUTS + i % 2 * 8), t[i]);
    }
    float *mem = at->acc;
    __asm__("" : "+r"(mem)); /* otherwise gcc keeps one address per vector on the stack */
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        __m256 a[2];
        UNROLL
        for (uint32_t i = 0; i < 2; i++)
            a[i] =
                sums_in_registers(n_rows) ? acc[2 * r + i] : _mm256_load_ps(acc_at(mem, 2 * r + i));
        add_block(kind, at->blocks + r * at->blocks_stride + b, min, &t[2 * r], a);
        UNROLL
        for (uint32_t i = 0; i < 2; i++)
            if (sums_in_registers(n_rows))
                acc[2 * r + i] = a[i];
            else
                _mm256_store_ps(acc_at(mem, 2 * r + i), a[i]);
    }
}

/* Multiplies rows row .. row + n_rows - 1 by all panels, over the whole K block. */
ALWAYS_INLINE void tile_rows(const struct gemm_job *j, uint32_t kind, uint32_t n_rows,
                             uint32_t row) {
    uint32_t n_blocks = j->n_cols / GEMM_BLOCK;
    struct place at = {
        .q = {j->x.q[0] + row * j->x.q_stride, j->x.q[1] ? j->x.q[1] + row * j->x.q_stride : NULL},
        .q_stride = j->x.q_stride,
        .blocks = j->x.blocks + row * j->x.blocks_stride,
        .blocks_stride = j->x.blocks_stride,
        .shift = _mm_cvtsi32_si128((int)gemm_ymm_shift(j->type)),
    };
#if !defined(__AVXVNNI__)
    _Alignas(32) int16_t wide[TILE_ROWS * GEMM_COLS];
    at.wide = wide;
    for (uint32_t r = 0; kind & WIDE && r < n_rows; r++)
        widen(at.q[0] + r * at.q_stride, at.q[1] ? at.q[1] + r * at.q_stride : NULL, n_blocks,
              wide + r * GEMM_COLS);
#endif
    for (uint32_t p = 0; p < j->n_panels; p++) {
        __m256 acc[2 * TILE_ROWS];
        at.tile = &j->tile[p];
        at.acc = j->acc + (uint64_t)row * GEMM_PANELS * GEMM_OUTS + p * GEMM_OUTS;
        if (sums_in_registers(n_rows)) {
            UNROLL
            for (uint32_t i = 0; i < 2 * n_rows; i++)
                acc[i] = _mm256_load_ps(acc_at(at.acc, i));
        }
        for (uint32_t b = 0; b < n_blocks; b++)
            block(kind, n_rows, &at, b, acc);
        if (sums_in_registers(n_rows)) {
            UNROLL
            for (uint32_t i = 0; i < 2 * n_rows; i++)
                _mm256_store_ps(acc_at(at.acc, i), acc[i]);
        }
    }
}

/* Zeroes the sums of the job's rows and panels. */
ALWAYS_INLINE void clear_acc(const struct gemm_job *j) {
    for (uint32_t r = 0; j->first && r < j->n_rows; r++)
        memset(j->acc + r * GEMM_PANELS * GEMM_OUTS, 0, j->n_panels * GEMM_OUTS * sizeof *j->acc);
}

/* Splits the rows into register tiles of similar height: 8 rows into 4 + 4, not 6 + 2. */
ALWAYS_INLINE void all_rows(const struct gemm_job *j, uint32_t kind) {
    uint32_t row = 0, n_rows, n_tiles = (j->n_rows + TILE_ROWS - 1) / TILE_ROWS;
    for (; n_tiles; n_tiles--, row += n_rows) {
        n_rows = (j->n_rows - row + n_tiles - 1) / n_tiles;
        switch (n_rows) {
#define ROWS(n)                                                                                    \
    case n:                                                                                        \
        tile_rows(j, kind, n, row);                                                                \
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

typedef void ymm_product(const struct gemm_job *j);

/* Multiplies with the job's row of products (n_types), indexed by type: for one plane of
 * activations and for two. A type without a row is a float type. */
static inline void multiply_by_type(const struct gemm_job *j, ymm_product *const products[][2],
                                    size_t n_types) {
    ymm_product *product = (size_t)j->type < n_types ? products[j->type][j->x.q[1] != NULL] : NULL;
    clear_acc(j);
    (product ? product : gemm_ymm_multiply_float)(j);
}

#endif
