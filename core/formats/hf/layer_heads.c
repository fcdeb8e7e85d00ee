/* hf/layer_heads.c - config.json of families whose layers with a window have heads and a rotary
 * embedding of their own: Laguna, Step 3.5 and MiMo 2. Sources: transformers,
 * configuration_laguna.py and configuration_mimo_v2_flash.py; members of the makers' folders as
 * llama.cpp's converter reads them. Pure. */
#include "core/formats/hf/model_int.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_HEADS = 1 << 16, MAX_COUNT = 1 << 20, SIGMOID = 2 /* as in GGUF */ };

struct layers {
    bool windowed[HF_MAX_LAYERS], dense[HF_MAX_LAYERS];
    int32_t heads[HF_MAX_LAYERS], kv[HF_MAX_LAYERS];
};

/* ---- members ---- */

static int read_sizes(struct hf_reader *r, const char *kv_name, const char *eps_name) {
    struct hf_config *c = r->config;
    const struct hf_family *f = c->family;
    uint64_t layers, hidden, heads, kv, dim, ff, vocab;
    double eps;
    int rc;
    if ((rc = hf_read_count(r, "num_hidden_layers", f->n_layers, 1, HF_MAX_LAYERS, &layers)) ||
        (rc = hf_read_count(r, "hidden_size", f->hidden, 1, MAX_COUNT, &hidden)) ||
        (rc = hf_read_count(r, "num_attention_heads", f->n_heads, 1, MAX_HEADS, &heads)) ||
        (rc = hf_read_count(r, kv_name, f->n_kv_heads, 1, MAX_HEADS, &kv)) ||
        (rc = hf_read_count(r, "head_dim", f->head_dim, 2, HF_MAX_ROT, &dim)) ||
        (rc = hf_read_count(r, "intermediate_size", f->ff, 1, INT32_MAX, &ff)) ||
        (rc = hf_read_count(r, "vocab_size", f->vocab, 1, INT32_MAX, &vocab)) ||
        (rc = hf_read_count(r, "max_position_embeddings", f->max_positions, 1, INT32_MAX,
                            &c->max_positions)) ||
        (rc =
             hf_read_count(r, "num_nextn_predict_layers", 0, 0, HF_MAX_LAYERS, &c->n_predicting)) ||
        (rc = hf_read_count(r, "sliding_window", f->sliding_window, 0, INT32_MAX, &c->window)) ||
        (rc = hf_read_real(r, r->json, eps_name, f->rms_eps, &eps)))
        return rc;
    if (hf_is_null(r, "sliding_window")) c->window = 0;
    c->n_layers = (uint32_t)layers;
    c->hidden = (uint32_t)hidden;
    c->n_heads = (uint32_t)heads;
    c->n_kv_heads = (uint32_t)kv;
    c->head_dim = c->n_rot = (uint32_t)dim;
    c->n_ff = (uint32_t)ff;
    c->tied = hf_flag(r->json, "tie_word_embeddings", false);
    hf_put_u32(r, "block_count", layers);
    hf_put_u32(r, "context_length", c->max_positions);
    hf_put_u32(r, "embedding_length", hidden);
    hf_put_u32(r, "feed_forward_length", ff);
    hf_put_u32(r, "vocab_size", vocab);
    hf_put_u32(r, "attention.key_length", dim);
    hf_put_f32(r, "attention.layer_norm_rms_epsilon", eps);
    return 0;
}

static int read_integer(struct hf_reader *r, const char *name, const cJSON *item, int32_t max,
                        int32_t *out) {
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= max) ||
        item->valuedouble != (double)(int32_t)item->valuedouble)
        return err_set_param(r->e, ERR_FORMAT, name,
                             "member '%s' is not a list of an integer for each layer", name);
    *out = (int32_t)item->valuedouble;
    return 0;
}

/* A list of integers of layers, which may go on behind them. */
static int read_integers(struct hf_reader *r, const char *name, const cJSON *list, int32_t max,
                         int32_t *out) {
    const cJSON *item = cJSON_IsArray(list) ? list->child : NULL;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < r->config->n_layers; i++) {
        rc = read_integer(r, name, item, max, &out[i]);
        if (!rc) item = item->next;
    }
    return rc;
}

