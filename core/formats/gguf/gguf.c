/* gguf.c - reads GGUF v2/v3. Owns the mapping and the index over it; trusts no byte of the file and
 * never writes to it. Opened on one thread, then read-only.
 *
 * The file, all little-endian (ggml docs/gguf.md):
 *   "GGUF" | u32 version | u64 n_tensors | u64 n_keys
 *   n_keys    x  string key | u32 type | value
 *   n_tensors x  string name | u32 n_dims | u64 dims[n_dims] | u32 type | u64 offset
 *   padding to general.alignment, then the data section: offsets count from here
 * A string is u64 length | bytes. */
#include "core/formats/gguf/gguf_int.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF values are read in place");

enum {
    KEY_MIN_BYTES = 8 + 4 + 1,            /* empty key, type, smallest value */
    TENSOR_MIN_BYTES = 8 + 4 + 8 + 4 + 8, /* empty name, one dimension */
    PATH_SHOWN_BYTES = 160,
    FIELD_BYTES = 128
};

/* Position of the reader; pos <= g->bytes always. */
struct cursor {
    gguf *g;
    uint64_t pos;
    int flags;
    err *e;
};

uint32_t gguf_scalar_bytes(uint32_t type) {
    switch (type) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL:
        return 1;
    case GGUF_U16:
    case GGUF_I16:
        return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32:
        return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_F64:
        return 8;
    default:
        return 0;
    }
}

const char *gguf_type_name(enum gguf_type type) {
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return (size_t)type < sizeof names / sizeof names[0] ? names[type] : "unknown";
}

void gguf_show_name(char out[GGUF_NAME_SHOWN_BYTES + 4], gguf_str name) {
    uint64_t n = name.len < GGUF_NAME_SHOWN_BYTES ? name.len : GGUF_NAME_SHOWN_BYTES;
    for (uint64_t i = 0; i < n; i++) {
        char c = name.data[i];
        out[i] = '?';
        if (c >= ' ' && c <= '~') out[i] = c;
    }
    strcpy(out + n, n < name.len ? "..." : "");
}

