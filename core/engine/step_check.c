/* step_check.c - are the arrays of a step that came from another process within the caches and
 * buffers of this one? What is outside is never computed with. Pure. */
#include "core/engine/step_check.h"

struct array {
    const char *name;
    const int32_t *values;
    uint64_t n;
    int64_t end; /* 0 <= value < end */
};

static int check_array(const struct array *a, err *e) {
    for (uint64_t i = 0; i < a->n; i++)
        if (a->values[i] < 0 || a->values[i] >= a->end)
            return err_set(e, ERR_FORMAT, "a step's %s has %d at %llu, which is outside", a->name,
                           (int)a->values[i], (unsigned long long)i);
    return 0;
}

/* Each sequence has rows, and they are all. */
static int check_starts(const struct step_batch *b, const struct model_shape *s, err *e) {
    bool fits = b->row_start[0] == 0 && b->row_start[s->n_seqs] == (int64_t)s->n_rows;
    for (uint32_t i = 0; i < s->n_seqs; i++)
        fits = fits && b->row_start[i] < b->row_start[i + 1];
    return fits ? 0
                : err_set(e, ERR_FORMAT, "a step's sequences do not have its %u rows", s->n_rows);
}

static int check_history(const struct step_batch *b, const struct model_shape *s,
                         uint32_t n_history, uint32_t n_vocab, err *e) {
    bool fits = true;
    for (uint32_t i = 0; s->samples && i < s->n_logit_rows; i++)
        fits =
            fits && (uint64_t)b->sampling[i].first_history + b->sampling[i].n_history <= n_history;
    for (uint32_t i = 0; i < n_history; i++)
        fits = fits && b->history[i].token >= -1 && b->history[i].token < (int64_t)n_vocab;
    return fits ? 0 : err_set(e, ERR_FORMAT, "a step's penalty history is outside");
}

int step_check(const struct step_bounds *is, const struct step_batch *b,
               const struct model_shape *s, uint32_t n_history, err *e) {
    const uint64_t tables = (uint64_t)s->n_seqs * b->stride, rows = s->n_rows;
    const bool windows = b->limits.window_tables;
    if (s->max_context > (uint64_t)b->limits.table_stride * is->block_tokens ||
        b->stride != model_table_stride(&b->limits, s->max_context, is->block_tokens))
        return err_set(e, ERR_FORMAT, "a step has tables of %u blocks for %u tokens", b->stride,
                       s->max_context);
    /* Entries after a sequence's blocks are not read, but are numbers of blocks, too. */
    const struct array all[] = {
        {"tokens", b->token_ids, rows, is->n_vocab},
        {"positions", b->positions, rows, s->max_context},
        {"slots", b->slots, rows, (int64_t)is->n_blocks * is->block_tokens},
        {"tables", b->tables, tables, is->n_blocks},
        {"window slots", b->window_slots, windows ? rows : 0,
         (int64_t)is->n_windows * is->block_tokens},
        {"window tables", b->window_tables, windows ? tables : 0, is->n_windows},
        {"states", b->state_tables, is->n_states ? 2 * (uint64_t)s->n_seqs : 0, is->n_states},
        {"rows of results", b->out_rows, (uint64_t)s->n_logit_rows + s->n_hidden_rows, s->n_rows},
    };
    int rc = check_starts(b, s, e);
    for (size_t i = 0; i < sizeof all / sizeof all[0] && !rc; i++)
        rc = check_array(&all[i], e);
    return rc ? rc : check_history(b, s, n_history, is->n_vocab, e);
}

int step_check_copies(const int32_t *pairs, uint64_t n, uint32_t n_blocks, err *e) {
    const struct array copies = {"copies", pairs, 2 * n, n_blocks};
    return check_array(&copies, e);
}
