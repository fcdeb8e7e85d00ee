/* route.c - which handler answers, and everything that can be refused before the body is read: a
 * new endpoint is a row here. Runs on HTTP threads. */
#include "api/anthropic/messages.h"
#include "api/generate/gen.h"
#include "api/generate/limits.h"
#include "api/ollama/ollama.h"
#include "api/responses/responses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Ollama's clients say nothing about their body's type (its own examples with curl). */
enum {
    TEXT = ROUTE_KEY | ROUTE_MODEL | ROUTE_JSON, /* answered at once, the model computes nothing */
    WORK = TEXT | ROUTE_WORK,
    MESSAGES = WORK | ROUTE_ANTHROPIC,
    OLLAMA = ROUTE_KEY | ROUTE_MODEL | ROUTE_OLLAMA,
    HEALTH = ROUTE_DIRECT | ROUTE_HEALTH
};

/* The first row whose path and method fit; a method that none of a path's rows has is 405 and names
 * those that they have. */
const struct route api_routes[] = {
    {"POST", "/v1/chat/completions", WORK, ep_chat, "/v1/chat/completions", &chat_table},
    {"POST", "/v1/completions", WORK, ep_completions, "/v1/completions", &completions_table},
    {"POST", "/v1/embeddings", WORK, ep_embeddings, "/v1/embeddings", &embeddings_table},
    {"POST", "/v1/messages", MESSAGES, ep_messages, "/v1/messages", &messages_table},
    {"POST", "/v1/messages/count_tokens", TEXT | ROUTE_ANTHROPIC, ep_messages_count,
     "/v1/messages/count_tokens", &messages_count_table},
    {"POST", "/api/chat", OLLAMA | ROUTE_WORK, ep_ollama_chat, "/api/chat", &ollama_chat_table},
    {"POST", "/api/generate", OLLAMA | ROUTE_WORK, ep_ollama_generate, "/api/generate",
     &ollama_generate_table},
    {"POST", "/api/show", OLLAMA, ep_ollama_show, "/api/show", &ollama_show_table},
    {"GET", "/api/tags", OLLAMA | ROUTE_DIRECT, ep_ollama_tags, "/api/tags", NULL},
    {"GET", "/api/ps", OLLAMA | ROUTE_DIRECT, ep_ollama_ps, "/api/ps", NULL},
    {"GET", "/api/version", ROUTE_KEY | ROUTE_OLLAMA | ROUTE_DIRECT, ep_ollama_version,
     "/api/version", NULL},
    {"POST", "/v1/responses", WORK, ep_responses, "/v1/responses", &responses_table},
    {"POST", "/v1/responses/input_tokens", TEXT, ep_response_tokens, "/v1/responses/input_tokens",
     &response_tokens_table},
    {"GET", "/v1/responses/{id}", ROUTE_KEY, ep_response_get, "/v1/responses/{id}", NULL},
    {"DELETE", "/v1/responses/{id}", ROUTE_KEY, ep_response_delete, "/v1/responses/{id}", NULL},
    {"GET", "/v1/responses/{id}/input_items", ROUTE_KEY, ep_response_items,
     "/v1/responses/{id}/input_items", NULL},
    {"POST", "/v1/responses/{id}/cancel", ROUTE_KEY, ep_response_cancel,
     "/v1/responses/{id}/cancel", NULL},
    {"GET", "/v1/models", ROUTE_KEY | ROUTE_MODEL | ROUTE_DIRECT, ep_models, "/v1/models", NULL},
    {"GET", "/v1/models/", ROUTE_KEY | ROUTE_MODEL | ROUTE_PREFIX | ROUTE_DIRECT, ep_model,
     "/v1/models/{id}", NULL},
    {"POST", "/tokenize", TEXT, ep_tokenize, "/tokenize", &tokenize_table},
    {"POST", "/v1/tokenize", TEXT, ep_tokenize, "/v1/tokenize", &tokenize_table},
    {"POST", "/detokenize", TEXT, ep_detokenize, "/detokenize", &detokenize_table},
    {"POST", "/v1/detokenize", TEXT, ep_detokenize, "/v1/detokenize", &detokenize_table},
    {"POST", "/v1/inferd/render", TEXT, ep_render, "/v1/inferd/render", &chat_table},
    {"GET", "/v1/inferd/fields", ROUTE_KEY, ep_fields, "/v1/inferd/fields", NULL},
    {"GET", "/livez", HEALTH, ep_livez, "/livez", NULL},
    {"GET", "/readyz", HEALTH, ep_readyz, "/readyz", NULL},
    {"GET", "/health", HEALTH, ep_health, "/health", NULL},
    {"GET", "/metrics", ROUTE_KEY | HEALTH, ep_metrics, "/metrics", NULL},
    {"GET", "/", ROUTE_FILE | ROUTE_DIRECT, ep_web, "web", NULL},
};
const size_t api_n_routes = sizeof api_routes / sizeof *api_routes;

