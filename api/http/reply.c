/* reply.c - see reply.h. Owns nothing. */
#include "api/http/reply.h"

#include "api/http/http.h"
#include "api/http/json.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "core/base/clock.h"

#include <inttypes.h>
#include <stdio.h>

void reply_header(struct request *r, const char *name, const char *value) {
    struct reply *p = &r->reply;
    if (p->n_headers == REPLY_MAX_HEADERS) return;
    p->headers[p->n_headers].name = name;
    snprintf(p->headers[p->n_headers].value, sizeof p->headers[0].value, "%s", value);
    p->n_headers++;
}

void reply_work_headers(struct request *r) {
    char text[24];
    if (!r->route || !(r->route->flags & ROUTE_WORK)) return;
    snprintf(text, sizeof text, "%" PRIu64, (clock_now_ns() - r->start_ns) / 1000000);
    reply_header(r, "openai-processing-ms", text);
    reply_header(r, "openai-version", "2020-10-01");
    if (r->http->setup.add_work_headers) r->http->setup.add_work_headers(r);
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

void reply_deleted(struct request *r, const char *id, const char *object) {
    str body;
    str_init(&body, 1024);
    str_add(&body, "{\"id\":");
    json_add_cstr(&body, id);
    str_addf(&body, ",\"object\":\"%s\",\"deleted\":true}", object);
    reply_json(r, 200, &body);
}
