/* random_jobs.h - random requests for an engine on the fake device, and what each is to give: a
 * simulation that knows only the request. Include after fake_device.h. */
#ifndef INFERD_TESTS_RANDOM_JOBS_H
#define INFERD_TESTS_RANDOM_JOBS_H

#include "core/engine/sampler.h"

#include "check.h"
#include "fake_device.h"
#include "tests/support/rng.h"

static _Thread_local struct rng rng = {11};

enum { MAX_PROMPT = 120, MAX_CHOICES = 3 };
struct job {
    int32_t prompt[MAX_PROMPT];
    struct engine_logit_bias bias[2];
    struct engine_request req;
};

static bool overlaps; /* all jobs, from now on */
static void random_job(struct job *j, struct bell *b) {
    static const int32_t common[MAX_PROMPT] = {0}; /* many prompts share a prefix */
    struct engine_params *p = &j->req.params;
    memset(j, 0, sizeof *j);
    j->req.n_prompt = 1 + rng_next(&rng) % MAX_PROMPT;
    uint32_t shared = rng_next(&rng) % 2 ? rng_next(&rng) % MAX_PROMPT : 0;
    for (uint32_t i = 0; i < j->req.n_prompt; i++)
        j->prompt[i] = i < shared ? common[i] : (int32_t)(4 + rng_next(&rng) % (FAKE_VOCAB - 4));
    j->req.prompt = j->prompt;
    j->req.system_tokens = j->req.n_prompt / 4;
    j->req.stable_tokens = j->req.n_prompt / 2;
    j->req.n_choices = rng_next(&rng) % 4 ? 1 : 1 + rng_next(&rng) % MAX_CHOICES;
    j->req.notify = bell_ring;
    j->req.notify_arg = b;
    engine_params_default(p);
    p->max_tokens = 1 + rng_next(&rng) % 60;
    p->has_seed = true;
    p->seed = (int64_t)rng_next(&rng) - 1000;
    p->sampling.temperature = rng_next(&rng) % 3 ? 0.3f + (float)(rng_next(&rng) % 100) / 80 : 0;
    if (rng_next(&rng) % 2) p->sampling.top_p = 0.9f;
    if (rng_next(&rng) % 2) p->sampling.top_k = 1 + rng_next(&rng) % 30;
    if (rng_next(&rng) % 4 == 0) p->sampling.repetition_penalty = 1.3f;
    if (rng_next(&rng) % 4 == 0)
        p->sampling.frequency_penalty = 0.7f, p->sampling.presence_penalty = -0.4f;
    if (rng_next(&rng) % 4 == 0) p->prompt_logprobs = true;
    p->n_logprobs = (int)(rng_next(&rng) % 4) - 1;
    p->ignore_eos = rng_next(&rng) % 4 == 0;
    bool plain = rng_next(&rng) % 3 == 0; /* samples from a few tokens */
    if (plain)
        p->sampling.repetition_penalty = 1,
        p->sampling.frequency_penalty = p->sampling.presence_penalty = 0;
    if (plain) p->n_logprobs = -1, p->sampling.top_k = 1 + rng_next(&rng) % 30;
    p->priority = (int)(rng_next(&rng) % 3);
    if (overlaps) { /* lets the next step begin before this one is finished */
        p->prompt_logprobs = false;
        plain = true;
    }
    for (p->n_bias = plain ? 0 : rng_next(&rng) % 3, p->bias = j->bias;
         p->n_bias && !j->bias[p->n_bias - 1].bias;)
        for (uint32_t i = 0; i < p->n_bias; i++)
            j->bias[i] = (struct engine_logit_bias){(int32_t)(rng_next(&rng) % FAKE_VOCAB), 1.5f};
}

/* The expected tokens of choice `choice` of the request. */
static void simulate(const struct job *j, uint32_t choice, struct reading *want) {
    const struct engine_params *p = &j->req.params;
    sampler *s = sampler_new(FAKE_VOCAB);
    struct penalty_history history;
    int32_t text[MAX_PROMPT + READER_MAX_TOKENS];
    float logits[FAKE_VOCAB];
    struct engine_event ev = {0};
    uint32_t n = j->req.n_prompt, generated = 0;
    memset(want, 0, sizeof *want);
    memcpy(text, j->prompt, n * sizeof *text);
    CHECK(penalty_history_init(&history, FAKE_VOCAB) == 0);
    for (uint32_t i = 0; i < n; i++)
        penalty_history_add(&history, text[i], false);
    for (uint32_t i = 1; p->prompt_logprobs && i < n; i++) {
        fake_logits(text, i, logits);
        sampler_logprobs(s, logits, text[i], 0, &ev);
        want->prompt_tokens[want->n_prompt_events] = text[i];
        want->prompt_logprobs[want->n_prompt_events++] = ev.logprob;
    }
    for (want->final.finish = ENGINE_FINISH_LENGTH; generated < p->max_tokens;) {
        int32_t token = 0;
        fake_logits(text, n, logits);
        struct sampler_request req = {.params = p,
                                      .history = &history,
                                      .seed = (uint64_t)p->seed + choice,
                                      .index = generated++,
                                      .logits = logits};
        sampler_sample(s, &req, &token);
        if (token == FAKE_EOG && !p->ignore_eos) {
            want->final.finish = ENGINE_FINISH_STOP;
            break;
        }
        if (p->n_logprobs >= 0) sampler_logprobs(s, logits, token, 0, &ev);
        want->logprobs[want->n_tokens] = p->n_logprobs >= 0 ? ev.logprob : 0;
        want->tokens[want->n_tokens++] = text[n++] = token;
        penalty_history_add(&history, token, true);
    }
    want->final.n_generated = generated;
    penalty_history_fini(&history);
    sampler_free(s);
}

static void check_reading(const struct reading *got, const struct job *j, uint32_t choice) {
    struct reading *want = malloc(sizeof *want);
    simulate(j, choice, want);
    CHECK(got->n_final == 1);
    CHECK_MSG(got->final.finish == want->final.finish, "%d: %s", (int)got->final.finish,
              got->final.error.msg);
    CHECK(got->n_tokens == want->n_tokens &&
          !memcmp(got->tokens, want->tokens, sizeof(int32_t) * (size_t)want->n_tokens));
    for (int i = 0; i < want->n_tokens; i++) /* a device's sum is rounded */
        CHECK(fake_overlaps ? fabsf(got->logprobs[i] - want->logprobs[i]) < 1e-5f
                            : got->logprobs[i] == want->logprobs[i]);
    CHECK(got->n_prompt_events == want->n_prompt_events &&
          !memcmp(got->prompt_tokens, want->prompt_tokens, sizeof want->prompt_tokens) &&
          !memcmp(got->prompt_logprobs, want->prompt_logprobs, sizeof want->prompt_logprobs));
    CHECK(got->final.n_generated == want->final.n_generated &&
          got->final.n_prompt == j->req.n_prompt && got->final.n_cached < j->req.n_prompt);
    free(want);
}

#endif
