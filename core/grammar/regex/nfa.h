/* nfa.h - patterns as nondeterministic automata over characters with assertions, and their
 * language as a deterministic automaton over bytes. Private to core/grammar. */
#ifndef INFERD_GRAMMAR_REGEX_NFA_H
#define INFERD_GRAMMAR_REGEX_NFA_H

#include "core/grammar/regex/chars.h"

enum nfa_kind {
    NFA_CHAR,     /* one character of the class index, then out */
    NFA_SPLIT,    /* out or other */
    NFA_START,    /* the text starts here, then out */
    NFA_END,      /* the text ends here, then out */
    NFA_WORD,     /* a border of a word is here, then out */
    NFA_NOT_WORD, /* none is here, then out */
    NFA_LOOK,     /* the look-around index holds here, then out */
    NFA_MATCH
};
struct nfa_node {
    uint8_t kind; /* enum nfa_kind */
    uint32_t index, out, other;
};

/* What is known of the character before a place. */
enum nfa_before { NFA_BEFORE_NONE, NFA_BEFORE_WORD, NFA_BEFORE_OTHER, NFA_N_BEFORE };

struct nfa_look {
    uint32_t start; /* ahead: from here the pattern and then anything is matched; behind: anything
                       and then the pattern */
    bool behind, negative;
    bool sees_before; /* has NFA_START, NFA_WORD, NFA_NOT_WORD or looks behind inside */
    bool is_made[NFA_N_BEFORE];
    struct dfa made[NFA_N_BEFORE]; /* ahead: the rests of a text for which it holds; behind, in
                                      NFA_BEFORE_NONE alone: the texts before it for which it
                                      would hold if it were not negative */
    uint32_t whole[NFA_N_BEFORE];  /* state of made from which every text is taken; 0: none */
};

struct nfa {
    G_LIST(struct nfa_node) nodes;
    G_LIST(struct dfa) classes; /* chars_dfa of each class; class 0 is every character */
    G_LIST(struct nfa_look) looks;
    uint32_t any;        /* node from which every text is matched: a split to a character of class 0
                            and back, or to NFA_MATCH */
    struct dfa whole;    /* every text; made on the way */
    uint64_t work;       /* done so far, bounded */
    struct work *budget; /* borrowed; NULL: no bound */
};
void nfa_fini(struct nfa *n);
/* Texts that are matched from start. ERR_UNSUPPORTED: a look-around in a place where it is beyond
 * us. Fills nfa_look.made on the way. */
int nfa_dfa(struct nfa *n, uint32_t start, struct dfa *out, err *e);

#endif
