/* test_worker_grammar.c - sequences with grammars, over a fake device (fake_device.h): random
 * requests in random configurations against a simulation that knows only the request: it asks the
 * grammar's matcher after each token which tokens are allowed, and takes forced tokens one at a
 * time. Rounds differ in how many masks the worker may compute itself, from none to all. An
 * argument multiplies the number of rounds. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/qblock.h"
#include "core/base/thread.h"
#include "core/engine/engine_int.h"

#include "check.h"
#include "fake_device.h"
#include "tests/support/rng.h"

#include <unistd.h>

/* The thread of deferred masks reads its clock before and after each slice; a test holds it
 * there. */
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_cond = PTHREAD_COND_INITIALIZER;
static bool gate_closed;
static uint64_t look_ns, look_clock; /* time of a slice */

void thread_enter_background(void) {}

uint64_t thread_cpu_ns(void) {
    pthread_mutex_lock(&gate_lock);
    while (gate_closed)
        pthread_cond_wait(&gate_cond, &gate_lock);
    uint64_t now = look_clock += look_ns;
    pthread_mutex_unlock(&gate_lock);
    return now;
}

static void set_gate(bool closed) {
    pthread_mutex_lock(&gate_lock);
    gate_closed = closed;
    pthread_cond_broadcast(&gate_cond);
    pthread_mutex_unlock(&gate_lock);
}

static struct rng rng = {17};

/* Long words without a choice; bounded and endless texts; an end at any place; a control token. */
static const char *const patterns[] = {
    "(abcdefghijklm|nopqrstuvw|nobody)(,(abcabcabc|xyzxyz)){1,6}",
    "[a-z]{3,40}",
    "\\{(\"[a-e]*\":\"[a-z]{1,5}\",)*\"thisistheend\":\"yes\"\\}",
    "(ab|cd|ef)*",
    "mississippi",
    "[a-z,:]*",
};
enum { N_PATTERNS = sizeof patterns / sizeof *patterns, MAX_PROMPT = 60, N_JOBS = 24 };
static grammar *grammars[N_PATTERNS];

static void make_grammars(void) {
    for (int i = 0; i < N_PATTERNS; i++) {
        err e = {0};
        grammar_builder *b = grammar_builder_new();
        CHECK_MSG(grammar_finish(b, grammar_regex(b, patterns[i]), &grammars[i], &e) == 0, "%s",
                  e.msg);
        grammar_builder_free(b);
    }
}

struct job {
    int32_t prompt[MAX_PROMPT];
    struct engine_logit_bias bias;
    struct engine_request req;
};

static void random_job(struct job *j) {
    struct engine_params *p = &j->req.params;
    *j = (struct job){.req = {.prompt = j->prompt,
                              .n_prompt = 1 + rng_next(&rng) % MAX_PROMPT,
                              .n_choices = 1,
                              .notify = bell_ring,
                              .notify_arg = &bell}};
    for (uint32_t i = 0; i < j->req.n_prompt; i++)
        j->prompt[i] = (int32_t)(4 + rng_next(&rng) % (FAKE_VOCAB - 4));
    engine_params_default(p);
    p->max_tokens = 1 + rng_next(&rng) % 60;
    p->has_seed = true;
    p->seed = rng_next(&rng);
    p->sampling.temperature = rng_next(&rng) % 3 ? 1.0f : 0;
    if (rng_next(&rng) % 2) p->sampling.top_k = 1 + rng_next(&rng) % 20;
    if (rng_next(&rng) % 4 == 0) p->sampling.repetition_penalty = 1.4f;
    if (rng_next(&rng) % 3 == 0) p->n_logprobs = (int)(rng_next(&rng) % 3);
    if (rng_next(&rng) % 4 == 0) p->prompt_logprobs = true;
    if (fake_overlaps) p->n_logprobs = -1; /* a device's sums are rounded */
    p->ignore_eos = rng_next(&rng) % 4 == 0;
    p->priority = (int)(rng_next(&rng) % 3);
    j->bias = (struct engine_logit_bias){(int32_t)(rng_next(&rng) % FAKE_VOCAB), 20};
    p->bias = &j->bias, p->n_bias = rng_next(&rng) % 2;
    if (rng_next(&rng) % 6) p->grammar = grammars[rng_next(&rng) % N_PATTERNS];
}

