/* batches.h - files that clients upload, and the batches of requests that run from them. Rows are
 * in the registry's file, the bytes of files in the folder REGISTRY.files beside it, in clear,
 * readable by the daemon's user only.
 *
 * Files and batches belong to their owner, the API key that created them, stored as SHA-256;
 * another key does not find them. All files and results together take at most max_bytes, and those
 * of one key half of that.
 *
 * A batch is validated, its lines are noted, each line's result is stored as it comes, and at last
 * the results become files. Every step is one transaction, and a result is stored once: so a
 * process that is killed at any moment leaves a batch that the next one resumes, with one result
 * per line.
 *
 * THREAD SAFETY: one handle for all threads; calls are serialized. */
#ifndef INFERD_BATCHES_H
#define INFERD_BATCHES_H

#include "core/base/err.h"
#include "core/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct batches batches;

struct batches_config {
    const char *file; /* the registry's */
    uint64_t max_bytes;
    uint32_t max_files;   /* of all keys; of one key half of that */
    uint32_t max_batches; /* likewise; beyond, batches that ended are forgotten, the oldest first */
};

/* Opens the registry's file with its own connection, and the folder. now_s: seconds of the wall
 * clock, as in all calls. ERR_IO: they cannot be written; errors as registry_open's. */
int batches_open(const struct batches_config *c, int64_t now_s, batches **out, err *e);
/* Those of c but its file. What is stored stays, also if it is more. */
void batches_set_bounds(batches *b, const struct batches_config *c);
void batches_close(batches *b); /* NULL is fine */

enum {
    BATCHES_ID_BYTES = 48,
    BATCHES_OWNER_BYTES = 65,
    BATCHES_NAME_BYTES = 256,
    BATCHES_MIME_BYTES = 128
};

/* The name of an API key's owner. key NULL: none is required. */
void batches_owner(const char *key, char owner[BATCHES_OWNER_BYTES]);

/* ---- files ---- */

struct batches_file {
    char id[BATCHES_ID_BYTES];
    char purpose[24];
    char name[BATCHES_NAME_BYTES];
    char mime[BATCHES_MIME_BYTES]; /* "type/subtype" as its client says; "": it says none */
    uint64_t n_bytes;
    int64_t created_s, expires_s; /* expires_s 0: never */
};

/* A file that is being written. Zeroed before batches_file_begin. */
struct batches_upload {
    batches *b;
    int fd;
    char id[BATCHES_ID_BYTES], owner[BATCHES_OWNER_BYTES];
    uint64_t n_bytes, n_reserved; /* written; counted in the total */
    bool output;                  /* of a batch, whose results are counted already: no bounds */
};
/* Begins a file with that id, a name that no other file has had; u->owner and u->output are set.
 * ERR_FULL: there are too many files. ERR_UNAVAILABLE: too many are being written. */
int batches_file_begin(batches *b, const char *id, struct batches_upload *u, err *e);
/* ERR_FULL: the files of the key, or all files, would be larger than they may. ERR_IO. */
int batches_file_write(struct batches_upload *u, const void *bytes, size_t n, err *e);
/* The file exists from here on, and survives a crash of the machine. f: id and n_bytes are set. */
int batches_file_end(struct batches_upload *u, struct batches_file *f, err *e);
/* Drops what was not ended. A zeroed u is fine. */
void batches_file_drop(struct batches_upload *u);

/* ERR_NOT_FOUND, of the param id: unknown, expired, or another key's. */
int batches_file_get(batches *b, const char *id, const char *key, int64_t now_s,
                     struct batches_file *out, err *e);
/* The descriptor of its bytes, the caller's. ERR_NOT_FOUND: they have gone from the disk. */
int batches_file_open(batches *b, const char *id, int *fd, err *e);
/* ERR_INVALID: a batch that has not ended needs it. */
int batches_file_delete(batches *b, const char *id, const char *key, int64_t now_s, err *e);
struct batches_page {
    const char *key, *after; /* after NULL: from the beginning */
    const char *before;      /* of files: those that end at it, instead of after; NULL: none */
    const char *purpose;     /* of files; NULL: any */
    const char *ids;         /* of files: only these, a JSON array of strings; NULL: any */
    bool ascending;
    int limit;
};
/* Calls each for up to limit files, in the page's order, with the lock held. *more: there are
 * others behind them (with `before`: before them). ERR_NOT_FOUND: there is no file `after`, or
 * `before`. */
int batches_file_list(batches *b, const struct batches_page *p, int64_t now_s,
                      void (*each)(void *arg, const struct batches_file *f), void *arg, bool *more,
                      err *e);
/* Removes files that have expired and are not needed by a batch. */
int batches_file_expire(batches *b, int64_t now_s, err *e);

