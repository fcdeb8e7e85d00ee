/* fuzz_keys.c - the files of api-key-file and admin-key-file; the first NUL of an input separates
 * them. Both give the keys that a second reading here finds, in order; or a message names the line
 * of the first bad one, and no key is left. */
#include "daemon/config.h"
#include "tests/fuzz/scratch.h"

#include <stdbool.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MAX_BYTES = 1 << 14 };

struct file {
    const uint8_t *at, *end;
    unsigned line;
};

/* The next line that is a key, without its end. false: there is none. */
static bool next_key(struct file *f, const uint8_t **key, size_t *n) {
    while (f->at < f->end) {
        const uint8_t *stop = memchr(f->at, '\n', (size_t)(f->end - f->at));
        if (!stop) stop = f->end;
        *key = f->at;
        *n = (size_t)(stop - f->at);
        f->at = stop < f->end ? stop + 1 : stop;
        f->line++;
        if (*n && (*key)[*n - 1] == '\r') --*n;
        if (*n && **key != '#') return true;
    }
    return false;
}

static bool is_good(const uint8_t *key, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (key[i] < 0x21 || key[i] > 0x7e) return false;
    return true;
}

/* Reads a file after keys->n others. Returns whether it was accepted. */
static bool try_file(const char *name, const uint8_t *bytes, size_t n,
                     struct config_api_keys *keys) {
    struct file f = {bytes, bytes + n, 0};
    const char *path = scratch_file(bytes, n);
    const uint8_t *key;
    size_t n_key, n_before = keys->n, n_found = 0;
    bool good = true;
    err e = {0};
    int rc = config_add_api_keys(name, path, keys, &e);
    while (good && next_key(&f, &key, &n_key)) {
        size_t at = n_before + n_found++;
        good = is_good(key, n_key);
        if (!rc && (at >= keys->n || strlen(keys->keys[at]) != n_key ||
                    memcmp(keys->keys[at], key, n_key) != 0))
            abort();
    }
    if (!rc) {
        if (!good || !n_found || keys->n != n_before + n_found) abort();
        return true;
    }
    if (e.code != rc || keys->n || keys->keys) abort();
    char line[32];
    snprintf(line, sizeof line, ":%u: ", f.line);
    if (!strstr(e.msg, good ? "contains no key" : line) || (good && n_found)) abort();
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct config_api_keys keys = {0};
    if (n > MAX_BYTES) return 0;
    const uint8_t *nul = n ? memchr(bytes, 0, n) : NULL;
    size_t n_first = nul ? (size_t)(nul - bytes) : n;
    if (try_file("api-key-file", bytes, n_first, &keys) && nul)
        try_file("admin-key-file", nul + 1, n - n_first - 1, &keys);
    config_api_keys_fini(&keys);
    return 0;
}
