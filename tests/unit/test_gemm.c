/* test_gemm.c - the kernels of matrix products, by instruction set and weight type: the plain
 * kernels against float64 over the file's blocks, every other set bit for bit against the plain one
 * (NaN equals any NaN), on random and adversarial blocks and activations. */
#include "core/backend/cpu/gemm/gemm.h"

#include "tests/support/blocks.h"
#include "tests/support/gemm_bench.h"
#include "tests/unit/check.h"

enum { MAX_IN = 2048, STRIDE = GEMM_PANELS * GEMM_OUTS };

static const uint32_t block_in[] = {32, 64, 96, 160, 256, 288, 512, 2048};
static const uint32_t float_in[] = {1, 19, 33, 256, 257, 513};
static const uint32_t row_counts[] = {1, 2, 3, 7, 33, 5, 6, 8, 13, 19, 64, 99, 128};
enum {
    N_BLOCK_IN = sizeof block_in / sizeof block_in[0],
    N_FLOAT_IN = sizeof float_in / sizeof float_in[0],
    N_ROW_COUNTS = sizeof row_counts / sizeof row_counts[0],
    N_QUICK_ROW_COUNTS = 5
};

/* The n-th column count that the type's blocks allow; 0 after the last. */
static uint32_t n_in_at(int type, uint32_t i) {
    if (block_is_float(type)) return i < N_FLOAT_IN ? float_in[i] : 0;
    uint32_t block = qtype_find(type)->block_elems, k = 0;
    const uint32_t n = be_quick ? N_BLOCK_IN - 1 : N_BLOCK_IN; /* the last is the long one */
    for (; k < n; k++)
        if (block_in[k] % block == 0 && i-- == 0) break;
    return k < n ? block_in[k] : 0;
}

static bool same_f32(float a, float b) {
    return isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof a) == 0;
}

/* ---- weights ---- */

/* One scale for 16 columns? */
static bool has_halves(int type) {
    return type == QTYPE_Q6_K || type == QTYPE_Q3_K || type == QTYPE_Q2_K || type == QTYPE_IQ1_W ||
           type == QTYPE_IQ2_W;
}

struct weights {
    const struct block_type *t;
    uint32_t n_in, n_outs; /* up to 32 */
    uint8_t *rows;         /* as in a file */
    uint64_t row_bytes;
    uint8_t *panels[GEMM_PANELS];
};

/* n_outs need not fill the panels; they are copied out of their pair. */
static struct weights make_weights(const struct block_type *t, uint32_t n_in, uint32_t n_outs,
                                   bool sane) {
    struct weights w = {.t = t, .n_in = n_in, .n_outs = n_outs};
    const struct qtype_info *info = qtype_find(t->type);
    w.row_bytes = (uint64_t)n_in / info->block_elems * info->block_bytes;
    w.rows = be_new(n_outs, w.row_bytes);
    for (uint64_t at = 0; at < n_outs * w.row_bytes; at += info->block_bytes)
        block_make(t, sane || be_rand() & 1 ? BLOCK_SANE : (enum block_kind)be_below(N_BLOCK_KINDS),
                   w.rows + at);
    uint64_t all = 0, panel = gemm_panel_bytes(t->type, n_in), bytes;
    CHECK(gemm_has_type(t->type) && gemm_weight_bytes(t->type, n_outs, n_in, &all));
    CHECK(all == (n_outs + GEMM_OUTS - 1) / GEMM_OUTS * panel);
    uint8_t *pair = be_new(all, 1), *from = pair;
    memset(pair, 0x5a, all);
    gemm_pack_pair(t->type, w.rows, w.row_bytes, n_outs, n_in, pair);
    for (uint32_t p = 0; p < GEMM_PANELS; p++)
        w.panels[p] = be_new(panel, 1); /* zeros if there are at most 16 outputs */
    for (uint64_t at = 0; at < panel; at += bytes) {
        uint32_t c = (uint32_t)(at / gemm_k_block_bytes(t->type, GEMM_COLS)) * GEMM_COLS;
        bytes = gemm_k_block_bytes(t->type, n_in - c < GEMM_COLS ? n_in - c : GEMM_COLS);
        for (uint32_t o = 0; o < n_outs; o += GEMM_OUTS, from += bytes)
            memcpy(w.panels[o / GEMM_OUTS] + at, from, bytes);
    }
    free(pair);
    return w;
}

