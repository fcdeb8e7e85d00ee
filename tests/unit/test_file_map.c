/* test_file_map.c - mapped files begin at 16 KiB, are readable to the end of their last 16 KiB, and
 * hold the file's bytes, then zeros; effects of truncating, writing, replacing and removing the
 * file. */
#include "core/formats/file_map.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/inferd-map-XXXXXX";

static uint8_t byte_at(uint64_t i) {
    return (uint8_t)(1 + i % 251);
}

/* A file of n bytes, none of them 0. */
static const char *make_file(uint64_t n) {
    static char path[64];
    snprintf(path, sizeof path, "%s/%llu", folder, (unsigned long long)n);
    FILE *f = fopen(path, "wb");
    CHECK(f != NULL);
    for (uint64_t i = 0; f && i < n; i++)
        fputc(byte_at(i), f);
    CHECK(f && fclose(f) == 0);
    return path;
}

static void check_bytes(const struct file_map *m) {
    uint64_t bad = 0;
    for (uint64_t i = 0; i < file_map_readable_bytes(m); i++)
        bad += m->base[i] != (i < m->bytes ? byte_at(i) : 0);
    CHECK_MSG(!bad, "%llu bytes: %llu differ", (unsigned long long)m->bytes,
              (unsigned long long)bad);
}

static void whole_units_of_16_kib_are_readable(void) {
    static const uint64_t sizes[] = {1,     4095,  4096,  4097,  16383,  16384,
                                     16385, 20480, 20481, 49152, 100000, 1u << 20};
    enum { N = sizeof sizes / sizeof sizes[0] };
    struct file_map maps[N];
    err e = {0};
    for (int i = 0; i < N; i++) {
        const char *path = make_file(sizes[i]);
        CHECK_MSG(file_map_open(path, &maps[i], &e) == 0, "%s", e.msg);
        CHECK(unlink(path) == 0);
        CHECK(maps[i].base && (uintptr_t)maps[i].base % FILE_MAP_ALIGN == 0);
        CHECK(maps[i].bytes == sizes[i]);
        CHECK(file_map_readable_bytes(&maps[i]) ==
              (sizes[i] + FILE_MAP_ALIGN - 1) / FILE_MAP_ALIGN * FILE_MAP_ALIGN);
    }
    for (int i = 0; i < N; i++) /* all at once: no map overlaps another */
        check_bytes(&maps[i]);
    for (int i = 0; i < N; i += 2)
        file_map_close(&maps[i]);
    for (int i = 1; i < N; i += 2) {
        file_map_drop_pages(&maps[i]);
        check_bytes(&maps[i]);
        file_map_close(&maps[i]);
        CHECK(!maps[i].base && !maps[i].bytes);
    }
}

static void nothing_is_mapped_of_nothing(void) {
    struct file_map m;
    err e = {0};
    const char *path = make_file(0);
    CHECK(file_map_open(path, &m, &e) == 0 && !m.base && file_map_readable_bytes(&m) == 0);
    file_map_close(&m);
    CHECK(unlink(path) == 0 && file_map_open(path, &m, &e) == ERR_IO && !m.base);
    CHECK(file_map_open(folder, &m, &e) == ERR_IO && !m.base);
}

/* ---- files that change ---- */

enum { CUT_FILE_BYTES = 300000, CUT_TO = 70000, N_READERS = 4 };

/* Reads the last byte until the map is marked as lost. */
static void *read_end(void *map) {
    const struct file_map *m = map;
    const volatile uint8_t *last = m->base + m->bytes - 1;
    for (int i = 0; i < 100000000 && (*last || !file_map_check(m, NULL)); i++)
        ;
    return NULL;
}

