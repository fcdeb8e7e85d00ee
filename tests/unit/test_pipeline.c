/* test_pipeline.c - engines split by layers into stages, which may have ranks, too: every stage is
 * a thread of this process here, and they meet over loopback. The answers are, bit for bit, those
 * of an engine in one piece with as many ranks; another number of ranks and another instruction set
 * are refused. Stages that are processes, and their ends: tests/http/stages.test.mjs. */
#include "core/backend/cpu/gemm/gemm.h"
#include "core/engine/group.h"
#include "tests/support/engine_kit.h"
#include "tests/support/free_port.h"
#include "tests/support/rng.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STAGES = 3, N_REQUESTS = 6, MAX_PROMPT = 48, HANG_S = 120 };

static const char demo[] = "registry/demo/inferd-demo-q8_0.gguf";

/* ---- stages ---- */

struct stage {
    char address[24];
    struct engine_stages how;
    struct engine_config own;
    engine_group *group;
    pthread_t id;
    int rc;
    err e;
};

struct pipeline {
    struct stage stages[MAX_STAGES]; /* 0: only how, group, rc and e */
    uint32_t n;
    char others[MAX_STAGES * 24];
};

static struct engine_stages describe(const char *path, uint32_t n_ranks) {
    return (struct engine_stages){.others = "",
                                  .listen = "",
                                  .secret_file = "",
                                  .model_path = path,
                                  .kv_type = "f16",
                                  .activation_bits = "8",
                                  .n_ranks = n_ranks};
}

static void *follow(void *arg) {
    struct stage *s = arg;
    s->rc = engine_group_join_stages(&s->how, "1", HANG_S, &s->group, &s->e);
    if (!s->rc) s->rc = engine_group_follow(s->group, &s->own, &s->e);
    engine_group_leave(s->group);
    return NULL;
}

/* Starts all stages but the first. */
static void start_others(struct pipeline *p, const struct engine_config *c, uint32_t n) {
    *p = (struct pipeline){.n = n};
    for (uint32_t i = 1; i < n; i++) {
        struct stage *s = &p->stages[i];
        const size_t at = strlen(p->others);
        snprintf(s->address, sizeof s->address, "127.0.0.1:%d", free_port());
        snprintf(p->others + at, sizeof p->others - at, "%s%s", at ? "," : "", s->address);
        s->how = describe(c->model_path, c->n_ranks);
        s->how.listen = s->address;
        s->own = *c;
    }
    p->stages[0].how = describe(c->model_path, c->n_ranks);
    p->stages[0].how.others = p->others;
    for (uint32_t i = 1; i < n; i++)
        CHECK(pthread_create(&p->stages[i].id, NULL, follow, &p->stages[i]) == 0);
}

static int join_others(struct pipeline *p) {
    struct stage *s = &p->stages[0];
    err_clear(&s->e);
    s->rc = engine_group_join_stages(&s->how, "1", HANG_S, &s->group, &s->e);
    return s->rc;
}

/* The others end without an error. */
static void leave_others(struct pipeline *p) {
    engine_group_leave(p->stages[0].group);
    for (uint32_t i = 1; i < p->n; i++) {
        pthread_join(p->stages[i].id, NULL);
        CHECK_MSG(p->stages[i].rc == 0, "stage %u: %s", i, p->stages[i].e.msg);
    }
}

static struct engine_config base_config(const char *path, uint32_t n_ranks) {
    struct engine_config c = kit_config(path);
    c.n_ranks = n_ranks;
    c.n_threads = (int)n_ranks;
    c.kv_cache_tokens = 1024;
    return c;
}

/* ---- answers ---- */

static int32_t prompts[N_REQUESTS][MAX_PROMPT];

