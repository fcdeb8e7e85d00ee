/* batch_int.h - shared by the files of api/batch. Private. */
#ifndef INFERD_API_BATCH_INT_H
#define INFERD_API_BATCH_INT_H

#include "api/batch/line.h"
#include "api/generate/api_state.h"
#include "core/base/str.h"
#include "registry/batches.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    BATCH_ERRORS_MAX = 100, /* that a batch lists */
    BATCH_FILE_TTL_S = 30 * 86400,
    BATCH_TTL_MIN_S = 3600,
    BATCH_TTL_MAX_S = 30 * 86400,
    FILES_TTL_MAX_S = 90 * 86400, /* of Anthropic's form, which has no time without a wish */
    BATCH_LINE_MORE = 64 << 10    /* of a line, beside the body of its request */
};

/* ---- check.c: the lines of an input file ---- */

/* A batch that is checked. Zeroed at the start, but for fd. */
struct batch_check {
    int fd;           /* of the input file */
    uint64_t at;      /* of the next line */
    uint64_t n_lines; /* read, blank ones included */
    uint64_t n_found; /* requests */
    uint32_t n_errors;
    str errors; /* members of a JSON array */
    bool ended;
};
/* Reads line from fd at *at and moves *at behind it. *end: there is none. ERR_TOO_LONG: it has more
 * than out->max_bytes bytes, and *at is behind it. */
int batch_read_line(int fd, uint64_t *at, str *out, bool *end, err *e);
/* Checks some lines and notes them in the store. c->ended: all; the errors are in c->errors. */
int batch_check_step(const struct api *a, struct batches_row *row, struct batch_check *c, err *e);
/* Appends one to c->errors. line 0: of the file. */
void batch_add_error(struct batch_check *c, const struct batch_fault *fault, uint64_t line);

/* ---- output.c: results ---- */

/* Appends the line of an answer. */
void batch_add_answer(const char *id, const char *custom_id, unsigned status,
                      const char *request_id, const char *body, size_t n, str *out);
/* Writes the results of a batch to files, and ends it with row->status, BATCH_COMPLETED or one
 * after it. */
int batch_write_results(batches *b, struct batches_row *row, int64_t now_s, err *e);

struct request;

/* ---- anthropic_files.c ---- */

/* Is r of Anthropic's form of /v1/files? Its clients send anthropic-version. */
bool files_are_anthropic(const struct request *r);
void files_add_anthropic(str *out, const struct batches_file *f);
void files_deleted_anthropic(struct request *r, const char *id);
/* Replies with the files that r's query asks for. ERR_INVALID, ERR_NOT_FOUND: of the param. */
int files_list_anthropic(struct request *r, batches *b, err *e);

/* ---- replies.c ---- */

/* The store, or NULL: then the reply is an error. */
batches *batch_store(struct request *r);
/* Replies with what the store says. ERR_FULL is the status full with the code full_code. */
void batch_reply_failed(struct request *r, unsigned full, const char *full_code, const err *e);

#endif
