/* metrics_costs.c - the metrics of costs.h: time on HTTP threads and in the work pool, by route,
 * lane, kind of work and API key; and what was refused. Owns nothing; any thread. */
#include "api/http/metrics.h"

#include "api/http/http.h"
#include <inttypes.h>
#include <stdio.h>

static const char *const lanes[WORK_N_LANES] = {[WORK_QUICK] = "quick", [WORK_SLOW] = "slow"};
static const char *const parts[N_REQUEST_PARTS] = {[PART_JSON] = "json",
                                                   [PART_TEMPLATE] = "template",
                                                   [PART_TOKENIZE] = "tokenize",
                                                   [PART_GRAMMAR] = "grammar"};
static const char *const reasons[N_REJECT_REASONS] = {[REJECT_PREPARE_QUEUE] = "prepare_queue",
                                                      [REJECT_TOO_EXPENSIVE] = "too_expensive",
                                                      [REJECT_BODY_BYTES] = "body_bytes",
                                                      [REJECT_ANSWER_BYTES] = "answer_bytes",
                                                      [REJECT_KEY_QUOTA] = "key_quota"};

static uint64_t load_count(const atomic_uint_least64_t *n) {
    return atomic_load_explicit(n, memory_order_relaxed);
}

static double load_seconds(const atomic_uint_least64_t *ns) {
    return (double)load_count(ns) / 1e9;
}

/* A family of seconds by route and by one more label with n values; label NULL: by route only. Rows
 * of 0 are omitted. */
struct family {
    const char *name, *help, *label;
    const char *const *values;
    size_t n;
    const atomic_uint_least64_t *sums; /* (COST_ROUTES, n) */
};

static void add_family(str *s, const struct http *h, const struct family *f) {
    metrics_head(s, f->name, "counter", f->help);
    for (size_t row = 0; row <= h->setup.n_routes; row++)
        for (size_t i = 0; i < f->n; i++) {
            const atomic_uint_least64_t *sum = &f->sums[row * f->n + i];
            if (!load_count(sum)) continue;
            str_add(s, f->name);
            metrics_add_route(s, h, row);
            if (f->label) str_addf(s, ",%s=\"%s\"", f->label, f->values[i]);
            str_addf(s, "} %.9g\n", load_seconds(sum));
        }
}

static void add_routes(str *s, const struct http *h) {
    const struct costs *c = &h->costs;
    const struct family families[] = {
        {"inferd_http_thread_seconds_total",
         "Time that requests took on HTTP threads, which also write the streams.", NULL, NULL, 1,
         c->http_ns},
        {"inferd_prepare_seconds_total", "Time that requests took on the threads of a lane.",
         "lane", lanes, WORK_N_LANES, &c->lane_ns[0][0]},
        {"inferd_prepare_part_seconds_total", "The same time by kind of work.", "part", parts,
         N_REQUEST_PARTS, &c->part_ns[0][0]},
    };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        add_family(s, h, &families[i]);
}

static void add_lanes(str *s, struct http *h) {
    const struct costs *c = &h->costs;
    struct work_pool_stats now;
    work_pool_stats(h->pool, &now);
    metrics_head(s, "inferd_prepare_wait_seconds_total", "counter",
                 "Time that requests waited for a thread of a lane.");
    for (int i = 0; i < WORK_N_LANES; i++)
        str_addf(s, "inferd_prepare_wait_seconds_total{lane=\"%s\"} %.9g\n", lanes[i],
                 load_seconds(&c->wait_ns[i]));
    metrics_head(s, "inferd_prepare_runs_total", "counter", "Requests that a lane began.");
    for (int i = 0; i < WORK_N_LANES; i++)
        str_addf(s, "inferd_prepare_runs_total{lane=\"%s\"} %" PRIu64 "\n", lanes[i],
                 load_count(&c->n_runs[i]));
    metrics_head(s, "inferd_prepare_queued", "gauge", "Requests waiting for a thread of a lane.");
    for (int i = 0; i < WORK_N_LANES; i++)
        str_addf(s, "inferd_prepare_queued{lane=\"%s\"} %u\n", lanes[i], now.n_queued[i]);
    metrics_head(s, "inferd_prepare_running", "gauge", "Requests running on a lane's threads.");
    for (int i = 0; i < WORK_N_LANES; i++)
        str_addf(s, "inferd_prepare_running{lane=\"%s\"} %u\n", lanes[i], now.n_running[i]);
    metrics_head(s, "inferd_prepare_cancelled_total", "counter",
                 "Preparations cancelled because the client disconnected.");
    str_addf(s, "inferd_prepare_cancelled_total %" PRIu64 "\n", load_count(&c->n_cancelled));
}

