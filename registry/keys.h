/* keys.h - API keys in the registry: who may ask the daemon, for what, and until when.
 *
 * A key has a name and one secret, or several while it is rotated. A secret is the text
 * "ik_PREFIX_RANDOM": the prefix names it in logs and is not secret, the rest is 256 random bits.
 * The file has the prefix and HMAC-SHA-256(salt of the registry, text). A slow password hash would
 * add nothing: it makes guessing of texts that people choose expensive, and 256 random
 * bits cannot be guessed; but each request would pay for it. The salt keeps two registries that
 * hold the same key from showing it. A revoked key stays as a row, because accounts name it.
 *
 * THREAD SAFETY: registry_key_* as registry_*; keyring_find, keyring_in_use and keyring_prefix from
 * any thread. */
#ifndef INFERD_REGISTRY_KEYS_H
#define INFERD_REGISTRY_KEYS_H

#include "core/base/err.h"
#include "core/base/key.h"
#include "registry/registry.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KEY_NAME_BYTES = 65, KEY_LABEL_BYTES = 129, KEYS_MAX = 10000 };

struct registry_key {
    int64_t id;
    char name[KEY_NAME_BYTES];     /* unique, [A-Za-z0-9._-]{1,64} */
    char label[KEY_LABEL_BYTES];   /* the operator's note, UTF-8 without control characters */
    unsigned scopes;               /* of enum key_scope, at least one */
    char models[KEY_MODELS_BYTES]; /* the only ones it may use, "a,b"; "": all */
    int64_t created_s, expires_s;  /* expires_s 0: never */
    uint64_t limits[KEY_N_LIMITS]; /* by enum key_limit; 0: none */
    int64_t revoked_s;             /* 0: it is valid */
    char prefix[KEY_PREFIX_BYTES]; /* of its newest secret; read only */
};

/* Adds the key *k: name, label, scopes, models, limits and expires_s are given, the rest is set.
 * text: the secret, which is nowhere else. ERR_INVALID (param: the field), ERR_EXISTS. */
int registry_key_add(registry *r, struct registry_key *k, int64_t now_s, char text[KEY_TEXT_BYTES],
                     err *e);
/* Writes label, scopes, models, limits and expires_s of the key with that id. Errors as above. */
int registry_key_change(registry *r, const struct registry_key *k, err *e);
/* A new secret; the older ones end grace_s from now. ERR_INVALID: the key is revoked. */
int registry_key_rotate(registry *r, int64_t id, int64_t now_s, uint64_t grace_s,
                        char text[KEY_TEXT_BYTES], err *e);
int registry_key_revoke(registry *r, int64_t id, int64_t now_s, err *e);
/* By name or by the prefix of a secret. ERR_NOT_FOUND. */
int registry_key_find(registry *r, const char *name, struct registry_key *out, err *e);
/* In order of ids; the caller frees *keys. */
int registry_key_list(registry *r, struct registry_key **keys, size_t *n, err *e);

/* ---- the keys in a daemon ---- */

/* All keys in memory. A change of the file is seen KEYRING_FRESH_MS later at most. If the file
 * cannot be read any more, the keys stay as they were last read. */
typedef struct keyring keyring;
enum { KEYRING_FRESH_MS = 200 };

int keyring_open(const char *file, keyring **out, err *e);
void keyring_close(keyring *k); /* NULL is fine */

/* Has the registry any key, valid or not? Then every request needs one. */
bool keyring_in_use(keyring *k);

enum keyring_result { KEYRING_OK, KEYRING_UNKNOWN, KEYRING_EXPIRED, KEYRING_REVOKED };
struct keyring_found {
    int64_t id;
    uint32_t number; /* from 1, in the order in which this process first saw the keys */
    unsigned scopes;
    char prefix[KEY_PREFIX_BYTES]; /* of the secret that was used */
    uint64_t limits[KEY_N_LIMITS];
    char models[KEY_MODELS_BYTES];
};
/* Takes the same time whether a text with a known prefix is right or wrong. */
enum keyring_result keyring_find(keyring *k, const char *text, int64_t now_s,
                                 struct keyring_found *out);
/* The key with that id, whatever its secrets; prefix: its newest one. */
enum keyring_result keyring_get(keyring *k, int64_t id, int64_t now_s, struct keyring_found *out);
/* The newest prefix of the key with that number. false: there is none. */
bool keyring_prefix(keyring *k, uint32_t number, char prefix[KEY_PREFIX_BYTES]);

#endif
