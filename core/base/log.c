/* log.c - formats a line on the stack and hands it to the sink. Control bytes (of a client's model
 * name, of a string in a file) become '?': they could forge log lines. */
#include "core/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static struct {
    log_sink sink;
    void *arg;
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

void log_write(enum log_level level, const char *fmt, ...) {
    if (!g_log.sink || (int)level < g_log.min_level) return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    g_log.sink(g_log.arg, level, line);
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
