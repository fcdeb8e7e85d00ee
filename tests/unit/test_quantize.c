/* test_quantize.c - small generated models, in every type: bytes against the plain encoder, errors
 * against this file's own sums, types of the mixes against llama-quantize's choices, and protection
 * of existing files. */
#include "core/base/mem.h"
#include "core/formats/gguf/gguf_int.h"
#include "core/formats/model_file.h"
#include "core/formats/quantize/quantize.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/support/gguf_make.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN "tests/golden/arch/"
#define MIXES  "tests/data/quantize/mixes.txt"

static char folder[64];

/* Rotating buffers: a line may name four paths. */
static const char *in_folder(const char *name) {
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static bool there(const char *name) {
    return access(in_folder(name), F_OK) == 0;
}

struct request {
    const char *src, *dst; /* names in the folder */
    struct quantize_options options;
    bool overwrite;
    uint32_t n_threads;
    int (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

/* *plan is NULL or owned by the caller; *src is open as long as plan exists. */
static int quantize(const struct request *r, gguf **src, quantize_plan **plan, err *e) {
    const struct quantize_output output = {.path = in_folder(r->dst),
                                           .overwrite = r->overwrite,
                                           .n_threads = r->n_threads ? r->n_threads : 2,
                                           .progress = r->progress,
                                           .arg = r->arg};
    *plan = NULL;
    int rc = gguf_open(in_folder(r->src), 0, src, e);
    if (!rc) rc = quantize_plan_new(*src, &r->options, plan, e);
    return rc ? rc : quantize_run(*plan, &output, e);
}

static int result_of(const struct request *r, err *e) {
    gguf *src = NULL;
    quantize_plan *plan;
    int rc = quantize(r, &src, &plan, e);
    quantize_plan_free(plan);
    gguf_close(src);
    return rc;
}

static bool same_files(const char *a, const char *b) {
    gguf *x = NULL, *y = NULL;
    bool same = gguf_open(in_folder(a), 0, &x, NULL) == 0 &&
                gguf_open(in_folder(b), 0, &y, NULL) == 0 &&
                gguf_file_bytes(x) == gguf_file_bytes(y) &&
                !memcmp(gguf_mapping(x), gguf_mapping(y), gguf_file_bytes(x));
    gguf_close(x);
    gguf_close(y);
    return same;
}

/* Every key of src is in dst with the same bytes, except the keys that describe dst. */
static void check_metadata(const gguf *src, const gguf *dst) {
    uint64_t version = 0;
    CHECK(gguf_get_u64(dst, "general.quantization_version", &version, NULL) == 0 && version == 2);
    for (uint64_t i = 0; i < gguf_n_keys(src); i++) {
        const struct gguf_kv *a = gguf_key_at(src, i), *b = NULL;
        if (a->key.len == 17 && !memcmp(a->key.data, "general.file_type", 17)) continue;
        for (uint64_t k = 0; k < gguf_n_keys(dst); k++) {
            const struct gguf_kv *it = gguf_key_at(dst, k);
            if (it->key.len == a->key.len && !memcmp(it->key.data, a->key.data, a->key.len)) b = it;
        }
        CHECK_MSG(b && b->type == a->type && b->value_bytes == a->value_bytes &&
                      !memcmp(b->value, a->value, a->value_bytes),
                  "%.*s", (int)a->key.len, a->key.data);
    }
}

/* One tensor of the new file against the plain encoder in one piece, and the plan's error. */
static void check_tensor(const gguf_tensor *src, const gguf_tensor *dst,
                         const struct quantize_tensor *plan) {
    float *values = mem_new(src->n_elems, sizeof *values);
    float *back = mem_new(src->n_elems, sizeof *back);
    uint8_t *want = mem_new(dst->bytes, 1);
    double error_sq = 0, value_sq = 0;
    qtype_decode(src->type, src->data, values, src->n_elems);
    qtype_encode(dst->type, values, want, src->n_elems);
    qtype_decode(dst->type, dst->data, back, src->n_elems);
    for (uint64_t i = 0; i < src->n_elems; i++) {
        error_sq += ((double)back[i] - values[i]) * ((double)back[i] - values[i]);
        value_sq += (double)values[i] * values[i];
    }
    CHECK_MSG(!memcmp(dst->data, want, dst->bytes), "%.*s", (int)src->name.len, src->name.data);
    if (src->type != dst->type) {
        CHECK(fabs(plan->error_sq - error_sq) <= 1e-9 * error_sq);
        CHECK(fabs(plan->value_sq - value_sq) <= 1e-9 * value_sq);
    } else {
        CHECK(plan->error_sq == 0);
    }
    free(want);
    free(back);
    free(values);
}

static uint64_t file_type(const gguf *g) {
    uint64_t v = UINT64_MAX;
    gguf_get_u64(g, "general.file_type", &v, NULL);
    return v;
}

/* Bounds of the relative error on normally distributed weights: about 1.5 times each format's own
 * error. */
static void every_type_is_written(void) {
    static const struct {
        const char *name;
        int type;
        uint64_t file_type;
        double bound;
    } types[] = {{"f32", QTYPE_F32, 0, 0},           {"F16", QTYPE_F16, 1, 4e-4},
                 {"bf16", QTYPE_BF16, 32, 3e-3},     {"q8_0", QTYPE_Q8_0, 7, 0.01},
                 {"Q6_K", QTYPE_Q6_K, 18, 0.03},     {"q5_k", QTYPE_Q5_K, 17, 0.06},
                 {"q5_k_s", QTYPE_Q5_K, 16, 0.06},   {"q5_1", QTYPE_Q5_1, 9, 0.06},
                 {"q5_0", QTYPE_Q5_0, 8, 0.07},      {"q4_K_m", QTYPE_Q4_K, 15, 0.12},
                 {"q4_1", QTYPE_Q4_1, 3, 0.12},      {"q4_0", QTYPE_Q4_0, 2, 0.14},
                 {"iq4_nl", QTYPE_IQ4_NL, 25, 0.12}, {"iq4_xs", QTYPE_IQ4_XS, 30, 0.12},
                 {"mxfp4", QTYPE_MXFP4, 38, 0.18},   {"q3_k", QTYPE_Q3_K, 12, 0.25},
                 {"q2_k", QTYPE_Q2_K, 10, 0.45},     {"iq3_s", QTYPE_IQ3_S, 26, 0.2},
                 {"tq2_0", QTYPE_TQ2_0, 37, 0.7},    {"tq1_0", QTYPE_TQ1_0, 36, 0.7}};
    const struct tiny_llama model = {
        .seed = 5, .n_embd = 256, .n_ff = 512, .head_dim = 64, .weight_type = QTYPE_F32};
    err e = {0};
    CHECK(gguf_make_tiny_llama(in_folder("f32.gguf"), &model, &e) == 0);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        gguf *src = NULL, *dst = NULL;
        quantize_plan *plan = NULL;
        const struct request r = {.src = "f32.gguf",
                                  .dst = "new.gguf",
                                  .options = {.type = types[i].name, .pure = true},
                                  .overwrite = true};
        CHECK_MSG(quantize(&r, &src, &plan, &e) == 0, "%s", e.msg);
        CHECK_MSG(gguf_open(in_folder("new.gguf"), 0, &dst, &e) == 0, "%s", e.msg);
        CHECK(!there("new.gguf.tmp"));
        if (plan && dst) {
            double error_sq = 0, value_sq = 0;
            CHECK(file_type(dst) == types[i].file_type);
            CHECK(gguf_n_tensors(dst) == gguf_n_tensors(src));
            check_metadata(src, dst);
            for (uint64_t k = 0; k < gguf_n_tensors(dst); k++) {
                const gguf_tensor *a = gguf_tensor_at(src, k), *b = gguf_tensor_at(dst, k);
                const struct quantize_tensor *t = quantize_plan_at(plan, k);
                CHECK(a->name.len == b->name.len &&
                      !memcmp(a->name.data, b->name.data, a->name.len));
                CHECK(!memcmp(a->dims, b->dims, sizeof a->dims));
                CHECK(b->type == (a->n_dims == 1 ? QTYPE_F32 : types[i].type));
                check_tensor(a, b, t);
                error_sq += t->error_sq;
                value_sq += t->value_sq;
            }
            double relative = value_sq > 0 ? sqrt(error_sq / value_sq) : 0;
            CHECK_MSG(relative <= types[i].bound && relative >= types[i].bound / 4, "%s: %g",
                      types[i].name, relative);
        }
        gguf_close(dst);
        quantize_plan_free(plan);
        gguf_close(src);
    }
}

static void any_number_of_threads_writes_the_same(void) {
    /* Tensors of more than three pieces, of one, of less than one. */
    const struct tiny_llama model = {.seed = 6,
                                     .n_vocab = 3100,
                                     .n_embd = 256,
                                     .n_ff = 1184,
                                     .head_dim = 64,
                                     .weight_type = QTYPE_BF16};
    static const uint32_t n_threads[] = {1, 2, 3, 8};
    err e = {0};
    double error_sq[4] = {0};
    CHECK(gguf_make_tiny_llama(in_folder("bf16.gguf"), &model, &e) == 0);
    for (size_t i = 0; i < 4; i++) {
        gguf *src = NULL;
        quantize_plan *plan;
        const struct request r = {.src = "bf16.gguf",
                                  .dst = i ? "new.gguf" : "first.gguf",
                                  .options = {.type = "q8_0"},
                                  .overwrite = true,
                                  .n_threads = n_threads[i]};
        CHECK_MSG(quantize(&r, &src, &plan, &e) == 0, "%s", e.msg);
        for (uint64_t k = 0; plan && k < quantize_plan_n(plan); k++)
            error_sq[i] += quantize_plan_at(plan, k)->error_sq;
        CHECK(error_sq[i] > 0 && error_sq[i] == error_sq[0]);
        if (i) CHECK(same_files("first.gguf", "new.gguf"));
        quantize_plan_free(plan);
        gguf_close(src);
    }
    unlink(in_folder("first.gguf"));
}

static int type_in(const char *file, const char *tensor) {
    gguf *g = NULL;
    int type = -1;
    if (gguf_open(in_folder(file), 0, &g, NULL) == 0) {
        const gguf_tensor *t = gguf_tensor_find(g, tensor);
        if (t) type = t->type;
    }
    gguf_close(g);
    return type;
}

static void rows_that_do_not_fit_fall_back(void) {
    static const struct {
        const char *name;
        int at_96, at_40; /* the result for rows of n values */
    } types[] = {{"q2_k", QTYPE_Q4_0, QTYPE_F16},   {"q3_k_s", QTYPE_Q4_0, QTYPE_F16},
                 {"q4_k_s", QTYPE_Q5_0, QTYPE_F16}, {"q5_k_s", QTYPE_Q5_1, QTYPE_F16},
                 {"q6_k", QTYPE_Q8_0, QTYPE_F16},   {"iq4_xs", QTYPE_IQ4_NL, QTYPE_F16},
                 {"mxfp4", QTYPE_MXFP4, QTYPE_F16}, {"q8_0", QTYPE_Q8_0, QTYPE_F16},
                 {"f16", QTYPE_F16, QTYPE_F16}};
    const struct tiny_llama model = {
        .seed = 7, .n_embd = 40, .n_ff = 96, .head_dim = 10, .weight_type = QTYPE_F32};
    err e = {0};
    CHECK(gguf_make_tiny_llama(in_folder("odd.gguf"), &model, &e) == 0);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const struct request r = {.src = "odd.gguf",
                                  .dst = "new.gguf",
                                  .options = {.type = types[i].name, .pure = true},
                                  .overwrite = true};
        CHECK_MSG(result_of(&r, &e) == 0, "%s", e.msg);
        CHECK_MSG(type_in("new.gguf", "blk.0.ffn_down.weight") == types[i].at_96, "%s",
                  types[i].name);
        CHECK_MSG(type_in("new.gguf", "blk.1.ffn_up.weight") == types[i].at_40, "%s",
                  types[i].name);
    }
}

static void overrides_are_kept(void) {
    err e = {0};
    struct request r = {
        .src = "f32.gguf",
        .dst = "new.gguf",
        .options = {.type = "q4_0", .output_type = "q5_k", .embedding_type = "bf16"},
        .overwrite = true};
    CHECK_MSG(result_of(&r, &e) == 0, "%s", e.msg);
    CHECK(type_in("new.gguf", "output.weight") == QTYPE_Q5_K);
    CHECK(type_in("new.gguf", "token_embd.weight") == QTYPE_BF16);
    CHECK(type_in("new.gguf", "blk.0.attn_v.weight") == QTYPE_Q4_0);
    r.options.output_type = "q4_k_m";
    CHECK(result_of(&r, &e) == ERR_INVALID && strstr(e.msg, "Q4_K_M is a mix"));
    r.options.output_type = "q9";
    CHECK(result_of(&r, &e) == ERR_INVALID && strstr(e.msg, "unknown type \"q9\""));
    r.options.type = "q4_k_";
    CHECK(result_of(&r, &e) == ERR_INVALID && strstr(e.msg, "known types: F32, F16, "));
    CHECK(strstr(e.msg, "Q2_K") != NULL);
}

static void quantized_sources_need_a_word(void) {
    err e = {0};
    struct request r = {
        .src = "f32.gguf", .dst = "q8.gguf", .options = {.type = "q8_0"}, .overwrite = true};
    CHECK(result_of(&r, &e) == 0);
    r.src = "q8.gguf";
    r.dst = "new.gguf";
    r.options.type = "q4_0";
    CHECK(result_of(&r, &e) == ERR_INVALID && strstr(e.msg, ".weight is already quantized (Q8_0)"));
    r.options.allow_requantize = true;
    CHECK(result_of(&r, &e) == 0);
    CHECK(type_in("new.gguf", "blk.0.attn_q.weight") == QTYPE_Q4_0);
    r.options.allow_requantize = false;
    r.options.type = "q8_0";
    CHECK(result_of(&r, &e) == 0);
    CHECK(same_files("q8.gguf", "new.gguf"));
}

/* ---- experts ---- */

/* Random weights of this shape as type; the caller frees *data. */
static void add_random(gguf_writer *w, const char *name, int type, const uint64_t dims[3],
                       void **data) {
    static struct rng random = {11};
    gguf_tensor t = {.name = {name, strlen(name)},
                     .type = type,
                     .n_dims = dims[2] ? 3 : 2,
                     .dims = {dims[0], dims[1], dims[2] ? dims[2] : 1, 1}};
    err e = {0};
    t.n_elems = dims[0] * dims[1] * t.dims[2];
    CHECK(qtype_bytes(type, t.n_elems / dims[0], dims[0], &t.bytes));
    float *values = mem_new(t.n_elems, sizeof *values);
    for (uint64_t i = 0; i < t.n_elems; i++)
        values[i] = rng_float(&random, -1, 1);
    t.data = *data = mem_new(t.bytes, 1);
    qtype_encode(type, values, *data, t.n_elems);
    free(values);
    CHECK_MSG(gguf_writer_add_tensor(w, &t, &e) == 0, "%s", e.msg);
}

static const struct {
    const char *name;
    int type;
    uint64_t dims[3];
    int as_q8_0, as_f16, as_mxfp4; /* the result of these recipes */
} expert_tensors[] = {
    {"token_embd.weight", QTYPE_BF16, {64, 7, 0}, QTYPE_Q8_0, QTYPE_F16, QTYPE_Q8_0},
    {"blk.0.attn_q.weight", QTYPE_F16, {64, 33, 0}, QTYPE_Q8_0, QTYPE_F16, QTYPE_Q8_0},
    {"blk.0.ffn_up_exps.weight", QTYPE_BF16, {64, 41, 5}, QTYPE_Q8_0, QTYPE_F16, QTYPE_MXFP4},
    {"blk.0.ffn_gate_exps.weight", QTYPE_F32, {64, 1100, 5}, QTYPE_Q8_0, QTYPE_F16, QTYPE_MXFP4},
    {"blk.0.ffn_down_exps.weight", QTYPE_MXFP4, {96, 64, 5}, QTYPE_MXFP4, QTYPE_MXFP4, QTYPE_MXFP4},
    {"blk.0.ffn_down_exps.bias", QTYPE_BF16, {64, 5, 0}, QTYPE_F32, QTYPE_F32, QTYPE_F32},
    {"blk.0.ffn_gate_inp.weight", QTYPE_BF16, {64, 5, 0}, QTYPE_F32, QTYPE_F32, QTYPE_F32},
    {"blk.0.ffn_gate_shexp.weight", QTYPE_BF16, {64, 33, 0}, QTYPE_Q8_0, QTYPE_F16, QTYPE_Q8_0},
};
enum { N_EXPERT_TENSORS = sizeof expert_tensors / sizeof expert_tensors[0] };

static void make_experts(void) {
    gguf_writer *w = gguf_writer_new();
    void *data[N_EXPERT_TENSORS] = {0};
    err e = {0};
    CHECK(gguf_writer_set_str(w, "general.architecture", "gpt-oss", &e) == 0);
    CHECK(gguf_writer_set_u32(w, "gpt-oss.expert_count", 5, &e) == 0);
    for (size_t i = 0; i < N_EXPERT_TENSORS; i++)
        add_random(w, expert_tensors[i].name, expert_tensors[i].type, expert_tensors[i].dims,
                   &data[i]);
    CHECK_MSG(gguf_writer_finish(w, in_folder("experts.gguf"), &e) == 0, "%s", e.msg);
    gguf_writer_free(w);
    for (size_t i = 0; i < N_EXPERT_TENSORS; i++)
        free(data[i]);
}

/* Routers and biases become F32, experts that were trained as MXFP4 keep that type, all others are
 * encoded as one long row of blocks. */
static void experts_are_written(void) {
    static const char *const types[] = {"q8_0", "f16", "mxfp4"};
    make_experts();
    for (size_t i = 0; i < 3; i++) {
        err e = {0};
        gguf *src = NULL, *dst = NULL;
        quantize_plan *plan = NULL;
        const struct request r = {.src = "experts.gguf",
                                  .dst = "new.gguf",
                                  .options = {.type = types[i]},
                                  .overwrite = true};
        CHECK_MSG(quantize(&r, &src, &plan, &e) == 0, "%s", e.msg);
        CHECK(gguf_open(in_folder("new.gguf"), 0, &dst, &e) == 0);
        for (size_t k = 0; dst && k < N_EXPERT_TENSORS; k++) {
            const gguf_tensor *a = gguf_tensor_at(src, k), *b = gguf_tensor_at(dst, k);
            int want = i == 0   ? expert_tensors[k].as_q8_0
                       : i == 1 ? expert_tensors[k].as_f16
                                : expert_tensors[k].as_mxfp4;
            CHECK_MSG(b->type == want && b->n_dims == a->n_dims, "%s as %s: %s",
                      expert_tensors[k].name, types[i], qtype_name(b->type));
            CHECK(!memcmp(a->dims, b->dims, sizeof a->dims));
            check_tensor(a, b, quantize_plan_at(plan, k));
        }
        gguf_close(dst);
        quantize_plan_free(plan);
        gguf_close(src);
    }
    const struct request again = {.src = "experts.gguf",
                                  .dst = "new.gguf",
                                  .options = {.type = "q8_0", .allow_requantize = true},
                                  .overwrite = true};
    CHECK(result_of(&again, NULL) == 0);
    CHECK(type_in("new.gguf", "blk.0.ffn_down_exps.weight") == QTYPE_Q8_0);
    unlink(in_folder("experts.gguf"));
}

/* ---- folders ---- */

static int add_tokenizer(void *arg, gguf_writer *w, err *e) {
    return tokenizer_write_gguf(arg, 0, w, e);
}

/* A folder in its own type: every tensor as the reference converter wrote it, bit for bit, also
 * tensors that are assembled while they are written; and the tokenizer. */
static void check_folder(const char *name, const char *type) {
    char hf[128], reference[128];
    gguf *src = NULL, *want = NULL, *got = NULL;
    quantize_plan *plan = NULL;
    tokenizer *t = NULL;
    err e = {0};
    snprintf(hf, sizeof hf, GOLDEN "%s/hf", name);
    snprintf(reference, sizeof reference, GOLDEN "%s/model.gguf", name);
    const struct quantize_options options = {.type = type};
    const struct quantize_output output = {.path = in_folder("new.gguf"),
                                           .overwrite = true,
                                           .n_threads = 2,
                                           .add_keys = add_tokenizer,
                                           .arg = hf};
    CHECK_MSG(model_file_open(hf, 0, &src, &e) == 0 &&
                  quantize_plan_new(src, &options, &plan, &e) == 0 &&
                  quantize_run(plan, &output, &e) == 0,
              "%s", e.msg);
    CHECK_MSG(gguf_open(in_folder("new.gguf"), 0, &got, &e) == 0, "%s", e.msg);
    CHECK(gguf_open(reference, 0, &want, NULL) == 0);
    CHECK(tokenizer_open(in_folder("new.gguf"), &t, NULL) == 0);
    CHECK(got && want && gguf_n_tensors(got) == gguf_n_tensors(want));
    for (uint64_t i = 0; got && want && i < gguf_n_tensors(want); i++) {
        const gguf_tensor *a = gguf_tensor_at(want, i);
        char tensor[128];
        snprintf(tensor, sizeof tensor, "%.*s", (int)a->name.len, a->name.data);
        const gguf_tensor *b = gguf_tensor_find(got, tensor);
        CHECK_MSG(b && b->type == a->type && !memcmp(a->dims, b->dims, sizeof a->dims) &&
                      !memcmp(a->data, b->data, a->bytes),
                  "%s: %s", name, tensor);
    }
    tokenizer_close(t);
    gguf_close(got);
    gguf_close(want);
    quantize_plan_free(plan);
    gguf_close(src);
}

static void folders_become_the_reference_converters_files(void) {
    static const char *const models[][2] = {
        {"gemma2", "f32"},   {"gemma3", "bf16"}, {"gpt-oss", "f32"},  {"gpt-oss-mxfp4", "bf16"},
        {"granite", "f32"},  {"llama", "f32"},   {"llama2", "f16"},   {"mistral", "f32"},
        {"mixtral", "f32"},  {"olmo2", "f32"},   {"phi3", "f32"},     {"qwen2", "f32"},
        {"qwen2moe", "f32"}, {"qwen3", "bf16"},  {"qwen3moe", "f32"}, {"smollm3", "f32"}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        check_folder(models[i][0], models[i][1]);
}

/* ---- mixes ---- */

struct mix_model {
    char name[32];
    unsigned layers, heads, kv_heads, n_embd, n_ff, experts, tied;
};

static void add_zeros(gguf_writer *w, const char *name, uint64_t cols, uint64_t rows,
                      uint64_t deep) {
    static const float zeros[1 << 14];
    err e = {0};
    gguf_tensor t = {.name = {name, strlen(name)},
                     .type = QTYPE_F32,
                     .n_dims = deep   ? 3
                               : rows ? 2
                                      : 1,
                     .dims = {cols, rows ? rows : 1, deep ? deep : 1, 1},
                     .data = zeros};
    t.n_elems = cols * t.dims[1] * t.dims[2];
    t.bytes = t.n_elems * sizeof(float);
    CHECK(t.bytes <= sizeof zeros);
    CHECK_MSG(gguf_writer_add_tensor(w, &t, &e) == 0, "%s", e.msg);
}

/* As make_mixes.py builds it, with layers in descending order: the choice depends on the layer's
 * number, not its place. */
static void make_mix_model(const struct mix_model *m) {
    static const char *const attention[] = {"attn_q", "attn_k", "attn_v", "attn_output"};
    static const char *const ffn[] = {"ffn_gate", "ffn_up", "ffn_down"};
    const struct {
        const char *key;
        uint32_t value;
    } keys[] = {{"llama.block_count", m->layers},
                {"llama.attention.head_count", m->heads},
                {"llama.attention.head_count_kv", m->kv_heads},
                {"llama.expert_count", m->experts}};
    err e = {0};
    char name[64];
    gguf_writer *w = gguf_writer_new();
    CHECK(gguf_writer_set_str(w, "general.architecture", "llama", &e) == 0);
    for (size_t i = 0; i < 4; i++)
        CHECK(gguf_writer_set_u32(w, keys[i].key, keys[i].value, &e) == 0);
    for (unsigned l = m->layers; l-- > 0;) {
        for (size_t i = 0; i < 4; i++) {
            snprintf(name, sizeof name, "blk.%u.%s.weight", l, attention[i]);
            add_zeros(w, name, m->n_embd, 2, 0);
        }
        for (size_t i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "blk.%u.%s%s.weight", l, ffn[i], m->experts ? "_exps" : "");
            add_zeros(w, name, i == 2 ? m->n_ff : m->n_embd, 2, m->experts);
        }
        snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", l);
        if (m->experts) add_zeros(w, name, m->n_embd, m->experts, 0);
    }
    add_zeros(w, "token_embd.weight", m->n_embd, 2, 0);
    add_zeros(w, "output_norm.weight", m->n_embd, 0, 0);
    if (!m->tied) add_zeros(w, "output.weight", m->n_embd, 2, 0);
    CHECK_MSG(gguf_writer_finish(w, in_folder("mix.gguf"), &e) == 0, "%s", e.msg);
    gguf_writer_free(w);
}

/* The type that a line of mixes.txt gives a tensor: "role=TYPE*n,TYPE*n" by layer, or rest. */
static void wanted_type(const char *line, const char *tensor, char out[16]) {
    char key[64];
    unsigned layer = 0, n;
    const char *role = tensor;
    int used = 0;
    if (sscanf(tensor, "blk.%u.%n", &layer, &used) == 1) role = tensor + used;
    snprintf(key, sizeof key, " %.*s=", (int)strcspn(role, "."), role);
    const char *at = strstr(line, key);
    if (!at) {
        const char *rest = strstr(line, " rest=");
        snprintf(out, 16, "?");
        if (rest) sscanf(rest, " rest=%15[^ ]", out);
        return;
    }
    for (at += strlen(key); sscanf(at, "%15[^*]*%u", out, &n) == 2; at += strcspn(at, ",") + 1) {
        if (layer < n) return;
        layer -= n;
    }
    snprintf(out, 16, "?");
}

/* +imatrix: what matters is that there is a matrix, not what is in it. */
static void check_mix(const char *line) {
    char type[32] = "";
    gguf *src = NULL;
    quantize_plan *plan = NULL;
    err e = {0};
    sscanf(line, "%31s", type);
    char *given = strchr(type, '+');
    int rc = gguf_open(in_folder("mix.gguf"), 0, &src, &e);
    imatrix *matrix = given ? imatrix_new() : NULL;
    if (given) *given = '\0';
    const struct quantize_options o = {.type = type, .imatrix = matrix};
    if (!rc) rc = quantize_plan_new(src, &o, &plan, &e);
    CHECK_MSG(rc == 0, "%s: %s", type, e.msg);
    for (uint64_t i = 0; plan && i < quantize_plan_n(plan); i++) {
        const struct quantize_tensor *t = quantize_plan_at(plan, i);
        char name[64], want[16];
        snprintf(name, sizeof name, "%.*s", (int)t->source->name.len, t->source->name.data);
        if (strstr(name, "norm") || strstr(name, "gate_inp"))
            strcpy(want, "F32");
        else
            wanted_type(line, name, want);
        CHECK_MSG(!strcmp(qtype_name(t->type), want), "%s: %s is %s, not %s", type, name,
                  qtype_name(t->type), want);
    }
    quantize_plan_free(plan);
    imatrix_free(matrix);
    gguf_close(src);
}

static void mixes_are_those_of_llama_quantize(void) {
    static char line[2048];
    struct mix_model m;
    int n_lines = 0;
    FILE *f = fopen(MIXES, "r");
    CHECK(f != NULL);
    while (f && fgets(line, sizeof line, f)) {
        if (*line == '#') continue;
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "model %31s %u %u %u %u %u %u %u", m.name, &m.layers, &m.heads,
                   &m.kv_heads, &m.n_embd, &m.n_ff, &m.experts, &m.tied) == 8) {
            make_mix_model(&m);
        } else {
            check_mix(line);
            n_lines++;
        }
    }
    CHECK(n_lines == 8 * (32 + 9));
    if (f) fclose(f);
}

