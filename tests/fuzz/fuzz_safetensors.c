/* fuzz_safetensors.c - a model folder in one input: u32 n | n bytes of config.json | the bytes of a
 * .safetensors file. Each part is refused, or all of its data is safe to read; so are the tensors
 * of both together. */
#include "core/formats/hf/model_int.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* A sink that the compiler cannot remove: the sanitizer checks every read. */
static volatile uint64_t sink;

static void touch(const void *p, uint64_t n) {
    const uint8_t *bytes = p;
    for (uint64_t i = 0; i<n; i += n> 64 ? n / 64 : 1)
        sink += bytes[i];
    if (n) sink += bytes[n - 1];
}

static void walk_file(const safetensors *s) {
    for (uint64_t i = 0; i < safetensors_n(s); i++) {
        const struct safetensor *t = safetensors_at(s, i);
        if (safetensors_find(s, t->name) != t) abort();
        touch(t->name.data, t->name.len);
        touch(t->data, t->bytes);
    }
}

/* Bytes of a tensor, in pieces that begin and end anywhere in its rows, equal those read at once.
 */
static void read_whole(const struct hf_recipe *recipe, const gguf_tensor *t) {
    if (t->bytes > 1 << 16) return;
    uint8_t *whole = malloc(t->bytes), *piece = malloc(t->bytes);
    if (!whole || !piece) abort();
    hf_recipe_read(recipe, t->type, 0, t->bytes, whole);
    for (uint64_t at = 0, n = 1; at < t->bytes; at += n, n = n * 3 + 2) {
        if (n > t->bytes - at) n = t->bytes - at;
        hf_recipe_read(recipe, t->type, at, n, piece);
        if (memcmp(piece, whole + at, n) != 0) abort();
    }
    if (t->data && memcmp(t->data, whole, t->bytes) != 0) abort();
    free(whole);
    free(piece);
}

static void map_both(const struct hf_config *config, safetensors *file) {
    struct hf_tensors tensors = {0};
    err e = {0};
    int rc = hf_tensors_map(&tensors, config, &file, 1, &e);
    if (rc && (!e.code || !e.msg[0])) abort();
    for (uint64_t i = 0; !rc && i < tensors.n; i++)
        read_whole(&tensors.recipes[i], &tensors.tensors[i]);
    hf_tensors_free(&tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    uint32_t n_json;
    err e = {0};
    safetensors *file = NULL;
    if (n < sizeof n_json) return 0;
    memcpy(&n_json, bytes, sizeof n_json);
    bytes += sizeof n_json;
    n -= sizeof n_json;
    if (n_json > n) n_json = (uint32_t)n;
    int bad = safetensors_open_memory(bytes + n_json, n - n_json, "fuzz", &file, &e);
    if (bad && (file || !e.code || !e.msg[0])) abort();
    if (file) walk_file(file);

    struct hf_config *config = calloc(1, sizeof *config);
    gguf_writer *keys = gguf_writer_new();
    if (!config || !keys) abort();
    config->as_file = n_json % 2;
    e.code = 0;
    bad = hf_config_read((const char *)bytes, n_json, keys, config, &e);
    if (bad && (!e.code || !e.msg[0])) abort();
    if (!bad && file) map_both(config, file);
    gguf_writer_free(keys);

    gguf *g = NULL;
    if (!bad) bad = hf_config_open_memory((const char *)bytes, n_json, &g, &e);
    if (g)
        for (uint64_t i = 0; i < gguf_n_tensors(g); i++)
            touch(gguf_tensor_at(g, i)->data, gguf_tensor_at(g, i)->bytes);
    gguf_close(g);
    safetensors_close(file);
    free(config);
    return 0;
}
