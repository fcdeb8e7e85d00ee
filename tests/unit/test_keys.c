/* test_keys.c - API keys: rows in the registry, what a daemon sees of them, and the limit of wrong
 * ones. Time is an argument, except for how often a daemon looks. */
#include "api/http/auth_failures.h"
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "registry/keys.h"
#include "tests/unit/check.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NOW = 1000000 };

static char folder[64], file[128];

static registry *open_fresh(const char *name) {
    registry *r = NULL;
    err e = {0};
    snprintf(file, sizeof file, "%s/%s", folder, name);
    CHECK_MSG(registry_open(file, &r, &e) == 0, "%s", e.msg);
    return r;
}

static struct registry_key key_named(const char *name) {
    struct registry_key k = {.scopes = KEY_INFER};
    snprintf(k.name, sizeof k.name, "%s", name);
    return k;
}

static struct registry_key add(registry *r, const char *name, char text[KEY_TEXT_BYTES]) {
    struct registry_key k = key_named(name);
    err e = {0};
    CHECK_MSG(registry_key_add(r, &k, NOW, text, &e) == 0, "%s", e.msg);
    return k;
}

static void wait_until_fresh(void) {
    nanosleep(&(struct timespec){0, (KEYRING_FRESH_MS + 20) * 1000000L}, NULL);
}

static void rows_are_checked(void) {
    registry *r = open_fresh("rows.db");
    struct registry_key k, *all;
    char text[KEY_TEXT_BYTES], second[KEY_TEXT_BYTES], longest[KEY_MODELS_BYTES + 8];
    size_t n;
    err e = {0};
    k = add(r, "a.B_c-1", text);
    CHECK(strlen(text) == KEY_TEXT_BYTES - 1 && strncmp(text, k.prefix, KEY_PREFIX_BYTES - 1) == 0);
    CHECK(strspn(text + 3, "abcdefghijklmnopqrstuvwxyz234567_") == strlen(text) - 3);
    struct stat st;
    CHECK(stat(file, &st) == 0 && !(st.st_mode & 07));
    CHECK(registry_key_add(r, &k, NOW, second, &e) == ERR_EXISTS);
    static const char *const names[] = {"", "a b", "a\n", "\xc3\xa4", "a/b"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        k = key_named(names[i]);
        CHECK_MSG(registry_key_add(r, &k, NOW, second, &e) == ERR_INVALID, "%s", names[i]);
        CHECK_STR(e.param, "name");
    }
    k = key_named("b");
    k.scopes = 0;
    CHECK(registry_key_add(r, &k, NOW, second, &e) == ERR_INVALID);
    CHECK_STR(e.param, "scopes");
    k.scopes = KEY_ALL_SCOPES + 1;
    CHECK(registry_key_add(r, &k, NOW, second, &e) == ERR_INVALID);
    k = key_named("b");
    memset(longest, 'm', sizeof longest);
    snprintf(k.models, sizeof k.models, "%.*s", KEY_MODELS_BYTES - 1, longest);
    CHECK(registry_key_add(r, &k, NOW, second, &e) == ERR_INVALID); /* no name is that long */
    CHECK_STR(e.param, "models");
    k = key_named("b");
    snprintf(k.label, sizeof k.label, "\xff");
    CHECK(registry_key_add(r, &k, NOW, second, &e) == ERR_INVALID);
    CHECK_STR(e.param, "label");

    k = add(r, "b", second);
    CHECK(registry_key_list(r, &all, &n, &e) == 0 && n == 2 && strcmp(all[1].name, "b") == 0);
    free(all);
    snprintf(k.models, sizeof k.models, "x,y:z");
    k.expires_s = NOW + 9;
    CHECK(registry_key_change(r, &k, &e) == 0);
    CHECK(registry_key_find(r, k.prefix, &k, &e) == 0 && k.expires_s == NOW + 9);
    CHECK_STR(k.models, "x,y:z");
    CHECK(registry_key_revoke(r, k.id, NOW + 1, &e) == 0);
    CHECK(registry_key_revoke(r, k.id, NOW + 2, &e) == 0);
    CHECK(registry_key_find(r, "b", &k, &e) == 0 && k.revoked_s == NOW + 1);
    CHECK(registry_key_rotate(r, k.id, NOW, 0, text, &e) == ERR_INVALID);
    CHECK(registry_key_find(r, "c", &k, &e) == ERR_NOT_FOUND);
    registry_close(r);
}

