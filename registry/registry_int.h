/* registry_int.h - what registry.c, schema.c and scan.c share. Private to the folder. */
#ifndef INFERD_REGISTRY_INT_H
#define INFERD_REGISTRY_INT_H

#include "registry/registry.h"

#include <sqlite3.h>

/* "INFD": tells an inferd registry from any other SQLite file. */
enum { REGISTRY_APPLICATION_ID = 0x494e4644, REGISTRY_BUSY_MS = 5000 };

/* Maps SQLite's last error on db to an err_code; the text names file and what was tried. */
int registry_db_error(sqlite3 *db, const char *file, const char *what, err *e);

/* Runs statements that return no rows. */
int registry_db_exec(sqlite3 *db, const char *file, const char *sql, err *e);

/* Checks whose database this is, turns on WAL and brings the schema to this build's version.
 * ERR_UNSUPPORTED: written by a newer inferd. ERR_FORMAT: not a registry. */
int registry_schema_migrate(sqlite3 *db, const char *file, err *e);

/* Identity of a file without reading it. */
struct registry_stat {
    uint64_t size_bytes;
    int64_t mtime_ns;
};
int registry_scan_stat(const char *path, struct registry_stat *out, err *e);

/* What a look into a file gives. path is owned by the caller afterwards (free). */
struct registry_scan {
    char *path; /* absolute */
    struct registry_stat stat;
    char architecture[32], quantization[16];
    uint64_t n_params, context_length;
};

/* Header only, cheap. ERR_UNSUPPORTED names what this build lacks to serve the file. */
int registry_scan_header(const char *path, struct registry_scan *out, err *e);

/* Reads the whole file. ERR_CHANGED if it is not (any more) what want says. hex: 64 digits + NUL.
 */
int registry_scan_sha256(const char *path, const struct registry_stat *want,
                         void (*progress)(void *arg, uint64_t done, uint64_t total),
                         void *progress_arg, char hex[65], err *e);

#endif
