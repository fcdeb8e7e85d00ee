/* completions.h - the body of POST /v1/completions, which its /render reads too. Pool threads. */
#ifndef INFERD_API_OPENAI_COMPLETIONS_H
#define INFERD_API_OPENAI_COMPLETIONS_H

#include "api/generate/body.h"
#include "api/generate/choice.h"

extern const struct json_table completions_table;

/* Reads a whole body: fields and options into q, tokenized prompts into *prompts (*n at least 1;
 * gen_prompts_free). q borrows from the body. On failure nothing is left; a 400 names the param. */
int completions_read(struct request *r, const cJSON *body, struct gen_request *q,
                     struct gen_prompt **prompts, size_t *n, err *e);

#endif
