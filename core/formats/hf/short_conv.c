/* hf/short_conv.c - members of config.json of models whose layers have a short convolution or
 * attention: LFM2. Defaults are transformers'. Pure. */
#include "core/formats/hf/model_int.h"

#include <string.h>

enum { SHOWN_BYTES = 40 };

static int refuse_list(struct hf_reader *r, const char *name, const char *of_what) {
    return err_set_param(r->e, ERR_FORMAT, name, "member '%s' is not a list of %s", name, of_what);
}

/* By full_attn_idxs, which old files have; without it every layer has attention. */
static int read_indices(struct hf_reader *r, bool *attends) {
    const cJSON *list = hf_value(r->json, "full_attn_idxs"), *item;
    const uint32_t n = r->config->n_layers;
    for (uint32_t i = 0; i < n; i++)
        attends[i] = !list;
    if (list && !cJSON_IsArray(list)) return refuse_list(r, "full_attn_idxs", "layers");
    cJSON_ArrayForEach(item, list) {
        uint32_t i = 0;
        while (i < n && !(cJSON_IsNumber(item) && item->valuedouble == i))
            i++;
        if (i == n) return refuse_list(r, "full_attn_idxs", "layers");
        attends[i] = true;
    }
    return 0;
}

static int read_kinds(struct hf_reader *r, bool *attends) {
    const cJSON *list = hf_value(r->json, "layer_types"), *item = list ? list->child : NULL;
    if (!list) return read_indices(r, attends);
    for (uint32_t i = 0; i < r->config->n_layers; i++, item = item->next) {
        if (!cJSON_IsString(item)) return refuse_list(r, "layer_types", "one string per layer");
        attends[i] = strcmp(item->valuestring, "full_attention") == 0;
        if (!attends[i] && strcmp(item->valuestring, "conv") != 0)
            return err_set_param(r->e, ERR_UNSUPPORTED, "layer_types",
                                 "member 'layer_types': '%.*s' is not supported", SHOWN_BYTES,
                                 item->valuestring);
    }
    return 0;
}

int hf_read_short_conv(struct hf_reader *r) {
    bool attends[HF_MAX_LAYERS];
    int32_t n_kv[HF_MAX_LAYERS];
    uint64_t n_taps;
    int rc = read_kinds(r, attends);
    if (!rc) rc = hf_read_count(r, "conv_L_cache", 3, 1, 1 << 10, &n_taps);
    if (rc) return rc;
    if (hf_flag(r->json, "conv_bias", false))
        return hf_refuse(r, "conv_bias", "convolutions with a bias are not supported");
    for (uint32_t i = 0; i < r->config->n_layers; i++)
        n_kv[i] = attends[i] ? (int32_t)r->config->n_kv_heads : 0;
    hf_put_i32s(r, "attention.head_count_kv", n_kv, r->config->n_layers);
    hf_put_u32(r, "shortconv.l_cache", n_taps);
    return 0;
}

int hf_short_conv_ff(struct hf_reader *r, uint32_t *ff) {
    const bool old = hf_value(r->json, "block_ff_dim");
    uint64_t n, unit;
    double factor;
    int rc = hf_read_count(r, old ? "block_ff_dim" : "intermediate_size", *ff, 1, INT32_MAX, &n);
    if (!rc) *ff = (uint32_t)n;
    const bool adjusts = !(r->config->family->traits & HF_EXPERTS) &&
                         hf_flag(r->json, "block_auto_adjust_ff_dim", true);
    if (rc || !adjusts) return rc;
    if ((rc = hf_read_count(r, "block_multiple_of", 256, 1, INT32_MAX, &unit)) ||
        (rc = hf_read_real(r, r->json, "block_ffn_dim_multiplier", 1, &factor)))
        return rc;
    n = 2 * n / 3;
    if (hf_is_null(r, "block_ffn_dim_multiplier")) unit = 1; /* as it is */
    const double scaled = factor * (double)n;
    if (!(scaled >= 1 && scaled <= INT32_MAX))
        return hf_refuse(r, "block_ffn_dim_multiplier", "its value is not supported");
    n = ((uint64_t)scaled + unit - 1) / unit * unit;
    if (n > INT32_MAX) return hf_refuse(r, "block_multiple_of", "its value is not supported");
    *ff = (uint32_t)n;
    return 0;
}

int hf_put_sigmoid_experts(struct hf_reader *r) {
    enum { SIGMOID = 2 }; /* as in GGUF */
    uint64_t n_dense;
    double scale;
    int rc = hf_read_count(r, "num_dense_layers", 2, 0, r->config->n_layers, &n_dense);
    if (!rc) rc = hf_read_positive(r, "routed_scaling_factor", 1, &scale);
    if (rc) return rc;
    hf_put_u32(r, "leading_dense_block_count", n_dense);
    hf_put_u32(r, "expert_gating_func", SIGMOID);
    if (scale != 1) hf_put_f32(r, "expert_weights_scale", scale);
    return 0;
}
