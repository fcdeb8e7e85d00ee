/* test_metal_rows.c - the Metal device itself: open, copies, moved rows, captured steps. Ops that
 * other tests run on every backend are not repeated here. Skipped in a build without Metal. */
#include "tests/support/blocks.h"
#include "tests/support/device_main.h"

#ifdef INFERD_METAL

static backend *open_metal(void) {
    return be_open_metal((struct backend_config){.max_rows = 64, .max_cols = 256});
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
    CHECK(backend_can_capture(be));
    CHECK(backend_capture_begin(be, 0, &e) == 0 && backend_gather(be, &a) == 0 &&
          backend_capture_end(be, &e) == 0);
    CHECK(dispatches(be, "gather") == 0);
    rows[0] = 2; /* the launch reads the buffers' current content */
    CHECK(backend_upload(be, br, 0, rows, sizeof rows, &e) == 0);
    CHECK(backend_graph_launch(be, &e) == 0 && backend_sync(be, &e) == 0);
    CHECK(dispatches(be, "gather") == 1);
    be_get(be, out, got, ROWS * COLS);
    for (int i = 0; i < ROWS; i++)
        CHECK(memcmp(got + i * COLS, x + rows[i] * COLS, COLS * sizeof *x) == 0);
    CHECK(backend_graph_launch(be, &e) == ERR_INVALID);
    CHECK(backend_capture_begin(be, 0, &e) == 0 && backend_gather(be, &a) == 0 &&
          backend_capture_end(be, &e) == 0);
    backend_graph_discard(be);
    CHECK(dispatches(be, "gather") == 1 && backend_graph_launch(be, &e) == ERR_INVALID);
    CHECK(backend_capture_begin(be, 0, &e) == 0 && backend_gather(be, &a) == 0 &&
          backend_capture_end(be, &e) == 0 && backend_graph_launch(be, &e) == 0);
    CHECK(backend_gather(be, &a) == 0 && backend_sync(be, &e) == 0);
    CHECK(dispatches(be, "gather") == 3);
    backend_buf_free(bx), backend_buf_free(br), backend_buf_free(out);
    backend_close(be);
}

/* Compares bits, except of subnormal values, which a device may flush to zero. */
static bool same_bits(float a, float b) {
    if (fabsf(a) < FLT_MIN && fabsf(b) < FLT_MIN) return true;
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* A table inside a mapped file, aligned to no more than its type requires. */
static void check_embed(backend *be, const struct block_type *t, uint32_t n_cols, uint8_t *pages,
                        uint64_t offset) {
    enum { VOCAB = 37, ROWS = 9, MAX_COLS = 768 };
    static float want[MAX_COLS], got[ROWS * MAX_COLS];
    uint64_t row = 0, one = qtype_find(t->type)->block_bytes;
    be_need(qtype_bytes(t->type, 1, n_cols, &row), "a row");
    for (uint64_t at = 0; at < VOCAB * row; at += one)
        block_make(t, (enum block_kind)be_below(N_BLOCK_KINDS), pages + offset + at);
    int32_t ids[ROWS];
    for (int i = 0; i < ROWS; i++)
        ids[i] = (int32_t)be_below(VOCAB);
    backend_weight *w = be_weight(be, t->type, VOCAB, n_cols, pages + offset);
    backend_buf *bi = be_i32(be, ids, ROWS), *out = be_f32(be, NULL, ROWS * n_cols);
    const struct op_embed a = {.table = w, .ids = bi, .n_rows = ROWS, .scale = 0.5f, .out = out};
    CHECK(backend_weight_bytes(w) == 0); /* read in place */
    CHECK(backend_embed(be, &a) == 0);
    be_get(be, out, got, ROWS * n_cols);
    for (uint32_t i = 0; i < ROWS; i++) {
        qtype_decode(t->type, pages + offset + (uint32_t)ids[i] * row, want, n_cols);
        for (uint32_t c = 0; c < n_cols; c++)
            CHECK_MSG(same_bits(got[i * n_cols + c], want[c] * 0.5f), "%s column %u: %a, not %a",
                      qtype_name(t->type), c, (double)got[i * n_cols + c], (double)want[c] * 0.5);
    }
    backend_buf_free(bi), backend_buf_free(out);
    backend_weight_free(w);
}

static void test_embed(void) {
    enum { BYTES = 8 * BACKEND_RANGE_ALIGN };
    uint8_t *pages = aligned_alloc(BACKEND_RANGE_ALIGN, BYTES);
    backend_range *range;
    err e;
    be_need(pages != NULL, "memory");
    memset(pages, 0, BYTES);
    backend *be = open_metal();
    be_need(backend_range_new(be, pages, BYTES, &range, &e) == 0, "a range");
    for (int t = 0; t < N_BLOCK_TYPES; t++) {
        const struct block_type *type = &block_types[t];
        uint64_t offset = type->type == QTYPE_F32 ? 4 : 2;
        if (qtype_find(type->type)->block_elems == QK_ELEMS) {
            check_embed(be, type, 768, pages, offset);
        } else if (qtype_find(type->type)->block_elems == Q_ELEMS) {
            check_embed(be, type, 32, pages, offset);
            check_embed(be, type, 736, pages, offset);
        } else {
            check_embed(be, type, 1, pages, offset);
            check_embed(be, type, 99, pages, offset);
            check_embed(be, type, 520, pages, offset);
        }
    }
    backend_range_free(range);
    backend_close(be);
    free(pages);
}

int main(void) {
    RUN(test_record);
    RUN(test_embed);
    return check_done();
}
#else
DEVICE_MAIN_SKIPS("metal", "this build has no Metal backend")
#endif
