/* test_hf_mla.c - folders of DeepSeek V2 and V3, Kimi K2 and GLM-4.7-Flash: keys of config.json,
 * tensors of the golden folders, files that inferd quantize makes of them, and refusals. */
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

#define FOLDER(name) "tests/golden/arch/" name "/hf"
#define KEY(name)    "deepseek2." name

static uint64_t number(const gguf *g, const char *key) {
    uint64_t v = UINT64_MAX;
    gguf_get_u64(g, key, &v, NULL);
    return v;
}

static bool is_real(const gguf *g, const char *key, double want) {
    double v = NAN;
    gguf_get_f64(g, key, &v, NULL);
    return fabs(v - want) < 1e-6;
}

static bool has_shape(const gguf *g, const char *name, int type, uint64_t n_in, uint64_t n_out,
                      uint64_t n_heads) {
    const gguf_tensor *t = gguf_tensor_find(g, name);
    return t && t->type == type && t->dims[0] == n_in && t->dims[1] == n_out &&
           t->dims[2] == n_heads;
}

static gguf *open_folder(const char *folder) {
    gguf *g = NULL;
    err e = {0};
    CHECK_MSG(model_file_open(folder, 0, &g, &e) == 0, "%s", e.msg);
    return g;
}

static void keys_and_tensors_of_goldens(void) {
    gguf *g = open_folder(FOLDER("deepseek3"));
    if (!g) return;
    CHECK(number(g, KEY("attention.kv_lora_rank")) == 48);
    CHECK(number(g, KEY("attention.q_lora_rank")) == 24);
    CHECK(number(g, KEY("attention.key_length")) == 64);
    CHECK(number(g, KEY("attention.value_length")) == 48);
    CHECK(number(g, KEY("attention.key_length_mla")) == 28);
    CHECK(number(g, KEY("attention.value_length_mla")) == 20);
    CHECK(number(g, KEY("attention.head_count_kv")) == 1);
    CHECK(number(g, KEY("rope.dimension_count")) == 16);
    CHECK(number(g, KEY("expert_group_count")) == 4);
    CHECK(number(g, KEY("expert_group_used_count")) == 2);
    CHECK(number(g, KEY("expert_gating_func")) == 2 && number(g, KEY("expert_shared_count")) == 1);
    CHECK(number(g, KEY("leading_dense_block_count")) == 1);
    CHECK(is_real(g, KEY("expert_weights_scale"), 2.5));
    CHECK(is_real(g, KEY("rope.scaling.yarn_log_multiplier"), 0.06));
    CHECK(is_real(g, KEY("rope.scaling.yarn_attn_factor"),
                  (1 + 0.09 * log(8)) / (1 + 0.06 * log(8))));
    CHECK(has_shape(g, "blk.0.attn_k_b.weight", QTYPE_F32, 12, 48, 4));
    CHECK(has_shape(g, "blk.0.attn_v_b.weight", QTYPE_F32, 48, 20, 4));
    CHECK(has_shape(g, "blk.1.exp_probs_b.bias", QTYPE_F32, 8, 1, 1));
    CHECK(!gguf_tensor_find(g, "blk.0.attn_kv_b.weight"));
    gguf_close(g);
    if (!(g = open_folder(FOLDER("deepseek2")))) return;
    CHECK(!gguf_has(g, KEY("attention.q_lora_rank")) && !gguf_has(g, KEY("expert_group_count")));
    CHECK(number(g, KEY("expert_gating_func")) == 1 && number(g, KEY("expert_shared_count")) == 2);
    CHECK(has_shape(g, "blk.0.attn_q.weight", QTYPE_F32, 32, 64, 1));
    gguf_close(g);
    if (!(g = open_folder(FOLDER("deepseek2-groups")))) return;
    CHECK(number(g, KEY("expert_group_count")) == 3);
    CHECK(number(g, KEY("leading_dense_block_count")) == 0);
    gguf_close(g);
    if (!(g = open_folder(FOLDER("glm4-moe-lite")))) return;
    gguf_str left_out = {0};
    CHECK(number(g, KEY("block_count")) == 3 && !gguf_tensor_find(g, "blk.3.attn_norm.weight"));
    CHECK(gguf_get_str(g, KEY("inferd.left_out"), &left_out, NULL) == 0);
    CHECK(left_out.len == strlen("35 tensors of layers that predict further tokens"));
    CHECK(has_shape(g, "blk.0.attn_k_b.weight", QTYPE_BF16, 24, 32, 3));
    CHECK(number(g, KEY("leading_dense_block_count")) == 1);
    gguf_close(g);
}

