/* hf/rope.c - the rotary embedding's parameters, in the forms that transformers writes: version 4
 * has rope_scaling (null, or with "rope_type", in old files "type"), rope_theta and
 * rope_local_base_freq; version 5 has rope_parameters, for some families one per type of layer.
 * Formulas: transformers' modeling_rope_utils. Pure. */
#include "core/formats/hf/model_int.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct rope {
    const cJSON *params; /* of layers with full attention; NULL: none */
    const char *type;
    double factor;
};

/* Reads a number of the parameters, or of config.json itself if it is missing there. */
static int read_either(struct hf_reader *r, const struct rope *rope, const char *name,
                       double fallback, double *out) {
    const cJSON *object = hf_value(rope->params, name) ? rope->params : r->json;
    return hf_read_real(r, object, name, fallback, out);
}

static int err_value(struct hf_reader *r, const char *name) {
    return err_set_param(r->e, ERR_FORMAT, name, "rope: the value of '%s' is out of range", name);
}

static void put_linear(struct hf_reader *r, const struct rope *rope) {
    hf_put_str(r, "rope.scaling.type", rope->type);
    hf_put_f32(r, "rope.scaling.factor", rope->factor);
}

static double yarn_mscale(double factor, double m) {
    return factor > 1 ? 0.1 * m * log(factor) + 1 : 1;
}

/* Copies a number if it is present. */
static int copy_real(struct hf_reader *r, const struct rope *rope, const char *name,
                     const char *suffix) {
    double v;
    if (!hf_value(rope->params, name)) return 0;
    int rc = hf_read_real(r, rope->params, name, 0, &v);
    if (!rc) hf_put_f32(r, suffix, v);
    return rc;
}

static int put_yarn(struct hf_reader *r, const struct rope *rope) {
    double original, m = 0, m_all = 0;
    int rc = read_either(r, rope, "original_max_position_embeddings",
                         (double)r->config->max_positions, &original);
    if (rc) return rc;
    if (!(original >= 1 && original <= INT32_MAX))
        return err_value(r, "original_max_position_embeddings");
    put_linear(r, rope);
    hf_put_u32(r, "rope.scaling.original_context_length", (uint64_t)original);
    if ((rc = copy_real(r, rope, "extrapolation_factor", "rope.scaling.yarn_ext_factor")) ||
        (rc = hf_read_real(r, rope->params, "mscale", 0, &m)) ||
        (rc = hf_read_real(r, rope->params, "mscale_all_dim", 0, &m_all)))
        return rc;
    bool given = hf_value(rope->params, "attention_factor");
    if (m_all != 0 && r->config->family->traits & HF_MLA) {
        hf_put_f32(r, "rope.scaling.yarn_log_multiplier", 0.1 * m_all);
        if (m == 0) m = 1; /* without it cos and sin grow as usual */
        given = given || !hf_value(rope->params, "mscale");
        if (given && !hf_value(rope->params, "attention_factor"))
            hf_put_f32(r, "rope.scaling.yarn_attn_factor", yarn_mscale(rope->factor, 1));
    }
    const bool mistral = strcmp(r->config->family->arch, "mistral3") == 0;
    if (!given && m == 1 && m_all != 0 && mistral)
        hf_put_f32(r, "rope.scaling.yarn_log_multiplier", m_all);
    else if (!given && m != 0 && m_all != 0)
        hf_put_f32(r, "rope.scaling.yarn_attn_factor",
                   yarn_mscale(rope->factor, m) / yarn_mscale(rope->factor, m_all));
    else if ((rc = copy_real(r, rope, given ? "attention_factor" : "attn_factor",
                             "rope.scaling.yarn_attn_factor")))
        return rc;
    const bool tuned = mistral || strcmp(r->config->family->arch, "mistral4") == 0;
    if (tuned && (rc = copy_real(r, rope, "llama_4_scaling_beta", "attention.temperature_scale")))
        return rc;
    if ((rc = copy_real(r, rope, "beta_fast", "rope.scaling.yarn_beta_fast")) ||
        (rc = copy_real(r, rope, "beta_slow", "rope.scaling.yarn_beta_slow")))
        return rc;
    /* Without this member the bounds of gpt-oss are exact. */
    bool truncate = hf_flag(rope->params, "truncate", true);
    if (truncate != (strcmp(r->config->family->arch, "gpt-oss") != 0))
        hf_put_bool(r, "inferd.yarn_truncate", truncate);
    return 0;
}

