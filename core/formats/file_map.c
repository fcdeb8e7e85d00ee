/* file_map.c - maps files. Owns the mapping, never its bytes' meaning. Any thread. */
#include "core/formats/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Zeroed memory of n bytes, a multiple of FILE_MAP_ALIGN, at such a multiple. */
static uint8_t *reserve(uint64_t n) {
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
    if (fstat(fd, &st)) return err_set(e, ERR_IO, "%s: cannot stat: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return err_set(e, ERR_IO, "%s: not a regular file", path);
    if (st.st_size == 0) return 0;
    if ((uint64_t)st.st_size > SIZE_MAX - 2 * FILE_MAP_ALIGN)
        return err_set(e, ERR_UNSUPPORTED, "%s: too large for this machine's addresses", path);
    struct file_map map = {.bytes = (uint64_t)st.st_size};
    uint8_t *p = reserve(file_map_readable_bytes(&map));
    map.base = p;
    /* Shared: there is no private copy of a page for a GPU's driver to make when it wires it. */
    if (!p || mmap(p, (size_t)map.bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int rc = err_set(e, ERR_IO, "%s: cannot map: %s", path, strerror(errno));
        file_map_close(&map);
        return rc;
    }
    *m = map;
    return 0;
}

/* O_NONBLOCK: a FIFO in place of the file must not hold up the opener. */
int file_map_open(const char *path, struct file_map *m, err *e) {
    m->base = NULL;
    m->bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return err_set(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    int rc = map_fd(fd, path, m, e);
    close(fd);
    return rc;
}

void file_map_close(struct file_map *m) {
    if (m->base) munmap((void *)(uintptr_t)m->base, (size_t)file_map_readable_bytes(m));
    m->base = NULL;
    m->bytes = 0;
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
