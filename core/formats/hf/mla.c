/* hf/mla.c - members of config.json of models with multi-head latent attention: DeepSeek-V2, V3 and
 * R1, GLM-4.7-Flash, Mistral 4, Kimi Linear. Defaults are transformers'. Pure. */
#include "core/formats/hf/model_int.h"

#include <math.h>
#include <string.h>

enum { SHOWN_BYTES = 40, MAX_COUNT = 1 << 20, MAX_SHARED = 1 << 10 };

enum family { V2, V3, LITE, MISTRAL4, KIMI, N_OF_FAMILY };

static enum family family_of(const struct hf_reader *r) {
    static const char *const types[] = {"deepseek_v2", "deepseek_v3", "glm4_moe_lite", "mistral4"};
    int i = 0;
    if (r->config->family->traits & HF_KDA) return KIMI;
    while (i < MISTRAL4 && strcmp(r->config->family->model_type, types[i]) != 0)
        i++;
    return (enum family)i;
}

/* A member, transformers' default of each family, and its name in Kimi's folders. */
struct count {
    const char *name;
    uint64_t usual[N_OF_FAMILY];
    const char *kimi;
};

static const char *name_of(const struct hf_reader *r, const char *name, const char *kimi) {
    return kimi && family_of(r) == KIMI && hf_value(r->json, kimi) ? kimi : name;
}

static int read_count(struct hf_reader *r, const struct count *c, uint64_t min, uint64_t max,
                      uint64_t *out) {
    return hf_read_count(r, name_of(r, c->name, c->kimi), c->usual[family_of(r)], min, max, out);
}

static const struct count nope = {"qk_nope_head_dim", {128, 128, 192, 64, 128}, NULL};

int hf_mla_head(struct hf_reader *r) {
    uint64_t n_rot;
    int rc = hf_read_count(r, "qk_rope_head_dim", 64, 2, HF_MAX_ROT, &n_rot);
    if (!rc) r->config->head_dim = (uint32_t)n_rot;
    return rc;
}

int hf_mla_part(struct hf_reader *r, double *part) {
    const double n_rot = r->config->head_dim;
    uint64_t k_nope;
    int rc = read_count(r, &nope, 1, MAX_COUNT, &k_nope);
    if (rc || *part == 1) return rc;
    if (fabs(*part * ((double)k_nope + n_rot) - n_rot) > 1e-3)
        return hf_refuse(r, "partial_rotary_factor", "it must agree with qk_rope_head_dim");
    *part = 1;
    return 0;
}

/* ---- what is not supported ---- */

static int check_text(struct hf_reader *r, const char *name, const char *const *known) {
    const char *text = hf_text(r->json, name);
    for (; text && *known; known++)
        if (strcmp(text, *known) == 0) return 0;
    if (!text) return 0;
    return err_set_param(r->e, ERR_UNSUPPORTED, name, "member '%s': '%.*s' is not supported for %s",
                         name, SHOWN_BYTES, text, r->config->family->model_type);
}

static int check_members(struct hf_reader *r) {
    static const char *const methods[][3] = {{"greedy", "group_limited_greedy"}, {"noaux_tc"}},
                             *const scores[][2] = {{"softmax"}, {"sigmoid"}};
    const bool second = family_of(r) == V2, softmax = second || family_of(r) == MISTRAL4;
    uint64_t every;
    int rc;
    if (family_of(r) == MISTRAL4 && !hf_value(r->json, "rope_parameters"))
        return err_set_param(r->e, ERR_FORMAT, "rope_parameters",
                             "member 'rope_parameters' is missing");
    if (hf_flag(r->json, "attention_bias", false))
        return hf_refuse(r, "attention_bias", "latent attention with biases is not supported");
    if (hf_flag(r->json, "mlp_bias", false))
        return hf_refuse(r, "mlp_bias", "biases are not supported");
    if (!hf_flag(r->json, "rope_interleave", true))
        return hf_refuse(r, "rope_interleave", "only true is supported");
    if (second && hf_flag(r->json, "norm_topk_prob", false))
        return hf_refuse(r, "norm_topk_prob", "only false is supported for this family");
    if ((rc = check_text(r, "topk_method", methods[!second])) ||
        (rc = check_text(r, "moe_router_activation_func", scores[!softmax])) ||
        (rc = check_text(r, "scoring_func", scores[!softmax])))
        return rc;
    return hf_read_count(r, "moe_layer_freq", 1, 1, 1, &every);
}

/* ---- experts ---- */

/* Leading layers without experts, by their number or by a list of layers' kinds. */
static int read_dense(struct hf_reader *r, uint64_t *n) {
    static const struct count count = {"first_k_dense_replace", {0, 3, 1, 0, 1}, NULL};
    const cJSON *list = hf_value(r->json, "mlp_layer_types"), *item = list ? list->child : NULL;
    if (!list) return read_count(r, &count, 0, r->config->n_layers, n);
    *n = 0;
    for (uint32_t i = 0; i < r->config->n_layers; i++, item = item->next) {
        const bool dense = cJSON_IsString(item) && strcmp(item->valuestring, "dense") == 0;
        if (!cJSON_IsString(item) || (!dense && strcmp(item->valuestring, "sparse") != 0))
            return err_set_param(r->e, ERR_FORMAT, "mlp_layer_types",
                                 "member 'mlp_layer_types' is not a list of 'dense' or 'sparse' "
                                 "for each layer");
        if (dense && *n < i)
            return hf_refuse(r, "mlp_layer_types", "only the first layers can be dense");
        *n += dense;
    }
    return 0;
}

