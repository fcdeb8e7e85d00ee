/* test_standin_backend.c - the Metal backend's host code on a device with failures, small limits,
 * delays or the guard: what it leaves allocated, what it reports, what it waits for. */
#include "core/backend/metal/metal.h"
#include "tests/metal/standin/framework/metalsim.h"
#include "tests/support/be.h"
#include "tests/unit/check.h"

#include <sys/mman.h>
#include <unistd.h>

enum { N_COLS = 48, N_VOCAB = 24, N_ROWS = 4, PAGE = BACKEND_RANGE_ALIGN };

static float table[N_VOCAB * N_COLS];

static backend *open_metal(err *e) {
    struct backend_config config = {
        .name = "metal", .max_rows = 8, .max_cols = 64, .resident_s = 1};
    backend *be = NULL;
    return backend_open(&config, &be, e) ? NULL : be;
}

/* The GPU thread releases its last command buffer shortly after the wait for it returns. */
static long live_when_idle(void) {
    for (int i = 0; i < 2000 && metalsim_live_all(); i++)
        usleep(1000);
    return metalsim_live_all();
}

/* One op with its operands: out (N_ROWS, N_COLS) = table[ids]. */
struct fixture {
    backend *be;
    backend_weight *w;
    backend_buf *ids, *out;
};

static void fixture_init(struct fixture *s, backend *be) {
    static const int32_t ids[N_ROWS] = {3, 1, 4, 1};
    s->be = be;
    s->w = be_weight(be, QTYPE_F32, N_VOCAB, N_COLS, table);
    s->ids = be_i32(be, ids, N_ROWS);
    s->out = be_f32(be, NULL, N_ROWS * N_COLS);
}

static void fixture_fini(struct fixture *s) {
    backend_weight_free(s->w);
    backend_buf_free(s->ids);
    backend_buf_free(s->out);
}

static int embed(struct fixture *s) {
    struct op_embed op = {
        .table = s->w, .ids = s->ids, .n_rows = N_ROWS, .scale = 1, .out = s->out};
    return backend_embed(s->be, &op);
}

/* The row of the table that row 0 of out equals; -1: none. */
static int first_row(struct fixture *s) {
    const float *out = backend_buf_host(s->out);
    for (int i = 0; i < N_VOCAB; i++)
        if (memcmp(out, table + i * N_COLS, N_COLS * sizeof *out) == 0) return i;
    return -1;
}

static uint64_t n_dispatches(const backend *be) {
    uint64_t n = 0;
    for (uint32_t i = 0; backend_kernel_name(be, i); i++)
        n += backend_dispatch_count(be, i);
    return n;
}

static void no_objects_after_close(void) {
    struct fixture s;
    err e = {0};
    backend *be = open_metal(&e);
    be_need(be != NULL, e.msg);
    fixture_init(&s, be);
    CHECK(embed(&s) == 0 && backend_sync(be, &e) == 0 && first_row(&s) == 3);
    CHECK(backend_capture_begin(be, 0, &e) == 0 && embed(&s) == 0 &&
          backend_capture_end(be, &e) == 0);
    CHECK(embed(&s) == 0); /* encoded, not flushed */
    fixture_fini(&s);
    backend_close(be);
    CHECK_MSG(live_when_idle() == 0, "%ld objects remain", metalsim_live_all());
    for (int i = 0; i < METALSIM_N_KINDS; i++)
        CHECK_MSG(metalsim_live(i) == 0, "%ld of kind %s", metalsim_live(i), metalsim_kind_name(i));
}

/* Dispatches run together unless one uses what the other writes; a command buffer retains nothing,
 * so what it uses is freed after it. (The stand-in reports a missing barrier and an early free.) */
