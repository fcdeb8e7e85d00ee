/* route.c - finds a request's route, and refuses what can be refused before the body is read. Owns
 * nothing; runs on HTTP threads. */
#include "api/http/route.h"

#include "api/http/auth.h"
#include "api/http/cors.h"
#include "api/http/error.h"
#include "api/http/http.h"
#include "api/http/request.h"
#include "core/base/clock.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *route_bare_path(const char *path) {
    return strncmp(path, "/v1/", 4) == 0 ? path + 3 : path;
}

/* Makes pattern and path comparable, whether the request has /v1 or not. */
static void skip_version(const struct route *route, const char **pattern, const char **path) {
    *pattern = route->path;
    if (!(route->flags & ROUTE_V1)) return;
    *pattern = route_bare_path(*pattern);
    *path = route_bare_path(*path);
}

/* What follows a prefix route's prefix, or the path before {id}. */
static const char *rest_of(const struct route *route, const char *path) {
    const char *pattern;
    skip_version(route, &pattern, &path);
    const char *id = strstr(pattern, "{id}");
    return path + (id ? (size_t)(id - pattern) : strlen(pattern));
}

static bool path_matches(const struct route *route, const char *path) {
    if (route->matches) return route->matches(path);
    const char *p;
    skip_version(route, &p, &path);
    if (route->flags & ROUTE_PREFIX) return strncmp(path, p, strlen(p)) == 0;
    while (*p) {
        if (*p != '{') {
            if (*p++ != *path++) return false;
            continue;
        }
        size_t n = strcspn(path, "/");
        if (!n) return false;
        path += n;
        p += strcspn(p, "}") + 1;
    }
    return !*path;
}

/* HEAD is GET whose body libmicrohttpd leaves out. */
static bool method_matches(const struct route *route, const char *method) {
    return strcmp(route->method, method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

/* Two rows may have the same method: /v1/responses/input_tokens is also a /v1/responses/{id}. No
 * method's name is part of another's. */
static void add_allow(char *allow, size_t n, const char *method) {
    size_t at = strlen(allow);
    if (strstr(allow, method)) return;
    snprintf(allow + at, n - at, "%s%s%s", at ? ", " : "", method,
             strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

/* The first row that matches path and method. A path may have several rows, one per method: a
 * method that has none is a 405 that names the others. */
static bool find_route(struct request *r) {
    char message[512], allow[64] = "";
    for (size_t i = 0; i < r->http->setup.n_routes; i++) {
        const struct route *route = r->http->setup.routes[i];
        if (!path_matches(route, r->path)) continue;
        if (method_matches(route, r->method)) {
            r->route = route;
            r->row = i;
            r->rest = rest_of(route, r->path);
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
        snprintf(message, sizeof message, "Unknown endpoint: %s %s.", r->method, r->path);
        reply_error(
            r, &(struct api_error){404, "invalid_request_error", "unknown_url", NULL, message});
    }
    return false;
}

static bool check_state(struct request *r) {
    struct http *h = r->http;
    if ((r->route->flags & ROUTE_WORK) && atomic_load(&h->draining)) {
        reply_error(r, &(struct api_error){503, "server_error", "shutting_down", NULL,
                                           "The server is shutting down: no new requests."});
        return false;
    }
    if ((r->route->flags & ROUTE_MODEL) && !atomic_load(&h->ready)) {
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

bool route_check_local(struct request *r) {
    return find_route(r) && (!(r->route->flags & ROUTE_KEY) || auth_check_key(r)) &&
           check_state(r) && quota_take_request(r, clock_now_ns());
}

bool route_check(struct request *r) {
    return auth_check_host(r) && auth_check_origin(r) && !cors_answer_preflight(r) &&
           find_route(r) && (!(r->route->flags & ROUTE_KEY) || auth_check_key(r)) &&
           (!(r->route->flags & ROUTE_ADMIN) || auth_check_admin(r)) && check_state(r) &&
           check_body_headers(r) && request_read_deadline(r) &&
           (!(r->route->flags & ROUTE_WORK) || quota_take_request(r, clock_now_ns()));
}
