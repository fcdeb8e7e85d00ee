/* linear_avx2.c - matrix products with AVX2, FMA and F16C.
 *
 * One register tile of up to 4 rows by 2 outputs (1 row: by 4) serves every shape. Whatever the
 * tile, an output is summed in the same order: eight lanes that each walk the columns from left to
 * right, added up at the end. Pure functions; any thread. */
#include "core/backend/cpu/avx2_int.h"

#include <string.h>

enum { TILE_ROWS = 4, LANES = 8 };

/* Eight weights from column c on, in f32. */
ALWAYS_INLINE __m256 load_weights(int type, const void *w, uint32_t c) {
    if (type == QTYPE_F32) return _mm256_loadu_ps((const float *)w + c);
    __m128i half = _mm_loadu_si128((const __m128i *)((const uint16_t *)w + c));
    if (type == QTYPE_F16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* The last n < 8 columns, zeros behind. */
ALWAYS_INLINE __m256 load_weights_tail(int type, const uint8_t *w, uint32_t c, uint32_t n) {
    uint8_t padded[LANES * sizeof(float)] = {0};
    uint32_t elem = type == QTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    memcpy(padded, w + (uint64_t)c * elem, n * elem);
    return load_weights(type, padded, 0);
}

/* Writes a tile's sums, with bias. acc is row-major (n_rows, n_outs). */
ALWAYS_INLINE void store_tile(const struct cpu_linear_job *j, uint32_t row, uint32_t out,
                              const __m256 *acc, uint32_t n_rows, uint32_t n_outs) {
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        UNROLL
        for (uint32_t o = 0; o < n_outs; o++) {
            float y = sum_lanes(acc[r * n_outs + o]);
            if (j->bias) y += j->bias[out + o];
            j->y[(row + r) * j->y_stride + out + o] = y;
        }
    }
}

/* n_rows * n_outs <= 8 */
ALWAYS_INLINE void tile_float(const struct cpu_linear_job *j, int type, uint32_t row, uint32_t out,
                              uint32_t n_rows, uint32_t n_outs) {
    const float *x[TILE_ROWS];
    const uint8_t *w[TILE_ROWS];
    __m256 acc[8], xv[TILE_ROWS];
    uint32_t c = 0, tail = j->n_in % LANES;
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
        acc[i] = _mm256_setzero_ps();
    for (; c + LANES <= j->n_in; c += LANES) {
        UNROLL
        for (uint32_t r = 0; r < n_rows; r++)
            xv[r] = _mm256_loadu_ps(x[r] + c);
        UNROLL
        for (uint32_t o = 0; o < n_outs; o++) {
            if (n_rows == 1) prefetch(w[o], ahead + (uint64_t)c * elem);
            __m256 wv = load_weights(type, w[o], c);
            UNROLL
            for (uint32_t r = 0; r < n_rows; r++)
                acc[r * n_outs + o] = _mm256_fmadd_ps(xv[r], wv, acc[r * n_outs + o]);
        }
    }
    if (tail) {
        UNROLL
        for (uint32_t r = 0; r < n_rows; r++)
            xv[r] = _mm256_maskload_ps(x[r] + c, lanes_below(tail));
        UNROLL
        for (uint32_t o = 0; o < n_outs; o++) {
            __m256 wv = load_weights_tail(type, w[o], c, tail);
            UNROLL
            for (uint32_t r = 0; r < n_rows; r++)
                acc[r * n_outs + o] = _mm256_fmadd_ps(xv[r], wv, acc[r * n_outs + o]);
        }
    }
    store_tile(j, row, out, acc, n_rows, n_outs);
}

/* Block b of a weight row as 32 int8, and its scale in every lane. */
ALWAYS_INLINE __m256i load_block(int type, const uint8_t *w, uint32_t b, __m256 *scale) {
    uint16_t d;
    if (type == QTYPE_Q8_0) {
        w += (uint64_t)b * sizeof(struct q8_0_block);
        memcpy(&d, w, sizeof d);
        *scale = _mm256_set1_ps(_cvtsh_ss(d));
        return _mm256_loadu_si256((const __m256i *)(w + sizeof d));
    }
    w += (uint64_t)b * sizeof(struct q4_0_block);
    memcpy(&d, w, sizeof d);
    *scale = _mm256_set1_ps(_cvtsh_ss(d));
    __m128i packed = _mm_loadu_si128((const __m128i *)(w + sizeof d));
    __m256i nibbles = _mm256_set_m128i(_mm_srli_epi16(packed, 4), packed);
    nibbles = _mm256_and_si256(nibbles, _mm256_set1_epi8(15));
    return _mm256_sub_epi8(nibbles, _mm256_set1_epi8(8));
}

/* Each block: eight int32 lanes of four products, at most 4 * 128 * 32767 < 2^24, so that turning
 * them into f32 is exact; then times both scales. */
ALWAYS_INLINE void tile_quantized(const struct cpu_linear_job *j, int type, uint32_t row,
                                  uint32_t out, uint32_t n_rows, uint32_t n_outs) {
    const int16_t *x[TILE_ROWS];
    const float *d[TILE_ROWS];
    const uint8_t *w[TILE_ROWS];
    __m256 acc[8];
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
        acc[i] = _mm256_setzero_ps();
    for (uint32_t b = 0; b < n_blocks; b++) {
        UNROLL
        for (uint32_t o = 0; o < n_outs; o++) {
            __m256 wd;
            prefetch(w[o], ahead + (uint64_t)b * block_bytes);
            __m256i wq = load_block(type, w[o], b, &wd);
            __m256i low = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(wq));
            __m256i high = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(wq, 1));
            UNROLL
            for (uint32_t r = 0; r < n_rows; r++) {
                const __m256i *xq = (const __m256i *)(x[r] + (uint64_t)b * CPU_Q_ELEMS);
                __m256i quads =
                    _mm256_add_epi32(_mm256_madd_epi16(low, _mm256_loadu_si256(xq)),
                                     _mm256_madd_epi16(high, _mm256_loadu_si256(xq + 1)));
                __m256 scale = _mm256_mul_ps(wd, _mm256_broadcast_ss(d[r] + b));
                acc[r * n_outs + o] =
                    _mm256_fmadd_ps(_mm256_cvtepi32_ps(quads), scale, acc[r * n_outs + o]);
            }
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
    const uint32_t wide = n_rows == 1 ? 4 : 2;
    uint32_t out = j->out0, end = j->out0 + j->n_outs;
    for (; out + wide <= end; out += wide)
        tile(j, type, row, out, n_rows, wide);
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

void avx2_linear(const struct cpu_linear_job *j) {
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
