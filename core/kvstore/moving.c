/* moving.c - a chain in one file, to be taken to another store with the same model, under a
 * passphrase instead of the secret. Owns nothing; changes a store only through its drafts. Any
 * thread.
 *
 *   offset  bytes
 *        0      8  "INFKVEXP"
 *        8      4  LAYOUT
 *       12      4  iterations of PBKDF2-HMAC-SHA256, which makes the key of passphrase and salt
 *       16     32  salt
 *       48         frames, each of
 *                     4  n, bytes of its text
 *                     n  text, encrypted by AES-256-OCB; the nonce is the frame's number; the 48
 *                        bytes above and n are authenticated, too
 *                    16  tag
 *
 * The first frame describes the chain:
 *        0     32  space
 *       32      4  block_tokens
 *       36      4  blocks of the chain
 *       40     24  block_bytes, window_bytes, state_bytes, 8 bytes each
 *       64     64  label, filled up with zeros
 *      128    128  version, likewise
 * Then of each part of at most KVSTORE_MAX_BLOCKS blocks a frame with
 *        0      4  first: blocks before it, all of which were in earlier parts
 *        4      4  n_blocks
 *        8      4  1: there is a state after the last block
 *       12      .  of each block 1: it has a window record
 * and a frame for each of its records, in the order of a segment's file. A block's record begins
 * with its token ids, of which the other store makes the names. The last frame is empty, so a file
 * that was cut is noticed. Numbers are little-endian. */
#include "core/kvstore/kvstore_int.h"

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

static const char magic[8] = "INFKVEXP";
enum {
    LAYOUT = 2,
    HEAD = 48,
    ABOUT = 256,
    PART_FIXED = 12,
    ITERATIONS = 600000,
    MOST_ITERATIONS = 10000000,
    SUBMIT_WAIT_MS = 5
};

int32_t kvstore_token(const uint8_t *record, uint32_t i) {
    return (int32_t)(uint32_t)kvstore_get(record + 4 * (size_t)i, 4);
}

void kvstore_put_token(uint8_t *record, uint32_t i, int32_t token) {
    kvstore_put(record + 4 * (size_t)i, (uint32_t)token, 4);
}

/* ---- the chain of a segment ---- */

struct part {
    struct kvstore_row row;
    uint32_t n_blocks; /* of them, the first ones */
};

struct chain {
    struct kvstore_row *rows; /* (n_rows) of one space and tenant */
    uint32_t n_rows, capacity;
    struct part *parts; /* (n_parts) from the end of the chain to its start */
    uint32_t n_parts, parts_capacity;
    char label[64], version[128];
    int64_t id; /* of the last segment */
    bool found;
};

static int find_last(void *arg, const struct kvstore_row *row) {
    struct chain *c = arg;
    if (row->id != c->id) return 0;
    snprintf(c->label, sizeof c->label, "%s", row->label ? row->label : "");
    snprintf(c->version, sizeof c->version, "%s", row->version ? row->version : "");
    if (!mem_grow(&c->parts, 0, &c->parts_capacity, sizeof *c->parts)) return ERR_NOMEM;
    c->parts[c->n_parts++] = (struct part){*row, row->n_blocks};
    c->found = true;
    return 0;
}

static int note_row(void *arg, const struct kvstore_row *row) {
    struct chain *c = arg;
    const struct kvstore_row *last = &c->parts[0].row;
    if (memcmp(row->space, last->space, sizeof row->space) != 0 ||
        !hash128_same(row->tenant, last->tenant) || row->first >= last->first)
        return 0;
    if (!mem_grow(&c->rows, c->n_rows, &c->capacity, sizeof *c->rows)) return ERR_NOMEM;
    c->rows[c->n_rows++] = *row;
    return 0;
}

