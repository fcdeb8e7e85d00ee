/* keys.c - the rows of API keys: the only writer of their tables. Runs on the thread that owns the
 * handle; each change is one transaction, which also counts the generation that daemons watch
 * (keyring.c). A secret leaves this file once, to whoever made it. */
#include "registry/registry_int.h"

#include "core/base/mem.h"
#include "core/text/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { PREFIX_RANDOM_BYTES = 5, SECRET_BYTES = 32, PREFIX_TRIES = 8 };

static int err_db(registry *r, const char *what, err *e) {
    return registry_db_error(r->db, r->file, what, e);
}

static int prepare_sql(registry *r, const char *sql, sqlite3_stmt **st, err *e) {
    return registry_db_prepare(r->db, r->file, sql, st, e);
}

/* Runs a statement that returns no rows and finalizes it. */
static int finish_sql(registry *r, sqlite3_stmt *st, err *e) {
    int rc = sqlite3_step(st) == SQLITE_DONE ? 0 : err_db(r, "write", e);
    sqlite3_finalize(st);
    return rc;
}

static int begin_change(registry *r, err *e) {
    return registry_db_exec(r->db, r->file, "BEGIN IMMEDIATE", e);
}

static int end_change(registry *r, int rc, err *e) {
    if (!rc)
        rc = registry_db_exec(r->db, r->file,
                              "UPDATE key_state SET generation = generation + 1; COMMIT", e);
    if (rc) sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static void bind_text(sqlite3_stmt *st, int at, const char *text) {
    sqlite3_bind_text64(st, at, text, strlen(text), SQLITE_STATIC, SQLITE_UTF8);
}

/* ---- what a key may be ---- */

static int check_name(const char *name, err *e) {
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strlen(name);
    if (n && n < KEY_NAME_BYTES && strspn(name, allowed) == n) return 0;
    return err_set_param(e, ERR_INVALID, "name",
                         "a key's name has 1 to %d characters, letters, digits, '.', '_' and '-'",
                         KEY_NAME_BYTES - 1);
}

static int check_label(const char *label, err *e) {
    size_t n = strlen(label);
    bool ok = n < KEY_LABEL_BYTES && utf8_valid(label, n);
    for (size_t i = 0; ok && i < n; i++)
        ok = (unsigned char)label[i] >= ' ' && label[i] != 0x7f;
    if (ok) return 0;
    return err_set_param(e, ERR_INVALID, "label",
                         "a key's label has at most %d bytes of UTF-8 without control characters",
                         KEY_LABEL_BYTES - 1);
}

static int check_models(const char *models, err *e) {
    char name[REGISTRY_NAME_BYTES];
    for (const char *at = models; *at;) {
        size_t n = strcspn(at, ",");
        if (n >= sizeof name)
            return err_set_param(e, ERR_INVALID, "models", "models: %.*s is too long for a name",
                                 REGISTRY_NAME_BYTES, at);
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        int rc = registry_check_name(name, e);
        if (rc) return err_set_param(e, rc, "models", "models: \"%s\" is not a model's name", name);
        at += n;
        if (*at && !*++at)
            return err_set_param(e, ERR_INVALID, "models", "models: a name is missing at the end");
    }
    if (strlen(models) < KEY_MODELS_BYTES) return 0;
    return err_set_param(e, ERR_INVALID, "models", "models: the list has more than %d bytes",
                         KEY_MODELS_BYTES - 1);
}

static int check_key(const struct registry_key *k, err *e) {
    int rc = check_name(k->name, e);
    if (!rc) rc = check_label(k->label, e);
    if (!rc) rc = check_models(k->models, e);
    if (!rc && (!k->scopes || k->scopes & ~(unsigned)KEY_ALL_SCOPES))
        rc = err_set_param(e, ERR_INVALID, "scopes", "a key needs at least one scope");
    for (int i = 0; !rc && i < KEY_N_LIMITS; i++)
        if (k->limits[i] > key_limit_max((enum key_limit)i))
            rc = err_set_param(e, ERR_INVALID, "limits",
                               "a limit of a key is at most %llu, its weight at most %d, its share "
                               "of the KV cache at most %d percent",
                               (unsigned long long)KEY_LIMIT_MAX, KEY_WEIGHT_MAX, KEY_KV_SHARE_MAX);
    return rc;
}

/* ---- secrets ---- */

/* RFC 4648's base32 in lower case: 8 characters for each 5 bytes, without padding. */
static void add_base32(char *out, const uint8_t *bytes, size_t n) {
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz234567";
    unsigned bits = 0, value = 0;
    for (size_t i = 0; i < n; i++) {
        value = (value << 8 | bytes[i]) & 0xfff;
        for (bits += 8; bits >= 5; bits -= 5)
            *out++ = digits[value >> (bits - 5) & 31];
    }
    if (bits) *out++ = digits[value << (5 - bits) & 31];
    *out = '\0';
}

static int make_text(char text[KEY_TEXT_BYTES], err *e) {
    uint8_t random[PREFIX_RANDOM_BYTES + SECRET_BYTES];
    if (getentropy(random, sizeof random))
        return err_set(e, ERR_IO, "the system provides no random key");
    memcpy(text, "ik_", 3);
    add_base32(text + 3, random, PREFIX_RANDOM_BYTES);
    text[KEY_PREFIX_BYTES - 1] = '_';
    add_base32(text + KEY_PREFIX_BYTES, random + PREFIX_RANDOM_BYTES, SECRET_BYTES);
    return 0;
}

static int read_salt(registry *r, uint8_t salt[REGISTRY_SALT_BYTES], err *e) {
    sqlite3_stmt *st;
    int rc = prepare_sql(r, "SELECT salt FROM key_state", &st, e);
    if (rc) return rc;
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_bytes(st, 0) == REGISTRY_SALT_BYTES)
        memcpy(salt, sqlite3_column_blob(st, 0), REGISTRY_SALT_BYTES);
    else
        rc = err_db(r, "read", e);
    sqlite3_finalize(st);
    return rc;
}

