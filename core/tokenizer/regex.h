/* regex.h - the regular expressions of tokenizer files, run by PCRE2. Private to core/tokenizer.
 *
 * The patterns are written for Oniguruma's Ruby syntax. Constructs that PCRE2 interprets
 * differently are rewritten (white space, word characters, \h, \uHHHH, class intersections) or
 * refused (nested classes). A regex is immutable, any thread; a regex_work belongs to one call. */
#ifndef INFERD_TOKENIZER_REGEX_H
#define INFERD_TOKENIZER_REGEX_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct regex;
/* literal: the pattern is plain text. ERR_UNSUPPORTED, ERR_FORMAT, ERR_NOMEM. */
int regex_new(const char *pattern, bool literal, struct regex **out, err *e);
void regex_free(struct regex *r); /* NULL is fine */

/* Scratch of one call, filled on first use. Caller's storage, zeroed. */
struct regex_work {
    void *data, *context, *stack;
};
void regex_work_fini(struct regex_work *w);

/* Finds the next match in text[0..n), valid UTF-8, at or after from: 1 (found), 0 (none), or a
 * negative error if the match takes too much work. */
int regex_next(const struct regex *r, struct regex_work *w, const char *text, size_t n, size_t from,
               size_t *start, size_t *end, err *e);

#endif
