/* writer.c - answers of /completion and /infill: one object or an array of them, and streams of
 * such objects. Also ends an answer by its lines: indentation, time. Runs on HTTP threads;
 * llama_state_new on pool threads. */
#include "api/generate/frames.h"
#include "api/http/json.h"
#include "api/http/request.h"
#include "api/llamacpp/llamacpp.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/text/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Where a choice's token ids are collected: gen.c counts and clears them with the text. */
enum { PROBS, TOKENS };

struct line {
    bool limited;   /* n_indent or t_max_predict_ms ended the answer */
    bool has_new;   /* a line has ended */
    bool indenting; /* only white space has come since */
    int64_t indent;
};

struct state {
    bool array, timings, tokens; /* timings_per_token; return_tokens or a stream */
    int64_t n_indent;
    uint64_t most_ns;
    str settings;
    cJSON *response_fields; /* owned; NULL: all */
    struct line lines[];    /* by choice */
};

static void free_state(void *state) {
    struct state *s = state;
    if (!s) return;
    str_fini(&s->settings);
    cJSON_Delete(s->response_fields);
    free(s);
}

int llama_state_new(const struct llama_body *b, uint32_t n_choices, bool many, void **out, err *e) {
    const struct llama_fields *f = &b->fields;
    const struct gen_options *o = &b->options;
    struct state *s = mem_new(1, sizeof *s + n_choices * sizeof *s->lines);
    *out = s;
    if (!s) return err_no_memory(e);
    str_init(&s->settings, REPLY_MAX_BYTES);
    s->array = many || n_choices > 1;
    s->timings = f->timings_per_token;
    s->tokens = f->return_tokens || o->stream;
    s->n_indent = f->n_indent;
    if (f->t_max_predict_ms > 0) s->most_ns = (uint64_t)f->t_max_predict_ms * 1000000;
    llama_add_settings(&(struct llama_settings){.params = &o->params,
                                                .stops = o->stops,
                                                .n_stops = o->n_stops,
                                                .n_predict = o->no_tokens ? 0
                                                             : o->params.max_tokens
                                                                 ? (int64_t)o->params.max_tokens
                                                                 : -1,
                                                .n_indent = f->n_indent,
                                                .t_max_predict_ms = f->t_max_predict_ms,
                                                .stream = o->stream,
                                                .timings_per_token = f->timings_per_token,
                                                .form = &b->form.format},
                       &s->settings);
    if (cJSON_GetArraySize(f->response_fields))
        s->response_fields = cJSON_Duplicate(f->response_fields, true);
    bool missing = cJSON_GetArraySize(f->response_fields) && !s->response_fields;
    if (!s->settings.failed && !missing) return 0;
    free_state(s);
    *out = NULL;
    return err_no_memory(e);
}

/* ---- the end of an answer by its lines ---- */

static void cut_text(struct gen_choice *c, size_t len) {
    c->text.len = len;
    if (c->text.data) c->text.data[len] = '\0';
}

/* Follows the last n bytes of the text. true: a line is indented less than n_indent, and what is
 * behind its white space is cut off. */
static bool follow_lines(const struct state *s, struct line *l, struct gen_choice *c, size_t n) {
    for (size_t i = c->text.len - n; i < c->text.len; i++) {
        char ch = c->text.data[i];
        if (l->indenting && (ch == ' ' || ch == '\t')) {
            l->indent++;
            continue;
        }
        if (l->indenting && l->indent < s->n_indent) {
            cut_text(c, i);
            return true;
        }
        l->indenting = ch == '\n';
        if (!l->indenting) continue;
        l->has_new = true;
        l->indent = 0;
    }
    return false;
}

static bool llama_token(struct gen *g, struct gen_choice *c, int32_t token, size_t n) {
    struct state *s = g->state;
    struct line *l = &s->lines[c->index];
    str *ids = &c->logprobs[TOKENS];
    if (s->tokens) str_addf(ids, ids->len ? ",%d" : "%d", (int)token);
    if (c->text.failed || !n) return false;
    bool newline = memchr(c->text.data + c->text.len - n, '\n', n) != NULL;
    l->limited = follow_lines(s, l, c, n);
    if (newline && s->most_ns && clock_now_ns() - g->first_ns > s->most_ns) l->limited = true;
    return l->limited;
}

