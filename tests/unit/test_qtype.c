/* test_qtype.c - element types: decoders against golden blocks recorded from ggml
 * (tests/data/qblock), sizes, encoders. "build/test_qtype rmse" prints the error of every type on
 * Gaussian values and on the demo model's weights as a Markdown table. */
#include "core/base/qblock.h"
#include "core/base/qpoints.h"
#include "core/formats/gguf/gguf.h"

#include "tests/unit/check.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* rmse: the encoder's largest error on Gaussian values, relative to their standard deviation.
 * again: the largest error of encoding decoded values, relative to the first error. hash: of the
 * bytes that test_same_bytes encodes; it changes with the encoder. weighted: the largest error with
 * weights, on Gaussian values of unequal ones, relative to the error without them. */
static const struct type_case {
    int type;
    double rmse, again;
    uint32_t hash;
    double weighted;
} cases[] = {
    {QTYPE_F32, 0, 0, 0x65b26c38, 0},
    {QTYPE_F16, 2.1e-4, 0, 0x6c9735fe, 0},
    {QTYPE_BF16, 0.0017, 0, 0x5cd5d27b, 0},
    {QTYPE_Q4_0, 0.0815, 0.01, 0x12bab373, 0.84},
    {QTYPE_Q4_1, 0.0695, 0.01, 0xb26b7e0e, 0.75},
    {QTYPE_Q5_0, 0.0405, 0.01, 0x5b6b3ca5, 0.85},
    {QTYPE_Q5_1, 0.0335, 0.01, 0xc32c2b38, 0.74},
    {QTYPE_Q8_0, 0.0049, 0.03, 0xf83a0e9d, 0.83},
    {QTYPE_Q2_K, 0.262, 0.12, 0xfe4c0791, 0.635},
    {QTYPE_Q3_K, 0.146, 0.01, 0x3c50a1e9, 0.805},
    {QTYPE_Q4_K, 0.0705, 0.14, 0xf4943854, 0.755},
    {QTYPE_Q5_K, 0.035, 0.25, 0x91e99313, 0.775},
    {QTYPE_Q6_K, 0.0168, 0.03, 0x50460a6e, 0.765},
    {QTYPE_IQ4_NL, 0.0745, 0.01, 0x0e33fbbf, 0.79},
    {QTYPE_IQ4_XS, 0.075, 0.01, 0x41e70fc7, 0.785},
    {QTYPE_MXFP4, 0.113, 0.01, 0xf4dc59ef, 0.99},
    {QTYPE_IQ2_XXS, 0.328, 0.3, 0x7466873a, 0.6},
    {QTYPE_IQ2_XS, 0.286, 0.3, 0x8903e580, 0.56},
    {QTYPE_IQ2_S, 0.239, 0.3, 0x0aba7c01, 0.665},
    {QTYPE_IQ3_XXS, 0.177, 0.3, 0x8b56ab2c, 0.455},
    {QTYPE_IQ3_S, 0.13, 0.3, 0x5a992fdc, 0.565},
    {QTYPE_IQ1_S, 0.445, 0.3, 0xbb2e8d39, 0.815},
    {QTYPE_IQ1_M, 0.412, 0.3, 0x727010ff, 0.68},
    {QTYPE_TQ1_0, 0.45, 0.01, 0x4b9a4091, 0.99},
    {QTYPE_TQ2_0, 0.45, 0.01, 0x2dffb4d9, 0.99},
};
enum { N_TYPES = sizeof cases / sizeof cases[0], MAX_ELEMS = 256 };

/* Types that are widened for kernels. */
static const int widened[] = {QTYPE_IQ2_XXS, QTYPE_IQ2_XS, QTYPE_IQ2_S, QTYPE_IQ3_XXS, QTYPE_IQ3_S,
                              QTYPE_IQ1_S,   QTYPE_IQ1_M,  QTYPE_TQ1_0, QTYPE_TQ2_0};
enum { N_WIDENED = sizeof widened / sizeof widened[0] };

static uint32_t random_state = 1;

static uint32_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

/* Nearly Gaussian, by basic arithmetic only: the same on every machine. */
/* For an emulator: fewer blocks. */
static bool quick;

