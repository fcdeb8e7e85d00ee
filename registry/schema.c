/* schema.c - the registry's tables and the migration of older files.
 *
 * PRAGMA user_version counts the migrations of a file. Each migration runs in its own write
 * transaction, which reads the version again, so two processes that open an old file together
 * migrate it once. A file with a higher version belongs to a newer inferd and is not changed. */
#include "registry/registry_int.h"

#include <stdio.h>
#include <time.h>

/* Never edit an entry once released: a change of the schema is a new entry at the end. */
static const char *const migrations[] = {
    /* 1: models; every name and alias in one table, so that they are unique together. Position 0
     * is the name, the rest are aliases in the order in which they were given. */
    "CREATE TABLE models ("
    "  id INTEGER PRIMARY KEY,"
    "  path TEXT NOT NULL,"
    "  format TEXT NOT NULL,"
    "  architecture TEXT NOT NULL,"
    "  quantization TEXT NOT NULL,"
    "  n_params INTEGER NOT NULL CHECK (n_params >= 0),"
    "  context_length INTEGER NOT NULL CHECK (context_length >= 0),"
    "  size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),"
    "  sha256 TEXT NOT NULL CHECK (length(sha256) = 64),"
    "  mtime_ns INTEGER NOT NULL,"
    "  added_s INTEGER NOT NULL,"
    "  last_loaded_s INTEGER NOT NULL DEFAULT 0"
    ") STRICT;"
    "CREATE TABLE names ("
    "  name TEXT NOT NULL PRIMARY KEY,"
    "  model_id INTEGER NOT NULL REFERENCES models (id) ON DELETE CASCADE,"
    "  position INTEGER NOT NULL CHECK (position >= 0),"
    "  UNIQUE (model_id, position)"
    ") STRICT, WITHOUT ROWID;",
    /* 2: adding a known file again looks it up by path. */
    "CREATE INDEX models_by_path ON models (path);",
    /* 3: stored responses (responses.c). Rows are removed in order of expiry; triggers keep the
     * total, because counting would read every row. */
    "CREATE TABLE responses ("
    "  n INTEGER PRIMARY KEY,"
    "  id TEXT NOT NULL UNIQUE,"
    "  owner TEXT NOT NULL,"
    "  previous_id TEXT NOT NULL,"
    "  created_s INTEGER NOT NULL,"
    "  expires_s INTEGER NOT NULL,"
    "  n_bytes INTEGER NOT NULL CHECK (n_bytes >= 0),"
    "  body TEXT NOT NULL,"
    "  input TEXT NOT NULL"
    ") STRICT;"
    "CREATE INDEX responses_by_end ON responses (expires_s, n);"
    "CREATE TABLE response_items ("
    "  id TEXT NOT NULL PRIMARY KEY,"
    "  response INTEGER NOT NULL REFERENCES responses (n) ON DELETE CASCADE"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX response_items_by_response ON response_items (response);"
    "CREATE TABLE response_total ("
    "  one INTEGER PRIMARY KEY CHECK (one = 1),"
    "  n_bytes INTEGER NOT NULL"
    ") STRICT;"
    "INSERT INTO response_total VALUES (1, 0);"
    "CREATE TRIGGER response_added AFTER INSERT ON responses BEGIN"
    "  UPDATE response_total SET n_bytes = n_bytes + new.n_bytes; END;"
    "CREATE TRIGGER response_removed AFTER DELETE ON responses BEGIN"
    "  UPDATE response_total SET n_bytes = n_bytes - old.n_bytes; END;",
    /* 4: items: those of request and response, from which a later response continues. */
    "DELETE FROM responses; ALTER TABLE responses RENAME COLUMN input TO items;",
    /* 5: bytes per owner, because the owner with most of them makes room; item ids are unique per
     * owner, because clients choose them; the overhead of a row counts, not only its texts. */
    "CREATE TABLE owned_items ("
    "  owner TEXT NOT NULL,"
    "  id TEXT NOT NULL,"
    "  response INTEGER NOT NULL REFERENCES responses (n) ON DELETE CASCADE,"
    "  PRIMARY KEY (owner, id)"
    ") STRICT, WITHOUT ROWID;"
    "INSERT INTO owned_items SELECT r.owner, i.id, i.response FROM response_items i"
    "  JOIN responses r ON r.n = i.response;"
    "DROP TABLE response_items;"
    "ALTER TABLE owned_items RENAME TO response_items;"
    "CREATE INDEX response_items_by_response ON response_items (response);"
    "CREATE INDEX responses_by_owner ON responses (owner, expires_s, n);"
    "UPDATE responses SET n_bytes = n_bytes + 1024"
    "  + 512 * (SELECT count(*) FROM response_items i WHERE i.response = responses.n);"
    "CREATE TABLE response_owners ("
    "  owner TEXT NOT NULL PRIMARY KEY,"
    "  n_bytes INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX response_owners_by_size ON response_owners (n_bytes);"
    "INSERT INTO response_owners SELECT owner, sum(n_bytes) FROM responses GROUP BY owner;"
    "UPDATE response_total SET n_bytes ="
    "  (SELECT coalesce(sum(n_bytes), 0) FROM response_owners);"
    "DROP TRIGGER response_added;"
    "CREATE TRIGGER response_added AFTER INSERT ON responses BEGIN"
    "  UPDATE response_total SET n_bytes = n_bytes + new.n_bytes;"
    "  INSERT INTO response_owners VALUES (new.owner, new.n_bytes)"
    "    ON CONFLICT (owner) DO UPDATE SET n_bytes = n_bytes + excluded.n_bytes; END;"
    "DROP TRIGGER response_removed;"
    "CREATE TRIGGER response_removed AFTER DELETE ON responses BEGIN"
    "  UPDATE response_total SET n_bytes = n_bytes - old.n_bytes;"
    "  UPDATE response_owners SET n_bytes = n_bytes - old.n_bytes WHERE owner = old.owner;"
    "  DELETE FROM response_owners WHERE owner = old.owner AND n_bytes <= 0; END;",
    /* 6: rows that change (conversations), and rows that are listed by model and metadata (stored
     * chats). */
    "CREATE TRIGGER response_resized AFTER UPDATE OF n_bytes ON responses BEGIN"
    "  UPDATE response_total SET n_bytes = n_bytes + new.n_bytes - old.n_bytes;"
    "  UPDATE response_owners SET n_bytes = n_bytes + new.n_bytes - old.n_bytes"
    "    WHERE owner = old.owner; END;"
    "CREATE TABLE response_labels ("
    "  response INTEGER PRIMARY KEY REFERENCES responses (n) ON DELETE CASCADE,"
    "  owner TEXT NOT NULL,"
    "  model TEXT NOT NULL,"
    "  metadata TEXT NOT NULL"
    ") STRICT;"
    "CREATE INDEX response_labels_by_owner ON response_labels (owner, response);",
    /* 7: what a name has beside its model (presets.c). */
    "CREATE TABLE presets ("
    "  name TEXT NOT NULL PRIMARY KEY REFERENCES names (name) ON DELETE CASCADE,"
    "  preset TEXT NOT NULL"
    ") STRICT, WITHOUT ROWID;",
    /* 8: API keys (keys.c). Ids are never used again, because accounts refer to them; generation
     * grows with each change, so that daemons need not read all keys to see that there is none. */
    "CREATE TABLE keys ("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  name TEXT NOT NULL UNIQUE,"
    "  label TEXT NOT NULL,"
    "  scopes INTEGER NOT NULL,"
    "  models TEXT NOT NULL,"
    "  created_s INTEGER NOT NULL,"
    "  expires_s INTEGER NOT NULL,"
    "  revoked_s INTEGER NOT NULL DEFAULT 0"
    ") STRICT;"
    "CREATE TABLE key_secrets ("
    "  prefix TEXT NOT NULL PRIMARY KEY,"
    "  key INTEGER NOT NULL REFERENCES keys (id) ON DELETE CASCADE,"
    "  hash BLOB NOT NULL CHECK (length(hash) = 32),"
    "  created_s INTEGER NOT NULL,"
    "  expires_s INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX key_secrets_by_key ON key_secrets (key);"
    "CREATE TABLE key_state ("
    "  one INTEGER PRIMARY KEY CHECK (one = 1),"
    "  generation INTEGER NOT NULL,"
    "  salt BLOB NOT NULL CHECK (length(salt) = 32)"
    ") STRICT;"
    "INSERT INTO key_state VALUES (1, 0, randomblob(32));",
    /* 9: what a key may use; 0: no limit. */
    "ALTER TABLE keys ADD COLUMN requests_minute INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE keys ADD COLUMN requests_day INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE keys ADD COLUMN tokens_minute INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE keys ADD COLUMN tokens_day INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE keys ADD COLUMN sequences INTEGER NOT NULL DEFAULT 0;",
    /* 10: its share where several wait; 0: the usual one. */
    "ALTER TABLE keys ADD COLUMN weight INTEGER NOT NULL DEFAULT 0;",
    /* 11: what was used (ledger.c), and the last batch of each process that writes it. */
    "CREATE TABLE usage ("
    "  hour INTEGER NOT NULL CHECK (hour % 3600 = 0),"
    "  key INTEGER NOT NULL,"
    "  model TEXT NOT NULL,"
    "  kind INTEGER NOT NULL,"
    "  requests INTEGER NOT NULL,"
    "  input_tokens INTEGER NOT NULL,"
    "  cached_tokens INTEGER NOT NULL,"
    "  output_tokens INTEGER NOT NULL,"
    "  PRIMARY KEY (hour, key, model, kind)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE usage_writers ("
    "  writer TEXT NOT NULL PRIMARY KEY,"
    "  batch INTEGER NOT NULL,"
    "  written_s INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;",
    /* 12: what administrators did (audit.c). */
    "CREATE TABLE audit ("
    "  n INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  time_s INTEGER NOT NULL,"
    "  count INTEGER NOT NULL,"
    "  who TEXT NOT NULL,"
    "  client TEXT NOT NULL,"
    "  act TEXT NOT NULL,"
    "  object TEXT NOT NULL,"
    "  result TEXT NOT NULL"
    ") STRICT;",
    /* 13: uploaded files, whose bytes are in a folder beside (batch_files.c), and batches with
     * their lines (batches.c). A line's result is here until the output files are written. */
    "CREATE TABLE files ("
    "  n INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  id TEXT NOT NULL UNIQUE,"
    "  owner TEXT NOT NULL,"
    "  purpose TEXT NOT NULL,"
    "  name TEXT NOT NULL,"
    "  n_bytes INTEGER NOT NULL CHECK (n_bytes >= 0),"
    "  created_s INTEGER NOT NULL,"
    "  expires_s INTEGER NOT NULL"
    ") STRICT;"
    "CREATE INDEX files_by_owner ON files (owner, n);"
    "CREATE TABLE batches ("
    "  n INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  id TEXT NOT NULL UNIQUE,"
    "  owner TEXT NOT NULL,"
    "  key INTEGER NOT NULL,"
    "  status INTEGER NOT NULL,"
    "  endpoint TEXT NOT NULL,"
    "  window TEXT NOT NULL,"
    "  model TEXT NOT NULL DEFAULT '',"
    "  metadata TEXT NOT NULL,"
    "  errors TEXT NOT NULL DEFAULT '',"
    "  input_file TEXT NOT NULL,"
    "  output_file TEXT NOT NULL DEFAULT '',"
    "  error_file TEXT NOT NULL DEFAULT '',"
    "  output_ttl_s INTEGER NOT NULL,"
    "  created_s INTEGER NOT NULL,"
    "  expires_s INTEGER NOT NULL,"
    "  in_progress_s INTEGER NOT NULL DEFAULT 0,"
    "  finalizing_s INTEGER NOT NULL DEFAULT 0,"
    "  completed_s INTEGER NOT NULL DEFAULT 0,"
    "  failed_s INTEGER NOT NULL DEFAULT 0,"
    "  expired_s INTEGER NOT NULL DEFAULT 0,"
    "  cancelling_s INTEGER NOT NULL DEFAULT 0,"
    "  cancelled_s INTEGER NOT NULL DEFAULT 0,"
    "  n_total INTEGER NOT NULL DEFAULT 0,"
    "  n_completed INTEGER NOT NULL DEFAULT 0,"
    "  n_failed INTEGER NOT NULL DEFAULT 0,"
    "  input_tokens INTEGER NOT NULL DEFAULT 0,"
    "  cached_tokens INTEGER NOT NULL DEFAULT 0,"
    "  output_tokens INTEGER NOT NULL DEFAULT 0,"
    "  result_bytes INTEGER NOT NULL DEFAULT 0"
    ") STRICT;"
    "CREATE INDEX batches_by_owner ON batches (owner, n);"
    "CREATE INDEX batches_by_status ON batches (status, n);"
    "CREATE TABLE batch_lines ("
    "  batch INTEGER NOT NULL REFERENCES batches (n) ON DELETE CASCADE,"
    "  line INTEGER NOT NULL,"
    "  custom_id TEXT NOT NULL,"
    "  at INTEGER NOT NULL,"
    "  n_bytes INTEGER NOT NULL,"
    "  state INTEGER NOT NULL DEFAULT 0,"
    "  result TEXT NOT NULL DEFAULT '',"
    "  UNIQUE (batch, line),"
    "  UNIQUE (batch, custom_id)"
    ") STRICT;"
    "CREATE INDEX batch_lines_to_do ON batch_lines (batch, line) WHERE state = 0;",
    /* 14: the percentage of a model's KV cache that a key's sequences may hold; 0: no limit. */
    "ALTER TABLE keys ADD COLUMN kv_share INTEGER NOT NULL DEFAULT 0;",
    /* 15: the media type that a file's client gave, without parameters; '': none. */
    "ALTER TABLE files ADD COLUMN mime TEXT NOT NULL DEFAULT '';",
};

