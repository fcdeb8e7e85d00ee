/* sampler.c - penalties, filters, random choice and log-probabilities; see sampler.h for the order.
 *
 * Every filter keeps a prefix of the tokens' total order (logit down, id up), so the filters
 * together are one cut: the last token kept. It is found by partial selection (expected O(vocab),
 * no sort); then one pass in id order adds up the weights of the kept tokens and a second walks to
 * the random target. Weights are integers (core/base/sample_math.h), so their sums do not depend on
 * the order, and a device that samples by the same rules (backend_sample) samples the same token.
 * Sampling from few tokens (greedy, a small top_k) reads only these, in order: a device may have
 * selected them. Owns scratch of the vocabulary's size, allocated once. Runs on the worker thread.
 */
#include "core/engine/sampler.h"

#include "core/base/mem.h"
#include "core/base/sample_math.h"
#include "core/base/top.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    float logit;
    int32_t id;
    uint64_t weight; /* for top_p */
};

struct sampler {
    uint32_t n_vocab;
    float *logits;           /* (n_vocab) after bias and penalties; NaN replaced */
    struct candidate *cands; /* (n_vocab) permuted by the selection */
    uint64_t *weights;       /* (n_vocab) sample_weight, in id order */
    uint64_t pivot_state;
};

sampler *sampler_new(uint32_t n_vocab) {
    sampler *s = mem_new(1, sizeof *s);
    if (!s) return NULL;
    s->n_vocab = n_vocab;
    s->logits = mem_new(n_vocab, sizeof *s->logits);
    s->cands = mem_new(n_vocab, sizeof *s->cands);
    s->weights = mem_new(n_vocab, sizeof *s->weights);
    if (s->logits && s->cands && s->weights) return s;
    sampler_free(s);
    return NULL;
}

void sampler_free(sampler *s) {
    if (!s) return;
    free(s->logits);
    free(s->cands);
    free(s->weights);
    free(s);
}

int penalty_history_init(struct penalty_history *history, uint32_t capacity) {
    memset(history, 0, sizeof *history);
    if (!capacity) return 0;
    uint64_t n_slots = 2;
    while (n_slots < 2 * (uint64_t)capacity)
        n_slots *= 2;
    history->ids = mem_new(capacity, sizeof *history->ids);
    history->counts = mem_new(capacity, sizeof *history->counts);
    history->slots = mem_new(n_slots, sizeof *history->slots);
    history->mask = (uint32_t)(n_slots - 1);
    history->capacity = capacity;
    if (history->ids && history->counts && history->slots) return 0;
    penalty_history_fini(history);
    return ERR_NOMEM;
}

void penalty_history_fini(struct penalty_history *history) {
    free(history->ids);
    free(history->counts);
    free(history->slots);
    memset(history, 0, sizeof *history);
}

void penalty_history_add(struct penalty_history *history, int32_t token, bool generated) {
    if (!history->capacity) return;
    uint32_t h = (uint32_t)token * 2654435769u;
    for (h ^= h >> 15;; h++) {
        uint32_t *slot = &history->slots[h & history->mask];
        if (!*slot) {
            if (history->n_distinct == history->capacity) return;
            history->ids[history->n_distinct] = token;
            *slot = ++history->n_distinct;
        } else if (history->ids[*slot - 1] != token) {
            continue;
        }
        history->counts[*slot - 1] += generated;
        return;
    }
}

/* Copies the row with NaNs, and tokens outside the mask, as -inf. Words of a mask are mostly all
 * zeros or all ones. */
static void copy_row(sampler *s, const float *logits, const uint32_t *mask) {
    for (uint32_t first = 0; first < s->n_vocab; first += 32) {
        uint32_t word = mask ? mask[first / 32] : UINT32_MAX;
        uint32_t end = s->n_vocab - first < 32 ? s->n_vocab : first + 32;
        for (uint32_t i = first; i < end; i++)
            s->logits[i] = word && !isnan(logits[i]) ? logits[i] : -INFINITY;
        for (uint32_t no = ~word; word && no; no &= no - 1) {
            uint32_t i = first + (uint32_t)__builtin_ctz(no);
            if (i < end) s->logits[i] = -INFINITY;
        }
    }
}

bool sampler_has_penalty(const struct engine_params *p) {
    return p->sampling.repetition_penalty != 1.0f || p->sampling.presence_penalty != 0.0f ||
           p->sampling.frequency_penalty != 0.0f;
}

