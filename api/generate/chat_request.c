/* chat_request.c - messages -> template -> tokens -> generation, for all chat endpoints. Runs on
 * pool threads. */
#include "api/generate/chat_request.h"
#include "api/generate/api_state.h"
#include "api/generate/constraint.h"
#include "api/generate/gen.h"
#include "api/generate/miss.h"
#include "api/generate/preset.h"
#include "api/generate/tools.h"
#include "api/http/costs.h"
#include "api/http/json.h"
#include "api/http/request.h"
#include "api/http/settings.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void chat_request_init(struct chat_request *q, struct ignored *ignored) {
    *q = (struct chat_request){.ignored = ignored,
                               .add_generation_prompt = true,
                               .tools.parallel = true,
                               .param_messages = "messages",
                               .param_tools = "tools",
                               .param_function = ".function",
                               .param_schema = "parameters",
                               .param_format = "response_format",
                               .param_effort = "reasoning_effort"};
}

void chat_request_fini(struct chat_request *q) {
    cJSON_Delete(q->messages);
    cJSON_Delete(q->extra);
    cJSON_Delete(q->tools.list);
    cJSON_Delete(q->tools.forms);
    cJSON_Delete(q->format.parsed);
}

int chat_request_set(struct chat_request *q, const char *name, cJSON *value, err *e) {
    if (!q->extra) q->extra = cJSON_CreateObject();
    if (q->extra && value && cJSON_AddItemToObject(q->extra, name, value)) return 0;
    cJSON_Delete(value);
    return err_no_memory(e);
}

bool chat_is_system(const cJSON *message) {
    const char *role = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "role"));
    return role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
}

/* Templates usually write the BOS token themselves; then the tokenizer must not add another. */
static int encode_flags(const tokenizer *tok, const struct chat_output *text) {
    int32_t bos = tokenizer_bos(tok);
    size_t n = 0;
    const char *word = bos >= 0 ? tokenizer_token_text(tok, bos, &n) : NULL;
    bool written = n && text->n_spans && text->spans[0].trusted && text->n >= n &&
                   memcmp(text->text, word, n) == 0;
    return TOKENIZER_PARSE_SPECIAL | (written ? 0 : TOKENIZER_ADD_SPECIAL);
}

/* The tokens of the first n_spans spans; *ids is the caller's. */
static int encode_spans(struct request *r, const struct chat_request *q,
                        const struct chat_output *text, size_t n_spans, int32_t **ids,
                        size_t *n_ids, err *e) {
    const tokenizer *tok = engine_tokenizer(q->model->engine);
    tokenizer_piece *pieces = mem_new(n_spans, sizeof *pieces);
    if (!pieces) return err_no_memory(e);
    for (size_t i = 0; i < n_spans; i++) {
        const struct chat_span *s = &text->spans[i];
        pieces[i] = (tokenizer_piece){text->text + s->start, s->end - s->start, s->trusted};
    }
    uint64_t begin_ns = clock_now_ns();
    int rc = tokenizer_encode_pieces(tok, pieces, n_spans, encode_flags(tok, text),
                                     engine_context_length(q->model->engine), ids, n_ids, e);
    costs_add_part(r, PART_TOKENIZE, begin_ns);
    free(pieces);
    return rc;
}

int chat_request_tokens(struct request *r, const struct chat_request *q,
                        const struct chat_output *text, struct gen_prompt *prompt, err *e) {
    int rc = encode_spans(r, q, text, text->n_spans, &prompt->ids, &prompt->n, e);
    if (rc == ERR_TOO_LONG)
        return err_set_param(e, rc, q->param_messages,
                             "This model's maximum context length is %u tokens; the messages are "
                             "longer than that.",
                             engine_context_length(q->model->engine));
    if (!rc && !prompt->n)
        return err_set_param(e, ERR_INVALID, q->param_messages,
                             "The messages render to an empty prompt.");
    if (rc && !*e->param) snprintf(e->param, sizeof e->param, "%s", q->param_messages);
    return rc;
}

