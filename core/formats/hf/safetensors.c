/* safetensors.c - reads one file. Owns the mapping and the index over it; trusts no byte of the
 * file. Opened on one thread, then read-only. */
#include "core/formats/hf/safetensors.h"

#include "core/base/mem.h"
#include "core/formats/gguf/gguf_int.h"
#include "core/text/json_scan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, PATH_SHOWN_BYTES = 160 };

struct safetensors {
    struct file_map map;
    const uint8_t *base; /* (bytes): map's, or the caller's */
    uint64_t bytes;
    char *path;
    struct safetensor *tensors; /* (n), in the header's order */
    const struct safetensor **by_name;
    uint64_t n;
};

struct reader {
    safetensors *s;
    struct json_scan json;
    uint64_t data_bytes;
    const uint8_t *data;
    uint64_t capacity; /* of s->tensors */
    err *e;
};

static const struct {
    const char *name;
    uint32_t bits;
    enum safetensors_type type;
} types[] = {
    {"F32", 32, ST_F32},          {"F16", 16, ST_F16},
    {"BF16", 16, ST_BF16},        {"U8", 8, ST_U8},
    {"BOOL", 8, ST_OTHER},        {"I8", 8, ST_I8},
    {"I16", 16, ST_OTHER},        {"U16", 16, ST_OTHER},
    {"I32", 32, ST_I32},          {"U32", 32, ST_OTHER},
    {"I64", 64, ST_I64},          {"U64", 64, ST_OTHER},
    {"F64", 64, ST_OTHER},        {"C64", 64, ST_OTHER},
    {"F8_E4M3", 8, ST_F8_E4M3},   {"F8_E5M2", 8, ST_OTHER},
    {"F8_E8M0", 8, ST_OTHER},     {"F4", 4, ST_OTHER},
    {"F6_E2M3", 6, ST_OTHER},     {"F6_E3M2", 6, ST_OTHER},
    {"F8_E4M3FNUZ", 8, ST_OTHER}, {"F8_E5M2FNUZ", 8, ST_OTHER},
};

