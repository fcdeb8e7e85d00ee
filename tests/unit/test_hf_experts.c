/* test_hf_experts.c - folders of the families whose experts hf/experts.c reads, and of Mistral 3:
 * keys of config.json, tensors of the golden folders, files that inferd quantize makes of them, and
 * refusals. */
#include "core/formats/gguf/gguf_int.h"
#include "core/formats/hf/model.h"
#include "core/formats/model_file.h"
#include "core/formats/quantize/quantize.h"
#include "tests/support/runner.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define FOLDER(name) "tests/golden/arch/" name "/hf"

static double number(const gguf *g, const char *key) {
    uint64_t v;
    double real = -1;
    bool set;
    if (gguf_get_u64(g, key, &v, NULL) == 0) return (double)v;
    if (gguf_get_bool(g, key, &set, NULL) == 0) return set;
    gguf_get_f64(g, key, &real, NULL);
    return real;
}

static bool is_near(const gguf *g, const char *key, double want) {
    return fabs(number(g, key) - want) <= 1e-6 * fabs(want);
}

static bool has_shape(const gguf *g, const char *name, uint64_t n_in, uint64_t n_out) {
    const gguf_tensor *t = gguf_tensor_find(g, name);
    return t && t->dims[0] == n_in && t->dims[1] == n_out;
}

static bool says(const gguf *g, const char *key, const char *want) {
    gguf_str text;
    return gguf_get_str(g, key, &text, NULL) == 0 && text.len >= strlen(want) &&
           memmem(text.data, text.len, want, strlen(want));
}

static bool has_bools(const gguf *g, const char *key, const char *want) {
    enum gguf_type type;
    uint64_t n = 0;
    if (gguf_get_array(g, key, &type, &n, NULL) || type != GGUF_BOOL || n != strlen(want))
        return false;
    for (uint64_t i = 0; i < n; i++)
        if (gguf_array_i64(g, key, i) != (want[i] == '1')) return false;
    return true;
}

static gguf *open_folder(const char *path) {
    gguf *g = NULL;
    err e = {0};
    CHECK_MSG(model_file_open(path, 0, &g, &e) == 0, "%s: %s", path, e.msg);
    if (!g) exit(1);
    return g;
}

static void mistral3_has_the_keys_of_its_files(void) {
    gguf *g = open_folder(FOLDER("mistral3"));
    CHECK(says(g, "general.architecture", "mistral3"));
    CHECK(is_near(g, "mistral3.rope.scaling.yarn_log_multiplier", 1));
    CHECK(is_near(g, "mistral3.attention.temperature_scale", 0.3));
    CHECK(number(g, "mistral3.rope.scaling.original_context_length") == 32);
    CHECK(!gguf_has(g, "mistral3.rope.scaling.yarn_attn_factor"));
    CHECK(says(g, "mistral3.inferd.left_out", "15 tensors of the vision part"));
    CHECK(has_shape(g, "output.weight", 40, 301));
    gguf_close(g);
    g = open_folder(FOLDER("mistral3-text"));
    CHECK(is_near(g, "mistral3.rope.scaling.yarn_log_multiplier", 0.6));
    gguf_close(g);
    g = open_folder(FOLDER("mistral3-small"));
    CHECK(says(g, "general.architecture", "mistral3"));
    CHECK(!gguf_has(g, "mistral3.attention.temperature_scale"));
    gguf_close(g);
}