/* Copies the row to scratch and applies mask, bias and penalties; returns the largest logit. */
static float adjust_logits(sampler *s, const struct sampler_request *req) {
    const struct engine_params *p = req->params;
    float *l = s->logits, max = -INFINITY;
    copy_row(s, req->logits, req->mask);
    for (uint32_t i = 0; i < p->n_bias; i++)
        l[p->bias[i].token] += p->bias[i].bias;
    bool repetition = p->sampling.repetition_penalty != 1.0f;
    if (sampler_has_penalty(p)) {
        const struct penalty_history *history = req->history;
        for (uint32_t i = 0; i < history->n_distinct; i++) {
            float *x = &l[history->ids[i]];
            if (repetition)
                *x = *x > 0 ? *x / p->sampling.repetition_penalty
                            : *x * p->sampling.repetition_penalty;
            if (history->counts[i])
                *x -= fmaf(p->sampling.frequency_penalty, (float)history->counts[i],
                           p->sampling.presence_penalty);
        }
    }
    for (uint32_t i = 0; i < s->n_vocab; i++)
        if (l[i] > max) max = l[i];
    return max;
}

/* a comes before b in the total order. */
static bool ranks_before(struct candidate a, struct candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* A pivot for which no input is bad: its position comes from a generator, not from the data. The
 * selection's result does not depend on it. */
static uint32_t pivot_pos(sampler *s, uint32_t n) {
    s->pivot_state = s->pivot_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((s->pivot_state >> 32) * n) >> 32);
}

/* Partitions c[0..n): a random pivot ends up at the returned index, and all that precede it in the
 * order are to its left. */
static uint32_t partition(sampler *s, struct candidate *c, uint32_t n) {
    uint32_t pos = pivot_pos(s, n), store = 0;
    struct candidate pivot = c[pos];
    c[pos] = c[n - 1];
    for (uint32_t i = 0; i + 1 < n; i++) {
        struct candidate x = c[i];
        if (!ranks_before(x, pivot)) continue;
        c[i] = c[store];
        c[store++] = x;
    }
    c[n - 1] = c[store];
    c[store] = pivot;
    return store;
}

/* Moves the first k of n candidates to the front, the k-th itself to k - 1. 1 <= k <= n. */
static void select_k(sampler *s, uint32_t n, uint32_t k) {
    uint32_t lo = 0, hi = n;
    while (hi - lo > 1) {
        uint32_t p = lo + partition(s, s->cands + lo, hi - lo);
        if (p == k - 1) return;
        if (p < k - 1)
            lo = p + 1;
        else
            hi = p;
    }
}

/* out[i] = weight of l[i], i < n, in runs that a compiler vectorizes. One source, compiled with and
 * without the fma instruction that sample_weight needs: without it each fma is a call. */
enum { WEIGH_RUN = 16 };
static inline __attribute__((always_inline)) void weigh_with(const float *l, uint32_t n, float max,
                                                             float temperature, uint64_t *out) {
    uint32_t i = 0;
    for (; i + WEIGH_RUN <= n; i += WEIGH_RUN)
        for (uint32_t k = 0; k < WEIGH_RUN; k++)
            out[i + k] = sample_weight(l[i + k], max, temperature);
    for (; i < n; i++)
        out[i] = sample_weight(l[i], max, temperature);
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static void weigh_avx2(const float *l, uint32_t n, float max,
                                                           float temperature, uint64_t *out) {
    weigh_with(l, n, max, temperature, out);
}
#endif

static void weigh(const float *l, uint32_t n, float max, float temperature, uint64_t *out) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        weigh_avx2(l, n, max, temperature, out);
        return;
    }
#endif
    weigh_with(l, n, max, temperature, out);
}

/* How many of the n candidates, in order, have at least top_p of all their weight; they are moved
 * to the front, the last of them to the returned count - 1. */
static uint32_t select_mass(sampler *s, uint32_t n, float top_p) {
    uint64_t total = 0, kept = 0; /* kept: weight of c[0..lo), always less than want */
    struct candidate *c = s->cands;
    for (uint32_t i = 0; i < n; i++)
        total += c[i].weight = s->weights[c[i].id];
    uint64_t want = sample_mass(top_p, total);
    /* All tokens lighter than this together weigh less than what top_p excludes. */
    uint64_t lightest = (uint64_t)((1.0 - (double)top_p) * (double)total / n);
    uint32_t lo = 0, hi = 0; /* the answer is in (lo, hi] */
    for (uint32_t i = 0; i < n; i++)
        if (c[i].weight >= lightest) c[hi++] = c[i];
    while (hi - lo > 1) {
        uint32_t pivot = lo + partition(s, c + lo, hi - lo);
        uint64_t mass = kept;
        for (uint32_t i = lo; i < pivot; i++)
            mass += c[i].weight;
        if (mass >= want) {
            hi = pivot;
            continue;
        }
        mass += c[pivot].weight;
        if (mass >= want) return pivot + 1;
        kept = mass;
        lo = pivot + 1;
    }
    return hi;
}

