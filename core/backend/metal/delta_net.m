/* delta_net.m - launches of linear attention (gated delta nets and Mamba-2): the convolution of all
 * rows, each V head of each sequence, the norm of Mamba-2's groups, and what the next step reads of
 * the inputs. Owns nothing. */
#include "core/backend/metal/metal_int.h"

#include <math.h>
#include <string.h>

/* Shared by the dispatches of one op. */
struct delta_op {
    const struct op_linear_attention *a;
    struct margs_delta_net args;
    bool delta, single; /* not Mamba-2; each sequence has one row */
    uint64_t channels;
    uint64_t in_row, out_row, state; /* bytes of a row of channels, of a row of V heads, of S */
    uint64_t decays;                 /* bytes of a row of decays */
};

static struct delta_op make_op(const struct op_linear_attention *a) {
    const struct backend_state *s = &a->state;
    const uint64_t channels = backend_state_channels(s);
    const uint64_t out_row = (uint64_t)s->n_v_heads * s->v_dim * sizeof(float);
    return (struct delta_op){.a = a,
                             .args = {.state = args_state_of(s, a->n_seqs),
                                      .n_k_heads = s->n_k_heads,
                                      .n_v_heads = s->n_v_heads,
                                      .tiled = a->tiled,
                                      .eps = a->eps,
                                      .q_scale = 1 / sqrtf((float)s->k_dim),
                                      .has_conv_bias = a->conv_bias != NULL,
                                      .n_norm_groups = a->n_norm_groups,
                                      .apart = a->k != NULL},
                             .delta = a->beta != NULL,
                             .single = a->n_rows == a->n_seqs,
                             .channels = channels,
                             .in_row = channels * sizeof(float),
                             .out_row = out_row,
                             .state = out_row * s->k_dim,
                             .decays =
                                 (uint64_t)s->n_v_heads * backend_state_decays(s) * sizeof(float)};
}

/* Completes l by what the dispatches share. */
static int dispatch(struct metal_backend *m, const struct delta_op *o, struct metal_launch l) {
    const struct backend_state *s = &o->a->state;
    const struct metal_const consts[] = {METAL_STATE_CONSTS(s, o->single),
                                         {MARGS_DELTA_K_DIM, s->k_dim},
                                         {MARGS_DELTA_V_DIM, s->v_dim},
                                         {MARGS_DELTA_RULE, s->channel_decay ? ARGS_RULE_CHANNELS
                                                            : o->delta       ? ARGS_RULE_DELTA
                                                                             : ARGS_RULE_MAMBA2}};
    _Static_assert(sizeof consts / sizeof consts[0] == MARGS_DELTA_N_CONSTS, "all constants");
    memcpy(l.consts, consts, sizeof consts);
    l.n_consts = MARGS_DELTA_N_CONSTS;
    l.args = &o->args;
    l.args_bytes = sizeof o->args;
    return metal_dispatch(m, &l);
}

/* Threadgroups of delta_conv and delta_keep for all channels. */
static uint32_t conv_groups(const struct delta_op *o) {
    const uint32_t part = o->delta ? o->a->state.k_dim : BACKEND_STATE_MAX_V_DIM;
    return metal_div_up(metal_div_up(o->channels, part), MARGS_DELTA_SIMDGROUPS);
}

static int dispatch_conv(struct metal_backend *m, const struct delta_op *o) {
    const struct op_linear_attention *a = o->a;
    const uint64_t windows = a->n_seqs * (a->state.n_taps - 1) * o->in_row;
    return dispatch(
        m, o,
        (struct metal_launch){
            .kernel = "delta_conv",
            .n_binds = 12,
            .binds = {metal_at(a->qkv), metal_at_or(a->k, a->qkv), metal_at_or(a->v, a->qkv),
                      metal_weight_at(a->conv), metal_weight_at(a->conv_k ? a->conv_k : a->conv),
                      metal_weight_at(a->conv_v ? a->conv_v : a->conv),
                      metal_weight_at(a->conv_bias ? a->conv_bias : a->conv), metal_at(a->pos),
                      metal_at(a->row_start), metal_at(a->tables), metal_at(a->state.blocks),
                      metal_at(a->work)},
            .groups = {conv_groups(o), a->n_rows, 1},
            .threads = {MARGS_DELTA_SIMDGROUPS * METAL_SIMD, 1, 1},
            .read = (a->n_rows + a->state.n_taps) * o->in_row + windows,
            .written = a->n_rows * o->in_row + (o->single ? windows : 0),
        });
}

