/* hparams.c - hyperparameters from a file's metadata, each checked before anything is sized by it.
 * Keys that the forward pass does not support are refused by name, never ignored. Owns nothing. */
#include "core/model/model_int.h"

#include "core/base/log.h"
#include "core/base/min_max.h"
#include "core/formats/lacking.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Generous bounds, far above real models: they keep products of sizes from overflowing. */
enum {
    MAX_WIDTH = 1 << 17, /* n_embd */
    MAX_FF = 1 << 20,
    MAX_HEADS = 1024,
    MAX_HEAD_DIM = 256, /* of the backends' attention kernels */
    MAX_EXPERTS = 1024,
    MAX_VOCAB = 1 << 22,
    MAX_CONTEXT = 1 << 26
};

/* Keys that would change the forward pass in ways that it does not implement. */
static const char *const refused_keys[] = {
    "attention.clamp_kqv",
    "attention.output_scale",
    "attention.rope_pattern",
    "router_logit_softcapping",
    "rope.scaling.alpha",
    "expert_group_scale",
    "expert_latent_length",
    "n_deepstack_layers",
    "deepstack_mapping",
    "activation_sparsity_scale",
    "num_loops",
    "hyper_connection.count",
    "adapters.count",
    "swin_norm",
    "kda.safe_gate",
    "kda.gate_lower_bound",
};
/* Keys of architectures with recurrent layers: the first N_SSM_KEYS of delta nets and Mamba-2 (the
 * first of Kimi Linear, too), the others of delta nets alone. */
enum { N_SSM_KEYS = 5 };
static const char *const delta_net_keys[] = {
    "ssm.conv_kernel",
    "ssm.inner_size",
    "ssm.state_size",
    "ssm.time_step_rank",
    "ssm.group_count",
    "full_attention_interval",
    "attention.recurrent_layers",
    "rope.dimension_sections",
};
/* Of multi-head latent attention alone. */
static const char *const mla_keys[] = {
    "attention.kv_lora_rank",
    "attention.q_lora_rank",
    "attention.key_length_mla",
    "attention.value_length_mla",
};
/* Of Gemma 4 alone; the last also of architectures with local_rotated. */
static const char *const gemma4_keys[] = {
    "attention.key_length_swa",         "attention.value_length_swa", "attention.shared_kv_layers",
    "embedding_length_per_layer_input", "rope.dimension_count_swa",
};
static const char dense_key[] = "leading_dense_block_count",
                  step_key[] = "interleave_moe_layer_step",
                  dense_layers_key[] = "inferd.dense_layers";
static const char beside_key[] = "use_parallel_residual";
static const char *const scale_keys[] = {"embedding_scale", "residual_scale", "logit_scale"};

static int check_single(struct model_keys *k, const char *suffix, err *e) {
    uint32_t n;
    int rc = model_key_count_or_zero(k, suffix, UINT32_MAX, &n, e);
    if (rc || n <= 1) return rc;
    return err_set_param(e, ERR_UNSUPPORTED, k->key, "%s: %s is %u; this build supports 1",
                         gguf_path(k->g), k->key, n);
}

/* Keys of groups of experts, and of the shared one. */
static int check_expert_counts(struct model_keys *k, const struct model_arch *arch, err *e) {
    static const char groups[] = "expert_group_count", shared[] = "expert_shared_count";
    int rc = arch->expert_groups ? 0 : check_single(k, groups, e);
    if (rc || arch->shared_count || arch->mla) return rc;
    if (arch->ungated) return check_single(k, shared, e);
    return model_keys_refuse(k, &(const char *){shared}, 1, e);
}

