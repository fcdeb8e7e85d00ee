/* ep_fields.c - GET /v1/inferd/fields: what every endpoint's body may hold, out of the tables that
 * the bodies are read by. Runs on pool threads. */
#include "api/api_int.h"
#include "api/http/json.h"

void ep_fields(struct request *r) {
    str body;
    bool first = true;
    str_init(&body, 4 << 20);
    str_add(&body, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < api_n_routes; i++) {
        const struct route *route = &api_routes[i];
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
