/* hf/config.c - converts config.json of a model folder to the keys of a GGUF. A
 * member that changes the computation and has no counterpart is refused by name. Pure. */
#include "core/formats/hf/model_int.h"

#include "core/base/str.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(bool) == 1, "bools are written as they lie in memory");

enum { SHOWN_BYTES = 40, KEY_BYTES = 128 };

/* ---- members and keys ---- */

const cJSON *hf_value(const cJSON *object, const char *name) {
    const cJSON *item = hf_member(object, name);
    return cJSON_IsNull(item) ? NULL : item;
}

int hf_refuse(struct hf_reader *r, const char *name, const char *why) {
    return err_set_param(r->e, ERR_UNSUPPORTED, name, "member '%s': %s", name, why);
}

static int read_number(struct hf_reader *r, const cJSON *item, const char *name, double *v) {
    if (cJSON_IsNumber(item) && isfinite(item->valuedouble)) {
        *v = item->valuedouble;
        return 0;
    }
    return err_set_param(r->e, ERR_FORMAT, name, "member '%s' is not a number", name);
}

int hf_read_count(struct hf_reader *r, const char *name, uint64_t fallback, uint64_t min,
                  uint64_t max, uint64_t *out) {
    const cJSON *item = hf_value(r->json, name);
    double v = (double)fallback;
    int rc = item ? read_number(r, item, name, &v) : 0;
    if (rc) return rc;
    if (!(v >= (double)min && v <= (double)max) || v != floor(v))
        return err_set_param(r->e, ERR_FORMAT, name,
                             "member '%s' is %g, expected an integer from %" PRIu64 " to %" PRIu64,
                             name, v, min, max);
    *out = (uint64_t)v;
    return 0;
}

static int read_u32(struct hf_reader *r, const char *name, uint32_t fallback, uint32_t max,
                    uint32_t *out) {
    uint64_t v;
    int rc = hf_read_count(r, name, fallback, 1, max, &v);
    if (!rc) *out = (uint32_t)v;
    return rc;
}

int hf_read_real(struct hf_reader *r, const cJSON *object, const char *name, double fallback,
                 double *out) {
    const cJSON *item = hf_value(object, name);
    *out = fallback;
    return item ? read_number(r, item, name, out) : 0;
}

int hf_read_positive(struct hf_reader *r, const char *name, double fallback, double *out) {
    int rc = hf_read_real(r, r->json, name, fallback, out);
    if (rc || *out > 0) return rc;
    return hf_refuse(r, name, "only a positive number is supported");
}

bool hf_is_null(const struct hf_reader *r, const char *name) {
    return cJSON_IsNull(hf_member(r->json, name));
}

static const char *key_of(const struct hf_reader *r, const char *suffix, char key[KEY_BYTES]) {
    snprintf(key, KEY_BYTES, "%s.%s", r->config->family->arch, suffix);
    return key;
}

void hf_put_u32(struct hf_reader *r, const char *suffix, uint64_t v) {
    char key[KEY_BYTES];
    if (!r->rc) r->rc = gguf_writer_set_u32(r->keys, key_of(r, suffix, key), (uint32_t)v, r->e);
}

void hf_put_f32(struct hf_reader *r, const char *suffix, double v) {
    char key[KEY_BYTES];
    if (!r->rc) r->rc = gguf_writer_set_f32(r->keys, key_of(r, suffix, key), (float)v, r->e);
}

void hf_put_bool(struct hf_reader *r, const char *suffix, bool v) {
    char key[KEY_BYTES];
    if (!r->rc) r->rc = gguf_writer_set_bool(r->keys, key_of(r, suffix, key), v, r->e);
}

void hf_put_str(struct hf_reader *r, const char *suffix, const char *v) {
    char key[KEY_BYTES];
    if (!r->rc) r->rc = gguf_writer_set_str(r->keys, key_of(r, suffix, key), v, r->e);
}

void hf_put_bools(struct hf_reader *r, const char *suffix, const bool *v, uint32_t n) {
    char key[KEY_BYTES];
    if (!r->rc)
        r->rc = gguf_writer_set_array(r->keys, key_of(r, suffix, key), GGUF_BOOL, v, n, r->e);
}

void hf_put_i32s(struct hf_reader *r, const char *suffix, const int32_t *v, uint32_t n) {
    char key[KEY_BYTES];
    if (!r->rc)
        r->rc = gguf_writer_set_array(r->keys, key_of(r, suffix, key), GGUF_I32, v, n, r->e);
}

