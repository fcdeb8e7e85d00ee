/* kvstore_int.h - shared by the files of core/kvstore: crypt.c (keys, names, encryption), segment.c
 * (the format of a file), catalog.c (SQLite), store.c (what is there, bounds), writer.c and
 * reader.c (the threads), people.c (lists and checks), moving.c (files for other stores).
 * Private to this folder. */
#ifndef INFERD_KVSTORE_INT_H
#define INFERD_KVSTORE_INT_H

#include "core/kvstore/kvstore.h"

#include <pthread.h>
#include <stddef.h>

/* Written into every file and into the index: grows with each change of the format, of the order of
 * the records or of their layout. */
enum { KVSTORE_LAYOUT = 3 };

enum { KVSTORE_TAG_BYTES = 16, KVSTORE_KEY_BYTES = 32 };

/* Numbers of n bytes, 8 at most, in files and in what is hashed: little-endian. */
static inline void kvstore_put(uint8_t *to, uint64_t v, int n) {
    for (int i = 0; i < n; i++)
        to[i] = (uint8_t)(v >> 8 * i);
}

static inline uint64_t kvstore_get(const uint8_t *from, int n) {
    uint64_t v = 0;
    for (int i = 0; i < n; i++)
        v |= (uint64_t)from[i] << 8 * i;
    return v;
}

/* ---- crypt.c ---- */

struct kvstore_key {
    uint8_t bytes[KVSTORE_KEY_BYTES];
};

void kvstore_sha256(const void *bytes, size_t n, uint8_t out[32]);
/* RFC 5869 with SHA-256: extract, and the first 32 bytes of expand with info = label, NUL, bytes.
 */
void kvstore_key_extract(const char *salt, const void *secret, size_t n, struct kvstore_key *out);
void kvstore_key_expand(const struct kvstore_key *from, const char *label, const void *bytes,
                        size_t n, struct kvstore_key *out);
/* The key of a tenant; that of its names in a space; that of a file with this salt. */
void kvstore_key_tenant(const struct kvstore_key *root, struct hash128 tenant,
                        struct kvstore_key *out);
void kvstore_key_names(const struct kvstore_key *root, struct hash128 tenant,
                       const uint8_t space[32], struct kvstore_key *out);
void kvstore_key_file(const struct kvstore_key *root, struct hash128 tenant, const uint8_t salt[32],
                      struct kvstore_key *out);
/* The name of the block of these tokens (block_tokens) after `parent` (NULL: from the start). */
void kvstore_name_next(const struct kvstore_key *names, const struct kvstore_name *parent,
                       const int32_t *tokens, uint32_t block_tokens, struct kvstore_name *out);
/* PBKDF2-HMAC-SHA256 (RFC 8018). */
void kvstore_key_passphrase(const char *passphrase, const uint8_t salt[32], uint32_t iterations,
                            struct kvstore_key *out);
/* What is encrypted under one key, in place, by AES-256-OCB: number is different each time. */
struct kvstore_box {
    const struct kvstore_key *key;
    uint64_t number;
    const void *more; /* (n_more) is authenticated, too */
    size_t n_more;
};
/* ERR_NOMEM, or libgcrypt refuses the cipher: they are overwritten. */
int kvstore_seal(const struct kvstore_box *box, uint8_t *bytes, uint64_t n,
                 uint8_t tag[KVSTORE_TAG_BYTES], err *e);
/* ERR_FORMAT: the bytes are not those that were sealed; ERR_NOMEM. They are overwritten in any
 * case. */
int kvstore_unseal(const struct kvstore_box *box, uint8_t *bytes, uint64_t n,
                   const uint8_t tag[KVSTORE_TAG_BYTES], err *e);
/* The same in pieces: begin; each piece in order, all but the last a multiple of 16 bytes; check;
 * and, if begin returned 0, end. Only after check has returned 0 are the bytes those that were
 * sealed. */
struct kvstore_unsealing {
    void *cipher;
};
int kvstore_unseal_begin(const struct kvstore_box *box, struct kvstore_unsealing *u, err *e);
int kvstore_unseal_piece(struct kvstore_unsealing *u, uint8_t *bytes, uint64_t n, bool last,
                         err *e);
int kvstore_unseal_check(struct kvstore_unsealing *u, const uint8_t tag[KVSTORE_TAG_BYTES], err *e);
void kvstore_unseal_end(struct kvstore_unsealing *u);
/* Reads the secret's file, or makes it. ERR_IO, ERR_INVALID: others may read it, or its size. */
int kvstore_secret_read(const char *path, bool make, struct kvstore_key *root, err *e);

/* ---- segment.c ---- */

struct kvstore_head {
    uint8_t space[32];
    struct hash128 tenant;
    uint8_t salt[32];
    struct kvstore_shape shape;
    uint32_t first, n_blocks;
    bool has_state, has_window[KVSTORE_MAX_BLOCKS];
    int64_t created_s;
    struct kvstore_name names[KVSTORE_MAX_BLOCKS];
};

