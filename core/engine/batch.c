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
    b->need_logits = mem_new(limits->max_logit_rows, sizeof *b->need_logits);
    b->sample_on_host = mem_new(limits->max_logit_rows, sizeof *b->sample_on_host);
    b->sampling = mem_new(limits->max_logit_rows, sizeof *b->sampling);
    b->history = mem_new(3 * (uint64_t)limits->max_history, sizeof *b->history);
    b->hidden_rows = mem_new(limits->max_rows, sizeof *b->hidden_rows);
    b->token_copies = mem_new(4 * (uint64_t)limits->max_seqs, sizeof *b->token_copies);
    b->history_updates = mem_new(3 * (uint64_t)limits->max_seqs, sizeof *b->history_updates);
    b->first_out = mem_new(limits->max_seqs, sizeof *b->first_out);
    if (!b->token_ids || !b->positions || !b->slots || !b->row_start || !b->tables ||
        !b->out_rows || !b->need_logits || !b->sample_on_host || !b->sampling || !b->history ||
        !b->hidden_rows || !b->first_out || !b->token_copies || !b->history_updates)
        return ERR_NOMEM; /* step_batch_fini releases what is there */
    b->batch = (struct model_batch){
        .token_ids = b->token_ids,
        .positions = b->positions,
        .slots = b->slots,
        .row_start = b->row_start,
        .tables = b->tables,
        .out_rows = b->out_rows,
        .need_logits = b->need_logits,
        .sampling = b->sampling,
        .history = b->history,
        .token_copies = b->token_copies,
        .history_updates = b->history_updates,
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
    free(b->need_logits);
    free(b->sample_on_host);
    free(b->sampling);
    free(b->history);
    free(b->hidden_rows);
    free(b->first_out);
    free(b->token_copies);
    free(b->history_updates);
    memset(b, 0, sizeof *b);
}

static uint32_t max_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* Brings what st's penalties look at: with a repetition penalty all tokens so far, else the
 * generated ones. false: there is no room for it. */
static bool put_history(struct step_batch *b, const struct engine_stream *st,
                        struct backend_sampling *d) {
    const struct penalty_history *history = &st->history;
    uint32_t n = b->batch.n_history, first = n;
    bool all = st->params.repetition_penalty != 1.0f;
    if (!sampler_has_penalty(&st->params)) return true;
    for (uint32_t i = 0; i < history->n_distinct; i++) {
        if (!all && !history->counts[i]) continue;
        if (n == b->limits.max_history) return false;
        int32_t *entry = &b->history[3 * (size_t)n++];
        entry[0] = history->ids[i];
        entry[1] = (int32_t)history->counts[i];
        entry[2] = 0;
    }
    if (st->seq.has_placeholder) { /* room for a token that the step in front draws */
        if (n == b->limits.max_history) return false;
        int32_t *recount = &b->history_updates[3 * (size_t)b->batch.n_history_updates++];
        recount[0] = (int32_t)first;
        recount[1] = (int32_t)(n - first);
        recount[2] = (int32_t)st->logits_row;
        memset(&b->history[3 * (size_t)n++], 0xff, 3 * sizeof *b->history); /* none */
    }
    d->first_history = first;
    d->n_history = n - first;
    b->batch.n_history = n;
    return true;
}

/* The device draws st's token from logit row i. Where it cannot, it only adds up the row. */
static void request_sample(struct step_batch *b, const struct engine_stream *st, uint32_t i) {
    const struct engine_params *p = &st->params;
    struct backend_sampling d = {.temperature = p->temperature,
                                 .top_p = p->top_p,
                                 .min_p = p->min_p,
                                 .repetition = p->repetition_penalty,
                                 .presence = p->presence_penalty,
                                 .frequency = p->frequency_penalty,
                                 .top_k = p->top_k,
                                 .seed = {(uint32_t)st->seed, (uint32_t)(st->seed >> 32)},
                                 .index = {st->n_generated + st->seq.has_placeholder, 0}};
    b->sample_on_host[i] = !put_history(b, st, &d);
    if (b->sample_on_host[i]) {
        b->need_logits[i] = true;
        d = (struct backend_sampling){.temperature = 0, .top_p = 1, .repetition = 1};
    }
    b->sampling[i] = d;
    b->batch.shape.samples = true;
}

/* Of the row are wanted: the token that is drawn from it, if next says that there is to be one and
 * the device draws it; its logits, or only so many of its first tokens. */
static void request_logits(struct step_batch *b, const struct engine_stream *st, uint32_t row,
                           bool next) {
    struct model_shape *s = &b->batch.shape;
    uint32_t i = s->n_logit_rows++;
    bool sampled = next && st->on_device;
    uint32_t n_top = st->seq.all_rows && !sampled ? 0 : st->n_row_top;
    b->need_logits[i] = st->seq.all_rows || (!sampled && !n_top);
    b->sample_on_host[i] = false;
    b->sampling[i] = (struct backend_sampling){.temperature = -1};
    b->out_rows[i] = (int32_t)row;
    if (sampled) request_sample(b, st, i);
    s->n_top = max_u32(s->n_top, n_top);
}

/* The token of this row is found by the step in front. */
static void copy_token_to(struct step_batch *b, const struct engine_stream *st, uint32_t row) {
    struct model_batch *m = &b->batch;
    uint32_t n_first = m->n_token_copies - m->n_sampled_copies;
    uint32_t at = st->on_device ? m->n_sampled_copies++ : b->limits.max_seqs + n_first;
    b->token_copies[2 * (size_t)at] = (int32_t)row;
    b->token_copies[2 * (size_t)at + 1] = (int32_t)st->logits_row;
    m->n_token_copies++;
}

static void fill_item(struct step_batch *b, const struct sched_item *item, const kv *cache) {
    const struct sched_seq *seq = item->seq;
    struct engine_stream *st = stream_of(item->seq);
    struct model_shape *shape = &b->batch.shape;
    uint32_t row = shape->n_rows, s = shape->n_seqs;
    for (uint32_t i = 0; i < item->n_rows; i++, row++) {
        uint32_t pos = item->first + i;
        b->token_ids[row] = seq->tokens[pos];
        b->positions[row] = (int32_t)pos;
        b->slots[row] = kv_slot(cache, seq->kv, pos);
        bool next = item->wants_logits && i + 1 == item->n_rows;
        if (seq->has_placeholder && pos + 1 == seq->n_tokens) copy_token_to(b, st, row);
        uint32_t logits_row = shape->n_logit_rows;
        if (!seq->pooled && (seq->all_rows || next)) request_logits(b, st, row, next);
        if (next) st->logits_row = logits_row;
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
        next.n_top = max_u32(next.n_top, st->n_row_top);
        next.samples |= st->on_device;
        next.max_context = max_u32(next.max_context, item->first + item->n_rows + 1);
    }
    next.n_seqs = next.n_logit_rows = next.n_rows;
    return next;
}

void step_batch_fill(struct step_batch *b, const struct sched_plan *plan, const kv *cache) {
    struct model_batch *m = &b->batch;
    m->shape = (struct model_shape){0};
    m->next = guess_next(plan);
    m->n_history = m->n_token_copies = m->n_sampled_copies = m->n_history_updates = 0;
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
    memmove(b->token_copies + 2 * (size_t)m->n_sampled_copies,
            b->token_copies + 2 * (size_t)b->limits.max_seqs,
            2 * (size_t)(m->n_token_copies - m->n_sampled_copies) * sizeof *b->token_copies);
    memcpy(b->out_rows + m->shape.n_logit_rows, b->hidden_rows,
           m->shape.n_hidden_rows * sizeof *b->out_rows);
}
