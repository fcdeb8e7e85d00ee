/* normalizer.h - rewrites text before it is split into pieces. Private to core/tokenizer.
 *
 * Immutable once built, any thread. */
#ifndef INFERD_TOKENIZER_NORMALIZER_H
#define INFERD_TOKENIZER_NORMALIZER_H

#include "core/text/unicode.h"
#include "core/tokenizer/charsmap.h"
#include "core/tokenizer/regex.h"

enum normalizer_kind {
    NORMALIZER_NFC,
    NORMALIZER_NFD,
    NORMALIZER_LOWERCASE,
    NORMALIZER_STRIP,   /* removes white space at the ends */
    NORMALIZER_REPLACE, /* replaces matches by content */
    NORMALIZER_PREPEND, /* puts content before text that is not empty */
    NORMALIZER_CHARSMAP /* replaces characters by a map */
};

struct normalizer_step {
    enum normalizer_kind kind;
    bool left, right;              /* STRIP */
    bool literal;                  /* REPLACE: the pattern is text */
    const char *pattern, *content; /* copied */
    struct charsmap *map;          /* taken, on failure too */
};

struct normalizer;
struct normalizer *
normalizer_new(const struct unicode_flags *flags); /* borrowed. NULL: no memory */
void normalizer_free(struct normalizer *n);        /* NULL is fine */
int normalizer_add(struct normalizer *n, const struct normalizer_step *s, err *e);

/* Scratch of one call: caller's storage. */
struct normalizer_work {
    struct regex_work regex;
    str texts[2];
};
void normalizer_work_init(struct normalizer_work *w);
void normalizer_work_fini(struct normalizer_work *w);

/* Rewrites text[0..len), valid UTF-8, not part of w. *out is in w, or is text itself. */
int normalizer_run(const struct normalizer *n, struct normalizer_work *w, const char *text,
                   size_t len, const char **out, size_t *out_len, err *e);

#endif
