/* rows.m - launches of the ops that move rows or go over them once. Owns nothing. */
#include "core/backend/metal/metal_int.h"

static uint64_t row_bytes(const backend_weight *w) {
    uint64_t bytes = 0;
    qtype_bytes(w->type, 1, w->n_in, &bytes);
    return bytes;
}

int metal_embed(backend *be, const struct op_embed *a) {
    const backend_weight *t = a->table;
    const struct kargs_embed args = {.n_rows = a->n_rows,
                                     .n_cols = (uint32_t)t->n_in,
                                     .row_bytes = (uint32_t)row_bytes(t),
                                     .scale = a->scale};
    return metal_dispatch(metal_of(be),
                          &(struct metal_launch){
                              .kernel = "embed",
                              .n_consts = 1,
                              .consts = {{0, (uint32_t)t->type}},
                              .args = &args,
                              .args_bytes = sizeof args,
                              .n_binds = 3,
                              .binds = {metal_weight_at(t), metal_at(a->ids), metal_at(a->out)},
                              .groups = {metal_div_up(t->n_in, 8 * 64), a->n_rows, 1},
                              .threads = {64, 1, 1},
                              .read = a->n_rows * (args.row_bytes + sizeof(int32_t)),
                              .written = (uint64_t)a->n_rows * t->n_in * sizeof(float),
                          });
}

int metal_gather(backend *be, const struct op_gather *a) {
    const struct kargs_gather args = {
        .n_rows = a->n_out_rows, .n_cols = a->n_cols, .has_residual = a->residual != NULL};
    uint64_t bytes = (uint64_t)a->n_out_rows * a->n_cols * sizeof(float);
    return metal_dispatch(
        metal_of(be), &(struct metal_launch){
                          .kernel = "gather",
                          .args = &args,
                          .args_bytes = sizeof args,
                          .n_binds = 4,
                          .binds = {metal_at(a->x), metal_at_or(a->residual, a->x),
                                    metal_at(a->rows), metal_at(a->out)},
                          .groups = {metal_div_up(a->n_cols, 256), a->n_out_rows, 1},
                          .threads = {256, 1, 1},
                          .read = bytes * (a->residual ? 2 : 1) + a->n_out_rows * sizeof(int32_t),
                          .written = bytes,
                      });
}

int metal_top(backend *be, const struct op_top *a) {
    (void)be, (void)a;
    return ERR_UNSUPPORTED;
}

int metal_kv_copy(backend *be, const struct backend_kv *kv, const int32_t *pairs,
                  uint32_t n_pairs) {
    (void)be, (void)kv, (void)pairs, (void)n_pairs;
    return ERR_UNSUPPORTED;
}
