/* test_hf_short_conv.c - folders of LFM2, dense and with experts: keys of config.json, tensors of
 * the golden folders, files that inferd quantize makes of them, and refusals. */
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

static uint64_t number(const gguf *g, const char *key) {
    uint64_t v = UINT64_MAX;
    gguf_get_u64(g, key, &v, NULL);
    return v;
}

static bool has_shape(const gguf *g, const char *name, int type, uint64_t n_in, uint64_t n_out) {
    const gguf_tensor *t = gguf_tensor_find(g, name);
    return t && t->type == type && t->dims[0] == n_in && t->dims[1] == n_out;
}

static void check_kv_heads(const gguf *g, const char *key, const char *attends, int64_t n_kv) {
    enum gguf_type type;
    uint64_t n = 0;
    CHECK(gguf_get_array(g, key, &type, &n, NULL) == 0 && type == GGUF_I32 && n == strlen(attends));
    for (uint64_t i = 0; i < n; i++)
        CHECK(gguf_array_i64(g, key, i) == (attends[i] == 'a' ? n_kv : 0));
}

static void keys_and_tensors_of_goldens(void) {
    gguf *g = NULL;
    err e = {0};
    CHECK_MSG(model_file_open(FOLDER("lfm2"), 0, &g, &e) == 0, "%s", e.msg);
    if (!g) return;
    check_kv_heads(g, "lfm2.attention.head_count_kv", "ccaca", 1);
    CHECK(number(g, "lfm2.shortconv.l_cache") == 3 && number(g, "lfm2.vocab_size") == 301);
    CHECK(number(g, "lfm2.feed_forward_length") == 52);
    CHECK(has_shape(g, "blk.0.shortconv.conv.weight", QTYPE_F32, 3, 40));
    CHECK(has_shape(g, "blk.0.shortconv.in_proj.weight", QTYPE_F32, 40, 120));
    CHECK(has_shape(g, "token_embd_norm.weight", QTYPE_F32, 40, 1));
    CHECK(!gguf_tensor_find(g, "output.weight") && !gguf_tensor_find(g, "output_norm.weight"));
    gguf_close(g);
    CHECK_MSG(model_file_open(FOLDER("lfm2-adjusted"), 0, &g, &e) == 0, "%s", e.msg);
    CHECK(number(g, "lfm2.feed_forward_length") == 72); /* 100 * 2 / 3, rounded up to 24s */
    CHECK(has_shape(g, "blk.0.shortconv.conv.weight", QTYPE_F32, 3, 48));
    CHECK(has_shape(g, "blk.0.shortconv.in_proj.weight", QTYPE_BF16, 48, 144));
    gguf_close(g);
    CHECK_MSG(model_file_open(FOLDER("lfm2moe-scaled"), 0, &g, &e) == 0, "%s", e.msg);
    check_kv_heads(g, "lfm2moe.attention.head_count_kv", "ccaca", 2);
    double scale = 0;
    gguf_get_f64(g, "lfm2moe.expert_weights_scale", &scale, NULL);
    CHECK(fabs(scale - 1.7) < 1e-6 && number(g, "lfm2moe.leading_dense_block_count") == 2);
    CHECK(number(g, "lfm2moe.expert_gating_func") == 2 && number(g, "lfm2moe.expert_count") == 5);
    CHECK(number(g, "lfm2moe.expert_feed_forward_length") == 16);
    CHECK(has_shape(g, "blk.2.exp_probs_b.bias", QTYPE_F32, 5, 1));
    CHECK(has_shape(g, "blk.2.ffn_gate_inp.weight", QTYPE_F32, 32, 5));
    CHECK(gguf_tensor_find(g, "blk.1.ffn_gate.weight") &&
          !gguf_tensor_find(g, "blk.2.ffn_up.weight"));
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

static void write_file(const char *folder, const char *type, const char *path) {
    const struct quantize_options options = {.type = type};
    const struct quantize_output output = {.path = path, .overwrite = true, .n_threads = 2};
    gguf *src = NULL;
    quantize_plan *plan = NULL;
    err e = {0};
    CHECK_MSG(model_file_open(folder, GGUF_OPEN_AS_FILE, &src, &e) == 0 &&
                  quantize_plan_new(src, &options, &plan, &e) == 0 &&
                  quantize_run(plan, &output, &e) == 0,
              "%s", e.msg);
    quantize_plan_free(plan);
    gguf_close(src);
}

/* What inferd quantize makes of a folder computes the same; taps and biases are never quantized. */
static void written_files_compute_the_same(void) {
    static const char *const folders[] = {FOLDER("lfm2"), FOLDER("lfm2-adjusted"),
                                          FOLDER("lfm2moe"), FOLDER("lfm2moe-scaled")};
    char path[] = "/tmp/inferd-hf-file-XXXXXX";
    int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    for (int i = 0; i < 4; i++) {
        uint32_t n_vocab;
        double worst = 0;
        write_file(folders[i], "f32", path);
        float *want = logits_of(folders[i], &n_vocab), *got = logits_of(path, &n_vocab);
        for (uint64_t k = 0; k < (uint64_t)N_TOKENS * n_vocab; k++)
            worst = fmax(worst, fabs((double)got[k] - (double)want[k]));
        CHECK_MSG(worst < 2e-4, "%s: off by %g", folders[i], worst);
        free(got);
        free(want);
    }
    gguf *g = NULL;
    err e = {0};
    write_file(FOLDER("lfm2moe-scaled"), "q8_0", path);
    CHECK_MSG(gguf_open(path, 0, &g, &e) == 0, "%s", e.msg);
    if (g) {
        CHECK(has_shape(g, "blk.0.shortconv.conv.weight", QTYPE_F32, 3, 32));
        CHECK(has_shape(g, "blk.0.shortconv.in_proj.weight", QTYPE_Q8_0, 32, 96));
        CHECK(has_shape(g, "blk.2.exp_probs_b.bias", QTYPE_F32, 5, 1));
    }
    gguf_close(g);
    unlink(path);
}

static gguf *keys_of(const char *json, err *e) {
    gguf *g = NULL;
    hf_config_open_memory(json, strlen(json), &g, e);
    return g;
}

/* What transformers assumes, and the names of members in the first files. */
static void members_may_be_missing(void) {
    err e = {0};
    gguf *g = keys_of("{\"model_type\":\"lfm2\",\"num_hidden_layers\":4,\"full_attn_idxs\":[1,3],"
                      "\"block_ff_dim\":6656,\"hidden_size\":1024,\"intermediate_size\":5,"
                      "\"tie_embedding\":true}",
                      &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    check_kv_heads(g, "lfm2.attention.head_count_kv", "caca", 8);
    CHECK(number(g, "lfm2.feed_forward_length") == 4608); /* of LFM2-350M */
    CHECK(number(g, "lfm2.context_length") == 128000 && number(g, "lfm2.shortconv.l_cache") == 3);
    gguf_close(g);
    g = keys_of("{\"model_type\":\"lfm2_moe\",\"num_hidden_layers\":3,"
                "\"layer_types\":[\"conv\",\"conv\",\"full_attention\"]}",
                &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(number(g, "lfm2moe.leading_dense_block_count") == 2);
    CHECK(number(g, "lfm2moe.feed_forward_length") == 7168);
    CHECK(number(g, "lfm2moe.expert_used_count") == 4);
    CHECK(!gguf_has(g, "lfm2moe.expert_weights_scale"));
    gguf_close(g);
}

static void members_without_counterpart_are_refused(void) {
    static const struct {
        const char *members, *says;
        int code;
    } rows[] = {
        {"\"conv_bias\":true", "conv_bias", ERR_UNSUPPORTED},
        {"\"conv_L_cache\":0", "conv_L_cache", ERR_FORMAT},
        {"\"conv_L_cache\":\"3\"", "conv_L_cache", ERR_FORMAT},
        {"\"layer_types\":[\"conv\"]", "layer_types", ERR_FORMAT},
        {"\"layer_types\":[\"conv\",\"mamba\"]", "'mamba'", ERR_UNSUPPORTED},
        {"\"full_attn_idxs\":[2]", "full_attn_idxs", ERR_FORMAT},
        {"\"full_attn_idxs\":[-1]", "full_attn_idxs", ERR_FORMAT},
        {"\"full_attn_idxs\":[\"0\"]", "full_attn_idxs", ERR_FORMAT},
        {"\"full_attn_idxs\":0", "full_attn_idxs", ERR_FORMAT},
        {"\"block_multiple_of\":0", "block_multiple_of", ERR_FORMAT},
        {"\"block_multiple_of\":2147483647,\"block_ffn_dim_multiplier\":262144",
         "block_ffn_dim_multiplier", ERR_UNSUPPORTED},
        {"\"block_ffn_dim_multiplier\":-1", "block_ffn_dim_multiplier", ERR_UNSUPPORTED},
        {"\"block_ff_dim\":0", "block_ff_dim", ERR_FORMAT},
        {"\"norm_eps\":\"small\"", "norm_eps", ERR_FORMAT},
        {"\"num_dense_layers\":3", "num_dense_layers", ERR_FORMAT},
        {"\"routed_scaling_factor\":0", "routed_scaling_factor", ERR_UNSUPPORTED},
        {"\"num_experts\":3", "num_experts_per_tok", ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const bool experts = strstr(rows[i].members, "num_") || strstr(rows[i].members, "routed_");
        char json[256];
        err e = {0};
        snprintf(json, sizeof json, "{\"model_type\":\"%s\",\"num_hidden_layers\":2,%s}",
                 experts ? "lfm2_moe" : "lfm2", rows[i].members);
        gguf *g = keys_of(json, &e);
        CHECK_MSG(!g && e.code == rows[i].code && strstr(e.msg, rows[i].says), "%s: %d, %s", json,
                  e.code, e.msg);
        gguf_close(g);
    }
}

int main(void) {
    RUN(keys_and_tensors_of_goldens);
    RUN(written_files_compute_the_same);
    RUN(members_may_be_missing);
    RUN(members_without_counterpart_are_refused);
    return check_done();
}
