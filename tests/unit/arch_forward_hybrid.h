/* arch_forward_hybrid.h - test_arch_forward's models with recurrent layers. */
#ifndef INFERD_TESTS_ARCH_FORWARD_HYBRID_H
#define INFERD_TESTS_ARCH_FORWARD_HYBRID_H

#include "tests/support/gemma4_make.h"

static void test_qwen35(void) {
    struct maker m;
    make_qwen35(&m);
    m.n_predicting = 1;
    set_u32(&m, "nextn_predict_layers", 1);
    check(&m);
}

/* As in a folder: V heads grouped. Layers by their own list, the first with attention; three taps.
 */
static void test_grouped_qwen35(void) {
    static const bool recurrent[] = {false, true, true};
    struct maker m;
    err e = {0};
    start(&m, "qwen35", PRE_NORM | QK_HEAD_NORM);
    delta_nets(&m, 4, 3, 2, 4, 48);
    memcpy(m.f.recurrent, recurrent, sizeof recurrent);
    set_bools(&m, "attention.recurrent_layers", recurrent, 3);
    runner_need(gguf_writer_set_bool(m.w, key(&m, "inferd.grouped_v_heads"), true, &e), &e);
    check(&m);
}

/* Rows of every head of quantized tensors. */
static void test_quantized_qwen35(void) {
    struct maker m;
    start(&m, "qwen35", PRE_NORM | QK_HEAD_NORM);
    m.f.n_layers = 4;
    m.f.n_embd = 64;
    m.f.tiled = true;
    m.type = QTYPE_Q8_0;
    m.tolerance = 5e-3;
    delta_nets(&m, 2, 4, 2, 4, 64);
    set_u32(&m, "full_attention_interval", 2);
    check(&m);
}

/* The last layer is a delta net; as in old files attn_kv_b, groups of experts, and a first layer
 * with attention; quantized. */
static void test_kimi_linear(void) {
    static const int32_t n_kv[] = {0, 0, 0, 1, 0}, old_n_kv[] = {3, 0, 3};
    struct maker m;
    make_kimi_linear(&m, 0, n_kv, 5, 16);
    check(&m);
    make_kimi_linear(&m, KV_B, old_n_kv, 3, 48);
    groups(&m, 4, 2);
    check(&m);
    make_kimi_linear(&m, 0, n_kv, 4, 128);
    m.f.n_embd = 64;
    m.type = QTYPE_Q8_0;
    m.tolerance = 1e-2;
    check(&m);
}

/* Gate and up of the experts in one tensor; as many V heads as K heads. */
static void test_qwen35moe(void) {
    struct maker m;
    start(&m, "qwen35moe", PRE_NORM | QK_HEAD_NORM | GATE_UP_FUSED);
    m.f.n_layers = 4;
    m.f.tiled = true;
    delta_nets(&m, 4, 2, 3, 3, 32);
    experts(&m, 6, 2, 22);
    m.f.renormalize = true;
    m.f.n_ff_shared = 34;
    set_u32(&m, "expert_shared_feed_forward_length", 34);
    check(&m);
}

/* Projections by K head, as the folders and old files have them; the file says nothing of the
 * interval. */
static void test_qwen3next(void) {
    for (int i = 0; i < 2; i++) {
        struct maker m;
        start(&m, "qwen3next", PRE_NORM | QK_HEAD_NORM | UNTIED | (i ? BY_K_HEAD : 0));
        m.f.n_layers = 4;
        delta_nets(&m, 4, 4, 2, 4, 16);
        experts(&m, 5, 3, 18);
        m.f.renormalize = true;
        m.f.n_ff_shared = 20;
        set_u32(&m, "expert_shared_feed_forward_length", 20);
        check(&m);
    }
}

/* A stand-in takes long: devices compute the second of two variants, which has more. */
static bool is_device_only(void) {
    return be_only && be_is_device_set(be_only);
}

/* Granite 4.0: without RoPE and experts; with both, and a shared expert without a gate. */
static void test_granitehybrid(void) {
    static const int32_t n_kv[] = {0, 2, 0};
    for (int i = is_device_only(); i < 2; i++) {
        struct maker m;
        start(&m, "granitehybrid", PRE_NORM | STATE_NORM | (i ? UNGATED : UNTIED | CONV_BIAS));
        m.f.interleaved = true;
        lay_mamba2(&m, n_kv, NULL);
        mamba2(&m, 4 - (uint32_t)i, 1 + (uint32_t)i, 32, 6, i ? 16 : 48);
        plain_rope(&m, head_dim(), 10000, 10000);
        memset(m.f.no_rope, !i, sizeof m.f.no_rope);
        if (i) set_bool(&m, "rope.scaling.finetuned", true);
        m.f.embed_scale = 4;
        m.f.residual_scale = (double)0.45f;
        m.f.logit_scale = 1 / 3.0;
        set_f32(&m, "embedding_scale", 4);
        set_f32(&m, "residual_scale", 0.45);
        set_f32(&m, "logit_scale", 3);
        if (i) {
            experts(&m, 6, 2, 22);
            m.f.renormalize = true;
            m.f.n_ff_shared = 34;
            set_u32(&m, "expert_shared_feed_forward_length", 34);
        }
        check(&m);
    }
}

