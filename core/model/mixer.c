/* mixer.c - the first half of a layer: attention over the paged KV cache, or linear attention or a
 * short convolution over state blocks. Only enqueues ops. Runs on the engine's worker. */
#include "core/model/model_int.h"

uint32_t model_mixer_cols(const model *m, uint32_t i) {
    const struct model_hparams *hp = &m->hp;
    const struct model_recurrent *r = &hp->recurrent;
    if (!model_layer_attends(hp->layers[i]))
        return r->channels ? r->channels
                           : r->n_v_heads * r->v_dim * (m->part.gathers ? m->part.n_ranks : 1);
    if (hp->mla.kv_rank) return hp->n_heads * hp->mla.v_dim;
    return model_n_heads(hp, i) * (hp->v_dim ? hp->v_dim : model_head_dim(hp, hp->layers[i]));
}

uint32_t model_v_piece(const struct model_hparams *hp) {
    uint32_t a = hp->head_dim, b = hp->v_dim;
    while (b) {
        const uint32_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* Attention of narrower heads of V: in the cache zeros follow each, and so in attention's output,
 * without which it is gathered. */
static int narrow_values(model *m, uint32_t n_rows) {
    const struct model_hparams *hp = &m->hp;
    const uint32_t piece = model_v_piece(hp);
    struct model_bufs *b = &m->bufs;
    return backend_gather(
        m->be, &(struct op_gather){.x = b->att_latent,
                                   .rows = b->v_pieces,
                                   .n_out_rows = n_rows * hp->n_heads * (hp->v_dim / piece),
                                   .n_cols = piece,
                                   .out = b->att});
}

int model_store_attend_enqueue(model *m, const struct model_place *p, backend_buf *out) {
    const struct model_hparams *hp = &m->hp;
    const struct model_layer *l = &m->w.layers[p->layer];
    const struct backend_kv *kv = &p->pools->kv[p->at];
    const uint32_t n_rows = p->shape->n_rows;
    struct model_bufs *b = &m->bufs;
    const bool windowed = hp->layers[p->layer] & MODEL_LAYER_WINDOWED;
    const bool own_table = windowed && m->limits.window_tables;
    const bool shared = hp->layers[p->layer] & MODEL_LAYER_SHARED_KV;
    const bool uses_rope = !(hp->layers[p->layer] & MODEL_LAYER_NO_ROPE);
    const bool unweighted = hp->qk_unweighted && uses_rope;
    const bool scales_q = hp->q_log_scale != 0 && !(hp->q_log_unrotated && uses_rope);
    const struct op_store_attend both = {
        .store = {.q = b->q,
                  .k = shared ? NULL : b->k,
                  .v = shared || kv->v_dim ? NULL : b->v,
                  .v_normed = hp->gemma4.on && !shared,
                  .pos = b->pos,
                  .slots = b->slots[own_table],
                  .inv_freq = b->inv_freq[windowed],
                  .q_norm = unweighted ? m->w.ones : l->q_norm,
                  .k_norm = unweighted ? m->w.ones : l->k_norm,
                  .eps = hp->rms_eps,
                  .magnitude = m->magnitude[windowed],
                  .n_rows = n_rows,
                  .n_heads = model_n_heads(hp, p->layer),
                  .n_rot = uses_rope ? hp->rope[windowed].n_rot : 0,
                  .interleaved = m->arch->rope_interleaved,
                  .norm_last = m->arch->qk_norm_last && (unweighted || l->q_norm),
                  .q_log_scale = scales_q ? hp->q_log_scale : 0,
                  .q_log_length = scales_q ? hp->q_log_length : 0,
                  .q_log_from = hp->q_log_from,
                  .kv = *kv},
        .attend = {.q = b->q,
                   .pos = b->pos,
                   .row_start = b->row_start,
                   .tables = b->tables[own_table],
                   .n_rows = n_rows,
                   .n_seqs = p->shape->n_seqs,
                   .n_heads = model_n_heads(hp, p->layer),
                   .table_stride = p->shape->max_context / kv->block_tokens,
                   .max_context = p->shape->max_context,
                   .window = windowed ? hp->window : 0,
                   .both_ways = hp->both_ways,
                   .chunked = windowed && hp->chunked,
                   .scale = hp->attn_scale,
                   .softcap = hp->attn_softcap,
                   .sinks = l->sinks,
                   .slopes = m->w.slopes,
                   .kv = *kv,
                   .out = out}};
    return backend_store_attend(m->be, &both);
}

int model_attention_enqueue(model *m, const struct model_place *p, struct model_pending pending) {
    const struct model_hparams *hp = &m->hp;
    if (hp->mla.kv_rank) return model_mla_enqueue(m, p, pending);
    const struct model_layer *l = &m->w.layers[p->layer];
    const uint32_t n_rows = p->shape->n_rows;
    struct model_bufs *b = &m->bufs;
    const bool shared = hp->layers[p->layer] & MODEL_LAYER_SHARED_KV;
    struct op_input in = model_input(m, b->x, pending, l->attn_norm);
    in.norm_bias = l->attn_norm_bias;
    int rc = backend_linear(m->be, &(struct op_linear){.in = in,
                                                       .n_rows = n_rows,
                                                       .n_weights = shared ? 1 : 3,
                                                       .w = {l->wq, l->wk, l->wv ? l->wv : l->wk},
                                                       .bias = {l->bq, l->bk, l->bv},
                                                       .y = {b->q, b->k, b->v}});
    if (!rc && l->w_attn_gate)
        rc = backend_linear(
            m->be,
            &(struct op_linear){.in = model_input(m, b->x, (struct model_pending){0}, l->attn_norm),
                                .n_rows = n_rows,
                                .n_weights = 1,
                                .w = {l->w_attn_gate},
                                .y = {b->gate}});
    if (rc) return rc;
    rc = model_store_attend_enqueue(m, p, hp->v_dim ? b->att_latent : b->att);
    if (!rc && hp->v_dim) rc = narrow_values(m, n_rows);
    if (rc || !l->w_attn_gate) return rc;
    return backend_gate(m->be, &(struct op_gate){.x = b->att,
                                                 .gate = b->gate,
                                                 .n_rows = n_rows,
                                                 .n_cols = model_mixer_cols(m, p->layer),
                                                 .span = hp->gate_span,
                                                 .softplus = hp->gate_softplus});
}

static int enqueue_short_conv(model *m, const struct model_place *p, struct model_pending pending) {
    const struct model_layer *l = &m->w.layers[p->layer];
    struct model_bufs *b = &m->bufs;
    int rc =
        backend_linear(m->be, &(struct op_linear){.in = model_input(m, b->x, pending, l->attn_norm),
                                                  .n_rows = p->shape->n_rows,
                                                  .n_weights = 1,
                                                  .w = {l->w_bcx},
                                                  .y = {b->conv_in}});
    if (rc) return rc;
    return backend_short_conv(m->be, &(struct op_short_conv){.bcx = b->conv_in,
                                                             .pos = b->pos,
                                                             .row_start = b->row_start,
                                                             .tables = b->state_tables,
                                                             .conv = l->conv,
                                                             .n_rows = p->shape->n_rows,
                                                             .n_seqs = p->shape->n_seqs,
                                                             .state = p->pools->states[p->at],
                                                             .out = b->att});
}

/* What a delta net reads whose channels decay by themselves: Q, K and V apart, alpha and z as
 * products of few dimensions. */
static int enqueue_channel_inputs(model *m, const struct model_layer *l, uint32_t n_rows,
                                  struct model_pending pending) {
    struct model_bufs *b = &m->bufs;
    int rc =
        backend_linear(m->be, &(struct op_linear){.in = model_input(m, b->x, pending, l->attn_norm),
                                                  .n_rows = n_rows,
                                                  .n_weights = 3,
                                                  .w = {l->wq, l->wk, l->wv},
                                                  .y = {b->conv_in, b->conv_in_k, b->conv_in_v}});
    if (!rc)
        rc = backend_linear(
            m->be,
            &(struct op_linear){.in = model_input(m, b->x, (struct model_pending){0}, l->attn_norm),
                                .n_rows = n_rows,
                                .n_weights = 3,
                                .w = {l->w_low_alpha, l->w_low_z, l->w_beta},
                                .y = {b->low_alpha, b->low_z, b->beta}});
    if (!rc)
        rc = model_product_enqueue(
            m, &(struct model_product){l->w_alpha, NULL, b->low_alpha, b->alpha, 0}, n_rows);
    if (rc) return rc;
    return model_product_enqueue(m, &(struct model_product){l->w_z, NULL, b->low_z, b->z, 0},
                                 n_rows);
}

static int enqueue_recurrent_inputs(model *m, const struct model_layer *l, uint32_t n_rows,
                                    struct model_pending pending) {
    const bool mamba2 = m->hp.recurrent.mamba2;
    struct model_bufs *b = &m->bufs;
    if (m->hp.recurrent.channel_decay) return enqueue_channel_inputs(m, l, n_rows, pending);
    struct op_linear op = {.in = model_input(m, b->x, pending, l->attn_norm),
                           .n_rows = n_rows,
                           .n_weights = mamba2 ? 2 : 4,
                           .w = {l->w_qkv, l->w_z, l->w_alpha, l->w_beta},
                           .y = {b->conv_in, b->z, b->alpha, b->beta}};
    int rc = backend_linear(m->be, &op);
    if (rc || !mamba2) return rc;
    /* Mamba-2's alpha alone has the scale of dt. */
    return backend_linear(
        m->be,
        &(struct op_linear){.in = model_input(m, b->x, (struct model_pending){0}, l->attn_norm),
                            .n_rows = n_rows,
                            .n_weights = 1,
                            .w = {l->w_alpha},
                            .y_scale = m->hp.dt_scale,
                            .y = {b->alpha}});
}

int model_recurrent_enqueue(model *m, const struct model_place *p, struct model_pending pending) {
    if (m->hp.recurrent.channels) return enqueue_short_conv(m, p, pending);
    const struct model_layer *l = &m->w.layers[p->layer];
    const uint32_t n_rows = p->shape->n_rows;
    const bool mamba2 = m->hp.recurrent.mamba2, apart = m->hp.recurrent.channel_decay;
    const bool gathers = m->part.gathers;
    const bool apart_out = gathers || m->hp.layers[p->layer] & MODEL_LAYER_PARALLEL;
    struct model_bufs *b = &m->bufs;
    int rc = enqueue_recurrent_inputs(m, l, n_rows, pending);
    if (rc) return rc;
    rc = backend_linear_attention(
        m->be, &(struct op_linear_attention){.qkv = b->conv_in,
                                             .k = apart ? b->conv_in_k : NULL,
                                             .v = apart ? b->conv_in_v : NULL,
                                             .z = b->z,
                                             .alpha = b->alpha,
                                             .beta = mamba2 ? NULL : b->beta,
                                             .pos = b->pos,
                                             .row_start = b->row_start,
                                             .tables = b->state_tables,
                                             .conv = l->conv,
                                             .conv_k = l->conv_k,
                                             .conv_v = l->conv_v,
                                             .conv_bias = l->conv_bias,
                                             .skip = l->skip,
                                             .a = l->decay,
                                             .dt_bias = l->dt_bias,
                                             .norm = gathers ? NULL : l->state_norm,
                                             .eps = m->hp.rms_eps,
                                             .n_rows = n_rows,
                                             .n_seqs = p->shape->n_seqs,
                                             .n_norm_groups = m->hp.recurrent.n_norm_groups,
                                             .tiled = m->hp.recurrent.tiled,
                                             .state = p->pools->states[p->at],
                                             .work = b->conv_out,
                                             .out = apart_out ? b->mix : b->att});
    return rc || !gathers ? rc
                          : model_join(m, b->mix, b->att, n_rows, model_mixer_cols(m, p->layer));
}