static int err_field(const struct cursor *c, int code, uint64_t offset, const char *field,
                     const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* "FILE: offset N: field: what"; of a long path only its end. */
static int err_field(const struct cursor *c, int code, uint64_t offset, const char *field,
                     const char *fmt, ...) {
    char what[192];
    const char *path = c->g->path;
    size_t n = strlen(path);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    bool cut = n > PATH_SHOWN_BYTES;
    return err_set(c->e, code, "%s%s: offset %" PRIu64 ": %s: %s", cut ? "..." : "",
                   cut ? path + n - PATH_SHOWN_BYTES : path, offset, field, what);
}

static uint64_t bytes_left(const struct cursor *c) {
    return c->g->bytes - c->pos;
}

/* Advances by n bytes and returns their address, or NULL with e set (ERR_FORMAT). */
static const uint8_t *read_bytes(struct cursor *c, uint64_t n, const char *field) {
    if (n > bytes_left(c)) {
        err_field(c, ERR_FORMAT, c->pos, field,
                  "needs %" PRIu64 " bytes, only %" PRIu64 " are left", n, bytes_left(c));
        return NULL;
    }
    const uint8_t *p = c->g->base + c->pos;
    c->pos += n;
    return p;
}

static int read_u32(struct cursor *c, const char *field, uint32_t *v) {
    const uint8_t *p = read_bytes(c, sizeof *v, field);
    if (!p) return ERR_FORMAT;
    memcpy(v, p, sizeof *v);
    return 0;
}

static int read_u64(struct cursor *c, const char *field, uint64_t *v) {
    const uint8_t *p = read_bytes(c, sizeof *v, field);
    if (!p) return ERR_FORMAT;
    memcpy(v, p, sizeof *v);
    return 0;
}

static int read_str(struct cursor *c, const char *field, gguf_str *s) {
    uint64_t at = c->pos;
    int rc = read_u64(c, field, &s->len);
    if (rc) return rc;
    if (s->len > bytes_left(c))
        return err_field(c, ERR_FORMAT, at, field,
                         "length is %" PRIu64 ", but only %" PRIu64 " bytes are left", s->len,
                         bytes_left(c));
    s->data = (const char *)read_bytes(c, s->len, field);
    return 0;
}

static int read_name(struct cursor *c, const char *field, gguf_str *s) {
    uint64_t at = c->pos;
    int rc = read_str(c, field, s);
    if (rc) return rc;
    if (s->len == 0 || s->len > GGUF_NAME_MAX_BYTES)
        return err_field(c, ERR_FORMAT, at, field, "length is %" PRIu64 ", expected 1 to %d",
                         s->len, GGUF_NAME_MAX_BYTES);
    if (memchr(s->data, 0, s->len))
        return err_field(c, ERR_FORMAT, at, field, "contains a NUL byte");
    return 0;
}

static int check_bools(struct cursor *c, uint64_t at, uint64_t n, const char *field) {
    for (uint64_t i = 0; i < n; i++)
        if (c->g->base[at + i] > 1)
            return err_field(c, ERR_FORMAT, at + i, field, "bool is %u, expected 0 or 1",
                             c->g->base[at + i]);
    return 0;
}

/* The strings of an array have no fixed stride, so the offset of each is stored: 8 bytes of index
 * per string, which takes at least 8 bytes of the file. */
static int read_str_array(struct cursor *c, struct gguf_kv *kv, uint64_t at, const char *field) {
    if (kv->n > bytes_left(c) / 8)
        return err_field(c, ERR_FORMAT, at, field,
                         "%" PRIu64 " strings, but only %" PRIu64 " bytes are left", kv->n,
                         bytes_left(c));
    kv->str_offsets = mem_new(kv->n, sizeof *kv->str_offsets);
    if (!kv->str_offsets) return err_no_memory(c->e);
    for (uint64_t i = 0; i < kv->n; i++) {
        gguf_str s;
        kv->str_offsets[i] = c->pos;
        int rc = read_str(c, field, &s);
        if (rc) return rc;
    }
    return 0;
}

static int read_array(struct cursor *c, struct gguf_kv *kv, const char *field) {
    uint64_t at = c->pos;
    uint32_t elem;
    int rc = read_u32(c, field, &elem);
    if (!rc) rc = read_u64(c, field, &kv->n);
    if (rc) return rc;
    if (elem == GGUF_ARRAY)
        return err_field(c, ERR_UNSUPPORTED, at, field, "arrays of arrays are not supported");
    kv->elem = (enum gguf_type)elem;
    if (elem == GGUF_STRING) return read_str_array(c, kv, at + 4, field);
    uint32_t size = gguf_scalar_bytes(elem);
    if (!size) return err_field(c, ERR_FORMAT, at, field, "array of unknown type %" PRIu32, elem);
    if (kv->n > bytes_left(c) / size)
        return err_field(c, ERR_FORMAT, at + 4, field,
                         "%" PRIu64 " elements of %s, but only %" PRIu64 " bytes are left", kv->n,
                         gguf_type_name(kv->elem), bytes_left(c));
    uint64_t data = c->pos;
    if (!read_bytes(c, kv->n * size, field)) return ERR_FORMAT;
    return elem == GGUF_BOOL ? check_bools(c, data, kv->n, field) : 0;
}

static int read_key(struct cursor *c, uint64_t index) {
    struct gguf_kv *kv = &c->g->keys[index];
    char field[FIELD_BYTES], name[GGUF_NAME_SHOWN_BYTES + 4];
    uint32_t type;
    snprintf(field, sizeof field, "key %" PRIu64, index);
    int rc = read_name(c, field, &kv->key);
    if (rc) return rc;
    gguf_show_name(name, kv->key);
    snprintf(field, sizeof field, "key '%s'", name);
    uint64_t at = c->pos;
    rc = read_u32(c, field, &type);
    if (rc) return rc;
    if (type > GGUF_F64)
        return err_field(c, ERR_FORMAT, at, field, "unknown value type %" PRIu32, type);
    kv->type = (enum gguf_type)type;
    uint64_t value = c->pos;
    kv->value = c->g->base + value;
    gguf_str s;
    if (type == GGUF_STRING)
        rc = read_str(c, field, &s);
    else if (type == GGUF_ARRAY)
        rc = read_array(c, kv, field);
    else if (!read_bytes(c, gguf_scalar_bytes(type), field))
        rc = ERR_FORMAT;
    if (!rc && type == GGUF_BOOL) rc = check_bools(c, value, 1, field);
    kv->value_bytes = c->pos - value;
    return rc;
}

int gguf_str_compare(gguf_str a, gguf_str b) {
    uint64_t n = a.len < b.len ? a.len : b.len;
    int order = n ? memcmp(a.data, b.data, n) : 0;
    if (order) return order;
    return a.len < b.len ? -1 : a.len > b.len;
}

int gguf_key_compare(const void *a, const void *b) {
    const struct gguf_kv *const *x = a, *const *y = b;
    return gguf_str_compare((*x)->key, (*y)->key);
}

int gguf_tensor_compare(const void *a, const void *b) {
    const gguf_tensor *const *x = a, *const *y = b;
    return gguf_str_compare((*x)->name, (*y)->name);
}

static int compare_data(const void *a, const void *b) {
    const gguf_tensor *const *x = a, *const *y = b;
    uintptr_t p = (uintptr_t)(*x)->data, q = (uintptr_t)(*y)->data;
    return p < q ? -1 : p > q;
}

static int read_keys(struct cursor *c) {
    gguf *g = c->g;
    char name[GGUF_NAME_SHOWN_BYTES + 4];
    g->keys = mem_new(g->n_keys, sizeof *g->keys);
    g->keys_by_name = mem_new(g->n_keys, sizeof *g->keys_by_name);
    if (!g->keys || !g->keys_by_name) return err_no_memory(c->e);
    for (uint64_t i = 0; i < g->n_keys; i++) {
        int rc = read_key(c, i);
        if (rc) return rc;
        g->keys_by_name[i] = &g->keys[i];
    }
    qsort(g->keys_by_name, g->n_keys, sizeof *g->keys_by_name, gguf_key_compare);
    for (uint64_t i = 1; i < g->n_keys; i++) {
        const struct gguf_kv *kv = g->keys_by_name[i];
        if (gguf_str_compare(g->keys_by_name[i - 1]->key, kv->key)) continue;
        gguf_show_name(name, kv->key);
        return err_field(c, ERR_FORMAT, gguf_offset_of(g, kv->key.data), "key", "'%s' occurs twice",
                         name);
    }
    return 0;
}

/* Reads one tensor's shape into t. */
static int read_shape(struct cursor *c, gguf_tensor *t, const char *field) {
    uint64_t at = c->pos;
    int rc = read_u32(c, field, &t->n_dims);
    if (rc) return rc;
    if (t->n_dims < 1 || t->n_dims > 4)
        return err_field(c, ERR_FORMAT, at, field, "%" PRIu32 " dimensions, expected 1 to 4",
                         t->n_dims);
    t->n_elems = 1;
    for (int d = 0; d < 4; d++) {
        t->dims[d] = 1;
        if ((uint32_t)d >= t->n_dims) continue;
        at = c->pos;
        rc = read_u64(c, field, &t->dims[d]);
        if (rc) return rc;
        /* Callers may count elements in int64. */
        if (t->dims[d] == 0 || !mem_mul(t->n_elems, t->dims[d], &t->n_elems) ||
            t->n_elems > INT64_MAX)
            return err_field(c, ERR_FORMAT, at, field,
                             "dimension %d is %" PRIu64
                             ": the number of elements must be 1 to 2^63 - 1",
                             d, t->dims[d]);
    }
    return 0;
}

/* Reads one tensor's description. Its data is placed later: where the data section begins is known
 * after the last description only. */
static int read_tensor(struct cursor *c, uint64_t index, uint64_t *offset) {
    gguf_tensor *t = &c->g->tensors[index];
    char field[FIELD_BYTES], name[GGUF_NAME_SHOWN_BYTES + 4];
    uint32_t type;
    snprintf(field, sizeof field, "tensor %" PRIu64, index);
    int rc = read_name(c, field, &t->name);
    if (rc) return rc;
    gguf_show_name(name, t->name);
    snprintf(field, sizeof field, "tensor '%s'", name);
    rc = read_shape(c, t, field);
    if (rc) return rc;
    uint64_t at = c->pos;
    rc = read_u32(c, field, &type);
    if (rc) return rc;
    t->type = type <= INT32_MAX && !qtype_is_wide((int)type) ? (int)type : -1;
    if (!qtype_find(t->type)) {
        if (!(c->flags & GGUF_OPEN_VOCAB_ONLY))
            return err_field(c, ERR_UNSUPPORTED, at, field,
                             "tensor type %" PRIu32 " is not supported by this build", type);
    } else if (!qtype_bytes(t->type, t->n_elems / t->dims[0], t->dims[0], &t->bytes)) {
        return err_field(c, ERR_FORMAT, at, field,
                         "rows of %" PRIu64 " elements do not fit type %s", t->dims[0],
                         qtype_name(t->type));
    }
    return read_u64(c, field, offset);
}

static int read_alignment(struct cursor *c, uint64_t *alignment) {
    const char *key = "general.alignment";
    *alignment = GGUF_ALIGNMENT_DEFAULT;
    if (!gguf_has(c->g, key)) return 0;
    int rc = gguf_get_u64(c->g, key, alignment, c->e);
    if (rc) return rc;
    if (*alignment < GGUF_ALIGNMENT_MIN || *alignment > GGUF_ALIGNMENT_MAX ||
        (*alignment & (*alignment - 1)))
        return err_field(c, ERR_FORMAT, c->pos, key,
                         "%" PRIu64 " is not a power of two from %d to %d", *alignment,
                         GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX);
    return 0;
}

/* Sets every tensor's data; refuses misaligned, overlapping and out-of-range tensors. */
static int place_tensors(struct cursor *c, const uint64_t *offsets) {
    gguf *g = c->g;
    char field[FIELD_BYTES], name[GGUF_NAME_SHOWN_BYTES + 4];
    uint64_t alignment, padded;
    int rc = read_alignment(c, &alignment);
    if (rc || !g->n_tensors) return rc;
    if (!mem_add(c->pos, alignment - 1, &padded) || (padded &= ~(alignment - 1)) > g->bytes)
        return err_field(c, ERR_FORMAT, c->pos, "data section", "begins after the end of the file");
    uint64_t room = g->bytes - padded;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        gguf_tensor *t = &g->tensors[i];
        gguf_show_name(name, t->name);
        snprintf(field, sizeof field, "tensor '%s'", name);
        if (offsets[i] % alignment)
            return err_field(c, ERR_FORMAT, gguf_offset_of(g, t->name.data), field,
                             "data offset %" PRIu64 " is not a multiple of the alignment %" PRIu64,
                             offsets[i], alignment);
        if (offsets[i] > room || t->bytes > room - offsets[i])
            return err_field(c, ERR_FORMAT, gguf_offset_of(g, t->name.data), field,
                             "%" PRIu64 " bytes of data at data offset %" PRIu64
                             " exceed the data section's %" PRIu64 " bytes",
                             t->bytes, offsets[i], room);
        t->data = g->base + padded + offsets[i];
        g->tensors_by_name[i] = t;
    }
    qsort(g->tensors_by_name, g->n_tensors, sizeof *g->tensors_by_name, compare_data);
    for (uint64_t i = 1; i < g->n_tensors; i++) {
        const gguf_tensor *a = g->tensors_by_name[i - 1], *b = g->tensors_by_name[i];
        bool known = qtype_find(a->type) && qtype_find(b->type);
        if (!known || a->bytes <= (uint64_t)((const uint8_t *)b->data - (const uint8_t *)a->data))
            continue;
        gguf_show_name(name, b->name);
        snprintf(field, sizeof field, "tensor '%s'", name);
        gguf_show_name(name, a->name);
        return err_field(c, ERR_FORMAT, gguf_offset_of(g, b->data), field,
                         "its data overlaps that of '%s'", name);
    }
    return 0;
}

