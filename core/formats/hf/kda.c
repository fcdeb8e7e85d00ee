/* hf/kda.c - members of config.json of Kimi Linear: which layers have Kimi Delta Attention, and its
 * sizes, in linear_attn_config (the maker's folders) or under transformers' own names. Pure. */
#include "core/formats/hf/model_int.h"

#include <string.h>

enum { SHOWN_BYTES = 40, MAX_SIZE = 1 << 16 };
static const char inner_name[] = "linear_attn_config", types_name[] = "layer_types";

/* Members of models that compute more: of Kimi K3. */
static int check_members(struct hf_reader *r) {
    static const char *const absent[] = {"mla_use_output_gate", "attn_res_block_size",
                                         "forget_gate_lower_bound", "use_full_rank_output_gate"};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        const cJSON *item = hf_value(r->json, absent[i]);
        if (item && !cJSON_IsFalse(item) && !(cJSON_IsNumber(item) && item->valuedouble == 0))
            return hf_refuse(r, absent[i], "its value is not supported");
    }
    if (!hf_flag(r->json, "mla_use_nope", true))
        return hf_refuse(r, "mla_use_nope", "latent attention with rotation is not supported");
    return 0;
}

/* Marks the layers, counted from 1, that a list names. */
static int mark_layers(struct hf_reader *r, const cJSON *list, uint8_t mark, uint8_t *kinds) {
    const cJSON *item;
    if (!cJSON_IsArray(list))
        return err_set_param(r->e, ERR_FORMAT, inner_name,
                             "member '%s' lacks full_attn_layers or kda_layers", inner_name);
    cJSON_ArrayForEach(item, list) {
        const double n = cJSON_IsNumber(item) ? item->valuedouble : 0;
        const bool fits = n >= 1 && n <= r->config->n_layers && n == (double)(uint32_t)n;
        if (!fits || kinds[(uint32_t)n - 1])
            return err_set_param(r->e, ERR_FORMAT, inner_name,
                                 "member '%s': full_attn_layers and kda_layers are not each of %u "
                                 "layers once, from 1",
                                 inner_name, r->config->n_layers);
        kinds[(uint32_t)n - 1] = mark;
    }
    return 0;
}

enum kind { NO_KIND, FULL, KDA };

static int read_types(struct hf_reader *r, uint8_t *kinds) {
    const cJSON *list = hf_value(r->json, types_name),
                *item = cJSON_IsArray(list) ? list->child : 0;
    for (uint32_t i = 0; i < r->config->n_layers; i++, item = item->next) {
        if (!cJSON_IsString(item))
            return err_set_param(r->e, ERR_FORMAT, types_name,
                                 "member '%s' is not a list of one string per layer", types_name);
        const char *type = item->valuestring;
        kinds[i] = strcmp(type, "full_attention") == 0     ? FULL
                   : strcmp(type, "linear_attention") == 0 ? KDA
                   : strcmp(type, "kda_attention") == 0    ? KDA
                                                           : NO_KIND;
        if (!kinds[i])
            return err_set_param(r->e, ERR_UNSUPPORTED, types_name,
                                 "member '%s': '%.*s' is not supported", types_name, SHOWN_BYTES,
                                 type);
    }
    return 0;
}

/* Of each layer FULL or KDA. */
static int read_kinds(struct hf_reader *r, const cJSON *inner, uint8_t *kinds) {
    if (!hf_value(inner, "full_attn_layers") && hf_value(r->json, types_name))
        return read_types(r, kinds);
    if (!inner)
        return err_set_param(r->e, ERR_FORMAT, inner_name, "member '%s' is missing", inner_name);
    int rc = mark_layers(r, hf_value(inner, "full_attn_layers"), FULL, kinds);
    if (!rc) rc = mark_layers(r, hf_value(inner, "kda_layers"), KDA, kinds);
    for (uint32_t i = 0; !rc && i < r->config->n_layers; i++)
        if (!kinds[i])
            rc = err_set_param(r->e, ERR_FORMAT, inner_name,
                               "member '%s' does not say what layer %u is", inner_name, i + 1);
    return rc;
}

/* A size in linear_attn_config, else in the whole. */
static int read_size(struct hf_reader *r, const cJSON *inner, const char *const names[2],
                     uint64_t usual, uint64_t *out) {
    const cJSON *whole = r->json;
    const bool is_inner = hf_value(inner, names[0]);
    r->json = is_inner ? inner : whole;
    int rc = hf_read_count(r, names[!is_inner], usual, 1, MAX_SIZE, out);
    r->json = whole;
    return rc;
}

int hf_read_kda(struct hf_reader *r) {
    static const char *const heads[] = {"num_heads", "linear_num_heads"},
                             *const dim[] = {"head_dim", "linear_head_dim"},
                             *const taps[] = {"short_conv_kernel_size", "linear_conv_kernel_dim"};
    const cJSON *inner = hf_value(r->json, inner_name);
    uint8_t kinds[HF_MAX_LAYERS] = {0};
    int32_t n_kv[HF_MAX_LAYERS];
    uint64_t n_heads, n_dim, n_taps;
    int rc = check_members(r);
    if (rc || (rc = read_kinds(r, inner, kinds)) ||
        (rc = read_size(r, inner, heads, 32, &n_heads)) ||
        (rc = read_size(r, inner, dim, 128, &n_dim)) ||
        (rc = read_size(r, inner, taps, 4, &n_taps)))
        return rc;
    if (n_heads != r->config->n_heads)
        return err_set_param(r->e, ERR_UNSUPPORTED, heads[!inner],
                             "member '%s' is %u, expected %u as num_attention_heads", heads[!inner],
                             (uint32_t)n_heads, r->config->n_heads);
    for (uint32_t i = 0; i < r->config->n_layers; i++)
        n_kv[i] = kinds[i] == FULL;
    hf_put_i32s(r, "attention.head_count_kv", n_kv, r->config->n_layers);
    hf_put_u32(r, "ssm.conv_kernel", n_taps);
    hf_put_u32(r, "kda.head_dim", n_dim);
    return 0;
}
