/* batch.c - turns a plan into the arrays that model_forward reads: token ids, positions, slots,
 * block tables, rows whose results are needed, and how to sample. Owns the arrays, which are
 * allocated once. Worker thread. */
#include "core/base/mem.h"
#include "core/base/min_max.h"
#include "core/engine/engine_int.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* An array of struct step_batch: n elements of size bytes, whose pointer is at offset. */
struct batch_array {
    size_t offset, size;
    uint64_t n;
};
enum { N_ARRAYS = 18 };

static void list_arrays(const struct model_limits *l, struct batch_array out[N_ARRAYS]) {
#define ARRAY(member, count)                                                                       \
    { offsetof(struct step_batch, member), sizeof *((struct step_batch *)NULL)->member, count }
    const struct batch_array all[] = {
        ARRAY(token_ids, l->max_rows),
        ARRAY(positions, l->max_rows),
        ARRAY(types, l->max_rows),
        ARRAY(slots, l->max_rows),
        ARRAY(row_start, (uint64_t)l->max_seqs + 1),
        ARRAY(tables, (uint64_t)l->max_seqs * l->table_stride),
        ARRAY(window_slots, l->window_tables ? l->max_rows : 1),
        ARRAY(window_tables, l->window_tables ? (uint64_t)l->max_seqs * l->table_stride : 1),
        ARRAY(state_tables, 2 * (uint64_t)l->max_seqs),
        ARRAY(out_rows, l->max_rows),
        ARRAY(need_logits, l->max_logit_rows),
        ARRAY(sample_on_host, l->max_logit_rows),
        ARRAY(sampling, l->max_logit_rows),
        ARRAY(history, l->max_history),
        ARRAY(hidden_rows, l->max_rows),
        ARRAY(first_out, l->max_seqs),
        ARRAY(token_copies, 2 * (uint64_t)l->max_seqs),
        ARRAY(history_updates, l->max_seqs),
    };
#undef ARRAY
    _Static_assert(sizeof all / sizeof all[0] == N_ARRAYS, "every array is listed");
    memcpy(out, all, sizeof all);
}

