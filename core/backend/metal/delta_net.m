/* delta_net.m - launches of the gated delta net: the convolution of all rows, each V head of each
 * sequence, and what the next step reads of the inputs. Owns nothing. */
#include "core/backend/metal/metal_int.h"

#include <math.h>

/* Shared by the dispatches of one op. */
struct delta_op {
    const struct op_linear_attention *a;
    struct margs_delta_net args;
    struct metal_const consts[4];
    bool single;                     /* each sequence has one row */
    uint32_t n_heads;                /* of Q, K and V */
    uint64_t in_row, out_row, state; /* bytes of a row of channels, of a row of V heads, of S */
};

static struct delta_op make_op(const struct op_linear_attention *a) {
    const struct backend_state *s = &a->state;
    const bool single = a->n_rows == a->n_seqs;
    const uint64_t out_row = (uint64_t)s->n_v_heads * s->v_dim * sizeof(float);
    return (struct delta_op){.a = a,
                             .args = {.state = args_state_of(s, a->n_seqs),
                                      .n_k_heads = s->n_k_heads,
                                      .n_v_heads = s->n_v_heads,
                                      .tiled = a->tiled,
                                      .eps = a->eps,
                                      .q_scale = 1 / sqrtf((float)s->v_dim)},
                             .consts = {{MARGS_DELTA_DIM, s->v_dim},
                                        {MARGS_DELTA_CHUNK, s->chunk},
                                        {MARGS_DELTA_TAPS, s->n_taps},
                                        {MARGS_DELTA_SINGLE, single}},
                             .single = single,
                             .n_heads = 2 * s->n_k_heads + s->n_v_heads,
                             .in_row = backend_state_channels(s) * sizeof(float),
                             .out_row = out_row,
                             .state = out_row * s->v_dim};
}

static int dispatch_conv(struct metal_backend *m, const struct delta_op *o) {
    const struct op_linear_attention *a = o->a;
    const uint64_t windows = a->n_seqs * (a->state.n_taps - 1) * o->in_row;
    return metal_dispatch(
        m, &(struct metal_launch){
               .kernel = "delta_conv",
               .n_consts = 4,
               .consts = {o->consts[0], o->consts[1], o->consts[2], o->consts[3]},
               .args = &o->args,
               .args_bytes = sizeof o->args,
               .n_binds = 7,
               .binds = {metal_at(a->qkv), metal_weight_at(a->conv), metal_at(a->pos),
                         metal_at(a->row_start), metal_at(a->tables), metal_at(a->state.blocks),
                         metal_at(a->work)},
               .groups = {metal_div_up(o->n_heads, MARGS_DELTA_SIMDGROUPS), a->n_rows, 1},
               .threads = {MARGS_DELTA_SIMDGROUPS * METAL_SIMD, 1, 1},
               .read = (a->n_rows + a->state.n_taps) * o->in_row + windows,
               .written = a->n_rows * o->in_row + (o->single ? windows : 0),
           });
}

/* struct tile of delta_net.metal. */
static uint32_t tile_bytes(const struct delta_op *o) {
    const uint32_t n = o->single ? 1 : MARGS_DELTA_ROWS, chunk = o->a->state.chunk;
    const uint32_t floats =
        (2 + 2 * MARGS_DELTA_QUARTERS) * n * o->a->state.v_dim + chunk + n + 2 * n * chunk;
    return (floats * (uint32_t)sizeof(float) + 15) / 16 * 16;
}

/* Counts traffic as if every sequence had half a chunk of pending rows. */
static int dispatch_run(struct metal_backend *m, const struct delta_op *o) {
    const struct op_linear_attention *a = o->a;
    const struct backend_state *s = &a->state;
    const uint64_t pending = a->n_seqs * (o->in_row + o->out_row) / 2 * s->chunk / 2;
    const uint64_t folds = o->single ? a->n_seqs / s->chunk : a->n_seqs;
    return metal_dispatch(
        m, &(struct metal_launch){
               .kernel = "delta_run",
               .n_consts = 4,
               .consts = {o->consts[0], o->consts[1], o->consts[2], o->consts[3]},
               .args = &o->args,
               .args_bytes = sizeof o->args,
               .n_binds = 12,
               .binds = {metal_at(a->work), metal_at(a->z), metal_at(a->alpha), metal_at(a->beta),
                         metal_at(a->pos), metal_at(a->row_start), metal_at(a->tables),
                         metal_weight_at(a->a), metal_weight_at(a->dt_bias),
                         metal_weight_at(a->norm), metal_at(s->blocks), metal_at(a->out)},
               .tg_bytes = tile_bytes(o),
               .groups = {s->n_v_heads, a->n_seqs, 1},
               .threads = {MARGS_DELTA_QUARTERS * s->v_dim, 1, 1},
               .read = a->n_rows * (o->in_row + o->out_row) + a->n_seqs * o->state + pending,
               .written = 2 * a->n_rows * o->out_row + folds * o->state,
           });
}

static int dispatch_keep(struct metal_backend *m, const struct delta_op *o) {
    const struct op_linear_attention *a = o->a;
    const uint64_t bytes = a->n_seqs * a->state.n_taps * o->in_row;
    return metal_dispatch(
        m, &(struct metal_launch){
               .kernel = "delta_keep",
               .n_consts = 4,
               .consts = {o->consts[0], o->consts[1], o->consts[2], o->consts[3]},
               .args = &o->args,
               .args_bytes = sizeof o->args,
               .n_binds = 6,
               .binds = {metal_at(a->qkv), metal_at(a->pos), metal_at(a->row_start),
                         metal_at(a->tables), metal_at(a->work), metal_at(a->state.blocks)},
               .groups = {metal_div_up(o->n_heads, MARGS_DELTA_SIMDGROUPS), a->n_seqs, 1},
               .threads = {MARGS_DELTA_SIMDGROUPS * METAL_SIMD, 1, 1},
               .read = bytes,
               .written = bytes,
           });
}

int metal_linear_attention(backend *be, const struct op_linear_attention *a) {
    if (!a->beta) return ERR_UNSUPPORTED; /* model.c refuses Mamba-2 by name */
    struct metal_backend *m = metal_of(be);
    const struct delta_op o = make_op(a);
    int rc = dispatch_conv(m, &o);
    if (!rc) rc = dispatch_run(m, &o);
    return rc || o.single ? rc : dispatch_keep(m, &o);
}