enum { N_MIGRATIONS = sizeof migrations / sizeof migrations[0] };

static int read_int(sqlite3 *db, const char *file, const char *sql, int64_t *value, err *e) {
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(st);
    if (rc != SQLITE_ROW) {
        sqlite3_finalize(st);
        return registry_db_error(db, file, "read", e);
    }
    *value = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return 0;
}

/* Changes nothing, because the file may be another program's. Call inside a transaction, so that
 * the three values are consistent: another process may be creating the file. */
static int check_owner(sqlite3 *db, const char *file, int64_t *version, err *e) {
    int64_t id, n_tables;
    int rc = read_int(db, file, "PRAGMA application_id", &id, e);
    if (!rc) rc = read_int(db, file, "PRAGMA user_version", version, e);
    if (!rc) rc = read_int(db, file, "SELECT count(*) FROM sqlite_master", &n_tables, e);
    if (rc) return rc;
    if (id != REGISTRY_APPLICATION_ID && (id != 0 || *version != 0 || n_tables != 0))
        return err_set(e, ERR_FORMAT,
                       "registry %s is another program's database; choose another file", file);
    if (*version < 0 || *version > N_MIGRATIONS)
        return err_set(e, ERR_UNSUPPORTED,
                       "registry %s has version %lld, but this inferd knows versions up to %d: use "
                       "a newer inferd or another registry file",
                       file, (long long)*version, (int)N_MIGRATIONS);
    return 0;
}

