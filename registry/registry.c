/* registry.c - reads and writes rows: names, files, times. The only writer of the tables models and
 * names. Runs on the thread that owns the handle; other processes may write between any two calls,
 * so reads and writes that must be consistent share a transaction. */
#include "registry/registry_int.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/formats/model_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALIASES_MAX = 64 };

int registry_db_error(sqlite3 *db, const char *file, const char *what, err *e) {
    switch (sqlite3_errcode(db) & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(
            e, ERR_IO,
            "registry %s is busy: another process keeps it locked; try again when it has "
            "finished",
            file);
    case SQLITE_FULL:
        return err_set(e, ERR_IO,
                       "cannot %s registry %s: the disk is full: free some space and try again",
                       what, file);
    case SQLITE_NOTADB:
        return err_set(e, ERR_FORMAT, "%s is not a registry: it is not an SQLite database", file);
    case SQLITE_READONLY:
        return err_set(e, ERR_IO,
                       "registry %s cannot be written: this user needs write permission for it and "
                       "its folder",
                       file);
    case SQLITE_CORRUPT:
        return err_set(e, ERR_FORMAT,
                       "registry %s is damaged (%s): remove it and add the models again", file,
                       sqlite3_errmsg(db));
    case SQLITE_NOMEM:
        return err_no_memory(e);
    default:
        return err_set(e, ERR_IO, "cannot %s registry %s: %s", what, file, sqlite3_errmsg(db));
    }
}

int registry_db_exec(sqlite3 *db, const char *file, const char *sql, err *e) {
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK) return 0;
    return registry_db_error(db, file, "write", e);
}

static int err_db(registry *r, const char *what, err *e) {
    return registry_db_error(r->db, r->file, what, e);
}

int registry_db_prepare(sqlite3 *db, const char *file, const char *sql, sqlite3_stmt **st, err *e) {
    if (sqlite3_prepare_v2(db, sql, -1, st, NULL) == SQLITE_OK) return 0;
    *st = NULL;
    return registry_db_error(db, file, "read", e);
}

static int prepare_sql(registry *r, const char *sql, sqlite3_stmt **st, err *e) {
    return registry_db_prepare(r->db, r->file, sql, st, e);
}

static void rollback_changes(registry *r) {
    sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
}

int registry_make_folders(const char *file, unsigned mode, err *e) {
    char *path = mem_strdup(file);
    if (!path) return err_no_memory(e);
    int rc = 0;
    for (char *slash = strchr(path + 1, '/'); slash && !rc; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        struct stat st;
        int why = mkdir(path, (mode_t)mode) ? errno : 0;
        /* An existing folder is fine, also where creating one is not permitted. */
        if (why && (stat(path, &st) || !S_ISDIR(st.st_mode)))
            rc = err_set(e, ERR_IO, "cannot create folder %s: %s", path, strerror(why));
        *slash = '/';
    }
    free(path);
    return rc;
}

/* SQLite creates files beside it with the same mode. */
void registry_hide(const char *file) {
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char path[PATH_MAX];
        struct stat st;
        int n = snprintf(path, sizeof path, "%s%s", file, ends[i]);
        if (n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0 && (st.st_mode & 07) &&
            chmod(path, st.st_mode & 0770))
            log_warn("%s can be read by other users: %s", path, strerror(errno));
    }
}

