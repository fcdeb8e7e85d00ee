/* quota.c - see quota.h. Owns the buckets; one lock, held for a few additions. */
#include "api/http/quota.h"

#include "api/http/error.h"
#include "api/http/http.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const uint64_t second_ns = UINT64_C(1000000000);

static const struct rate {
    uint64_t period_ns;
    bool tokens;
    const char *name; /* in messages */
} rates[KEY_N_RATES] = {
    [KEY_REQUESTS_MINUTE] = {UINT64_C(60000000000), false, "requests per minute (RPM)"},
    [KEY_REQUESTS_DAY] = {UINT64_C(86400000000000), false, "requests per day (RPD)"},
    [KEY_TOKENS_MINUTE] = {UINT64_C(60000000000), true, "tokens per minute (TPM)"},
    [KEY_TOKENS_DAY] = {UINT64_C(86400000000000), true, "tokens per day (TPD)"},
};

void quotas_init(struct quotas *q) {
    *q = (struct quotas){.n = 0};
    pthread_mutex_init(&q->mu, NULL);
}

void quotas_fini(struct quotas *q) {
    free(q->all);
    pthread_mutex_destroy(&q->mu);
}

/* Has r's key any limit in [from, to)? */
static bool is_limited(const struct request *r, int from, int to) {
    for (int i = from; i < to; i++)
        if (r->key.limits[i]) return true;
    return false;
}

/* The buckets of a key. NULL: no memory. With q->mu. */
static struct quota *find_quota(struct quotas *q, uint32_t key) {
    if (key > q->n) {
        size_t n = key < 16 ? 16 : (size_t)key * 2;
        struct quota *more = mem_resize(q->all, n, sizeof *more);
        if (!more) return NULL;
        for (size_t i = q->n; i < n; i++)
            more[i] = (struct quota){.n_sequences = 0};
        q->all = more;
        q->n = n;
    }
    return &q->all[key - 1];
}

/* How long a bucket of `limit` takes to fill by n. */
static uint64_t fill_ns(const struct rate *rate, uint64_t limit, uint64_t n) {
    double ns = (double)n * (double)rate->period_ns / (double)limit;
    return ns < 1e18 ? (uint64_t)ns : UINT64_C(1000000000000000000);
}

/* How long until the bucket is full. */
static uint64_t missing_ns(const struct quota *q, int i, uint64_t now_ns) {
    return q->full_ns[i] > now_ns ? q->full_ns[i] - now_ns : 0;
}

/* How long until the bucket has n, or is full. */
static uint64_t wait_ns(const struct quota *q, const struct request *r, int i, uint64_t n,
                        uint64_t now_ns) {
    const struct rate *rate = &rates[i];
    uint64_t limit = r->key.limits[i];
    uint64_t after = missing_ns(q, i, now_ns) + fill_ns(rate, limit, n < limit ? n : limit);
    return after > rate->period_ns ? after - rate->period_ns : 0;
}

static uint64_t remaining(const struct quota *q, const struct request *r, int i, uint64_t now_ns) {
    uint64_t missing = missing_ns(q, i, now_ns), period_ns = rates[i].period_ns;
    if (missing >= period_ns) return 0;
    /* What is left after whole takings is a whole number, but for rounding. */
    return (uint64_t)((double)(period_ns - missing) / (double)period_ns * (double)r->key.limits[i] +
                      1e-6);
}

static void take(struct quota *q, const struct request *r, bool tokens, uint64_t n,
                 uint64_t now_ns) {
    for (int i = 0; i < KEY_N_RATES; i++) {
        if (!r->key.limits[i] || rates[i].tokens != tokens) continue;
        uint64_t from = q->full_ns[i] > now_ns ? q->full_ns[i] : now_ns;
        q->full_ns[i] = from + fill_ns(&rates[i], r->key.limits[i], n);
    }
}

