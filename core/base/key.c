/* key.c - see key.h. */
#include "core/base/key.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void key_owner(int64_t id, char out[KEY_OWNER_BYTES]) {
    snprintf(out, KEY_OWNER_BYTES, "key %lld", (long long)id);
}

uint64_t key_limit_max(enum key_limit limit) {
    if (limit == KEY_WEIGHT) return KEY_WEIGHT_MAX;
    return limit == KEY_KV_SHARE ? KEY_KV_SHARE_MAX : KEY_LIMIT_MAX;
}

/* Hashes the owner, a byte that no key contains, and the salt. */
int key_tenant(struct hash128 secret, const char *owner, const char *cache_salt,
               struct hash128 *out, err *e) {
    *out = (struct hash128){0, 0};
    if (!owner && !cache_salt) return 0;
    size_t n_owner = owner ? strlen(owner) : 0, n_salt = cache_salt ? strlen(cache_salt) : 0;
    char *text = mem_new(n_owner + 1 + n_salt, 1);
    if (!text) return err_no_memory(e);
    if (owner) memcpy(text, owner, n_owner);
    text[n_owner] = '\0';
    if (cache_salt) memcpy(text + n_owner + 1, cache_salt, n_salt);
    *out = siphash128(secret, text, n_owner + 1 + n_salt);
    free(text);
    return 0;
}
