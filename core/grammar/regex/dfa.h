/* dfa.h - languages of texts as deterministic automata over bytes: from regular expressions, words,
 * lengths, JSON Schema's formats and numbers, and from two automata combined. Private to
 * core/grammar.
 *
 * THREAD SAFETY: a finished automaton does not change; makers from any thread. */
#ifndef INFERD_GRAMMAR_REGEX_DFA_H
#define INFERD_GRAMMAR_REGEX_DFA_H

#include "core/grammar/grammar.h"
#include "core/grammar/list_int.h"

/* Deterministic, over bytes. State 0 is dead; from every other state acceptance can be reached
 * (trimmed), so that a walk that is not dead is a prefix of something. start 0: the empty language.
 */
struct dfa {
    uint32_t n_states; /* with the dead one */
    uint32_t start;
    uint32_t n_classes;
    uint8_t class_of[256]; /* bytes that no state tells apart have one class */
    uint32_t *next;        /* (n_states, n_classes) */
    uint8_t *accept;       /* (n_states) 1: the text may end here */
    uint32_t cost;         /* of its making, in states of drafts */
};
static inline uint32_t dfa_step(const struct dfa *d, uint32_t state, uint8_t byte) {
    return d->next[(size_t)state * d->n_classes + d->class_of[byte]];
}
void dfa_fini(struct dfa *d); /* a zeroed one is fine */

/* All makers: *out is the caller's, minimal and trimmed; on failure nothing is left. They spend
 * from w (NULL: no bound). ERR_TOO_LONG beyond GRAMMAR_MAX_STATES states (also on the way),
 * ERR_WORK, ERR_DEADLINE, ERR_CANCELLED, ERR_NOMEM. Texts are valid UTF-8 where nothing else is
 * said. */
enum dfa_regex_flags { DFA_REGEX_SEARCH = 1 /* matches somewhere, as JSON Schema's pattern */ };
/* ERR_INVALID: malformed (says where); ERR_UNSUPPORTED: back-references, a look-behind that looks
 * ahead or stands inside a look-ahead after the start. */
int dfa_from_regex(const char *pattern, int flags, struct work *w, struct dfa *out, err *e);
struct dfa_word {
    const char *bytes;
    size_t n;
};
int dfa_from_words(const struct dfa_word *words, size_t n, struct work *w, struct dfa *out, err *e);
/* Any text of min to max code points (max GRAMMAR_UNLIMITED). */
int dfa_from_length(uint32_t min, uint32_t max, struct work *w, struct dfa *out, err *e);
/* Bytes without any of the stops in them (grammar_until). */
int dfa_from_until(const char *const *stops, size_t n, struct work *w, struct dfa *out, err *e);
/* Content of a string of this format. ERR_NOT_FOUND: no format that is known here. */
int dfa_from_format(const char *format, struct work *w, struct dfa *out, err *e);
/* JSON texts of numbers. Bounds are JSON literals ("-1.5", "1e3", exact, any length) or NULL.
 * multiple_of likewise, > 0. integer: whole numbers, also written with ".0". Numbers without bounds
 * and multiple_of may have exponents; ERR_UNSUPPORTED says which combination is beyond us. */
struct dfa_number {
    bool integer, exclusive_min, exclusive_max;
    const char *min, *max, *multiple_of;
};
int dfa_from_number(const struct dfa_number *spec, struct work *w, struct dfa *out, err *e);
enum dfa_op { DFA_AND, DFA_OR, DFA_MINUS };
int dfa_combine(const struct dfa *a, const struct dfa *b, enum dfa_op op, struct work *w,
                struct dfa *out, err *e);
static inline bool dfa_is_empty(const struct dfa *d) {
    return d->start == 0;
}
/* What a walk over all of it costs, in units of work. */
static inline uint64_t dfa_size(const struct dfa *d) {
    return 1 + (uint64_t)d->n_states * d->n_classes / 8;
}
bool dfa_accepts(const struct dfa *d, const char *bytes, size_t n);
/* Number of texts, at most limit (so limit: as many or more, perhaps infinitely many). */
uint32_t dfa_count(const struct dfa *d, uint32_t limit);
/* Every text of a language with at most limit of them, in order of bytes; ERR_TOO_LONG: more. each
 * returns 0 or an error that ends it. */
int dfa_each(const struct dfa *d, uint32_t limit,
             int (*each)(void *arg, const char *bytes, size_t n), void *arg);

#endif
