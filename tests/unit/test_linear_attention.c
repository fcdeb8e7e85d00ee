/* test_linear_attention.c - linear attention on every backend against the recurrence in float64,
 * and independence of results and states from batching: alone, with other rows, in any steps. */
#include "tests/support/be.h"
#include "tests/unit/check.h"

enum { MAX_SEQS = 6, MAX_LEN = 200, MAX_ROWS = 256 };
static const double ATOL = 1e-3, RTOL = 1e-2;

/* A test's shape, decays and sequences. */
struct trial {
    uint32_t dim, n_heads, n_seqs;
    float scale;
    const float *decay; /* (n_heads) or NULL */
    struct seq {
        uint32_t len, slot;
        float *q, *k, *v; /* (len, n_heads, dim) */
    } seqs[MAX_SEQS];
};

/* The results: outputs of each sequence, the state pool. */
struct result {
    float *out[MAX_SEQS], *state;
};

static uint64_t row_floats(const struct trial *t) {
    return (uint64_t)t->n_heads * t->dim;
}

static uint64_t slot_floats(const struct trial *t) {
    return t->n_heads * backend_linear_state_bytes(t->dim) / sizeof(float);
}

static float *new_rows(const struct trial *t, uint32_t len, float scale) {
    float *x = be_new(len * row_floats(t), sizeof *x);
    be_fill(x, len * row_floats(t), scale);
    return x;
}

static void add_seq(struct trial *t, uint32_t len) {
    struct seq *s = &t->seqs[t->n_seqs];
    s->len = len;
    s->slot = MAX_SEQS - 1 - t->n_seqs++;
    s->q = new_rows(t, len, 2);
    s->k = new_rows(t, len, 1);
    s->v = new_rows(t, len, 1);
}

static void free_trial(struct trial *t) {
    for (uint32_t i = 0; i < t->n_seqs; i++)
        free(t->seqs[i].q), free(t->seqs[i].k), free(t->seqs[i].v);
}

/* ---- the reference ---- */

/* Head h of sequence s: S = decay S + k^T v; out = scale q S. Returns the largest |error|, and in
 * *share as a share of the tolerance. */
static double worst_error(const struct trial *t, const struct seq *s, uint32_t h, const float *got,
                          double *share) {
    const uint32_t d = t->dim;
    double *state = be_new((uint64_t)d * d, sizeof *state), worst = 0;
    for (uint32_t p = 0; p < s->len; p++) {
        const uint64_t at = p * row_floats(t) + (uint64_t)h * d;
        for (uint32_t i = 0; i < d; i++)
            for (uint32_t j = 0; j < d; j++)
                state[i * d + j] = state[i * d + j] * (t->decay ? t->decay[h] : 1) +
                                   (double)s->k[at + i] * s->v[at + j];
        for (uint32_t j = 0; j < d; j++) {
            double want = 0;
            for (uint32_t i = 0; i < d; i++)
                want += s->q[at + i] * state[i * d + j];
            want *= t->scale;
            double error = fabs(got[at + j] - want);
            if (!(error <= worst)) worst = error; /* NaN too */
            error /= ATOL + RTOL * fabs(want);
            if (!(error <= *share)) *share = error;
        }
    }
    free(state);
    return worst;
}

/* ---- running ---- */

struct device {
    backend *be;
    backend_weight *decay;
    backend_buf *state;
};

static struct device open_device(const struct trial *t, const char *set, uint32_t most_heads) {
    struct device d = {0};
    d.be = be_open_config(
        (struct backend_config){.n_threads = 2,
                                .max_rows = MAX_ROWS,
                                .max_cols = 64,
                                .linear_attention = {.n_heads = most_heads, .head_dim = t->dim}},
        set);
    if (!d.be) return d;
    if (t->decay) d.decay = be_weight(d.be, QTYPE_F32, 1, t->n_heads, t->decay);
    uint64_t n = MAX_SEQS * slot_floats(t);
    float *junk = be_new(n, sizeof *junk);
    for (uint64_t i = 0; i < n; i++)
        junk[i] = NAN; /* the slots are not cleared */
    d.state = be_f32(d.be, junk, n);
    free(junk);
    return d;
}

static void close_device(struct device *d) {
    backend_buf_free(d->state);
    backend_weight_free(d->decay);
    backend_close(d->be);
}

/* Rows of one step: take[i] of sequence i from position done[i] on. */
struct step {
    uint32_t n_rows, n_seqs;
    int32_t pos[MAX_ROWS], row_start[MAX_SEQS + 1], slots[MAX_SEQS];
    float *q, *k, *v, *out; /* (n_rows, n_heads, dim) */
};

