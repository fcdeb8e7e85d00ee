/* test_hf_delta_net.c - folders of Qwen3.5 and Qwen3-Next: keys of config.json, tensors of the
 * golden folders against the files that hold them, and refusals. */
#include "core/formats/gguf/gguf_int.h"
#include "core/formats/hf/model.h"
#include "core/formats/hf/safetensors.h"
#include "core/formats/model_file.h"
#include "core/formats/quantize/quantize.h"
#include "tests/support/runner.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t number(const gguf *g, const char *key) {
    uint64_t v = UINT64_MAX;
    gguf_get_u64(g, key, &v, NULL);
    return v;
}

static bool flag(const gguf *g, const char *key) {
    bool v = false;
    gguf_get_bool(g, key, &v, NULL);
    return v;
}

static bool says(const gguf *g, const char *key, const char *part) {
    gguf_str v = {"", 0};
    gguf_get_str(g, key, &v, NULL);
    return memmem(v.data, v.len, part, strlen(part)) != NULL;
}

/* Element i of a tensor of the folder, as F32. */
static double value(const gguf *g, const char *name, uint64_t i) {
    const gguf_tensor *t = gguf_tensor_find(g, name);
    float f = NAN;
    err e = {0};
    if (t && t->type == QTYPE_F32) gguf_tensor_read(g, t, i * sizeof f, sizeof f, &f, &e);
    return (double)f;
}

