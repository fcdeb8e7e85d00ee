/* keys.c - see keys.h. Owns nothing; any thread. */
#include "api/keys.h"

#include "api/generate/api_state.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "core/base/clock.h"
#include "registry/audit.h"
#include "registry/keys.h"
#include "registry/ledger.h"

#include <stdio.h>
#include <string.h>

static bool are_in_use(struct api *a) {
    return keyring_in_use(a->config.keyring);
}

static enum key_result take_found(enum keyring_result result, const struct keyring_found *found,
                                  struct http_key *out) {
    switch (result) {
    case KEYRING_OK:
        break;
    case KEYRING_EXPIRED:
        return KEY_EXPIRED;
    case KEYRING_REVOKED:
        return KEY_REVOKED;
    case KEYRING_UNKNOWN:
        return KEY_UNKNOWN;
    }
    *out = (struct http_key){.id = found->id, .number = found->number, .scopes = found->scopes};
    memcpy(out->name, found->prefix, sizeof out->name);
    memcpy(out->models, found->models, sizeof out->models);
    memcpy(out->limits, found->limits, sizeof out->limits);
    key_owner(found->id, out->owner);
    return KEY_OK;
}

static enum key_result find_key(struct api *a, const char *given, struct http_key *out) {
    struct keyring_found found = {0};
    return take_found(keyring_find(a->config.keyring, given, clock_wall_s(), &found), &found, out);
}

static enum key_result get_key(struct api *a, int64_t id, struct http_key *out) {
    struct keyring_found found = {0};
    return take_found(keyring_get(a->config.keyring, id, clock_wall_s(), &found), &found, out);
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

/* An administrator's request that changes something, also if it did not get far enough to say what.
 */
static bool is_act(const struct request *r) {
    return r->act ||
           (r->is_admin && (r->route->flags & ROUTE_ADMIN) && strcmp(r->route->method, "GET") != 0);
}

void api_audit(struct request *r, unsigned status) {
    struct audit_row row = {.time_s = clock_wall_s()};
    if (!is_act(r)) return;
    if (r->key.id < 0)
        snprintf(row.who, sizeof row.who, "key:file_%s", r->key.name);
    else
        snprintf(row.who, sizeof row.who, "%s%s", r->key.id ? "key:" : "local", r->key.name);
    if (r->act)
        snprintf(row.act, sizeof row.act, "%s", r->act);
    else
        snprintf(row.act, sizeof row.act, "%s %s", r->route->method, r->route->path);
    address_text(request_client(r), row.client);
    memcpy(row.object, r->act_on, sizeof row.object);
    if (status >= 400)
        snprintf(row.result, sizeof row.result, "failed: %u", status);
    else
        snprintf(row.result, sizeof row.result, "%s", r->act_queued ? "queued" : "ok");
    audit_add(r->api->config.audit, &row);
}

const struct http_keys api_registry_keys = {are_in_use, find_key, get_key, name_key};
