/* test_rope.c - frequencies under each scaling against the formulas in float64 (rope64.h) and
 * against figures derived by hand from the papers; invalid divisors in files. */
#include "core/model/model_int.h"
#include "tests/support/be.h"
#include "tests/support/rope64.h"
#include "tests/unit/check.h"

#include <unistd.h>

enum { MAX_PAIRS = 64 };

static const struct model_rope_divisors none;

static bool close_to(double got, double want) {
    return fabs(got - want) <= 2e-7 * fabs(want);
}

static void expect(const struct model_rope *r, const struct model_rope_divisors *div,
                   uint32_t n_ctx, const double *want, double want_magnitude) {
    float got[MAX_PAIRS], magnitude;
    model_rope_frequencies(r, div, n_ctx, got, &magnitude);
    for (uint32_t i = 0; i < r->n_rot / 2; i++)
        CHECK_MSG(close_to((double)got[i], want[i]), "pair %u: %.9g, not %.9g", i, (double)got[i],
                  want[i]);
    CHECK_MSG(close_to((double)magnitude, want_magnitude), "magnitude %.9g, not %.9g",
              (double)magnitude, want_magnitude);
}

static void test_plain_and_linear(void) {
    double want[MAX_PAIRS];
    struct model_rope r = {.n_rot = 14, .base = 10000, .factor = 1, .original_context = 512};
    rope64_plain(10000, 14, want);
    CHECK(want[0] == 1);
    expect(&r, &none, 100000, want, 1);
    r.scaling = MODEL_ROPE_LINEAR;
    r.factor = 4;
    for (int i = 0; i < 7; i++)
        want[i] /= 4;
    expect(&r, &none, 100000, want, 1);
}

/* Llama 3.1: factor 8, low_freq_factor 1, high_freq_factor 4, original context 8192. Its divisors
 * are 1 for wavelengths below 2048, 8 above 8192, between them interpolated. */
static void test_llama3_divisors(void) {
    double want[MAX_PAIRS];
    float divisors[MAX_PAIRS];
    struct model_rope r = {.n_rot = 128, .base = 500000, .factor = 1, .original_context = 131072};
    rope64_plain(500000, 128, want);
    for (int i = 0; i < 64; i++) {
        double wavelength = 2 * acos(-1.0) / want[i], smooth = (8192 / wavelength - 1) / (4 - 1);
        double scaled = (1 - smooth) * want[i] / 8 + smooth * want[i];
        if (wavelength < 2048) scaled = want[i];
        if (wavelength > 8192) scaled = want[i] / 8;
        divisors[i] = (float)(want[i] / scaled);
        want[i] = scaled;
    }
    CHECK(divisors[28] == 1 && divisors[29] > 1 && divisors[34] < 8 && divisors[35] == 8);
    expect(&r, &(struct model_rope_divisors){.all = divisors}, 131072, want, 1);
}

/* The base grows only for contexts beyond the original one: by 3^(128/126) for twice its length. */
static void test_dynamic(void) {
    double want[MAX_PAIRS];
    struct model_rope r = {.scaling = MODEL_ROPE_DYNAMIC,
                           .n_rot = 128,
                           .base = 10000,
                           .factor = 2,
                           .original_context = 2048};
    rope64_plain(10000, 128, want);
    expect(&r, &none, 2048, want, 1);
    double base = 10000 * pow(2.0 * 4096 / 2048 - 1, 128.0 / 126);
    CHECK(fabs(base - 30527.7) < 0.1);
    rope64_plain(base, 128, want);
    expect(&r, &none, 4096, want, 1);
    r.n_rot = 2; /* one pair, which rotates by 1 for any base */
    expect(&r, &none, 4096, want, 1);
}

/* A head of 64 with base 10^4 and factor 40 over 4096 tokens, as DeepSeek-V2 has it: pairs up to 10
 * (32 turns: 10.47, rounded down) keep their frequency, from 23 on (1 turn: 22.51, rounded up) they
 * are divided by 40; pair 15 is interpolated at 5/13. */
static void test_yarn(void) {
    double plain[MAX_PAIRS], want[MAX_PAIRS];
    struct model_rope r = {.scaling = MODEL_ROPE_YARN,
                           .n_rot = 64,
                           .base = 10000,
                           .factor = 40,
                           .original_context = 4096,
                           .beta_fast = 32,
                           .beta_slow = 1,
                           .ext_factor = 1,
                           .truncate = true};
    rope64_plain(10000, 64, plain);
    double magnitude = rope64_yarn(10000, 64, 40, 4096, true, want);
    CHECK(fabs(magnitude - 1.368888) < 1e-6);
    CHECK(close_to(want[10], plain[10]) && close_to(want[23], plain[23] / 40));
    CHECK(close_to(want[15], plain[15] * (8.0 / 13 + 5.0 / 13 / 40)));
    expect(&r, &none, 1, want, magnitude);
    r.attn_factor = 1.25f;
    expect(&r, &none, 1, want, 1.25);
    /* gpt-oss: nothing is rounded. 64 of 150000, factor 32 over 4096: bounds 8.093 and 17.398. */
    r.attn_factor = 0;
    r.base = 150000;
    r.factor = 32;
    r.truncate = false;
    rope64_plain(150000, 64, plain);
    magnitude = rope64_yarn(150000, 64, 32, 4096, false, want);
    CHECK(fabs(magnitude - 1.346574) < 1e-6);
    CHECK(close_to(want[8], plain[8]) && close_to(want[18], plain[18] / 32));
    double way = (9 - 8.09278) / (17.39803 - 8.09278);
    CHECK(fabs(want[9] / plain[9] - (1 - way + way / 32)) < 1e-5);
    expect(&r, &none, 1, want, magnitude);
    r.ext_factor = 0; /* all is interpolated */
    for (int i = 0; i < 32; i++)
        want[i] = plain[i] / 32;
    expect(&r, &none, 1, want, magnitude);
}

