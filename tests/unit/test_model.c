/* test_model.c - the forward pass on tiny random models against an independent float64 one written
 * here (contiguous, one token after the other); the same bytes in any chunks and batches; refusals
 * of files that the pass cannot run. */
#include "core/formats/gguf.h"
#include "tests/support/be.h"
#include "tests/support/gguf_make.h"
#include "tests/support/runner.h"
#include "tests/unit/check.h"

#include <unistd.h>

enum { MAX_TOKENS = 160, MAX_VOCAB = 512 };

static char dir[] = "/tmp/inferd-test-model-XXXXXX";

static const char *in_dir(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* ---- float64 reference ---- */

/* Tensor as (n_elems) float64, or NULL. */
static double *tensor(const gguf *g, const char *fmt, int layer) {
    char name[64];
    snprintf(name, sizeof name, fmt, layer);
    const gguf_tensor *t = gguf_tensor_find(g, name);
    if (!t) return NULL;
    float *values = be_new(t->n_elems, sizeof *values);
    double *out = be_new(t->n_elems, sizeof *out);
    qtype_decode(t->type, t->data, values, t->n_elems);
    for (uint64_t i = 0; i < t->n_elems; i++)
        out[i] = (double)values[i];
    free(values);
    return out;
}

/* y (n_out) = W (n_out, n_in) x, W being a named tensor. */
static void multiply(const gguf *g, const char *fmt, int layer, const double *x, double *y) {
    char name[64];
    snprintf(name, sizeof name, fmt, layer);
    const gguf_tensor *t = gguf_tensor_find(g, name);
    double *w = tensor(g, fmt, layer);
    be_need(t && w, name);
    for (uint64_t o = 0; o < t->dims[1]; o++) {
        y[o] = 0;
        for (uint64_t i = 0; i < t->dims[0]; i++)
            y[o] += w[o * t->dims[0] + i] * x[i];
    }
    free(w);
}

static void normalize(const gguf *g, const char *fmt, int layer, const struct model_hparams *hp,
                      const double *x, double *y) {
    double *w = tensor(g, fmt, layer), sum = 0;
    be_need(w != NULL, fmt);
    for (uint32_t i = 0; i < hp->n_embd; i++)
        sum += x[i] * x[i];
    for (uint32_t i = 0; i < hp->n_embd; i++)
        y[i] = x[i] / sqrt(sum / hp->n_embd + (double)hp->rms_eps) * w[i];
    free(w);
}

/* Pairs (2i, 2i + 1) of each head turn by pos * base^(-2i/n_rot) / scale / divisor. */
static void turn(const gguf *g, const struct model_hparams *hp, double *x, uint32_t n_heads,
                 uint32_t pos) {
    double *divisors = tensor(g, "rope_freqs.weight", 0);
    for (uint32_t h = 0; h < n_heads; h++)
        for (uint32_t i = 0; i < hp->rope[0].n_rot / 2; i++) {
            double *a = x + h * hp->head_dim + 2 * i, u = a[0], v = a[1];
            double angle = pos * pow((double)hp->rope[0].base, -2.0 * i / hp->rope[0].n_rot);
            angle /= (double)hp->rope[0].factor * (divisors ? divisors[i] : 1);
            a[0] = u * cos(angle) - v * sin(angle);
            a[1] = u * sin(angle) + v * cos(angle);
        }
    free(divisors);
}

/* Attention of one position over keys and values (pos + 1, n_kv_heads * head_dim). */
static void mix(const struct model_hparams *hp, const double *q, const double *k, const double *v,
                uint32_t pos, double *out) {
    uint32_t width = hp->n_kv_heads * hp->head_dim, share = hp->n_heads / hp->n_kv_heads;
    double p[MAX_TOKENS];
    for (uint32_t h = 0; h < hp->n_heads; h++) {
        const double *query = q + h * hp->head_dim;
        double max = -INFINITY, sum = 0;
        for (uint32_t t = 0; t <= pos; t++) {
            const double *key = k + t * width + h / share * hp->head_dim;
            p[t] = 0;
            for (uint32_t d = 0; d < hp->head_dim; d++)
                p[t] += query[d] * key[d] / sqrt(hp->head_dim);
            max = fmax(max, p[t]);
        }
        for (uint32_t t = 0; t <= pos; t++)
            sum += p[t] = exp(p[t] - max);
        for (uint32_t d = 0; d < hp->head_dim; d++) {
            out[h * hp->head_dim + d] = 0;
            for (uint32_t t = 0; t <= pos; t++)
                out[h * hp->head_dim + d] +=
                    p[t] / sum * v[t * width + h / share * hp->head_dim + d];
        }
    }
}

/* logits (n, n_vocab) of tokens[0..n). Weights are decoded anew for each use: slow and plain. */
static void reference(const char *path, const int32_t *tokens, uint32_t n, double *logits) {
    enum { W = 512 };
    struct model_hparams hp;
    gguf *g;
    err e = {0};
    runner_need(gguf_open(path, 0, &g, &e), &e);
    runner_need(model_read_hparams(path, &hp, &e), &e);
    be_need(hp.n_embd <= W && hp.n_ff <= W && hp.n_heads * hp.head_dim <= W, "a tiny model");
    double *x = be_new((uint64_t)n * hp.n_embd, sizeof *x),
           *embed = tensor(g, "token_embd.weight", 0);
    uint32_t width = hp.n_kv_heads * hp.head_dim;
    double *k = be_new((uint64_t)n * width, sizeof *k), *v = be_new((uint64_t)n * width, sizeof *v);
    double h[W], q[W], att[W], r[W], gate[W], up[W];
    for (uint32_t t = 0; t < n; t++)
        memcpy(x + t * hp.n_embd, embed + (uint64_t)tokens[t] * hp.n_embd, hp.n_embd * sizeof *x);
    for (int l = 0; l < (int)hp.n_layers; l++)
        for (uint32_t t = 0; t < n; t++) {
            double *xt = x + t * hp.n_embd;
            normalize(g, "blk.%d.attn_norm.weight", l, &hp, xt, h);
            multiply(g, "blk.%d.attn_q.weight", l, h, q);
            multiply(g, "blk.%d.attn_k.weight", l, h, k + t * width);
            multiply(g, "blk.%d.attn_v.weight", l, h, v + t * width);
            turn(g, &hp, q, hp.n_heads, t);
            turn(g, &hp, k + t * width, hp.n_kv_heads, t);
            mix(&hp, q, k, v, t, att);
            multiply(g, "blk.%d.attn_output.weight", l, att, r);
            for (uint32_t i = 0; i < hp.n_embd; i++)
                xt[i] += r[i];
            normalize(g, "blk.%d.ffn_norm.weight", l, &hp, xt, h);
            multiply(g, "blk.%d.ffn_gate.weight", l, h, gate);
            multiply(g, "blk.%d.ffn_up.weight", l, h, up);
            for (uint32_t i = 0; i < hp.n_ff; i++)
                gate[i] *= up[i] / (1 + exp(-gate[i]));
            multiply(g, "blk.%d.ffn_down.weight", l, gate, r);
            for (uint32_t i = 0; i < hp.n_embd; i++)
                xt[i] += r[i];
        }
    for (uint32_t t = 0; t < n; t++) {
        normalize(g, "output_norm.weight", 0, &hp, x + t * hp.n_embd, h);
        multiply(g, hp.tied_embeddings ? "token_embd.weight" : "output.weight", 0, h,
                 logits + (uint64_t)t * hp.n_vocab);
    }
    free(v);
    free(k);
    free(embed);
    free(x);
    gguf_close(g);
}

/* ---- comparisons ---- */

static void random_tokens(int32_t *tokens, uint32_t n, uint32_t n_vocab) {
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)be_below(n_vocab);
}

