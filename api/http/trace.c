/* trace.c - what a request tells about itself in its trace. Owns nothing; the thread that has the
 * request. */
#include "api/http/http.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/http/trace_int.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static struct tracer_config config_of(const struct http *h, const struct http_config *c) {
    return (struct tracer_config){.endpoint = c->otlp_endpoint,
                                  .ratio = c->otlp_ratio,
                                  .max_queue = c->otlp_queue,
                                  .version = h->setup.version};
}

int trace_open(struct http *h, const struct http_config *c, err *e) {
    const struct tracer_config config = config_of(h, c);
    return tracer_open(&config, &h->tracer, e);
}

int trace_apply(struct http *h, const struct http_config *c, err *e) {
    const struct tracer_config config = config_of(h, c);
    return tracer_apply(h->tracer, &config, e);
}

/* Supervisors, scrapers and the page ask for the others again and again. */
static bool is_traced(const struct route *route) {
    return route && (route->flags & ROUTE_KEY) && !(route->flags & (ROUTE_HEALTH | ROUTE_METRICS));
}

struct trace_headers {
    const char *parent;
    unsigned n_parents; /* several are as bad as a malformed one */
    char *state;
    size_t n_members;
    bool bad_state;
};

static void note_parent(void *arg, const char *name, const char *value) {
    struct trace_headers *h = arg;
    if (strcasecmp(name, "traceparent") != 0) return;
    h->parent = value;
    h->n_parents++;
}

static void note_state(void *arg, const char *name, const char *value) {
    struct trace_headers *h = arg;
    if (strcasecmp(name, "tracestate") == 0 && !h->bad_state)
        h->bad_state = !trace_state_add(h->state, &h->n_members, value);
}

static bool has_parent(const struct trace_context *c) {
    static const uint8_t none[TRACE_SPAN_BYTES];
    return memcmp(c->parent_id, none, sizeof none) != 0;
}

static void fill_trace(struct request *r, struct trace *tr) {
    const char *agent = request_header(r, "User-Agent");
    tr->context = r->trace_context;
    tr->start_ns = r->start_ns;
    tr->method = strcmp(r->method, "HEAD") == 0 ? "HEAD" : r->route->method;
    tr->route = route_name(r->route);
    tr->tls = r->conn->tls;
    snprintf(tr->path, sizeof tr->path, "%s", r->path);
    snprintf(tr->id, sizeof tr->id, "%s", r->id);
    snprintf(tr->agent, sizeof tr->agent, "%s", agent ? agent : "");
    if (request_client(r)->family) address_text(request_client(r), tr->client);
    /* Without its traceparent, a tracestate belongs to nothing. */
    struct trace_headers h = {.state = tr->state};
    if (has_parent(&tr->context)) request_header_each(r, note_state, &h);
    if (h.bad_state) tr->state[0] = '\0';
}

void trace_begin(struct request *r) {
    double ratio;
    struct trace_headers h = {0};
    if (!is_traced(r->route) || !tracer_ratio(r->http->tracer, &ratio)) return;
    request_header_each(r, note_parent, &h);
    if (!trace_context_begin(&r->trace_context, h.n_parents == 1 ? h.parent : NULL, ratio) ||
        !(r->trace_context.flags & TRACE_SAMPLED))
        return;
    r->trace = mem_new(1, sizeof *r->trace);
    if (r->trace)
        fill_trace(r, r->trace);
    else
        tracer_lose(r->http->tracer);
}

bool trace_header(const struct request *r, char out[TRACE_HEADER_BYTES]) {
    if (!r->trace_context.span_id[0]) return false;
    trace_context_write(&r->trace_context, out);
    return true;
}

struct trace_sequence *trace_add_sequence(struct request *r) {
    struct trace *tr = r->trace;
    if (!tr || tr->n_sequences++ >= TRACE_SEQUENCES) return NULL;
    return &tr->sequences[tr->n_sequences - 1];
}

void trace_end(struct request *r, unsigned status, bool cut) {
    struct trace *tr = r->trace;
    if (!tr) return;
    r->trace = NULL;
    tr->end_ns = clock_now_ns();
    tr->status = r->queued ? status : 0;
    tr->cut = cut;
    tr->prompt_tokens = r->prompt_tokens;
    tr->cached_tokens = r->cached_tokens;
    tr->completion_tokens = r->completion_tokens;
    snprintf(tr->key, sizeof tr->key, "%s", r->key.name);
    snprintf(tr->model, sizeof tr->model, "%s", r->model_id);
    tracer_put(r->http->tracer, tr);
}
