/* test_hf_model.c - model folders as ggufs: the golden models against llama.cpp's converter,
 * folders made here against plain loops, and what must be refused. */
#include "core/formats/gguf_int.h"
#include "core/formats/hf_model.h"
#include "core/formats/model_file.h"
#include "tests/unit/check.h"

#include <stdlib.h>

static const char *text_of(gguf_str s, char out[200]) {
    snprintf(out, 200, "%.*s", (int)(s.len < 199 ? s.len : 199), s.data);
    return out;
}

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

static const struct gguf_kv *find_kv(const gguf *g, gguf_str key) {
    for (uint64_t i = 0; i < gguf_n_keys(g); i++)
        if (!gguf_str_compare(gguf_key_at(g, i)->key, key)) return gguf_key_at(g, i);
    return NULL;
}

/* Every key of the architecture that the converter writes is there with the same bytes. */
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

/* Keys that the converter leaves out, each because the architecture's default is taken for it. */
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

static void folders_are_what_the_converter_makes_of_them(void) {
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
        char path[256], dir[256];
        gguf *folder = NULL, *file = NULL;
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
            gguf_drop_pages(folder);
        }
        gguf_close(folder);
        gguf_close(file);
    }
}

int main(void) {
    RUN(folders_are_what_the_converter_makes_of_them);
    return check_done();
}