/* Sorts tensors_by_name. Returns a tensor whose name occurs twice, or NULL. */
static const gguf_tensor *sort_tensors(gguf *g) {
    for (uint64_t i = 0; i < g->n_tensors; i++)
        g->tensors_by_name[i] = &g->tensors[i];
    qsort(g->tensors_by_name, g->n_tensors, sizeof *g->tensors_by_name, gguf_tensor_compare);
    for (uint64_t i = 1; i < g->n_tensors; i++) {
        const gguf_tensor *t = g->tensors_by_name[i];
        if (!gguf_str_compare(g->tensors_by_name[i - 1]->name, t->name)) return t;
    }
    return NULL;
}

static int index_tensors(struct cursor *c) {
    gguf *g = c->g;
    char name[GGUF_NAME_SHOWN_BYTES + 4];
    const gguf_tensor *repeated = sort_tensors(g);
    if (repeated) {
        gguf_show_name(name, repeated->name);
        return err_field(c, ERR_FORMAT, gguf_offset_of(g, repeated->name.data), "tensor",
                         "'%s' occurs twice", name);
    }
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        gguf_tensor *t = &g->tensors[i];
        if (!qtype_find(t->type)) t->data = NULL; /* size unknown: nothing may be read */
    }
    return 0;
}

static int read_tensors(struct cursor *c) {
    gguf *g = c->g;
    uint64_t *offsets = mem_new(g->n_tensors, sizeof *offsets);
    g->tensors = mem_new(g->n_tensors, sizeof *g->tensors);
    g->tensors_by_name = mem_new(g->n_tensors, sizeof *g->tensors_by_name);
    int rc = offsets && g->tensors && g->tensors_by_name ? 0 : err_no_memory(c->e);
    for (uint64_t i = 0; !rc && i < g->n_tensors; i++)
        rc = read_tensor(c, i, &offsets[i]);
    if (!rc) rc = place_tensors(c, offsets);
    if (!rc) rc = index_tensors(c);
    free(offsets);
    return rc;
}