/* Several threads access a page when it is lost; the pages before the cut keep the file's bytes. */
static void a_file_that_is_cut_reads_as_zeros(void) {
    struct file_map m, other;
    pthread_t readers[N_READERS];
    err e = {0};
    const char *path = make_file(CUT_FILE_BYTES);
    CHECK(file_map_open(path, &m, &e) == 0 && file_map_open(path, &other, &e) == 0);
    for (int i = 0; i < N_READERS; i++)
        CHECK(pthread_create(&readers[i], NULL, read_end, &m) == 0);
    CHECK(truncate(path, CUT_TO) == 0);
    for (int i = 0; i < N_READERS; i++)
        CHECK(pthread_join(readers[i], NULL) == 0);
    CHECK(file_map_check(&m, &e) == ERR_CHANGED && strstr(e.msg, path));
    uint64_t bad = 0;
    for (uint64_t i = 0; i < file_map_readable_bytes(&m); i++)
        bad += m.base[i] != (i < CUT_TO ? byte_at(i) : 0);
    CHECK_MSG(!bad, "%llu bytes differ", (unsigned long long)bad);
    CHECK(file_map_check(&other, &e) == 0); /* not accessed, so not checked */
    file_map_look();
    CHECK(file_map_check(&other, &e) == ERR_CHANGED);
    file_map_close(&m);
    file_map_close(&other);
    CHECK(file_map_open(path, &m, &e) == 0 && file_map_check(&m, &e) == 0 && m.bytes == CUT_TO);
    file_map_close(&m);
    CHECK(unlink(path) == 0);
}

static void a_file_that_is_written_to_is_noticed(void) {
    static const struct timespec early[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    struct file_map m;
    err e = {0};
    const char *path = make_file(5000);
    CHECK(utimensat(AT_FDCWD, path, early, 0) == 0 && file_map_open(path, &m, &e) == 0);
    CHECK(chmod(path, 0600) == 0); /* its bytes and their time are unchanged */
    file_map_look();
    CHECK(file_map_check(&m, &e) == 0);
    int fd = open(path, O_WRONLY);
    CHECK(pwrite(fd, "x", 1, 100) == 1 && close(fd) == 0);
    CHECK(file_map_check(&m, &e) == 0);
    file_map_look();
    CHECK(file_map_check(&m, &e) == ERR_CHANGED && strstr(e.msg, path));
    file_map_close(&m);
    CHECK(unlink(path) == 0);
}

static void a_file_that_was_replaced_stays_what_it_was(void) {
    struct file_map m;
    char path[64];
    err e = {0};
    snprintf(path, sizeof path, "%s", make_file(5000));
    CHECK(file_map_open(path, &m, &e) == 0);
    CHECK(rename(make_file(6000), path) == 0);
    file_map_look();
    CHECK(file_map_check(&m, &e) == 0);
    CHECK(unlink(path) == 0);
    file_map_look();
    CHECK(file_map_check(&m, &e) == 0 && m.bytes == 5000);
    check_bytes(&m);
    file_map_close(&m);
}

/* In a separate process, which it ends. */
static void another_bus_error_ends_the_process(void) {
    char path[64];
    int status = -1;
    snprintf(path, sizeof path, "%s", make_file(100000));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        int fd = open(path, O_RDONLY);
        const volatile uint8_t *p = mmap(NULL, 100000, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED || truncate(path, 0)) _exit(10);
        _exit(p[50000] ? 11 : 12);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_MSG(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS, "status %d", status);
    CHECK(unlink(path) == 0);
}

static void guard(void) {
    err e = {0};
    CHECK(file_map_guard(&e) == 0);
}

static void make_folder(void) {
    CHECK(mkdtemp(folder) != NULL);
}

static void remove_folder(void) {
    CHECK(rmdir(folder) == 0);
}

int main(void) {
    RUN(make_folder);
    RUN(whole_units_of_16_kib_are_readable);
    RUN(nothing_is_mapped_of_nothing);
    RUN(guard);
    RUN(a_file_that_is_cut_reads_as_zeros);
    RUN(a_file_that_is_written_to_is_noticed);
    RUN(a_file_that_was_replaced_stays_what_it_was);
    RUN(another_bus_error_ends_the_process);
    RUN(remove_folder);
    return check_done();
}
