/* responses.c - the only reader and writer of the tables of responses. Owns one connection to the
 * registry's file. Runs on HTTP threads, one call at a time: the lock is held during statements
 * because a connection runs one at a time. Each call is a few indexed statements and waits at most
 * BUSY_MS for other processes. */
#include "registry/responses.h"

#include "core/base/mem.h"
#include "registry/registry_int.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUSY_MS = 250,       /* an HTTP thread is waiting */
    EXPIRED_AT_PUT = 32, /* expired rows removed with each new one */
    EXPIRED_AT_START = 100000,
    REMOVED_AT_ONCE = 1000, /* rows removed to make room before other threads get their turn */
    ROUNDS_MAX = 200,
    CHAIN_MAX = 4096, /* responses of a conversation whose expiry is renewed */
    OWN_PART = 8,     /* one response may take this fraction of max_bytes */
    /* SQLite's overhead beside texts: fields and index entries of a row and of an item, pages that
     * are three quarters full; a row of several pages has its own first and last one. */
    ROW_BYTES = 1024,
    ITEM_BYTES = 256,
    PAGE_BYTES = 4096
};

struct responses {
    pthread_mutex_t lock; /* db */
    sqlite3 *db;
    char *file;
    uint64_t ttl_s, max_bytes;
};

enum { OWNER_BYTES = REGISTRY_OWNER_BYTES };

static int err_db(responses *s, const char *what, err *e) {
    return registry_db_error(s->db, s->file, what, e);
}

static int prepare_sql(responses *s, const char *sql, sqlite3_stmt **st, err *e) {
    return registry_db_prepare(s->db, s->file, sql, st, e);
}

static void bind_text(sqlite3_stmt *st, int at, const char *text) {
    sqlite3_bind_text64(st, at, text, strlen(text), SQLITE_STATIC, SQLITE_UTF8);
}

/* Runs a statement that returns no rows and finalizes it. */
static int finish_sql(responses *s, sqlite3_stmt *st, err *e) {
    int rc = sqlite3_step(st);
    if (rc != SQLITE_DONE)
        rc = err_db(s, "write", e);
    else
        rc = 0;
    sqlite3_finalize(st);
    return rc;
}

static int exec_sql(responses *s, const char *sql, err *e) {
    if (sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK) return 0;
    return err_db(s, "write", e);
}

