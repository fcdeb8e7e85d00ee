/* test_standin_runtime_msl.c - results of functions of the Metal Shading Language on the stand-in;
 * what the language pass accepts and rejects. */
#include "tests/metal/standin_run.h"
#include "tests/support/rng.h"

#include <dirent.h>
#include <math.h>

static struct run_lib lib; /* kernels/functions.metal, check build */

static void expect_values(const char *kernel, const float *want, int n, void *in, size_t in_bytes) {
    float got[64] = {0};
    const char *report =
        run_kernel(&(struct run){.lib = &lib,
                                 .kernel = kernel,
                                 .n_threads = 1,
                                 .buffers = {{got, sizeof got, "out"}, {in, in_bytes, "in"}},
                                 .opts = {.check = 1}});
    CHECK_SILENT(report);
    for (int i = 0; i < n; i++)
        CHECK_MSG(fabsf(got[i] - want[i]) <= 1e-6f * fabsf(want[i]) ||
                      (isnan(want[i]) && isnan(got[i])),
                  "%s value %d: got %g, want %g", kernel, i, (double)got[i], (double)want[i]);
    CHECK_MSG(got[n] == 0.0f, "%s writes more than %d values", kernel, n);
}

static void test_common(void) {
    static const float want[] = {2,  4, 2.5f, 4, 2, 2,    0,     0.5f,   -1, 1,     2, 7,
                                 10, 7, 32,   1, 5, 1,    3,     1.5f,   1,  0,     1, 1,
                                 24, 8, 100,  1, 0, 1.5f, 0.25f, -0.25f, -2, 0.75f, 4};
    expect_values("common", want, sizeof want / sizeof *want, NULL, 0);
}
static void test_integers(void) {
    static const float want[] = {8,  16,  31,    15, 32,  3,   8,    0xBC, -1,   0x50,
                                 3,  128, 3,     -1, 255, 0,   -128, 7,    254,  255,
                                 17, 7,   0x3F8, 2,  4,   255, 192,  -1,   32767};
    expect_values("integers", want, sizeof want / sizeof *want, NULL, 0);
}
static void test_packed(void) {
    struct {
        uint16_t a[2];
        uint8_t b[4];
        float c[3];
    } in = {{0x3C00, 0x4000}, {1, 2, 3, 0}, {1.5f, 2.5f, 3.5f}};
    static const float want[] = {2, 3, 3.5f, 3, 2.5f, 7.5f, 16, 12, 8, 1, 4, INFINITY, 6, 41, 2};
    float got[16] = {0};
    const struct run r = {.lib = &lib,
                          .kernel = "packs",
                          .n_threads = 1,
                          .buffers = {{got, sizeof got, "out"}, {&in, sizeof in, "in"}},
                          .opts = {.check = 1}};
    CHECK_SILENT(run_kernel(&r));
    for (int i = 0; i < 15; i++)
        CHECK_MSG(got[i] == want[i], "value %d: got %g, want %g", i, (double)got[i],
                  (double)want[i]);
}

/* Expected value of each row of kernel lanes, for lane l. */
static float want_lane(int row, int l) {
    const float v = (float)(l + 1);
    int quad = l & ~3;
    switch (row) {
    case 0:
        return 528;
    case 1:
        return 32;
    case 2:
        return 1;
    case 3:
        return 0;
    case 4:
        return (float)(32 - l);
    case 5:
        return (float)((l ^ 5) + 1);
    case 6:
        return l + 4 < 32 ? v + 4 : v;
    case 7:
        return l >= 4 ? v - 4 : v;
    case 8:
        return (float)((l + 3) % 32 + 1);
    case 9:
        return (float)((l + 29) % 32 + 1);
    case 10:
        return l >= 2 ? v - 2 : -(float)((l + 30) % 32 + 1);
    case 11:
        return 8;
    case 12:
        return 1;
    case 13:
        return v * (v + 1) / 2;
    case 14:
        return v * (v - 1) / 2;
    case 15:
        return (float)(1 << (l < 4 ? l : 4));
    case 16:
        return (float)(quad * 4 + 10);
    case 17:
        return (float)(quad + 4);
    case 18:
        return (float)(quad + 3);
    case 19:
        return (float)((l ^ 1) + 1);
    case 20:
        return (float)((l - quad) * (quad * 2 + l - quad + 1) / 2);
    case 21:
        return 0x5555;
    case 22:
        return 1;
    case 23:
        return 0;
    case 24:
        return l == 0;
    default:
        return 32;
    }
}
static void test_lanes(void) {
    enum { ROWS = 26 };
    for (int shuffle = 0; shuffle < 3; shuffle++) {
        float got[ROWS * 32];
        const struct run r = {.lib = &lib,
                              .kernel = "lanes",
                              .buffers = {{got, sizeof got, "out"}},
                              .opts = {.check = 1, .shuffle = shuffle, .seed = 5}};
        CHECK_SILENT(run_kernel(&r));
        for (int i = 0; i < ROWS * 32; i++)
            CHECK_MSG(got[i] == want_lane(i / 32, i % 32), "row %d lane %d: got %g, want %g",
                      i / 32, i % 32, (double)got[i], (double)want_lane(i / 32, i % 32));
    }
}

