/* http_int.h - what http.c and http_head.c share of the HTTP server: the two files that know
 * libmicrohttpd. */
#ifndef INFERD_API_HTTP_HTTP_INT_H
#define INFERD_API_HTTP_HTTP_INT_H

#include "api/api_int.h"
#include "api/http/conns.h"

#include <microhttpd.h>
#include <stdio.h>

struct http {
    api *api;
    struct MHD_Daemon *daemon;
    int listen_fd; /* ours until the daemon runs or after quiesce; -1 */
    uint16_t port;
    struct conns conns;
    struct conns_counts said;              /* of the last log line; watcher thread */
    uint64_t said_ns;                      /* when that was */
    atomic_uint_least64_t out_of_files_ns; /* when that was said */
};

/* NULL: its conn could not be made, it is about to close. */
struct conn *conn_of(struct MHD_Connection *connection);

/* http_head.c */
/* MHD_OPTION_URI_LOG_CALLBACK: the target as it was received. */
void *head_on_target(void *cls, const char *target, struct MHD_Connection *connection);
/* false: the reply is an error, after which the connection closes. */
bool head_check(struct request *r, const char *method, const char *version);
/* After each line of the library's log. */
void head_on_log(struct http *h, const char *line);

#endif
