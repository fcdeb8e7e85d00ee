/* transformer.c - the one forward pass: a decoder-only transformer over a paged KV cache and state
 * blocks (mixer.c: attention, linear attention and short convolutions). The differences between
 * architectures come from the hyperparameters and from which weights exist. It only enqueues ops,
 * and these depend on a step's shape alone: step.c uploads the rest. Runs on the engine's worker.
 *
 * A block's output is not added to the residual stream by an op of its own: it is pending
 * (model_pending), and the next linear op adds and norms it while it reads its input.
 *
 * A rank of a group computes its heads, FFN columns and part of the vocabulary: its output of a
 * block is a partial sum, which the ranks add up before it becomes pending. */
#include "core/model/model_int.h"

struct op_input model_input(const model *m, backend_buf *x, struct model_pending pending,
                            const backend_weight *norm) {
    return (struct op_input){.x = x,
                             .residual = pending.r,
                             .residual_norm = pending.norm,
                             .residual_scale =
                                 pending.scale > 0 ? pending.scale : m->hp.residual_scale,
                             .norm = norm,
                             .eps = m->hp.rms_eps,
                             .centred = norm && m->hp.centred};
}

static struct op_linear product_op(const struct model_product *p, uint32_t n_rows) {
    return (struct op_linear){.in.x = p->x,
                              .n_rows = n_rows,
                              .n_weights = 1,
                              .w = {p->w},
                              .bias = {p->bias},
                              .y_scale = p->scale,
                              .y = {p->y}};
}

int model_product_enqueue(model *m, const struct model_product *p, uint32_t n_rows) {
    const struct op_linear op = product_op(p, n_rows);
    return backend_linear(m->be, &op);
}

int model_product_sum(model *m, const struct model_product *p, uint32_t n_rows) {
    struct op_linear op = product_op(p, n_rows);
    op.y_once = true; /* it is pending until the next op, if that adds it */
    return backend_linear_sum(m->be, &op, m->bufs.work);
}

int model_sum(model *m, backend_buf *x, uint32_t n_rows) {
    return backend_all_reduce(
        m->be, &(struct op_all_reduce){
                   .x = x, .work = m->bufs.work, .n_rows = n_rows, .n_cols = m->hp.n_embd});
}

int model_join(model *m, const backend_buf *part, backend_buf *out, uint32_t n_rows,
               uint32_t n_cols) {
    return backend_all_gather(
        m->be,
        &(struct op_all_gather){
            .part = part, .out = out, .work = m->bufs.work, .n_rows = n_rows, .n_cols = n_cols});
}

/* The product after a recurrent layer whose output the ranks have joined: each has the norm, and
 * its rows of the product. */
static int enqueue_joined(model *m, const struct model_layer *l, const struct model_rows *a) {
    struct model_bufs *b = &m->bufs;
    int rc = backend_linear(
        m->be, &(struct op_linear){.in = {.x = a->att, .norm = l->state_norm, .eps = m->hp.rms_eps},
                                   .n_rows = a->n,
                                   .n_weights = 1,
                                   .w = {l->w_out},
                                   .y_scale = m->hp.ssm_out_scale,
                                   .y = {b->mix}});
    return rc ? rc : model_join(m, b->mix, b->r, a->n, m->hp.n_embd);
}

/* With an epsilon of its own the norm of a pending output is an op: it is pending without. */
static int norm_pending(model *m, uint32_t n_rows, struct model_pending *pending) {
    if (m->hp.post_eps <= 0) return 0;
    const struct op_norm norm = {
        .in = {.x = m->bufs.r, .norm = pending->norm, .eps = m->hp.post_eps},
        .n_rows = n_rows,
        .out = m->bufs.mixed};
    *pending = (struct model_pending){.r = m->bufs.mixed, .norm = NULL};
    return backend_norm(m->be, &norm);
}

