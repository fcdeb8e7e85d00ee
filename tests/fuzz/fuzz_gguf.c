/* fuzz_gguf.c - any bytes as a GGUF file: it is refused, or every accessor is safe. */
#include "core/formats/gguf/gguf_int.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* A sink that the compiler cannot remove: every byte that an accessor returns is read, so that the
 * sanitizer checks it. */
static volatile uint64_t sink;

static void touch(const void *p, uint64_t n) {
    const uint8_t *bytes = p;
    if (n) sink += bytes[0] + bytes[n / 2] + bytes[n - 1];
}

static void touch_element(const gguf *g, const char *key, uint64_t i) {
    gguf_str s = gguf_array_str(g, key, i);
    touch(s.data, s.len);
    sink += (uint64_t)gguf_array_i64(g, key, i);
    sink += gguf_array_f64(g, key, i) > 0;
}

static void touch_key(const gguf *g, const char *key) {
    uint64_t u, n;
    double f;
    bool b;
    gguf_str s;
    enum gguf_type elem;
    err e;
    if (!gguf_has(g, key)) abort();
    gguf_get_u64(g, key, &u, &e);
    gguf_get_f64(g, key, &f, &e);
    gguf_get_bool(g, key, &b, &e);
    if (gguf_get_str(g, key, &s, &e) == 0) touch(s.data, s.len);
    if (gguf_get_array(g, key, &elem, &n, &e)) n = 0;
    for (uint64_t k = 0; k < n && k < 64; k++)
        touch_element(g, key, k);
    if (n) touch_element(g, key, n - 1);
    touch_element(g, key, n);
}

static void touch_tensor(const gguf *g, const gguf_tensor *t) {
    char name[256];
    if (t->name.len < sizeof name) {
        memcpy(name, t->name.data, t->name.len);
        name[t->name.len] = '\0';
        if (gguf_tensor_find(g, name) != t) abort();
    }
    uint64_t n = 1;
    for (int d = 0; d < 4; d++)
        n *= t->dims[d];
    if (n != t->n_elems || !n) abort();
    const uint8_t *begin = gguf_mapping(g), *end = begin + gguf_file_bytes(g);
    const uint8_t *data = t->data;
    if (!data) return;
    if (data < begin || data > end || t->bytes > (uint64_t)(end - data)) abort();
    touch(data, t->bytes);
}

static void walk(const uint8_t *bytes, size_t n, int flags) {
    gguf *g;
    err e = {0};
    if (gguf_open_memory(bytes, n, "fuzz", flags, &g, &e)) {
        if (g || !e.code || !e.msg[0]) abort();
        return;
    }
    for (uint64_t i = 0; i < gguf_n_keys(g); i++) {
        const struct gguf_kv *kv = gguf_key_at(g, i);
        char *key = malloc(kv->key.len + 1);
        if (!key) abort();
        memcpy(key, kv->key.data, kv->key.len);
        key[kv->key.len] = '\0';
        touch_key(g, key);
        free(key);
    }
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++)
        touch_tensor(g, gguf_tensor_at(g, i));
    gguf_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    walk(bytes, n, 0);
    walk(bytes, n, GGUF_OPEN_VOCAB_ONLY);
    return 0;
}