static void barriers_where_needed(void) {
    struct fixture s, other;
    err e = {0};
    backend *be = open_metal(&e);
    be_need(be != NULL, e.msg);
    fixture_init(&s, be);
    fixture_init(&other, be);
    const unsigned long before = metalsim_barriers();
    CHECK(embed(&s) == 0 && embed(&other) == 0);
    CHECK(metalsim_barriers() == before);
    CHECK(embed(&s) == 0);
    CHECK(metalsim_barriers() == before + 1);
    struct op_gather op = {
        .x = s.out, .rows = s.ids, .n_out_rows = 1, .n_cols = N_COLS, .out = other.out};
    CHECK(backend_gather(be, &op) == 0 && metalsim_barriers() == before + 2);
    CHECK(embed(&s) == 0 && metalsim_barriers() == before + 3); /* writes what gather reads */
    struct op_gate gate = {.x = s.out,
                           .gate = other.out,
                           .n_rows = N_ROWS,
                           .n_cols = N_COLS}; /* x: its first buffer */
    CHECK(backend_gate(be, &gate) == 0 && metalsim_barriers() == before + 4);
    CHECK(backend_gate(be, &gate) == 0 && metalsim_barriers() == before + 5);
    struct op_embed same = {/* reads what embed(&s) reads */
                            .table = s.w,
                            .ids = s.ids,
                            .n_rows = N_ROWS,
                            .scale = 1,
                            .out = other.out};
    CHECK(backend_embed(be, &same) == 0 && metalsim_barriers() == before + 6);
    CHECK(embed(&s) == 0 && metalsim_barriers() == before + 6);
    CHECK(metalsim_needless_barriers() == 0);
    metalsim_set_delay_ms(30);
    CHECK(backend_flush(be, &e) == 0);
    backend_buf_free(other.out);
    backend_buf_free(other.ids);
    backend_weight_free(other.w);
    metalsim_set_delay_ms(0);
    CHECK(embed(&s) == 0); /* encoded, not flushed */
    fixture_fini(&s);
    backend_close(be);
    CHECK(live_when_idle() == 0);
}

/* Every failure during open is reported, and no object remains. */
static void failing_open(void) {
    static const char *const faults[] = {"queue=1",  "library=1",        "library=2",
                                         "buffer=1", "buffer=3",         "pipeline=1",
                                         "buffer=6", "command=1:timeout"};
    err e = {0};
    be_need(metalsim_set_faults("nodevice") == 0, "faults");
    CHECK(!open_metal(&e) && e.code == ERR_UNSUPPORTED && strstr(e.msg, "no Metal device"));
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        be_need(metalsim_set_faults(faults[i]) == 0, "faults");
        backend *be = open_metal(&e);
        CHECK_MSG(!be && (e.code == ERR_DEVICE || e.code == ERR_NOMEM) && e.msg[0],
                  "%s: code %d \"%s\"", faults[i], e.code, e.msg);
        backend_close(be);
        CHECK_MSG(live_when_idle() == 0, "%s: %ld objects remain", faults[i], metalsim_live_all());
    }
    metalsim_set_faults(NULL);
}

static void constant_memory_over_steps(void) {
    struct fixture s;
    err e = {0};
    backend *be = open_metal(&e);
    be_need(be != NULL, e.msg);
    fixture_init(&s, be);
    uint64_t bytes = 0, before = 0;
    long live = 0;
    for (int i = 0; i < 1000; i++) {
        CHECK(backend_capture_begin(be, 0, &e) == 0 && embed(&s) == 0 &&
              backend_capture_end(be, &e) == 0);
        if (i % 3 == 0)
            backend_graph_discard(be);
        else
            CHECK(backend_graph_launch(be, &e) == 0);
        CHECK(embed(&s) == 0 && backend_sync(be, &e) == 0);
        if (i == 9) {
            bytes = backend_allocated_bytes(be);
            live = metalsim_live_all() - metalsim_live(METALSIM_COMMAND_BUFFER);
            before = n_dispatches(be);
        }
    }
    CHECK(backend_allocated_bytes(be) == bytes && bytes > 0);
    CHECK(metalsim_live_all() - metalsim_live(METALSIM_COMMAND_BUFFER) == live);
    for (int i = 0; i < 2000 && metalsim_live(METALSIM_COMMAND_BUFFER); i++)
        usleep(1000);
    CHECK(metalsim_live(METALSIM_COMMAND_BUFFER) == 0);
    /* discarded steps are not counted: 330 of 990 rounds discard theirs */
    CHECK_MSG(n_dispatches(be) - before == 990 + 660, "%llu",
              (unsigned long long)(n_dispatches(be) - before));
    fixture_fini(&s);
    backend_close(be);
}

/* A failed step: every later call returns ERR_DEVICE with the first reason, until the backend
 * recovers; from the loss of the device it does not. */
