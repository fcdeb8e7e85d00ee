/* test_engine_grammar.c - answers under a grammar, from the demo model: every answer is a text of
 * its grammar, and byte for byte the same alone, in a batch, in other chunks, preempted, with
 * log-probabilities (one token per step), and cut anywhere and continued. */
#include "core/base/mem.h"
#include "core/base/qblock.h"
#include "core/base/str.h"
#include "core/engine/engine_int.h"

#include "check.h"
#include "tests/support/engine_kit.h"
#include "tests/support/rng.h"

#include <cjson/cJSON.h>

#define DEMO "registry/demo/inferd-demo-q8_0.gguf"

enum { N_JOBS = 12, MAX_PROMPT = 60 };

static struct rng rng = {31};

static struct engine_config base_config(void) {
    struct engine_config c = kit_config(DEMO);
    c.kv_cache_tokens = 8192;
    c.context_length = 1024;
    c.max_batch_tokens = 128, c.prefill_chunk = 32;
    c.stream_events = 256;
    c.grammar_cache_bytes = 1 << 20;
    return c;
}

static uint64_t mask_units; /* units of the worker for a mask; 0: the default */

static engine *open_engine(const struct engine_config *c) {
    engine *en = kit_open(c);
    if (mask_units) en->deferred.units = mask_units; /* before the first request */
    return en;
}

/* ---- grammars ---- */

static grammar *finish(grammar_builder *b, grammar_node root) {
    grammar *g = NULL;
    err e = {0};
    CHECK_MSG(grammar_finish(b, root, &g, &e) == 0, "%s: %s", e.param, e.msg);
    grammar_builder_free(b);
    return g;
}

static grammar *of_schema(const char *text, bool in_order) {
    cJSON *schema = cJSON_Parse(text);
    grammar_builder *b = grammar_builder_new();
    grammar *g = finish(
        b, grammar_json(b, &(struct grammar_schema){.schema = schema, .in_order = in_order}));
    cJSON_Delete(schema);
    return g;
}

static grammar *of_regex(const char *pattern) {
    grammar_builder *b = grammar_builder_new();
    return finish(b, grammar_regex(b, pattern));
}

static const char person[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},"
    "\"favourite_animal\":{\"enum\":[\"fox\",\"elephant\",\"hippopotamus\"]},"
    "\"likes_it_very_much\":{\"type\":[\"boolean\",\"null\"]}},"
    "\"required\":[\"name\",\"favourite_animal\",\"likes_it_very_much\"],"
    "\"additionalProperties\":false}";
static const char list[] = "{\"type\":\"array\",\"minItems\":2,\"maxItems\":5,"
                           "\"items\":{\"type\":\"boolean\"}}";

static grammar *grammars[4]; /* person in order, list, date, person in any order */

static bool person_ok(const char *text) {
    cJSON *v = cJSON_Parse(text);
    const cJSON *name = cJSON_GetObjectItem(v, "name");
    const cJSON *animal = cJSON_GetObjectItem(v, "favourite_animal");
    const cJSON *likes = cJSON_GetObjectItem(v, "likes_it_very_much");
    bool ok = cJSON_IsString(name) && cJSON_IsString(animal) && cJSON_GetArraySize(v) == 3 &&
              (cJSON_IsBool(likes) || cJSON_IsNull(likes)) &&
              (!strcmp(animal->valuestring, "fox") || !strcmp(animal->valuestring, "elephant") ||
               !strcmp(animal->valuestring, "hippopotamus"));
    cJSON_Delete(v);
    return ok;
}

static bool list_ok(const char *text) {
    cJSON *v = cJSON_Parse(text);
    int n = cJSON_GetArraySize(v);
    bool ok = cJSON_IsArray(v) && n >= 2 && n <= 5;
    for (int i = 0; i < n; i++)
        ok = ok && cJSON_IsBool(cJSON_GetArrayItem(v, i));
    cJSON_Delete(v);
    return ok;
}

static bool date_ok(const char *text) {
    int month;
    return strlen(text) == 10 && !memcmp(text, "20", 2) && sscanf(text + 5, "%2d", &month) == 1 &&
           month >= 1 && month <= 12;
}

static bool text_ok(int which, const char *text) {
    return which == 1 ? list_ok(text) : which == 2 ? date_ok(text) : person_ok(text);
}

/* ---- jobs ---- */

struct job {
    int32_t prompt[MAX_PROMPT];
    int which; /* of grammars; -1: none */
    struct engine_request req;
    struct reading alone;
};
static struct job jobs[N_JOBS];

