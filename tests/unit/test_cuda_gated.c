/* test_cuda_gated.c - epilogues that the next product's input makes (c->put_off): many rows'
 * products with op_linear's y_once have the bits that they have without, those of gate and up, then
 * of down (input_gated), and those whose sums lack their scales when they are a residual. If the
 * backend is linked in (CUDA=standin), the rounded rows and scales are compared themselves, of any
 * sums; and what begins an epilogue that was put off, or drops it. */
#include "tests/support/device_main.h"
#include "tests/support/matrix.h"

#include <math.h>

#ifdef INFERD_CUDA_STANDIN
#include "core/backend/cuda/gemm_int.h"
#include "shaders/cuda/kernels.h"

static err e;

enum { MOST_ROWS = 140, FFN_ROWS = 67 };

#else
/* More rows than any that are measured at load: always by cuBLASLt, if it is there. */
enum { MOST_ROWS = 700, FFN_ROWS = 601 };
#endif

static backend *open_cuda(uint32_t max_cols) {
    const struct backend_config config = {.max_rows = MOST_ROWS, .max_cols = max_cols};
    return be_open_config(config, "cuda");
}

/* ---- gate and up, then down ---- */

enum { N_MODEL = 264, MOST_FF = 1100 };

struct ffn {
    uint32_t n_ff;
    enum backend_act act;
    int type, down_type; /* of gate and up, of down */
    bool biases, two;    /* two: down is two products, the second one of F32 */
    uint64_t n_gated;    /* input_gated's launches: 1 or 0 */
};

struct ffn_weights {
    backend_weight *in[2], *bias[2], *down[2];
};

static backend_weight *random_weight(backend *be, int type, uint32_t n_out, uint32_t n_in) {
    struct matrix m = matrix_make(block_type_of(type), n_out, n_in, false);
    backend_weight *w = be_weight(be, type, n_out, n_in, m.packed);
    matrix_free(&m);
    return w;
}

static struct ffn_weights weights_new(backend *be, const struct ffn *f) {
    struct ffn_weights w = {0};
    for (int i = 0; i < 2; i++) {
        w.in[i] = random_weight(be, f->type, f->n_ff, N_MODEL);
        if (f->biases) w.bias[i] = random_weight(be, QTYPE_F32, 1, f->n_ff);
        if (i == 0 || f->two)
            w.down[i] = random_weight(be, i ? QTYPE_F32 : f->down_type, 20, f->n_ff);
    }
    return w;
}

static void weights_free(const struct ffn_weights *w) {
    for (int i = 0; i < 2; i++) {
        backend_weight_free(w->in[i]);
        if (w->bias[i]) backend_weight_free(w->bias[i]);
        if (w->down[i]) backend_weight_free(w->down[i]);
    }
}

/* out: (2, n_rows, 20). */
static void run_ffn(backend *be, const struct ffn *f, const struct ffn_weights *w, backend_buf *x,
                    uint32_t n_rows, bool y_once, float *out) {
    const uint64_t n = (uint64_t)n_rows * 20;
    backend_buf *hidden = be_f32(be, NULL, (uint64_t)n_rows * f->n_ff);
    backend_buf *y[2] = {be_f32(be, NULL, n), be_f32(be, NULL, n)};
    CHECK(backend_linear(be, &(struct op_linear){.in.x = x,
                                                 .n_rows = n_rows,
                                                 .n_weights = 2,
                                                 .w = {w->in[0], w->in[1]},
                                                 .bias = {w->bias[0], w->bias[1]},
                                                 .act = f->act,
                                                 .y = {hidden},
                                                 .y_once = y_once}) == 0);
    CHECK(backend_linear(be, &(struct op_linear){.in.x = hidden,
                                                 .n_rows = n_rows,
                                                 .n_weights = f->two ? 2 : 1,
                                                 .w = {w->down[0], w->down[1]},
                                                 .y = {y[0], y[1]}}) == 0);
    be_get(be, y[0], out, n);
    be_get(be, y[1], out + n, n);
    backend_buf_free(hidden);
    backend_buf_free(y[0]);
    backend_buf_free(y[1]);
}