static int open_segment(const char *folder, const struct kvstore_key *root,
                        const struct kvstore_row *row, struct kvstore_file *f, err *e) {
    char path[KVSTORE_PATH];
    kvstore_path(folder, row->id, ".kv", path);
    int rc = kvstore_file_open(path, root, f, e);
    if (rc) return rc;
    const struct kvstore_head *h = &f->head;
    if (h->n_blocks == row->n_blocks && hash128_same(h->tenant, row->tenant) &&
        memcmp(h->space, row->space, sizeof h->space) == 0 &&
        memcmp(h->names, row->names, row->n_blocks * sizeof *h->names) == 0 &&
        h->shape.block_bytes >= 4 * (uint64_t)h->shape.block_tokens)
        return 0;
    kvstore_file_close(f);
    return err_set(e, ERR_FORMAT, "%s holds another segment", path);
}

/* Token ids of blocks [0, n) of a segment; *out, (n, block_tokens), is the caller's. */
static int read_tokens(struct kvstore_file *f, uint32_t n, int32_t **out, err *e) {
    const uint32_t per_block = f->head.shape.block_tokens;
    uint8_t *record = mem_new(f->head.shape.block_bytes + KVSTORE_TAG_BYTES, 1);
    int32_t *ids = mem_new((uint64_t)n * per_block, sizeof *ids);
    int rc = record && ids ? 0 : err_no_memory(e);
    for (uint32_t i = 0; i < n && !rc; i++) {
        rc = kvstore_file_read(f, KVSTORE_BLOCK, i, record, e);
        for (uint32_t k = 0; k < per_block && !rc; k++)
            ids[(uint64_t)i * per_block + k] = kvstore_token(record, k);
    }
    free(record);
    if (rc) free(ids);
    *out = rc ? NULL : ids;
    return rc;
}

/* The row whose block stands before the first one of `next`, by its name and its tokens. */
static const struct kvstore_row *find_before(const struct chain *c, const struct kvstore_row *next,
                                             const struct kvstore_key *names,
                                             const int32_t *tokens) {
    for (uint32_t i = 0; i < c->n_rows; i++) {
        const struct kvstore_row *r = &c->rows[i];
        struct kvstore_name name;
        if (r->first >= next->first || next->first - r->first > r->n_blocks) continue;
        kvstore_name_next(names, &r->names[next->first - r->first - 1], tokens, next->block_tokens,
                          &name);
        if (memcmp(name.bytes, next->names[0].bytes, sizeof name.bytes) == 0) return r;
    }
    return NULL;
}

/* Fills the parts. Each step comes nearer to the start. */
static int find_parts(const char *folder, const struct kvstore_key *root, struct chain *c, err *e) {
    for (;;) {
        const struct kvstore_row next = c->parts[c->n_parts - 1].row;
        struct kvstore_key names;
        struct kvstore_file f;
        int32_t *tokens = NULL;
        if (!next.first) return 0;
        int rc = open_segment(folder, root, &next, &f, e);
        if (rc) return rc;
        rc = read_tokens(&f, 1, &tokens, e);
        kvstore_file_close(&f);
        if (rc) return rc;
        kvstore_key_names(root, next.tenant, next.space, &names);
        const struct kvstore_row *r = find_before(c, &next, &names, tokens);
        free(tokens);
        if (!r)
            return err_set(e, ERR_NOT_FOUND,
                           "what comes before token %llu of the chain is not stored any more",
                           (unsigned long long)next.first * next.block_tokens);
        if (!mem_grow(&c->parts, c->n_parts, &c->parts_capacity, sizeof *c->parts))
            return err_no_memory(e);
        c->parts[c->n_parts++] = (struct part){*r, next.first - r->first};
    }
}

static void chain_fini(struct chain *c) {
    free(c->rows);
    free(c->parts);
}

static int find_chain(const char *folder, const struct kvstore_key *root, const char *file,
                      struct chain *c, err *e) {
    kvstore_catalog *catalog;
    char *end;
    *c = (struct chain){.id = (int64_t)strtoull(file, &end, 16)};
    if (end - file != 16 || (*end && strcmp(end, ".kv") != 0))
        return err_set(e, ERR_INVALID, "%.64s is not the name of a segment (see `inferd kv list`)",
                       file);
    int rc = kvstore_catalog_open(folder, NULL, &catalog, NULL, e);
    if (rc) return rc;
    rc = kvstore_catalog_each(catalog, find_last, c, e);
    if (!rc && !c->found) rc = err_set(e, ERR_NOT_FOUND, "%.64s is not in %s", file, folder);
    if (!rc) rc = kvstore_catalog_each(catalog, note_row, c, e);
    kvstore_catalog_close(catalog);
    return rc ? rc : find_parts(folder, root, c, e);
}