static int read_windows(struct hf_reader *r, struct layers *l) {
    const cJSON *list = hf_value(r->json, "layer_types");
    int rc = list ? hf_read_layer_types(r, list, l->windowed) : 0;
    for (uint32_t i = 0; !rc && i < r->config->n_layers; i++)
        if (l->windowed[i] && !r->config->window)
            return hf_refuse(r, "sliding_window", "layers with a window need a number above 0");
    return rc;
}

/* mlp_layer_types: "dense" or "sparse"; without it the first layer is dense. */
static int read_dense(struct hf_reader *r, struct layers *l) {
    static const char name[] = "mlp_layer_types";
    const cJSON *list = hf_value(r->json, name), *item = cJSON_IsArray(list) ? list->child : NULL;
    for (uint32_t i = 0; i < r->config->n_layers; i++) {
        l->dense[i] = i == 0;
        if (!list) continue;
        l->dense[i] = cJSON_IsString(item) && strcmp(item->valuestring, "dense") == 0;
        if (!l->dense[i] && !(cJSON_IsString(item) && strcmp(item->valuestring, "sparse") == 0))
            return err_set_param(r->e, ERR_FORMAT, name,
                                 "member '%s' is not a list of 'dense' or 'sparse' for each layer",
                                 name);
        item = item->next;
    }
    return 0;
}

/* ---- keys ---- */

static void put_counts(struct hf_reader *r, const char *suffix, const int32_t *v) {
    bool same = true;
    for (uint32_t i = 1; i < r->config->n_layers; i++)
        same = same && v[i] == v[0];
    if (same)
        hf_put_u32(r, suffix, (uint64_t)v[0]);
    else
        hf_put_i32s(r, suffix, v, r->config->n_layers);
}

/* usual_period: readers take layers with full attention to be the first of as many; 0: they need a
 * list. */
static void put_layers(struct hf_reader *r, const struct layers *l, uint32_t usual_period) {
    const uint32_t n = r->config->n_layers;
    bool any = false, usual = usual_period > 0;
    for (uint32_t i = 0; i < n; i++) {
        any = any || l->windowed[i];
        if (usual_period) usual = usual && l->windowed[i] == (i % usual_period != 0);
    }
    hf_put_u32(r, "attention.sliding_window", any ? r->config->window : 0);
    if (any && !usual) hf_put_bools(r, "attention.sliding_window_pattern", l->windowed, n);
    put_counts(r, "attention.head_count", l->heads);
    put_counts(r, "attention.head_count_kv", l->kv);
    hf_put_dense_layers(r, l->dense);
}

struct expert_names {
    const char *n, *used, *shared, *scale; /* shared, scale NULL: there are none */
    uint64_t n_usual, used_usual, ff_usual, shared_usual;
};

static int put_experts(struct hf_reader *r, const struct expert_names *t) {
    uint64_t n, used, ff, shared = 0;
    double scale = 1;
    int rc;
    if ((rc = hf_read_count(r, t->n, t->n_usual, 1, HF_MAX_EXPERTS, &n)) ||
        (rc = hf_read_count(r, t->used, t->used_usual, 1, n, &used)) ||
        (rc = hf_read_count(r, "moe_intermediate_size", t->ff_usual, 1, INT32_MAX, &ff)) ||
        (t->shared && (rc = hf_read_count(r, t->shared, t->shared_usual, 1, INT32_MAX, &shared))) ||
        (rc = hf_read_positive(r, t->scale, 1, &scale)))
        return rc;
    hf_put_expert_counts(r, n, used);
    hf_put_u32(r, "expert_feed_forward_length", ff);
    if (shared) hf_put_u32(r, "expert_shared_feed_forward_length", shared);
    hf_put_u32(r, "expert_gating_func", SIGMOID);
    if (scale != 1) hf_put_f32(r, "expert_weights_scale", scale);
    return 0;
}