static void check_ffn(backend *be, const struct ffn *f, uint32_t n_rows) {
    const struct ffn_weights w = weights_new(be, f);
    const uint64_t n = (uint64_t)n_rows * N_MODEL, bytes = (uint64_t)2 * n_rows * 20 * 4;
    float *values = be_new(n, sizeof *values), *want = be_new(bytes, 1), *got = be_new(bytes, 1);
    be_fill(values, n, 3);
    values[N_MODEL + 7] = INFINITY, values[2 * N_MODEL + 8] = NAN;
    backend_buf *x = be_f32(be, values, n);
    run_ffn(be, f, &w, x, n_rows, false, want);
    const uint64_t before = be_dispatches(be, "input_gated");
    run_ffn(be, f, &w, x, n_rows, true, got);
    const uint64_t n_gated = be_dispatches(be, "input_gated") - before;
    CHECK_MSG(memcmp(got, want, bytes) == 0, "%u rows of %u, activation %d: other bits", n_rows,
              f->n_ff, (int)f->act);
#ifdef INFERD_CUDA_STANDIN
    CHECK_MSG(n_gated == f->n_gated, "%u rows of %u: %u launches of input_gated", n_rows, f->n_ff,
              (unsigned)n_gated);
#else
    CHECK(n_gated <= f->n_gated);
#endif
    backend_buf_free(x);
    weights_free(&w);
    free(values), free(want), free(got);
}

static const struct ffn ffns[] = {
    {260, BACKEND_ACT_SILU, QTYPE_F16, QTYPE_F16, false, false, 1},
    {MOST_FF, BACKEND_ACT_GELU_TANH, QTYPE_BF16, QTYPE_F16, true, false, 1},
    {300, BACKEND_ACT_SWIGLU_OAI, QTYPE_F16, QTYPE_BF16, true, false, 1},
    {288, BACKEND_ACT_GELU, QTYPE_F16, QTYPE_Q8_0, false, false, 1},
    {261, BACKEND_ACT_SILU, QTYPE_F16, QTYPE_F16, false, false, 0}, /* rows are not aligned */
    {260, BACKEND_ACT_SILU, QTYPE_F16, QTYPE_F32, false, false, 0}, /* f32 is needed */
    {260, BACKEND_ACT_SILU, QTYPE_F16, QTYPE_F16, false, true, 0},  /* beside f16 */
};
enum { N_FFNS = sizeof ffns / sizeof ffns[0] };

static void bits_are_those_of_a_written_layer(void) {
    backend *be = open_cuda(MOST_FF);
    be_rng.state = 101;
#ifdef INFERD_CUDA_STANDIN
    cuda_of(be)->force.path = CUDA_PATH_LARGE;
#endif
    for (int i = 0; i < N_FFNS; i++)
        check_ffn(be, &ffns[i], FFN_ROWS);
#ifdef INFERD_CUDA_STANDIN
    /* As many rows at once as a smaller scratch memory holds: the epilogue follows each part. */
    struct ffn parts = ffns[0];
    cuda_of(be)->scratch_bytes[CUDA_SCRATCH_PAIR] = (uint64_t)2 * 70 * parts.n_ff * 4;
    check_ffn(be, &parts, 70);
    parts.n_gated = 0;
    check_ffn(be, &parts, 135);
#endif
    backend_close(be);
}

/* ---- a residual without its scales ---- */

enum { N_RESIDUAL = 268, N_NEXT = 72 };

struct residual {
    backend_weight *w, *norm, *post_norm, *next; /* next: of the product that adds it */
    backend_buf *x;
    uint32_t n_rows;
};

/* A product, then one that adds its result to `to`; between: another op in between. out: the next
 * one's results, then the sum's rows. */
