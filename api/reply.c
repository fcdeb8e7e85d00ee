/* reply.c - fills a request's reply; http.c sends it. Runs on HTTP threads. */
#include "api/api_int.h"

#include <stdio.h>

void reply_header(struct request *r, const char *name, const char *value) {
    struct reply *p = &r->reply;
    if (p->n_headers == REPLY_MAX_HEADERS) return;
    p->headers[p->n_headers].name = name;
    snprintf(p->headers[p->n_headers].value, sizeof p->headers[0].value, "%s", value);
    p->n_headers++;
}

void reply_text(struct request *r, unsigned status, const char *content_type, str *body) {
    static const char no_memory[] =
        "{\"error\":{\"message\":\"The answer does not fit into memory.\",\"type\":"
        "\"server_error\",\"param\":null,\"code\":\"internal_error\"}}";
    struct reply *p = &r->reply;
    str_fini(&p->body);
    if (body->failed) {
        str_fini(body);
        p->status = 500;
        p->content_type = "application/json";
        p->data = no_memory;
        p->n_data = sizeof no_memory - 1;
        return;
    }
    p->status = status;
    p->content_type = content_type;
    p->body = *body;
    str_init(body, body->max_bytes);
}

void reply_json(struct request *r, unsigned status, str *body) {
    reply_text(r, status, "application/json", body);
}
