/* gemm_avx2.c - matrix products with AVX2, FMA and F16C: quantized weights (gemm_ymm_int.h), float
 * weights, and the quantization of rows. Pure functions; any thread. */
#include "core/backend/cpu/gemm/gemm_ymm_int.h"

#include <math.h>

enum { LANES = 8 };

/* ---- quantize ---- */

/* max |v| of 32 values as the bits of its f32 (NaN compares above infinity). */
ALWAYS_INLINE uint32_t max_bits(const __m256 v[4]) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i m = _mm256_setzero_si256();
    UNROLL
    for (int k = 0; k < 4; k++)
        m = _mm256_max_epi32(m, _mm256_and_si256(_mm256_castps_si256(v[k]), magnitude));
    __m128i s = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* Packs the 16-bit integers of 32 columns into bytes, in order. */
ALWAYS_INLINE __m256i to_bytes(__m256i first, __m256i second) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi16(first, second), 0xd8);
}

/* Sum of 16 columns. */
ALWAYS_INLINE int32_t sum_16(__m256i q) {
    __m256i pairs = _mm256_madd_epi16(q, _mm256_set1_epi16(1));
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* hi of q = 254 hi + lo: |hi| = (|q| + 126) / 254 rounded down, so lo is 127 at most. The division
 * of m = (|q| + 126) / 2 <= 16255 by 127 is m * 33027 / 2^22, exact for these. */
ALWAYS_INLINE __m256i high_plane(__m256i q) {
    __m256i m = _mm256_srli_epi16(_mm256_add_epi16(_mm256_abs_epi16(q), _mm256_set1_epi16(126)), 1);
    __m256i hi = _mm256_srli_epi16(_mm256_mulhi_epu16(m, _mm256_set1_epi16((short)33027)), 6);
    return _mm256_sign_epi16(hi, q);
}

ALWAYS_INLINE __m256i low_plane(__m256i q, __m256i hi) {
    return _mm256_sub_epi16(q, _mm256_mullo_epi16(hi, _mm256_set1_epi16(254)));
}

/* Quantizes 32 columns: w (16 columns each) = round(v * inverse); inverse 0: all zero. */
ALWAYS_INLINE void round_columns(const __m256 v[4], float inverse, int top, __m256i w[2]) {
    const __m256i most = _mm256_set1_epi16((short)top), least = _mm256_set1_epi16((short)-top);
    __m256i i[4];
    UNROLL
    for (int k = 0; k < 4; k++)
        i[k] = _mm256_cvtps_epi32(_mm256_mul_ps(v[k], _mm256_set1_ps(inverse)));
    UNROLL
    for (int k = 0; k < 2; k++) {
        /* packing works in 128-bit halves: the permutation puts the columns back in order */
        w[k] = _mm256_permute4x64_epi64(_mm256_packs_epi32(i[2 * k], i[2 * k + 1]), 0xd8);
        w[k] = _mm256_max_epi16(_mm256_min_epi16(w[k], most), least);
    }
    if (!(inverse > 0)) w[0] = w[1] = _mm256_setzero_si256(); /* NaN * 0 is NaN */
}

void gemm_ymm_quantize(const float *x, uint32_t n, int8_t *const q[2], struct gemm_block *blocks) {
    const int top = q[1] ? GEMM_Q16 : GEMM_Q8;
    for (uint32_t c = 0; c < n; c += GEMM_BLOCK, blocks++) {
        __m256 v[4];
        __m256i w[2];
        UNROLL
        for (int k = 0; k < 4; k++)
            v[k] = _mm256_loadu_ps(x + c + k * LANES);
        uint32_t bits = max_bits(v);
        float a;
        memcpy(&a, &bits, sizeof a);
        bool finite = bits < 0x7f800000, zero = !finite || a < 1e-30f;
        float d = !finite ? NAN : zero ? 0 : a / (float)top;
        round_columns(v, zero ? 0 : (float)top / a, top, w);
        int32_t n0 = sum_16(w[0]), n1 = sum_16(w[1]);
        *blocks = (struct gemm_block){.d = d,
                                      .s = d * (float)(n0 + n1),
                                      .s0 = d * (float)n0,
                                      .s1 = d * (float)n1,
                                      .n = n0 + n1,
                                      .n0 = n0,
                                      .n1 = n1};
        if (q[1]) {
            __m256i hi[2] = {high_plane(w[0]), high_plane(w[1])};
            __m256i lo = to_bytes(low_plane(w[0], hi[0]), low_plane(w[1], hi[1]));
            _mm256_storeu_si256((__m256i *)(q[1] + c), lo);
            w[0] = hi[0], w[1] = hi[1];
        }
        _mm256_storeu_si256((__m256i *)(q[0] + c), to_bytes(w[0], w[1]));
    }
}

/* ---- float weights: unpack leaves them in place ---- */

/* Maximum rows of a register tile: 12 sums with the vectors of two panels. */
enum { FLOAT_ROWS = 3 };

/* A register tile; constants except for w. n_vectors: 2 for one panel, 4 for two. */
struct float_tile {
    int type;
    uint32_t n_rows, n_vectors;
    const uint8_t *w[GEMM_PANELS];
};

/* Outputs 8 k to 8 k + 7 of column c in f32. */
ALWAYS_INLINE __m256 load_column(int type, const uint8_t *w, uint32_t c, uint32_t k) {
    if (type == QTYPE_F32) return _mm256_castsi256_ps(load_256(w + 64 * c + 32 * k));
    if (type == QTYPE_F16)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(w + 32 * c + 16 * k)));
    /* a lane is a pair of columns, the even one in its low half */
    __m256i pair = load_256(w + 64 * (c / 2) + 32 * k);
    pair = c % 2 ? _mm256_and_si256(pair, _mm256_set1_epi32((int)0xffff0000))
                 : _mm256_slli_epi32(pair, 16);
    return _mm256_castsi256_ps(pair);
}

