/* gguf/value.c - accessors of an open gguf: keys by name, values converted to the caller's type,
 * tensors and their bytes. Reads what gguf.c has checked; changes nothing. Any thread. */
#include "core/formats/file_map.h"
#include "core/formats/gguf/gguf_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *gguf_path(const gguf *g) {
    return g->path;
}

const char *gguf_source_path(const gguf *g, uint64_t i) {
    if (i == 0) return g->path;
    return g->source.path ? g->source.path(g->source.state, i - 1) : NULL;
}

uint64_t gguf_file_bytes(const gguf *g) {
    return g->source.close ? g->source.bytes : g->bytes;
}

const void *gguf_mapping(const gguf *g) {
    return g->source.close ? NULL : g->base;
}

/* The map of the i-th file; NULL after the last. */
static const struct file_map *map_at(const gguf *g, uint64_t i) {
    const struct file_map *m = i == 0 && g->map.base ? &g->map : NULL;
    if (!m && g->source.map) m = g->source.map(g->source.state, g->map.base ? i - 1 : i);
    return m && m->base ? m : NULL;
}

bool gguf_file_mapping(const gguf *g, uint64_t i, const void **base, uint64_t *bytes) {
    const struct file_map *m = map_at(g, i);
    if (!m) return false;
    *base = m->base;
    *bytes = file_map_readable_bytes(m);
    return true;
}

int gguf_check(const gguf *g, err *e) {
    const struct file_map *m;
    for (uint64_t i = 0; (m = map_at(g, i)); i++) {
        int rc = file_map_check(m, e);
        if (rc) return rc;
    }
    return 0;
}

uint64_t gguf_n_tensors(const gguf *g) {
    return g->n_tensors;
}

