/* ep_metrics.c - GET /metrics in Prometheus' text exposition format 0.0.4: the HTTP server's
 * metrics, and those of engines, summed over models. Runs on HTTP threads. */
#include "api/generate/api_state.h"
#include "api/http/metrics.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/program.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

static void add_histogram(str *s, const char *name, const char *help,
                          const struct engine_histogram *h) {
    uint64_t below = 0;
    metrics_head(s, name, "histogram", help);
    for (size_t i = 0; i + 1 < ENGINE_HIST_BUCKETS; i++) {
        below += h->counts[i];
        str_addf(s, "%s_bucket{le=\"%.9g\"} %" PRIu64 "\n", name, h->bounds[i], below);
    }
    below += h->counts[ENGINE_HIST_BUCKETS - 1];
    str_addf(s, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, below);
    str_addf(s, "%s_sum %.9g\n%s_count %" PRIu64 "\n", name, h->sum, name, below);
}

static void sum_histogram(struct engine_histogram *to, const struct engine_histogram *h) {
    memcpy(to->bounds, h->bounds, sizeof to->bounds);
    for (size_t i = 0; i < ENGINE_HIST_BUCKETS; i++)
        to->counts[i] += h->counts[i];
    to->count += h->count;
    to->sum += h->sum;
}

static void sum_stats(struct engine_stats *to, const struct engine_stats *s) {
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
    to->steps_overlapped_total += s->steps_overlapped_total;
    if (s->device_bytes > to->device_bytes) to->device_bytes = s->device_bytes; /* of the process */
    if (s->n_ranks > to->n_ranks) to->n_ranks = s->n_ranks;
    to->kv_blocks += s->kv_blocks;
    to->kv_blocks_free += s->kv_blocks_free;
    to->kv_blocks_cached += s->kv_blocks_cached;
    to->kv_evictions_total += s->kv_evictions_total;
    to->kv_copies_total += s->kv_copies_total;
    to->running += s->running;
    to->waiting += s->waiting;
    sum_histogram(&to->ttft, &s->ttft);
    sum_histogram(&to->inter_token, &s->inter_token);
    sum_histogram(&to->queue_time, &s->queue_time);
    sum_histogram(&to->step_time, &s->step_time);
}

