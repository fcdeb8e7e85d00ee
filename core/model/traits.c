/* traits.c - small traits of a few families, from a file's keys: ALiBi's slopes, the parameters of
 * xIELU, bounds of FFNs. Owns nothing. */
#include "core/model/model_int.h"

#include <math.h>
#include <stdio.h>

/* ---- ALiBi ---- */

int model_hparams_read_alibi(struct model_keys *k, const struct model_arch *arch,
                             struct model_hparams *hp, err *e) {
    hp->alibi = arch->alibi;
    if (!arch->alibi_by_key) return 0;
    int rc = model_key_real(k, "attention.max_alibi_bias", 0, &hp->alibi, e);
    if (rc || hp->alibi <= 1024) return rc;
    return err_set_param(e, ERR_FORMAT, k->key, "%s: %s is %g, not in 0..1024", gguf_path(k->g),
                         k->key, (double)hp->alibi);
}

/* Head i of p, the largest power of two up to n_heads: 2^(-largest * (i + 1) / p); the others have
 * the slopes between those, beginning with the steepest. */
void model_alibi_slopes(float largest, uint32_t n_heads, const struct model_range *of, float *out) {
    uint32_t p = 1;
    while (p <= n_heads / 2)
        p *= 2;
    for (uint64_t i = 0; i < of->n; i++) {
        const uint64_t head = of->first + i;
        const double step = head < p ? (double)(head + 1) : (double)(head - p) + 0.5;
        out[i] = (float)exp2(-(double)largest * step / p);
    }
}

/* ---- xIELU ---- */

static double softplus(double x) {
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

/* A number for each layer, as one number or an array, which may have the layers that predict
 * further tokens, too. */
static int read_layer_reals(struct model_keys *k, const char *key, uint32_t n_layers, double *out,
                            err *e) {
    enum gguf_type elem;
    uint64_t n, n_blocks = n_layers;
    char block_count[64];
    double one;
    snprintf(block_count, sizeof block_count, "%s.block_count", k->arch);
    gguf_get_u64(k->g, block_count, &n_blocks, NULL);
    if (gguf_get_f64(k->g, key, &one, NULL) == 0) {
        for (uint32_t i = 0; i < n_layers; i++)
            out[i] = one;
    } else {
        int rc = gguf_get_array(k->g, key, &elem, &n, e);
        if (rc) return rc;
        if ((n != n_layers && n != n_blocks) || n < n_layers ||
            (elem != GGUF_F32 && elem != GGUF_F64))
            return err_set_param(e, ERR_FORMAT, key,
                                 "%s: %s must have a number for each of %u layers", gguf_path(k->g),
                                 key, n_layers);
        for (uint32_t i = 0; i < n_layers; i++)
            out[i] = gguf_array_f64(k->g, key, i);
    }
    for (uint32_t i = 0; i < n_layers; i++)
        if (!(fabs(out[i]) <= 1000))
            return err_set_param(e, ERR_FORMAT, key, "%s: %s of layer %u is %g, not in -1000..1000",
                                 gguf_path(k->g), key, i, out[i]);
    return 0;
}

/* The keys have no prefix. Files have what training has: the softplus of alpha_p, and of alpha_n
 * plus beta, are used (transformers, activations.py, XIELUActivation). */
int model_hparams_read_xielu(struct model_keys *k, const struct model_arch *arch,
                             struct model_hparams *hp, err *e) {
    static const char *const names[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta",
                                        "xielu.eps"};
    double v[MODEL_MAX_LAYERS];
    if (!arch->ungated || arch->unary != BACKEND_UNARY_XIELU) return 0;
    for (int n = 0; n < 4; n++) {
        int rc = read_layer_reals(k, names[n], hp->n_layers, v, e);
        if (rc) return rc;
        for (uint32_t i = 0; i < hp->n_layers; i++) {
            struct backend_xielu *x = &hp->xielu[i];
            if (n == 0) x->positive = (float)softplus(v[i]);
            if (n == 1) x->negative = (float)softplus(v[i]);
            if (n == 2) x->beta = (float)v[i], x->negative += x->beta;
            if (n == 3) x->eps = (float)v[i];
            if (n == 3 && !(x->eps < 0))
                return err_set_param(e, ERR_FORMAT, names[n],
                                     "%s: %s of layer %u is %g, not below 0", gguf_path(k->g),
                                     names[n], i, v[i]);
        }
    }
    return 0;
}

/* ---- bounds ---- */

/* The x above 0 at which x / (1 + exp(-x)) = y, by Newton's method. */
static double inverse_silu(double y) {
    double x = y + 1; /* above the root, where the function is convex or nearly straight */
    for (int i = 0; i < 60; i++) {
        const double s = 1 / (1 + exp(-x));
        x -= (x * s - y) / (s + x * s * (1 - s));
    }
    return x;
}

/* Step 3.5: min(silu(gate), limit) * clamp(up, -limit, limit). As silu grows above 0, its bound is
 * one of its input. */
int model_hparams_read_clamps(struct model_keys *k, const struct model_arch *arch,
                              struct model_hparams *hp, err *e) {
    static const char *const names[] = {"swiglu_clamp_exp", "swiglu_clamp_shexp"};
    double v[MODEL_MAX_LAYERS];
    for (int n = 0; n < 2 && arch->clamped; n++) {
        if (!model_key_has(k, names[n])) continue;
        struct backend_bounds *out = n ? hp->ff_bounds : hp->expert_bounds;
        int rc = read_layer_reals(k, k->key, hp->n_layers, v, e);
        if (rc) return rc;
        for (uint32_t i = 0; i < hp->n_layers; i++) {
            if (v[i] < 0)
                return err_set_param(e, ERR_FORMAT, model_key(k, names[n]),
                                     "%s: %s of layer %u is %g, below 0", gguf_path(k->g), k->key,
                                     i, v[i]);
            if (v[i] > 1e-6) /* as llama.cpp has it */
                out[i] = (struct backend_bounds){(float)inverse_silu(v[i]), (float)v[i]};
        }
    }
    return 0;
}
