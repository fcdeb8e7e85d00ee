/* gemm_neon_groups.h - products of quantized weights, up to four rows of a task at once; the part
 * that gemm_neon.c and gemm_i8mm.c share. A file that includes it defines first:
 *   struct input                            up to MAX_ROWS rows as its instruction reads them
 *   codes_at(at)                            the codes of outputs from at->out on, column 0
 *   sum_columns(s, x, w, c, half, f)        s = the integer sums of columns c .. c + 16 (half) or
 *                                           c + 32 of the rows in x and of the codes at w
 * Pure functions; any thread. */
#include "core/backend/cpu/gemm/gemm_neon_int.h"

ALWAYS_INLINE void multiply_group(const struct gemm_job *j, const struct input *x,
                                  const struct spot *at, struct group_form f) {
    const int8_t *w = codes_at(at);
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

/* Rows row .. row + n_rows of the job, which x holds. */
static void multiply_rows(const struct gemm_job *j, const struct input *x, uint32_t row,
                          uint32_t n_rows) {
    group_fn *const *groups = has_halves(j->type) ? (has_mins(j->type) ? halves_with_mins : halves)
                                                  : (has_mins(j->type) ? with_mins : plain);
    uint32_t n_outs = n_rows > 2 ? 8 : 16;
    for (uint32_t o = 0; o < j->n_panels * GEMM_OUTS; o += n_outs) {
        struct spot at = {&j->tile[o / GEMM_OUTS], o % GEMM_OUTS,
                          j->acc + row * GEMM_PANELS * GEMM_OUTS + o,
                          j->x.blocks + row * j->x.blocks_stride};
        groups[n_rows - 1](j, x, &at);
    }
}
