/* hf/mamba2.c - members of config.json of models whose layers have Mamba-2: Granite 4.0, Falcon-H1,
 * Nemotron-H. Defaults are transformers'. Pure. */
#include "core/formats/hf/model_int.h"

#include <math.h>
#include <string.h>

enum { SHOWN_BYTES = 40 };

/* ---- kinds of layers ---- */

enum kind { MAMBA, ATTENTION, FFN, EXPERTS, UNKNOWN };

static bool is_arch(const struct hf_reader *r, const char *arch) {
    return strcmp(r->config->family->arch, arch) == 0;
}

bool hf_is_nemotron(const struct hf_reader *r) {
    return is_arch(r, "nemotron_h") || is_arch(r, HF_NEMOTRON_EXPERTS);
}

static enum kind kind_of(const char *name) {
    static const struct {
        const char *name;
        enum kind kind;
    } rows[] = {{"mamba", MAMBA},
                {"linear_attention", MAMBA},
                {"attention", ATTENTION},
                {"full_attention", ATTENTION},
                {"mlp", FFN},
                {"moe", EXPERTS}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(name, rows[i].name) == 0) return rows[i].kind;
    return UNKNOWN;
}

static enum kind kind_of_letter(char letter) {
    return letter == 'M'   ? MAMBA
           : letter == '*' ? ATTENTION
           : letter == '-' ? FFN
           : letter == 'E' ? EXPERTS
                           : UNKNOWN;
}

/* NULL: there is none. */
static const cJSON *kind_list(const struct hf_reader *r, const char **name) {
    *name = "layer_types";
    if (!hf_value(r->json, *name)) *name = "layers_block_type";
    return hf_value(r->json, *name);
}

bool hf_has_lone_experts(const struct hf_reader *r) {
    const char *name, *pattern = hf_text(r->json, "hybrid_override_pattern");
    const cJSON *list = kind_list(r, &name), *item;
    if (!hf_is_nemotron(r)) return false;
    if (!cJSON_IsArray(list)) return pattern && strchr(pattern, 'E');
    cJSON_ArrayForEach(item, list) {
        if (cJSON_IsString(item) && kind_of(item->valuestring) == EXPERTS) return true;
    }
    return false;
}

uint32_t hf_mamba2_layers(const struct hf_reader *r) {
    const char *name, *pattern = hf_text(r->json, "hybrid_override_pattern");
    const cJSON *list = kind_list(r, &name);
    if (!(r->config->family->traits & HF_MAMBA2)) return r->config->family->n_layers;
    if (cJSON_IsArray(list)) return (uint32_t)cJSON_GetArraySize(list);
    return pattern ? (uint32_t)strlen(pattern) : r->config->family->n_layers;
}

static int refuse_kind(struct hf_reader *r, const char *name, const char *kind) {
    return err_set_param(r->e, ERR_UNSUPPORTED, name, "member '%s': '%.*s' is not supported for %s",
                         name, SHOWN_BYTES, kind, r->config->family->model_type);
}

static int read_kinds(struct hf_reader *r, enum kind *kinds) {
    const char *name, *pattern = hf_text(r->json, "hybrid_override_pattern");
    const cJSON *list = kind_list(r, &name), *item = list ? list->child : NULL;
    const bool lone = hf_is_nemotron(r), experts = is_arch(r, HF_NEMOTRON_EXPERTS);
    const enum kind block = experts ? EXPERTS : FFN, other = experts ? FFN : EXPERTS;
    if (!list && lone && !pattern) return hf_refuse(r, name, "a list of layers is required");
    if (!list && pattern && strlen(pattern) != r->config->n_layers)
        return err_set_param(r->e, ERR_FORMAT, "hybrid_override_pattern",
                             "member 'hybrid_override_pattern' is not a letter for each layer");
    for (uint32_t i = 0; i < r->config->n_layers; i++) {
        kinds[i] = MAMBA;
        if (list) {
            if (!cJSON_IsString(item))
                return err_set_param(r->e, ERR_FORMAT, name,
                                     "member '%s' is not a list of one string per layer", name);
            kinds[i] = kind_of(item->valuestring);
            if (kinds[i] > (lone ? block : ATTENTION) || (lone && kinds[i] == other))
                return refuse_kind(r, name, item->valuestring);
            item = item->next;
        } else if (lone) {
            kinds[i] = kind_of_letter(pattern[i]);
            if (kinds[i] > block || kinds[i] == other)
                return refuse_kind(r, "hybrid_override_pattern", (char[]){pattern[i], 0});
        }
    }
    return 0;
}