static void free_weights(struct weights *w) {
    free(w->rows);
    for (uint32_t p = 0; p < GEMM_PANELS; p++)
        free(w->panels[p]);
}

/* ---- activations ---- */

struct inputs {
    uint32_t n_in;
    float *x; /* (GEMM_ROWS, n_in) */
    int8_t *q[2];
    struct gemm_block *blocks;
    struct gemm_rows rows;
};

static void make_x_block(float *x, uint32_t n, bool sane) {
    static const float odd[] = {0, -0.0f, 1e-40f, 9e-31f, 1.1e-30f, 1e38f, FLT_MAX, NAN, INFINITY};
    float scale = ldexpf(1, (int)be_below(12) - 6), value = odd[be_below(9)];
    uint32_t kind = sane ? 0 : be_below(8);
    for (uint32_t i = 0; i < n; i++) {
        x[i] = be_real() * scale;
        if (kind == 1) x[i] = (be_rand() & 1) ? value : -value;
        if (kind == 2 && be_below(16) == 0) x[i] = value;
        if (kind == 3) x[i] = ((float)be_below(254) - 126.5f) / 127; /* halves between codes */
    }
    if (kind == 3) x[0] = 1;
}

static struct inputs make_inputs(const struct gemm_isa *isa, uint32_t n_in, bool is_f32, bool sane,
                                 bool two) {
    uint32_t n_blocks = (n_in + GEMM_BLOCK - 1) / GEMM_BLOCK;
    struct inputs in = {.n_in = n_in, .x = be_new((uint64_t)GEMM_ROWS * n_in, sizeof(float))};
    for (uint64_t i = 0; i < (uint64_t)GEMM_ROWS * n_in; i += GEMM_BLOCK) {
        uint64_t left = (uint64_t)GEMM_ROWS * n_in - i;
        make_x_block(in.x + i, left < GEMM_BLOCK ? (uint32_t)left : GEMM_BLOCK, sane);
    }
    in.rows = (struct gemm_rows){.x = in.x, .x_stride = n_in};
    if (is_f32) return in;
    for (int p = 0; p < 1 + two; p++)
        in.q[p] = be_new((uint64_t)GEMM_ROWS * n_in, 1);
    in.blocks = be_new((uint64_t)GEMM_ROWS * n_blocks, sizeof *in.blocks);
    for (uint64_t r = 0; r < GEMM_ROWS; r++) {
        int8_t *q[2] = {in.q[0] + r * n_in, two ? in.q[1] + r * n_in : NULL};
        isa->quantize(in.x + r * n_in, n_in, q, in.blocks + r * n_blocks);
    }
    in.rows = (struct gemm_rows){
        .q = {in.q[0], in.q[1]}, .blocks = in.blocks, .q_stride = n_in, .blocks_stride = n_blocks};
    return in;
}

static void free_inputs(struct inputs *in) {
    free(in->x);
    free(in->q[0]);
    free(in->q[1]);
    free(in->blocks);
}

/* ---- products ---- */

struct product {
    uint32_t first_row, n_rows, n_panels;
};

