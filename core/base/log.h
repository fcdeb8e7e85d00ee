/* log.h - messages of one line each, to the sink that daemon/ sets. No other room writes to stderr.
 *
 * THREAD SAFETY: log_write and log_set_level from any thread; log_set_sink once at start, before
 * other threads. */
#ifndef INFERD_BASE_LOG_H
#define INFERD_BASE_LOG_H

#include <stddef.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

/* line: NUL-terminated text without newline, valid during the call. Must be thread safe. */
typedef void (*log_sink)(void *arg, enum log_level level, const char *line);

/* Messages below min_level are dropped before formatting. sink NULL: everything is dropped. */
void log_set_sink(log_sink sink, void *arg, enum log_level min_level);

void log_set_level(enum log_level min_level);

void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Writes text as one field of a line: printable ASCII except space, quotes and backslash unchanged,
 * every other byte as \xNN, so that a client cannot forge another field. Truncates to dst (n_dst >
 * 4 bytes). Returns dst. */
const char *log_field(char *dst, size_t n_dst, const char *text);

#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_info(...)  log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)

#endif
