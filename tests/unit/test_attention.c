/* test_attention.c - paged attention against float64: random block tables over
 * pools that hold NaN wherever nothing was stored, prefill chunks and decode rows mixed; bitwise
 * the same alone, in any batch and with any number of threads. */
#include "tests/support/be.h"
#include "tests/support/kv_pool.h"
#include "tests/unit/attention_bench.h"
#include "tests/unit/check.h"

enum { STRIDE = 64, MAX_SEQS = 5, N_BLOCKS = STRIDE * MAX_SEQS, MAX_CONTEXT = 989 };
enum { MAX_HEADS = 71 };

struct shape {
    uint32_t n_heads, n_kv_heads, head_dim, block_tokens;
    int kv_type;
};

/* What an architecture adds to softmax(q K^T) V. */
struct features {
    uint32_t window;
    float softcap;
    bool sinks;
};

/* Sequences with all their K and V, and where the pools keep them. */
struct scene {
    struct shape s;
    struct features f;
    float sinks[MAX_HEADS];
    uint32_t n_seqs, context[MAX_SEQS]; /* tokens stored */
    float *k[MAX_SEQS], *v[MAX_SEQS];   /* (context, n_kv_heads, head_dim), as stored */
    int32_t tables[MAX_SEQS * STRIDE];
    void *k_pool, *v_pool; /* host copies of the pools */
    uint64_t pool_bytes;
    backend_buf *k_buf, *v_buf; /* the same on the backend in use */
};

struct rows {
    uint32_t n, n_seqs;
    uint32_t seq[BE_MAX_ROWS];
    int32_t pos[BE_MAX_ROWS], row_start[MAX_SEQS + 1], seq_of[MAX_SEQS];
    const float *q[BE_MAX_ROWS]; /* (n_heads, head_dim) each */
};

static struct backend_kv kv_of(const struct shape *s, uint32_t n_blocks, backend_buf *k,
                               backend_buf *v) {
    return (struct backend_kv){.k = k,
                               .v = v,
                               .kv_type = s->kv_type,
                               .n_blocks = n_blocks,
                               .n_kv_heads = s->n_kv_heads,
                               .block_tokens = s->block_tokens,
                               .head_dim = s->head_dim};
}

/* Values become what the pool holds, so the reference sees what the kernel reads. */
static void put_token(struct scene *c, uint32_t seq, uint32_t pos, float *src, bool is_k) {
    struct backend_kv kv = kv_of(&c->s, N_BLOCKS, NULL, NULL);
    uint32_t block = (uint32_t)c->tables[seq * STRIDE + pos / c->s.block_tokens];
    struct kv_row row = {.kv = &kv,
                         .pool = is_k ? c->k_pool : c->v_pool,
                         .is_k = is_k,
                         .slot = block * c->s.block_tokens + pos % c->s.block_tokens};
    for (; row.head < c->s.n_kv_heads; row.head++)
        kv_put(&row, src + ((uint64_t)pos * c->s.n_kv_heads + row.head) * c->s.head_dim);
}

