/* gguf_write.c - writes GGUF v3. Keeps copies of all metadata and names; tensor data are borrowed
 * until the file is finished. A file appears under its name only when it is whole and on disk.
 * One writer belongs to one thread. */
#include "core/formats/gguf_int.h"

#include "core/base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct entry {
    char *key;
    uint64_t key_len;
    enum gguf_type type;
    uint8_t *payload; /* (n) as gguf_int.h draws it */
    uint64_t n;
};

struct gguf_writer {
    struct entry *entries;
    gguf_tensor *tensors; /* names are owned */
    uint64_t n_entries, n_tensors;
};

gguf_writer *gguf_writer_new(void) {
    return mem_new(1, sizeof(gguf_writer));
}

void gguf_writer_free(gguf_writer *w) {
    if (!w) return;
    for (uint64_t i = 0; i < w->n_entries; i++) {
        free(w->entries[i].key);
        free(w->entries[i].payload);
    }
    for (uint64_t i = 0; i < w->n_tensors; i++)
        free((char *)(uintptr_t)w->tensors[i].name.data);
    free(w->entries);
    free(w->tensors);
    free(w);
}

static bool same(const char *a, uint64_t a_len, gguf_str b) {
    return a_len == b.len && memcmp(a, b.data, b.len) == 0;
}

static const struct entry *find_entry(const gguf_writer *w, gguf_str key) {
    for (uint64_t i = 0; i < w->n_entries; i++)
        if (same(w->entries[i].key, w->entries[i].key_len, key)) return &w->entries[i];
    return NULL;
}

static gguf_str str_of(const char *s) {
    gguf_str v = {s, strlen(s)};
    return v;
}

static int no_memory(err *e) {
    return err_set(e, ERR_NOMEM, "no memory for the GGUF file to write");
}

int gguf_writer_set_raw(gguf_writer *w, gguf_str key, enum gguf_type type, const void *payload,
                        uint64_t n, err *e) {
    if (find_entry(w, key))
        return err_set(e, ERR_EXISTS, "key '%.*s' is set already",
                       (int)(key.len < 64 ? key.len : 64), key.data);
    struct entry *entries = mem_resize(w->entries, w->n_entries + 1, sizeof *entries);
    if (!entries) return no_memory(e);
    w->entries = entries;
    struct entry it = {.key = mem_strndup(key.data, key.len),
                       .key_len = key.len,
                       .type = type,
                       .payload = mem_new(n, 1),
                       .n = n};
    if (!it.key || !it.payload) {
        free(it.key);
        free(it.payload);
        return no_memory(e);
    }
    memcpy(it.payload, payload, n);
    entries[w->n_entries++] = it;
    return 0;
}

int gguf_writer_copy_metadata(gguf_writer *w, const gguf *src, err *e) {
    int rc = 0;
    for (uint64_t i = 0; !rc && i < gguf_n_keys(src); i++) {
        const struct gguf_kv *kv = gguf_key_at(src, i);
        if (!find_entry(w, kv->key))
            rc = gguf_writer_set_raw(w, kv->key, kv->type, kv->value, kv->value_bytes, e);
    }
    return rc;
}

int gguf_writer_set_u32(gguf_writer *w, const char *key, uint32_t v, err *e) {
    return gguf_writer_set_raw(w, str_of(key), GGUF_U32, &v, sizeof v, e);
}

int gguf_writer_set_f32(gguf_writer *w, const char *key, float v, err *e) {
    return gguf_writer_set_raw(w, str_of(key), GGUF_F32, &v, sizeof v, e);
}

int gguf_writer_set_bool(gguf_writer *w, const char *key, bool v, err *e) {
    uint8_t byte = v;
    return gguf_writer_set_raw(w, str_of(key), GGUF_BOOL, &byte, sizeof byte, e);
}

int gguf_writer_set_str(gguf_writer *w, const char *key, const char *v, err *e) {
    uint64_t n = strlen(v);
    uint8_t *payload = mem_new(n + sizeof n, 1);
    if (!payload) return no_memory(e);
    memcpy(payload, &n, sizeof n);
    memcpy(payload + sizeof n, v, n);
    int rc = gguf_writer_set_raw(w, str_of(key), GGUF_STRING, payload, n + sizeof n, e);
    free(payload);
    return rc;
}

