/* kv_int.h - shared by the files of core/kv: pool.c (blocks, free list, copy queue), prefix.c
 * (prefix table), seq.c (block tables), state.c (state blocks), window.c (window blocks),
 * transfer.c (contents that leave and come back), check.c and check_parts.c (invariants). Private
 * to this folder.
 *
 * A block is in exactly one of these states:
 *   in use    refs > 0: that many table entries of sequences point to it
 *   pinned    refs == 0, pins > 0: source of a copy that is not enqueued yet
 *   free      refs == 0, pins == 0: in the free list
 * and, independently of that, cached (in the prefix table) or not. A cached block is never written.
 *
 * WHY A CACHED BLOCK NEVER OUTLIVES ITS PARENT. The prefix table is a forest: a cached block names
 * its parent block, which is cached too. A sequence that holds a cached block at table[i] holds its
 * parent at table[i - 1]: kv_seq_new takes whole chains, a fork copies a table's head, and
 * kv_commit replaces a block that duplicates a cached one by that one before it enters the next.
 * Sequences release blocks tail first, so a child is in the free list before (nearer to reuse than)
 * its parent, and the block taken for reuse has no cached child. A pinned block keeps its place in
 * this order: a sequence that holds the copy's destination holds the source's parent.
 *
 * A STATE BLOCK has as many references as sequences that it is source or live block of (one that is
 * both counts once), and at most one owner, a cached KV block. Without references it is in the list
 * of free ones: cached if it has an owner, else unused. A live block has one reference and no
 * owner, so nothing but its sequence reads or writes it. A source that is not also live is owned by
 * the KV block that ends at the sequence's boundary in its table: so a state in use keeps its
 * owner.
 *
 * A WINDOW BLOCK is the K/V of windowed layers of one block, its owner. It has as many references
 * as sequences that hold it, whose tables all have its owner, and as many pins as queued copies
 * from it. Without both it is in one of three lists, from which it is taken in this order: those
 * without an owner, those whose owner is cached, those of them to be kept. So a window block
 * without references whose owner is not cached does not exist: it loses its owner.
 *
 * COPIES for the KV store run beside the steps. Each block, state block and window block has the
 * number of the last batch that copies it. When it is taken for something else, or when imported
 * blocks can be found, and that batch is not known to be done, the next step waits for it on the
 * device (must_join). Copies in run after those out, in order.
 *
 * kv_check verifies these invariants. */
#ifndef INFERD_KV_INT_H
#define INFERD_KV_INT_H

#include "core/kv/kv.h"
#include "core/kv/list.h"

#include <stdatomic.h>

/* KV_NONE as a parent: the block starts a sequence. */
struct kv_block {
    uint32_t refs, pins;
    struct kv_link free; /* free list */
    uint32_t copy;       /* index of the queued copy into this block, or KV_NONE */
    bool cached;
    uint32_t state;        /* the state block that it owns, or KV_NONE (always when not cached) */
    uint32_t page;         /* its window block, or KV_NONE */
    bool kept, state_kept; /* kv_run_kept: it; the state that it owns */
    uint64_t batch;        /* the last one that copies it; 0: none */
    /* While cached: */
    uint64_t step;    /* kv.n_steps when it was entered: not before that of its parent */
    uint64_t entered; /* kv.n_entered then */
    uint64_t hash;    /* of the salt and the tokens from the sequence's start */
    struct hash128 salt;
    uint32_t parent;
    struct kv_link bucket, sibling;
    uint32_t first_child; /* most recently entered first; KV_NONE when not cached */
};

struct kv_state {
    uint32_t refs;
    uint32_t owner;      /* KV block, or KV_NONE */
    struct kv_link free; /* list of those without references */
    uint64_t step;       /* with an owner: the step that wrote it */
    uint64_t batch;      /* as in kv_block */
};

/* A window block. */
struct kv_page {
    uint32_t refs, pins;
    uint32_t owner; /* KV block, or KV_NONE */
    struct kv_link free;
    bool keep;
    uint64_t step;  /* kv.n_steps when another block's copy of it was given to its owner; else 0 */
    uint64_t batch; /* as in kv_block */
};
enum kv_page_list { KV_PAGES_UNUSED, KV_PAGES_PASSED, KV_PAGES_KEPT, KV_N_PAGE_LISTS };

struct kv_seq {
    int32_t *table;    /* (max_blocks_per_seq) */
    uint32_t n_blocks; /* entries in use */
    uint32_t n_valid;  /* tokens whose K/V are in the pools */
    struct hash128 salt;
    bool used;
    struct kv_seq *next_unused;
    /* With state layers: */
    uint32_t source, live; /* state blocks; KV_NONE when unused */
    uint32_t boundary;     /* tokens whose state the source holds; 0: it holds none */
    uint64_t source_step;  /* the step that wrote it, if it is the live block */
    enum kv_miss miss;     /* kv_seq_miss */
    uint32_t junction;     /* kv_seq_junction */
    /* With windowed layers: it holds the window blocks pages[first_page..end_page), those of the
     * same entries of table. */
    int32_t *pages;
    uint32_t first_page, end_page;
    uint32_t n_begun; /* tokens known when it began */
    bool importing;   /* kv_import_begin: its window blocks are those of its last window */
};

