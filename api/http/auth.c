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

/* Bytes of host[:port] before the port. */
static size_t name_length(const char *host) {
    size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    size_t all = strlen(host);
    return n <= all && (!host[n] || host[n] == ':') ? n : all;
}

static bool is_address(const char *host, size_t n) {
    return n && (*host == '[' ? host[n - 1] == ']' : strspn(host, "0123456789.") == n);
}

static bool same_name(const char *a, size_t n, const char *b, size_t m) {
    return n == m && strncasecmp(a, b, n) == 0;
}

/* One of allowed_hosts, "name, .domain, *"; host without its port. */
static bool listed_name(const char *list, const char *host, size_t n) {
    for (list = list ? list : ""; *list;) {
        list += strspn(list, ", ");
        size_t m = strcspn(list, ", ");
        bool all = m == 1 && *list == '*';
        bool below = m > 1 && *list == '.' && n > m && same_name(host + n - m, m, list, m);
        if (all || below || (m && same_name(host, n, list, m))) return true;
        list += m;
    }
    return false;
}

static bool listens_locally(const struct api_config *c) {
    return strncmp(c->host, "127.", 4) == 0 || strcmp(c->host, "::1") == 0 ||
           strcmp(c->host, "localhost") == 0;
}

/* DNS rebinding: the name of another site is pointed at 127.0.0.1, and its page asks the daemon on
 * its visitor's machine as if it were its own, so it may read every answer. What gives it away is
 * the name: an address cannot be pointed elsewhere, and localhost and .internal are nobody's. A
 * daemon with keys is safe from it, and one that others reach has names that only its operator
 * knows. */
bool auth_check_host(struct request *r) {
    const struct api_config *c = &r->api->config;
    const char *host = request_header(r, "Host");
    bool listed = c->allowed_hosts && *c->allowed_hosts;
    if (!host || (!listed && (c->n_api_keys || !listens_locally(c)))) return true;
    size_t n = name_length(host);
    if (is_address(host, n) || listed_name(c->allowed_hosts, host, n) ||
        listed_name("localhost, .localhost, host.docker.internal", host, n))
        return true;
    reply_error(r, &(struct api_error){403, "invalid_request_error", "host_not_allowed", NULL,
                                       "This daemon does not answer under the name in the Host "
                                       "header: its operator can add it to the configuration key "
                                       "allowed-hosts."});
    return false;
}

/* A page of another site can make a visitor's browser post to a daemon on his own machine. Browsers
 * say where a request comes from in Origin; it has to be the host that is asked. Programs send no
 * Origin and are not affected. */
bool auth_check_origin(struct request *r) {
    const char *origin = request_header(r, "Origin");
    if (!origin) return true;
    const char *host = request_header(r, "Host"), *scheme = strstr(origin, "://");
    if (host && scheme && strcasecmp(scheme + 3, host) == 0) return true;
    reply_error(r, &(struct api_error){403, "invalid_request_error", "origin_not_allowed", NULL,
                                       "Requests from pages of other sites are refused: the Origin "
                                       "header does not match the Host header."});
    return false;
}
