/* test_kvstore.c - the disk tier: what was written comes back in any process with the same secret,
 * and nothing else ever does: files that were cut, altered at any byte of the head, swapped, of
 * another tenant, space, version or secret. Bounds, failing system calls, folders that go,
 * processes that are killed. */
#include "core/base/file.h"
#include "core/base/mem.h"
#include "core/kvstore/kvstore_int.h"
#include "tests/support/files.h"
#include "tests/support/kvstore_kit.h"
#include "tests/unit/kvstore_bench.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* The only segment's file in the folder. */
static void find_file(char path[2 * PATH_MAX]) {
    DIR *dir = opendir(folder);
    path[0] = '\0';
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (strstr(d->d_name, ".kv")) snprintf(path, 2 * PATH_MAX, "%s/%s", folder, d->d_name);
    if (dir) closedir(dir);
}

/* Files of segments and their bytes, as the folder has them. */
static uint64_t count_files(const char *end, uint64_t *bytes) {
    DIR *dir = opendir(folder);
    uint64_t n = 0;
    *bytes = 0;
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char path[2 * PATH_MAX];
        struct stat st;
        const char *at = strstr(d->d_name, end);
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        if (!at || strcmp(at, end) != 0 || stat(path, &st)) continue;
        n++;
        *bytes += (uint64_t)st.st_size;
    }
    if (dir) closedir(dir);
    return n;
}

/* ---- tests ---- */

static void test_round_trip(void) {
    uint32_t found;
    fresh_folder("round");
    struct kvstore_config c = config_of();
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "a");
    CHECK(put(sp, alice, 1, 0, 5) && put(sp, alice, 1, 5, 3));
    CHECK(kvstore_flush(ks, SOON));
    for (int again = 0; again < 2; again++) { /* the second time in another "process" */
        CHECK(get(sp, alice, 1, 8, &found) == 8 + 4 + 2 && found == 8);
        CHECK(get(sp, alice, 1, MAX_N, &found) == 14 && found == 8);
        CHECK(get(sp, alice, 2, 8, &found) == 0 && found == 0); /* other tokens */
        CHECK(get(sp, bob, 1, 8, &found) == 0 && found == 0);   /* another tenant */
        kvstore_space *other = space_of(ks, "b");
        CHECK(get(other, alice, 1, 8, &found) == 0 && found == 0); /* another model */
        kvstore_space_close(other);
        CHECK(stats_of(ks).files == 2 && stats_of(ks).damaged == 0);
        struct hash128 key = kvstore_client_key(ks);
        kvstore_space_close(sp);
        kvstore_close(ks);
        ks = open_with(&c);
        sp = space_of(ks, "a");
        CHECK(hash128_same(key, kvstore_client_key(ks)));
    }
    CHECK(put(sp, alice, 1, 0, 5) && kvstore_flush(ks, SOON));
    CHECK(stats_of(ks).files == 2); /* it is there already */
    kvstore_space_close(sp);
    kvstore_close(ks);
    struct stat st;
    CHECK(stat(secret, &st) == 0 && (st.st_mode & 0777) == 0600);
    CHECK(stat(folder, &st) == 0 && (st.st_mode & 0777) == 0700);
}

/* No plain byte of K/V or token stands in the folder. */
static void test_nothing_in_clear(void) {
    fresh_folder("clear");
    struct kvstore_config c = config_of();
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "a");
    uint8_t plain[BLOCK];
    int32_t tokens[MAX_N * BLOCK_TOKENS];
    char path[2 * PATH_MAX];
    size_t n;
    CHECK(put(sp, alice, 1, 0, 3) && kvstore_flush(ks, SOON));
    find_file(path);
    char *bytes = file_read(path, &n);
    fill(plain, BLOCK, 1, 0, KVSTORE_BLOCK);
    tokens_of(1, tokens);
    CHECK(bytes && n > BLOCK);
    CHECK(bytes && !memmem(bytes, n, plain, 16) && !memmem(bytes, n, tokens, 8));
    free(bytes);
    kvstore_space_close(sp);
    kvstore_close(ks);
}

