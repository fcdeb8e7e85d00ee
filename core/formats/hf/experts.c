/* hf/experts.c - members of config.json that say how experts are routed, in families of 2025 and
 * 2026: GLM-4.5, Ling 2, MiniMax-M2, ERNIE 4.5, dots1, K-EXAONE, Trinity (afmoe), Hunyuan, Hy3; and
 * which layers have none. Defaults are transformers'. Pure. */
#include "core/formats/hf/model_int.h"

#include <math.h>
#include <string.h>

/* Names of members; NULL: the family has none, and the value is the usual one. */
struct routing {
    const char *arch;
    const char *n, *used, *ff, *shared, *scale, *dense; /* shared: experts that make one */
    uint64_t n_usual, used_usual, ff_usual, shared_usual, dense_usual; /* n 0: required */
    double scale_usual;
    bool sigmoid, by_member, usual_norm; /* by_member: norm_topk_prob; else always normalized */
    bool groups;                         /* n_group, topk_group */
};

static const struct routing routings[] = {
    {"glm4moe", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
     "n_shared_experts", "routed_scaling_factor", "first_k_dense_replace", 128, 8, 1408, 1, 1, 1,
     .sigmoid = true, .by_member = true, .usual_norm = true},
    {"minimax-m2", "num_local_experts", "num_experts_per_tok", "intermediate_size", NULL, NULL,
     NULL, 256, 8, 1536, 0, 0, 1, .sigmoid = true},
    {"ernie4_5-moe", "moe_num_experts", "moe_k", "moe_intermediate_size", "moe_num_shared_experts",
     NULL, "moe_layer_start_index", 64, 6, 1536, 2, 1, 1, .sigmoid = false},
    {"dots1", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
     "n_shared_experts", "routed_scaling_factor", "first_k_dense_replace", 0, 0, 1408, 0, 0, 1,
     .sigmoid = true, .by_member = true},
    {"exaone-moe", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
     "num_shared_experts", "routed_scaling_factor", "first_k_dense_replace", 64, 8, 1024, 1, 1, 2.5,
     .sigmoid = true, .by_member = true, .usual_norm = true},
    {"bailingmoe2", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
     "num_shared_experts", "routed_scaling_factor", "first_k_dense_replace", 0, 8, 512, 1, 1, 1,
     .sigmoid = true, .by_member = true, .usual_norm = true, .groups = true},
    {"afmoe", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "num_shared_experts",
     "route_scale", "num_dense_layers", 64, 6, 1408, 2, 1, 1, .sigmoid = true},
    {"hunyuan-moe", "num_experts", "moe_topk", "intermediate_size", NULL, NULL, NULL, 0, 1, 11008,
     1, 0, 1, .sigmoid = false},
    {"cohere2moe", "num_experts", "num_experts_per_tok", "intermediate_size", "num_shared_experts",
     NULL, "first_k_dense_replace", 8, 2, 22528, 0, 0, 1, .by_member = true, .usual_norm = true},
    {"hy_v3", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "num_shared_experts",
     "router_scaling_factor", NULL, 192, 8, 1536, 1, 1, 2.826, .sigmoid = true},
};

/* A number, or a list of equal ones, one per layer. */
static int read_same(struct hf_reader *r, const char *name, uint64_t usual, uint64_t max,
                     uint64_t *out) {
    const cJSON *list = hf_value(r->json, name), *item;
    if (!cJSON_IsArray(list)) return hf_read_count(r, name, usual, 1, max, out);
    const double first = list->child ? list->child->valuedouble : 0;
    cJSON_ArrayForEach(item, list) {
        if (!cJSON_IsNumber(item) || item->valuedouble != first)
            return hf_refuse(r, name, "numbers that differ between layers are not supported");
    }
    if (!(first >= 1 && first <= (double)max) || first != floor(first))
        return hf_refuse(r, name, "its value is not supported");
    *out = (uint64_t)first;
    return 0;
}

