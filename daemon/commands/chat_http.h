/* chat_http.h - HTTP requests of commands to a daemon, over libcurl: http and https, answers
 * handed over as they arrive. Main thread. */
#ifndef INFERD_DAEMON_COMMANDS_CHAT_HTTP_H
#define INFERD_DAEMON_COMMANDS_CHAT_HTTP_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct chat_request {
    const char *url;       /* of the daemon; checked by chat_http_check_url */
    const char *path;      /* "/v1/models" */
    const char *body;      /* JSON to POST; NULL: GET */
    const char *upload;    /* a file to POST as the form of /v1/files, with the purpose batch; NULL:
                              none */
    const char *api_key;   /* NULL: none */
    bool (*stopped)(void); /* asked several times a second while the request runs */
    /* Receives the answer's body, n >= 1 bytes at a time. *done ends the transfer without an error;
     * so does an error, which chat_http_send returns. */
    int (*on_body)(void *arg, int status, const char *bytes, size_t n, bool *done, err *e);
    void *arg;
};

/* http://HOST[:PORT][/PREFIX], the same with https, or unix:/PATH of a socket. ERR_INVALID. */
int chat_http_check_url(const char *url, err *e);

/* Sends a request and reads its answer to the end. *status is the HTTP status. ERR_IO (no
 * connection, or it was lost), ERR_FORMAT (the answer is not HTTP), ERR_STOPPING (stopped). */
int chat_http_send(const struct chat_request *request, int *status, err *e);

#endif