/* The rotated part of heads of windowed layers. */
static int put_local_rope(struct hf_reader *r) {
    const cJSON *local = hf_value(hf_value(r->json, "rope_parameters"), "sliding_attention");
    double part;
    int rc = hf_read_real(r, local, "partial_rotary_factor", 1, &part);
    if (rc) return rc;
    const uint32_t n = part > 0 && part <= 1 ? (uint32_t)(part * r->config->head_dim) : 0;
    if (n < 2 || n % 2)
        return err_set_param(r->e, ERR_UNSUPPORTED, "partial_rotary_factor",
                             "%g of the %u dimensions of a head cannot be rotated", part,
                             r->config->head_dim);
    hf_put_u32(r, "rope.dimension_count_swa", n);
    return 0;
}

static int put_ropes(struct hf_reader *r) {
    const int rc = hf_read_rope(r);
    return rc ? rc : put_local_rope(r);
}

/* ---- Laguna ---- */

static int check_laguna(struct hf_reader *r) {
    const cJSON *gating = hf_value(r->json, "gating");
    const bool known =
        !gating || cJSON_IsTrue(gating) ||
        (cJSON_IsString(gating) && (strcmp(gating->valuestring, "per-head") == 0 ||
                                    strcmp(gating->valuestring, "per-element") == 0));
    double cap;
    int rc = hf_read_real(r, r->json, "moe_router_logit_softcapping", 0, &cap);
    if (rc) return rc;
    if (!known) /* tensors tell heads from elements */
        return hf_refuse(r, "gating", "only true, 'per-head' and 'per-element' are supported");
    if (cap != 0) return hf_refuse(r, "moe_router_logit_softcapping", "only 0 is supported");
    if (hf_flag(r->json, "moe_apply_router_weight_on_input", false))
        return hf_refuse(r, "moe_apply_router_weight_on_input", "only false is supported");
    if (!hf_value(hf_value(r->json, "rope_parameters"), "full_attention"))
        return err_set_param(r->e, ERR_FORMAT, "rope_parameters",
                             "member 'rope_parameters' has no 'full_attention'");
    return 0;
}

int hf_read_laguna(struct hf_reader *r) {
    static const struct expert_names names = {"num_experts",
                                              "num_experts_per_tok",
                                              "shared_expert_intermediate_size",
                                              "moe_routed_scaling_factor",
                                              256,
                                              8,
                                              512,
                                              512};
    static const char per_layer[] = "num_attention_heads_per_layer";
    const cJSON *list = hf_value(r->json, per_layer);
    struct layers l = {{0}, {0}, {0}, {0}};
    int rc;
    if ((rc = check_laguna(r)) || (rc = read_sizes(r, "num_key_value_heads", "rms_norm_eps")) ||
        (rc = read_windows(r, &l)) || (rc = read_dense(r, &l)))
        return rc;
    for (uint32_t i = 0; i < r->config->n_layers; i++) {
        l.heads[i] = (int32_t)r->config->n_heads;
        l.kv[i] = (int32_t)r->config->n_kv_heads;
    }
    if (list && (rc = read_integers(r, per_layer, list, MAX_HEADS, l.heads))) return rc;
    hf_put_u32(r, "attention.value_length", r->config->head_dim);
    hf_put_bool(r, "expert_weights_norm", true);
    put_layers(r, &l, 4);
    if ((rc = put_experts(r, &names)) || (rc = put_ropes(r))) return rc;
    return r->rc;
}

/* ---- Step 3.5 ---- */

/* Which layers have experts: "1,2,3". */
static int read_moe_layers(struct hf_reader *r, struct layers *l) {
    static const char name[] = "moe_layers_enum";
    const char *at = hf_text(r->json, name);
    for (uint32_t i = 0; i < r->config->n_layers; i++)
        l->dense[i] = at ? true : i == 0;
    while (at && *at) {
        char *end;
        const unsigned long layer = strtoul(at, &end, 10);
        if (end == at || (*end && *end != ','))
            return err_set_param(r->e, ERR_FORMAT, name,
                                 "member '%s' is not a list of layers with commas between", name);
        if (layer < r->config->n_layers) l->dense[layer] = false;
        at = *end ? end + 1 : end;
    }
    return 0;
}

