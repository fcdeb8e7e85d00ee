/* batch_files.c - uploaded files and those that batches write: rows in the registry, bytes in a
 * folder beside it. A file is written under the name ID.part, synced, renamed, and then has a row;
 * what has no row after a day is removed. Any thread, one call at a time, except that bytes are
 * written without the lock. */
#include "registry/batches_int.h"

#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RESERVE_BYTES = 1 << 20, EXPIRED_AT_ONCE = 64, ORPHAN_S = 86400, BUSY_MS = 1000 };

/* ---- the store ---- */

/* Removes files without a row that a killed process left. */
static void remove_orphans(batches *b, int64_t now_s) {
    DIR *d = opendir(b->folder);
    if (!d) return;
    for (const struct dirent *entry; (entry = readdir(d));) {
        char path[BATCHES_PATH_BYTES];
        struct stat st;
        sqlite3_stmt *find;
        uint64_t known = 1;
        if (strncmp(entry->d_name, "file-", 5) != 0) continue;
        if (batches_path(b, entry->d_name, "", path, NULL) || stat(path, &st)) continue;
        if (now_s - (int64_t)st.st_mtime < ORPHAN_S) continue;
        if (batches_prepare(b, "SELECT count(*) FROM files WHERE id = ?1", &find, NULL)) continue;
        batches_bind(find, 1, entry->d_name);
        if (!batches_number(b, find, &known, NULL) && !known) unlink(path);
    }
    closedir(d);
}

static int open_folder(batches *b, err *e) {
    size_t n = strlen(b->file) + sizeof ".files";
    b->folder = mem_new(n, 1);
    if (!b->folder) return err_no_memory(e);
    snprintf(b->folder, n, "%s.files", b->file);
    if (mkdir(b->folder, 0700) && errno != EEXIST)
        return err_set(e, ERR_IO, "cannot create the folder %s: %s", b->folder, strerror(errno));
    if (access(b->folder, R_OK | W_OK | X_OK))
        return err_set(e, ERR_IO, "cannot use the folder %s: %s", b->folder, strerror(errno));
    return 0;
}

void batches_set_bounds(batches *b, const struct batches_config *c) {
    pthread_mutex_lock(&b->lock);
    b->max_bytes = c->max_bytes;
    b->max_files = c->max_files;
    b->max_batches = c->max_batches;
    pthread_mutex_unlock(&b->lock);
}

int batches_open(const struct batches_config *c, int64_t now_s, batches **out, err *e) {
    *out = NULL;
    batches *b = mem_new(1, sizeof *b);
    if (!b) return err_no_memory(e);
    pthread_mutex_init(&b->lock, NULL);
    b->lease = -1;
    batches_set_bounds(b, c);
    b->file = mem_strdup(c->file);
    int rc = b->file ? registry_db_open(c->file, BUSY_MS, &b->db, e) : err_no_memory(e);
    if (!rc) rc = batches_exec(b, "PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON", e);
    if (!rc) rc = open_folder(b, e);
    if (!rc) registry_hide(c->file); /* it contains answers */
    if (!rc) remove_orphans(b, now_s);
    if (rc)
        batches_close(b);
    else
        *out = b;
    return rc;
}

void batches_close(batches *b) {
    if (!b) return;
    sqlite3_close(b->db);
    if (b->lease >= 0) close(b->lease);
    pthread_mutex_destroy(&b->lock);
    free(b->file);
    free(b->folder);
    free(b);
}

void batches_owner(const char *key, char owner[BATCHES_OWNER_BYTES]) {
    _Static_assert((int)BATCHES_OWNER_BYTES == (int)REGISTRY_OWNER_BYTES, "they are one");
    registry_owner_of(key, owner);
}

/* ---- bounds ---- */

