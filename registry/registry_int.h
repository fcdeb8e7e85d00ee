/* registry_int.h - shared by the files of registry/. Private. */
#ifndef INFERD_REGISTRY_INT_H
#define INFERD_REGISTRY_INT_H

#include "registry/keys.h"
#include "registry/registry.h"

#include <nettle/sha1.h>
#include <nettle/sha2.h>
#include <sqlite3.h>

/* "INFD": distinguishes an inferd registry from other SQLite files. */
enum { REGISTRY_APPLICATION_ID = 0x494e4644, REGISTRY_BUSY_MS = 5000 };

struct registry {
    sqlite3 *db;
    char *file;
};

/* Sets e from SQLite's last error on db; the text names file and what was tried. */
int registry_db_error(sqlite3 *db, const char *file, const char *what, err *e);

/* Runs statements that return no rows. */
int registry_db_exec(sqlite3 *db, const char *file, const char *sql, err *e);
/* *st: the caller's to finalize; NULL on failure. */
int registry_db_prepare(sqlite3 *db, const char *file, const char *sql, sqlite3_stmt **st, err *e);

/* The name under which the rows of an API key are stored: its SHA-256 as hexadecimal digits, "" for
 * NULL. */
enum { REGISTRY_OWNER_BYTES = 65 };
void registry_owner_of(const char *key, char owner[REGISTRY_OWNER_BYTES]);

/* ---- presets.c ---- */

/* ERR_INVALID: longer than REGISTRY_PRESET_BYTES. */
int registry_check_preset(const char *name, const char *preset, err *e);
/* Sets (NULL: removes) the preset of a name; inside the transaction that wrote the name. */
int registry_write_preset(registry *r, const char *name, const char *preset, err *e);

/* ---- registry.c, schema.c ---- */

/* Opens or creates the file and its folders, migrates its schema, and then waits up to busy_ms for
 * other processes' locks. A file that this user may only read is opened read-only: writes fail with
 * ERR_IO. One thread at a time. Close with sqlite3_close. */
int registry_db_open(const char *file, int busy_ms, sqlite3 **out, err *e);

/* Checks that this is a registry, turns on WAL and migrates the schema to this build's version.
 * ERR_UNSUPPORTED: written by a newer inferd. ERR_FORMAT: not a registry. */
int registry_schema_migrate(sqlite3 *db, const char *file, err *e);
/* The same for a read-only file, which must have this build's version. */
int registry_schema_check(sqlite3 *db, const char *file, err *e);

/* Creates the folders above file with mode (and umask). ERR_IO names the one that failed. */
int registry_make_folders(const char *file, unsigned mode, err *e);

/* Incremental hash. */
struct registry_hash {
    bool is_git;
    struct sha256_ctx sha256;
    struct sha1_ctx sha1;
};
void registry_hash_init(struct registry_hash *h); /* SHA-256 */
/* SHA-1 as git names a blob of that size. */
void registry_hash_init_git(struct registry_hash *h, uint64_t size_bytes);
void registry_hash_add(struct registry_hash *h, const void *bytes, size_t n);
void registry_hash_hex(struct registry_hash *h, char hex[65]); /* 64 or 40 digits + NUL */

/* HMAC-SHA-256 of text. */
enum { REGISTRY_SALT_BYTES = 32 };
void registry_hmac(const uint8_t salt[REGISTRY_SALT_BYTES], const char *text,
                   uint8_t out[SHA256_DIGEST_SIZE]);
/* In constant time. */
bool registry_hmac_is(const uint8_t a[SHA256_DIGEST_SIZE], const uint8_t b[SHA256_DIGEST_SIZE]);

/* Takes the rights of other users from the file and those that SQLite keeps beside it. */
void registry_hide(const char *file);

/* ---- keys.c ---- */

/* Reads the row of a key: the columns of KEY_COLUMNS. */
#define KEY_COLUMNS                                                                                \
    "k.id, k.name, k.label, k.scopes, k.models, k.created_s, k.expires_s, k.revoked_s,"            \
    " coalesce((SELECT s.prefix FROM key_secrets s WHERE s.key = k.id"                             \
    "  ORDER BY s.expires_s = 0 DESC, s.created_s DESC LIMIT 1), ''),"                             \
    " k.requests_minute, k.requests_day, k.tokens_minute, k.tokens_day, k.sequences, k.weight,"    \
    " k.kv_share"
void registry_key_read(sqlite3_stmt *st, struct registry_key *out);

/* ---- files.c ---- */

/* True if a file of this name, without folders, belongs to a Hugging Face model. */
bool registry_folder_has(const char *name);
/* Is it a file of a module of sentence-transformers, "1_Pooling/config.json"? Downloaded with the
 * model, and not among its listed files. */
bool registry_module_has(const char *name);
bool registry_is_safetensors(const char *name); /* weights */

/* Identity of a file without reading it. Of several files: the sum of their sizes, and a hash of
 * their names, sizes and times. */
struct registry_stat {
    uint64_t size_bytes;
    int64_t mtime_ns;
};
struct stat;
int registry_file_stat(const char *path, const struct stat *st, struct registry_stat *out, err *e);

/* The files of a model, by name. Strings are owned: registry_files_fini. */
struct registry_file {
    char *path;
    struct registry_stat stat;
};
struct registry_files {
    struct registry_file *files; /* (n) at least one */
    size_t n;
    struct registry_stat stat; /* of all */
    const char *format;        /* "gguf" or "safetensors"; static */
};
/* path: a GGUF, the first part of a split one, or a Hugging Face folder. ERR_IO (a file is
 * missing), ERR_INVALID (the folder is not a model). */
int registry_files_list(const char *path, struct registry_files *out, err *e);
void registry_files_fini(struct registry_files *f);
const char *registry_file_name(const struct registry_file *f); /* without folders */

/* Facts of a model. The caller frees path. */
struct registry_scan {
    char *path; /* absolute */
    struct registry_stat stat;
    const char *format; /* static */
    char architecture[32], quantization[16];
    uint64_t n_params, context_length;
};

/* Reads headers only. ERR_UNSUPPORTED names what this build lacks to serve the model. */
int registry_scan_header(const char *path, struct registry_scan *out, err *e);

/* Reads all files of a model. Result of one file: its SHA-256; of several: the SHA-256 of a line
 * "NAME SIZE SHA256" for each, in order of names. ERR_CHANGED if it does not match want. hex: 64
 * digits + NUL. */
int registry_scan_sha256(const char *path, const struct registry_stat *want,
                         void (*progress)(void *arg, uint64_t done, uint64_t total),
                         void *progress_arg, char hex[65], err *e);

#endif
