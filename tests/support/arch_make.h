/* arch_make.h - a tiny random file of an architecture, tensor by tensor, and the parameters with
 * which the float64 forward pass (forward64.h) computes the same. The meaning of each
 * architecture's keys is implemented here again, from the models' own code. Single thread. */
#ifndef INFERD_TESTS_ARCH_MAKE_H
#define INFERD_TESTS_ARCH_MAKE_H

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
    UNTIED = 1024,
    BY_K_HEAD = 2048,     /* delta nets' projections */
    GATE_UP_FUSED = 4096, /* of experts */
    CHOICE_BIAS = 8192,   /* likewise */
    BARE_BIAS = 16384,    /* the same under the name of Hy3's files */
    UNGATED = 32768,      /* the shared expert has no gate */
    GATE_APART = 65536,   /* attention's gate */
    STATE_NORM = 131072,  /* of Mamba-2 */
    CONV_BIAS = 262144,   /* likewise */
    KV_B = 524288,        /* K and V of latent attention in one tensor, and old files' keys */
    NORM_BIAS = 1 << 20,
    NO_FFN_NORM = 1 << 21,
    FUSED_QKV = 1 << 22,    /* Q, K and V alone */
    WINDOW_SINKS = 1 << 23, /* of windowed layers only */
    KV_ROWS = 1 << 24       /* with KV_B: apart, too, all heads' rows in one matrix */
};

/* A file under construction, and its parameters. */
struct maker {
    gguf_writer *w;
    const char *arch;
    unsigned have;
    int type;         /* of matrices whose rows are whole blocks of 32; others are F32 */
    double tolerance; /* of a logit; logits have a deviation of a few */
    struct forward64 f;
    bool dense[FORWARD64_MAX_LAYERS]; /* of a model with experts: layers without them */
    uint32_t n_predicting; /* layers behind the others, with the tensors of attention's */
    bool n_kv_list;        /* attention.head_count_kv is already there, a list */
    bool n_heads_list;     /* likewise attention.head_count */
    bool n_ff_list;        /* likewise feed_forward_length */
    bool v_is_k;           /* of Gemma 4: full layers have no V projection */
    void *data[MAX_TENSORS];
    int n_data;
};

/* What is wrong with the next file: a number is another one or absent; a tensor is absent, or has
 * rows that are one element too long. */
struct spoilt {
    const char *key, *no_tensor, *long_tensor;
    uint32_t value;
    bool absent, done;
};
static struct spoilt spoilt;

static char path[] = "/tmp/inferd-test-arch-XXXXXX";

static inline const char *key(const struct maker *m, const char *suffix) {
    static char text[96];
    snprintf(text, sizeof text, "%s.%s", m->arch, suffix);
    return text;
}

static inline void set_u32(struct maker *m, const char *suffix, uint32_t v) {
    err e = {0};
    bool wrong = spoilt.key && strcmp(suffix, spoilt.key) == 0;
    if (wrong && (spoilt.done || spoilt.absent)) return;
    if (wrong) v = spoilt.value;
    spoilt.done = spoilt.done || wrong;
    runner_need(gguf_writer_set_u32(m->w, key(m, suffix), v, &e), &e);
}

static inline void set_f32(struct maker *m, const char *suffix, double v) {
    err e = {0};
    runner_need(gguf_writer_set_f32(m->w, key(m, suffix), (float)v, &e), &e);
}

static inline void set_text(struct maker *m, const char *suffix, const char *v) {
    err e = {0};
    runner_need(gguf_writer_set_str(m->w, key(m, suffix), v, &e), &e);
}

static inline void set_sections(struct maker *m, const int32_t *v, uint32_t n) {
    err e = {0};
    const char *name = key(m, "rope.dimension_sections");
    runner_need(gguf_writer_set_array(m->w, name, GGUF_I32, v, n, &e), &e);
}

static inline void set_i32s(struct maker *m, const char *suffix, const int32_t *v, uint32_t n) {
    err e = {0};
    runner_need(gguf_writer_set_array(m->w, key(m, suffix), GGUF_I32, v, n, &e), &e);
}

static inline void set_bool(struct maker *m, const char *suffix, bool v) {
    err e = {0};
    runner_need(gguf_writer_set_bool(m->w, key(m, suffix), v, &e), &e);
}

