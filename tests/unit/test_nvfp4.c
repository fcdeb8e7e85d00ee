/* test_nvfp4.c - models with NVFP4 weights and scales of their own, against the same models in
 * BF16, whose values are computed here from the definition of E4M3 and E2M1 in double: the same
 * logits, bit for bit. Wrong scales are refused. Argument: only=DEVICE selects the device. */
#include "core/formats/quantize/quantize.h"
#include "tests/support/be.h"
#include "tests/support/gguf_make.h"
#include "tests/support/rng.h"
#include "tests/support/runner.h"
#include "tests/unit/check.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_TOKENS = 21, MAX_MATRICES = 32, MAX_VALUES = 1 << 16 };

static char folder[64];

static const char *in_folder(const char *name) {
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static double e4m3(uint8_t b) {
    const int e = b >> 3 & 15, m = b & 7;
    return e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
}

static double e2m1(uint8_t nibble) {
    static const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return nibble & 8 ? -values[nibble & 7] : values[nibble & 7];
}

/* A matrix of n random blocks, and its values times `by`, which are rounded once. */
static void make_blocks(struct rng *rng, uint64_t n, float by, struct nvfp4_block *blocks,
                        uint16_t *values) {
    for (uint64_t b = 0; b < n; b++) {
        for (int s = 0; s < 4; s++)
            blocks[b].e[s] = (uint8_t)(rng_below(rng, 40) ? 0x10 + rng_below(rng, 0x28) : 0);
        for (int i = 0; i < 32; i++)
            blocks[b].q[i] = (uint8_t)rng_below(rng, 256);
        for (int i = 0; i < QNV_ELEMS; i++) {
            const uint8_t byte = blocks[b].q[i / 16 * 8 + i % 8];
            const double exact =
                e4m3(blocks[b].e[i / 16]) * e2m1(i % 16 < 8 ? byte & 15 : byte >> 4);
            values[b * QNV_ELEMS + (uint64_t)i] = f32_to_bf16((float)(exact * (double)by));
        }
    }
}

/* Of each layer's matrices of src, one in NVFP4 with its scale, one in BF16. wrong: a scale that
 * does not fit. */
static void make_models(const char *src, bool wrong) {
    static struct nvfp4_block blocks[MAX_MATRICES][MAX_VALUES / QNV_ELEMS];
    static uint16_t values[MAX_MATRICES][MAX_VALUES];
    static float scales[MAX_MATRICES][2];
    char names[MAX_MATRICES][64];
    struct rng rng = {71};
    err e = {0};
    gguf *g = NULL;
    runner_need(gguf_open(src, 0, &g, &e), &e);
    gguf_writer *a = gguf_writer_new(), *b = gguf_writer_new();
    runner_need(gguf_writer_copy_metadata(a, g, &e), &e);
    runner_need(gguf_writer_copy_metadata(b, g, &e), &e);
    uint32_t n = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        gguf_tensor t = *gguf_tensor_at(g, i);
        if (t.n_dims < 2 || memcmp(t.name.data, "blk.", 4) != 0) {
            runner_need(gguf_writer_add_tensor(a, &t, &e), &e);
            runner_need(gguf_writer_add_tensor(b, &t, &e), &e);
            continue;
        }
        be_need(n < MAX_MATRICES && t.n_elems <= MAX_VALUES, "room for the matrices");
        /* One has none; one has a scale of 1. */
        scales[n][0] = n == 0 || n == 1 ? 1 : rng_float(&rng, 0.01f, 0.03f);
        make_blocks(&rng, t.n_elems / QNV_ELEMS, scales[n][0], blocks[n], values[n]);
        t.type = QTYPE_BF16, t.data = values[n], t.bytes = 2 * t.n_elems;
        runner_need(gguf_writer_add_tensor(b, &t, &e), &e);
        t.type = QTYPE_NVFP4, t.data = blocks[n],
        t.bytes = t.n_elems / QNV_ELEMS * sizeof(struct nvfp4_block);
        runner_need(gguf_writer_add_tensor(a, &t, &e), &e);
        for (int k = 0; k < 2 && n; k++) {
            const uint64_t many = wrong && n == 3 && k == 0 ? 2 : 1;
            snprintf(names[n], sizeof names[n], "%.*s%s", (int)t.name.len - 7, t.name.data,
                     k ? ".input_scale" : ".scale");
            const gguf_tensor scale = {.name = {names[n], strlen(names[n])},
                                       .type = QTYPE_F32,
                                       .n_dims = 1,
                                       .dims = {many, 1, 1, 1},
                                       .n_elems = many,
                                       .data = scales[n],
                                       .bytes = many * sizeof(float)};
            runner_need(gguf_writer_add_tensor(a, &scale, &e), &e);
        }
        n++;
    }
    runner_need(gguf_writer_finish(a, in_folder("nvfp4.gguf"), &e), &e);
    runner_need(gguf_writer_finish(b, in_folder("bf16.gguf"), &e), &e);
    gguf_writer_free(a);
    gguf_writer_free(b);
    gguf_close(g);
}