static void ask_all(engine *en, struct reading *out) {
    struct engine_request q = {.n_choices = 1, .notify = bell_ring, .notify_arg = &bell};
    const uint32_t n_vocab = engine_model(en).n_vocab;
    struct rng rng = {7};
    memset(out, 0, N_REQUESTS * sizeof *out);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        q.n_prompt = 1 + rng_next(&rng) % MAX_PROMPT;
        for (uint32_t k = 0; k < MAX_PROMPT; k++)
            prompts[i][k] = (int32_t)(3 + rng_next(&rng) % (n_vocab - 3));
        if (i % 3 == 2) memcpy(prompts[i], prompts[0], sizeof prompts[i]); /* a cached prefix */
        q.prompt = prompts[i];
        engine_params_default(&q.params);
        q.params.max_tokens = 4 + rng_next(&rng) % 8;
        q.params.n_logprobs = (int)(i % 3);
        q.params.has_seed = true;
        q.params.seed = i;
        q.params.ignore_eos = true;
        q.params.sampling.temperature = i % 2 ? 0.9f : 0;
        if (i == 3) q.params.sampling.repetition_penalty = 1.2f;
        q.params.prompt_logprobs = i == 4;
        kit_submit(en, &q, &out[i].stream);
    }
    read_all(out, N_REQUESTS, &bell);
    free_all(out, N_REQUESTS);
    kit_check_idle(en);
}

static bool same(const struct reading *a, const struct reading *b) {
    return a->n_final == 1 && b->n_final == 1 && a->final.finish == b->final.finish &&
           a->final.finish != ENGINE_FINISH_ERROR && a->n_tokens == b->n_tokens &&
           a->n_tokens > 0 && a->n_prompt_events == b->n_prompt_events &&
           !memcmp(a->tokens, b->tokens, sizeof a->tokens) &&
           !memcmp(a->logprobs, b->logprobs, sizeof a->logprobs) &&
           !memcmp(a->top_logprobs, b->top_logprobs, sizeof a->top_logprobs) &&
           !memcmp(a->prompt_logprobs, b->prompt_logprobs, sizeof a->prompt_logprobs);
}

static void ask_whole(const struct engine_config *c, struct reading *out) {
    engine *en = kit_open(c);
    ask_all(en, out);
    engine_close(en);
}

static void ask_pipeline(struct engine_config c, uint32_t n_stages, struct reading *out) {
    struct pipeline p;
    struct engine_stats stats;
    start_others(&p, &c, n_stages);
    CHECK_MSG(join_others(&p) == 0, "%s", p.stages[0].e.msg);
    c.group = p.stages[0].group;
    c.n_stages = n_stages;
    for (int round = 0; round < 2; round++) { /* the model is opened twice */
        engine *en = kit_open(&c);
        ask_all(en, out);
        engine_stats_get(en, &stats);
        CHECK(stats.n_stages == n_stages && stats.n_ranks == c.n_ranks);
        engine_close(en);
    }
    leave_others(&p);
}

static void test_answers(void) {
    static const struct {
        const char *path;
        uint32_t n_stages, n_ranks;
    } cases[] = {
        /* Dense; recurrent layers; windows; experts; FFN beside attention; layers with heads of
         * their own; odd numbers of ranks. */
        {demo, 3, 1},
        {demo, 3, 2},
        {"tests/golden/arch/qwen35-tied/hf", 2, 2},
        {"tests/golden/arch/lfm2moe-scaled/hf", 2, 2},
        {"tests/golden/arch/gpt-oss/hf", 2, 2},
        {"tests/golden/arch/gemma2/hf", 2, 2},
        {"tests/golden/arch/cohere2/hf", 2, 2},
        {"tests/golden/arch/gemma4-moe/hf", 2, 1},
        {"tests/golden/arch/gemma4/hf", 2, 1},
        {"tests/golden/arch/qwen2moe/hf", 2, 3},
        {"tests/golden/arch/gpt2/hf", 2, 3},
    };
    struct reading *want = calloc(N_REQUESTS, sizeof *want);
    struct reading *got = calloc(N_REQUESTS, sizeof *got);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct engine_config c = base_config(cases[i].path, cases[i].n_ranks);
        ask_whole(&c, want);
        ask_pipeline(c, cases[i].n_stages, got);
        for (int r = 0; r < N_REQUESTS; r++)
            CHECK_MSG(same(&got[r], &want[r]), "%s, %u stages of %u ranks: request %d",
                      cases[i].path, cases[i].n_stages, cases[i].n_ranks, r);
    }
    free(want);
    free(got);
}