static void make_scene(struct scene *c, const struct shape *s, struct features f, float scale) {
    uint32_t width = s->n_kv_heads * s->head_dim, order[N_BLOCKS], used = 0;
    memset(c, 0, sizeof *c);
    c->s = *s, c->f = f;
    for (uint32_t h = 0; f.sinks && h < s->n_heads; h++) /* of little, much or all of the weight */
        c->sinks[h] = h % 5 == 3 ? -INFINITY : h % 7 == 5 ? 200 : be_real() * 8;
    c->n_seqs = 1 + be_below(MAX_SEQS);
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        order[i] = i;
    for (uint32_t i = N_BLOCKS - 1; i > 0; i--) {
        uint32_t k = be_below(i + 1), keep = order[i];
        order[i] = order[k], order[k] = keep;
    }
    struct backend_kv kv = kv_of(s, N_BLOCKS, NULL, NULL);
    c->pool_bytes = N_BLOCKS * kv_block_size(&kv);
    c->k_pool = be_new(c->pool_bytes, 1);
    c->v_pool = be_new(c->pool_bytes, 1);
    memset(c->k_pool, 0xff, c->pool_bytes); /* NaN as any type, as Q8_0's scale */
    memset(c->v_pool, 0xff, c->pool_bytes);
    for (uint32_t q = 0; q < c->n_seqs; q++) {
        static const uint32_t odd[] = {1, 2, 19, 33, 99, 256, 257, 513, MAX_CONTEXT, MAX_CONTEXT};
        c->context[q] = q ? 1 + be_below(200) : odd[be_below(sizeof odd / sizeof odd[0])];
        if (c->context[q] > STRIDE * s->block_tokens) c->context[q] = STRIDE * s->block_tokens;
        uint32_t n_blocks = (c->context[q] + s->block_tokens - 1) / s->block_tokens;
        uint64_t n = (uint64_t)c->context[q] * width;
        for (uint32_t b = 0; b < n_blocks; b++)
            c->tables[q * STRIDE + b] = (int32_t)order[used++];
        c->k[q] = be_new(n, sizeof(float));
        c->v[q] = be_new(n, sizeof(float));
        be_fill(c->k[q], n, scale);
        be_fill(c->v[q], n, 1);
        for (uint32_t p = 0; p < c->context[q]; p++) {
            put_token(c, q, p, c->k[q], true);
            put_token(c, q, p, c->v[q], false);
        }
    }
}

static void free_scene(struct scene *c) {
    for (uint32_t q = 0; q < c->n_seqs; q++) {
        free(c->k[q]);
        free(c->v[q]);
    }
    free(c->k_pool);
    free(c->v_pool);
}

static void upload_pools(backend *be, struct scene *c) {
    c->k_buf = be_bytes(be, c->k_pool, c->pool_bytes);
    c->v_buf = be_bytes(be, c->v_pool, c->pool_bytes);
}

static void free_pools(struct scene *c) {
    backend_buf_free(c->k_buf);
    backend_buf_free(c->v_buf);
}

static void add_seq(struct rows *r, uint32_t seq, const int32_t *pos, uint32_t n, const float *q,
                    uint64_t width) {
    r->seq_of[r->n_seqs++] = (int32_t)seq;
    for (uint32_t i = 0; i < n; i++, r->n++) {
        r->seq[r->n] = seq;
        r->pos[r->n] = pos[i];
        r->q[r->n] = q + i * width;
    }
    r->row_start[r->n_seqs] = (int32_t)r->n;
}

static uint32_t first_key(const struct scene *c, int32_t pos) {
    uint32_t n = (uint32_t)pos + 1;
    return c->f.window && n > c->f.window ? n - c->f.window : 0;
}

/* The block table of sequence i of r; what no row sees is no block. */
static void fill_table(const struct scene *c, const struct rows *r, uint32_t i, int32_t *table) {
    uint32_t first = UINT32_MAX;
    for (int32_t row = r->row_start[i]; row < r->row_start[i + 1]; row++)
        if (first_key(c, r->pos[row]) < first) first = first_key(c, r->pos[row]);
    for (uint32_t b = 0; b < STRIDE; b++)
        table[b] =
            b < first / c->s.block_tokens ? -1 : c->tables[r->seq_of[i] * STRIDE + (int32_t)b];
}

/* Runs the op for r; out (n, n_heads, head_dim). */
static void attend(backend *be, const struct scene *c, const struct rows *r, float *out) {
    uint64_t width = (uint64_t)c->s.n_heads * c->s.head_dim;
    float *q = be_new(r->n * width, sizeof *q);
    int32_t tables[MAX_SEQS * STRIDE] = {0};
    for (uint32_t i = 0; i < r->n; i++)
        memcpy(q + i * width, r->q[i], width * sizeof *q);
    for (uint32_t i = 0; i < r->n_seqs; i++)
        fill_table(c, r, i, tables + i * STRIDE);
    backend_weight *sinks = c->f.sinks ? be_weight(be, QTYPE_F32, 1, c->s.n_heads, c->sinks) : NULL;
    struct op_paged_attention op = {.q = be_f32(be, q, r->n * width),
                                    .pos = be_i32(be, r->pos, r->n),
                                    .row_start = be_i32(be, r->row_start, r->n_seqs + 1),
                                    .tables = be_i32(be, tables, (uint64_t)r->n_seqs * STRIDE),
                                    .n_rows = r->n,
                                    .n_seqs = r->n_seqs,
                                    .n_heads = c->s.n_heads,
                                    .table_stride = STRIDE,
                                    .window = c->f.window,
                                    .scale = 1 / sqrtf((float)c->s.head_dim),
                                    .softcap = c->f.softcap,
                                    .sinks = sinks,
                                    .kv = kv_of(&c->s, N_BLOCKS, c->k_buf, c->v_buf),
                                    .out = be_f32(be, NULL, r->n * width)};
    CHECK(backend_paged_attention(be, &op) == 0);
    be_get(be, op.out, out, r->n * width);
    const backend_buf *all[] = {op.q, op.pos, op.row_start, op.tables, op.out};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        backend_buf_free((backend_buf *)all[i]);
    backend_weight_free(sinks);
    free(q);
}

