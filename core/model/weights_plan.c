/* weights_plan.c - which tensors a model must and may have: a table of roles, the plan that finds
 * each role's tensor once, and the check of a file against it. A tensor that is missing, has
 * another shape or is not expected is refused by its name. Owns the plan. */
#include "core/model/weights_int.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a model has: bits set by its architecture's row, its keys, and (fused Q, K, V) its file. */
enum feature {
    ANY = 1,
    PRE_NORM = 2,  /* attn_norm */
    FFN_NORM = 4,  /* ffn_norm under its own name */
    POST_NORM = 8, /* after both blocks */
    POST_ATTENTION_FFN_NORM = 16,
    QK_NORM = 32,
    QKV_APART = 64,
    QKV_FUSED = 128,
    QKV_APART_BIAS = 256,
    QKV_FUSED_BIAS = 512,
    OUT_BIAS = 1024,
    SINKS = 2048,
    DENSE = 4096,
    FF_APART = 8192,
    FF_FUSED = 16384,
    EXPERTS = 32768,
    EXPERT_BIAS = 65536,
    SHARED = 131072
};

#define MODEL(field) offsetof(struct model_weights, field)
#define LAYER(field) offsetof(struct model_layer, field)

static const struct weight_role model_roles[] = {
    {"token_embd.weight", MODEL(embed), DIM_VOCAB, DIM_EMBD, .must = ANY, .embed = true},
    {"output_norm.weight", MODEL(output_norm), DIM_VECTOR, DIM_EMBD, .must = ANY},
    {"output.weight", MODEL(output), DIM_VOCAB, DIM_EMBD, .may = ANY},
    {"output.bias", MODEL(output_bias), DIM_VECTOR, DIM_VOCAB, .may = ANY},
};

