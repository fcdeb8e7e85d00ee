/* test_kvstore_cipher.c - how segments are encrypted: what libgcrypt makes is what others make of
 * the same; records of several pieces come back whole, and none that was cut, altered, reordered or
 * swapped at a piece's bounds. */
#include "core/base/mem.h"
#include "core/kvstore/kvstore_int.h"
#include "tests/support/ocb_reference.h"
#include "tests/unit/check.h"

#include <stdlib.h>

/* ---- the cipher ---- */

/* The reference is RFC 7253's: the value that appendix A gives for 128 triples of messages. */
static void test_reference(void) {
    static const uint8_t wanted[16] = {0xd9, 0x0e, 0xb8, 0xe9, 0xc9, 0x77, 0xc8, 0x8b,
                                       0x79, 0xdd, 0x79, 0x3d, 0x7f, 0xfa, 0x16, 0x1c};
    static const uint8_t zeros[128];
    static uint8_t all[128 * (2 * 128 + 3 * 16)];
    uint8_t key[32] = {0}, nonce[12] = {0}, tag[16];
    size_t n = 0;
    key[31] = 128;
    for (size_t i = 0; i < 128; i++)
        for (unsigned k = 1; k <= 3; k++) {
            const size_t number = 3 * i + k, text = k < 3 ? i : 0, more = k != 2 ? i : 0;
            /* The three of a triple: text and more, text alone, more alone. */
            nonce[10] = (uint8_t)(number >> 8);
            nonce[11] = (uint8_t)number;
            ocb_encrypt(key, nonce, zeros, more, zeros, text, all + n, tag);
            memcpy(all + n + text, tag, 16);
            n += text + 16;
        }
    nonce[10] = 385 >> 8;
    nonce[11] = 385 & 255;
    ocb_encrypt(key, nonce, all, n, NULL, 0, NULL, tag);
    CHECK(memcmp(tag, wanted, 16) == 0);
}

/* A box is what another implementation makes of it. */
static void test_cipher(void) {
    static const size_t sizes[] = {0, 1, 16, 31, 1000, 4096, (2 << 20) + 5};
    enum { MOST = (2 << 20) + 16 };
    uint8_t *text = malloc(MOST), *ours = malloc(MOST), *theirs = malloc(MOST);
    uint8_t tag[16], their_tag[16], more[40];
    struct kvstore_key key;
    err e;
    for (int i = 0; i < MOST; i++)
        text[i] = (uint8_t)(i * 7 + i / 300);
    memset(more, 9, sizeof more);
    kvstore_key_extract("test", "cipher", 6, &key);
    for (int i = 0; i < 7; i++) {
        const size_t n = sizes[i];
        const struct kvstore_box box = {&key, (uint64_t)i + 300, more, sizeof more};
        const uint8_t nonce[12] = {(uint8_t)(i + 300), 1};
        memcpy(ours, text, n);
        CHECK(kvstore_seal(&box, ours, n, tag, &e) == 0);
        ocb_encrypt(key.bytes, nonce, more, sizeof more, text, n, theirs, their_tag);
        CHECK(memcmp(ours, theirs, n) == 0 && memcmp(tag, their_tag, 16) == 0);
        CHECK(kvstore_unseal(&box, ours, n, tag, &e) == 0 && memcmp(ours, text, n) == 0);
        tag[3] ^= 1;
        CHECK(kvstore_unseal(&box, theirs, n, tag, &e) == ERR_FORMAT);
    }
    free(text);
    free(ours);
    free(theirs);
}

/* ---- records of several pieces ---- */

enum { PIECE = 64 << 10, BIG = 3 * PIECE + 1000 };
static const struct kvstore_key root = {{1, 2, 3}};

/* A segment in memory of two blocks of BIG bytes; byte i of block b is byte_of. */
static uint8_t byte_of(uint32_t block, uint64_t i) {
    return (uint8_t)(i * 31 + i / PIECE * 7 + block * 100);
}

static struct kvstore_image *make_segment(struct kvstore_head *h, uint8_t salt,
                                          uint64_t block_bytes) {
    *h = (struct kvstore_head){.n_blocks = 2,
                               .shape = {.block_tokens = 4, .block_bytes = block_bytes}};
    h->salt[0] = salt;
    const uint64_t bytes = kvstore_segment_bytes(h);
    struct kvstore_image *image = calloc(1, sizeof *image + bytes);
    struct kvstore_range r;
    err e;
    CHECK(image != NULL);
    if (!image) exit(1);
    image->bytes = bytes;
    for (uint32_t b = 0; b < 2; b++) {
        CHECK(kvstore_segment_find(h, KVSTORE_BLOCK, b, &r));
        for (uint64_t i = 0; i < r.bytes; i++)
            image->data[r.at + i] = byte_of(b, i);
    }
    CHECK(kvstore_segment_seal(h, &root, image->data, &e) == 0);
    return image;
}

