/* ep_files.c - /v1/files: upload, list, get, content, delete, in OpenAI's form and Anthropic's. An
 * upload is written to disk as it arrives, on the HTTP thread; everything else runs on pool
 * threads. */
#include "api/batch/batch_int.h"
#include "api/http/auth.h"
#include "api/http/error.h"
#include "api/http/http.h"
#include "api/http/id.h"
#include "api/http/ignored.h"
#include "api/http/json.h"
#include "api/http/multipart.h"
#include "api/http/page.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FORM_MORE_BYTES = 64 << 10, /* of an upload, beside its file */
    VALUE_BYTES = 64,
    LIST_LIMIT = 10000
};

static const char purposes[] = "assistants|batch|fine-tune|vision|user_data|evals";

static void reply_failed(struct request *r, const err *e) {
    batch_reply_failed(r, 400, "storage_limit_exceeded", e);
}

static void add_file(str *out, const struct batches_file *f) {
    str_addf(out, "{\"object\":\"file\",\"id\":\"%s\",\"purpose\":\"%s\",\"filename\":", f->id,
             f->purpose);
    json_add_cstr(out, f->name);
    str_addf(out,
             ",\"bytes\":%llu,\"created_at\":%lld,\"expires_at\":", (unsigned long long)f->n_bytes,
             (long long)f->created_s);
    if (f->expires_s)
        str_addf(out, "%lld", (long long)f->expires_s);
    else
        str_add(out, "null");
    str_add(out, ",\"status\":\"processed\",\"status_details\":null}");
}

/* ---- upload ---- */

struct upload {
    struct multipart form;
    struct request *request;
    struct batches_upload file;
    uint64_t max_bytes;     /* of the file: the limit when the upload began */
    struct ignored ignored; /* parts that the form does not have */
    bool has_file, anthropic;
    char name[BATCHES_NAME_BYTES], mime[BATCHES_MIME_BYTES];
    enum {
        VALUE_PURPOSE,
        VALUE_ANCHOR,
        VALUE_SECONDS,
        N_OPENAI,
        VALUE_EXPIRES_IN = N_OPENAI, /* of Anthropic's form */
        N_VALUES,
        NOT_KEPT,
        IS_FILE
    } part;
    struct {
        char text[VALUE_BYTES];
        size_t n;
        bool given;
    } values[N_VALUES];
};

static const char *const value_names[N_VALUES] = {"purpose", "expires_after[anchor]",
                                                  "expires_after[seconds]", "expires_in_seconds"};

/* In Anthropic's form only the last component of a path is kept. */
static const char *file_name(const struct upload *u, const char *name) {
    const char *slash = strrchr(name, '/'), *back = strrchr(name, '\\');
    if (!u->anthropic) return *name ? name : "upload";
    if (slash) name = slash + 1;
    if (back && back >= name) name = back + 1;
    return *name ? name : "unnamed";
}

static int begin_file(struct upload *u, const struct multipart_part *part, err *e) {
    char id[BATCHES_ID_BYTES];
    if (u->has_file) return err_set_param(e, ERR_INVALID, "file", "There are two parts 'file'.");
    if (!part->is_file && !u->anthropic)
        return err_set_param(e, ERR_INVALID, "file", "The part 'file' has no file name.");
    u->part = IS_FILE;
    u->has_file = true;
    snprintf(u->name, sizeof u->name, "%s", file_name(u, part->file));
    snprintf(u->mime, sizeof u->mime, "%s", part->type);
    id_new(id, "file-");
    batches_owner(auth_key(u->request), u->file.owner);
    return batches_file_begin(u->request->api->config.batches, id, &u->file, e);
}

static int begin_part(void *arg, const struct multipart_part *part, err *e) {
    struct upload *u = arg;
    if (strcmp(part->name, "file") == 0) return begin_file(u, part, e);
    for (int i = u->anthropic ? N_OPENAI : 0; i < (u->anthropic ? N_VALUES : N_OPENAI); i++)
        if (strcmp(part->name, value_names[i]) == 0) {
            if (u->values[i].given)
                return err_set_param(e, ERR_INVALID, part->name, "There are two parts '%s'.",
                                     value_names[i]);
            u->values[i].given = true;
            u->part = i;
            return 0;
        }
    u->part = NOT_KEPT;
    return ignored_add_member(&u->ignored, "", part->name, e);
}

static int take_part(void *arg, const char *bytes, size_t n, err *e) {
    struct upload *u = arg;
    if (u->part == IS_FILE) {
        if (n > u->max_bytes - u->file.n_bytes)
            return err_set_param(e, ERR_TOO_LONG, "file", "The file is larger than %llu bytes.",
                                 (unsigned long long)u->max_bytes);
        return batches_file_write(&u->file, bytes, n, e);
    }
    if (u->part == NOT_KEPT) return 0;
    if (n >= VALUE_BYTES - u->values[u->part].n)
        return err_set_param(e, ERR_INVALID, value_names[u->part], "'%s' is too long.",
                             value_names[u->part]);
    memcpy(u->values[u->part].text + u->values[u->part].n, bytes, n);
    u->values[u->part].n += n;
    return 0;
}

