/* test_worker.c - engine, scheduler and cache together over a fake device (fake_device.h): every
 * request's tokens must be those of a simulation that knows only the request. Arguments: "quick"
 * for a quarter of the random rounds, or a number for that many times as many. */
#include "core/base/mem.h"
#include "core/base/qblock.h"
#include "core/engine/engine_int.h"
#include "core/engine/sampler.h"

#include "check.h"
#include "fake_device.h"
#include "random_jobs.h"

#include <math.h>
#include <unistd.h>

static bool quick;
static int effort = 1;

static int rounds(int n) {
    return quick ? (n + 7) / 8 : n * effort;
}

/* ---- tests ---- */

static int n_transient; /* failures of the device in each run of run_jobs that it recovers from */

/* Sums over sequences, which the histograms of the engine must agree with. */
struct times_sum {
    uint64_t queued_ns, first_ns;
};

static void check_times(const engine_stream *s, struct times_sum *sum) {
    struct engine_times t;
    engine_stream_times(s, &t);
    CHECK(t.submitted_ns && t.submitted_ns <= t.admitted_ns && t.admitted_ns <= t.first_token_ns);
    CHECK(t.first_token_ns <= t.last_token_ns && t.last_token_ns <= t.ended_ns);
    CHECK(t.sampling_ns);
    sum->queued_ns += t.admitted_ns - t.submitted_ns;
    sum->first_ns += t.first_token_ns - t.submitted_ns;
}

/* n_jobs at once in one configuration; returns the engine's counters at the end. */
static struct engine_stats run_jobs(const struct engine_config *c, int n_jobs) {
    struct engine_stats stats = {0};
    struct times_sum times = {0};
    struct bell b;
    engine *en = fake_open(c);
    if (!en) return stats;
    if (n_transient) {
        atomic_store(&fake_recovers, n_transient);
        atomic_store(&fake_fail_every, (int)(rng_next(&rng) % 6));
        atomic_store(&fake_fail_after, (int)(rng_next(&rng) % 12));
    }
    bell_init(&b);
    struct job *jobs = calloc((size_t)n_jobs, sizeof *jobs);
    struct reading *r = calloc((size_t)n_jobs * MAX_CHOICES, sizeof *r);
    int *of = calloc((size_t)n_jobs * MAX_CHOICES, sizeof *of), n = 0;
    for (int i = 0; i < n_jobs; i++) {
        engine_stream *streams[MAX_CHOICES];
        err e;
        random_job(&jobs[i], &b);
        int rc = engine_submit(en, &jobs[i].req, streams, &e);
        CHECK_MSG(rc == 0, "%s", e.msg);
        for (uint32_t k = 0; !rc && k < jobs[i].req.n_choices; k++) {
            of[n] = (int)(i * MAX_CHOICES) + (int)k;
            r[n++].stream = streams[k];
        }
    }
    read_all(r, n, &b);
    for (int i = 0; i < n; i++)
        check_times(r[i].stream, &times);
    free_all(r, n);
    for (int i = 0; i < n; i++)
        check_reading(&r[i], &jobs[of[i] / MAX_CHOICES], (uint32_t)(of[i] % MAX_CHOICES));
    fake_check_ended(en);
    engine_stats_get(en, &stats);
    CHECK(stats.running == 0 && stats.waiting == 0 && stats.healthy);
    CHECK(stats.requests_total[ENGINE_FINISH_STOP] + stats.requests_total[ENGINE_FINISH_LENGTH] ==
          (uint64_t)n);
    CHECK(stats.ttft.count == (uint64_t)n && stats.queue_time.count == (uint64_t)n);
    CHECK(fabs(stats.queue_time.sum - (double)times.queued_ns * 1e-9) < 1e-6);
    CHECK(fabs(stats.ttft.sum - (double)times.first_ns * 1e-9) < 1e-6);
    CHECK(stats.device_recoveries_total == (uint64_t)n_transient);
    engine_close(en);
    bell_fini(&b);
    free(jobs);
    free(r);
    free(of);
    return stats;
}

