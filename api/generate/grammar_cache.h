/* grammar_cache.h - recently made grammars, by a text that describes what they were made of. Any
 * thread. */
#ifndef INFERD_API_GENERATE_GRAMMAR_CACHE_H
#define INFERD_API_GENERATE_GRAMMAR_CACHE_H

#include "core/base/work.h"
#include "core/grammar/grammar.h"

typedef struct grammar_cache grammar_cache;
grammar_cache *grammar_cache_new(void); /* NULL: out of memory */
void grammar_cache_free(grammar_cache *c);

/* One thread's claim to make the grammar of a key; on its stack. */
struct grammar_claim {
    const char *key; /* borrowed until grammar_cache_end */
    struct grammar_claim *next;
};
enum grammar_found {
    GRAMMAR_FOUND,  /* *g, which the caller releases */
    GRAMMAR_FAILED, /* it cannot be made: e says why */
    GRAMMAR_MINE,   /* the caller makes it and ends the claim; other threads wait meanwhile */
    GRAMMAR_BUSY    /* another thread is making it */
};
/* wait: waits until another thread has made it, or this work is refused; NULL: does not wait. */
enum grammar_found grammar_cache_begin(grammar_cache *c, struct grammar_claim *claim,
                                       struct work *wait, grammar **g, err *e);
/* Keeps g, or the failure, or (both NULL) nothing. If memory is short, nothing is kept. */
void grammar_cache_end(grammar_cache *c, struct grammar_claim *claim, const grammar *g,
                       const err *why);

#endif
