/* kv.h - the shared paged KV cache: blocks, block tables, prefix reuse, the K/V pools, and the
 * state blocks of recurrent layers.
 *
 * All memory is allocated in kv_open; afterwards nothing allocates and every call except kv_check
 * is O(1) or O(blocks touched). A block holds block_tokens tokens of every layer. Blocks are
 * reference counted. A full block whose tokens are known is entered in a prefix table under the
 * chained hash of its tokens and its parent (token ids are compared on a hit: a collision is a
 * miss). Each chain starts from a salt, which is compared too: sequences of different salts share
 * nothing, and cannot observe each other's blocks in the table. A block without references keeps
 * its contents and waits in the free list, oldest first: a prefix hit can revive it until it is
 * reused (LRU; a sequence's blocks are freed tail first, so a prefix outlives its continuations;
 * blocks that are not in the table are reused before all others). Writing into a block that has
 * another reference copies it first (copy-on-write).
 *
 * Contents are valid up to the last kv_commit: a block enters the prefix table when the step that
 * writes it is committed.
 *
 * STATE BLOCKS (n_state_layers > 0; core/backend/state_layout.h says what one holds). Each sequence
 * has a live block of its own, and a source, which may be the same one. A cached KV block may own a
 * state block: the state after its last token, a boundary (the chunk is block_tokens). A prompt's
 * hit is then the deepest cached block that owns a state, whole blocks only; the sequence shares
 * that state as its source. State blocks are counted, evicted (LRU) and sized apart from K/V: a KV
 * block whose state is evicted stays, a state whose KV block leaves the prefix table is free. The
 * state behind the system's messages is used by every hit behind it (kv_prompt.n_system), so that
 * the states of a long conversation do not evict what other conversations need. A sequence that
 * ends leaves the state of its last boundary to the KV block there, at no cost.
 *
 * WINDOW BLOCKS (window > 0). Layers that attend to the last `window` tokens only keep their K/V in
 * a pool of their own, in blocks of the same number of tokens. A block of the cache has at most one
 * window block; a sequence holds those of the blocks in its window and of the rows of its next
 * step, and gives them back as the window passes. A window block without references keeps its
 * contents as long as its block stays in the prefix table and it is not reused: a prompt's hit is
 * then the deepest cached block before which the whole window has its window blocks. Those that a
 * later prompt is likely to need, in the last two windows of a prompt and those that were hit, are
 * reused after the others. With kv_window_least window blocks every step finds enough.
 *
 * THREAD SAFETY: the worker thread only; kv_stats_get may be called from any thread (relaxed
 * counters). */
#ifndef INFERD_KV_H
#define INFERD_KV_H

#include "core/backend/kv_layout.h"
#include "core/backend/state_layout.h"
#include "core/base/err.h"
#include "core/base/kv_event.h"
#include "core/base/siphash.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct kv kv;
typedef struct kv_seq kv_seq; /* one sequence's block table, from a fixed pool of max_seqs */

struct kv_heads {
    uint32_t n_kv_heads, head_dim;
};

struct kv_config {
    /* Where the pools are; in a group every rank has pools with the same blocks. NULL: book-keeping
     * only (scheduler tests). */
    backend *be;
    /* Layers with attention; 0 if there are state layers only: block tables keep the books. */
    uint32_t n_layers, n_kv_heads, head_dim; /* n_kv_heads of each rank */
    uint32_t v_dim;                          /* as in struct backend_kv */
    /* Heads of each layer, (n_layers), on each rank; read by kv_open, kv_block_bytes and
     * kv_window_bytes only. NULL: all as above */
    const struct kv_heads *heads;
    int kv_type;             /* one that backend_kv can hold */
    uint32_t n_state_layers; /* recurrent layers; 0: no state blocks */
    /* With state layers: the shape of each rank and n_blocks, at least 2; chunk is block_tokens. */
    struct backend_state state;
    /* Which of the layers are windowed, (n_layers); read by kv_open, kv_block_bytes and
     * kv_window_bytes only. NULL, or window 0: none */
    const bool *windowed;
    uint32_t window;          /* tokens that windowed layers see */
    uint32_t n_window_blocks; /* with windowed layers: 1 to n_blocks */
    uint32_t n_blocks;        /* of the whole cache */
    uint32_t block_tokens;    /* power of two: 16 or 32 */
    uint32_t max_seqs;
    uint32_t max_blocks_per_seq; /* table stride */
    bool prefix_cache;           /* false: never share between requests */
    /* Is told of blocks that enter and leave the prefix cache, of those whose salt is zero: others
     * are not what a prompt's tokens alone can find. Not with state layers or windowed ones, where
     * a block does not say how much of a prompt can be used. */
    struct kv_listener listener;
};