enum { KVSTORE_HEAD_FIXED = 192 }; /* segment.c draws it */
enum {
    KVSTORE_HEAD_MOST =
        KVSTORE_HEAD_FIXED + KVSTORE_MAX_BLOCKS * (KVSTORE_NAME_BYTES + 1) + KVSTORE_TAG_BYTES
};
/* Bytes of the head of n_blocks blocks, its tag included; of the whole file. UINT64_MAX: more than
 * 2^40. */
uint64_t kvstore_head_bytes(uint32_t n_blocks);
uint64_t kvstore_segment_bytes(const struct kvstore_head *h);
/* Where a record is, without its tag, which follows. false: the segment has no such record. */
struct kvstore_range {
    uint64_t at, bytes;
};
bool kvstore_segment_find(const struct kvstore_head *h, int what, uint32_t block,
                          struct kvstore_range *out);
/* Makes a file of the plain records that stand in image (kvstore_segment_bytes) at their places.
 * ERR_NOMEM. */
int kvstore_segment_seal(const struct kvstore_head *h, const struct kvstore_key *root,
                         uint8_t *image, err *e);
/* Reads a head from the first n bytes of a file of file_bytes bytes, checks every size, and its tag
 * under root (NULL: not). ERR_FORMAT, ERR_NOMEM. */
int kvstore_head_parse(const uint8_t *bytes, uint64_t n, uint64_t file_bytes,
                       const struct kvstore_key *root, struct kvstore_head *out, err *e);
/* A segment in memory, as in a file. */
struct kvstore_image {
    struct kvstore_image *next; /* guarded by the store's lock, as refs */
    uint32_t refs;
    uint64_t bytes;
    uint8_t data[];
};
/* A segment that is open for reading: a file, or an image. */
struct kvstore_file {
    int fd; /* -1: none */
    const struct kvstore_image *image;
    struct kvstore_head head;
    struct kvstore_key key;
    uint8_t tag[KVSTORE_TAG_BYTES]; /* of the head */
};
/* ERR_NOT_FOUND: there is no such file; ERR_IO, ERR_FORMAT, ERR_NOMEM. Nothing is open after a
 * failure. */
int kvstore_file_open(const char *path, const struct kvstore_key *root, struct kvstore_file *f,
                      err *e);
/* The same of an image, which must stay until kvstore_file_close. */
int kvstore_image_open(const struct kvstore_image *image, const struct kvstore_key *root,
                       struct kvstore_file *f, err *e);
/* to: room for the record and its tag. ERR_NOT_FOUND: no such record. ERR_IO, ERR_FORMAT,
 * ERR_NOMEM. */
int kvstore_file_read(struct kvstore_file *f, int what, uint32_t block, uint8_t *to, err *e);
void kvstore_file_close(struct kvstore_file *f);

/* ---- catalog.c: the index. One thread at a time. ---- */

typedef struct kvstore_catalog kvstore_catalog;
struct kvstore_row {
    int64_t id; /* of its file, too */
    uint8_t space[32];
    struct hash128 tenant;
    uint32_t first, n_blocks, block_tokens;
    uint64_t bytes, hits;
    int64_t created_s, used_s;
    uint8_t flags[KVSTORE_MAX_BLOCKS]; /* KVSTORE_* */
    struct kvstore_name names[KVSTORE_MAX_BLOCKS];
    const char *label, *version; /* kvstore_catalog_each only */
};
/* Opens or makes the index of a folder. One of another layout or secret, or that is damaged, is
 * made anew, empty, and *anew set. secret_id: 32 bytes; NULL: reads only. ERR_IO, ERR_NOT_FOUND. */
int kvstore_catalog_open(const char *folder, const uint8_t *secret_id, kvstore_catalog **out,
                         bool *anew, err *e);
void kvstore_catalog_close(kvstore_catalog *c);
/* In the order of space, tenant, first. A row that breaks the format is left out. Stops when `each`
 * returns nonzero, and returns that. */
int kvstore_catalog_each(kvstore_catalog *c, int (*each)(void *arg, const struct kvstore_row *row),
                         void *arg, err *e);
int kvstore_catalog_space(kvstore_catalog *c, const uint8_t space[32], const char *label,
                          const char *version, err *e);
int kvstore_catalog_add(kvstore_catalog *c, const struct kvstore_row *row, err *e);
int kvstore_catalog_remove(kvstore_catalog *c, int64_t id, err *e);
int kvstore_catalog_use(kvstore_catalog *c, int64_t id, int64_t used_s, uint64_t hits, err *e);
/* Bytes that were written on a day; begin and end a transaction around several changes. */
uint64_t kvstore_catalog_written(kvstore_catalog *c, int64_t *day);
int kvstore_catalog_set_written(kvstore_catalog *c, int64_t day, uint64_t bytes, err *e);
int kvstore_catalog_begin(kvstore_catalog *c, err *e);
int kvstore_catalog_end(kvstore_catalog *c, err *e);