/* ---- simulation ---- */

static grammar_vocab *vocab; /* of its own */

/* The longest token that is a prefix of the bytes, by trying all; the last of equal ones. */
static size_t longest_token(const char *bytes, size_t n, int32_t *token) {
    size_t longest = 0;
    for (int32_t id = 0; id < FAKE_VOCAB; id++) {
        size_t len;
        const char *text = tokenizer_token_bytes(NULL, id, false, &len);
        if (len && len <= n && len >= longest && !memcmp(text, bytes, len))
            longest = len, *token = id;
    }
    return longest;
}

struct simulated {
    struct reading want;
    uint32_t n_forced;
    grammar_matcher *matcher;
    uint32_t mask[(FAKE_VOCAB + 31) / 32];
};

/* Is only the end allowed? Removes the end if other tokens are allowed and the request ignores
 * it. */
static bool only_end(struct simulated *s, bool ignore_eos) {
    grammar_matcher_mask(s->matcher, s->mask);
    const uint32_t end = 1u << FAKE_EOG;
    if (s->mask[0] == end && !s->mask[1]) return true;
    if (ignore_eos) s->mask[0] &= ~end;
    return false;
}

static int32_t next_token(struct simulated *s, const struct sampler_request *req, sampler *smp) {
    char bytes[64];
    int32_t token = -1;
    size_t n = s->matcher ? grammar_matcher_forced(s->matcher, bytes, sizeof bytes) : 0;
    size_t longest = n ? longest_token(bytes, n, &token) : 0;
    if (longest && longest < n) {
        s->n_forced++;
        return token;
    }
    CHECK(sampler_sample(smp, req, &token) == 0);
    return token;
}

static void simulate(const struct job *j, struct simulated *s) {
    const struct engine_params *p = &j->req.params;
    sampler *smp = sampler_new(FAKE_VOCAB);
    struct penalty_history history;
    struct engine_event ev = {0};
    int32_t text[MAX_PROMPT + READER_MAX_TOKENS];
    float logits[FAKE_VOCAB];
    uint32_t n = j->req.n_prompt;
    err e = {0};
    memset(s, 0, sizeof *s);
    if (p->grammar)
        CHECK_MSG(grammar_matcher_new(p->grammar, vocab, &s->matcher, &e) == 0, "%s", e.msg);
    memcpy(text, j->prompt, n * sizeof *text);
    CHECK(penalty_history_init(&history, FAKE_VOCAB) == 0);
    for (uint32_t i = 0; i < n; i++)
        penalty_history_add(&history, text[i], false);
    struct reading *w = &s->want;
    w->final.finish = ENGINE_FINISH_STOP;
    for (;;) {
        if (s->matcher && only_end(s, p->ignore_eos)) break;
        if (w->final.n_generated == p->max_tokens) {
            w->final.finish = ENGINE_FINISH_LENGTH;
            break;
        }
        fake_logits(text, n, logits);
        struct sampler_request req = {.params = p,
                                      .history = &history,
                                      .seed = (uint64_t)p->seed,
                                      .index = w->final.n_generated++,
                                      .logits = logits,
                                      .mask = s->matcher ? s->mask : NULL};
        int32_t token = next_token(s, &req, smp);
        if (token == FAKE_EOG && !p->ignore_eos) break;
        if (s->matcher) CHECK(grammar_matcher_accept(s->matcher, token));
        if (p->n_logprobs >= 0) sampler_logprobs(smp, logits, token, 0, &ev);
        w->logprobs[w->n_tokens] = p->n_logprobs >= 0 ? ev.logprob : 0;
        w->tokens[w->n_tokens++] = text[n++] = token;
        penalty_history_add(&history, token, true);
    }
    grammar_matcher_free(s->matcher);
    penalty_history_fini(&history);
    sampler_free(smp);
}

