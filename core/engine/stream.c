/* stream.c - the bounded ring between the worker and the reader of one sequence.
 *
 * The worker pushes events and the final event; the reader takes them. A full ring pauses the
 * sequence (the worker's decision), and a reader that has emptied half of it wakes the worker. The
 * final event has a place of its own, so that it can always be delivered. Nothing here waits. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/engine/engine_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

enum { RING_MIN_EVENTS = 16 }; /* of a choice among many */

/* Sizes the ring: a request's choices share stream_events, and no more than max_tokens events come.
 * A step of a sequence with prompt events delivers up to ENGINE_PROMPT_LOGPROB_ROWS at once, and a
 * pipeline has several of them in flight, so it has that many slots above the limit that pauses it;
 * one more is for a step that was in flight. */
static int init_ring(struct engine_stream *st, uint32_t n_choices) {
    const struct engine_params *p = &st->params;
    uint32_t events = st->en->config.stream_events, limit = events / n_choices;
    if (limit < RING_MIN_EVENTS) limit = events < RING_MIN_EVENTS ? events : RING_MIN_EVENTS;
    if (limit > st->max_tokens && !p->prompt_logprobs) limit = st->max_tokens;
    if (st->seq.pooled) limit = 1; /* no events at all */
    const uint32_t n_flows = st->en->split.n > 1 ? st->en->split.n : 1;
    st->ring_limit = limit;
    st->ring_capacity = limit + (p->prompt_logprobs ? n_flows * ENGINE_PROMPT_LOGPROB_ROWS : 0) + 1;
    st->n_top = p->n_logprobs > 0 ? (uint32_t)p->n_logprobs : 0;
    uint64_t n_tops = (uint64_t)st->ring_capacity * st->n_top;
    st->ring = mem_new(st->ring_capacity, sizeof *st->ring);
    st->ring_top_token = mem_new(n_tops, sizeof *st->ring_top_token);
    st->ring_top_logprob = mem_new(n_tops, sizeof *st->ring_top_logprob);
    return st->ring && st->ring_top_token && st->ring_top_logprob ? 0 : ERR_NOMEM;
}

static int init_tokens(struct engine_stream *st, const struct engine_request *req) {
    uint32_t n_prompt = req->n_prompt - req->n_generated;
    uint64_t capacity = (uint64_t)n_prompt + st->max_tokens; /* <= context length */
    st->seq.tokens = mem_new(capacity, sizeof *st->seq.tokens);
    if (!st->seq.tokens) return ERR_NOMEM;
    memcpy(st->seq.tokens, req->prompt, (size_t)req->n_prompt * sizeof *req->prompt);
    st->seq.n_tokens = req->n_prompt;
    st->seq.n_prompt = n_prompt;
    st->seq.capacity = (uint32_t)capacity;
    _Static_assert((int)ENGINE_PRIORITY_BACKGROUND == (int)SCHED_BACKGROUND, "they are one");
    st->seq.priority = req->params.priority;
    st->seq.client = req->params.client;
    st->seq.weight = req->params.client_weight;
    st->seq.holder = req->params.holder;
    st->seq.most_blocks = engine_most_blocks(st->en, &req->params);
    st->seq.salt = req->params.prefix_salt;
    st->seq.system_tokens = req->system_tokens;
    st->seq.stable_tokens = req->stable_tokens;
    st->n_generated = req->n_generated;
    st->second_from = st->en->hp.encoder.n_types > 1 ? req->second_from : 0;
    return 0;
}

static int init_pooling(struct engine_stream *st, enum engine_pooling how) {
    st->seq.pooled = how != ENGINE_POOLING_NONE;
    st->seq.all_rows =
        how == ENGINE_POOLING_MEAN || how == ENGINE_POOLING_CLS || st->en->hp.both_ways;
    return pooled_init(&st->pooled, how, st->en);
}

