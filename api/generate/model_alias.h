/* model_alias.h - names that clients use for models, with wildcards: "claude-*=mine" answers a
 * request for claude-sonnet-4-5 with the model mine. limits.c reads priorities of objectives by it.
 *
 * THREAD SAFETY: plain functions; a list does not change after it was parsed. */
#ifndef INFERD_API_GENERATE_MODEL_ALIAS_H
#define INFERD_API_GENERATE_MODEL_ALIAS_H

#include "core/base/err.h"

#include <stddef.h>

enum { MODEL_ALIASES_MAX = 64 };

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

#endif
