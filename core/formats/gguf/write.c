/* gguf/write.c - writes GGUF v3. Keeps copies of all metadata and names; tensor data are borrowed
 * until the file is finished, or put piece by piece. A file appears under its name only when it is
 * whole and on disk. One writer belongs to one thread, except gguf_writer_put. */
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
    uint8_t *payload; /* (n) as gguf_int.h draws it */
    uint64_t n;
};

struct gguf_writer {
    struct entry *entries;
    gguf_tensor *tensors; /* names are owned */
    uint64_t n_entries, n_tensors;
    /* From begin to commit: */
    char *path, *tmp;  /* NULL: not begun */
    FILE *file;        /* tmp, locked, of its final size; NULL: nothing to remove */
    uint64_t *offsets; /* (n_tensors) of their data in the file */
    uint64_t data_bytes;
    _Atomic uint64_t n_put; /* bytes of data so far */
};

gguf_writer *gguf_writer_new(void) {
    return mem_new(1, sizeof(gguf_writer));
}

/* Back to before begin. */
static void drop_file(gguf_writer *w) {
    if (w->file) {
        unlink(w->tmp); /* still locked: nobody else's */
        fclose(w->file);
    }
    free(w->path);
    free(w->tmp);
    free(w->offsets);
    w->file = NULL;
    w->path = w->tmp = NULL;
    w->offsets = NULL;
    w->n_put = 0;
}

void gguf_writer_free(gguf_writer *w) {
    if (!w) return;
    drop_file(w);
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
    if (!payload) return no_memory(e);
    memcpy(payload, &n, sizeof n);
    memcpy(payload + sizeof n, v, n);
    int rc = gguf_writer_set_raw(w, gguf_str_of(key), GGUF_STRING, payload, n + sizeof n, e);
    free(payload);
    return rc;
}

/* Memory for an array's payload of n_bytes behind its head, which is filled in. NULL: no memory. */
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
    if (!each) return err_set(e, ERR_INVALID, "'%s': no array of such elements", key);
    uint8_t *payload = mem_mul(n, each, &n_bytes) ? new_array(elem, n, n_bytes) : NULL;
    if (!payload) return no_memory(e);
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
            return no_memory(e);
    uint8_t *payload = new_array(GGUF_STRING, n, n_bytes);
    if (!payload) return no_memory(e);
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
    const struct entry *it = find_entry(w, gguf_str_of("general.alignment"));
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

/* Where each tensor's data begin, counted from the data section. */
static int place(gguf_writer *w, uint64_t alignment, uint64_t *bytes, err *e) {
    *bytes = w->data_bytes = 0;
    w->offsets = mem_new(w->n_tensors, sizeof *w->offsets);
    if (!w->offsets) return no_memory(e);
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

/* All but the data; returns where those begin. */
static uint64_t put_header(FILE *f, const gguf_writer *w, uint64_t alignment) {
    uint64_t pos = 0;
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
        put_u64(f, w->offsets[i], &pos);
    }
    pad(f, alignment, &pos);
    return pos;
}

int gguf_writer_to_memory(const gguf_writer *w, void **bytes, uint64_t *n, err *e) {
    char *data = NULL;
    size_t size = 0;
    FILE *f = w->n_tensors ? NULL : open_memstream(&data, &size);
    *bytes = NULL;
    *n = 0;
    if (!f) return no_memory(e);
    put_header(f, w, alignment_of(w));
    int failed = ferror(f);
    if (fclose(f) || failed) {
        free(data);
        return no_memory(e);
    }
    *bytes = data;
    *n = size;
    return 0;
}

static int cannot_write(const gguf_writer *w, int why, err *e) {
    return err_set(e, ERR_IO, "%s: cannot write: %s", w->path, strerror(why));
}

/* Opens PATH.tmp for this writer alone, emptied. What a killed run left is taken over; a file that
 * somebody is writing now is not: the lock says which. Between open and lock its owner may have
 * renamed it to its final name, so the name must still lead to what was locked. */
