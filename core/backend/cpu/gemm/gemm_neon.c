/* gemm_neon.c - matrix products with NEON and the dot product instructions of Armv8.2.
 *
 * A tile's group of four columns is four registers of four outputs; an activation's four columns
 * are one lane of a register that holds 16 columns of a row. Four rows and eight outputs at a time
 * keep sums and results in registers over the whole K block; one or two rows take 16 outputs. Pure
 * functions; any thread. */
#include "core/backend/cpu/gemm/gemm_neon_int.h"

struct input {
    const int8_t *hi, *lo; /* at the first row; lo may be NULL */
    uint64_t stride;
};

/* Columns 4 lane .. of x. */
#define ADD_LANE(lane)                                                                             \
    UNROLL                                                                                         \
    for (int i = 0; i < f.n_quads; i++) {                                                          \
        int8x16_t v = vld1q_s8(w + (lane)*64 + 16 * i);                                            \
        UNROLL                                                                                     \
        for (int r = 0; r < f.n_rows; r++)                                                         \
            s->v[r][i] = vdotq_laneq_s32(s->v[r][i], v, row[r], lane);                             \
    }

/* 16 columns of the rows at x times those of the outputs at w. */
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

/* s (n_rows, n_quads): columns c .. c + 16 (half) or c + 32. */
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

#include "core/backend/cpu/gemm/gemm_neon_groups.h"

static void multiply_quantized(const struct gemm_job *j) {
    for (uint32_t r = 0; r < j->n_rows; r += MAX_ROWS) {
        const int8_t *lo = j->x.q[1];
        uint64_t first = r * j->x.q_stride;
        struct input x = {j->x.q[0] + first, lo ? lo + first : NULL, j->x.q_stride};
        multiply_rows(j, &x, r, j->n_rows - r < MAX_ROWS ? j->n_rows - r : MAX_ROWS);
    }
}

static void multiply_job(const struct gemm_job *j) {
    if (is_float(j->type))
        multiply_float_job(j);
    else
        multiply_quantized(j);
}

static void unpack_tile(int type, const uint8_t *src, uint32_t n_cols, struct gemm_tile *tile) {
    unpack_k_block(type, src, n_cols, false, tile);
}

static void quantize_columns(const float *x, uint32_t n, int8_t *const q[2],
                             struct gemm_block *blocks) {
    quantize_row(x, n, q, blocks);
}

const struct gemm_isa gemm_neon = {"neon", quantize_columns, unpack_tile, multiply_job};
