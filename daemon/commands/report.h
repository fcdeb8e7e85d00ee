/* report.h - the frame of commands that print rows of the registry since some days: options --days
 * and --json, a table or a JSON array. Main thread. */
#ifndef INFERD_DAEMON_COMMANDS_REPORT_H
#define INFERD_DAEMON_COMMANDS_REPORT_H

#include "daemon/options.h"
#include "registry/registry.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct printing_table;

/* Given by the command, but for the last members. */
struct report {
    const char *usage, *summary; /* as in struct options */
    struct option own;           /* beside --days and --json */
    const char *const *heads;    /* (n_columns) as in printing_table_new */
    const bool *right;
    size_t n_columns;
    const char *nothing; /* said if there is no row */
    /* Adds the rows since from_s, each with report_add_json or report_add_cells. */
    int (*read)(struct report *report, registry *r, int64_t from_s, err *e);
    void *arg;

    cJSON *array; /* set by report_run: rows are JSON; NULL: they are cells */
    struct printing_table *table;
    uint64_t n;
    bool failed; /* a row found no memory */
};

/* Parses the arguments, opens the registry, reads and prints. Returns the exit status. */
int report_run(struct report *report, int argc, char **argv, err *e);
void report_add_json(struct report *report, cJSON *object);             /* taken; NULL: no memory */
void report_add_cells(struct report *report, const char *const *cells); /* (n_columns), copied */

#endif
