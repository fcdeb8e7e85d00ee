/* local.h - requests that the process makes itself, without a connection. They take the way of a
 * client's request from its route on: key, scopes and quota of the key on whose behalf they are
 * made, the work pool, the handler, the job, accounts, metrics and the log. Their answer stays in
 * memory.
 *
 * THREAD SAFETY: local_begin, local_advance and local_end by one thread, which may have many
 * requests; wake is called by any thread, with locks held. */
#ifndef INFERD_API_HTTP_LOCAL_H
#define INFERD_API_HTTP_LOCAL_H

#include "api/http/conns.h"
#include "core/base/err.h"
#include "core/base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct http;
struct request;

struct local_config {
    const char *method, *path;
    str *body;      /* its bytes are taken */
    const char *id; /* of the request, for the log */
    /* Whose request it is: http_key.id (0: made without a key), and for a key of the configuration
     * whether it is this one, because their numbers change with the file. */
    int64_t key_id;
    bool (*is_owner)(void *arg, const char *key_text);
    void (*wake)(void *arg); /* local_advance has something to do. Must not call back */
    void *arg;               /* outlives the request */
};

struct local {
    bool (*is_owner)(void *arg, const char *key);
    void (*wake)(void *arg);
    void *arg;
    int64_t key_id;
    const char *key_text; /* of a key of the configuration; borrowed from the settings */
    struct conn conn;     /* of no connection: zeroed */
};

/* Starts the request. NULL: no memory. */
struct request *local_begin(struct http *h, const struct local_config *config);
/* false: it waits, until wake. true: r->reply is the answer; if status is 0 there is none, because
 * the server stops. */
bool local_advance(struct request *r);
/* Ends it, answered or not. false: a pool thread has it, and stops soon: again after wake. */
bool local_end(struct request *r);
/* The body of r's answer. */
const char *local_reply(const struct request *r, size_t *n);

#endif
