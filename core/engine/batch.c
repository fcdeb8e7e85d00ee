/* batch.c - a plan becomes the arrays that model_forward reads: token ids, positions, slots, block
 * tables and the rows that come out. Owns the arrays, sized once. Worker thread. */
#include "core/base/mem.h"
#include "core/engine/engine_int.h"

#include <stdlib.h>
#include <string.h>

int step_batch_init(struct step_batch *b, const struct model_limits *limits) {
    uint64_t n_table = (uint64_t)limits->max_seqs * limits->table_stride;
    memset(b, 0, sizeof *b);
    b->limits = *limits;
    b->token_ids = mem_new(limits->max_rows, sizeof *b->token_ids);
    b->positions = mem_new(limits->max_rows, sizeof *b->positions);
    b->slots = mem_new(limits->max_rows, sizeof *b->slots);
    b->row_start = mem_new((uint64_t)limits->max_seqs + 1, sizeof *b->row_start);
    b->tables = mem_new(n_table, sizeof *b->tables);
    b->out_rows = mem_new(limits->max_rows, sizeof *b->out_rows);
    b->whole_rows = mem_new(limits->max_logit_rows, sizeof *b->whole_rows);
    b->hidden_rows = mem_new(limits->max_rows, sizeof *b->hidden_rows);
    b->first_out = mem_new(limits->max_seqs, sizeof *b->first_out);
    if (!b->token_ids || !b->positions || !b->slots || !b->row_start || !b->tables ||
        !b->out_rows || !b->whole_rows || !b->hidden_rows || !b->first_out)
        return ERR_NOMEM; /* step_batch_fini releases what is there */
    b->batch = (struct model_batch){
        .token_ids = b->token_ids,
        .positions = b->positions,
        .slots = b->slots,
        .row_start = b->row_start,
        .tables = b->tables,
        .out_rows = b->out_rows,
        .whole_rows = b->whole_rows,
    };
    return 0;
}

void step_batch_fini(struct step_batch *b) {
    free(b->token_ids);
    free(b->positions);
    free(b->slots);
    free(b->row_start);
    free(b->tables);
    free(b->out_rows);
    free(b->whole_rows);
    free(b->hidden_rows);
    free(b->first_out);
    memset(b, 0, sizeof *b);
}

static uint32_t max_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* The row's logits are wanted, or only as many of its first tokens as a draw looks at. */
static void want_logits(struct step_batch *b, const struct engine_stream *st, uint32_t row) {
    struct model_shape *s = &b->batch.shape;
    uint32_t n_top = st->seq.fresh ? 0 : st->n_draw;
    b->whole_rows[s->n_logit_rows] = !n_top;
    b->out_rows[s->n_logit_rows++] = (int32_t)row;
    s->n_top = max_u32(s->n_top, n_top);
}

static void fill_item(struct step_batch *b, const struct sched_item *item, const kv *cache) {
    const struct sched_seq *seq = item->seq;
    const struct engine_stream *st = stream_of(item->seq);
    struct model_shape *shape = &b->batch.shape;
    uint32_t row = shape->n_rows, s = shape->n_seqs;
    for (uint32_t i = 0; i < item->n_rows; i++, row++) {
        uint32_t pos = item->first + i;
        b->token_ids[row] = seq->tokens[pos];
        b->positions[row] = (int32_t)pos;
        b->slots[row] = kv_slot(cache, seq->kv, pos);
        if (!seq->pooled && (seq->fresh || (item->wants_logits && i + 1 == item->n_rows)))
            want_logits(b, st, row);
        if (seq->pooled && pooled_wants(&st->pooled, pos, seq->n_prompt))
            b->hidden_rows[shape->n_hidden_rows++] = (int32_t)row;
    }
    /* Entries behind the sequence's blocks are stale, and never read: no position reaches them. */
    memcpy(b->tables + (size_t)s * b->stride, kv_table(seq->kv),
           kv_seq_n_blocks(seq->kv) * sizeof *b->tables);
    shape->n_rows = row;
    shape->n_seqs = s + 1;
    b->row_start[s + 1] = (int32_t)row;
}

/* The step behind this one, if nothing comes and nobody leaves before his time: each sequence's
 * next token. No guess while somebody has prompt left to compute. */
static struct model_shape guess_next(const struct sched_plan *plan) {
    struct model_shape next = {0};
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const struct sched_item *item = &plan->items[i];
        const struct engine_stream *st = stream_of(item->seq);
        if (item->seq->pooled && item->wants_logits) continue; /* its last */
        if (!item->wants_logits) return (struct model_shape){0};
        if (st->n_generated + 1 >= st->max_tokens) continue;
        next.n_rows++;
        next.n_top = max_u32(next.n_top, st->n_draw);
        next.max_context = max_u32(next.max_context, item->first + item->n_rows + 1);
    }
    next.n_seqs = next.n_logit_rows = next.n_rows;
    return next;
}

void step_batch_fill(struct step_batch *b, const struct sched_plan *plan, const kv *cache) {
    struct model_batch *m = &b->batch;
    m->shape = (struct model_shape){0};
    m->next = guess_next(plan);
    m->kv = kv_layers(cache);
    b->row_start[0] = 0;
    for (uint32_t i = 0; i < plan->n_items; i++)
        m->shape.max_context =
            max_u32(m->shape.max_context, plan->items[i].first + plan->items[i].n_rows);
    b->stride = model_table_stride(&b->limits, m->shape.max_context, m->kv[0].block_tokens);
    for (uint32_t i = 0; i < plan->n_items; i++) {
        b->first_out[i] =
            plan->items[i].seq->pooled ? m->shape.n_hidden_rows : m->shape.n_logit_rows;
        fill_item(b, &plan->items[i], cache);
    }
    memcpy(b->out_rows + m->shape.n_logit_rows, b->hidden_rows,
           m->shape.n_hidden_rows * sizeof *b->out_rows);
}