/* Divisors of the frequencies: slow ones by the factor, fast ones by 1, smoothly between. */
static int make_llama3(struct hf_reader *r, const struct rope *rope, double theta) {
    struct hf_config *c = r->config;
    double low, high, original;
    int rc;
    if ((rc = hf_read_real(r, rope->params, "low_freq_factor", 1, &low)) ||
        (rc = hf_read_real(r, rope->params, "high_freq_factor", 4, &high)) ||
        (rc = read_either(r, rope, "original_max_position_embeddings", 8192, &original)))
        return rc;
    if (!(low > 0 && high >= low)) return err_value(r, "high_freq_factor");
    if (!(original >= 1)) return err_value(r, "original_max_position_embeddings");
    for (uint32_t i = 0; i < c->n_rot / 2; i++) {
        double wavelength = 2 * M_PI * pow(theta, 2.0 * i / c->n_rot);
        double smooth = high > low ? (original / wavelength - low) / (high - low) : 0;
        double divisor = 1 / ((1 - smooth) / rope->factor + smooth);
        if (wavelength < original / high) divisor = 1;
        if (wavelength > original / low) divisor = rope->factor;
        c->factors[HF_ROPE_FREQS][i] = (float)divisor;
    }
    c->has_factors[HF_ROPE_FREQS] = true;
    return 0;
}

static int read_factors(struct hf_reader *r, const struct rope *rope, const char *name,
                        enum hf_factors which) {
    struct hf_config *c = r->config;
    const cJSON *list = hf_value(rope->params, name),
                *item = cJSON_IsArray(list) ? list->child : NULL;
    for (uint32_t i = 0; i < c->n_rot / 2; i++, item = item->next) {
        if (!cJSON_IsNumber(item) || !(item->valuedouble > 0) || !isfinite(item->valuedouble))
            return err_set_param(r->e, ERR_FORMAT, name,
                                 "rope: '%s' is not a list of %" PRIu32 " positive numbers", name,
                                 c->n_rot / 2);
        c->factors[which][i] = (float)item->valuedouble;
    }
    if (item) return err_value(r, name);
    c->has_factors[which] = true;
    return 0;
}

static int put_longrope(struct hf_reader *r, const struct rope *rope) {
    const bool phimoe = strcmp(r->config->family->arch, "phimoe") == 0;
    double original, attention, factor, near;
    int rc;
    for (int i = 0; !phimoe && i < 2; i++) {
        const char *name = i ? "long_mscale" : "short_mscale";
        if (hf_value(rope->params, name)) return hf_refuse(r, name, "it is not supported");
    }
    if ((rc = read_either(r, rope, "original_max_position_embeddings", 0, &original))) return rc;
    bool known = original >= 1 && original <= INT32_MAX;
    if (!known && original != 0) return err_value(r, "original_max_position_embeddings");
    if (!known) original = (double)r->config->max_positions;
    factor = known ? (double)r->config->max_positions / original : rope->factor;
    double usual = factor > 1 && original > 1 ? sqrt(1 + log(factor) / log(original)) : 1;
    if ((rc = hf_read_real(r, rope->params, phimoe ? "long_mscale" : "attention_factor", usual,
                           &attention)) ||
        (rc = hf_read_real(r, rope->params, "short_mscale", attention, &near)) ||
        (rc = read_factors(r, rope, "long_factor", HF_ROPE_LONG)) ||
        (rc = read_factors(r, rope, "short_factor", HF_ROPE_SHORT)))
        return rc;
    hf_put_str(r, "rope.scaling.type", "longrope");
    hf_put_u32(r, "rope.scaling.original_context_length", (uint64_t)original);
    hf_put_f32(r, "rope.scaling.attn_factor", attention);
    if (near != attention) hf_put_f32(r, "inferd.rope_short_factor", near);
    return 0;
}

