/* limits.c - see limits.h. Owns nothing. */
#include "api/generate/limits.h"

#include "api/generate/api_state.h"
#include "api/http/auth.h"
#include "api/http/request.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Hashes the key, a byte that no key contains, and the request's own salt. Requests with neither
 * share the salt 0. */
static int make_salt(const struct request *r, const char *cache_salt, struct hash128 *out, err *e) {
    const struct api_config *c = &r->api->config;
    const char *key = c->share_prefixes ? NULL : auth_key(r);
    *out = (struct hash128){0, 0};
    if (!key && !cache_salt) return 0;
    size_t n_key = key ? strlen(key) : 0, n_salt = cache_salt ? strlen(cache_salt) : 0;
    char *text = mem_new(n_key + 1 + n_salt, 1);
    if (!text) return err_no_memory(e);
    if (key) memcpy(text, key, n_key);
    text[n_key] = '\0';
    if (cache_salt) memcpy(text + n_key + 1, cache_salt, n_salt);
    *out = siphash128(r->api->secret, text, n_key + 1 + n_salt);
    free(text);
    return 0;
}

int limits_apply(const struct request *r, const char *cache_salt, struct engine_params *p, err *e) {
    int most = r->api->config.max_priority;
    if (p->priority > most)
        return err_set_param(
            e, ERR_INVALID, "priority",
            "Invalid value for 'priority': %d, expected at most %d, this server's limit.",
            p->priority, most);
    return make_salt(r, cache_salt, &p->prefix_salt, e);
}
