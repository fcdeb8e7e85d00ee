/* transformer.c - the one forward pass: a decoder-only transformer over a paged KV cache. What
 * differs between architectures comes from the hyperparameters and from which weights there are. A
 * step allocates nothing. Runs on the engine's worker.
 *
 * What a block puts out is not added to the stream by itself: it waits (model_pending), and the
 * next product adds and norms it on its way in. */
#include "core/model/model_int.h"

static int upload_i32(model *m, backend_buf *dst, const int32_t *src, uint64_t n, err *e) {
    return backend_upload(m->be, dst, 0, src, n * sizeof *src, e);
}

static int upload_batch(model *m, const struct model_batch *in, err *e) {
    const struct model_limits *lim = &m->limits;
    struct model_bufs *b = &m->bufs;
    uint64_t n_out = (uint64_t)in->n_logit_rows + in->n_hidden_rows;
    int rc;
    if (in->n_rows > lim->max_rows || in->n_seqs > lim->max_seqs ||
        in->n_logit_rows > lim->max_logit_rows || n_out > in->n_rows)
        return err_set(e, ERR_INVALID,
                       "a batch of %u rows, %u sequences, %u logit and %u hidden rows is over its "
                       "limits",
                       in->n_rows, in->n_seqs, in->n_logit_rows, in->n_hidden_rows);
    if ((rc = upload_i32(m, b->ids, in->token_ids, in->n_rows, e)) ||
        (rc = upload_i32(m, b->pos, in->positions, in->n_rows, e)) ||
        (rc = upload_i32(m, b->slots, in->slots, in->n_rows, e)) ||
        (rc = upload_i32(m, b->row_start, in->row_start, (uint64_t)in->n_seqs + 1, e)) ||
        (rc = upload_i32(m, b->tables, in->tables, (uint64_t)in->n_seqs * lim->table_stride, e)) ||
        (rc = upload_i32(m, b->out_rows, in->out_rows, n_out, e)))
        return rc;
    return 0;
}

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
static int attend(model *m, uint32_t i, const struct model_batch *in,
                  struct model_pending pending) {
    const struct model_hparams *hp = &m->hp;
    const struct model_layer *l = &m->w.layers[i];
    struct model_bufs *b = &m->bufs;
    bool windowed = hp->layers[i] & MODEL_LAYER_WINDOWED;
    bool turns = !(hp->layers[i] & MODEL_LAYER_NO_ROPE);
    int rc =
        backend_linear(m->be, &(struct op_linear){.in = model_input(m, b->x, pending, l->attn_norm),
                                                  .n_rows = in->n_rows,
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
                                                    .n_rows = in->n_rows,
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
                                            .n_rows = in->n_rows,
                                            .n_seqs = in->n_seqs,
                                            .n_heads = hp->n_heads,
                                            .table_stride = m->limits.table_stride,
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
static int head(model *m, const struct model_layer *last, const struct model_batch *in) {
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
    return backend_linear(m->be, &(struct op_linear){.in = stream,
                                                     .n_rows = in->n_logit_rows,
                                                     .n_weights = 1,
                                                     .w = {m->w.output},
                                                     .bias = {m->w.output_bias},
                                                     .y_scale = hp->logit_scale,
                                                     .softcap = hp->logit_softcap,
                                                     .y = {b->logits}});
}

static int enqueue(model *m, const struct model_batch *in) {
    struct model_bufs *b = &m->bufs;
    uint32_t n_layers = m->hp.n_layers;
    struct model_pending pending = {0};
    int rc = backend_embed(m->be, &(struct op_embed){.table = m->w.embed,
                                                     .ids = b->ids,
                                                     .n_rows = in->n_rows,
                                                     .scale = m->hp.embed_scale,
                                                     .out = b->x});
    for (uint32_t i = 0; i < n_layers && !rc; i++) {
        const struct model_layer *l = &m->w.layers[i];
        if ((rc = attend(m, i, in, pending))) return rc;
        rc = i + 1 < n_layers ? feed_forward(m, l, b->x, b->att, in->n_rows, &pending)
                              : head(m, l, in);
    }
    return rc;
}

/* Rows first .. first + n_rows - 1 of buf, n_cols wide, where the host can read them: in place, or
 * in copy. */
static int fetch(model *m, const backend_buf *buf, float *copy, const uint64_t rows[2],
                 uint32_t n_cols, const float **out, err *e) {
    uint64_t first = rows[0] * n_cols, n = rows[1] * n_cols;
    const float *host = backend_buf_host(buf);
    *out = host ? host + first : copy;
    return host ? 0 : backend_download(m->be, buf, first * sizeof *copy, copy, n * sizeof *copy, e);
}

int model_forward(model *m, const struct model_batch *batch, struct model_output *out, err *e) {
    struct model_bufs *b = &m->bufs;
    *out = (struct model_output){0};
    int rc = upload_batch(m, batch, e);
    if (rc) return rc;
    if (!batch->n_rows) return 0;
    if ((rc = enqueue(m, batch))) {
        backend_sync(m->be, NULL);
        return err_set(e, rc, "an op of the forward pass was refused (%u rows, %u sequences)",
                       batch->n_rows, batch->n_seqs);
    }
    if ((rc = backend_sync(m->be, e))) return rc;
    const uint64_t logits[2] = {0, batch->n_logit_rows};
    const uint64_t hidden[2] = {batch->n_logit_rows, batch->n_hidden_rows};
    rc = fetch(m, b->logits, m->host_logits, logits, m->hp.n_vocab, &out->logits, e);
    if (!rc && batch->n_hidden_rows)
        rc = fetch(m, b->hidden, m->host_hidden, hidden, m->hp.n_embd, &out->hidden, e);
    return rc;
}