static void failing_step(void) {
    static const char *const faults[][2] = {
        {"command=1:oom", "Insufficient Memory"},   {"command=1:timeout", "GPU Timeout"},
        {"command=1:pagefault", "Address Fault"},   {"command=1:internal", "Internal Error"},
        {"command=1:revoked", "Interactivity"},     {"command=1:denied", "Permission"},
        {"command=1:resource", "Invalid Resource"}, {"command=1:memoryless", "Memoryless"},
        {"command=1:stack", "Stack Overflow"},      {"command=1:lost", "lost"}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct fixture s;
        err e = {0};
        backend *be = open_metal(&e);
        be_need(be != NULL, e.msg);
        fixture_init(&s, be);
        be_need(metalsim_set_faults(faults[i][0]) == 0, "faults");
        CHECK(embed(&s) == 0);
        CHECK(backend_sync(be, &e) == ERR_DEVICE && e.code == ERR_DEVICE);
        CHECK_MSG(strstr(e.msg, faults[i][1]), "got \"%s\"", e.msg);
        CHECK(embed(&s) == ERR_DEVICE);
        e = (err){0};
        CHECK(backend_sync(be, &e) == ERR_DEVICE && strstr(e.msg, faults[i][1]));
        CHECK(backend_capture_begin(be, 0, &e) == ERR_DEVICE &&
              backend_flush(be, &e) == ERR_DEVICE);
        bool lost = strstr(faults[i][0], "lost") != NULL;
        CHECK(backend_recover(be, &e) == (lost ? ERR_DEVICE : 0));
        if (!lost) CHECK(embed(&s) == 0 && backend_sync(be, &e) == 0 && first_row(&s) == 3);
        fixture_fini(&s);
        backend_close(be);
        metalsim_set_faults(NULL);
        CHECK_MSG(live_when_idle() == 0, "%s: %ld objects remain", faults[i][0],
                  metalsim_live_all());
    }
}

/* A long step is committed in parts, which run in order without a wait between them; the failure of
 * one is the step's. More parts than may run at once, too. */
static void steps_in_parts(void) {
    enum { N = 100 };
    struct fixture s;
    err e = {0};
    const int32_t other[N_ROWS] = {9, 9, 9, 9};
    backend *be = open_metal(&e);
    be_need(be != NULL, e.msg);
    fixture_init(&s, be);
    backend_metal_set_part_time(be, 1e-12); /* less than any op: each dispatch is a part */
    metalsim_set_delay_ms(300);
    CHECK(embed(&s) == 0 && embed(&s) == 0);
    CHECK(metalsim_live(METALSIM_COMMAND_BUFFER) == 2);
    CHECK(backend_sync(be, &e) == 0);
    metalsim_set_delay_ms(1);
    for (int n = 1; n <= N; n += 33) {
        uint64_t before = n_dispatches(be);
        for (int i = 0; i < n; i++)
            CHECK(embed(&s) == 0);
        CHECK(backend_sync(be, &e) == 0 && first_row(&s) == (n == 1 ? 3 : 9));
        CHECK(n_dispatches(be) == before + (uint64_t)n);
        CHECK(backend_upload(be, s.ids, 0, other, sizeof other, &e) == 0);
    }
    be_need(metalsim_set_faults("command=2:oom") == 0, "faults");
    CHECK(embed(&s) == 0 && embed(&s) == 0 && embed(&s) == 0);
    CHECK(backend_sync(be, &e) == ERR_DEVICE && strstr(e.msg, "Insufficient Memory"));
    CHECK(backend_recover(be, &e) == 0 && embed(&s) == 0 && backend_sync(be, &e) == 0);
    CHECK(backend_capture_begin(be, 0, &e) == 0 && embed(&s) == 0 && embed(&s) == 0 &&
          backend_capture_end(be, &e) == 0); /* a captured step has one part */
    CHECK(backend_metal_encoded_s(be) == 0); /* what is encoded later is another step */
    CHECK(embed(&s) == 0 && backend_graph_launch(be, &e) == 0 && backend_sync(be, &e) == 0);
    metalsim_set_delay_ms(0);
    metalsim_set_faults(NULL);
    fixture_fini(&s);
    backend_close(be);
    CHECK(live_when_idle() == 0);
}

/* Steps that nobody waits for: each one waits for the one before, so there is room for any number.
 */
