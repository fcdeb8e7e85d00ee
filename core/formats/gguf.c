/* gguf.c - reads GGUF v2/v3. Owns the mapping and the index over it; never trusts a byte of the
 * file and never writes to it. Opened on any one thread, then read-only.
 *
 * The file, all little-endian (ggml docs/gguf.md):
 *   "GGUF" | u32 version | u64 n_tensors | u64 n_keys
 *   n_keys    x  string key | u32 type | value
 *   n_tensors x  string name | u32 n_dims | u64 dims[n_dims] | u32 type | u64 offset
 *   padding to general.alignment, then the data section: offsets count from here
 * A string is u64 length | bytes.
 *
 * A file that is truncated while it is mapped raises SIGBUS at the next touch of the lost pages.
 * The mapping cannot prevent that: whoever opens a model must not let its file change in place,
 * and the registry compares size and time with what was registered before a load. */
#include "core/formats/gguf_int.h"

#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF values are read in place");

enum {
    KEY_MIN_BYTES = 8 + 4 + 1,            /* empty key, type, smallest value */
    TENSOR_MIN_BYTES = 8 + 4 + 8 + 4 + 8, /* empty name, one dimension */
    PATH_SHOWN_BYTES = 160,
    FIELD_BYTES = 128,
    NAME_SHOWN_BYTES = 64
};

struct gguf {
    const uint8_t *base; /* (bytes) */
    uint64_t bytes;
    bool mapped;
    char *path;
    uint32_t version;
    uint64_t n_keys, n_tensors;
    struct gguf_kv *keys;                /* (n_keys) in file order */
    const struct gguf_kv **keys_by_name; /* (n_keys) sorted */
    gguf_tensor *tensors;                /* (n_tensors) in file order */
    const gguf_tensor **tensors_by_name; /* (n_tensors) sorted */
};

/* The place where reading stands. pos <= g->bytes always. */
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

static const char *type_name(enum gguf_type type) {
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return (size_t)type < sizeof names / sizeof names[0] ? names[type] : "unknown";
}

/* A name from the file, fit for an error line: printable ASCII, cut. */
static void show_name(char out[NAME_SHOWN_BYTES + 4], gguf_str name) {
    uint64_t n = name.len < NAME_SHOWN_BYTES ? name.len : NAME_SHOWN_BYTES;
    for (uint64_t i = 0; i < n; i++) {
        char c = name.data[i];
        out[i] = '?';
        if (c >= ' ' && c <= '~') out[i] = c;
    }
    strcpy(out + n, n < name.len ? "..." : "");
}

