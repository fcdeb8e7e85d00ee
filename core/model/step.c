/* step.c - a step on the device: the upload of its arrays, the encoding of its ops, the download of
 * its results. A step allocates nothing. Runs on the engine's worker.
 *
 * Ops depend on a step's shape alone (transformer.c). So a device that encodes ahead gets the next
 * step, as the engine predicts it, while it runs this one; a step of another shape is encoded when
 * it comes. A device that keeps graphs runs every step in which each sequence has one row from the
 * graph of its shape; shapes are rounded up so that few graphs are needed, and padding rows fill
 * them. */
#include "core/model/model_int.h"

#include "core/base/min_max.h"

#include <string.h>

/* ---- shapes ---- */

static bool same_shape(const struct model_shape *a, const struct model_shape *b) {
    return a->n_rows == b->n_rows && a->n_seqs == b->n_seqs && a->n_logit_rows == b->n_logit_rows &&
           a->n_hidden_rows == b->n_hidden_rows && a->n_top == b->n_top &&
           a->max_context == b->max_context && a->samples == b->samples;
}

/* Shape s as ops get it: contexts in powers of two, so that consecutive steps have one shape. */
static struct model_shape round_context(const model *m, struct model_shape s,
                                        uint32_t block_tokens) {
    s.max_context = model_table_stride(&m->limits, s.max_context, block_tokens) * block_tokens;
    return s;
}

/* n rows rounded up; the more rows, the coarser, because padding then costs relatively little. */
static uint32_t round_rows(uint32_t n) {
    uint32_t step = n <= 4 ? 1 : n <= 8 ? 2 : n <= 32 ? 4 : n <= 128 ? 8 : n <= 256 ? 16 : 32;
    return (n + step - 1) / step * step;
}

static uint32_t round_top(uint32_t n) {
    static const uint32_t widths[] = {0, 1, 4, 16, 20, BACKEND_MAX_TOP};
    size_t i = 0;
    while (widths[i] < n)
        i++;
    return widths[i];
}

/* Does step s, whose context is rounded, run from a kept graph? If so, s becomes that graph's
 * shape.
 */
static bool round_to_graph(const model *m, struct model_shape *s) {
    const struct model_limits *lim = &m->limits;
    if (!backend_keeps_graphs(m->be) || s->n_rows != s->n_seqs || s->n_rows != s->n_logit_rows ||
        s->n_hidden_rows || s->n_rows > MODEL_MAX_KEPT_ROWS)
        return false;
    uint32_t most = min_u32(lim->max_rows, min_u32(lim->max_seqs, lim->max_logit_rows));
    s->n_rows = s->n_seqs = s->n_logit_rows = min_u32(round_rows(s->n_rows), most);
    s->n_top = min_u32(round_top(s->n_top), m->hp.n_vocab);
    return true;
}

/* Identifies a step's ops: its shape, this model and the cache (FNV-1a, 64 bits at a time). Not 0.
 */
static uint64_t graph_key(const model *m, const struct model_shape *s,
                          const struct model_pools *pools) {
    uint64_t hash = UINT64_C(14695981039346656037);
    const uint64_t words[] = {s->n_rows,  s->n_top,    s->max_context,
                              s->samples, m->identity, pools->kv->kv_type};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        hash = (hash ^ words[i]) * UINT64_C(1099511628211);
    for (uint32_t i = 0; i < m->hp.n_kv_layers; i++) {
        const struct backend_kv *kv = pools->kv;
        hash = (hash ^ (uintptr_t)kv[i].k) * UINT64_C(1099511628211);
        hash = (hash ^ (uintptr_t)kv[i].v) * UINT64_C(1099511628211);
        hash = (hash ^ kv[i].n_blocks) * UINT64_C(1099511628211);
    }
    for (uint32_t i = 0; i < m->hp.recurrent.n_layers; i++) {
        hash = (hash ^ (uintptr_t)pools->states[i].blocks) * UINT64_C(1099511628211);
        hash = (hash ^ pools->states[i].n_blocks) * UINT64_C(1099511628211);
    }
    return hash ? hash : 1;
}

