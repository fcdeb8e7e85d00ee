/* kvstore.h - the tiers below the KV cache: chains of blocks that outlive their pool and their
 * model's turn, in memory, and their process, in files of one folder. Both tiers hold the same
 * encrypted segments. One is kept in memory when it is made, as long as there is room, and written
 * to the folder at once; what is read from the folder is not kept in memory again, where the
 * system's page cache has it.
 *
 * A SPACE is everything that K/V depend on except the tokens: the hash of the model's files,
 * architecture, KV type, block tokens, kernels, version (kvstore_space_open). A block's NAME is
 * HMAC-SHA256, keyed by secret, tenant and space, of the name of the block before it and its token
 * ids: equal names are equal prefixes of one tenant in one space, and who lacks the secret cannot
 * test a guess. A block's record begins with its token ids (4 bytes each, little-endian), of which
 * a store with another secret makes its names (kvstore_import). A SEGMENT is a run of blocks of one
 * chain in one file (segment.c draws it), with the K/V of windowed layers where the cache had them,
 * and at most one recurrent state, that after its last block. Segments are encrypted and
 * authenticated, each under a key of its own that is derived from the secret and the tenant
 * (crypt.c). A file that was cut, swapped or altered, or is of another space or tenant, is never
 * used: it is deleted and counted.
 *
 * BOUNDS hold at every moment, from kvstore_open on and for all spaces together (smaller ones of
 * kvstore_set_bounds soon after it): bytes in memory, bytes and files in the folder, age since the
 * last use, and bytes written on a day (UTC). What was written by another version of the program
 * goes first, when the store is opened; then that which was used longest ago, where each hit counts
 * for an hour, for a day at most; of equals that which is farther from its chain's start, which is
 * of no use without what is before it. A use of a chain is one of all its segments up to there. The
 * clock is the wall's at kvstore_open and steady from then on; times in the future count as now.
 *
 * FAILURES: a folder that is full, read-only or gone stops writes for a minute, with one line in
 * the log and in the counters; reads go on, and so does the memory.
 *
 * THREADS: one writes, which alone uses the index (SQLite); two read. None is ever waited for,
 * except by kvstore_flush and when something is closed. Nothing is mapped. One process has a folder
 * at a time (kvstore_open: ERR_UNAVAILABLE). All functions may be called from any thread, those of
 * one space, draft or reading from one at a time. */
#ifndef INFERD_KVSTORE_H
#define INFERD_KVSTORE_H

#include "core/base/err.h"
#include "core/base/siphash.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct kvstore kvstore;
typedef struct kvstore_space kvstore_space;
typedef struct kvstore_reading kvstore_reading;

enum { KVSTORE_MAX_BLOCKS = 64 /* of a segment */, KVSTORE_NAME_BYTES = 32 };

struct kvstore_name {
    uint8_t bytes[KVSTORE_NAME_BYTES];
};

/* ---- open and close ---- */

struct kvstore_config {
    const char *folder;            /* made, for its owner only, if it is not there; NULL: none */
    const char *secret;            /* file of the secret, likewise */
    const char *version;           /* of the program; "" for any */
    uint64_t max_memory_bytes;     /* 0: nothing is kept in memory */
    uint64_t max_bytes, max_files; /* of segments in the folder; the index is not counted */
    uint64_t max_age_s, max_daily_bytes; /* 0: no bound */
};

/* ERR_UNAVAILABLE: another process has the folder. ERR_IO, ERR_INVALID (the secret's file). */
int kvstore_open(const struct kvstore_config *config, kvstore **out, err *e);
/* Other bounds of the folder: max_bytes, max_files, max_age_s and max_daily_bytes. What is beyond
 * them goes soon; what the day's bound had stopped goes on. Without a folder nothing happens. */
void kvstore_set_bounds(kvstore *ks, const struct kvstore_config *bounds);
/* Spaces first. NULL is fine. */
void kvstore_close(kvstore *ks);
/* Waits until everything that was submitted before is written, at most until deadline_ns of
 * clock_now_ns(). false: the deadline came first. */
bool kvstore_flush(kvstore *ks, uint64_t deadline_ns);
/* A key for hashes of clients that must be the same in every process with this secret. */
struct hash128 kvstore_client_key(const kvstore *ks);

