/* audit.c - see audit.h. A daemon's rows wait in a queue that its main thread empties. */
#include "registry/audit.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "registry/registry_int.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUSY_MS = 250, HOUR_S = 3600 };

struct audit {
    pthread_mutex_t mu; /* guards adding, n_adding, n_lost */
    struct audit_row adding[AUDIT_QUEUE];
    uint32_t n_adding;
    uint64_t n_lost;
    /* The flushing thread's. */
    struct audit_row batch[AUDIT_QUEUE];
    uint32_t n_batch;
    uint64_t n_batch_lost;
    struct counter {
        const char *reason;
        uint64_t total, written;
        int64_t row, hour; /* of the last row; row 0: none */
    } counters[AUDIT_COUNTS];
    sqlite3 *db;
    char *file;
};

void audit_set(char *to, size_t n, const char *text) {
    log_field(to, n, text);
}

void audit_set_result(struct audit_row *row, int rc) {
    static const struct {
        int code;
        const char *name;
    } kinds[] = {{ERR_INVALID, "invalid"},         {ERR_IO, "input/output"},
                 {ERR_FORMAT, "format"},           {ERR_NOT_FOUND, "not found"},
                 {ERR_UNSUPPORTED, "unsupported"}, {ERR_EXISTS, "name taken"},
                 {ERR_CHANGED, "changed"},         {ERR_CANCELLED, "cancelled"},
                 {ERR_STOPPING, "cancelled"}};
    size_t i = 0;
    while (i < sizeof kinds / sizeof *kinds && kinds[i].code != rc)
        i++;
    if (!rc)
        snprintf(row->result, sizeof row->result, "ok");
    else
        snprintf(row->result, sizeof row->result, "failed: %s",
                 i < sizeof kinds / sizeof *kinds ? kinds[i].name : "other");
}

/* ---- writing ---- */

static int finish_sql(sqlite3 *db, const char *file, sqlite3_stmt *st, err *e) {
    int rc = sqlite3_step(st) == SQLITE_DONE ? 0 : registry_db_error(db, file, "write", e);
    sqlite3_finalize(st);
    return rc;
}

