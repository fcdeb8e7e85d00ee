/* looks.c - looks at grammars that cost more than a step may wait for. The worker makes each look
 * within a budget (worker.c); what is beyond it comes here with its sequence, which sits out,
 * paused for the scheduler, while the others go on. Owns the thread that makes these looks, at the
 * lowest priority, and the list of sequences that wait for it: each live one at most once.
 *
 * A look that is stopped starts again from its beginning, so its slices double until it is made.
 * Among those that wait the one goes next that has had least of this thread, counted from when it
 * came; so a grammar that costs much delays a cheaper one by a slice, and none waits for ever. What
 * a look finds is a function of the text alone: tokens are the same wherever it was made. */
#include "core/base/thread.h"
#include "core/engine/engine_int.h"

/* Units, see grammar_matcher_budget. The longest slice is about a second; a look that is not made
 * in it is given up, so that a stop waits no longer. */
#define FIRST_SLICE (UINT64_C(4) * ENGINE_LOOK_UNITS)
#define MOST_SLICE  (UINT64_C(1) << 25)

/* Under the lock: out of the list comes who has had least. */
static struct engine_stream *take_next(struct looks *l) {
    struct engine_stream **best = &l->first;
    for (struct engine_stream **at = &l->first; *at; at = &(*at)->look_next)
        if ((*at)->look_share < (*best)->look_share) best = at;
    struct engine_stream *st = *best;
    if (st) *best = st->look_next;
    return st;
}

static void put(struct looks *l, struct engine_stream *st) {
    st->look_next = l->first;
    l->first = st;
}

/* One slice; false: it was not enough. */
static bool make_slice(engine *en, struct engine_stream *st) {
    struct constraint *c = &st->constraint;
    uint64_t start = thread_cpu_ns(), before = grammar_matcher_spent(c->matcher);
    constraint_look(c, en, c->slice);
    uint64_t ns = thread_cpu_ns() - start;
    atomic_fetch_add(&en->looks.spent_ns, ns);
    st->look_share += ns;
    if (c->next == CONSTRAINT_UNKNOWN && c->slice >= MOST_SLICE) c->next = CONSTRAINT_COSTLY;
    constraint_charge(c, en, ns);
    if (c->next == CONSTRAINT_UNKNOWN) {
        c->slice *= 2;
        return false;
    }
    /* The next one will most likely cost as much. */
    uint64_t spent = 2 * (grammar_matcher_spent(c->matcher) - before);
    c->slice = spent < FIRST_SLICE ? FIRST_SLICE : spent < MOST_SLICE ? spent : MOST_SLICE;
    return true;
}

static void *looks_main(void *engine_ptr) {
    engine *en = engine_ptr;
    struct looks *l = &en->looks;
    thread_enter_background();
    pthread_mutex_lock(&l->lock);
    while (!l->stopping) {
        struct engine_stream *st = take_next(l);
        if (!st) {
            pthread_cond_wait(&l->wake, &l->lock);
            continue;
        }
        l->least_share = st->look_share;
        pthread_mutex_unlock(&l->lock);
        bool ended = atomic_load(&st->ended), made = !ended && make_slice(en, st);
        if (made) {
            atomic_store(&st->looked, true);
            worker_attend(st);
        }
        if (made || ended) stream_unref(st);
        pthread_mutex_lock(&l->lock);
        if (!made && !ended) put(l, st);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

int looks_start(engine *en, err *e) {
    struct looks *l = &en->looks;
    l->units = ENGINE_LOOK_UNITS;
    if (pthread_create(&l->thread, NULL, looks_main, en))
        return err_set(e, ERR_NOMEM, "the system refused a thread");
    l->started = true;
    return 0;
}

void looks_stop(engine *en) {
    struct looks *l = &en->looks;
    if (!l->started) return;
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    l->started = false;
    for (struct engine_stream *st; (st = take_next(l));)
        stream_unref(st);
}

void looks_put(struct engine_stream *st) {
    struct looks *l = &st->en->looks;
    atomic_fetch_add(&st->refs, 1);
    if (st->constraint.slice < FIRST_SLICE) st->constraint.slice = FIRST_SLICE;
    pthread_mutex_lock(&l->lock);
    if (st->look_share < l->least_share) st->look_share = l->least_share;
    put(l, st);
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
}
