/* test_sample_op.c - draws on devices against the engine's sampler, which looks at the whole row:
 * the same token for the same parameters, seed and index. And the arithmetic they share. */
#include "core/base/sample.h"
#include "core/engine/sampler.h"
#include "tests/support/be.h"
#include "tests/unit/check.h"

/* Rows of a call share a vocabulary. */
enum { MOST_VOCAB = 3000, MOST_ROWS = 64 };

static float any_real(float from, float to) {
    return from + (to - from) * (float)be_rand() / 4294967296.0f;
}

/* Logits as of models, or with ties, few that are finite, or none; close together or far apart. */
static void fill_row(float *x, uint32_t n) {
    uint32_t kind = be_below(16);
    float spread = any_real(0.01f, 30);
    for (uint32_t i = 0; i < n; i++) {
        x[i] = be_real() * spread;
        if (kind == 0) x[i] = (float)be_below(4);
        if (kind == 1 && be_below(50)) x[i] = be_below(2) ? -INFINITY : NAN;
        if (kind == 2) x[i] = -INFINITY;
        if (kind == 3 && i == n / 2) x[i] = INFINITY;
        if (kind == 4) x[i] *= 1e30f;
    }
}

/* Such that a draw looks at n_vocab's first tokens alone. */
static struct engine_params any_params(uint32_t n_vocab) {
    struct engine_params p;
    engine_params_default(&p);
    p.temperature = be_below(5) ? any_real(0.02f, 2) : 0;
    if (be_below(12) == 0) p.temperature = 1e-38f;
    uint32_t most = n_vocab - 1 < BACKEND_MAX_TOP ? n_vocab - 1 : BACKEND_MAX_TOP;
    if (p.temperature != 0 || be_below(2)) p.top_k = 1 + be_below(most);
    if (be_below(2)) p.top_p = be_below(8) ? any_real(0.01f, 1) : 1e-30f;
    if (be_below(3) == 0) p.min_p = any_real(0, 1);
    return p;
}

struct draws {
    float logits[MOST_ROWS * MOST_VOCAB];
    struct engine_params params[MOST_ROWS];
    struct sample_params of_op[MOST_ROWS];
    int32_t tokens[MOST_ROWS];
};

/* Device: the first k of each row, and draws from them. */
static void run_op(backend *be, struct draws *d, uint32_t n_rows, uint32_t n_vocab, uint32_t k) {
    err e;
    struct op_top top = {.x = be_f32(be, d->logits, (uint64_t)n_rows * n_vocab),
                         .n_rows = n_rows,
                         .n_cols = n_vocab,
                         .k = k,
                         .ids = be_i32(be, NULL, (uint64_t)n_rows * k),
                         .values = be_f32(be, NULL, (uint64_t)n_rows * k)};
    struct op_sample op = {.ids = top.ids,
                           .values = top.values,
                           .params = be_bytes(be, d->of_op, n_rows * sizeof *d->of_op),
                           .n_rows = n_rows,
                           .k = k,
                           .tokens = be_i32(be, NULL, n_rows)};
    CHECK(backend_top(be, &top) == 0 && backend_sample(be, &op) == 0);
    CHECK(backend_sync(be, &e) == 0);
    CHECK(backend_download(be, op.tokens, 0, d->tokens, n_rows * sizeof *d->tokens, &e) == 0);
    const backend_buf *all[] = {top.x, top.ids, top.values, op.params, op.tokens};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        backend_buf_free((backend_buf *)all[i]);
}

