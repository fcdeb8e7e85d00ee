/* hf/gemma4.c - members of config.json of Gemma 4: heads of two widths, layers that share K and V,
 * wider FFNs, per-layer embeddings, experts. Defaults are transformers'. Pure. */
#include "core/formats/hf/model_int.h"

#include <stdio.h>
#include <string.h>

enum { MAX_COUNT = 1 << 20 };

/* Which layers have a window. */
static int read_kinds(struct hf_reader *r, bool *windowed) {
    const cJSON *list = hf_value(r->json, "layer_types");
    const uint32_t n = r->config->n_layers;
    for (uint32_t i = 0; i < n; i++)
        windowed[i] = (i + 1) % 6 != 0;
    int rc = list ? hf_read_layer_types(r, list, windowed) : 0;
    windowed[n - 1] = false; /* as transformers has it */
    return rc;
}

/* What layers with full attention have of their own: in the makers' folders under names of their
 * own, in those that transformers 5.17 saves in an object by the layer's number. */
static int read_full(struct hf_reader *r, uint64_t *dim, uint64_t *n_kv) {
    const cJSON *layers = hf_value(r->json, "per_layer_config"), *layer;
    const struct hf_reader root = *r;
    struct hf_reader one = *r;
    const bool by_key = hf_flag(r->json, "attention_k_eq_v", false);
    int rc;
    if (!layers) {
        if ((rc = hf_read_count(r, "global_head_dim", 512, 2, MAX_COUNT, dim))) return rc;
        *n_kv = r->config->n_kv_heads;
        return by_key ? hf_read_count(r, "num_global_key_value_heads", *n_kv, 1, MAX_COUNT, n_kv)
                      : 0;
    }
    *dim = 0;
    cJSON_ArrayForEach(layer, layers) {
        uint64_t d, n;
        one.json = layer;
        if ((rc = hf_read_count(&one, "head_dim", root.config->head_dim, 2, MAX_COUNT, &d)) ||
            (rc = hf_read_count(&one, "num_key_value_heads", root.config->n_kv_heads, 1, MAX_COUNT,
                                &n)))
            return rc;
        if (*dim && (*dim != d || *n_kv != n))
            return hf_refuse(r, "per_layer_config",
                             "layers with different heads are not supported");
        *dim = d;
        *n_kv = n;
    }
    return *dim ? 0 : hf_refuse(r, "per_layer_config", "no layer has full attention");
}

/* Does per_layer_config name exactly the layers with full attention? */
static int check_full(struct hf_reader *r, const bool *windowed) {
    const cJSON *layers = hf_value(r->json, "per_layer_config");
    char number[16];
    for (uint32_t i = 0; layers && i < r->config->n_layers; i++) {
        snprintf(number, sizeof number, "%u", i);
        if (!hf_value(layers, number) != windowed[i])
            return hf_refuse(r, "per_layer_config",
                             "it must have the layers with full attention, and no others");
    }
    return 0;
}

static int put_experts(struct hf_reader *r) {
    uint64_t n, used, ff;
    int rc;
    if (!hf_flag(r->json, "enable_moe_block", false)) return 0;
    if ((rc = hf_read_count(r, "num_experts", 0, 1, HF_MAX_EXPERTS, &n)) ||
        (rc = hf_read_count(r, "top_k_experts", 0, 1, n, &used)) ||
        (rc = hf_read_count(r, "moe_intermediate_size", 0, 1, MAX_COUNT, &ff)))
        return rc;
    hf_put_expert_counts(r, n, used);
    hf_put_u32(r, "expert_feed_forward_length", ff);
    return 0;
}

/* The FFN's width in each layer; those without K and V of their own may have twice of it. */
static void put_ff(struct hf_reader *r, uint64_t n_shared) {
    const struct hf_config *c = r->config;
    int32_t ff[HF_MAX_LAYERS];
    if (!hf_flag(r->json, "use_double_wide_mlp", false) || !n_shared) {
        hf_put_u32(r, "feed_forward_length", c->n_ff);
        return;
    }
    for (uint32_t i = 0; i < c->n_layers; i++)
        ff[i] = (int32_t)(c->n_ff * (i < c->n_layers - n_shared ? 1 : 2));
    hf_put_i32s(r, "feed_forward_length", ff, c->n_layers);
}

static void put_kv_heads(struct hf_reader *r, const bool *windowed, uint64_t n_full) {
    const struct hf_config *c = r->config;
    int32_t n[HF_MAX_LAYERS];
    if (n_full == c->n_kv_heads) {
        hf_put_u32(r, "attention.head_count_kv", n_full);
        return;
    }
    for (uint32_t i = 0; i < c->n_layers; i++)
        n[i] = (int32_t)(windowed[i] ? c->n_kv_heads : n_full);
    hf_put_i32s(r, "attention.head_count_kv", n, c->n_layers);
}

static int check_members(struct hf_reader *r) {
    const char *both = hf_text(r->json, "use_bidirectional_attention");
    if (both && strcmp(both, "vision") != 0) /* text is causal then, too */
        return hf_refuse(r, "use_bidirectional_attention", "only causal attention is supported");
    if (hf_flag(r->json, "attention_bias", false))
        return hf_refuse(r, "attention_bias", "biases are not supported for this family");
    return 0;
}

static const cJSON *rope_of(const struct hf_reader *r, const char *kind) {
    return hf_value(hf_value(r->json, "rope_parameters"), kind);
}