/* ---- steps in flight that have rows of one sequence ---- */

/* The step hook plays this: two prompts fill the first two steps, `cut` gets some rows of the third
 * one, a large prompt preempts it, and is cancelled. So `cut` begins again, in a longer step, while
 * its first one is in flight. */
enum { FIRST, SECOND, CUT, LARGE, N_PLAYERS };
static struct {
    engine *en;
    struct engine_request requests[N_PLAYERS];
    struct reading players[N_PLAYERS];
    atomic_int n_steps;
} play;

static void play_step(void *arg, const struct engine_step *did) {
    (void)arg, (void)did;
    const int step = atomic_load(&play.n_steps);
    for (int i = 0; i < N_PLAYERS; i++)
        if (step == (i == LARGE)) kit_submit(play.en, &play.requests[i], &play.players[i].stream);
    if (step == 2) engine_stream_cancel(play.players[LARGE].stream);
    atomic_store(&play.n_steps, step + 1);
    bell_ring(&bell);
}

static struct engine_request player(int32_t *prompt, uint32_t n_prompt) {
    struct engine_request q = {.prompt = prompt,
                               .n_prompt = n_prompt,
                               .n_choices = 1,
                               .notify = bell_ring,
                               .notify_arg = &bell};
    for (uint32_t i = 0; i < n_prompt; i++)
        prompt[i] = (int32_t)(3 + (i * 7 + n_prompt) % 200);
    engine_params_default(&q.params);
    q.params.max_tokens = 1;
    q.params.n_logprobs = 1;
    q.params.sampling.temperature = 0;
    q.params.ignore_eos = true;
    return q;
}

static void wait_for_steps(int n) {
    for (uint64_t seen = bell_count(&bell); atomic_load(&play.n_steps) < n;
         seen = bell_count(&bell))
        bell_wait(&bell, seen);
}

/* Plays it with that request; keeps the vector of a pooled one. */
static void play_all(const struct engine_config *c, const struct engine_request *cut,
                     float *vector) {
    static int32_t texts[4][336];
    struct reading opening = {0};
    struct engine_stats stats;
    uint32_t n;
    memset(play.players, 0, sizeof play.players);
    play.requests[FIRST] = player(texts[0], 64);
    play.requests[SECOND] = player(texts[1], 24);
    play.requests[CUT] = *cut;
    play.requests[LARGE] = player(texts[2], 335);
    play.requests[LARGE].params.priority = 1;
    atomic_store(&play.n_steps, 0);
    play.en = kit_open(c);
    const struct engine_request open = player(texts[3], 5);
    kit_submit(play.en, &open, &opening.stream);
    wait_for_steps(3);
    read_all(&opening, 1, &bell);
    read_all(play.players, N_PLAYERS, &bell);
    const float *got = cut->pooling ? engine_stream_embedding(play.players[CUT].stream, &n) : NULL;
    if (got) memcpy(vector, got, n * sizeof *got);
    free_all(&opening, 1);
    free_all(play.players, N_PLAYERS);
    engine_stats_get(play.en, &stats);
    CHECK_MSG(stats.preemptions_total == 1, "%llu", (unsigned long long)stats.preemptions_total);
    kit_close(play.en);
}