/* The error for a failed render: the template's own message and its line. */
static int explain_failure(const struct chat_request *q, const struct jinja_failure *why, err *e) {
    char text[sizeof why->text];
    if (e->code == ERR_WORK)
        return err_set_param(e, ERR_INVALID, q->param_messages,
                             "Rendering the messages exceeds the work limit of the chat template: "
                             "send fewer or shorter messages.");
    if (e->code == ERR_DEADLINE || e->code == ERR_CANCELLED || why->fault == JINJA_FAULT_NONE)
        return e->code;
    snprintf(text, sizeof text, "%s", why->text);
    if (why->fault == JINJA_FAULT_TEMPLATE)
        return err_set_param(e, ERR_INVALID, q->param_messages,
                             "The chat template refuses the messages (line %d): %s", why->line,
                             text);
    /* Reaching a limit is the request's fault, too: other requests render. */
    return err_set_param(e, ERR_INVALID, q->param_messages,
                         "The chat template fails on the messages (line %d): %s", why->line, text);
}

/* Renames the messages' reasoning to the member that the template reads. */
static int rename_reasoning(const struct chat_request *q, err *e) {
    static const char ours[] = "reasoning_content";
    const char *theirs = chat_template_syntax(q->model->chat)->reasoning_member;
    if (!theirs || strcmp(theirs, ours) == 0) return 0;
    for (cJSON *m = q->messages->child; m; m = m->next) {
        cJSON *thought = cJSON_DetachItemFromObjectCaseSensitive(m, ours);
        if (!thought) continue;
        if (cJSON_AddItemToObject(m, theirs, thought)) continue;
        cJSON_Delete(thought);
        return err_no_memory(e);
    }
    return 0;
}

/* The tools that the template writes, of a list that the caller frees. One that knows none finds
 * them described in the messages. */
static int native_tools(const struct chat_request *q, cJSON **tools, err *e) {
    *tools = NULL;
    return chat_template_syntax(q->model->chat)->native ? chat_tools_shown(&q->tools, tools, e) : 0;
}

/* Renders messages that are complete. */
static int render(struct request *r, const struct chat_request *q, struct chat_output *text,
                  err *e) {
    cJSON *tools;
    int rc = native_tools(q, &tools, e);
    if (rc) return rc;
    const struct chat_input in = {.messages = q->messages,
                                  .tools = tools,
                                  .documents = q->documents,
                                  .extra = q->extra,
                                  .add_generation_prompt = q->add_generation_prompt,
                                  .continue_final_message = q->continue_final_message,
                                  .developer_as_system = true,
                                  .now = clock_wall_s(),
                                  .work = &r->work};
    /* A template repeats little of its input; this limits a hostile one. */
    size_t max_bytes = (size_t)r->settings->config.max_body_bytes * 2 + 65536;
    uint64_t begin_ns = clock_now_ns();
    rc = chat_prompt(q->model->chat, &in, max_bytes, text, e);
    costs_add_part(r, PART_TEMPLATE, begin_ns);
    cJSON_Delete(tools);
    return rc;
}

/* Tells a model whose template knows no tools of them, or puts calls where it shows none. */
static int instruct(const struct chat_request *q, err *e) {
    const struct chat_syntax *syntax = chat_template_syntax(q->model->chat);
    cJSON *tools = NULL;
    if (syntax->in_text) return chat_write_calls(syntax, q->messages, e);
    if (syntax->native) return 0;
    int rc = chat_tools_shown(&q->tools, &tools, e);
    if (!rc) rc = chat_instruct(q->model->chat, q->messages, tools, e);
    cJSON_Delete(tools);
    return rc;
}

int chat_request_render(struct request *r, const struct chat_request *q, struct chat_output *text,
                        err *e) {
    const struct api_model *m = q->model;
    if (!m->chat)
        return err_set_param(e, ERR_UNSUPPORTED, "model",
                             "The model '%.200s' has no chat template: use /v1/completions, or "
                             "ask the server's operator to configure a template.",
                             m->id);
    int rc = preset_add_messages(r, q, e);
    if (!rc) rc = rename_reasoning(q, e);
    if (!rc) rc = instruct(q, e);
    if (rc) return rc;
    rc = render(r, q, text, e);
    if (rc) rc = explain_failure(q, &text->failure, e);
    if (rc && !*e->param) snprintf(e->param, sizeof e->param, "%s", q->param_messages);
    return rc;
}

