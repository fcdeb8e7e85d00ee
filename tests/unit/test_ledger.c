/* test_ledger.c - the ledger: sums, batches that are written once, files that fail, bounds. Time is
 * an argument. */
#include "registry/ledger.h"

#include "core/base/mem.h"
#include "registry/keys.h"
#include "tests/unit/check.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>

enum { HOUR = 3600, NOW = 500000 * HOUR, KEEP = 400 * 24 * HOUR };

static char folder[64], file[128];

static ledger *open_ledger(const char *name) {
    ledger *l = NULL;
    err e = {0};
    if (name) snprintf(file, sizeof file, "%s/%s", folder, name);
    CHECK_MSG(ledger_open(file, KEEP, NOW, &l, &e) == 0, "%s", e.msg);
    return l;
}

static void add(ledger *l, int64_t time_s, int64_t key, const char *model, uint64_t tokens) {
    struct usage_row row = {.time_s = time_s,
                            .key = key,
                            .requests = 1,
                            .input_tokens = tokens,
                            .cached_tokens = tokens / 2,
                            .output_tokens = 2 * tokens};
    snprintf(row.model, sizeof row.model, "%s", model);
    ledger_add(l, &row);
}

static void flush(ledger *l) {
    err e = {0};
    CHECK_MSG(ledger_flush(l, NOW, &e) == 0, "%s", e.msg);
}

struct sums {
    struct usage_row rows[32];
    size_t n;
};

static void take(void *arg, const struct usage_row *row) {
    struct sums *s = arg;
    if (s->n < 32) s->rows[s->n++] = *row;
}

static struct sums read_sums(struct usage_query q) {
    struct sums s = {.n = 0};
    registry *r = NULL;
    err e = {0};
    CHECK(registry_open(file, &r, &e) == 0);
    CHECK_MSG(usage_read(r, &q, take, &s, &e) == 0, "%s", e.msg);
    registry_close(r);
    return s;
}

static uint64_t total(void) {
    struct sums s = read_sums((struct usage_query){.to_s = INT64_MAX});
    return s.n ? s.rows[0].input_tokens : 0;
}

