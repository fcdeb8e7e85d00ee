/* test_mla.c - the ops of multi-head latent attention against float64: products by head of every
 * weight type, and norm, rotation, storage and attention of latent rows; bitwise the same in any
 * batch and chunks and with any number of threads. */
#include "tests/support/matrix.h"
#include "tests/unit/check.h"

/* ---- products by head ---- */

enum { MOST_ROWS = 70, MOST_HEADS = 20, MOST_DIM = 320 };

static backend *open_heads(const char *isa, int n_threads, int bits) {
    struct backend_config config = {.n_threads = n_threads,
                                    .max_rows = MOST_ROWS,
                                    .max_cols = 64,
                                    .activation_bits = bits,
                                    .heads = {MOST_HEADS, MOST_DIM}};
    return be_open_config(config, isa);
}

struct heads_case {
    const struct block_type *type;
    uint32_t n_heads, n_in, n_out, n_tail, n_rows;
};

/* Rows at.. of x through the op. */
static void run_heads(backend *be, const struct heads_case *c, const backend_weight *w,
                      const float *x, uint32_t at, uint32_t n, float *y) {
    const uint64_t in = (uint64_t)c->n_heads * (c->n_in + c->n_tail),
                   out = (uint64_t)c->n_heads * (c->n_out + c->n_tail);
    backend_buf *xb = be_f32(be, x + at * in, n * in), *yb = be_f32(be, NULL, n * out);
    const struct op_linear_heads op = {.x = xb, .w = w, .n_rows = n, .n_tail = c->n_tail, .y = yb};
    CHECK(backend_linear_heads(be, &op) == 0);
    be_get(be, yb, y + at * out, n * out);
    backend_buf_free(xb);
    backend_buf_free(yb);
}

static void check_row(const struct heads_case *c, const struct matrix *m, const float *x,
                      const float *y, int bits) {
    for (uint32_t h = 0; h < c->n_heads; h++) {
        const float *in = x + (uint64_t)h * (c->n_in + c->n_tail),
                    *out = y + (uint64_t)h * (c->n_out + c->n_tail);
        for (uint32_t o = 0; o < c->n_out; o++) {
            const uint32_t row = h * c->n_out + o;
            const double error = fabs(out[o] - matrix_product(m, in, row, 0));
            CHECK_MSG(error <= matrix_allowed(m, in, row, 0, matrix_top(bits)),
                      "%s, %u heads: off by %g", qtype_name(m->type), c->n_heads, error);
        }
        CHECK(!memcmp(out + c->n_out, in + c->n_in, c->n_tail * sizeof *in));
    }
}

/* All rows at once with two threads, then some at a time with three: float64, and the same bits. */
static void check_heads(const char *isa, const struct heads_case *c, int bits) {
    const uint64_t n_x = (uint64_t)c->n_rows * c->n_heads * (c->n_in + c->n_tail),
                   row = (uint64_t)c->n_heads * (c->n_out + c->n_tail), n_y = c->n_rows * row;
    struct matrix m = matrix_make(c->type, c->n_heads * c->n_out, c->n_in, true);
    float *x = be_new(n_x, sizeof *x), *y[2] = {be_new(n_y, sizeof *x), be_new(n_y, sizeof *x)};
    be_fill(x, n_x, 1);
    for (int k = 0; k < 2; k++) {
        backend *be = open_heads(isa, 2 + k, bits);
        m.rounding = be_rounding(be, m.type);
        backend_weight *w = be_experts(be, m.type, c->n_heads, c->n_out, c->n_in, m.packed);
        for (uint32_t at = 0, n; at < c->n_rows; at += n) {
            n = k ? 1 + be_below(40) : c->n_rows;
            if (n > c->n_rows - at) n = c->n_rows - at;
            run_heads(be, c, w, x, at, n, y[k]);
        }
        backend_weight_free(w);
        backend_close(be);
    }
    for (uint32_t r = 0; r < c->n_rows; r++)
        check_row(c, &m, x + r * (n_x / c->n_rows), y[0] + r * row, bits);
    CHECK_MSG(!memcmp(y[0], y[1], n_y * sizeof *x), "%s %s: batches change bits", isa,
              qtype_name(m.type));
    free(y[1]);
    free(y[0]);
    free(x);
    matrix_free(&m);
}

