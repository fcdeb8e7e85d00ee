/* anthropic_files.c - Anthropic's form of /v1/files: the object of a file, and lists
 * (https://platform.claude.com/docs/en/api/files). Owns nothing; pool threads. */
#include "api/batch/batch_int.h"

#include "api/http/auth.h"
#include "api/http/json.h"
#include "api/http/page.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include "core/base/clock.h"

#include <stdio.h>
#include <string.h>

enum { MOST_IDS = 100, MOST_FILES = 1000 };

bool files_are_anthropic(const struct request *r) {
    return request_protocol(r) != NULL; /* no other protocol is told by a header */
}

void files_add_anthropic(str *out, const struct batches_file *f) {
    char time[CLOCK_UTC_BYTES];
    str_addf(out, "{\"id\":\"%s\",\"type\":\"file\",\"filename\":", f->id);
    json_add_cstr(out, f->name);
    str_add(out, ",\"mime_type\":");
    json_add_cstr(out, *f->mime ? f->mime : "application/octet-stream");
    str_addf(out,
             ",\"size_bytes\":%llu,\"created_at\":\"%s\",\"downloadable\":true,\"expires_at\":",
             (unsigned long long)f->n_bytes, clock_utc(f->created_s, time));
    if (f->expires_s)
        str_addf(out, "\"%s\"}", clock_utc(f->expires_s, time));
    else
        str_add(out, "null}");
}

void files_deleted_anthropic(struct request *r, const char *id) {
    str body;
    str_init(&body, 1024);
    str_addf(&body, "{\"id\":\"%s\",\"type\":\"file_deleted\"}", id);
    reply_json(r, 200, &body);
}

/* ---- lists ---- */

struct query {
    struct page page; /* limit */
    const char *from; /* the parameter that page.after comes from; NULL: there is none */
    char before[PAGE_ID_BYTES];
    str ids; /* items of a JSON array */
    size_t n_ids;
    bool has_limit;
    err error;
};

static void refuse_both(struct query *q, const char *name, const char *other) {
    err_set_param(&q->error, ERR_INVALID, name, "'%s' and '%s' exclude each other: send only one.",
                  name, other);
}

static void take_id(struct query *q, const char *value) {
    if (q->n_ids++ == MOST_IDS || strlen(value) >= BATCHES_ID_BYTES) {
        err_set_param(&q->error, ERR_INVALID, "ids",
                      "Invalid value for 'ids': at most %d ids of files.", MOST_IDS);
        return;
    }
    if (q->ids.len) str_add_char(&q->ids, ',');
    json_add_cstr(&q->ids, value);
}

/* The SDK's next page keeps the first one's parameters, so `page` goes before `after_id`. */
static void take_place(struct query *q, const char *name, const char *value) {
    char *to = *name == 'b' ? q->before : q->page.after;
    if (q->from && *q->from == 'p' && *name == 'a') return;
    if (strlen(value) >= PAGE_ID_BYTES)
        err_set_param(&q->error, ERR_INVALID, name, "Invalid value for '%s': it is too long.",
                      name);
    else
        snprintf(to, PAGE_ID_BYTES, "%s", value);
    if (to == q->page.after) q->from = name;
}

static void read_parameter(void *arg, const char *name, const char *value) {
    static const char *const places[] = {"after_id", "page", "before_id"};
    struct query *q = arg;
    if (q->error.code || strcmp(name, "beta") == 0) return;
    if (strcmp(name, "limit") == 0) {
        q->has_limit = true;
        page_take(&q->page, name, value, &q->error);
        return;
    }
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (strcmp(name, places[i]) == 0) {
            take_place(q, places[i], value);
            return;
        }
    if (strcmp(name, "ids") == 0 || strcmp(name, "ids[]") == 0)
        take_id(q, value);
    else if (strcmp(name, "scope_id") == 0)
        err_set_param(&q->error, ERR_UNSUPPORTED, name,
                      "Unsupported value for 'scope_id': files have no scopes here.");
    else
        page_refuse(name, &q->error);
}

static void check_query(struct query *q) {
    if (q->error.code) return;
    if (*q->before && q->from)
        refuse_both(q, "before_id", q->from);
    else if (q->n_ids && (q->has_limit || q->from || *q->before))
        refuse_both(q, "ids", q->has_limit ? "limit" : q->from ? q->from : "before_id");
    else if (q->ids.failed)
        err_no_memory(&q->error);
}

static void list_file(void *arg, const struct batches_file *f) {
    struct page_list *l = arg;
    page_list_next(l, f->id);
    files_add_anthropic(&l->body, f);
}

static void add_id(str *out, const char *name, const char *id) {
    str_addf(out, *id ? ",\"%s\":\"%s\"" : ",\"%s\":null", name, id);
}

static int read_list(batches *b, struct request *r, struct query *q, struct page_list *l) {
    bool more = false;
    str ids;
    str_init(&ids, REPLY_MAX_BYTES);
    str_addf(&ids, "[%s]", str_cstr(&q->ids));
    const struct batches_page page = {.key = auth_key(r),
                                      .after = q->from ? q->page.after : NULL,
                                      .before = *q->before ? q->before : NULL,
                                      .ids = q->n_ids ? str_cstr(&ids) : NULL,
                                      .limit = q->n_ids ? MOST_IDS : q->page.limit};
    str_add(&l->body, "{\"data\":[");
    int rc = ids.failed
                 ? err_no_memory(&q->error)
                 : batches_file_list(b, &page, clock_wall_s(), list_file, l, &more, &q->error);
    str_fini(&ids);
    if (rc == ERR_NOT_FOUND)
        snprintf(q->error.param, sizeof q->error.param, "%s", q->from ? q->from : "before_id");
    str_add_char(&l->body, ']');
    add_id(&l->body, "first_id", l->first);
    add_id(&l->body, "last_id", l->last);
    str_addf(&l->body, ",\"has_more\":%s", more ? "true" : "false");
    add_id(&l->body, "next_page", more && !*q->before ? l->last : "");
    str_add_char(&l->body, '}');
    return rc;
}

int files_list_anthropic(struct request *r, batches *b, err *e) {
    struct query q = {.page = {.limit = PAGE_LIMIT, .most = MOST_FILES}};
    struct page_list l = {0};
    str_init(&q.ids, REPLY_MAX_BYTES);
    str_init(&l.body, REPLY_MAX_BYTES);
    request_query_each(r, read_parameter, &q);
    check_query(&q);
    int rc = q.error.code ? q.error.code : read_list(b, r, &q, &l);
    if (rc)
        *e = q.error;
    else
        reply_json(r, 200, &l.body);
    str_fini(&l.body);
    str_fini(&q.ids);
    return rc;
}
