/* ep_batches.c - /v1/batches: create, list, get, cancel. Pool threads; the work is runner.c's. */
#include "api/batch/batch_int.h"
#include "api/batch/runner.h"
#include "api/generate/body.h"
#include "api/generate/fields.h"
#include "api/http/auth.h"
#include "api/http/error.h"
#include "api/http/id.h"
#include "api/http/json.h"
#include "api/http/page.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include "core/base/clock.h"
#include "core/base/duration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW_MAX_S = 7 * 86400 };

struct fields {
    const char *input_file_id, *endpoint, *completion_window;
    const cJSON *metadata, *output_expires_after;
};
struct expiry {
    const char *anchor;
    int64_t seconds;
};

#define AT(member) .offset = offsetof(struct fields, member)
static const struct json_field expiry_fields[] = {
    {"anchor", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct expiry, anchor),
     .words = "created_at"},
    {"seconds", JSON_INT, JSON_REQUIRED, .offset = offsetof(struct expiry, seconds),
     .min = BATCH_TTL_MIN_S, .max = BATCH_TTL_MAX_S},
};
static const struct json_table expiry_table = JSON_TABLE(expiry_fields, NULL);
static const struct json_field create_fields[] = {
    {"input_file_id", JSON_STRING, JSON_REQUIRED, AT(input_file_id), .min = 1, .max = 64,
     .help = "A file of requests, one per line, that was uploaded with the purpose batch."},
    {"endpoint", JSON_ENUM, JSON_REQUIRED, AT(endpoint), .words = BATCH_ENDPOINTS},
    {"completion_window", JSON_STRING, JSON_REQUIRED, AT(completion_window), .min = 1, .max = 15,
     .help = "24h, as OpenAI has it, or another time of 1s to 168h."},
    {"metadata", JSON_OBJECT, JSON_NULLABLE, AT(metadata),
     .help = "Up to 16 strings of up to 512 characters."},
    {"output_expires_after", JSON_OBJECT, JSON_NULLABLE, AT(output_expires_after),
     .table = &expiry_table,
     .help = "When output and error file expire; 30 days after their creation without it."},
};
static const struct json_table create_table = JSON_TABLE(create_fields, NULL);

/* ---- writing ---- */

static void add_time(str *out, const char *name, int64_t s) {
    if (s)
        str_addf(out, ",\"%s\":%lld", name, (long long)s);
    else
        str_addf(out, ",\"%s\":null", name);
}

static void add_id(str *out, const char *name, const char *id) {
    str_addf(out, *id ? ",\"%s\":\"%s\"" : ",\"%s\":null", name, id);
}

static void add_batch(str *out, const struct batches_row *b) {
    str_addf(out, "{\"id\":\"%s\",\"object\":\"batch\",\"endpoint\":\"%s\"", b->id, b->endpoint);
    if (*b->model) {
        str_add(out, ",\"model\":");
        json_add_cstr(out, b->model);
    }
    if (*b->errors)
        str_addf(out, ",\"errors\":{\"object\":\"list\",\"data\":[%s]}", b->errors);
    else
        str_add(out, ",\"errors\":null");
    add_id(out, "input_file_id", b->input_file);
    str_add(out, ",\"completion_window\":");
    json_add_cstr(out, b->window);
    str_addf(out, ",\"status\":\"%s\"", batches_status_name(b->status));
    add_id(out, "output_file_id", b->output_file);
    add_id(out, "error_file_id", b->error_file);
    add_time(out, "created_at", b->created_s);
    add_time(out, "in_progress_at", b->in_progress_s);
    add_time(out, "expires_at", b->expires_s);
    add_time(out, "finalizing_at", b->finalizing_s);
    add_time(out, "completed_at", b->completed_s);
    add_time(out, "failed_at", b->failed_s);
    add_time(out, "expired_at", b->expired_s);
    add_time(out, "cancelling_at", b->cancelling_s);
    add_time(out, "cancelled_at", b->cancelled_s);
    str_addf(out, ",\"request_counts\":{\"total\":%llu,\"completed\":%llu,\"failed\":%llu}",
             (unsigned long long)b->n_total, (unsigned long long)b->n_completed,
             (unsigned long long)b->n_failed);
    str_addf(out,
             ",\"usage\":{\"input_tokens\":%llu,\"input_tokens_details\":{\"cached_tokens\":%llu},"
             "\"output_tokens\":%llu,\"output_tokens_details\":{\"reasoning_tokens\":0},"
             "\"total_tokens\":%llu}",
             (unsigned long long)b->input_tokens, (unsigned long long)b->cached_tokens,
             (unsigned long long)b->output_tokens,
             (unsigned long long)(b->input_tokens + b->output_tokens));
    str_addf(out, ",\"metadata\":%s}", *b->metadata ? b->metadata : "null");
}

static void reply_failed(struct request *r, const err *e) {
    batch_reply_failed(r, 429, "too_many_batches", e);
}

/* Replies with the batch of that id. */
static int reply_batch(struct request *r, const char *id, err *e) {
    struct batches_row row;
    str body;
    int rc = batches_get(r->api->config.batches, id, auth_key(r), &row, e);
    if (rc) return rc;
    str_init(&body, REPLY_MAX_BYTES);
    add_batch(&body, &row);
    batches_row_fini(&row);
    reply_json(r, 200, &body);
    return 0;
}

/* ---- create ---- */

static int read_window(const char *text, int64_t *s, err *e) {
    int64_t ms;
    if (!duration_parse(text, &ms) || ms < 1000 || ms > WINDOW_MAX_S * INT64_C(1000))
        return err_set_param(e, ERR_INVALID, "completion_window",
                             "Invalid value for 'completion_window': expected '24h', or a time of "
                             "1s to 168h.");
    *s = ms / 1000;
    return 0;
}

