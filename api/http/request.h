/* request.h - one HTTP request.
 *
 * Its life: http.c makes it at its first header callback -> route_check -> its body is collected ->
 * the route's handler fills the reply or attaches a job -> the job is polled until it fills the
 * reply, then (stream) read for bytes -> http.c ends it. The handler runs on a thread of the work
 * pool (prepare.h), which has the request while its connection is suspended; everything else runs
 * on the connection's HTTP thread, one callback at a time. Only the embedded `watched` is shared.
 */
#ifndef INFERD_API_HTTP_REQUEST_H
#define INFERD_API_HTTP_REQUEST_H

#include "api/http/answers.h"
#include "api/http/forwarded.h"
#include "api/http/job.h"
#include "api/http/key.h"
#include "api/http/reply.h"
#include "api/http/trace_context.h"
#include "api/http/watch.h"
#include "api/http/work_pool.h"
#include "core/base/str.h"
#include "core/base/work.h"

#include <stdbool.h>
#include <stdint.h>

struct api;
struct api_model;
struct cJSON;
struct conn;
struct http;
struct ignored;
struct local;
struct protocol;
struct route;
struct settings;
struct trace;

struct request {
    struct watched watched; /* first */
    struct work_item item;
    struct work work;    /* budget of its handler */
    struct http_key key; /* zeroed: no keys are configured, or it is not checked */
    struct http *http;
    const struct settings *settings; /* those that it began with; a reference */
    struct api *api;                 /* of the server's owner: nothing of it is known here */
    void *connection;                /* libmicrohttpd's; NULL: it is a local one */
    struct conn *conn;               /* the connection in conns.h */
    struct local *local;        /* of a request of the process itself (local.h); NULL: a client's */
    bool close;                 /* the connection ends with the answer */
    struct forwarded forwarded; /* by a trusted proxy; zeroed: there is none */
    const struct route *route;  /* NULL: none matches */
    size_t row;                 /* its route's row in tables; the last row: none matches */
    char method[16];
    char path[256];                /* for the log; longer ones are cut and match no route */
    const char *rest;              /* path after a prefix route's prefix, or from its {id} on */
    char id[65];                   /* x-request-id */
    struct ignored *ignored;       /* its body's ignored fields, while its handler runs */
    const struct api_model *model; /* the model that the body asks for, with a reference (the
                                      owner's: http_setup.release); NULL: not known (yet) */
    char model_id[97];             /* its id, for the log, also when the reference is gone */
    struct cJSON *preset; /* of the name that the body asks for (the owner's, ended with the model);
                             NULL: none */
    uint64_t waits_for;   /* the owner's: what a failed handler could wait for; 0: nothing */
    uint32_t n_waits;     /* how often it did */
    bool never_fits;      /* its 503 is for good */
    struct trace_context trace_context; /* zeroed: it is not traced */
    struct trace *trace;                /* trace.h; NULL: not sampled */
    uint64_t start_ns;
    uint64_t deadline_ns; /* when it must be answered at the latest; 0: no deadline */
    str body;
    uint64_t body_bytes; /* received, kept or not */
    uint64_t kept_bytes; /* counted in http.n_body_bytes */
    bool discard_body;   /* the reply is already an error */
    void *taken;         /* of the route's body_taker; NULL: nothing */
    bool handled;
    char error_text[192];    /* of error_for */
    uint32_t retry_after_ms; /* of a 429; 0: a second */
    bool active;             /* counted in http.n_active */
    bool queued;             /* libmicrohttpd has the reply */
    struct reply reply;
    struct answer_hold hold; /* of the reply's body */
    const struct job_ops *ops;
    void *job; /* of ops; NULL ops: none */
    /* Used so far: for the log, and for accounts. Cached ones are prompt tokens, too. */
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    struct request_usage {
        uint64_t requests, prompt_tokens, cached_tokens, completion_tokens;
    } accounted;         /* of them, what request_account has given away */
    bool is_admin;       /* auth_check_admin let it pass */
    const char *act;     /* of an administrator, "models.load", static; NULL: none (yet) */
    char act_on[128];    /* the name of what it changes, as one field (log_field); "": none */
    bool act_queued;     /* the answer says that it is queued */
    uint64_t sent_bytes; /* of the answer's body */
    /* Of the first of its sequences (clock_now_ns); 0: not yet, or there is none. */
    struct request_times {
        uint64_t submit_ns, admit_ns, first_token_ns;
    } times;
};

/* A request header's value (valid until the request ends) or NULL. */
const char *request_header(const struct request *r, const char *name);
/* Calls `each` for every header, in the order received; value is "" if it has none. */
void request_header_each(const struct request *r,
                         void (*each)(void *arg, const char *name, const char *value), void *arg);
/* The host[:port] that the client asked for: the forwarded one, else the Host header; NULL: none.
 */
const char *request_host(const struct request *r);
/* The client's address: the forwarded one, else the peer's. */
const struct address *request_client(const struct request *r);
/* Its method as logs name it, static: "other" for one that is no usual one but a client's text. */
const char *request_method(const struct request *r);
/* Calls `each` for every parameter of the query; value is "" if it has none. */
void request_query_each(const struct request *r,
                        void (*each)(void *arg, const char *name, const char *value), void *arg);
/* Copies segment k (from 0) of r->rest to dst, cut to n bytes; "" if there is none. */
void request_segment(const struct request *r, int k, char *dst, size_t n);
/* The protocol of r's errors and headers: its route's, or the one that its path or a header belongs
 * to. NULL: OpenAI's. By the thread that has r if it has no route or a shared one. */
const struct protocol *request_protocol(const struct request *r);
/* Takes what r used since the last call from its key's quota, and gives it to the owner's accounts.
 * By the thread that has r. */
void request_account(struct request *r);
/* Says which administrative act r is, for its owner's audit log (http_setup.ended). object may be
 * any text, but no secret; NULL: none. */
void request_act(struct request *r, const char *act, const char *object);
/* Frees the body: it is not needed any more. */
void request_drop_body(struct request *r);
/* Sets r->deadline_ns from the configuration and the timeout header. false: the header is wrong and
 * the reply says so. */
bool request_read_deadline(struct request *r);

#endif
