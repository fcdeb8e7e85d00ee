/* ep_chat.c - POST /v1/chat/completions: starting (on pool threads) and writing an answer (on HTTP
 * threads); generate/chat_body.h reads the body. */
#include "api/generate/chat_body.h"
#include "api/generate/frames.h"
#include "api/generate/gen.h"
#include "api/generate/tools.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include "core/base/mem.h"

#include <stdlib.h>

/* ---- writing ---- */

static void add_logprobs(const struct gen *g, const struct gen_choice *c, str *out) {
    str_add(out, ",\"logprobs\":");
    if (g->n_logprobs < 0) {
        str_add(out, "null");
        return;
    }
    str_add(out, "{\"content\":[");
    str_add_n(out, str_cstr(&c->logprobs[0]), c->logprobs[0].len);
    str_add(out, "],\"refusal\":null}");
}

/* The writer's own state. */
struct chat_state {
    bool named;                      /* tool_choice names a function: finish_reason is stop */
    bool opened[ENGINE_MAX_CHOICES]; /* by index of the choice */
};

static void open_chunk(struct gen *g, str *out) {
    gen_frame_open(g, NULL, out);
    gen_add_head(g, "chat.completion.chunk", out);
    str_add(out, "\"service_tier\":\"default\",\"choices\":[");
}

/* n: length of the text that padding hides. */
static void close_chunk(struct gen *g, size_t n, str *out) {
    str_add(out, g->include_usage ? "],\"usage\":null" : "]");
    gen_add_padding(g, n, out);
    str_add_char(out, '}');
    gen_frame_close(out);
}

/* The first delta has the role, and an empty content if text follows. */
static void open_choice(struct gen *g, struct gen_choice *c, bool text, str *out) {
    struct chat_state *s = g->state;
    bool *opened = &s->opened[c->index];
    if (*opened) return;
    *opened = true;
    open_chunk(g, out);
    str_addf(out,
             "{\"index\":%u,\"delta\":{\"role\":\"assistant\",\"content\":%s,\"refusal\":null},"
             "\"logprobs\":null,\"finish_reason\":null}",
             c->index, text ? "\"\"" : "null");
    close_chunk(g, 0, out);
}

static void add_call(const struct gen_choice *c, uint32_t i, bool with_arguments, str *out) {
    const struct gen_call *call = &c->calls[i];
    str_addf(out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", call->id);
    json_add_cstr(out, call->name);
    str_add(out, ",\"arguments\":");
    json_add_string(out, str_cstr(&call->arguments), with_arguments ? call->arguments.len : 0);
    str_add(out, "}}");
}

static void chat_piece(struct gen *g, struct gen_choice *c, const struct gen_piece *piece,
                       str *out) {
    open_choice(g, c, piece->kind == GEN_TEXT, out);
    open_chunk(g, out);
    str_addf(out, "{\"index\":%u,\"delta\":{", c->index);
    if (piece->kind == GEN_CALL) {
        str_addf(out, "\"tool_calls\":[{\"index\":%u,", piece->call);
        add_call(c, piece->call, false, out);
        str_add_char(out, ']');
    } else {
        if (piece->kind == GEN_ARGUMENTS)
            str_addf(out,
                     "\"tool_calls\":[{\"index\":%u,\"function\":{\"arguments\":", piece->call);
        else
            str_add(out, piece->kind == GEN_TEXT ? "\"content\":" : "\"reasoning_content\":");
        json_add_string(out, piece->text, piece->n);
        if (piece->kind == GEN_ARGUMENTS) str_add(out, "}}]");
    }
    str_add_char(out, '}');
    if (piece->kind == GEN_TEXT)
        add_logprobs(g, c, out);
    else
        str_add(out, ",\"logprobs\":null");
    str_add(out, ",\"finish_reason\":null}");
    close_chunk(g, piece->n, out);
}

static const char *finish_of(const struct gen *g, const struct gen_choice *c) {
    const struct chat_state *s = g->state;
    bool stops = s->named && c->finish == GEN_FINISH_TOOL_CALLS;
    return gen_finish_name(stops ? GEN_FINISH_STOP : c->finish);
}

static void chat_close(struct gen *g, struct gen_choice *c, str *out) {
    open_choice(g, c, true, out);
    open_chunk(g, out);
    str_addf(out, "{\"index\":%u,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"%s\"}",
             c->index, finish_of(g, c));
    close_chunk(g, 0, out);
}

static void chat_end(struct gen *g, str *out) {
    if (g->include_usage) {
        open_chunk(g, out);
        str_add(out, "],");
        gen_add_usage(g, out);
        str_add_char(out, '}');
        gen_frame_close(out);
    }
    gen_frame_done(out);
}

static void add_choice(struct gen *g, struct gen_choice *c, str *out) {
    str_addf(out, "{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":", c->index);
    if (c->text.len || !c->n_calls)
        json_add_string(out, str_cstr(&c->text), c->text.len);
    else
        str_add(out, "null");
    if (c->reasoning.len) {
        str_add(out, ",\"reasoning_content\":");
        json_add_string(out, str_cstr(&c->reasoning), c->reasoning.len);
    }
    for (uint32_t i = 0; i < c->n_calls; i++) {
        str_add(out, i ? ",{" : ",\"tool_calls\":[{");
        add_call(c, i, true, out);
    }
    str_add(out, c->n_calls ? "],\"refusal\":null}" : ",\"refusal\":null}");
    add_logprobs(g, c, out);
    str_addf(out, ",\"finish_reason\":\"%s\"}", finish_of(g, c));
}

static void chat_whole(struct gen *g, str *out) {
    gen_add_head(g, "chat.completion", out);
    str_add(out, "\"service_tier\":\"default\",\"choices\":[");
    for (uint32_t i = 0; i < g->n_choices; i++) {
        if (i) str_add_char(out, ',');
        add_choice(g, &g->choices[i], out);
    }
    str_add(out, "],");
    gen_add_usage(g, out);
    str_add_char(out, '}');
}

static const struct gen_writer chat_writer = {
    .content_type = GEN_EVENT_STREAM,
    .param = "messages",
    .logprob = gen_chat_logprob,
    .piece = chat_piece,
    .close = chat_close,
    .end = chat_end,
    .fail = gen_frame_error,
    .keepalive = gen_frame_comment,
    .whole = chat_whole,
    .free = free,
};

/* ---- reading ---- */

static int start_chat(struct request *r, const struct chat_request *chat, err *e) {
    struct chat_state *state = mem_new(1, sizeof *state);
    if (!state) return err_no_memory(e);
    state->named = chat->tools.choice == CHAT_TOOLS_NAMED;
    return chat_request_start(
        r, chat,
        &(struct chat_start){.writer = &chat_writer, .state = state, .id_prefix = "chatcmpl-"}, e);
}

static int answer_chat(struct request *r, const cJSON *body, err *e) {
    struct gen_request q;
    struct chat_request chat;
    int rc = chat_body_read(r, body, &q, &chat, e);
    if (!rc) rc = start_chat(r, &chat, e);
    chat_request_fini(&chat);
    return rc;
}

static void handle_chat(struct request *r) {
    gen_handle(r, answer_chat);
}

const struct route chat_route = {"POST", "/v1/chat/completions", ROUTE_GENERATE, handle_chat,
                                 .table = &chat_table};
