/* str.c - a bounded string builder. Owns its memory; one thread at a time. */
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
    s->failed = s->no_memory = false;
    if (s->data) s->data[0] = '\0';
}

/* Makes room for n more bytes and the NUL. */
static bool reserve_bytes(str *s, size_t n) {
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
        s->failed = s->no_memory = true;
        return false;
    }
    s->data = data;
    s->capacity = capacity;
    return true;
}

void str_add_n(str *s, const char *bytes, size_t n) {
    if (!reserve_bytes(s, n)) return;
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
    } else if (reserve_bytes(s, (size_t)n)) {
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

bool words_hold(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *w = words; w && n;) {
        size_t len = strcspn(w, "|");
        if (len == n && memcmp(w, word, n) == 0) return true;
        w = w[len] ? w + len + 1 : NULL;
    }
    return false;
}
