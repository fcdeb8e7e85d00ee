/* test_hf_model.c - model folders as ggufs: the golden models against llama.cpp's converter,
 * generated folders against plain loops, and refusals. */
#include "core/formats/gguf/gguf_int.h"
#include "core/formats/hf/model.h"
#include "core/formats/model_file.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"
#include "tests/unit/gguf_text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- golden models ---- */

static const char *const goldens[] = {
    "gemma2",  "gemma3", "gpt-oss", "gpt-oss-mxfp4", "granite",  "llama", "llama2",   "mistral",
    "mixtral", "olmo2",  "phi3",    "qwen2",         "qwen2moe", "qwen3", "qwen3moe", "smollm3"};

/* Reads t in pieces of odd sizes and compares with the bytes at want. */
static bool same_bytes(const gguf *g, const gguf_tensor *t, const void *want) {
    static const uint64_t sizes[] = {1, 3, 17, 64, 255, 4099};
    uint8_t piece[4099];
    const uint8_t *p = want;
    err e = {0};
    for (uint64_t at = 0, i = 0; at < t->bytes; i++) {
        uint64_t n = sizes[i % 6] < t->bytes - at ? sizes[i % 6] : t->bytes - at;
        if (gguf_tensor_read(g, t, at, n, piece, &e) || memcmp(piece, p + at, n) != 0) return false;
        at += n;
    }
    return !t->data || memcmp(t->data, want, t->bytes) == 0;
}

static void compare_tensors(const char *name, const gguf *folder, const gguf *file) {
    char tensor[200];
    CHECK(gguf_n_tensors(folder) == gguf_n_tensors(file));
    for (uint64_t i = 0; i < gguf_n_tensors(file) && i < gguf_n_tensors(folder); i++) {
        const gguf_tensor *a = gguf_tensor_at(folder, i), *b = gguf_tensor_at(file, i);
        text_of(b->name, tensor);
        CHECK_MSG(!gguf_str_compare(a->name, b->name), "%s: %s is not number %d", name, tensor,
                  (int)i);
        CHECK_MSG(gguf_tensor_find(folder, tensor) == a, "%s: %s", name, tensor);
        bool same = a->type == b->type && a->n_dims == b->n_dims && a->bytes == b->bytes &&
                    memcmp(a->dims, b->dims, sizeof a->dims) == 0;
        CHECK_MSG(same, "%s: %s has another shape or type", name, tensor);
        CHECK_MSG(!same || same_bytes(folder, a, b->data), "%s: %s has other bytes", name, tensor);
        bool vector = a->n_dims == 1;
        CHECK_MSG(!vector || (a->data && (uintptr_t)a->data % 4 == 0), "%s: %s has no place", name,
                  tensor);
    }
}

static void compare_keys(const char *name, const gguf *folder, const gguf *file) {
    char key[200], arch[200];
    gguf_str text = {"", 0};
    err e = {0};
    CHECK(gguf_get_str(file, "general.architecture", &text, &e) == 0);
    text_of(text, arch);
    for (uint64_t i = 0; i < gguf_n_keys(file); i++) {
        const struct gguf_kv *want = gguf_key_at(file, i), *got = find_kv(folder, want->key);
        text_of(want->key, key);
        bool ours = strncmp(key, arch, strlen(arch)) == 0 ||
                    strcmp(key, "general.architecture") == 0 ||
                    strcmp(key, "general.quantization_version") == 0;
        if (!ours) continue;
        CHECK_MSG(got && got->type == want->type && got->value_bytes == want->value_bytes &&
                      memcmp(got->value, want->value, want->value_bytes) == 0,
                  "%s: %s", name, key);
    }
}

