/* output.c - the lines of a batch's output and error files. Owns nothing; runner's thread. */
#include "api/batch/batch_int.h"

#include "api/http/id.h"
#include "api/http/json.h"

#include <stdio.h>
#include <string.h>

/* A JSON text as one line: line ends between its tokens are left out. */
static void add_flat(str *out, const char *text, size_t n) {
    while (n) {
        const char *end = memchr(text, '\n', n);
        size_t take = end ? (size_t)(end - text) : n;
        str_add_n(out, text, take);
        text += take + (end != NULL);
        n -= take + (end != NULL);
    }
}

void batch_add_answer(const char *id, const char *custom_id, unsigned status,
                      const char *request_id, const char *body, size_t n, str *out) {
    str_addf(out, "{\"id\":\"%s\",\"custom_id\":", id);
    json_add_cstr(out, custom_id);
    str_addf(out, ",\"response\":{\"status_code\":%u,\"request_id\":\"%s\",\"body\":", status,
             request_id);
    add_flat(out, body, n);
    str_add(out, "},\"error\":null}");
}

struct output {
    batches *b;
    struct batches_row *row;
    struct batches_upload files[2]; /* answers, errors */
    uint64_t n_failed;
    str line;
};

static void add_missing(const struct output *o, const char *custom_id, str *out) {
    char id[BATCHES_ID_BYTES];
    bool cancelled = o->row->status == BATCH_CANCELLED;
    id_new(id, "batch_req_");
    str_addf(out, "{\"id\":\"%s\",\"custom_id\":", id);
    json_add_cstr(out, custom_id);
    str_addf(out, ",\"response\":null,\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}",
             cancelled                         ? "batch_cancelled"
             : o->row->status == BATCH_EXPIRED ? "batch_expired"
                                               : "batch_failed",
             cancelled ? "The batch was cancelled before this request was executed."
             : o->row->status == BATCH_EXPIRED
                 ? "This request could not be executed before the completion window expired."
                 : "The batch failed before this request was executed.");
}

static int write_result(void *arg, const char *custom_id, const char *text, bool failed, err *e) {
    struct output *o = arg;
    failed = failed || !text;
    struct batches_upload *u = &o->files[failed];
    int rc = 0;
    o->n_failed += failed;
    str_clear(&o->line);
    if (text)
        str_add(&o->line, text);
    else
        add_missing(o, custom_id, &o->line);
    str_add_char(&o->line, '\n');
    if (o->line.failed) return err_no_memory(e);
    if (!u->b) {
        char id[BATCHES_ID_BYTES];
        memcpy(u->owner, o->row->owner, sizeof u->owner);
        u->output = true;
        id_new(id, "file-");
        rc = batches_file_begin(o->b, id, u, e);
        if (!rc) memcpy(failed ? o->row->error_file : o->row->output_file, id, sizeof id);
    }
    return rc ? rc : batches_file_write(u, str_cstr(&o->line), o->line.len, e);
}

int batch_write_results(batches *b, struct batches_row *row, int64_t now_s, err *e) {
    struct output o = {.b = b, .row = row};
    str_init(&o.line, SIZE_MAX);
    *row->output_file = *row->error_file = '\0';
    int rc = batches_results(b, row->n, write_result, &o, e);
    row->n_failed = o.n_failed;
    if (!rc)
        rc = batches_finish(b, row, o.files[0].b ? &o.files[0] : NULL,
                            o.files[1].b ? &o.files[1] : NULL, now_s, e);
    for (size_t i = 0; i < 2; i++)
        batches_file_drop(&o.files[i]);
    str_fini(&o.line);
    return rc;
}
