/* test_delta_net.c - the gated delta net and the gate of attention on every backend, against the
 * recurrence in float64 (one step of S per token, no chunks), and whether the bits of a sequence
 * depend on how its rows came: alone, with others, in which steps, from a shared state block. */
#include "tests/support/be.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stddef.h>

enum { MAX_SEQS = 5, MAX_ROWS = 128, N_BLOCKS = 24 };
static const double ATOL = 1e-5, RTOL = 1e-4;

struct seq {
    uint32_t len;
    float *qkv, *z, *alpha, *beta;
};

struct trial {
    struct backend_state shape;
    bool tiled;
    float eps;
    float *conv, *a, *dt_bias, *norm;
    uint32_t n_seqs;
    struct seq seqs[MAX_SEQS];
};

static uint64_t channels(const struct trial *t) {
    return backend_state_channels(&t->shape);
}

static uint64_t out_cols(const struct trial *t) {
    return (uint64_t)t->shape.n_v_heads * t->shape.v_dim;
}

static float *new_values(uint64_t n, float scale) {
    float *x = be_new(n, sizeof *x);
    be_fill(x, n, scale);
    return x;
}

static struct trial new_trial(struct backend_state shape, bool tiled) {
    struct trial t = {.shape = shape, .tiled = tiled, .eps = 1e-6f};
    t.conv = new_values(channels(&t) * shape.n_taps, 0.5f);
    t.a = new_values(shape.n_v_heads, 1);
    for (uint32_t h = 0; h < shape.n_v_heads; h++)
        t.a[h] = -0.01f - fabsf(t.a[h]); /* -exp(A_log) */
    t.dt_bias = new_values(shape.n_v_heads, 1);
    t.norm = new_values(shape.v_dim, 1);
    return t;
}

static void add_seq(struct trial *t, uint32_t len) {
    struct seq *s = &t->seqs[t->n_seqs++];
    s->len = len;
    s->qkv = new_values(len * channels(t), 1);
    s->z = new_values(len * out_cols(t), 2);
    s->alpha = new_values((uint64_t)len * t->shape.n_v_heads, 3);
    s->beta = new_values((uint64_t)len * t->shape.n_v_heads, 2);
}

static void free_trial(struct trial *t) {
    for (uint32_t i = 0; i < t->n_seqs; i++)
        free(t->seqs[i].qkv), free(t->seqs[i].z), free(t->seqs[i].alpha), free(t->seqs[i].beta);
    free(t->conv), free(t->a), free(t->dt_bias), free(t->norm);
}

/* ---- the reference ---- */

static double silu(double x) {
    return x / (1 + exp(-x));
}

/* The head of row p after the convolution, normed if it is of Q or K. */
static void convolve(const struct trial *t, const struct seq *s, uint32_t p, uint32_t head,
                     double *out) {
    const struct backend_state *st = &t->shape;
    double sum = 0;
    for (uint32_t i = 0; i < st->k_dim; i++) {
        const uint64_t c = (uint64_t)head * st->k_dim + i;
        out[i] = 0;
        for (uint32_t tap = 0; tap < st->n_taps; tap++)
            if (p + tap + 1 >= st->n_taps)
                out[i] += (double)t->conv[c * st->n_taps + tap] *
                          s->qkv[(p + tap + 1 - st->n_taps) * channels(t) + c];
        out[i] = silu(out[i]);
        sum += out[i] * out[i];
    }
    if (head >= 2 * st->n_k_heads) return;
    for (uint32_t i = 0; i < st->k_dim; i++)
        out[i] /= sqrt(sum + 1e-6);
}

