/* test_rope_store.c - head norms, rotary embedding and the scatter of K and V, and block copies,
 * against float64; bitwise the same for a row alone, in any batch, with any number of threads, and
 * after calls with any other layer's parameters. */
#include "tests/support/be.h"
#include "tests/support/kv_pool.h"
#include "tests/unit/check.h"

enum { MAX_N = 85, BLOCKS = 12, MAX_DIM = 512 };

enum norms { NORM_NONE, NORM_HEADS, NORM_ROW };

struct rope_case {
    uint32_t n_heads, n_kv_heads, head_dim, block_tokens;
    int kv_type;
    enum norms norms;
    uint32_t n_rot;
    bool interleaved;
    float magnitude, base;
    bool norm_last;
    float q_log_scale;
    uint32_t q_log_length, q_log_from;
    bool v_normed, q_alone; /* q_alone: without K and V */
};

/* Inputs of n rows, and an op's results. */
struct rope_rows {
    uint32_t n;
    bool is_cpu; /* the last run was on the CPU */
    const struct rope_case *c;
    struct backend_kv kv;
    uint64_t q_width, k_width, pool_bytes;
    float *q, *k, *v, *got_q;
    float inv_freq[MAX_DIM / 2];
    float *q_norm, *k_norm; /* as long as a row: heads take the first head_dim */
    char *pools[2];
    int32_t pos[MAX_N], slots[MAX_N];
};

#define EPS 1e-5f

static struct backend_kv kv_of(const struct rope_case *c) {
    return (struct backend_kv){.kv_type = c->kv_type,
                               .n_blocks = BLOCKS,
                               .n_kv_heads = c->n_kv_heads,
                               .block_tokens = c->block_tokens,
                               .head_dim = c->head_dim};
}

static void make_rows(struct rope_rows *r, const struct rope_case *c, uint32_t n) {
    memset(r, 0, sizeof *r);
    r->n = n, r->c = c, r->kv = kv_of(c);
    r->q_width = (uint64_t)c->n_heads * c->head_dim;
    r->k_width = (uint64_t)c->n_kv_heads * c->head_dim;
    r->pool_bytes = BLOCKS * kv_block_size(&r->kv);
    r->q = be_new(n * r->q_width, 4), r->got_q = be_new(n * r->q_width, 4);
    r->k = be_new(n * r->k_width, 4), r->v = be_new(n * r->k_width, 4);
    r->q_norm = be_new(r->q_width, 4), r->k_norm = be_new(r->k_width, 4);
    r->pools[0] = be_new(r->pool_bytes, 1), r->pools[1] = be_new(r->pool_bytes, 1);
    be_fill(r->q, n * r->q_width, 1);
    be_fill(r->k, n * r->k_width, 1);
    be_fill(r->v, n * r->k_width, 1);
    be_fill(r->q_norm, r->q_width, 2);
    be_fill(r->k_norm, r->k_width, 2);
    for (uint32_t i = 0; i < c->n_rot / 2; i++)
        r->inv_freq[i] = powf(c->base, -2.0f * (float)i / (float)c->n_rot);
    uint32_t at = be_below(BLOCKS * c->block_tokens);
    for (uint32_t i = 0; i < n; i++) {
        r->pos[i] = (int32_t)be_below(i % 2 ? 50 : 100000);
        r->slots[i] = (int32_t)((i * 7 + at) % (BLOCKS * c->block_tokens)); /* all differ */
    }
}

