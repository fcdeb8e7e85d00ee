/* file.c - what writers of files share, and readers of mapped ones. Owns nothing. */
#include "core/base/file.h"

#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int file_sync_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? mem_strndup(path, (size_t)(slash - path) + 1) : mem_strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int rc = fd < 0 ? -1 : fsync(fd), why = errno;
    if (fd >= 0) close(fd);
    free(folder);
    errno = why;
    return rc;
}

void file_read_pages(const void *data, uint64_t bytes) {
#ifdef MADV_POPULATE_READ
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)data / page * page;
    madvise((void *)first, (size_t)((uintptr_t)data + bytes - first), MADV_POPULATE_READ);
#else
    (void)data, (void)bytes;
#endif
}