int chat_request_encode(struct request *r, const struct chat_request *q, struct gen_prompt *prompt,
                        err *e) {
    struct chat_output text = {0};
    int rc = chat_request_render(r, q, &text, e);
    if (!rc) rc = chat_request_tokens(r, q, &text, prompt, e);
    chat_output_fini(&text);
    return rc;
}

/* ---- where later prompts part from this one ---- */

/* Spans before the last text that is not the template's, which is the last message: a client may
 * send the others again with another one, or with one of another role. So the template's text
 * between them does not count, unless it is all there is. */
static size_t spans_before_last(const struct chat_output *text) {
    size_t n = text->n_spans;
    while (n && text->spans[n - 1].trusted)
        n--;
    if (n < 2) return 0;
    size_t before = --n;
    while (n && text->spans[n - 1].trusted)
        n--;
    return n ? n : before;
}

/* Leading spans that are the same in both. */
static size_t spans_in_common(const struct chat_output *a, const struct chat_output *b) {
    size_t n = 0;
    for (; n < a->n_spans && n < b->n_spans; n++) {
        const struct chat_span *x = &a->spans[n], *y = &b->spans[n];
        if (x->trusted != y->trusted || x->end != y->end ||
            memcmp(a->text + x->start, b->text + y->start, x->end - x->start) != 0)
            break;
    }
    return n;
}

/* The system messages that q begins with, and a user's message that no client sends. */
static cJSON *other_messages(const struct chat_request *q, bool *has_system) {
    cJSON *list = cJSON_CreateArray(), *user = cJSON_CreateObject(), *m = q->messages->child;
    bool ok = list && user && cJSON_AddStringToObject(user, "role", "user") &&
              cJSON_AddStringToObject(user, "content", "The first message of another chat.");
    *has_system = chat_is_system(m);
    for (; ok && chat_is_system(m); m = m->next)
        ok = cJSON_AddItemReferenceToArray(list, m);
    if (ok && cJSON_AddItemToArray(list, user)) return list;
    cJSON_Delete(list);
    cJSON_Delete(user);
    return NULL;
}

/* The spans of the system messages and the tools, wherever the template puts them: those that
 * another conversation with them begins with, too. 0: there are none, or the template refuses. */
static int spans_of_system(struct request *r, const struct chat_request *q,
                           const struct chat_output *text, size_t *n_spans, err *e) {
    struct chat_request other = *q;
    struct chat_output others = {0};
    bool has_system;
    err why = {0};
    *n_spans = 0;
    other.messages = other_messages(q, &has_system);
    other.continue_final_message = false;
    if (!other.messages) return err_no_memory(e);
    int rc = has_system || q->tools.list ? render(r, &other, &others, &why) : 0;
    if (!rc) *n_spans = spans_in_common(text, &others);
    if (rc && r->work.reason) *e = why;
    rc = rc && r->work.reason ? explain_failure(q, &others.failure, e) : 0;
    chat_output_fini(&others);
    cJSON_Delete(other.messages);
    return rc;
}

static int encode_beginning(struct request *r, const struct chat_request *q,
                            const struct chat_output *text, size_t n_spans, uint32_t *n, err *e) {
    int32_t *ids = NULL;
    size_t n_ids = 0;
    int rc = n_spans ? encode_spans(r, q, text, n_spans, &ids, &n_ids, e) : 0;
    free(ids);
    *n = (uint32_t)n_ids;
    return rc;
}

/* Hints for models that keep states: how many tokens the beginnings of the text have. They are
 * among the prompt's, unless the tokenizer changes the text. */
