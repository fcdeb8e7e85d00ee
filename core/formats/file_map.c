/* file_map.c - maps files. Owns the mappings and the list of all of them, in which the SIGBUS
 * handler looks up the faulting address. Any thread. */
#include "core/formats/file_map.h"

#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Tells whether a file was written to. */
struct identity {
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec written;
};

enum region_state { REGION_SAME, REGION_LOST, REGION_WRITTEN };

/* A list entry. It is reused after its map was closed and never freed, because the signal handler
 * may be walking the list. */
struct file_region {
    struct file_region *next;      /* fixed */
    _Atomic(const uint8_t *) base; /* NULL: not in use */
    atomic_size_t bytes;           /* mapped at base */
    atomic_int state;              /* enum region_state */
    bool used, gone;               /* these and the following: guarded by lock; gone: logged */
    uint64_t number;               /* serial number of its map */
    char *path;
    struct identity identity;
};
static _Atomic(struct file_region *) regions;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for writers of the list */
static uint64_t n_maps;                                  /* guarded by lock */
static uintptr_t page_bytes = 4096;                      /* fixed by file_map_guard */

static struct identity file_identity(const struct stat *st) {
#ifdef __APPLE__
    const struct timespec written = st->st_mtimespec;
#else
    const struct timespec written = st->st_mtim;
#endif
    return (struct identity){st->st_dev, st->st_ino, st->st_size, written};
}

/* ---- the list ---- */

static struct file_region *find_free_region(void) {
    struct file_region *r = atomic_load(&regions);
    while (r && r->used)
        r = r->next;
    if (r || !(r = mem_new(1, sizeof *r))) return r;
    r->next = atomic_load(&regions);
    atomic_store(&regions, r);
    return r;
}

static int region_open(struct file_map *m, const char *path, const struct stat *st, err *e) {
    char *copy = mem_strdup(path);
    pthread_mutex_lock(&lock);
    struct file_region *r = copy ? find_free_region() : NULL;
    if (r) {
        r->used = true;
        r->gone = false;
        r->number = ++n_maps;
        r->path = copy;
        r->identity = file_identity(st);
        atomic_store(&r->state, REGION_SAME);
        atomic_store(&r->bytes, (size_t)file_map_readable_bytes(m));
        atomic_store(&r->base, m->base);
    }
    pthread_mutex_unlock(&lock);
    m->region = r;
    if (r) return 0;
    free(copy);
    return err_no_memory(e);
}

static void region_close(struct file_region *r) {
    pthread_mutex_lock(&lock);
    atomic_store(&r->base, NULL);
    r->used = false;
    free(r->path);
    r->path = NULL;
    pthread_mutex_unlock(&lock);
}

/* Copy of a region's fields, so that the lock is not held during stat. */
struct snapshot {
    uint64_t number;
    struct identity identity;
    char path[PATH_MAX];
};

static bool copy_region(struct file_region *r, struct snapshot *out) {
    pthread_mutex_lock(&lock);
    bool used = r->used && !r->gone && atomic_load(&r->state) == REGION_SAME;
    if (used) {
        out->number = r->number;
        out->identity = r->identity;
        used = (size_t)snprintf(out->path, sizeof out->path, "%s", r->path) < sizeof out->path;
    }
    pthread_mutex_unlock(&lock);
    return used;
}

/* The name leads to another file now, or to none: the mapped file itself is unchanged. */
static void note_gone(struct file_region *r, const struct snapshot *l) {
    pthread_mutex_lock(&lock);
    if (r->number == l->number) r->gone = true;
    pthread_mutex_unlock(&lock);
    log_warn("%s was replaced or removed: the opened version stays in use until a restart",
             l->path);
}

static void compare_file(struct file_region *r, const struct snapshot *l) {
    struct stat st;
    const struct identity *was = &l->identity;
    if (stat(l->path, &st)) {
        if (errno == ENOENT || errno == ENOTDIR) note_gone(r, l);
        return;
    }
    struct identity is = file_identity(&st);
    if (is.device != was->device || is.inode != was->inode) {
        note_gone(r, l);
        return;
    }
    if (is.bytes == was->bytes && is.written.tv_sec == was->written.tv_sec &&
        is.written.tv_nsec == was->written.tv_nsec)
        return;
    int same = REGION_SAME;
    pthread_mutex_lock(&lock);
    bool noted = r->used && r->number == l->number &&
                 atomic_compare_exchange_strong(&r->state, &same, REGION_WRITTEN);
    pthread_mutex_unlock(&lock);
    if (noted) log_error("%s was written to while in use", l->path);
}

void file_map_look(void) {
    struct snapshot l;
    for (struct file_region *r = atomic_load(&regions); r; r = r->next)
        if (copy_region(r, &l)) compare_file(r, &l);
}

