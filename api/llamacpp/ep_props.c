/* ep_props.c - GET /props and /slots, POST /apply-template: what llama.cpp's clients ask a server
 * about itself. Slots are the engine's places for running sequences; they tell numbers, never
 * texts. Runs on pool threads. */
#include "api/generate/api_state.h"
#include "api/generate/chat_body.h"
#include "api/generate/preset.h"
#include "api/http/error.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/llamacpp/llamacpp.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct query {
    char model[256];
    bool fail_on_no_slot;
};

static void take_parameter(void *arg, const char *name, const char *value) {
    struct query *q = arg;
    size_t n = strlen(value);
    if (!strcmp(name, "model") && n < sizeof q->model) memcpy(q->model, value, n + 1);
    if (!strcmp(name, "fail_on_no_slot")) q->fail_on_no_slot = *value && strcmp(value, "0") != 0;
}

/* The model that the query names; false: the reply is filled. */
static bool find_model(struct request *r, struct query *q) {
    err e = {0};
    request_query_each(r, take_parameter, q);
    if (!api_body_model(r, q->model, &e)) return true;
    reply_err(r, &e);
    return false;
}

/* ---- props ---- */

static void add_token_text(const tokenizer *tok, const char *name, int32_t id, str *out) {
    size_t n = 0;
    const char *text = id >= 0 ? tokenizer_token_text(tok, id, &n) : "";
    str_addf(out, ",\"%s\":", name);
    json_add_string(out, text, n);
}

static void add_defaults(const struct request *r, str *out) {
    struct gen_fields f;
    struct gen_options *o = mem_new(1, sizeof *o);
    gen_fields_default(&f);
    llama_sampling_default(&f);
    preset_recommend(r, &f);
    out->failed |= !o || gen_options_read(&f, 1, NULL, o, NULL) != 0;
    str_addf(out, "{\"default_generation_settings\":{\"n_ctx\":%u,\"params\":",
             engine_context_length(r->model->engine));
    if (o) llama_add_settings(&(struct llama_settings){.params = &o->params, .n_predict = -1}, out);
    str_add_char(out, '}');
    free(o);
}

static void handle_props(struct request *r) {
    struct query q = {0};
    if (!find_model(r, &q)) return;
    const struct api_model *m = r->model;
    const tokenizer *tok = engine_tokenizer(m->engine);
    str out;
    str_init(&out, 4 << 20);
    add_defaults(r, &out);
    str_addf(&out, ",\"total_slots\":%u,\"model_alias\":", engine_places_get(m->engine, NULL, 0));
    json_add_cstr(&out, m->id);
    str_add(&out, ",\"model_path\":"); /* its name: where files lie is not told */
    json_add_cstr(&out, m->id);
    str_add(&out, ",\"modalities\":{\"vision\":false,\"audio\":false},\"endpoint_slots\":true,"
                  "\"endpoint_props\":false,\"endpoint_metrics\":true,\"is_sleeping\":false,"
                  "\"chat_template\":");
    json_add_cstr(&out, m->chat ? chat_template_source(m->chat) : "");
    add_token_text(tok, "bos_token", tokenizer_bos(tok), &out);
    add_token_text(tok, "eos_token", tokenizer_eos(tok), &out);
    str_add(&out, ",\"build_info\":\"inferd-");
    str_add(&out, r->api->config.version);
    str_add(&out, "\"}");
    reply_json(r, 200, &out);
}

/* ---- slots ---- */

static void add_slot(const struct engine_place *p, uint32_t i, uint32_t context, str *out) {
    bool busy = p->number != 0;
    int64_t left = p->max_tokens ? (int64_t)p->max_tokens - (int64_t)p->n_generated : (int64_t)-1;
    uint32_t computed = p->n_computed < p->n_prompt ? p->n_computed : p->n_prompt;
    str_addf(out,
             "%s{\"id\":%u,\"id_task\":%" PRId64
             ",\"n_ctx\":%u,\"speculative\":false,\"is_processing\":%s",
             i ? "," : "", i, busy ? (int64_t)p->number : -1, context, busy ? "true" : "false");
    if (busy)
        str_addf(out,
                 ",\"is_paused\":%s,\"n_prompt_tokens\":%u,\"n_prompt_tokens_processed\":%u,"
                 "\"n_prompt_tokens_cache\":%u,\"next_token\":{\"has_next_token\":%s,"
                 "\"n_remain\":%" PRId64 ",\"n_decoded\":%u}",
                 p->stopped ? "true" : "false", p->n_prompt, computed, p->n_cached,
                 p->max_tokens ? "true" : "false", left, p->n_generated);
    str_add_char(out, '}');
}

static void handle_slots(struct request *r) {
    struct query q = {0};
    if (!find_model(r, &q)) return;
    engine *en = r->model->engine;
    uint32_t n = engine_places_get(en, NULL, 0), n_free = 0;
    struct engine_place *places = mem_new(n, sizeof *places);
    str out;
    str_init(&out, 4 << 20);
    out.failed = !places;
    str_add_char(&out, '[');
    if (places) engine_places_get(en, places, n);
    for (uint32_t i = 0; places && i < n; i++) {
        n_free += !places[i].number;
        add_slot(&places[i], i, engine_context_length(en), &out);
    }
    str_add_char(&out, ']');
    free(places);
    if (!n_free && q.fail_on_no_slot) {
        str_fini(&out);
        reply_error(r, &(struct api_error){503, "server_error", "no_slot", NULL,
                                           "No slot is available: try again later."});
        return;
    }
    reply_json(r, 200, &out);
}

/* ---- the template ---- */

static int answer_template(struct request *r, const cJSON *body, err *e) {
    struct gen_request q;
    struct chat_request chat;
    struct chat_output text = {0};
    int rc = chat_body_read(r, body, &q, &chat, e);
    if (!rc) rc = chat_request_render(r, &chat, &text, e);
    if (!rc) {
        str out;
        str_init(&out, REPLY_MAX_BYTES);
        str_add(&out, "{\"prompt\":");
        json_add_string(&out, text.text, text.n);
        str_add_char(&out, '}');
        rc = gen_reply_bounded(r, &out, e);
    }
    chat_output_fini(&text);
    chat_request_fini(&chat);
    return rc;
}

static void handle_template(struct request *r) {
    gen_handle(r, answer_template);
}

const struct route llama_props_route = {"GET", "/props", ROUTE_KEY | ROUTE_MODEL | ROUTE_V1,
                                        .handle = handle_props, .protocol = &llama_protocol};
const struct route llama_slots_route = {"GET", "/slots", ROUTE_KEY | ROUTE_METRICS | ROUTE_MODEL,
                                        .handle = handle_slots, .protocol = &llama_protocol};
const struct route llama_template_route = {
    "POST",          "/apply-template",    ROUTE_TEXT,
    handle_template, .table = &chat_table, .protocol = &llama_protocol};