static void list_candidates(sampler *s) {
    for (uint32_t i = 0; i < s->n_vocab; i++)
        s->cands[i] = (struct candidate){.logit = s->logits[i], .id = (int32_t)i};
    s->pivot_state = 0;
}

/* Computes the weights; those of tokens excluded by top_k and top_p are 0. */
static void weigh_kept(sampler *s, float max, const struct engine_params *p) {
    uint32_t n = s->n_vocab, n_kept = n;
    bool by_rank = p->sampling.top_k && p->sampling.top_k < n, by_mass = p->sampling.top_p < 1.0f;
    struct candidate cut;
    if (by_rank || by_mass) list_candidates(s);
    if (by_rank) {
        select_k(s, n, n_kept = p->sampling.top_k);
        cut = s->cands[n_kept - 1];
        for (uint32_t i = 0; i < n; i++) /* weights of -inf are computed fast */
            if (ranks_before(cut, (struct candidate){.logit = s->logits[i], .id = (int32_t)i}))
                s->logits[i] = -INFINITY;
    }
    weigh(s->logits, n, max, p->sampling.temperature, s->weights);
    if (!by_mass) return;
    cut = s->cands[select_mass(s, n_kept, p->sampling.top_p) - 1];
    for (uint32_t i = 0; i < n; i++)
        if (ranks_before(cut, (struct candidate){.logit = s->logits[i], .id = (int32_t)i}))
            s->weights[i] = 0;
}

/* ---- sampling from few tokens ---- */

/* Do the filters keep no more than BACKEND_MAX_TOP tokens, whatever their logits? */
static bool keeps_few(const struct engine_params *p, uint32_t n_vocab) {
    return p->sampling.top_k && p->sampling.top_k <= BACKEND_MAX_TOP && p->sampling.top_k < n_vocab;
}

uint32_t sampler_n_top(const struct engine_params *p, uint32_t n_vocab) {
    if (p->n_bias || sampler_has_penalty(p) || p->n_logprobs >= 0 || p->grammar) return 0;
    if (p->sampling.temperature <= 0.0f) return 1;
    if (!keeps_few(p, n_vocab)) return 0;
    return n_vocab < BACKEND_MAX_TOP ? n_vocab : BACKEND_MAX_TOP;
}

/* How many of the n tokens, in order, top_p keeps. */
static uint32_t count_nucleus(const uint64_t *weights, uint32_t n, float top_p) {
    uint64_t total = 0, mass = 0;
    for (uint32_t i = 0; i < n; i++)
        total += weights[i];
    uint64_t want = sample_mass(top_p, total);
    for (uint32_t i = 0; i + 1 < n; i++) {
        mass += weights[i];
        if (mass >= want) return i + 1;
    }
    return n;
}

/* Sets weights excluded by min_p to 0; returns the sum of the others. */
static uint64_t keep_heavy(uint64_t *weights, uint32_t n, float min_p) {
    uint64_t least = (uint64_t)ceil((double)min_p * (double)(UINT64_C(1) << SAMPLE_ONE_BITS));
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (weights[i] < least) weights[i] = 0;
        total += weights[i];
    }
    return total;
}

/* The first of n at which the running sum of weights exceeds the random target below total. */
static uint32_t walk_to_target(const uint64_t *weights, uint32_t n, uint64_t total,
                               const struct sampler_request *req) {
    const uint32_t seed[2] = {(uint32_t)req->seed, (uint32_t)(req->seed >> 32)};
    const uint32_t index[2] = {(uint32_t)req->index, (uint32_t)(req->index >> 32)};
    uint64_t target = sample_target(seed, index, total), sum = 0;
    uint32_t i = 0;
    while (i + 1 < n && (sum += weights[i]) <= target)
        i++;
    return i;
}

