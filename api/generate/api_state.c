/* api_state.c - the model of a request. Owns nothing; any thread. */
#include "api/generate/api_state.h"

#include "api/http/reply.h"
#include "api/http/request.h"

#include <stdio.h>
#include <string.h>

/* name: (n) */
static const struct api_model *find_exact(const struct api *a, const char *name, size_t n) {
    for (size_t i = 0; i < a->n_models; i++) {
        const char *id = a->models[i].id;
        if (strlen(id) == n && memcmp(id, name, n) == 0) return &a->models[i];
    }
    for (size_t i = 0; i < a->n_models; i++)
        for (size_t k = 0; k < a->models[i].n_aliases; k++) {
            const char *alias = a->models[i].aliases[k];
            if (strlen(alias) == n && memcmp(alias, name, n) == 0) return &a->models[i];
        }
    return NULL;
}

const struct api_model *api_find_model(const struct api *a, const char *name) {
    static const char tag[] = ":latest";
    size_t n = strlen(name), n_tag = sizeof tag - 1;
    const struct api_model *m = find_exact(a, name, n);
    if (!m && n > n_tag && strcmp(name + n - n_tag, tag) == 0) m = find_exact(a, name, n - n_tag);
    const char *of = m ? NULL : model_aliases_find(&a->aliases, name);
    return of ? find_exact(a, of, strlen(of)) : m;
}

int api_request_model(struct request *r, const char *name, err *e) {
    r->model = api_find_model(r->api, name);
    if (r->model) return 0;
    return err_set_param(e, ERR_NOT_FOUND, "model", "The model '%.200s' does not exist.", name);
}

int api_body_model(struct request *r, const char *name, err *e) {
    if (name && *name) return api_request_model(r, name, e);
    if (r->api->n_models == 1) return api_request_model(r, r->api->models[0].id, e);
    return err_set_param(e, ERR_INVALID, "model",
                         "Missing required parameter: 'model' (%zu models are served).",
                         r->api->n_models);
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
