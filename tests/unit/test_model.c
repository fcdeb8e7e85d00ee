/* test_model.c - the forward pass on tiny random llamas against an independent float64 one
 * (forward64.h); the same bytes in any chunks and batches; refusals of unsupported files. Other
 * architectures: test_arch_forward.c. */
#include "core/formats/gguf/gguf.h"
#include "core/formats/lacking.h"
#include "core/model/model_int.h"
#include "tests/support/forward_check.h"
#include "tests/support/gguf_make.h"
#include "tests/support/llama64.h"

#include <unistd.h>

enum { MAX_TOKENS = 160, MAX_VOCAB = 512 };

static char dir[] = "/tmp/inferd-test-model-XXXXXX";

static const char *in_dir(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* ---- float64 reference ---- */

/* logits (n, n_vocab) of tokens[0..n). */
static void reference(const char *path, const int32_t *tokens, uint32_t n, double *logits) {
    struct forward64 f;
    gguf *g = llama64_open(path, &f);
    forward64_run(g, &f, tokens, n, logits);
    gguf_close(g);
}

/* ---- comparisons ---- */

struct variant {
    struct tiny_llama shape;
    int kv_type;
    double tolerance; /* of a logit; logits have a deviation of about 2 */
};

/* F32 and its pools: rounding alone. F16, BF16 weights are decoded exactly: the same. F16 pools
 * round K and V to 11 bits. Quantized weights also round the activations, to 16 bits. */
static const struct variant variants[] = {
    {{.seed = 1}, QTYPE_F32, 1e-4},
    {{.seed = 2, .weight_type = QTYPE_F16, .tied = true}, QTYPE_F32, 1e-4},
    {{.seed = 3, .weight_type = QTYPE_BF16, .n_heads = 6, .n_kv_heads = 1}, QTYPE_F32, 1e-4},
    {{.seed = 4, .n_heads = 8, .n_kv_heads = 2, .head_dim = 32, .n_ff = 224}, QTYPE_F16, 0.02},
    {{.seed = 5, .weight_type = QTYPE_Q8_0}, QTYPE_F16, 0.02},
    {{.seed = 6, .weight_type = QTYPE_Q4_0, .tied = true}, QTYPE_F32, 5e-3},
    {{.seed = 8, .weight_type = QTYPE_IQ2_XXS, .n_embd = 256, .head_dim = 64, .n_ff = 256},
     QTYPE_F32,
     5e-3},
    {{.seed = 9,
      .weight_type = QTYPE_IQ3_S,
      .n_embd = 256,
      .head_dim = 64,
      .n_ff = 256,
      .tied = true},
     QTYPE_F32,
     5e-3},
    {{.seed = 10,
      .weight_type = QTYPE_IQ1_M,
      .n_embd = 256,
      .head_dim = 64,
      .n_ff = 256,
      .tied = true},
     QTYPE_F32,
     5e-3},
    {{.seed = 11, .weight_type = QTYPE_TQ1_0, .n_embd = 256, .head_dim = 64, .n_ff = 256},
     QTYPE_F32,
     5e-3},
    {{.seed = 7, .n_layers = 1, .n_heads = 3, .n_kv_heads = 3, .head_dim = 10}, QTYPE_F32, 1e-4},
};
enum { N_VARIANTS = sizeof variants / sizeof variants[0] };

static void test_forward(void) {
    int32_t tokens[MAX_TOKENS];
    double *want = be_new((uint64_t)MAX_TOKENS * MAX_VOCAB, sizeof *want);
    err e = {0};
    be_rng.state = 41;
    /* A stand-in takes long: in the quick set every third. */
    const int step = be_quick && be_only && be_is_device_set(be_only) ? 3 : 1;
    for (int i = 0; i < N_VARIANTS; i += step) {
        runner_need(gguf_make_tiny_llama(in_dir("tiny.gguf"), &variants[i].shape, &e), &e);
        random_tokens(tokens, MAX_TOKENS, 320);
        reference(in_dir("tiny.gguf"), tokens, 130, want);
        for (int k = 0; k < BE_N_ISAS; k++) {
            uint32_t dim = variants[i].shape.head_dim ? variants[i].shape.head_dim : 16;
            struct forward_case c = {.path = in_dir("tiny.gguf"),
                                     .isa = be_isas[k],
                                     .kv_type = variants[i].kv_type,
                                     .tolerance = variants[i].tolerance};
            if (be_has(be_isas[k], dim, c.kv_type)) forward_check(&c, tokens, want);
        }
    }
    free(want);
    CHECK(mem_guard_violations() == 0);
}

/* ---- files with changes ---- */

struct change {
    const char *key, *text; /* a string key, or text NULL: value */
    uint32_t value;
    const char *drop, *misname; /* tensors left out, renamed to "blk.0.stranger" */
    const char *retype_norm;    /* a vector written as F16 */
    const float *divisors;      /* (n_rot / 2): rope_freqs.weight */
    float factor;               /* llama.rope.scaling.factor */
};

/* tiny.gguf with one change, as changed.gguf. */
static void write_changed(const struct change *c) {
    err e = {0};
    gguf *g;
    char source[128];
    uint16_t half[MAX_VOCAB];
    snprintf(source, sizeof source, "%s", in_dir("tiny.gguf"));
    runner_need(gguf_open(source, 0, &g, &e), &e);
    gguf_writer *w = gguf_writer_new();
    if (c->key && c->text) runner_need(gguf_writer_set_str(w, c->key, c->text, &e), &e);
    if (c->key && !c->text) runner_need(gguf_writer_set_u32(w, c->key, c->value, &e), &e);
    if (c->factor != 0)
        runner_need(gguf_writer_set_f32(w, "llama.rope.scaling.factor", c->factor, &e), &e);
    runner_need(gguf_writer_copy_metadata(w, g, &e), &e);
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        gguf_tensor t = *gguf_tensor_at(g, i);
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)t.name.len, t.name.data);
        if (c->drop && strcmp(name, c->drop) == 0) continue;
        if (c->misname && strcmp(name, c->misname) == 0)
            t.name = (gguf_str){"blk.0.stranger", strlen("blk.0.stranger")};
        if (c->retype_norm && strcmp(name, c->retype_norm) == 0) {
            qtype_encode(QTYPE_F16, t.data, half, t.n_elems);
            t.type = QTYPE_F16, t.data = half, t.bytes /= 2;
        }
        runner_need(gguf_writer_add_tensor(w, &t, &e), &e);
    }
    gguf_tensor freqs = {.name = {"rope_freqs.weight", strlen("rope_freqs.weight")},
                         .type = QTYPE_F32,
                         .n_dims = 1,
                         .dims = {8, 1, 1, 1},
                         .n_elems = 8,
                         .data = c->divisors,
                         .bytes = 8 * sizeof(float)};
    if (c->divisors) runner_need(gguf_writer_add_tensor(w, &freqs, &e), &e);
    runner_need(gguf_writer_finish(w, in_dir("changed.gguf"), &e), &e);
    gguf_writer_free(w);
    gguf_close(g);
}

