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
    m.f.interleaved = true;
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

static void set_reals(struct maker *m, const char *name, const float *v, uint32_t n) {
    err e = {0};
    runner_need(gguf_writer_set_array(m->w, name, GGUF_F32, v, n, &e), &e);
}

/* Heads of layers, windows as listed, and a number of layers; rope of windowed layers is not scaled
 * and turns n_local dimensions. */
static void lay_heads(struct maker *m, uint32_t n_layers, const int32_t *heads, const int32_t *kv,
                      const bool *windowed, uint32_t n_window, uint32_t n_local) {
    m->f.n_layers = n_layers;
    m->n_heads_list = m->n_kv_list = true;
    m->f.window = n_window;
    for (uint32_t i = 0; i < n_layers; i++) {
        m->f.layer_heads[i] = (uint32_t)heads[i];
        m->f.layer_kv[i] = (uint32_t)kv[i];
        m->f.windowed[i] = windowed[i];
    }
    const uint32_t n_all = n_layers + m->n_predicting;
    set_i32s(m, "attention.head_count", heads, n_all);
    set_i32s(m, "attention.head_count_kv", kv, n_all);
    set_u32(m, "attention.sliding_window", n_window);
    set_u32(m, "rope.dimension_count_swa", n_local);
    set_f32(m, "rope.freq_base_swa", 700);
    m->f.rope[1].n_rot = n_local;
    m->f.rope[1].magnitude = 1;
    rope64_plain(700, (int)n_local, m->f.rope[1].inv_freq);
}

/* Experts by sigmoids and a bias; the first layer is dense. */
static void routed_experts(struct maker *m, uint32_t n_shared, double scale) {
    experts(m, 6, 2, 22);
    m->dense[0] = true;
    m->f.sigmoid = m->f.renormalize = true;
    m->f.weight_scale = scale;
    set_u32(m, "leading_dense_block_count", 1);
    set_f32(m, "expert_weights_scale", scale);
    if (n_shared) set_u32(m, "expert_shared_feed_forward_length", n_shared);
    m->f.n_ff_shared = n_shared;
}

/* XS.2: the first of three layers has full attention with YaRN on a part of a head; a softplus gate
 * for each head; three numbers of heads. */
static void test_laguna(void) {
    static const int32_t heads[] = {6, 8, 8, 4}, kv[] = {2, 2, 2, 2};
    static const bool windowed[] = {false, true, true, false};
    struct maker m;
    start(&m, "laguna", PRE_NORM | QK_HEAD_NORM | GATE_APART | UNGATED | CHOICE_BIAS | UNTIED);
    plain_rope(&m, 6, 50000, 50000);
    lay_heads(&m, 4, heads, kv, windowed, 19, head_dim());
    set_bools(&m, "attention.sliding_window_pattern", windowed, 4);
    m.f.rope[0].magnitude = rope64_yarn(50000, 6, 8, 64, true, m.f.rope[0].inv_freq);
    set_text(&m, "rope.scaling.type", "yarn");
    set_f32(&m, "rope.scaling.factor", 8);
    set_u32(&m, "rope.scaling.original_context_length", 64);
    m.f.gate_by_head = m.f.gate_softplus = true;
    routed_experts(&m, 34, 2.5);
    check(&m);
}

/* M.1: no windows, a gate for each dimension; heads are the same in all layers, so ranks share
 * them.
 */
static void test_laguna_full(void) {
    struct maker m;
    start(&m, "laguna", PRE_NORM | QK_HEAD_NORM | GATE_APART | UNGATED | CHOICE_BIAS | UNTIED);
    plain_rope(&m, 6, 50000, 50000);
    m.f.gate_softplus = true;
    routed_experts(&m, 34, 1.5);
    check(&m);
}

/* Half of a head is turned in full layers, with divisors; sigmoid gates; clamped blocks; lists that
 * go on with a layer that predicts. */
static void test_step35(void) {
    static const int32_t heads[] = {6, 8, 6, 8}, kv[] = {2, 1, 2, 1};
    static const bool windowed[] = {false, true, false, true};
    static const float of_experts[] = {0, 0.4f, 0, 0}, of_others[] = {0.5f, 0, 0.3f, 0};
    static const float divisors[] = {1, 2, 3, 1, 1, 1};
    struct maker m;
    start(&m, "step35", PRE_NORM | QK_HEAD_NORM | GATE_APART | UNGATED | CHOICE_BIAS | UNTIED);
    m.n_predicting = 1;
    plain_rope(&m, 12, 50000, 50000);
    m.f.rope[0].n_rot = 6;
    rope64_plain(50000, 6, m.f.rope[0].inv_freq);
    lay_heads(&m, 3, heads, kv, windowed, 19, head_dim());
    set_bools(&m, "attention.sliding_window_pattern", windowed, 4);
    set_u32(&m, "nextn_predict_layers", 1);
    add(&m, -1, &(struct shape){.name = "rope_freqs.weight", .n_in = 6, .values = divisors});
    for (int i = 0; i < 3; i++) {
        m.f.rope[0].inv_freq[i] /= (double)divisors[i];
        m.f.clamp_experts[i] = (double)of_experts[i];
        m.f.clamp[i] = (double)of_others[i];
    }
    set_reals(&m, "step35.swiglu_clamp_exp", of_experts, 4);
    set_reals(&m, "step35.swiglu_clamp_shexp", of_others, 4);
    m.f.gate_by_head = true;
    routed_experts(&m, 34, 3);
    set_bool(&m, "expert_weights_norm", true);
    check(&m);
}

/* Narrower heads of V, whose product is scaled; sinks in windowed layers, which have more KV heads.
 * Two ranks can share those of the second model. */
static void test_mimo2(void) {
    static const int32_t heads[][3] = {{6, 6, 6}, {8, 8, 8}}, kv[][3] = {{2, 3, 3}, {2, 4, 4}};
    static const bool windowed[] = {false, true, true};
    for (int i = 0; i < 2; i++) {
        struct maker m;
        start(&m, "mimo2", PRE_NORM | WINDOW_SINKS | CHOICE_BIAS | UNTIED);
        plain_rope(&m, 6, 50000, 50000);
        lay_heads(&m, 3, heads[i], kv[i], windowed, 19, 6);
        set_bools(&m, "attention.sliding_window_pattern", windowed, 3);
        m.f.v_head = head_dim() - 4;
        m.f.value_scale = 0.7;
        set_f32(&m, "attention.value_scale", 0.7);
        routed_experts(&m, 0, 1);
        check(&m);
    }
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
