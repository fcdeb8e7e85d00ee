/* test_hf_mamba2.c - folders and files of models with Mamba-2 (Granite 4.0, Falcon-H1, Nemotron-H):
 * keys of config.json, files that inferd quantize writes of the golden folders, and refusals of
 * members, keys and tensors by name. */
#include "core/formats/gguf/gguf_int.h"
#include "core/formats/hf/model.h"
#include "core/formats/model_file.h"
#include "core/formats/quantize/quantize.h"
#include "tests/support/files.h"
#include "tests/support/runner.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define FOLDER(name) "tests/golden/arch/" name "/hf"
enum { N_TOKENS = 40 };

static gguf *keys_of(const char *json, err *e) {
    gguf *g = NULL;
    hf_config_open_memory(json, strlen(json), &g, e);
    return g;
}

static uint64_t number(const gguf *g, const char *key) {
    uint64_t v = UINT64_MAX;
    gguf_get_u64(g, key, &v, NULL);
    return v;
}

static double real(const gguf *g, const char *key) {
    double v = NAN;
    gguf_get_f64(g, key, &v, NULL);
    return v;
}

/* ---- config.json ---- */

static void layers_are_listed(void) {
    err e = {0};
    bool rope = true;
    gguf *g =
        keys_of("{\"model_type\":\"granitemoehybrid\",\"num_local_experts\":0,"
                "\"num_hidden_layers\":3,\"num_key_value_heads\":2,\"layer_types\":[\"mamba\","
                "\"attention\",\"linear_attention\"],\"mamba_d_state\":128,"
                "\"shared_intermediate_size\":96,\"mamba_n_heads\":64,\"hidden_size\":64}",
                &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    for (uint64_t i = 0; i < 3; i++)
        CHECK(gguf_array_i64(g, "granitehybrid.attention.head_count_kv", i) == (i == 1 ? 2 : 0));
    CHECK(number(g, "granitehybrid.ssm.inner_size") == 128);
    CHECK(number(g, "granitehybrid.ssm.state_size") == 128);
    CHECK(number(g, "granitehybrid.feed_forward_length") == 96);
    CHECK(gguf_get_bool(g, "granitehybrid.rope.scaling.finetuned", &rope, &e) == 0 && !rope);
    gguf_close(g);
    g = keys_of("{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"M-*\","
                "\"intermediate_size\":60,\"num_key_value_heads\":4}",
                &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(number(g, "nemotron_h.block_count") == 3);
    for (uint64_t i = 0; i < 3; i++) {
        CHECK(gguf_array_i64(g, "nemotron_h.attention.head_count_kv", i) == (i == 2 ? 4 : 0));
        CHECK(gguf_array_i64(g, "nemotron_h.feed_forward_length", i) == (i == 1 ? 60 : 0));
    }
    CHECK(number(g, "nemotron_h.ssm.group_count") == 8);
    CHECK(number(g, "nemotron_h.ssm.inner_size") == 128 * 64);
    gguf_close(g);
}

static void multipliers_leave_matrices_alone(void) {
    err e = {0};
    gguf *g = keys_of("{\"model_type\":\"falcon_h1\",\"head_dim\":64,\"mamba_d_ssm\":1536,"
                      "\"mamba_n_heads\":24,\"key_multiplier\":0.5,\"attention_in_multiplier\":3,"
                      "\"attention_out_multiplier\":0.25,\"ssm_in_multiplier\":1.5,"
                      "\"ssm_multipliers\":[2,3,4,5,6],\"mlp_multipliers\":[0.5,4],"
                      "\"embedding_multiplier\":5,\"lm_head_multiplier\":0.125}",
                      &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(fabs(real(g, "falcon-h1.attention.scale") - 0.5 / 8) < 1e-7);
    CHECK(fabs(real(g, "falcon-h1.inferd.attention_out_scale") - 0.25) < 1e-7);
    CHECK(fabs(real(g, "falcon-h1.inferd.dt_scale") - 3) < 1e-6);
    CHECK(fabs(real(g, "falcon-h1.inferd.ffn_out_scale") - 8) < 1e-6);
    CHECK(real(g, "falcon-h1.embedding_scale") == 5 && real(g, "falcon-h1.logit_scale") == 8);
    gguf_close(g);
}

static void members_without_counterpart_are_refused(void) {
    static const struct {
        const char *json, *says;
        int code;
    } rows[] = {
        {"{\"model_type\":\"granitemoehybrid\",\"num_local_experts\":4,\"num_experts_per_tok\":5}",
         "num_experts_per_tok", ERR_FORMAT},
        {"{\"model_type\":\"granitemoehybrid\",\"num_local_experts\":0,\"num_hidden_layers\":1,"
         "\"layer_types\":[\"mlp\"]}",
         "'mlp'", ERR_UNSUPPORTED},
        {"{\"model_type\":\"granitemoehybrid\",\"num_local_experts\":0,\"num_hidden_layers\":2,"
         "\"layer_types\":[\"mamba\"]}",
         "layer_types", ERR_FORMAT},
        {"{\"model_type\":\"falcon_h1\",\"mamba_d_head\":32,\"mamba_d_ssm\":100}", "mamba_d_head",
         ERR_FORMAT},
        {"{\"model_type\":\"falcon_h1\",\"mamba_n_groups\":0}", "mamba_n_groups", ERR_FORMAT},
        {"{\"model_type\":\"falcon_h1\",\"mamba_rms_norm\":true}", "mamba_norm_before_gate",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"falcon_h1\",\"mamba_proj_bias\":true}", "mamba_proj_bias",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"falcon_h1\",\"time_step_limit\":[0.1,0.5]}", "time_step_limit",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"falcon_h1\",\"ssm_multipliers\":[1,2]}", "ssm_multipliers", ERR_FORMAT},
        {"{\"model_type\":\"falcon_h1\",\"mlp_multipliers\":[0,1]}", "mlp_multipliers",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"falcon_h1\",\"key_multiplier\":-1}", "key_multiplier", ERR_UNSUPPORTED},
        {"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"M\","
         "\"mamba_head_dim\":-1}",
         "mamba_head_dim", ERR_FORMAT},
        {"{\"model_type\":\"nemotron_h\"}", "layers_block_type", ERR_UNSUPPORTED},
        {"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"ME-\"}", "'-'",
         ERR_UNSUPPORTED},
        {"{\"model_type\":\"nemotron_h\",\"num_hidden_layers\":3,"
         "\"hybrid_override_pattern\":\"M-\"}",
         "hybrid_override_pattern", ERR_FORMAT},
        {"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"M\","
         "\"mlp_hidden_act\":\"silu\"}",
         "mlp_hidden_act", ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        err e = {0};
        gguf *g = keys_of(rows[i].json, &e);
        CHECK_MSG(!g && e.code == rows[i].code && strstr(e.msg, rows[i].says), "%s: %d, %s",
                  rows[i].json, e.code, e.msg);
        gguf_close(g);
    }
}

/* ---- files ---- */

static void write_file(const char *folder, const char *type, const char *path) {
    const struct quantize_options options = {.type = type};
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

static float *logits_of(const char *path, uint32_t *n_vocab) {
    static struct runner r;
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

/* What inferd quantize makes of a folder computes the same; of Falcon-H1 multipliers are then in
 * the matrices. Small tensors stay F32 in a quantized file. */
static void written_files_compute_the_same(const char *path) {
    static const char *const folders[] = {FOLDER("granitehybrid"), FOLDER("falcon-h1"),
                                          FOLDER("nemotron-h"), FOLDER("nemotron-h-moe"),
                                          FOLDER("nemotron-h-latent")};
    static const char *const small[] = {"blk.0.ssm_conv1d.weight", "blk.0.ssm_conv1d.bias",
                                        "blk.0.ssm_a", "blk.0.ssm_d", "blk.0.ssm_dt.bias"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        uint32_t n_vocab;
        double worst = 0;
        write_file(folders[i], "f32", path);
        float *want = logits_of(folders[i], &n_vocab), *got = logits_of(path, &n_vocab);
        for (uint64_t k = 0; k < (uint64_t)N_TOKENS * n_vocab; k++)
            worst = fmax(worst, fabs((double)got[k] - (double)want[k]));
        CHECK_MSG(worst < 2e-4, "%s: off by %g", folders[i], worst);
        free(got);
        free(want);
        write_file(folders[i], "bf16", path);
        gguf *g = NULL;
        err e = {0};
        CHECK_MSG(model_file_open(path, 0, &g, &e) == 0, "%s", e.msg);
        for (size_t k = 0; g && k < sizeof small / sizeof small[0]; k++) {
            const gguf_tensor *t = gguf_tensor_find(g, small[k]);
            CHECK_MSG(t && t->type == QTYPE_F32, "%s of %s", small[k], folders[i]);
        }
        gguf_close(g);
    }
}

/* The 4 bytes at `at` bytes after the name in the file become v. */
static void patch(const char *path, const char *name, size_t at, uint32_t v) {
    size_t n;
    char *data = file_read(path, &n);
    char *found = data ? memmem(data, n, name, strlen(name)) : NULL;
    CHECK_MSG(found != NULL, "%s", name);
    if (found) memcpy(found + strlen(name) + at, &v, sizeof v);
    FILE *f = found ? fopen(path, "wb") : NULL;
    if (f) CHECK(fwrite(data, 1, n, f) == n && fclose(f) == 0);
    free(data);
}

static void bad_files_are_refused(const char *path) {
    /* A key's value follows its type (u32), an array's its elements' type and number. */
    enum { VALUE = 4, ELEMENTS = 16 };
    static const struct {
        const char *folder, *name;
        size_t at;
        uint32_t v;
        const char *says;
    } rows[] = {
        {FOLDER("granitehybrid"), "granitehybrid.ssm.state_size", VALUE, 40, "ssm.state_size"},
        {FOLDER("granitehybrid"), "granitehybrid.ssm.state_size", VALUE, 272, "ssm.state_size"},
        {FOLDER("granitehybrid"), "granitehybrid.ssm.state_size", VALUE, 32, "ssm_conv1d.weight"},
        {FOLDER("granitehybrid"), "granitehybrid.ssm.conv_kernel", VALUE, 5, "ssm.conv_kernel"},
        {FOLDER("granitehybrid"), "granitehybrid.ssm.group_count", VALUE, 0, "ssm.group_count"},
        {FOLDER("granitehybrid"), "granitehybrid.ssm.group_count", VALUE, 2, "ssm.group_count"},
        {FOLDER("granitehybrid"), "granitehybrid.ssm.inner_size", VALUE, 72, "ssm.inner_size"},
        {FOLDER("granitehybrid"), "granitehybrid.ssm.inner_size", VALUE, 160, "ssm_conv1d.weight"},
        {FOLDER("granitehybrid"), "granitehybrid.ssm.time_step_rank", VALUE, 0,
         "ssm.time_step_rank"},
        {FOLDER("granitehybrid"), "granitehybrid.attention.head_count_kv", ELEMENTS, 99,
         "head_count_kv"},
        {FOLDER("granitehybrid"), "blk.0.ssm_conv1d.", 0, 0x64636261,
         "unexpected tensor blk.0.ssm_conv1d.abcd"},
        {FOLDER("nemotron-h-latent"), "nemotron_h_moe.moe_latent_size", VALUE, 24,
         "ffn_up_exps.weight"},
        {FOLDER("nemotron-h-latent"), "nemotron_h_moe.moe_latent_", 0, 0x64636261,
         "unexpected tensor blk.1.ffn_latent_"},
        {FOLDER("nemotron-h-latent"), "nemotron_h_moe.expert_count", VALUE, 0, "expert_count"},
        {FOLDER("nemotron-h-latent"), "nemotron_h_moe.expert_used_count", VALUE, 9,
         "expert_used_count"},
        {FOLDER("nemotron-h-latent"), "nemotron_h_moe.expert_feed_forward_length", VALUE, 17,
         "ffn_up_exps.weight"},
        {FOLDER("nemotron-h-latent"), "nemotron_h_moe.expert_shared_feed_forward_length", VALUE, 25,
         "ffn_up_shexp.weight"},
        {FOLDER("nemotron-h-latent"), "nemotron_h_moe.expert_gating_func", VALUE, 7,
         "expert_gating_func"},
        {FOLDER("nemotron-h-latent"), "blk.1.ffn_latent_", 0, 0x64636261,
         "unexpected tensor blk.1.ffn_latent_abcd.weight"},
        {FOLDER("nemotron-h-latent"), "blk.1.ffn_up_exps.weight", 4, 12,
         "blk.1.ffn_up_exps.weight"},
        {FOLDER("nemotron-h-latent"), "blk.1.ffn_down_exps.weight", 4, 12,
         "blk.1.ffn_down_exps.weight"},
        {FOLDER("nemotron-h-latent"), "blk.1.ffn_latent_down.weight", 4, 32,
         "blk.1.ffn_latent_down.weight"},
        {FOLDER("nemotron-h-latent"), "blk.1.ffn_latent_up.weight", 4, 16,
         "blk.1.ffn_latent_up.weight"},
        {FOLDER("nemotron-h-latent"), "blk.1.ffn_up_shexp.weight", 4, 32,
         "blk.1.ffn_up_shexp.weight"},
        {FOLDER("nemotron-h-latent"), "blk.1.ffn_down_shexp.weight", 4, 16,
         "blk.1.ffn_down_shexp.weight"},
        {FOLDER("nemotron-h"), "nemotron_h.feed_forward_length", ELEMENTS, 7,
         "feed_forward_length"},
        {FOLDER("nemotron-h"), "nemotron_h.feed_forward_length", ELEMENTS + 12, 60,
         "head_count_kv"},
        {FOLDER("nemotron-h"), "nemotron_h.attention.head_count_kv", ELEMENTS + 12, 3,
         "3 KV heads"},
        {FOLDER("falcon-h1"), "falcon-h1.ssm.inner_size", VALUE, 96, "ssm_conv1d.weight"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model_hparams hp;
        err e = {0};
        write_file(rows[i].folder, "f32", path);
        patch(path, rows[i].name, rows[i].at, rows[i].v);
        int rc = model_read_hparams(path, &hp, &e);
        CHECK_MSG(rc && strstr(e.msg, rows[i].says), "%s = %u: %d, %s", rows[i].name, rows[i].v, rc,
                  rc ? e.msg : "accepted");
    }
}

static char path[] = "/tmp/inferd-mamba2-XXXXXX";

static void files(void) {
    written_files_compute_the_same(path);
}

static void bad_files(void) {
    bad_files_are_refused(path);
}

int main(void) {
    int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    RUN(layers_are_listed);
    RUN(multipliers_leave_matrices_alone);
    RUN(members_without_counterpart_are_refused);
    RUN(files);
    RUN(bad_files);
    unlink(path);
    return check_done();
}
