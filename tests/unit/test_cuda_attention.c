/* test_cuda_attention.c - paged attention of the CUDA backend over contexts of several spans: a row
 * has the same bits alone, with a few others, in a prompt and in a batch of any size, whatever the
 * cache holds after its position; errors against float64; padding. Prints the largest errors.
 * test_attention tests the shapes of models. */
#include "tests/support/attention_scene.h"
#include "tests/support/device_main.h"

static const int types[] = {QTYPE_F16, QTYPE_BF16, QTYPE_Q8_0, QTYPE_F32};
enum { N_TYPES = 4, SPAN = 1024 };

static backend *open_cuda(void) {
    return be_open_config((struct backend_config){.max_rows = BE_MAX_ROWS, .max_cols = BE_MAX_COLS},
                          "cuda");
}

/* Positions first..first + n - 1 of sequence 0. */
static void rows_of(struct rows *r, int32_t first, uint32_t n, const float *q, uint64_t width) {
    int32_t pos[BE_MAX_ROWS];
    for (uint32_t i = 0; i < n; i++)
        pos[i] = first + (int32_t)i;
    memset(r, 0, sizeof *r);
    add_seq(r, 0, pos, n, q, width);
}

/* V, below 1 in magnitude, is multiplied by probabilities that are each rounded to the cache's
 * type, with a relative error of 2^-11 (F16) or 2^-8 (BF16); they are divided by the sum of the
 * rounded ones. Q8_0 values are rounded to F16 too. Rounding q to F16 adds as little: scores are
 * about 1. */
static double tolerance(int type) {
    return type == QTYPE_F32 ? 1e-6 : type == QTYPE_BF16 ? 4e-3 : type == QTYPE_F16 ? 5e-4 : 1e-3;
}

/* ---- the same bits, whatever the rest of the batch ---- */

struct case_of {
    struct shape s;
    struct features f;
};

/* Compares the rows of `together`, at positions from first on, computed alone and n at a time. */
static void check_split(backend *be, const struct scene *c, int32_t first, uint32_t n_rows,
                        const float *q, const float *together) {
    static const uint32_t steps[] = {1, 2, 3, 4, 17};
    uint64_t width = (uint64_t)c->s.n_heads * c->s.head_dim;
    float *got = be_new(17 * width, sizeof *got);
    for (int k = 0; k < 5; k++) {
        uint32_t n = steps[k];
        for (uint32_t at = 0; at + n <= n_rows; at += be_quick ? n_rows - n : n_rows / 3) {
            struct rows r;
            rows_of(&r, first + (int32_t)at, n, q + at * width, width);
            attend(be, c, &r, got);
            CHECK_MSG(memcmp(got, together + at * width, n * width * sizeof *got) == 0,
                      "%s heads %u/%u dim %u window %u cap %g sinks %d: %u rows from %d on",
                      qtype_name(c->s.kv_type), c->s.n_heads, c->s.n_kv_heads, c->s.head_dim,
                      c->f.window, (double)c->f.softcap, c->f.sinks, n, first + (int32_t)at);
            if (n_rows == n) break;
        }
    }
    free(got);
}