static void copy_rows(const struct trial *t, float *to, const float *from, uint32_t n) {
    memcpy(to, from, n * row_floats(t) * sizeof *to);
}

static void run_step(const struct trial *t, const struct device *d, struct step *s) {
    const uint64_t n = s->n_rows * row_floats(t);
    backend *be = d->be;
    backend_buf *q = be_f32(be, s->q, n), *k = be_f32(be, s->k, n), *v = be_f32(be, s->v, n);
    backend_buf *out = be_f32(be, NULL, n), *pos = be_i32(be, s->pos, s->n_rows);
    backend_buf *start = be_i32(be, s->row_start, s->n_seqs + 1);
    backend_buf *slots = be_i32(be, s->slots, s->n_seqs);
    const struct op_linear_attention op = {.q = q,
                                           .k = k,
                                           .v = v,
                                           .pos = pos,
                                           .row_start = start,
                                           .slots = slots,
                                           .decay = d->decay,
                                           .n_rows = s->n_rows,
                                           .n_seqs = s->n_seqs,
                                           .n_heads = t->n_heads,
                                           .head_dim = t->dim,
                                           .n_slots = MAX_SEQS,
                                           .scale = t->scale,
                                           .state = d->state,
                                           .out = out};
    err e = {0};
    CHECK(backend_linear_attention(be, &op) == 0);
    CHECK_MSG(backend_sync(be, &e) == 0, "%s", e.msg);
    be_get(be, out, s->out, n);
    backend_buf *all[] = {q, k, v, out, pos, start, slots};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        backend_buf_free(all[i]);
}

/* Runs a step of take[i] rows of each sequence, 0: not in the step; first: the first sequence. */
static void run_rows(const struct trial *t, const struct device *d, struct result *r,
                     const uint32_t *take, uint32_t *done, uint32_t first) {
    struct step s = {0};
    const uint64_t n = MAX_ROWS * row_floats(t);
    uint32_t order[MAX_SEQS];
    s.q = be_new(n, sizeof(float)), s.k = be_new(n, sizeof(float));
    s.v = be_new(n, sizeof(float)), s.out = be_new(n, sizeof(float));
    for (uint32_t j = 0; j < t->n_seqs; j++) {
        const uint32_t i = (first + j) % t->n_seqs;
        const struct seq *seq = &t->seqs[i];
        const uint64_t to = s.n_rows * row_floats(t), from = done[i] * row_floats(t);
        if (!take[i]) continue;
        copy_rows(t, s.q + to, seq->q + from, take[i]);
        copy_rows(t, s.k + to, seq->k + from, take[i]);
        copy_rows(t, s.v + to, seq->v + from, take[i]);
        for (uint32_t p = 0; p < take[i]; p++)
            s.pos[s.n_rows++] = (int32_t)(done[i] + p);
        s.slots[s.n_seqs] = (int32_t)seq->slot;
        order[s.n_seqs++] = i;
        s.row_start[s.n_seqs] = (int32_t)s.n_rows;
    }
    run_step(t, d, &s);
    for (uint32_t j = 0; j < s.n_seqs; j++) {
        const uint32_t i = order[j];
        copy_rows(t, r->out[i] + done[i] * row_floats(t),
                  s.out + (uint64_t)s.row_start[j] * row_floats(t), take[i]);
        done[i] += take[i];
    }
    free(s.q), free(s.k), free(s.v), free(s.out);
}

/* How rows are split into steps. ACROSS: one row less than a chunk of each, mostly across two
 * chunks. */
enum way { ALONE, TOGETHER, ONE_BY_ONE, ACROSS, RANDOMLY };

static bool choose(const struct trial *t, enum way way, const uint32_t *done, uint32_t *take) {
    uint32_t room = MAX_ROWS, n = 0;
    for (uint32_t i = 0; i < t->n_seqs; i++) {
        uint32_t left = t->seqs[i].len - done[i], most = left < room ? left : room;
        take[i] = most;
        if (way == ALONE && n) take[i] = 0;
        if (way == ONE_BY_ONE && most) take[i] = 1;
        if (way == ACROSS && most >= backend_linear_chunk(t->dim))
            take[i] = backend_linear_chunk(t->dim) - 1;
        if (way == RANDOMLY && most) take[i] = be_below(3) ? be_below(most + 1) : be_below(2);
        room -= take[i];
        n += take[i];
        if (way == RANDOMLY && !n && i + 1 == t->n_seqs && most) take[i] = 1, n = 1;
    }
    return n > 0;
}