/* ---- protection of existing files ---- */

static void touch(const char *name, const char *text) {
    FILE *f = fopen(in_folder(name), "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void nothing_is_overwritten_unasked(void) {
    err e = {0};
    struct request r = {.src = "odd.gguf", .dst = "old.gguf", .options = {.type = "q8_0"}};
    struct stat st;
    touch("old.gguf", "precious");
    CHECK(result_of(&r, &e) == ERR_EXISTS && strstr(e.msg, "--force"));
    CHECK(stat(in_folder("old.gguf"), &st) == 0 && st.st_size == 8);
    r.overwrite = true;
    CHECK(result_of(&r, &e) == 0);
    CHECK(type_in("old.gguf", "token_embd.weight") == QTYPE_F16);
    /* The source, by its name, by another name of it, and as the name of the unfinished result. */
    r.dst = "odd.gguf";
    CHECK(result_of(&r, &e) == ERR_INVALID && strstr(e.msg, "the source itself"));
    CHECK(symlink(in_folder("odd.gguf"), in_folder("link.gguf")) == 0);
    r.dst = "link.gguf";
    CHECK(result_of(&r, &e) == ERR_INVALID);
    CHECK(link(in_folder("odd.gguf"), in_folder("x.gguf.tmp")) == 0);
    r.dst = "x.gguf";
    CHECK(result_of(&r, &e) == ERR_INVALID && strstr(e.msg, "x.gguf.tmp is the source"));
    CHECK(type_in("odd.gguf", "token_embd.weight") == QTYPE_F32);
    r.dst = ".";
    CHECK(result_of(&r, &e) == ERR_EXISTS);
    r.dst = "none/x.gguf";
    CHECK(result_of(&r, &e) == ERR_IO && strstr(e.msg, "No such file"));
    r.dst = "y.gguf";
    CHECK(symlink(in_folder("old.gguf"), in_folder("y.gguf.tmp")) == 0);
    CHECK(result_of(&r, &e) == ERR_IO);
    CHECK(type_in("old.gguf", "token_embd.weight") == QTYPE_F16);
    unlink(in_folder("y.gguf.tmp"));
    unlink(in_folder("x.gguf.tmp"));
    unlink(in_folder("link.gguf"));
    unlink(in_folder("old.gguf"));
}

static void a_leftover_is_taken_over_but_not_from_a_running_one(void) {
    err e = {0};
    const struct request r = {.src = "odd.gguf", .dst = "left.gguf", .options = {.type = "f16"}};
    touch("left.gguf.tmp", "half a file of an earlier run");
    int fd = open(in_folder("left.gguf.tmp"), O_RDONLY);
    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
    CHECK(result_of(&r, &e) == ERR_IO && strstr(e.msg, "another process"));
    CHECK(there("left.gguf.tmp") && !there("left.gguf"));
    close(fd);
    CHECK_MSG(result_of(&r, &e) == 0, "%s", e.msg);
    CHECK(!there("left.gguf.tmp"));
    CHECK(type_in("left.gguf", "token_embd.weight") == QTYPE_F16);
    unlink(in_folder("left.gguf"));
}

static int stop_at_once(void *arg, uint64_t done, uint64_t total) {
    uint64_t *seen = arg;
    *seen = done;
    return done <= total;
}

static void a_stopped_run_leaves_nothing(void) {
    err e = {0};
    uint64_t seen = 0;
    const struct request r = {.src = "bf16.gguf",
                              .dst = "never.gguf",
                              .options = {.type = "q8_0"},
                              .progress = stop_at_once,
                              .arg = &seen};
    CHECK(result_of(&r, &e) == ERR_STOPPING);
    CHECK(seen > 0 && !there("never.gguf") && !there("never.gguf.tmp"));
}

/* A limit on the size of files stands for a full disk: writes fail in the same place. */
static void a_failed_write_is_said(void) {
    err e = {0};
    struct rlimit old, small;
    const struct request r = {.src = "odd.gguf", .dst = "never.gguf", .options = {.type = "f32"}};
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    small = old;
    small.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK(result_of(&r, &e) == ERR_IO && strstr(e.msg, "cannot write"));
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    CHECK(!there("never.gguf") && !there("never.gguf.tmp"));
}

/* ---- invalid sources ---- */

static void damaged_sources_are_refused(void) {
    err e = {0};
    struct stat st;
    gguf *src = NULL;
    quantize_plan *plan = NULL;
    const struct request r = {.src = "cut.gguf", .dst = "never.gguf", .options = {.type = "q8_0"}};
    const struct request copy = {.src = "odd.gguf", .dst = "cut.gguf", .options = {.type = "f32"}};
    CHECK(result_of(&copy, &e) == 0);
    CHECK(stat(in_folder("cut.gguf"), &st) == 0);
    CHECK(truncate(in_folder("cut.gguf"), st.st_size - 5000) == 0);
    CHECK(result_of(&r, &e) == ERR_FORMAT);
    /* And one that shrinks after it was planned. */
    unlink(in_folder("cut.gguf"));
    CHECK(result_of(&copy, &e) == 0);
    CHECK(gguf_open(in_folder("cut.gguf"), 0, &src, &e) == 0);
    CHECK(src && quantize_plan_new(src, &r.options, &plan, &e) == 0);
    CHECK(truncate(in_folder("cut.gguf"), st.st_size - 5000) == 0);
    const struct quantize_output output = {.path = in_folder("never.gguf")};
    CHECK(plan && quantize_run(plan, &output, &e) == ERR_CHANGED);
    quantize_plan_free(plan);
    gguf_close(src);
    CHECK(!there("never.gguf") && !there("never.gguf.tmp"));
    unlink(in_folder("cut.gguf"));
}

/* A model of one matrix (2, 64), and a key. */
static void make_matrix(const char *key, uint32_t value, const float *data) {
    err e = {0};
    gguf_writer *w = gguf_writer_new();
    gguf_tensor t = {.name = {"blk.0.ffn_up.weight", 19},
                     .type = QTYPE_F32,
                     .n_dims = 2,
                     .dims = {64, 2, 1, 1},
                     .n_elems = 128,
                     .data = data,
                     .bytes = 512};
    if (key) CHECK(gguf_writer_set_u32(w, key, value, &e) == 0);
    if (data) CHECK(gguf_writer_add_tensor(w, &t, &e) == 0);
    CHECK_MSG(gguf_writer_finish(w, in_folder("one.gguf"), &e) == 0, "%s", e.msg);
    gguf_writer_free(w);
}

static void values_that_cannot_be_written_are_named(void) {
    static const struct {
        float value;
        const char *type, *says;
    } cases[] = {{NAN, "q8_0", "value 77 is nan, expected a finite number"},
                 {INFINITY, "f16", "value 77 is inf"},
                 {1e6f, "f16", "value 77 is 1e+06, too large for F16"},
                 {1e6f, "bf16", NULL},
                 {1e6f, "q8_0", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float data[128] = {0};
        err e = {0};
        const struct request r = {.src = "one.gguf",
                                  .dst = "new.gguf",
                                  .options = {.type = cases[i].type},
                                  .overwrite = true};
        data[77] = cases[i].value;
        make_matrix(NULL, 0, data);
        int rc = result_of(&r, &e);
        CHECK_MSG(cases[i].says ? rc == ERR_INVALID && strstr(e.msg, cases[i].says) : rc == 0,
                  "%zu: %d %s", i, rc, e.msg);
        CHECK(!there("new.gguf.tmp"));
    }
}

static void odd_sources(void) {
    static const float data[128] = {1, -2, 3};
    err e = {0};
    gguf *g = NULL;
    const struct request r = {
        .src = "one.gguf", .dst = "new.gguf", .options = {.type = "q4_k_m"}, .overwrite = true};
    make_matrix("split.count", 3, data);
    CHECK(result_of(&r, &e) == ERR_UNSUPPORTED && strstr(e.msg, "one of 3 parts"));
    make_matrix(NULL, 0, NULL);
    CHECK(result_of(&r, &e) == ERR_INVALID && strstr(e.msg, "no weights"));
    make_matrix("general.alignment", 4096, data);
    CHECK_MSG(result_of(&r, &e) == 0, "%s", e.msg);
    CHECK(gguf_open(in_folder("new.gguf"), 0, &g, &e) == 0);
    const gguf_tensor *t = g ? gguf_tensor_at(g, 0) : NULL;
    CHECK(t && t->type == QTYPE_Q5_0 &&
          ((const uint8_t *)t->data - (const uint8_t *)gguf_mapping(g)) % 4096 == 0);
    gguf_close(g);
    unlink(in_folder("one.gguf"));
}

static void remove_folder(void) {
    static const char *const names[] = {"f32.gguf", "new.gguf", "bf16.gguf", "odd.gguf",
                                        "q8.gguf",  "mix.gguf", "ones.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(in_folder(names[i]));
    CHECK(rmdir(folder) == 0);
}

int main(void) {
    snprintf(folder, sizeof folder, "/tmp/inferd-quantize-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    RUN(every_type_is_written);
    RUN(any_number_of_threads_writes_the_same);
    RUN(rows_that_do_not_fit_fall_back);
    RUN(overrides_are_kept);
    RUN(quantized_sources_need_a_word);
    RUN(experts_are_written);
    RUN(folders_become_the_reference_converters_files);
    RUN(mixes_are_those_of_llama_quantize);
    RUN(nothing_is_overwritten_unasked);
    RUN(a_leftover_is_taken_over_but_not_from_a_running_one);
    RUN(a_stopped_run_leaves_nothing);
    RUN(a_failed_write_is_said);
    RUN(damaged_sources_are_refused);
    RUN(values_that_cannot_be_written_are_named);
    RUN(odd_sources);
    RUN(remove_folder);
    return check_done();
}
