/* chars.h - private to core/grammar: sets of characters, and their UTF-8 as automata. */
#ifndef INFERD_GRAMMAR_REGEX_CHARS_H
#define INFERD_GRAMMAR_REGEX_CHARS_H

#include "core/grammar/regex/dfa.h"

enum { CHARS_LAST = 0x10FFFF };

struct chars_range {
    uint32_t first, last; /* code points, inclusive */
};

/* A set under construction: ranges in any order. A zeroed one is empty. */
struct chars {
    struct chars_range *at;
    uint32_t n, capacity;
    bool failed; /* out of memory: ranges are missing */
};
void chars_fini(struct chars *c);
void chars_add(struct chars *c, uint32_t first, uint32_t last);
void chars_add_all(struct chars *c, const struct chars *other);
/* Adds the characters of \p{name}; false: an unknown name, nothing was added. */
bool chars_add_property(struct chars *c, const char *name, size_t n);
/* Sorts, merges adjacent ranges, removes surrogates (no text contains them). */
void chars_normalise(struct chars *c);
/* Complements a normalised set; the result is normalised. */
void chars_negate(struct chars *c);

/* For parsers of notations; each moves *at past what it read. The character at *at, in valid UTF-8.
 */
uint32_t chars_take(const char **at);
/* Exactly n hexadecimal digits; false: fewer, and *at stays. */
bool chars_take_hex(const char **at, unsigned n, uint32_t *c);
/* Decimal digits, clamped to GRAMMAR_UNLIMITED - 1; false: none, and *count stays. */
bool chars_take_count(const char **at, uint32_t *count);

/* The texts of one character of a normalised set. No edge leaves an accepting state. */
int chars_dfa(const struct chars *c, struct work *w, struct dfa *out, err *e);

#endif