static const struct multipart_ops form_ops = {begin_part, take_part};

static uint64_t most_bytes(const struct request *r) {
    const struct upload *u = r->taken;
    return (u ? u->max_bytes : r->api->live.max_file_bytes) + FORM_MORE_BYTES;
}

/* 413 for a file that is too large, as for a body. */
static bool refuse_upload(struct request *r, const err *e) {
    if (e->code == ERR_TOO_LONG)
        reply_error(r, &(struct api_error){413, "invalid_request_error", "request_too_large",
                                           "file", e->msg});
    else
        reply_failed(r, e);
    return false;
}

static bool begin_upload(struct request *r) {
    err e = {0};
    if (!batch_store(r)) return false;
    struct upload *u = mem_new(1, sizeof *u);
    if (!u) {
        err_no_memory(&e);
        return refuse_upload(r, &e);
    }
    u->request = r;
    u->anthropic = files_are_anthropic(r);
    u->max_bytes = r->api->live.max_file_bytes;
    u->ignored.refuse = r->api->live.refuse_ignored;
    r->taken = u;
    if (!multipart_init(&u->form, request_header(r, "Content-Type"), &form_ops, u, &e)) return true;
    reply_error(r, &(struct api_error){415, "invalid_request_error", "unsupported_media_type", NULL,
                                       e.msg});
    return false;
}

static bool take_upload(struct request *r, const char *bytes, size_t n) {
    struct upload *u = r->taken;
    err e = {0};
    return !multipart_take(&u->form, bytes, n, &e) || refuse_upload(r, &e);
}

static void free_upload(void *taken) {
    struct upload *u = taken;
    batches_file_drop(&u->file);
    free(u);
}

static const struct body_taker upload_taker = {most_bytes, begin_upload, take_upload, free_upload};

static int missing(const char *name, err *e) {
    return err_set_param(e, ERR_INVALID, name, "Missing required parameter: '%s'.", name);
}

static int read_seconds(const char *text, int64_t most, const char *param, int64_t *s, err *e) {
    char *end;
    errno = 0;
    *s = strtoll(text, &end, 10);
    if (!errno && *text >= '0' && *text <= '9' && !*end && *s >= BATCH_TTL_MIN_S && *s <= most)
        return 0;
    return err_set_param(e, ERR_INVALID, param,
                         "Invalid value for '%s': must be between %d and %lld.", param,
                         BATCH_TTL_MIN_S, (long long)most);
}

/* expires_after of the form. */
static int read_ttl(const struct upload *u, int64_t *ttl_s, err *e) {
    *ttl_s = BATCH_FILE_TTL_S;
    if (!u->values[VALUE_ANCHOR].given && !u->values[VALUE_SECONDS].given) return 0;
    if (strcmp(u->values[VALUE_ANCHOR].text, "created_at") != 0)
        return err_set_param(e, ERR_INVALID, "expires_after.anchor",
                             "Invalid value for 'expires_after.anchor': must be 'created_at'.");
    return read_seconds(u->values[VALUE_SECONDS].text, BATCH_TTL_MAX_S, "expires_after.seconds",
                        ttl_s, e);
}

/* What OpenAI's form says of the file. *ttl_s 0: it does not expire. */
static int read_openai(const struct upload *u, int64_t *ttl_s, err *e) {
    const char *purpose = u->values[VALUE_PURPOSE].text;
    if (!u->values[VALUE_PURPOSE].given) return missing("purpose", e);
    if (!words_hold(purposes, purpose))
        return err_set_param(e, ERR_INVALID, "purpose",
                             "Invalid value for 'purpose': expected one of 'assistants', 'batch', "
                             "'fine-tune', 'vision', 'user_data', 'evals'.");
    if (strcmp(purpose, "batch") != 0)
        return err_set_param(e, ERR_UNSUPPORTED, "purpose",
                             "Files are for batches here: the purpose '%s' is not supported.",
                             purpose);
    return read_ttl(u, ttl_s, e);
}

/* The same of Anthropic's. */
static int read_anthropic(const struct upload *u, int64_t *ttl_s, err *e) {
    *ttl_s = 0;
    if (!u->values[VALUE_EXPIRES_IN].given) return 0;
    return read_seconds(u->values[VALUE_EXPIRES_IN].text, FILES_TTL_MAX_S, "expires_in_seconds",
                        ttl_s, e);
}

static int end_upload(struct upload *u, struct batches_file *f, err *e) {
    int64_t ttl_s;
    int rc = multipart_end(&u->form, e);
    if (rc) return rc;
    if (!u->has_file) return missing("file", e);
    rc = u->anthropic ? read_anthropic(u, &ttl_s, e) : read_openai(u, &ttl_s, e);
    if (rc) return rc;
    f->created_s = clock_wall_s();
    f->expires_s = ttl_s ? f->created_s + ttl_s : 0;
    snprintf(f->purpose, sizeof f->purpose, "%s", u->anthropic ? "user_data" : "batch");
    memcpy(f->name, u->name, sizeof f->name);
    memcpy(f->mime, u->mime, sizeof f->mime);
    return batches_file_end(&u->file, f, e);
}

