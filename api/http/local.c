/* local.c - see local.h: what http.c does for a connection, without one. Owns its requests. */
#include "api/http/local.h"

#include "api/http/error.h"
#include "api/http/http_int.h"
#include "api/http/prepare.h"
#include "api/http/route.h"
#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

struct request *local_begin(struct http *h, const struct local_config *config) {
    struct local *l = mem_new(1, sizeof *l);
    struct request *r = l ? request_new(h, config->method, config->path) : NULL;
    if (!r) {
        free(l);
        return NULL;
    }
    l->is_owner = config->is_owner;
    l->wake = config->wake;
    l->arg = config->arg;
    l->key_id = config->key_id;
    r->local = l;
    r->conn = &l->conn;
    r->body = *config->body;
    str_init(config->body, 0);
    r->body_bytes = r->body.len;
    snprintf(r->id, sizeof r->id, "%s", config->id);
    watch_begin(h->watch, &r->watched);
    r->handled = true;
    if (route_check_local(r)) {
        r->item.client = r->key.number;
        prepare_put(r);
    }
    return r;
}

bool local_advance(struct request *r) {
    bool asked = false;
    for (;;) {
        watch_look(&r->watched);
        if (!watch_lent(&r->watched)) {
            if (r->reply.status || !r->ops || atomic_load(&r->watched.gone)) return true;
            if (asked && watch_releasing(&r->watched)) return true;
            enum job_status status = r->ops->poll(r, r->job);
            if (status == JOB_REPLY) return true;
            if (status == JOB_WORK) prepare_step(r);
            asked = status == JOB_WAIT;
        }
        if (watch_wait(&r->watched)) return false;
    }
}

const char *local_reply(const struct request *r, size_t *n) {
    const struct reply *p = &r->reply;
    *n = p->data ? p->n_data : p->body.len;
    return p->data ? p->data : str_cstr(&p->body);
}

bool local_end(struct request *r) {
    atomic_store(&r->watched.gone, true); /* a handler that runs stops */
    watch_look(&r->watched);
    if (watch_lent(&r->watched)) return !watch_wait(&r->watched) && local_end(r);
    r->queued = r->reply.status && !r->reply.stream;
    request_end(r, !r->queued);
    return true;
}
