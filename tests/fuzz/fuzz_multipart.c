/* fuzz_multipart.c - any bytes as a Content-Type (the first line) and a body of
 * multipart/form-data. Pieces of any size give the same parts as the whole, and those that a search
 * of the whole body finds. */
#include "api/http/multipart.h"
#include "core/base/str.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MAX_TEXT = 4 << 20 };

/* A media type is none, or two tokens in lower case with a slash between them. */
static void check_type(const char *type) {
    const char *slash = strchr(type, '/');
    if (!*type) return;
    if (!slash || slash == type || !slash[1] || strchr(slash + 1, '/')) abort();
    for (; *type; type++)
        if (*type <= ' ' || *type > '~' || strchr("\"(),:;<=>?@[\\]{}", *type) ||
            (*type >= 'A' && *type <= 'Z'))
            abort();
}

static int begin(void *arg, const struct multipart_part *part, err *e) {
    str *out = arg;
    (void)e;
    if (!*part->name || (*part->file && !part->is_file)) abort();
    check_type(part->type);
    str_addf(out, "\n[%s|%s|%s|%d]\n", part->name, part->file, part->type, part->is_file);
    return 0;
}

static int data(void *arg, const char *bytes, size_t n, err *e) {
    (void)e;
    if (!n) abort();
    str_add_n(arg, bytes, n);
    return 0;
}

static const struct multipart_ops ops = {begin, data};

/* All parts as one text. seed 0: the body in one piece, otherwise in pieces of sizes that follow
 * from it. */
static int read_all(const char *type, const char *body, size_t n, uint32_t seed, str *out) {
    struct multipart m;
    int rc = multipart_init(&m, type, &ops, out, NULL);
    for (size_t at = 0; !rc && at < n;) {
        seed = seed * 1664525 + 1013904223;
        size_t piece = seed % 4 == 0 ? 1 : seed >> 8 & 63;
        if (piece > n - at) piece = n - at;
        char *copy = malloc(piece ? piece : 1); /* so that a read beyond it is seen */
        if (!copy) abort();
        memcpy(copy, body + at, piece);
        rc = multipart_take(&m, copy, piece, NULL);
        free(copy);
        at += piece;
    }
    return rc ? rc : multipart_end(&m, NULL);
}

/* How often the delimiter is in an accepted body, up to the one that ends it: parts + 1. */
static size_t count_delimiters(const struct multipart *m, const char *body, size_t n) {
    const char *d = m->delimiter;
    size_t len = m->n_delimiter, found = 0;
    for (size_t i = 0; i < n; i++) {
        bool first = i == 0 && n >= len - 2 && memcmp(body, d + 2, len - 2) == 0;
        bool here = n - i >= len && memcmp(body + i, d, len) == 0;
        if (!first && !here) continue;
        size_t after = i + (first ? len - 2 : len);
        found++;
        if (n - after >= 2 && memcmp(body + after, "--", 2) == 0) return found;
        i = after - 1;
        const char *head = body + after; /* in a part's head a delimiter is none */
        size_t left = n - after, k = 0;
        while (k + 1 < left && memcmp(head + k, "\r\n", 2) != 0)
            k++;
        k += 2;
        if (k + 1 < left && memcmp(head + k, "\r\n", 2) == 0) {
            i = after + k + 1;
            continue;
        }
        while (k + 3 < left && memcmp(head + k, "\r\n\r\n", 4) != 0)
            k++;
        i = after + k + 3;
    }
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct multipart m;
    char type[256] = "";
    const char *text = (const char *)bytes, *end = n ? memchr(text, '\n', n) : NULL;
    size_t n_type = end ? (size_t)(end - text) : 0;
    str whole, pieces;
    if (!end || n_type >= sizeof type) return 0;
    memcpy(type, text, n_type);
    const char *body = end + 1;
    size_t n_body = n - n_type - 1;
    str_init(&whole, MAX_TEXT);
    str_init(&pieces, MAX_TEXT);
    if (!multipart_init(&m, type, &ops, &whole, NULL)) {
        int rc = multipart_take(&m, body, n_body, NULL);
        if (!rc) rc = multipart_end(&m, NULL);
        uint32_t seed = n_body ? bytes[n - 1] * 2654435761u + (uint32_t)n : 1;
        int again = read_all(type, body, n_body, seed, &pieces);
        if ((rc == 0) != (again == 0)) abort();
        if (!rc && strcmp(str_cstr(&whole), str_cstr(&pieces)) != 0) abort();
        if (!rc && count_delimiters(&m, body, n_body) != m.n_parts + 1) abort();
    }
    str_fini(&whole);
    str_fini(&pieces);
    return 0;
}
