/* transformer.c - the one forward pass: a decoder-only transformer over a paged KV cache. What
 * differs between architectures comes from the hyperparameters and from which weights there are. A
 * step allocates nothing. Runs on the engine's worker.
 *
 * Ops depend on a step's shape alone, so a device that can encodes the next step, as the engine
 * guesses it, while it runs this one; a step of another shape is encoded when it comes.
 *
 * What a block puts out is not added to the stream by itself: it waits (model_pending), and the
 * next product adds and norms it on its way in. */
#include "core/model/model_int.h"

enum { MIN_CONTEXT = 512 }; /* of an encoded step */

static int upload_i32(model *m, backend_buf *dst, const int32_t *src, uint64_t n, err *e) {
    return backend_upload(m->be, dst, 0, src, n * sizeof *src, e);
}

static int upload_batch(model *m, const struct model_batch *in, err *e) {
    const struct model_limits *lim = &m->limits;
    const struct model_shape *s = &in->shape;
    struct model_bufs *b = &m->bufs;
    uint64_t n_out = (uint64_t)s->n_logit_rows + s->n_hidden_rows;
    int rc;
    if (s->n_rows > lim->max_rows || s->n_seqs > lim->max_seqs ||
        s->n_logit_rows > lim->max_logit_rows || n_out > s->n_rows || s->n_top > BACKEND_MAX_TOP)
        return err_set(e, ERR_INVALID,
                       "a batch of %u rows, %u sequences, %u logit and %u hidden rows is over its "
                       "limits",
                       s->n_rows, s->n_seqs, s->n_logit_rows, s->n_hidden_rows);
    for (uint32_t i = 0; i < s->n_rows; i++)
        if (in->positions[i] < 0 || (uint32_t)in->positions[i] >= s->max_context)
            return err_set(e, ERR_INVALID, "position %d is not below the batch's %u",
                           (int)in->positions[i], s->max_context);
    if ((rc = upload_i32(m, b->ids, in->token_ids, s->n_rows, e)) ||
        (rc = upload_i32(m, b->pos, in->positions, s->n_rows, e)) ||
        (rc = upload_i32(m, b->slots, in->slots, s->n_rows, e)) ||
        (rc = upload_i32(m, b->row_start, in->row_start, (uint64_t)s->n_seqs + 1, e)) ||
        (rc = upload_i32(m, b->tables, in->tables, (uint64_t)s->n_seqs * lim->table_stride, e)) ||
        (rc = upload_i32(m, b->out_rows, in->out_rows, n_out, e)))
        return rc;
    return 0;
}

/* What ops are told of a step. */
struct step {
    const struct model_shape *shape;
    const struct backend_kv *kv; /* (n_layers) */
};

struct op_input model_input(const model *m, backend_buf *x, struct model_pending pending,
                            const backend_weight *norm) {
    return (struct op_input){.x = x,
                             .residual = pending.r,
                             .residual_norm = pending.norm,
                             .residual_scale = m->hp.residual_scale,
                             .norm = norm,
                             .eps = m->hp.rms_eps};
}