static bool all_done(const struct trial *t, const uint32_t *done) {
    for (uint32_t i = 0; i < t->n_seqs; i++)
        if (done[i] < t->seqs[i].len) return false;
    return true;
}

/* false: this build or machine lacks the set. */
static bool run(const struct trial *t, const char *set, uint32_t most_heads, enum way way,
                struct result *r) {
    struct device d = open_device(t, set, most_heads);
    uint32_t done[MAX_SEQS] = {0}, take[MAX_SEQS];
    if (!d.be) return false;
    for (uint32_t i = 0; i < t->n_seqs; i++)
        r->out[i] = be_new(t->seqs[i].len * row_floats(t), sizeof(float));
    r->state = be_new(MAX_SEQS * slot_floats(t), sizeof(float));
    while (!all_done(t, done))
        if (choose(t, way, done, take))
            run_rows(t, &d, r, take, done, way == RANDOMLY ? be_below(t->n_seqs) : 0);
    be_get(d.be, d.state, r->state, MAX_SEQS * slot_floats(t));
    close_device(&d);
    return true;
}

static void free_result(const struct trial *t, struct result *r) {
    for (uint32_t i = 0; i < t->n_seqs; i++)
        free(r->out[i]);
    free(r->state);
}

/* ---- checks ---- */

/* Bits of outputs and of the used slots. */
static void check_same(const struct trial *t, const struct result *a, const struct result *b) {
    const uint64_t chunk = backend_linear_chunk(t->dim), n_state = (uint64_t)t->dim * t->dim;
    const uint64_t n_head = slot_floats(t) / t->n_heads;
    for (uint32_t i = 0; i < t->n_seqs; i++) {
        const struct seq *s = &t->seqs[i];
        CHECK_MSG(!memcmp(a->out[i], b->out[i], s->len * row_floats(t) * sizeof(float)),
                  "outputs of %u rows of %u x %u", s->len, t->n_heads, t->dim);
        for (uint32_t h = 0; h < t->n_heads; h++) {
            const uint64_t at = s->slot * slot_floats(t) + h * n_head;
            const uint64_t kept = s->len % chunk * t->dim * sizeof(float), v = chunk * t->dim;
            const float *x = a->state + at, *y = b->state + at;
            CHECK(s->len < chunk || !memcmp(x, y, n_state * sizeof(float)));
            CHECK(!memcmp(x + n_state, y + n_state, kept));
            CHECK(!memcmp(x + n_state + v, y + n_state + v, kept));
            CHECK(!memcmp(x + n_state,
                          s->k + (s->len - s->len % chunk) * row_floats(t) + h * t->dim,
                          kept ? t->dim * sizeof(float) : 0));
        }
    }
}

/* most_heads: the backend's limit at open; with many heads Metal takes passes of few chunks. */
static void check_trial(struct trial *t, uint32_t most_heads, const char *set) {
    struct result alone, other;
    double worst = 0, share = 0;
    if (!run(t, set, most_heads, ALONE, &alone)) return;
    for (uint32_t i = 0; i < t->n_seqs; i++)
        for (uint32_t h = 0; h < t->n_heads; h++) {
            double error = worst_error(t, &t->seqs[i], h, alone.out[i], &share);
            if (!(error <= worst)) worst = error;
        }
    CHECK_MSG(share <= 1, "%s: error %g", set, worst);
    printf("     %-8s head_dim %3u, %u heads, decay %-4s |error| %.2g, %.2g of what is allowed\n",
           set, t->dim, t->n_heads, t->decay ? "yes," : "no,", worst, share);
    for (enum way way = TOGETHER; way <= RANDOMLY; way++) {
        run(t, set, most_heads, way, &other);
        check_same(t, &alone, &other);
        free_result(t, &other);
    }
    free_result(t, &alone);
}

static const float decays[] = {1, 0.97f, 0.5f, 0.999f, 0.0625f};

static struct trial new_trial(uint32_t dim, uint32_t n_heads, bool decay) {
    return (struct trial){.dim = dim,
                          .n_heads = n_heads,
                          .scale = 1 / sqrtf((float)dim),
                          .decay = decay ? decays : NULL};
}

static const char *const sets[] = {"generic", "metal", "cuda"};

static void check_lengths(const uint32_t *lens, uint32_t n, struct trial shape, uint32_t most) {
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        struct trial t = shape;
        be_rng.state = 5;
        for (uint32_t s = 0; s < n; s++)
            add_seq(&t, lens[s]);
        check_trial(&t, most, sets[i]);
        free_trial(&t);
    }
}