/* With the file changed by `change`, nothing of it is read, it is deleted, and counted. */
static void expect_damage(const char *path, const char *what, long at) {
    struct kvstore_config c = config_of();
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "a");
    uint32_t found;
    uint64_t bytes;
    int n = get(sp, alice, 1, 3, &found);
    CHECK_MSG(n < 5, "%s at %ld: all records came", what, at);
    CHECK(kvstore_flush(ks, SOON));
    CHECK_MSG(stats_of(ks).damaged == 1, "%s at %ld: %d damaged", what, at,
              (int)stats_of(ks).damaged);
    CHECK_MSG(access(path, F_OK) && count_files(".kv", &bytes) == 0, "%s at %ld: it is there", what,
              at);
    CHECK(stats_of(ks).files == 0 && stats_of(ks).bytes == 0);
    kvstore_space_close(sp);
    kvstore_close(ks);
}

static void restore(const char *path, const char *bytes, size_t n) {
    char command[4 * PATH_MAX];
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n);
    if (f) fclose(f);
    snprintf(command, sizeof command, "rm -f '%s'/index.db* && cp '%s.index' '%s/index.db'", folder,
             folder, folder);
    CHECK(system(command) == 0);
}

/* A folder with one segment of three blocks, closed; its index is kept beside it. */
static char *one_segment(char path[2 * PATH_MAX], size_t *n) {
    struct kvstore_config c = config_of();
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "a");
    CHECK(put(sp, alice, 1, 0, 3) && kvstore_flush(ks, SOON));
    kvstore_space_close(sp);
    kvstore_close(ks);
    find_file(path);
    run_shell("cp '%s/index.db' '%s.index'", folder, folder);
    return file_read(path, n);
}

static void test_altered(void) {
    char path[2 * PATH_MAX];
    size_t n;
    fresh_folder("altered");
    char *bytes = one_segment(path, &n);
    CHECK(bytes != NULL);
    const size_t head = 192 + 3 * 33 + 16;
    for (size_t i = 0; bytes && i < n; i += i < head ? 1 : 211) {
        bytes[i] = (char)(bytes[i] ^ (1 << i % 8));
        restore(path, bytes, n);
        expect_damage(path, "a flipped bit", (long)i);
        bytes[i] = (char)(bytes[i] ^ (1 << i % 8));
    }
    free(bytes);
}

static void test_cut(void) {
    char path[2 * PATH_MAX];
    size_t n;
    fresh_folder("cut");
    char *bytes = one_segment(path, &n);
    CHECK(bytes != NULL);
    const size_t head = 192 + 3 * 33 + 16;
    for (size_t i = 0; bytes && i < n; i += i < head ? 9 : 701) {
        restore(path, bytes, i);
        expect_damage(path, "cut", (long)i);
    }
    free(bytes);
}

/* Cut or altered while the store is open. */
static void test_altered_while_open(void) {
    char path[2 * PATH_MAX];
    size_t n;
    uint32_t found;
    fresh_folder("while");
    free(one_segment(path, &n));
    struct kvstore_config c = config_of();
    for (int cut = 0; cut < 2; cut++) {
        kvstore *ks = open_with(&c);
        kvstore_space *sp = space_of(ks, "a");
        if (cut) CHECK(put(sp, alice, 1, 0, 3) && kvstore_flush(ks, SOON));
        find_file(path);
        if (cut)
            CHECK(truncate(path, (off_t)n - 1) == 0);
        else
            CHECK(unlink(path) == 0);
        CHECK(get(sp, alice, 1, 3, &found) < 5 && found == 3);
        CHECK(kvstore_flush(ks, SOON) && stats_of(ks).damaged == 1 && stats_of(ks).files == 0);
        CHECK(get(sp, alice, 1, 3, &found) == 0 && found == 0);
        kvstore_space_close(sp);
        kvstore_close(ks);
    }
}

struct files {
    char names[4][64];
    int n;
};

static void note_file(void *arg, const struct kvstore_entry *s) {
    struct files *f = arg;
    snprintf(f->names[f->n++], sizeof f->names[0], "%s", s->file);
    CHECK(!s->damage || s->damage->code == 0);
}