static int mark_stable(struct request *r, const struct chat_request *q,
                       const struct chat_output *text, struct gen_prompt *prompt, err *e) {
    const tokenizer *tok = engine_tokenizer(q->model->engine);
    size_t n_spans[2] = {0, spans_before_last(text)}, ends[2], counts[2];
    if (!engine_model(q->model->engine).recurrent) return 0;
    int rc = spans_of_system(r, q, text, &n_spans[0], e);
    if (rc) return rc;
    for (int i = 0; i < 2; i++)
        ends[i] = n_spans[i] ? text->spans[n_spans[i] - 1].end : 0;
    if (tokenizer_count_within(tok, prompt->ids, prompt->n, text->text, text->n, ends, 2, counts)) {
        prompt->n_system = (uint32_t)counts[0];
        prompt->n_stable = (uint32_t)counts[1];
        return 0;
    }
    rc = encode_beginning(r, q, text, n_spans[0], &prompt->n_system, e);
    if (!rc) rc = encode_beginning(r, q, text, n_spans[1], &prompt->n_stable, e);
    return rc;
}

/* ---- the answer ---- */

/* Where in the family's syntax the answer begins. */
static enum chat_begin begin_of(const struct chat_request *q, const struct chat_output *text) {
    if (q->continue_final_message) return CHAT_BEGIN_TEXT;
    return chat_syntax_begin(chat_template_syntax(q->model->chat), text->text, text->n);
}

/* Makes the prompt, and the parser and grammar of its answer. */
static int prepare_answer(struct request *r, const struct chat_request *q,
                          struct gen_prompt *prompt, struct chat_parser_config *parser,
                          struct engine_params *params, err *e) {
    struct chat_output text = {0};
    grammar *g = NULL;
    int rc = chat_tools_check(q, e);
    if (!rc) rc = chat_request_render(r, q, &text, e);
    if (!rc) rc = chat_request_tokens(r, q, &text, prompt, e);
    if (!rc) rc = mark_stable(r, q, &text, prompt, e);
    if (!rc && miss_is_asked(r))
        miss_map_new(engine_tokenizer(q->model->engine), prompt, q->messages, &prompt->miss_map);
    if (!rc) {
        const tokenizer *tok = engine_tokenizer(q->model->engine);
        bool lead = tokenizer_strips_leading_space(tok) &&
                    tokenizer_is_control(tok, prompt->ids[prompt->n - 1]);
        parser->begin = begin_of(q, &text);
        uint64_t begin_ns = clock_now_ns();
        rc = chat_constraint_make(r, q, parser->begin, lead, &g, e);
        costs_add_part(r, PART_GRAMMAR, begin_ns);
        params->grammar = g;
    }
    chat_output_fini(&text);
    return rc;
}

int chat_request_start(struct request *r, const struct chat_request *q,
                       const struct chat_start *how, err *e) {
    const char *names[CHAT_MAX_TOOLS];
    struct chat_parser_config parser = {.names = names};
    struct gen_options options = *q->options;
    struct gen_prompt *prompt = mem_new(1, sizeof *prompt);
    if (options.params.bias) options.params.bias = options.bias;
    int rc = prompt ? prepare_answer(r, q, prompt, &parser, &options.params, e) : err_no_memory(e);
    if (rc) {
        gen_prompts_free(prompt, prompt != NULL);
        if (how->writer->free) how->writer->free(how->state);
        return rc;
    }
    parser.syntax = chat_template_syntax(q->model->chat);
    parser.n_names = chat_tools_names(q, names);
    bool parted = parser.n_names || *parser.syntax->reasoning_open;
    rc = gen_start(&(struct gen_config){.request = r,
                                        .model = q->model,
                                        .writer = how->writer,
                                        .chat = true,
                                        .state = how->state,
                                        .id_prefix = how->id_prefix,
                                        .n_state_bytes = how->n_state_bytes,
                                        .options = &options,
                                        .prompts = prompt,
                                        .n_prompts = 1,
                                        .parser = parted ? &parser : NULL},
                   e);
    grammar_release((grammar *)options.params.grammar);
    return rc;
}
