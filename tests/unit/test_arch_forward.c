/* test_arch_forward.c - a tiny random file of each architecture with all its features enabled: the
 * forward pass, whole and in chunks, against an independent float64 one (forward64.h). */
#include "arch_forward_hybrid.h"
#include "arch_forward_traits.h"
#include "tests/support/gemma4_make.h"

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

/* YaRN with a multiplier of its logarithm, and Q scaled by the position. */
static void test_mistral3(void) {
    struct maker m;
    start(&m, "mistral3", PRE_NORM | UNTIED);
    m.f.interleaved = true;
    m.f.q_log_scale = (double)0.3f;
    m.f.q_log_length = 32;
    plain_rope(&m, head_dim(), 10000, 10000);
    const double log8 = rope64_yarn(10000, head_dim(), 8, 32, true, m.f.rope[0].inv_freq) - 1;
    m.f.rope[0].magnitude = (1 + log8) / (1 + (double)0.7f * log8);
    set_text(&m, "rope.scaling.type", "yarn");
    set_f32(&m, "rope.scaling.factor", 8);
    set_u32(&m, "rope.scaling.original_context_length", 32);
    set_f32(&m, "rope.scaling.yarn_log_multiplier", 0.7);
    set_f32(&m, "attention.temperature_scale", 0.3);
    check(&m);
}

/* Experts by sigmoids and a bias, a shared one, the first layer dense. count: of the experts that
 * make the shared one. */
static void sigmoid_experts(struct maker *m, uint32_t count) {
    experts(m, 6, 2, 18);
    m->have |= CHOICE_BIAS | UNGATED;
    m->dense[0] = true;
    m->f.sigmoid = m->f.renormalize = true;
    m->f.n_ff_shared = count * 18;
    m->f.weight_scale = 2.5;
    set_u32(m, "leading_dense_block_count", 1);
    set_u32(m, "expert_shared_count", count);
    set_u32(m, "expert_group_count", 1);
    set_u32(m, "expert_group_used_count", 1);
    set_f32(m, "expert_weights_scale", 2.5);
}

/* Part of a head rotated; with and without norms of Q and K; a layer that predicts. */
static void test_glm4moe(void) {
    for (int i = 0; i < 2; i++) {
        struct maker m;
        start(&m, "glm4moe", PRE_NORM | QKV_BIAS | UNTIED | (i ? QK_HEAD_NORM : 0));
        m.f.ffn_norm_is_post_attention = true;
        plain_rope(&m, 8, 10000, 10000);
        sigmoid_experts(&m, 1 + (uint32_t)i);
        m.n_predicting = 1;
        set_u32(&m, "nextn_predict_layers", 1);
        check(&m);
    }
}

static void test_minimax_m2(void) {
    struct maker m;
    start(&m, "minimax-m2", PRE_NORM | QK_ROW_NORM | UNTIED | CHOICE_BIAS);
    plain_rope(&m, 8, 10000, 10000);
    experts(&m, 7, 3, 22);
    m.f.sigmoid = m.f.renormalize = true;
    check(&m);
}

/* Dense, with every bias; with experts in every second layer, chosen with a bias. */
static void test_ernie(void) {
    struct maker m;
    start(&m, "ernie4_5", PRE_NORM | QKV_BIAS | OUT_BIAS | FF_BIAS);
    m.f.interleaved = true;
    plain_rope(&m, head_dim(), 500000, 500000);
    check(&m);
    start(&m, "ernie4_5-moe", PRE_NORM | CHOICE_BIAS | UNGATED);
    m.f.n_layers = 4;
    m.f.interleaved = m.f.renormalize = true;
    m.dense[0] = m.dense[2] = true;
    plain_rope(&m, head_dim(), 500000, 500000);
    experts(&m, 6, 3, 18);
    m.f.n_ff_shared = 30;
    set_u32(&m, "expert_shared_count", 2);
    set_u32(&m, "expert_shared_feed_forward_length", 30);
    set_u32(&m, "interleave_moe_layer_step", 2);
    check(&m);
}