void hf_put_f32s(struct hf_reader *r, const char *suffix, const float *v, uint32_t n) {
    char key[KEY_BYTES];
    if (!r->rc)
        r->rc = gguf_writer_set_array(r->keys, key_of(r, suffix, key), GGUF_F32, v, n, r->e);
}

void hf_put_expert_counts(struct hf_reader *r, uint64_t n, uint64_t n_used) {
    r->config->n_experts = (uint32_t)n;
    hf_put_u32(r, "expert_count", n);
    hf_put_u32(r, "expert_used_count", n_used);
}

/* ---- members that must not be ignored ---- */

static int check_activation(struct hf_reader *r) {
    static const char *const gelu[] = {"gelu_pytorch_tanh", "gelu_new", "gelu_fast"};
    bool is_gelu = r->config->family->traits & HF_GELU;
    const char *name =
        is_gelu && hf_value(r->json, "hidden_activation") ? "hidden_activation" : "hidden_act";
    const char *act = hf_text(r->json, name);
    const char *only = r->config->family->act;
    bool known = !act || (only && strcmp(act, only) == 0) ||
                 (!is_gelu && !only && strcmp(act, "silu") == 0) ||
                 (!is_gelu && !only && strcmp(act, "swish") == 0);
    /* The first gemma files have "gelu" for the approximation. */
    if (is_gelu && act && strcmp(name, "hidden_act") == 0) known = strcmp(act, "gelu") == 0;
    for (size_t i = 0; is_gelu && act && i < sizeof gelu / sizeof gelu[0]; i++)
        known = known || strcmp(act, gelu[i]) == 0;
    if (known) return 0;
    return err_set_param(r->e, ERR_UNSUPPORTED, name,
                         "member '%s': activation '%.*s' is not supported for %s", name,
                         SHOWN_BYTES, act, r->config->family->model_type);
}

/* Checks a member that must have one value or be missing. */
static int check_real(struct hf_reader *r, const char *name, double only) {
    double v;
    int rc = hf_read_real(r, r->json, name, only, &v);
    if (rc || v == only) return rc;
    return err_set_param(r->e, ERR_UNSUPPORTED, name,
                         "member '%s' is %g, expected %g: no other value is supported for %s", name,
                         v, only, r->config->family->model_type);
}

static int check_members(struct hf_reader *r) {
    uint32_t traits = r->config->family->traits;
    int rc = hf_read_packing(r);
    if (!rc) rc = check_activation(r);
    if (rc) return rc;
    const bool embeds = strcmp(r->config->family->arch, HF_GEMMA_EMBEDDING) == 0;
    if (!embeds && hf_flag(r->json, "use_bidirectional_attention", false))
        return hf_refuse(r, "use_bidirectional_attention", "only causal attention is supported");
    if (!hf_flag(r->json, "is_causal", true))
        return hf_refuse(r, "is_causal", "only causal attention is supported");
    if (traits & HF_GPT_OSS) {
        if ((rc = check_real(r, "swiglu_limit", 7)) || (rc = check_real(r, "swiglu_alpha", 1.702)))
            return rc;
    }
    return 0;
}

/* ---- layers with a window, layers without rotation ---- */

/* rotated[i] of layer i: no_rope_layers holds 1 for those that are, 0 for others. */
static int read_nope(struct hf_reader *r, bool *rotated) {
    const cJSON *list = hf_value(r->json, "no_rope_layers"), *item = list ? list->child : NULL;
    uint64_t interval;
    int rc = hf_read_count(r, "no_rope_layer_interval", 4, 1, UINT32_MAX, &interval);
    if (rc) return rc;
    bool as_usual = true;
    for (uint32_t i = 0; i < r->config->n_layers; i++) {
        rotated[i] = (i + 1) % interval != 0;
        if (list && !cJSON_IsNumber(item))
            return err_set_param(r->e, ERR_FORMAT, "no_rope_layers",
                                 "member 'no_rope_layers' is not a list of one number per layer");
        if (item) {
            rotated[i] = item->valuedouble != 0;
            item = item->next;
        }
        as_usual = as_usual && rotated[i] == ((i + 1) % 4 != 0);
    }
    if (as_usual) return 0;
    bool without[HF_MAX_LAYERS];
    for (uint32_t i = 0; i < r->config->n_layers; i++)
        without[i] = !rotated[i];
    hf_put_bools(r, "inferd.no_rope_layers", without, r->config->n_layers);
    return 0;
}