static int read_header(struct cursor *c) {
    gguf *g = c->g;
    const uint8_t *magic = read_bytes(c, 4, "magic");
    if (!magic) return ERR_FORMAT;
    if (memcmp(magic, "GGUF", 4)) return err_field(c, ERR_FORMAT, 0, "magic", "not a GGUF file");
    int rc = read_u32(c, "version", &g->version);
    if (rc) return rc;
    if (g->version && !(g->version & 0xffff))
        return err_field(c, ERR_UNSUPPORTED, 4, "version", "big-endian files are not supported");
    if (g->version < GGUF_VERSION_MIN || g->version > GGUF_VERSION_MAX)
        return err_field(c, ERR_UNSUPPORTED, 4, "version",
                         "GGUF version %" PRIu32 ", expected %d or %d", g->version,
                         GGUF_VERSION_MIN, GGUF_VERSION_MAX);
    rc = read_u64(c, "tensor count", &g->n_tensors);
    if (!rc) rc = read_u64(c, "key count", &g->n_keys);
    if (rc) return rc;
    if (g->n_tensors > GGUF_TENSORS_MAX || g->n_tensors > bytes_left(c) / TENSOR_MIN_BYTES)
        return err_field(c, ERR_FORMAT, 8, "tensor count",
                         "%" PRIu64 " tensors in a file of %" PRIu64 " bytes", g->n_tensors,
                         g->bytes);
    if (g->n_keys > GGUF_KEYS_MAX || g->n_keys > bytes_left(c) / KEY_MIN_BYTES)
        return err_field(c, ERR_FORMAT, 16, "key count",
                         "%" PRIu64 " keys in a file of %" PRIu64 " bytes", g->n_keys, g->bytes);
    return 0;
}

