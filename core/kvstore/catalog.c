/* catalog.c - the index of a folder: which segments there are and what they hold, in SQLite (WAL),
 * so that a start need not read every file. A cache's index is worth no repair: one that is
 * damaged, or of another layout or secret, is made anew, and store.c deletes the files that it does
 * not know. What a row says is checked like a file. One thread at a time. */
#include "core/kvstore/kvstore_int.h"

#include "core/base/mem.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { APPLICATION_ID = 0x4b565345 /* "KVSE" */, BUSY_MS = 2000 };

struct kvstore_catalog {
    sqlite3 *db;
};

static const char schema[] = "CREATE TABLE about ("
                             "  one INTEGER PRIMARY KEY CHECK (one = 1),"
                             "  secret BLOB NOT NULL," /* a hash that tells whether it is ours */
                             "  day INTEGER NOT NULL,"
                             "  written INTEGER NOT NULL"
                             ") STRICT;"
                             "CREATE TABLE spaces ("
                             "  space BLOB PRIMARY KEY,"
                             "  label TEXT NOT NULL,"
                             "  version TEXT NOT NULL"
                             ") STRICT, WITHOUT ROWID;"
                             "CREATE TABLE segments ("
                             "  id INTEGER PRIMARY KEY," /* of its file */
                             "  space BLOB NOT NULL,"
                             "  tenant_lo INTEGER NOT NULL,"
                             "  tenant_hi INTEGER NOT NULL,"
                             "  first INTEGER NOT NULL,"
                             "  block_tokens INTEGER NOT NULL,"
                             "  bytes INTEGER NOT NULL,"
                             "  hits INTEGER NOT NULL,"
                             "  created_s INTEGER NOT NULL,"
                             "  used_s INTEGER NOT NULL,"
                             "  flags BLOB NOT NULL," /* one byte of each block */
                             "  names BLOB NOT NULL"  /* 32 bytes of each block */
                             ") STRICT;";

static int err_db(sqlite3 *db, err *e) {
    return err_set(e, ERR_IO, "the index of the KV store: %s", sqlite3_errmsg(db));
}

static int run(kvstore_catalog *c, const char *sql, err *e) {
    return sqlite3_exec(c->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : err_db(c->db, e);
}

static int prepare(kvstore_catalog *c, const char *sql, sqlite3_stmt **st, err *e) {
    return sqlite3_prepare_v2(c->db, sql, -1, st, NULL) == SQLITE_OK ? 0 : err_db(c->db, e);
}

/* Runs a prepared statement that returns nothing, and finalizes it. */
static int finish(kvstore_catalog *c, sqlite3_stmt *st, err *e) {
    int rc = sqlite3_step(st) == SQLITE_DONE ? 0 : err_db(c->db, e);
    sqlite3_finalize(st);
    return rc;
}

/* ---- open ---- */

static int64_t number_of(kvstore_catalog *c, const char *sql) {
    sqlite3_stmt *st;
    int64_t n = -1;
    if (prepare(c, sql, &st, NULL)) return -1;
    if (sqlite3_step(st) == SQLITE_ROW) n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
}

static bool has_secret(kvstore_catalog *c, const uint8_t *secret_id) {
    sqlite3_stmt *st;
    bool same = false;
    if (prepare(c, "SELECT secret FROM about WHERE one = 1", &st, NULL)) return false;
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_bytes(st, 0) == 32)
        same = memcmp(sqlite3_column_blob(st, 0), secret_id, 32) == 0;
    sqlite3_finalize(st);
    return same;
}

/* Is it an index of this layout and secret, and whole? */
static bool is_ours(kvstore_catalog *c, const uint8_t *secret_id) {
    sqlite3_stmt *st;
    bool whole = false;
    if (number_of(c, "PRAGMA application_id") != APPLICATION_ID ||
        number_of(c, "PRAGMA user_version") != KVSTORE_LAYOUT)
        return false;
    if (secret_id && !has_secret(c, secret_id)) return false;
    if (prepare(c, "PRAGMA quick_check(1)", &st, NULL)) return false;
    if (sqlite3_step(st) == SQLITE_ROW) {
        const char *said = (const char *)sqlite3_column_text(st, 0);
        whole = said && strcmp(said, "ok") == 0;
    }
    sqlite3_finalize(st);
    return whole;
}