/* Keys that only some architectures have. */
static int refuse_keys_of_others(struct model_keys *k, const struct model_arch *arch, err *e) {
    const struct {
        bool known;
        const char *key;
    } rows[] = {
        {arch->nextn, "nextn_predict_layers"},
        {arch->attention_temperature, "attention.temperature_scale"},
        {arch->attention_temperature, "attention.temperature_length"},
        {arch->expert_step, step_key},
        {arch->short_conv, "shortconv.l_cache"},
        {arch->alibi_by_key, "attention.max_alibi_bias"},
        {arch->chunked, "attention.chunk_size"},
        {arch->clamped, "swiglu_clamp_exp"},
        {arch->clamped, "swiglu_clamp_shexp"},
        {arch->value_scale, "attention.value_scale"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int rc = rows[i].known ? 0 : model_keys_refuse(k, &rows[i].key, 1, e);
        if (rc) return rc;
    }
    return 0;
}

/* ModernBERT's files name the activation. */
static int check_activation(struct model_keys *k, const struct model_arch *arch, err *e) {
    static const struct {
        int act;
        const char *name;
    } rows[] = {
        {BACKEND_ACT_GELU, "gelu"}, {BACKEND_ACT_GELU, "geglu"}, {BACKEND_ACT_SILU, "silu"}};
    static const char suffix[] = "hidden_activation";
    gguf_str name = {"", 0};
    if (!model_key_has(k, suffix)) return 0;
    gguf_get_str(k->g, k->key, &name, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if ((int)arch->act == rows[i].act && name.len == strlen(rows[i].name) &&
            memcmp(name.data, rows[i].name, name.len) == 0)
            return 0;
    return err_set_param(e, ERR_UNSUPPORTED, k->key, "%s: %s '%.*s' is not supported in %s",
                         gguf_path(k->g), k->key, (int)(name.len < 32 ? name.len : 32), name.data,
                         arch->name);
}

static int refuse_keys(struct model_keys *k, const struct model_arch *arch, err *e) {
    enum {
        N_REFUSED = sizeof refused_keys / sizeof refused_keys[0],
        N_DELTA_NET = sizeof delta_net_keys / sizeof delta_net_keys[0],
        N_MLA = sizeof mla_keys / sizeof mla_keys[0],
        N_GEMMA4 = sizeof gemma4_keys / sizeof gemma4_keys[0]
    };
    bool causal, rope;
    int rc;
    if ((rc = model_keys_refuse(k, refused_keys, N_REFUSED, e)) ||
        (rc = check_activation(k, arch, e)) || (rc = check_expert_counts(k, arch, e)) ||
        (rc = check_single(k, "moe_every_n_layers", e)) ||
        (rc = refuse_keys_of_others(k, arch, e)) ||
        (!arch->delta_net && !arch->mamba2 &&
         (rc = model_keys_refuse(k, delta_net_keys + arch->kda, N_SSM_KEYS - arch->kda, e))) ||
        (!arch->delta_net &&
         (rc = model_keys_refuse(k, delta_net_keys + N_SSM_KEYS, N_DELTA_NET - N_SSM_KEYS, e))) ||
        (!arch->mla && (rc = model_keys_refuse(k, mla_keys, N_MLA, e))) ||
        (!arch->gemma4 &&
         (rc = model_keys_refuse(k, gemma4_keys, N_GEMMA4 - arch->local_rotated, e))) ||
        (!arch->scale_keys &&
         (rc = model_keys_refuse(k, scale_keys, arch->multiplies_logits ? 2 : 3, e))) ||
        (arch->beside == MODEL_BESIDE_NEVER &&
         (rc = model_keys_refuse(k, &(const char *){beside_key}, 1, e))) ||
        (rc = model_key_bool_or(k, "attention.causal", !arch->both_ways, &causal, e)))
        return rc;
    if (causal == arch->both_ways)
        return err_set_param(e, ERR_UNSUPPORTED, k->key,
                             "%s: %s is %s, which this build does not support in %s",
                             gguf_path(k->g), k->key, causal ? "true" : "false", arch->name);
    /* Granite uses this key to say that its layers have no RoPE. */
    rc = model_key_bool_or(k, "rope.scaling.finetuned", true, &rope, e);
    if (rc || rope || !arch->scale_keys || arch->rope_by_key) return rc;
    return err_set_param(e, ERR_UNSUPPORTED, k->key,
                         "%s: %s is false, which this build does not support", gguf_path(k->g),
                         k->key);
}

static int read_heads(struct model_keys *k, const struct model_arch *arch, struct model_hparams *hp,
                      err *e) {
    uint32_t v_dim;
    int rc;
    if (!arch->layer_heads &&
        (rc = model_key_count(k, "attention.head_count", MAX_HEADS, 0, &hp->n_heads, e)))
        return rc;
    if (arch->kda && (rc = model_hparams_read_kv_heads(k, arch, hp, e))) return rc;
    if (arch->mla) return model_mla_read(k, hp, e);
    /* model_gemma4_read, model_layer_heads_read know the layers */
    if (arch->gemma4 || arch->layer_heads) return 0;
    if ((rc = model_hparams_read_kv_heads(k, arch, hp, e))) return rc;
    if (hp->n_heads % hp->n_kv_heads)
        return err_set_param(e, ERR_FORMAT, k->key, "%s: %u heads cannot share %u KV heads",
                             gguf_path(k->g), hp->n_heads, hp->n_kv_heads);
    uint32_t even = hp->n_embd / hp->n_heads;
    if ((rc = model_key_count(k, "attention.key_length", MAX_HEAD_DIM, even, &hp->head_dim, e)) ||
        (rc = model_key_count(k, "attention.value_length", MAX_HEAD_DIM, hp->head_dim, &v_dim, e)))
        return rc;
    if (v_dim != hp->head_dim)
        return err_set_param(
            e, ERR_UNSUPPORTED, k->key,
            "%s: value heads of %u dimensions with key heads of %u are not supported",
            gguf_path(k->g), v_dim, hp->head_dim);
    return 0;
}

/* All layers but the first of each period. */
static void flag_after_first(struct model_hparams *hp, uint32_t period, uint8_t flag) {
    for (uint32_t i = 0; i < hp->n_layers; i++)
        if (i % period) hp->layers[i] |= flag;
}

static void flag_layers(struct model_hparams *hp, uint32_t period, bool the_last, uint8_t flag) {
    for (uint32_t i = 0; i < hp->n_layers; i++)
        if (((i + 1) % period == 0) == the_last) hp->layers[i] |= flag;
}

/* Which layers have windowed attention, and which have no RoPE. */
static int read_layers(struct model_keys *k, const struct model_arch *arch,
                       struct model_hparams *hp, err *e) {
    static const char pattern[] = "attention.sliding_window_pattern",
                      no_rope[] = "inferd.no_rope_layers";
    uint32_t period = arch->window_period, n_dense = 0;
    int rc = 0;
    hp->window = arch->window;
    hp->chunked = arch->chunked;
    if (arch->chunked && model_key_has(k, "attention.chunk_size"))
        rc = model_key_count(k, "attention.chunk_size", UINT32_MAX, 0, &hp->window, e);
    else if (model_key_has(k, "attention.sliding_window"))
        rc = model_key_count_or_zero(k, "attention.sliding_window", UINT32_MAX, &hp->window, e);
    if (rc) return rc;
    /* In both directions the key counts positions on both sides of a token. */
    if (arch->both_ways && hp->window) hp->window = hp->window / 2 + 1;
    if (arch->chunked && hp->window && !model_key_has(k, "attention.chunk_size"))
        hp->window = arch->window; /* as llama.cpp reads the key: 0, or any number */
    if (hp->window && model_key_has(k, pattern) &&
        gguf_get_array(k->g, k->key, &(enum gguf_type){0}, &(uint64_t){0}, NULL) == 0) {
        rc = model_key_flags(k, pattern, hp->layers, hp->n_layers, MODEL_LAYER_WINDOWED, e);
    } else if (hp->window) {
        if (model_key_has(k, pattern)) rc = model_key_count(k, pattern, UINT32_MAX, 0, &period, e);
        if (!rc && period && arch->full_first)
            flag_after_first(hp, period, MODEL_LAYER_WINDOWED);
        else if (!rc && period)
            flag_layers(hp, period, false, MODEL_LAYER_WINDOWED);
        else if (!rc)
            flag_layers(hp, 1, true, MODEL_LAYER_WINDOWED);
    }
    if (rc) return rc;
    if (arch->dense_rotated &&
        (rc = model_key_count_or_zero(k, dense_key, hp->n_layers, &n_dense, e)))
        return rc;
    for (uint32_t i = n_dense; arch->rope_with_window && hp->window && i < hp->n_layers; i++)
        if (!(hp->layers[i] & MODEL_LAYER_WINDOWED)) hp->layers[i] |= MODEL_LAYER_NO_ROPE;
    if (model_key_has(k, no_rope))
        return model_key_flags(k, no_rope, hp->layers, hp->n_layers, MODEL_LAYER_NO_ROPE, e);
    if (arch->no_rope_period) flag_layers(hp, arch->no_rope_period, true, MODEL_LAYER_NO_ROPE);
    if (arch->no_rope) flag_layers(hp, 1, true, MODEL_LAYER_NO_ROPE);
    if (!arch->rope_by_key) return 0;
    bool rope;
    rc = model_key_bool_or(k, "rope.scaling.finetuned", false, &rope, e);
    if (!rc && !rope) flag_layers(hp, 1, true, MODEL_LAYER_NO_ROPE);
    return rc;
}

static int read_scales(struct model_keys *k, const struct model_arch *arch,
                       struct model_hparams *hp, err *e) {
    bool wide = arch->wide_query_layers && hp->n_layers == arch->wide_query_layers;
    double query = wide           ? (double)hp->n_embd / hp->n_heads
                   : arch->mla    ? hp->mla.k_dim
                   : arch->gemma4 ? 1
                                  : hp->head_dim;
    float logits_by = 1;
    int rc;
    hp->embed_scale = arch->scaled_embeddings ? sqrtf((float)hp->n_embd) : 1;
    hp->residual_scale = 1;
    if ((rc = model_key_real(k, "attention.scale", 1 / sqrt(query), &hp->attn_scale, e)) ||
        (rc = model_key_real_or(k, "attn_logit_softcapping", (double)arch->attn_softcap,
                                &hp->attn_softcap, e)) ||
        (rc = model_key_real_or(k, "final_logit_softcapping", (double)arch->logit_softcap,
                                &hp->logit_softcap, e)))
        return rc;
    if (arch->mla && (rc = model_mla_read_scale(k, hp, e))) return rc;
    if (arch->scale_keys &&
        ((rc = model_key_real(k, "embedding_scale", 1, &hp->embed_scale, e)) ||
         (rc = model_key_real(k, "residual_scale", 1, &hp->residual_scale, e)) ||
         (rc = model_key_real(k, "logit_scale", 1, &logits_by, e))))
        return rc;
    hp->logit_scale = logits_by == 1 ? 0 : 1 / logits_by;
    if (arch->multiplies_logits &&
        (rc = model_key_real_or(k, "logit_scale", 0, &hp->logit_scale, e)))
        return rc;
    if (arch->value_scale &&
        (rc = model_key_real_or(k, "attention.value_scale", 0, &hp->attn_out_scale, e)))
        return rc;
    if (!arch->parallel) return 0;
    if ((rc = model_key_real_or(k, "inferd.dt_scale", 0, &hp->dt_scale, e)) ||
        (rc = model_key_real_or(k, "inferd.attention_out_scale", 0, &hp->attn_out_scale, e)) ||
        (rc = model_key_real_or(k, "inferd.ssm_out_scale", 0, &hp->ssm_out_scale, e)))
        return rc;
    return model_key_real_or(k, "inferd.ffn_out_scale", 0, &hp->ffn_out_scale, e);
}

static int read_gating(struct model_keys *k, const struct model_arch *arch, struct model_experts *x,
                       err *e) {
    /* numbers as in GGUF; 0 as if absent */
    enum { GATING_SOFTMAX = 1, GATING_SIGMOID = 2, GATING_SOFTMAX_OF_CHOSEN = 3 };
    uint32_t gating;
    int rc = model_key_count_or_zero(k, "expert_gating_func", UINT32_MAX, &gating, e);
    bool sigmoid = gating == GATING_SIGMOID || (!gating && arch->sigmoid_gating);
    x->gating = sigmoid ? BACKEND_GATING_SIGMOID : BACKEND_GATING_SOFTMAX;
    x->weighs_input = arch->weighs_input;
    if (arch->mixer && !rc) {
        x->gating = BACKEND_GATING_MIXER;
        return model_key_real_or(k, "inferd.mixer_limit", 0.02, &x->mixer_limit, e);
    }
    if (rc || gating <= GATING_SIGMOID) return rc;
    if (gating == GATING_SOFTMAX_OF_CHOSEN && x->renormalize) return 0;
    return err_set_param(e, ERR_UNSUPPORTED, k->key,
                         "%s: %s %u is not supported (softmax and sigmoid are)", gguf_path(k->g),
                         k->key, gating);
}

static int read_latent(struct model_keys *k, const struct model_arch *arch, struct model_experts *x,
                       err *e) {
    static const char latent[] = "moe_latent_size";
    return arch->ungated ? model_key_count_or_zero(k, latent, MAX_WIDTH, &x->n_latent, e)
                         : model_keys_refuse(k, &(const char *){latent}, 1, e);
}

/* Layers without experts: those before the first with them, those between every n-th, and others by
 * a list of our own or by their tensors. */
static int read_dense_layers(struct model_keys *k, const struct model_arch *arch,
                             struct model_hparams *hp, err *e) {
    static const char ff[] = "feed_forward_length";
    struct model_experts *x = &hp->experts;
    uint32_t first, step = 1;
    int rc = model_key_count_or_zero(k, dense_key, hp->n_layers, &first, e);
    if (!rc && arch->expert_step) rc = model_key_count(k, step_key, UINT32_MAX, 1, &step, e);
    if (!rc && model_key_has(k, dense_layers_key))
        rc = model_key_flags(k, dense_layers_key, hp->layers, hp->n_layers, MODEL_LAYER_DENSE, e);
    if (rc) return rc;
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        char name[48];
        snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", i);
        if (i < first || (i + 1) % step ||
            (arch->dense_by_tensors && !gguf_tensor_find(k->g, name)))
            hp->layers[i] |= MODEL_LAYER_DENSE;
        x->n_dense += (hp->layers[i] & MODEL_LAYER_DENSE) != 0;
    }
    if (!x->n_dense || hp->n_ff) return 0;
    return err_set_param(e, ERR_FORMAT, model_key(k, ff),
                         "%s: %s is missing or 0, but %u layers have no experts", gguf_path(k->g),
                         k->key, x->n_dense);
}

/* The shared expert's width. */
static int read_shared(struct model_keys *k, const struct model_arch *arch,
                       struct model_hparams *hp, err *e) {
    static const char shared[] = "expert_shared_feed_forward_length",
                      count[] = "expert_shared_count";
    struct model_experts *x = &hp->experts;
    uint32_t n;
    if (!arch->shared_expert) return model_keys_refuse(k, &(const char *){shared}, 1, e);
    if (!arch->shared_count || model_key_has(k, shared))
        return model_key_count(k, shared, MAX_FF, arch->weighs_input ? x->n_ff : hp->n_ff,
                               &x->n_ff_shared, e);
    int rc = model_key_count_or_zero(k, count, MAX_FF / x->n_ff, &n, e);
    if (!rc) x->n_ff_shared = n * x->n_ff;
    return rc;
}

/* Groups of experts of which the best count; n_used and gating are set. */
static int read_groups(struct model_keys *k, struct model_experts *x, err *e) {
    static const char groups[] = "expert_group_count";
    int rc = model_key_count_or_zero(k, groups, x->n_experts, &x->n_groups, e);
    if (rc || x->n_groups < 2) return rc;
    if ((rc = model_key_count(k, "expert_group_used_count", x->n_groups, 0, &x->n_groups_used, e)))
        return rc;
    const uint32_t n = x->n_experts / x->n_groups;
    if (x->n_experts % x->n_groups == 0 && x->n_used <= n * x->n_groups_used &&
        n >= (x->gating == BACKEND_GATING_SIGMOID ? 2 : 1))
        return 0;
    return err_set_param(e, ERR_FORMAT, model_key(k, groups),
                         "%s: %s is %u: %u of %u experts cannot be chosen from %u equal groups",
                         gguf_path(k->g), k->key, x->n_groups, x->n_used, x->n_experts,
                         x->n_groups_used);
}

static int read_experts(struct model_keys *k, const struct model_arch *arch,
                        struct model_hparams *hp, err *e) {
    struct model_experts *x = &hp->experts;
    uint64_t n_ff = hp->n_ff;
    int rc = model_key_count_or_zero(k, "expert_count", MAX_EXPERTS, &x->n_experts, e);
    if (rc) return rc;
    if (x->n_experts && arch->experts == MODEL_EXPERTS_NEVER)
        return err_set_param(e, ERR_UNSUPPORTED, k->key,
                             "%s: %s is set; experts are not supported in %s", gguf_path(k->g),
                             k->key, arch->name);
    if (!x->n_experts && arch->experts == MODEL_EXPERTS_ALWAYS)
        return err_set_param(e, ERR_FORMAT, k->key, "%s: %s is missing or 0", gguf_path(k->g),
                             k->key);
    if (!x->n_experts && arch->mla) return 0; /* all layers are dense, as files say */
    if (!x->n_experts) return model_keys_refuse(k, &(const char *){dense_key}, 1, e);
    rc = read_dense_layers(k, arch, hp, e);
    if (!rc) rc = model_key_count(k, "expert_used_count", x->n_experts, 0, &x->n_used, e);
    if (rc) return rc;
    if (arch->experts == MODEL_EXPERTS_ALWAYS) n_ff /= x->n_used;
    if ((rc = model_key_count(k, "expert_feed_forward_length", MAX_FF, n_ff, &x->n_ff, e)) ||
        (rc = model_key_real(k, "expert_weights_scale", 1, &x->weight_scale, e)) ||
        (rc = model_key_bool_or(k, "expert_weights_norm", arch->renormalize, &x->renormalize, e)) ||
        (rc = model_key_bool_or(k, "inferd.experts_renormalize", x->renormalize, &x->renormalize,
                                e)) ||
        (rc = read_gating(k, arch, x, e)) || (rc = read_latent(k, arch, x, e)))
        return rc;
    if (arch->expert_groups && (rc = read_groups(k, x, e))) return rc;
    if (arch->mla) return model_mla_read_experts(k, hp, e);
    rc = read_shared(k, arch, hp, e);
    if (arch->shared_averaged && x->n_ff_shared) x->out_scale = 0.5f;
    return rc;
}

static void copy_text(char *dst, size_t n, gguf_str src) {
    size_t len = src.len < n - 1 ? (size_t)src.len : n - 1;
    memcpy(dst, src.data, len);
    dst[len] = '\0';
}

static bool name_contains(gguf_str s, const char *part) {
    size_t n = strlen(part);
    for (uint64_t i = 0; i + n <= s.len; i++)
        if (memcmp(s.data + i, part, n) == 0) return true;
    return false;
}

/* Is t of a layer that predicts further tokens? */
static bool is_left_out(const gguf_tensor *t, const struct model_hparams *hp) {
    uint32_t layer = model_tensor_layer(t->name);
    return layer >= hp->n_layers && layer < MODEL_MAX_LAYERS;
}

/* The name of the type that most elements of matrices have. */
static void name_quant(const gguf *g, struct model_hparams *hp) {
    const gguf_tensor *embed = gguf_tensor_find(g, "token_embd.weight");
    uint64_t elems[64] = {0}, most = 0;
    snprintf(hp->quant, sizeof hp->quant, "%s", qtype_name(embed->type));
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->n_dims >= 2 && t != embed && t->type >= 0 && t->type < 64 && !is_left_out(t, hp))
            elems[t->type] += t->n_elems;
    }
    for (int type = 0; type < 64; type++)
        if (elems[type] > most) {
            most = elems[type];
            snprintf(hp->quant, sizeof hp->quant, "%s", qtype_name(type));
        }
}

