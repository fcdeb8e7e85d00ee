/* forwarded.c - see forwarded.h. Owns nothing; runs on HTTP threads. */
#include "api/http/forwarded.h"

#include "api/http/framing.h"

#include <string.h>
#include <strings.h>

static const char BLANKS[] = " \t";

/* The next element of a list "a, b" without surrounding blanks; moves *at past it, to NULL at the
 * end. */
static const char *next_element(const char **at, size_t *n) {
    const char *from = *at + strspn(*at, BLANKS);
    size_t all = strcspn(from, ",");
    *at = from[all] ? from + all + 1 : NULL;
    while (all && strchr(BLANKS, from[all - 1]))
        all--;
    *n = all;
    return from;
}

/* Is what follows an address a port, or nothing? */
static bool is_port_or_end(const char *text, size_t n) {
    size_t digits = n ? strspn(text + 1, "0123456789") : 0;
    return !n || (*text == ':' && digits >= 1 && digits <= 5 && digits == n - 1);
}

/* "192.0.2.1", "192.0.2.1:80", "2001:db8::1", "[2001:db8::1]:80". */
static bool read_address(const char *text, size_t n, struct address *out) {
    const char *end, *first = memchr(text, ':', n);
    if (n && *text == '[') {
        end = memchr(text, ']', n);
        if (!end) return false;
        size_t m = (size_t)(end - text);
        return is_port_or_end(end + 1, n - m - 1) && address_parse(text + 1, m - 1, out) &&
               memchr(text, ':', m);
    }
    end = first && !memchr(first + 1, ':', n - (size_t)(first + 1 - text)) ? first : text + n;
    size_t m = (size_t)(end - text);
    return is_port_or_end(end, n - m) && address_parse(text, m, out);
}

/* Elements to the left of one that is not an address were not written by a trusted proxy. */
static void read_client(struct forwarded *f, const struct networks *trusted, const char *text,
                        size_t n) {
    struct address a;
    if (!n) return;
    if (!read_address(text, n, &a))
        f->client.family = 0;
    else if (!f->client.family || !networks_hold(trusted, &a))
        f->client = a;
}

static void read_host(struct forwarded *f, const char *text, size_t n) {
    if (!n) return;
    bool ok = n < sizeof f->host && framing_is_host(text, n);
    f->has_host = true;
    memcpy(f->host, text, ok ? n : 0);
    f->host[ok ? n : 0] = '\0';
}

static void read_scheme(struct forwarded *f, const char *text, size_t n) {
    if (!n) return;
    f->scheme = NULL;
    if (n == 4 && strncasecmp(text, "http", n) == 0) f->scheme = "http";
    if (n == 5 && strncasecmp(text, "https", n) == 0) f->scheme = "https";
}

void forwarded_header(struct forwarded *f, const struct networks *trusted, const char *name,
                      const char *value) {
    if (strncasecmp(name, "X-Forwarded-", strlen("X-Forwarded-")) != 0) return;
    name += strlen("X-Forwarded-");
    for (const char *at = value; at;) {
        size_t n;
        const char *text = next_element(&at, &n);
        if (strcasecmp(name, "For") == 0)
            read_client(f, trusted, text, n);
        else if (strcasecmp(name, "Host") == 0)
            read_host(f, text, n);
        else if (strcasecmp(name, "Proto") == 0)
            read_scheme(f, text, n);
    }
}
