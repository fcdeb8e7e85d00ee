/* dfa_int.h - how automata are made: a draft (states and edges, in any shape) becomes the minimal
 * automaton; sets of things get numbers. Private to core/grammar's automata. */
#ifndef INFERD_GRAMMAR_REGEX_DFA_INT_H
#define INFERD_GRAMMAR_REGEX_DFA_INT_H

#include "core/grammar/regex/dfa.h"

enum {
    DFA_MAX_EDGES = 1 << 23, /* of a draft: 64 MiB */
    DFA_MAX_CELLS = 1 << 24, /* of a table while it is made: 64 MiB */
    DFA_MAX_WORDS = 1 << 23  /* of all keys of an intern: 64 MiB */
};

int dfa_too_large(err *e); /* ERR_TOO_LONG, with the bound in words */
int dfa_no_memory(err *e);
/* rc in words: ERR_TOO_LONG, ERR_WORK, ERR_DEADLINE, ERR_CANCELLED, else ERR_NOMEM. Returns it. */
int dfa_failure(int rc, err *e);

/* An automaton while it is made. State 0 is dead and there from the start; edges to it are not
 * added. Deterministic: one edge of a state for one class at most. The first failure stays. */
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
/* Only the bytes of used keep a class of their own; all others share one, if there are any. */
void dfa_draft_use_bytes(struct dfa_draft *d, const bool used[256]);
/* false: refused, which is the draft's failure. For work that adds no states or edges. */
bool dfa_draft_spend(struct dfa_draft *d, uint64_t units);
uint32_t dfa_draft_state(struct dfa_draft *d, bool accept); /* 0: failed */
void dfa_draft_edge(struct dfa_draft *d, uint32_t from, uint8_t class, uint32_t to);
/* Trims, minimises, merges classes and numbers the states in one order, so that equal languages
 * become equal structs. Takes d's memory in any case. */
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