/* Sizes derived from the tensors: vocabulary, parameters, bytes. */
static int read_tensors(const gguf *g, struct model_hparams *hp, err *e) {
    const gguf_tensor *embed = gguf_tensor_find(g, "token_embd.weight");
    if (!embed)
        return err_set_param(e, ERR_FORMAT, "token_embd.weight", "%s: no tensor token_embd.weight",
                             gguf_path(g));
    if (embed->n_dims != 2 || embed->dims[1] > MAX_VOCAB)
        return err_set_param(e, ERR_FORMAT, "token_embd.weight",
                             "%s: tensor token_embd.weight is no (n_vocab, n_embd) matrix",
                             gguf_path(g));
    hp->n_vocab = (uint32_t)embed->dims[1];
    hp->tied_embeddings = !hp->encoder.on && !gguf_tensor_find(g, "output.weight");
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        const struct model_experts *x = &hp->experts;
        if (name_contains(t->name, "rope_f") || is_left_out(t, hp) ||
            model_gemma4_skips(hp, t->name))
            continue;
        if (name_contains(t->name, "per_layer_token_embd")) { /* read row by row */
            hp->n_params += t->n_elems;
            continue;
        }
        bool chosen = x->n_experts && name_contains(t->name, "_exps.");
        uint64_t bytes = t != embed || hp->tied_embeddings ? t->bytes : 0;
        hp->n_params += t->n_elems;
        hp->weight_bytes += bytes;
        hp->step_params += chosen ? t->n_elems / x->n_experts * x->n_used : t->n_elems;
        hp->step_bytes += chosen ? bytes / x->n_experts * x->n_used : bytes;
    }
    name_quant(g, hp);
    return 0;
}

