/* ledger.c - the only writer of the table of usage. Owns one connection and two tables in memory:
 * one that is added to, and the batch that is on its way to the file. */
#include "registry/ledger.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "registry/registry_int.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { BUSY_MS = 250, SLOTS = 2 * LEDGER_ROWS, WRITER_BYTES = 33, WRITER_DAYS = 30, DAY_S = 86400 };

struct rows {
    struct usage_row all[LEDGER_ROWS]; /* (n) */
    uint16_t slots[SLOTS];             /* index in all + 1, by hash; 0: free */
    uint32_t n;
};

struct ledger {
    pthread_mutex_t mu; /* guards adding and n_lost */
    struct rows *adding;
    uint64_t n_lost;    /* requests without a row, since the last flush */
    struct rows *batch; /* the flushing thread's, as the rest */
    uint64_t number;    /* of the batch, from 1 */
    char writer[WRITER_BYTES];
    sqlite3 *db;
    char *file;
    atomic_uint_least64_t keep_s;
    atomic_bool changed; /* keep_s is another since the last clean_up */
    int64_t cleaned_s;
};

static bool same_row(const struct usage_row *a, const struct usage_row *b) {
    return a->time_s == b->time_s && a->key == b->key && a->kind == b->kind &&
           strcmp(a->model, b->model) == 0;
}

