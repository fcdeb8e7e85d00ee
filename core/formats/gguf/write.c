/* gguf/write.c - writes GGUF v3. Copies all metadata and names; tensor data is borrowed until the
 * file is finished, or put piece by piece. A file appears under its final name only when it is
 * complete and on disk. One writer belongs to one thread, except gguf_writer_put. */
#include "core/formats/gguf/gguf_int.h"

#include "core/base/file.h"
#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct entry {
    char *key;
    uint64_t key_len;
    enum gguf_type type;
    uint8_t *payload; /* (n) laid out as in gguf_int.h */
    uint64_t n;
};

struct gguf_writer {
    struct entry *entries;
    gguf_tensor *tensors; /* names are owned */
    uint64_t n_entries, n_tensors;
    /* From begin to commit: */
    bool is_open; /* fd is tmp, locked; it must be removed */
    int fd;
    char *path, *tmp;  /* NULL: not begun */
    uint64_t *offsets; /* (n_tensors) of their data in the file */
    uint64_t data_bytes;
    _Atomic uint64_t n_put; /* bytes of data so far */
};

gguf_writer *gguf_writer_new(void) {
    return mem_new(1, sizeof(gguf_writer));
}

/* Restores the state before begin. */
static void discard_file(gguf_writer *w) {
    if (w->is_open) {
        unlink(w->tmp); /* still locked, so it is this writer's */
        close(w->fd);
    }
    free(w->path);
    free(w->tmp);
    free(w->offsets);
    w->is_open = false;
    w->path = w->tmp = NULL;
    w->offsets = NULL;
    w->n_put = 0;
}

