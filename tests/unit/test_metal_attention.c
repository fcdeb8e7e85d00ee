/* test_metal_attention.c - paged attention on the Metal device: all kernel families against
 * float64 and, bit for bit, against each other, over types, head dimensions, groups and features;
 * contexts of several chunks; which kernels a step dispatches. Prints the errors found. Skipped in
 * a build without Metal. */
#include "tests/support/device_main.h"

#ifdef INFERD_METAL
#include "tests/support/attention_scene.h"
#include "tests/support/metal_families.h"

static enum metal_tiles found; /* what the device chose */

static backend *open_metal(void) {
    backend *be =
        be_open_metal((struct backend_config){.max_rows = BE_MAX_ROWS, .max_cols = BE_MAX_COLS});
    found = backend_metal_tiles(be);
    return be;
}

/* ---- errors by type of K and V, and by head dimension ---- */

static const int types[] = {QTYPE_F32, QTYPE_F16, QTYPE_BF16, QTYPE_Q8_0};
static const uint32_t dims[] = {8, 12, 40, 64, 80, 100, 96, 112, 128, 256};
enum { N_TYPES = 4, N_DIMS = sizeof dims / sizeof dims[0] };
static double errors[N_TYPES][N_DIMS];

/* Errors are absolute: V is below 1 in magnitude. 2e-6 covers the rounding of scores up to 30
 * (unit: log2) and exp2 within a few ulp. */
#define TOLERANCE 2e-6

static int index_of(const int *all, int n, int what) {
    int i = 0;
    while (i < n && all[i] != what)
        i++;
    return i;
}

static void keep_error(const struct shape *s, double error) {
    int type = index_of(types, N_TYPES, s->kv_type);
    int dim = index_of((const int *)dims, N_DIMS, (int)s->head_dim);
    if (type < N_TYPES && dim < N_DIMS) errors[type][dim] = fmax(errors[type][dim], error);
}

static void print_errors(void) {
    printf("     largest error of out, |V| < 1\n     %-5s", "");
    for (int d = 0; d < N_DIMS; d++)
        printf(" %8u", dims[d]);
    for (int t = 0; t < N_TYPES; t++) {
        printf("\n     %-5s", qtype_name(types[t]));
        for (int d = 0; d < N_DIMS; d++)
            printf(errors[t][d] > 0 ? " %8.1e" : " %8.0f", errors[t][d]);
    }
    printf("\n");
}

/* ---- against float64, all families ---- */

static void check_rows(backend *be, struct scene *c, const struct rows *r) {
    uint64_t n = (uint64_t)r->n * c->s.n_heads * c->s.head_dim;
    float *first = NULL, *out = be_new(n, sizeof *out);
    upload_pools(be, c);
    for (uint32_t i = 0; i < metal_n_families(found); i++) {
        metal_force(be, &metal_families[i]);
        attend(be, c, r, out);
        CHECK_MSG(!first || memcmp(out, first, n * sizeof *out) == 0,
                  "%s heads %u/%u dim %u block %u window %u cap %g sinks %d: family %u",
                  qtype_name(c->s.kv_type), c->s.n_heads, c->s.n_kv_heads, c->s.head_dim,
                  c->s.block_tokens, c->f.window, (double)c->f.softcap, c->f.sinks, i);
        if (first) continue;
        first = out;
        out = be_new(n, sizeof *out);
    }
    double error = worst_error(c, r, first, 1, 0);
    keep_error(&c->s, error);
    CHECK_MSG(error <= TOLERANCE,
              "%s heads %u/%u dim %u block %u window %u cap %g sinks %d: error %g",
              qtype_name(c->s.kv_type), c->s.n_heads, c->s.n_kv_heads, c->s.head_dim,
              c->s.block_tokens, c->f.window, (double)c->f.softcap, c->f.sinks, error);
    free(first), free(out);
    free_pools(c);
}

/* context: of sequence 0. */
static void check_random(backend *be, const struct shape *s, struct features f, uint32_t context) {
    struct scene c;
    struct rows r;
    uint64_t n = (uint64_t)MAX_SEQS * 48 * s->n_heads * s->head_dim;
    float *q = be_new(n, sizeof *q);
    make_scene_of(&c, s, f, 2, context);
    be_fill(q, n, 1);
    random_rows(&c, q, &r);
    check_rows(be, &c, &r);
    free_scene(&c);
    free(q);
}