static double worst_difference(const float *got, const double *want, uint64_t n) {
    double worst = 0;
    for (uint64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (!(d <= worst)) worst = d;
    }
    return worst;
}

static uint64_t count_kernels(const backend *be, const char *prefix) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < backend_n_kernels(be); i++)
        if (strncmp(backend_kernel_name(be, i), prefix, strlen(prefix)) == 0)
            n += backend_dispatch_count(be, i);
    return n;
}

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
    {{.seed = 7, .n_layers = 1, .n_heads = 3, .n_kv_heads = 3, .head_dim = 10}, QTYPE_F32, 1e-4},
};
enum { N_VARIANTS = sizeof variants / sizeof variants[0] };

/* Prompts of every length in one go; then the longest in chunks and beside others, the same bytes.
 */
static void check_variant(const struct variant *v, const char *isa, const int32_t *tokens,
                          const double *want) {
    static const uint32_t lengths[] = {1, 7, 33, 130};
    struct runner r;
    runner_open(&r, &(struct runner_config){.path = in_dir("tiny.gguf"),
                                            .isa = isa,
                                            .n_threads = 3,
                                            .kv_type = v->kv_type,
                                            .max_rows = 150,
                                            .max_tokens = MAX_TOKENS});
    uint64_t width = r.hp.n_vocab, n_longest = 130 * width, steps = 4;
    float *whole = be_new(n_longest, sizeof *whole);
    for (int i = 0; i < 4; i++) {
        struct piece p = {.tokens = tokens, .n = lengths[i]};
        const float *got = runner_step(&r, &p, 1, true);
        double worst = worst_difference(got, want, lengths[i] * width);
        CHECK_MSG(worst <= v->tolerance, "%s model %d, %u tokens: off by %g", isa,
                  (int)v->shape.seed, lengths[i], worst);
        if (i == 3) memcpy(whole, got, n_longest * sizeof *whole);
    }
    for (uint32_t at = 0; at < 130; steps++) {
        uint32_t n = 1 + be_below(40), before = 1 + be_below(9);
        if (n > 130 - at) n = 130 - at;
        struct piece p[] = {{.tokens = tokens + 3, .n = before, .sequence = 2},
                            {.tokens = tokens, .start = at, .n = n, .sequence = 1},
                            {.tokens = tokens + 9, .n = 1, .sequence = 0}};
        const float *got = runner_step(&r, p, 3, true);
        CHECK(memcmp(got + before * width, whole + at * width, n * width * sizeof *got) == 0);
        at += n;
    }
    struct piece last = {.tokens = tokens, .start = 129, .n = 1, .sequence = 1};
    const float *got = runner_step(&r, &last, 1, false); /* a decode step: the same again */
    CHECK(memcmp(got, whole + 129 * width, width * sizeof *got) == 0);
    struct piece prompt = {.tokens = tokens, .n = 130, .sequence = 3};
    got = runner_step(&r, &prompt, 1, false); /* one logit row of many rows */
    CHECK(memcmp(got, whole + 129 * width, width * sizeof *got) == 0);
    CHECK(count_kernels(r.be, "paged_attention_") == (steps + 2) * r.hp.n_layers);
    runner_close(&r);
    free(whole);
}

