/* arch_forward_traits.h - test_arch_forward's models with a trait of their own in attention or in
 * the FFN. */
#ifndef INFERD_TESTS_ARCH_FORWARD_TRAITS_H
#define INFERD_TESTS_ARCH_FORWARD_TRAITS_H

#include "tests/support/gemma4_make.h"

/* Chunks of positions with rotation and norms of Q and K, every fourth layer without and with a
 * temperature; experts whose inputs are weighted in every second layer, and a shared one. */
static void make_llama4(struct maker *m) {
    start(m, "llama4", PRE_NORM | UNTIED | UNGATED);
    m->f.n_layers = 4;
    m->f.interleaved = true;
    plain_rope(m, head_dim(), 500000, 500000);
    m->f.window = 24;
    m->f.chunked = true;
    set_u32(m, "attention.chunk_size", 24);
    for (int i = 0; i < 4; i++)
        m->f.windowed[i] = i != 3;
    m->f.no_rope[3] = true;
    m->f.llama4 = m->f.qk_unweighted = true;
    m->f.q_log_scale = 0.3;
    m->f.q_log_length = 16;
    m->f.q_log_from = 1;
    set_f32(m, "attention.temperature_scale", 0.3);
    set_u32(m, "attention.temperature_length", 16);
    experts(m, 5, 2, 22);
    m->f.n_ff_shared = 22;
    m->f.sigmoid = m->f.weighs_input = true;
    m->dense[0] = m->dense[2] = true;
    set_u32(m, "interleave_moe_layer_step", 2);
}

static void test_llama4(void) {
    struct maker m;
    make_llama4(&m);
    check(&m);
}

/* Maverick's layers: no norms of Q and K. */
static void test_llama4_unnormed(void) {
    struct maker m;
    make_llama4(&m);
    m.f.qk_unweighted = false;
    set_bool(&m, "inferd.qk_norm", false);
    check(&m);
}

/* Without windows all layers are rotated, and none has a temperature. */
static void test_llama4_full(void) {
    struct maker m;
    start(&m, "llama4", PRE_NORM | UNTIED | UNGATED);
    m.f.interleaved = true;
    plain_rope(&m, head_dim(), 500000, 500000);
    m.f.llama4 = m.f.qk_unweighted = true;
    set_u32(&m, "attention.sliding_window", 0);
    experts(&m, 4, 1, 22);
    m.f.n_ff_shared = 22;
    m.f.sigmoid = m.f.weighs_input = true;
    check(&m);
}

/* Normed embeddings, gated attention, post-norms with an epsilon of their own; full layers without
 * rotation; scaled and capped logits. */
static void test_glimmer(void) {
    struct maker m;
    start(&m, "muse-glimmer", PRE_NORM | POST_NORM | QK_HEAD_NORM | GATE_APART | UNTIED);
    m.f.n_layers = 5;
    m.f.no_rope[3] = true;
    m.f.embed_rms = true;
    m.f.post_eps = 0.3;
    set_f32(&m, "inferd.post_norm_epsilon", 0.3);
    m.f.logit_scale = 0.4;
    set_f32(&m, "logit_scale", 0.4);
    m.f.logit_softcap = 3;
    set_f32(&m, "final_logit_softcapping", 3);
    plain_rope(&m, head_dim(), 500000, 500000);
    window(&m, 13, 4);
    check(&m);
}

static void without_rope(struct maker *m) {
    for (uint32_t i = 0; i < m->f.n_layers; i++)
        m->f.no_rope[i] = true;
    m->f.layer_norm = m->f.ungated = true;
}

/* Learned positions. */
static void test_gpt2(void) {
    struct maker m;
    start(&m, "gpt2", PRE_NORM | FUSED_QKV | QKV_BIAS | OUT_BIAS | FF_BIAS | NORM_BIAS);
    without_rope(&m);
    m.f.n_kv_heads = 6;
    m.f.act = FORWARD64_GELU_TANH;
    m.f.positions = true;
    add_matrix(&m, -1, "position_embd.weight", 512, m.f.n_embd);
    check(&m);
}

