/* program.c - asks the system, not argv[0], which a caller may set to anything. */
#include "core/base/program.h"

#include "core/base/file.h"
#include "core/base/mem.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#include <mach/mach.h>
#endif

void program_path(char *out, size_t n) {
    out[0] = '\0';
#ifdef __APPLE__
    uint32_t room = (uint32_t)n;
    char *real = _NSGetExecutablePath(out, &room) ? NULL : realpath(out, NULL);
    out[0] = '\0';
    if (real && strlen(real) < n) memcpy(out, real, strlen(real) + 1);
    free(real);
#else
    ssize_t got = readlink("/proc/self/exe", out, n);
    out[got > 0 && (size_t)got < n ? got : 0] = '\0';
#endif
}

void program_folder(char *out, size_t n) {
    program_path(out, n);
    char *slash = strrchr(out, '/');
    if (slash) slash[1] = '\0';
}

enum { HASHED_BYTES = 1 << 20 };

int program_hash_file(const char *path, struct hash128 *hash) {
    struct stat st = {0};
    char *bytes = mem_new(HASHED_BYTES, 1);
    int fd = bytes ? file_open(path, O_RDONLY, 0) : -1;
    bool ok = fd >= 0 && !fstat(fd, &st);
    for (uint64_t at = 0, n; ok && at < (uint64_t)st.st_size; at += n) {
        n = (uint64_t)st.st_size - at < HASHED_BYTES ? (uint64_t)st.st_size - at : HASHED_BYTES;
        ok = !file_read_at(fd, bytes, n, at);
        *hash = siphash128(*hash, bytes, (size_t)n);
    }
    if (fd >= 0) close(fd);
    free(bytes);
    return ok ? 0 : -1;
}

uint64_t program_resident_bytes(void) {
#ifdef __APPLE__
    struct mach_task_basic_info info;
    mach_msg_type_number_t n = MACH_TASK_BASIC_INFO_COUNT;
    /* cppcheck-suppress uninitvar ; task_info fills it */
    if (task_info(mach_task_self(), MACH_TASK_BASIC_INFO, (task_info_t)&info, &n)) return 0;
    return info.resident_size;
#else
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f || fscanf(f, "%*u %llu", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
#endif
}