static void test_matrix_moves(void) {
    float in[20 * 20], out[288];
    for (int i = 0; i < 400; i++)
        in[i] = (float)i;
    const struct run r = {.lib = &lib,
                          .kernel = "matrix_moves",
                          .tg_bytes = 320,
                          .buffers = {{in, sizeof in, "in"}, {out, sizeof out, "out"}},
                          .opts = {.check = 1}};
    CHECK_SILENT(run_kernel(&r));
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) {
            CHECK(out[i * 8 + j] == in[(2 + i) * 20 + 3 + j]);
            CHECK(out[64 + i * 16 + 8 + j] == in[(2 + j) * 20 + 3 + i]);
            CHECK(out[224 + i * 8 + j] == in[i * 20 + j]);
            if (i < 8 && j < 4) CHECK(out[192 + i * 4 + j] == in[j * 20 + i]);
        }
}

static float random_float(void) {
    static struct rng random = {1};
    return rng_float(&random, -1, 1);
}
static uint16_t half_bits(float x) { /* x must be exact in a half */
    _Float16 h = (_Float16)x;
    uint16_t u;
    memcpy(&u, &h, sizeof u);
    return u;
}
static uint16_t bfloat_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)(u >> 16);
}
/* Adds the product's terms in the requested order. */
static float product_term(const float *a, const float *b, int i, int j, float c, int tree) {
    float p[8];
    for (int k = 0; k < 8; k++) {
        p[k] = a[i * 8 + k] * b[k * 8 + j];
        if (!tree) c = fmaf(a[i * 8 + k], b[k * 8 + j], c);
    }
    if (!tree) return c;
    return c + (((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7])));
}
static void test_matrix_product(void) {
    static const char *const kernels[] = {"product_f32", "product_f16", "product_mixed"};
    int orders_differ = 0;
    for (int type = 0; type < 3; type++) {
        float a[64], b[64], c[64], d[2][64];
        uint16_t a16[64], b16[64];
        for (int i = 0; i < 64; i++) {
            /* few bits: exact in the narrow types */
            a[i] = type ? rintf(random_float() * 64) / 32 : random_float();
            b[i] = type == 1 ? rintf(random_float() * 64) / 32 : random_float();
            c[i] = random_float();
            a16[i] = type == 1 ? half_bits(a[i]) : bfloat_bits(a[i]);
            b16[i] = half_bits(b[i]);
        }
        for (int tree = 0; tree < 2; tree++) {
            const struct run r = {
                .lib = &lib,
                .kernel = kernels[type],
                .buffers = {{type ? (void *)a16 : a, type ? sizeof a16 : sizeof a, "a"},
                            {type == 1 ? (void *)b16 : b, type == 1 ? sizeof b16 : sizeof b, "b"},
                            {c, sizeof c, "c"},
                            {d[tree], sizeof d[tree], "d"}},
                .opts = {.check = 1, .sum_tree = tree}};
            CHECK_SILENT(run_kernel(&r));
            for (int i = 0; i < 64; i++)
                CHECK(d[tree][i] == product_term(a, b, i / 8, i % 8, c[i], tree));
        }
        orders_differ += memcmp(d[0], d[1], sizeof d[0]) != 0;
    }
    CHECK(orders_differ > 0);
}
static void test_thread_elements(void) {
    float d[64], sum = 0;
    const struct run r = {
        .lib = &lib, .kernel = "elements", .buffers = {{d, sizeof d, "d"}}, .opts = {.check = 1}};
    CHECK_SILENT(run_kernel(&r));
    for (int i = 0; i < 64; i++)
        sum += d[i];
    CHECK(sum == 32 + 496); /* each lane's two elements occur once in the matrix */
}

/* fast:: results may be off by 2 ULP, depending on the seed but not on the run. */
static int ulp_apart(float a, float b) {
    int32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return abs(x - y);
}
static void test_fast_math(void) {
    float in[32], out[4][64];
    for (int i = 0; i < 32; i++)
        in[i] = random_float() * 10;
    for (int k = 0; k < 4; k++) {
        const uint64_t noise[] = {0, 1, 1, 2};
        const struct run r = {.lib = &lib,
                              .kernel = "fast_exp",
                              .buffers = {{in, sizeof in, "in"}, {out[k], sizeof out[k], "out"}},
                              .opts = {.check = 1, .noise = noise[k]}};
        CHECK_SILENT(run_kernel(&r));
    }
    int moved = 0;
    for (int i = 0; i < 32; i++) {
        float exact = (float)exp((double)in[i]);
        for (int k = 0; k < 4; k++) {
            CHECK(ulp_apart(out[k][2 * i + 1], exact) <= 1);
            CHECK(ulp_apart(out[k][2 * i], out[0][2 * i]) <= 2);
        }
        moved += out[1][2 * i] != out[0][2 * i];
    }
    CHECK(moved > 16);
    CHECK(memcmp(out[1], out[2], sizeof out[1]) == 0);
    CHECK(memcmp(out[1], out[3], sizeof out[1]) != 0);
    in[7] = -INFINITY;
    const struct run r = {.lib = &lib,
                          .kernel = "fast_exp",
                          .buffers = {{in, sizeof in, "in"}, {out[0], sizeof out[0], "out"}},
                          .opts = {.check = 1}};
    CHECK_REPORT(run_kernel(&r), "fast::exp of -inf");
}

