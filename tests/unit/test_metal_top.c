/* test_metal_top.c - top-k on the Metal device against a plain sort: rows with many ties, several
 * slices, incomplete lists. What all backends share is in test_top.c. Skipped in a build without
 * Metal. */
#include "tests/support/be.h"
#include "tests/support/device_main.h"

#ifdef INFERD_METAL

struct ranked {
    float v; /* NaN is -inf */
    int32_t id;
};

static int by_rank(const void *pa, const void *pb) {
    const struct ranked *a = pa, *b = pb;
    if (a->v != b->v) return a->v > b->v ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static float value_of(float x) {
    return isnan(x) ? -INFINITY : x;
}

/* What a row contains. */
enum kind { RANDOM, EQUAL, NANS, NEG_INF, RISING, FALLING, TIES, ZEROS, TINY, MIXED, N_KINDS };

static float value_at(enum kind kind, uint32_t i, uint32_t n) {
    static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY, -0.0f, 0.0f, 1e-42f, -1e-42f, 3};
    switch (kind) {
    case EQUAL:
        return -2.5f;
    case NANS:
        return i % 2 ? NAN : -NAN;
    case NEG_INF:
        return -INFINITY;
    case RISING:
        return (float)i - (float)n / 2;
    case FALLING:
        return (float)n / 3 - (float)i;
    case TIES:
        return (float)(be_rand() % 3);
    case ZEROS:
        return i % 2 ? 0.0f : -0.0f;
    case TINY:
        return ldexpf((float)(int32_t)be_below(200) - 100, -149); /* denormals */
    case MIXED:
        return odd[be_below(sizeof odd / sizeof odd[0])];
    default:
        return be_real() * 30;
    }
}

static void check_row(const float *x, uint32_t n, uint32_t k, const int32_t *ids,
                      const float *values, enum kind kind) {
    struct ranked *want = be_new(n, sizeof *want);
    for (uint32_t i = 0; i < n; i++)
        want[i] = (struct ranked){value_of(x[i]), (int32_t)i};
    qsort(want, n, sizeof *want, by_rank);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < k; i++) /* bits: a zero keeps its sign */
        wrong += ids[i] != want[i].id || memcmp(&values[i], &want[i].v, sizeof(float)) != 0;
    CHECK_MSG(!wrong, "%u of %u wrong, %u columns, kind %d", wrong, k, n, kind);
    free(want);
}

/* Rows of the kinds first, first + 1, ... */
static void check_rows(backend *be, uint32_t n_rows, uint32_t n, uint32_t k, uint32_t first) {
    float *x = be_new((uint64_t)n_rows * n, sizeof *x);
    float *values = be_new((uint64_t)n_rows * k, sizeof *values);
    int32_t *ids = be_new((uint64_t)n_rows * k, sizeof *ids);
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t i = 0; i < n; i++)
            x[(uint64_t)r * n + i] = value_at((first + r) % N_KINDS, i, n);
    backend_buf *bx = be_f32(be, x, (uint64_t)n_rows * n);
    backend_buf *bi = be_i32(be, NULL, (uint64_t)n_rows * k);
    backend_buf *bv = be_f32(be, NULL, (uint64_t)n_rows * k);
    err e;
    CHECK(backend_top(be, &(struct op_top){
                              .x = bx,
                              .n_rows = n_rows,
                              .n_cols = n,
                              .k = k,
                              .ids = bi,
                              .values = bv,
                          }) == 0);
    be_get(be, bv, values, (uint64_t)n_rows * k);
    CHECK(backend_download(be, bi, 0, ids, (uint64_t)n_rows * k * sizeof *ids, &e) == 0);
    for (uint32_t r = 0; r < n_rows; r++)
        check_row(x + (uint64_t)r * n, n, k, ids + (uint64_t)r * k, values + (uint64_t)r * k,
                  (first + r) % N_KINDS);
    backend_buf_free(bx), backend_buf_free(bi), backend_buf_free(bv);
    free(x), free(values), free(ids);
}

static backend *open_metal(void) {
    return be_open_metal((struct backend_config){.max_rows = 150, .max_cols = 64});
}

/* All kinds with few columns: incomplete lists, k equal to the number of columns. */
static void test_narrow(void) {
    backend *be = open_metal();
    for (uint32_t n = 1; n <= 70; n += n < 6 || n > 62 ? 1 : 7) {
        check_rows(be, N_KINDS, n, 1, 0);
        check_rows(be, N_KINDS, n, n < 33 ? n : 33, 0);
        if (n > 33) check_rows(be, N_KINDS, n, n < 64 ? n : 64, 0);
    }
    backend_close(be);
}

/* Sizes of vocabularies: several slices, ties across slices, a last slice shorter than k. */
static void test_wide(void) {
    backend *be = open_metal();
    be_rng.state = 7;
    check_rows(be, N_KINDS, 32001, 1, 0);
    check_rows(be, N_KINDS, 32001, 20, 0);
    check_rows(be, N_KINDS, 8192 * 2 + 1, 64, 0);
    check_rows(be, 1, 128256, 64, RANDOM);
    check_rows(be, 2, 128256, 40, TIES);
    check_rows(be, 2, 300001, 1, MIXED);
    check_rows(be, 1, 64 * 8192 + 5, 5, TIES); /* would exceed the largest number of slices */
    backend_close(be);
}

/* More rows than one pass holds. */
static void test_many_rows(void) {
    backend *be = open_metal();
    be_rng.state = 9;
    check_rows(be, 150, 8500, 3, 0);
    check_rows(be, 129, 40, 40, 0);
    backend_close(be);
}

/* Every logit is read once, and the traffic counters say so. */
static void test_traffic(void) {
    backend *be = open_metal();
    uint64_t read = 0, written = 0;
    check_rows(be, 1, 32768, 1, 0);
    for (uint32_t i = 0; i < backend_n_kernels(be); i++)
        if (strcmp(backend_kernel_name(be, i), "top") == 0) {
            backend_kernel_traffic(be, i, &read, &written);
            CHECK(backend_dispatch_count(be, i) == 2);
        }
    CHECK(read == 32768 * sizeof(float) + 4 * 8 + 4); /* logits, 4 lists, the winner */
    CHECK(written == 4 * 8 + 8);
    backend_close(be);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    RUN(test_narrow);
    RUN(test_wide);
    RUN(test_many_rows);
    RUN(test_traffic);
    return check_done();
}
#else
DEVICE_MAIN_SKIPS("metal", "this build has no Metal backend")
#endif
