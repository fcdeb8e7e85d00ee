/* file.c - file system calls with retries and injected faults. Owns nothing. */
#include "core/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- injected faults ---- */

enum fault { FAULT_NONE, FAULT_ERROR, FAULT_SHORT };

static atomic_uint_fast64_t fault_in; /* file_fail_at; 0: none */
static atomic_int fault_errno;

uint64_t file_fail_at(uint64_t n, int why) {
    atomic_store(&fault_errno, why);
    return atomic_exchange(&fault_in, n);
}

/* Counts a call. errno is set for FAULT_ERROR. */
static enum fault next_fault(void) {
    uint_fast64_t left = atomic_load(&fault_in);
    while (left && !atomic_compare_exchange_weak(&fault_in, &left, left - 1))
        ;
    if (left != 1) return FAULT_NONE;
    int why = atomic_load(&fault_errno);
    if (!why) return FAULT_SHORT;
    errno = why;
    return FAULT_ERROR;
}

bool file_fails(void) {
    return next_fault() == FAULT_ERROR;
}

/* ---- system calls ---- */

int file_open(const char *path, int flags, unsigned mode) {
    int fd;
    if (file_fails()) return -1;
    do
        fd = open(path, flags | O_CLOEXEC, (mode_t)mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

int file_truncate(int fd, uint64_t n) {
    int rc;
    if (file_fails()) return -1;
    do
        rc = ftruncate(fd, (off_t)n);
    while (rc && errno == EINTR);
    return rc;
}

int file_sync(int fd) {
    int rc;
    if (file_fails()) return -1;
    do
        rc = fsync(fd);
    while (rc && errno == EINTR);
    return rc;
}

int file_rename(const char *from, const char *to) {
    return file_fails() ? -1 : rename(from, to);
}

int64_t file_read_some(int fd, void *to, uint64_t n, uint64_t offset) {
    enum fault fault = next_fault();
    ssize_t got;
    if (fault == FAULT_ERROR) return -1;
    if (fault == FAULT_SHORT && n > 1) n = 1;
    do
        got = pread(fd, to, (size_t)n, (off_t)offset);
    while (got < 0 && errno == EINTR);
    return got;
}

int file_read_at(int fd, void *to, uint64_t n, uint64_t offset) {
    for (uint64_t done = 0; done < n;) {
        int64_t got = file_read_some(fd, (char *)to + done, n - done, offset + done);
        if (got == 0) errno = 0;
        if (got <= 0) return -1;
        done += (uint64_t)got;
    }
    return 0;
}

int file_write_at(int fd, const void *from, uint64_t n, uint64_t offset) {
    enum fault fault = next_fault();
    if (fault == FAULT_ERROR) return -1;
    for (uint64_t done = 0; done < n;) {
        uint64_t left = fault == FAULT_SHORT && done == 0 ? 1 : n - done;
        ssize_t put = pwrite(fd, (const char *)from + done, (size_t)left, (off_t)(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put == 0) errno = ENOSPC;
        if (put <= 0) return -1;
        done += (uint64_t)put;
    }
    return 0;
}

int file_sync_folder(const char *path) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) + 1 : 1;
    if (n >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    snprintf(folder, sizeof folder, "%.*s", n, slash ? path : ".");
    int fd = file_open(folder, O_RDONLY | O_DIRECTORY, 0);
    int rc = fd < 0 ? -1 : file_sync(fd), why = errno;
    if (fd >= 0) close(fd);
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