static void text_is_the_same_in_every_configuration(void) {
    struct engine_stats s;
    for (int round = 0; round < rounds(4); round++) {
        struct engine_config c = base_config();
        c.max_queue = 200;
        s = run_jobs(&c, 40);
        CHECK(s.cached_tokens_total > 0 || fake_state_blocks == 2);
        c.kv_cache_tokens = 32 * (7 + rng_next(&rng) % 6); /* one request needs up to 6 blocks */
        c.block_tokens = 32;
        s = run_jobs(&c, 40);
        CHECK(s.preemptions_total > 0 || fake_state_blocks == 2);
        c.max_batch_tokens = 1 + rng_next(&rng) % 20;
        c.prefill_chunk = 1 + rng_next(&rng) % c.max_batch_tokens;
        c.stream_events = 1 + rng_next(&rng) % 4;
        c.block_tokens = 16;
        run_jobs(&c, 30);
        c = base_config();
        c.max_queue = 200;
        c.max_sequences = 1 + rng_next(&rng) % 3;
        c.max_batch_tokens = 300;
        c.prefill_chunk = 0;
        c.prefix_cache = false;
        s = run_jobs(&c, 30);
    }
}

/* The device fails now and then, and what a failed step wrote is garbage: no request is lost. */
static void transient_failures_lose_nothing(void) {
    for (n_transient = 1; n_transient <= ENGINE_MAX_RECOVERIES; n_transient += 2)
        text_is_the_same_in_every_configuration();
    n_transient = 0;
}

/* Prompts with logits of every row, with more rows than a step may have. */
static void prompt_logprobs_with(uint32_t stream_events) {
    enum { N = 8 };
    struct engine_config c = base_config();
    c.stream_events = stream_events;
    struct bell b;
    struct job jobs[N];
    struct reading *r = calloc(N, sizeof *r);
    c.max_sequences = N;
    c.max_batch_tokens = c.prefill_chunk = 1000;
    bell_init(&b);
    engine *en = fake_open(&c);
    for (int i = 0; i < N; i++) {
        random_job(&jobs[i], &b);
        for (int k = 0; k < MAX_PROMPT; k++)
            jobs[i].prompt[k] = (int32_t)(4 + rng_next(&rng) % (FAKE_VOCAB - 4));
        jobs[i].req.n_prompt = MAX_PROMPT - (uint32_t)i;
        jobs[i].req.n_choices = 1;
        jobs[i].req.params.prompt_logprobs = true;
        CHECK(engine_submit(en, &jobs[i].req, &r[i].stream, NULL) == 0);
    }
    read_all(r, N, &b);
    free_all(r, N);
    for (int i = 0; i < N; i++)
        check_reading(&r[i], &jobs[i], 0);
    fake_check_ended(en);
    engine_close(en);
    bell_fini(&b);
    free(r);
}

static void prompt_logprobs_in_a_wide_step(void) {
    prompt_logprobs_with(16);
    prompt_logprobs_with(1); /* every step fills the ring: the prompt is paused for its reader */
}

static void cancels_free_everything(void) {
    struct engine_config c = base_config();
    struct bell b;
    c.kv_cache_tokens = 640;
    engine *en = fake_open(&c);
    bell_init(&b);
    for (int round = 0; round < rounds(20); round++) {
        enum { N = 24 };
        struct job jobs[N];
        struct reading *r = calloc(N, sizeof *r);
        int n = 0;
        for (int i = 0; i < N; i++) {
            random_job(&jobs[i], &b);
            jobs[i].req.n_choices = 1;
            jobs[i].req.params.ignore_eos = true;
            n += !engine_submit(en, &jobs[i].req, &r[n].stream, NULL);
        }
        usleep(rng_next(&rng) % 1500);
        for (int i = 0; i < n; i++) { /* read a little, cancel, or stop reading */
            if (rng_next(&rng) % 2) reading_poll(&r[i]);
            if (rng_next(&rng) % 2) engine_stream_cancel(r[i].stream);
            if (rng_next(&rng) % 4) continue;
            engine_stream_free(r[i].stream);
            r[i--] = r[--n];
        }
        read_all(r, n, &b);
        free_all(r, n);
        for (int i = 0; i < n; i++)
            CHECK(r[i].n_final == 1 && r[i].final.finish != ENGINE_FINISH_ERROR);
        CHECK(engine_check(en, NULL) == 0);
        free(r);
    }
    fake_check_ended(en);
    engine_close(en);
    bell_fini(&b);
}

