/* ep_history.c - GET /v1/inferd/history: the last hour in samples, and the last requests of the
 * caller's API key. Runs on pool threads. */
#include "api/generate/api_state.h"
#include "api/http/json.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "core/base/mem.h"

#include <inttypes.h>
#include <stdlib.h>

static void add_sample(str *s, const struct history_sample *p) {
    str_addf(s,
             "{\"time\":%" PRId64 ",\"generated_tokens\":%" PRIu64 ",\"prompt_tokens\":%" PRIu64
             ",\"cached_tokens\":%" PRIu64 ",\"preemptions\":%" PRIu64 ",\"kv_blocks\":%" PRIu64
             ",\"kv_blocks_used\":%" PRIu64 ",\"memory_bytes\":%" PRIu64
             ",\"device_bytes\":%" PRIu64 ",\"running\":%" PRIu32 ",\"waiting\":%" PRIu32
             ",\"first_tokens\":%" PRIu64 ",\"first_token_seconds\":%.9g}",
             p->time_s, p->generated_tokens, p->prompt_tokens, p->cached_tokens, p->preemptions,
             p->kv_blocks, p->kv_blocks_used, p->memory_bytes, p->device_bytes, p->running,
             p->waiting, p->first_tokens, p->first_token_s);
}

static void add_request(str *s, const struct recent_request *p) {
    str_addf(s, "{\"time\":%" PRId64 ",\"id\":", p->end_s);
    json_add_cstr(s, p->id);
    str_add(s, ",\"route\":");
    json_add_cstr(s, p->route->path);
    str_add(s, ",\"model\":");
    if (*p->model)
        json_add_cstr(s, p->model);
    else
        str_add(s, "null");
    str_addf(s,
             ",\"status\":%u,\"cut\":%s,\"ms\":%.1f,\"prompt_tokens\":%" PRIu64
             ",\"completion_tokens\":%" PRIu64 "}",
             p->status, p->cut ? "true" : "false", p->ms, p->prompt_tokens, p->completion_tokens);
}

struct copies {
    struct history_sample samples[HISTORY_SAMPLES];
    struct recent_request requests[RECENT_REQUESTS];
};

static void handle_history(struct request *r) {
    struct api *a = r->api;
    struct copies *c = mem_new(1, sizeof *c);
    str body;
    str_init(&body, 4 << 20);
    body.failed = !c;
    str_addf(&body, "{\"object\":\"history\",\"interval_s\":%d,\"samples\":[", HISTORY_EVERY_S);
    size_t n = c ? metrics_history_get(&a->history, c->samples) : 0;
    for (size_t i = 0; i < n; i++) {
        if (i) str_add_char(&body, ',');
        add_sample(&body, &c->samples[i]);
    }
    str_add(&body, "],\"requests\":[");
    n = c ? recent_get(&a->http.recent, r->key.number, c->requests) : 0;
    for (size_t i = 0; i < n; i++) {
        if (i) str_add_char(&body, ',');
        add_request(&body, &c->requests[i]);
    }
    str_add(&body, "]}");
    free(c);
    reply_header(r, "Cache-Control", "no-store");
    reply_json(r, 200, &body);
}

const struct route history_route = {"GET", "/v1/inferd/history", ROUTE_KEY | ROUTE_METRICS,
                                    .handle = handle_history};
