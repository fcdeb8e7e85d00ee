/* utf8.c - decoding, encoding and validation of UTF-8. Pure. */
#include "core/text/utf8.h"

#include <string.h>

/* Bytes that follow a lead byte << 16 and the bounds of the first of them << 8 and << 0: the bounds
 * exclude overlong forms, surrogates and what is above U+10FFFF. 0: not a lead byte of two or more.
 */
static uint32_t after_lead(uint8_t lead) {
    if (lead < 0xc2 || lead > 0xf4) return 0;
    if (lead < 0xe0) return 1u << 16 | 0x80bf;
    if (lead < 0xf0) return 2u << 16 | (lead == 0xe0 ? 0xa0bf : lead == 0xed ? 0x809f : 0x80bf);
    return 3u << 16 | (lead == 0xf0 ? 0x90bf : lead == 0xf4 ? 0x808f : 0x80bf);
}

bool utf8_step(uint32_t *missing, uint8_t byte) {
    uint32_t n = *missing >> 16;
    if (!n) {
        *missing = after_lead(byte);
        return byte < 0x80 || *missing;
    }
    if (byte < (*missing >> 8 & 0xff) || byte > (*missing & 0xff)) return false;
    *missing = n == 1 ? 0 : (n - 1) << 16 | 0x80bf;
    return true;
}

/* Length of the character at p (n > 0 bytes), 0 if malformed, -1 if it is cut off. */
static int char_len(const unsigned char *p, size_t n) {
    if (p[0] < 0x80) return 1;
    uint32_t missing = after_lead(p[0]);
    if (!missing) return 0;
    int len = 1 + (int)(missing >> 16);
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n) return -1;
        if (!utf8_step(&missing, p[i])) return 0;
    }
    return len;
}

int utf8_decode(const char *p, size_t n, uint32_t *c) {
    unsigned len;
    int found = char_len((const unsigned char *)p, n);
    if (found > 0) *c = utf8_decode_valid(p, &len);
    return found;
}

uint32_t utf8_decode_lossy(const char *p, size_t n, size_t *len) {
    uint32_t c;
    int found = utf8_decode(p, n, &c);
    *len = found > 0 ? (size_t)found : 1;
    return found > 0 ? c : UTF8_REPLACEMENT;
}

size_t utf8_len_lossy(const char *p, size_t n) {
    int len = char_len((const unsigned char *)p, n);
    return len > 0 ? (size_t)len : 1;
}

size_t utf8_count_lossy(const char *bytes, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; count++)
        i += utf8_len_lossy(bytes + i, n - i);
    return count;
}

size_t utf8_encode(uint32_t c, char out[4]) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00u >> n & 0xff) | c);
    return n;
}

void utf8_add(str *s, uint32_t c) {
    char bytes[4];
    str_add_n(s, bytes, utf8_encode(c, bytes));
}

size_t utf8_count(const char *bytes, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += !utf8_continues(bytes[i]);
    return count;
}

/* Most text is ASCII: eight bytes at a time. */
static size_t ascii_prefix(const char *bytes, size_t n) {
    size_t i = 0;
    for (uint64_t word; i + sizeof word <= n; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        if (word & UINT64_C(0x8080808080808080)) break;
    }
    while (i < n && (unsigned char)bytes[i] < 0x80)
        i++;
    return i;
}

size_t utf8_valid_prefix(const char *bytes, size_t n) {
    const unsigned char *p = (const unsigned char *)bytes;
    size_t i = ascii_prefix(bytes, n);
    while (i < n) {
        int len = char_len(p + i, n - i);
        if (len <= 0) break;
        i += (size_t)len;
        if (len == 1) i += ascii_prefix(bytes + i, n - i);
    }
    return i;
}

bool utf8_valid(const char *bytes, size_t n) {
    return utf8_valid_prefix(bytes, n) == n;
}

size_t utf8_whole(const char *bytes, size_t n) {
    const unsigned char *p = (const unsigned char *)bytes;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        size_t start = n - back;
        if (utf8_continues(bytes[start])) continue;
        return char_len(p + start, back) == -1 ? start : n;
    }
    return n;
}

void utf8_add_lossy(str *s, const char *bytes, size_t n) {
    const unsigned char *p = (const unsigned char *)bytes;
    for (size_t i = 0; i < n;) {
        int len = char_len(p + i, n - i);
        if (len > 0) {
            str_add_n(s, bytes + i, (size_t)len);
            i += (size_t)len;
        } else {
            size_t bad = 1;
            while (i + bad < n && char_len(p + i, bad + 1) == -1)
                bad++;
            utf8_add(s, UTF8_REPLACEMENT);
            i += bad;
        }
    }
}

bool text_holds_nul(const char *text) {
    return strstr(text, TEXT_NUL) != NULL;
}

size_t text_restore_nuls(char *dst, const char *text) {
    char *w = dst;
    for (; *text; text++) {
        bool nul = text[0] == TEXT_NUL[0] && text[1] == TEXT_NUL[1];
        *w++ = nul ? '\0' : *text;
        text += nul;
    }
    *w = '\0';
    return (size_t)(w - dst);
}