/* acc (n_rows, STRIDE) of rows first_row.. */
static void run(const struct gemm_isa *isa, const struct weights *w, const struct inputs *in,
                const struct product *p, float *acc) {
    static struct gemm_tile tile[GEMM_PANELS];
    struct gemm_job j = {
        .type = w->t->type, .tile = tile, .n_panels = p->n_panels, .n_rows = p->n_rows, .acc = acc};
    uint64_t at = 0;
    for (uint32_t c = 0; c < w->n_in; c += GEMM_COLS) {
        j.n_cols = w->n_in - c < GEMM_COLS ? w->n_in - c : GEMM_COLS;
        j.first = c == 0;
        j.x = in->rows;
        if (j.x.x) j.x.x += p->first_row * j.x.x_stride + c;
        for (int k = 0; k < 2; k++)
            if (j.x.q[k]) j.x.q[k] += p->first_row * j.x.q_stride + c;
        if (j.x.blocks) j.x.blocks += p->first_row * j.x.blocks_stride + c / GEMM_BLOCK;
        memset(tile, 0xa5, sizeof tile); /* a NaN, to detect reads */
        for (uint32_t k = 0; k < p->n_panels; k++)
            isa->unpack(j.type, w->panels[k] + at, j.n_cols, &tile[k]);
        isa->multiply(&j);
        at += gemm_k_block_bytes(j.type, j.n_cols);
    }
}

/* Weight (out, column) of the file: the decoder's f32 as float64. */
static float *decode(const struct weights *w) {
    float *values = be_new((uint64_t)w->n_outs * w->n_in, sizeof *values);
    for (uint64_t o = 0; o < w->n_outs; o++)
        qtype_decode(w->t->type, w->rows + o * w->row_bytes, values + o * w->n_in, w->n_in);
    return values;
}

/* The largest |scale * code| + |min| of each column's block, a bound of the terms of the sums. */
static void magnitudes(const struct weights *w, uint32_t out, double *size) {
    static struct gemm_tile tile;
    uint64_t at = 0;
    bool by_halves = has_halves(w->t->type);
    for (uint32_t c = 0; c < w->n_in; c++) {
        uint32_t i = c % GEMM_COLS, n = w->n_in - c < GEMM_COLS ? w->n_in - c : GEMM_COLS;
        if (i == 0) {
            gemm_generic.unpack(w->t->type, w->panels[out / GEMM_OUTS] + at, n, &tile);
            at += gemm_k_block_bytes(w->t->type, n);
        }
        uint32_t s = by_halves ? i / 16 : i / 32, o = out % GEMM_OUTS;
        size[c] = fabs((double)tile.scale[s][o] * (int8_t)tile.q[i / 4][o][i % 4]) +
                  fabs((double)tile.min[s][o]);
        if (block_is_float(w->t->type)) size[c] = fabs((double)tile.f[i][o]);
    }
}

/* Plain kernels against float64 over the same quantized activations. Allowed: 4e-6 of the sum of
 * magnitudes (a few roundings of 6e-8 a block, up to 64 blocks; 513 columns for floats). */
static void check_generic(const struct weights *w, const struct inputs *in, bool two) {
    static float acc[GEMM_ROWS * STRIDE];
    struct product p = {0, 7, GEMM_PANELS};
    float *values = decode(w);
    double size[MAX_IN], worst = 0;
    run(&gemm_generic, w, in, &p, acc);
    for (uint32_t o = 0; o < w->n_outs; o++) {
        magnitudes(w, o, size);
        for (uint32_t r = 0; r < p.n_rows; r++) {
            double sum = 0, all = 0;
            for (uint32_t c = 0; c < w->n_in; c++) {
                uint64_t at = (uint64_t)r * w->n_in + c;
                double x = (double)in->x[at];
                if (in->q[0])
                    x = (double)in->blocks[at / GEMM_BLOCK].d *
                        (two ? 254 * in->q[0][at] + in->q[1][at] : in->q[0][at]);
                sum += x * (double)values[(uint64_t)o * w->n_in + c];
                all += fabs(x) * size[c];
            }
            worst = fmax(worst, fabs((double)acc[r * STRIDE + o] - sum) / (4e-6 * all + 1e-30));
        }
    }
    CHECK_MSG(worst <= 1, "%s n_in %u planes %d: %.3g of the tolerance", qtype_name(w->t->type),
              w->n_in, 1 + two, worst);
    for (uint32_t r = 0; r < p.n_rows; r++) /* outputs that do not exist */
        for (uint32_t o = w->n_outs; o < STRIDE; o++)
            CHECK(acc[r * STRIDE + o] == 0);
    free(values);
}