static void test_linear_heads(void) {
    static const uint32_t heads[] = {1, 3, 20}, rows[] = {1, 5, 33, MOST_ROWS},
                          dims[] = {19, 48, 5, 128}, by_32[] = {32, 96, 288};
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = open_heads(be_isas[i], 1, 8);
        const bool has = be && backend_has_op(be, BACKEND_OP_linear_heads);
        backend_close(be);
        be_rng.state = 5 + (uint64_t)i;
        for (int t = 0; has && t < N_BLOCK_TYPES; t++) {
            const uint32_t block = qtype_find(block_types[t].type)->block_elems;
            struct heads_case c = {.type = &block_types[t],
                                   .n_heads = heads[be_below(3)],
                                   .n_in = block == 1    ? dims[be_below(4)]
                                           : block == 32 ? by_32[be_below(3)]
                                                         : 256,
                                   .n_out = dims[be_below(4)],
                                   .n_tail = be_below(2) ? 6 : 0,
                                   .n_rows = rows[be_below(4)]};
            if (c.n_heads == 20 && c.n_rows > 33) c.n_rows = 33;
            check_heads(be_isas[i], &c, be_below(2) ? 8 : 16);
        }
    }
}

static void test_heads_refusals(void) {
    float zeros[2 * 3 * 16] = {0};
    backend *be = open_heads("", 1, 8);
    backend_buf *x = be_f32(be, zeros, 2 * 3 * 8), *y = be_f32(be, zeros, 2 * 3 * 8);
    backend_weight *w = be_experts(be, QTYPE_F32, 3, 4, 8, zeros);
    struct op_linear_heads op = {.x = x, .w = w, .n_rows = 2, .y = y};
    CHECK(backend_linear_heads(be, &op) == 0);
    op.n_tail = 1; /* x is smaller */
    CHECK(backend_linear_heads(be, &op) == ERR_INVALID);
    op.n_tail = 0, op.y = x;
    CHECK(backend_linear_heads(be, &op) == ERR_INVALID);
    op.y = y, op.n_rows = MOST_ROWS + 1;
    CHECK(backend_linear_heads(be, &op) == ERR_INVALID);
    backend_weight_free(w);
    w = be_weight(be, QTYPE_F32, 4, 8, zeros); /* of no heads */
    op.w = w, op.n_rows = 2;
    CHECK(backend_linear_heads(be, &op) == ERR_INVALID);
    backend_weight_free(w);
    backend_buf_free(y);
    backend_buf_free(x);
    backend_close(be);
}

/* ---- latent rows ---- */

enum { MOST_TOKENS = 600, TABLE = 64, MOST_ROW = 576 };

struct latent_case {
    uint32_t n_heads, v_dim, n_rot, block_tokens;
    int kv_type;
    uint32_t n_tokens;
    bool interleaved, norm;
};

struct latents {
    struct latent_case c;
    uint32_t dim;
    float *q, *k, *norm, inv_freq[32]; /* q (n, n_heads, dim), k (n, dim) */
    int32_t table[TABLE];
    float *rows;  /* (n, dim), as stored */
    double scale; /* of scores */
};