static int open_changed(err *e) {
    struct backend_config config = {.name = "cpu", .n_threads = 1, .max_rows = 4, .max_cols = 128};
    struct model_limits limits = {
        .max_rows = 4, .max_logit_rows = 4, .max_seqs = 1, .table_stride = 4};
    backend *be;
    model *m;
    memset(e, 0, sizeof *e);
    runner_need(backend_open(&config, &be, e), e);
    int rc = model_open(in_dir("changed.gguf"), be, &limits, &m, e);
    CHECK((rc == 0) == (m != NULL));
    model_close(m);
    backend_close(be);
    return rc;
}

/* What is served is not said to lack anything. */
static void test_lacking_rows(void) {
    char known[2048];
    uint32_t n = 0;
    model_arch_list(known, sizeof known);
    CHECK(strlen(known) < sizeof known - 1);
    for (char *name = known, *next; name; name = next) {
        if ((next = strstr(name, ", "))) *next = '\0', next += 2;
        CHECK_MSG(model_arch_find((gguf_str){name, strlen(name)}), "%s", name);
        CHECK_MSG(lacking_for_arch(name, strlen(name)) == NULL, "%s", name);
        n++;
    }
    CHECK(n > 50);
}

static void test_refusals(void) {
    static const float bad[8] = {1, 1, 0, 1, 1, 1, 1, 1};
    static const struct {
        struct change change;
        int code;
        const char *says;
    } cases[] = {
        {{.key = "general.name", .text = "renamed"}, 0, ""},
        {{.key = "general.architecture", .text = "abacus"}, ERR_UNSUPPORTED, "llama"},
        {{.key = "general.architecture", .text = "kimi-k3"},
         ERR_UNSUPPORTED,
         "lacks attention over"},
        {{.key = "general.architecture", .text = "deepseek4"}, ERR_UNSUPPORTED, "hyper-conn"},
        {{.key = "general.architecture", .text = "neo-bert"}, ERR_UNSUPPORTED, "lacks RMS norms"},
        {{.key = "general.architecture", .text = "falcon"}, ERR_UNSUPPORTED, "lacks its fused"},
        {{.key = "llama.rope.scaling.type", .text = "su"}, ERR_UNSUPPORTED, "\"su\""},
        {{.key = "llama.expert_count", .value = 8}, ERR_NOT_FOUND, "expert_used_count"},
        {{.key = "llama.attention.clamp_kqv", .value = 8}, ERR_UNSUPPORTED, "clamp_kqv"},
        {{.key = "llama.expert_count", .value = 0}, 0, ""},
        {{.key = "llama.block_count", .value = 3}, ERR_FORMAT, "blk.2.attn_norm.weight"},
        {{.key = "llama.block_count", .value = 0}, ERR_FORMAT, "block_count"},
        {{.key = "llama.block_count", .value = 4000000000u}, ERR_FORMAT, "block_count"},
        {{.key = "llama.block_count", .value = 1}, ERR_UNSUPPORTED, "blk.1."},
        {{.key = "llama.embedding_length", .value = 96}, ERR_FORMAT, "token_embd.weight"},
        {{.key = "llama.feed_forward_length", .value = 64}, ERR_FORMAT, "ffn_gate"},
        {{.key = "llama.attention.head_count_kv", .value = 3}, ERR_FORMAT, "3 KV heads"},
        {{.key = "llama.attention.key_length", .value = 8}, ERR_UNSUPPORTED, "value heads"},
        {{.key = "llama.rope.dimension_count", .value = 17}, ERR_FORMAT, "dimension_count"},
        {{.key = "llama.rope.dimension_count", .value = 15}, ERR_FORMAT, "15"},
        {{.key = "llama.vocab_size", .value = 321}, ERR_FORMAT, "vocab_size"},
        {{.key = "llama.context_length", .text = "long"}, ERR_FORMAT, "context_length"},
        {{.drop = "blk.1.attn_v.weight"}, ERR_FORMAT, "blk.1.attn_v.weight"},
        {{.drop = "token_embd.weight"}, ERR_FORMAT, "token_embd.weight"},
        {{.misname = "blk.0.ffn_up.weight"}, ERR_UNSUPPORTED, "blk.0.stranger"},
        {{.retype_norm = "blk.1.ffn_norm.weight"}, ERR_UNSUPPORTED, "blk.1.ffn_norm.weight"},
        {{.divisors = bad}, ERR_FORMAT, "rope_freqs.weight"},
    };
    err e = {0};
    runner_need(gguf_make_tiny_llama(in_dir("tiny.gguf"), &(struct tiny_llama){.seed = 8}, &e), &e);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_changed(&cases[i].change);
        int rc = open_changed(&e);
        CHECK_MSG(rc == cases[i].code, "case %zu: %d, %s", i, rc, e.msg);
        CHECK_MSG(!rc || strstr(e.msg, cases[i].says), "case %zu: \"%s\" lacks \"%s\"", i, e.msg,
                  cases[i].says);
        CHECK_MSG(!rc || strstr(e.msg, "changed.gguf"), "case %zu: no file in %s", i, e.msg);
    }
}

