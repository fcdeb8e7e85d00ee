/* limits.h - what the configuration allows a generation: whose cached prefixes it may share, its
 * priority, and whose share of the engine it takes. Pool threads. */
#ifndef INFERD_API_GENERATE_LIMITS_H
#define INFERD_API_GENERATE_LIMITS_H

#include "core/engine/engine.h"

struct request;

/* Sets p's salt of the prefix cache and its client, and checks its priority. cache_salt: the body's
 * field; NULL: none. ERR_INVALID: priority is above max-priority. */
int limits_apply(const struct request *r, const char *cache_salt, struct engine_params *p, err *e);

#endif
