/* str.c - bounded string builder and UTF-8 checks (RFC 3629). */
#include "core/base/str.h"

#include "core/base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void str_init(str *s, size_t max_bytes) {
    memset(s, 0, sizeof *s);
    s->max_bytes = max_bytes;
}

void str_fini(str *s) {
    free(s->data);
    memset(s, 0, sizeof *s);
}

void str_clear(str *s) {
    s->len = 0;
    s->failed = false;
    if (s->data) s->data[0] = '\0';
}

/* Makes room for n more bytes and the NUL. */
static bool reserve(str *s, size_t n) {
    if (s->failed) return false;
    if (n > s->max_bytes || s->len > s->max_bytes - n) {
        s->failed = true;
        return false;
    }
    size_t need = s->len + n + 1;
    if (need <= s->capacity) return true;
    size_t capacity = s->capacity ? s->capacity : 64;
    while (capacity < need)
        capacity *= 2;
    char *data = mem_resize(s->data, capacity, 1);
    if (!data) {
        s->failed = true;
        return false;
    }
    s->data = data;
    s->capacity = capacity;
    return true;
}

void str_add_n(str *s, const char *bytes, size_t n) {
    if (!reserve(s, n)) return;
    if (n) memcpy(s->data + s->len, bytes, n);
    s->len += n;
    s->data[s->len] = '\0';
}

void str_add(str *s, const char *text) {
    str_add_n(s, text, strlen(text));
}

void str_add_char(str *s, char c) {
    str_add_n(s, &c, 1);
}

void str_addf(str *s, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        s->failed = true;
    } else if (reserve(s, (size_t)n)) {
        vsnprintf(s->data + s->len, (size_t)n + 1, fmt, again);
        s->len += (size_t)n;
    }
    va_end(again);
}

const char *str_cstr(const str *s) {
    return s->data ? s->data : "";
}

char *str_take(str *s) {
    char *data = NULL;
    if (!s->failed) data = s->data ? s->data : mem_strdup("");
    if (s->failed) free(s->data);
    size_t max_bytes = s->max_bytes;
    str_init(s, max_bytes);
    return data;
}

/* Bytes of the well-formed character at p (n bytes left), 0 if malformed, -1 if it is cut off. */
static int char_len(const unsigned char *p, size_t n) {
    if (p[0] < 0x80) return 1;
    int len = p[0] >= 0xc2 && p[0] <= 0xdf   ? 2
              : (p[0] & 0xf0) == 0xe0        ? 3
              : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4
                                             : 0;
    if (!len) return 0;
    unsigned lo = 0x80, hi = 0xbf; /* bounds of the second byte: no overlongs, no surrogates */
    if (p[0] == 0xe0) lo = 0xa0;
    if (p[0] == 0xed) hi = 0x9f;
    if (p[0] == 0xf0) lo = 0x90;
    if (p[0] == 0xf4) hi = 0x8f;
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n) return -1;
        if (p[i] < lo || p[i] > hi) return 0;
        lo = 0x80;
        hi = 0xbf;
    }
    return len;
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

bool words_hold(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *w = words; w && n;) {
        size_t len = strcspn(w, "|");
        if (len == n && memcmp(w, word, n) == 0) return true;
        w = w[len] ? w + len + 1 : NULL;
    }
    return false;
}

size_t utf8_whole(const char *bytes, size_t n) {
    const unsigned char *p = (const unsigned char *)bytes;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        size_t start = n - back;
        if ((p[start] & 0xc0) == 0x80) continue;
        return char_len(p + start, back) == -1 ? start : n;
    }
    return n;
}

size_t utf8_valid_prefix(const char *bytes, size_t n) {
    const unsigned char *p = (const unsigned char *)bytes;
    size_t i = 0;
    while (i < n) {
        int len = char_len(p + i, n - i);
        if (len <= 0) break;
        i += (size_t)len;
    }
    return i;
}

bool utf8_valid(const char *bytes, size_t n) {
    return utf8_valid_prefix(bytes, n) == n;
}

void utf8_add_lossy(str *s, const char *bytes, size_t n) {
    const unsigned char *p = (const unsigned char *)bytes;
    for (size_t i = 0; i < n;) {
        int len = char_len(p + i, n - i);
        if (len > 0) {
            str_add_n(s, bytes + i, (size_t)len);
            i += (size_t)len;
        } else { /* one U+FFFD for the longest part that could have begun a character */
            size_t bad = 1;
            while (i + bad < n && char_len(p + i, bad + 1) == -1)
                bad++;
            str_add(s, "\xef\xbf\xbd");
            i += bad;
        }
    }
}