static int end_write(responses *s, int rc, err *e) {
    if (!rc) rc = exec_sql(s, "COMMIT", e);
    if (rc) sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static int remove_expired(responses *s, int64_t now_s, int n_max, err *e) {
    sqlite3_stmt *st;
    int rc =
        prepare_sql(s,
                    "DELETE FROM responses WHERE n IN (SELECT n FROM responses WHERE expires_s <= "
                    "?1 ORDER BY expires_s, n LIMIT ?2)",
                    &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, now_s);
    sqlite3_bind_int(st, 2, n_max);
    return finish_sql(s, st, e);
}

int responses_open(const struct responses_config *c, int64_t now_s, responses **out, err *e) {
    *out = NULL;
    responses *s = mem_new(1, sizeof *s);
    if (!s) return err_no_memory(e);
    pthread_mutex_init(&s->lock, NULL);
    s->ttl_s = c->ttl_s;
    s->max_bytes = c->max_bytes;
    s->file = mem_strdup(c->file);
    int rc = s->file ? registry_db_open(c->file, BUSY_MS, &s->db, e) : err_no_memory(e);
    if (!rc) rc = exec_sql(s, "PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON", e);
    if (!rc) rc = exec_sql(s, "BEGIN IMMEDIATE", e);
    if (!rc) rc = end_write(s, remove_expired(s, now_s, EXPIRED_AT_START, e), e);
    if (!rc) registry_hide(c->file); /* it contains conversations */
    if (rc)
        responses_close(s);
    else
        *out = s;
    return rc;
}

void responses_set_bounds(responses *s, uint64_t ttl_s, uint64_t max_bytes) {
    pthread_mutex_lock(&s->lock);
    s->ttl_s = ttl_s;
    s->max_bytes = max_bytes;
    pthread_mutex_unlock(&s->lock);
}

void responses_close(responses *s) {
    if (!s) return;
    sqlite3_close(s->db);
    pthread_mutex_destroy(&s->lock);
    free(s->file);
    free(s);
}

/* ---- put ---- */

static int total_bytes(responses *s, uint64_t *total, err *e) {
    sqlite3_stmt *st;
    int rc = prepare_sql(s, "SELECT n_bytes FROM response_total", &st, e);
    if (rc) return rc;
    if (sqlite3_step(st) == SQLITE_ROW)
        *total = (uint64_t)sqlite3_column_int64(st, 0);
    else
        rc = err_db(s, "read", e);
    sqlite3_finalize(st);
    return rc;
}

/* Deletes the oldest row of the owner that holds most; ?1 is counted with ?2 more bytes. */
static const char remove_one[] =
    "DELETE FROM responses WHERE n = (SELECT n FROM responses WHERE owner = ("
    "  SELECT owner FROM ("
    "    SELECT owner, n_bytes + ?2 AS held, 0 AS other FROM response_owners WHERE owner = ?1"
    "    UNION ALL SELECT * FROM (SELECT owner, n_bytes, 1 FROM response_owners"
    "      WHERE owner <> ?1 ORDER BY n_bytes DESC LIMIT 1)"
    "  ) ORDER BY held DESC, other LIMIT 1"
    ") ORDER BY expires_s, n LIMIT 1)";

/* *full: rows were removed, but there is still no room for n_bytes more of owner's. */
static int make_room(responses *s, const char *owner, uint64_t n_bytes, bool *full, err *e) {
    uint64_t total = 0;
    int rc = total_bytes(s, &total, e);
    for (int i = 0; !rc && total + n_bytes > s->max_bytes; i++) {
        sqlite3_stmt *st;
        if (i == REMOVED_AT_ONCE) {
            *full = true;
            return 0;
        }
        rc = prepare_sql(s, remove_one, &st, e);
        if (rc) return rc;
        bind_text(st, 1, owner);
        sqlite3_bind_int64(st, 2, (int64_t)n_bytes);
        rc = finish_sql(s, st, e);
        if (!rc && !sqlite3_changes(s->db))
            return err_set(e, ERR_IO,
                           "registry %s is damaged: it counts responses that it does not have",
                           s->file);
        if (!rc) rc = total_bytes(s, &total, e);
    }
    return rc;
}

/* Renews the expiry of all previous responses, so that a conversation expires as a whole. */
static int refresh_chain(responses *s, const char *id, const char *owner, int64_t expires_s,
                         err *e) {
    sqlite3_stmt *st;
    int rc = prepare_sql(s,
                         "WITH RECURSIVE chain (n, previous_id) AS ("
                         "  SELECT n, previous_id FROM responses WHERE id = ?1 AND owner = ?2"
                         "  UNION"
                         "  SELECT r.n, r.previous_id FROM responses r JOIN chain c"
                         "    ON r.id = c.previous_id WHERE r.owner = ?2 LIMIT ?4)"
                         "UPDATE responses SET expires_s = ?3 WHERE n IN (SELECT n FROM chain)",
                         &st, e);
    if (rc) return rc;
    bind_text(st, 1, id);
    bind_text(st, 2, owner);
    sqlite3_bind_int64(st, 3, expires_s);
    sqlite3_bind_int(st, 4, CHAIN_MAX);
    return finish_sql(s, st, e);
}

static int insert_row(responses *s, const struct responses_row *row, const char *owner,
                      const int64_t numbers[3], err *e) {
    sqlite3_stmt *st;
    int rc = prepare_sql(s,
                         "INSERT INTO responses (id, owner, previous_id, body, items, created_s, "
                         "expires_s, n_bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                         &st, e);
    if (rc) return rc;
    bind_text(st, 1, row->id);
    bind_text(st, 2, owner);
    bind_text(st, 3, row->previous_id ? row->previous_id : "");
    bind_text(st, 4, row->body);
    bind_text(st, 5, row->items);
    for (int i = 0; i < 3; i++)
        sqlite3_bind_int64(st, 6 + i, numbers[i]);
    return finish_sql(s, st, e);
}

/* Notes the ids of items that row n has. */
static int insert_items(responses *s, int64_t n, const char *owner, const char *const *ids,
                        size_t n_ids, err *e) {
    sqlite3_stmt *st;
    int rc = prepare_sql(
        s, "INSERT OR IGNORE INTO response_items (owner, id, response) VALUES (?1, ?2, ?3)", &st,
        e);
    if (rc) return rc;
    bind_text(st, 1, owner);
    sqlite3_bind_int64(st, 3, n);
    for (size_t i = 0; i < n_ids && !rc; i++) {
        bind_text(st, 2, ids[i]);
        if (sqlite3_step(st) != SQLITE_DONE) rc = err_db(s, "write", e);
        sqlite3_reset(st);
    }
    sqlite3_finalize(st);
    return rc;
}

static int insert_label(responses *s, int64_t n, const char *owner, const char *model,
                        const char *metadata, err *e) {
    sqlite3_stmt *st;
    int rc = prepare_sql(s, "INSERT INTO response_labels VALUES (?1, ?2, ?3, ?4)", &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, n);
    bind_text(st, 2, owner);
    bind_text(st, 3, model);
    bind_text(st, 4, metadata);
    return finish_sql(s, st, e);
}

/* With texts of n_text bytes. */
static uint64_t bytes_of(uint64_t n_text, const char *const *item_ids, size_t n_items) {
    uint64_t n = ROW_BYTES + n_text;
    if (n > PAGE_BYTES) n += 2 * PAGE_BYTES - n % PAGE_BYTES;
    for (size_t i = 0; i < n_items; i++)
        n += ITEM_BYTES + strlen(item_ids[i]);
    return n;
}

static int check_bytes(const responses *s, uint64_t n_bytes, err *e) {
    if (n_bytes <= s->max_bytes / OWN_PART) return 0;
    return err_set(e, ERR_TOO_LONG, "the response has %llu bytes, more than may be stored",
                   (unsigned long long)n_bytes);
}

/* *full: nothing was stored; lets other threads run before the next try. */
static int put_row(responses *s, const struct responses_row *row, int64_t now_s, bool *full,
                   err *e) {
    char owner[OWNER_BYTES];
    registry_owner_of(row->key, owner);
    uint64_t n_text = (uint64_t)strlen(row->body) + strlen(row->items);
    if (row->model) n_text += ITEM_BYTES + strlen(row->model) + strlen(row->metadata);
    uint64_t n_bytes = bytes_of(n_text, row->item_ids, row->n_items);
    int64_t expires_s = now_s + (int64_t)s->ttl_s;
    int rc = check_bytes(s, n_bytes, e);
    if (!rc) rc = exec_sql(s, "BEGIN IMMEDIATE", e);
    if (rc) return rc;
    *full = false;
    rc = remove_expired(s, now_s, EXPIRED_AT_PUT, e);
    if (!rc && row->previous_id) rc = refresh_chain(s, row->previous_id, owner, expires_s, e);
    if (!rc) rc = make_room(s, owner, n_bytes, full, e);
    const int64_t numbers[3] = {now_s, expires_s, (int64_t)n_bytes};
    if (!rc && !*full) rc = insert_row(s, row, owner, numbers, e);
    int64_t n = sqlite3_last_insert_rowid(s->db);
    if (!rc && !*full) rc = insert_items(s, n, owner, row->item_ids, row->n_items, e);
    if (!rc && !*full && row->model) rc = insert_label(s, n, owner, row->model, row->metadata, e);
    return end_write(s, rc, e);
}

int responses_put(responses *s, const struct responses_row *row, int64_t now_s, err *e) {
    bool full = true;
    int rc = 0;
    for (int i = 0; full && !rc; i++) {
        if (i == ROUNDS_MAX)
            return err_set(e, ERR_IO, "the stored responses take too much space in registry %s",
                           s->file);
        pthread_mutex_lock(&s->lock);
        rc = put_row(s, row, now_s, &full, e);
        pthread_mutex_unlock(&s->lock);
    }
    return rc;
}

/* ---- get, delete ---- */

void responses_entry_fini(struct responses_entry *entry) {
    free(entry->id);
    free(entry->previous_id);
    free(entry->body);
    free(entry->items);
    memset(entry, 0, sizeof *entry);
}

static char *column_dup(sqlite3_stmt *st, int column) {
    const unsigned char *text = sqlite3_column_text(st, column);
    return mem_strdup(text ? (const char *)text : "");
}

/* sql: one row of id, previous_id, body, items; ?1 is id, ?2 the owner, ?3 the time. */
static int get_row(responses *s, const char *sql, const char *id, const char *key, int64_t now_s,
                   struct responses_entry *out, err *e) {
    char owner[OWNER_BYTES];
    sqlite3_stmt *st;
    *out = (struct responses_entry){0};
    registry_owner_of(key, owner);
    int rc = prepare_sql(s, sql, &st, e);
    if (rc) return rc;
    bind_text(st, 1, id);
    bind_text(st, 2, owner);
    sqlite3_bind_int64(st, 3, now_s);
    int step = sqlite3_step(st);
    if (step == SQLITE_ROW) {
        *out = (struct responses_entry){column_dup(st, 0), column_dup(st, 1), column_dup(st, 2),
                                        column_dup(st, 3)};
        if (!out->id || !out->previous_id || !out->body || !out->items) {
            responses_entry_fini(out);
            rc = err_no_memory(e);
        }
    } else if (step == SQLITE_DONE) {
        rc = err_set(e, ERR_NOT_FOUND, "'%.100s' is not stored", id);
    } else {
        rc = err_db(s, "read", e);
    }
    sqlite3_finalize(st);
    return rc;
}

int responses_get(responses *s, const char *id, const char *key, int64_t now_s,
                  struct responses_entry *out, err *e) {
    pthread_mutex_lock(&s->lock);
    int rc = get_row(s,
                     "SELECT id, previous_id, body, items FROM responses WHERE id = ?1 AND owner = "
                     "?2 AND expires_s > ?3",
                     id, key, now_s, out, e);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int responses_find_item(responses *s, const char *item_id, const char *key, int64_t now_s,
                        struct responses_entry *out, err *e) {
    pthread_mutex_lock(&s->lock);
    int rc = get_row(s,
                     "SELECT r.id, previous_id, body, items FROM response_items i JOIN responses r "
                     "ON r.n = i.response WHERE i.owner = ?2 AND i.id = ?1 AND expires_s > ?3",
                     item_id, key, now_s, out, e);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static int remove_row(responses *s, const char *id, const char *key, int64_t now_s, err *e) {
    char owner[OWNER_BYTES];
    sqlite3_stmt *st;
    registry_owner_of(key, owner);
    int rc = prepare_sql(s, "DELETE FROM responses WHERE id = ?1 AND owner = ?2 AND expires_s > ?3",
                         &st, e);
    if (rc) return rc;
    bind_text(st, 1, id);
    bind_text(st, 2, owner);
    sqlite3_bind_int64(st, 3, now_s);
    rc = finish_sql(s, st, e);
    if (!rc && sqlite3_changes(s->db) == 0)
        rc = err_set(e, ERR_NOT_FOUND, "'%.100s' is not stored", id);
    return rc;
}

int responses_delete(responses *s, const char *id, const char *key, int64_t now_s, err *e) {
    pthread_mutex_lock(&s->lock);
    int rc = remove_row(s, id, key, now_s, e);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* ---- change ---- */

/* What is known of a row before a change. */
struct before {
    int64_t n;
    uint64_t n_bytes, body, items; /* bytes: counted, and of the texts */
    bool same;                     /* its items are old_items, if that matters */
};

static int find_row(responses *s, const struct responses_change *c, const char *owner,
                    int64_t now_s, struct before *b, err *e) {
    sqlite3_stmt *st;
    int rc =
        prepare_sql(s,
                    "SELECT n, n_bytes, length(CAST(body AS BLOB)), length(CAST(items AS BLOB)), "
                    "?4 IS NULL OR items = ?4 FROM responses WHERE id = ?1 AND owner = ?2 AND "
                    "expires_s > ?3",
                    &st, e);
    if (rc) return rc;
    bind_text(st, 1, c->id);
    bind_text(st, 2, owner);
    sqlite3_bind_int64(st, 3, now_s);
    if (c->items) bind_text(st, 4, c->old_items);
    int step = sqlite3_step(st);
    if (step == SQLITE_ROW)
        *b = (struct before){sqlite3_column_int64(st, 0), (uint64_t)sqlite3_column_int64(st, 1),
                             (uint64_t)sqlite3_column_int64(st, 2),
                             (uint64_t)sqlite3_column_int64(st, 3), sqlite3_column_int(st, 4) != 0};
    else if (step == SQLITE_DONE)
        rc = err_set(e, ERR_NOT_FOUND, "'%.100s' is not stored", c->id);
    else
        rc = err_db(s, "read", e);
    sqlite3_finalize(st);
    if (!rc && !b->same)
        rc = err_set(e, ERR_CHANGED, "'%.100s' was changed by another request", c->id);
    return rc;
}

/* An upper bound of the row's bytes after the change. */
static uint64_t bytes_after(const struct responses_change *c, const struct before *b) {
    uint64_t before = b->n_bytes, grown = bytes_of(0, c->item_ids, c->n_items) - ROW_BYTES;
    uint64_t body = c->body ? strlen(c->body) : b->body;
    uint64_t items = c->items        ? strlen(c->items)
                     : c->more_items ? b->items + 1 + strlen(c->more_items)
                                     : b->items;
    grown += c->metadata ? strlen(c->metadata) : 0;
    if (items < b->items) before -= b->items - items;
    if (body > b->body) grown += body - b->body;
    if (items > b->items) grown += items - b->items;
    /* Up to a page is lost where texts grow beyond the one that they filled. */
    if (grown && before <= PAGE_BYTES && before + grown > PAGE_BYTES) grown += 2 * PAGE_BYTES;
    return before + grown;
}

static int update_row(responses *s, const struct responses_change *c, const struct before *b,
                      const int64_t numbers[2], err *e) {
    sqlite3_stmt *st;
    int rc =
        prepare_sql(s,
                    "UPDATE responses SET body = coalesce(?2, body), items = CASE"
                    "  WHEN ?4 IS NOT NULL THEN substr(items, 1, length(items) - 2) ||"
                    "    CASE WHEN substr(items, -3) = '[]}' THEN '' ELSE ',' END || ?4 || ']}'"
                    "  ELSE coalesce(?3, items) END,"
                    "  expires_s = ?5, n_bytes = ?6 WHERE n = ?1",
                    &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, b->n);
    if (c->body) bind_text(st, 2, c->body);
    if (c->items) bind_text(st, 3, c->items);
    if (c->more_items) bind_text(st, 4, c->more_items);
    sqlite3_bind_int64(st, 5, numbers[0]);
    sqlite3_bind_int64(st, 6, numbers[1]);
    return finish_sql(s, st, e);
}

static int update_label(responses *s, int64_t n, const char *metadata, err *e) {
    sqlite3_stmt *st;
    int rc = prepare_sql(s, "UPDATE response_labels SET metadata = ?2 WHERE response = ?1", &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, n);
    bind_text(st, 2, metadata);
    return finish_sql(s, st, e);
}

/* Renews the row first, so that it is not what makes room. */
static int change_response(responses *s, const struct responses_change *c, int64_t now_s,
                           bool *full, err *e) {
    char owner[OWNER_BYTES];
    struct before b = {0};
    int64_t expires_s = now_s + (int64_t)s->ttl_s;
    registry_owner_of(c->key, owner);
    int rc = exec_sql(s, "BEGIN IMMEDIATE", e);
    if (rc) return rc;
    *full = false;
    rc = find_row(s, c, owner, now_s, &b, e);
    uint64_t n_bytes = rc ? 0 : bytes_after(c, &b);
    if (!rc) rc = check_bytes(s, n_bytes, e);
    const int64_t same[2] = {expires_s, (int64_t)b.n_bytes};
    const struct responses_change nothing = {.id = c->id};
    if (!rc) rc = update_row(s, &nothing, &b, same, e);
    uint64_t grown = n_bytes > b.n_bytes ? n_bytes - b.n_bytes : 0;
    if (!rc) rc = make_room(s, owner, grown, full, e);
    const int64_t numbers[2] = {expires_s, (int64_t)n_bytes};
    if (!rc && !*full) rc = update_row(s, c, &b, numbers, e);
    if (!rc && !*full && sqlite3_changes(s->db) == 0)
        rc = err_set(e, ERR_TOO_LONG, "'%.100s' does not fit beside the other responses", c->id);
    if (!rc && !*full) rc = insert_items(s, b.n, owner, c->item_ids, c->n_items, e);
    if (!rc && !*full && c->metadata) rc = update_label(s, b.n, c->metadata, e);
    return end_write(s, rc, e);
}

int responses_change(responses *s, const struct responses_change *c, int64_t now_s, err *e) {
    bool full = true;
    int rc = 0;
    for (int i = 0; full && !rc && i < ROUNDS_MAX; i++) {
        pthread_mutex_lock(&s->lock);
        rc = change_response(s, c, now_s, &full, e);
        pthread_mutex_unlock(&s->lock);
    }
    if (rc || !full) return rc;
    return err_set(e, ERR_IO, "the stored responses take too much space in registry %s", s->file);
}

/* ---- list ---- */

/* The number of the row with that id; 0 for id NULL. */
static int number_of(responses *s, const char *id, const char *owner, int64_t now_s, int64_t *n,
                     err *e) {
    struct before b = {0};
    const struct responses_change c = {.id = id};
    int rc = id ? find_row(s, &c, owner, now_s, &b, e) : 0;
    *n = b.n;
    return rc;
}

static int list_rows(responses *s, const struct responses_query *q, int64_t now_s,
                     void (*each)(void *arg, const char *id, const char *body), void *arg,
                     bool *more, err *e) {
    /* ?1 owner, ?2 after, ?3 model, ?4 metadata, ?5 time, ?6 limit */
    static const char filter[] =
        "SELECT r.id, r.body FROM response_labels l JOIN responses r ON r.n = l.response "
        "WHERE l.owner = ?1 AND (?3 IS NULL OR l.model = ?3) AND r.expires_s > ?5 AND NOT EXISTS ("
        "  SELECT 1 FROM json_each(?4) w WHERE NOT EXISTS ("
        "    SELECT 1 FROM json_each(l.metadata) h WHERE h.key = w.key AND h.value = w.value)) ";
    char owner[OWNER_BYTES], sql[sizeof filter + 80];
    sqlite3_stmt *st;
    int64_t after;
    int step, n = 0;
    registry_owner_of(q->key, owner);
    int rc = number_of(s, q->after, owner, now_s, &after, e);
    snprintf(sql, sizeof sql, "%sAND (?2 = 0 OR l.response %c ?2) ORDER BY l.response %s LIMIT ?6",
             filter, q->ascending ? '>' : '<', q->ascending ? "ASC" : "DESC");
    if (!rc) rc = prepare_sql(s, sql, &st, e);
    if (rc) return rc;
    bind_text(st, 1, owner);
    sqlite3_bind_int64(st, 2, after);
    if (q->model) bind_text(st, 3, q->model);
    bind_text(st, 4, q->metadata);
    sqlite3_bind_int64(st, 5, now_s);
    sqlite3_bind_int(st, 6, q->limit + 1);
    while ((step = sqlite3_step(st)) == SQLITE_ROW && n < q->limit) {
        each(arg, (const char *)sqlite3_column_text(st, 0),
             (const char *)sqlite3_column_text(st, 1));
        n++;
    }
    *more = step == SQLITE_ROW;
    if (step != SQLITE_ROW && step != SQLITE_DONE) rc = err_db(s, "read", e);
    sqlite3_finalize(st);
    return rc;
}

int responses_list(responses *s, const struct responses_query *q, int64_t now_s,
                   void (*each)(void *arg, const char *id, const char *body), void *arg, bool *more,
                   err *e) {
    pthread_mutex_lock(&s->lock);
    int rc = list_rows(s, q, now_s, each, arg, more, e);
    pthread_mutex_unlock(&s->lock);
    return rc;
}
