/* framing.h - checks that every program reads a request's head in the same way (RFC 9112). If a
 * proxy saw another end of a header, of the head or of the body than this daemon does, one client
 * could write another one's requests (request smuggling).
 *
 * libmicrohttpd 0.9 is lenient and has no switch for most of it, so its result is checked. It
 * parses in place and ends names, values and lines with zero bytes; where they lie tells what stood
 * between them. One thing leaves no trace: a NUL beside a bare LF looks like CR LF. 1.0 is strict
 * itself (MHD_OPTION_CLIENT_DISCIPLINE_LVL).
 *
 * THREAD SAFETY: plain functions over the caller's bytes. */
#ifndef INFERD_API_HTTP_FRAMING_H
#define INFERD_API_HTTP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>

/* A head that is being checked. Zeroed at first; status and why describe the first fault. */
struct framing {
    unsigned status; /* 0: no fault found; 400, 414, 501 */
    const char *why; /* static text */
    const char *at;  /* where the next header must begin; NULL: unknown, not checked */
    unsigned n_hosts, n_lengths, n_codings;
    bool chunked;
    const char *authority; /* (n_authority) of an absolute target: the Host must be the same */
    size_t n_authority;
};

/* What is wrong with a request target (a static text), or NULL. A target is a path with or without
 * a query; its escapes are complete, and none stands for a control byte. In absolute form "http://"
 * or "https://" and a host precede it; *n_origin is their length, 0 without them. */
const char *framing_target(const char *target, size_t n, size_t *n_origin);

/* May value (n) be host[:port], judged by its bytes? */
bool framing_is_host(const char *value, size_t n);

/* Is it a list of header names, "a, b"? */
bool framing_is_name_list(const char *value);

void framing_method(struct framing *f, const char *method);
/* One header; headers are passed in the order received. If f->at is set, name and value lie in the
 * head as it was received, each line ends with 2 zero bytes, and value[n_value + 1] can be read. */
void framing_header(struct framing *f, const char *name, size_t n_name, const char *value,
                    size_t n_value);
/* After the last header; version: "HTTP/1.1"; end: of the head as it was received, used with f->at.
 */
void framing_end(struct framing *f, const char *version, const char *end);

#endif
