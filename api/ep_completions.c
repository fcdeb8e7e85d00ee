/* ep_completions.c - POST /v1/completions: one or more prompts as text or token ids, and how a
 * completion's choice is written. Runs on HTTP threads. */
#include "api/gen.h"
#include "api/prompts.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member)  .offset = offsetof(struct gen_fields, member)
#define HAS(member) .has = 1 + offsetof(struct gen_fields, member)

enum { NUL = JSON_NULLABLE };

static bool is_one(const cJSON *v) {
    return cJSON_IsNumber(v) && v->valuedouble == 1;
}

static bool is_empty_string(const cJSON *v) {
    return cJSON_IsString(v) && !*v->valuestring;
}

static const struct json_field fields[] = {
    {"prompt", JSON_VALUE, JSON_REQUIRED, AT(prompt)},
    {"max_tokens", JSON_INT, NUL, AT(max_tokens), HAS(has_max_tokens), 0, 2147483647.0},
    {"logprobs", JSON_INT, NUL, AT(n_logprobs), HAS(has_n_logprobs), 0, ENGINE_MAX_TOP_LOGPROBS},
    {"echo", JSON_BOOL, NUL, AT(echo)},
    {"best_of", JSON_REFUSED, NUL, .accepts = is_one,
     .why = "only 1 is supported: ask for several choices with 'n'"},
    {"suffix", JSON_REFUSED, NUL, .accepts = is_empty_string,
     .why = "text cannot be inserted before a suffix"},
};
const struct json_table completions_table = {fields, sizeof fields / sizeof *fields, &gen_table};

/* ---- writing ---- */

/* A token as a JSON string; bytes that are no whole characters are spelled out, as OpenAI does. */
static void add_token(const struct gen *g, int32_t token, str *out) {
    size_t n;
    const char *bytes = tokenizer_token_bytes(g->tok, token, true, &n);
    if (utf8_valid(bytes, n)) {
        json_add_string(out, bytes, n);
        return;
    }
    str_add(out, "\"bytes:");
    for (size_t i = 0; i < n; i++)
        str_addf(out, "\\\\x%02x", (unsigned char)bytes[i]);
    str_add_char(out, '"');
}

static void add_top(const struct gen *g, int32_t token, float logprob, str *out) {
    add_token(g, token, out);
    str_add_char(out, ':');
    json_add_number(out, (double)logprob);
}

static bool same_bytes(const struct gen *g, int32_t a, int32_t b) {
    size_t n, m;
    const char *x = tokenizer_token_bytes(g->tok, a, true, &n);
    const char *y = tokenizer_token_bytes(g->tok, b, true, &m);
    return n == m && memcmp(x, y, n) == 0;
}

/* The best tokens as an object; keys must differ, and the chosen token is always among them. */
static void add_tops(const struct gen *g, const struct engine_event *ev, str *out) {
    bool chosen = false, first = true;
    str_add_char(out, '{');
    for (int i = 0; i < ev->n_top && i < g->n_logprobs; i++) {
        bool again = false;
        for (int k = 0; k < i; k++)
            again |= same_bytes(g, ev->top_token[i], ev->top_token[k]);
        if (again) continue;
        if (!first) str_add_char(out, ',');
        first = false;
        add_top(g, ev->top_token[i], ev->top_logprob[i], out);
        chosen |= same_bytes(g, ev->top_token[i], ev->token);
    }
    if (!chosen) {
        if (!first) str_add_char(out, ',');
        add_top(g, ev->token, ev->logprob, out);
    }
    str_add_char(out, '}');
}

static void completions_logprob(struct gen *g, struct gen_choice *c, const struct engine_event *ev,
                                bool has_logprob) {
    if (c->n_logprobs)
        for (size_t k = 0; k < 4; k++)
            str_add_char(&c->logprobs[k], ',');
    add_token(g, ev->token, &c->logprobs[0]);
    if (has_logprob) {
        json_add_number(&c->logprobs[1], (double)ev->logprob);
        add_tops(g, ev, &c->logprobs[2]);
    } else {
        str_add(&c->logprobs[1], "null");
        str_add(&c->logprobs[2], "null");
    }
    str_addf(&c->logprobs[3], "%" PRIu64, c->n_chars);
    size_t n;
    const char *bytes = tokenizer_token_bytes(g->tok, ev->token, false, &n);
    for (size_t i = 0; i < n; i++)
        c->n_chars += (bytes[i] & 0xc0) != 0x80;
}