/* Plain softmax(q K^T) V of one query head in float64, and what the scene adds to it. */
static void reference(const struct scene *c, uint32_t seq, int32_t pos, uint32_t head,
                      const float *q, double *out) {
    uint32_t kv_head = head / (c->s.n_heads / c->s.n_kv_heads), dim = c->s.head_dim;
    uint64_t width = (uint64_t)c->s.n_kv_heads * dim, at = (uint64_t)kv_head * dim;
    double score[MAX_CONTEXT], max = c->f.sinks ? c->sinks[head] : -INFINITY, sum = 0;
    double scale = 1 / sqrtf((float)dim), cap = c->f.softcap;
    for (int32_t p = (int32_t)first_key(c, pos); p <= pos; p++) {
        score[p] = 0;
        for (uint32_t d = 0; d < dim; d++)
            score[p] += (double)q[d] * c->k[seq][(uint64_t)p * width + at + d];
        score[p] *= scale;
        if (cap != 0) score[p] = cap * tanh(score[p] / cap);
        max = fmax(max, score[p]);
    }
    for (uint32_t d = 0; d < dim; d++)
        out[d] = 0;
    if (c->f.sinks) sum = exp(c->sinks[head] - max);
    for (int32_t p = (int32_t)first_key(c, pos); p <= pos; p++) {
        double e = exp(score[p] - max);
        sum += e;
        for (uint32_t d = 0; d < dim; d++)
            out[d] += e * c->v[seq][(uint64_t)p * width + at + d];
    }
    for (uint32_t d = 0; d < dim; d++)
        out[d] /= sum;
}

/* V is below 1 in magnitude: errors are absolute. 2e-5 covers the rounding of scores up to 30.
 * Metal's exponential function has fewer digits: 1e-3 and a hundredth. */
static void check_against_reference(backend *be, const struct scene *c, const struct rows *r) {
    uint64_t width = (uint64_t)c->s.n_heads * c->s.head_dim;
    float *out = be_new(r->n * width, sizeof *out);
    double want[256], worst = 0, atol = be_is_cpu(be) ? 2e-5 : 1e-3,
                      rtol = be_is_cpu(be) ? 0 : 1e-2;
    attend(be, c, r, out);
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t h = 0; h < c->s.n_heads; h++) {
            reference(c, r->seq[i], r->pos[i], h, r->q[i] + h * c->s.head_dim, want);
            for (uint32_t d = 0; d < c->s.head_dim; d++) {
                double error = fabs(out[i * width + h * c->s.head_dim + d] - want[d]) /
                               (atol + rtol * fabs(want[d]));
                if (!(error <= worst)) worst = error;
            }
        }
    CHECK_MSG(worst <= 1,
              "%s %s heads %u/%u dim %u block %u window %u cap %g sinks %d: %g of the tolerance",
              backend_isa(be), qtype_name(c->s.kv_type), c->s.n_heads, c->s.n_kv_heads,
              c->s.head_dim, c->s.block_tokens, c->f.window, (double)c->f.softcap, c->f.sinks,
              worst);
    free(out);
}