static void fill_gaussian(float *x, size_t n, double sigma) {
    for (size_t i = 0; i < n; i++) {
        double sum = -6;
        for (int k = 0; k < 12; k++)
            sum += next_random() * 0x1p-32;
        x[i] = (float)(sum * sigma);
    }
}

static double rmse(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum / (double)n);
}

/* y = x encoded and decoded. (n) each. */
static void round_trip(int type, const float *x, float *y, size_t n) {
    uint64_t bytes;
    CHECK(qtype_bytes(type, 1, n, &bytes));
    void *packed = malloc(bytes);
    qtype_encode(type, x, packed, n);
    qtype_decode(type, packed, y, n);
    free(packed);
}

static void *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *data = malloc(1 << 20);
    *n = data ? fread(data, 1, 1 << 20, f) : 0;
    fclose(f);
    return data;
}

/* Bit for bit; any NaN equals any other. */
static void golden(const struct qtype_info *info) {
    char path[64];
    size_t size;
    snprintf(path, sizeof path, "tests/data/qblock/%s.bin", info->name);
    uint8_t *data = read_file(path, &size);
    CHECK_MSG(data, "%s", path);
    if (!data) return;
    size_t one = info->block_bytes + info->block_elems * sizeof(float), n_blocks = size / one;
    CHECK(n_blocks >= 8 && size % one == 0);
    size_t n = n_blocks * info->block_elems;
    float *got = malloc(n * sizeof *got);
    qtype_decode(info->type, data, got, n);
    for (size_t i = 0; i < n; i++) {
        float want;
        memcpy(&want, data + n_blocks * info->block_bytes + i * sizeof want, sizeof want);
        bool same = isnan(want) ? isnan(got[i]) : memcmp(&want, &got[i], sizeof want) == 0;
        CHECK_MSG(same, "%s block %zu value %zu: got %a, want %a", info->name,
                  i / info->block_elems, i % info->block_elems, (double)got[i], (double)want);
    }
    free(got);
    free(data);
}

static void test_golden_blocks(void) {
    for (int t = 0; t < N_TYPES; t++)
        if (cases[t].type != QTYPE_F32) golden(qtype_find(cases[t].type));
    golden(qtype_find(QTYPE_NVFP4));
}

/* Widened blocks hold the same values. Blocks of any bits: every index and every scale occurs. */
static void test_widening(void) {
    enum { N_BLOCKS = 200 };
    static uint8_t rows[N_BLOCKS * 128], wide[N_BLOCKS * 144];
    static float want[N_BLOCKS * MAX_ELEMS], got[N_BLOCKS * MAX_ELEMS];
    random_state = 31;
    for (int t = 0; t < N_WIDENED; t++) {
        const struct qtype_info *info = qtype_find(widened[t]);
        int to = qtype_wide(widened[t]);
        const struct qtype_info *wide_info = qtype_find(to);
        CHECK(wide_info && to != widened[t] && qtype_wide(to) == to);
        CHECK(wide_info->block_elems == info->block_elems && info->block_bytes <= 128);
        CHECK(!qtype_is_wide(widened[t]) && qtype_is_wide(to) == (to != QTYPE_Q2_K));
        for (size_t i = 0; i < sizeof rows; i++)
            rows[i] = (uint8_t)(next_random() >> 11);
        memset(wide, 0xa5, sizeof wide);
        qtype_widen(widened[t], rows, wide, N_BLOCKS * MAX_ELEMS);
        CHECK(wide[N_BLOCKS * wide_info->block_bytes] == 0xa5);
        qtype_decode(widened[t], rows, want, N_BLOCKS * MAX_ELEMS);
        qtype_decode(to, wide, got, N_BLOCKS * MAX_ELEMS);
        uint32_t n_bad = 0;
        for (int i = 0; i < N_BLOCKS * MAX_ELEMS; i++)
            n_bad += isfinite(want[i]) ? got[i] != want[i] : isfinite(got[i]);
        CHECK_MSG(n_bad == 0, "%s: %u values differ", info->name, n_bad);
    }
}

/* A type without an encoder leaves dst as it is. */
static bool has_encoder(int type) {
    static const float src[QK_ELEMS];
    uint8_t dst[sizeof src], before[sizeof src];
    memset(dst, 0xA5, sizeof dst);
    memset(before, 0xA5, sizeof before);
    qtype_encode(type, src, dst, QK_ELEMS);
    return memcmp(dst, before, sizeof dst) != 0;
}

