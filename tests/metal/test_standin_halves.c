/* test_standin_halves.c - tiles keep F16 weights, K and V as halves, which is exact, where the
 * device's matrices of halves add as its others do; where they do not, they get floats. The bits
 * are those of the vector kernels in both cases. A device without subnormal halves is refused.
 * Also: threadgroup memory of prefill. */
#include "core/backend/metal/metal.h"
#include "tests/metal/standin/framework/metalsim.h"
#include "tests/metal/standin/runtime/msl_traffic.h"
#include "tests/support/attention_scene.h"
#include "tests/support/matrix.h"

enum { N_ROWS = 17, N_OUT = 40, N_IN = 352, N_TOKENS = 200 };

static backend *open_metal(void) {
    backend *be = be_open_metal((struct backend_config){.max_rows = 64, .max_cols = N_IN});
    be_need(backend_metal_tiles(be) == METAL_TILES_MATRIX, "matrices that are a chain of fma");
    return be;
}

/* ---- products ---- */

static void multiply(backend *be, const struct matrix *m, const float *x, enum metal_families rows,
                     float *y) {
    backend_weight *w = be_weight(be, m->type, N_OUT, m->n_in, m->packed);
    backend_buf *xb = be_f32(be, x, N_ROWS * m->n_in), *yb = be_f32(be, NULL, N_ROWS * N_OUT);
    const struct op_linear op = {
        .in.x = xb, .n_rows = N_ROWS, .n_weights = 1, .w[0] = w, .y[0] = yb};
    CHECK(backend_metal_force(be, METAL_TILES_MATRIX, rows) == 0);
    CHECK(backend_linear(be, &op) == 0);
    be_get(be, yb, y, N_ROWS * N_OUT);
    backend_weight_free(w);
    backend_buf_free(xb), backend_buf_free(yb);
}

/* Whether tiles give the bits of the vector kernels. */
static bool same_products(backend *be, int type) {
    float *x = be_new(N_ROWS * N_IN, 4), *want = be_new(N_ROWS * N_OUT, 4),
          *got = be_new(N_ROWS * N_OUT, 4);
    struct matrix m = matrix_make(block_type_of(type), N_OUT, N_IN, false);
    be_fill(x, N_ROWS * N_IN, 2);
    multiply(be, &m, x, METAL_VECTOR_ONLY, want);
    multiply(be, &m, x, METAL_TILES_ONLY, got);
    const bool same = !memcmp(want, got, N_ROWS * N_OUT * 4);
    matrix_free(&m);
    free(x), free(want), free(got);
    return same;
}

/* ---- prefill ---- */

static bool same_attention(backend *be, int kv_type) {
    const struct shape s = {4, 2, 64, 16, kv_type};
    const uint64_t width = (uint64_t)s.n_heads * s.head_dim;
    float *q = be_new(N_ROWS * width, 4), *out[2];
    int32_t pos[N_ROWS];
    struct scene c;
    struct rows r = {0};
    be_fill(q, N_ROWS * width, 1);
    make_scene_of(&c, &s, (struct features){0}, 1, N_TOKENS);
    for (int32_t i = 0; i < N_ROWS; i++)
        pos[i] = (int32_t)c.context[0] - N_ROWS + i;
    add_seq(&r, 0, pos, N_ROWS, q, width);
    upload_pools(be, &c);
    for (int i = 0; i < 2; i++) {
        out[i] = be_new(N_ROWS * width, 4);
        CHECK(backend_metal_force(be, METAL_TILES_MATRIX,
                                  i ? METAL_TILES_ONLY : METAL_VECTOR_ONLY) == 0);
        attend(be, &c, &r, out[i]);
    }
    const bool same = !memcmp(out[0], out[1], N_ROWS * width * 4);
    free_pools(&c);
    free_scene(&c);
    free(q), free(out[0]), free(out[1]);
    return same;
}

/* ---- tests ---- */

/* The order in which matrices of halves add changes after the probe has found it fit: so the
 * results show where there are halves. */
static void halves_where_exact(void) {
    metalsim_set_matrix("chain");
    backend *be = open_metal();
    be_rng.state = 3;
    CHECK(same_products(be, QTYPE_F16) && same_attention(be, QTYPE_F16));
    metalsim_set_matrix("halves");
    CHECK(!same_products(be, QTYPE_F16) && !same_attention(be, QTYPE_F16));
    CHECK(same_products(be, QTYPE_BF16) && same_attention(be, QTYPE_BF16));
    CHECK(same_products(be, QTYPE_Q8_0) && same_attention(be, QTYPE_Q8_0));
    backend_close(be);
}

static void none_if_they_differ(void) {
    metalsim_set_matrix("halves");
    backend *be = open_metal();
    CHECK(same_products(be, QTYPE_F16) && same_attention(be, QTYPE_F16));
    backend_close(be);
    metalsim_set_matrix("chain");
}

/* Matrices of any kind add in another order: tiles multiply on plain fma, whose sources are
 * compiled once. */
