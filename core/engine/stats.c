/* stats.c - counters and histograms: the worker counts in its own copy and publishes all of it;
 * readers copy the published one. The lock is held only for a copy, never during a step. */
#include "core/engine/engine_int.h"

#include "core/base/mem.h"

#include <math.h>
#include <string.h>

/* Upper bounds in seconds: for waits (queue, first token) and for gaps (tokens, steps). */
static const double wait_bounds[ENGINE_HIST_BUCKETS] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120, INFINITY};
static const double gap_bounds[ENGINE_HIST_BUCKETS] = {0.0005, 0.001, 0.002, 0.004,   0.008, 0.015,
                                                       0.025,  0.04,  0.06,  0.1,     0.2,   0.4,
                                                       0.8,    2,     5,     INFINITY};

void stats_init(struct engine_stats *s) {
    memset(s, 0, sizeof *s);
    for (int i = 0; i < ENGINE_HIST_BUCKETS; i++) {
        s->ttft.bounds[i] = s->queue_time.bounds[i] = s->answer_time.bounds[i] = wait_bounds[i];
        s->inter_token.bounds[i] = s->step_time.bounds[i] = gap_bounds[i];
    }
    s->healthy = true;
}

void stats_observe(struct engine_histogram *h, double seconds) {
    int i = 0;
    while (i < ENGINE_HIST_BUCKETS - 1 && seconds > h->bounds[i])
        i++;
    h->counts[i]++;
    h->count++;
    h->sum += seconds;
}

int stats_places_init(engine *en) {
    en->places = mem_new(en->config.max_sequences, sizeof(struct engine_stream *));
    en->published = mem_new(en->config.max_sequences, sizeof *en->published);
    return en->places && en->published ? 0 : ERR_NOMEM;
}

/* Preempted sequences keep their places, so there may be no free one. */
void stats_place(engine *en, struct engine_stream *st) {
    for (uint32_t i = 0; i < en->config.max_sequences && !st->place; i++) {
        if (en->places[i]) continue;
        en->places[i] = st;
        st->place = i + 1;
    }
}

void stats_unplace(engine *en, struct engine_stream *st) {
    if (st->place) en->places[st->place - 1] = NULL;
    st->place = 0;
}

static struct engine_place place_of(const struct engine_stream *st) {
    if (!st) return (struct engine_place){0};
    return (struct engine_place){.number = st->seq.arrival + 1,
                                 .n_prompt = st->seq.n_prompt,
                                 .n_cached = stream_n_cached(st),
                                 .n_computed = st->seq.n_computed,
                                 .n_generated = st->n_generated,
                                 .max_tokens = st->max_tokens,
                                 .stopped = st->seq.paused || st->seq.state != SCHED_RUNNING};
}

void stats_publish(engine *en) {
    struct engine_stats *t = &en->totals;
    t->running = sched_n_running(en->sch);
    t->waiting = sched_n_waiting(en->sch);
    t->preemptions_total = sched_n_preemptions(en->sch);
    t->recomputed_tokens_total = sched_n_recomputed(en->sch);
    t->healthy = !en->failure.code;
    t->n_stages = en->split.n > 1 ? en->split.n : 0;
    memcpy(t->stage_busy_ns, en->split.busy_ns, sizeof t->stage_busy_ns);
    pthread_mutex_lock(&en->stats_lock);
    en->stats = *t;
    for (uint32_t i = 0; i < en->config.max_sequences; i++)
        en->published[i] = place_of(en->places[i]);
    pthread_mutex_unlock(&en->stats_lock);
}

uint32_t engine_places_get(engine *en, struct engine_place *out, uint32_t max) {
    uint32_t n = en->config.max_sequences < max ? en->config.max_sequences : max;
    pthread_mutex_lock(&en->stats_lock);
    if (n) memcpy(out, en->published, n * sizeof *out);
    pthread_mutex_unlock(&en->stats_lock);
    return en->config.max_sequences;
}