/* ---- store.c ---- */

struct kvstore_segment;
/* A block of a segment, in the table of names. */
struct kvstore_slot {
    struct kvstore_slot *next;
    struct kvstore_segment *segment;
    uint32_t number;
};
struct kvstore_segment {
    struct kvstore_segment *prev, *next;
    struct kvstore_row row;
    struct kvstore_image *image; /* NULL: not in memory */
    bool on_disk;
    bool used;                   /* since the index has it */
    struct kvstore_slot slots[]; /* (row.n_blocks) */
};

struct kvstore_draft_int {
    struct kvstore_draft d; /* first */
    kvstore_space *space;
    struct kvstore_draft_int *next;
    uint8_t *image; /* (space->image_bytes) */
};
enum { KVSTORE_MAX_READINGS = 64, KVSTORE_READERS = 2 };

/* A thread that reads. */
struct kvstore_reader {
    kvstore *ks;
    int number; /* from 0 */
    pthread_t thread;
};

struct kvstore_space {
    kvstore *ks;
    uint8_t id[32];
    struct kvstore_shape shape;
    uint32_t max_blocks;
    uint64_t image_bytes;
    char label[128];
    struct kvstore_memory memory; /* of images */
    bool known;                   /* the index has it; writer */
    struct kvstore_draft_int drafts[KVSTORE_DRAFTS];
    struct kvstore_draft_int *unused; /* guarded by ks->lock */
    uint32_t n_unused, n_readings;    /* likewise */
};

struct kvstore {
    /* Fixed after kvstore_open. */
    char *folder, *version;
    struct kvstore_config config; /* of the start; the folder's bounds are below */
    struct kvstore_key root;
    int lock_fd;
    int64_t wall_s; /* at open */
    uint64_t open_ns;

    kvstore_catalog *catalog; /* the writer's, once it runs; NULL: there is no folder */
    int64_t day;              /* writer: of day_bytes */
    uint64_t day_bytes;

    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t work, idle, reading;
    struct kvstore_segment *segments;
    struct kvstore_segment *gone;  /* out of the table; until the writer has deleted them */
    struct kvstore_image *unused;  /* for the writer to free */
    struct kvstore_slot **buckets; /* (n_buckets) power of two */
    uint64_t n_buckets, n_slots;
    struct kvstore_draft_int *queue, **queue_tail;
    uint64_t n_submitted, n_done; /* drafts */
    bool stopping;
    struct kvstore_bounds {
        uint64_t max_bytes, max_files, max_age_s, max_daily_bytes;
    } bounds;
    bool trims;        /* there are other bounds: the writer deletes what is beyond them */
    uint64_t retry_ns; /* not 0: nothing is written before */
    kvstore_reading *readings, **readings_tail;
    uint32_t n_readings;
    double read_rate;
    struct kvstore_stats stats;

    pthread_t writer;
    bool writer_started;
    struct kvstore_reader readers[KVSTORE_READERS];
    int n_readers; /* that were started */
};

int64_t kvstore_now_s(const kvstore *ks);
/* A space whose id is known, instead of config's identity. */
int kvstore_space_of(kvstore *ks, const struct kvstore_space_config *config, const uint8_t id[32],
                     kvstore_space **out, err *e);
void kvstore_draft_head(const struct kvstore_draft_int *d, struct kvstore_head *h); /* no salt */
/* The path of a segment's file, or of another name in the folder. */
enum { KVSTORE_PATH = 4096 };
void kvstore_path(const char *folder, int64_t id, const char *suffix, char path[KVSTORE_PATH]);
/* From here to kvstore_expire: with the lock held. image: gives a reference; NULL: none. */
int kvstore_add_segment(kvstore *ks, const struct kvstore_row *row, struct kvstore_image *image,
                        bool on_disk);
void kvstore_drop_segment(kvstore *ks, struct kvstore_segment *s); /* to the list of those gone */
struct kvstore_slot *kvstore_find_slot(const kvstore *ks, const struct kvstore_name *name,
                                       int flags);
/* The segment of this id, which has a block of this name. */
struct kvstore_segment *kvstore_find_segment(const kvstore *ks, int64_t id,
                                             const struct kvstore_name *name);
/* The one to lose first of those in memory, or of those on disk; NULL: there is none. */
struct kvstore_segment *kvstore_worst(const kvstore *ks, bool in_memory);
/* Gives back a reference; the writer frees it. NULL is fine. */
void kvstore_image_unref(kvstore *ks, struct kvstore_image *image);
void kvstore_expire(kvstore *ks);

void *kvstore_writer_main(void *ks);
void *kvstore_reader_main(void *reader);
/* Deletes those gone: files and rows, and images. Without the lock; the writer, or before and after
 * it runs. */
void kvstore_reap(kvstore *ks);

#endif
