/* trace_int.h - the files of traces, from the bottom: trace_context.c, trace_spans.c (JSON),
 * trace_post.c (HTTP), tracer.c (queue and thread), trace.c (what a request tells). */
#ifndef INFERD_API_HTTP_TRACE_INT_H
#define INFERD_API_HTTP_TRACE_INT_H

#include "api/http/trace.h"
#include "core/base/str.h"

#include <stdatomic.h>

/* ---- trace_spans.c ---- */

/* Who sends: the resource of all spans. */
struct trace_origin {
    char version[32], instance[37]; /* a UUID of this process */
};

uint32_t trace_n_spans(const struct trace *tr);
/* The body of a request to a collector: ExportTraceServiceRequest with the spans of all traces of
 * the list. wall_ns: what to add to clock_now_ns() for the time since 1970. */
void trace_add_request(str *out, const struct trace_origin *origin, const struct trace *list,
                       int64_t wall_ns);

/* ---- trace_post.c ---- */

enum post_result {
    POST_ACCEPTED, /* all but n_rejected spans */
    POST_REFUSED,  /* for good */
    POST_FAILED,   /* another try may succeed */
    POST_STOPPED   /* by `stop` */
};
struct post_reply {
    uint64_t n_rejected;
    uint64_t retry_ns; /* the collector asks to wait so long; 0: it does not say */
    char why[160];     /* for the log; "": nothing is wrong */
};
struct trace_post;

/* Is it the base address of a collector? Writes the whole URL, *url, which the caller frees.
 * ERR_INVALID: param is otlp_endpoint. */
int trace_post_url(const char *endpoint, char **url, err *e);
/* libcurl's state is used by one thread at a time. */
int trace_post_open(struct trace_post **out, err *e);
void trace_post_close(struct trace_post *p); /* NULL is fine */
/* stop(arg): asked a few times a second during the transfer, which it ends. */
enum post_result trace_post_send(struct trace_post *p, const char *url, const str *body,
                                 bool (*stop)(void *arg), void *arg, struct post_reply *reply);

#endif