static int init_sampling(struct engine_stream *st, const struct engine_request *req) {
    const struct engine_params *p = &req->params;
    const struct sched_seq *seq = &st->seq;
    st->bias = mem_new(p->n_bias, sizeof *st->bias);
    if (!st->bias) return ERR_NOMEM;
    st->seq.all_rows = p->prompt_logprobs && seq->n_prompt > 1 && !req->n_generated;
    if (p->n_bias) memcpy(st->bias, p->bias, p->n_bias * sizeof *p->bias);
    st->params.bias = st->bias;
    /* A mask needs all logits, on the host. */
    st->n_row_top = st->en->allowed ? 0 : sampler_n_top(p, st->en->hp.n_vocab);
    /* A row's best token alone is found faster by backend_top. */
    st->on_device = st->en->steps[0].batch.limits.max_history && st->n_row_top != 1 && !p->n_bias &&
                    !p->grammar && !st->en->allowed;
    if (st->on_device) {
        uint32_t n_top = p->n_logprobs > 0 ? (uint32_t)p->n_logprobs : 0;
        st->n_row_top = n_top < st->en->hp.n_vocab ? n_top : st->en->hp.n_vocab;
    }
    if (!sampler_has_penalty(p)) return 0;
    uint32_t n_vocab = st->en->hp.n_vocab;
    if (penalty_history_init(&st->history, seq->capacity < n_vocab ? seq->capacity : n_vocab))
        return ERR_NOMEM;
    for (uint32_t i = 0; i < seq->n_tokens; i++)
        penalty_history_add(&st->history, seq->tokens[i], i >= seq->n_prompt);
    return 0;
}

int stream_new(engine *en, const struct engine_request *req, uint32_t choice, uint32_t max_tokens,
               struct engine_stream **out, err *e) {
    struct engine_stream *st = mem_new(1, sizeof *st);
    if (!st) return err_no_memory(e);
    st->en = en;
    st->params = req->params;
    st->max_tokens = max_tokens;
    st->notify = req->notify;
    st->notify_arg = req->notify_arg;
    st->submit_ns = clock_now_ns();
    st->deadline_ns = req->deadline_ns;
    st->seed = (uint64_t)req->params.seed + req->first_choice + choice;
    pthread_mutex_init(&st->ring_lock, NULL);
    pthread_mutex_init(&st->notify_lock, NULL);
    atomic_init(&st->cancelled, false);
    atomic_init(&st->ended, false);
    atomic_init(&st->mask_ready, false);
    atomic_init(&st->refs, 1);
    int rc = init_tokens(st, req);
    if (!rc) rc = req->pooling ? init_pooling(st, req->pooling) : init_sampling(st, req);
    if (!rc && !choice) rc = tier_name_prompt(st); /* the others share its blocks */
    if (!rc) rc = init_ring(st, req->n_choices);
    if (!rc && !req->params.has_seed && getentropy(&st->seed, sizeof st->seed)) rc = ERR_IO;
    if (rc)
        err_set(e, rc,
                rc == ERR_IO ? "cannot read a random seed from the system" : "out of memory");
    if (!rc && req->params.grammar && !req->pooling)
        rc = constraint_init(&st->constraint, en, req, e);
    if (rc) {
        stream_unref(st);
        return rc;
    }
    atomic_store(&st->refs, 2);
    *out = st;
    return 0;
}

void stream_unref(struct engine_stream *st) {
    if (!st || atomic_fetch_sub(&st->refs, 1) != 1) return;
    pthread_mutex_destroy(&st->ring_lock);
    pthread_mutex_destroy(&st->notify_lock);
    constraint_fini(&st->constraint);
    pooled_fini(&st->pooled);
    penalty_history_fini(&st->history);
    free(st->seq.tokens);
    free(st->names);
    free(st->bias);
    free(st->ring);
    free(st->ring_top_token);
    free(st->ring_top_logprob);
    free(st);
}

void stream_wake_worker(struct engine_stream *st) {
    engine *en = st->en;
    pthread_mutex_lock(&en->lock);
    if (!st->in_wake_list && !en->joined) {
        st->in_wake_list = true;
        st->wake_next = en->wake_list;
        en->wake_list = st;
        atomic_fetch_add(&st->refs, 1);
        pthread_cond_signal(&en->wake);
    }
    pthread_mutex_unlock(&en->lock);
}

uint32_t stream_n_cached(const struct engine_stream *st) {
    return st->seq.n_cached < st->seq.n_prompt ? st->seq.n_cached : st->seq.n_prompt;
}

uint64_t engine_stream_seed(const engine_stream *st) {
    return st->seed;
}

void engine_stream_times(const engine_stream *st, struct engine_times *out) {
    *out = (struct engine_times){.submitted_ns = st->submit_ns,
                                 .admitted_ns = atomic_load(&st->times.admitted_ns),
                                 .first_token_ns = atomic_load(&st->times.first_token_ns),
                                 .last_token_ns = atomic_load(&st->times.last_token_ns),
                                 .ended_ns = atomic_load(&st->times.ended_ns),
                                 .sampling_ns = atomic_load(&st->times.sampling_ns)};
}

/* final_read is the reader's own. */
const float *engine_stream_embedding(const engine_stream *st, uint32_t *n) {
    *n = st->pooled.scores ? 1 : st->en->hp.n_embd;
    return st->final_read && st->finish == ENGINE_FINISH_STOP ? st->pooled.result : NULL;
}

