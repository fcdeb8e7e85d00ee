/* history.c - see history.h. Owns nothing. */
#include "api/generate/history.h"

#include "api/generate/api_state.h"
#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void metrics_history_init(struct history *h) {
    pthread_mutex_init(&h->mu, NULL);
}

void history_fini(struct history *h) {
    pthread_mutex_destroy(&h->mu);
}

void history_add(struct history *h, const struct history_sample *sample) {
    pthread_mutex_lock(&h->mu);
    h->samples[h->n++ % HISTORY_SAMPLES] = *sample;
    pthread_mutex_unlock(&h->mu);
}

size_t metrics_history_get(struct history *h, struct history_sample out[HISTORY_SAMPLES]) {
    pthread_mutex_lock(&h->mu);
    size_t n = h->n < HISTORY_SAMPLES ? (size_t)h->n : HISTORY_SAMPLES;
    for (size_t i = 0; i < n; i++)
        out[i] = h->samples[(h->n - n + i) % HISTORY_SAMPLES];
    pthread_mutex_unlock(&h->mu);
    return n;
}

/* 0: this system does not tell. */
static uint64_t read_resident_bytes(void) {
    unsigned long long all, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%llu %llu", &all, &resident) != 2) resident = 0;
    fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Of the models that are loaded, and what those counted that were. */
static void add_engines(struct history_sample *s, const struct engine_stats *stats) {
    s->generated_tokens = stats->generated_tokens_total;
    s->prompt_tokens = stats->prompt_tokens_total;
    s->cached_tokens = stats->cached_tokens_total;
    s->preemptions = stats->preemptions_total;
    s->kv_blocks = stats->kv_blocks;
    s->kv_blocks_used = stats->kv_blocks - stats->kv_blocks_free;
    s->device_bytes = stats->device_bytes;
    s->running = stats->running;
    s->waiting = stats->waiting;
    s->first_tokens = stats->ttft.count;
    s->first_token_s = stats->ttft.sum;
}

void history_tick(struct api *a) {
    struct history *h = &a->history;
    uint64_t now = clock_now_ns();
    if (!atomic_load(&a->http.ready) || now < h->next_ns) return;
    h->next_ns = now + HISTORY_EVERY_S * UINT64_C(1000000000);
    struct history_sample sample = {.time_s = clock_wall_s(),
                                    .memory_bytes = read_resident_bytes()};
    struct engine_totals *total = mem_new(1, sizeof *total);
    if (!total) return;
    struct models_list list;
    models_list(a->models, true, &list, total);
    for (size_t i = 0; i < list.n; i++)
        engine_totals_add(total, list.models[i]->engine);
    models_list_release(a->models, &list);
    add_engines(&sample, &total->stats);
    free(total);
    history_add(h, &sample);
}
