/* test_metal_rows.c - the Metal device itself: opens, copies, rows moved, steps encoded ahead.
 * Skips in a build without it. Ops that other tests go through on every backend are not repeated
 * here. */
#include "tests/support/be.h"
#include "tests/unit/check.h"

#ifdef INFERD_METAL

static backend *open_metal(void) {
    backend *be;
    err e = {0};
    struct backend_config config = {.name = "metal", .max_rows = 64, .max_cols = 256};
    be_need(backend_open(&config, &be, &e) == 0, e.msg);
    return be;
}

static uint64_t dispatches(const backend *be, const char *kernel) {
    for (uint32_t i = 0; i < backend_n_kernels(be); i++)
        if (strcmp(backend_kernel_name(be, i), kernel) == 0) return backend_dispatch_count(be, i);
    return UINT64_MAX;
}

static void test_record(void) {
    enum { COLS = 70, ROWS = 5 };
    backend *be = open_metal();
    float x[ROWS * COLS], got[ROWS * COLS];
    int32_t rows[ROWS] = {4, 0, 0, 3, 1};
    err e;
    be_fill(x, ROWS * COLS, 1);
    backend_buf *bx = be_f32(be, x, ROWS * COLS), *br = be_i32(be, rows, ROWS);
    backend_buf *out = be_f32(be, NULL, ROWS * COLS);
    const struct op_gather a = {
        .x = bx, .rows = br, .n_out_rows = ROWS, .n_cols = COLS, .out = out};
    CHECK(backend_can_record(be));
    CHECK(backend_record(be, &e) == 0 && backend_gather(be, &a) == 0 &&
          backend_record_end(be, &e) == 0);
    CHECK(dispatches(be, "gather") == 0);
    rows[0] = 2; /* what the buffers hold when it runs counts */
    CHECK(backend_upload(be, br, 0, rows, sizeof rows, &e) == 0);
    CHECK(backend_run_recorded(be, &e) == 0 && backend_sync(be, &e) == 0);
    CHECK(dispatches(be, "gather") == 1);
    be_get(be, out, got, ROWS * COLS);
    for (int i = 0; i < ROWS; i++)
        CHECK(memcmp(got + i * COLS, x + rows[i] * COLS, COLS * sizeof *x) == 0);
    CHECK(backend_run_recorded(be, &e) == ERR_INVALID);
    CHECK(backend_record(be, &e) == 0 && backend_gather(be, &a) == 0 &&
          backend_record_end(be, &e) == 0);
    backend_drop_recorded(be);
    CHECK(dispatches(be, "gather") == 1 && backend_run_recorded(be, &e) == ERR_INVALID);
    backend_buf_free(bx), backend_buf_free(br), backend_buf_free(out);
    backend_close(be);
}

static void test_embed(void) {
    enum { COLS = 96, VOCAB = 37, ROWS = 9 };
    static const int types[] = {QTYPE_F32, QTYPE_F16, QTYPE_BF16, QTYPE_Q8_0};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        backend *be = open_metal();
        float x[VOCAB * COLS], want[VOCAB * COLS], got[ROWS * COLS];
        uint16_t packed[VOCAB * COLS * 2];
        int32_t ids[ROWS];
        be_fill(x, VOCAB * COLS, 3);
        qtype_encode(types[t], x, packed, VOCAB * COLS);
        qtype_decode(types[t], packed, want, VOCAB * COLS);
        for (int i = 0; i < ROWS; i++)
            ids[i] = (int32_t)be_below(VOCAB);
        backend_weight *w = be_weight(be, types[t], VOCAB, COLS, packed);
        backend_buf *bi = be_i32(be, ids, ROWS), *out = be_f32(be, NULL, ROWS * COLS);
        CHECK(backend_embed(
                  be, &(struct op_embed){
                          .table = w, .ids = bi, .n_rows = ROWS, .scale = 0.5f, .out = out}) == 0);
        be_get(be, out, got, ROWS * COLS);
        for (int i = 0; i < ROWS * COLS; i++)
            CHECK(got[i] == want[ids[i / COLS] * COLS + i % COLS] * 0.5f);
        backend_buf_free(bi), backend_buf_free(out);
        backend_weight_free(w);
        backend_close(be);
    }
}

int main(void) {
    RUN(test_record);
    RUN(test_embed);
    return check_done();
}
#else
int main(void) {
    SKIP("metal", "this build has no Metal backend");
    return check_done();
}
#endif
