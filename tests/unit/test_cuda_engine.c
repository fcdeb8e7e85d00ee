/* test_cuda_engine.c - the engine over a device that samples tokens itself: the tokens are those
 * that the host samples from the same logits, log-probabilities are the host's up to rounding, and
 * neither depends on the other sequences of a step, nor on whether the step began before the
 * previous one was finished. */
#include "core/base/mem.h"
#include "core/engine/engine.h"
#include "tests/support/be.h"
#include "tests/support/device_main.h"
#include "tests/support/engine_kit.h"
#include "tests/support/gguf_make.h"

#include <unistd.h>

enum { N_VOCAB = 1200, MAX_PROMPT = 60, LONG_PROMPT = 700, MOST_REQUESTS = 40 };

static char folder[] = "/tmp/inferd-cuda-engine-XXXXXX";
static char path[64];
static uint32_t n_requests; /* of a test */
static int32_t prompts[MOST_REQUESTS][LONG_PROMPT];
static struct engine_request requests[MOST_REQUESTS];
static struct reading alone[MOST_REQUESTS];
/* A bias of 0 leaves the logits as they are, but makes the host sample. */
static const struct engine_logit_bias no_bias = {5, 0.0f};

static uint32_t n_ranks = 1;

static engine *open_engine(uint32_t max_sequences) {
    struct engine_config c = kit_config(path);
    c.backend = "cuda", c.n_threads = 0;
    c.n_ranks = n_ranks;
    c.kv_cache_tokens = 1600;
    c.max_batch_tokens = 128, c.prefill_chunk = 64;
    c.max_sequences = max_sequences;
    c.stream_events = 512;
    return kit_open(&c);
}

static uint64_t dispatches(const engine *en, const char *name) {
    struct engine_kernel k;
    for (uint32_t i = 0; i < engine_n_kernels(en); i++)
        if (strcmp(engine_kernel_get(en, i, &k), name) == 0) return k.dispatches;
    return 0;
}

static float real(float low, float high) {
    return low + (high - low) * (float)be_below(1001) / 1000;
}

static void random_params(struct engine_params *p) {
    engine_params_default(p);
    p->has_seed = true;
    p->seed = (int64_t)((uint64_t)be_rand() << 32 | be_rand());
    p->max_tokens = 3 + be_below(20);
    p->sampling.temperature = be_below(4) ? real(0.1f, 2) : 0;
    if (be_below(2)) p->sampling.top_p = real(0.01f, 1);
    if (be_below(2)) p->sampling.top_k = 1 + be_below(be_below(2) ? 64 : N_VOCAB + 5);
    if (be_below(3) == 0) p->sampling.min_p = real(0, 1);
    if (be_below(3) == 0) p->sampling.repetition_penalty = real(0.5f, 2);
    if (be_below(3) == 0) p->sampling.presence_penalty = real(-2, 2);
    if (be_below(3) == 0) p->sampling.frequency_penalty = real(-2, 2);
    p->n_logprobs = (int)be_below(4) - 1;
    if (p->n_logprobs == 2) p->n_logprobs = 1 + (int)be_below(ENGINE_MAX_TOP_LOGPROBS);
    p->ignore_eos = be_below(2);
    p->prompt_logprobs = be_below(8) == 0;
}

static void make_requests(uint32_t n) {
    n_requests = n;
    memset(alone, 0, sizeof alone);
    for (uint32_t i = 0; i < n; i++) {
        struct engine_request *q = &requests[i];
        *q = (struct engine_request){.prompt = prompts[i],
                                     .n_prompt = 1 + be_below(MAX_PROMPT),
                                     .n_choices = 1,
                                     .notify = bell_ring,
                                     .notify_arg = &bell};
        for (uint32_t k = 0; k < q->n_prompt; k++)
            prompts[i][k] = (int32_t)(3 + be_below(N_VOCAB - 3));
        random_params(&q->params);
    }
}

static uint64_t n_overlapped(engine *en) {
    struct engine_stats s;
    engine_stats_get(en, &s);
    return s.steps_overlapped_total;
}

static void run_together(engine *en, struct reading *r, bool on_host) {
    for (uint32_t i = 0; i < n_requests; i++) {
        struct engine_request q = requests[i];
        if (on_host) q.params.bias = &no_bias, q.params.n_bias = 1;
        kit_submit(en, &q, &r[i].stream);
    }
    read_all(r, (int)n_requests, &bell);
    free_all(r, (int)n_requests);
}

