/* key_names.c - which fields of engine_config, backend_config, api_config and hub_options are set
 * by which key. A field and a key that differ in '_' and '-' alone need no row. Any thread. */
#include "daemon/key_names.h"

#include "daemon/config.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *field, *key;
} names[] = {
    {"n_threads", "threads"},
    {"n_ranks", "tensor-parallel"},
    {"n_stages", "pipeline-parallel"},
    {"memory_fraction", "gpu-memory-utilization"},
    {"kv_type", "kv-cache-type"},
    {"max_per_address", "max-connections-per-address"},
    {"endpoint", "hf-endpoint"},
    {"max_rows", "max-batch-tokens"},
    {"folder", "kv-dir"},
    {"memory_bytes", "memory-budget"},
};

const char *key_name_of(const char *field) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].field, field) == 0) return names[i].key;
    const struct config_key *key = strchr(field, '_') ? config_find(field) : NULL;
    return key ? key->name : NULL;
}

/* The key for the word text[0..n). Words without '_' are English. */
static const char *key_of_word(const char *text, size_t n) {
    char word[64];
    if (n >= sizeof word || !memchr(text, '_', n)) return NULL;
    memcpy(word, text, n);
    word[n] = '\0';
    return key_name_of(word);
}

void key_names_write(const char *text, char *out, size_t n) {
    size_t used = 0;
    bool begins = true; /* text stands at the beginning of a word */
    while (*text && used + 1 < n) {
        size_t len = begins ? strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
        const char *key = len && strchr(" ,:;)", text[len]) ? key_of_word(text, len) : NULL;
        if (!key && !len) len = 1;
        begins = !key && (*text == ' ' || *text == '(');
        int wrote = snprintf(out + used, n - used, "%.*s", (int)(key ? strlen(key) : len),
                             key ? key : text);
        used += (size_t)wrote < n - used ? (size_t)wrote : n - used - 1;
        text += len;
    }
    out[used] = '\0';
}

void key_names_put(err *e) {
    char msg[sizeof e->msg];
    const char *key = e->param[0] ? key_name_of(e->param) : NULL;
    key_names_write(e->msg, msg, sizeof msg);
    memcpy(e->msg, msg, sizeof msg);
    if (!key) return;
    if (!strstr(e->msg, key)) err_prefix(e, "%s: ", key);
    snprintf(e->param, sizeof e->param, "%s", key);
}
