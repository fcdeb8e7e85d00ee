/* ep_chat.c - POST /v1/chat/completions: how its body is read and its answer written. Runs on HTTP
 * threads. */
#include "api/chat_request.h"

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

static void open_chunk(struct gen *g, str *out) {
    gen_frame_open(g, NULL, out);
    gen_add_head(g, "chat.completion.chunk", out);
    str_add(out, "\"choices\":[");
}

static void close_chunk(struct gen *g, str *out) {
    str_add(out, g->include_usage ? "],\"usage\":null}" : "]}");
    gen_frame_close(out);
}

static void chat_open(struct gen *g, struct gen_choice *c, str *out) {
    open_chunk(g, out);
    str_addf(out,
             "{\"index\":%u,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},"
             "\"logprobs\":null,\"finish_reason\":null}",
             c->index);
    close_chunk(g, out);
}

static void chat_piece(struct gen *g, struct gen_choice *c, const struct gen_piece *piece,
                       str *out) {
    open_chunk(g, out);
    str_addf(out, "{\"index\":%u,\"delta\":{\"content\":", c->index);
    json_add_string(out, piece->text, piece->n);
    str_add_char(out, '}');
    add_logprobs(g, c, out);
    str_add(out, ",\"finish_reason\":null}");
    close_chunk(g, out);
}

static void chat_close(struct gen *g, struct gen_choice *c, str *out) {
    open_chunk(g, out);
    str_addf(out, "{\"index\":%u,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"%s\"}",
             c->index, gen_finish_name(c->finish));
    close_chunk(g, out);
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
    json_add_string(out, str_cstr(&c->text), c->text.len);
    str_add(out, ",\"refusal\":null}");
    add_logprobs(g, c, out);
    str_addf(out, ",\"finish_reason\":\"%s\"}", gen_finish_name(c->finish));
}

static void chat_whole(struct gen *g, str *out) {
    gen_add_head(g, "chat.completion", out);
    str_add(out, "\"choices\":[");
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
    .open = chat_open,
    .piece = chat_piece,
    .close = chat_close,
    .end = chat_end,
    .fail = gen_frame_error,
    .keepalive = gen_frame_comment,
    .whole = chat_whole,
};

/* ---- reading ---- */

int chat_body_read(struct request *r, const cJSON *body, struct gen_request *q,
                   struct chat_request *chat, err *e) {
    chat_request_init(chat);
    gen_fields_default(&q->fields);
    int rc = gen_request_read(r, body, &chat_table, q, e);
    if (rc) return rc;
    chat->model = q->model;
    chat->options = &q->options;
    rc = chat_messages_read(q->fields.messages, &chat->messages, e);
    return rc ? rc : chat_fields_read(&q->fields, q->model->chat, chat, e);
}

static int run(struct request *r, const cJSON *body, err *e) {
    struct gen_request q;
    struct chat_request chat;
    int rc = chat_body_read(r, body, &q, &chat, e);
    if (!rc)
        rc = chat_request_start(r, &chat, &(struct chat_start){&chat_writer, NULL, "chatcmpl-"}, e);
    chat_request_fini(&chat);
    return rc;
}

void ep_chat(struct request *r) {
    gen_handle(r, run);
}