static void test_types_and_dims(void) {
    static const uint32_t blocks[] = {16, 32, 16, 64, 4}, groups[] = {1, 4, 3, 8, 2, 7};
    static const uint32_t contexts[] = {300, 129, 256, 200, 77, 33};
    backend *be = open_metal();
    int n = 0;
    be_rng.state = 61;
    for (int t = 0; t < N_TYPES; t++)
        for (int d = 0; d < N_DIMS; d++) {
            uint32_t n_kv_heads = 1 + (uint32_t)(n / 4 + n) % 2, group = groups[n % 6];
            const bool q8 = types[t] == QTYPE_Q8_0;
            if (q8 && dims[d] % 32) continue;
            /* 8, 100, and 128 in Q8_0 */
            if (be_quick && (q8 ? dims[d] != 128 : n++ % 5)) continue;
            check_random(be,
                         &(struct shape){n_kv_heads * group, n_kv_heads, dims[d],
                                         blocks[(t + d) % 5], types[t]},
                         features_of(n % 7 ? n : n + 1), contexts[n % 6]);
            n += !be_quick;
        }
    backend_close(be);
}

/* Groups larger than a threadgroup of the vector family processes at once. */
static void test_large_groups(void) {
    static const struct shape shapes[] = {{17, 1, 64, 16, QTYPE_F16},
                                          {16, 1, 128, 32, QTYPE_Q8_0},
                                          {12, 1, 256, 16, QTYPE_F16},
                                          {71, 1, 64, 16, QTYPE_BF16}};
    backend *be = open_metal();
    be_rng.state = 62;
    for (int i = 0; i < (be_quick ? 1 : 4); i++)
        check_random(be, &shapes[i], features_of(i + 1), 140);
    backend_close(be);
}

/* Scores a thousand times their cap: tanh is 1 there, in any unit. */
static void test_low_cap(void) {
    backend *be = open_metal();
    be_rng.state = 64;
    check_random(be, &(struct shape){2, 1, 64, 16, QTYPE_F16}, (struct features){.softcap = 1e-3f},
                 40);
    backend_close(be);
}

/* A few rows at the end of 31 chunks, all families. */
static void test_long_contexts(void) {
    static const struct features features[] = {
        {0}, {.window = 1000, .sinks = true}, {.softcap = 30}};
    backend *be = open_metal();
    be_rng.state = 63;
    /* The last threadgroup has chunks for some of its simdgroups. */
    const int32_t end = LONG_CONTEXT - 128;
    for (int i = 0; i < (be_quick ? 1 : 3); i++) {
        struct shape s = {4, 1, 64, 16, i == 2 ? QTYPE_Q8_0 : QTYPE_F16};
        uint64_t width = (uint64_t)s.n_heads * s.head_dim;
        int32_t pos[5];
        struct scene c;
        struct rows r = {0};
        float *q = be_new(6 * width, sizeof *q);
        be_fill(q, 6 * width, 1);
        make_scene_of(&c, &s, features[i], 4, (uint32_t)end);
        for (int k = 0; k < 5; k++)
            pos[k] = end - 5 + k;
        add_seq(&r, 0, pos, 5, q, width);
        pos[0] = 0;
        if (c.n_seqs > 1) add_seq(&r, 1, pos, 1, q + 5 * width, width);
        check_rows(be, &c, &r);
        free_scene(&c);
        free(q);
    }
    backend_close(be);
}

/* ---- dispatches ---- */

struct step {
    uint32_t n_seqs, rows_each, table_stride, max_context;
    int32_t first_pos; /* of the first row, if not 0 */
};

static double estimated_s; /* of the last run_step */

/* Computes rows at positions 0, 1, ... of n_seqs sequences that share one block. */
static void run_step(backend *be, const struct step *s, float *got) {
    enum { HEADS = 2, DIM = 64 };
    uint32_t n = s->n_seqs * s->rows_each;
    uint64_t width = HEADS * DIM, pool = (uint64_t)2 * 16 * DIM * sizeof(float);
    int32_t *pos = be_new(n, 4), *start = be_new(s->n_seqs + 1, 4);
    int32_t *tables = be_new((uint64_t)s->n_seqs * s->table_stride, 4);
    float *q = be_new(n * width, 4), *kv = be_new(1, pool);
    be_rng.state = 64;
    be_fill(kv, pool / 4, 1);
    for (uint32_t i = 0; i < n; i++) {
        be_fill(q + i * width, i % s->rows_each ? 0 : width, 1);
        pos[i] = (int32_t)(i % s->rows_each);
        memcpy(q + i * width, q, width * 4); /* identical except for their positions */
    }
    pos[0] = s->first_pos;
    for (uint32_t i = 0; i <= s->n_seqs; i++)
        start[i] = (int32_t)(i * s->rows_each);
    struct op_paged_attention op = {.q = be_f32(be, q, n * width),
                                    .pos = be_i32(be, pos, n),
                                    .row_start = be_i32(be, start, s->n_seqs + 1),
                                    .tables =
                                        be_i32(be, tables, (uint64_t)s->n_seqs * s->table_stride),
                                    .n_rows = n,
                                    .n_seqs = s->n_seqs,
                                    .n_heads = HEADS,
                                    .table_stride = s->table_stride,
                                    .max_context = s->max_context,
                                    .scale = 1,
                                    .kv = {.k = be_bytes(be, kv, pool),
                                           .v = be_bytes(be, kv, pool),
                                           .kv_type = QTYPE_F32,
                                           .n_blocks = 1,
                                           .n_kv_heads = 2,
                                           .block_tokens = 16,
                                           .head_dim = DIM},
                                    .out = be_f32(be, NULL, n * width)};
    CHECK(backend_paged_attention(be, &op) == 0);
    estimated_s = backend_metal_encoded_s(be);
    be_get(be, op.out, got, n * width);
    const backend_buf *all[] = {op.q, op.pos, op.row_start, op.tables, op.kv.k, op.kv.v, op.out};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        backend_buf_free((backend_buf *)all[i]);
    free(pos), free(start), free(tables), free(q), free(kv);
}

