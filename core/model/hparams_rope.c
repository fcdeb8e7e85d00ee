/* hparams_rope.c - RoPE parameters from a file's keys: one set for layers with full attention, one
 * for windowed layers. Owns nothing. */
#include "core/model/model_int.h"

#include <string.h>

/* What "rope.scaling.type" says. Without the key a factor is linear, and lists of factors are
 * longrope: converters leave it out. */
static int read_scaling(struct model_keys *k, struct model_rope *r, err *e) {
    static const struct {
        const char *name;
        enum model_rope_scaling scaling;
    } types[] = {
        {"none", MODEL_ROPE_NONE}, {"linear", MODEL_ROPE_LINEAR}, {"dynamic", MODEL_ROPE_DYNAMIC},
        {"yarn", MODEL_ROPE_YARN}, {"longrope", MODEL_ROPE_LONG},
    };
    gguf_str type;
    if (!model_key_has(k, "rope.scaling.type")) {
        r->scaling = MODEL_ROPE_LINEAR;
        if (gguf_tensor_find(k->g, "rope_factors_long.weight")) r->scaling = MODEL_ROPE_LONG;
        return 0;
    }
    int rc = gguf_get_str(k->g, k->key, &type, e);
    if (rc) return rc;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (type.len == strlen(types[i].name) && !memcmp(type.data, types[i].name, type.len)) {
            r->scaling = types[i].scaling;
            return 0;
        }
    return err_set_param(e, ERR_UNSUPPORTED, k->key,
                         "%s: rope scaling \"%.*s\" is not supported (none, linear, dynamic, yarn "
                         "and longrope are)",
                         gguf_path(k->g), (int)(type.len < 32 ? type.len : 32), type.data);
}

/* Of YaRN and longrope a missing factor follows from the contexts; a linear one may be in an older
 * key. */
static int read_factor(struct model_keys *k, struct model_rope *r, uint32_t context, err *e) {
    bool by_context = r->scaling == MODEL_ROPE_YARN || r->scaling == MODEL_ROPE_LONG;
    int rc = model_key_count(k, "rope.scaling.original_context_length", UINT32_MAX, context,
                             &r->original_context, e);
    r->factor = 1;
    if (rc || r->scaling == MODEL_ROPE_NONE) return rc;
    if (model_key_has(k, "rope.scaling.factor"))
        return model_key_real(k, "rope.scaling.factor", 0, &r->factor, e);
    if (by_context) {
        r->factor = (float)((double)context / r->original_context);
        return 0;
    }
    if (r->scaling == MODEL_ROPE_DYNAMIC || model_key_has(k, "rope.scaling.type"))
        return model_key_real(k, "rope.scaling.factor", 0, &r->factor, e); /* missing: an error */
    return model_key_real(k, "rope.scale_linear", 1, &r->factor, e);
}

static int read_yarn(struct model_keys *k, const struct model_arch *arch, struct model_rope *r,
                     err *e) {
    const char *attn = model_key_has(k, "rope.scaling.yarn_attn_factor")
                           ? "rope.scaling.yarn_attn_factor"
                           : "rope.scaling.attn_factor";
    static const char log_multiplier[] = "rope.scaling.yarn_log_multiplier";
    float multiplier = 0;
    int rc = arch->mla                ? 0 /* mla.c reads it */
             : model_key_has(k, attn) ? model_keys_refuse(k, &(const char *){log_multiplier}, 1, e)
                                      : model_key_real_or(k, log_multiplier, 0, &multiplier, e);
    if (rc || (rc = model_key_real_or(k, attn, 0, &r->attn_factor, e)) ||
        (rc = model_key_real(k, "rope.scaling.yarn_beta_fast", 32, &r->beta_fast, e)) ||
        (rc = model_key_real(k, "rope.scaling.yarn_beta_slow", 1, &r->beta_slow, e)) ||
        (rc = model_key_real_or(k, "rope.scaling.yarn_ext_factor", 1, &r->ext_factor, e)) ||
        (rc = model_key_bool_or(k, "inferd.yarn_truncate", !arch->yarn_exact, &r->truncate, e)))
        return rc;
    if (r->scaling == MODEL_ROPE_LONG &&
        (rc = model_key_real_or(k, "inferd.rope_short_factor", 0, &r->short_factor, e)))
        return rc;
    if (multiplier > 0 && r->scaling == MODEL_ROPE_YARN)
        r->attn_factor = (float)model_rope_yarn_factor((double)r->factor, (double)multiplier);
    if (r->scaling == MODEL_ROPE_YARN && r->base <= 1)
        return err_set_param(e, ERR_FORMAT, "rope.freq_base", "%s: yarn needs a base above 1",
                             gguf_path(k->g));
    if (r->scaling == MODEL_ROPE_LONG && r->original_context < 2)
        return err_set_param(e, ERR_FORMAT, "rope.scaling.original_context_length",
                             "%s: longrope needs an original context of 2 tokens or more",
                             gguf_path(k->g));
    return 0;
}

