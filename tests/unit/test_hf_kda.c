/* test_hf_kda.c - folders of Kimi Linear: keys of config.json under the maker's and transformers'
 * names, tensors of a generated folder, the file that inferd quantize makes of it, and refusals. */
#include "core/formats/gguf/gguf_int.h"
#include "core/formats/hf/model.h"
#include "core/formats/hf/tokenizer.h"
#include "core/formats/model_file.h"
#include "core/formats/quantize/quantize.h"
#include "tests/support/forward64.h"
#include "tests/support/runner.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define KEY(name) "kimi-linear." name
#define SIZES                                                                                      \
    "\"model_type\":\"kimi_linear\",\"num_hidden_layers\":3,\"hidden_size\":20,"                   \
    "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"intermediate_size\":24,"                \
    "\"kv_lora_rank\":12,\"qk_nope_head_dim\":10,\"qk_rope_head_dim\":4,\"v_head_dim\":6,"         \
    "\"q_lora_rank\":null,\"moe_intermediate_size\":8,\"vocab_size\":50,"                          \
    "\"routed_scaling_factor\":2.446,\"first_k_dense_replace\":1"
#define MAKER                                                                                      \
    "\"num_experts\":4,\"num_experts_per_token\":2,\"num_shared_experts\":1,"                      \
    "\"moe_renormalize\":true,\"num_expert_group\":2,\"topk_group\":1,\"model_max_length\":512,"   \
    "\"mla_use_nope\":true,\"moe_router_activation_func\":\"sigmoid\""
#define LAYERS                                                                                     \
    "\"linear_attn_config\":{\"full_attn_layers\":[2],\"kda_layers\":[1,3],\"head_dim\":16,"       \
    "\"num_heads\":2,\"short_conv_kernel_size\":4}"

enum { HIDDEN = 20, HEADS = 2, DIM = 16, COLS = HEADS * DIM, TAPS = 4, N_VOCAB = 50 };

static uint64_t number(const gguf *g, const char *key) {
    uint64_t v = UINT64_MAX;
    gguf_get_u64(g, key, &v, NULL);
    return v;
}

static gguf *keys_of(const char *json, err *e) {
    gguf *g = NULL;
    hf_config_open_memory(json, strlen(json), &g, e);
    return g;
}