/* Keys of the experts, as GGUF has them. *ff: their FFN dimension. */
static int put_lone_experts(struct hf_reader *r, uint64_t *ff) {
    enum { SIGMOID = 2, USUAL_FF = 7688 };
    uint64_t n, used, shared, latent = 0, one;
    double scale;
    int rc;
    if ((rc = hf_read_count(r, "n_routed_experts", 8, 1, HF_MAX_EXPERTS, &n)) ||
        (rc = hf_read_count(r, "num_experts_per_tok", 2, 1, n, &used)) ||
        (rc = hf_read_count(r, "moe_intermediate_size", USUAL_FF, 1, INT32_MAX, ff)) ||
        (rc = hf_read_count(r, "moe_shared_expert_intermediate_size", USUAL_FF, 1, INT32_MAX,
                            &shared)) ||
        (rc = hf_read_count(r, "moe_latent_size", 0, 0, INT32_MAX, &latent)) ||
        (rc = hf_read_count(r, "n_shared_experts", 1, 1, 1, &one)) ||
        (rc = hf_read_count(r, "n_group", 1, 1, 1, &one)) ||
        (rc = hf_read_positive(r, "routed_scaling_factor", 1, &scale)))
        return rc;
    hf_put_expert_counts(r, n, used);
    hf_put_u32(r, "expert_feed_forward_length", *ff);
    hf_put_u32(r, "expert_shared_feed_forward_length", shared);
    hf_put_bool(r, "expert_weights_norm", hf_flag(r->json, "norm_topk_prob", true));
    hf_put_f32(r, "expert_weights_scale", scale);
    hf_put_u32(r, "expert_gating_func", SIGMOID);
    if (latent) hf_put_u32(r, "moe_latent_size", latent);
    return 0;
}

static int put_kinds(struct hf_reader *r) {
    const struct hf_config *c = r->config;
    enum kind kinds[HF_MAX_LAYERS];
    int32_t n_kv[HF_MAX_LAYERS], n_ff[HF_MAX_LAYERS];
    uint64_t ff = 0;
    int rc = read_kinds(r, kinds);
    if (!rc && is_arch(r, HF_NEMOTRON_EXPERTS)) rc = put_lone_experts(r, &ff);
    if (rc) return rc;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        n_kv[i] = kinds[i] == ATTENTION ? (int32_t)c->n_kv_heads : 0;
        n_ff[i] = kinds[i] == FFN ? (int32_t)c->n_ff : kinds[i] == EXPERTS ? (int32_t)ff : 0;
    }
    hf_put_i32s(r, "attention.head_count_kv", n_kv, c->n_layers);
    if (hf_is_nemotron(r)) hf_put_i32s(r, "feed_forward_length", n_ff, c->n_layers);
    return 0;
}

/* ---- what is not supported ---- */

/* Limits of the time step dt: 0 and infinity, which JSON has no number for. */
static int check_limits(struct hf_reader *r) {
    const cJSON *list = hf_value(r->json, "time_step_limit");
    const cJSON *low = list ? list->child : NULL, *high = low ? low->next : NULL;
    if (!(cJSON_IsNumber(low) && low->valuedouble != 0) && !cJSON_IsNumber(high)) return 0;
    return hf_refuse(r, "time_step_limit", "only (0, Infinity) is supported");
}

static int check_members(struct hf_reader *r) {
    const char *act = hf_text(r->json, "mlp_hidden_act");
    int rc = check_limits(r);
    if (rc) return rc;
    if (hf_flag(r->json, "mamba_proj_bias", false))
        return hf_refuse(r, "mamba_proj_bias", "projections with a bias are not supported");
    if (hf_flag(r->json, "mamba_rms_norm", false) &&
        hf_flag(r->json, "mamba_norm_before_gate", true))
        return hf_refuse(r, "mamba_norm_before_gate", "only a norm after the gate is supported");
    if (hf_is_nemotron(r) && act && strcmp(act, "relu2") != 0)
        return hf_refuse(r, "mlp_hidden_act", "only 'relu2' is supported");
    return 0;
}

/* ---- experts of Granite 4.0 ---- */

enum { USUAL_EXPERTS = 8, USUAL_USED = 2, USUAL_SHARED_FF = 1024 };

bool hf_only_shared_expert(const struct hf_reader *r) {
    const cJSON *n = hf_value(r->json, "num_local_experts");
    return is_arch(r, "granitehybrid") && cJSON_IsNumber(n) && n->valuedouble == 0;
}