static int sum_stored(batches *b, const char *owner, uint64_t *n, err *e) {
    sqlite3_stmt *st;
    int rc = batches_prepare(
        b,
        "SELECT (SELECT coalesce(sum(n_bytes), 0) FROM files WHERE ?1 IS NULL OR owner = ?1) +"
        " (SELECT coalesce(sum(result_bytes), 0) FROM batches WHERE ?1 IS NULL OR owner = ?1)",
        &st, e);
    if (rc) return rc;
    if (owner) batches_bind(st, 1, owner);
    rc = batches_number(b, st, n, e);
    for (size_t i = 0; i < BATCHES_UPLOADS && !rc; i++)
        if (b->uploads[i] && (!owner || strcmp(owner, b->uploads[i]->owner) == 0))
            *n += b->uploads[i]->n_reserved;
    return rc;
}

int batches_check_room(batches *b, const char *owner, uint64_t more, err *e) {
    uint64_t all, own, most = *owner ? b->max_bytes / 2 : b->max_bytes;
    int rc = sum_stored(b, NULL, &all, e);
    if (!rc) rc = sum_stored(b, owner, &own, e);
    if (rc) return rc;
    if (all <= b->max_bytes && more <= b->max_bytes - all && own <= most && more <= most - own)
        return 0;
    return err_set(e, ERR_FULL,
                   "There is no room for more files: %s take %llu of %llu bytes. Delete some.",
                   own > most || more > most - own ? "yours" : "all files",
                   (unsigned long long)(own > most || more > most - own ? own : all),
                   (unsigned long long)(own > most || more > most - own ? most : b->max_bytes));
}

static int check_count(batches *b, const char *owner, err *e) {
    sqlite3_stmt *st;
    uint64_t all = 0, own = 0, most = *owner ? (b->max_files + 1) / 2 : b->max_files;
    int rc =
        batches_prepare(b, "SELECT count(*) FROM files WHERE purpose <> 'batch_output'", &st, e);
    if (!rc) rc = batches_number(b, st, &all, e);
    if (!rc)
        rc = batches_prepare(b,
                             "SELECT count(*) FROM files WHERE owner = ?1 AND purpose <>"
                             " 'batch_output'",
                             &st, e);
    if (rc) return rc;
    batches_bind(st, 1, owner);
    rc = batches_number(b, st, &own, e);
    if (rc || (all < b->max_files && own < most)) return rc;
    return err_set(e, ERR_FULL,
                   "There are %llu files already, as many as there may be: delete some.",
                   (unsigned long long)(own >= most ? own : all));
}

/* ---- writing ---- */

int batches_path(const batches *b, const char *id, const char *end, char path[BATCHES_PATH_BYTES],
                 err *e) {
    int n = snprintf(path, BATCHES_PATH_BYTES, "%s/%s%s", b->folder, id, end);
    if (n > 0 && n < BATCHES_PATH_BYTES) return 0;
    return err_set(e, ERR_IO, "the path of %s is too long", b->folder);
}

void batches_unlink(const batches *b, const char *id) {
    char path[BATCHES_PATH_BYTES];
    if (!batches_path(b, id, "", path, NULL)) unlink(path);
}

static int enter_upload(batches *b, struct batches_upload *u, err *e) {
    int rc = u->output ? 0 : check_count(b, u->owner, e);
    if (rc) return rc;
    for (size_t i = 0; i < BATCHES_UPLOADS; i++)
        if (!b->uploads[i]) {
            b->uploads[i] = u;
            u->b = b;
            return 0;
        }
    return err_set(e, ERR_UNAVAILABLE,
                   "Too many files are being uploaded at once: try again later.");
}

int batches_file_begin(batches *b, const char *id, struct batches_upload *u, err *e) {
    char path[BATCHES_PATH_BYTES];
    u->fd = -1;
    u->b = NULL;
    u->n_bytes = u->n_reserved = 0;
    snprintf(u->id, sizeof u->id, "%s", id);
    pthread_mutex_lock(&b->lock);
    int rc = enter_upload(b, u, e);
    pthread_mutex_unlock(&b->lock);
    if (!rc) rc = batches_path(b, id, ".part", path, e);
    if (!rc) {
        u->fd = file_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (u->fd < 0) rc = err_set(e, ERR_IO, "cannot create %s: %s", path, strerror(errno));
    }
    if (rc) batches_file_drop(u);
    return rc;
}