static void add_choice(const struct gen *g, const struct gen_choice *c, const char *finish,
                       str *out) {
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    str_addf(out, "{\"index\":%u,\"text\":", c->index);
    json_add_string(out, str_cstr(&c->text), c->text.len);
    str_add(out, ",\"logprobs\":");
    if (g->n_logprobs < 0) {
        str_add(out, "null");
    } else {
        for (size_t k = 0; k < 4; k++) {
            str_addf(out, "%s\"%s\":[", k ? "," : "{", names[k]);
            str_add_n(out, str_cstr(&c->logprobs[k]), c->logprobs[k].len);
            str_add_char(out, ']');
        }
        str_add_char(out, '}');
    }
    str_add(out, ",\"finish_reason\":");
    if (finish)
        str_addf(out, "\"%s\"}", finish);
    else
        str_add(out, "null}");
}

static void write_chunk(struct gen *g, const struct gen_choice *c, const char *finish, str *out) {
    gen_frame_open(g, NULL, out);
    gen_add_head(g, "text_completion", out);
    str_add(out, "\"choices\":[");
    add_choice(g, c, finish, out);
    str_add(out, g->include_usage ? "],\"usage\":null}" : "]}");
    gen_frame_close(out);
}

static void completions_piece(struct gen *g, struct gen_choice *c, const struct gen_piece *piece,
                              str *out) {
    (void)piece; /* all of it is c->text */
    write_chunk(g, c, NULL, out);
}

static void completions_close(struct gen *g, struct gen_choice *c, str *out) {
    write_chunk(g, c, gen_finish_name(c->finish), out);
}

static void completions_end(struct gen *g, str *out) {
    if (g->include_usage) {
        gen_frame_open(g, NULL, out);
        gen_add_head(g, "text_completion", out);
        str_add(out, "\"choices\":[],");
        gen_add_usage(g, out);
        str_add_char(out, '}');
        gen_frame_close(out);
    }
    gen_frame_done(out);
}

static void completions_whole(struct gen *g, str *out) {
    gen_add_head(g, "text_completion", out);
    str_add(out, "\"choices\":[");
    for (uint32_t i = 0; i < g->n_choices; i++) {
        if (i) str_add_char(out, ',');
        add_choice(g, &g->choices[i], gen_finish_name(g->choices[i].finish), out);
    }
    str_add(out, "],");
    gen_add_usage(g, out);
    str_add_char(out, '}');
}

static const struct gen_writer completions_writer = {
    .content_type = GEN_EVENT_STREAM,
    .param = "prompt",
    .logprob = completions_logprob,
    .piece = completions_piece,
    .close = completions_close,
    .end = completions_end,
    .fail = gen_frame_error,
    .keepalive = gen_frame_comment,
    .whole = completions_whole,
};

static int run(struct request *r, const cJSON *body, err *e) {
    struct gen_request q;
    gen_fields_default(&q.fields);
    q.fields.max_tokens = 16; /* OpenAI's default */
    q.fields.has_max_tokens = true;
    int rc = gen_request_read(r, body, &completions_table, &q, e);
    if (rc) return rc;
    struct gen_prompt *prompts;
    size_t n;
    const struct prompts_config config = {.param = "prompt",
                                          .tok = engine_tokenizer(q.model->engine),
                                          .max_tokens = engine_context_length(q.model->engine),
                                          .max = ENGINE_MAX_CHOICES / q.options.n_choices};
    rc = prompts_read(&config, q.fields.prompt, &prompts, &n, e);
    if (rc) return rc;
    return gen_start(&(struct gen_config){.request = r,
                                          .model = q.model,
                                          .writer = &completions_writer,
                                          .id_prefix = "cmpl-",
                                          .options = &q.options,
                                          .prompts = prompts,
                                          .n_prompts = n},
                     e);
}

void ep_completions(struct request *r) {
    gen_handle(r, run);
}