static const struct weight_role layer_roles[] = {
    {"attn_norm.weight", LAYER(attn_norm), DIM_VECTOR, DIM_EMBD, .must = PRE_NORM},
    {"attn_q.weight", LAYER(wq), DIM_HEADS, DIM_EMBD, .must = QKV_APART},
    {"attn_k.weight", LAYER(wk), DIM_KV, DIM_EMBD, .must = QKV_APART},
    {"attn_v.weight", LAYER(wv), DIM_KV, DIM_EMBD, .must = QKV_APART},
    {"attn_qkv.weight", LAYER(wq), DIM_HEADS, DIM_EMBD, .must = QKV_FUSED, .whole = DIM_QKV},
    {"attn_qkv.weight", LAYER(wk), DIM_KV, DIM_EMBD, .must = QKV_FUSED, .whole = DIM_QKV,
     .at = DIM_HEADS},
    {"attn_qkv.weight", LAYER(wv), DIM_KV, DIM_EMBD, .must = QKV_FUSED, .whole = DIM_QKV,
     .at = DIM_HEADS_KV},
    {"attn_q.bias", LAYER(bq), DIM_VECTOR, DIM_HEADS, .must = QKV_APART_BIAS, .may = QKV_APART},
    {"attn_k.bias", LAYER(bk), DIM_VECTOR, DIM_KV, .must = QKV_APART_BIAS, .may = QKV_APART},
    {"attn_v.bias", LAYER(bv), DIM_VECTOR, DIM_KV, .must = QKV_APART_BIAS, .may = QKV_APART},
    {"attn_qkv.bias", LAYER(bq), DIM_VECTOR, DIM_HEADS, .must = QKV_FUSED_BIAS, .may = QKV_FUSED,
     .whole = DIM_QKV},
    {"attn_qkv.bias", LAYER(bk), DIM_VECTOR, DIM_KV, .must = QKV_FUSED_BIAS, .may = QKV_FUSED,
     .whole = DIM_QKV, .at = DIM_HEADS},
    {"attn_qkv.bias", LAYER(bv), DIM_VECTOR, DIM_KV, .must = QKV_FUSED_BIAS, .may = QKV_FUSED,
     .whole = DIM_QKV, .at = DIM_HEADS_KV},
    {"attn_q_norm.weight", LAYER(q_norm), DIM_VECTOR, DIM_Q_NORM, .must = QK_NORM},
    {"attn_k_norm.weight", LAYER(k_norm), DIM_VECTOR, DIM_K_NORM, .must = QK_NORM},
    {"attn_sinks.weight", LAYER(sinks), DIM_VECTOR, DIM_N_HEADS, .must = SINKS},
    {"attn_output.weight", LAYER(wo), DIM_EMBD, DIM_HEADS, .must = ANY},
    {"attn_output.bias", LAYER(bo), DIM_VECTOR, DIM_EMBD, .must = OUT_BIAS, .may = ANY,
     .once = true},
    {"post_attention_norm.weight", LAYER(attn_post_norm), DIM_VECTOR, DIM_EMBD, .must = POST_NORM},
    {"post_attention_norm.weight", LAYER(ffn_norm), DIM_VECTOR, DIM_EMBD,
     .must = POST_ATTENTION_FFN_NORM},
    {"ffn_norm.weight", LAYER(ffn_norm), DIM_VECTOR, DIM_EMBD, .must = FFN_NORM},
    {"ffn_gate.weight", LAYER(w_gate), DIM_FF, DIM_EMBD, .must = FF_APART},
    {"ffn_up.weight", LAYER(w_up), DIM_FF, DIM_EMBD, .must = FF_APART},
    {"ffn_up.weight", LAYER(w_gate), DIM_FF, DIM_EMBD, .must = FF_FUSED, .whole = DIM_GATE_UP},
    {"ffn_up.weight", LAYER(w_up), DIM_FF, DIM_EMBD, .must = FF_FUSED, .whole = DIM_GATE_UP,
     .at = DIM_FF},
    {"ffn_down.weight", LAYER(w_down), DIM_EMBD, DIM_FF, .must = DENSE},
    {"ffn_gate.bias", LAYER(b_gate), DIM_VECTOR, DIM_FF, .may = FF_APART},
    {"ffn_up.bias", LAYER(b_up), DIM_VECTOR, DIM_FF, .may = FF_APART},
    {"ffn_down.bias", LAYER(b_down), DIM_VECTOR, DIM_EMBD, .may = DENSE, .once = true},
    {"post_ffw_norm.weight", LAYER(ffn_post_norm), DIM_VECTOR, DIM_EMBD, .must = POST_NORM},
    {"ffn_gate_inp.weight", LAYER(router), DIM_EXPERTS, DIM_EMBD, .must = EXPERTS},
    {"ffn_gate_inp.bias", LAYER(router_bias), DIM_VECTOR, DIM_EXPERTS, .must = EXPERT_BIAS},
    {"ffn_gate_exps.weight", LAYER(e_gate), DIM_FF_EXPERT, DIM_EMBD, .must = EXPERTS,
     .experts = true},
    {"ffn_up_exps.weight", LAYER(e_up), DIM_FF_EXPERT, DIM_EMBD, .must = EXPERTS, .experts = true},
    {"ffn_down_exps.weight", LAYER(e_down), DIM_EMBD, DIM_FF_EXPERT, .must = EXPERTS,
     .experts = true},
    {"ffn_gate_exps.bias", LAYER(eb_gate), DIM_VECTOR, DIM_FF_EXPERT, .must = EXPERT_BIAS,
     .experts = true},
    {"ffn_up_exps.bias", LAYER(eb_up), DIM_VECTOR, DIM_FF_EXPERT, .must = EXPERT_BIAS,
     .experts = true},
    {"ffn_down_exps.bias", LAYER(eb_down), DIM_VECTOR, DIM_EMBD, .must = EXPERT_BIAS,
     .experts = true, .once = true},
    {"ffn_gate_inp_shexp.weight", LAYER(s_router), DIM_ONE, DIM_EMBD, .must = SHARED},
    {"ffn_gate_shexp.weight", LAYER(s_gate), DIM_FF_SHARED, DIM_EMBD, .must = SHARED},
    {"ffn_up_shexp.weight", LAYER(s_up), DIM_FF_SHARED, DIM_EMBD, .must = SHARED},
    {"ffn_down_shexp.weight", LAYER(s_down), DIM_EMBD, DIM_FF_SHARED, .must = SHARED},
};

/* Read by rope.c. */
static const char *const rope_tensors[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                           "rope_factors_long.weight"};

enum {
    N_MODEL_ROLES = sizeof model_roles / sizeof model_roles[0],
    N_LAYER_ROLES = sizeof layer_roles / sizeof layer_roles[0],
    N_ROPE_TENSORS = sizeof rope_tensors / sizeof rope_tensors[0]
};

