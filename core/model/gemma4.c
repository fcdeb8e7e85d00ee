/* gemma4.c - what Gemma 4 has beyond other architectures (transformers, modeling_gemma4.py): its
 * keys, its tensors, and the ops of a layer after attention. Owns nothing.
 *
 * Windowed layers have heads of their own width and number. The last layers store no K and V: each
 * reads those of the last layer before them that is windowed, or not, as it is. V is normed without
 * weights, and is K before its norm where there is no V projection. Beside the FFN a layer may have
 * experts, each with norms of its own. A small vector of each token and layer (per-layer
 * embeddings) gates a last block, which each rank of a group computes as a whole. Then the residual
 * stream is multiplied by a number. */
#include "core/model/weights_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_HEAD_DIM = 512, MAX_HEADS = 1024, MAX_FF = 1 << 20, MAX_PER_LAYER = 1 << 14 };

static const char kv_key[] = "attention.head_count_kv", ff_key[] = "feed_forward_length",
                  shared_key[] = "attention.shared_kv_layers";
/* All layers have experts, or none. */
static const char *const dense_keys[] = {"leading_dense_block_count", "inferd.dense_layers"};

/* ---- keys ---- */

/* Key and value heads of one width. */
static int read_width(struct model_keys *k, const char *key, const char *value, uint32_t *dim,
                      err *e) {
    uint32_t v_dim = 0;
    int rc = model_key_count(k, key, MAX_HEAD_DIM, 0, dim, e);
    if (!rc) rc = model_key_count(k, value, MAX_HEAD_DIM, *dim, &v_dim, e);
    if (rc || (v_dim == *dim && v_dim % 2 == 0)) return rc;
    return err_set_param(
        e, ERR_UNSUPPORTED, k->key,
        "%s: %s is %u, with key heads of %u dimensions: this build supports equal, "
        "even numbers",
        gguf_path(k->g), k->key, v_dim, *dim);
}

/* Flags the layers that store no K and V; each needs an earlier one of its kind that does. */
static int read_shared(struct model_keys *k, struct model_hparams *hp, err *e) {
    uint32_t n;
    int rc = model_key_count_or_zero(k, shared_key, hp->n_layers - 1, &n, e);
    if (rc) return rc;
    bool stores[2] = {false, false};
    hp->n_kv_layers = hp->n_layers - n;
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const bool windowed = hp->layers[i] & MODEL_LAYER_WINDOWED;
        if (i < hp->n_kv_layers) {
            stores[windowed] = true;
            continue;
        }
        hp->layers[i] |= MODEL_LAYER_SHARED_KV;
        if (!stores[windowed])
            return err_set_param(e, ERR_FORMAT, model_key(k, shared_key),
                                 "%s: %s is %u, but no layer before them is %s, as layer %u is",
                                 gguf_path(k->g), k->key, n,
                                 windowed ? "windowed" : "without a window", i);
    }
    return 0;
}

static int check_heads(struct model_keys *k, const struct model_hparams *hp, uint32_t n_kv,
                       err *e) {
    if (!n_kv || hp->n_heads % n_kv == 0) return 0;
    return err_set_param(e, ERR_FORMAT, model_key(k, kv_key),
                         "%s: %s: %u heads cannot share %u KV heads", gguf_path(k->g), k->key,
                         hp->n_heads, n_kv);
}

int model_gemma4_read(struct model_keys *k, struct model_hparams *hp, err *e) {
    struct model_gemma4 *g = &hp->gemma4;
    uint32_t list[MODEL_MAX_LAYERS], n[2];
    int rc;
    g->on = true;
    if ((rc = model_keys_refuse(k, dense_keys, 2, e)) ||
        (rc = read_width(k, "attention.key_length", "attention.value_length", &hp->head_dim, e)) ||
        (rc = read_width(k, "attention.key_length_swa", "attention.value_length_swa",
                         &hp->window_head_dim, e)) ||
        (rc = read_shared(k, hp, e)) || (rc = model_key_list(k, kv_key, MAX_HEADS, hp, list, e)) ||
        (rc = model_key_by_flag(k, kv_key, hp, list, MODEL_LAYER_WINDOWED, n, e)) ||
        (rc = check_heads(k, hp, n[0], e)) || (rc = check_heads(k, hp, n[1], e)))
        return rc;
    hp->n_window_kv_heads = n[1] ? n[1] : n[0];
    hp->n_kv_heads = n[0] ? n[0] : n[1];
    if ((rc = model_key_list(k, ff_key, MAX_FF, hp, list, e)) ||
        (rc = model_key_by_flag(k, ff_key, hp, list, MODEL_LAYER_SHARED_KV, n, e)))
        return rc;
    hp->n_ff = n[0];
    g->n_ff_shared_kv = n[1];
    return model_key_count_or_zero(k, "embedding_length_per_layer_input", MAX_PER_LAYER,
                                   &g->n_per_layer, e);
}