struct kvstore_stats {
    uint64_t files, bytes;                  /* now, in the folder */
    uint64_t memory_segments, memory_bytes; /* now */
    bool writable; /* the folder; false: there is none, or writing has failed lately */
    /* Counters, of segments unless they name another unit. */
    uint64_t written, written_bytes, read_bytes, read_ns;
    uint64_t dropped;     /* their space was closed before they were written */
    uint64_t over_budget; /* not written for the bound of a day, or larger than all bounds */
    uint64_t failed;      /* not written for want of a working folder */
    uint64_t evicted, memory_evicted, expired;
    uint64_t outdated; /* deleted at open: another version or secret */
    uint64_t damaged;  /* cut, swapped or altered */
};
void kvstore_stats_get(kvstore *ks, struct kvstore_stats *out);

/* ---- spaces ---- */

struct kvstore_shape {
    uint32_t block_tokens;
    uint64_t block_bytes;  /* token ids and K/V of a block: at least 4 * block_tokens */
    uint64_t window_bytes; /* likewise of windowed layers; 0: there are none */
    uint64_t state_bytes;  /* of recurrent layers; 0: there are none */
};
/* Memory for drafts: that of a device which copies into it. */
struct kvstore_memory {
    int (*get)(void *arg, uint64_t bytes, void **out, err *e); /* zeroed; NULL: from the heap */
    void (*put)(void *arg, void *p);
    void *arg;
};
struct kvstore_space_config {
    const char *label;    /* the model's name, for people */
    const char *identity; /* any text; equal texts are equal K/V */
    struct kvstore_shape shape;
    struct kvstore_memory memory; /* used until kvstore_space_close */
};
/* The drafts are allocated here. ERR_INVALID: a segment would exceed 2^40 bytes; ERR_NOMEM. */
int kvstore_space_open(kvstore *ks, const struct kvstore_space_config *config, kvstore_space **out,
                       err *e);
/* Its readings are closed and drafts given back. What waits to be written is dropped; waits for
 * what is being written or read. NULL is fine. */
void kvstore_space_close(kvstore_space *sp);
uint32_t kvstore_max_blocks(const kvstore_space *sp); /* of a draft */

/* Names of n_blocks blocks of tokens (n_blocks, block_tokens) after the block `parent` (NULL: from
 * the start). About half a microsecond each. */
void kvstore_names(const kvstore_space *sp, struct hash128 tenant,
                   const struct kvstore_name *parent, const int32_t *tokens, uint32_t n_blocks,
                   struct kvstore_name *names);

/* ---- what is there ---- */

enum { KVSTORE_BLOCK = 1, KVSTORE_WINDOW = 2, KVSTORE_STATE = 4 };
/* How many of the blocks follow each other in the store; flags (n): what there is of each. */
uint32_t kvstore_find(kvstore_space *sp, const struct kvstore_name *names, uint32_t n,
                      uint8_t *flags);
/* The chain was used: all its blocks, from its start on. */
void kvstore_touch(kvstore_space *sp, const struct kvstore_name *names, uint32_t n);

/* ---- writing ---- */

enum { KVSTORE_DRAFTS = 4 /* of a space */ };
/* A segment to be written. The caller fills it and submits it. */
struct kvstore_draft {
    struct hash128 tenant;
    uint32_t first, n_blocks; /* first: blocks of the chain before it */
    struct kvstore_name names[KVSTORE_MAX_BLOCKS];
    bool has_window[KVSTORE_MAX_BLOCKS];
    bool has_state; /* after the last block */
};
/* One of KVSTORE_DRAFTS. NULL: all are waiting to be written, or, with *broken set,
 * nothing is kept now: the folder fails, or the bound of a day is reached. */
struct kvstore_draft *kvstore_draft_take(kvstore_space *sp, bool *broken);
/* Where the bytes of a record go, once the fields are filled; what: one of KVSTORE_*. */
uint8_t *kvstore_draft_record(struct kvstore_draft *d, int what, uint32_t block);
void kvstore_draft_submit(struct kvstore_draft *d);
void kvstore_draft_drop(struct kvstore_draft *d);