/* Two files of equal size change places: of one chain, and of two tenants. */
static void test_swapped(void) {
    struct kvstore_config c = config_of();
    for (int tenants = 0; tenants < 2; tenants++) {
        struct files f = {.n = 0};
        uint32_t found;
        err e;
        fresh_folder("swapped");
        kvstore *ks = open_with(&c);
        kvstore_space *sp = space_of(ks, "a");
        CHECK(put(sp, alice, 1, 0, 4));
        CHECK(put(sp, tenants ? bob : alice, 1, tenants ? 0 : 4, 4) && kvstore_flush(ks, SOON));
        CHECK(kvstore_verify(folder, secret, note_file, &f, &e) == 0 && f.n == 2);
        char a[2 * PATH_MAX], b[2 * PATH_MAX], t[2 * PATH_MAX];
        snprintf(a, sizeof a, "%s/%s", folder, f.names[0]);
        snprintf(b, sizeof b, "%s/%s", folder, f.names[1]);
        snprintf(t, sizeof t, "%s/t", folder);
        CHECK(rename(a, t) == 0 && rename(b, a) == 0 && rename(t, b) == 0);
        CHECK(get(sp, alice, 1, 8, &found) == 0 && found > 0);
        CHECK(get(sp, bob, 1, 8, &found) == 0);
        CHECK(kvstore_flush(ks, SOON) && stats_of(ks).damaged >= 1);
        kvstore_space_close(sp);
        kvstore_close(ks);
    }
}

static void test_other_version_or_secret(void) {
    uint32_t found;
    uint64_t bytes;
    fresh_folder("version");
    struct kvstore_config c = config_of();
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "a");
    CHECK(put(sp, alice, 1, 0, 3) && kvstore_flush(ks, SOON));
    kvstore_space_close(sp);
    kvstore_close(ks);
    c.version = "2";
    ks = open_with(&c);
    CHECK(stats_of(ks).outdated == 1 && stats_of(ks).files == 0);
    CHECK(count_files(".kv", &bytes) == 0);
    sp = space_of(ks, "a");
    CHECK(put(sp, alice, 1, 0, 3) && kvstore_flush(ks, SOON));
    kvstore_space_close(sp);
    kvstore_close(ks);
    CHECK(unlink(secret) == 0);
    ks = open_with(&c);
    sp = space_of(ks, "a");
    CHECK(get(sp, alice, 1, 3, &found) == 0 && found == 0);
    CHECK(stats_of(ks).files == 0 && count_files(".kv", &bytes) == 0);
    kvstore_space_close(sp);
    kvstore_close(ks);
    err e;
    CHECK(chmod(secret, 0644) == 0 && kvstore_open(&c, &ks, &e) == ERR_INVALID);
    CHECK(strstr(e.msg, "chmod 600"));
    CHECK(chmod(secret, 0600) == 0 && truncate(secret, 31) == 0);
    CHECK(kvstore_open(&c, &ks, &e) == ERR_INVALID);
}

static void test_one_process(void) {
    fresh_folder("one");
    struct kvstore_config c = config_of();
    kvstore *ks = open_with(&c), *other = NULL;
    err e;
    CHECK(kvstore_open(&c, &other, &e) == ERR_UNAVAILABLE && !other);
    kvstore_close(ks);
    ks = open_with(&c);
    kvstore_close(ks);
}