static void run_sql(const char *text) {
    sqlite3 *db;
    CHECK(sqlite3_open(file, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, text, NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
}

static void sums_are_of_hours(void) {
    ledger *l = open_ledger("sums.db");
    add(l, NOW + 5, 1, "a", 10);
    add(l, NOW + HOUR - 1, 1, "a", 20);
    add(l, NOW + HOUR, 1, "a", 40);
    flush(l);
    add(l, NOW + 6, 1, "a", 80);
    add(l, NOW + 6, 2, "a", 160);
    add(l, NOW + 6, -1, "b", 320);
    flush(l);
    flush(l); /* nothing new */
    struct sums s = read_sums((struct usage_query){
        .from_s = NOW, .to_s = NOW + HOUR, .interval_s = HOUR, .by_key = true, .by_model = true});
    CHECK(s.n == 3 && s.rows[0].key == -1 && s.rows[1].key == 1 && s.rows[2].key == 2);
    CHECK(s.rows[1].input_tokens == 110 && s.rows[1].output_tokens == 220);
    CHECK(s.rows[1].cached_tokens == 55 && s.rows[1].requests == 3 && s.rows[1].time_s == NOW);
    CHECK_STR(s.rows[0].model, "b");
    const int64_t key = 1;
    s = read_sums((struct usage_query){.to_s = INT64_MAX, .interval_s = HOUR, .key = &key});
    CHECK(s.n == 2 && s.rows[1].time_s == NOW + HOUR && s.rows[1].input_tokens == 40);
    s = read_sums((struct usage_query){.to_s = INT64_MAX, .by_model = true, .model = "a"});
    CHECK(s.n == 1 && s.rows[0].input_tokens == 310);
    const enum usage_kind embed = USAGE_EMBED;
    CHECK(read_sums((struct usage_query){.to_s = INT64_MAX, .kind = &embed}).n == 0);
    add(l, NOW, 1, "a", 1);
    ledger_close(l, NOW); /* writes it */
    CHECK(total() == 631);
}

static void a_batch_counts_once(void) {
    ledger *l = open_ledger("once.db");
    sqlite3 *db;
    err e = {0};
    add(l, NOW, 1, "a", 1);
    flush(l);
    /* While another process writes nothing is lost, and what comes meanwhile waits. */
    CHECK(sqlite3_open(file, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK);
    add(l, NOW, 1, "a", 2);
    CHECK(ledger_flush(l, NOW, &e) == ERR_IO);
    add(l, NOW, 1, "a", 4);
    CHECK(ledger_flush(l, NOW, &e) == ERR_IO && total() == 1);
    CHECK(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    flush(l);
    CHECK(total() == 3);
    flush(l);
    CHECK(total() == 7);
    /* A commit that failed to the writer and took effect: the file knows the batch's number. */
    run_sql("UPDATE usage_writers SET batch = batch + 1; UPDATE usage SET input_tokens = 15");
    add(l, NOW, 1, "a", 8);
    flush(l);
    CHECK(total() == 15);
    add(l, NOW, 1, "a", 16); /* and the next one counts */
    flush(l);
    CHECK(total() == 31);
    /* Another process has its own numbers. */
    ledger *other = open_ledger(NULL);
    add(other, NOW, 1, "a", 32);
    flush(other);
    CHECK(total() == 63);
    ledger_close(other, NOW);
    ledger_close(l, NOW);
}

static void *end_writing(void *db) {
    nanosleep(&(struct timespec){.tv_nsec = 700 * 1000 * 1000}, NULL);
    CHECK(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK);
    return NULL;
}

/* More than a flush may wait, beside which requests run. */
static void closing_waits_for_another_writer(void) {
    ledger *l = open_ledger("closing.db");
    sqlite3 *db;
    pthread_t thread;
    add(l, NOW, 1, "a", 1);
    CHECK(sqlite3_open(file, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK);
    CHECK(pthread_create(&thread, NULL, end_writing, db) == 0);
    ledger_close(l, NOW);
    pthread_join(thread, NULL);
    sqlite3_close(db);
    CHECK(total() == 1);
}

static void old_rows_go(void) {
    ledger *l = open_ledger("old.db");
    err e = {0};
    add(l, NOW - KEEP - HOUR, 1, "a", 1);
    add(l, NOW - KEEP + 10 * HOUR, 1, "a", 2);
    flush(l);
    CHECK(total() == 3);
    CHECK(ledger_flush(l, NOW + HOUR, &e) == 0 && total() == 2);
    CHECK(ledger_flush(l, NOW + 12 * HOUR, &e) == 0 && total() == 0);
    run_sql("INSERT INTO usage_writers VALUES ('gone', 5, 5)");
    ledger_close(l, NOW);
    ledger_close(open_ledger(NULL), NOW);
    run_sql("INSERT INTO usage_writers VALUES ('gone', 5, 5)"); /* it was removed */
}

static void another_age_counts_at_once(void) {
    ledger *l = open_ledger("age.db");
    add(l, NOW - 10 * HOUR, 1, "a", 1);
    add(l, NOW - HOUR, 1, "a", 2);
    flush(l);
    CHECK(total() == 3);
    ledger_set_keep(l, 2 * HOUR);
    flush(l);
    CHECK(total() == 2);
    ledger_set_keep(l, KEEP);
    add(l, NOW - 10 * HOUR, 1, "a", 1);
    flush(l);
    CHECK(total() == 3);
    ledger_close(l, NOW);
}

static void memory_is_bounded(void) {
    ledger *l = open_ledger("bounds.db");
    char model[REGISTRY_NAME_BYTES];
    for (int i = 0; i < LEDGER_ROWS + 100; i++) {
        snprintf(model, sizeof model, "m%d", i);
        add(l, NOW, i % 7, model, 1);
    }
    for (int i = 0; i < LEDGER_ROWS; i++) { /* known rows still count */
        snprintf(model, sizeof model, "m%d", i);
        add(l, NOW, i % 7, model, 1);
    }
    flush(l);
    CHECK(total() == 2 * LEDGER_ROWS);
    ledger_close(l, NOW);
    for (int n = 1;; n++) {
        err e = {0};
        mem_fail_at((uint64_t)n);
        int rc = ledger_open(file, KEEP, NOW, &l, &e);
        mem_fail_at(0);
        CHECK(rc == 0 || (rc == ERR_NOMEM && !l));
        ledger_close(l, NOW);
        if (!rc || n > 50) break;
    }
}

static void *add_often(void *arg) {
    for (int i = 0; i < 5000; i++)
        add(arg, NOW, i % 5, "a", 1);
    return NULL;
}

static void threads_add_while_it_is_written(void) {
    ledger *l = open_ledger("threads.db");
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, add_often, l) == 0);
    for (int i = 0; i < 10; i++)
        flush(l);
    for (size_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    ledger_close(l, NOW);
    CHECK(total() == 15000);
}

int main(void) {
    snprintf(folder, sizeof folder, "/tmp/inferd-ledger-XXXXXX");
    CHECK(mkdtemp(folder));
    RUN(sums_are_of_hours);
    RUN(a_batch_counts_once);
    RUN(closing_waits_for_another_writer);
    RUN(old_rows_go);
    RUN(another_age_counts_at_once);
    RUN(memory_is_bounded);
    RUN(threads_add_while_it_is_written);
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    return check_done();
}
