/* rope_avx2.c - rotary embedding, and conversion of K/V to the pools' types, with AVX2 and F16C.
 * Pure functions; any thread. */
#include "core/backend/cpu/avx2_int.h"

enum { LANES = 8 };

#define F16_MAX 65504.0f

/* Interleaved pairs: adjacent lanes hold a pair, so each cosine and sine is loaded twice. */
static void rotate_pairs(float *x, const struct cpu_rotation *r) {
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    for (uint32_t i = 0; i < r->n_rot; i += LANES) {
        __m256 v = _mm256_loadu_ps(x + i), partner = _mm256_permute_ps(v, 0xb1);
        __m256 c = _mm256_castps128_ps256(_mm_loadu_ps(r->cosines + i / 2));
        __m256 s = _mm256_castps128_ps256(_mm_loadu_ps(r->sines + i / 2));
        c = _mm256_permutevar8x32_ps(c, twice), s = _mm256_permutevar8x32_ps(s, twice);
        _mm256_storeu_ps(x + i, _mm256_fmaddsub_ps(v, c, _mm256_mul_ps(partner, s)));
    }
}

static void rotate_halves(float *x, const struct cpu_rotation *r) {
    float *y = x + r->n_rot / 2;
    for (uint32_t i = 0; i < r->n_rot / 2; i += LANES) {
        __m256 u = _mm256_loadu_ps(x + i), v = _mm256_loadu_ps(y + i);
        __m256 c = _mm256_loadu_ps(r->cosines + i), s = _mm256_loadu_ps(r->sines + i);
        _mm256_storeu_ps(x + i, _mm256_fmsub_ps(u, c, _mm256_mul_ps(v, s)));
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(u, s, _mm256_mul_ps(v, c)));
    }
}

void avx2_rotate(float *x, uint32_t n_heads, const struct cpu_rotation *r) {
    if (r->n_rot % (r->interleaved ? LANES : 2 * LANES)) {
        generic_rotate(x, n_heads, r);
        return;
    }
    for (uint32_t h = 0; h < n_heads; h++, x += r->head_dim)
        if (r->interleaved)
            rotate_pairs(x, r);
        else
            rotate_halves(x, r);
}

static void encode_f16(const float *x, uint16_t *to, uint32_t n) {
    const __m256 max = _mm256_set1_ps(F16_MAX), min = _mm256_set1_ps(-F16_MAX);
    for (uint32_t i = 0; i + LANES <= n; i += LANES) {
        __m256 v = _mm256_max_ps(min, _mm256_min_ps(max, _mm256_loadu_ps(x + i))); /* keeps NaN */
        _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
}

/* Rounds to nearest even; NaN gives NaN. n: a multiple of 16. */
static void encode_bf16(const float *x, uint16_t *to, uint32_t n) {
    for (uint32_t i = 0; i < n; i += 2 * LANES) {
        __m256i half[2];
        UNROLL
        for (int k = 0; k < 2; k++) {
            __m256 v = _mm256_loadu_ps(x + i + k * LANES);
            __m256i u = _mm256_castps_si256(v), top = _mm256_srli_epi32(u, 16);
            __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
            __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
            u = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            top = _mm256_or_si256(top, _mm256_set1_epi32(0x40)); /* quiet */
            half[k] = _mm256_blendv_epi8(_mm256_srli_epi32(u, 16), top, nan);
        }
        /* packing works in 128-bit halves: the permutation puts groups of four back in order */
        _mm256_storeu_si256((__m256i *)(to + i),
                            _mm256_permute4x64_epi64(_mm256_packus_epi32(half[0], half[1]), 0xd8));
    }
}

static void encode_q8_0(const float *x, int8_t *to, uint16_t *scales, uint32_t n) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    for (uint32_t b = 0; b < n / Q_ELEMS; b++, x += Q_ELEMS, to += Q_ELEMS) {
        __m256 max = _mm256_setzero_ps(), zero = max;
        __m256i q[4];
        UNROLL
        for (int i = 0; i < 4; i++) {
            __m256 v = _mm256_loadu_ps(x + i * LANES);
            max = _mm256_max_ps(max, _mm256_and_ps(v, magnitude));
            zero =
                _mm256_fmadd_ps(v, _mm256_setzero_ps(), zero); /* NaN if one is NaN or infinite */
        }
        float d = max_lanes(max) / 127 + sum_lanes(zero);
        __m256 inverse = _mm256_set1_ps(d > 0 ? 1 / d : 0);
        UNROLL
        for (int i = 0; i < 4; i++)
            q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i * LANES), inverse));
        /* packing works in 128-bit halves: the permutation puts groups of four back in order */
        __m256i all =
            _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        all = _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((__m256i *)to, all);
        scales[b] =
            (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(d), _MM_FROUND_TO_NEAREST_INT), 0);
    }
}

void avx2_encode_kv(int type, const float *x, void *values, uint16_t *scales, uint32_t n) {
    uint32_t whole = n / (2 * LANES) * (2 * LANES);
    if (type == QTYPE_Q8_0) {
        encode_q8_0(x, values, scales, n);
        return;
    }
    if (type == QTYPE_F16)
        encode_f16(x, values, whole);
    else if (type == QTYPE_BF16)
        encode_bf16(x, values, whole);
    else
        whole = 0;
    uint64_t elem = type == QTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    generic_encode_kv(type, x + whole, (char *)values + whole * elem, scales, n - whole);
}