/* ---- check and upload ---- */

static int check_token_copies(const model *m, const struct model_batch *in, err *e) {
    const struct model_step *previous = &m->in_flight[m->first_in_flight];
    uint32_t n = in->n_token_copies, n_sampled = in->n_sampled_copies;
    if (m->n_in_flight >= (model_overlaps(m) ? MODEL_MAX_STEPS : 1))
        return err_set(e, ERR_INVALID, "a step begins before the previous one is finished");
    if (!n) return 0;
    bool ok = m->n_in_flight && n_sampled <= n && n <= m->limits.max_seqs &&
              (!n_sampled || previous->now.samples) && (n == n_sampled || previous->now.n_top);
    for (uint32_t i = 0; i < n && ok; i++) {
        const struct backend_token_copy *c = &in->token_copies[i];
        ok = c->to >= 0 && (uint32_t)c->to < in->shape.n_rows && c->from >= 0 &&
             (uint32_t)c->from < previous->now.n_logit_rows;
    }
    return ok ? 0
              : err_set(e, ERR_INVALID,
                        "%u rows refer to tokens that the previous step does not sample", n);
}

static int check_history_updates(const model *m, const struct model_batch *in, err *e) {
    const struct model_step *previous = &m->in_flight[m->first_in_flight];
    bool ok = in->n_history_updates <= in->n_token_copies;
    for (uint32_t i = 0; i < in->n_history_updates && ok; i++) {
        const struct backend_history_update *u = &in->history_updates[i];
        ok = in->shape.samples && previous->now.samples && u->first >= 0 && u->n >= 0 &&
             u->from >= 0 && (uint64_t)(uint32_t)u->first + (uint32_t)u->n < in->n_history &&
             (uint32_t)u->from < previous->now.n_logit_rows;
    }
    return ok ? 0
              : err_set(e, ERR_INVALID,
                        "%u penalty histories refer to tokens that the previous step does not "
                        "sample",
                        in->n_history_updates);
}

static int check_batch(const model *m, const struct model_batch *in, err *e) {
    const struct model_limits *lim = &m->limits;
    const struct model_shape *s = &in->shape;
    if (s->n_rows > lim->max_rows || s->n_seqs > lim->max_seqs ||
        s->n_logit_rows > lim->max_logit_rows ||
        (uint64_t)s->n_logit_rows + s->n_hidden_rows > s->n_rows || s->n_top > BACKEND_MAX_TOP)
        return err_set(e, ERR_INVALID,
                       "a batch of %u rows, %u sequences, %u logit and %u hidden rows exceeds its "
                       "limits",
                       s->n_rows, s->n_seqs, s->n_logit_rows, s->n_hidden_rows);
    if (s->samples && (!lim->max_history || in->n_history > lim->max_history))
        return err_set(e, ERR_INVALID,
                       "a batch samples with a penalty history of %u tokens; its limit is %u",
                       in->n_history, lim->max_history);
    for (uint32_t i = 0; i < s->n_rows; i++)
        if (in->positions[i] < 0 || (uint32_t)in->positions[i] >= s->max_context)
            return err_set(e, ERR_INVALID, "position %d is not below the batch's %u",
                           (int)in->positions[i], s->max_context);
    const struct model_encoder *x = &m->hp.encoder;
    for (uint32_t i = 0; x->on && i < s->n_rows; i++)
        if ((x->n_types && (in->types[i] < 0 || (uint32_t)in->types[i] >= x->n_types)) ||
            (x->n_positions && (uint32_t)in->positions[i] >= x->n_positions))
            return err_set(e, ERR_INVALID, "row %u has a type or a position without embedding", i);
    int rc = check_token_copies(m, in, e);
    return rc ? rc : check_history_updates(m, in, e);
}

