/* http_int.h - the part of the HTTP server that knows libmicrohttpd: http.c, http_head.c and
 * send.c. */
#ifndef INFERD_API_HTTP_HTTP_INT_H
#define INFERD_API_HTTP_HTTP_INT_H

#include "api/http/http.h"
#include "api/http/request.h"

#include <microhttpd.h>
#include <stdio.h>

enum { HTTP_IO_BYTES = 32 << 10 }; /* of a connection, beside the headers */

struct http_daemon {
    struct listener {
        struct MHD_Daemon *mhd; /* with threads of its own; NULL: not started */
        int fd;                 /* -1: none */
        int family;
        struct http_address at;
        uint64_t own_dev, own_ino;   /* of a socket file that was made here; 0: there is none */
    } listeners[HTTP_MAX_LISTENERS]; /* (n) */
    size_t n;
    pthread_t acceptor; /* if accepts */
    int wake[2];        /* a pipe that ends it; -1: none */
    /* Connections given to the library's threads, and those that they began with: later. */
    atomic_uint_least64_t n_given, n_begun;
    bool accepts;
    bool local;                      /* all of them can be reached from this machine alone */
    struct conns_counts logged;      /* of the last log line; watcher thread */
    uint64_t logged_ns;              /* when it was written */
    uint64_t out_of_files_logged_ns; /* when the lack of descriptors was logged; acceptor */
};

/* A request that begins: not watched yet, and without an id. path: without the query. NULL: out of
 * memory. */
struct request *request_new(struct http *h, const char *method, const char *path);
/* Ends it: its job, its model, its accounts. cut: the client did not get the whole answer. */
void request_end(struct request *r, bool cut);

/* send.c. Queues the reply of r; from then on the answer's own bytes are counted. */
enum MHD_Result request_send(struct request *r);
/* Adds the time since begin_ns to what r took on HTTP threads. */
void request_count_time(struct request *r, uint64_t begin_ns);
void request_release_model(struct request *r);

/* NULL: out of memory for it; the connection is about to close. */
struct conn *head_conn(struct MHD_Connection *connection);
/* MHD_OPTION_URI_LOG_CALLBACK: the target as it was received. */
void *head_on_target(void *http, const char *target, struct MHD_Connection *connection);
/* false: the reply is an error, after which the connection closes. */
bool head_check(struct request *r, const char *method, const char *version);
/* accept.c: the accepting thread. accept_stop also without accept_start. */
int accept_start(struct http *h, err *e);
void accept_stop(struct http *h);
/* After each line of the library's log. */
void head_on_log(struct http *h, const char *line);

/* listen.c: the sockets of c, in the first listeners of d, which are empty; also after an error. */
int listen_open(const struct http_config *c, struct http_daemon *d, err *e);
void listen_close(struct listener *l); /* removes a socket file that listen_open made */
bool listen_is_local(const struct listener *l);

#endif
