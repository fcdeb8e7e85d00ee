/* ep_openapi.c - GET /openapi.json: this server's endpoints and the fields of their bodies as an
 * OpenAPI 3.1 document, from the tables that route requests and parse bodies. Runs on pool threads.
 */
#include "api/generate/api_state.h"
#include "api/http/json.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include <ctype.h>
#include <string.h>

/* The {names} in a path. */
static void add_parameters(str *s, const char *path) {
    bool first = true;
    str_add(s, ",\"parameters\":[");
    for (const char *at = strchr(path, '{'); at; at = strchr(at + 1, '{')) {
        str_add(s, first ? "{\"name\":" : ",{\"name\":");
        first = false;
        json_add_string(s, at + 1, strcspn(at + 1, "}"));
        str_add(s, ",\"in\":\"path\",\"required\":true,\"schema\":{\"type\":\"string\"}}");
    }
    str_add_char(s, ']');
}

static void add_operation(str *s, const struct route *route) {
    str_add_char(s, '"');
    for (const char *c = route->method; *c; c++)
        str_add_char(s, (char)tolower((unsigned char)*c));
    str_add(s, "\":{\"operationId\":");
    str id;
    str_init(&id, 256);
    str_addf(&id, "%s %s", route->method, route->path);
    json_add_string(s, str_cstr(&id), id.len);
    if (route->flags & ROUTE_V1) {
        const char *bare = route_bare_path(route->path);
        bool has_version = bare != route->path;
        str_clear(&id);
        str_addf(&id, "Also at %s%s.", has_version ? "" : "/v1", bare);
        str_add(s, ",\"description\":");
        json_add_string(s, str_cstr(&id), id.len);
    }
    str_fini(&id);
    add_parameters(s, route->path);
    if (route->flags & ROUTE_KEY) str_add(s, ",\"security\":[{},{\"key\":[]},{\"x-api-key\":[]}]");
    if (route->table) {
        str_add(s, ",\"requestBody\":{\"required\":true,\"content\":{\"application/json\":"
                   "{\"schema\":");
        json_add_schema(s, route->table);
        str_add(s, "}}}");
    }
    str_add(s, ",\"responses\":{\"200\":{\"description\":\"The answer.\"},"
               "\"default\":{\"description\":\"An error, in the form of the endpoint's protocol; "
               "fields that were ignored are in the header x-inferd-ignored-fields.\"}}}");
}

static void add_paths(str *s, const struct route *const *routes, size_t n) {
    bool first = true;
    for (size_t i = 0; i < n; i++) {
        size_t of = 0; /* the path's first route */
        while (strcmp(routes[of]->path, routes[i]->path) != 0)
            of++;
        if (of < i) continue;
        str_add(s, first ? "" : ",");
        first = false;
        json_add_cstr(s, routes[i]->path);
        str_add_char(s, ':');
        for (size_t k = i; k < n; k++) {
            if (strcmp(routes[k]->path, routes[i]->path) != 0) continue;
            str_add_char(s, k == i ? '{' : ',');
            add_operation(s, routes[k]);
        }
        str_add_char(s, '}');
    }
}

static void handle_openapi(struct request *r) {
    str body;
    str_init(&body, 4 << 20);
    str_add(&body, "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"inferd\",\"version\":");
    json_add_cstr(&body, r->api->config.version);
    str_add(&body, "},\"servers\":[{\"url\":\"/\"}],\"paths\":{");
    add_paths(&body, r->http->setup.routes, r->http->setup.n_routes);
    str_add(&body, "},\"components\":{\"securitySchemes\":{\"key\":{\"type\":\"http\",\"scheme\":"
                   "\"bearer\"},\"x-api-key\":{\"type\":\"apiKey\",\"in\":\"header\",\"name\":"
                   "\"x-api-key\"}}}}");
    reply_json(r, 200, &body);
}

const struct route openapi_route = {"GET", "/openapi.json", ROUTE_KEY, .handle = handle_openapi};