/* Keys that the converter omits because the architecture's default applies. */
static void check_extra_keys(const char *name, const gguf *folder, const gguf *file) {
    static const char *const known[] = {
        "gemma2.rope.freq_base",
        "gpt-oss.inferd.yarn_truncate",
        "phi3.rope.scaling.type",
        "qwen2moe.inferd.experts_renormalize",
        "qwen3moe.inferd.experts_renormalize",
    };
    char key[200];
    for (uint64_t i = 0; i < gguf_n_keys(folder); i++) {
        text_of(gguf_key_at(folder, i)->key, key);
        bool expected =
            find_kv(file, gguf_key_at(folder, i)->key) || strncmp(key, "general.", 8) == 0;
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            expected = expected || strcmp(key, known[k]) == 0;
        CHECK_MSG(expected, "%s: key %s is not in the file", name, key);
    }
}

static void folders_equal_the_converter(void) {
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
        char path[256], dir[256];
        gguf *folder = NULL, *file = NULL;
        const void *base;
        uint64_t bytes;
        err e = {0};
        snprintf(dir, sizeof dir, "tests/golden/arch/%s/hf", goldens[i]);
        snprintf(path, sizeof path, "tests/golden/arch/%s/model.gguf", goldens[i]);
        CHECK_MSG(model_file_open(dir, 0, &folder, &e) == 0, "%s: %s", goldens[i], e.msg);
        CHECK_MSG(model_file_open(path, 0, &file, &e) == 0, "%s: %s", goldens[i], e.msg);
        if (folder && file) {
            compare_tensors(goldens[i], folder, file);
            compare_keys(goldens[i], folder, file);
            check_extra_keys(goldens[i], folder, file);
            CHECK_STR(gguf_path(folder), dir);
            CHECK(gguf_mapping(folder) == NULL && gguf_file_bytes(folder) > 0);
            CHECK(gguf_file_mapping(folder, 0, &base, &bytes) && bytes % FILE_MAP_ALIGN == 0);
            CHECK(!gguf_file_mapping(folder, 99, &base, &bytes));
            gguf_drop_pages(folder);
        }
        gguf_close(folder);
        gguf_close(file);
    }
}

/* ---- generated folders ---- */

static char folder[] = "/tmp/inferd-hf-XXXXXX";

enum { MAX_TENSORS = 64, HEADER_BYTES = 16384 };

/* A .safetensors file under construction: its tensors' values are random bytes other than NaN. */
struct shard {
    char header[HEADER_BYTES];
    size_t used;
    uint8_t data[1 << 16];
    uint64_t n;
    struct rng rng;
};

static void begin(struct shard *s, uint64_t seed) {
    memset(s, 0, sizeof *s);
    s->rng.state = seed;
}

/* Adds a tensor of n elements; returns its data. type: "F32", "BF16", "F16" or "U8". */
static uint8_t *add(struct shard *s, const char *name, const char *type, const char *shape,
                    uint64_t n) {
    uint64_t each = strcmp(type, "F32") == 0 ? 4 : strcmp(type, "U8") == 0 ? 1 : 2;
    uint8_t *data = s->data + s->n;
    if (s->n + n * each > sizeof s->data) abort();
    for (uint64_t i = 0; i < n; i++) {
        float f = (float)((int64_t)(rng_below(&s->rng, 4096)) - 2048) / 256;
        uint16_t half = type[0] == 'F' ? f32_to_f16(f) : f32_to_bf16(f);
        uint8_t byte = (uint8_t)rng_next(&s->rng);
        const void *from = each == 4 ? (const void *)&f : each == 2 ? (const void *)&half : &byte;
        memcpy(data + i * each, from, each);
    }
    s->used +=
        (size_t)snprintf(s->header + s->used, sizeof s->header - s->used,
                         "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%d,%d]}",
                         s->used ? "," : "{", name, type, shape, (int)s->n, (int)(s->n + n * each));
    s->n += n * each;
    return data;
}

static void write_bytes(const char *name, const void *bytes, size_t n) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) abort();
}

static void write_text(const char *name, const char *text) {
    write_bytes(name, text, strlen(text));
}