static void add_rejected(str *s, const struct costs *c) {
    metrics_head(s, "inferd_http_rejected_total", "counter",
                 "Requests refused because a limit of the server was reached.");
    for (int i = 0; i < N_REJECT_REASONS; i++)
        str_addf(s, "inferd_http_rejected_total{reason=\"%s\"} %" PRIu64 "\n", reasons[i],
                 load_count(&c->n_rejected[i]));
}

static void add_answers(str *s, struct http *h) {
    struct answers_stats now;
    answers_stats(&h->answers, &now);
    metrics_head(s, "inferd_answer_bytes", "gauge",
                 "Bytes of answers being made, sent or kept, beyond 64K each.");
    str_addf(s, "inferd_answer_bytes %" PRIu64 "\n", now.bytes);
    metrics_head(s, "inferd_answers_cut_total", "counter",
                 "Answers cut off because their clients did not read while others needed memory.");
    str_addf(s, "inferd_answers_cut_total %" PRIu64 "\n", now.n_cut);
}

/* The name of the i-th key, from 0: its position in the files of keys, or a prefix; never its text.
 */
static bool name_key(const struct http *h, size_t i, char name[KEY_PREFIX_BYTES]) {
    const struct http_keys *more = h->setup.keys;
    size_t n = h->key_slots.n_first;
    if (i >= n) return more && more->name(h->setup.api, (uint32_t)(i - n) + 1, name);
    snprintf(name, KEY_PREFIX_BYTES, "%u", (uint32_t)i + 1);
    return true;
}

static void add_keys(str *s, const struct http *h) {
    static const struct {
        const char *name, *help;
        size_t offset; /* in struct key_costs */
        bool ns;
    } rows[] = {
        {"inferd_key_requests_total",
         "Requests, by their API key: its position in its file, or its prefix.",
         offsetof(struct key_costs, n_requests), false},
        {"inferd_key_prepare_seconds_total", "Time in the lanes, by API key.",
         offsetof(struct key_costs, prepare_ns), true},
        {"inferd_key_prompt_tokens_total", "Prompt tokens, by API key.",
         offsetof(struct key_costs, prompt_tokens), false},
        {"inferd_key_completion_tokens_total", "Completion tokens, by API key.",
         offsetof(struct key_costs, completion_tokens), false},
    };
    char name[KEY_PREFIX_BYTES];
    size_t n = 0;
    while (n < COST_KEYS && name_key(h, n, name))
        n++;
    for (size_t i = 0; n && i < sizeof rows / sizeof *rows; i++) {
        metrics_head(s, rows[i].name, "counter", rows[i].help);
        for (size_t k = 0; k < n; k++) {
            const atomic_uint_least64_t *value =
                (const void *)((const char *)&h->costs.keys[k] + rows[i].offset);
            if (!name_key(h, k, name)) continue;
            bool more = k + 1 == COST_KEYS && name_key(h, k + 1, (char[KEY_PREFIX_BYTES]){0});
            str_addf(s, "%s{key=\"%s%s\"} ", rows[i].name, name, more ? "+" : "");
            if (rows[i].ns)
                str_addf(s, "%.9g\n", load_seconds(value));
            else
                str_addf(s, "%" PRIu64 "\n", load_count(value));
        }
    }
}

static void add_failures(str *s, const struct http *h) {
    metrics_head(s, "inferd_auth_failures_total", "counter",
                 "Requests refused because of their API key, by reason.");
    for (int i = 0; i < AUTH_N_FAILURES; i++)
        str_addf(s, "inferd_auth_failures_total{reason=\"%s\"} %" PRIu64 "\n",
                 auth_failure_names[i], load_count(&h->auth_failures.counts[i]));
}

void metrics_add_costs(str *s, struct http *h) {
    add_routes(s, h);
    add_lanes(s, h);
    add_rejected(s, &h->costs);
    add_answers(s, h);
    add_keys(s, h);
    add_failures(s, h);
}
