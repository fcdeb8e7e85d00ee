/* deferred_masks.c - masks of grammars that cost more than a step may wait for. The worker computes
 * each mask within a budget (worker.c); a mask that exceeds it comes here with its sequence, which
 * is paused for the scheduler while the others continue. Owns the thread that computes these masks,
 * at the lowest priority, and the list of sequences that wait for it: each live one at most once.
 *
 * A computation that runs out of units starts again from its beginning, so its slices double until
 * it completes. The next slice goes to the waiting sequence that has had the least time on this
 * thread since it arrived, so an expensive grammar delays a cheaper one by one slice, and none
 * waits for ever. A mask is a function of the text alone: tokens do not depend on the thread. */
#include "core/base/thread.h"
#include "core/engine/engine_int.h"

/* In units of grammar_matcher_budget. The longest slice is about a second; a mask that takes longer
 * is given up, so that a stop waits no longer. */
#define FIRST_SLICE (UINT64_C(4) * ENGINE_MASK_UNITS)
#define MAX_SLICE   (UINT64_C(1) << 25)

/* Under the lock: removes the sequence that has had the least time. NULL: none waits. */
static struct engine_stream *pop_least_served(struct deferred_masks *d) {
    struct engine_stream **best = &d->first;
    for (struct engine_stream **at = &d->first; *at; at = &(*at)->deferred_next)
        if ((*at)->deferred_ns < (*best)->deferred_ns) best = at;
    struct engine_stream *st = *best;
    if (st) *best = st->deferred_next;
    return st;
}

static void push_waiting(struct deferred_masks *d, struct engine_stream *st) {
    st->deferred_next = d->first;
    d->first = st;
}

/* Runs one slice; false: it was not enough. */
static bool run_slice(engine *en, struct engine_stream *st) {
    struct constraint *c = &st->constraint;
    uint64_t start = thread_cpu_ns(), before = grammar_matcher_spent(c->matcher);
    constraint_find_next(c, en, c->slice);
    uint64_t ns = thread_cpu_ns() - start;
    atomic_fetch_add(&en->deferred.spent_ns, ns);
    st->deferred_ns += ns;
    if (c->next == CONSTRAINT_UNKNOWN && c->slice >= MAX_SLICE) c->next = CONSTRAINT_COSTLY;
    constraint_charge(c, en, ns);
    if (c->next == CONSTRAINT_UNKNOWN) {
        c->slice *= 2;
        return false;
    }
    /* The next mask will most likely cost as much. */
    uint64_t spent = 2 * (grammar_matcher_spent(c->matcher) - before);
    c->slice = spent < FIRST_SLICE ? FIRST_SLICE : spent < MAX_SLICE ? spent : MAX_SLICE;
    return true;
}

static void *deferred_masks_main(void *engine_ptr) {
    engine *en = engine_ptr;
    struct deferred_masks *d = &en->deferred;
    thread_enter_background();
    pthread_mutex_lock(&d->lock);
    while (!d->stopping) {
        struct engine_stream *st = pop_least_served(d);
        if (!st) {
            pthread_cond_wait(&d->wake, &d->lock);
            continue;
        }
        d->least_ns = st->deferred_ns;
        pthread_mutex_unlock(&d->lock);
        bool ended = atomic_load(&st->ended), made = !ended && run_slice(en, st);
        if (made) {
            atomic_store(&st->mask_ready, true);
            stream_wake_worker(st);
        }
        if (made || ended) stream_unref(st);
        pthread_mutex_lock(&d->lock);
        if (!made && !ended) push_waiting(d, st);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

int deferred_masks_start(engine *en, err *e) {
    struct deferred_masks *d = &en->deferred;
    d->units = ENGINE_MASK_UNITS;
    int rc = thread_start(&d->thread, deferred_masks_main, en, "computes grammar masks", e);
    d->started = !rc;
    return rc;
}

void deferred_masks_stop(engine *en) {
    struct deferred_masks *d = &en->deferred;
    if (!d->started) return;
    pthread_mutex_lock(&d->lock);
    d->stopping = true;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    d->started = false;
    for (struct engine_stream *st; (st = pop_least_served(d));)
        stream_unref(st);
}

void deferred_masks_add(struct engine_stream *st) {
    struct deferred_masks *d = &st->en->deferred;
    atomic_fetch_add(&st->refs, 1);
    if (st->constraint.slice < FIRST_SLICE) st->constraint.slice = FIRST_SLICE;
    pthread_mutex_lock(&d->lock);
    if (st->deferred_ns < d->least_ns) st->deferred_ns = d->least_ns;
    push_waiting(d, st);
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
}
