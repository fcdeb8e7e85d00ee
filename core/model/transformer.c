/* transformer.c - the one forward pass: a decoder-only transformer over a paged KV cache. Owns the
 * step's buffers, all taken at open; a step allocates nothing. Runs on the engine's worker. */
#include "core/model/model_int.h"

#include "core/base/mem.h"

#include <math.h>
#include <stdlib.h>

/* ---- step buffers ---- */

static int new_buf(backend *be, uint64_t a, uint64_t b, backend_buf **out, err *e) {
    uint64_t n;
    _Static_assert(sizeof(float) == sizeof(int32_t), "every step buffer has 4-byte elements");
    if (!mem_mul(a, b, &n) || !mem_mul(n, sizeof(float), &n))
        return err_set(e, ERR_NOMEM, "a step buffer of %llu by %llu is too large",
                       (unsigned long long)a, (unsigned long long)b);
    return backend_buf_new(be, n, out, e);
}

static int upload_inv_freq(model *m, err *e) {
    uint32_t half = m->hp.n_rot / 2;
    float *inv_freq = mem_new(half, sizeof *inv_freq);
    if (!inv_freq) return err_set(e, ERR_NOMEM, "no memory for %u frequencies", half);
    int rc = model_inv_freq(m->file, &m->hp, inv_freq, e);
    if (!rc) rc = backend_upload(m->be, m->bufs.inv_freq, 0, inv_freq, half * sizeof *inv_freq, e);
    free(inv_freq);
    return rc;
}

int model_bufs_new(model *m, err *e) {
    const struct model_hparams *hp = &m->hp;
    const struct model_limits *lim = &m->limits;
    struct model_bufs *b = &m->bufs;
    uint64_t rows = lim->max_rows, last = lim->max_logit_rows;
    uint64_t heads = (uint64_t)hp->n_heads * hp->head_dim;
    uint64_t kv = (uint64_t)hp->n_kv_heads * hp->head_dim;
    const struct {
        backend_buf **buf;
        uint64_t a, b;
    } plan[] = {
        {&b->ids, rows, 1},
        {&b->pos, rows, 1},
        {&b->slots, rows, 1},
        {&b->row_start, (uint64_t)lim->max_seqs + 1, 1},
        {&b->logit_rows, last, 1},
        {&b->tables, lim->max_seqs, lim->table_stride},
        {&b->inv_freq, hp->n_rot / 2, 1},
        {&b->x, rows, hp->n_embd},
        {&b->r, rows, hp->n_embd},
        {&b->q, rows, heads},
        {&b->att, rows, heads},
        {&b->k, rows, kv},
        {&b->v, rows, kv},
        {&b->ff, rows, hp->n_ff},
        {&b->x_last, last, hp->n_embd},
        {&b->att_last, last, heads},
        {&b->logits, last, hp->n_vocab},
    };
    _Static_assert(sizeof plan / sizeof plan[0] == MODEL_N_BUFS, "every step buffer is planned");
    for (size_t i = 0; i < MODEL_N_BUFS; i++) {
        int rc = new_buf(m->be, plan[i].a, plan[i].b, plan[i].buf, e);
        if (rc) return rc;
    }
    if (!backend_buf_host(b->logits)) {
        m->host_logits = mem_new(last * hp->n_vocab, sizeof *m->host_logits);
        if (!m->host_logits) return err_set(e, ERR_NOMEM, "no memory for logits");
    }
    return upload_inv_freq(m, e);
}

void model_bufs_free(struct model_bufs *b) {
    backend_buf **all = (backend_buf **)b;
    for (size_t i = 0; i < MODEL_N_BUFS; i++)
        backend_buf_free(all[i]);
}

/* ---- the pass ---- */

static int upload_i32(model *m, backend_buf *dst, const int32_t *src, uint64_t n, err *e) {
    return backend_upload(m->be, dst, 0, src, n * sizeof *src, e);
}

static int upload_batch(model *m, const struct model_batch *in, err *e) {
    const struct model_limits *lim = &m->limits;
    struct model_bufs *b = &m->bufs;
    int rc;
    if (in->n_rows > lim->max_rows || in->n_seqs > lim->max_seqs ||
        in->n_logit_rows > lim->max_logit_rows || in->n_logit_rows > in->n_rows)
        return err_set(e, ERR_INVALID,
                       "a batch of %u rows, %u sequences, %u logit rows is over its "
                       "limits",
                       in->n_rows, in->n_seqs, in->n_logit_rows);
    if ((rc = upload_i32(m, b->ids, in->token_ids, in->n_rows, e)) ||
        (rc = upload_i32(m, b->pos, in->positions, in->n_rows, e)) ||
        (rc = upload_i32(m, b->slots, in->slots, in->n_rows, e)) ||
        (rc = upload_i32(m, b->row_start, in->row_start, (uint64_t)in->n_seqs + 1, e)) ||
        (rc = upload_i32(m, b->tables, in->tables, (uint64_t)in->n_seqs * lim->table_stride, e)) ||
        (rc = upload_i32(m, b->logit_rows, in->logit_rows, in->n_logit_rows, e)))
        return rc;
    return 0;
}