static void keys_and_tensors_of_goldens(void) {
    gguf *g = open_folder(FOLDER("glm4moe"));
    CHECK(number(g, "glm4moe.expert_count") == 6 && number(g, "glm4moe.expert_used_count") == 2);
    CHECK(number(g, "glm4moe.leading_dense_block_count") == 1);
    CHECK(number(g, "glm4moe.rope.dimension_count") == 8);
    CHECK(number(g, "glm4moe.expert_gating_func") == 2 && number(g, "glm4moe.block_count") == 3);
    CHECK(says(g, "glm4moe.inferd.left_out", "36 tensors of layers that predict"));
    CHECK(has_shape(g, "blk.1.exp_probs_b.bias", 6, 1));
    CHECK(has_shape(g, "blk.2.post_attention_norm.weight", 36, 1));
    CHECK(!gguf_tensor_find(g, "blk.3.attn_norm.weight"));
    gguf_close(g);
    g = open_folder(FOLDER("minimax-m2-old"));
    CHECK(number(g, "minimax-m2.rope.dimension_count") == 8);
    CHECK(is_near(g, "minimax-m2.rope.freq_base", 1e6));
    CHECK(number(g, "minimax-m2.expert_feed_forward_length") == 16);
    CHECK(!gguf_has(g, "minimax-m2.expert_shared_count"));
    gguf_close(g);
    g = open_folder(FOLDER("ernie4_5-moe"));
    CHECK(number(g, "ernie4_5-moe.interleave_moe_layer_step") == 2);
    CHECK(number(g, "ernie4_5-moe.expert_gating_func") == 1);
    CHECK(number(g, "ernie4_5-moe.expert_shared_feed_forward_length") == 32);
    CHECK(has_shape(g, "blk.1.exp_probs_b.bias", 6, 1));
    gguf_close(g);
    g = open_folder(FOLDER("afmoe"));
    CHECK(has_shape(g, "blk.0.attn_gate.weight", 36, 48));
    CHECK(has_shape(g, "blk.0.post_ffw_norm.weight", 36, 1));
    CHECK(is_near(g, "afmoe.expert_weights_scale", 2.5));
    gguf_close(g);
    g = open_folder(FOLDER("hy_v3"));
    CHECK(has_shape(g, "blk.1.exp_probs_b", 6, 1));
    CHECK(number(g, "hy_v3.leading_dense_block_count") == 1);
    gguf_close(g);
    g = open_folder(FOLDER("hunyuan-dense")); /* base * alpha^(n / (n - 2)) */
    CHECK(is_near(g, "hunyuan-dense.rope.freq_base", 1e4 * pow(50, 1.2)));
    gguf_close(g);
    g = open_folder(FOLDER("qwen3moe-dense"));
    CHECK(has_bools(g, "qwen3moe.inferd.dense_layers", "101110"));
    gguf_close(g);
    g = open_folder(FOLDER("exaone-moe"));
    CHECK(has_bools(g, "exaone-moe.attention.sliding_window_pattern", "1101"));
    gguf_close(g);
    g = open_folder(FOLDER("cohere2moe")); /* without lists of layers */
    CHECK(has_bools(g, "cohere2moe.attention.sliding_window_pattern", "011101"));
    CHECK(number(g, "cohere2moe.leading_dense_block_count") == 1);
    CHECK(has_shape(g, "blk.0.ffn_gate.weight", 32, 44) &&
          has_shape(g, "blk.1.ffn_gate_inp.weight", 32, 6));
    gguf_close(g);
}

enum { N_TOKENS = 50 };

static float *logits_of(const char *path, uint32_t *n_vocab) {
    struct runner r;
    int32_t tokens[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = 7 + i * 5 % 200;
    runner_open(&r, &(struct runner_config){.path = path,
                                            .n_threads = 2,
                                            .kv_type = QTYPE_F32,
                                            .max_rows = N_TOKENS,
                                            .max_tokens = N_TOKENS});
    struct piece all = {.tokens = tokens, .n = N_TOKENS};
    *n_vocab = r.hp.n_vocab;
    float *copy = be_new((uint64_t)N_TOKENS * *n_vocab, sizeof *copy);
    memcpy(copy, runner_step(&r, &all, 1, true), (uint64_t)N_TOKENS * *n_vocab * sizeof *copy);
    runner_close(&r);
    return copy;
}

static void write_file(const char *folder, const char *path) {
    const struct quantize_options options = {.type = "f32"};
    const struct quantize_output output = {.path = path, .overwrite = true, .n_threads = 2};
    gguf *src = NULL;
    quantize_plan *plan = NULL;
    err e = {0};
    CHECK_MSG(model_file_open(folder, GGUF_OPEN_AS_FILE, &src, &e) == 0 &&
                  quantize_plan_new(src, &options, &plan, &e) == 0 &&
                  quantize_run(plan, &output, &e) == 0,
              "%s: %s", folder, e.msg);
    quantize_plan_free(plan);
    gguf_close(src);
}

static void written_files_compute_the_same(void) {
    static const char *const folders[] = {FOLDER("mistral3"),
                                          FOLDER("glm4moe-norm"),
                                          FOLDER("minimax-m2-old"),
                                          FOLDER("ernie4_5"),
                                          FOLDER("ernie4_5-moe"),
                                          FOLDER("dots1"),
                                          FOLDER("afmoe"),
                                          FOLDER("exaone-moe"),
                                          FOLDER("hunyuan-moe"),
                                          FOLDER("hy_v3"),
                                          FOLDER("qwen2moe-dense"),
                                          FOLDER("cohere2moe"),
                                          FOLDER("cohere2moe-shared")};
    char path[] = "/tmp/inferd-hf-file-XXXXXX";
    int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        uint32_t n_vocab;
        double worst = 0;
        write_file(folders[i], path);
        float *want = logits_of(folders[i], &n_vocab), *got = logits_of(path, &n_vocab);
        for (uint64_t k = 0; k < (uint64_t)N_TOKENS * n_vocab; k++)
            worst = fmax(worst, fabs((double)got[k] - (double)want[k]));
        CHECK_MSG(worst < 2e-4, "%s: off by %g", folders[i], worst);
        free(got);
        free(want);
    }
    unlink(path);
}

