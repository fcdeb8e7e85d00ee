/* tier.h - the engine's side of the KV store: what is copied out of the cache to be stored, in
 * memory and on disk, and what is read back for a prompt. Private to core/engine.
 *
 * WHAT IS STORED: cached blocks, from the start of their chain on, as segments. Only those that are
 * worth it: computing them (by the measured time of a prompt row) takes more than twice as long as
 * reading them (by the store's measured rate, plus some for its file), unless the configuration
 * says all. WHEN: between steps, blocks that will be reused before long, a MiB a step, or more as
 * long as that takes at most a fiftieth of the step's time, in pieces of a layer's K or V of one
 * block; after store_idle_s without a step, everything; and when engine_save asks. All drafts of
 * the store may be waiting to be written: then it is tried again later, and what is evicted
 * meanwhile is lost and counted (unkept). Copies are made beside the steps (kv_batch_begin): the
 * worker waits for none of them. Drafts lie in the device's pinned memory; one is submitted when
 * its last copy has ended. On devices without a side stream copies are done when they are begun.
 *
 * RESTORING: a new sequence whose prompt the store has more of than the cache pauses, like one
 * whose reader is slow, while others step. Its blocks are taken at once (kv_import_begin; if they
 * are not free it computes), filled as records arrive, and enter the prefix table together; then
 * the sequence is admitted like any other and finds them. A segment that is gone or damaged ends it
 * at the block before. So does the time in which the tokens could be computed, a second at least.
 * With recurrent layers the target is the deepest block with a state, in windowed ones the deepest
 * whose whole window is stored; cut short, both are of little use. Sequences that want the same
 * blocks wait together. Beginning one allocates, between steps. */
#ifndef INFERD_ENGINE_TIER_H
#define INFERD_ENGINE_TIER_H

#include "core/kv/kv.h"
#include "core/kvstore/kvstore.h"

#include <stdatomic.h>

enum { TIER_RESTORES = 8 }; /* at once */

struct engine;
struct engine_config;
struct engine_stream;

/* One chain that is being read. */
struct tier_restore {
    kv_seq *seq; /* NULL: unused */
    kvstore_reading *reading;
    struct hash128 salt;
    int32_t *tokens;            /* (n_blocks, block_tokens) */
    struct kvstore_name *names; /* (n_blocks) */
    uint32_t first, n_blocks;   /* blocks [first, n_blocks) of the chain are read */
    uint32_t windows_from;      /* from this block on with window blocks */
    uint32_t n_whole;           /* blocks that are written, from the chain's start */
    bool has_state;             /* the state is written */
    uint32_t piece;             /* of the record that is being written: the next one */
    uint64_t at;                /* and its bytes that are done */
    uint64_t deadline_ns;
};

/* A draft into which copies are under way. */
struct tier_leaving {
    struct kvstore_draft *draft;
    uint64_t batch; /* its last one */
    bool wanted;    /* to be submitted; else dropped */
};

/* A draft that is being filled. */
struct tier_save {
    struct kvstore_draft *draft; /* NULL: none */
    uint64_t batch;              /* the last one that copies into it; 0: none */
    struct kv_run run;
    enum kv_part part;
    uint32_t block, piece; /* next */
    uint64_t at;           /* bytes of the record that are done */
};

struct tier {
    /* Fixed after tier_open. */
    kvstore *store; /* NULL: there is none */
    kvstore_space *space;
    uint32_t max_restores;

    /* engine_set_store. */
    atomic_bool all;
    atomic_uint_least64_t idle_ns;

    /* Worker. */
    struct kvstore_name *names; /* (n_blocks) of cached blocks */
    uint64_t *named;            /* (n_blocks) kv_block_entered of those */
    uint32_t *path;             /* (n_blocks) scratch */
    struct tier_save save;
    struct tier_leaving leaving[KVSTORE_DRAFTS];
    uint32_t n_leaving;
    uint64_t batch;               /* the one that is open; 0: none */
    bool held;                    /* what is due waits for copies that are under way */
    bool saved_all;               /* nothing was left to store, and no step has run since */
    bool saving;                  /* for engine_save, which waits */
    bool broken;                  /* the store has taken nothing lately: its folder fails */
    uint64_t active_ns, retry_ns; /* the last step; 0, or nothing can be stored before */
    uint64_t run_ns;              /* when tier_run returned last */
    struct tier_restore restores[TIER_RESTORES];

    /* Guarded by the engine's lock. */
    bool wake;              /* a record has come */
    uint64_t save_until_ns; /* of engine_save; 0: none waits */
    bool save_done;         /* for it: nothing was left */
};

/* config.store may be NULL. After the cache is open. A model that cannot use the store goes
 * without, with a line in the log. ERR_NOMEM. */
int tier_open(struct engine *en, const struct engine_config *config, err *e);
void tier_close(struct engine *en); /* after the worker; also after a tier_open that failed */
/* Any thread: names the prompt's blocks. ERR_NOMEM. */
int tier_name_prompt(struct engine_stream *st);

/* Worker: the first n blocks of s, which are cached, have these names, so that a long chain need
 * not be named again to store what follows. */
void tier_note_names(struct engine *en, const kv_seq *s, const struct kvstore_name *names,
                     uint32_t n);

/* Worker: may pause a new sequence. */
void tier_add(struct engine *en, struct engine_stream *st);
/* Worker, within tier_run: opens a batch of copies unless one is open. 1: it is open; 0: too many
 * are under way; negative: the device failed. */
int tier_batch(struct engine *en);

/* Worker, between steps: takes what was read, stores what is due. busy: a step ran. */
void tier_run(struct engine *en, bool busy);
/* Worker: when tier_run must be called again though nothing happens; 0: not at all. */
uint64_t tier_due_ns(const struct engine *en);
/* Worker: the device failed, or the engine stops: gives up what is under way. */
void tier_drop(struct engine *en);

#endif
