/* origin.c - see origin.h. Owns the parsed list; runs on HTTP threads, and on the main thread for
 * the list. */
#include "api/http/origin.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char SEPARATORS[] = ", \t";

struct origin_rule {
    struct origin origin;
    bool any_host, below, any_port; /* below: origin.host begins with '.' */
};

static bool is_alnum(char c) {
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

static size_t span_of(const char *text, size_t n, const char *others) {
    size_t i = 0;
    while (i < n && (is_alnum(text[i]) || (text[i] && strchr(others, text[i]))))
        i++;
    return i;
}

static bool same_text(const char *a, size_t n, const char *b, size_t m) {
    return n == m && strncasecmp(a, b, n) == 0;
}

static unsigned default_port(const char *scheme, size_t n) {
    if (same_text(scheme, n, "http", 4)) return 80;
    return same_text(scheme, n, "https", 5) ? 443 : 0;
}

/* A port of 1 to 5 digits, 1 to 65535; 0: not a port. */
static unsigned read_port(const char *text, size_t n) {
    unsigned port = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 5 || text[i] < '0' || text[i] > '9') return 0;
        port = port * 10 + (unsigned)(text[i] - '0');
    }
    return port <= 65535 ? port : 0;
}

/* Length of the name or bracketed address at the start of text (n). */
static size_t host_length(const char *text, size_t n) {
    if (!n || *text != '[') return span_of(text, n, "-._~");
    size_t i = 1 + span_of(text + 1, n - 1, ":.");
    return i > 1 && i < n && text[i] == ']' ? i + 1 : 0;
}

/* Splits "SCHEME://REST"; false: there is no scheme. */
static bool split_scheme(const char *text, size_t n, struct origin *out, const char **rest) {
    size_t scheme = span_of(text, n, "+-.");
    if (!scheme || (*text >= '0' && *text <= '9') || !is_alnum(*text)) return false;
    if (n - scheme < 3 || memcmp(text + scheme, "://", 3) != 0) return false;
    *out = (struct origin){.scheme = text, .n_scheme = scheme, .port = default_port(text, scheme)};
    *rest = text + scheme + 3;
    return true;
}

/* Reads host[:port] into out, which has the scheme. */
static bool read_authority(const char *text, size_t n, struct origin *out) {
    out->host = text;
    out->n_host = host_length(text, n);
    if (!out->n_host && (n || out->port)) return false;
    if (out->n_host == n) return true;
    size_t at = out->n_host + 1;
    unsigned port = text[at - 1] == ':' ? read_port(text + at, n - at) : 0;
    if (port) out->port = port;
    return port != 0;
}

static bool parse_origin(const char *text, size_t n, struct origin *out) {
    const char *rest;
    return split_scheme(text, n, out, &rest) &&
           read_authority(rest, n - (size_t)(rest - text), out);
}

bool origin_parse(const char *text, struct origin *out) {
    return parse_origin(text, strlen(text), out);
}

/* ---- the page's own host ---- */

size_t origin_name_length(const char *host) {
    size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    size_t all = strlen(host);
    return n <= all && (!host[n] || host[n] == ':') ? n : all;
}

bool origin_is_of_host(const struct origin *origin, const char *host, const char *scheme) {
    size_t n = origin_name_length(host);
    unsigned own = default_port(origin->scheme, origin->n_scheme);
    unsigned port = host[n] ? read_port(host + n + 1, strlen(host + n + 1)) : own;
    if (!own || (scheme && !same_text(origin->scheme, origin->n_scheme, scheme, strlen(scheme))))
        return false;
    return port == origin->port && same_text(host, n, origin->host, origin->n_host);
}

/* ---- the list ---- */

static int err_rule(const char *text, size_t n, err *e) {
    return err_set_param(e, ERR_INVALID, "allowed_origins",
                         "\"%.*s\" is not an origin: expected scheme://host or scheme://host:port "
                         "without a path (https://chat.example.com, http://localhost:*, "
                         "https://*.example.com, chrome-extension://*), * or null",
                         n > 64 ? 64 : (int)n, text);
}

/* text (n): one entry other than * and null. */
static bool parse_rule(const char *text, size_t n, struct origin_rule *rule) {
    const char *rest;
    *rule = (struct origin_rule){0};
    if (!split_scheme(text, n, &rule->origin, &rest)) return false;
    size_t m = n - (size_t)(rest - text);
    if (m >= 2 && memcmp(rest + m - 2, ":*", 2) == 0) {
        rule->any_port = true;
        m -= 2;
    }
    rule->any_host = m && *rest == '*' && (m == 1 || rest[1] == ':');
    rule->below = m > 2 && *rest == '*' && rest[1] == '.' && is_alnum(rest[2]);
    if (rule->any_host && m == 1) return true;
    size_t skip = rule->any_host || rule->below;
    if (!rule->any_host) return read_authority(rest + skip, m - skip, &rule->origin) && m;
    rule->origin.port = read_port(rest + 2, m - 2);
    return rule->origin.port != 0;
}

int origins_parse(const char *text, struct origin_list *out, err *e) {
    *out = (struct origin_list){0};
    size_t room = 1;
    for (const char *s = text ? text : ""; *s; s++)
        room += strchr(SEPARATORS, *s) != NULL;
    out->text = mem_strdup(text ? text : "");
    out->rules = mem_new(room, sizeof *out->rules);
    int rc = out->text && out->rules ? 0 : err_no_memory(e);
    for (char *s = out->text; !rc && *(s += strspn(s, SEPARATORS));) {
        size_t n = strcspn(s, SEPARATORS);
        if (n == 1 && *s == '*')
            out->any = true;
        else if (same_text(s, n, "null", 4))
            out->null = true;
        else if (same_text(s, n, "file://", 7))
            parse_origin(s, n, &out->rules[out->n++].origin);
        else if (!parse_rule(s, n, &out->rules[out->n++]))
            rc = err_rule(s, n, e);
        s += n;
    }
    if (rc) origins_fini(out);
    return rc;
}

void origins_fini(struct origin_list *l) {
    free(l->text);
    free(l->rules);
    *l = (struct origin_list){0};
}

static bool rule_matches(const struct origin_rule *rule, const struct origin *o) {
    const struct origin *want = &rule->origin;
    if (!same_text(o->scheme, o->n_scheme, want->scheme, want->n_scheme)) return false;
    if (!rule->any_port && o->port != want->port) return false;
    if (rule->any_host) return true;
    if (!rule->below) return same_text(o->host, o->n_host, want->host, want->n_host);
    return o->n_host > want->n_host &&
           same_text(o->host + o->n_host - want->n_host, want->n_host, want->host, want->n_host);
}

bool origins_hold(const struct origin_list *l, const char *origin) {
    struct origin o;
    if (l->any || strcmp(origin, "null") == 0) return l->any || l->null;
    if (!origin_parse(origin, &o)) return false;
    for (size_t i = 0; i < l->n; i++)
        if (rule_matches(&l->rules[i], &o)) return true;
    return false;
}
