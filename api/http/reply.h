/* reply.h - the reply of a request. Handlers and jobs fill it; http.c sends it. Used by the thread
 * that has the request. */
#ifndef INFERD_API_HTTP_REPLY_H
#define INFERD_API_HTTP_REPLY_H

#include "core/base/str.h"

#include <stdbool.h>
#include <stddef.h>

struct request;

enum { REPLY_MAX_HEADERS = 32, REPLY_MAX_BYTES = 64 << 20 };

struct reply {
    unsigned status;          /* 0: not filled yet */
    const char *content_type; /* static string */
    str body;                 /* unless data or stream is set */
    const void *data;         /* static bytes, n_data of them */
    size_t n_data;
    int fd;      /* the body is a file: its bytes, n_data of them, are sent; 0: there is none */
    bool stream; /* the job's `read` gives the body */
    struct {
        const char *name; /* static string */
        char value[256];
    } headers[REPLY_MAX_HEADERS];
    size_t n_headers;
};

void reply_header(struct request *r, const char *name, const char *value);
/* Headers of routes that start work, once the status is known: the time spent so far, and what the
 * server's owner adds (struct http_setup). */
void reply_work_headers(struct request *r);
/* Both take body's bytes. A body that failed (out of memory) becomes a 500. */
void reply_json(struct request *r, unsigned status, str *body);
void reply_text(struct request *r, unsigned status, const char *content_type, str *body);
/* 200 with {"id", "object", "deleted": true}; object is plain ASCII. */
void reply_deleted(struct request *r, const char *id, const char *object);

#endif
