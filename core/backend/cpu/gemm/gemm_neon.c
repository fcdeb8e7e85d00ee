/* gemm_neon.c - matrix products with NEON and the dot product instructions of Armv8.2.
 *
 * A tile's group of four columns is four registers of four outputs; a register of activations
 * holds 16 columns of a row, four columns per lane. Four rows and eight outputs at a time
 * keep sums and results in registers over the whole K block; one or two rows take 16 outputs. Pure
 * functions; any thread. */
#include "core/backend/cpu/gemm/gemm_neon_int.h"

struct input {
    const int8_t *hi, *lo; /* at the first row; lo may be NULL */
    uint64_t stride;
};

ALWAYS_INLINE void take_rows(struct input *x, const struct gemm_rows *from, uint32_t row,
                             uint32_t n_rows, uint32_t n_cols) {
    const uint64_t first = row * from->q_stride;
    (void)n_rows, (void)n_cols;
    *x = (struct input){from->q[0] + first, from->q[1] ? from->q[1] + first : NULL, from->q_stride};
}

/* Columns 4 * lane .. 4 * lane + 3 of x. */
#define ADD_LANE(lane)                                                                             \
    UNROLL                                                                                         \
    for (int i = 0; i < f.n_quads; i++) {                                                          \
        int8x16_t v = vld1q_s8(w + (lane)*64 + 16 * i);                                            \
        UNROLL                                                                                     \
        for (int r = 0; r < f.n_rows; r++)                                                         \
            s->v[r][i] = vdotq_laneq_s32(s->v[r][i], v, row[r], lane);                             \
    }

/* Adds the products of 16 columns: rows at x, outputs at w. */
ALWAYS_INLINE void add_columns(struct sums *s, const int8_t *x, uint64_t stride, const int8_t *w,
                               struct group_form f) {
    int8x16_t row[MAX_ROWS];
    UNROLL
    for (int r = 0; r < f.n_rows; r++)
        row[r] = vld1q_s8(x + (uint64_t)r * stride);
    ADD_LANE(0)
    ADD_LANE(1)
    ADD_LANE(2)
    ADD_LANE(3)
}

/* s (n_rows, n_quads) = sums of columns c .. c + 15 (half) or c + 31. */
ALWAYS_INLINE void sum_columns(struct sums *s, const struct input *x, const int8_t *w, uint32_t c,
                               bool half, struct group_form f) {
    w += c * GEMM_OUTS;
    UNROLL
    for (int r = 0; r < f.n_rows; r++) {
        UNROLL
        for (int i = 0; i < f.n_quads; i++)
            s->v[r][i] = vdupq_n_s32(0);
    }
    add_columns(s, x->hi + c, x->stride, w, f);
    if (!half) add_columns(s, x->hi + c + 16, x->stride, w + 16 * GEMM_OUTS, f);
    if (!x->lo) return;
    UNROLL
    for (int r = 0; r < f.n_rows; r++) {
        UNROLL
        for (int i = 0; i < f.n_quads; i++)
            s->v[r][i] = vmulq_n_s32(s->v[r][i], 254);
    }
    w = reload(w);
    add_columns(s, x->lo + c, x->stride, w, f);
    if (!half) add_columns(s, x->lo + c + 16, x->stride, w + 16 * GEMM_OUTS, f);
}

ALWAYS_INLINE const int8_t *codes_at(const struct spot *at) {
    return (const int8_t *)at->tile->q[0][at->out];
}

enum { PAIRED = false };
#include "core/backend/cpu/gemm/gemm_neon_groups.h"

const struct gemm_isa gemm_neon = {"neon", quantize_columns, unpack_tile, multiply_job};
