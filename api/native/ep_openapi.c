/* ep_openapi.c - GET /openapi.json: this server's endpoints and the fields of their bodies as an
 * OpenAPI 3.1 document, from the tables that route requests and parse bodies. Runs on pool threads.
 */
#include "api/generate/api_state.h"
#include "api/http/json.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include <ctype.h>
#include <string.h>

/* What parameters of queries mean. */
static const struct {
    const char *name, *rest;
} query_parameters[] = {
    {"limit",
     "\"description\":\"The largest number of items to return.\",\"schema\":{\"type\":\"integer\","
     "\"minimum\":1,\"maximum\":100,\"default\":20}"},
    {"after", "\"description\":\"The id of the item before the first one.\",\"schema\":{\"type\":"
              "\"string\"}"},
    {"after_id", "\"description\":\"The same in Anthropic's form.\",\"schema\":{\"type\":"
                 "\"string\"}"},
    {"before_id", "\"description\":\"Anthropic's form: the id of the item after the last one.\","
                  "\"schema\":{\"type\":\"string\"}"},
    {"page", "\"description\":\"Anthropic's form: the member next_page of the page before.\","
             "\"schema\":{\"type\":\"string\"}"},
    {"order", "\"schema\":{\"type\":\"string\",\"enum\":[\"asc\",\"desc\"]}"},
    {"model", "\"description\":\"Only of this model.\",\"schema\":{\"type\":\"string\"}"},
    {"metadata", "\"description\":\"Only with these pairs: metadata[key]=value.\",\"style\":"
                 "\"deepObject\",\"explode\":true,\"schema\":{\"type\":\"object\","
                 "\"additionalProperties\":{\"type\":\"string\"}}"},
};

/* The {names} in a path, and the query's. */
static void add_parameters(str *s, const struct route *route) {
    const char *comma = "";
    str_add(s, ",\"parameters\":[");
    for (const char *at = strchr(route_name(route), '{'); at; at = strchr(at + 1, '{')) {
        str_addf(s, "%s{\"name\":", comma);
        json_add_string(s, at + 1, strcspn(at + 1, "}"));
        str_add(s, ",\"in\":\"path\",\"required\":true,\"schema\":{\"type\":\"string\"}}");
        comma = ",";
    }
    for (size_t i = 0; i < sizeof query_parameters / sizeof *query_parameters; i++) {
        if (!route->query || !words_hold(route->query, query_parameters[i].name)) continue;
        str_addf(s, "%s{\"name\":\"%s\",\"in\":\"query\",%s}", comma, query_parameters[i].name,
                 query_parameters[i].rest);
        comma = ",";
    }
    str_add_char(s, ']');
}

static void add_answer(str *s, const struct route *route) {
    str_add(s, ",\"responses\":{\"200\":{\"description\":\"The answer.\"");
    if (route->answers)
        str_addf(s,
                 ",\"content\":{\"application/json\":{\"schema\":{\"$ref\":"
                 "\"#/components/schemas/%s\"}}}",
                 route->answers);
    str_add(s, "},\"default\":{\"description\":\"An error, in the form of the endpoint's protocol; "
               "fields that were ignored are in the header x-inferd-ignored-fields.\"}}}");
}

/* The objects that endpoints answer with, by the word in their member "object". */
static void add_schemas(str *s, const struct route *const *routes, size_t n) {
    const char *comma = "";
    str_add(s, "\"schemas\":{");
    for (size_t i = 0; i < n; i++) {
        const char *name = routes[i]->answers;
        size_t of = 0; /* the first route that has it */
        while (name && !(routes[of]->answers && strcmp(routes[of]->answers, name) == 0))
            of++;
        if (!name || of < i) continue;
        bool list = strcmp(name, "list") == 0;
        str_addf(s,
                 "%s\"%s\":{\"type\":\"object\",\"properties\":{\"object\":{\"const\":\"%s\"}%s},"
                 "\"required\":[\"object\"%s]}",
                 comma, name, name, list ? ",\"data\":{\"type\":\"array\"}" : "",
                 list ? ",\"data\"" : "");
        comma = ",";
    }
    str_add(s, "},");
}

static void add_operation(str *s, const struct route *route) {
    str_add_char(s, '"');
    for (const char *c = route->method; *c; c++)
        str_add_char(s, (char)tolower((unsigned char)*c));
    str_add(s, "\":{\"operationId\":");
    str id;
    str_init(&id, 256);
    str_addf(&id, "%s %s", route->method, route_name(route));
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
    add_parameters(s, route);
    if (route->flags & ROUTE_KEY) str_add(s, ",\"security\":[{},{\"key\":[]},{\"x-api-key\":[]}]");
    if (route->table) {
        str_add(s, ",\"requestBody\":{\"required\":true,\"content\":{\"application/json\":"
                   "{\"schema\":");
        json_add_schema(s, route->table);
        str_add(s, "}}}");
    }
    add_answer(s, route);
}

static void add_paths(str *s, const struct route *const *routes, size_t n) {
    bool first = true;
    for (size_t i = 0; i < n; i++) {
        size_t of = 0; /* the path's first route */
        while (strcmp(route_name(routes[of]), route_name(routes[i])) != 0)
            of++;
        if (of < i) continue;
        str_add(s, first ? "" : ",");
        first = false;
        json_add_cstr(s, route_name(routes[i]));
        str_add_char(s, ':');
        for (size_t k = i; k < n; k++) {
            if (strcmp(route_name(routes[k]), route_name(routes[i])) != 0) continue;
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
    str_add(&body, "},\"components\":{");
    add_schemas(&body, r->http->setup.routes, r->http->setup.n_routes);
    str_add(&body, "\"securitySchemes\":{\"key\":{\"type\":\"http\",\"scheme\":"
                   "\"bearer\"},\"x-api-key\":{\"type\":\"apiKey\",\"in\":\"header\",\"name\":"
                   "\"x-api-key\"}}}}");
    reply_json(r, 200, &body);
}

const struct route openapi_route = {"GET", "/openapi.json", ROUTE_KEY, .handle = handle_openapi};