static int find_arch(const gguf *g, const struct model_arch **arch, err *e) {
    gguf_str text;
    char known[256];
    int rc = gguf_get_str(g, "general.architecture", &text, e);
    if (rc) return rc;
    *arch = model_arch_find(text);
    if (*arch) return 0;
    if (lacking_for_arch(text.data, text.len))
        return err_set_param(e, ERR_UNSUPPORTED, "general.architecture",
                             "%s: architecture \"%.*s\" is not supported: this build lacks %s",
                             gguf_path(g), (int)text.len, text.data,
                             lacking_for_arch(text.data, text.len));
    model_arch_list(known, sizeof known);
    return err_set_param(e, ERR_UNSUPPORTED, "general.architecture",
                         "%s: architecture \"%.*s\" is not supported (this build has: %s)",
                         gguf_path(g), (int)(text.len < 32 ? text.len : 32), text.data, known);
}

/* Llama 4's norms of Q and K: Scout, of 16 experts, has them, Maverick, of 128, has not. */
static int read_unweighted(struct model_keys *k, const struct model_arch *arch,
                           struct model_hparams *hp, err *e) {
    enum { OF_MAVERICK = 128 };
    if (!arch->qk_unweighted) return 0;
    return model_key_bool_or(k, "inferd.qk_norm", hp->experts.n_experts != OF_MAVERICK,
                             &hp->qk_unweighted, e);
}