/* The products after a layer's attention, recurrent layer, or both. *out: the pending output. */
static int enqueue_mixed(model *m, uint32_t layer, const struct model_rows *a,
                         struct model_pending *out) {
    const struct model_layer *l = &m->w.layers[layer];
    const bool attends = model_layer_attends(m->hp.layers[layer]);
    struct model_bufs *b = &m->bufs;
    *out = (struct model_pending){.r = b->r, .norm = l->attn_post_norm};
    const struct model_hparams *hp = &m->hp;
    if (m->part.gathers && !attends) return enqueue_joined(m, l, a);
    const struct model_product attention = {l->wo, l->bo, a->att, b->r, hp->attn_out_scale},
                               recurrent = {l->w_out, l->bo, a->att, b->r, hp->ssm_out_scale};
    int rc = model_product_sum(m, attends ? &attention : &recurrent, a->n);
    if (!rc) rc = norm_pending(m, a->n, out);
    if (rc || !(m->hp.layers[layer] & MODEL_LAYER_PARALLEL)) return rc;
    /* Adds attention's output to x; what the norm gives is overwritten. */
    rc = backend_norm(m->be, &(struct op_norm){.in = model_input(m, a->x, *out, l->ffn_norm),
                                               .n_rows = a->n,
                                               .out = b->mixed});
    *out = (struct model_pending){.r = b->mixed, .norm = NULL};
    if (rc) return rc;
    return model_product_sum(
        m, &(struct model_product){l->w_out, NULL, a->mix, b->mixed, hp->ssm_out_scale}, a->n);
}

/* The FFN without a gate, on an input: b->r. */
static int enqueue_ungated(model *m, const struct model_layer *l, struct op_input in,
                           uint32_t n_rows) {
    struct model_bufs *b = &m->bufs;
    int rc = backend_linear(m->be, &(struct op_linear){.in = in,
                                                       .n_rows = n_rows,
                                                       .n_weights = 1,
                                                       .w = {l->w_up},
                                                       .bias = {l->b_up},
                                                       .y = {b->ff}});
    if (rc) return rc;
    return backend_gate(m->be, &(struct op_gate){.x = b->ff,
                                                 .n_rows = n_rows,
                                                 .n_cols = m->hp.n_ff,
                                                 .unary = m->arch->unary,
                                                 .xielu = m->hp.xielu[l - m->w.layers]});
}

int model_inner_enqueue(model *m, const struct model_layer *l, struct op_input in,
                        uint32_t n_rows) {
    if (m->arch->ungated) return enqueue_ungated(m, l, in, n_rows);
    return backend_linear(m->be, &(struct op_linear){.in = in,
                                                     .n_rows = n_rows,
                                                     .n_weights = 2,
                                                     .w = {l->w_gate, l->w_up},
                                                     .bias = {l->b_gate, l->b_up},
                                                     .act = m->arch->act,
                                                     .bounds = m->hp.ff_bounds[l - m->w.layers],
                                                     .y = {m->bufs.ff},
                                                     .y_once = !m->hp.ffn_beside});
}

/* The FFN, or the experts, beside attention: both read x. Attention's output is added to x by a
 * norm whose result is overwritten; the FFN's is pending. */
static int enqueue_beside(model *m, uint32_t layer, const struct model_rows *a,
                          struct model_pending *out) {
    const struct model_layer *l = &m->w.layers[layer];
    struct model_bufs *b = &m->bufs;
    struct op_input in =
        model_input(m, a->x, (struct model_pending){0}, l->ffn_norm ? l->ffn_norm : l->attn_norm);
    in.norm_bias = l->ffn_norm ? l->ffn_norm_bias : l->attn_norm_bias;
    struct model_pending experts = {.scale = m->hp.experts.out_scale};
    int rc = l->router ? model_experts_enqueue(m, l, in, a->n, &experts.r)
                       : model_inner_enqueue(m, l, in, a->n);
    if (!rc) rc = enqueue_mixed(m, layer, a, out);
    if (rc) return rc;
    in.residual = out->r;
    rc = backend_norm(m->be, &(struct op_norm){.in = in, .n_rows = a->n, .out = b->mixed});
    if (l->router) {
        *out = experts;
        return rc;
    }
    if (!rc)
        rc = model_product_sum(m, &(struct model_product){l->w_down, l->b_down, b->ff, b->mixed, 0},
                               a->n);
    *out = (struct model_pending){.r = b->mixed, .norm = NULL};
    return rc;
}

