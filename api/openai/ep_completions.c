/* ep_completions.c - POST /v1/completions: reading one or more prompts, as text or token ids (on
 * pool threads), and writing choices (on HTTP threads). */
#include "api/generate/body.h"
#include "api/generate/frames.h"
#include "api/generate/gen.h"
#include "api/generate/prompts.h"
#include "api/http/costs.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/openai/completions.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/text/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member)  .offset = offsetof(struct gen_fields, member)
#define HAS(member) .has = 1 + offsetof(struct gen_fields, member)

enum {
    NUL = JSON_NULLABLE,
    MAX_LOGPROBS = 5, /* OpenAI's bounds */
    MAX_BEST_OF = 20,
    DEFAULT_MAX_TOKENS = 16
};
_Static_assert((int)MAX_LOGPROBS <= (int)ENGINE_MAX_TOP_LOGPROBS, "the engine returns that many");

static const struct json_field fields[] = {
    {"prompt", JSON_VALUE, NUL | JSON_REQUIRED | JSON_OR_STRING | JSON_OR_ARRAY | JSON_WITH_NUL,
     AT(prompt),
     .help = "A text, an array of texts, token ids or an array of such arrays; null is the empty "
             "text."},
    {"suffix", JSON_STRING, NUL, AT(suffix),
     .help = "Text after the answer, for models with fill-in-the-middle tokens."},
    {"max_tokens", JSON_INT, NUL, AT(max_tokens), HAS(has_max_tokens), -1, 2147483647.0,
     .initial = "16",
     .help = "0 scores the prompt without generating; -1: up to the context length."},
    {"max_completion_tokens", JSON_INT, NUL, AT(max_completion_tokens),
     HAS(has_max_completion_tokens), -1, 2147483647.0, .help = "The same; chat's name."},
    {"logprobs", JSON_INT, NUL, AT(n_logprobs), HAS(has_n_logprobs), 0, MAX_LOGPROBS,
     .help = "Returns log-probabilities of the tokens and of that many most likely alternatives."},
    {"echo", JSON_BOOL, NUL, AT(echo), .initial = "false",
     .help = "Starts the answer with the prompt; with logprobs also the prompt's, without tokens "
             "that the tokenizer added."},
    {"parse_special", JSON_BOOL, NUL, AT(parse_special), .initial = "true",
     .help = "Control tokens that the prompt spells (chat marks, fill-in-the-middle tokens) are "
             "those tokens; false: they are text. With 'suffix' they are always text."},
    {"best_of", JSON_INT, NUL, AT(best_of), HAS(has_best_of), 1, MAX_BEST_OF,
     .help = "Candidates to generate; the n with the highest mean log-probability are returned. "
             "Not with stream."},
};
static bool is_text_format(const cJSON *v) {
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(v, "type"));
    return type && strcmp(type, "text") == 0;
}

/* They would change the answer, but only a chat has them. */
static const char use_chat[] = "use /v1/chat/completions";
static const struct json_field chat_fields[] = {
    {"messages", JSON_REFUSED, NUL, .why = use_chat},
    {"tools", JSON_REFUSED, NUL, .why = use_chat},
    {"response_format", JSON_REFUSED, NUL, .accepts = is_text_format, .why = use_chat},
    {"structured_outputs", JSON_REFUSED, NUL, .why = use_chat},
    {"guided_json", JSON_REFUSED, NUL, .why = use_chat},
    {"guided_regex", JSON_REFUSED, NUL, .why = use_chat},
    {"guided_choice", JSON_REFUSED, NUL, .why = use_chat},
    {"guided_grammar", JSON_REFUSED, NUL, .why = use_chat},
    {"json_schema", JSON_REFUSED, NUL, .why = use_chat},
    {"grammar", JSON_REFUSED, NUL, .why = use_chat},
};
static const struct json_table chat_table = JSON_TABLE(chat_fields, &gen_table);
const struct json_table completions_table = JSON_TABLE(fields, &chat_table);

/* ---- the best of several ---- */

