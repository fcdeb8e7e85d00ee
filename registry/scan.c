/* scan.c - examines model files: header, identity, SHA-256. Never writes, keeps no file open, does
 * not use the database. */
#include "core/base/file.h"
#include "core/base/mem.h"
#include "core/formats/model_file.h"
#include "core/model/model.h"
#include "registry/registry_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 20 };

/* A model without a tokenizer cannot be served. */
static int check_vocabulary(const char *path, const struct registry_files *files, err *e) {
    gguf *g;
    gguf_str kind;
    if (strcmp(files->format, "gguf") != 0) {
        for (size_t i = 0; i < files->n; i++) {
            const char *name = registry_file_name(&files->files[i]);
            if (strcmp(name, "tokenizer.json") == 0 || strcmp(name, "tokenizer.model") == 0 ||
                strcmp(name, "tiktoken.model") == 0)
                return 0;
        }
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has no tokenizer.json, tokenizer.model or tiktoken.model: it cannot "
                       "be served",
                       path);
    }
    int rc = model_file_open_gguf(path, 0, &g, e);
    if (rc) return rc;
    if (gguf_get_str(g, "tokenizer.ggml.model", &kind, NULL))
        rc = err_set(e, ERR_UNSUPPORTED,
                     "%s has no tokenizer (tokenizer.ggml.model): it cannot be served", path);
    gguf_close(g);
    return rc;
}

/* The absolute path; the caller frees *out. The name of a symbolic link to a file is kept: it has
 * the number of a part, its target's name may not. */
static int absolute_path(const char *path, char **out, err *e) {
    struct stat st;
    *out = NULL;
    if (stat(path, &st)) return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) {
        *out = realpath(path, NULL);
        return *out ? 0 : err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    }
    const char *slash = strrchr(path, '/');
    char *folder =
        slash == path ? mem_strdup("/") : mem_strndup(path, slash ? (size_t)(slash - path) : 0);
    char *real = folder ? realpath(folder[0] ? folder : ".", NULL) : NULL;
    int rc = folder && !real ? err_set(e, ERR_IO, "%s: %s", path, strerror(errno)) : 0;
    size_t n = real ? strlen(real) + strlen(path) + 2 : 0;
    if (real && (*out = mem_new(n, 1)))
        snprintf(*out, n, "%s/%s", strcmp(real, "/") == 0 ? "" : real, slash ? slash + 1 : path);
    free(real);
    free(folder);
    return rc || *out ? rc : err_no_memory(e);
}

int registry_scan_header(const char *path, struct registry_scan *out, err *e) {
    struct registry_files files;
    struct model_hparams hp;
    memset(out, 0, sizeof *out);
    char *absolute;
    int rc = absolute_path(path, &absolute, e);
    if (rc) return rc;
    rc = registry_files_list(absolute, &files, e);
    if (rc) {
        free(absolute);
        return rc;
    }
    rc = model_read_hparams(absolute, &hp, e);
    if (!rc) rc = check_vocabulary(absolute, &files, e);
    out->stat = files.stat;
    out->format = files.format;
    registry_files_fini(&files);
    if (!rc && hp.n_params > INT64_MAX)
        rc = err_set(e, ERR_FORMAT, "%s: its tensors have more than 2^63 values", absolute);
    if (rc) {
        free(absolute);
        return rc;
    }
    snprintf(out->architecture, sizeof out->architecture, "%s", hp.arch);
    snprintf(out->quantization, sizeof out->quantization, "%s", hp.quant);
    out->n_params = hp.n_params;
    out->context_length = hp.context_length;
    out->path = absolute;
    return 0;
}

static int check_same(const struct registry_file *f, int fd, err *e) {
    struct stat st;
    struct registry_stat now = {0};
    if (fstat(fd, &st)) return err_set(e, ERR_IO, "%s: %s", f->path, strerror(errno));
    int rc = registry_file_stat(f->path, &st, &now, e);
    if (!rc && (now.size_bytes != f->stat.size_bytes || now.mtime_ns != f->stat.mtime_ns))
        rc = err_set(e, ERR_CHANGED, "%s changed while it was read", f->path);
    return rc;
}

/* The hashing of a model's files, and its progress. */
struct reading {
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    uint64_t done, total;
    unsigned char *chunk; /* (CHUNK_BYTES) */
};

static int hash_file(const struct registry_file *f, struct reading *r, char hex[65], err *e) {
    struct registry_hash hash;
    uint64_t before = r->done;
    int fd = file_open(f->path, O_RDONLY, 0);
    if (fd < 0) return err_set(e, ERR_IO, "%s: %s", f->path, strerror(errno));
    int rc = check_same(f, fd, e);
    registry_hash_init(&hash);
    while (!rc) {
        int64_t n = file_read_some(fd, r->chunk, CHUNK_BYTES, r->done - before);
        if (n < 0) rc = err_set(e, ERR_IO, "cannot read %s: %s", f->path, strerror(errno));
        if (n <= 0) break;
        registry_hash_add(&hash, r->chunk, (size_t)n);
        r->done += (uint64_t)n;
        if (r->progress) r->progress(r->progress_arg, r->done, r->total);
    }
    if (!rc) rc = check_same(f, fd, e);
    if (!rc && r->done - before != f->stat.size_bytes)
        rc = err_set(e, ERR_CHANGED, "%s changed while it was read", f->path);
    if (!rc) registry_hash_hex(&hash, hex);
    close(fd);
    return rc;
}

int registry_scan_sha256(const char *path, const struct registry_stat *want,
                         void (*progress)(void *arg, uint64_t done, uint64_t total),
                         void *progress_arg, char hex[65], err *e) {
    struct registry_files files;
    struct registry_hash all;
    struct reading r = {
        .progress = progress, .progress_arg = progress_arg, .total = want->size_bytes};
    int rc = registry_files_list(path, &files, e);
    if (rc) return rc;
    if (files.stat.size_bytes != want->size_bytes || files.stat.mtime_ns != want->mtime_ns)
        rc = err_set(e, ERR_CHANGED, "%s changed while it was read", path);
    if (!rc && !(r.chunk = mem_new(CHUNK_BYTES, 1))) rc = err_no_memory(e);
    registry_hash_init(&all);
    for (size_t i = 0; i < files.n && !rc; i++) {
        const struct registry_file *f = &files.files[i];
        char size[32];
        rc = hash_file(f, &r, hex, e);
        if (rc || files.n == 1) break;
        const char *name = registry_file_name(f);
        snprintf(size, sizeof size, " %llu ", (unsigned long long)f->stat.size_bytes);
        registry_hash_add(&all, name, strlen(name));
        registry_hash_add(&all, size, strlen(size));
        registry_hash_add(&all, hex, strlen(hex));
        registry_hash_add(&all, "\n", 1);
    }
    if (!rc && files.n > 1) registry_hash_hex(&all, hex);
    free(r.chunk);
    registry_files_fini(&files);
    return rc;
}
