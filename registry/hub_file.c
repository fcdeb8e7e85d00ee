/* hub_file.c - downloads one file: FILE.part and FILE.part.id while it is incomplete, then FILE.
 * The hash is computed while bytes are written, after those of an earlier part were read back. FILE
 * is complete or absent. */
#include "core/base/file.h"
#include "core/base/mem.h"
#include "registry/hub_int.h"
#include "registry/registry_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CHUNK_BYTES = 1 << 20,
    PROGRESS_BYTES = 1 << 20, /* a try that received this much made progress */
    MOST_RESTARTS = 3,        /* from the first byte, for ranges that the server does not send */
    ID_MAX = 128,
    SUFFIX_MAX = 16
};

struct part {
    const struct hub_download *d;
    char *path, *id_path; /* FILE.part, FILE.part.id */
    int fd;
    uint64_t done;  /* bytes written and hashed */
    bool begun;     /* the body's position was checked */
    bool misplaced; /* and differs from the requested one */
    struct registry_hash hash;
};

static int report_progress(void *arg) {
    const struct part *p = arg;
    const struct hub_options *o = p->d->options;
    return o->progress(o->arg, p->d->done_before + p->done, p->d->total_bytes);
}

static void hash_start(struct part *p) {
    if (p->d->file->lfs)
        registry_hash_init(&p->hash);
    else
        registry_hash_init_git(&p->hash, p->d->file->size_bytes);
    p->done = 0;
}

/* Hashes n bytes of fd from its start. ERR_STOPPING. */
static int hash_bytes(struct part *p, int fd, uint64_t n, err *e) {
    char *chunk = mem_new(CHUNK_BYTES, 1);
    int rc = chunk ? 0 : err_no_memory(e);
    hash_start(p);
    while (!rc && p->done < n) {
        uint64_t left = n - p->done;
        int64_t got = file_read_some(fd, chunk, left < CHUNK_BYTES ? left : CHUNK_BYTES, p->done);
        if (got <= 0) {
            rc = err_set(e, ERR_IO, "cannot read %s: %s", p->path,
                         got ? strerror(errno) : "the file was truncated while it was read");
            break;
        }
        registry_hash_add(&p->hash, chunk, (size_t)got);
        p->done += (uint64_t)got;
        if (report_progress(p)) rc = err_set(e, ERR_STOPPING, "stopped");
    }
    free(chunk);
    return rc;
}

static bool hash_is_right(struct part *p) {
    char hex[65];
    registry_hash_hex(&p->hash, hex);
    return strcmp(hex, p->d->file->hash) == 0;
}