static void make_jobs(const engine *en) {
    uint32_t n_vocab = engine_model(en).n_vocab;
    for (int i = 0; i < N_JOBS; i++) {
        struct job *j = &jobs[i];
        struct engine_params *p = &j->req.params;
        j->which = i % 5 == 4 ? -1 : i % 5;
        j->req = (struct engine_request){.prompt = j->prompt,
                                         .n_prompt = 1 + rng_next(&rng) % MAX_PROMPT,
                                         .n_choices = 1,
                                         .notify = bell_ring,
                                         .notify_arg = &bell};
        for (uint32_t k = 0; k < j->req.n_prompt; k++)
            j->prompt[k] = (int32_t)(300 + rng_next(&rng) % (n_vocab - 300));
        engine_params_default(p);
        p->max_tokens = j->which < 0 ? 40 : 200;
        p->has_seed = true;
        p->seed = rng_next(&rng);
        p->sampling.temperature = i % 3 ? 1.0f : 0;
        if (i % 4 == 1) p->sampling.frequency_penalty = 0.3f;
        if (i % 4 == 2) p->sampling.top_p = 0.95f;
        if (i == 7) p->ignore_eos = true;
        if (j->which >= 0) p->grammar = grammars[j->which];
    }
}

static char *text_of(const engine *en, const struct reading *r) {
    char *text = NULL;
    size_t n;
    err e = {0};
    str s;
    str_init(&s, 1 << 20);
    for (int i = 0; i < r->n_tokens; i++) {
        const char *bytes = tokenizer_token_bytes(engine_tokenizer(en), r->tokens[i], false, &n);
        str_add_n(&s, bytes, n);
    }
    text = str_take(&s);
    CHECK_MSG(text != NULL, "%s", e.msg);
    return text;
}

static bool same(const struct reading *a, const struct reading *b) {
    return a->n_final == 1 && b->n_final == 1 && a->n_tokens == b->n_tokens &&
           a->final.finish == b->final.finish && a->final.n_generated == b->final.n_generated &&
           !memcmp(a->tokens, b->tokens, sizeof a->tokens);
}

static void alone_every_answer_is_of_its_grammar(void) {
    struct engine_config c = base_config();
    struct engine_stats s;
    c.prefix_cache = false;
    engine *en = open_engine(&c);
    make_jobs(en);
    for (int i = 0; i < N_JOBS; i++) {
        struct job *j = &jobs[i];
        kit_answer(en, &j->req, &j->alone);
        char *text = text_of(en, &j->alone);
        CHECK_MSG(j->alone.final.finish != ENGINE_FINISH_ERROR, "%s", j->alone.final.error.msg);
        if (j->which >= 0)
            CHECK_MSG(j->alone.final.finish == ENGINE_FINISH_STOP && text_ok(j->which, text),
                      "job %d, finish %d: %s", i, (int)j->alone.final.finish, text);
        free(text);
    }
    engine_stats_get(en, &s);
    CHECK_MSG(s.forced_tokens_total > 20, "%d", (int)s.forced_tokens_total);
    CHECK_MSG(s.steps_total < s.generated_tokens_total, "%d steps", (int)s.steps_total);
    kit_close(en);
}

static void run_together(const struct engine_config *c, const char *what) {
    engine *en = open_engine(c);
    struct reading *r = calloc(N_JOBS, sizeof *r);
    for (int i = 0; i < N_JOBS; i++)
        kit_submit(en, &jobs[i].req, &r[i].stream);
    read_all(r, N_JOBS, &bell);
    free_all(r, N_JOBS);
    for (int i = 0; i < N_JOBS; i++)
        CHECK_MSG(same(&r[i], &jobs[i].alone), "%s: job %d differs", what, i);
    struct engine_stats s;
    engine_stats_get(en, &s);
    if (c->kv_cache_tokens < 1024) CHECK(s.preemptions_total > 0);
    kit_close(en);
    free(r);
}

static void same_among_others(void) {
    struct engine_config c = base_config();
    run_together(&c, "together");
    c.grammar_cache_bytes = 0;
    c.max_batch_tokens = 19, c.prefill_chunk = 3, c.n_threads = 1;
    run_together(&c, "small steps");
    c = base_config();
    c.context_length = 300;
    c.kv_cache_tokens = 304;
    run_together(&c, "preempted");
    c = base_config();
    c.stream_events = 8; /* forced runs stop at a full ring */
    run_together(&c, "small rings");
}

/* All masks, or some, are begun by the worker and completed by the background thread. */
static void same_beside_the_steps(void) {
    struct engine_config c = base_config();
    for (mask_units = 1; mask_units < 2000; mask_units *= 40) {
        run_together(&c, "all masks deferred");
        c.grammar_cache_bytes = 0;
        c.context_length = 300;
        c.kv_cache_tokens = 304;
        run_together(&c, "deferred and preempted");
        c = base_config();
    }
    mask_units = 0;
}