static void add_counters(str *s, const struct engine_stats *t) {
    const struct {
        const char *name, *type, *help;
        uint64_t value;
    } rows[] = {
        {"inferd_prompt_tokens_total", "counter", "Prompt tokens of admitted sequences.",
         t->prompt_tokens_total},
        {"inferd_generated_tokens_total", "counter", "Tokens generated.",
         t->generated_tokens_total},
        {"inferd_forced_tokens_total", "counter", "Generated tokens that a grammar determined.",
         t->forced_tokens_total},
        {"inferd_prefix_cache_hit_tokens_total", "counter",
         "Prompt tokens found in the prefix cache.", t->cached_tokens_total},
        {"inferd_preemptions_total", "counter",
         "Sequences preempted: their KV blocks were freed and recomputed later.",
         t->preemptions_total},
        {"inferd_overdue_total", "counter", "Sequences ended by their deadline.", t->overdue_total},
        {"inferd_grammar_masks_deferred_total", "counter",
         "Grammar masks computed in the background because they exceeded the budget of a step.",
         t->masks_deferred_total},
        {"inferd_grammar_masks_given_up_total", "counter",
         "Sequences ended because their grammar exceeded the work limit.", t->masks_given_up_total},
        {"inferd_steps_total", "counter", "Forward passes.", t->steps_total},
        {"inferd_steps_ahead_total", "counter",
         "Steps that ran as the device had encoded them ahead.", t->steps_ahead_total},
        {"inferd_steps_ahead_dropped_total", "counter",
         "Steps encoded ahead but discarded, because another step was needed.",
         t->steps_ahead_dropped_total},
        {"inferd_steps_overlapped_total", "counter",
         "Steps queued on the device before the previous one had finished.",
         t->steps_overlapped_total},
        {"inferd_device_allocated_bytes", "gauge", "Device memory allocated for this process.",
         t->device_bytes},
        {"inferd_tensor_parallel_ranks", "gauge", "Devices that a model is split over.",
         t->n_ranks},
        {"inferd_rejected_total", "counter", "Submissions refused because the queue was full.",
         t->rejected_total},
        {"inferd_kv_evictions_total", "counter", "Cached KV blocks that were reused.",
         t->kv_evictions_total},
        {"inferd_kv_copies_total", "counter", "KV blocks copied on write.", t->kv_copies_total},
        {"inferd_kv_blocks", "gauge", "KV blocks in total.", t->kv_blocks},
        {"inferd_kv_blocks_free", "gauge", "KV blocks that no sequence uses.", t->kv_blocks_free},
        {"inferd_kv_blocks_cached", "gauge", "Free KV blocks that are still in the prefix cache.",
         t->kv_blocks_cached},
        {"inferd_sequences_running", "gauge", "Sequences being computed.", t->running},
        {"inferd_sequences_waiting", "gauge", "Sequences waiting for admission.", t->waiting},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        metrics_head(s, rows[i].name, rows[i].type, rows[i].help);
        str_addf(s, "%s %" PRIu64 "\n", rows[i].name, rows[i].value);
    }
    metrics_head(s, "inferd_grammar_mask_seconds_total", "counter",
                 "Time spent on grammar masks, by the worker and in the background.");
    str_addf(s,
             "inferd_grammar_mask_seconds_total{thread=\"worker\"} %.9g\n"
             "inferd_grammar_mask_seconds_total{thread=\"background\"} %.9g\n",
             (double)t->mask_ns_total * 1e-9, (double)t->deferred_mask_ns_total * 1e-9);
    static const char *const finish[] = {"stop", "length", "cancel", "error"};
    metrics_head(s, "inferd_sequences_finished_total", "counter", "Sequences finished, by reason.");
    for (size_t i = 0; i < sizeof finish / sizeof *finish; i++)
        str_addf(s, "inferd_sequences_finished_total{reason=\"%s\"} %" PRIu64 "\n", finish[i],
                 t->requests_total[i]);
    add_histogram(s, "inferd_time_to_first_token_seconds",
                  "Time from submission to the first token.", &t->ttft);
    add_histogram(s, "inferd_inter_token_latency_seconds", "Time between two tokens of a sequence.",
                  &t->inter_token);
    add_histogram(s, "inferd_queue_time_seconds", "Time from submission to first admission.",
                  &t->queue_time);
    add_histogram(s, "inferd_step_time_seconds", "Duration of a step.", &t->step_time);
}

/* The counters of kernel `name`, summed over all engines with that backend. */
static struct engine_kernel sum_kernel(const struct api *a, const char *device, const char *name) {
    struct engine_kernel sum = {0};
    for (size_t m = 0; m < a->n_models; m++) {
        const engine *en = a->models[m].engine;
        if (strcmp(engine_backend_name(en), device)) continue;
        for (uint32_t k = 0; k < engine_n_kernels(en); k++) {
            struct engine_kernel one;
            if (strcmp(engine_kernel_get(en, k, &one), name) != 0) continue;
            sum.dispatches += one.dispatches;
            sum.read_bytes += one.read_bytes;
            sum.written_bytes += one.written_bytes;
        }
    }
    return sum;
}

/* Does an earlier engine with the same backend have this kernel, too? */
static bool named_before(const struct api *a, size_t end, const char *device, const char *name) {
    for (size_t m = 0; m < end; m++) {
        const engine *en = a->models[m].engine;
        if (strcmp(engine_backend_name(en), device)) continue;
        for (uint32_t k = 0; k < engine_n_kernels(en); k++) {
            struct engine_kernel one;
            if (strcmp(engine_kernel_get(en, k, &one), name) == 0) return true;
        }
    }
    return false;
}

/* The metrics of each kernel. */
static const struct kernel_metric {
    const char *name, *help;
    size_t offset;       /* in struct engine_kernel, a uint64_t */
    bool may_be_unknown; /* 0 everywhere if the backend does not count it */
} kernel_metrics[] = {
    {"inferd_kernel_dispatches_total", "Kernel launches, counted where they happen.",
     offsetof(struct engine_kernel, dispatches), false},
    {"inferd_kernel_read_bytes_total",
     "Device memory read by a kernel, by its shapes, without the KV cache.",
     offsetof(struct engine_kernel, read_bytes), true},
    {"inferd_kernel_written_bytes_total", "Device memory written by a kernel, by its shapes.",
     offsetof(struct engine_kernel, written_bytes), true},
};

