/* forwarded.h - what a trusted proxy says about the client behind it: X-Forwarded-For, -Host and
 * -Proto. The caller decides whether the sender is trusted.
 *
 * Each proxy appends to the list, so only its right end was not written by the client. The client
 * is the rightmost address that is not a trusted proxy itself; host and scheme are the last ones
 * given. RFC 7239's Forwarded is not read: a proxy that writes the other headers passes a client's
 * Forwarded on unchanged.
 *
 * THREAD SAFETY: plain functions over the caller's struct. */
#ifndef INFERD_API_HTTP_FORWARDED_H
#define INFERD_API_HTTP_FORWARDED_H

#include "api/http/address.h"

enum { FORWARDED_HOST_BYTES = 256 };

/* Zeroed at first. */
struct forwarded {
    struct address client; /* family 0: none is named */
    bool has_host;
    char host[FORWARDED_HOST_BYTES]; /* "": has_host, but it is not a name and port */
    const char *scheme;              /* "http", "https"; NULL: neither is named */
};

/* One header of the request; headers are passed in the order received, the others are ignored. */
void forwarded_header(struct forwarded *f, const struct networks *trusted, const char *name,
                      const char *value);

#endif