/* Attention of layer i over x, to which what is pending is added. Leaves its result in att. */
static int attend(model *m, uint32_t i, const struct step *in, struct model_pending pending) {
    const struct model_hparams *hp = &m->hp;
    const struct model_layer *l = &m->w.layers[i];
    struct model_bufs *b = &m->bufs;
    bool windowed = hp->layers[i] & MODEL_LAYER_WINDOWED;
    bool turns = !(hp->layers[i] & MODEL_LAYER_NO_ROPE);
    int rc =
        backend_linear(m->be, &(struct op_linear){.in = model_input(m, b->x, pending, l->attn_norm),
                                                  .n_rows = in->shape->n_rows,
                                                  .n_weights = 3,
                                                  .w = {l->wq, l->wk, l->wv},
                                                  .bias = {l->bq, l->bk, l->bv},
                                                  .y = {b->q, b->k, b->v}});
    if (rc) return rc;
    rc = backend_rope_store(m->be,
                            &(struct op_rope_store){.q = b->q,
                                                    .k = b->k,
                                                    .v = b->v,
                                                    .pos = b->pos,
                                                    .slots = b->slots,
                                                    .inv_freq = b->inv_freq[windowed],
                                                    .q_norm = l->q_norm,
                                                    .k_norm = l->k_norm,
                                                    .eps = hp->rms_eps,
                                                    .magnitude = m->magnitude[windowed],
                                                    .n_rows = in->shape->n_rows,
                                                    .n_heads = hp->n_heads,
                                                    .n_rot = turns ? hp->rope[windowed].n_rot : 0,
                                                    .interleaved = m->arch->rope_interleaved,
                                                    .kv = in->kv[i]});
    if (rc) return rc;
    return backend_paged_attention(
        m->be, &(struct op_paged_attention){.q = b->q,
                                            .pos = b->pos,
                                            .row_start = b->row_start,
                                            .tables = b->tables,
                                            .n_rows = in->shape->n_rows,
                                            .n_seqs = in->shape->n_seqs,
                                            .n_heads = hp->n_heads,
                                            .table_stride = m->limits.table_stride,
                                            .max_context = in->shape->max_context,
                                            .window = windowed ? hp->window : 0,
                                            .scale = hp->attn_scale,
                                            .softcap = hp->attn_softcap,
                                            .sinks = l->sinks,
                                            .kv = in->kv[i],
                                            .out = b->att});
}

/* y = w x (+ bias) */
static int linear(model *m, const backend_weight *w, const backend_weight *bias, backend_buf *x,
                  backend_buf *y, uint32_t n_rows) {
    return backend_linear(
        m->be,
        &(struct op_linear){
            .in.x = x, .n_rows = n_rows, .n_weights = 1, .w = {w}, .bias = {bias}, .y = {y}});
}

/* What follows attention in a layer, for n_rows rows of x and att. *out: what waits after it. */
static int feed_forward(model *m, const struct model_layer *l, backend_buf *x, backend_buf *att,
                        uint32_t n_rows, struct model_pending *out) {
    struct model_bufs *b = &m->bufs;
    struct model_pending attended = {b->r, l->attn_post_norm};
    *out = (struct model_pending){b->r, l->ffn_post_norm};
    int rc = linear(m, l->wo, l->bo, att, b->r, n_rows);
    if (rc) return rc;
    struct op_input in = model_input(m, x, attended, l->ffn_norm);
    if (l->router) return model_experts_enqueue(m, l, in, n_rows, &out->r);
    rc = backend_linear(m->be, &(struct op_linear){.in = in,
                                                   .n_rows = n_rows,
                                                   .n_weights = 2,
                                                   .w = {l->w_gate, l->w_up},
                                                   .bias = {l->b_gate, l->b_up},
                                                   .act = m->arch->act,
                                                   .y = {b->ff}});
    return rc ? rc : linear(m, l->w_down, l->b_down, b->ff, b->r, n_rows);
}

static int pick_rows(model *m, const backend_buf *x, backend_buf *out, uint32_t n_rows,
                     uint32_t n_cols) {
    return backend_gather(
        m->be,
        &(struct op_gather){
            .x = x, .rows = m->bufs.out_rows, .n_out_rows = n_rows, .n_cols = n_cols, .out = out});
}

/* Behind the last attention only the rows go on that want something. Where hidden states are wanted
 * the final norm is an op of its own and the output head reads what it wrote; otherwise the head
 * norms its rows on their way in: the same bits. */