static int reserve(struct batches_upload *u, uint64_t need, err *e) {
    batches *b = u->b;
    if (u->output || need <= u->n_reserved) return 0;
    uint64_t more = need - u->n_reserved, rounded = more < RESERVE_BYTES ? RESERVE_BYTES : more;
    pthread_mutex_lock(&b->lock);
    int rc = batches_check_room(b, u->owner, rounded, NULL);
    if (!rc)
        more = rounded;
    else
        rc = batches_check_room(b, u->owner, more, e);
    if (!rc) u->n_reserved += more;
    pthread_mutex_unlock(&b->lock);
    return rc;
}

int batches_file_write(struct batches_upload *u, const void *bytes, size_t n, err *e) {
    int rc = reserve(u, u->n_bytes + n, e);
    if (rc) return rc;
    if (file_write_at(u->fd, bytes, n, u->n_bytes))
        return err_set(e, ERR_IO, "cannot write a file to %s: %s", u->b->folder, strerror(errno));
    u->n_bytes += n;
    return 0;
}

void batches_file_leave(struct batches_upload *u) {
    batches *b = u->b;
    if (u->fd >= 0) close(u->fd);
    u->fd = -1;
    for (size_t i = 0; i < BATCHES_UPLOADS; i++)
        if (b->uploads[i] == u) b->uploads[i] = NULL;
    u->b = NULL;
}

void batches_file_drop(struct batches_upload *u) {
    char path[BATCHES_PATH_BYTES];
    batches *b = u->b;
    if (!b) return;
    if (u->fd >= 0 && !batches_path(b, u->id, ".part", path, NULL)) unlink(path);
    pthread_mutex_lock(&b->lock);
    batches_file_leave(u);
    pthread_mutex_unlock(&b->lock);
}

int batches_file_settle(struct batches_upload *u, err *e) {
    char from[BATCHES_PATH_BYTES], to[BATCHES_PATH_BYTES];
    int rc = batches_path(u->b, u->id, ".part", from, e);
    if (!rc) rc = batches_path(u->b, u->id, "", to, e);
    if (rc) return rc;
    if (file_sync(u->fd) || file_rename(from, to))
        return err_set(e, ERR_IO, "cannot write %s: %s", to, strerror(errno));
    file_sync_folder(to);
    return 0;
}