struct runs {
    struct step step;
    enum metal_families rows;
    uint64_t decode, reduce, prefill; /* dispatches */
};

/* A decode step takes two passes, or one if all rows see a single chunk; prefill uses
 * tiles; a mixed step uses both. If the partials do not fit the scratch, the step takes several
 * rounds with the same result. A row at a position beyond max_context has no defined result, and
 * changes no other row's. */
static void test_dispatches(void) {
    static const struct runs runs[] = {
        {{3, 1, 64, 0, 0}, METAL_BY_ROWS, 1, 1, 0},
        {{3, 1, 64, 100, 0}, METAL_BY_ROWS, 1, 0, 0},
        {{3, 1, 64, 129, 0}, METAL_BY_ROWS, 1, 1, 0},
        {{1, 9, 64, 0, 0}, METAL_BY_ROWS, 0, 0, 1},
        {{2, 3, 64, 0, 0}, METAL_BY_ROWS, 1, 1, 1},
        {{3, 1, 64, 0, 0}, METAL_TILES_ONLY, 0, 0, 1},
        {{2, 3, 64, 0, 0}, METAL_VECTOR_ONLY, 1, 1, 0},
        {{1, 9, 64, 100, 0}, METAL_VECTOR_ONLY, 1, 0, 0},
        {{70, 1, 8192, 0, 0}, METAL_VECTOR_ONLY, 2, 2, 0},
        {{3, 1, 64, 300, 511}, METAL_BY_ROWS, 1, 1, 0},
    };
    float *got = be_new(70 * 128, 4), *first = NULL;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        const struct runs *k = &runs[i];
        backend *be = open_metal();
        CHECK(backend_metal_force(be, found, k->rows) == 0);
        run_step(be, &k->step, got);
        CHECK_MSG(be_dispatches(be, "attention_decode") == k->decode &&
                      be_dispatches(be, "attention_reduce") == k->reduce &&
                      be_dispatches(be, "attention_prefill") +
                              be_dispatches(be, "attention_prefill_plain") ==
                          k->prefill,
                  "case %zu", i);
        if (!first) first = memcpy(be_new(128, 4), got, 128 * 4);
        for (uint32_t s = k->step.first_pos ? 1 : 0; s < k->step.n_seqs; s++)
            CHECK_MSG(!memcmp(got + (uint64_t)s * k->step.rows_each * 128, first, 128 * 4),
                      "case %zu, sequence %u", i, s);
        backend_close(be);
    }
    free(got), free(first);
}

/* The estimated time grows with K and V, which only the device can count: nearly eight times for a
 * context eight times as long, at half of an M1's 68 GB/s. What exceeds the configured time is
 * committed. */
static void test_estimate(void) {
    static const uint32_t rows[][2] = {{3, 1}, {1, 9}, {2, 3}};
    float *got = be_new(9 * 128, 4);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        backend *be = open_metal();
        backend_metal_set_part_time(be, 1); /* one part */
        run_step(be, &(struct step){rows[i][0], rows[i][1], 64, 128, 0}, got);
        double near_s = estimated_s;
        run_step(be, &(struct step){rows[i][0], rows[i][1], 64, 1024, 0}, got);
        CHECK_MSG(near_s > 0 && estimated_s > 6 * near_s && estimated_s < 10 * near_s,
                  "case %zu: %g s, %g s", i, near_s, estimated_s);
        double kv_bytes = 2.0 * rows[i][0] * 2 * 1024 * 64 * sizeof(float);
        CHECK_MSG(estimated_s > kv_bytes / 34e9 && estimated_s < 4 * kv_bytes / 34e9,
                  "case %zu: %g s for %g bytes", i, estimated_s, kv_bytes);
        backend_close(be);
    }
    backend *be = be_open_metal((struct backend_config){
        .n_threads = 1, .max_rows = 9, .max_cols = 128, .command_buffer_ms = 1});
    run_step(be, &(struct step){1, 9, 64, 128, 0}, got);
    CHECK(estimated_s > 0);
    run_step(be, &(struct step){1, 9, 8192, 0, 0}, got);
    CHECK_MSG(estimated_s == 0, "%g s are not committed", estimated_s);
    backend_close(be);
    free(got);
}