static void a_daemon_sees_changes(void) {
    registry *r = open_fresh("live.db");
    keyring *ring = NULL;
    struct keyring_found f;
    char a[KEY_TEXT_BYTES], b[KEY_TEXT_BYTES], c[KEY_TEXT_BYTES], prefix[KEY_PREFIX_BYTES];
    err e = {0};
    CHECK(keyring_open(file, &ring, &e) == 0 && !keyring_in_use(ring));
    struct registry_key first = add(r, "first", a), second = add(r, "second", b);
    wait_until_fresh();
    CHECK(keyring_in_use(ring));
    CHECK(keyring_find(ring, a, NOW, &f) == KEYRING_OK && f.id == first.id && f.number == 1);
    CHECK(keyring_find(ring, b, NOW, &f) == KEYRING_OK && f.id == second.id && f.number == 2);
    CHECK(f.scopes == KEY_INFER && strcmp(f.prefix, second.prefix) == 0 && !*f.models);
    char wrong[KEY_TEXT_BYTES + 1];
    for (size_t i = 0; a[i]; i++) { /* one character differs, or is missing, or is too much */
        memcpy(wrong, a, KEY_TEXT_BYTES);
        wrong[i] = a[i] == 'x' ? 'y' : 'x';
        CHECK(keyring_find(ring, wrong, NOW, &f) == KEYRING_UNKNOWN);
        wrong[i] = '\0';
        CHECK(keyring_find(ring, wrong, NOW, &f) == KEYRING_UNKNOWN);
    }
    snprintf(wrong, sizeof wrong, "%sx", a);
    CHECK(keyring_find(ring, wrong, NOW, &f) == KEYRING_UNKNOWN);
    snprintf(wrong, sizeof wrong, "%.11s%s", a, b + 11);
    CHECK(keyring_find(ring, wrong, NOW, &f) == KEYRING_UNKNOWN);

    CHECK(registry_key_rotate(r, first.id, NOW, 60, c, &e) == 0);
    second.expires_s = NOW + 5;
    CHECK(registry_key_change(r, &second, &e) == 0);
    wait_until_fresh();
    CHECK(keyring_find(ring, a, NOW + 59, &f) == KEYRING_OK && f.number == 1);
    CHECK(keyring_find(ring, a, NOW + 60, &f) == KEYRING_EXPIRED);
    CHECK(keyring_find(ring, c, NOW + 60, &f) == KEYRING_OK && f.number == 1);
    CHECK(keyring_prefix(ring, 1, prefix) && strncmp(prefix, c, KEY_PREFIX_BYTES - 1) == 0);
    CHECK(!keyring_prefix(ring, 0, prefix) && !keyring_prefix(ring, 3, prefix));
    CHECK(keyring_find(ring, b, NOW + 4, &f) == KEYRING_OK);
    CHECK(keyring_find(ring, b, NOW + 5, &f) == KEYRING_EXPIRED);
    CHECK(registry_key_revoke(r, first.id, NOW, &e) == 0);
    wait_until_fresh();
    CHECK(keyring_find(ring, c, NOW, &f) == KEYRING_REVOKED && keyring_in_use(ring));

    /* A file that is being written by another process does not change what is known. */
    sqlite3 *db;
    CHECK(sqlite3_open(file, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "BEGIN EXCLUSIVE; DELETE FROM keys", NULL, NULL, NULL) == SQLITE_OK);
    wait_until_fresh();
    CHECK(keyring_find(ring, b, NOW + 4, &f) == KEYRING_OK);
    CHECK(sqlite3_exec(db, "ROLLBACK; DROP TABLE key_state", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    wait_until_fresh();
    CHECK(keyring_find(ring, b, NOW + 4, &f) == KEYRING_OK && keyring_in_use(ring));
    keyring_close(ring);
    CHECK(keyring_open(file, &ring, &e) == ERR_IO && !ring);
    registry_close(r);
}

/* Two registries do not show that they hold the same key. */
static void hashes_are_salted(void) {
    sqlite3 *db;
    sqlite3_stmt *st;
    char sql[400], text[KEY_TEXT_BYTES];
    registry *r = open_fresh("salt-1.db");
    add(r, "a", text);
    registry_close(r);
    snprintf(sql, sizeof sql, "ATTACH '%s' AS one", file);
    registry_close(open_fresh("salt-2.db"));
    CHECK(sqlite3_open(file, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
    CHECK(sqlite3_prepare_v2(db,
                             "SELECT count(DISTINCT salt) FROM (SELECT salt FROM key_state UNION "
                             "ALL SELECT salt FROM one.key_state)",
                             -1, &st, NULL) == SQLITE_OK);
    CHECK(sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int(st, 0) == 2);
    sqlite3_finalize(st);
    sqlite3_close(db);
}

static void *find_often(void *arg) {
    struct keyring_found f;
    const void *const *args = arg;
    for (int i = 0; i < 2000; i++)
        CHECK(keyring_find((keyring *)args[0], args[1], NOW, &f) == KEYRING_OK && f.id == 1);
    return NULL;
}

static void threads_find_while_keys_change(void) {
    registry *r = open_fresh("threads.db");
    keyring *ring = NULL;
    pthread_t threads[3];
    char text[KEY_TEXT_BYTES], more[KEY_TEXT_BYTES], name[16];
    err e = {0};
    add(r, "one", text);
    CHECK(keyring_open(file, &ring, &e) == 0);
    const void *const args[] = {ring, text};
    for (size_t i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, find_often, (void *)args) == 0);
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "k%d", i);
        add(r, name, more);
    }
    for (size_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    keyring_close(ring);
    registry_close(r);
}

/* ---- several at once after a pause ---- */

struct at_once {
    keyring *ring;
    const char *text;
    atomic_int *missing; /* threads that have not come yet */
    bool passed;
};

static void *find_at_once(void *arg) {
    struct at_once *a = arg;
    struct keyring_found f;
    atomic_fetch_sub(a->missing, 1);
    while (atomic_load(a->missing) > 0) {
    }
    a->passed = keyring_find(a->ring, a->text, NOW, &f) == KEYRING_OK;
    return NULL;
}

/* A key that was revoked meanwhile passes in none of the first requests, which all come together.
 */
static void none_goes_on_with_old_keys(void) {
    enum { N = 6, ROUNDS = 4 };
    registry *r = open_fresh("pause.db");
    keyring *ring = NULL;
    err e = {0};
    for (int round = 0; round < ROUNDS; round++) {
        char name[16], text[KEY_TEXT_BYTES];
        struct at_once at[N];
        atomic_int missing = N;
        pthread_t threads[N];
        snprintf(name, sizeof name, "k%d", round);
        struct registry_key k = add(r, name, text);
        CHECK(keyring_open(file, &ring, &e) == 0);
        CHECK(registry_key_revoke(r, k.id, NOW, &e) == 0);
        wait_until_fresh();
        for (int i = 0; i < N; i++) {
            at[i] = (struct at_once){ring, text, &missing, false};
            CHECK(pthread_create(&threads[i], NULL, find_at_once, &at[i]) == 0);
        }
        for (int i = 0; i < N; i++) {
            pthread_join(threads[i], NULL);
            CHECK_MSG(!at[i].passed, "round %d, thread %d", round, i);
        }
        keyring_close(ring);
    }
    registry_close(r);
}

static void memory_may_fail(void) {
    registry *r = open_fresh("memory.db");
    char text[KEY_TEXT_BYTES];
    err e;
    add(r, "a", text);
    registry_close(r);
    for (int n = 1;; n++) {
        keyring *ring = NULL;
        err_clear(&e);
        mem_fail_at(n);
        int rc = keyring_open(file, &ring, &e);
        mem_fail_at(0);
        CHECK(rc == 0 || (rc == ERR_NOMEM && !ring));
        keyring_close(ring);
        if (!rc) break;
        CHECK(n < 100);
    }
}

static struct address address_from(const char *text) {
    struct address a;
    CHECK(address_parse(text, strlen(text), &a));
    return a;
}

static void failures_have_a_limit(void) {
    static struct auth_failures f;
    const uint64_t s = UINT64_C(1000000000), t = 1000 * s;
    struct address a = address_from("192.0.2.1"), b = address_from("2001:db8::1"),
                   same = address_from("2001:db8::2"), next = address_from("2001:db8:0:1::1");
    auth_failures_init(&f, 3);
    for (int i = 0; i < 3; i++) {
        CHECK(auth_failures_wait_s(&f, &a, t) == 0);
        auth_failures_add(&f, AUTH_UNKNOWN, &a, t);
    }
    CHECK(auth_failures_wait_s(&f, &a, t) == 21 && auth_failures_wait_s(&f, &b, t) == 0);
    CHECK(auth_failures_wait_s(&f, &a, t + 19 * s) == 2);
    CHECK(auth_failures_wait_s(&f, &a, t + 20 * s) == 0); /* a third of a minute: one more */
    auth_failures_add(&f, AUTH_REVOKED, &a, t + 20 * s);
    CHECK(auth_failures_wait_s(&f, &a, t + 20 * s) == 21);
    for (int i = 0; i < 9; i++) { /* those that tried nothing */
        auth_failures_add(&f, AUTH_MISSING, &b, t);
        auth_failures_add(&f, AUTH_SCOPE, &b, t);
        auth_failures_add(&f, AUTH_LIMITED, &b, t);
    }
    CHECK(auth_failures_wait_s(&f, &b, t) == 0);
    for (int i = 0; i < 3; i++)
        auth_failures_add(&f, AUTH_EXPIRED, &b, t);
    CHECK(auth_failures_wait_s(&f, &same, t) == 21 && auth_failures_wait_s(&f, &next, t) == 0);
    CHECK(atomic_load(&f.counts[AUTH_MISSING]) == 9 && atomic_load(&f.counts[AUTH_EXPIRED]) == 3);
    /* More networks than slots: whoever fails is limited at once, the latest at least. */
    for (uint32_t i = 0; i < 4 * AUTH_FAILURE_SLOTS; i++) {
        struct address many = {.family = 4, .bytes = {10, (uint8_t)(i >> 8), (uint8_t)i, 1}};
        for (int k = 0; k < 3; k++)
            auth_failures_add(&f, AUTH_UNKNOWN, &many, t + 21 * s);
        CHECK(auth_failures_wait_s(&f, &many, t + 21 * s) == 21);
    }
    auth_failures_fini(&f);
    auth_failures_init(&f, 0);
    for (int i = 0; i < 100; i++)
        auth_failures_add(&f, AUTH_UNKNOWN, &a, t);
    CHECK(auth_failures_wait_s(&f, &a, t) == 0 && atomic_load(&f.counts[AUTH_UNKNOWN]) == 100);
    auth_failures_fini(&f);
}

int main(void) {
    snprintf(folder, sizeof folder, "/tmp/inferd-keys-XXXXXX");
    CHECK(mkdtemp(folder));
    RUN(rows_are_checked);
    RUN(a_daemon_sees_changes);
    RUN(hashes_are_salted);
    RUN(threads_find_while_keys_change);
    RUN(none_goes_on_with_old_keys);
    RUN(memory_may_fail);
    RUN(failures_have_a_limit);
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    return check_done();
}
