/* test_arch_forward.c - a tiny random file of each architecture with all its features enabled: the
 * forward pass, whole and in chunks, against an independent float64 one (forward64.h); and
 * refusals. The meaning of each architecture's keys is implemented here again, from the models' own
 * code. */
#include "core/formats/gguf/gguf.h"
#include "tests/support/forward_check.h"
#include "tests/support/rope64.h"

#include <unistd.h>

enum { N_VOCAB = 96, MAX_TENSORS = 1024 };

/* Tensors of a file in addition to those of every file. */
enum have {
    PRE_NORM = 1,
    POST_NORM = 2,
    QK_HEAD_NORM = 4,
    QK_ROW_NORM = 8,
    QKV_BIAS = 16,
    OUT_BIAS = 32,
    FF_BIAS = 64,
    SINKS = 128,
    FUSED = 256,
    EXPERT_BIAS = 512,
    UNTIED = 1024
};

/* A file under construction, and its parameters. */
struct maker {
    gguf_writer *w;
    const char *arch;
    unsigned have;
    int type;         /* of matrices whose rows are whole blocks of 32; others are F32 */
    double tolerance; /* of a logit; logits have a deviation of a few */
    struct forward64 f;
    void *data[MAX_TENSORS];
    int n_data;
};

static char path[] = "/tmp/inferd-test-arch-XXXXXX";

static const char *key(const struct maker *m, const char *suffix) {
    static char text[96];
    snprintf(text, sizeof text, "%s.%s", m->arch, suffix);
    return text;
}

static void set_u32(struct maker *m, const char *suffix, uint32_t v) {
    err e = {0};
    runner_need(gguf_writer_set_u32(m->w, key(m, suffix), v, &e), &e);
}

static void set_f32(struct maker *m, const char *suffix, double v) {
    err e = {0};
    runner_need(gguf_writer_set_f32(m->w, key(m, suffix), (float)v, &e), &e);
}

static void set_text(struct maker *m, const char *suffix, const char *v) {
    err e = {0};
    runner_need(gguf_writer_set_str(m->w, key(m, suffix), v, &e), &e);
}

static void set_bools(struct maker *m, const char *suffix, const bool *v, uint32_t n) {
    err e = {0};
    uint8_t bytes[FORWARD64_MAX_LAYERS];
    for (uint32_t i = 0; i < n; i++)
        bytes[i] = v[i];
    runner_need(gguf_writer_set_array(m->w, key(m, suffix), GGUF_BOOL, bytes, n, &e), &e);
}

/* ---- tensors ---- */

/* F32 values, given or (values NULL) random: around 1 with a deviation of 0.1, or around 0. */
struct shape {
    const char *name;
    uint64_t n_in, n_out, n_experts; /* n_out 0: one dimension */
    bool around_1;
    const float *values;
};

static void add(struct maker *m, int layer, const struct shape *s) {
    char name[64];
    err e = {0};
    uint64_t n = s->n_in * (s->n_out ? s->n_out : 1) * (s->n_experts ? s->n_experts : 1);
    float *values = be_new(n, sizeof *values);
    bool matrix = s->n_out > 1 && s->n_in > 1;
    be_fill(values, n, s->around_1 ? 0.2f : matrix ? 3 / sqrtf((float)s->n_in) : 0.5f);
    for (uint64_t i = 0; i < n; i++) {
        if (s->values) values[i] = s->values[i];
        if (s->around_1) values[i] += 1;
    }
    if (layer < 0)
        snprintf(name, sizeof name, "%s", s->name);
    else
        snprintf(name, sizeof name, "blk.%d.%s", layer, s->name);
    gguf_tensor t = {.name = {name, strlen(name)},
                     .type = QTYPE_F32,
                     .n_dims = s->n_experts ? 3
                               : s->n_out   ? 2
                                            : 1,
                     .dims = {s->n_in, s->n_out ? s->n_out : 1, s->n_experts ? s->n_experts : 1, 1},
                     .n_elems = n,
                     .data = values,
                     .bytes = n * sizeof *values};
    be_need(m->n_data < MAX_TENSORS, "room for tensors");
    m->data[m->n_data++] = values;
    if (matrix && m->type != QTYPE_F32 && s->n_in % Q_ELEMS == 0) {
        void *blocks = be_new(n, sizeof *values); /* more than a file needs */
        be_need(m->n_data < MAX_TENSORS && qtype_bytes(m->type, n / s->n_in, s->n_in, &t.bytes),
                "a quantized tensor");
        qtype_encode(m->type, values, blocks, n);
        t.data = m->data[m->n_data++] = blocks;
        t.type = m->type;
    }
    runner_need(gguf_writer_add_tensor(m->w, &t, &e), &e);
}

