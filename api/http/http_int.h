/* http_int.h - the part of the HTTP server that knows libmicrohttpd: http.c and http_head.c. */
#ifndef INFERD_API_HTTP_HTTP_INT_H
#define INFERD_API_HTTP_HTTP_INT_H

#include "api/http/http.h"
#include "api/http/request.h"

#include <microhttpd.h>
#include <stdio.h>

struct http_daemon {
    struct MHD_Daemon *mhd;
    int listen_fd; /* ours until the daemon runs; -1: none */
    uint16_t port;
    struct conns_counts logged;                   /* of the last log line; watcher thread */
    uint64_t logged_ns;                           /* when it was written */
    atomic_uint_least64_t out_of_files_logged_ns; /* when the lack of descriptors was logged */
};

/* NULL: out of memory for it; the connection is about to close. */
struct conn *head_conn(struct MHD_Connection *connection);
/* MHD_OPTION_URI_LOG_CALLBACK: the target as it was received. */
void *head_on_target(void *http, const char *target, struct MHD_Connection *connection);
/* false: the reply is an error, after which the connection closes. */
bool head_check(struct request *r, const char *method, const char *version);
/* After each line of the library's log. */
void head_on_log(struct http *h, const char *line);

/* listen.c: the socket of c->listen_fd or on c->host and port; *out is the caller's. ERR_IO. */
int listen_open(const struct http_config *c, int *out, err *e);
/* The port of a listening socket and its address family. */
uint16_t listen_port(int fd, int *family);

#endif