static int put_experts(struct hf_reader *r) {
    uint64_t n, used, ff;
    int rc;
    if (hf_only_shared_expert(r)) return 0;
    if ((rc = hf_read_count(r, "num_local_experts", USUAL_EXPERTS, 1, HF_MAX_EXPERTS, &n)) ||
        (rc = hf_read_count(r, "num_experts_per_tok", USUAL_USED, 1, n, &used)) ||
        (rc = hf_read_count(r, "shared_intermediate_size", USUAL_SHARED_FF, 1, INT32_MAX, &ff)))
        return rc;
    hf_put_expert_counts(r, n, used);
    hf_put_u32(r, "expert_shared_feed_forward_length", ff);
    return 0;
}

/* ---- sizes ---- */

enum size { TAPS, STATE, GROUPS, HEADS, N_SIZES };

static int read_inner(struct hf_reader *r, uint64_t heads, uint64_t *inner) {
    const cJSON *d_head = hf_value(r->json, "mamba_d_head");
    uint64_t expand, each;
    int rc;
    if (hf_is_nemotron(r)) {
        rc = hf_read_count(r, "mamba_head_dim", 64, 1, 1 << 12, &each);
        *inner = rc ? 0 : each * heads;
        return rc;
    }
    if ((rc = hf_read_count(r, "mamba_expand", 2, 1, 1 << 10, &expand))) return rc;
    *inner = expand * r->config->hidden;
    if (is_arch(r, "falcon-h1") && !hf_is_null(r, "mamba_d_ssm"))
        rc = hf_read_count(r, "mamba_d_ssm", 1024, 1, 1 << 24, inner);
    if (rc || !cJSON_IsNumber(d_head)) return rc; /* "auto" */
    if (d_head->valuedouble * (double)heads == (double)*inner) return 0;
    return err_set_param(r->e, ERR_FORMAT, "mamba_d_head",
                         "member 'mamba_d_head': %g heads of %g dimensions are not %g",
                         (double)heads, d_head->valuedouble, (double)*inner);
}

static int put_ssm(struct hf_reader *r) {
    static const char *const names[2][N_SIZES] = {
        {"mamba_d_conv", "mamba_d_state", "mamba_n_groups", "mamba_n_heads"},
        {"conv_kernel", "ssm_state_size", "n_groups", "mamba_num_heads"}};
    static const uint64_t usual[2][N_SIZES] = {{4, 256, 1, 128}, {4, 128, 8, 128}};
    const int nemotron = hf_is_nemotron(r);
    struct hf_config *c = r->config;
    uint64_t v[N_SIZES], inner;
    int rc = 0;
    for (int i = 0; !rc && i < N_SIZES; i++)
        rc = hf_read_count(r, names[nemotron][i], usual[nemotron][i], 1, 1 << 12, &v[i]);
    if (!rc) rc = read_inner(r, v[HEADS], &inner);
    if (rc) return rc;
    /* Granite's norm is over all heads, whatever shares B and C. */
    c->n_norm_groups = is_arch(r, "granitehybrid") ? 1 : (uint32_t)v[GROUPS];
    if (c->n_norm_groups != v[GROUPS]) hf_put_u32(r, "inferd.ssm_norm_groups", c->n_norm_groups);
    const uint64_t rows[HF_SSM_PARTS] = {inner, inner, v[GROUPS] * v[STATE], v[GROUPS] * v[STATE],
                                         v[HEADS]};
    memcpy(c->ssm_rows, rows, sizeof rows);
    hf_put_u32(r, "ssm.conv_kernel", v[TAPS]);
    hf_put_u32(r, "ssm.state_size", v[STATE]);
    hf_put_u32(r, "ssm.group_count", v[GROUPS]);
    hf_put_u32(r, "ssm.time_step_rank", v[HEADS]);
    hf_put_u32(r, "ssm.inner_size", inner);
    return 0;
}

/* ---- Falcon-H1's multipliers ---- */

static int read_scale(struct hf_reader *r, const char *name, float *out) {
    double v;
    int rc = hf_read_positive(r, name, 1, &v);
    *out = (float)v;
    return rc;
}

/* A list of n numbers, each 1 without it. */
static int read_scales(struct hf_reader *r, const char *name, float *out, int n) {
    const cJSON *list = hf_value(r->json, name), *item = list ? list->child : NULL;
    for (int i = 0; i < n; i++, item = item ? item->next : NULL) {
        out[i] = 1;
        if (!list) continue;
        if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble))
            return err_set_param(r->e, ERR_FORMAT, name, "member '%s' is not a list of %d numbers",
                                 name, n);
        out[i] = (float)item->valuedouble;
    }
    return 0;
}

struct falcon_scales {
    float attention_in, attention_out, key, ssm_in, ssm_out, embed, head;
    float mlp[2], ssm[HF_SSM_PARTS];
};