int kv_open(const struct kv_config *config, kv **out, err *e);
void kv_close(kv *c);
/* Bytes of a block on one rank: K and, if it has pools, V of all layers that are not windowed.
 * UINT64_MAX: overflow, or an unusable kv_type. */
uint64_t kv_block_bytes(const struct kv_config *config);
/* Likewise of a window block: all windowed layers; 0 without. */
uint64_t kv_window_bytes(const struct kv_config *config);
/* Window blocks that n_seqs sequences and the n_rows rows of a step use at most. */
uint64_t kv_window_least(uint32_t window, uint32_t block_tokens, uint32_t n_seqs, uint32_t n_rows);
/* Bytes of a state block on one rank, all layers; 0 without state layers. UINT64_MAX: overflow, or
 * a shape that the backend does not support. */
uint64_t kv_state_bytes(const struct kv_config *config);
/* Longest sequence that fits the empty cache and a block table. */
uint32_t kv_max_tokens(const kv *c);
const struct backend_kv *kv_layers(const kv *c);    /* (n_local, n_layers); NULL when be was NULL */
const struct backend_state *kv_states(const kv *c); /* (n_local, n_state_layers); NULL: none */
uint32_t kv_block_tokens(const kv *c);
bool kv_has_states(const kv *c);      /* n_state_layers is not 0 */
bool kv_has_windows(const kv *c);     /* some layers are windowed */
bool kv_shares_prefixes(const kv *c); /* prefix_cache */
/* Are there enough window blocks for n_seqs sequences and steps of n_rows rows? true without
 * windowed layers. */
bool kv_windows_suffice(const kv *c, uint32_t n_seqs, uint32_t n_rows);

/* A sequence's prompt, tokens[0..n), and the salt that limits who may share its blocks. */
struct kv_prompt {
    const int32_t *tokens; /* (n) */
    uint32_t n;
    struct hash128 salt; /* blocks are shared only among sequences of the same salt */
    /* A hit of at least as many tokens also counts as a use of the state at the last boundary up to
     * here, as if it ended there. 0: none */
    uint32_t n_system;
};

/* A new sequence. Reuses the longest cached prefix, at most n - 1 tokens (the last prompt token
 * must be computed for its logits). Its last block may match in part: it is shared until written
 * (copy-on-write), and searched among the 16 newest continuations of the prefix. *n_cached tokens
 * need no computation. With state layers whole blocks are reused, up to the deepest that owns a
 * state. NULL: all max_seqs are in use, or too few state blocks are free (kv_prompt_need). */
kv_seq *kv_seq_new(kv *c, const struct kv_prompt *p, uint32_t *n_cached);

/* Blocks that kv_seq_new(p) and then kv_seq_reserve(n_cached, n_tokens) would take from the
 * free lists: new ones and cached ones without references. Changes nothing. */
struct kv_need {
    uint32_t blocks; /* of kv_n_free */
    uint32_t states; /* of kv_n_states_free; the reservation takes none */
};
struct kv_need kv_prompt_need(const kv *c, const struct kv_prompt *p, uint32_t n_tokens);

/* Tokens of the prompt that were cached as K/V when the sequence began, in whole blocks, if that
 * is more than the hit for want of a state; otherwise 0. Here the prompt leaves a cached chain. */