struct upload_list {
    struct backend_upload items[BACKEND_MAX_UPLOADS];
    uint32_t n;
};

static void add_upload(struct upload_list *u, backend_buf *to, uint64_t offset, const void *from,
                       uint64_t bytes) {
    if (bytes) u->items[u->n++] = (struct backend_upload){to, offset, bytes, from};
}

static void add_ints(struct upload_list *u, backend_buf *to, const int32_t *from, uint64_t n) {
    add_upload(u, to, 0, from, n * sizeof *from);
}

/* n values of src, then `fill` up to n_all values; padded is their scratch. */
static void add_padded(struct upload_list *u, backend_buf *to, const int32_t *src, uint32_t n,
                       int32_t *padded, uint32_t n_all, int32_t fill) {
    if (n < n_all) memcpy(padded, src, n * sizeof *src);
    for (uint32_t i = n; i < n_all; i++)
        padded[i] = fill;
    add_ints(u, to, n < n_all ? padded : src, n_all);
}

/* How to sample from each row; nothing is sampled from rows after the batch's, up to n_all. */
static void add_sampling(model *m, const struct model_batch *in, uint32_t n_all,
                         struct upload_list *u) {
    const uint64_t n = in->shape.n_logit_rows, size = sizeof *in->sampling;
    struct model_bufs *b = &m->bufs;
    add_upload(u, b->sampling, 0, in->sampling, n * size);
    if (n < n_all) add_upload(u, b->sampling, n * size, m->no_sampling, (n_all - n) * size);
    add_upload(u, b->history, 0, in->history, in->n_history * sizeof *in->history);
}

/* now: the batch's shape as ops get it. If it has more rows than the batch, every sequence has one
 * row, and the rows after the batch's are padding; their rows of tables are not read. */
static int upload_batch(model *m, const struct model_batch *in, const struct model_shape *now,
                        err *e) {
    const struct model_shape *s = &in->shape;
    struct model_bufs *b = &m->bufs;
    struct upload_list u = {.n = 0};
    uint32_t n = s->n_rows, n_all = now->n_rows;
    uint64_t stride = now->max_context / in->kv[0].block_tokens;
    add_padded(&u, b->ids, in->token_ids, n, m->padded[0], n_all, 0);
    add_padded(&u, b->pos, in->positions, n, m->padded[1], n_all, -1);
    if (b->types) add_padded(&u, b->types, in->types, n, m->padded[4], n_all, 0);
    add_padded(&u, b->slots[0], in->slots, n, m->padded[2], n_all, -1);
    add_ints(&u, b->tables[0], in->tables, s->n_seqs * stride);
    if (m->limits.window_tables) {
        add_padded(&u, b->slots[1], in->window_slots, n, m->padded[3], n_all, -1);
        add_ints(&u, b->tables[1], in->window_tables, s->n_seqs * stride);
    }
    add_ints(&u, b->row_start, n < n_all ? m->counted : in->row_start,
             (uint64_t)(n < n_all ? n_all : s->n_seqs) + 1);
    add_ints(&u, b->out_rows, n < n_all ? m->counted : in->out_rows,
             n < n_all ? n_all : (uint64_t)s->n_logit_rows + s->n_hidden_rows);
    if (m->hp.recurrent.n_layers)
        add_ints(&u, b->state_tables, in->state_tables, 2 * (uint64_t)s->n_seqs);
    if (s->samples && model_rank_picks(m)) add_sampling(m, in, now->n_logit_rows, &u);
    add_upload(&u, b->token_copies, 0, in->token_copies,
               in->n_token_copies * sizeof *in->token_copies);
    add_upload(&u, b->history_updates, 0, in->history_updates,
               in->n_history_updates * sizeof *in->history_updates);
    return backend_upload_all(m->be, u.items, u.n, e);
}