static bool has_prefix(registry *r, const char *prefix) {
    sqlite3_stmt *st;
    if (prepare_sql(r, "SELECT 1 FROM key_secrets WHERE prefix = ?1", &st, NULL)) return false;
    bind_text(st, 1, prefix);
    bool has = sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    return has;
}

/* Inside a transaction. */
static int add_secret(registry *r, int64_t id, int64_t now_s, char text[KEY_TEXT_BYTES], err *e) {
    uint8_t salt[REGISTRY_SALT_BYTES], hash[SHA256_DIGEST_SIZE];
    char prefix[KEY_PREFIX_BYTES] = "";
    sqlite3_stmt *st;
    int rc = read_salt(r, salt, e);
    for (int i = 0; !rc && i < PREFIX_TRIES && (!*prefix || has_prefix(r, prefix)); i++) {
        rc = make_text(text, e);
        snprintf(prefix, sizeof prefix, "%.*s", KEY_PREFIX_BYTES - 1, text);
    }
    if (!rc)
        rc = prepare_sql(r,
                         "INSERT INTO key_secrets (prefix, key, hash, created_s, expires_s)"
                         " VALUES (?1, ?2, ?3, ?4, 0)",
                         &st, e);
    if (rc) return rc;
    registry_hmac(salt, text, hash);
    bind_text(st, 1, prefix);
    sqlite3_bind_int64(st, 2, id);
    sqlite3_bind_blob(st, 3, hash, sizeof hash, SQLITE_STATIC);
    sqlite3_bind_int64(st, 4, now_s);
    return finish_sql(r, st, e);
}

/* ---- rows ---- */

static void copy_column(sqlite3_stmt *st, int at, char *out, size_t n) {
    const char *text = (const char *)sqlite3_column_text(st, at);
    snprintf(out, n, "%s", text ? text : "");
}

