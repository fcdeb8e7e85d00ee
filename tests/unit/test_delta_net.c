/* test_delta_net.c - linear attention (gated delta nets, those with a decay for each channel of K
 * and with Q, K and V apart, Mamba-2) and the gate of attention on
 * every backend, against the recurrence in float64 (one step of S per token, no chunks), and
 * whether the bits of a sequence depend on how its rows came: alone, with others, in which steps,
 * from a shared state block. */
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
    bool tiled, mamba2, normed; /* normed: Mamba-2 with a norm of groups */
    float eps;
    float *conv, *conv_bias, *a, *dt_bias, *skip, *norm;
    uint32_t n_seqs;
    struct seq seqs[MAX_SEQS];
};

static uint64_t channels(const struct trial *t) {
    return backend_state_channels(&t->shape);
}

static uint64_t decays(const struct trial *t) {
    return (uint64_t)t->shape.n_v_heads * backend_state_decays(&t->shape);
}

static uint64_t out_cols(const struct trial *t) {
    return (uint64_t)t->shape.n_v_heads * t->shape.v_dim;
}

static uint64_t key_cols(const struct trial *t) {
    return (uint64_t)t->shape.n_k_heads * t->shape.k_dim;
}

static float *new_values(uint64_t n, float scale) {
    float *x = be_new(n, sizeof *x);
    be_fill(x, n, scale);
    return x;
}

static struct trial new_trial(struct backend_state shape, bool tiled, bool mamba2, bool normed) {
    struct trial t = {
        .shape = shape, .tiled = tiled, .mamba2 = mamba2, .normed = normed, .eps = 1e-6f};
    t.conv = new_values(channels(&t) * shape.n_taps, 0.5f);
    t.a = new_values(shape.n_v_heads, 1);
    for (uint32_t h = 0; h < shape.n_v_heads; h++)
        t.a[h] = -0.01f - fabsf(t.a[h]); /* -exp(A_log) */
    t.dt_bias = new_values(decays(&t), 1);
    t.norm = new_values(mamba2 ? out_cols(&t) : shape.v_dim, 1);
    t.conv_bias = new_values(channels(&t), 1);
    t.skip = new_values(shape.n_v_heads, 1);
    return t;
}

static void add_seq(struct trial *t, uint32_t len) {
    struct seq *s = &t->seqs[t->n_seqs++];
    s->len = len;
    s->qkv = new_values(len * channels(t), 1);
    s->z = new_values(len * out_cols(t), 2);
    s->alpha = new_values(len * decays(t), 3);
    s->beta = new_values((uint64_t)len * t->shape.n_v_heads, 2);
}

static void free_trial(struct trial *t) {
    for (uint32_t i = 0; i < t->n_seqs; i++)
        free(t->seqs[i].qkv), free(t->seqs[i].z), free(t->seqs[i].alpha), free(t->seqs[i].beta);
    free(t->conv), free(t->a), free(t->dt_bias), free(t->norm), free(t->conv_bias), free(t->skip);
}

/* ---- the reference ---- */

static double silu(double x) {
    return x / (1 + exp(-x));
}

/* Channels c .. c + dim - 1 of row p after the convolution. */
static void convolve(const struct trial *t, const struct seq *s, uint32_t p, uint64_t c,
                     uint32_t dim, double *out) {
    const struct backend_state *st = &t->shape;
    for (uint32_t i = 0; i < dim; i++, c++) {
        out[i] = t->mamba2 ? t->conv_bias[c] : 0;
        for (uint32_t tap = 0; tap < st->n_taps; tap++)
            if (p + tap + 1 >= st->n_taps)
                out[i] += (double)t->conv[c * st->n_taps + tap] *
                          s->qkv[(p + tap + 1 - st->n_taps) * channels(t) + c];
        out[i] = silu(out[i]);
    }
}

static void normalize(double *x, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++)
        x[i] /= sqrt(sum + 1e-6);
}

