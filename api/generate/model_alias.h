/* model_alias.h - names that clients use for models, with wildcards: "claude-*=mine" answers a
 * request for claude-sonnet-4-5 with the model mine. limits.c reads priorities of objectives by it.
 *
 * THREAD SAFETY: of a list: it does not change after it was parsed. alias_book_*: any thread. */
#ifndef INFERD_API_GENERATE_MODEL_ALIAS_H
#define INFERD_API_GENERATE_MODEL_ALIAS_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { MODEL_ALIASES_MAX = 64, MODEL_ALIAS_BYTES = 97 /* of a value, as of a model's name */ };

/* Zeroed: no alias. */
struct model_aliases {
    char *text; /* a copy, which the pairs point into */
    struct {
        const char *pattern, *model;
    } pairs[MODEL_ALIASES_MAX]; /* (n) */
    size_t n;
};

/* Reads "claude-*=mine, gpt-4o = other": pairs separated by commas; '*' stands for any characters,
 * also none. NULL and "" are the empty list. ERR_INVALID names param, ERR_NOMEM; out is zeroed
 * then. */
int model_aliases_parse(const char *text, const char *param, struct model_aliases *out, err *e);
void model_aliases_fini(struct model_aliases *l);

/* The model of the first pattern that matches all of name, or NULL. */
const char *model_aliases_find(const struct model_aliases *l, const char *name);

/* The list in force, which a reload replaces while requests look names up. */
typedef struct alias_book alias_book;
alias_book *alias_book_new(void);    /* empty; NULL: no memory */
void alias_book_free(alias_book *b); /* NULL is fine */
/* Takes what is in *l, which is zeroed. */
void alias_book_set(alias_book *b, struct model_aliases *l);
/* As model_aliases_find. */
bool alias_book_find(alias_book *b, const char *name, char value[MODEL_ALIAS_BYTES]);
/* The model of its i-th pair. false: there are fewer. */
bool alias_book_target(alias_book *b, size_t i, char value[MODEL_ALIAS_BYTES]);
/* Does it have this very pair? */
bool alias_book_has(alias_book *b, const char *pattern, const char *model);

#endif
