/* test_responses_store.c - stored responses: owners, time to live, limits of space, conversations,
 * threads, a file that is locked, full, read-only or damaged. Time is an argument, so no test
 * waits. */
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

static void run_sql(const char *text) {
    sqlite3 *db;
    char *why = NULL;
    CHECK(sqlite3_open(file, &db) == SQLITE_OK);
    CHECK_MSG(sqlite3_exec(db, text, NULL, NULL, &why) == SQLITE_OK, "%s", why);
    sqlite3_free(why);
    sqlite3_close(db);
}

/* The triggers' counts equal those of the rows. */
static void check_total(void) {
    CHECK(query("SELECT n_bytes FROM response_total") ==
          query("SELECT coalesce(sum(n_bytes), 0) FROM responses"));
    CHECK(query("SELECT count(*) FROM responses WHERE n_bytes < length(CAST(body AS BLOB)) + "
                "length(CAST(items AS BLOB))") == 0);
    CHECK(query("SELECT count(*) FROM (SELECT owner, sum(n_bytes) FROM responses GROUP BY owner "
                "EXCEPT SELECT owner, n_bytes FROM response_owners)") == 0);
    CHECK(query("SELECT count(*) FROM response_owners WHERE owner NOT IN (SELECT owner FROM "
                "responses)") == 0);
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
    /* Other users of the file are not affected. */
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
    /* The file does not contain the key itself. */
    CHECK(query("SELECT count(*) FROM responses WHERE owner LIKE '%key%'") == 0);
    CHECK(query("SELECT count(*) FROM responses WHERE length(owner) = 64") == 1);
    /* Another key's conversation is not extended. */
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
    /* The whole conversation is kept; the response without a successor expired. */
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

enum { ROOM = 1 << 20, ONE = 60 << 10 };
static char one_body[ONE + 1];

static void fill_body(void) {
    memset(one_body, 'x', ONE);
}

/* The n-th response of a key. */
static void put_nth(responses *s, const char *key, int n, int64_t now_s) {
    char id[64];
    err e = {0};
    snprintf(id, sizeof id, "resp_%s_%d", key, n);
    CHECK_MSG(put(s, id, key, NULL, one_body, now_s, &e) == 0, "%s", e.msg);
    CHECK(query("SELECT n_bytes FROM response_total") <= ROOM);
}

static bool has_nth(responses *s, const char *key, int n, int64_t now_s) {
    char id[64];
    snprintf(id, sizeof id, "resp_%s_%d", key, n);
    return has(s, id, key, now_s);
}

static void room(void) {
    err e = {0};
    fresh_file("room.db");
    responses *s = open_store(DAY, ROOM, NOW);
    for (int i = 0; i < 40; i++)
        put_nth(s, "k", i, NOW + i);
    CHECK(has_nth(s, "k", 39, NOW + 40) && has_nth(s, "k", 25, NOW + 40));
    CHECK(!has_nth(s, "k", 23, NOW + 40) && !has_nth(s, "k", 0, NOW + 40));
    /* The predecessor of a new response is deleted last. */
    CHECK(put(s, "resp_next", "k", "resp_k_25", one_body, NOW + 40, &e) == 0);
    CHECK(put(s, "resp_more", "k", NULL, one_body, NOW + 40, &e) == 0);
    CHECK(has_nth(s, "k", 25, NOW + 40) && !has_nth(s, "k", 26, NOW + 40));
    check_total();
    char *large = mem_new(ROOM / 8 + 2, 1);
    memset(large, 'y', ROOM / 8 + 1);
    CHECK(put(s, "resp_large", "k", NULL, large, NOW + 41, &e) == ERR_TOO_LONG);
    CHECK(!has(s, "resp_large", "k", NOW + 41) && has_nth(s, "k", 39, NOW + 41));
    free(large);
    responses_close(s);
}

static int n_of(const char *key, responses *s, int n, int64_t now_s) {
    int kept = 0;
    for (int i = 0; i < n; i++)
        kept += has_nth(s, key, i, now_s);
    return kept;
}

/* A key that floods the store loses its own responses; a key that holds less loses none. */
static void owners_keep_their_share(void) {
    fresh_file("share.db");
    responses *s = open_store(DAY, ROOM, NOW);
    for (int i = 0; i < 3; i++)
        put_nth(s, "quiet", i, NOW + i);
    for (int i = 0; i < 60; i++)
        put_nth(s, "flood", i, NOW + 10 + i);
    CHECK(n_of("quiet", s, 3, NOW + 100) == 3);
    int kept = n_of("flood", s, 60, NOW + 100);
    CHECK_MSG(kept >= 10, "%d", kept);
    CHECK(has_nth(s, "flood", 59, NOW + 100) && has_nth(s, "flood", 60 - kept, NOW + 100));
    /* A second key displaces the first one's responses, oldest first, until both hold equal
     * amounts. */
    for (int i = 0; i < 30; i++)
        put_nth(s, "second", i, NOW + 100 + i);
    int first = n_of("flood", s, 60, NOW + 200), second = n_of("second", s, 30, NOW + 200);
    CHECK_MSG(first - second <= 1 && second - first <= 1, "%d %d", first, second);
    CHECK(has_nth(s, "flood", 59, NOW + 200) && !has_nth(s, "flood", 60 - kept, NOW + 200));
    CHECK(n_of("quiet", s, 3, NOW + 200) == 3);
    check_total();
    responses_close(s);
}

/* A large response is stored even if it displaces thousands of another key's small ones. */
static void room_of_many_small_ones(void) {
    enum { MAX = 32 << 20, LARGE = 4000000 };
    char id[32];
    err e = {0};
    fresh_file("small.db");
    responses *s = open_store(DAY, MAX, NOW);
    run_sql("WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 30000) "
            "INSERT INTO responses (id, owner, previous_id, body, items, created_s, expires_s, "
            "n_bytes) SELECT 'small' || i, 'x', '', '{}', '[]', 1, 2000000, 1100 FROM c");
    char *large = mem_new(LARGE + 1, 1);
    memset(large, 'y', LARGE);
    for (int i = 0; i < 2; i++) {
        snprintf(id, sizeof id, "resp_%d", i);
        CHECK_MSG(put(s, id, "key", NULL, large, NOW, &e) == 0, "%s", e.msg);
    }
    CHECK(has(s, "resp_0", "key", NOW) && has(s, "resp_1", "key", NOW));
    CHECK(query("SELECT n_bytes FROM response_total") <= MAX);
    CHECK(query("SELECT count(*) FROM responses WHERE owner = 'x'") > 20000);
    check_total();
    free(large);
    responses_close(s);
}

/* The counted bytes are at least the file's growth, for any shape of rows. */
static void counts_what_the_file_takes(void) {
    static const struct {
        int n_rows, n_items;
        size_t n_body;
    } shapes[] = {{2000, 2, 10}, {400, 2, 4090}, {400, 2, 4500}, {60, 2, 60000}, {40, 400, 10}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        char name[32], id[80];
        static char ids[400][64];
        const char *items[400];
        err e = {0};
        snprintf(name, sizeof name, "size-%zu.db", k);
        fresh_file(name);
        responses *s = open_store(DAY, UINT64_C(1) << 30, NOW);
        int64_t before = query("SELECT page_count * page_size FROM pragma_page_count, "
                               "pragma_page_size");
        char *body = mem_new(shapes[k].n_body + 1, 1);
        memset(body, 'z', shapes[k].n_body);
        for (int i = 0; i < shapes[k].n_rows; i++) {
            unsigned mixed = (unsigned)i * 2654435761u; /* ids are not in order */
            snprintf(id, sizeof id, "resp_%08x%056x", mixed, i);
            for (int n = 0; n < shapes[k].n_items; n++) {
                snprintf(ids[n], sizeof ids[n], "msg_%08x%08x%032x", mixed * (unsigned)(n + 3), n,
                         i);
                items[n] = ids[n];
            }
            const struct responses_row row = {.id = id,
                                              .key = "a key",
                                              .previous_id = "resp_000000000000000000000000000000",
                                              .body = body,
                                              .items = "[]",
                                              .item_ids = items,
                                              .n_items = (size_t)shapes[k].n_items};
            CHECK_MSG(responses_put(s, &row, NOW, &e) == 0, "%s", e.msg);
        }
        int64_t grown =
            query("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size") -
            before;
        int64_t counted = query("SELECT n_bytes FROM response_total");
        CHECK_MSG(grown <= counted && counted < 3 * grown, "shape %zu: %lld of %lld", k,
                  (long long)counted, (long long)grown);
        free(body);
        responses_close(s);
    }
}

/* Clients choose item ids: another key's ids do not conflict. */
static void item_ids_are_their_owners(void) {
    struct responses_entry entry;
    err e = {0};
    const char *const items[] = {"msg_mine"};
    fresh_file("items.db");
    responses *s = open_store(DAY, 1 << 20, NOW);
    for (int i = 0; i < 2; i++) {
        const struct responses_row row = {.id = i ? "resp_b" : "resp_a",
                                          .key = i ? "key-b" : "key-a",
                                          .body = "{}",
                                          .items = "[]",
                                          .item_ids = items,
                                          .n_items = 1};
        CHECK(responses_put(s, &row, NOW, &e) == 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(responses_find_item(s, "msg_mine", i ? "key-b" : "key-a", NOW, &entry, &e) == 0);
        CHECK_STR(entry.id, i ? "resp_b" : "resp_a");
        responses_entry_fini(&entry);
    }
    CHECK(responses_find_item(s, "msg_mine", NULL, NOW, &entry, &e) == ERR_NOT_FOUND);
    responses_close(s);
}

/* A file of version 4 keeps its responses; its triggers and counts are migrated. */
static void older_files_keep_theirs(void) {
    struct responses_entry entry;
    err e = {0};
    fresh_file("older.db");
    responses *s = open_store(DAY, 1 << 20, NOW);
    CHECK(put(s, "resp_1", "key", NULL, "{}", NOW, &e) == 0);
    CHECK(put(s, "resp_2", NULL, NULL, "{}", NOW, &e) == 0);
    responses_close(s);
    run_sql("DROP TRIGGER response_added; DROP TRIGGER response_removed;"
            "DROP TRIGGER response_resized; DROP TABLE response_labels; DROP TABLE presets;"
            "DROP TABLE key_secrets; DROP TABLE keys; DROP TABLE key_state;"
            "DROP TABLE usage; DROP TABLE usage_writers; DROP TABLE audit;"
            "DROP TABLE batch_lines; DROP TABLE batches; DROP TABLE files;"
            "CREATE TABLE old (id TEXT NOT NULL PRIMARY KEY, response INTEGER NOT NULL REFERENCES "
            "responses (n) ON DELETE CASCADE) STRICT, WITHOUT ROWID;"
            "INSERT INTO old SELECT id, response FROM response_items; DROP TABLE response_items;"
            "ALTER TABLE old RENAME TO response_items;"
            "CREATE INDEX response_items_by_response ON response_items (response);"
            "DROP INDEX responses_by_owner; DROP TABLE response_owners;"
            "UPDATE responses SET n_bytes = 5; UPDATE response_total SET n_bytes = 10;"
            "CREATE TRIGGER response_added AFTER INSERT ON responses BEGIN"
            "  UPDATE response_total SET n_bytes = n_bytes + new.n_bytes; END;"
            "CREATE TRIGGER response_removed AFTER DELETE ON responses BEGIN"
            "  UPDATE response_total SET n_bytes = n_bytes - old.n_bytes; END;"
            "PRAGMA user_version = 4");
    s = open_store(DAY, 1 << 20, NOW);
    check_total();
    CHECK(has(s, "resp_1", "key", NOW) && has(s, "resp_2", NULL, NOW));
    CHECK(responses_find_item(s, "msg_of_resp_1", "key", NOW, &entry, &e) == 0);
    responses_entry_fini(&entry);
    CHECK(responses_delete(s, "resp_1", "key", NOW, &e) == 0);
    CHECK(put(s, "resp_3", "key", NULL, "{}", NOW, &e) == 0);
    check_total();
    responses_close(s);
}

static int put_open(responses *s, const char *id, const char *key, err *e) {
    return responses_put(
        s, &(struct responses_row){.id = id, .key = key, .body = "{}", .items = "{\"input\":[]}"},
        NOW, e);
}

static void rows_change(void) {
    static const char *const ids[] = {"msg_1"};
    struct responses_change c = {
        .id = "conv_1", .key = "key", .more_items = "{\"id\":1}", .item_ids = ids, .n_items = 1};
    struct responses_entry entry;
    err e = {0};
    fresh_file("change.db");
    responses *s = open_store(DAY, 1 << 20, NOW);
    CHECK(put_open(s, "conv_1", "key", &e) == 0);
    CHECK(responses_change(s, &c, NOW + DAY / 2, &e) == 0);
    c.more_items = "2,3";
    c.n_items = 0;
    CHECK(responses_change(s, &c, NOW + DAY / 2, &e) == 0);
    check_total();
    CHECK(responses_find_item(s, "msg_1", "key", NOW + DAY + 5, &entry, &e) == 0);
    CHECK_STR(entry.items, "{\"input\":[{\"id\":1},2,3]}");
    /* Of another owner; unknown; changed meanwhile. */
    c.key = "other";
    CHECK(responses_change(s, &c, NOW, &e) == ERR_NOT_FOUND);
    c.key = NULL;
    CHECK(responses_change(s, &c, NOW, &e) == ERR_NOT_FOUND);
    c = (struct responses_change){
        .id = "conv_1", .key = "key", .body = "{1}", .items = "{\"input\":[]}", .old_items = "x"};
    CHECK(responses_change(s, &c, NOW, &e) == ERR_CHANGED);
    c.old_items = entry.items;
    CHECK(responses_change(s, &c, NOW, &e) == 0);
    responses_entry_fini(&entry);
    CHECK(responses_get(s, "conv_1", "key", NOW, &entry, &e) == 0);
    CHECK_STR(entry.body, "{1}");
    CHECK_STR(entry.items, "{\"input\":[]}");
    responses_entry_fini(&entry);
    check_total();
    responses_close(s);
}

/* A growing row displaces others, not itself, within its key's share. */
static void changes_make_room(void) {
    static char more[6001];
    struct responses_change c = {.id = "conv_1", .more_items = more};
    err e = {0};
    fresh_file("grow.db");
    memset(more, '1', sizeof more - 1);
    responses *s = open_store(DAY, 256 << 10, NOW);
    CHECK(put_open(s, "conv_1", NULL, &e) == 0);
    for (int i = 0; i < 400; i++) {
        char id[32];
        snprintf(id, sizeof id, "resp_%d", i);
        CHECK(put(s, id, NULL, NULL, "{}", NOW + i, &e) == 0);
        check_total();
    }
    CHECK(!has(s, "conv_1", NULL, NOW) && has(s, "resp_399", NULL, NOW));
    CHECK(put_open(s, "conv_1", NULL, &e) == 0);
    int64_t n = query("SELECT count(*) FROM responses");
    CHECK(responses_change(s, &c, NOW + 400, &e) == 0);
    CHECK(responses_change(s, &c, NOW + 400, &e) == 0);
    check_total();
    CHECK(query("SELECT count(*) FROM responses") < n);
    CHECK(query("SELECT n_bytes FROM response_total") <= 256 << 10);
    int rc = 0, rounds = 0;
    while (!rc && rounds++ < 10)
        rc = responses_change(s, &c, NOW + 400, &e);
    CHECK(rc == ERR_TOO_LONG && rounds > 1);
    CHECK(has(s, "conv_1", NULL, NOW));
    check_total();
    responses_close(s);
}

static void add_id(void *arg, const char *id, const char *body) {
    char *list = arg;
    (void)body;
    strcat(strcat(list, *list ? " " : ""), id);
}

static void check_list(responses *s, const struct responses_query *q, const char *want, bool more) {
    char list[256] = "";
    bool others = !more;
    err e = {0};
    CHECK_MSG(responses_list(s, q, NOW, add_id, list, &others, &e) == 0, "%s", e.msg);
    CHECK_STR(list, want);
    CHECK(others == more);
}

static void labelled_rows_are_listed(void) {
    static const char *const metadata[] = {"{}", "{\"a\":\"1\",\"b'\\\"\":\"2\"}", "{\"a\":\"2\"}",
                                           "{\"a\":\"1\"}"};
    err e = {0};
    fresh_file("list.db");
    responses *s = open_store(DAY, 1 << 20, NOW);
    CHECK(put(s, "resp_1", "key", NULL, "{}", NOW, &e) == 0);
    for (int i = 0; i < 4; i++) {
        char id[16];
        snprintf(id, sizeof id, "c%d", i);
        const struct responses_row row = {.id = id,
                                          .key = "key",
                                          .body = "{}",
                                          .items = "{}",
                                          .model = i == 3 ? "n" : "m",
                                          .metadata = metadata[i]};
        CHECK(responses_put(s, &row, NOW, &e) == 0);
    }
    check_total();
    struct responses_query q = {.key = "key", .metadata = "{}", .ascending = true, .limit = 10};
    check_list(s, &q, "c0 c1 c2 c3", false);
    q.limit = 2;
    check_list(s, &q, "c0 c1", true);
    q.after = "c1";
    check_list(s, &q, "c2 c3", false);
    q.ascending = false;
    check_list(s, &q, "c0", false);
    q.after = NULL;
    check_list(s, &q, "c3 c2", true);
    q.model = "m";
    q.metadata = "{\"a\":\"1\"}";
    check_list(s, &q, "c1", false);
    q.metadata = metadata[1];
    check_list(s, &q, "c1", false);
    q.key = NULL;
    check_list(s, &q, "", false);
    q.after = "c1";
    bool more;
    CHECK(responses_list(s, &q, NOW, add_id, NULL, &more, &e) == ERR_NOT_FOUND);
    q = (struct responses_query){.key = "key", .metadata = "{\"z\":\"1\"}", .limit = 1};
    check_list(s, &q, "", false);
    const struct responses_change c = {.id = "c0", .key = "key", .metadata = q.metadata};
    CHECK(responses_change(s, &c, NOW, &e) == 0);
    check_list(s, &q, "c0", false);
    CHECK(responses_delete(s, "c0", "key", NOW, &e) == 0);
    check_list(s, &q, "", false);
    CHECK(query("SELECT count(*) FROM response_labels") == 3);
    check_total();
    responses_close(s);
}

static void chains_that_loop_end(void) {
    err e = {0};
    fresh_file("loop.db");
    responses *s = open_store(DAY, 1 << 20, NOW);
    CHECK(put(s, "resp_1", NULL, "resp_2", "{}", NOW, &e) == 0);
    CHECK(put(s, "resp_2", NULL, "resp_1", "{}", NOW, &e) == 0);
    CHECK(put(s, "resp_3", NULL, "resp_2", "{}", NOW + 1, &e) == 0);
    /* An existing id, and an item of another response. */
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

/* "quick": what threads share, for ThreadSanitizer. */
int main(int argc, char **argv) {
    char command[96];
    snprintf(folder, sizeof folder, "/tmp/inferd-test-responses-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    if (argc > 1 && strcmp(argv[1], "quick") == 0) goto threads;
    RUN(survives_a_restart);
    RUN(owners_see_their_own);
    RUN(time_to_live);
    fill_body();
    RUN(room);
    RUN(owners_keep_their_share);
    RUN(room_of_many_small_ones);
    RUN(counts_what_the_file_takes);
    RUN(item_ids_are_their_owners);
    RUN(older_files_keep_theirs);
    RUN(rows_change);
    RUN(changes_make_room);
    RUN(labelled_rows_are_listed);
    RUN(chains_that_loop_end);
    RUN(locked_and_full);
    RUN(damaged_files);
threads:
    RUN(threads_share_a_handle);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command)) return 1;
    return check_done();
}
