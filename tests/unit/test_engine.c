/* test_engine.c - the engine over a real model (a tiny llama with seeded random weights, or the
 * GGUF file given as an argument): batch invariance, byte for byte. A request's answer alone, in an
 * engine without prefix cache, is the reference for every other way to run it. */
#include "core/base/mem.h"
#include "core/base/qblock.h"
#include "core/engine/engine.h"
#include "tests/support/engine_kit.h"
#include "tests/support/gguf_make.h"

#include "check.h"
#include "tests/support/rng.h"

#include <unistd.h>

enum { N_REQUESTS = 12, MAX_PROMPT = 150 };

static char model_path[256];
static uint32_t n_ranks = 1;
static bool is_hybrid;
static int32_t prompts[N_REQUESTS][MAX_PROMPT];
static struct engine_request requests[N_REQUESTS];
static struct reading alone[N_REQUESTS];

static struct rng rng = {5};

static struct engine_config base_config(void) {
    struct engine_config c = kit_config(model_path);
    c.n_ranks = n_ranks;
    c.kv_cache_tokens = 8192;
    c.max_batch_tokens = 256, c.prefill_chunk = 64;
    c.max_sequences = 32;
    return c;
}

static void make_requests(int32_t n_vocab) {
    for (int i = 0; i < N_REQUESTS; i++) {
        struct engine_request *q = &requests[i];
        struct engine_params *p = &q->params;
        q->prompt = prompts[i];
        q->n_prompt = i == 0 ? 1 : i == 1 ? MAX_PROMPT : 2 + rng_next(&rng) % (MAX_PROMPT - 2);
        for (uint32_t k = 0; k < q->n_prompt; k++)
            prompts[i][k] = (int32_t)(3 + rng_next(&rng) % (uint32_t)(n_vocab - 3));
        if (i % 4 == 3) /* a common beginning */
            memcpy(prompts[i], prompts[1], (q->n_prompt / 2) * sizeof(int32_t));
        q->n_choices = 1;
        q->notify = bell_ring;
        q->notify_arg = &bell;
        engine_params_default(p);
        p->max_tokens = 5 + rng_next(&rng) % 40;
        p->has_seed = true;
        p->seed = rng_next(&rng);
        p->n_logprobs = i % 3;
        p->sampling.temperature = i % 3 == 0 ? 0 : 0.5f + 0.1f * (float)i;
        if (i % 4 == 1) p->sampling.top_p = 0.8f;
        if (i % 5 == 1) p->sampling.top_k = 20;
        if (i % 5 == 2) p->sampling.repetition_penalty = 1.2f;
        if (i % 5 == 3) p->sampling.frequency_penalty = 0.5f;
        p->ignore_eos = i % 2;
        p->prompt_logprobs = i % 6 == 5;
    }
}

static bool same(const struct reading *a, const struct reading *b) {
    return a->n_final == 1 && b->n_final == 1 && a->n_tokens == b->n_tokens &&
           a->n_prompt_events == b->n_prompt_events && a->final.finish == b->final.finish &&
           a->final.n_generated == b->final.n_generated &&
           !memcmp(a->tokens, b->tokens, sizeof a->tokens) &&
           !memcmp(a->logprobs, b->logprobs, sizeof a->logprobs) &&
           !memcmp(a->prompt_logprobs, b->prompt_logprobs, sizeof a->prompt_logprobs);
}

/* All requests at once; each answer must be as it was alone. */
static void run_together(engine *en, const char *what) {
    struct reading *r = calloc(N_REQUESTS, sizeof *r);
    for (int i = 0; i < N_REQUESTS; i++)
        kit_submit(en, &requests[i], &r[i].stream);
    read_all(r, N_REQUESTS, &bell);
    free_all(r, N_REQUESTS);
    for (int i = 0; i < N_REQUESTS; i++)
        CHECK_MSG(same(&r[i], &alone[i]), "%s: request %d differs from when it was alone", what, i);
    kit_check_idle(en);
    free(r);
}

