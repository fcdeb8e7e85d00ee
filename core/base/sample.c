/* sample.c - the draw on the host; a device does the same with a thread a token. Owns nothing. */
#include "core/base/sample.h"

int32_t sample_draw(const struct sample_params *p, const int32_t *ids, const float *logits,
                    uint32_t n) {
    double weights[SAMPLE_MAX];
    int32_t sorted[SAMPLE_MAX];
    uint32_t at;
    if (!sample_is_finite(logits[0])) return -1;
    if (!(p->temperature > 0)) return ids[0];
    n = sample_first(p, n);
    for (uint32_t i = 0; i < n; i++)
        weights[i] = sample_weight(logits[i], logits[0], p->temperature);
    n = sample_nucleus(weights, n, p->top_p);
    for (uint32_t i = 0; i < n; i++) { /* to the order of ids */
        double w = weights[i] < (double)p->min_p ? 0 : weights[i];
        for (at = i; at > 0 && sorted[at - 1] > ids[i]; at--) {
            sorted[at] = sorted[at - 1];
            weights[at] = weights[at - 1];
        }
        sorted[at] = ids[i];
        weights[at] = w;
    }
    return sorted[sample_walk(weights, n, sample_uniform(p->seed, p->index))];
}
