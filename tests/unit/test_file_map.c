/* test_file_map.c - mapped files begin at 16 KiB, are readable to the end of their last 16 KiB, and
 * hold the file's bytes, then zeros. */
#include "core/formats/file_map.h"
#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>
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
    for (int i = 0; i < N; i++) /* all at once: none lies in another's memory */
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
    RUN(remove_folder);
    return check_done();
}