void registry_key_read(sqlite3_stmt *st, struct registry_key *out) {
    memset(out, 0, sizeof *out);
    out->id = sqlite3_column_int64(st, 0);
    copy_column(st, 1, out->name, sizeof out->name);
    copy_column(st, 2, out->label, sizeof out->label);
    out->scopes = (unsigned)sqlite3_column_int64(st, 3) & KEY_ALL_SCOPES;
    copy_column(st, 4, out->models, sizeof out->models);
    out->created_s = sqlite3_column_int64(st, 5);
    out->expires_s = sqlite3_column_int64(st, 6);
    out->revoked_s = sqlite3_column_int64(st, 7);
    copy_column(st, 8, out->prefix, sizeof out->prefix);
    for (int i = 0; i < KEY_N_LIMITS; i++)
        out->limits[i] = (uint64_t)sqlite3_column_int64(st, 9 + i);
}

static int64_t count_keys(registry *r) {
    sqlite3_stmt *st;
    int64_t n = KEYS_MAX;
    if (prepare_sql(r, "SELECT count(*) FROM keys", &st, NULL)) return n;
    if (sqlite3_step(st) == SQLITE_ROW) n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
}

static void bind_settings(sqlite3_stmt *st, const struct registry_key *k) {
    bind_text(st, 2, k->label);
    sqlite3_bind_int64(st, 3, k->scopes);
    bind_text(st, 4, k->models);
    sqlite3_bind_int64(st, 5, k->expires_s);
    for (int i = 0; i < KEY_N_LIMITS; i++)
        sqlite3_bind_int64(st, 6 + i, (int64_t)k->limits[i]);
}

/* Inside a transaction. */
static int insert_key(registry *r, const struct registry_key *k, int64_t now_s, err *e) {
    sqlite3_stmt *st;
    if (count_keys(r) >= KEYS_MAX)
        return err_set(e, ERR_FULL, "the registry has %d keys, as many as it may", KEYS_MAX);
    int rc =
        prepare_sql(r,
                    "INSERT INTO keys (name, label, scopes, models, expires_s, requests_minute,"
                    " requests_day, tokens_minute, tokens_day, sequences, weight, kv_share,"
                    " created_s)"
                    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
                    &st, e);
    if (rc) return rc;
    bind_text(st, 1, k->name);
    bind_settings(st, k);
    sqlite3_bind_int64(st, 13, now_s);
    int step = sqlite3_step(st);
    if (step == SQLITE_CONSTRAINT_UNIQUE)
        rc = err_set_param(e, ERR_EXISTS, "name",
                           "a key named %s exists: rotate it, or choose another name", k->name);
    else if (step != SQLITE_DONE)
        rc = err_db(r, "write", e);
    sqlite3_finalize(st);
    return rc;
}

int registry_key_add(registry *r, struct registry_key *k, int64_t now_s, char text[KEY_TEXT_BYTES],
                     err *e) {
    int rc = check_key(k, e);
    if (!rc) rc = begin_change(r, e);
    if (rc) return rc;
    rc = insert_key(r, k, now_s, e);
    k->id = sqlite3_last_insert_rowid(r->db);
    if (!rc) rc = add_secret(r, k->id, now_s, text, e);
    rc = end_change(r, rc, e);
    if (rc) return rc;
    registry_hide(r->file);
    k->created_s = now_s;
    k->revoked_s = 0;
    snprintf(k->prefix, sizeof k->prefix, "%.*s", KEY_PREFIX_BYTES - 1, text);
    return 0;
}

int registry_key_change(registry *r, const struct registry_key *k, err *e) {
    sqlite3_stmt *st;
    int rc = check_key(k, e);
    if (!rc) rc = begin_change(r, e);
    if (rc) return rc;
    rc = prepare_sql(r,
                     "UPDATE keys SET label = ?2, scopes = ?3, models = ?4, expires_s = ?5,"
                     " requests_minute = ?6, requests_day = ?7, tokens_minute = ?8,"
                     " tokens_day = ?9, sequences = ?10, weight = ?11, kv_share = ?12"
                     " WHERE id = ?1",
                     &st, e);
    if (!rc) {
        sqlite3_bind_int64(st, 1, k->id);
        bind_settings(st, k);
        rc = finish_sql(r, st, e);
    }
    return end_change(r, rc, e);
}