/* A worker that waits in on_step until the gate opens. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool open, reached;
};
static void gate_init(struct gate *g) {
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->cond, NULL);
    g->open = g->reached = false;
}
static void gate_step(void *arg, const struct engine_step *step) {
    struct gate *g = arg;
    CHECK(step->n_prefill_rows + step->n_decode_rows > 0);
    pthread_mutex_lock(&g->lock);
    g->reached = true;
    pthread_cond_broadcast(&g->cond);
    while (!g->open)
        pthread_cond_wait(&g->cond, &g->lock);
    pthread_mutex_unlock(&g->lock);
}
static void gate_set(struct gate *g, bool open) {
    pthread_mutex_lock(&g->lock);
    g->open = open;
    pthread_cond_broadcast(&g->cond);
    pthread_mutex_unlock(&g->lock);
}
static void gate_wait(struct gate *g) {
    pthread_mutex_lock(&g->lock);
    while (!g->reached)
        pthread_cond_wait(&g->cond, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

enum { SUBMITTERS = 8, TRIES = 20 };
struct submitter {
    engine *en;
    struct bell *bell;
    struct reading r[TRIES];
    int n_accepted, n_full, n_other;
    uint64_t seed;
};
static void *submit_many(void *arg) {
    struct submitter *s = arg;
    rng.state = s->seed;
    for (int i = 0; i < TRIES; i++) {
        struct job j;
        random_job(&j, s->bell);
        j.req.n_choices = 1;
        int rc = engine_submit(s->en, &j.req, &s->r[s->n_accepted].stream, NULL);
        s->n_accepted += rc == 0;
        s->n_full += rc == ERR_FULL;
        s->n_other += rc != 0 && rc != ERR_FULL;
    }
    return NULL;
}

static void queue_bound_is_exact(void) {
    struct engine_config c = base_config();
    struct gate g;
    struct bell b;
    struct reading first = {0};
    struct job j;
    gate_init(&g);
    bell_init(&b);
    c.max_queue = 37;
    c.on_step = gate_step;
    c.on_step_arg = &g;
    engine *en = fake_open(&c);
    random_job(&j, &b);
    j.req.n_choices = 1;
    CHECK(engine_submit(en, &j.req, &first.stream, NULL) == 0);
    gate_wait(&g); /* the first one was admitted; the worker takes no more now */

    struct submitter *s = calloc(SUBMITTERS, sizeof *s);
    pthread_t threads[SUBMITTERS];
    int accepted = 0, full = 0;
    for (int i = 0; i < SUBMITTERS; i++) {
        s[i].en = en;
        s[i].bell = &b;
        s[i].seed = 100 + (uint64_t)i;
        pthread_create(&threads[i], NULL, submit_many, &s[i]);
    }
    for (int i = 0; i < SUBMITTERS; i++) {
        pthread_join(threads[i], NULL);
        accepted += s[i].n_accepted;
        full += s[i].n_full;
        CHECK(s[i].n_other == 0);
    }
    CHECK_MSG(accepted == 37 && full == SUBMITTERS * TRIES - 37, "%d accepted", accepted);
    struct engine_stats stats;
    engine_stats_get(en, &stats);
    CHECK(stats.waiting == 37 && stats.rejected_total == (uint64_t)full);
    gate_set(&g, true);
    read_all(&first, 1, &b);
    free_all(&first, 1);
    for (int i = 0; i < SUBMITTERS; i++) {
        read_all(s[i].r, s[i].n_accepted, &b);
        free_all(s[i].r, s[i].n_accepted);
    }
    fake_check_ended(en);
    engine_close(en);
    bell_fini(&b);
    free(s);
}

/* Streams without readers, the maximum that can run, fill the cache: the others still end. */
static void slow_readers_do_not_stop_others(void) {
    enum { SLOW = 4, QUICK = 12 };
    struct engine_config c = base_config();
    struct bell b;
    c.stream_events = 2;
    c.max_sequences = SLOW;
    c.kv_cache_tokens = 512;
    bell_init(&b);
    engine *en = fake_open(&c);
    struct reading *r = calloc(SLOW + QUICK, sizeof *r);
    struct job jobs[SLOW + QUICK];
    for (int i = 0; i < SLOW + QUICK; i++) {
        random_job(&jobs[i], &b);
        jobs[i].req.n_choices = 1;
        jobs[i].req.params.priority = 0;
        if (i < SLOW) {
            jobs[i].req.params.ignore_eos = true;
            jobs[i].req.params.max_tokens = 40;
        }
        CHECK(engine_submit(en, &jobs[i].req, &r[i].stream, NULL) == 0);
    }
    read_all(r + SLOW, QUICK, &b);
    read_all(r, SLOW, &b);
    free_all(r, SLOW + QUICK);
    for (int i = 0; i < SLOW + QUICK; i++)
        check_reading(&r[i], &jobs[i], 0);
    fake_check_ended(en);
    engine_close(en);
    bell_fini(&b);
    free(r);
}

