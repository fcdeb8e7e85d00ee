/* batches.c - batches and their lines. Owns nothing beside the store's connection; any thread, one
 * call at a time. */
#include "registry/batches_int.h"

#include "core/base/file.h"
#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>

enum { REMOVED_AT_ONCE = 500 };

/* ---- statements ---- */

int batches_run(batches *b, sqlite3_stmt *st, err *e) {
    int rc = sqlite3_step(st) == SQLITE_DONE ? 0 : registry_db_error(b->db, b->file, "write", e);
    sqlite3_finalize(st);
    return rc;
}

int batches_number(batches *b, sqlite3_stmt *st, uint64_t *out, err *e) {
    int rc = sqlite3_step(st) == SQLITE_ROW ? 0 : registry_db_error(b->db, b->file, "read", e);
    if (!rc) *out = (uint64_t)sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return rc;
}

int batches_exec(batches *b, const char *sql, err *e) {
    return registry_db_exec(b->db, b->file, sql, e);
}

int batches_end(batches *b, int rc, err *e) {
    if (!rc) rc = batches_exec(b, "COMMIT", e);
    if (rc) sqlite3_exec(b->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

void batches_column(sqlite3_stmt *st, int column, char *to, size_t n) {
    const char *text = (const char *)sqlite3_column_text(st, column);
    snprintf(to, n, "%s", text ? text : "");
}

/* ---- rows ---- */

static const char *const names[] = {"validating", "in_progress", "cancelling", "finalizing",
                                    "completed",  "failed",      "expired",    "cancelled"};

const char *batches_status_name(enum batches_status s) {
    return names[s];
}

#define COLUMNS                                                                                    \
    "n, key, status, output_ttl_s, created_s, expires_s, in_progress_s, finalizing_s,"             \
    " completed_s, failed_s, expired_s, cancelling_s, cancelled_s, n_total, n_completed, "         \
    "n_failed,"                                                                                    \
    " input_tokens, cached_tokens, output_tokens, id, owner, endpoint, window, model, input_file," \
    " output_file, error_file, metadata, errors"

static int read_row(sqlite3_stmt *st, struct batches_row *r, err *e) {
    int at = 0;
    *r = (struct batches_row){.n = sqlite3_column_int64(st, at)};
    r->key = sqlite3_column_int64(st, ++at);
    r->status = (enum batches_status)sqlite3_column_int(st, ++at);
    int64_t *times[] = {&r->output_ttl_s, &r->created_s,   &r->expires_s, &r->in_progress_s,
                        &r->finalizing_s, &r->completed_s, &r->failed_s,  &r->expired_s,
                        &r->cancelling_s, &r->cancelled_s};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        *times[i] = sqlite3_column_int64(st, ++at);
    uint64_t *counts[] = {&r->n_total,      &r->n_completed,   &r->n_failed,
                          &r->input_tokens, &r->cached_tokens, &r->output_tokens};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        *counts[i] = (uint64_t)sqlite3_column_int64(st, ++at);
    batches_column(st, ++at, r->id, sizeof r->id);
    batches_column(st, ++at, r->owner, sizeof r->owner);
    batches_column(st, ++at, r->endpoint, sizeof r->endpoint);
    batches_column(st, ++at, r->window, sizeof r->window);
    batches_column(st, ++at, r->model, sizeof r->model);
    batches_column(st, ++at, r->input_file, sizeof r->input_file);
    batches_column(st, ++at, r->output_file, sizeof r->output_file);
    batches_column(st, ++at, r->error_file, sizeof r->error_file);
    const char *metadata = (const char *)sqlite3_column_text(st, ++at);
    const char *errors = (const char *)sqlite3_column_text(st, ++at);
    r->metadata = mem_strdup(metadata ? metadata : "");
    r->errors = mem_strdup(errors ? errors : "");
    if (r->metadata && r->errors && (unsigned)r->status <= BATCH_CANCELLED) return 0;
    batches_row_fini(r);
    return err_no_memory(e);
}

void batches_row_fini(struct batches_row *row) {
    free(row->metadata);
    free(row->errors);
    row->metadata = row->errors = NULL;
}

/* Forgets batches that ended, so that there are fewer than most; of the owner, or NULL: of all.
 * ERR_FULL: too many have not ended. */
static int make_room(batches *b, const char *owner, uint64_t most, err *e) {
    sqlite3_stmt *st;
    uint64_t n = 0;
    int rc =
        batches_prepare(b, "SELECT count(*) FROM batches WHERE ?1 IS NULL OR owner = ?1", &st, e);
    if (rc) return rc;
    if (owner) batches_bind(st, 1, owner);
    rc = batches_number(b, st, &n, e);
    if (rc || n < most) return rc;
    rc = batches_prepare(b,
                         "DELETE FROM batches WHERE n IN (SELECT n FROM batches WHERE status >= ?2"
                         " AND (?1 IS NULL OR owner = ?1) ORDER BY n LIMIT ?3)",
                         &st, e);
    if (rc) return rc;
    if (owner) batches_bind(st, 1, owner);
    sqlite3_bind_int(st, 2, BATCH_COMPLETED);
    sqlite3_bind_int64(st, 3, (int64_t)(n + 1 - most));
    rc = batches_run(b, st, e);
    if (rc || (uint64_t)sqlite3_changes(b->db) >= n + 1 - most) return rc;
    return err_set(e, ERR_FULL, "%llu batches wait or run already, as many as there may be.",
                   (unsigned long long)n);
}

static int insert_batch(batches *b, const char *owner, const struct batches_row *row, err *e) {
    sqlite3_stmt *st;
    int rc = batches_prepare(
        b,
        "INSERT INTO batches (id, owner, key, status, endpoint, window, metadata, input_file,"
        " output_ttl_s, created_s, expires_s) SELECT ?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, ?8, ?9, ?10"
        " FROM files WHERE id = ?7 AND owner = ?2 AND (expires_s = 0 OR expires_s > ?9)",
        &st, e);
    if (rc) return rc;
    batches_bind(st, 1, row->id);
    batches_bind(st, 2, owner);
    sqlite3_bind_int64(st, 3, row->key);
    batches_bind(st, 4, row->endpoint);
    batches_bind(st, 5, row->window);
    batches_bind(st, 6, row->metadata);
    batches_bind(st, 7, row->input_file);
    sqlite3_bind_int64(st, 8, row->output_ttl_s);
    sqlite3_bind_int64(st, 9, row->created_s);
    sqlite3_bind_int64(st, 10, row->expires_s);
    rc = batches_run(b, st, e);
    if (!rc && sqlite3_changes(b->db) == 0)
        rc = err_set_param(e, ERR_NOT_FOUND, "input_file_id", "No such File object: %.60s",
                           row->input_file);
    return rc;
}

int batches_add(batches *b, const char *key, const struct batches_row *row, err *e) {
    char owner[REGISTRY_OWNER_BYTES];
    registry_owner_of(key, owner);
    pthread_mutex_lock(&b->lock);
    int rc = batches_exec(b, "BEGIN IMMEDIATE", e);
    if (!rc) {
        if (*owner) rc = make_room(b, owner, (b->max_batches + 1) / 2, e);
        if (!rc) rc = make_room(b, NULL, b->max_batches, e);
        if (!rc) rc = insert_batch(b, owner, row, e);
        rc = batches_end(b, rc, e);
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}

/* owner NULL: of any. With the lock. */
static int find_batch(batches *b, const char *id, const char *owner, struct batches_row *out,
                      err *e) {
    sqlite3_stmt *st;
    *out = (struct batches_row){0};
    int rc =
        batches_prepare(b, "SELECT " COLUMNS " FROM batches WHERE id = ?1 AND owner = ?2", &st, e);
    if (rc) return rc;
    batches_bind(st, 1, id);
    batches_bind(st, 2, owner);
    int step = sqlite3_step(st);
    if (step == SQLITE_ROW)
        rc = read_row(st, out, e);
    else if (step == SQLITE_DONE)
        rc = err_set_param(e, ERR_NOT_FOUND, "id", "No batch found with id '%.60s'.", id);
    else
        rc = registry_db_error(b->db, b->file, "read", e);
    sqlite3_finalize(st);
    return rc;
}

int batches_get(batches *b, const char *id, const char *key, struct batches_row *out, err *e) {
    char owner[REGISTRY_OWNER_BYTES];
    registry_owner_of(key, owner);
    pthread_mutex_lock(&b->lock);
    int rc = find_batch(b, id, owner, out, e);
    pthread_mutex_unlock(&b->lock);
    return rc;
}

int batches_list(batches *b, const struct batches_page *p,
                 void (*each)(void *arg, const struct batches_row *row), void *arg, bool *more,
                 err *e) {
    char owner[REGISTRY_OWNER_BYTES];
    struct batches_row row = {0};
    sqlite3_stmt *st = NULL;
    int step = SQLITE_DONE, n = 0;
    registry_owner_of(p->key, owner);
    pthread_mutex_lock(&b->lock);
    int rc = p->after ? find_batch(b, p->after, owner, &row, e) : 0;
    int64_t after = row.n;
    batches_row_fini(&row);
    if (!rc)
        rc = batches_prepare(b,
                             "SELECT " COLUMNS " FROM batches WHERE owner = ?1 AND (?2 = 0 OR n <"
                             " ?2) ORDER BY n DESC LIMIT ?3",
                             &st, e);
    if (!rc) {
        batches_bind(st, 1, owner);
        sqlite3_bind_int64(st, 2, after);
        sqlite3_bind_int(st, 3, p->limit + 1);
        while (!rc && (step = sqlite3_step(st)) == SQLITE_ROW && n++ < p->limit) {
            rc = read_row(st, &row, e);
            if (!rc) each(arg, &row);
            batches_row_fini(&row);
        }
        if (!rc && step != SQLITE_ROW && step != SQLITE_DONE)
            rc = registry_db_error(b->db, b->file, "read", e);
        sqlite3_finalize(st);
    }
    *more = step == SQLITE_ROW;
    pthread_mutex_unlock(&b->lock);
    return rc;
}

int batches_cancel(batches *b, const char *id, const char *key, int64_t now_s, err *e) {
    char owner[REGISTRY_OWNER_BYTES];
    struct batches_row row;
    sqlite3_stmt *st;
    registry_owner_of(key, owner);
    pthread_mutex_lock(&b->lock);
    int rc = find_batch(b, id, owner, &row, e);
    if (!rc && row.status == BATCH_CANCELLING) goto done;
    if (!rc)
        rc = batches_prepare(b,
                             "UPDATE batches SET status = ?2, cancelling_s = ?3 WHERE n = ?1 AND"
                             " status < ?2",
                             &st, e);
    if (rc) goto done;
    sqlite3_bind_int64(st, 1, row.n);
    sqlite3_bind_int(st, 2, BATCH_CANCELLING);
    sqlite3_bind_int64(st, 3, now_s);
    rc = batches_run(b, st, e);
    if (!rc && sqlite3_changes(b->db) == 0)
        rc = err_set(e, ERR_INVALID, "Cannot cancel a batch with status '%s'.", names[row.status]);
done:
    pthread_mutex_unlock(&b->lock);
    batches_row_fini(&row);
    return rc;
}

/* ---- for who runs them ---- */

int batches_lease(batches *b, err *e) {
    char path[BATCHES_PATH_BYTES];
    if (b->lease < 0) {
        int rc = batches_path(b, "lock", "", path, e);
        if (rc) return rc;
        b->lease = file_open(path, O_RDWR | O_CREAT, 0600);
        if (b->lease < 0) return err_set(e, ERR_IO, "cannot open %s: %s", path, strerror(errno));
    }
    if (flock(b->lease, LOCK_EX | LOCK_NB) == 0) return 0;
    return err_set(e, ERR_UNAVAILABLE, "another process runs the batches of %s", b->file);
}

int batches_unfinished(batches *b, struct batches_row *rows, size_t n, size_t *n_found, err *e) {
    sqlite3_stmt *st;
    int step = SQLITE_DONE;
    *n_found = 0;
    pthread_mutex_lock(&b->lock);
    int rc = batches_prepare(b,
                             "SELECT " COLUMNS " FROM batches WHERE n IN (SELECT min(n) FROM"
                             " batches WHERE status < ?1 GROUP BY owner) ORDER BY n LIMIT ?2",
                             &st, e);
    if (!rc) {
        sqlite3_bind_int(st, 1, BATCH_COMPLETED);
        sqlite3_bind_int64(st, 2, (int64_t)n);
        while (!rc && *n_found < n && (step = sqlite3_step(st)) == SQLITE_ROW)
            if (!(rc = read_row(st, &rows[*n_found], e))) ++*n_found;
        if (!rc && step != SQLITE_ROW && step != SQLITE_DONE)
            rc = registry_db_error(b->db, b->file, "read", e);
        sqlite3_finalize(st);
    }
    pthread_mutex_unlock(&b->lock);
    for (size_t i = 0; rc && i < *n_found; i++)
        batches_row_fini(&rows[i]);
    if (rc) *n_found = 0;
    return rc;
}

/* Removes some lines: other threads have their turn before the next ones. */
static int remove_lines(batches *b, int64_t batch, bool *more, err *e) {
    sqlite3_stmt *st;
    pthread_mutex_lock(&b->lock);
    int rc = batches_prepare(b,
                             "DELETE FROM batch_lines WHERE rowid IN (SELECT rowid FROM batch_lines"
                             " WHERE batch = ?1 LIMIT ?2)",
                             &st, e);
    if (!rc) {
        sqlite3_bind_int64(st, 1, batch);
        sqlite3_bind_int(st, 2, REMOVED_AT_ONCE);
        rc = batches_run(b, st, e);
    }
    *more = !rc && sqlite3_changes(b->db) > 0;
    pthread_mutex_unlock(&b->lock);
    return rc;
}

int batches_lines_clear(batches *b, int64_t batch, err *e) {
    bool more = true;
    int rc = 0;
    while (more && !rc)
        rc = remove_lines(b, batch, &more, e);
    return rc;
}

int batches_lines_sweep(batches *b, err *e) {
    sqlite3_stmt *st;
    int64_t batch = 0;
    for (int rc = 0;;) {
        pthread_mutex_lock(&b->lock);
        rc = batches_prepare(b,
                             "SELECT l.batch FROM batch_lines l JOIN batches b ON b.n = l.batch"
                             " WHERE b.status >= ?1 LIMIT 1",
                             &st, e);
        bool found = false;
        if (!rc) {
            sqlite3_bind_int(st, 1, BATCH_COMPLETED);
            found = sqlite3_step(st) == SQLITE_ROW;
            if (found) batch = sqlite3_column_int64(st, 0);
            sqlite3_finalize(st);
        }
        pthread_mutex_unlock(&b->lock);
        if (!rc && found) rc = batches_lines_clear(b, batch, e);
        if (rc || !found) return rc;
    }
}

static int add_lines(batches *b, int64_t batch, const struct batches_line *lines, size_t n,
                     size_t *bad, err *e) {
    sqlite3_stmt *st;
    int rc = batches_prepare(b,
                             "INSERT INTO batch_lines (batch, line, custom_id, at, n_bytes) VALUES"
                             " (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
                             &st, e);
    if (rc) return rc;
    for (*bad = 0; *bad < n && !rc; ++*bad) {
        const struct batches_line *l = &lines[*bad];
        sqlite3_bind_int64(st, 1, batch);
        sqlite3_bind_int64(st, 2, (int64_t)l->line);
        batches_bind(st, 3, l->custom_id);
        sqlite3_bind_int64(st, 4, (int64_t)l->at);
        sqlite3_bind_int64(st, 5, (int64_t)l->n_bytes);
        if (sqlite3_step(st) != SQLITE_DONE) rc = registry_db_error(b->db, b->file, "write", e);
        if (!rc && sqlite3_changes(b->db) == 0) {
            sqlite3_finalize(st);
            return err_set(e, ERR_EXISTS, "the custom_id is used twice");
        }
        sqlite3_reset(st);
    }
    sqlite3_finalize(st);
    return rc;
}

int batches_lines_add(batches *b, int64_t batch, const struct batches_line *lines, size_t n,
                      size_t *bad, err *e) {
    pthread_mutex_lock(&b->lock);
    int rc = batches_exec(b, "BEGIN IMMEDIATE", e), added = 0;
    if (!rc) {
        added = add_lines(b, batch, lines, n, bad, e);
        rc = batches_end(b, added == ERR_EXISTS ? 0 : added, e);
    }
    pthread_mutex_unlock(&b->lock);
    return rc ? rc : added;
}

int batches_begin(batches *b, const struct batches_row *row, int64_t now_s, err *e) {
    sqlite3_stmt *st;
    pthread_mutex_lock(&b->lock);
    int rc = batches_prepare(b,
                             "UPDATE batches SET status = ?2, in_progress_s = ?3, model = ?4,"
                             " n_total = (SELECT count(*) FROM batch_lines WHERE batch = ?1)"
                             " WHERE n = ?1 AND status = ?5",
                             &st, e);
    if (!rc) {
        sqlite3_bind_int64(st, 1, row->n);
        sqlite3_bind_int(st, 2, BATCH_IN_PROGRESS);
        sqlite3_bind_int64(st, 3, now_s);
        batches_bind(st, 4, row->model);
        sqlite3_bind_int(st, 5, BATCH_VALIDATING);
        rc = batches_run(b, st, e);
    }
    if (!rc && sqlite3_changes(b->db) == 0)
        rc = err_set(e, ERR_CHANGED, "the batch %s was cancelled", row->id);
    pthread_mutex_unlock(&b->lock);
    return rc;
}

int batches_line_next(batches *b, int64_t batch, uint64_t after, struct batches_line *out, err *e) {
    sqlite3_stmt *st;
    *out = (struct batches_line){0};
    pthread_mutex_lock(&b->lock);
    int rc = batches_prepare(b,
                             "SELECT line, at, n_bytes, custom_id FROM batch_lines WHERE batch = ?1"
                             " AND line > ?2 AND state = 0 ORDER BY line LIMIT 1",
                             &st, e);
    if (!rc) {
        sqlite3_bind_int64(st, 1, batch);
        sqlite3_bind_int64(st, 2, (int64_t)after);
        int step = sqlite3_step(st);
        if (step == SQLITE_ROW) {
            const char *id = (const char *)sqlite3_column_text(st, 3);
            out->line = (uint64_t)sqlite3_column_int64(st, 0);
            out->at = (uint64_t)sqlite3_column_int64(st, 1);
            out->n_bytes = (uint64_t)sqlite3_column_int64(st, 2);
            out->custom_id = mem_strdup(id ? id : "");
            if (!out->custom_id) rc = err_no_memory(e);
        } else {
            rc = step == SQLITE_DONE ? err_set(e, ERR_NOT_FOUND, "no more lines")
                                     : registry_db_error(b->db, b->file, "read", e);
        }
        sqlite3_finalize(st);
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}

static int write_result(batches *b, int64_t batch, const struct batches_result *r, err *e) {
    sqlite3_stmt *st;
    int rc = batches_prepare(b,
                             "UPDATE batch_lines SET state = ?3, result = ?4 WHERE batch = ?1 AND"
                             " line = ?2 AND state = 0",
                             &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, batch);
    sqlite3_bind_int64(st, 2, (int64_t)r->line);
    sqlite3_bind_int(st, 3, r->failed ? 2 : 1);
    batches_bind(st, 4, r->text);
    rc = batches_run(b, st, e);
    if (rc || sqlite3_changes(b->db) == 0) return rc;
    rc = batches_prepare(b,
                         "UPDATE batches SET n_completed = n_completed + ?2, n_failed = n_failed +"
                         " ?3, input_tokens = input_tokens + ?4, cached_tokens = cached_tokens +"
                         " ?5, output_tokens = output_tokens + ?6, result_bytes = result_bytes + ?7"
                         " WHERE n = ?1",
                         &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, batch);
    sqlite3_bind_int(st, 2, !r->failed);
    sqlite3_bind_int(st, 3, r->failed);
    sqlite3_bind_int64(st, 4, (int64_t)r->input_tokens);
    sqlite3_bind_int64(st, 5, (int64_t)r->cached_tokens);
    sqlite3_bind_int64(st, 6, (int64_t)r->output_tokens);
    sqlite3_bind_int64(st, 7, (int64_t)strlen(r->text) + 1);
    return batches_run(b, st, e);
}

static int check_result_room(batches *b, int64_t batch, uint64_t n, err *e) {
    char owner[REGISTRY_OWNER_BYTES] = "";
    sqlite3_stmt *st;
    int rc = batches_prepare(b, "SELECT owner FROM batches WHERE n = ?1", &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, batch);
    if (sqlite3_step(st) == SQLITE_ROW) batches_column(st, 0, owner, sizeof owner);
    sqlite3_finalize(st);
    return batches_check_room(b, owner, n, e);
}

int batches_line_end(batches *b, int64_t batch, const struct batches_result *r, err *e) {
    pthread_mutex_lock(&b->lock);
    int rc = batches_exec(b, "BEGIN IMMEDIATE", e);
    if (!rc) {
        rc = check_result_room(b, batch, strlen(r->text) + 1, e);
        if (!rc) rc = write_result(b, batch, r, e);
        rc = batches_end(b, rc, e);
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}

int batches_results(batches *b, int64_t batch,
                    int (*each)(void *arg, const char *custom_id, const char *text, bool failed,
                                err *e),
                    void *arg, err *e) {
    int64_t line = 0;
    for (int rc = 0, step = SQLITE_ROW; step == SQLITE_ROW && !rc;) {
        sqlite3_stmt *st;
        char *id = NULL, *text = NULL;
        bool failed = false;
        pthread_mutex_lock(&b->lock);
        rc = batches_prepare(b,
                             "SELECT line, custom_id, state, result FROM batch_lines WHERE batch ="
                             " ?1 AND line > ?2 ORDER BY line LIMIT 1",
                             &st, e);
        if (!rc) {
            sqlite3_bind_int64(st, 1, batch);
            sqlite3_bind_int64(st, 2, line);
            step = sqlite3_step(st);
            if (step == SQLITE_ROW) {
                const char *column = (const char *)sqlite3_column_text(st, 1);
                line = sqlite3_column_int64(st, 0);
                id = mem_strdup(column ? column : "");
                failed = sqlite3_column_int(st, 2) == 2;
                column = (const char *)sqlite3_column_text(st, 3);
                if (sqlite3_column_int(st, 2)) text = mem_strdup(column ? column : "");
                if (!id || (!text && sqlite3_column_int(st, 2))) rc = err_no_memory(e);
            } else if (step != SQLITE_DONE) {
                rc = registry_db_error(b->db, b->file, "read", e);
            }
            sqlite3_finalize(st);
        }
        pthread_mutex_unlock(&b->lock);
        if (!rc && step == SQLITE_ROW) rc = each(arg, id, text, failed, e);
        free(id);
        free(text);
        if (rc) return rc;
    }
    return 0;
}

/* ---- the end ---- */

static int update_row(batches *b, const struct batches_row *row, err *e) {
    sqlite3_stmt *st;
    int rc = batches_prepare(b,
                             "UPDATE batches SET status = ?2, errors = ?3, output_file = ?4,"
                             " error_file = ?5, finalizing_s = ?6, completed_s = ?7, failed_s = ?8,"
                             " expired_s = ?9, cancelled_s = ?10, n_total = ?11, n_failed ="
                             " CASE WHEN ?2 >= ?13 THEN ?12 ELSE n_failed END,"
                             " result_bytes = CASE WHEN ?2 >= ?13 THEN 0 ELSE result_bytes END"
                             " WHERE n = ?1 AND (status <> ?14 OR ?15)",
                             &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, row->n);
    sqlite3_bind_int(st, 2, row->status);
    batches_bind(st, 3, row->errors ? row->errors : "");
    batches_bind(st, 4, row->output_file);
    batches_bind(st, 5, row->error_file);
    const int64_t numbers[] = {row->finalizing_s,     row->completed_s, row->failed_s,
                               row->expired_s,        row->cancelled_s, (int64_t)row->n_total,
                               (int64_t)row->n_failed};
    for (int i = 0; i < 7; i++)
        sqlite3_bind_int64(st, 6 + i, numbers[i]);
    sqlite3_bind_int(st, 13, BATCH_COMPLETED);
    sqlite3_bind_int(st, 14, BATCH_CANCELLING);
    sqlite3_bind_int(st, 15, row->cancelling_s > 0);
    rc = batches_run(b, st, e);
    if (!rc && sqlite3_changes(b->db) == 0)
        rc = err_set(e, ERR_CHANGED, "the batch %s was cancelled", row->id);
    return rc;
}

static int insert_output(const struct batches_row *row, struct batches_upload *u, const char *kind,
                         int64_t now_s, err *e) {
    struct batches_file f = {.purpose = "batch_output",
                             .mime = "application/jsonl",
                             .created_s = now_s,
                             .expires_s = row->output_ttl_s ? now_s + row->output_ttl_s : 0};
    snprintf(f.name, sizeof f.name, "%s_%s.jsonl", row->id, kind);
    return batches_file_insert(u, &f, e);
}

int batches_finish(batches *b, const struct batches_row *row, struct batches_upload *output,
                   struct batches_upload *errors, int64_t now_s, err *e) {
    int rc = output ? batches_file_settle(output, e) : 0;
    if (!rc && errors) rc = batches_file_settle(errors, e);
    pthread_mutex_lock(&b->lock);
    if (!rc) rc = batches_exec(b, "BEGIN IMMEDIATE", e);
    if (!rc) {
        rc = update_row(b, row, e);
        if (!rc && output) rc = insert_output(row, output, "output", now_s, e);
        if (!rc && errors) rc = insert_output(row, errors, "error", now_s, e);
        rc = batches_end(b, rc, e);
    }
    struct batches_upload *files[] = {output, errors};
    for (size_t i = 0; i < 2; i++) {
        if (!files[i]) continue;
        if (rc)
            batches_unlink(b, files[i]->id);
        else
            batches_file_leave(files[i]);
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}
