/* test_short_conv.c - the short convolution on every backend, against a convolution of the whole
 * sequence in float64, and whether the bits of a sequence depend on how its rows came: alone, with
 * others, in which steps, from a shared state block. */
#include "tests/support/be.h"
#include "tests/unit/check.h"

#include <math.h>

enum { MAX_SEQS = 5, MAX_ROWS = 128, N_BLOCKS = 24 };
static const double RTOL = 1e-6; /* of the sum of the terms' magnitudes */

struct seq {
    uint32_t len;
    float *bcx; /* (len, 3, channels) */
};

struct trial {
    struct backend_state shape;
    float *conv;
    uint32_t n_seqs;
    struct seq seqs[MAX_SEQS];
};

static float *new_values(uint64_t n, float scale) {
    float *x = be_new(n, sizeof *x);
    be_fill(x, n, scale);
    return x;
}

/* ---- the reference ---- */

static double worst_share(const struct trial *t, const struct seq *s, const float *got) {
    const uint64_t n = t->shape.channels;
    const uint32_t n_taps = t->shape.n_taps;
    double worst = 0;
    for (uint32_t p = 0; p < s->len; p++)
        for (uint64_t c = 0; c < n; c++) {
            const double by = s->bcx[(p * 3 + 1) * n + c];
            double want = 0, size = 0;
            for (uint32_t back = 0; back < n_taps && back <= p; back++) {
                const float *row = s->bcx + (uint64_t)(p - back) * 3 * n;
                double term =
                    t->conv[c * n_taps + n_taps - 1 - back] * (double)row[c] * row[2 * n + c] * by;
                want += term;
                size += fabs(term);
            }
            const double share = fabs(got[p * n + c] - want) / (RTOL * size + 1e-30);
            if (!(share <= worst)) worst = share; /* NaN too */
        }
    return worst;
}

/* ---- running ---- */

struct device {
    backend *be;
    backend_weight *conv;
    backend_buf *blocks;
    uint32_t n_taken; /* state blocks */
};

/* Blocks begin as NaN: nothing is read that was not written. */
static bool open_device(const struct trial *t, const char *set, struct device *d) {
    *d = (struct device){0};
    d->be = be_open_config(
        (struct backend_config){.n_threads = 2, .max_rows = MAX_ROWS, .max_cols = 64}, set);
    if (!d->be) return false;
    if (!backend_has_op(d->be, BACKEND_OP_short_conv)) {
        backend_close(d->be);
        return false;
    }
    d->conv =
        be_weight(d->be, QTYPE_F32, 1, (uint64_t)t->shape.channels * t->shape.n_taps, t->conv);
    const uint64_t n = N_BLOCKS * backend_state_block_bytes(&t->shape) / sizeof(float);
    float *junk = be_new(n, sizeof *junk);
    for (uint64_t i = 0; i < n; i++)
        junk[i] = NAN;
    d->blocks = be_f32(d->be, junk, n);
    free(junk);
    return true;
}

static void close_device(struct device *d) {
    backend_weight_free(d->conv);
    backend_buf_free(d->blocks);
    backend_close(d->be);
}

/* A sequence under way. */
struct run {
    const struct seq *seq;
    uint32_t done;
    int32_t source, live;
    float *out; /* (len, channels) */
};

static struct run start_run(const struct trial *t, struct device *d, const struct seq *seq) {
    be_need(d->n_taken < N_BLOCKS, "a state block");
    struct run r = {.seq = seq, .live = (int32_t)d->n_taken++};
    r.source = r.live;
    r.out = be_new((uint64_t)seq->len * t->shape.channels, sizeof *r.out);
    return r;
}

