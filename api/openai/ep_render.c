/* ep_render.c - POST /v1/chat/completions/render and /v1/completions/render, in vLLM's form: the
 * token ids that the body's prompt becomes, for routers that look for the replica which has them
 * cached. The model computes nothing. Runs on pool threads. */
#include "api/generate/chat_body.h"
#include "api/generate/prefix.h"
#include "api/http/id.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/openai/completions.h"

#include <inttypes.h>
#include <stdlib.h>

#define ADD_PARAMETER(ARG, NAME, KIND, LEAST, MOST, INITIAL, HELP)                                 \
    str_add(out, ",\"" #NAME "\":");                                                               \
    json_add_number(out, (double)s->NAME);

/* vLLM's names are the same. max_tokens: as many as the context leaves. */
static void add_sampling(const struct gen_request *q, const struct gen_prompt *p, str *out) {
    const struct engine_params *params = &q->options.params;
    const struct sampling *s = &params->sampling;
    uint64_t left = engine_context_length(q->model->engine);
    left = left > p->n ? left - p->n : 0;
    uint64_t most = params->max_tokens && params->max_tokens < left ? params->max_tokens : left;
    str_addf(out, "{\"n\":%" PRIu32 ",\"max_tokens\":%" PRIu64, q->options.n_choices,
             q->options.no_tokens ? 0 : most);
    SAMPLING_ROWS(ADD_PARAMETER, )
    if (params->has_seed)
        str_addf(out, ",\"seed\":%" PRId64 "}", params->seed);
    else
        str_add(out, ",\"seed\":null}");
}

static void add_prompt(const struct gen_request *q, const struct gen_prompt *p,
                       const char *id_prefix, str *out) {
    char id[48];
    id_new(id, id_prefix);
    str_addf(out, "{\"request_id\":\"%s\",\"token_ids\":", id);
    gen_add_ids(p, out);
    str_add(out, ",\"features\":null,\"sampling_params\":");
    add_sampling(q, p, out);
    str_add(out, ",\"model\":");
    json_add_cstr(out, q->model->id);
    str_addf(out, ",\"stream\":%s,\"stream_options\":", q->options.stream ? "true" : "false");
    if (q->options.stream)
        str_addf(out, "{\"include_usage\":%s}", q->options.include_usage ? "true" : "false");
    else
        str_add(out, "null");
    str_add(out, ",\"cache_salt\":");
    if (q->options.cache_salt)
        json_add_cstr(out, q->options.cache_salt);
    else
        str_add(out, "null");
    str_addf(out, ",\"priority\":%d,\"kv_transfer_params\":null}", q->options.params.priority);
}

static int answer_chat(struct request *r, const cJSON *body, err *e) {
    struct gen_request q;
    struct chat_request chat;
    struct gen_prompt prompt = {0};
    str out;
    str_init(&out, REPLY_MAX_BYTES);
    int rc = chat_body_read(r, body, &q, &chat, e);
    if (!rc) rc = chat_request_encode(r, &chat, &prompt, e);
    if (!rc) {
        add_prompt(&q, &prompt, "chatcmpl-", &out);
        prefix_add_header(r, q.model, &prompt);
        rc = gen_reply_bounded(r, &out, e);
    }
    free(prompt.ids);
    chat_request_fini(&chat);
    return rc;
}

static int answer_completions(struct request *r, const cJSON *body, err *e) {
    struct gen_request q;
    struct gen_prompt *prompts;
    size_t n;
    str out;
    int rc = completions_read(r, body, &q, &prompts, &n, e);
    if (rc) return rc;
    str_init(&out, REPLY_MAX_BYTES);
    for (size_t i = 0; i < n; i++) {
        str_add_char(&out, i ? ',' : '[');
        add_prompt(&q, &prompts[i], "cmpl-", &out);
    }
    str_add_char(&out, ']');
    prefix_add_header(r, q.model, &prompts[0]);
    gen_prompts_free(prompts, n);
    return gen_reply_bounded(r, &out, e);
}

static void handle_chat(struct request *r) {
    gen_handle(r, answer_chat);
}

static void handle_completions(struct request *r) {
    gen_handle(r, answer_completions);
}

const struct route chat_render_route = {"POST", "/v1/chat/completions/render",
                                        ROUTE_TEXT | ROUTE_V1, handle_chat, .table = &chat_table};
const struct route completions_render_route = {"POST", "/v1/completions/render", ROUTE_TEXT,
                                               handle_completions, .table = &completions_table};