int gguf_writer_add_tensor(gguf_writer *w, const gguf_tensor *t, err *e) {
    uint64_t bytes, n_elems = 1;
    int shown = (int)(t->name.len < 64 ? t->name.len : 64);
    for (uint64_t i = 0; i < w->n_tensors; i++)
        if (same(w->tensors[i].name.data, w->tensors[i].name.len, t->name))
            return err_set(e, ERR_EXISTS, "tensor '%.*s' is added already", shown, t->name.data);
    bool fits = t->n_dims >= 1 && t->n_dims <= 4;
    for (uint32_t d = 0; fits && d < t->n_dims; d++)
        fits = t->dims[d] && mem_mul(n_elems, t->dims[d], &n_elems);
    if (!fits || !qtype_bytes(t->type, n_elems / t->dims[0], t->dims[0], &bytes) ||
        bytes != t->bytes)
        return err_set(e, ERR_INVALID, "tensor '%.*s': its %" PRIu64 " bytes do not fit its shape",
                       shown, t->name.data, t->bytes);
    gguf_tensor *tensors = mem_resize(w->tensors, w->n_tensors + 1, sizeof *tensors);
    if (!tensors) return no_memory(e);
    w->tensors = tensors;
    gguf_tensor copy = *t;
    copy.name.data = mem_strndup(t->name.data, t->name.len);
    if (!copy.name.data) return no_memory(e);
    tensors[w->n_tensors++] = copy;
    return 0;
}

/* What was set, or the format's default. */
static uint64_t alignment_of(const gguf_writer *w) {
    uint32_t v;
    const struct entry *it = find_entry(w, str_of("general.alignment"));
    if (!it || it->type != GGUF_U32) return GGUF_ALIGNMENT_DEFAULT;
    memcpy(&v, it->payload, sizeof v);
    bool fits = v >= GGUF_ALIGNMENT_MIN && v <= GGUF_ALIGNMENT_MAX && !(v & (v - 1));
    return fits ? v : GGUF_ALIGNMENT_DEFAULT;
}

/* The stream remembers a failed write: it is checked once, before the file takes its name. */
static void put(FILE *f, const void *p, uint64_t n, uint64_t *pos) {
    if (n) fwrite(p, 1, n, f);
    *pos += n;
}

static void put_u32(FILE *f, uint32_t v, uint64_t *pos) {
    put(f, &v, sizeof v, pos);
}

static void put_u64(FILE *f, uint64_t v, uint64_t *pos) {
    put(f, &v, sizeof v, pos);
}

static void pad(FILE *f, uint64_t alignment, uint64_t *pos) {
    static const uint8_t zeros[64];
    while (*pos % alignment) {
        uint64_t n = alignment - *pos % alignment;
        put(f, zeros, n < sizeof zeros ? n : sizeof zeros, pos);
    }
}

static void put_file(FILE *f, const gguf_writer *w) {
    uint64_t pos = 0, offset = 0, alignment = alignment_of(w);
    put(f, "GGUF", 4, &pos);
    put_u32(f, GGUF_VERSION_MAX, &pos);
    put_u64(f, w->n_tensors, &pos);
    put_u64(f, w->n_entries, &pos);
    for (uint64_t i = 0; i < w->n_entries; i++) {
        const struct entry *it = &w->entries[i];
        put_u64(f, it->key_len, &pos);
        put(f, it->key, it->key_len, &pos);
        put_u32(f, it->type, &pos);
        put(f, it->payload, it->n, &pos);
    }
    for (uint64_t i = 0; i < w->n_tensors; i++) {
        const gguf_tensor *t = &w->tensors[i];
        put_u64(f, t->name.len, &pos);
        put(f, t->name.data, t->name.len, &pos);
        put_u32(f, t->n_dims, &pos);
        put(f, t->dims, t->n_dims * sizeof t->dims[0], &pos);
        put_u32(f, (uint32_t)t->type, &pos);
        put_u64(f, offset, &pos);
        offset += (t->bytes + alignment - 1) / alignment * alignment;
    }
    for (uint64_t i = 0; i < w->n_tensors; i++) {
        pad(f, alignment, &pos);
        put(f, w->tensors[i].data, w->tensors[i].bytes, &pos);
    }
    pad(f, alignment, &pos);
}

int gguf_writer_finish(gguf_writer *w, const char *path, err *e) {
    size_t n = strlen(path);
    int rc = 0;
    char *tmp = mem_new((uint64_t)n + sizeof ".tmp", 1);
    if (!tmp) return no_memory(e);
    memcpy(tmp, path, n);
    memcpy(tmp + n, ".tmp", sizeof ".tmp");
    FILE *f = fopen(tmp, "wbe");
    if (!f) {
        rc = err_set(e, ERR_IO, "%s: cannot create: %s", tmp, strerror(errno));
    } else {
        put_file(f, w);
        bool bad = fflush(f) || ferror(f) || fsync(fileno(f));
        int why = errno;
        if (fclose(f) && !bad) {
            bad = true;
            why = errno;
        }
        if (!bad && rename(tmp, path)) {
            bad = true;
            why = errno;
        }
        if (bad) {
            unlink(tmp);
            rc = err_set(e, ERR_IO, "%s: cannot write: %s", path, strerror(why));
        }
    }
    free(tmp);
    return rc;
}
