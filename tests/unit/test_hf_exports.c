/* test_hf_exports.c - folders that the quantizing libraries themselves wrote
 * (tests/data/packed/exports, see its README): each matrix as it is read here against the sha256 of
 * what the library makes of it. Argument: another folder of such folders. */
#include "core/base/mem.h"
#include "core/formats/model_file.h"
#include "tests/support/files.h"
#include "tests/unit/check.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <nettle/sha2.h>
#include <stdlib.h>

static const char *root = "tests/data/packed/exports";

/* Modules of a layer and their tensors. */
static const struct {
    const char *module, *tensor;
    bool permuted; /* in Llama's files: of a head the two halves of rows alternate */
} names[] = {{"self_attn.q_proj", "attn_q", true},  {"self_attn.k_proj", "attn_k", true},
             {"self_attn.v_proj", "attn_v", false}, {"self_attn.o_proj", "attn_output", false},
             {"mlp.gate_proj", "ffn_gate", false},  {"mlp.up_proj", "ffn_up", false},
             {"mlp.down_proj", "ffn_down", false},  {".gate_proj", "ffn_gate_exps", false},
             {".up_proj", "ffn_up_exps", false},    {".down_proj", "ffn_down_exps", false}};

struct found {
    const gguf_tensor *tensor;
    unsigned expert;
    bool permuted;
};

static struct found find_tensor(const gguf *g, const char *name) {
    unsigned layer, expert = 0;
    int used = 0;
    char wanted[64];
    if (sscanf(name, "model.layers.%u.%n", &layer, &used) != 1) return (struct found){0};
    const char *rest = name + used;
    if (sscanf(rest, "mlp.experts.%u%n", &expert, &used) == 1) rest += used;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const size_t n = strlen(names[i].module);
        if (strncmp(rest, names[i].module, n) != 0) continue;
        snprintf(wanted, sizeof wanted, "blk.%u.%s.weight", layer, names[i].tensor);
        return (struct found){gguf_tensor_find(g, wanted), expert, names[i].permuted};
    }
    return (struct found){0};
}

/* Row r of the folder's matrix is this one of the tensor. */
static uint64_t row_of(uint64_t r, uint64_t head_dim, bool permuted) {
    const uint64_t i = r % head_dim, half = head_dim / 2;
    return permuted ? r - i + 2 * (i % half) + i / half : r;
}

/* The hexadecimal sha256 of values, as in bytes of this width: f32, or rounded to a half. */
static void hash_values(const float *values, uint64_t n, int type, char out[65]) {
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx ctx;
    sha256_init(&ctx);
    for (uint64_t i = 0; i < n; i++) {
        const uint16_t half = type == QTYPE_F16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
        if (type == QTYPE_F16 || type == QTYPE_BF16)
            sha256_update(&ctx, sizeof half, (const uint8_t *)&half);
        else
            sha256_update(&ctx, sizeof values[i], (const uint8_t *)&values[i]);
    }
    sha256_digest(&ctx, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

static void check_matrix(const char *folder, const gguf *g, const cJSON *item, uint64_t head_dim) {
    const struct found f = find_tensor(g, item->string);
    gguf_str arch = {"", 0};
    char got[65];
    err e = {0};
    CHECK_MSG(f.tensor, "%s: %s", folder, item->string);
    if (!f.tensor) return;
    gguf_get_str(g, "general.architecture", &arch, NULL);
    const gguf_tensor *t = f.tensor;
    const uint64_t cols = t->dims[0], rows = t->dims[1], n = cols * rows;
    const bool permuted = f.permuted && arch.len == 5 && !memcmp(arch.data, "llama", 5);
    uint8_t *raw = mem_new(t->bytes, 1);
    float *values = mem_new(t->n_elems, sizeof *values), *turned = mem_new(n, sizeof *turned);
    CHECK_MSG(gguf_tensor_read(g, t, 0, t->bytes, raw, &e) == 0, "%s", e.msg);
    qtype_decode(t->type, raw, values, t->n_elems);
    for (uint64_t r = 0; r < rows; r++)
        memcpy(turned + r * cols, values + f.expert * n + row_of(r, head_dim, permuted) * cols,
               cols * sizeof *turned);
    /* Minus zero of a float and of a block: the block has none. */
    for (uint64_t i = 0; i < n && t->type != QTYPE_BF16 && t->type != QTYPE_F16; i++)
        turned[i] += 0.0f;
    hash_values(turned, n, t->type, got);
    const char *form = t->type == QTYPE_BF16 ? "bf16" : t->type == QTYPE_F16 ? "f16" : "f32";
    const char *want = cJSON_GetStringValue(cJSON_GetObjectItem(item, form));
    CHECK_MSG(want && !strcmp(got, want), "%s: %s, as %s", folder, item->string,
              qtype_name(t->type));
    free(turned);
    free(values);
    free(raw);
}

static void check_folder(const char *name) {
    char path[512];
    size_t n;
    err e = {0};
    gguf *g = NULL;
    snprintf(path, sizeof path, "%s/%s/golden.json", root, name);
    char *text = file_read(path, &n);
    cJSON *golden = text ? cJSON_Parse(text) : NULL;
    CHECK_MSG(golden, "%s", path);
    snprintf(path, sizeof path, "%s/%s/hf", root, name);
    CHECK_MSG(model_file_open(path, 0, &g, &e) == 0, "%s: %s", name, e.msg);
    if (golden && g) {
        uint64_t head_dim = 0;
        int n_checked = 0;
        const cJSON *item;
        if (gguf_get_u64(g, "llama.attention.key_length", &head_dim, NULL))
            gguf_get_u64(g, "llama.rope.dimension_count", &head_dim, NULL);
        cJSON_ArrayForEach(item, cJSON_GetObjectItem(golden, "weights")) {
            check_matrix(name, g, item, head_dim ? head_dim : 1);
            n_checked++;
        }
        CHECK_MSG(n_checked >= 7, "%s: %d", name, n_checked);
    }
    gguf_close(g);
    cJSON_Delete(golden);
    free(text);
}

static void libraries_folders_are_read_as_they_mean(void) {
    DIR *all = opendir(root);
    const struct dirent *entry;
    int n = 0;
    CHECK_MSG(all, "%s", root);
    while (all && (entry = readdir(all))) {
        if (*entry->d_name == '.' || strchr(entry->d_name, '.')) continue;
        check_folder(entry->d_name);
        n++;
    }
    CHECK_MSG(n > 0, "%s", root);
    if (all) closedir(all);
}

int main(int argc, char **argv) {
    if (argc > 1) root = argv[1];
    RUN(libraries_folders_are_read_as_they_mean);
    return check_done();
}
