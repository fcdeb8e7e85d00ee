/* imatrix.c - see imatrix.h. Reads a file through its mapping and copies what it needs. */
#include "core/formats/imatrix.h"

#include "core/base/mem.h"
#include "core/formats/file_map.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUMS_SUFFIX   ".in_sum2"
#define COUNTS_SUFFIX ".counts"

struct imatrix {
    struct imatrix_entry **entries; /* (n), in order of names once it is complete */
    uint32_t n, capacity;
    struct imatrix_text text;
};

/* ---- entries ---- */

imatrix *imatrix_new(void) {
    return mem_new(1, sizeof(imatrix));
}

static void entry_free(struct imatrix_entry *entry) {
    if (!entry) return;
    free(entry->name);
    free(entry->sums);
    free(entry->counts);
    free(entry);
}

void imatrix_free(imatrix *m) {
    if (!m) return;
    for (uint32_t i = 0; i < m->n; i++)
        entry_free(m->entries[i]);
    free(m->entries);
    free(m->text.name);
    free(m);
}

/* Adds an entry without looking for its name. */
static int append(imatrix *m, gguf_str name, uint64_t n_in, uint64_t n_mats,
                  struct imatrix_entry **out, err *e) {
    uint64_t n;
    struct imatrix_entry *entry = mem_new(1, sizeof *entry);
    if (entry && mem_mul(n_in, n_mats, &n)) {
        *entry = (struct imatrix_entry){.name = mem_strndup(name.data, name.len),
                                        .n_in = n_in,
                                        .n_mats = n_mats,
                                        .sums = mem_new(n, sizeof *entry->sums),
                                        .counts = mem_new(n_mats, sizeof *entry->counts)};
    }
    if (!entry || !entry->name || !entry->sums || !entry->counts ||
        !mem_grow(&m->entries, m->n, &m->capacity, sizeof(*m->entries))) {
        entry_free(entry);
        return err_no_memory(e);
    }
    *out = m->entries[m->n++] = entry;
    return 0;
}

int imatrix_add(imatrix *m, const char *name, uint64_t n_in, uint64_t n_mats,
                struct imatrix_entry **out, err *e) {
    *out = NULL;
    for (uint32_t i = 0; i < m->n; i++)
        if (!strcmp(m->entries[i]->name, name)) return 0;
    return append(m, (gguf_str){name, strlen(name)}, n_in, n_mats, out, e);
}

uint64_t imatrix_n_entries(const imatrix *m) {
    return m->n;
}

const struct imatrix_entry *imatrix_at(const imatrix *m, uint64_t i) {
    return m->entries[i];
}

const struct imatrix_text *imatrix_text(const imatrix *m) {
    return &m->text;
}

int imatrix_set_text(imatrix *m, const struct imatrix_text *text, err *e) {
    char *name = text->name ? mem_strdup(text->name) : NULL;
    if (text->name && !name) return err_no_memory(e);
    free(m->text.name);
    m->text = *text;
    m->text.name = name;
    return 0;
}

