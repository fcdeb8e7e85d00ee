/* gemm_neon.c - matrix products with NEON and the dot product instructions of Armv8.2.
 *
 * A tile's group of four columns is four registers of four outputs; an activation's four columns
 * are one lane of a register that holds 16 columns of a row. Four rows and eight outputs at a time
 * keep sums and results in registers over the whole stretch; one or two rows take 16 outputs. Pure
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

ALWAYS_INLINE void multiply_group(const struct gemm_job *j, const struct input *x,
                                  const struct spot *at, struct group_form f) {
    const int8_t *w = (const int8_t *)at->tile->q[0][at->out];
    struct accs a, t;
    struct sums s;
    load_accs(&a, j, at->acc, f);
    for (uint32_t b = 0; b < j->n_cols / GEMM_BLOCK; b++) {
        const float *scale = at->tile->scale[f.halves ? 2 * b : b] + at->out;
        sum_columns(&s, x, w, b * GEMM_BLOCK, f.halves, f);
        scale_sums(&t, &s, scale, false, f);
        if (f.halves) {
            sum_columns(&s, x, w, b * GEMM_BLOCK + 16, true, f);
            scale_sums(&t, &s, scale + GEMM_OUTS, true, f);
        }
        end_block(&a, &t, j, at, b, f);
    }
    store_accs(&a, at->acc, f);
}

/* A function for each number of rows and each form: what is constant in it stays so with every
 * compiler. */
typedef void group_fn(const struct gemm_job *j, const struct input *x, const struct spot *at);

#define GROUP(name, rows, quads, has_halves, has_mins)                                             \
    static void name(const struct gemm_job *j, const struct input *x, const struct spot *at) {     \
        const struct group_form f = {rows, quads, has_halves, has_mins};                           \
        multiply_group(j, x, at, f);                                                               \
    }

#define GROUPS(name, has_halves, has_mins)                                                         \
    GROUP(name##_1, 1, 4, has_halves, has_mins)                                                    \
    GROUP(name##_2, 2, 4, has_halves, has_mins)                                                    \
    GROUP(name##_3, 3, 2, has_halves, has_mins)                                                    \
    GROUP(name##_4, 4, 2, has_halves, has_mins)                                                    \
    static group_fn *const name[MAX_ROWS] = {name##_1, name##_2, name##_3, name##_4};

GROUPS(plain, false, false)
GROUPS(with_mins, false, true)
GROUPS(halves, true, false)
GROUPS(halves_with_mins, true, true)

static void multiply_quantized(const struct gemm_job *j) {
    group_fn *const *groups = has_halves(j->type) ? (has_mins(j->type) ? halves_with_mins : halves)
                                                  : (has_mins(j->type) ? with_mins : plain);
    for (uint32_t r = 0; r < j->n_rows; r += MAX_ROWS) {
        uint32_t n_rows = j->n_rows - r < MAX_ROWS ? j->n_rows - r : MAX_ROWS;
        uint32_t n_outs = n_rows > 2 ? 8 : 16;
        const int8_t *lo = j->x.q[1];
        uint64_t first = r * j->x.q_stride;
        struct input x = {j->x.q[0] + first, lo ? lo + first : NULL, j->x.q_stride};
        for (uint32_t o = 0; o < j->n_panels * GEMM_OUTS; o += n_outs) {
            struct spot at = {&j->tile[o / GEMM_OUTS], o % GEMM_OUTS,
                              j->acc + r * GEMM_PANELS * GEMM_OUTS + o,
                              j->x.blocks + r * j->x.blocks_stride};
            groups[n_rows - 1](j, &x, &at);
        }
    }
}

static void multiply(const struct gemm_job *j) {
    if (is_float(j->type))
        multiply_float_job(j);
    else
        multiply_quantized(j);
}

static void unpack(int type, const uint8_t *src, uint32_t n_cols, struct gemm_tile *tile) {
    unpack_stretch(type, src, n_cols, false, tile);
}

static void quantize(const float *x, uint32_t n, int8_t *const q[2], struct gemm_block *blocks) {
    quantize_row(x, n, q, blocks);
}

const struct gemm_isa gemm_neon = {"neon", quantize, unpack, multiply};
