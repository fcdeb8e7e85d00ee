/* key.h - what an API key may do, and which cached prefixes are its own, for the rooms that store
 * keys and those that check them. Pure; any thread. */
#ifndef INFERD_CORE_BASE_KEY_H
#define INFERD_CORE_BASE_KEY_H

#include "core/base/err.h"
#include "core/base/siphash.h"

#include <stdint.h>

enum key_scope {
    KEY_INFER = 1,   /* generate; what is stored of answers */
    KEY_EMBED = 2,   /* embeddings and scores */
    KEY_ADMIN = 4,   /* change the registry and which models are loaded */
    KEY_METRICS = 8, /* what the server does for everyone */
    KEY_ALL_SCOPES = 15
};

/* What a key may use; 0: no limit. The first ones are rates. */
enum key_limit {
    KEY_REQUESTS_MINUTE,
    KEY_REQUESTS_DAY,
    KEY_TOKENS_MINUTE, /* of prompts and answers together */
    KEY_TOKENS_DAY,
    KEY_N_RATES,
    KEY_SEQUENCES = KEY_N_RATES, /* that run or wait at once */
    KEY_WEIGHT,                  /* of its share where several wait; 0: 100 */
    KEY_KV_SHARE,                /* percent of a model's KV blocks for those that run */
    KEY_N_LIMITS
};
/* The largest of the others, of the weight, and of kv-share. */
#define KEY_LIMIT_MAX 1000000000000
enum { KEY_WEIGHT_MAX = 10000, KEY_KV_SHARE_MAX = 100 };
uint64_t key_limit_max(enum key_limit limit);

enum {
    KEY_PREFIX_BYTES = 12,   /* "ik_", 8 characters that name the key in logs, NUL */
    KEY_TEXT_BYTES = 65,     /* the prefix, '_', 52 characters of 256 random bits, NUL */
    KEY_MODELS_BYTES = 1024, /* a list of models, with the NUL */
    KEY_OWNER_BYTES = 32
};

/* Whose cached prefixes and stored answers are those of the registry's key with this id, when its
 * secret changes, too: a text that no key of a file can be. Of a key of a file it is its text. */
void key_owner(int64_t id, char out[KEY_OWNER_BYTES]);
/* The tenant of cached prefixes: those of an owner and a request's cache_salt (NULL: none) under
 * `secret`; zeros without both. ERR_NOMEM. */
int key_tenant(struct hash128 secret, const char *owner, const char *cache_salt,
               struct hash128 *out, err *e);

#endif