int step_batch_init(struct step_batch *b, const struct model_limits *limits) {
    struct batch_array arrays[N_ARRAYS];
    memset(b, 0, sizeof *b);
    b->limits = *limits;
    list_arrays(limits, arrays);
    for (size_t i = 0; i < N_ARRAYS; i++) {
        void *memory = mem_new(arrays[i].n, arrays[i].size);
        if (!memory) return ERR_NOMEM; /* step_batch_fini frees the others */
        memcpy((char *)b + arrays[i].offset, &memory, sizeof memory);
    }
    b->batch = (struct model_batch){
        .token_ids = b->token_ids,
        .positions = b->positions,
        .types = b->types,
        .slots = b->slots,
        .row_start = b->row_start,
        .tables = b->tables,
        .window_slots = b->window_slots,
        .window_tables = b->window_tables,
        .state_tables = b->state_tables,
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
    struct batch_array arrays[N_ARRAYS];
    list_arrays(&b->limits, arrays);
    for (size_t i = 0; i < N_ARRAYS; i++) {
        void *memory;
        memcpy(&memory, (char *)b + arrays[i].offset, sizeof memory);
        free(memory);
    }
    memset(b, 0, sizeof *b);
}

/* Adds st's penalty history: with a repetition penalty all its tokens, otherwise the generated
 * ones. If a penalised token is still to be sampled by the previous step, the history gets an
 * unused entry for it, and an update. false: the history does not fit. */
static bool add_history(struct step_batch *b, const struct engine_stream *st,
                        struct backend_sampling *sampling) {
    const struct penalty_history *history = &st->history;
    struct model_batch *m = &b->batch;
    uint32_t n = m->n_history, first = n;
    bool all = st->params.sampling.repetition_penalty != 1.0f;
    if (!sampler_has_penalty(&st->params)) return true;
    for (uint32_t i = 0; i < history->n_distinct; i++) {
        if (!all && !history->counts[i]) continue;
        if (n == b->limits.max_history) return false;
        b->history[n++] = (struct backend_penalty_entry){.token = history->ids[i],
                                                         .count = (int32_t)history->counts[i]};
    }
    if (st->seq.has_placeholder) {
        if (n == b->limits.max_history) return false;
        b->history_updates[m->n_history_updates++] = (struct backend_history_update){
            .first = (int32_t)first, .n = (int32_t)(n - first), .from = (int32_t)st->logits_row};
        b->history[n++] = (struct backend_penalty_entry){.token = -1, .count = -1, .scratch = -1};
    }
    sampling->first_history = first;
    sampling->n_history = n - first;
    m->n_history = n;
    return true;
}

/* The device samples st's token from logit row i. If the history does not fit, the host samples and
 * the device only computes the row's log_sum. */
static void request_sample(struct step_batch *b, const struct engine_stream *st, uint32_t i) {
    struct backend_sampling s = {.params = st->params.sampling,
                                 .seed = {(uint32_t)st->seed, (uint32_t)(st->seed >> 32)},
                                 .index = {st->n_generated + st->seq.has_placeholder, 0}};
    b->sample_on_host[i] = !add_history(b, st, &s);
    if (b->sample_on_host[i]) {
        b->need_logits[i] = true;
        s = (struct backend_sampling){.params = sampling_default()};
        s.params.temperature = 0;
    }
    b->sampling[i] = s;
    b->batch.shape.samples = true;
}

/* Requests the results of a row: the sampled token, if the device samples and `next` says that the
 * row predicts the sequence's next token; otherwise its logits or its n_row_top best tokens. */
static void request_results(struct step_batch *b, const struct engine_stream *st, uint32_t row,
                            bool next) {
    struct model_shape *s = &b->batch.shape;
    uint32_t i = s->n_logit_rows++;
    bool sampled = next && st->on_device;
    uint32_t n_top = st->seq.all_rows && !sampled ? 0 : st->n_row_top;
    b->need_logits[i] = st->seq.all_rows || (!sampled && !n_top);
    b->sample_on_host[i] = false;
    b->sampling[i] = (struct backend_sampling){.params.temperature = -1};
    b->out_rows[i] = (int32_t)row;
    if (sampled) request_sample(b, st, i);
    s->n_top = max_u32(s->n_top, n_top);
}

/* The row's token is a placeholder: it is copied from the previous step's results. Sampled tokens
 * come first in the list; the others wait from max_seqs on until the batch is complete. */
static void add_token_copy(struct step_batch *b, const struct engine_stream *st, uint32_t row) {
    struct model_batch *m = &b->batch;
    uint32_t n_others = m->n_token_copies - m->n_sampled_copies;
    uint32_t at = st->on_device ? m->n_sampled_copies++ : b->limits.max_seqs + n_others;
    b->token_copies[at] =
        (struct backend_token_copy){.to = (int32_t)row, .from = (int32_t)st->logits_row};
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
        b->types[row] = st->second_from && pos >= st->second_from;
        b->slots[row] = kv_slot(cache, seq->kv, pos);
        if (b->limits.window_tables) b->window_slots[row] = kv_window_slot(cache, seq->kv, pos);
        bool next = item->wants_logits && i + 1 == item->n_rows;
        if (seq->has_placeholder && pos + 1 == seq->n_tokens) add_token_copy(b, st, row);
        uint32_t logits_row = shape->n_logit_rows;
        if (!seq->pooled && (seq->all_rows || next)) request_results(b, st, row, next);
        if (next) st->logits_row = logits_row;
        if (seq->pooled && pooled_wants(&st->pooled, pos, seq->n_prompt))
            b->hidden_rows[shape->n_hidden_rows++] = (int32_t)row;
    }
    /* Table entries after the sequence's blocks are stale and never read: no position needs them.
     */
    memcpy(b->tables + (size_t)s * b->stride, kv_table(seq->kv),
           kv_seq_n_blocks(seq->kv) * sizeof *b->tables);
    if (b->limits.window_tables) kv_window_table(seq->kv, b->window_tables + (size_t)s * b->stride);
    kv_state_ids(seq->kv, b->state_tables + 2 * (size_t)s); /* not read without state layers */
    shape->n_rows = row;
    shape->n_seqs = s + 1;
    b->row_start[s + 1] = (int32_t)row;
}

/* Predicts the next step's shape, assuming no arrivals and no early stops: one token for each
 * sequence. No prediction (n_rows 0) while a prompt is incomplete. */
static struct model_shape predict_next(const struct sched_plan *plan) {
    struct model_shape next = {0};
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const struct sched_item *item = &plan->items[i];
        const struct engine_stream *st = stream_of(item->seq);
        if (item->seq->pooled && item->wants_logits) continue; /* its last step */
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
    m->next = predict_next(plan);
    m->n_history = m->n_token_copies = m->n_sampled_copies = m->n_history_updates = 0;
    m->kv = kv_layers(cache);
    m->states = kv_states(cache);
    b->row_start[0] = 0;
    for (uint32_t i = 0; i < plan->n_items; i++)
        m->shape.max_context =
            max_u32(m->shape.max_context, plan->items[i].first + plan->items[i].n_rows);
    b->stride = model_table_stride(&b->limits, m->shape.max_context, kv_block_tokens(cache));
    for (uint32_t i = 0; i < plan->n_items; i++) {
        b->first_out[i] =
            plan->items[i].seq->pooled ? m->shape.n_hidden_rows : m->shape.n_logit_rows;
        fill_item(b, &plan->items[i], cache);
    }
    memmove(b->token_copies + m->n_sampled_copies, b->token_copies + b->limits.max_seqs,
            (m->n_token_copies - m->n_sampled_copies) * sizeof *b->token_copies);
    memcpy(b->out_rows + m->shape.n_logit_rows, b->hidden_rows,
           m->shape.n_hidden_rows * sizeof *b->out_rows);
}