/* struct tile of delta_net.metal; a boundary needs room for MARGS_DELTA_FOLD rows of K. */
static uint32_t tile_bytes(const struct delta_op *o) {
    const struct backend_state *s = &o->a->state;
    const uint32_t n = o->single ? 1 : MARGS_DELTA_ROWS, each = o->delta ? 2 : 1;
    const uint32_t rows = 2 * n * s->k_dim + MARGS_DELTA_QUARTERS * each * n * s->v_dim;
    const uint32_t fold = MARGS_DELTA_FOLD * s->k_dim;
    const uint32_t g = s->channel_decay ? n * s->k_dim : s->chunk;
    const uint32_t floats = g + MARGS_DELTA_ROWS + 2 * n * s->chunk + (rows > fold ? rows : fold);
    return floats * (uint32_t)sizeof(float); /* all parts are multiples of 16 */
}

/* Counts traffic as if every sequence had half a chunk of pending rows. */
static int dispatch_run(struct metal_backend *m, const struct delta_op *o) {
    const struct op_linear_attention *a = o->a;
    const struct backend_state *s = &a->state;
    const uint64_t k_row = (uint64_t)s->n_k_heads * s->k_dim * sizeof(float);
    const uint64_t pending = a->n_seqs * (k_row + o->out_row + o->decays) * s->chunk / 2;
    const uint64_t folds = o->single ? a->n_seqs / s->chunk : a->n_seqs;
    return dispatch(
        m, o,
        (struct metal_launch){
            .kernel = "delta_run",
            .n_binds = 13,
            .binds = {metal_at(a->work), metal_at(a->z), metal_at(a->alpha),
                      metal_at_or(a->beta, a->alpha), metal_at(a->pos), metal_at(a->row_start),
                      metal_at(a->tables), metal_weight_at(a->a), metal_weight_at(a->dt_bias),
                      metal_weight_at(o->delta ? a->norm : a->a),
                      metal_weight_at(o->delta ? a->a : a->skip), metal_at(s->blocks),
                      metal_at(a->out)},
            .tg_bytes = tile_bytes(o),
            .groups = {s->n_v_heads, a->n_seqs, 1},
            .threads = {MARGS_DELTA_QUARTERS * s->v_dim, 1, 1},
            .read =
                a->n_rows * (o->in_row + o->out_row + o->decays) + a->n_seqs * o->state + pending,
            .written = a->n_rows * (2 * o->out_row + o->decays) + folds * o->state,
        });
}

static int dispatch_norm(struct metal_backend *m, const struct delta_op *o) {
    const struct op_linear_attention *a = o->a;
    return dispatch(m, o,
                    (struct metal_launch){
                        .kernel = "mamba2_norm",
                        .n_binds = 2,
                        .binds = {metal_weight_at(a->norm), metal_at(a->out)},
                        .groups = {a->n_norm_groups, a->n_rows, 1},
                        .threads = {MARGS_DELTA_NORM, 1, 1},
                        .read = (a->n_rows + 1) * o->out_row,
                        .written = a->n_rows * o->out_row,
                    });
}

static int dispatch_keep(struct metal_backend *m, const struct delta_op *o) {
    const struct op_linear_attention *a = o->a;
    const uint64_t bytes = a->n_seqs * a->state.n_taps * o->in_row;
    return dispatch(
        m, o,
        (struct metal_launch){
            .kernel = "delta_keep",
            .n_binds = 8,
            .binds = {metal_at(a->qkv), metal_at_or(a->k, a->qkv), metal_at_or(a->v, a->qkv),
                      metal_at(a->pos), metal_at(a->row_start), metal_at(a->tables),
                      metal_at(a->work), metal_at(a->state.blocks)},
            .groups = {conv_groups(o), a->n_seqs, 1},
            .threads = {MARGS_DELTA_SIMDGROUPS * METAL_SIMD, 1, 1},
            .read = bytes,
            .written = bytes,
        });
}

int metal_linear_attention(backend *be, const struct op_linear_attention *a) {
    struct metal_backend *m = metal_of(be);
    const struct delta_op o = make_op(a);
    int rc = dispatch_conv(m, &o);
    if (!rc) rc = dispatch_run(m, &o);
    if (!rc && !o.delta && a->norm) rc = dispatch_norm(m, &o);
    return rc || o.single ? rc : dispatch_keep(m, &o);
}