static void test_bounds(void) {
    uint32_t found;
    uint64_t bytes;
    fresh_folder("bounds");
    struct kvstore_config c = config_of();
    const uint64_t each = 192 + 2 * 33 + 16 + 2 * (BLOCK + 16) + WINDOW + 16 + STATE + 16;
    c.max_bytes = 5 * each + 10;
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "a");
    struct kvstore_name names[MAX_N];
    for (int i = 0; i < 12; i++) {
        CHECK(put(sp, alice, i, 0, 2) && kvstore_flush(ks, SOON));
        names_of(sp, alice, 0, names);
        kvstore_touch(sp, names, 2); /* chain 0 has hits: it stays */
        CHECK(count_files(".kv", &bytes) <= 5 && bytes <= c.max_bytes);
        CHECK(stats_of(ks).bytes == bytes);
    }
    CHECK(stats_of(ks).files == 5 && stats_of(ks).evicted == 7);
    CHECK(get(sp, alice, 0, 2, &found) == 4 && found == 2);
    CHECK(!get(sp, alice, 1, 2, &found) && !found);
    kvstore_space_close(sp);
    kvstore_close(ks);
    /* Smaller bounds hold from the start on; the hits were kept. */
    c.max_files = 2;
    ks = open_with(&c);
    CHECK(count_files(".kv", &bytes) == 2 && stats_of(ks).files == 2);
    sp = space_of(ks, "a");
    CHECK(get(sp, alice, 0, 2, &found) == 4);
    /* What is farther from the start goes first. */
    CHECK(put(sp, bob, 1, 0, 2) && kvstore_flush(ks, SOON));
    CHECK(put(sp, bob, 1, 2, 2) && kvstore_flush(ks, SOON));
    CHECK(get(sp, alice, 0, 2, &found) == 4);
    kvstore_space_close(sp);
    kvstore_close(ks);
    /* A segment that cannot fit at all. */
    c.max_bytes = 100;
    ks = open_with(&c);
    CHECK(stats_of(ks).files == 0);
    sp = space_of(ks, "a");
    CHECK(put(sp, alice, 1, 0, 2) && kvstore_flush(ks, SOON));
    CHECK(stats_of(ks).over_budget == 1 && stats_of(ks).files == 0);
    kvstore_space_close(sp);
    kvstore_close(ks);
}

static void test_daily_bytes(void) {
    fresh_folder("daily");
    struct kvstore_config c = config_of();
    const uint64_t each = 192 + 2 * 33 + 16 + 2 * (BLOCK + 16) + WINDOW + 16 + STATE + 16;
    c.max_daily_bytes = 2 * each;
    for (int again = 0; again < 2; again++) { /* a restart gives no more */
        kvstore *ks = open_with(&c);
        kvstore_space *sp = space_of(ks, "a");
        for (int i = 0; i < 4; i++) { /* after the first that does not fit no more are taken */
            CHECK(put(sp, alice, 10 * again + i, 0, 2) == (i < (again ? 1 : 3)));
            CHECK(kvstore_flush(ks, SOON));
        }
        CHECK(stats_of(ks).written == (again ? 0 : 2));
        CHECK(stats_of(ks).over_budget == 1 && stats_of(ks).writable);
        kvstore_space_close(sp);
        kvstore_close(ks);
    }
}

static uint64_t wait_for_files(kvstore *ks, uint64_t files) {
    const uint64_t until_ns = SOON;
    while (stats_of(ks).files != files && clock_now_ns() < until_ns)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return stats_of(ks).files;
}

static void test_other_bounds(void) {
    fresh_folder("bounds");
    struct kvstore_config c = config_of();
    const uint64_t each = 192 + 2 * 33 + 16 + 2 * (BLOCK + 16) + WINDOW + 16 + STATE + 16;
    c.max_daily_bytes = 4 * each;
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "a");
    for (int i = 0; i < 5; i++) /* the last one is one too many for this day */
        CHECK(put(sp, alice, i, 0, 2) && kvstore_flush(ks, SOON));
    CHECK(stats_of(ks).files == 4 && stats_of(ks).over_budget == 1);
    CHECK(!put(sp, alice, 4, 0, 2));
    c.max_files = 3;
    c.max_daily_bytes = 7 * each;
    kvstore_set_bounds(ks, &c);
    CHECK(wait_for_files(ks, 3) == 3 && stats_of(ks).evicted == 1);
    CHECK(put(sp, alice, 4, 0, 2) && kvstore_flush(ks, SOON)); /* the day has room again */
    CHECK(stats_of(ks).written == 5 && stats_of(ks).files == 3);
    c.max_bytes = 2 * each + 1;
    kvstore_set_bounds(ks, &c);
    CHECK(wait_for_files(ks, 2) == 2);
    c.max_files = 100;
    c.max_bytes = 100 * each;
    kvstore_set_bounds(ks, &c);
    for (int i = 5; i < 7; i++)
        CHECK(put(sp, alice, i, 0, 2) && kvstore_flush(ks, SOON));
    CHECK(stats_of(ks).files == 4);
    kvstore_space_close(sp);
    kvstore_close(ks);
}