int batches_file_insert(struct batches_upload *u, const struct batches_file *f, err *e) {
    sqlite3_stmt *st;
    int rc = batches_prepare(
        u->b,
        "INSERT INTO files (id, owner, purpose, name, n_bytes, created_s, expires_s, mime) VALUES"
        " (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        &st, e);
    if (rc) return rc;
    batches_bind(st, 1, u->id);
    batches_bind(st, 2, u->owner);
    batches_bind(st, 3, f->purpose);
    batches_bind(st, 4, f->name);
    sqlite3_bind_int64(st, 5, (int64_t)u->n_bytes);
    sqlite3_bind_int64(st, 6, f->created_s);
    sqlite3_bind_int64(st, 7, f->expires_s);
    batches_bind(st, 8, f->mime);
    return batches_run(u->b, st, e);
}

int batches_file_end(struct batches_upload *u, struct batches_file *f, err *e) {
    batches *b = u->b;
    memcpy(f->id, u->id, sizeof f->id);
    f->n_bytes = u->n_bytes;
    int rc = batches_file_settle(u, e);
    if (rc) return rc;
    pthread_mutex_lock(&b->lock);
    rc = batches_file_insert(u, f, e);
    if (rc)
        batches_unlink(b, u->id);
    else
        batches_file_leave(u);
    pthread_mutex_unlock(&b->lock);
    return rc;
}

/* ---- reading ---- */

#define COLUMNS "id, purpose, name, n_bytes, created_s, expires_s, mime"
enum { N_COLUMNS = 7 };

static void read_file_row(sqlite3_stmt *st, struct batches_file *out) {
    batches_column(st, 0, out->id, sizeof out->id);
    batches_column(st, 1, out->purpose, sizeof out->purpose);
    batches_column(st, 2, out->name, sizeof out->name);
    out->n_bytes = (uint64_t)sqlite3_column_int64(st, 3);
    out->created_s = sqlite3_column_int64(st, 4);
    out->expires_s = sqlite3_column_int64(st, 5);
    batches_column(st, 6, out->mime, sizeof out->mime);
}

/* Also sets the number of the row. With the lock. */
static int find_file(batches *b, const char *id, const char *owner, int64_t now_s,
                     struct batches_file *out, int64_t *n, err *e) {
    sqlite3_stmt *st;
    int rc = batches_prepare(b,
                             "SELECT " COLUMNS ", n FROM files WHERE id = ?1 AND owner = ?2 AND"
                             " (expires_s = 0 OR expires_s > ?3)",
                             &st, e);
    if (rc) return rc;
    batches_bind(st, 1, id);
    batches_bind(st, 2, owner);
    sqlite3_bind_int64(st, 3, now_s);
    int step = sqlite3_step(st);
    if (step == SQLITE_ROW) {
        read_file_row(st, out);
        *n = sqlite3_column_int64(st, N_COLUMNS);
    } else if (step == SQLITE_DONE) {
        rc = err_set_param(e, ERR_NOT_FOUND, "id", "No such File object: %.100s", id);
    } else {
        rc = registry_db_error(b->db, b->file, "read", e);
    }
    sqlite3_finalize(st);
    return rc;
}

int batches_file_get(batches *b, const char *id, const char *key, int64_t now_s,
                     struct batches_file *out, err *e) {
    char owner[REGISTRY_OWNER_BYTES];
    int64_t n;
    registry_owner_of(key, owner);
    pthread_mutex_lock(&b->lock);
    int rc = find_file(b, id, owner, now_s, out, &n, e);
    pthread_mutex_unlock(&b->lock);
    return rc;
}

int batches_file_open(batches *b, const char *id, int *fd, err *e) {
    char path[BATCHES_PATH_BYTES];
    int rc = batches_path(b, id, "", path, e);
    if (rc) return rc;
    *fd = file_open(path, O_RDONLY, 0);
    if (*fd >= 0) return 0;
    if (errno == ENOENT)
        return err_set(e, ERR_NOT_FOUND,
                       "The content of %s has gone from the server's disk: upload it again.", id);
    return err_set(e, ERR_IO, "cannot read %s: %s", path, strerror(errno));
}

/* Gives up to p->limit of the statement's rows, which are at most one more. *more: they are. */
static int give_page(batches *b, sqlite3_stmt *st, const struct batches_page *p,
                     void (*each)(void *arg, const struct batches_file *f), void *arg, bool *more,
                     err *e) {
    struct batches_file f;
    int step;
    for (int i = 0; (step = sqlite3_step(st)) == SQLITE_ROW; i++) {
        *more = sqlite3_column_int64(st, N_COLUMNS) > p->limit;
        if (*more && i == (p->before ? 0 : p->limit)) continue;
        read_file_row(st, &f);
        each(arg, &f);
    }
    return step == SQLITE_DONE ? 0 : registry_db_error(b->db, b->file, "read", e);
}

int batches_file_list(batches *b, const struct batches_page *p, int64_t now_s,
                      void (*each)(void *arg, const struct batches_file *f), void *arg, bool *more,
                      err *e) {
    char owner[REGISTRY_OWNER_BYTES], sql[640];
    const char *anchor = p->before ? p->before : p->after;
    bool up = p->ascending != (p->before != NULL); /* away from the anchor */
    struct batches_file f;
    sqlite3_stmt *st = NULL;
    int64_t n = 0;
    *more = false;
    registry_owner_of(p->key, owner);
    snprintf(sql, sizeof sql,
             "SELECT " COLUMNS ", count(*) OVER () FROM (SELECT * FROM files WHERE owner = ?1"
             " AND (?2 = 0 OR n %c ?2) AND (?3 IS NULL OR purpose = ?3)"
             " AND (expires_s = 0 OR expires_s > ?4)"
             " AND (?6 IS NULL OR id IN (SELECT value FROM json_each(?6)))"
             " ORDER BY n %s LIMIT ?5) ORDER BY n %s",
             up ? '>' : '<', up ? "ASC" : "DESC", p->ascending ? "ASC" : "DESC");
    pthread_mutex_lock(&b->lock);
    int rc = anchor ? find_file(b, anchor, owner, now_s, &f, &n, e) : 0;
    if (!rc) rc = batches_prepare(b, sql, &st, e);
    if (!rc) {
        batches_bind(st, 1, owner);
        sqlite3_bind_int64(st, 2, n);
        if (p->purpose) batches_bind(st, 3, p->purpose);
        sqlite3_bind_int64(st, 4, now_s);
        sqlite3_bind_int(st, 5, p->limit + 1);
        if (p->ids) batches_bind(st, 6, p->ids);
        rc = give_page(b, st, p, each, arg, more, e);
        sqlite3_finalize(st);
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}

/* ---- removal ---- */

#define NEEDED "EXISTS (SELECT 1 FROM batches WHERE input_file = files.id AND status < 4)"
_Static_assert(BATCH_COMPLETED == 4, "NEEDED has it as a number");

int batches_file_delete(batches *b, const char *id, const char *key, int64_t now_s, err *e) {
    char owner[REGISTRY_OWNER_BYTES];
    struct batches_file f;
    sqlite3_stmt *st;
    int64_t n;
    registry_owner_of(key, owner);
    pthread_mutex_lock(&b->lock);
    int rc = find_file(b, id, owner, now_s, &f, &n, e);
    if (!rc) rc = batches_prepare(b, "DELETE FROM files WHERE n = ?1 AND NOT " NEEDED, &st, e);
    if (!rc) {
        sqlite3_bind_int64(st, 1, n);
        rc = batches_run(b, st, e);
    }
    if (!rc && sqlite3_changes(b->db) == 0)
        rc = err_set(
            e, ERR_INVALID,
            "The file %.60s is the input of a batch that has not ended: cancel that first.", id);
    if (!rc) batches_unlink(b, id);
    pthread_mutex_unlock(&b->lock);
    return rc;
}

int batches_file_expire(batches *b, int64_t now_s, err *e) {
    sqlite3_stmt *st;
    pthread_mutex_lock(&b->lock);
    int rc = batches_prepare(b,
                             "DELETE FROM files WHERE n IN (SELECT n FROM files WHERE expires_s > 0"
                             " AND expires_s <= ?1 AND NOT " NEEDED " LIMIT ?2) RETURNING id",
                             &st, e);
    if (!rc) {
        char ids[EXPIRED_AT_ONCE][BATCHES_ID_BYTES];
        size_t n = 0;
        int step;
        sqlite3_bind_int64(st, 1, now_s);
        sqlite3_bind_int(st, 2, EXPIRED_AT_ONCE);
        while ((step = sqlite3_step(st)) == SQLITE_ROW && n < EXPIRED_AT_ONCE)
            batches_column(st, 0, ids[n++], BATCHES_ID_BYTES);
        if (step != SQLITE_DONE && step != SQLITE_ROW)
            rc = registry_db_error(b->db, b->file, "write", e);
        sqlite3_finalize(st);
        for (size_t i = 0; i < n && !rc; i++)
            batches_unlink(b, ids[i]);
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}