/* As llama.cpp's converter has them: in the matrices. */
static void scale_matrices(struct hf_config *c, const struct falcon_scales *f) {
    const float scales[HF_N_SCALES] = {[HF_SCALE_ATTENTION_IN] = f->attention_in,
                                       [HF_SCALE_K] = f->key * f->attention_in,
                                       [HF_SCALE_ATTENTION_OUT] = f->attention_out,
                                       [HF_SCALE_FFN_GATE] = f->mlp[0],
                                       [HF_SCALE_FFN_DOWN] = f->mlp[1],
                                       [HF_SCALE_SSM_IN] = f->ssm_in,
                                       [HF_SCALE_SSM_OUT] = f->ssm_out};
    memcpy(c->scales, scales, sizeof scales);
    memcpy(c->ssm_scales, f->ssm, sizeof f->ssm);
}

/* The same function without another number in a matrix, so that these are read in place and not
 * rounded again: norms have the factors of Z and of the FFN's gate, the convolution's taps those of
 * x, B and C, and keys of our own the rest. */
static int scale_vectors(struct hf_reader *r, const struct falcon_scales *f) {
    struct hf_config *c = r->config;
    const double z = (double)f->ssm_in * (double)f->ssm[0], in = (double)f->attention_in / z;
    for (int i = 0; i < HF_SSM_PARTS; i++) {
        if (!(f->ssm[i] > 0))
            return hf_refuse(r, "ssm_multipliers", "only positive numbers are supported");
        c->ssm_scales[i] = f->ssm[i] / f->ssm[0];
    }
    if (!(f->mlp[0] > 0))
        return hf_refuse(r, "mlp_multipliers", "only positive numbers are supported");
    c->scales[HF_SCALE_CONVOLUTION] = 1;
    c->scales[HF_SCALE_ATTENTION_NORM] = (float)z;
    c->scales[HF_SCALE_FFN_NORM] = f->mlp[0];
    hf_put_f32(r, "attention.scale", (double)f->key * in * in / sqrt(c->head_dim));
    hf_put_f32(r, "inferd.attention_out_scale", (double)f->attention_out * in);
    hf_put_f32(r, "inferd.dt_scale", (double)c->ssm_scales[4]);
    hf_put_f32(r, "inferd.ssm_out_scale", (double)f->ssm_out);
    hf_put_f32(r, "inferd.ffn_out_scale", (double)f->mlp[1] / (double)f->mlp[0]);
    return 0;
}

static int put_falcon_scales(struct hf_reader *r) {
    struct hf_config *c = r->config;
    struct falcon_scales f;
    int rc;
    if ((rc = read_scale(r, "attention_in_multiplier", &f.attention_in)) ||
        (rc = read_scale(r, "key_multiplier", &f.key)) ||
        (rc = read_scale(r, "attention_out_multiplier", &f.attention_out)) ||
        (rc = read_scale(r, "ssm_in_multiplier", &f.ssm_in)) ||
        (rc = read_scale(r, "ssm_out_multiplier", &f.ssm_out)) ||
        (rc = read_scale(r, "embedding_multiplier", &f.embed)) ||
        (rc = read_scale(r, "lm_head_multiplier", &f.head)) ||
        (rc = read_scales(r, "mlp_multipliers", f.mlp, 2)) ||
        (rc = read_scales(r, "ssm_multipliers", f.ssm, HF_SSM_PARTS)))
        return rc;
    if (c->as_file) scale_matrices(c, &f);
    if (!c->as_file && (rc = scale_vectors(r, &f))) return rc;
    if (c->as_file && !c->tied) {
        c->scales[HF_SCALE_EMBED] = f.embed;
        c->scales[HF_SCALE_HEAD] = f.head;
        return 0;
    }
    /* A tied table cannot have both. */
    hf_put_f32(r, "embedding_scale", (double)f.embed);
    hf_put_f32(r, "logit_scale", 1 / (double)f.head);
    return 0;
}

int hf_read_mamba2(struct hf_reader *r) {
    const char *positions = hf_text(r->json, "position_embedding_type");
    int rc = check_members(r);
    if (!rc) rc = put_ssm(r);
    if (!rc && is_arch(r, "falcon-h1")) {
        hf_put_u32(r, "attention.head_count_kv", r->config->n_kv_heads);
        return put_falcon_scales(r);
    }
    if (!rc) rc = put_kinds(r);
    if (rc || !is_arch(r, "granitehybrid")) return rc;
    if (!(rc = put_experts(r)))
        hf_put_bool(r, "rope.scaling.finetuned", positions && strcmp(positions, "rope") == 0);
    return rc;
}
