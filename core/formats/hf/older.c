/* hf/older.c - members of config.json of GPT-2, MPT and BLOOM, and what their tensors are called.
 * Sources: transformers' configuration_gpt2.py, configuration_mpt.py and configuration_bloom.py,
 * and the folders of their makers, whose tensors may lack "transformer.". Pure. */
#include "core/formats/hf/model_int.h"

#include <string.h>

enum { MAX_WIDTH = 1 << 20, MAX_HEADS = 1 << 16 };

/* Names of members; a second one where makers and transformers differ; NULL: there is none. */
struct older {
    const char *arch;
    const char *layers[2], *hidden[2], *heads[2], *positions[2];
    uint64_t usual_layers, usual_hidden, usual_heads, usual_positions;
};

static const struct older all[] = {
    {"gpt2",
     {"n_layer", "num_hidden_layers"},
     {"n_embd", "hidden_size"},
     {"n_head", "num_attention_heads"},
     {"n_positions", "n_ctx"},
     12,
     768,
     12,
     1024},
    {"mpt", {"n_layers"}, {"d_model"}, {"n_heads"}, {"max_seq_len"}, 24, 2048, 16, 2048},
    {"bloom",
     {"n_layer", "num_hidden_layers"},
     {"hidden_size", "n_embed"},
     {"n_head", "num_attention_heads"},
     {"seq_length"},
     2,
     64,
     8,
     2048},
};

static int read_one(struct hf_reader *r, const char *const names[2], uint64_t usual, uint64_t max,
                    uint64_t *out) {
    const bool other = names[1] && !hf_value(r->json, names[0]) && hf_value(r->json, names[1]);
    return hf_read_count(r, names[other], usual, 1, max, out);
}

static int put_sizes(struct hf_reader *r, const struct older *o) {
    struct hf_config *c = r->config;
    uint64_t layers, hidden, heads, positions, ff;
    int rc;
    if ((rc = read_one(r, o->layers, o->usual_layers, HF_MAX_LAYERS, &layers)) ||
        (rc = read_one(r, o->hidden, o->usual_hidden, MAX_WIDTH, &hidden)) ||
        (rc = read_one(r, o->heads, o->usual_heads, MAX_HEADS, &heads)) ||
        (rc = read_one(r, o->positions, o->usual_positions, INT32_MAX, &positions)) ||
        (rc = hf_read_count(r, "n_inner", 4 * hidden, 1, INT32_MAX, &ff)))
        return rc;
    if (hidden % heads)
        return err_set_param(r->e, ERR_FORMAT, o->heads[0],
                             "the width is no multiple of the number of heads");
    c->n_layers = (uint32_t)layers;
    c->hidden = (uint32_t)hidden;
    c->n_heads = c->n_kv_heads = (uint32_t)heads;
    c->head_dim = c->n_rot = (uint32_t)(hidden / heads);
    c->n_ff = (uint32_t)ff;
    c->max_positions = positions;
    c->tied = hf_flag(r->json, "tie_word_embeddings", true);
    hf_put_u32(r, "block_count", layers);
    hf_put_u32(r, "context_length", positions);
    hf_put_u32(r, "embedding_length", hidden);
    hf_put_u32(r, "feed_forward_length", ff);
    hf_put_u32(r, "attention.head_count", heads);
    hf_put_u32(r, "attention.head_count_kv", heads);
    return 0;
}

static int check_gpt2(struct hf_reader *r) {
    const char *act = hf_text(r->json, "activation_function");
    if (act && strcmp(act, "gelu_new") != 0 && strcmp(act, "gelu_pytorch_tanh") != 0)
        return hf_refuse(r, "activation_function", "only 'gelu_new' is supported");
    if (!hf_flag(r->json, "scale_attn_weights", true))
        return hf_refuse(r, "scale_attn_weights", "only true is supported");
    if (hf_flag(r->json, "scale_attn_by_inverse_layer_idx", false))
        return hf_refuse(r, "scale_attn_by_inverse_layer_idx", "only false is supported");
    if (hf_flag(r->json, "add_cross_attention", false))
        return hf_refuse(r, "add_cross_attention", "only false is supported");
    return 0;
}

static int put_mpt(struct hf_reader *r) {
    const cJSON *attn = hf_value(r->json, "attn_config");
    double largest, clip, ratio, scale;
    int rc;
    if (hf_flag(attn, "qk_ln", false))
        return hf_refuse(r, "qk_ln", "norms of Q and K by LayerNorm are not supported");
    if (hf_flag(attn, "prefix_lm", false)) return hf_refuse(r, "prefix_lm", "it is not supported");
    if (!hf_flag(attn, "alibi", true))
        return hf_refuse(r, "alibi", "learned positions are not supported in this family");
    if ((rc = hf_read_real(r, attn, "alibi_bias_max", 8, &largest)) ||
        (rc = hf_read_real(r, attn, "clip_qkv", 0, &clip)) ||
        (rc = hf_read_real(r, attn, "softmax_scale", 0, &scale)) ||
        (rc = hf_read_real(r, r->json, "expansion_ratio", 4, &ratio)))
        return rc;
    if (clip != 0) return hf_refuse(r, "clip_qkv", "clipped Q, K and V are not supported");
    if (ratio != 4) return hf_refuse(r, "expansion_ratio", "only 4 is supported");
    if (!(largest > 0))
        return hf_refuse(r, "alibi_bias_max", "only a positive number is supported");
    if (hf_value(r->json, "logit_scale")) return hf_refuse(r, "logit_scale", "it is not supported");
    if (scale > 0) hf_put_f32(r, "attention.scale", scale);
    hf_put_f32(r, "attention.max_alibi_bias", largest);
    return 0;
}

static int check_bloom(struct hf_reader *r) {
    static const char after[] = "apply_residual_connection_post_layernorm";
    if (!hf_flag(r->json, after, false)) return 0;
    return hf_refuse(r, after, "only false is supported");
}

int hf_read_older(struct hf_reader *r) {
    const char *arch = r->config->family->arch;
    const struct older *o = all;
    double eps;
    while (strcmp(o->arch, arch) != 0)
        o++;
    int rc = put_sizes(r, o);
    if (!rc) rc = hf_read_real(r, r->json, "layer_norm_epsilon", 1e-5, &eps);
    if (rc) return rc;
    if (!(eps > 0))
        return hf_refuse(r, "layer_norm_epsilon", "only a positive number is supported");
    hf_put_f32(r, "attention.layer_norm_epsilon", eps);
    rc = strcmp(arch, "gpt2") == 0  ? check_gpt2(r)
         : strcmp(arch, "mpt") == 0 ? put_mpt(r)
                                    : check_bloom(r);
    return rc ? rc : r->rc;
}

void hf_older_rename(char *name) {
    static const char outer[] = "transformer.", attention[] = "self_attention.";
    static const char *const layers[] = {"h.", "blocks."};
    if (hf_begins_with(name, outer)) hf_replace(name, sizeof outer - 1, "");
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        if (hf_begins_with(name, layers[i])) {
            hf_replace(name, strlen(layers[i]), "model.layers.");
            break;
        }
    char *found = strstr(name, attention);
    if (found) hf_replace(found, sizeof attention - 1, "attention.");
}
