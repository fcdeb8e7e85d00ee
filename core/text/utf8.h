/* utf8.h - UTF-8 (RFC 3629): one decoder, one encoder, one validator.
 *
 * A scalar value is a code point up to U+10FFFF that is not a surrogate; only these have a UTF-8
 * form, and only the shortest form of each is well-formed. Pure functions, any thread. */
#ifndef INFERD_TEXT_UTF8_H
#define INFERD_TEXT_UTF8_H

#include "core/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { UTF8_LAST = 0x10ffff, UTF8_REPLACEMENT = 0xfffd };

static inline bool utf8_is_scalar(uint32_t c) {
    return c < 0xd800 || (c >= 0xe000 && c <= UTF8_LAST);
}

/* The second or a later byte of a character. */
static inline bool utf8_continues(char byte) {
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* Strict: the character at p[0..n), n > 0, goes to *c. Returns its length in bytes; 0: malformed,
 * -1: the n bytes begin a character that needs more. *c is set only if the result is positive. */
int utf8_decode(const char *p, size_t n, uint32_t *c);

/* Lenient: as utf8_decode, but a byte that begins no whole character is U+FFFD of length 1. */
uint32_t utf8_decode_lossy(const char *p, size_t n, size_t *len);
size_t utf8_len_lossy(const char *p, size_t n);       /* of that character */
size_t utf8_count_lossy(const char *bytes, size_t n); /* how many of them */

/* Unchecked: the character at p in text that is known to be valid, *len bytes long. */
static inline uint32_t utf8_decode_valid(const char *text, unsigned *len) {
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80) {
        *len = 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *len = 2;
        return (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3f);
    }
    if (p[0] < 0xf0) {
        *len = 3;
        return (uint32_t)(p[0] & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    }
    *len = 4;
    return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 |
           (uint32_t)(p[2] & 0x3f) << 6 | (p[3] & 0x3f);
}

/* Writes the scalar value c; returns its length in bytes. */
size_t utf8_encode(uint32_t c, char out[4]);
void utf8_add(str *s, uint32_t c);

/* Number of characters in bytes[0..n), as the bytes that begin one. */
size_t utf8_count(const char *bytes, size_t n);

/* Length in bytes of the longest prefix of bytes[0..n) that is valid. */
size_t utf8_valid_prefix(const char *bytes, size_t n);
bool utf8_valid(const char *bytes, size_t n);

/* Length in bytes of the longest prefix of bytes[0..n) that does not end inside a character. A
 * malformed byte counts as a whole character, so that at most 3 bytes are left. */
size_t utf8_whole(const char *bytes, size_t n);

/* Appends bytes[0..n) with each malformed sequence replaced by U+FFFD: one for the longest part
 * that could have begun a character (Unicode's "maximal subpart"), so that bytes cut where
 * utf8_whole says give the same text. */
void utf8_add_lossy(str *s, const char *bytes, size_t n);

/* Validates byte by byte. *missing: 0 between characters; else the number of missing bytes << 16
 * and the bounds of the next one << 8 and << 0. false: malformed. */
bool utf8_step(uint32_t *missing, uint8_t byte);

/* U+0000 in a C string is stored as these two bytes, which valid UTF-8 never contains ("modified
 * UTF-8"). JSON trees of requests hold it so; text_restore_nuls() gives the text itself with its
 * length. */
#define TEXT_NUL "\xc0\x80"
bool text_holds_nul(const char *text);
/* Writes text into dst (room for strlen(text) + 1 bytes; may be text) with each TEXT_NUL as a NUL
 * byte, and one more at the end; returns its length. */
size_t text_restore_nuls(char *dst, const char *text);

#endif