static void steps_without_a_wait(void) {
    struct fixture s;
    err e = {0};
    backend *be = open_metal(&e);
    be_need(be != NULL, e.msg);
    fixture_init(&s, be);
    uint64_t before = n_dispatches(be);
    for (int i = 0; i < 200; i++)
        CHECK(embed(&s) == 0 && backend_flush(be, &e) == 0);
    CHECK(metalsim_live(METALSIM_COMMAND_BUFFER) <= 3); /* running, just ended */
    CHECK(backend_sync(be, &e) == 0 && first_row(&s) == 3 && n_dispatches(be) == before + 200);
    fixture_fini(&s);
    backend_close(be);
}

/* A kernel variant fails to compile at its first use. */
static void failing_pipeline(void) {
    struct fixture s;
    err e = {0};
    backend *be = open_metal(&e);
    be_need(be != NULL, e.msg);
    fixture_init(&s, be);
    be_need(metalsim_set_faults("pipeline=1") == 0, "faults");
    CHECK(embed(&s) == ERR_DEVICE);
    CHECK(backend_sync(be, &e) == ERR_DEVICE && strstr(e.msg, "embed"));
    metalsim_set_faults(NULL);
    fixture_fini(&s);
    backend_close(be);
    CHECK(live_when_idle() == 0);
}

/* Is residency requested within 10 s? */
static bool requests_go_on(void) {
    unsigned long before = metalsim_residency_requests();
    for (int i = 0; i < 10000 && metalsim_residency_requests() == before; i++)
        usleep(1000);
    return metalsim_residency_requests() > before;
}

/* Does it happen that none is requested for 1.2 s? */
static bool requests_end(void) {
    for (int i = 0; i < 20; i++) {
        unsigned long before = metalsim_residency_requests();
        usleep(1200 * 1000);
        if (metalsim_residency_requests() == before) return true;
    }
    return false;
}

/* Used and idle for less than a second (resident_s), the memory is kept resident; not longer. (The
 * stand-in demands that the set holds every buffer of a command buffer, also after a new queue.) */
static void memory_stays_resident(void) {
    struct fixture s;
    err e = {0};
    backend *be = open_metal(&e);
    be_need(be != NULL, e.msg);
    fixture_init(&s, be);
    CHECK(metalsim_live(METALSIM_RESIDENCY_SET) == 1);
    CHECK(embed(&s) == 0 && backend_sync(be, &e) == 0 && requests_go_on());
    CHECK(requests_end());
    CHECK(embed(&s) == 0 && backend_sync(be, &e) == 0 && requests_go_on());
    fixture_fini(&s);
    backend_close(be);
    be_need(metalsim_set_faults("residency=1") == 0, "faults"); /* works without */
    be = open_metal(&e);
    be_need(be != NULL, e.msg);
    fixture_init(&s, be);
    CHECK(embed(&s) == 0 && backend_sync(be, &e) == 0 && first_row(&s) == 3);
    fixture_fini(&s);
    backend_close(be);
    metalsim_set_faults(NULL);
    CHECK(live_when_idle() == 0);
}

/* Host and device share buffers, so an upload waits until no step reads them. */
static void uploads_wait(void) {
    struct fixture s;
    err e = {0};
    const int32_t other[N_ROWS] = {7, 7, 7, 7};
    float out[N_COLS];
    backend *be = open_metal(&e);
    be_need(be != NULL, e.msg);
    fixture_init(&s, be);
    metalsim_set_delay_ms(50);
    CHECK(embed(&s) == 0 && backend_flush(be, &e) == 0);
    CHECK(backend_upload(be, s.ids, 0, other, sizeof other, &e) == 0);
    CHECK(first_row(&s) == 3); /* with the ids from before the upload */
    CHECK(embed(&s) == 0);
    CHECK(backend_download(be, s.out, 0, out, sizeof out, &e) == 0);
    CHECK(memcmp(out, table + 7 * N_COLS, sizeof out) == 0);
    const int32_t five = 5; /* part of a buffer */
    CHECK(embed(&s) == 0 &&
          backend_upload(be, s.ids, 2 * sizeof five, &five, sizeof five, &e) == 0);
    CHECK(first_row(&s) == 7 && embed(&s) == 0);
    CHECK(backend_download(be, s.out, 2 * sizeof out, out, sizeof out, &e) == 0);
    CHECK(memcmp(out, table + 5 * N_COLS, sizeof out) == 0 && first_row(&s) == 7);
    metalsim_set_delay_ms(0);
    fixture_fini(&s);
    backend_close(be);
}

/* A captured step runs at its launch, with what the buffers then hold, after ops that were enqueued
 * in between. */