/* Hunyuan's dynamic scaling is another base (NTK-aware scaling with a fixed alpha). */
static int put_alpha(struct hf_reader *r, const struct rope *rope, double *theta) {
    double alpha, n = r->config->head_dim;
    int rc = hf_read_real(r, rope->params, "alpha", 0, &alpha);
    if (rc) return rc;
    if (!(alpha > 0) || n <= 2) return err_value(r, "alpha");
    *theta *= pow(alpha, n / (n - 2));
    hf_put_str(r, "rope.scaling.type", "none");
    return 0;
}

/* *theta: the base, which the scaling may change. */
static int put_scaling(struct hf_reader *r, const struct rope *rope, double *theta) {
    const char *type = rope->type;
    const bool hunyuan = strncmp(r->config->family->arch, "hunyuan", strlen("hunyuan")) == 0;
    if (strcmp(type, "default") == 0) return 0;
    if (hunyuan && strcmp(type, "dynamic") == 0 && hf_value(rope->params, "alpha"))
        return put_alpha(r, rope, theta);
    if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0) return put_longrope(r, rope);
    if (!hf_value(rope->params, "factor") || !(rope->factor > 0)) return err_value(r, "factor");
    if (strcmp(type, "yarn") == 0) return put_yarn(r, rope);
    if (strcmp(type, "llama3") == 0) return make_llama3(r, rope, *theta);
    if (strcmp(type, "linear") != 0 && strcmp(type, "dynamic") != 0)
        return err_set_param(r->e, ERR_UNSUPPORTED, "rope_type",
                             "rope scaling of type '%.40s' is not supported", type);
    put_linear(r, rope);
    if (strcmp(type, "dynamic") == 0)
        hf_put_u32(r, "rope.scaling.original_context_length", r->config->max_positions);
    return 0;
}

/* Layers with a window have their own base and no scaling. */
static int read_local(struct hf_reader *r, const cJSON *params, double *theta) {
    const cJSON *local = hf_value(params, "sliding_attention");
    const char *type = hf_text(local, "rope_type");
    *theta = 0;
    const char *arch = r->config->family->arch;
    const bool gemma = strcmp(arch, "gemma3") == 0 || strcmp(arch, HF_GEMMA_EMBEDDING) == 0;
    const bool by_kind = r->config->family->ropes_by_kind || strcmp(arch, "olmo2") == 0;
    if (!gemma && (!by_kind || !local)) return 0;
    if (type && strcmp(type, "default") != 0)
        return hf_refuse(r, "rope_parameters",
                         "rope scaling of layers with a window is not supported");
    int rc = local ? hf_read_real(r, local, "rope_theta", 10000, theta)
                   : hf_read_real(r, r->json, "rope_local_base_freq", 10000, theta);
    if (!rc && !(*theta > 0)) rc = err_value(r, "rope_theta");
    return rc;
}

static int read_partial(struct hf_reader *r, const struct rope *rope) {
    struct hf_config *c = r->config;
    double part, usual = 1, n_rot;
    bool delta_net = c->family->traits & HF_DELTA_NET, by_key = c->family->traits & HF_PARTIAL;
    bool partly = delta_net || by_key || c->family->rotated > 0 || c->family->ropes_by_kind ||
                  strcmp(c->family->arch, "phi3") == 0;
    if (delta_net) usual = 0.25;
    if (strcmp(c->family->arch, "glm4moe") == 0 || strcmp(c->family->arch, "bailingmoe2") == 0)
        usual = 0.5;
    if (c->family->rotated > 0) usual = c->family->rotated;
    int rc = by_key ? hf_read_real(r, r->json, "rotary_dim", usual * c->head_dim, &n_rot) : 0;
    if (rc) return rc;
    if (by_key) usual = n_rot / c->head_dim;                    /* MiniMax's own folders */
    rc = hf_read_real(r, r->json, "rotary_pct", usual, &usual); /* GPT-NeoX's name */
    if (!rc) rc = read_either(r, rope, "partial_rotary_factor", usual, &part);
    if (!rc && c->family->traits & HF_MLA) rc = hf_mla_part(r, &part);
    if (rc) return rc;
    if (!(part > 0 && part <= 1)) return err_value(r, "partial_rotary_factor");
    if (part != 1 && !partly)
        return hf_refuse(r, "partial_rotary_factor", "only 1 is supported for this family");
    c->n_rot = (uint32_t)(part * c->head_dim);
    if (c->n_rot < 2 || c->n_rot % 2 || c->n_rot > HF_MAX_ROT)
        return err_set_param(r->e, ERR_UNSUPPORTED, "head_dim",
                             "%" PRIu32 " rotated dimensions of a head are not supported",
                             c->n_rot);
    /* Readers of Step 3.5 halve the key for layers with full attention. */
    const bool halved = strcmp(c->family->arch, "step35") == 0;
    if (partly || (c->family->traits & HF_LLAMA_KEYS))
        hf_put_u32(r, "rope.dimension_count", halved ? c->head_dim : c->n_rot);
    return 0;
}