static void add_vector(struct maker *m, int layer, const char *name, uint64_t n, bool around_1) {
    add(m, layer, &(struct shape){.name = name, .n_in = n, .around_1 = around_1});
}

static void add_matrix(struct maker *m, int layer, const char *name, uint64_t n_out,
                       uint64_t n_in) {
    add(m, layer, &(struct shape){.name = name, .n_in = n_in, .n_out = n_out});
}

static void add_attention(struct maker *m, int i) {
    const struct forward64 *f = &m->f;
    uint64_t heads = (uint64_t)f->n_heads * f->head_dim, kv = (uint64_t)f->n_kv_heads * f->head_dim;
    bool fused = m->have & FUSED, rows = m->have & QK_ROW_NORM;
    if (m->have & PRE_NORM) add_vector(m, i, "attn_norm.weight", f->n_embd, true);
    if (fused) add_matrix(m, i, "attn_qkv.weight", heads + 2 * kv, f->n_embd);
    if (!fused) add_matrix(m, i, "attn_q.weight", heads, f->n_embd);
    if (!fused) add_matrix(m, i, "attn_k.weight", kv, f->n_embd);
    if (!fused) add_matrix(m, i, "attn_v.weight", kv, f->n_embd);
    if (m->have & QKV_BIAS && fused) add_vector(m, i, "attn_qkv.bias", heads + 2 * kv, false);
    if (m->have & QKV_BIAS && !fused) {
        add_vector(m, i, "attn_q.bias", heads, false);
        add_vector(m, i, "attn_k.bias", kv, false);
        add_vector(m, i, "attn_v.bias", kv, false);
    }
    if (m->have & (QK_HEAD_NORM | QK_ROW_NORM)) {
        add_vector(m, i, "attn_q_norm.weight", rows ? heads : f->head_dim, true);
        add_vector(m, i, "attn_k_norm.weight", rows ? kv : f->head_dim, true);
    }
    if (m->have & SINKS) add_vector(m, i, "attn_sinks.weight", f->n_heads, true);
    add_matrix(m, i, "attn_output.weight", f->n_embd, heads);
    if (m->have & OUT_BIAS) add_vector(m, i, "attn_output.bias", f->n_embd, false);
    if (m->have & POST_NORM || f->ffn_norm_is_post_attention)
        add_vector(m, i, "post_attention_norm.weight", f->n_embd, true);
    if (m->have & PRE_NORM && !f->ffn_norm_is_post_attention)
        add_vector(m, i, "ffn_norm.weight", f->n_embd, true);
    if (m->have & POST_NORM) add_vector(m, i, "post_ffw_norm.weight", f->n_embd, true);
}

static void add_plain_ff(struct maker *m, int i) {
    const struct forward64 *f = &m->f;
    bool fused = m->have & FUSED;
    if (!fused) add_matrix(m, i, "ffn_gate.weight", f->n_ff, f->n_embd);
    add_matrix(m, i, "ffn_up.weight", fused ? 2 * (uint64_t)f->n_ff : f->n_ff, f->n_embd);
    add_matrix(m, i, "ffn_down.weight", f->n_embd, f->n_ff);
    if (!(m->have & FF_BIAS)) return;
    add_vector(m, i, "ffn_gate.bias", f->n_ff, false);
    add_vector(m, i, "ffn_up.bias", f->n_ff, false);
    add_vector(m, i, "ffn_down.bias", f->n_embd, false);
}