static const struct shape shapes[] = {
    {4, 4, 64, 16, QTYPE_F16},          {8, 2, 64, 16, QTYPE_F16},   {8, 1, 128, 32, QTYPE_F16},
    {4, 1, 80, 16, QTYPE_F32},          {8, 8, 128, 16, QTYPE_F32},  {16, 2, 64, 32, QTYPE_F32},
    {40, 1, 64, 16, QTYPE_F16},         {3, 1, 24, 16, QTYPE_F16},   {6, 2, 33, 16, QTYPE_F16},
    {2, 1, 256, 32, QTYPE_F16},         {5, 5, 7, 4, QTYPE_F32},     {4, 2, 64, 1, QTYPE_F16},
    {8, 1, 64, 16, QTYPE_Q8_0},         {5, 1, 96, 16, QTYPE_Q8_0},  {6, 2, 128, 32, QTYPE_Q8_0},
    {12, 1, 256, 16, QTYPE_Q8_0},       {3, 3, 32, 32, QTYPE_Q8_0},  {4, 2, 64, 4, QTYPE_Q8_0},
    {8, 1, 64, 32, QTYPE_BF16},         {7, 1, 112, 16, QTYPE_BF16}, {2, 2, 80, 16, QTYPE_BF16},
    {8, 1, 40, 32, QTYPE_F16},          {7, 1, 96, 32, QTYPE_F32},   {3, 3, 128, 16, QTYPE_BF16},
    {MAX_HEADS, 1, 64, 16, QTYPE_BF16}, {6, 1, 120, 16, QTYPE_F16},  {10, 2, 20, 32, QTYPE_BF16},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* Quick: a third of the shapes, others in each test. */
static int shape_step(void) {
    return be_quick ? 3 : 1;
}

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static bool attends(const char *isa, const struct shape *s) {
    struct backend_kv kv = kv_of(s, N_BLOCKS, NULL, NULL);
    return be_attends(isa, &kv);
}

/* Rows of every sequence: one decode row, or a chunk of the prompt that ends anywhere. */
static void random_rows(const struct scene *c, const float *q, struct rows *r) {
    uint64_t width = (uint64_t)c->s.n_heads * c->s.head_dim;
    memset(r, 0, sizeof *r);
    for (uint32_t s = 0; s < c->n_seqs; s++) {
        int32_t pos[48];
        uint32_t n = be_rand() & 1 ? 1 : 1 + be_below(min_u32(c->context[s], 47));
        uint32_t end = n + be_below(c->context[s] - n + 1);
        for (uint32_t i = 0; i < n; i++)
            pos[i] = (int32_t)(end - n + i);
        add_seq(r, s, pos, n, q + r->n * width, width);
    }
}

/* Number n of the combinations: windows shorter and longer than blocks, spans and chunks of keys,
 * and than the context; caps that change every score and such that change few. */
static struct features features_of(int n) {
    static const uint32_t windows[] = {1, 5, 64, 255, 256, 257, 5000};
    static const float caps[] = {0, 50, 2.5f};
    return (struct features){
        .window = n % 4 ? windows[n % 7] : 0, .softcap = caps[n % 3], .sinks = n / 3 % 2};
}

static void check_shape(backend *be, const struct shape *s, struct features f, float *q) {
    struct scene c;
    struct rows r;
    for (int sharp = 0; sharp < 2; sharp++) { /* flat weights; one key takes nearly all */
        make_scene(&c, s, f, sharp ? 12 : 1);
        be_fill(q, (uint64_t)MAX_SEQS * 48 * s->n_heads * s->head_dim, sharp ? 2 : 1);
        random_rows(&c, q, &r);
        upload_pools(be, &c);
        check_against_reference(be, &c, &r);
        free_pools(&c);
        free_scene(&c);
    }
}

static void test_attention(void) {
    float *q = be_new((uint64_t)BE_MAX_ROWS * MAX_HEADS * 64, sizeof *q);
    int feature = 0;
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_row_isa(i) ? be_open(be_isas[i], 2) : NULL;
        if (!be) continue;
        be_seed = 21;
        for (int n = be_quick ? 2 : 0; n < N_SHAPES; n += shape_step()) {
            if (!attends(be_isas[i], &shapes[n])) continue;
            check_shape(be, &shapes[n], (struct features){0}, q);
            for (int k = 0; k < (be_quick ? 1 : 3); k++)
                check_shape(be, &shapes[n], features_of(feature++), q);
        }
        backend_close(be);
    }
    free(q);
}