static uint64_t size_of(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

uint64_t hub_file_have_bytes(const struct hub_file *file, const char *path) {
    char *part = mem_new(strlen(path) + SUFFIX_MAX, 1);
    if (!part) return 0;
    sprintf(part, "%s.part", path);
    uint64_t have = size_of(path) == file->size_bytes ? file->size_bytes : size_of(part);
    free(part);
    return have < file->size_bytes ? have : file->size_bytes;
}

/* ---- FILE.part and FILE.part.id ---- */

static int err_io(const char *what, const char *path, err *e) {
    return err_set(e, ERR_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

static void format_id(const struct hub_file *f, char id[ID_MAX]) {
    snprintf(id, ID_MAX, "%s %s %llu\n", f->lfs ? "sha256" : "git-blob", f->hash,
             (unsigned long long)f->size_bytes);
}

static bool id_is_right(const struct part *p) {
    char want[ID_MAX], have[ID_MAX];
    format_id(p->d->file, want);
    int fd = file_open(p->id_path, O_RDONLY, 0);
    int64_t n = fd < 0 ? -1 : file_read_some(fd, have, sizeof have, 0);
    if (fd >= 0) close(fd);
    return n == (int64_t)strlen(want) && memcmp(want, have, (size_t)n) == 0;
}

static int write_id(const struct part *p, err *e) {
    char id[ID_MAX];
    format_id(p->d->file, id);
    int fd = file_open(p->id_path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int rc = fd < 0 || file_write_at(fd, id, strlen(id), 0) ? err_io("write", p->id_path, e) : 0;
    if (fd >= 0 && close(fd) && !rc) rc = err_io("write", p->id_path, e);
    return rc;
}

static int part_empty(struct part *p, err *e) {
    hash_start(p);
    return file_truncate(p->fd, 0) ? err_io("empty", p->path, e) : 0;
}

/* Opens FILE.part; continues an earlier download if its id is that of the same file. */
static int part_open(struct part *p, err *e) {
    p->fd = file_open(p->path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
    if (p->fd < 0) return err_io("write", p->path, e);
    uint64_t have = size_of(p->path);
    if (have && have <= p->d->file->size_bytes && id_is_right(p))
        return hash_bytes(p, p->fd, have, e);
    /* Empty it before writing the id, so that the new id never describes old bytes. */
    int rc = part_empty(p, e);
    return rc ? rc : write_id(p, e);
}

static int write_all(struct part *p, const char *bytes, size_t n, err *e) {
    if (file_write_at(p->fd, bytes, n, p->done)) return err_io("write", p->path, e);
    registry_hash_add(&p->hash, bytes, n);
    p->done += n;
    return 0;
}

/* At a body's first bytes: checks that it begins where the part ends, or at 0. */
static int part_begin(struct part *p, const struct hub_reply *r, err *e) {
    const struct hub_file *f = p->d->file;
    p->begun = true;
    if (f->lfs && strlen(r->linked_etag) == 64 && strcmp(r->linked_etag, f->hash) != 0)
        return err_set(e, ERR_CHANGED, "the file changed since it was listed: try again");
    if (r->status == 200) return p->done ? part_empty(p, e) : 0;
    if (!r->has_range || r->range_from != p->done ||
        (r->range_total && r->range_total != f->size_bytes)) {
        p->misplaced = true;
        return err_set(e, ERR_CHANGED, "the server sent another range of bytes than requested");
    }
    return 0;
}

static int on_body(void *arg, const struct hub_reply *r, const void *bytes, size_t n, err *e) {
    struct part *p = arg;
    int rc = p->begun ? 0 : part_begin(p, r, e);
    if (rc) return rc;
    if (n > p->d->file->size_bytes - p->done)
        return err_set(e, ERR_FORMAT, "the server sends more than the %llu bytes that it listed",
                       (unsigned long long)p->d->file->size_bytes);
    return write_all(p, bytes, n, e);
}

/* ---- the download ---- */

/* Tries until all bytes have arrived. */
static int part_fill(struct part *p, err *e) {
    const struct hub_download *d = p->d;
    struct hub_retry retry = {0};
    struct hub_reply reply;
    uint32_t n_restarts = 0;
    int rc = 0;
    while (!rc && p->done < d->file->size_bytes) {
        const struct hub_request rq = {.path = d->url_path,
                                       .from = p->done,
                                       .body = on_body,
                                       .tick = report_progress,
                                       .arg = p};
        uint64_t before = p->done;
        p->begun = p->misplaced = false;
        rc = hub_http_get(d->http, &rq, &reply, e);
        if (!rc && p->done < d->file->size_bytes) {
            rc = err_set(e, ERR_IO, "the answer ended after %llu of %llu bytes",
                         (unsigned long long)p->done, (unsigned long long)d->file->size_bytes);
            reply.transient = true;
        }
        if (rc && before && (reply.status == 416 || p->misplaced) && n_restarts < MOST_RESTARTS) {
            n_restarts++;
            rc = part_empty(p, e);
            continue;
        }
        if (p->done > before + PROGRESS_BYTES) retry.n_failed = 0;
        if (rc) rc = hub_http_pause(d->http, &rq, &reply, &retry, e);
    }
    return rc;
}

/* Checks the hash, syncs the file and renames it. */
static int part_finish(struct part *p, err *e) {
    const struct hub_file *f = p->d->file;
    if (!hash_is_right(p)) {
        unlink(p->path);
        unlink(p->id_path);
        return err_set(e, ERR_FORMAT,
                       "its %s is not the one that the Hub lists (%.16s...): the download was "
                       "deleted, pull again",
                       f->lfs ? "SHA-256" : "git hash", f->hash);
    }
    if (file_sync(p->fd)) return err_io("sync", p->path, e);
    if (file_rename(p->path, p->d->path)) return err_io("rename", p->path, e);
    unlink(p->id_path);
    return file_sync_folder(p->d->path) ? err_io("sync the folder of", p->d->path, e) : 0;
}

/* 1: PATH exists with the right bytes; 0: it does not. */
static int file_exists(struct part *p, err *e) {
    const struct hub_download *d = p->d;
    if (size_of(d->path) != d->file->size_bytes) return 0;
    int fd = file_open(d->path, O_RDONLY, 0);
    if (fd < 0) return errno == ENOENT ? 0 : err_io("read", d->path, e);
    int rc = hash_bytes(p, fd, d->file->size_bytes, e);
    close(fd);
    return rc ? rc : hash_is_right(p);
}

int hub_file_get(const struct hub_download *d, err *e) {
    struct part p = {.d = d, .fd = -1};
    size_t n = strlen(d->path) + SUFFIX_MAX;
    p.path = mem_new(n, 1);
    p.id_path = mem_new(n, 1);
    int rc = p.path && p.id_path ? 0 : err_no_memory(e);
    if (!rc) {
        snprintf(p.path, n, "%s.part", d->path);
        snprintf(p.id_path, n, "%s.part.id", d->path);
        rc = file_exists(&p, e);
    }
    if (!rc) {
        rc = part_open(&p, e);
        if (!rc) rc = part_fill(&p, e);
        /* There is nothing to continue from. */
        if (rc && (rc == ERR_FORMAT || rc == ERR_CHANGED || p.done == 0)) {
            unlink(p.path);
            unlink(p.id_path);
        }
        if (!rc) rc = part_finish(&p, e);
        if (rc) err_prefix(e, "%s: ", d->file->name);
    }
    if (p.fd >= 0) close(p.fd);
    free(p.path);
    free(p.id_path);
    return rc < 0 ? rc : 0;
}
