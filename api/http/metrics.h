/* metrics.h - counts of requests, and Prometheus' text format. Any thread. */
#ifndef INFERD_API_HTTP_METRICS_H
#define INFERD_API_HTTP_METRICS_H

#include "api/http/http.h"
#include "core/base/str.h"

#include <stddef.h>

/* Columns of http.n_requests; the last, 0, stands for any other status. */
extern const unsigned http_codes[HTTP_N_CODES];
/* Counts an answered request of the route in row (request.row). */
void metrics_count(struct http *h, size_t row, unsigned status);

/* # HELP and # TYPE, before the samples of name. */
void metrics_head(str *s, const char *name, const char *type, const char *help);
/* value as a label's value, without its quotes. */
void metrics_label(str *s, const char *value);
/* {route="...",method="..." of row, without the closing brace. */
void metrics_add_route(str *s, const struct http *h, size_t row);

/* All metrics of the HTTP server: requests, costs, connections; and the costs alone. */
void metrics_add_http(str *s, struct http *h);
void metrics_add_costs(str *s, struct http *h);

#endif
