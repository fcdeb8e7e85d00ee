/* test_sample.c - backend_sample against the same rules by sorting: exact tokens on random rows,
 * odd widths, ties, NaN; rows do not depend on their neighbours; frequencies follow the weights.
 * Sets of kernels that cannot sample are skipped. */
#include "core/base/sample_math.h"
#include "tests/support/be.h"
#include "tests/unit/check.h"

enum { MAX_COLS = 9000, MAX_ROWS = 7, MAX_HISTORY = 40 };

struct scene {
    uint32_t n_rows, n_cols, n_history;
    float x[MAX_ROWS * MAX_COLS];
    struct backend_sampling sampling[MAX_ROWS];
    struct backend_penalty_entry history[MAX_ROWS * MAX_HISTORY];
    struct backend_sampled out[MAX_ROWS];
};

struct token {
    uint32_t key, id;
    uint64_t weight;
    float logit;
};

/* ---- the reference ---- */

static int by_rank(const void *a, const void *b) {
    const struct token *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int by_id(const void *a, const void *b) {
    const struct token *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void penalise(const struct scene *s, const struct backend_sampling *d, float *x) {
    for (uint32_t i = 0; i < d->n_history; i++) {
        const struct backend_penalty_entry *h = &s->history[d->first_history + i];
        const struct sampling *p = &d->params;
        float *v = &x[h->token], repetition = p->repetition_penalty;
        if (repetition != 1.0f) *v = *v > 0 ? *v / repetition : *v * repetition;
        if (h->count) *v -= fmaf(p->frequency_penalty, (float)h->count, p->presence_penalty);
    }
}

static uint64_t total_of(const struct token *t, uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += t[i].weight;
    return sum;
}

static int32_t reference(const struct scene *s, uint32_t row) {
    static struct token t[MAX_COLS];
    static float x[MAX_COLS];
    const struct backend_sampling *d = &s->sampling[row];
    uint32_t n = s->n_cols;
    memcpy(x, s->x + (uint64_t)row * n, n * sizeof *x);
    penalise(s, d, x);
    for (uint32_t i = 0; i < n; i++)
        t[i] = (struct token){sample_key(x[i]), i, 0, x[i]};
    qsort(t, n, sizeof *t, by_rank);
    float max = t[0].logit;
    if (!isfinite(max) || d->params.temperature < 0) return -1;
    if (d->params.temperature <= 0) return (int32_t)t[0].id;
    for (uint32_t i = 0; i < n; i++)
        t[i].weight = isnan(t[i].logit) ? 0 : sample_weight(t[i].logit, max, d->params.temperature);
    if (d->params.top_k && d->params.top_k < n) n = d->params.top_k;
    if (d->params.top_p < 1.0f) {
        uint64_t want = sample_mass(d->params.top_p, total_of(t, n)), sum = 0;
        for (uint32_t i = 0; i < n; i++)
            if ((sum += t[i].weight) >= want) n = i + 1;
    }
    uint64_t least =
        (uint64_t)ceil((double)d->params.min_p * (double)(UINT64_C(1) << SAMPLE_ONE_BITS));
    for (uint32_t i = 0; i < n; i++)
        if (t[i].weight < least) t[i].weight = 0;
    uint64_t target = sample_target(d->seed, d->index, total_of(t, n)), sum = 0;
    qsort(t, n, sizeof *t, by_id);
    for (uint32_t i = 0; i < n; i++)
        if ((sum += t[i].weight) > target) return (int32_t)t[i].id;
    return -2;
}

static double log_sum(const float *x, uint32_t n) {
    double max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (x[i] > max) max = x[i];
    for (uint32_t i = 0; i < n; i++)
        if (!isnan(x[i])) sum += exp(x[i] - max);
    return max + log(sum);
}

/* ---- scenes ---- */

static void fill(struct scene *s) {
    static const uint32_t widths[] = {1, 2, 31, 33, 100, 1023, 1025, 4097, 8999};
    s->n_cols = widths[be_below(be_quick ? 7 : 9)];
    s->n_rows = 1 + be_below(MAX_ROWS);
    s->n_history = 0;
    for (uint32_t r = 0; r < s->n_rows; r++) {
        float *x = s->x + (uint64_t)r * s->n_cols;
        float spread = be_below(2) ? 20 : 0.5f;
        be_fill(x, s->n_cols, spread);
        for (uint32_t i = be_below(3); i > 0; i--) { /* ties */
            float v = x[be_below(s->n_cols)];
            for (uint32_t j = 0; j < 1 + s->n_cols / 8; j++)
                x[be_below(s->n_cols)] = v;
        }
        if (be_below(4) == 0) x[be_below(s->n_cols)] = NAN;
        if (be_below(4) == 0) x[be_below(s->n_cols)] = -INFINITY;
        struct backend_sampling *d = &s->sampling[r];
        *d = (struct backend_sampling){
            .params = {.temperature = be_below(5) ? 0.1f + 2 * (float)be_below(100) / 100 : 0,
                       .top_p = be_below(2) ? 1 : (float)(1 + be_below(100)) / 101,
                       .min_p = be_below(2) ? 0 : (float)be_below(100) / 100,
                       .repetition_penalty = 1,
                       .top_k = be_below(2) ? 0 : 1 + be_below(s->n_cols + 3)},
            .seed = {be_rand(), be_rand()},
            .index = {be_below(100), 0}};
        if (be_below(3)) continue;
        d->params.repetition_penalty = be_below(2) ? 1 : 1.3f;
        d->params.presence_penalty = be_real();
        d->params.frequency_penalty = be_real();
        d->first_history = s->n_history;
        for (uint32_t i = be_below(MAX_HISTORY); i > 0 && d->n_history < s->n_cols; i--) {
            int32_t id = (int32_t)be_below(s->n_cols);
            bool again = false;
            for (uint32_t j = 0; j < d->n_history; j++)
                again |= s->history[d->first_history + j].token == id;
            if (again) continue;
            s->history[s->n_history++] =
                (struct backend_penalty_entry){.token = id, .count = (int32_t)be_below(4)};
            d->n_history++;
        }
    }
}

static void run(backend *be, struct scene *s, uint32_t first, uint32_t n) {
    static float after[MAX_ROWS * MAX_COLS];
    err e = {0};
    backend_buf *x = be_f32(be, s->x + (uint64_t)first * s->n_cols, (uint64_t)n * s->n_cols);
    backend_buf *sampling = be_bytes(be, s->sampling + first, n * sizeof *s->sampling);
    backend_buf *history = be_bytes(be, s->history, (s->n_history + 1) * sizeof *s->history);
    backend_buf *out = be_bytes(be, NULL, n * sizeof *s->out);
    const struct op_sample a = {x, sampling, history, n, s->n_cols, s->n_history, out};
    CHECK(backend_sample(be, &a) == 0);
    CHECK(backend_sync(be, &e) == 0);
    CHECK(backend_download(be, out, 0, s->out + first, n * sizeof *s->out, &e) == 0);
    be_get(be, x, after, (uint64_t)n * s->n_cols);
    CHECK(memcmp(after, s->x + (uint64_t)first * s->n_cols, (uint64_t)n * s->n_cols * 4) == 0);
    backend_buf_free(x);
    backend_buf_free(sampling);
    backend_buf_free(history);
    backend_buf_free(out);
}

static struct scene scene;

static void check_scene(backend *be) {
    struct scene *s = &scene;
    fill(s);
    run(be, s, 0, s->n_rows);
    for (uint32_t r = 0; r < s->n_rows; r++) {
        const struct backend_sampled *o = &s->out[r];
        const float *x = s->x + (uint64_t)r * s->n_cols;
        int32_t want = reference(s, r);
        CHECK_MSG(o->token == want, "row %u of %u columns: token %d, not %d", r, s->n_cols,
                  (int)o->token, (int)want);
        if (want < 0) continue;
        CHECK(memcmp(&o->logit, &x[want], 4) == 0);
        CHECK(fabs((double)o->log_sum - log_sum(x, s->n_cols)) < 1e-4);
    }
    /* A row alone. */
    struct backend_sampled among = s->out[s->n_rows - 1];
    run(be, s, s->n_rows - 1, 1);
    CHECK(memcmp(&among, &s->out[s->n_rows - 1], sizeof among) == 0);
}

static backend *open_sampler(const char *isa) {
    backend *be = be_open(isa, 1);
    if (be && backend_can_sample(be)) return be;
    if (be) {
        const struct op_sample none = {0};
        CHECK(backend_sample(be, &none) == ERR_UNSUPPORTED);
    }
    backend_close(be);
    return NULL;
}

static void exact_tokens(void) {
    bool ran = false;
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = open_sampler(be_isas[i]);
        for (int n = be_quick ? 40 : 400; be && n > 0; n--)
            check_scene(be);
        ran |= be != NULL;
        backend_close(be);
    }
    if (!ran) SKIP("exact_tokens", "no device of this build samples tokens");
}

static void broken_rows(void) {
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = open_sampler(be_isas[i]);
        if (!be) continue;
        struct scene *s = &scene;
        *s = (struct scene){.n_rows = 3, .n_cols = 40};
        for (uint32_t j = 0; j < 40; j++) {
            s->x[j] = NAN;
            s->x[40 + j] = -INFINITY;
            s->x[80 + j] = j == 7 ? INFINITY : 0;
        }
        for (int r = 0; r < 3; r++)
            s->sampling[r] = (struct backend_sampling){.params = sampling_default()};
        run(be, s, 0, 3);
        CHECK(s->out[0].token == -1 && s->out[1].token == -1 && s->out[2].token == -1);
        backend_close(be);
    }
}