int file_map_check(const struct file_map *m, err *e) {
    int state = m->region ? atomic_load(&m->region->state) : REGION_SAME;
    if (state == REGION_SAME) return 0;
    return err_set(e, ERR_CHANGED, "%s %s: restore the file and restart", m->region->path,
                   state == REGION_LOST ? "was truncated or became unreadable while in use"
                                        : "was written to while in use");
}

/* ---- SIGBUS ---- */

/* Replaces the region from the page of `at` on by zeros; earlier pages may still be valid. mmap is
 * safe in a signal handler on the supported systems: it is a plain system call. */
static bool put_zeros(struct file_region *r, uintptr_t at) {
    uintptr_t base = (uintptr_t)atomic_load(&r->base), end = base + atomic_load(&r->bytes);
    if (!base || at < base || at >= end) return false;
    uintptr_t from = at / page_bytes * page_bytes;
    atomic_store(&r->state, REGION_LOST);
    return mmap((void *)from, end - from, PROT_READ, MAP_PRIVATE | MAP_ANON | MAP_FIXED, -1, 0) !=
           MAP_FAILED;
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
    int kept = errno;
    (void)context;
    for (struct file_region *r = atomic_load(&regions); r; r = r->next)
        if (put_zeros(r, (uintptr_t)info->si_addr)) {
            errno = kept;
            return;
        }
    signal(number, SIG_DFL); /* not ours: the repeated access ends the process */
}

int file_map_guard(err *e) {
    struct sigaction act = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&act.sa_mask);
    if (sigaction(SIGBUS, &act, NULL))
        return err_set(e, ERR_IO, "cannot handle SIGBUS: %s", strerror(errno));
    return 0;
}

/* ---- maps ---- */

/* Maps n zeroed bytes; n and the address are multiples of FILE_MAP_ALIGN. */
static uint8_t *map_zeros(uint64_t n) {
    size_t all = (size_t)n + FILE_MAP_ALIGN;
    uint8_t *p = mmap(NULL, all, PROT_READ, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t before = (FILE_MAP_ALIGN - (uintptr_t)p % FILE_MAP_ALIGN) % FILE_MAP_ALIGN;
    if (before) munmap(p, before);
    if (before < FILE_MAP_ALIGN) munmap(p + before + n, FILE_MAP_ALIGN - before);
    return p + before;
}

static int map_fd(int fd, const char *path, struct file_map *m, err *e) {
    struct stat st;
    if (file_fails() || fstat(fd, &st))
        return err_set(e, ERR_IO, "%s: cannot stat: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return err_set(e, ERR_IO, "%s: not a regular file", path);
    if (st.st_size == 0) return 0;
    if ((uint64_t)st.st_size > SIZE_MAX - 2 * FILE_MAP_ALIGN)
        return err_set(e, ERR_UNSUPPORTED, "%s: too large for this machine's address space", path);
    struct file_map map = {.bytes = (uint64_t)st.st_size};
    uint8_t *p = map_zeros(file_map_readable_bytes(&map));
    map.base = p;
    /* Shared: with a private mapping a GPU driver would copy pages when it wires them. */
    if (!p || file_fails() ||
        mmap(p, (size_t)map.bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int rc = err_set(e, ERR_IO, "%s: cannot map: %s", path, strerror(errno));
        file_map_close(&map);
        return rc;
    }
    int rc = region_open(&map, path, &st, e);
    if (rc)
        file_map_close(&map);
    else
        *m = map;
    return rc;
}

/* O_NONBLOCK: opening a FIFO must not block. */
int file_map_open(const char *path, struct file_map *m, err *e) {
    *m = (struct file_map){0};
    int fd = file_open(path, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0) return err_set(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    int rc = map_fd(fd, path, m, e);
    close(fd);
    return rc;
}

void file_map_close(struct file_map *m) {
    if (m->region) region_close(m->region);
    if (m->base) munmap((void *)(uintptr_t)m->base, (size_t)file_map_readable_bytes(m));
    *m = (struct file_map){0};
}

uint64_t file_map_readable_bytes(const struct file_map *m) {
    return (m->bytes + FILE_MAP_ALIGN - 1) / FILE_MAP_ALIGN * FILE_MAP_ALIGN;
}

void file_map_drop_pages(const struct file_map *m) {
    if (m->base) madvise((void *)(uintptr_t)m->base, (size_t)m->bytes, MADV_DONTNEED);
}

void file_map_will_need(const void *data, uint64_t n) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)data / page * page;
    madvise((void *)first, (size_t)((uintptr_t)data + n - first), MADV_WILLNEED);
}