/* Sizes of the sections whose pairs turn by a position's coordinates of time, height and width. */
static int put_sections(struct hf_reader *r, const struct rope *rope) {
    int32_t sizes[4] = {11, 11, 10, 0}; /* transformers' default */
    const cJSON *list = hf_value(rope->params, "mrope_section"), *item = list ? list->child : NULL;
    for (int i = 0; list && i < 3; i++, item = item->next) {
        bool fits = cJSON_IsArray(list) && cJSON_IsNumber(item) && item->valuedouble >= 0 &&
                    item->valuedouble <= HF_MAX_ROT &&
                    item->valuedouble == floor(item->valuedouble);
        if (!fits || (i == 2 && item->next))
            return err_set_param(r->e, ERR_FORMAT, "mrope_section",
                                 "member 'mrope_section' is not a list of 3 sizes");
        sizes[i] = (int32_t)item->valuedouble;
    }
    hf_put_i32s(r, "rope.dimension_sections", sizes, 4);
    return 0;
}

/* transformers' defaults for gpt-oss. */
static void put_gpt_oss_scaling(struct hf_reader *r) {
    hf_put_str(r, "rope.scaling.type", "yarn");
    hf_put_f32(r, "rope.scaling.factor", 32);
    hf_put_u32(r, "rope.scaling.original_context_length", 4096);
    hf_put_f32(r, "rope.scaling.yarn_beta_fast", 32);
    hf_put_f32(r, "rope.scaling.yarn_beta_slow", 1);
}

int hf_read_rope(struct hf_reader *r) {
    const cJSON *params = hf_value(r->json, "rope_parameters");
    if (!params) params = hf_value(r->json, "rope_scaling");
    if (params && !cJSON_IsObject(params))
        return err_set_param(r->e, ERR_FORMAT, "rope_scaling",
                             "the rope parameters are not an object");
    const cJSON *full = hf_value(params, "full_attention");
    struct rope rope = {.params = full ? full : params};
    double theta = r->config->family->rope_theta, local;
    int rc;
    rope.type = hf_text(rope.params, "rope_type");
    if (!rope.type) rope.type = hf_text(rope.params, "type");
    if (!rope.type) rope.type = "default";
    bool phi3 = strcmp(r->config->family->arch, "phi3") == 0;
    if (phi3 && strcmp(rope.type, "yarn") == 0) rope.type = "longrope"; /* its name in old files */
    bool mrope = r->config->family->traits & HF_MROPE;
    if (mrope && strcmp(rope.type, "mrope") == 0) rope.type = "default"; /* likewise */
    if ((rc = hf_read_real(r, rope.params, "factor", 1, &rope.factor)) ||
        (rc = hf_read_real(r, r->json, "rotary_emb_base", theta, &theta)) || /* GPT-NeoX's name */
        (rc = read_either(r, &rope, "rope_theta", theta, &theta)) ||
        (rc = read_local(r, params, &local)) || (rc = read_partial(r, &rope)))
        return rc;
    if (!(theta > 0)) return err_value(r, "rope_theta");
    if (!params && (r->config->family->traits & HF_GPT_OSS))
        put_gpt_oss_scaling(r);
    else if ((rc = put_scaling(r, &rope, &theta)))
        return rc;
    hf_put_f32(r, "rope.freq_base", theta);
    const bool usual = strcmp(r->config->family->arch, "olmo2") == 0 && local == theta;
    if (local > 0 && !usual) hf_put_f32(r, "rope.freq_base_swa", local);
    return mrope ? put_sections(r, &rope) : 0;
}
