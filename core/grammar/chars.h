/* chars.h - sets of characters, and as automata over their UTF-8. Private to core/grammar. */
#ifndef INFERD_GRAMMAR_CHARS_H
#define INFERD_GRAMMAR_CHARS_H

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
/* Sorts, merges what touches, takes surrogates out: no text has them. */
void chars_normalise(struct chars *c);
/* Of a normalised one; is normalised afterwards. */
void chars_negate(struct chars *c);

/* The texts of one character of the set, which is normalised. No edge leaves an accepting state. */
int chars_dfa(const struct chars *c, struct dfa *out, err *e);

#endif