/* Once every prompt is computed, each step is as predicted, until sequences end; ends by max_tokens
 * are predicted, too. */
static void decode_steps_are_foreseen(void) {
    enum { N = 5, TOKENS = 40 };
    struct engine_config c = base_config();
    struct bell b;
    struct job jobs[N];
    struct reading *r = calloc(N, sizeof *r);
    struct engine_stats stats;
    bell_init(&b);
    c.max_batch_tokens = c.prefill_chunk = 1000;
    c.stream_events = 1000; /* no sequence waits for its reader */
    engine *en = fake_open(&c);
    int guesses = atomic_load(&fake_guesses), right = atomic_load(&fake_right_guesses);
    for (int i = 0; i < N; i++) {
        random_job(&jobs[i], &b);
        jobs[i].req.n_choices = 1;
        jobs[i].req.params.ignore_eos = true;
        jobs[i].req.params.prompt_logprobs = false;
        jobs[i].req.params.max_tokens = TOKENS + 10 * (uint32_t)i;
        CHECK(engine_submit(en, &jobs[i].req, &r[i].stream, NULL) == 0);
    }
    read_all(r, N, &b);
    free_all(r, N);
    for (int i = 0; i < N; i++)
        check_reading(&r[i], &jobs[i], 0);
    fake_check_ended(en); /* first: a step is counted after its events */
    engine_stats_get(en, &stats);
    guesses = atomic_load(&fake_guesses) - guesses,
    right = atomic_load(&fake_right_guesses) - right;
    CHECK_MSG(guesses >= TOKENS + 10 * (N - 1) - N && guesses - right <= N && guesses >= right,
              "%d of %d guesses were right in %llu steps", right, guesses,
              (unsigned long long)stats.steps_total);
    CHECK(stats.steps_ahead_total == (uint64_t)atomic_load(&fake_right_guesses));
    engine_close(en);
    bell_fini(&b);
    free(r);
}

static void stop_ends_every_stream_once(void) {
    for (int round = 0; round < rounds(10); round++) {
        enum { N = 30 };
        struct engine_config c = base_config();
        struct bell b;
        int n = 0, stopped = 0;
        bell_init(&b);
        engine *en = fake_open(&c);
        struct reading *r = calloc(N + 1, sizeof *r);
        struct job j;
        for (int i = 0; i < N; i++) {
            random_job(&j, &b);
            j.req.n_choices = 1;
            n += !engine_submit(en, &j.req, &r[n].stream, NULL);
        }
        usleep(rng_next(&rng) % 1000);
        engine_drain(en);
        err e;
        j.req.n_choices = 1;
        CHECK(engine_submit(en, &j.req, &r[n].stream, &e) == ERR_STOPPING);
        if (round % 2) read_all(r, n, &b); /* a drained engine goes on */
        engine_stop(en);
        engine_stop(en);
        CHECK(engine_check(en, NULL) == 0);
        if (round % 3 == 0) engine_stream_cancel(r[0].stream);
        read_all(r, n, &b);
        free_all(r, n);
        for (int i = 0; i < n; i++) {
            CHECK(r[i].n_final == 1);
            if (r[i].final.finish != ENGINE_FINISH_ERROR) continue;
            CHECK(r[i].final.error.code == ERR_STOPPING);
            stopped++;
        }
        CHECK(!(round % 2) || !stopped);
        fake_check_ended(en);
        engine_close(en);
        bell_fini(&b);
        free(r);
    }
}

/* Failures of the device or of the model's file: results computed from a changed file never reach a
 * client. */
