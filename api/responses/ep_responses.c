/* ep_responses.c - POST /v1/responses and /v1/responses/input_tokens: from their body to a chat
 * request. Runs on pool threads. */
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/generate/chat_body.h"
#include "api/generate/gen.h"
#include "api/generate/preset.h"
#include "api/http/auth.h"
#include "api/http/error.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/http/settings.h"
#include "api/responses/responses.h"

#include "core/base/clock.h"

#include <stdlib.h>
#include <string.h>

/* A body that was read. */
struct asked {
    struct response_fields fields;
    struct chat_request chat;
    cJSON *earlier, *own; /* items of the earlier conversation, and of this request */
};

static void asked_fini(struct asked *a) {
    chat_request_fini(&a->chat);
    cJSON_Delete(a->earlier);
    cJSON_Delete(a->own);
}

static int read_messages(struct request *r, struct asked *a, err *e) {
    const struct response_fields *f = &a->fields;
    const struct response_source from = {.store = r->api->config.store,
                                         .key = auth_key(r),
                                         .now_s = clock_wall_s(),
                                         .max_bytes =
                                             (size_t)r->settings->config.max_body_bytes * 2};
    a->earlier = cJSON_CreateArray();
    a->own = cJSON_CreateArray();
    if (!a->earlier || !a->own) return err_no_memory(e);
    int rc = 0;
    if (f->previous_response_id)
        rc = response_items_chain(f->previous_response_id, &from, a->earlier, e);
    const char *conversation = response_fields_conversation(f);
    if (!rc && conversation) rc = response_items_conversation(conversation, &from, a->earlier, e);
    if (!rc) rc = response_items_read(f->input, &from, a->own, e);
    const cJSON *const lists[] = {a->earlier, a->own};
    if (!rc) rc = response_items_messages(f->instructions, lists, 2, &a->chat.messages, e);
    if (!rc && !a->chat.messages->child)
        rc = err_set_param(e, ERR_INVALID, "input",
                           "Invalid value for 'input': the conversation is empty.");
    return rc;
}

/* The caller ends it with asked_fini, also on failure. */
static int read_body(struct request *r, const cJSON *body, const struct json_table *table,
                     struct asked *a, err *e) {
    struct chat_request *q = &a->chat;
    response_fields_default(&a->fields);
    a->earlier = a->own = NULL;
    chat_request_init(q, r->ignored);
    q->param_messages = "input";
    q->param_format = "text.format";
    q->param_function = "";
    q->param_effort = "reasoning.effort";
    int rc = gen_body_read(body, table, &a->fields, e);
    if (!rc) rc = response_fields_check(&a->fields, r->ignored, e);
    if (!rc) rc = api_body_model(r, a->fields.gen.model, e);
    if (rc) return rc;
    q->model = r->model;
    rc = response_tools_read(&a->fields, q, e);
    if (!rc) rc = chat_fields_read(&a->fields.gen, q->model->chat, q, e);
    if (!rc) rc = read_messages(r, a, e);
    return rc;
}

/* A previous response that is not stored is the request's fault, and has a code of its own. */
static int explain_failure(struct request *r, int rc, err *e) {
    if (rc != ERR_NOT_FOUND) return rc;
    if (strcmp(e->param, "conversation") == 0) {
        reply_error(r, &(struct api_error){404, "invalid_request_error", NULL, e->param, e->msg});
        return 0;
    }
    if (strcmp(e->param, "previous_response_id") != 0) return rc;
    reply_error(r, &(struct api_error){400, "invalid_request_error", "previous_response_not_found",
                                       e->param, e->msg});
    return 0;
}

static int start_response(struct request *r, struct asked *a, const struct gen_options *options,
                          err *e) {
    const struct response_fields *f = &a->fields;
    responses *store = r->api->config.store;
    if (f->store && f->has_store && !store)
        return err_set_param(e, ERR_UNSUPPORTED, "store",
                             "Unsupported value for 'store': this server does not store responses "
                             "(see its configuration and log).");
    struct response_state *state =
        response_state_new(&(struct response_config){.fields = f,
                                                     .store = store,
                                                     .stores = f->store,
                                                     .key = auth_key(r),
                                                     .forms = a->chat.tools.forms,
                                                     .input = a->own});
    a->own = NULL;
    if (!state) return err_no_memory(e);
    a->chat.options = options;
    return chat_request_start(
        r, &a->chat,
        &(struct chat_start){&response_writer, state, "resp_", response_state_bytes(state)}, e);
}

static int answer_responses(struct request *r, const cJSON *body, err *e) {
    struct asked a;
    struct gen_options options;
    int rc = read_body(r, body, &responses_table, &a, e);
    if (!rc) preset_recommend(r, &a.fields.gen);
    if (!rc)
        rc = gen_options_read(&a.fields.gen, tokenizer_n_vocab(engine_tokenizer(r->model->engine)),
                              r->ignored, &options, e);
    options.obfuscate = a.fields.obfuscate;
    if (!rc) rc = start_response(r, &a, &options, e);
    asked_fini(&a);
    return explain_failure(r, rc, e);
}

static void handle_responses(struct request *r) {
    gen_handle(r, answer_responses);
}

static int answer_tokens(struct request *r, const cJSON *body, err *e) {
    struct asked a;
    struct gen_prompt prompt = {0};
    int rc = read_body(r, body, &response_tokens_table, &a, e);
    if (!rc) rc = chat_request_encode(r, &a.chat, &prompt, e);
    if (!rc) {
        str out;
        str_init(&out, 256);
        str_addf(&out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", prompt.n);
        reply_json(r, 200, &out);
    }
    free(prompt.ids);
    asked_fini(&a);
    return explain_failure(r, rc, e);
}

static void handle_tokens(struct request *r) {
    gen_handle(r, answer_tokens);
}

const struct route responses_route = {
    "POST",           "/v1/responses",           ROUTE_GENERATE | ROUTE_V1,
    handle_responses, .table = &responses_table, .answers = "response"};
const struct route response_tokens_route = {
    "POST",        "/v1/responses/input_tokens",    ROUTE_TEXT | ROUTE_V1,
    handle_tokens, .table = &response_tokens_table, .answers = "response.input_tokens"};
