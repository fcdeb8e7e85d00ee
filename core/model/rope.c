/* rope.c - frequencies of rotary embedding under each kind of scaling, and a file's divisors of
 * them. Pure.
 *
 * Pair i of n = n_rot is rotated by base^(-2i/n) per token (RoFormer, Su et al. 2021). Scalings, as
 * transformers defines them (modeling_rope_utils.py):
 *   LINEAR   all frequencies / factor (position interpolation, Chen et al. 2023)
 *   DYNAMIC  beyond original_context the base grows, base * (factor * n_ctx / original_context -
 *            (factor - 1))^(n / (n - 2)) (NTK-aware scaling)
 *   YARN     fast pairs keep their frequency, slow ones are interpolated, with a ramp between the
 *            pairs that turn beta_fast and beta_slow times within original_context; cos and sin
 *            grow by 0.1 ln(factor) + 1 (Peng et al. 2023), with a multiplier m of the logarithm
 *            (mscale_all_dim) by that over 0.1 m ln(factor) + 1
 *   LONG     each frequency has a divisor, from one list up to original_context and from another
 *            beyond it; cos and sin grow by sqrt(1 + ln(factor) / ln(original_context))
 *            (LongRoPE, Ding et al. 2024)
 * Llama 3's scaling comes as a list of divisors (rope_freqs.weight). */
#include "core/model/model_int.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

static double divisor_at(const void *divisors, uint32_t i) {
    float d = 1;
    if (divisors) memcpy(&d, (const float *)divisors + i, sizeof d);
    return (double)d;
}

/* The pair, as a real number, that makes n full turns within original_context tokens. */
static double pair_of_turns(const struct model_rope *r, double n) {
    return r->n_rot * log(r->original_context / (n * 2 * pi)) / (2 * log((double)r->base));
}

/* How much pair i is interpolated: 0 up to the pairs that turn beta_fast times, 1 from those that
 * turn beta_slow times. */
static double yarn_ramp(const struct model_rope *r, uint32_t i) {
    double low = pair_of_turns(r, (double)r->beta_fast);
    double high = pair_of_turns(r, (double)r->beta_slow);
    if (r->truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, r->n_rot - 1);
    if (low == high) high += 0.001;
    return fmin(fmax((i - low) / (high - low), 0), 1);
}

static double grown_base(const struct model_rope *r, uint32_t n_ctx) {
    double base = (double)r->base, factor = (double)r->factor, n = r->n_rot;
    if (r->scaling != MODEL_ROPE_DYNAMIC || n_ctx <= r->original_context || n <= 2) return base;
    return base * pow(factor * n_ctx / r->original_context - (factor - 1), n / (n - 2));
}

double model_rope_yarn_factor(double factor, double multiplier) {
    if (factor <= 1) return 1;
    return (0.1 * log(factor) + 1) / (0.1 * multiplier * log(factor) + 1);
}

static double magnitude_of(const struct model_rope *r, uint32_t n_ctx) {
    double factor = (double)r->factor;
    if (r->short_factor > 0 && n_ctx <= r->original_context) return (double)r->short_factor;
    if (r->attn_factor > 0) return (double)r->attn_factor;
    if (factor <= 1) return 1;
    if (r->scaling == MODEL_ROPE_YARN) return 0.1 * log(factor) + 1;
    if (r->scaling == MODEL_ROPE_LONG) return sqrt(1 + log(factor) / log(r->original_context));
    return 1;
}

void model_rope_frequencies(const struct model_rope *rope, const struct model_rope_divisors *div,
                            uint32_t n_ctx, float *inv_freq, float *magnitude) {
    double base = grown_base(rope, n_ctx), factor = (double)rope->factor;
    const void *divisors = div->all;
    if (rope->scaling == MODEL_ROPE_LONG)
        divisors = n_ctx > rope->original_context ? div->for_long : div->for_short;
    for (uint32_t i = 0; i < rope->n_rot / 2; i++) {
        double f = pow(base, -2.0 * i / rope->n_rot) / divisor_at(divisors, i);
        if (rope->scaling == MODEL_ROPE_LINEAR) f /= factor;
        if (rope->scaling == MODEL_ROPE_YARN) {
            double keep = (1 - yarn_ramp(rope, i)) * (double)rope->ext_factor;
            f = f / factor * (1 - keep) + f * keep;
        }
        inv_freq[i] = (float)f;
    }
    *magnitude = (float)magnitude_of(rope, n_ctx);
}

/* *out: data of an F32 vector of n positive numbers. */
static int find_vector(const gguf *g, const char *name, uint32_t n, const void **out, err *e) {
    const gguf_tensor *t = gguf_tensor_find(g, name);
    if (!t) return 0;
    if (t->type != QTYPE_F32 || t->n_elems != n || !t->data)
        return err_set_param(e, ERR_FORMAT, name, "%s: tensor %s is not (%u) F32", gguf_path(g),
                             name, n);
    for (uint32_t i = 0; i < n; i++) {
        double d = divisor_at(t->data, i);
        if (!(d > 0) || isinf(d))
            return err_set_param(e, ERR_FORMAT, name, "%s: tensor %s holds %g at %u", gguf_path(g),
                                 name, d, i);
    }
    *out = t->data;
    return 0;
}

int model_rope_find_divisors(const gguf *g, const struct model_rope *rope,
                             struct model_rope_divisors *div, err *e) {
    uint32_t n = rope->n_divisors ? rope->n_divisors : rope->n_rot / 2;
    bool is_long = rope->scaling == MODEL_ROPE_LONG;
    int rc;
    *div = (struct model_rope_divisors){0};
    if ((rc = find_vector(g, "rope_freqs.weight", n, &div->all, e)) ||
        (rc = find_vector(g, "rope_factors_short.weight", n, &div->for_short, e)) ||
        (rc = find_vector(g, "rope_factors_long.weight", n, &div->for_long, e)))
        return rc;
    if (is_long && (!div->for_short || !div->for_long))
        return err_set_param(e, ERR_FORMAT, "rope_factors_long.weight",
                             "%s: longrope needs tensors rope_factors_short.weight and "
                             "rope_factors_long.weight",
                             gguf_path(g));
    if (!is_long && (div->for_short || div->for_long))
        return err_set_param(e, ERR_UNSUPPORTED, "rope_factors_long.weight",
                             "%s: tensors rope_factors_* beside another rope scaling are not "
                             "supported",
                             gguf_path(g));
    if (div->all && (is_long || rope->scaling == MODEL_ROPE_YARN))
        return err_set_param(e, ERR_UNSUPPORTED, "rope_freqs.weight",
                             "%s: tensor rope_freqs.weight beside yarn or longrope is not "
                             "supported",
                             gguf_path(g));
    return 0;
}