/* ALiBi with 6 heads, which are no power of two. */
static void test_mpt(void) {
    struct maker m;
    start(&m, "mpt", PRE_NORM | FUSED_QKV);
    without_rope(&m);
    m.f.act = FORWARD64_GELU;
    m.f.alibi = 12;
    set_f32(&m, "attention.max_alibi_bias", 12);
    check(&m);
}

/* The same with 8 as the largest bias, and embeddings that are normed. */
static void test_bloom(void) {
    struct maker m;
    start(&m, "bloom", PRE_NORM | FUSED_QKV | QKV_BIAS | OUT_BIAS | FF_BIAS | NORM_BIAS);
    without_rope(&m);
    m.f.n_heads = m.f.n_kv_heads = 4;
    m.f.act = FORWARD64_GELU_TANH;
    m.f.alibi = 8;
    m.f.embed_norm = true;
    add_vector(&m, -1, "token_embd_norm.weight", m.f.n_embd, true);
    add_vector(&m, -1, "token_embd_norm.bias", m.f.n_embd, false);
    check(&m);
}

static void set_reals(struct maker *m, const char *name, const float *v, uint32_t n) {
    err e = {0};
    runner_need(gguf_writer_set_array(m->w, name, GGUF_F32, v, n, &e), &e);
}

/* xIELU with parameters of each layer. */
static void test_apertus(void) {
    static const float alpha_p[] = {0.6f, -0.4f, 2.5f}, alpha_n[] = {-1, 0.8f, 0.1f},
                       beta[] = {0.5f, 0.5f, 0.25f}, eps[] = {-1e-6f, -1e-6f, -1e-6f};
    struct maker m;
    start(&m, "apertus", PRE_NORM | QK_HEAD_NORM | UNTIED);
    plain_rope(&m, head_dim(), 10000, 10000);
    m.f.ungated = true;
    m.f.act = FORWARD64_XIELU;
    for (int i = 0; i < 3; i++)
        m.f.xielu[i] = (struct forward64_xielu){(double)alpha_p[i], (double)alpha_n[i],
                                                (double)beta[i], (double)eps[i]};
    set_reals(&m, "xielu.alpha_p", alpha_p, 3);
    set_reals(&m, "xielu.alpha_n", alpha_n, 3);
    set_reals(&m, "xielu.beta", beta, 3);
    set_reals(&m, "xielu.eps", eps, 3);
    check(&m);
}

/* The sparse mixer; LayerNorm and a bias of the output head; divisors of the frequencies. */
static void test_phimoe(void) {
    static const float near[] = {1, 1.1f, 1.2f, 1.5f, 2, 2, 2, 2},
                       far[] = {1, 2, 4, 8, 12, 12, 12, 12};
    struct maker m;
    start(&m, "phimoe", PRE_NORM | QKV_BIAS | OUT_BIAS | NORM_BIAS | UNTIED);
    const uint32_t n = head_dim() / 2;
    m.f.layer_norm = true;
    set_f32(&m, "attention.layer_norm_rms_epsilon", m.f.eps);
    plain_rope(&m, head_dim(), 10000, 10000);
    set_u32(&m, "rope.scaling.original_context_length", 64);
    set_f32(&m, "rope.scaling.attn_factor", 1.25);
    add(&m, -1, &(struct shape){"rope_factors_short.weight", n, 0, 0, false, near});
    add(&m, -1, &(struct shape){"rope_factors_long.weight", n, 0, 0, false, far});
    for (int k = 0; k < 2; k++) {
        m.f.rope[k].magnitude = (double)1.25f;
        for (uint32_t i = 0; i < n; i++)
            m.f.rope[k].inv_freq[i] /= (double)far[i];
    }
    experts(&m, 6, 2, 22);
    m.f.mixer_noise = 0.1;
    set_f32(&m, "inferd.mixer_limit", 0.2);
    add_vector(&m, -1, "output.bias", N_VOCAB, false);
    check(&m);
}

#endif
