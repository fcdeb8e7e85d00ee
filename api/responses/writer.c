/* responses/writer.c - the answer of POST /v1/responses: the response object, its events, and
 * storing it. Owns a request's struct response_state. Runs on the connection's HTTP thread; the end
 * and whole answers on a pool thread.
 *
 * Both forms of an answer consist of the same items: a stream reports each as it is generated, a
 * whole answer is divided into items at its end. A piece of another kind begins another item. A
 * call of a tool that OpenAI defines (client_tools.h) is reported when it is whole: its item has
 * the arguments in another form. */
#include "api/generate/frames.h"
#include "api/generate/gen.h"
#include "api/generate/tool_form.h"
#include "api/http/id.h"
#include "api/http/request.h"
#include "api/responses/client_tools.h"
#include "api/responses/responses.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum item_kind { ITEM_MESSAGE, ITEM_REASONING, ITEM_CALL, ITEM_CUSTOM, ITEM_CLIENT };

struct item {
    enum item_kind kind;
    char id[48];
    char call_id[48];               /* of a call */
    char *name;                     /* of a call's function; owned */
    struct tool_input input;        /* ITEM_CUSTOM */
    const struct client_tool *tool; /* ITEM_CLIENT */
    str text;                       /* the message, the reasoning, the arguments or input */
    str logprobs;                   /* ITEM_MESSAGE: members of the array */
    const char *status;
};

struct response_state {
    responses *store;
    bool stores;
    char *key, *previous_id, *conversation; /* owned; NULL: none */
    cJSON *forms;                           /* of tools other than functions; owned */
    str echo;                               /* response_fields_echo */
    char *input;                            /* the request's own items as a JSON array */
    char **input_ids;                       /* (n_input_ids) */
    size_t n_input_ids;
    struct item *items; /* (n_items) */
    size_t n_items;
    bool open;   /* the last item may grow */
    bool frames; /* a stream: changes are written as events */
    uint64_t n_events;
};

static bool copy_input(struct response_state *st, const cJSON *input) {
    str text;
    str_init(&text, REPLY_MAX_BYTES);
    json_add_value(&text, input);
    st->input_ids = mem_new((uint64_t)cJSON_GetArraySize(input), sizeof *st->input_ids);
    bool ok = st->input_ids && !text.failed;
    for (const cJSON *v = input->child; v && ok; v = v->next) {
        const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(v, "id"));
        ok = (st->input_ids[st->n_input_ids] = mem_strdup(id ? id : "")) != NULL;
        st->n_input_ids += ok;
    }
    if (ok) ok = (st->input = str_take(&text)) != NULL;
    str_fini(&text);
    return ok;
}

struct response_state *response_state_new(const struct response_config *c) {
    struct response_state *st = mem_new(1, sizeof *st);
    bool ok = st != NULL;
    if (ok) {
        const char *previous = c->fields->previous_response_id;
        const char *conversation = response_fields_conversation(c->fields);
        st->store = c->store;
        st->stores = c->store && c->stores;
        st->frames = c->fields->gen.stream;
        str_init(&st->echo, REPLY_MAX_BYTES);
        response_fields_echo(c->fields, &st->echo);
        ok = !st->echo.failed && (!c->forms || (st->forms = cJSON_Duplicate(c->forms, true))) &&
             (!c->key || (st->key = mem_strdup(c->key))) &&
             (!previous || (st->previous_id = mem_strdup(previous))) &&
             (!conversation || (st->conversation = mem_strdup(conversation))) &&
             copy_input(st, c->input);
    }
    cJSON_Delete(c->input);
    if (ok) return st;
    response_state_free(st);
    return NULL;
}

size_t response_state_bytes(const struct response_state *st) {
    return st->echo.len + strlen(st->input);
}

static void free_item(struct item *it) {
    free(it->name);
    str_fini(&it->text);
    str_fini(&it->logprobs);
}

