/* stream_reader.h - reads engine streams to their end, for tests: waits for notify, keeps the
 * tokens and the final event of each. */
#ifndef INFERD_TESTS_STREAM_READER_H
#define INFERD_TESTS_STREAM_READER_H

#include "core/engine/engine.h"

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

/* One waiting place for any number of streams. */
struct bell {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    uint64_t rings;
};

static void bell_init(struct bell *b) {
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->cond, NULL);
    b->rings = 0;
}

static void bell_fini(struct bell *b) {
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->cond);
}

static void bell_ring(void *arg) {
    struct bell *b = arg;
    pthread_mutex_lock(&b->lock);
    b->rings++;
    pthread_cond_broadcast(&b->cond);
    pthread_mutex_unlock(&b->lock);
}

static uint64_t bell_count(struct bell *b) {
    pthread_mutex_lock(&b->lock);
    uint64_t rings = b->rings;
    pthread_mutex_unlock(&b->lock);
    return rings;
}

static void bell_wait(struct bell *b, uint64_t seen) {
    pthread_mutex_lock(&b->lock);
    while (b->rings == seen)
        pthread_cond_wait(&b->cond, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

/* Takes what is there; true while the final event is missing. */
static bool reading_poll(struct reading *r) {
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

/* Reads all to their ends; the streams' notify is bell_ring. */
static void read_all(struct reading *r, int n, struct bell *b) {
    for (bool open = true; open;) {
        uint64_t seen = bell_count(b);
        open = false;
        for (int i = 0; i < n; i++)
            if (!r[i].n_final && reading_poll(&r[i])) open = true;
        if (open) bell_wait(b, seen);
    }
}

static void free_all(struct reading *r, int n) {
    for (int i = 0; i < n; i++) {
        struct engine_event ev;
        if (r[i].n_final && engine_stream_next(r[i].stream, &ev)) r[i].n_final++;
        engine_stream_free(r[i].stream);
        r[i].stream = NULL;
    }
}

#endif