static void run_alone(void) {
    struct engine_config c = base_config();
    c.prefix_cache = false;
    engine *en = kit_open(&c);
    if (!en) return;
    make_requests((int32_t)engine_model(en).n_vocab);
    for (int i = 0; i < N_REQUESTS; i++) {
        kit_answer(en, &requests[i], &alone[i]);
        CHECK(alone[i].n_final == 1 && alone[i].final.finish != ENGINE_FINISH_ERROR);
        CHECK(alone[i].final.n_cached == 0);
        CHECK(alone[i].n_prompt_events ==
              (requests[i].params.prompt_logprobs ? (int)requests[i].n_prompt - 1 : 0));
    }
    kit_close(en);
}

static void same_when_together(void) {
    struct engine_config c = base_config();
    engine *en = kit_open(&c);
    run_together(en, "together");
    engine_close(en);
}

static void same_with_other_chunks_and_threads(void) {
    static const uint32_t chunks[][3] = {{17, 5, 1}, {1000, 1000, 3}, {32, 1, 2}};
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        struct engine_config c = base_config();
        c.max_batch_tokens = chunks[i][0];
        c.prefill_chunk = chunks[i][1];
        c.n_threads = (int)chunks[i][2];
        engine *en = kit_open(&c);
        run_together(en, "other chunks");
        engine_close(en);
    }
}

static void same_after_preemption(void) {
    struct engine_config c = base_config();
    struct engine_stats s;
    c.kv_cache_tokens = 240;
    engine *en = kit_open(&c);
    run_together(en, "preempted");
    engine_stats_get(en, &s);
    CHECK_MSG(s.preemptions_total > 0, "%llu", (unsigned long long)s.preemptions_total);
    engine_close(en);
}

static void same_on_a_prefix_hit(void) {
    struct engine_config c = base_config();
    struct engine_stats before, after;
    engine *en = kit_open(&c);
    run_together(en, "first run");
    engine_stats_get(en, &before);
    run_together(en, "second run");
    engine_stats_get(en, &after);
    CHECK(after.cached_tokens_total > before.cached_tokens_total + 200);
    engine_close(en);
}

/* Choice i equals the answer of a separate request with seed + i. */
static void same_as_a_choice(void) {
    enum { CHOICES = 3, FIRST = 4, LAST = 6 };
    struct engine_config c = base_config();
    struct reading *own = calloc(CHOICES, sizeof *own), *forked = calloc(CHOICES, sizeof *forked);
    c.prefix_cache = is_hybrid; /* where forks find the state at the prompt's last boundary */
    engine *en = kit_open(&c);
    for (int i = FIRST; i <= LAST; i++) {
        engine_stream *streams[CHOICES];
        struct engine_request q = requests[i];
        q.params.prompt_logprobs = false;
        q.params.sampling.temperature = 1;
        memset(own, 0, CHOICES * sizeof *own);
        memset(forked, 0, CHOICES * sizeof *forked);
        for (int k = 0; k < CHOICES; k++) {
            struct engine_request single = q;
            single.params.seed += k;
            kit_submit(en, &single, &own[k].stream);
        }
        read_all(own, CHOICES, &bell);
        free_all(own, CHOICES);
        q.n_choices = CHOICES;
        kit_submit(en, &q, streams);
        for (int k = 0; k < CHOICES; k++)
            forked[k].stream = streams[k];
        read_all(forked, CHOICES, &bell);
        free_all(forked, CHOICES);
        for (int k = 0; k < CHOICES; k++)
            CHECK_MSG(same(&own[k], &forked[k]), "request %d, choice %d", i, k);
        const uint32_t shared = forked[1].final.n_cached, most = q.n_prompt - 1;
        CHECK_MSG(shared == (is_hybrid ? most - most % c.block_tokens : most),
                  "%u of %u tokens shared", shared, q.n_prompt);
    }
    kit_close(en);
    free(own);
    free(forked);
}

/* The log-probability of prompt token i is that of the token when it is the answer to the i tokens
 * before it (a bias forces it; reported is the model's own). */