/* Replaces placeholders by the previous step's tokens, and adds these to the penalty histories. */
static int take_previous_tokens(model *m, const struct model_batch *in, err *e) {
    const struct model_bufs *b = &m->bufs;
    uint32_t n = in->n_token_copies, n_sampled = in->n_sampled_copies;
    if (!n) return 0;
    const struct model_step *previous = &m->in_flight[m->first_in_flight];
    struct op_copy_tokens sampled = {.from = b->sampled,
                                     .copies = b->token_copies,
                                     .stride = sizeof(struct backend_sampled) / sizeof(int32_t),
                                     .n = n_sampled,
                                     .ids = b->ids};
    struct op_copy_tokens best = {.from = b->top_ids,
                                  .copies = b->token_copies,
                                  .stride = previous->now.n_top,
                                  .first = n_sampled,
                                  .n = n - n_sampled,
                                  .ids = b->ids};
    struct op_update_history update = {.sampled = b->sampled,
                                       .updates = b->history_updates,
                                       .n = in->n_history_updates,
                                       .history = b->history};
    int rc = 0;
    if (sampled.n) rc = backend_copy_tokens(m->be, &sampled);
    if (!rc && best.n) rc = backend_copy_tokens(m->be, &best);
    if (!rc && update.n) rc = backend_update_history(m->be, &update);
    return rc ? err_set(e, rc, "cannot take the tokens of the previous step") : 0;
}

/* ---- results ---- */

/* Makes rows rows[0] .. rows[0] + rows[1] - 1 of buf, each n_cols elements of 4 bytes, readable by
 * the host: in place, or at the same offset in copy. */
static int fetch_rows(model *m, const backend_buf *buf, void *copy, const uint64_t rows[2],
                      uint32_t n_cols, const void **out, err *e) {
    uint64_t row_bytes = n_cols * sizeof(float), first = rows[0] * row_bytes;
    const void *host = backend_buf_host(buf);
    *out = host ? host : copy;
    if (host || !rows[1]) return 0;
    return backend_download(m->be, buf, first, (char *)copy + first, rows[1] * row_bytes, e);
}

/* The rows of logits that the host needs, each run of them with one download. */
static int fetch_logits(model *m, const struct model_batch *batch, const void **out, err *e) {
    const uint64_t n = batch->shape.n_logit_rows;
    uint64_t rows[2] = {0, batch->need_logits ? 0 : n};
    int rc = fetch_rows(m, m->bufs.logits, m->host_logits, rows, m->hp.n_vocab, out, e);
    for (uint64_t i = 0; !rc && batch->need_logits && i < n; i = rows[0] + rows[1] + 1) {
        rows[0] = i, rows[1] = 0;
        while (i + rows[1] < n && batch->need_logits[i + rows[1]])
            rows[1]++;
        rc = fetch_rows(m, m->bufs.logits, m->host_logits, rows, m->hp.n_vocab, out, e);
    }
    return rc;
}

/* Begins the download of bytes of buf into copy, unless the host can read them in place. */
static int download_async(model *m, const backend_buf *buf, void *copy, uint64_t bytes, err *e) {
    if (backend_buf_host(buf)) return 0;
    return backend_download_async(m->be, buf, 0, copy, bytes, e);
}

/* Best and sampled tokens are downloaded right after the step; rows of logits and hidden states are
 * fetched when it is finished. */
static int download_tokens(model *m, const struct model_step *f, err *e) {
    const struct model_bufs *b = &m->bufs;
    const uint64_t rows = f->batch->shape.n_logit_rows, n_top = rows * f->now.n_top;
    int rc = 0;
    if (f->now.samples)
        rc = download_async(m, b->sampled, f->sampled, rows * sizeof *f->sampled, e);
    if (rc || !n_top) return rc;
    rc = download_async(m, b->top_ids, f->top_ids, n_top * sizeof *f->top_ids, e);
    return rc ? rc
              : download_async(m, b->top_values, f->top_values, n_top * sizeof *f->top_values, e);
}

