/* linear_avx512.c - matrix products with AVX-512 (F, BW, VL), and the table of the instruction set
 * "avx512": its other kernels are the AVX2 ones.
 *
 * One register tile of up to 4 rows by 4 outputs serves every shape. Whatever the tile, an output
 * is summed in the same order: sixteen lanes that each walk the columns from left to right, added
 * up at the end. Pure functions; any thread. */
#include "core/backend/cpu/avx2_int.h"

#include <string.h>

enum { TILE_ROWS = 4, TILE_OUTS = 4, LANES = 16 };

ALWAYS_INLINE float sum_sixteen(__m512 v) {
    __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
    return sum_lanes(_mm256_add_ps(_mm512_castps512_ps256(v), high));
}

/* Weights of the columns from c on that lanes selects, in f32, zeros in the others. */
ALWAYS_INLINE __m512 load_weights(int type, const void *w, uint32_t c, __mmask16 lanes) {
    if (type == QTYPE_F32) return _mm512_maskz_loadu_ps(lanes, (const float *)w + c);
    __m256i half = _mm256_maskz_loadu_epi16(lanes, (const uint16_t *)w + c);
    if (type == QTYPE_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Writes a tile's sums, with bias. acc is row-major (n_rows, n_outs). */
ALWAYS_INLINE void store_tile(const struct cpu_linear_job *j, uint32_t row, uint32_t out,
                              const __m512 *acc, uint32_t n_rows, uint32_t n_outs) {
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        UNROLL
        for (uint32_t o = 0; o < n_outs; o++) {
            float y = sum_sixteen(acc[r * n_outs + o]);
            if (j->bias) y += j->bias[out + o];
            j->y[(row + r) * j->y_stride + out + o] = y;
        }
    }
}

ALWAYS_INLINE void tile_float(const struct cpu_linear_job *j, int type, uint32_t row, uint32_t out,
                              uint32_t n_rows, uint32_t n_outs) {
    const float *x[TILE_ROWS];
    const uint8_t *w[TILE_OUTS];
    __m512 acc[TILE_ROWS * TILE_OUTS], wv[TILE_OUTS];
    uint32_t elem = type == QTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    uint64_t ahead = prefetch_distance(j, n_outs);
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++)
        x[r] = j->x + (uint64_t)(row + r) * j->n_in;
    UNROLL
    for (uint32_t o = 0; o < n_outs; o++)
        w[o] = j->w + (out + o) * j->w_row_bytes;
    UNROLL
    for (uint32_t i = 0; i < n_rows * n_outs; i++)
        acc[i] = _mm512_setzero_ps();
    for (uint32_t c = 0; c < j->n_in; c += LANES) {
        uint32_t left = j->n_in - c;
        __mmask16 lanes = left < LANES ? (__mmask16)((1u << left) - 1) : 0xffff;
        UNROLL
        for (uint32_t o = 0; o < n_outs; o++) {
            if (n_rows == 1) prefetch(w[o], ahead + (uint64_t)c * elem);
            wv[o] = load_weights(type, w[o], c, lanes);
        }
        UNROLL
        for (uint32_t r = 0; r < n_rows; r++) {
            __m512 xv = _mm512_maskz_loadu_ps(lanes, x[r] + c);
            UNROLL
            for (uint32_t o = 0; o < n_outs; o++)
                acc[r * n_outs + o] = _mm512_fmadd_ps(xv, wv[o], acc[r * n_outs + o]);
        }
    }
    store_tile(j, row, out, acc, n_rows, n_outs);
}

/* Block b of a weight row as 32 int16; its scale goes to *d as IEEE half. */
ALWAYS_INLINE __m512i load_block(int type, const uint8_t *w, uint32_t b, uint16_t *d) {
    if (type == QTYPE_Q8_0) {
        w += (uint64_t)b * sizeof(struct q8_0_block);
        memcpy(d, w, sizeof *d);
        return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(w + sizeof *d)));
    }
    w += (uint64_t)b * sizeof(struct q4_0_block);
    memcpy(d, w, sizeof *d);
    __m128i packed = _mm_loadu_si128((const __m128i *)(w + sizeof *d));
    __m256i nibbles = _mm256_set_m128i(_mm_srli_epi16(packed, 4), packed);
    nibbles = _mm256_and_si256(nibbles, _mm256_set1_epi8(15));
    return _mm512_sub_epi16(_mm512_cvtepu8_epi16(nibbles), _mm512_set1_epi16(8));
}

/* Each block: sixteen int32 lanes of two products, at most 2 * 128 * 32767 < 2^24, so that turning
 * them into f32 is exact; then times both scales, whose products are formed for the whole tile at
 * once and read back one by one. */