static void test_dots1(void) {
    struct maker m;
    start(&m, "dots1", PRE_NORM | QK_HEAD_NORM | UNTIED);
    plain_rope(&m, head_dim(), 10000, 10000);
    sigmoid_experts(&m, 2);
    m.f.renormalize = false;
    check(&m);
}

/* Layers with full attention have no rope; the list of windows has the layer that predicts. */
static void test_exaone_moe(void) {
    static const bool windowed[] = {true, true, true, false, true, true};
    struct maker m;
    start(&m, "exaone-moe", PRE_NORM | QK_HEAD_NORM | UNTIED);
    m.f.n_layers = 5;
    m.f.no_rope[3] = true;
    plain_rope(&m, head_dim(), 1e6, 1e6);
    window(&m, 13, 4);
    sigmoid_experts(&m, 1);
    m.n_predicting = 1;
    set_u32(&m, "nextn_predict_layers", 1);
    set_bools(&m, "attention.sliding_window_pattern", windowed, 6);
    check(&m);
}

/* The same with norms after the blocks, too, a gate of attention and scaled embeddings. */
static void test_afmoe(void) {
    struct maker m;
    start(&m, "afmoe", PRE_NORM | POST_NORM | QK_HEAD_NORM | GATE_APART | UNTIED);
    m.f.n_layers = 5;
    m.f.no_rope[3] = true;
    m.f.embed_scale = sqrt(36);
    plain_rope(&m, head_dim(), 10000, 10000);
    window(&m, 13, 4);
    sigmoid_experts(&m, 2);
    check(&m);
}

/* Q and K are normed after they are rotated. */
static void test_hunyuan(void) {
    struct maker m;
    start(&m, "hunyuan-dense", PRE_NORM | QK_HEAD_NORM);
    m.f.norm_last = true;
    plain_rope(&m, head_dim(), 11158840, 11158840);
    check(&m);
    start(&m, "hunyuan-moe", PRE_NORM | QK_HEAD_NORM | UNGATED);
    m.f.norm_last = m.f.renormalize = true;
    plain_rope(&m, head_dim(), 11158840, 11158840);
    experts(&m, 5, 2, 22);
    m.f.n_ff_shared = 22;
    set_u32(&m, "expert_shared_count", 1);
    check(&m);
}

/* Only the tensors say which layers are dense. */
static void test_hy_v3(void) {
    struct maker m;
    start(&m, "hy_v3", PRE_NORM | QK_HEAD_NORM | UNTIED | BARE_BIAS | UNGATED);
    plain_rope(&m, head_dim(), 11158840, 11158840);
    experts(&m, 6, 2, 18);
    m.dense[0] = m.dense[2] = true;
    m.f.sigmoid = m.f.renormalize = true;
    m.f.n_ff_shared = 18;
    m.f.weight_scale = (double)2.8f;
    set_f32(&m, "expert_weights_scale", 2.8);
    set_u32(&m, "expert_shared_feed_forward_length", 18);
    check(&m);
}

/* Q, K and V in one tensor, part of a head rotated, experts by groups; a layer that predicts. */
static void test_bailingmoe2(void) {
    struct maker m;
    start(&m, "bailingmoe2", PRE_NORM | QK_HEAD_NORM | FUSED_QKV | UNTIED);
    plain_rope(&m, 8, 600000, 600000);
    experts(&m, 8, 3, 18);
    groups(&m, 4, 2);
    m.have |= CHOICE_BIAS | UNGATED;
    m.dense[0] = true;
    m.f.sigmoid = m.f.renormalize = true;
    m.f.n_ff_shared = 18;
    m.f.weight_scale = 2.5;
    m.n_predicting = 1;
    set_u32(&m, "leading_dense_block_count", 1);
    set_u32(&m, "expert_shared_count", 1);
    set_u32(&m, "expert_gating_func", 2);
    set_u32(&m, "nextn_predict_layers", 1);
    set_f32(&m, "expert_weights_scale", 2.5);
    check(&m);
}