static void run_sql(const char *text) {
    char path[2 * PATH_MAX];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/index.db", folder);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, text, NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
}

static int64_t seen_used_s;
static int n_seen;

static void see_used(void *arg, const struct kvstore_entry *s) {
    (void)arg;
    seen_used_s = s->used_s;
    n_seen++;
}

/* Times of a clock that was wrong: ahead by years, and long ago. */
static void test_clock(void) {
    uint32_t found;
    err e;
    fresh_folder("clock");
    struct kvstore_config c = config_of();
    c.max_age_s = 1000;
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "a");
    CHECK(put(sp, alice, 1, 0, 2) && kvstore_flush(ks, SOON));
    kvstore_space_close(sp);
    kvstore_close(ks);
    run_sql("UPDATE segments SET used_s = used_s + 1000000000, created_s = created_s + 1000000000;"
            "UPDATE about SET day = day + 10000");
    ks = open_with(&c);
    sp = space_of(ks, "a");
    struct kvstore_name names[MAX_N];
    names_of(sp, alice, 1, names);
    CHECK(get(sp, alice, 1, 2, &found) == 4);
    CHECK(put(sp, alice, 2, 0, 2) && kvstore_flush(ks, SOON) && stats_of(ks).written == 1);
    kvstore_touch(sp, names, 2);
    kvstore_space_close(sp);
    kvstore_close(ks);
    run_sql("DELETE FROM segments WHERE hits = 0");
    n_seen = 0;
    CHECK(kvstore_list(folder, see_used, NULL, &e) == 0 && n_seen == 1);
    CHECK(seen_used_s <= clock_wall_s() && seen_used_s > clock_wall_s() - 100);
    run_sql("UPDATE segments SET used_s = 5");
    ks = open_with(&c);
    CHECK(stats_of(ks).files == 0 && stats_of(ks).expired == 1);
    kvstore_close(ks);
}

static void test_damaged_index(void) {
    static const char *const ways[] = {"printf x > '%s/index.db'", "rm '%s/index.db'",
                                       "head -c 5000 /dev/urandom > '%s/index.db'", "true '%s'"};
    fresh_folder("index");
    struct kvstore_config c = config_of();
    for (int i = 0; i < 4; i++) {
        uint64_t bytes;
        uint32_t found;
        kvstore *ks = open_with(&c);
        CHECK(stats_of(ks).files == 0 && count_files(".kv", &bytes) == 0);
        kvstore_space *sp = space_of(ks, "a");
        CHECK(put(sp, alice, 1, 0, 2) && kvstore_flush(ks, SOON));
        CHECK(get(sp, alice, 1, 2, &found) == 4);
        kvstore_space_close(sp);
        kvstore_close(ks);
        run_shell(ways[i], folder, "");
    }
    /* Rows that break the format are as good as none. */
    run_sql("UPDATE segments SET names = x'00'");
    kvstore *ks = open_with(&c);
    CHECK(stats_of(ks).files == 0);
    kvstore_close(ks);
}

/* Every call to the file system fails in turn while two segments are written: what is there
 * afterwards is whole, and there are no others. */
static void test_failing_writes(void) {
    static const int whys[] = {ENOSPC, EIO, 0};
    struct kvstore_config c = config_of();
    for (int w = 0; w < 3; w++)
        for (uint64_t n = 1; n < 14; n++) {
            uint32_t found;
            uint64_t bytes, left;
            fresh_folder("failing");
            kvstore *ks = open_with(&c);
            kvstore_space *sp = space_of(ks, "a");
            file_fail_at(n, whys[w]);
            put(sp, alice, 1, 0, 2);
            kvstore_flush(ks, SOON);
            put(sp, alice, 2, 0, 2); /* not taken for a minute after a failure */
            kvstore_flush(ks, SOON);
            left = file_fail_at(0, 0);
            struct kvstore_stats s = stats_of(ks);
            CHECK(s.written + s.failed == (s.failed && s.written == 0 ? 1 : 2));
            CHECK(s.writable == (s.failed == 0) && (whys[w] || !s.failed));
            for (int i = 1; i < 3; i++) {
                int got = get(sp, alice, i, 2, &found);
                CHECK((found == 2 && got == 4) || (found == 0 && got == 0));
            }
            CHECK(count_files(".kv", &bytes) == s.files && bytes == s.bytes);
            CHECK(count_files(".tmp", &bytes) == 0);
            kvstore_space_close(sp);
            kvstore_close(ks);
            ks = open_with(&c);
            CHECK(stats_of(ks).files == s.files);
            kvstore_close(ks);
            if (left) break;
        }
}