/* Linear scaling and per-frequency divisors against the reference. */
static void test_rope_scaling(void) {
    static const float divisors[8] = {1, 1, 1.5f, 2, 4, 8, 8, 8};
    const struct change changes[] = {
        {.key = "llama.rope.scaling.type", .text = "linear", .factor = 4},
        {.divisors = divisors},
        {.key = "llama.rope.dimension_count", .value = 12},
    };
    int32_t tokens[MAX_TOKENS];
    double *want = be_new((uint64_t)MAX_TOKENS * MAX_VOCAB, sizeof *want);
    struct runner r;
    random_tokens(tokens, MAX_TOKENS, 320);
    for (int i = 0; i < 3; i++) {
        write_changed(&changes[i]);
        reference(in_dir("changed.gguf"), tokens, 60, want);
        runner_open(&r, &(struct runner_config){.path = in_dir("changed.gguf"),
                                                .n_threads = 2,
                                                .kv_type = QTYPE_F32,
                                                .max_rows = 60,
                                                .max_tokens = 60});
        struct piece p = {.tokens = tokens, .n = 60};
        const float *got = runner_step(&r, &p, 1, true);
        CHECK(worst_difference(got, want, 60 * (uint64_t)r.hp.n_vocab) <= 1e-4);
        runner_close(&r);
    }
    free(want);
}

static void test_hparams(void) {
    struct model_hparams hp;
    err e = {0};
    struct tiny_llama shape = {.seed = 9, .weight_type = QTYPE_Q8_0, .tied = true};
    runner_need(gguf_make_tiny_llama(in_dir("tiny.gguf"), &shape, &e), &e);
    CHECK(model_read_hparams(in_dir("tiny.gguf"), &hp, &e) == 0);
    CHECK_STR(hp.arch, "llama");
    CHECK_STR(hp.quant, "Q8_0");
    CHECK(hp.n_vocab == 320 && hp.n_layers == 2 && hp.n_embd == 64 && hp.n_heads == 4);
    CHECK(hp.n_kv_heads == 2 && hp.head_dim == 16 && hp.n_ff == 96 && hp.context_length == 512);
    CHECK(hp.tied_embeddings && hp.rope[0].n_rot == 16);
    uint64_t layer = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 96 * 64, norms = 5 * 64;
    CHECK(hp.n_params == 320 * 64 + 2 * layer + norms);
    CHECK(hp.weight_bytes == (320 * 64 + 2 * layer) / 32 * 34 + norms * 4);
    CHECK(hp.step_bytes == hp.weight_bytes && hp.step_params == hp.n_params);
    struct backend_config config = {0};
    model_backend_limits(&hp, &config);
    CHECK(config.max_cols == 96 && config.moe.n_experts == 0);
    CHECK(model_read_hparams(in_dir("none.gguf"), &hp, &e) == ERR_IO);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    be_need(mkdtemp(dir) != NULL, "a directory");
    RUN(test_forward);
    RUN(test_lacking_rows);
    RUN(test_refusals);
    RUN(test_rope_scaling);
    RUN(test_hparams);
    unlink(in_dir("tiny.gguf"));
    unlink(in_dir("changed.gguf"));
    rmdir(dir);
    return check_done();
}
