/* keys.c - see keys.h. Owns nothing; any thread. */
#include "api/keys.h"

#include "api/generate/api_state.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "core/base/clock.h"
#include "registry/keys.h"
#include "registry/ledger.h"

#include <stdio.h>
#include <string.h>

static bool are_in_use(struct api *a) {
    return keyring_in_use(a->config.keyring);
}

static enum key_result find_key(struct api *a, const char *given, struct http_key *out) {
    struct keyring_found found;
    switch (keyring_find(a->config.keyring, given, clock_wall_s(), &found)) {
    case KEYRING_OK:
        break;
    case KEYRING_EXPIRED:
        return KEY_EXPIRED;
    case KEYRING_REVOKED:
        return KEY_REVOKED;
    case KEYRING_UNKNOWN:
        return KEY_UNKNOWN;
    }
    *out = (struct http_key){.id = found.id, .number = found.number, .scopes = found.scopes};
    memcpy(out->name, found.prefix, sizeof out->name);
    memcpy(out->models, found.models, sizeof out->models);
    memcpy(out->limits, found.limits, sizeof out->limits);
    key_owner(found.id, out->owner);
    return KEY_OK;
}

static bool name_key(struct api *a, uint32_t number, char name[KEY_PREFIX_BYTES]) {
    return keyring_prefix(a->config.keyring, number, name);
}

void api_account(struct request *r, const struct request_usage *more) {
    struct usage_row row = {.time_s = clock_wall_s(),
                            .key = r->key.id,
                            .kind = r->route->flags & ROUTE_EMBED ? USAGE_EMBED : USAGE_GENERATE,
                            .requests = more->requests,
                            .input_tokens = more->prompt_tokens,
                            .cached_tokens = more->cached_tokens,
                            .output_tokens = more->completion_tokens};
    snprintf(row.model, sizeof row.model, "%s", r->model_id);
    ledger_add(r->api->config.ledger, &row);
}

const struct http_keys api_registry_keys = {are_in_use, find_key, name_key};