/* "1s", "6m0s", "20ms", as OpenAI writes times. */
static void format_time(uint64_t ns, char *out, size_t size) {
    uint64_t ms = (ns + 999999) / 1000000, s = (ms + 999) / 1000;
    if (ms < 1000)
        snprintf(out, size, ms ? "%" PRIu64 "ms" : "0s", ms);
    else if (s < 60)
        snprintf(out, size, "%" PRIu64 "s", s);
    else if (s < 3600)
        snprintf(out, size, "%" PRIu64 "m%" PRIu64 "s", s / 60, s % 60);
    else
        snprintf(out, size, "%" PRIu64 "h%" PRIu64 "m%" PRIu64 "s", s / 3600, s / 60 % 60, s % 60);
}

/* A bucket that is empty, and what a request asked of it. */
struct refusal {
    int rate;
    uint64_t left, asked, wait_ns;
};

/* The rate of the kind for which the key must wait longest. false: it need not wait. With q->mu. */
static bool find_refusal(const struct quota *q, const struct request *r, bool tokens, uint64_t n,
                         uint64_t now_ns, struct refusal *out) {
    out->wait_ns = 0;
    for (int i = 0; i < KEY_N_RATES; i++) {
        if (!r->key.limits[i] || rates[i].tokens != tokens) continue;
        uint64_t kept = r->local ? r->key.limits[i] / 2 : 0; /* for requests that people wait for */
        uint64_t wait = wait_ns(q, r, i, n + kept, now_ns);
        if (wait > out->wait_ns) *out = (struct refusal){i, remaining(q, r, i, now_ns), n, wait};
    }
    return out->wait_ns > 0;
}

static void count_refusal(struct request *r, uint64_t wait) {
    uint64_t ms = wait / 1000000 + 1;
    r->retry_after_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
    atomic_fetch_add(&r->http->costs.n_rejected[REJECT_KEY_QUOTA], 1);
}

static int refuse(struct request *r, const struct refusal *why, err *e) {
    char after[40];
    uint64_t limit = r->key.limits[why->rate];
    count_refusal(r, why->wait_ns);
    format_time(why->wait_ns, after, sizeof after);
    return err_set(e, ERR_QUOTA,
                   "Rate limit reached for key %s on %s: Limit %" PRIu64 ", Used %" PRIu64
                   ", Requested %" PRIu64 ". Please try again in %s.",
                   r->key.name, rates[why->rate].name, limit, limit - why->left, why->asked, after);
}

bool quota_take_request(struct request *r, uint64_t now_ns) {
    struct quotas *all = &r->http->quotas;
    struct refusal why;
    err e = {0};
    if (!is_limited(r, KEY_REQUESTS_MINUTE, KEY_REQUESTS_DAY + 1)) return true;
    pthread_mutex_lock(&all->mu);
    struct quota *q = find_quota(all, r->key.number);
    bool refused = q && find_refusal(q, r, false, 1, now_ns, &why);
    if (q && !refused) take(q, r, false, 1, now_ns);
    pthread_mutex_unlock(&all->mu);
    if (!q) {
        err_no_memory(&e);
        reply_err(r, &e);
        return false;
    }
    if (!refused) return true;
    refuse(r, &why, &e);
    reply_error(r, &(struct api_error){429, "requests", "rate_limit_exceeded", NULL, e.msg});
    return false;
}

int quota_check_tokens(struct request *r, uint64_t n_prompt, uint64_t now_ns, err *e) {
    struct quotas *all = &r->http->quotas;
    struct refusal why;
    if (!is_limited(r, KEY_TOKENS_MINUTE, KEY_TOKENS_DAY + 1)) return 0;
    pthread_mutex_lock(&all->mu);
    const struct quota *q = find_quota(all, r->key.number);
    bool refused = q && find_refusal(q, r, true, n_prompt, now_ns, &why);
    pthread_mutex_unlock(&all->mu);
    if (!q) return err_no_memory(e);
    return refused ? refuse(r, &why, e) : 0;
}

void quota_take_tokens(struct request *r, uint64_t n, uint64_t now_ns) {
    struct quotas *all = &r->http->quotas;
    if (!n || !is_limited(r, KEY_TOKENS_MINUTE, KEY_TOKENS_DAY + 1)) return;
    pthread_mutex_lock(&all->mu);
    struct quota *q = find_quota(all, r->key.number);
    if (q) take(q, r, true, n, now_ns);
    pthread_mutex_unlock(&all->mu);
}