/* Bounds of the FFNs of layers; 0: there are none. */
static int put_limits(struct hf_reader *r, const char *name, const char *suffix) {
    const cJSON *list = hf_value(r->json, name), *item = cJSON_IsArray(list) ? list->child : NULL;
    float v[HF_MAX_LAYERS];
    bool any = false;
    if (!list) return 0;
    for (uint32_t i = 0; i < r->config->n_layers; i++) {
        const bool null = cJSON_IsNull(item);
        if (!null && !(cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 1e9))
            return err_set_param(r->e, ERR_FORMAT, name,
                                 "member '%s' is not a list of a number for each layer", name);
        v[i] = null ? 0 : (float)item->valuedouble;
        any = any || v[i] > 0;
        item = item->next;
    }
    if (any) hf_put_f32s(r, suffix, v, r->config->n_layers);
    return 0;
}

/* Heads of layers with a window. */
static int read_others(struct hf_reader *r, struct layers *l) {
    const struct hf_config *c = r->config;
    const struct hf_reader outer = *r;
    uint64_t heads = c->n_heads, kv = c->n_kv_heads, dim = c->head_dim;
    const cJSON *other = hf_value(r->json, "attention_other_setting");
    int rc = 0;
    if (other) {
        r->json = other;
        if ((rc = hf_read_count(r, "num_attention_heads", heads, 1, MAX_HEADS, &heads)) == 0 &&
            (rc = hf_read_count(r, "num_attention_groups", kv, 1, MAX_HEADS, &kv)) == 0)
            rc = hf_read_count(r, "head_dim", dim, dim, dim, &dim);
        r->json = outer.json;
    }
    for (uint32_t i = 0; i < c->n_layers; i++) {
        l->heads[i] = (int32_t)(l->windowed[i] ? heads : c->n_heads);
        l->kv[i] = (int32_t)(l->windowed[i] ? kv : c->n_kv_heads);
    }
    return rc;
}

/* The one number of a kind of layers in a list, or the number for all. */
static int read_of_kind(struct hf_reader *r, const char *name, const struct layers *l,
                        bool windowed, double *out) {
    const cJSON *list = hf_value(r->json, name), *item;
    bool found = false;
    if (!cJSON_IsArray(list)) return hf_read_real(r, r->json, name, *out, out);
    item = list->child;
    for (uint32_t i = 0; i < r->config->n_layers; i++) {
        if (!cJSON_IsNumber(item))
            return err_set_param(r->e, ERR_FORMAT, name,
                                 "member '%s' is not a list of a number for each layer", name);
        if (l->windowed[i] == windowed) {
            if (found && item->valuedouble != *out)
                return hf_refuse(r, name, "layers of one kind must have one number");
            *out = item->valuedouble;
            found = true;
        }
        item = item->next;
    }
    return 0;
}

/* As transformers 5 would have written it: rope_parameters by kinds of layers. NULL: no memory. */
static cJSON *make_ropes(const double theta[2], const double part[2], const cJSON *scaling) {
    static const char *const kinds[] = {"full_attention", "sliding_attention"};
    cJSON *outer = cJSON_CreateObject(),
          *all = outer ? cJSON_AddObjectToObject(outer, "rope_parameters") : NULL;
    bool made = all != NULL;
    for (int k = 0; made && k < 2; k++) {
        cJSON *one = k == 0 && scaling ? cJSON_Duplicate(scaling, true) : cJSON_CreateObject();
        made = one && cJSON_AddItemToObject(all, kinds[k], one) &&
               cJSON_AddNumberToObject(one, "rope_theta", theta[k]) &&
               cJSON_AddNumberToObject(one, "partial_rotary_factor", part[k]);
    }
    if (made) return outer;
    cJSON_Delete(outer);
    return NULL;
}