static int check_input(struct request *r, const char *id, err *e) {
    struct batches_file f;
    int rc = batches_file_get(r->api->config.batches, id, auth_key(r), clock_wall_s(), &f, e);
    if (rc == ERR_NOT_FOUND)
        return err_set_param(e, ERR_INVALID, "input_file_id",
                             "Invalid value for 'input_file_id': there is no file '%.60s'.", id);
    if (!rc && strcmp(f.purpose, "batch") != 0)
        return err_set_param(e, ERR_INVALID, "input_file_id",
                             "Invalid value for 'input_file_id': the file's purpose is '%s', not "
                             "'batch'.",
                             f.purpose);
    return rc;
}

static int make_batch(struct request *r, const struct fields *f, struct batches_row *row, err *e) {
    struct expiry expiry = {.seconds = BATCH_FILE_TTL_S};
    int64_t window_s = 0;
    int rc = gen_metadata_check(f->metadata, e);
    if (!rc) rc = read_window(f->completion_window, &window_s, e);
    if (!rc && f->output_expires_after)
        rc = json_read(f->output_expires_after, &expiry_table, "output_expires_after.", &expiry, e);
    if (!rc) rc = check_input(r, f->input_file_id, e);
    if (rc) return rc;
    id_new(row->id, "batch_");
    row->key = r->key.id;
    snprintf(row->endpoint, sizeof row->endpoint, "%s", f->endpoint);
    snprintf(row->window, sizeof row->window, "%s", f->completion_window);
    snprintf(row->input_file, sizeof row->input_file, "%s", f->input_file_id);
    row->output_ttl_s = expiry.seconds;
    row->created_s = clock_wall_s();
    row->expires_s = row->created_s + window_s;
    return 0;
}

static int answer_create(struct request *r, const cJSON *body, err *e) {
    struct fields f = {0};
    struct batches_row row = {0};
    str metadata;
    if (!batch_store(r)) return 0;
    str_init(&metadata, REPLY_MAX_BYTES);
    int rc = gen_body_read(body, &create_table, &f, e);
    if (!rc) rc = make_batch(r, &f, &row, e);
    if (!rc && f.metadata) json_add_value(&metadata, f.metadata);
    row.metadata = (char *)str_cstr(&metadata);
    if (!rc && metadata.failed) rc = err_no_memory(e);
    if (!rc) rc = batches_add(r->api->config.batches, auth_key(r), &row, e);
    if (!rc) rc = reply_batch(r, row.id, e);
    if (!rc) batch_runner_wake(r->api->batches);
    str_fini(&metadata);
    if (rc != ERR_FULL && rc != ERR_NOT_FOUND) return rc;
    reply_failed(r, e);
    return 0;
}

static void handle_create(struct request *r) {
    gen_handle(r, answer_create);
}

/* ---- one, all ---- */

static void handle_get(struct request *r) {
    char id[BATCHES_ID_BYTES];
    err e = {0};
    request_segment(r, 0, id, sizeof id);
    if (batch_store(r) && reply_batch(r, id, &e)) reply_failed(r, &e);
}

static void handle_cancel(struct request *r) {
    char id[BATCHES_ID_BYTES];
    err e = {0};
    batches *b = batch_store(r);
    if (!b) return;
    request_segment(r, 0, id, sizeof id);
    int rc = batches_cancel(b, id, auth_key(r), clock_wall_s(), &e);
    batch_runner_wake(r->api->batches);
    if (!rc) rc = reply_batch(r, id, &e);
    if (rc) reply_failed(r, &e);
}

struct query {
    struct page page;
    err error;
};

static void read_parameter(void *arg, const char *name, const char *value) {
    struct query *q = arg;
    bool ours = strcmp(name, "limit") == 0 || strcmp(name, "after") == 0;
    if (q->error.code || (ours && page_take(&q->page, name, value, &q->error))) return;
    page_refuse(name, &q->error);
}

static void list_batch(void *arg, const struct batches_row *row) {
    struct page_list *l = arg;
    page_list_next(l, row->id);
    add_batch(&l->body, row);
}

static void handle_list(struct request *r) {
    struct query q = {.page = {.limit = PAGE_LIMIT}};
    struct page_list l = {0};
    bool more = false;
    batches *b = batch_store(r);
    if (!b) return;
    request_query_each(r, read_parameter, &q);
    page_list_open(&l);
    const struct batches_page page = {
        .key = auth_key(r), .after = *q.page.after ? q.page.after : NULL, .limit = q.page.limit};
    int rc = q.error.code ? q.error.code : batches_list(b, &page, list_batch, &l, &more, &q.error);
    if (rc) {
        str_fini(&l.body);
        if (rc == ERR_NOT_FOUND) snprintf(q.error.param, sizeof q.error.param, "after");
        reply_failed(r, &q.error);
        return;
    }
    page_list_close(&l, more);
    reply_json(r, 200, &l.body);
}

#define ALL   "/v1/batches"
#define ONE   ALL "/{id}"
#define FLAGS (ROUTE_KEY | ROUTE_INFER | ROUTE_EMBED | ROUTE_V1)
const struct route batches_create_route = {
    "POST", ALL, FLAGS | ROUTE_JSON, handle_create, .table = &create_table, .answers = "batch"};
const struct route batches_list_route = {
    "GET", ALL, FLAGS, .handle = handle_list, .answers = "list", .query = "limit|after"};
const struct route batches_get_route = {"GET", ONE, FLAGS, .handle = handle_get,
                                        .answers = "batch"};
const struct route batches_cancel_route = {"POST", ONE "/cancel", FLAGS, .handle = handle_cancel,
                                           .answers = "batch"};
