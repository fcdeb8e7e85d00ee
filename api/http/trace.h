/* trace.h - traces of requests, sent to an OpenTelemetry collector by OTLP/HTTP with JSON.
 *
 * A sampled request has a struct trace, which its handler and its job fill. At its end it goes into
 * a bounded queue; an own thread makes spans of it and sends them. When the queue is full, the
 * request's trace is dropped and counted, so nothing ever waits for a collector. Spans hold no text
 * of prompts or answers.
 *
 * THREAD SAFETY: tracer_put, tracer_ratio and tracer_stats_get from any thread; a struct trace by
 * the thread that has its request; the rest from one thread at a time. */
#ifndef INFERD_API_HTTP_TRACE_H
#define INFERD_API_HTTP_TRACE_H

#include "api/http/trace_context.h"
#include "core/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct http;
struct http_config;
struct request;

enum {
    TRACE_SEQUENCES = 8, /* of a request that get spans */
    TRACE_MODEL_BYTES = 97,
    TRACE_ANSWER_ID_BYTES = 48,
    TRACE_AGENT_BYTES = 128
};

/* One sequence; times of clock_now_ns(), 0: it did not come to that. */
struct trace_sequence {
    uint64_t submitted_ns, admitted_ns, first_token_ns, last_token_ns, ended_ns, sampling_ns;
    uint64_t prompt_tokens, cached_tokens, generated_tokens;
    const char *finish; /* static; NULL: it has not ended by itself */
};

/* How a request generates. */
struct trace_params {
    double temperature, top_p, frequency_penalty, presence_penalty;
    uint64_t top_k, max_tokens, n_choices; /* n_choices 0: nothing is generated */
    int64_t seed;
    bool has_seed, stream;
};

struct trace {
    struct trace *next; /* tracer.c's */
    struct trace_context context;
    char state[TRACE_STATE_BYTES]; /* the client's tracestate */
    uint64_t start_ns, end_ns;     /* of clock_now_ns() */
    /* The server's span. */
    const char *method, *route; /* static; method: as the route has it */
    char path[256], id[65], client[48], agent[TRACE_AGENT_BYTES], key[80];
    unsigned status;      /* 0: none was sent */
    unsigned late_status; /* of an error that a stream ended with, after its status; 0: none */
    bool cut, tls;
    /* The model's span. */
    const char *operation; /* OpenTelemetry's word, static; NULL: there is no such span */
    char model[TRACE_MODEL_BYTES], answer_id[TRACE_ANSWER_ID_BYTES];
    struct trace_params params;
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    uint64_t n_sequences; /* all of them; the first have spans: */
    struct trace_sequence sequences[TRACE_SEQUENCES];
};

/* ---- trace.c ---- */

/* Opens h->tracer, and gives it another configuration: tracer_open, tracer_apply. */
int trace_open(struct http *h, const struct http_config *c, err *e);
int trace_apply(struct http *h, const struct http_config *c, err *e);
/* Sets r->trace_context and r->trace (NULL: not sampled) by its headers, once its route is known.
 * Nothing if traces are off, or the route is one that supervisors ask. */
void trace_begin(struct request *r);
/* The header traceresponse of r's answer; false: none. */
bool trace_header(const struct request *r, char out[TRACE_HEADER_BYTES]);
/* Room for one more sequence of r; NULL: it is not sampled, or there are enough. */
struct trace_sequence *trace_add_sequence(struct request *r);
/* Hands r->trace over, if there is one. status: that of the answer. */
void trace_end(struct request *r, unsigned status, bool cut);

/* ---- tracer.c ---- */

typedef struct tracer tracer;

struct tracer_config {
    const char
        *endpoint;      /* base address, to which /v1/traces is added; NULL or "": traces are off */
    double ratio;       /* of requests without a sampling decision of their client, 0 to 1 */
    uint32_t max_queue; /* requests whose spans wait to be sent */
    const char *version; /* of this program */
};

/* ERR_INVALID: param is otlp_endpoint. */
int tracer_open(const struct tracer_config *c, tracer **out, err *e);
/* Another configuration, from now on; what waits goes to the new endpoint, or is dropped if there
 * is none. On failure nothing changes. */
int tracer_apply(tracer *t, const struct tracer_config *c, err *e);
/* false: traces are off. */
bool tracer_ratio(tracer *t, double *ratio);
/* Takes tr (from mem_new). Never waits. */
void tracer_put(tracer *t, struct trace *tr);
/* Counts a trace that there was no memory for. */
void tracer_lose(tracer *t);
/* Sends what waits, until deadline_ns of clock_now_ns() at the latest. */
void tracer_flush(tracer *t, uint64_t deadline_ns);
/* Drops what waits; a transfer that is running ends at once. NULL is fine. */
void tracer_close(tracer *t);

enum trace_drop {
    TRACE_QUEUE_FULL, /* too many waited: the collector is slow or away */
    TRACE_REFUSED,    /* the collector did not accept them */
    TRACE_UNSENT,     /* the daemon stopped, or traces were turned off, before they were sent */
    TRACE_NO_MEMORY,
    TRACE_N_DROPS
};
struct tracer_stats {
    uint64_t sent;                   /* spans that the collector accepted */
    uint64_t dropped[TRACE_N_DROPS]; /* spans */
    uint64_t retries;                /* further tries after failures */
    uint32_t queued;                 /* requests now */
};
void tracer_stats_get(tracer *t, struct tracer_stats *out);

#endif