/* A row as it should be stored: normed, rotated, rounded. */
static void store_row(const struct latents *l, uint32_t t, float *row) {
    const uint32_t v = l->c.v_dim, n_rot = l->c.n_rot;
    double x[MOST_ROW], sum = 0;
    float values[MOST_ROW];
    uint8_t bytes[MOST_ROW * 4 + 64];
    for (uint32_t d = 0; d < l->dim; d++)
        x[d] = (double)l->k[(uint64_t)t * l->dim + d];
    for (uint32_t d = 0; d < v; d++)
        sum += x[d] * x[d];
    for (uint32_t d = 0; l->c.norm && d < v; d++)
        x[d] *= (double)l->norm[d] / sqrt(sum / v + (double)1e-5f);
    for (uint32_t i = 0; i < n_rot / 2; i++) {
        double *a = x + v + (l->c.interleaved ? 2 * i : i),
               *b = a + (l->c.interleaved ? 1 : n_rot / 2);
        const double angle = (double)((float)t * l->inv_freq[i]), u = *a, w = *b;
        *a = u * cos(angle) - w * sin(angle);
        *b = u * sin(angle) + w * cos(angle);
    }
    for (uint32_t d = 0; d < l->dim; d++)
        values[d] = (float)x[d];
    qtype_encode(l->c.kv_type, values, bytes, l->dim);
    qtype_decode(l->c.kv_type, bytes, row, l->dim);
}

static struct latents latents_new(const struct latent_case *c) {
    struct latents l = {.c = *c, .dim = c->v_dim + c->n_rot};
    const uint64_t n = c->n_tokens;
    l.q = be_new(n * c->n_heads * l.dim, sizeof(float));
    l.k = be_new(n * l.dim, sizeof(float));
    l.norm = be_new(c->v_dim, sizeof(float));
    l.rows = be_new(n * l.dim, sizeof(float));
    l.scale = 2 / sqrt(l.dim);
    be_fill(l.q, n * c->n_heads * l.dim, 1);
    be_fill(l.k, n * l.dim, 1.5f);
    be_fill(l.norm, c->v_dim, 1);
    for (uint32_t i = 0; i < c->n_rot / 2; i++)
        l.inv_freq[i] = powf(100, -2.0f * (float)i / (float)c->n_rot);
    for (int32_t b = 0; b < TABLE; b++)
        l.table[b] = (b * 37 + 11) % TABLE; /* a permutation */
    for (uint32_t t = 0; t < n; t++)
        store_row(&l, t, l.rows + (uint64_t)t * l.dim);
    return l;
}

static void latents_free(struct latents *l) {
    free(l->rows);
    free(l->norm);
    free(l->k);
    free(l->q);
}

/* Q of token t as attention reads it. */
static void rotate_query(const struct latents *l, uint32_t t, uint32_t h, double *q) {
    const uint32_t v = l->c.v_dim, n_rot = l->c.n_rot;
    for (uint32_t d = 0; d < l->dim; d++)
        q[d] = (double)l->q[((uint64_t)t * l->c.n_heads + h) * l->dim + d];
    for (uint32_t i = 0; i < n_rot / 2; i++) {
        double *a = q + v + (l->c.interleaved ? 2 * i : i),
               *b = a + (l->c.interleaved ? 1 : n_rot / 2);
        const double angle = (double)((float)t * l->inv_freq[i]), u = *a, w = *b;
        *a = u * cos(angle) - w * sin(angle);
        *b = u * sin(angle) + w * cos(angle);
    }
}

static double worst_of_token(const struct latents *l, uint32_t t, const float *out) {
    double q[MOST_ROW], p[MOST_TOKENS], worst = 0;
    for (uint32_t h = 0; h < l->c.n_heads; h++) {
        double max = -INFINITY, sum = 0;
        rotate_query(l, t, h, q);
        for (uint32_t s = 0; s <= t; s++) {
            p[s] = 0;
            for (uint32_t d = 0; d < l->dim; d++)
                p[s] += q[d] * (double)l->rows[(uint64_t)s * l->dim + d];
            p[s] *= l->scale;
            max = fmax(max, p[s]);
        }
        for (uint32_t s = 0; s <= t; s++)
            sum += p[s] = exp(p[s] - max);
        for (uint32_t d = 0; d < l->c.v_dim; d++) {
            double want = 0;
            for (uint32_t s = 0; s <= t; s++)
                want += p[s] / sum * (double)l->rows[(uint64_t)s * l->dim + d];
            const double error = fabs((double)out[h * l->c.v_dim + d] - want);
            if (!(error <= worst)) worst = error;
        }
    }
    return worst;
}

struct device {
    backend *be;
    struct backend_kv kv;
    backend_weight *norm;
};