/* Every scale and level, in BF16 without a rounding. */
static void test_widening_nvfp4(void) {
    enum { N = 256 * QNV_ELEMS };
    static uint8_t blocks[256 * sizeof(struct nvfp4_block)];
    static float want[N], got[N];
    static uint16_t wide[N];
    random_state = 31;
    for (size_t i = 0; i < sizeof blocks; i++)
        blocks[i] = (uint8_t)(i % sizeof(struct nvfp4_block) < 4 ? i / sizeof(struct nvfp4_block)
                                                                 : next_random() >> 11);
    CHECK(qtype_wide(QTYPE_NVFP4) == QTYPE_BF16 && !has_encoder(QTYPE_NVFP4));
    qtype_decode(QTYPE_NVFP4, blocks, want, N);
    qtype_widen(QTYPE_NVFP4, blocks, wide, N);
    qtype_decode(QTYPE_BF16, wide, got, N);
    CHECK(memcmp(got, want, sizeof got) == 0);
}

static void test_table(void) {
    for (int t = 0; t < N_TYPES; t++) {
        const struct qtype_info *info = qtype_find(cases[t].type);
        CHECK(info && info->type == cases[t].type);
        CHECK_STR(qtype_name(cases[t].type), info->name);
        uint64_t bytes = 7, elems = info->block_elems;
        CHECK(qtype_bytes(info->type, 3, 5 * elems, &bytes) && bytes == 15 * info->block_bytes);
        CHECK(qtype_bytes(info->type, 0, elems, &bytes) && bytes == 0);
        bytes = 7;
        CHECK(elems == 1 || !qtype_bytes(info->type, 1, elems + 1, &bytes));
        CHECK(!qtype_bytes(info->type, UINT64_MAX / info->block_bytes + 1, elems, &bytes));
        CHECK(elems > info->block_bytes ||
              !qtype_bytes(info->type, 2, UINT64_MAX / elems * elems, &bytes));
        CHECK(bytes == 7);
    }
    const int others[] = {-1, 4, 5, 9, 15, 24, 31, 36, 38, 41, 999, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK_MSG(!qtype_find(others[i]), "%d", others[i]);
    CHECK_STR(qtype_name(15), "type 15");
}

static void test_gaussian_error(void) {
    enum { N = 64 * 256 };
    static float x[N], y[N], z[N];
    const double sigmas[] = {1, 0.02, 300};
    for (int t = 0; t < N_TYPES; t++) {
        for (size_t s = 0; s < sizeof sigmas / sizeof sigmas[0]; s++) {
            random_state = 11;
            fill_gaussian(x, N, sigmas[s]);
            round_trip(cases[t].type, x, y, N);
            double first = rmse(x, y, N) / sigmas[s];
            CHECK_MSG(first <= cases[t].rmse, "%s of %g: %.6f", qtype_name(cases[t].type),
                      sigmas[s], first);
            round_trip(cases[t].type, y, z, N);
            double again = rmse(y, z, N) / sigmas[s];
            CHECK_MSG(again <= cases[t].again * first, "%s of %g again: %.4f of %.6f",
                      qtype_name(cases[t].type), sigmas[s], again / first, first);
        }
    }
}

/* Each block is encoded independently of their number, and no bytes are written after them. */
static void test_block_counts(void) {
    static float x[7 * MAX_ELEMS];
    static uint8_t all[8 * 1024], one[1024 + 1];
    random_state = 5;
    fill_gaussian(x, 7 * MAX_ELEMS, 1);
    for (int t = 0; t < N_TYPES; t++) {
        const struct qtype_info *info = qtype_find(cases[t].type);
        for (uint32_t n = 1; n <= 7; n += n == 1 ? 2 : 4) {
            memset(all, 0xa5, sizeof all);
            qtype_encode(info->type, x, all, n * info->block_elems);
            CHECK(all[n * info->block_bytes] == 0xa5);
            for (uint32_t b = 0; b < n; b++) {
                qtype_encode(info->type, x + b * info->block_elems, one, info->block_elems);
                CHECK_MSG(memcmp(one, all + b * info->block_bytes, info->block_bytes) == 0,
                          "%s block %u of %u", info->name, b, n);
            }
        }
        all[0] = 0xa5;
        qtype_encode(info->type, x, all, 0);
        CHECK(all[0] == 0xa5);
    }
}

static bool is_float(int type) {
    return type == QTYPE_F32 || type == QTYPE_F16 || type == QTYPE_BF16;
}

/* Do several values share a code, so that zeros among large ones may not be 0? */
static bool has_grid(int type) {
    return qtype_wide(type) != type;
}

static bool is_ternary(int type) {
    return type == QTYPE_TQ1_0 || type == QTYPE_TQ2_0;
}

static void test_flat_blocks(void) {
    const float levels[] = {0, 1, -1, 0.02f, -0.02f, 1000, -1000, 1e-3f, -1e-3f};
    float x[MAX_ELEMS], y[MAX_ELEMS];
    for (int t = 0; t < N_TYPES; t++) {
        /* MXFP4 has nothing between 1 and 1.5. */
        float tolerance = cases[t].type == QTYPE_MXFP4 ? 0.2f : 0.02f;
        for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
            for (int i = 0; i < MAX_ELEMS; i++)
                x[i] = levels[l];
            round_trip(cases[t].type, x, y, MAX_ELEMS);
            for (int i = 0; i < MAX_ELEMS; i++)
                CHECK_MSG(fabsf(y[i] - x[i]) <= tolerance * fabsf(x[i]), "%s %g: %g",
                          qtype_name(cases[t].type), (double)x[i], (double)y[i]);
        }
    }
}

