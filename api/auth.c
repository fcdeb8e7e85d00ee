/* auth.c - who may ask: bearer keys, and the browser rules that keep other sites out. Runs on HTTP
 * threads, owns nothing, never logs a key. */
#include "api/api_int.h"

#include <string.h>
#include <strings.h>

/* Time depends on the given key's length alone, not on how much of it is right. */
static bool same_key(const char *given, size_t n, const char *key) {
    size_t m = strlen(key);
    volatile unsigned char diff = n == m ? 0 : 1;
    for (size_t i = 0; i < n; i++)
        diff =
            (unsigned char)(diff | ((unsigned char)given[i] ^ (unsigned char)key[m ? i % m : 0]));
    return diff == 0;
}

/* "Authorization: Bearer KEY", or x-api-key, which Anthropic's clients send; NULL: neither. */
static const char *given_key(const struct request *r) {
    const char *value = request_header(r, "Authorization");
    if (!value || strncasecmp(value, "Bearer ", 7) != 0) return request_header(r, "x-api-key");
    value += 7;
    while (*value == ' ')
        value++;
    return value;
}

const char *auth_key(const struct request *r) {
    return r->api->config.n_api_keys ? given_key(r) : NULL;
}

struct key_costs *request_key_costs(const struct request *r) {
    uint32_t i = r->key_number - 1;
    return &r->api->costs.keys[i < COST_KEYS ? i : COST_KEYS - 1];
}

bool auth_check_key(struct request *r) {
    const struct api_config *c = &r->api->config;
    if (!c->n_api_keys) return true;
    const char *given = given_key(r);
    bool ok = false;
    for (size_t i = 0; given && i < c->n_api_keys; i++) {
        if (!same_key(given, strlen(given), c->api_keys[i])) continue;
        ok = true;
        r->key_number = (uint32_t)i + 1;
    }
    if (ok) return true;
    reply_header(r, "WWW-Authenticate", "Bearer");
    reply_error(r, &(struct api_error){401, "invalid_request_error",
                                       given ? "invalid_api_key" : NULL, NULL,
                                       given ? "Incorrect API key provided."
                                             : "You did not provide an API key: send the header "
                                               "'Authorization: Bearer KEY'."});
    return false;
}

/* host[:port] of a Host header is a name that only this machine's own pages have. */
static bool loopback_name(const char *host) {
    size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    return (n == 9 && strncasecmp(host, "localhost", 9) == 0) ||
           (n == 5 && strncmp(host, "[::1]", 5) == 0) ||
           (strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == n);
}

/* A page of another site can make a visitor's browser post to a daemon on his own machine. Browsers
 * say where a request comes from in Origin; it has to be the host that is asked. That leaves DNS
 * rebinding (the other site's name pointed at 127.0.0.1), so a daemon without keys that listens on
 * a loopback address also wants a loopback name there. Programs send no Origin and are not
 * affected. */
bool auth_check_origin(struct request *r) {
    const char *origin = request_header(r, "Origin");
    if (!origin) return true;
    const char *host = request_header(r, "Host"), *scheme = strstr(origin, "://");
    const char *bound = r->api->config.host;
    bool local = strncmp(bound, "127.", 4) == 0 || strcmp(bound, "::1") == 0 ||
                 strcmp(bound, "localhost") == 0;
    const char *why = "Requests from pages of other sites are refused: the Origin header does not "
                      "match the Host header.";
    if (host && scheme && strcasecmp(scheme + 3, host) == 0) {
        if (!local || r->api->config.n_api_keys || loopback_name(host)) return true;
        why = "This daemon listens on this machine only and has no API keys: pages are answered "
              "under localhost or 127.0.0.1, not under another name.";
    }
    reply_error(r,
                &(struct api_error){403, "invalid_request_error", "origin_not_allowed", NULL, why});
    return false;
}