static struct device device_open(const char *isa, const struct latents *l, int n_threads) {
    struct backend_config config = {
        .n_threads = n_threads, .max_rows = MOST_TOKENS, .max_cols = 64};
    struct device d = {.be = be_open_config(config, isa)};
    uint64_t bytes = 0;
    if (!d.be) return d;
    d.kv = (struct backend_kv){.kv_type = l->c.kv_type,
                               .n_blocks = TABLE,
                               .n_kv_heads = 1,
                               .block_tokens = l->c.block_tokens,
                               .head_dim = l->dim,
                               .v_dim = l->c.v_dim};
    if (!backend_kv_fits(d.be, &d.kv) || !backend_kv_block_bytes(&d.kv, &bytes)) {
        backend_close(d.be);
        d.be = NULL;
        return d;
    }
    void *nan = be_new(bytes * TABLE, 1);
    memset(nan, 0xff, bytes * TABLE);
    d.kv.k = be_bytes(d.be, nan, bytes * TABLE);
    free(nan);
    d.norm = be_weight(d.be, QTYPE_F32, 1, l->c.v_dim, l->norm);
    return d;
}

static void device_close(struct device *d) {
    backend_weight_free(d->norm);
    backend_buf_free(d->kv.k);
    backend_close(d->be);
}

/* Tokens at .. at + n - 1: stores them and attends. */
static int step(const struct device *d, const struct latents *l, uint32_t at, uint32_t n,
                float *out) {
    const uint64_t width = (uint64_t)l->c.n_heads * l->dim, v = (uint64_t)l->c.n_heads * l->c.v_dim;
    int32_t pos[MOST_TOKENS], slots[MOST_TOKENS], start[2] = {0, (int32_t)n};
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t t = at + i;
        pos[i] = (int32_t)t;
        slots[i] = l->table[t / l->c.block_tokens] * (int32_t)l->c.block_tokens +
                   (int32_t)(t % l->c.block_tokens);
    }
    backend *be = d->be;
    backend_buf *q = be_f32(be, l->q + at * width, n * width),
                *k = be_f32(be, l->k + (uint64_t)at * l->dim, (uint64_t)n * l->dim),
                *y = be_f32(be, NULL, n * v), *pb = be_i32(be, pos, n), *sb = be_i32(be, slots, n),
                *rb = be_i32(be, start, 2), *tb = be_i32(be, l->table, TABLE),
                *freq = be_f32(be, l->inv_freq, 32);
    const struct op_store_attend op = {.store = {.q = q,
                                                 .k = k,
                                                 .pos = pb,
                                                 .slots = sb,
                                                 .inv_freq = freq,
                                                 .k_norm = l->c.norm ? d->norm : NULL,
                                                 .eps = 1e-5f,
                                                 .n_rows = n,
                                                 .n_heads = l->c.n_heads,
                                                 .n_rot = l->c.n_rot,
                                                 .interleaved = l->c.interleaved,
                                                 .kv = d->kv},
                                       .attend = {.q = q,
                                                  .pos = pb,
                                                  .row_start = rb,
                                                  .tables = tb,
                                                  .n_rows = n,
                                                  .n_seqs = 1,
                                                  .n_heads = l->c.n_heads,
                                                  .table_stride = TABLE,
                                                  .scale = (float)l->scale,
                                                  .kv = d->kv,
                                                  .out = y}};
    const int rc = backend_store_attend(be, &op);
    if (!rc) be_get(be, y, out + at * v, n * v);
    backend_buf *all[] = {q, k, y, pb, sb, rb, tb, freq};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        backend_buf_free(all[i]);
    return rc;
}

/* Rows that the reference rounds otherwise may differ by a step of their type. */
static double tolerance_of(int kv_type) {
    return kv_type == QTYPE_F32 ? 5e-5 : kv_type == QTYPE_F16 ? 2e-3 : 2e-2;
}