static void free_rows(struct rope_rows *r) {
    void *all[] = {r->q, r->k, r->v, r->got_q, r->q_norm, r->k_norm, r->pools[0], r->pools[1]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static backend_weight *norm_of(backend *be, const struct rope_case *c, const float *w,
                               uint64_t width) {
    if (c->norms == NORM_NONE) return NULL;
    return be_weight(be, QTYPE_F32, 1, c->norms == NORM_HEADS ? c->head_dim : width, w);
}

/* Runs the op over rows from..from + n - 1; their q goes to got_q, the pools to pools. */
static void run_rope(backend *be, struct rope_rows *r, uint32_t from, uint32_t n) {
    const struct rope_case *c = r->c;
    r->is_cpu = be_is_cpu(be);
    backend_weight *q_norm = norm_of(be, c, r->q_norm, r->q_width);
    backend_weight *k_norm = norm_of(be, c, r->k_norm, r->k_width);
    struct op_rope_store op = {.q = be_f32(be, r->q + from * r->q_width, n * r->q_width),
                               .k = be_f32(be, r->k + from * r->k_width, n * r->k_width),
                               .v = be_f32(be, r->v + from * r->k_width, n * r->k_width),
                               .pos = be_i32(be, r->pos + from, n),
                               .slots = be_i32(be, r->slots + from, n),
                               .inv_freq = be_f32(be, r->inv_freq, c->n_rot ? c->n_rot / 2 : 1),
                               .q_norm = q_norm,
                               .k_norm = c->q_alone ? NULL : k_norm,
                               .v_normed = c->v_normed,
                               .eps = EPS,
                               .magnitude = c->magnitude,
                               .n_rows = n,
                               .n_heads = c->n_heads,
                               .n_rot = c->n_rot,
                               .interleaved = c->interleaved,
                               .norm_last = c->norm_last,
                               .q_log_scale = c->q_log_scale,
                               .q_log_length = c->q_log_length,
                               .q_log_from = c->q_log_from,
                               .kv = r->kv};
    err e;
    op.kv.k = be_bytes(be, r->pools[0], r->pool_bytes);
    op.kv.v = be_bytes(be, r->pools[1], r->pool_bytes);
    backend_buf *const k = op.k, *const v = op.v;
    if (c->q_alone) op.k = op.v = NULL;
    CHECK(backend_rope_store(be, &op) == 0);
    op.k = k, op.v = v;
    be_get(be, op.q, r->got_q + from * r->q_width, n * r->q_width);
    CHECK(backend_download(be, op.kv.k, 0, r->pools[0], r->pool_bytes, &e) == 0);
    CHECK(backend_download(be, op.kv.v, 0, r->pools[1], r->pool_bytes, &e) == 0);
    const backend_buf *all[] = {op.q, op.k, op.v, op.kv.k, op.kv.v, op.pos, op.slots, op.inv_freq};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        backend_buf_free((backend_buf *)all[i]);
    backend_weight_free(q_norm);
    backend_weight_free(k_norm);
}

/* ---- against float64 ---- */

static double inverse_rms(const double *x, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return 1 / sqrt(sum / (double)n + (double)EPS);
}

static void rotate(const struct rope_rows *r, int32_t pos, double *x) {
    const struct rope_case *c = r->c;
    const uint32_t half = c->n_rot / 2;
    for (uint32_t i = 0; i < half; i++) {
        double angle = (double)((float)pos * r->inv_freq[i]); /* the angle itself is f32 */
        double m = c->magnitude != 0 ? c->magnitude : 1;
        uint32_t first = c->interleaved ? 2 * i : i, second = c->interleaved ? 2 * i + 1 : i + half;
        double u = x[first], v = x[second];
        x[first] = (u * cos(angle) - v * sin(angle)) * m;
        x[second] = (u * sin(angle) + v * cos(angle)) * m;
    }
}

/* Head `head` of a row (n_heads, head_dim), normed and rotated. */
static void reference(const struct rope_rows *r, const float *row, const float *norm,
                      uint32_t n_heads, uint32_t head, int32_t pos, double *out) {
    const struct rope_case *c = r->c;
    const uint32_t dim = c->head_dim, n_normed = c->norms == NORM_ROW ? n_heads * dim : dim;
    const uint32_t first = c->norms == NORM_ROW ? 0 : head * dim; /* of what is normed at once */
    double *normed = be_new(n_normed, sizeof *normed);
    for (uint32_t i = 0; i < n_normed; i++)
        normed[i] = row[first + i];
    double *x = normed + head * dim - first;
    if (c->norm_last) rotate(r, pos, x);
    const double scale = inverse_rms(normed, n_normed);
    for (uint32_t d = 0; d < dim; d++)
        out[d] = c->norms == NORM_NONE ? x[d] : x[d] * scale * norm[head * dim - first + d];
    if (!c->norm_last) rotate(r, pos, out);
    free(normed);
}

/* 1 + s log(1 + floor(p / L)): transformers' modeling_ministral3.py. */
static double q_scale(const struct rope_case *c, int32_t pos) {
    if (!c->q_log_length) return 1;
    return 1 + (double)c->q_log_scale *
                   log(1 + floor((double)(pos + (int)c->q_log_from) / c->q_log_length));
}

/* f32 operations: four roundings of a value without norm; with a norm, also sums of up to a row.
 * Metal's sine has fewer digits for angles of many turns. */
static double tolerance(const struct rope_rows *r, double want) {
    const struct rope_case *c = r->c;
    if (!r->is_cpu) return 1e-4 + 1e-3 * fabs(want);
    return (c->norms == NORM_NONE ? 1e-6 : 3e-6) * (1 + fabs(want));
}

/* And half a step of the type: Q8_0's is a 127th of the largest of 32, and its scale is rounded to
 * F16. */
static void check_stored(const struct rope_rows *r, const float *stored, const double *want) {
    int type = r->c->kv_type;
    for (uint32_t d = 0; d < r->c->head_dim; d++) {
        double part = type == QTYPE_F16 ? 0x1p-11 : type == QTYPE_BF16 ? 0x1p-8 : 0;
        double step = part * fabs(want[d]);
        for (uint32_t i = d / 32 * 32; type == QTYPE_Q8_0 && i < d / 32 * 32 + 32; i++)
            step = fmax(step, fabs(want[i]) * (0.5 / 127 + 0x1p-11));
        CHECK_MSG(fabs(stored[d] - want[d]) <= tolerance(r, want[d]) + step, "%s: %g for %g",
                  qtype_name(type), stored[d], want[d]);
    }
}

static void check_row(struct rope_rows *r, uint32_t row) {
    const struct rope_case *c = r->c;
    double want[MAX_DIM];
    float stored[MAX_DIM];
    for (uint32_t h = 0; h < c->n_heads; h++) {
        const float *got = r->got_q + row * r->q_width + h * c->head_dim;
        reference(r, r->q + row * r->q_width, r->q_norm, c->n_heads, h, r->pos[row], want);
        for (uint32_t d = 0; d < c->head_dim; d++)
            want[d] *= q_scale(c, r->pos[row]);
        for (uint32_t d = 0; d < c->head_dim; d++) {
            check_note_error(fabs(got[d] - want[d]) / tolerance(r, want[d]));
            CHECK_MSG(fabs(got[d] - want[d]) <= tolerance(r, want[d]), "dim %u norms %d: %g for %g",
                      c->head_dim, c->norms, got[d], want[d]);
        }
    }
    if (c->q_alone) { /* nothing is stored: the pools are zeros as before */
        for (uint64_t i = 0; i < r->pool_bytes; i++)
            CHECK(!r->pools[0][i] && !r->pools[1][i]);
        return;
    }
    for (uint32_t h = 0; h < c->n_kv_heads; h++) {
        struct kv_row at = {&r->kv, r->pools[0], true, (uint32_t)r->slots[row], h};
        reference(r, r->k + row * r->k_width, r->k_norm, c->n_kv_heads, h, r->pos[row], want);
        kv_get(&at, stored);
        check_stored(r, stored, want);
        for (uint32_t d = 0; d < c->head_dim; d++)
            want[d] = r->v[row * r->k_width + h * c->head_dim + d];
        const double scale = c->v_normed ? inverse_rms(want, c->head_dim) : 1;
        for (uint32_t d = 0; d < c->head_dim; d++)
            want[d] *= scale;
        at.pool = r->pools[1], at.is_k = false;
        kv_get(&at, stored);
        check_stored(r, stored, want);
    }
}

static const struct rope_case cases[] = {
    {.n_heads = 4, .n_kv_heads = 4, .head_dim = 64, .block_tokens = 16, .kv_type = QTYPE_F16},
    {.n_heads = 7, .n_kv_heads = 1, .head_dim = 40, .block_tokens = 16, .kv_type = QTYPE_F32},
    {.n_heads = 8, .n_kv_heads = 8, .head_dim = 128, .block_tokens = 16, .kv_type = QTYPE_F32},
    {.n_heads = 6, .n_kv_heads = 2, .head_dim = 33, .block_tokens = 32, .kv_type = QTYPE_F16},
    {.n_heads = 1, .n_kv_heads = 1, .head_dim = 256, .block_tokens = 32, .kv_type = QTYPE_Q8_0},
    {.n_heads = 5, .n_kv_heads = 5, .head_dim = 7, .block_tokens = 4, .kv_type = QTYPE_F32},
    {.n_heads = 9, .n_kv_heads = 3, .head_dim = 96, .block_tokens = 16, .kv_type = QTYPE_Q8_0},
    {.n_heads = 10, .n_kv_heads = 2, .head_dim = 80, .block_tokens = 32, .kv_type = QTYPE_BF16},
    {.n_heads = 3, .n_kv_heads = 1, .head_dim = 512, .block_tokens = 16, .kv_type = QTYPE_F16},
    {.n_heads = 5, .n_kv_heads = 2, .head_dim = 512, .block_tokens = 32, .kv_type = QTYPE_Q8_0},
    {.n_heads = 2, .n_kv_heads = 1, .head_dim = 24, .block_tokens = 16, .kv_type = QTYPE_BF16},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

/* Chooses everything else of a case at random. */
static struct rope_case random_case(int i, enum norms norms) {
    static const float magnitudes[] = {0, 1, 1.3465735f, 0.25f};
    struct rope_case c = cases[i];
    uint32_t even = c.head_dim / 2 * 2;
    uint32_t rots[] = {even, even, even / 4 * 2, 2, 0};
    c.norms = norms;
    c.n_rot = rots[be_below(sizeof rots / sizeof rots[0])];
    c.interleaved = be_rand() & 1;
    c.magnitude = magnitudes[be_below(sizeof magnitudes / sizeof magnitudes[0])];
    c.base = be_rand() & 1 ? 10000 : 1000000;
    c.norm_last = norms == NORM_HEADS && be_rand() & 1;
    if (be_rand() & 1) {
        c.q_log_scale = 0.3f, c.q_log_length = 1 + be_below(1000);
        c.q_log_from = be_below(2) * be_below(1000);
    }
    return c;
}

/* Options of layers that share K and V. */
static void add_options(struct rope_case *c) {
    c->v_normed = be_below(4) == 0;
    c->q_alone = !c->v_normed && !c->norm_last && be_below(4) == 0;
}

static bool attends(const char *isa, const struct rope_case *c) {
    struct backend_kv kv = kv_of(c);
    return be_attends(isa, &kv);
}

static void test_rope_store(void) {
    struct rope_rows r;
    be_rng.state = 11;
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_row_isa(i) ? be_open(be_isas[i], 2) : NULL;
        if (!be) continue;
        for (int n = 0; n < N_CASES * 3 * (be_quick ? 1 : 4); n++) {
            struct rope_case c = random_case(n % N_CASES, (enum norms)(n / N_CASES % 3));
            if (!attends(be_isas[i], &c)) continue;
            add_options(&c);
            make_rows(&r, &c, 1 + be_below(c.block_tokens < 16 ? 19 : MAX_N));
            run_rope(be, &r, 0, r.n);
            for (uint32_t row = 0; row < r.n; row++)
                check_row(&r, row);
            free_rows(&r);
        }
        backend_close(be);
    }
}

/* ---- bitwise ---- */

/* Runs the rows one by one, on a fresh device with one thread. Devices other than the CPU are
 * opened once: they keep no state of an op, and opening them takes long. */
static void run_alone(const char *isa, struct rope_rows *r) {
    backend *be = be_open(isa, 1);
    for (uint32_t i = 0; i < r->n; i++) {
        if (i && !be_is_device_set(isa)) {
            backend_close(be);
            be = be_open(isa, 1);
        }
        run_rope(be, r, i, 1);
    }
    backend_close(be);
}

/* Rows of layer c at positions seeded by `positions`; only their number differs. */
static void check_layer(backend *be, const char *isa, const struct rope_case *c,
                        uint64_t positions) {
    struct rope_rows r;
    make_rows(&r, c, 1 + be_below(be_is_device_set(isa) && c->block_tokens >= 16 ? MAX_N : 19));
    uint64_t keep = be_rng.state, q_bytes = r.n * r.q_width * 4;
    be_rng.state = positions;
    for (uint32_t i = 0; i < r.n; i++)
        r.pos[i] = (int32_t)be_below(5000);
    be_rng.state = keep;
    run_rope(be, &r, 0, r.n);
    char *want[] = {be_new(q_bytes, 1), be_new(r.pool_bytes, 1), be_new(r.pool_bytes, 1)};
    memcpy(want[0], r.got_q, q_bytes);
    for (int i = 0; i < 2; i++) {
        memcpy(want[1 + i], r.pools[i], r.pool_bytes);
        memset(r.pools[i], 0, r.pool_bytes);
    }
    run_alone(isa, &r);
    CHECK_MSG(memcmp(r.got_q, want[0], q_bytes) == 0, "%s: q", isa);
    for (int i = 0; i < 2; i++)
        CHECK_MSG(memcmp(r.pools[i], want[1 + i], r.pool_bytes) == 0, "%s: %c", isa, i ? 'v' : 'k');
    for (int i = 0; i < 3; i++)
        free(want[i]);
    free_rows(&r);
}

/* Layers with three sets of angles and one without, over steps that keep or change positions: the
 * device's cached angles of one layer never affect another. */
static void check_layers(const char *isa, int n_threads) {
    backend *be = be_open(isa, n_threads);
    struct rope_case layer[4];
    for (int i = 0; i < 4; i++) {
        do {
            layer[i] = random_case((int)be_below(N_CASES), (enum norms)be_below(3));
        } while (!attends(isa, &layer[i]));
        layer[i].base = i % 2 ? 1000000 : 10000;
        add_options(&layer[i]);
    }
    layer[2].n_rot = 0;
    layer[3] = layer[1]; /* the same angles, other magnitude */
    layer[3].magnitude = layer[1].magnitude + 0.5f;
    for (int step = 0; step < 4; step++) {
        uint64_t positions = be_rng.state;
        for (int i = 0; i < 5; i++)
            check_layer(be, isa, &layer[be_below(4)], positions);
    }
    backend_close(be);
}

static void test_rope_invariance(void) {
    be_rng.state = 12;
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_row_isa(i) ? be_open(be_isas[i], 1) : NULL;
        if (!be) continue;
        backend_close(be);
        for (int n = 0; n < (be_quick ? 2 : 6); n++)
            check_layers(be_isas[i], n % 2 ? 1 : 3);
    }
}

/* F16 stores values beyond its range as its largest value; a row whose slot is in no block is not
 * stored. */
static void check_ends(backend *be) {
    enum { DIM = 8, TOKENS = 16, ROWS = 3, RUN_VALUES = DIM * TOKENS };
    float q[ROWS * DIM] = {0}, k[ROWS * DIM], v[ROWS * DIM];
    int32_t pos[ROWS] = {0, 1, 2}, slots[ROWS] = {0, TOKENS, -1}; /* of one block */
    uint16_t pools[2][RUN_VALUES];
    err e;
    for (int i = 0; i < ROWS * DIM; i++) {
        k[i] = i % 2 ? 1e6f : -1e6f;
        v[i] = i % 3 ? -70000 : 65504;
    }
    backend_buf *bufs[] = {be_f32(be, q, ROWS * DIM),
                           be_f32(be, k, ROWS * DIM),
                           be_f32(be, v, ROWS * DIM),
                           be_i32(be, pos, ROWS),
                           be_i32(be, slots, ROWS),
                           be_bytes(be, NULL, sizeof pools[0]),
                           be_bytes(be, NULL, sizeof pools[0]),
                           be_f32(be, NULL, 1)};
    const struct op_rope_store a = {.q = bufs[0],
                                    .k = bufs[1],
                                    .v = bufs[2],
                                    .pos = bufs[3],
                                    .slots = bufs[4],
                                    .inv_freq = bufs[7],
                                    .n_rows = ROWS,
                                    .n_heads = 1,
                                    .kv = {.k = bufs[5],
                                           .v = bufs[6],
                                           .kv_type = QTYPE_F16,
                                           .n_blocks = 1,
                                           .n_kv_heads = 1,
                                           .block_tokens = TOKENS,
                                           .head_dim = DIM}};
    struct op_rope_store wrong = a;
    wrong.norm_last = true; /* without norms */
    CHECK(backend_rope_store(be, &wrong) == ERR_INVALID);
    wrong = a, wrong.q_log_scale = 0.1f;
    CHECK(backend_rope_store(be, &wrong) == ERR_INVALID);
    wrong = a, wrong.q_log_length = 10;
    CHECK(backend_rope_store(be, &wrong) == ERR_INVALID);
    CHECK(backend_rope_store(be, &a) == 0);
    for (int p = 0; p < 2; p++)
        CHECK(backend_download(be, bufs[5 + p], 0, pools[p], sizeof pools[p], &e) == 0);
    for (int i = 0; i < RUN_VALUES; i++) {
        int token = i % TOKENS, d = i / TOKENS; /* K is (head_dim, block_tokens) */
        CHECK(f16_to_f32(pools[0][i]) == (token ? 0 : d % 2 ? 65504.0f : -65504.0f));
        CHECK(f16_to_f32(pools[1][i]) == (i >= DIM ? 0 : i % 3 ? -65504.0f : 65504.0f));
    }
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        backend_buf_free(bufs[i]);
}

static void test_ends(void) {
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_is_device_set(be_isas[i]) ? be_open(be_isas[i], 1) : NULL;
        if (!be) continue;
        check_ends(be);
        backend_close(be);
    }
}

