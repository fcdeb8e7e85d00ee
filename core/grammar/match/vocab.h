/* vocab.h - private to core/grammar/match: a model's tokens, indexed for masks (a trie of all
 * tokens, sets of plain tokens, the tokens that contain a byte), and the cache of masks.
 *
 * THREAD SAFETY: a vocabulary does not change; the cache has a mutex. */
#ifndef INFERD_GRAMMAR_MATCH_VOCAB_H
#define INFERD_GRAMMAR_MATCH_VOCAB_H

#include "core/grammar/match/machine.h"

#include <pthread.h>

enum {
    VOCAB_MAX_TOKEN = 512, /* bytes; longer tokens are never allowed */
    VOCAB_MAX_PLAIN = 16,  /* code points of a plain token; longer ones are in not_plain */
    CACHE_MAX_FRAMES = 48  /* states of more frames are not cached */
};

/* In depth-first order: the children of a node follow it, its subtree ends before end. */
struct trie_node {
    uint32_t end;
    int32_t token;  /* -1: none ends here; others with the same bytes follow by vocab's same */
    uint16_t depth; /* a root's is 1 */
    uint8_t byte;
};
struct trie {
    struct trie_node *nodes;
    uint32_t n;
};

/* State of a matcher as a key: equal keys mean equal states of one grammar. */
struct cache_key {
    const void *grammar;
    uint64_t serial;
    uint32_t n_set, n_frames; /* the set, then the frames below it */
    struct frame frames[CACHE_MAX_FRAMES];
};

struct cache_entry {
    uint64_t hash;
    uint32_t next; /* of the same chain, 1 + index; 0: the last */
    bool filled, recently_used;
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
    uint64_t *starts;          /* (n_vocab + 1) offsets in bytes */
    int32_t *same;             /* (n_vocab) the next token of the same bytes; -1: none */
    uint32_t *all, *ends;      /* masks: tokens with bytes; end tokens */
    struct trie trie;          /* of all tokens with bytes */
    struct trie not_plain;     /* tokens that are not plain but may occur within a JSON string */
    uint32_t *plain; /* (VOCAB_MAX_PLAIN + 1, n_words) masks: tokens of at most k code points, all
                        whole and written unescaped in a JSON string */
    uint32_t byte_first[257]; /* byte_tokens of tokens with byte b: from byte_first[b] on */
    int32_t *byte_tokens;
    struct mask_cache cache;
};

static inline uint32_t vocab_token_bytes(const struct grammar_vocab *v, uint32_t id,
                                         const uint8_t **bytes) {
    *bytes = v->bytes + v->starts[id];
    return (uint32_t)(v->starts[id + 1] - v->starts[id]);
}

/* Scratch of a mask computation, beside the machine. */
struct mask_work {
    /* For each depth of the current path of the trie: */
    uint32_t first[VOCAB_MAX_TOKEN + 1];    /* the set's position in the pool */
    uint32_t ends[VOCAB_MAX_TOKEN + 1];     /* and its end */
    uint32_t frames[VOCAB_MAX_TOKEN + 1];   /* size of the arena */
    uint32_t states[VOCAB_MAX_TOKEN + 1];   /* state of the automaton (walk_automaton) */
    struct frame path[VOCAB_MAX_TOKEN + 1]; /* the single frame (walk_alone) */
    uint8_t bytes[VOCAB_MAX_TOKEN + 1];     /* the node's byte */
    uint32_t *mask;                         /* (n_words) of one frame */
};

/* mask.c: sets the bits of all tokens that are allowed in the state set, clears the others. Leaves
 * pool and arena unchanged. */
void mask_compute(struct machine *m, const struct grammar_vocab *v, struct mask_work *work,
                  const struct frame *set, uint32_t n, uint32_t *mask);

/* cache.c */
int cache_init(struct mask_cache *c, uint64_t bytes, uint32_t n_words); /* ERR_NOMEM */
void cache_fini(struct mask_cache *c);
/* false: too large to be cached. */
bool cache_make_key(const struct machine *m, const struct frame *set, uint32_t n,
                    struct cache_key *key);
/* Counts the request. key NULL: the state has none. */
bool cache_find(struct mask_cache *c, const struct cache_key *key, uint32_t *mask);
void cache_put(struct mask_cache *c, const struct cache_key *key, const uint32_t *mask);

#endif