static void test_begins_again_in_flight(void) {
    static float want_vector[1024], got_vector[1024];
    static struct reading want;
    int32_t prompt[100];
    uint32_t n;
    struct engine_config c = base_config(demo, 1);
    struct pipeline p;
    c.kv_cache_tokens = 384;
    start_others(&p, &c, 3);
    CHECK_MSG(join_others(&p) == 0, "%s", p.stages[0].e.msg);
    for (int pooled = 0; pooled < 2; pooled++) {
        /* All rows but the prompt's last one, then the whole prompt. */
        struct engine_request q = player(prompt, pooled ? 60 : c.prefill_chunk + 1);
        q.pooling = pooled ? ENGINE_POOLING_MEAN : ENGINE_POOLING_NONE;
        q.params.prompt_logprobs = !pooled;
        struct engine_config split = c;
        engine *en = kit_open(&c);
        memset(&want, 0, sizeof want);
        kit_submit(en, &q, &want.stream);
        read_all(&want, 1, &bell);
        const float *vector = pooled ? engine_stream_embedding(want.stream, &n) : NULL;
        if (vector) memcpy(want_vector, vector, n * sizeof *vector);
        free_all(&want, 1);
        kit_close(en);
        split.group = p.stages[0].group;
        split.n_stages = 3;
        split.on_step = play_step;
        play_all(&split, &q, got_vector);
        CHECK(pooled || same(&play.players[CUT], &want));
        CHECK(!pooled || (play.players[CUT].final.finish == ENGINE_FINISH_STOP && n <= 1024 &&
                          !memcmp(got_vector, want_vector, n * sizeof *got_vector)));
    }
    leave_others(&p);
}

/* Nobody reads the events of a long prompt while a step for each stage has some of its rows. */
static void test_slow_reader(void) {
    static struct reading slow, other;
    int32_t texts[2][400];
    struct engine_config c = base_config(demo, 1);
    struct pipeline p;
    c.stream_events = 16;
    start_others(&p, &c, 3);
    CHECK_MSG(join_others(&p) == 0, "%s", p.stages[0].e.msg);
    c.group = p.stages[0].group;
    c.n_stages = 3;
    engine *en = kit_open(&c);
    struct engine_request q = player(texts[0], 400);
    q.params.prompt_logprobs = true;
    kit_submit(en, &q, &slow.stream);
    q = player(texts[1], 8);
    kit_answer(en, &q, &other);
    read_all(&slow, 1, &bell);
    CHECK_MSG(slow.n_prompt_events == 399 && slow.n_tokens == 1, "%d, %d", slow.n_prompt_events,
              slow.n_tokens);
    free_all(&slow, 1);
    kit_close(en);
    leave_others(&p);
}

/* ---- refusals ---- */

/* The other stage waits on. */
static void test_other_ranks(void) {
    const struct engine_config c = base_config(demo, 2);
    struct pipeline p;
    start_others(&p, &c, 2);
    p.stages[0].how.n_ranks = 1;
    CHECK(join_others(&p) == ERR_UNSUPPORTED);
    CHECK_MSG(strstr(p.stages[0].e.msg, "tensor-parallel is 2 at stage 1, 1 at stage 0"), "%s",
              p.stages[0].e.msg);
    p.stages[0].how.n_ranks = 2;
    CHECK_MSG(join_others(&p) == 0, "%s", p.stages[0].e.msg);
    leave_others(&p);
}

static void test_other_isa(void) {
    struct engine_config c = base_config(demo, 2);
    const struct gemm_isa *best = gemm_isa_at(0), *other = gemm_isa_at(1);
    struct pipeline p;
    engine *en = NULL;
    err e = {0};
    if (!other) return; /* this machine has one */
    c.isa = other->name;
    start_others(&p, &c, 2);
    CHECK_MSG(join_others(&p) == 0, "%s", p.stages[0].e.msg);
    c.isa = best->name;
    c.group = p.stages[0].group;
    c.n_stages = 2;
    CHECK(engine_open(&c, &en, &e) == ERR_UNSUPPORTED);
    CHECK_STR(e.param, "isa");
    CHECK_MSG(strstr(e.msg, "stage 0 computes with ") && strstr(e.msg, ", stage 1 with "), "%s",
              e.msg);
    c.isa = other->name; /* it can be opened yet */
    en = kit_open(&c);
    engine_close(en);
    leave_others(&p);
}

int main(void) {
    RUN(test_answers);
    RUN(test_begins_again_in_flight);
    RUN(test_slow_reader);
    RUN(test_other_ranks);
    RUN(test_other_isa);
    return check_done();
}