/* ---- comparison ---- */

static struct engine_config random_config(void) {
    struct engine_config c = {.model_path = "fake",
                              .backend = "fake",
                              .kv_cache_tokens = rng_next(&rng) % 2 ? 4096 : 160,
                              .kv_type = QTYPE_F16,
                              .block_tokens = 16,
                              .context_length = 140,
                              .max_batch_tokens = 1 + rng_next(&rng) % 80,
                              .prefill_chunk = 1 + rng_next(&rng) % 30,
                              .max_sequences = 1 + rng_next(&rng) % 12,
                              .max_queue = 64,
                              .stream_events = 1 + rng_next(&rng) % 40,
                              .prefix_cache = rng_next(&rng) % 4 > 0,
                              .grammar_cache_bytes = rng_next(&rng) % 3 ? 4096 : 0};
    return c;
}

static uint64_t n_forced_in_all, n_preemptions, n_deferred;

/* Units for a mask on the worker: almost none, some, enough. */
static engine *open_engine(const struct engine_config *c, uint64_t units) {
    engine *en = fake_open(c);
    en->deferred.units = units; /* before the first request: no thread reads it yet */
    return en;
}

static void check_reading(const struct reading *r, const struct job *j, uint64_t *n_forced) {
    struct simulated *s = calloc(1, sizeof *s);
    simulate(j, s);
    const struct reading *w = &s->want;
    *n_forced += s->n_forced;
    CHECK_MSG(r->n_final == 1 && r->final.finish == w->final.finish, "finish %d, want %d: %s",
              (int)r->final.finish, (int)w->final.finish, r->final.error.msg);
    CHECK(r->final.n_generated == w->final.n_generated);
    CHECK(r->n_tokens == w->n_tokens && !memcmp(r->tokens, w->tokens, sizeof w->tokens) &&
          !memcmp(r->logprobs, w->logprobs, sizeof w->logprobs));
    free(s);
}

static void check_idle(engine *en, struct engine_stats *stats) {
    fake_check_ended(en);
    engine_stats_get(en, stats);
}

static void run_round(void) {
    static const uint64_t budgets[] = {1, 20, 400, UINT64_MAX};
    struct engine_config c = random_config();
    struct job *jobs = calloc(N_JOBS, sizeof *jobs);
    struct reading *r = calloc(N_JOBS, sizeof *r);
    struct engine_stats stats;
    uint64_t n_forced = 0, units = budgets[rng_next(&rng) % 4];
    engine *en = open_engine(&c, units);
    err e = {0};
    for (int i = 0; i < N_JOBS; i++) {
        random_job(&jobs[i]);
        CHECK_MSG(engine_submit(en, &jobs[i].req, &r[i].stream, &e) == 0, "%s", e.msg);
    }
    read_all(r, N_JOBS, &bell);
    free_all(r, N_JOBS);
    for (int i = 0; i < N_JOBS; i++)
        check_reading(&r[i], &jobs[i], &n_forced);
    check_idle(en, &stats);
    CHECK(stats.forced_tokens_total == n_forced);
    CHECK(units == UINT64_MAX ? !stats.masks_deferred_total
          : units == 1        ? stats.masks_deferred_total > N_JOBS
                              : true);
    n_forced_in_all += n_forced;
    n_preemptions += stats.preemptions_total;
    n_deferred += stats.masks_deferred_total;
    engine_close(en);
    free(jobs);
    free(r);
}

static int n_rounds = 40;

static void as_if_alone_and_token_by_token(void) {
    for (int i = 0; i < n_rounds; i++)
        run_round();
    CHECK(n_forced_in_all > 100 && n_preemptions > 10 && n_deferred > 1000);
}

/* ---- while masks are held ---- */

enum { N_HELD = 6, N_FREE = 6, N_ALL = N_HELD + N_FREE };