/* The rest of a layer after its mixers. *pending: what is to be added to x, then the pending
 * output. */
static int enqueue_rest(model *m, uint32_t layer, const struct model_rows *a,
                        struct model_pending *pending) {
    const struct model_layer *l = &m->w.layers[layer];
    const uint8_t flags = m->hp.layers[layer];
    struct model_bufs *b = &m->bufs;
    if (m->hp.ffn_beside) return enqueue_beside(m, layer, a, pending);
    if (m->arch->norm_after) return model_encoder_enqueue_rest(m, layer, a, a->x);
    int rc = flags & MODEL_LAYER_NO_MIXER ? 0 : enqueue_mixed(m, layer, a, pending);
    if (rc || flags & MODEL_LAYER_NO_FFN) return rc;
    if (m->hp.gemma4.on) {
        rc = model_gemma4_enqueue_rest(m, layer, a, *pending);
        *pending = (struct model_pending){0};
        return rc;
    }
    struct op_input in = model_input(m, a->x, *pending, l->ffn_norm);
    in.norm_bias = l->ffn_norm_bias;
    *pending = (struct model_pending){.r = b->r, .norm = l->ffn_post_norm};
    if (l->router) return model_experts_enqueue(m, l, in, a->n, &pending->r);
    rc = model_inner_enqueue(m, l, in, a->n);
    if (!rc)
        rc = model_product_sum(
            m, &(struct model_product){l->w_down, l->b_down, b->ff, b->r, m->hp.ffn_out_scale},
            a->n);
    return rc ? rc : norm_pending(m, a->n, pending);
}

static int gather_rows(model *m, const backend_buf *x, backend_buf *out, uint32_t n_rows,
                       uint32_t n_cols) {
    return backend_gather(
        m->be,
        &(struct op_gather){
            .x = x, .rows = m->bufs.out_rows, .n_out_rows = n_rows, .n_cols = n_cols, .out = out});
}

/* Top-k candidates and sampled tokens of the logit rows. */
static int pick_tokens(model *m, const struct model_shape *in) {
    struct model_bufs *b = &m->bufs;
    int rc = 0;
    if (in->n_top)
        rc = backend_top(m->be, &(struct op_top){.x = b->logits,
                                                 .n_rows = in->n_logit_rows,
                                                 .n_cols = m->hp.n_vocab,
                                                 .k = in->n_top,
                                                 .ids = b->top_ids,
                                                 .values = b->top_values});
    if (rc || !in->samples) return rc;
    return backend_sample(m->be, &(struct op_sample){.x = b->logits,
                                                     .sampling = b->sampling,
                                                     .history = b->history,
                                                     .n_rows = in->n_logit_rows,
                                                     .n_cols = m->hp.n_vocab,
                                                     .n_history = m->limits.max_history,
                                                     .out = b->sampled});
}

/* Gathers what the rest of the last layer reads; an FFN alone reads what is still pending. */
static int gather_last(model *m, uint32_t n_rows, struct model_pending *pending) {
    const struct model_hparams *hp = &m->hp;
    const uint32_t last = hp->n_layers - 1;
    struct model_bufs *b = &m->bufs;
    int rc = gather_rows(m, b->x, b->x_last, n_rows, hp->n_embd);
    if (rc) return rc;
    if (hp->layers[last] & MODEL_LAYER_NO_MIXER) {
        if (!pending->r) return 0;
        rc = gather_rows(m, pending->r, b->att_last, n_rows, hp->n_embd);
        pending->r = b->att_last;
        return rc;
    }
    if (hp->gemma4.n_per_layer)
        rc = gather_rows(m, b->layer_in, b->layer_work, n_rows,
                         hp->n_layers * hp->gemma4.n_per_layer);
    if (rc) return rc;
    rc = gather_rows(m, b->att, b->att_last, n_rows, model_mixer_cols(m, last));
    if (rc || !(hp->layers[last] & MODEL_LAYER_PARALLEL)) return rc;
    return gather_rows(m, b->mix, b->mix_last, n_rows,
                       hp->recurrent.n_v_heads * hp->recurrent.v_dim);
}

