/* test_standin_runtime_faults.c - mistakes in shaders that the executor must report: endless loops,
 * misaligned accesses, atomics. */
#include "tests/metal/standin_run.h"

static struct run_lib checked, plain; /* kernels/faults.metal */

static const char *run(const struct run_lib *lib, const char *kernel) {
    static _Alignas(64) uint32_t d[64], e[64];
    return run_kernel(&(struct run){.lib = lib,
                                    .kernel = kernel,
                                    .n_groups = 2,
                                    .n_threads = strncmp(kernel, "atomic", 6) ? 1 : 32,
                                    .tg_bytes = 64,
                                    .buffers = {{d, sizeof d, "d"}, {e, sizeof e, "e"}},
                                    .opts = {.check = lib == &checked, .watchdog_ms = 200}});
}
static const char *run_one_group(const char *kernel) {
    static _Alignas(64) uint32_t d[64];
    return run_kernel(&(struct run){.lib = &checked,
                                    .kernel = kernel,
                                    .n_threads = 64,
                                    .tg_bytes = 64,
                                    .buffers = {{d, sizeof d, "d"}},
                                    .opts = {.check = 1}});
}

static void test_watchdog(void) {
    static const char *const loops[] = {"loop_plain", "loop_simd", "loop_memory"};
    for (size_t i = 0; i < 3; i++) {
        char want[64];
        snprintf(want, sizeof want, "kernel %s", loops[i]);
        for (int check = 0; check < 2; check++) {
            const char *got = run(check ? &checked : &plain, loops[i]);
            CHECK_REPORT(got, "watchdog: the threadgroup does not end");
            CHECK_REPORT(got, want);
        }
    }
    CHECK_SILENT(run_one_group("ok_loop"));
    CHECK_SILENT(run(&plain, "ok_loop")); /* the workers still work */
}
static void test_alignment(void) {
    CHECK_REPORT(run(&checked, "misaligned_float4"), "misaligned");
    CHECK_REPORT(run(&checked, "misaligned_half4"), "misaligned write of 8 bytes: 4 past");
    CHECK_REPORT(run(&checked, "misaligned_uint"), "misaligned write of 4 bytes: 2 past");
    CHECK_REPORT(run(&checked, "misaligned_threadgroup"), "misaligned write of 8 bytes");
    CHECK_REPORT(run(&checked, "misaligned_half4"), "faults.metal:");
    CHECK_SILENT(run_one_group("ok_loop"));
}
static void test_atomics(void) {
    CHECK_REPORT(run(&checked, "atomic_past_end"), "past the end of buffer(0)");
    CHECK_REPORT(run(&checked, "atomic_exchange_past_end"), "past the end of buffer(0)");
    CHECK_REPORT(run(&checked, "atomic_load_before"), "atomic access of 4 bytes out of bounds");
    CHECK_REPORT(run(&checked, "atomic_misaligned"), "misaligned atomic access");
    CHECK_REPORT(run(&checked, "atomic_on_const"), "bound const");
    CHECK_REPORT(run(&checked, "atomic_outside_threadgroup"), "outside every threadgroup");
    CHECK_REPORT(run(&checked, "atomic_uninitialised"), "uninitialised threadgroup memory");
    CHECK_REPORT(run_one_group("atomic_against_read"), "race on threadgroup memory");
    CHECK_SILENT(run_one_group("ok_atomics"));
}
static void test_packed(void) {
    static _Alignas(64) uint32_t d[64];
    CHECK_SILENT(run_kernel(&(struct run){.lib = &checked,
                                          .kernel = "ok_packed",
                                          .n_threads = 1,
                                          .buffers = {{d, sizeof d, "d"}},
                                          .opts = {.check = 1}}));
}
static void test_two_arguments_in_one_buffer(void) {
    static _Alignas(64) float d[64];
    struct run r = {.lib = &checked,
                    .kernel = "one_buffer",
                    .buffers = {{d, sizeof d, "d"}, {d + 32, sizeof d - 128, "d"}},
                    .opts = {.check = 1}};
    for (int i = 0; i < 32; i++)
        d[i] = (float)i;
    CHECK_SILENT(run_kernel(&r));
    CHECK(d[63] == 31);
    r.buffers[1] = (struct run_buffer){d + 16, sizeof d - 64, "d"};
    CHECK_REPORT(run_kernel(&r), "race on buffer");
}

int main(void) {
    checked = run_open("kernels/faults.metal", "check", "");
    plain = run_open("kernels/faults.metal", "plain", "");
    RUN(test_watchdog);
    RUN(test_alignment);
    RUN(test_atomics);
    RUN(test_packed);
    RUN(test_two_arguments_in_one_buffer);
    run_close(&checked);
    run_close(&plain);
    return check_done();
}
