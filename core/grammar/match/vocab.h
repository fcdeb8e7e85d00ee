/* vocab.h - a model's tokens, sorted for masks: a trie of all, those that are plain characters, and
 * which token has which byte. And the masks that are kept. Private to core/grammar.
 *
 * THREAD SAFETY: a vocabulary does not change; the cache has its mutex. */
#ifndef INFERD_GRAMMAR_MATCH_VOCAB_H
#define INFERD_GRAMMAR_MATCH_VOCAB_H

#include "core/grammar/match/machine.h"

#include <pthread.h>

enum {
    VOCAB_MAX_TOKEN = 512, /* bytes; longer tokens never come */
    VOCAB_MAX_PLAIN = 16,  /* code points of a plain token; longer ones are walked */
    CACHE_MAX_FRAMES = 48  /* states of more frames are not kept */
};

/* Depth first: the children of a node follow it, its subtree ends at end. */
struct trie_node {
    uint32_t end;
    int32_t token;  /* -1: none ends here; more of the same bytes: vocab's same */
    uint16_t depth; /* a root's is 1 */
    uint8_t byte;
};
struct trie {
    struct trie_node *nodes;
    uint32_t n;
};

/* State of a matcher as a key: equal keys are equal states of one grammar. */
struct cache_key {
    const void *grammar;
    uint64_t serial;
    uint32_t n_set, n_frames; /* the set, then what it stands on */
    struct frame frames[CACHE_MAX_FRAMES];
};

struct cache_entry {
    uint64_t hash;
    uint32_t next; /* of the same chain, 1 + index; 0: the last */
    bool filled, used_lately;
    struct cache_key key;
};

struct mask_cache {
    pthread_mutex_t lock; /* guards all below */
    struct cache_entry *entries;
    uint32_t *masks; /* (n_entries, n_words) */
    uint32_t *heads; /* (n_entries) chains, 1 + index */
    uint32_t n_entries, n_words, hand;
    uint64_t n_masks, n_hits;
};

struct grammar_vocab {
    uint32_t n_vocab, n_words; /* words of a mask */
    uint8_t *kinds;            /* (n_vocab) enum grammar_token_kind */
    uint8_t *bytes;            /* of all tokens, control tokens with GRAMMAR_CONTROL */
    uint64_t *starts;          /* (n_vocab + 1) in bytes; no bytes: never comes by them */
    int32_t *same;             /* (n_vocab) the next token of the same bytes; -1: none */
    uint32_t *all, *ends;      /* masks: tokens with bytes; end tokens */
    struct trie trie;          /* of all tokens with bytes */
    struct trie not_plain;     /* what is not plain, but can come within a JSON string */
    uint32_t *plain; /* (VOCAB_MAX_PLAIN + 1, n_words) tokens of at most k plain code points: as
                        they stand within a JSON string, each character whole */
    uint32_t byte_first[257]; /* byte_tokens of byte b: [byte_first[b], byte_first[b + 1]) */
    int32_t *byte_tokens;
    struct mask_cache cache;
};

static inline uint32_t vocab_token_bytes(const struct grammar_vocab *v, uint32_t id,
                                         const uint8_t **bytes) {
    *bytes = v->bytes + v->starts[id];
    return (uint32_t)(v->starts[id + 1] - v->starts[id]);
}

/* What a mask needs besides the machine. */
struct mask_work {
    uint32_t first[VOCAB_MAX_TOKEN + 1]; /* along a path of the trie: the set's place in the pool */
    uint32_t ends[VOCAB_MAX_TOKEN + 1];
    uint32_t frames[VOCAB_MAX_TOKEN + 1];   /* the arena's size with it */
    uint32_t states[VOCAB_MAX_TOKEN + 1];   /* likewise, of an automaton */
    struct frame path[VOCAB_MAX_TOKEN + 1]; /* along a path, while there is one frame */
    uint8_t bytes[VOCAB_MAX_TOKEN + 1];     /* along a path, of its nodes */
    uint32_t *mask;                         /* (n_words) of one frame */
};

/* mask.c: sets the bits of all tokens that may come where a text stands in set; the others are
 * cleared. Leaves pool and arena as they were. */
void mask_compute(struct machine *m, const struct grammar_vocab *v, struct mask_work *work,
                  const struct frame *set, uint32_t n, uint32_t *mask);

/* cache.c */
int cache_init(struct mask_cache *c, uint64_t bytes, uint32_t n_words); /* ERR_NOMEM */
void cache_fini(struct mask_cache *c);
/* false: too large to be kept. */
bool cache_make_key(const struct machine *m, const struct frame *set, uint32_t n,
                    struct cache_key *key);
/* Counts. key NULL: the state has none. */
bool cache_find(struct mask_cache *c, const struct cache_key *key, uint32_t *mask);
void cache_put(struct mask_cache *c, const struct cache_key *key, const uint32_t *mask);

#endif
