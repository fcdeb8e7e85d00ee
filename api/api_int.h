/* api_int.h - what the files of api/ share: the daemon-wide state, one request, its reply, routes.
 *
 * A request's life: http.c makes it at its first header callback -> route_check -> body gathered ->
 * the route's handler, which either fills the reply or attaches a job -> the job is asked (poll)
 * until it fills the reply, then (stream) for bytes -> http.c ends it. The handler runs on a thread
 * of the work pool (prepare.h), which has the request while its connection is suspended; all else
 * on the connection's HTTP thread, one callback at a time. Only the embedded `watched` is shared.
 */
#ifndef INFERD_API_INT_H
#define INFERD_API_INT_H

#include "api/api.h"
#include "api/generate/resume.h"
#include "api/http/answers.h"
#include "api/http/prepare.h"
#include "api/http/watch.h"
#include "core/base/err.h"
#include "core/base/str.h"
#include "core/base/work.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct http;
struct conn;
struct request;
struct json_table;

enum { API_N_CODES = 20, API_MAX_ROUTES = COST_ROUTES - 1 };

struct api {
    struct api_config config; /* strings and keys are copies */
    struct hash128 secret;    /* of this process: what is hashed with it cannot be guessed */
    struct http *http;
    watch *watch;
    resume *resume;
    struct grammar_cache *grammars;
    struct api_model models[API_MAX_MODELS]; /* written once, before ready */
    size_t n_models;
    atomic_bool ready; /* models may be read */
    atomic_bool draining;
    atomic_bool closing; /* what has no answer yet gets none */
    work_pool *pool;
    struct costs costs;
    struct answers answers;
    atomic_uint n_active;               /* requests that the pool got, until their answer is over */
    atomic_uint_least64_t n_body_bytes; /* of bodies that are being received, 64K of each free */
    atomic_uint_least64_t n_pool_checks, n_pool_check_failures, last_check_ns;
    atomic_uint_least64_t n_requests[COST_ROUTES][API_N_CODES]; /* by route, status */
};

/* api.c */
/* The model that answers to name (id or alias), or NULL. */
const struct api_model *api_find_model(const api *a, const char *name);
/* r->model from a body's model field. ERR_NOT_FOUND. */
int api_request_model(struct request *r, const char *name, err *e);
/* prefix plus 24 random hex digits. dst holds 48 bytes. */
void api_new_id(char *dst, const char *prefix);

/* A job produces the answer of a request that has to wait for tokens. */
enum job_status { JOB_WAIT, JOB_REPLY, JOB_WORK };
enum { JOB_READ_END = -1, JOB_READ_WORK = -2 };
struct job_ops {
    /* Looks for events: JOB_REPLY when the reply is filled (also with an error), JOB_WAIT: call
     * again when notified, JOB_WORK: call work first. */
    enum job_status (*poll)(struct request *r, void *job);
    /* Body of a streamed reply: bytes written (up to max), 0: nothing now, or JOB_READ_*. */
    ssize_t (*read)(struct request *r, void *job, char *buf, size_t max);
    /* What takes too long for an HTTP thread, which writes other streams besides: on a pool
     * thread. */
    void (*work)(struct request *r, void *job);
    void (*free)(void *job); /* also ends its streams: no notification after it */
    /* The connection ended before the job: true: it is kept, and not the request's any more; false,
     * or no such function: free follows. */
    bool (*cut)(struct request *r, void *job);
};

enum { REPLY_MAX_HEADERS = 16, REPLY_MAX_BYTES = 64 << 20 };

struct reply {
    unsigned status;          /* 0: none yet */
    const char *content_type; /* static string */
    str body;                 /* unless data or stream */
    const void *data;         /* static bytes, n_data of them */
    size_t n_data;
    bool stream; /* the job's read gives the body */
    struct {
        const char *name; /* static string */
        char value[256];
    } headers[REPLY_MAX_HEADERS];
    size_t n_headers;
};

struct request {
    struct watched watched; /* first */
    struct work_item item;
    struct work work;    /* what its handler may cost */
    uint32_t key_number; /* place of its API key among them, from 1; 0: no keys are set */
    api *api;
    void *connection;          /* http.c's */
    struct conn *conn;         /* the connection in conns.h */
    bool close;                /* the connection ends with the answer */
    const struct route *route; /* NULL: no such */
    bool method_known;
    char method[16];
    char path[256];                /* for the log; longer ones are cut and match no route */
    const char *rest;              /* path behind a prefix route's prefix, or from its {id} on */
    char id[65];                   /* x-request-id */
    const struct api_model *model; /* that the body asks for; NULL: not known (yet) */
    uint64_t start_ns;
    uint64_t deadline_ns; /* by when it must be answered, whatever it waits for; 0: never */
    str body;
    uint64_t body_bytes; /* received, kept or not */
    uint64_t kept_bytes; /* counted in n_body_bytes */
    bool discard_body;   /* the reply is already an error */
    bool handled;
    char error_text[192]; /* of error_for */
    bool active;          /* counted in n_active */
    bool queued;          /* the reply is with libmicrohttpd */
    struct reply reply;
    struct answer_hold hold; /* of the reply's body */
    const struct job_ops *ops;
    void *job;
    uint64_t prompt_tokens, completion_tokens; /* for the log */
};