static void failure_ends_all_and_refuses(int code) {
    enum { N = 20 };
    struct engine_config c = base_config();
    struct bell b;
    struct job jobs[N];
    struct engine_stats stats;
    err e;
    bell_init(&b);
    c.max_sequences = 4;
    engine *en = fake_open(&c);
    struct reading *r = calloc(N, sizeof *r), *want = malloc(sizeof *want);
    if (code == ERR_DEVICE)
        atomic_store(&fake_fail_after, 5);
    else
        atomic_store(&fake_change_at, atomic_load(&fake_forwards) + 12);
    int n = 0, failed = 0;
    for (; n < N; n++) {
        random_job(&jobs[n], &b);
        jobs[n].req.n_choices = 1;
        if (engine_submit(en, &jobs[n].req, &r[n].stream, NULL)) break;
    }
    read_all(r, n, &b);
    free_all(r, n);
    for (int i = 0; i < n; i++) {
        simulate(&jobs[i], 0, want);
        CHECK(r[i].n_final == 1 && r[i].n_tokens <= want->n_tokens &&
              !memcmp(r[i].tokens, want->tokens, sizeof(int32_t) * (size_t)r[i].n_tokens));
        if (r[i].final.finish != ENGINE_FINISH_ERROR) continue;
        failed++;
        CHECK(r[i].final.error.code == code && !strstr(r[i].final.error.msg, "secret"));
    }
    CHECK(failed > 0);
    CHECK(engine_submit(en, &jobs[0].req, &r[0].stream, &e) == code);
    fake_check_ended(en); /* first: a step is counted after its events */
    engine_stats_get(en, &stats);
    CHECK(!stats.healthy && stats.running == 0);
    atomic_store(&fake_change_at, 0);
    engine_close(en);
    bell_fini(&b);
    free(r);
    free(want);
}

static void device_failure_ends_all_and_refuses(void) {
    failure_ends_all_and_refuses(ERR_DEVICE);
}

static void changed_file_ends_all_and_refuses(void) {
    failure_ends_all_and_refuses(ERR_CHANGED);
}

/* NaN logits end only their own sequence. */
static void broken_logits_end_one_sequence(void) {
    struct engine_config c = base_config();
    struct bell b;
    struct job jobs[3];
    struct reading *r = calloc(3, sizeof *r);
    bell_init(&b);
    engine *en = fake_open(&c);
    for (int i = 0; i < 3; i++) {
        random_job(&jobs[i], &b);
        jobs[i].req.n_choices = 1;
        if (i == 1) jobs[i].prompt[0] = FAKE_POISON;
        CHECK(engine_submit(en, &jobs[i].req, &r[i].stream, NULL) == 0);
    }
    read_all(r, 3, &b);
    free_all(r, 3);
    check_reading(&r[0], &jobs[0], 0);
    check_reading(&r[2], &jobs[2], 0);
    CHECK(r[1].n_tokens == 0 && r[1].final.finish == ENGINE_FINISH_ERROR &&
          r[1].final.error.code == ERR_DEVICE);
    fake_check_ended(en);
    engine_close(en);
    bell_fini(&b);
    free(r);
}

/* Cancelled while paused, and while waiting at a closed gate: final at once, blocks free. */
static void cancel_while_paused_or_waiting(void) {
    struct engine_config c = base_config();
    struct bell b;
    struct job jobs[3];
    struct engine_stats s;
    struct reading *r = calloc(3, sizeof *r);
    bell_init(&b);
    c.max_sequences = 1;
    c.stream_events = 1;
    engine *en = fake_open(&c);
    for (int i = 0; i < 3; i++) {
        random_job(&jobs[i], &b);
        jobs[i].req.n_choices = 1;
        jobs[i].req.params.ignore_eos = true;
        jobs[i].req.params.prompt_logprobs = false;
        jobs[i].req.params.max_tokens = 30;
        CHECK(engine_submit(en, &jobs[i].req, &r[i].stream, NULL) == 0);
    }
    /* Each pauses after its first token, with steps that overlap its second; there are no readers.
     */
    bell_wait(&b, 0);
    for (int i = 0; i < 3; i++)
        engine_stream_cancel(r[i].stream);
    read_all(r, 3, &b);
    for (int i = 0; i < 3; i++)
        CHECK(r[i].final.finish == ENGINE_FINISH_CANCEL && r[i].n_tokens <= 1 + fake_overlaps);
    fake_check_ended(en);
    engine_stats_get(en, &s);
    CHECK(s.requests_total[ENGINE_FINISH_CANCEL] == 3 && s.running == 0 && s.waiting == 0);
    free_all(r, 3);
    engine_close(en);
    bell_fini(&b);
    free(r);
}

/* One per stream: calls after engine_stream_free returned are counted. */
struct doorbell {
    atomic_bool freed;
    atomic_int calls, late;
};
static void doorbell_ring(void *arg) {
    struct doorbell *d = arg;
    atomic_fetch_add(&d->calls, 1);
    if (atomic_load(&d->freed)) atomic_fetch_add(&d->late, 1);
}

