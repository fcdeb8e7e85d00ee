/* log_line.c - see log_line.h. Owns nothing. */
#include "core/text/log_line.h"

#include "core/base/log.h"
#include "core/text/utf8.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { END_BYTES = 4 /* "}\n, kept free for the end of a value and of the line */ };

static size_t left(const struct log_line *l) {
    return l->n + END_BYTES < l->size ? l->size - END_BYTES - l->n : 0;
}

static void put(struct log_line *l, const char *bytes, size_t n) {
    memcpy(l->out + l->n, bytes, n);
    l->n += n;
}

void log_line_begin(struct log_line *l, char *out, size_t size, bool json) {
    *l = (struct log_line){.out = out, .size = size, .json = json};
    if (json) put(l, "{", 1);
}

/* false: no room for it and a value of n bytes. */
static bool put_name(struct log_line *l, const char *name, size_t n) {
    size_t n_name = strlen(name);
    bool first = l->n == (l->json ? 1 : 0);
    if (left(l) < n_name + n + 4) return false;
    if (!first) put(l, l->json ? "," : " ", 1);
    if (l->json) put(l, "\"", 1);
    put(l, name, n_name);
    put(l, l->json ? "\":" : "=", l->json ? 2 : 1);
    return true;
}

/* One character of a JSON string; returns its length in out. */
static size_t escape_character(uint32_t c, char out[8]) {
    if (c == '"' || c == '\\') {
        out[0] = '\\';
        out[1] = (char)c;
        return 2;
    }
    if (c < 0x20 || c == 0x7f) return (size_t)snprintf(out, 8, "\\u%04x", (unsigned)c);
    return utf8_encode(c, out);
}

static void put_string(struct log_line *l, const char *value) {
    size_t n = strlen(value), used;
    put(l, "\"", 1);
    for (; n; value += used, n -= used) {
        char escaped[8];
        uint32_t c = utf8_decode_lossy(value, n, &used);
        size_t more = escape_character(c, escaped);
        if (more > left(l)) break;
        put(l, escaped, more);
    }
    l->out[l->n++] = '"'; /* has its place in END_BYTES */
}

void log_line_text(struct log_line *l, const char *name, const char *value) {
    char field[512];
    if (!value || !*value) return;
    if (l->json) {
        if (put_name(l, name, 8)) put_string(l, value);
        return;
    }
    log_field(field, sizeof field, value);
    if (put_name(l, name, strlen(field))) put(l, field, strlen(field));
}

void log_line_number(struct log_line *l, const char *name, double value) {
    char text[64];
    log_number(text, sizeof text, value);
    if (put_name(l, name, strlen(text))) put(l, text, strlen(text));
}

void log_line_flag(struct log_line *l, const char *name, bool value) {
    if (value && put_name(l, name, 4)) put(l, "true", 4);
}

size_t log_line_end(struct log_line *l) {
    if (l->json) l->out[l->n++] = '}';
    l->out[l->n++] = '\n';
    return l->n;
}

const char *log_line_time(int64_t wall_ms, char out[LOG_TIME_BYTES]) {
    char seconds[24];
    time_t s = (time_t)(wall_ms / 1000);
    struct tm utc;
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", gmtime_r(&s, &utc));
    snprintf(out, LOG_TIME_BYTES, "%s.%03dZ", seconds, (int)(wall_ms % 1000));
    return out;
}
