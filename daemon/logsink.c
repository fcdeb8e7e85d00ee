/* logsink.c - formats a log line and writes it with one call, so lines of several threads do not
 * mix. Any thread. */
#include "daemon/logsink.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "daemon/key_names.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 1200 };

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

static void write_line(const char *line, int n, size_t size) {
    size_t left = n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
    while (left > 0) {
        ssize_t done = write(STDERR_FILENO, line, left);
        if (done <= 0) return; /* an error cannot be reported anywhere */
        line += done;
        left -= (size_t)done;
    }
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

void logsink_open(const char *level) {
    log_set_sink(is_journal() ? to_journal : to_stderr, NULL, level_of(level));
}

void logsink_set_level(const char *level) {
    log_set_level(level_of(level));
}