int hf_read_layer_types(struct hf_reader *r, const cJSON *list, bool *windowed) {
    const cJSON *item = cJSON_IsArray(list) ? list->child : NULL;
    for (uint32_t i = 0; i < r->config->n_layers; i++, item = item->next) {
        if (!cJSON_IsString(item))
            return err_set_param(r->e, ERR_FORMAT, "layer_types",
                                 "member 'layer_types' is not a list of one string per layer");
        windowed[i] = strcmp(item->valuestring, "sliding_attention") == 0;
        if (!windowed[i] && strcmp(item->valuestring, "full_attention") != 0)
            return err_set_param(r->e, ERR_UNSUPPORTED, "layer_types",
                                 "member 'layer_types': '%.*s' is not supported", SHOWN_BYTES,
                                 item->valuestring);
    }
    return 0;
}

/* Applies the family's rule for layers with a window. */
static int guess_windows(struct hf_reader *r, const bool *rotated, bool *windowed) {
    const struct hf_family *f = r->config->family;
    uint64_t first = 0, period = 0, lead = 0; /* lead: dense layers before a mixture's others */
    int rc = hf_read_count(r, "max_window_layers", 28, 0, UINT32_MAX, &first);
    if (!rc) rc = hf_read_count(r, "sliding_window_pattern", f->period, 0, UINT32_MAX, &period);
    if (!rc) rc = hf_read_count(r, "global_attn_every_n_layers", period, 0, UINT32_MAX, &period);
    if (!rc && hf_is_cohere_moe(r))
        rc = hf_read_count(r, "first_k_dense_replace", 0, 0, r->config->n_layers, &lead);
    for (uint64_t i = 0; !rc && i < r->config->n_layers; i++) {
        bool windows[] = {
            [HF_WINDOW_NONE] = false,
            [HF_WINDOW_ALL] = true,
            [HF_WINDOW_PERIOD] = period && i >= lead && (i - lead + 1) % period != 0,
            [HF_WINDOW_FROM_LAYER] = i >= first,
            [HF_WINDOW_ALTERNATING] = i % 2 == 0 && i < first,
            [HF_WINDOW_NOPE] = !rotated[i],
        };
        windowed[i] = windows[f->window];
    }
    return rc;
}

/* Writes keys only if they differ from what GGUF readers assume for the architecture. */
static void put_windows(struct hf_reader *r, const bool *windowed) {
    const struct hf_config *c = r->config;
    bool any = false, usual = c->family->window == HF_WINDOW_ALL;
    bool periodic = c->family->window == HF_WINDOW_PERIOD, all = true, by_period = true;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        any = any || windowed[i];
        all = all && windowed[i];
        by_period = by_period && windowed[i] == ((i + 1) % (periodic ? c->family->period : 1) != 0);
    }
    usual = usual ? all : periodic && by_period;
    bool phi3 = strcmp(c->family->arch, "phi3") == 0;
    if (any || periodic || phi3) hf_put_u32(r, "attention.sliding_window", any ? c->window : 0);
    if (any && !usual) hf_put_bools(r, "attention.sliding_window_pattern", windowed, c->n_layers);
}

static int read_windows(struct hf_reader *r) {
    struct hf_config *c = r->config;
    bool rotated[HF_MAX_LAYERS] = {false}, windowed[HF_MAX_LAYERS];
    uint32_t traits = c->family->traits;
    int rc =
        hf_read_count(r, "sliding_window", c->family->sliding_window, 0, INT32_MAX, &c->window);
    const cJSON *given = hf_member(r->json, "sliding_window");
    if (cJSON_IsNull(given)) c->window = 0;
    if ((traits & HF_SWITCHED_WINDOW) && !hf_flag(r->json, "use_sliding_window", false))
        c->window = 0;
    if (!rc && (traits & HF_NOPE)) rc = read_nope(r, rotated);
    const cJSON *types = traits & HF_LAYER_TYPES ? hf_value(r->json, "layer_types") : NULL;
    if (!rc)
        rc = types ? hf_read_layer_types(r, types, windowed) : guess_windows(r, rotated, windowed);
    if (rc) return rc;
    for (uint32_t i = 0; i < c->n_layers; i++)
        windowed[i] = windowed[i] && c->window;
    put_windows(r, windowed);
    return 0;
}