static void run_alone(engine *en) {
    for (uint32_t i = 0; i < n_requests; i++) {
        kit_answer(en, &requests[i], &alone[i]);
    }
}

static bool same_answer(const struct reading *a, const struct reading *b) {
    return a->n_final == 1 && b->n_final == 1 && a->n_tokens == b->n_tokens &&
           a->final.finish == b->final.finish && a->final.n_generated == b->final.n_generated &&
           !memcmp(a->tokens, b->tokens, sizeof a->tokens) &&
           !memcmp(a->n_top, b->n_top, sizeof a->n_top) &&
           !memcmp(a->top_tokens, b->top_tokens, sizeof a->top_tokens);
}

/* To the last bit. */
static bool same(const struct reading *a, const struct reading *b) {
    return same_answer(a, b) && a->n_prompt_events == b->n_prompt_events &&
           !memcmp(a->logprobs, b->logprobs, sizeof a->logprobs) &&
           !memcmp(a->top_logprobs, b->top_logprobs, sizeof a->top_logprobs) &&
           !memcmp(a->prompt_logprobs, b->prompt_logprobs, sizeof a->prompt_logprobs);
}

static bool near(float a, float b) {
    return fabsf(a - b) <= 1e-5f * (1 + fabsf(b));
}

static void check_logprobs(const struct reading *device, const struct reading *host, uint32_t i) {
    for (int t = 0; t < device->n_tokens; t++) {
        CHECK_MSG(near(device->logprobs[t], host->logprobs[t]), "request %u, token %d: %g, not %g",
                  i, t, (double)device->logprobs[t], (double)host->logprobs[t]);
        for (int k = 0; k < device->n_top[t]; k++)
            CHECK(near(device->top_logprobs[t][k], host->top_logprobs[t][k]));
    }
}

static void samples_equal_the_hosts(void) {
    struct reading *device = calloc(MOST_REQUESTS, sizeof *device);
    struct reading *host = calloc(MOST_REQUESTS, sizeof *host);
    engine *en = open_engine(8);
    make_requests(be_quick ? n_ranks > 1 ? 1 : 3 : MOST_REQUESTS);
    run_together(en, host, true);
    CHECK(dispatches(en, "sample") == 0 && n_overlapped(en) == 0);
    run_together(en, device, false);
    CHECK(dispatches(en, "sample") > 0);
    run_alone(en);
    for (uint32_t i = 0; i < n_requests; i++) {
        const struct engine_params *p = &requests[i].params;
        CHECK_MSG(same_answer(&device[i], &host[i]),
                  "request %u: temperature %g, top_k %u, top_p %g, min_p %g, penalties %g %g %g, "
                  "logprobs %d",
                  i, (double)p->sampling.temperature, p->sampling.top_k, (double)p->sampling.top_p,
                  (double)p->sampling.min_p, (double)p->sampling.repetition_penalty,
                  (double)p->sampling.presence_penalty, (double)p->sampling.frequency_penalty,
                  p->n_logprobs);
        check_logprobs(&device[i], &host[i], i);
        CHECK_MSG(same(&device[i], &alone[i]),
                  "request %u gives another answer than when run alone", i);
    }
    kit_close(en);
    free(device);
    free(host);
}

/* Requests arrive and are cancelled at any moment, and some end on their own; the cache is too
 * small for all. The answers are those of sampling on the host, without overlapping steps. */