static void reply_file(struct request *r, const struct batches_file *f) {
    str body;
    str_init(&body, REPLY_MAX_BYTES);
    (files_are_anthropic(r) ? files_add_anthropic : add_file)(&body, f);
    reply_json(r, 200, &body);
}

static void handle_upload(struct request *r) {
    struct batches_file f = {0};
    err e = {0};
    struct upload *u = r->taken;
    char names[IGNORED_HEADER_BYTES];
    if (end_upload(u, &f, &e)) {
        refuse_upload(r, &e);
        return;
    }
    if (u->ignored.n) {
        ignored_header(&u->ignored, names);
        reply_header(r, "x-inferd-ignored-fields", names);
        ignored_counts_add(&r->http->ignored, r->row, &u->ignored);
    }
    reply_file(r, &f);
}

/* ---- one ---- */

static int find_file(struct request *r, struct batches_file *f, err *e) {
    char id[BATCHES_ID_BYTES];
    request_segment(r, 0, id, sizeof id);
    return batches_file_get(r->api->config.batches, id, auth_key(r), clock_wall_s(), f, e);
}

static void handle_get(struct request *r) {
    struct batches_file f;
    err e = {0};
    if (!batch_store(r)) return;
    if (find_file(r, &f, &e))
        reply_failed(r, &e);
    else
        reply_file(r, &f);
}

static void handle_content(struct request *r) {
    struct batches_file f;
    err e = {0};
    int fd = -1;
    if (!batch_store(r)) return;
    int rc = find_file(r, &f, &e);
    if (!rc) rc = batches_file_open(r->api->config.batches, f.id, &fd, &e);
    if (rc) {
        reply_failed(r, &e);
        return;
    }
    r->reply.status = 200;
    r->reply.content_type = "application/octet-stream";
    r->reply.fd = fd;
    r->reply.n_data = (size_t)f.n_bytes;
}

static void handle_delete(struct request *r) {
    char id[BATCHES_ID_BYTES];
    err e = {0};
    batches *b = batch_store(r);
    if (!b) return;
    request_segment(r, 0, id, sizeof id);
    if (batches_file_delete(b, id, auth_key(r), clock_wall_s(), &e))
        reply_failed(r, &e);
    else if (files_are_anthropic(r))
        files_deleted_anthropic(r, id);
    else
        reply_deleted(r, id, "file");
}

/* ---- list ---- */

struct query {
    struct page page;
    char purpose[24];
    err error;
};

static void read_parameter(void *arg, const char *name, const char *value) {
    struct query *q = arg;
    if (q->error.code || page_take(&q->page, name, value, &q->error)) return;
    if (strcmp(name, "purpose") == 0)
        snprintf(q->purpose, sizeof q->purpose, "%s", value);
    else
        page_refuse(name, &q->error);
}

static void list_file(void *arg, const struct batches_file *f) {
    struct page_list *l = arg;
    page_list_next(l, f->id);
    add_file(&l->body, f);
}

static void list_openai(struct request *r, batches *b) {
    struct query q = {.page = {.limit = LIST_LIMIT, .most = LIST_LIMIT}};
    struct page_list l = {0};
    bool more = false;
    request_query_each(r, read_parameter, &q);
    page_list_open(&l);
    int rc = q.error.code;
    const struct batches_page page = {.key = auth_key(r),
                                      .after = *q.page.after ? q.page.after : NULL,
                                      .purpose = *q.purpose ? q.purpose : NULL,
                                      .ascending = q.page.ascending,
                                      .limit = q.page.limit};
    if (!rc) rc = batches_file_list(b, &page, clock_wall_s(), list_file, &l, &more, &q.error);
    if (rc) {
        str_fini(&l.body);
        if (rc == ERR_NOT_FOUND) snprintf(q.error.param, sizeof q.error.param, "after");
        reply_failed(r, &q.error);
        return;
    }
    page_list_close(&l, more);
    reply_json(r, 200, &l.body);
}

static void handle_list(struct request *r) {
    err e = {0};
    batches *b = batch_store(r);
    if (b && !files_are_anthropic(r))
        list_openai(r, b);
    else if (b && files_list_anthropic(r, b, &e))
        reply_failed(r, &e);
}

#define ALL   "/v1/files"
#define ONE   ALL "/{id}"
#define FLAGS (ROUTE_KEY | ROUTE_INFER | ROUTE_EMBED | ROUTE_V1 | ROUTE_SHARED)
const struct route files_upload_route = {
    "POST", ALL, FLAGS, .handle = handle_upload, .answers = "file", .taker = &upload_taker};
const struct route files_list_route = {"GET",
                                       ALL,
                                       FLAGS,
                                       .handle = handle_list,
                                       .answers = "list",
                                       .query =
                                           "limit|after|order|purpose|after_id|before_id|page"};
const struct route files_get_route = {"GET", ONE, FLAGS, .handle = handle_get, .answers = "file"};
const struct route files_delete_route = {"DELETE", ONE, FLAGS, .handle = handle_delete,
                                         .answers = "file"};
const struct route files_content_route = {"GET", ONE "/content", FLAGS, .handle = handle_content};
