/* file_map.c - maps files. Owns the mapping, never its bytes' meaning. Any thread. */
#include "core/formats/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int map_fd(int fd, const char *path, struct file_map *m, err *e) {
    struct stat st;
    if (fstat(fd, &st)) return err_set(e, ERR_IO, "%s: cannot stat: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return err_set(e, ERR_IO, "%s: not a regular file", path);
    if (st.st_size == 0) return 0;
    if ((uint64_t)st.st_size > SIZE_MAX)
        return err_set(e, ERR_UNSUPPORTED, "%s: too large for this machine's addresses", path);
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return err_set(e, ERR_IO, "%s: cannot map: %s", path, strerror(errno));
    m->base = p;
    m->bytes = (uint64_t)st.st_size;
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
    if (m->base) munmap((void *)(uintptr_t)m->base, (size_t)m->bytes);
    m->base = NULL;
    m->bytes = 0;
}

void file_map_drop_pages(const struct file_map *m) {
    if (m->base) madvise((void *)(uintptr_t)m->base, (size_t)m->bytes, MADV_DONTNEED);
}

void file_map_will_need(const void *data, uint64_t n) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)data / page * page;
    madvise((void *)first, (size_t)((uintptr_t)data + n - first), MADV_WILLNEED);
}