void engine_stats_get(engine *en, struct engine_stats *out) {
    pthread_mutex_lock(&en->stats_lock);
    *out = en->stats;
    pthread_mutex_unlock(&en->stats_lock);
    pthread_mutex_lock(&en->lock);
    out->waiting += en->n_inbox;
    pthread_mutex_unlock(&en->lock);
    struct kv_stats ks;
    kv_stats_get(en->cache, &ks);
    out->kv_blocks = ks.n_blocks;
    out->kv_blocks_free = ks.n_free;
    out->kv_blocks_cached = ks.n_cached;
    out->kv_evictions_total = ks.evictions;
    out->kv_copies_total = ks.copies;
    out->state_blocks = ks.n_states;
    out->state_blocks_free = ks.n_states_free;
    out->state_blocks_cached = ks.n_states_cached;
    out->unstored_evictions_total = en->tier.store ? ks.unkept_evictions : 0;
    out->state_evictions_total = ks.state_evictions;
    out->stateless_tokens_total = ks.stateless_tokens;
    out->window_blocks = ks.n_windows;
    out->window_blocks_free = ks.n_windows_free;
    out->window_blocks_cached = ks.n_windows_cached;
    out->window_evictions_total = ks.window_evictions;
    out->windowless_tokens_total = ks.windowless_tokens;
    if (model_check(en->mdl, NULL)) out->healthy = false;
    out->block_tokens = en->config.block_tokens;
    out->deferred_mask_ns_total = atomic_load(&en->deferred.spent_ns);
    out->rejected_total = atomic_load(&en->n_rejected);
    out->n_ranks = engine_n_ranks(en);
    out->device_bytes = 0;
    for (uint32_t r = 0; r < backend_n_local(en->be); r++)
        out->device_bytes += backend_allocated_bytes(backend_peer(en->be, r));
}

_Static_assert((int)ENGINE_MAX_KERNELS == (int)BACKEND_MAX_KERNELS, "as many as a backend has");

uint32_t engine_n_kernels(const engine *en) {
    return backend_n_kernels(en->be);
}

/* Adds the counters of kernel i of be. */
static void add_kernel(const backend *be, uint32_t i, struct engine_kernel *out) {
    uint64_t read, written;
    backend_kernel_traffic(be, i, &read, &written);
    out->dispatches += backend_dispatch_count(be, i);
    out->read_bytes += read;
    out->written_bytes += written;
    struct backend_kernel_costs costs;
    backend_kernel_costs(be, i, &costs);
    out->costs.most_hidden += costs.most_hidden;
    out->costs.cycles += costs.cycles;
    out->costs.ns += costs.ns;
}

/* Each rank numbers its kernels by itself: they are found by name, usually at the same index. */
const char *engine_kernel_get(const engine *en, uint32_t i, struct engine_kernel *out) {
    const char *name = backend_kernel_name(en->be, i);
    *out = (struct engine_kernel){0};
    for (uint32_t r = 0; r < backend_n_local(en->be); r++) {
        const backend *be = backend_peer(en->be, r);
        uint32_t n = backend_n_kernels(be), k = i;
        for (uint32_t tried = 0; tried < n; tried++, k++) {
            if (strcmp(backend_kernel_name(be, k % n), name) != 0) continue;
            add_kernel(be, k % n, out);
            break;
        }
    }
    return name;
}

bool engine_fact_get(const engine *en, uint32_t i, struct backend_fact *out) {
    return backend_fact_get(en->be, i, out);
}

bool engine_pipeline_get(const engine *en, uint32_t i, struct backend_pipeline *out) {
    return backend_pipeline_get(en->be, i, out);
}

const char *engine_backend_name(const engine *en) {
    return backend_name(en->be);
}

int engine_copy_bandwidth(engine *en, double *bytes_per_s, err *e) {
    int rc = backend_copy_bandwidth(en->be, bytes_per_s, e);
    if (!rc) *bytes_per_s *= engine_n_ranks(en); /* devices of one kind */
    return rc;
}

int engine_n_threads(const engine *en) {
    int n = 0;
    for (uint32_t r = 0; r < backend_n_local(en->be); r++)
        n += backend_n_threads(backend_peer(en->be, r));
    return n;
}

uint32_t engine_n_ranks(const engine *en) {
    return backend_n_ranks(en->be);
}