static void test_bits(void) {
    static const struct case_of cases[] = {
        {{4, 1, 128, 16, QTYPE_F16}, {0}},
        {{8, 2, 64, 16, QTYPE_BF16}, {.sinks = true}},
        {{4, 1, 128, 32, QTYPE_Q8_0}, {.window = 1000, .softcap = 30, .sinks = true}},
        {{8, 1, 128, 16, QTYPE_BF16}, {.window = 1500}},
        {{3, 1, 256, 16, QTYPE_F16}, {.window = 70, .sinks = true}},
        {{5, 1, 80, 32, QTYPE_F16}, {.softcap = 20}},
        {{2, 2, 64, 16, QTYPE_Q8_0}, {0}},
        {{20, 1, 64, 16, QTYPE_F16}, {.window = 129}},
        {{8, 1, 512, 16, QTYPE_F16}, {0}},
        {{6, 2, 512, 32, QTYPE_BF16}, {.window = 300, .sinks = true}},
        {{4, 1, 512, 16, QTYPE_Q8_0}, {.window = 70, .softcap = 20}},
    };
    backend *be = open_cuda();
    be_rng.state = 61;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t width = (uint64_t)cases[i].s.n_heads * cases[i].s.head_dim;
        struct scene c;
        struct rows r;
        uint32_t n = be_quick ? 40 : 130;
        int32_t first = SPAN - 20;
        make_scene_of(&c, &cases[i].s, cases[i].f, 2, SPAN + 200);
        float *q = be_new(n * width, sizeof *q), *out = be_new(n * width, sizeof *out);
        be_fill(q, n * width, 2);
        upload_pools(be, &c);
        rows_of(&r, first, n, q, width);
        attend(be, &c, &r, out);
        check_split(be, &c, first, n, q, out);
        free_pools(&c);
        free_scene(&c);
        free(q), free(out);
    }
    CHECK(be_dispatches(be, "attention_prefill") > 0 && be_dispatches(be, "attention_decode") > 0);
    backend_close(be);
}

/* Many sequences over the same blocks, so that KV splits are spans, or so that their partial
 * results exceed the memory for them: the bits of a single sequence. */
static void check_batch(backend *be, const struct shape *s, uint32_t n_seqs, uint32_t stride) {
    uint64_t width = (uint64_t)s->n_heads * s->head_dim;
    struct scene c;
    make_scene_of(&c, s, (struct features){0}, 2, SPAN + 100);
    float *q = be_new(width, 4), *one = be_new(n_seqs * width, 4), *all = be_new(n_seqs * width, 4);
    float *qs = be_new(n_seqs * width, 4);
    int32_t *tables = be_new((uint64_t)n_seqs * stride, 4), pos[BE_MAX_ROWS],
            start[BE_MAX_ROWS + 1] = {0};
    be_fill(q, width, 2);
    for (uint32_t i = 0; i < n_seqs; i++) {
        memcpy(qs + i * width, q, width * 4);
        memcpy(tables + i * stride, c.tables, min_u32(c.stride, stride) * 4);
        pos[i] = SPAN + 90, start[i + 1] = (int32_t)i + 1;
    }
    pos[n_seqs / 2] = -1; /* padding */
    upload_pools(be, &c);
    struct op_paged_attention op = {.q = be_f32(be, qs, n_seqs * width),
                                    .pos = be_i32(be, pos, n_seqs),
                                    .row_start = be_i32(be, start, n_seqs + 1),
                                    .tables = be_i32(be, tables, (uint64_t)n_seqs * stride),
                                    .n_rows = 1,
                                    .n_seqs = 1,
                                    .n_heads = s->n_heads,
                                    .table_stride = stride,
                                    .max_context = SPAN + 100,
                                    .scale = 1 / sqrtf((float)s->head_dim),
                                    .kv = kv_of(s, N_BLOCKS, c.k_buf, c.v_buf),
                                    .out = be_f32(be, qs, n_seqs * width)};
    CHECK(backend_paged_attention(be, &op) == 0);
    be_get(be, op.out, one, width);
    op.n_rows = op.n_seqs = n_seqs, op.max_context = stride * s->block_tokens;
    CHECK(backend_paged_attention(be, &op) == 0);
    be_get(be, op.out, all, n_seqs * width);
    for (uint32_t i = 0; i < n_seqs; i++) {
        static const float zeros[MAX_HEADS * 512];
        CHECK_MSG(memcmp(all + i * width, pos[i] < 0 ? zeros : one, width * 4) == 0,
                  "sequence %u of %u", i, n_seqs);
    }
    const backend_buf *bufs[] = {op.q, op.pos, op.row_start, op.tables, op.out};
    for (size_t i = 0; i < 5; i++)
        backend_buf_free((backend_buf *)bufs[i]);
    free_pools(&c);
    free_scene(&c);
    free(q), free(qs), free(one), free(all), free(tables);
}

