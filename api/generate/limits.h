/* limits.h - what the configuration allows a generation: whose cached prefixes it may share, its
 * priority, and whose share of the engine it takes. Pool threads. */
#ifndef INFERD_API_GENERATE_LIMITS_H
#define INFERD_API_GENERATE_LIMITS_H

#include "api/generate/model_alias.h"
#include "core/engine/engine.h"

struct request;

/* Reads "checkout=10, batch-*=-5": names that the header x-gateway-inference-objective may have,
 * and the priorities of their requests. As model_aliases_parse; ERR_INVALID names objectives. */
int limits_read_objectives(const char *text, struct model_aliases *out, err *e);

/* Sets p's salt of the prefix cache, its client and what its key may hold of the KV cache, and
 * checks its priority; 0 becomes that of its objective. cache_salt: the body's field; NULL: none.
 * ERR_INVALID: priority is above max-priority. */
int limits_apply(const struct request *r, const char *cache_salt, struct engine_params *p, err *e);

#endif
