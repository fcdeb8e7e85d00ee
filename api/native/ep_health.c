/* ep_health.c - for supervisors and load balancers: /livez (the process answers), /readyz (requests
 * may be sent), /health (the same as JSON). Runs on HTTP threads. */
#include "api/generate/api_state.h"
#include "api/generate/model_admin.h"
#include "api/http/json.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/native/health.h"

enum state { READY, LOADING, DRAINING, BROKEN, EMPTY };

static enum state state_of(struct api *a) {
    if (atomic_load(&a->hung)) return BROKEN;
    if (http_is_stopping(&a->http)) return DRAINING;
    if (!atomic_load(&a->http.ready)) return LOADING;
    struct models_list list;
    models_list(a->models, false, &list, NULL);
    bool loads = a->config.admin && a->config.admin->load_on_demand;
    enum state state = list.n || loads ? READY : EMPTY;
    for (size_t i = 0; i < list.n; i++) {
        struct engine_stats stats;
        engine_stats_get(list.models[i]->engine, &stats);
        if (!stats.healthy) state = BROKEN;
    }
    models_list_release(a->models, &list);
    return state;
}

bool health_is_ready(struct api *a) {
    return state_of(a) == READY;
}

static const char *const names[] = {"ok", "loading", "draining", "unhealthy", "no model is loaded"};

static void reply_line(struct request *r, unsigned status, const char *text) {
    str body;
    str_init(&body, 256);
    str_addf(&body, "%s\n", text);
    if (status == 503) reply_header(r, "Retry-After", "5");
    reply_header(r, "Cache-Control", "no-store");
    reply_text(r, status, "text/plain; charset=utf-8", &body);
}

static void handle_livez(struct request *r) {
    bool hung = atomic_load(&r->api->hung);
    reply_line(r, hung ? 503 : 200, hung ? "a device hangs" : "ok");
}

static void handle_readyz(struct request *r) {
    enum state state = state_of(r->api);
    reply_line(r, state == READY ? 200 : 503, names[state]);
}

static void handle_health(struct request *r) {
    struct api *a = r->api;
    enum state state = state_of(a);
    str body;
    str_init(&body, 65536);
    str_add(&body, "{\"status\":");
    json_add_cstr(&body, names[state]);
    str_add(&body, ",\"version\":");
    json_add_cstr(&body, a->config.version);
    str_add(&body, ",\"models\":[");
    struct models_list list;
    models_list(a->models, false, &list, NULL);
    for (size_t i = 0; atomic_load(&a->http.ready) && i < list.n; i++) {
        struct engine_stats stats;
        engine_stats_get(list.models[i]->engine, &stats);
        str_add(&body, i ? ",{\"id\":" : "{\"id\":");
        json_add_cstr(&body, list.models[i]->id);
        str_addf(&body, ",\"running\":%u,\"waiting\":%u}", stats.running, stats.waiting);
    }
    models_list_release(a->models, &list);
    str_add(&body, "]}");
    if (state != READY) reply_header(r, "Retry-After", "5");
    reply_header(r, "Cache-Control", "no-store");
    reply_json(r, state == READY ? 200 : 503, &body);
}

enum { HEALTH = ROUTE_DIRECT | ROUTE_HEALTH };
const struct route livez_route = {"GET", "/livez", HEALTH, .handle = handle_livez};
const struct route readyz_route = {"GET", "/readyz", HEALTH, .handle = handle_readyz};
const struct route health_route = {"GET", "/health", HEALTH | ROUTE_V1, .handle = handle_health};
