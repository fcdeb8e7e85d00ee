/* gemm_neon_groups.h - products of quantized weights, up to four rows of a task at once; shared by
 * gemm_neon.c and gemm_i8mm.c. A file that includes it defines first:
 *   struct input                            up to MAX_ROWS rows as its instruction reads them
 *   take_rows(x, from, row, n_rows, n_cols) x = rows row .. row + n_rows - 1
 *   PAIRED                                  how tiles are unpacked (unpack_k_block)
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

/* One function per number of rows and form, so that every compiler sees them as constants. */
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

/* Multiplies rows row .. row + n_rows - 1 of the job, loaded into x. */
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

static void multiply_quantized(const struct gemm_job *j) {
    struct input x;
    for (uint32_t r = 0; r < j->n_rows; r += MAX_ROWS) {
        uint32_t n_rows = j->n_rows - r < MAX_ROWS ? j->n_rows - r : MAX_ROWS;
        take_rows(&x, &j->x, r, n_rows, j->n_cols);
        multiply_rows(j, &x, r, n_rows);
    }
}

/* ---- the functions of struct gemm_isa ---- */

static void multiply_job(const struct gemm_job *j) {
    if (is_float(j->type))
        multiply_float_job(j);
    else
        multiply_quantized(j);
}

static void unpack_tile(int type, const uint8_t *src, uint32_t n_cols, struct gemm_tile *tile) {
    unpack_k_block(type, src, n_cols, PAIRED, tile);
}

static void quantize_columns(const float *x, uint32_t n, int8_t *const q[2],
                             struct gemm_block *blocks) {
    quantize_row(x, n, q, blocks);
}
