/* fuzz_kvstore.c - a segment's file: first as it is, then with the tags that a holder of the secret
 * would write, so that the records behind the head are reached. Every range that a head gives lies
 * within its file. */
#include "core/kvstore/kvstore_int.h"
#include "tests/fuzz/scratch.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MOST = 1 << 16 };

static void check_ranges(const struct kvstore_head *h, uint64_t n) {
    for (uint32_t i = 0; i < h->n_blocks; i++)
        for (int what = KVSTORE_BLOCK; what <= KVSTORE_STATE; what *= 2) {
            struct kvstore_range r;
            if (!kvstore_segment_find(h, what, i, &r)) continue;
            if (r.at > n || r.bytes > n - r.at || n - r.at - r.bytes < KVSTORE_TAG_BYTES) abort();
        }
}

/* Opens the file and reads every record; all: each of them must be there. */
static void read_file(const uint8_t *bytes, size_t n, const struct kvstore_key *root, bool all) {
    static uint8_t to[MOST + KVSTORE_TAG_BYTES];
    struct kvstore_file f;
    err e = {0};
    int rc = kvstore_file_open(scratch_file(bytes, n), root, &f, &e);
    if (rc && (all || !e.msg[0])) abort();
    if (rc) return;
    for (uint32_t i = 0; i <= f.head.n_blocks; i++)
        for (int what = KVSTORE_BLOCK; what <= KVSTORE_STATE; what *= 2) {
            struct kvstore_range r;
            bool there = kvstore_segment_find(&f.head, what, i, &r);
            rc = there ? kvstore_file_read(&f, what, i, to, &e) : 0;
            if (rc && (all || !e.msg[0])) abort();
        }
    kvstore_file_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static uint8_t sealed[MOST];
    struct kvstore_head h;
    struct kvstore_key root;
    err e = {0};
    if (n > MOST) return 0;
    kvstore_key_extract("fuzz", "secret", 6, &root);
    read_file(bytes, n, &root, false);
    if (kvstore_head_parse(bytes, n, n, NULL, &h, &e)) return 0;
    check_ranges(&h, n);
    memcpy(sealed, bytes, n);
    if (kvstore_segment_seal(&h, &root, sealed, &e)) abort();
    read_file(sealed, n, &root, true);
    return 0;
}
