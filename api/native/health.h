/* health.h - may requests be sent? The same answer at /readyz, /health and /metrics. */
#ifndef INFERD_API_NATIVE_HEALTH_H
#define INFERD_API_NATIVE_HEALTH_H

#include <stdbool.h>

struct api;

/* Any thread. */
bool health_is_ready(struct api *a);

#endif
