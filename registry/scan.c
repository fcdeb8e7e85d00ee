/* scan.c - looks at model files: header facts, identity, SHA-256. Never writes, never keeps a file
 * open, touches no database. */
#include "core/base/mem.h"
#include "core/formats/model_file.h"
#include "core/model/model.h"
#include "registry/registry_int.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 20 };

static int stat_fill(const char *path, const struct stat *st, struct registry_stat *out, err *e) {
    if (!S_ISREG(st->st_mode))
        return err_set(e, ERR_INVALID, "%s is not a file: a model is one GGUF file", path);
#ifdef __APPLE__
    const struct timespec *t = &st->st_mtimespec;
#else
    const struct timespec *t = &st->st_mtim;
#endif
    out->size_bytes = (uint64_t)st->st_size;
    out->mtime_ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
    return 0;
}

int registry_scan_stat(const char *path, struct registry_stat *out, err *e) {
    struct stat st;
    if (stat(path, &st)) return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    return stat_fill(path, &st, out, e);
}

/* A file without a vocabulary has weights that nobody can talk to. */
static int check_vocabulary(const char *path, err *e) {
    gguf *g;
    int rc = model_file_open(path, 0, &g, e);
    if (rc) return rc;
    gguf_str kind;
    if (gguf_get_str(g, "tokenizer.ggml.model", &kind, NULL))
        rc = err_set(e, ERR_UNSUPPORTED,
                     "%s has no tokenizer (tokenizer.ggml.model): it cannot be served", path);
    gguf_close(g);
    return rc;
}

int registry_scan_header(const char *path, struct registry_scan *out, err *e) {
    struct model_hparams hp;
    memset(out, 0, sizeof *out);
    char *absolute = realpath(path, NULL);
    if (!absolute) return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    int rc = registry_scan_stat(absolute, &out->stat, e);
    if (!rc) rc = model_read_hparams(absolute, &hp, e);
    if (!rc) rc = check_vocabulary(absolute, e);
    if (!rc && hp.n_params > INT64_MAX)
        rc = err_set(e, ERR_FORMAT, "%s claims an absurd number of parameters", absolute);
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

static int check_same(const char *path, int fd, const struct registry_stat *want, err *e) {
    struct stat st;
    struct registry_stat now = {0};
    if (fstat(fd, &st)) return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    int rc = stat_fill(path, &st, &now, e);
    if (!rc && (now.size_bytes != want->size_bytes || now.mtime_ns != want->mtime_ns))
        rc = err_set(e, ERR_CHANGED, "%s changed while it was read", path);
    return rc;
}

int registry_scan_sha256(const char *path, const struct registry_stat *want,
                         void (*progress)(void *arg, uint64_t done, uint64_t total),
                         void *progress_arg, char hex[65], err *e) {
    struct registry_hash hash;
    uint64_t done = 0;
    unsigned char *chunk = mem_new(CHUNK_BYTES, 1);
    if (!chunk) return err_set(e, ERR_NOMEM, "no memory to read %s", path);
    int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        rc = err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
        goto end;
    }
    rc = check_same(path, fd, want, e);
    registry_hash_init(&hash);
    while (!rc) {
        ssize_t n = read(fd, chunk, CHUNK_BYTES);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) rc = err_set(e, ERR_IO, "reading %s: %s", path, strerror(errno));
        if (n <= 0) break;
        registry_hash_add(&hash, chunk, (size_t)n);
        done += (uint64_t)n;
        if (progress) progress(progress_arg, done, want->size_bytes);
    }
    if (!rc) rc = check_same(path, fd, want, e);
    if (!rc && done != want->size_bytes)
        rc = err_set(e, ERR_CHANGED, "%s changed while it was read", path);
    if (!rc) registry_hash_hex(&hash, hex);
    close(fd);
end:
    free(chunk);
    return rc;
}
