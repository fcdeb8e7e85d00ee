/* test_sampler.c - the sampler against a naive float64 implementation (full sort), known answers of
 * the generator, distribution of samples. */
#include "core/base/sample_math.h"
#include "core/base/top.h"
#include "core/engine/sampler.h"

#include "check.h"
#include "tests/support/rng.h"

#include <math.h>
#include <stdlib.h>

static struct rng rng = {1};

/* ---- reference: sorts everything, sums in sorted order ---- */

static const float *sort_logits;
static int by_rank(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (sort_logits[x] != sort_logits[y]) return sort_logits[x] > sort_logits[y] ? -1 : 1;
    return x < y ? -1 : x > y;
}

struct history {
    const int32_t *prompt, *generated;
    uint32_t n_prompt, n_generated;
    const uint32_t *mask;
};

static bool may(const uint32_t *mask, uint32_t id) {
    return !mask || mask[id / 32] >> (id % 32) & 1;
}

static void ref_adjust(float *l, uint32_t n, const struct engine_params *p,
                       const struct history *h) {
    for (uint32_t i = 0; i < p->n_bias; i++)
        l[p->bias[i].token] += p->bias[i].bias;
    for (uint32_t id = 0; id < n; id++) {
        uint32_t in_prompt = 0, count = 0;
        for (uint32_t i = 0; i < h->n_prompt; i++)
            in_prompt += h->prompt[i] == (int32_t)id;
        for (uint32_t i = 0; i < h->n_generated; i++)
            count += h->generated[i] == (int32_t)id;
        if (in_prompt || count)
            l[id] = l[id] > 0 ? l[id] / p->sampling.repetition_penalty
                              : l[id] * p->sampling.repetition_penalty;
        if (count)
            l[id] -= p->sampling.presence_penalty + p->sampling.frequency_penalty * (float)count;
    }
}

/* Final probabilities (n) after mask, penalties and filters; greedy: one 1. */
static void ref_probs(const float *logits, uint32_t n, const struct engine_params *p,
                      const struct history *h, double *probs) {
    float *l = malloc(n * sizeof *l);
    int32_t *order = malloc(n * sizeof *order);
    memcpy(l, logits, n * sizeof *l);
    ref_adjust(l, n, p, h);
    for (uint32_t i = 0; i < n; i++) {
        order[i] = (int32_t)i;
        if (!may(h->mask, i)) l[i] = -INFINITY;
    }
    sort_logits = l;
    qsort(order, n, sizeof *order, by_rank);
    memset(probs, 0, n * sizeof *probs);
    if (p->sampling.temperature == 0) {
        probs[order[0]] = 1;
    } else {
        uint32_t keep = p->sampling.top_k && p->sampling.top_k < n ? p->sampling.top_k : n;
        double total = 0, sum = 0, left = 0;
        for (uint32_t i = 0; i < keep; i++) {
            double x =
                ((double)l[order[i]] - (double)l[order[0]]) / (double)p->sampling.temperature;
            total += probs[order[i]] = exp(x);
        }
        uint32_t nucleus = 0;
        while (nucleus < keep &&
               (sum < (double)p->sampling.top_p * total || p->sampling.top_p == 1.0f))
            sum += probs[order[nucleus++]];
        double best = probs[order[0]];
        for (uint32_t i = 0; i < keep; i++) {
            if (i >= nucleus || probs[order[i]] < (double)p->sampling.min_p * best)
                probs[order[i]] = 0;
            left += probs[order[i]];
        }
        for (uint32_t i = 0; i < n; i++)
            probs[i] /= left;
    }
    free(l);
    free(order);
}

static int32_t ref_draw(const double *probs, uint32_t n, uint64_t seed, uint64_t index) {
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), 0, 0}, r[4];
    uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    sample_philox(c, k, r);
    double u = (double)(((uint64_t)r[0] << 32 | r[1]) >> 11) / 9007199254740992.0, sum = 0;
    int32_t last = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (probs[i] == 0) continue;
        last = (int32_t)i;
        sum += probs[i];
        if (sum > u) break;
    }
    return last;
}