static int read_member(struct hf_reader *r, const char *name, uint64_t usual, uint64_t min,
                       uint64_t max, uint64_t *out) {
    *out = usual;
    return name ? hf_read_count(r, name, usual, min, max, out) : 0;
}

/* ---- layers without experts ---- */

void hf_put_dense_layers(struct hf_reader *r, const bool *dense) {
    uint32_t first = 0, n = 0;
    const uint32_t n_layers = r->config->n_layers;
    while (first < n_layers && dense[first])
        first++;
    for (uint32_t i = 0; i < n_layers; i++)
        n += dense[i];
    if (n == first)
        hf_put_u32(r, "leading_dense_block_count", n);
    else
        hf_put_bools(r, "inferd.dense_layers", dense, n_layers);
}

/* mlp_layer_types: "dense" or "sparse". */
static int read_layer_kinds(struct hf_reader *r, const cJSON *list, bool *dense) {
    const cJSON *item = cJSON_IsArray(list) ? list->child : NULL;
    for (uint32_t i = 0; i < r->config->n_layers; i++, item = item->next) {
        dense[i] = cJSON_IsString(item) && strcmp(item->valuestring, "dense") == 0;
        if (dense[i] || (cJSON_IsString(item) && strcmp(item->valuestring, "sparse") == 0))
            continue;
        return err_set_param(r->e, ERR_FORMAT, "mlp_layer_types",
                             "member 'mlp_layer_types' is not a list of 'dense' or 'sparse' for "
                             "each layer");
    }
    return 0;
}

static int put_dense_layers(struct hf_reader *r, const struct routing *t) {
    const cJSON *list = hf_value(r->json, "mlp_layer_types");
    const bool lists =
        strcmp(t->arch, "exaone-moe") == 0 || strcmp(t->arch, "hy_v3") == 0 || hf_is_cohere_moe(r);
    bool dense[HF_MAX_LAYERS];
    uint64_t n;
    int rc = read_member(r, t->dense, t->dense_usual, 0, r->config->n_layers, &n);
    for (uint32_t i = 0; i < r->config->n_layers; i++)
        dense[i] = i < n;
    if (!rc && lists && list) rc = read_layer_kinds(r, list, dense);
    for (uint32_t i = 1; !rc && hf_is_cohere_moe(r) && i < r->config->n_layers; i++)
        if (dense[i] && !dense[i - 1]) /* which would not be rotated */
            rc = hf_refuse(r, "mlp_layer_types", "only the first layers may be dense");
    if (!rc) hf_put_dense_layers(r, dense);
    return rc;
}

int hf_put_qwen_dense_layers(struct hf_reader *r) {
    const cJSON *list = hf_value(r->json, "mlp_only_layers"), *item;
    bool dense[HF_MAX_LAYERS], any = false;
    uint64_t step;
    int rc = hf_read_count(r, "decoder_sparse_step", 1, 1, UINT32_MAX, &step);
    if (rc) return rc;
    for (uint32_t i = 0; i < r->config->n_layers; i++) {
        dense[i] = (i + 1) % step != 0;
        cJSON_ArrayForEach(item, list) {
            if (!cJSON_IsNumber(item))
                return err_set_param(r->e, ERR_FORMAT, "mlp_only_layers",
                                     "member 'mlp_only_layers' is not a list of layers");
            dense[i] = dense[i] || item->valuedouble == i;
        }
        any = any || dense[i];
    }
    if (any) hf_put_dense_layers(r, dense);
    return 0;
}

/* ERNIE's every n-th layer has experts, up to the last one. */
static int put_step(struct hf_reader *r) {
    const cJSON *end = hf_value(r->json, "moe_layer_end_index");
    uint64_t step;
    int rc = hf_read_count(r, "moe_layer_interval", 1, 1, UINT32_MAX, &step);
    if (rc) return rc;
    if (cJSON_IsNumber(end) && end->valuedouble != -1 &&
        end->valuedouble < (double)r->config->n_layers - 1)
        return hf_refuse(r, "moe_layer_end_index", "only the last layer is supported");
    hf_put_u32(r, "interleave_moe_layer_step", step);
    return 0;
}

