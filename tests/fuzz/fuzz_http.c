/* fuzz_http.c - any bytes as a request's head. It is split into lines, names and values as by
 * libmicrohttpd 0.9 (in place, terminated by zeros), then checked; an accepted head must have
 * exactly one reading, which this target decides from the original bytes. */
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
    size_t n, at;                          /* of cut: bytes consumed */
};

/* The next line, up to CR LF or LF, which become zeros; NULL: no line. */
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

/* The lines of the headers; false: the library itself refuses one. */
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

/* The run of line ends and NULs that begins at i; returns its end. The library replaces them all by
 * zeros, so a NUL can fill the place that a bare LF leaves: only this case leaves no trace. */
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

/* In the original bytes every line ends in CR LF, none begins with a blank, and the only control
 * byte is a tab. */
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

/* The decoded form of an accepted path has no control byte. */
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