int quota_hold(struct request *r, struct quota_hold *h, uint32_t n, err *e) {
    struct quotas *all = &r->http->quotas;
    uint64_t limit = r->key.limits[KEY_SEQUENCES];
    if (!limit) return 0;
    pthread_mutex_lock(&all->mu);
    struct quota *q = find_quota(all, r->key.number);
    uint64_t running = q ? q->n_sequences : 0;
    uint64_t most = r->local ? (limit + 1) / 2 : limit;
    bool fits = q && (running + n <= most || (!running && n <= limit));
    if (fits) q->n_sequences += n;
    pthread_mutex_unlock(&all->mu);
    if (!q) return err_no_memory(e);
    if (fits) {
        *h = (struct quota_hold){r->http, r->key.number, n};
        return 0;
    }
    count_refusal(r, second_ns);
    return err_set(e, ERR_QUOTA,
                   "Rate limit reached for key %s on concurrent sequences: Limit %" PRIu64
                   ", Used %" PRIu64 ", Requested %u. Please try again when an answer has ended.",
                   r->key.name, limit, running, n);
}

void quota_release(struct quota_hold *h) {
    if (!h->n) return;
    struct quotas *all = &h->http->quotas;
    pthread_mutex_lock(&all->mu);
    all->all[h->key - 1].n_sequences -= h->n;
    pthread_mutex_unlock(&all->mu);
    h->n = 0;
}

/* Of a key's limits of a kind that of which least is left. */
struct nearest {
    uint64_t limit, left;
    uint64_t missing_ns; /* until all of it is back */
};

/* false: no memory. */
static bool find_nearest(struct request *r, bool tokens, uint64_t now_ns, struct nearest *out) {
    struct quotas *all = &r->http->quotas;
    bool found = false;
    pthread_mutex_lock(&all->mu);
    const struct quota *q = find_quota(all, r->key.number);
    for (int i = 0; q && i < KEY_N_RATES; i++) {
        if (!r->key.limits[i] || rates[i].tokens != tokens) continue;
        uint64_t n = remaining(q, r, i, now_ns);
        if (found && n >= out->left) continue;
        found = true;
        *out = (struct nearest){r->key.limits[i], n, missing_ns(q, i, now_ns)};
    }
    pthread_mutex_unlock(&all->mu);
    return found;
}

static void add_three(struct request *r, const struct limit_headers *names, const struct nearest *n,
                      const char *reset) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, n->limit);
    reply_header(r, names->limit, text);
    snprintf(text, sizeof text, "%" PRIu64, n->left);
    reply_header(r, names->remaining, text);
    reply_header(r, names->reset, reset);
}

static bool add_headers_of(struct request *r, bool tokens, uint64_t now_ns) {
    static const struct limit_headers openai[2] = {
        {false, "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests",
         "x-ratelimit-reset-requests"},
        {true, "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens",
         "x-ratelimit-reset-tokens"}};
    const struct protocol *p = request_protocol(r);
    struct nearest n;
    char text[40], utc[CLOCK_UTC_BYTES];
    if (!find_nearest(r, tokens, now_ns, &n)) return false;
    format_time(n.missing_ns, text, sizeof text);
    add_three(r, &openai[tokens], &n, text);
    clock_utc(clock_wall_s() + (int64_t)((n.missing_ns + second_ns - 1) / second_ns), utc);
    for (const struct limit_headers *h = p ? p->limits : NULL; h && h->limit; h++)
        if (h->tokens == tokens) add_three(r, h, &n, utc);
    return true;
}

bool quota_add_headers(struct request *r, uint64_t now_ns) {
    if (is_limited(r, KEY_TOKENS_MINUTE, KEY_TOKENS_DAY + 1)) add_headers_of(r, true, now_ns);
    return is_limited(r, KEY_REQUESTS_MINUTE, KEY_REQUESTS_DAY + 1) &&
           add_headers_of(r, false, now_ns);
}