void response_state_free(void *state) {
    struct response_state *st = state;
    if (!st) return;
    for (size_t i = 0; i < st->n_items; i++)
        free_item(&st->items[i]);
    for (size_t i = 0; i < st->n_input_ids; i++)
        free(st->input_ids[i]);
    free(st->items);
    free(st->input_ids);
    free(st->input);
    free(st->key);
    free(st->previous_id);
    free(st->conversation);
    cJSON_Delete(st->forms);
    str_fini(&st->echo);
    free(st);
}

/* ---- objects ---- */

/* How much of an item is written: its start; all but log-probabilities; all. */
enum extent { BEGUN, PLAIN, FULL };

static void add_part(const struct item *it, enum extent extent, str *out) {
    str_addf(out, "{\"type\":\"%s\",\"text\":",
             it->kind == ITEM_REASONING ? "reasoning_text" : "output_text");
    json_add_string(out, str_cstr(&it->text), extent == BEGUN ? 0 : it->text.len);
    if (it->kind == ITEM_MESSAGE) {
        str_add(out, ",\"annotations\":[],\"logprobs\":[");
        if (extent == FULL) str_add_n(out, str_cstr(&it->logprobs), it->logprobs.len);
        str_add_char(out, ']');
    }
    str_add_char(out, '}');
}

static bool is_call(const struct item *it) {
    return it->kind == ITEM_CALL || it->kind == ITEM_CUSTOM;
}

static void add_client_item(const struct item *it, str *out) {
    str_addf(out, "{\"id\":\"%s\",\"type\":\"%s\",\"status\":\"%s\",\"call_id\":\"%s\"", it->id,
             it->tool->call, it->status, it->call_id);
    if (!client_tool_add_action(it->tool, str_cstr(&it->text), it->text.len, out))
        out->failed = true; /* it is whole, so there is no memory */
    str_add_char(out, '}');
}

static void add_item(const struct response_state *st, const struct item *it, enum extent extent,
                     str *out) {
    static const char *const types[] = {"message", "reasoning", "function_call",
                                        "custom_tool_call"};
    if (it->kind == ITEM_CLIENT) {
        add_client_item(it, out);
        return;
    }
    str_addf(out, "{\"id\":\"%s\",\"type\":\"%s\",\"status\":\"%s\"", it->id, types[it->kind],
             it->status);
    if (is_call(it)) {
        const struct tool_form form = tool_form_of(st->forms, it->name);
        str_addf(out, ",\"call_id\":\"%s\",\"name\":", it->call_id);
        json_add_cstr(out, form.name);
        if (form.space) {
            str_add(out, ",\"namespace\":");
            json_add_cstr(out, form.space);
        }
        str_addf(out, ",\"%s\":", form.custom ? "input" : "arguments");
        json_add_string(out, str_cstr(&it->text), extent == BEGUN ? 0 : it->text.len);
        str_add_char(out, '}');
        return;
    }
    str_add(out, it->kind == ITEM_MESSAGE ? ",\"role\":\"assistant\"" : ",\"summary\":[]");
    str_add(out, ",\"content\":[");
    if (extent != BEGUN) add_part(it, extent, out);
    str_add(out, "]}");
}

static void add_items(const struct response_state *st, enum extent extent, str *out) {
    for (size_t i = 0; i < st->n_items; i++) {
        if (i) str_add_char(out, ',');
        add_item(st, &st->items[i], extent, out);
    }
}

static void add_usage(const struct gen *g, str *out) {
    struct gen_usage u = gen_usage_of(g);
    str_addf(out,
             ",\"usage\":{\"input_tokens\":%" PRIu64 ",\"input_tokens_details\":{\"cached_tokens\":"
             "%" PRIu64 ",\"cache_write_tokens\":%" PRIu64 "},\"output_tokens\":%" PRIu64
             ",\"output_tokens_details\":{\"reasoning_tokens\":%" PRIu64
             "},\"total_tokens\":%" PRIu64 "}",
             u.prompt, u.cached, u.prompt - u.cached, u.completion, u.reasoning,
             u.prompt + u.completion);
}

