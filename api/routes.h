/* routes.h - the table of all endpoints. */
#ifndef INFERD_API_ROUTES_H
#define INFERD_API_ROUTES_H

#include "api/http/route.h"

#include <stddef.h>

extern const struct route *const api_routes[]; /* (api_n_routes) */
extern const size_t api_n_routes;

#endif
