/* manifest.c - manifests of model files: printed, read, and keys made of them again. */
#include "tests/support/manifest.h"

#include "core/formats/gguf/gguf_int.h"
#include "tests/support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- printing ---- */

static uint64_t hash_bytes(const uint8_t *p, uint64_t n) { /* FNV-1a */
    uint64_t h = 0xcbf29ce484222325U;
    for (uint64_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3U;
    return h;
}

static void print_value(FILE *f, enum gguf_type type, const uint8_t *p) {
    const uint32_t n = gguf_scalar_bytes(type);
    uint64_t bits = 0;
    float f32;
    double f64;
    memcpy(&bits, p, n);
    switch (type) {
    case GGUF_F32:
        memcpy(&f32, p, sizeof f32);
        fprintf(f, " %.9g", (double)f32);
        break;
    case GGUF_F64:
        memcpy(&f64, p, sizeof f64);
        fprintf(f, " %.17g", f64);
        break;
    default:
        fprintf(f, " %lld", (long long)(bits << (64 - 8 * n)) >> (64 - 8 * n));
    }
}

static void print_key(FILE *f, const struct gguf_kv *kv) {
    const bool array = kv->type == GGUF_ARRAY;
    const enum gguf_type type = array ? kv->elem : kv->type;
    const uint64_t n = array ? kv->n : 1;
    const uint8_t *p = kv->value + (array ? GGUF_ARRAY_HEAD_BYTES : 0);
    fprintf(f, "%.*s %s%s", (int)kv->key.len, kv->key.data, gguf_type_name(type), array ? "s" : "");
    for (uint64_t i = 0; i < n; i++) {
        uint64_t len;
        if (type != GGUF_STRING) {
            print_value(f, type, p);
            p += gguf_scalar_bytes(type);
            continue;
        }
        memcpy(&len, p, sizeof len);
        fprintf(f, " %.*s", (int)len, (const char *)p + sizeof len);
        p += sizeof len + len;
    }
    fputc('\n', f);
}

static int print_tensor(FILE *f, const gguf *g, const gguf_tensor *t, err *e) {
    uint32_t n_dims = t->n_dims;
    uint8_t *bytes = malloc(t->bytes);
    int rc = bytes ? gguf_tensor_read(g, t, 0, t->bytes, bytes, e) : err_no_memory(e);
    fprintf(f, "%.*s %s ", (int)t->name.len, t->name.data, qtype_name(t->type));
    while (n_dims > 1 && t->dims[n_dims - 1] == 1)
        n_dims--;
    for (uint32_t d = 0; d < n_dims; d++)
        fprintf(f, "%s%llu", d ? "x" : "", (unsigned long long)t->dims[d]);
    if (!rc) fprintf(f, " %016llx\n", (unsigned long long)hash_bytes(bytes, t->bytes));
    free(bytes);
    return rc;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void split_lines(struct manifest *m) {
    m->n = 0;
    for (char *p = m->text, *end; (end = strchr(p, '\n')) && m->n < MANIFEST_MAX_LINES;
         p = end + 1) {
        *end = 0;
        m->lines[m->n++] = p;
    }
    qsort(m->lines, m->n, sizeof *m->lines, by_text);
}

static bool is_listed(gguf_str key) {
    static const char *const left_out[] = {"general.", "tokenizer."};
    if (gguf_str_compare(key, gguf_str_of("general.architecture")) == 0) return true;
    for (int i = 0; i < 2; i++)
        if (key.len >= strlen(left_out[i]) &&
            memcmp(key.data, left_out[i], strlen(left_out[i])) == 0)
            return false;
    return true;
}

int manifest_of(const gguf *g, struct manifest *m, err *e) {
    size_t n;
    int rc = 0;
    *m = (struct manifest){.text = NULL};
    FILE *f = open_memstream(&m->text, &n);
    if (!f) return err_no_memory(e);
    for (uint64_t i = 0; i < gguf_n_keys(g); i++)
        if (is_listed(gguf_key_at(g, i)->key)) print_key(f, gguf_key_at(g, i));
    for (uint64_t i = 0; i < gguf_n_tensors(g) && !rc; i++)
        rc = print_tensor(f, g, gguf_tensor_at(g, i), e);
    fclose(f);
    split_lines(m);
    return rc;
}

void manifest_read(const char *path, struct manifest *m) {
    *m = (struct manifest){.text = file_read(path, NULL)};
    if (m->text) split_lines(m);
}

void manifest_free(struct manifest *m) {
    free(m->text);
    *m = (struct manifest){.text = NULL};
}

/* ---- keys again ---- */

/* The type that a line names, GGUF_ARRAY with *elem for an array; -1: it is a tensor's line. */
static int type_named(const char *name, size_t n, enum gguf_type *elem) {
    for (int t = GGUF_U8; t <= GGUF_F64; t++) {
        const char *text = gguf_type_name(t);
        const size_t len = strlen(text);
        *elem = t;
        if (n == len && memcmp(name, text, n) == 0) return t;
        if (n == len + 1 && memcmp(name, text, len) == 0 && name[len] == 's') return GGUF_ARRAY;
    }
    return -1;
}

/* Appends the value of one word of n bytes. Returns the bytes written. */
static size_t put_value(enum gguf_type type, const char *word, size_t n, uint8_t *to) {
    const int64_t whole = strtoll(word, NULL, 10);
    const double real = strtod(word, NULL);
    const float f32 = (float)real;
    const uint64_t len = n;
    if (type == GGUF_STRING) {
        memcpy(to, &len, sizeof len);
        memcpy(to + sizeof len, word, n);
        return sizeof len + n;
    }
    const void *from = type == GGUF_F32   ? (const void *)&f32
                       : type == GGUF_F64 ? (const void *)&real
                                          : (const void *)&whole;
    memcpy(to, from, gguf_scalar_bytes(type));
    return gguf_scalar_bytes(type);
}

static int set_key(const char *line, gguf_writer *w, err *e) {
    const size_t n_name = strcspn(line, " ");
    const char *name = line + n_name + 1, *at = name + strcspn(name, " ");
    enum gguf_type elem;
    const int type = type_named(name, (size_t)(at - name), &elem);
    size_t used = type == GGUF_ARRAY ? GGUF_ARRAY_HEAD_BYTES : 0;
    uint64_t n = 0;
    if (type < 0) return 0;
    uint8_t *payload = malloc(8 * strlen(line) + 64);
    if (!payload) return err_no_memory(e);
    while (*at++ == ' ') {
        const size_t len = type == GGUF_STRING ? strlen(at) : strcspn(at, " ");
        used += put_value(elem, at, len, payload + used);
        at += len;
        n++;
    }
    if (type == GGUF_ARRAY) {
        const uint32_t kind = elem;
        memcpy(payload, &kind, sizeof kind);
        memcpy(payload + sizeof kind, &n, sizeof n);
    }
    int rc = gguf_writer_set_raw(w, (gguf_str){line, n_name}, type, payload, used, e);
    free(payload);
    return rc;
}

int manifest_set_keys(const struct manifest *m, gguf_writer *w, err *e) {
    int rc = 0;
    for (size_t i = 0; i < m->n && !rc; i++)
        rc = set_key(m->lines[i], w, e);
    return rc;
}

int manifest_write_file(const struct manifest *m, const gguf *g,
                        int (*add_keys)(void *arg, gguf_writer *w, err *e), void *arg,
                        const char *path, err *e) {
    const uint64_t n = gguf_n_tensors(g);
    gguf_writer *w = gguf_writer_new();
    void **bytes = calloc(n + 1, sizeof *bytes);
    int rc = w && bytes ? manifest_set_keys(m, w, e) : err_no_memory(e);
    if (!rc) rc = add_keys(arg, w, e);
    for (uint64_t i = 0; i < n && !rc; i++) {
        const gguf_tensor *from = gguf_tensor_at(g, i);
        gguf_tensor t = *from;
        t.data = bytes[i] = malloc(t.bytes);
        rc = t.data ? gguf_tensor_read(g, from, 0, t.bytes, bytes[i], e) : err_no_memory(e);
        if (!rc) rc = gguf_writer_add_tensor(w, &t, e);
    }
    if (!rc) rc = gguf_writer_finish(w, path, e);
    for (uint64_t i = 0; i < n && bytes; i++)
        free(bytes[i]);
    free(bytes);
    gguf_writer_free(w);
    return rc;
}
