/* address.h - addresses of clients and proxies, and lists of networks.
 *
 * THREAD SAFETY: plain functions; a list does not change after it was parsed. */
#ifndef INFERD_API_HTTP_ADDRESS_H
#define INFERD_API_HTTP_ADDRESS_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sockaddr;

enum { ADDRESS_TEXT_BYTES = 48, ADDRESS_UNIX = 1 };

/* IPv4-mapped IPv6 addresses are held as IPv4. */
struct address {
    uint8_t family; /* 4, 6; ADDRESS_UNIX: a socket file's client; 0: unknown */
    uint8_t bytes[16];
};

/* What counts as one client: an IPv4 address, the first 64 bits of an IPv6 address (a household or
 * a machine usually has a whole /64), or nothing. */
struct client_network {
    uint8_t bytes[9]; /* the first byte: 4, 6 or 0 */
};
struct client_network address_network(const struct address *a);
/* For tables: FNV-1a from a secret seed, so that clients cannot choose networks of one place. */
uint64_t address_network_hash(const struct client_network *n, uint64_t seed);

/* The address of a socket's peer; from may be NULL. */
struct address address_of(const struct sockaddr *from);
/* text (n): "192.0.2.1", "2001:db8::1"; no port, no brackets, no zone. */
bool address_parse(const char *text, size_t n, struct address *out);
/* Returns out; an unknown address is "unknown". */
const char *address_text(const struct address *a, char out[ADDRESS_TEXT_BYTES]);

/* Zeroed: no network. */
struct networks {
    struct network {
        struct address address;
        unsigned bits;
    } * all;
    size_t n;
};

/* Reads "10.0.0.0/8, ::1, unix": addresses, CIDR ranges and clients of socket files, separated by
 * commas or spaces. NULL and "" are the empty list. ERR_INVALID, ERR_NOMEM: out is zeroed. */
int networks_parse(const char *text, struct networks *out, err *e);
void networks_fini(struct networks *l);
/* false for an unknown address. */
bool networks_hold(const struct networks *l, const struct address *a);

#endif