_Static_assert(sizeof api_routes / sizeof *api_routes <= API_MAX_ROUTES,
               "metrics keep one row for requests without a route");

size_t route_row(const struct route *route) {
    return route ? (size_t)(route - api_routes) : api_n_routes;
}

/* Bytes of the path before {id}. */
static size_t fixed_part(const struct route *route) {
    const char *id = strstr(route->path, "{id}");
    return id ? (size_t)(id - route->path) : strlen(route->path);
}

static bool path_fits(const struct route *route, const char *path) {
    if (route->flags & ROUTE_FILE) return web_find(path) != NULL;
    if (route->flags & ROUTE_PREFIX) return strncmp(path, route->path, strlen(route->path)) == 0;
    size_t n = fixed_part(route);
    if (!route->path[n]) return strcmp(path, route->path) == 0;
    size_t id = strncmp(path, route->path, n) == 0 ? strcspn(path + n, "/") : 0;
    return id && strcmp(path + n + id, route->path + n + strlen("{id}")) == 0;
}

/* HEAD is GET without the body, which libmicrohttpd leaves out. */
static bool method_fits(const struct route *route, const char *method) {
    return strcmp(route->method, method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

static void add_allow(char *allow, size_t n, const char *method) {
    size_t at = strlen(allow);
    snprintf(allow + at, n - at, "%s%s%s", at ? ", " : "", method,
             strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

/* A path may have several rows, one for each method. */
static bool find_route(struct request *r) {
    char message[512], allow[64] = "";
    for (size_t i = 0; i < api_n_routes; i++) {
        const struct route *route = &api_routes[i];
        if (!path_fits(route, r->path)) continue;
        if (method_fits(route, r->method)) {
            r->route = route;
            r->rest = r->path + fixed_part(route);
            return true;
        }
        add_allow(allow, sizeof allow, route->method);
    }
    if (*allow) {
        reply_header(r, "Allow", allow);
        snprintf(message, sizeof message, "Method %s is not allowed for %s: use %s.", r->method,
                 r->path, allow);
        reply_error(r, &(struct api_error){405, "invalid_request_error", "method_not_allowed", NULL,
                                           message});
    } else {
        snprintf(message, sizeof message, "There is nothing at %s %s.", r->method, r->path);
        reply_error(
            r, &(struct api_error){404, "invalid_request_error", "unknown_url", NULL, message});
    }
    return false;
}

static bool check_state(struct request *r) {
    api *a = r->api;
    if ((r->route->flags & ROUTE_WORK) && atomic_load(&a->draining)) {
        reply_error(r, &(struct api_error){503, "server_error", "shutting_down", NULL,
                                           "The server is shutting down: no new requests."});
        return false;
    }
    if ((r->route->flags & ROUTE_MODEL) && !atomic_load(&a->ready)) {
        reply_error(r, &(struct api_error){503, "server_error", "model_loading", NULL,
                                           "The model is still loading."});
        return false;
    }
    return true;
}

/* "application/json", with or without parameters. */
static bool is_json(const char *type) {
    size_t n = strlen("application/json");
    if (!type || strncasecmp(type, "application/json", n) != 0) return false;
    type += n;
    while (*type == ' ' || *type == '\t')
        type++;
    return *type == '\0' || *type == ';';
}

static bool check_body_headers(struct request *r) {
    const char *coding = request_header(r, "Content-Encoding");
    if (coding && strcasecmp(coding, "identity") != 0) {
        reply_error(r, &(struct api_error){415, "invalid_request_error", "unsupported_media_type",
                                           NULL,
                                           "Content-Encoding is not supported: send the body "
                                           "uncompressed."});
        return false;
    }
    if ((r->route->flags & ROUTE_JSON) && !is_json(request_header(r, "Content-Type"))) {
        reply_error(r, &(struct api_error){415, "invalid_request_error", "unsupported_media_type",
                                           NULL, "Content-Type must be application/json."});
        return false;
    }
    return true;
}

bool route_check(struct request *r) {
    return auth_check_host(r) && auth_check_origin(r) && find_route(r) &&
           (!(r->route->flags & ROUTE_KEY) || auth_check_key(r)) && check_state(r) &&
           check_body_headers(r) && limits_read_deadline(r);
}