/* ---- parts ---- */

static void add_token(const struct gen *g, int32_t token, float logprob, str *out) {
    size_t n;
    const char *bytes = tokenizer_token_bytes(g->tok, token, true, &n);
    str_addf(out, "{\"id\":%d,\"token\":", (int)token);
    json_add_string(out, bytes, utf8_whole(bytes, n));
    gen_add_bytes((const unsigned char *)bytes, n, out);
    str_add(out, ",\"logprob\":");
    json_add_number(out, (double)logprob);
}

static void llama_logprob(struct gen *g, struct gen_choice *c, const struct engine_event *ev,
                          bool has_logprob) {
    str *out = &c->logprobs[PROBS];
    (void)has_logprob; /* prompts are not scored */
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

static void add_rate(str *out, const char *name, uint64_t n, double ms) {
    double per_token = n ? ms / (double)n : 0, per_second = ms > 0 ? (double)n * 1000 / ms : 0;
    str_addf(out,
             "\"%s_n\":%" PRIu64 ",\"%s_ms\":%.3f,\"%s_per_token_ms\":%.3f,\"%s_per_second\":%.3f",
             name, n, name, ms, name, per_token, name, per_second);
}

static void add_timings(const struct gen *g, const struct gen_choice *c, str *out) {
    const struct gen_prompt *p = &g->prompts[c->prompt];
    uint64_t now = clock_now_ns(), start = g->request->start_ns;
    uint64_t first = g->first_ns > start ? g->first_ns : now;
    uint64_t computed = p->n > p->n_cached ? p->n - p->n_cached : 0;
    str_addf(out, ",\"timings\":{\"cache_n\":%" PRIu64 ",", p->n_cached);
    add_rate(out, "prompt", computed, (double)(first - start) * 1e-6);
    str_add_char(out, ',');
    add_rate(out, "predicted", c->n_tokens, (double)(now - first) * 1e-6);
    str_add_char(out, '}');
}

/* The members that pieces and whole answers begin with. */
static void add_head(const struct gen *g, const struct gen_choice *c, const char *text, size_t n,
                     bool stop, str *out) {
    const str *ids = &c->logprobs[TOKENS];
    str_addf(out, "{\"index\":%u,\"content\":", c->index);
    json_add_string(out, text, n);
    str_add(out, ",\"tokens\":[");
    str_add_n(out, str_cstr(ids), ids->len);
    str_addf(out,
             "],\"stop\":%s,\"id_slot\":-1,\"tokens_predicted\":%" PRIu64
             ",\"tokens_evaluated\":%zu",
             stop ? "true" : "false", c->n_tokens, g->prompts[c->prompt].n);
}

static void add_probs(const struct gen *g, const struct gen_choice *c, str *out) {
    const str *probs = &c->logprobs[PROBS];
    if (g->n_logprobs < 0) return;
    str_add(out, ",\"completion_probabilities\":[");
    str_add_n(out, str_cstr(probs), probs->len);
    str_add_char(out, ']');
}

static void add_prompt(const struct gen *g, const struct gen_choice *c, str *out) {
    const struct gen_prompt *p = &g->prompts[c->prompt];
    char *text = NULL;
    size_t n = 0;
    str_add(out, ",\"prompt\":");
    out->failed |= tokenizer_decode(g->tok, p->ids, p->n, true, &text, &n, NULL) != 0;
    json_add_string(out, text ? text : "", n);
    free(text);
}

static const char *stop_type(const struct gen *g, const struct gen_choice *c) {
    const struct state *s = g->state;
    if (c->stop_sequence) return "word";
    return s->lines[c->index].limited || c->finish == GEN_FINISH_LENGTH ? "limit" : "eos";
}

/* All members. */
static void add_final(struct gen *g, const struct gen_choice *c, str *out) {
    const struct state *s = g->state;
    uint64_t n_all = g->prompts[c->prompt].n + c->n_tokens;
    bool full = c->finish == GEN_FINISH_LENGTH && n_all >= engine_context_length(g->model->engine);
    add_head(g, c, str_cstr(&c->text), c->text.len, true, out);
    str_add(out, ",\"model\":");
    json_add_cstr(out, g->model->id);
    str_add(out, ",\"generation_settings\":");
    str_add_n(out, str_cstr(&s->settings), s->settings.len);
    add_prompt(g, c, out);
    str_addf(out,
             ",\"has_new_line\":%s,\"truncated\":%s,\"stop_type\":\"%s\",\"tokens_cached\":%" PRIu64
             ",\"stopping_word\":",
             s->lines[c->index].has_new ? "true" : "false", full ? "true" : "false",
             stop_type(g, c), n_all);
    json_add_cstr(out, c->stop_sequence ? c->stop_sequence : "");
    add_timings(g, c, out);
    add_probs(g, c, out);
    str_add_char(out, '}');
}

/* ---- response_fields ---- */

/* The member at path, "a/b/c", or NULL. */
static const cJSON *member_at(const cJSON *v, const char *path) {
    while (v) {
        char name[128];
        size_t n = strcspn(path, "/");
        if (n >= sizeof name) return NULL;
        memcpy(name, path, n);
        name[n] = '\0';
        v = cJSON_IsObject(v) ? cJSON_GetObjectItemCaseSensitive(v, name) : NULL;
        if (!path[n]) return v;
        path += n + 1;
    }
    return NULL;
}

static void add_chosen(const struct state *s, const str *all, str *out) {
    cJSON *tree = NULL;
    bool first = true;
    out->failed |= json_parse(str_cstr(all), all->len, &tree, NULL) != 0;
    str_add_char(out, '{');
    for (const cJSON *f = s->response_fields->child; tree && f; f = f->next) {
        const cJSON *v = member_at(tree, f->valuestring);
        if (!v) continue;
        if (!first) str_add_char(out, ',');
        first = false;
        json_add_cstr(out, f->valuestring);
        str_add_char(out, ':');
        json_add_value(out, v);
    }
    str_add_char(out, '}');
    cJSON_Delete(tree);
}

static void add_answer(struct gen *g, const struct gen_choice *c, str *out) {
    const struct state *s = g->state;
    if (!s->response_fields) {
        add_final(g, c, out);
        return;
    }
    str all;
    str_init(&all, REPLY_MAX_BYTES);
    add_final(g, c, &all);
    out->failed |= all.failed;
    if (!all.failed) add_chosen(s, &all, out);
    str_fini(&all);
}

/* ---- the writer ---- */

static void llama_piece(struct gen *g, struct gen_choice *c, const struct gen_piece *piece,
                        str *out) {
    const struct state *s = g->state;
    gen_frame_open(g, NULL, out);
    add_head(g, c, piece->text, piece->n, false, out);
    if (s->timings) add_timings(g, c, out);
    add_probs(g, c, out);
    str_add_char(out, '}');
    gen_frame_close(out);
}

static void llama_close(struct gen *g, struct gen_choice *c, str *out) {
    gen_frame_open(g, NULL, out);
    add_answer(g, c, out);
    gen_frame_close(out);
}

static void llama_end(struct gen *g, str *out) {
    (void)g;
    (void)out; /* the last answer's event has stop: true */
}

static void llama_fail(struct gen *g, const struct api_error *error, str *out) {
    gen_frame_open(g, NULL, out);
    llama_write_error(out, error);
    gen_frame_close(out);
}

static void llama_whole(struct gen *g, str *out) {
    const struct state *s = g->state;
    if (s->array) str_add_char(out, '[');
    for (uint32_t i = 0; i < g->n_choices; i++) {
        if (i) str_add_char(out, ',');
        add_answer(g, &g->choices[i], out);
    }
    if (s->array) str_add_char(out, ']');
}

const struct gen_writer llama_writer = {
    .content_type = GEN_EVENT_STREAM,
    .param = "prompt",
    .logprob = llama_logprob,
    .token = llama_token,
    .piece = llama_piece,
    .close = llama_close,
    .end = llama_end,
    .fail = llama_fail,
    .keepalive = gen_frame_comment,
    .whole = llama_whole,
    .free = free_state,
};