/* Log-probability sums of each choice: the writer's state if best_of exceeds n. */
struct scores {
    uint32_t n, best_of; /* choices per prompt: returned, generated */
    bool hidden;         /* the request did not ask for log-probabilities */
    struct score {
        double sum;
        uint64_t n;
    } of[]; /* by choice */
};

/* An end-of-answer token has no event, so a choice without other tokens ranks last. */
static double mean_logprob(const struct score *s) {
    return s->n ? s->sum / (double)s->n : -INFINITY;
}

/* The number of better choices of the same prompt; of equal ones the first is better. */
static uint32_t rank_of(const struct gen *g, uint32_t index) {
    const struct scores *s = g->state;
    uint32_t from = index / s->best_of * s->best_of, better = 0;
    for (uint32_t i = from; i < from + s->best_of; i++) {
        double a = mean_logprob(&s->of[i]), b = mean_logprob(&s->of[index]);
        better += a > b || (a == b && i < index);
    }
    return better;
}

/* ---- writing ---- */

/* Writes a token as a JSON string; bytes that are not whole characters are escaped, as OpenAI
 * does. */
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

/* Writes the best tokens as an object. Keys must differ, and the chosen token is always
 * included. */
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
    struct scores *scores = g->state;
    if (scores && ev->kind == ENGINE_EVENT_TOKEN) {
        scores->of[c->index].sum += (double)ev->logprob;
        scores->of[c->index].n++;
    }
    if (scores && scores->hidden) return;
    if (c->n_logprobs)
        for (size_t k = 0; k < 4; k++)
            str_add_char(&c->logprobs[k], ',');
    add_token(g, ev->token, &c->logprobs[0]);
    if (has_logprob) {
        json_add_number(&c->logprobs[1], (double)ev->logprob);
        add_tops(g, ev, &c->logprobs[2]);
    } else { /* it has no predecessor; the schema wants an object */
        str_add(&c->logprobs[1], "null");
        str_add(&c->logprobs[2], "{}");
    }
    str_addf(&c->logprobs[3], "%" PRIu64, c->n_chars);
    size_t n;
    bool spelled = ev->kind == ENGINE_EVENT_PROMPT && g->prompts[c->prompt].text;
    const char *bytes = tokenizer_token_bytes(g->tok, ev->token, spelled, &n);
    size_t from = n && c->drops_space && bytes[0] == ' ';
    if (n) c->drops_space = false;
    c->n_chars += utf8_count(bytes + from, n - from);
}