static void captured_steps(void) {
    struct fixture s;
    err e = {0};
    const int32_t other[N_ROWS] = {9, 9, 9, 9};
    backend *be = open_metal(&e);
    be_need(be != NULL, e.msg);
    fixture_init(&s, be);
    CHECK(backend_graph_launch(be, &e) == ERR_INVALID);
    CHECK(backend_capture_begin(be, 0, &e) == 0 && embed(&s) == 0 &&
          backend_capture_end(be, &e) == 0);
    uint64_t before = n_dispatches(be);
    CHECK(backend_sync(be, &e) == 0 && first_row(&s) == -1); /* it has not run */
    CHECK(backend_upload(be, s.ids, 0, other, sizeof other, &e) == 0);
    CHECK(backend_graph_launch(be, &e) == 0 && backend_sync(be, &e) == 0);
    CHECK(first_row(&s) == 9 && n_dispatches(be) == before + 1);
    CHECK(backend_graph_launch(be, &e) == ERR_INVALID); /* once */
    fixture_fini(&s);
    backend_close(be);
}

/* Ops and uploads during a capture, or before its launch, keep their order. */
static void order_of_captured_steps(void) {
    static const int32_t other[N_ROWS] = {9, 9, 9, 9}, third[N_ROWS] = {5, 5, 5, 5};
    struct fixture s, other_fixture;
    err e = {0};
    backend *be = open_metal(&e);
    be_need(be != NULL, e.msg);
    fixture_init(&s, be);
    fixture_init(&other_fixture, be);
    struct fixture late = {be, s.w, other_fixture.ids, s.out}; /* another row, same output */
    uint64_t before = n_dispatches(be);
    CHECK(backend_capture_end(be, &e) == ERR_INVALID);
    CHECK(backend_capture_begin(be, 0, &e) == 0 && embed(&s) == 0);
    CHECK(backend_upload(be, s.ids, 0, other, sizeof other, &e) == 0 && backend_sync(be, &e) == 0);
    CHECK(first_row(&s) == -1 && n_dispatches(be) == before); /* captured so far, not run */
    CHECK(backend_capture_end(be, &e) == 0);
    CHECK(backend_upload(be, late.ids, 0, third, sizeof third, &e) == 0);
    CHECK(embed(&late) == 0); /* not flushed, yet it runs first */
    CHECK(backend_graph_launch(be, &e) == 0 && backend_sync(be, &e) == 0);
    CHECK(first_row(&s) == 9 && n_dispatches(be) == before + 2);
    CHECK(backend_capture_begin(be, 0, &e) == 0 && embed(&s) == 0); /* never ended */
    CHECK(backend_capture_begin(be, 0, &e) == 0 && embed(&late) == 0 &&
          backend_capture_end(be, &e) == 0);
    CHECK(backend_graph_launch(be, &e) == 0 && backend_sync(be, &e) == 0);
    CHECK(first_row(&s) == 5 && n_dispatches(be) == before + 3);
    CHECK(backend_capture_begin(be, 0, &e) == 0 && embed(&s) == 0);
    fixture_fini(&other_fixture);
    fixture_fini(&s);
    backend_close(be);
    CHECK(live_when_idle() == 0);
}