const gguf_tensor *gguf_tensor_at(const gguf *g, uint64_t i) {
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const gguf_tensor *gguf_tensor_find(const gguf *g, const char *name) {
    gguf_tensor wanted = {.name = {name, strlen(name)}};
    const gguf_tensor *key = &wanted;
    if (!g->n_tensors) return NULL;
    const gguf_tensor **found = bsearch(&key, g->tensors_by_name, g->n_tensors,
                                        sizeof *g->tensors_by_name, gguf_tensor_compare);
    return found ? *found : NULL;
}

uint64_t gguf_n_keys(const gguf *g) {
    return g->n_keys;
}

const struct gguf_kv *gguf_key_at(const gguf *g, uint64_t i) {
    return i < g->n_keys ? &g->keys[i] : NULL;
}

static const struct gguf_kv *find_key(const gguf *g, const char *key) {
    struct gguf_kv wanted = {.key = {key, strlen(key)}};
    const struct gguf_kv *k = &wanted;
    if (!g->n_keys) return NULL;
    const struct gguf_kv **found =
        bsearch(&k, g->keys_by_name, g->n_keys, sizeof *g->keys_by_name, gguf_key_compare);
    return found ? *found : NULL;
}

int gguf_tensor_read(const gguf *g, const gguf_tensor *t, uint64_t offset, uint64_t n, void *dst,
                     err *e) {
    bool inside = offset <= t->bytes && n <= t->bytes - offset;
    if (!inside || (!t->data && !g->source.read))
        return err_set(e, ERR_INVALID,
                       "%s: %" PRIu64 " bytes at offset %" PRIu64 " are outside the tensor",
                       g->path, n, offset);
    if (!t->data)
        return g->source.read(g->source.state, (uint64_t)(t - g->tensors), offset, n, dst, e);
    memcpy(dst, (const char *)t->data + offset, n);
    return 0;
}

void gguf_tensor_will_need(const gguf_tensor *t) {
    if (t->data) file_map_will_need(t->data, t->bytes);
}

bool gguf_has(const gguf *g, const char *key) {
    return find_key(g, key) != NULL;
}

static int err_type(const gguf *g, const struct gguf_kv *kv, const char *key, const char *want,
                    err *e) {
    if (!kv) return err_set(e, ERR_NOT_FOUND, "%s: no key '%s'", g->path, key);
    return err_set(e, ERR_FORMAT, "%s: offset %" PRIu64 ": key '%s': expected %s, found %s",
                   g->path, gguf_offset_of(g, kv->value), key, want, gguf_type_name(kv->type));
}

/* A number of any type, widened: u if is_unsigned, i if another integer, f if is_float. */
struct number {
    bool is_int, is_float, is_unsigned;
    uint64_t u;
    int64_t i;
    double f;
};

#define LOAD(T, p)                                                                                 \
    (__extension__({                                                                               \
        T load_v;                                                                                  \
        memcpy(&load_v, (p), sizeof load_v);                                                       \
        load_v;                                                                                    \
    }))

static struct number load_number(enum gguf_type type, const uint8_t *p) {
    struct number v = {0};
    switch (type) {
    case GGUF_U8:
        v.u = *p;
        break;
    case GGUF_U16:
        v.u = LOAD(uint16_t, p);
        break;
    case GGUF_U32:
        v.u = LOAD(uint32_t, p);
        break;
    case GGUF_U64:
        v.u = LOAD(uint64_t, p);
        break;
    case GGUF_I8:
        v.i = LOAD(int8_t, p);
        break;
    case GGUF_I16:
        v.i = LOAD(int16_t, p);
        break;
    case GGUF_I32:
        v.i = LOAD(int32_t, p);
        break;
    case GGUF_I64:
        v.i = LOAD(int64_t, p);
        break;
    case GGUF_F32:
        v.f = LOAD(float, p);
        break;
    case GGUF_F64:
        v.f = LOAD(double, p);
        break;
    case GGUF_BOOL:
    case GGUF_STRING:
    case GGUF_ARRAY:
        return v;
    }
    v.is_float = type == GGUF_F32 || type == GGUF_F64;
    v.is_int = !v.is_float;
    v.is_unsigned = type == GGUF_U8 || type == GGUF_U16 || type == GGUF_U32 || type == GGUF_U64;
    return v;
}

int gguf_get_u64(const gguf *g, const char *key, uint64_t *value, err *e) {
    const struct gguf_kv *kv = find_key(g, key);
    struct number v = {0};
    if (kv) v = load_number(kv->type, kv->value);
    if (!v.is_int) return err_type(g, kv, key, "an integer", e);
    if (!v.is_unsigned && v.i < 0) return err_type(g, kv, key, "an integer of at least 0", e);
    *value = v.is_unsigned ? v.u : (uint64_t)v.i;
    return 0;
}

int gguf_get_f64(const gguf *g, const char *key, double *value, err *e) {
    const struct gguf_kv *kv = find_key(g, key);
    struct number v = {0};
    if (kv) v = load_number(kv->type, kv->value);
    if (!v.is_float) return err_type(g, kv, key, "a floating-point number", e);
    *value = v.f;
    return 0;
}

int gguf_get_bool(const gguf *g, const char *key, bool *value, err *e) {
    const struct gguf_kv *kv = find_key(g, key);
    if (!kv || kv->type != GGUF_BOOL) return err_type(g, kv, key, "a bool", e);
    *value = kv->value[0] != 0;
    return 0;
}

static gguf_str str_at(const uint8_t *p) {
    gguf_str s = {(const char *)p + 8, LOAD(uint64_t, p)};
    return s;
}

int gguf_get_str(const gguf *g, const char *key, gguf_str *value, err *e) {
    const struct gguf_kv *kv = find_key(g, key);
    if (!kv || kv->type != GGUF_STRING) return err_type(g, kv, key, "a string", e);
    *value = str_at(kv->value);
    return 0;
}

int gguf_get_array(const gguf *g, const char *key, enum gguf_type *elem, uint64_t *n, err *e) {
    const struct gguf_kv *kv = find_key(g, key);
    if (!kv || kv->type != GGUF_ARRAY) return err_type(g, kv, key, "an array", e);
    *elem = kv->elem;
    *n = kv->n;
    return 0;
}

gguf_str gguf_array_str(const gguf *g, const char *key, uint64_t i) {
    const struct gguf_kv *kv = find_key(g, key);
    gguf_str none = {"", 0};
    if (!kv || kv->type != GGUF_ARRAY || kv->elem != GGUF_STRING || i >= kv->n) return none;
    return str_at(g->base + kv->str_offsets[i]);
}

static struct number array_number(const gguf *g, const char *key, uint64_t i) {
    const struct gguf_kv *kv = find_key(g, key);
    struct number none = {0};
    if (!kv || kv->type != GGUF_ARRAY || i >= kv->n) return none;
    const uint8_t *first = kv->value + GGUF_ARRAY_HEAD_BYTES;
    if (kv->elem == GGUF_BOOL) {
        none.is_int = none.is_unsigned = true;
        none.u = first[i];
        return none;
    }
    return load_number(kv->elem, first + i * gguf_scalar_bytes(kv->elem));
}

double gguf_array_f64(const gguf *g, const char *key, uint64_t i) {
    struct number v = array_number(g, key, i);
    if (v.is_float) return v.f;
    return v.is_unsigned ? (double)v.u : (double)v.i;
}

int64_t gguf_array_i64(const gguf *g, const char *key, uint64_t i) {
    struct number v = array_number(g, key, i);
    if (v.is_unsigned) return v.u <= INT64_MAX ? (int64_t)v.u : 0;
    return v.i;
}