/* Chi-square of 2,000 samples over 8 tokens: 7 degrees of freedom, below 29.9 with probability 1 -
 * 1e-4. */
static void frequencies(void) {
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = open_sampler(be_isas[i]);
        if (!be) continue;
        struct scene *s = &scene;
        uint32_t counts[8] = {0};
        double p[8], total = 0, chi = 0;
        *s = (struct scene){.n_rows = 1, .n_cols = 8};
        for (int j = 0; j < 8; j++)
            total += p[j] = exp((s->x[j] = 0.4f * (float)j) / 0.8);
        for (uint32_t n = 0; n < 2000; n++) {
            s->sampling[0] = (struct backend_sampling){
                .params = sampling_default(), .seed = {5, 6}, .index = {n, 0}};
            s->sampling[0].params.temperature = 0.8f;
            run(be, s, 0, 1);
            CHECK(s->out[0].token >= 0 && s->out[0].token < 8);
            counts[s->out[0].token & 7]++;
        }
        for (int j = 0; j < 8; j++) {
            double want = 2000 * p[j] / total;
            chi += (counts[j] - want) * (counts[j] - want) / want;
        }
        CHECK(chi < 29.9);
        backend_close(be);
    }
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(exact_tokens);
    RUN(broken_rows);
    RUN(frequencies);
    return check_done();
}
