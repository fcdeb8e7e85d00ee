/* top.m - launches of top, the k largest logits of each row. Owns the scratch for candidates. */
#include "core/backend/metal/metal_int.h"

enum {
    SLICE_COLS = 8192, /* columns of a slice: enough threadgroups for one row of a vocabulary */
    MAX_SLICES = 64,   /* of a row; longer rows have wider slices */
    PASS_ROWS = 64     /* rows of a pass: the scratch has room for their candidates */
};

static uint32_t pass_rows(uint32_t n_rows) {
    return n_rows < PASS_ROWS ? n_rows : PASS_ROWS;
}

int metal_top_scratch(struct metal_backend *m, const struct backend_config *c, err *e) {
    uint64_t n = (uint64_t)pass_rows(c->max_rows) * MAX_SLICES * BACKEND_MAX_TOP;
    return backend_buf_new(&m->base, n * 2 * sizeof(uint32_t), &m->scratch[METAL_SCRATCH_TOP], e);
}

/* One of the two stages for n_rows rows. */
static int dispatch_top(struct metal_backend *m, const struct op_top *a,
                        const struct margs_top *args, uint32_t n_rows, bool merge) {
    const bool last = merge || args->op.n_slices == 1;
    const uint64_t rows = n_rows, lists = rows * args->op.n_slices * a->k * 2 * sizeof(uint32_t);
    const uint64_t results = rows * a->k * sizeof(uint32_t); /* ids; as many of values */
    const struct metal_launch launch = {
        .kernel = "top",
        .n_consts = 3,
        .consts = {{MARGS_TOP_SLOTS, a->k == 1 ? 0 : metal_div_up(a->k, 32)},
                   {MARGS_TOP_MERGE, merge},
                   {MARGS_TOP_LAST, last}},
        .args = args,
        .args_bytes = sizeof *args,
        .n_binds = 4,
        .binds = {metal_at(a->x), metal_at(m->scratch[METAL_SCRATCH_TOP]), metal_at(a->ids),
                  metal_at(a->values)},
        .groups = {merge ? 1 : args->op.n_slices, n_rows, 1},
        .threads = {32 * MARGS_TOP_SIMDGROUPS, 1, 1},
        .read = (merge ? lists : rows * a->n_cols * sizeof(float)) + (last ? results : 0),
        .written = last ? 2 * results : lists,
    };
    return metal_dispatch(m, &launch);
}

int metal_top(backend *be, const struct op_top *a) {
    struct metal_backend *m = metal_of(be);
    struct margs_top args = {.op = {.n_cols = a->n_cols, .k = a->k}};
    args.op.n_slices = metal_div_up(a->n_cols, SLICE_COLS);
    if (args.op.n_slices > MAX_SLICES) args.op.n_slices = MAX_SLICES;
    args.op.slice_cols = metal_div_up(a->n_cols, args.op.n_slices);
    int rc = 0;
    for (uint32_t n; args.first_row < a->n_rows && !rc; args.first_row += n) {
        n = pass_rows(a->n_rows - args.first_row);
        rc = dispatch_top(m, a, &args, n, false);
        if (!rc && args.op.n_slices > 1) rc = dispatch_top(m, a, &args, n, true);
    }
    return rc;
}