/* ---- tests ---- */

/* Known answers published with Random123 (philox4x32, 10 rounds). */
static void philox_known_answers(void) {
    static const struct {
        uint32_t c[4], k[2], want[4];
    } kat[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof kat / sizeof kat[0]; i++) {
        uint32_t out[4];
        sample_philox(kat[i].c, kat[i].k, out);
        CHECK(memcmp(out, kat[i].want, sizeof out) == 0);
    }
}

static void random_params(struct engine_params *p, struct engine_logit_bias *bias, uint32_t n) {
    engine_params_default(p);
    p->sampling.temperature = rng_next(&rng) % 5 ? rng_float(&rng, 0.05f, 2.0f) : 0;
    if (rng_next(&rng) % 2) p->sampling.top_p = rng_float(&rng, 0.01f, 1.0f);
    if (rng_next(&rng) % 2) p->sampling.top_k = 1 + rng_next(&rng) % (n + 3);
    if (rng_next(&rng) % 3 == 0) p->sampling.min_p = rng_float(&rng, 0, 0.5f);
    if (rng_next(&rng) % 2) p->sampling.presence_penalty = rng_float(&rng, -2, 2);
    if (rng_next(&rng) % 2) p->sampling.frequency_penalty = rng_float(&rng, -2, 2);
    if (rng_next(&rng) % 2) p->sampling.repetition_penalty = rng_float(&rng, 0.5f, 2);
    p->bias = bias;
    p->n_bias = rng_next(&rng) % 4;
    for (uint32_t i = 0; i < p->n_bias; i++)
        bias[i] =
            (struct engine_logit_bias){(int32_t)(rng_next(&rng) % n), rng_float(&rng, -10, 10)};
}

/* NULL, or a mask of anything from one token to almost all. */
static const uint32_t *random_mask(uint32_t *mask, uint32_t n) {
    uint32_t kind = rng_next(&rng) % 4, always = rng_next(&rng) % n;
    if (kind == 0) return NULL;
    for (uint32_t w = 0; w < (n + 31) / 32; w++)
        mask[w] = kind == 1   ? rng_next(&rng)
                  : kind == 2 ? rng_next(&rng) & rng_next(&rng) & rng_next(&rng) & rng_next(&rng) &
                                    rng_next(&rng)
                              : 0;
    mask[always / 32] |= 1u << (always % 32);
    return mask;
}

/* coarse: few distinct logits, so that ties decide. */
static void compare_with_reference(uint32_t n, int rounds, bool coarse) {
    enum { HISTORY = 24 };
    sampler *s = sampler_new(n);
    float *logits = malloc(n * sizeof *logits);
    double *probs = malloc(n * sizeof *probs);
    uint32_t *mask = malloc((n / 32 + 1) * sizeof *mask);
    int mismatches = 0;
    for (int r = 0; r < rounds; r++) {
        struct engine_params p;
        struct engine_logit_bias bias[4];
        struct penalty_history history;
        int32_t tokens[HISTORY];
        for (uint32_t i = 0; i < n; i++)
            logits[i] = coarse ? (float)(rng_next(&rng) % 5) : rng_float(&rng, -12, 12);
        random_params(&p, bias, n);
        struct history h = {tokens, tokens + HISTORY / 2, HISTORY / 2,
                            rng_next(&rng) % (HISTORY / 2 + 1), random_mask(mask, n)};
        CHECK(penalty_history_init(&history, n < HISTORY ? n : HISTORY) == 0);
        for (int i = 0; i < HISTORY; i++)
            tokens[i] = (int32_t)(rng_next(&rng) % n);
        for (uint32_t i = 0; i < h.n_prompt; i++)
            penalty_history_add(&history, h.prompt[i], false);
        for (uint32_t i = 0; i < h.n_generated; i++)
            penalty_history_add(&history, h.generated[i], true);
        struct sampler_request req = {.params = &p,
                                      .history = &history,
                                      .seed = (uint64_t)rng_next(&rng) << 32 | rng_next(&rng),
                                      .index = rng_next(&rng),
                                      .logits = logits,
                                      .mask = h.mask};
        int32_t got = -1;
        ref_probs(logits, n, &p, &h, probs);
        CHECK(sampler_sample(s, &req, &got) == 0);
        mismatches += got != ref_draw(probs, n, req.seed, req.index) || !may(h.mask, (uint32_t)got);
        penalty_history_fini(&history);
    }
    CHECK_MSG(mismatches == 0, "vocabulary %u: %d of %d samples differ", n, mismatches, rounds);
    free(logits);
    free(probs);
    free(mask);
    sampler_free(s);
}

