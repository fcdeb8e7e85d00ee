/* keyring.c - the API keys of a daemon: a copy of the registry's, which is read again when the file
 * has changed. Owns one connection. Any thread: the table has a lock that is never held while the
 * file is read; one thread at a time reads the file, and the others wait for it. */
#include "registry/registry_int.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { WARN_EVERY_S = 60 };

struct secret {
    char prefix[KEY_PREFIX_BYTES];
    uint8_t hash[SHA256_DIGEST_SIZE];
    int64_t expires_s; /* 0: never */
    size_t key;        /* of table.keys */
};

struct table {
    struct registry_key *keys; /* (n_keys) in order of ids */
    size_t n_keys;
    struct secret *secrets; /* (n_secrets) in order of prefixes */
    size_t n_secrets;
    uint8_t salt[REGISTRY_SALT_BYTES];
};

struct keyring {
    pthread_mutex_t mu; /* guards the next three */
    struct table table;
    int64_t *seen; /* (n_seen) ids in order of their numbers, and ascending, because ids are */
    size_t n_seen;
    pthread_mutex_t reading; /* its holder alone uses the rest */
    sqlite3 *db;
    char *file;
    int64_t generation;
    uint64_t warned_ns; /* 0: never */
    atomic_uint_least64_t looked_ns;
};

static void table_fini(struct table *t) {
    free(t->keys);
    free(t->secrets);
    *t = (struct table){0};
}

/* ---- reading ---- */

static int read_state(keyring *k, int64_t *generation, uint8_t salt[REGISTRY_SALT_BYTES], err *e) {
    sqlite3_stmt *st;
    int rc = registry_db_prepare(k->db, k->file, "SELECT generation, salt FROM key_state", &st, e);
    if (rc) return rc;
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_bytes(st, 1) == REGISTRY_SALT_BYTES) {
        *generation = sqlite3_column_int64(st, 0);
        memcpy(salt, sqlite3_column_blob(st, 1), REGISTRY_SALT_BYTES);
    } else {
        rc = registry_db_error(k->db, k->file, "read", e);
    }
    sqlite3_finalize(st);
    return rc;
}

/* Calls add for each row of sql. */
static int read_rows(keyring *k, const char *sql, struct table *t,
                     int (*add)(struct table *t, sqlite3_stmt *st), err *e) {
    sqlite3_stmt *st;
    int step = SQLITE_DONE;
    int rc = registry_db_prepare(k->db, k->file, sql, &st, e);
    while (!rc && (step = sqlite3_step(st)) == SQLITE_ROW)
        if (add(t, st)) rc = err_no_memory(e);
    if (!rc && step != SQLITE_DONE) rc = registry_db_error(k->db, k->file, "read", e);
    sqlite3_finalize(st);
    return rc;
}

static int add_key(struct table *t, sqlite3_stmt *st) {
    struct registry_key *more = mem_resize(t->keys, t->n_keys + 1, sizeof *more);
    if (!more) return ERR_NOMEM;
    t->keys = more;
    registry_key_read(st, &more[t->n_keys++]);
    return 0;
}