/* name: the file, or a URI of it. prepare migrates its schema, or checks it. */
static int open_db(const char *file, const char *name, int flags,
                   int (*prepare)(sqlite3 *db, const char *file, err *e), sqlite3 **out, err *e) {
    sqlite3 *db = NULL;
    int rc;
    if (sqlite3_open_v2(name, &db, flags | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        rc = db ? registry_db_error(db, file, "open", e) : err_no_memory(e);
        goto error;
    }
    sqlite3_extended_result_codes(db, 1);
    sqlite3_busy_timeout(db, REGISTRY_BUSY_MS);
    rc = registry_db_exec(db, file, "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF", e);
    if (!rc) rc = prepare(db, file, e);
    if (rc) goto error;
    *out = db;
    return 0;
error:
    sqlite3_close(db);
    return rc;
}

/* True if the file exists, but this user may not write it or create files in its folder. */
static bool is_read_only(const char *file) {
    const char *slash = strrchr(file, '/');
    char *folder = slash ? mem_strndup(file, (size_t)(slash + 1 - file)) : mem_strdup(".");
    bool is = folder && access(file, R_OK) == 0 && (access(file, W_OK) || access(folder, W_OK));
    free(folder);
    return is;
}

/* Opens a file that this user may not write. A file in WAL mode needs a shared index beside it; if
 * none can be created, SQLite reads the file only if told that it is immutable, which holds as long
 * as there is no log beside it. */
static int open_to_read(const char *file, sqlite3 **out, err *e) {
    struct stat st;
    str uri, wal;
    str_init(&uri, 65536);
    str_init(&wal, 65536);
    str_addf(&wal, "%s-wal", file);
    str_add(&uri, "file:");
    for (const char *c = file; *c; c++)
        if (strchr("%?#", *c))
            str_addf(&uri, "%%%02X", (unsigned char)*c);
        else
            str_add_char(&uri, *c);
    str_add(&uri, "?mode=ro");
    if (stat(str_cstr(&wal), &st) || !st.st_size) str_add(&uri, "&immutable=1");
    int rc = uri.failed || wal.failed
                 ? err_no_memory(e)
                 : open_db(file, str_cstr(&uri), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI,
                           registry_schema_check, out, e);
    str_fini(&uri);
    str_fini(&wal);
    return rc;
}

int registry_db_open(const char *file, int busy_ms, sqlite3 **out, err *e) {
    *out = NULL;
    if (!file[0]) return err_set(e, ERR_INVALID, "the registry's file name is empty");
    int rc = registry_make_folders(file, 0700, e); /* readable by its owner only */
    if (rc) return rc;
    rc = open_db(file, file, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, registry_schema_migrate,
                 out, e);
    if (rc && is_read_only(file)) rc = open_to_read(file, out, e);
    if (!rc) sqlite3_busy_timeout(*out, busy_ms);
    return rc;
}

int registry_open(const char *file, registry **out, err *e) {
    *out = NULL;
    registry *r = mem_new(1, sizeof *r);
    int rc = 0;
    if (!r || !(r->file = mem_strdup(file))) rc = err_no_memory(e);
    if (!rc) rc = registry_db_open(file, REGISTRY_BUSY_MS, &r->db, e);
    if (rc) {
        registry_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

int registry_copy(registry *r, const char *from, err *e) {
    sqlite3 *db;
    sqlite3_stmt *st;
    int rc = registry_db_open(from, REGISTRY_BUSY_MS, &db, e); /* migrates it */
    if (rc) return rc;
    sqlite3_close(db);
    rc = prepare_sql(r, "ATTACH ?1 AS source", &st, e);
    if (rc) return rc;
    sqlite3_bind_text(st, 1, from, -1, SQLITE_STATIC);
    if (sqlite3_step(st) != SQLITE_DONE) rc = err_db(r, "read", e);
    sqlite3_finalize(st);
    if (!rc)
        rc = registry_db_exec(r->db, r->file,
                              "BEGIN; INSERT INTO main.models SELECT * FROM source.models;"
                              "INSERT INTO main.names SELECT * FROM source.names;"
                              "INSERT INTO main.presets SELECT * FROM source.presets; COMMIT;"
                              "DETACH source",
                              e);
    return rc;
}

void registry_close(registry *r) {
    if (!r) return;
    sqlite3_close(r->db);
    free(r->file);
    free(r);
}

void registry_model_fini(struct registry_model *m) {
    free(m->name);
    for (size_t i = 0; i < m->n_aliases; i++)
        free(m->aliases[i]);
    free(m->aliases);
    free(m->path);
    free(m->format);
    free(m->architecture);
    free(m->quantization);
    memset(m, 0, sizeof *m);
}

void registry_models_free(struct registry_model *models, size_t n) {
    for (size_t i = 0; models && i < n; i++)
        registry_model_fini(&models[i]);
    free(models);
}

static char *column_dup(sqlite3_stmt *st, int column) {
    const unsigned char *text = sqlite3_column_text(st, column);
    return mem_strdup(text ? (const char *)text : "");
}

/* Reads name and aliases of m->id, by position. */
static int load_names(registry *r, struct registry_model *m, err *e) {
    sqlite3_stmt *st;
    int step,
        rc = prepare_sql(r, "SELECT name FROM names WHERE model_id = ?1 ORDER BY position", &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, m->id);
    while ((step = sqlite3_step(st)) == SQLITE_ROW) {
        char *name = column_dup(st, 0), **more = NULL;
        if (name && !m->name) {
            m->name = name;
            continue;
        }
        if (name) more = mem_resize(m->aliases, m->n_aliases + 1, sizeof *more);
        if (!more) {
            free(name);
            sqlite3_finalize(st);
            return err_no_memory(e);
        }
        m->aliases = more;
        m->aliases[m->n_aliases++] = name;
    }
    sqlite3_finalize(st);
    if (step != SQLITE_DONE) return err_db(r, "read", e);
    if (!m->name)
        return err_set(e, ERR_FORMAT,
                       "registry %s is damaged (a model has no name): remove it and add the models "
                       "again",
                       r->file);
    return 0;
}

/* Fills m; it owns nothing on failure. Call inside a transaction. */
static int load_model(registry *r, int64_t id, struct registry_model *m, err *e) {
    sqlite3_stmt *st;
    memset(m, 0, sizeof *m);
    int rc =
        prepare_sql(r,
                    "SELECT path, format, architecture, quantization, n_params, context_length,"
                    " size_bytes, sha256, mtime_ns, added_s, last_loaded_s"
                    " FROM models WHERE id = ?1",
                    &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, id);
    int step = sqlite3_step(st);
    if (step == SQLITE_ROW) {
        m->id = id;
        m->path = column_dup(st, 0);
        m->format = column_dup(st, 1);
        m->architecture = column_dup(st, 2);
        m->quantization = column_dup(st, 3);
        m->n_params = (uint64_t)sqlite3_column_int64(st, 4);
        m->context_length = (uint64_t)sqlite3_column_int64(st, 5);
        m->size_bytes = (uint64_t)sqlite3_column_int64(st, 6);
        const unsigned char *sha = sqlite3_column_text(st, 7);
        snprintf(m->sha256, sizeof m->sha256, "%s", sha ? (const char *)sha : "");
        m->mtime_ns = sqlite3_column_int64(st, 8);
        m->added_s = sqlite3_column_int64(st, 9);
        m->last_loaded_s = sqlite3_column_int64(st, 10);
        if (!m->path || !m->format || !m->architecture || !m->quantization) rc = err_no_memory(e);
    } else {
        rc = step == SQLITE_DONE
                 ? err_set(e, ERR_FORMAT,
                           "registry %s is damaged (a name has no model): remove it and add the "
                           "models again",
                           r->file)
                 : err_db(r, "read", e);
    }
    sqlite3_finalize(st);
    if (!rc) rc = load_names(r, m, e);
    if (rc) registry_model_fini(m);
    return rc;
}

/* Finds the *id of a model; 0 if the query has no row. Inside or outside a transaction. */
static int query_id(registry *r, const char *sql, const char *text, int64_t *id, int *position,
                    err *e) {
    sqlite3_stmt *st;
    int rc = prepare_sql(r, sql, &st, e);
    if (rc) return rc;
    sqlite3_bind_text(st, 1, text, -1, SQLITE_STATIC);
    int step = sqlite3_step(st);
    *id = step == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    if (position) *position = step == SQLITE_ROW ? sqlite3_column_int(st, 1) : -1;
    if (step != SQLITE_ROW && step != SQLITE_DONE) rc = err_db(r, "read", e);
    sqlite3_finalize(st);
    return rc;
}

static int name_holder(registry *r, const char *name, int64_t *id, int *position, err *e) {
    return query_id(r, "SELECT model_id, position FROM names WHERE name = ?1", name, id, position,
                    e);
}

int registry_check_name(const char *name, err *e) {
    size_t n = strlen(name);
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  "._:/-";
    if (n == 0 || n >= REGISTRY_NAME_BYTES || strspn(name, allowed) != n)
        return err_set_param(
            e, ERR_INVALID, "name",
            "\"%.100s\" is not a model name: expected 1 to %d of A-Z a-z 0-9 . _ : / -", name,
            REGISTRY_NAME_BYTES - 1);
    return 0;
}

void registry_name_from_path(const char *path, char name[REGISTRY_NAME_BYTES]) {
    struct model_file_part part;
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n = strlen(base);
    if (model_file_part_read(base, &part))
        n = part.stem_len;
    else if (n > 5 && strcmp(base + n - 5, ".gguf") == 0)
        n -= 5;
    if (n >= REGISTRY_NAME_BYTES) n = REGISTRY_NAME_BYTES - 1;
    snprintf(name, REGISTRY_NAME_BYTES, "%.*s", (int)n, base);
    for (char *c = name; *c; c++)
        if (registry_check_name((char[2]){*c, '\0'}, NULL) || *c == '/') *c = '-';
}

static int err_taken(registry *r, const char *name, int64_t holder, err *e) {
    struct registry_model m;
    int rc = load_model(r, holder, &m, e);
    if (rc) return rc;
    if (strcmp(m.name, name) == 0)
        rc = err_set_param(e, ERR_EXISTS, "name", "the name %s is already taken by %s", name,
                           m.path);
    else
        rc = err_set_param(e, ERR_EXISTS, "name", "the name %s is an alias of %s", name, m.name);
    registry_model_fini(&m);
    return rc;
}

/* Finds the row that an add writes: *id of the row to refresh, 0 for a new one; name receives its
 * name. Fails if a name or alias belongs to another model. */
static int find_add_target(registry *r, const struct registry_add *add, const char *path,
                           int64_t *id, char name[REGISTRY_NAME_BYTES], err *e) {
    int64_t holder;
    int position, rc;
    *id = 0;
    if (add->name) {
        snprintf(name, REGISTRY_NAME_BYTES, "%s", add->name);
    } else {
        rc = query_id(r, "SELECT id FROM models WHERE path = ?1 ORDER BY id LIMIT 1", path, id,
                      NULL, e);
        if (rc) return rc;
        registry_name_from_path(path, name);
    }
    if (*id == 0) {
        struct registry_model m;
        rc = name_holder(r, name, &holder, &position, e);
        if (!rc && holder) rc = load_model(r, holder, &m, e);
        if (rc) return rc;
        if (holder) {
            bool same = position == 0 && strcmp(m.path, path) == 0;
            registry_model_fini(&m);
            if (!same) return err_taken(r, name, holder, e);
            *id = holder;
        }
    }
    for (size_t i = 0; i < add->n_aliases; i++) {
        rc = name_holder(r, add->aliases[i], &holder, &position, e);
        if (rc) return rc;
        if (holder && holder != *id) return err_taken(r, add->aliases[i], holder, e);
    }
    return 0;
}

static int write_row(registry *r, int64_t *id, const struct registry_scan *scan, const char *sha,
                     err *e) {
    sqlite3_stmt *st;
    int rc =
        prepare_sql(r,
                    *id ? "UPDATE models SET path = ?1, format = ?2, architecture = ?3,"
                          " quantization = ?4, n_params = ?5, context_length = ?6,"
                          " size_bytes = ?7, sha256 = ?8, mtime_ns = ?9, added_s = ?10"
                          " WHERE id = ?11"
                        : "INSERT INTO models (path, format, architecture, quantization, n_params,"
                          " context_length, size_bytes, sha256, mtime_ns, added_s)"
                          " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                    &st, e);
    if (rc) return rc;
    sqlite3_bind_text(st, 1, scan->path, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, scan->format, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 3, scan->architecture, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 4, scan->quantization, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 5, (int64_t)scan->n_params);
    sqlite3_bind_int64(st, 6, (int64_t)scan->context_length);
    sqlite3_bind_int64(st, 7, (int64_t)scan->stat.size_bytes);
    sqlite3_bind_text(st, 8, sha, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 9, scan->stat.mtime_ns);
    sqlite3_bind_int64(st, 10, clock_wall_s());
    if (*id) sqlite3_bind_int64(st, 11, *id);
    if (sqlite3_step(st) != SQLITE_DONE)
        rc = err_db(r, "write", e);
    else if (!*id)
        *id = sqlite3_last_insert_rowid(r->db);
    sqlite3_finalize(st);
    return rc;
}

/* Adds a name at the next free position, unless id has it already. */
static int write_name(registry *r, int64_t id, const char *name, err *e) {
    sqlite3_stmt *st;
    int rc =
        prepare_sql(r,
                    "INSERT INTO names (name, model_id, position) SELECT ?1, ?2,"
                    " (SELECT coalesce(max(position) + 1, 0) FROM names WHERE model_id = ?2)"
                    " WHERE NOT EXISTS (SELECT 1 FROM names WHERE name = ?1 AND model_id = ?2)",
                    &st, e);
    if (rc) return rc;
    sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, id);
    if (sqlite3_step(st) != SQLITE_DONE) rc = err_db(r, "write", e);
    sqlite3_finalize(st);
    return rc;
}

static int write_model(registry *r, const struct registry_add *add,
                       const struct registry_scan *scan, const char *sha,
                       struct registry_model *out, err *e) {
    char name[REGISTRY_NAME_BYTES];
    int64_t id;
    int rc = registry_db_exec(r->db, r->file, "BEGIN IMMEDIATE", e);
    if (rc) return rc;
    rc = find_add_target(r, add, scan->path, &id, name, e);
    bool is_new = id == 0;
    if (!rc) rc = write_row(r, &id, scan, sha, e);
    if (!rc && is_new) rc = write_name(r, id, name, e);
    for (size_t i = 0; !rc && i < add->n_aliases; i++)
        rc = write_name(r, id, add->aliases[i], e);
    if (!rc) rc = load_model(r, id, out, e);
    if (!rc && (rc = registry_db_exec(r->db, r->file, "COMMIT", e))) registry_model_fini(out);
    if (rc) rollback_changes(r);
    return rc;
}

int registry_check_model(const char *path, err *e) {
    struct registry_scan scan;
    int rc = registry_scan_header(path, &scan, e);
    if (!rc) free(scan.path);
    return rc;
}

int registry_add(registry *r, const struct registry_add *add, struct registry_model *out, err *e) {
    struct registry_scan scan;
    char name[REGISTRY_NAME_BYTES], sha[65];
    int64_t id;
    memset(out, 0, sizeof *out);
    int rc = add->name ? registry_check_name(add->name, e) : 0;
    if (!rc && add->n_aliases > ALIASES_MAX)
        rc = err_set_param(e, ERR_INVALID, "alias", "at most %d aliases", ALIASES_MAX);
    for (size_t i = 0; !rc && i < add->n_aliases; i++)
        rc = registry_check_name(add->aliases[i], e);
    if (!rc) rc = registry_scan_header(add->path, &scan, e);
    if (rc) return rc;
    /* Checked before the long read for a quick answer, and again inside the write transaction. */
    rc = registry_db_exec(r->db, r->file, "BEGIN", e);
    if (!rc) rc = find_add_target(r, add, scan.path, &id, name, e);
    rollback_changes(r);
    if (!rc)
        rc = registry_scan_sha256(scan.path, &scan.stat, add->progress, add->progress_arg, sha, e);
    if (!rc) rc = write_model(r, add, &scan, sha, out, e);
    free(scan.path);
    return rc;
}

int registry_list(registry *r, struct registry_model **models, size_t *n, err *e) {
    sqlite3_stmt *st = NULL;
    struct registry_model *list = NULL;
    size_t count = 0, capacity = 0;
    int step = SQLITE_DONE, rc = registry_db_exec(r->db, r->file, "BEGIN", e);
    *models = NULL;
    *n = 0;
    if (rc) return rc;
    rc = prepare_sql(r, "SELECT model_id FROM names WHERE position = 0 ORDER BY name", &st, e);
    while (!rc && (step = sqlite3_step(st)) == SQLITE_ROW) {
        if (count == capacity) {
            capacity = capacity ? capacity * 2 : 8;
            struct registry_model *more = mem_resize(list, capacity, sizeof *list);
            if (!more) {
                rc = err_no_memory(e);
                break;
            }
            list = more;
        }
        rc = load_model(r, sqlite3_column_int64(st, 0), &list[count], e);
        if (!rc) count++;
    }
    if (!rc && step != SQLITE_DONE) rc = err_db(r, "read", e);
    sqlite3_finalize(st);
    rollback_changes(r); /* ends the snapshot; nothing was written */
    if (rc) {
        registry_models_free(list, count);
        return rc;
    }
    *models = list;
    *n = count;
    return 0;
}

static int err_unknown(registry *r, const char *name, err *e) {
    struct registry_model *models;
    size_t n;
    str names;
    int rc = registry_list(r, &models, &n, e);
    if (rc) return rc;
    str_init(&names, 200); /* a longer list is cut after a whole name */
    for (size_t i = 0; i < n; i++)
        str_addf(&names, "%s%s", i ? ", " : "", models[i].name);
    if (n == 0)
        rc = err_set_param(e, ERR_NOT_FOUND, "model",
                           "no model is named %.96s: none is registered yet, add one with "
                           "`inferd models add PATH`",
                           name);
    else
        rc = err_set_param(e, ERR_NOT_FOUND, "model", "no model is named %.96s; registered: %s%s",
                           name, str_cstr(&names), names.failed ? ", ..." : "");
    str_fini(&names);
    registry_models_free(models, n);
    return rc;
}

int registry_find(registry *r, const char *name, struct registry_model *out, err *e) {
    int64_t id;
    memset(out, 0, sizeof *out);
    int rc = registry_db_exec(r->db, r->file, "BEGIN", e);
    if (rc) return rc;
    rc = name_holder(r, name, &id, NULL, e);
    if (!rc && id) rc = load_model(r, id, out, e);
    rollback_changes(r);
    if (!rc && !id) rc = err_unknown(r, name, e);
    return rc;
}

static int exec_with_id(registry *r, const char *sql, int64_t id, int64_t value, err *e) {
    sqlite3_stmt *st;
    int rc = prepare_sql(r, sql, &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, id);
    if (sqlite3_bind_parameter_count(st) > 1) sqlite3_bind_int64(st, 2, value);
    if (sqlite3_step(st) != SQLITE_DONE) rc = err_db(r, "write", e);
    sqlite3_finalize(st);
    return rc;
}

int registry_remove(registry *r, const char *name, err *e) {
    int64_t id;
    int rc = registry_db_exec(r->db, r->file, "BEGIN IMMEDIATE", e);
    if (rc) return rc;
    rc = name_holder(r, name, &id, NULL, e);
    if (!rc && id) rc = exec_with_id(r, "DELETE FROM models WHERE id = ?1", id, 0, e);
    if (!rc) rc = registry_db_exec(r->db, r->file, "COMMIT", e);
    if (rc) rollback_changes(r);
    if (!rc && !id) rc = err_unknown(r, name, e);
    return rc;
}

int registry_remove_name(registry *r, const char *name, err *e) {
    int64_t id;
    int position;
    sqlite3_stmt *st;
    int rc = name_holder(r, name, &id, &position, e);
    if (rc || !id || position == 0) return rc ? rc : registry_remove(r, name, e);
    rc = prepare_sql(r, "DELETE FROM names WHERE name = ?1 AND position > 0", &st, e);
    if (rc) return rc;
    sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    if (sqlite3_step(st) != SQLITE_DONE) rc = err_db(r, "write", e);
    sqlite3_finalize(st);
    return rc;
}

static int write_alias(registry *r, int64_t id, const char *alias, const char *preset, err *e) {
    struct registry_model m;
    int64_t holder;
    int position, rc = name_holder(r, alias, &holder, &position, e);
    if (!rc && holder && holder != id) return err_taken(r, alias, holder, e);
    if (!rc && holder && position == 0)
        return preset ? err_set_param(e, ERR_INVALID, "alias",
                                      "%s is the model itself: give its preset another name", alias)
                      : 0;
    if (!rc) rc = load_model(r, id, &m, e);
    if (rc) return rc;
    size_t n = m.n_aliases;
    registry_model_fini(&m);
    if (n >= ALIASES_MAX && holder != id)
        return err_set_param(e, ERR_INVALID, "alias",
                             "a model has at most %d other names: delete one of them first",
                             ALIASES_MAX);
    rc = write_name(r, id, alias, e);
    return rc ? rc : registry_write_preset(r, alias, preset, e);
}

int registry_add_alias(registry *r, const char *name, const char *alias, const char *preset,
                       err *e) {
    int64_t id;
    int rc = registry_check_name(alias, e);
    if (!rc && preset) rc = registry_check_preset(alias, preset, e);
    if (!rc) rc = registry_db_exec(r->db, r->file, "BEGIN IMMEDIATE", e);
    if (rc) return rc;
    rc = name_holder(r, name, &id, NULL, e);
    if (!rc && id) rc = write_alias(r, id, alias, preset, e);
    if (!rc) rc = registry_db_exec(r->db, r->file, "COMMIT", e);
    if (rc) rollback_changes(r);
    if (!rc && !id) rc = err_unknown(r, name, e);
    return rc;
}

/* Checks that the files exist and have the registered size. */
static int check_size(const struct registry_model *m, struct registry_stat *now, err *e) {
    struct registry_files files;
    int rc = registry_files_list(m->path, &files, e);
    if (rc == ERR_IO) err_prefix(e, "a file of model %s is missing: ", m->name);
    if (rc == ERR_IO || rc == ERR_NOMEM) return rc;
    if (rc || strcmp(files.format, m->format) != 0) {
        if (!rc) registry_files_fini(&files);
        return err_set_param(e, ERR_CHANGED, "model",
                             "%s is a different model than the one that was added: add it again",
                             m->path);
    }
    *now = files.stat;
    registry_files_fini(&files);
    if (now->size_bytes != m->size_bytes)
        return err_set_param(
            e, ERR_CHANGED, "model",
            "%s changed since it was added (it has %llu bytes, had %llu): add it again", m->path,
            (unsigned long long)now->size_bytes, (unsigned long long)m->size_bytes);
    return 0;
}

int registry_resolve(registry *r, const char *name, struct registry_model *out, err *e) {
    struct registry_stat now;
    int rc = registry_find(r, name, out, e);
    if (rc) return rc;
    rc = check_size(out, &now, e);
    if (!rc && now.mtime_ns != out->mtime_ns)
        rc = err_set_param(e, ERR_CHANGED, "model",
                           "%s was written to since it was added: `inferd models verify` tells "
                           "whether it changed; if so, add it again",
                           out->path);
    if (rc) registry_model_fini(out);
    return rc;
}

int registry_touch_loaded(registry *r, int64_t id, err *e) {
    return exec_with_id(r, "UPDATE models SET last_loaded_s = ?2 WHERE id = ?1", id, clock_wall_s(),
                        e);
}

int registry_verify(registry *r, const struct registry_model *m,
                    void (*progress)(void *arg, uint64_t done, uint64_t total), void *progress_arg,
                    err *e) {
    struct registry_stat now;
    char sha[65];
    int rc = check_size(m, &now, e);
    if (!rc) rc = registry_scan_sha256(m->path, &now, progress, progress_arg, sha, e);
    if (rc) return rc;
    if (strcmp(sha, m->sha256) != 0)
        return err_set_param(
            e, ERR_CHANGED, "model",
            "the SHA-256 of %s changed since it was added: add it again, or restore the file",
            m->path);
    if (now.mtime_ns == m->mtime_ns) return 0;
    return exec_with_id(r, "UPDATE models SET mtime_ns = ?2 WHERE id = ?1", m->id, now.mtime_ns, e);
}