/* Phi-3 mini 128k: factor 32 over 4096, magnitude sqrt(1 + ln 32 / ln 4096) = 1.190238. */
static void test_longrope(void) {
    double plain[MAX_PAIRS], want[MAX_PAIRS];
    float near[48], far[48];
    struct model_rope r = {.scaling = MODEL_ROPE_LONG,
                           .n_rot = 96,
                           .base = 10000,
                           .factor = 32,
                           .original_context = 4096};
    const struct model_rope_divisors div = {.for_short = near, .for_long = far};
    rope64_plain(10000, 96, plain);
    for (int i = 0; i < 48; i++)
        near[i] = 1 + (float)i / 64, far[i] = 1 + (float)i, want[i] = plain[i] / (double)near[i];
    double magnitude = sqrt(1 + 5.0 / 12);
    CHECK(fabs(magnitude - 1.190238) < 1e-6);
    expect(&r, &div, 4096, want, magnitude);
    for (int i = 0; i < 48; i++)
        want[i] = plain[i] / (double)far[i];
    expect(&r, &div, 4097, want, magnitude);
    r.attn_factor = 1.19f;
    expect(&r, &div, 4097, want, (double)1.19f);
    r.attn_factor = 0;
    r.factor = 1;
    expect(&r, &div, 4097, want, 1);
}

struct divisor_file {
    enum model_rope_scaling scaling;
    const char *names[2];
    float last; /* of 7 divisors, the others are 1 */
    uint32_t n;
    int code;
    const char *says;
};

static void check_file(const char *path, const struct divisor_file *c) {
    const struct model_rope r = {.scaling = c->scaling, .n_rot = 14};
    struct model_rope_divisors div;
    float values[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    gguf_writer *w = gguf_writer_new();
    gguf *g = NULL;
    err e = {0};
    values[c->n - 1] = c->last;
    for (int i = 0; i < 2 && c->names[i]; i++) {
        gguf_tensor t = {.name = {c->names[i], strlen(c->names[i])},
                         .type = QTYPE_F32,
                         .n_dims = 1,
                         .dims = {c->n, 1, 1, 1},
                         .n_elems = c->n,
                         .data = values,
                         .bytes = c->n * sizeof *values};
        be_need(gguf_writer_add_tensor(w, &t, &e) == 0, e.msg);
    }
    be_need(gguf_writer_finish(w, path, &e) == 0, e.msg);
    be_need(gguf_open(path, 0, &g, &e) == 0, e.msg);
    int rc = model_rope_find_divisors(g, &r, &div, &e);
    CHECK_MSG(rc == c->code, "%s: %d, %s", c->names[0], rc, e.msg);
    CHECK_MSG(!rc || strstr(e.msg, c->says), "\"%s\" lacks \"%s\"", e.msg, c->says);
    CHECK(rc || (div.all != NULL) == (c->scaling != MODEL_ROPE_LONG));
    gguf_close(g);
    gguf_writer_free(w);
}

static void test_files(void) {
    static const char all[] = "rope_freqs.weight", near[] = "rope_factors_short.weight",
                      far[] = "rope_factors_long.weight";
    const struct divisor_file cases[] = {
        {MODEL_ROPE_LINEAR, {all}, 8, 7, 0, ""},
        {MODEL_ROPE_LONG, {near, far}, 8, 7, 0, ""},
        {MODEL_ROPE_NONE, {all}, 8, 6, ERR_FORMAT, "not (7) F32"},
        {MODEL_ROPE_NONE, {all}, 0, 7, ERR_FORMAT, "holds 0 at 6"},
        {MODEL_ROPE_NONE, {all}, INFINITY, 7, ERR_FORMAT, "holds inf at 6"},
        {MODEL_ROPE_NONE, {all}, NAN, 7, ERR_FORMAT, "nan at 6"},
        {MODEL_ROPE_LONG, {far}, 8, 7, ERR_FORMAT, near},
        {MODEL_ROPE_LONG, {near, far}, -1, 7, ERR_FORMAT, "-1 at 6"},
        {MODEL_ROPE_LINEAR, {near, far}, 8, 7, ERR_UNSUPPORTED, "rope_factors"},
        {MODEL_ROPE_YARN, {all}, 8, 7, ERR_UNSUPPORTED, "rope_freqs.weight"},
    };
    char path[] = "/tmp/inferd-test-rope-XXXXXX";
    int fd = mkstemp(path);
    be_need(fd >= 0, "a file");
    close(fd);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_file(path, &cases[i]);
    unlink(path);
}

int main(void) {
    RUN(test_plain_and_linear);
    RUN(test_llama3_divisors);
    RUN(test_dynamic);
    RUN(test_yarn);
    RUN(test_longrope);
    RUN(test_files);
    return check_done();
}