static void check_draws(backend *be, struct draws *d, uint32_t n_rows, uint32_t n_vocab) {
    sampler *s = sampler_new(n_vocab);
    uint32_t k = n_vocab < BACKEND_MAX_TOP ? n_vocab : BACKEND_MAX_TOP, differ = 0;
    for (uint32_t r = 0; r < n_rows; r++) {
        d->params[r] = any_params(n_vocab);
        fill_row(d->logits + (uint64_t)r * n_vocab, n_vocab);
        d->of_op[r] = sampler_params(&d->params[r], (uint64_t)be_rand() << 32 | be_rand(),
                                     be_below(2) ? be_below(5000) : be_rand());
        CHECK(sampler_n_top(&d->params[r], n_vocab) > 0);
    }
    run_op(be, d, n_rows, n_vocab, k);
    for (uint32_t r = 0; r < n_rows; r++) {
        int32_t want = -1;
        const struct sampler_request req = {.params = &d->params[r],
                                            .seed = d->of_op[r].seed,
                                            .index = d->of_op[r].index,
                                            .logits = d->logits + (uint64_t)r * n_vocab};
        if (sampler_draw(s, &req, &want)) want = -1;
        differ += want != d->tokens[r];
    }
    CHECK_MSG(!differ, "%s: %u of %u draws differ, vocabulary %u", backend_name(be), differ, n_rows,
              n_vocab);
    sampler_free(s);
}

static backend *open_set(const char *isa) {
    struct backend_config config = {.n_threads = 2, .max_rows = MOST_ROWS, .max_cols = 8};
    return be_open_config(config, isa);
}

static void test_draws(void) {
    static const uint32_t vocabs[] = {2, 3, 31, 64, 65, 66, 200, 999, MOST_VOCAB};
    enum { N_VOCABS = sizeof vocabs / sizeof vocabs[0] };
    struct draws *d = be_new(1, sizeof *d);
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = i == 0 || be_is_device_set(be_isas[i]) ? open_set(be_isas[i]) : NULL;
        if (!be) continue;
        be_seed = 23;
        uint32_t n = 0;
        while (backend_can_sample(be) && n < (be_quick ? 2000 : 100000)) {
            uint32_t rows = 1 + be_below(MOST_ROWS);
            check_draws(be, d, rows, vocabs[be_below(N_VOCABS - (n % 4 > 0))]);
            n += rows;
        }
        printf("     %s: %u draws\n", be_isas[i], n);
        backend_close(be);
    }
    free(d);
}

/* Every binade of what a weight may be, and what is beyond: within two units of the last place. */
static void test_exp(void) {
    double worst = 0;
    be_seed = 29;
    for (int i = 0; i < 400000; i++) {
        double x = -ldexp(1 + be_rand() / 4294967296.0, (int)be_below(60) - 50);
        if (i % 4 == 0) x = -708.0 * (be_rand() / 4294967296.0);
        double want = exp(x), got = sample_exp(x);
        if (x < -708) {
            CHECK(got == 0);
            continue;
        }
        double error = fabs(got - want) / (want * 0x1p-52);
        if (error > worst) worst = error;
    }
    CHECK_MSG(worst <= 2, "off by %g units", worst);
    CHECK(sample_exp(0) == 1 && sample_exp(-0.0) == 1);
    CHECK(sample_exp(-INFINITY) == 0 && sample_exp((double)NAN) == 0);
    CHECK(sample_exp(-708) > 0);
}

static void test_refusals(void) {
    backend *be = open_set("");
    float zeros[256] = {0};
    backend_buf *x = be_f32(be, zeros, 256);
    struct op_sample op = {.ids = x, .values = x, .params = x, .n_rows = 2, .k = 64, .tokens = x};
    backend_buf *small = be_f32(be, zeros, 15); /* less than parameters of two rows */
    op.tokens = be_i32(be, NULL, 2);
    CHECK(backend_sample(be, &op) == 0);
    op.k = 0;
    CHECK(backend_sample(be, &op) == ERR_INVALID);
    op.k = BACKEND_MAX_TOP + 1;
    CHECK(backend_sample(be, &op) == ERR_INVALID);
    op.k = 64, op.params = small;
    CHECK(backend_sample(be, &op) == ERR_INVALID);
    op.params = x, op.n_rows = 3; /* more than there are tokens */
    CHECK(backend_sample(be, &op) == ERR_INVALID);
    backend_buf_free(small);
    backend_buf_free(op.tokens);
    backend_buf_free(x);
    backend_close(be);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(test_exp);
    RUN(test_draws);
    RUN(test_refusals);
    return check_done();
}