/* ---- export ---- */

struct sealer {
    int fd;
    uint64_t at, number;
    struct kvstore_key key;
    uint8_t head[HEAD + 4]; /* and n of a frame */
};

static int write_frame(struct sealer *s, uint8_t *text, uint64_t n, err *e) {
    uint8_t tag[KVSTORE_TAG_BYTES];
    kvstore_put(s->head + HEAD, n, 4);
    const struct kvstore_box box = {&s->key, s->number++, s->head, sizeof s->head};
    if (n > UINT32_MAX) return err_set(e, ERR_INVALID, "a block is too large to be exported");
    int rc = kvstore_seal(&box, text, n, tag, e);
    if (rc) return rc;
    if (file_write_at(s->fd, s->head + HEAD, 4, s->at) ||
        file_write_at(s->fd, text, n, s->at + 4) ||
        file_write_at(s->fd, tag, sizeof tag, s->at + 4 + n))
        return err_set(e, ERR_IO, "cannot write: %s", strerror(errno));
    s->at += 4 + n + sizeof tag;
    return 0;
}

static int begin_file(struct sealer *s, const char *passphrase, err *e) {
    memcpy(s->head, magic, sizeof magic);
    kvstore_put(s->head + 8, LAYOUT, 4);
    kvstore_put(s->head + 12, ITERATIONS, 4);
    if (getentropy(s->head + 16, 32))
        return err_set(e, ERR_IO, "the system provides no random bytes");
    kvstore_key_passphrase(passphrase, s->head + 16, ITERATIONS, &s->key);
    if (file_write_at(s->fd, s->head, HEAD, 0))
        return err_set(e, ERR_IO, "cannot write: %s", strerror(errno));
    s->at = HEAD;
    return 0;
}

static int write_about(struct sealer *s, const struct chain *c, const struct kvstore_shape *shape,
                       uint32_t n_blocks, err *e) {
    uint8_t about[ABOUT] = {0};
    memcpy(about, c->parts[0].row.space, 32);
    kvstore_put(about + 32, shape->block_tokens, 4);
    kvstore_put(about + 36, n_blocks, 4);
    kvstore_put(about + 40, shape->block_bytes, 8);
    kvstore_put(about + 48, shape->window_bytes, 8);
    kvstore_put(about + 56, shape->state_bytes, 8);
    memcpy(about + 64, c->label, strlen(c->label));
    memcpy(about + 128, c->version, strlen(c->version));
    return write_frame(s, about, sizeof about, e);
}

static int write_part(struct sealer *s, struct kvstore_file *f, const struct part *p, err *e) {
    const struct kvstore_head *h = &f->head;
    uint8_t head[PART_FIXED + KVSTORE_MAX_BLOCKS] = {0};
    const bool state = h->has_state && p->n_blocks == h->n_blocks;
    uint64_t most = h->shape.block_bytes;
    if (h->shape.window_bytes > most) most = h->shape.window_bytes;
    if (h->shape.state_bytes > most) most = h->shape.state_bytes;
    uint8_t *record = mem_new(most + KVSTORE_TAG_BYTES, 1);
    kvstore_put(head, p->row.first, 4);
    kvstore_put(head + 4, p->n_blocks, 4);
    kvstore_put(head + 8, state, 4);
    for (uint32_t i = 0; i < p->n_blocks; i++)
        head[PART_FIXED + i] = h->has_window[i];
    int rc = record ? write_frame(s, head, PART_FIXED + p->n_blocks, e) : err_no_memory(e);
    for (uint32_t i = 0; i < p->n_blocks && !rc; i++) {
        rc = kvstore_file_read(f, KVSTORE_BLOCK, i, record, e);
        if (!rc) rc = write_frame(s, record, h->shape.block_bytes, e);
        if (rc || !h->has_window[i]) continue;
        rc = kvstore_file_read(f, KVSTORE_WINDOW, i, record, e);
        if (!rc) rc = write_frame(s, record, h->shape.window_bytes, e);
    }
    if (!rc && state) rc = kvstore_file_read(f, KVSTORE_STATE, 0, record, e);
    if (!rc && state) rc = write_frame(s, record, h->shape.state_bytes, e);
    free(record);
    return rc;
}