/* What fast:: promises nothing for is reported: sines beyond pi, results that overflow. */
static void test_fast_domains(void) {
    static const struct {
        float in[2]; /* which function, x */
        float want;
        const char *report;
    } cases[] = {
        {{0, 3}, -0.9899925f, NULL},      {{0, 3.2f}, 0, "fast::cos of 3.2"},
        {{1, 1}, 0.76159416f, NULL},      {{1, -60}, -1, NULL},
        {{1, 60}, 0, "fast::tanh of 60"}, {{2, 80}, 5.5406225e34f, NULL},
        {{2, 90}, 0, "fast::exp of 90"},  {{2, -200}, 0, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float in[2] = {cases[i].in[0], cases[i].in[1]}, out = 1;
        const struct run r = {.lib = &lib,
                              .kernel = "fast_domain",
                              .buffers = {{in, sizeof in, "in"}, {&out, sizeof out, "out"}},
                              .opts = {.check = 1}};
        const char *report = run_kernel(&r);
        if (cases[i].report) {
            CHECK_REPORT(report, cases[i].report);
            continue;
        }
        CHECK_SILENT(report);
        CHECK_MSG(fabsf(out - cases[i].want) <= 1e-6f * fabsf(cases[i].want), "%g: got %g",
                  (double)in[1], (double)out);
    }
}

/* Plain function names mean the fast variants only in a library with fast math. */
static void test_fast_library(void) {
    static const char *const flags[] = {"-DMSL_FAST_MATH=0", "-DMSL_FAST_MATH=1"};
    float in[32], out[64];
    for (int i = 0; i < 32; i++)
        in[i] = random_float() * 10;
    for (int fast = 0; fast < 2; fast++) {
        struct run_lib own = run_open("kernels/fast_math.metal", "plain", flags[fast]);
        const struct run r = {.lib = &own,
                              .kernel = "plain_exp",
                              .buffers = {{in, sizeof in, "in"}, {out, sizeof out, "out"}},
                              .opts = {.noise = 1}};
        int moved = 0;
        CHECK_SILENT(run_kernel(&r));
        for (int i = 0; i < 32; i++) {
            CHECK(ulp_apart(out[2 * i + 1], (float)exp((double)in[i])) <= 1);
            moved += out[2 * i] != out[2 * i + 1];
        }
        CHECK_MSG(fast ? moved > 16 : moved == 0, "fast math %d: %d of 32 moved", fast, moved);
        run_close(&own);
    }
}

/* Each file of checks/: bad_ files are rejected with the text of their first line, "// error:
 * TEXT". */
static void test_language(void) {
    char path[600], command[800], text[8192], line[256];
    DIR *files = opendir("tests/metal/checks");
    int n = 0;
    CHECK(files != NULL);
    for (struct dirent *e; files && (e = readdir(files));) {
        if (!strstr(e->d_name, ".metal")) continue;
        if (strstr(e->d_name, "_private_array"))
            continue; /* for metalarrays: scripts/check-metal */
        snprintf(path, sizeof path, "tests/metal/checks/%s", e->d_name);
        snprintf(command, sizeof command, "tests/metal/standin/tools/metalcheck %s 2>&1", path);
        int rc = run_command(command, text, sizeof text);
        FILE *f = fopen(path, "r");
        const char *want = f && fgets(line, sizeof line, f) ? strstr(line, "error: ") : NULL;
        if (f) fclose(f);
        if (strncmp(e->d_name, "bad_", 4) == 0) {
            line[strcspn(line, "\n")] = 0;
            CHECK_MSG(rc != 0 && want && strstr(text, want + strlen("error: ")),
                      "%s: status %d, \"%s\"", e->d_name, rc, text);
        } else
            CHECK_MSG(rc == 0, "%s: %s", e->d_name, text);
        n++;
    }
    if (files) closedir(files);
    CHECK(n > 20);
}
static void test_functions_pass_language(void) {
    char text[4096];
    int rc =
        run_command("tests/metal/standin/tools/metalcheck tests/metal/kernels/functions.metal 2>&1",
                    text, sizeof text);
    CHECK_MSG(rc == 0, "%s", text);
}

int main(void) {
    lib = run_open("kernels/functions.metal", "check", "");
    RUN(test_common);
    RUN(test_integers);
    RUN(test_packed);
    RUN(test_lanes);
    RUN(test_matrix_moves);
    RUN(test_matrix_product);
    RUN(test_thread_elements);
    RUN(test_fast_math);
    RUN(test_fast_domains);
    RUN(test_fast_library);
    RUN(test_language);
    RUN(test_functions_pass_language);
    run_close(&lib);
    return check_done();
}