/* Subnormals, values around the smallest half, and a few of them among ordinary ones. */
static void test_small_values(void) {
    const float sizes[] = {1e-45f, 1e-40f, 0x1p-126f, 1e-20f, 0x1p-25f, 0x1p-24f, 1e-7f, 1e-6f};
    float x[MAX_ELEMS], y[MAX_ELEMS];
    random_state = 9;
    for (int t = 0; t < N_TYPES; t++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            for (int i = 0; i < MAX_ELEMS; i++)
                x[i] = sizes[s] * (float)((int)(next_random() % 7) - 3);
            round_trip(cases[t].type, x, y, MAX_ELEMS);
            for (int i = 0; i < MAX_ELEMS; i++)
                CHECK_MSG(fabsf(y[i] - x[i]) <= 3.1f * sizes[s] + 0x1p-24f, "%s %g: %g",
                          qtype_name(cases[t].type), (double)x[i], (double)y[i]);
            for (int i = 0; i < MAX_ELEMS; i += 5)
                x[i] = i % 2 ? 1 : -1;
            round_trip(cases[t].type, x, y, MAX_ELEMS);
            CHECK(rmse(x, y, MAX_ELEMS) < (has_grid(cases[t].type) ? 0.3 : 0.2));
        }
    }
}

/* Values beyond the range of halves: decoded with the right sign, as the type's largest value. */
static void test_large_values(void) {
    const float sizes[] = {1e6f, 1e9f, 1e20f, FLT_MAX, INFINITY};
    float x[MAX_ELEMS], y[MAX_ELEMS];
    for (int t = 0; t < N_TYPES; t++) {
        if (is_float(cases[t].type)) continue;
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            for (int i = 0; i < MAX_ELEMS; i++)
                x[i] = i % 3 == 0 ? sizes[s] : i % 3 == 1 ? -sizes[s] : 0;
            round_trip(cases[t].type, x, y, MAX_ELEMS);
            for (int i = 0; i < MAX_ELEMS; i++)
                CHECK_MSG(isfinite(y[i]) && (i % 3 == 0   ? y[i] > 6e4f
                                             : i % 3 == 1 ? y[i] < -6e4f
                                                          : has_grid(cases[t].type) ||
                                                                fabsf(y[i]) <= 0.3f * fabsf(y[0])),
                          "%s %g: value %d is %g", qtype_name(cases[t].type), (double)sizes[s], i,
                          (double)y[i]);
        }
    }
}