static void make_source(void) {
    const struct tiny_llama tiny = {
        .seed = 3, .n_embd = 128, .n_ff = 192, .head_dim = 32, .weight_type = QTYPE_F32};
    err e = {0};
    runner_need(gguf_make_tiny_llama(in_folder("source.gguf"), &tiny, &e), &e);
}

static float *logits_of(const char *name, uint32_t *n) {
    struct runner r;
    int32_t tokens[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = 7 * i % 300;
    runner_open(&r, &(struct runner_config){.path = in_folder(name),
                                            .n_threads = 2,
                                            .kv_type = QTYPE_F32,
                                            .max_rows = N_TOKENS,
                                            .max_tokens = 64});
    const struct piece piece = {.tokens = tokens, .n = N_TOKENS};
    const float *logits = runner_step(&r, &piece, 1, true);
    *n = N_TOKENS * r.hp.n_vocab;
    float *copy = mem_new(*n, sizeof *copy);
    memcpy(copy, logits, *n * sizeof *copy);
    runner_close(&r);
    return copy;
}

static void values_are_those_of_the_definition(void) {
    uint32_t n, n_other;
    make_models(in_folder("source.gguf"), false);
    float *a = logits_of("nvfp4.gguf", &n), *b = logits_of("bf16.gguf", &n_other);
    double sum = 0;
    CHECK(n == n_other && !memcmp(a, b, n * sizeof *a));
    for (uint32_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)a[i];
    CHECK_MSG(isfinite(sum) && sum > 1, "%g", sum);
    free(a);
    free(b);
}

static void wrong_scales_are_refused(void) {
    struct model_hparams hp;
    err e = {0};
    make_models(in_folder("source.gguf"), true);
    CHECK(model_read_hparams(in_folder("nvfp4.gguf"), &hp, &e) == ERR_FORMAT);
    CHECK_MSG(strstr(e.msg, "are 2 of F32, expected 1"), "%s", e.msg);
}

static void it_is_not_quantized_again(void) {
    gguf *g = NULL;
    quantize_plan *plan = NULL;
    err e = {0};
    const struct quantize_options o = {.type = "Q4_K", .allow_requantize = true};
    make_models(in_folder("source.gguf"), false);
    runner_need(gguf_open(in_folder("nvfp4.gguf"), 0, &g, &e), &e);
    CHECK(quantize_plan_new(g, &o, &plan, &e) == ERR_UNSUPPORTED && !plan);
    CHECK_MSG(strstr(e.msg, "is NVFP4, whose scale is another tensor"), "%s", e.msg);
    gguf_close(g);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    snprintf(folder, sizeof folder, "/tmp/inferd-test-nvfp4-%d", (int)getpid());
    if (mkdir(folder, 0700)) return 1;
    make_source();
    RUN(values_are_those_of_the_definition);
    RUN(wrong_scales_are_refused);
    RUN(it_is_not_quantized_again);
    unlink(in_folder("source.gguf"));
    unlink(in_folder("nvfp4.gguf"));
    unlink(in_folder("bf16.gguf"));
    CHECK(rmdir(folder) == 0);
    return check_done();
}