static int err_tensor(const struct reader *r, int code, uint64_t offset, const gguf_str *name,
                      const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* "FILE: offset N: tensor 'NAME': what"; of a long path only its end. */
static int err_tensor(const struct reader *r, int code, uint64_t offset, const gguf_str *name,
                      const char *fmt, ...) {
    char what[160], shown[GGUF_NAME_SHOWN_BYTES + 4] = "";
    const char *path = r->s->path;
    size_t n = strlen(path);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (name) gguf_show_name(shown, *name);
    bool cut = n > PATH_SHOWN_BYTES;
    return err_set(r->e, code, "%s%s: offset %" PRIu64 ": %s%s%s%s", cut ? "..." : "",
                   cut ? path + n - PATH_SHOWN_BYTES : path, offset, name ? "tensor '" : "header",
                   shown, name ? "': " : ": ", what);
}

static uint64_t json_offset(const struct reader *r) {
    return LENGTH_BYTES + r->json.pos;
}

static int err_expected(const struct reader *r, const gguf_str *name, const char *wanted) {
    return err_tensor(r, ERR_FORMAT, json_offset(r), name, "expected %s here", wanted);
}

static bool str_equals(gguf_str s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static int read_type(struct reader *r, struct safetensor *t, uint32_t *bits) {
    gguf_str name;
    char shown[GGUF_NAME_SHOWN_BYTES + 4];
    if (json_scan_name(&r->json, &name.data, &name.len))
        return err_expected(r, &t->name, "a dtype");
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (str_equals(name, types[i].name)) {
            t->type = types[i].type;
            t->type_name = types[i].name;
            *bits = types[i].bits;
            return 0;
        }
    gguf_show_name(shown, name);
    return err_tensor(r, ERR_UNSUPPORTED, json_offset(r), &t->name, "dtype '%s' is not supported",
                      shown);
}

static int read_shape(struct reader *r, struct safetensor *t) {
    bool first = true, more;
    t->n_dims = 0;
    t->n_elems = 1;
    for (;;) {
        if (json_scan_next(&r->json, "[]", &first, &more))
            return err_expected(r, &t->name, "a list of dimensions");
        if (!more) return 0;
        if (t->n_dims == SAFETENSORS_MAX_DIMS)
            return err_tensor(r, ERR_FORMAT, json_offset(r), &t->name, "more than %d dimensions",
                              SAFETENSORS_MAX_DIMS);
        uint64_t *dim = &t->dims[t->n_dims++];
        if (json_scan_u64(&r->json, dim)) return err_expected(r, &t->name, "a dimension");
        if (!mem_mul(t->n_elems, *dim, &t->n_elems) || t->n_elems > INT64_MAX)
            return err_tensor(r, ERR_FORMAT, json_offset(r), &t->name,
                              "its shape has too many elements");
    }
}

static int read_offsets(struct reader *r, const struct safetensor *t, uint64_t offsets[2]) {
    bool first = true, more;
    for (int i = 0; i < 3; i++) {
        if (json_scan_next(&r->json, "[]", &first, &more) || more != (i < 2) ||
            (more && json_scan_u64(&r->json, &offsets[i])))
            return err_expected(r, &t->name, "two offsets");
    }
    return 0;
}

/* The members of one tensor; each may occur once. */
static int read_members(struct reader *r, struct safetensor *t, uint32_t *bits,
                        uint64_t offsets[2]) {
    unsigned seen = 0;
    bool first = true, more;
    gguf_str key;
    for (;;) {
        if (json_scan_next(&r->json, "{}", &first, &more))
            return err_expected(r, &t->name, "an object");
        if (!more) break;
        if (json_scan_name(&r->json, &key.data, &key.len) || json_scan_take(&r->json, ':'))
            return err_expected(r, &t->name, "a member");
        unsigned bit = str_equals(key, "dtype")          ? 1
                       : str_equals(key, "shape")        ? 2
                       : str_equals(key, "data_offsets") ? 4
                                                         : 0;
        if (seen & bit) return err_expected(r, &t->name, "each member once");
        seen |= bit;
        int rc = 0;
        if (bit == 1)
            rc = read_type(r, t, bits);
        else if (bit == 2)
            rc = read_shape(r, t);
        else if (bit == 4)
            rc = read_offsets(r, t, offsets);
        else if (json_scan_skip(&r->json))
            rc = err_expected(r, &t->name, "a value");
        if (rc) return rc;
    }
    return seen == 7 ? 0 : err_expected(r, &t->name, "dtype, shape and data_offsets");
}

static int read_tensor(struct reader *r, struct safetensor *t) {
    uint64_t start = json_offset(r), offsets[2] = {0}, n_bits;
    uint32_t bits = 0;
    int rc = read_members(r, t, &bits, offsets);
    if (rc) return rc;
    if (offsets[0] > offsets[1] || offsets[1] > r->data_bytes)
        return err_tensor(r, ERR_FORMAT, start, &t->name,
                          "data_offsets %" PRIu64 "..%" PRIu64 " are not a range of the %" PRIu64
                          " bytes of data",
                          offsets[0], offsets[1], r->data_bytes);
    t->data = r->data + offsets[0];
    t->bytes = offsets[1] - offsets[0];
    if (!mem_mul(t->n_elems, bits, &n_bits) || n_bits % 8 || n_bits / 8 != t->bytes)
        return err_tensor(r, ERR_FORMAT, start, &t->name,
                          "has %" PRIu64 " bytes of data, expected those of %" PRIu64
                          " elements of %s",
                          t->bytes, t->n_elems, t->type_name);
    return 0;
}

static int add_tensor(struct reader *r, gguf_str name) {
    safetensors *s = r->s;
    if (s->n == r->capacity) {
        uint64_t capacity = r->capacity ? r->capacity * 2 : 64;
        struct safetensor *grown = mem_resize(s->tensors, capacity, sizeof *grown);
        if (!grown) return err_no_memory(r->e);
        s->tensors = grown;
        r->capacity = capacity;
    }
    struct safetensor *t = &s->tensors[s->n];
    memset(t, 0, sizeof *t);
    t->name = name;
    if (name.len == 0 || name.len > GGUF_NAME_MAX_BYTES)
        return err_tensor(r, ERR_FORMAT, json_offset(r), NULL,
                          "a name has %" PRIu64 " bytes, expected 1 to %d", name.len,
                          GGUF_NAME_MAX_BYTES);
    s->n++;
    return read_tensor(r, t);
}

static int read_header(struct reader *r) {
    bool first = true, more;
    gguf_str name;
    for (;;) {
        if (json_scan_next(&r->json, "{}", &first, &more))
            return err_expected(r, NULL, "an object");
        if (!more) break;
        if (json_scan_name(&r->json, &name.data, &name.len) || json_scan_take(&r->json, ':'))
            return err_expected(r, NULL, "a tensor's name, without escapes");
        if (str_equals(name, "__metadata__")) {
            if (json_scan_skip(&r->json)) return err_expected(r, NULL, "metadata");
            continue;
        }
        int rc = add_tensor(r, name);
        if (rc) return rc;
    }
    json_scan_peek(&r->json);
    return r->json.pos == r->json.n ? 0 : err_expected(r, NULL, "the header's end");
}

static int compare_names(const void *a, const void *b) {
    const struct safetensor *const *x = a, *const *y = b;
    return gguf_str_compare((*x)->name, (*y)->name);
}

/* By address; empty tensors first, because one may lie where another begins. */
static int compare_data(const void *a, const void *b) {
    const struct safetensor *const *x = a, *const *y = b;
    if ((*x)->data != (*y)->data) return (*x)->data < (*y)->data ? -1 : 1;
    return (*x)->bytes < (*y)->bytes ? -1 : (*x)->bytes > (*y)->bytes;
}

static int index_tensors(struct reader *r) {
    safetensors *s = r->s;
    char shown[GGUF_NAME_SHOWN_BYTES + 4];
    s->by_name = mem_new(s->n, sizeof *s->by_name);
    if (!s->by_name) return err_no_memory(r->e);
    for (uint64_t i = 0; i < s->n; i++)
        s->by_name[i] = &s->tensors[i];
    if (s->n) qsort(s->by_name, s->n, sizeof *s->by_name, compare_data);
    for (uint64_t i = 1; i < s->n; i++) {
        const struct safetensor *a = s->by_name[i - 1], *b = s->by_name[i];
        gguf_show_name(shown, a->name);
        if (a->bytes > (uint64_t)(b->data - a->data))
            return err_tensor(r, ERR_FORMAT, (uint64_t)(b->data - s->base), &b->name,
                              "its data overlaps that of '%s'", shown);
    }
    if (s->n) qsort(s->by_name, s->n, sizeof *s->by_name, compare_names);
    for (uint64_t i = 1; i < s->n; i++)
        if (!compare_names(&s->by_name[i - 1], &s->by_name[i]))
            return err_tensor(r, ERR_FORMAT,
                              (uint64_t)((const uint8_t *)s->by_name[i]->name.data - s->base),
                              &s->by_name[i]->name, "another tensor has the same name");
    return 0;
}

static int read_file(safetensors *s, err *e) {
    struct reader r = {.s = s, .e = e};
    uint64_t n;
    if (s->bytes < LENGTH_BYTES)
        return err_tensor(&r, ERR_FORMAT, 0, NULL,
                          "not a safetensors file: it has %" PRIu64 " bytes", s->bytes);
    memcpy(&n, s->base, sizeof n);
    if (n > s->bytes - LENGTH_BYTES || n > SAFETENSORS_HEADER_MAX_BYTES)
        return err_tensor(&r, ERR_FORMAT, 0, NULL,
                          "the header's length is %" PRIu64 " in a file of %" PRIu64 " bytes", n,
                          s->bytes);
    r.json.text = (const char *)s->base + LENGTH_BYTES;
    r.json.n = n;
    r.data = s->base + LENGTH_BYTES + n;
    r.data_bytes = s->bytes - LENGTH_BYTES - n;
    int rc = read_header(&r);
    return rc ? rc : index_tensors(&r);
}

static safetensors *new_file(const char *path, err *e) {
    safetensors *s = mem_new(1, sizeof *s);
    if (s) s->path = mem_strdup(path);
    if (s && s->path) return s;
    safetensors_close(s);
    err_no_memory(e);
    return NULL;
}

static int finish_open(safetensors *s, int rc, safetensors **out, err *e) {
    if (!rc) rc = read_file(s, e);
    if (rc)
        safetensors_close(s);
    else
        *out = s;
    return rc;
}

int safetensors_open(const char *path, safetensors **out, err *e) {
    *out = NULL;
    safetensors *s = new_file(path, e);
    if (!s) return ERR_NOMEM;
    int rc = file_map_open(path, &s->map, e);
    s->base = s->map.base;
    s->bytes = s->map.bytes;
    return finish_open(s, rc, out, e);
}

int safetensors_open_memory(const void *bytes, uint64_t n, const char *name, safetensors **out,
                            err *e) {
    *out = NULL;
    safetensors *s = new_file(name, e);
    if (!s) return ERR_NOMEM;
    s->base = bytes;
    s->bytes = n;
    return finish_open(s, 0, out, e);
}

void safetensors_close(safetensors *s) {
    if (!s) return;
    file_map_close(&s->map);
    free(s->by_name);
    free(s->tensors);
    free(s->path);
    free(s);
}

const char *safetensors_path(const safetensors *s) {
    return s->path;
}

uint64_t safetensors_bytes(const safetensors *s) {
    return s->bytes;
}

const struct file_map *safetensors_map(const safetensors *s) {
    return &s->map;
}

void safetensors_drop_pages(const safetensors *s) {
    file_map_drop_pages(&s->map);
}

uint64_t safetensors_n(const safetensors *s) {
    return s->n;
}

const struct safetensor *safetensors_at(const safetensors *s, uint64_t i) {
    return i < s->n ? &s->tensors[i] : NULL;
}

const struct safetensor *safetensors_find(const safetensors *s, gguf_str name) {
    struct safetensor wanted = {.name = name};
    const struct safetensor *key = &wanted;
    if (!s->n) return NULL;
    const struct safetensor **found =
        bsearch(&key, s->by_name, s->n, sizeof *s->by_name, compare_names);
    return found ? *found : NULL;
}