/* One step of the recurrence: S (dim, dim) and o (dim). */
static void step64(const struct trial *t, const struct seq *s, uint32_t p, uint32_t h,
                   double *state, double *o) {
    const struct backend_state *st = &t->shape;
    const uint32_t d = st->k_dim, n_k = st->n_k_heads;
    const uint32_t kh = t->tiled ? h % n_k : h / (st->n_v_heads / n_k);
    double q[BACKEND_STATE_MAX_K_DIM], k[BACKEND_STATE_MAX_K_DIM], v[BACKEND_STATE_MAX_K_DIM];
    convolve(t, s, p, kh, q);
    convolve(t, s, p, n_k + kh, k);
    convolve(t, s, p, 2 * n_k + h, v);
    const uint64_t at = (uint64_t)p * st->n_v_heads + h;
    const double decay = exp(t->a[h] * log1p(exp((double)s->alpha[at] + t->dt_bias[h])));
    const double beta = 1 / (1 + exp(-(double)s->beta[at]));
    for (uint32_t j = 0; j < d; j++) {
        double kept = 0;
        for (uint32_t i = 0; i < d; i++)
            kept += (state[i * d + j] *= decay) * k[i];
        o[j] = 0;
        for (uint32_t i = 0; i < d; i++) {
            state[i * d + j] += k[i] * beta * (v[j] - kept);
            o[j] += state[i * d + j] * q[i] / sqrt((double)d);
        }
    }
}

/* The largest error of head h, as a share of what is allowed. */
static double worst_share(const struct trial *t, const struct seq *s, uint32_t h,
                          const float *got) {
    const uint32_t d = t->shape.v_dim;
    double *state = be_new((uint64_t)d * d, sizeof *state), o[BACKEND_STATE_MAX_K_DIM], worst = 0;
    for (uint32_t p = 0; p < s->len; p++) {
        double sum = 0;
        step64(t, s, p, h, state, o);
        for (uint32_t j = 0; j < d; j++)
            sum += o[j] * o[j];
        for (uint32_t j = 0; j < d; j++) {
            const uint64_t at = p * out_cols(t) + (uint64_t)h * d + j;
            const double want = t->norm[j] * o[j] / sqrt(sum / d + (double)t->eps) * silu(s->z[at]);
            const double share = fabs(got[at] - want) / (ATOL + RTOL * fabs(want));
            if (!(share <= worst)) worst = share; /* NaN too */
        }
    }
    free(state);
    return worst;
}

/* ---- running ---- */

struct device {
    backend *be;
    backend_weight *conv, *a, *dt_bias, *norm;
    backend_buf *blocks;
    uint32_t n_taken; /* state blocks */
};

/* Blocks begin as NaN: nothing is read that was not written. */
static bool open_device(const struct trial *t, const char *set, struct device *d) {
    *d = (struct device){0};
    d->be = be_open_config(
        (struct backend_config){.n_threads = 2, .max_rows = MAX_ROWS, .max_cols = 64}, set);
    if (!d->be) return false;
    if (!backend_has_op(d->be, BACKEND_OP_delta_net)) {
        backend_close(d->be);
        return false;
    }
    d->conv = be_weight(d->be, QTYPE_F32, 1, channels(t) * t->shape.n_taps, t->conv);
    d->a = be_weight(d->be, QTYPE_F32, 1, t->shape.n_v_heads, t->a);
    d->dt_bias = be_weight(d->be, QTYPE_F32, 1, t->shape.n_v_heads, t->dt_bias);
    d->norm = be_weight(d->be, QTYPE_F32, 1, t->shape.v_dim, t->norm);
    const uint64_t n = N_BLOCKS * backend_state_block_bytes(&t->shape) / sizeof(float);
    float *junk = be_new(n, sizeof *junk);
    for (uint64_t i = 0; i < n; i++)
        junk[i] = NAN;
    d->blocks = be_f32(d->be, junk, n);
    free(junk);
    return true;
}

static void close_device(struct device *d) {
    backend_weight *weights[] = {d->conv, d->a, d->dt_bias, d->norm};
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        backend_weight_free(weights[i]);
    backend_buf_free(d->blocks);
    backend_close(d->be);
}

/* A sequence under way. */
struct run {
    const struct seq *seq;
    uint32_t done;
    int32_t source, live;
    float *out; /* (len, out_cols) */
};

static int32_t take_block(struct device *d) {
    be_need(d->n_taken < N_BLOCKS, "a state block");
    return (int32_t)d->n_taken++;
}

