/* prompts.h - a field that holds one or several texts, each as a string or as token ids. Pool
 * threads. */
#ifndef INFERD_API_GENERATE_PROMPTS_H
#define INFERD_API_GENERATE_PROMPTS_H

#include "api/generate/choice.h"

#include <cjson/cJSON.h>

struct prompts_config {
    const char *param; /* the field's name */
    const tokenizer *tok;
    uint32_t max_tokens; /* per text */
    size_t max;          /* number of texts */
    uint32_t n_answers;  /* of each text, if max depends on it; otherwise 0 */
    const char *suffix; /* NULL or "": none; otherwise each text precedes it and must be a string */
    bool parse_special; /* the text of a control token is that token (not around a suffix) */
    bool truncate;      /* cuts the end of longer texts, except an EOS that the tokenizer adds */
    bool no_empty;      /* refuse "" even if the tokenizer adds a token to it */
};
/* Reads a string, an array of strings, an array of token ids or an array of such arrays into *list
 * (*n at least 1; gen_prompts_free). v NULL is the empty text. ERR_INVALID, ERR_TOO_LONG name
 * param; then nothing is left. */
int prompts_read(const struct prompts_config *c, const cJSON *v, struct gen_prompt **list,
                 size_t *n, err *e);

/* The same for one text. */
int prompts_read_text(const struct prompts_config *c, const char *text, struct gen_prompt **list,
                      size_t *n, err *e);

/* As tokenizer_encode, for a string of a request's tree: TEXT_NUL in it is U+0000. */
int prompts_encode(const tokenizer *tok, const char *text, int flags, size_t max_ids,
                   struct gen_prompt *to, err *e);
/* The same for a prompt without a template, with the tokens that the tokenizer adds; parse_special
 * as above. */
int prompts_encode_raw(const tokenizer *tok, const char *text, bool parse_special, size_t max_ids,
                       struct gen_prompt *to, err *e);

#endif
