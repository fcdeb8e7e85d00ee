/* prompts.h - a field that holds one or several texts, each as a string or as token ids. Private to
 * api/. pool threads. */
#ifndef INFERD_API_GENERATE_PROMPTS_H
#define INFERD_API_GENERATE_PROMPTS_H

#include "api/generate/gen.h"

struct prompts_config {
    const char *param; /* the field's name */
    const tokenizer *tok;
    uint32_t max_tokens; /* of one text */
    size_t max;          /* texts */
    const char *suffix;  /* NULL or "": none; else texts are those before it, and no token ids */
    bool no_empty;       /* "" is refused also where the model adds a token of its own */
};
/* v NULL is the empty text. Reads a string, an array of strings, an array of token ids or an array
 * of such arrays into *list
 * (*n at least 1; gen_prompts_free). ERR_INVALID, ERR_TOO_LONG blame param; then nothing is left.
 */
int prompts_read(const struct prompts_config *c, const cJSON *v, struct gen_prompt **list,
                 size_t *n, err *e);

/* As tokenizer_encode, of a string of a request's tree: TEXT_NUL in it is U+0000. */
int prompts_encode(const tokenizer *tok, const char *text, int flags, size_t max_ids,
                   struct gen_prompt *to, err *e);

#endif