/* Interleaved multimodal RoPE (IMRoPE; transformers, Qwen3_5TextRotaryEmbedding): pair i, of number
 * s in a period of all sections, turns by the position's coordinate s % 3 if s < 3 * the size of
 * that section, else by a fourth. The three coordinates of text are its position, so this is plain
 * RoPE if no pair is left to the fourth. */
static int check_sections(struct model_keys *k, uint32_t n_rot, err *e) {
    enum { N_MOST = 4 };
    int64_t sizes[N_MOST] = {0}, period = 0;
    enum gguf_type type;
    uint64_t n;
    if (!model_key_has(k, "rope.dimension_sections")) return 0;
    int rc = gguf_get_array(k->g, k->key, &type, &n, e);
    if (rc) return rc;
    bool fits = (type == GGUF_I32 || type == GGUF_U32) && n >= N_MOST - 1 && n <= N_MOST;
    for (uint64_t i = 0; i < n && fits; i++) {
        sizes[i] = gguf_array_i64(k->g, k->key, i);
        fits = sizes[i] >= 0 && sizes[i] <= UINT16_MAX;
        period += sizes[i];
    }
    if (!fits || !period)
        return err_set_param(e, ERR_FORMAT, k->key,
                             "%s: %s must be 3 or 4 sizes of sections, not all 0", gguf_path(k->g),
                             k->key);
    for (int64_t i = 0; i < n_rot / 2; i++) {
        int64_t s = i % period;
        if (s >= 3 * sizes[s % 3])
            return err_set_param(e, ERR_UNSUPPORTED, k->key,
                                 "%s: %s leaves rotated pair %d to none of the first three "
                                 "sections, which this build does not support",
                                 gguf_path(k->g), k->key, (int)i);
    }
    return 0;
}

/* The length is that of RoPE's first context unless a key says otherwise. */
static int read_temperature(struct model_keys *k, const struct model_arch *arch,
                            struct model_hparams *hp, err *e) {
    enum { LLAMA4_LENGTH = 8192 };
    const bool llama4 = arch->temperature_nope;
    if (llama4 && !hp->window) return 0;
    hp->q_log_unrotated = llama4;
    hp->q_log_from = llama4;
    int rc =
        model_key_real_or(k, "attention.temperature_scale", llama4 ? 0.1 : 0, &hp->q_log_scale, e);
    if (rc) return rc;
    return model_key_count(k, "attention.temperature_length", UINT32_MAX,
                           llama4 ? LLAMA4_LENGTH : hp->rope[0].original_context, &hp->q_log_length,
                           e);
}

int model_hparams_read_rope(struct model_keys *k, const struct model_arch *arch,
                            struct model_hparams *hp, err *e) {
    struct model_rope *r = &hp->rope[0], *local = &hp->rope[1];
    struct model_rope_divisors div;
    int rc;
    if ((rc = model_key_count(k, "rope.dimension_count", hp->head_dim, hp->head_dim, &r->n_rot,
                              e)) ||
        (rc = model_key_real(k, "rope.freq_base", 10000, &r->base, e)))
        return rc;
    if (r->n_rot % 2)
        return err_set_param(e, ERR_FORMAT, "rope.dimension_count",
                             "%s: the number of rotated dimensions, %u, is odd", gguf_path(k->g),
                             r->n_rot);
    const uint32_t whole = r->n_rot;
    if (arch->half_rotated) r->n_divisors = whole / 2, r->n_rot = whole / 4 * 2;
    if (arch->half_rotated && whole % 4)
        return err_set_param(e, ERR_FORMAT, "rope.dimension_count",
                             "%s: half of the %u dimensions of a head cannot be rotated in pairs",
                             gguf_path(k->g), whole);
    if (arch->delta_net && (rc = check_sections(k, r->n_rot, e))) return rc;
    if ((rc = read_scaling(k, r, e)) || (rc = read_factor(k, r, hp->context_length, e)) ||
        (arch->attention_temperature && (rc = read_temperature(k, arch, hp, e))) ||
        (rc = read_yarn(k, arch, r, e)) || (rc = model_rope_find_divisors(k->g, r, &div, e)))
        return rc;
    *local = *r;
    if (arch->local_rope)
        *local = (struct model_rope){.n_rot = r->n_rot,
                                     .base = r->base,
                                     .original_context = r->original_context,
                                     .factor = 1};
    if (arch->gemma4 || arch->local_rotated) { /* Gemma 4's are rotated as a whole by default */
        const uint32_t dim = model_head_dim(hp, MODEL_LAYER_WINDOWED);
        rc = model_key_count(k, "rope.dimension_count_swa", dim, arch->gemma4 ? dim : whole,
                             &local->n_rot, e);
        if (rc) return rc;
        if (local->n_rot % 2)
            return err_set_param(e, ERR_FORMAT, k->key, "%s: %s, %u, is odd", gguf_path(k->g),
                                 k->key, local->n_rot);
    }
    if (arch->local_rope_base > 0) local->base = arch->local_rope_base;
    if (!model_key_has(k, "rope.freq_base_swa")) return 0;
    return model_key_real(k, "rope.freq_base_swa", 0, &local->base, e);
}