static void check_keys(const char *json) {
    err e = {0};
    gguf *g = keys_of(json, &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(number(g, KEY("context_length")) == 512 && number(g, KEY("kda.head_dim")) == 16);
    CHECK(number(g, KEY("ssm.conv_kernel")) == 4 && number(g, KEY("rope.dimension_count")) == 4);
    CHECK(number(g, KEY("attention.kv_lora_rank")) == 12);
    CHECK(number(g, KEY("attention.key_length_mla")) == 14);
    CHECK(number(g, KEY("attention.value_length_mla")) == 6);
    CHECK(!gguf_has(g, KEY("attention.q_lora_rank")));
    CHECK(number(g, KEY("expert_count")) == 4 && number(g, KEY("expert_used_count")) == 2);
    CHECK(number(g, KEY("expert_group_count")) == 2 && number(g, KEY("expert_gating_func")) == 2);
    CHECK(number(g, KEY("expert_shared_count")) == 1);
    CHECK(number(g, KEY("leading_dense_block_count")) == 1);
    enum gguf_type elem;
    uint64_t n = 0;
    CHECK(gguf_get_array(g, KEY("attention.head_count_kv"), &elem, &n, &e) == 0 && n == 3);
    for (uint64_t i = 0; i < n; i++)
        CHECK(gguf_array_i64(g, KEY("attention.head_count_kv"), i) == (i == 1));
    gguf_close(g);
}

static void keys_have_two_names(void) {
    check_keys("{" SIZES "," MAKER "," LAYERS "}");
    check_keys("{" SIZES ",\"n_routed_experts\":4,\"num_experts_per_tok\":2,\"n_shared_experts\":1,"
               "\"norm_topk_prob\":true,\"n_group\":2,\"topk_group\":1,"
               "\"max_position_embeddings\":512,\"linear_head_dim\":16,\"linear_num_heads\":2,"
               "\"linear_conv_kernel_dim\":4,\"layer_types\":[\"linear_attention\","
               "\"full_attention\",\"linear_attention\"],"
               "\"mlp_layer_types\":[\"dense\",\"sparse\",\"sparse\"]}");
}

static void members_without_counterpart_are_refused(void) {
    static const struct {
        const char *members, *says;
        int code;
    } rows[] = {
        {"\"x\":1", "linear_attn_config", ERR_FORMAT},
        {"\"linear_attn_config\":{\"full_attn_layers\":[2],\"kda_layers\":[1]}", "layer 3",
         ERR_FORMAT},
        {"\"linear_attn_config\":{\"full_attn_layers\":[2],\"kda_layers\":[1,2,3]}", "once",
         ERR_FORMAT},
        {"\"linear_attn_config\":{\"full_attn_layers\":[0],\"kda_layers\":[1,2,3]}", "once",
         ERR_FORMAT},
        {"\"linear_attn_config\":{\"full_attn_layers\":[4],\"kda_layers\":[1,2,3]}", "once",
         ERR_FORMAT},
        {"\"linear_attn_config\":{\"full_attn_layers\":[2]}", "kda_layers", ERR_FORMAT},
        {"\"layer_types\":[\"full_attention\"]", "layer_types", ERR_FORMAT},
        {"\"layer_types\":[\"full_attention\",\"conv\",\"conv\"]", "'conv'", ERR_UNSUPPORTED},
        {LAYERS ",\"mla_use_nope\":false", "mla_use_nope", ERR_UNSUPPORTED},
        {LAYERS ",\"mla_use_output_gate\":true", "mla_use_output_gate", ERR_UNSUPPORTED},
        {LAYERS ",\"attn_res_block_size\":4", "attn_res_block_size", ERR_UNSUPPORTED},
        {LAYERS ",\"moe_router_activation_func\":\"softmax\"", "softmax", ERR_UNSUPPORTED},
        {"\"linear_attn_config\":{\"full_attn_layers\":[2],\"kda_layers\":[1,3],\"num_heads\":3}",
         "num_heads", ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char json[1024];
        err e = {0};
        snprintf(json, sizeof json, "{" SIZES ",%s}", rows[i].members);
        gguf *g = keys_of(json, &e);
        CHECK_MSG(!g && e.code == rows[i].code && strstr(e.msg, rows[i].says), "%s: %d, %s", json,
                  e.code, e.msg);
        gguf_close(g);
    }
}

/* ---- a folder ---- */

static char folder[] = "/tmp/inferd-hf-kda-XXXXXX";
static char header[1 << 15];
static float values[1 << 16];
static uint32_t used, n_values;
static float a_log[HEADS];

/* A tensor of random values. around_1: a norm. */
static float *add(const char *format, uint32_t layer, uint32_t expert, const char *shape,
                  uint32_t n, bool around_1) {
    char name[96];
    float *to = values + n_values;
    be_need(n_values + n <= sizeof values / sizeof values[0], "room");
    be_fill(to, n, around_1 ? 0.2f : 0.5f);
    for (uint32_t i = 0; around_1 && i < n; i++)
        to[i] += 1;
    snprintf(name, sizeof name, format, layer, expert);
    used +=
        (uint32_t)snprintf(header + used, sizeof header - used,
                           "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%u,%u]}",
                           used ? "," : "{", name, shape, n_values * 4, (n_values + n) * 4);
    n_values += n;
    return to;
}

#define LAYER "model.layers.%u."
static void add_kda(uint32_t i) {
    static const char *const convs[] = {LAYER "self_attn.q_conv1d.weight",
                                        LAYER "self_attn.k_conv1d.weight",
                                        LAYER "self_attn.v_conv1d.weight"};
    static const char *const wide[] = {LAYER "self_attn.q_proj.weight",
                                       LAYER "self_attn.k_proj.weight",
                                       LAYER "self_attn.v_proj.weight"};
    for (int k = 0; k < 3; k++) {
        add(wide[k], i, 0, "32,20", COLS * HIDDEN, false);
        add(convs[k], i, 0, "32,1,4", COLS * TAPS, false);
    }
    add(LAYER "self_attn.f_a_proj.weight", i, 0, "16,20", DIM * HIDDEN, false);
    add(LAYER "self_attn.f_b_proj.weight", i, 0, "32,16", COLS * DIM, false);
    add(LAYER "self_attn.g_a_proj.weight", i, 0, "16,20", DIM * HIDDEN, false);
    add(LAYER "self_attn.g_b_proj.weight", i, 0, "32,16", COLS * DIM, false);
    add(LAYER "self_attn.b_proj.weight", i, 0, "2,20", HEADS * HIDDEN, false);
    memcpy(a_log, add(LAYER "self_attn.A_log", i, 0, "1,1,2,1", HEADS, false), sizeof a_log);
    add(LAYER "self_attn.dt_bias", i, 0, "2,16", COLS, false);
    add(LAYER "self_attn.o_norm.weight", i, 0, "16", DIM, true);
    add(LAYER "self_attn.o_proj.weight", i, 0, "20,32", HIDDEN * COLS, false);
}

static void add_latent(uint32_t i) {
    add(LAYER "self_attn.q_proj.weight", i, 0, "28,20", 28 * HIDDEN, false);
    add(LAYER "self_attn.kv_a_proj_with_mqa.weight", i, 0, "16,20", 16 * HIDDEN, false);
    add(LAYER "self_attn.kv_a_layernorm.weight", i, 0, "12", 12, true);
    add(LAYER "self_attn.kv_b_proj.weight", i, 0, "32,12", 32 * 12, false);
    add(LAYER "self_attn.o_proj.weight", i, 0, "20,12", HIDDEN * 12, false);
}

#define MOE LAYER "block_sparse_moe."
static void add_experts(uint32_t i) {
    add(MOE "gate.weight", i, 0, "4,20", 4 * HIDDEN, false);
    add(MOE "gate.e_score_correction_bias", i, 0, "4", 4, false);
    for (uint32_t x = 0; x < 4; x++) {
        add(MOE "experts.%u.w1.weight", i, x, "8,20", 8 * HIDDEN, false);
        add(MOE "experts.%u.w2.weight", i, x, "20,8", 8 * HIDDEN, false);
        add(MOE "experts.%u.w3.weight", i, x, "8,20", 8 * HIDDEN, false);
    }
    add(MOE "shared_experts.gate_proj.weight", i, 0, "8,20", 8 * HIDDEN, false);
    add(MOE "shared_experts.up_proj.weight", i, 0, "8,20", 8 * HIDDEN, false);
    add(MOE "shared_experts.down_proj.weight", i, 0, "20,8", 8 * HIDDEN, false);
}

static void write_bytes(const char *name, const void *a, size_t n, const void *b, size_t n_b) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    be_need(f && fwrite(a, 1, n, f) == n && fwrite(b, 1, n_b, f) == n_b && !fclose(f), path);
}

static void write_folder(void) {
    static const char config[] = "{" SIZES "," MAKER "," LAYERS "}";
    static char first[sizeof header + 8];
    be_need(mkdtemp(folder) != NULL, folder);
    add("model.embed_tokens.weight", 0, 0, "50,20", N_VOCAB * HIDDEN, false);
    add("lm_head.weight", 0, 0, "50,20", N_VOCAB * HIDDEN, false);
    add("model.norm.weight", 0, 0, "20", HIDDEN, true);
    for (uint32_t i = 0; i < 3; i++) {
        add(LAYER "input_layernorm.weight", i, 0, "20", HIDDEN, true);
        add(LAYER "post_attention_layernorm.weight", i, 0, "20", HIDDEN, true);
        i == 1 ? add_latent(i) : add_kda(i);
        if (i) {
            add_experts(i);
            continue;
        }
        add(LAYER "mlp.gate_proj.weight", i, 0, "24,20", 24 * HIDDEN, false);
        add(LAYER "mlp.up_proj.weight", i, 0, "24,20", 24 * HIDDEN, false);
        add(LAYER "mlp.down_proj.weight", i, 0, "20,24", 24 * HIDDEN, false);
    }
    const uint64_t n = used + 1;
    memcpy(first, &n, 8);
    memcpy(first + 8, header, used);
    first[8 + used] = '}';
    write_bytes("config.json", config, sizeof config - 1, "", 0);
    write_bytes("model.safetensors", first, 8 + n, values, n_values * sizeof *values);
}

static bool has_shape(const gguf *g, const char *name, uint64_t a, uint64_t b, uint64_t c) {
    const gguf_tensor *t = gguf_tensor_find(g, name);
    return t && t->type == QTYPE_F32 && t->dims[0] == a && t->dims[1] == b && t->dims[2] == c;
}

static void tensors_have_their_names_and_shapes(void) {
    gguf *g = NULL;
    err e = {0};
    CHECK_MSG(model_file_open(folder, 0, &g, &e) == 0, "%s", e.msg);
    if (!g) return;
    CHECK(has_shape(g, "blk.2.ssm_conv1d_k.weight", TAPS, 1, COLS));
    CHECK(has_shape(g, "blk.2.ssm_a", 1, HEADS, 1) &&
          has_shape(g, "blk.0.ssm_dt.bias", COLS, 1, 1));
    CHECK(has_shape(g, "blk.2.ssm_f_b.weight", DIM, COLS, 1));
    CHECK(has_shape(g, "blk.1.attn_k_b.weight", 10, 12, HEADS));
    CHECK(has_shape(g, "blk.1.exp_probs_b.bias", 4, 1, 1));
    CHECK(has_shape(g, "blk.2.ffn_down_shexp.weight", 8, HIDDEN, 1));
    float a[HEADS] = {0};
    CHECK(gguf_tensor_read(g, gguf_tensor_find(g, "blk.2.ssm_a"), 0, sizeof a, a, &e) == 0);
    for (int h = 0; h < HEADS; h++)
        CHECK(fabs((double)a[h] + exp((double)a_log[h])) < 1e-6);
    gguf_close(g);
}

enum { N_TOKENS = 50 };

static float *logits_of(const char *path) {
    struct runner r;
    int32_t tokens[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = i * 7 % N_VOCAB;
    runner_open(&r, &(struct runner_config){.path = path,
                                            .n_threads = 2,
                                            .kv_type = QTYPE_F32,
                                            .max_rows = N_TOKENS,
                                            .max_tokens = N_TOKENS});
    struct piece all = {.tokens = tokens, .n = N_TOKENS};
    float *copy = be_new(N_TOKENS * N_VOCAB, sizeof *copy);
    memcpy(copy, runner_step(&r, &all, 1, true), N_TOKENS * N_VOCAB * sizeof *copy);
    runner_close(&r);
    return copy;
}

/* The file that inferd quantize makes, against float64 and the folder itself. */
static void written_files_compute_the_same(void) {
    const struct quantize_options options = {.type = "f32"};
    struct forward64 f = {.n_layers = 3,
                          .n_embd = HIDDEN,
                          .n_heads = HEADS,
                          .n_kv_heads = 1,
                          .head_dim = 16,
                          .n_ff = 24,
                          .n_vocab = N_VOCAB,
                          .eps = (double)1e-5f,
                          .rope[0] = {.n_rot = 4, .magnitude = 1},
                          .embed_scale = 1,
                          .attn_scale = 1 / sqrt(14),
                          .residual_scale = 1,
                          .logit_scale = 1,
                          .n_experts = 4,
                          .n_used = 2,
                          .n_ff_expert = 8,
                          .n_ff_shared = 8,
                          .renormalize = true,
                          .sigmoid = true,
                          .weight_scale = (double)2.446f,
                          .recurrent = {true, false, true},
                          .kda = true,
                          .n_taps = TAPS,
                          .state_dim = DIM,
                          .kv_rank = 12,
                          .k_dim = 14,
                          .v_dim = 6,
                          .n_groups = 2,
                          .n_groups_used = 1};
    char path[] = "/tmp/inferd-hf-kda-file-XXXXXX";
    const struct quantize_output output = {.path = path, .overwrite = true, .n_threads = 2};
    double want[N_TOKENS * N_VOCAB], worst = 0;
    int32_t tokens[N_TOKENS];
    gguf *src = NULL;
    quantize_plan *plan = NULL;
    err e = {0};
    int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    CHECK_MSG(model_file_open(folder, GGUF_OPEN_AS_FILE, &src, &e) == 0 &&
                  quantize_plan_new(src, &options, &plan, &e) == 0 &&
                  quantize_run(plan, &output, &e) == 0,
              "%s", e.msg);
    quantize_plan_free(plan);
    gguf_close(src);
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = i * 7 % N_VOCAB;
    CHECK(gguf_open(path, 0, &src, &e) == 0);
    forward64_run(src, &f, tokens, N_TOKENS, want);
    gguf_close(src);
    const char *const paths[] = {folder, path};
    for (int k = 0; k < 2; k++) {
        float *got = logits_of(paths[k]);
        for (int i = 0; i < N_TOKENS * N_VOCAB; i++)
            worst = fmax(worst, fabs((double)got[i] - want[i]));
        CHECK_MSG(worst < 2e-4, "%s: off by %g", paths[k], worst);
        free(got);
    }
    unlink(path);
}

static void remove_folder(void) {
    static const char *const names[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

int main(void) {
    RUN(keys_have_two_names);
    RUN(members_without_counterpart_are_refused);
    be_rng.state = 3;
    write_folder();
    RUN(tensors_have_their_names_and_shapes);
    RUN(written_files_compute_the_same);
    remove_folder();
    return check_done();
}