uint32_t model_kv_layer(const struct model_hparams *hp, uint32_t layer) {
    const uint8_t flags = hp->layers[layer];
    if (!(flags & MODEL_LAYER_SHARED_KV)) return layer;
    do
        layer--;
    while (hp->layers[layer] & MODEL_LAYER_SHARED_KV ||
           (hp->layers[layer] ^ flags) & MODEL_LAYER_WINDOWED);
    return layer;
}

/* ---- tensors ---- */

enum feature {
    ANY = 1,
    FULL = 2,
    WINDOWED = 4,
    FULL_KV = 8, /* with K and V of its own */
    WINDOWED_KV = 16,
    NARROW = 32, /* its FFN; else: */
    WIDE = 64,
    EXPERTS = 128,
    EXPERTS_APART = 256,
    EXPERTS_FUSED = 512,
    PER_LAYER = 1024
};

#define MODEL(field) offsetof(struct model_weights, field)
#define LAYER(field) offsetof(struct model_layer, field)

const struct weight_role model_gemma4_roles[] = {
    {"per_layer_token_embd.weight", MODEL(layer_embed), DIM_VOCAB, DIM_ALL_LAYERS,
     .must = PER_LAYER, .embed = true},
    {"per_layer_model_proj.weight", MODEL(layer_proj), DIM_ALL_LAYERS, DIM_EMBD, .must = PER_LAYER},
    {"per_layer_proj_norm.weight", MODEL(layer_norm), DIM_VECTOR, DIM_PER_LAYER, .must = PER_LAYER},
};
const size_t model_gemma4_n_roles = sizeof model_gemma4_roles / sizeof model_gemma4_roles[0];

