/* gemm_i8mm.c - matrix products with the 8-bit matrix instruction of Armv8.6 (SMMLA): two rows by
 * two outputs, over eight columns.
 *
 * A tile holds eight columns of an output side by side. Rows are taken in pairs; a single one
 * twice. Four rows and eight outputs at a time keep sums and results in registers over the whole K
 * block; one or two rows take 16 outputs. Pure functions; any thread. */
#include "core/backend/cpu/gemm/gemm_neon_int.h"

enum { MAX_PAIRS = MAX_ROWS / 2 };

/* Up to four rows of a K block in pairs: eight columns of one row, then of the other. */
struct input {
    int8_t q[2][GEMM_COLS / 8][MAX_PAIRS][16]; /* (plane, eight columns, pair) */
    bool two_planes;
};

struct pair_sums {
    int32x4_t v[MAX_PAIRS][2 * QUADS]; /* (pair, two outputs): (row, output) */
};

static void take_rows(struct input *x, const struct gemm_rows *from, uint32_t row, uint32_t n_rows,
                      uint32_t n_cols) {
    x->two_planes = from->q[1] != NULL;
    for (int p = 0; p < 1 + x->two_planes; p++)
        for (uint32_t r = 0; r < n_rows; r += 2) {
            const int8_t *even = from->q[p] + (row + r) * from->q_stride;
            const int8_t *odd = r + 1 < n_rows ? even + from->q_stride : even;
            for (uint32_t c = 0; c < n_cols; c += 16) {
                int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(even + c));
                int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(odd + c));
                vst1q_s8(x->q[p][c / 8][r / 2], vreinterpretq_s8_s64(vzip1q_s64(a, b)));
                vst1q_s8(x->q[p][c / 8 + 1][r / 2], vreinterpretq_s8_s64(vzip2q_s64(a, b)));
            }
        }
}

/* Adds the products of n_cols (constant) columns: pairs of rows at q, outputs at w. */
ALWAYS_INLINE void add_columns(struct pair_sums *s, const int8_t *q, const int8_t *w, int n_cols,
                               struct group_form f) {
    const int n_pairs = (f.n_rows + 1) / 2;
    UNROLL
    for (int k = 0; k < n_cols / 8; k++) {
        int8x16_t pair[MAX_PAIRS];
        UNROLL
        for (int p = 0; p < n_pairs; p++)
            pair[p] = vld1q_s8(q + 16 * (k * MAX_PAIRS + p));
        UNROLL
        for (int i = 0; i < 2 * f.n_quads; i++) {
            int8x16_t v = vld1q_s8(w + 16 * (k * 2 * QUADS + i));
            UNROLL
            for (int p = 0; p < n_pairs; p++)
                s->v[p][i] = vmmlaq_s32(s->v[p][i], pair[p], v);
        }
    }
}

/* The sums of row r (0 or 1) of a pair. */
ALWAYS_INLINE int32x4_t sums_of_row(int32x4_t a, int32x4_t b, int r) {
    int64x2_t low = vreinterpretq_s64_s32(a), high = vreinterpretq_s64_s32(b);
    return vreinterpretq_s32_s64(r % 2 ? vzip2q_s64(low, high) : vzip1q_s64(low, high));
}

/* s (n_rows, n_quads) = sums of columns c .. c + 15 (half) or c + 31. */
ALWAYS_INLINE void sum_columns(struct sums *s, const struct input *x, const int8_t *w, uint32_t c,
                               bool half, struct group_form f) {
    const int n_pairs = (f.n_rows + 1) / 2, n_cols = half ? 16 : 32;
    struct pair_sums pairs;
    w += c * GEMM_OUTS;
    UNROLL
    for (int p = 0; p < n_pairs; p++) {
        UNROLL
        for (int i = 0; i < 2 * f.n_quads; i++)
            pairs.v[p][i] = vdupq_n_s32(0);
    }
    add_columns(&pairs, x->q[0][c / 8][0], w, n_cols, f);
    if (x->two_planes) {
        UNROLL
        for (int p = 0; p < n_pairs; p++) {
            UNROLL
            for (int i = 0; i < 2 * f.n_quads; i++)
                pairs.v[p][i] = vmulq_n_s32(pairs.v[p][i], 254);
        }
        add_columns(&pairs, x->q[1][c / 8][0], reload(w), n_cols, f);
    }
    UNROLL
    for (int r = 0; r < f.n_rows; r++) {
        UNROLL
        for (int i = 0; i < f.n_quads; i++)
            s->v[r][i] = sums_of_row(pairs.v[r / 2][2 * i], pairs.v[r / 2][2 * i + 1], r);
    }
}

ALWAYS_INLINE const int8_t *codes_at(const struct spot *at) {
    return (const int8_t *)at->tile->q + 8 * at->out;
}

enum { PAIRED = true };
#include "core/backend/cpu/gemm/gemm_neon_groups.h"

const struct gemm_isa gemm_i8mm = {"i8mm", quantize_columns, unpack_tile, multiply_job};