static struct run start_run(const struct trial *t, struct device *d, uint32_t seq) {
    struct run r = {.seq = &t->seqs[seq], .live = take_block(d)};
    r.source = r.live;
    r.out = be_new(r.seq->len * out_cols(t), sizeof *r.out);
    return r;
}

/* A run that continues `from` at its end, a boundary, with another live block. */
static struct run fork_run(const struct trial *t, struct device *d, const struct run *from) {
    struct run r = start_run(t, d, 0);
    r.seq = from->seq;
    r.source = from->source;
    r.done = from->done;
    memcpy(r.out, from->out, from->done * out_cols(t) * sizeof *r.out);
    return r;
}

static backend_buf *gather(backend *be, struct run *const *runs, const uint32_t *take, uint32_t n,
                           uint64_t cols, size_t member) {
    float *x = be_new(MAX_ROWS * cols, sizeof *x), *at = x;
    for (uint32_t i = 0; i < n; i++) {
        const float *from = *(float *const *)(const void *)((const char *)runs[i]->seq + member);
        memcpy(at, from + runs[i]->done * cols, take[i] * cols * sizeof *x);
        at += take[i] * cols;
    }
    backend_buf *buf = be_f32(be, x, (uint64_t)(at - x));
    free(x);
    return buf;
}

/* One step: the next take[i] > 0 rows of each run. */
static void run_step(const struct trial *t, struct device *d, struct run *const *runs,
                     const uint32_t *take, uint32_t n) {
    int32_t pos[MAX_ROWS], start[MAX_SEQS + 1] = {0}, tables[2 * MAX_SEQS];
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t r = 0; r < take[i]; r++)
            pos[n_rows++] = (int32_t)(runs[i]->done + r);
        start[i + 1] = (int32_t)n_rows;
        tables[2 * i] = runs[i]->source, tables[2 * i + 1] = runs[i]->live;
    }
    backend *be = d->be;
    const uint64_t cols = out_cols(t), heads = t->shape.n_v_heads;
    struct op_delta_net op = {
        .qkv = gather(be, runs, take, n, channels(t), offsetof(struct seq, qkv)),
        .z = gather(be, runs, take, n, cols, offsetof(struct seq, z)),
        .alpha = gather(be, runs, take, n, heads, offsetof(struct seq, alpha)),
        .beta = gather(be, runs, take, n, heads, offsetof(struct seq, beta)),
        .pos = be_i32(be, pos, n_rows),
        .row_start = be_i32(be, start, n + 1),
        .tables = be_i32(be, tables, 2 * (uint64_t)n),
        .conv = d->conv,
        .a = d->a,
        .dt_bias = d->dt_bias,
        .norm = d->norm,
        .eps = t->eps,
        .n_rows = n_rows,
        .n_seqs = n,
        .tiled = t->tiled,
        .state = t->shape,
        .work = be_f32(be, NULL, n_rows * channels(t)),
        .out = be_f32(be, NULL, n_rows * cols)};
    op.state.blocks = d->blocks;
    op.state.n_blocks = N_BLOCKS;
    err e = {0};
    CHECK(backend_delta_net(be, &op) == 0);
    CHECK_MSG(backend_sync(be, &e) == 0, "%s", e.msg);
    float *out = be_new(n_rows * cols, sizeof *out);
    be_get(be, op.out, out, n_rows * cols);
    for (uint32_t i = 0; i < n; i++) {
        struct run *r = runs[i];
        memcpy(r->out + r->done * cols, out + (uint64_t)start[i] * cols,
               take[i] * cols * sizeof *out);
        if ((r->done + take[i]) / t->shape.chunk > r->done / t->shape.chunk) r->source = r->live;
        r->done += take[i];
    }
    free(out);
    const backend_buf *bufs[] = {op.qkv,       op.z,      op.alpha, op.beta, op.pos,
                                 op.row_start, op.tables, op.work,  op.out};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        backend_buf_free((backend_buf *)(uintptr_t)bufs[i]);
}