static void run_residual(backend *be, const struct residual *r, bool y_once, bool between,
                         const float *to, float *out) {
    const uint64_t n = (uint64_t)r->n_rows * N_RESIDUAL, n_next = (uint64_t)r->n_rows * N_NEXT;
    backend_buf *y = be_f32(be, NULL, n), *x = be_f32(be, to, n), *next = be_f32(be, NULL, n_next),
                *normed = be_f32(be, NULL, n);
    CHECK(backend_linear(be, &(struct op_linear){.in.x = r->x,
                                                 .n_rows = r->n_rows,
                                                 .n_weights = 1,
                                                 .w = {r->w},
                                                 .y = {y},
                                                 .y_once = y_once}) == 0);
    struct op_input in = {.x = x,
                          .residual = y,
                          .residual_norm = r->post_norm,
                          .residual_scale = 0.5f,
                          .norm = r->norm,
                          .eps = 1e-5f};
    if (between)
        CHECK(backend_norm(be, &(struct op_norm){.in = {.x = x, .norm = r->norm, .eps = 1e-5f},
                                                 .n_rows = r->n_rows,
                                                 .out = normed}) == 0);
    CHECK(backend_linear(be, &(struct op_linear){.in = in,
                                                 .n_rows = r->n_rows,
                                                 .n_weights = 1,
                                                 .w = {r->next},
                                                 .y = {next}}) == 0);
    be_get(be, next, out, n_next);
    be_get(be, x, out + n_next, n);
    backend_buf_free(y);
    backend_buf_free(x);
    backend_buf_free(next);
    backend_buf_free(normed);
}

static void check_residual(backend *be, int type, int next_type, uint32_t n_in, bool post_norm) {
    const uint32_t n_rows = FFN_ROWS;
    const uint64_t n = (uint64_t)n_rows * N_RESIDUAL, n_out = n + (uint64_t)n_rows * N_NEXT;
    float *to = be_new(n, sizeof *to), *values = be_new((uint64_t)n_rows * n_in, sizeof *values);
    float *want = be_new(n_out, sizeof *want), *got = be_new(n_out, sizeof *got);
    be_fill(values, (uint64_t)n_rows * n_in, 300); /* rows whose scales differ */
    for (uint32_t row = 0; row < n_rows; row++)
        for (uint32_t i = 0; i < n_in; i++)
            values[(uint64_t)row * n_in + i] *= ldexpf(1, (int)(row % 9) - 4);
    values[n_in + 7] = INFINITY, values[2 * n_in + 8] = NAN;
    be_fill(to, n, 3);
    const struct residual r = {.w = random_weight(be, type, N_RESIDUAL, n_in),
                               .norm = random_weight(be, QTYPE_F32, 1, N_RESIDUAL),
                               .post_norm =
                                   post_norm ? random_weight(be, QTYPE_F32, 1, N_RESIDUAL) : NULL,
                               .next = random_weight(be, next_type, N_NEXT, N_RESIDUAL),
                               .x = be_f32(be, values, (uint64_t)n_rows * n_in),
                               .n_rows = n_rows};
    run_residual(be, &r, false, false, to, want);
    for (int between = 0; between < 2; between++) {
        const uint64_t before = be_dispatches(be, "epilogue");
        run_residual(be, &r, true, between, to, got);
        const uint64_t n_epilogues = be_dispatches(be, "epilogue") - before;
        CHECK_MSG(memcmp(got, want, n_out * sizeof *got) == 0, "%u columns, between %d: other bits",
                  n_in, between);
#ifdef INFERD_CUDA_STANDIN
        CHECK_MSG(n_epilogues == (uint64_t)between, "%u epilogues", (unsigned)n_epilogues);
#else
        CHECK(n_epilogues <= (uint64_t)between);
#endif
    }
    backend_buf_free(r.x);
    backend_weight_free(r.w);
    backend_weight_free(r.norm);
    if (post_norm) backend_weight_free(r.post_norm);
    backend_weight_free(r.next);
    free(to), free(values), free(want), free(got);
}

static void residuals_without_scales(void) {
    backend *be = open_cuda(MOST_FF);
    be_rng.state = 104;
#ifdef INFERD_CUDA_STANDIN
    cuda_of(be)->force.path = CUDA_PATH_LARGE;
#endif
    check_residual(be, QTYPE_F16, QTYPE_F16, 300, false);
    check_residual(be, QTYPE_BF16, QTYPE_F16, 1100, true);
    check_residual(be, QTYPE_F16, QTYPE_F32, 261, false);
    backend_close(be);
}

/* ---- two products in one launch of cuBLASLt ---- */