static int write_chain(struct sealer *s, const char *folder, const struct kvstore_key *root,
                       const struct chain *c, struct kvstore_moved *out, err *e) {
    const struct kvstore_row *last = &c->parts[0].row;
    out->n_blocks = last->first + last->n_blocks;
    out->block_tokens = last->block_tokens;
    int rc = 0;
    for (uint32_t i = c->n_parts; i-- > 0 && !rc;) {
        struct kvstore_file f;
        rc = open_segment(folder, root, &c->parts[i].row, &f, e);
        if (rc) return rc;
        if (i + 1 == c->n_parts) rc = write_about(s, c, &f.head.shape, out->n_blocks, e);
        if (!rc) rc = write_part(s, &f, &c->parts[i], e);
        kvstore_file_close(&f);
    }
    if (!rc) rc = write_frame(s, NULL, 0, e);
    out->bytes = s->at;
    return rc;
}

int kvstore_export(const struct kvstore_place *from, const char *file, const char *to,
                   const char *passphrase, struct kvstore_moved *out, err *e) {
    struct kvstore_key root;
    struct chain c = {.n_rows = 0};
    struct sealer s = {.fd = -1};
    *out = (struct kvstore_moved){.n_blocks = 0};
    int rc = kvstore_secret_read(from->secret, false, &root, e);
    if (!rc) rc = find_chain(from->folder, &root, file, &c, e);
    if (!rc) {
        s.fd = file_open(to, O_WRONLY | O_CREAT | O_EXCL, 0600);
        if (s.fd < 0) rc = err_set(e, ERR_IO, "%s: %s", to, strerror(errno));
    }
    if (!rc) {
        rc = begin_file(&s, passphrase, e);
        if (!rc) rc = write_chain(&s, from->folder, &root, &c, out, e);
        if (!rc && file_sync(s.fd)) rc = err_set(e, ERR_IO, "%s: %s", to, strerror(errno));
        close(s.fd);
        if (rc) unlink(to); /* it is ours: O_EXCL */
    }
    snprintf(out->label, sizeof out->label, "%s", c.label);
    chain_fini(&c);
    memset(&root, 0, sizeof root);
    memset(&s.key, 0, sizeof s.key);
    return rc;
}

int kvstore_show(const struct kvstore_place *from, const char *file, int32_t **tokens,
                 struct kvstore_moved *out, err *e) {
    struct kvstore_key root;
    struct chain c = {.n_rows = 0};
    *out = (struct kvstore_moved){.n_blocks = 0};
    *tokens = NULL;
    int rc = kvstore_secret_read(from->secret, false, &root, e);
    if (!rc) rc = find_chain(from->folder, &root, file, &c, e);
    if (!rc) {
        const struct kvstore_row *last = &c.parts[0].row;
        out->n_blocks = last->first + last->n_blocks;
        out->block_tokens = last->block_tokens;
        out->n_segments = c.n_parts;
        out->tenant = last->tenant;
        out->has_state = last->flags[last->n_blocks - 1] & KVSTORE_STATE;
        *tokens = mem_new((uint64_t)out->n_blocks * out->block_tokens, sizeof **tokens);
        if (!*tokens) rc = err_no_memory(e);
    }
    for (uint32_t i = 0; i < c.n_parts && !rc; i++) {
        const struct part *p = &c.parts[i];
        struct kvstore_file f;
        int32_t *ids = NULL;
        rc = open_segment(from->folder, &root, &p->row, &f, e);
        if (rc) break;
        rc = read_tokens(&f, p->n_blocks, &ids, e);
        kvstore_file_close(&f);
        out->bytes += p->row.bytes;
        if (!rc)
            memcpy(*tokens + (uint64_t)p->row.first * out->block_tokens, ids,
                   (uint64_t)p->n_blocks * out->block_tokens * sizeof *ids);
        free(ids);
    }
    if (rc) {
        free(*tokens);
        *tokens = NULL;
    }
    snprintf(out->label, sizeof out->label, "%s", c.label);
    snprintf(out->version, sizeof out->version, "%s", c.version);
    chain_fini(&c);
    memset(&root, 0, sizeof root);
    return rc;
}