/* Every position of one sequence: alone on one thread = in chunks of any size, beside others, on
 * more threads. */
static void check_invariance(const char *isa, const struct shape *s, struct features f) {
    static const int threads[] = {1, 2, 3, 8};
    uint64_t width = (uint64_t)s->n_heads * s->head_dim;
    struct scene c;
    struct rows r;
    make_scene(&c, s, f, 1);
    uint32_t n = min_u32(c.context[0], be_quick ? 33 : 40), base = c.context[0] - n;
    if (be_rand() & 1) base = be_below(base + 1);
    float *q = be_new(BE_MAX_ROWS * width, 4), *want = be_new(n * width, 4);
    float *got = be_new(BE_MAX_ROWS * width, 4);
    be_fill(q, BE_MAX_ROWS * width, 1);
    for (int k = 0; k < 4; k++) {
        backend *be = be_open(isa, threads[k]);
        if (!be) break;
        upload_pools(be, &c);
        for (uint32_t i = 0; k == 0 && i < n; i++) {
            int32_t pos = (int32_t)(base + i);
            memset(&r, 0, sizeof r);
            add_seq(&r, 0, &pos, 1, q + i * width, width);
            attend(be, &c, &r, want + i * width);
        }
        for (uint32_t at = 0; at < n;) {
            int32_t pos[40], zero = 0;
            uint32_t m = min_u32(n - at, 1 + be_below(30)), first = 0;
            memset(&r, 0, sizeof r);
            for (uint32_t i = 0; i < m; i++)
                pos[i] = (int32_t)(base + at + i);
            if (c.n_seqs > 1 && be_rand() & 1) add_seq(&r, 1, &zero, 1, q, width);
            first = r.n;
            add_seq(&r, 0, pos, m, q + at * width, width);
            if (c.n_seqs > 2) add_seq(&r, 2, &zero, 1, q, width);
            attend(be, &c, &r, got);
            CHECK_MSG(memcmp(got + first * width, want + at * width, m * width * 4) == 0,
                      "%s %d threads, dim %u, window %u cap %g sinks %d, rows %u..%u", isa,
                      threads[k], s->head_dim, f.window, (double)f.softcap, f.sinks, at, at + m);
            at += m;
        }
        free_pools(&c);
        backend_close(be);
    }
    free(got);
    free(want);
    free(q);
    free_scene(&c);
}

static void test_attention_invariance(void) {
    int feature = 0;
    be_seed = 31;
    for (int i = 0; i < BE_N_ISAS; i++)
        for (int n = be_quick ? 1 : 0; be_row_isa(i) && n < N_SHAPES; n += i ? shape_step() : 3) {
            if (!attends(be_isas[i], &shapes[n])) continue;
            check_invariance(be_isas[i], &shapes[n], (struct features){0});
            for (int k = 0; k < (be_quick ? 1 : 2); k++)
                check_invariance(be_isas[i], &shapes[n], features_of(feature++));
        }
}

/* The end of a prompt at once on three threads = row by row on one, with everything that an
 * architecture may add. */
static void check_prefill(const char *isa, const struct shape *s, uint32_t window) {
    uint64_t width = (uint64_t)s->n_heads * s->head_dim;
    struct scene c;
    struct rows r = {0};
    make_scene(&c, s, (struct features){window, 30, true}, 3);
    uint32_t n = min_u32(c.context[0], BE_MAX_ROWS - 1), base = c.context[0] - n;
    int32_t pos[BE_MAX_ROWS];
    float *q = be_new(n * width, 4), *want = be_new(n * width, 4), *got = be_new(n * width, 4);
    backend *one = be_open(isa, 1), *three = be_open(isa, 3);
    be_fill(q, n * width, 2);
    for (uint32_t i = 0; i < n; i++)
        pos[i] = (int32_t)(base + i);
    add_seq(&r, 0, pos, n, q, width);
    upload_pools(three, &c);
    attend(three, &c, &r, got);
    check_against_reference(three, &c, &r);
    free_pools(&c);
    upload_pools(one, &c);
    for (uint32_t i = 0; i < n; i++) {
        memset(&r, 0, sizeof r);
        add_seq(&r, 0, &pos[i], 1, q + i * width, width);
        attend(one, &c, &r, want + i * width);
    }
    CHECK_MSG(memcmp(got, want, n * width * 4) == 0, "%s: %u rows from %u on, window %u", isa, n,
              base, window);
    free_pools(&c);
    backend_close(three);
    backend_close(one);
    free(got);
    free(want);
    free(q);
    free_scene(&c);
}