/* pad: spaces after the header, so that data begins at any offset. */
static void write_shard(struct shard *s, const char *name, unsigned pad) {
    static uint8_t file[sizeof s->header + sizeof s->data + 64];
    uint64_t n = s->used + 1 + pad;
    memcpy(file, &n, 8);
    memcpy(file + 8, s->header, s->used);
    file[8 + s->used] = '}';
    memset(file + 8 + s->used + 1, ' ', pad);
    memcpy(file + 8 + n, s->data, s->n);
    write_bytes(name, file, 8 + n + s->n);
}

static void remove_file(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

static gguf *open_folder(void) {
    gguf *g = NULL;
    err e = {0};
    int rc = model_file_open(folder, 0, &g, &e);
    CHECK_MSG(rc == 0 && g, "%s", e.msg);
    return g;
}

static void refused(int code, const char *says) {
    gguf *g = NULL;
    err e = {0};
    int rc = model_file_open(folder, 0, &g, &e);
    CHECK_MSG(rc == code && !g && strstr(e.msg, says), "%d, %s (want %s)", rc, e.msg, says);
    gguf_close(g);
}

/* A whole tensor, which the caller frees; NULL and a failed check if there is none. */
static uint8_t *read_all(const gguf *g, const char *name, int type, uint64_t bytes) {
    const gguf_tensor *t = g ? gguf_tensor_find(g, name) : NULL;
    err e = {0};
    CHECK_MSG(t && t->type == type && t->bytes == bytes, "%s", name);
    if (!t || t->bytes != bytes) return NULL;
    uint8_t *out = malloc(bytes);
    CHECK(out && gguf_tensor_read(g, t, 0, bytes, out, &e) == 0);
    return out;
}

#define LLAMA_CONFIG                                                                               \
    "{\"model_type\":\"llama\",\"hidden_size\":14,\"intermediate_size\":5,"                        \
    "\"num_hidden_layers\":1,\"num_attention_heads\":3,\"num_key_value_heads\":1,"                 \
    "\"head_dim\":6,\"vocab_size\":7,\"tie_word_embeddings\":true}"

/* Row j of head h of GGUF's Q is row (j even: j / 2, odd: 3 + j / 2) of the head in the folder. */
static void rows_of_q_and_k_are_interleaved(void) {
    static struct shard s;
    for (unsigned pad = 0; pad < 4; pad++) {
        begin(&s, 7 + pad);
        add(&s, "model.embed_tokens.weight", "BF16", "7,14", 98);
        const uint8_t *q = add(&s, "model.layers.0.self_attn.q_proj.weight", "BF16", "18,14", 252);
        const uint8_t *k = add(&s, "model.layers.0.self_attn.k_proj.weight", "F32", "6,14", 84);
        const uint8_t *b = add(&s, "model.layers.0.self_attn.q_proj.bias", "F16", "18", 18);
        add(&s, "model.layers.0.self_attn.rotary_emb.inv_freq", "F32", "3", 3);
        write_text("config.json", LLAMA_CONFIG);
        write_shard(&s, "model.safetensors", pad);
        gguf *g = open_folder();
        uint8_t *got_q = read_all(g, "blk.0.attn_q.weight", QTYPE_BF16, 504);
        uint8_t *got_k = read_all(g, "blk.0.attn_k.weight", QTYPE_F32, 336);
        uint8_t *got_b = read_all(g, "blk.0.attn_q.bias", QTYPE_F32, 72);
        for (int head = 0; got_q && got_k && got_b && head < 3; head++)
            for (int j = 0; j < 6; j++) {
                int row = head * 6 + j, from = head * 6 + (j % 2 ? 3 : 0) + j / 2;
                uint16_t half;
                float f;
                memcpy(&half, b + 2 * from, 2);
                memcpy(&f, got_b + 4 * row, 4);
                CHECK(memcmp(got_q + 28 * row, q + 28 * from, 28) == 0);
                CHECK(f == f16_to_f32(half));
                CHECK(head > 0 || memcmp(got_k + 56 * j, k + 56 * from, 56) == 0);
            }
        const gguf_tensor *embed = g ? gguf_tensor_find(g, "token_embd.weight") : NULL;
        CHECK(g && gguf_n_tensors(g) == 4); /* inv_freq is skipped */
        /* In place only if it is aligned. */
        CHECK(embed && (embed->data != NULL) == ((8 + s.used + 1 + pad) % 2 == 0));
        free(got_q);
        free(got_k);
        free(got_b);
        gguf_close(g);
    }
    remove_file("model.safetensors");
}

#define MOE_CONFIG                                                                                 \
    "\"hidden_size\":4,\"intermediate_size\":6,\"num_hidden_layers\":1,"                           \
    "\"num_attention_heads\":1,\"num_key_value_heads\":1,\"vocab_size\":3,"                        \
    "\"num_local_experts\":3,\"num_experts_per_tok\":2,\"tie_word_embeddings\":true}"

/* Each expert in its own tensors, with a family's names, or all in one tensor. */
static void write_experts(const char *model_type, const char *names[3], bool fused) {
    static struct shard s;
    static uint8_t part[3][3][48];
    char config[400], name[100];
    begin(&s, 99);
    /* The values of (expert, part) are equal in all folders. */
    for (int x = 0; x < 3; x++)
        for (int p = 0; p < 3; p++)
            memcpy(part[x][p], add(&s, "x", "F16", "24", 24), 48);
    begin(&s, 1);
    add(&s, "model.embed_tokens.weight", "F16", "3,4", 12);
    if (fused) {
        uint8_t *down = add(&s, "model.layers.0.mlp.experts.down_proj", "F16", "3,4,6", 72);
        uint8_t *both = add(&s, "model.layers.0.mlp.experts.gate_up_proj", "F16", "3,12,4", 144);
        for (int x = 0; x < 3; x++) {
            memcpy(both + x * 96, part[x][0], 48);
            memcpy(both + x * 96 + 48, part[x][1], 48);
            memcpy(down + x * 48, part[x][2], 48);
        }
    }
    for (int x = 2; !fused && x >= 0; x--)
        for (int p = 0; p < 3; p++) {
            snprintf(name, sizeof name, names[p], x);
            memcpy(add(&s, name, "F16", p == 2 ? "4,6" : "6,4", 24), part[x][p], 48);
        }
    snprintf(config, sizeof config, "{\"model_type\":\"%s\",%s", model_type, MOE_CONFIG);
    write_text("config.json", config);
    write_shard(&s, "model.safetensors", 0);
}

static void experts_are_stacked(void) {
    const char *mixtral[3] = {"model.layers.0.block_sparse_moe.experts.%d.w1.weight",
                              "model.layers.0.block_sparse_moe.experts.%d.w3.weight",
                              "model.layers.0.block_sparse_moe.experts.%d.w2.weight"};
    const char *qwen[3] = {"model.layers.0.mlp.experts.%d.gate_proj.weight",
                           "model.layers.0.mlp.experts.%d.up_proj.weight",
                           "model.layers.0.mlp.experts.%d.down_proj.weight"};
    static const char *const want[3] = {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight",
                                        "blk.0.ffn_down_exps.weight"};
    uint8_t *first[3] = {NULL};
    for (int kind = 0; kind < 4; kind++) {
        write_experts(kind % 2 ? "qwen3_moe" : "mixtral", kind % 2 ? qwen : mixtral, kind > 1);
        gguf *g = open_folder();
        for (int p = 0; g && p < 3; p++) {
            uint8_t *bytes = read_all(g, want[p], QTYPE_F16, 144);
            const gguf_tensor *t = gguf_tensor_find(g, want[p]);
            CHECK(t && t->n_dims == 3 && t->dims[0] == (p == 2 ? 6 : 4) &&
                  t->dims[1] == (p == 2 ? 4 : 6) && t->dims[2] == 3);
            if (kind == 0) {
                first[p] = bytes;
                continue;
            }
            CHECK_MSG(bytes && first[p] && memcmp(bytes, first[p], 144) == 0, "%d %s", kind,
                      want[p]);
            free(bytes);
        }
        gguf_close(g);
    }
    for (int p = 0; p < 3; p++)
        free(first[p]);
    remove_file("model.safetensors");
}

/* Value i of a row of MXFP4 as the file stores it: nibble i % 2 of byte i / 2. */
static float oss_value(const uint8_t *blocks, const uint8_t *scales, int row, int i) {
    static const float levels[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    int block = row * 2 + i / 32, nibble = blocks[block * 16 + i % 32 / 2] >> (i % 2 ? 4 : 0) & 15;
    return ldexpf(nibble & 8 ? -levels[nibble & 7] : levels[nibble & 7], scales[block] - 127);
}

static void experts_of_gpt_oss_are_split(void) {
    static struct shard s;
    begin(&s, 5);
    add(&s, "model.embed_tokens.weight", "BF16", "3,64", 192);
    add(&s, "lm_head.weight", "BF16", "3,64", 192);
    uint8_t *scales = add(&s, "model.layers.0.mlp.experts.gate_up_proj_scales", "U8", "2,6,2", 24);
    uint8_t *blocks =
        add(&s, "model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", "2,6,2,16", 384);
    uint8_t *bias = add(&s, "model.layers.0.mlp.experts.gate_up_proj_bias", "BF16", "2,6", 12);
    uint8_t *down = add(&s, "model.layers.0.mlp.experts.down_proj", "BF16", "2,3,64", 384);
    for (int i = 0; i < 24; i++)
        scales[i] = (uint8_t)(100 + scales[i] % 50);
    write_text("config.json",
               "{\"model_type\":\"gpt_oss\",\"hidden_size\":64,\"intermediate_size\":3,"
               "\"num_hidden_layers\":1,\"num_local_experts\":2,\"num_experts_per_tok\":1,"
               "\"layer_types\":[\"full_attention\"]}");
    write_shard(&s, "model.safetensors", 0);
    gguf *g = open_folder();
    for (int up = 0; g && up < 2; up++) {
        const char *name = up ? "blk.0.ffn_up_exps.weight" : "blk.0.ffn_gate_exps.weight";
        const char *bias_name = up ? "blk.0.ffn_up_exps.bias" : "blk.0.ffn_gate_exps.bias";
        float values[6][64], got_bias[6];
        uint8_t *got = read_all(g, name, QTYPE_MXFP4, 6 * 2 * 17);
        uint8_t *biases = read_all(g, bias_name, QTYPE_F32, sizeof got_bias);
        if (got) qtype_decode(QTYPE_MXFP4, got, values[0], 6 * 64);
        if (biases) memcpy(got_bias, biases, sizeof got_bias);
        for (int r = 0; got && biases && r < 6; r++) {
            int from = r / 3 * 6 + r % 3 * 2 + up; /* expert r / 3, every second row */
            uint16_t half;
            memcpy(&half, bias + 2 * from, 2);
            CHECK(got_bias[r] == bf16_to_f32(half));
            for (int i = 0; i < 64; i++)
                CHECK(values[r][i] == oss_value(blocks, scales, from, i));
        }
        free(got);
        free(biases);
    }
    uint8_t *got = read_all(g, "blk.0.ffn_down_exps.weight", QTYPE_BF16, 768);
    for (int i = 0; got && i < 2 * 64 * 3; i++) { /* (2, 64, 3) from (2, 3, 64) */
        int x = i / 192, r = i % 192 / 3, c = i % 3;
        CHECK(memcmp(got + 2 * i, down + 2 * (x * 192 + c * 64 + r), 2) == 0);
    }
    free(got);
    gguf_close(g);
    remove_file("model.safetensors");
}

/* A model of text and images: only the text model's tensors, norms plus 1. */
static void images_of_gemma3_are_left_out(void) {
    static struct shard s;
    begin(&s, 11);
    add(&s, "language_model.model.embed_tokens.weight", "BF16", "5,8", 40);
    const uint8_t *norm = add(&s, "language_model.model.norm.weight", "BF16", "8", 8);
    add(&s, "model.language_model.layers.0.pre_feedforward_layernorm.weight", "F32", "8", 8);
    add(&s, "language_model.lm_head.weight", "BF16", "5,8", 40);
    add(&s, "vision_tower.vision_model.x.weight", "BF16", "2,2,2,2", 16);
    add(&s, "model.multi_modal_projector.y", "F16", "3", 3);
    write_text("config.json",
               "{\"model_type\":\"gemma3\",\"vision_config\":{},\"text_config\":{\"hidden_size\":8,"
               "\"num_hidden_layers\":7,\"sliding_window\":9,"
               "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}}}");
    write_shard(&s, "model.safetensors", 1);
    gguf *g = open_folder();
    uint64_t v = 0;
    double f = 0;
    if (g) {
        CHECK(gguf_n_tensors(g) == 3 && gguf_tensor_find(g, "blk.0.ffn_norm.weight"));
        const gguf_tensor *t = gguf_tensor_find(g, "output_norm.weight");
        for (int i = 0; t && i < 8; i++) {
            uint16_t half;
            memcpy(&half, norm + 2 * i, 2);
            CHECK(((const float *)t->data)[i] == bf16_to_f32(half) + 1);
        }
        CHECK(!gguf_get_u64(g, "gemma3.attention.key_length", &v, NULL) && v == 256);
        CHECK(!gguf_get_u64(g, "gemma3.attention.head_count", &v, NULL) && v == 8);
        CHECK(!gguf_get_u64(g, "gemma3.attention.sliding_window", &v, NULL) && v == 9);
        CHECK(!gguf_get_f64(g, "gemma3.rope.freq_base", &f, NULL) && f == 1e6);
        CHECK(!gguf_get_f64(g, "gemma3.rope.freq_base_swa", &f, NULL) && f == 1e4);
        CHECK(!gguf_get_f64(g, "gemma3.rope.scaling.factor", &f, NULL) && f == 8);
        CHECK(!gguf_has(g, "gemma3.attention.sliding_window_pattern"));
    }
    gguf_close(g);
    remove_file("model.safetensors");
}

/* Gemma 4: vision and audio parts are counted, K and V of a layer that reads another layer's are
 * not there, and the makers' names of members mean what transformers 5.17 saves by layer. */
static void parts_of_gemma4_are_left_out(void) {
    static const char *const forms[] = {
        "\"global_head_dim\":6,\"num_global_key_value_heads\":1",
        "\"per_layer_config\":{\"1\":{\"head_dim\":6,\"num_key_value_heads\":1},\"3\":{"
        "\"head_dim\":6,\"num_key_value_heads\":1}}"};
    for (int i = 0; i < 2; i++) {
        static struct shard s;
        char json[1024];
        begin(&s, 12);
        add(&s, "model.language_model.embed_tokens.weight", "BF16", "5,8", 40);
        add(&s, "model.language_model.layers.1.self_attn.k_proj.weight", "BF16", "6,8", 48);
        add(&s, "model.language_model.layers.3.self_attn.k_proj.weight", "BF16", "6,8", 48);
        add(&s, "model.language_model.layers.3.layer_scalar", "BF16", "1", 1);
        add(&s, "model.vision_tower.x.weight", "BF16", "2,2", 4);
        add(&s, "model.embed_vision.y.weight", "BF16", "2,2", 4);
        add(&s, "model.audio_tower.z.weight", "BF16", "2,2", 4);
        snprintf(json, sizeof json,
                 "{\"model_type\":\"gemma4\",\"text_config\":{\"hidden_size\":8,\"head_dim\":4,"
                 "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"attention_k_eq_v\":true,"
                 "\"num_hidden_layers\":4,\"num_kv_shared_layers\":2,\"use_double_wide_mlp\":true,"
                 "\"intermediate_size\":7,\"hidden_size_per_layer_input\":null,\"layer_types\":["
                 "\"sliding_attention\",\"full_attention\",\"sliding_attention\","
                 "\"full_attention\"],%s}}",
                 forms[i]);
        write_text("config.json", json);
        write_shard(&s, "model.safetensors", 1);
        gguf *g = open_folder();
        gguf_str text = {0};
        char shown[200];
        uint64_t v = 0;
        if (g) {
            static const int64_t n_kv[] = {2, 1, 2, 1}, ff[] = {7, 7, 14, 14};
            CHECK(gguf_tensor_find(g, "blk.1.attn_k.weight") &&
                  !gguf_tensor_find(g, "blk.3.attn_k.weight"));
            CHECK(gguf_n_tensors(g) == 4); /* with layer_output_scale and rope_freqs */
            CHECK(!gguf_get_str(g, "gemma4.inferd.left_out", &text, NULL) &&
                  !strcmp(text_of(text, shown),
                          "2 tensors of the vision part, 1 tensors of the audio part"));
            CHECK(!gguf_get_u64(g, "gemma4.attention.key_length", &v, NULL) && v == 6);
            CHECK(!gguf_get_u64(g, "gemma4.attention.key_length_swa", &v, NULL) && v == 4);
            for (uint64_t k = 0; k < 4; k++) {
                CHECK(gguf_array_i64(g, "gemma4.attention.head_count_kv", k) == n_kv[k]);
                CHECK(gguf_array_i64(g, "gemma4.feed_forward_length", k) == ff[k]);
            }
        }
        gguf_close(g);
        remove_file("model.safetensors");
    }
}

/* ---- incomplete folders ---- */

static void write_index(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void write_index(const char *format, ...) {
    char map[1000], text[1200];
    va_list ap;
    va_start(ap, format);
    vsnprintf(map, sizeof map, format, ap);
    va_end(ap);
    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":1.5},\"weight_map\":{%s}}", map);
    write_text("model.safetensors.index.json", text);
}

static void indexes_are_checked(void) {
    static struct shard s;
    static const char e[] = "model.embed_tokens.weight", n[] = "model.norm.weight";
    write_text("config.json", LLAMA_CONFIG);
    begin(&s, 1);
    add(&s, e, "F32", "7,14", 98);
    write_shard(&s, "a.safetensors", 0);
    begin(&s, 2);
    add(&s, n, "F32", "14", 14);
    write_shard(&s, "b.safetensors", 0);
    write_index("\"%s\":\"b.safetensors\",\"%s\":\"a.safetensors\"", n, e);
    gguf *g = open_folder();
    CHECK(g && gguf_n_tensors(g) == 2);
    CHECK(g && !gguf_str_compare(gguf_tensor_at(g, 0)->name, (gguf_str){"token_embd.weight", 17}));
    gguf_close(g);
    write_index("\"%s\":\"b.safetensors\",\"%s\":\"c.safetensors\"", n, e);
    refused(ERR_NOT_FOUND, "c.safetensors is missing");
    write_index("\"%s\":\"a.safetensors\",\"%s\":\"a.safetensors\"", n, e);
    refused(ERR_FORMAT, "'model.norm.weight' is missing; the index lists it");
    write_index("\"%s\":\"a.safetensors\",\"%s\":\"a.safetensors\"", e, e);
    refused(ERR_FORMAT, "contains 1 tensors, but the index lists 2");
    write_index("\"%s\":\"../a.safetensors\"", e);
    refused(ERR_FORMAT, "'../a.safetensors' is not a plain name");
    write_index("\"%s\":\"/tmp/a.safetensors\"", e);
    refused(ERR_FORMAT, "not a plain name");
    write_index("\"%s\":\"a.bin\"", e);
    refused(ERR_FORMAT, "not a plain name");
    write_index("\"%s\":7", e);
    refused(ERR_FORMAT, "a tensor's name and a file's");
    write_text("model.safetensors.index.json", "{\"metadata\":{}}");
    refused(ERR_FORMAT, "a weight_map");
    remove_file("model.safetensors.index.json");
    refused(ERR_NOT_FOUND, "neither model.safetensors nor");
    write_text("pytorch_model.bin", "x");
    refused(ERR_UNSUPPORTED, "expected safetensors");
    remove_file("pytorch_model.bin");
    remove_file("a.safetensors");
    remove_file("b.safetensors");
    remove_file("config.json");
    refused(ERR_NOT_FOUND, "no config.json");
}

/* One odd tensor in an otherwise complete folder. */
static void odd_tensors_are_named(void) {
    static const struct {
        const char *name, *type, *shape;
        uint64_t n;
        int code;
        const char *says;
    } rows[] = {
        {"model.layers.0.mlp.other.weight", "F32", "4", 4, ERR_UNSUPPORTED,
         "is not known for this family"},
        {"transformer.h.0.attn.weight", "F32", "4", 4, ERR_UNSUPPORTED,
         "is not known for this family"},
        {"model.layers.1.mlp.up_proj.weight", "F32", "4", 4, ERR_UNSUPPORTED, "beyond config.json"},
        {"model.layers.99999999.mlp.up_proj.weight", "F32", "4", 4, ERR_UNSUPPORTED,
         "is not known for this family"},
        {"model.layers.0.self_attn.q_proj.weight", "F32", "4,2", 8, ERR_FORMAT, "whole heads"},
        {"model.layers.0.mlp.up_proj.weight", "U8", "4,2", 8, ERR_UNSUPPORTED,
         "not supported for weights"},
        {"model.layers.0.mlp.up_proj.weight", "F32", "0,2", 0, ERR_FORMAT, "at least one element"},
        {"model.layers.0.mlp.up_proj.weight", "F32", "1,1,2,2", 4, ERR_FORMAT, "1 to 3"},
        {"model.layers.0.mlp.experts.0.up_proj.weight", "F32", "2,2", 4, ERR_FORMAT, "expert"},
    };
    static struct shard s;
    write_text("config.json", LLAMA_CONFIG);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin(&s, i);
        add(&s, "model.embed_tokens.weight", "F32", "7,14", 98);
        add(&s, rows[i].name, rows[i].type, rows[i].shape, rows[i].n);
        write_shard(&s, "model.safetensors", 0);
        refused(rows[i].code, rows[i].says);
    }
    const char *names[3] = {"model.layers.0.mlp.experts.%d.gate_proj.weight",
                            "model.layers.0.mlp.experts.%d.up_proj.weight",
                            "model.layers.0.mlp.experts.%d.gate_proj.weight"};
    write_experts("qwen2_moe", names, false);
    refused(ERR_FORMAT,
            "another tensor has the same name"); /* one expert's tensor under two offsets */
    begin(&s, 1);
    add(&s, "model.layers.0.mlp.experts.1.up_proj.weight", "F16", "6,4", 24);
    write_shard(&s, "model.safetensors", 0);
    refused(ERR_FORMAT, "tensors of 1 of 3 experts");
    begin(&s, 1);
    add(&s, "model.embed_tokens.weight", "F32", "7,14", 98);
    write_shard(&s, "model.safetensors", 0);
    write_text("config.json", "{\"model_type\":\"llama\",\"num_hidden_layers\":1}");
    refused(ERR_FORMAT, "tensor lm_head.weight is missing");
    remove_file("model.safetensors");
    remove_file("config.json");
}

int main(void) {
    if (!mkdtemp(folder)) return 1;
    RUN(folders_equal_the_converter);
    RUN(rows_of_q_and_k_are_interleaved);
    RUN(experts_are_stacked);
    RUN(experts_of_gpt_oss_are_split);
    RUN(images_of_gemma3_are_left_out);
    RUN(parts_of_gemma4_are_left_out);
    RUN(indexes_are_checked);
    RUN(odd_tensors_are_named);
    rmdir(folder);
    return check_done();
}
