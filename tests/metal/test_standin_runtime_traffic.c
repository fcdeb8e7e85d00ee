/* test_standin_runtime_traffic.c - the traffic meter's figures for kernels with known traffic. */
#include "tests/metal/standin_run.h"

#include "tests/metal/standin/runtime/msl_traffic.h"

enum { N = 256, ROWS = 7 };
static struct run_lib lib; /* kernels/traffic.metal, check build */
static _Alignas(64) float w[ROWS * N], x[N], y[ROWS];
static struct { uint32_t n, rows; } args = {N, ROWS};

static const char *run_matvec(const char *kernel) {
    return run_kernel(&(struct run){.lib = &lib,
                                    .kernel = kernel,
                                    .n_groups = ROWS,
                                    .buffers = {{&args, sizeof args, NULL},
                                                {w, sizeof w, "weights"},
                                                {x, sizeof x, "rows"},
                                                {y, sizeof y, "rows"}},
                                    .opts = {.check = 1, .shuffle = 1, .seed = 3}});
}
static void fill(void) {
    for (int i = 0; i < ROWS * N; i++)
        w[i] = (float)(i % 13 + 1);
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 5);
}

static void test_matvec(void) {
    struct metalsim_kernel k;
    struct metalsim_bytes b;
    metalsim_traffic_reset();
    CHECK(metalsim_traffic("matvec", &k) == -1);
    for (int i = 0; i < 2; i++)
        CHECK_SILENT(run_matvec("matvec"));
    CHECK(metalsim_traffic("matvec", &k) == 0);
    CHECK(k.dispatches == 2 && k.threadgroups == 2 * ROWS && k.threads == 2 * ROWS * 32);
    CHECK(k.simd_ops == 2 * ROWS && k.barriers == 0 && k.matrix_products == 0);
    metalsim_traffic_sum(NULL, "weights", &b);
    CHECK(b.read_once == 2 * sizeof w && b.read == 2 * sizeof w && b.written == 0);
    metalsim_traffic_sum("matvec", "rows", &b);
    CHECK(b.read_once == 2 * sizeof x && b.read == 2 * ROWS * sizeof x);
    CHECK(b.written == 2 * sizeof y && b.written_once == 2 * sizeof y);
    CHECK(k.memory.read == 2 * (sizeof w + ROWS * sizeof x) && k.memory.written == 2 * sizeof y);
    CHECK(k.arguments.read_once == 2 * sizeof args.n); /* rows is not read */
    metalsim_traffic_sum(NULL, "other", &b);
    CHECK(b.read == 0);
}
static void test_read_twice(void) {
    struct metalsim_bytes b;
    metalsim_traffic_reset();
    CHECK_SILENT(run_matvec("matvec_twice"));
    metalsim_traffic_sum("matvec_twice", "weights", &b);
    CHECK(b.read_once == sizeof w && b.read == 2 * sizeof w);
}
static void test_shared_reads(void) {
    struct metalsim_argument a;
    uint32_t n = 0;
    metalsim_traffic_reset();
    CHECK_SILENT(run_kernel(&(struct run){.lib = &lib,
                                          .kernel = "shared_reads",
                                          .buffers = {{x, sizeof x, "x"}, {w, sizeof w, "w"}},
                                          .opts = {.check = 1}}));
    for (; metalsim_traffic_argument(n, &a) == 0; n++) {
        CHECK_STR(a.kernel, "shared_reads");
        if (a.index == 0) CHECK(a.bytes.read_once == 4 && a.bytes.read == 4);
        if (a.index == 1) CHECK(a.bytes.read_once == 128 && a.bytes.read == 256);
        CHECK_STR(a.label, a.index ? "w" : "x");
        CHECK_STR(a.name, a.index ? "y" : "x");
    }
    CHECK(n == 2);
}
static void test_meetings(void) {
    static float out[128];
    struct metalsim_kernel k;
    metalsim_traffic_reset();
    const struct run r = {.lib = &lib,
                          .kernel = "meetings",
                          .n_groups = 1,
                          .n_threads = 128,
                          .tg_bytes = 512,
                          .buffers = {{out, sizeof out, NULL}},
                          .opts = {.check = 1}};
    CHECK_SILENT(run_kernel(&r));
    CHECK(metalsim_traffic("meetings", &k) == 0);
    CHECK(k.barriers == 2 && k.simd_barriers == 4 && k.matrix_products == 8);
    CHECK(k.tg_dynamic_bytes == 512 && k.tg_static_bytes == 416);
    CHECK(metalsim_traffic_kernel(1, &k) == -1);
}
static void test_atomics_and_stop(void) {
    static uint32_t counter[4];
    struct metalsim_bytes b;
    const struct run r = {.lib = &lib,
                          .kernel = "count",
                          .n_groups = 3,
                          .buffers = {{counter, sizeof counter, "counter"}},
                          .opts = {.check = 1}};
    metalsim_traffic_reset();
    CHECK_SILENT(run_kernel(&r));
    metalsim_traffic_stop();
    CHECK_SILENT(run_kernel(&r));
    CHECK(counter[0] == 192);
    metalsim_traffic_sum(NULL, NULL, &b);
    CHECK(b.written == 96 * 4 && b.written_once == 4 && b.read_once == 4);
}

/* Known before a kernel runs, for each instance of a template. */
static void test_static_threadgroup_memory(void) {
    CHECK(msl_rt_static_tg_bytes(run_find(&lib, "meetings")) == 416);
    CHECK(msl_rt_static_tg_bytes(run_find(&lib, "matvec")) == 0);
    CHECK(msl_rt_static_tg_bytes(run_find(&lib, "sized_f32")) == 32 + 64);
    CHECK(msl_rt_static_tg_bytes(run_find(&lib, "sized_f16")) == 80 + 160);
}

int main(void) {
    lib = run_open("kernels/traffic.metal", "check", "");
    fill();
    RUN(test_matvec);
    RUN(test_read_twice);
    RUN(test_shared_reads);
    RUN(test_meetings);
    RUN(test_atomics_and_stop);
    RUN(test_static_threadgroup_memory);
    run_close(&lib);
    return check_done();
}
