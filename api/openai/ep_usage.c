/* ep_usage.c - what was used: GET /v1/inferd/usage, and OpenAI's /v1/organization/usage/completions
 * and /embeddings. Both read the ledger in the registry's file, which the daemon writes once a
 * second. Runs on pool threads. */
#include "api/generate/api_state.h"
#include "api/http/error.h"
#include "api/http/json.h"
#include "api/http/page.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "registry/keys.h"
#include "registry/ledger.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DAY_S = 86400, DEFAULT_DAYS = 7, MAX_BUCKETS = 168 };

struct query {
    struct usage_query usage;
    struct request *request;
    int64_t key; /* of usage.key */
    char model[REGISTRY_NAME_BYTES];
    int64_t limit; /* of buckets; 0: not given */
    int64_t page;  /* OpenAI: when the page begins; 0: start_time */
    bool has_from;
    bool of_openai;
    enum usage_kind kind; /* of_openai */
    err error;
};

/* ---- parameters ---- */

static bool read_number(const char *name, const char *value, int64_t most, int64_t *out, err *e) {
    char *end;
    long long n = strtoll(value, &end, 10);
    if (*value >= '0' && *value <= '9' && !*end && n <= most) {
        *out = n;
        return true;
    }
    err_set_param(e, ERR_INVALID, name, "Invalid value for '%s': expected 0 to %" PRId64 ".", name,
                  most);
    return false;
}

static void read_width(struct query *q, const char *value) {
    if (strcmp(value, "1h") == 0)
        q->usage.interval_s = USAGE_HOUR_S;
    else if (strcmp(value, "1d") == 0)
        q->usage.interval_s = DAY_S;
    else if (!q->of_openai && strcmp(value, "all") == 0)
        q->usage.interval_s = 0;
    else
        err_set_param(&q->error, ERR_INVALID, "bucket_width",
                      "Invalid value for 'bucket_width': this server counts by the hour: use 1h or "
                      "1d.");
}

static void read_group(struct query *q, const char *name, const char *value) {
    if (strcmp(value, "model") == 0)
        q->usage.by_model = true;
    else if (strcmp(value, "api_key_id") == 0)
        q->usage.by_key = true;
    else
        err_set_param(&q->error, ERR_INVALID, name,
                      "Invalid value for 'group_by': use model and api_key_id.");
}

/* A key's id, as add_key writes it: "key_12"; of a file: "file_1". */
static void read_key(struct query *q, const char *name, const char *value) {
    bool of_file = strncmp(value, "file_", 5) == 0;
    bool named = of_file || strncmp(value, "key_", 4) == 0;
    int64_t id = 0;
    if (!named || !read_number(name, strchr(value, '_') + 1, INT64_MAX - 1, &id, &q->error) ||
        !id) {
        err_set_param(&q->error, ERR_INVALID, name,
                      "Invalid value for '%s': expected key_NUMBER or file_NUMBER.", name);
        return;
    }
    if (q->usage.key)
        err_set_param(&q->error, ERR_UNSUPPORTED, name, "This server filters by one value of '%s'.",
                      name);
    q->key = of_file ? -id : id;
    q->usage.key = &q->key;
}

static void read_model(struct query *q, const char *name, const char *value) {
    if (q->usage.model)
        err_set_param(&q->error, ERR_UNSUPPORTED, name, "This server filters by one value of '%s'.",
                      name);
    snprintf(q->model, sizeof q->model, "%s", value);
    q->usage.model = q->model;
}

/* Lists come as name or name[], once for each value. */
static bool is_list(const char *name, const char *of) {
    size_t n = strlen(of);
    return strncmp(name, of, n) == 0 && (!name[n] || strcmp(name + n, "[]") == 0);
}

static void read_parameter(void *arg, const char *name, const char *value) {
    const int64_t latest = INT64_C(1) << 40;
    struct query *q = arg;
    err *e = &q->error;
    if (e->code) return;
    if (strcmp(name, "start_time") == 0)
        q->has_from = read_number(name, value, latest, &q->usage.from_s, e);
    else if (strcmp(name, "end_time") == 0)
        read_number(name, value, latest, &q->usage.to_s, e);
    else if (strcmp(name, "bucket_width") == 0)
        read_width(q, value);
    else if (is_list(name, "group_by"))
        read_group(q, name, value);
    else if (is_list(name, "api_key_ids"))
        read_key(q, name, value);
    else if (is_list(name, "models"))
        read_model(q, name, value);
    else if (q->of_openai && strcmp(name, "limit") == 0)
        read_number(name, value, MAX_BUCKETS, &q->limit, e);
    else if (q->of_openai && strcmp(name, "page") == 0)
        read_number(name, value, latest, &q->page, e);
    else
        page_refuse(name, e);
}

