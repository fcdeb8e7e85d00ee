/* log_line.h - writes one line of a log for programs: name=value pairs, or a JSON object (RFC
 * 8259). Into the caller's buffer, without memory of its own. Valid UTF-8 whatever the values hold;
 * what does not fit is cut (texts) or left out (other values), never the end of the line. Pure
 * functions, any thread.
 *
 *   time=2026-01-31T12:00:00.250Z status=200 model=m
 *   {"time":"2026-01-31T12:00:00.250Z","status":200,"model":"m"} */
#ifndef INFERD_TEXT_LOG_LINE_H
#define INFERD_TEXT_LOG_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct log_line {
    char *out;
    size_t n, size;
    bool json;
};

enum { LOG_TIME_BYTES = 32 };

/* out (size >= 64) borrowed until log_line_end. */
void log_line_begin(struct log_line *l, char *out, size_t size, bool json);
/* name: letters and '_'. NULL and "" are left out. As a pair, a value is one field (log_field in
 * core/base/log.h). */
void log_line_text(struct log_line *l, const char *name, const char *value);
void log_line_number(struct log_line *l, const char *name, double value); /* as log_number */
void log_line_flag(struct log_line *l, const char *name, bool value);     /* left out if false */
/* Ends the line with '\n', no NUL; returns its length. */
size_t log_line_end(struct log_line *l);

/* "2026-01-31T12:00:00.250Z"; returns out. */
const char *log_line_time(int64_t wall_ms, char out[LOG_TIME_BYTES]);

#endif