/* Runs all of r in steps of at most `most` rows. */
static void run_alone(const struct trial *t, struct device *d, struct run *r, uint32_t most) {
    while (r->done < r->seq->len) {
        uint32_t left = r->seq->len - r->done, take = left < most ? left : most;
        run_step(t, d, &r, &take, 1);
    }
}

static void check_bits(const struct trial *t, const struct run *a, const struct run *b,
                       const char *how) {
    CHECK_MSG(!memcmp(a->out, b->out, a->seq->len * out_cols(t) * sizeof *a->out),
              "%u rows %s: other bits", a->seq->len, how);
}

/* ---- checks ---- */

/* All sequences at once, in random shares of random steps. */
static void check_together(const struct trial *t, struct device *d, const struct run *whole) {
    struct run runs[MAX_SEQS], *some[MAX_SEQS];
    for (uint32_t i = 0; i < t->n_seqs; i++)
        runs[i] = start_run(t, d, i);
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
    if (!at) return;
    struct run first = start_run(t, d, 0);
    while (first.done < at) {
        struct run *r = &first;
        uint32_t left = at - first.done, take = left < 7 ? left : 7;
        run_step(t, d, &r, &take, 1);
    }
    first.source = first.live;
    struct run second = fork_run(t, d, &first), third = fork_run(t, d, &first);
    run_alone(t, d, &second, 5);
    run_alone(t, d, &third, MAX_ROWS);
    check_bits(t, whole, &second, "from a shared state");
    check_bits(t, whole, &third, "from a shared state again");
    free(first.out), free(second.out), free(third.out);
}

static void check_trial(const struct trial *t, const char *set) {
    struct device d;
    struct run whole[MAX_SEQS];
    double worst = 0;
    if (!open_device(t, set, &d)) return;
    for (uint32_t i = 0; i < t->n_seqs; i++) {
        whole[i] = start_run(t, &d, i);
        run_alone(t, &d, &whole[i], MAX_ROWS);
        for (uint32_t h = 0; h < t->shape.n_v_heads; h++) {
            double share = worst_share(t, &t->seqs[i], h, whole[i].out);
            if (!(share <= worst)) worst = share;
        }
        struct run single = start_run(t, &d, i);
        run_alone(t, &d, &single, 1);
        check_bits(t, &whole[i], &single, "one by one");
        free(single.out);
    }
    CHECK_MSG(worst <= 1, "%s: error %g of what is allowed", set, worst);
    printf("     %-8s %u and %u heads of %3u, chunks of %u: error %.2g of what is allowed\n", set,
           t->shape.n_k_heads, t->shape.n_v_heads, t->shape.v_dim, t->shape.chunk, worst);
    check_together(t, &d, whole);
    check_forks(t, &d, &whole[0]);
    for (uint32_t i = 0; i < t->n_seqs; i++)
        free(whole[i].out);
    close_device(&d);
}

static const char *const sets[] = {"generic", "avx2", "avx512", "neon", "metal", "cuda"};

static void check_shape(struct backend_state shape, bool tiled, const uint32_t *lens, uint32_t n) {
    be_rng.state = 7;
    struct trial t = new_trial(shape, tiled);
    for (uint32_t i = 0; i < n; i++)
        add_seq(&t, lens[i]);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        check_trial(&t, sets[i]);
    free_trial(&t);
}

static void test_shapes(void) {
    static const uint32_t lens[] = {77, 1, 16, 33, 50};
    check_shape(
        (struct backend_state){
            .chunk = 16, .n_taps = 4, .n_k_heads = 1, .n_v_heads = 1, .k_dim = 16, .v_dim = 16},
        false, lens, 5);
    check_shape(
        (struct backend_state){
            .chunk = 16, .n_taps = 4, .n_k_heads = 2, .n_v_heads = 4, .k_dim = 32, .v_dim = 32},
        false, lens, 3);
    check_shape(
        (struct backend_state){
            .chunk = 32, .n_taps = 4, .n_k_heads = 2, .n_v_heads = 6, .k_dim = 48, .v_dim = 48},
        true, lens, 2);
    check_shape(
        (struct backend_state){
            .chunk = 16, .n_taps = 2, .n_k_heads = 3, .n_v_heads = 3, .k_dim = 80, .v_dim = 80},
        true, (uint32_t[]){40, 19}, 2);
    check_shape(
        (struct backend_state){
            .chunk = 16, .n_taps = 3, .n_k_heads = 1, .n_v_heads = 2, .k_dim = 128, .v_dim = 128},
        true, (uint32_t[]){100, 17}, 2);
}

