/* test_cuda_branch.c - products of one input side by side (core/backend/cuda/branch.c): the bits of
 * each product alone, in a captured step that is replayed and outside one. The stand-in delays all
 * work until something waits for it, so that what does not follow the branches reads old values,
 * and refuses to capture a step that has not joined them. If the backend is linked in
 * (CUDA=standin), also the bits of one stream, and which products leave it. */
#include "tests/support/device_main.h"
#include "tests/support/matrix.h"

#include <math.h>

#ifdef INFERD_CUDA_STANDIN
#include "core/backend/cuda/gemm_int.h"
static void use_one_stream(backend *be, bool one_stream) {
    cuda_of(be)->force.one_stream = one_stream;
}
#else
static void use_one_stream(backend *be, bool one_stream) {
    (void)be, (void)one_stream;
}
#endif

enum { N = 3, MOST_ROWS = 140, MOST_COLS = 8448 };
static err e;

static backend *open_cuda(void) {
    const struct backend_config config = {.max_rows = MOST_ROWS, .max_cols = MOST_COLS};
    return be_open_config(config, "cuda");
}

/* Products of one input, and one whose input is the last one's result. */
struct products {
    uint32_t n_in, n_rows, n_out[N];
    backend_weight *w[N], *norm, *next;
    backend_buf *x, *y[N], *next_y;
    float *values; /* (n_rows, n_in): of x */
};

static backend_weight *random_weight(backend *be, int type, uint32_t n_out, uint32_t n_in) {
    struct matrix m = matrix_make(block_type_of(type), n_out, n_in, false);
    backend_weight *w = be_weight(be, type, n_out, n_in, m.packed);
    matrix_free(&m);
    return w;
}

static struct products products_new(backend *be, const int types[N], const uint32_t n_out[N],
                                    uint32_t n_in) {
    struct products p = {.n_in = n_in};
    float *norm = be_new(n_in, sizeof *norm);
    be_fill(norm, n_in, 1);
    p.norm = be_weight(be, QTYPE_F32, 1, n_in, norm);
    for (int i = 0; i < N; i++) {
        p.n_out[i] = n_out[i];
        p.w[i] = random_weight(be, types[i], n_out[i], n_in);
        p.y[i] = be_f32(be, NULL, (uint64_t)MOST_ROWS * n_out[i]);
    }
    p.next = random_weight(be, QTYPE_F16, 48, n_out[N - 1]);
    p.next_y = be_f32(be, NULL, MOST_ROWS * 48);
    p.x = be_f32(be, NULL, (uint64_t)MOST_ROWS * n_in);
    p.values = be_new((uint64_t)MOST_ROWS * n_in, sizeof *p.values);
    free(norm);
    return p;
}

static void products_free(struct products *p) {
    for (int i = 0; i < N; i++) {
        backend_weight_free(p->w[i]);
        backend_buf_free(p->y[i]);
    }
    backend_weight_free(p->norm);
    backend_weight_free(p->next);
    backend_buf_free(p->next_y);
    backend_buf_free(p->x);
    free(p->values);
}

static uint64_t n_results(const struct products *p) {
    return p->n_rows * (uint64_t)(p->n_out[0] + p->n_out[1] + p->n_out[2] + 48);
}

static void multiply(backend *be, const struct products *p, uint32_t first, uint32_t n) {
    struct op_linear op = {
        .in = {.x = p->x, .norm = p->norm, .eps = 1e-5f}, .n_rows = p->n_rows, .n_weights = n};
    for (uint32_t i = 0; i < n; i++)
        op.w[i] = p->w[first + i], op.y[i] = p->y[first + i];
    CHECK(backend_linear(be, &op) == 0);
}

static void multiply_next(backend *be, const struct products *p) {
    const struct op_linear op = {
        .in.x = p->y[N - 1], .n_rows = p->n_rows, .n_weights = 1, .w = {p->next}, .y = {p->next_y}};
    CHECK(backend_linear(be, &op) == 0);
}