/* The norms' epsilon, and whether the FFN runs beside attention. */
static int read_norms(struct model_keys *k, const struct model_arch *arch, struct model_hparams *hp,
                      err *e) {
    static const char rms_key[] = "attention.layer_norm_rms_epsilon";
    const bool rms = !arch->layer_norm || (arch->norm_by_key && model_key_has(k, rms_key));
    const char *eps = rms || arch->rms_key ? rms_key : "attention.layer_norm_epsilon";
    hp->centred = !rms;
    int rc = model_key_real(k, eps, 0, &hp->rms_eps, e);
    if (!rc && arch->post_eps > 0)
        rc =
            model_key_real(k, "inferd.post_norm_epsilon", (double)arch->post_eps, &hp->post_eps, e);
    if (!rc && arch->beside == MODEL_BESIDE_BY_KEY)
        rc = model_key_bool_or(k, beside_key, true, &hp->ffn_beside, e);
    if (arch->beside == MODEL_BESIDE_UNNORMED)
        hp->ffn_beside = !gguf_tensor_find(k->g, "blk.0.ffn_norm.weight");
    if (arch->beside == MODEL_BESIDE_ALWAYS) hp->ffn_beside = true;
    return rc;
}

static int read_pooling(struct model_keys *k, const struct model_arch *arch,
                        struct model_hparams *hp, err *e) {
    uint32_t pooling = 0;
    int rc = model_key_count_or_zero(k, "pooling_type", MODEL_POOLING_RANK, &pooling, e);
    hp->pooling = (enum model_pooling)pooling;
    if (rc || hp->pooling != MODEL_POOLING_RANK || arch->scores || arch->encoder) return rc;
    return err_set_param(e, ERR_UNSUPPORTED, k->key,
                         "%s: %s is 4 (rank), which this build does not support in %s",
                         gguf_path(k->g), k->key, arch->name);
}