/* One row, and the oldest ones beyond the bound. Inside a transaction. */
static int insert_row(sqlite3 *db, const char *file, const struct audit_row *row, err *e) {
    sqlite3_stmt *st;
    int rc = registry_db_prepare(db, file,
                                 "INSERT INTO audit (time_s, count, who, client, act, object,"
                                 " result) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                                 &st, e);
    if (rc) return rc;
    const char *const texts[] = {row->who, row->client, row->act, row->object, row->result};
    sqlite3_bind_int64(st, 1, row->time_s);
    sqlite3_bind_int64(st, 2, row->count ? (int64_t)row->count : 1);
    for (int i = 0; i < 5; i++)
        sqlite3_bind_text(st, 3 + i, texts[i], -1, SQLITE_STATIC);
    rc = finish_sql(db, file, st, e);
    if (rc) return rc;
    rc = registry_db_prepare(
        db, file, "DELETE FROM audit WHERE n <= (SELECT max(n) FROM audit) - ?1", &st, e);
    if (rc) return rc;
    sqlite3_bind_int(st, 1, AUDIT_MAX_ROWS);
    return finish_sql(db, file, st, e);
}

static int end_transaction(sqlite3 *db, const char *file, int rc, err *e) {
    if (!rc) rc = registry_db_exec(db, file, "COMMIT", e);
    if (rc) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

int audit_write(registry *r, const struct audit_row *row, err *e) {
    int rc = registry_db_exec(r->db, r->file, "BEGIN IMMEDIATE", e);
    return rc ? rc : end_transaction(r->db, r->file, insert_row(r->db, r->file, row, e), e);
}

/* ---- a daemon's writer ---- */

int audit_open(const char *file, audit **out, err *e) {
    *out = NULL;
    audit *a = mem_new(1, sizeof *a);
    if (!a) return err_no_memory(e);
    pthread_mutex_init(&a->mu, NULL);
    a->file = mem_strdup(file);
    int rc = a->file ? registry_db_open(file, BUSY_MS, &a->db, e) : err_no_memory(e);
    if (!rc && sqlite3_db_readonly(a->db, "main"))
        rc = err_set(e, ERR_IO, "the registry %s cannot be written", file);
    if (rc)
        audit_close(a, 0);
    else
        *out = a;
    return rc;
}

void audit_add(audit *a, const struct audit_row *row) {
    pthread_mutex_lock(&a->mu);
    if (a->n_adding < AUDIT_QUEUE)
        a->adding[a->n_adding++] = *row;
    else
        a->n_lost++;
    pthread_mutex_unlock(&a->mu);
}

void audit_count(audit *a, unsigned i, const char *reason, uint64_t total) {
    a->counters[i].reason = reason;
    a->counters[i].total = total;
}

static int write_lost(audit *a, int64_t now_s, err *e) {
    struct audit_row row = {.time_s = now_s, .count = a->n_batch_lost, .act = "audit.lost"};
    return a->n_batch_lost ? insert_row(a->db, a->file, &row, e) : 0;
}

/* Adds to this hour's row, or begins it. *row: its number. */
static int write_count(audit *a, const struct counter *c, int64_t hour, int64_t *number, err *e) {
    struct audit_row row = {
        .time_s = hour, .count = c->total - c->written, .act = "auth.failed", .result = "refused"};
    sqlite3_stmt *st;
    *number = c->row;
    if (c->hour == hour && c->row) {
        int rc = registry_db_prepare(a->db, a->file,
                                     "UPDATE audit SET count = count + ?1 WHERE n = ?2", &st, e);
        if (rc) return rc;
        sqlite3_bind_int64(st, 1, (int64_t)row.count);
        sqlite3_bind_int64(st, 2, c->row);
        rc = finish_sql(a->db, a->file, st, e);
        if (rc || sqlite3_changes(a->db)) return rc;
    }
    snprintf(row.object, sizeof row.object, "%s", c->reason);
    int rc = insert_row(a->db, a->file, &row, e);
    if (!rc) *number = sqlite3_last_insert_rowid(a->db);
    return rc;
}

static bool counts_wait(const audit *a) {
    bool any = false;
    for (unsigned i = 0; i < AUDIT_COUNTS; i++)
        any |= a->counters[i].total > a->counters[i].written;
    return any;
}

static int write_batch(audit *a, int64_t now_s, err *e) {
    int64_t rows[AUDIT_COUNTS], hour = now_s - now_s % HOUR_S;
    int rc = registry_db_exec(a->db, a->file, "BEGIN IMMEDIATE", e);
    if (rc) return rc;
    for (uint32_t i = 0; i < a->n_batch && !rc; i++)
        rc = insert_row(a->db, a->file, &a->batch[i], e);
    if (!rc) rc = write_lost(a, now_s, e);
    for (unsigned i = 0; i < AUDIT_COUNTS && !rc; i++)
        if (a->counters[i].total > a->counters[i].written)
            rc = write_count(a, &a->counters[i], hour, &rows[i], e);
    rc = end_transaction(a->db, a->file, rc, e);
    for (unsigned i = 0; i < AUDIT_COUNTS && !rc; i++) {
        struct counter *c = &a->counters[i];
        if (c->total == c->written) continue;
        c->written = c->total;
        c->row = rows[i];
        c->hour = hour;
    }
    return rc;
}

int audit_flush(audit *a, int64_t now_s, err *e) {
    if (!a->n_batch) { /* else an earlier batch still waits */
        pthread_mutex_lock(&a->mu);
        memcpy(a->batch, a->adding, a->n_adding * sizeof *a->adding);
        a->n_batch = a->n_adding;
        a->n_batch_lost += a->n_lost;
        a->n_adding = 0;
        a->n_lost = 0;
        pthread_mutex_unlock(&a->mu);
    }
    if (!a->n_batch && !a->n_batch_lost && !counts_wait(a)) return 0;
    int rc = write_batch(a, now_s, e);
    if (!rc) a->n_batch = 0, a->n_batch_lost = 0;
    return rc;
}

void audit_close(audit *a, int64_t now_s) {
    err e = {0};
    if (!a) return;
    if (a->db) sqlite3_busy_timeout(a->db, REGISTRY_BUSY_MS); /* nothing else waits any more */
    /* The second call takes what was added after a call that failed. */
    if (a->db && now_s && (audit_flush(a, now_s, &e) || audit_flush(a, now_s, &e)))
        log_warn("the audit log lost what it had not written: %s", e.msg);
    sqlite3_close(a->db);
    pthread_mutex_destroy(&a->mu);
    free(a->file);
    free(a);
}

/* ---- reading ---- */

static void read_text(sqlite3_stmt *st, int column, char *to, size_t n) {
    const char *text = (const char *)sqlite3_column_text(st, column);
    snprintf(to, n, "%s", text ? text : "");
}

int audit_read(registry *r, int64_t from_s, const char *act,
               void (*add)(void *arg, const struct audit_row *row), void *arg, err *e) {
    sqlite3_stmt *st;
    int step;
    int rc =
        registry_db_prepare(r->db, r->file,
                            "SELECT time_s, count, who, client, act, object, result FROM audit"
                            " WHERE time_s >= ?1 AND substr(act, 1, length(?2)) = ?2 ORDER BY n",
                            &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, from_s);
    sqlite3_bind_text(st, 2, act, -1, SQLITE_STATIC);
    while ((step = sqlite3_step(st)) == SQLITE_ROW) {
        struct audit_row row = {.time_s = sqlite3_column_int64(st, 0),
                                .count = (uint64_t)sqlite3_column_int64(st, 1)};
        read_text(st, 2, row.who, sizeof row.who);
        read_text(st, 3, row.client, sizeof row.client);
        read_text(st, 4, row.act, sizeof row.act);
        read_text(st, 5, row.object, sizeof row.object);
        read_text(st, 6, row.result, sizeof row.result);
        add(arg, &row);
    }
    if (step != SQLITE_DONE) rc = registry_db_error(r->db, r->file, "read", e);
    sqlite3_finalize(st);
    return rc;
}
