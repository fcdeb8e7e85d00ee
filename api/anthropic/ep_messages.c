/* ep_messages.c - POST /v1/messages and /v1/messages/count_tokens: Anthropic's protocol. How
 * answers and streams are written; anthropic/read.c reads. Writing runs on HTTP threads. */
#include "api/anthropic/files.h"
#include "api/anthropic/messages.h"
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/generate/frames.h"
#include "api/generate/gen.h"
#include "api/generate/preset.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The open content block of a stream. */
struct state {
    bool open;
    enum gen_piece_kind kind;
    uint32_t index; /* of the next block */
    bool hides_thinking;
};

/* ---- errors ---- */

static void write_error(str *out, const struct api_error *error) {
    static const struct {
        unsigned status;
        const char *type;
    } rows[] = {{400, "invalid_request_error"}, {401, "authentication_error"},
                {403, "permission_error"},      {404, "not_found_error"},
                {413, "request_too_large"},     {429, "rate_limit_error"},
                {503, "overloaded_error"},      {504, "timeout_error"}};
    const char *type = error->status < 500 ? "invalid_request_error" : "api_error";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].status == error->status) type = rows[i].type;
    str_addf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type);
    json_add_cstr(out, error->message);
    if (error->param && *error->param) {
        str_add(out, ",\"param\":");
        json_add_cstr(out, error->param);
    }
    if (error->code && strcmp(error->code, "storage_limit_exceeded") == 0)
        str_add(out, ",\"details\":{\"error_code\":\"storage_quota_exceeded\"}");
    str_add(out, "}}");
}

/* ---- writing ---- */

static const char *stop_reason(const struct gen_choice *c) {
    if (c->finish == GEN_FINISH_LENGTH) return "max_tokens";
    if (c->n_calls) return "tool_use";
    return c->stop_sequence ? "stop_sequence" : "end_turn";
}

static void add_stop(const struct gen_choice *c, str *out) {
    str_addf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(c));
    if (c->stop_sequence)
        json_add_cstr(out, c->stop_sequence);
    else
        str_add(out, "null");
}

/* Cached tokens are not included in input_tokens. */
static void add_usage(const struct gen *g, str *out) {
    struct gen_usage u = gen_usage_of(g);
    str_addf(out,
             "\"usage\":{\"input_tokens\":%" PRIu64 ",\"cache_creation_input_tokens\":0,"
             "\"cache_read_input_tokens\":%" PRIu64 ",\"output_tokens\":%" PRIu64
             ",\"service_tier\":\"standard\"}",
             u.prompt - u.cached, u.cached, u.completion);
}

static void add_head(const struct gen *g, str *out) {
    str_addf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", g->id);
    json_add_cstr(out, g->model->id);
}