static int open_tmp(gguf_writer *w, err *e) {
    for (;;) {
        struct stat opened, named;
        int fd = open(w->tmp, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (fd < 0) return err_set(e, ERR_IO, "%s: cannot create: %s", w->tmp, strerror(errno));
        int rc = 0;
        if (fstat(fd, &opened)) {
            rc = cannot_write(w, errno, e);
        } else if (!S_ISREG(opened.st_mode)) {
            rc = err_set(e, ERR_IO, "%s: not a regular file", w->tmp);
        } else if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
            rc = err_set(e, ERR_IO, "%s: another process is writing it", w->tmp);
        } else if (stat(w->tmp, &named) || named.st_ino != opened.st_ino ||
                   named.st_dev != opened.st_dev) {
            close(fd);
            continue;
        } else if (ftruncate(fd, 0) || !(w->file = fdopen(fd, "wb"))) {
            rc = cannot_write(w, errno, e);
        }
        if (rc) close(fd);
        return rc;
    }
}

/* A disk that is too small is said before an hour's work, not after it. */
static int check_space(const gguf_writer *w, uint64_t bytes, err *e) {
    struct statvfs fs;
    if (fstatvfs(fileno(w->file), &fs) || !fs.f_blocks || !fs.f_frsize) return 0;
    uint64_t available = (uint64_t)fs.f_bavail;
    if (available >= bytes / fs.f_frsize + 1) return 0;
    return err_set(e, ERR_IO, "%s: no space: it needs %.1f MiB, %.1f MiB are free", w->path,
                   (double)bytes / 0x1p20, (double)available * (double)fs.f_frsize / 0x1p20);
}

static int begin(gguf_writer *w, const char *path, err *e) {
    uint64_t alignment = alignment_of(w), bytes;
    size_t n = strlen(path);
    w->path = mem_strdup(path);
    w->tmp = mem_new((uint64_t)n + sizeof ".tmp", 1);
    if (!w->path || !w->tmp) return no_memory(e);
    memcpy(w->tmp, path, n);
    memcpy(w->tmp + n, ".tmp", sizeof ".tmp");
    int rc = place(w, alignment, &bytes, e);
    if (!rc) rc = open_tmp(w, e);
    if (rc) return rc;
    uint64_t start = put_header(w->file, w, alignment);
    if (fflush(w->file) || ferror(w->file)) return cannot_write(w, errno, e);
    rc = check_space(w, bytes, e);
    if (rc) return rc;
    for (uint64_t i = 0; i < w->n_tensors; i++)
        w->offsets[i] += start;
    /* Padding between tensors is what was never written: zeros. */
    if (ftruncate(fileno(w->file), (off_t)(start + bytes))) return cannot_write(w, errno, e);
    return 0;
}

int gguf_writer_begin(gguf_writer *w, const char *path, err *e) {
    if (w->path) return err_set(e, ERR_EXISTS, "%s: begun already", w->path);
    int rc = begin(w, path, e);
    if (rc) drop_file(w);
    return rc;
}

int gguf_writer_put(gguf_writer *w, uint64_t tensor, uint64_t offset, const void *data, uint64_t n,
                    err *e) {
    const uint8_t *p = data;
    if (!w->file || tensor >= w->n_tensors || offset > w->tensors[tensor].bytes ||
        n > w->tensors[tensor].bytes - offset)
        return err_set(e, ERR_INVALID, "data outside the tensor they are for");
    for (uint64_t done = 0; done < n;) {
        ssize_t k = pwrite(fileno(w->file), p + done, n - done,
                           (off_t)(w->offsets[tensor] + offset + done));
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return cannot_write(w, k ? errno : ENOSPC, e);
        done += (uint64_t)k;
    }
    w->n_put += n;
    return 0;
}

int gguf_writer_commit(gguf_writer *w, err *e) {
    if (!w->file || w->n_put != w->data_bytes)
        return err_set(e, ERR_INVALID, "%" PRIu64 " of %" PRIu64 " bytes of data were put",
                       (uint64_t)w->n_put, w->data_bytes);
    if (fsync(fileno(w->file)) || rename(w->tmp, w->path)) return cannot_write(w, errno, e);
    FILE *f = w->file;
    w->file = NULL; /* from here on the file is the user's */
    if (fclose(f)) return cannot_write(w, errno, e);
    file_sync_folder(w->path); /* best effort */
    return 0;
}

int gguf_writer_finish(gguf_writer *w, const char *path, err *e) {
    int rc = gguf_writer_begin(w, path, e);
    for (uint64_t i = 0; !rc && i < w->n_tensors; i++)
        rc = gguf_writer_put(w, i, 0, w->tensors[i].data, w->tensors[i].bytes, e);
    if (!rc) rc = gguf_writer_commit(w, e);
    drop_file(w);
    return rc;
}