/* q, k and v of V head h in row p. */
static void read_heads(const struct trial *t, const struct seq *s, uint32_t p, uint32_t h,
                       double *q, double *k, double *v) {
    const struct backend_state *st = &t->shape;
    const uint32_t n_k = st->n_k_heads, n = st->k_dim, d = st->v_dim;
    const uint64_t kh = t->tiled ? h % n_k : h / (st->n_v_heads / n_k), values = out_cols(t);
    if (t->mamba2) {
        convolve(t, s, p, (uint64_t)h * d, d, v);
        convolve(t, s, p, values + kh * n, n, k);
        convolve(t, s, p, values + (n_k + kh) * n, n, q);
        return;
    }
    convolve(t, s, p, kh * n, n, q);
    convolve(t, s, p, (n_k + kh) * n, n, k);
    convolve(t, s, p, 2 * (uint64_t)n_k * n + (uint64_t)h * d, d, v);
    normalize(q, n);
    normalize(k, n);
    for (uint32_t i = 0; i < n; i++)
        q[i] /= sqrt((double)n);
}

/* One step of the recurrence: S (k_dim, v_dim) and o (v_dim). */
static void step64(const struct trial *t, const struct seq *s, uint32_t p, uint32_t h,
                   double *state, double *o) {
    const uint32_t n = t->shape.k_dim, d = t->shape.v_dim;
    double q[BACKEND_STATE_MAX_K_DIM], k[BACKEND_STATE_MAX_K_DIM], v[BACKEND_STATE_MAX_V_DIM];
    read_heads(t, s, p, h, q, k, v);
    const uint64_t at = (uint64_t)p * t->shape.n_v_heads + h;
    const uint32_t each = backend_state_decays(&t->shape);
    double dt = 0, decay[BACKEND_STATE_MAX_K_DIM];
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t c = i % each;
        dt = log1p(exp((double)s->alpha[at * each + c] + t->dt_bias[h * each + c]));
        decay[i] = exp(t->a[h] * dt);
    }
    const double beta = 1 / (1 + exp(-(double)s->beta[at]));
    for (uint32_t j = 0; j < d; j++) {
        double kept = 0;
        for (uint32_t i = 0; i < n; i++)
            kept += (state[i * d + j] *= decay[i]) * k[i];
        const double u = t->mamba2 ? dt * v[j] : beta * (v[j] - kept);
        o[j] = t->mamba2 ? t->skip[h] * v[j] : 0;
        for (uint32_t i = 0; i < n; i++) {
            state[i * d + j] += k[i] * u;
            o[j] += state[i * d + j] * q[i];
        }
    }
}

/* Norm and gate of n values; Mamba-2 has the gate first. */
static void finish_rows(const struct trial *t, const float *z, double *o, uint64_t n,
                        const float *norm) {
    double sum = 0;
    for (uint64_t j = 0; j < n; j++) {
        if (t->mamba2) o[j] *= silu(z[j]);
        sum += o[j] * o[j];
    }
    for (uint64_t j = 0; j < n; j++) {
        if (!t->mamba2 || t->normed) o[j] *= norm[j] / sqrt(sum / (double)n + (double)t->eps);
        if (!t->mamba2) o[j] *= t->shape.channel_decay ? 1 / (1 + exp(-(double)z[j])) : silu(z[j]);
    }
}

/* The largest error of sequence s, as a share of what is allowed. */
static double worst_share(const struct trial *t, const struct seq *s, const float *got) {
    const struct backend_state *st = &t->shape;
    const uint64_t size = (uint64_t)st->k_dim * st->v_dim, cols = out_cols(t);
    /* What is normed at once: a head, or the heads of a group. */
    const uint64_t part = t->mamba2 ? cols / t->shape.n_k_heads : st->v_dim;
    double *state = be_new(size * st->n_v_heads, sizeof *state), *o = be_new(cols, sizeof *o);
    double worst = 0;
    for (uint32_t p = 0; p < s->len; p++) {
        for (uint32_t h = 0; h < st->n_v_heads; h++)
            step64(t, s, p, h, state + h * size, o + (uint64_t)h * st->v_dim);
        for (uint64_t at = 0; at < cols; at += part)
            finish_rows(t, s->z + p * cols + at, o + at, part, t->norm + (t->mamba2 ? at : 0));
        for (uint64_t j = 0; j < cols; j++) {
            const double share = fabs(got[p * cols + j] - o[j]) / (ATOL + RTOL * fabs(o[j]));
            if (!(share <= worst)) worst = share; /* NaN too */
        }
    }
    free(state), free(o);
    return worst;
}