static void test_batches(void) {
    backend *be = open_cuda();
    be_rng.state = 71;
    check_batch(be, &(struct shape){4, 1, 64, 16, QTYPE_F16}, 150, 72); /* spans */
    uint64_t before = be_dispatches(be, "attention_decode");
    check_batch(be, &(struct shape){16, 1, 256, 16, QTYPE_F16}, 70, 4096); /* two passes */
    CHECK(be_dispatches(be, "attention_decode") == before + 3);
    check_batch(be, &(struct shape){8, 1, 512, 16, QTYPE_Q8_0}, 9, 72);
    CHECK(be_dispatches(be, "attention_plain") == 0);
    backend_close(be);
}

/* Keys after a row's position, and other sequences' K and V in its tile's last chunk, do not count,
 * however large they are. */
static void test_hidden_values(void) {
    static const int kinds[] = {QTYPE_F16, QTYPE_BF16, QTYPE_F16, QTYPE_F16};
    static const uint32_t dims[] = {128, 128, 80, 512};
    backend *be = open_cuda();
    be_rng.state = 81;
    for (int k = 0; k < 4; k++) {
        const struct shape s = {4, 1, dims[k], 16, kinds[k]};
        uint64_t width = (uint64_t)s.n_heads * s.head_dim;
        struct scene c;
        struct rows r;
        enum { N = 40, FIRST = 100 };
        make_scene_of(&c, &s, (struct features){0}, 2, 200);
        for (uint32_t p = 0; p < c.context[0]; p++) { /* far larger than the previous ones */
            float *v = c.v[0] + (uint64_t)p * s.head_dim;
            for (uint32_t d = 0; d < s.head_dim; d++)
                v[d] *= p < FIRST ? 1e-3f : p % 3 ? 1 : 60000;
            put_token(&c, 0, p, c.v[0], false);
        }
        float *q = be_new(N * width, 4), *all = be_new(N * width, 4), *one = be_new(width, 4);
        be_fill(q, N * width, 8);
        upload_pools(be, &c);
        rows_of(&r, FIRST, N, q, width);
        attend(be, &c, &r, all);
        for (uint32_t i = 0; i < N; i++) {
            rows_of(&r, FIRST + (int32_t)i, 1, q + i * width, width);
            attend(be, &c, &r, one);
            CHECK_MSG(memcmp(one, all + i * width, width * 4) == 0, "row %u", i);
        }
        free_pools(&c);
        free_scene(&c);
        free(q), free(all), free(one);
    }
    backend_close(be);
}

/* ---- store and attention in one launch: the bits and pools of two launches ---- */

struct step_case {
    struct case_of of;
    uint32_t n_rot;
    bool interleaved, normed;
};

/* One row per sequence, at its last position; the last row has no slot, and its result is not
 * compared. */
struct step_rows {
    int32_t pos[MAX_SEQS + 1], slots[MAX_SEQS + 1], start[MAX_SEQS + 2];
    int32_t tables[(MAX_SEQS + 1) * LONG_STRIDE];
    uint32_t n;
};

static void step_rows_of(struct step_rows *r, const struct scene *c) {
    *r = (struct step_rows){.n = c->n_seqs + 1};
    for (uint32_t i = 0; i < c->n_seqs; i++) {
        const uint32_t pos = c->context[i] - 1, bt = c->s.block_tokens;
        r->pos[i] = (int32_t)pos;
        r->slots[i] = c->tables[i * c->stride + pos / bt] * (int32_t)bt + (int32_t)(pos % bt);
        r->start[i + 1] = (int32_t)i + 1;
    }
    memcpy(r->tables, c->tables, (size_t)c->n_seqs * c->stride * sizeof *r->tables);
    r->pos[c->n_seqs] = r->slots[c->n_seqs] = -1; /* padding */
    r->start[r->n] = (int32_t)r->n;
}

