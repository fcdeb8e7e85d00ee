/* framing.c - see framing.h. Owns nothing; runs on HTTP threads. */
#include "api/http/framing.h"

#include <string.h>
#include <strings.h>

enum { MAX_LENGTH_DIGITS = 18 }; /* of a value that fits 63 bits */

static void refuse_head(struct framing *f, unsigned status, const char *why) {
    if (f->status) return;
    f->status = status;
    f->why = why;
}

/* tchar of RFC 9110. */
static bool is_token(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool alnum = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
        if (!alnum && (!c || !strchr("!#$%&'*+-.^_`|~", c))) return false;
    }
    return n > 0;
}

bool framing_is_name_list(const char *value) {
    for (;;) {
        value += strspn(value, " \t");
        size_t n = strcspn(value, " \t,");
        if (!is_token(value, n)) return false;
        value += n + strspn(value + n, " \t");
        if (!*value) return true;
        if (*value++ != ',') return false;
    }
}

/* A name or an address, possibly in brackets, and a port. Any other byte could be read as a path, a
 * user or a second host. */
bool framing_is_host(const char *value, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char c = value[i];
        bool alnum = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
        if (!alnum && (!c || !strchr("-._~!$&'()*+;=:[]%", c))) return false;
    }
    return true;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Length of "http://" or "https://" at the start of an absolute target; 0 for other targets. */
static size_t scheme_length(const char *target, size_t n) {
    if (n > 7 && strncasecmp(target, "http://", 7) == 0) return 7;
    return n > 8 && strncasecmp(target, "https://", 8) == 0 ? 8 : 0;
}

const char *framing_target(const char *target, size_t n, size_t *n_origin) {
    bool query = false;
    size_t scheme = scheme_length(target, n), at = scheme;
    while (scheme && at < n && target[at] != '/' && target[at] != '?')
        at++;
    *n_origin = at;
    if (at == scheme && scheme) return "The request target has no host.";
    if (scheme && (memchr(target, '%', at) || !framing_is_host(target + scheme, at - scheme)))
        return "The host of the request target is not a name and port.";
    if (!scheme && (!n || *target != '/'))
        return "The request target must be a path that begins with a slash.";
    for (size_t i = at; i < n; i++) {
        unsigned char c = (unsigned char)target[i];
        if (c <= ' ' || c >= 0x7f || c == '#')
            return "The request target contains a byte that must be percent-encoded.";
        query |= c == '?';
        if (c != '%') continue;
        int high = n - i > 2 ? hex_digit(target[i + 1]) : -1;
        int low = n - i > 2 ? hex_digit(target[i + 2]) : -1;
        if (high < 0 || low < 0) {
            if (query) continue; /* some clients send a bare % there */
            return "The request path has a % that is not followed by two hexadecimal digits.";
        }
        int byte = high * 16 + low;
        if (byte == 0 || (!query && (byte < 0x20 || byte == 0x7f)))
            return "The request target contains an encoded control byte.";
    }
    return NULL;
}

void framing_method(struct framing *f, const char *method) {
    if (!is_token(method, strlen(method)))
        refuse_head(f, 400, "The request method is not a token.");
}

static bool is_named(const char *name, size_t n_name, const char *what) {
    return n_name == strlen(what) && strncasecmp(name, what, n_name) == 0;
}

static bool is_length(const char *value, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (value[i] < '0' || value[i] > '9') return false;
    return n > 0 && n <= MAX_LENGTH_DIGITS;
}

static void check_bytes(struct framing *f, const char *name, size_t n_name, const char *value,
                        size_t n_value) {
    if (!is_token(name, n_name))
        refuse_head(
            f, 400,
            "A header's name contains a byte that is not allowed there, or a space before the "
            "colon.");
    for (size_t i = 0; i < n_value; i++) {
        unsigned char c = (unsigned char)value[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            refuse_head(f, 400, "A header's value contains a control byte.");
    }
}

/* name must begin where the previous line ended, and its value must end where a line ends. */
static void check_place(struct framing *f, const char *name, const char *value, size_t n_value) {
    if (!f->at) return;
    const char *end = value + n_value;
    if (name != f->at || end[0] || end[1]) {
        refuse_head(f, 400, "Each header must be one line that ends in CR LF, without a NUL.");
        f->at = NULL;
        return;
    }
    f->at = end + 2;
}

void framing_header(struct framing *f, const char *name, size_t n_name, const char *value,
                    size_t n_value) {
    check_place(f, name, value, n_value);
    check_bytes(f, name, n_name, value, n_value);
    if (is_named(name, n_name, "Host")) {
        if (f->n_hosts++) refuse_head(f, 400, "The Host header occurs more than once.");
        if (!framing_is_host(value, n_value))
            refuse_head(f, 400, "The Host header is not a name and port.");
        if (f->authority &&
            (n_value != f->n_authority || strncasecmp(value, f->authority, n_value) != 0))
            refuse_head(f, 400, "The Host header and the host of the request target differ.");
    } else if (is_named(name, n_name, "Content-Length")) {
        if (f->n_lengths++) refuse_head(f, 400, "Content-Length occurs more than once.");
        if (!is_length(value, n_value))
            refuse_head(f, 400, "Content-Length must be one decimal number.");
    } else if (is_named(name, n_name, "Transfer-Encoding")) {
        if (f->n_codings++) refuse_head(f, 400, "Transfer-Encoding occurs more than once.");
        f->chunked = is_named(value, n_value, "chunked");
    }
}

void framing_end(struct framing *f, const char *version, const char *end) {
    if (f->at && (f->at + 2 != end || f->at[0] || f->at[1]))
        refuse_head(f, 400, "The request head must end with an empty line, CR LF CR LF.");
    bool old = strcmp(version, "HTTP/1.0") == 0;
    if (f->n_codings && f->n_lengths)
        refuse_head(f, 400, "Content-Length and Transfer-Encoding must not be sent together.");
    if (f->n_codings && old) refuse_head(f, 400, "HTTP/1.0 has no Transfer-Encoding.");
    if (!f->n_hosts && !old) refuse_head(f, 400, "The Host header is missing.");
    if (f->n_codings && !f->chunked)
        refuse_head(f, 501, "The only supported Transfer-Encoding is chunked.");
}