/* Sets the input, and the results to values that no product gives. */
static void prepare(backend *be, const struct products *p) {
    const uint64_t n = (uint64_t)p->n_rows * p->n_in;
    CHECK(backend_upload(be, p->x, 0, p->values, n * sizeof *p->values, &e) == 0);
    float *none = be_new(n_results(p), sizeof *none);
    for (uint64_t i = 0; i < n_results(p); i++)
        none[i] = NAN;
    for (int i = 0; i < N; i++)
        CHECK(backend_upload(be, p->y[i], 0, none, (uint64_t)p->n_rows * p->n_out[i] * 4, &e) == 0);
    free(none);
}

static void get(backend *be, const struct products *p, float *got) {
    be_get(be, p->next_y, got, p->n_rows * 48);
    got += p->n_rows * 48;
    for (int i = 0; i < N; got += p->n_rows * p->n_out[i], i++)
        be_get(be, p->y[i], got, p->n_rows * p->n_out[i]);
}

enum way { ALONE, ONE_STREAM, TOGETHER, CAPTURED, REPLAYED, N_WAYS };
static const char *const way_names[] = {"alone", "one stream", "together", "captured", "replayed"};

static void run_way(backend *be, const struct products *p, enum way way, uint64_t key, float *got) {
    const bool captures = way == CAPTURED || way == REPLAYED;
    prepare(be, p);
    use_one_stream(be, way == ONE_STREAM);
    if (captures) CHECK(backend_capture_begin(be, key, &e) == (way == REPLAYED));
    for (uint32_t i = 0; way == ALONE && i < N; i++)
        multiply(be, p, i, 1);
    if (way != ALONE && way != REPLAYED) multiply(be, p, 0, N);
    if (way != REPLAYED) multiply_next(be, p);
    if (way == CAPTURED) CHECK_MSG(backend_capture_end(be, &e) == 0, "%s", e.msg);
    if (captures) CHECK_MSG(backend_graph_launch(be, &e) == 0, "%s", e.msg);
    get(be, p, got);
    use_one_stream(be, false);
}

/* Replays two times, with other inputs. */
static void check_bits(backend *be, struct products *p, const char *name) {
    static uint64_t key;
    static const enum way ways[] = {ONE_STREAM, TOGETHER, CAPTURED, REPLAYED, REPLAYED};
    float *want = be_new(n_results(p), 4), *got = be_new(n_results(p), 4);
    key++;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (i == 0 || ways[i] == REPLAYED) {
            be_fill(p->values, (uint64_t)p->n_rows * p->n_in, 2);
            run_way(be, p, ALONE, 0, want);
        }
        run_way(be, p, ways[i], key, got);
        CHECK_MSG(memcmp(got, want, n_results(p) * sizeof *got) == 0,
                  "%s (%u, %u, %u; %u), %u rows, %s: other bits than alone", name, p->n_out[0],
                  p->n_out[1], p->n_out[2], p->n_in, p->n_rows, way_names[ways[i]]);
    }
    free(want), free(got);
}

static const struct shape {
    const char *name;
    int types[N];
    uint32_t n_out[N], n_in;
    int n_branches; /* on the stand-in, which has no cuBLASLt */
} shapes[] = {
    {"F16", {QTYPE_F16, QTYPE_F16, QTYPE_F16}, {300, 100, 72}, 200, 2},
    {"BF16", {QTYPE_BF16, QTYPE_BF16, QTYPE_BF16}, {67, 259, 131}, 136, 2},
    {"F16, some tiny", {QTYPE_F16, QTYPE_F16, QTYPE_F16}, {33, 200, 17}, 136, 2},
    {"F16, all tiny", {QTYPE_F16, QTYPE_F16, QTYPE_F16}, {33, 64, 17}, 136, 0},
    {"Q4_K", {QTYPE_Q4_K, QTYPE_Q4_K, QTYPE_Q4_K}, {301, 97, 80}, 512, 2},
    {"Q6_K", {QTYPE_Q6_K, QTYPE_Q6_K, QTYPE_Q6_K}, {130, 66, 65}, 256, 2},
    {"Q4_K, Q6_K", {QTYPE_Q4_K, QTYPE_Q4_K, QTYPE_Q6_K}, {200, 96, 96}, 256, 1},
    {"K splits", {QTYPE_Q4_K, QTYPE_Q4_K, QTYPE_Q4_K}, {80, 65, 72}, 8448, 0},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static void bits_are_those_of_one_stream(void) {
    static const uint32_t rows[] = {33, 64, 65, 128};
    backend *be = open_cuda();
    be_rng.state = 91;
    for (int s = 0; s < N_SHAPES; s++) {
        const struct shape *shape = &shapes[s];
        struct products p = products_new(be, shape->types, shape->n_out, shape->n_in);
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            if (shape->n_in > 1024 ? r != 0 : be_quick && (r + (size_t)s) % 4 != 0) continue;
            p.n_rows = rows[r];
            check_bits(be, &p, shape->name);
        }
        products_free(&p);
    }
    backend_close(be);
}