/* acc (n_rows, n_vectors) += column c; x points at the first row. */
ALWAYS_INLINE void add_column(const struct float_tile *t, uint32_t c, const float *x,
                              uint64_t stride, __m256 *acc) {
    __m256 v[FLOAT_ROWS];
    UNROLL
    for (uint32_t r = 0; r < t->n_rows; r++)
        v[r] = _mm256_broadcast_ss(x + r * stride + c);
    UNROLL
    for (uint32_t k = 0; k < t->n_vectors; k++) {
        __m256 w = load_column(t->type, t->w[k / 2], c, k % 2);
        UNROLL
        for (uint32_t r = 0; r < t->n_rows; r++)
            acc[r * t->n_vectors + k] = _mm256_fmadd_ps(v[r], w, acc[r * t->n_vectors + k]);
    }
}

/* Each output is one chain of fma over the columns, as gemm.h prescribes. */
ALWAYS_INLINE void multiply_tile(const struct gemm_job *j, const struct float_tile *t,
                                 uint32_t row) {
    const uint32_t n = t->n_rows * t->n_vectors;
    const float *x = j->x.x + row * j->x.x_stride;
    float *to = j->acc + (uint64_t)row * GEMM_PANELS * GEMM_OUTS;
    __m256 acc[FLOAT_ROWS * GEMM_PANELS * 2];
    uint32_t c = 0;
    UNROLL
    for (uint32_t i = 0; i < n; i++)
        acc[i] = j->first ? _mm256_setzero_ps()
                          : _mm256_load_ps(to + i / t->n_vectors * GEMM_PANELS * GEMM_OUTS +
                                           i % t->n_vectors * LANES);
    for (; c + 2 <= j->n_cols; c += 2) {
        if (t->n_vectors == 2) {
            const uint8_t *at = t->w[0] + c / 2 * (t->type == QTYPE_F32 ? 128 : 64);
            gemm_ymm_ask_ahead(at, t->type == QTYPE_F32 ? 128 : 64);
        }
        add_column(t, c, x, j->x.x_stride, acc);
        add_column(t, c + 1, x, j->x.x_stride, acc);
    }
    if (c < j->n_cols) add_column(t, c, x, j->x.x_stride, acc);
    UNROLL
    for (uint32_t i = 0; i < n; i++)
        _mm256_store_ps(to + i / t->n_vectors * GEMM_PANELS * GEMM_OUTS + i % t->n_vectors * LANES,
                        acc[i]);
}

ALWAYS_INLINE void multiply_rows(const struct gemm_job *j, struct float_tile t) {
    uint32_t row = 0;
    t.n_rows = FLOAT_ROWS;
    for (; row + FLOAT_ROWS <= j->n_rows; row += FLOAT_ROWS)
        multiply_tile(j, &t, row);
    t.n_rows = 2;
    if (j->n_rows - row == 2) multiply_tile(j, &t, row);
    t.n_rows = 1;
    if (j->n_rows - row == 1) multiply_tile(j, &t, row);
}

static void multiply_f32(const struct gemm_job *j, const uint8_t *w) {
    multiply_rows(j, (struct float_tile){QTYPE_F32, 0, 2, {w, w}});
}

static void multiply_f16(const struct gemm_job *j, const uint8_t *w) {
    multiply_rows(j, (struct float_tile){QTYPE_F16, 0, 2, {w, w}});
}

static void multiply_bf16(const struct gemm_job *j, const uint8_t *w) {
    multiply_rows(j, (struct float_tile){QTYPE_BF16, 0, 2, {w, w}});
}

