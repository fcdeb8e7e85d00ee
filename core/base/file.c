/* file.c - what writers of files share. Owns nothing. */
#include "core/base/file.h"

#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
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
