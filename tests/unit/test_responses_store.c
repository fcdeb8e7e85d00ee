/* test_responses_store.c - stored responses: owners, time to live, room, conversations, threads, a
 * file that is locked, full, read-only or damaged. Time is an argument, so nothing waits. */
#include "core/base/mem.h"
#include "registry/registry.h"
#include "registry/responses.h"
#include "tests/unit/check.h"

#include <limits.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOW = 1000000, DAY = 86400 };

static char folder[64], file[128];

static responses *open_store(uint64_t ttl_s, uint64_t max_bytes, int64_t now_s) {
    responses *s = NULL;
    err e = {0};
    const struct responses_config c = {file, ttl_s, max_bytes};
    int rc = responses_open(&c, now_s, &s, &e);
    CHECK_MSG(rc == 0 && s, "%s", e.msg);
    return s;
}

static void fresh_file(const char *name) {
    snprintf(file, sizeof file, "%s/%s", folder, name);
}

static int put(responses *s, const char *id, const char *key, const char *previous,
               const char *body, int64_t now_s, err *e) {
    char item[80];
    const char *const items[] = {item};
    snprintf(item, sizeof item, "msg_of_%s", id);
    return responses_put(s,
                         &(struct responses_row){.id = id,
                                                 .key = key,
                                                 .previous_id = previous,
                                                 .body = body,
                                                 .items = "[1]",
                                                 .item_ids = items,
                                                 .n_items = 1},
                         now_s, e);
}

static bool has(responses *s, const char *id, const char *key, int64_t now_s) {
    struct responses_entry entry;
    err e = {0};
    int rc = responses_get(s, id, key, now_s, &entry, &e);
    CHECK_MSG(rc == 0 || rc == ERR_NOT_FOUND, "%s", e.msg);
    if (!rc) responses_entry_fini(&entry);
    return rc == 0;
}

static int64_t query(const char *statement) {
    sqlite3 *db;
    sqlite3_stmt *st = NULL;
    int64_t value = -1;
    CHECK(sqlite3_open(file, &db) == SQLITE_OK);
    CHECK(sqlite3_prepare_v2(db, statement, -1, &st, NULL) == SQLITE_OK);
    if (sqlite3_step(st) == SQLITE_ROW) value = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return value;
}

static void check_total(void) {
    CHECK(query("SELECT n_bytes FROM response_total") ==
          query("SELECT coalesce(sum(length(CAST(body AS BLOB)) + length(CAST(items AS BLOB))), 0) "
                "FROM responses"));
    CHECK(query("SELECT count(*) FROM response_items WHERE response NOT IN (SELECT n FROM "
                "responses)") == 0);
}

static void survives_a_restart(void) {
    struct responses_entry entry;
    err e = {0};
    fresh_file("restart.db");
    responses *s = open_store(DAY, 1 << 20, NOW);
    CHECK(put(s, "resp_1", NULL, NULL, "{\"a\":\"\xc3\xa4\"}", NOW, &e) == 0);
    CHECK(put(s, "resp_2", NULL, "resp_1", "{}", NOW, &e) == 0);
    responses_close(s);
    s = open_store(DAY, 1 << 20, NOW + 5);
    CHECK(responses_get(s, "resp_1", NULL, NOW + 5, &entry, &e) == 0);
    CHECK_STR(entry.body, "{\"a\":\"\xc3\xa4\"}");
    CHECK_STR(entry.items, "[1]");
    CHECK_STR(entry.previous_id, "");
    responses_entry_fini(&entry);
    CHECK(responses_find_item(s, "msg_of_resp_2", NULL, NOW + 5, &entry, &e) == 0);
    CHECK_STR(entry.id, "resp_2");
    CHECK_STR(entry.previous_id, "resp_1");
    responses_entry_fini(&entry);
    CHECK(responses_delete(s, "resp_1", NULL, NOW + 5, &e) == 0);
    CHECK(responses_delete(s, "resp_1", NULL, NOW + 5, &e) == ERR_NOT_FOUND);
    CHECK(responses_find_item(s, "msg_of_resp_1", NULL, NOW + 5, &entry, &e) == ERR_NOT_FOUND);
    check_total();
    responses_close(s);
    /* The other users of the file do not mind. */
    registry *r = NULL;
    CHECK(registry_open(file, &r, &e) == 0);
    registry_close(r);
    struct stat st;
    CHECK(stat(file, &st) == 0 && (st.st_mode & 07) == 0);
}