static unsigned find_features(const gguf *g, const struct model_hparams *hp,
                              const struct model_arch *a) {
    bool fused_qkv = gguf_tensor_find(g, "blk.0.attn_qkv.weight") != NULL;
    unsigned bits = ANY | (fused_qkv ? QKV_FUSED : QKV_APART);
    if (a->pre_norm) bits |= PRE_NORM;
    if (a->pre_norm) bits |= a->ffn_norm_is_post_attention ? POST_ATTENTION_FFN_NORM : FFN_NORM;
    if (a->post_norm) bits |= POST_NORM;
    if (a->qk_norm != MODEL_QK_NORM_NONE) bits |= QK_NORM;
    if (a->qkv_bias) bits |= fused_qkv ? QKV_FUSED_BIAS : QKV_APART_BIAS;
    if (a->output_bias) bits |= OUT_BIAS;
    if (a->sinks) bits |= SINKS;
    if (!hp->experts.n_experts) return bits | DENSE | (a->fused_gate_up ? FF_FUSED : FF_APART);
    bits |= EXPERTS;
    if (a->expert_biases) bits |= EXPERT_BIAS;
    if (a->shared_expert) bits |= SHARED;
    return bits;
}

static void find_dims(const struct model_hparams *hp, const struct model_arch *a,
                      uint64_t out[N_DIMS]) {
    uint64_t heads = (uint64_t)hp->n_heads * hp->head_dim;
    uint64_t kv = (uint64_t)hp->n_kv_heads * hp->head_dim;
    bool rows = a->qk_norm == MODEL_QK_NORM_ROW;
    const uint64_t dims[N_DIMS] = {[DIM_VECTOR] = 1,
                                   [DIM_ONE] = 1,
                                   [DIM_EMBD] = hp->n_embd,
                                   [DIM_HEADS] = heads,
                                   [DIM_KV] = kv,
                                   [DIM_HEADS_KV] = heads + kv,
                                   [DIM_QKV] = heads + 2 * kv,
                                   [DIM_N_HEADS] = hp->n_heads,
                                   [DIM_Q_NORM] = rows ? heads : hp->head_dim,
                                   [DIM_K_NORM] = rows ? kv : hp->head_dim,
                                   [DIM_FF] = hp->n_ff,
                                   [DIM_GATE_UP] = 2 * (uint64_t)hp->n_ff,
                                   [DIM_EXPERTS] = hp->experts.n_experts,
                                   [DIM_FF_EXPERT] = hp->experts.n_ff,
                                   [DIM_FF_SHARED] = hp->experts.n_ff_shared,
                                   [DIM_VOCAB] = hp->n_vocab};
    memcpy(out, dims, sizeof dims);
}

/* ---- the plan ---- */

void planned_weight_name(const struct planned_weight *w, char name[WEIGHT_NAME_BYTES]) {
    if (w->layer == WEIGHT_NO_LAYER)
        snprintf(name, WEIGHT_NAME_BYTES, "%s", w->role->name);
    else
        snprintf(name, WEIGHT_NAME_BYTES, "blk.%u.%s", w->layer, w->role->name);
}

/* Adds the roles that a model with these features has, and whose tensor exists or must. */
static void plan_roles(struct weight_plan *p, const struct weight_role *roles, size_t n_roles,
                       uint32_t layer, unsigned features) {
    for (size_t i = 0; i < n_roles; i++) {
        char name[WEIGHT_NAME_BYTES];
        struct planned_weight w = {.role = &roles[i], .layer = layer};
        if (!(features & (w.role->must | w.role->may))) continue;
        planned_weight_name(&w, name);
        w.tensor = gguf_tensor_find(p->g, name);
        if (w.tensor || features & w.role->must) p->all[p->n++] = w;
    }
}

int weight_plan_make(struct weight_plan *p, const gguf *g, const struct model_hparams *hp,
                     const struct model_arch *arch, err *e) {
    unsigned features = find_features(g, hp, arch);
    uint64_t n_most = N_MODEL_ROLES + (uint64_t)hp->n_layers * N_LAYER_ROLES;
    *p = (struct weight_plan){.g = g, .n_layers = hp->n_layers};
    find_dims(hp, arch, p->dims);
    p->all = mem_new(n_most, sizeof *p->all);
    p->first = mem_new((uint64_t)hp->n_layers + 1, sizeof *p->first);
    if (!p->all || !p->first) {
        weight_plan_free(p);
        return err_no_memory(e);
    }
    plan_roles(p, model_roles, N_MODEL_ROLES, WEIGHT_NO_LAYER, features);
    for (uint32_t layer = 0; layer < hp->n_layers; layer++) {
        p->first[layer] = p->n;
        plan_roles(p, layer_roles, N_LAYER_ROLES, layer, features);
    }
    p->first[hp->n_layers] = p->n;
    return 0;
}

