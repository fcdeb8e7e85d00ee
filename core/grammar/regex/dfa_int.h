/* dfa_int.h - private to core/grammar/regex: how automata are made. A draft (states and edges, in
 * any shape) becomes the minimal automaton; interning gives sets of states their numbers. */
#ifndef INFERD_GRAMMAR_REGEX_DFA_INT_H
#define INFERD_GRAMMAR_REGEX_DFA_INT_H

#include "core/grammar/regex/dfa.h"

enum {
    DFA_MAX_EDGES = 1 << 23, /* of a draft: 64 MiB */
    DFA_MAX_CELLS = 1 << 24, /* of a table under construction: 64 MiB */
    DFA_MAX_WORDS = 1 << 23  /* of all keys of an intern: 64 MiB */
};

int dfa_too_large(err *e); /* ERR_TOO_LONG, with the bound in words */
/* Fills e with the text for rc: ERR_TOO_LONG, ERR_WORK, ERR_DEADLINE, ERR_CANCELLED, otherwise
 * ERR_NOMEM. Returns the code. */
int dfa_failure(int rc, err *e);

/* An automaton under construction. State 0 is dead and exists from the start; edges to it are not
 * stored. Deterministic: at most one edge per state and class. The first failure is kept. */
struct dfa_edge {
    uint32_t from;
    uint32_t class_to; /* class << 24 | to */
};
struct dfa_draft {
    uint32_t n_states, start, n_classes;
    uint8_t class_of[256];
    uint8_t *accept; /* (n_states) */
    struct dfa_edge *edges;
    uint32_t n_edges, states_capacity, edges_capacity;
    struct work *work; /* borrowed; NULL: no bound */
    int failed;        /* an err_code */
};
void dfa_draft_init(struct dfa_draft *d, struct work *w); /* every byte is a class of its own */
void dfa_draft_fini(struct dfa_draft *d);
/* Only the bytes in used keep a class of their own; all others, if any, share one. */
void dfa_draft_use_bytes(struct dfa_draft *d, const bool used[256]);
/* Charges work that adds no states or edges. false: refused, and the draft has failed. */
bool dfa_draft_spend(struct dfa_draft *d, uint64_t units);
uint32_t dfa_draft_state(struct dfa_draft *d, bool accept); /* 0: failed */
void dfa_draft_edge(struct dfa_draft *d, uint32_t from, uint8_t class, uint32_t to);
/* Trims, minimises, merges classes and numbers the states canonically, so that equal languages give
 * equal structs. Frees d, also on failure. */
int dfa_draft_finish(struct dfa_draft *d, struct dfa *out, err *e);

/* Numbers for keys of 64-bit words: the first key is 0, the next new one 1, ... */
struct dfa_intern {
    uint64_t *words, *ends; /* (n_words), (n): where key i ends in words */
    uint32_t *slots;        /* (n_slots) 1 + id; 0: free */
    uint64_t n_words, words_capacity;
    uint32_t n, ends_capacity, n_slots;
};
void dfa_intern_fini(struct dfa_intern *t); /* a zeroed one is empty and fine */
/* ERR_TOO_LONG beyond GRAMMAR_MAX_STATES keys or DFA_MAX_WORDS words, ERR_NOMEM. */
int dfa_intern_add(struct dfa_intern *t, const uint64_t *key, uint32_t n, uint32_t *id);
/* Valid until the next key is added. */
const uint64_t *dfa_intern_key(const struct dfa_intern *t, uint32_t id, uint32_t *n);

#endif