uint32_t kv_seq_junction(const kv_seq *s);
/* Why kv_seq_new found no more cached tokens. A guess by bounded tables; costs a few lookups. */
enum kv_miss {
    KV_MISS_NONE,    /* it found all that can be, or less than a block of tokens is left */
    KV_MISS_NEW,     /* what was cached ended: the rest is new */
    KV_MISS_EMPTY,   /* nothing was cached */
    KV_MISS_EVICTED, /* the next block was, but was evicted */
    KV_MISS_TENANT,  /* the first block was, but of another salt */
    KV_MISS_STATE,   /* K/V of more tokens were, but no state or window */
    KV_MISS_DIFFERS, /* other tokens follow in the cache */
    KV_N_MISSES
};
enum kv_miss kv_seq_miss(const kv_seq *s);

/* A sequence that shares the first n_tokens of src (all computed) and its salt. NULL: all max_seqs
 * are in use. Only if kv_can_fork. */
kv_seq *kv_seq_fork(kv *c, const kv_seq *src, uint32_t n_tokens);

/* Not with state layers, with which a new sequence finds what src left in the prefix table, and not
 * if window blocks before n_tokens are gone. */
bool kv_can_fork(const kv *c, const kv_seq *src, uint32_t n_tokens);

/* As kv_prompt_need, for kv_seq_fork(src, n_shared) and then kv_seq_reserve(n_shared, n_tokens)
 * while src lives; n_shared < n_tokens. */
uint32_t kv_fork_need(const kv *c, uint32_t n_shared, uint32_t n_tokens);

/* Makes positions first_write..n_tokens-1 writable: allocates blocks up to n_tokens and resolves
 * copy-on-write. first_write is at or after the valid end (of the cached, forked or committed
 * tokens). All or nothing: ERR_FULL (not enough free blocks) and ERR_TOO_LONG (max_blocks_per_seq)
 * leave seq unchanged. Copies of shared blocks are queued, their sources kept; kv_flush_copies must
 * run before the step's forward pass. Succeeds exactly when kv_seq_need is not above kv_n_free. */
int kv_seq_reserve(kv *c, kv_seq *s, uint32_t first_write, uint32_t n_tokens);

/* Blocks that kv_seq_reserve(first_write, n_tokens) would take from the free list. */
uint32_t kv_seq_need(const kv *c, const kv_seq *s, uint32_t first_write, uint32_t n_tokens);

/* Before a step that writes positions up to n_tokens, which are reserved: gives their blocks window
 * blocks. The number of sequences and rows must be within kv_windows_suffice. Nothing without
 * windowed layers. */
void kv_window_reserve(kv *c, kv_seq *s, uint32_t n_tokens);

/* After a failed step: gives back the window blocks of rows that were not computed. */
void kv_window_trim(kv *c, kv_seq *s, uint32_t n_computed);

/* Tokens [0, n_computed) of seq (ids in tokens) are valid in the pools, or will be before any later
 * step reads them: full blocks become shareable. A block that equals a cached one is replaced by
 * that one, so the block table may change. */
void kv_commit(kv *c, kv_seq *s, const int32_t *tokens, uint32_t n_computed);

/* A step begins: what the cache learns from here on, up to the next call, depends on it. */
void kv_step_begun(kv *c);

/* The last n_steps steps that began have failed, and every sequence is gone: forgets the blocks,
 * states and window blocks that depend on them. What came before stays cached. */
void kv_forget_steps(kv *c, uint32_t n_steps);

/* With state layers, after the kv_commit of a step, even if that knew fewer tokens: the step's
 * states are those after n_computed tokens. The sequence's source is now that of the last boundary.
 * keep: if n_computed is a boundary, the KV block that ends there is in the prefix table and owns
 * no state, and a state block is free or cached, then that KV block owns the state from now on. */
void kv_states_advance(kv *c, kv_seq *s, uint32_t n_computed, bool keep);

