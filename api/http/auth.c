/* auth.c - see auth.h. Owns nothing, never logs a key. */
#include "api/http/auth.h"

#include "api/http/error.h"
#include "api/http/http.h"
#include "api/http/origin.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/http/settings.h"
#include "core/base/clock.h"

#include <stdio.h>
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

/* Does every request need a key? */
static bool keys_are_needed(const struct request *r) {
    const struct http_keys *more = r->http->setup.keys;
    return r->settings->config.n_api_keys || (more && more->in_use(r->api));
}

const char *auth_key(const struct request *r) {
    if (!r->key.number) return NULL;
    return *r->key.owner ? r->key.owner : given_key(r);
}

/* A key of the configuration. Every one is compared. */
static bool find_configured(const struct request *r, const char *given, struct http_key *out) {
    const struct http_config *c = &r->settings->config;
    for (size_t i = 0; i < c->n_api_keys; i++) {
        if (!is_same_key(given, strlen(given), c->api_keys[i])) continue;
        bool admin = i >= c->n_api_keys - c->n_admin_keys;
        uint32_t slot = r->settings->slots[i], n_first = r->http->key_slots.n_first;
        /* The numbers after the first keys are those of the owner's keys. */
        out->number = slot < n_first ? slot + 1 : KEY_LATE_NUMBER + slot;
        out->id = -(int64_t)slot - 1;
        out->scopes = KEY_ALL_SCOPES & ~(admin ? 0u : (unsigned)KEY_ADMIN);
        snprintf(out->name, sizeof out->name, "%u", slot + 1);
    }
    return out->number != 0;
}

/* Random keys of the owner are always accepted. Those of the configuration may have been chosen by
 * people: who has tried too many wrong ones does not learn whether this one is right. */
static enum auth_failure find_key(struct request *r, const char *given, uint64_t now_ns) {
    struct http *h = r->http;
    const struct http_keys *more = h->setup.keys;
    enum key_result result = more ? more->find(r->api, given, &r->key) : KEY_UNKNOWN;
    if (result == KEY_OK) {
        r->key.number += h->key_slots.n_first;
        return AUTH_N_FAILURES;
    }
    memset(&r->key, 0, sizeof r->key);
    uint32_t wait_s = auth_failures_wait_s(&h->auth_failures, request_client(r), now_ns);
    if (wait_s) {
        r->retry_after_ms = wait_s * 1000;
        return AUTH_LIMITED;
    }
    if (result == KEY_EXPIRED) return AUTH_EXPIRED;
    if (result == KEY_REVOKED) return AUTH_REVOKED;
    return find_configured(r, given, &r->key) ? AUTH_N_FAILURES : AUTH_UNKNOWN;
}

static bool check_scope(struct request *r) {
    static const struct {
        int flag;
        unsigned scope;
        const char *name;
    } rows[] = {{ROUTE_INFER, KEY_INFER, "infer"},
                {ROUTE_EMBED, KEY_EMBED, "embed"},
                {ROUTE_METRICS, KEY_METRICS, "metrics"}};
    const char *missing = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!(r->route->flags & rows[i].flag)) continue;
        if (r->key.scopes & rows[i].scope) return true;
        if (!missing) missing = rows[i].name;
    }
    if (!missing) return true;
    char message[128];
    snprintf(message, sizeof message,
             "You have insufficient permissions for this operation. Missing scopes: %s.", missing);
    auth_failures_add(&r->http->auth_failures, AUTH_SCOPE, request_client(r), 0);
    reply_error(r,
                &(struct api_error){403, "invalid_request_error", "missing_scope", NULL, message});
    return false;
}

bool auth_check_key(struct request *r) {
    static const struct {
        unsigned status;
        const char *type, *code, *message;
    } replies[AUTH_N_FAILURES] = {
        [AUTH_MISSING] = {401, "invalid_request_error", NULL,
                          "You did not provide an API key: send the header "
                          "'Authorization: Bearer KEY'."},
        [AUTH_UNKNOWN] = {401, "invalid_request_error", "invalid_api_key",
                          "Incorrect API key provided."},
        [AUTH_EXPIRED] = {401, "invalid_request_error", "expired_api_key",
                          "The API key has expired: ask the daemon's operator for another one."},
        [AUTH_REVOKED] = {401, "invalid_request_error", "revoked_api_key",
                          "The API key is revoked: ask the daemon's operator for another one."},
        [AUTH_LIMITED] = {429, "requests", "rate_limit_exceeded",
                          "Too many wrong API keys came from your address: try again later."},
    };
    if (!keys_are_needed(r)) return true;
    const char *given = given_key(r);
    uint64_t now_ns = clock_now_ns();
    enum auth_failure why = given ? find_key(r, given, now_ns) : AUTH_MISSING;
    if (why == AUTH_N_FAILURES) return check_scope(r);
    auth_failures_add(&r->http->auth_failures, why, request_client(r), now_ns);
    if (replies[why].status == 401) reply_header(r, "WWW-Authenticate", "Bearer");
    reply_error(r, &(struct api_error){replies[why].status, replies[why].type, replies[why].code,
                                       NULL, replies[why].message});
    return false;
}