static void write_begin(struct gen *g, str *out) {
    gen_frame_open(g, "message_start", out);
    str_add(out, "{\"type\":\"message_start\",\"message\":");
    add_head(g, out);
    str_add(out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    add_usage(g, out);
    str_add(out, "}}");
    gen_frame_close(out);
}

/* Clients keep blocks of thinking only with a signature; any is accepted when it comes back. */
static void close_block(struct gen *g, str *out) {
    struct state *s = g->state;
    if (!s->open) return;
    s->open = false;
    if (s->kind == GEN_REASONING) {
        gen_frame_open(g, "content_block_delta", out);
        str_addf(out,
                 "{\"type\":\"content_block_delta\",\"index\":%u,\"delta\":{\"type\":"
                 "\"signature_delta\",\"signature\":\"%s\"}}",
                 s->index, g->id);
        gen_frame_close(out);
    }
    gen_frame_open(g, "content_block_stop", out);
    str_addf(out, "{\"type\":\"content_block_stop\",\"index\":%u}", s->index++);
    gen_frame_close(out);
}

static void add_tool_use(const struct gen_call *call, str *out) {
    str_addf(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", call->id);
    json_add_cstr(out, call->name);
    str_add(out, ",\"input\":");
}

static void open_block(struct gen *g, const struct gen_choice *c, const struct gen_piece *piece,
                       str *out) {
    struct state *s = g->state;
    close_block(g, out);
    s->open = true;
    s->kind = piece->kind == GEN_CALL ? GEN_ARGUMENTS : piece->kind;
    gen_frame_open(g, "content_block_start", out);
    str_addf(out, "{\"type\":\"content_block_start\",\"index\":%u,\"content_block\":", s->index);
    if (s->kind == GEN_TEXT) {
        str_add(out, "{\"type\":\"text\",\"text\":\"\"}}");
    } else if (s->kind == GEN_REASONING) {
        str_add(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}");
    } else {
        add_tool_use(&c->calls[piece->call], out);
        str_add(out, "{}}}");
    }
    gen_frame_close(out);
}

static void write_piece(struct gen *g, struct gen_choice *c, const struct gen_piece *piece,
                        str *out) {
    static const char *const deltas[] = {[GEN_TEXT] = "text_delta\",\"text",
                                         [GEN_REASONING] = "thinking_delta\",\"thinking",
                                         [GEN_ARGUMENTS] = "input_json_delta\",\"partial_json"};
    const struct state *s = g->state;
    if (piece->kind == GEN_CALL || (piece->n && (!s->open || s->kind != piece->kind)))
        open_block(g, c, piece, out);
    if (!piece->n || (piece->kind == GEN_REASONING && s->hides_thinking)) return;
    gen_frame_open(g, "content_block_delta", out);
    str_addf(out,
             "{\"type\":\"content_block_delta\",\"index\":%u,\"delta\":{\"type\":\"%s\":", s->index,
             deltas[piece->kind]);
    json_add_string(out, piece->text, piece->n);
    str_add(out, "}}");
    gen_frame_close(out);
}

static void write_close(struct gen *g, struct gen_choice *c, str *out) {
    (void)c;
    close_block(g, out);
}

static void write_end(struct gen *g, str *out) {
    gen_frame_open(g, "message_delta", out);
    str_add(out, "{\"type\":\"message_delta\",\"delta\":{");
    add_stop(&g->choices[0], out);
    str_add(out, "},");
    add_usage(g, out);
    str_add_char(out, '}');
    gen_frame_close(out);
    gen_frame_open(g, "message_stop", out);
    str_add(out, "{\"type\":\"message_stop\"}");
    gen_frame_close(out);
}

static void write_failure(struct gen *g, const struct api_error *error, str *out) {
    gen_frame_open(g, "error", out);
    write_error(out, error);
    gen_frame_close(out);
}

static void write_ping(struct gen *g, str *out) {
    gen_frame_open(g, "ping", out);
    str_add(out, "{\"type\":\"ping\"}");
    gen_frame_close(out);
}

/* Omits a call that the end of the answer cut off; stop_reason reports it. */
static void write_whole(struct gen *g, str *out) {
    const struct gen_choice *c = &g->choices[0];
    const char *comma = "";
    add_head(g, out);
    str_add(out, ",\"content\":[");
    if (c->reasoning.len) {
        const struct state *s = g->state;
        str_add(out, "{\"type\":\"thinking\",\"thinking\":");
        json_add_string(out, str_cstr(&c->reasoning), s->hides_thinking ? 0 : c->reasoning.len);
        str_addf(out, ",\"signature\":\"%s\"}", g->id);
        comma = ",";
    }
    if (c->text.len) {
        str_addf(out, "%s{\"type\":\"text\",\"text\":", comma);
        json_add_string(out, str_cstr(&c->text), c->text.len);
        str_add_char(out, '}');
        comma = ",";
    }
    for (uint32_t i = 0; i < c->n_calls; i++) {
        const struct gen_call *call = &c->calls[i];
        if (!gen_call_is_whole(call)) continue;
        str_add(out, comma);
        add_tool_use(call, out);
        str_add_n(out, str_cstr(&call->arguments), call->arguments.len);
        str_add_char(out, '}');
        comma = ",";
    }
    str_add(out, "],");
    add_stop(c, out);
    str_add_char(out, ',');
    add_usage(g, out);
    str_add_char(out, '}');
}

static const struct gen_writer writer = {
    .content_type = GEN_EVENT_STREAM,
    .param = "messages",
    .begin = write_begin,
    .piece = write_piece,
    .close = write_close,
    .end = write_end,
    .fail = write_failure,
    .keepalive = write_ping,
    .whole = write_whole,
    .free = free,
};

/* ---- reading ---- */

struct body {
    struct messages_fields fields;
    struct messages_files files;
    struct gen_options options;
    struct chat_request chat;
};

static int read_body(struct request *r, const cJSON *json, const struct json_table *table,
                     struct body *b, err *e) {
    struct messages_fields *f = &b->fields;
    gen_fields_default(&f->gen);
    chat_request_init(&b->chat, r->ignored);
    int rc = gen_body_read(json, table, f, e);
    if (rc) return rc;
    rc = api_request_model(r, f->gen.model, e);
    if (rc) return rc;
    const struct api_model *m = r->model;
    f->gen.stop = f->stop_sequences;
    f->gen.stop_name = "stop_sequences";
    b->files = (struct messages_files){r, r->settings->config.max_body_bytes};
    f->files = &b->files;
    f->add_file = messages_file_add;
    b->chat.model = m;
    b->chat.options = &b->options;
    preset_recommend(r, &f->gen);
    rc = gen_options_read(&f->gen, tokenizer_n_vocab(engine_tokenizer(m->engine)), r->ignored,
                          &b->options, e);
    return rc ? rc : messages_read(f, m->chat, &b->chat, e);
}

static void free_body(struct body *b) {
    chat_request_fini(&b->chat);
    free(b);
}

static int answer_messages(struct request *r, const cJSON *json, err *e) {
    struct body *b = mem_new(1, sizeof *b);
    struct state *state = mem_new(1, sizeof *state);
    int rc = b && state ? read_body(r, json, &messages_table, b, e) : err_no_memory(e);
    if (!rc) {
        state->hides_thinking = b->fields.hides_thinking;
        rc = chat_request_start(
            r, &b->chat,
            &(struct chat_start){.writer = &writer, .state = state, .id_prefix = "msg_"}, e);
        state = NULL;
    }
    free(state);
    if (b) free_body(b);
    return rc;
}

static int answer_count(struct request *r, const cJSON *json, err *e) {
    struct body *b = mem_new(1, sizeof *b);
    struct gen_prompt prompt = {0};
    int rc = b ? read_body(r, json, &messages_count_table, b, e) : err_no_memory(e);
    if (!rc) rc = chat_request_encode(r, &b->chat, &prompt, e);
    if (!rc) {
        str body;
        str_init(&body, 64);
        str_addf(&body, "{\"input_tokens\":%zu}", prompt.n);
        reply_json(r, 200, &body);
    }
    free(prompt.ids);
    if (b) free_body(b);
    return rc;
}

static void handle_messages(struct request *r) {
    gen_handle(r, answer_messages);
}

static void handle_count(struct request *r) {
    gen_handle(r, answer_count);
}

/* https://platform.claude.com/docs/en/api/rate-limits#response-headers. A key's limit of tokens is
 * one of input and output together, so it bounds each of them. */
#define LIMIT_HEADERS(KIND)                                                                        \
    "anthropic-ratelimit-" KIND "-limit", "anthropic-ratelimit-" KIND "-remaining",                \
        "anthropic-ratelimit-" KIND "-reset"
static const struct limit_headers limit_headers[] = {{false, LIMIT_HEADERS("requests")},
                                                     {true, LIMIT_HEADERS("tokens")},
                                                     {true, LIMIT_HEADERS("input-tokens")},
                                                     {true, LIMIT_HEADERS("output-tokens")},
                                                     {.limit = NULL}};

static const struct protocol protocol = {.write_error = write_error,
                                         .id_header = "request-id",
                                         .area = "/v1/messages",
                                         .header = "anthropic-version",
                                         .error_event = "error",
                                         .limits = limit_headers};

const struct route messages_route = {
    "POST",          "/v1/messages",           ROUTE_GENERATE | ROUTE_V1,
    handle_messages, .table = &messages_table, .protocol = &protocol};
const struct route messages_count_route = {
    "POST",       "/v1/messages/count_tokens",    ROUTE_TEXT | ROUTE_V1,
    handle_count, .table = &messages_count_table, .protocol = &protocol};
