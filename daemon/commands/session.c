/* session.c - several streams and one condition variable: the worker wakes the caller, which takes
 * all available events. */
#include "daemon/commands/session.h"

#include "core/base/mem.h"

#include <pthread.h>
#include <stdlib.h>

struct session {
    engine *engine;
    const struct session_job *job;
    struct slot {
        engine_stream *stream; /* NULL: free */
        size_t index;
    } * slots; /* (job->n_parallel) */
    size_t n_started;
    uint32_t n_running;
    bool exhausted;
    pthread_mutex_t lock; /* guards woken */
    pthread_cond_t wake;
    bool woken;
};

static void notify_session(void *arg) {
    struct session *s = arg;
    pthread_mutex_lock(&s->lock);
    s->woken = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

static void wait_woken(struct session *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->woken)
        pthread_cond_wait(&s->wake, &s->lock);
    s->woken = false;
    pthread_mutex_unlock(&s->lock);
}

static int start_slot(struct session *s, struct slot *slot, err *e) {
    struct engine_request req = {.n_choices = 1};
    engine_params_default(&req.params);
    if (!s->job->next(s->job->arg, s->n_started, &req)) {
        s->exhausted = true;
        return 0;
    }
    req.notify = notify_session;
    req.notify_arg = s;
    int rc = engine_submit(s->engine, &req, &slot->stream, e);
    if (rc) {
        slot->stream = NULL;
        return rc;
    }
    slot->index = s->n_started++;
    s->n_running++;
    return 0;
}

/* Takes all available events. A stream that ends frees its slot. */
static int take_events(struct session *s, struct slot *slot, err *e) {
    struct engine_event ev;
    while (slot->stream && engine_stream_next(slot->stream, &ev) == 1) {
        if (s->job->event) s->job->event(s->job->arg, slot->index, &ev);
        if (ev.kind != ENGINE_EVENT_FINAL) continue;
        engine_stream_free(slot->stream);
        slot->stream = NULL;
        s->n_running--;
        if (ev.finish == ENGINE_FINISH_ERROR) return err_set(e, ev.error.code, "%s", ev.error.msg);
    }
    return 0;
}

int session_run(engine *en, const struct session_job *job, err *e) {
    struct session s = {.engine = en, .job = job};
    int rc = 0;
    s.slots = mem_new(job->n_parallel, sizeof *s.slots);
    if (!s.slots) return err_no_memory(e);
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.wake, NULL);
    for (uint32_t i = 0; i < job->n_parallel && !s.exhausted && !rc; i++)
        rc = start_slot(&s, &s.slots[i], e);
    if (job->submitted) job->submitted(job->arg);
    while (!rc && (s.n_running || !s.exhausted)) {
        for (uint32_t i = 0; i < job->n_parallel && !s.exhausted && !rc; i++)
            if (!s.slots[i].stream) rc = start_slot(&s, &s.slots[i], e);
        if (s.n_running && !rc) wait_woken(&s);
        for (uint32_t i = 0; i < job->n_parallel && !rc; i++)
            rc = take_events(&s, &s.slots[i], e);
    }
    for (uint32_t i = 0; i < job->n_parallel; i++)
        engine_stream_free(s.slots[i].stream);
    pthread_cond_destroy(&s.wake);
    pthread_mutex_destroy(&s.lock);
    free(s.slots);
    return rc;
}
