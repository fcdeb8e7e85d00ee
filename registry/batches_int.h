/* batches_int.h - shared by batches.c (batches and their lines) and batch_files.c. Private. */
#ifndef INFERD_BATCHES_INT_H
#define INFERD_BATCHES_INT_H

#include "registry/batches.h"
#include "registry/registry_int.h"

#include <pthread.h>
#include <string.h>

enum { BATCHES_UPLOADS = 24 /* files that are being written at once */ };

struct batches {
    pthread_mutex_t lock; /* guards db, bounds and uploads */
    sqlite3 *db;
    char *file;   /* the registry's */
    char *folder; /* of the bytes */
    int lease;    /* descriptor of the lock file; -1: not held */
    uint64_t max_bytes;
    uint32_t max_files, max_batches;
    struct batches_upload *uploads[BATCHES_UPLOADS]; /* NULL: a free place */
};

/* ---- batch_files.c; all but batches_path with the lock ---- */

/* Has the owner room for more bytes? ERR_FULL. */
int batches_check_room(batches *b, const char *owner, uint64_t more, err *e);
/* Path of a file's bytes. */
enum { BATCHES_PATH_BYTES = 4096 };
int batches_path(const batches *b, const char *id, const char *end, char path[BATCHES_PATH_BYTES],
                 err *e);
/* Makes the bytes durable under their final name. Undone by batches_unlink. */
int batches_file_settle(struct batches_upload *u, err *e);
void batches_unlink(const batches *b, const char *id);
/* Adds the row of a settled file: inside a transaction. */
int batches_file_insert(struct batches_upload *u, const struct batches_file *f, err *e);
/* After the transaction. */
void batches_file_leave(struct batches_upload *u);

/* ---- statements ---- */

static inline int batches_prepare(batches *b, const char *sql, sqlite3_stmt **st, err *e) {
    return registry_db_prepare(b->db, b->file, sql, st, e);
}
static inline void batches_bind(sqlite3_stmt *st, int at, const char *text) {
    sqlite3_bind_text64(st, at, text, text ? strlen(text) : 0, SQLITE_STATIC, SQLITE_UTF8);
}
/* Runs a statement that returns no rows and finalizes it. */
int batches_run(batches *b, sqlite3_stmt *st, err *e);
/* Runs a statement of one number and finalizes it. */
int batches_number(batches *b, sqlite3_stmt *st, uint64_t *out, err *e);
int batches_exec(batches *b, const char *sql, err *e);
/* Ends a transaction: commits if rc is 0. */
int batches_end(batches *b, int rc, err *e);
/* Copies a column of text, cut to n bytes. */
void batches_column(sqlite3_stmt *st, int column, char *to, size_t n);

#endif