const struct weight_role model_gemma4_layer_roles[] = {
    {"attn_norm.weight", LAYER(attn_norm), DIM_VECTOR, DIM_EMBD, .must = ANY},
    {"attn_q.weight", LAYER(wq), DIM_HEADS, DIM_EMBD, .must = FULL},
    {"attn_q.weight", LAYER(wq), DIM_WINDOW_HEADS, DIM_EMBD, .must = WINDOWED},
    {"attn_k.weight", LAYER(wk), DIM_KV, DIM_EMBD, .must = FULL_KV},
    {"attn_k.weight", LAYER(wk), DIM_WINDOW_KV, DIM_EMBD, .must = WINDOWED_KV},
    {"attn_v.weight", LAYER(wv), DIM_KV, DIM_EMBD, .may = FULL_KV},
    {"attn_v.weight", LAYER(wv), DIM_WINDOW_KV, DIM_EMBD, .may = WINDOWED_KV},
    {"attn_q_norm.weight", LAYER(q_norm), DIM_VECTOR, DIM_HEAD, .must = FULL},
    {"attn_q_norm.weight", LAYER(q_norm), DIM_VECTOR, DIM_WINDOW_HEAD, .must = WINDOWED},
    {"attn_k_norm.weight", LAYER(k_norm), DIM_VECTOR, DIM_HEAD, .must = FULL_KV},
    {"attn_k_norm.weight", LAYER(k_norm), DIM_VECTOR, DIM_WINDOW_HEAD, .must = WINDOWED_KV},
    {"attn_output.weight", LAYER(wo), DIM_EMBD, DIM_HEADS, .must = FULL},
    {"attn_output.weight", LAYER(wo), DIM_EMBD, DIM_WINDOW_HEADS, .must = WINDOWED},
    {"post_attention_norm.weight", LAYER(attn_post_norm), DIM_VECTOR, DIM_EMBD, .must = ANY},
    {"ffn_norm.weight", LAYER(ffn_norm), DIM_VECTOR, DIM_EMBD, .must = ANY},
    {"ffn_gate.weight", LAYER(w_gate), DIM_FF, DIM_EMBD, .must = NARROW},
    {"ffn_up.weight", LAYER(w_up), DIM_FF, DIM_EMBD, .must = NARROW},
    {"ffn_down.weight", LAYER(w_down), DIM_EMBD, DIM_FF, .must = NARROW},
    {"ffn_gate.weight", LAYER(w_gate), DIM_FF_SHARED_KV, DIM_EMBD, .must = WIDE},
    {"ffn_up.weight", LAYER(w_up), DIM_FF_SHARED_KV, DIM_EMBD, .must = WIDE},
    {"ffn_down.weight", LAYER(w_down), DIM_EMBD, DIM_FF_SHARED_KV, .must = WIDE},
    {"post_ffw_norm.weight", LAYER(ffn_post_norm), DIM_VECTOR, DIM_EMBD, .must = ANY},
    {"layer_output_scale.weight", LAYER(out_scale), DIM_VECTOR, DIM_ONE, .may = ANY},
    {"ffn_gate_inp.weight", LAYER(router), DIM_EXPERTS, DIM_EMBD, .must = EXPERTS},
    {"ffn_gate_inp.scale", LAYER(router_norm), DIM_VECTOR, DIM_EMBD, .must = EXPERTS,
     .by_root = true},
    {"pre_ffw_norm_2.weight", LAYER(experts_norm), DIM_VECTOR, DIM_EMBD, .must = EXPERTS},
    {"post_ffw_norm_1.weight", LAYER(dense_post_norm), DIM_VECTOR, DIM_EMBD, .must = EXPERTS},
    {"post_ffw_norm_2.weight", LAYER(experts_post_norm), DIM_VECTOR, DIM_EMBD, .must = EXPERTS},
    {"ffn_gate_exps.weight", LAYER(e_gate), DIM_FF_EXPERT, DIM_EMBD, .must = EXPERTS_APART,
     .experts = true},
    {"ffn_up_exps.weight", LAYER(e_up), DIM_FF_EXPERT, DIM_EMBD, .must = EXPERTS_APART,
     .experts = true},
    {"ffn_gate_up_exps.weight", LAYER(e_gate), DIM_FF_EXPERT, DIM_EMBD, .must = EXPERTS_FUSED,
     .whole = DIM_GATE_UP_EXPERT, .experts = true},
    {"ffn_gate_up_exps.weight", LAYER(e_up), DIM_FF_EXPERT, DIM_EMBD, .must = EXPERTS_FUSED,
     .whole = DIM_GATE_UP_EXPERT, .at = DIM_FF_EXPERT, .experts = true},
    {"ffn_down_exps.weight", LAYER(e_down), DIM_EMBD, DIM_FF_EXPERT, .must = EXPERTS,
     .experts = true},
    {"ffn_down_exps.scale", LAYER(expert_scale), DIM_VECTOR, DIM_EXPERTS, .may = EXPERTS},
    {"inp_gate.weight", LAYER(layer_gate), DIM_PER_LAYER, DIM_EMBD, .must = PER_LAYER},
    {"proj.weight", LAYER(layer_out), DIM_EMBD, DIM_PER_LAYER, .must = PER_LAYER},
    {"post_norm.weight", LAYER(layer_post_norm), DIM_VECTOR, DIM_EMBD, .must = PER_LAYER},
};
const size_t model_gemma4_n_layer_roles =
    sizeof model_gemma4_layer_roles / sizeof model_gemma4_layer_roles[0];

uint64_t model_gemma4_model_features(const struct model_hparams *hp) {
    return hp->gemma4.n_per_layer ? PER_LAYER : 0;
}

