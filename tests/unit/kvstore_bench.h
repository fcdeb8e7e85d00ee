/* kvstore_bench.h - `test_kvstore bench`: a chain of 8,000 tokens of TinyLlama's shape (22 layers,
 * 4 KV heads of 64 in F16) read from its segments, decrypted, beside plain reads of the same files,
 * both from the page cache and in turns. Not a test: asserts nothing. */
#ifndef INFERD_TESTS_KVSTORE_BENCH_H
#define INFERD_TESTS_KVSTORE_BENCH_H

#include "core/base/file.h"
#include "tests/support/kvstore_kit.h"

#include <dirent.h>
#include <fcntl.h>

enum { BENCH_TOKENS = 16, BENCH_BLOCKS = 500, BENCH_ROUNDS = 15, BENCH_READ = 1 << 18 };
static const struct kvstore_shape bench_shape = {BENCH_TOKENS,
                                                 BENCH_TOKENS *(4 + 22 * 2 * 4 * 64 * 2), 0, 0};

static inline void bench_write(kvstore *ks, kvstore_space *sp, const struct kvstore_name *names) {
    const uint32_t most = kvstore_max_blocks(sp);
    for (uint32_t first = 0; first < BENCH_BLOCKS; first += most) {
        bool broken;
        struct kvstore_draft *d = kvstore_draft_take(sp, &broken);
        CHECK(d != NULL);
        if (!d) return;
        d->tenant = alice;
        d->first = first;
        d->n_blocks = BENCH_BLOCKS - first < most ? BENCH_BLOCKS - first : most;
        memset(d->has_window, 0, sizeof d->has_window);
        d->has_state = false;
        for (uint32_t i = 0; i < d->n_blocks; i++) {
            d->names[i] = names[first + i];
            memset(kvstore_draft_record(d, KVSTORE_BLOCK, i), (int)i, bench_shape.block_bytes);
        }
        kvstore_draft_submit(d);
        CHECK(kvstore_flush(ks, SOON));
    }
}

/* GB/s of one pass. */
static inline double bench_store(kvstore_space *sp, const struct kvstore_name *names) {
    uint8_t flags[BENCH_BLOCKS];
    struct kvstore_record record;
    kvstore_reading *r = NULL;
    int rc;
    err e;
    const uint64_t begin_ns = clock_now_ns();
    const struct kvstore_wanted wanted = {.tenant = alice,
                                          .names = names,
                                          .flags = flags,
                                          .n = kvstore_find(sp, names, BENCH_BLOCKS, flags),
                                          .notify = on_record};
    CHECK(kvstore_read(sp, &wanted, &r, &e) == 0);
    uint64_t bytes = 0;
    for (;;) {
        pthread_mutex_lock(&bell.lock);
        while ((rc = kvstore_reading_next(r, &record)) == 0)
            pthread_cond_wait(&bell.came, &bell.lock);
        pthread_mutex_unlock(&bell.lock);
        if (rc < 0) break;
        bytes += bench_shape.block_bytes;
        kvstore_reading_pop(r);
    }
    kvstore_reading_close(r);
    CHECK(rc == ERR_EXISTS && bytes == BENCH_BLOCKS * bench_shape.block_bytes);
    return (double)bytes / (double)(clock_now_ns() - begin_ns);
}

static inline double bench_plain(uint8_t *buffer) {
    const uint64_t begin_ns = clock_now_ns();
    uint64_t bytes = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char path[2 * PATH_MAX];
        ssize_t n;
        if (!strstr(d->d_name, ".kv")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        int fd = open(path, O_RDONLY);
        while (fd >= 0 && (n = read(fd, buffer, BENCH_READ)) > 0)
            bytes += (uint64_t)n;
        if (fd >= 0) close(fd);
    }
    if (dir) closedir(dir);
    return (double)bytes / (double)(clock_now_ns() - begin_ns);
}

static inline int bench_order(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline void kvstore_bench(void) {
    static int32_t tokens[BENCH_BLOCKS * BENCH_TOKENS];
    static struct kvstore_name names[BENCH_BLOCKS];
    double store[BENCH_ROUNDS], plain[BENCH_ROUNDS];
    uint8_t *buffer = malloc(BENCH_READ);
    kvstore_space *sp = NULL;
    err e;
    fresh_folder("bench");
    struct kvstore_config c = config_of();
    kvstore *ks = open_with(&c);
    const struct kvstore_space_config space = {"bench", "bench", bench_shape, {0}};
    CHECK(kvstore_space_open(ks, &space, &sp, &e) == 0);
    for (int32_t i = 0; i < BENCH_BLOCKS * BENCH_TOKENS; i++)
        tokens[i] = i;
    kvstore_names(sp, alice, NULL, tokens, BENCH_BLOCKS, names);
    bench_write(ks, sp, names);
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        plain[i] = bench_plain(buffer);
        store[i] = bench_store(sp, names);
    }
    qsort(store, BENCH_ROUNDS, sizeof store[0], bench_order);
    qsort(plain, BENCH_ROUNDS, sizeof plain[0], bench_order);
    const int last = BENCH_ROUNDS - 1, half = BENCH_ROUNDS / 2;
    printf("plain reads       %5.2f GB/s median, %5.2f best\n", plain[half], plain[last]);
    printf("read, decrypted   %5.2f GB/s median, %5.2f best\n", store[half], store[last]);
    printf("of plain reads    %5.0f %%   median, %5.0f %% best\n", 100 * store[half] / plain[half],
           100 * store[last] / plain[last]);
    kvstore_space_close(sp);
    kvstore_close(ks);
    free(buffer);
}

#endif