/* Computes out and both pools in new buffers. */
static void run_step(backend *be, const struct step_case *k, struct scene *c,
                     const struct step_rows *r, float *const qkv[3], bool at_once, void *got[3]) {
    const struct shape *s = &c->s;
    const uint64_t width = (uint64_t)s->n_heads * s->head_dim * r->n,
                   kv_width = (uint64_t)s->n_kv_heads * s->head_dim * r->n;
    float inv_freq[128], norm[256];
    for (uint32_t i = 0; i < k->n_rot / 2; i++)
        inv_freq[i] = powf(10000, -2.0f * (float)i / (float)k->n_rot);
    for (uint32_t i = 0; i < s->head_dim; i++)
        norm[i] = 0.5f + (float)(i * 7 % 11) / 11;
    upload_pools(be, c);
    backend_weight *norms[2] = {NULL, NULL}, *sinks = NULL, *slopes = NULL;
    for (int i = 0; k->normed && i < 2; i++)
        norms[i] = be_weight(be, QTYPE_F32, 1, s->head_dim, norm + i);
    if (c->f.sinks) sinks = be_weight(be, QTYPE_F32, 1, s->n_heads, c->sinks);
    if (c->f.slopes) slopes = be_weight(be, QTYPE_F32, 1, s->n_heads, c->slopes);
    backend_buf *bufs[] = {be_f32(be, qkv[0], width),
                           be_f32(be, qkv[1], kv_width),
                           be_f32(be, qkv[2], kv_width),
                           be_i32(be, r->pos, r->n),
                           be_i32(be, r->slots, r->n),
                           be_i32(be, r->start, r->n + 1),
                           be_i32(be, r->tables, (uint64_t)r->n * c->stride),
                           be_f32(be, inv_freq, k->n_rot / 2 ? k->n_rot / 2 : 1),
                           be_f32(be, qkv[0], width)};
    const struct op_rope_store store = {.q = bufs[0],
                                        .k = bufs[1],
                                        .v = bufs[2],
                                        .pos = bufs[3],
                                        .slots = bufs[4],
                                        .inv_freq = bufs[7],
                                        .q_norm = norms[0],
                                        .k_norm = norms[1],
                                        .eps = 1e-5f,
                                        .n_rows = r->n,
                                        .n_heads = s->n_heads,
                                        .n_rot = k->n_rot,
                                        .interleaved = k->interleaved,
                                        .norm_last = k->normed && k->interleaved,
                                        .q_log_scale = k->normed ? 0 : 0.4f,
                                        .q_log_length = k->normed ? 0 : 19,
                                        .q_log_from = k->normed ? 0 : 7,
                                        .kv = kv_of(s, N_BLOCKS, c->k_buf, c->v_buf)};
    const struct op_paged_attention attention = {.q = bufs[0],
                                                 .pos = bufs[3],
                                                 .row_start = bufs[5],
                                                 .tables = bufs[6],
                                                 .n_rows = r->n,
                                                 .n_seqs = r->n,
                                                 .n_heads = s->n_heads,
                                                 .table_stride = c->stride,
                                                 .window = c->f.window,
                                                 .scale = 1 / sqrtf((float)s->head_dim),
                                                 .softcap = c->f.softcap,
                                                 .sinks = sinks,
                                                 .slopes = slopes,
                                                 .chunked = c->f.chunked,
                                                 .kv = store.kv,
                                                 .out = bufs[8]};
    if (at_once) {
        CHECK(backend_store_attend(be, &(struct op_store_attend){store, attention}) == 0);
    } else {
        CHECK(backend_rope_store(be, &store) == 0);
        CHECK(backend_paged_attention(be, &attention) == 0);
    }
    be_get(be, bufs[8], got[0], width);
    CHECK(backend_download(be, c->k_buf, 0, got[1], c->pool_bytes, NULL) == 0);
    CHECK(backend_download(be, c->v_buf, 0, got[2], c->pool_bytes, NULL) == 0);
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        backend_buf_free(bufs[i]);
    for (int i = 0; i < 2; i++)
        backend_weight_free(norms[i]);
    backend_weight_free(sinks);
    backend_weight_free(slopes);
    free_pools(c);
}