static void test_failing_reads(void) {
    char path[2 * PATH_MAX];
    size_t n;
    fresh_folder("reads");
    free(one_segment(path, &n));
    struct kvstore_config c = config_of();
    kvstore *ks = open_with(&c);
    for (uint64_t k = 1; k < 12; k++) {
        kvstore_space *sp = space_of(ks, "a");
        uint32_t found;
        file_fail_at(k, EIO);
        int got = get(sp, alice, 1, 3, &found);
        kvstore_space_close(sp); /* the other thread has ended what it was reading, too */
        bool left = file_fail_at(0, 0) != 0;
        CHECK(found == 3 && (left ? got == 5 : got < 5));
    }
    CHECK(stats_of(ks).damaged == 0 && stats_of(ks).files == 1); /* the disk's fault: it stays */
    kvstore_close(ks);
}

static void test_failing_open(void) {
    fresh_folder("opens");
    struct kvstore_config c = config_of();
    bool left = false;
    for (uint64_t k = 1; k < 200 && !left; k++) {
        kvstore *ks = NULL;
        err e;
        file_fail_at(k, EIO);
        int rc = kvstore_open(&c, &ks, &e);
        left = file_fail_at(0, 0) != 0;
        CHECK(left ? rc == 0 : (rc == 0) == (ks != NULL));
        kvstore_close(ks);
    }
    left = false;
    for (uint64_t k = 1; k < 200 && !left; k++) {
        kvstore *ks = NULL;
        err e;
        mem_fail_at(k);
        int rc = kvstore_open(&c, &ks, &e);
        left = mem_fail_at(0) != 0;
        CHECK(left ? rc == 0 : rc == ERR_NOMEM && !ks);
        kvstore_close(ks);
    }
    CHECK(left);
}

static void test_folder_gone(void) {
    uint32_t found;
    fresh_folder("gone");
    struct kvstore_config c = config_of();
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "a");
    CHECK(put(sp, alice, 1, 0, 2) && kvstore_flush(ks, SOON));
    run_shell("rm -rf '%s' '%s'", folder, folder);
    CHECK(put(sp, alice, 2, 0, 2) && kvstore_flush(ks, SOON));
    CHECK(stats_of(ks).failed == 1 && !stats_of(ks).writable);
    bool broken;
    CHECK(!kvstore_draft_take(sp, &broken) && broken);         /* not tried again at once */
    CHECK(get(sp, alice, 1, 2, &found) == 0 && found == 2);    /* it was said to be there */
    CHECK(kvstore_flush(ks, SOON) && stats_of(ks).files == 0); /* not any more */
    kvstore_space_close(sp);
    kvstore_close(ks);
}

static bool is_bobs(void *arg, const struct kvstore_entry *s) {
    (void)arg;
    CHECK_STR(s->label, "model");
    return hash128_same(s->tenant, bob);
}

static void test_prune(void) {
    uint32_t found;
    fresh_folder("prune");
    struct kvstore_config c = config_of();
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "a");
    CHECK(put(sp, alice, 1, 0, 2) && put(sp, bob, 1, 0, 2) && put(sp, bob, 2, 0, 2));
    CHECK(kvstore_flush(ks, SOON));
    CHECK(kvstore_prune(ks, is_bobs, NULL) == 2);
    CHECK(get(sp, alice, 1, 2, &found) == 4 && !get(sp, bob, 1, 2, &found));
    CHECK(kvstore_prune(ks, NULL, NULL) == 1 && stats_of(ks).files == 0);
    kvstore_space_close(sp);
    kvstore_close(ks);
}