/* ---- import ---- */

struct opener {
    int fd;
    uint64_t at, number, size;
    struct kvstore_key key;
    uint8_t head[HEAD + 4];
};

static int err_damaged(err *e, const char *what) {
    return err_set(e, ERR_FORMAT, "the file is damaged, or the passphrase is another one: %s",
                   what);
}

static int read_bytes(struct opener *o, uint8_t *to, uint64_t n, err *e) {
    if (n > o->size - o->at) return err_damaged(e, "it was cut");
    if (file_read_at(o->fd, to, n, o->at)) {
        if (!errno) return err_damaged(e, "it was cut");
        return err_set(e, ERR_IO, "cannot read: %s", strerror(errno));
    }
    o->at += n;
    return 0;
}

/* A frame of at least `least` and at most `most` bytes; to has room for most. */
static int read_frame(struct opener *o, uint8_t *to, uint64_t least, uint64_t most, uint64_t *n,
                      err *e) {
    uint8_t tag[KVSTORE_TAG_BYTES];
    int rc = read_bytes(o, o->head + HEAD, 4, e);
    if (rc) return rc;
    *n = kvstore_get(o->head + HEAD, 4);
    if (*n < least || *n > most) return err_damaged(e, "a frame has an impossible size");
    rc = read_bytes(o, to, *n, e);
    if (!rc) rc = read_bytes(o, tag, sizeof tag, e);
    if (rc) return rc;
    const struct kvstore_box box = {&o->key, o->number++, o->head, sizeof o->head};
    rc = kvstore_unseal(&box, to, *n, tag, e);
    return rc == ERR_FORMAT ? err_damaged(e, "a frame is forged") : rc;
}

static int open_export(const char *path, const char *passphrase, struct opener *o, err *e) {
    struct stat st;
    *o = (struct opener){.fd = file_open(path, O_RDONLY, 0)};
    if (o->fd < 0 || fstat(o->fd, &st)) return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return err_set(e, ERR_INVALID, "%s is not a file", path);
    o->size = (uint64_t)st.st_size;
    if (o->size < HEAD) return err_damaged(e, "it is too short");
    int rc = read_bytes(o, o->head, HEAD, e);
    if (rc) return rc;
    if (memcmp(o->head, magic, sizeof magic) != 0 || kvstore_get(o->head + 8, 4) != LAYOUT)
        return err_set(e, ERR_FORMAT, "%s is not an exported chain, or of another version", path);
    uint64_t n = kvstore_get(o->head + 12, 4);
    if (!n || n > MOST_ITERATIONS) return err_damaged(e, "its number of iterations is impossible");
    kvstore_key_passphrase(passphrase, o->head + 16, (uint32_t)n, &o->key);
    return 0;
}

struct about {
    uint8_t space[32];
    struct kvstore_shape shape;
    uint32_t n_blocks;
    char label[65], version[129];
};

static int read_about(struct opener *o, struct about *a, err *e) {
    uint8_t text[ABOUT];
    uint64_t n;
    int rc = read_frame(o, text, ABOUT, ABOUT, &n, e);
    if (rc) return rc;
    *a = (struct about){.n_blocks = (uint32_t)kvstore_get(text + 36, 4),
                        .shape = {(uint32_t)kvstore_get(text + 32, 4), kvstore_get(text + 40, 8),
                                  kvstore_get(text + 48, 8), kvstore_get(text + 56, 8)}};
    memcpy(a->space, text, 32);
    memcpy(a->label, text + 64, 64);
    memcpy(a->version, text + 128, 128);
    const struct kvstore_shape *s = &a->shape;
    if (!s->block_tokens || s->block_tokens > 1024 || !a->n_blocks ||
        s->block_bytes < 4 * (uint64_t)s->block_tokens || s->block_bytes > UINT32_MAX ||
        s->window_bytes > UINT32_MAX || s->state_bytes > UINT32_MAX)
        return err_damaged(e, "it has an impossible number");
    return 0;
}