static void no_matrices_if_they_differ(void) {
    metalsim_set_matrix("tree");
    backend *be = be_open_metal((struct backend_config){.max_rows = 64, .max_cols = N_IN});
    CHECK(backend_metal_tiles(be) == METAL_TILES_PLAIN);
    const long n_libraries = metalsim_live(METALSIM_LIBRARY);
    CHECK(backend_metal_force(be, METAL_TILES_PLAIN, METAL_BY_ROWS) == 0);
    CHECK(metalsim_live(METALSIM_LIBRARY) == n_libraries);
    backend_close(be);
    metalsim_set_matrix("chain");
}

/* Every decoder that makes subnormal halves of small integers relies on them: the device loses
 * them after the probe has found them, and the results show it. */
static void decoders_need_subnormals(void) {
    static const struct {
        int type;
        bool relies;
    } types[] = {{QTYPE_Q4_0, true}, {QTYPE_Q8_0, true},  {QTYPE_Q2_K, true},
                 {QTYPE_Q4_K, true}, {QTYPE_Q6_K, true},  {QTYPE_MXFP4, true},
                 {QTYPE_F32, false}, {QTYPE_BF16, false}, {QTYPE_IQ4_NL, false}};
    backend *be = open_metal();
    float *x = be_new(N_ROWS * N_IN, 4), *want = be_new(N_ROWS * N_OUT, 4),
          *got = be_new(N_ROWS * N_OUT, 4);
    be_rng.state = 4;
    be_fill(x, N_ROWS * N_IN, 2);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct matrix m = matrix_make(block_type_of(types[i].type), N_OUT, 256, false);
        multiply(be, &m, x, METAL_VECTOR_ONLY, want);
        metalsim_set_halves("flush");
        multiply(be, &m, x, METAL_VECTOR_ONLY, got);
        metalsim_set_halves("ieee");
        CHECK_MSG(types[i].relies == !!memcmp(want, got, N_ROWS * N_OUT * 4), "%s",
                  qtype_name(types[i].type));
        matrix_free(&m);
    }
    free(x), free(want), free(got);
    backend_close(be);
}

/* So a device without them is refused: by name, before it has weights. */
static void refused_without_subnormals(void) {
    struct backend_config config = {.name = "metal", .max_rows = 8, .max_cols = 64};
    err e = {0};
    backend *be = NULL;
    const long live = metalsim_live(METALSIM_BUFFER) + metalsim_live(METALSIM_LIBRARY);
    metalsim_set_halves("flush");
    CHECK(backend_open(&config, &be, &e) == ERR_UNSUPPORTED && !be);
    CHECK_MSG(strstr(e.msg, "no subnormal halves") && !strcmp(e.param, "backend"),
              "got \"%s\" of %s", e.msg, e.param);
    CHECK(metalsim_live(METALSIM_BUFFER) + metalsim_live(METALSIM_LIBRARY) == live);
    config.name = "auto";
    CHECK(backend_open(&config, &be, &e) == 0 && strcmp(backend_name(be), "cpu") == 0);
    backend_close(be);
    metalsim_set_halves("ieee");
    backend_close(open_metal());
}

/* Of a threadgroup of prefill: q, probabilities, slopes, and 1 KB of K or V for each simdgroup. */
static void threadgroup_memory(void) {
    static const uint32_t dims[][2] = {{64, 16832}, {128, 20928}, {256, 16832}};
    backend *be = open_metal();
    CHECK(backend_metal_force(be, METAL_TILES_MATRIX, METAL_TILES_ONLY) == 0);
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        const struct shape s = {2, 2, dims[i][0], 16, QTYPE_Q8_0};
        const uint64_t width = (uint64_t)s.n_heads * s.head_dim;
        float *q = be_new(2 * width, 4), *out = be_new(2 * width, 4);
        const int32_t pos[] = {0, 1};
        struct metalsim_kernel k;
        struct scene c;
        struct rows r = {0};
        make_scene_of(&c, &s, (struct features){0}, 1, 32);
        add_seq(&r, 0, pos, 2, q, width);
        upload_pools(be, &c);
        metalsim_traffic_reset();
        attend(be, &c, &r, out);
        metalsim_traffic_stop();
        CHECK(metalsim_traffic("attention_prefill", &k) == 0);
        CHECK_MSG(k.tg_dynamic_bytes + k.tg_static_bytes == dims[i][1], "%u dimensions: %u bytes",
                  dims[i][0], k.tg_dynamic_bytes + k.tg_static_bytes);
        free_pools(&c);
        free_scene(&c);
        free(q), free(out);
    }
    backend_close(be);
}

int main(void) {
    metalsim_set_options(0, 1, 0, 1);
    RUN(halves_where_exact);
    RUN(none_if_they_differ);
    RUN(no_matrices_if_they_differ);
    RUN(decoders_need_subnormals);
    RUN(refused_without_subnormals);
    RUN(threadgroup_memory);
    return check_done();
}
