/* ep_render.c - POST /v1/inferd/render: the prompt of a body of POST /v1/chat/completions as text
 * and tokens, and which bytes come from the template. The model computes nothing. Runs on pool
 * threads. */
#include "api/generate/chat_body.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include <stdlib.h>

static void add_answer(const struct chat_output *text, const struct gen_prompt *prompt, str *out) {
    str_add(out, "{\"prompt\":");
    json_add_string(out, text->text, text->n);
    str_add(out, ",\"tokens\":");
    gen_add_ids(prompt, out);
    str_addf(out, ",\"count\":%zu,\"spans\":[", prompt->n);
    for (size_t i = 0; i < text->n_spans; i++) {
        const struct chat_span *s = &text->spans[i];
        str_addf(out, "%s{\"start\":%zu,\"end\":%zu,\"trusted\":%s}", i ? "," : "", s->start,
                 s->end, s->trusted ? "true" : "false");
    }
    str_add(out, "]}");
}

static int answer_render(struct request *r, const cJSON *body, err *e) {
    struct gen_request q;
    struct chat_request chat;
    struct chat_output text = {0};
    struct gen_prompt prompt = {0};
    str out;
    str_init(&out, REPLY_MAX_BYTES);
    int rc = chat_body_read(r, body, &q, &chat, e);
    if (!rc) rc = chat_request_render(r, &chat, &text, e);
    if (!rc) rc = chat_request_tokens(r, &chat, &text, &prompt, e);
    if (!rc) {
        add_answer(&text, &prompt, &out);
        rc = gen_reply_bounded(r, &out, e);
    }
    free(prompt.ids);
    chat_output_fini(&text);
    chat_request_fini(&chat);
    return rc;
}

static void handle_render(struct request *r) {
    gen_handle(r, answer_render);
}

const struct route render_route = {"POST", "/v1/inferd/render", ROUTE_TEXT, handle_render,
                                   .table = &chat_table};