static void check_latents(const char *isa, const struct latent_case *c) {
    struct latents l = latents_new(c);
    const uint64_t v = (uint64_t)c->n_heads * c->v_dim;
    float *out[2] = {be_new(c->n_tokens * v, sizeof(float)),
                     be_new(c->n_tokens * v, sizeof(float))};
    for (int k = 0; k < 2; k++) {
        struct device d = device_open(isa, &l, k ? 3 : 1);
        if (!d.be) break;
        for (uint32_t at = 0, n; at < c->n_tokens; at += n) {
            n = k ? be_below(2) ? 1 : 1 + be_below(90) : c->n_tokens;
            if (n > c->n_tokens - at) n = c->n_tokens - at;
            CHECK(step(&d, &l, at, n, out[k]) == 0);
        }
        device_close(&d);
        if (k)
            CHECK_MSG(!memcmp(out[0], out[1], c->n_tokens * v * sizeof(float)),
                      "%s, %u heads of %u: chunks change bits", isa, c->n_heads, l.dim);
        for (uint32_t t = 0; !k && t < c->n_tokens; t += t < 70 ? 23 : 131) {
            const double worst = worst_of_token(&l, t, out[0] + t * v);
            CHECK_MSG(worst <= tolerance_of(c->kv_type), "%s %s, %u heads of %u at %u: off by %g",
                      isa, qtype_name(c->kv_type), c->n_heads, l.dim, t, worst);
        }
    }
    free(out[1]);
    free(out[0]);
    latents_free(&l);
}

static void test_latent_rows(void) {
    static const struct latent_case cases[] = {
        {16, 512, 64, 16, QTYPE_F16, 290, true, true}, {1, 512, 64, 32, QTYPE_F32, 70, true, true},
        {70, 48, 16, 16, QTYPE_BF16, 60, true, true},  {3, 29, 6, 16, QTYPE_F32, 530, true, true},
        {2, 20, 4, 4, QTYPE_F16, 130, false, false},   {5, 96, 32, 32, QTYPE_Q8_0, 140, true, true},
    };
    be_rng.state = 77;
    for (int i = 0; i < BE_N_ISAS; i++)
        for (size_t n = 0; be_row_isa(i) && n < sizeof cases / sizeof cases[0]; n++) {
            struct latent_case c = cases[n];
            if (be_quick && n == 1) continue;
            if (be_quick) c.n_tokens = n == 3 ? 270 : 44; /* one is longer than a chunk */
            check_latents(be_isas[i], &c);
        }
}

/* A copied block has the same K; a pool of V, and rotated dimensions inside V, are refused. */
static void test_pool(void) {
    const struct latent_case c = {2, 32, 8, 16, QTYPE_F32, 20, true, true};
    struct latents l = latents_new(&c);
    struct device d = device_open("", &l, 1);
    float out[20 * 2 * 32];
    const int32_t pair[] = {l.table[0], l.table[9]};
    const uint64_t block = 40 * 16 * sizeof(float);
    char *k = be_new(2, block);
    err e;
    CHECK(step(&d, &l, 0, 20, out) == 0);
    CHECK(backend_kv_copy(d.be, &(struct op_kv_copy){d.kv, pair, 1}) == 0);
    CHECK(backend_download(d.be, d.kv.k, (uint64_t)pair[0] * block, k, block, &e) == 0);
    CHECK(backend_download(d.be, d.kv.k, (uint64_t)pair[1] * block, k + block, block, &e) == 0);
    CHECK(!memcmp(k, k + block, block));
    d.kv.v = d.kv.k;
    CHECK(step(&d, &l, 0, 20, out) == ERR_INVALID);
    d.kv.v = NULL, l.c.n_rot = 10;
    CHECK(step(&d, &l, 0, 20, out) == ERR_INVALID);
    l.c.n_rot = 8, d.kv.v_dim = 40;
    CHECK(step(&d, &l, 0, 20, out) == ERR_INVALID && !backend_kv_fits(d.be, &d.kv));
    free(k);
    device_close(&d);
    latents_free(&l);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(test_linear_heads);
    RUN(test_heads_refusals);
    RUN(test_latent_rows);
    RUN(test_pool);
    return check_done();
}