static char *map_pages(uint64_t n_pages) {
    char *all = mmap(NULL, (n_pages + 1) * PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return all + (PAGE - (uintptr_t)all % PAGE) % PAGE;
}

/* A file larger than the device's largest buffer: its weights are read in place from several
 * wrapped buffers. */
static void ranges_in_several_buffers(void) {
    enum { N_PAGES = 6000 };
    for (uint64_t most = 2400; most <= 2400 * 3; most += 2400 * 2) {
        struct metalsim_limits limits = {.max_buffer_bytes = most * PAGE};
        err e = {0};
        backend_range *range = NULL;
        char *file = map_pages(N_PAGES);
        metalsim_set_limits(&limits);
        backend *be = open_metal(&e);
        be_need(be != NULL, e.msg);
        int rc = backend_range_new(be, file, N_PAGES * PAGE, &range, &e);
        be_need(rc == 0, e.msg);
        uint64_t all = backend_allocated_bytes(be), edge = most * PAGE - 64;
        for (uint64_t at = 0; at + sizeof table <= N_PAGES * PAGE; at += 128 * PAGE + 4096 + 32) {
            if (at < edge && edge < at + 128 * PAGE && edge + sizeof table <= N_PAGES * PAGE)
                at = edge; /* across two buffers */
            struct fixture s;
            memcpy(file + at, table, sizeof table);
            fixture_init(&s, be);
            backend_weight_free(s.w);
            s.w = be_weight(be, QTYPE_F32, N_VOCAB, N_COLS, file + at);
            CHECK(backend_weight_bytes(s.w) == 0); /* in place */
            CHECK(embed(&s) == 0 && backend_sync(be, &e) == 0);
            CHECK_MSG(first_row(&s) == 3, "a weight at %llu of a file in buffers of %llu pages",
                      (unsigned long long)at, (unsigned long long)most);
            fixture_fini(&s);
            memset(file + at, 0, sizeof table);
        }
        CHECK(backend_allocated_bytes(be) == all);
        backend_range_free(range);
        backend_close(be);
        metalsim_set_limits(NULL);
        CHECK(live_when_idle() == 0);
        munmap(file, N_PAGES * PAGE);
    }
}

static void other_families(void) {
    static const char *const names[] = {"apple7", "apple8", "apple9", "apple10", "mac2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fixture s;
        err e = {0};
        be_need(metalsim_set_family(names[i]) == 0, names[i]);
        backend *be = open_metal(&e);
        CHECK_MSG(be, "%s: %s", names[i], e.msg);
        if (!be) continue;
        fixture_init(&s, be);
        CHECK(embed(&s) == 0 && backend_sync(be, &e) == 0 && first_row(&s) == 3);
        fixture_fini(&s);
        backend_close(be);
    }
    metalsim_set_family("apple9");
}

/* GPUs of other vendors may have another simdgroup width, which the kernels do not support. */
static void other_simdgroups(void) {
    const struct metalsim_limits limits = {.simd_width = 64};
    struct backend_config config = {.name = "auto", .max_rows = 8, .max_cols = 64};
    err e = {0};
    backend *be = NULL;
    metalsim_set_limits(&limits);
    CHECK(!open_metal(&e) && e.code == ERR_UNSUPPORTED && strstr(e.msg, "simdgroups of 64"));
    CHECK(backend_open(&config, &be, &e) == 0 && strcmp(backend_name(be), "cpu") == 0);
    backend_close(be);
    metalsim_set_limits(NULL);
    be = open_metal(&e);
    be_need(be != NULL, e.msg);
    struct fixture s;
    fixture_init(&s, be);
    metalsim_set_limits(&limits); /* of one kernel only */
    CHECK(embed(&s) == ERR_DEVICE && backend_sync(be, &e) == ERR_DEVICE);
    CHECK_MSG(strstr(e.msg, "simdgroups of 64"), "got \"%s\"", e.msg);
    metalsim_set_limits(NULL);
    fixture_fini(&s);
    backend_close(be);
    CHECK(live_when_idle() == 0);
}

/* A kernel whose register use allows fewer threads than its launch needs. */
static void too_few_threads(void) {
    const struct metalsim_limits limits = {.max_threads = 32};
    struct fixture s;
    err e = {0};
    backend *be = open_metal(&e);
    be_need(be != NULL, e.msg);
    fixture_init(&s, be);
    metalsim_set_limits(&limits);
    CHECK(embed(&s) == ERR_DEVICE && backend_sync(be, &e) == ERR_DEVICE);
    CHECK_MSG(strstr(e.msg, "cannot run embed") && strstr(e.msg, "at most 32 threads"),
              "got \"%s\"", e.msg);
    metalsim_set_limits(NULL);
    fixture_fini(&s);
    backend_close(be);
}

int main(void) {
    metalsim_set_options(0, 1, 0, 1);
    for (int i = 0; i < N_VOCAB * N_COLS; i++)
        table[i] = (float)(i + 1);
    RUN(no_objects_after_close);
    RUN(barriers_where_needed);
    RUN(failing_open);
    RUN(constant_memory_over_steps);
    RUN(failing_step);
    RUN(steps_in_parts);
    RUN(steps_without_a_wait);
    RUN(failing_pipeline);
    RUN(memory_stays_resident);
    RUN(uploads_wait);
    RUN(captured_steps);
    RUN(order_of_captured_steps);
    RUN(ranges_in_several_buffers);
    RUN(other_families);
    RUN(other_simdgroups);
    RUN(too_few_threads);
    return check_done();
}