/* The switch to WAL needs exclusive access for a moment and does not wait by itself. */
static int enable_wal(sqlite3 *db, const char *file, err *e) {
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    for (int waited_ms = 0;; waited_ms += 10) {
        int rc = sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
        if (rc == SQLITE_OK) return 0;
        if ((rc & 0xff) != SQLITE_BUSY || waited_ms >= REGISTRY_BUSY_MS)
            return registry_db_error(db, file, "open", e);
        nanosleep(&pause, NULL);
    }
}

/* Runs one migration, unless another process did it already. Advances *version. */
static int migrate_one(sqlite3 *db, const char *file, int64_t *version, err *e) {
    int rc = registry_db_exec(db, file, "BEGIN IMMEDIATE", e);
    if (rc) return rc;
    rc = check_owner(db, file, version, e);
    if (!rc && *version < N_MIGRATIONS) {
        char pragmas[96];
        snprintf(pragmas, sizeof pragmas, "PRAGMA application_id = %d; PRAGMA user_version = %d",
                 (int)REGISTRY_APPLICATION_ID, (int)*version + 1);
        rc = registry_db_exec(db, file, migrations[*version], e);
        if (!rc) rc = registry_db_exec(db, file, pragmas, e);
        if (!rc) ++*version;
    }
    if (!rc) rc = registry_db_exec(db, file, "COMMIT", e);
    if (rc) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static int read_version(sqlite3 *db, const char *file, int64_t *version, err *e) {
    int rc = registry_db_exec(db, file, "BEGIN", e);
    if (rc) return rc;
    rc = check_owner(db, file, version, e);
    if (!rc) rc = registry_db_exec(db, file, "COMMIT", e);
    if (rc) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

int registry_schema_check(sqlite3 *db, const char *file, err *e) {
    int64_t version;
    int rc = read_version(db, file, &version, e);
    if (rc || version == N_MIGRATIONS) return rc;
    return err_set(e, ERR_UNSUPPORTED,
                   "registry %s has version %lld, which is older than this inferd's %d, and cannot "
                   "be written: run `inferd models list` once as a user who may write it",
                   file, (long long)version, (int)N_MIGRATIONS);
}

int registry_schema_migrate(sqlite3 *db, const char *file, err *e) {
    int64_t version;
    int rc = read_version(db, file, &version, e);
    if (rc) return rc;
    rc = enable_wal(db, file, e);
    while (!rc && version < N_MIGRATIONS)
        rc = migrate_one(db, file, &version, e);
    return rc;
}
