/* segment.c - the format of a segment's file: written as a whole, read record by record. Numbers
 * are little-endian; what a file says is believed only within the bounds that are checked here, and
 * only after its tag was. Owns nothing; any thread.
 *
 *   offset  bytes  head
 *        0      8  "INFKVSEG"
 *        8      4  KVSTORE_LAYOUT
 *       12      4  n_blocks: 1 to KVSTORE_MAX_BLOCKS
 *       16     32  space
 *       48     16  tenant
 *       64     32  salt of the file's key
 *       96      4  first: blocks of the chain before this segment
 *      100      4  block_tokens
 *      104      8  block_bytes
 *      112      8  window_bytes
 *      120      8  state_bytes
 *      128      8  seconds since 1970 when it was written
 *      136      4  1: there is a state after the last block; else 0
 *      140     52  zeros
 *      192     32  name of each block
 *        .      1  of each block: 1: there is a window record; else 0
 *        .     16  tag of all of the above (box 0, which encrypts nothing)
 *
 * Then the records, each encrypted and followed by its tag: of each block its K/V (box 3 i + 1) and
 * perhaps its window's (3 i + 2), in the order of blocks; then perhaps the state (3 n_blocks + 1).
 * A record's box has the head's tag, too, so records cannot change places or files. A block's
 * record begins with its token ids, 4 bytes each; what else stands in records, core/kv says: bytes
 * of pools, by rank, layer, K and V. A record is read and decrypted in pieces that stay in a core's
 * cache; its tag is checked after the last one. */
#include "core/kvstore/kvstore_int.h"

#include "core/base/file.h"
#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = "INFKVSEG";
#define SEGMENT_MOST (UINT64_C(1) << 40)
enum { PIECE = 64 << 10 };

/* ---- places ---- */

uint64_t kvstore_head_bytes(uint32_t n_blocks) {
    return KVSTORE_HEAD_FIXED + (uint64_t)n_blocks * (KVSTORE_NAME_BYTES + 1) + KVSTORE_TAG_BYTES;
}

/* Adds a record with its tag; false: more than 2^40 bytes. */
static bool add_record(uint64_t *bytes, uint64_t record) {
    return mem_add(record, KVSTORE_TAG_BYTES, &record) && mem_add(*bytes, record, bytes) &&
           *bytes <= SEGMENT_MOST;
}

uint64_t kvstore_segment_bytes(const struct kvstore_head *h) {
    uint64_t bytes = kvstore_head_bytes(h->n_blocks);
    for (uint32_t i = 0; i < h->n_blocks; i++)
        if (!add_record(&bytes, h->shape.block_bytes) ||
            (h->has_window[i] && !add_record(&bytes, h->shape.window_bytes)))
            return UINT64_MAX;
    if (h->has_state && !add_record(&bytes, h->shape.state_bytes)) return UINT64_MAX;
    return bytes;
}

bool kvstore_segment_find(const struct kvstore_head *h, int what, uint32_t block,
                          struct kvstore_range *out) {
    uint64_t at = kvstore_head_bytes(h->n_blocks);
    if (what == KVSTORE_STATE) {
        if (!h->has_state) return false;
        block = h->n_blocks;
    } else if (block >= h->n_blocks || (what == KVSTORE_WINDOW && !h->has_window[block])) {
        return false;
    }
    for (uint32_t i = 0; i < block; i++) {
        at += h->shape.block_bytes + KVSTORE_TAG_BYTES;
        if (h->has_window[i]) at += h->shape.window_bytes + KVSTORE_TAG_BYTES;
    }
    if (what == KVSTORE_WINDOW) at += h->shape.block_bytes + KVSTORE_TAG_BYTES;
    *out = (struct kvstore_range){at, what == KVSTORE_STATE    ? h->shape.state_bytes
                                      : what == KVSTORE_WINDOW ? h->shape.window_bytes
                                                               : h->shape.block_bytes};
    return true;
}

static uint64_t box_number(const struct kvstore_head *h, int what, uint32_t block) {
    if (what == KVSTORE_STATE) return 3 * (uint64_t)h->n_blocks + 1;
    return 3 * (uint64_t)block + (what == KVSTORE_WINDOW ? 2 : 1);
}

/* ---- writing ---- */