static void call_notify(struct engine_stream *st) {
    pthread_mutex_lock(&st->notify_lock);
    if (st->notify) st->notify(st->notify_arg);
    pthread_mutex_unlock(&st->notify_lock);
}

bool stream_push(struct engine_stream *st, const struct engine_event *ev) {
    pthread_mutex_lock(&st->ring_lock);
    bool was_empty = !st->ring_count;
    assert(st->ring_count < st->ring_capacity);
    uint32_t at = (st->ring_head + st->ring_count++) % st->ring_capacity;
    st->ring[at] = (struct ring_slot){ev->kind, ev->token, ev->logprob, ev->n_top};
    size_t top_bytes = (size_t)ev->n_top * sizeof(int32_t), top_at = (size_t)at * st->n_top;
    memcpy(st->ring_top_token + top_at, ev->top_token, top_bytes);
    memcpy(st->ring_top_logprob + top_at, ev->top_logprob, top_bytes);
    bool room = st->ring_count < st->ring_limit;
    if (!room) st->waits_for_room = true; /* later pushes of the step do not clear it */
    pthread_mutex_unlock(&st->ring_lock);
    if (was_empty) call_notify(st);
    return room;
}

_Static_assert((int)ENGINE_N_MISSES == (int)KV_N_MISSES &&
                   (int)ENGINE_MISS_STATE == (int)KV_MISS_STATE,
               "the same reasons");

void stream_push_final(struct engine_stream *st, enum engine_finish finish, const err *error) {
    pthread_mutex_lock(&st->ring_lock);
    bool was_empty = !st->ring_count;
    st->has_final = true;
    st->finish = finish;
    st->final_generated = st->n_generated;
    st->final_cached = stream_n_cached(st);
    st->final_miss = (enum engine_miss)st->seq.miss;
    if (error) st->final_error = *error;
    pthread_mutex_unlock(&st->ring_lock);
    if (was_empty) call_notify(st);
}

bool stream_has_room(struct engine_stream *st) {
    pthread_mutex_lock(&st->ring_lock);
    bool room = st->ring_count < st->ring_limit;
    if (room) st->waits_for_room = false;
    pthread_mutex_unlock(&st->ring_lock);
    return room;
}

static void take_slot(struct engine_stream *st, struct engine_event *ev) {
    const struct ring_slot *slot = &st->ring[st->ring_head];
    size_t top_bytes = (size_t)slot->n_top * sizeof(int32_t);
    size_t top_at = (size_t)st->ring_head * st->n_top;
    ev->kind = slot->kind;
    ev->token = slot->token;
    ev->logprob = slot->logprob;
    ev->n_top = slot->n_top;
    memcpy(ev->top_token, st->ring_top_token + top_at, top_bytes);
    memcpy(ev->top_logprob, st->ring_top_logprob + top_at, top_bytes);
    st->ring_head = (st->ring_head + 1) % st->ring_capacity;
    st->ring_count--;
}

int engine_stream_next(engine_stream *st, struct engine_event *ev) {
    bool got = true, wake = false;
    memset(ev, 0, sizeof *ev);
    pthread_mutex_lock(&st->ring_lock);
    if (st->ring_count) {
        take_slot(st, ev);
        wake = st->waits_for_room && st->ring_count <= st->ring_limit / 2;
        if (wake) st->waits_for_room = false;
    } else if (st->has_final && !st->final_read) {
        st->final_read = true;
        ev->kind = ENGINE_EVENT_FINAL;
        ev->finish = st->finish;
        ev->n_prompt = st->seq.n_prompt;
        ev->n_generated = st->final_generated;
        ev->n_cached = st->final_cached;
        ev->miss = st->final_miss;
        ev->error = st->final_error;
    } else {
        got = false;
    }
    pthread_mutex_unlock(&st->ring_lock);
    if (wake) stream_wake_worker(st);
    return got;
}

void engine_stream_cancel(engine_stream *st) {
    if (atomic_exchange(&st->cancelled, true)) return;
    pthread_mutex_lock(&st->ring_lock);
    bool final = st->has_final;
    pthread_mutex_unlock(&st->ring_lock);
    if (!final) stream_wake_worker(st);
}

void engine_stream_free(engine_stream *st) {
    if (!st) return;
    pthread_mutex_lock(&st->notify_lock);
    st->notify = NULL;
    pthread_mutex_unlock(&st->notify_lock);
    engine_stream_cancel(st);
    stream_unref(st);
}