static void no_notify_after_free(void) {
    enum { N = 300 };
    struct engine_config c = base_config();
    struct doorbell *d = calloc(N, sizeof *d);
    struct job j;
    int calls = 0;
    engine *en = fake_open(&c);
    for (int i = 0; i < rounds(N); i++) {
        struct doorbell *mine = &d[i % N];
        engine_stream *stream;
        random_job(&j, NULL);
        j.req.n_choices = 1;
        j.req.notify = doorbell_ring;
        j.req.notify_arg = mine;
        atomic_store(&mine->freed, false);
        if (engine_submit(en, &j.req, &stream, NULL)) continue;
        if (i % 2) usleep(rng_next(&rng) % 100);
        for (int k = 0; i % 50 == 0 && k < 20000 && !atomic_load(&mine->calls); k++)
            usleep(100); /* some are notified in any case, even on a busy machine */
        engine_stream_free(stream);
        atomic_store(&mine->freed, true);
    }
    engine_check(en, NULL); /* the worker has handled every cancel before it answers */
    fake_check_ended(en);
    for (int i = 0; i < N; i++) {
        CHECK(atomic_load(&d[i].late) == 0);
        calls += atomic_load(&d[i].calls);
    }
    CHECK(calls > 0);
    engine_close(en);
    free(d);
}

static void refuse(engine *en, struct job *j, int code, const char *param) {
    engine_stream *streams[ENGINE_MAX_CHOICES];
    err e;
    err_clear(&e);
    int rc = engine_submit(en, &j->req, streams, &e);
    CHECK_MSG(rc == code && e.code == code, "%s: %d", param, rc);
    CHECK_STR(e.param, param);
    CHECK(e.msg[0]);
}

static void requests_are_checked(void) {
    static const struct {
        const char *param;
        size_t offset;
        float bad[2];
    } floats[] = {
        {"temperature", offsetof(struct engine_params, sampling.temperature), {-0.1f, 2.1f}},
        {"top_p", offsetof(struct engine_params, sampling.top_p), {0, 1.01f}},
        {"min_p", offsetof(struct engine_params, sampling.min_p), {-0.1f, 1.1f}},
        {"presence_penalty",
         offsetof(struct engine_params, sampling.presence_penalty),
         {-2.1f, 2.1f}},
        {"frequency_penalty",
         offsetof(struct engine_params, sampling.frequency_penalty),
         {-2.1f, 2.1f}},
        {"repetition_penalty",
         offsetof(struct engine_params, sampling.repetition_penalty),
         {0, INFINITY}},
    };
    struct engine_config c = base_config();
    struct engine_logit_bias bias = {FAKE_VOCAB, 1};
    struct bell b;
    struct job j;
    engine *en = fake_open(&c);
    bell_init(&b);
    CHECK(engine_context_length(en) == FAKE_CONTEXT);
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
        for (int k = 0; k < 3; k++) {
            float value = k < 2 ? floats[i].bad[k] : NAN;
            random_job(&j, &b);
            memcpy((char *)&j.req.params + floats[i].offset, &value, sizeof value);
            refuse(en, &j, ERR_INVALID, floats[i].param);
        }
    random_job(&j, &b);
    j.req.params.n_logprobs = 21;
    refuse(en, &j, ERR_INVALID, "top_logprobs");
    random_job(&j, &b);
    j.req.params.bias = &bias;
    j.req.params.n_bias = 1;
    refuse(en, &j, ERR_INVALID, "logit_bias");
    bias = (struct engine_logit_bias){1, 100.5f};
    refuse(en, &j, ERR_INVALID, "logit_bias");
    random_job(&j, &b);
    j.req.n_choices = 129;
    refuse(en, &j, ERR_INVALID, "n");
    random_job(&j, &b);
    j.prompt[j.req.n_prompt - 1] = FAKE_VOCAB;
    refuse(en, &j, ERR_INVALID, "prompt");
    j.req.n_prompt = 0;
    refuse(en, &j, ERR_INVALID, "prompt");

    int32_t *ids = calloc(FAKE_CONTEXT, sizeof *ids);
    random_job(&j, &b);
    j.req.prompt = ids;
    j.req.n_prompt = FAKE_CONTEXT;
    refuse(en, &j, ERR_TOO_LONG, "");
    struct reading *r = calloc(1, sizeof *r); /* one token fits; max_tokens is clipped to it */
    j.req.n_prompt = FAKE_CONTEXT - 1;
    j.req.n_choices = 1;
    j.req.params.max_tokens = 0;
    j.req.params.ignore_eos = true;
    CHECK(engine_submit(en, &j.req, &r->stream, NULL) == 0);
    read_all(r, 1, &b);
    CHECK(r->n_tokens == 1 && r->final.finish == ENGINE_FINISH_LENGTH);
    free_all(r, 1);
    fake_check_ended(en);
    engine_close(en);
    engine_close(NULL);
    bell_fini(&b);
    free(ids);
    free(r);
}

