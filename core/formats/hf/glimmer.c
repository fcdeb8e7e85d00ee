/* hf/glimmer.c - members of config.json of Muse Glimmer: factors of Q and of the logits, the
 * post-norms' epsilon, layers without rotation. Source: transformers,
 * configuration_muse_glimmer.py. Pure. */
#include "core/formats/hf/model_int.h"

#include <string.h>

/* Layers with full attention must be those without rotation, whose base is 0. */
static int check_bases(struct hf_reader *r, double theta) {
    static const char name[] = "layer_rope_theta";
    const cJSON *types = hf_value(r->json, "layer_types"), *bases = hf_value(r->json, name), *base;
    bool windowed[HF_MAX_LAYERS];
    uint32_t n = 0;
    if (!types)
        return err_set_param(r->e, ERR_FORMAT, "layer_types", "member 'layer_types' is missing");
    int rc = hf_read_layer_types(r, types, windowed);
    if (rc || !bases) return rc;
    cJSON_ArrayForEach(base, bases) {
        if (n < r->config->n_layers && cJSON_IsNumber(base) &&
            base->valuedouble == (windowed[n] ? theta : 0))
            n++;
        else
            return hf_refuse(r, name,
                             "only 0 for layers with full attention, and rope_theta for "
                             "the others, is supported");
    }
    return n == r->config->n_layers ? 0 : hf_refuse(r, name, "it must have all layers");
}

int hf_read_glimmer(struct hf_reader *r) {
    double query, logits, cap, eps, theta;
    const cJSON *rope = hf_value(r->json, "rope_parameters");
    const char *act = hf_text(r->json, "hidden_activation");
    int rc;
    if ((rc = hf_read_positive(r, "qk_scale_factor", 3.87, &query)) ||
        (rc = hf_read_positive(r, "output_multiplier", 0.19611613513818404, &logits)) ||
        (rc = hf_read_real(r, r->json, "final_logit_softcapping", 20, &cap)) ||
        (rc = hf_read_positive(r, "post_norm_eps", 1e-8, &eps)) ||
        (rc = hf_read_real(r, rope, "rope_theta", r->config->family->rope_theta, &theta)) ||
        (rc = check_bases(r, theta)))
        return rc;
    if (act && strcmp(act, "silu") != 0)
        return hf_refuse(r, "hidden_activation", "only 'silu' is supported");
    if (cap < 0)
        return hf_refuse(r, "final_logit_softcapping", "only a number not below 0 is supported");
    if (eps != 1e-8) hf_put_f32(r, "inferd.post_norm_epsilon", eps);
    if (cap > 0) hf_put_f32(r, "final_logit_softcapping", cap);
    hf_put_f32(r, "logit_scale", logits);
    r->config->query_factor = (float)query;
    return 0;
}