static int head(model *m, const struct model_layer *last, const struct model_shape *in) {
    const struct model_hparams *hp = &m->hp;
    struct model_bufs *b = &m->bufs;
    struct model_pending pending;
    uint32_t n_rows = in->n_logit_rows + in->n_hidden_rows;
    int rc;
    if ((rc = pick_rows(m, b->x, b->x_last, n_rows, hp->n_embd)) ||
        (rc = pick_rows(m, b->att, b->att_last, n_rows, hp->n_heads * hp->head_dim)) ||
        (rc = feed_forward(m, last, b->x_last, b->att_last, n_rows, &pending)))
        return rc;
    struct op_input stream = model_input(m, b->x_last, pending, m->w.output_norm);
    if (in->n_hidden_rows) {
        rc = backend_norm(m->be,
                          &(struct op_norm){.in = stream, .n_rows = n_rows, .out = b->hidden});
        if (rc) return rc;
        stream = (struct op_input){.x = b->hidden};
    }
    rc = backend_linear(m->be, &(struct op_linear){.in = stream,
                                                   .n_rows = in->n_logit_rows,
                                                   .n_weights = 1,
                                                   .w = {m->w.output},
                                                   .bias = {m->w.output_bias},
                                                   .y_scale = hp->logit_scale,
                                                   .softcap = hp->logit_softcap,
                                                   .y = {b->logits}});
    if (rc || !in->n_top) return rc;
    return backend_top(m->be, &(struct op_top){.x = b->logits,
                                               .n_rows = in->n_logit_rows,
                                               .n_cols = hp->n_vocab,
                                               .k = in->n_top,
                                               .ids = b->top_ids,
                                               .values = b->top_values});
}

static int enqueue(model *m, const struct model_shape *shape, const struct backend_kv *kv) {
    const struct step in = {shape, kv};
    struct model_bufs *b = &m->bufs;
    uint32_t n_layers = m->hp.n_layers;
    struct model_pending pending = {0};
    int rc = backend_embed(m->be, &(struct op_embed){.table = m->w.embed,
                                                     .ids = b->ids,
                                                     .n_rows = shape->n_rows,
                                                     .scale = m->hp.embed_scale,
                                                     .out = b->x});
    for (uint32_t i = 0; i < n_layers && !rc; i++) {
        const struct model_layer *l = &m->w.layers[i];
        if ((rc = attend(m, i, &in, pending))) return rc;
        rc = i + 1 < n_layers ? feed_forward(m, l, b->x, b->att, shape->n_rows, &pending)
                              : head(m, l, shape);
    }
    return rc;
}

/* ---- results ---- */

/* Rows rows[0] .. rows[0] + rows[1] - 1 of buf, n_cols elements of 4 bytes wide, where the host can
 * read them: in place, or in copy, where they get the same place. */
static int fetch(model *m, const backend_buf *buf, void *copy, const uint64_t rows[2],
                 uint32_t n_cols, const void **out, err *e) {
    uint64_t row_bytes = n_cols * sizeof(float), first = rows[0] * row_bytes;
    const void *host = backend_buf_host(buf);
    *out = host ? host : copy;
    if (host || !rows[1]) return 0;
    return backend_download(m->be, buf, first, (char *)copy + first, rows[1] * row_bytes, e);
}

/* The rows of logits that somebody wants, each run of them at once. */
static int fetch_logits(model *m, const struct model_batch *batch, const void **out, err *e) {
    const uint64_t n = batch->shape.n_logit_rows;
    uint64_t rows[2] = {0, batch->whole_rows ? 0 : n};
    int rc = fetch(m, m->bufs.logits, m->host_logits, rows, m->hp.n_vocab, out, e);
    for (uint64_t i = 0; !rc && batch->whole_rows && i < n; i = rows[0] + rows[1] + 1) {
        rows[0] = i, rows[1] = 0;
        while (i + rows[1] < n && batch->whole_rows[i + rows[1]])
            rows[1]++;
        rc = fetch(m, m->bufs.logits, m->host_logits, rows, m->hp.n_vocab, out, e);
    }
    return rc;
}

