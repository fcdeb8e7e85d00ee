/* test_arch_keys.c - what the keys of a file mean, and which files are refused: by the name of the
 * key or tensor that is wrong. */
#include "tests/support/gemma4_make.h"

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

/* As files of MiMo 2 have a list of flags, and ModernBERT's the name of an activation. */
static void test_forms_of_files(void) {
    static const struct {
        const char *arch, *text;
        int32_t flags[3];
        int code;
    } cases[] = {{"gemma2", NULL, {1, 0, 1}, 0},           {"gemma2", NULL, {1, 2, 1}, ERR_FORMAT},
                 {"gemma2", NULL, {1, -1, 1}, ERR_FORMAT}, {"llama", "silu", {0}, 0},
                 {"llama", "gelu", {0}, ERR_UNSUPPORTED},  {"llama", "", {0}, ERR_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_hparams hp;
        struct maker m;
        err e;
        start(&m, cases[i].arch, cases[i].text ? PRE_NORM : PRE_NORM | POST_NORM);
        if (cases[i].text) set_text(&m, "hidden_activation", cases[i].text);
        if (!cases[i].text) set_i32s(&m, "attention.sliding_window_pattern", cases[i].flags, 3);
        CHECK_MSG(read_file(&m, &hp, &e) == cases[i].code, "case %zu: %s", i, e.msg);
        for (uint32_t l = 0; !cases[i].code && l < 3; l++)
            CHECK(!(hp.layers[l] & MODEL_LAYER_WINDOWED) == !cases[i].flags[l]);
    }
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
        {"llama", PRE_NORM, "attention.temperature_scale", .value = 1, .code = ERR_UNSUPPORTED,
         .says = "temperature_scale"},
        {"llama", PRE_NORM, "attention.temperature_length", .value = 1, .code = ERR_UNSUPPORTED,
         .says = "temperature_length"},
        {"llama", PRE_NORM, "interleave_moe_layer_step", .value = 2, .code = ERR_UNSUPPORTED,
         .says = "interleave_moe_layer_step"},
        {"qwen3", PRE_NORM | QK_HEAD_NORM | GATE_APART, .code = ERR_UNSUPPORTED,
         .says = "attn_gate.weight"},
        {"hunyuan-dense", PRE_NORM, .code = ERR_FORMAT, .says = "attn_q_norm.weight"},
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
    } cases[] = {{"expert_gating_func", 4, ERR_UNSUPPORTED},
                 {"expert_gating_func", 2, 0},
                 {"expert_gating_func", 3, 0},
                 {"expert_gating_func", 1, 0},
                 {"expert_shared_feed_forward_length", 8, ERR_UNSUPPORTED},
                 {"expert_group_count", 1, 0},
                 {"expert_group_count", 2, ERR_UNSUPPORTED},
                 {"expert_shared_count", 1, ERR_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_hparams hp;
        struct maker m;
        err e;
        start(&m, "llama", PRE_NORM);
        experts(&m, 4, 2, 10);
        set_u32(&m, cases[i].key, cases[i].value);
        CHECK_MSG(read_file(&m, &hp, &e) == cases[i].code, "case %zu: %s", i, e.msg);
        CHECK(!cases[i].code || strstr(e.msg, cases[i].key));
    }
}

/* ---- models with recurrent layers ---- */

static void test_recurrent(void) {
    struct model_hparams hp;
    struct maker m;
    err e;
    make_qwen35(&m);
    m.n_predicting = 1;
    set_u32(&m, "nextn_predict_layers", 1);
    CHECK_MSG(read_file(&m, &hp, &e) == 0, "%s", e.msg);
    CHECK(hp.n_layers == 5 && hp.n_kv_layers == 1 && hp.recurrent.n_layers == 4);
    CHECK(hp.layers[2] == MODEL_LAYER_RECURRENT && !hp.layers[3] && hp.layers[4] && !hp.layers[5]);
    CHECK(hp.attention_gate && hp.recurrent.tiled && hp.rope[0].n_rot == 6);
    struct backend_state s = model_state_shape(&hp, 1, 16);
    CHECK(s.chunk == 16 && s.n_taps == 4 && s.n_k_heads == 2 && s.n_v_heads == 6 && s.k_dim == 16 &&
          s.v_dim == 16);
    CHECK(backend_state_ok(&s) && !s.blocks && !s.n_blocks);
    CHECK(model_state_shape(&hp, 2, 16).n_k_heads == 1 &&
          model_state_shape(&hp, 2, 16).n_v_heads == 3);
    hp.n_heads = hp.n_kv_heads = 12;
    CHECK(model_ranks_check(&hp, 2, &e) == 0);
    CHECK(model_ranks_check(&hp, 4, &e) == ERR_UNSUPPORTED &&
          strstr(e.msg, "2 K heads, 6 V heads"));
    CHECK_MSG(strstr(e.msg, "n_ranks = 2 fits"), "%s", e.msg);
    hp.recurrent.mamba2 = true, hp.recurrent.n_v_heads = 12;
    CHECK(model_ranks_check(&hp, 4, &e) == 0); /* two ranks share a group */
    CHECK(model_state_shape(&hp, 4, 16).n_k_heads == 1 &&
          model_state_shape(&hp, 4, 16).n_v_heads == 3);
    CHECK(model_ranks_check(&hp, 3, &e) == ERR_UNSUPPORTED && strstr(e.msg, "2 K heads (groups)"));
    hp.recurrent.normed = true, hp.recurrent.n_norm_groups = 2;
    CHECK(model_ranks_check(&hp, 4, &e) == ERR_UNSUPPORTED &&
          strstr(e.msg, "2 groups that are normed"));
    CHECK(model_ranks_check(&hp, 2, &e) == 0);
    hp.recurrent.n_norm_groups = 1;
    CHECK(model_ranks_check(&hp, 2, &e) == 0); /* the ranks join what is normed */
    hp.layers[0] |= MODEL_LAYER_PARALLEL;
    CHECK(model_ranks_check(&hp, 2, &e) == ERR_UNSUPPORTED);
    CHECK_MSG(strstr(e.msg, "ssm_norm has one group") && strstr(e.msg, "on one device"), "%s",
              e.msg);
    uint64_t n_params = hp.n_params;
    make_qwen35(&m); /* what is not loaded does not count */
    CHECK(read_file(&m, &hp, &e) == 0 && hp.n_params == n_params);
    start(&m, "qwen3next", PRE_NORM | QK_HEAD_NORM);
    delta_nets(&m, 2, 4, 1, 2, 16);
    experts(&m, 4, 2, 10);
    m.f.n_ff_shared = 20;
    set_u32(&m, "expert_shared_feed_forward_length", 20);
    set_u32(&m, "full_attention_interval", 2);
    CHECK_MSG(read_file(&m, &hp, &e) == 0, "%s", e.msg);
    CHECK(hp.n_kv_layers == 1 && !hp.recurrent.tiled && hp.experts.renormalize);
    start(&m, "llama", PRE_NORM);
    CHECK(read_file(&m, &hp, &e) == 0 && hp.n_kv_layers == 3 && !hp.recurrent.n_layers);
    CHECK(model_state_shape(&hp, 1, 16).n_v_heads == 0 && !hp.attention_gate);
}

/* A qwen35 file, or a qwen3next one with projections by K head, that is spoilt in one way. */
static void refuse(const struct spoilt *how, bool by_k_head, int code, const char *says) {
    struct model_hparams hp;
    struct maker m;
    err e;
    spoilt = *how;
    if (by_k_head) {
        start(&m, "qwen3next", PRE_NORM | QK_HEAD_NORM | BY_K_HEAD);
        m.f.n_layers = 4;
        delta_nets(&m, 4, 4, 2, 4, 16);
        experts(&m, 4, 2, 10);
        m.f.n_ff_shared = 20;
        set_u32(&m, "expert_shared_feed_forward_length", 20);
    } else {
        make_qwen35(&m);
    }
    if (how->key && !how->absent) set_u32(&m, how->key, how->value);
    int rc = read_file(&m, &hp, &e);
    CHECK_MSG(rc == code && strstr(e.msg, says), "%s: %d, \"%s\" instead of %d, \"%s\"",
              how->key         ? how->key
              : how->no_tensor ? how->no_tensor
                               : how->long_tensor,
              rc, e.msg, code, says);
    spoilt = (struct spoilt){0};
}

static void test_recurrent_keys(void) {
    static const struct {
        const char *key;
        uint32_t value;
        int code;
        const char *says; /* NULL: the key */
    } cases[] = {
        {"ssm.conv_kernel", 0, ERR_FORMAT, NULL},
        {"ssm.conv_kernel", 1, ERR_UNSUPPORTED, NULL},
        {"ssm.conv_kernel", 5, ERR_UNSUPPORTED, NULL},
        {"ssm.state_size", 0, ERR_FORMAT, NULL},
        {"ssm.state_size", 24, ERR_UNSUPPORTED, NULL},
        {"ssm.state_size", 144, ERR_UNSUPPORTED, NULL},
        {"ssm.group_count", 0, ERR_FORMAT, NULL},
        {"ssm.group_count", 4, ERR_FORMAT, "6 V heads cannot share 4 K heads"},
        {"ssm.group_count", 12, ERR_FORMAT, "ssm.time_step_rank"},
        {"ssm.time_step_rank", 5, ERR_FORMAT, NULL},
        {"ssm.time_step_rank", 2000, ERR_FORMAT, NULL},
        {"ssm.time_step_rank", 4, ERR_UNSUPPORTED, "ssm.inner_size"},
        {"ssm.inner_size", 192, ERR_UNSUPPORTED, NULL},
        {"full_attention_interval", 0, ERR_FORMAT, NULL},
        {"full_attention_interval", 9, ERR_UNSUPPORTED, NULL},
        {"full_attention_interval", 5, ERR_UNSUPPORTED, "blk.3.attn_q.weight"},
        {"nextn_predict_layers", 5, ERR_FORMAT, NULL},
        {"nextn_predict_layers", 2000, ERR_FORMAT, NULL},
        {"expert_count", 4, ERR_UNSUPPORTED, NULL},
    };
    static const char *const needed[] = {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count",
                                         "ssm.time_step_rank", "ssm.inner_size"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse(&(struct spoilt){.key = cases[i].key, .value = cases[i].value}, false, cases[i].code,
               cases[i].says ? cases[i].says : cases[i].key);
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        refuse(&(struct spoilt){.key = needed[i], .absent = true}, false, ERR_NOT_FOUND, needed[i]);
}

static void test_recurrent_tensors(void) {
    static const char *const names[] = {"attn_qkv.weight",    "attn_gate.weight",
                                        "ssm_alpha.weight",   "ssm_beta.weight",
                                        "ssm_conv1d.weight",  "ssm_a",
                                        "ssm_dt.bias",        "ssm_norm.weight",
                                        "ssm_out.weight",     "post_attention_norm.weight",
                                        "attn_norm.weight",   "attn_q.weight",
                                        "attn_q_norm.weight", "attn_k_norm.weight",
                                        "attn_output.weight", "ffn_gate.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        refuse(&(struct spoilt){.no_tensor = names[i]}, false, ERR_FORMAT, names[i]);
        refuse(&(struct spoilt){.long_tensor = names[i]}, false, ERR_FORMAT, names[i]);
    }
    refuse(&(struct spoilt){.long_tensor = "ssm_in.weight"}, true, ERR_FORMAT, "ssm_in.weight");
    refuse(&(struct spoilt){.long_tensor = "ssm_ba.weight"}, true, ERR_FORMAT, "ssm_ba.weight");
    refuse(&(struct spoilt){.no_tensor = "ssm_in.weight"}, true, ERR_FORMAT, "attn_qkv.weight");
    refuse(&(struct spoilt){.no_tensor = "ssm_ba.weight"}, true, ERR_FORMAT, "ssm_alpha.weight");
}

/* Q without the rows of its gate; layers that the list of flags and the tensors disagree on. */
static void test_recurrent_layers(void) {
    static const bool flags[] = {true, true, true, false, true};
    struct model_hparams hp;
    struct maker m;
    err e;
    make_qwen35(&m);
    m.f.attention_gate = false;
    CHECK(read_file(&m, &hp, &e) == ERR_FORMAT && strstr(e.msg, "blk.3.attn_q.weight"));
    make_qwen35(&m);
    set_bools(&m, "attention.recurrent_layers", flags, 4);
    CHECK(read_file(&m, &hp, &e) == ERR_FORMAT && strstr(e.msg, "array of 5 bools"));
    make_qwen35(&m);
    set_bools(&m, "attention.recurrent_layers", flags + 1, 4);
    CHECK(read_file(&m, &hp, &e) == ERR_FORMAT);
    make_qwen35(&m);
    memset(m.f.recurrent, 1, 5);
    set_bools(&m, "attention.recurrent_layers", m.f.recurrent, 5);
    CHECK(read_file(&m, &hp, &e) == ERR_UNSUPPORTED && strstr(e.msg, "recurrent_layers"));
    make_qwen35(&m);
    m.n_predicting = 1; /* no key says that there is one */
    CHECK(read_file(&m, &hp, &e) == ERR_UNSUPPORTED && strstr(e.msg, "blk.5."));
    start(&m, "llama", PRE_NORM);
    set_u32(&m, "ssm.conv_kernel", 4);
    CHECK(read_file(&m, &hp, &e) == ERR_UNSUPPORTED && strstr(e.msg, "ssm.conv_kernel"));
}

/* Sections are accepted if they make plain rope of text positions. */
static void test_sections(void) {
    static const struct {
        int32_t v[4];
        uint32_t n;
        int code;
    } cases[] = {{{11, 11, 10, 0}, 4, 0},
                 {{1, 1, 1, 0}, 3, 0},
                 {{2, 1, 0, 1}, 4, ERR_UNSUPPORTED},
                 {{0, 0, 0, 3}, 4, ERR_UNSUPPORTED},
                 {{0}, 4, ERR_FORMAT},
                 {{3, -1, 1, 0}, 4, ERR_FORMAT},
                 {{1, 1, 0, 0}, 2, ERR_FORMAT}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_hparams hp;
        struct maker m;
        err e;
        start(&m, "qwen35", PRE_NORM | QK_HEAD_NORM);
        delta_nets(&m, 2, 4, 1, 2, 16);
        set_u32(&m, "full_attention_interval", 2);
        set_sections(&m, cases[i].v, cases[i].n);
        int rc = read_file(&m, &hp, &e);
        CHECK_MSG(rc == cases[i].code, "case %zu: %d, %s", i, rc, e.msg);
        CHECK(!rc || strstr(e.msg, "rope.dimension_sections"));
    }
}

/* ---- models with short convolutions ---- */

static void test_short_convs(void) {
    struct model_hparams hp;
    struct maker m;
    err e;
    make_lfm2(&m);
    CHECK_MSG(read_file(&m, &hp, &e) == 0, "%s", e.msg);
    CHECK(hp.n_layers == 6 && hp.n_kv_layers == 2 && hp.recurrent.n_layers == 4);
    CHECK(hp.layers[0] == MODEL_LAYER_RECURRENT && !hp.layers[2] && hp.n_kv_heads == 2);
    struct backend_state s = model_state_shape(&hp, 1, 32);
    CHECK(backend_state_ok(&s) && s.channels == 36 && s.n_taps == 3 && !s.n_v_heads);
    hp.n_heads = hp.n_kv_heads = 40;
    CHECK(model_ranks_check(&hp, 4, &e) == 0 && model_state_shape(&hp, 4, 32).channels == 9);
    CHECK(model_ranks_check(&hp, 8, &e) == ERR_UNSUPPORTED && strstr(e.msg, "36 channels"));
    make_lfm2moe(&m);
    CHECK_MSG(read_file(&m, &hp, &e) == 0, "%s", e.msg);
    CHECK(hp.experts.n_dense == 1 && hp.experts.gating == BACKEND_GATING_SIGMOID);
    CHECK(hp.experts.renormalize && hp.experts.weight_scale == 1.75f);
    start(&m, "lfm2", PRE_NORM | QK_HEAD_NORM); /* a number instead of a list: only attention */
    m.f.short_conv = true;
    CHECK_MSG(read_file(&m, &hp, &e) == 0, "%s", e.msg);
    CHECK(hp.n_kv_layers == 3 && !hp.recurrent.n_layers && !model_state_shape(&hp, 1, 16).channels);
}

/* An lfm2moe file that is spoilt in one way. */
static void refuse_short_conv(const struct spoilt *how, int code, const char *says) {
    struct model_hparams hp;
    struct maker m;
    err e;
    spoilt = *how;
    make_lfm2moe(&m);
    int rc = read_file(&m, &hp, &e);
    CHECK_MSG(rc == code && strstr(e.msg, says), "%d, \"%s\" instead of %d, \"%s\"", rc, e.msg,
              code, says);
    spoilt = (struct spoilt){0};
}

static void test_short_conv_refusals(void) {
    static const struct {
        const char *key;
        uint32_t value;
        int code;
    } cases[] = {
        {"shortconv.l_cache", 0, ERR_FORMAT},       {"shortconv.l_cache", 1, ERR_UNSUPPORTED},
        {"shortconv.l_cache", 5, ERR_UNSUPPORTED},  {"leading_dense_block_count", 4, ERR_FORMAT},
        {"expert_gating_func", 4, ERR_UNSUPPORTED}, {"expert_used_count", 7, ERR_FORMAT},
        {"feed_forward_length", 0, ERR_FORMAT}};
    static const char *const names[] = {"shortconv.in_proj.weight",  "shortconv.conv.weight",
                                        "shortconv.out_proj.weight", "token_embd_norm.weight",
                                        "attn_norm.weight",          "ffn_norm.weight",
                                        "attn_q_norm.weight",        "ffn_gate_inp.weight",
                                        "ffn_down_exps.weight",      "ffn_gate.weight"};
    static const int32_t lists[][3] = {{0, 0, 0}, {0, 7, 0}, {0, -1, 2}};
    struct model_hparams hp;
    struct maker m;
    err e;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse_short_conv(&(struct spoilt){.key = cases[i].key, .value = cases[i].value},
                          cases[i].code, cases[i].key);
    refuse_short_conv(&(struct spoilt){.key = "shortconv.l_cache", .absent = true}, ERR_NOT_FOUND,
                      "shortconv.l_cache");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        refuse_short_conv(&(struct spoilt){.no_tensor = names[i]}, ERR_FORMAT, names[i]);
        refuse_short_conv(&(struct spoilt){.long_tensor = names[i]}, ERR_FORMAT, names[i]);
    }
    refuse_short_conv(&(struct spoilt){.long_tensor = "exp_probs_b.bias"}, ERR_FORMAT,
                      "exp_probs_b.bias");
    for (int i = 0; i < 4; i++) { /* no attention, too many heads, too few, another length */
        start(&m, "lfm2", PRE_NORM | QK_HEAD_NORM);
        short_convs(&m, 3, lists[i % 3]);
        if (i == 3) m.f.n_layers = 4;
        int rc = read_file(&m, &hp, &e);
        CHECK_MSG(rc == (i ? ERR_FORMAT : ERR_UNSUPPORTED) && strstr(e.msg, "head_count_kv"),
                  "list %d: %d, %s", i, rc, e.msg);
    }
    start(&m, "lfm2", PRE_NORM | QK_HEAD_NORM);
    m.f.short_conv = m.n_kv_list = true;
    set_bools(&m, "attention.head_count_kv", (bool[]){true, false, true}, 3);
    CHECK(read_file(&m, &hp, &e) == ERR_FORMAT && strstr(e.msg, "an integer for each"));
    start(&m, "lfm2", PRE_NORM | QK_HEAD_NORM);
    short_convs(&m, 3, (int32_t[]){0, 2, 1});
    CHECK(read_file(&m, &hp, &e) == ERR_UNSUPPORTED && strstr(e.msg, "differs between layers"));
    start(&m, "llama", PRE_NORM);
    set_u32(&m, "shortconv.l_cache", 3);
    CHECK(read_file(&m, &hp, &e) == ERR_UNSUPPORTED && strstr(e.msg, "shortconv.l_cache"));
    start(&m, "llama", PRE_NORM);
    set_u32(&m, "leading_dense_block_count", 1);
    CHECK(read_file(&m, &hp, &e) == ERR_UNSUPPORTED && strstr(e.msg, "leading_dense"));
}

/* A file of DeepSeek-V3 that is spoilt in one way. */
static void refuse_latent(const struct spoilt *how, int code, const char *says) {
    struct model_hparams hp;
    struct maker m;
    err e;
    spoilt = *how;
    make_deepseek3(&m);
    int rc = read_file(&m, &hp, &e);
    spoilt = (struct spoilt){0};
    CHECK_MSG(rc == code && strstr(e.msg, says), "\"%s\": %d, %s", says, rc, e.msg);
}

static void test_latent_attention(void) {
    struct model_hparams hp;
    struct maker m;
    err e;
    make_deepseek3(&m);
    CHECK_MSG(read_file(&m, &hp, &e) == 0, "%s", e.msg);
    CHECK(hp.head_dim == 35 && hp.n_kv_heads == 1 && hp.mla.kv_rank == 29 && hp.mla.q_rank == 18);
    CHECK(hp.mla.k_dim == 17 && hp.mla.v_dim == 10 && hp.experts.n_ff_shared == 14);
    CHECK(hp.experts.n_groups == 4 && hp.experts.n_groups_used == 2 && hp.rope[0].n_rot == 6);
    CHECK(model_ranks_check(&hp, 2, &e) == ERR_UNSUPPORTED && strstr(e.msg, "latent"));
    struct backend_config config = {0};
    model_backend_limits(&hp, &config);
    CHECK(config.heads.n_heads == 3 && config.heads.n_cols == 29);
    for (unsigned rows = 0; rows <= KV_ROWS; rows += KV_ROWS) {
        start(&m, "deepseek2", PRE_NORM | KV_B | rows);
        latent_attention(&m, 20, 0, 13, 4, 9);
        set_u32(&m, "expert_gating_func", 0);
        experts(&m, 6, 2, 12);
        CHECK_MSG(read_file(&m, &hp, &e) == 0, "%s", e.msg);
        CHECK(hp.mla.k_dim == 17 && hp.mla.v_dim == 9 && hp.head_dim == 24 && !hp.mla.q_rank);
        CHECK(hp.experts.gating == BACKEND_GATING_SOFTMAX && !hp.experts.n_ff_shared);
    }
}

/* What files do not say of groups of experts. */
static void test_latent_groups(void) {
    static const struct {
        uint32_t n_layers, n_experts, says, n_groups, n_used;
    } cases[] = {{61, 256, 0, 8, 4}, {61, 256, 1, 1, 0}, {60, 256, 0, 0, 0}, {60, 160, 0, 8, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_hparams hp;
        struct maker m;
        err e;
        start(&m, "deepseek2", PRE_NORM | KV_B);
        latent_attention(&m, 20, 0, 13, 4, 9);
        m.f.n_layers = cases[i].n_layers;
        experts(&m, cases[i].n_experts, 2, 1);
        if (cases[i].says) set_u32(&m, "expert_group_count", cases[i].says);
        CHECK_MSG(read_file(&m, &hp, &e) == 0, "%s", e.msg);
        CHECK(hp.experts.n_groups == cases[i].n_groups &&
              hp.experts.n_groups_used == cases[i].n_used);
    }
}

static void test_latent_refusals(void) {
    static const struct {
        const char *key;
        uint32_t value;
        int code;
        const char *says;
    } cases[] = {{"attention.kv_lora_rank", 0, ERR_FORMAT, "attention.kv_lora_rank"},
                 {"attention.kv_lora_rank", 513, ERR_FORMAT, "attention.kv_lora_rank"},
                 {"attention.kv_lora_rank", 28, ERR_FORMAT, "attn_kv_a_mqa.weight"},
                 {"attention.q_lora_rank", 19, ERR_FORMAT, "attn_q_a.weight"},
                 {"attention.q_lora_rank", 1 << 20, ERR_FORMAT, "attention.q_lora_rank"},
                 {"attention.key_length_mla", 6, ERR_FORMAT, "rope.dimension_count"},
                 {"attention.key_length_mla", 18, ERR_FORMAT, "attn_q_b.weight"},
                 {"attention.value_length_mla", 11, ERR_FORMAT, "attn_v_b.weight"},
                 {"attention.value_length_mla", 513, ERR_FORMAT, "attention.value_length_mla"},
                 {"rope.dimension_count", 66, ERR_FORMAT, "rope.dimension_count"},
                 {"expert_group_count", 3, ERR_FORMAT, "expert_group_count"},
                 {"expert_group_count", 8, ERR_FORMAT, "expert_group_count"},
                 {"expert_group_used_count", 1, ERR_FORMAT, "expert_group_count"},
                 {"expert_group_used_count", 5, ERR_FORMAT, "expert_group_used_count"},
                 {"expert_shared_count", 2, ERR_FORMAT, "ffn_gate_shexp.weight"},
                 {"expert_shared_count", 1025, ERR_FORMAT, "expert_shared_count"}};
    static const char *const needed[] = {"attention.kv_lora_rank", "rope.dimension_count",
                                         "expert_group_used_count"};
    static const char *const names[] = {
        "attn_q_a.weight",       "attn_q_a_norm.weight", "attn_q_b.weight", "attn_kv_a_mqa.weight",
        "attn_kv_a_norm.weight", "attn_k_b.weight",      "attn_v_b.weight", "attn_output.weight",
        "ffn_up_shexp.weight",   "ffn_down_shexp.weight"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse_latent(&(struct spoilt){.key = cases[i].key, .value = cases[i].value}, cases[i].code,
                      cases[i].says);
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        refuse_latent(&(struct spoilt){.key = needed[i], .absent = true}, ERR_NOT_FOUND, needed[i]);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        refuse_latent(&(struct spoilt){.no_tensor = names[i]}, ERR_FORMAT, names[i]);
        refuse_latent(&(struct spoilt){.long_tensor = names[i]}, ERR_FORMAT, names[i]);
    }
    struct model_hparams hp;
    struct maker m;
    err e;
    start(&m, "llama", PRE_NORM);
    set_u32(&m, "attention.kv_lora_rank", 8);
    CHECK(read_file(&m, &hp, &e) == ERR_UNSUPPORTED && strstr(e.msg, "kv_lora_rank"));
    start(&m, "deepseek2", PRE_NORM | KV_B);
    latent_attention(&m, 20, 0, 13, 4, 9);
    spoilt = (struct spoilt){.long_tensor = "attn_kv_b.weight"};
    CHECK(read_file(&m, &hp, &e) == ERR_FORMAT && strstr(e.msg, "attn_kv_b.weight"));
    spoilt = (struct spoilt){0};
}

/* A file of Gemma 4 that is spoilt in one way. */
static void refuse_gemma4(bool moe, const struct spoilt *how, int code, const char *says) {
    struct model_hparams hp;
    struct maker m;
    err e;
    spoilt = *how;
    if (moe)
        make_gemma4_moe(&m, true);
    else
        make_gemma4_e(&m);
    int rc = read_file(&m, &hp, &e);
    spoilt = (struct spoilt){0};
    CHECK_MSG(rc == code && strstr(e.msg, says), "\"%s\": %d, %s", says, rc, e.msg);
}

static void test_gemma4(void) {
    struct model_hparams hp;
    struct maker m;
    err e;
    make_gemma4_e(&m);
    CHECK_MSG(read_file(&m, &hp, &e) == 0, "%s", e.msg);
    CHECK(hp.head_dim == 22 && hp.window_head_dim == 14 && hp.attn_scale == 1);
    CHECK(hp.n_ff == 30 && hp.gemma4.n_ff_shared_kv == 58 && hp.gemma4.n_per_layer == 10);
    CHECK(hp.rope[0].n_rot == 22 && hp.rope[1].n_rot == 14 && hp.rope[1].base == 10000);
    CHECK(hp.n_kv_layers == 4 && model_kv_layer(&hp, 3) == 3);
    CHECK(model_kv_layer(&hp, 4) == 3 && model_kv_layer(&hp, 5) == 2);
    /* the table of per-layer embeddings is read row by row, K and V of other layers' not at all */
    CHECK(hp.weight_bytes == 4 * (hp.n_params - N_VOCAB * 60));
    CHECK(model_ranks_check(&hp, 2, &e) == 0);
    CHECK(model_ranks_check(&hp, 3, &e) == ERR_UNSUPPORTED && strstr(e.msg, "2 KV heads"));
    make_gemma4_moe(&m, false);
    CHECK_MSG(read_file(&m, &hp, &e) == 0, "%s", e.msg);
    CHECK(hp.n_kv_heads == 1 && hp.n_window_kv_heads == 3 && hp.n_kv_layers == 4);
    CHECK(model_n_kv_heads(&hp, hp.layers[0]) == 3 && model_head_dim(&hp, hp.layers[1]) == 24);
    CHECK(hp.experts.n_experts == 6 && hp.experts.renormalize);
}

static void test_gemma4_refusals(void) {
    static const struct {
        const char *key;
        uint32_t value;
        int code;
        const char *says;
    } cases[] = {{"attention.key_length", 514, ERR_FORMAT, "attention.key_length"},
                 {"attention.key_length", 24, ERR_UNSUPPORTED, "attention.value_length"},
                 {"attention.key_length_swa", 0, ERR_FORMAT, "attention.key_length_swa"},
                 {"attention.value_length_swa", 12, ERR_UNSUPPORTED, "attention.value_length_swa"},
                 {"attention.shared_kv_layers", 6, ERR_FORMAT, "attention.shared_kv_layers"},
                 {"attention.shared_kv_layers", 4, ERR_FORMAT, "without a window"},
                 {"attention.shared_kv_layers", 1, ERR_UNSUPPORTED, "feed_forward_length"},
                 {"attention.head_count_kv", 4, ERR_FORMAT, "attention.head_count_kv"},
                 {"attention.head_count_kv", 0, ERR_FORMAT, "attention.head_count_kv"},
                 {"attention.head_count_kv", 3, ERR_FORMAT, "attn_k.weight"},
                 {"embedding_length_per_layer_input", 11, ERR_FORMAT, "per_layer_token_embd"},
                 {"embedding_length_per_layer_input", 0, ERR_UNSUPPORTED, "per_layer_token_embd"},
                 {"embedding_length_per_layer_input", 1 << 15, ERR_FORMAT, "per_layer_input"},
                 {"rope.dimension_count_swa", 16, ERR_FORMAT, "rope.dimension_count_swa"},
                 {"rope.dimension_count_swa", 13, ERR_FORMAT, "rope.dimension_count_swa"},
                 {"rope.dimension_count", 20, ERR_FORMAT, "rope_freqs.weight"}};
    static const char *const names[] = {"per_layer_token_embd.weight",
                                        "per_layer_model_proj.weight",
                                        "per_layer_proj_norm.weight",
                                        "attn_q_norm.weight",
                                        "ffn_norm.weight",
                                        "post_ffw_norm.weight",
                                        "inp_gate.weight",
                                        "proj.weight",
                                        "post_norm.weight"};
    static const char *const of_experts[] = {"ffn_gate_inp.weight",    "ffn_gate_inp.scale",
                                             "pre_ffw_norm_2.weight",  "post_ffw_norm_1.weight",
                                             "post_ffw_norm_2.weight", "ffn_down_exps.weight"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse_gemma4(false, &(struct spoilt){.key = cases[i].key, .value = cases[i].value},
                      cases[i].code, cases[i].says);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        refuse_gemma4(false, &(struct spoilt){.no_tensor = names[i]}, ERR_FORMAT, names[i]);
        refuse_gemma4(false, &(struct spoilt){.long_tensor = names[i]}, ERR_FORMAT, names[i]);
    }
    for (size_t i = 0; i < sizeof of_experts / sizeof of_experts[0]; i++) {
        refuse_gemma4(true, &(struct spoilt){.no_tensor = of_experts[i]}, ERR_FORMAT,
                      of_experts[i]);
        refuse_gemma4(true, &(struct spoilt){.long_tensor = of_experts[i]}, ERR_FORMAT,
                      of_experts[i]);
    }
    refuse_gemma4(false, &(struct spoilt){.long_tensor = "layer_output_scale.weight"}, ERR_FORMAT,
                  "layer_output_scale.weight");
    refuse_gemma4(true, &(struct spoilt){.long_tensor = "ffn_down_exps.scale"}, ERR_FORMAT,
                  "ffn_down_exps.scale");
    struct model_hparams hp;
    struct maker m;
    err e;
    start(&m, "gemma3", PRE_NORM | POST_NORM | QK_HEAD_NORM);
    set_u32(&m, "attention.shared_kv_layers", 1);
    CHECK(read_file(&m, &hp, &e) == ERR_UNSUPPORTED && strstr(e.msg, "shared_kv_layers"));
}

/* A file of Kimi Linear that is spoilt in one way. */
static void refuse_kimi(const struct spoilt *how, int code, const char *says) {
    static const int32_t n_kv[] = {0, 1};
    struct model_hparams hp;
    struct maker m;
    err e;
    spoilt = *how;
    make_kimi_linear(&m, 0, n_kv, 2, 16);
    int rc = read_file(&m, &hp, &e);
    spoilt = (struct spoilt){0};
    CHECK_MSG(rc == code && strstr(e.msg, says), "\"%s\": %d, %s", says, rc, e.msg);
    if (rc) return;
    CHECK(hp.recurrent.channel_decay && hp.recurrent.n_layers == 1 && hp.n_kv_layers == 1);
    CHECK(hp.recurrent.n_v_heads == 3 && hp.recurrent.k_dim == 16 && hp.n_kv_heads == 1);
    CHECK(hp.layers[1] & MODEL_LAYER_NO_ROPE && hp.rope[0].n_rot == 6);
    CHECK(model_ranks_check(&hp, 2, &e) == ERR_UNSUPPORTED);
}

static void test_kimi_linear(void) {
    static const char *const names[] = {
        "ssm_conv1d_q.weight", "ssm_conv1d_k.weight", "ssm_conv1d_v.weight",
        "ssm_f_a.weight",      "ssm_f_b.weight",      "ssm_g_a.weight",
        "ssm_g_b.weight",      "ssm_beta.weight",     "ssm_a",
        "ssm_dt.bias",         "ssm_norm.weight",     "attn_q.weight",
        "attn_k.weight",       "attn_v.weight"};
    refuse_kimi(&(struct spoilt){0}, 0, "");
    refuse_kimi(&(struct spoilt){.key = "kda.head_dim", .value = 24}, ERR_UNSUPPORTED,
                "kda.head_dim");
    refuse_kimi(&(struct spoilt){.key = "kda.head_dim", .value = 144}, ERR_UNSUPPORTED,
                "kda.head_dim");
    refuse_kimi(&(struct spoilt){.key = "kda.head_dim", .absent = true}, ERR_NOT_FOUND,
                "kda.head_dim");
    refuse_kimi(&(struct spoilt){.key = "ssm.conv_kernel", .value = 5}, ERR_UNSUPPORTED,
                "ssm.conv_kernel");
    refuse_kimi(&(struct spoilt){.key = "ssm.conv_kernel", .value = 3}, ERR_FORMAT,
                "ssm_conv1d_q.weight");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        refuse_kimi(&(struct spoilt){.no_tensor = names[i]}, ERR_FORMAT, names[i]);
        refuse_kimi(&(struct spoilt){.long_tensor = names[i]}, ERR_FORMAT, names[i]);
    }
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    int fd = mkstemp(path);
    be_need(fd >= 0, "a file");
    close(fd);
    RUN(test_wide_queries);
    RUN(test_defaults);
    RUN(test_forms_of_files);
    RUN(test_refusals);
    RUN(test_expert_refusals);
    RUN(test_recurrent);
    RUN(test_recurrent_keys);
    RUN(test_recurrent_tensors);
    RUN(test_recurrent_layers);
    RUN(test_sections);
    RUN(test_short_convs);
    RUN(test_short_conv_refusals);
    RUN(test_latent_attention);
    RUN(test_latent_groups);
    RUN(test_latent_refusals);
    RUN(test_kimi_linear);
    RUN(test_gemma4);
    RUN(test_gemma4_refusals);
    unlink(path);
    return check_done();
}
