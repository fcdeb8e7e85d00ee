/* pretok.h - cuts text into the pieces inside which merges happen. Private to core/tokenizer.
 *
 * A pretok is a list of steps; each takes the pieces of the one before apart. It is immutable once
 * built, any thread; a pretok_work belongs to one call. */
#ifndef INFERD_TOKENIZER_PRETOK_H
#define INFERD_TOKENIZER_PRETOK_H

#include "core/text/unicode.h"
#include "core/tokenizer/regex.h"

enum { PRETOK_MAX_STEPS = 16 };

/* What becomes of a match: a piece of its own, nothing, part of the piece before or behind it, or
 * one piece with the matches next to it. */
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
    bool literal; /* the pattern is text, no regular expression */
    bool invert;  /* what lies between the matches counts as match */
    enum pretok_behavior behavior;
};
int pretok_add_split(struct pretok *p, const struct pretok_split *s, err *e);
/* A space goes before each piece that has none. */
int pretok_add_prefix_space(struct pretok *p, err *e);
/* Spaces become mark (a few bytes), one mark goes before the piece; split: pieces begin at it. */
int pretok_add_metaspace(struct pretok *p, const char *mark, enum pretok_prepend prepend,
                         bool split, err *e);
/* From here on pieces are bytes in GPT-2's alphabet, as in ByteLevel that is not the last step; the
 * sink gets the bytes again. */
int pretok_add_alphabet(struct pretok *p, err *e);
/* The steps of a GGUF file's tokenizer.ggml.pre. ERR_UNSUPPORTED: no such name. */
struct pretok_rule {
    const char *name;
    bool ignore_merges, add_bos; /* defaults that go with the name */
    bool marks_spaces;           /* SentencePiece-like: spaces are U+2581, text is not bytes */
    const char *patterns[8];     /* one Split after the other, NULL ends them */
};
const struct pretok_rule *pretok_find_rule(const char *name, size_t n); /* NULL: none */
/* The next rule behind `after` (NULL: the first) whose patterns are these n, however they are
 * written, for byte-level text. NULL: none. */
const struct pretok_rule *pretok_match_rule(const struct pretok_rule *after,
                                            const char *const *patterns, unsigned n);
int pretok_add_rule(struct pretok *p, const struct pretok_rule *rule, err *e);

struct pretok_work {
    struct regex_work regex;
    str buffers[PRETOK_MAX_STEPS + 1]; /* of steps that change text, and the sink's */
};
void pretok_work_init(struct pretok_work *w);
void pretok_work_fini(struct pretok_work *w);

/* Receives the pieces in order; text is borrowed for the call. Not 0 ends the run. */
struct pretok_sink {
    int (*piece)(void *context, const char *text, size_t n, err *e);
    void *context;
};
/* text[0..n) is valid UTF-8. at_start: it begins the whole text. */
int pretok_run(const struct pretok *p, struct pretok_work *w, const char *text, size_t n,
               bool at_start, const struct pretok_sink *sink, err *e);

#endif
