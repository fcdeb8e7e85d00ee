/* gemm_avx512.c - matrix products with AVX-512 (F, BW, VL, VNNI): activations to bytes, products of
 * float weights, and the dispatch by type. unpack_avx512.c makes the tile; gemm_plain_avx512.c and
 * gemm_halves_avx512.c multiply quantized weights. Pure functions; any thread. */
#include "core/backend/cpu/gemm/gemm_avx512_int.h"

#include <math.h>
#include <string.h>

enum { ROWS_FLOATS = 8 }; /* maximum rows of a register tile */

/* ---- float weights: unpack leaves them in place ---- */

/* A panel's columns in f32. */
typedef uint8_t wide_panel[GEMM_COLS][64];

/* Loads columns c (even) and c + 1. */
ALWAYS_INLINE void load_two(int type, const uint8_t *w, uint64_t c, __m512 v[2]) {
    if (type == QTYPE_F32) {
        v[0] = _mm512_loadu_ps(w + c * 64);
        v[1] = _mm512_loadu_ps(w + c * 64 + 64);
    } else if (type == QTYPE_F16) {
        v[0] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(w + c * 32)));
        v[1] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(w + c * 32 + 32)));
    } else {
        __m512i pair = _mm512_loadu_si512(w + c * 32);
        v[0] = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
        v[1] = _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000)));
    }
}

/* Prefetches columns at a distance after them. */
ALWAYS_INLINE void ask_two(int type, const uint8_t *w, uint64_t c) {
    const uint8_t *at = w + c * (type == QTYPE_F32 ? 64 : 32);
    gemm_avx512_ask(at);
    if (type == QTYPE_F32) gemm_avx512_ask(at + 64);
}

/* Loads column c, the last one of an odd number. */
ALWAYS_INLINE __m512 load_last(int type, const uint8_t *w, uint64_t c) {
    __m512 v[2];
    if (type == QTYPE_F32) return _mm512_loadu_ps(w + c * 64);
    if (type == QTYPE_F16)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(w + c * 32)));
    load_two(type, w, c, v);
    return v[0];
}

/* acc[r][p] += a column of the panels times x[r * stride]. */
ALWAYS_INLINE void add_column(uint32_t n_rows, uint32_t n_panels, __m512 w0, __m512 w1,
                              const float *x, uint64_t stride, __m512 (*acc)[GEMM_PANELS]) {
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        __m512 v = _mm512_set1_ps(x[r * stride]);
        acc[r][0] = _mm512_fmadd_ps(v, w0, acc[r][0]);
        if (n_panels == 2) acc[r][1] = _mm512_fmadd_ps(v, w1, acc[r][1]);
    }
}