uint64_t model_gemma4_features(const gguf *g, const struct model_hparams *hp, uint32_t layer) {
    const bool windowed = hp->layers[layer] & MODEL_LAYER_WINDOWED,
               shared = hp->layers[layer] & MODEL_LAYER_SHARED_KV;
    char name[WEIGHT_NAME_BYTES];
    uint64_t bits = ANY | (windowed ? WINDOWED : FULL) | (shared ? WIDE : NARROW);
    if (!shared) bits |= windowed ? WINDOWED_KV : FULL_KV;
    if (hp->gemma4.n_per_layer) bits |= PER_LAYER;
    if (!hp->experts.n_experts) return bits;
    snprintf(name, sizeof name, "blk.%u.ffn_gate_up_exps.weight", layer);
    return bits | EXPERTS | (gguf_tensor_find(g, name) ? EXPERTS_FUSED : EXPERTS_APART);
}

void model_gemma4_dims(const struct model_hparams *hp, uint64_t out[N_DIMS]) {
    const struct model_gemma4 *g = &hp->gemma4;
    if (!g->on) return;
    out[DIM_WINDOW_HEAD] = hp->window_head_dim;
    out[DIM_WINDOW_HEADS] = (uint64_t)hp->n_heads * hp->window_head_dim;
    out[DIM_WINDOW_KV] = (uint64_t)hp->n_window_kv_heads * hp->window_head_dim;
    out[DIM_FF_SHARED_KV] = g->n_ff_shared_kv;
    out[DIM_PER_LAYER] = g->n_per_layer;
    out[DIM_ALL_LAYERS] = (uint64_t)hp->n_layers * g->n_per_layer;
}