/* Where parts go. */
struct importer {
    kvstore_space *space; /* NULL: the file is only checked */
    struct hash128 tenant;
    struct kvstore_name last; /* of the block before the next one */
    uint8_t *record;          /* without a space: room for one */
};

static struct kvstore_draft *take_draft(kvstore_space *sp, err *e) {
    bool broken = false;
    for (;;) {
        struct kvstore_draft *d = kvstore_draft_take(sp, &broken);
        if (d) return d;
        if (broken) {
            err_set(e, ERR_UNAVAILABLE,
                    "nothing can be written now: the folder fails, or the "
                    "bound of a day is reached");
            return NULL;
        }
        nanosleep(&(struct timespec){0, SUBMIT_WAIT_MS * 1000000}, NULL);
    }
}

/* One record, to its place in the draft. */
static int read_record(struct opener *o, const struct importer *im, struct kvstore_draft *d,
                       int what, uint32_t block, uint64_t bytes, err *e) {
    uint8_t *to = d ? kvstore_draft_record(d, what, block) : im->record;
    uint64_t n;
    return read_frame(o, to, bytes, bytes, &n, e);
}

static void name_block(struct importer *im, struct kvstore_draft *d, uint32_t block, bool at_start,
                       const struct about *a) {
    const uint8_t *record = kvstore_draft_record(d, KVSTORE_BLOCK, block);
    int32_t ids[1024];
    for (uint32_t k = 0; k < a->shape.block_tokens; k++)
        ids[k] = kvstore_token(record, k);
    kvstore_names(im->space, im->tenant, at_start ? NULL : &im->last, ids, 1, &d->names[block]);
    im->last = d->names[block];
}

/* A part whose head is in the n bytes at head; *done: blocks of the chain so far. */
static int read_part(struct opener *o, struct importer *im, const struct about *a,
                     const uint8_t *head, uint64_t n, uint32_t *done, err *e) {
    const uint64_t first = kvstore_get(head, 4), n_blocks = kvstore_get(head + 4, 4),
                   state = kvstore_get(head + 8, 4);
    if (n < PART_FIXED + 1 || first != *done || !n_blocks || n != PART_FIXED + n_blocks ||
        n_blocks > a->n_blocks - *done || state > 1 || (state && !a->shape.state_bytes))
        return err_damaged(e, "a part has an impossible number");
    for (uint64_t i = 0; i < n_blocks; i++)
        if (head[PART_FIXED + i] > (a->shape.window_bytes != 0))
            return err_damaged(e, "a part has an impossible number");
    if (im->space && n_blocks > kvstore_max_blocks(im->space))
        return err_damaged(e, "a part has too many blocks");
    struct kvstore_draft *d = im->space ? take_draft(im->space, e) : NULL;
    if (im->space && !d) return ERR_UNAVAILABLE;
    if (d) {
        d->tenant = im->tenant;
        d->first = *done;
        d->n_blocks = (uint32_t)n_blocks;
        d->has_state = state == 1;
        for (uint32_t i = 0; i < n_blocks; i++)
            d->has_window[i] = head[PART_FIXED + i];
    }
    int rc = 0;
    for (uint32_t i = 0; i < n_blocks && !rc; i++) {
        rc = read_record(o, im, d, KVSTORE_BLOCK, i, a->shape.block_bytes, e);
        if (!rc && d) name_block(im, d, i, *done + i == 0, a);
        if (!rc && head[PART_FIXED + i])
            rc = read_record(o, im, d, KVSTORE_WINDOW, i, a->shape.window_bytes, e);
    }
    if (!rc && state) rc = read_record(o, im, d, KVSTORE_STATE, 0, a->shape.state_bytes, e);
    if (rc && d) kvstore_draft_drop(d);
    if (!rc && d) kvstore_draft_submit(d);
    *done += (uint32_t)n_blocks;
    return rc;
}