static gguf *keys_of(const char *json, err *e) {
    gguf *g = NULL;
    hf_config_open_memory(json, strlen(json), &g, e);
    return g;
}

/* What transformers assumes. */
static void members_may_be_missing(void) {
    err e = {0};
    gguf *g = keys_of("{\"model_type\":\"glm4_moe\",\"num_attention_heads\":32}", &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(number(g, "glm4moe.expert_count") == 128 && number(g, "glm4moe.expert_used_count") == 8);
    CHECK(number(g, "glm4moe.expert_shared_feed_forward_length") == 1408);
    CHECK(number(g, "glm4moe.rope.dimension_count") == 64);
    CHECK(number(g, "glm4moe.expert_weights_norm") == 1);
    CHECK(!gguf_has(g, "glm4moe.expert_weights_scale"));
    gguf_close(g);
    g = keys_of("{\"model_type\":\"minimax_m2\"}", &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(number(g, "minimax-m2.expert_count") == 256);
    CHECK(number(g, "minimax-m2.rope.dimension_count") == 128);
    gguf_close(g);
    g = keys_of("{\"model_type\":\"hy_v3\"}", &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(is_near(g, "hy_v3.expert_weights_scale", 2.826));
    CHECK(number(g, "hy_v3.leading_dense_block_count") == 1);
    gguf_close(g);
    g = keys_of("{\"model_type\":\"hunyuan_v1_moe\",\"num_experts\":[4,4],\"moe_topk\":[2,2],"
                "\"num_hidden_layers\":2}",
                &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(number(g, "hunyuan-moe.expert_count") == 4);
    CHECK(number(g, "hunyuan-moe.expert_shared_feed_forward_length") == 11008);
    gguf_close(g);
}

/* The members of North Mini Code, and those of Command A+ that are missing. */
static void cohere_says_which_norms_and_gates(void) {
    err e = {0};
    gguf *g = keys_of(
        "{\"model_type\":\"cohere2_moe\",\"num_hidden_layers\":9,\"first_k_dense_replace\":1,"
        "\"intermediate_size\":768,\"prefix_dense_intermediate_size\":12288,\"num_experts\":128,"
        "\"num_experts_per_tok\":8,\"expert_selection_fn\":\"sigmoid\",\"norm_topk_prob\":false,"
        "\"rms_norm_eps\":1e-6,\"layer_norm_eps\":1e-5,\"logit_scale\":1,\"hidden_size\":2048,"
        "\"num_attention_heads\":32,\"num_key_value_heads\":4}",
        &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(is_near(g, "cohere2moe.attention.layer_norm_rms_epsilon", 1e-6));
    CHECK(!gguf_has(g, "cohere2moe.attention.layer_norm_epsilon"));
    CHECK(has_bools(g, "cohere2moe.attention.sliding_window_pattern", "011101110"));
    CHECK(number(g, "cohere2moe.leading_dense_block_count") == 1);
    CHECK(number(g, "cohere2moe.feed_forward_length") == 12288);
    CHECK(number(g, "cohere2moe.expert_feed_forward_length") == 768);
    CHECK(number(g, "cohere2moe.expert_gating_func") == 2);
    CHECK(number(g, "cohere2moe.expert_weights_norm") == 0);
    CHECK(number(g, "cohere2moe.attention.key_length") == 128);
    CHECK(number(g, "cohere2moe.logit_scale") == 1);
    gguf_close(g);
    g = keys_of("{\"model_type\":\"cohere2_moe\",\"num_hidden_layers\":8,"
                "\"first_k_dense_replace\":2,\"prefix_dense_intermediate_size\":64}",
                &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(has_bools(g, "cohere2moe.attention.sliding_window_pattern", "00111011"));
    gguf_close(g);
    g = keys_of("{\"model_type\":\"cohere2_moe\",\"num_shared_experts\":2,\"norm_topk_prob\":false,"
                "\"num_hidden_layers\":4}",
                &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(is_near(g, "cohere2moe.attention.layer_norm_epsilon", 1e-5));
    CHECK(!gguf_has(g, "cohere2moe.attention.layer_norm_rms_epsilon"));
    CHECK(!gguf_has(g, "cohere2moe.attention.sliding_window_pattern")); /* 1110 */
    CHECK(number(g, "cohere2moe.expert_gating_func") == 1);
    CHECK(number(g, "cohere2moe.expert_weights_norm") == 1);
    CHECK(number(g, "cohere2moe.expert_shared_feed_forward_length") == 45056);
    gguf_close(g);
}

static void members_without_counterpart_are_refused(void) {
    static const struct {
        const char *json, *says;
        int code;
    } rows[] = {
        {"{\"model_type\":\"glm4_moe\",\"num_attention_heads\":32,\"n_group\":8}", "by groups",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"glm4_moe\",\"num_attention_heads\":32,\"routed_scaling_factor\":0}",
         "routed_scaling_factor", ERR_UNSUPPORTED},
        {"{\"model_type\":\"glm4_moe\",\"num_attention_heads\":32,\"first_k_dense_replace\":47}",
         "first_k_dense_replace", ERR_FORMAT},
        {"{\"model_type\":\"dots1\"}", "n_routed_experts", ERR_FORMAT},
        {"{\"model_type\":\"afmoe\"}", "mup_enabled", ERR_UNSUPPORTED},
        {"{\"model_type\":\"hunyuan_v1_moe\",\"num_experts\":[4,5]}", "num_experts",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"hy_v3\",\"mlp_layer_types\":[\"dense\"]}", "mlp_layer_types",
         ERR_FORMAT},
        {"{\"model_type\":\"ernie4_5_moe\",\"moe_layer_end_index\":3}", "moe_layer_end_index",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"minimax_m2\",\"rotary_dim\":300}", "partial_rotary_factor", ERR_FORMAT},
        {"{\"model_type\":\"mistral3\"}", "'text_config' is missing", ERR_FORMAT},
        {"{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"mistral5\"}}",
         "'mistral5' are not supported", ERR_UNSUPPORTED},
        {"{\"model_type\":\"bert\",\"position_embedding_type\":\"alibi\"}", "feed_forward_type",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"mimo_v2\"}", "lacks its layout of Q, K and V", ERR_UNSUPPORTED},
        {"{\"model_type\":\"step3p7\"}", "lacks images around Step 3.5", ERR_UNSUPPORTED},
        {"{\"model_type\":\"cohere2_moe\",\"shared_expert_combination_strategy\":\"sum\"}",
         "shared_expert_combination_strategy", ERR_UNSUPPORTED},
        {"{\"model_type\":\"cohere2_moe\",\"expert_selection_fn\":\"tanh\"}", "expert_selection_fn",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"cohere2_moe\",\"prefix_dense_sliding_window_pattern\":4}",
         "prefix_dense_sliding_window_pattern", ERR_UNSUPPORTED},
        {"{\"model_type\":\"cohere2_moe\",\"num_hidden_layers\":2,"
         "\"mlp_layer_types\":[\"sparse\",\"dense\"]}",
         "mlp_layer_types", ERR_UNSUPPORTED},
        {"{\"model_type\":\"glm_moe_dsa\"}", "lacks an indexer", ERR_UNSUPPORTED},
        {"{\"model_type\":\"minimax_m3_vl\"}", "lacks an indexer", ERR_UNSUPPORTED},
        {"{\"model_type\":\"laguna\",\"gating\":false}", "gating", ERR_UNSUPPORTED},
        {"{\"model_type\":\"laguna\"}", "rope_parameters", ERR_FORMAT},
        {"{\"model_type\":\"laguna\",\"rope_parameters\":{\"full_attention\":{}},"
         "\"num_attention_heads_per_layer\":[4]}",
         "num_attention_heads_per_layer", ERR_FORMAT},
        {"{\"model_type\":\"step3p5\",\"use_head_wise_attn_gate\":false}",
         "use_head_wise_attn_gate", ERR_UNSUPPORTED},
        {"{\"model_type\":\"step3p5\",\"moe_layers_enum\":\"1;2\"}", "moe_layers_enum", ERR_FORMAT},
        {"{\"model_type\":\"step3p5\",\"swiglu_limits\":[1]}", "swiglu_limits", ERR_FORMAT},
        {"{\"model_type\":\"step3p5\",\"partial_rotary_factors\":1}", "partial_rotary_factors",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"mimo_v2_flash\",\"v_head_dim\":200}", "v_head_dim", ERR_FORMAT},
        {"{\"model_type\":\"mimo_v2_flash\",\"hybrid_layer_pattern\":[2]}", "hybrid_layer_pattern",
         ERR_FORMAT},
        {"{\"model_type\":\"mimo_v2_flash\",\"scoring_func\":\"softmax\"}", "scoring_func",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"falcon\"}", "its fused Q, K and V", ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        err e = {0};
        gguf *g = keys_of(rows[i].json, &e);
        CHECK_MSG(!g && e.code == rows[i].code && strstr(e.msg, rows[i].says), "%s: %d, %s",
                  rows[i].json, e.code, e.msg);
        gguf_close(g);
    }
}

int main(void) {
    RUN(mistral3_has_the_keys_of_its_files);
    RUN(keys_and_tensors_of_goldens);
    RUN(written_files_compute_the_same);
    RUN(members_may_be_missing);
    RUN(cohere_says_which_norms_and_gates);
    RUN(members_without_counterpart_are_refused);
    return check_done();
}