static void test_generic_against_float64(void) {
    be_rng.state = 3;
    for (uint32_t t = 0; t < N_BLOCK_TYPES; t++)
        for (uint32_t i = 0, n_in; (n_in = n_in_at(block_types[t].type, i)) != 0; i++)
            for (int two = 0; two < 2; two++) {
                struct weights w = make_weights(&block_types[t], n_in, 1 + be_below(STRIDE), true);
                struct inputs in = make_inputs(&gemm_generic, n_in,
                                               block_is_float(block_types[t].type), true, two);
                check_generic(&w, &in, two);
                free_inputs(&in);
                free_weights(&w);
            }
}

/* Packed and unpacked rows equal the decoder's: scale * code + min, with one rounding per
 * operation. */
static void test_panels_hold_the_decoders_values(void) {
    static struct gemm_tile tile;
    be_rng.state = 4;
    for (uint32_t t = 0; t < N_BLOCK_TYPES; t++) {
        int type = block_types[t].type;
        bool by_halves = has_halves(type);
        uint32_t n_bad = 0;
        for (uint32_t i = 0, n_in; (n_in = n_in_at(type, i)) != 0; i++) {
            struct weights w = make_weights(&block_types[t], n_in, STRIDE, false);
            float *values = decode(&w);
            for (uint32_t o = 0; o < STRIDE; o++) {
                uint64_t at = 0;
                for (uint32_t c = 0; c < n_in; c++) {
                    uint32_t k = c % GEMM_COLS, n = n_in - c < GEMM_COLS ? n_in - c : GEMM_COLS;
                    uint32_t s = by_halves ? k / 16 : k / 32, out = o % GEMM_OUTS;
                    if (k == 0) {
                        gemm_generic.unpack(type, w.panels[o / GEMM_OUTS] + at, n, &tile);
                        at += gemm_k_block_bytes(type, n);
                    }
                    float got = tile.scale[s][out] * (int8_t)tile.q[k / 4][out][k % 4];
                    if (block_is_float(type))
                        got = tile.f[k][out];
                    else
                        got += tile.min[s][out];
                    float want = values[(uint64_t)o * n_in + c];
                    if (!same_f32(got, want) && got != want) n_bad++; /* -0 is 0 */
                }
            }
            free(values);
            free_weights(&w);
        }
        CHECK_MSG(!n_bad, "%s: %u values differ", qtype_name(type), n_bad);
    }
}

/* Fails if a row's bits, adjacent rows, or bytes after the result differ. */
static void check_product(const struct gemm_isa *isa, const struct weights *w,
                          const struct inputs *in, const struct product *p, const float *want) {
    static _Alignas(64) float acc[(GEMM_ROWS + 1) * STRIDE];
    const float guard = 12345;
    for (uint32_t i = 0; i < (GEMM_ROWS + 1) * STRIDE; i++)
        acc[i] = guard;
    run(isa, w, in, p, acc);
    uint32_t n_bad = 0, n_spoilt = 0;
    for (uint32_t r = 0; r <= GEMM_ROWS; r++)
        for (uint32_t o = 0; o < STRIDE; o++) {
            bool ours = r < p->n_rows && o < p->n_panels * GEMM_OUTS;
            if (!ours)
                n_spoilt += acc[r * STRIDE + o] != guard;
            else
                n_bad += !same_f32(acc[r * STRIDE + o], want[(p->first_row + r) * STRIDE + o]);
        }
    CHECK_MSG(!n_bad && !n_spoilt,
              "%s %s n_in %u rows %u+%u panels %u planes %d: %u differ, %u spoilt", isa->name,
              qtype_name(w->t->type), w->n_in, p->first_row, p->n_rows, p->n_panels,
              1 + (in->q[1] != NULL), n_bad, n_spoilt);
}