/* All after the first frame. */
static int read_parts(struct opener *o, struct importer *im, const struct about *a, err *e) {
    uint8_t head[PART_FIXED + KVSTORE_MAX_BLOCKS];
    uint64_t n, most = a->shape.block_bytes;
    uint32_t done = 0;
    if (a->shape.window_bytes > most) most = a->shape.window_bytes;
    if (a->shape.state_bytes > most) most = a->shape.state_bytes;
    if (most > o->size) return err_damaged(e, "its blocks are larger than the file");
    im->record = im->space ? NULL : mem_new(most, 1);
    int rc = im->space || im->record ? 0 : err_no_memory(e);
    for (n = 1; !rc && n;) {
        rc = read_frame(o, head, 0, sizeof head, &n, e);
        if (!rc && n) rc = read_part(o, im, a, head, n, &done, e);
    }
    free(im->record);
    im->record = NULL;
    if (!rc && (done != a->n_blocks || o->at != o->size))
        rc = err_damaged(e, "it does not end where it says");
    return rc;
}

/* Reads the whole file. space NULL: to check it, before anything is stored. */
static int read_export(const char *path, const char *passphrase, struct importer *im,
                       struct about *a, err *e) {
    struct opener o;
    int rc = open_export(path, passphrase, &o, e);
    if (!rc) rc = read_about(&o, a, e);
    if (!rc) rc = read_parts(&o, im, a, e);
    if (o.fd >= 0) close(o.fd);
    memset(&o.key, 0, sizeof o.key);
    return rc;
}

int kvstore_export_check(const char *path, const char *passphrase, struct kvstore_moved *out,
                         err *e) {
    struct importer im = {.space = NULL};
    struct about a;
    int rc = read_export(path, passphrase, &im, &a, e);
    if (rc) return rc;
    *out = (struct kvstore_moved){.n_blocks = a.n_blocks, .block_tokens = a.shape.block_tokens};
    snprintf(out->label, sizeof out->label, "%s", a.label);
    snprintf(out->version, sizeof out->version, "%s", a.version);
    memcpy(out->space, a.space, sizeof out->space);
    return 0;
}

int kvstore_import(kvstore *ks, const char *path, const char *passphrase, struct hash128 tenant,
                   struct kvstore_moved *out, err *e) {
    struct importer im = {.tenant = tenant};
    struct about a;
    int rc = kvstore_export_check(path, passphrase, out, e);
    if (rc) return rc;
    if (strcmp(out->version, ks->version) != 0)
        return err_set(
            e, ERR_UNSUPPORTED,
            "it was written by another build of inferd (%.100s), which may compute other "
            "bits; this one is %.100s",
            out->version, ks->version);
    struct opener o;
    rc = open_export(path, passphrase, &o, e);
    if (!rc) rc = read_about(&o, &a, e);
    if (!rc) {
        const struct kvstore_space_config config = {.label = a.label, .shape = a.shape};
        rc = kvstore_space_of(ks, &config, a.space, &im.space, e);
    }
    struct kvstore_stats before, after;
    kvstore_stats_get(ks, &before);
    if (!rc) rc = read_parts(&o, &im, &a, e);
    if (!rc && !kvstore_flush(ks, clock_now_ns() + UINT64_C(600000000000)))
        rc = err_set(e, ERR_IO, "the folder is too slow");
    kvstore_space_close(im.space);
    if (o.fd >= 0) close(o.fd);
    memset(&o.key, 0, sizeof o.key);
    kvstore_stats_get(ks, &after);
    out->bytes = after.written_bytes - before.written_bytes;
    out->n_segments = (uint32_t)(after.written - before.written);
    if (!rc && (after.failed > before.failed || after.over_budget > before.over_budget))
        rc = err_set(e, ERR_IO,
                     "not all of it could be written: the folder failed, or a bound of "
                     "kv-dir is reached");
    return rc;
}