static void write_head(const struct kvstore_head *h, uint8_t *to) {
    memset(to, 0, KVSTORE_HEAD_FIXED);
    memcpy(to, magic, sizeof magic);
    kvstore_put(to + 8, KVSTORE_LAYOUT, 4);
    kvstore_put(to + 12, h->n_blocks, 4);
    memcpy(to + 16, h->space, 32);
    kvstore_put(to + 48, h->tenant.lo, 8);
    kvstore_put(to + 56, h->tenant.hi, 8);
    memcpy(to + 64, h->salt, 32);
    kvstore_put(to + 96, h->first, 4);
    kvstore_put(to + 100, h->shape.block_tokens, 4);
    kvstore_put(to + 104, h->shape.block_bytes, 8);
    kvstore_put(to + 112, h->shape.window_bytes, 8);
    kvstore_put(to + 120, h->shape.state_bytes, 8);
    kvstore_put(to + 128, (uint64_t)h->created_s, 8);
    kvstore_put(to + 136, h->has_state, 4);
    uint8_t *names = to + KVSTORE_HEAD_FIXED, *windows = names + 32 * (size_t)h->n_blocks;
    for (uint32_t i = 0; i < h->n_blocks; i++) {
        memcpy(names + 32 * (size_t)i, h->names[i].bytes, 32);
        windows[i] = h->has_window[i];
    }
}

int kvstore_segment_seal(const struct kvstore_head *h, const struct kvstore_key *root,
                         uint8_t *image, err *e) {
    const uint64_t n_head = kvstore_head_bytes(h->n_blocks) - KVSTORE_TAG_BYTES;
    struct kvstore_key key;
    struct kvstore_range r;
    uint8_t *tag = image + n_head;
    write_head(h, image);
    kvstore_key_file(root, h->tenant, h->salt, &key);
    const struct kvstore_box head = {&key, 0, image, (size_t)n_head};
    int rc = kvstore_seal(&head, NULL, 0, tag, e);
    for (uint32_t i = 0; i <= h->n_blocks && !rc; i++)
        for (int what = KVSTORE_BLOCK; what <= KVSTORE_STATE && !rc; what *= 2) {
            if ((what == KVSTORE_STATE) != (i == h->n_blocks)) continue;
            if (!kvstore_segment_find(h, what, i, &r)) continue;
            const struct kvstore_box box = {&key, box_number(h, what, i), tag, KVSTORE_TAG_BYTES};
            rc = kvstore_seal(&box, image + r.at, r.bytes, image + r.at + r.bytes, e);
        }
    return rc;
}

/* ---- reading ---- */

static int err_damaged(err *e, const char *what) {
    return err_set(e, ERR_FORMAT, "the segment is damaged: %s", what);
}

/* Everything but the tag. */
static int read_head(const uint8_t *from, uint64_t n, uint64_t file_bytes, struct kvstore_head *out,
                     err *e) {
    if (n < KVSTORE_HEAD_FIXED) return err_damaged(e, "it is too short");
    if (memcmp(from, magic, sizeof magic) != 0) return err_damaged(e, "it is of another format");
    if (kvstore_get(from + 8, 4) != KVSTORE_LAYOUT) return err_damaged(e, "it has another layout");
    uint64_t n_blocks = kvstore_get(from + 12, 4), first = kvstore_get(from + 96, 4),
             state = kvstore_get(from + 136, 4);
    if (!n_blocks || n_blocks > KVSTORE_MAX_BLOCKS || state > 1)
        return err_damaged(e, "its head has an impossible number");
    if (n < kvstore_head_bytes((uint32_t)n_blocks)) return err_damaged(e, "its head is cut");
    out->n_blocks = (uint32_t)n_blocks;
    out->first = (uint32_t)first;
    out->has_state = state == 1;
    memcpy(out->space, from + 16, 32);
    memcpy(out->salt, from + 64, 32);
    out->tenant = (struct hash128){kvstore_get(from + 48, 8), kvstore_get(from + 56, 8)};
    out->shape = (struct kvstore_shape){.block_tokens = (uint32_t)kvstore_get(from + 100, 4),
                                        .block_bytes = kvstore_get(from + 104, 8),
                                        .window_bytes = kvstore_get(from + 112, 8),
                                        .state_bytes = kvstore_get(from + 120, 8)};
    out->created_s = (int64_t)kvstore_get(from + 128, 8);
    const uint8_t *names = from + KVSTORE_HEAD_FIXED, *windows = names + 32 * (size_t)n_blocks;
    for (uint32_t i = 0; i < out->n_blocks; i++) {
        memcpy(out->names[i].bytes, names + 32 * (size_t)i, 32);
        if (windows[i] > 1) return err_damaged(e, "its head has an impossible number");
        out->has_window[i] = windows[i];
    }
    if (kvstore_segment_bytes(out) != file_bytes)
        return err_damaged(e, "its size is not the one that its head says");
    return 0;
}

