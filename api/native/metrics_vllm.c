/* metrics_vllm.c - see metrics_vllm.h. The tables map vLLM's names to members of engine_stats.
 * vLLM's own names are in its vllm/v1/metrics/loggers.py; prometheus_client adds _total to those of
 * counters. Adapters (vllm:lora_requests_info) have no counterpart here. Owns nothing. */
#include "api/native/metrics_vllm.h"

#include "api/http/metrics.h"
#include "core/base/mem.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void metrics_add_histogram(str *s, const char *name, const char *labels,
                           const struct engine_histogram *h) {
    const char *comma = *labels ? "," : "", *open = *labels ? "{" : "", *close = *labels ? "}" : "";
    uint64_t below = 0;
    for (size_t i = 0; i + 1 < ENGINE_HIST_BUCKETS; i++) {
        below += h->counts[i];
        if (h->bounds[i] <= 0) continue; /* no model was loaded yet */
        str_addf(s, "%s_bucket{%s%sle=\"%.9g\"} %" PRIu64 "\n", name, labels, comma, h->bounds[i],
                 below);
    }
    below += h->counts[ENGINE_HIST_BUCKETS - 1];
    str_addf(s, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", name, labels, comma, below);
    str_addf(s, "%s_sum%s%s%s %.9g\n%s_count%s%s%s %" PRIu64 "\n", name, open, labels, close,
             h->sum, name, open, labels, close, below);
}

enum kind { COUNT, COUNT_32, USED_BLOCKS, FINISHES, SHAPE, TIMES };

static const struct row {
    const char *name, *type, *help;
    enum kind kind;
    size_t offset; /* in struct engine_stats */
} rows[] = {
#define AT(member) offsetof(struct engine_stats, member)
    {"vllm:num_requests_running", "gauge", "As inferd_sequences_running, of one model.", COUNT_32,
     AT(running)},
    {"vllm:num_requests_waiting", "gauge", "As inferd_sequences_waiting, of one model.", COUNT_32,
     AT(waiting)},
    {"vllm:kv_cache_usage_perc", "gauge", "Fraction of the KV blocks that sequences use: 0 to 1.",
     USED_BLOCKS, 0},
    {"vllm:cache_config_info", "gauge", "Tokens of a KV block and number of KV blocks, as labels.",
     SHAPE, 0},
    {"vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked for in the prefix cache.",
     COUNT, AT(prompt_tokens_total)},
    {"vllm:prefix_cache_hits_total", "counter", "As inferd_prefix_cache_hit_tokens_total.", COUNT,
     AT(cached_tokens_total)},
    {"vllm:prompt_tokens_total", "counter", "As inferd_prompt_tokens_total.", COUNT,
     AT(prompt_tokens_total)},
    {"vllm:generation_tokens_total", "counter", "As inferd_generated_tokens_total.", COUNT,
     AT(generated_tokens_total)},
    {"vllm:num_preemptions_total", "counter", "As inferd_preemptions_total.", COUNT,
     AT(preemptions_total)},
    {"vllm:request_success_total", "counter", "As inferd_sequences_finished_total.", FINISHES,
     AT(requests_total)},
    {"vllm:time_to_first_token_seconds", "histogram", "As inferd_time_to_first_token_seconds.",
     TIMES, AT(ttft)},
    {"vllm:inter_token_latency_seconds", "histogram", "As inferd_inter_token_latency_seconds.",
     TIMES, AT(inter_token)},
    {"vllm:request_queue_time_seconds", "histogram", "As inferd_queue_time_seconds.", TIMES,
     AT(queue_time)},
    {"vllm:e2e_request_latency_seconds", "histogram", "As inferd_answer_time_seconds.", TIMES,
     AT(answer_time)},
#undef AT
};

static void add_finishes(str *s, const char *name, const char *labels, const uint64_t n[4]) {
    static const char *const reasons[] = {[ENGINE_FINISH_STOP] = "stop",
                                          [ENGINE_FINISH_LENGTH] = "length",
                                          [ENGINE_FINISH_CANCEL] = "abort",
                                          [ENGINE_FINISH_ERROR] = "error"};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        str_addf(s, "%s{%s,finished_reason=\"%s\"} %" PRIu64 "\n", name, labels, reasons[i], n[i]);
}

static void add_sample(str *s, const struct row *row, const char *labels,
                       const struct engine_stats *t) {
    const void *at = (const char *)t + row->offset;
    switch (row->kind) {
    case COUNT:
        str_addf(s, "%s{%s} %" PRIu64 "\n", row->name, labels, *(const uint64_t *)at);
        break;
    case COUNT_32:
        str_addf(s, "%s{%s} %" PRIu32 "\n", row->name, labels, *(const uint32_t *)at);
        break;
    case USED_BLOCKS:
        str_addf(s, "%s{%s} %.9g\n", row->name, labels, engine_kv_usage(t));
        break;
    case SHAPE:
        str_addf(s, "%s{%s,block_size=\"%" PRIu32 "\",num_gpu_blocks=\"%" PRIu64 "\"} 1\n",
                 row->name, labels, t->block_tokens, t->kv_blocks);
        break;
    case FINISHES:
        add_finishes(s, row->name, labels, at);
        break;
    case TIMES:
        metrics_add_histogram(s, row->name, labels, at);
        break;
    }
}

void metrics_add_vllm(str *s, const struct models_list *list) {
    struct engine_stats *stats = mem_new(list->n ? list->n : 1, sizeof *stats);
    str labels;
    str_init(&labels, 16 * API_MODEL_ID_BYTES);
    if (!stats) s->failed = true;
    for (size_t i = 0; stats && i < list->n; i++)
        engine_stats_get(list->models[i]->engine, &stats[i]);
    for (size_t r = 0; stats && r < sizeof rows / sizeof *rows; r++) {
        metrics_head(s, rows[r].name, rows[r].type, rows[r].help);
        for (size_t i = 0; i < list->n; i++) {
            str_clear(&labels);
            str_add(&labels, "engine=\"0\",model_name=\"");
            metrics_label(&labels, list->models[i]->id);
            str_add_char(&labels, '"');
            add_sample(s, &rows[r], str_cstr(&labels), &stats[i]);
        }
    }
    s->failed |= labels.failed;
    str_fini(&labels);
    free(stats);
}
