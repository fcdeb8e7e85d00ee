/* origin.h - origins of web pages: parsing, the list of those that may use the API, and whether a
 * page comes from the host that it asks. Source: RFC 6454 and the Fetch standard; browsers write an
 * origin as scheme://host[:port], or null for pages that have none.
 *
 * THREAD SAFETY: plain functions; a list does not change after it was parsed. */
#ifndef INFERD_API_HTTP_ORIGIN_H
#define INFERD_API_HTTP_ORIGIN_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Borrows the text that it was parsed from. */
struct origin {
    const char *scheme, *host; /* (n_scheme), (n_host) */
    size_t n_scheme, n_host;   /* n_host may be 0, except with http and https: "file://" */
    unsigned port;             /* the scheme's own if the text has none; 0: unknown */
};

/* false: text is "null" or not an origin. */
bool origin_parse(const char *text, struct origin *out);

/* Length of the name in host[:port]; the whole length if what follows the name is not a port. */
size_t origin_name_length(const char *host);

/* Does a page of this origin come from host[:port]? scheme: how its browser reached that host,
 * "http" or "https"; NULL: not known, either. */
bool origin_is_of_host(const struct origin *origin, const char *host, const char *scheme);

/* Zeroed: no origin. */
struct origin_list {
    char *text; /* a copy, which the rules point into */
    struct origin_rule *rules;
    size_t n;
    bool any, null; /* "*" and "null" are listed */
};

/* Reads "https://a.example, app://obsidian.md": origins, separated by commas or spaces. The port
 * may be *, any or none (http://localhost:*); the host may be * (chrome-extension://) or begin with
 * "*." (names below it); "*" alone is every page, "null" pages without an origin. NULL and "" are
 * the empty list. ERR_INVALID, ERR_NOMEM: out is zeroed. */
int origins_parse(const char *text, struct origin_list *out, err *e);
void origins_fini(struct origin_list *l);

/* origin: the header as received. */
bool origins_hold(const struct origin_list *l, const char *origin);

#endif
