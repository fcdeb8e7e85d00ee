/* miss.h - why no more of a prompt was cached, for those who ask: with the header
 * X-Inferd-Explain-Cache: 1, or for all with explain-cache. Beside cached_tokens the usage then has
 * "cache_miss": the reason, and where the prompt begins to differ from what is cached. It tells
 * nothing of others: only the request's own text, and that the same text is cached for another
 * key only to administrators. */
#ifndef INFERD_API_GENERATE_MISS_H
#define INFERD_API_GENERATE_MISS_H

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/engine/engine.h"

struct cJSON;
struct gen;
struct gen_prompt;
struct request;

/* Where messages stand in a prompt's text. */
struct miss_map;

bool miss_is_asked(const struct request *r);
/* For a prompt of messages (in the template's form), after it was encoded. What is not found there
 * word for word has no place. *out is NULL without memory; free with miss_map_free. */
void miss_map_new(const tokenizer *tok, const struct gen_prompt *p, const struct cJSON *messages,
                  struct miss_map **out);
void miss_map_free(struct miss_map *m); /* NULL is fine */
/* Appends ,"cache_miss":{...} about the first prompt, if that was asked for. */
void miss_add(const struct gen *g, str *out);
const char *gen_miss_name(enum engine_miss miss);

#endif