int kvstore_head_parse(const uint8_t *bytes, uint64_t n, uint64_t file_bytes,
                       const struct kvstore_key *root, struct kvstore_head *out, err *e) {
    memset(out, 0, sizeof *out);
    int rc = read_head(bytes, n, file_bytes, out, e);
    if (rc || !root) return rc;
    const uint64_t n_head = kvstore_head_bytes(out->n_blocks) - KVSTORE_TAG_BYTES;
    struct kvstore_key key;
    kvstore_key_file(root, out->tenant, out->salt, &key);
    const struct kvstore_box box = {&key, 0, bytes, (size_t)n_head};
    rc = kvstore_unseal(&box, NULL, 0, bytes + n_head, e);
    return rc == ERR_FORMAT ? err_damaged(e, "its head is forged") : rc;
}

/* After its head was read and checked. */
static void know_head(struct kvstore_file *f, const uint8_t *head, const struct kvstore_key *root) {
    memcpy(f->tag, head + kvstore_head_bytes(f->head.n_blocks) - KVSTORE_TAG_BYTES, sizeof f->tag);
    kvstore_key_file(root, f->head.tenant, f->head.salt, &f->key);
}

int kvstore_file_open(const char *path, const struct kvstore_key *root, struct kvstore_file *f,
                      err *e) {
    uint8_t head[KVSTORE_HEAD_MOST];
    struct stat st;
    f->image = NULL;
    f->fd = file_open(path, O_RDONLY, 0);
    if (f->fd < 0)
        return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path,
                       strerror(errno));
    int rc = 0;
    if (fstat(f->fd, &st) || st.st_size < 0) {
        rc = err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    } else {
        uint64_t bytes = (uint64_t)st.st_size, n = bytes < sizeof head ? bytes : sizeof head;
        if (file_read_at(f->fd, head, n, 0))
            rc = err_set(e, ERR_IO, "%s: %s", path, errno ? strerror(errno) : "it was cut");
        else
            rc = kvstore_head_parse(head, n, bytes, root, &f->head, e);
    }
    if (rc)
        kvstore_file_close(f);
    else
        know_head(f, head, root);
    return rc;
}

int kvstore_image_open(const struct kvstore_image *image, const struct kvstore_key *root,
                       struct kvstore_file *f, err *e) {
    f->fd = -1;
    f->image = image;
    int rc = kvstore_head_parse(image->data, image->bytes, image->bytes, root, &f->head, e);
    if (rc)
        f->image = NULL;
    else
        know_head(f, image->data, root);
    return rc;
}

/* n bytes from at on. */
static int read_bytes(const struct kvstore_file *f, uint8_t *to, uint64_t n, uint64_t at, err *e) {
    if (f->image)
        memcpy(to, f->image->data + at, n);
    else if (file_read_at(f->fd, to, n, at))
        return errno ? err_set(e, ERR_IO, "cannot read a segment: %s", strerror(errno))
                     : err_damaged(e, "it was cut");
    return 0;
}

int kvstore_file_read(struct kvstore_file *f, int what, uint32_t block, uint8_t *to, err *e) {
    struct kvstore_range r;
    struct kvstore_unsealing u;
    if (!kvstore_segment_find(&f->head, what, block, &r))
        return err_set(e, ERR_NOT_FOUND, "the segment has no such record");
    const struct kvstore_box box = {&f->key, box_number(&f->head, what, block), f->tag,
                                    sizeof f->tag};
    int rc = kvstore_unseal_begin(&box, &u, e);
    if (rc) return rc;
    bool last = false;
    for (uint64_t at = 0; !rc && !last; at += PIECE) {
        last = r.bytes - at <= PIECE;
        const uint64_t n = last ? r.bytes - at : PIECE;
        /* The tag comes with the last piece. */
        rc = read_bytes(f, to + at, n + (last ? KVSTORE_TAG_BYTES : 0), r.at + at, e);
        if (!rc) rc = kvstore_unseal_piece(&u, to + at, n, last, e);
    }
    if (!rc) rc = kvstore_unseal_check(&u, to + r.bytes, e);
    kvstore_unseal_end(&u);
    return rc == ERR_FORMAT ? err_damaged(e, "a record is forged") : rc;
}

void kvstore_file_close(struct kvstore_file *f) {
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
    f->image = NULL;
}