/* Inside a transaction: the secrets of the key end at until_s, unless they end before. */
static int end_secrets(registry *r, int64_t id, int64_t until_s, err *e) {
    sqlite3_stmt *st;
    int rc = prepare_sql(r,
                         "UPDATE key_secrets SET expires_s = ?2"
                         " WHERE key = ?1 AND (expires_s = 0 OR expires_s > ?2)",
                         &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, id);
    sqlite3_bind_int64(st, 2, until_s);
    return finish_sql(r, st, e);
}

/* Inside a transaction. */
static int check_valid(registry *r, int64_t id, err *e) {
    sqlite3_stmt *st;
    int rc = prepare_sql(r, "SELECT name FROM keys WHERE id = ?1 AND revoked_s > 0", &st, e);
    if (rc) return rc;
    sqlite3_bind_int64(st, 1, id);
    if (sqlite3_step(st) == SQLITE_ROW)
        rc = err_set_param(e, ERR_INVALID, "name", "the key %s is revoked: add another one",
                           (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return rc;
}

int registry_key_rotate(registry *r, int64_t id, int64_t now_s, uint64_t grace_s,
                        char text[KEY_TEXT_BYTES], err *e) {
    int rc = begin_change(r, e);
    if (rc) return rc;
    rc = check_valid(r, id, e);
    if (!rc) rc = end_secrets(r, id, now_s + (int64_t)grace_s, e);
    if (!rc) rc = add_secret(r, id, now_s, text, e);
    return end_change(r, rc, e);
}

int registry_key_revoke(registry *r, int64_t id, int64_t now_s, err *e) {
    sqlite3_stmt *st;
    int rc = begin_change(r, e);
    if (rc) return rc;
    rc = prepare_sql(r, "UPDATE keys SET revoked_s = ?2 WHERE id = ?1 AND revoked_s = 0", &st, e);
    if (!rc) {
        sqlite3_bind_int64(st, 1, id);
        sqlite3_bind_int64(st, 2, now_s);
        rc = finish_sql(r, st, e);
    }
    return end_change(r, rc, e);
}

int registry_key_find(registry *r, const char *name, struct registry_key *out, err *e) {
    sqlite3_stmt *st;
    int rc = prepare_sql(r,
                         "SELECT " KEY_COLUMNS " FROM keys k WHERE k.name = ?1"
                         " OR k.id = (SELECT key FROM key_secrets WHERE prefix = ?1)",
                         &st, e);
    if (rc) return rc;
    bind_text(st, 1, name);
    int step = sqlite3_step(st);
    if (step == SQLITE_ROW)
        registry_key_read(st, out);
    else
        rc = step == SQLITE_DONE
                 ? err_set_param(e, ERR_NOT_FOUND, "name",
                                 "no key is named %.64s: `inferd keys list` shows them", name)
                 : err_db(r, "read", e);
    sqlite3_finalize(st);
    return rc;
}

int registry_key_list(registry *r, struct registry_key **keys, size_t *n, err *e) {
    sqlite3_stmt *st;
    int step = SQLITE_DONE;
    *keys = NULL;
    *n = 0;
    int rc = prepare_sql(r, "SELECT " KEY_COLUMNS " FROM keys k ORDER BY k.id", &st, e);
    while (!rc && (step = sqlite3_step(st)) == SQLITE_ROW) {
        struct registry_key *more = mem_resize(*keys, *n + 1, sizeof *more);
        if (!more) {
            rc = err_no_memory(e);
            break;
        }
        *keys = more;
        registry_key_read(st, &more[(*n)++]);
    }
    if (!rc && step != SQLITE_DONE) rc = err_db(r, "read", e);
    sqlite3_finalize(st);
    if (rc) {
        free(*keys);
        *keys = NULL;
        *n = 0;
    }
    return rc;
}