/* feed_forward_length as an array: 0 of layers that have no FFN. */
static int read_ff_list(struct model_keys *k, struct model_hparams *hp, err *e) {
    const char *key = model_key(k, "feed_forward_length");
    enum gguf_type elem;
    uint64_t n;
    int rc = gguf_get_array(k->g, key, &elem, &n, e);
    if (rc) return rc;
    if (n != hp->n_layers)
        return err_set_param(e, ERR_FORMAT, key, "%s: %s must have a number for each of %u layers",
                             gguf_path(k->g), key, hp->n_layers);
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const int64_t n_ff = gguf_array_i64(k->g, key, i);
        if (n_ff < 0 || n_ff > MAX_FF)
            return err_set_param(e, ERR_FORMAT, key, "%s: %s of layer %u is %lld, not in 0..%d",
                                 gguf_path(k->g), key, i, (long long)n_ff, MAX_FF);
        if (n_ff && hp->n_ff && n_ff != hp->n_ff)
            return err_set_param(e, ERR_UNSUPPORTED, key,
                                 "%s: %s differs between layers, which this build does not support",
                                 gguf_path(k->g), key);
        if (!n_ff) continue;
        hp->n_ff = (uint32_t)n_ff;
        hp->layers[i] |= MODEL_LAYER_NO_MIXER;
    }
    return 0;
}

