/* input.m - launches of input_rows, which prepares a product's input: residual addition and norms.
 * Owns the scratch for normed rows. */
#include "core/backend/metal/metal_int.h"

#include "core/base/mem.h"

enum { INPUT_THREADS = 1024, INPUT_MAX_COLS = MARGS_INPUT_MAX_VALUES * INPUT_THREADS };

int metal_input_scratch(struct metal_backend *m, const struct backend_config *c, err *e) {
    uint64_t bytes;
    if (!mem_mul(c->max_rows, c->max_cols, &bytes) || !mem_mul(bytes, sizeof(float), &bytes))
        return err_no_memory(e);
    return backend_buf_new(&m->base, bytes, &m->scratch[METAL_SCRATCH_IN], e);
}

/* A thread has 4 values of a short row, so that a single row keeps the memory busy. Depends only on
 * n_in, because it determines the order of the sums. */
static uint32_t input_threads(uint32_t n_in) {
    uint32_t n = metal_div_up(n_in, 4 * 32) * 32;
    return n < INPUT_THREADS ? n : INPUT_THREADS;
}

int metal_input(struct metal_backend *m, const struct op_input *in, uint32_t n_rows, uint32_t n_in,
                const backend_buf *out, struct metal_bind *rows) {
    const backend_buf *to = out ? out : m->scratch[METAL_SCRATCH_IN];
    uint64_t bytes = (uint64_t)n_rows * n_in * sizeof(float);
    uint32_t n_norms = !!in->residual_norm + !!in->norm + !!in->norm_bias;
    uint32_t threads = input_threads(n_in);
    const struct args_input args = {.n_in = n_in,
                                    .residual_scale =
                                        in->residual_scale != 0 ? in->residual_scale : 1,
                                    .eps = in->eps};
    struct metal_bind x = metal_at(in->x);
    if (!in->norm) *rows = x;
    if (in->norm) *rows = metal_at(to);
    if (!in->norm && !in->residual) return 0;
    if (n_in > INPUT_MAX_COLS) return ERR_UNSUPPORTED;
    return metal_dispatch(
        m, &(struct metal_launch){
               .kernel = "input_rows",
               .n_consts = 6,
               .consts = {{MARGS_INPUT_VALUES, metal_div_up(n_in, threads)},
                          {MARGS_INPUT_RESIDUAL, in->residual != NULL},
                          {MARGS_INPUT_RESIDUAL_NORM, in->residual_norm != NULL},
                          {MARGS_INPUT_NORM, in->norm != NULL},
                          {MARGS_INPUT_CENTRED, in->centred},
                          {MARGS_INPUT_BIAS, in->norm_bias != NULL}},
               .args = &args,
               .args_bytes = sizeof args,
               .n_binds = 6,
               .binds = {x, metal_at_or(in->residual, in->x),
                         in->residual_norm ? metal_weight_at(in->residual_norm) : x,
                         in->norm ? metal_weight_at(in->norm) : x, in->norm ? *rows : x,
                         in->norm_bias ? metal_weight_at(in->norm_bias) : x},
               .groups = {n_rows, 1, 1},
               .threads = {threads, 1, 1},
               .read = bytes * (1 + !!in->residual) + n_norms * n_in * sizeof(float),
               .written = bytes * (!!in->residual + !!in->norm),
           });
}

int metal_norm(backend *be, const struct op_norm *a) {
    struct metal_bind rows;
    return metal_input(metal_of(be), &a->in, a->n_rows, (uint32_t)a->in.norm->n_in, a->out, &rows);
}