/* A step of the sequence failed, so its live block may hold anything: only kv_seq_free may follow.
 * A source that is not the live block was not written and stays valid. */
void kv_states_lost(kv *c, kv_seq *s);

/* The sequence's row of a step's state tables: source and live block. */
void kv_state_ids(const kv_seq *s, int32_t ids[2]);

/* Drops the sequence's references (tail first) and returns it to the pool. If the KV block at its
 * last boundary is in the prefix table and owns no state, it owns this sequence's from now on. NULL
 * is fine. */
void kv_seq_free(kv *c, kv_seq *s);

/* Blocks that kv_seq_free may leave free at most: the table's, and the source of a queued copy into
 * them that nothing else holds. */
uint32_t kv_seq_n_held(const kv *c, const kv_seq *s);

/* Slot of a reserved position; the table row (max_blocks_per_seq entries, unused ones 0). */
int32_t kv_slot(const kv *c, const kv_seq *s, uint32_t pos);
const int32_t *kv_table(const kv_seq *s);
uint32_t kv_seq_n_blocks(const kv_seq *s);
/* The same in windowed layers: of a position that has a window block, and the row's kv_seq_n_blocks
 * entries; those that the window has passed are a block of the window, which kernels may read but
 * do not use. */
int32_t kv_window_slot(const kv *c, const kv_seq *s, uint32_t pos);
void kv_window_table(const kv_seq *s, int32_t *table);

/* Before each step: has it wait for copies of blocks that it needs (kv_batch_begin), and enqueues
 * the pending copy-on-write copies on the backend. On failure they stay pending. */
int kv_flush_copies(kv *c, err *e);
/* For the ranks of other processes: the pending copies (n, 2), from a block to a block; of windowed
 * layers *window_pairs, NULL without them. Valid until the cache is called. Returns n. */
uint32_t kv_pending_copies(const kv *c, const int32_t **pairs, const int32_t **window_pairs);
/* There: enqueues copies of blocks. Of the cache only its pools are used. */
int kv_copy_blocks(kv *c, const int32_t *pairs, const int32_t *window_pairs, uint32_t n, err *e);

/* ---- blocks that are kept elsewhere too, and come back ---- */

/* What stands in one block, in pieces: by rank, layer, K and V. */
enum kv_part {
    KV_PART_BLOCK,  /* K/V of the layers that are not windowed */
    KV_PART_WINDOW, /* K/V of the windowed ones */
    KV_PART_STATE,  /* of recurrent layers: what a source holds */
    KV_N_PARTS
};
uint64_t kv_part_bytes(const kv *c, enum kv_part part); /* 0: the cache has no such part */
uint32_t kv_part_pieces(const kv *c, enum kv_part part);
uint64_t kv_piece_bytes(const kv *c, enum kv_part part, uint32_t piece);

/* Cached blocks that follow each other in a chain, and which are not known to be kept elsewhere
 * (kv_run_kept). With a state block only after the last one. */
enum { KV_RUN_BLOCKS = 64 };
struct kv_run {
    struct hash128 salt;
    uint32_t first, n; /* first: blocks of the chain before them */
    uint32_t blocks[KV_RUN_BLOCKS];
    uint64_t entered[KV_RUN_BLOCKS];        /* kv_block_entered */
    uint32_t windows[KV_RUN_BLOCKS], state; /* UINT32_MAX: has none */
};
/* Finds a run of at most `most` blocks, from the start of their chain on; none that the last
 * n_unfinished steps wrote. soon: only for blocks that will be reused before long, in O(chain),
 * else any, in O(blocks). false: there is none. */
bool kv_run_next(kv *c, bool soon, uint32_t n_unfinished, uint32_t most, struct kv_run *out);
/* Is everything of it still in place? */
bool kv_run_intact(const kv *c, const struct kv_run *run);
/* It is kept elsewhere, or not worth it: not found again. */
void kv_run_kept(kv *c, const struct kv_run *run);
/* Pieces are copied beside the steps (the side stream of core/backend/backend.h), in batches that
 * begin after the steps begun before them. A block may be reused, or read, before the copies of it
 * have ended: a step that does so waits for them on the device (kv_flush_copies). kv_batches_open
 * comes first, once. kv_batch_begin returns the batch's number, from 1 on; 0: too many are under
 * way; negative: the device failed. */