static void test_forward(void) {
    int32_t tokens[MAX_TOKENS];
    double *want = be_new((uint64_t)MAX_TOKENS * MAX_VOCAB, sizeof *want);
    err e = {0};
    be_seed = 41;
    for (int i = 0; i < N_VARIANTS; i++) {
        runner_need(gguf_make_tiny_llama(in_dir("tiny.gguf"), &variants[i].shape, &e), &e);
        random_tokens(tokens, MAX_TOKENS, 320);
        reference(in_dir("tiny.gguf"), tokens, 130, want);
        for (int k = 0; k < BE_N_ISAS; k++) {
            backend *be = be_open(be_isas[k], 1);
            if (be) check_variant(&variants[i], be_isas[k], tokens, want);
            backend_close(be);
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
    struct model_limits limits = {4, 4, 1, 4, 0};
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

static void test_refusals(void) {
    static const float bad[8] = {1, 1, 0, 1, 1, 1, 1, 1};
    static const struct {
        struct change change;
        int code;
        const char *says;
    } cases[] = {
        {{.key = "general.name", .text = "renamed"}, 0, ""},
        {{.key = "general.architecture", .text = "abacus"}, ERR_UNSUPPORTED, "llama"},
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

int main(void) {
    be_need(mkdtemp(dir) != NULL, "a directory");
    RUN(test_forward);
    RUN(test_refusals);
    RUN(test_rope_scaling);
    RUN(test_hparams);
    unlink(in_dir("tiny.gguf"));
    unlink(in_dir("changed.gguf"));
    rmdir(dir);
    return check_done();
}