bool auth_may_use(const struct request *r, const char *model) {
    size_t n = strlen(model);
    for (const char *at = r->key.models; *at;) {
        size_t m = strcspn(at, ",");
        if (m == n && memcmp(at, model, n) == 0) return true;
        at += m + (at[m] == ',');
    }
    return !*r->key.models;
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

static bool is_own_page(const struct request *r) {
    const char *header = request_header(r, "Origin"), *host = request_host(r);
    struct origin origin;
    return !header || (host && origin_parse(header, &origin) &&
                       origin_is_of_host(&origin, host, r->forwarded.scheme));
}

bool auth_is_admin(const struct request *r) {
    if (r->key.number || keys_are_needed(r)) return r->key.scopes & KEY_ADMIN;
    return http_is_local(r->http) && is_own_page(r) && !request_header(r, "X-Forwarded-For") &&
           !request_header(r, "Forwarded");
}

bool auth_check_admin(struct request *r) {
    r->is_admin = auth_is_admin(r);
    if (r->is_admin) return true;
    auth_failures_add(&r->http->auth_failures, AUTH_SCOPE, request_client(r), 0);
    reply_error(r, &(struct api_error){403, "invalid_request_error", "admin_key_required", NULL,
                                       r->key.number
                                           ? "This needs an administrator's key: the daemon's "
                                             "operator can set the configuration key "
                                             "admin-key-file, or add one with the scope admin."
                                           : "Without keys only programs on the daemon's machine "
                                             "may do this: its operator can set the configuration "
                                             "key admin-key-file."});
    return false;
}

static bool is_accepted_host(const struct http_config *c, const char *host) {
    size_t n = origin_name_length(host);
    return is_address(host, n) || is_listed_name(c->allowed_hosts, host, n) ||
           is_listed_name("localhost, .localhost, host.docker.internal", host, n);
}

/* DNS rebinding: a site points its own name at 127.0.0.1, so its page can call the daemon on the
 * visitor's machine as same-origin and read every answer. The Host header gives the attack away: it
 * carries the site's name. Addresses are safe, and so are names under localhost and .internal,
 * which no site can own. A daemon with keys is not affected; one that listens on other addresses
 * has names that only its operator knows.
 *
 * A page can set X-Forwarded-Host, and its browser may run at a trusted proxy's address, but it
 * cannot set Host: so both are checked. */
bool auth_check_host(struct request *r) {
    const struct http_config *c = &r->settings->config;
    const char *host = request_header(r, "Host"), *forwarded = request_host(r);
    bool listed = c->allowed_hosts && *c->allowed_hosts;
    if (!listed && (!http_is_local(r->http) || keys_are_needed(r))) return true;
    if ((!host || is_accepted_host(c, host)) && (!forwarded || is_accepted_host(c, forwarded)))
        return true;
    reply_error(r, &(struct api_error){403, "invalid_request_error", "host_not_allowed", NULL,
                                       r->forwarded.has_host
                                           ? "This daemon does not accept the name in the Host or "
                                             "X-Forwarded-Host header: its operator can add it to "
                                             "the configuration key allowed-hosts."
                                           : "This daemon does not accept the name in the Host "
                                             "header: its operator can add it to the configuration "
                                             "key allowed-hosts."});
    return false;
}

/* A page of another site can make a visitor's browser post to a daemon on the visitor's machine.
 * Browsers name the page's site in Origin; it must be the host that is asked, or be listed.
 * Programs send no Origin and are not affected. */
bool auth_check_origin(struct request *r) {
    const char *header = request_header(r, "Origin");
    if (is_own_page(r) || origins_hold(&r->settings->origins, header)) return true;
    reply_error(r, &(struct api_error){403, "invalid_request_error", "origin_not_allowed", NULL,
                                       "Requests from pages of other sites are refused: the Origin "
                                       "header does not match the Host header. The daemon's "
                                       "operator can add the origin to the configuration key "
                                       "allowed-origins, or a reverse proxy to trusted-proxies."});
    return false;
}