static const void *result_at(const backend_buf *buf, const void *copy) {
    const void *host = backend_buf_host(buf);
    return host ? host : copy;
}

/* Packs the rows' best tokens: of the `width` of each row only those requested. */
static void pack_top(const struct model_step *f, struct model_output *out, uint32_t width) {
    const uint32_t n_top = f->batch->shape.n_top;
    for (size_t i = 0; i < f->batch->shape.n_logit_rows; i++) {
        memmove(f->top_ids + i * n_top, out->top_ids + i * width, n_top * sizeof *f->top_ids);
        memmove(f->top_values + i * n_top, out->top_values + i * width,
                n_top * sizeof *f->top_values);
    }
    out->top_ids = f->top_ids;
    out->top_values = f->top_values;
}

/* What the next stage begins with. */
static int fetch_stream(model *m, const struct model_step *f, struct model_output *out, err *e) {
    const uint64_t rows[2] = {0, f->batch->shape.n_rows};
    const void *at;
    int rc = fetch_rows(m, m->bufs.x, m->host_hidden, rows, m->hp.n_embd, &at, e);
    if (!rc) out->stream = at;
    return rc;
}

/* After the step has ended. */
static int fetch_results(model *m, const struct model_step *f, struct model_output *out, err *e) {
    const struct model_shape *s = &f->batch->shape;
    const struct model_bufs *b = &m->bufs;
    const uint64_t hidden[2] = {s->n_logit_rows, s->n_hidden_rows};
    const void *at;
    int rc = fetch_logits(m, f->batch, &at, e);
    if (rc) return rc;
    out->logits = at;
    if (s->n_hidden_rows) {
        if ((rc = fetch_rows(m, b->hidden, m->host_hidden, hidden, m->hp.n_embd, &at, e)))
            return rc;
        out->hidden = (const float *)at + hidden[0] * m->hp.n_embd;
    }
    if (s->samples) out->sampled = result_at(b->sampled, f->sampled);
    if (!s->n_top) return 0;
    out->top_ids = result_at(b->top_ids, f->top_ids);
    out->top_values = result_at(b->top_values, f->top_values);
    if (f->now.n_top != s->n_top) pack_top(f, out, f->now.n_top);
    return 0;
}

/* ---- the step ---- */

/* Describes the rc of an op. */
static int explain_op(model *m, const struct model_shape *s, int rc, err *e) {
    if (rc == ERR_DEVICE && backend_sync(m->be, e)) return rc; /* with the device's message */
    return err_set(e, rc, "an op of the forward pass was refused (%u rows, %u sequences)",
                   s->n_rows, s->n_seqs);
}

/* Runs step s from its graph, which is captured if there is none. */
static int run_graph(model *m, const struct model_shape *s, const struct model_pools *pools,
                     err *e) {
    int kept = backend_capture_begin(m->be, graph_key(m, s, pools), e);
    if (kept < 0) return kept;
    if (!kept) {
        int rc = model_enqueue(m, s, pools), ended = backend_capture_end(m->be, rc ? NULL : e);
        if (rc || ended) backend_graph_discard(m->be);
        if (rc || ended) return rc ? explain_op(m, s, rc, e) : ended;
    }
    m->counts.run += (uint64_t)kept;
    return backend_graph_launch(m->be, e);
}

/* Has the device begin step s: as encoded ahead, or op by op. */
static int run_encoded(model *m, const struct model_shape *s, const struct model_pools *pools,
                       err *e) {
    bool ready = m->encoded.n_rows && same_shape(&m->encoded, s);
    if (m->encoded.n_rows && !ready) {
        backend_graph_discard(m->be);
        m->counts.dropped++;
    }
    m->encoded.n_rows = 0;
    if (ready) {
        m->counts.run++;
        return backend_graph_launch(m->be, e);
    }
    int rc = model_enqueue(m, s, pools);
    return rc ? explain_op(m, s, rc, e) : backend_flush(m->be, e);
}

