/* engine_totals.c - see engine_totals.h. Owns nothing; any thread. */
#include "api/generate/engine_totals.h"

#include <stdio.h>
#include <string.h>

static void add_histogram(struct engine_histogram *to, const struct engine_histogram *h) {
    if (!h->bounds[0]) return; /* of no engine */
    memcpy(to->bounds, h->bounds, sizeof to->bounds);
    for (size_t i = 0; i < ENGINE_HIST_BUCKETS; i++)
        to->counts[i] += h->counts[i];
    to->count += h->count;
    to->sum += h->sum;
}

/* What only ever grows. */
static void add_counters(struct engine_stats *to, const struct engine_stats *s) {
    for (size_t i = 0; i < sizeof to->requests_total / sizeof *to->requests_total; i++)
        to->requests_total[i] += s->requests_total[i];
    to->prompt_tokens_total += s->prompt_tokens_total;
    to->generated_tokens_total += s->generated_tokens_total;
    to->cached_tokens_total += s->cached_tokens_total;
    to->forced_tokens_total += s->forced_tokens_total;
    to->preemptions_total += s->preemptions_total;
    to->steps_total += s->steps_total;
    to->rejected_total += s->rejected_total;
    to->overdue_total += s->overdue_total;
    to->mask_ns_total += s->mask_ns_total;
    to->masks_deferred_total += s->masks_deferred_total;
    to->deferred_mask_ns_total += s->deferred_mask_ns_total;
    to->masks_given_up_total += s->masks_given_up_total;
    to->steps_ahead_total += s->steps_ahead_total;
    to->steps_ahead_dropped_total += s->steps_ahead_dropped_total;
    to->device_recoveries_total += s->device_recoveries_total;
    to->steps_overlapped_total += s->steps_overlapped_total;
    to->kv_evictions_total += s->kv_evictions_total;
    to->kv_copies_total += s->kv_copies_total;
    to->state_evictions_total += s->state_evictions_total;
    to->stateless_tokens_total += s->stateless_tokens_total;
    to->window_evictions_total += s->window_evictions_total;
    to->windowless_tokens_total += s->windowless_tokens_total;
    to->recomputed_tokens_total += s->recomputed_tokens_total;
    to->restores_total += s->restores_total;
    to->restores_cut_total += s->restores_cut_total;
    to->restores_late_total += s->restores_late_total;
    to->restored_tokens_total += s->restored_tokens_total;
    to->unstored_evictions_total += s->unstored_evictions_total;
    for (int i = 0; i < ENGINE_N_MISSES; i++) {
        to->misses_total[i] += s->misses_total[i];
        to->missed_tokens_total[i] += s->missed_tokens_total[i];
    }
    add_histogram(&to->ttft, &s->ttft);
    add_histogram(&to->inter_token, &s->inter_token);
    add_histogram(&to->queue_time, &s->queue_time);
    add_histogram(&to->step_time, &s->step_time);
    add_histogram(&to->answer_time, &s->answer_time);
}

/* What an engine has and does now. */
static void add_gauges(struct engine_stats *to, const struct engine_stats *s) {
    if (s->device_bytes > to->device_bytes) to->device_bytes = s->device_bytes; /* of the process */
    if (s->n_ranks > to->n_ranks) to->n_ranks = s->n_ranks;
    if (s->n_stages) { /* one model at a time */
        to->n_stages = s->n_stages;
        memcpy(to->stage_busy_ns, s->stage_busy_ns, sizeof to->stage_busy_ns);
    }
    to->block_tokens = s->block_tokens; /* the same for all */
    to->kv_blocks += s->kv_blocks;
    to->kv_blocks_free += s->kv_blocks_free;
    to->kv_blocks_cached += s->kv_blocks_cached;
    to->state_blocks += s->state_blocks;
    to->state_blocks_free += s->state_blocks_free;
    to->state_blocks_cached += s->state_blocks_cached;
    to->window_blocks += s->window_blocks;
    to->window_blocks_free += s->window_blocks_free;
    to->window_blocks_cached += s->window_blocks_cached;
    to->running += s->running;
    to->waiting += s->waiting;
}

static void add_kernel(struct engine_totals *to, const char *backend, const char *name,
                       const struct engine_kernel *one) {
    size_t i = 0;
    while (i < to->n_kernels &&
           (strcmp(to->kernels[i].backend, backend) != 0 || strcmp(to->kernels[i].name, name) != 0))
        i++;
    if (i == ENGINE_TOTALS_KERNELS) return;
    struct kernel_total *k = &to->kernels[i];
    if (i == to->n_kernels) {
        *k = (struct kernel_total){0};
        snprintf(k->backend, sizeof k->backend, "%s", backend);
        snprintf(k->name, sizeof k->name, "%s", name);
        to->n_kernels++;
    }
    k->sum.dispatches += one->dispatches;
    k->sum.read_bytes += one->read_bytes;
    k->sum.written_bytes += one->written_bytes;
}

void engine_totals_add(struct engine_totals *to, engine *en) {
    struct engine_stats stats;
    engine_stats_get(en, &stats);
    add_counters(&to->stats, &stats);
    add_gauges(&to->stats, &stats);
    for (uint32_t k = 0; k < engine_n_kernels(en); k++) {
        struct engine_kernel one;
        const char *name = engine_kernel_get(en, k, &one);
        add_kernel(to, engine_backend_name(en), name, &one);
    }
}

void engine_totals_keep(struct engine_totals *to, const struct engine_totals *from) {
    add_counters(&to->stats, &from->stats);
    for (size_t i = 0; i < from->n_kernels; i++) {
        const struct kernel_total *k = &from->kernels[i];
        add_kernel(to, k->backend, k->name, &k->sum);
    }
}

double engine_kv_usage(const struct engine_stats *s) {
    return s->kv_blocks ? (double)(s->kv_blocks - s->kv_blocks_free) / (double)s->kv_blocks : 0;
}