/* Samples from the first top_k of top's tokens. */
static int32_t sample_few(const struct sampler_request *req, const struct sampler_top *top) {
    const struct engine_params *p = req->params;
    uint64_t by_rank[BACKEND_MAX_TOP], weights[BACKEND_MAX_TOP];
    int32_t ids[BACKEND_MAX_TOP] = {0};
    uint32_t n = p->sampling.top_k, at;
    weigh(top->logits, n, top->logits[0], p->sampling.temperature, by_rank);
    if (p->sampling.top_p < 1.0f) n = count_nucleus(by_rank, n, p->sampling.top_p);
    for (uint32_t i = 0; i < n; i++) { /* sort by id */
        for (at = i; at > 0 && ids[at - 1] > top->ids[i]; at--) {
            ids[at] = ids[at - 1];
            weights[at] = weights[at - 1];
        }
        ids[at] = top->ids[i];
        weights[at] = by_rank[i];
    }
    return ids[walk_to_target(weights, n, keep_heavy(weights, n, p->sampling.min_p), req)];
}

static int sample_top(const struct sampler_request *req, const struct sampler_top *top,
                      int32_t *token) {
    if (!isfinite(top->logits[0])) return ERR_DEVICE;
    *token = req->params->sampling.temperature <= 0.0f ? top->ids[0] : sample_few(req, top);
    return 0;
}

/* ---- sampling from the row ---- */

static int32_t argmax(const float *l, float max) {
    int32_t i = 0;
    while (l[i] != max)
        i++;
    return i;
}

int sampler_sample(sampler *s, const struct sampler_request *req, int32_t *token) {
    const struct engine_params *p = req->params;
    if (!req->logits) return sample_top(req, &req->top, token);
    float max = adjust_logits(s, req);
    if (!isfinite(max)) return ERR_DEVICE;
    if (p->sampling.temperature <= 0.0f) {
        *token = argmax(s->logits, max);
        return 0;
    }
    if (keeps_few(p, s->n_vocab)) {
        int32_t ids[BACKEND_MAX_TOP];
        float logits[BACKEND_MAX_TOP];
        top_select(s->logits, s->n_vocab, p->sampling.top_k, ids, logits);
        return sample_top(req, &(struct sampler_top){ids, logits, p->sampling.top_k}, token);
    }
    weigh_kept(s, max, p);
    uint64_t total = keep_heavy(s->weights, s->n_vocab, p->sampling.min_p);
    *token = (int32_t)walk_to_target(s->weights, s->n_vocab, total, req);
    return 0;
}

static float logprob(float logit, double log_sum) {
    double x = (double)logit - log_sum;
    return x > (double)SAMPLER_MIN_LOGPROB ? (float)x : SAMPLER_MIN_LOGPROB; /* NaN too */
}

int sampler_logprobs(const sampler *s, const float *logits, int32_t token, int n_top,
                     struct engine_event *ev) {
    float max = -INFINITY;
    for (uint32_t i = 0; i < s->n_vocab; i++)
        if (logits[i] > max) max = logits[i];
    if (!isfinite(max)) return ERR_DEVICE;
    double sum = 0;
    int n = 0; /* ev->top_* stays sorted; most logits fail the first comparison */
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        if (isnan(logits[i])) continue;
        sum += exp((double)logits[i] - (double)max);
        if (n == n_top && (n == 0 || logits[i] <= ev->top_logprob[n - 1])) continue;
        int at = n < n_top ? n++ : n - 1;
        for (; at > 0 && ev->top_logprob[at - 1] < logits[i]; at--) {
            ev->top_logprob[at] = ev->top_logprob[at - 1];
            ev->top_token[at] = ev->top_token[at - 1];
        }
        ev->top_logprob[at] = logits[i];
        ev->top_token[at] = (int32_t)i;
    }
    /* The largest logit's own term makes the sum at least 1. */
    /* cppcheck-suppress invalidFunctionArg */
    double log_sum = (double)max + log(sum);
    for (int i = 0; i < n; i++)
        ev->top_logprob[i] = logprob(ev->top_logprob[i], log_sum);
    ev->n_top = n;
    ev->logprob = logprob(logits[token], log_sum);
    return 0;
}

void sampler_device_logprobs(float logit, float log_sum, const struct sampler_top *top, int n_top,
                             struct engine_event *ev) {
    ev->n_top = n_top < (int)top->n ? n_top : (int)top->n;
    for (int i = 0; i < ev->n_top; i++) {
        ev->top_token[i] = top->ids[i];
        ev->top_logprob[i] = logprob(top->logits[i], (double)log_sum);
    }
    ev->logprob = logprob(logit, (double)log_sum);
}
