/* limits.c - see limits.h. Owns nothing; runs on HTTP threads. */
#include "api/generate/limits.h"

#include "core/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Milliseconds, digits alone; one that is beyond all bounds is as good as none. */
static bool read_ms(const char *text, uint64_t *ms) {
    if (!*text || strspn(text, "0123456789") != strlen(text)) return false;
    errno = 0;
    *ms = strtoull(text, NULL, 10);
    if (errno || *ms > UINT64_MAX / 1000000) *ms = UINT64_MAX / 1000000;
    return *ms > 0;
}

bool limits_read_deadline(struct request *r) {
    uint64_t most_ns = r->api->config.request_timeout_s * UINT64_C(1000000000), ms;
    const char *given = request_header(r, LIMITS_TIMEOUT_HEADER);
    if (given && !read_ms(given, &ms)) {
        reply_error(r,
                    &(struct api_error){400, "invalid_request_error", NULL, LIMITS_TIMEOUT_HEADER,
                                        "The header " LIMITS_TIMEOUT_HEADER
                                        " must be a number of milliseconds, 1 or more."});
        return false;
    }
    if (given && (!most_ns || ms * 1000000 < most_ns)) most_ns = ms * 1000000;
    if (most_ns) r->deadline_ns = most_ns < UINT64_MAX - r->start_ns ? r->start_ns + most_ns : 0;
    return true;
}

/* A hash of the key, a byte that no key has, and the request's own salt. Requests without any of
 * that share the salt of zeros. */
static int find_salt(const struct request *r, const char *cache_salt, struct hash128 *out, err *e) {
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
        return err_set_param(e, ERR_INVALID, "priority",
                             "Invalid value for 'priority': %d is more than this server allows "
                             "(max-priority = %d).",
                             p->priority, most);
    return find_salt(r, cache_salt, &p->prefix_salt, e);
}