static void check_sets(const struct weights *w, const struct inputs *in) {
    static _Alignas(64) float want[GEMM_ROWS * STRIDE];
    const struct gemm_isa *isa;
    run(&gemm_generic, w, in, &(struct product){0, GEMM_ROWS, GEMM_PANELS}, want);
    for (uint32_t i = 0; (isa = gemm_isa_at(i)) != NULL; i++)
        for (uint32_t k = 0; k < (be_quick ? N_QUICK_ROW_COUNTS : N_ROW_COUNTS); k++)
            for (uint32_t n_panels = 1; n_panels <= GEMM_PANELS; n_panels++) {
                /* comparing generic with itself shows that rows are independent */
                if (isa == &gemm_generic && row_counts[k] > 3) continue;
                struct product p = {be_below(GEMM_ROWS + 1 - row_counts[k]), row_counts[k],
                                    n_panels};
                check_product(isa, w, in, &p, want);
            }
}

static void test_every_set_gives_the_same_bits(void) {
    be_rng.state = 5;
    for (uint32_t t = 0; t < N_BLOCK_TYPES; t++)
        for (uint32_t i = 0, n_in; (n_in = n_in_at(block_types[t].type, i)) != 0; i++)
            for (int two = 0; two < 2; two++)
                for (int sane = 0; sane < 2; sane++) {
                    bool f32 = block_is_float(block_types[t].type);
                    if (two && f32) continue;
                    if (n_in == MAX_IN && !sane) continue; /* NaN all over */
                    struct weights w = make_weights(&block_types[t], n_in, STRIDE - (i & 1), sane);
                    struct inputs in = make_inputs(&gemm_generic, n_in, f32, sane, two);
                    check_sets(&w, &in);
                    free_inputs(&in);
                    free_weights(&w);
                }
}

static bool same_block(const struct gemm_block *a, const struct gemm_block *b) {
    return same_f32(a->d, b->d) && same_f32(a->s, b->s) && same_f32(a->s0, b->s0) &&
           same_f32(a->s1, b->s1) && a->n == b->n && a->n0 == b->n0 && a->n1 == b->n1;
}

/* Codes by the rule of gemm.h, computed in float64 except at ties; then every set bit for bit. */
static void test_quantize(void) {
    be_rng.state = 6;
    enum { N_IN = 96 };
    for (int round = 0; round < 20; round++)
        for (int two = 0; two < 2; two++) {
            struct inputs in = make_inputs(&gemm_generic, N_IN, false, round == 0, two);
            double top = two ? GEMM_Q16 : GEMM_Q8, worst = 0;
            for (uint64_t at = 0; at < GEMM_ROWS * N_IN; at++) {
                const struct gemm_block *b = &in.blocks[at / GEMM_BLOCK];
                double q = two ? 254 * in.q[0][at] + in.q[1][at] : in.q[0][at];
                CHECK(fabs(q) <= top && in.q[0][at] != -128 && !(two && in.q[1][at] == -128));
                if (!isnan(b->d) && b->d > 0)
                    worst = fmax(worst, fabs((double)in.x[at] / (double)b->d - q));
                else
                    CHECK(q == 0);
                if (!isfinite(in.x[at])) CHECK(isnan(b->d));
            }
            CHECK_MSG(worst <= 0.5 + 4e-7 * top, "off by %g of a step", worst);
            const struct gemm_isa *isa;
            for (uint32_t i = 0; (isa = gemm_isa_at(i)) != NULL; i++)
                for (uint64_t r = 0; r < GEMM_ROWS; r++) {
                    int8_t hi[N_IN], lo[N_IN], *q[2] = {hi, two ? lo : NULL};
                    struct gemm_block blocks[N_IN / GEMM_BLOCK];
                    bool same = true;
                    isa->quantize(in.x + r * N_IN, N_IN, q, blocks);
                    for (uint32_t b = 0; b < N_IN / GEMM_BLOCK; b++)
                        same =
                            same && same_block(&blocks[b], &in.blocks[r * (N_IN / GEMM_BLOCK) + b]);
                    for (uint32_t c = 0; c < N_IN; c++) {
                        const int8_t *w0 = in.q[0] + r * N_IN,
                                     *w1 = two ? in.q[1] + r * N_IN : NULL;
                        int want = two ? 254 * w0[c] + w1[c] : w0[c];
                        same = same && want == (two ? 254 * hi[c] + lo[c] : hi[c]) &&
                               hi[c] != -128 && !(two && lo[c] == -128);
                    }
                    CHECK_MSG(same, "%s planes %d row %u", isa->name, 1 + two, (unsigned)r);
                }
            free_inputs(&in);
        }
}