/* Groups of experts of which the best count. */
static int put_groups(struct hf_reader *r, uint64_t n_experts) {
    static const struct count groups = {"n_group", {1, 8, 1, 1, 1}, "num_expert_group"},
                              best = {"topk_group", {1, 4, 1, 1, 1}, NULL};
    const char *method = hf_text(r->json, "topk_method");
    uint64_t n, used;
    int rc = read_count(r, &groups, 1, n_experts, &n);
    if (!rc) rc = read_count(r, &best, 1, n, &used);
    if (rc || n < 2) return rc;
    if (family_of(r) == MISTRAL4)
        return hf_refuse(r, "n_group", "groups of experts are not supported for this family");
    if (family_of(r) == V2 && (!method || strcmp(method, "greedy") == 0)) return 0;
    hf_put_u32(r, "expert_group_count", n);
    hf_put_u32(r, "expert_group_used_count", used);
    return 0;
}

static int put_experts(struct hf_reader *r) {
    static const struct count
        experts = {"n_routed_experts", {64, 256, 64, 128, 256}, "num_experts"},
        chosen = {"num_experts_per_tok", {0, 8, 4, 4, 8}, "num_experts_per_token"},
        width = {"moe_intermediate_size", {1407, 2048, 1536, 2048, 1024}, NULL},
        shared = {"n_shared_experts", {2, 1, 1, 1, 1}, "num_shared_experts"};
    static const double scales[] = {1, 2.5, 1.8, 1, 2.446};
    enum { SOFTMAX = 1, SIGMOID = 2 }; /* as in GGUF */
    const enum family family = family_of(r);
    uint64_t n, used, ff, n_shared = 0, n_dense;
    double scale;
    int rc;
    if (hf_is_null(r, "n_routed_experts")) return 0;
    if ((rc = read_count(r, &experts, 1, HF_MAX_EXPERTS, &n)) ||
        (rc = read_count(r, &chosen, 1, n, &used)) ||
        (rc = read_count(r, &width, 1, MAX_COUNT, &ff)) ||
        (!hf_is_null(r, "n_shared_experts") &&
         (rc = read_count(r, &shared, 0, MAX_SHARED, &n_shared))) ||
        (rc = read_dense(r, &n_dense)) ||
        (rc = hf_read_positive(r, "routed_scaling_factor", scales[family], &scale)) ||
        (rc = put_groups(r, n)))
        return rc;
    hf_put_expert_counts(r, n, used);
    hf_put_u32(r, "expert_feed_forward_length", ff);
    hf_put_u32(r, "expert_shared_count", n_shared);
    hf_put_u32(r, "leading_dense_block_count", n_dense);
    hf_put_f32(r, "expert_weights_scale", scale);
    hf_put_bool(r, "expert_weights_norm",
                hf_flag(r->json, name_of(r, "norm_topk_prob", "moe_renormalize"),
                        r->config->family->renormalize));
    hf_put_u32(r, "expert_gating_func", family == V2 || family == MISTRAL4 ? SOFTMAX : SIGMOID);
    return 0;
}

/* ---- attention ---- */

int hf_read_mla(struct hf_reader *r) {
    static const struct count q = {"q_lora_rank", {1536, 1536, 768, 1024, 0}, NULL},
                              kv = {"kv_lora_rank", {512, 512, 512, 256, 512}, NULL},
                              v = {"v_head_dim", {128, 128, 256, 128, 128}, NULL};
    struct hf_config *c = r->config;
    uint64_t q_rank = 0, kv_rank, k_nope, v_dim, n_predicting;
    int rc = check_members(r);
    if (rc || (rc = read_count(r, &kv, 1, MAX_COUNT, &kv_rank)) ||
        (!hf_is_null(r, "q_lora_rank") && (family_of(r) != KIMI || hf_value(r->json, q.name)) &&
         (rc = read_count(r, &q, 1, MAX_COUNT, &q_rank))) ||
        (rc = read_count(r, &nope, 1, MAX_COUNT, &k_nope)) ||
        (rc = read_count(r, &v, 1, MAX_COUNT, &v_dim)) ||
        (rc = hf_read_count(r, "num_nextn_predict_layers", 0, 0, HF_MAX_LAYERS, &n_predicting)))
        return rc;
    c->k_nope = (uint32_t)k_nope;
    c->v_dim = (uint32_t)v_dim;
    c->n_predicting = (uint32_t)n_predicting;
    if (q_rank) hf_put_u32(r, "attention.q_lora_rank", q_rank);
    hf_put_u32(r, "attention.kv_lora_rank", kv_rank);
    hf_put_u32(r, "attention.key_length", kv_rank + c->head_dim);
    hf_put_u32(r, "attention.value_length", kv_rank);
    hf_put_u32(r, "attention.key_length_mla", k_nope + c->head_dim);
    hf_put_u32(r, "attention.value_length_mla", v_dim);
    rc = put_experts(r);
    return rc || family_of(r) != KIMI ? rc : hf_read_kda(r);
}
