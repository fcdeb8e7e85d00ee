/* api_state.c - the model of a request. Owns nothing; any thread. */
#include "api/generate/api_state.h"

#include "api/http/reply.h"
#include "api/http/request.h"

#include <stdio.h>
#include <string.h>

const struct api_model *api_find_model(const struct api *a, const char *name) {
    for (size_t i = 0; i < a->n_models; i++)
        if (strcmp(a->models[i].id, name) == 0) return &a->models[i];
    for (size_t i = 0; i < a->n_models; i++)
        for (size_t k = 0; k < a->models[i].n_aliases; k++)
            if (strcmp(a->models[i].aliases[k], name) == 0) return &a->models[i];
    return NULL;
}

int api_request_model(struct request *r, const char *name, err *e) {
    r->model = api_find_model(r->api, name);
    if (r->model) return 0;
    return err_set_param(e, ERR_NOT_FOUND, "model", "The model '%.200s' does not exist.", name);
}

/* A place in the queue becomes free whenever an answer ends; the reset time is one second, as in
 * Retry-After. */
void api_add_rate_limit(struct request *r) {
    if (!r->model || (r->reply.status != 200 && r->reply.status != 429)) return;
    uint32_t bound, room = engine_queue_room(r->model->engine, &bound);
    char text[24];
    snprintf(text, sizeof text, "%u", bound);
    reply_header(r, "x-ratelimit-limit-requests", text);
    snprintf(text, sizeof text, "%u", room);
    reply_header(r, "x-ratelimit-remaining-requests", text);
    reply_header(r, "x-ratelimit-reset-requests", room < bound ? "1s" : "0s");
}