static void test_steps(void) {
    static const struct step_case cases[] = {
        {{{4, 1, 128, 16, QTYPE_F16}, {0}}, 128, true, false},
        {{{8, 2, 64, 16, QTYPE_BF16}, {.sinks = true}}, 64, false, true},
        {{{4, 1, 128, 32, QTYPE_Q8_0}, {.window = 100, .softcap = 30, .sinks = true}},
         96,
         false,
         true},
        {{{20, 1, 64, 16, QTYPE_Q8_0}, {.slopes = true}}, 64, true, false},
        {{{3, 1, 256, 16, QTYPE_F16}, {.window = 70, .sinks = true}}, 256, true, true},
        {{{5, 1, 80, 32, QTYPE_F16}, {.softcap = 20}}, 0, false, false},
        {{{32, 2, 128, 16, QTYPE_F16}, {.window = 96, .chunked = true}}, 64, false, false},
        {{{2, 1, 256, 16, QTYPE_Q8_0}, {0}}, 128, false, true},
    };
    backend *be = open_cuda();
    be_rng.state = 101;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct shape *s = &cases[i].of.s;
        struct scene c;
        struct step_rows r;
        void *got[2][3];
        float *qkv[3];
        make_scene_of(&c, s, cases[i].of.f, 2, i % 2 ? SPAN + 70 : 64 * 3);
        step_rows_of(&r, &c);
        const uint64_t width = (uint64_t)s->n_heads * s->head_dim * r.n;
        for (int j = 0; j < 3; j++) {
            qkv[j] = be_new(width, sizeof **qkv);
            be_fill(qkv[j], width, 2);
        }
        for (int way = 0; way < 2; way++) {
            for (int j = 0; j < 3; j++)
                got[way][j] = be_new(j ? c.pool_bytes : width * 4, 1);
            run_step(be, &cases[i], &c, &r, qkv, way, got[way]);
        }
        const uint64_t seen = width / r.n * c.n_seqs * sizeof(float);
        CHECK_MSG(memcmp(got[0][0], got[1][0], seen) == 0, "case %zu: results", i);
        CHECK_MSG(memcmp(got[0][1], got[1][1], c.pool_bytes) == 0, "case %zu: K", i);
        CHECK_MSG(memcmp(got[0][2], got[1][2], c.pool_bytes) == 0, "case %zu: V", i);
        CHECK_MSG(memcmp(got[1][1], c.k_pool, c.pool_bytes) != 0, "case %zu: nothing stored", i);
        for (int j = 0; j < 3; j++)
            free(got[0][j]), free(got[1][j]), free(qkv[j]);
        free_scene(&c);
    }
    /* One case wants more shared memory than some GPUs have. */
    const uint64_t apart = be_dispatches(be, "rope_store") - sizeof cases / sizeof *cases;
    CHECK(apart <= 1);
    backend_close(be);
}

/* ---- errors ---- */

static void test_errors(void) {
    static const uint32_t dims[] = {64, 128, 96, 256, 512};
    backend *be = open_cuda();
    be_rng.state = 91;
    printf("     largest error of out, |V| < 1\n");
    for (int t = 0; t < N_TYPES; t++) {
        double worst = 0;
        for (int d = 0; d < (be_quick ? 1 : 5); d++) {
            const struct shape s = {4, 1, dims[d], 16, types[t]};
            uint64_t width = (uint64_t)s.n_heads * s.head_dim;
            struct scene c;
            struct rows r;
            uint32_t n = be_quick ? 6 : 70;
            make_scene_of(&c, &s, (struct features){0}, 2, SPAN + 300);
            float *q = be_new(n * width, 4), *out = be_new(n * width, 4);
            be_fill(q, n * width, 2);
            upload_pools(be, &c);
            rows_of(&r, SPAN + 200, n, q, width);
            attend(be, &c, &r, out);
            worst = fmax(worst, worst_error(&c, &r, out, tolerance(types[t]), 0));
            free_pools(&c);
            free_scene(&c);
            free(q), free(out);
        }
        CHECK_MSG(worst <= 1, "%s: %g of the tolerance", qtype_name(types[t]), worst);
        printf("     %-5s %.1e\n", qtype_name(types[t]), worst * tolerance(types[t]));
    }
    backend_close(be);
}

static void run(void) {
    RUN(test_bits);
    RUN(test_batches);
    RUN(test_steps);
    RUN(test_hidden_values);
    RUN(test_errors);
}

int main(int argc, char **argv) {
    return device_main(argc, argv, "cuda", run);
}