static inline void set_bools(struct maker *m, const char *suffix, const bool *v, uint32_t n) {
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

static inline void add(struct maker *m, int layer, const struct shape *s) {
    char name[64];
    err e = {0};
    struct shape longer = *s;
    if (spoilt.no_tensor && strcmp(s->name, spoilt.no_tensor) == 0) return;
    if (spoilt.long_tensor && strcmp(s->name, spoilt.long_tensor) == 0) {
        longer.n_in++;
        longer.values = NULL;
        s = &longer;
    }
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

static inline void add_vector(struct maker *m, int layer, const char *name, uint64_t n,
                              bool around_1) {
    add(m, layer, &(struct shape){.name = name, .n_in = n, .around_1 = around_1});
}

static inline void add_matrix(struct maker *m, int layer, const char *name, uint64_t n_out,
                              uint64_t n_in) {
    add(m, layer, &(struct shape){.name = name, .n_in = n_in, .n_out = n_out});
}

static inline void add_post_norms(struct maker *m, int i) {
    const struct forward64 *f = &m->f;
    if (m->have & POST_NORM || f->ffn_norm_is_post_attention)
        add_vector(m, i, "post_attention_norm.weight", f->n_embd, true);
    const bool ffn_norm =
        m->have & PRE_NORM && !f->ffn_norm_is_post_attention && !(m->have & NO_FFN_NORM);
    if (ffn_norm) add_vector(m, i, "ffn_norm.weight", f->n_embd, true);
    if (m->have & NORM_BIAS) add_vector(m, i, "attn_norm.bias", f->n_embd, false);
    if (m->have & NORM_BIAS && ffn_norm) add_vector(m, i, "ffn_norm.bias", f->n_embd, false);
    if (m->have & POST_NORM) add_vector(m, i, "post_ffw_norm.weight", f->n_embd, true);
}

static inline void add_short_conv(struct maker *m, int i) {
    const struct forward64 *f = &m->f;
    add_vector(m, i, "attn_norm.weight", f->n_embd, true);
    add_matrix(m, i, "shortconv.in_proj.weight", 3 * (uint64_t)f->n_embd, f->n_embd);
    add_matrix(m, i, "shortconv.conv.weight", f->n_embd, f->n_taps);
    add_matrix(m, i, "shortconv.out_proj.weight", f->n_embd, f->n_embd);
    add_post_norms(m, i);
}

/* Without the layer's norms. Decays from 1 / 10 to near 1 a token. */
static inline void add_mamba2(struct maker *m, int i) {
    const struct forward64 *f = &m->f;
    uint64_t n = f->n_v_heads, values = n * f->value_dim;
    uint64_t channels = values + 2 * (uint64_t)f->n_k_heads * f->state_dim;
    float decay[64];
    for (uint32_t h = 0; h < n; h++)
        decay[h] = -3 / powf(4, (float)h);
    add_matrix(m, i, "ssm_in.weight", values + channels + n, f->n_embd);
    add_matrix(m, i, "ssm_conv1d.weight", channels, f->n_taps);
    if (m->have & CONV_BIAS) add_vector(m, i, "ssm_conv1d.bias", channels, false);
    add(m, i, &(struct shape){.name = "ssm_a", .n_in = 1, .n_out = n, .values = decay});
    add_matrix(m, i, "ssm_d", n, 1);
    add_vector(m, i, "ssm_dt.bias", n, false);
    if (m->have & STATE_NORM)
        add(m, i,
            &(struct shape){.name = "ssm_norm.weight",
                            .n_in = values / f->n_k_heads,
                            .n_out = f->n_k_heads,
                            .around_1 = true});
    add_matrix(m, i, "ssm_out.weight", f->n_embd, values);
}

/* Decays from 1 / 10 to near 1 a token. */
static inline void add_delta_net(struct maker *m, int i) {
    const struct forward64 *f = &m->f;
    uint64_t d = f->state_dim, n = f->n_v_heads, keys = f->n_k_heads * d, values = n * d;
    float decay[64];
    for (uint32_t h = 0; h < n; h++)
        decay[h] = -3 / powf(4, (float)h);
    add_vector(m, i, "attn_norm.weight", f->n_embd, true);
    if (m->have & BY_K_HEAD) {
        add_matrix(m, i, "ssm_in.weight", 2 * keys + 2 * values, f->n_embd);
        add_matrix(m, i, "ssm_ba.weight", 2 * n, f->n_embd);
    } else {
        add_matrix(m, i, "attn_qkv.weight", 2 * keys + values, f->n_embd);
        add_matrix(m, i, "attn_gate.weight", values, f->n_embd);
        add_matrix(m, i, "ssm_alpha.weight", n, f->n_embd);
        add_matrix(m, i, "ssm_beta.weight", n, f->n_embd);
    }
    add_matrix(m, i, "ssm_conv1d.weight", 2 * keys + values, f->n_taps);
    add(m, i, &(struct shape){.name = "ssm_a", .n_in = n, .values = decay});
    add_vector(m, i, "ssm_dt.bias", n, false);
    add_vector(m, i, "ssm_norm.weight", d, true);
    add_matrix(m, i, "ssm_out.weight", f->n_embd, values);
    add_post_norms(m, i);
}

/* Convolutions as llama.cpp's converter shapes them. Decays from 1 / 10 to near 1 a token. */
static inline void add_kda(struct maker *m, int i) {
    static const char *const in[] = {"attn_q.weight", "attn_k.weight", "attn_v.weight"};
    static const char *const conv[] = {"ssm_conv1d_q.weight", "ssm_conv1d_k.weight",
                                       "ssm_conv1d_v.weight"};
    const struct forward64 *f = &m->f;
    const uint64_t n = f->n_heads, d = f->state_dim;
    float decay[64];
    for (uint32_t h = 0; h < n; h++)
        decay[h] = -3 / powf(4, (float)h);
    add_vector(m, i, "attn_norm.weight", f->n_embd, true);
    for (int k = 0; k < 3; k++) {
        add_matrix(m, i, in[k], n * d, f->n_embd);
        add(m, i, &(struct shape){conv[k], f->n_taps, 1, n * d, false, NULL});
    }
    add_matrix(m, i, "ssm_f_a.weight", d, f->n_embd);
    add_matrix(m, i, "ssm_f_b.weight", n * d, d);
    add_matrix(m, i, "ssm_g_a.weight", d, f->n_embd);
    add_matrix(m, i, "ssm_g_b.weight", n * d, d);
    add_matrix(m, i, "ssm_beta.weight", n, f->n_embd);
    add(m, i, &(struct shape){.name = "ssm_a", .n_in = 1, .n_out = n, .values = decay});
    add_vector(m, i, "ssm_dt.bias", n * d, false);
    add_vector(m, i, "ssm_norm.weight", d, true);
    add_matrix(m, i, "attn_output.weight", f->n_embd, n * d);
    add_post_norms(m, i);
}

static inline void add_latent_attention(struct maker *m, int i) {
    const struct forward64 *f = &m->f;
    const uint64_t n = f->n_heads, nope = f->k_dim - f->rope[0].n_rot, rank = f->kv_rank;
    add_vector(m, i, "attn_norm.weight", f->n_embd, true);
    if (f->q_rank) {
        add_matrix(m, i, "attn_q_a.weight", f->q_rank, f->n_embd);
        add_vector(m, i, "attn_q_a_norm.weight", f->q_rank, true);
        add_matrix(m, i, "attn_q_b.weight", n * f->k_dim, f->q_rank);
    } else {
        add_matrix(m, i, "attn_q.weight", n * f->k_dim, f->n_embd);
    }
    add_matrix(m, i, "attn_kv_a_mqa.weight", f->head_dim, f->n_embd);
    add_vector(m, i, "attn_kv_a_norm.weight", rank, true);
    if (m->have & KV_B) {
        add_matrix(m, i, "attn_kv_b.weight", n * (nope + f->v_dim), rank);
        if (m->have & KV_ROWS) add_matrix(m, i, "attn_k_b.weight", n * rank, nope);
        if (m->have & KV_ROWS) add_matrix(m, i, "attn_v_b.weight", n * f->v_dim, rank);
    } else {
        add(m, i, &(struct shape){"attn_k_b.weight", nope, rank, n, false, NULL});
        add(m, i, &(struct shape){"attn_v_b.weight", rank, f->v_dim, n, false, NULL});
    }
    add_matrix(m, i, "attn_output.weight", f->n_embd, n * f->v_dim);
    add_post_norms(m, i);
}

static inline void add_attention(struct maker *m, int i) {
    const struct forward64 own = forward64_of_layer(&m->f, (uint32_t)i), *f = &own;
    if (f->kv_rank) {
        add_latent_attention(m, i);
        return;
    }
    uint64_t heads = (uint64_t)f->n_heads * f->head_dim, kv = (uint64_t)f->n_kv_heads * f->head_dim;
    const uint64_t v_head = f->v_head ? f->v_head : f->head_dim, v = f->n_kv_heads * v_head;
    bool fused = m->have & (FUSED | FUSED_QKV), rows = m->have & QK_ROW_NORM;
    if (m->have & PRE_NORM) add_vector(m, i, "attn_norm.weight", f->n_embd, true);
    if (fused) add_matrix(m, i, "attn_qkv.weight", heads + kv + v, f->n_embd);
    if (!fused) add_matrix(m, i, "attn_q.weight", f->attention_gate ? 2 * heads : heads, f->n_embd);
    if (m->have & GATE_APART)
        add_matrix(m, i, "attn_gate.weight", f->gate_by_head ? f->n_heads : heads, f->n_embd);
    if (!fused) add_matrix(m, i, "attn_k.weight", kv, f->n_embd);
    if (!fused) add_matrix(m, i, "attn_v.weight", v, f->n_embd);
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
    if (m->have & SINKS || (m->have & WINDOW_SINKS && f->windowed[i]))
        add_vector(m, i, "attn_sinks.weight", f->n_heads, true);
    add_matrix(m, i, "attn_output.weight", f->n_embd, f->n_heads * v_head);
    if (m->have & OUT_BIAS) add_vector(m, i, "attn_output.bias", f->n_embd, false);
    if (i >= FORWARD64_MAX_LAYERS || !f->no_ffn[i]) add_post_norms(m, i);
}

static inline void add_plain_ff(struct maker *m, int i) {
    const struct forward64 *f = &m->f;
    bool fused = m->have & FUSED;
    if (!fused && !f->ungated) add_matrix(m, i, "ffn_gate.weight", f->n_ff, f->n_embd);
    add_matrix(m, i, "ffn_up.weight", fused ? 2 * (uint64_t)f->n_ff : f->n_ff, f->n_embd);
    add_matrix(m, i, "ffn_down.weight", f->n_embd, f->n_ff);
    if (!(m->have & FF_BIAS)) return;
    if (!f->ungated) add_vector(m, i, "ffn_gate.bias", f->n_ff, false);
    add_vector(m, i, "ffn_up.bias", f->n_ff, false);
    add_vector(m, i, "ffn_down.bias", f->n_embd, false);
}

static inline void add_experts(struct maker *m, int i) {
    const struct forward64 *f = &m->f;
    uint64_t n = f->n_experts, ff = f->n_ff_expert, shared = f->n_ff_shared;
    uint64_t latent = f->n_latent, embd = latent ? latent : f->n_embd;
    bool gated = !f->ungated;
    add_matrix(m, i, "ffn_gate_inp.weight", n, f->n_embd);
    if (latent) add_matrix(m, i, "ffn_latent_down.weight", latent, f->n_embd);
    if (latent) add_matrix(m, i, "ffn_latent_up.weight", f->n_embd, latent);
    if (m->have & CHOICE_BIAS) add_vector(m, i, "exp_probs_b.bias", n, false);
    if (m->have & BARE_BIAS) add_vector(m, i, "exp_probs_b", n, false);
    bool fused = m->have & GATE_UP_FUSED;
    if (fused) add(m, i, &(struct shape){"ffn_gate_up_exps.weight", embd, 2 * ff, n, false, NULL});
    if (!fused && gated)
        add(m, i, &(struct shape){"ffn_gate_exps.weight", embd, ff, n, false, NULL});
    if (!fused) add(m, i, &(struct shape){"ffn_up_exps.weight", embd, ff, n, false, NULL});
    add(m, i, &(struct shape){"ffn_down_exps.weight", ff, embd, n, false, NULL});
    if (m->have & EXPERT_BIAS) {
        add_vector(m, i, "ffn_gate_inp.bias", n, false);
        add_matrix(m, i, "ffn_gate_exps.bias", n, ff);
        add_matrix(m, i, "ffn_up_exps.bias", n, ff);
        add_matrix(m, i, "ffn_down_exps.bias", n, embd);
    }
    if (!shared) return;
    if (!(m->have & UNGATED) && !f->kv_rank)
        add_vector(m, i, "ffn_gate_inp_shexp.weight", f->n_embd, false);
    if (gated) add_matrix(m, i, "ffn_gate_shexp.weight", shared, f->n_embd);
    add_matrix(m, i, "ffn_up_shexp.weight", shared, f->n_embd);
    add_matrix(m, i, "ffn_down_shexp.weight", f->n_embd, shared);
}

/* ---- files ---- */

/* Odd halves, unless the kernels support only sizes of real models (be_has). */
static inline uint32_t head_dim(void) {
    return be_only && be_is_device_set(be_only) ? 16 : 14;
}

/* Sizes that are odd where allowed; no special features. */
static inline void start(struct maker *m, const char *arch, unsigned have) {
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
static inline void plain_rope(struct maker *m, uint32_t n_rot, double base, double local_base) {
    for (int i = 0; i < 2; i++) {
        m->f.rope[i].n_rot = n_rot;
        m->f.rope[i].magnitude = 1;
        rope64_plain(i ? local_base : base, (int)n_rot, m->f.rope[i].inv_freq);
    }
    set_u32(m, "rope.dimension_count", n_rot);
    set_f32(m, "rope.freq_base", base);
}

/* Windowed layers: all but every period-th. */
static inline void window(struct maker *m, uint32_t n, uint32_t period) {
    m->f.window = n;
    for (uint32_t i = 0; i < m->f.n_layers; i++)
        m->f.windowed[i] = !period || (i + 1) % period != 0;
    set_u32(m, "attention.sliding_window", n);
}

static inline void experts(struct maker *m, uint32_t n, uint32_t n_used, uint32_t n_ff) {
    m->f.n_experts = n;
    m->f.n_used = n_used;
    m->f.n_ff_expert = n_ff;
    set_u32(m, "expert_count", n);
    set_u32(m, "expert_used_count", n_used);
    set_u32(m, "expert_feed_forward_length", n_ff);
}

static inline void add_gemma4_layer(struct maker *m, int i) {
    const struct forward64 *f = &m->f;
    const bool windowed = f->windowed[i], shared = i >= (int)(f->n_layers - f->n_shared_kv);
    const uint64_t dim = windowed ? f->window_head_dim : f->head_dim, heads = f->n_heads * dim;
    const uint64_t kv = dim * (windowed ? f->n_window_kv_heads : f->n_kv_heads);
    const uint64_t ff = shared ? f->n_ff_shared_kv : f->n_ff;
    static const char *const norms[] = {"attn_norm.weight", "post_attention_norm.weight",
                                        "ffn_norm.weight", "post_ffw_norm.weight"};
    static const char *const more[] = {"pre_ffw_norm_2.weight", "post_ffw_norm_1.weight",
                                       "post_ffw_norm_2.weight", "ffn_gate_inp.scale"};
    for (int k = 0; k < 4; k++)
        add_vector(m, i, norms[k], f->n_embd, true);
    for (int k = 0; k < 4 && f->n_experts; k++)
        add_vector(m, i, more[k], f->n_embd, true);
    add_matrix(m, i, "attn_q.weight", heads, f->n_embd);
    float q_norm[512]; /* wide heads: scores with a deviation near 1, as attention does not scale */
    be_fill(q_norm, dim, 0.2f);
    for (uint64_t k = 0; k < dim; k++)
        q_norm[k] = (1 + q_norm[k]) * (dim < 256 ? 1 : 1 / sqrtf((float)dim));
    add(m, i, &(struct shape){.name = "attn_q_norm.weight", .n_in = dim, .values = q_norm});
    if (!shared) add_matrix(m, i, "attn_k.weight", kv, f->n_embd);
    if (!shared) add_vector(m, i, "attn_k_norm.weight", dim, true);
    if (!shared && (windowed || !m->v_is_k)) add_matrix(m, i, "attn_v.weight", kv, f->n_embd);
    add_matrix(m, i, "attn_output.weight", f->n_embd, heads);
    add_matrix(m, i, "ffn_gate.weight", ff, f->n_embd);
    add_matrix(m, i, "ffn_up.weight", ff, f->n_embd);
    add_matrix(m, i, "ffn_down.weight", f->n_embd, ff);
    if (i) add_vector(m, i, "layer_output_scale.weight", 1, true); /* the first has none */
    if (f->n_experts) add_experts(m, i);
    if (m->have & GATE_UP_FUSED) add_vector(m, i, "ffn_down_exps.scale", f->n_experts, true);
    if (!f->n_per_layer) return;
    add_matrix(m, i, "inp_gate.weight", f->n_per_layer, f->n_embd);
    add_matrix(m, i, "proj.weight", f->n_embd, f->n_per_layer);
    add_vector(m, i, "post_norm.weight", f->n_embd, true);
}

static inline void add_layer(struct maker *m, int i) {
    const struct forward64 *f = &m->f;
    if (f->gemma4) {
        add_gemma4_layer(m, i);
        return;
    }
    const bool within = i < FORWARD64_MAX_LAYERS, recurrent = within && f->recurrent[i];
    if (recurrent && f->mamba2 && !f->parallel)
        add_vector(m, i, "attn_norm.weight", f->n_embd, true);
    if (recurrent && f->mamba2) add_mamba2(m, i);
    if (recurrent && f->mamba2 && !f->parallel && !f->no_ffn[i]) add_post_norms(m, i);
    if (recurrent && f->kda)
        add_kda(m, i);
    else if (recurrent && !f->mamba2)
        f->short_conv ? add_short_conv(m, i) : add_delta_net(m, i);
    if (within && f->no_mixer[i])
        add_vector(m, i, "attn_norm.weight", f->n_embd, true);
    else if (!recurrent || f->parallel)
        add_attention(m, i);
    if (within && f->no_ffn[i]) return;
    f->n_experts && !(within && m->dense[i]) ? add_experts(m, i) : add_plain_ff(m, i);
}

static inline void finish(struct maker *m) {
    const struct forward64 *f = &m->f;
    err e = {0};
    set_u32(m, "context_length", 512);
    set_u32(m, "block_count", f->n_layers + m->n_predicting);
    set_u32(m, "embedding_length", f->n_embd);
    if (!m->n_ff_list) set_u32(m, "feed_forward_length", f->n_ff);
    if (!m->n_heads_list) set_u32(m, "attention.head_count", f->n_heads);
    if (!m->n_kv_list) set_u32(m, "attention.head_count_kv", f->n_kv_heads);
    const bool old = m->have & KV_B;
    set_u32(m, "attention.key_length", old ? f->k_dim : f->head_dim);
    set_u32(m, "attention.value_length",
            old          ? f->v_dim
            : f->kv_rank ? f->kv_rank
            : f->v_head  ? f->v_head
                         : f->head_dim);
    set_f32(m, f->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
            f->eps);
    if (m->have & NORM_BIAS) add_vector(m, -1, "output_norm.bias", f->n_embd, false);
    add_matrix(m, -1, "token_embd.weight", N_VOCAB, f->n_embd);
    add_vector(m, -1, f->short_conv ? "token_embd_norm.weight" : "output_norm.weight", f->n_embd,
               true);
    if (m->have & UNTIED) add_matrix(m, -1, "output.weight", N_VOCAB, f->n_embd);
    for (int i = 0; i < (int)f->n_layers; i++)
        add_layer(m, i);
    for (uint32_t i = 0; i < m->n_predicting; i++) {
        add_attention(m, (int)(f->n_layers + i));
        add_matrix(m, (int)(f->n_layers + i), "nextn.eh_proj.weight", f->n_embd, 2 * f->n_embd);
    }
    runner_need(gguf_writer_finish(m->w, path, &e), &e);
    gguf_writer_free(m->w);
    for (int i = 0; i < m->n_data; i++)
        free(m->data[i]);
}

/* n ranks can share the model (recurrent: as model_ranks_check says): each has heads of K and V of
 * its own, no norm is over all heads, and a rank's heads are whole blocks. */
static inline bool is_for_ranks(const struct maker *m, uint32_t n) {
    struct model_hparams hp;
    err e = {0};
    runner_need(model_read_hparams(path, &hp, &e), &e);
    for (uint32_t i = 0; i < hp.n_layers; i++) {
        const uint32_t cols =
            model_n_heads(&hp, i) * (hp.v_dim ? hp.v_dim : model_head_dim(&hp, hp.layers[i]));
        if (m->type != QTYPE_F32 && cols % Q_ELEMS == 0 && cols / n % Q_ELEMS != 0) return false;
        if (model_n_kv_heads(&hp, hp.layers[i]) % n || model_n_heads(&hp, i) % n) return false;
    }
    if (hp.recurrent.n_layers) return model_ranks_check(&hp, n, &e) == 0;
    return !m->f.kv_rank && !(m->have & QK_ROW_NORM);
}

/* Delta nets except in every interval-th layer; gated attention with a part of a head rotated. */
static inline void delta_nets(struct maker *m, uint32_t interval, uint32_t n_taps,
                              uint32_t n_k_heads, uint32_t n_v_heads, uint32_t dim) {
    m->f.ffn_norm_is_post_attention = m->f.attention_gate = true;
    m->f.n_taps = n_taps;
    m->f.n_k_heads = n_k_heads;
    m->f.n_v_heads = n_v_heads;
    m->f.state_dim = dim;
    for (uint32_t i = 0; i < m->f.n_layers; i++)
        m->f.recurrent[i] = (i + 1) % interval != 0;
    set_u32(m, "ssm.conv_kernel", n_taps);
    set_u32(m, "ssm.group_count", n_k_heads);
    set_u32(m, "ssm.time_step_rank", n_v_heads);
    set_u32(m, "ssm.state_size", dim);
    set_u32(m, "ssm.inner_size", n_v_heads * dim);
    plain_rope(m, 6, 10000, 10000);
}

/* Heads of Mamba-2: n_groups groups of state dimensions, n_heads heads of dim. */
static inline void mamba2(struct maker *m, uint32_t n_taps, uint32_t n_groups, uint32_t state,
                          uint32_t n_heads, uint32_t dim) {
    m->f.mamba2 = true;
    m->f.n_taps = n_taps;
    m->f.n_k_heads = n_groups;
    m->f.state_dim = state;
    m->f.n_v_heads = n_heads;
    m->f.value_dim = dim;
    set_u32(m, "ssm.conv_kernel", n_taps);
    set_u32(m, "ssm.group_count", n_groups);
    set_u32(m, "ssm.time_step_rank", n_heads);
    set_u32(m, "ssm.state_size", state);
    set_u32(m, "ssm.inner_size", n_heads * dim);
}

/* Attention where n_kv is not 0, elsewhere Mamba-2; with n_ff, where that is not 0, an FFN alone.
 */
static inline void lay_mamba2(struct maker *m, const int32_t *n_kv, const int32_t *n_ff) {
    m->n_kv_list = true;
    m->n_ff_list = n_ff != NULL;
    for (uint32_t i = 0; i < m->f.n_layers; i++) {
        m->f.no_mixer[i] = n_ff && n_ff[i];
        m->f.no_ffn[i] = n_ff && !n_ff[i];
        m->f.recurrent[i] = !n_kv[i] && !m->f.no_mixer[i];
    }
    set_i32s(m, "attention.head_count_kv", n_kv, m->f.n_layers);
    if (n_ff) set_i32s(m, "feed_forward_length", n_ff, m->f.n_layers);
}

/* Attention where n_kv is not 0, elsewhere a short convolution. */
static inline void short_convs(struct maker *m, uint32_t n_taps, const int32_t *n_kv) {
    m->f.short_conv = m->n_kv_list = true;
    m->f.n_taps = n_taps;
    for (uint32_t i = 0; i < m->f.n_layers; i++)
        m->f.recurrent[i] = !n_kv[i];
    set_i32s(m, "attention.head_count_kv", n_kv, m->f.n_layers);
    set_u32(m, "shortconv.l_cache", n_taps);
    plain_rope(m, head_dim(), 1e6, 1e6);
}

/* Latent attention of 3 heads; q_rank 0: Q in one product. */
static inline void latent_attention(struct maker *m, uint32_t kv_rank, uint32_t q_rank,
                                    uint32_t k_nope, uint32_t n_rot, uint32_t v_dim) {
    m->f.n_heads = 3;
    m->f.n_kv_heads = m->have & KV_B ? 3 : 1; /* what old files say */
    m->f.interleaved = true;
    m->f.kv_rank = kv_rank;
    m->f.q_rank = q_rank;
    m->f.k_dim = k_nope + n_rot;
    m->f.v_dim = v_dim;
    m->f.head_dim = kv_rank + n_rot;
    m->f.attn_scale = 1 / sqrt(m->f.k_dim);
    set_u32(m, "attention.kv_lora_rank", kv_rank);
    if (q_rank) set_u32(m, "attention.q_lora_rank", q_rank);
    if (!(m->have & KV_B)) set_u32(m, "attention.key_length_mla", m->f.k_dim);
    if (!(m->have & KV_B)) set_u32(m, "attention.value_length_mla", v_dim);
    plain_rope(m, n_rot, 10000, 10000);
}

static inline void groups(struct maker *m, uint32_t n, uint32_t n_used) {
    m->f.n_groups = n;
    m->f.n_groups_used = n_used;
    set_u32(m, "expert_group_count", n);
    set_u32(m, "expert_group_used_count", n_used);
}

static inline void shared_experts(struct maker *m, uint32_t n) {
    m->f.n_ff_shared = n * m->f.n_ff_expert;
    set_u32(m, "expert_shared_count", n);
}

/* DeepSeek-V3: groups, bias, YaRN, one dense layer. */
static inline void make_deepseek3(struct maker *m) {
    start(m, "deepseek2", PRE_NORM | CHOICE_BIAS | UNTIED);
    latent_attention(m, 29, 18, 11, 6, 10);
    m->f.rope[0].magnitude = rope64_yarn(10000, 6, 8, 64, true, m->f.rope[0].inv_freq);
    m->f.rope[0].magnitude = 1;
    m->f.attn_scale *= pow(1 + 0.07 * log(8), 2);
    set_text(m, "rope.scaling.type", "yarn");
    set_f32(m, "rope.scaling.factor", 8);
    set_u32(m, "rope.scaling.original_context_length", 64);
    set_f32(m, "rope.scaling.yarn_log_multiplier", 0.07);
    experts(m, 8, 3, 14);
    groups(m, 4, 2);
    shared_experts(m, 1);
    m->dense[0] = true;
    m->f.renormalize = m->f.sigmoid = true;
    m->f.weight_scale = 2.5;
    set_u32(m, "leading_dense_block_count", 1);
    set_u32(m, "expert_gating_func", 2);
    set_f32(m, "expert_weights_scale", 2.5);
    runner_need(gguf_writer_set_bool(m->w, key(m, "expert_weights_norm"), true, NULL), NULL);
}

/* Kimi Linear: latent attention without rotation where n_kv is not 0, else Kimi Delta Attention. */
static inline void make_kimi_linear(struct maker *m, unsigned have, const int32_t *n_kv,
                                    uint32_t n_layers, uint32_t dim) {
    start(m, "kimi-linear", PRE_NORM | CHOICE_BIAS | UNTIED | have);
    m->f.n_layers = n_layers;
    m->f.kda = m->n_kv_list = true;
    m->f.n_taps = 4;
    m->f.state_dim = dim;
    for (uint32_t i = 0; i < n_layers; i++)
        m->f.recurrent[i] = !n_kv[i];
    set_i32s(m, "attention.head_count_kv", n_kv, n_layers);
    set_u32(m, "ssm.conv_kernel", 4);
    set_u32(m, "kda.head_dim", dim);
    latent_attention(m, 29, 0, 11, 6, 10);
    memset(m->f.rope[0].inv_freq, 0, sizeof m->f.rope[0].inv_freq);
    experts(m, 8, 3, 14);
    shared_experts(m, 1);
    m->dense[0] = true;
    m->f.renormalize = m->f.sigmoid = true;
    m->f.weight_scale = 2.446;
    set_u32(m, "leading_dense_block_count", 1);
    set_f32(m, "expert_weights_scale", 2.446);
}

/* The last layer is a convolution. */
static inline void make_lfm2(struct maker *m) {
    static const int32_t n_kv[] = {0, 0, 2, 0, 2, 0};
    start(m, "lfm2", PRE_NORM | QK_HEAD_NORM);
    m->f.n_layers = 6;
    short_convs(m, 3, n_kv);
}

/* The first layer dense; experts by sigmoids, chosen with a bias. */
static inline void make_lfm2moe(struct maker *m) {
    static const int32_t n_kv[] = {0, 2, 0};
    start(m, "lfm2moe", PRE_NORM | QK_HEAD_NORM | CHOICE_BIAS);
    short_convs(m, 4, n_kv);
    experts(m, 6, 3, 22);
    m->dense[0] = true;
    m->f.renormalize = m->f.sigmoid = true;
    m->f.weight_scale = 1.75;
    set_u32(m, "leading_dense_block_count", 1);
    set_u32(m, "expert_gating_func", 2);
    set_f32(m, "expert_weights_scale", 1.75);
}

/* V heads tiled; the last layer is a delta net, and after it comes one that predicts. */
static inline void make_qwen35(struct maker *m) {
    static const int32_t sections[] = {1, 1, 1, 0};
    start(m, "qwen35", PRE_NORM | QK_HEAD_NORM | UNTIED);
    m->f.n_layers = 5;
    m->f.tiled = true;
    delta_nets(m, 4, 4, 2, 6, 16);
    set_sections(m, sections, 4);
}

/* Checks of models on as many ranks. */
enum { MAX_RANKS = 4 };
static uint32_t n_on_ranks[MAX_RANKS + 1];

/* Against the reference with each instruction set, on two ranks too; on more with one of them.
 * Quick: that one on two ranks, the others on one. */
static inline void check(struct maker *m) {
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
        /* Devices have not the ranks of these latent rows: golden models are their test. */
        if (m->f.kv_rank && be_is_device_set(be_isas[k])) continue;
        if (m->f.gemma4 && strcmp(be_isas[k], "cuda") == 0) continue;
        struct forward_case c = {
            .path = path, .isa = be_isas[k], .kv_type = QTYPE_F32, .tolerance = m->tolerance};
        const uint32_t widths[] = {m->f.head_dim,
                                   m->f.gemma4 ? m->f.window_head_dim : m->f.head_dim};
        const bool many = k == 0 || be_is_device_set(be_isas[k]);
        const bool ranks_only =
            be_quick && k == 0 && is_for_ranks(m, 2) && be_has_ranks(be_isas[k], 2);
        if (!ranks_only && be_row_isa(k) && be_has(be_isas[k], widths[0], c.kv_type) &&
            be_has(be_isas[k], widths[1], c.kv_type))
            forward_check(&c, tokens, want);
        const uint32_t most = be_quick ? 1 + many : many ? MAX_RANKS : 2;
        for (c.n_ranks = 2; c.n_ranks <= most; c.n_ranks++) {
            if (!is_for_ranks(m, c.n_ranks) || !be_has_ranks(be_isas[k], c.n_ranks)) continue;
            const struct rng before = be_rng;
            forward_check(&c, tokens, want);
            n_on_ranks[c.n_ranks]++;
            /* So that later models do not depend on it: where quantized ones choose experts by a
             * hair, rounding decides. */
            if (c.n_ranks > 2) be_rng = before;
        }
    }
    free(want);
}

#endif
