/* short_conv.m - launches of the short convolution: all rows, and in steps with several rows of a
 * sequence what the next step reads of the inputs. Owns nothing. */
#include "core/backend/metal/metal_int.h"

enum { THREADS = 128 };

int metal_short_conv(backend *be, const struct op_short_conv *a) {
    struct metal_backend *m = metal_of(be);
    const struct backend_state *s = &a->state;
    const bool single = a->n_rows == a->n_seqs;
    const struct margs_short_conv args = {.state = args_state_of(s, a->n_seqs),
                                          .channels = s->channels};
    const uint64_t row = s->channels * sizeof(float), window = (s->n_taps - 1) * row;
    const uint32_t n_groups = metal_div_up(s->channels, THREADS);
    const struct metal_launch rows = {
        .kernel = "short_conv",
        .n_consts = MARGS_STATE_N_CONSTS,
        .consts = {METAL_STATE_CONSTS(s, single)},
        .args = &args,
        .args_bytes = sizeof args,
        .n_binds = 7,
        .binds = {metal_at(a->bcx), metal_weight_at(a->conv), metal_at(a->pos),
                  metal_at(a->row_start), metal_at(a->tables), metal_at(s->blocks),
                  metal_at(a->out)},
        .groups = {n_groups, a->n_rows, 1},
        .threads = {THREADS, 1, 1},
        .read = (a->n_rows * 3 + s->n_taps) * row + a->n_seqs * window,
        .written = a->n_rows * row + (single ? a->n_seqs * window : 0),
    };
    const struct metal_launch keep = {
        .kernel = "short_conv_keep",
        .n_consts = MARGS_STATE_N_CONSTS,
        .consts = {METAL_STATE_CONSTS(s, single)},
        .args = &args,
        .args_bytes = sizeof args,
        .n_binds = 5,
        .binds = {metal_at(a->bcx), metal_at(a->pos), metal_at(a->row_start), metal_at(a->tables),
                  metal_at(s->blocks)},
        .groups = {n_groups, a->n_seqs, 1},
        .threads = {THREADS, 1, 1},
        .read = 2 * a->n_seqs * window,
        .written = a->n_seqs * window,
    };
    const int rc = metal_dispatch(m, &rows);
    return rc || single ? rc : metal_dispatch(m, &keep);
}