/* 0: the block is read, and every byte is right. */
static int read_block(const struct kvstore_image *image, uint32_t block) {
    struct kvstore_file f;
    err e;
    int rc = kvstore_image_open(image, &root, &f, &e);
    if (rc) return rc;
    const uint64_t n = f.head.shape.block_bytes;
    uint8_t *to = malloc(n + KVSTORE_TAG_BYTES);
    rc = kvstore_file_read(&f, KVSTORE_BLOCK, block, to, &e);
    for (uint64_t i = 0; i < n && !rc; i++)
        if (to[i] != byte_of(block, i)) rc = -1;
    free(to);
    kvstore_file_close(&f);
    return rc;
}

/* Sizes around one piece and several. */
static void test_pieces(void) {
    static const uint64_t sizes[] = {16,        PIECE - 16, PIECE - 1,     PIECE,
                                     PIECE + 1, PIECE + 16, 2 * PIECE - 5, BIG};
    for (int i = 0; i < 8; i++) {
        struct kvstore_head h;
        struct kvstore_image *image = make_segment(&h, 1, sizes[i]);
        CHECK_MSG(read_block(image, 0) == 0, "%d bytes", (int)sizes[i]);
        CHECK_MSG(read_block(image, 1) == 0, "%d bytes", (int)sizes[i]);
        free(image);
    }
}

static void swap_bytes(uint8_t *a, uint8_t *b, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t x = a[i];
        a[i] = b[i];
        b[i] = x;
    }
}

static void test_altered_pieces(void) {
    static const long beside[] = {-17, -16, -1, 0, 1, 15, 16, PIECE / 2};
    struct kvstore_head h;
    struct kvstore_range r;
    struct kvstore_image *image = make_segment(&h, 1, BIG);
    CHECK(kvstore_segment_find(&h, KVSTORE_BLOCK, 0, &r));
    for (long piece = 0; piece <= 4; piece++) /* the last one: of the tag */
        for (int i = 0; i < 8; i++) {
            const long at = (piece == 4 ? BIG : piece * PIECE) + beside[i];
            if (at < 0 || at >= BIG + KVSTORE_TAG_BYTES) continue;
            image->data[r.at + (uint64_t)at] ^= (uint8_t)(1 << i);
            CHECK_MSG(read_block(image, 0) == ERR_FORMAT, "byte %ld", at);
            CHECK(read_block(image, 1) == 0);
            image->data[r.at + (uint64_t)at] ^= (uint8_t)(1 << i);
        }
    CHECK(read_block(image, 0) == 0);
    free(image);
}

static void test_moved_pieces(void) {
    struct kvstore_head h;
    struct kvstore_range a, b;
    struct kvstore_image *image = make_segment(&h, 1, BIG), *other = make_segment(&h, 2, BIG);
    CHECK(kvstore_segment_find(&h, KVSTORE_BLOCK, 0, &a));
    CHECK(kvstore_segment_find(&h, KVSTORE_BLOCK, 1, &b));
    uint8_t *first = image->data + a.at, *second = image->data + b.at;
    /* Two pieces of a record change places, and two blocks of 16 bytes. */
    swap_bytes(first, first + PIECE, PIECE);
    CHECK(read_block(image, 0) == ERR_FORMAT && read_block(image, 1) == 0);
    swap_bytes(first, first + PIECE, PIECE);
    swap_bytes(first + PIECE - 16, first + PIECE, 16);
    CHECK(read_block(image, 0) == ERR_FORMAT);
    swap_bytes(first + PIECE - 16, first + PIECE, 16);
    /* A piece of the other record, and whole records with their tags. */
    swap_bytes(first + PIECE, second + PIECE, PIECE);
    CHECK(read_block(image, 0) == ERR_FORMAT && read_block(image, 1) == ERR_FORMAT);
    swap_bytes(first + PIECE, second + PIECE, PIECE);
    swap_bytes(first, second, BIG + KVSTORE_TAG_BYTES);
    CHECK(read_block(image, 0) == ERR_FORMAT && read_block(image, 1) == ERR_FORMAT);
    swap_bytes(first, second, BIG + KVSTORE_TAG_BYTES);
    /* The same record of another file, with its tag. */
    swap_bytes(first, other->data + a.at, BIG + KVSTORE_TAG_BYTES);
    CHECK(read_block(image, 0) == ERR_FORMAT && read_block(other, 0) == ERR_FORMAT);
    swap_bytes(first, other->data + a.at, BIG + KVSTORE_TAG_BYTES);
    CHECK(read_block(image, 0) == 0 && read_block(other, 0) == 0);
    free(image);
    free(other);
}

int main(void) {
    RUN(test_reference);
    RUN(test_cipher);
    RUN(test_pieces);
    RUN(test_altered_pieces);
    RUN(test_moved_pieces);
    return check_done();
}
