/* logsink.c - formats a log line and writes it with one call, so lines of several threads do not
 * mix. Any thread. */
#include "daemon/logsink.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/text/log_line.h"
#include "daemon/key_names.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 1200, JSON_BYTES = 4096 };

static const char *const level_names[] = {"debug", "info", "warn", "error"};
static const int syslog_levels[] = {7, 6, 4, 3};

/* JOURNAL_STREAM is "device:inode" of the journal's descriptor; a child with redirected stderr
 * inherits the variable, not the descriptor. */
static bool is_journal(void) {
    const char *text = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;
    return text && sscanf(text, "%llu:%llu", &device, &inode) == 2 && !fstat(STDERR_FILENO, &st) &&
           (unsigned long long)st.st_dev == device && (unsigned long long)st.st_ino == inode;
}

static bool to_journald; /* set once */

static void write_bytes(const char *line, size_t left) {
    while (left > 0) {
        ssize_t done = write(STDERR_FILENO, line, left);
        if (done <= 0) return; /* an error cannot be reported anywhere */
        line += done;
        left -= (size_t)done;
    }
}

static void write_line(const char *line, int n, size_t size) {
    write_bytes(line, n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1);
}

/* One JSON object. The journal takes the level from the "<6>" before it, which it removes. */
static void to_json(void *arg, enum log_level level, const char *text,
                    const struct log_value *values, size_t n) {
    char line[JSON_BYTES], named[LINE_BYTES - 64], when[LOG_TIME_BYTES];
    struct log_line l;
    (void)arg;
    key_names_write(text, named, sizeof named);
    int prefix = to_journald ? snprintf(line, 8, "<%d>", syslog_levels[level]) : 0;
    log_line_begin(&l, line + prefix, sizeof line - (size_t)prefix, true);
    log_line_text(&l, "time", log_line_time(clock_wall_ms(), when));
    log_line_text(&l, "level", level_names[level]);
    log_line_text(&l, "message", named);
    for (size_t i = 0; i < n; i++)
        if (values[i].text)
            log_line_text(&l, values[i].name, values[i].text);
        else
            log_line_number(&l, values[i].name, values[i].number);
    write_bytes(line, (size_t)prefix + log_line_end(&l));
}

static void to_journal(void *arg, enum log_level level, const char *text) {
    char line[LINE_BYTES], named[LINE_BYTES - 64];
    (void)arg;
    key_names_write(text, named, sizeof named);
    int n = snprintf(line, sizeof line, "<%d>%s\n", syslog_levels[level], named);
    write_line(line, n, sizeof line);
}

static void to_stderr(void *arg, enum log_level level, const char *text) {
    char line[LINE_BYTES], named[LINE_BYTES - 64], when[32];
    time_t now = (time_t)clock_wall_s();
    struct tm utc;
    (void)arg;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    key_names_write(text, named, sizeof named);
    int n = snprintf(line, sizeof line, "%s %-5s %s\n", when, level_names[level], named);
    write_line(line, n, sizeof line);
}

static enum log_level level_of(const char *name) {
    enum log_level level = LOG_LEVEL_INFO;
    for (int i = LOG_LEVEL_DEBUG; i <= LOG_LEVEL_ERROR; i++)
        if (strcmp(level_names[i], name) == 0) level = (enum log_level)i;
    return level;
}

void logsink_open(const char *level, const char *format) {
    to_journald = is_journal();
    log_set_sink(to_journald ? to_journal : to_stderr, NULL, level_of(level));
    logsink_set(level, format);
}

void logsink_set(const char *level, const char *format) {
    log_set_level(level_of(level));
    log_set_value_sink(strcmp(format, "json") == 0 ? to_json : NULL);
}
