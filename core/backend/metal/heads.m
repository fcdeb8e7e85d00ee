/* heads.m - launches of op_linear_heads: one product for each head, in one dispatch. Owns nothing.
 */
#include "core/backend/metal/metal_int.h"

enum {
    VECTOR_ROWS = 8, /* most rows of the vector family, as in linear.m */
    WIDTH = 2        /* weight rows of a lane */
};

static uint32_t vector_rows(uint32_t n_rows) {
    return n_rows == 1 ? 1 : n_rows == 2 ? 2 : n_rows <= 4 ? 4 : VECTOR_ROWS;
}

int metal_linear_heads(backend *be, const struct op_linear_heads *a) {
    struct metal_backend *m = metal_of(be);
    const backend_weight *w = a->w;
    const bool tiles = metal_takes_tiles(m, a->n_rows > VECTOR_ROWS);
    const uint32_t rows = !tiles           ? vector_rows(a->n_rows)
                          : a->n_rows > 16 ? 32
                          : a->n_rows > 8  ? 16
                                           : 8;
    const uint32_t tile =
        tiles ? MARGS_PRODUCT_TILE : MARGS_LINEAR_SIMDGROUPS * MARGS_PRODUCT_SLOTS * WIDTH;
    const uint32_t n_heads = (uint32_t)w->n_experts, n_passes = metal_div_up(a->n_rows, rows);
    const struct margs_heads args = {.linear = {.n_rows = a->n_rows,
                                                .n_in = (uint32_t)w->n_in,
                                                .n_out = {(uint32_t)w->n_out},
                                                .row_bytes = {metal_row_bytes(w)}},
                                     .n_heads = n_heads,
                                     .n_tail = a->n_tail};
    const uint64_t pairs = (uint64_t)a->n_rows * n_heads;
    return metal_dispatch(
        m,
        &(struct metal_launch){
            .kernel = tiles ? metal_tile_kernel(m, "heads_matrix", "heads_plain") : "heads_vector",
            .n_consts = MARGS_LINEAR_N_CONSTS,
            .consts = {{MARGS_LINEAR_TYPE, (uint32_t)w->type},
                       {MARGS_LINEAR_TYPE_UP, (uint32_t)w->type},
                       {MARGS_LINEAR_N_WEIGHTS, 1},
                       {MARGS_LINEAR_ACT, BACKEND_ACT_NONE},
                       {MARGS_LINEAR_BIAS, 0},
                       {MARGS_LINEAR_EDGE, w->n_in % 8 != 0},
                       {MARGS_LINEAR_SCALED, 0},
                       {MARGS_LINEAR_ROWS, rows},
                       {MARGS_LINEAR_WIDTH, WIDTH},
                       {MARGS_LINEAR_HALVES, metal_has_halves(m)}},
            .args = &args,
            .args_bytes = sizeof args,
            .n_binds = 3,
            .binds = {metal_at(a->x), metal_weight_at(w), metal_at(a->y)},
            .groups = {n_passes, metal_div_up(w->n_out, tile), n_heads},
            .threads = {tiles ? MARGS_PRODUCT_THREADS : MARGS_LINEAR_SIMDGROUPS * 32, 1, 1},
            .read = pairs * (w->n_in + a->n_tail) * sizeof(float) +
                    (tiles ? 1 : n_passes) * n_heads * w->n_out * metal_row_bytes(w),
            .written = pairs * (w->n_out + a->n_tail) * sizeof(float),
            .products = pairs * w->n_out * w->n_in,
            .cycles = tiles ? 0
                            : metal_product_cycles(
                                  w->type, rows, (uint64_t)n_passes * n_heads * w->n_out * w->n_in),
        });
}