/* Element i of a tensor F32 or BF16 of a file. */
static double source(const safetensors *s, const char *name, uint64_t i) {
    const struct safetensor *t = safetensors_find(s, gguf_str_of(name));
    uint32_t bits = 0;
    float f = NAN;
    if (!t || i >= t->n_elems) return NAN;
    if (t->type == ST_BF16)
        memcpy((char *)&bits + 2, t->data + i * 2, 2);
    else
        memcpy(&bits, t->data + i * 4, 4);
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

/* Every element of a vector or convolution is what the file has, changed by the way it is stored:
 * '=' as it is, '+' 1 + w, '-' -e^w. */
static void compare(const gguf *g, const safetensors *s, const char *to, const char *from, char how,
                    uint64_t n) {
    const gguf_tensor *t = gguf_tensor_find(g, to);
    CHECK_MSG(t && t->n_elems == n && t->type == QTYPE_F32, "%s", to);
    for (uint64_t i = 0; i < n; i++) {
        double w = source(s, from, i), want = how == '=' ? w : how == '+' ? 1 + w : -exp(w);
        double got = value(g, to, i);
        CHECK_MSG(fabs(got - want) <= 1e-6 * fabs(want), "%s[%d] is %g, not %g", to, (int)i, got,
                  want);
    }
}

static bool same_place(const gguf *g, const char *to, const safetensors *s, const char *from) {
    const gguf_tensor *t = gguf_tensor_find(g, to);
    const struct safetensor *source = safetensors_find(s, gguf_str_of(from));
    return t && source && t->bytes == source->bytes && t->data &&
           memcmp(t->data, source->data, t->bytes) == 0;
}

#define FOLDER(name) "tests/golden/arch/" name "/hf"

static void open_both(const char *folder, gguf **g, safetensors **s) {
    char path[256];
    err e = {0};
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CHECK_MSG(model_file_open(folder, 0, g, &e) == 0, "%s", e.msg);
    CHECK_MSG(safetensors_open(path, s, &e) == 0, "%s", e.msg);
    if (!*g || !*s) exit(check_done());
}

/* The multimodal form: V heads stay grouped, the vision part and the layer that predicts are left
 * out and a key says so. */
static void images_and_predictions_are_left_out(void) {
    static const char l0[] = "model.language_model.layers.0.linear_attn.";
    gguf *g = NULL;
    safetensors *s = NULL;
    char from[128];
    enum gguf_type type;
    uint64_t n = 0;
    open_both(FOLDER("qwen35"), &g, &s);
    CHECK(says(g, "general.architecture", "qwen35") && number(g, "qwen35.block_count") == 6);
    CHECK(number(g, "qwen35.full_attention_interval") == 4);
    CHECK(!gguf_has(g, "qwen35.attention.recurrent_layers"));
    CHECK(number(g, "qwen35.ssm.conv_kernel") == 4 && number(g, "qwen35.ssm.state_size") == 16);
    CHECK(number(g, "qwen35.ssm.group_count") == 2 && number(g, "qwen35.ssm.inner_size") == 96);
    CHECK(number(g, "qwen35.ssm.time_step_rank") == 6);
    CHECK(number(g, "qwen35.rope.dimension_count") == 6);
    CHECK(flag(g, "qwen35.inferd.grouped_v_heads") && !gguf_has(g, "qwen35.nextn_predict_layers"));
    CHECK(gguf_get_array(g, "qwen35.rope.dimension_sections", &type, &n, NULL) == 0 && n == 4);
    CHECK(says(g, "qwen35.inferd.left_out", "tensors of the vision part, "));
    CHECK(says(g, "qwen35.inferd.left_out", "15 tensors of layers that"));
    CHECK(!gguf_tensor_find(g, "blk.6.attn_norm.weight") && gguf_tensor_find(g, "output.weight"));
    snprintf(from, sizeof from, "%sA_log", l0);
    compare(g, s, "blk.0.ssm_a", from, '-', 6);
    snprintf(from, sizeof from, "%sdt_bias", l0);
    compare(g, s, "blk.0.ssm_dt.bias", from, '=', 6);
    snprintf(from, sizeof from, "%snorm.weight", l0);
    compare(g, s, "blk.0.ssm_norm.weight", from, '=', 16);
    snprintf(from, sizeof from, "%sconv1d.weight", l0);
    compare(g, s, "blk.0.ssm_conv1d.weight", from, '=', 640);
    compare(g, s, "blk.0.attn_norm.weight", "model.language_model.layers.0.input_layernorm.weight",
            '+', 40);
    compare(g, s, "blk.3.attn_q_norm.weight",
            "model.language_model.layers.3.self_attn.q_norm.weight", '+', 24);
    compare(g, s, "output_norm.weight", "model.language_model.norm.weight", '+', 40);
    const gguf_tensor *conv = gguf_tensor_find(g, "blk.0.ssm_conv1d.weight");
    CHECK(conv && conv->n_dims == 2 && conv->dims[0] == 4 && conv->dims[1] == 160);
    snprintf(from, sizeof from, "%sin_proj_qkv.weight", l0);
    CHECK(same_place(g, "blk.0.attn_qkv.weight", s, from));
    snprintf(from, sizeof from, "%sout_proj.weight", l0);
    CHECK(same_place(g, "blk.0.ssm_out.weight", s, from));
    safetensors_close(s);
    gguf_close(g);
}

/* Projections by K head stay as they are; config.json as transformers 4 wrote it. */
static void projections_of_qwen3next_stay(void) {
    gguf *g = NULL;
    safetensors *s = NULL;
    open_both(FOLDER("qwen3next"), &g, &s);
    CHECK(number(g, "qwen3next.full_attention_interval") == 4);
    CHECK(number(g, "qwen3next.rope.dimension_count") == 4);
    CHECK(!gguf_has(g, "qwen3next.rope.dimension_sections"));
    CHECK(flag(g, "qwen3next.inferd.experts_renormalize"));
    CHECK(says(g, "qwen3next.inferd.left_out", "tensors of layers that"));
    CHECK(
        same_place(g, "blk.0.ssm_in.weight", s, "model.layers.0.linear_attn.in_proj_qkvz.weight"));
    CHECK(same_place(g, "blk.0.ssm_ba.weight", s, "model.layers.0.linear_attn.in_proj_ba.weight"));
    safetensors_close(s);
    gguf_close(g);
    g = NULL, s = NULL;
    open_both(FOLDER("qwen3next-tied"), &g, &s); /* BF16: vectors and convolutions become F32 */
    compare(g, s, "blk.1.ssm_a", "model.layers.1.linear_attn.A_log", '-', 2);
    compare(g, s, "blk.1.ssm_conv1d.weight", "model.layers.1.linear_attn.conv1d.weight", '=', 768);
    CHECK(!gguf_tensor_find(g, "output.weight") && !gguf_has(g, "qwen3next.inferd.left_out"));
    safetensors_close(s);
    gguf_close(g);
}

/* For a file that others read, too, V heads change places: number j of K head g comes to
 * j * n_k_heads + g. */
static void v_heads_are_tiled_for_files(void) {
    gguf *g = NULL;
    safetensors *s = NULL;
    char from[128];
    err e = {0};
    open_both(FOLDER("qwen35"), &g, &s);
    gguf_close(g);
    CHECK(model_file_open(FOLDER("qwen35"), GGUF_OPEN_AS_FILE, &g, &e) == 0);
    CHECK(!gguf_has(g, "qwen35.inferd.grouped_v_heads"));
    for (uint64_t place = 0; place < 6; place++) {
        uint64_t head = place % 2 * 3 + place / 2; /* of 2 K heads with 3 V heads each */
        static const char l0[] = "model.language_model.layers.0.linear_attn.";
        snprintf(from, sizeof from, "%sA_log", l0);
        CHECK(fabs(value(g, "blk.0.ssm_a", place) + exp(source(s, from, head))) < 1e-6);
        snprintf(from, sizeof from, "%sdt_bias", l0);
        CHECK(value(g, "blk.0.ssm_dt.bias", place) == source(s, from, head));
        snprintf(from, sizeof from, "%sin_proj_b.weight", l0);
        CHECK(value(g, "blk.0.ssm_beta.weight", place * 40 + 7) == source(s, from, head * 40 + 7));
        for (uint64_t i = 0; i < 16; i++) {
            snprintf(from, sizeof from, "%sin_proj_qkv.weight", l0);
            CHECK(value(g, "blk.0.attn_qkv.weight", (64 + place * 16 + i) * 40 + 3) ==
                  source(s, from, (64 + head * 16 + i) * 40 + 3));
            CHECK(value(g, "blk.0.attn_qkv.weight", i * 40 + 3) == source(s, from, i * 40 + 3));
            snprintf(from, sizeof from, "%sconv1d.weight", l0);
            CHECK(value(g, "blk.0.ssm_conv1d.weight", (64 + place * 16 + i) * 4 + 1) ==
                  source(s, from, (64 + head * 16 + i) * 4 + 1));
            snprintf(from, sizeof from, "%sout_proj.weight", l0);
            CHECK(value(g, "blk.0.ssm_out.weight", 5 * 96 + place * 16 + i) ==
                  source(s, from, 5 * 96 + head * 16 + i));
        }
    }
    safetensors_close(s);
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

/* What inferd quantize makes of a folder computes the same. */
static void written_files_compute_the_same(void) {
    static const char *const folders[] = {FOLDER("qwen35"), FOLDER("qwen35moe"),
                                          FOLDER("qwen3next")};
    char path[] = "/tmp/inferd-hf-file-XXXXXX";
    int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    for (int i = 0; i < 3; i++) {
        const struct quantize_options options = {.type = "f32"};
        const struct quantize_output output = {.path = path, .overwrite = true, .n_threads = 2};
        gguf *src = NULL;
        quantize_plan *plan = NULL;
        uint32_t n_vocab;
        double worst = 0;
        err e = {0};
        CHECK_MSG(model_file_open(folders[i], GGUF_OPEN_AS_FILE, &src, &e) == 0 &&
                      quantize_plan_new(src, &options, &plan, &e) == 0 &&
                      quantize_run(plan, &output, &e) == 0,
                  "%s", e.msg);
        quantize_plan_free(plan);
        gguf_close(src);
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

/* What transformers assumes; layers that no interval describes. */
static void members_may_be_missing(void) {
    err e = {0};
    enum gguf_type type;
    uint64_t n = 0;
    gguf *g = keys_of("{\"model_type\":\"qwen3_5_moe\",\"text_config\":{\"num_hidden_layers\":3,"
                      "\"layer_types\":[\"full_attention\",\"linear_attention\","
                      "\"linear_attention\"]}}",
                      &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(!gguf_has(g, "qwen35moe.full_attention_interval"));
    CHECK(!gguf_get_array(g, "qwen35moe.attention.recurrent_layers", &type, &n, &e) && n == 3);
    for (uint64_t i = 0; i < n; i++)
        CHECK(gguf_array_i64(g, "qwen35moe.attention.recurrent_layers", i) == (i > 0));
    CHECK(number(g, "qwen35moe.ssm.time_step_rank") == 32);
    CHECK(number(g, "qwen35moe.ssm.inner_size") == 4096);
    CHECK(number(g, "qwen35moe.rope.dimension_count") == 64);
    CHECK(number(g, "qwen35moe.attention.key_length") == 256);
    CHECK(gguf_array_i64(g, "qwen35moe.rope.dimension_sections", 2) == 10);
    CHECK(number(g, "qwen35moe.expert_count") == 256);
    CHECK(flag(g, "qwen35moe.inferd.experts_renormalize"));
    CHECK(!gguf_has(g, "qwen35moe.feed_forward_length"));
    gguf_close(g);
    g = keys_of("{\"model_type\":\"qwen3_5_text\",\"full_attention_interval\":2}", &e);
    CHECK(g && number(g, "qwen35.full_attention_interval") == 2);
    gguf_close(g);
}

static void members_without_counterpart_are_refused(void) {
    static const struct {
        const char *json, *says;
        int code;
    } rows[] = {
        {"{\"model_type\":\"qwen3_5\"}", "text_config", ERR_FORMAT},
        {"{\"model_type\":\"qwen3_5_text\",\"linear_value_head_dim\":64}", "linear_value_head_dim",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"qwen3_5_text\",\"linear_num_key_heads\":0}", "linear_num_key_heads",
         ERR_FORMAT},
        {"{\"model_type\":\"qwen3_5_text\",\"linear_conv_kernel_dim\":\"4\"}",
         "linear_conv_kernel_dim", ERR_FORMAT},
        {"{\"model_type\":\"qwen3_5_text\",\"full_attention_interval\":0}",
         "full_attention_interval", ERR_FORMAT},
        {"{\"model_type\":\"qwen3_5_text\",\"layer_types\":[\"linear_attention\"]}", "layer_types",
         ERR_FORMAT},
        {"{\"model_type\":\"qwen3_next\",\"num_hidden_layers\":1,\"layer_types\":[\"mamba\"]}",
         "'mamba'", ERR_UNSUPPORTED},
        {"{\"model_type\":\"qwen3_5_text\",\"attn_output_gate\":false}", "attn_output_gate",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"qwen3_5_text\",\"output_gate_type\":\"sigmoid\"}", "output_gate_type",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"qwen3_5_text\",\"hidden_act\":\"gelu\"}", "'gelu'", ERR_UNSUPPORTED},
        {"{\"model_type\":\"qwen3_next\",\"mlp_only_layers\":[\"1\"]}", "mlp_only_layers",
         ERR_FORMAT},
        {"{\"model_type\":\"qwen3_5_text\",\"partial_rotary_factor\":1.5}", "partial_rotary_factor",
         ERR_FORMAT},
        {"{\"model_type\":\"qwen3_5_text\",\"rope_parameters\":{\"mrope_section\":[1,2]}}",
         "mrope_section", ERR_FORMAT},
        {"{\"model_type\":\"qwen3_5_text\",\"rope_parameters\":{\"mrope_section\":[1,2,3,4]}}",
         "mrope_section", ERR_FORMAT},
        {"{\"model_type\":\"qwen3_5_text\",\"rope_parameters\":{\"mrope_section\":7}}",
         "mrope_section", ERR_FORMAT},
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
    RUN(images_and_predictions_are_left_out);
    RUN(projections_of_qwen3next_stay);
    RUN(v_heads_are_tiled_for_files);
    RUN(written_files_compute_the_same);
    RUN(members_may_be_missing);
    RUN(members_without_counterpart_are_refused);
    return check_done();
}