static void add_kernel(str *s, const struct api *a, const struct kernel_metric *metric, size_t m,
                       uint32_t k) {
    const engine *en = a->models[m].engine;
    const char *device = engine_backend_name(en);
    struct engine_kernel one;
    uint64_t value;
    const char *name = engine_kernel_get(en, k, &one);
    if (named_before(a, m, device, name)) return;
    one = sum_kernel(a, device, name);
    memcpy(&value, (const char *)&one + metric->offset, sizeof value);
    if (metric->may_be_unknown && !value) return;
    str_addf(s, "%s{backend=\"", metric->name);
    metrics_label(s, device);
    str_add(s, "\",kernel=\"");
    metrics_label(s, name);
    str_addf(s, "\"} %" PRIu64 "\n", value);
}

static void add_kernels(str *s, const struct api *a) {
    for (size_t i = 0; i < sizeof kernel_metrics / sizeof kernel_metrics[0]; i++) {
        metrics_head(s, kernel_metrics[i].name, "counter", kernel_metrics[i].help);
        for (size_t m = 0; m < a->n_models; m++)
            for (uint32_t k = 0; k < engine_n_kernels(a->models[m].engine); k++)
                add_kernel(s, a, &kernel_metrics[i], m, k);
    }
}

/* Asks idle engines to check their pools, at most once a second, so that a leaked block shows long
 * before blocks run out. */
static void check_pools(struct api *a, const struct engine_stats *total) {
    uint64_t now = clock_now_ns(), last = atomic_load(&a->last_check_ns);
    if (total->running || total->waiting || now - last < 1000000000u ||
        !atomic_compare_exchange_strong(&a->last_check_ns, &last, now))
        return;
    for (size_t i = 0; i < a->n_models; i++) {
        err e = {0};
        atomic_fetch_add(&a->n_pool_checks, 1);
        if (engine_check(a->models[i].engine, &e) == 0) continue;
        atomic_fetch_add(&a->n_pool_check_failures, 1);
        log_error("the KV pool of %s is damaged: %s", a->models[i].id, e.msg);
    }
}

static void add_checks(str *s, struct api *a) {
    metrics_head(s, "inferd_pool_checks_total", "counter", "Checks of an idle engine's KV pool.");
    str_addf(s, "inferd_pool_checks_total %" PRIu64 "\n", atomic_load(&a->n_pool_checks));
    metrics_head(s, "inferd_pool_check_failures_total", "counter", "Checks that found damage.");
    str_addf(s, "inferd_pool_check_failures_total %" PRIu64 "\n",
             atomic_load(&a->n_pool_check_failures));
}

static void handle_metrics(struct request *r) {
    struct api *a = r->api;
    bool ready = atomic_load(&a->http.ready);
    str s;
    str_init(&s, 1 << 20);
    metrics_head(&s, "inferd_build_info", "gauge", "Version of the daemon.");
    str_add(&s, "inferd_build_info{version=\"");
    metrics_label(&s, a->config.version);
    str_add(&s, "\"} 1\n");
    metrics_head(&s, "process_resident_memory_bytes", "gauge", "Resident memory of the process.");
    str_addf(&s, "process_resident_memory_bytes %" PRIu64 "\n", program_resident_bytes());
    metrics_head(&s, "inferd_ready", "gauge", "1 when new requests are answered.");
    str_addf(&s, "inferd_ready %d\n", ready && !atomic_load(&a->http.draining));
    metrics_head(&s, "inferd_http_requests_active", "gauge",
                 "Requests being prepared, computed or answered.");
    str_addf(&s, "inferd_http_requests_active %u\n", atomic_load(&a->http.n_active));
    metrics_add_http(&s, &a->http);
    if (ready) {
        struct engine_stats total = {0};
        for (size_t i = 0; i < a->n_models; i++) {
            struct engine_stats stats;
            engine_stats_get(a->models[i].engine, &stats);
            sum_stats(&total, &stats);
        }
        check_pools(a, &total);
        add_checks(&s, a);
        add_counters(&s, &total);
        add_kernels(&s, a);
    }
    reply_header(r, "Cache-Control", "no-store");
    reply_text(r, 200, "text/plain; version=0.0.4; charset=utf-8", &s);
}

const struct route metrics_route = {"GET", "/metrics", ROUTE_KEY | ROUTE_DIRECT | ROUTE_HEALTH,
                                    .handle = handle_metrics};