/* ---- the rest ---- */

static int read_sizes(struct hf_reader *r) {
    struct hf_config *c = r->config;
    const struct hf_family *f = c->family;
    const bool kimi = f->traits & HF_KDA && hf_value(r->json, "model_max_length");
    const char *length = kimi ? "model_max_length" : "max_position_embeddings";
    uint32_t positions;
    int rc;
    if ((rc = read_u32(r, "num_hidden_layers", hf_mamba2_layers(r), HF_MAX_LAYERS, &c->n_layers)) ||
        (rc = read_u32(r, "hidden_size", f->hidden, 1 << 20, &c->hidden)) ||
        (rc = read_u32(r, "num_attention_heads", f->n_heads, 1 << 16, &c->n_heads)) ||
        (rc = read_u32(r, "num_key_value_heads", f->n_kv_heads ? f->n_kv_heads : c->n_heads,
                       1 << 16, &c->n_kv_heads)) ||
        (rc = read_u32(r, length, f->max_positions, INT32_MAX, &positions)) ||
        (rc = hf_read_count(r, "num_nextn_predict_layers", 1, 0, HF_MAX_LAYERS, &c->n_predicting)))
        return rc;
    /* null: as many as heads, not the default */
    if (hf_is_null(r, "num_key_value_heads")) c->n_kv_heads = c->n_heads;
    c->max_positions = positions;
    c->tied =
        hf_flag(r->root, "tie_word_embeddings", hf_flag(r->json, "tie_word_embeddings", f->tied));
    if (f->traits & HF_SHORT_CONV) c->tied = hf_flag(r->json, "tie_embedding", c->tied);
    uint32_t even = c->hidden / c->n_heads;
    bool given = !(f->traits & HF_NO_HEAD_DIM) && hf_value(r->json, "head_dim");
    c->head_dim = f->head_dim && !hf_is_null(r, "head_dim") ? f->head_dim : even;
    if (f->traits & HF_MLA)
        rc = hf_mla_head(r);
    else if (given)
        rc = read_u32(r, "head_dim", 0, 1 << 16, &c->head_dim);
    if (!rc && c->head_dim == 0)
        rc = err_set_param(r->e, ERR_FORMAT, "num_attention_heads",
                           "%" PRIu32 " heads for %" PRIu32 " dimensions", c->n_heads, c->hidden);
    c->n_rot = c->head_dim;
    return rc;
}

static int put_sizes(struct hf_reader *r) {
    const struct hf_config *c = r->config;
    const bool short_conv = c->family->traits & HF_SHORT_CONV;
    uint32_t ff = short_conv ? c->family->ff : 0;
    bool dense = c->family->ff || hf_value(r->json, "intermediate_size");
    /* Granite 4.0: its shared expert is the whole FFN of models without experts. */
    const char *name = hf_only_shared_expert(r)        ? "shared_intermediate_size"
                       : c->family->traits & HF_LLAMA4 ? "intermediate_size_mlp"
                       : hf_cohere_dense_ff(r)         ? hf_cohere_dense_ff(r)
                                                       : "intermediate_size";
    int rc = short_conv ? hf_short_conv_ff(r, &ff)
             : dense    ? read_u32(r, name, c->family->ff, INT32_MAX, &ff)
                        : 0;
    if (rc) return rc;
    hf_put_u32(r, "block_count", c->n_layers);
    hf_put_u32(r, "context_length", c->max_positions);
    hf_put_u32(r, "embedding_length", c->hidden);
    r->config->n_ff = ff;
    if (c->family->traits & HF_GEMMA4) {
        hf_put_u32(r, "attention.head_count", c->n_heads);
        return 0; /* hf_read_gemma4 puts what differs between layers */
    }
    if (ff && !hf_is_nemotron(r)) hf_put_u32(r, "feed_forward_length", ff);
    hf_put_u32(r, "attention.head_count", c->n_heads);
    if (!short_conv && !(c->family->traits & (HF_MAMBA2 | HF_KDA)))
        hf_put_u32(r, "attention.head_count_kv", c->family->traits & HF_MLA ? 1 : c->n_kv_heads);
    if ((c->family->traits & HF_GPT_OSS)) hf_put_u32(r, "expert_feed_forward_length", ff);
    return 0;
}

