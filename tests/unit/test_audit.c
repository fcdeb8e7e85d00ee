/* test_audit.c - the daemon's writer of the audit log: rows wait while another process has the
 * registry, beyond the queue they are counted, and failures are one row for each hour and reason.
 */
#include "core/base/err.h"
#include "registry/audit.h"
#include "registry/registry.h"
#include "tests/unit/check.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

enum { HOUR_S = 3600, NOW = 1769860800 + 100 };

static char folder[] = "/tmp/inferd-test-audit-XXXXXX", file[64];

struct found {
    struct audit_row rows[AUDIT_QUEUE + 16];
    size_t n;
};

static void take_row(void *arg, const struct audit_row *row) {
    struct found *f = arg;
    if (f->n < sizeof f->rows / sizeof *f->rows) f->rows[f->n] = *row;
    f->n++;
}

static void read_rows(struct found *f, const char *act) {
    registry *r = NULL;
    err e;
    f->n = 0;
    CHECK(registry_open(file, &r, &e) == 0);
    CHECK(audit_read(r, 0, act, take_row, f, &e) == 0);
    registry_close(r);
}

static struct audit_row row_of(const char *act, int i) {
    struct audit_row row = {.time_s = NOW, .who = "local", .result = "ok"};
    snprintf(row.act, sizeof row.act, "%s", act);
    snprintf(row.object, sizeof row.object, "object-%d", i);
    return row;
}

static void test_a_busy_registry(void) {
    static struct found f;
    audit *a = NULL;
    sqlite3 *other = NULL;
    err e;
    CHECK(audit_open(file, &a, &e) == 0);
    CHECK(sqlite3_open(file, &other) == SQLITE_OK);
    CHECK(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK);
    for (int i = 0; i < 3; i++) {
        struct audit_row row = row_of("busy", i);
        audit_add(a, &row);
    }
    CHECK(audit_flush(a, NOW, &e) == ERR_IO);
    /* What is added now waits behind the batch; beyond the queue it is lost, and that is written.
     */
    for (int i = 3; i < 3 + AUDIT_QUEUE + 5; i++) {
        struct audit_row row = row_of("busy", i);
        audit_add(a, &row);
    }
    CHECK(audit_flush(a, NOW, &e) == ERR_IO);
    CHECK(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(other);
    audit_close(a, NOW);
    read_rows(&f, "busy");
    CHECK(f.n == 3 + AUDIT_QUEUE);
    for (size_t i = 0; i < f.n; i++) {
        char object[32];
        snprintf(object, sizeof object, "object-%zu", i);
        CHECK_STR(f.rows[i].object, object);
        CHECK(f.rows[i].count == 1);
    }
    read_rows(&f, "audit.lost");
    CHECK(f.n == 1 && f.rows[0].count == 5);
}

static void test_failures(void) {
    static struct found f;
    audit *a = NULL;
    err e;
    CHECK(audit_open(file, &a, &e) == 0);
    CHECK(audit_flush(a, NOW, &e) == 0);
    for (uint64_t total = 1; total <= 50; total++) { /* 25 in each of two hours */
        audit_count(a, 1, "unknown", total);
        audit_count(a, 0, "missing", total > 40 ? 7 : 0);
        CHECK(audit_flush(a, total <= 25 ? NOW : NOW + HOUR_S, &e) == 0);
    }
    audit_close(a, NOW + HOUR_S);
    read_rows(&f, "auth");
    CHECK(f.n == 3);
    CHECK_STR(f.rows[0].object, "unknown");
    CHECK(f.rows[0].count == 25 && f.rows[0].time_s == NOW - NOW % HOUR_S);
    CHECK_STR(f.rows[1].object, "unknown");
    CHECK(f.rows[1].count == 25 && f.rows[1].time_s == NOW - NOW % HOUR_S + HOUR_S);
    CHECK_STR(f.rows[2].object, "missing");
    CHECK(f.rows[2].count == 7);
}

static void test_texts(void) {
    struct audit_row row = {.count = 0};
    audit_set(row.object, sizeof row.object, "a\nb \"c\"");
    CHECK_STR(row.object, "a\\x0ab\\x20\\x22c\\x22");
    audit_set_result(&row, 0);
    CHECK_STR(row.result, "ok");
    audit_set_result(&row, ERR_NOT_FOUND);
    CHECK_STR(row.result, "failed: not found");
    audit_set_result(&row, ERR_DEVICE);
    CHECK_STR(row.result, "failed: other");
}

int main(void) {
    CHECK(mkdtemp(folder) != NULL);
    snprintf(file, sizeof file, "%s/r.db", folder);
    RUN(test_a_busy_registry);
    RUN(test_failures);
    RUN(test_texts);
    unlink(file);
    rmdir(folder);
    return check_done();
}