static void add_experts(struct maker *m, int i) {
    const struct forward64 *f = &m->f;
    uint64_t n = f->n_experts, ff = f->n_ff_expert, embd = f->n_embd, shared = f->n_ff_shared;
    add_matrix(m, i, "ffn_gate_inp.weight", n, embd);
    add(m, i, &(struct shape){"ffn_gate_exps.weight", embd, ff, n, false, NULL});
    add(m, i, &(struct shape){"ffn_up_exps.weight", embd, ff, n, false, NULL});
    add(m, i, &(struct shape){"ffn_down_exps.weight", ff, embd, n, false, NULL});
    if (m->have & EXPERT_BIAS) {
        add_vector(m, i, "ffn_gate_inp.bias", n, false);
        add_matrix(m, i, "ffn_gate_exps.bias", n, ff);
        add_matrix(m, i, "ffn_up_exps.bias", n, ff);
        add_matrix(m, i, "ffn_down_exps.bias", n, embd);
    }
    if (!shared) return;
    add_vector(m, i, "ffn_gate_inp_shexp.weight", embd, false);
    add_matrix(m, i, "ffn_gate_shexp.weight", shared, embd);
    add_matrix(m, i, "ffn_up_shexp.weight", shared, embd);
    add_matrix(m, i, "ffn_down_shexp.weight", embd, shared);
}

/* ---- files ---- */

/* Odd halves, unless the kernels support only sizes of real models (be_has). */
static uint32_t head_dim(void) {
    return be_only && be_is_device_set(be_only) ? 16 : 14;
}

/* Sizes that are odd where allowed; no special features. */
static void start(struct maker *m, const char *arch, unsigned have) {
    err e = {0};
    *m = (struct maker){
        .w = gguf_writer_new(), .arch = arch, .have = have, .type = QTYPE_F32, .tolerance = 2e-4};
    m->f = (struct forward64){.n_layers = 3,
                              .n_embd = 36,
                              .n_heads = 6,
                              .n_kv_heads = 2,
                              .head_dim = head_dim(),
                              .n_ff = 54,
                              .n_vocab = N_VOCAB,
                              .eps = (double)1e-5f,
                              .embed_scale = 1,
                              .attn_scale = 1 / sqrt(head_dim()),
                              .residual_scale = 1,
                              .logit_scale = 1,
                              .weight_scale = 1};
    runner_need(gguf_writer_set_str(m->w, "general.architecture", arch, &e), &e);
}

/* Both sets of frequencies, n_rot dimensions. */
static void plain_rope(struct maker *m, uint32_t n_rot, double base, double local_base) {
    for (int i = 0; i < 2; i++) {
        m->f.rope[i].n_rot = n_rot;
        m->f.rope[i].magnitude = 1;
        rope64_plain(i ? local_base : base, (int)n_rot, m->f.rope[i].inv_freq);
    }
    set_u32(m, "rope.dimension_count", n_rot);
    set_f32(m, "rope.freq_base", base);
}

/* Windowed layers: all but every period-th. */
static void window(struct maker *m, uint32_t n, uint32_t period) {
    m->f.window = n;
    for (uint32_t i = 0; i < m->f.n_layers; i++)
        m->f.windowed[i] = !period || (i + 1) % period != 0;
    set_u32(m, "attention.sliding_window", n);
}

static void experts(struct maker *m, uint32_t n, uint32_t n_used, uint32_t n_ff) {
    m->f.n_experts = n;
    m->f.n_used = n_used;
    m->f.n_ff_expert = n_ff;
    set_u32(m, "expert_count", n);
    set_u32(m, "expert_used_count", n_used);
    set_u32(m, "expert_feed_forward_length", n_ff);
}