static int open_bytes(gguf *g, int flags, gguf **out, err *e) {
    struct cursor c = {.g = g, .flags = flags, .e = e};
    int rc = read_header(&c);
    if (!rc) rc = read_keys(&c);
    if (!rc) rc = read_tensors(&c);
    if (rc)
        gguf_close(g);
    else
        *out = g;
    return rc;
}

static gguf *new_gguf(const char *path, err *e) {
    gguf *g = mem_new(1, sizeof *g);
    if (g) g->path = mem_strdup(path);
    if (g && g->path) return g;
    gguf_close(g);
    err_no_memory(e);
    return NULL;
}

int gguf_open_memory(const void *bytes, uint64_t n, const char *name, int flags, gguf **out,
                     err *e) {
    *out = NULL;
    gguf *g = new_gguf(name, e);
    if (!g) return ERR_NOMEM;
    g->base = bytes;
    g->bytes = n;
    return open_bytes(g, flags, out, e);
}

int gguf_open(const char *path, int flags, gguf **out, err *e) {
    *out = NULL;
    gguf *g = new_gguf(path, e);
    if (!g) return ERR_NOMEM;
    int rc = file_map_open(path, &g->map, e);
    if (!rc && !g->map.base)
        rc = err_set(e, ERR_FORMAT, "%s: offset 0: magic: the file is empty", path);
    g->base = g->map.base;
    g->bytes = g->map.bytes;
    if (!rc) return open_bytes(g, flags, out, e);
    gguf_close(g);
    return rc;
}