/* Strong and hardly any decay over many chunks: e^-G alone would overflow. */
static void test_decays(void) {
    const struct backend_state shape = {
        .chunk = 32, .n_taps = 4, .n_k_heads = 1, .n_v_heads = 2, .k_dim = 32, .v_dim = 32};
    be_rng.state = 11;
    struct trial t = new_trial(shape, false);
    t.a[0] = -60, t.a[1] = -1e-6f;
    add_seq(&t, 120);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        check_trial(&t, sets[i]);
    free_trial(&t);
}

static void test_gate(void) {
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        enum { N = 5 * 37 };
        float x[N], gate[N], out[N];
        struct device d = {.be = be_open(sets[i], 2)};
        if (!d.be) continue;
        if (!backend_has_op(d.be, BACKEND_OP_gate)) {
            backend_close(d.be);
            continue;
        }
        be_fill(x, N, 3);
        be_fill(gate, N, 40);
        backend_buf *buf = be_f32(d.be, x, N), *by = be_f32(d.be, gate, N);
        CHECK(backend_gate(d.be, &(struct op_gate){buf, by, 5, 37}) == 0);
        be_get(d.be, buf, out, N);
        for (int k = 0; k < N; k++)
            CHECK(fabs(out[k] - x[k] / (1 + exp(-(double)gate[k]))) <= 1e-6 * fabs(x[k]) + 1e-30);
        CHECK(backend_gate(d.be, &(struct op_gate){buf, buf, 5, 37}) == ERR_INVALID);
        CHECK(backend_gate(d.be, &(struct op_gate){buf, by, 5, 38}) == ERR_INVALID);
        backend_buf_free(buf), backend_buf_free(by);
        backend_close(d.be);
    }
}

static void test_layout(void) {
    struct backend_state s = {
        .chunk = 16, .n_taps = 4, .n_k_heads = 16, .n_v_heads = 32, .k_dim = 128, .v_dim = 128};
    const struct backend_state_parts p = backend_state_parts(&s);
    CHECK(backend_state_channels(&s) == 8192);
    CHECK(p.tail == 32 * 128 * 128 && p.recent - p.tail == 3 * 8192 && p.k - p.recent == 3 * 8192);
    CHECK(p.u - p.k == 16 * 16 * 128 && p.g - p.u == 16 * 32 * 128 && p.end - p.g == 16 * 32);
    CHECK(backend_state_block_bytes(&s) == p.end * 4);
    struct backend_state bad[] = {s, s, s, s, s, s, s, s};
    bad[0].chunk = 8, bad[1].n_taps = 5, bad[2].n_v_heads = 24, bad[3].k_dim = 272,
    bad[4].v_dim = 40, bad[5].v_dim = 144, bad[6].n_v_heads = 0, bad[7].channels = 1;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!backend_state_ok(&bad[i]) && !backend_state_block_bytes(&bad[i]));
    s.k_dim = 256, s.v_dim = 64;
    const struct backend_state_parts r = backend_state_parts(&s);
    CHECK(backend_state_channels(&s) == 2 * 16 * 256 + 32 * 64 && r.tail == 32 * 256 * 64);
    CHECK(r.u - r.k == 16 * 16 * 256 && r.g - r.u == 16 * 32 * 64);
    const struct backend_state alone = {.chunk = 16, .n_taps = 3, .channels = 40};
    CHECK(backend_state_channels(&alone) == 40);
    CHECK(backend_state_block_bytes(&alone) == 2 * 2 * 40 * sizeof(float));
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(test_layout);
    RUN(test_shapes);
    RUN(test_decays);
    RUN(test_gate);
    return check_done();
}
