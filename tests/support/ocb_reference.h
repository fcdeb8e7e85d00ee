/* ocb_reference.h - AES-256-OCB with a tag of 16 bytes as RFC 7253 writes it down, over nettle's
 * block cipher: slow and plain, to compare with. */
#ifndef INFERD_TESTS_SUPPORT_OCB_REFERENCE_H
#define INFERD_TESTS_SUPPORT_OCB_REFERENCE_H

#include <nettle/aes.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct ocb_block {
    uint8_t b[16];
};

static inline struct ocb_block ocb_xor(struct ocb_block x, struct ocb_block y) {
    for (int i = 0; i < 16; i++)
        x.b[i] ^= y.b[i];
    return x;
}

static inline struct ocb_block ocb_double(struct ocb_block x) {
    struct ocb_block y;
    for (int i = 0; i < 16; i++)
        y.b[i] = (uint8_t)(x.b[i] << 1 | (i < 15 ? x.b[i + 1] >> 7 : 0));
    if (x.b[0] & 0x80) y.b[15] ^= 0x87;
    return y;
}

static inline struct ocb_block ocb_aes(const struct aes256_ctx *k, struct ocb_block x) {
    struct ocb_block y;
    aes256_encrypt(k, 16, y.b, x.b);
    return y;
}

/* L_{ntz(i)}; star: L_*. */
static inline struct ocb_block ocb_offset(const struct aes256_ctx *k, uint64_t i, int star) {
    struct ocb_block l = ocb_aes(k, (struct ocb_block){{0}});
    if (star) return l;
    l = ocb_double(ocb_double(l));
    for (; i % 2 == 0; i /= 2)
        l = ocb_double(l);
    return l;
}

static inline struct ocb_block ocb_part(const uint8_t *from, size_t n) {
    struct ocb_block x = {{0}};
    memcpy(x.b, from, n);
    if (n < 16) x.b[n] = 0x80;
    return x;
}

static inline struct ocb_block ocb_hash(const struct aes256_ctx *k, const uint8_t *a, size_t n) {
    struct ocb_block sum = {{0}}, offset = {{0}};
    size_t at = 0;
    for (; n - at >= 16; at += 16) {
        offset = ocb_xor(offset, ocb_offset(k, at / 16 + 1, 0));
        sum = ocb_xor(sum, ocb_aes(k, ocb_xor(ocb_part(a + at, 16), offset)));
    }
    if (at == n) return sum;
    offset = ocb_xor(offset, ocb_offset(k, 0, 1));
    return ocb_xor(sum, ocb_aes(k, ocb_xor(ocb_part(a + at, n - at), offset)));
}

static inline struct ocb_block ocb_begin(const struct aes256_ctx *k, const uint8_t nonce[12]) {
    struct ocb_block x = {{0}}, top;
    uint8_t stretch[24];
    x.b[3] = 1;
    memcpy(x.b + 4, nonce, 12);
    const unsigned bottom = x.b[15] & 63u;
    x.b[15] &= 0xc0;
    top = ocb_aes(k, x);
    memcpy(stretch, top.b, 16);
    for (int i = 0; i < 8; i++)
        stretch[16 + i] = top.b[i] ^ top.b[i + 1];
    for (unsigned i = 0; i < 16; i++) {
        const unsigned at = i + bottom / 8, by = bottom % 8;
        x.b[i] = (uint8_t)(stretch[at] << by | (by ? stretch[at + 1] >> (8 - by) : 0));
    }
    return x;
}

static inline void ocb_encrypt(const uint8_t key[32], const uint8_t nonce[12], const uint8_t *more,
                               size_t n_more, const uint8_t *text, size_t n, uint8_t *to,
                               uint8_t tag[16]) {
    struct aes256_ctx k;
    aes256_set_encrypt_key(&k, key);
    struct ocb_block offset = ocb_begin(&k, nonce), sum = {{0}}, x;
    size_t at = 0;
    for (; n - at >= 16; at += 16) {
        offset = ocb_xor(offset, ocb_offset(&k, at / 16 + 1, 0));
        sum = ocb_xor(sum, ocb_part(text + at, 16));
        x = ocb_xor(offset, ocb_aes(&k, ocb_xor(ocb_part(text + at, 16), offset)));
        memcpy(to + at, x.b, 16);
    }
    if (at < n) {
        offset = ocb_xor(offset, ocb_offset(&k, 0, 1));
        sum = ocb_xor(sum, ocb_part(text + at, n - at));
        x = ocb_aes(&k, offset);
        for (size_t i = at; i < n; i++)
            to[i] = text[i] ^ x.b[i - at];
    }
    struct ocb_block dollar = ocb_double(ocb_offset(&k, 0, 1));
    x = ocb_xor(ocb_aes(&k, ocb_xor(ocb_xor(sum, offset), dollar)), ocb_hash(&k, more, n_more));
    memcpy(tag, x.b, 16);
}

#endif