static uint32_t hash_row(const struct usage_row *r) {
    uint64_t h = (uint64_t)r->time_s * 31 + (uint64_t)r->key * 7 + (uint64_t)r->kind;
    for (const char *c = r->model; *c; c++)
        h = (h ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    return (uint32_t)((h ^ h >> 32) % SLOTS);
}

static bool add_row(struct rows *t, const struct usage_row *row) {
    uint32_t i = hash_row(row);
    while (t->slots[i] && !same_row(&t->all[t->slots[i] - 1], row))
        i = (i + 1) % SLOTS;
    if (!t->slots[i]) {
        if (t->n == LEDGER_ROWS) return false;
        t->all[t->n] = *row;
        t->slots[i] = (uint16_t)++t->n;
        return true;
    }
    struct usage_row *sum = &t->all[t->slots[i] - 1];
    sum->requests += row->requests;
    sum->input_tokens += row->input_tokens;
    sum->cached_tokens += row->cached_tokens;
    sum->output_tokens += row->output_tokens;
    return true;
}

static int prepare_sql(ledger *l, const char *sql, sqlite3_stmt **st, err *e) {
    return registry_db_prepare(l->db, l->file, sql, st, e);
}

static int finish_sql(ledger *l, sqlite3_stmt *st, err *e) {
    int rc = sqlite3_step(st) == SQLITE_DONE ? 0 : registry_db_error(l->db, l->file, "write", e);
    sqlite3_finalize(st);
    return rc;
}

/* Removes what is too old: rows, and notes of writers that are gone. */
static int clean_up(ledger *l, int64_t now_s, err *e) {
    char sql[256];
    const uint64_t keep_s = atomic_load(&l->keep_s);
    int64_t oldest = keep_s < (uint64_t)now_s ? now_s - (int64_t)keep_s : 0;
    snprintf(
        sql, sizeof sql,
        "DELETE FROM usage WHERE hour < %lld; DELETE FROM usage_writers WHERE written_s < %lld",
        (long long)(oldest - oldest % USAGE_HOUR_S),
        (long long)now_s - (long long)WRITER_DAYS * DAY_S);
    return registry_db_exec(l->db, l->file, sql, e);
}

int ledger_open(const char *file, uint64_t keep_s, int64_t now_s, ledger **out, err *e) {
    uint8_t random[(WRITER_BYTES - 1) / 2];
    *out = NULL;
    ledger *l = mem_new(1, sizeof *l);
    if (!l) return err_no_memory(e);
    pthread_mutex_init(&l->mu, NULL);
    atomic_init(&l->keep_s, keep_s);
    l->cleaned_s = now_s;
    l->number = 1;
    l->file = mem_strdup(file);
    l->adding = mem_new(1, sizeof *l->adding);
    l->batch = mem_new(1, sizeof *l->batch);
    int rc = l->file && l->adding && l->batch ? 0 : err_no_memory(e);
    if (!rc && getentropy(random, sizeof random))
        rc = err_set(e, ERR_IO, "the system provides no random numbers");
    for (size_t i = 0; !rc && i < sizeof random; i++)
        snprintf(l->writer + 2 * i, 3, "%02x", random[i]);
    if (!rc) rc = registry_db_open(file, BUSY_MS, &l->db, e);
    if (!rc) rc = registry_db_exec(l->db, file, "PRAGMA synchronous = NORMAL", e);
    if (!rc) rc = clean_up(l, now_s, e);
    if (rc)
        ledger_close(l, now_s);
    else
        *out = l;
    return rc;
}

void ledger_set_keep(ledger *l, uint64_t keep_s) {
    if (atomic_exchange(&l->keep_s, keep_s) != keep_s) atomic_store(&l->changed, true);
}

void ledger_add(ledger *l, const struct usage_row *row) {
    struct usage_row hour = *row;
    hour.time_s -= hour.time_s % USAGE_HOUR_S;
    pthread_mutex_lock(&l->mu);
    if (!add_row(l->adding, &hour)) l->n_lost += row->requests;
    pthread_mutex_unlock(&l->mu);
}

/* Notes the batch's number. *known: it is in the file already. */
static int note_batch(ledger *l, int64_t now_s, bool *known, err *e) {
    sqlite3_stmt *st;
    int rc = prepare_sql(l,
                         "INSERT INTO usage_writers (writer, batch, written_s) VALUES (?1, ?2, ?3)"
                         " ON CONFLICT (writer) DO UPDATE SET batch = excluded.batch,"
                         " written_s = excluded.written_s WHERE batch < excluded.batch",
                         &st, e);
    if (rc) return rc;
    sqlite3_bind_text(st, 1, l->writer, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, (int64_t)l->number);
    sqlite3_bind_int64(st, 3, now_s);
    rc = finish_sql(l, st, e);
    *known = !rc && sqlite3_changes(l->db) == 0;
    return rc;
}

static int write_row(ledger *l, const struct usage_row *row, err *e) {
    sqlite3_stmt *st;
    int rc = prepare_sql(
        l,
        "INSERT INTO usage (hour, key, model, kind, requests, input_tokens, cached_tokens,"
        " output_tokens) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
        " ON CONFLICT (hour, key, model, kind) DO UPDATE SET"
        " requests = requests + excluded.requests,"
        " input_tokens = input_tokens + excluded.input_tokens,"
        " cached_tokens = cached_tokens + excluded.cached_tokens,"
        " output_tokens = output_tokens + excluded.output_tokens",
        &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, row->time_s);
    sqlite3_bind_int64(st, 2, row->key);
    sqlite3_bind_text(st, 3, row->model, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 4, row->kind);
    sqlite3_bind_int64(st, 5, (int64_t)row->requests);
    sqlite3_bind_int64(st, 6, (int64_t)row->input_tokens);
    sqlite3_bind_int64(st, 7, (int64_t)row->cached_tokens);
    sqlite3_bind_int64(st, 8, (int64_t)row->output_tokens);
    return finish_sql(l, st, e);
}

static int write_batch(ledger *l, int64_t now_s, err *e) {
    bool known = false;
    int rc = registry_db_exec(l->db, l->file, "BEGIN IMMEDIATE", e);
    if (rc) return rc;
    rc = note_batch(l, now_s, &known, e);
    for (uint32_t i = 0; !rc && !known && i < l->batch->n; i++)
        rc = write_row(l, &l->batch->all[i], e);
    if (!rc) rc = registry_db_exec(l->db, l->file, "COMMIT", e);
    if (rc) sqlite3_exec(l->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

int ledger_flush(ledger *l, int64_t now_s, err *e) {
    pthread_mutex_lock(&l->mu);
    if (!l->batch->n) {
        struct rows *full = l->adding;
        l->adding = l->batch;
        l->batch = full;
    }
    uint64_t n_lost = l->n_lost;
    l->n_lost = 0;
    pthread_mutex_unlock(&l->mu);
    if (n_lost)
        log_warn("%llu requests are missing in the ledger: it could not be written for too long",
                 (unsigned long long)n_lost);
    int rc = l->batch->n ? write_batch(l, now_s, e) : 0;
    if (rc) return rc;
    if (l->batch->n) {
        memset(l->batch, 0, sizeof *l->batch);
        l->number++;
    }
    if (!atomic_exchange(&l->changed, false) && now_s - l->cleaned_s < USAGE_HOUR_S) return 0;
    l->cleaned_s = now_s;
    return clean_up(l, now_s, e);
}

void ledger_close(ledger *l, int64_t now_s) {
    err e = {0};
    if (!l) return;
    if (l->db) sqlite3_busy_timeout(l->db, REGISTRY_BUSY_MS); /* nothing else waits any more */
    /* The second call takes what was added after a call that failed. */
    if (l->db && (ledger_flush(l, now_s, &e) || ledger_flush(l, now_s, &e)))
        log_warn("the ledger lost what it had not written: %s", e.msg);
    sqlite3_close(l->db);
    pthread_mutex_destroy(&l->mu);
    free(l->adding);
    free(l->batch);
    free(l->file);
    free(l);
}

/* ---- reading ---- */

int usage_read(registry *r, const struct usage_query *q,
               void (*add)(void *arg, const struct usage_row *row), void *arg, err *e) {
    sqlite3_stmt *st;
    int step = SQLITE_DONE;
    int rc = registry_db_prepare(
        r->db, r->file,
        "SELECT CASE WHEN ?3 > 0 THEN hour / ?3 * ?3 ELSE ?1 END AS begin,"
        " CASE WHEN ?4 THEN key ELSE 0 END AS k, CASE WHEN ?5 THEN model ELSE '' END AS m,"
        " CASE WHEN ?6 THEN kind ELSE 0 END AS t, sum(requests), sum(input_tokens),"
        " sum(cached_tokens), sum(output_tokens) FROM usage WHERE hour >= ?1 AND hour < ?2"
        " AND (?7 IS NULL OR key = ?7) AND (?8 IS NULL OR model = ?8)"
        " AND (?9 IS NULL OR kind = ?9)"
        " GROUP BY begin, k, m, t ORDER BY begin, k, m, t",
        &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, q->from_s);
    sqlite3_bind_int64(st, 2, q->to_s);
    sqlite3_bind_int64(st, 3, q->interval_s);
    sqlite3_bind_int(st, 4, q->by_key);
    sqlite3_bind_int(st, 5, q->by_model);
    sqlite3_bind_int(st, 6, q->by_kind);
    if (q->key) sqlite3_bind_int64(st, 7, *q->key);
    if (q->model) sqlite3_bind_text(st, 8, q->model, -1, SQLITE_STATIC);
    if (q->kind) sqlite3_bind_int64(st, 9, *q->kind);
    while ((step = sqlite3_step(st)) == SQLITE_ROW) {
        struct usage_row row = {.time_s = sqlite3_column_int64(st, 0),
                                .key = sqlite3_column_int64(st, 1),
                                .kind = sqlite3_column_int64(st, 3) ? USAGE_EMBED : USAGE_GENERATE,
                                .requests = (uint64_t)sqlite3_column_int64(st, 4),
                                .input_tokens = (uint64_t)sqlite3_column_int64(st, 5),
                                .cached_tokens = (uint64_t)sqlite3_column_int64(st, 6),
                                .output_tokens = (uint64_t)sqlite3_column_int64(st, 7)};
        const char *model = (const char *)sqlite3_column_text(st, 2);
        snprintf(row.model, sizeof row.model, "%s", model ? model : "");
        add(arg, &row);
    }
    if (step != SQLITE_DONE) rc = registry_db_error(r->db, r->file, "read", e);
    sqlite3_finalize(st);
    return rc;
}
