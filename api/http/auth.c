/* auth.c - see auth.h. Owns nothing, never logs a key. */
#include "api/http/auth.h"

#include "api/http/error.h"
#include "api/http/http.h"
#include "api/http/request.h"
#include <string.h>
#include <strings.h>

/* Takes time by the given key's length only, not by how much of it is right. */
static bool is_same_key(const char *given, size_t n, const char *key) {
    size_t m = strlen(key);
    volatile unsigned char diff = n == m ? 0 : 1;
    for (size_t i = 0; i < n; i++)
        diff =
            (unsigned char)(diff | ((unsigned char)given[i] ^ (unsigned char)key[m ? i % m : 0]));
    return diff == 0;
}

/* "Authorization: Bearer KEY", or x-api-key, which Anthropic's clients send; NULL without either.
 */
static const char *given_key(const struct request *r) {
    const char *value = request_header(r, "Authorization");
    if (!value || strncasecmp(value, "Bearer ", 7) != 0) return request_header(r, "x-api-key");
    value += 7;
    while (*value == ' ')
        value++;
    return value;
}

const char *auth_key(const struct request *r) {
    return r->http->config.n_api_keys ? given_key(r) : NULL;
}

bool auth_check_key(struct request *r) {
    const struct http_config *c = &r->http->config;
    if (!c->n_api_keys) return true;
    const char *given = given_key(r);
    bool ok = false;
    for (size_t i = 0; given && i < c->n_api_keys; i++) {
        if (!is_same_key(given, strlen(given), c->api_keys[i])) continue;
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

/* Length of host[:port] without the port. */
static size_t name_length(const char *host) {
    size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    size_t all = strlen(host);
    return n <= all && (!host[n] || host[n] == ':') ? n : all;
}

static bool is_address(const char *host, size_t n) {
    return n && (*host == '[' ? host[n - 1] == ']' : strspn(host, "0123456789.") == n);
}

static bool is_same_name(const char *a, size_t n, const char *b, size_t m) {
    return n == m && strncasecmp(a, b, n) == 0;
}

/* Is host (without its port) in a list "name, .domain, *"? */
static bool is_listed_name(const char *list, const char *host, size_t n) {
    for (list = list ? list : ""; *list;) {
        list += strspn(list, ", ");
        size_t m = strcspn(list, ", ");
        bool all = m == 1 && *list == '*';
        bool below = m > 1 && *list == '.' && n > m && is_same_name(host + n - m, m, list, m);
        if (all || below || (m && is_same_name(host, n, list, m))) return true;
        list += m;
    }
    return false;
}

static bool listens_locally(const struct http_config *c) {
    return strncmp(c->host, "127.", 4) == 0 || strcmp(c->host, "::1") == 0 ||
           strcmp(c->host, "localhost") == 0;
}

/* DNS rebinding: a site points its own name at 127.0.0.1, so its page can call the daemon on the
 * visitor's machine as same-origin and read every answer. The Host header gives the attack away: it
 * carries the site's name. Addresses are safe, and so are names under localhost and .internal,
 * which no site can own. A daemon with keys is not affected; one that listens on other addresses
 * has names that only its operator knows. */
bool auth_check_host(struct request *r) {
    const struct http_config *c = &r->http->config;
    const char *host = request_header(r, "Host");
    bool listed = c->allowed_hosts && *c->allowed_hosts;
    if (!host || (!listed && (c->n_api_keys || !listens_locally(c)))) return true;
    size_t n = name_length(host);
    if (is_address(host, n) || is_listed_name(c->allowed_hosts, host, n) ||
        is_listed_name("localhost, .localhost, host.docker.internal", host, n))
        return true;
    reply_error(r, &(struct api_error){403, "invalid_request_error", "host_not_allowed", NULL,
                                       "This daemon does not accept the name in the Host header: "
                                       "its operator can add it to the configuration key "
                                       "allowed-hosts."});
    return false;
}

/* A page of another site can make a visitor's browser post to a daemon on the visitor's machine.
 * Browsers name the page's site in Origin; it must be the host that is asked. Programs send no
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
