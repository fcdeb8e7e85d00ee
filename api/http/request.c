/* request.c - what several files of the server ask of a request: its headers and query (with http.c
 * and http_head.c, the only callers of libmicrohttpd), its protocol. Owns nothing. */
#include "api/http/http_int.h"

#include "api/http/request.h"

#include "api/http/route.h"
#include "core/base/clock.h"
#include "core/base/log.h"

#include <stdio.h>
#include <string.h>

void request_account(struct request *r) {
    const struct http_setup *owner = &r->http->setup;
    struct request_usage *was = &r->accounted;
    struct request_usage now = {r->prompt_tokens > 0, r->prompt_tokens, r->cached_tokens,
                                r->completion_tokens};
    struct request_usage more = {
        now.requests - was->requests, now.prompt_tokens - was->prompt_tokens,
        now.cached_tokens - was->cached_tokens, now.completion_tokens - was->completion_tokens};
    *was = now;
    if (!more.prompt_tokens && !more.cached_tokens && !more.completion_tokens) return;
    quota_take_tokens(r, more.prompt_tokens + more.completion_tokens, clock_now_ns());
    if (owner->account) owner->account(r, &more);
}

void request_drop_body(struct request *r) {
    atomic_fetch_sub(&r->http->n_body_bytes, r->kept_bytes);
    r->kept_bytes = 0;
    str_fini(&r->body);
}

void request_segment(const struct request *r, int k, char *dst, size_t n) {
    const char *at = r->rest;
    for (; k && *at; k--) {
        at += strcspn(at, "/");
        at += *at == '/';
    }
    snprintf(dst, n, "%.*s", (int)strcspn(at, "/"), at);
}

const char *request_header(const struct request *r, const char *name) {
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

struct values {
    void (*each)(void *arg, const char *name, const char *value);
    void *arg;
};

static enum MHD_Result on_value(void *cls, enum MHD_ValueKind kind, const char *name,
                                const char *value) {
    const struct values *v = cls;
    (void)kind;
    v->each(v->arg, name, value ? value : "");
    return MHD_YES;
}

void request_query_each(const struct request *r,
                        void (*each)(void *arg, const char *name, const char *value), void *arg) {
    struct values v = {each, arg};
    MHD_get_connection_values(r->connection, MHD_GET_ARGUMENT_KIND, on_value, &v);
}

void request_header_each(const struct request *r,
                         void (*each)(void *arg, const char *name, const char *value), void *arg) {
    struct values v = {each, arg};
    MHD_get_connection_values(r->connection, MHD_HEADER_KIND, on_value, &v);
}

const char *request_host(const struct request *r) {
    return r->forwarded.has_host ? r->forwarded.host : request_header(r, "Host");
}

const struct address *request_client(const struct request *r) {
    return r->forwarded.client.family ? &r->forwarded.client : &r->conn->peer;
}

const char *request_method(const struct request *r) {
    static const char *const known[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], r->method) == 0) return known[i];
    return "other";
}

void request_act(struct request *r, const char *act, const char *object) {
    r->act = act;
    if (object) log_field(r->act_on, sizeof r->act_on, object);
}

static bool is_below(const char *path, const char *area) {
    size_t n = strlen(area);
    return strncmp(path, area, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

const struct protocol *request_protocol(const struct request *r) {
    if (r->route && !(r->route->flags & ROUTE_SHARED)) return r->route->protocol;
    for (size_t i = 0; i < r->http->setup.n_routes; i++) {
        const struct protocol *p = r->http->setup.routes[i]->protocol;
        if (!p) continue;
        if (!r->route && p->area && is_below(r->path, p->area)) return p;
        if (p->header && request_header(r, p->header)) return p;
    }
    return NULL;
}
