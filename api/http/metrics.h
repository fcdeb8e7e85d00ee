/* metrics.h - what the writers of /metrics share: Prometheus' text format. Private to api/. */
#ifndef INFERD_API_HTTP_METRICS_H
#define INFERD_API_HTTP_METRICS_H

#include "api/api_int.h"

/* # HELP and # TYPE, before the samples of name. */
void metrics_head(str *s, const char *name, const char *type, const char *help);
/* {route="...",method="..." of row (api_n_routes: requests that matched none), left open. */
void metrics_route(str *s, size_t row);

/* metrics_costs.c: who costs what. */
void metrics_costs(str *s, api *a);

#endif