static void finish(struct maker *m) {
    const struct forward64 *f = &m->f;
    err e = {0};
    set_u32(m, "context_length", 512);
    set_u32(m, "block_count", f->n_layers);
    set_u32(m, "embedding_length", f->n_embd);
    set_u32(m, "feed_forward_length", f->n_ff);
    set_u32(m, "attention.head_count", f->n_heads);
    set_u32(m, "attention.head_count_kv", f->n_kv_heads);
    set_u32(m, "attention.key_length", f->head_dim);
    set_u32(m, "attention.value_length", f->head_dim);
    set_f32(m, "attention.layer_norm_rms_epsilon", f->eps);
    add_matrix(m, -1, "token_embd.weight", N_VOCAB, f->n_embd);
    add_vector(m, -1, "output_norm.weight", f->n_embd, true);
    if (m->have & UNTIED) add_matrix(m, -1, "output.weight", N_VOCAB, f->n_embd);
    for (int i = 0; i < (int)f->n_layers; i++) {
        add_attention(m, i);
        f->n_experts ? add_experts(m, i) : add_plain_ff(m, i);
    }
    runner_need(gguf_writer_finish(m->w, path, &e), &e);
    gguf_writer_free(m->w);
    for (int i = 0; i < m->n_data; i++)
        free(m->data[i]);
}

/* Two ranks can share the model: no norm over all heads, and a rank's heads are whole blocks. */
static bool is_for_two(const struct maker *m) {
    uint32_t cols = m->f.n_heads * m->f.head_dim;
    bool blocks = m->type != QTYPE_F32 && cols % Q_ELEMS == 0;
    return !(m->have & QK_ROW_NORM) && (!blocks || cols / 2 % Q_ELEMS == 0);
}

/* Against the reference with each instruction set. */
static void check(struct maker *m) {
    int32_t tokens[FORWARD64_MAX_TOKENS];
    double *want = be_new((uint64_t)FORWARD64_MAX_TOKENS * N_VOCAB, sizeof *want);
    gguf *g;
    err e = {0};
    finish(m);
    random_tokens(tokens, FORWARD64_MAX_TOKENS, N_VOCAB);
    runner_need(gguf_open(path, 0, &g, &e), &e);
    forward64_run(g, &m->f, tokens, 130, want);
    gguf_close(g);
    for (int k = 0; k < BE_N_ISAS; k++) {
        struct forward_case c = {
            .path = path, .isa = be_isas[k], .kv_type = QTYPE_F32, .tolerance = m->tolerance};
        if (be_row_isa(k) && be_has(be_isas[k], m->f.head_dim, c.kv_type))
            forward_check(&c, tokens, want);
        c.n_ranks = 2;
        if (is_for_two(m) && be_has_ranks(be_isas[k], c.n_ranks)) forward_check(&c, tokens, want);
    }
    free(want);
}

/* ---- architectures ---- */

/* A Llama with every bias, Mistral's window on all layers, another base and layers without rope. */
static void test_llama(void) {
    static const bool no_rope[] = {false, true, false};
    struct maker m;
    start(&m, "llama", PRE_NORM | QKV_BIAS | OUT_BIAS | FF_BIAS | UNTIED);
    m.f.interleaved = true;
    plain_rope(&m, head_dim(), 50000, 50000);
    window(&m, 17, 0);
    memcpy(m.f.no_rope, no_rope, sizeof no_rope);
    set_bools(&m, "inferd.no_rope_layers", no_rope, 3);
    check(&m);
}

/* Mixtral: experts, whose weights sum to 1. */
static void test_llama_with_experts(void) {
    struct maker m;
    start(&m, "llama", PRE_NORM | UNTIED);
    m.f.interleaved = true;
    plain_rope(&m, head_dim(), 10000, 10000);
    experts(&m, 5, 2, 30);
    m.f.renormalize = true;
    check(&m);
}

