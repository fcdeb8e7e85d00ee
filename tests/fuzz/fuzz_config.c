/* fuzz_config.c - a letter for the kind of a file, and the file: 'c' daemon.conf, 't' the Hub's
 * token, 'i' a list of token ids; API keys: fuzz_keys.c. It is refused with a message, or its
 * values are within the bounds of the headers. */
#include "daemon/config.h"
#include "daemon/input.h"
#include "tests/fuzz/scratch.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MAX_BYTES = 1 << 14, N_VOCAB = 300 };

static void check_refusal(int rc, const err *e) {
    if (rc > 0 || e->code != rc || !e->msg[0]) abort();
}

static bool is_choice(const char *choices, const char *value) {
    size_t n = strlen(value);
    for (const char *c = choices; n && c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL)
        if (strncmp(c, value, n) == 0 && (c[n] == '|' || !c[n])) return true;
    return false;
}

/* Also after a file with errors, whose other lines are applied. */
static void check_key(const struct config *c, const struct config_key *key) {
    const char *at = (const char *)c + key->offset;
    const char *text;
    uint64_t number;
    double part;
    switch (key->kind) {
    case CONFIG_TEXT:
    case CONFIG_CHOICE:
        memcpy(&text, at, sizeof text);
        if (!text || (key->kind == CONFIG_CHOICE && !is_choice(key->choices, text))) abort();
        break;
    case CONFIG_NUMBER:
    case CONFIG_BYTES:
        memcpy(&number, at, sizeof number);
        if (number < key->min || number > key->max) abort();
        break;
    case CONFIG_PART:
        memcpy(&part, at, sizeof part);
        if (part != 0 && !(part >= (double)key->min / 1000 && part <= (double)key->max / 1000))
            abort();
        break;
    case CONFIG_SWITCH:
        if (*(const unsigned char *)at > 1) abort();
        break;
    }
}

static void try_config(const char *path) {
    size_t n_keys;
    const struct config_key *keys = config_keys(&n_keys);
    struct config c;
    str problems;
    err e = {0};
    if (config_init(&c, &e)) return;
    str_init(&problems, 1 << 20);
    int rc = config_load(&c, path, &problems, &e);
    if (rc) check_refusal(rc, &e);
    if ((rc == 0) != (problems.len == 0)) abort();
    for (size_t i = 0; i < n_keys; i++)
        check_key(&c, &keys[i]);
    str_fini(&problems);
    config_fini(&c);
}

static void check_key_text(const char *key) {
    if (!*key) abort();
    for (; *key; key++)
        if (*key <= ' ' || *key > '~') abort();
}

static void try_token(const char *path) {
    struct config c;
    char *token;
    err e = {0};
    if (config_init(&c, &e)) return;
    if (config_set(&c, "hf-token-file", path, &e)) abort();
    int rc = config_read_hf_token(&c, &token, &e);
    if ((rc == 0) != (token != NULL)) abort();
    if (rc)
        check_refusal(rc, &e);
    else
        check_key_text(token);
    free(token);
    config_fini(&c);
}

static void try_ids(const uint8_t *bytes, size_t n) {
    char *text = calloc(1, n + 1);
    int32_t *ids;
    size_t n_ids;
    err e = {0};
    if (!text) return;
    memcpy(text, bytes, n);
    int rc = idlist_parse(text, N_VOCAB, &ids, &n_ids, &e);
    if (rc)
        check_refusal(rc, &e);
    else
        for (size_t i = 0; i < n_ids; i++)
            if (ids[i] < 0 || ids[i] >= N_VOCAB) abort();
    if (!rc) free(ids);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    if (n < 1 || n > MAX_BYTES) return 0;
    if (bytes[0] == 'c')
        try_config(scratch_file(bytes + 1, n - 1));
    else if (bytes[0] == 't')
        try_token(scratch_file(bytes + 1, n - 1));
    else if (bytes[0] == 'i')
        try_ids(bytes + 1, n - 1);
    return 0;
}
