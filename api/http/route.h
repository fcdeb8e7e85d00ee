/* route.h - routes: which handler answers a path, and what is checked before the body is read. The
 * table belongs to the server's owner (struct http_setup). */
#ifndef INFERD_API_HTTP_ROUTE_H
#define INFERD_API_HTTP_ROUTE_H

#include "core/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api_error;
struct json_table;
struct request;

enum route_flags {
    ROUTE_PREFIX = 1,  /* path starts with route.path; otherwise {...} stands for any one segment */
    ROUTE_KEY = 2,     /* needs an API key if keys are configured */
    ROUTE_MODEL = 4,   /* 503 while the model is loading */
    ROUTE_WORK = 8,    /* starts new work: 503 while draining */
    ROUTE_JSON = 16,   /* needs an application/json body */
    ROUTE_DIRECT = 32, /* answered on the HTTP thread: the handler neither waits nor computes */
    ROUTE_HEALTH = 64, /* also answered on connections beyond max_connections */
    ROUTE_ADMIN = 256, /* with ROUTE_KEY: only for administrators, see auth_check_admin */
    ROUTE_SHARED = 128, /* of several protocols: the request's headers say which */
    ROUTE_V1 = 512,     /* the same with and without "/v1" before the path, as in other servers */
    /* With ROUTE_KEY: for keys with one of these scopes (key.h); without any, for every key. */
    ROUTE_INFER = 1024,
    ROUTE_EMBED = 2048,
    ROUTE_METRICS = 4096
};
enum {
    ROUTE_BODY = ROUTE_KEY | ROUTE_MODEL | ROUTE_JSON,
    ROUTE_TEXT = ROUTE_BODY | ROUTE_INFER | ROUTE_EMBED,
    ROUTE_GENERATE = ROUTE_BODY | ROUTE_WORK | ROUTE_INFER,
    ROUTE_POOL = ROUTE_BODY | ROUTE_WORK | ROUTE_EMBED /* embeddings and scores */
};

/* Names of the headers that say a limit, what is left of it, and when all of it is back (RFC 3339).
 */
struct limit_headers {
    bool tokens; /* of tokens, otherwise of requests */
    const char *limit, *remaining, *reset;
};

/* What all answers of a protocol have in common. NULL members: as in OpenAI's API. */
struct protocol {
    void (*write_error)(str *out, const struct api_error *error);
    const char *id_header; /* name of a second header that carries x-request-id */
    const char
        *area; /* requests without a route at this path or below it are its own; NULL: none */
    const char *header;      /* that only its clients send: decides on shared routes; NULL: none */
    const char *error_event; /* name of the event that carries an error in a stream; NULL: none */
    /* Headers of what a key may use, beside OpenAI's; the last row's limit is NULL. NULL: none. */
    const struct limit_headers *limits;
    bool lines; /* its streams are lines, not events, so they have no comments */
};

/* Takes the body of a route piece by piece, so that it is not collected in memory. On the HTTP
 * thread; the route's handler runs when all of it has arrived. */
struct body_taker {
    uint64_t (*max_bytes)(const struct request *r); /* instead of max_body_bytes */
    /* The headers are complete: sets r->taken. false: the reply is filled. */
    bool (*begin)(struct request *r);
    bool (*take)(struct request *r, const char *bytes, size_t n); /* false: the reply is filled */
    void (*free)(void *taken);
};

struct route {
    const char *method;
    const char *path;
    int flags;
    void (*handle)(struct request *r);
    const char *name;                  /* in metrics; NULL: path */
    const struct json_table *table;    /* the body's fields; NULL: no body */
    const struct protocol *protocol;   /* NULL: OpenAI's */
    const char *answers;               /* the answer's member "object"; NULL: it has none */
    const char *query;                 /* parameters, "limit|after"; NULL: none */
    bool (*matches)(const char *path); /* instead of path, which is for documents; NULL: path */
    const struct body_taker *taker;    /* NULL: the body is collected */
};
/* path without "/v1" before it. */
const char *route_bare_path(const char *path);
/* Its name in metrics. */
static inline const char *route_name(const struct route *route) {
    return route->name ? route->name : route->path;
}

/* Sets r->route and r->row, and makes all checks that need only the headers. false: the reply is
 * filled. */
bool route_check(struct request *r);
/* The same for a request of the process itself (local.h), which has no headers. */
bool route_check_local(struct request *r);

#endif
