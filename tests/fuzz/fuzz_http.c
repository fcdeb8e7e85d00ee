/* fuzz_http.c - any bytes as a request's head. It is cut into lines, names and values in the way of
 * libmicrohttpd 0.9 (in place, ended by zeros), then checked; what is accepted must be a head that
 * has one reading: that is decided here from the untouched bytes. */
#include "api/http/framing.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MAX_HEAD = 4096 };

struct head {
    char raw[MAX_HEAD], cut[MAX_HEAD + 2]; /* as received; with zeros */
    size_t n, at;                          /* of cut, what has been taken */
};

/* The next line, up to CR LF or LF, which become zeros; NULL: there is none. */
static char *next_line(struct head *h) {
    for (size_t i = h->at; i < h->n; i++) {
        bool crlf = h->cut[i] == '\r' && i + 1 < h->n && h->cut[i + 1] == '\n';
        if (!crlf && h->cut[i] != '\n') continue;
        char *line = h->cut + h->at;
        memset(h->cut + i, 0, crlf ? 2 : 1);
        h->at = i + (crlf ? 2 : 1);
        return line;
    }
    return NULL;
}

/* The headers' lines: false when the library itself refuses one. */
static bool take_headers(struct head *h, struct framing *f) {
    for (char *line; (line = next_line(h));) {
        if (!*line) return true;
        char *colon = strchr(line, ':');
        if (!colon) return false;
        *colon++ = '\0';
        colon += strspn(colon, " \t");
        framing_header(f, line, strlen(line), colon, strlen(colon));
    }
    return false;
}

/* The run of line ends and NULs that begins at i; returns its end. All of them are zeros when the
 * library is done, so that a NUL can stand for a byte that a bare LF lacks: only this leaves no
 * trace. */
static size_t check_run(const struct head *h, size_t i) {
    bool nul = false, bare = false;
    for (; i < h->at && strchr("\r\n", h->raw[i]); i++) {
        char c = h->raw[i];
        bool crlf = c == '\r' && i + 1 < h->at && h->raw[i + 1] == '\n';
        if (c == '\r' && !crlf) abort();
        nul |= !c;
        bare |= c == '\n';
        i += crlf;
    }
    if (nul != bare) abort();
    return i;
}

/* From the untouched bytes: every line ends in CR LF, none begins with a blank, and there is no
 * other control byte but a tab. */
static void check_raw(const struct head *h, size_t from) {
    for (size_t i = from; i < h->at;) {
        size_t end = check_run(h, i);
        if ((end > i || i == from) && end < h->at && (h->raw[end] == ' ' || h->raw[end] == '\t'))
            abort();
        if (end < h->at &&
            ((h->raw[end] < ' ' && h->raw[end] != '\t' && h->raw[end] >= 0) || h->raw[end] == 0x7f))
            abort();
        i = end + 1;
    }
}

static size_t count(const struct head *h, size_t from, const char *name) {
    size_t n = strlen(name), found = 0;
    for (size_t i = from; i + n < h->at; i++)
        found += (i == from || h->raw[i - 1] == '\n') && strncasecmp(h->raw + i, name, n) == 0 &&
                 h->raw[i + n] == ':';
    return found;
}

static void check_head(struct head *h, size_t from, const char *version) {
    struct framing f = {.at = h->cut + from};
    h->at = from;
    if (!take_headers(h, &f)) return;
    framing_end(&f, version, h->cut + h->at);
    if (f.status) return;
    check_raw(h, from);
    size_t lengths = count(h, from, "Content-Length"),
           codings = count(h, from, "Transfer-Encoding");
    if (lengths + codings > 1 || count(h, from, "Host") > 1) abort();
    if (lengths != f.n_lengths || codings != f.n_codings || f.chunked != (codings == 1)) abort();
    if (!count(h, from, "Host") && strcmp(version, "HTTP/1.0") != 0) abort();
}

/* What is decoded from an accepted path has no control byte. */
static void check_target(const char *target, size_t n) {
    size_t n_origin;
    if (framing_target(target, n, &n_origin)) return;
    if (n_origin > n || (n_origin && n_origin < strlen("http://x"))) abort();
    if (n_origin < n && target[n_origin] != '/' && !(n_origin && target[n_origin] == '?')) abort();
    if (!n_origin && !n) abort();
    for (size_t i = n_origin; i < n && target[i] != '?'; i++) {
        unsigned byte = (unsigned char)target[i];
        if (byte == '%') {
            if (n - i < 3) abort();
            char digits[3] = {target[i + 1], target[i + 2], 0}, *end;
            byte = (unsigned)strtoul(digits, &end, 16);
            if (*end || *digits == '+' || *digits == '-' || *digits == ' ') abort();
        } else if (byte > '~') {
            abort();
        }
        if (byte < ' ' || byte == 0x7f) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static struct head h;
    if (!n) return 0;
    if (n > MAX_HEAD) n = MAX_HEAD;
    memcpy(h.raw, bytes, n);
    static const char *const versions[] = {"HTTP/1.1", "HTTP/1.0"};
    const char *end = memchr(bytes, '\n', n);
    size_t line = end ? (size_t)(end - (const char *)bytes) : n;
    check_target((const char *)bytes, line);
    for (int i = 0; i < 2; i++) {
        memcpy(h.cut, bytes, n);
        memset(h.cut + n, 0, 2);
        h.n = n;
        check_head(&h, end ? line + 1 : 0, versions[i]);
    }
    return 0;
}
