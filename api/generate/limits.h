/* limits.h - what the configuration holds a request to: whose cached prefixes it may share, its
 * priority, its time. Private to api/. HTTP threads. */
#ifndef INFERD_API_GENERATE_LIMITS_H
#define INFERD_API_GENERATE_LIMITS_H

#include "api/api_int.h"

/* The header that asks for less time than request-timeout-s allows, in milliseconds. */
#define LIMITS_TIMEOUT_HEADER "X-Request-Timeout-Ms"

/* r->deadline_ns, once the headers are there. false: the header is wrong, the reply is filled. */
bool limits_read_deadline(struct request *r);

/* The same of an engine's request: salt of the prefix cache (cache_salt: the body's field, NULL:
 * none) and priority. ERR_INVALID: priority is above max-priority. */
int limits_apply(const struct request *r, const char *cache_salt, struct engine_params *p, err *e);

#endif