static void add_choice(const struct gen *g, const struct gen_choice *c, const char *finish,
                       str *out) {
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    const struct scores *scores = g->state;
    uint32_t index = c->index;
    if (scores) index = c->prompt * scores->n + rank_of(g, index);
    str_addf(out, "{\"index\":%u,\"text\":", index);
    json_add_string(out, str_cstr(&c->text), c->text.len);
    str_add(out, ",\"logprobs\":");
    if (g->n_logprobs < 0 || (scores && scores->hidden)) {
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
    str_add(out, g->include_usage ? "],\"usage\":null" : "]");
    gen_add_padding(g, c->text.len, out);
    str_add_char(out, '}');
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

/* Writes the best n choices of a prompt by rank. */
static void add_best(struct gen *g, uint32_t from, str *out) {
    const struct scores *s = g->state;
    for (uint32_t rank = 0; rank < s->n; rank++)
        for (uint32_t i = from; i < from + s->best_of; i++)
            if (rank_of(g, i) == rank) {
                if (rank) str_add_char(out, ',');
                add_choice(g, &g->choices[i], gen_finish_name(g->choices[i].finish), out);
            }
}

static void completions_whole(struct gen *g, str *out) {
    const struct scores *scores = g->state;
    gen_add_head(g, "text_completion", out);
    str_add(out, "\"choices\":[");
    for (uint32_t i = 0; i < g->n_choices; i += scores ? scores->best_of : 1) {
        if (i) str_add_char(out, ',');
        if (scores)
            add_best(g, i, out);
        else
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
    .free = free,
};

/* ---- reading ---- */

static int check_suffix(const struct gen_request *q, err *e) {
    struct tokenizer_fim fim;
    if (!q->fields.suffix || !*q->fields.suffix) return 0;
    if (!tokenizer_fim(engine_tokenizer(q->model->engine), &fim))
        return err_set_param(
            e, ERR_UNSUPPORTED, "suffix",
            "Unsupported value for 'suffix': the model '%.200s' has no fill-in-the-middle tokens.",
            q->model->id);
    if (q->fields.echo)
        return err_set_param(e, ERR_INVALID, "echo", "'echo' cannot be combined with 'suffix'.");
    return 0;
}

/* Generates best_of choices instead of n. */
static int read_best_of(struct gen_request *q, err *e) {
    uint32_t n = q->options.n_choices;
    if (!q->fields.has_best_of) q->fields.best_of = n;
    if (q->fields.best_of < n)
        return err_set_param(e, ERR_INVALID, "best_of",
                             "Invalid value for 'best_of': it must not be less than 'n' (%u).", n);
    if (q->fields.best_of > n && q->options.stream)
        return err_set_param(e, ERR_INVALID, "best_of",
                             "'best_of' greater than 'n' cannot be combined with 'stream'.");
    q->options.n_choices = (uint32_t)q->fields.best_of;
    return 0;
}

/* The writer's state if best_of exceeds n, else NULL. */
static int new_scores(struct gen_request *q, size_t n_prompts, struct scores **out, err *e) {
    uint32_t n = (uint32_t)q->fields.n, best_of = q->options.n_choices;
    *out = NULL;
    if (best_of == n) return 0;
    struct scores *s = mem_new(1, sizeof *s + n_prompts * best_of * sizeof *s->of);
    if (!s) return err_no_memory(e);
    s->n = n;
    s->best_of = best_of;
    s->hidden = q->options.params.n_logprobs < 0;
    if (s->hidden) q->options.params.n_logprobs = 0;
    *out = s;
    return 0;
}

int completions_read(struct request *r, const cJSON *body, struct gen_request *q,
                     struct gen_prompt **prompts, size_t *n, err *e) {
    gen_fields_default(&q->fields);
    q->fields.default_max_tokens = DEFAULT_MAX_TOKENS;
    int rc = gen_request_read(r, body, &completions_table, q, e);
    if (!rc) rc = check_suffix(q, e);
    if (!rc) rc = read_best_of(q, e);
    if (rc) return rc;
    const struct prompts_config config = {.param = "prompt",
                                          .tok = engine_tokenizer(q->model->engine),
                                          .suffix = q->fields.suffix,
                                          .parse_special = q->fields.parse_special,
                                          .max_tokens = engine_context_length(q->model->engine),
                                          .max = ENGINE_MAX_CHOICES / q->options.n_choices,
                                          .n_answers = q->options.n_choices};
    uint64_t begin_ns = clock_now_ns();
    rc = prompts_read(&config, q->fields.prompt, prompts, n, e);
    costs_add_part(r, PART_TOKENIZE, begin_ns);
    return rc;
}

static int answer_completions(struct request *r, const cJSON *body, err *e) {
    struct gen_request q;
    struct gen_prompt *prompts;
    struct scores *scores;
    size_t n;
    int rc = completions_read(r, body, &q, &prompts, &n, e);
    if (rc) return rc;
    rc = new_scores(&q, n, &scores, e);
    if (rc) {
        gen_prompts_free(prompts, n);
        return rc;
    }
    return gen_start(&(struct gen_config){.request = r,
                                          .model = q.model,
                                          .writer = &completions_writer,
                                          .state = scores,
                                          .id_prefix = "cmpl-",
                                          .options = &q.options,
                                          .prompts = prompts,
                                          .n_prompts = n},
                     e);
}

static void handle_completions(struct request *r) {
    gen_handle(r, answer_completions);
}

const struct route completions_route = {"POST",
                                        "/v1/completions",
                                        ROUTE_GENERATE,
                                        handle_completions,
                                        .table = &completions_table,
                                        .answers = "text_completion"};