static void check_kv_copy(backend *be, int kv_type, uint32_t head_dim) {
    enum { N = 9 };
    enum { N_PAIRS = 7 }; /* in order: a block may be written, read and written again */
    static const int32_t pairs[2 * N_PAIRS] = {0, 5, 3, 1, 8, 8, 5, 2, 6, 5, 7, 6, 0, 3};
    struct backend_kv kv = {.kv_type = kv_type,
                            .n_blocks = N,
                            .n_kv_heads = 2,
                            .block_tokens = 16,
                            .head_dim = head_dim};
    uint64_t block = kv_block_size(&kv);
    err e;
    char *want[2], *got = be_new(N, block);
    backend_buf *pools[2];
    for (int i = 0; i < 2; i++) {
        want[i] = be_new(N, block);
        for (uint64_t at = 0; at < N * block; at++)
            want[i][at] = (char)be_below(256);
        pools[i] = be_bytes(be, want[i], N * block);
    }
    kv.k = pools[0], kv.v = pools[1];
    struct op_kv_copy op = {kv, pairs, N_PAIRS};
    CHECK(backend_kv_copy(be, &op) == 0);
    for (int i = 0; i < 2; i++) {
        for (int p = 0; p < N_PAIRS; p++)
            memmove(want[i] + (uint64_t)pairs[2 * p + 1] * block,
                    want[i] + (uint64_t)pairs[2 * p] * block, block);
        CHECK(backend_download(be, pools[i], 0, got, N * block, &e) == 0);
        CHECK(memcmp(got, want[i], N * block) == 0);
    }
    const int32_t outside[] = {0, N};
    op = (struct op_kv_copy){kv, outside, 1};
    CHECK(backend_kv_copy(be, &op) == ERR_INVALID);
    for (int i = 0; i < 2; i++) {
        backend_buf_free(pools[i]);
        free(want[i]);
    }
    free(got);
}

static void test_kv_copy(void) {
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_row_isa(i) ? be_open(be_isas[i], 2) : NULL;
        if (!be) continue;
        check_kv_copy(be, QTYPE_F16, 64);
        check_kv_copy(be, QTYPE_Q8_0, 128);
        if (be_is_cpu(be)) check_kv_copy(be, QTYPE_F32, 8);
        backend_close(be);
    }
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(test_rope_store);
    RUN(test_rope_invariance);
    RUN(test_ends);
    RUN(test_kv_copy);
    return check_done();
}