static void multiply_two(const struct gemm_job *j, const uint8_t *w0, const uint8_t *w1) {
    multiply_rows(j, (struct float_tile){QTYPE_F32, 0, 4, {w0, w1}});
}

/* Converts a panel's columns to f32. */
static const uint8_t *widen_floats(int type, const uint8_t *w, uint32_t n_cols,
                                   float (*wide)[GEMM_OUTS]) {
    for (uint32_t c = 0; c < n_cols; c += 2) {
        gemm_ymm_ask_ahead(w + 32 * c, 64);
        UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t at = c + k / 2 < n_cols ? c + k / 2 : c;
            __m256 v = type == QTYPE_F16 ? load_column(QTYPE_F16, w, at, k % 2)
                                         : load_column(QTYPE_BF16, w, at, k % 2);
            _mm256_store_ps(wide[at] + k % 2 * LANES, v);
        }
    }
    return (const uint8_t *)wide;
}

/* For few rows each weight is read once, in place, one panel after the other; for more rows the
 * panels are first converted to f32. */
void gemm_ymm_multiply_float(const struct gemm_job *j) {
    _Alignas(32) float wide[GEMM_PANELS][GEMM_COLS][GEMM_OUTS];
    const bool once = j->n_rows <= FLOAT_ROWS;
    const uint8_t *w[GEMM_PANELS];
    struct gemm_job one = *j;
    for (uint32_t p = 0; p < j->n_panels; p++, one.acc += GEMM_OUTS) {
        w[p] = gemm_ymm_floats(&j->tile[p]);
        if (once) {
            if (j->type == QTYPE_F32)
                multiply_f32(&one, w[p]);
            else if (j->type == QTYPE_F16)
                multiply_f16(&one, w[p]);
            else
                multiply_bf16(&one, w[p]);
        } else if (j->type != QTYPE_F32)
            w[p] = widen_floats(j->type, w[p], j->n_cols, wide[p]);
    }
    if (once) return;
    if (j->n_panels == 2)
        multiply_two(j, w[0], w[1]);
    else
        multiply_f32(j, w[0]);
}

/* ---- quantized weights ---- */

/* Register tiles for every number of rows of one kind of product. */
#define PRODUCT(name, kind)                                                                        \
    static void name(const struct gemm_job *j) {                                                   \
        all_rows(j, kind);                                                                         \
    }
PRODUCT(plain_8, SPAN_8)
PRODUCT(plain_4, SPAN_4)
PRODUCT(mins_8, MINS | SPAN_8)
PRODUCT(mins_4, MINS | SPAN_4)
PRODUCT(halves_4, HALVES | SPAN_4)
PRODUCT(halves_2, HALVES | SPAN_2)
PRODUCT(half_mins_4, HALVES | MINS | SPAN_4)
/* 16-bit activations: one plane with codes of 8 bits, or two planes with any codes. */
PRODUCT(wide_plain, WIDE)
PRODUCT(wide_mins, WIDE | MINS)
PRODUCT(wide_halves, WIDE | HALVES)
PRODUCT(wide_half_mins, WIDE | HALVES | MINS)
#undef PRODUCT

static void multiply_job(const struct gemm_job *j) {
    static ymm_product *const products[][2] = {
        [QTYPE_Q4_0] = {plain_8, wide_plain},       [QTYPE_Q4_1] = {mins_8, wide_mins},
        [QTYPE_Q5_0] = {plain_4, wide_plain},       [QTYPE_Q5_1] = {mins_4, wide_mins},
        [QTYPE_Q8_0] = {wide_plain, wide_plain},    [QTYPE_Q2_K] = {half_mins_4, wide_half_mins},
        [QTYPE_Q3_K] = {halves_4, wide_halves},     [QTYPE_Q4_K] = {mins_8, wide_mins},
        [QTYPE_Q5_K] = {mins_4, wide_mins},         [QTYPE_Q6_K] = {halves_2, wide_halves},
        [QTYPE_IQ4_NL] = {wide_plain, wide_plain},  [QTYPE_IQ4_XS] = {wide_plain, wide_plain},
        [QTYPE_MXFP4] = {plain_4, wide_plain},      [QTYPE_IQ1_W] = {halves_4, wide_halves},
        [QTYPE_IQ2_W] = {wide_halves, wide_halves}, [QTYPE_IQ3_XXS_W] = {wide_plain, wide_plain},
        [QTYPE_IQ3_S_W] = {plain_4, wide_plain},
    };
    multiply_by_type(j, products, sizeof products / sizeof *products);
}

const struct gemm_isa gemm_avx2 = {
    .name = "avx2",
    .quantize = gemm_ymm_quantize,
    .unpack = gemm_ymm_unpack,
    .multiply = multiply_job,
};