/* ---- running ---- */

struct device {
    backend *be;
    backend_weight *conv, *conv_k, *conv_v, *conv_bias, *a, *dt_bias, *skip, *norm;
    backend_buf *blocks;
    uint32_t n_taken; /* state blocks */
};

/* Blocks begin as NaN: nothing is read that was not written. */
static bool open_device(const struct trial *t, const char *set, struct device *d) {
    *d = (struct device){0};
    d->be = be_open_config(
        (struct backend_config){.n_threads = 2, .max_rows = MAX_ROWS, .max_cols = 64}, set);
    if (!d->be) return false;
    if (!backend_has_op(d->be, BACKEND_OP_linear_attention)) {
        backend_close(d->be);
        return false;
    }
    const uint64_t taps = t->shape.n_taps, keys = key_cols(t) * taps, all = channels(t) * taps;
    d->conv = be_weight(d->be, QTYPE_F32, 1, t->shape.channel_decay ? keys : all, t->conv);
    if (t->shape.channel_decay) {
        d->conv_k = be_weight(d->be, QTYPE_F32, 1, keys, t->conv + keys);
        d->conv_v = be_weight(d->be, QTYPE_F32, 1, all - 2 * keys, t->conv + 2 * keys);
    }
    d->a = be_weight(d->be, QTYPE_F32, 1, t->shape.n_v_heads, t->a);
    d->dt_bias = be_weight(d->be, QTYPE_F32, 1, decays(t), t->dt_bias);
    if (!t->mamba2 || t->normed)
        d->norm = be_weight(d->be, QTYPE_F32, 1, t->mamba2 ? out_cols(t) : t->shape.v_dim, t->norm);
    if (t->mamba2) {
        d->conv_bias = be_weight(d->be, QTYPE_F32, 1, channels(t), t->conv_bias);
        d->skip = be_weight(d->be, QTYPE_F32, 1, t->shape.n_v_heads, t->skip);
    }
    const uint64_t n = N_BLOCKS * backend_state_block_bytes(&t->shape) / sizeof(float);
    float *junk = be_new(n, sizeof *junk);
    for (uint64_t i = 0; i < n; i++)
        junk[i] = NAN;
    d->blocks = be_f32(d->be, junk, n);
    free(junk);
    return true;
}