/* w: panel 0's values, of `type`; panel 1's follow one wide_panel later. */
ALWAYS_INLINE void floats_tile(const struct gemm_job *j, uint32_t row, uint32_t n_rows,
                               uint32_t n_panels, int type, const uint8_t *w) {
    const uint64_t stride = j->x.x_stride, second = sizeof(wide_panel);
    const float *x = j->x.x + row * stride;
    float *out = j->acc + (uint64_t)row * GEMM_PANELS * GEMM_OUTS;
    __m512 acc[ROWS_FLOATS][GEMM_PANELS];
    uint32_t c = 0;
    gemm_avx512_load_acc(n_rows, n_panels, j->first, out, acc);
    for (; c + 2 <= j->n_cols; c += 2) {
        __m512 w0[2], w1[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
        if (n_panels == 1) ask_two(type, w, c);
        load_two(type, w, c, w0);
        if (n_panels == 2) load_two(type, w + second, c, w1);
        add_column(n_rows, n_panels, w0[0], w1[0], x + c, stride, acc);
        add_column(n_rows, n_panels, w0[1], w1[1], x + c + 1, stride, acc);
    }
    if (c < j->n_cols) {
        __m512 w0 = load_last(type, w, c), w1 = w0;
        if (n_panels == 2) w1 = load_last(type, w + second, c);
        add_column(n_rows, n_panels, w0, w1, x + c, stride, acc);
    }
    gemm_avx512_store_acc(n_rows, n_panels, acc, out);
}

ALWAYS_INLINE void floats(const struct gemm_job *j, uint32_t n_panels, int type, const uint8_t *w) {
    for (uint32_t row = 0, n; row < j->n_rows; row += n) {
        switch (n = gemm_avx512_next_rows(j->n_rows - row, ROWS_FLOATS)) {
        case 1:
            floats_tile(j, row, 1, n_panels, type, w);
            break;
        case 2:
            floats_tile(j, row, 2, n_panels, type, w);
            break;
        case 3:
            floats_tile(j, row, 3, n_panels, type, w);
            break;
        case 4:
            floats_tile(j, row, 4, n_panels, type, w);
            break;
        case 5:
            floats_tile(j, row, 5, n_panels, type, w);
            break;
        case 6:
            floats_tile(j, row, 6, n_panels, type, w);
            break;
        case 7:
            floats_tile(j, row, 7, n_panels, type, w);
            break;
        default:
            floats_tile(j, row, ROWS_FLOATS, n_panels, type, w);
            break;
        }
    }
}

static void floats_f32(const struct gemm_job *j, const uint8_t *w) {
    floats(j, 1, QTYPE_F32, w);
}

static void floats_f16(const struct gemm_job *j, const uint8_t *w) {
    floats(j, 1, QTYPE_F16, w);
}

static void floats_bf16(const struct gemm_job *j, const uint8_t *w) {
    floats(j, 1, QTYPE_BF16, w);
}

static void floats_wide(const struct gemm_job *j, const uint8_t *w) {
    floats(j, 2, QTYPE_F32, w);
}

/* For few rows each weight is read once, in place, one panel after the other; for more rows the
 * panels are first converted to f32. */
static void multiply_floats(const struct gemm_job *j) {
    _Alignas(64) wide_panel wide[GEMM_PANELS];
    const bool once = j->n_rows <= ROWS_FLOATS;
    struct gemm_job one = *j;
    for (uint32_t p = 0; p < j->n_panels; p++, one.acc += GEMM_OUTS) {
        const uint8_t *w = gemm_avx512_floats(&j->tile[p]);
        if (!once)
            gemm_avx512_widen(j->type, w, j->n_cols, wide[p][0]);
        else if (j->type == QTYPE_F32)
            floats_f32(&one, w);
        else if (j->type == QTYPE_F16)
            floats_f16(&one, w);
        else
            floats_bf16(&one, w);
    }
    if (!once) (j->n_panels == 2 ? floats_wide : floats_f32)(j, wide[0][0]);
}

/* The shifts are log2 of the offsets that unpack_avx512.c leaves in the codes. */
static void multiply_job(const struct gemm_job *j) {
    uint32_t p = j->n_panels - 1, two = j->x.q[1] != NULL;
    switch (j->type) {
    case QTYPE_Q4_0:
        gemm_avx512_plain[p][two](j, 3);
        break;
    case QTYPE_Q5_0:
        gemm_avx512_plain[p][two](j, 4);
        break;
    case QTYPE_Q8_0:
    case QTYPE_IQ4_NL:
    case QTYPE_IQ4_XS:
    case QTYPE_MXFP4:
    case QTYPE_IQ3_XXS_W:
    case QTYPE_IQ3_S_W:
        gemm_avx512_plain[p][two](j, 7);
        break;
    case QTYPE_Q4_1:
    case QTYPE_Q5_1:
    case QTYPE_Q4_K:
    case QTYPE_Q5_K:
        gemm_avx512_plain_mins[p][two](j, 0);
        break;
    case QTYPE_Q3_K:
        gemm_avx512_halves[p][two](j, 2);
        break;
    case QTYPE_IQ1_W:
    case QTYPE_IQ2_W:
        gemm_avx512_halves[p][two](j, 7);
        break;
    case QTYPE_Q6_K:
        gemm_avx512_halves[p][two](j, 5);
        break;
    case QTYPE_Q2_K:
        gemm_avx512_halves_mins[p][two](j, 0);
        break;
    default:
        multiply_floats(j);
        break;
    }
}

/* ---- activations ---- */

/* Stores q (16 lanes) as its planes. */
ALWAYS_INLINE void store_planes(__m512i q, int8_t *high, int8_t *low) {
    if (!low) {
        _mm_storeu_si128((__m128i *)high, _mm512_cvtepi32_epi8(q));
        return;
    }
    /* floor((q + 127) / 254), offset to be positive; * 66053 / 2^24 is / 254, exact to 65,024 */
    __m512i up = _mm512_add_epi32(q, _mm512_set1_epi32(127 + 254 * 127));
    __m512i hi = _mm512_srli_epi32(_mm512_mullo_epi32(up, _mm512_set1_epi32(66053)), 24);
    hi = _mm512_sub_epi32(hi, _mm512_set1_epi32(127));
    hi = _mm512_min_epi32(hi, _mm512_set1_epi32(127)); /* the largest q is 254 * 127 + 127 */
    __m512i lo = _mm512_sub_epi32(q, _mm512_mullo_epi32(hi, _mm512_set1_epi32(254)));
    _mm_storeu_si128((__m128i *)high, _mm512_cvtepi32_epi8(hi));
    _mm_storeu_si128((__m128i *)low, _mm512_cvtepi32_epi8(lo));
}

static void quantize_columns(const float *x, uint32_t n, int8_t *const q[2],
                             struct gemm_block *blocks) {
    const int most = q[1] ? GEMM_Q16 : GEMM_Q8;
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const __m512i top = _mm512_set1_epi32(most), bottom = _mm512_set1_epi32(-most);
    for (uint32_t c = 0; c < n; c += GEMM_BLOCK, blocks++) {
        __m512 v[2] = {_mm512_loadu_ps(x + c), _mm512_loadu_ps(x + c + 16)};
        /* compared as integers: the order is the same, and infinity and NaN come last */
        __m512i m = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(v[0]), magnitude),
                                     _mm512_and_si512(_mm512_castps_si512(v[1]), magnitude));
        int32_t bits = _mm512_reduce_max_epi32(m), sums[2];
        float a, inverse = 0;
        memcpy(&a, &bits, sizeof a);
        blocks->d = 0;
        if (bits >= 0x7f800000) {
            blocks->d = NAN;
            v[0] = v[1] = _mm512_setzero_ps();
        } else if (a >= 1e-30f) {
            blocks->d = a / (float)most;
            inverse = (float)most / a;
        }
        for (int h = 0; h < 2; h++) {
            __m512i i = _mm512_cvtps_epi32(_mm512_mul_ps(v[h], _mm512_set1_ps(inverse)));
            i = _mm512_max_epi32(_mm512_min_epi32(i, top), bottom);
            store_planes(i, q[0] + c + h * 16, q[1] ? q[1] + c + h * 16 : NULL);
            sums[h] = _mm512_reduce_add_epi32(i);
        }
        blocks->n0 = sums[0];
        blocks->n1 = sums[1];
        blocks->n = sums[0] + sums[1];
        blocks->s = blocks->d * (float)blocks->n;
        blocks->s0 = blocks->d * (float)blocks->n0;
        blocks->s1 = blocks->d * (float)blocks->n1;
        blocks->unused = 0;
    }
}

const struct gemm_isa gemm_avx512 = {
    .name = "avx512",
    .quantize = quantize_columns,
    .unpack = gemm_avx512_unpack,
    .multiply = multiply_job,
};