static int fetch_results(model *m, const struct model_batch *batch, struct model_output *out,
                         err *e) {
    const struct model_shape *s = &batch->shape;
    const struct model_bufs *b = &m->bufs;
    const uint64_t top[2] = {0, s->n_logit_rows}, hidden[2] = {s->n_logit_rows, s->n_hidden_rows};
    const void *logits, *at, *ids, *values;
    int rc = fetch_logits(m, batch, &logits, e);
    if (rc) return rc;
    out->logits = logits;
    if (s->n_hidden_rows) {
        if ((rc = fetch(m, b->hidden, m->host_hidden, hidden, m->hp.n_embd, &at, e))) return rc;
        out->hidden = (const float *)at + hidden[0] * m->hp.n_embd;
    }
    if (!s->n_top) return 0;
    if ((rc = fetch(m, b->top_ids, m->host_top_ids, top, s->n_top, &ids, e)) ||
        (rc = fetch(m, b->top_values, m->host_top_values, top, s->n_top, &values, e)))
        return rc;
    out->top_ids = ids;
    out->top_values = values;
    return 0;
}

/* ---- the step ---- */

static bool same_shape(const struct model_shape *a, const struct model_shape *b) {
    return a->n_rows == b->n_rows && a->n_seqs == b->n_seqs && a->n_logit_rows == b->n_logit_rows &&
           a->n_hidden_rows == b->n_hidden_rows && a->n_top == b->n_top &&
           a->max_context == b->max_context;
}

/* Shape s as ops get it: contexts in powers of two, so that a step fits the one before it. */
static struct model_shape rounded(const model *m, struct model_shape s, uint32_t block_tokens) {
    uint64_t all = (uint64_t)m->limits.table_stride * block_tokens, bucket = MIN_CONTEXT;
    while (bucket < s.max_context)
        bucket *= 2;
    s.max_context = (uint32_t)(bucket < all ? bucket : all);
    return s;
}

/* Has the device begin step s: as it was encoded ahead, or op by op. */
static int begin(model *m, const struct model_shape *s, const struct backend_kv *kv, err *e) {
    bool ready = m->recorded.n_rows && same_shape(&m->recorded, s);
    if (m->recorded.n_rows && !ready) {
        backend_drop_recorded(m->be);
        m->counts.dropped++;
    }
    m->recorded.n_rows = 0;
    if (ready) {
        m->counts.run++;
        return backend_run_recorded(m->be, e);
    }
    int rc = enqueue(m, s, kv);
    if (rc == ERR_DEVICE && backend_sync(m->be, e)) return rc; /* in the device's words */
    if (rc)
        return err_set(e, rc, "an op of the forward pass was refused (%u rows, %u sequences)",
                       s->n_rows, s->n_seqs);
    return backend_flush(m->be, e);
}

/* Encodes step s while the device runs. Without it the next step is only slower: what goes wrong
 * here comes again there. */
static void record(model *m, const struct model_shape *s, const struct backend_kv *kv) {
    err ignored;
    if (!s->n_rows || !backend_can_record(m->be) || backend_record(m->be, 0, &ignored)) return;
    int rc = enqueue(m, s, kv), ended = backend_record_end(m->be, &ignored);
    if (!rc && !ended)
        m->recorded = *s;
    else
        backend_drop_recorded(m->be);
}

int model_forward(model *m, const struct model_batch *batch, struct model_output *out, err *e) {
    *out = (struct model_output){0};
    int rc = upload_batch(m, batch, e);
    if (rc || !batch->shape.n_rows) return rc;
    uint32_t block_tokens = batch->kv[0].block_tokens;
    struct model_shape now = rounded(m, batch->shape, block_tokens);
    struct model_shape next = rounded(m, batch->next, block_tokens);
    if ((rc = begin(m, &now, batch->kv, e))) {
        backend_sync(m->be, NULL);
        return rc;
    }
    record(m, &next, batch->kv);
    rc = backend_sync(m->be, e);
    return rc ? rc : fetch_results(m, batch, out, e);
}

struct model_recorded model_recorded_steps(const model *m) {
    return m->counts;
}
