/* test_top.c - the op that picks the first tokens of rows of logits, on every device of the build,
 * against a plain sort: ids and bits of the values, with ties, infinities and NaN. `bench
 * [only=SET]`: its time for rows of a large vocabulary. */
#include "core/base/clock.h"
#include "tests/support/be.h"
#include "tests/unit/check.h"

enum { MOST_COLS = 128256, MOST_ROWS = 9 };

/* ---- reference ---- */

static const float *sorted_row;

static float rank_value(int32_t id) {
    return isnan(sorted_row[id]) ? -INFINITY : sorted_row[id];
}

static int by_rank(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    float u = rank_value(x), v = rank_value(y);
    if (u != v) return u > v ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* ---- rows ---- */

enum kind { SPREAD, COARSE, ALL_EQUAL, ASCENDING, DESCENDING, ODD, NO_NUMBERS, N_KINDS };

static float value_of(enum kind kind, uint32_t i) {
    static const float odd[] = {NAN, -INFINITY, INFINITY, -0.0f, 0, -1, 3e38f, -3e38f};
    if (kind == SPREAD) return be_real() * 20;
    if (kind == COARSE) return (float)be_below(5);
    if (kind == ALL_EQUAL) return 1.5f;
    if (kind == ASCENDING) return (float)i;
    if (kind == DESCENDING) return -(float)i;
    if (kind == NO_NUMBERS) return i % 3 ? NAN : -INFINITY;
    return odd[be_below(8)];
}

static void check_rows(backend *be, uint32_t n_rows, uint32_t n_cols, uint32_t k) {
    uint64_t n = (uint64_t)n_rows * n_cols, n_out = (uint64_t)n_rows * k;
    float *x = be_new(n, sizeof *x), *values = be_new(n_out, sizeof *values);
    int32_t *ids = be_new(n_out, sizeof *ids), *order = be_new(n_cols, sizeof *order);
    uint32_t first_kind = be_below(N_KINDS);
    err e;
    for (uint64_t i = 0; i < n; i++)
        x[i] = value_of((enum kind)((first_kind + i / n_cols) % N_KINDS), (uint32_t)(i % n_cols));
    struct op_top op = {.x = be_f32(be, x, n),
                        .n_rows = n_rows,
                        .n_cols = n_cols,
                        .k = k,
                        .ids = be_i32(be, NULL, n_out),
                        .values = be_f32(be, NULL, n_out)};
    CHECK(backend_top(be, &op) == 0);
    be_get(be, op.values, values, n_out);
    CHECK(backend_download(be, op.ids, 0, ids, n_out * sizeof *ids, &e) == 0);
    for (uint32_t r = 0; r < n_rows; r++) {
        uint32_t bad = 0;
        sorted_row = x + (uint64_t)r * n_cols;
        for (uint32_t i = 0; i < n_cols; i++)
            order[i] = (int32_t)i;
        qsort(order, n_cols, sizeof *order, by_rank);
        for (uint32_t i = 0; i < k; i++) {
            float want = rank_value(order[i]), got = values[r * k + i];
            bad += ids[r * k + i] != order[i] || memcmp(&got, &want, sizeof got) != 0;
        }
        CHECK_MSG(!bad, "%s: %u of the first %u of %u differ, row %u of kind %u", backend_name(be),
                  bad, k, n_cols, r, (first_kind + r) % N_KINDS);
    }
    backend_buf_free((backend_buf *)op.x);
    backend_buf_free(op.ids);
    backend_buf_free(op.values);
    free(order);
    free(ids);
    free(values);
    free(x);
}

static backend *open_set(const char *isa) {
    struct backend_config config = {.n_threads = 3, .max_rows = BE_MAX_ROWS, .max_cols = 8};
    return be_open_config(config, isa);
}

/* The op has no instruction sets: the CPU's first one, and other devices. */
static void test_top(void) {
    static const uint32_t cols[] = {1, 2, 19, 63, 64, 65, 99, 127, 129, 989, 4096, 32003};
    static const uint32_t ks[] = {1, 2, 7, 40, 63, 64};
    for (int i = 0; i < BE_N_ISAS; i++) {
        backend *be = i == 0 || be_is_device_set(be_isas[i]) ? open_set(be_isas[i]) : NULL;
        if (!be) continue;
        be_rng.state = 17;
        for (size_t c = 0; c < sizeof cols / sizeof cols[0]; c++)
            for (size_t k = 0; k < sizeof ks / sizeof ks[0]; k++)
                if (ks[k] <= cols[c]) check_rows(be, 1 + be_below(MOST_ROWS), cols[c], ks[k]);
        if (!be_quick) check_rows(be, 8, MOST_COLS, BACKEND_MAX_TOP);
        check_rows(be, 2, MOST_COLS, 1);
        if (!be_quick) check_rows(be, 7, 2 * MOST_COLS + 11, 41); /* more than a device divides */
        backend_close(be);
    }
}

static void test_refusals(void) {
    backend *be = open_set("");
    float zeros[200] = {0};
    backend_buf *x = be_f32(be, zeros, 200), *out = be_f32(be, zeros, 128);
    struct op_top op = {.x = x, .n_rows = 2, .n_cols = 100, .k = 64, .ids = out, .values = out};
    CHECK(backend_top(be, &op) == 0);
    op.k = 0;
    CHECK(backend_top(be, &op) == ERR_INVALID);
    op.k = BACKEND_MAX_TOP + 1;
    CHECK(backend_top(be, &op) == ERR_INVALID);
    op.k = 64, op.n_rows = 3, op.n_cols = 64; /* more than the results can hold */
    CHECK(backend_top(be, &op) == ERR_INVALID);
    op.n_rows = 1, op.n_cols = 63; /* fewer than wanted */
    CHECK(backend_top(be, &op) == ERR_INVALID);
    op.n_rows = 0, op.n_cols = 100;
    CHECK(backend_top(be, &op) == 0);
    backend_buf_free(out);
    backend_buf_free(x);
    backend_close(be);
}

static int bench(void) {
    backend *be = open_set(be_only);
    be_need(be != NULL, "the device");
    float *x = be_new(8 * MOST_COLS, sizeof *x);
    be_fill(x, 8 * MOST_COLS, 10);
    struct op_top op = {.x = be_f32(be, x, 8 * MOST_COLS),
                        .n_cols = MOST_COLS,
                        .ids = be_i32(be, NULL, 8 * BACKEND_MAX_TOP),
                        .values = be_f32(be, NULL, 8 * BACKEND_MAX_TOP)};
    for (op.k = 1; op.k <= BACKEND_MAX_TOP; op.k += BACKEND_MAX_TOP - 1)
        for (op.n_rows = 1; op.n_rows <= 8; op.n_rows += 7) {
            enum { ROUNDS = 200 };
            err e;
            be_need(backend_top(be, &op) == 0 && backend_sync(be, &e) == 0, "an op");
            uint64_t start = clock_now_ns();
            for (int i = 0; i < ROUNDS; i++)
                be_need(backend_top(be, &op) == 0, "an op");
            be_need(backend_sync(be, &e) == 0, "the ops");
            printf("%u of %d, %u rows: %.1f us\n", op.k, MOST_COLS, op.n_rows,
                   (double)(clock_now_ns() - start) * 1e-3 / ROUNDS);
        }
    backend_buf_free((backend_buf *)op.x);
    backend_buf_free(op.ids);
    backend_buf_free(op.values);
    backend_close(be);
    free(x);
    return 0;
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    if (check_bench(argc, argv)) return bench();
    RUN(test_top);
    RUN(test_refusals);
    return check_done();
}