/* http.c */
int http_open(api *a, struct http **out, err *e);
uint16_t http_port(const struct http *h);
void http_close(struct http *h);
struct conns_counts;
void http_conns_get(struct http *h, struct conns_counts *out);

/* listen.c */
/* The socket of c->listen_fd or on c->host and port; *out is the caller's. ERR_IO. */
int listen_open(const struct api_config *c, int *out, err *e);
/* The port of a listening socket and its address family. */
uint16_t listen_port(int fd, int *family);

/* http_head.c */
/* A request header's value (valid until the request ends) or NULL. */
const char *request_header(const struct request *r, const char *name);
/* Calls take for each parameter of the query, value "" where it has none. */
void request_query_each(const struct request *r,
                        void (*take)(void *arg, const char *name, const char *value), void *arg);
/* The body is not needed any more. */
void request_drop_body(struct request *r);

/* reply.c */
void reply_header(struct request *r, const char *name, const char *value);
/* What OpenAI's clients read besides: the time until now, and the queue's bound as a rate limit.
 * For routes that do work, once their status is known. */
void reply_work_headers(struct request *r);
/* Takes body's bytes. A body that failed (no memory) becomes a 500. */
void reply_json(struct request *r, unsigned status, str *body);
void reply_text(struct request *r, unsigned status, const char *content_type, str *body);

/* http/error.c: {"error":{"message","type","param","code"}} */
struct api_error {
    unsigned status;
    const char *type;
    const char *code;  /* NULL: null */
    const char *param; /* NULL or "": null */
    const char *message;
};
void error_write(str *out, const struct api_error *error);
/* 503: the bound of answers.h is reached. */
extern const struct api_error error_no_room;
void reply_no_room(struct request *r);
/* 429 and 503 get Retry-After. */
void reply_error(struct request *r, const struct api_error *error);
/* An err of the rooms below as an API error; borrows from e. What only concerns the server (500)
 * is not told to the client. */
struct api_error error_of(const err *e);
/* The same for r's answer: a 500 names the request, and the log what happened. Borrows from r, e.
 */
struct api_error error_for(struct request *r, const err *e);
void reply_err(struct request *r, const err *e);

/* auth.c: fills the reply and returns false when the request must not go on. */
bool auth_check_key(struct request *r);
bool auth_check_host(struct request *r);
bool auth_check_origin(struct request *r);
/* The accepted API key of a request that was checked; NULL where no keys are set. */
const char *auth_key(const struct request *r);

/* The sums of r's key, which it must have. */
struct key_costs *request_key_costs(const struct request *r);

/* route.c */
enum route_flags {
    ROUTE_PREFIX = 1,     /* path starts with route.path; without it {id} stands for any segment */
    ROUTE_KEY = 2,        /* needs a key where keys are set */
    ROUTE_MODEL = 4,      /* 503 while loading */
    ROUTE_WORK = 8,       /* starts new work: 503 while draining */
    ROUTE_JSON = 16,      /* needs an application/json body */
    ROUTE_FILE = 32,      /* every path that is an embedded file */
    ROUTE_ANTHROPIC = 64, /* errors as Anthropic's clients expect them */
    ROUTE_OLLAMA = 128,   /* and as Ollama's do */
    ROUTE_DIRECT = 256,   /* answered on the HTTP thread: its handler neither waits nor computes */
    ROUTE_HEALTH = 512    /* also on connections beyond max_connections */
};
struct route {
    const char *method;
    const char *path;
    int flags;
    void (*handle)(struct request *r);
    const char *name;               /* in metrics */
    const struct json_table *table; /* the body's fields; NULL: no body */
};
extern const struct route api_routes[];
extern const size_t api_n_routes;
/* Its row in tables by route; NULL: the last one, of requests without a route. */
size_t route_row(const struct route *route);
/* Finds r->route and checks all that the headers alone can tell. false: the reply is filled. */
bool route_check(struct request *r);

/* metrics */
void metrics_count(api *a, const struct route *route, unsigned status);
extern const unsigned api_codes[API_N_CODES]; /* the last is 0: any other */

/* ep_*.c: handlers */
void ep_chat(struct request *r);
void ep_completions(struct request *r);
void ep_embeddings(struct request *r);
void ep_messages(struct request *r);
void ep_messages_count(struct request *r);
void ep_ollama_chat(struct request *r);
void ep_ollama_generate(struct request *r);
void ep_ollama_tags(struct request *r);
void ep_ollama_show(struct request *r);
void ep_ollama_ps(struct request *r);
void ep_ollama_version(struct request *r);
void ep_fields(struct request *r);
void ep_tokenize(struct request *r);
void ep_detokenize(struct request *r);
void ep_render(struct request *r);
void ep_responses(struct request *r);
void ep_response_tokens(struct request *r);
void ep_response_get(struct request *r);
void ep_response_delete(struct request *r);
void ep_response_items(struct request *r);
void ep_response_cancel(struct request *r);
void ep_models(struct request *r);
void ep_model(struct request *r);
void ep_livez(struct request *r);
void ep_readyz(struct request *r);
void ep_health(struct request *r);
void ep_metrics(struct request *r);
void ep_web(struct request *r);
/* The embedded file that is served at path, or NULL. */
const struct web_file *web_find(const char *path);

#endif
