/* ep_chat.c - POST /v1/chat/completions: starting (on pool threads) and writing an answer (on HTTP
 * threads); generate/chat_body.h reads the body. */
#include "api/generate/api_state.h"
#include "api/generate/chat_body.h"
#include "api/generate/frames.h"
#include "api/generate/gen.h"
#include "api/generate/tool_form.h"
#include "api/generate/tools.h"
#include "api/http/auth.h"
#include "api/http/ignored.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "registry/responses.h"

#include <stdlib.h>
#include <string.h>

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
    bool named;   /* tool_choice names a function: finish_reason is stop */
    cJSON *forms; /* of tools other than functions (tool_form.h) */
    struct {      /* by index of the choice */
        bool opened;
        struct tool_input input; /* of its last call, if that is a custom one */
        str text, reasoning;     /* of a stream that is stored: all so far */
    } choices[ENGINE_MAX_CHOICES];
    responses *store;                /* NULL: it is not stored */
    char *key, *messages, *metadata; /* owned, JSON but for the key; with store */
};

static void free_state(void *state) {
    struct chat_state *s = state;
    if (!s) return;
    for (size_t i = 0; i < ENGINE_MAX_CHOICES; i++) {
        str_fini(&s->choices[i].text);
        str_fini(&s->choices[i].reasoning);
    }
    cJSON_Delete(s->forms);
    free(s->key);
    free(s->messages);
    free(s->metadata);
    free(s);
}

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
    bool *opened = &s->choices[c->index].opened;
    if (*opened) return;
    *opened = true;
    open_chunk(g, out);
    str_addf(out,
             "{\"index\":%u,\"delta\":{\"role\":\"assistant\",\"content\":%s,\"refusal\":null},"
             "\"logprobs\":null,\"finish_reason\":null}",
             c->index, text ? "\"\"" : "null");
    close_chunk(g, 0, out);
}

static bool is_custom(const struct gen *g, const struct gen_call *call) {
    const struct chat_state *s = g->state;
    return tool_form_of(s->forms, call->name).custom;
}

/* "input":... of a custom call so far. */
static void add_input(const struct gen_call *call, str *out) {
    struct tool_input in = {0};
    str text;
    str_init(&text, SIZE_MAX);
    tool_input_take(&in, str_cstr(&call->arguments), call->arguments.len, &text);
    json_add_string(out, str_cstr(&text), text.len);
    out->failed = out->failed || text.failed;
    str_fini(&text);
}

static void add_call(const struct gen *g, const struct gen_choice *c, uint32_t i,
                     bool with_arguments, str *out) {
    const struct gen_call *call = &c->calls[i];
    bool custom = is_custom(g, call);
    const char *type = custom ? "custom" : "function";
    str_addf(out, "\"id\":\"%s\",\"type\":\"%s\",\"%s\":{\"name\":", call->id, type, type);
    json_add_cstr(out, call->name);
    str_add(out, custom ? ",\"input\":" : ",\"arguments\":");
    if (custom && with_arguments)
        add_input(call, out);
    else
        json_add_string(out, str_cstr(&call->arguments), with_arguments ? call->arguments.len : 0);
    str_add(out, "}}");
}

/* "tool_calls":[...] of a delta with further arguments or input. */
static void add_more_arguments(struct gen *g, struct gen_choice *c, const struct gen_piece *piece,
                               str *out) {
    struct chat_state *s = g->state;
    bool custom = is_custom(g, &c->calls[piece->call]);
    str text;
    str_addf(out, "\"tool_calls\":[{\"index\":%u,\"%s\":{\"%s\":", piece->call,
             custom ? "custom" : "function", custom ? "input" : "arguments");
    str_init(&text, SIZE_MAX);
    if (custom) tool_input_take(&s->choices[c->index].input, piece->text, piece->n, &text);
    json_add_string(out, custom ? str_cstr(&text) : piece->text, custom ? text.len : piece->n);
    out->failed = out->failed || text.failed;
    str_fini(&text);
    str_add(out, "}}]");
}