void weight_plan_free(struct weight_plan *p) {
    free(p->all);
    free(p->first);
    *p = (struct weight_plan){.g = NULL};
}

/* ---- check ---- */

static int compare_tensors(const void *a, const void *b) {
    const gguf_tensor *const *x = a, *const *y = b;
    return *x < *y ? -1 : *x > *y;
}

static bool is_rope_tensor(gguf_str name) {
    for (size_t i = 0; i < N_ROPE_TENSORS; i++)
        if (name.len == strlen(rope_tensors[i]) && !memcmp(name.data, rope_tensors[i], name.len))
            return true;
    return false;
}

static int refuse_unexpected(const struct weight_plan *p, err *e) {
    const gguf_tensor **planned = mem_new(p->n, sizeof *planned);
    int rc = 0;
    if (!planned) return err_no_memory(e);
    for (uint32_t i = 0; i < p->n; i++)
        planned[i] = p->all[i].tensor;
    qsort(planned, p->n, sizeof *planned, compare_tensors);
    for (uint64_t i = 0; !rc && i < gguf_n_tensors(p->g); i++) {
        const gguf_tensor *t = gguf_tensor_at(p->g, i);
        if (is_rope_tensor(t->name) || bsearch(&t, planned, p->n, sizeof *planned, compare_tensors))
            continue;
        rc = err_set(e, ERR_UNSUPPORTED, "%s: unexpected tensor %.*s for this architecture",
                     gguf_path(p->g), (int)(t->name.len < 96 ? t->name.len : 96), t->name.data);
    }
    free(planned);
    return rc;
}

/* dims as in the file: fastest first. */
static void find_shape(const struct weight_plan *p, const struct weight_role *role,
                       uint64_t dims[3]) {
    bool vector = role_is_vector(role), whole = role->whole != DIM_VECTOR;
    uint64_t n_experts = role->experts ? p->dims[DIM_EXPERTS] : 1;
    dims[0] = p->dims[vector && whole ? role->whole : role->n_in];
    dims[1] = vector ? n_experts : p->dims[whole ? role->whole : role->n_out];
    dims[2] = vector ? 1 : n_experts;
}

static int check_weight(const struct weight_plan *p, const struct planned_weight *w, err *e) {
    const gguf_tensor *t = w->tensor;
    char name[WEIGHT_NAME_BYTES];
    uint64_t dims[3];
    planned_weight_name(w, name);
    if (!t) return err_set_param(e, ERR_FORMAT, name, "%s: no tensor %s", gguf_path(p->g), name);
    find_shape(p, w->role, dims);
    if (t->dims[0] != dims[0] || t->dims[1] != dims[1] || t->dims[2] != dims[2] || t->n_dims > 3)
        return err_set_param(e, ERR_FORMAT, name,
                             "%s: tensor %s has %u dimensions, first (%llu, %llu, %llu), expected "
                             "(%llu, %llu, %llu)",
                             gguf_path(p->g), name, t->n_dims, (unsigned long long)t->dims[0],
                             (unsigned long long)t->dims[1], (unsigned long long)t->dims[2],
                             (unsigned long long)dims[0], (unsigned long long)dims[1],
                             (unsigned long long)dims[2]);
    if (role_is_vector(w->role) && t->type != QTYPE_F32)
        return err_set_param(e, ERR_UNSUPPORTED, name, "%s: tensor %s is %s, expected F32",
                             gguf_path(p->g), name, qtype_name(t->type));
    return 0;
}

int model_weights_check(const gguf *g, const struct model_hparams *hp,
                        const struct model_arch *arch, err *e) {
    struct weight_plan p;
    int rc = weight_plan_make(&p, g, hp, arch, e);
    if (!rc) rc = refuse_unexpected(&p, e);
    for (uint32_t i = 0; !rc && i < p.n; i++)
        rc = check_weight(&p, &p.all[i], e);
    weight_plan_free(&p);
    return rc;
}