static void close_device(struct device *d) {
    backend_weight *weights[] = {d->conv,    d->conv_k, d->conv_v,    d->a,
                                 d->dt_bias, d->norm,   d->conv_bias, d->skip};
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

/* Columns `first` and on, n of all, of n_rows rows. */
static backend_buf *part_of(backend *be, const float *x, uint64_t n_rows, uint64_t all,
                            uint64_t first, uint64_t n) {
    float *part = be_new(n_rows * n, sizeof *part);
    for (uint64_t r = 0; r < n_rows; r++)
        memcpy(part + r * n, x + r * all + first, n * sizeof *part);
    backend_buf *buf = be_f32(be, part, n_rows * n);
    free(part);
    return buf;
}

/* Gives op Q, K and V apart instead of its qkv. */
static void part_channels(const struct trial *t, backend *be, struct op_linear_attention *op) {
    const uint64_t all = channels(t), keys = key_cols(t), n = op->n_rows * all;
    float *x = be_new(n, sizeof *x);
    be_get(be, op->qkv, x, n);
    backend_buf_free((backend_buf *)(uintptr_t)op->qkv);
    op->qkv = part_of(be, x, op->n_rows, all, 0, keys);
    op->k = part_of(be, x, op->n_rows, all, keys, keys);
    op->v = part_of(be, x, op->n_rows, all, 2 * keys, all - 2 * keys);
    free(x);
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
    struct op_linear_attention op = {
        .qkv = gather(be, runs, take, n, channels(t), offsetof(struct seq, qkv)),
        .z = gather(be, runs, take, n, cols, offsetof(struct seq, z)),
        .alpha = gather(be, runs, take, n, decays(t), offsetof(struct seq, alpha)),
        .beta = t->mamba2 ? NULL : gather(be, runs, take, n, heads, offsetof(struct seq, beta)),
        .pos = be_i32(be, pos, n_rows),
        .row_start = be_i32(be, start, n + 1),
        .tables = be_i32(be, tables, 2 * (uint64_t)n),
        .conv = d->conv,
        .conv_k = d->conv_k,
        .conv_v = d->conv_v,
        .conv_bias = d->conv_bias,
        .a = d->a,
        .dt_bias = d->dt_bias,
        .skip = d->skip,
        .norm = d->norm,
        .eps = t->eps,
        .n_rows = n_rows,
        .n_seqs = n,
        .tiled = t->tiled,
        .n_norm_groups = t->shape.n_k_heads,
        .state = t->shape,
        .work = be_f32(be, NULL, n_rows * backend_state_work(&t->shape)),
        .out = be_f32(be, NULL, n_rows * cols)};
    if (t->shape.channel_decay) part_channels(t, be, &op);
    op.state.blocks = d->blocks;
    op.state.n_blocks = N_BLOCKS;
    err e = {0};
    CHECK(backend_linear_attention(be, &op) == 0);
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
    const backend_buf *bufs[] = {op.qkv, op.z,   op.alpha,     op.beta,   op.pos, op.k,
                                 op.v,   op.out, op.row_start, op.tables, op.work};
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
        double share = worst_share(t, &t->seqs[i], whole[i].out);
        if (!(share <= worst)) worst = share;
        struct run single = start_run(t, &d, i);
        run_alone(t, &d, &single, 1);
        check_bits(t, &whole[i], &single, "one by one");
        free(single.out);
    }
    check_note_error(worst);
    CHECK_MSG(worst <= 1, "%s: error %g of what is allowed", set, worst);
    printf("     %-8s %s: %u heads of %u, %u of %u, chunks of %u: error %.2g of what is allowed\n",
           set,
           t->mamba2                ? "Mamba-2"
           : t->shape.channel_decay ? "delta net with decays of channels"
                                    : "delta net",
           t->shape.n_k_heads, t->shape.k_dim, t->shape.n_v_heads, t->shape.v_dim, t->shape.chunk,
           worst);
    check_together(t, &d, whole);
    check_forks(t, &d, &whole[0]);
    for (uint32_t i = 0; i < t->n_seqs; i++)
        free(whole[i].out);
    close_device(&d);
}

static const char *const sets[] = {"generic", "avx2", "avx512", "neon", "metal", "cuda"};

/* Quick: at most three sequences, each shorter than three chunks. */
static void check_sets(struct trial t, const uint32_t *lens, uint32_t n) {
    const uint32_t chunk = t.shape.chunk;
    for (uint32_t i = 0; i < n && !(be_quick && i == 3); i++)
        add_seq(&t, be_quick && lens[i] > 2 * chunk ? lens[i] % chunk + 2 * chunk : lens[i]);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        check_trial(&t, sets[i]);
    free_trial(&t);
}

static void check_shape(struct backend_state shape, bool tiled, const uint32_t *lens, uint32_t n) {
    be_rng.state = 7;
    check_sets(new_trial(shape, tiled, false, false), lens, n);
}

static void test_mamba2(void) {
    static const uint32_t lens[] = {77, 1, 16, 33, 50};
    static const struct backend_state shapes[] = {
        {.chunk = 16, .n_taps = 4, .n_k_heads = 1, .n_v_heads = 5, .k_dim = 48, .v_dim = 16},
        {.chunk = 32, .n_taps = 3, .n_k_heads = 2, .n_v_heads = 6, .k_dim = 16, .v_dim = 80},
        {.chunk = 16, .n_taps = 4, .n_k_heads = 3, .n_v_heads = 3, .k_dim = 256, .v_dim = 64},
        {.chunk = 32, .n_taps = 2, .n_k_heads = 1, .n_v_heads = 2, .k_dim = 128, .v_dim = 128}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        be_rng.state = 13 + i;
        check_sets(new_trial(shapes[i], false, true, i != 2), lens, i < 2 ? 5 : 2);
    }
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
    struct trial t = new_trial(shape, false, false, false);
    t.a[0] = -60, t.a[1] = -1e-6f;
    add_seq(&t, be_quick ? 70 : 120);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        check_trial(&t, sets[i]);
    free_trial(&t);
}

