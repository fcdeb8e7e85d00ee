/* http_client.h - a small HTTP/1.1 client for the daemon's own API: one request a connection,
 * streamed answers, plain TCP. Every read is bounded and can be stopped from outside. */
#ifndef INFERD_DAEMON_COMMANDS_HTTP_CLIENT_H
#define INFERD_DAEMON_COMMANDS_HTTP_CLIENT_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct http_url {
    char host[256], port[8], path[256]; /* path without '/' at the end: "" or "/prefix" */
};

/* http://HOST[:PORT][/PREFIX], IPv6 in brackets. ERR_INVALID, ERR_UNSUPPORTED for https. */
int http_url_parse(const char *url, struct http_url *out, err *e);

typedef struct http_client http_client;

struct http_request {
    const struct http_url *url;
    const char *method, *path; /* "POST", "/v1/models" */
    const char *body;          /* JSON or NULL */
    const char *api_key;       /* or NULL */
    bool (*stopped)(void);     /* asked a few times a second while waiting; may be NULL */
};

/* Connects, sends, reads the answer's head. ERR_IO, ERR_FORMAT (no HTTP), ERR_STOPPING (stopped).
 */
int http_client_open(const struct http_request *request, http_client **out, err *e);
int http_client_status(const http_client *c); /* 200 */
/* Next bytes of the body as they come, 1..n of them; *got 0 is its end. */
int http_client_read(http_client *c, char *bytes, size_t n, size_t *got, err *e);
void http_client_close(http_client *c); /* NULL is fine */

#endif
