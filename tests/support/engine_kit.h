/* engine_kit.h - shared by tests of the engine: a small configuration, opening and closing an
 * engine, the check that it is idle, and reading streams to their end (waits for notify, keeps the
 * tokens and the final event of each). Include in one file of a test only. */
#ifndef INFERD_TESTS_SUPPORT_ENGINE_KIT_H
#define INFERD_TESTS_SUPPORT_ENGINE_KIT_H

#include "core/base/mem.h"
#include "core/base/qblock.h"
#include "core/engine/engine_int.h"
#include "tests/unit/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { READER_MAX_TOKENS = 512 };

struct reading {
    engine_stream *stream;
    int32_t tokens[READER_MAX_TOKENS];
    float logprobs[READER_MAX_TOKENS];
    int n_tokens;
    int n_top[READER_MAX_TOKENS];
    int32_t top_tokens[READER_MAX_TOKENS][ENGINE_MAX_TOP_LOGPROBS];
    float top_logprobs[READER_MAX_TOKENS][ENGINE_MAX_TOP_LOGPROBS];
    float prompt_logprobs[READER_MAX_TOKENS];
    int32_t prompt_tokens[READER_MAX_TOKENS];
    int n_prompt_events;
    int n_final; /* must become 1 */
    struct engine_event final;
};

/* Wakes the reader of any number of streams. */
struct bell {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    uint64_t rings;
};

/* The bell of tests with a single one. */
static struct bell bell = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

static inline void bell_init(struct bell *b) {
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->cond, NULL);
    b->rings = 0;
}

static inline void bell_fini(struct bell *b) {
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->cond);
}

static inline void bell_ring(void *arg) {
    struct bell *b = arg;
    pthread_mutex_lock(&b->lock);
    b->rings++;
    pthread_cond_broadcast(&b->cond);
    pthread_mutex_unlock(&b->lock);
}

static inline uint64_t bell_count(struct bell *b) {
    pthread_mutex_lock(&b->lock);
    uint64_t rings = b->rings;
    pthread_mutex_unlock(&b->lock);
    return rings;
}

static inline void bell_wait(struct bell *b, uint64_t seen) {
    pthread_mutex_lock(&b->lock);
    while (b->rings == seen)
        pthread_cond_wait(&b->cond, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

/* Reads the events that are available; true while the final one is missing. */
static inline bool reading_poll(struct reading *r) {
    struct engine_event ev;
    while (engine_stream_next(r->stream, &ev)) {
        if (ev.kind == ENGINE_EVENT_FINAL) {
            r->n_final++;
            r->final = ev;
        } else if (ev.kind == ENGINE_EVENT_PROMPT && r->n_prompt_events < READER_MAX_TOKENS) {
            r->prompt_tokens[r->n_prompt_events] = ev.token;
            r->prompt_logprobs[r->n_prompt_events++] = ev.logprob;
        } else if (r->n_tokens < READER_MAX_TOKENS) {
            r->tokens[r->n_tokens] = ev.token;
            r->n_top[r->n_tokens] = ev.n_top;
            for (int i = 0; i < ev.n_top; i++) {
                r->top_tokens[r->n_tokens][i] = ev.top_token[i];
                r->top_logprobs[r->n_tokens][i] = ev.top_logprob[i];
            }
            r->logprobs[r->n_tokens++] = ev.logprob;
        }
    }
    return !r->n_final;
}

/* Reads every stream to its end; the streams' notify is bell_ring. */
static inline void read_all(struct reading *r, int n, struct bell *b) {
    for (bool open = true; open;) {
        uint64_t seen = bell_count(b);
        open = false;
        for (int i = 0; i < n; i++)
            if (!r[i].n_final && reading_poll(&r[i])) open = true;
        if (open) bell_wait(b, seen);
    }
}

static inline void free_all(struct reading *r, int n) {
    for (int i = 0; i < n; i++) {
        struct engine_event ev;
        if (r[i].n_final && engine_stream_next(r[i].stream, &ev)) r[i].n_final++;
        engine_stream_free(r[i].stream);
        r[i].stream = NULL;
    }
}

/* A small engine on the CPU; tests override what they need. */
static inline struct engine_config kit_config(const char *model_path) {
    return (struct engine_config){
        .model_path = model_path,
        .backend = "cpu",
        .isa = "",
        .n_threads = 2,
        .kv_cache_tokens = 4096,
        .kv_type = QTYPE_F16,
        .block_tokens = 16,
        .max_batch_tokens = 64,
        .prefill_chunk = 24,
        .max_sequences = 16,
        .max_queue = 64,
        .stream_events = 64,
        .prefix_cache = true,
    };
}

/* A failure ends the test binary. */
static inline engine *kit_open(const struct engine_config *c) {
    engine *en = NULL;
    err e = {0};
    if (engine_open(c, &en, &e) == 0) return en;
    fprintf(stderr, "cannot open the engine over %s: %s\n", c->model_path, e.msg);
    exit(1);
}

static inline void kit_submit(engine *en, const struct engine_request *q, engine_stream **streams) {
    err e = {0};
    CHECK_MSG(engine_submit(en, q, streams, &e) == 0, "%s", e.msg);
}

/* Submits a request of one choice, whose notify rings `bell`, and reads its whole answer. */
static inline void kit_answer(engine *en, const struct engine_request *q, struct reading *r) {
    kit_submit(en, q, &r->stream);
    read_all(r, 1, &bell);
    free_all(r, 1);
}

/* Every sequence has ended: none runs or waits, every KV and state block is free, the invariants
 * hold. */
static inline void kit_check_ended(engine *en) {
    struct engine_stats s;
    err e = {0};
    CHECK_MSG(engine_check(en, &e) == 0, "%s", e.msg);
    engine_stats_get(en, &s);
    CHECK(s.kv_blocks_free == s.kv_blocks && s.state_blocks_free == s.state_blocks);
    CHECK(s.running == 0 && s.waiting == 0);
    CHECK_MSG(mem_guard_violations() == 0, "%d", (int)mem_guard_violations());
}

/* The same, and the backend did not fail. */
static inline void kit_check_idle(engine *en) {
    struct engine_stats s;
    kit_check_ended(en);
    engine_stats_get(en, &s);
    CHECK(s.healthy);
}

static inline void kit_close(engine *en) {
    kit_check_idle(en);
    engine_close(en);
}

#endif
