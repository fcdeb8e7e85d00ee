/* ep_models.c - GET /v1/models and /v1/models/{model}, with the members that clients of OpenAI and
 * of Anthropic read. Runs on pool threads, because names are looked up in the registry. */
#include "api/generate/api_state.h"
#include "api/generate/model_admin.h"
#include "api/http/auth.h"
#include "api/http/error.h"
#include "api/http/json.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "core/base/clock.h"
#include "core/chat/syntax.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What requests may ask of this model. */
static void add_capabilities(str *s, const struct api_model *m) {
    const tokenizer *tok = engine_tokenizer(m->engine);
    const struct engine_model model = engine_model(m->engine);
    const bool generates = !model.only_embeds, chats = generates && m->chat;
    const struct {
        const char *name;
        bool has;
    } rows[] = {
        {"completion", generates},
        {"embeddings", model.pooling != ENGINE_POOLING_RANK},
        {"rerank", model.scores},
        {"chat", chats},
        {"tools", chats}, /* with a generic call format if the template has none */
        {"json_schema", chats},
        {"reasoning", chats && *chat_template_syntax(m->chat)->reasoning_open},
        {"fim", generates && tokenizer_fim(tok, &(struct tokenizer_fim){0})},
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

static void add_anthropic(str *s, const struct api_model *m, const char *name, uint32_t length) {
    char created[CLOCK_UTC_BYTES];
    str_addf(s, ",\"type\":\"model\",\"created_at\":\"%s\",\"display_name\":",
             clock_utc(m->created_s, created));
    json_add_cstr(s, name);
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

/* The served models and their other names, in the order of the models. */
struct served {
    struct models_list models;
    struct api_name *names; /* (n_names) */
    size_t n_names;
};

static int served_read(struct request *r, struct served *v, err *e) {
    const struct api *a = r->api;
    *v = (struct served){.names = NULL};
    api_list_models(r, &v->models);
    return a->names->list(a, &v->models, &v->names, &v->n_names, e);
}

static void served_fini(const struct api *a, struct served *v) {
    models_list_release(a->models, &v->models);
    free(v->names);
}

static void add_aliases(str *s, const struct api_model *m, const struct served *v) {
    const char *comma = "";
    str_add(s, ",\"aliases\":[");
    for (size_t i = 0; i < v->n_names; i++) {
        if (v->names[i].model != m) continue;
        str_add(s, comma);
        json_add_cstr(s, v->names[i].name);
        comma = ",";
    }
    str_add_char(s, ']');
}

/* name: the model's id, or another name, which has the model as its parent and no aliases. */
static void add_model(str *s, const struct api_model *m, const char *name, const struct served *v) {
    bool is_id = strcmp(name, m->id) == 0;
    str_add(s, "{\"id\":");
    json_add_cstr(s, name);
    str_addf(s, ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"inferd\"",
             m->created_s);
    uint32_t length = engine_context_length(m->engine);
    str_addf(s, ",\"context_length\":%" PRIu32 ",\"max_model_len\":%" PRIu32 ",\"parent\":", length,
             length);
    if (is_id)
        str_add(s, "null");
    else
        json_add_cstr(s, m->id);
    add_aliases(s, is_id ? m : NULL, v);
    add_anthropic(s, m, name, length);
    add_capabilities(s, m);
    add_sampling(s, engine_sampling(m->engine));
    add_meta(s, m);
    str_add_char(s, '}');
}

static void add_models(str *s, const struct served *v) {
    size_t k = 0;
    for (size_t i = 0; i < v->models.n; i++) {
        const struct api_model *m = v->models.models[i];
        if (i) str_add_char(s, ',');
        add_model(s, m, m->id, v);
        for (; k < v->n_names && v->names[k].model == m; k++) {
            str_add_char(s, ',');
            add_model(s, m, v->names[k].name, v);
        }
    }
}

struct unloaded {
    struct request *request;
    str *out;
    bool any;
};

static void add_unloaded(void *arg, const struct model_entry *m) {
    struct unloaded *u = arg;
    if (m->state == MODEL_LOADED || !m->registered || !auth_may_use(u->request, m->id)) return;
    str_add(u->out, u->any ? ",{\"id\":" : "{\"id\":");
    u->any = true;
    json_add_cstr(u->out, m->id);
    str_addf(
        u->out,
        ",\"object\":\"model\",\"created\":0,\"owned_by\":\"inferd\",\"context_length\":%" PRIu64
        ",\"max_model_len\":%" PRIu64 ",\"parent\":null,\"aliases\":[",
        m->context_length, m->context_length);
    for (size_t i = 0; i < m->n_aliases; i++) {
        if (i) str_add_char(u->out, ',');
        json_add_cstr(u->out, m->aliases[i]);
    }
    str_add(u->out, "],\"type\":\"model\",\"display_name\":");
    json_add_cstr(u->out, m->id);
    str_addf(u->out, ",\"loaded\":false,\"meta\":{\"n_params\":%" PRIu64 ",\"size\":%" PRIu64 "}}",
             m->n_params, m->size_bytes);
}

/* With load-on-demand, what a request would load. */
static int add_rest(struct request *r, const struct served *v, str *s, err *e) {
    const struct model_admin *admin = r->api->config.admin;
    struct unloaded u = {r, s, v->models.n > 0};
    if (!admin || !admin->load_on_demand) return 0;
    return admin->list(admin->host, add_unloaded, &u, e);
}

static void add_ends(str *s, const struct served *v) {
    size_t n = v->models.n;
    const struct api_model *last = n ? v->models.models[n - 1] : NULL;
    const struct api_name *name = v->n_names ? &v->names[v->n_names - 1] : NULL;
    str_add(s, ",\"first_id\":");
    if (n)
        json_add_cstr(s, v->models.models[0]->id);
    else
        str_add(s, "null");
    str_add(s, ",\"last_id\":");
    if (n)
        json_add_cstr(s, name && name->model == last ? name->name : last->id);
    else
        str_add(s, "null");
}

static void reply_models(struct request *r, const struct served *v) {
    str body;
    err e = {0};
    str_init(&body, 4 << 20);
    str_add(&body, "{\"object\":\"list\",\"data\":[");
    add_models(&body, v);
    if (add_rest(r, v, &body, &e)) {
        str_fini(&body);
        reply_err(r, &e);
        return;
    }
    str_add(&body, "],\"has_more\":false");
    add_ends(&body, v);
    str_add_char(&body, '}');
    reply_json(r, 200, &body);
}

static void handle_models(struct request *r) {
    struct served v;
    err e = {0};
    if (served_read(r, &v, &e))
        reply_err(r, &e);
    else
        reply_models(r, &v);
    served_fini(r->api, &v);
}

/* Asks about a model, which does not load it. */
static int answer_model(struct request *r, err *e) {
    char id[API_MODEL_ID_BYTES];
    struct served v;
    str body;
    int rc = api_find_name(r, r->rest, id, e);
    if (rc == ERR_NOT_FOUND && *id)
        return err_set_param(e, rc, "model", "The model '%.96s' is not loaded.", id);
    if (rc == ERR_NOT_FOUND)
        return err_set_param(e, rc, "model", "The model '%.200s' does not exist.", r->rest);
    if (rc) return rc;
    rc = served_read(r, &v, e);
    if (!rc) {
        str_init(&body, 1 << 20);
        add_model(&body, r->model, r->model->id, &v);
        reply_json(r, 200, &body);
    }
    served_fini(r->api, &v);
    return rc;
}

static void handle_model(struct request *r) {
    err e = {0};
    if (answer_model(r, &e)) reply_err(r, &e);
}

const struct route models_route = {"GET", "/v1/models",
                                   ROUTE_KEY | ROUTE_MODEL | ROUTE_SHARED | ROUTE_V1,
                                   .handle = handle_models, .answers = "list"};
const struct route model_route = {"GET",
                                  "/v1/models/",
                                  ROUTE_KEY | ROUTE_V1 | ROUTE_MODEL | ROUTE_PREFIX | ROUTE_SHARED,
                                  .handle = handle_model,
                                  .name = "/v1/models/{model}",
                                  .answers = "model"};