/* The makers' files have K and V of layers that read another layer's. */
bool model_gemma4_skips(const struct model_hparams *hp, gguf_str name) {
    static const char *const unused[] = {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"};
    const uint32_t layer = model_tensor_layer(name);
    char text[WEIGHT_NAME_BYTES];
    if (layer >= hp->n_layers || !(hp->layers[layer] & MODEL_LAYER_SHARED_KV)) return false;
    for (size_t i = 0; i < sizeof unused / sizeof unused[0]; i++) {
        const int n = snprintf(text, sizeof text, "blk.%u.%s", layer, unused[i]);
        if (name.len == (uint64_t)n && !memcmp(name.data, text, name.len)) return true;
    }
    return false;
}

/* ---- ops ---- */

/* The per-layer inputs of n_rows rows: b->layer_in (n_rows, n_layers * n_per_layer). */
int model_gemma4_enqueue_inputs(model *m, uint32_t n_rows) {
    const struct model_gemma4 *g = &m->hp.gemma4;
    const struct model_weights *w = &m->w;
    struct model_bufs *b = &m->bufs;
    if (!g->n_per_layer) return 0;
    int rc = backend_embed(m->be, &(struct op_embed){.table = w->layer_embed,
                                                     .ids = b->ids,
                                                     .n_rows = n_rows,
                                                     .scale = sqrtf((float)g->n_per_layer),
                                                     .out = b->layer_in});
    if (!rc)
        rc = backend_linear(m->be, &(struct op_linear){.in.x = b->x,
                                                       .n_rows = n_rows,
                                                       .n_weights = 1,
                                                       .w = {w->layer_proj},
                                                       .y_scale = 1 / sqrtf((float)m->hp.n_embd),
                                                       .y = {b->layer_work}});
    if (rc) return rc;
    return backend_add_normed(m->be,
                              &(struct op_add_normed){.x = b->layer_in,
                                                      .r = b->layer_work,
                                                      .norm = w->layer_norm,
                                                      .eps = m->hp.rms_eps,
                                                      .scale = sqrtf(0.5f),
                                                      .n_rows = n_rows,
                                                      .n_cols = m->hp.n_layers * g->n_per_layer});
}

static int enqueue_linear(model *m, backend_buf *x, const backend_weight *w, backend_buf *y,
                          uint32_t n_rows) {
    return backend_linear(
        m->be,
        &(struct op_linear){.in.x = x, .n_rows = n_rows, .n_weights = 1, .w = {w}, .y = {y}});
}

/* The FFN, which reads x after adding the pending output to it; the result is in y. */
static int enqueue_dense(model *m, const struct model_layer *l, const struct model_rows *a,
                         struct model_pending pending, backend_buf *y) {
    struct model_bufs *b = &m->bufs;
    int rc =
        backend_linear(m->be, &(struct op_linear){.in = model_input(m, a->x, pending, l->ffn_norm),
                                                  .n_rows = a->n,
                                                  .n_weights = 2,
                                                  .w = {l->w_gate, l->w_up},
                                                  .act = m->arch->act,
                                                  .y = {b->ff},
                                                  .y_once = true});
    if (!rc) rc = enqueue_linear(m, b->ff, l->w_down, y, a->n);
    return rc ? rc : model_sum(m, y, a->n);
}

/* FFN and experts: r = the norm of the sum of their normed outputs. */
static int enqueue_both(model *m, const struct model_layer *l, const struct model_rows *a,
                        struct model_pending pending) {
    const struct model_pending none = {0};
    const struct model_experts *x = &m->hp.experts;
    struct model_bufs *b = &m->bufs;
    int rc = enqueue_dense(m, l, a, pending, b->shared);
    if (!rc)
        rc =
            backend_norm(m->be, &(struct op_norm){.in = model_input(m, a->x, none, l->experts_norm),
                                                  .n_rows = a->n,
                                                  .out = b->latent});
    if (!rc)
        rc = backend_moe(m->be, &(struct op_moe){.in = model_input(m, a->x, none, l->router_norm),
                                                 .n_rows = a->n,
                                                 .n_used = x->n_used,
                                                 .router = l->router,
                                                 .gating = x->gating,
                                                 .renormalize = x->renormalize,
                                                 .weight_scale = x->weight_scale,
                                                 .expert_scale = l->expert_scale,
                                                 .act = m->arch->act,
                                                 .latent = b->latent,
                                                 .gate = l->e_gate,
                                                 .up = l->e_up,
                                                 .down = l->e_down,
                                                 .y = b->moe});
    if (!rc) rc = model_sum(m, b->moe, a->n);
    if (!rc)
        rc = backend_norm(
            m->be, &(struct op_norm){.in = model_input(m, b->shared, none, l->dense_post_norm),
                                     .n_rows = a->n,
                                     .out = b->mixed});
    if (rc) return rc;
    const struct model_pending experts = {.r = b->moe, .norm = l->experts_post_norm};
    return backend_norm(m->be,
                        &(struct op_norm){.in = model_input(m, b->mixed, experts, l->ffn_post_norm),
                                          .n_rows = a->n,
                                          .out = b->r});
}

/* x = out_scale * (x + the pending output). */
static int enqueue_out(model *m, const struct model_layer *l, const struct model_rows *a,
                       struct model_pending pending) {
    return backend_add_normed(m->be, &(struct op_add_normed){.x = a->x,
                                                             .r = pending.r,
                                                             .norm = pending.norm,
                                                             .eps = m->hp.rms_eps,
                                                             .factor = l->out_scale,
                                                             .n_rows = a->n,
                                                             .n_cols = m->hp.n_embd});
}

int model_gemma4_enqueue_rest(model *m, uint32_t layer, const struct model_rows *a,
                              struct model_pending pending) {
    const struct model_layer *l = &m->w.layers[layer];
    const uint32_t n = m->hp.gemma4.n_per_layer;
    struct model_bufs *b = &m->bufs;
    struct model_pending ffn = {.r = b->r, .norm = l->router ? NULL : l->ffn_post_norm};
    int rc = l->router ? enqueue_both(m, l, a, pending) : enqueue_dense(m, l, a, pending, b->r);
    if (rc || !n) return rc ? rc : enqueue_out(m, l, a, ffn);
    rc = backend_linear(m->be, &(struct op_linear){.in = model_input(m, a->x, ffn, NULL),
                                                   .n_rows = a->n,
                                                   .n_weights = 1,
                                                   .w = {l->layer_gate},
                                                   .y = {b->layer_gate}});
    if (!rc)
        rc = backend_gated(m->be, &(struct op_gated){.x = b->layer_gate,
                                                     .up = a->layer_in,
                                                     .n_rows = a->n,
                                                     .n_cols = n,
                                                     .first = layer * n,
                                                     .stride = m->hp.n_layers * n,
                                                     .act = m->arch->act});
    if (!rc) rc = enqueue_linear(m, b->layer_gate, l->layer_out, b->r, a->n);
    return rc ? rc
              : enqueue_out(m, l, a, (struct model_pending){.r = b->r, .norm = l->layer_post_norm});
}