static void test_qwen2(void) {
    static const bool windowed[] = {false, true, true};
    struct maker m;
    start(&m, "qwen2", PRE_NORM | QKV_BIAS);
    plain_rope(&m, head_dim(), 1e6, 1e6);
    window(&m, 21, 0);
    memcpy(m.f.windowed, windowed, sizeof windowed);
    set_bools(&m, "attention.sliding_window_pattern", windowed, 3);
    check(&m);
}

/* The chosen experts' weights are not normalized; a gated shared expert. */
static void test_qwen2moe(void) {
    struct maker m;
    start(&m, "qwen2moe", PRE_NORM | QKV_BIAS | UNTIED);
    plain_rope(&m, head_dim(), 10000, 10000);
    experts(&m, 6, 3, 22);
    m.f.n_ff_shared = 34;
    set_u32(&m, "expert_shared_feed_forward_length", 34);
    check(&m);
}

static void test_qwen3(void) {
    struct maker m;
    start(&m, "qwen3", PRE_NORM | QK_HEAD_NORM);
    plain_rope(&m, head_dim(), 10000, 10000);
    m.f.rope[0].magnitude = rope64_yarn(10000, head_dim(), 4, 64, true, m.f.rope[0].inv_freq);
    set_text(&m, "rope.scaling.type", "yarn");
    set_f32(&m, "rope.scaling.factor", 4);
    set_u32(&m, "rope.scaling.original_context_length", 64);
    check(&m);
}

static void test_qwen3moe(void) {
    struct maker m;
    start(&m, "qwen3moe", PRE_NORM | QK_HEAD_NORM | UNTIED);
    plain_rope(&m, head_dim(), 10000, 10000);
    experts(&m, 7, 3, 22);
    m.f.renormalize = true;
    m.f.weight_scale = 1.5;
    set_f32(&m, "expert_weights_scale", 1.5);
    check(&m);
}

static void test_gemma(void) {
    struct maker m;
    start(&m, "gemma", PRE_NORM);
    plain_rope(&m, head_dim(), 10000, 10000);
    m.f.act = FORWARD64_GELU_TANH;
    m.f.embed_scale = sqrt(36);
    check(&m);
}

/* Even layers have a window; scores and logits are soft-capped. */
static void test_gemma2(void) {
    struct maker m;
    start(&m, "gemma2", PRE_NORM | POST_NORM);
    plain_rope(&m, head_dim(), 10000, 10000);
    window(&m, 19, 2);
    m.f.act = FORWARD64_GELU_TANH;
    m.f.embed_scale = sqrt(36);
    m.f.attn_scale = 1 / sqrt(20);
    m.f.attn_softcap = 3;
    m.f.logit_softcap = 5;
    set_f32(&m, "attention.scale", 1 / sqrt(20));
    set_f32(&m, "attn_logit_softcapping", 3);
    set_f32(&m, "final_logit_softcapping", 5);
    check(&m);
}

/* Every sixth layer has full attention and a scaled rope; the others have their own unscaled base.
 */
static void test_gemma3(void) {
    struct maker m;
    start(&m, "gemma3", PRE_NORM | POST_NORM | QK_HEAD_NORM);
    m.f.n_layers = 7;
    plain_rope(&m, head_dim(), 1e6, 10000);
    window(&m, 11, 6);
    for (int i = 0; i < 7; i++)
        m.f.rope[0].inv_freq[i] /= 8;
    set_text(&m, "rope.scaling.type", "linear");
    set_f32(&m, "rope.scaling.factor", 8);
    m.f.act = FORWARD64_GELU_TANH;
    m.f.embed_scale = sqrt(36);
    check(&m);
}

/* Q, K and V in one tensor, gate and up in another; partial rotary; divisors for contexts beyond
 * the original one. */
