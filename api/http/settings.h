/* settings.h - what of the HTTP server's configuration a reload may change. A set of values never
 * changes: a reload makes a new set, and each request keeps the one that it began with, so it sees
 * the same limits and keys from its first byte to its end.
 *
 * Keys of the configuration have slots, from 0: what counts by key goes on when the list changes.
 * A new text gets a new slot, a text that was there before gets its old one.
 *
 * THREAD SAFETY: settings_hold and settings_drop from any thread; a key_slots by the caller of
 * settings_new alone, which is one thread at a time. */
#ifndef INFERD_API_HTTP_SETTINGS_H
#define INFERD_API_HTTP_SETTINGS_H

#include "api/http/address.h"
#include "api/http/http_config.h"
#include "api/http/origin.h"
#include "api/http/tls.h"
#include "core/base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { KEY_SLOTS_MAX = 1 << 18, KEY_LATE_NUMBER = 1 << 24 };

/* Zeroed: empty. */
struct key_slots {
    char **texts;        /* (n) */
    uint32_t n, n_first; /* n_first: of the first list */
};
void key_slots_fini(struct key_slots *k);

struct settings {
    atomic_uint refs;
    struct http_config config; /* allowed_hosts and keys are copies; other strings are NULL */
    uint32_t *slots;           /* (config.n_api_keys) of the keys */
    struct origin_list origins;
    struct networks proxies;
    struct tls *tls; /* NULL: none */
};

/* With one reference. ERR_INVALID: param is a field of c. */
int settings_new(const struct http_config *c, struct key_slots *k, struct settings **out, err *e);
const struct settings *settings_hold(struct settings *s);
void settings_drop(const struct settings *s); /* the last one frees; NULL is fine */

#endif