void gguf_writer_free(gguf_writer *w) {
    if (!w) return;
    discard_file(w);
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

static bool is_text(const char *a, uint64_t a_len, gguf_str b) {
    return a_len == b.len && memcmp(a, b.data, b.len) == 0;
}

static const struct entry *find_entry(const gguf_writer *w, gguf_str key) {
    for (uint64_t i = 0; i < w->n_entries; i++)
        if (is_text(w->entries[i].key, w->entries[i].key_len, key)) return &w->entries[i];
    return NULL;
}

int gguf_writer_set_raw(gguf_writer *w, gguf_str key, enum gguf_type type, const void *payload,
                        uint64_t n, err *e) {
    if (find_entry(w, key))
        return err_set(e, ERR_EXISTS, "key '%.*s' is already set",
                       (int)(key.len < 64 ? key.len : 64), key.data);
    struct entry *entries = mem_resize(w->entries, w->n_entries + 1, sizeof *entries);
    if (!entries) return err_no_memory(e);
    w->entries = entries;
    struct entry it = {.key = mem_strndup(key.data, key.len),
                       .key_len = key.len,
                       .type = type,
                       .payload = mem_new(n, 1),
                       .n = n};
    if (!it.key || !it.payload) {
        free(it.key);
        free(it.payload);
        return err_no_memory(e);
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
    return gguf_writer_set_raw(w, gguf_str_of(key), GGUF_U32, &v, sizeof v, e);
}

int gguf_writer_set_f32(gguf_writer *w, const char *key, float v, err *e) {
    return gguf_writer_set_raw(w, gguf_str_of(key), GGUF_F32, &v, sizeof v, e);
}

int gguf_writer_set_bool(gguf_writer *w, const char *key, bool v, err *e) {
    uint8_t byte = v;
    return gguf_writer_set_raw(w, gguf_str_of(key), GGUF_BOOL, &byte, sizeof byte, e);
}

int gguf_writer_set_str(gguf_writer *w, const char *key, const char *v, err *e) {
    uint64_t n = strlen(v);
    uint8_t *payload = mem_new(n + sizeof n, 1);
    if (!payload) return err_no_memory(e);
    memcpy(payload, &n, sizeof n);
    memcpy(payload + sizeof n, v, n);
    int rc = gguf_writer_set_raw(w, gguf_str_of(key), GGUF_STRING, payload, n + sizeof n, e);
    free(payload);
    return rc;
}

/* Allocates an array's payload: its head, filled in, and n_bytes after it. NULL: no memory. */
static uint8_t *new_array(enum gguf_type elem, uint64_t n, uint64_t n_bytes) {
    uint32_t type = elem;
    uint64_t bytes;
    uint8_t *payload = mem_add(n_bytes, GGUF_ARRAY_HEAD_BYTES, &bytes) ? mem_new(bytes, 1) : NULL;
    if (!payload) return NULL;
    memcpy(payload, &type, sizeof type);
    memcpy(payload + sizeof type, &n, sizeof n);
    return payload;
}

int gguf_writer_set_array(gguf_writer *w, const char *key, enum gguf_type elem, const void *values,
                          uint64_t n, err *e) {
    uint64_t n_bytes;
    uint32_t each = gguf_scalar_bytes(elem);
    if (!each)
        return err_set(e, ERR_INVALID, "'%s': an array must have elements of a fixed size", key);
    uint8_t *payload = mem_mul(n, each, &n_bytes) ? new_array(elem, n, n_bytes) : NULL;
    if (!payload) return err_no_memory(e);
    if (n) memcpy(payload + GGUF_ARRAY_HEAD_BYTES, values, n_bytes);
    int rc = gguf_writer_set_raw(w, gguf_str_of(key), GGUF_ARRAY, payload,
                                 n_bytes + GGUF_ARRAY_HEAD_BYTES, e);
    free(payload);
    return rc;
}

int gguf_writer_set_texts(gguf_writer *w, const char *key, const gguf_str *texts, uint64_t n,
                          err *e) {
    uint64_t n_bytes = 0;
    for (uint64_t i = 0; i < n; i++)
        if (!mem_add(n_bytes, sizeof(uint64_t), &n_bytes) ||
            !mem_add(n_bytes, texts[i].len, &n_bytes))
            return err_no_memory(e);
    uint8_t *payload = new_array(GGUF_STRING, n, n_bytes);
    if (!payload) return err_no_memory(e);
    uint8_t *at = payload + GGUF_ARRAY_HEAD_BYTES;
    for (uint64_t i = 0; i < n; i++) {
        memcpy(at, &texts[i].len, sizeof texts[i].len);
        at += sizeof texts[i].len;
        if (texts[i].len) memcpy(at, texts[i].data, texts[i].len);
        at += texts[i].len;
    }
    int rc = gguf_writer_set_raw(w, gguf_str_of(key), GGUF_ARRAY, payload,
                                 n_bytes + GGUF_ARRAY_HEAD_BYTES, e);
    free(payload);
    return rc;
}

int gguf_writer_add_tensor(gguf_writer *w, const gguf_tensor *t, err *e) {
    uint64_t bytes, n_elems = 1;
    int shown = (int)(t->name.len < 64 ? t->name.len : 64);
    for (uint64_t i = 0; i < w->n_tensors; i++)
        if (is_text(w->tensors[i].name.data, w->tensors[i].name.len, t->name))
            return err_set(e, ERR_EXISTS, "tensor '%.*s' was already added", shown, t->name.data);
    bool fits = t->n_dims >= 1 && t->n_dims <= 4;
    for (uint32_t d = 0; fits && d < t->n_dims; d++)
        fits = t->dims[d] && mem_mul(n_elems, t->dims[d], &n_elems);
    if (!fits || !qtype_bytes(t->type, n_elems / t->dims[0], t->dims[0], &bytes) ||
        bytes != t->bytes)
        return err_set(e, ERR_INVALID, "tensor '%.*s': its %" PRIu64 " bytes do not fit its shape",
                       shown, t->name.data, t->bytes);
    gguf_tensor *tensors = mem_resize(w->tensors, w->n_tensors + 1, sizeof *tensors);
    if (!tensors) return err_no_memory(e);
    w->tensors = tensors;
    gguf_tensor copy = *t;
    copy.name.data = mem_strndup(t->name.data, t->name.len);
    if (!copy.name.data) return err_no_memory(e);
    tensors[w->n_tensors++] = copy;
    return 0;
}

/* The alignment that was set, or the format's default. */
static uint64_t alignment_of(const gguf_writer *w) {
    uint32_t v;
    const struct entry *it = find_entry(w, gguf_str_of("general.alignment"));
    if (!it || it->type != GGUF_U32) return GGUF_ALIGNMENT_DEFAULT;
    memcpy(&v, it->payload, sizeof v);
    bool fits = v >= GGUF_ALIGNMENT_MIN && v <= GGUF_ALIGNMENT_MAX && !(v & (v - 1));
    return fits ? v : GGUF_ALIGNMENT_DEFAULT;
}

/* The stream remembers a failed write: make_header checks it once. */
static void write_bytes(FILE *f, const void *p, uint64_t n, uint64_t *pos) {
    if (n) fwrite(p, 1, n, f);
    *pos += n;
}

static void put_u32(FILE *f, uint32_t v, uint64_t *pos) {
    write_bytes(f, &v, sizeof v, pos);
}

static void put_u64(FILE *f, uint64_t v, uint64_t *pos) {
    write_bytes(f, &v, sizeof v, pos);
}

static void write_padding(FILE *f, uint64_t alignment, uint64_t *pos) {
    static const uint8_t zeros[64];
    while (*pos % alignment) {
        uint64_t n = alignment - *pos % alignment;
        write_bytes(f, zeros, n < sizeof zeros ? n : sizeof zeros, pos);
    }
}

/* Finds where each tensor's data begins, from the data section on. */
static int place_tensors(gguf_writer *w, uint64_t alignment, uint64_t *bytes, err *e) {
    *bytes = w->data_bytes = 0;
    w->offsets = mem_new(w->n_tensors, sizeof *w->offsets);
    if (!w->offsets) return err_no_memory(e);
    for (uint64_t i = 0; i < w->n_tensors; i++) {
        w->offsets[i] = *bytes;
        if (!mem_add(*bytes, w->tensors[i].bytes, bytes) || !mem_add(*bytes, alignment, bytes) ||
            *bytes > INT64_MAX / 2)
            return err_set(e, ERR_INVALID, "%s: the tensors are larger than a file can be",
                           w->path);
        *bytes = (*bytes - 1) & ~(alignment - 1);
        w->data_bytes += w->tensors[i].bytes;
    }
    return 0;
}

/* Writes everything except the data. */
static void put_header(FILE *f, const gguf_writer *w, uint64_t alignment) {
    uint64_t pos = 0;
    write_bytes(f, "GGUF", 4, &pos);
    put_u32(f, GGUF_VERSION_MAX, &pos);
    put_u64(f, w->n_tensors, &pos);
    put_u64(f, w->n_entries, &pos);
    for (uint64_t i = 0; i < w->n_entries; i++) {
        const struct entry *it = &w->entries[i];
        put_u64(f, it->key_len, &pos);
        write_bytes(f, it->key, it->key_len, &pos);
        put_u32(f, it->type, &pos);
        write_bytes(f, it->payload, it->n, &pos);
    }
    for (uint64_t i = 0; i < w->n_tensors; i++) {
        const gguf_tensor *t = &w->tensors[i];
        put_u64(f, t->name.len, &pos);
        write_bytes(f, t->name.data, t->name.len, &pos);
        put_u32(f, t->n_dims, &pos);
        write_bytes(f, t->dims, t->n_dims * sizeof t->dims[0], &pos);
        put_u32(f, (uint32_t)t->type, &pos);
        put_u64(f, w->offsets[i], &pos);
    }
    write_padding(f, alignment, &pos);
}

/* Everything except the data, in memory; the caller frees *bytes. */
static int make_header(const gguf_writer *w, uint64_t alignment, void **bytes, uint64_t *n,
                       err *e) {
    char *data = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&data, &size);
    *bytes = NULL;
    *n = 0;
    if (!f) return err_no_memory(e);
    put_header(f, w, alignment);
    int failed = ferror(f);
    if (fclose(f) || failed) {
        free(data);
        return err_no_memory(e);
    }
    *bytes = data;
    *n = size;
    return 0;
}

int gguf_writer_to_memory(const gguf_writer *w, void **bytes, uint64_t *n, err *e) {
    *bytes = NULL;
    *n = 0;
    if (w->n_tensors) return err_set(e, ERR_INVALID, "a GGUF with tensors is written to a file");
    return make_header(w, alignment_of(w), bytes, n, e);
}

static int err_write(const gguf_writer *w, int why, err *e) {
    return err_set(e, ERR_IO, "%s: cannot write: %s", w->path, strerror(why));
}

/* Opens PATH.tmp, emptied and locked. A file that a killed run left is reused; one that another
 * process is writing is not: it holds the lock. Between open and lock its owner may have renamed it
 * to its final name, so the name must still lead to the locked file. */
static int open_tmp(gguf_writer *w, err *e) {
    for (;;) {
        struct stat opened, named;
        int fd = file_open(w->tmp, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (fd < 0) return err_set(e, ERR_IO, "%s: cannot create: %s", w->tmp, strerror(errno));
        int rc = 0;
        if (fstat(fd, &opened)) {
            rc = err_write(w, errno, e);
        } else if (!S_ISREG(opened.st_mode)) {
            rc = err_set(e, ERR_IO, "%s: not a regular file", w->tmp);
        } else if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
            rc = err_set(e, ERR_IO, "%s: another process is writing it", w->tmp);
        } else if (stat(w->tmp, &named) || named.st_ino != opened.st_ino ||
                   named.st_dev != opened.st_dev) {
            close(fd);
            continue;
        } else {
            w->fd = fd;
            w->is_open = true; /* from here on discard_file removes it */
            return file_truncate(fd, 0) ? err_write(w, errno, e) : 0;
        }
        close(fd);
        return rc;
    }
}

/* Reports a disk that is too small before an hour's work, not after it. */
static int check_space(const gguf_writer *w, uint64_t bytes, err *e) {
    struct statvfs fs;
    if (fstatvfs(w->fd, &fs) || !fs.f_blocks || !fs.f_frsize) return 0;
    uint64_t available = (uint64_t)fs.f_bavail;
    if (available >= bytes / fs.f_frsize + 1) return 0;
    return err_set(e, ERR_IO, "%s: no space: it needs %.1f MiB and %.1f MiB are free", w->path,
                   (double)bytes / 0x1p20, (double)available * (double)fs.f_frsize / 0x1p20);
}

static int write_header(gguf_writer *w, uint64_t alignment, uint64_t *n, err *e) {
    void *header;
    int rc = make_header(w, alignment, &header, n, e);
    if (rc) return rc;
    if (file_write_at(w->fd, header, *n, 0)) rc = err_write(w, errno, e);
    free(header);
    return rc;
}

static int begin_file(gguf_writer *w, const char *path, err *e) {
    uint64_t alignment = alignment_of(w), bytes, start;
    size_t n = strlen(path);
    w->path = mem_strdup(path);
    w->tmp = mem_new((uint64_t)n + sizeof ".tmp", 1);
    if (!w->path || !w->tmp) return err_no_memory(e);
    memcpy(w->tmp, path, n);
    memcpy(w->tmp + n, ".tmp", sizeof ".tmp");
    int rc = place_tensors(w, alignment, &bytes, e);
    if (!rc) rc = open_tmp(w, e);
    if (!rc) rc = write_header(w, alignment, &start, e);
    if (!rc) rc = check_space(w, bytes, e);
    if (rc) return rc;
    for (uint64_t i = 0; i < w->n_tensors; i++)
        w->offsets[i] += start;
    /* Padding between tensors is never written: zeros. */
    if (file_truncate(w->fd, start + bytes)) return err_write(w, errno, e);
    return 0;
}

int gguf_writer_begin(gguf_writer *w, const char *path, err *e) {
    if (w->path) return err_set(e, ERR_EXISTS, "%s: the writer has already begun a file", w->path);
    int rc = begin_file(w, path, e);
    if (rc) discard_file(w);
    return rc;
}

int gguf_writer_put(gguf_writer *w, uint64_t tensor, uint64_t offset, const void *data, uint64_t n,
                    err *e) {
    if (!w->is_open || tensor >= w->n_tensors || offset > w->tensors[tensor].bytes ||
        n > w->tensors[tensor].bytes - offset)
        return err_set(e, ERR_INVALID, "data outside its tensor");
    if (file_write_at(w->fd, data, n, w->offsets[tensor] + offset)) return err_write(w, errno, e);
    w->n_put += n;
    return 0;
}

int gguf_writer_commit(gguf_writer *w, err *e) {
    if (!w->is_open || w->n_put != w->data_bytes)
        return err_set(e, ERR_INVALID,
                       "%" PRIu64 " of %" PRIu64 " bytes of tensor data were written",
                       (uint64_t)w->n_put, w->data_bytes);
    if (file_sync(w->fd) || file_rename(w->tmp, w->path)) return err_write(w, errno, e);
    w->is_open = false; /* from here on the file is the user's */
    if (close(w->fd)) return err_write(w, errno, e);
    file_sync_folder(w->path); /* best effort */
    return 0;
}

int gguf_writer_finish(gguf_writer *w, const char *path, err *e) {
    int rc = gguf_writer_begin(w, path, e);
    for (uint64_t i = 0; !rc && i < w->n_tensors; i++)
        rc = gguf_writer_put(w, i, 0, w->tensors[i].data, w->tensors[i].bytes, e);
    if (!rc) rc = gguf_writer_commit(w, e);
    discard_file(w);
    return rc;
}