static void test_nan(void) {
    float x[MAX_ELEMS], y[MAX_ELEMS];
    random_state = 3;
    for (int t = 0; t < N_TYPES; t++) {
        fill_gaussian(x, MAX_ELEMS, 1);
        for (int i = 0; i < MAX_ELEMS; i += 9)
            x[i] = NAN;
        round_trip(cases[t].type, x, y, MAX_ELEMS);
        for (int i = 0; i < MAX_ELEMS; i++) {
            bool good = is_float(cases[t].type) ? isnan(x[i]) == isnan(y[i])
                        : isnan(x[i])
                            ? fabsf(y[i]) < 0.8f
                            : fabsf(y[i] - x[i]) < (is_ternary(cases[t].type) ? 2.2f : 1.2f);
            CHECK_MSG(good, "%s value %d of %g: %g", qtype_name(cases[t].type), i, (double)x[i],
                      (double)y[i]);
        }
        for (int i = 0; i < MAX_ELEMS; i++)
            x[i] = NAN;
        round_trip(cases[t].type, x, y, MAX_ELEMS);
        for (int i = 0; i < MAX_ELEMS; i++)
            CHECK_MSG(is_float(cases[t].type) ? isnan(y[i]) : y[i] == 0, "%s %g",
                      qtype_name(cases[t].type), (double)y[i]);
    }
}

/* Arbitrary bits as floats: no report of a sanitizer. */
static void test_any_bits(void) {
    uint32_t bits[MAX_ELEMS];
    float x[MAX_ELEMS], y[MAX_ELEMS];
    random_state = 21;
    for (int t = 0; t < N_TYPES; t++) {
        for (int round = 0; round < 50; round++) {
            for (int i = 0; i < MAX_ELEMS; i++)
                bits[i] = next_random();
            memcpy(x, bits, sizeof x);
            round_trip(cases[t].type, x, y, MAX_ELEMS);
            for (int i = 0; i < MAX_ELEMS && !is_float(cases[t].type); i++)
                CHECK(isfinite(y[i]));
        }
    }
}

/* The encoded bytes do not depend on the machine or the compiler. */
static void test_same_bytes(void) {
    enum { N = 8 * MAX_ELEMS };
    static float x[N];
    static uint8_t packed[sizeof x];
    for (int t = 0; t < N_TYPES; t++) {
        uint64_t bytes;
        uint32_t hash = 2166136261u; /* FNV-1a */
        random_state = 77;
        fill_gaussian(x, N / 2, 0.02);
        fill_gaussian(x + N / 2, N / 2, 3);
        CHECK(qtype_bytes(cases[t].type, 1, N, &bytes));
        qtype_encode(cases[t].type, x, packed, N);
        for (uint64_t i = 0; i < bytes; i++)
            hash = (hash ^ packed[i]) * 16777619u;
        CHECK_MSG(hash == cases[t].hash, "%s 0x%08x", qtype_name(cases[t].type), hash);
    }
}

/* Nor on the number of points that a vector of this machine holds; many points are as good as
 * others where values are few, and some values are none. */
static void test_same_points(void) {
    enum { N = 12 * MAX_ELEMS };
    static const float few[] = {0,      -0.0f, 0.01f,     -0.01f, 0.02f,
                                -0.03f, 1e30f, -INFINITY, NAN,    3e-9f};
    static float x[N], w[N];
    static uint8_t first[sizeof x], again[sizeof x];
    const struct qpoints_kernel *kernels[QPOINTS_MAX_KERNELS];
    const uint32_t n = qpoints_kernels(kernels);
    uint32_t hash = 2166136261u; /* of the bytes of all types, as before there were kernels */
    CHECK(n >= 1 && kernels[n - 1] == &qpoints_kernel_4);
    random_state = 78;
    fill_gaussian(x, N, 0.02);
    for (size_t i = 0; i < N; i++) {
        const size_t block = i / MAX_ELEMS;
        if (block >= 4) x[i] = few[next_random() % (block < 8 ? 6 : sizeof few / sizeof few[0])];
        w[i] = block % 2 ? 1 : 0.1f * (float)(1 + next_random() % 10);
    }
    for (int t = 0; t < N_WIDENED; t++) {
        uint64_t bytes;
        if (widened[t] == QTYPE_TQ1_0 || widened[t] == QTYPE_TQ2_0) continue;
        CHECK(qtype_bytes(widened[t], 1, N, &bytes));
        for (int weighted = 0; weighted < 2; weighted++)
            for (uint32_t k = n; k-- > 0;) {
                qencode_iq_by(kernels[k], widened[t], x, weighted ? w : NULL,
                              k == n - 1 ? first : again, N);
                CHECK_MSG(k == n - 1 || memcmp(first, again, bytes) == 0, "%s, %u lanes",
                          qtype_name(widened[t]), kernels[k]->n_lanes);
                for (uint64_t i = 0; k == n - 1 && i < bytes; i++)
                    hash = (hash ^ first[i]) * 16777619u;
            }
    }
    CHECK_MSG(hash == 0xcaae816a, "0x%08x", hash);
}