/* Each channel decays by itself, from hardly at all to a factor of e^-10000 in one row; arguments
 * beyond 20 make softplus linear. Quick: every second shape. */
static void test_channel_decays(void) {
    static const uint32_t lens[] = {77, 1, 16, 33, 50};
    static const struct backend_state shapes[] = {
        {.chunk = 16, .n_taps = 4, .n_k_heads = 2, .n_v_heads = 2, .k_dim = 16, .v_dim = 16},
        {.chunk = 32, .n_taps = 3, .n_k_heads = 1, .n_v_heads = 3, .k_dim = 48, .v_dim = 48},
        {.chunk = 32, .n_taps = 2, .n_k_heads = 3, .n_v_heads = 3, .k_dim = 80, .v_dim = 80},
        {.chunk = 16, .n_taps = 4, .n_k_heads = 2, .n_v_heads = 2, .k_dim = 128, .v_dim = 128}};
    static const float strengths[][2] = {{-0.05f, -1}, {-60, -1e-6f}, {-1e-3f, -400}, {-3, -16}};
    for (size_t i = be_quick; i < sizeof shapes / sizeof shapes[0]; i += be_quick ? 2 : 1) {
        struct backend_state shape = shapes[i];
        be_rng.state = 17 + i;
        shape.channel_decay = true;
        struct trial t = new_trial(shape, false, false, false);
        for (uint32_t h = 0; h < shape.n_v_heads; h++)
            t.a[h] = strengths[i][h % 2];
        for (uint64_t d = 0; d < decays(&t); d += 5)
            t.dt_bias[d] = d % 2 ? 25 : -25;
        check_sets(t, lens, i < 2 ? 5 : 2);
    }
}

static const struct backend_xielu xielu = {0.9f, 1.4f, 0.5f, -1e-6f};

/* op_gate's activations without a gate, in float64. */
static double unary64(enum backend_unary unary, double x) {
    const double z = sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    switch (unary) {
    case BACKEND_UNARY_GELU_TANH:
        return x / (1 + exp(-2 * z));
    case BACKEND_UNARY_GELU:
        return x / 2 * erfc(-x / sqrt(2));
    case BACKEND_UNARY_XIELU:
        if (x > 0) return (double)xielu.positive * x * x + (double)xielu.beta * x;
        return (double)xielu.negative * (expm1(fmin(x, (double)xielu.eps)) - x) +
               (double)xielu.beta * x;
    default:
        return x > 0 ? x * x : 0;
    }
}

static void check_unary(backend *be, enum backend_unary unary) {
    enum { ROWS = 3, COLS = 4099, N = ROWS * COLS };
    static const float special[] = {0,  -0.0f, 1e-7f, -1e-7f, -1e-4f, -0.4999f, -0.5001f,
                                    -9, 30,    -80,   -150,   -1e20f, 1e9f};
    static float x[N], out[N];
    be_fill(x, N, 6);
    memcpy(x + 5, special, sizeof special);
    backend_buf *buf = be_f32(be, x, N);
    CHECK(backend_gate(
              be,
              &(struct op_gate){
                  .x = buf, .n_rows = ROWS, .n_cols = COLS, .unary = unary, .xielu = xielu}) == 0);
    be_get(be, buf, out, N);
    for (int i = 0; i < N; i++) {
        const double want = unary64(unary, (double)x[i]);
        /* GELU's tail is the difference of numbers near 1 on some devices */
        const double least =
            unary == BACKEND_UNARY_XIELU ? 1e-6 * fabs((double)x[i]) : 1e-12; /* it crosses 0 */
        CHECK_MSG(fabs((double)out[i] - want) <= 4e-6 * fabs(want) + least, "%d: of %g %g, not %g",
                  unary, (double)x[i], (double)out[i], want);
    }
    float nan[] = {NAN};
    CHECK(backend_upload(be, buf, 0, nan, sizeof nan, NULL) == 0);
    CHECK(backend_gate(
              be, &(struct op_gate){
                      .x = buf, .n_rows = 1, .n_cols = 1, .unary = unary, .xielu = xielu}) == 0);
    be_get(be, buf, out, 1);
    CHECK(isnan(out[0]) || unary == BACKEND_UNARY_SQUARED_RELU);
    backend_buf_free(buf);
}