static void draws_equal_reference(void) {
    compare_with_reference(1, 50, false);
    compare_with_reference(7, 2000, false);
    compare_with_reference(33, 2000, false);
    compare_with_reference(4096, 100, false);
    compare_with_reference(128256, 6, false);
}

static void ties_go_to_the_lowest_id(void) {
    compare_with_reference(7, 1000, true);
    compare_with_reference(33, 1000, true);
    compare_with_reference(4096, 30, true);
}

/* An arbitrary row: coarse ones have many ties, some have only NaN, or no finite value. */
static void any_row(float *logits, uint32_t n) {
    static const float odd[] = {NAN, -INFINITY, -0.0f, 0, 1e-40f, 3e38f};
    uint32_t kind = rng_next(&rng) % 4;
    for (uint32_t i = 0; i < n; i++) {
        logits[i] = kind == 1 ? (float)(rng_next(&rng) % 3) : rng_float(&rng, -12, 12);
        if (kind == 2 && rng_next(&rng) % 3 == 0) logits[i] = odd[rng_next(&rng) % 6];
    }
    for (uint32_t i = 0; kind == 3 && rng_next(&rng) % 4 == 0 && i < n; i++)
        logits[i] = i % 2 ? NAN : -INFINITY;
}

/* Sampling from a row's best tokens equals sampling from the row: the same token, the same refusal,
 * with all filters, for exactly as many tokens as needed and for all that a device returns. */
static void draws_from_few_tokens_are_those_from_the_row(void) {
    static const uint32_t sizes[] = {1, 2, 7, 63, 64, 65, 66, 1000, 4096};
    for (size_t z = 0; z < sizeof sizes / sizeof sizes[0]; z++) {
        uint32_t n = sizes[z], n_few = 0;
        sampler *s = sampler_new(n);
        float *logits = malloc(n * sizeof *logits), values[BACKEND_MAX_TOP];
        int32_t ids[BACKEND_MAX_TOP];
        for (int r = 0; r < 4000; r++) {
            struct engine_params p;
            engine_params_default(&p);
            p.sampling.temperature = rng_next(&rng) % 4 ? rng_float(&rng, 0.05f, 2.0f) : 0;
            if (rng_next(&rng) % 2)
                p.sampling.top_p = rng_next(&rng) % 8 ? rng_float(&rng, 0.01f, 1.0f) : 1e-6f;
            if (rng_next(&rng) % 8) p.sampling.top_k = 1 + rng_next(&rng) % (BACKEND_MAX_TOP + 3);
            if (rng_next(&rng) % 3 == 0) p.sampling.min_p = rng_float(&rng, 0, 1);
            uint32_t k = sampler_n_top(&p, n);
            CHECK(k <= n && k <= BACKEND_MAX_TOP);
            CHECK(k == 0 || p.sampling.temperature == 0 || p.sampling.top_k <= k);
            if (!k) continue;
            n_few++;
            if (rng_next(&rng) % 2 && k < n) k = n < BACKEND_MAX_TOP ? n : BACKEND_MAX_TOP;
            any_row(logits, n);
            top_select(logits, n, k, ids, values);
            struct sampler_request row = {.params = &p,
                                          .seed = rng_next(&rng),
                                          .index = rng_next(&rng) % 99,
                                          .logits = logits};
            struct sampler_request few = row;
            few.logits = NULL, few.top = (struct sampler_top){ids, values, k};
            int32_t want = -1, got = -1;
            int rc = sampler_sample(s, &row, &want);
            CHECK(sampler_sample(s, &few, &got) == rc);
            CHECK_MSG(got == want, "vocabulary %u, temperature %g, top_k %u: %d, not %d", n,
                      (double)p.sampling.temperature, p.sampling.top_k, (int)got, (int)want);
        }
        CHECK(n_few > 500);
        free(logits);
        sampler_free(s);
    }
}