/* One step: the next take[i] > 0 rows of each run. */
static void run_step(const struct trial *t, struct device *d, struct run *const *runs,
                     const uint32_t *take, uint32_t n) {
    int32_t pos[MAX_ROWS], start[MAX_SEQS + 1] = {0}, tables[2 * MAX_SEQS];
    const uint64_t cols = t->shape.channels;
    float *bcx = be_new(MAX_ROWS * 3 * cols, sizeof *bcx);
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(bcx + n_rows * 3 * cols, runs[i]->seq->bcx + runs[i]->done * 3 * cols,
               take[i] * 3 * cols * sizeof *bcx);
        for (uint32_t r = 0; r < take[i]; r++)
            pos[n_rows++] = (int32_t)(runs[i]->done + r);
        start[i + 1] = (int32_t)n_rows;
        tables[2 * i] = runs[i]->source, tables[2 * i + 1] = runs[i]->live;
    }
    backend *be = d->be;
    backend_buf *bufs[] = {be_f32(be, bcx, n_rows * 3 * cols), be_i32(be, pos, n_rows),
                           be_i32(be, start, n + 1), be_i32(be, tables, 2 * (uint64_t)n),
                           be_f32(be, NULL, n_rows * cols)};
    struct op_short_conv op = {.bcx = bufs[0],
                               .pos = bufs[1],
                               .row_start = bufs[2],
                               .tables = bufs[3],
                               .conv = d->conv,
                               .n_rows = n_rows,
                               .n_seqs = n,
                               .state = t->shape,
                               .out = bufs[4]};
    op.state.blocks = d->blocks;
    op.state.n_blocks = N_BLOCKS;
    err e = {0};
    CHECK(backend_short_conv(be, &op) == 0);
    CHECK_MSG(backend_sync(be, &e) == 0, "%s", e.msg);
    be_get(be, bufs[4], bcx, n_rows * cols);
    for (uint32_t i = 0; i < n; i++) {
        struct run *r = runs[i];
        memcpy(r->out + r->done * cols, bcx + (uint64_t)start[i] * cols,
               take[i] * cols * sizeof *bcx);
        if ((r->done + take[i]) / t->shape.chunk > r->done / t->shape.chunk) r->source = r->live;
        r->done += take[i];
    }
    op.out = bufs[0];
    CHECK(backend_short_conv(be, &op) == ERR_INVALID);
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        backend_buf_free(bufs[i]);
    free(bcx);
}

/* Rows up to `end`, in steps of at most `most`. */
static void run_alone(const struct trial *t, struct device *d, struct run *r, uint32_t end,
                      uint32_t most) {
    while (r->done < end) {
        uint32_t left = end - r->done, take = left < most ? left : most;
        run_step(t, d, &r, &take, 1);
    }
}

static void check_bits(const struct trial *t, const struct run *a, const struct run *b,
                       const char *how) {
    CHECK_MSG(!memcmp(a->out, b->out, (uint64_t)a->seq->len * t->shape.channels * sizeof *a->out),
              "%u rows %s: other bits", a->seq->len, how);
}

/* ---- checks ---- */

/* All sequences at once, in random shares of random steps. */
static void check_together(const struct trial *t, struct device *d, const struct run *whole) {
    struct run runs[MAX_SEQS], *some[MAX_SEQS];
    for (uint32_t i = 0; i < t->n_seqs; i++)
        runs[i] = start_run(t, d, &t->seqs[i]);
    for (;;) {
        uint32_t take[MAX_SEQS], n = 0, room = MAX_ROWS, n_left = 0;
        for (uint32_t j = 0, first = be_below(t->n_seqs); j < t->n_seqs; j++) {
            struct run *r = &runs[(first + j) % t->n_seqs];
            uint32_t left = r->seq->len - r->done, most = left < room ? left : room;
            n_left += left > 0;
            if (!most || !be_below(4)) continue;
            some[n] = r;
            take[n] = be_below(2) ? 1 : 1 + be_below(most);
            room -= take[n++];
        }
        if (!n_left) break;
        if (n) run_step(t, d, some, take, n);
    }
    for (uint32_t i = 0; i < t->n_seqs; i++) {
        check_bits(t, &whole[i], &runs[i], "in a random batch");
        free(runs[i].out);
    }
}