/* ---- batches ---- */

enum batches_status {
    BATCH_VALIDATING,
    BATCH_IN_PROGRESS,
    BATCH_CANCELLING,
    BATCH_FINALIZING,
    BATCH_COMPLETED, /* this and those after it have ended */
    BATCH_FAILED,
    BATCH_EXPIRED,
    BATCH_CANCELLED
};
const char *batches_status_name(enum batches_status s); /* OpenAI's word */

/* Strings of a row are owned by it: batches_row_fini. Times are 0 if they did not come. */
struct batches_row {
    int64_t n;
    char id[BATCHES_ID_BYTES], owner[BATCHES_OWNER_BYTES];
    int64_t key; /* as in accounts (http_key.id) */
    enum batches_status status;
    char endpoint[40], window[16], model[128];
    char input_file[BATCHES_ID_BYTES], output_file[BATCHES_ID_BYTES], error_file[BATCHES_ID_BYTES];
    char *metadata; /* a JSON object; "": null */
    char *errors;   /* members of a JSON array; "": none */
    int64_t output_ttl_s, created_s, expires_s, in_progress_s, finalizing_s, completed_s, failed_s,
        expired_s, cancelling_s, cancelled_s;
    uint64_t n_total, n_completed, n_failed;
    uint64_t input_tokens, cached_tokens, output_tokens;
};
void batches_row_fini(struct batches_row *row);

/* Adds a batch of the key: id, key, endpoint, window, input_file, output_ttl_s, created_s,
 * expires_s, metadata (borrowed) are given. ERR_NOT_FOUND: no such input file. ERR_FULL: too many
 * batches of this key, or of all, have not ended. */
int batches_add(batches *b, const char *key, const struct batches_row *row, err *e);
int batches_get(batches *b, const char *id, const char *key, struct batches_row *out, err *e);
int batches_list(batches *b, const struct batches_page *p,
                 void (*each)(void *arg, const struct batches_row *row), void *arg, bool *more,
                 err *e);
/* A batch that validates or runs becomes BATCH_CANCELLING. ERR_INVALID: it has ended, or is about
 * to. */
int batches_cancel(batches *b, const char *id, const char *key, int64_t now_s, err *e);

/* ---- for who runs them ---- */

/* One process at a time runs the batches of a registry: ERR_UNAVAILABLE: another one does. The
 * operating system ends this with the process. */
int batches_lease(batches *b, err *e);
/* The oldest batch of each owner that has not ended, at most n. *n_found: how many. */
int batches_unfinished(batches *b, struct batches_row *rows, size_t n, size_t *n_found, err *e);

struct batches_line {
    uint64_t line; /* its number in the file, from 1 */
    uint64_t at, n_bytes;
    const char *custom_id; /* added: borrowed; read: owned */
};
/* Forgets the lines of a batch, which is validated again or has ended. */
int batches_lines_clear(batches *b, int64_t batch, err *e);
/* The same of all that ended. */
int batches_lines_sweep(batches *b, err *e);
/* Adds lines (n). ERR_EXISTS: the custom_id of lines[*bad] is another line's, and those before it
 * are added. */
int batches_lines_add(batches *b, int64_t batch, const struct batches_line *lines, size_t n,
                      size_t *bad, err *e);
/* The batch is valid and runs. ERR_CHANGED: it was cancelled. */
int batches_begin(batches *b, const struct batches_row *row, int64_t now_s, err *e);
/* The first line after `after` without a result; ERR_NOT_FOUND: none. The caller frees custom_id.
 */
int batches_line_next(batches *b, int64_t batch, uint64_t after, struct batches_line *out, err *e);

struct batches_result {
    uint64_t line;
    bool failed;
    const char *text; /* a line of the output, or of the error file, without its end */
    uint64_t input_tokens, cached_tokens, output_tokens;
};
/* Stores a result; nothing happens if the line has one. ERR_FULL as batches_file_write. */
int batches_line_end(batches *b, int64_t batch, const struct batches_result *r, err *e);
/* Calls each for all lines in order, one after another; text is the result, NULL: there is none. It
 * may be called again for the next lines: the store is not locked meanwhile. */
int batches_results(batches *b, int64_t batch,
                    int (*each)(void *arg, const char *custom_id, const char *text, bool failed,
                                err *e),
                    void *arg, err *e);
/* Status and times of row (with its errors, output_file and error_file) are written; the files
 * exist with it, or not at all (each is the upload's, written; NULL: there is none). The lines
 * of a batch that ended are not needed any more. ERR_CHANGED: the batch was cancelled and row does
 * not know it. */
int batches_finish(batches *b, const struct batches_row *row, struct batches_upload *output,
                   struct batches_upload *errors, int64_t now_s, err *e);

#endif
