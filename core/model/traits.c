/* traits.c - small traits of a few families, from a file's keys: ALiBi's slopes. Owns nothing. */
#include "core/model/model_int.h"

#include <math.h>

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