static int read_query(struct request *r, struct query *q) {
    int64_t now_s = clock_wall_s();
    q->request = r;
    q->usage.to_s = now_s + USAGE_HOUR_S;
    request_query_each(r, read_parameter, q);
    if (q->error.code) return q->error.code;
    if (q->of_openai && !q->has_from)
        return err_set_param(&q->error, ERR_INVALID, "start_time",
                             "Missing required parameter: 'start_time'.");
    if (!q->has_from) q->usage.from_s = now_s - DEFAULT_DAYS * DAY_S;
    if (!r->api->config.registry)
        return err_set(&q->error, ERR_UNAVAILABLE, "This server has no registry.");
    return 0;
}

static int read_usage(struct query *q, void (*add)(void *arg, const struct usage_row *row),
                      void *arg) {
    registry *g = NULL;
    int rc = registry_open(q->request->api->config.registry, &g, &q->error);
    if (!rc) rc = usage_read(g, &q->usage, add, arg, &q->error);
    registry_close(g);
    return rc;
}

/* ---- inferd's own ---- */

struct listing {
    str body;
    bool any;
    struct registry_key *keys; /* (n_keys) in order of ids */
    size_t n_keys;
    const struct query *query;
    int64_t first; /* OpenAI: where the first bucket begins, perhaps within its interval */
    int64_t next;  /* the next bucket's beginning */
    bool open;     /* a bucket is being written */
    int64_t n;     /* buckets so far */
};

static void add_key(str *s, int64_t id, const struct listing *l) {
    str_add(s, ",\"api_key_id\":");
    if (id > 0)
        str_addf(s, "\"key_%" PRId64 "\"", id);
    else if (id < 0)
        str_addf(s, "\"file_%" PRId64 "\"", -id);
    else
        str_add(s, "null");
    if (l->query->of_openai) return;
    const char *name = NULL;
    for (size_t i = 0; i < l->n_keys && !name; i++)
        if (l->keys[i].id == id) name = l->keys[i].name;
    str_add(s, ",\"api_key_name\":");
    if (name)
        json_add_cstr(s, name);
    else
        str_add(s, "null");
}

static void add_row(void *arg, const struct usage_row *row) {
    struct listing *l = arg;
    str *s = &l->body;
    str_addf(s, "%s{\"start_time\":%" PRId64, l->any ? "," : "", row->time_s);
    l->any = true;
    add_key(s, row->key, l);
    str_add(s, ",\"model\":");
    json_add_cstr(s, row->model);
    str_addf(s,
             ",\"kind\":\"%s\",\"requests\":%" PRIu64 ",\"input_tokens\":%" PRIu64
             ",\"input_cached_tokens\":%" PRIu64 ",\"output_tokens\":%" PRIu64 "}",
             row->kind == USAGE_EMBED ? "embeddings" : "completions", row->requests,
             row->input_tokens, row->cached_tokens, row->output_tokens);
}

static int read_keys(struct request *r, struct listing *l, err *e) {
    registry *g = NULL;
    int rc = registry_open(r->api->config.registry, &g, e);
    if (!rc) rc = registry_key_list(g, &l->keys, &l->n_keys, e);
    registry_close(g);
    return rc;
}

/* Without the scope a key sees what it used itself. */
static void handle_own(struct request *r) {
    struct query q = {
        .usage = {.interval_s = USAGE_HOUR_S, .by_key = true, .by_model = true, .by_kind = true}};
    struct listing l = {.query = &q};
    str_init(&l.body, REPLY_MAX_BYTES);
    int rc = read_query(r, &q);
    if (r->key.number && !(r->key.scopes & KEY_METRICS)) {
        q.key = r->key.id;
        q.usage.key = &q.key;
    }
    str_add(&l.body, "{\"object\":\"list\",\"data\":[");
    if (!rc) rc = read_keys(r, &l, &q.error);
    if (!rc) rc = read_usage(&q, add_row, &l);
    free(l.keys);
    str_add(&l.body, "]}");
    if (!rc) {
        reply_header(r, "Cache-Control", "no-store");
        reply_json(r, 200, &l.body);
        return;
    }
    str_fini(&l.body);
    reply_err(r, &q.error);
}

/* ---- OpenAI's ---- */

static int64_t end_of(const struct listing *l, int64_t begin) {
    const struct usage_query *u = &l->query->usage;
    int64_t end = begin - begin % u->interval_s + u->interval_s;
    return end < u->to_s ? end : u->to_s;
}