/* The state of the response object. error: NULL, or why it failed. */
struct object {
    const char *status;
    const struct api_error *error;
    bool stored;
};
static void add_response(const struct gen *g, const struct object *o, str *out) {
    const struct response_state *st = g->state;
    bool begun = strcmp(o->status, "in_progress") == 0;
    str_addf(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%" PRId64, g->id,
             g->created_s);
    str_addf(out, ",\"status\":\"%s\",\"background\":false,\"completed_at\":", o->status);
    if (strcmp(o->status, "completed") == 0)
        str_addf(out, "%" PRId64, clock_wall_s());
    else
        str_add(out, "null");
    str_add(out, ",\"error\":");
    if (o->error) {
        str_add(out, "{\"code\":\"server_error\",\"message\":");
        json_add_cstr(out, o->error->message);
        str_add_char(out, '}');
    } else {
        str_add(out, "null");
    }
    str_addf(out, ",\"incomplete_details\":%s,\"model\":",
             strcmp(o->status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
    json_add_cstr(out, g->model->id);
    str_add(out, ",\"output\":[");
    if (!begun) add_items(st, FULL, out);
    str_addf(out, "],\"store\":%s", o->stored ? "true" : "false");
    if (!begun) add_usage(g, out);
    str_add_n(out, str_cstr(&st->echo), st->echo.len);
    str_add_char(out, '}');
}

/* ---- events ---- */

static void open_event(struct gen *g, const char *type, str *out) {
    struct response_state *st = g->state;
    gen_frame_open(g, type, out);
    str_addf(out, "{\"type\":\"%s\",\"sequence_number\":%" PRIu64, type, st->n_events++);
}

static void close_event(str *out) {
    str_add_char(out, '}');
    gen_frame_close(out);
}

static void response_event(struct gen *g, const char *type, const struct object *o, str *out) {
    open_event(g, type, out);
    str_add(out, ",\"response\":");
    add_response(g, o, out);
    close_event(out);
}

/* Opens an event about the last item; if it is about its part, with content_index. */
static void open_item_event(struct gen *g, const char *type, str *out) {
    const struct response_state *st = g->state;
    const struct item *it = &st->items[st->n_items - 1];
    open_event(g, type, out);
    str_addf(out, ",\"item_id\":\"%s\",\"output_index\":%zu", it->id, st->n_items - 1);
    if (!is_call(it)) str_add(out, ",\"content_index\":0");
}

static void item_event(struct gen *g, const char *type, enum extent extent, str *out) {
    const struct response_state *st = g->state;
    open_event(g, type, out);
    str_addf(out, ",\"output_index\":%zu,\"item\":", st->n_items - 1);
    add_item(st, &st->items[st->n_items - 1], extent, out);
    close_event(out);
}

static void part_event(struct gen *g, const char *type, enum extent extent, str *out) {
    const struct response_state *st = g->state;
    open_item_event(g, type, out);
    str_add(out, ",\"part\":");
    add_part(&st->items[st->n_items - 1], extent, out);
    close_event(out);
}

static const struct {
    const char *delta, *done, *text;
} names[] = {
    [ITEM_MESSAGE] = {"response.output_text.delta", "response.output_text.done", "text"},
    [ITEM_REASONING] = {"response.reasoning_text.delta", "response.reasoning_text.done", "text"},
    [ITEM_CALL] = {"response.function_call_arguments.delta",
                   "response.function_call_arguments.done", "arguments"},
    [ITEM_CUSTOM] = {"response.custom_tool_call_input.delta",
                     "response.custom_tool_call_input.done", "input"},
};

static void delta_event(struct gen *g, const char *text, size_t n, const str *logprobs, str *out) {
    const struct response_state *st = g->state;
    enum item_kind kind = st->items[st->n_items - 1].kind;
    open_item_event(g, names[kind].delta, out);
    str_add(out, ",\"delta\":");
    json_add_string(out, text, n);
    if (kind == ITEM_MESSAGE) {
        str_add(out, ",\"logprobs\":[");
        str_add_n(out, str_cstr(logprobs), logprobs->len);
        str_add_char(out, ']');
    }
    gen_add_padding(g, n, out);
    close_event(out);
}

static void done_event(struct gen *g, str *out) {
    const struct response_state *st = g->state;
    const struct item *it = &st->items[st->n_items - 1];
    open_item_event(g, names[it->kind].done, out);
    if (it->kind == ITEM_CALL) {
        str_add(out, ",\"name\":");
        json_add_cstr(out, tool_form_of(st->forms, it->name).name);
    }
    str_addf(out, ",\"%s\":", names[it->kind].text);
    json_add_string(out, str_cstr(&it->text), it->text.len);
    if (it->kind == ITEM_MESSAGE) {
        str_add(out, ",\"logprobs\":[");
        str_add_n(out, str_cstr(&it->logprobs), it->logprobs.len);
        str_add_char(out, ']');
    }
    close_event(out);
}

/* ---- items ---- */

/* Reports the call, or drops it if the end of the answer cut it off. */
static void close_client_item(struct gen *g, struct item *it, const char *status, str *out) {
    struct response_state *st = g->state;
    str action;
    str_init(&action, REPLY_MAX_BYTES);
    bool whole = client_tool_add_action(it->tool, str_cstr(&it->text), it->text.len, &action);
    str_fini(&action);
    if (!whole) {
        free_item(it);
        st->n_items--;
        return;
    }
    if (st->frames) item_event(g, "response.output_item.added", FULL, out);
    it->status = status;
    if (st->frames) item_event(g, "response.output_item.done", FULL, out);
}

static void close_item(struct gen *g, const char *status, str *out) {
    struct response_state *st = g->state;
    if (!st->open) return;
    struct item *it = &st->items[st->n_items - 1];
    st->open = false;
    if (it->kind == ITEM_CLIENT) {
        close_client_item(g, it, status, out);
        return;
    }
    it->status = status;
    if (!st->frames) return;
    done_event(g, out);
    if (!is_call(it)) part_event(g, "response.content_part.done", FULL, out);
    item_event(g, "response.output_item.done", FULL, out);
}

/* Opens an item. call NULL: not a call. */
static struct item *open_item(struct gen *g, enum item_kind kind, const struct gen_call *call,
                              str *out) {
    static const char *const prefixes[] = {"msg_", "rs_", "fc_", "ctc_"};
    struct response_state *st = g->state;
    close_item(g, "completed", out);
    struct item *grown = mem_resize(st->items, st->n_items + 1, sizeof *grown);
    if (grown) st->items = grown;
    char *name = call ? mem_strdup(call->name) : NULL;
    if (!grown || (call && !name)) {
        out->failed = true;
        free(name);
        return NULL;
    }
    struct item *it = &st->items[st->n_items++];
    *it = (struct item){.kind = kind, .name = name, .status = "in_progress"};
    if (kind == ITEM_CLIENT)
        it->tool = client_tool_of(CLIENT_TOOL_TYPE, tool_form_of(st->forms, name).kind);
    id_new(it->id, it->tool ? it->tool->call_prefix : prefixes[kind]);
    if (call) memcpy(it->call_id, call->id, sizeof it->call_id);
    str_init(&it->text, REPLY_MAX_BYTES);
    str_init(&it->logprobs, REPLY_MAX_BYTES);
    st->open = true;
    if (st->frames && !it->tool) {
        item_event(g, "response.output_item.added", BEGUN, out);
        if (!is_call(it)) part_event(g, "response.content_part.added", BEGUN, out);
    }
    return it;
}

static enum item_kind kind_of_call(const struct response_state *st, const struct gen_choice *c,
                                   uint32_t call) {
    const struct tool_form form = tool_form_of(st->forms, c->calls[call].name);
    return form.kind ? ITEM_CLIENT : form.custom ? ITEM_CUSTOM : ITEM_CALL;
}

static void take_piece(struct gen *g, struct gen_choice *c, const struct gen_piece *piece,
                       str *out) {
    struct response_state *st = g->state;
    const str *logprobs = &c->logprobs[0];
    struct item *it = st->open ? &st->items[st->n_items - 1] : NULL;
    enum item_kind kind = piece->kind == GEN_TEXT        ? ITEM_MESSAGE
                          : piece->kind == GEN_REASONING ? ITEM_REASONING
                                                         : kind_of_call(st, c, piece->call);
    if (piece->kind == GEN_CALL) {
        open_item(g, kind, &c->calls[piece->call], out);
        return;
    }
    bool empty = !piece->n && !(kind == ITEM_MESSAGE && logprobs->len);
    if (empty) return;
    if (!it || it->kind != kind) it = open_item(g, kind, NULL, out);
    if (!it) return;
    size_t before = it->text.len;
    if (kind == ITEM_CUSTOM)
        tool_input_take(&it->input, piece->text, piece->n, &it->text);
    else
        str_add_n(&it->text, piece->text, piece->n);
    g->n_held += piece->n + (kind == ITEM_MESSAGE ? logprobs->len : 0);
    if (kind == ITEM_MESSAGE && logprobs->len) {
        if (it->logprobs.len) str_add_char(&it->logprobs, ',');
        str_add_n(&it->logprobs, str_cstr(logprobs), logprobs->len);
    }
    out->failed = out->failed || it->text.failed || it->logprobs.failed;
    size_t n = it->text.len - before;
    if (st->frames && !it->tool && (n || kind == ITEM_MESSAGE))
        delta_event(g, str_cstr(&it->text) + before, n, logprobs, out);
}

/* An answer without pieces is an empty message. */
static void close_choice(struct gen *g, struct gen_choice *c, str *out) {
    struct response_state *st = g->state;
    const char *status = c->finish == GEN_FINISH_LENGTH ? "incomplete" : "completed";
    close_item(g, status, out);
    if (st->n_items) return;
    open_item(g, ITEM_MESSAGE, NULL, out);
    close_item(g, status, out);
}

/* ---- the end ---- */

/* The ids of output and input items, borrowed. NULL: no memory. */
static const char **all_ids(const struct response_state *st) {
    size_t n = 0;
    const char **ids = mem_new(st->n_input_ids + st->n_items, sizeof *ids);
    for (size_t i = 0; ids && i < st->n_items; i++)
        ids[n++] = st->items[i].id;
    for (size_t i = 0; ids && i < st->n_input_ids; i++)
        ids[n++] = st->input_ids[i];
    return ids;
}

static bool store_response(struct gen *g, const str *body, const char **ids) {
    struct response_state *st = g->state;
    err e = {0};
    str items;
    str_init(&items, REPLY_MAX_BYTES);
    str_add(&items, "{\"input\":");
    str_add(&items, st->input);
    str_add(&items, ",\"output\":[");
    add_items(st, PLAIN, &items);
    str_add(&items, "]}");
    const struct responses_row row = {.id = g->id,
                                      .key = st->key,
                                      .previous_id = st->previous_id,
                                      .body = str_cstr(body),
                                      .items = str_cstr(&items),
                                      .item_ids = ids,
                                      .n_items = st->n_items + st->n_input_ids};
    bool whole = ids && !body->failed && !items.failed;
    int rc = whole ? responses_put(st->store, &row, clock_wall_s(), &e) : err_no_memory(&e);
    if (rc) log_warn("%s: %s is not stored: %s", g->request->id, g->id, e.msg);
    str_fini(&items);
    return rc == 0;
}

/* Adds the items of input and output to the conversation. */
static void extend_conversation(struct gen *g, const char **ids) {
    struct response_state *st = g->state;
    size_t n = strlen(st->input);
    err e = {0};
    str items;
    str_init(&items, REPLY_MAX_BYTES);
    str_add_n(&items, st->input + 1, n - 2); /* without the brackets */
    if (n > 2 && st->n_items) str_add_char(&items, ',');
    add_items(st, PLAIN, &items);
    const struct responses_change c = {.id = st->conversation,
                                       .key = st->key,
                                       .more_items = str_cstr(&items),
                                       .item_ids = ids,
                                       .n_items = st->n_items + st->n_input_ids};
    bool whole = ids && !items.failed;
    int rc = whole ? responses_change(st->store, &c, clock_wall_s(), &e) : err_no_memory(&e);
    if (rc)
        log_warn("%s: %s is not added to %s: %s", g->request->id, g->id, st->conversation, e.msg);
    str_fini(&items);
}

/* Writes the final object to body, which the caller ends. If storing fails, the object says so. */
static void make_final(struct gen *g, struct object *o, str *body) {
    const struct response_state *st = g->state;
    const char **ids = st->store ? all_ids(st) : NULL;
    o->stored = st->stores;
    str_init(body, REPLY_MAX_BYTES);
    add_response(g, o, body);
    if (o->stored && !store_response(g, body, ids)) {
        o->stored = false;
        str_clear(body);
        add_response(g, o, body);
    }
    if (st->store && st->conversation && !o->error) extend_conversation(g, ids);
    free(ids);
}

static const char *final_status(const struct gen *g) {
    return g->choices[0].finish == GEN_FINISH_LENGTH ? "incomplete" : "completed";
}

static void final_event(struct gen *g, struct object *o, str *out) {
    str body, type;
    make_final(g, o, &body);
    str_init(&type, 64);
    str_addf(&type, "response.%s", o->status);
    open_event(g, str_cstr(&type), out);
    str_add(out, ",\"response\":");
    str_add_n(out, str_cstr(&body), body.len);
    out->failed = out->failed || body.failed || type.failed;
    close_event(out);
    str_fini(&body);
    str_fini(&type);
}

static void write_begin(struct gen *g, str *out) {
    const struct response_state *st = g->state;
    const struct object o = {.status = "in_progress", .stored = st->stores};
    response_event(g, "response.created", &o, out);
    response_event(g, "response.in_progress", &o, out);
}

static void write_end(struct gen *g, str *out) {
    struct object o = {.status = final_status(g)};
    final_event(g, &o, out);
}

static void write_failure(struct gen *g, const struct api_error *error, str *out) {
    struct object o = {.status = "failed", .error = error};
    close_item(g, "incomplete", out);
    open_event(g, "error", out);
    str_add(out, ",\"code\":");
    json_add_cstr(out, error->code ? error->code : error->type);
    str_add(out, ",\"message\":");
    json_add_cstr(out, error->message);
    str_add(out, ",\"param\":null");
    close_event(out);
    final_event(g, &o, out);
}

/* Takes the pieces that a stream would have brought: reasoning, text, calls. */
static void write_whole(struct gen *g, str *out) {
    struct gen_choice *c = &g->choices[0];
    struct object o = {.status = final_status(g)};
    const struct gen_piece thought = {
        .kind = GEN_REASONING, .text = str_cstr(&c->reasoning), .n = c->reasoning.len};
    const struct gen_piece text = {.kind = GEN_TEXT, .text = str_cstr(&c->text), .n = c->text.len};
    str body;
    take_piece(g, c, &thought, out);
    if (c->text.len || !c->n_calls) take_piece(g, c, &text, out);
    for (uint32_t i = 0; i < c->n_calls; i++) {
        const str *arguments = &c->calls[i].arguments;
        const struct gen_piece call = {.kind = GEN_CALL, .call = i};
        const struct gen_piece rest = {
            .kind = GEN_ARGUMENTS, .text = str_cstr(arguments), .n = arguments->len, .call = i};
        take_piece(g, c, &call, out);
        take_piece(g, c, &rest, out);
    }
    close_choice(g, c, out);
    make_final(g, &o, &body);
    str_add_n(out, str_cstr(&body), body.len);
    out->failed = out->failed || body.failed;
    str_fini(&body);
}

const struct gen_writer response_writer = {
    .content_type = GEN_EVENT_STREAM,
    .stores = true,
    .param = "input",
    .logprob = gen_chat_logprob,
    .begin = write_begin,
    .piece = take_piece,
    .close = close_choice,
    .end = write_end,
    .fail = write_failure,
    .keepalive = gen_frame_comment,
    .whole = write_whole,
    .free = response_state_free,
};