/* Attention and Mamba-2 side by side in every layer, without and with a norm of groups. */
static void test_falcon_h1(void) {
    for (int i = is_device_only(); i < 2; i++) {
        struct maker m;
        start(&m, "falcon-h1", PRE_NORM | CONV_BIAS | (i ? STATE_NORM | UNTIED : 0));
        m.f.parallel = true;
        memset(m.f.recurrent, 1, sizeof m.f.recurrent);
        mamba2(&m, 4, i ? 2 : 1, 48, 4, 32); /* ranks share the one group */
        plain_rope(&m, head_dim(), 1e6, 1e6);
        check(&m);
    }
}

/* Layers of one block each, squared ReLU. */
static void test_nemotron_h(void) {
    static const int32_t n_kv[] = {0, 0, 2, 0, 0}, n_ff[] = {0, 54, 0, 54, 0};
    struct maker m;
    start(&m, "nemotron_h", PRE_NORM | STATE_NORM | CONV_BIAS | UNTIED);
    m.f.n_layers = 5;
    m.f.act = FORWARD64_RELU2;
    m.f.ungated = true;
    memset(m.f.no_rope, 1, sizeof m.f.no_rope);
    lay_mamba2(&m, n_kv, n_ff);
    mamba2(&m, 4, 2, 16, 6, 32);
    check(&m);
}

/* Experts by sigmoids and a bias, of all dimensions and of fewer; the last layer has them. */
static void test_nemotron_h_moe(void) {
    static const int32_t n_kv[] = {0, 0, 2, 0}, n_ff[] = {0, 22, 0, 22};
    for (int i = is_device_only(); i < 2; i++) {
        struct maker m;
        start(&m, "nemotron_h_moe", PRE_NORM | STATE_NORM | CHOICE_BIAS | UNGATED);
        m.f.n_layers = 4;
        m.f.act = FORWARD64_RELU2;
        m.f.ungated = true;
        memset(m.f.no_rope, 1, sizeof m.f.no_rope);
        lay_mamba2(&m, n_kv, n_ff);
        mamba2(&m, 2, 1, 64, 3, 16);
        experts(&m, 5, 2, 22);
        m.f.renormalize = m.f.sigmoid = true;
        m.f.weight_scale = 2.5;
        m.f.n_ff_shared = 34;
        m.f.n_latent = i ? 20 : 0;
        set_u32(&m, "expert_shared_feed_forward_length", 34);
        set_f32(&m, "expert_weights_scale", 2.5);
        if (i) set_u32(&m, "moe_latent_size", 20);
        check(&m);
    }
}

static void test_lfm2(void) {
    struct maker m;
    make_lfm2(&m);
    check(&m);
    make_lfm2(&m); /* quantized products */
    m.f.n_embd = 64;
    m.type = QTYPE_Q8_0;
    m.tolerance = 5e-3;
    m.have |= UNTIED;
    check(&m);
}

static void test_lfm2moe(void) {
    struct maker m;
    make_lfm2moe(&m);
    check(&m);
}

/* Twelve heads of everything, which up to four ranks share evenly, or two of them one group. */
static void test_more_ranks(void) {
    static const int32_t n_kv[] = {0, 12, 0};
    struct maker m;
    memset(n_on_ranks, 0, sizeof n_on_ranks);
    for (int i = 0; i < 6; i++) {
        static const char *const names[] = {"qwen35",     "qwen3next", "falcon-h1",
                                            "nemotron_h", "lfm2",      "granitehybrid"};
        const bool attends = i == 0 || i == 1 || i == 4;
        start(&m, names[i], PRE_NORM | (attends ? QK_HEAD_NORM : STATE_NORM | CONV_BIAS));
        m.f.n_heads = m.f.n_kv_heads = 12;
        m.f.tiled = i == 0;
        if (i == 1) {
            m.have |= BY_K_HEAD;
            experts(&m, 5, 2, 18);
            m.f.renormalize = true;
            m.f.n_ff_shared = 20;
            set_u32(&m, "expert_shared_feed_forward_length", 20);
        }
        if (i < 2) {
            m.f.n_layers = 4;
            delta_nets(&m, 4, 4, 12, 24, 16);
        }
        if (i == 2) {
            m.have &= ~(unsigned)STATE_NORM;
            m.f.parallel = true;
            memset(m.f.recurrent, 1, sizeof m.f.recurrent);
            mamba2(&m, 4, 2, 16, 12, 16);
            plain_rope(&m, head_dim(), 1e6, 1e6);
        }
        if (i == 3) {
            static const int32_t n_ff[] = {0, 0, 54};
            m.f.act = FORWARD64_RELU2;
            m.f.ungated = true;
            memset(m.f.no_rope, 1, sizeof m.f.no_rope);
            lay_mamba2(&m, n_kv, n_ff);
            mamba2(&m, 4, 12, 16, 12, 16);
        }
        if (i == 4) short_convs(&m, 3, n_kv);
        if (i == 5) { /* normed as a whole */
            m.f.interleaved = true;
            lay_mamba2(&m, n_kv, NULL);
            mamba2(&m, 4, 1, 32, 12, 16);
            plain_rope(&m, head_dim(), 10000, 10000);
            memset(m.f.no_rope, 1, sizeof m.f.no_rope);
        }
        check(&m);
    }
    printf("     checks on 2, 3 and 4 ranks: %u, %u, %u\n", n_on_ranks[2], n_on_ranks[3],
           n_on_ranks[4]);
    if (!be_only) CHECK(n_on_ranks[3] >= 5 && n_on_ranks[4] >= 6); /* two groups: not on three */
}

#endif