/* How far below the best an expert's score may be to count in Phi-MoE's softmax. */
static int put_mixer(struct hf_reader *r) {
    double noise;
    int rc = hf_read_real(r, r->json, "router_jitter_noise", 0.01, &noise);
    if (rc) return rc;
    if (!(noise > 0))
        return hf_refuse(r, "router_jitter_noise", "only a positive number is supported");
    if (noise != 0.01) hf_put_f32(r, "inferd.mixer_limit", 2 * noise);
    return 0;
}

static int put_experts(struct hf_reader *r) {
    struct hf_config *c = r->config;
    const struct hf_family *f = c->family;
    const char *name = hf_value(r->json, "num_local_experts") ? "num_local_experts" : "num_experts";
    uint32_t used, ff;
    if (f->traits & HF_ROUTED) return hf_put_routed_experts(r);
    if (!(f->traits & HF_EXPERTS)) return 0;
    int rc = read_u32(r, name, f->n_experts, HF_MAX_EXPERTS, &c->n_experts);
    if (!rc) rc = read_u32(r, "num_experts_per_tok", f->n_experts_used, HF_MAX_EXPERTS, &used);
    if (rc) return rc;
    if (used > c->n_experts)
        return err_set_param(r->e, ERR_FORMAT, "num_experts_per_tok",
                             "member 'num_experts_per_tok': %" PRIu32 " of %" PRIu32 " experts",
                             used, c->n_experts);
    hf_put_expert_counts(r, c->n_experts, used);
    if (strcmp(f->arch, "phimoe") == 0) return put_mixer(r);
    if (!(f->traits & (HF_QWEN_EXPERTS | HF_SHORT_CONV))) return 0;
    if ((rc = read_u32(r, "moe_intermediate_size", f->expert_ff, INT32_MAX, &ff))) return rc;
    hf_put_u32(r, "expert_feed_forward_length", ff);
    hf_put_bool(r, "inferd.experts_renormalize",
                hf_flag(r->json, "norm_topk_prob", f->renormalize));
    if (f->traits & HF_SHORT_CONV) return hf_put_sigmoid_experts(r);
    if ((rc = hf_put_qwen_dense_layers(r))) return rc;
    if (!f->shared_ff) return 0;
    if ((rc = read_u32(r, "shared_expert_intermediate_size", f->shared_ff, INT32_MAX, &ff)))
        return rc;
    hf_put_u32(r, "expert_shared_feed_forward_length", ff);
    return 0;
}

/* Writes Granite's multipliers. */
static int put_scales(struct hf_reader *r) {
    static const struct {
        const char *member, *suffix;
    } rows[] = {{"attention_multiplier", "attention.scale"},
                {"embedding_multiplier", "embedding_scale"},
                {"residual_multiplier", "residual_scale"},
                {"logits_scaling", "logit_scale"}};
    double v;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int rc = hf_read_positive(r, rows[i].member, 1, &v);
        if (rc) return rc;
        hf_put_f32(r, rows[i].suffix, v);
    }
    return 0;
}

