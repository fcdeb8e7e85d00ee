/* api_state.c - the model of a request. Owns nothing; any thread. */
#include "api/generate/api_state.h"

#include "api/generate/model_admin.h"

#include "api/http/reply.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include <stdio.h>
#include <string.h>

const struct api_model *api_find_model(const struct api *a, const char *name) {
    static const char tag[] = ":latest";
    size_t n = strlen(name), n_tag = sizeof tag - 1;
    const struct api_model *m = models_find(a->models, name, n);
    if (!m && n > n_tag && strcmp(name + n - n_tag, tag) == 0)
        m = models_find(a->models, name, n - n_tag);
    const char *of = m ? NULL : model_aliases_find(&a->aliases, name);
    return of ? models_find(a->models, of, strlen(of)) : m;
}

void api_set_model(struct request *r, const struct api_model *m) {
    api_release_model(r);
    r->model = m;
    if (m) snprintf(r->model_id, sizeof r->model_id, "%s", m->id);
}

void api_release_model(struct request *r) {
    const struct api_model *m = r->model;
    r->model = NULL;
    models_release(r->api->models, m);
}

#define HOW_TO_LOAD "an administrator can load it with POST /v1/inferd/models/load"

int api_err_no_model(struct request *r, const char *name, err *e) {
    const struct model_admin *admin = r->api->config.admin;
    const char *of = model_aliases_find(&r->api->aliases, name);
    char id[API_MODEL_ID_BYTES];
    enum model_state state = MODEL_UNKNOWN;
    bool direct = r->route && (r->route->flags & ROUTE_DIRECT);
    if (admin && !direct) state = admin->find(admin->host, of ? of : name, id);
    if (admin && admin->load_on_demand && state != MODEL_UNKNOWN) {
        int rc = admin->load(admin->host, id, &r->waits_for, e);
        return rc ? rc : err_set_param(e, ERR_UNAVAILABLE, "model", "The model is being loaded.");
    }
    if (state == MODEL_LOADING || state == MODEL_UNLOADING)
        return err_set_param(e, ERR_UNAVAILABLE, "model", "The model '%.96s' is being %s%s.", id,
                             state == MODEL_LOADING ? "loaded" : "unloaded",
                             state == MODEL_LOADING ? ": try again later" : "; then " HOW_TO_LOAD);
    if (state != MODEL_UNKNOWN)
        return err_set_param(e, ERR_NOT_FOUND, "model",
                             "The model '%.96s' is not loaded: " HOW_TO_LOAD ".", id);
    return err_set_param(e, ERR_NOT_FOUND, "model", "The model '%.200s' does not exist.", name);
}

int api_request_model(struct request *r, const char *name, err *e) {
    api_set_model(r, api_find_model(r->api, name));
    return r->model ? 0 : api_err_no_model(r, name, e);
}

int api_body_model(struct request *r, const char *name, err *e) {
    if (name && *name) return api_request_model(r, name, e);
    size_t n;
    api_set_model(r, models_only(r->api->models, &n));
    if (r->model) return 0;
    if (!n)
        return err_set_param(e, ERR_UNAVAILABLE, "model",
                             "No model is loaded: an administrator can load one with POST "
                             "/v1/inferd/models/load.");
    return err_set_param(e, ERR_INVALID, "model",
                         "Missing required parameter: 'model' (%zu models are served).", n);
}

void api_explain_stop(const struct api *a, const struct api_model *m, err *e) {
    if (e && e->code == ERR_STOPPING && models_is_withdrawn(a->models, m))
        err_set_param(e, ERR_UNAVAILABLE, "model",
                      "The model '%.96s' was unloaded before the answer was complete.", m->id);
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
