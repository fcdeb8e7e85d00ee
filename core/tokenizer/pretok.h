/* pretok.h - the pre-tokenizer: splits text into pieces; merges happen within a piece. Private to
 * core/tokenizer.
 *
 * A pretok is a list of steps; each splits the pieces of the previous one. It is immutable once
 * built, any thread; a pretok_work belongs to one call. */
#ifndef INFERD_TOKENIZER_PRETOK_H
#define INFERD_TOKENIZER_PRETOK_H

#include "core/text/unicode.h"
#include "core/tokenizer/regex.h"

enum { PRETOK_MAX_STEPS = 16 };

/* What becomes of a match: a separate piece, nothing, part of the piece before or after it, or one
 * piece together with adjacent matches. */
enum pretok_behavior {
    PRETOK_ISOLATED,
    PRETOK_REMOVED,
    PRETOK_WITH_PREVIOUS,
    PRETOK_WITH_NEXT,
    PRETOK_CONTIGUOUS
};

enum pretok_prepend { PRETOK_NEVER, PRETOK_FIRST, PRETOK_ALWAYS };

struct pretok;
struct pretok *pretok_new(const struct unicode_flags *flags); /* borrowed. NULL: no memory */
void pretok_free(struct pretok *p);                           /* NULL is fine */

struct pretok_split {
    const char *pattern;
    bool literal; /* the pattern is text, not a regular expression */
    bool invert;  /* the text between matches counts as the match */
    enum pretok_behavior behavior;
};
int pretok_add_split(struct pretok *p, const struct pretok_split *s, err *e);
/* Adds a space before each piece that does not begin with one. */
int pretok_add_prefix_space(struct pretok *p, err *e);
/* Replaces spaces by mark (a few bytes) and adds one mark before the piece; split: pieces begin at
 * marks. */
int pretok_add_metaspace(struct pretok *p, const char *mark, enum pretok_prepend prepend,
                         bool split, err *e);
/* For a ByteLevel that is not the last step: the following steps see bytes in GPT-2's alphabet; the
 * sink gets plain bytes. */
int pretok_add_alphabet(struct pretok *p, err *e);
/* The steps that a name of tokenizer.ggml.pre stands for. */
struct pretok_rule {
    const char *name;
    bool ignore_merges, add_bos; /* defaults for this name */
    bool marks_spaces;           /* SentencePiece-like: spaces are U+2581, units are characters */
    const char *patterns[8];     /* of consecutive Split steps; NULL ends the list */
};
const struct pretok_rule *pretok_find_rule(const char *name, size_t n); /* NULL: none */
/* The next rule after `after` (NULL: the first) of byte-level text with these n patterns; different
 * spellings of a pattern are equal. NULL: none. */
const struct pretok_rule *pretok_match_rule(const struct pretok_rule *after,
                                            const char *const *patterns, unsigned n);
int pretok_add_rule(struct pretok *p, const struct pretok_rule *rule, err *e);

struct pretok_work {
    struct regex_work regex;
    str buffers[PRETOK_MAX_STEPS + 1]; /* of steps that change text, and the sink's */
};
void pretok_work_init(struct pretok_work *w);
void pretok_work_fini(struct pretok_work *w);

/* Receives the pieces in order; text is borrowed for the call. A result other than 0 ends the run.
 */
struct pretok_sink {
    int (*piece)(void *context, const char *text, size_t n, err *e);
    void *context;
};
/* Splits text[0..n), valid UTF-8. at_start: it is the start of the whole text. */
int pretok_run(const struct pretok *p, struct pretok_work *w, const char *text, size_t n,
               bool at_start, const struct pretok_sink *sink, err *e);

#endif