static int compare_names(const void *a, const void *b) {
    const struct imatrix_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static void sort_entries(const imatrix *m) {
    if (m->n) qsort(m->entries, m->n, sizeof(*m->entries), compare_names);
}

static int compare_to_name(const void *key, const void *element) {
    const gguf_str *name = key;
    const struct imatrix_entry *const *entry = element;
    const size_t n = strlen((*entry)->name);
    const int order = memcmp(name->data, (*entry)->name, name->len < n ? name->len : n);
    return order ? order : name->len < n ? -1 : name->len > n;
}

const struct imatrix_entry *imatrix_find(const imatrix *m, gguf_str name) {
    struct imatrix_entry **found =
        m->n ? bsearch(&name, m->entries, m->n, sizeof(*m->entries), compare_to_name) : NULL;
    return found ? *found : NULL;
}

void imatrix_means(const struct imatrix_entry *entry, uint64_t i, uint64_t n, float *out) {
    for (; n; n--, i++) {
        const double count = entry->counts[i / entry->n_in];
        *out++ = count > 0 ? (float)(entry->sums[i] / count) : 1;
    }
}

/* ---- reading ---- */

struct reader {
    imatrix *m;
    const uint8_t *bytes; /* (n) */
    uint64_t n, at;
    const char *name; /* of the file */
    err *e;
};

static int refuse(const struct reader *r, const char *tensor, const char *what) {
    return err_set(r->e, ERR_FORMAT, "%s: importance of %.64s: %s", r->name, tensor, what);
}

/* Sums of squares and their counts, of which there are n_mats. */
static int check_entry(const struct reader *r, const struct imatrix_entry *entry) {
    for (uint64_t i = 0; i < entry->n_mats; i++)
        if (!isfinite(entry->counts[i]) || (entry->counts[i] < 1 && entry->counts[i] != 0))
            return refuse(r, entry->name, "a number of rows is not one");
    for (uint64_t i = 0; i < entry->n_in * entry->n_mats; i++)
        if (!isfinite(entry->sums[i]) || entry->sums[i] < 0)
            return refuse(r, entry->name, "a sum of squares is negative or not finite");
    return 0;
}

static void take_floats(const void *from, uint64_t n, double *to) {
    const uint8_t *bytes = from;
    for (uint64_t i = 0; i < n; i++) {
        float value;
        memcpy(&value, bytes + i * sizeof value, sizeof value);
        to[i] = (double)value;
    }
}

/* false: the file ends before. */
static bool read_i32(struct reader *r, int32_t *value) {
    if (r->n - r->at < sizeof *value) return false;
    memcpy(value, r->bytes + r->at, sizeof *value);
    r->at += sizeof *value;
    return true;
}

static int refuse_at(const struct reader *r, const char *field) {
    return err_set(r->e, ERR_FORMAT,
                   "%s: offset %" PRIu64 ": %s: the file is damaged or not an importance matrix",
                   r->name, r->at, field);
}

static int read_old_entry(struct reader *r) {
    int32_t length, calls, n;
    struct imatrix_entry *entry;
    if (!read_i32(r, &length) || length < 1 || (uint64_t)length > r->n - r->at)
        return refuse_at(r, "length of a name");
    const gguf_str name = {(const char *)r->bytes + r->at, (uint64_t)length};
    if (memchr(name.data, '\0', name.len)) return refuse_at(r, "name");
    r->at += name.len;
    if (!read_i32(r, &calls) || calls < 0) return refuse_at(r, "number of calls");
    if (!read_i32(r, &n) || n < 1 || (uint64_t)n > (r->n - r->at) / sizeof(float))
        return refuse_at(r, "number of values");
    int rc = append(r->m, name, (uint64_t)n, 1, &entry, r->e);
    if (rc) return rc;
    take_floats(r->bytes + r->at, (uint64_t)n, entry->sums);
    r->at += (uint64_t)n * sizeof(float);
    entry->counts[0] = calls ? calls : 1;
    return check_entry(r, entry);
}

static int read_old(struct reader *r) {
    int32_t n, chunks, length;
    if (!read_i32(r, &n) || n < 1) return refuse_at(r, "number of entries");
    for (int32_t i = 0; i < n; i++) {
        int rc = read_old_entry(r);
        if (rc) return rc;
    }
    if (!read_i32(r, &chunks) || chunks < 0) return 0;
    r->m->text.n_chunks = (uint32_t)chunks;
    if (!read_i32(r, &length) || length < 1 || (uint64_t)length > r->n - r->at) return 0;
    r->m->text.name = mem_strndup((const char *)r->bytes + r->at, (size_t)length);
    return r->m->text.name ? 0 : err_no_memory(r->e);
}

/* The tensor `name` without the suffix; false: it does not end so. */
static bool strip_suffix(gguf_str *name, const char *suffix) {
    const size_t n = strlen(suffix);
    if (name->len <= n || memcmp(name->data + name->len - n, suffix, n) != 0) return false;
    name->len -= n;
    return true;
}

static int read_gguf_entry(const struct reader *r, const gguf *g, const gguf_tensor *sums) {
    gguf_str name = sums->name;
    char counts_name[256];
    struct imatrix_entry *entry;
    if (!strip_suffix(&name, SUMS_SUFFIX)) return 0;
    if (name.len + sizeof COUNTS_SUFFIX > sizeof counts_name || memchr(name.data, '\0', name.len))
        return err_set(r->e, ERR_FORMAT, "%s: the name of a tensor with sums is too long", r->name);
    memcpy(counts_name, name.data, name.len);
    memcpy(counts_name + name.len, COUNTS_SUFFIX, sizeof COUNTS_SUFFIX);
    const gguf_tensor *counts = gguf_tensor_find(g, counts_name);
    if (!counts) return err_set(r->e, ERR_FORMAT, "%s: tensor %s is missing", r->name, counts_name);
    if (sums->type != QTYPE_F32 || counts->type != QTYPE_F32 ||
        sums->n_elems % counts->n_elems != 0) {
        counts_name[name.len] = '\0';
        return refuse(r, counts_name, "sums and counts have types or shapes that do not fit");
    }
    int rc = append(r->m, name, sums->n_elems / counts->n_elems, counts->n_elems, &entry, r->e);
    if (rc) return rc;
    take_floats(sums->data, sums->n_elems, entry->sums);
    take_floats(counts->data, counts->n_elems, entry->counts);
    return check_entry(r, entry);
}

static int read_gguf(const struct reader *r) {
    gguf *g;
    gguf_str text;
    uint64_t n;
    enum gguf_type elem;
    struct imatrix_text *of = &r->m->text;
    int rc = gguf_open_memory(r->bytes, r->n, r->name, 0, &g, r->e);
    if (rc) return rc;
    if (!gguf_get_str(g, "general.type", &text, NULL) &&
        (text.len != 7 || memcmp(text.data, "imatrix", 7) != 0))
        rc = err_set(r->e, ERR_FORMAT, "%s: general.type is not imatrix", r->name);
    for (uint64_t i = 0; !rc && i < gguf_n_tensors(g); i++)
        rc = read_gguf_entry(r, g, gguf_tensor_at(g, i));
    if (!rc && !gguf_get_u64(g, "imatrix.chunk_count", &n, NULL) && n <= UINT32_MAX)
        of->n_chunks = (uint32_t)n;
    if (!rc && !gguf_get_u64(g, "imatrix.chunk_size", &n, NULL) && n <= UINT32_MAX)
        of->chunk_tokens = (uint32_t)n;
    if (!rc && !gguf_get_array(g, "imatrix.datasets", &elem, &n, NULL) && n &&
        elem == GGUF_STRING) {
        text = gguf_array_str(g, "imatrix.datasets", n - 1);
        of->name = mem_strndup(text.data, text.len);
        if (!of->name) rc = err_no_memory(r->e);
    }
    gguf_close(g);
    return rc;
}

static int complete(const struct reader *r) {
    const imatrix *m = r->m;
    if (!m->n) return err_set(r->e, ERR_FORMAT, "%s has no importance of any tensor", r->name);
    sort_entries(m);
    for (uint32_t i = 1; i < m->n; i++)
        if (!strcmp(m->entries[i - 1]->name, m->entries[i]->name))
            return refuse(r, m->entries[i]->name, "there is more than one");
    return 0;
}

int imatrix_open_memory(const void *bytes, uint64_t n, const char *name, imatrix **out, err *e) {
    struct reader r = {.m = imatrix_new(), .bytes = bytes, .n = n, .name = name, .e = e};
    *out = NULL;
    if (!r.m) return err_no_memory(e);
    int rc = n >= 4 && !memcmp(bytes, "GGUF", 4) ? read_gguf(&r) : read_old(&r);
    if (!rc) rc = complete(&r);
    if (rc)
        imatrix_free(r.m);
    else
        *out = r.m;
    return rc;
}

int imatrix_open(const char *path, imatrix **out, err *e) {
    struct file_map map;
    *out = NULL;
    int rc = file_map_open(path, &map, e);
    if (rc) return rc;
    rc = imatrix_open_memory(map.base ? map.base : (const uint8_t *)"", map.bytes, path, out, e);
    if (!rc && (rc = file_map_check(&map, e))) {
        imatrix_free(*out);
        *out = NULL;
    }
    file_map_close(&map);
    return rc;
}

/* ---- writing ---- */

static int add_tensor(gguf_writer *w, const char *name, const char *suffix, uint64_t n_cols,
                      uint64_t n_rows, err *e) {
    char full[256];
    const int n = snprintf(full, sizeof full, "%s%s", name, suffix);
    if (n < 0 || (size_t)n >= sizeof full)
        return err_set(e, ERR_INVALID, "the name of tensor %.64s is too long", name);
    const gguf_tensor t = {.name = {full, (uint64_t)n},
                           .type = QTYPE_F32,
                           .n_dims = 2,
                           .dims = {n_cols, n_rows, 1, 1},
                           .n_elems = n_cols * n_rows,
                           .bytes = n_cols * n_rows * sizeof(float)};
    return gguf_writer_add_tensor(w, &t, e);
}

/* Puts n values as f32 at the start of a tensor's data. */
static int put_floats(gguf_writer *w, uint64_t tensor, const double *values, uint64_t n, err *e) {
    enum { PIECE = 4096 };
    float out[PIECE];
    int rc = 0;
    for (uint64_t at = 0; at < n && !rc; at += PIECE) {
        const uint64_t one = n - at < PIECE ? n - at : PIECE;
        for (uint64_t i = 0; i < one; i++)
            out[i] = (float)values[at + i];
        rc = gguf_writer_put(w, tensor, at * sizeof *out, out, one * sizeof *out, e);
    }
    return rc;
}

static int add_all(const imatrix *m, gguf_writer *w, err *e) {
    const struct imatrix_text *text = &m->text;
    const gguf_str name = {text->name, text->name ? strlen(text->name) : 0};
    int rc = gguf_writer_set_str(w, "general.type", "imatrix", e);
    if (!rc) rc = gguf_writer_set_texts(w, "imatrix.datasets", &name, text->name ? 1 : 0, e);
    if (!rc) rc = gguf_writer_set_u32(w, "imatrix.chunk_count", text->n_chunks, e);
    if (!rc) rc = gguf_writer_set_u32(w, "imatrix.chunk_size", text->chunk_tokens, e);
    for (uint32_t i = 0; i < m->n && !rc; i++) {
        const struct imatrix_entry *entry = m->entries[i];
        rc = add_tensor(w, entry->name, SUMS_SUFFIX, entry->n_in, entry->n_mats, e);
        if (!rc) rc = add_tensor(w, entry->name, COUNTS_SUFFIX, 1, entry->n_mats, e);
    }
    return rc;
}

int imatrix_write(const imatrix *m, const char *path, err *e) {
    gguf_writer *w = gguf_writer_new();
    sort_entries(m);
    int rc = w ? add_all(m, w, e) : err_no_memory(e);
    if (!rc) rc = gguf_writer_begin(w, path, e);
    for (uint32_t i = 0; i < m->n && !rc; i++) {
        const struct imatrix_entry *entry = m->entries[i];
        rc = put_floats(w, 2 * (uint64_t)i, entry->sums, entry->n_in * entry->n_mats, e);
        if (!rc) rc = put_floats(w, 2 * (uint64_t)i + 1, entry->counts, entry->n_mats, e);
    }
    if (!rc) rc = gguf_writer_commit(w, e);
    gguf_writer_free(w);
    return rc;
}
