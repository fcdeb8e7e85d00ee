/* key.h - the API key of a request, and where keys other than those of the configuration come from.
 */
#ifndef INFERD_API_HTTP_KEY_H
#define INFERD_API_HTTP_KEY_H

#include "core/base/key.h"

#include <stdbool.h>
#include <stdint.h>

struct api;

/* Zeroed: none. */
struct http_key {
    int64_t id;      /* in accounts; > 0: the owner's; -n: the n-th of the configuration */
    uint32_t number; /* from 1: those of the configuration in their order, then the owner's */
    unsigned scopes; /* of enum key_scope */
    char name[KEY_PREFIX_BYTES];   /* in the log: the prefix, or the number of a configured key */
    char owner[KEY_OWNER_BYTES];   /* key_owner; "": the text of the key */
    uint64_t limits[KEY_N_LIMITS]; /* by enum key_limit; 0: none */
    char models[KEY_MODELS_BYTES]; /* the only ones that it may use, "a,b"; "": all */
};

enum key_result { KEY_OK, KEY_UNKNOWN, KEY_EXPIRED, KEY_REVOKED };

/* Keys of the server's owner; HTTP threads, none waits. */
struct http_keys {
    bool (*in_use)(struct api *api); /* is there any? Then each request needs one */
    /* out->number counts the owner's keys alone. */
    enum key_result (*find)(struct api *api, const char *given, struct http_key *out);
    /* The key with that id, without its text. */
    enum key_result (*get)(struct api *api, int64_t id, struct http_key *out);
    /* The name of the key with that number, for metrics. false: there is none. */
    bool (*name)(struct api *api, uint32_t number, char name[KEY_PREFIX_BYTES]);
};

#endif