int kv_batches_open(kv *c, err *e);
int64_t kv_batch_begin(kv *c, err *e);
int kv_batch_end(kv *c, err *e);
uint64_t kv_batches_done(kv *c); /* the number of the last batch that is done, as those before it */
int kv_batches_wait(kv *c);      /* until all are done. ERR_DEVICE: not all */
/* In a batch: copies a piece of the run's block i to memory of backend_host_new, where it is once
 * the batch is done. ERR_DEVICE */
int kv_piece_read(kv *c, const struct kv_run *run, enum kv_part part, uint32_t i, uint32_t piece,
                  void *to, err *e);
/* Of a cached block: the ids of its tokens, the block before it (UINT32_MAX: it is the first), and
 * a number that no other block and no other contents of it ever had. */
const int32_t *kv_block_ids(const kv *c, uint32_t block);
uint32_t kv_block_parent(const kv *c, uint32_t block);
uint64_t kv_block_entered(const kv *c, uint32_t block);

/* Whole blocks of the prompt that a new sequence would find. */
uint32_t kv_prompt_blocks(const kv *c, const struct kv_prompt *p);
/* The first block whose window block a hit of n_blocks blocks needs; n_blocks without windowed
 * layers. */
uint32_t kv_window_begins(const kv *c, uint32_t n_blocks);
/* A sequence that never runs: it takes the n_cached blocks of kv_prompt_blocks and new ones for all
 * of p's tokens, a multiple of block_tokens. The caller writes what they hold (kv_piece_write), in
 * windowed layers from kv_window_begins on and, with state layers, that after the last token, then
 * commits, and frees it: the blocks are cached then. Window blocks must suffice for one more
 * sequence. NULL: no room; nothing changed. */
kv_seq *kv_import_begin(kv *c, const struct kv_prompt *p, uint32_t *n_cached);
/* In a batch. ERR_FULL: nothing happened, and it is to be tried again later; ERR_DEVICE. */
int kv_piece_write(kv *c, kv_seq *s, enum kv_part part, uint32_t entry, uint32_t piece,
                   const void *from, err *e);
/* The first n_blocks blocks are written, or will be by the batches begun so far, and the state if
 * they are all and it is meant to be. */
void kv_import_commit(kv *c, kv_seq *s, const int32_t *tokens, uint32_t n_blocks, bool state);

uint32_t kv_n_free(const kv *c);        /* blocks without references (cached ones included) */
uint32_t kv_n_states_free(const kv *c); /* state blocks likewise */

struct kv_stats {
    uint64_t n_blocks, n_free, n_cached; /* n_cached: free blocks with reusable contents */
    uint64_t prefix_queries_tokens, prefix_hit_tokens; /* counters */
    uint64_t evictions, copies;                        /* counters */
    uint64_t unkept_evictions; /* counter: evicted blocks of which kv_run_kept was not called */
    uint64_t n_states, n_states_free, n_states_cached; /* as of blocks; cached: owned, not in use */
    uint64_t state_evictions;  /* counter: cached states that were dropped */
    uint64_t stateless_tokens; /* counter: cached as K/V, but computed for want of a state */
    uint64_t n_windows, n_windows_free, n_windows_cached; /* window blocks, likewise */
    uint64_t window_evictions;  /* counter: cached window blocks that were reused */
    uint64_t windowless_tokens; /* counter: cached, but computed for want of window blocks */
};
void kv_stats_get(const kv *c, struct kv_stats *out);

/* Checks every invariant (references, lists, hash chains, tables) in O(blocks + sequences * table).
 * 0, or ERR_INVALID with the first violation in words. */
int kv_check(const kv *c, err *e);

#endif