/* ---- miss.c ---- */

enum { KV_MISS_EVICTIONS = 8192, KV_MISS_ROOTS = 1024, KV_MISS_SCAN = 16 };

struct kv_misses {
    uint64_t evicted[KV_MISS_EVICTIONS]; /* hashes of blocks, by hash */
    struct kv_miss_root {
        uint64_t hash; /* of the tokens alone */
        struct hash128 salt;
    } roots[KV_MISS_ROOTS];
};

struct kv {
    struct kv_config config;
    struct kv_misses misses;
    struct kv_block *blocks; /* (n_blocks) */
    int32_t *tokens;         /* (n_blocks, block_tokens) ids of cached blocks */
    uint32_t *buckets;       /* (bucket_mask + 1) first block of each hash chain */
    /* (bucket_mask + 1) cached blocks without parent, linked as siblings, in a list chosen by the
     * salt's hash: two salts share a list only if their hashes collide. */
    uint32_t *roots;
    uint32_t bucket_mask;
    struct kv_list free; /* head is reused first, here as below */
    int32_t *copies;     /* (n_blocks, 2) source, destination; destinations differ */
    uint32_t n_copies;
    struct kv_seq *seqs; /* (max_seqs) */
    int32_t *tables;     /* (max_seqs, max_blocks_per_seq) */
    struct kv_seq *unused;
    struct backend_kv *layers;     /* (n_ranks, n_layers) or NULL */
    uint32_t n_ranks;              /* of config.be's group in this process */
    struct kv_state *state_blocks; /* (config.state.n_blocks) or NULL: no state layers */
    struct kv_list free_states;    /* those without references */
    struct backend_state *states;  /* (n_ranks, n_state_layers) or NULL */
    /* Window blocks; all NULL without windowed layers. */
    struct kv_page *pages; /* (config.n_window_blocks) */
    int32_t *page_tables;  /* (max_seqs, max_blocks_per_seq) */
    int32_t *page_copies;  /* (n_blocks, 2) the window blocks of copies */
    struct kv_list page_lists[KV_N_PAGE_LISTS];
    bool *windowed;                     /* (n_layers) */
    uint64_t n_steps;                   /* kv_step_begun */
    uint64_t n_batches, n_batches_done; /* kv_batch_begin; those known to be done */
    bool must_join;     /* the next step uses blocks of batches that were not known to be done */
    uint64_t n_entered; /* blocks that entered the prefix table */
    uint32_t run_at;    /* where kv_run_next looks next */
    uint32_t *scratch;  /* for kv_check: (n_blocks, 2), at least as many as state blocks */
    /* Written by the worker thread, read by any. */
    atomic_uint_fast64_t n_free, n_free_cached, n_states_free, n_states_cached;
    atomic_uint_fast64_t prefix_queries_tokens, prefix_hit_tokens, evictions, n_copied;
    atomic_uint_fast64_t unkept_evictions;
    atomic_uint_fast64_t state_evictions, stateless_tokens;
    atomic_uint_fast64_t n_pages_free, n_pages_cached, page_evictions, windowless_tokens;
};

static inline void kv_count(atomic_uint_fast64_t *counter, int64_t delta) {
    atomic_fetch_add_explicit(counter, (uint_fast64_t)delta, memory_order_relaxed);
}

static inline bool kv_block_is_free(const struct kv_block *b) {
    return b->refs == 0 && b->pins == 0;
}

static inline bool kv_page_is_free(const struct kv_page *p) {
    return p->refs == 0 && p->pins == 0;
}

/* Where a window block without references and pins waits. */
static inline enum kv_page_list kv_page_list_of(const struct kv_page *p) {
    if (p->owner == KV_NONE) return KV_PAGES_UNUSED;
    return p->keep ? KV_PAGES_KEPT : KV_PAGES_PASSED;
}

/* pool.c */
uint32_t kv_block_take(kv *c); /* the head of the free list, with one reference; n_free > 0 */
void kv_block_ref(kv *c, uint32_t b);
void kv_block_unref(kv *c, uint32_t b);
void kv_block_copy_later(kv *c, uint32_t src, uint32_t dst); /* both in use */