static void same_one_token_a_step(void) {
    struct engine_config c = base_config();
    struct reading *r = calloc(N_JOBS, sizeof *r);
    engine *en = open_engine(&c);
    for (int i = 0; i < N_JOBS; i++) {
        struct engine_request q = jobs[i].req;
        q.params.n_logprobs = 2;
        kit_submit(en, &q, &r[i].stream);
    }
    read_all(r, N_JOBS, &bell);
    free_all(r, N_JOBS);
    for (int i = 0; i < N_JOBS; i++) {
        CHECK_MSG(same(&r[i], &jobs[i].alone), "job %d differs with log-probabilities", i);
        for (int k = 0; k < r[i].n_tokens; k++)
            CHECK(r[i].logprobs[k] <= 0 && r[i].logprobs[k] > -200);
    }
    kit_close(en);
    free(r);
}

static void same_when_continued(void) {
    struct engine_config c = base_config();
    struct reading *r = calloc(1, sizeof *r);
    engine *en = open_engine(&c);
    for (int i = 0; i < N_JOBS; i++) {
        const struct job *j = &jobs[i];
        for (int cut = 1; cut < j->alone.n_tokens; cut += 5 + (int)(rng_next(&rng) % 30)) {
            int32_t text[MAX_PROMPT + READER_MAX_TOKENS];
            struct engine_request q = j->req;
            memcpy(text, j->prompt, q.n_prompt * sizeof *text);
            memcpy(text + q.n_prompt, j->alone.tokens, (size_t)cut * sizeof *text);
            q.prompt = text;
            q.n_prompt += (uint32_t)cut;
            q.n_generated = (uint32_t)cut;
            memset(r, 0, sizeof *r);
            kit_answer(en, &q, r);
            size_t n = (size_t)(j->alone.n_tokens - cut);
            CHECK_MSG(r->n_tokens == (int)n &&
                          !memcmp(r->tokens, j->alone.tokens + cut, n * sizeof *text) &&
                          r->final.finish == j->alone.final.finish &&
                          r->final.n_generated == j->alone.final.n_generated,
                      "job %d, cut at %d", i, cut);
        }
    }
    kit_close(en);
    free(r);
}

/* Each choice has its own matcher. */
static void choices_are_bound_alike(void) {
    enum { N = 4 };
    struct engine_config c = base_config();
    struct reading *r = calloc(N, sizeof *r);
    engine_stream *streams[N];
    engine *en = open_engine(&c);
    struct engine_request q = jobs[1].req;
    q.params.grammar = grammars[0];
    q.n_choices = N;
    kit_submit(en, &q, streams);
    for (int i = 0; i < N; i++)
        r[i].stream = streams[i];
    read_all(r, N, &bell);
    free_all(r, N);
    for (int i = 0; i < N; i++) {
        char *text = text_of(en, &r[i]);
        CHECK_MSG(r[i].final.finish == ENGINE_FINISH_STOP && text_ok(0, text), "%s", text);
        free(text);
    }
    kit_close(en);
    free(r);
}

/* No bias allows a token that the grammar forbids; a forbidden beginning is refused. */
static void nothing_else_comes(void) {
    struct engine_config c = base_config();
    struct reading *r = calloc(1, sizeof *r);
    err e = {0};
    engine *en = open_engine(&c);
    const struct engine_logit_bias up = {jobs[0].prompt[0], 100};
    struct engine_request q = jobs[0].req;
    q.params.grammar = grammars[2];
    q.params.bias = &up, q.params.n_bias = 1;
    kit_answer(en, &q, r);
    char *text = text_of(en, r);
    CHECK_MSG(r->final.finish == ENGINE_FINISH_STOP && text_ok(2, text), "%s", text);
    free(text);
    q.n_prompt = 2, q.n_generated = 1;
    CHECK(engine_submit(en, &q, &r->stream, &e) == ERR_INVALID && !strcmp(e.param, "prompt"));
    memset(r, 0, sizeof *r);
    q.n_generated = 0, q.params.max_tokens = 3; /* the token limit precedes the text's end */
    kit_answer(en, &q, r);
    CHECK(r->final.finish == ENGINE_FINISH_LENGTH && r->n_tokens == 3);
    kit_close(en);
    free(r);
}

int main(void) {
    grammars[0] = of_schema(person, true);
    grammars[1] = of_schema(list, false);
    grammars[2] = of_regex("20[0-9]{2}-(0[1-9]|1[0-2])-([012][0-9]|30)");
    grammars[3] = of_schema(person, false);
    RUN(alone_every_answer_is_of_its_grammar);
    RUN(same_among_others);
    RUN(same_beside_the_steps);
    RUN(same_one_token_a_step);
    RUN(same_when_continued);
    RUN(choices_are_bound_alike);
    RUN(nothing_else_comes);
    for (int i = 0; i < 4; i++)
        grammar_release(grammars[i]);
    return check_done();
}