static int fail(const struct cursor *c, int code, uint64_t offset, const char *field,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* "FILE: offset N: field: what", the end of a long path only. */
static int fail(const struct cursor *c, int code, uint64_t offset, const char *field,
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

static int no_memory(const struct cursor *c) {
    return err_set(c->e, ERR_NOMEM, "%s: no memory for the file's index", c->g->path);
}

static uint64_t left(const struct cursor *c) {
    return c->g->bytes - c->pos;
}

/* Moves over n bytes and returns where they begin, or NULL with e set (ERR_FORMAT). */
static const uint8_t *take(struct cursor *c, uint64_t n, const char *field) {
    if (n > left(c)) {
        fail(c, ERR_FORMAT, c->pos, field, "needs %" PRIu64 " bytes, %" PRIu64 " are left", n,
             left(c));
        return NULL;
    }
    const uint8_t *p = c->g->base + c->pos;
    c->pos += n;
    return p;
}

static int take_u32(struct cursor *c, const char *field, uint32_t *v) {
    const uint8_t *p = take(c, sizeof *v, field);
    if (!p) return ERR_FORMAT;
    memcpy(v, p, sizeof *v);
    return 0;
}

static int take_u64(struct cursor *c, const char *field, uint64_t *v) {
    const uint8_t *p = take(c, sizeof *v, field);
    if (!p) return ERR_FORMAT;
    memcpy(v, p, sizeof *v);
    return 0;
}

static int take_str(struct cursor *c, const char *field, gguf_str *s) {
    uint64_t at = c->pos;
    int rc = take_u64(c, field, &s->len);
    if (rc) return rc;
    if (s->len > left(c))
        return fail(c, ERR_FORMAT, at, field, "length %" PRIu64 ", %" PRIu64 " bytes are left",
                    s->len, left(c));
    s->data = (const char *)take(c, s->len, field);
    return 0;
}

static int take_name(struct cursor *c, const char *field, gguf_str *s) {
    uint64_t at = c->pos;
    int rc = take_str(c, field, s);
    if (rc) return rc;
    if (s->len == 0 || s->len > GGUF_NAME_MAX_BYTES)
        return fail(c, ERR_FORMAT, at, field, "length %" PRIu64 " (1..%d allowed)", s->len,
                    GGUF_NAME_MAX_BYTES);
    if (memchr(s->data, 0, s->len)) return fail(c, ERR_FORMAT, at, field, "holds a NUL byte");
    return 0;
}

static int check_bools(struct cursor *c, uint64_t at, uint64_t n, const char *field) {
    for (uint64_t i = 0; i < n; i++)
        if (c->g->base[at + i] > 1)
            return fail(c, ERR_FORMAT, at + i, field, "bool is %u", c->g->base[at + i]);
    return 0;
}

/* The strings of an array have no fixed stride, so each one's place is kept: 8 bytes of index for
 * at least 8 bytes of file. */
static int read_str_array(struct cursor *c, struct gguf_kv *kv, uint64_t at, const char *field) {
    if (kv->n > left(c) / 8)
        return fail(c, ERR_FORMAT, at, field, "%" PRIu64 " strings, %" PRIu64 " bytes are left",
                    kv->n, left(c));
    kv->str_offsets = mem_new(kv->n, sizeof *kv->str_offsets);
    if (!kv->str_offsets) return no_memory(c);
    for (uint64_t i = 0; i < kv->n; i++) {
        gguf_str s;
        kv->str_offsets[i] = c->pos;
        int rc = take_str(c, field, &s);
        if (rc) return rc;
    }
    return 0;
}

static int read_array(struct cursor *c, struct gguf_kv *kv, const char *field) {
    uint64_t at = c->pos;
    uint32_t elem;
    int rc = take_u32(c, field, &elem);
    if (!rc) rc = take_u64(c, field, &kv->n);
    if (rc) return rc;
    if (elem == GGUF_ARRAY)
        return fail(c, ERR_UNSUPPORTED, at, field, "arrays of arrays are not supported");
    kv->elem = (enum gguf_type)elem;
    if (elem == GGUF_STRING) return read_str_array(c, kv, at + 4, field);
    uint32_t size = gguf_scalar_bytes(elem);
    if (!size) return fail(c, ERR_FORMAT, at, field, "array of unknown type %" PRIu32, elem);
    if (kv->n > left(c) / size)
        return fail(c, ERR_FORMAT, at + 4, field,
                    "%" PRIu64 " elements of %s, %" PRIu64 " bytes are left", kv->n,
                    type_name(kv->elem), left(c));
    uint64_t data = c->pos;
    if (!take(c, kv->n * size, field)) return ERR_FORMAT;
    return elem == GGUF_BOOL ? check_bools(c, data, kv->n, field) : 0;
}

static int read_key(struct cursor *c, uint64_t index) {
    struct gguf_kv *kv = &c->g->keys[index];
    char field[FIELD_BYTES], name[NAME_SHOWN_BYTES + 4];
    uint32_t type;
    snprintf(field, sizeof field, "key %" PRIu64, index);
    int rc = take_name(c, field, &kv->key);
    if (rc) return rc;
    show_name(name, kv->key);
    snprintf(field, sizeof field, "key '%s'", name);
    uint64_t at = c->pos;
    rc = take_u32(c, field, &type);
    if (rc) return rc;
    if (type > GGUF_F64) return fail(c, ERR_FORMAT, at, field, "unknown value type %" PRIu32, type);
    kv->type = (enum gguf_type)type;
    uint64_t value = c->pos;
    kv->value = c->g->base + value;
    gguf_str s;
    if (type == GGUF_STRING)
        rc = take_str(c, field, &s);
    else if (type == GGUF_ARRAY)
        rc = read_array(c, kv, field);
    else if (!take(c, gguf_scalar_bytes(type), field))
        rc = ERR_FORMAT;
    if (!rc && type == GGUF_BOOL) rc = check_bools(c, value, 1, field);
    kv->value_bytes = c->pos - value;
    return rc;
}

static int compare_str(gguf_str a, gguf_str b) {
    uint64_t n = a.len < b.len ? a.len : b.len;
    int order = n ? memcmp(a.data, b.data, n) : 0;
    if (order) return order;
    return a.len < b.len ? -1 : a.len > b.len;
}

static int compare_keys(const void *a, const void *b) {
    const struct gguf_kv *const *x = a, *const *y = b;
    return compare_str((*x)->key, (*y)->key);
}

static int compare_names(const void *a, const void *b) {
    const gguf_tensor *const *x = a, *const *y = b;
    return compare_str((*x)->name, (*y)->name);
}

static int compare_places(const void *a, const void *b) {
    const gguf_tensor *const *x = a, *const *y = b;
    uintptr_t p = (uintptr_t)(*x)->data, q = (uintptr_t)(*y)->data;
    return p < q ? -1 : p > q;
}

static uint64_t offset_of(const gguf *g, const void *p) {
    return (uint64_t)((const uint8_t *)p - g->base);
}

static int read_keys(struct cursor *c) {
    gguf *g = c->g;
    char name[NAME_SHOWN_BYTES + 4];
    g->keys = mem_new(g->n_keys, sizeof *g->keys);
    g->keys_by_name = mem_new(g->n_keys, sizeof *g->keys_by_name);
    if (!g->keys || !g->keys_by_name) return no_memory(c);
    for (uint64_t i = 0; i < g->n_keys; i++) {
        int rc = read_key(c, i);
        if (rc) return rc;
        g->keys_by_name[i] = &g->keys[i];
    }
    qsort(g->keys_by_name, g->n_keys, sizeof *g->keys_by_name, compare_keys);
    for (uint64_t i = 1; i < g->n_keys; i++) {
        const struct gguf_kv *kv = g->keys_by_name[i];
        if (compare_str(g->keys_by_name[i - 1]->key, kv->key)) continue;
        show_name(name, kv->key);
        return fail(c, ERR_FORMAT, offset_of(g, kv->key.data), "key", "'%s' is there twice", name);
    }
    return 0;
}

/* Reads one tensor's shape into t; its size is known afterwards if its type is. */
static int read_shape(struct cursor *c, gguf_tensor *t, const char *field) {
    uint64_t at = c->pos;
    int rc = take_u32(c, field, &t->n_dims);
    if (rc) return rc;
    if (t->n_dims < 1 || t->n_dims > 4)
        return fail(c, ERR_FORMAT, at, field, "%" PRIu32 " dimensions (1..4 allowed)", t->n_dims);
    t->n_elems = 1;
    for (int d = 0; d < 4; d++) {
        t->dims[d] = 1;
        if ((uint32_t)d >= t->n_dims) continue;
        at = c->pos;
        rc = take_u64(c, field, &t->dims[d]);
        if (rc) return rc;
        /* int64 is what every consumer may count in. */
        if (t->dims[d] == 0 || !mem_mul(t->n_elems, t->dims[d], &t->n_elems) ||
            t->n_elems > INT64_MAX)
            return fail(c, ERR_FORMAT, at, field,
                        "dimension %d of %" PRIu64 " makes an impossible size", d, t->dims[d]);
    }
    return 0;
}

/* t->data is still the offset into the data section: where that begins is known only after the
 * last tensor's description. */
static int read_tensor(struct cursor *c, uint64_t index, uint64_t *offset) {
    gguf_tensor *t = &c->g->tensors[index];
    char field[FIELD_BYTES], name[NAME_SHOWN_BYTES + 4];
    uint32_t type;
    snprintf(field, sizeof field, "tensor %" PRIu64, index);
    int rc = take_name(c, field, &t->name);
    if (rc) return rc;
    show_name(name, t->name);
    snprintf(field, sizeof field, "tensor '%s'", name);
    rc = read_shape(c, t, field);
    if (rc) return rc;
    uint64_t at = c->pos;
    rc = take_u32(c, field, &type);
    if (rc) return rc;
    t->type = type <= INT32_MAX ? (int)type : -1;
    if (!qtype_find(t->type)) {
        if (!(c->flags & GGUF_OPEN_VOCAB_ONLY))
            return fail(c, ERR_UNSUPPORTED, at, field,
                        "tensor type %" PRIu32 " is not supported by this build", type);
    } else if (!qtype_bytes(t->type, t->n_elems / t->dims[0], t->dims[0], &t->bytes)) {
        return fail(c, ERR_FORMAT, at, field, "rows of %" PRIu64 " elements do not fit type %s",
                    t->dims[0], qtype_name(t->type));
    }
    return take_u64(c, field, offset);
}

static int read_alignment(struct cursor *c, uint64_t *alignment) {
    const char *key = "general.alignment";
    *alignment = GGUF_ALIGNMENT_DEFAULT;
    if (!gguf_has(c->g, key)) return 0;
    int rc = gguf_get_u64(c->g, key, alignment, c->e);
    if (rc) return rc;
    if (*alignment < GGUF_ALIGNMENT_MIN || *alignment > GGUF_ALIGNMENT_MAX ||
        (*alignment & (*alignment - 1)))
        return fail(c, ERR_FORMAT, c->pos, key, "%" PRIu64 " is no power of two in %d..%d",
                    *alignment, GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX);
    return 0;
}

/* Gives every tensor its place and refuses those that are misaligned, outside or shared. */
static int place_tensors(struct cursor *c, const uint64_t *offsets) {
    gguf *g = c->g;
    char field[FIELD_BYTES], name[NAME_SHOWN_BYTES + 4];
    uint64_t alignment, padded;
    int rc = read_alignment(c, &alignment);
    if (rc || !g->n_tensors) return rc;
    if (!mem_add(c->pos, alignment - 1, &padded) || (padded &= ~(alignment - 1)) > g->bytes)
        return fail(c, ERR_FORMAT, c->pos, "data section", "begins after the end of the file");
    uint64_t room = g->bytes - padded;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        gguf_tensor *t = &g->tensors[i];
        show_name(name, t->name);
        snprintf(field, sizeof field, "tensor '%s'", name);
        if (offsets[i] % alignment)
            return fail(c, ERR_FORMAT, offset_of(g, t->name.data), field,
                        "data offset %" PRIu64 " is no multiple of the alignment %" PRIu64,
                        offsets[i], alignment);
        if (offsets[i] > room || t->bytes > room - offsets[i])
            return fail(c, ERR_FORMAT, offset_of(g, t->name.data), field,
                        "%" PRIu64 " bytes of data at data offset %" PRIu64
                        " are beyond the data section's %" PRIu64,
                        t->bytes, offsets[i], room);
        t->data = g->base + padded + offsets[i];
        g->tensors_by_name[i] = t;
    }
    qsort(g->tensors_by_name, g->n_tensors, sizeof *g->tensors_by_name, compare_places);
    for (uint64_t i = 1; i < g->n_tensors; i++) {
        const gguf_tensor *a = g->tensors_by_name[i - 1], *b = g->tensors_by_name[i];
        bool known = qtype_find(a->type) && qtype_find(b->type);
        if (!known || a->bytes <= (uint64_t)((const uint8_t *)b->data - (const uint8_t *)a->data))
            continue;
        show_name(name, b->name);
        snprintf(field, sizeof field, "tensor '%s'", name);
        show_name(name, a->name);
        return fail(c, ERR_FORMAT, offset_of(g, b->data), field, "data overlap those of '%s'",
                    name);
    }
    return 0;
}

static int index_tensors(struct cursor *c) {
    gguf *g = c->g;
    char name[NAME_SHOWN_BYTES + 4];
    qsort(g->tensors_by_name, g->n_tensors, sizeof *g->tensors_by_name, compare_names);
    for (uint64_t i = 1; i < g->n_tensors; i++) {
        const gguf_tensor *t = g->tensors_by_name[i];
        if (compare_str(g->tensors_by_name[i - 1]->name, t->name)) continue;
        show_name(name, t->name);
        return fail(c, ERR_FORMAT, offset_of(g, t->name.data), "tensor", "'%s' is there twice",
                    name);
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
    int rc = offsets && g->tensors && g->tensors_by_name ? 0 : no_memory(c);
    for (uint64_t i = 0; !rc && i < g->n_tensors; i++)
        rc = read_tensor(c, i, &offsets[i]);
    if (!rc) rc = place_tensors(c, offsets);
    if (!rc) rc = index_tensors(c);
    free(offsets);
    return rc;
}

static int read_header(struct cursor *c) {
    gguf *g = c->g;
    const uint8_t *magic = take(c, 4, "magic");
    if (!magic) return ERR_FORMAT;
    if (memcmp(magic, "GGUF", 4)) return fail(c, ERR_FORMAT, 0, "magic", "not a GGUF file");
    int rc = take_u32(c, "version", &g->version);
    if (rc) return rc;
    if (g->version && !(g->version & 0xffff))
        return fail(c, ERR_UNSUPPORTED, 4, "version", "big-endian files are not supported");
    if (g->version < GGUF_VERSION_MIN || g->version > GGUF_VERSION_MAX)
        return fail(c, ERR_UNSUPPORTED, 4, "version", "GGUF version %" PRIu32 " (%d and %d are)",
                    g->version, GGUF_VERSION_MIN, GGUF_VERSION_MAX);
    rc = take_u64(c, "tensor count", &g->n_tensors);
    if (!rc) rc = take_u64(c, "key count", &g->n_keys);
    if (rc) return rc;
    if (g->n_tensors > GGUF_TENSORS_MAX || g->n_tensors > left(c) / TENSOR_MIN_BYTES)
        return fail(c, ERR_FORMAT, 8, "tensor count",
                    "%" PRIu64 " tensors in a file of %" PRIu64 " bytes", g->n_tensors, g->bytes);
    if (g->n_keys > GGUF_KEYS_MAX || g->n_keys > left(c) / KEY_MIN_BYTES)
        return fail(c, ERR_FORMAT, 16, "key count",
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
    err_set(e, ERR_NOMEM, "%s: no memory to open it", path);
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

/* O_NONBLOCK: a FIFO in place of the file must not hold up the opener. */
static int map_file(gguf *g, err *e) {
    struct stat st;
    int rc = 0;
    int fd = open(g->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return err_set(e, ERR_IO, "%s: cannot open: %s", g->path, strerror(errno));
    if (fstat(fd, &st)) {
        rc = err_set(e, ERR_IO, "%s: cannot stat: %s", g->path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, ERR_IO, "%s: not a regular file", g->path);
    } else if (st.st_size == 0) {
        rc = err_set(e, ERR_FORMAT, "%s: offset 0: magic: the file is empty", g->path);
    } else if ((uint64_t)st.st_size > SIZE_MAX) {
        rc = err_set(e, ERR_UNSUPPORTED, "%s: too large for this machine's addresses", g->path);
    } else {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            rc = err_set(e, ERR_IO, "%s: cannot map: %s", g->path, strerror(errno));
        } else {
            g->base = p;
            g->bytes = (uint64_t)st.st_size;
            g->mapped = true;
        }
    }
    close(fd);
    return rc;
}

int gguf_open(const char *path, int flags, gguf **out, err *e) {
    *out = NULL;
    gguf *g = new_gguf(path, e);
    if (!g) return ERR_NOMEM;
    int rc = map_file(g, e);
    if (!rc) return open_bytes(g, flags, out, e);
    gguf_close(g);
    return rc;
}

void gguf_close(gguf *g) {
    if (!g) return;
    for (uint64_t i = 0; g->keys && i < g->n_keys; i++)
        free(g->keys[i].str_offsets);
    free(g->tensors_by_name);
    free(g->tensors);
    free(g->keys_by_name);
    free(g->keys);
    if (g->mapped) munmap((void *)(uintptr_t)g->base, (size_t)g->bytes);
    free(g->path);
    free(g);
}

void gguf_drop_pages(const gguf *g) {
    if (g->mapped) madvise((void *)(uintptr_t)g->base, (size_t)g->bytes, MADV_DONTNEED);
}

uint32_t gguf_version(const gguf *g) {
    return g->version;
}

const char *gguf_path(const gguf *g) {
    return g->path;
}

uint64_t gguf_file_bytes(const gguf *g) {
    return g->bytes;
}

const void *gguf_mapping(const gguf *g) {
    return g->base;
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
    const gguf_tensor **found =
        bsearch(&key, g->tensors_by_name, g->n_tensors, sizeof *g->tensors_by_name, compare_names);
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
        bsearch(&k, g->keys_by_name, g->n_keys, sizeof *g->keys_by_name, compare_keys);
    return found ? *found : NULL;
}

int gguf_tensor_read(const gguf *g, const gguf_tensor *t, uint64_t offset, uint64_t n, void *dst,
                     err *e) {
    if (!t->data || offset > t->bytes || n > t->bytes - offset)
        return err_set(e, ERR_INVALID, "%s: %llu bytes at %llu are not inside the tensor", g->path,
                       (unsigned long long)n, (unsigned long long)offset);
    memcpy(dst, (const char *)t->data + offset, n);
    return 0;
}

bool gguf_has(const gguf *g, const char *key) {
    return find_key(g, key) != NULL;
}

static int wrong_type(const gguf *g, const struct gguf_kv *kv, const char *key, const char *want,
                      err *e) {
    if (!kv) return err_set(e, ERR_NOT_FOUND, "%s: no key '%s'", g->path, key);
    return err_set(e, ERR_FORMAT, "%s: offset %" PRIu64 ": key '%s': %s is wanted, the value is %s",
                   g->path, offset_of(g, kv->value), key, want, type_name(kv->type));
}

/* One number of any type, as widest integer or as double. is_unsigned says that u holds it. */
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
    if (!v.is_int) return wrong_type(g, kv, key, "an integer", e);
    if (!v.is_unsigned && v.i < 0) return wrong_type(g, kv, key, "a number from 0 on", e);
    *value = v.is_unsigned ? v.u : (uint64_t)v.i;
    return 0;
}

int gguf_get_i64(const gguf *g, const char *key, int64_t *value, err *e) {
    const struct gguf_kv *kv = find_key(g, key);
    struct number v = {0};
    if (kv) v = load_number(kv->type, kv->value);
    if (!v.is_int) return wrong_type(g, kv, key, "an integer", e);
    if (v.is_unsigned && v.u > INT64_MAX) return wrong_type(g, kv, key, "a number below 2^63", e);
    *value = v.is_unsigned ? (int64_t)v.u : v.i;
    return 0;
}

int gguf_get_f64(const gguf *g, const char *key, double *value, err *e) {
    const struct gguf_kv *kv = find_key(g, key);
    struct number v = {0};
    if (kv) v = load_number(kv->type, kv->value);
    if (!v.is_float) return wrong_type(g, kv, key, "a floating-point number", e);
    *value = v.f;
    return 0;
}

int gguf_get_bool(const gguf *g, const char *key, bool *value, err *e) {
    const struct gguf_kv *kv = find_key(g, key);
    if (!kv || kv->type != GGUF_BOOL) return wrong_type(g, kv, key, "a bool", e);
    *value = kv->value[0] != 0;
    return 0;
}

static gguf_str str_at(const uint8_t *p) {
    gguf_str s = {(const char *)p + 8, LOAD(uint64_t, p)};
    return s;
}

int gguf_get_str(const gguf *g, const char *key, gguf_str *value, err *e) {
    const struct gguf_kv *kv = find_key(g, key);
    if (!kv || kv->type != GGUF_STRING) return wrong_type(g, kv, key, "a string", e);
    *value = str_at(kv->value);
    return 0;
}

int gguf_get_array(const gguf *g, const char *key, enum gguf_type *elem, uint64_t *n, err *e) {
    const struct gguf_kv *kv = find_key(g, key);
    if (!kv || kv->type != GGUF_ARRAY) return wrong_type(g, kv, key, "an array", e);
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
