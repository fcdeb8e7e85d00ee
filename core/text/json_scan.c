/* json_scan.c - a cursor over JSON text. Pure; any thread. */
#include "core/text/json_scan.h"

#include <string.h>

enum { MAX_DEPTH = 64 };

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

char json_scan_peek(struct json_scan *s) {
    while (s->pos < s->n && is_space(s->text[s->pos]))
        s->pos++;
    return s->pos < s->n ? s->text[s->pos] : 0;
}

int json_scan_take(struct json_scan *s, char c) {
    if (json_scan_peek(s) != c || s->pos >= s->n) return -1;
    s->pos++;
    return 0;
}

/* Leaves pos after the closing quote. */
static int scan_string(struct json_scan *s, bool *escapes) {
    *escapes = false;
    if (json_scan_take(s, '"')) return -1;
    for (; s->pos < s->n; s->pos++) {
        unsigned char c = (unsigned char)s->text[s->pos];
        if (c < ' ') return -1;
        if (c == '"') {
            s->pos++;
            return 0;
        }
        if (c != '\\') continue;
        *escapes = true;
        if (++s->pos == s->n) return -1;
    }
    return -1;
}

int json_scan_name(struct json_scan *s, const char **name, uint64_t *len) {
    bool escapes;
    json_scan_peek(s);
    uint64_t begin = s->pos;
    if (scan_string(s, &escapes)) return -1;
    if (escapes) {
        s->pos = begin;
        return -1;
    }
    *name = s->text + begin + 1;
    *len = s->pos - begin - 2;
    return 0;
}

int json_scan_u64(struct json_scan *s, uint64_t *v) {
    uint64_t begin = (json_scan_peek(s), s->pos), value = 0;
    while (s->pos < s->n && s->text[s->pos] >= '0' && s->text[s->pos] <= '9') {
        uint64_t digit = (uint64_t)(s->text[s->pos] - '0');
        if (value > (UINT64_MAX - digit) / 10) return -1;
        value = value * 10 + digit;
        s->pos++;
    }
    bool leading_zero = s->pos > begin + 1 && s->text[begin] == '0';
    bool goes_on = s->pos < s->n && strchr(".eE", s->text[s->pos]) && s->text[s->pos];
    if (s->pos == begin || leading_zero || goes_on) return -1;
    *v = value;
    return 0;
}

/* A number, true, false or null: its characters are not checked. */
static int skip_word(struct json_scan *s) {
    uint64_t begin = s->pos;
    while (s->pos < s->n && s->text[s->pos] && !is_space(s->text[s->pos]) &&
           !strchr(",:[]{}\"", s->text[s->pos]))
        s->pos++;
    return s->pos > begin ? 0 : -1;
}

int json_scan_skip(struct json_scan *s) {
    char open[MAX_DEPTH];
    int depth = 0;
    for (;;) {
        char c = json_scan_peek(s);
        bool escapes;
        if (c == '{' || c == '[') {
            if (depth == MAX_DEPTH) return -1;
            open[depth++] = c;
            s->pos++;
        } else if (c == '}' || c == ']') {
            if (!depth || open[--depth] != (c == '}' ? '{' : '[')) return -1;
            s->pos++;
        } else if (c == '"') {
            if (scan_string(s, &escapes)) return -1;
        } else if (depth && (c == ',' || c == ':')) {
            s->pos++;
            continue;
        } else if (skip_word(s)) {
            return -1;
        }
        if (!depth) return 0;
    }
}

int json_scan_next(struct json_scan *s, const char *brackets, bool *first, bool *more) {
    bool at_start = *first;
    *first = false;
    *more = true;
    if (at_start && json_scan_take(s, brackets[0])) return -1;
    if (json_scan_peek(s) == brackets[1]) {
        s->pos++;
        *more = false;
        return 0;
    }
    return at_start ? 0 : json_scan_take(s, ',');
}
