/* api.h - HTTP, JSON and SSE in front of engines.
 *
 * libmicrohttpd runs a few threads; a connection that waits for tokens is suspended and costs no
 * thread. One watcher thread resumes connections when their streams have events, sends keep-alives
 * and notices clients that hang up while suspended. The engine's worker never touches a socket.
 *
 * THREAD SAFETY: api_* from the daemon's main thread. */
#ifndef INFERD_API_H
#define INFERD_API_H

#include "core/base/err.h"
#include "core/chat/chat.h"
#include "core/engine/engine.h"
#include "registry/responses.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct api api;

enum {
    API_MAX_MODELS = 8,
    API_MORE_FILES =
        160 /* descriptors beside max_connections: those that close, a reserve, its own */
};

/* A model that is served. Borrowed: everything outlives api_close. */
struct api_model {
    const char *id;             /* name in the registry */
    const char *const *aliases; /* (n_aliases) other ids it answers to */
    size_t n_aliases;
    engine *engine;
    const chat_template *chat; /* NULL: chat requests are refused with the reason */
    int64_t created_s;
};

struct api_config {
    const char *host;         /* address to bind, "127.0.0.1" */
    uint16_t port;            /* 0: any free one, see api_port */
    int listen_fd;            /* a socket that listens on them already, borrowed during api_open;
                                 0: none, it is opened here */
    uint32_t n_threads;       /* HTTP threads */
    uint32_t prepare_threads; /* that parse, render, tokenize and compile common requests, */
    uint32_t prepare_slow_threads; /* and expensive ones */
    uint32_t prepare_queue;        /* requests in preparation; 503 beyond */
    uint32_t prepare_budget_s;     /* of one core, about, that preparing one may take; 400 beyond */
    uint32_t max_connections;      /* at it, the longest idle one gives way; a few more may ask for
                                      health */
    uint32_t max_per_address;      /* open connections of one client address (IPv6: /64); 0: any */
    uint64_t max_body_bytes;   /* 413 beyond; 503 beyond 16 times that in all requests arriving */
    uint32_t max_header_bytes; /* 431 beyond */
    uint32_t idle_timeout_s;   /* of a connection without a running request, and of a client that
                                  does not read its answer; twice this is the time for a request
                                  to arrive, its body at 10 KB/s or faster */
    uint32_t keepalive_ms;     /* SSE comment while nothing flows */
    uint64_t max_answer_bytes; /* of all answers that are made, wait for their readers or are kept,
                                  64K of each free; 503 beyond */
    uint32_t resume_timeout_s; /* a stream whose connection ended can be resumed; 0: never */
    uint32_t resume_streams;   /* kept for that at once */
    uint32_t resume_buffer_bytes; /* of each one's last frames */
    const char *allowed_hosts;    /* names, commas between, that requests may give as Host; ".x":
                                     those below x; "*": any. NULL or "": on a loopback address
                                     without keys those of this machine alone, elsewhere any */
    const char *const *api_keys;  /* (n_api_keys) accepted bearer keys; none: no check */
    size_t n_api_keys;
    bool share_prefixes;        /* cached prompts are shared among keys, too */
    int max_priority;           /* a request's priority may be that at most */
    uint32_t request_timeout_s; /* from a request's headers to its end; 0: no bound */
    bool ignore_unknown; /* unknown fields of a request are dropped and named in a header of the
                            answer instead of refused */
    responses *store;    /* of /v1/responses; borrowed until api_close; NULL: nothing is stored */
    const char *version; /* "0.1.0" */
};

/* A request whose Origin header is not its own Host, or whose Host is not allowed, is refused
 * (403), so that pages of other sites cannot use a visitor's daemon. A client that closes its
 * sending side counts as gone.
 *
 * Binds and answers at once: /livez is 200, everything that needs a model 503 until
 * api_set_models. ERR_IO when the port is taken (says which). */
int api_open(const struct api_config *config, api **out, err *e);
uint16_t api_port(const api *a);

/* The models are loaded: /readyz turns 200. Called once. models (n) is copied, what it points to is
 * borrowed. */
int api_set_models(api *a, const struct api_model *models, size_t n, err *e);

/* New requests get 503 + Retry-After, running streams go on; /readyz is 503. */
void api_drain(api *a);
uint32_t api_n_active(const api *a); /* requests that still run */

/* Ends what is left and closes. Engines must be stopped before, so that every stream has its final
 * event. NULL is fine. */
void api_close(api *a);

#endif