/* Layers without experts between others. */
static void test_dense_layers(void) {
    static const bool dense[] = {false, true, false};
    struct maker m;
    start(&m, "qwen3moe", PRE_NORM | QK_HEAD_NORM | UNTIED);
    plain_rope(&m, head_dim(), 10000, 10000);
    experts(&m, 5, 2, 18);
    m.f.renormalize = true;
    memcpy(m.dense, dense, sizeof dense);
    set_bools(&m, "inferd.dense_layers", dense, 3);
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

static void test_seed_oss(void) {
    struct maker m;
    start(&m, "seed_oss", PRE_NORM | QKV_BIAS | UNTIED);
    m.f.ffn_norm_is_post_attention = true;
    plain_rope(&m, head_dim(), 1e7, 1e7);
    check(&m);
}

/* Every fourth layer has full attention and no RoPE; without windows all have RoPE. */
static void test_exaone4(void) {
    for (int i = 0; i < 2; i++) {
        struct maker m;
        start(&m, "exaone4", POST_NORM | QK_HEAD_NORM | UNTIED);
        m.f.n_layers = 5;
        plain_rope(&m, head_dim(), 1e6, 1e6);
        if (!i) window(&m, 13, 4);
        m.f.no_rope[3] = !i;
        check(&m);
    }
}

/* Squared ReLU without a gate; biases of the FFN. */
static void test_arcee(void) {
    struct maker m;
    start(&m, "arcee", PRE_NORM | FF_BIAS | UNTIED);
    m.f.interleaved = m.f.ungated = true;
    m.f.act = FORWARD64_RELU2;
    plain_rope(&m, head_dim(), 10000, 10000);
    check(&m);
}

static void test_granitemoe(void) {
    struct maker m;
    start(&m, "granitemoe", PRE_NORM);
    m.f.interleaved = m.f.renormalize = true;
    plain_rope(&m, head_dim(), 10000, 10000);
    experts(&m, 6, 3, 26);
    m.f.embed_scale = 4;
    m.f.logit_scale = 1 / 3.0;
    set_f32(&m, "embedding_scale", 4);
    set_f32(&m, "logit_scale", 3);
    check(&m);
}

/* Attention and FFN side by side after one norm; full layers without RoPE. */
static void test_cohere(void) {
    for (int i = 0; i < 2; i++) {
        struct maker m;
        start(&m, i ? "command-r" : "cohere2", PRE_NORM | NO_FFN_NORM);
        m.f.n_layers = 5;
        m.f.interleaved = m.f.layer_norm = m.f.beside = true;
        plain_rope(&m, head_dim(), 50000, 50000);
        if (!i) window(&m, 13, 4);
        m.f.no_rope[3] = !i;
        m.f.logit_scale = 0.25;
        set_f32(&m, "logit_scale", 0.25);
        check(&m);
    }
}

/* Experts beside attention. The first layer is dense, with full attention that is rotated; of the
 * others those without a window are not. RMS norms by their key, or LayerNorm; with a shared expert
 * that the others are averaged with. */
static void test_cohere_moe(void) {
    static const bool windowed[] = {false, true, true, false, true};
    for (int i = 0; i < 2; i++) {
        struct maker m;
        start(&m, i ? "cohere2_moe" : "cohere2moe",
              PRE_NORM | NO_FFN_NORM | UNGATED | (i ? UNTIED : 0));
        m.f.n_layers = 5;
        m.f.interleaved = m.f.beside = true;
        m.f.layer_norm = i;
        plain_rope(&m, head_dim(), 50000, 50000);
        m.f.window = 13;
        memcpy(m.f.windowed, windowed, sizeof windowed);
        set_u32(&m, "attention.sliding_window", 13);
        set_bools(&m, "attention.sliding_window_pattern", windowed, 5);
        m.f.no_rope[3] = true;
        m.f.logit_scale = 0.25;
        set_f32(&m, "logit_scale", 0.25);
        experts(&m, 6, 2, 22);
        m.dense[0] = true;
        set_u32(&m, "leading_dense_block_count", 1);
        m.f.sigmoid = true;
        m.f.renormalize = i;
        set_bool(&m, "expert_weights_norm", i);
        set_u32(&m, "expert_gating_func", 2);
        m.f.averaged = i;
        m.f.n_ff_shared = i ? 44 : 0;
        if (i) set_u32(&m, "expert_shared_count", 2);
        if (!i) set_f32(&m, "attention.layer_norm_epsilon", 0.5f); /* is not used */
        check(&m);
    }
}

/* Biases everywhere; GELU without a gate. */
static void test_starcoder2(void) {
    struct maker m;
    start(&m, "starcoder2", PRE_NORM | NORM_BIAS | QKV_BIAS | OUT_BIAS | FF_BIAS);
    m.f.layer_norm = m.f.ungated = true;
    m.f.act = FORWARD64_GELU_TANH;
    plain_rope(&m, head_dim(), 1e5, 1e5);
    check(&m);
}

/* Part of a head rotated; with and without a norm of its own for the FFN. */
static void test_stablelm(void) {
    for (int i = 0; i < 2; i++) {
        struct maker m;
        start(&m, "stablelm", PRE_NORM | NORM_BIAS | QKV_BIAS | UNTIED | (i ? NO_FFN_NORM : 0));
        m.f.layer_norm = true;
        m.f.beside = i;
        plain_rope(&m, 6, 10000, 10000);
        check(&m);
    }
}

/* The same side by side with two norms, as a key says; quantized weights. */
static void test_gptneox(void) {
    for (int i = 0; i < 3; i++) {
        struct maker m;
        err e = {0};
        start(&m, "gptneox",
              PRE_NORM | NORM_BIAS | FUSED_QKV | QKV_BIAS | OUT_BIAS | FF_BIAS | UNTIED);
        m.f.layer_norm = m.f.ungated = true;
        m.f.beside = i != 1;
        m.f.act = FORWARD64_GELU;
        m.f.n_kv_heads = m.f.n_heads;
        if (i == 2) m.f.n_embd = 64, m.type = QTYPE_Q8_0, m.tolerance = 1e-2;
        plain_rope(&m, 4, 10000, 10000);
        const char *name = key(&m, "use_parallel_residual");
        if (i != 2) runner_need(gguf_writer_set_bool(m.w, name, !i, &e), &e);
        check(&m);
    }
}

/* As DeepSeek-V3, with a layer behind that predicts; as V2-Lite in an old file; as V2 with groups,
 * quantized, new and old; without experts. */
static void test_deepseek2(void) {
    struct maker m;
    make_deepseek3(&m);
    m.n_predicting = 1;
    set_u32(&m, "nextn_predict_layers", 1);
    check(&m);

    start(&m, "deepseek2", PRE_NORM | UNTIED | KV_B);
    latent_attention(&m, 20, 0, 13, 4, 9);
    experts(&m, 6, 2, 12);
    shared_experts(&m, 2);
    m.dense[0] = true;
    m.f.weight_scale = 1.5;
    set_u32(&m, "leading_dense_block_count", 1);
    set_f32(&m, "expert_weights_scale", 1.5);
    check(&m);

    for (int old = 0; old < 2; old++) {
        start(&m, "deepseek2", PRE_NORM | (old ? KV_B : 0));
        m.f.n_embd = 64;
        m.type = QTYPE_Q8_0;
        m.tolerance = 5e-3;
        latent_attention(&m, 64, 32, 32, 16, 32);
        experts(&m, 6, 2, 32);
        groups(&m, 3, 1);
        check(&m);
    }

    start(&m, "deepseek2", PRE_NORM);
    latent_attention(&m, 24, 10, 8, 8, 12);
    set_u32(&m, "leading_dense_block_count", 3);
    check(&m);
}

/* As Mistral Small 4, Q scaled by the position and YaRN; and Mistral Large 3, whose files are
 * deepseek2's with the length of that scale, in one product. */
static void test_mistral4(void) {
    struct maker m;
    for (int large = 0; large < 2; large++) {
        start(&m, large ? "deepseek2" : "mistral4", PRE_NORM | UNTIED);
        latent_attention(&m, 22, large ? 0 : 14, 9, 6, 11);
        m.f.rope[0].magnitude = rope64_yarn(10000, 6, 8, 32, true, m.f.rope[0].inv_freq);
        m.f.rope[0].magnitude = 1;
        m.f.attn_scale *= pow(1 + 0.1 * log(8), 2);
        m.f.q_log_scale = (double)0.3f;
        m.f.q_log_length = large ? 24 : 32;
        set_text(&m, "rope.scaling.type", "yarn");
        set_f32(&m, "rope.scaling.factor", 8);
        set_u32(&m, "rope.scaling.original_context_length", 32);
        set_f32(&m, "rope.scaling.yarn_log_multiplier", 0.1);
        set_f32(&m, "attention.temperature_scale", 0.3);
        if (large) set_u32(&m, "attention.temperature_length", 24);
        experts(&m, 7, 3, 18);
        m.f.renormalize = true;
        set_u32(&m, "expert_gating_func", 1);
        runner_need(gguf_writer_set_bool(m.w, key(&m, "expert_weights_norm"), true, NULL), NULL);
        shared_experts(&m, 1);
        check(&m);
    }
}

/* Heads of two widths; per-layer embeddings and shared K and V; experts beside the FFN, with V from
 * K; quantized, without rope_freqs. */
static void test_gemma4(void) {
    struct maker m;
    make_gemma4_e(&m);
    check(&m);
    for (int fused = 0; fused < 2; fused++) {
        make_gemma4_moe(&m, fused);
        check(&m);
    }
    make_gemma4_moe_of(&m, true, 6, 2); /* for two ranks */
    check(&m);
    start(&m, "gemma4", UNTIED);
    m.f.n_embd = 64;
    m.f.n_ff = 96;
    m.f.n_layers = 4;
    m.type = QTYPE_Q8_0;
    m.tolerance = 1e-2;
    gemma4(&m, 2, 1);
    gemma4_heads(&m, 32, 2, 48, 3);
    check(&m);
    start(&m, "gemma4", 0); /* the widths of real models */
    m.f.n_heads = 1;
    m.f.n_layers = 3;
    gemma4(&m, 3, 0);
    gemma4_heads(&m, 256, 1, 512, 1);
    gemma4_partly(&m, 64);
    check(&m);
}

/* Scores that softmax or sigmoid weights, with a bias for the choice, in another architecture. */
static void test_gating(void) {
    for (int i = 0; i < 4; i++) {
        struct maker m;
        start(&m, "qwen3moe", PRE_NORM | QK_HEAD_NORM | CHOICE_BIAS);
        plain_rope(&m, head_dim(), 10000, 10000);
        experts(&m, 7, 2, 18);
        m.dense[0] = i / 2;
        m.f.renormalize = true;
        m.f.sigmoid = i & 1;
        set_u32(&m, "expert_gating_func", i & 1 ? 2 : 1);
        if (i / 2) set_u32(&m, "leading_dense_block_count", 1);
        check(&m);
    }
}

/* Architectures whose ops another one uses as well: their wiring is the same on every device, so a
 * device's quick set leaves them out. */
#define RUN_ON_CPU(test)                                                                           \
    do {                                                                                           \
        if (!be_quick || !is_device_only()) RUN(test);                                             \
    } while (0)

int main(int argc, char **argv) {
    be_args(argc, argv);
    int fd = mkstemp(path);
    be_need(fd >= 0, "a file");
    close(fd);
    RUN_ON_CPU(test_llama);
    RUN_ON_CPU(test_qwen2);
    RUN_ON_CPU(test_qwen3);
    RUN_ON_CPU(test_gemma);
    RUN(test_gemma2);
    RUN_ON_CPU(test_gemma3);
    RUN_ON_CPU(test_phi3);
    RUN(test_quantized_phi3);
    RUN_ON_CPU(test_olmo2);
    RUN_ON_CPU(test_smollm3);
    RUN_ON_CPU(test_granite);
    RUN_ON_CPU(test_llama_with_experts);
    RUN_ON_CPU(test_qwen2moe);
    RUN_ON_CPU(test_qwen3moe);
    RUN(test_gpt_oss);
    RUN_ON_CPU(test_mistral3);
    RUN_ON_CPU(test_glm4moe);
    RUN_ON_CPU(test_minimax_m2);
    RUN_ON_CPU(test_ernie);
    RUN_ON_CPU(test_dots1);
    RUN_ON_CPU(test_exaone_moe);
    RUN_ON_CPU(test_afmoe);
    RUN_ON_CPU(test_hunyuan);
    RUN_ON_CPU(test_hy_v3);
    RUN_ON_CPU(test_dense_layers);
    RUN_ON_CPU(test_gating);
    if (be_has_op(BACKEND_OP_linear_heads))
        RUN_ON_CPU(test_bailingmoe2); /* such a device has groups of experts, too */
    if (be_has_op(BACKEND_OP_linear_heads))
        RUN(test_deepseek2);
    else
        SKIP("DeepSeek", "this device has no latent attention");
    if (be_has_op(BACKEND_OP_linear_heads)) RUN_ON_CPU(test_mistral4);
    RUN_ON_CPU(test_gemma4);
    RUN_ON_CPU(test_seed_oss);
    RUN_ON_CPU(test_exaone4);
    RUN_ON_CPU(test_arcee);
    RUN_ON_CPU(test_granitemoe);
    RUN_ON_CPU(test_cohere);
    RUN(test_cohere_moe);
    RUN(test_starcoder2);
    RUN_ON_CPU(test_stablelm);
    RUN_ON_CPU(test_gptneox);
    RUN(test_llama4);
    RUN_ON_CPU(test_llama4_unnormed);
    RUN_ON_CPU(test_llama4_full);
    RUN(test_glimmer);
    RUN_ON_CPU(test_laguna);
    RUN_ON_CPU(test_laguna_full);
    RUN(test_step35);
    RUN_ON_CPU(test_mimo2);
    RUN_ON_CPU(test_gpt2);
    RUN_ON_CPU(test_mpt);
    RUN(test_bloom);
    RUN(test_apertus);
    RUN(test_phimoe);
    if (be_has_op(BACKEND_OP_short_conv)) {
        RUN_ON_CPU(test_lfm2);
        RUN(test_lfm2moe);
    } else {
        SKIP("LFM2", "this device has no short convolutions");
    }
    if (be_has_op(BACKEND_OP_linear_attention)) {
        RUN(test_kimi_linear);
        RUN_ON_CPU(test_qwen35);
        RUN_ON_CPU(test_grouped_qwen35);
        RUN(test_quantized_qwen35);
        RUN(test_qwen35moe);
        RUN_ON_CPU(test_qwen3next);
        RUN_ON_CPU(test_granitehybrid);
        RUN(test_falcon_h1);
        RUN_ON_CPU(test_nemotron_h);
        RUN(test_nemotron_h_moe);
        if (!be_quick) RUN(test_more_ranks);
    } else {
        SKIP("hybrid models", "this device has no linear attention");
    }
    unlink(path);
    return check_done();
}