static void make_phi3(struct maker *m) {
    static const float near[5] = {1, 1.1f, 1.2f, 1.5f, 2}, far[5] = {1, 2, 4, 8, 12};
    start(m, "phi3", PRE_NORM | FUSED | UNTIED);
    plain_rope(m, 10, 10000, 10000);
    window(m, 40, 0);
    set_u32(m, "rope.scaling.original_context_length", 64);
    add(m, -1, &(struct shape){"rope_factors_short.weight", 5, 0, 0, false, near});
    add(m, -1, &(struct shape){"rope_factors_long.weight", 5, 0, 0, false, far});
    for (int k = 0; k < 2; k++) {
        m->f.rope[k].magnitude = sqrt(1 + log(512.0 / 64) / log(64));
        for (int i = 0; i < 5; i++)
            m->f.rope[k].inv_freq[i] /= (double)far[i];
    }
}

static void test_phi3(void) {
    struct maker m;
    make_phi3(&m);
    check(&m);
}

/* Rows of a quantized tensor. Activations are rounded to 16 bits. */
static void test_quantized_phi3(void) {
    struct maker m;
    make_phi3(&m);
    m.f.n_embd = 64;
    m.type = QTYPE_Q4_0;
    m.tolerance = 5e-3;
    check(&m);
}

/* Biases everywhere, sinks, experts with a clamped activation; every second layer has full
 * attention. */
static void test_gpt_oss(void) {
    struct maker m;
    start(&m, "gpt-oss", PRE_NORM | QKV_BIAS | OUT_BIAS | SINKS | EXPERT_BIAS | UNTIED);
    m.f.ffn_norm_is_post_attention = true;
    plain_rope(&m, head_dim(), 150000, 150000);
    for (int k = 0; k < 2; k++)
        m.f.rope[k].magnitude = rope64_yarn(150000, head_dim(), 8, 64, false, m.f.rope[k].inv_freq);
    set_text(&m, "rope.scaling.type", "yarn");
    set_f32(&m, "rope.scaling.factor", 8);
    set_u32(&m, "rope.scaling.original_context_length", 64);
    window(&m, 23, 2);
    experts(&m, 5, 3, 26);
    m.f.renormalize = true;
    m.f.act = FORWARD64_SWIGLU_OAI;
    check(&m);
}

/* Norms only after the blocks. With a window, as OLMo 3: YaRN on layers with full attention. */
static void test_olmo2(void) {
    struct maker m;
    start(&m, "olmo2", POST_NORM | QK_ROW_NORM | UNTIED);
    m.f.n_layers = 4;
    plain_rope(&m, head_dim(), 500000, 500000);
    m.f.rope[0].magnitude = rope64_yarn(500000, head_dim(), 8, 64, true, m.f.rope[0].inv_freq);
    set_text(&m, "rope.scaling.type", "yarn");
    set_f32(&m, "rope.scaling.factor", 8);
    set_u32(&m, "rope.scaling.original_context_length", 64);
    window(&m, 15, 4);
    check(&m);
}

static void test_smollm3(void) {
    struct maker m;
    start(&m, "smollm3", PRE_NORM);
    m.f.n_layers = 5;
    m.f.interleaved = true;
    m.f.no_rope[3] = true;
    plain_rope(&m, head_dim(), 2e6, 2e6);
    check(&m);
}

static void test_granite(void) {
    struct maker m;
    start(&m, "granite", PRE_NORM);
    m.f.interleaved = true;
    plain_rope(&m, head_dim(), 10000, 10000);
    m.f.embed_scale = 4;
    m.f.residual_scale = (double)0.45f;
    m.f.attn_scale = (double)0.23f;
    m.f.logit_scale = 1 / 3.0;
    set_f32(&m, "embedding_scale", 4);
    set_f32(&m, "residual_scale", 0.45);
    set_f32(&m, "attention.scale", 0.23);
    set_f32(&m, "logit_scale", 3);
    check(&m);
}

/* ---- meaning of keys, refusals ---- */

static int read_file(struct maker *m, struct model_hparams *hp, err *e) {
    finish(m);
    memset(e, 0, sizeof *e);
    return model_read_hparams(path, hp, e);
}