/* Parameters that need more than the best tokens are detected. */
static void draws_that_need_the_row(void) {
    struct engine_params p;
    struct engine_logit_bias bias = {1, 1};
    engine_params_default(&p);
    CHECK(sampler_n_top(&p, 1000) == 0); /* any token is possible */
    p.sampling.top_k = BACKEND_MAX_TOP + 1;
    CHECK(sampler_n_top(&p, 1000) == 0);
    p.sampling.top_k = 40;
    CHECK(sampler_n_top(&p, 1000) == BACKEND_MAX_TOP);
    CHECK(sampler_n_top(&p, 50) == 50);
    CHECK(sampler_n_top(&p, 40) == 0); /* top_k is off */
    const struct engine_params few = p;
    p.n_bias = 1, p.bias = &bias;
    CHECK(sampler_n_top(&p, 1000) == 0);
    p = few, p.sampling.presence_penalty = 1;
    CHECK(sampler_n_top(&p, 1000) == 0);
    p = few, p.sampling.frequency_penalty = -1;
    CHECK(sampler_n_top(&p, 1000) == 0);
    p = few, p.sampling.repetition_penalty = 1.1f;
    CHECK(sampler_n_top(&p, 1000) == 0);
    p = few, p.n_logprobs = 0;
    CHECK(sampler_n_top(&p, 1000) == 0);
    p = few, p.sampling.temperature = 0, p.sampling.top_k = 0;
    CHECK(sampler_n_top(&p, 1000) == 1);
}

/* Pearson's statistic of 40,000 samples stays under the 0.9999 quantile of its distribution. */
static void draws_have_the_distribution(void) {
    enum { N = 16, DRAWS = 40000 };
    static const struct {
        float temperature, top_p;
    } cases[] = {{1, 1}, {0.7f, 1}, {1.6f, 0.9f}, {1, 0.6f}};
    sampler *s = sampler_new(N);
    float logits[N];
    for (int i = 0; i < N; i++)
        logits[i] = rng_float(&rng, -2, 2);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct engine_params p;
        struct history none = {0};
        double probs[N], chi2 = 0;
        int counts[N] = {0}, dof = -1;
        engine_params_default(&p);
        p.sampling.temperature = cases[c].temperature;
        p.sampling.top_p = cases[c].top_p;
        ref_probs(logits, N, &p, &none, probs);
        for (uint64_t i = 0; i < DRAWS; i++) {
            struct sampler_request req = {
                .params = &p, .seed = 42 + c, .index = i, .logits = logits};
            int32_t token = 0;
            sampler_sample(s, &req, &token);
            counts[token]++;
        }
        for (int i = 0; i < N; i++) {
            if (probs[i] == 0) {
                CHECK(counts[i] == 0);
                continue;
            }
            double want = probs[i] * DRAWS, d = counts[i] - want;
            chi2 += d * d / want;
            dof++;
        }
        /* 0.9999 quantiles of chi-square with 1..15 degrees of freedom */
        static const double limit[] = {0,     15.14, 18.42, 21.11, 23.51, 25.74, 27.86, 29.88,
                                       31.83, 33.72, 35.56, 37.37, 39.13, 40.87, 42.58, 44.26};
        CHECK_MSG(dof >= 1 && chi2 < limit[dof], "case %zu: chi2 %.2f, %d degrees", c, chi2, dof);
    }
    sampler_free(s);
}