static void prompt_logprobs_are_those_of_answers(void) {
    struct engine_config c = base_config();
    struct reading *r = calloc(1, sizeof *r);
    const struct engine_request *q = &requests[5];
    engine *en = kit_open(&c);
    CHECK(alone[5].n_prompt_events == (int)q->n_prompt - 1);
    for (uint32_t i = 1; i < q->n_prompt; i += 1 + i / 4) {
        struct engine_logit_bias bias = {q->prompt[i], 100};
        struct engine_request one = *q;
        engine_params_default(&one.params);
        one.n_prompt = i;
        one.params.sampling.temperature = 0;
        one.params.max_tokens = 1;
        one.params.ignore_eos = true;
        one.params.n_logprobs = 0;
        one.params.bias = &bias;
        one.params.n_bias = 1;
        memset(r, 0, sizeof *r);
        kit_answer(en, &one, r);
        CHECK(r->n_tokens == 1 && r->tokens[0] == q->prompt[i]);
        CHECK_MSG(r->logprobs[0] == alone[5].prompt_logprobs[i - 1], "token %u: %g, want %g", i,
                  (double)r->logprobs[0], (double)alone[5].prompt_logprobs[i - 1]);
    }
    kit_close(en);
    free(r);
}

static void cancels_over_a_real_model(void) {
    struct engine_config c = base_config();
    c.kv_cache_tokens = 400;
    engine *en = kit_open(&c);
    for (int round = 0; round < 6; round++) {
        struct reading *r = calloc(N_REQUESTS, sizeof *r);
        for (int i = 0; i < N_REQUESTS; i++)
            kit_submit(en, &requests[i], &r[i].stream);
        usleep(rng_next(&rng) % 4000);
        for (int i = 0; i < N_REQUESTS; i++)
            if (rng_next(&rng) % 3) engine_stream_cancel(r[i].stream);
        read_all(r, N_REQUESTS, &bell);
        free_all(r, N_REQUESTS);
        for (int i = 0; i < N_REQUESTS; i++) {
            CHECK(r[i].n_final == 1);
            CHECK(r[i].final.finish == ENGINE_FINISH_CANCEL || same(&r[i], &alone[i]));
        }
        kit_check_idle(en);
        free(r);
    }
    uint64_t most = 0;
    struct engine_kernel k;
    for (uint32_t i = 0; i < engine_n_kernels(en); i++)
        if (!strncmp(engine_kernel_get(en, i, &k), "paged_attention", 15) && k.dispatches > most)
            most = k.dispatches;
    CHECK(most > 0); /* the paged kernel ran */
    engine_close(en);
}

/* Who has an answer finds it counted. */
static void answers_are_counted_before_their_end(void) {
    struct engine_config c = base_config();
    struct engine_stats s;
    struct reading *r = calloc(1, sizeof *r);
    engine *en = kit_open(&c);
    uint64_t n_prompt = 0, n_generated = 0;
    for (uint64_t n = 1; n <= 200; n++) {
        struct engine_request q = requests[n % N_REQUESTS];
        q.n_prompt = 1 + n % 8;
        q.params.max_tokens = 1 + n % 2;
        memset(r, 0, sizeof *r);
        kit_submit(en, &q, &r->stream);
        read_all(r, 1, &bell);
        engine_stats_get(en, &s);
        free_all(r, 1);
        n_prompt += q.n_prompt;
        n_generated += r->final.n_generated;
        CHECK(s.requests_total[ENGINE_FINISH_STOP] + s.requests_total[ENGINE_FINISH_LENGTH] == n);
        CHECK(s.prompt_tokens_total == n_prompt && s.generated_tokens_total == n_generated);
        CHECK(s.running == 0 && s.waiting == 0 && s.answer_time.count == n);
    }
    free(r);
    kit_close(en);
}

/* What the places tell of one sequence, once it waits for its reader. */
static struct engine_place place_at_rest(engine *en, uint32_t n) {
    struct engine_place places[32], found = {0};
    for (int tries = 0; tries < 20000; tries++, usleep(500)) {
        CHECK(engine_places_get(en, places, 32) == n);
        for (uint32_t i = 0; i < n && i < 32; i++)
            if (places[i].number && places[i].stopped) return places[i];
    }
    return found;
}