static void steps_overlap(void) {
    static struct engine_params params;
    struct reading *r = calloc(MOST_REQUESTS, sizeof *r), *want = calloc(MOST_REQUESTS, sizeof *r);
    bool cancelled[MOST_REQUESTS] = {false};
    uint32_t n_stopped = 0;
    engine *en = open_engine(8);
    make_requests(be_quick ? 8 : MOST_REQUESTS);
    for (uint32_t i = 0; i < n_requests; i++) {
        params = requests[i].params;
        params.prompt_logprobs = false;
        params.max_tokens = 2 + be_below(be_quick ? 30 : 60);
        if (i % 3 == 0)
            params.sampling.temperature = 2, params.sampling.top_p = 1, params.sampling.top_k = 0;
        requests[i].params = params;
    }
    run_together(en, want, true);
    CHECK(n_overlapped(en) == 0);
    for (uint32_t i = 0; i < n_requests; i++) {
        kit_submit(en, &requests[i], &r[i].stream);
        if (be_below(2)) usleep(be_below(30000));
        uint32_t some = be_below(n_requests);
        if (be_below(4) == 0 && some <= i)
            cancelled[some] = true, engine_stream_cancel(r[some].stream);
    }
    read_all(r, (int)n_requests, &bell);
    free_all(r, (int)n_requests);
    for (uint32_t i = 0; i < n_requests; i++) {
        n_stopped += r[i].final.finish == ENGINE_FINISH_STOP;
        if (r[i].final.finish == ENGINE_FINISH_CANCEL) {
            CHECK(cancelled[i] && r[i].n_final == 1 && r[i].n_tokens <= want[i].n_tokens);
            CHECK(memcmp(r[i].tokens, want[i].tokens, (size_t)r[i].n_tokens * 4) == 0);
            continue;
        }
        CHECK_MSG(same_answer(&r[i], &want[i]), "request %u", i);
        check_logprobs(&r[i], &want[i], i);
    }
    CHECK(n_overlapped(en) > 20 && dispatches(en, "copy_tokens") > 20 &&
          dispatches(en, "update_history") > 5);
    printf("%llu steps overlapped, %u requests ended by a token\n",
           (unsigned long long)n_overlapped(en), n_stopped);
    kit_close(en);
    free(r);
    free(want);
}

/* Penalty histories longer than a step uploads to the device: the host samples from the same
 * logits, and log-probabilities have the same bits. */
static void long_histories_are_sampled_on_the_host(void) {
    struct reading *with = calloc(1, sizeof *with), *many = calloc(MOST_REQUESTS, sizeof *many);
    make_requests(2);
    for (uint32_t i = 0; i < 2; i++) {
        struct engine_request *q = &requests[i];
        q->n_prompt = LONG_PROMPT;
        for (int32_t k = 0; k < LONG_PROMPT; k++)
            prompts[i][k] = 3 + (k * 7 + (int32_t)i) % (N_VOCAB - 3);
        engine_params_default(&q->params);
        q->params.sampling.repetition_penalty = 1.3f;
        q->params.sampling.temperature = 0.9f;
        q->params.has_seed = q->params.ignore_eos = true;
        q->params.seed = 77 + i;
        q->params.max_tokens = 6;
        q->params.n_logprobs = 3;
    }
    engine *few = open_engine(1), *room = open_engine(8);
    run_together(few, many, false);
    for (uint32_t i = 0; i < 2; i++) {
        memset(with, 0, sizeof *with);
        kit_answer(room, &requests[i], with);
        CHECK_MSG(same(with, &many[i]), "request %u", i);
        CHECK(with->n_tokens == 6 && with->n_top[0] == 3);
    }
    CHECK(dispatches(few, "sample") > 0);
    engine_close(few);
    engine_close(room);
    free(with);
    free(many);
}

/* Rank 0 samples; no steps overlap. */
static void a_group_samples_too(void) {
    struct backend_config config = {.name = "cuda", .n_ranks = 2, .max_rows = 8, .max_cols = 512};
    backend *be;
    err e = {0};
    if (backend_open(&config, &be, &e)) {
        SKIP("a_group_samples_too", e.msg);
        return;
    }
    backend_close(be);
    n_ranks = 2;
    samples_equal_the_hosts();
    n_ranks = 1;
}

static void run(void) {
    struct tiny_llama shape = {.seed = 11,
                               .n_vocab = N_VOCAB,
                               .context_length = 1024,
                               .weight_type = QTYPE_Q8_0,
                               .n_heads = 4,
                               .head_dim = 64};
    err e = {0};
    be_need(mkdtemp(folder) != NULL, "a folder");
    snprintf(path, sizeof path, "%s/tiny.gguf", folder);
    be_need(gguf_make_tiny_llama(path, &shape, &e) == 0, e.msg);
    RUN(samples_equal_the_hosts);
    RUN(steps_overlap);
    RUN(long_histories_are_sampled_on_the_host);
    RUN(a_group_samples_too);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

int main(int argc, char **argv) {
    /* The stand-in runs work only when it is waited for, and has two devices. */
    setenv("CUDASIM_LATE", "1", 0);
    setenv("CUDASIM_DEVICES", "2", 0);
    return device_main(argc, argv, "cuda", run);
}
