/* fuzz_origin.c - any bytes as the lists allowed-origins and trusted-proxies, and as headers of
 * browsers and proxies: lines of a list of origins, an origin, a host, a list of networks, and
 * values of X-Forwarded-For, -Host and -Proto. Accepted values are checked again from the text. */
#include "api/http/forwarded.h"
#include "api/http/framing.h"
#include "api/http/origin.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MAX_BYTES = 4096, N_LINES = 7 };

/* An accepted origin prints as the same text, except for an optional port. */
static void check_origin(const char *text, const struct origin *o) {
    char again[MAX_BYTES + 32];
    snprintf(again, sizeof again, "%.*s://%.*s", (int)o->n_scheme, o->scheme, (int)o->n_host,
             o->host);
    size_t n = strlen(again);
    if (strncmp(text, again, n) != 0 || (text[n] && text[n] != ':')) abort();
    if (text[n] && (strspn(text + n + 1, "0123456789") != strlen(text + n + 1) ||
                    (unsigned)atoi(text + n + 1) != o->port || !o->port || o->port > 65535))
        abort();
    for (size_t i = 0; i < o->n_host; i++)
        if (strchr("@/?#\\ ,*%", o->host[i])) abort();
}

static void check_list(const char *list, const char *text, const char *host) {
    struct origin_list l;
    struct origin o;
    bool parsed = origin_parse(text, &o);
    if (parsed) check_origin(text, &o);
    if (parsed && origin_is_of_host(&o, host, NULL)) {
        size_t n = origin_name_length(host);
        if (n != o.n_host || strncasecmp(host, o.host, n) != 0) abort();
        if (strncasecmp(o.scheme, "http", 4) != 0) abort();
        if (origin_is_of_host(&o, host, "http") == origin_is_of_host(&o, host, "https")) abort();
    }
    if (origins_parse(list, &l, NULL)) {
        if (l.n || l.text || l.rules) abort();
        return;
    }
    bool held = origins_hold(&l, text), null = strcmp(text, "null") == 0;
    if (l.any && !held) abort();
    if (held && !l.any && !parsed && !null) abort();
    /* Without a pattern the list contains only its own entries. */
    if (held && parsed && !strchr(list, '*')) {
        bool written = false;
        for (const char *s = list; *s && !written; s++)
            written = strncasecmp(s, o.host, o.n_host) == 0;
        if (!written) abort();
    }
    origins_fini(&l);
}

static void check_forwarded(const char *list, char *const value[3]) {
    static const char *const names[] = {"X-Forwarded-For", "x-forwarded-host", "X-FORWARDED-PROTO"};
    struct networks trusted;
    struct forwarded f = {0};
    char text[ADDRESS_TEXT_BYTES];
    struct address again;
    if (networks_parse(list, &trusted, NULL)) return;
    for (int i = 0; i < 3; i++)
        forwarded_header(&f, &trusted, names[i], value[i]);
    if (f.client.family) {
        address_text(&f.client, text);
        if (!address_parse(text, strlen(text), &again)) abort();
        if (memcmp(&again, &f.client, sizeof again) != 0) abort();
        /* Adding the same address again changes nothing. */
        struct forwarded more = f;
        forwarded_header(&more, &trusted, names[0], text);
        if (memcmp(&more.client, &f.client, sizeof again) != 0) abort();
    }
    if (f.has_host && *f.host && !framing_is_host(f.host, strlen(f.host))) abort();
    if (f.has_host && *f.host && !strstr(value[1], f.host)) abort();
    if (f.scheme && strcmp(f.scheme, "http") != 0 && strcmp(f.scheme, "https") != 0) abort();
    networks_fini(&trusted);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static char text[MAX_BYTES + 1];
    static char none[1];
    char *lines[N_LINES] = {none, none, none, none, none, none, none};
    if (n > MAX_BYTES) n = MAX_BYTES;
    memcpy(text, bytes, n);
    text[n] = '\0';
    char *at = text;
    for (int i = 0; i < N_LINES && at; i++) {
        lines[i] = at;
        at = strchr(at, '\n');
        if (at) *at++ = '\0';
    }
    check_list(lines[0], lines[1], lines[2]);
    check_forwarded(lines[3], lines + 4);
    (void)framing_is_name_list(lines[1]);
    return 0;
}