static void test_attention_prefill(void) {
    static const struct shape some[] = {
        {7, 1, 96, 16, QTYPE_F16}, {8, 8, 40, 32, QTYPE_F32}, {3, 1, 64, 16, QTYPE_Q8_0}};
    be_seed = 41;
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_row_isa(i) ? be_open(be_isas[i], 1) : NULL;
        if (!be) continue;
        backend_close(be);
        for (int n = 0; n < (be_quick ? 1 : 3); n++)
            if (attends(be_isas[i], &some[n])) check_prefill(be_isas[i], &some[n], n ? 128 : 19);
    }
}

/* Numbers that would leave tables, pools or batch are refused before anything is read. */
static void test_refusals(void) {
    enum { W = 64 };
    backend *be = be_open("", 1);
    float zeros[4 * W] = {0};
    int32_t pos[2] = {0, 40}, start[2] = {0, 2}, table[2] = {0, 1};
    err e;
    backend_buf *q = be_f32(be, zeros, 2 * W), *out = be_f32(be, zeros, 2 * W);
    backend_buf *pb = be_i32(be, pos, 2), *sb = be_i32(be, start, 2), *tb = be_i32(be, table, 2);
    struct backend_kv kv = {.k = be_bytes(be, NULL, 4 * 16 * W * 4),
                            .v = be_bytes(be, NULL, 4 * 16 * W * 4),
                            .kv_type = QTYPE_F32,
                            .n_blocks = 4,
                            .n_kv_heads = 1,
                            .block_tokens = 16,
                            .head_dim = W};
    struct op_paged_attention op = {.q = q,
                                    .pos = pb,
                                    .row_start = sb,
                                    .tables = tb,
                                    .n_rows = 2,
                                    .n_seqs = 1,
                                    .n_heads = 1,
                                    .table_stride = 2,
                                    .scale = 1,
                                    .kv = kv,
                                    .out = out};
    CHECK(backend_paged_attention(be, &op) == ERR_INVALID); /* position 40 needs three blocks */
    pos[1] = 31;
    CHECK(backend_upload(be, pb, 0, pos, sizeof pos, &e) == 0);
    CHECK(backend_paged_attention(be, &op) == 0);
    op.softcap = -1;
    CHECK(backend_paged_attention(be, &op) == ERR_INVALID);
    op.softcap = NAN;
    CHECK(backend_paged_attention(be, &op) == ERR_INVALID);
    op.softcap = 0;
    table[1] = 4;
    CHECK(backend_upload(be, tb, 0, table, sizeof table, &e) == 0);
    CHECK(backend_paged_attention(be, &op) == ERR_INVALID);
    table[1] = 1, start[1] = 1;
    CHECK(backend_upload(be, tb, 0, table, sizeof table, &e) == 0);
    CHECK(backend_upload(be, sb, 0, start, sizeof start, &e) == 0);
    CHECK(backend_paged_attention(be, &op) == ERR_INVALID); /* a row without a sequence */
    op.kv.n_blocks = 5;
    CHECK(backend_paged_attention(be, &op) == ERR_INVALID); /* the pools are smaller */
    backend_buf *all[] = {q, out, pb, sb, tb, kv.k, kv.v};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        backend_buf_free(all[i]);
    backend_close(be);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "bench") == 0)
        return attention_bench(argc > 2 ? argv[2] : "", argc > 3 ? atoi(argv[3]) : 1);
    be_args(argc, argv);
    RUN(test_attention);
    RUN(test_attention_invariance);
    RUN(test_attention_prefill);
    RUN(test_refusals);
    return check_done();
}