/* Two runs go on from the state block of a third, which stays as it is. */
static void check_forks(const struct trial *t, struct device *d, const struct run *whole) {
    const uint32_t chunk = t->shape.chunk, at = chunk * (whole->seq->len / chunk / 2);
    struct run first = start_run(t, d, whole->seq);
    run_alone(t, d, &first, at, 7);
    for (uint32_t most = 2; most <= MAX_ROWS; most *= 64) {
        struct run r = start_run(t, d, whole->seq);
        r.source = first.source;
        r.done = at;
        memcpy(r.out, first.out, (uint64_t)at * t->shape.channels * sizeof *r.out);
        run_alone(t, d, &r, r.seq->len, most);
        check_bits(t, whole, &r, "from a shared state");
        free(r.out);
    }
    free(first.out);
}

static void check_trial(const struct trial *t, const char *set) {
    struct device d;
    struct run whole[MAX_SEQS];
    double worst = 0;
    if (!open_device(t, set, &d)) return;
    for (uint32_t i = 0; i < t->n_seqs; i++) {
        whole[i] = start_run(t, &d, &t->seqs[i]);
        run_alone(t, &d, &whole[i], t->seqs[i].len, MAX_ROWS);
        worst = fmax(worst, worst_share(t, &t->seqs[i], whole[i].out));
        struct run single = start_run(t, &d, &t->seqs[i]);
        run_alone(t, &d, &single, t->seqs[i].len, 1);
        check_bits(t, &whole[i], &single, "one by one");
        free(single.out);
    }
    check_note_error(worst);
    CHECK_MSG(worst <= 1, "%s: error %g of what is allowed", set, worst);
    printf("     %-8s %4u channels, %u taps, chunks of %u: error %.2g of what is allowed\n", set,
           t->shape.channels, t->shape.n_taps, t->shape.chunk, worst);
    check_together(t, &d, whole);
    check_forks(t, &d, &whole[0]);
    for (uint32_t i = 0; i < t->n_seqs; i++)
        free(whole[i].out);
    close_device(&d);
}

static void check_shape(uint32_t channels, uint32_t n_taps, uint32_t chunk, const uint32_t *lens,
                        uint32_t n) {
    static const char *const sets[] = {"generic", "avx2", "avx512", "neon", "metal", "cuda"};
    struct trial t = {.shape = {.chunk = chunk, .n_taps = n_taps, .channels = channels}};
    be_rng.state = 7;
    t.conv = new_values((uint64_t)channels * n_taps, 0.5f);
    for (uint32_t i = 0; i < n; i++)
        t.seqs[t.n_seqs++] = (struct seq){lens[i], new_values((uint64_t)lens[i] * 3 * channels, 2)};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        check_trial(&t, sets[i]);
    for (uint32_t i = 0; i < n; i++)
        free(t.seqs[i].bcx);
    free(t.conv);
}

static void test_shapes(void) {
    static const uint32_t lens[] = {77, 1, 16, 33, 50};
    check_shape(1, 2, 16, lens, 5);
    check_shape(37, 3, 16, lens, 5);
    check_shape(64, 4, 32, lens, 3);
    check_shape(331, 3, 32, (uint32_t[]){100, 17}, 2);
}

static void test_layout(void) {
    const struct backend_state s = {.chunk = 16, .n_taps = 3, .channels = 2048};
    const struct backend_state_parts p = backend_state_parts(&s);
    CHECK(backend_state_ok(&s) && backend_state_channels(&s) == 2048);
    CHECK(p.tail == 0 && p.recent == 2 * 2048 && p.k == p.end && p.end == 4 * 2048);
    CHECK(backend_state_block_bytes(&s) == p.end * 4);
    struct backend_state bad[] = {s, s, s, s, s, s};
    bad[0].chunk = 8, bad[1].n_taps = 5, bad[2].channels = 0, bad[3].n_k_heads = 1;
    bad[4].k_dim = 16, bad[5].channels = BACKEND_STATE_MAX_CHANNELS + 1;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!backend_state_ok(&bad[i]) && !backend_state_block_bytes(&bad[i]));
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(test_layout);
    RUN(test_shapes);
    return check_done();
}
