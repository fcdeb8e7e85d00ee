/* ep_completion.c - POST /completion, /completions and /infill: llama.cpp's own form of raw
 * completions, and filling in the middle. Reads on pool threads; writer.c writes. */
#include "api/generate/body.h"
#include "api/generate/constraint.h"
#include "api/http/costs.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/llamacpp/llamacpp.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdlib.h>

/* An error with the numbers that clients read. */
static void reply_too_long(struct request *r, size_t n_prompt, uint32_t context) {
    str out;
    str_init(&out, 4096);
    str_addf(&out,
             "{\"error\":{\"code\":400,\"message\":\"The prompt has %zu tokens, but the context "
             "has %u: send a shorter one.\",\"type\":\"exceed_context_size_error\","
             "\"n_prompt_tokens\":%zu,\"n_ctx\":%u}}",
             n_prompt, context, n_prompt, context);
    reply_json(r, 400, &out);
}

/* Replies if a prompt leaves no room for one token. */
static bool refuse_long(struct request *r, const struct gen_prompt *prompts, size_t n) {
    uint32_t context = engine_context_length(r->model->engine);
    for (size_t i = 0; i < n; i++)
        if (prompts[i].n >= context) {
            reply_too_long(r, prompts[i].n, context);
            return true;
        }
    return false;
}

/* The grammar is the answer's whole text, whatever the chat template's syntax. */
static int make_grammar(struct request *r, struct llama_body *b, const struct gen_prompt *p,
                        err *e) {
    const tokenizer *tok = engine_tokenizer(r->model->engine);
    bool lead = !p->infill && tokenizer_strips_leading_space(tok) &&
                tokenizer_is_control(tok, p->ids[p->n - 1]);
    grammar *g = NULL;
    uint64_t begin_ns = clock_now_ns();
    int rc = chat_constraint_make(r, &b->form, CHAT_BEGIN_TEXT, lead, &g, e);
    costs_add_part(r, PART_GRAMMAR, begin_ns);
    b->options.params.grammar = g;
    return rc;
}

static int start(struct request *r, struct llama_body *b, struct gen_prompt *prompts, size_t n,
                 bool many, err *e) {
    void *state = NULL;
    int rc = make_grammar(r, b, &prompts[0], e);
    uint32_t n_choices = (uint32_t)n * b->options.n_choices;
    if (!rc) rc = llama_state_new(b, n_choices, many, &state, e);
    if (rc) {
        gen_prompts_free(prompts, n);
    } else {
        rc = gen_start(&(struct gen_config){.request = r,
                                            .model = r->model,
                                            .writer = &llama_writer,
                                            .state = state,
                                            .id_prefix = "llama-",
                                            .options = &b->options,
                                            .prompts = prompts,
                                            .n_prompts = n},
                       e);
    }
    grammar_release((grammar *)b->options.params.grammar);
    return rc;
}

static int read_and_start(struct request *r, struct llama_body *b, bool infill, err *e) {
    struct gen_prompt *prompts;
    size_t n = 1;
    bool many = false;
    uint64_t begin_ns = clock_now_ns();
    int rc = infill ? llama_infill_read(r, b, &prompts, e)
                    : llama_prompts_read(r, &b->fields, &prompts, &n, &many, e);
    costs_add_part(r, PART_TOKENIZE, begin_ns);
    if (rc) return rc;
    if (refuse_long(r, prompts, n)) {
        gen_prompts_free(prompts, n);
        return 0;
    }
    return start(r, b, prompts, n, many, e);
}

static int answer(struct request *r, const cJSON *json, bool infill, err *e) {
    struct llama_body *b = mem_new(1, sizeof *b);
    if (!b) return err_no_memory(e);
    int rc = llama_body_read(r, json, infill ? &llama_infill_table : &llama_completion_table, b, e);
    if (!rc) rc = read_and_start(r, b, infill, e);
    llama_body_fini(b);
    free(b);
    return rc;
}

static int answer_completion(struct request *r, const cJSON *json, err *e) {
    return answer(r, json, false, e);
}

static int answer_infill(struct request *r, const cJSON *json, err *e) {
    return answer(r, json, true, e);
}

static void handle_completion(struct request *r) {
    gen_handle(r, answer_completion);
}

static void handle_infill(struct request *r) {
    gen_handle(r, answer_infill);
}

const struct route llama_completion_route = {"POST",
                                             "/completion",
                                             ROUTE_GENERATE,
                                             handle_completion,
                                             .table = &llama_completion_table,
                                             .protocol = &llama_protocol};
const struct route llama_completions_route = {"POST",
                                              "/completions",
                                              ROUTE_GENERATE,
                                              handle_completion,
                                              .table = &llama_completion_table,
                                              .protocol = &llama_protocol};
const struct route llama_infill_route = {"POST",
                                         "/infill",
                                         ROUTE_GENERATE,
                                         handle_infill,
                                         .table = &llama_infill_table,
                                         .protocol = &llama_protocol};