/* More drafts than places. Readings that are closed early. */
static void test_queue(void) {
    fresh_folder("queue");
    struct kvstore_config c = config_of();
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "a");
    struct kvstore_draft *held[64];
    int n = 0;
    bool broken;
    while (n < 64 && (held[n] = kvstore_draft_take(sp, &broken)))
        n++;
    CHECK(n > 0 && n < 64 && !broken);
    while (n)
        kvstore_draft_drop(held[--n]);
    CHECK(put(sp, alice, 1, 0, MAX_N) && kvstore_flush(ks, SOON));
    struct kvstore_name names[MAX_N];
    uint8_t flags[MAX_N];
    names_of(sp, alice, 1, names);
    CHECK(kvstore_find(sp, names, MAX_N, flags) == MAX_N);
    for (int i = 0; i < 200; i++) {
        kvstore_reading *r = NULL;
        struct kvstore_record record;
        err e;
        const struct kvstore_wanted wanted = {alice, names, flags, MAX_N, on_record, NULL};
        int rc;
        while ((rc = kvstore_read(sp, &wanted, &r, &e)) == ERR_FULL)
            usleep(100); /* those that were closed are still open for a moment */
        CHECK(rc == 0);
        for (int k = 0; k < i % 7; k++)
            if (kvstore_reading_next(r, &record) == 1) kvstore_reading_pop(r);
        kvstore_reading_close(r);
    }
    kvstore_space_close(sp);
    kvstore_close(ks);
}

static void note_damage(void *arg, const struct kvstore_entry *s) {
    int *n = arg;
    *n += s->damage->code != 0;
}

/* A process that writes and evicts is killed at a random moment. */
static void test_killed(void) {
    fresh_folder("killed");
    struct kvstore_config c = config_of();
    c.max_files = 6;
    unsigned seed = 7;
    for (int round = 0; round < 25; round++) {
        pid_t child = fork();
        if (child == 0) {
            kvstore *ks = NULL;
            kvstore_space *sp = NULL;
            err e;
            const struct kvstore_space_config space = {"model", "a", shape, {0}};
            if (kvstore_open(&c, &ks, &e) || kvstore_space_open(ks, &space, &sp, &e)) _exit(1);
            for (int i = round * 1000;; i++) {
                put(sp, alice, i, 0, 3);
                if (i % 8 == 0) kvstore_flush(ks, SOON);
            }
        }
        usleep(3000 + (useconds_t)(rand_r(&seed) % 30000));
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        CHECK(WIFSIGNALED(status));
        uint64_t bytes;
        int n_damaged = 0;
        err e;
        kvstore *ks = open_with(&c);
        CHECK(stats_of(ks).damaged == 0);
        CHECK(count_files(".kv", &bytes) == stats_of(ks).files && stats_of(ks).files <= 6);
        CHECK(bytes == stats_of(ks).bytes && count_files(".tmp", &bytes) == 0);
        CHECK(kvstore_verify(folder, secret, note_damage, &n_damaged, &e) == 0 && n_damaged == 0);
        kvstore_close(ks);
    }
}

int main(int argc, char **argv) {
    make_root();
    if (argc > 1 && strcmp(argv[1], "bench") == 0) {
        kvstore_bench();
        remove_root();
        return check_done();
    }
    RUN(test_killed); /* before any thread: it forks */
    RUN(test_round_trip);
    RUN(test_nothing_in_clear);
    RUN(test_altered);
    RUN(test_cut);
    RUN(test_altered_while_open);
    RUN(test_swapped);
    RUN(test_other_version_or_secret);
    RUN(test_one_process);
    RUN(test_bounds);
    RUN(test_daily_bytes);
    RUN(test_other_bounds);
    RUN(test_clock);
    RUN(test_damaged_index);
    RUN(test_failing_writes);
    RUN(test_failing_reads);
    RUN(test_failing_open);
    RUN(test_folder_gone);
    RUN(test_prune);
    RUN(test_queue);
    remove_root();
    return check_done();
}