static void owners_see_their_own(void) {
    struct responses_entry entry;
    err e = {0};
    fresh_file("owners.db");
    responses *s = open_store(DAY, 1 << 20, NOW);
    CHECK(put(s, "resp_a", "key-a", NULL, "{}", NOW, &e) == 0);
    CHECK(put(s, "resp_n", NULL, NULL, "{}", NOW, &e) == 0);
    CHECK(has(s, "resp_a", "key-a", NOW) && !has(s, "resp_a", "key-b", NOW));
    CHECK(!has(s, "resp_a", NULL, NOW) && !has(s, "resp_n", "key-a", NOW) &&
          has(s, "resp_n", NULL, NOW));
    CHECK(responses_find_item(s, "msg_of_resp_a", "key-b", NOW, &entry, &e) == ERR_NOT_FOUND);
    CHECK(responses_delete(s, "resp_a", "key-b", NOW, &e) == ERR_NOT_FOUND);
    CHECK(has(s, "resp_a", "key-a", NOW));
    /* The key itself is nowhere in the file. */
    CHECK(query("SELECT count(*) FROM responses WHERE owner LIKE '%key%'") == 0);
    CHECK(query("SELECT count(*) FROM responses WHERE length(owner) = 64") == 1);
    /* Another key's conversation does not get more time. */
    CHECK(put(s, "resp_b", "key-b", "resp_a", "{}", NOW + DAY / 2, &e) == 0);
    CHECK(!has(s, "resp_a", "key-a", NOW + DAY));
    responses_close(s);
}

static void time_to_live(void) {
    err e = {0};
    fresh_file("ttl.db");
    responses *s = open_store(DAY, 1 << 20, NOW);
    CHECK(put(s, "resp_1", NULL, NULL, "{}", NOW, &e) == 0);
    CHECK(put(s, "resp_2", NULL, "resp_1", "{}", NOW + 1, &e) == 0);
    CHECK(put(s, "resp_x", NULL, NULL, "{}", NOW + 1, &e) == 0);
    CHECK(has(s, "resp_1", NULL, NOW + DAY) && has(s, "resp_2", NULL, NOW + DAY));
    CHECK(put(s, "resp_3", NULL, "resp_2", "{}", NOW + DAY, &e) == 0);
    /* The conversation goes on as a whole; the response that nobody went on from is gone. */
    CHECK(has(s, "resp_1", NULL, NOW + DAY + 10) && has(s, "resp_2", NULL, NOW + DAY + 10));
    CHECK(!has(s, "resp_x", NULL, NOW + DAY + 10));
    CHECK(responses_delete(s, "resp_x", NULL, NOW + DAY + 10, &e) == ERR_NOT_FOUND);
    CHECK(put(s, "resp_4", NULL, NULL, "{}", NOW + DAY + 10, &e) == 0);
    CHECK(query("SELECT count(*) FROM responses") == 4);
    responses_close(s);
    s = open_store(DAY, 1 << 20, NOW + 10 * DAY);
    CHECK(query("SELECT count(*) FROM responses") == 0);
    CHECK(query("SELECT count(*) FROM response_items") == 0);
    check_total();
    responses_close(s);
}

static void room(void) {
    enum { MAX = 8000, ONE = 900 };
    char body[ONE + 1], id[32];
    err e = {0};
    fresh_file("room.db");
    responses *s = open_store(DAY, MAX, NOW);
    memset(body, 'x', ONE);
    body[ONE] = '\0';
    for (int i = 0; i < 40; i++) {
        snprintf(id, sizeof id, "resp_%d", i);
        CHECK_MSG(put(s, id, NULL, NULL, body, NOW + i, &e) == 0, "%s", e.msg);
        CHECK(query("SELECT n_bytes FROM response_total") <= MAX);
    }
    CHECK(has(s, "resp_39", NULL, NOW + 40) && has(s, "resp_32", NULL, NOW + 40));
    CHECK(!has(s, "resp_31", NULL, NOW + 40) && !has(s, "resp_0", NULL, NOW + 40));
    /* What a new one goes on from leaves last. */
    CHECK(put(s, "resp_next", NULL, "resp_32", body, NOW + 40, &e) == 0);
    CHECK(has(s, "resp_32", NULL, NOW + 40) && !has(s, "resp_33", NULL, NOW + 40));
    check_total();
    char *large = mem_new(MAX / 8 + 2, 1);
    memset(large, 'y', MAX / 8 + 1);
    CHECK(put(s, "resp_large", NULL, NULL, large, NOW + 41, &e) == ERR_TOO_LONG);
    CHECK(!has(s, "resp_large", NULL, NOW + 41) && has(s, "resp_39", NULL, NOW + 41));
    free(large);
    responses_close(s);
}