ALWAYS_INLINE void tile_quantized(const struct cpu_linear_job *j, int type, uint32_t row,
                                  uint32_t out, uint32_t n_rows, uint32_t n_outs) {
    const int16_t *x[TILE_ROWS];
    const float *d[TILE_ROWS];
    const uint8_t *w[TILE_OUTS];
    __m512 acc[TILE_ROWS * TILE_OUTS];
    uint32_t n_blocks = j->n_in / CPU_Q_ELEMS;
    uint32_t block_bytes =
        type == QTYPE_Q8_0 ? sizeof(struct q8_0_block) : sizeof(struct q4_0_block);
    uint64_t ahead = prefetch_distance(j, n_outs);
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        x[r] = j->xq + (uint64_t)(row + r) * j->n_in;
        d[r] = j->xd + (uint64_t)(row + r) * n_blocks;
    }
    UNROLL
    for (uint32_t o = 0; o < n_outs; o++)
        w[o] = j->w + (out + o) * j->w_row_bytes;
    UNROLL
    for (uint32_t i = 0; i < n_rows * n_outs; i++)
        acc[i] = _mm512_setzero_ps();
    for (uint32_t b = 0; b < n_blocks; b++) {
        uint16_t half[8] = {0};
        float scale[TILE_ROWS][TILE_OUTS];
        __m512i wq[TILE_OUTS];
        UNROLL
        for (uint32_t o = 0; o < n_outs; o++) {
            prefetch(w[o], ahead + (uint64_t)b * block_bytes);
            wq[o] = load_block(type, w[o], b, &half[o]);
        }
        __m128 wd = _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)half));
        UNROLL
        for (uint32_t r = 0; r < n_rows; r++)
            _mm_storeu_ps(scale[r], _mm_mul_ps(wd, _mm_set1_ps(d[r][b])));
        UNROLL
        for (uint32_t r = 0; r < n_rows; r++) {
            __m512i xq = _mm512_loadu_si512(x[r] + (uint64_t)b * CPU_Q_ELEMS);
            UNROLL
            for (uint32_t o = 0; o < n_outs; o++)
                acc[r * n_outs + o] =
                    _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_madd_epi16(wq[o], xq)),
                                    _mm512_set1_ps(scale[r][o]), acc[r * n_outs + o]);
        }
    }
    store_tile(j, row, out, acc, n_rows, n_outs);
}

ALWAYS_INLINE void tile(const struct cpu_linear_job *j, int type, uint32_t row, uint32_t out,
                        uint32_t n_rows, uint32_t n_outs) {
    if (type == QTYPE_Q8_0 || type == QTYPE_Q4_0)
        tile_quantized(j, type, row, out, n_rows, n_outs);
    else
        tile_float(j, type, row, out, n_rows, n_outs);
}

/* All outputs of the panel for n_rows (a constant) rows. */
ALWAYS_INLINE void strip(const struct cpu_linear_job *j, int type, uint32_t row, uint32_t n_rows) {
    uint32_t out = j->out0, end = j->out0 + j->n_outs;
    for (; out + TILE_OUTS <= end; out += TILE_OUTS)
        tile(j, type, row, out, n_rows, TILE_OUTS);
    for (; out < end; out++)
        tile(j, type, row, out, n_rows, 1);
}

ALWAYS_INLINE void panel(const struct cpu_linear_job *j, int type) {
    uint32_t row = 0;
    for (; row + TILE_ROWS <= j->n_rows; row += TILE_ROWS)
        strip(j, type, row, TILE_ROWS);
    switch (j->n_rows - row) {
    case 1:
        strip(j, type, row, 1);
        break;
    case 2:
        strip(j, type, row, 2);
        break;
    case 3:
        strip(j, type, row, 3);
        break;
    default:
        break;
    }
}

static void linear(const struct cpu_linear_job *j) {
    switch (j->type) {
    case QTYPE_F16:
        panel(j, QTYPE_F16);
        break;
    case QTYPE_BF16:
        panel(j, QTYPE_BF16);
        break;
    case QTYPE_Q8_0:
        panel(j, QTYPE_Q8_0);
        break;
    case QTYPE_Q4_0:
        panel(j, QTYPE_Q4_0);
        break;
    default:
        panel(j, QTYPE_F32);
        break;
    }
}

const struct cpu_isa cpu_isa_avx512 = {
    .name = "avx512",
    .kernel_names = {[CPU_RMSNORM] = "rmsnorm_avx2",
                     [CPU_QUANTIZE_ROWS] = "quantize_rows_avx2",
                     [CPU_LINEAR_F32] = "linear_f32_avx512",
                     [CPU_LINEAR_F16] = "linear_f16_avx512",
                     [CPU_LINEAR_BF16] = "linear_bf16_avx512",
                     [CPU_LINEAR_Q8_0] = "linear_q8_0_avx512",
                     [CPU_LINEAR_Q4_0] = "linear_q4_0_avx512",
                     [CPU_ROPE_STORE_F32] = "rope_store_f32_avx2",
                     [CPU_ROPE_STORE_F16] = "rope_store_f16_avx2",
                     [CPU_ROPE_STORE_BF16] = "rope_store_bf16_avx2",
                     [CPU_ROPE_STORE_Q8_0] = "rope_store_q8_0_avx2",
                     [CPU_PAGED_ATTENTION_F32] = "paged_attention_f32_avx512",
                     [CPU_PAGED_ATTENTION_F16] = "paged_attention_f16_avx512",
                     [CPU_PAGED_ATTENTION_BF16] = "paged_attention_bf16_avx512",
                     [CPU_PAGED_ATTENTION_Q8_0] = "paged_attention_q8_0_avx512",
                     [CPU_GLU_SILU] = "glu_silu_avx2"},
    .block_step = 16,
    .linear = linear,
    .quantize = avx2_quantize,
    .rmsnorm = avx2_rmsnorm,
    .glu_silu = avx2_glu_silu,
    .encode_kv = avx2_encode_kv,
    .attention = avx512_attention,
    .attention_merge = avx512_attention_merge,
};
