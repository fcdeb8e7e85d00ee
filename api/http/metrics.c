/* metrics.c - the count of requests, and Prometheus' text format. Owns nothing; any thread. */
#include "api/http/metrics.h"

#include "api/http/route.h"

const unsigned http_codes[HTTP_N_CODES] = {200, 204, 304, 400, 401, 403, 404, 405, 413, 414,
                                           415, 417, 429, 431, 499, 500, 501, 503, 504, 0};

void metrics_count(struct http *h, size_t row, unsigned status) {
    size_t col = 0;
    while (http_codes[col] && http_codes[col] != status)
        col++;
    atomic_fetch_add(&h->n_requests[row][col], 1);
}

void metrics_head(str *s, const char *name, const char *type, const char *help) {
    str_addf(s, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void metrics_label(str *s, const char *value) {
    for (; *value; value++) {
        if (*value == '\\' || *value == '"') str_add_char(s, '\\');
        if (*value == '\n')
            str_add(s, "\\n");
        else
            str_add_char(s, *value);
    }
}

void metrics_add_route(str *s, const struct http *h, size_t row) {
    const struct route *route = row < h->setup.n_routes ? h->setup.routes[row] : NULL;
    str_addf(s, "{route=\"%s\",method=\"%s\"", route ? route_name(route) : "other",
             route ? route->method : "other");
}
