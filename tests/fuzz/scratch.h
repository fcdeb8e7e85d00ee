/* scratch.h - a target's input as a file, for functions that open a path. One file per process,
 * removed at its end; every call overwrites it. */
#ifndef INFERD_FUZZ_SCRATCH_H
#define INFERD_FUZZ_SCRATCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char scratch_path[256];
static int scratch_fd = -1;

static void scratch_remove(void) {
    unlink(scratch_path);
}

static const char *scratch_file(const void *bytes, size_t n) {
    if (scratch_fd < 0) {
        const char *folder = getenv("TMPDIR");
        snprintf(scratch_path, sizeof scratch_path, "%s/inferd-fuzz-XXXXXX",
                 folder ? folder : "/tmp");
        scratch_fd = mkstemp(scratch_path);
        if (scratch_fd < 0 || atexit(scratch_remove)) abort();
    }
    if (ftruncate(scratch_fd, 0) || pwrite(scratch_fd, bytes, n, 0) != (ssize_t)n) abort();
    return scratch_path;
}

#endif