/* Queries, keys and values of one input have the bits that each has alone. */
static void two_of_one_shape(void) {
    enum { N = 3, N_IN = 136 };
    static const uint32_t n_out[N] = {272, 260, 260};
    backend *be = open_cuda(N_IN);
    float *values = be_new((uint64_t)MOST_ROWS * N_IN, sizeof *values);
    be_rng.state = 105;
#ifdef INFERD_CUDA_STANDIN
    cuda_of(be)->force.path = CUDA_PATH_LARGE;
#endif
    be_fill(values, (uint64_t)MOST_ROWS * N_IN, 3);
    backend_buf *x = be_f32(be, values, (uint64_t)MOST_ROWS * N_IN);
    backend_weight *norm = random_weight(be, QTYPE_F32, 1, N_IN);
    struct op_linear op = {.in = {.x = x, .norm = norm, .eps = 1e-5f}, .n_rows = MOST_ROWS};
    backend_weight *w[N];
    for (uint32_t i = 0; i < N; i++) {
        op.w[i] = w[i] = random_weight(be, QTYPE_F16, n_out[i], N_IN);
        op.y[i] = be_f32(be, NULL, (uint64_t)MOST_ROWS * n_out[i]);
    }
    op.n_weights = N;
    CHECK(backend_linear(be, &op) == 0);
    for (uint32_t i = 0; i < N; i++) {
        const uint64_t n = (uint64_t)MOST_ROWS * n_out[i];
        float *got = be_new(n, sizeof *got), *want = be_new(n, sizeof *want);
        be_get(be, op.y[i], got, n);
        CHECK(backend_linear(be, &(struct op_linear){.in = op.in,
                                                     .n_rows = MOST_ROWS,
                                                     .n_weights = 1,
                                                     .w = {op.w[i]},
                                                     .y = {op.y[i]}}) == 0);
        be_get(be, op.y[i], want, n);
        CHECK_MSG(memcmp(got, want, n * sizeof *got) == 0, "product %u: other bits", i);
        free(got), free(want);
    }
    for (uint32_t i = 0; i < N; i++) {
        backend_weight_free(w[i]);
        backend_buf_free(op.y[i]);
    }
    backend_weight_free(norm);
    backend_buf_free(x);
    free(values);
    backend_close(be);
}

#ifdef INFERD_CUDA_STANDIN
/* ---- the kernel ---- */

enum { SUM_ROWS = 5, MOST_SUMS = 32780 };

/* Sums of gate and up, with the memory in which multiply_pair leaves them. */
struct sums {
    struct cuda_weight w;
    struct cuda_product p;
    backend_weight *bias[2];
    backend_buf *y;
    float *values, *gate, *up; /* (2, SUM_ROWS, n_out) on the host; on the device */
};

/* Numbers of all sizes; one row with infinities, one with NaN, one of zeros. */
static void fill_sums(float *values, uint32_t n) {
    for (uint64_t i = 0; i < (uint64_t)2 * SUM_ROWS * n; i++)
        values[i] = ldexpf(be_real(), (int)be_below(24) - 12);
    for (uint32_t k = 0; k < 2; k++) {
        float *rows = values + (uint64_t)k * SUM_ROWS * n;
        rows[n + be_below(n)] = INFINITY, rows[n + be_below(n)] = -INFINITY;
        rows[2 * n + be_below(n)] = NAN;
        memset(rows + 3 * n, 0, n * sizeof *rows);
    }
}

static struct sums sums_new(backend *be, uint32_t n, enum backend_act act, bool biases,
                            struct backend_bounds bounds) {
    struct sums s = {.w = {.base = {.be = be, .n_out = n}, .scale = 0.5f},
                     .y = be_f32(be, NULL, (uint64_t)SUM_ROWS * n),
                     .values = be_new((uint64_t)2 * SUM_ROWS * n, sizeof *s.values)};
    fill_sums(s.values, n);
    for (int i = 0; i < 2 && biases; i++)
        s.bias[i] = random_weight(be, QTYPE_F32, 1, n);
    s.p = (struct cuda_product){.act = act,
                                .bias = cuda_vector(s.bias[0]),
                                .pair_bias = cuda_vector(s.bias[1]),
                                .bounds = bounds,
                                .n_rows = SUM_ROWS,
                                .y = cuda_at(s.y)};
    s.gate = cuda_scratch(cuda_of(be), CUDA_SCRATCH_PAIR);
    s.up = s.gate + (uint64_t)SUM_ROWS * n;
    return s;
}

