/* check.c - the validation of a batch: reads its file a few lines at a time, so that the runner's
 * thread goes on with other batches, and notes where each request lies. Owns nothing. */
#include "api/batch/batch_int.h"

#include "api/http/json.h"
#include "core/base/file.h"
#include "core/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 64 << 10, STEP_LINES = 64, STEP_BYTES = 1 << 20 };

int batch_read_line(int fd, uint64_t *at, str *out, bool *end, err *e) {
    char *block = mem_new(BLOCK_BYTES, 1);
    bool found = false, any = false, too_long = false;
    int rc = block ? 0 : err_no_memory(e);
    str_clear(out);
    while (!rc && !found) {
        int64_t n = file_read_some(fd, block, BLOCK_BYTES, *at);
        if (n < 0) rc = err_set(e, ERR_IO, "cannot read a batch's file: %s", strerror(errno));
        if (n <= 0) break;
        any = true;
        const char *stop = memchr(block, '\n', (size_t)n);
        size_t take = stop ? (size_t)(stop - block) : (size_t)n;
        too_long = too_long || take > out->max_bytes - out->len;
        if (!too_long) str_add_n(out, block, take);
        found = stop != NULL;
        *at += take + found;
    }
    free(block);
    *end = !any;
    if (!rc && too_long)
        return err_set(e, ERR_TOO_LONG, "a line has more than %zu bytes", out->max_bytes);
    return !rc && out->failed ? err_no_memory(e) : rc;
}

void batch_add_error(struct batch_check *c, const struct batch_fault *fault, uint64_t line) {
    if (c->n_errors++ >= BATCH_ERRORS_MAX) return;
    if (c->errors.len) str_add_char(&c->errors, ',');
    str_add(&c->errors, "{\"code\":");
    json_add_cstr(&c->errors, fault->code);
    str_add(&c->errors, ",\"message\":");
    json_add_cstr(&c->errors, fault->message);
    str_add(&c->errors, ",\"param\":");
    if (fault->param)
        json_add_cstr(&c->errors, fault->param);
    else
        str_add(&c->errors, "null");
    if (line)
        str_addf(&c->errors, ",\"line\":%llu}", (unsigned long long)line);
    else
        str_add(&c->errors, ",\"line\":null}");
}

/* Lines that were read and are not in the store yet. */
struct found {
    struct batches_line lines[STEP_LINES]; /* (n) */
    struct batch_line texts[STEP_LINES];   /* of the same index */
    size_t n;
};

/* A custom_id that is taken is an error of its line. */
static int note_lines(const struct api *a, const struct batches_row *row, struct batch_check *c,
                      struct found *f, err *e) {
    static const struct batch_fault twice = {
        "duplicate_custom_id",
        "The custom_id for this request is a duplicate of another request. The custom_id "
        "parameter must be unique for each request in a batch.",
        "custom_id"};
    size_t from = 0, bad = 0;
    int rc = ERR_EXISTS;
    while (from < f->n && rc == ERR_EXISTS) {
        rc = batches_lines_add(a->config.batches, row->n, f->lines + from, f->n - from, &bad, e);
        if (rc == ERR_EXISTS) batch_add_error(c, &twice, f->lines[from + bad].line);
        from += bad + 1;
    }
    c->n_found += f->n;
    f->n = 0;
    return rc == ERR_EXISTS ? 0 : rc;
}

static void check_end(const struct api *a, struct batch_check *c) {
    static const struct batch_fault empty = {"empty_file", "The input file has no requests.",
                                             "input_file_id"};
    static const struct batch_fault many = {
        "too_many_requests", "The input file has more requests than a batch may have here.",
        "input_file_id"};
    if (!c->n_found && !c->n_errors) batch_add_error(c, &empty, 0);
    if (c->n_found > a->live.batch_max_lines) batch_add_error(c, &many, 0);
    c->ended = true;
}

static int check_lines(const struct api *a, struct batches_row *row, struct batch_check *c,
                       struct found *f, str *line, err *e) {
    static const struct batch_fault too_long = {
        "request_too_large", "This request is larger than requests may be here.", NULL};
    uint64_t begin = c->at;
    while (f->n < STEP_LINES && c->at - begin < STEP_BYTES && !c->ended) {
        struct batch_fault fault = too_long;
        struct batch_line *l = &f->texts[f->n];
        uint64_t at = c->at;
        bool end;
        int rc = batch_read_line(c->fd, &c->at, line, &end, e);
        if (rc && rc != ERR_TOO_LONG) return rc;
        c->ended = !rc && end;
        if (c->ended) break;
        c->n_lines++;
        if (!rc && batch_line_is_blank(str_cstr(line), line->len)) continue;
        if (rc || !batch_line_read(str_cstr(line), line->len, row->endpoint, l, &fault)) {
            batch_add_error(c, &fault, c->n_lines);
            continue;
        }
        if (!*row->model) snprintf(row->model, sizeof row->model, "%s", l->model);
        f->lines[f->n++] = (struct batches_line){c->n_lines, at, line->len, l->custom_id};
    }
    int rc = f->n ? note_lines(a, row, c, f, e) : 0;
    if (rc) return rc;
    if (c->ended || c->n_errors >= BATCH_ERRORS_MAX || c->n_found > a->live.batch_max_lines)
        check_end(a, c);
    return 0;
}

int batch_check_step(const struct api *a, struct batches_row *row, struct batch_check *c, err *e) {
    struct found *f = mem_new(1, sizeof *f);
    str line;
    int rc = f ? 0 : err_no_memory(e);
    str_init(&line, (size_t)a->http.config.max_body_bytes + BATCH_LINE_MORE);
    if (!rc && !c->at) {
        rc = batches_lines_clear(a->config.batches, row->n, e);
        str_init(&c->errors, 1 << 20);
    }
    if (!rc) rc = check_lines(a, row, c, f, &line, e);
    str_fini(&line);
    free(f);
    return rc;
}