/* A gate for several columns, and softplus gates; by holds gate. */
static void check_spans(backend *be, const backend_buf *by, const float *gate, uint32_t span,
                        bool softplus) {
    enum { ROWS = 3, COLS = 2085, N = ROWS * COLS };
    static float x[N], out[N];
    be_fill(x, N, 3);
    backend_buf *buf = be_f32(be, x, N);
    struct op_gate op = {
        .x = buf, .gate = by, .n_rows = ROWS, .n_cols = COLS, .span = span, .softplus = softplus};
    CHECK(backend_gate(be, &op) == 0);
    be_get(be, buf, out, N);
    for (uint32_t k = 0; k < N; k++) {
        const double g = (double)gate[k / span];
        const double by_gate = softplus ? fmax(g, 0) + log1p(exp(-fabs(g))) : 1 / (1 + exp(-g));
        CHECK(fabs(out[k] - x[k] * by_gate) <= 2e-6 * fabs(x[k] * by_gate) + 2e-7 * fabs(x[k]));
    }
    op.span = 2;
    CHECK(backend_gate(be, &op) == ERR_INVALID);
    op.span = span, op.gate = NULL;
    CHECK(backend_gate(be, &op) == ERR_INVALID);
    backend_buf_free(buf);
}

static void test_gate(void) {
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        enum { ROWS = 3, COLS = 2085, N = ROWS * COLS };
        static float x[N], gate[N], out[N];
        struct device d = {.be = be_open(sets[i], 2)};
        if (!d.be) continue;
        if (!backend_has_op(d.be, BACKEND_OP_gate)) {
            backend_close(d.be);
            continue;
        }
        be_fill(x, N, 3);
        be_fill(gate, N, 40);
        backend_buf *buf = be_f32(d.be, x, N), *by = be_f32(d.be, gate, N);
        CHECK(backend_gate(d.be, &(struct op_gate){
                                     .x = buf, .gate = by, .n_rows = ROWS, .n_cols = COLS}) == 0);
        be_get(d.be, buf, out, N);
        for (int k = 0; k < N; k++)
            CHECK(fabs(out[k] - x[k] / (1 + exp(-(double)gate[k]))) <= 1e-6 * fabs(x[k]) + 1e-30);
        be_get(d.be, buf, x, N);
        CHECK(backend_gate(d.be, &(struct op_gate){.x = buf, .n_rows = ROWS, .n_cols = COLS}) == 0);
        be_get(d.be, buf, out, N);
        for (int k = 0; k < N; k++)
            CHECK(out[k] == (x[k] > 0 ? x[k] * x[k] : 0));
        CHECK(backend_gate(
                  d.be, &(struct op_gate){.x = buf, .gate = buf, .n_rows = ROWS, .n_cols = COLS}) ==
              ERR_INVALID);
        CHECK(backend_gate(d.be, &(struct op_gate){.x = buf,
                                                   .gate = by,
                                                   .n_rows = ROWS,
                                                   .n_cols = COLS,
                                                   .unary = BACKEND_UNARY_GELU}) == ERR_INVALID);
        for (int k = 0; k < BACKEND_N_UNARIES; k++)
            check_unary(d.be, (enum backend_unary)k);
        for (int k = 0; k < 4; k++)
            check_spans(d.be, by, gate, k & 1 ? 139 : 1, k & 2);
        CHECK(backend_gate(
                  d.be,
                  &(struct op_gate){.x = buf, .gate = by, .n_rows = ROWS, .n_cols = COLS + 1}) ==
              ERR_INVALID);
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
    struct backend_state by_channel = s;
    by_channel.channel_decay = true;
    const struct backend_state_parts c = backend_state_parts(&by_channel);
    CHECK(backend_state_ok(&by_channel) && c.g == p.g && c.end - c.g == 16 * 32 * 128);
    s.k_dim = 256, s.v_dim = 64;
    by_channel.v_dim = 64;
    CHECK(!backend_state_ok(&by_channel));
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
    RUN(test_mamba2);
    RUN(test_decays);
    RUN(test_channel_decays);
    RUN(test_gate);
    return check_done();
}