/* Proportional RoPE of the full layers: the frequencies of whole heads, of which only the first
 * ones turn. Those of other layers are default. */
static int put_rope(struct hf_reader *r, uint64_t dim) {
    struct hf_config *c = r->config;
    const cJSON *full = rope_of(r, "full_attention"), *local = rope_of(r, "sliding_attention");
    const char *type = hf_text(full, "rope_type"), *local_type = hf_text(local, "rope_type");
    double part, theta, local_theta, factor;
    int rc;
    if ((type && strcmp(type, "proportional") != 0) ||
        (local_type && strcmp(local_type, "default") != 0))
        return hf_refuse(r, "rope_parameters",
                         "only proportional RoPE of full and default RoPE of windowed layers are "
                         "supported");
    if ((rc = hf_read_real(r, full, "partial_rotary_factor", full ? 1 : 0.25, &part)) ||
        (rc = hf_read_real(r, full, "rope_theta", 1e6, &theta)) ||
        (rc = hf_read_real(r, full, "factor", 1, &factor)) ||
        (rc = hf_read_real(r, local, "rope_theta", 1e4, &local_theta)))
        return rc;
    if (!(part > 0 && part <= 1) || !(theta > 0) || !(local_theta > 0) || factor != 1)
        return hf_refuse(r, "rope_parameters", "one of its numbers is not supported");
    c->n_rot = (uint32_t)dim;
    for (uint32_t i = 0; i < c->n_rot / 2;
         i++) /* as the converter says that a pair does not turn */
        c->factors[HF_ROPE_FREQS][i] = i < (uint32_t)((double)dim * part / 2) ? 1 : 1e30f;
    c->has_factors[HF_ROPE_FREQS] = true;
    hf_put_f32(r, "rope.freq_base", theta);
    hf_put_f32(r, "rope.freq_base_swa", local_theta);
    hf_put_u32(r, "rope.dimension_count", dim);
    hf_put_u32(r, "rope.dimension_count_swa", c->head_dim);
    return 0;
}

int hf_read_gemma4(struct hf_reader *r) {
    struct hf_config *c = r->config;
    bool windowed[HF_MAX_LAYERS];
    uint64_t dim, n_full, n_shared, n_per_layer, n_vocab, n_vocab_layer;
    double cap;
    const bool unified = strcmp(c->family->model_type, "gemma4_unified_text") == 0;
    int rc = check_members(r);
    if (rc || (rc = read_kinds(r, windowed)) || (rc = read_full(r, &dim, &n_full)) ||
        (rc = check_full(r, windowed)) ||
        (rc = hf_read_count(r, "num_kv_shared_layers", 0, 0, c->n_layers - 1, &n_shared)) ||
        (rc = hf_read_count(r, "hidden_size_per_layer_input", unified ? 0 : 256, 0, MAX_COUNT,
                            &n_per_layer)) ||
        (rc = hf_read_count(r, "vocab_size", c->family->vocab, 1, INT32_MAX, &n_vocab)) ||
        (rc = hf_read_count(r, "vocab_size_per_layer_input", 262144, 1, INT32_MAX,
                            &n_vocab_layer)) ||
        (rc = hf_read_count(r, "sliding_window", c->family->sliding_window, 1, INT32_MAX,
                            &c->window)) ||
        (rc = hf_read_real(r, r->json, "final_logit_softcapping", 0, &cap)))
        return rc;
    if (hf_is_null(r, "hidden_size_per_layer_input")) n_per_layer = 0;
    if (n_per_layer && n_vocab_layer != n_vocab)
        return hf_refuse(r, "vocab_size_per_layer_input", "only vocab_size is supported");
    if (dim > HF_MAX_ROT || c->head_dim > HF_MAX_ROT || dim % 2 || c->head_dim % 2)
        return hf_refuse(r, "head_dim", "heads must have an even number of dimensions up to 512");
    if (cap < 0) return hf_refuse(r, "final_logit_softcapping", "its value is not supported");
    c->n_kv_shared = (uint32_t)n_shared;
    hf_put_u32(r, "attention.sliding_window", c->window);
    hf_put_bools(r, "attention.sliding_window_pattern", windowed, c->n_layers);
    hf_put_u32(r, "attention.key_length", dim);
    hf_put_u32(r, "attention.value_length", dim);
    hf_put_u32(r, "attention.key_length_swa", c->head_dim);
    hf_put_u32(r, "attention.value_length_swa", c->head_dim);
    hf_put_u32(r, "attention.shared_kv_layers", n_shared);
    hf_put_u32(r, "embedding_length_per_layer_input", n_per_layer);
    if (cap > 0) hf_put_f32(r, "final_logit_softcapping", cap);
    put_kv_heads(r, windowed, n_full);
    put_ff(r, n_shared);
    if ((rc = put_rope(r, dim))) return rc;
    return put_experts(r);
}

bool hf_gemma4_skips(const struct hf_config *c, const char *name) {
    static const char *const unused[] = {".self_attn.k_proj.weight", ".self_attn.v_proj.weight",
                                         ".self_attn.k_norm.weight"};
    char text[64];
    for (uint32_t i = c->n_layers - c->n_kv_shared; i < c->n_layers; i++)
        for (size_t k = 0; k < sizeof unused / sizeof unused[0]; k++) {
            snprintf(text, sizeof text, "model.layers.%u%s", i, unused[k]);
            if (strcmp(name, text) == 0) return true;
        }
    return false;
}
