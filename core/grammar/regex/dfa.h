/* dfa.h - languages of texts as deterministic automata over bytes: from regular expressions, words,
 * lengths, JSON Schema's formats and numbers, and from two automata combined. Private to
 * core/grammar.
 *
 * THREAD SAFETY: a finished automaton does not change; makers from any thread. */
#ifndef INFERD_GRAMMAR_REGEX_DFA_H
#define INFERD_GRAMMAR_REGEX_DFA_H

#include "core/grammar/grammar.h"
#include "core/grammar/list_int.h"

/* State 0 is dead; from every other state acceptance can be reached (the automaton is trimmed), so
 * every walk that is not dead is a prefix of an accepted text. start 0: the empty language. */
struct dfa {
    uint32_t n_states; /* with the dead one */
    uint32_t start;
    uint32_t n_classes;
    uint8_t class_of[256]; /* bytes that no state distinguishes share a class */
    uint32_t *next;        /* (n_states, n_classes) */
    uint8_t *accept;       /* (n_states) 1: the text may end here */
    uint32_t cost;         /* of making it, in draft states */
};
static inline uint32_t dfa_step(const struct dfa *d, uint32_t state, uint8_t byte) {
    return d->next[(size_t)state * d->n_classes + d->class_of[byte]];
}
void dfa_fini(struct dfa *d); /* a zeroed one is fine */

/* All makers: *out belongs to the caller, minimal and trimmed; on failure it is untouched. They
 * spend from w (NULL: no bound). ERR_TOO_LONG beyond GRAMMAR_MAX_STATES states (intermediate ones
 * included), ERR_WORK, ERR_DEADLINE, ERR_CANCELLED, ERR_NOMEM. Texts are valid UTF-8 unless stated
 * otherwise. */
enum dfa_regex_flags { DFA_REGEX_SEARCH = 1 /* unanchored, as JSON Schema's pattern */ };
/* ERR_INVALID: malformed (with the position); ERR_UNSUPPORTED: back-references, and a look-behind
 * that contains a look-ahead or stands inside a look-ahead that is not at the start. */
int dfa_from_regex(const char *pattern, int flags, struct work *w, struct dfa *out, err *e);
struct dfa_word {
    const char *bytes;
    size_t n;
};
int dfa_from_words(const struct dfa_word *words, size_t n, struct work *w, struct dfa *out, err *e);
/* Any text of min to max code points (max GRAMMAR_UNLIMITED). */
int dfa_from_length(uint32_t min, uint32_t max, struct work *w, struct dfa *out, err *e);
/* Any bytes that contain none of the stops (grammar_until). */
int dfa_from_until(const char *const *stops, size_t n, struct work *w, struct dfa *out, err *e);
/* Content of a string of this JSON Schema format. ERR_NOT_FOUND: unknown format. */
int dfa_from_format(const char *format, struct work *w, struct dfa *out, err *e);
/* JSON texts of numbers. Bounds are JSON literals ("-1.5", "1e3", exact, any length) or NULL.
 * multiple_of likewise, > 0. integer: whole numbers, also written with ".0"; plain: whole numbers
 * without fraction and exponent, and zero without a sign. Numbers without multiple_of that need not
 * be integers may have exponents. ERR_UNSUPPORTED: multiple_of has too many digits. */
struct dfa_number {
    bool integer, plain, exclusive_min, exclusive_max;
    const char *min, *max, *multiple_of;
};
int dfa_from_number(const struct dfa_number *spec, struct work *w, struct dfa *out, err *e);
enum dfa_op { DFA_AND, DFA_OR, DFA_MINUS };
int dfa_combine(const struct dfa *a, const struct dfa *b, enum dfa_op op, struct work *w,
                struct dfa *out, err *e);
static inline bool dfa_is_empty(const struct dfa *d) {
    return d->start == 0;
}
/* Cost of a walk over the whole automaton, in units of work. */
static inline uint64_t dfa_size(const struct dfa *d) {
    return 1 + (uint64_t)d->n_states * d->n_classes / 8;
}
bool dfa_accepts(const struct dfa *d, const char *bytes, size_t n);
/* Number of texts, at most limit (limit: at least that many, possibly infinitely many). */
uint32_t dfa_count(const struct dfa *d, uint32_t limit);
/* Calls each for every text, in byte order, if there are at most limit; ERR_TOO_LONG: there are
 * more. each returns 0, or an error that ends the walk and is returned. */
int dfa_each(const struct dfa *d, uint32_t limit,
             int (*each)(void *arg, const char *bytes, size_t n), void *arg);

#endif