static int put_caps(struct hf_reader *r) {
    const struct hf_config *c = r->config;
    bool second = strcmp(c->family->arch, "gemma2") == 0;
    static const char *const names[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    double v, usual[] = {50, 30};
    for (int i = 0; i < 2; i++) {
        bool null = hf_is_null(r, names[i]);
        int rc = hf_read_real(r, r->json, names[i], second && !null ? usual[i] : 0, &v);
        if (rc) return rc;
        if (v < 0 || (v > 0 && i == 0 && !second))
            return hf_refuse(r, names[i], "its value is not supported");
        if (v > 0 || (second && null)) hf_put_f32(r, names[i], v);
    }
    int rc = hf_read_positive(r, "query_pre_attn_scalar", 256, &v);
    if (rc) return rc;
    if (v != c->head_dim) hf_put_f32(r, "attention.scale", 1 / sqrt(v));
    return 0;
}

/* A head that scores in the place of the output head: score.weight. */
static void put_head(struct hf_reader *r) {
    const cJSON *classes = hf_value(r->root, "architectures");
    const bool named = cJSON_IsArray(classes) && cJSON_IsString(classes->child);
    if (!named || strcmp(classes->child->valuestring, "Qwen3ForSequenceClassification") != 0)
        return;
    hf_put_u32(r, "pooling_type", 4);
    r->config->pooled = true;
}

/* Members of StableLM and GPT-NeoX. */
static int put_neox(struct hf_reader *r) {
    const char *arch = r->config->family->arch;
    if (strcmp(arch, "stablelm") == 0 && hf_flag(r->json, "qk_layernorm", false))
        return hf_refuse(r, "qk_layernorm", "norms of each head of Q and K are not supported");
    if (strcmp(arch, "gptneox") == 0)
        hf_put_bool(r, "use_parallel_residual", hf_flag(r->json, "use_parallel_residual", true));
    return 0;
}

static int read_all(struct hf_reader *r) {
    struct hf_config *c = r->config;
    double eps;
    int rc;
    if ((rc = hf_choose_family(r))) return rc;
    uint32_t traits = c->family->traits;
    r->rc = gguf_writer_set_str(r->keys, "general.architecture", c->family->arch, r->e);
    if (!r->rc) r->rc = gguf_writer_set_str(r->keys, "general.type", "model", r->e);
    if (traits & HF_ENCODER) return (rc = hf_read_packing(r)) ? rc : hf_read_encoder(r);
    if (traits & HF_OLDER) return (rc = hf_read_packing(r)) ? rc : hf_read_older(r);
    if ((rc = check_members(r))) return rc;
    if (c->family->read) return c->family->read(r);
    if ((rc = read_sizes(r))) return rc;
    const bool nemotron = hf_is_nemotron(r);
    const bool layer_norm =
        c->family->eps && !(hf_is_cohere_moe(r) && hf_value(r->json, "rms_norm_eps"));
    const char *eps_name = layer_norm               ? c->family->eps
                           : traits & HF_SHORT_CONV ? "norm_eps"
                           : nemotron               ? "layer_norm_epsilon"
                                                    : "rms_norm_eps";
    const bool gemma4 = traits & HF_GEMMA4;
    if ((rc = put_sizes(r)) || (!gemma4 && (rc = hf_read_rope(r))) ||
        (rc = hf_read_real(r, r->json, eps_name, c->family->rms_eps, &eps)))
        return rc;
    hf_put_f32(r, layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
               eps);
    if ((rc = hf_put_cohere(r)) || (rc = put_neox(r))) return rc;
    if ((rc = put_experts(r))) return rc;
    bool explicit_dim = !(traits & (HF_NO_HEAD_DIM | HF_MLA)) && hf_value(r->json, "head_dim");
    if ((explicit_dim || c->family->head_dim) && !gemma4) {
        hf_put_u32(r, "attention.key_length", c->head_dim);
        hf_put_u32(r, "attention.value_length", c->head_dim);
    }
    if (traits & (HF_LLAMA_KEYS | HF_SHORT_CONV)) {
        uint32_t n_vocab;
        if ((rc = read_u32(r, "vocab_size", c->family->vocab, INT32_MAX, &n_vocab))) return rc;
        hf_put_u32(r, "vocab_size", n_vocab);
    }
    if ((traits & HF_SCALES) && (rc = put_scales(r))) return rc;
    if (strcmp(c->family->arch, "muse-glimmer") == 0 && (rc = hf_read_glimmer(r))) return rc;
    if ((traits & HF_GEMMA_CAPS) && (rc = put_caps(r))) return rc;
    rc = traits & HF_DELTA_NET    ? hf_read_delta_net(r)
         : traits & HF_SHORT_CONV ? hf_read_short_conv(r)
         : traits & HF_MAMBA2     ? hf_read_mamba2(r)
         : traits & HF_MLA        ? hf_read_mla(r)
         : gemma4                 ? hf_read_gemma4(r)
         : traits & HF_LLAMA4     ? hf_read_llama4(r)
                                  : read_windows(r);
    if (!rc) put_head(r);
    return rc ? rc : r->rc;
}

int hf_config_read(const char *json, size_t n, gguf_writer *keys, struct hf_config *config,
                   err *e) {
    void *document = NULL;
    *config = (struct hf_config){.as_file = config->as_file};
    int rc = hf_json_parse(json, n, &document, e);
    struct hf_reader r = {
        .json = document, .root = document, .config = config, .keys = keys, .e = e};
    if (!rc) rc = read_all(&r);
    cJSON_Delete(document);
    return rc;
}