static void test_dim_64(void) {
    static const uint32_t lens[] = {1, 31, 32, 33, 97, 63};
    check_lengths(lens, 6, new_trial(64, 3, true), 3);
    check_lengths((uint32_t[]){200, 7}, 2, new_trial(64, 1, false), 4);
}

static void test_dim_128(void) {
    static const uint32_t lens[] = {15, 16, 17, 1, 49, 64};
    check_lengths(lens, 6, new_trial(128, 1, true), 1);
    check_lengths((uint32_t[]){5, 111}, 2, new_trial(128, 3, false), 3);
}

/* All decays; and backends opened for so many heads that Metal has room for two chunks at a
 * time. */
static void test_passes(void) {
    check_lengths((uint32_t[]){65, 3, 40}, 3, new_trial(128, 5, true), 512);
    check_lengths((uint32_t[]){131}, 1, new_trial(64, 1, true), 4096);
}

static void test_refused(void) {
    struct trial t = new_trial(64, 2, false);
    backend *be;
    err e;
    CHECK(backend_open(&(struct backend_config){.name = "cpu",
                                                .max_rows = 1,
                                                .max_cols = 1,
                                                .linear_attention = {.n_heads = 1, .head_dim = 80}},
                       &be, &e) == ERR_UNSUPPORTED);
    struct device d = open_device(&t, "generic", 2);
    if (!d.be) return; /* not asked for */
    float x[3 * 128] = {0};
    backend_buf *rows = be_f32(d.be, x, 3 * 128), *out = be_f32(d.be, NULL, 3 * 128);
    backend_buf *pos = be_i32(d.be, (int32_t[]){4, 5, 7}, 3);
    backend_buf *one = be_i32(d.be, (int32_t[]){0, 3}, 2),
                *two = be_i32(d.be, (int32_t[]){0, 2, 3}, 3);
    backend_buf *slots = be_i32(d.be, (int32_t[]){1, 0}, 2);
    backend_buf *bad = be_i32(d.be, (int32_t[]){1, MAX_SEQS}, 2);
    struct op_linear_attention op = {.q = rows,
                                     .k = rows,
                                     .v = rows,
                                     .pos = pos,
                                     .row_start = two,
                                     .slots = slots,
                                     .n_rows = 3,
                                     .n_seqs = 2,
                                     .n_heads = 2,
                                     .head_dim = 64,
                                     .n_slots = MAX_SEQS,
                                     .scale = 1,
                                     .state = d.state,
                                     .out = out};
    CHECK(backend_linear_attention(d.be, &op) == 0);
    op.slots = bad;
    CHECK(backend_linear_attention(d.be, &op) == ERR_INVALID);
    op.slots = slots, op.n_seqs = 1, op.row_start = one; /* 4, 5, 7 are not consecutive */
    CHECK(backend_linear_attention(d.be, &op) == ERR_INVALID);
    op.n_seqs = 2, op.row_start = two, op.n_heads = 3; /* more than the limit at open */
    CHECK(backend_linear_attention(d.be, &op) == ERR_INVALID);
    op.n_heads = 1, op.head_dim = 128;
    CHECK(backend_linear_attention(d.be, &op) == ERR_INVALID);
    backend_buf *all[] = {rows, out, pos, one, two, slots, bad};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        backend_buf_free(all[i]);
    close_device(&d);
}

/* There only the device reads slots: it skips rows of a sequence whose slot is invalid. */
static void check_slot(const char *set) {
    struct trial t = new_trial(64, 1, false);
    for (uint32_t n_rows = 2; n_rows <= 3; n_rows++) { /* one row each; several rows */
        struct device d = open_device(&t, set, 1);
        if (!d.be) return;
        float x[3 * 64];
        be_fill(x, 3 * 64, 1);
        struct step s = {.n_rows = n_rows,
                         .n_seqs = 2,
                         .pos = {0, 0, 1},
                         .row_start = {0, 1, (int32_t)n_rows},
                         .slots = {1, MAX_SEQS},
                         .q = x,
                         .k = x,
                         .v = x,
                         .out = (float[3 * 64]){0}};
        run_step(&t, &d, &s);
        CHECK(s.out[0] != 0);
        for (uint32_t i = 64; i < n_rows * 64; i++)
            CHECK(s.out[i] == 0);
        close_device(&d);
    }
}

static void test_device_slot(void) {
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        if (be_is_device_set(sets[i])) check_slot(sets[i]);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(test_dim_64);
    RUN(test_dim_128);
    RUN(test_passes);
    RUN(test_refused);
    RUN(test_device_slot);
    return check_done();
}
