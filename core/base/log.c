/* log.c - formats a line on the stack and hands it to the sink. Control bytes (of a client's model
 * name, of a string in a file) become '?': they could forge log lines. */
#include "core/base/log.h"

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 1024 };

static struct {
    log_sink sink;
    void *arg;
    _Atomic(log_value_sink) value_sink;
    atomic_int min_level;
} g_log;

void log_set_sink(log_sink sink, void *arg, enum log_level min_level) {
    g_log.arg = arg;
    g_log.min_level = min_level;
    g_log.sink = sink;
}

void log_set_level(enum log_level min_level) {
    g_log.min_level = min_level;
}

void log_set_value_sink(log_value_sink sink) {
    atomic_store(&g_log.value_sink, sink);
}

static void format_line(char line[LINE_BYTES], const char *fmt, va_list ap) {
    vsnprintf(line, LINE_BYTES, fmt, ap);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
}

static bool is_dropped(enum log_level level) {
    return !g_log.sink || (int)level < g_log.min_level;
}

const char *log_number(char *dst, size_t n_dst, double number) {
    bool whole = fabs(number) < 9007199254740992.0 && number == floor(number);
    snprintf(dst, n_dst, whole ? "%.0f" : "%.3f", number);
    return dst;
}

static void add_values(char line[LINE_BYTES], const struct log_value *values, size_t n) {
    size_t at = strlen(line);
    for (size_t i = 0; i < n && at < LINE_BYTES; i++) {
        char value[256];
        if (values[i].said) continue;
        if (values[i].text)
            log_field(value, sizeof value, values[i].text);
        else
            log_number(value, sizeof value, values[i].number);
        at += (size_t)snprintf(line + at, LINE_BYTES - at, " %s=%s", values[i].name, value);
    }
}

static void write_line(enum log_level level, const struct log_value *values, size_t n,
                       const char *fmt, va_list ap) {
    char line[LINE_BYTES];
    format_line(line, fmt, ap);
    log_value_sink with_values = atomic_load(&g_log.value_sink);
    if (with_values) {
        with_values(g_log.arg, level, line, values, n);
        return;
    }
    add_values(line, values, n);
    g_log.sink(g_log.arg, level, line);
}

void log_write(enum log_level level, const char *fmt, ...) {
    if (is_dropped(level)) return;
    va_list ap;
    va_start(ap, fmt);
    write_line(level, NULL, 0, fmt, ap);
    va_end(ap);
}

void log_write_values(enum log_level level, const struct log_value *values, size_t n,
                      const char *fmt, ...) {
    if (is_dropped(level)) return;
    va_list ap;
    va_start(ap, fmt);
    write_line(level, values, n, fmt, ap);
    va_end(ap);
}

const char *log_field(char *dst, size_t n_dst, const char *text) {
    size_t n = 0;
    for (; *text && n + 5 <= n_dst; text++) {
        unsigned char c = (unsigned char)*text;
        if (c > ' ' && c < 0x7f && c != '"' && c != '\'' && c != '\\')
            dst[n++] = (char)c;
        else
            n += (size_t)snprintf(dst + n, n_dst - n, "\\x%02x", c);
    }
    dst[n] = '\0';
    return dst;
}