static void logprobs_equal_reference(void) {
    static const uint32_t sizes[] = {1, 7, 33, 4096, 128256};
    for (size_t z = 0; z < sizeof sizes / sizeof sizes[0]; z++) {
        uint32_t n = sizes[z];
        sampler *s = sampler_new(n);
        float *logits = malloc(n * sizeof *logits);
        int32_t *order = malloc(n * sizeof *order);
        for (int coarse = 0; coarse < 2; coarse++) {
            double sum = 0;
            for (uint32_t i = 0; i < n; i++) {
                logits[i] = coarse ? (float)(rng_next(&rng) % 3) : rng_float(&rng, -20, 20);
                order[i] = (int32_t)i;
            }
            for (uint32_t i = 0; i < n; i++)
                sum += exp((double)logits[i]);
            sort_logits = logits;
            qsort(order, n, sizeof *order, by_rank);
            for (int n_top = 0; n_top <= 20; n_top += 5) {
                struct engine_event ev = {0};
                int32_t token = (int32_t)(rng_next(&rng) % n);
                CHECK(sampler_logprobs(s, logits, token, n_top, &ev) == 0);
                CHECK(ev.n_top == (n < (uint32_t)n_top ? (int)n : n_top));
                CHECK(fabs((double)ev.logprob - ((double)logits[token] - log(sum))) < 1e-5);
                for (int i = 0; i < ev.n_top; i++) {
                    double want = (double)logits[order[i]] - log(sum);
                    CHECK(ev.top_token[i] == order[i]);
                    CHECK(fabs((double)ev.top_logprob[i] - want) < 1e-5);
                }
            }
        }
        free(logits);
        free(order);
        sampler_free(s);
    }
}

static void broken_logits(void) {
    enum { N = 5 };
    sampler *s = sampler_new(N);
    struct engine_params p;
    struct engine_event ev = {0};
    float some[N] = {NAN, 1, -INFINITY, 2, NAN}, none[N] = {NAN, -INFINITY, NAN, NAN, NAN};
    float inf[N] = {0, INFINITY, 0, 0, 0};
    engine_params_default(&p);
    for (uint64_t i = 0; i < 200; i++) {
        struct sampler_request req = {.params = &p, .seed = 9, .index = i, .logits = some};
        int32_t token = -1;
        p.sampling.temperature = i % 2 ? 0 : 1;
        p.sampling.top_p = i % 4 < 2 ? 1 : 0.99f;
        CHECK(sampler_sample(s, &req, &token) == 0);
        CHECK(p.sampling.temperature > 0 ? token == 1 || token == 3 : token == 3);
    }
    const struct engine_logit_bias up = {3, 100};
    const uint32_t only_1 = 1u << 1, only_0 = 1;
    struct sampler_request masked = {.params = &p, .seed = 9, .logits = some, .mask = &only_1};
    int32_t sampled = -1;
    p.bias = &up, p.n_bias = 1;
    CHECK(sampler_sample(s, &masked, &sampled) == 0 && sampled == 1);
    p.n_bias = 0;
    masked.mask = &only_0;
    CHECK(sampler_sample(s, &masked, &sampled) == ERR_DEVICE); /* allowed tokens have NaN logits */
    CHECK(sampler_logprobs(s, some, 0, 5, &ev) == 0);
    CHECK(ev.logprob == SAMPLER_MIN_LOGPROB && ev.n_top == 3 && ev.top_token[0] == 3);
    for (int i = 0; i < 2; i++) {
        struct sampler_request req = {.params = &p, .seed = 9, .logits = i ? none : inf};
        int32_t token = -1;
        CHECK(sampler_sample(s, &req, &token) == ERR_DEVICE);
        CHECK(sampler_logprobs(s, req.logits, 0, 1, &ev) == ERR_DEVICE);
    }
    sampler_free(s);
}

int main(void) {
    RUN(philox_known_answers);
    RUN(draws_equal_reference);
    RUN(ties_go_to_the_lowest_id);
    RUN(draws_from_few_tokens_are_those_from_the_row);
    RUN(draws_that_need_the_row);
    RUN(draws_have_the_distribution);
    RUN(logprobs_equal_reference);
    RUN(broken_logits);
    return check_done();
}
