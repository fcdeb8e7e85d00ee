/* bpe_int.h - what the models of words share: byte-pair encoding (bpe.c), WordPiece and Unigram
 * (words.c). Private to these two. */
#ifndef INFERD_TOKENIZER_BPE_INT_H
#define INFERD_TOKENIZER_BPE_INT_H

#include "core/tokenizer/bpe.h"
#include "core/tokenizer/tokenizer_int.h"

struct merge_slot {
    int32_t left, right; /* left NO_ID: empty */
    uint32_t rank;
    int32_t result;
};

struct bpe {
    const struct tokenizer *t;
    struct bpe_rules rules;
    struct merge_slot *merges; /* (merge_mask + 1) */
    uint32_t merge_mask;
    int32_t *texts; /* (text_mask + 1) ids by the hash of their bytes, NO_ID: empty */
    uint32_t text_mask;
    int32_t units[256]; /* tokens of the bytes: byte-level units, or byte fallback */
    int32_t unk;
    bool scored;       /* merges come from scores */
    bool cuts_at_mark; /* no token spans the position before a space mark */
    float *scores;     /* (n_tokens) of Unigram, else NULL */
    double unk_score;  /* of Unigram */
};

/* Doubly linked units of one piece; the first one is never removed. */
struct unit {
    int32_t id; /* NO_ID: merged into the previous one */
    uint32_t previous, next;
    uint32_t rank; /* of the merge with the next one, NO_RANK: none */
    int32_t result;
};

/* The best way to a position of a word: its last token, and where that begins. */
struct word_node {
    double score;
    size_t start;
    int32_t id; /* NO_ID: no way is known yet */
};

struct bpe_work {
    struct pretok_work pretok;
    struct unit *units; /* (capacity) */
    uint64_t *heap;     /* (heap_capacity) rank << 32 | index of the unit */
    size_t capacity, n_heap, heap_capacity;
    str marked;              /* text with spaces replaced by marks */
    struct word_node *nodes; /* (n_nodes) of Unigram */
    size_t n_nodes;
};

enum { NO_ID = -1 };

/* The token with this text, NO_ID: none. */
int32_t bpe_find_text(const struct bpe *b, const char *text, size_t n);

/* Sets scores and unk_score. */
int unigram_init(struct bpe *b, const struct vocab *v, err *e);
/* Append the ids of a word. */
int wordpiece_encode(const struct bpe *b, const char *text, size_t n, struct id_list *out, err *e);
int unigram_encode(const struct bpe *b, struct bpe_work *w, const char *text, size_t n,
                   struct id_list *out, err *e);

#endif
