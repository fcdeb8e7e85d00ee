/* ep_fields.c - GET /v1/inferd/fields: the fields of every endpoint's body, from the tables that
 * parse the bodies. Runs on pool threads. */
#include "api/generate/api_state.h"
#include "api/http/json.h"
#include "api/http/request.h"
#include "api/http/route.h"

static void handle_fields(struct request *r) {
    str body;
    bool first = true;
    str_init(&body, 4 << 20);
    str_add(&body, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < r->http->setup.n_routes; i++) {
        const struct route *route = r->http->setup.routes[i];
        if (!route->table) continue;
        str_addf(&body, "%s{\"endpoint\":\"%s %s\",\"fields\":", first ? "" : ",", route->method,
                 route->path);
        json_add_table(&body, route->table);
        str_add_char(&body, '}');
        first = false;
    }
    str_add(&body, "]}");
    reply_json(r, 200, &body);
}

const struct route fields_route = {"GET", "/v1/inferd/fields", ROUTE_KEY, .handle = handle_fields};