/* Remembers what a stream has written, if it is stored. */
static void keep_piece(struct gen *g, const struct gen_choice *c, const struct gen_piece *piece,
                       str *out) {
    struct chat_state *s = g->state;
    if (!s->store || (piece->kind != GEN_TEXT && piece->kind != GEN_REASONING)) return;
    bool text = piece->kind == GEN_TEXT;
    str *kept = text ? &s->choices[c->index].text : &s->choices[c->index].reasoning;
    str_add_n(kept, piece->text, piece->n);
    g->n_held += piece->n;
    out->failed = out->failed || kept->failed;
}

static void chat_piece(struct gen *g, struct gen_choice *c, const struct gen_piece *piece,
                       str *out) {
    struct chat_state *s = g->state;
    keep_piece(g, c, piece, out);
    open_choice(g, c, piece->kind == GEN_TEXT, out);
    open_chunk(g, out);
    str_addf(out, "{\"index\":%u,\"delta\":{", c->index);
    if (piece->kind == GEN_CALL) {
        s->choices[c->index].input = (struct tool_input){0};
        str_addf(out, "\"tool_calls\":[{\"index\":%u,", piece->call);
        add_call(g, c, piece->call, false, out);
        str_add_char(out, ']');
    } else if (piece->kind == GEN_ARGUMENTS) {
        add_more_arguments(g, c, piece, out);
    } else {
        str_add(out, piece->kind == GEN_TEXT ? "\"content\":" : "\"reasoning_content\":");
        json_add_string(out, piece->text, piece->n);
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

static void add_choice(struct gen *g, struct gen_choice *c, str *out) {
    const struct chat_state *s = g->state;
    const str *text = g->stream ? &s->choices[c->index].text : &c->text;
    const str *reasoning = g->stream ? &s->choices[c->index].reasoning : &c->reasoning;
    str_addf(out, "{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":", c->index);
    if (text->len || !c->n_calls)
        json_add_string(out, str_cstr(text), text->len);
    else
        str_add(out, "null");
    if (reasoning->len) {
        str_add(out, ",\"reasoning_content\":");
        json_add_string(out, str_cstr(reasoning), reasoning->len);
    }
    for (uint32_t i = 0; i < c->n_calls; i++) {
        str_add(out, i ? ",{" : ",\"tool_calls\":[{");
        add_call(g, c, i, true, out);
    }
    str_add(out, c->n_calls ? "],\"refusal\":null}" : ",\"refusal\":null}");
    if (g->stream) /* they were not kept */
        str_add(out, ",\"logprobs\":null");
    else
        add_logprobs(g, c, out);
    str_addf(out, ",\"finish_reason\":\"%s\"}", finish_of(g, c));
}

/* The completion's object. */
static void add_completion(struct gen *g, str *out) {
    str_clear(&g->head); /* a stream's has another object */
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

/* Stores the completion, whose object is text[0..n), with its metadata. */
static void store_completion(struct gen *g, const char *text, size_t n) {
    const struct chat_state *s = g->state;
    err e = {0};
    str body;
    str_init(&body, REPLY_MAX_BYTES);
    str_add_n(&body, text, n - 1);
    str_add(&body, ",\"metadata\":");
    str_add(&body, s->metadata);
    str_add_char(&body, '}');
    const struct responses_row row = {.id = g->id,
                                      .key = s->key,
                                      .body = str_cstr(&body),
                                      .items = s->messages,
                                      .model = g->model->id,
                                      .metadata = s->metadata};
    int rc = body.failed ? err_no_memory(&e) : responses_put(s->store, &row, clock_wall_s(), &e);
    if (rc) log_warn("%s: %s is not stored: %s", g->request->id, g->id, e.msg);
    str_fini(&body);
}

static void store_stream(struct gen *g) {
    str body;
    str_init(&body, REPLY_MAX_BYTES);
    add_completion(g, &body);
    if (!body.failed) store_completion(g, str_cstr(&body), body.len);
    str_fini(&body);
}

static void chat_end(struct gen *g, str *out) {
    if (g->include_usage) {
        open_chunk(g, out);
        str_add(out, "],");
        gen_add_usage(g, out);
        str_add_char(out, '}');
        gen_frame_close(out);
    }
    const struct chat_state *s = g->state;
    if (s->store) store_stream(g);
    gen_frame_done(out);
}

static void chat_whole(struct gen *g, str *out) {
    const struct chat_state *s = g->state;
    size_t at = out->len;
    add_completion(g, out);
    if (s->store && !out->failed) store_completion(g, str_cstr(out) + at, out->len - at);
}

#define CHAT_WRITER(waits)                                                                         \
    {                                                                                              \
        .content_type = GEN_EVENT_STREAM, .stores = (waits), .param = "messages",                  \
        .logprob = gen_chat_logprob, .piece = chat_piece, .close = chat_close, .end = chat_end,    \
        .fail = gen_frame_error, .keepalive = gen_frame_comment, .whole = chat_whole,              \
        .free = free_state,                                                                        \
    }
static const struct gen_writer chat_writer = CHAT_WRITER(false), storing_writer = CHAT_WRITER(true);

/* ---- reading ---- */

/* Fills what storing the completion needs. */
static int prepare_store(struct request *r, const struct gen_fields *f,
                         const struct chat_request *chat, struct chat_state *s, err *e) {
    const char *key = auth_key(r);
    str messages, metadata;
    str_init(&messages, REPLY_MAX_BYTES);
    str_init(&metadata, REPLY_MAX_BYTES);
    str_add(&messages, "{\"messages\":");
    json_add_value(&messages, chat->messages);
    str_add_char(&messages, '}');
    if (f->metadata)
        json_add_value(&metadata, f->metadata);
    else
        str_add(&metadata, "{}");
    for (size_t i = 0; i < ENGINE_MAX_CHOICES; i++) {
        str_init(&s->choices[i].text, REPLY_MAX_BYTES);
        str_init(&s->choices[i].reasoning, REPLY_MAX_BYTES);
    }
    s->store = r->api->config.store;
    s->messages = str_take(&messages);
    s->metadata = str_take(&metadata);
    bool ok = s->messages && s->metadata && (!key || (s->key = mem_strdup(key)));
    str_fini(&messages);
    str_fini(&metadata);
    return ok ? 0 : err_no_memory(e);
}

static int start_chat(struct request *r, const struct gen_fields *f,
                      const struct chat_request *chat, err *e) {
    bool stores = f->store && r->api->config.store;
    struct chat_state *state = mem_new(1, sizeof *state);
    int rc = state ? 0 : err_no_memory(e);
    if (!rc) state->named = chat->tools.choice == CHAT_TOOLS_NAMED;
    if (!rc && chat->tools.forms && !(state->forms = cJSON_Duplicate(chat->tools.forms, true)))
        rc = err_no_memory(e);
    if (!rc && stores) rc = prepare_store(r, f, chat, state, e);
    if (rc) {
        free_state(state);
        return rc;
    }
    return chat_request_start(
        r, chat,
        &(struct chat_start){.writer = stores ? &storing_writer : &chat_writer,
                             .state = state,
                             .id_prefix = "chatcmpl-",
                             .n_state_bytes = stores ? strlen(state->messages) : 0},
        e);
}

/* Names the fields that require a store if there is none. */
static int check_store(struct request *r, const struct gen_fields *f, err *e) {
    bool stores = f->store && r->api->config.store;
    int rc = stores ? gen_metadata_check(f->metadata, e) : 0;
    if (!rc && f->store && !stores) rc = ignored_add(r->ignored, "store", e);
    if (!rc && !stores) rc = gen_metadata_ignore(f->metadata, r->ignored, e);
    return rc;
}

static int answer_chat(struct request *r, const cJSON *body, err *e) {
    struct gen_request q;
    struct chat_request chat;
    int rc = chat_body_read(r, body, &q, &chat, e);
    if (!rc) rc = check_store(r, &q.fields, e);
    if (!rc) rc = start_chat(r, &q.fields, &chat, e);
    chat_request_fini(&chat);
    return rc;
}

static void handle_chat(struct request *r) {
    gen_handle(r, answer_chat);
}

const struct route chat_route = {"POST",      "/v1/chat/completions", ROUTE_GENERATE | ROUTE_V1,
                                 handle_chat, .table = &chat_table,   .answers = "chat.completion"};
