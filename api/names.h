/* names.h - names of models in the registry, which other processes, /api/copy and /api/create
 * change while the daemon serves. The registry is opened for each look-up. Pool threads. */
#ifndef INFERD_API_NAMES_H
#define INFERD_API_NAMES_H

#include "api/generate/api_state.h"

extern const struct api_names api_registry_names;

#endif