static int make_tables(kvstore_catalog *c, const uint8_t *secret_id, err *e) {
    char sql[128];
    sqlite3_stmt *st;
    snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d",
             APPLICATION_ID, KVSTORE_LAYOUT);
    int rc = run(c, "BEGIN IMMEDIATE", e);
    if (!rc) rc = run(c, schema, e);
    if (!rc) rc = run(c, sql, e);
    if (!rc) rc = prepare(c, "INSERT INTO about VALUES (1, ?1, 0, 0)", &st, e);
    if (rc) return rc;
    sqlite3_bind_blob(st, 1, secret_id, 32, SQLITE_STATIC);
    rc = finish(c, st, e);
    return rc ? rc : run(c, "COMMIT", e);
}

static int open_db(kvstore_catalog *c, const char *path, int flags, err *e) {
    int rc = sqlite3_open_v2(path, &c->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (!c->db) return err_no_memory(e);
    if (rc != SQLITE_OK) return err_db(c->db, e);
    sqlite3_busy_timeout(c->db, BUSY_MS);
    return 0;
}

static void close_db(kvstore_catalog *c) {
    sqlite3_close(c->db);
    c->db = NULL;
}

static void remove_files(const char *path) {
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    char name[KVSTORE_PATH + 16];
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
}

static int open_writable(kvstore_catalog *c, const char *path, const uint8_t *secret_id, bool *anew,
                         err *e) {
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    const bool was_there = access(path, F_OK) == 0;
    int rc = open_db(c, path, flags, e);
    if (anew) *anew = false;
    if (!rc && was_there && is_ours(c, secret_id))
        return run(c, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL", e);
    close_db(c);
    remove_files(path);
    if (anew) *anew = was_there;
    rc = open_db(c, path, flags, e);
    if (!rc) rc = run(c, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL", e);
    return rc ? rc : make_tables(c, secret_id, e);
}

int kvstore_catalog_open(const char *folder, const uint8_t *secret_id, kvstore_catalog **out,
                         bool *anew, err *e) {
    char path[KVSTORE_PATH];
    kvstore_catalog *c = mem_new(1, sizeof *c);
    int rc = 0;
    if (!c) return err_no_memory(e);
    if (snprintf(path, sizeof path, "%s/index.db", folder) >= (int)sizeof path)
        rc = err_set(e, ERR_IO, "the path of the KV store is too long");
    else if (secret_id)
        rc = open_writable(c, path, secret_id, anew, e);
    else if (access(path, F_OK))
        rc = err_set(e, ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
    else if (!(rc = open_db(c, path, SQLITE_OPEN_READONLY, e)) && !is_ours(c, NULL))
        rc = err_set(e, ERR_NOT_FOUND, "%s is not an index of this version", path);
    if (rc) {
        kvstore_catalog_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void kvstore_catalog_close(kvstore_catalog *c) {
    if (!c) return;
    close_db(c);
    free(c);
}

/* ---- rows ---- */

static bool number_in(sqlite3_stmt *st, int column, int64_t most, int64_t *out) {
    *out = sqlite3_column_int64(st, column);
    return *out >= 0 && *out <= most;
}

/* Columns as kvstore_catalog_each selects them. false: it breaks the format. */
static bool read_row(sqlite3_stmt *st, struct kvstore_row *row) {
    int64_t first, block_tokens, bytes, hits;
    const int n = sqlite3_column_bytes(st, 10);
    memset(row, 0, sizeof *row);
    if (n < 1 || n > KVSTORE_MAX_BLOCKS || sqlite3_column_bytes(st, 1) != 32 ||
        sqlite3_column_bytes(st, 11) != n * KVSTORE_NAME_BYTES ||
        !number_in(st, 4, UINT32_MAX, &first) || !number_in(st, 5, UINT32_MAX, &block_tokens) ||
        !number_in(st, 6, INT64_C(1) << 40, &bytes) || !number_in(st, 7, INT64_MAX, &hits))
        return false;
    row->id = sqlite3_column_int64(st, 0);
    memcpy(row->space, sqlite3_column_blob(st, 1), 32);
    row->tenant = (struct hash128){(uint64_t)sqlite3_column_int64(st, 2),
                                   (uint64_t)sqlite3_column_int64(st, 3)};
    row->first = (uint32_t)first;
    row->n_blocks = (uint32_t)n;
    row->block_tokens = (uint32_t)block_tokens;
    row->bytes = (uint64_t)bytes;
    row->hits = (uint64_t)hits;
    row->created_s = sqlite3_column_int64(st, 8);
    row->used_s = sqlite3_column_int64(st, 9);
    memcpy(row->flags, sqlite3_column_blob(st, 10), (size_t)n);
    memcpy(row->names, sqlite3_column_blob(st, 11), (size_t)n * KVSTORE_NAME_BYTES);
    row->label = (const char *)sqlite3_column_text(st, 12);
    row->version = (const char *)sqlite3_column_text(st, 13);
    return true;
}

int kvstore_catalog_each(kvstore_catalog *c, int (*each)(void *arg, const struct kvstore_row *row),
                         void *arg, err *e) {
    struct kvstore_row row;
    sqlite3_stmt *st;
    int step = SQLITE_ROW,
        rc = prepare(c,
                     "SELECT s.id, s.space, tenant_lo, tenant_hi, first, "
                     "block_tokens, bytes, hits, created_s, used_s, flags, names, "
                     "label, version FROM segments s JOIN spaces p ON s.space = "
                     "p.space ORDER BY s.space, tenant_lo, tenant_hi, first, id",
                     &st, e);
    if (rc) return rc;
    while (!rc && (step = sqlite3_step(st)) == SQLITE_ROW)
        if (read_row(st, &row)) rc = each(arg, &row);
    if (!rc && step != SQLITE_DONE) rc = err_db(c->db, e);
    sqlite3_finalize(st);
    return rc;
}

int kvstore_catalog_space(kvstore_catalog *c, const uint8_t space[32], const char *label,
                          const char *version, err *e) {
    sqlite3_stmt *st;
    int rc = prepare(c, "INSERT OR REPLACE INTO spaces VALUES (?1, ?2, ?3)", &st, e);
    if (rc) return rc;
    sqlite3_bind_blob(st, 1, space, 32, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, label, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 3, version, -1, SQLITE_STATIC);
    return finish(c, st, e);
}

int kvstore_catalog_add(kvstore_catalog *c, const struct kvstore_row *row, err *e) {
    sqlite3_stmt *st;
    int rc = prepare(c,
                     "INSERT INTO segments VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, "
                     "?12)",
                     &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, row->id);
    sqlite3_bind_blob(st, 2, row->space, 32, SQLITE_STATIC);
    sqlite3_bind_int64(st, 3, (sqlite3_int64)row->tenant.lo);
    sqlite3_bind_int64(st, 4, (sqlite3_int64)row->tenant.hi);
    sqlite3_bind_int64(st, 5, row->first);
    sqlite3_bind_int64(st, 6, row->block_tokens);
    sqlite3_bind_int64(st, 7, (sqlite3_int64)row->bytes);
    sqlite3_bind_int64(st, 8, (sqlite3_int64)row->hits);
    sqlite3_bind_int64(st, 9, row->created_s);
    sqlite3_bind_int64(st, 10, row->used_s);
    sqlite3_bind_blob(st, 11, row->flags, (int)row->n_blocks, SQLITE_STATIC);
    sqlite3_bind_blob(st, 12, row->names, (int)row->n_blocks * KVSTORE_NAME_BYTES, SQLITE_STATIC);
    return finish(c, st, e);
}

int kvstore_catalog_remove(kvstore_catalog *c, int64_t id, err *e) {
    sqlite3_stmt *st;
    int rc = prepare(c, "DELETE FROM segments WHERE id = ?1", &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, id);
    return finish(c, st, e);
}

int kvstore_catalog_use(kvstore_catalog *c, int64_t id, int64_t used_s, uint64_t hits, err *e) {
    sqlite3_stmt *st;
    int rc = prepare(c, "UPDATE segments SET used_s = ?2, hits = ?3 WHERE id = ?1", &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, id);
    sqlite3_bind_int64(st, 2, used_s);
    sqlite3_bind_int64(st, 3, (sqlite3_int64)hits);
    return finish(c, st, e);
}

uint64_t kvstore_catalog_written(kvstore_catalog *c, int64_t *day) {
    int64_t written = number_of(c, "SELECT written FROM about WHERE one = 1");
    *day = number_of(c, "SELECT day FROM about WHERE one = 1");
    return written > 0 ? (uint64_t)written : 0;
}

int kvstore_catalog_set_written(kvstore_catalog *c, int64_t day, uint64_t bytes, err *e) {
    sqlite3_stmt *st;
    int rc = prepare(c, "UPDATE about SET day = ?1, written = ?2 WHERE one = 1", &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, day);
    sqlite3_bind_int64(st, 2, (sqlite3_int64)bytes);
    return finish(c, st, e);
}

int kvstore_catalog_begin(kvstore_catalog *c, err *e) {
    return run(c, "BEGIN IMMEDIATE", e);
}

int kvstore_catalog_end(kvstore_catalog *c, err *e) {
    int rc = run(c, "COMMIT", e);
    if (rc) run(c, "ROLLBACK", NULL);
    return rc;
}