/* Attention over the normed x, after r was added to it if pending. Leaves its result in att. */
static int attend(model *m, const struct model_layer *l, const struct model_batch *in,
                  const struct backend_kv *kv, bool pending) {
    const struct model_hparams *hp = &m->hp;
    struct model_bufs *b = &m->bufs;
    int rc = backend_linear(m->be, &(struct op_linear){.in.x = b->x,
                                                       .in.residual = pending ? b->r : NULL,
                                                       .in.norm = l->attn_norm,
                                                       .in.eps = hp->rms_eps,
                                                       .n_rows = in->n_rows,
                                                       .n_weights = 3,
                                                       .w = {l->wq, l->wk, l->wv},
                                                       .y = {b->q, b->k, b->v}});
    if (rc) return rc;
    rc = backend_rope_store(m->be, &(struct op_rope_store){.q = b->q,
                                                           .k = b->k,
                                                           .v = b->v,
                                                           .pos = b->pos,
                                                           .slots = b->slots,
                                                           .inv_freq = b->inv_freq,
                                                           .n_rows = in->n_rows,
                                                           .n_heads = hp->n_heads,
                                                           .n_rot = hp->n_rot,
                                                           .interleaved = hp->rope_interleaved,
                                                           .kv = *kv});
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
                                            .scale = 1 / sqrtf((float)hp->head_dim),
                                            .kv = *kv,
                                            .out = b->att});
}

static int linear(model *m, const backend_weight *w, backend_buf *x, backend_buf *y,
                  uint32_t n_rows) {
    return backend_linear(
        m->be,
        &(struct op_linear){.in.x = x, .n_rows = n_rows, .n_weights = 1, .w = {w}, .y = {y}});
}

/* What follows attention in a layer, for n_rows rows of x and att. Leaves its result in r. */
static int feed_forward(model *m, const struct model_layer *l, backend_buf *x, backend_buf *att,
                        uint32_t n_rows) {
    struct model_bufs *b = &m->bufs;
    int rc;
    if ((rc = linear(m, l->wo, att, b->r, n_rows)) ||
        (rc = backend_linear(m->be, &(struct op_linear){.in.x = x,
                                                        .in.residual = b->r,
                                                        .in.norm = l->ffn_norm,
                                                        .in.eps = m->hp.rms_eps,
                                                        .n_rows = n_rows,
                                                        .n_weights = 2,
                                                        .w = {l->w_gate, l->w_up},
                                                        .act = BACKEND_ACT_SILU,
                                                        .y = {b->ff}})))
        return rc;
    return linear(m, l->w_down, b->ff, b->r, n_rows);
}

static int pick_rows(model *m, const backend_buf *x, backend_buf *out, uint32_t n_rows,
                     uint32_t n_cols) {
    return backend_gather(m->be, &(struct op_gather){.x = x,
                                                     .rows = m->bufs.logit_rows,
                                                     .n_out_rows = n_rows,
                                                     .n_cols = n_cols,
                                                     .out = out});
}

/* Behind the last attention only the rows that want logits go on. */
static int head(model *m, const struct model_layer *last, uint32_t n_rows) {
    struct model_bufs *b = &m->bufs;
    int rc;
    if ((rc = pick_rows(m, b->x, b->x_last, n_rows, m->hp.n_embd)) ||
        (rc = pick_rows(m, b->att, b->att_last, n_rows, m->hp.n_heads * m->hp.head_dim)) ||
        (rc = feed_forward(m, last, b->x_last, b->att_last, n_rows)))
        return rc;
    return backend_linear(m->be, &(struct op_linear){.in.x = b->x_last,
                                                     .in.residual = b->r,
                                                     .in.norm = m->w.output_norm,
                                                     .in.eps = m->hp.rms_eps,
                                                     .n_rows = n_rows,
                                                     .n_weights = 1,
                                                     .w = {m->w.output},
                                                     .y = {b->logits}});
}

static int enqueue(model *m, const struct model_batch *in) {
    struct model_bufs *b = &m->bufs;
    uint32_t n_layers = m->hp.n_layers;
    int rc = backend_embed(
        m->be,
        &(struct op_embed){
            .table = m->w.embed, .ids = b->ids, .n_rows = in->n_rows, .scale = 1, .out = b->x});
    for (uint32_t i = 0; i < n_layers && !rc; i++) {
        const struct model_layer *l = &m->w.layers[i];
        if ((rc = attend(m, l, in, &in->kv[i], i > 0))) return rc;
        rc = i + 1 < n_layers ? feed_forward(m, l, b->x, b->att, in->n_rows)
                              : head(m, l, in->n_logit_rows);
    }
    return rc;
}

int model_forward(model *m, const struct model_batch *batch, const float **logits, err *e) {
    struct model_bufs *b = &m->bufs;
    *logits = NULL;
    int rc = upload_batch(m, batch, e);
    if (rc) return rc;
    if (!batch->n_rows) return 0;
    if ((rc = enqueue(m, batch))) {
        backend_sync(m->be, NULL);
        return err_set(e, rc, "an op of the forward pass was refused (%u rows, %u sequences)",
                       batch->n_rows, batch->n_seqs);
    }
    if ((rc = backend_sync(m->be, e))) return rc;
    *logits = backend_buf_host(b->logits);
    if (*logits) return 0;
    uint64_t bytes = (uint64_t)batch->n_logit_rows * m->hp.n_vocab * sizeof **logits;
    rc = backend_download(m->be, b->logits, 0, m->host_logits, bytes, e);
    if (!rc) *logits = m->host_logits;
    return rc;
}