/* Encodes step s while the device runs. A failure here only makes the next step slower: it is
 * reported there. */
static void encode_ahead(model *m, const struct model_shape *s, const struct model_pools *pools) {
    err ignored;
    if (!s->n_rows || !backend_can_capture(m->be) || backend_keeps_graphs(m->be)) return;
    if (backend_capture_begin(m->be, 0, &ignored)) return;
    int rc = model_enqueue(m, s, pools), ended = backend_capture_end(m->be, &ignored);
    if (!rc && !ended)
        m->encoded = *s;
    else
        backend_graph_discard(m->be);
}

/* What the stage before gave. None comes while kernels are only compiled or counted. */
static int upload_stream(model *m, const struct model_batch *batch, err *e) {
    if (m->part.embeds || !batch->stream) return 0;
    return backend_upload(m->be, m->bufs.x, 0, batch->stream,
                          (uint64_t)batch->shape.n_rows * m->hp.n_embd * sizeof(float), e);
}

static int enqueue_step(model *m, struct model_step *f, err *e) {
    const struct model_batch *batch = f->batch;
    const uint64_t rank = backend_n_local(m->be) > 1 ? m->part.rank : 0; /* in this process */
    struct model_pools pools = {.kv = batch->kv + rank * m->hp.n_kv_layers};
    if (batch->states) pools.states = batch->states + rank * m->hp.recurrent.n_layers;
    const uint32_t block_tokens = batch->kv[0].block_tokens;
    struct model_shape next = round_context(m, batch->next, block_tokens);
    f->now = round_context(m, batch->shape, block_tokens);
    bool kept = round_to_graph(m, &f->now);
    int rc = upload_batch(m, batch, &f->now, e);
    if (!rc) rc = upload_stream(m, batch, e);
    if (!rc) rc = take_previous_tokens(m, batch, e);
    if (!rc) rc = kept ? run_graph(m, &f->now, &pools, e) : run_encoded(m, &f->now, &pools, e);
    if (!rc && !m->part.rank && m->part.ends) rc = download_tokens(m, f, e);
    if (!rc) rc = backend_event_record(m->be, (uint32_t)(f - m->in_flight), e);
    if (!rc) encode_ahead(m, &next, &pools);
    return rc;
}

int model_rank_begin(model *m, const struct model_batch *batch, err *e) {
    struct model_step *f = &m->in_flight[(m->first_in_flight + m->n_in_flight) % MODEL_MAX_STEPS];
    int rc = check_batch(m, batch, e);
    if (rc) return rc;
    f->batch = batch;
    f->now = batch->shape;
    rc = batch->shape.n_rows ? enqueue_step(m, f, e) : 0;
    if (rc)
        backend_sync(m->be, NULL);
    else
        m->n_in_flight++;
    return rc;
}

int model_rank_finish(model *m, struct model_output *out, err *e) {
    uint32_t at = m->first_in_flight;
    const struct model_step *f = &m->in_flight[at];
    *out = (struct model_output){0};
    if (!m->n_in_flight) return err_set(e, ERR_INVALID, "no step was begun");
    /* If steps do not overlap there is one place only. */
    if (model_overlaps(m)) m->first_in_flight = (at + 1) % MODEL_MAX_STEPS;
    m->n_in_flight--;
    if (!f->batch->shape.n_rows) return 0;
    int rc = backend_event_wait(m->be, at, e);
    if (rc || m->part.rank) return rc;
    return m->part.ends ? fetch_results(m, f, out, e) : fetch_stream(m, f, out, e);
}

int model_recover(model *m, err *e) {
    m->encoded.n_rows = 0;
    return backend_recover(m->be, e);
}

struct model_encoded model_encoded_steps(const model *m) {
    return m->counts;
}
