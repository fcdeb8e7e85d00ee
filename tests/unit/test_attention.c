/* test_attention.c - paged attention against float64: random block tables over pools that hold NaN
 * in every unwritten slot, prefill chunks mixed with decode rows; bitwise the same alone, in any
 * batch and with any number of threads. */
#include "tests/support/attention_scene.h"
#include "tests/unit/attention_bench.h"

/* V is below 1 in magnitude: errors are absolute. 2e-5 covers the rounding of scores up to 30.
 * Metal's exponential function has fewer digits: 1e-3 and a hundredth. */
static void check_against_reference(backend *be, const struct scene *c, const struct rows *r) {
    uint64_t width = (uint64_t)c->s.n_heads * c->s.head_dim;
    float *out = be_new(r->n * width, sizeof *out);
    double atol = be_is_cpu(be) ? 2e-5 : 1e-3, rtol = be_is_cpu(be) ? 0 : 1e-2;
    attend(be, c, r, out);
    double worst = worst_error(c, r, out, atol, rtol);
    check_note_error(worst);
    CHECK_MSG(
        worst <= 1,
        "%s %s heads %u/%u dim %u block %u window %u cap %g sinks %d slopes %d chunked %d: %g "
        "of the tolerance",
        backend_isa(be), qtype_name(c->s.kv_type), c->s.n_heads, c->s.n_kv_heads, c->s.head_dim,
        c->s.block_tokens, c->f.window, (double)c->f.softcap, c->f.sinks, c->f.slopes, c->f.chunked,
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
    {8, 1, 512, 32, QTYPE_F16},         {6, 2, 512, 16, QTYPE_BF16}, {5, 1, 512, 16, QTYPE_Q8_0},
    {3, 1, 384, 16, QTYPE_F16},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* Quick: a seventh of the shapes, with every KV type; others in each test. */
static int shape_step(void) {
    return be_quick ? 7 : 1;
}

static bool attends(const char *isa, const struct shape *s) {
    struct backend_kv kv = kv_of(s, N_BLOCKS, NULL, NULL);
    return be_attends(isa, &kv);
}

static void check_shape(backend *be, const struct shape *s, struct features f, float *q) {
    struct scene c;
    struct rows r;
    for (int sharp = 0; sharp < 2; sharp++) { /* uniform probabilities; one key with nearly all */
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
        be_rng.state = 21;
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
    static const int threads[] = {1, 3, 2, 8};
    uint64_t width = (uint64_t)s->n_heads * s->head_dim;
    struct scene c;
    struct rows r;
    make_scene(&c, s, f, 1);
    uint32_t n = min_u32(c.context[0], be_quick ? 21 : 40), base = c.context[0] - n;
    if (be_rand() & 1) base = be_below(base + 1);
    float *q = be_new(BE_MAX_ROWS * width, 4), *want = be_new(n * width, 4);
    float *got = be_new(BE_MAX_ROWS * width, 4);
    be_fill(q, BE_MAX_ROWS * width, 1);
    for (int k = 0; k < (be_quick ? 2 : 4); k++) {
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
    be_rng.state = 31;
    for (int i = 0; i < BE_N_ISAS; i++)
        for (int n = be_quick ? 1 : 0; be_row_isa(i) && n < N_SHAPES; n += i ? shape_step() : 3) {
            if (!attends(be_isas[i], &shapes[n])) continue;
            if (!be_quick) check_invariance(be_isas[i], &shapes[n], (struct features){0});
            for (int k = 0; k < (be_quick ? 1 : 2); k++)
                check_invariance(be_isas[i], &shapes[n], features_of(feature++));
        }
}

/* The end of a prompt at once on three threads = row by row on one, with all options that
 * architectures use. */
static void check_prefill(const char *isa, const struct shape *s, uint32_t window) {
    uint64_t width = (uint64_t)s->n_heads * s->head_dim;
    struct scene c;
    struct rows r = {0};
    make_scene(&c, s, (struct features){.window = window, .softcap = 30, .sinks = true}, 3);
    uint32_t n = min_u32(c.context[0], BE_MAX_ROWS - 1), base = c.context[0] - n;
    int32_t pos[BE_MAX_ROWS] = {0};
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

/* Attention in both directions: against the reference, and the same bits for a row with all others
 * of its sequence, on several threads and beside other sequences, or with the last row alone. */
static void check_both_ways(const char *isa, const struct shape *s, struct features f) {
    uint64_t width = (uint64_t)s->n_heads * s->head_dim;
    struct scene c;
    struct rows r = {0};
    f.both_ways = true, f.chunked = false;
    make_scene(&c, s, f, 2);
    uint32_t n = min_u32(c.context[0], be_quick ? 70 : BE_MAX_ROWS / 2), base = c.context[0] - n;
    int32_t pos[BE_MAX_ROWS], two[2];
    float *q = be_new(BE_MAX_ROWS * width, 4), *got = be_new(BE_MAX_ROWS * width, 4);
    float pair[2 * MAX_HEADS * MAX_HEAD_DIM];
    backend *one = be_open(isa, 1), *three = be_open(isa, 3);
    be_fill(q, BE_MAX_ROWS * width, 1);
    for (uint32_t i = 0; i < n; i++)
        pos[i] = (int32_t)(base + i);
    if (c.n_seqs > 1) add_seq(&r, 1, (int32_t[]){0}, 1, q + n * width, width);
    const uint32_t first = r.n;
    add_seq(&r, 0, pos, n, q, width);
    upload_pools(three, &c);
    attend(three, &c, &r, got);
    check_against_reference(three, &c, &r);
    free_pools(&c);
    upload_pools(one, &c);
    for (uint32_t i = 0; i + 1 < n; i += 1 + n / (be_quick ? 4 : 13)) {
        float rows[2 * MAX_HEADS * MAX_HEAD_DIM];
        memcpy(rows, q + i * width, width * 4);
        memcpy(rows + width, q + (n - 1) * width, width * 4);
        two[0] = pos[i], two[1] = pos[n - 1];
        memset(&r, 0, sizeof r);
        add_seq(&r, 0, two, 2, rows, width);
        attend(one, &c, &r, pair);
        CHECK_MSG(memcmp(pair, got + (first + i) * width, width * 4) == 0,
                  "%s dim %u, window %u: row %u of %u", isa, s->head_dim, f.window, i, n);
    }
    free_pools(&c);
    backend_close(three);
    backend_close(one);
    free(got);
    free(q);
    free_scene(&c);
}

static void test_attention_both_ways(void) {
    int feature = 0;
    be_rng.state = 51;
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_row_isa(i) ? be_open(be_isas[i], 1) : NULL;
        const bool here = be != NULL;
        backend_close(be);
        for (int n = 0; here && n < N_SHAPES; n += be_quick ? 11 : 2) {
            if (!attends(be_isas[i], &shapes[n])) continue;
            if (!be_quick) check_both_ways(be_isas[i], &shapes[n], (struct features){0});
            check_both_ways(be_isas[i], &shapes[n], features_of(feature++));
        }
    }
}

static void test_attention_prefill(void) {
    static const struct shape some[] = {
        {7, 1, 96, 16, QTYPE_F16}, {8, 8, 40, 32, QTYPE_F32}, {3, 1, 64, 16, QTYPE_Q8_0}};
    be_rng.state = 41;
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = be_row_isa(i) ? be_open(be_isas[i], 1) : NULL;
        if (!be) continue;
        backend_close(be);
        for (int n = 0; n < (be_quick ? 1 : 3); n++)
            if (attends(be_isas[i], &some[n])) check_prefill(be_isas[i], &some[n], n ? 128 : 19);
    }
}

/* Numbers outside of tables, pools or the batch are refused before any access. */
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
    backend_weight *slopes = be_weight(be, QTYPE_F32, 1, 1, zeros);
    op.softcap = 30, op.slopes = slopes;
    CHECK(backend_paged_attention(be, &op) == ERR_INVALID); /* both */
    op.softcap = 0, op.slopes = NULL, op.chunked = true;
    CHECK(backend_paged_attention(be, &op) == ERR_INVALID); /* no size of the chunks */
    op.window = 16, op.both_ways = true;
    CHECK(backend_paged_attention(be, &op) == ERR_INVALID);
    op.window = 0, op.both_ways = op.chunked = false;
    backend_weight_free(slopes);
    op.table_stride = 0;
    CHECK(backend_paged_attention(be, &op) == ERR_INVALID); /* rows without blocks */
    op.table_stride = 2;
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
    if (check_bench(argc, argv))
        return attention_bench(argc > 2 ? argv[2] : "", argc > 3 ? atoi(argv[3]) : 1);
    be_args(argc, argv);
    RUN(test_attention);
    RUN(test_attention_invariance);
    RUN(test_attention_prefill);
    RUN(test_attention_both_ways);
    RUN(test_refusals);
    return check_done();
}
