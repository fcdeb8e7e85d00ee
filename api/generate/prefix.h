/* prefix.h - the header x-inferd-prefix: a hash of a prompt's first tokens, for balancers that send
 * requests with the same beginning to the same replica. It is the same on every replica that serves
 * the model under the same name. Pool threads. */
#ifndef INFERD_API_GENERATE_PREFIX_H
#define INFERD_API_GENERATE_PREFIX_H

#include "api/generate/choice.h"
#include "api/generate/config.h"

struct request;

/* Adds the header to r's reply: 16 hex digits over the model's name and the first
 * prefix-header-tokens tokens of p; of a shorter prompt as many as fill blocks of 16. None for a
 * prompt without a whole block, or with prefix-header-tokens = 0. */
void prefix_add_header(struct request *r, const struct api_model *m, const struct gen_prompt *p);

#endif