static double weighted_rmse(const float *x, const float *y, const float *w, size_t n) {
    double sum = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        double e = (double)x[i] - (double)y[i];
        sum += (double)w[i] * e * e;
        all += (double)w[i];
    }
    return sqrt(sum / all);
}

/* Weights change what is lost: where they are large the error is smaller than without them. Equal
 * ones, of any size, change no bit. */
static void test_weights(void) {
    enum { MOST = 32 * MAX_ELEMS };
    static float x[MOST], y[MOST], w[MOST];
    static uint8_t packed[sizeof x], plain[sizeof x];
    const size_t n = quick ? MOST / 8 : MOST;
    random_state = 41;
    fill_gaussian(x, n, 0.02);
    for (int t = 0; t < N_TYPES; t++) {
        const struct qtype_info *info = qtype_find(cases[t].type);
        uint64_t bytes;
        CHECK(qtype_bytes(info->type, 1, n, &bytes) && has_encoder(info->type));
        qtype_encode(info->type, x, plain, n);
        const float equal[] = {1, 0, 3e-20f, 1e30f};
        for (size_t k = 0; k < sizeof equal / sizeof equal[0]; k++) {
            for (size_t i = 0; i < n; i++)
                w[i] = equal[k];
            memset(packed, 0xa5, sizeof packed);
            qtype_encode_weighted(info->type, x, w, packed, n);
            CHECK_MSG(memcmp(packed, plain, bytes) == 0, "%s weights %g", info->name,
                      (double)equal[k]);
            CHECK(bytes == sizeof packed || packed[bytes] == 0xa5);
        }
        for (size_t i = 0; i < n; i++) /* 1 to 4^7, as often each */
            w[i] = ldexpf(1, 2 * (int)(next_random() >> 29));
        qtype_decode(info->type, plain, y, n);
        double before = weighted_rmse(x, y, w, n);
        qtype_encode_weighted(info->type, x, w, packed, n);
        qtype_decode(info->type, packed, y, n);
        double after = weighted_rmse(x, y, w, n);
        const double most = quick ? 1 : cases[t].weighted; /* measured on all blocks */
        CHECK_MSG(is_float(info->type) ? after == before : after <= most * before, "%s: %.3f of %g",
                  info->name, after / before, before);
    }
}

/* Weights of three values are what ternary types are for: nothing is lost, whatever the weights. */
static void test_ternary(void) {
    static const int types[] = {QTYPE_TQ1_0, QTYPE_TQ2_0};
    float x[MAX_ELEMS], y[MAX_ELEMS], w[MAX_ELEMS];
    uint8_t block[MAX_ELEMS];
    random_state = 47;
    for (int round = 0; round < 20; round++) {
        const float d = f16_to_f32((uint16_t)(0x1400 + next_random() % 0x3000));
        for (int i = 0; i < MAX_ELEMS; i++) {
            x[i] = d * (float)((int)(next_random() % 3) - 1);
            w[i] = ldexpf(1, (int)(next_random() >> 28));
        }
        for (int t = 0; t < 2; t++) {
            qtype_encode_weighted(types[t], x, w, block, MAX_ELEMS);
            qtype_decode(types[t], block, y, MAX_ELEMS);
            CHECK(rmse(x, y, MAX_ELEMS) == 0);
            round_trip(types[t], x, y, MAX_ELEMS);
            CHECK(rmse(x, y, MAX_ELEMS) == 0);
        }
    }
}

/* No other point of the grid, no other signs and no other scale of a run would do better: each is
 * tried in IQ2_XXS blocks of weighted values, by their bytes alone. */
static double block_error(int type, const uint8_t *block, const float *x, const float *w) {
    float y[MAX_ELEMS];
    double sum = 0;
    qtype_decode(type, block, y, MAX_ELEMS);
    for (int i = 0; i < MAX_ELEMS; i++)
        sum += (double)w[i] * ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sum;
}

