/* address.c - see address.h. Owns the parsed list. */
#include "api/http/address.h"

#include "core/base/mem.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const char SEPARATORS[] = ", \t";

enum { MAPPED_BYTES = 12 }; /* of ::ffff:0:0/96 */

static struct address from_v4(const void *bytes) {
    struct address a = {.family = 4};
    memcpy(a.bytes, bytes, 4);
    return a;
}

static struct address from_v6(const struct in6_addr *in) {
    struct address a = {.family = 6};
    if (IN6_IS_ADDR_V4MAPPED(in)) return from_v4(in->s6_addr + MAPPED_BYTES);
    memcpy(a.bytes, in->s6_addr, 16);
    return a;
}

struct address address_of(const struct sockaddr *from) {
    if (from && from->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, from, sizeof in);
        return from_v4(&in.sin_addr);
    }
    if (from && from->sa_family == AF_INET6) {
        struct sockaddr_in6 in;
        memcpy(&in, from, sizeof in);
        return from_v6(&in.sin6_addr);
    }
    return (struct address){.family = from && from->sa_family == AF_UNIX ? ADDRESS_UNIX : 0};
}

struct client_network address_network(const struct address *a) {
    struct client_network n = {{a->family}};
    if (a->family == ADDRESS_UNIX) n.bytes[0] = 0;
    memcpy(n.bytes + 1, a->bytes, a->family == 4 ? 4 : 8);
    return n;
}

uint64_t address_network_hash(const struct client_network *n, uint64_t seed) {
    uint64_t h = seed;
    for (size_t i = 0; i < sizeof n->bytes; i++)
        h = (h ^ n->bytes[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

bool address_parse(const char *text, size_t n, struct address *out) {
    char copy[ADDRESS_TEXT_BYTES];
    struct in6_addr v6;
    struct in_addr v4;
    if (n >= sizeof copy || memchr(text, '\0', n)) return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    if (inet_pton(AF_INET, copy, &v4) == 1)
        *out = from_v4(&v4);
    else if (inet_pton(AF_INET6, copy, &v6) == 1)
        *out = from_v6(&v6);
    else
        return false;
    return true;
}

const char *address_text(const struct address *a, char out[ADDRESS_TEXT_BYTES]) {
    if (a->family == ADDRESS_UNIX)
        memcpy(out, "unix", sizeof "unix");
    else if (!a->family ||
             !inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->bytes, out, ADDRESS_TEXT_BYTES))
        memcpy(out, "unknown", sizeof "unknown");
    return out;
}

/* ---- networks ---- */

/* text (n): an address, or one with "/BITS". A range of mapped addresses is one of IPv4. */
static bool parse_network(const char *text, size_t n, struct network *out) {
    const char *slash = memchr(text, '/', n);
    size_t n_address = slash ? (size_t)(slash - text) : n, n_bits = n - n_address;
    if (n == 4 && memcmp(text, "unix", 4) == 0) {
        *out = (struct network){.address = {.family = ADDRESS_UNIX}};
        return true;
    }
    bool written_as_v6 = memchr(text, ':', n_address) != NULL;
    if (!address_parse(text, n_address, &out->address)) return false;
    unsigned most = written_as_v6 ? 128 : 32;
    out->bits = most;
    if (slash) {
        out->bits = 0;
        for (size_t i = 1; i < n_bits; i++) {
            if (slash[i] < '0' || slash[i] > '9' || i > 3) return false;
            out->bits = out->bits * 10 + (unsigned)(slash[i] - '0');
        }
        if (n_bits < 2 || out->bits > most) return false;
    }
    if (written_as_v6 && out->address.family == 4) {
        if (out->bits < MAPPED_BYTES * 8) return false;
        out->bits -= MAPPED_BYTES * 8;
    }
    return true;
}

int networks_parse(const char *text, struct networks *out, err *e) {
    size_t room = 1;
    *out = (struct networks){0};
    if (!text) text = "";
    for (const char *s = text; *s; s++)
        room += strchr(SEPARATORS, *s) != NULL;
    out->all = mem_new(room, sizeof *out->all);
    if (!out->all) return err_no_memory(e);
    for (const char *s = text; *(s += strspn(s, SEPARATORS));) {
        size_t n = strcspn(s, SEPARATORS);
        if (!parse_network(s, n, &out->all[out->n++])) {
            networks_fini(out);
            return err_set_param(e, ERR_INVALID, "trusted_proxies",
                                 "\"%.*s\" is neither an IP address (127.0.0.1, ::1) nor a range "
                                 "(10.0.0.0/8, fd00::/8) nor unix",
                                 n > 64 ? 64 : (int)n, s);
        }
        s += n;
    }
    return 0;
}

void networks_fini(struct networks *l) {
    free(l->all);
    *l = (struct networks){0};
}

static bool is_in(const struct address *a, const struct network *net) {
    if (a->family != net->address.family) return false;
    size_t whole = net->bits / 8;
    unsigned mask = 0xff00U >> (net->bits % 8) & 0xff;
    if (memcmp(a->bytes, net->address.bytes, whole) != 0) return false;
    return !mask || ((a->bytes[whole] ^ net->address.bytes[whole]) & mask) == 0;
}

bool networks_hold(const struct networks *l, const struct address *a) {
    for (size_t i = 0; a->family && i < l->n; i++)
        if (is_in(a, &l->all[i])) return true;
    return false;
}