/* put_ropes from bases and rotated parts of layers with full attention and with a window. */
static int put_made_ropes(struct hf_reader *r, const double theta[2], const double part[2],
                          const cJSON *scaling) {
    const cJSON *json = r->json;
    cJSON *made = make_ropes(theta, part, scaling);
    if (!made) return err_no_memory(r->e);
    r->json = made;
    const int rc = put_ropes(r);
    r->json = json;
    cJSON_Delete(made);
    return rc;
}

static int put_step_rope(struct hf_reader *r, const struct layers *l) {
    struct hf_config *c = r->config;
    const cJSON *scaling = hf_value(r->json, "rope_scaling"),
                *only = hf_value(r->json, "yarn_only_types");
    double theta[2] = {10000, 10000}, part[2] = {0.5, 1};
    int rc = 0;
    for (int k = 0; !rc && k < 2; k++) {
        rc = read_of_kind(r, "rope_theta", l, k, &theta[k]);
        if (!rc) rc = read_of_kind(r, "partial_rotary_factors", l, k, &part[k]);
    }
    if (rc) return rc;
    if (part[0] != 0.5 || part[1] != 1) /* as GGUF readers take it to be */
        return hf_refuse(r, "partial_rotary_factors",
                         "only half of a head in layers with full attention, and all of it in "
                         "others, is supported");
    const cJSON *kind = cJSON_IsArray(only) ? only->child : NULL;
    if (scaling &&
        (!cJSON_IsString(kind) || strcmp(kind->valuestring, "full_attention") != 0 || kind->next))
        return hf_refuse(r, "yarn_only_types", "only layers with full attention are supported");
    if ((rc = put_made_ropes(r, theta, part, scaling))) return rc;
    c->n_factors = c->head_dim / 2; /* as files have them: those behind do not count */
    for (uint32_t i = c->n_rot / 2; i < c->n_factors; i++)
        c->factors[HF_ROPE_FREQS][i] = 1;
    return 0;
}

static int check_step(struct hf_reader *r) {
    const char *act = hf_text(r->json, "moe_router_activation"),
               *attention = hf_text(r->json, "att_impl_type");
    if (!hf_flag(r->json, "use_head_wise_attn_gate", true))
        return hf_refuse(r, "use_head_wise_attn_gate", "only true is supported");
    if (!hf_flag(r->json, "zero_centered", true))
        return hf_refuse(r, "zero_centered", "only true is supported");
    if (act && strcmp(act, "sigmoid") != 0)
        return hf_refuse(r, "moe_router_activation", "only 'sigmoid' is supported");
    if (attention && strcmp(attention, "GQA") != 0)
        return hf_refuse(r, "att_impl_type", "only 'GQA' is supported");
    return 0;
}

int hf_read_step(struct hf_reader *r) {
    static const struct expert_names names = {"moe_num_experts",
                                              "moe_top_k",
                                              "share_expert_dim",
                                              "moe_router_scaling_factor",
                                              288,
                                              8,
                                              1280,
                                              1280};
    struct layers l = {{0}, {0}, {0}, {0}};
    int rc;
    if ((rc = check_step(r)) || (rc = read_sizes(r, "num_attention_groups", "rms_norm_eps")) ||
        (rc = read_windows(r, &l)) || (rc = read_moe_layers(r, &l)) || (rc = read_others(r, &l)))
        return rc;
    hf_put_u32(r, "attention.value_length", r->config->head_dim);
    hf_put_bool(r, "expert_weights_norm", hf_flag(r->json, "norm_expert_weight", true));
    put_layers(r, &l, 0);
    if ((rc = put_experts(r, &names)) ||
        (rc = put_limits(r, "swiglu_limits", "swiglu_clamp_exp")) ||
        (rc = put_limits(r, "swiglu_limits_shared", "swiglu_clamp_shexp")) ||
        (rc = put_step_rope(r, &l)))
        return rc;
    return r->rc;
}

/* ---- MiMo 2 ---- */

/* The makers' members: lists of 0 and 1, and heads of layers with a window by names of their own.
 */
