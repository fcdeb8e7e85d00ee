/* nfa.h - private to core/grammar/regex: patterns as nondeterministic automata over characters with
 * assertions, and their conversion to deterministic automata over bytes. */
#ifndef INFERD_GRAMMAR_REGEX_NFA_H
#define INFERD_GRAMMAR_REGEX_NFA_H

#include "core/grammar/regex/chars.h"

enum nfa_kind {
    NFA_CHAR,     /* one character of the class index, then out */
    NFA_SPLIT,    /* out or other */
    NFA_START,    /* the text starts here, then out */
    NFA_END,      /* the text ends here, then out */
    NFA_WORD,     /* a word boundary is here, then out */
    NFA_NOT_WORD, /* no word boundary is here, then out */
    NFA_LOOK,     /* the look-around index holds here, then out */
    NFA_MATCH
};
struct nfa_node {
    uint8_t kind; /* enum nfa_kind */
    uint32_t index, out, other;
};

/* The character before a position. */
enum nfa_before { NFA_BEFORE_NONE, NFA_BEFORE_WORD, NFA_BEFORE_OTHER, NFA_N_BEFORE };

struct nfa_look {
    uint32_t start; /* node; ahead: matches the pattern, then anything; behind: anything, then the
                       pattern */
    bool behind, negative;
    bool sees_before; /* contains NFA_START, NFA_WORD, NFA_NOT_WORD or a look-behind */
    bool is_made[NFA_N_BEFORE];
    struct dfa made[NFA_N_BEFORE]; /* ahead: the rests of a text for which it holds; behind (in
                                      NFA_BEFORE_NONE only): the texts before it for which its
                                      pattern matches, also if it is negative */
    uint32_t whole[NFA_N_BEFORE];  /* state of made from which every text is accepted; 0: none */
};

struct nfa {
    G_LIST(struct nfa_node) nodes;
    G_LIST(struct dfa) classes; /* chars_dfa of each class; class 0 is every character */
    G_LIST(struct nfa_look) looks;
    uint32_t any;        /* node from which every text matches: a split to a character of class 0
                            and back, or to NFA_MATCH */
    struct dfa whole;    /* every text; made on demand */
    uint64_t work;       /* spent so far, bounded */
    struct work *budget; /* borrowed; NULL: no bound */
};
void nfa_fini(struct nfa *n);
/* The texts that match from start. ERR_UNSUPPORTED: a look-around that cannot be converted. Fills
 * nfa_look.made. */
int nfa_dfa(struct nfa *n, uint32_t start, struct dfa *out, err *e);

#endif
