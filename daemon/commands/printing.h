/* printing.h - common output of commands: readable sizes, aligned tables, JSON, progress. */
#ifndef INFERD_DAEMON_COMMANDS_PRINTING_H
#define INFERD_DAEMON_COMMANDS_PRINTING_H

#include "core/base/err.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void format_bytes(uint64_t bytes, char *out, size_t n); /* "14.2 MiB" */
void format_count(uint64_t count, char *out, size_t n); /* "14.5 M" */
/* "2026-11-27 09:30", in local time; 0: "never". */
void format_time(int64_t seconds, char *out, size_t n);

/* A table whose columns are as wide as their widest cell. */
struct printing_table;
/* heads, right (n_columns, at most 16): titles and which columns align right; borrowed. NULL: no
 * memory. */
struct printing_table *printing_table_new(const char *const *heads, const bool *right,
                                          size_t n_columns);
void printing_table_add(struct printing_table *t, const char *const *cells); /* copied */
void printing_table_print(struct printing_table *t); /* to stdout, and frees t. NULL is fine */

/* Prints and deletes value (NULL, or built without memory: ERR_NOMEM). */
int printing_json(cJSON *value, err *e);

/* A line on a terminal with the progress of a long read; nothing if stderr is not a terminal.
 * Caller's storage, zero except label. */
struct progress {
    const char *label;
    int shown_percent; /* 1 + the last one printed, 0 none */
};

/* Fits registry_add's progress. arg: struct progress. */
void progress_show(void *arg, uint64_t done, uint64_t total);
void progress_end(struct progress *p); /* clears the line */

/* Progress on stderr: a bar that is redrawn on a terminal, else a line every ten percent. Caller's
 * storage, zero except bytes: if set, sizes and speed are shown. */
struct progress_bar {
    bool bytes;
    int shown_percent;
    uint64_t shown_ns, start_ns, start_done;
};
/* arg: struct progress_bar. Nonzero once a stop signal came (signals_open). */
int progress_bar_show(void *arg, uint64_t done, uint64_t total);
void progress_bar_end(struct progress_bar *bar); /* clears the line */

#endif