static void chains_that_loop_end(void) {
    err e = {0};
    fresh_file("loop.db");
    responses *s = open_store(DAY, 1 << 20, NOW);
    CHECK(put(s, "resp_1", NULL, "resp_2", "{}", NOW, &e) == 0);
    CHECK(put(s, "resp_2", NULL, "resp_1", "{}", NOW, &e) == 0);
    CHECK(put(s, "resp_3", NULL, "resp_2", "{}", NOW + 1, &e) == 0);
    /* An id that is there, an item that another one holds. */
    CHECK(put(s, "resp_3", NULL, NULL, "{}", NOW + 1, &e) == ERR_IO);
    CHECK(query("SELECT count(*) FROM responses") == 3);
    check_total();
    responses_close(s);
}

static void locked_and_full(void) {
    sqlite3 *db;
    err e = {0};
    fresh_file("locked.db");
    responses *s = open_store(DAY, 1 << 20, NOW);
    CHECK(put(s, "resp_1", NULL, NULL, "{}", NOW, &e) == 0);
    CHECK(sqlite3_open(file, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK);
    CHECK(put(s, "resp_2", NULL, NULL, "{}", NOW, &e) == ERR_IO && strstr(e.msg, "busy"));
    CHECK(has(s, "resp_1", NULL, NOW)); /* reading goes on */
    CHECK(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK);
    CHECK(put(s, "resp_2", NULL, NULL, "{}", NOW, &e) == 0);
    sqlite3_close(db);
    responses_close(s);
    fresh_file("gone/there.db");
    s = NULL;
    char parent[160];
    snprintf(parent, sizeof parent, "%s/gone", folder);
    FILE *f = fopen(parent, "w"); /* a file where a folder should be */
    CHECK(f != NULL);
    fclose(f);
    const struct responses_config c = {file, DAY, 1 << 20};
    CHECK(responses_open(&c, NOW, &s, &e) == ERR_IO && !s);
}

/* Truncates and overwrites parts: an error or an answer, never a crash. */
static void damaged_files(void) {
    static char body[20000];
    err e = {0};
    memset(body, 'z', sizeof body - 1);
    for (int round = 0; round < 24; round++) {
        char name[32];
        snprintf(name, sizeof name, "damaged-%d.db", round);
        fresh_file(name);
        responses *s = open_store(DAY, 1 << 20, NOW);
        CHECK(put(s, "resp_1", NULL, NULL, body, NOW, &e) == 0);
        responses_close(s);
        FILE *f = fopen(file, "r+b");
        CHECK(f != NULL);
        fseek(f, 0, SEEK_END);
        long size = ftell(f);
        fseek(f, size * round / 24, SEEK_SET);
        for (int i = 0; i < 300; i++)
            fputc((i * 131 + round * 17) & 255, f);
        fclose(f);
        const struct responses_config c = {file, DAY, 1 << 20};
        struct responses_entry entry;
        if (responses_open(&c, NOW, &s, &e)) continue;
        if (responses_get(s, "resp_1", NULL, NOW, &entry, &e) == 0) responses_entry_fini(&entry);
        (void)put(s, "resp_2", NULL, "resp_1", body, NOW, &e);
        responses_close(s);
    }
}

enum { N_THREADS = 4, N_EACH = 40 };
static responses *shared;

static void *work(void *arg) {
    int me = *(int *)arg;
    char id[32], before[32] = "";
    err e;
    for (int i = 0; i < N_EACH; i++) {
        snprintf(id, sizeof id, "resp_%d_%d", me, i);
        if (put(shared, id, NULL, *before ? before : NULL, "{}", NOW + i, &e)) return "put";
        struct responses_entry entry;
        if (responses_get(shared, id, NULL, NOW + i, &entry, &e)) return "get";
        responses_entry_fini(&entry);
        if (i % 3 == 2 && responses_delete(shared, before, NULL, NOW + i, &e)) return "delete";
        snprintf(before, sizeof before, "%s", id);
    }
    return NULL;
}

static void threads_share_a_handle(void) {
    pthread_t threads[N_THREADS];
    int numbers[N_THREADS];
    fresh_file("threads.db");
    shared = open_store(DAY, 1 << 20, NOW);
    for (int i = 0; i < N_THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        CHECK_MSG(!failed, "%s", (char *)failed);
    }
    CHECK(query("SELECT count(*) FROM responses") == N_THREADS * (N_EACH - N_EACH / 3));
    check_total();
    responses_close(shared);
}

int main(void) {
    char command[96];
    snprintf(folder, sizeof folder, "/tmp/inferd-test-responses-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    RUN(survives_a_restart);
    RUN(owners_see_their_own);
    RUN(time_to_live);
    RUN(room);
    RUN(chains_that_loop_end);
    RUN(locked_and_full);
    RUN(damaged_files);
    RUN(threads_share_a_handle);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command)) return 1;
    return check_done();
}
