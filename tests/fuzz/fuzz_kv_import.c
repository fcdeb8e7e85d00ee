/* fuzz_kv_import.c - an exported chain of the KV store: first as it is, then its bytes as the texts
 * of frames, which a holder of the passphrase would seal, so that all behind the tags is reached:
 * two bytes for the length of each, then its text. What is accepted says what it holds. */
#include "core/kvstore/kvstore_int.h"
#include "tests/fuzz/scratch.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MOST = 1 << 15, HEAD = 48 };

static void check(const uint8_t *bytes, size_t n) {
    struct kvstore_moved m;
    err e = {0};
    int rc = kvstore_export_check(scratch_file(bytes, n), "passphrase", &m, &e);
    if (rc && !e.msg[0]) abort();
    if (!rc && (!m.n_blocks || !m.block_tokens)) abort();
}

static void put(uint8_t *to, uint64_t v, int n) {
    for (int i = 0; i < n; i++)
        to[i] = (uint8_t)(v >> 8 * i);
}

/* One iteration, so that a run takes no time. */
static void write_head(uint8_t head[HEAD]) {
    memcpy(head, "INFKVEXP", 8);
    put(head + 8, 2, 4);
    put(head + 12, 1, 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static uint8_t file[HEAD + MOST * 12];
    struct kvstore_key key;
    uint8_t head[HEAD + 4] = {0};
    size_t at = HEAD;
    if (n > MOST) return 0;
    memcpy(file, bytes, n);
    if (n >= HEAD) write_head(file);
    check(file, n);
    memset(head, 0, sizeof head);
    write_head(head);
    kvstore_key_passphrase("passphrase", head + 16, 1, &key);
    memcpy(file, head, HEAD);
    for (uint64_t number = 0; n >= 2; number++) {
        size_t len = bytes[0] | (size_t)bytes[1] << 8;
        bytes += 2;
        n -= 2;
        if (len > n) len = n;
        put(head + HEAD, len, 4);
        put(file + at, len, 4);
        memcpy(file + at + 4, bytes, len);
        const struct kvstore_box box = {&key, number, head, sizeof head};
        if (kvstore_seal(&box, file + at + 4, len, file + at + 4 + len, NULL)) abort();
        at += 4 + len + KVSTORE_TAG_BYTES;
        bytes += len;
        n -= len;
    }
    check(file, at);
    return 0;
}