static void sums_free(struct sums *s) {
    for (int i = 0; i < 2; i++)
        if (s->bias[i]) backend_weight_free(s->bias[i]);
    backend_buf_free(s->y);
    free(s->values);
}

/* Uploads them with their rows' scales, and old values of what is made of them. */
static void prepare(backend *be, struct sums *s) {
    static const float scales[SUM_ROWS] = {1, 0.25f, 2, 4, 0.125f};
    struct cuda_backend *c = cuda_of(be);
    const uint64_t n = (uint64_t)SUM_ROWS * s->w.base.n_out;
    const uint64_t bytes = (uint64_t)SUM_ROWS * cuda_pitch((uint32_t)s->w.base.n_out) * 2;
    void *old = be_new(n, sizeof(float) * 2);
    memset(old, 0x55, n * sizeof(float));
    s->p.w = s->p.pair = &s->w;
    be_need(
        !backend_upload(be, c->scratch[CUDA_SCRATCH_PAIR], 0, s->values, 2 * n * 4, &e) &&
            !backend_upload(be, c->scratch[CUDA_SCRATCH_IN_SCALE], 0, scales, sizeof scales, &e) &&
            !backend_upload(be, s->y, 0, old, n * 4, &e),
        "an upload");
    free(old);
    old = be_new(bytes, 1);
    memset(old, 0x55, bytes);
    be_need(!backend_upload(be, c->scratch[CUDA_SCRATCH_IN16], 0, old, bytes, &e), "an upload");
    free(old);
}

static int read_y(backend *be, const struct sums *s, uint32_t kinds) {
    return cuda_input(cuda_of(be), &(struct op_input){.x = s->y}, SUM_ROWS,
                      (uint32_t)s->w.base.n_out, kinds, NULL);
}

/* The rows that a product reads, then their scales: (SUM_ROWS, pitch) f16, (SUM_ROWS) f32. */
static void get_rows(backend *be, const struct sums *s, uint8_t *out) {
    struct cuda_backend *c = cuda_of(be);
    const uint64_t bytes = (uint64_t)SUM_ROWS * cuda_pitch((uint32_t)s->w.base.n_out) * 2;
    be_need(!backend_download(be, c->scratch[CUDA_SCRATCH_IN16], 0, out, bytes, &e) &&
                !backend_download(be, c->scratch[CUDA_SCRATCH_IN_SCALE], 0, out + bytes,
                                  SUM_ROWS * 4, &e),
            "a download");
}

static bool is_unwritten(backend *be, const struct sums *s) {
    const uint64_t n = (uint64_t)SUM_ROWS * s->w.base.n_out;
    uint32_t *y = be_new(n, sizeof *y);
    bool unwritten = true;
    be_get(be, s->y, (float *)y, n);
    for (uint64_t i = 0; i < n; i++)
        unwritten = unwritten && y[i] == 0x55555555;
    free(y);
    return unwritten;
}

static void check_rows(backend *be, struct sums *s) {
    struct cuda_backend *c = cuda_of(be);
    const uint32_t n = (uint32_t)s->w.base.n_out;
    const uint64_t bytes = (uint64_t)SUM_ROWS * (cuda_pitch(n) * 2 + 4);
    const bool fits = cuda_input_gated_kernel(cuda_pitch(n)).kernel;
    uint8_t *want = be_new(bytes, 1), *got = be_new(bytes, 1);
    prepare(be, s);
    CHECK(cuda_epilogue(c, &s->p, 0, SUM_ROWS, s->gate, s->up) == 0);
    CHECK(read_y(be, s, CUDA_IN_F16) == 0);
    get_rows(be, s, want);
    CHECK(!is_unwritten(be, s));
    prepare(be, s);
    cuda_epilogue_later(c, &s->p, s->gate, s->up);
    CHECK(read_y(be, s, CUDA_IN_F16) == 0 && !c->put_off.args.y && c->in_scale == 0);
    get_rows(be, s, got);
    CHECK_MSG(memcmp(got, want, bytes) == 0, "%u columns, activation %d: other bits", n,
              (int)s->p.act);
    CHECK(is_unwritten(be, s) == fits);
    free(want), free(got);
}