/* The first N_HELD have endless grammars, the others none. */
static void submit_mixed(engine *en, struct job *jobs, struct reading *r) {
    err e = {0};
    for (int i = 0; i < N_ALL; i++) {
        random_job(&jobs[i]);
        struct engine_params *p = &jobs[i].req.params;
        p->grammar = i < N_HELD ? grammars[5] : NULL;
        p->ignore_eos = true;
        p->max_tokens = 40;
        CHECK_MSG(engine_submit(en, &jobs[i].req, &r[i].stream, &e) == 0, "%s", e.msg);
    }
}

/* Waits until sequence i got n tokens. */
static void read_until(struct reading *r, int n) {
    for (;;) {
        uint64_t seen = bell_count(&bell);
        if (!reading_poll(r) || r->n_tokens >= n) return;
        bell_wait(&bell, seen);
    }
}

/* Masks are held from the beginning, or in the middle of answers. Meanwhile all requests without a
 * grammar end. Some of the held ones are cancelled or reach their deadline; the rest continue
 * unchanged. */
static void deferred_masks_delay_no_other(void) {
    for (int round = 0; round < 2 * n_rounds; round++) {
        struct engine_config c = random_config();
        struct job *jobs = calloc(N_ALL, sizeof *jobs);
        struct reading *r = calloc(N_ALL, sizeof *r);
        struct engine_stats stats;
        uint64_t n_forced = 0;
        int middle = round % 2 ? 1 + (int)(rng_next(&rng) % 10) : 0;
        set_gate(!middle);
        engine *en = open_engine(&c, 1);
        submit_mixed(en, jobs, r);
        if (middle) read_until(&r[0], middle);
        set_gate(true);
        read_all(r + N_HELD, N_FREE, &bell);
        for (int i = 0; i < N_HELD; i++) {
            reading_poll(&r[i]);
            if (!middle) CHECK(!r[i].n_tokens && !r[i].n_final);
        }
        for (int i = 1; i < N_HELD; i += 2)
            engine_stream_cancel(r[i].stream);
        for (int i = 1; i < N_HELD; i += 2) { /* while the gate is still closed */
            read_all(&r[i], 1, &bell);
            CHECK(r[i].final.finish == ENGINE_FINISH_CANCEL || middle);
        }
        set_gate(false);
        read_all(r, N_HELD, &bell);
        free_all(r, N_ALL);
        for (int i = 0; i < N_ALL; i++)
            if (i >= N_HELD || i % 2 == 0) check_reading(&r[i], &jobs[i], &n_forced);
        check_idle(en, &stats);
        engine_close(en);
        free(jobs);
        free(r);
    }
}

static void deadlines_end_held_ones(void) {
    struct engine_config c = base_config();
    struct job j;
    struct reading *r = calloc(1, sizeof *r);
    struct engine_stats stats;
    err e = {0};
    set_gate(true);
    engine *en = open_engine(&c, 1);
    random_job(&j);
    j.req.params.grammar = grammars[5];
    j.req.deadline_ns = clock_now_ns() + 20000000;
    CHECK_MSG(engine_submit(en, &j.req, &r->stream, &e) == 0, "%s", e.msg);
    read_all(r, 1, &bell);
    CHECK(r->final.finish == ENGINE_FINISH_ERROR && r->final.error.code == ERR_DEADLINE);
    free_all(r, 1);
    check_idle(en, &stats);
    set_gate(false);
    engine_close(en);
    free(r);
}

static void *stop_engine(void *en) {
    engine_stop(en);
    return NULL;
}

/* With waiting masks and one being computed. */
static void a_stop_ends_held_ones(void) {
    for (int round = 0; round < n_rounds; round++) {
        struct engine_config c = random_config();
        struct job *jobs = calloc(N_ALL, sizeof *jobs);
        struct reading *r = calloc(N_ALL, sizeof *r);
        pthread_t stopper;
        engine *en = open_engine(&c, 1);
        set_gate(false);
        submit_mixed(en, jobs, r);
        if (round % 2) read_until(&r[0], 3);
        set_gate(true);
        CHECK(pthread_create(&stopper, NULL, stop_engine, en) == 0);
        read_all(r, N_HELD, &bell); /* the streams' ends do not wait for the mask */
        for (int i = 0; i < N_HELD; i++)
            CHECK(r[i].n_final == 1 && (r[i].final.error.code == ERR_STOPPING || round % 2));
        set_gate(false);
        pthread_join(stopper, NULL);
        free_all(r, N_ALL);
        engine_close(en);
        free(jobs);
        free(r);
    }
}