/* The 27B models scale by n_embd / n_heads, without a key for it. */
static void test_wide_queries(void) {
    const struct {
        const char *arch;
        unsigned have;
        uint32_t n_layers;
        double scale_of;
    } cases[] = {{"gemma2", PRE_NORM | POST_NORM, 2, head_dim()},
                 {"gemma2", PRE_NORM | POST_NORM, 46, 6},
                 {"gemma3", PRE_NORM | POST_NORM | QK_HEAD_NORM, 62, 6},
                 {"qwen2", PRE_NORM | QKV_BIAS, 46, head_dim()}};
    for (int i = 0; i < 4; i++) {
        struct model_hparams hp;
        struct maker m;
        err e;
        start(&m, cases[i].arch, cases[i].have);
        m.f.n_layers = cases[i].n_layers;
        CHECK_MSG(read_file(&m, &hp, &e) == 0, "%s", e.msg);
        CHECK(fabs((double)hp.attn_scale * sqrt(cases[i].scale_of) - 1) < 1e-6);
    }
}

/* Defaults for missing keys: Gemma 2's caps and its window of 4096 on even layers. */
static void test_defaults(void) {
    struct model_hparams hp;
    struct maker m;
    err e;
    start(&m, "gemma2", PRE_NORM | POST_NORM);
    CHECK_MSG(read_file(&m, &hp, &e) == 0, "%s", e.msg);
    CHECK(hp.attn_softcap == 50 && hp.logit_softcap == 30 && hp.window == 4096);
    CHECK(hp.layers[0] == MODEL_LAYER_WINDOWED && !hp.layers[1] && hp.layers[2]);
    start(&m, "gemma3", PRE_NORM | POST_NORM | QK_HEAD_NORM);
    CHECK(read_file(&m, &hp, &e) == 0 && hp.window == 0 && !hp.layers[0]);
    CHECK(hp.attn_softcap == 0 && hp.rope[1].base == 10000);
    start(&m, "gpt-oss", PRE_NORM | QKV_BIAS | OUT_BIAS | SINKS | EXPERT_BIAS | UNTIED);
    m.f.ffn_norm_is_post_attention = true;
    experts(&m, 4, 2, 10);
    CHECK_MSG(read_file(&m, &hp, &e) == 0, "%s", e.msg);
    CHECK(hp.window == 128 && hp.layers[0] && !hp.layers[1] && hp.experts.renormalize);
    uint64_t expert = 3 * 3 * 36 * 10 + 3 * (10 + 10 + 36); /* of three layers */
    CHECK(hp.n_params - hp.step_params == 2 * expert);
    CHECK(hp.weight_bytes - hp.step_bytes == 2 * expert * 4);
}

struct refusal {
    const char *arch;
    unsigned have;
    const char *key, *text; /* a key with a text, or text NULL: */
    uint32_t value;         /* a number */
    uint32_t n_bools;       /* or this many bools */
    int code;
    const char *says;
};