#ifdef INFERD_CUDA_STANDIN
/* Branches whose streams have work that has not run. The next launch may overlap none of it; after
 * one branch here another product follows. */
static int n_branches(backend *be, const struct products *p, uint32_t n) {
    struct cuda_backend *c = cuda_of(be);
    int used = 0;
    prepare(be, p);
    CHECK(backend_sync(be, &e) == 0);
    multiply(be, p, 0, n);
    for (int i = 1; i < CUDA_BRANCHES; i++)
        used += cudaStreamQuery(c->branches.streams[i]) == cudaErrorNotReady;
    cudaGetLastError();
    CHECK(c->after_other == (used == 2) && c->branches.at == 0 && backend_sync(be, &e) == 0);
    return used;
}

static void products_leave_the_stream(void) {
    static const uint32_t rows[] = {32, 33, 128, 129};
    backend *be = open_cuda();
    be_rng.state = 92;
    for (int s = 0; s < N_SHAPES; s++) {
        const struct shape *shape = &shapes[s];
        struct products p = products_new(be, shape->types, shape->n_out, shape->n_in);
        be_fill(p.values, (uint64_t)MOST_ROWS * p.n_in, 2);
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            if (be_quick && (shape->n_in > 1024 ? r != 1 : r % 2 != (size_t)s % 2)) continue;
            p.n_rows = rows[r];
            const int most = p.n_rows > 32 && p.n_rows <= 128 ? shape->n_branches : 0;
            const int all = n_branches(be, &p, N), one = n_branches(be, &p, 1);
            use_one_stream(be, true);
            const int none = n_branches(be, &p, N);
            use_one_stream(be, false);
            CHECK_MSG(all == most && one == 0 && none == 0,
                      "%s, %u rows: %d branches, not %d; %d of one product; %d of one stream",
                      shape->name, p.n_rows, all, most, one, none);
        }
        products_free(&p);
    }
    backend_close(be);
}

/* A launch in a branch that fails: the capture ends, and the failure is its own. */
static void failures_join(void) {
    backend *be = open_cuda();
    struct cuda_backend *c = cuda_of(be);
    be_rng.state = 93;
    struct products p = products_new(be, shapes[0].types, shapes[0].n_out, shapes[0].n_in);
    p.n_rows = 40;
    prepare(be, &p);
    CHECK(backend_capture_begin(be, 1000, &e) == 0);
    CHECK(cuda_fork(c) == 0 && cuda_branch(c, 1) == 0);
    CHECK(c->after_other && !c->n_launches_tile);
    cuda_fail(c, "a product", cudaErrorInvalidValue);
    CHECK(cuda_branch(c, 2) == ERR_DEVICE && cuda_join(c) == ERR_DEVICE && c->branches.at == 0);
    CHECK(backend_capture_end(be, &e) == ERR_DEVICE && strstr(e.msg, "a product"));
    enum cudaStreamCaptureStatus status;
    for (int i = 1; i < CUDA_BRANCHES; i++)
        CHECK(cudaStreamIsCapturing(c->branches.streams[i], &status) == 0 &&
              status == cudaStreamCaptureStatusNone);
    products_free(&p);
    backend_close(be);
}
#endif

static void run(void) {
    RUN(bits_are_those_of_one_stream);
#ifdef INFERD_CUDA_STANDIN
    RUN(products_leave_the_stream);
    RUN(failures_join);
#endif
}

int main(int argc, char **argv) {
    setenv("CUDASIM_LATE", "1", 1); /* the stand-in runs work only when it is waited for */
    return device_main(argc, argv, "cuda", run);
}