/* The device fails while masks are held: all streams end at once. */
static void a_failing_device_ends_held_ones(void) {
    struct engine_config c = base_config();
    struct job *jobs = calloc(N_ALL, sizeof *jobs);
    struct reading *r = calloc(N_ALL, sizeof *r);
    set_gate(true);
    engine *en = open_engine(&c, 1);
    submit_mixed(en, jobs, r);
    atomic_store(&fake_fail_after, 0);
    engine_stream *more = NULL; /* in case all running ones have ended by now */
    bool went = !engine_submit(en, &jobs[N_HELD].req, &more, NULL);
    read_all(r, N_ALL, &bell);
    for (int i = 0; i < N_HELD; i++)
        CHECK(r[i].n_final == 1 && r[i].final.error.code == ERR_DEVICE);
    if (went) engine_stream_free(more);
    set_gate(false);
    free_all(r, N_ALL);
    engine_close(en);
    atomic_store(&fake_fail_after, -1);
    free(jobs);
    free(r);
}

/* Each slice takes a quarter of a second; the limit is three seconds. */
static void expensive_masks_are_given_up(void) {
    struct engine_config c = base_config();
    struct job *jobs = calloc(N_ALL, sizeof *jobs);
    struct reading *r = calloc(N_ALL, sizeof *r);
    struct engine_stats stats;
    uint64_t n_forced = 0;
    c.grammar_work_s = 3;
    look_ns = 250000000;
    engine *en = open_engine(&c, 1);
    submit_mixed(en, jobs, r);
    read_all(r, N_ALL, &bell);
    for (int i = 0; i < N_ALL; i++) {
        if (i >= N_HELD) {
            check_reading(&r[i], &jobs[i], &n_forced);
            continue;
        }
        CHECK(r[i].n_final == 1 && r[i].final.error.code == ERR_WORK);
        CHECK_MSG(r[i].n_tokens <= 11, "%d tokens", r[i].n_tokens); /* 12 masks, the first before */
    }
    free_all(r, N_ALL);
    check_idle(en, &stats);
    CHECK(stats.masks_given_up_total == N_HELD);
    CHECK(stats.deferred_mask_ns_total >= N_HELD * UINT64_C(3000000000));
    engine_close(en);
    look_ns = 0;
    free(jobs);
    free(r);
}

static void all_while_steps_overlap(void) {
    fake_overlaps = true;
    as_if_alone_and_token_by_token();
    deferred_masks_delay_no_other();
    a_stop_ends_held_ones();
    a_failing_device_ends_held_ones();
    fake_overlaps = false;
}

int main(int argc, char **argv) {
    err e = {0};
    if (argc > 1 && strcmp(argv[1], "quick") == 0)
        n_rounds /= 4;
    else if (argc > 1)
        n_rounds *= atoi(argv[1]);
    make_grammars();
    CHECK_MSG(engine_grammar_vocab(NULL, FAKE_VOCAB, 0, &vocab, &e) == 0, "%s", e.msg);
    RUN(as_if_alone_and_token_by_token);
    RUN(deferred_masks_delay_no_other);
    RUN(deadlines_end_held_ones);
    RUN(a_stop_ends_held_ones);
    RUN(a_failing_device_ends_held_ones);
    RUN(expensive_masks_are_given_up);
    RUN(all_while_steps_overlap);
    grammar_vocab_free(vocab);
    for (int i = 0; i < N_PATTERNS; i++)
        grammar_release(grammars[i]);
    return check_done();
}
