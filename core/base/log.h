/* log.h - messages of one line each, to the sink that daemon/ sets. No other room writes to stderr.
 *
 * THREAD SAFETY: log_write and log_set_level from any thread; log_set_sink once at start, before
 * other threads. */
#ifndef INFERD_BASE_LOG_H
#define INFERD_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

/* line: NUL-terminated text without newline, valid during the call. Must be thread safe. */
typedef void (*log_sink)(void *arg, enum log_level level, const char *line);

/* Messages below min_level are dropped before formatting. sink NULL: everything is dropped. */
void log_set_sink(log_sink sink, void *arg, enum log_level min_level);

void log_set_level(enum log_level min_level);

void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What a message says, for programs: "tokens=12". */
struct log_value {
    const char *name;
    const char *text; /* NULL: number */
    double number;
    bool said; /* the message's text has it */
};
/* values (n) are valid during the call. Must be thread safe. */
typedef void (*log_value_sink)(void *arg, enum log_level level, const char *line,
                               const struct log_value *values, size_t n);
/* For messages with values; NULL: the other sink gets them as text. Any thread. */
void log_set_value_sink(log_value_sink sink);
/* As text: the message, then " name=value" for each value that it does not say. */
void log_write_values(enum log_level level, const struct log_value *values, size_t n,
                      const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* "12", "1.500": whole numbers below 2^53 without a fraction. Returns dst (n_dst >= 32 bytes). */
const char *log_number(char *dst, size_t n_dst, double number);

/* Writes text as one field of a line: printable ASCII except space, quotes and backslash unchanged,
 * every other byte as \xNN, so that a client cannot forge another field. Truncates to dst (n_dst >
 * 4 bytes). Returns dst. */
const char *log_field(char *dst, size_t n_dst, const char *text);

#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_info(...)  log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)

#endif
