/* engine_totals.h - sums of what engines count, over served models and those served before. */
#ifndef INFERD_API_GENERATE_ENGINE_TOTALS_H
#define INFERD_API_GENERATE_ENGINE_TOTALS_H

#include "core/engine/engine.h"

#include <stddef.h>

enum { ENGINE_TOTALS_KERNELS = 2 * ENGINE_MAX_KERNELS, ENGINE_TOTALS_NAME = 64 };

/* The counters of a kernel of all engines with that backend. */
struct kernel_total {
    char backend[16], name[ENGINE_TOTALS_NAME]; /* copies: a backend may be gone */
    struct engine_kernel sum;
};

/* Zeroed: nothing. */
struct engine_totals {
    struct engine_stats stats;
    struct kernel_total kernels[ENGINE_TOTALS_KERNELS]; /* (n_kernels) further ones are left out */
    size_t n_kernels;
};

/* Adds what en counts and holds now. Takes en's locks. */
void engine_totals_add(struct engine_totals *to, engine *en);
/* Adds only what from has counted: what its engines held and ran is gone. Calls nothing. */
void engine_totals_keep(struct engine_totals *to, const struct engine_totals *from);
/* The fraction of the KV blocks that sequences use, 0 to 1. */
double engine_kv_usage(const struct engine_stats *s);

#endif