/* ---- the rest ---- */

/* Ling's members that must be as in its models. */
static int check_ling(struct hf_reader *r) {
    const char *score = hf_text(r->json, "score_function");
    if (score && strcmp(score, "sigmoid") != 0)
        return hf_refuse(r, "score_function", "only 'sigmoid' is supported");
    if (!hf_flag(r->json, "use_qk_norm", true))
        return hf_refuse(r, "use_qk_norm", "only true is supported");
    if (hf_flag(r->json, "norm_head", false))
        return hf_refuse(r, "norm_head", "only false is supported");
    return 0;
}

/* Groups of experts of which the best count. */
static int put_groups(struct hf_reader *r, const struct routing *t, uint64_t n_experts) {
    uint64_t n, used;
    int rc = hf_read_count(r, "n_group", 1, 1, n_experts, &n);
    if (!rc) rc = hf_read_count(r, "topk_group", n, 1, n, &used);
    if (rc || n < 2) return rc;
    if (!t->groups)
        return hf_refuse(r, "n_group", "experts that are chosen by groups are not supported");
    hf_put_u32(r, "expert_group_count", n);
    hf_put_u32(r, "expert_group_used_count", used);
    return 0;
}

static int check_members(struct hf_reader *r) {
    if (strcmp(r->config->family->arch, "bailingmoe2") == 0) return check_ling(r);
    if (hf_is_cohere_moe(r)) return hf_check_cohere_experts(r);
    if (strcmp(r->config->family->arch, "afmoe") != 0) return 0;
    if (!hf_flag(r->json, "mup_enabled", false))
        return hf_refuse(r, "mup_enabled", "only true is supported");
    return 0;
}

static void put_gating(struct hf_reader *r, const struct routing *t) {
    enum { SOFTMAX = 1, SIGMOID = 2 }; /* as in GGUF */
    const char *by = hf_is_cohere_moe(r) ? hf_text(r->json, "expert_selection_fn") : NULL;
    const bool sigmoid = t->sigmoid || (by && strcmp(by, "sigmoid") == 0);
    hf_put_u32(r, "expert_gating_func", sigmoid ? SIGMOID : SOFTMAX);
    if (hf_is_cohere_moe(r) && !sigmoid) /* the softmax of the chosen experts' scores */
        hf_put_bool(r, "expert_weights_norm", true);
    else if (t->by_member)
        hf_put_bool(r, "expert_weights_norm", hf_flag(r->json, "norm_topk_prob", t->usual_norm));
}

int hf_put_routed_experts(struct hf_reader *r) {
    const struct routing *t = routings;
    uint64_t n, used, ff, shared;
    double scale = 1;
    int rc = check_members(r);
    while (strcmp(t->arch, r->config->family->arch) != 0)
        t++;
    if (rc || (rc = read_same(r, t->n, t->n_usual, HF_MAX_EXPERTS, &n)) ||
        (rc = read_same(r, t->used, t->used_usual, n, &used)) ||
        (rc = hf_read_count(r, t->ff, t->ff_usual, 1, INT32_MAX, &ff)) ||
        (rc = read_member(r, t->shared, t->shared_usual, 0, INT32_MAX / ff, &shared)))
        return rc;
    if (t->scale) rc = hf_read_positive(r, t->scale, t->scale_usual, &scale);
    if (rc) return rc;
    if ((rc = put_groups(r, t, n))) return rc;
    hf_put_expert_counts(r, n, used);
    hf_put_u32(r, "expert_feed_forward_length", ff);
    if (shared) hf_put_u32(r, "expert_shared_count", shared);
    if (shared) hf_put_u32(r, "expert_shared_feed_forward_length", shared * ff);
    if (scale != 1) hf_put_f32(r, "expert_weights_scale", scale);
    put_gating(r, t);
    if (strcmp(t->arch, "ernie4_5-moe") == 0 && (rc = put_step(r))) return rc;
    return put_dense_layers(r, t);
}