static size_t key_index(const struct table *t, int64_t id) {
    size_t low = 0, high = t->n_keys;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (t->keys[mid].id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static int add_row_secret(struct table *t, sqlite3_stmt *st) {
    const char *prefix = (const char *)sqlite3_column_text(st, 0);
    size_t key = key_index(t, sqlite3_column_int64(st, 1));
    if (!prefix || strlen(prefix) != KEY_PREFIX_BYTES - 1 || key == t->n_keys ||
        sqlite3_column_bytes(st, 2) != SHA256_DIGEST_SIZE)
        return 0;
    struct secret *more = mem_resize(t->secrets, t->n_secrets + 1, sizeof *more);
    if (!more) return ERR_NOMEM;
    t->secrets = more;
    struct secret *s = &more[t->n_secrets++];
    *s = (struct secret){.key = key, .expires_s = sqlite3_column_int64(st, 3)};
    memcpy(s->prefix, prefix, KEY_PREFIX_BYTES);
    memcpy(s->hash, sqlite3_column_blob(st, 2), SHA256_DIGEST_SIZE);
    return 0;
}

/* Numbers for keys that were not seen before. */
static int number_keys(keyring *k, const struct table *t, err *e) {
    for (size_t i = 0; i < t->n_keys; i++) {
        if (k->n_seen && t->keys[i].id <= k->seen[k->n_seen - 1]) continue;
        int64_t *more = mem_resize(k->seen, k->n_seen + 1, sizeof *more);
        if (!more) return err_no_memory(e);
        k->seen = more;
        k->seen[k->n_seen++] = t->keys[i].id;
    }
    return 0;
}

/* Reads all keys, if there was a change. In one transaction, so that keys and secrets agree. */
static int read_keys(keyring *k, bool first, err *e) {
    int64_t generation = 0;
    struct table t = {0};
    int rc = registry_db_exec(k->db, k->file, "BEGIN", e);
    if (!rc) rc = read_state(k, &generation, t.salt, e);
    bool changed = !rc && (first || generation != k->generation);
    if (changed)
        rc = read_rows(k, "SELECT " KEY_COLUMNS " FROM keys k ORDER BY k.id", &t, add_key, e);
    if (changed && !rc)
        rc = read_rows(k, "SELECT prefix, key, hash, expires_s FROM key_secrets ORDER BY prefix",
                       &t, add_row_secret, e);
    sqlite3_exec(k->db, "COMMIT", NULL, NULL, NULL);
    if (changed && !rc) {
        pthread_mutex_lock(&k->mu);
        rc = number_keys(k, &t, e);
        if (!rc) {
            struct table old = k->table;
            k->table = t;
            t = old;
            k->generation = generation;
        }
        pthread_mutex_unlock(&k->mu);
    }
    table_fini(&t);
    return rc;
}

int keyring_open(const char *file, keyring **out, err *e) {
    *out = NULL;
    keyring *k = mem_new(1, sizeof *k);
    if (!k) return err_no_memory(e);
    pthread_mutex_init(&k->mu, NULL);
    pthread_mutex_init(&k->reading, NULL);
    k->file = mem_strdup(file);
    int rc = k->file ? registry_db_open(file, REGISTRY_BUSY_MS, &k->db, e) : err_no_memory(e);
    if (!rc) rc = read_keys(k, true, e);
    if (!rc) sqlite3_busy_timeout(k->db, 0); /* requests wait: better the keys as they are */
    atomic_store(&k->looked_ns, clock_now_ns());
    if (rc)
        keyring_close(k);
    else
        *out = k;
    return rc;
}

void keyring_close(keyring *k) {
    if (!k) return;
    table_fini(&k->table);
    free(k->seen);
    sqlite3_close(k->db);
    free(k->file);
    pthread_mutex_destroy(&k->reading);
    pthread_mutex_destroy(&k->mu);
    free(k);
}

static bool is_fresh(keyring *k, uint64_t now_ns) {
    return atomic_load(&k->looked_ns) + KEYRING_FRESH_MS * UINT64_C(1000000) > now_ns;
}

/* Looks for changes, unless that was done a moment ago. While one thread looks, the others wait: a
 * key that was revoked long before must not pass beside the first request after an idle hour. */
static void refresh(keyring *k) {
    uint64_t now = clock_now_ns();
    err e = {0};
    if (is_fresh(k, now)) return;
    pthread_mutex_lock(&k->reading);
    if (!is_fresh(k, now)) {
        if (read_keys(k, false, &e) &&
            (!k->warned_ns || now - k->warned_ns > WARN_EVERY_S * UINT64_C(1000000000))) {
            log_warn("changes of API keys are not seen: %s", e.msg);
            k->warned_ns = now;
        }
        atomic_store(&k->looked_ns, now);
    }
    pthread_mutex_unlock(&k->reading);
}

/* ---- finding ---- */

static int compare_prefix(const void *prefix, const void *secret) {
    return memcmp(prefix, ((const struct secret *)secret)->prefix, KEY_PREFIX_BYTES - 1);
}

static uint32_t number_of(const keyring *k, int64_t id) {
    size_t low = 0, high = k->n_seen;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (k->seen[mid] < id)
            low = mid + 1;
        else
            high = mid;
    }
    return (uint32_t)low + 1;
}

bool keyring_in_use(keyring *k) {
    refresh(k);
    pthread_mutex_lock(&k->mu);
    bool in_use = k->table.n_keys > 0;
    pthread_mutex_unlock(&k->mu);
    return in_use;
}

static bool has_ended(int64_t end_s, int64_t now_s) {
    return end_s && now_s >= end_s;
}

/* With k->mu. */
static enum keyring_result take_key(const keyring *k, const struct registry_key *key, int64_t now_s,
                                    struct keyring_found *out) {
    if (key->revoked_s) return KEYRING_REVOKED;
    if (has_ended(key->expires_s, now_s)) return KEYRING_EXPIRED;
    *out = (struct keyring_found){
        .id = key->id, .number = number_of(k, key->id), .scopes = key->scopes};
    memcpy(out->prefix, key->prefix, sizeof out->prefix);
    memcpy(out->models, key->models, sizeof out->models);
    memcpy(out->limits, key->limits, sizeof out->limits);
    return KEYRING_OK;
}

/* With k->mu. */
static enum keyring_result find_secret(const keyring *k, const char *text, int64_t now_s,
                                       struct keyring_found *out) {
    const struct table *t = &k->table;
    uint8_t hash[SHA256_DIGEST_SIZE];
    if (strlen(text) != KEY_TEXT_BYTES - 1 || !t->n_secrets) return KEYRING_UNKNOWN;
    const struct secret *s =
        bsearch(text, t->secrets, t->n_secrets, sizeof *t->secrets, compare_prefix);
    if (!s) return KEYRING_UNKNOWN;
    registry_hmac(t->salt, text, hash);
    if (!registry_hmac_is(hash, s->hash)) return KEYRING_UNKNOWN;
    const struct registry_key *key = &t->keys[s->key];
    enum keyring_result result = take_key(k, key, now_s, out);
    if (result == KEYRING_OK && has_ended(s->expires_s, now_s)) return KEYRING_EXPIRED;
    memcpy(out->prefix, s->prefix, sizeof out->prefix);
    return result;
}

enum keyring_result keyring_get(keyring *k, int64_t id, int64_t now_s, struct keyring_found *out) {
    refresh(k);
    pthread_mutex_lock(&k->mu);
    size_t i = key_index(&k->table, id);
    bool known = i < k->table.n_keys && k->table.keys[i].id == id;
    enum keyring_result result =
        known ? take_key(k, &k->table.keys[i], now_s, out) : KEYRING_UNKNOWN;
    pthread_mutex_unlock(&k->mu);
    return result;
}

enum keyring_result keyring_find(keyring *k, const char *text, int64_t now_s,
                                 struct keyring_found *out) {
    refresh(k);
    pthread_mutex_lock(&k->mu);
    enum keyring_result result = find_secret(k, text, now_s, out);
    pthread_mutex_unlock(&k->mu);
    return result;
}

bool keyring_prefix(keyring *k, uint32_t number, char prefix[KEY_PREFIX_BYTES]) {
    pthread_mutex_lock(&k->mu);
    bool has = number && number <= k->n_seen;
    size_t i = has ? key_index(&k->table, k->seen[number - 1]) : 0;
    has = has && i < k->table.n_keys && k->table.keys[i].id == k->seen[number - 1];
    if (has) memcpy(prefix, k->table.keys[i].prefix, KEY_PREFIX_BYTES);
    pthread_mutex_unlock(&k->mu);
    return has;
}