/* Rows of any number of threads and groups of columns, the shortest and longest of each, and rows
 * that are too long. */
static void rows_and_scales(void) {
    static const uint32_t n_outs[] = {4, 64, 300, 4096, 4100, 7172, 14336, 14340, 32768, MOST_SUMS};
    static const struct backend_bounds none = {0}, bounds = {3, 2};
    backend *be = open_cuda(MOST_SUMS);
    be_rng.state = 102;
    for (uint32_t i = 0; i < sizeof n_outs / sizeof n_outs[0]; i++)
        for (uint32_t act = BACKEND_ACT_SILU; act < BACKEND_N_ACTS; act++) {
            const bool bounded = act == BACKEND_ACT_SILU && i % 2;
            if (n_outs[i] > 4100 && (be_quick || i % 2) && act % 2 != i % 2) continue;
            struct sums s = sums_new(be, n_outs[i], (enum backend_act)act, (act + i) % 3 == 0,
                                     bounded ? bounds : none);
            check_rows(be, &s);
            sums_free(&s);
        }
    backend_close(be);
}

/* What reads y otherwise, or something else, finds it written; a dropped step leaves nothing. */
static void others_find_it_written(void) {
    enum { N = 260 };
    static const uint32_t kinds[] = {CUDA_IN_F32, CUDA_IN_F16 | CUDA_IN_F32};
    backend *be = open_cuda(N);
    struct cuda_backend *c = cuda_of(be);
    float want[SUM_ROWS * N], got[SUM_ROWS * N];
    be_rng.state = 103;
    struct sums s = sums_new(be, N, BACKEND_ACT_SILU, true, (struct backend_bounds){0});
    prepare(be, &s);
    CHECK(cuda_epilogue(c, &s.p, 0, SUM_ROWS, s.gate, s.up) == 0);
    be_get(be, s.y, want, SUM_ROWS * N);
    for (int i = 0; i < 5; i++) {
        prepare(be, &s);
        cuda_epilogue_later(c, &s.p, s.gate, s.up);
        if (i < 2) CHECK(read_y(be, &s, kinds[i]) == 0);
        if (i == 2) /* fewer rows */
            CHECK(cuda_input(c, &(struct op_input){.x = s.y}, 2, N, CUDA_IN_F16, NULL) == 0);
        if (i == 3) /* other rows */
            CHECK(cuda_input(c, &(struct op_input){.x = c->scratch[CUDA_SCRATCH_PAIR]}, SUM_ROWS, N,
                             CUDA_IN_F16, NULL) == 0);
        CHECK(!c->put_off.args.y == (i < 4));
        be_get(be, s.y, got, SUM_ROWS * N);
        CHECK_MSG(memcmp(got, want, sizeof got) == 0, "way %d: other bits", i);
    }
    for (int dropped = 0; dropped < 2; dropped++) { /* in a captured step */
        prepare(be, &s);
        CHECK(backend_capture_begin(be, 1, &e) == 0);
        cuda_epilogue_later(c, &s.p, s.gate, s.up);
        if (dropped)
            backend_graph_discard(be);
        else
            CHECK(backend_capture_end(be, &e) == 0);
        CHECK(!c->put_off.args.y && is_unwritten(be, &s));
        if (dropped) continue;
        CHECK(backend_graph_launch(be, &e) == 0);
        be_get(be, s.y, got, SUM_ROWS * N);
        CHECK(memcmp(got, want, sizeof got) == 0);
        cuda_graphs_free(c);
    }
    sums_free(&s);
    backend_close(be);
}
#endif

static void run(void) {
    RUN(bits_are_those_of_a_written_layer);
    RUN(residuals_without_scales);
    RUN(two_of_one_shape);
#ifdef INFERD_CUDA_STANDIN
    RUN(rows_and_scales);
    RUN(others_find_it_written);
#endif
}

int main(int argc, char **argv) {
    setenv("CUDASIM_LT", "1", 1);
    setenv("CUDASIM_LATE", "1", 1); /* the stand-in runs work only when it is waited for */
    return device_main(argc, argv, "cuda", run);
}