static void test_no_better_point(void) {
    enum { BYTES = 66 };
    float x[MAX_ELEMS], w[MAX_ELEMS];
    uint8_t block[BYTES], other[BYTES];
    random_state = 43;
    for (int round = 0; round < 4; round++) {
        fill_gaussian(x, MAX_ELEMS, 1);
        for (int i = 0; i < MAX_ELEMS; i++)
            w[i] = round ? ldexpf(1, (int)(next_random() >> 30)) : 1;
        qtype_encode_weighted(QTYPE_IQ2_XXS, x, w, block, MAX_ELEMS);
        double best = block_error(QTYPE_IQ2_XXS, block, x, w) * (1 - 1e-5);
        for (int g = 0; g < MAX_ELEMS / 8; g++) {
            uint8_t *index = other + 2 + 8 * (g / 4) + g % 4, *rest = other + 2 + 8 * (g / 4) + 4;
            memcpy(other, block, BYTES);
            for (int p = 0; p < 256; p++) {
                *index = (uint8_t)p;
                CHECK_MSG(block_error(QTYPE_IQ2_XXS, other, x, w) >= best, "group %d point %d", g,
                          p);
            }
            memcpy(other, block, BYTES);
            uint32_t run, changed;
            memcpy(&run, rest, sizeof run);
            for (uint32_t s = 0; s < 128; s++) {
                changed = (run & ~(127u << 7 * (g % 4))) | s << 7 * (g % 4);
                memcpy(rest, &changed, sizeof changed);
                CHECK_MSG(block_error(QTYPE_IQ2_XXS, other, x, w) >= best, "group %d signs %u", g,
                          s);
            }
            for (uint32_t s = 0; g % 4 == 0 && s < 16; s++) {
                changed = (run & 0x0fffffff) | s << 28;
                memcpy(rest, &changed, sizeof changed);
                CHECK_MSG(block_error(QTYPE_IQ2_XXS, other, x, w) >= best, "run %d scale %u", g / 4,
                          s);
            }
        }
    }
}

/* ---- the table of errors ---- */

/* Mean squared error of the type on a model's matrices. */
static double model_rmse(const gguf *g, int type) {
    double sum = 0, n = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->n_dims < 2 || t->n_elems % MAX_ELEMS) continue;
        float *x = malloc(t->n_elems * sizeof *x), *y = malloc(t->n_elems * sizeof *y);
        qtype_decode(t->type, t->data, x, t->n_elems);
        round_trip(type, x, y, t->n_elems);
        double e = rmse(x, y, t->n_elems);
        sum += e * e * (double)t->n_elems;
        n += (double)t->n_elems;
        free(x);
        free(y);
    }
    return sqrt(sum / n);
}

static int print_errors(void) {
    enum { N = 4096 * MAX_ELEMS };
    static float x[N], y[N];
    err e = {0};
    gguf *g;
    if (gguf_open("registry/demo/inferd-demo-q8_0.gguf", 0, &g, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    fill_gaussian(x, N, 1);
    printf("| type | bits per weight | Gaussian, sigma 1 | demo model |\n|---|---|---|---|\n");
    for (int t = 0; t < N_TYPES; t++) {
        const struct qtype_info *info = qtype_find(cases[t].type);
        round_trip(info->type, x, y, N);
        printf("| %s | %g | %.3g | %.3g |\n", info->name,
               8.0 * info->block_bytes / info->block_elems, rmse(x, y, N),
               model_rmse(g, info->type));
    }
    gguf_close(g);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "rmse") == 0) return print_errors();
    quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    RUN(test_table);
    RUN(test_golden_blocks);
    RUN(test_widening);
    RUN(test_widening_nvfp4);
    if (!quick) RUN(test_gaussian_error); /* test_same_bytes: no machine has other errors */
    RUN(test_block_counts);
    RUN(test_flat_blocks);
    RUN(test_small_values);
    RUN(test_large_values);
    RUN(test_nan);
    RUN(test_any_bits);
    RUN(test_same_bytes);
    RUN(test_same_points);
    RUN(test_weights);
    RUN(test_ternary);
    RUN(test_no_better_point);
    return check_done();
}
