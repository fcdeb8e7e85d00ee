/* chars.h - sets of characters, and as automata over their UTF-8. Private to core/grammar. */
#ifndef INFERD_GRAMMAR_REGEX_CHARS_H
#define INFERD_GRAMMAR_REGEX_CHARS_H

#include "core/grammar/grammar_int.h"

enum { CHARS_LAST = 0x10FFFF };

struct chars_range {
    uint32_t first, last; /* code points, both in it */
};

/* A set while it is made: ranges in any order. A zeroed one is empty. */
struct chars {
    struct chars_range *at;
    uint32_t n, capacity;
    bool failed; /* no memory: something is missing */
};
void chars_fini(struct chars *c);
void chars_add(struct chars *c, uint32_t first, uint32_t last);
void chars_add_all(struct chars *c, const struct chars *other);
/* Adds the characters of \p{name}; false: an unknown name, nothing was added. */
bool chars_add_property(struct chars *c, const char *name, size_t n);
/* Sorts, merges what touches, takes surrogates out: no text has them. */
void chars_normalise(struct chars *c);
/* Of a normalised one; is normalised afterwards. */
void chars_negate(struct chars *c);

/* Reading notations; each passes what it took. The character at *at, in valid UTF-8. */
uint32_t chars_take(const char **at);
/* Exactly n hexadecimal digits; false: fewer, *at stays. */
bool chars_take_hex(const char **at, unsigned n, uint32_t *c);
/* Decimal digits, at most GRAMMAR_UNLIMITED - 1; false: none, *count stays. */
bool chars_take_count(const char **at, uint32_t *count);

/* The texts of one character of the set, which is normalised. No edge leaves an accepting state. */
int chars_dfa(const struct chars *c, struct work *w, struct dfa *out, err *e);

#endif
