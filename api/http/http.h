/* http.h - the HTTP server: connections, requests, replies. It knows no endpoint: its owner gives
 * it the table of routes.
 *
 * THREAD SAFETY: http_* from the daemon's main thread, except http_n_active: any thread, and
 * http_apply: any thread, one at a time. */
#ifndef INFERD_API_HTTP_HTTP_H
#define INFERD_API_HTTP_HTTP_H

#include "api/http/access.h"
#include "api/http/answers.h"
#include "api/http/auth_failures.h"
#include "api/http/conns.h"
#include "api/http/costs.h"
#include "api/http/http_config.h"
#include "api/http/ignored.h"
#include "api/http/key.h"
#include "api/http/quota.h"
#include "api/http/recent.h"
#include "api/http/settings.h"
#include "api/http/trace.h"
#include "api/http/watch.h"
#include "api/http/work_pool.h"
#include "core/base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct api;
struct request;
struct request_usage;
struct route;
struct http_daemon;

enum { HTTP_MAX_LISTENERS = 8, HTTP_PATH_BYTES = 108 };

/* Where the server listens. */
struct http_address {
    char host[80]; /* as configured, or numeric; "": it is a socket file */
    uint16_t port;
    bool tls;
    char path[HTTP_PATH_BYTES];
};

enum { HTTP_MAX_ROUTES = COST_ROUTES - 1, HTTP_N_CODES = 20 };

/* What the server's owner gives. Everything is borrowed until http_fini, the configuration copied.
 */
struct http_setup {
    const struct http_config *config;
    const struct route *const *routes; /* (n_routes) the first that matches is taken */
    size_t n_routes;
    struct api *api; /* the owner, for request.api */
    /* Headers of the owner for answers of routes that start work, once the status is known. */
    void (*add_work_headers)(struct request *r);
    /* Drops r->model's reference, at the end of r or before its handler starts over. NULL: none. */
    void (*release)(struct request *r);
    void (*tick)(struct api *api); /* NULL: none; once a second, on the watcher thread */
    /* What r used, as it is used: any thread. NULL: there are no accounts. */
    void (*account)(struct request *r, const struct request_usage *more);
    /* r has ended, with that status. NULL: none. */
    void (*ended)(struct request *r, unsigned status);
    const struct http_keys *keys; /* beside those of config; NULL: none */
    const char *version;          /* of this program, for traces */
};

/* State of the server, embedded in its owner. Zeroed before http_open. */
struct http {
    struct http_config config; /* of the start: what http_apply does not change. No strings */
    struct http_setup setup;
    struct http_daemon *daemon; /* http_int.h */
    pthread_mutex_t settings_mu;
    struct settings *settings;  /* for new requests; guarded by settings_mu */
    struct key_slots key_slots; /* n_first is constant; the rest is http_apply's */
    struct conns conns;
    watch *watch;
    work_pool *pool;
    struct costs costs;
    struct access access;
    struct answers answers;
    struct ignored_counts ignored;
    struct recent recent;
    struct auth_failures auth_failures;
    struct quotas quotas;
    tracer *tracer;
    atomic_bool ready;                  /* routes with ROUTE_MODEL are answered */
    atomic_bool retiring;               /* each answer ends its connection */
    atomic_bool draining;               /* routes with ROUTE_WORK are not */
    atomic_bool leaving;                /* no connection is accepted, each answer ends its own */
    atomic_bool closing;                /* unanswered requests get a 503 */
    atomic_uint n_active;               /* requests from the pool to the end of their answer */
    atomic_uint_least64_t n_body_bytes; /* of bodies being received, except 64K of each */
    atomic_uint_least64_t n_requests[COST_ROUTES][HTTP_N_CODES]; /* by route, status */
};

/* Binds and starts the threads, n_threads for each address. On failure the caller closes and ends h
 * as well. ERR_IO: the port is taken (the message names it). */
int http_open(struct http *h, const struct http_setup *setup, err *e);
/* New requests have these settings; those that run keep theirs. Addresses, threads,
 * max_connections, max_header_bytes and prepare_queue stay as they are. ERR_INVALID: param is a
 * field, and nothing changes. */
int http_apply(struct http *h, const struct http_config *config, err *e);
uint16_t http_port(const struct http *h); /* the first one; 0: there is none */
/* The i-th address. false: there are fewer. */
bool http_get_address(const struct http *h, size_t i, struct http_address *out);
/* Can all addresses be reached from this machine alone? Any thread. */
bool http_is_local(const struct http *h);
/* With listen_fds: connections are accepted from here on; before, they wait in the sockets' queues.
 * Without, at once. */
int http_accept(struct http *h, err *e);
/* No connection is accepted any more: they wait for the next process that has the sockets. Requests
 * on open connections are still answered, which then close. */
void http_leave(struct http *h);
/* After http_leave: no request runs, arrives, or has run in the last for_ns. Any thread. */
bool http_is_quiet(struct http *h, uint64_t for_ns);
uint32_t http_n_active(const struct http *h);
/* Are requests better sent elsewhere: is h retiring, draining or leaving? Any thread. */
bool http_is_stopping(const struct http *h);
/* Ends all requests and threads. Answers may still be held. */
void http_close(struct http *h);
/* Frees the rest: no answer is held any more. A zeroed h is fine. */
void http_fini(struct http *h);

#endif