/* Every number of attn_k_b and attn_v_b is one of kv_b_proj. */
static void heads_are_split(void) {
    gguf *g = open_folder(FOLDER("deepseek3"));
    err e = {0};
    enum { HEADS = 4, NOPE = 12, V = 20, RANK = 48 };
    static float k[HEADS][RANK][NOPE], v[HEADS][V][RANK], both[HEADS][NOPE + V][RANK];
    safetensors *file = NULL;
    if (!g) return;
    CHECK(safetensors_open(FOLDER("deepseek3") "/model.safetensors", &file, &e) == 0);
    const struct safetensor *s =
        safetensors_find(file, gguf_str_of("model.layers.1.self_attn.kv_b_proj.weight"));
    CHECK(s && s->n_elems == HEADS * (NOPE + V) * RANK);
    if (s) memcpy(both, s->data, sizeof both);
    CHECK(gguf_tensor_read(g, gguf_tensor_find(g, "blk.1.attn_k_b.weight"), 0, sizeof k, k, &e) ==
          0);
    CHECK(gguf_tensor_read(g, gguf_tensor_find(g, "blk.1.attn_v_b.weight"), 0, sizeof v, v, &e) ==
          0);
    uint32_t wrong = 0;
    for (int h = 0; h < HEADS; h++)
        for (int r = 0; r < RANK; r++) {
            for (int i = 0; i < NOPE; i++)
                wrong += k[h][r][i] != both[h][i][r];
            for (int i = 0; i < V; i++)
                wrong += v[h][i][r] != both[h][NOPE + i][r];
        }
    CHECK_MSG(!wrong, "%u numbers are wrong", wrong);
    safetensors_close(file);
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

/* What inferd quantize makes of a folder computes the same; matrices by head are quantized. */
static void written_files_compute_the_same(void) {
    static const char *const folders[] = {FOLDER("deepseek2"), FOLDER("deepseek2-groups"),
                                          FOLDER("deepseek3"), FOLDER("glm4-moe-lite")};
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
    write_file(FOLDER("glm4-moe-lite"), "q8_0", path);
    CHECK_MSG(gguf_open(path, 0, &g, &e) == 0, "%s", e.msg);
    CHECK(g && has_shape(g, "blk.0.attn_v_b.weight", QTYPE_Q8_0, 32, 32, 3));
    gguf_close(g);
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
    gguf *g = keys_of("{\"model_type\":\"deepseek_v3\",\"vocab_size\":100}", &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(number(g, KEY("block_count")) == 61 && number(g, KEY("attention.key_length")) == 576);
    CHECK(number(g, KEY("attention.q_lora_rank")) == 1536);
    CHECK(number(g, KEY("expert_count")) == 256 && number(g, KEY("expert_group_count")) == 8);
    CHECK(number(g, KEY("expert_group_used_count")) == 4);
    CHECK(number(g, KEY("leading_dense_block_count")) == 3);
    gguf_close(g);
    g = keys_of("{\"model_type\":\"glm4_moe_lite\"}", &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(number(g, KEY("attention.key_length_mla")) == 256);
    CHECK(number(g, KEY("leading_dense_block_count")) == 1);
    CHECK(number(g, KEY("expert_used_count")) == 4 && !gguf_has(g, KEY("expert_group_count")));
    gguf_close(g);
    /* cos and sin grow where only mscale_all_dim is given */
    g = keys_of("{\"model_type\":\"deepseek_v2\",\"q_lora_rank\":null,\"n_routed_experts\":null,"
                "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"mscale_all_dim\":1,"
                "\"original_max_position_embeddings\":64}}",
                &e);
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(is_real(g, KEY("rope.scaling.yarn_attn_factor"), 1 + 0.1 * log(4)));
    CHECK(is_real(g, KEY("rope.scaling.yarn_log_multiplier"), 0.1));
    CHECK(!gguf_has(g, KEY("expert_count")) && !gguf_has(g, KEY("attention.q_lora_rank")));
    gguf_close(g);
}

/* Mistral Small 4 in the folder of a model of text and images. */
static void mistral4_has_the_keys_of_its_files(void) {
    err e = {0};
    gguf *g = keys_of("{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"mistral4\","
                      "\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":10000,"
                      "\"factor\":128,\"original_max_position_embeddings\":8192,\"mscale\":1,"
                      "\"mscale_all_dim\":1,\"llama_4_scaling_beta\":0.1,"
                      "\"partial_rotary_factor\":0.5}}}",
                      &e);
    gguf_str arch = {0};
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(gguf_get_str(g, "general.architecture", &arch, NULL) == 0 && arch.len == 8 &&
          memcmp(arch.data, "mistral4", 8) == 0);
    CHECK(number(g, "mistral4.attention.kv_lora_rank") == 256);
    CHECK(number(g, "mistral4.attention.q_lora_rank") == 1024);
    CHECK(number(g, "mistral4.attention.key_length") == 320);
    CHECK(number(g, "mistral4.attention.key_length_mla") == 128);
    CHECK(number(g, "mistral4.rope.dimension_count") == 64);
    CHECK(number(g, "mistral4.expert_count") == 128);
    CHECK(number(g, "mistral4.expert_used_count") == 4);
    CHECK(number(g, "mistral4.expert_gating_func") == 1);
    CHECK(number(g, "mistral4.leading_dense_block_count") == 0);
    CHECK(is_real(g, "mistral4.rope.scaling.yarn_log_multiplier", 0.1));
    CHECK(is_real(g, "mistral4.rope.scaling.yarn_attn_factor", 1));
    CHECK(is_real(g, "mistral4.attention.temperature_scale", 0.1));
    gguf_close(g);
}

/* ---- Kimi K2 ---- */

enum { FILE_ROOM = 1 << 20 };

/* The bytes of a file, which the caller frees, and their number. */
static char *read_whole(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *bytes = f ? malloc(FILE_ROOM) : NULL;
    *n = bytes ? fread(bytes, 1, FILE_ROOM - 1, f) : 0;
    CHECK_MSG(*n > 0 && *n < FILE_ROOM - 1, "%s", path);
    if (bytes) bytes[*n] = 0;
    if (f) fclose(f);
    return bytes;
}

static void write_parts(const char *folder, const char *name, const char *const *parts,
                        const size_t *sizes, int n) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    for (int i = 0; f && i < n; i++)
        CHECK(fwrite(parts[i], 1, sizes[i], f) == sizes[i]);
    if (f) fclose(f);
}

/* The golden folder of DeepSeek V3 as one of Kimi K2.5: its config.json below text_config, its
 * tensors below language_model., and one of an image projector. */
static void write_kimi_folder(const char *folder) {
    static const char in_front[] = "language_model.";
    size_t n, n_json, at = 0, n_text = 0;
    char *file = read_whole(FOLDER("deepseek3") "/model.safetensors", &n);
    char *json = read_whole(FOLDER("deepseek3") "/config.json", &n_json);
    char *header = malloc(FILE_ROOM), *type = json ? strstr(json, "\"deepseek_v3\"") : NULL;
    uint64_t n_header = 0;
    CHECK(type != NULL);
    if (type) memcpy(type, "\"kimi_k2\"    ", strlen("\"deepseek_v3\""));
    if (n > 8) memcpy(&n_header, file, 8);
    for (at = 0; header && at < n_header; at++) {
        const char *from = file + 8 + at;
        if (strncmp(from, "\"model.", 7) == 0 || strncmp(from, "\"lm_head.", 9) == 0)
            n_text += (size_t)sprintf(header + n_text, "\"%s", in_front);
        else
            header[n_text++] = *from;
    }
    const size_t n_data = n - 8 - n_header;
    while (n_text && header[n_text - 1] != '}')
        n_text--;
    n_text += (size_t)sprintf(header + n_text - 1,
                              ",\"mm_projector.proj.0.weight\":{\"dtype\":\"F32\",\"shape\":[1],"
                              "\"data_offsets\":[%zu,%zu]}}",
                              n_data, n_data + 4) -
              1;
    while (n_text % 8)
        header[n_text++] = ' ';
    uint64_t n_new = n_text;
    write_parts(folder, "model.safetensors",
                (const char *[]){(char *)&n_new, header, file + 8 + n_header, "\0\0\0"},
                (size_t[]){8, n_text, n_data, 4}, 4);
    static const char before[] = "{\"model_type\":\"kimi_k25\",\"architectures\":"
                                 "[\"KimiK25ForConditionalGeneration\"],\"text_config\":";
    write_parts(folder, "config.json", (const char *[]){before, json, "}"},
                (size_t[]){sizeof before - 1, n_json, 1}, 3);
    free(file);
    free(json);
    file = read_whole(FOLDER("deepseek3") "/tokenizer.json", &n);
    write_parts(folder, "tokenizer.json", (const char *[]){file}, (size_t[]){n}, 1);
    free(file);
    free(header);
}

/* The same numbers as the folder that it was made of. */
static void kimi_k25_computes_what_its_text_model_does(void) {
    char folder[] = "/tmp/inferd-kimi-XXXXXX", path[256];
    uint32_t n_vocab, n_again;
    CHECK(mkdtemp(folder) != NULL);
    write_kimi_folder(folder);
    float *want = logits_of(FOLDER("deepseek3"), &n_vocab), *got = logits_of(folder, &n_again);
    CHECK(n_vocab == n_again && memcmp(got, want, (size_t)N_TOKENS * n_vocab * sizeof *want) == 0);
    free(got);
    free(want);
    static const char *const names[] = {"model.safetensors", "config.json", "tokenizer.json"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* The members of Kimi-K2-Instruct's config.json that differ from what V3 has by default. */
static void kimi_k2_is_deepseek_v3(void) {
    err e = {0};
    gguf *g = keys_of("{\"model_type\":\"kimi_k2\",\"architectures\":[\"DeepseekV3ForCausalLM\"],"
                      "\"num_attention_heads\":64,\"n_routed_experts\":384,\"n_group\":1,"
                      "\"topk_group\":1,\"first_k_dense_replace\":1,\"topk_method\":\"noaux_tc\","
                      "\"scoring_func\":\"sigmoid\",\"routed_scaling_factor\":2.827,"
                      "\"rope_theta\":50000.0,\"vocab_size\":163840,"
                      "\"max_position_embeddings\":131072,\"rope_scaling\":{\"type\":\"yarn\","
                      "\"factor\":32.0,\"beta_fast\":1.0,\"beta_slow\":1.0,\"mscale\":1.0,"
                      "\"mscale_all_dim\":1.0,\"original_max_position_embeddings\":4096}}",
                      &e);
    gguf_str arch = {0};
    CHECK_MSG(g != NULL, "%s", e.msg);
    if (!g) return;
    CHECK(gguf_get_str(g, "general.architecture", &arch, NULL) == 0 && arch.len == 9 &&
          memcmp(arch.data, "deepseek2", 9) == 0);
    CHECK(number(g, KEY("expert_count")) == 384 && number(g, KEY("expert_used_count")) == 8);
    CHECK(number(g, KEY("expert_gating_func")) == 2 && !gguf_has(g, KEY("expert_group_count")));
    CHECK(number(g, KEY("attention.head_count")) == 64);
    CHECK(is_real(g, KEY("expert_weights_scale"), 2.827));
    CHECK(is_real(g, KEY("rope.scaling.yarn_beta_fast"), 1));
    CHECK(is_real(g, KEY("rope.scaling.yarn_log_multiplier"), 0.1));
    gguf_close(g);
}

static void members_without_counterpart_are_refused(void) {
    static const struct {
        const char *type, *members, *says;
        int code;
    } rows[] = {
        {"deepseek_v3", "\"attention_bias\":true", "attention_bias", ERR_UNSUPPORTED},
        {"deepseek_v2", "\"mlp_bias\":true", "mlp_bias", ERR_UNSUPPORTED},
        {"deepseek_v3", "\"rope_interleave\":false", "rope_interleave", ERR_UNSUPPORTED},
        {"deepseek_v3", "\"topk_method\":\"greedy\"", "'greedy'", ERR_UNSUPPORTED},
        {"deepseek_v2", "\"topk_method\":\"noaux_tc\"", "'noaux_tc'", ERR_UNSUPPORTED},
        {"mistral4", "\"q_lora_rank\":64", "'rope_parameters' is missing", ERR_FORMAT},
        {"mistral4", "\"rope_parameters\":{},\"n_group\":2", "n_group", ERR_UNSUPPORTED},
        {"mistral4", "\"rope_parameters\":{\"partial_rotary_factor\":0.25}",
         "partial_rotary_factor", ERR_UNSUPPORTED},
        {"deepseek_v3", "\"scoring_func\":\"softmax\"", "'softmax'", ERR_UNSUPPORTED},
        {"deepseek_v2", "\"norm_topk_prob\":true", "norm_topk_prob", ERR_UNSUPPORTED},
        {"deepseek_v2", "\"hidden_size\":64", "num_experts_per_tok", ERR_FORMAT},
        {"deepseek_v3", "\"moe_layer_freq\":2", "moe_layer_freq", ERR_FORMAT},
        {"deepseek_v3", "\"topk_group\":9", "topk_group", ERR_FORMAT},
        {"deepseek_v3", "\"kv_lora_rank\":0", "kv_lora_rank", ERR_FORMAT},
        {"deepseek_v3", "\"qk_rope_head_dim\":\"64\"", "qk_rope_head_dim", ERR_FORMAT},
        {"deepseek_v3", "\"routed_scaling_factor\":0", "routed_scaling_factor", ERR_UNSUPPORTED},
        {"deepseek_v3", "\"quantization_config\":{\"quant_method\":\"hqq\"}", "'hqq'",
         ERR_UNSUPPORTED},
        {"glm4_moe_lite", "\"mlp_layer_types\":[\"sparse\",\"dense\"]", "mlp_layer_types",
         ERR_UNSUPPORTED},
        {"glm4_moe_lite", "\"mlp_layer_types\":[\"dense\"]", "mlp_layer_types", ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char json[256];
        err e = {0};
        snprintf(json, sizeof json,
                 "{\"model_type\":\"%s\",\"num_hidden_layers\":2,"
                 "\"first_k_dense_replace\":1,%s}",
                 rows[i].type, rows[i].members);
        gguf *g = keys_of(json, &e);
        CHECK_MSG(!g && e.code == rows[i].code && strstr(e.msg, rows[i].says), "%s: %d, %s", json,
                  e.code, e.msg);
        gguf_close(g);
    }
}

int main(void) {
    RUN(keys_and_tensors_of_goldens);
    RUN(heads_are_split);
    RUN(written_files_compute_the_same);
    RUN(members_may_be_missing);
    RUN(mistral4_has_the_keys_of_its_files);
    RUN(kimi_k2_is_deepseek_v3);
    RUN(kimi_k25_computes_what_its_text_model_does);
    RUN(members_without_counterpart_are_refused);
    return check_done();
}
