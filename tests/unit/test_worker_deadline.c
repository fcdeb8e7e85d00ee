/* test_worker_deadline.c - requests with a deadline, over a fake device (fake_device.h): overdue
 * requests end in every state, the others continue with the same tokens. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/qblock.h"
#include "core/engine/engine_int.h"

#include "check.h"
#include "fake_device.h"

#include <time.h>
#include <unistd.h>

enum { N = 9, CHOICES = 3, PROMPT = 20, TOKENS = 60, EVENTS = 16 };

static int32_t prompts[N][PROMPT];

static struct engine_request request(int i) {
    struct engine_request q = {.prompt = prompts[i],
                               .n_prompt = PROMPT,
                               .n_choices = i % 4 == 1 ? CHOICES : 1,
                               .notify = bell_ring,
                               .notify_arg = &bell};
    engine_params_default(&q.params);
    q.params.max_tokens = TOKENS;
    q.params.ignore_eos = true;
    q.params.has_seed = true;
    q.params.seed = i;
    q.params.priority = i % 3;
    q.params.sampling.top_k = 5;
    for (uint32_t t = 0; t < PROMPT; t++)
        prompts[i][t] = 4 + (i * 7 + (int32_t)t) % (FAKE_VOCAB - 4);
    return q;
}

/* Request i's streams are r[CHOICES * i] and the following ones. */
static void submit(engine *en, int i, uint64_t deadline_ns, struct reading *r) {
    struct engine_request q = request(i);
    engine_stream *streams[CHOICES] = {NULL};
    q.deadline_ns = deadline_ns;
    kit_submit(en, &q, streams);
    for (uint32_t k = 0; k < q.n_choices; k++)
        r[k].stream = streams[k];
}

static void read_request(int i, struct reading *r) {
    read_all(r, (int)request(i).n_choices, &bell);
}

static void close_engine(engine *en) {
    fake_check_ended(en);
    engine_close(en);
}

/* Without readers every sequence stops: paused, preempted, or never admitted; the worker sleeps,
 * and only the deadlines wake it. Every other request has one. */
static void what_waits_ends_by_its_deadline(void) {
    struct engine_config c = base_config();
    struct reading *want = calloc((size_t)N * CHOICES, sizeof *want);
    struct reading *got = calloc((size_t)N * CHOICES, sizeof *got);
    struct engine_stats s;
    uint32_t n_overdue = 0;
    c.max_sequences = 3;
    c.kv_cache_tokens = 160;
    c.context_length = 100;
    c.stream_events = EVENTS;
    engine *en = fake_open(&c);
    for (int i = 0; i < N; i++) {
        submit(en, i, 0, want + CHOICES * i);
        read_request(i, want + CHOICES * i);
    }
    for (int i = 0; i < N; i++) {
        bool has = i % 2;
        submit(en, i, has ? clock_now_ns() + 20000000u * (uint64_t)i : 0, got + CHOICES * i);
        n_overdue += has ? request(i).n_choices : 0;
    }
    for (int k = 0; k < 20000; k++) {
        engine_stats_get(en, &s);
        if (s.overdue_total == n_overdue) break;
        usleep(1000);
    }
    CHECK_MSG(s.overdue_total == n_overdue, "%llu of %u ended", (unsigned long long)s.overdue_total,
              n_overdue);
    for (int i = 0; i < N; i++) {
        read_request(i, got + CHOICES * i);
        for (uint32_t k = 0; k < request(i).n_choices; k++) {
            struct reading *g = &got[CHOICES * i + (int)k], *w = &want[CHOICES * i + (int)k];
            CHECK(g->n_final == 1 && g->n_tokens <= w->n_tokens && w->n_tokens == TOKENS);
            CHECK(!memcmp(g->tokens, w->tokens, sizeof(int32_t) * (size_t)g->n_tokens));
            CHECK(g->final.finish == (i % 2 ? ENGINE_FINISH_ERROR : ENGINE_FINISH_LENGTH));
            CHECK(g->final.error.code == (i % 2 ? ERR_DEADLINE : 0));
            CHECK(g->n_tokens == (i % 2 ? g->n_tokens : TOKENS));
        }
    }
    for (int i = 0; i < N * CHOICES; i++) {
        if (want[i].stream) free_all(&want[i], 1);
        if (got[i].stream) free_all(&got[i], 1);
    }
    close_engine(en);
    free(want);
    free(got);
}

/* Holds the worker after one step until the deadline. */
static atomic_uint_fast64_t held_until;
static void hold_step(void *arg, const struct engine_step *step) {
    uint64_t until = atomic_load(&held_until);
    (void)arg;
    (void)step;
    while (clock_now_ns() < until)
        usleep(200);
}

/* During prefill or decode: no token after the deadline. */
static void what_runs_ends_between_two_steps(void) {
    struct engine_config c = base_config();
    c.on_step = hold_step;
    c.max_batch_tokens = 8; /* the prompt takes three steps */
    engine *en = fake_open(&c);
    for (int i = 0; i < N; i += 2) { /* one choice each */
        struct reading *r = calloc(1, sizeof *r);
        uint64_t deadline = clock_now_ns() + UINT64_C(100000000);
        atomic_store(&held_until, deadline); /* after its first step, however late that is */
        submit(en, i, deadline, r);
        read_all(r, 1, &bell);
        CHECK(r->final.finish == ENGINE_FINISH_ERROR && r->final.error.code == ERR_DEADLINE);
        CHECK_MSG(r->n_tokens <= (fake_overlaps ? 1 : 0), "%d tokens", r->n_tokens);
        free_all(r, 1);
        free(r);
    }
    struct engine_request q = request(0);
    engine_stream *stream;
    err e = {0};
    q.deadline_ns = clock_now_ns();
    CHECK(engine_submit(en, &q, &stream, &e) == ERR_DEADLINE);
    q.deadline_ns = UINT64_MAX;
    atomic_store(&held_until, 0);
    CHECK(engine_submit(en, &q, &stream, &e) == 0);
    struct reading *r = calloc(1, sizeof *r);
    r->stream = stream;
    read_all(r, 1, &bell);
    CHECK(r->final.finish == ENGINE_FINISH_LENGTH && r->n_tokens == TOKENS);
    free_all(r, 1);
    free(r);
    close_engine(en);
}

static void both_while_steps_overlap(void) {
    fake_overlaps = true;
    what_waits_ends_by_its_deadline();
    what_runs_ends_between_two_steps();
    fake_overlaps = false;
}

int main(void) {
    RUN(what_waits_ends_by_its_deadline);
    RUN(what_runs_ends_between_two_steps);
    RUN(both_while_steps_overlap);
    return check_done();
}
