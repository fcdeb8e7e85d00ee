/* ep_models.c - GET /v1/models and /v1/models/{model}, with the members that clients of OpenAI and
 * of Anthropic read. Runs on HTTP threads. */
#include "api/generate/api_state.h"
#include "api/http/error.h"
#include "api/http/json.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "core/chat/syntax.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

/* What requests may ask of this model. */
static void add_capabilities(str *s, const struct api_model *m) {
    const tokenizer *tok = engine_tokenizer(m->engine);
    const struct {
        const char *name;
        bool has;
    } rows[] = {
        {"completion", true},
        {"embeddings", true},
        {"chat", m->chat != NULL},
        {"tools", m->chat != NULL}, /* with a generic call format if the template has none */
        {"json_schema", m->chat != NULL},
        {"reasoning", m->chat && *chat_template_syntax(m->chat)->reasoning_open},
        {"fim", tokenizer_fim(tok, &(struct tokenizer_fim){0})},
    };
    str_add(s, ",\"capabilities\":{");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        str_addf(s, "%s\"%s\":%s", i ? "," : "", rows[i].name, rows[i].has ? "true" : "false");
    str_add_char(s, '}');
}

#define ADD_VALUE(ARG, NAME, KIND, LEAST, MOST, INITIAL, HELP)                                     \
    if (r->has.NAME) {                                                                             \
        str_addf(s, "%s\"" #NAME "\":%.7g", comma, (double)r->values.NAME);                        \
        comma = ",";                                                                               \
    }

/* What the model recommends, and requests get where they are silent. */
static void add_sampling(str *s, const struct sampling_recommended *r) {
    const char *comma = "";
    str_add(s, ",\"sampling\":{");
    SAMPLING_ROWS(ADD_VALUE, )
    str_add_char(s, '}');
}

static void add_anthropic(str *s, const struct api_model *m, uint32_t length) {
    char created[32] = "";
    time_t t = (time_t)m->created_s;
    struct tm tm;
    if (gmtime_r(&t, &tm)) strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &tm);
    str_addf(s, ",\"type\":\"model\",\"created_at\":\"%s\",\"display_name\":", created);
    json_add_cstr(s, m->id);
    str_addf(s, ",\"max_input_tokens\":%" PRIu32 ",\"max_tokens\":%" PRIu32, length, length);
}

/* What llama.cpp's clients read. */
static void add_meta(str *s, const struct api_model *m) {
    const struct engine_model served = engine_model(m->engine);
    str_addf(s,
             ",\"meta\":{\"n_vocab\":%" PRIu32 ",\"n_ctx\":%" PRIu32 ",\"n_embd\":%" PRIu32
             ",\"n_params\":%" PRIu64 ",\"size\":%" PRIu64 "}",
             served.n_vocab, engine_context_length(m->engine), served.n_embd, served.n_params,
             served.weight_bytes);
}

static void add_model(str *s, const struct api_model *m) {
    str_add(s, "{\"id\":");
    json_add_cstr(s, m->id);
    str_addf(s, ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"inferd\"",
             m->created_s);
    uint32_t length = engine_context_length(m->engine);
    str_addf(s, ",\"context_length\":%" PRIu32 ",\"max_model_len\":%" PRIu32 ",\"aliases\":[",
             length, length);
    for (size_t i = 0; i < m->n_aliases; i++) {
        if (i) str_add_char(s, ',');
        json_add_cstr(s, m->aliases[i]);
    }
    str_add_char(s, ']');
    add_anthropic(s, m, length);
    add_capabilities(s, m);
    add_sampling(s, engine_sampling(m->engine));
    add_meta(s, m);
    str_add_char(s, '}');
}

static void add_id(str *s, const struct models_list *list, size_t i) {
    if (i < list->n)
        json_add_cstr(s, list->models[i]->id);
    else
        str_add(s, "null");
}

static void handle_models(struct request *r) {
    struct models_list list;
    str body;
    models_list(r->api->models, false, &list, NULL);
    str_init(&body, 1 << 20);
    str_add(&body, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < list.n; i++) {
        if (i) str_add_char(&body, ',');
        add_model(&body, list.models[i]);
    }
    str_add(&body, "],\"has_more\":false,\"first_id\":");
    add_id(&body, &list, 0);
    str_add(&body, ",\"last_id\":");
    add_id(&body, &list, list.n - 1); /* none: beyond the list */
    models_list_release(r->api->models, &list);
    str_add_char(&body, '}');
    reply_json(r, 200, &body);
}

static void handle_model(struct request *r) {
    err e;
    if (api_request_model(r, r->rest, &e)) {
        reply_err(r, &e);
        return;
    }
    str body;
    str_init(&body, 1 << 20);
    add_model(&body, r->model);
    reply_json(r, 200, &body);
}

const struct route models_route = {"GET", "/v1/models",
                                   ROUTE_KEY | ROUTE_MODEL | ROUTE_DIRECT | ROUTE_SHARED | ROUTE_V1,
                                   .handle = handle_models, .answers = "list"};
const struct route model_route = {"GET",
                                  "/v1/models/",
                                  ROUTE_KEY | ROUTE_V1 | ROUTE_MODEL | ROUTE_PREFIX | ROUTE_DIRECT |
                                      ROUTE_SHARED,
                                  .handle = handle_model,
                                  .name = "/v1/models/{model}",
                                  .answers = "model"};