/* The same with a device that samples tokens and takes a step before the previous one is finished:
 * unpredictable events (ends, cancels, full streams, preemptions) take effect one step later. */
static void all_while_steps_overlap(void) {
    int before = atomic_load(&fake_token_copies);
    fake_overlaps = true;
    text_is_the_same_in_every_configuration();
    transient_failures_lose_nothing();
    prompt_logprobs_in_a_wide_step();
    cancels_free_everything();
    queue_bound_is_exact();
    slow_readers_do_not_stop_others();
    stop_ends_every_stream_once();
    device_failure_ends_all_and_refuses();
    broken_logits_end_one_sequence();
    cancel_while_paused_or_waiting();
    no_notify_after_free();
    fake_overlaps = false;
    CHECK(atomic_load(&fake_token_copies) - before > 500);
}

static void all_while_every_step_may_overlap(void) {
    overlaps = true;
    all_while_steps_overlap();
    overlaps = false;
}

static void all_with_recurrent_layers(void) {
    fake_states = true;
    for (fake_state_blocks = 2; fake_state_blocks < (quick ? 8 : 20); fake_state_blocks *= 4) {
        text_is_the_same_in_every_configuration();
        transient_failures_lose_nothing();
        cancels_free_everything();
    }
    all_while_steps_overlap();
    fake_states = false, fake_state_blocks = 0;
}

/* K/V leave for the store and come back, all the time. */
static void all_with_a_store(void) {
    char folder[] = "/tmp/inferd-worker-XXXXXX", secret[64], command[128];
    struct kvstore_stats s;
    err e = {0};
    CHECK(mkdtemp(folder) != NULL);
    snprintf(secret, sizeof secret, "%s/secret", folder);
    const struct kvstore_config c = {
        .folder = folder, .secret = secret, .version = "", .max_bytes = 1 << 20, .max_files = 30};
    CHECK_MSG(kvstore_open(&c, &fake_store, &e) == 0, "%s", e.msg);
    text_is_the_same_in_every_configuration();
    transient_failures_lose_nothing();
    cancels_free_everything();
    all_while_every_step_may_overlap();
    all_with_recurrent_layers();
    kvstore_stats_get(fake_store, &s);
    CHECK(s.written > 0 && s.evicted > 0 && s.read_bytes > 0 && s.damaged == 0 && s.failed == 0);
    CHECK(atomic_load(&fake_side_joins) > 0);
    kvstore_close(fake_store);
    fake_store = NULL;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

int main(int argc, char **argv) {
    quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    if (argc > 1 && !quick) effort = atoi(argv[1]);
    if (effort < 1) {
        fprintf(stderr, "usage: test_worker [quick | TIMES]: TIMES is 1 or more, not \"%s\"\n",
                argv[1]);
        return 2;
    }
    RUN(text_is_the_same_in_every_configuration);
    RUN(transient_failures_lose_nothing);
    RUN(prompt_logprobs_in_a_wide_step);
    RUN(cancels_free_everything);
    RUN(queue_bound_is_exact);
    RUN(slow_readers_do_not_stop_others);
    RUN(decode_steps_are_foreseen);
    RUN(stop_ends_every_stream_once);
    RUN(device_failure_ends_all_and_refuses);
    RUN(changed_file_ends_all_and_refuses);
    RUN(broken_logits_end_one_sequence);
    RUN(cancel_while_paused_or_waiting);
    RUN(no_notify_after_free);
    RUN(requests_are_checked);
    RUN(all_while_steps_overlap);
    RUN(all_while_every_step_may_overlap);
    RUN(all_with_recurrent_layers);
    RUN(all_with_a_store);
    return check_done();
}
