/* api_state.c - the model of a request. Owns nothing; any thread. */
#include "api/generate/api_state.h"

#include "api/generate/model_admin.h"

#include "api/http/auth.h"
#include "api/http/reply.h"
#include "api/http/request.h"
#include "core/base/clock.h"
#include "core/base/model_name.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

/* By id or alias. */
static const struct api_model *find_loaded(const struct api *a, const char *name) {
    size_t n = strlen(name), bare = model_name_bare(name);
    const struct api_model *m = models_find(a->models, name, n);
    return m || bare == n ? m : models_find(a->models, name, bare);
}

const struct api_model *api_find_model(const struct api *a, const char *name) {
    const struct api_model *m = find_loaded(a, name);
    char of[MODEL_ALIAS_BYTES];
    if (m || !alias_book_find(a->aliases, name, of)) return m;
    return models_find(a->models, of, strlen(of));
}

void api_set_model(struct request *r, const struct api_model *m) {
    api_release_model(r);
    r->model = m;
    if (m) snprintf(r->model_id, sizeof r->model_id, "%s", m->id);
}

void api_list_models(struct request *r, struct models_list *out) {
    models_list(r->api->models, false, out, NULL);
    size_t n = 0;
    for (size_t i = 0; i < out->n; i++)
        if (auth_may_use(r, out->models[i]->id))
            out->models[n++] = out->models[i];
        else
            models_list_release(r->api->models,
                                &(struct models_list){.models = {out->models[i]}, .n = 1});
    out->n = n;
}

void api_release_model(struct request *r) {
    const struct api_model *m = r->model;
    cJSON_Delete(r->preset);
    r->preset = NULL;
    r->model = NULL;
    models_release(r->api->models, m);
}

/* A model that r's key may not use does not exist for it. */
static int check_access(struct request *r, err *e) {
    if (!r->model || auth_may_use(r, r->model->id)) return 0;
    err_set_param(e, ERR_NOT_FOUND, "model",
                  "The model '%.96s' does not exist or you do not have access to it.",
                  r->model->id);
    api_set_model(r, NULL);
    return ERR_NOT_FOUND;
}

/* A model's own name has no preset: the registry is not asked. */
static int find_name(struct request *r, const char *name, const struct api_model *m,
                     char id[API_MODEL_ID_BYTES], err *e) {
    const struct api_names *names = r->api->names;
    api_set_model(r, m);
    *id = '\0';
    if (m && strcmp(m->id, name) == 0) return 0;
    if (names) return names->find(r, name, id, e);
    return m ? 0 : err_set_param(e, ERR_NOT_FOUND, "model", "no model is named %.96s", name);
}

int api_find_name(struct request *r, const char *name, char id[API_MODEL_ID_BYTES], err *e) {
    const struct api *a = r->api;
    int rc = find_name(r, name, find_loaded(a, name), id, e);
    char of[MODEL_ALIAS_BYTES];
    if (rc == ERR_NOT_FOUND && alias_book_find(a->aliases, name, of))
        rc = find_name(r, of, find_loaded(a, of), id, e);
    return rc ? rc : check_access(r, e);
}

#define HOW_TO_LOAD "an administrator can load it with POST /v1/inferd/models/load"

int api_err_no_model(struct request *r, const char *name, err *e) {
    const struct model_admin *admin = r->api->config.admin;
    char of[MODEL_ALIAS_BYTES];
    const char *wanted = alias_book_find(r->api->aliases, name, of) ? of : name;
    char id[API_MODEL_ID_BYTES];
    enum model_state state = admin ? admin->find(admin->host, wanted, id) : MODEL_UNKNOWN;
    /* Other names are the registry's, which does not know this one any more. */
    if (state != MODEL_UNKNOWN && (strcmp(id, wanted) != 0 || !auth_may_use(r, id)))
        state = MODEL_UNKNOWN;
    if (admin && admin->load_on_demand && state != MODEL_UNKNOWN) {
        int rc = admin->want(admin->host, id, &r->waits_for, e);
        return rc ? rc : err_set_param(e, ERR_UNAVAILABLE, "model", "The model is being loaded.");
    }
    if (state == MODEL_LOADING || state == MODEL_UNLOADING)
        return err_set_param(e, ERR_UNAVAILABLE, "model", "The model '%.96s' is being %s%s.", id,
                             state == MODEL_LOADING ? "loaded" : "unloaded",
                             state == MODEL_LOADING ? ": try again later" : "; then " HOW_TO_LOAD);
    if (state != MODEL_UNKNOWN)
        return err_set_param(e, ERR_NOT_FOUND, "model",
                             "The model '%.96s' is not loaded: " HOW_TO_LOAD ".", id);
    return err_set_param(e, ERR_NOT_FOUND, "model", "The model '%.200s' does not exist%s.", name,
                         *r->key.models ? " or you do not have access to it" : "");
}

int api_request_model(struct request *r, const char *name, err *e) {
    char id[API_MODEL_ID_BYTES];
    int rc = api_find_name(r, name, id, e);
    return rc == ERR_NOT_FOUND ? api_err_no_model(r, *id ? id : name, e) : rc;
}

int api_body_model(struct request *r, const char *name, err *e) {
    if (name && *name) return api_request_model(r, name, e);
    size_t n;
    api_set_model(r, models_only(r->api->models, &n));
    if (r->model) return check_access(r, e);
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
static void keep_first(uint64_t *kept, uint64_t ns) {
    if (ns && (!*kept || ns < *kept)) *kept = ns;
}

void api_note_times(struct request *r, const engine_stream *s) {
    if (!s) return;
    struct engine_times t;
    engine_stream_times(s, &t);
    keep_first(&r->times.submit_ns, t.submitted_ns);
    keep_first(&r->times.admit_ns, t.admitted_ns);
    keep_first(&r->times.first_token_ns, t.first_token_ns);
}

void api_add_rate_limit(struct request *r) {
    if (r->reply.status < 500 && quota_add_headers(r, clock_now_ns())) return;
    if (!r->model || (r->reply.status != 200 && r->reply.status != 429)) return;
    uint32_t bound, room = engine_queue_room(r->model->engine, &bound);
    char text[24];
    snprintf(text, sizeof text, "%u", bound);
    reply_header(r, "x-ratelimit-limit-requests", text);
    snprintf(text, sizeof text, "%u", room);
    reply_header(r, "x-ratelimit-remaining-requests", text);
    reply_header(r, "x-ratelimit-reset-requests", room < bound ? "1s" : "0s");
}
