/* limits.c - see limits.h. Owns nothing. */
#include "api/generate/limits.h"

#include "api/generate/api_state.h"
#include "api/http/auth.h"
#include "api/http/request.h"

#include "core/base/key.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

/* Names the client: its key, and where it is configured its address or what its gateway says. */
static int set_client(const struct request *r, struct engine_params *p, err *e) {
    enum fair_share by = (enum fair_share)r->api->live.fair_share;
    const char *key = auth_key(r), *id = "";
    char address[ADDRESS_TEXT_BYTES];
    str text;
    if (by == FAIR_OFF) return 0;
    if (by == FAIR_HEADER) id = request_header(r, "x-gateway-inference-fairness-id");
    if (by == FAIR_ADDRESS) {
        struct client_network n = address_network(request_client(r));
        struct address network = {.family = n.bytes[0]};
        memcpy(network.bytes, n.bytes + 1, sizeof n.bytes - 1);
        id = address_text(&network, address);
    }
    str_init(&text, 1 << 20);
    str_addf(&text, "%s\n%s%s", key ? key : "", id ? id : "", r->local ? "\nbatch" : "");
    int rc = text.failed ? err_no_memory(e) : 0;
    p->client = siphash128(r->api->secret, str_cstr(&text), text.len).lo;
    p->client_weight = (uint32_t)r->key.limits[KEY_WEIGHT];
    str_fini(&text);
    return rc;
}

enum { MAX_PRIORITY = 1000 }; /* as of the field priority */

int limits_read_objectives(const char *text, struct model_aliases *out, err *e) {
    int rc = model_aliases_parse(text, "objectives", out, e);
    for (size_t i = 0; !rc && i < out->n; i++) {
        char *end;
        long priority = strtol(out->pairs[i].model, &end, 10);
        if (*end || priority < -MAX_PRIORITY || priority > MAX_PRIORITY)
            rc = err_set_param(e, ERR_INVALID, "objectives",
                               "\"%.60s=%.60s\": the priority must be a number from %d to %d",
                               out->pairs[i].pattern, out->pairs[i].model, -MAX_PRIORITY,
                               MAX_PRIORITY);
    }
    if (!rc) return 0;
    model_aliases_fini(out);
    return err_prefix(e, "objectives: ");
}

/* The priority of what a gateway says the request is for; 0: it says nothing known. */
static int objective_priority(const struct request *r) {
    const char *name = request_header(r, "x-gateway-inference-objective");
    char priority[MODEL_ALIAS_BYTES];
    if (!name || !alias_book_find(r->api->objectives, name, priority)) return 0;
    return (int)strtol(priority, NULL, 10);
}

int limits_apply(const struct request *r, const char *cache_salt, struct engine_params *p, err *e) {
    int most = r->api->live.max_priority;
    if (r->local) p->priority = ENGINE_PRIORITY_BACKGROUND;
    if (p->priority > most)
        return err_set_param(
            e, ERR_INVALID, "priority",
            "Invalid value for 'priority': %d, expected at most %d, this server's limit.",
            p->priority, most);
    if (!p->priority) p->priority = objective_priority(r);
    p->holder = r->key.number;
    p->kv_percent = (uint32_t)r->key.limits[KEY_KV_SHARE];
    const char *owner = r->api->live.share_prefixes ? NULL : auth_key(r);
    int rc = set_client(r, p, e);
    return rc ? rc : key_tenant(r->api->secret, owner, cache_salt, &p->prefix_salt, e);
}