/* ---- reading ---- */

struct kvstore_wanted {
    struct hash128 tenant;
    const struct kvstore_name *names; /* (n) copied */
    const uint8_t *flags;             /* (n) copied: what to read of each */
    uint32_t n;
    /* Called by the reading threads when a record has come or the reading has ended. */
    void (*notify)(void *arg);
    void *arg;
};
/* Begins to read records in order: of each block its K/V, its window, its state. ERR_NOMEM,
 * ERR_FULL: too many readings are open. */
int kvstore_read(kvstore_space *sp, const struct kvstore_wanted *wanted, kvstore_reading **out,
                 err *e);
struct kvstore_record {
    uint32_t block; /* of those wanted */
    int what;       /* one of KVSTORE_* */
    const uint8_t *bytes;
};
/* 1: *record is the next one; valid until kvstore_reading_pop. 0: not yet. ERR_NOT_FOUND: a segment
 * is gone or was damaged, nothing more will come. ERR_EXISTS: all records were popped. */
int kvstore_reading_next(kvstore_reading *r, struct kvstore_record *record);
void kvstore_reading_pop(kvstore_reading *r);
/* Does not wait: notify may be called until kvstore_space_close. NULL is fine. */
void kvstore_reading_close(kvstore_reading *r);
/* Bytes per second at which one thread read records of late, decryption included. */
double kvstore_read_rate(kvstore *ks);

/* ---- for people ---- */

/* A segment as the index has it. Strings are valid during the call. */
struct kvstore_entry {
    const char *file, *label, *version;
    uint8_t space[32];
    struct hash128 tenant;
    uint32_t first, n_blocks, block_tokens;
    uint64_t bytes, hits;
    int64_t created_s, used_s;
    bool has_state;
    /* kvstore_verify: 0, or what is wrong */
    const err *damage;
};
/* Calls `each` for each segment of a folder, by space, tenant and place, without changing anything;
 * a daemon may be using it. ERR_NOT_FOUND: no such folder or index. */
int kvstore_list(const char *folder, void (*each)(void *arg, const struct kvstore_entry *s),
                 void *arg, err *e);
/* The same, and reads every byte of it. */
int kvstore_verify(const char *folder, const char *secret,
                   void (*each)(void *arg, const struct kvstore_entry *s), void *arg, err *e);
/* Deletes the segments that `chosen` accepts (NULL: all). Returns how many. */
uint64_t kvstore_prune(kvstore *ks, bool (*chosen)(void *arg, const struct kvstore_entry *s),
                       void *arg);

/* ---- chains that move to another store (moving.c draws the file) ---- */

struct kvstore_place {
    const char *folder, *secret;
};
struct kvstore_moved {
    char label[65], version[129];
    uint8_t space[32];
    struct hash128 tenant;
    uint32_t n_blocks, block_tokens, n_segments;
    uint64_t bytes;
    bool has_state;
};
/* The chain that ends with the segment of this file name: what it is, and its tokens (n_blocks *
 * block_tokens), the caller's. Changes nothing; a daemon may be using the folder. ERR_NOT_FOUND: no
 * such segment, or what comes before it is not stored any more. */
int kvstore_show(const struct kvstore_place *from, const char *file, int32_t **tokens,
                 struct kvstore_moved *out, err *e);
/* Writes it to a new file at `to`, which must not exist. */
int kvstore_export(const struct kvstore_place *from, const char *file, const char *to,
                   const char *passphrase, struct kvstore_moved *out, err *e);
/* Reads and authenticates such a file. ERR_FORMAT: it is damaged, or the passphrase is wrong. */
int kvstore_export_check(const char *path, const char *passphrase, struct kvstore_moved *out,
                         err *e);
/* The same, and then stores the chain for this tenant, within all bounds. What is stored already is
 * not written again. ERR_UNSUPPORTED: another build of the program wrote it. */
int kvstore_import(kvstore *ks, const char *path, const char *passphrase, struct hash128 tenant,
                   struct kvstore_moved *out, err *e);
/* Token i of a block's record. */
int32_t kvstore_token(const uint8_t *record, uint32_t i);
void kvstore_put_token(uint8_t *record, uint32_t i, int32_t token);

#endif