static void test_refusals(void) {
    static const struct refusal cases[] = {
        {"qwen2", PRE_NORM, .code = ERR_FORMAT, .says = "blk.0.attn_q.bias"},
        {"llama", PRE_NORM | SINKS, .code = ERR_UNSUPPORTED, .says = "blk.0.attn_sinks.weight"},
        {"llama", PRE_NORM | POST_NORM, .code = ERR_UNSUPPORTED, .says = "post_attention_norm"},
        {"qwen3", PRE_NORM | QK_ROW_NORM, .code = ERR_FORMAT, .says = "attn_q_norm.weight"},
        {"gemma3", PRE_NORM | QK_HEAD_NORM, .code = ERR_FORMAT, .says = "post_attention_norm"},
        {"olmo2", POST_NORM, .code = ERR_FORMAT, .says = "attn_q_norm.weight"},
        {"phi3", PRE_NORM, .code = ERR_UNSUPPORTED, .says = "ffn_gate.weight"},
        {"llama", PRE_NORM | FUSED, .code = ERR_FORMAT, .says = "ffn_gate.weight"},
        {"qwen3moe", PRE_NORM | QK_HEAD_NORM, .code = ERR_FORMAT, .says = "expert_count"},
        {"gemma2", PRE_NORM | POST_NORM, "expert_count", .value = 4, .code = ERR_UNSUPPORTED,
         .says = "expert_count"},
        {"llama", PRE_NORM, "logit_scale", .value = 4, .code = ERR_UNSUPPORTED,
         .says = "logit_scale"},
        {"llama", PRE_NORM, "nextn_predict_layers", .value = 1, .code = ERR_UNSUPPORTED,
         .says = "nextn_predict_layers"},
        {"llama", PRE_NORM, "rope.dimension_sections", .n_bools = 4, .code = ERR_UNSUPPORTED,
         .says = "rope.dimension_sections"},
        {"llama", PRE_NORM, "inferd.no_rope_layers", .n_bools = 2, .code = ERR_FORMAT,
         .says = "array of 3 bools"},
        {"llama", PRE_NORM, "rope.scaling.type", "longrope", .code = ERR_FORMAT,
         .says = "rope_factors_short.weight"},
        {"llama", PRE_NORM, "rope.scaling.type", "dynamic", .code = ERR_NOT_FOUND,
         .says = "rope.scaling.factor"},
        {"llama", PRE_NORM, "attention.sliding_window", "wide", .code = ERR_FORMAT,
         .says = "sliding_window"},
    };
    static const bool bools[FORWARD64_MAX_LAYERS] = {true};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct refusal *c = &cases[i];
        struct model_hparams hp;
        struct maker m;
        err e;
        start(&m, c->arch, c->have);
        if (c->key && c->text) set_text(&m, c->key, c->text);
        if (c->key && c->n_bools) set_bools(&m, c->key, bools, c->n_bools);
        if (c->key && !c->text && !c->n_bools) set_u32(&m, c->key, c->value);
        int rc = read_file(&m, &hp, &e);
        CHECK_MSG(rc == c->code, "case %zu: %d, %s", i, rc, e.msg);
        CHECK_MSG(strstr(e.msg, c->says), "case %zu: \"%s\" lacks \"%s\"", i, e.msg, c->says);
    }
}

/* Invalid keys of a file with experts. */
static void test_expert_refusals(void) {
    static const struct {
        const char *key;
        uint32_t value;
        int code;
    } cases[] = {{"expert_gating_func", 2, ERR_UNSUPPORTED},
                 {"expert_gating_func", 3, 0},
                 {"expert_gating_func", 1, 0},
                 {"expert_shared_feed_forward_length", 8, ERR_UNSUPPORTED},
                 {"expert_shared_count", 1, ERR_UNSUPPORTED}};
    for (int i = 0; i < 5; i++) {
        struct model_hparams hp;
        struct maker m;
        err e;
        start(&m, "llama", PRE_NORM);
        experts(&m, 4, 2, 10);
        set_u32(&m, cases[i].key, cases[i].value);
        CHECK_MSG(read_file(&m, &hp, &e) == cases[i].code, "case %d: %s", i, e.msg);
        CHECK(!cases[i].code || strstr(e.msg, cases[i].key));
    }
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    int fd = mkstemp(path);
    be_need(fd >= 0, "a file");
    close(fd);
    RUN(test_wide_queries);
    RUN(test_defaults);
    RUN(test_refusals);
    RUN(test_expert_refusals);
    RUN(test_llama);
    RUN(test_qwen2);
    RUN(test_qwen3);
    RUN(test_gemma);
    RUN(test_gemma2);
    RUN(test_gemma3);
    RUN(test_phi3);
    RUN(test_quantized_phi3);
    RUN(test_olmo2);
    RUN(test_smollm3);
    RUN(test_granite);
    RUN(test_llama_with_experts);
    RUN(test_qwen2moe);
    RUN(test_qwen3moe);
    RUN(test_gpt_oss);
    unlink(path);
    return check_done();
}