/* Cache shapes that no kernel supports are refused. */
/* The last token of a pool, heads of no whole steps: nothing behind it is read. (The stand-in would
 * report it.) */
static void test_pool_end(void) {
    enum { DIM = 40, BLOCK = 16, HEADS = 2 };
    const struct shape s = {HEADS, 1, DIM, BLOCK, QTYPE_F16};
    const int32_t pos = BLOCK - 1, start[] = {0, 1}, block = 0;
    float ones[HEADS * DIM], got[HEADS * DIM];
    uint16_t pool[BLOCK * DIM];
    backend *be = open_metal();
    for (int i = 0; i < HEADS * DIM; i++)
        ones[i] = 1;
    for (int i = 0; i < BLOCK * DIM; i++)
        pool[i] = 0x3c00; /* 1 */
    struct op_paged_attention op = {.q = be_f32(be, ones, HEADS * DIM),
                                    .pos = be_i32(be, &pos, 1),
                                    .row_start = be_i32(be, start, 2),
                                    .tables = be_i32(be, &block, 1),
                                    .n_rows = 1,
                                    .n_seqs = 1,
                                    .n_heads = HEADS,
                                    .table_stride = 1,
                                    .scale = 1,
                                    .out = be_f32(be, NULL, HEADS * DIM)};
    backend_buf *k = be_bytes(be, pool, sizeof pool), *v = be_bytes(be, pool, sizeof pool);
    op.kv = kv_of(&s, 1, k, v);
    CHECK(backend_paged_attention(be, &op) == 0);
    be_get(be, op.out, got, HEADS * DIM);
    for (int i = 0; i < HEADS * DIM; i++)
        CHECK_MSG(fabsf(got[i] - 1) <= 1e-6f, "%d: %g", i, (double)got[i]);
    const backend_buf *all[] = {op.q, op.pos, op.row_start, op.tables, op.out, k, v};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        backend_buf_free((backend_buf *)all[i]);
    backend_close(be);
}

static void test_refused(void) {
    static const struct shape shapes[] = {{2, 1, 33, 16, QTYPE_F16},  {2, 1, 34, 16, QTYPE_F16},
                                          {2, 1, 520, 16, QTYPE_F16}, {2, 1, 64, 2, QTYPE_F16},
                                          {2, 1, 64, 24, QTYPE_F16},  {2, 1, 64, 256, QTYPE_F16}};
    backend *be = open_metal();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct shape *s = &shapes[i];
        struct backend_kv kv = kv_of(s, 1, NULL, NULL);
        int32_t zeros[2] = {0, 1};
        backend_buf *pool = be_bytes(be, NULL, kv_block_size(&kv)), *ints = be_i32(be, zeros, 2);
        backend_buf *a = be_f32(be, NULL, 2 * s->head_dim), *b = be_f32(be, NULL, 2 * s->head_dim);
        kv.k = kv.v = pool;
        CHECK(backend_paged_attention(be, &(struct op_paged_attention){.q = a,
                                                                       .pos = ints,
                                                                       .row_start = ints,
                                                                       .tables = ints,
                                                                       .n_rows = 1,
                                                                       .n_seqs = 1,
                                                                       .n_heads = 2,
                                                                       .table_stride = 1,
                                                                       .scale = 1,
                                                                       .kv = kv,
                                                                       .out = b}) ==
              ERR_UNSUPPORTED);
        CHECK(backend_rope_store(be, &(struct op_rope_store){.q = a,
                                                             .k = b,
                                                             .v = b,
                                                             .pos = ints,
                                                             .slots = ints,
                                                             .inv_freq = a,
                                                             .n_rows = 1,
                                                             .n_heads = 2,
                                                             .kv = kv}) == ERR_UNSUPPORTED);
        backend_buf_free(pool), backend_buf_free(ints), backend_buf_free(a), backend_buf_free(b);
    }
    backend_close(be);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(test_types_and_dims);
    RUN(test_large_groups);
    RUN(test_low_cap);
    RUN(test_long_contexts);
    print_errors();
    RUN(test_dispatches);
    RUN(test_estimate);
    RUN(test_pool_end);
    RUN(test_refused);
    return check_done();
}
#else
DEVICE_MAIN_SKIPS("metal", "this build has no Metal backend")
#endif