static void close_bucket(struct listing *l) {
    if (l->open) str_add(&l->body, "]}");
    l->open = false;
}

/* Writes buckets, the last of which contains until_s. Empty ones are in the list, too. */
static void open_buckets(struct listing *l, int64_t until_s) {
    const struct usage_query *u = &l->query->usage;
    while (l->next < u->to_s && l->next <= until_s && l->n < l->query->limit) {
        close_bucket(l);
        int64_t begin = l->next;
        l->next = end_of(l, begin);
        str_addf(&l->body,
                 "%s{\"object\":\"bucket\",\"start_time\":%" PRId64 ",\"end_time\":%" PRId64
                 ",\"results\":[",
                 l->n++ ? "," : "", begin, l->next);
        l->open = true;
        l->any = false;
    }
}

static void add_result(void *arg, const struct usage_row *row) {
    struct listing *l = arg;
    const struct query *q = l->query;
    str *s = &l->body;
    int64_t at = row->time_s < l->first ? l->first : row->time_s;
    open_buckets(l, at);
    if (!l->open || at >= l->next) return; /* beyond the page */
    str_addf(s, "%s{\"object\":\"organization.usage.%s.result\",\"input_tokens\":%" PRIu64,
             l->any ? "," : "", q->kind == USAGE_EMBED ? "embeddings" : "completions",
             row->input_tokens);
    l->any = true;
    if (q->kind == USAGE_GENERATE)
        str_addf(s,
                 ",\"output_tokens\":%" PRIu64 ",\"input_cached_tokens\":%" PRIu64
                 ",\"input_audio_tokens\":0,\"output_audio_tokens\":0",
                 row->output_tokens, row->cached_tokens);
    str_addf(s, ",\"num_model_requests\":%" PRIu64 ",\"project_id\":null,\"user_id\":null",
             row->requests);
    if (q->usage.by_key)
        add_key(s, row->key, l);
    else
        str_add(s, ",\"api_key_id\":null");
    str_add(s, ",\"model\":");
    if (q->usage.by_model)
        json_add_cstr(s, row->model);
    else
        str_add(s, "null");
    if (q->kind == USAGE_GENERATE) str_add(s, ",\"batch\":null");
    str_add_char(s, '}');
}

static void handle_openai(struct request *r, enum usage_kind kind) {
    struct query q = {.usage = {.interval_s = DAY_S}, .of_openai = true, .kind = kind};
    struct listing l = {.query = &q};
    q.usage.kind = &q.kind;
    str_init(&l.body, REPLY_MAX_BYTES);
    int rc = read_query(r, &q);
    if (!q.limit) q.limit = q.usage.interval_s == DAY_S ? 7 : 24;
    l.first = l.next = q.page > q.usage.from_s ? q.page : q.usage.from_s;
    q.usage.from_s = l.next - l.next % USAGE_HOUR_S;
    str_add(&l.body, "{\"object\":\"page\",\"data\":[");
    if (!rc) rc = read_usage(&q, add_result, &l);
    if (rc) {
        str_fini(&l.body);
        reply_err(r, &q.error);
        return;
    }
    open_buckets(&l, INT64_MAX);
    close_bucket(&l);
    bool more = l.next < q.usage.to_s;
    str_addf(&l.body, "],\"has_more\":%s,\"next_page\":", more ? "true" : "false");
    if (more)
        str_addf(&l.body, "\"%" PRId64 "\"}", l.next);
    else
        str_add(&l.body, "null}");
    reply_header(r, "Cache-Control", "no-store");
    reply_json(r, 200, &l.body);
}

static void handle_completions(struct request *r) {
    handle_openai(r, USAGE_GENERATE);
}

static void handle_embeddings(struct request *r) {
    handle_openai(r, USAGE_EMBED);
}

#define OPENAI_QUERY "start_time|end_time|bucket_width|group_by|api_key_ids|models|limit|page"
const struct route usage_route = {
    "GET",
    "/v1/inferd/usage",
    ROUTE_KEY,
    .handle = handle_own,
    .answers = "list",
    .query = "start_time|end_time|bucket_width|group_by|api_key_ids|models"};
const struct route usage_completions_route = {"GET",
                                              "/v1/organization/usage/completions",
                                              ROUTE_KEY | ROUTE_METRICS,
                                              .handle = handle_completions,
                                              .answers = "page",
                                              .query = OPENAI_QUERY};
const struct route usage_embeddings_route = {"GET",
                                             "/v1/organization/usage/embeddings",
                                             ROUTE_KEY | ROUTE_METRICS,
                                             .handle = handle_embeddings,
                                             .answers = "page",
                                             .query = OPENAI_QUERY};
