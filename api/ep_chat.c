/* ep_chat.c - POST /v1/chat/completions: body -> messages -> template -> tokens -> generation, and
 * how a chat choice is written. Runs on HTTP threads. */
#include "api/gen.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

static void add_token(const struct gen *g, int32_t token, float logprob, str *out) {
    size_t n;
    const unsigned char *bytes =
        (const unsigned char *)tokenizer_token_bytes(g->tok, token, true, &n);
    str_add(out, "{\"token\":");
    json_add_string(out, (const char *)bytes, n);
    str_add(out, ",\"logprob\":");
    json_add_number(out, (double)logprob);
    str_add(out, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++)
        str_addf(out, i ? ",%u" : "%u", bytes[i]);
    str_add_char(out, ']');
}

static void chat_logprob(struct gen *g, struct gen_choice *c, const struct engine_event *ev,
                         bool has_logprob) {
    str *out = &c->logprobs[0];
    (void)has_logprob; /* only prompts lack it, and chat does not echo */
    if (c->n_logprobs) str_add_char(out, ',');
    add_token(g, ev->token, ev->logprob, out);
    str_add(out, ",\"top_logprobs\":[");
    for (int i = 0; i < ev->n_top && i < g->n_logprobs; i++) {
        if (i) str_add_char(out, ',');
        add_token(g, ev->top_token[i], ev->top_logprob[i], out);
        str_add_char(out, '}');
    }
    str_add(out, "]}");
}

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

static void chat_open(struct gen *g, struct gen_choice *c, str *out) {
    (void)g;
    str_addf(out,
             "{\"index\":%u,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},"
             "\"logprobs\":null,\"finish_reason\":null}",
             c->index);
}

static void chat_chunk(struct gen *g, struct gen_choice *c, bool last, str *out) {
    str_addf(out, "{\"index\":%u,\"delta\":{", c->index);
    if (last) {
        str_addf(out, "},\"logprobs\":null,\"finish_reason\":\"%s\"}", c->finish_reason);
        return;
    }
    str_add(out, "\"content\":");
    json_add_string(out, str_cstr(&c->text), c->text.len);
    str_add_char(out, '}');
    add_logprobs(g, c, out);
    str_add(out, ",\"finish_reason\":null}");
}

static void chat_whole(struct gen *g, struct gen_choice *c, str *out) {
    str_addf(out, "{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":", c->index);
    json_add_string(out, str_cstr(&c->text), c->text.len);
    str_add(out, ",\"refusal\":null}");
    add_logprobs(g, c, out);
    str_addf(out, ",\"finish_reason\":\"%s\"}", c->finish_reason);
}

static const struct gen_writer chat_writer = {
    "chatcmpl-", "chat.completion", "chat.completion.chunk", "messages", chat_logprob, chat_open,
    chat_chunk,  chat_whole};

/* ---- prompt ---- */

/* Templates usually write the BOS token themselves; the tokenizer's own must not come on top. */
static int encode_flags(const tokenizer *tok, const struct chat_output *text) {
    int32_t bos = tokenizer_bos(tok);
    size_t n = 0;
    const char *word = bos >= 0 ? tokenizer_token_text(tok, bos, &n) : NULL;
    bool written = n && text->n_spans && text->spans[0].trusted && text->n >= n &&
                   memcmp(text->text, word, n) == 0;
    return TOKENIZER_PARSE_SPECIAL | (written ? 0 : TOKENIZER_ADD_SPECIAL);
}

static int encode_spans(const struct api_model *m, const struct chat_output *text,
                        struct gen_prompt *prompt, err *e) {
    const tokenizer *tok = engine_tokenizer(m->engine);
    tokenizer_piece *pieces = mem_new(text->n_spans, sizeof *pieces);
    if (!pieces) return err_set(e, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < text->n_spans; i++) {
        const struct chat_span *s = &text->spans[i];
        pieces[i] = (tokenizer_piece){text->text + s->start, s->end - s->start, s->trusted};
    }
    uint32_t limit = engine_context_length(m->engine);
    int rc = tokenizer_encode_pieces(tok, pieces, text->n_spans, encode_flags(tok, text), limit,
                                     &prompt->ids, &prompt->n, e);
    free(pieces);
    if (rc == ERR_TOO_LONG)
        return err_set_param(e, rc, "messages",
                             "This model's maximum context length is %u tokens; the messages are "
                             "longer than that.",
                             limit);
    if (!rc && !prompt->n)
        return err_set_param(e, ERR_INVALID, "messages", "The messages give an empty prompt.");
    return rc;
}

/* A failed render, as the client is told: the template's own words and the line. */
static int explain(const struct chat_failure *why, err *e) {
    char text[sizeof why->text];
    if (why->fault == CHAT_FAULT_NONE) return e->code;
    snprintf(text, sizeof text, "%s", why->text);
    if (why->fault == CHAT_FAULT_TEMPLATE)
        return err_set_param(e, ERR_INVALID, "messages",
                             "The chat template refuses the messages (line %d): %s", why->line,
                             text);
    /* Reaching a bound is the request's fault too: others render. */
    return err_set_param(e, ERR_INVALID, "messages",
                         "The chat template fails on the messages (line %d): %s", why->line, text);
}

static int make_prompt(struct request *r, const struct gen_request *q, struct gen_prompt *prompt,
                       err *e) {
    const struct api_model *m = q->model;
    if (!m->chat)
        return err_set_param(e, ERR_UNSUPPORTED, "model",
                             "The model '%.200s' has no chat template: set chat-template in the "
                             "server's configuration, or use /v1/completions.",
                             m->id);
    struct chat_input in = {.now = clock_wall_s(), .developer_as_system = true};
    struct chat_output text = {0};
    cJSON *clean = NULL, *extra = NULL;
    int rc = chat_messages_read(q->fields.messages, &clean, e);
    if (!rc) rc = chat_fields_read(&q->fields, m->chat, &in, &extra, e);
    in.messages = clean;
    /* A template repeats little of its input; a hostile one must not fill the memory. */
    size_t max_bytes = (size_t)r->api->config.max_body_bytes * 2 + 65536;
    if (!rc && chat_prompt(m->chat, &in, max_bytes, &text, e)) rc = explain(&text.failure, e);
    cJSON_Delete(clean);
    cJSON_Delete(extra);
    if (!rc) rc = encode_spans(m, &text, prompt, e);
    chat_output_fini(&text);
    if (rc && !*e->param) snprintf(e->param, sizeof e->param, "messages");
    return rc;
}

static int run(struct request *r, const cJSON *body, err *e) {
    struct gen_request q;
    gen_fields_default(&q.fields);
    int rc = gen_request_read(r, body, &chat_table, &q, e);
    if (rc) return rc;
    struct gen_prompt *prompt = mem_new(1, sizeof *prompt);
    if (!prompt) return err_set(e, ERR_NOMEM, "out of memory");
    rc = make_prompt(r, &q, prompt, e);
    if (rc) {
        gen_prompts_free(prompt, 1);
        return rc;
    }
    return gen_start(&(struct gen_config){r, q.model, &chat_writer, &q.options, prompt, 1}, e);
}

void ep_chat(struct request *r) {
    gen_handle(r, run);
}
