/* framing.h - what a request's head must be so that no other program reads it differently (RFC
 * 9112): a proxy in front that sees another end of a header, of the head or of the body than this
 * daemon would let one client write another one's requests.
 *
 * libmicrohttpd 0.9 is lenient and has no switch for most of it, so its result is checked: it
 * parses in place and ends names, values and lines by zeros, and from where they lie it follows
 * what stood between them. What it leaves no trace of: a NUL beside a bare LF looks like CR LF. 1.0
 * is strict itself (MHD_OPTION_CLIENT_DISCIPLINE_LVL).
 *
 * THREAD SAFETY: plain functions over the caller's bytes. */
#ifndef INFERD_API_HTTP_FRAMING_H
#define INFERD_API_HTTP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>

/* A head that is being checked. Zeroed at first; status and why say what is wrong with it. */
struct framing {
    unsigned status; /* 0: nothing; 400, 414, 501 */
    const char *why; /* static text */
    const char *at;  /* where the next header must begin; NULL: not known, not checked */
    unsigned n_hosts, n_lengths, n_codings;
    bool chunked;
    const char *authority; /* (n_authority) of an absolute target: the Host must be the same */
    size_t n_authority;
};

/* Why this is no request target that is served: NULL, or a static text. A target is a path with or
 * without a query; its escapes are whole, and none of them stands for a control byte. "http" or
 * "https", "://" and a host may stand in front of it (absolute-form); *n_origin is how long they
 * are together, 0 without. */
const char *framing_target(const char *target, size_t n, size_t *n_origin);

void framing_method(struct framing *f, const char *method);
/* One header, in the order in which they came. With f->at set, name and value lie in the head as it
 * was received, each line's end is 2 zeros, and value[n_value + 1] can be read. */
void framing_header(struct framing *f, const char *name, size_t n_name, const char *value,
                    size_t n_value);
/* After the last header; version: "HTTP/1.1"; end: of the head as it was received, used with f->at.
 */
void framing_end(struct framing *f, const char *version, const char *end);

#endif
