/* ep_metrics.c - GET /metrics in Prometheus' text exposition format 0.0.4: the HTTP server's
 * metrics, and those of engines, summed over models. Those of each model under vLLM's names are
 * metrics_vllm.c's. Runs on HTTP threads. */
#include "api/generate/api_state.h"
#include "api/generate/miss.h"
#include "api/generate/model_admin.h"
#include "api/http/metrics.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/native/health.h"
#include "api/native/metrics_vllm.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/program.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct metric_row {
    const char *name, *type, *help;
    uint64_t value;
};

static void add_rows(str *s, const struct metric_row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        metrics_head(s, rows[i].name, rows[i].type, rows[i].help);
        str_addf(s, "%s %" PRIu64 "\n", rows[i].name, rows[i].value);
    }
}

/* Between the KV cache and the KV store. */
static void add_restores(str *s, const struct engine_stats *t) {
    const struct metric_row rows[] = {
        {"inferd_kv_restores_total", "counter", "Chains of KV blocks read from the KV store.",
         t->restores_total},
        {"inferd_kv_restores_cut_total", "counter",
         "Restores that ended early, because a segment was gone or damaged.",
         t->restores_cut_total},
        {"inferd_kv_restores_late_total", "counter",
         "Restores that ended early, because computing would not take longer.",
         t->restores_late_total},
        {"inferd_kv_restored_tokens_total", "counter", "Tokens whose K/V came from the KV store.",
         t->restored_tokens_total},
        {"inferd_kv_unstored_evictions_total", "counter",
         "Cached KV blocks that were reused before they were stored.", t->unstored_evictions_total},
    };
    add_rows(s, rows, sizeof rows / sizeof *rows);
}

/* Of a model that is split by layers over processes. */
static void add_stages(str *s, const struct engine_stats *t) {
    const char *name = "inferd_stage_busy_seconds_total";
    if (!t->n_stages) return;
    metrics_head(s, name, "counter", "Time that a stage computed or sent; it waited otherwise.");
    for (uint32_t i = 0; i < t->n_stages; i++)
        str_addf(s, "%s{stage=\"%u\"} %.6f\n", name, i, (double)t->stage_busy_ns[i] * 1e-9);
}

/* Why no more of prompts was cached. */
static void add_misses(str *s, const struct engine_stats *t) {
    static const struct {
        const char *name, *help;
        size_t offset;
    } rows[] = {{"inferd_prefix_ends_total", "Prompts, by why their cached prefix was not longer.",
                 offsetof(struct engine_stats, misses_total)},
                {"inferd_prefix_missed_tokens_total", "Their prompt tokens that were not cached.",
                 offsetof(struct engine_stats, missed_tokens_total)}};
    for (size_t i = 0; i < 2; i++) {
        uint64_t n[ENGINE_N_MISSES];
        memcpy(n, (const char *)t + rows[i].offset, sizeof n);
        metrics_head(s, rows[i].name, "counter", rows[i].help);
        for (int k = 0; k < ENGINE_N_MISSES; k++)
            str_addf(s, "%s{reason=\"%s\"} %" PRIu64 "\n", rows[i].name, gen_miss_name(k), n[k]);
    }
}

static void add_times(str *s, const struct engine_stats *t) {
    static const struct {
        const char *name, *help;
        size_t offset; /* in struct engine_stats */
    } times[] = {
        {"inferd_time_to_first_token_seconds", "Time from submission to the first token.",
         offsetof(struct engine_stats, ttft)},
        {"inferd_inter_token_latency_seconds", "Time between two tokens of a sequence.",
         offsetof(struct engine_stats, inter_token)},
        {"inferd_queue_time_seconds", "Time from submission to first admission.",
         offsetof(struct engine_stats, queue_time)},
        {"inferd_answer_time_seconds",
         "Time from submission to the end of a sequence that ended by itself.",
         offsetof(struct engine_stats, answer_time)},
        {"inferd_step_time_seconds", "Duration of a step.",
         offsetof(struct engine_stats, step_time)},
    };
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        metrics_head(s, times[i].name, "histogram", times[i].help);
        metrics_add_histogram(s, times[i].name, "",
                              (const void *)((const char *)t + times[i].offset));
    }
}

