/* encoder.c - what encoders (BERT, XLM-R, nomic-bert, ModernBERT) have beyond other models: the sum
 * of token, position and type embeddings is normed, and in BERT's layers the norm comes after each
 * block. Formulas: transformers, modeling_bert.py, modeling_nomic_bert.py, modeling_modernbert.py;
 * names of keys and tensors: llama.cpp. Decoders with learned positions (GPT-2) or normed
 * embeddings (BLOOM) begin here, too. Only enqueues ops. Runs on the engine's worker. */
#include "core/model/model_int.h"

/* Rows of a table of embeddings; 0: the file has none. */
static int read_rows(const gguf *g, const char *name, uint32_t *n, err *e) {
    const gguf_tensor *t = gguf_tensor_find(g, name);
    *n = 0;
    if (!t) return 0;
    if (t->n_dims > 2 || t->dims[1] > INT32_MAX)
        return err_set_param(e, ERR_FORMAT, name, "%s: tensor %s is no matrix of embeddings",
                             gguf_path(g), name);
    *n = (uint32_t)t->dims[1];
    return 0;
}

int model_positions_read(const gguf *g, struct model_hparams *hp, err *e) {
    struct model_encoder *x = &hp->encoder;
    int rc = read_rows(g, "position_embd.weight", &x->n_positions, e);
    if (x->n_positions && hp->context_length > x->n_positions) hp->context_length = x->n_positions;
    return rc;
}

int model_encoder_read(const gguf *g, struct model_hparams *hp, err *e) {
    struct model_encoder *x = &hp->encoder;
    x->on = true;
    int rc = read_rows(g, "token_types.weight", &x->n_types, e);
    if (!rc) rc = model_positions_read(g, hp, e);
    if (rc) return rc;
    /* Files of rerankers have a head and no key. Of other models that do not say,
     * sentence-transformers takes the mean. */
    if (hp->pooling == MODEL_POOLING_NONE)
        hp->pooling =
            gguf_tensor_find(g, "cls.output.weight") ? MODEL_POOLING_RANK : MODEL_POOLING_MEAN;
    return 0;
}

static int look_up(model *m, const backend_weight *table, const backend_buf *ids, uint32_t n_rows,
                   backend_buf *out) {
    return backend_embed(
        m->be,
        &(struct op_embed){.table = table, .ids = ids, .n_rows = n_rows, .scale = 1, .out = out});
}

/* out = norm(x + r), and x += r (r may be NULL). */
static int add_and_norm(model *m, backend_buf *x, const backend_buf *r, const backend_weight *norm,
                        const backend_weight *bias, uint32_t n_rows, backend_buf *out) {
    return backend_norm(m->be, &(struct op_norm){.in = {.x = x,
                                                        .residual = r,
                                                        .norm = norm,
                                                        .norm_bias = bias,
                                                        .eps = m->hp.rms_eps,
                                                        .centred = !m->arch->embed_rms},
                                                 .n_rows = n_rows,
                                                 .out = out});
}

int model_encoder_enqueue_inputs(model *m, uint32_t n_rows) {
    const struct model_weights *w = &m->w;
    struct model_bufs *b = &m->bufs;
    int rc = look_up(m, w->embed, b->ids, n_rows, b->r);
    const backend_buf *last = NULL;
    if (!rc && w->positions) {
        rc = look_up(m, w->positions, b->pos, n_rows, b->mixed);
        last = b->mixed;
    }
    if (!rc && w->positions && w->types)
        rc = backend_add_normed(
            m->be, &(struct op_add_normed){
                       .x = b->r, .r = last, .n_rows = n_rows, .n_cols = m->hp.n_embd});
    if (!rc && w->types) {
        rc = look_up(m, w->types, b->types, n_rows, b->mixed);
        last = b->mixed;
    }
    return rc ? rc : add_and_norm(m, b->r, last, w->embed_norm, w->embed_norm_bias, n_rows, b->x);
}

int model_inputs_enqueue(model *m, uint32_t n_rows, struct model_pending *pending) {
    const struct model_weights *w = &m->w;
    struct model_bufs *b = &m->bufs;
    const bool normed = w->embed_norm;
    *pending = (struct model_pending){0};
    int rc = backend_embed(m->be, &(struct op_embed){.table = w->embed,
                                                     .ids = b->ids,
                                                     .n_rows = n_rows,
                                                     .scale = m->hp.embed_scale,
                                                     .out = normed ? b->r : b->x});
    if (!rc && normed)
        rc = add_and_norm(m, b->r, NULL, w->embed_norm, w->embed_norm_bias, n_rows, b->x);
    if (rc || !w->positions) return rc;
    *pending = (struct model_pending){.r = b->r, .norm = NULL};
    return look_up(m, w->positions, b->pos, n_rows, b->r);
}

int model_encoder_enqueue_rest(model *m, uint32_t layer, const struct model_rows *a,
                               backend_buf *out) {
    const struct model_layer *l = &m->w.layers[layer];
    struct model_bufs *b = &m->bufs;
    int rc = model_product_sum(m, &(struct model_product){l->wo, l->bo, a->att, b->r, 0}, a->n);
    if (!rc)
        rc = add_and_norm(m, a->x, b->r, l->attn_post_norm, l->attn_post_norm_bias, a->n, b->mixed);
    if (!rc) rc = model_inner_enqueue(m, l, (struct op_input){.x = b->mixed}, a->n);
    if (!rc)
        rc = model_product_sum(m, &(struct model_product){l->w_down, l->b_down, b->ff, b->r, 0},
                               a->n);
    if (rc) return rc;
    return add_and_norm(m, b->mixed, b->r, l->ffn_post_norm, l->ffn_post_norm_bias, a->n, out);
}