static void places_tell_what_runs(void) {
    struct engine_config c = base_config();
    struct engine_place none[4], p;
    struct reading *r = calloc(1, sizeof *r);
    c.max_sequences = 3;
    c.stream_events = 16;
    engine *en = kit_open(&c);
    CHECK(engine_places_get(en, NULL, 0) == 3 && engine_places_get(en, none, 4) == 3);
    for (int i = 0; i < 3; i++)
        CHECK(!none[i].number);
    struct engine_request q = requests[2];
    q.params.max_tokens = 100;
    q.params.ignore_eos = true;
    q.params.prompt_logprobs = false;
    for (uint64_t round = 1; round <= 2; round++) {
        memset(r, 0, sizeof *r);
        kit_submit(en, &q, &r->stream);
        p = place_at_rest(en, 3);
        CHECK(p.number == round && p.n_prompt == q.n_prompt && p.max_tokens == 100);
        CHECK(p.n_generated >= 16 && p.n_generated < 100 && p.n_computed >= q.n_prompt);
        CHECK(round == 1 ? p.n_cached == 0 : p.n_cached > 0 || q.n_prompt <= 32);
        engine_stream_cancel(r->stream);
        read_all(r, 1, &bell);
        free_all(r, 1);
        kit_check_idle(en);
        engine_places_get(en, none, 3);
        for (int i = 0; i < 3; i++)
            CHECK(!none[i].number);
    }
    free(r);
    engine_close(en);
}

/* Batch invariance holds for each number of ranks separately: sums are divided differently. */
static void the_same_on_two_ranks(void) {
    struct engine_config c = base_config();
    n_ranks = c.n_ranks = 2;
    engine *en = kit_open(&c);
    CHECK(engine_n_ranks(en) == 2 && engine_n_threads(en) == 2);
    engine_close(en);
    memset(alone, 0, sizeof alone);
    run_alone();
    same_when_together();
    same_with_other_chunks_and_threads();
    same_after_preemption();
    same_on_a_prefix_hit();
    same_as_a_choice();
    cancels_over_a_real_model();
    c.n_ranks = 3;
    err e = {0};
    CHECK(engine_open(&c, &en, &e) == ERR_UNSUPPORTED);
    CHECK_STR(e.param, "n_ranks");
    CHECK_MSG(strstr(e.msg, "n_ranks = 3") && strstr(e.msg, "4 heads"), "%s", e.msg);
}

/* Likewise with delta nets: each rank has the states of its heads. */
static void a_hybrid_is_the_same_on_two_ranks(void) {
    snprintf(model_path, sizeof model_path, "tests/golden/arch/qwen35moe/hf");
    is_hybrid = true;
    the_same_on_two_ranks();
}

int main(int argc, char **argv) {
    err e;
    err_clear(&e);
    if (argc > 1) {
        snprintf(model_path, sizeof model_path, "%s", argv[1]);
    } else {
        const struct tiny_llama tiny = {.seed = 3, .n_layers = 2, .weight_type = QTYPE_Q8_0};
        snprintf(model_path, sizeof model_path, "/tmp/inferd-engine-%ld.gguf", (long)getpid());
        CHECK_MSG(gguf_make_tiny_llama(model_path, &tiny, &e) == 0, "%s", e.msg);
    }
    RUN(run_alone);
    RUN(same_when_together);
    RUN(same_with_other_chunks_and_threads);
    RUN(same_after_preemption);
    RUN(same_on_a_prefix_hit);
    RUN(same_as_a_choice);
    RUN(prompt_logprobs_are_those_of_answers);
    RUN(cancels_over_a_real_model);
    RUN(answers_are_counted_before_their_end);
    RUN(places_tell_what_runs);
    RUN(the_same_on_two_ranks);
    if (argc <= 1) unlink(model_path);
    RUN(a_hybrid_is_the_same_on_two_ranks);
    return check_done();
}