static void test_sizes(void) {
    uint64_t bytes;
    CHECK(!gemm_has_type(-1) && !gemm_has_type(4) && !gemm_weight_bytes(4, 1, 32, &bytes));
    CHECK(!gemm_weight_bytes(QTYPE_Q4_0, 16, 33, &bytes));
    CHECK(!gemm_weight_bytes(QTYPE_Q4_K, 16, 288, &bytes));
    CHECK(!gemm_weight_bytes(QTYPE_Q4_0, UINT64_MAX, 32, &bytes));
    CHECK(!gemm_weight_bytes(QTYPE_Q4_0, UINT64_MAX / 64, 1 << 20, &bytes));
    CHECK(!gemm_weight_bytes(QTYPE_F32, 1, 1ull << 32, &bytes));
    CHECK(gemm_weight_bytes(QTYPE_Q4_0, 17, 288, &bytes) && bytes == 2 * 16 * 9 * 18);
    CHECK(gemm_weight_bytes(QTYPE_BF16, 1, 257, &bytes) && bytes == 16 * 2 * 258);
    for (uint32_t t = 0; t < N_BLOCK_TYPES; t++) {
        uint64_t file;
        uint32_t n_in = 4096;
        CHECK(qtype_bytes(block_types[t].type, 48, n_in, &file));
        CHECK(gemm_weight_bytes(block_types[t].type, 48, n_in, &bytes) && bytes == file);
    }
}

/* bench [instruction set, - for the best] [type, - for all] [planes] */
static int bench(int argc, char **argv) {
    const char *name = argc > 2 && strcmp(argv[2], "-") != 0 ? argv[2] : NULL;
    const char *type = argc > 3 && strcmp(argv[3], "-") != 0 ? argv[3] : NULL;
    const struct gemm_isa *isa;
    uint32_t i = 0, t = 0;
    while ((isa = gemm_isa_at(i)) != NULL && name && strcmp(isa->name, name) != 0)
        i++;
    while (type && t < N_BLOCK_TYPES && strcmp(qtype_name(block_types[t].type), type) != 0)
        t++;
    if (!isa || t == N_BLOCK_TYPES) {
        fprintf(stderr, "no %s here\n", isa ? type : name);
        return 1;
    }
    gemm_bench(isa, type ? block_types[t].type : -1, argc > 4 && atoi(argv[4]) == 2 ? 2 : 1);
    return 0;
}

static void test_choice(void) {
    if (be_best) CHECK_STR(gemm_isa_at(0)->name, be_best);
}

int main(int argc, char **argv) {
    const struct gemm_isa *isa;
    if (check_bench(argc, argv)) return bench(argc, argv);
    be_args(argc, argv);
    for (uint32_t i = 0; (isa = gemm_isa_at(i)) != NULL; i++)
        printf("%s%s", i ? ", " : "instruction sets here: ", isa->name);
    printf("\n");
    RUN(test_choice);
    RUN(test_sizes);
    RUN(test_panels_hold_the_decoders_values);
    RUN(test_generic_against_float64);
    RUN(test_quantize);
    RUN(test_every_set_gives_the_same_bits);
    return check_done();
}