int gguf_set_tensors(gguf *g, const gguf_tensor *tensors, uint64_t n,
                     const struct gguf_source *source, err *e) {
    char name[GGUF_NAME_SHOWN_BYTES + 4];
    gguf_tensor *copy = mem_new(n, sizeof *copy);
    const gguf_tensor **by_name = mem_new(n, sizeof *by_name);
    g->source = *source;
    if (!copy || !by_name) {
        free(copy);
        free(by_name);
        return err_no_memory(e);
    }
    if (n) memcpy(copy, tensors, n * sizeof *copy);
    free(g->tensors);
    free(g->tensors_by_name);
    g->tensors = copy;
    g->tensors_by_name = by_name;
    g->n_tensors = n;
    const gguf_tensor *repeated = sort_tensors(g);
    if (!repeated) return 0;
    gguf_show_name(name, repeated->name);
    return err_set(e, ERR_FORMAT, "%s: tensor '%s' occurs twice", g->path, name);
}

void gguf_forget_keys(gguf *g, const char *prefix) {
    uint64_t n = 0, len = strlen(prefix);
    for (uint64_t i = 0; i < g->n_keys; i++) {
        struct gguf_kv kv = g->keys[i];
        if (kv.key.len >= len && memcmp(kv.key.data, prefix, len) == 0)
            free(kv.str_offsets);
        else
            g->keys[n++] = kv;
    }
    g->n_keys = n;
    for (uint64_t i = 0; i < n; i++)
        g->keys_by_name[i] = &g->keys[i];
    qsort(g->keys_by_name, n, sizeof *g->keys_by_name, gguf_key_compare);
}

void gguf_close(gguf *g) {
    if (!g) return;
    for (uint64_t i = 0; g->keys && i < g->n_keys; i++)
        free(g->keys[i].str_offsets);
    free(g->tensors_by_name);
    free(g->tensors);
    free(g->keys_by_name);
    free(g->keys);
    if (g->source.close) g->source.close(g->source.state);
    file_map_close(&g->map);
    free(g->path);
    free(g);
}

void gguf_drop_pages(const gguf *g) {
    file_map_drop_pages(&g->map);
    if (g->source.drop_pages) g->source.drop_pages(g->source.state);
}
