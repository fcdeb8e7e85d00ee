/* forward_check.h - a model file through the forward pass: its logits against a reference, and the
 * same bytes in any chunks and batches. Single thread. */
#ifndef INFERD_TESTS_FORWARD_CHECK_H
#define INFERD_TESTS_FORWARD_CHECK_H

#include "tests/support/be.h"
#include "tests/support/forward64.h"
#include "tests/support/runner.h"
#include "tests/unit/check.h"

static inline void random_tokens(int32_t *tokens, uint32_t n, uint32_t n_vocab) {
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)be_below(n_vocab);
}

static inline double worst_difference(const float *got, const double *want, uint64_t n) {
    double worst = 0;
    for (uint64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (!(d <= worst)) worst = d;
    }
    return worst;
}

static inline uint64_t count_kernels(const backend *be, const char *prefix) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < backend_n_kernels(be); i++)
        if (strncmp(backend_kernel_name(be, i), prefix, strlen(prefix)) == 0)
            n += backend_dispatch_count(be, i);
    return n;
}

/* A file that runs with the instruction set isa. */
struct forward_case {
    const char *path, *isa;
    int kv_type;
    double tolerance; /* of a logit */
    uint32_t n_ranks; /* 0 is 1 */
};

/* The larger of least and what the device's rounding allows of n values want. */
static inline double forward_tolerance(const struct runner *r, const float *want, uint32_t n,
                                       double least) {
    double squares = 0;
    for (uint32_t i = 0; i < n; i++)
        squares += (double)want[i] * (double)want[i];
    return fmax(least, be_logit_error(r->be, r->hp.quant, r->kv[0].kv_type, r->hp.n_layers) *
                           sqrt(squares / n));
}

/* Prompts of every length in one step; then the longest in chunks and in batches: the same
 * bytes. */
static inline void forward_check(const struct forward_case *c, const int32_t *tokens,
                                 const double *want) {
    static const uint32_t lengths[] = {1, 7, 33, 130};
    struct runner r;
    runner_open(&r, &(struct runner_config){.path = c->path,
                                            .isa = c->isa,
                                            .n_threads = be_quick && c->n_ranks > 1 ? 1 : 3,
                                            .kv_type = c->kv_type,
                                            .max_rows = 150,
                                            .n_ranks = c->n_ranks,
                                            .max_tokens = FORWARD64_MAX_TOKENS});
    uint64_t width = r.hp.n_vocab, n_longest = 130 * width, steps = 4;
    double squares = 0;
    for (uint64_t i = 0; i < n_longest; i++)
        squares += want[i] * want[i];
    double device = be_logit_error(r.be, r.hp.quant, c->kv_type, r.hp.n_layers) *
                    sqrt(squares / (double)n_longest);
    double tolerance = fmax(c->tolerance, device);
    float *whole = be_new(n_longest, sizeof *whole);
    for (int i = 0; i < 4; i++) {
        struct piece p = {.tokens = tokens, .n = lengths[i]};
        const float *got = runner_step(&r, &p, 1, true);
        double worst = worst_difference(got, want, lengths[i] * width);
        check_note_error(worst / tolerance);
        CHECK_MSG(worst <= tolerance, "%s %s, %u ranks, %u tokens: off by %g", c->isa, c->path,
                  backend_n_ranks(r.be), lengths[i], worst);
        if (i == 3) memcpy(whole, got, n_longest * sizeof *whole);
    }
    for (uint32_t at = 0; at < 130; steps++) {
        uint32_t n = 1 + be_below(40), before = 1 + be_below(9);
        if (n > 130 - at) n = 130 - at;
        struct piece p[] = {{.tokens = tokens + 3, .n = before, .sequence = 2},
                            {.tokens = tokens, .start = at, .n = n, .sequence = 1},
                            {.tokens = tokens + 9, .n = 1, .sequence = 0}};
        const float *got = runner_step(&r, p, 3, true);
        CHECK(memcmp(got + before * width, whole + at * width, n * width * sizeof *got) == 0);
        at += n;
    }
    struct piece first = {.tokens = tokens, .n = 129, .sequence = 4};
    struct piece last = {.tokens = tokens, .start = 129, .n = 1, .sequence = 4};
    runner_step(&r, &first, 1, false);
    const float *got = runner_step(&r, &last, 1, false); /* a decode step: the same again */
    CHECK(memcmp(got, whole + 129 * width, width * sizeof *got) == 0);
    struct piece prompt = {.tokens = tokens, .n = 130, .sequence = 3};
    got = runner_step(&r, &prompt, 1, false); /* one logit row of many rows */
    CHECK(memcmp(got, whole + 129 * width, width * sizeof *got) == 0);
    uint64_t n_layers = 0;
    for (uint32_t i = 0; i < r.hp.n_layers; i++)
        n_layers += model_layer_attends(r.hp.layers[i]);
    uint64_t n_attended = (steps + 3) * n_layers;
    if (be_is_cpu(r.be)) CHECK(count_kernels(r.be, "paged_attention_") == n_attended);
    if (!be_is_cpu(r.be)) CHECK(count_kernels(r.be, "attention") >= n_attended);
    runner_close(&r);
    free(whole);
}

#endif