/* prefix.c */
void kv_prefix_init(kv *c);
/* A block's place in sequences of salt: after parent, or at the start (KV_NONE). */
struct kv_place {
    uint32_t parent;
    struct hash128 salt;
};
uint64_t kv_prefix_hash(const kv *c, struct kv_place at, const int32_t *tokens); /* a whole block */
/* The head of the list of cached blocks at this place. */
uint32_t *kv_prefix_siblings(const kv *c, struct kv_place at);
/* The cached block at this place with these block_tokens tokens, or KV_NONE. */
uint32_t kv_prefix_lookup(const kv *c, struct kv_place at, const int32_t *tokens);
/* The cached block at the place that matches most of tokens[0..n), at most n - 1 of them. A whole
 * block is always found; a partial match only among the PREFIX_SCAN most recently entered children
 * of the place. *n_match is 1..block_tokens; KV_NONE if nothing matches. */
uint32_t kv_prefix_match(const kv *c, struct kv_place at, const int32_t *tokens, uint32_t n,
                         uint32_t *n_match);
void kv_prefix_enter(kv *c, uint32_t b, struct kv_place at, const int32_t *tokens);
void kv_prefix_remove(kv *c, uint32_t b); /* b has no cached child; its state is disowned */

/* seq.c */
/* What a new sequence would find in whole blocks, in tokens. */
uint32_t kv_whole_hit(const kv *c, const struct kv_prompt *p);

/* state.c */
int kv_states_open(kv *c, err *e); /* c->n_ranks is set */
void kv_states_close(kv *c);       /* after a kv_states_open that failed, too */
/* For a new sequence whose hit ends at boundary: its source is `source` (KV_NONE: there is none),
 * its live block is taken from the list. false: nothing is free, nothing changed. */
bool kv_states_begin(kv *c, kv_seq *s, uint32_t source, uint32_t boundary);
void kv_states_end(kv *c, kv_seq *s);
void kv_state_disown(kv *c, uint32_t b);           /* KV block b owns a state: not any more */
void kv_state_touch(kv *c, uint32_t b);            /* its state, if it owns one, is used now */
void kv_states_forget(kv *c, uint64_t done);       /* those that steps after `done` wrote */
bool kv_state_unused(const kv *c, uint32_t state); /* has no references */

/* window.c: each does nothing without windowed layers, unless it says otherwise */
int kv_windows_open(kv *c, err *e);
void kv_windows_close(kv *c); /* after a kv_windows_open that failed, too */
/* The first block that the row at position n_tokens needs; with windowed layers only. */
uint32_t kv_window_first(const kv *c, uint32_t n_tokens);
/* A new sequence, whose table has the blocks of n_valid tokens, takes the window blocks that they
 * must have. */
void kv_window_begin(kv *c, kv_seq *s, uint32_t n_begun);
void kv_window_end(kv *c, kv_seq *s);                 /* before its blocks are released */
void kv_window_pass(kv *c, kv_seq *s);                /* n_valid has grown */
void kv_window_release(kv *c, kv_seq *s, uint32_t i); /* gives back that of entry i, an end's */
/* Entry i of the table, which is copied later, becomes the new block b; the copy is the queue's
 * last. */
void kv_window_copy_later(kv *c, kv_seq *s, uint32_t i, uint32_t b);
/* Entry i of the table becomes twin, a cached block with the same contents. */
void kv_window_replace(kv *c, kv_seq *s, uint32_t i, uint32_t twin);
void kv_window_uncached(kv *c, uint32_t b);   /* block b leaves the prefix table */
void kv_windows_forget(kv *c, uint64_t done); /* those that blocks got in steps after `done` */
void kv_window_unpin(kv *c, uint32_t copy);   /* the queue's entry is over */

/* check_parts.c */
int kv_check_states(const kv *c, uint32_t *scratch, err *e);
int kv_check_windows(const kv *c, uint32_t *scratch, err *e);
#define KV_FAIL_IF(cond, ...)                                                                      \
    do {                                                                                           \
        if (cond) return err_set(e, ERR_INVALID, "kv: " __VA_ARGS__);                              \
    } while (0)

/* Where the cached chain of a prompt ends: the place of the next block, after n_found tokens, of
 * which the last in_block ones are the beginning of a cached block; n_usable: without what lacks a
 * state or window. */
struct kv_chain_end {
    struct kv_place at;
    uint32_t n_found, n_usable;
    bool in_block;
};
enum kv_miss kv_miss_find(const kv *c, const struct kv_prompt *p, const struct kv_chain_end *end);
void kv_miss_note_evicted(kv *c, uint64_t hash);
/* A block without parent was entered. */
void kv_miss_note_root(kv *c, struct hash128 salt, const int32_t *tokens);

/* ---- transfer.c ---- */

/* A step will write what this batch copies, or read it: it waits unless the batch is done. */
void kv_await_batch(kv *c, uint64_t batch);
int kv_batches_join(kv *c, err *e);

#endif