/* Without experts every layer has the plain block; with them the first ones may. */
static int read_ff(struct model_keys *k, const struct model_arch *arch, struct model_hparams *hp,
                   err *e) {
    if (arch->lone_blocks) return read_ff_list(k, hp, e);
    if (arch->gemma4) return 0; /* model_gemma4_read */
    if (arch->experts == MODEL_EXPERTS_ALWAYS)
        return model_key_count_or_zero(k, "feed_forward_length", MAX_FF, &hp->n_ff, e);
    return model_key_count(k, "feed_forward_length", MAX_FF, 0, &hp->n_ff, e);
}

/* The recommended parameters; values that are not numbers or out of bounds are ignored. */
static void read_sampling(const gguf *g, struct sampling_recommended *r) {
    static const char *const rows[][2] = {
        {"general.sampling.temp", "temperature"},
        {"general.sampling.top_p", "top_p"},
        {"general.sampling.top_k", "top_k"},
        {"general.sampling.min_p", "min_p"},
        {"general.sampling.penalty_repeat", "repetition_penalty"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *key = rows[i][0];
        double v;
        uint64_t n;
        err e = {0};
        if (!gguf_has(g, key)) continue;
        int rc = gguf_get_f64(g, key, &v, &e);
        if (rc && gguf_get_u64(g, key, &n, NULL) == 0) {
            v = (double)n;
            rc = 0;
        }
        if (!rc) rc = sampling_recommend(r, rows[i][1], v, &e);
        if (rc) log_warn("%s: %s is not used: %s", gguf_path(g), key, e.msg);
    }
}

int model_hparams_read(const gguf *g, struct model_hparams *hp, const struct model_arch **arch,
                       err *e) {
    gguf_str name;
    uint64_t n_vocab;
    int rc = find_arch(g, arch, e);
    if (rc) return rc;
    memset(hp, 0, sizeof *hp);
    const struct model_arch *a = *arch;
    struct model_keys k = {.g = g, .arch = model_arch_prefix(g, a)};
    snprintf(hp->arch, sizeof hp->arch, "%s", a->name);
    hp->both_ways = a->both_ways;
    if (gguf_get_str(g, "general.name", &name, NULL) == 0)
        copy_text(hp->name, sizeof hp->name, name);
    read_sampling(g, &hp->sampling);
    if ((rc = model_key_count(&k, "block_count", MODEL_MAX_LAYERS, 0, &hp->n_layers, e)) ||
        (rc = model_key_count(&k, "context_length", MAX_CONTEXT, 0, &hp->context_length, e)) ||
        (rc = model_key_count(&k, "embedding_length", MAX_WIDTH, 0, &hp->n_embd, e)) ||
        (rc = read_ff(&k, a, hp, e)) || (rc = read_heads(&k, a, hp, e)) ||
        (rc = model_hparams_read_recurrent(&k, a, hp, e)) || (rc = read_layers(&k, a, hp, e)) ||
        (a->gemma4 && (rc = model_gemma4_read(&k, hp, e))) ||
        (a->layer_heads && (rc = model_layer_heads_read(&k, a, hp, e))) ||
        (rc = model_hparams_read_rope(&k, a, hp, e)) || (rc = read_norms(&k, a, hp, e)) ||
        (rc = read_pooling(&k, a, hp, e)) || (a->encoder && (rc = model_encoder_read(g, hp, e))) ||
        (!a->encoder && a->learned_positions && (rc = model_positions_read(g, hp, e))) ||
        (rc = model_hparams_read_alibi(&k, a, hp, e)) ||
        (rc = model_hparams_read_xielu(&k, a, hp, e)) ||
        (rc = model_hparams_read_clamps(&k, a, hp, e)) || (rc = read_scales(&k, a, hp, e)) ||
        (rc = read_experts(&k, a, hp, e)) || (rc = read_unweighted(&k, a, hp, e)) ||
        (rc = refuse_keys(&k, a, e)) || (rc = read_tensors(g, hp, e)))
        return rc;
    if (gguf_get_u64(g, model_key(&k, "vocab_size"), &n_vocab, NULL) == 0 && n_vocab != hp->n_vocab)
        return err_set_param(e, ERR_FORMAT, k.key,
                             "%s: %s is %llu but token_embd.weight has %u rows", gguf_path(g),
                             k.key, (unsigned long long)n_vocab, hp->n_vocab);
    return model_weights_check(g, hp, a, e);
}

int model_read_hparams(const char *path, struct model_hparams *hp, err *e) {
    const struct model_arch *arch;
    gguf *g;
    int rc = model_file_open(path, 0, &g, e);
    if (rc) return rc;
    rc = model_hparams_read(g, hp, &arch, e);
    gguf_close(g);
    return rc;
}

void model_backend_limits(const struct model_hparams *hp, struct backend_config *config) {
    const struct model_experts *x = &hp->experts;
    const struct model_mla *mla = &hp->mla;
    const uint32_t head = mla->kv_rank ? mla->v_dim : hp->head_dim;
    uint32_t cols = max_u32(max_u32(hp->n_embd, hp->n_heads * head), mla->q_rank);
    cols = max_u32(cols, hp->n_heads * hp->window_head_dim);
    cols = max_u32(max_u32(cols, hp->gemma4.n_ff_shared_kv), hp->gemma4.n_per_layer);
    if (mla->kv_rank)
        config->heads = (struct backend_head_limits){
            hp->n_heads, max_u32(max_u32(mla->kv_rank, mla->k_dim), mla->v_dim)};
    cols = max_u32(cols, hp->recurrent.n_v_heads * hp->recurrent.v_dim);
    if (!x->n_experts || x->n_dense || hp->gemma4.on) cols = max_u32(cols, hp->n_ff);
    config->max_cols = max_u32(max_u32(cols, x->n_latent), x->n_ff_shared);
    config->moe = (struct backend_moe_limits){
        .n_experts = x->n_experts, .n_used = x->n_used, .n_ff = x->n_ff};
}