static void add_counters(str *s, const struct engine_stats *t) {
    const struct metric_row rows[] = {
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
        {"inferd_recomputed_tokens_total", "counter",
         "Tokens computed again after their sequences were preempted.", t->recomputed_tokens_total},
        {"inferd_prefix_cache_stateless_tokens_total", "counter",
         "Prompt tokens cached as K/V but computed, because no state of recurrent layers was "
         "cached.",
         t->stateless_tokens_total},
        {"inferd_prefix_cache_windowless_tokens_total", "counter",
         "Prompt tokens cached in layers with full attention but computed, because window blocks "
         "were reused.",
         t->windowless_tokens_total},
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
        {"inferd_device_recoveries_total", "counter",
         "Device failures after which all was computed again.", t->device_recoveries_total},
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
        {"inferd_kv_block_tokens", "gauge", "Tokens of a KV block.", t->block_tokens},
        {"inferd_kv_blocks_free", "gauge", "KV blocks that no sequence uses.", t->kv_blocks_free},
        {"inferd_kv_blocks_cached", "gauge", "Free KV blocks that are still in the prefix cache.",
         t->kv_blocks_cached},
        {"inferd_state_blocks", "gauge", "State blocks of recurrent layers in total.",
         t->state_blocks},
        {"inferd_state_blocks_free", "gauge", "State blocks that no sequence uses.",
         t->state_blocks_free},
        {"inferd_state_blocks_cached", "gauge",
         "Free state blocks that are still in the prefix cache.", t->state_blocks_cached},
        {"inferd_state_evictions_total", "counter",
         "Cached states that were dropped, for reuse or with their KV block.",
         t->state_evictions_total},
        {"inferd_window_blocks", "gauge", "Blocks of K/V of windowed layers in total.",
         t->window_blocks},
        {"inferd_window_blocks_free", "gauge", "Window blocks that no sequence uses.",
         t->window_blocks_free},
        {"inferd_window_blocks_cached", "gauge",
         "Free window blocks that are still in the prefix cache.", t->window_blocks_cached},
        {"inferd_window_evictions_total", "counter", "Cached window blocks that were reused.",
         t->window_evictions_total},
        {"inferd_sequences_running", "gauge", "Sequences being computed.", t->running},
        {"inferd_sequences_waiting", "gauge", "Sequences waiting for admission.", t->waiting},
    };
    add_rows(s, rows, sizeof rows / sizeof *rows);
    metrics_head(s, "inferd_kv_usage_ratio", "gauge",
                 "Fraction of the KV blocks that sequences use: 0 to 1.");
    str_addf(s, "inferd_kv_usage_ratio %.9g\n", engine_kv_usage(t));
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
    add_times(s, t);
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

static void add_kernel(str *s, const struct kernel_metric *metric, const struct kernel_total *k) {
    uint64_t value;
    memcpy(&value, (const char *)&k->sum + metric->offset, sizeof value);
    if (metric->may_be_unknown && !value) return;
    str_addf(s, "%s{backend=\"", metric->name);
    metrics_label(s, k->backend);
    str_add(s, "\",kernel=\"");
    metrics_label(s, k->name);
    str_addf(s, "\"} %" PRIu64 "\n", value);
}

static void add_kernels(str *s, const struct engine_totals *total) {
    for (size_t i = 0; i < sizeof kernel_metrics / sizeof kernel_metrics[0]; i++) {
        metrics_head(s, kernel_metrics[i].name, "counter", kernel_metrics[i].help);
        for (size_t k = 0; k < total->n_kernels; k++)
            add_kernel(s, &kernel_metrics[i], &total->kernels[k]);
    }
}

/* Asks idle engines to check their pools, at most once a second, so that a leaked block shows long
 * before blocks run out. */
static void check_pools(struct api *a, const struct models_list *list,
                        const struct engine_stats *total) {
    uint64_t now = clock_now_ns(), last = atomic_load(&a->last_check_ns);
    if (total->running || total->waiting || now - last < 1000000000u ||
        !atomic_compare_exchange_strong(&a->last_check_ns, &last, now))
        return;
    for (size_t i = 0; i < list->n; i++) {
        err e = {0};
        if (list->leaving[i]) continue; /* its engine may have stopped */
        atomic_fetch_add(&a->n_pool_checks, 1);
        if (engine_check(list->models[i]->engine, &e) == 0) continue;
        atomic_fetch_add(&a->n_pool_check_failures, 1);
        log_error("the KV pool of %s is damaged: %s", list->models[i]->id, e.msg);
    }
}

static void add_checks(str *s, struct api *a) {
    metrics_head(s, "inferd_pool_checks_total", "counter", "Checks of an idle engine's KV pool.");
    str_addf(s, "inferd_pool_checks_total %" PRIu64 "\n", atomic_load(&a->n_pool_checks));
    metrics_head(s, "inferd_pool_check_failures_total", "counter", "Checks that found damage.");
    str_addf(s, "inferd_pool_check_failures_total %" PRIu64 "\n",
             atomic_load(&a->n_pool_check_failures));
}

static void add_models(str *s, struct api *a, const struct models_list *list) {
    struct models_counts n;
    size_t n_loaded = 0;
    for (size_t i = 0; i < list->n; i++)
        n_loaded += !list->leaving[i];
    models_counts(a->models, &n);
    metrics_head(s, "inferd_models_loaded", "gauge", "Models that requests can use.");
    str_addf(s, "inferd_models_loaded %zu\n", n_loaded);
    metrics_head(s, "inferd_model_loads_total", "counter", "Models loaded since the start.");
    str_addf(s, "inferd_model_loads_total %" PRIu64 "\n", n.n_added);
    metrics_head(s, "inferd_model_unloads_total", "counter", "Models unloaded since the start.");
    str_addf(s, "inferd_model_unloads_total %" PRIu64 "\n", n.n_removed);
}

/* One row of a metric of models. */
static void add_usage(str *s, const char *name, const char *id, const char *reason) {
    str_addf(s, "%s{model=\"", name);
    metrics_label(s, id);
    if (reason) str_addf(s, "\",reason=\"%s", reason);
    str_add(s, "\"} ");
}

/* Of each model that is loaded or was. */
static void add_usages(str *s, const struct api *a) {
    static const char *const reasons[] = {
        [MODEL_ASKED] = "asked", [MODEL_EXPIRED] = "keep_alive", [MODEL_ROOM] = "room"};
    const struct model_admin *admin = a->config.admin;
    struct model_usage *u = admin ? mem_new(MODEL_USAGE_MAX, sizeof *u) : NULL;
    uint64_t budget = 0;
    size_t n = u ? admin->usage(admin->host, u, &budget) : 0;
    const char *name = "inferd_memory_budget_bytes";
    metrics_head(s, name, "gauge", "Bound of inferd_model_bytes of all models; 0: none.");
    str_addf(s, "%s %" PRIu64 "\n", name, budget);
    metrics_head(s, name = "inferd_model_loaded", "gauge", "1 when the model is loaded.");
    for (size_t i = 0; i < n; i++)
        add_usage(s, name, u[i].id, NULL), str_addf(s, "%d\n", u[i].loaded);
    metrics_head(s, name = "inferd_model_bytes", "gauge",
                 "Memory of its weights, step buffers, KV cache and states.");
    for (size_t i = 0; i < n; i++)
        add_usage(s, name, u[i].id, NULL), str_addf(s, "%" PRIu64 "\n", u[i].bytes);
    metrics_head(s, name = "inferd_model_enters_total", "counter", "How often it was loaded.");
    for (size_t i = 0; i < n; i++)
        add_usage(s, name, u[i].id, NULL), str_addf(s, "%" PRIu64 "\n", u[i].n_loads);
    metrics_head(s, name = "inferd_model_load_seconds_total", "counter",
                 "Time that loading it took, without waiting for room.");
    for (size_t i = 0; i < n; i++)
        add_usage(s, name, u[i].id, NULL), str_addf(s, "%.9g\n", (double)u[i].load_ns * 1e-9);
    metrics_head(s, name = "inferd_model_load_failures_total", "counter", "Loads that failed.");
    for (size_t i = 0; i < n; i++)
        add_usage(s, name, u[i].id, NULL), str_addf(s, "%" PRIu64 "\n", u[i].n_failed);
    metrics_head(
        s, name = "inferd_model_leaves_total", "counter",
        "How often it was unloaded: on request, after keep-alive, or because another needed "
        "the room.");
    for (size_t i = 0; i < n; i++)
        for (int why = 0; why < MODEL_N_REASONS; why++)
            add_usage(s, name, u[i].id, reasons[why]),
                str_addf(s, "%" PRIu64 "\n", u[i].n_unloads[why]);
    free(u);
}

/* The KV store; without one only that there is none. */
static void add_store(str *s, kvstore *store) {
    struct kvstore_stats t = {0};
    if (store) kvstore_stats_get(store, &t);
    const struct metric_row rows[] = {
        {"inferd_kv_store_writable", "gauge",
         "1 when K/V can be written to kv-dir; 0 without one, or after a failure.",
         store && t.writable},
        {"inferd_kv_store_memory_bytes", "gauge",
         "Bytes of segments, runs of KV blocks, in memory.", t.memory_bytes},
        {"inferd_kv_store_memory_segments", "gauge", "Segments in memory.", t.memory_segments},
        {"inferd_kv_store_memory_evicted_segments_total", "counter",
         "Segments that left the memory for kv-memory-bytes.", t.memory_evicted},
        {"inferd_kv_store_bytes", "gauge", "Bytes of segments in kv-dir.", t.bytes},
        {"inferd_kv_store_segments", "gauge", "Segments in kv-dir, one file each.", t.files},
        {"inferd_kv_store_written_segments_total", "counter", "Segments written.", t.written},
        {"inferd_kv_store_written_bytes_total", "counter", "Bytes of segments written.",
         t.written_bytes},
        {"inferd_kv_store_read_bytes_total", "counter", "Bytes of segments read.", t.read_bytes},
        {"inferd_kv_store_evicted_segments_total", "counter",
         "Segments deleted for kv-dir-bytes or kv-dir-files.", t.evicted},
        {"inferd_kv_store_expired_segments_total", "counter", "Segments deleted for kv-dir-age-s.",
         t.expired},
        {"inferd_kv_store_outdated_segments_total", "counter",
         "Segments of another version of the program, deleted at start.", t.outdated},
        {"inferd_kv_store_damaged_segments_total", "counter",
         "Segments that were cut, swapped or altered, and deleted.", t.damaged},
        {"inferd_kv_store_over_budget_segments_total", "counter",
         "Segments not written for kv-dir-daily-bytes, or larger than kv-dir-bytes.",
         t.over_budget},
        {"inferd_kv_store_failed_segments_total", "counter",
         "Segments not written because the folder failed.", t.failed},
        {"inferd_kv_store_dropped_segments_total", "counter",
         "Segments not written because their model was unloaded before.", t.dropped},
    };
    add_rows(s, rows, store ? sizeof rows / sizeof *rows : 1);
    if (!store) return;
    metrics_head(s, "inferd_kv_store_read_seconds_total", "counter",
                 "Time spent on reading and decrypting segments.");
    str_addf(s, "inferd_kv_store_read_seconds_total %.9g\n", (double)t.read_ns * 1e-9);
}

/* What all engines do, and what those of unloaded models did. */
static void add_engines(str *s, struct api *a) {
    struct engine_totals *total = mem_new(1, sizeof *total);
    struct models_list list;
    if (!total) {
        s->failed = true;
        return;
    }
    models_list(a->models, true, &list, total);
    for (size_t i = 0; i < list.n; i++)
        engine_totals_add(total, list.models[i]->engine);
    add_models(s, a, &list);
    check_pools(a, &list, &total->stats);
    if (a->live.vllm_metrics) metrics_add_vllm(s, &list);
    models_list_release(a->models, &list);
    add_checks(s, a);
    add_counters(s, &total->stats);
    add_restores(s, &total->stats);
    add_misses(s, &total->stats);
    add_stages(s, &total->stats);
    add_kernels(s, total);
    free(total);
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
    metrics_head(&s, "process_start_time_seconds", "gauge",
                 "When the process started, in seconds since 1970.");
    str_addf(&s, "process_start_time_seconds %" PRId64 "\n", a->started_s);
    metrics_head(&s, "inferd_ready", "gauge", "1 when /readyz is 200: new requests are answered.");
    str_addf(&s, "inferd_ready %d\n", health_is_ready(a));
    metrics_head(&s, "inferd_http_requests_active", "gauge",
                 "Requests being prepared, computed or answered.");
    str_addf(&s, "inferd_http_requests_active %u\n", atomic_load(&a->http.n_active));
    metrics_add_http(&s, &a->http);
    if (ready) add_engines(&s, a);
    if (ready) add_usages(&s, a);
    add_store(&s, a->config.kv_store);
    reply_header(r, "Cache-Control", "no-store");
    reply_text(r, 200, "text/plain; version=0.0.4; charset=utf-8", &s);
}

const struct route metrics_route = {"GET", "/metrics",
                                    ROUTE_KEY | ROUTE_METRICS | ROUTE_DIRECT | ROUTE_HEALTH,
                                    .handle = handle_metrics};
