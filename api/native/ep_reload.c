/* ep_reload.c - for administrators: POST /v1/inferd/reload reads the configuration again and says
 * which keys it applied and which need a restart. The work is the daemon's. Pool threads. */
#include "api/generate/api_state.h"
#include "api/http/error.h"
#include "api/http/json.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include <string.h>

enum { NAMES_MAX_BYTES = 16 << 10 };

/* "a, b" as a JSON array. */
static void add_names(str *s, const char *member, const char *list) {
    str_addf(s, ",\"%s\":[", member);
    for (const char *at = list; *at; at += strspn(at, ", ")) {
        size_t n = strcspn(at, ",");
        str_addf(s, "%s\"%.*s\"", at == list ? "" : ",", (int)n, at);
        at += n;
    }
    str_add_char(s, ']');
}

static void handle_reload(struct request *r) {
    const struct api_config *c = &r->api->config;
    err e = {0};
    str applied, pending, body;
    str_init(&applied, NAMES_MAX_BYTES);
    str_init(&pending, NAMES_MAX_BYTES);
    str_init(&body, 3 * NAMES_MAX_BYTES);
    request_act(r, "config.reload", NULL);
    int rc = c->reload
                 ? c->reload(c->reload_arg, &applied, &pending, &e)
                 : err_set(&e, ERR_UNSUPPORTED, "This server has no configuration to reload.");
    str_add(&body, "{\"object\":\"inferd.reload\"");
    add_names(&body, "applied", str_cstr(&applied));
    add_names(&body, "needs_restart", str_cstr(&pending));
    str_add_char(&body, '}');
    str_fini(&applied);
    str_fini(&pending);
    reply_header(r, "Cache-Control", "no-store");
    if (rc) {
        str_fini(&body);
        reply_error(r, &(struct api_error){400, "invalid_request_error", "invalid_configuration",
                                           e.param, e.msg});
        return;
    }
    reply_json(r, 200, &body);
}

const struct route reload_route = {"POST", "/v1/inferd/reload",
                                   ROUTE_KEY | ROUTE_MODEL | ROUTE_ADMIN, .handle = handle_reload,
                                   .answers = "inferd.reload"};