static int read_mimo_layers(struct hf_reader *r, struct layers *l) {
    static const char windows[] = "hybrid_layer_pattern", sparse[] = "moe_layer_freq";
    const struct hf_config *c = r->config;
    const cJSON *list = hf_value(r->json, windows), *freq = hf_value(r->json, sparse);
    int32_t v[HF_MAX_LAYERS] = {0};
    uint64_t kv = 2 * (uint64_t)c->n_kv_heads, heads = c->n_heads, dim = c->head_dim;
    int rc = read_windows(r, l);
    if (!rc) rc = read_dense(r, l);
    if (!rc && list) rc = read_integers(r, windows, list, 1, v);
    for (uint32_t i = 0; !rc && list && i < c->n_layers; i++)
        l->windowed[i] = v[i];
    if (!rc && freq) rc = read_integers(r, sparse, freq, 1, v);
    for (uint32_t i = 0; !rc && freq && i < c->n_layers; i++)
        l->dense[i] = !v[i];
    if (rc || (rc = hf_read_count(r, "swa_num_key_value_heads", kv, 1, MAX_HEADS, &kv)) ||
        (rc = hf_read_count(r, "swa_num_attention_heads", heads, heads, heads, &heads)) ||
        (rc = hf_read_count(r, "swa_head_dim", dim, dim, dim, &dim)))
        return rc;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        l->heads[i] = (int32_t)heads;
        l->kv[i] = (int32_t)(l->windowed[i] ? kv : c->n_kv_heads);
    }
    return 0;
}

static int put_mimo_rope(struct hf_reader *r) {
    double theta[2], part[2];
    if (hf_value(hf_value(r->json, "rope_parameters"), "full_attention")) return put_ropes(r);
    int rc;
    if ((rc = hf_read_real(r, r->json, "rope_theta", 5e6, &theta[0])) ||
        (rc = hf_read_real(r, r->json, "swa_rope_theta", 1e4, &theta[1])) ||
        (rc = hf_read_real(r, r->json, "partial_rotary_factor", 0.334, &part[0])))
        return rc;
    part[1] = part[0];
    return put_made_ropes(r, theta, part, hf_value(r->json, "rope_scaling"));
}

static int check_mimo(struct hf_reader *r) {
    const char *score = hf_text(r->json, "scoring_func");
    uint64_t groups;
    int rc = hf_read_count(r, "n_group", 1, 1, HF_MAX_EXPERTS, &groups);
    if (rc) return rc;
    if (groups != 1)
        return hf_refuse(r, "n_group", "experts that are chosen by groups are not supported");
    if (score && strcmp(score, "sigmoid") != 0)
        return hf_refuse(r, "scoring_func", "only 'sigmoid' is supported");
    if (!hf_flag(r->json, "norm_topk_prob", true))
        return hf_refuse(r, "norm_topk_prob", "only true is supported");
    return 0;
}

int hf_read_mimo(struct hf_reader *r) {
    static const struct expert_names names = {
        "n_routed_experts", "num_experts_per_tok", NULL, "routed_scaling_factor", 256, 8, 2048, 0};
    const char *eps = hf_value(r->json, "layernorm_epsilon") ? "layernorm_epsilon" : "rms_norm_eps";
    struct layers l = {{0}, {0}, {0}, {0}};
    uint64_t v_dim;
    double scale;
    int rc;
    if ((rc = check_mimo(r)) || (rc = read_sizes(r, "num_key_value_heads", eps)) ||
        (rc = read_mimo_layers(r, &l)) ||
        (rc = hf_read_count(r, "v_head_dim", 128, 1, r->config->head_dim, &v_dim)) ||
        (rc = hf_read_count(r, "swa_v_head_dim", v_dim, v_dim, v_dim, &v_dim)) ||
        (rc = hf_read_positive(r, "attention_value_scale", 0.707, &scale)))
        return rc;
    hf_put_u32(r, "attention.value_length", v_dim);
    if (!hf_is_null(r, "attention_value_scale")) hf_put_f32(r, "attention.value_scale", scale);
    put_layers(r, &l, 0);
    if ((rc = put_experts(r, &names)) || (rc = put_mimo_rope(r))) return rc;
    return r->rc;
}
