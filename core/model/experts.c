/* experts.c - the mixture-of-experts FFN of a layer, with a shared expert if the model has one.
 * Owns nothing. */
#include "core/model/model_int.h"

/* The shared expert's output and its gate's score. The first op adds the pending output to x, so
 * *in no longer has it afterwards. */
static int enqueue_shared(model *m, const struct model_layer *l, struct op_input *in,
                          uint32_t n_rows) {
    struct model_bufs *b = &m->bufs;
    struct op_linear inner = {.in = *in,
                              .n_rows = n_rows,
                              .n_weights = 2,
                              .w = {l->s_gate, l->s_up},
                              .act = m->arch->act,
                              .bounds = m->hp.ff_bounds[l - m->w.layers],
                              .y = {b->ff},
                              .y_once = l->s_gate && !l->s_router};
    if (!l->s_gate) inner.n_weights = 1, inner.w[0] = l->s_up;
    int rc = backend_linear(m->be, &inner);
    if (!rc && !l->s_gate)
        rc = backend_gate(
            m->be,
            &(struct op_gate){.x = b->ff, .n_rows = n_rows, .n_cols = m->hp.experts.n_ff_shared});
    in->residual = NULL;
    in->residual_norm = NULL;
    if (!rc && l->s_router)
        rc = backend_linear(m->be, &(struct op_linear){.in = *in,
                                                       .n_rows = n_rows,
                                                       .n_weights = 1,
                                                       .w = {l->s_router},
                                                       .y = {b->shared_gate}});
    if (rc) return rc;
    return backend_linear(
        m->be,
        &(struct op_linear){
            .in.x = b->ff, .n_rows = n_rows, .n_weights = 1, .w = {l->s_down}, .y = {b->shared}});
}

/* From the experts' sum to the pending output. The shared expert's output is added to x first, by a
 * norm whose result is overwritten. */
static int enqueue_latent_up(model *m, const struct model_layer *l, struct op_input in,
                             uint32_t n_rows) {
    struct model_bufs *b = &m->bufs;
    int rc = model_sum(m, b->shared, n_rows);
    in.residual = b->shared;
    if (!rc) rc = backend_norm(m->be, &(struct op_norm){.in = in, .n_rows = n_rows, .out = b->moe});
    if (rc) return rc;
    return backend_linear(m->be, &(struct op_linear){.in.x = b->latent_sum,
                                                     .n_rows = n_rows,
                                                     .n_weights = 1,
                                                     .w = {l->latent_up},
                                                     .y = {b->moe}});
}

int model_experts_enqueue(model *m, const struct model_layer *l, struct op_input in,
                          uint32_t n_rows, backend_buf **out) {
    const struct model_experts *x = &m->hp.experts;
    struct model_bufs *b = &m->bufs;
    struct op_moe op = {.in = in,
                        .n_rows = n_rows,
                        .n_used = x->n_used,
                        .router = l->router,
                        .router_bias = l->router_bias,
                        .gating = x->gating,
                        .choice_bias = l->choice_bias,
                        .n_groups = x->n_groups,
                        .n_groups_used = x->n_groups_used,
                        .renormalize = x->renormalize,
                        .weighs_input = x->weighs_input,
                        .mixer_limit = x->mixer_limit,
                        .weight_scale = x->weight_scale,
                        .act = m->arch->act,
                        .bounds = m->hp.expert_bounds[l - m->w.layers],
                        .latent = l->latent_down ? b->latent : NULL,
                        .gate = l->e_gate,
                        .up = l->e_up,
                        .down = l->e_down,
                        .gate_bias = l->eb_gate,
                        .up_bias = l->eb_up,
                        .down_bias = l->eb_down,
                        .joined = {.gate = l->s_gate,
                                   .up = l->s_up,
                                   .down = l->s_down,
                                   .router = l->s_router,
                                   .bounds = m->hp.ff_bounds[l - m->w.layers]},
                        .y = l->latent_down ? b->latent_sum : b->moe};
    int rc = 0;
    if (l->s_up && !backend_joins_shared(m->be, &op)) {
        rc = enqueue_shared(m, l, &op.in, n_rows);
        op.joined = (struct backend_shared_expert){0};
        op.shared = l->latent_down ? NULL : b->shared;
        op.shared_gate = l->s_router ? b->shared_gate : NULL;
    }
    if (!rc && l->latent_down)
        rc = backend_linear(m->be, &(struct op_linear){.in = op.in,
                                                       .n_rows = n_rows,
                                                       .n_weights = 1,
                                                       .w = {l->latent_down},
                                                       .y = {b->latent}});
    if (rc) return rc;
    *out = b->moe;
    rc = backend_moe(m->be, &op);
    if (!rc && l->latent_down) rc = enqueue_latent_up(m, l, op.in, n_rows);
    return rc ? rc : model_sum(m, b->moe, n_rows);
}