/* After the last attention only rows whose output is needed continue. If hidden states are needed
 * the final norm is an op of its own and the output head reads its result; otherwise the head norms
 * its rows as it reads them: the same bits. */
static int enqueue_head(model *m, const struct model_shape *in, struct model_pending pending) {
    const struct model_hparams *hp = &m->hp;
    struct model_bufs *b = &m->bufs;
    uint32_t n_rows = in->n_logit_rows + in->n_hidden_rows;
    bool split = m->part.n_ranks > 1;
    int rc = gather_last(m, n_rows, &pending);
    const struct model_rows rows = {b->x_last, b->att_last, b->mix_last, b->layer_work, n_rows};
    if (!rc && m->arch->norm_after) /* without a final norm and an output head */
        return model_encoder_enqueue_rest(m, hp->n_layers - 1, &rows, b->hidden);
    if (!rc) rc = enqueue_rest(m, hp->n_layers - 1, &rows, &pending);
    if (rc) return rc;
    struct op_input stream = model_input(m, b->x_last, pending, m->w.output_norm);
    stream.norm_bias = m->w.output_norm_bias;
    if (in->n_hidden_rows) {
        rc = backend_norm(m->be,
                          &(struct op_norm){.in = stream, .n_rows = n_rows, .out = b->hidden});
        if (rc) return rc;
        stream = (struct op_input){.x = b->hidden};
    }
    if (hp->encoder.on) return 0; /* it has no output head */
    rc = backend_linear(m->be, &(struct op_linear){.in = stream,
                                                   .n_rows = in->n_logit_rows,
                                                   .n_weights = 1,
                                                   .w = {m->w.output},
                                                   .bias = {m->w.output_bias},
                                                   .y_scale = hp->logit_scale,
                                                   .softcap = hp->logit_softcap,
                                                   .y = {split ? b->logits_part : b->logits}});
    if (!rc && split) rc = model_join(m, b->logits_part, b->logits, in->n_logit_rows, hp->n_vocab);
    return rc || !model_rank_picks(m) ? rc : pick_tokens(m, in);
}

/* The end of a stage: x is what the next one begins with. What the norm gives is not needed. */
static int add_pending(model *m, uint32_t n_rows, struct model_pending pending) {
    struct op_input in = model_input(m, m->bufs.x, pending, m->w.stream_norm);
    in.centred = false;
    if (!pending.r) return 0;
    return backend_norm(m->be,
                        &(struct op_norm){.in = in, .n_rows = n_rows, .out = m->bufs.x_last});
}

int model_enqueue(model *m, const struct model_shape *shape, const struct model_pools *pools) {
    struct model_bufs *b = &m->bufs;
    uint32_t n_layers = m->hp.n_layers, n_attention = 0, n_recurrent = 0;
    struct model_pending pending = {0};
    int rc = 0;
    if (m->part.embeds)
        rc = m->hp.encoder.on ? model_encoder_enqueue_inputs(m, shape->n_rows)
                              : model_inputs_enqueue(m, shape->n_rows, &pending);
    if (!rc) rc = model_gemma4_enqueue_inputs(m, shape->n_rows);
    const struct model_rows rows = {b->x, b->att, b->mix, b->layer_in, shape->n_rows};
    for (uint32_t i = 0; i < n_layers && !rc; i++) {
        const uint8_t flags = m->hp.layers[i];
        struct model_place p = {.layer = i, .shape = shape, .pools = pools};
        if (model_layer_attends(flags)) {
            p.at = flags & MODEL_LAYER_SHARED_KV ? model_kv_layer(&m->hp, i) : n_attention++;
            rc = model_attention_enqueue(m, &p, pending);
            pending = (struct model_pending){0};
        }
        if (!rc && flags & MODEL_LAYER_RECURRENT) {
            p.at = n_recurrent++;
            rc = model_recurrent_enqueue(m, &p, pending);
        }
        if (rc) return rc;
        rc = i + 1 < n_layers || !m->part.ends ? enqueue_rest(m, i, &rows, &pending)
                                               : enqueue_head(m, shape, pending);
    }
    return rc || m->part.ends ? rc : add_pending(m, shape->n_rows, pending);
}
