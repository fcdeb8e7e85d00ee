/* fuzz_hub.c - any bytes as the requested name, NUL, the Hub's listing of a repository: it is
 * refused, or the chosen files have sizes and hashes and lie below its folder. */
#include "core/base/mem.h"
#include "registry/hub_int.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MAX_BYTES = 1 << 16, MAX_WANTED = 64 };

static void ignore(void *arg, const char *line) {
    (void)arg;
    if (!line) abort();
}

static void check_name(const char *name) {
    if (!name[0] || name[0] == '/' || strstr(name, "//") || strpbrk(name, "\\\n\r\t\x1b")) abort();
    for (const char *at = name; (at = strstr(at, "..")); at++)
        if ((at == name || at[-1] == '/') && (at[2] == '/' || !at[2])) abort();
}

static void try_choice(const struct hub_listing *l, const char *wanted) {
    const struct hub_options options = {.say = ignore};
    struct hub_choice c;
    err e = {0};
    if (hub_listing_choose(l, wanted, &options, &c, &e)) {
        if (c.files || c.n || !e.code || !e.msg[0]) abort();
        return;
    }
    if (c.n == 0) abort();
    for (size_t i = 0; i < c.n; i++)
        if (!c.files[i]->known || strlen(c.files[i]->hash) != (c.files[i]->lfs ? 64u : 40u))
            abort();
    free(c.files);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const uint8_t *end = n ? memchr(bytes, 0, n) : NULL;
    struct hub_listing l;
    err e = {0};
    if (!end || n > MAX_BYTES || end - bytes > MAX_WANTED) return 0;
    if (hub_listing_parse((const char *)end + 1, n - (size_t)(end - bytes) - 1, &l, &e)) {
        if (l.files || l.n_files || !e.code || !e.msg[0]) abort();
        return 0;
    }
    for (size_t i = 0; i < l.n_files; i++)
        check_name(l.files[i].name);
    try_choice(&l, bytes[0] ? (const char *)bytes : NULL);
    hub_listing_fini(&l);
    return 0;
}
