/* kvstore_kit.h - a KV store in a folder of its own: segments whose every byte depends on all that
 * names it, written and read back. For one test program. */
#ifndef INFERD_TESTS_SUPPORT_KVSTORE_KIT_H
#define INFERD_TESTS_SUPPORT_KVSTORE_KIT_H

#include "core/base/clock.h"
#include "core/kvstore/kvstore.h"
#include "tests/unit/check.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { BLOCK_TOKENS = 4, BLOCK = 1000, WINDOW = 300, STATE = 777, MAX_N = 40 };
#define SOON (clock_now_ns() + UINT64_C(20000000000))

static char root[PATH_MAX], folder[PATH_MAX + 64], secret[PATH_MAX + 64];
static const struct hash128 alice = {1, 2}, bob = {3, 4};
static const struct kvstore_shape shape = {BLOCK_TOKENS, BLOCK, WINDOW, STATE};

static inline void run_shell(const char *format, const char *a, const char *b) {
    char command[4 * PATH_MAX];
    snprintf(command, sizeof command, format, a, b);
    CHECK_MSG(system(command) == 0, "%s", command);
}

static inline void fresh_folder(const char *name) {
    snprintf(folder, sizeof folder, "%s/%s", root, name);
    snprintf(secret, sizeof secret, "%s/%s.key", root, name);
    run_shell("rm -rf '%s' '%s'", folder, secret);
}

static inline struct kvstore_config config_of(void) {
    return (struct kvstore_config){.folder = folder,
                                   .secret = secret,
                                   .version = "1",
                                   .max_bytes = 1 << 30,
                                   .max_files = 1000};
}

static inline kvstore *open_with(const struct kvstore_config *config) {
    kvstore *ks = NULL;
    err e;
    err_clear(&e);
    int rc = kvstore_open(config, &ks, &e);
    CHECK_MSG(rc == 0, "%s", e.msg);
    if (rc) exit(1);
    return ks;
}

static inline kvstore_space *space_of(kvstore *ks, const char *identity) {
    kvstore_space *sp = NULL;
    err e;
    const struct kvstore_space_config c = {"model", identity, shape, {0}};
    CHECK(kvstore_space_open(ks, &c, &sp, &e) == 0);
    return sp;
}

/* A chain of tokens that only `which` has. */
static inline void tokens_of(int which, int32_t tokens[MAX_N * BLOCK_TOKENS]) {
    for (int i = 0; i < MAX_N * BLOCK_TOKENS; i++)
        tokens[i] = which * 1000 + i;
}

static inline void names_of(kvstore_space *sp, struct hash128 tenant, int which,
                            struct kvstore_name names[MAX_N]) {
    int32_t tokens[MAX_N * BLOCK_TOKENS];
    tokens_of(which, tokens);
    kvstore_names(sp, tenant, NULL, tokens, MAX_N, names);
}

/* Byte i of a record, which depends on all that names it; a block's begins with its tokens. */
static inline uint8_t byte_of(int which, uint32_t block, int what, uint64_t i) {
    if (what == KVSTORE_BLOCK && i < 4 * BLOCK_TOKENS)
        return (uint8_t)((uint32_t)(which * 1000 + (int)(block * BLOCK_TOKENS + i / 4)) >>
                         8 * (i % 4));
    return (uint8_t)(which * 31 + (int)block * 7 + what * 3 + (int)(i * 13 % 251));
}

static inline void fill(uint8_t *to, uint64_t n, int which, uint32_t block, int what) {
    for (uint64_t i = 0; i < n; i++)
        to[i] = byte_of(which, block, what, i);
}

static const uint64_t sizes[] = {
    [KVSTORE_BLOCK] = BLOCK, [KVSTORE_WINDOW] = WINDOW, [KVSTORE_STATE] = STATE};

/* Submits blocks [first, first + n) of a chain: every second one with its window, the last one with
 * a state. */
static inline bool put(kvstore_space *sp, struct hash128 tenant, int which, uint32_t first,
                       uint32_t n) {
    struct kvstore_name names[MAX_N];
    bool broken;
    struct kvstore_draft *d = kvstore_draft_take(sp, &broken);
    if (!d) return false;
    names_of(sp, tenant, which, names);
    d->tenant = tenant;
    d->first = first;
    d->n_blocks = n;
    d->has_state = true;
    for (uint32_t i = 0; i < n; i++) {
        d->names[i] = names[first + i];
        d->has_window[i] = (first + i) % 2;
    }
    for (uint32_t i = 0; i < n; i++) {
        fill(kvstore_draft_record(d, KVSTORE_BLOCK, i), BLOCK, which, first + i, KVSTORE_BLOCK);
        if (d->has_window[i])
            fill(kvstore_draft_record(d, KVSTORE_WINDOW, i), WINDOW, which, first + i,
                 KVSTORE_WINDOW);
    }
    fill(kvstore_draft_record(d, KVSTORE_STATE, 0), STATE, which, first + n - 1, KVSTORE_STATE);
    kvstore_draft_submit(d);
    return true;
}

/* ---- reading ---- */

struct waiting {
    pthread_mutex_t lock;
    pthread_cond_t came;
    int n;
};

/* Of the reading that is open; one that was closed may be told of until its space is closed. */
static struct waiting bell = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

static inline void on_record(void *arg) {
    (void)arg;
    pthread_mutex_lock(&bell.lock);
    bell.n++;
    pthread_cond_signal(&bell.came);
    pthread_mutex_unlock(&bell.lock);
}

/* Reads what the store has of the first n blocks and compares every byte. Returns how many records
 * came; *found: how many blocks were said to be there. */
static inline int get(kvstore_space *sp, struct hash128 tenant, int which, uint32_t n,
                      uint32_t *found) {
    struct kvstore_name names[MAX_N];
    struct kvstore_record record;
    kvstore_reading *r = NULL;
    uint8_t flags[MAX_N];
    int n_records = 0, rc;
    err e;
    names_of(sp, tenant, which, names);
    *found = kvstore_find(sp, names, n, flags);
    if (!*found) return 0;
    const struct kvstore_wanted wanted = {
        .tenant = tenant, .names = names, .flags = flags, .n = *found, .notify = on_record};
    CHECK(kvstore_read(sp, &wanted, &r, &e) == 0);
    while ((rc = kvstore_reading_next(r, &record)) >= 0) {
        if (rc == 0) {
            pthread_mutex_lock(&bell.lock);
            while (!bell.n)
                pthread_cond_wait(&bell.came, &bell.lock);
            bell.n = 0;
            pthread_mutex_unlock(&bell.lock);
            continue;
        }
        bool same = true;
        for (uint64_t i = 0; i < sizes[record.what]; i++)
            same = same && record.bytes[i] == byte_of(which, record.block, record.what, i);
        CHECK_MSG(same, "chain %d, block %u, record %d", which, record.block, record.what);
        n_records++;
        kvstore_reading_pop(r);
    }
    CHECK(rc == ERR_EXISTS || rc == ERR_NOT_FOUND);
    kvstore_reading_close(r);
    return n_records;
}

static inline struct kvstore_stats stats_of(kvstore *ks) {
    struct kvstore_stats s;
    kvstore_stats_get(ks, &s);
    return s;
}

/* In memory where possible: hundreds of folders are synced. */
static inline void make_root(void) {
    const char *tmp = getenv("TMPDIR");
    if (!tmp) tmp = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    snprintf(root, sizeof root, "%s/inferd-kvstore-XXXXXX", tmp);
    if (!mkdtemp(root)) exit(1);
}

static inline void remove_root(void) {
    run_shell("rm -rf '%s' '%s'", root, root);
}

#endif
